#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows: a guest that fails in any way is judged so. How: serial output made up here, one fault at a time."""
from __future__ import annotations

import json
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import rig  # noqa: E402
import run  # noqa: E402

GOOD = f"SeaBIOS\r\n[ 0.1] WARNING: before the tests\r\n{rig.MARKER}\r\nok 1 - a\r\nok 2 - b\r\n1..2\r\n# end\r\n"


class Judge(unittest.TestCase):
    def failed(self, output: str) -> int:
        verdict = rig.judge(output)
        return verdict.failed + len(verdict.warnings)

    def test_a_good_run(self):
        verdict = rig.judge(GOOD)
        self.assertEqual((verdict.passed, verdict.failed, verdict.skipped, verdict.warnings), (2, 0, 0, []))

    def test_a_failed_line(self):
        self.assertEqual(self.failed(GOOD.replace("ok 2", "not ok 2")), 1)

    def test_a_missing_line(self):
        self.assertEqual(self.failed(GOOD.replace("ok 2 - b\r\n", "")), 1)

    def test_no_plan(self):
        self.assertEqual(self.failed(GOOD.replace("1..2", "")), 1)

    def test_no_end(self):
        self.assertEqual(self.failed(GOOD.replace("# end", "")), 1)

    def test_never_began(self):
        self.assertGreater(self.failed("SeaBIOS\r\nKernel panic\r\n"), 0)

    def test_a_skip_is_counted(self):
        self.assertEqual(rig.judge(GOOD.replace("ok 2 - b", "ok 2 - b # SKIP")).skipped, 1)

    def test_trouble_in_the_log(self):
        for trouble in ("BUG: sleeping function called", "WARNING: CPU: 0", "Oops: 0000", "INFO: task x blocked",
                        "general protection fault", "BUG: KASAN: use-after-free", "refcount_t: underflow",
                        "INFO: possible circular locking", "x86/PAT: memtype_reserve failed"):
            self.assertEqual(len(rig.judge(GOOD.replace("# end", f"[ 9.1] {trouble}\r\n# end")).warnings), 1, trouble)

    def test_json_of_the_tool(self):
        good = json.dumps({"schema": "kvpool.setup/1", "host": "h", "data": {"action": "admin", "dry_run": True},
                           "warnings": []})
        for line, passed in ((good, 1), (good.replace("admin", "admit"), 0), (good.replace("setup", "nothing"), 0),
                             (good[:-1], 0), ("{}", 0)):
            verdict = rig.Verdict()
            run.judge_json(f"ok 1 - a\r\n# json {line}\r\n", verdict)
            self.assertEqual((verdict.passed, verdict.failed), (passed, 1 - passed), line)

    def test_an_archive_has_its_files(self):
        archive = rig._cpio({"a": (0o100644, b"12345"), "dev": (0o040755, b"")})
        self.assertEqual(len(archive) % 4, 0)
        self.assertEqual(archive.count(b"070701"), 3)
        self.assertIn(b"a\0" + b"12345\0\0\0", archive)


if __name__ == "__main__":
    unittest.main()
