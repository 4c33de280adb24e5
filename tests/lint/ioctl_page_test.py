#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows: kvpool(4) lists every ioctl with the number, node and right that the driver's table has, and no other.

How: rows of the page against kmod/logic/args.c and the comments of uapi/linux/kvpool.h.
"""
from __future__ import annotations

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
RIGHTS = {"OPEN": "any", "ADMIN": "admin", "MEMBER": "member"}
HEADER_RIGHTS = {"": "any", "A": "admin", "M": "member"}


def from_table() -> dict[str, tuple[str, str]]:
    text = (ROOT / "kmod/logic/args.c").read_text()
    rows = re.findall(r"^\tCOMMAND\(KVPOOL_(\w+),\s*\w+,\s*([A-Z |]+),\s*(\w+),", text, re.MULTILINE)
    return {name: ("".join(sorted(node.strip()[0] for node in nodes.split("|"))), RIGHTS[right]) for name, nodes, right in rows}


def from_header() -> dict[str, tuple[str, int, str]]:
    text = (ROOT / "uapi/linux/kvpool.h").read_text()
    rows = re.findall(r"^#define KVPOOL_(\w+)\s*(?:\\\n)?\s*_IOW?R?\(KVPOOL_IOC_MAGIC, (0x\w+), struct \w+\) /\* ([CP ]+?)((?: [AM])?) \*/",
                      text, re.MULTILINE)
    return {name: (nodes.replace(" ", ""), int(number, 16), HEADER_RIGHTS[right.strip()]) for name, number, nodes, right in rows}


def from_page() -> dict[str, tuple[str, int, str]]:
    text = (ROOT / "Documentation/man/kvpool.4.scd").read_text()
    rows = re.findall(r"^\|  (0x\w+)\n:  (\w+)\n:  (\w+)\n:  (\w+)\n:  \S", text, re.MULTILINE)
    return {name: (nodes, int(number, 16), right) for number, name, nodes, right in rows}


class IoctlPage(unittest.TestCase):
    def test_page_and_header_agree(self):
        self.assertGreater(len(from_header()), 10)
        self.assertEqual(from_page(), from_header())

    def test_page_and_driver_agree(self):
        self.assertEqual({name: (nodes, right) for name, (nodes, _, right) in from_page().items()}, from_table())


if __name__ == "__main__":
    unittest.main()
