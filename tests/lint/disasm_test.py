#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows: each instruction set's path holds its own instructions and none that its CPUs lack, also those paths that the
machine at hand cannot execute.

How: objdump of the static library in the build folder, function by function. A table of loops is named by its member
(x86_avx512.cc.o); within it the loops are told apart by their template arguments, which the symbol names carry.
"""
from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = Path(os.environ.get("KVPOOL_BUILD_DIR", ROOT / "build"))
# member -> what writes a line past the caches there
STORES = {"sse2": r"\bmovntdq .*%xmm", "avx2": r"\bvmovntdq .*%ymm", "avx512": r"\bvmovntdq .*%zmm"}
WIDER = {"sse2": r"%[yz]mm|\bv[a-z]", "avx2": r"%zmm|%[xy]mm(1[6-9]|2\d|3[01])", "avx512": r"\bthis_never_matches\b"}
failures: list[str] = []


def expect(ok: bool, text: str) -> None:
    if not ok:
        failures.append(text)


def disassemble(library: Path) -> dict[str, dict[str, list[str]]]:
    """member -> function -> instructions"""
    out = subprocess.run(["objdump", "-d", "--no-show-raw-insn", str(library)], capture_output=True, text=True, check=True)
    members: dict[str, dict[str, list[str]]] = {}
    member, function = "", ""
    for line in out.stdout.splitlines():
        if head := re.match(r"(\S+):\s+file format", line):
            member = head.group(1)
        elif head := re.match(r"[0-9a-f]+ <(.+)>:$", line):
            function = head.group(1)
        elif code := re.match(r"\s+[0-9a-f]+:\s+(.+)$", line):
            members.setdefault(member, {}).setdefault(function, []).append(code.group(1))
    return members


def holds(code: list[str], pattern: str) -> bool:
    return any(re.search(pattern, line) for line in code)


def loops(functions: dict[str, list[str]], name: str) -> dict[str, list[str]]:
    """Instances of a loop by their last template argument, "0" or "1"; cold parts belong to their function."""
    found: dict[str, list[str]] = {}
    for symbol, code in functions.items():
        if match := re.search(rf"{len(name)}{name}INS\w*?Lb([01])E", symbol):
            found.setdefault(match.group(1), []).extend(code)
    return found


def check_payload(isa: str, functions: dict[str, list[str]]) -> None:
    every = [line for code in functions.values() for line in code]
    expect(not holds(every, WIDER[isa]), f"x86_{isa}: holds instructions its CPUs do not have")
    stream = loops(functions, "stream")
    expect(set(stream) == {"0", "1"}, f"x86_{isa}: stream loops found: {sorted(stream)}")
    for movdir, code in stream.items():
        plain, direct = holds(code, STORES[isa]), holds(code, r"\bmovdir64b\b")
        expect(plain == (movdir == "0"), f"x86_{isa}: stream, movdir64b {movdir}: streaming stores {plain}")
        expect(direct == (movdir == "1"), f"x86_{isa}: stream, movdir64b {movdir}: movdir64b {direct}")
        expect(not holds(code, r"\bclflush"), f"x86_{isa}: stream flushes")
    fetch = loops(functions, "fetch")
    expect(set(fetch) == {"0", "1"}, f"x86_{isa}: fetch loops found: {sorted(fetch)}")
    for opt, code in fetch.items():
        strong, weak = holds(code, r"\bclflush\b"), holds(code, r"\bclflushopt\b")
        expect(weak == (opt == "1"), f"x86_{isa}: fetch, clflushopt {opt}: clflushopt {weak}")
        expect(strong == (opt == "0"), f"x86_{isa}: fetch, clflushopt {opt}: clflush {strong}")
        expect(not holds(code, r"movnt"), f"x86_{isa}: fetch streams")


def main() -> int:
    library = BUILD / "lib" / "libkvpool.a"
    if not library.exists():
        print(f"{library} is missing: build first")
        return 1
    members = disassemble(library)
    for isa in STORES:
        found = [functions for member, functions in members.items() if member.startswith(f"x86_{isa}.")]
        expect(len(found) == 1, f"{len(found)} members x86_{isa}")
        for functions in found:
            check_payload(isa, functions)
    # The control verbs stand inline wherever they are used; the bare loops use all of them.
    bare = [line for member, functions in members.items() if member.startswith("bare.")
            for code in functions.values() for line in code]
    for pattern in (*STORES.values(), r"\bmovdir64b\b", r"\bclflush\b", r"\bclflushopt\b", r"\bmfence\b", r"\bsfence\b",
                    r"\bvmovdqa64 .*%zmm16$", r"\bvmovdqa .*%ymm14$", r"\bmovdqa .*%xmm12$"):
        expect(holds(bare, pattern), f"bare: no {pattern}")
    # No other member needs more than the library asks for: its own code has no AVX outside zmm16 to zmm31 and ymm14, 15,
    # the registers of the verbs.
    for member, functions in members.items():
        if re.match(r"x86_avx", member):
            continue
        wide = Counter(register for code in functions.values() for line in code
                       for register in re.findall(r"%[yz]mm\d+", line))
        others = set(wide) - {"%zmm16", "%ymm14", "%ymm15"}
        expect(not others, f"{member}: compiled for AVX: {sorted(others)}")
    for failure in failures:
        print(failure)
    print(f"disasm: {len(members)} members, {len(failures)} findings")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
