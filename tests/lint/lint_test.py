#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows: every rule of the lint finds what it is for, and the tree breaks none of them.

How: a small tree is written with one fault for each rule, and the same tree without; then the lint reads the project.
"""
from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import lint  # noqa: E402
import source  # noqa: E402
from rules import RULES, Tree  # noqa: E402

SPDX = "// SPDX-License-Identifier: Apache-2.0\n"
HASH = "# SPDX-License-Identifier: Apache-2.0\n"
PAGE = "<!-- SPDX-License-Identifier: Apache-2.0 -->\n"
LONG_FUNCTION = "void f() {\n" + "  g();\n" * 120 + "}\n"

# rule -> (file, text with the fault, text without)
FAULTS: dict[str, list[tuple[str, str, str]]] = {
    "layering": [
        ("libkvpool/src/pool/a.cc", SPDX + '#include "store/store.hpp"\n', SPDX + '#include "media/format.hpp"\n'),
        ("libkvpool/src/pool/a.cc", SPDX + '#include "backend/map.hpp"\n', SPDX + '#include "arch/memory.hpp"\n'),
        ("libkvpool/src/sched/a.cc", SPDX + '#include "arch/types.hpp"\n', SPDX + '#include <vector>\n'),
        ("libkvpool/src/pool/a.cc", SPDX + '#include "../arch/types.hpp"\n', SPDX + '// #include "store/store.hpp"\n'),
    ],
    "raw-instructions": [
        ("tools/a.cc", SPDX + "void f() { _mm_sfence(); }\n", SPDX + 'const char *f() { return "_mm_sfence"; }\n'),
        ("libkvpool/src/pool/a.cc", SPDX + "void f() { _mm512_stream_si512(p, v); }\n", SPDX + "void f() { stream(p, v); }\n"),
        ("libkvpool/src/pool/a.cc", SPDX + "volatile int x;\n", SPDX + "// not volatile\nint x;\n"),
        ("tests/unit/a.cc", SPDX + 'void f() { asm("clwb %0"); }\n', SPDX + "void f() { mem.publish_line(o, l); }\n"),
        ("libkvpool/src/pool/a.cc", SPDX + "void f() { std::atomic_thread_fence(o); }\n", SPDX + "void f();\n"),
    ],
    "dropped-asm": [
        ("libkvpool/src/arch/a.cc", SPDX + "void f() { asm goto(\"\" : : : : bad); bad:; }\n",
         SPDX + "void f() { asm volatile goto(\"\" : : : : bad); bad:; }\n"),
    ],
    "licences": [
        ("tools/a.cc", "int x;\n", SPDX + "int x;\n"),
        ("kmod/a.c", SPDX, "// SPDX-License-Identifier: GPL-2.0-only\n"),
        ("tools/b.sh", "#!/bin/sh\n\n\n" + HASH, "#!/bin/sh\n" + HASH),
    ],
    "sizes": [
        ("tools/a.cc", SPDX + "int x;\n" * 1600, SPDX + "int x;\n" * 1400),
        ("tools/a.cc", SPDX + "//" + "x" * 99 + "\n", SPDX + "//" + "x" * 98 + "\n"),
        ("tools/a.cc", SPDX + LONG_FUNCTION, SPDX + LONG_FUNCTION.replace("  g();\n" * 30, "")),
        ("tools/a.cc", SPDX + "namespace n {\nstruct S {\n auto f() const noexcept -> int {\n" + "g(1'000, '{');\n" * 101 + "}\n};\n}\n",
         SPDX + "namespace n {\nstruct S {\n" + "int f() { return 1; }\n" * 150 + "};\n}\n"),
    ],
    "blanks": [("tools/a.cc", SPDX + "int x; \n", SPDX + "int x;\n"), ("tools/a.cc", SPDX + "int x;", SPDX)],
    "readmes": [("tools/README.md", PAGE + "line\n" * 80, PAGE + "line\n" * 20)],
    "spelling": [("tools/a.cc", SPDX + "// recieve\n", SPDX + "// receive\n")],
    "places": [
        ("tools/a.cc", SPDX + '// see /ro' + 'ot/x\n', SPDX + "// see /dev/x\n"),
        ("scripts/a.sh", HASH + "curl https://py" + "pi.org/simple\n", HASH + "pip install x\n"),
    ],
    "unfinished": [("tools/a.cc", SPDX + "// TO" + "DO later\n", SPDX + "// done\n")],
    "medium-lines": [
        ("libkvpool/src/media/a.hpp",
         SPDX + "struct alignas(64) A {\n  u32 crc;\n};\nstatic_assert(LineStruct<A>);\n",
         SPDX + "// writer: the owner\nstruct alignas(64) A {\n  u32 crc;\n};\nstatic_assert(LineStruct<A>);\n"),
        ("libkvpool/src/media/a.hpp",
         SPDX + "// writer: the owner\nstruct alignas(64) A {\n  u32 x;\n};\nstatic_assert(LineStruct<A>);\n",
         SPDX + "// writer: all; no CRC: a hint\nstruct alignas(64) A {\n  u32 x;\n};\nstatic_assert(LineStruct<A>);\n"),
        ("libkvpool/src/media/a.hpp",
         SPDX + "// writer: the owner\nstruct alignas(64) A {\n  u32 crc;\n};\n",
         SPDX + "// writer: the owner\nstruct alignas(64) A {\n  u32 crc;\n};\nstatic_assert(sizeof(A) == 64);\n"),
    ],
    "protocol-tags": [("tools/a.cc", SPDX + "// proto 99\n", SPDX + "// proto 2.1\n")],
    "named-pages": [
        ("tools/a.cc", SPDX + "// Documentation/none.m" + "d\n", SPDX + "// Documentation/protocol.md\n"),
        ("tools/README.md", PAGE + "[x](none.md)\n", PAGE + "[x](../Documentation/protocol.md)\n"),
    ],
    "listed-pages": [("Documentation/new.md", PAGE, None)],
    "built": [("libkvpool/src/pool/deep/a.cc", SPDX, None), ("tests/unit/a.cc", SPDX, None)],
    "test-heads": [
        ("tests/unit/a_test.cc", SPDX + "Test(a, b) { cr_assert(true); }\n",
         SPDX + "// Shows: a.\n// How: b.\nTest(a, b) { cr_assert(true); }\n"),
        ("tests/unit/a_test.cc", SPDX + "// Shows: a.\n// How: b.\nTest(a, b) {}\n", SPDX[:0] + SPDX + "// Shows: a.\n// How: b.\nTest(a, b) { cr_assert(x); }\n"),
    ],
    "versions": [
        ("VERSION", "one\n", "1.2.3\n"),
        ("libkvpool/include/kvpool/kvpool.h",
         SPDX + "#define KVPOOL_VERSION_MAJOR 9\n#define KVPOOL_VERSION_MINOR 2\n#define KVPOOL_VERSION_PATCH 3\n",
         SPDX + "#define KVPOOL_VERSION_MAJOR 1\n#define KVPOOL_VERSION_MINOR 2\n#define KVPOOL_VERSION_PATCH 3\n"),
        ("CHANGELOG.md", PAGE + "## Unreleased\n### ABI\n",
         PAGE + "## Unreleased\n### Format\n### ABI\n### ioctl\n### Tools\n### Fixed\n"),
    ],
    "scripts": [
        ("scripts/a.py", HASH + "def f(:\n", HASH + "def f():\n    pass\n"),
        ("scripts/a.sh", "#!/bin/bash\n" + HASH + "cd $1\nrm $x/*\n", "#!/bin/bash\n" + HASH + 'cd "$1" || exit\n'),
    ],
    "man-pages": [
        ("Documentation/man/a.1.scd", "; SPDX-License-Identifier: Apache-2.0\nno heading\n",
         "a(1)\n\n; SPDX-License-Identifier: Apache-2.0\n\n# NAME\n\na - does a\n"),
    ],
}


def small_tree(root: Path, extra: str, text: str | None) -> Tree:
    """A tree that breaks no rule, and one more file."""
    files = {"VERSION": "1.2.3\n", "Documentation/protocol.md": PAGE + "## 2. Two\n### 2.1 More\n",
             "Documentation/README.md": PAGE + "[protocol](protocol.md)\n"}
    for folder in {str(parent) for parent in Path(extra).parents} - {"."}:
        files.setdefault(f"{folder}/README.md", PAGE if not folder.startswith("kmod") else (
            "<!-- SPDX-License-Identifier: GPL-2.0-only -->\n"))
    if text is not None:
        files[extra] = text
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return Tree(root, sorted(files))


class Result:
    def __init__(self) -> None:
        self.passed = self.failed = 0

    def expect(self, held: bool, what: str) -> None:
        if held:
            self.passed += 1
        else:
            self.failed += 1
            print(f"FAILED: {what}")


def seeded_faults(result: Result) -> None:
    result.expect(set(FAULTS) == set(RULES), f"rules without a seeded fault: {set(RULES) ^ set(FAULTS)}")
    for rule, cases in FAULTS.items():
        for number, (name, bad, good) in enumerate(cases):
            with tempfile.TemporaryDirectory() as folder:
                found = list(RULES[rule](small_tree(Path(folder), name, bad)))
                result.expect(any(finding[0] == name for finding in found), f"{rule}, fault {number}: not found")
            with tempfile.TemporaryDirectory() as folder:
                found = list(RULES[rule](small_tree(Path(folder), name, good)))
                result.expect(not found, f"{rule}, fault {number}: found where there is none: {found}")


def function_lengths(result: Result) -> None:
    text = "int a(int x) : b{x} {\n  if (x) {\n  }\n}\nenum class E : int {\n  k,\n};\n#define M() { \\\n  (\nauto l = [](int) {\n};\n"
    result.expect([item[:2] for item in source.functions(text)] == [(1, 4), (10, 2)],
                  f"functions are measured: {source.functions(text)}")


def project(result: Result) -> None:
    tree = Tree(lint.ROOT, lint.git_names(lint.ROOT, []))
    for rule, found in lint.findings(tree).items():
        for finding in found:
            print(lint.show(rule, finding))
        result.expect(not found, f"{rule}: {len(found)} findings")
    reuse = subprocess.run(["reuse", "lint"], cwd=lint.ROOT, capture_output=True, text=True, check=False)
    result.expect(reuse.returncode == 0, "reuse lint:\n" + reuse.stdout)


def main() -> int:
    result = Result()
    seeded_faults(result)
    function_lengths(result)
    project(result)
    print(f"{result.passed} passed, {result.failed} failed")
    return 1 if result.failed else 0


if __name__ == "__main__":
    sys.exit(main())
