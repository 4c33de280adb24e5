# SPDX-License-Identifier: Apache-2.0
"""The rules of the lint. Each takes the tree and yields findings; Documentation/style.md says why they exist."""
from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import source

C_NAMES = (".c", ".cc", ".cpp", ".h", ".hpp", ".ipp", ".cu", ".cuh")
LAYER_RANK = {"arch": 0, "media": 1, "pool": 2, "backend": 2, "transfer": 2, "tier": 3, "sched": 3, "store": 4, "api": 5}
FILE_LINES, LINE_COLUMNS, README_LINES = 1500, 100, 60
FUNCTION_LINES = 100
LICENCES = {"kmod": "GPL-2.0-only", "uapi": "GPL-2.0-only WITH Linux-syscall-note"}
# Formats that have no comments, and texts that are licences themselves.
NO_SPDX = re.compile(r"^LICENSES/|^tests/lint/words$|^VERSION$|^\.reuse/dep5$|\.(json|jsonl|img|bin|png|gz|sample|expected)$")
RAW = re.compile(
    r"\b_mm\d*_(?:stream|clflush|clflushopt|clwb|sfence|lfence|mfence)\w*|\b_(?:movdir64b|directstoreu_u64)\b"
    r"|\b__builtin_ia32_(?:clflush|clwb|sfence|lfence|mfence|movnt|movdir|directstore)\w*|\b__builtin_nontemporal_store\b"
    r"|\b(?:__)?asm(?:__)?\b|\bvolatile\b|\b__sync_synchronize\b|\b(?:clwb|clflush|clflushopt|movdir64b|movnt\w+)\s*\(")
PROCESS_FENCE = re.compile(r"\batomic_(?:thread|signal)_fence\b")
UNFINISHED = re.compile(r"\b(?:TODO|FIXME|XXX|HACK|TBD)\b")
PLACES = re.compile(
    r"(?<![\w.])/(?:work|root|home)/|/tmp/kb-|pypi\.org|pythonhosted|deb\.debian\.org|registry\.npmjs|crates\.io"
    r"|artifactory|\bpyenv\b")
README_FOLDERS = re.compile(
    r"^(libkvpool|libkvpool/src/\w+|tools|tests|tests/\w+|kmod|uapi|cuda|python|packaging|scripts|examples|cmake|Documentation)$")
BUILT = re.compile(
    r"^(libkvpool/src/(arch|media|backend|transfer|pool|tier|store|sched|api)/[^/]+\.cc|tools/(\w+/)?[^/]+\.cc"
    r"|tests/(sim|torture|model)/[^/]+\.cc|tests/unit/[^/]+_test\.cc|tests/fuzz/(\w+_fuzz|standalone)\.cc"
    r"|tests/(install|abi)/[^/]+\.(c|cc)|examples/[^/]+\.(c|cc)|kmod/.*\.c|tests/qemu/[^/]+\.c|tests/kmod/[^/]+\.(c|cc)|cuda/.*)$")


# The lint itself holds the words that it looks for.
SELF = ("tests/lint/rules.py", "tests/lint/lint_test.py")


class Tree:
    """The files to read: names from git, text read once."""

    def __init__(self, root: Path, names: list[str]) -> None:
        self.root = root
        self.names = names
        self._text: dict[str, str] = {}

    def text(self, name: str) -> str:
        if name not in self._text:
            self._text[name] = (self.root / name).read_text(errors="replace")
        return self._text[name]

    def code(self) -> list[str]:
        return [name for name in self.names if name.endswith(C_NAMES)]

    def exists(self, name: str) -> bool:
        return (self.root / name).exists()


Finding = tuple[str, int, str]  # file, line (0: the file), what is wrong and what to do


def line_of(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def layering(tree: Tree) -> Iterator[Finding]:
    for name in tree.code():
        parts = name.split("/")
        if parts[:2] != ["libkvpool", "src"] or len(parts) < 4:
            continue
        layer, text = parts[2], source.blank(tree.text(name), keep_strings=True)
        if layer not in LAYER_RANK:
            yield name, 0, f"'{layer}' is no layer; known: {' '.join(LAYER_RANK)}"
            continue
        for match in re.finditer(r'^\s*#\s*include\s+"([^"]+)"', text, re.MULTILINE):
            other = match.group(1).split("/")[0]
            where = line_of(text, match.start(1))
            if "/" not in match.group(1) or other.startswith("."):
                yield name, where, f'include "{match.group(1)}": write it from libkvpool/src'
            elif other in LAYER_RANK and other != layer and (
                    LAYER_RANK[other] >= LAYER_RANK[layer] or layer == "sched"):
                yield name, where, f"layer {layer} may not include {other}"


def raw_instructions(tree: Tree) -> Iterator[Finding]:
    for name in tree.code():
        if name.startswith(("libkvpool/src/arch/", "kmod/", "cuda/")):
            continue
        code = source.blank(tree.text(name))
        # Between threads of one host a C++ fence is right; on pool memory it is not what it seems to be.
        pool_memory = name.startswith(("libkvpool/src/media/", "libkvpool/src/pool/", "libkvpool/src/transfer/"))
        patterns = [RAW] + ([PROCESS_FENCE] if pool_memory else [])
        for pattern in patterns:
            for match in pattern.finditer(code):
                yield name, line_of(code, match.start()), f"'{match.group(0)}' belongs into arch: use a verb"

# gcc 12 drops a goto asm whose outputs nobody uses, unless it is volatile.
DROPPED = re.compile(r"\b(?:__)?asm(?:__)?\s+goto\b")


def dropped_asm(tree: Tree) -> Iterator[Finding]:
    for name in tree.code():
        code = source.blank(tree.text(name))
        for match in DROPPED.finditer(code):
            yield name, line_of(code, match.start()), "'asm goto' may be dropped: 'asm volatile goto'"


def licences(tree: Tree) -> Iterator[Finding]:
    for name in tree.names:
        if NO_SPDX.search(name):
            continue
        wanted = LICENCES.get(name.split("/")[0], "Apache-2.0")
        head = "\n".join(tree.text(name).split("\n")[:3])
        found = re.search(r"SPDX-License-Identifier: ([\w.\- ]+?)\s*(?:\*/|-->|\n|$)", head)
        if not found:
            yield name, 1, "no SPDX-License-Identifier in the first three lines"
        elif found.group(1) != wanted:
            yield name, 1, f"licence is {found.group(1)}, this folder's is {wanted}"


def sizes(tree: Tree) -> Iterator[Finding]:
    for name in tree.names:
        if name.startswith("LICENSES/"):
            continue
        lines = tree.text(name).split("\n")
        if name.endswith((*C_NAMES, ".py", ".sh")) and len(lines) > FILE_LINES + 1:
            yield name, 0, f"{len(lines) - 1} lines, at most {FILE_LINES}"
        if not name.endswith(C_NAMES):
            continue
        for number, line in enumerate(lines, 1):
            if len(line) > LINE_COLUMNS:
                yield name, number, f"{len(line)} columns, at most {LINE_COLUMNS}"
        for first, length, head in source.functions(tree.text(name)):
            if length > FUNCTION_LINES:
                yield name, first, f"function of {length} lines, at most {FUNCTION_LINES}: {head}"


def blanks(tree: Tree) -> Iterator[Finding]:
    for name in tree.names:
        if name.endswith((*C_NAMES, ".py", ".sh", ".cmake", ".txt", ".yml")) and not name.startswith("LICENSES/"):
            text = tree.text(name)
            for match in re.finditer(r"[ \t]+$", text, re.MULTILINE):
                yield name, line_of(text, match.start()), "blank at the end of the line"
            if text and not text.endswith("\n"):
                yield name, 0, "no newline at the end of the file"


def readmes(tree: Tree) -> Iterator[Finding]:
    known = set(tree.names)
    folders = {str(parent) for name in tree.names for parent in Path(name).parents}
    for folder in sorted(folders):
        if not README_FOLDERS.match(folder):
            continue
        readme = f"{folder}/README.md"
        if readme not in known:
            yield folder, 0, "no README.md (purpose, what it may include, where to start)"
        elif tree.text(readme).count("\n") > README_LINES:
            yield readme, 0, f"longer than one page ({README_LINES} lines)"


def spelling(tree: Tree) -> Iterator[Finding]:
    names = [name for name in tree.names if not name.startswith("LICENSES/") and name not in SELF
             and not re.search(r"\.(img|bin|png|gz)$", name)]
    if not names or not shutil.which("codespell"):
        if not shutil.which("codespell"):
            yield "scripts/deps.sh", 0, "codespell is not installed"
        return
    words = tree.root / "tests/lint/words"
    command = ["codespell", "--quiet-level", "2"] + (["-I", str(words)] if words.exists() else [])
    done = subprocess.run([*command, *names], cwd=tree.root, capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        found = re.match(r"(.+?):(\d+): (.+)", line)
        if found:
            yield found.group(1).removeprefix("./"), int(found.group(2)), found.group(3)


def places(tree: Tree) -> Iterator[Finding]:
    for name in tree.names:
        if name.startswith("LICENSES/") or name in SELF:
            continue
        text = tree.text(name)
        for match in PLACES.finditer(text):
            yield name, line_of(text, match.start()), f"'{match.group(0)}' is a place of one machine or network"


def unfinished(tree: Tree) -> Iterator[Finding]:
    for name in tree.names:
        if name.startswith("LICENSES/") or name in SELF:
            continue
        text = tree.text(name)
        for match in UNFINISHED.finditer(text):
            yield name, line_of(text, match.start()), f"'{match.group(0)}': do it, or say in Documentation/status.md what is open"


def medium_lines(tree: Tree) -> Iterator[Finding]:
    for name in tree.code():
        if not name.startswith(("libkvpool/src/media/", "uapi/linux/kvpool_format")):
            continue
        text = tree.text(name)
        for match in re.finditer(r"((?:^[ \t]*//[^\n]*\n)*)^struct alignas\((?:64|kLineBytes)\) (\w+) \{(.*?)^\};",
                                 text, re.MULTILINE | re.DOTALL):
            comment, struct, body = match.groups()
            where = line_of(text, match.start(2))
            if "writer:" not in comment:
                yield name, where, f"{struct}: the comment above has no 'writer:'"
            if not re.search(r"\bcrc\b", body) and "no CRC" not in comment:
                yield name, where, f"{struct}: no crc field, and the comment does not say why ('no CRC')"
            if not re.search(rf"static_assert\(.*(?:LineStruct<{struct}>|sizeof\({struct}\))", text):
                yield name, where, f"{struct}: no static_assert on its size"


def protocol_tags(tree: Tree) -> Iterator[Finding]:
    page = "Documentation/protocol.md"
    if not tree.exists(page):
        return  # that it is named and missing is a finding of named_pages
    sections = set(re.findall(r"^#+ (\d+(?:\.\d+)?)[. ]", tree.text(page), re.MULTILINE))
    for name in tree.code():
        text = source.comments(tree.text(name))
        for match in re.finditer(r"\bproto (\d+(?:\.\d+)?)", text):
            if match.group(1) not in sections and match.group(1).split(".")[0] not in sections:
                yield name, line_of(text, match.start()), f"{page} has no section {match.group(1)}"


def named_pages(tree: Tree) -> Iterator[Finding]:
    for name in tree.names:
        if name.startswith("LICENSES/") or name in SELF:
            continue
        text = tree.text(name)
        for match in re.finditer(r"\bDocumentation/[\w./-]*\w\.(?:md|scd)\b", text):
            if not tree.exists(match.group(0)):
                yield name, line_of(text, match.start()), f"names {match.group(0)}, which does not exist"
        if name.endswith(".md"):
            for match in re.finditer(r"\]\(([^)#\s:]+)(?:#[^)]*)?\)", text):
                if not (tree.root / name).parent.joinpath(match.group(1)).exists():
                    yield name, line_of(text, match.start()), f"link to {match.group(1)}, which does not exist"


def listed_pages(tree: Tree) -> Iterator[Finding]:
    index = "Documentation/README.md"
    if not tree.exists(index):
        return
    for name in tree.names:
        page = name.removeprefix("Documentation/")
        if name.startswith("Documentation/") and re.fullmatch(r"[\w-]+\.md", page) and name != index:
            if f"({page})" not in tree.text(index):
                yield name, 0, f"{index} does not list it"


def built(tree: Tree) -> Iterator[Finding]:
    for name in tree.names:
        if name.endswith((".c", ".cc", ".cpp", ".cu")) and not BUILT.match(name):
            yield name, 0, "no rule of the build compiles this file (names and folders: tests/README.md)"


def test_heads(tree: Tree) -> Iterator[Finding]:
    for name in tree.names:
        if re.match(r"tests/unit/[^/]+_test\.cc$", name):
            text = tree.text(name)
            if not re.search(r"^// Shows: \S", text, re.MULTILINE) or not re.search(r"^// How: \S", text, re.MULTILINE):
                yield name, 0, "no '// Shows: ...' and '// How: ...'"
            if not re.search(r"\bcr_(?:assert|expect|fatal|fail)\w*|\beq\(", text):
                yield name, 0, "asserts nothing"


def versions(tree: Tree) -> Iterator[Finding]:
    header = "libkvpool/include/kvpool/kvpool.h"
    version = (tree.root / "VERSION").read_text().strip() if tree.exists("VERSION") else ""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        yield "VERSION", 1, f"'{version}' is no version (MAJOR.MINOR.PATCH)"
        return
    if tree.exists(header):
        text = tree.text(header)
        parts = [re.search(rf"#define\s+KVPOOL_VERSION_{part}\s+(\d+)", text) for part in ("MAJOR", "MINOR", "PATCH")]
        if all(parts):
            found = ".".join(part.group(1) for part in parts if part)
            if found != version:
                yield header, 0, f"says {found}, VERSION says {version}"
    page = "CHANGELOG.md"
    if tree.exists(page):
        unreleased = tree.text(page).partition("## Unreleased")[2].partition("\n## ")[0]
        for part in ("Format", "ABI", "ioctl", "Tools", "Fixed"):
            if not re.search(rf"^### {part}$", unreleased, re.MULTILINE):
                yield page, 0, f"'Unreleased' has no part '{part}'"


def scripts(tree: Tree) -> Iterator[Finding]:
    shells = []
    for name in tree.names:
        if name.endswith(".py"):
            try:
                compile(tree.text(name), name, "exec")
            except SyntaxError as error:
                yield name, error.lineno or 0, f"does not compile: {error.msg}"
        elif name.endswith(".sh") or tree.text(name).startswith("#!/usr/bin/env bash"):
            shells.append(name)
    if shells and shutil.which("shellcheck"):
        done = subprocess.run(["shellcheck", "-x", "-S", "warning", "-f", "gcc", *shells], cwd=tree.root,
                              capture_output=True, text=True, check=False)
        for line in done.stdout.splitlines():
            found = re.match(r"(.+?):(\d+):\d+: (.+)", line)
            if found:
                yield found.group(1), int(found.group(2)), found.group(3)
    elif shells:
        yield "scripts/deps.sh", 0, "shellcheck is not installed"


def man_pages(tree: Tree) -> Iterator[Finding]:
    pages = [name for name in tree.names if re.match(r"Documentation/man/.*\.scd$", name)]
    for tool in ("scdoc", "mandoc"):
        if pages and not shutil.which(tool):
            yield "scripts/deps.sh", 0, f"{tool} is not installed"
            return
    for name in pages:
        made = subprocess.run(["scdoc"], input=tree.text(name), capture_output=True, text=True, check=False)
        if made.returncode != 0:
            yield name, 0, " ".join(made.stderr.split()) or "scdoc fails"
            continue
        done = subprocess.run(["mandoc", "-T", "lint", "-W", "warning"], input=made.stdout, capture_output=True, text=True,
                              check=False)
        for line in done.stdout.splitlines():
            if "skipping paragraph macro" in line:
                continue  # scdoc always writes one after a heading
            yield name, 0, "mandoc: " + line.removeprefix("mandoc: <stdin>:")


RULES = {
    "layering": layering, "raw-instructions": raw_instructions, "dropped-asm": dropped_asm, "licences": licences,
    "sizes": sizes, "blanks": blanks,
    "readmes": readmes, "spelling": spelling, "places": places, "unfinished": unfinished, "medium-lines": medium_lines,
    "protocol-tags": protocol_tags, "named-pages": named_pages, "listed-pages": listed_pages, "built": built,
    "test-heads": test_heads, "versions": versions, "scripts": scripts, "man-pages": man_pages,
}
