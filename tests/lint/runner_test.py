#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows: the test runner reports failures, crashes, empty programs and skips that are not allowed.

How: a small project with tests of each kind is run through it by ctest, and its counts are compared.
"""
from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SPEC = importlib.util.spec_from_file_location("kvpool_test_runner", ROOT / "scripts/test.py")
assert SPEC and SPEC.loader
runner = importlib.util.module_from_spec(SPEC)
sys.modules["kvpool_test_runner"] = runner
SPEC.loader.exec_module(runner)

PROJECT = """cmake_minimum_required(VERSION 3.25)
project(canary LANGUAGES NONE)
enable_testing()
function(entry name script)
  add_test(NAME ${name} COMMAND sh -c "${script}")
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 2)
endfunction()
"""


def run_project(tests: dict[str, str]) -> dict[str, object]:
    """Counts for each test of a project made of shell lines."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        lines = [f"entry({name} [=[{script}]=])" for name, script in tests.items()]
        (root / "CMakeLists.txt").write_text(PROJECT + "\n".join(lines) + "\n")
        subprocess.run(["cmake", "-S", folder, "-B", f"{folder}/b"], check=True, capture_output=True)
        subprocess.run(["ctest", "--test-dir", f"{folder}/b", "--output-junit", f"{folder}/r.xml"], check=False,
                       capture_output=True)
        total, suites = runner.read_junit(root / "r.xml")
        return {"total": total, **suites}


class Runner(unittest.TestCase):
    def counts(self, script: str) -> tuple[int, int, int]:
        found = run_project({"x": script})["x"]
        return found.passed, found.failed, found.skipped

    def test_plain_programs(self) -> None:
        self.assertEqual(self.counts("exit 0"), (1, 0, 0))
        self.assertEqual(self.counts("exit 3"), (0, 1, 0))
        self.assertEqual(self.counts("kill -SEGV $$"), (0, 1, 0))
        self.assertEqual(self.counts("sleep 30"), (0, 1, 0))
        self.assertEqual(self.counts("exit 77"), (0, 0, 1))

    def test_closing_lines(self) -> None:
        self.assertEqual(self.counts("echo 5 passed, 0 failed"), (5, 0, 0))
        self.assertEqual(self.counts("echo 5 passed, 2 failed; exit 1"), (5, 2, 0))
        self.assertEqual(self.counts("echo 5 passed, 0 failed; exit 1"), (5, 1, 0))
        self.assertEqual(self.counts("echo 5 passed, 0 failed, 3 skipped"), (5, 0, 3))

    def test_a_program_that_runs_nothing_fails(self) -> None:
        self.assertEqual(self.counts("echo 0 passed, 0 failed"), (0, 1, 0))
        self.assertEqual(self.counts("echo TAP version 13"), (0, 1, 0))

    def test_criterion(self) -> None:
        lines = "echo TAP version 13; echo ok - a::b; echo 'not ok - a::c'; echo 'ok - a::d # SKIP why'"
        self.assertEqual(self.counts(lines + "; exit 1"), (1, 1, 1))
        self.assertEqual(run_project({"x": lines})["total"].skips, ["a::d"])

    def test_unittest(self) -> None:
        self.assertEqual(self.counts("echo Ran 4 tests in 1s; echo 'OK (skipped=1)'"), (3, 0, 1))
        self.assertEqual(self.counts("echo Ran 4 tests in 1s; echo 'FAILED (failures=1, errors=1)'; exit 1"), (2, 2, 0))

    def test_skips(self) -> None:
        counts = runner.Counts(passed=1, skipped=2, skips=["known", "unknown"])
        runner.forbid_skips(counts, {"known"})
        self.assertEqual(counts.failed, 1)

    def test_all_suites_are_summed(self) -> None:
        found = run_project({"a.x": "echo 5 passed, 0 failed", "a.y": "exit 1", "b.x": "exit 77"})
        self.assertEqual(found["total"].line(), "5 passed, 1 failed, 1 skipped")
        self.assertEqual((found["a"].passed, found["a"].failed), (5, 1))


if __name__ == "__main__":
    unittest.main()
