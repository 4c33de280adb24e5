#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Breaks the lines of C and C++ files that are longer than the lint allows, and leaves all others as they are.

Use: fit_lines.py FILE... Needs clang-format-14. Names what it could not break.
"""
import re
import subprocess
import sys
from pathlib import Path

COLUMNS = 100


def too_long(path: Path) -> list[int]:
    return [number for number, line in enumerate(path.read_text().split("\n"), 1) if len(line) > COLUMNS]


def main() -> int:
    left = 0
    for path in map(Path, sys.argv[1:]):
        # A ruled heading is cut, not broken.
        path.write_text(re.sub(r"^([ \t]*// -+ .*? -)-*$", lambda rule: rule.group(0)[:COLUMNS], path.read_text(),
                               flags=re.MULTILINE))
        for _ in range(4):  # breaking one line can make the next too long
            lines = too_long(path)
            if not lines:
                break
            subprocess.run(["clang-format-14", "-i", *(f"--lines={line}:{line}" for line in lines), str(path)], check=True)
        for line in too_long(path):
            print(f"{path}:{line}: cannot be broken")
            left += 1
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
