#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows: the shared library keeps the interface that programs were compiled against.

How: reads the built library with nm and readelf, the symbol map and the header, and compares the layout of every public
structure, as C and C++ compilers see it, with layout.txt. `abi_test.py --write` writes that file anew: do so only for a
change that existing programs survive, and say so in the changelog under ABI.
"""
from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILD = Path(os.environ.get("KVPOOL_BUILD_DIR", ROOT / "build"))
LIBRARY = BUILD / "lib/libkvpool.so"
HEADER = ROOT / "libkvpool/include/kvpool/kvpool.h"
MAP = ROOT / "libkvpool/libkvpool.map"
LAYOUT = HERE / "layout.txt"
# What the library may need at run time; everything else is for tools and tests.
NEEDED = re.compile(r"^(libcrypto|libisal|libxxhash|libdaxctl|libstdc\+\+|libgcc_s|libm|libc|ld-linux-x86-64|librt"
                    r"|libpthread)\.so")


def run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def header_text() -> str:
    return re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.DOTALL)


def map_nodes() -> dict[str, set[str]]:
    text = re.sub(r"#.*|/\*.*?\*/", "", MAP.read_text())
    nodes = {}
    for name, body in re.findall(r"(\w[\w.]*)\s*\{(.*?)\}", text, re.DOTALL):
        visible = body.partition("global:")[2].partition("local:")[0]
        nodes[name] = set(re.findall(r"(\w+);", visible))
    return nodes


def declared() -> set[str]:
    return set(re.findall(r"KVPOOL_API\b[^;(]*?\b(kvpool_\w+)\s*\(", header_text()))


def exported() -> dict[str, str]:
    """Symbol -> version node."""
    found = {}
    for line in run("nm", "-D", "--defined-only", "--with-symbol-versions", str(LIBRARY)).splitlines():
        _, kind, name = line.split()[:3]
        if kind != "A":  # the nodes themselves
            symbol, _, node = name.partition("@@")
            found[symbol] = node
    return found


def structures() -> dict[str, list[str]]:
    """Public structures with a body, and their members."""
    found = {}
    for name, body in re.findall(r"^struct (kvpool_\w+) \{(.*?)^\};", header_text(), re.MULTILINE | re.DOTALL):
        members = []
        for declaration in body.split(";"):
            member = re.search(r"(\w+)\s*(?:\[[^\]]*\])?\s*$", declaration.strip())
            if member:
                members.append(member.group(1))
        found[name] = members
    return found


def layout(compiler: str, suffix: str) -> str:
    """Size of every public structure and enum constant, offset of every member, as one line each."""
    lines = [f'#include "{HEADER}"', "#include <stddef.h>", "#include <stdio.h>", "int main(void) {"]
    for name, members in sorted(structures().items()):
        lines.append(f'printf("{name} %zu\\n", sizeof(struct {name}));')
        for member in members:
            lines.append(f'printf("{name}.{member} %zu %zu\\n", offsetof(struct {name}, {member}), '
                         f'sizeof(((struct {name} *)0)->{member}));')
    for constant in sorted(set(re.findall(r"^\s+(KVPOOL_\w+) = ", header_text(), re.MULTILINE))):
        lines.append(f'printf("{constant} %d\\n", (int){constant});')
    for flag in sorted(set(re.findall(r"^#define (KVPOOL_\w+_F_\w+) ", header_text(), re.MULTILINE))):
        lines.append(f'printf("{flag} %lld\\n", (long long){flag});')
    lines.append("return 0; }")
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder) / f"layout.{suffix}", Path(folder) / "layout"
        source.write_text("\n".join(lines) + "\n")
        run(compiler, "-Wall", "-Werror", str(source), "-o", str(program))
        return run(str(program))


class Exports(unittest.TestCase):
    def test_library_is_what_the_map_says(self) -> None:
        nodes = map_nodes()
        self.assertEqual(exported(), {symbol: node for node, symbols in nodes.items() for symbol in symbols})

    def test_map_is_what_the_header_declares(self) -> None:
        public = {symbol for node, symbols in map_nodes().items() if "PRIVATE" not in node for symbol in symbols}
        self.assertGreater(len(public), 20)
        self.assertEqual(public, declared())

    def test_nodes_carry_the_version(self) -> None:
        major_minor = ".".join((ROOT / "VERSION").read_text().split(".")[:2])
        self.assertIn(f"KVPOOL_{major_minor}", map_nodes())
        self.assertIn(f"KVPOOL_PRIVATE_{major_minor}", map_nodes())

    def test_every_name_is_ours(self) -> None:
        for symbol in exported():
            self.assertRegex(symbol, r"^kvpool_[a-z0-9_]+$")

    def test_soname_and_needed(self) -> None:
        dynamic = run("readelf", "-dW", str(LIBRARY))
        self.assertIn("Library soname: [libkvpool.so.0]", dynamic)
        for name in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
            self.assertRegex(name, NEEDED)

    def test_no_writable_globals(self) -> None:
        allowed = [line.split("  ")[0] for line in (HERE / "writable-globals").read_text().splitlines()
                   if line and not line.startswith("#")]
        found = 0
        for line in run("objdump", "-tC", str(LIBRARY)).splitlines():
            # .data.rel.ro is read-only once the library is loaded; thread-locals are no shared state.
            symbol = re.match(r"[0-9a-f]+ .{7} (\.data|\.bss)\t[0-9a-f]+ +(?:\.hidden )?(.*)", line)
            if symbol and symbol.group(2) not in (".data", ".bss"):
                found += 1
                if not any(re.search(pattern, symbol.group(2)) for pattern in allowed):
                    self.fail(f"writable global: {symbol.group(2)} ({symbol.group(1)})")
        self.assertGreater(found, 0, "no symbol at all was read")


class Layout(unittest.TestCase):
    def test_structures_are_found(self) -> None:
        self.assertGreater(len(structures()), 10)
        self.assertIn("kvpool_ticket", structures())

    def test_c_layout_is_pinned(self) -> None:
        self.assertEqual(layout("cc", "c"), LAYOUT.read_text().partition("\n")[2],
                         "a change that breaks programs? see the head of this file")

    def test_c_and_cxx_agree(self) -> None:
        self.assertEqual(layout("cc", "c"), layout("c++", "cc"))

    def test_options_start_with_size_and_flags(self) -> None:
        for name, members in structures().items():
            if name.endswith("_opts"):
                self.assertEqual(members[:2], ["size", "flags"], name)


class AbiDiff(unittest.TestCase):
    """abidiff is what compares releases; here it must see a change, and none where there is none."""

    def build(self, folder: Path, name: str, body: str) -> Path:
        source, library = folder / f"{name}.c", folder / f"{name}.so"
        source.write_text(body)
        run("cc", "-g", "-shared", "-fPIC", str(source), "-o", str(library))
        return library

    def test_it_sees_a_change(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            text = "struct s { int a; %s }; int f(struct s *s) { return s->a; }\n"
            one = self.build(Path(folder), "one", text % "")
            two = self.build(Path(folder), "two", (text % "").replace("int a;", "int before; int a;"))
            self.assertNotEqual(subprocess.run(["abidiff", str(one), str(two)], capture_output=True).returncode, 0)
            self.assertEqual(subprocess.run(["abidiff", str(one), str(one)], capture_output=True).returncode, 0)

    def test_it_reads_the_library(self) -> None:
        done = subprocess.run(["abidiff", "--headers-dir1", str(HEADER.parent), "--headers-dir2", str(HEADER.parent),
                               str(LIBRARY), str(LIBRARY)], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        LAYOUT.write_text("# SPDX-License-Identifier: Apache-2.0\n" + layout("cc", "c"))
    else:
        unittest.main()
