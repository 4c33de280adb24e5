#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows: Documentation/protocol.md names for each rule tests that exist, and no mutant of the simulator is left out.
How: its table, and the names in its text, against the sources of simulator, models and tests."""
import re
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "Documentation" / "protocol.md").read_text()
SECTIONS_WITH_RULES = {*map(str, range(3, 15))}


def table():
    part = PAGE[PAGE.index("## What notices that a rule is missing"):]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if line.startswith("|")]
    return rows[2:]


def names(cell):
    return re.findall(r"`([^`]+)`", cell)


def simulator_mutants():
    """Name to section."""
    text = (ROOT / "tests" / "sim" / "mutants.cc").read_text()
    return dict(re.findall(r'Mutant::k\w+,\s*"([a-z0-9-]+)",\s*"(\d+)"', text))


def strings(path):
    return set(re.findall(r'"([a-z0-9-]+)"', path.read_text()))


def criterion_tests():
    found = {}
    for path in (ROOT / "tests" / "unit").glob("*_test.cc"):
        area = path.name[:-len("_test.cc")]
        found[area] = set(re.findall(r"^(?:Test|ParameterizedTest|Theory)\([^,]*?(\w+),\s*(\w+)", path.read_text(),
                                     re.MULTILINE))
    return found


class Rules(unittest.TestCase):
    def test_each_row_names_a_rule_and_something_that_notices(self):
        self.assertGreater(len(table()), 40)
        for row in table():
            self.assertEqual(len(row), 5, row)
            proto, rule, simulator, models, other = row
            self.assertTrue(rule and (simulator or models or other), row)
            self.assertRegex(PAGE, rf"(?m)^## {proto}\. ", f"no section {proto}")

    def test_each_section_with_rules_has_a_row(self):
        self.assertEqual({row[0] for row in table()}, SECTIONS_WITH_RULES)

    def test_mutants_of_the_simulator(self):
        known = simulator_mutants()
        known.pop("none", None)
        self.assertGreater(len(known), 40)
        named = {}
        for row in table():
            for name in names(row[2]):
                self.assertIn(name, known, f"{row[1]}: the simulator has no such mutant")
                named.setdefault(name, set()).add(row[0])
        self.assertEqual(set(known) - set(named), set(), "mutants of the simulator that no rule names")

    def test_mutants_of_models(self):
        files = {path.stem: path for path in (ROOT / "tests" / "model").glob("*.cc")}
        used = set()
        for row in table():
            for name in names(row[3]):
                model, _, mutant = name.partition("/")
                self.assertIn(model, files, f"{row[1]}: no such model")
                self.assertIn(mutant, strings(files[model]), f"{row[1]}: {model} has no such mutant")
                used.add(model)
        self.assertEqual(set(files) - used, set(), "models that no rule names")

    def test_other_tests(self):
        units = criterion_tests()
        sections = re.findall(r"^### (.+)$", (ROOT / "Documentation" / "operations.md").read_text(), re.MULTILINE)
        torture = (ROOT / "tests" / "torture" / "torture.cc").read_text()
        scenarios = set().union(*(strings(path) for path in (ROOT / "tests" / "sim").glob("*.cc")))
        for row in table():
            for part in filter(None, (part.strip() for part in row[4].split(";"))):
                kind, _, rest = part.partition(" ")
                where, _, which = rest.partition(": ")
                if kind == "unit":
                    self.assertIn(where, units, part)
                    if which:
                        self.assertIn(which, {test for _, test in units[where]}, part)
                elif kind == "cli" and where == "failures_test":
                    for title in which.split(", "):
                        self.assertIn(title, sections, part)
                elif kind == "torture:":
                    self.assertIn(f'json["{rest}"]', torture, part)
                elif kind == "sim":
                    self.assertIn(rest.removeprefix("scenario "), scenarios, part)
                elif kind == "golden":
                    self.assertTrue((ROOT / "tests" / "golden" / f"{rest}.py").exists(), part)
                else:
                    self.fail(f"{row[1]}: what is '{part}'?")

    def test_names_in_the_text(self):
        switches = set(re.findall(r"\bk[A-Z]\w+", (ROOT / "libkvpool/src/pool/mutants.hpp").read_text()))
        text = PAGE[:PAGE.index("## What notices that a rule is missing")]
        for name in re.findall(r"`(k[A-Z]\w+)`", text):
            if name != "kFormatVersion":
                self.assertIn(name, switches)
        models = {path.stem for path in (ROOT / "tests" / "model").glob("*.cc")}
        for listed in re.findall(r"\bmodels? ((?:`\w+`(?:, )?)+)", text):
            self.assertLessEqual(set(names(listed)), models)


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    sys.exit(0 if result.wasSuccessful() and result.testsRun > 0 else 1)
