#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows: the structures of uapi/ have the same layout for 32-bit programs, stand alone, are C++ too, and go with the
library's header in one program.

How: the assertions of tests/kmod/layout_test.c compiled with -m32, without the test framework; each header by itself.
"""
from __future__ import annotations

import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
STUB = "#define Test(suite, name) void suite##_##name(void)\n#define cr_expect_eq(...)\n"


def compiles(*arguments: str) -> str:
    """What the compiler says; empty if it is content."""
    # A 64-bit machine has the headers of its own architecture only; those of ioctl numbers are the same.
    done = subprocess.run(["gcc", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}/uapi", "-isystem",
                           "/usr/include/x86_64-linux-gnu", *arguments], capture_output=True, text=True, check=False)
    return done.stderr


class Uapi(unittest.TestCase):
    def test_layout_with_32_bits(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "criterion").mkdir()
            (Path(folder) / "criterion/criterion.h").write_text(STUB)
            test = str(ROOT / "tests/kmod/layout_test.c")
            for bits in ("-m32", "-m64"):
                self.assertEqual(compiles(bits, f"-I{folder}", "-Wno-unused-variable", "-Wno-empty-body", test), "", bits)
            with_fault = Path(folder) / "wrong.c"
            with_fault.write_text((ROOT / "tests/kmod/layout_test.c").read_text().replace("kvpool_join, 48", "kvpool_join, 44"))
            self.assertIn("kvpool_join", compiles("-m32", f"-I{folder}", str(with_fault)))

    def test_headers_stand_alone(self):
        for header in sorted((ROOT / "uapi/linux").glob("*.h")):
            for language in ("c", "c++"):
                self.assertEqual(compiles("-x", language, str(header)), "", f"{header.name} as {language}")

    # Guards: both had a kvpool_state, an enum there and a struct here.
    def test_one_program_includes_all_headers(self):
        names = ["kvpool/kvpool.h", *(f"linux/{header.name}" for header in sorted((ROOT / "uapi/linux").glob("*.h")))]
        for language in ("c", "c++"):
            with tempfile.NamedTemporaryFile("w", suffix=".h") as both:
                both.write("".join(f"#include <{name}>\n" for name in names))
                both.flush()
                self.assertEqual(compiles("-x", language, f"-I{ROOT}/libkvpool/include", both.name), "", language)


if __name__ == "__main__":
    unittest.main()
