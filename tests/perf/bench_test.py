#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows: every figure of `kvpool bench --list` is measured, with finite numbers in its schema; calls cost as many serial
round trips and messages as the protocol says.
How: a quick run of each group; counts are compared, times only with zero."""
import json
import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))
from cli import SANITIZED, Case, check, main  # noqa: E402

UNITS = {"GB/s", "us", "ms", "M/s", "k/s", "count", "ratio"}
# Millions of entries take a sanitizer minutes, and what it would find there it finds with fewer.
LARGE = {"lookup_keys", "scale_entries", "scale_members", "takeover", "takeover_read_gap"}
COUNTS = {"roundtrips_lookup": 1, "roundtrips_get": 2, "roundtrips_put": 1}
SECONDS = 550


class Bench(Case):
    def setUp(self):
        super().setUp()
        listed = json.loads(self.good("bench", "--list", "--json").out)
        check(listed, "bench.list")
        self.listed = listed["figures"]

    def measure(self, *names):
        done = self.good("bench", *names, "--quick", "--json", timeout=SECONDS)
        data = json.loads(done.out)
        check(data, "bench")
        self.assertEqual(data["conditions"]["errors"], [])
        return data

    def test_every_figure(self):
        names = [figure["name"] for figure in self.listed if not (SANITIZED and figure["name"] in LARGE)]
        self.assertGreater(len(names), 10)
        data = self.measure(*names)
        self.assertEqual([figure["name"] for figure in data["figures"]], names)
        for figure in data["figures"]:
            for field in ("value", "baseline", "ratio", "goal"):
                self.assertTrue(math.isfinite(figure[field]) and figure[field] > 0, figure)
            self.assertTrue(math.isfinite(figure["spread"]) and figure["spread"] >= 0, figure)
            self.assertIn(figure["unit"], UNITS)
            self.assertGreaterEqual(figure["runs"], 3)
            self.assertIn(data["conditions"]["details"][figure["name"]]["page_bytes"], (4096, 2097152))
        counted = {figure["name"]: figure["value"] for figure in data["figures"] if figure["name"] in COUNTS}
        self.assertEqual(counted, COUNTS)
        self.assertLessEqual(data["conditions"]["details"]["roundtrips_get"]["data_waves"], 1)

    def test_runs_and_order(self):
        done = self.good("bench", "roundtrips_put", "roundtrips_get", "--quick", "--runs", "5", "--json")
        data = json.loads(done.out)
        self.assertEqual([figure["name"] for figure in data["figures"]], ["roundtrips_get", "roundtrips_put"])
        self.assertEqual({figure["runs"] for figure in data["figures"]}, {5})


if __name__ == "__main__":
    main()
