#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows: kvpool replay reads every dialect of public traces, sorted or not, and refuses bad lines by file and number.
How: small traces in all dialects against an independent count of hits; each kind of bad line; then both real traces,
where they are present, against the numbers published for them."""
import json
import os
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from cli import SOURCE, Case, check, main, run  # noqa: E402

DATA = Path(os.environ.get("KVPOOL_DATA", SOURCE / ".." / "shared" / "data")) / "traces"
METADATA = ("--metadata-only", "--capacity", "unlimited")


def infinite(requests, chained=True):
    seen = set()
    refs = hits = 0
    for ids in requests:
        refs += len(ids)
        prefix = True
        for one in ids:
            prefix = prefix and one in seen if chained else True
            hits += prefix and one in seen
        seen.update(ids)
    return refs, hits


def chains(count, seed, limit=2**63):
    """Requests whose ids are chained: an id stands for the whole prefix."""
    draw = random.Random(seed)
    known = [[]]
    for _ in range(count):
        ids = list(draw.choice(known))[: draw.randint(0, 40)]
        ids += [draw.randrange(limit) for _ in range(draw.randint(1, 5))]
        known.append(ids)
        yield ids


class Traces(Case):
    def write(self, lines, name="trace.jsonl"):
        path = self.folder / name
        path.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines))
        return path

    def counted(self, path):
        return self.json("replay", path, *METADATA, schema="replay.metadata")

    def agree(self, lines, requests, dialect, chained=True):
        for shuffled in (False, True):
            order = list(lines)
            if shuffled:
                random.Random(3).shuffle(order)
            said = self.counted(self.write(order))
            refs, hits = infinite(requests, chained)
            self.assertEqual((said["block_refs"], said["block_hits"]), (refs, hits), dialect)
            self.assertEqual(said["dialect"], dialect)
            self.assertEqual(said["sorted"], not shuffled)

    def test_a_deep_line_is_an_error_and_no_crash(self):
        deep = '{"timestamp":0,"input_length":1,"output_length":1,"hash_ids":' + "[" * 80000 + "]" * 80000 + "}\n"
        said = run("replay", self.write([deep]), *METADATA)
        self.assertEqual(said.returncode, 1, said.stderr)
        self.assertIn(b'trace.jsonl:1: "hash_ids" is an array', said.stderr)

    def test_an_id_that_stands_often_in_one_line(self):
        # More references than the pool of one distinct block has room for: it said "No space left on device".
        requests = [[7] * 50_000, [7, 8] * 20_000, list(range(1000, 1040)) * 900]
        lines = [{"timestamp": i, "input_length": 512 * len(ids), "output_length": 1, "hash_ids": ids}
                 for i, ids in enumerate(requests)]
        said = self.counted(self.write(lines))
        refs, hits = infinite(requests)
        self.assertEqual((said["block_refs"], said["block_hits"], said["distinct_blocks"]), (refs, hits, 42))

    def test_mooncake(self):
        requests = list(chains(300, 1))
        lines = [{"timestamp": 7 * i, "input_length": 512 * len(ids) - 1, "output_length": 9, "hash_ids": ids}
                 for i, ids in enumerate(requests)]
        self.agree(lines, requests, "mooncake")

    def test_bailian(self):
        requests = list(chains(300, 2))
        lines = [{"chat_id": i, "parent_chat_id": -1 if i % 3 else i, "timestamp": i * 0.25 + 0.125,
                  "input_length": 16 * len(ids), "output_length": 9, "type": "text", "turn": 1, "hash_ids": ids}
                 for i, ids in enumerate(requests)]
        self.agree(lines, requests, "bailian")

    def test_nanoseconds(self):
        draw = random.Random(4)
        requests = [[draw.randrange(200) * 21474836 for _ in range(draw.randint(1, 60))] for _ in range(200)]
        requests = [list(dict.fromkeys(ids)) for ids in requests]
        lines = [{"timestamp": str(1737000000000000000 + 1000 * i), "input_length": 34 * len(ids), "output_length": 1,
                  "hash_ids": ids} for i, ids in enumerate(requests)]
        self.agree(lines, requests, "nanoseconds", chained=False)

    def test_bad_lines(self):
        good = {"timestamp": 1, "input_length": 512, "output_length": 1, "hash_ids": [1]}
        bad = ["{\n", "\x00\n", "[]\n", "12\n", '{"timestamp": 1}\n', dict(good, hash_ids=["a"]),
               dict(good, timestamp=-5), dict(good, timestamp="soon"), dict(good, input_length=10**30),
               dict(good, hash_ids=[1, 2, 3]), dict(good, hash_ids=[]), dict(good, input_length=1024), dict(good, hash_ids=[2**64]), "[" * 100000 + "\n",
               json.dumps(good)[:-3] + "\n"]
        for line in bad:
            path = self.write([good, good, line, good])
            self.bad("replay", path, *METADATA, code=1, says=f"{path}:3: ")
            said = self.json("replay", path, *METADATA, "--skip-bad", schema="replay.metadata")
            self.assertEqual((said["requests"], said["bad_lines"]), (3, 1), line)

    def test_more_keys_than_one_look_up_takes(self):
        ids = (1 << 20) + 1
        line = {"timestamp": "5", "input_length": ids, "output_length": 1, "hash_ids": [7] * ids}
        self.bad("replay", self.write([line]), *METADATA, code=1, says=f":1: {ids} ids, expected at most {1 << 20}")
        nonsense = {"timestamp": "5", "input_length": 1, "output_length": 1, "hash_ids": [1, 2]}
        self.bad("replay", self.write([nonsense]), *METADATA, code=1, says=":1: 2 ids for 1 tokens")

    def test_other_files(self):
        self.bad("replay", self.write([]), *METADATA, code=3, says="empty")
        self.bad("replay", self.folder / "none", *METADATA, code=3, says="no such file")
        self.bad("replay", self.folder, *METADATA, code=1, says="directory")
        self.bad("replay", self.write(["nonsense\n"]), *METADATA, "--skip-bad", code=3)
        noise = self.folder / "noise"
        noise.write_bytes(os.urandom(100000))
        self.assertIn(run("replay", noise, *METADATA).returncode, (1, 3))
        self.assertIn(run("replay", noise, *METADATA, "--skip-bad").returncode, (1, 3))
        empty_ids = {"timestamp": 1, "input_length": 0, "output_length": 1, "hash_ids": []}
        self.bad("replay", self.write([empty_ids]), *METADATA, code=3)
        self.bad("replay", *METADATA[:2], "5GiB", code=2)

    def test_windows_line_ends_and_blank_lines(self):
        good = json.dumps({"timestamp": 1, "input_length": 512, "output_length": 1, "hash_ids": [1]})
        said = self.counted(self.write([good + "\r\n", "\n", "   \n", good]))
        self.assertEqual(said["requests"], 2)


class RealTraces(Case):
    """Both public traces; counted as skipped where the data is not there."""

    def trace(self, name):
        path = DATA / f"mooncake_{name}.jsonl"
        if not path.exists():
            self.skipTest(f"skipped: {path.name} is not here")
        return path

    def hit_rate(self, name, refs, hits):
        said = self.json("replay", self.trace(name), *METADATA, schema="replay.metadata")
        self.assertEqual((said["block_refs"], said["block_hits"]), (refs, hits))
        return round(100 * said["hit_rate"], 1)

    def test_conversation(self):
        self.assertEqual(self.hit_rate("conversation", 288500, 105710), 36.6)

    def test_synthetic(self):
        self.assertEqual(self.hit_rate("synthetic", 121877, 77953), 64.0)

    def test_real_form(self):
        for name in ("synthetic", "conversation"):
            done = self.good("replay", self.trace(name), "--scratch", f"file:{self.folder / 'scratch'}", "--members",
                             "4", "--block-bytes", "4KiB", "--capacity", "10%", "--progress", "none", "--json",
                             timeout=500)
            said = json.loads(done.out)
            check(said, "replay")
            self.assertEqual(said["verify_failures"], 0)
            self.assertGreater(said["blocks_hit"], 0)
            self.assertGreater(said["blocks_hit_remote"], 0)
            self.assertGreater(said["blocks_evicted"], 0)


if __name__ == "__main__":
    main()
