#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows: each command does what its page says, with the exit code it promises and JSON of its schema.
How: real stores in files, an owner as a process, every command by its text and by --json."""
import json
import os
import pty
import select
import signal
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from cli import KVPOOL, Case, main, run, wait_until  # noqa: E402


class Commands(Case):
    def test_life_of_a_block(self):
        store = self.make()
        self.serve(store)
        put = self.json("put", "a", "--pool", store, data=b"x" * 1000)
        self.assertTrue(put["data"]["stored"])
        self.assertFalse(self.json("put", "a", "--pool", store, data=b"y" * 1000)["data"]["stored"])
        out = self.folder / "out"
        got = self.json("get", "a", str(out), "--pool", store)
        self.assertEqual(out.read_bytes()[:1000], b"x" * 1000)
        self.assertEqual(set(out.read_bytes()[1000:]), {0})
        key = got["data"]["key"]
        self.assertEqual(key, put["data"]["key"])
        self.assertEqual(self.good("get", key, "--hex", "--pool", store).stdout[:1000], b"x" * 1000)
        listed = self.json("ls", store)
        self.assertEqual([block["key"] for block in listed["data"]["blocks"]], [key])
        self.assertTrue(self.json("why", "a", "--pool", store)["data"]["hit"])
        stat = self.json("stat", store)["data"]
        self.assertTrue(stat["owned"])
        self.assertEqual(stat["blocks"]["published"], 1)
        self.assertEqual(self.json("rm", "a", "--pool", store)["data"]["removed"], 1)
        self.bad("get", "a", "--pool", store, code=3, says="no such block")
        why = self.json("why", "a", "--pool", store, code=3)["data"]
        self.assertFalse(why["hit"])
        self.assertIn(why["reason"], ("hidden", "removed", "absent"))
        self.bad("rm", "a", "--pool", store, code=3)

    def test_standby_slots_of_hosts(self):
        store = self.make("pool", "32MiB", "--hosts", "2", "--standby-hosts", "1,any")
        self.assertEqual(self.json("info", store)["data"]["standby_hosts"], [1, None])
        self.assertIn("of hosts 1, any", self.good("info", store).out)
        self.serve(store)  # host 0 has the second slot
        self.bad("serve", store, "--seconds", "5", code=1, says="no standby slot")
        self.serve(store + "?host=1")

    def test_events(self):
        store = self.make()
        self.serve(store)
        self.good("put", "a", "--pool", store, data=b"x")
        self.good("rm", "a", "--pool", store)
        types = [event["type"] for event in self.json("events", store)["data"]["events"]]
        self.assertIn("stored", types)
        self.assertIn("removed", types)
        self.assertIn("stored", self.good("events", store).out)

    def test_namespaces(self):
        store = self.make()
        self.serve(store)
        model = ("--model", "m-1", "--dtype", "bf16", "--pool", store)
        self.json("ns", "create", "m", *model, "--block-bytes", "4096", "--quota", "1MiB")
        listed = self.json("ns", "list", "--pool", store)["data"]["namespaces"]
        self.assertEqual([(ns["name"], ns["block_bytes"], ns["quota_bytes"]) for ns in listed], [("m", 4096, 1 << 20)])
        self.good("put", "k", "--ns", "m", *model, data=b"z" * 4096)
        self.good("ns", "create", "small", "--quota", "64KiB", "--pool", store)
        self.bad("put", "k", "--ns", "small", "--pool", store, code=1, says="namespace 'small' has a quota of 64 KiB",
                 data=b"z" * 100000)
        self.good("ns", "remove", "small", "--pool", store, "--yes")
        self.bad("put", "k", "--ns", "m", "--model", "other", "--dtype", "bf16", "--pool", store, code=1,
                 says="another description", data=b"z" * 4096)
        self.bad("put", "k2", "--ns", "m", *model, code=1, data=b"z" * 8192)
        self.good("ns", "bypass", "m", *model)
        self.bad("get", "k", "--ns", "m", *model, code=3)
        self.assertEqual(self.json("why", "k", "--ns", "m", *model, code=3)["data"]["reason"], "bypassed")
        self.good("ns", "resume", "m", *model)
        self.good("get", "k", "--ns", "m", *model)
        self.bad("ns", "clear", "m", *model, code=1, says="--yes")
        self.json("ns", "clear", "m", *model, "--yes", "--dry-run")
        self.good("get", "k", "--ns", "m", *model)
        self.good("ns", "clear", "m", *model, "--yes")
        self.bad("get", "k", "--ns", "m", *model, code=3)
        self.good("ns", "remove", "m", *model, "--yes")
        self.assertEqual(self.json("ns", "list", "--pool", store)["data"]["namespaces"], [])
        self.bad("ns", "clear", "m", *model, code=3)
        self.good("ns", "create", "n", *model)
        self.good("put", "k", "--ns", "n", *model, data=b"z" * 4096)
        self.good("ns", "remove", "n", *model, "--yes")
        self.assertEqual(self.json("check", store)["data"]["findings"], [])

    def test_stat_tells_the_longest_free_run(self):
        store = self.make()
        free = lambda: self.json("stat", store)["data"]["space"]  # noqa: E731
        before = free()
        self.assertEqual(before["largest_free_run_bytes"], before["data_bytes"])
        self.good("put", "a", "--pool", store, "--embedded", data=b"1")
        after = free()
        self.assertEqual(after["largest_free_run_bytes"] % after["extent_bytes"], 0)
        self.assertTrue(0 < after["largest_free_run_bytes"] < before["data_bytes"], after)
        self.assertIn(" MiB free in one run", self.good("stat", store).out)
        owner = self.serve(store)
        self.good("put", "b", "--pool", store, data=bytes(after["largest_free_run_bytes"] // 2))
        now = free()["largest_free_run_bytes"]
        self.assertTrue(0 < now <= after["largest_free_run_bytes"] // 2, now)
        owner.terminate()
        owner.wait(timeout=20)

    def test_info_check_repair_on_a_clean_store(self):
        store = self.make()
        info = self.json("info", store)["data"]
        self.assertEqual(info["pool_bytes"], 32 << 20)
        self.assertIsNone(info["owner_member"])
        self.assertTrue(self.json("check", store, "--payload")["data"]["clean"])
        for line in ("superblock", "geometry:1", "claim:0", "host:0", "member:0", "region:0", "ns:1", "extent:3",
                     "entry:5", "0:0"):
            self.json("check", store, "--decode", line, schema="check.line")
        for line, kind, says in (("request:1.7", "request", "member slot: 1"), ("response:2.0.3", "response", "member slot: 2"),
                                 ("notice:3", "notice", "member slot: 3"), ("notice:3.1", "notice", "standby slot: 1"),
                                 ("strip:2.5", "check", "covers: unit 5 of extent 2"), ("strip:2", "check", "unit 0"),
                                 ("area:0.1", "region head", "area: 1 of standby slot 0"),
                                 ("area:1.0.64", "namespace", "area: 0 of standby slot 1")):
            said = self.json("check", store, "--decode", line, schema="check.line")["data"]
            self.assertEqual(said["kind"], kind, line)
            self.assertIn(says, said["text"], line)
        for line in ("request:99", "request:1.99999", "request:1.2.3", "response:0.99", "notice:0.99", "notice:x",
                     "strip:99999", "strip:0.99", "area:99", "area:0.2", "area:0.0.99999999", "claim:0.1", "request:"):
            self.bad("check", store, "--decode", line, code=2, says="--decode")
        self.bad("repair", store, "--yes", code=3, says="nothing to mend")
        self.assertIn("blocks", self.good("info", store).out)
        self.assertIn("clean", self.good("check", store).out)

    def test_embedded_owner_needs_no_process(self):
        store = self.make()
        self.good("put", "a", "--pool", store, "--embedded", data=b"1")
        self.good("get", "a", "--pool", store)
        self.good("ns", "create", "n", "--pool", store, "--embedded")
        self.assertTrue(self.json("check", store)["data"]["clean"])

    def test_put_without_an_owner_says_so(self):
        store = self.make()
        self.bad("put", "a", "--pool", store, "--timeout", "0.5", code=1, says="kvpool serve", data=b"1")

    def test_dry_runs_change_nothing(self):
        store = self.make()
        self.serve(store)
        self.good("put", "a", "--pool", store, data=b"1")
        before = self.json("stat", store)["data"]["blocks"]
        put = self.json("put", "b", "--pool", store, "--dry-run", data=b"2")["data"]
        self.assertEqual((put["stored"], put["would_store"]), (False, True))
        self.json("rm", "a", "--pool", store, "--dry-run")
        self.bad("format", self.address(), "--yes", "--dry-run", code=1, says="--force")
        self.json("format", self.address(), "--yes", "--force", "--dry-run")
        self.assertEqual(self.json("stat", store)["data"]["blocks"], before)
        fresh = self.folder / "fresh"
        self.good("format", f"file:{fresh}?size=32MiB", "--dry-run")
        self.assertFalse(fresh.exists())
        plan = self.json("format", f"file:{fresh}?size=32MiB", "--dry-run")["data"]["plan"]
        self.good("format", f"file:{fresh}?size=32MiB")
        info = self.json("info", f"file:{fresh}")["data"]
        self.assertEqual({name: info[name] for name in plan}, plan)

    def test_dry_run_of_format_refuses_what_format_refuses(self):
        new = f"file:{self.folder / 'new'}"
        self.bad("format", f"{new}?size=1MiB", "--dry-run", code=1)
        self.bad("format", f"{new}?size=900TiB", "--dry-run", code=1, says="space")
        self.bad("format", f"file:{self.folder / 'none' / 'new'}?size=32MiB", "--dry-run", code=3, says="no such")
        self.bad("format", f"{new}?size=1GiB", "--hosts", "16", "--members", "16", "--dry-run", code=2, says="254")
        self.bad("format", f"{new}?size=64MiB", "--size", "128MiB", code=2, says="--size")

    def test_format_over_a_used_store_leaves_nothing_of_it(self):
        store = self.make()
        owner = self.serve(store)
        self.good("put", "a", "--pool", store, data=b"x")
        owner.kill()
        owner.wait()
        self.good("format", self.address(), "--yes")
        self.assertTrue(self.json("check", store, "--payload")["data"]["clean"])
        self.assertEqual(self.json("stat", store)["data"]["members"], [])
        self.good("put", "a", "--pool", store, "--embedded", data=b"x")
        self.assertTrue(self.json("check", store, "--payload")["data"]["clean"])

    def test_two_dashes_end_options(self):
        store = self.make()
        self.good("put", "--pool", store, "--embedded", "--", "--key", data=b"1")
        self.good("get", "--pool", store, "--", "--key")
        self.good("rm", "--dry-run", "--pool", store, "--", "--key")

    def test_hints_can_be_followed(self):
        store = self.make()
        self.good("put", "a", "--pool", store, "--embedded", data=b"1")
        none = self.bad("put", "a", "--pool", store, "--timeout", "0.3", code=1, data=b"2")
        self.assertIn(f"kvpool serve {store}, or --embedded", none.err)
        none = self.bad("rm", "a", "--pool", store, "--timeout", "0.3", code=1)
        self.assertIn(f"kvpool serve {store}", none.err)
        self.assertNotIn("--embedded", none.err)

    def test_replay_through_the_index_writes_its_file(self):
        out = self.folder / "out.json"
        said = self.good("replay", "--metadata-only", "--requests", "20", "--json", "--json-file", out)
        self.assertEqual(json.loads(out.read_text()), json.loads(said.out))

    def test_replay_with_more_members_than_a_host_has(self):
        done = self.good("replay", "--members", "10", "--requests", "40", "--block-bytes", "4KiB", "--capacity", "64MiB",
                         "--scratch", f"file:{self.folder / 'scratch'}", "--json")
        self.assertEqual(json.loads(done.out)["members"], 10)

    def test_doctor_names_what_a_killed_replay_left(self):
        gone = subprocess.Popen(["true"])
        gone.wait()
        left = Path(f"/dev/shm/kvpool-scratch-{gone.pid}.0")
        left.write_bytes(b"")
        try:
            self.assertIn(f"rm {left}", self.good("doctor").out)
        finally:
            left.unlink()

    def test_serve_ends_cleanly_on_hangup(self):
        owner = self.serve(self.make())
        owner.send_signal(signal.SIGHUP)
        self.assertEqual(owner.wait(timeout=20), 0)

    def test_format_over_a_store_needs_a_yes(self):
        store = self.make()
        before = self.json("info", store)["data"]
        self.bad("format", self.address(), code=1, says="--yes")
        self.assertEqual(self.json("info", store)["data"], before)
        self.assertTrue(self.json("format", self.address(), "--yes")["data"]["replaced"])
        self.assertNotEqual(self.json("info", store)["data"]["life"], before["life"])
        self.bad("format", self.address(), "--force", code=2, says="--yes")

    def test_format_asks_on_a_terminal(self):
        store = self.make()
        life = self.json("info", store)["data"]["life"]
        for answer, code in (("no", 1), (store, 0)):
            pid, terminal = pty.fork()
            if pid == 0:
                os.execv(KVPOOL, ["kvpool", "format", store])
            said = b""
            while b"to go on" not in said:
                said += os.read(terminal, 1024)
            os.write(terminal, answer.encode() + b"\n")
            try:
                while os.read(terminal, 1024):
                    pass
            except OSError:
                pass
            _, status = os.waitpid(pid, 0)
            os.close(terminal)
            self.assertEqual(os.waitstatus_to_exitcode(status), code)
            self.assertEqual(self.json("info", store)["data"]["life"] == life, code == 1)

    def test_serve_stops_cleanly(self):
        store = self.make()
        for number in (signal.SIGTERM, signal.SIGINT):
            owner = self.serve(store)
            self.good("put", f"k{number}", "--pool", store, data=b"1")
            owner.send_signal(number)
            out, err = owner.communicate(timeout=20)
            self.assertEqual(owner.returncode, 0, err)
            served = json.loads(out)["data"]
            self.assertEqual(served["publications"], 1)
            self.assertGreater(served["entries"], 0)
            self.assertGreater(served["free_bytes"], 0)
            self.assertFalse(self.json("stat", store)["data"]["owned"])
        self.assertTrue(self.json("check", store, "--payload")["data"]["clean"])
        timed = run("serve", store, "--seconds", "0.3", "--json")
        self.assertEqual(timed.returncode, 0, timed.err)

    def test_a_second_owner_stands_by_and_takes_over(self):
        store = self.make()
        first = self.serve(store)
        self.good("put", "a", "--pool", store, data=b"1")
        second = subprocess.Popen([str(KVPOOL), "serve", store], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.children.append(second)
        first.kill()
        first.wait()
        stored = lambda: run("put", "b", "--pool", store, "--timeout", "2", data=b"2").returncode == 0  # noqa: E731
        self.assertTrue(wait_until(stored, 30), "nobody took over")
        self.assertEqual(self.good("get", "a", "--pool", store).stdout[:1], b"1")

    def test_who_serves_and_who_stands_by_is_said(self):
        store = self.make()
        first = self.serve(store)
        terminal, stderr = pty.openpty()
        second = subprocess.Popen([str(KVPOOL), "serve", store], stdout=subprocess.DEVNULL, stderr=stderr)
        self.children.append(second)
        os.close(stderr)
        said = b""

        def says(words):
            nonlocal said
            while select.select([terminal], [], [], 0)[0]:
                said += os.read(terminal, 4096)
            return words in said

        self.assertTrue(wait_until(lambda: says(b"standing by for " + store.encode())), said)
        self.assertFalse(says(b"serving"), said)
        first.kill()
        first.wait()
        self.assertTrue(wait_until(lambda: says(b"serving " + store.encode())), said)
        os.close(terminal)

    def test_a_damaged_block_is_not_given_out(self):
        store = self.make()
        self.serve(store)
        key = self.json("put", "a", "--pool", store, data=b"needle" * 4000)["data"]["key"]
        path = self.folder / "pool"
        image = bytearray(path.read_bytes())
        at = image.index(b"needle" * 100)
        with path.open("r+b") as file:
            file.seek(at + 7)
            file.write(b"?")
        self.bad("get", "a", "--pool", store, code=4, says="removes it, or: kvpool rm")
        self.bad("get", "a", "--pool", store, code=4, says="does not match")  # a reader removes nothing
        self.good("rm", key, "--hex", "--pool", store)
        self.bad("get", "a", "--pool", store, code=3)

    def test_watching(self):
        store = self.make()
        text = self.good("stat", store, "--watch", "0.05", "--count", "3").out
        self.assertEqual(text.count("blocks, "), 3)
        self.json("top", store, "--interval", "0.05", "--count", "1")
        self.bad("stat", store, "--count", "3", code=2)
        watch = subprocess.Popen([str(KVPOOL), "top", store, "--interval", "0.05"], stdout=subprocess.PIPE)
        self.children.append(watch)
        watch.stdout.readline()
        watch.send_signal(signal.SIGINT)
        watch.stdout.read()
        self.assertEqual(watch.wait(timeout=10), 0)

    def test_doctor(self):
        self.assertTrue(self.json("doctor")["data"]["healthy"])
        store = self.make()
        self.json("doctor", store)
        self.json("doctor", self.address("none", None), code=1)
        unknown = self.json("doctor", env={"KVPOOL_FLUHS": "x"})["data"]["checks"]
        self.assertTrue(any("KVPOOL_FLUSH" in check["hint"] for check in unknown))

    def test_environment_names_the_store(self):
        store = self.make()
        self.assertEqual(self.json("info", env={"KVPOOL": store})["data"]["address"], store)
        self.bad("info", code=2, says="no store is named")

    def test_ls_of_an_empty_store(self):
        self.bad("ls", self.make(), code=3)

    def test_closed_pipe_is_no_success(self):
        store = self.make()
        with open("/dev/full", "w", encoding="ascii") as full:
            done = subprocess.run([str(KVPOOL), "info", store], stdout=full, stderr=subprocess.PIPE, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"standard output", done.stderr)


class Replay(Case):
    def scratch(self):
        return ("--scratch", f"file:{self.folder / 'scratch'}", "--progress", "none")

    def test_generated(self):
        said = self.json("replay", *self.scratch(), "--requests", "600", "--capacity", "64MiB", "--block-bytes",
                         "64KiB", "--members", "3")
        self.assertEqual(said["verify_failures"], 0)
        self.assertEqual(said["members"], 3)
        self.assertEqual(said["requests"], 600)
        self.assertGreater(said["blocks_hit_remote"], 0)
        self.assertGreater(said["blocks_evicted"], 0)
        self.assertGreater(said["details"]["get"]["p50_us"], 0)
        self.assertEqual(list(self.folder.glob("scratch*")), [], "the store must be gone")

    def test_corruption_is_noticed(self):
        for verify in ("always", "off"):
            done = self.bad("replay", *self.scratch(), "--requests", "1500", "--capacity", "128MiB", "--block-bytes",
                            "64KiB", "--members", "2", "--corrupt", "--verify", verify, code=1,
                            says="verification failure")
            self.assertIn("flipped on purpose", done.err)

    def test_interrupted(self):
        child = subprocess.Popen([str(KVPOOL), "replay", *self.scratch(), "--requests", "1000000", "--capacity",
                                  "64MiB", "--block-bytes", "64KiB", "--json"],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.children.append(child)
        wait_until((self.folder / "scratch").exists, 60)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
        self.assertEqual(child.returncode, 1)
        self.assertIn(b"interrupted", err)
        if out:
            json.loads(out)
        self.assertEqual(list(self.folder.glob("scratch*")), [], "the store must be gone")

    def test_on_a_given_store(self):
        store = self.make("pool", "64MiB")
        self.serve(store)
        words = ("--pool", store, "--requests", "50", "--block-bytes", "16KiB", "--members", "2", "--progress", "none")
        first = self.json("replay", *words)
        again = self.json("replay", *words)
        self.assertGreater(again["blocks_hit"], first["blocks_hit"])
        self.assertTrue(self.json("check", store, "--payload")["data"]["clean"])

    def test_progress(self):
        done = self.good("replay", "--scratch", f"file:{self.folder / 's'}", "--requests", "400", "--block-bytes",
                         "256KiB", "--capacity", "64MiB", "--progress", "json")
        lines = [json.loads(line) for line in done.err.splitlines() if line.startswith("{")]
        for line in lines:
            self.assertEqual(line["unit"], "requests")
        quiet = self.good("replay", *self.scratch(), "--requests", "20", "--capacity", "64MiB")
        self.assertEqual(quiet.err, "", "no progress without a terminal")


if __name__ == "__main__":
    main()
