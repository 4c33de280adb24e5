#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lists the coverage marks of the production templates as a C++ table: list_marks.py SRC OUT.

Marks are plain strings in production code, env.mark("name"); the simulator has to know them all, so
that it can name those that no run ever reached.
"""
import pathlib
import re
import sys

LAYERS = ("pool", "store", "tier", "transfer")
MARK = re.compile(r'\bmark\(\s*"([a-z0-9_]+)"\s*\)')


def main() -> int:
    source, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    names = set()
    for layer in LAYERS:
        for path in sorted((source / layer).iterdir()) if (source / layer).is_dir() else []:
            if path.suffix in (".hpp", ".ipp"):
                names.update(MARK.findall(path.read_text(encoding="utf-8")))
    text = "".join(f'    "{name}",\n' for name in sorted(names))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
