#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows: the names of figures and groups are listed, accepted, and refused by name; text and JSON say the same.
How: the list against what others call; one group that counts instead of timing."""
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from cli import KVPOOL, SOURCE, Case, main  # noqa: E402

NAMES = """payload_write payload_read payload_write_verify payload_read_verify block_gather block_scatter rows_read
           request_rtt request_accept_rtt owner_requests owner_publications lookup_keys roundtrips_lookup roundtrips_get
           roundtrips_put scale_entries scale_members takeover takeover_read_gap idle_lines""".split()
GROUPS = {"payload", "block", "rows", "request", "owner", "lookup", "roundtrips", "scale", "takeover", "idle"}


class Bench(Case):
    def test_list(self):
        listed = json.loads(self.good("bench", "--list", "--json").out)["figures"]
        self.assertEqual([figure["name"] for figure in listed], NAMES)
        self.assertEqual({figure["group"] for figure in listed}, GROUPS)
        text = self.good("bench", "--list").out
        for name in NAMES:
            self.assertIn(name, text)

    def test_each_figure_is_documented(self):
        # The page has two tables of them: what each one is, and what it was when last measured.
        page = (SOURCE / "Documentation" / "performance.md").read_text()
        self.assertEqual(re.findall(r"^\| `([a-z_]+)` \|", page, re.MULTILINE), NAMES + NAMES)

    def test_names(self):
        self.bad("bench", "payload_wirte", code=2, says="did you mean payload_write?")
        self.bad("bench", "roundtrips", "nonsense-of-another-kind", code=2, says="no such figure")
        self.bad("bench", "--runs", "0", code=2, says="outside")

    def test_text(self):
        text = self.good("bench", "roundtrips", "--quick").out
        for name in NAMES:
            self.assertEqual(name in text, name.startswith("roundtrips_"), text)
        self.assertEqual(text.count("met\n"), 3, text)

    def test_nothing_is_left(self):
        child = subprocess.Popen([str(KVPOOL), "bench", "roundtrips", "--runs", "1001", "--json"],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.children.append(child)
        deadline = time.monotonic() + 60
        owners = []
        while not owners and time.monotonic() < deadline:
            time.sleep(0.05)
            owners = children_of(child.pid)
        self.assertTrue(owners, "bench started no owner")
        child.terminate()
        self.assertEqual(child.wait(timeout=60), 1)
        self.assertIn(b"interrupted", child.stderr.read())
        for pid in owners:
            self.assertFalse(os.path.exists(f"/proc/{pid}"), "an owner is still there")


def children_of(pid):
    """Process ids of the children of all threads of `pid`."""
    ret = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        ret += path.read_text().split()
    return ret


if __name__ == "__main__":
    main()
