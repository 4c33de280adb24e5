#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows: Documentation/findings.md lists every finding of the verifier as media/findings.def has it.
How: both are read and compared, row by row; a row that is left out, or says something else, must be noticed."""
import re
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HELPS = {"Itself": "nothing is needed", "Remove": "`kvpool rm`", "Serve": "`kvpool serve`", "Repair": "`kvpool repair`",
         "Format": "`kvpool format`"}


def defined(text):
    rows = re.findall(r'^FINDING\((\w+), "([a-z-]+)", (\w+), (\w+), "([^"]+)"\)$', text, re.MULTILINE)
    return [(printed, severity.lower(), said, HELPS[remedy]) for _, printed, severity, remedy, said in rows]


def listed(text):
    lines = text[text.index("| finding |"):].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `")]
    return [(row[0].strip("`"), *row[1:]) for row in rows]


class Findings(unittest.TestCase):
    def setUp(self):
        self.source = (ROOT / "libkvpool" / "src" / "media" / "findings.def").read_text()
        self.page = (ROOT / "Documentation" / "findings.md").read_text()

    def test_page_and_source_agree(self):
        self.assertGreater(len(defined(self.source)), 40)
        self.assertEqual(len(defined(self.source)), self.source.count("\nFINDING("))
        self.assertEqual(defined(self.source), listed(self.page))

    def test_a_difference_is_noticed(self):
        rows = [line for line in self.page.splitlines() if line.startswith("| `claim")]
        self.assertNotEqual(defined(self.source), listed(self.page.replace(rows[1] + "\n", "")))
        self.assertNotEqual(defined(self.source), listed(self.page.replace("| damage |", "| warning |", 1)))


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    sys.exit(0 if result.wasSuccessful() and result.testsRun > 0 else 1)
