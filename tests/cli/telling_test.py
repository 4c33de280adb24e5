#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows: commands tell what a user would otherwise have to guess: a namespace is named by its name alone, a dry run says what
a run would meet, what was done before is said to be so, and who evicts is named.
How: the command over stores in files; rings and full file systems are made by hand."""
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from cli import KVPOOL, Case, main, run, wait_until  # noqa: E402

MIB = 1 << 20


class Telling(Case):
    def test_a_namespace_is_named_by_its_name(self):
        store = self.make()
        self.serve(store)
        self.good("ns", "create", "m", "--model", "Qwen", "--dtype", "bf16", "--pool", store)
        state = lambda: self.json("ns", "list", "--pool", store)["data"]["namespaces"][0]
        self.good("ns", "bypass", "m", "--pool", store)
        self.assertTrue(state()["bypassed"])
        self.good("ns", "resume", "m", "--pool", store)
        self.assertFalse(state()["bypassed"])
        epoch = state()["epoch"]
        self.good("ns", "clear", "m", "--yes", "--pool", store)
        self.assertEqual(state()["epoch"], epoch + 1)
        self.bad("ns", "clear", "m", "--yes", "--model", "another", "--pool", store, code=1, says="another description")
        self.assertEqual(state()["epoch"], epoch + 1)
        self.bad("ns", "bypass", "none", "--pool", store, code=3, says="there is none")

    def test_events_from_now_on_need_follow(self):
        store = self.make()
        self.serve(store)
        self.bad("events", store, "--from", "0", code=2, says="--follow")

    def test_replay_says_that_its_pool_is_larger(self):
        words = ("replay", "--members", "1", "--requests", "5", "--block-bytes", "4096")
        self.assertIn("the smallest pool of a replay is 32 MiB", self.good(*words, "--capacity", "1MiB").err)
        self.assertNotIn("smallest pool", self.good(*words, "--capacity", "32MiB").err)

    def test_grow_dry_run_looks_for_space(self):
        mount = self.folder / "tiny"
        mount.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", str(mount)], capture_output=True,
                          check=False).returncode != 0:
            # An ordinary user cannot mount; more than any file system has is refused all the same.
            mount = self.folder
        try:
            store = f"file:{mount / 'pool'}"
            self.good("format", store, "--size", "32MiB", "--max-size", "2GiB")
            served = self.serve(store)
            self.good("grow", store, "--size", "38MiB", "--dry-run")
            if mount != self.folder:
                self.bad("grow", store, "--size", "1GiB", "--dry-run", code=1, says="no space")
                self.bad("grow", store, "--size", "1GiB", code=1, says="no space")
            else:
                self.good("grow", store, "--size", "64MiB", "--dry-run")
            served.terminate()
            served.wait()
        finally:
            if mount != self.folder:
                subprocess.run(["umount", str(mount)], check=True)

    def test_format_dry_run_shows_index_and_room(self):
        words = ("format", self.address(), "--index-growth", "4", "--max-size", "64MiB")
        plan = self.json(*words, "--dry-run")["data"]["plan"]
        self.assertIn("index of", self.good(*words, "--dry-run").out)
        self.good(*words)
        info = self.json("info", self.address(size=None))["data"]
        for name in ("index_entries", "index_entries_max", "pool_bytes_max"):
            self.assertEqual(plan[name], info[name], name)

    def test_a_host_is_fenced_once(self):
        store = self.make("pool", "32MiB", "--hosts", "2", "--lease-ms", "200")
        owner = self.serve(store)
        member = subprocess.Popen([str(KVPOOL), "debug", "hold", store + "?host=1"], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.children.append(member)
        self.assertTrue(member.stdout.readline().startswith("ready"))
        for process in (owner, member):  # an owner would see by itself that the member is gone
            process.kill()
            process.wait()
        before = lambda: [m["before"] for m in self.json("host", "fence", "1", store, "--confirmed")["data"]["fenced"]]
        self.assertEqual(before(), [False])
        self.assertEqual(before(), [True])
        self.assertIn("fenced already, or seen to be gone: slot", self.good("host", "fence", "1", store, "--confirmed").out)

    def test_serve_says_what_it_does_in_a_log_too(self):
        store = self.make()
        log = self.folder / "log"
        with open(log, "w", encoding="utf-8") as file:
            child = subprocess.Popen([str(KVPOOL), "serve", store], stdout=subprocess.DEVNULL, stderr=file)
        self.children.append(child)
        self.assertTrue(wait_until(lambda: f"serving {store}" in log.read_text()), log.read_text())

    def test_doctor_names_each_ring(self):
        rings = [Path(f"/dev/shm/kvpool-events-telling-{os.getpid()}-{i}") for i in range(3)]
        try:
            for ring in rings:
                ring.write_bytes(b"x")
            checks = self.json("doctor")["data"]["checks"]
            for ring in rings:
                named = [c for c in checks if c["name"] == "event ring" and str(ring) in c["value"]]
                more = [c for c in checks if c["name"] == "event rings"]
                self.assertTrue((len(named) == 1 and named[0]["hint"].endswith(f"rm {ring}")) or more, checks)
        finally:
            for ring in rings:
                ring.unlink(missing_ok=True)

    def test_an_owner_that_hangs(self):
        store = self.make("pool", "32MiB", "--lease-ms", "60000")
        child = self.serve(store)
        self.assertIn("served", self.good("stat", store).out.splitlines()[0])
        os.kill(child.pid, signal.SIGSTOP)
        try:
            stat = self.json("stat", store)["data"]
            self.assertTrue(stat["owned"] and stat["owner_hangs"])
            self.assertIn(f"its owner hangs: the heartbeat of owner (pid {child.pid}) stands still",
                          self.good("stat", store).out.splitlines()[0])
            checks = json.loads(run("doctor", store, "--json").out)["data"]["checks"]
            self.assertEqual([c["state"] for c in checks if c["name"] == "owner"], ["wrong"], checks)
        finally:
            os.kill(child.pid, signal.SIGCONT)
        self.assertTrue(wait_until(lambda: not self.json("stat", store)["data"]["owner_hangs"]))

    def test_commands_say_which_owner_hangs(self):
        store = self.make("pool", "32MiB", "--lease-ms", "60000")
        child = self.serve(store)
        self.good("put", "k", "--pool", store, data=b"1")
        os.kill(child.pid, signal.SIGSTOP)
        try:
            for words in (("put", "l", "--pool", store), ("rm", "k", "--pool", store), ("ns", "create", "n", "--pool", store),
                          ("ns", "clear", "default", "--yes", "--pool", store), ("ns", "bypass", "default", "--pool", store),
                          ("grow", store, "--size", "64MiB"), ("shrink", store, "--size", "16MiB")):
                said = self.bad(*words, "--timeout", "1.2", code=1, data=b"1",
                                says=f"the owner (pid {child.pid} on host 0) has not answered for ").err
                silence = int(re.search(r"not answered for (\d+) ms", said)[1])
                self.assertTrue(1000 <= silence < 20_000, said)
                self.assertIn(f"`kvpool serve {store}` takes over from it", said)
                self.assertNotIn("is changing", said)
                self.assertNotIn("nobody serves", said)
            self.good("get", "k", "--pool", store)
        finally:
            os.kill(child.pid, signal.SIGCONT)
        self.good("put", "m", "--pool", store, data=b"1")

    def test_suspicion_is_within_the_lease(self):
        store = self.make("pool", "32MiB", "--lease-ms", "700")
        for seconds in ("0.8", "600"):
            self.bad("serve", store, "--suspicion", seconds, "--seconds", "1", code=2, says="lease of 700 ms")
        self.good("serve", store, "--suspicion", "0.7", "--seconds", "0.2")
        self.good("serve", store, "--seconds", "0.2")

    def test_no_standby_slot_is_free(self):
        store = self.make("pool", "32MiB", "--standbys", "1")
        self.serve(store)
        self.bad("serve", store, "--seconds", "1", code=1, says="no standby slot is free for this host; the store has 1")
        self.bad("serve", store, "--seconds", "1", code=1, says="hint: kvpool stat " + store)
        self.bad("serve", store, "--seconds", "1", code=1, says="--standbys")
        other = self.make("other", "32MiB", "--members", "2", "--hosts", "1")
        self.serve(other)
        self.bad("serve", other, "--seconds", "1", code=1, says="--members")

    def test_a_namespace_keeps_what_it_was_created_with(self):
        store = self.make()
        self.serve(store)
        words = ("ns", "create", "q", "--pool", store)
        self.good(*words, "--quota", "4MiB", "--weight", "20", "--verify", "sample")
        for differs, has in ((("--quota", "8MiB"), "4 MiB quota"), (("--weight", "21"), "20 weight"),
                             (("--verify", "off"), "sample verify"), (("--block-bytes", "4096"), "any block-bytes"),
                             (("--quota", "1MiB", "--weight", "1"), "4 MiB quota, 20 weight")):
            for dry in ((), ("--dry-run",)):
                self.bad(*words, *differs, *dry, code=1, says=f"is there already, and has {has}")
        self.bad(*words, "--quota", "8MiB", code=1, says="hint: these are chosen once: kvpool ns remove q --yes")
        for same in ((), ("--quota", "4MiB"), ("--weight", "20", "--quota", "4096K"), ("--verify", "sample")):
            self.assertIn("was there already", self.good(*words, *same).out)

    def test_replay_refuses_what_says_nothing(self):
        store = self.make()
        trace = self.folder / "trace"
        trace.write_text('{"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": [1]}\n')
        for words, option in ((("--pool", store, "--capacity", "64MiB"), "--capacity"),
                              (("--pool", store, "--scratch", "mem:"), "--scratch"), ((trace, "--seed", "3"), "--seed"),
                              ((trace, "--requests", "3"), "--requests")):
            self.bad("replay", *words, code=2, says=f"{option}: says nothing with")

    def test_a_key_named_twice_is_one_block(self):
        store = self.make()
        self.serve(store)
        self.good("put", "k", "--pool", store, data=b"1")
        self.assertIn("1 of 1 would be removed", self.good("rm", "k", "k", "--pool", store, "--dry-run").out)
        self.assertEqual(self.json("rm", "k", "k", "--pool", store)["data"]["removed"], 1)

    def test_ready_fd_is_told_of(self):
        self.assertIn("--ready-fd FD", self.good("serve", "--help").out)
        for shell in ("bash", "zsh"):
            self.assertIn("--ready-fd", self.good("completion", shell).out)

    def test_events_end_with_the_life_of_the_store(self):
        """A reader follows owners that end and come, and is told when the store is formatted anew."""
        store = self.make()
        log = self.folder / "log"
        owner = self.serve(store)
        with open(log, "w", encoding="utf-8") as file:
            follower = subprocess.Popen([str(KVPOOL), "events", store, "--follow"], stdout=file, stderr=subprocess.PIPE, text=True)
        self.children.append(follower)
        self.assertTrue(wait_until(lambda: "owner" in log.read_text()))
        self.good("put", "a", "--pool", store, data=b"1")
        self.assertTrue(wait_until(lambda: log.read_text().count("stored") == 1))
        owner.terminate()
        owner.wait(timeout=20)
        owner = self.serve(store)
        self.good("put", "b", "--pool", store, data=b"1")
        self.assertTrue(wait_until(lambda: log.read_text().count("stored") == 2), log.read_text())
        self.assertIsNone(follower.poll())
        self.good("format", store, "--yes", "--force")
        self.assertEqual(follower.wait(timeout=20), 1)
        said = follower.stderr.read()
        life = self.json("info", store)["data"]["life"]
        self.assertIn(f"the store was formatted anew (its life is {life} now)", said)

    def test_who_watches_follows_a_store_that_is_formatted_anew(self):
        for name, sizes in ((f"file:{self.folder / 'pool'}", ("32MiB", "32MiB")), (f"mem:telling-{os.getpid()}", ("32MiB", "64MiB"))):
            for words in (("top", name, "--interval", "0.1"), ("stat", name, "--watch", "0.1")):
                self.good("format", f"{name}?size={sizes[0]}", "--yes", "--force")
                log = self.folder / "log"
                with open(log, "w", encoding="utf-8") as file:
                    watcher = subprocess.Popen([str(KVPOOL), *words, "--count", "1000"], stdout=file, stderr=subprocess.PIPE, text=True)
                self.children.append(watcher)
                self.assertTrue(wait_until(lambda: "0 B of 30 MiB" in log.read_text()))
                self.good("format", f"{name}?size={sizes[1]}", "--yes", "--force")
                self.good("put", "k", "--pool", name, "--embedded", data=b"1")
                self.assertTrue(wait_until(lambda: "1 blocks, 64 B" in log.read_text()), log.read_text()[-2000:])
                watcher.terminate()
                life = self.json("info", name)["data"]["life"]
                self.assertIn(f"{name} was formatted anew: its life is {life} now", watcher.communicate(timeout=20)[1])
        Path(f"/dev/shm/kvpool-telling-{os.getpid()}.0").unlink()

    def test_events_end_when_the_store_is_made_elsewhere(self):
        name = f"mem:telling-{os.getpid()}"
        self.good("format", f"{name}?size=32MiB", "--yes", "--force")
        try:
            owner = self.serve(name)
            follower = subprocess.Popen([str(KVPOOL), "events", name, "--follow"], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
            self.children.append(follower)
            self.assertIn("owner", follower.stdout.readline())
            owner.terminate()
            owner.wait(timeout=20)
            self.good("format", f"{name}?size=64MiB", "--yes")
            self.assertEqual(follower.wait(timeout=20), 1)
            self.assertIn("formatted anew", follower.stderr.read())
        finally:
            Path(f"/dev/shm/kvpool-telling-{os.getpid()}.0").unlink()

    def test_why_names_who_removed(self):
        store = self.make()
        self.serve(store)
        self.good("put", "k", "--pool", store, data=b"1")
        self.good("rm", "k", "--pool", store)
        said = {}

        def told():  # its entry stays for a grace
            said.update(self.json("why", "k", "--pool", store, code=3)["data"])
            return said["reason"] != "hidden"
        self.assertTrue(wait_until(told))
        self.assertRegex(said["text"], r"^it was removed by member \d+ \(event \d+\)$")
        stored, gone = [e for e in self.json("events", store)["data"]["events"] if e["type"] in ("stored", "removed")]
        self.assertEqual(gone["version"], stored["version"])
        self.assertRegex(stored["version"], "^[0-9a-f]+$")

    def test_why_names_the_quota(self):
        store = self.make()
        self.serve(store)
        self.good("ns", "create", "q", "--quota", "1MiB", "--pool", store)
        for i in range(12):
            self.good("put", f"k{i}", "--ns", "q", "--pool", store, data=os.urandom(200_000))
        done = self.good("why", "k0", "--ns", "q", "--pool", store, code=3)
        self.assertIn("evicted", done.out)
        self.assertIn("its quota of 1 MiB", done.out)


if __name__ == "__main__":
    main()
