#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows: kvpool grow and shrink say what they do, refuse by name what cannot be, and leave a sound store whenever they, or
the owner, are killed.
How: real processes over files; a member that holds many blocks keeps a shrinking pool from going on until it ends."""
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from cli import KVPOOL, Case, main, run, wait_until  # noqa: E402

MIB = 1 << 20


class Resize(Case):
    def start(self, *words):
        child = subprocess.Popen([str(KVPOOL), *words], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.children.append(child)
        return child

    def hold(self, store, blocks=160):
        """A member with so many blocks of 128 KiB in its hand."""
        child = subprocess.Popen([str(KVPOOL), "debug", "hold", store], text=True, stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.children.append(child)
        self.assertTrue(child.stdout.readline().startswith("ready 0"))
        for i in range(blocks):
            child.stdin.write(f"reserve r{i}\n")
            child.stdin.flush()
            self.assertEqual(child.stdout.readline().split(" ")[1], "1")
        return child

    def tearDown(self):
        for child in self.children:
            if child.stdin and not child.stdin.closed:
                child.stdin.close()
        super().tearDown()

    def bytes_of(self, store):
        return self.json("info", store)["data"]["pool_bytes"]

    def clean(self, store):
        self.assertTrue(self.json("check", store, "--payload")["data"]["clean"])

    def owner(self, store):
        for member in self.json("stat", store)["data"]["members"]:
            if member["owner"] and member["state"] == "alive":
                return member["pid"]
        return None

    def test_there_and_back(self):
        store = self.make()
        self.serve(store)
        plan = self.json("grow", store, "--size", "96MiB", "--dry-run")["data"]
        self.assertTrue(plan["dry_run"] and plan["changed"])
        self.assertEqual(os.stat(self.folder / "pool").st_size, 32 * MIB)
        done = self.json("grow", store, "--size", "96MiB")["data"]
        self.assertEqual((done["pool_bytes_before"], done["pool_bytes"]), (32 * MIB, 96 * MIB))
        self.assertEqual(done["data_bytes"], plan["data_bytes"])
        self.assertEqual(done["reserved_bytes"], 64 * MIB)
        self.assertGreaterEqual(os.stat(self.folder / "pool").st_blocks * 512, 96 * MIB)
        self.assertFalse(self.json("grow", store, "--size", "96MiB")["data"]["changed"])
        self.assertIn("has 96 MiB already", self.good("grow", store, "--size", "96MiB").out)
        back = self.json("shrink", store, "--size", "32MiB")["data"]
        self.assertEqual(back["pool_bytes"], 32 * MIB)
        self.assertGreaterEqual(back["given_back_bytes"], 62 * MIB)
        self.assertLess(os.stat(self.folder / "pool").st_blocks * 512, 40 * MIB)
        self.clean(store)
        info = self.good("info", store).out
        self.assertIn("more retired", info)
        self.assertIn("may grow", info)
        self.json("grow", store, "--size", "64MiB")
        self.good("put", "a", "--pool", store, data=b"x" * 100_000)
        self.clean(store)

    def test_named_memory_and_two_devices(self):
        name = f"mem:unit-grow-{os.getpid()}"
        try:
            self.good("format", name + "?size=32MiB&devices=2", "--yes")
            self.serve(name)
            self.good("grow", name, "--size", "128MiB")
            self.good("put", "a", "--pool", name, data=os.urandom(40 * MIB))
            self.good("get", "a", "--pool", name)
            self.good("shrink", name, "--size", "24MiB")
            self.clean(name)
        finally:
            self.tearDown()
            self.children = []
            for device in range(2):
                Path(f"/dev/shm/kvpool-unit-grow-{os.getpid()}.{device}").unlink(missing_ok=True)

    def test_who_looks_on_sees_the_new_size(self):
        store = self.make("pool", "512MiB")
        self.serve(store)
        self.good("put", "a", "--pool", store, data=os.urandom(16 * MIB))
        top = self.start("top", store, "--json", "--interval", "0.5", "--count", "20")
        def picture():
            lines = []
            while not lines or lines[-1] not in ("}\n", ""):
                lines.append(top.stdout.readline())
            return json.loads("".join(lines))["data"]
        before = picture()
        # Stopped while it reads, or before: what it says in the end is true of the store as it is by then.
        def looking():
            child = self.start("check", store, "--payload", "--json")
            while child.poll() is None and "/pool\n" not in Path(f"/proc/{child.pid}/maps").read_text():
                pass
            child.send_signal(signal.SIGSTOP)
            return child
        checks = [looking() for _ in range(3)]
        self.good("grow", store, "--size", "640MiB")
        extents = self.json("info", store)["data"]["extents"]
        told = [bool(select.select([child.stdout], [], [], 0)[0]) for child in checks]
        for child in checks:
            child.send_signal(signal.SIGCONT)
        self.assertFalse(all(told), "none was stopped in time")
        for child, over in zip(checks, told):
            out, err = child.communicate(timeout=60)
            self.assertEqual(child.returncode, 0, out + err)
            if not over:
                self.assertEqual(json.loads(out)["data"]["report"]["extents"], extents)
        now = [picture() for _ in range(4)][-1]
        self.assertGreater(now["epoch"], before["epoch"])
        self.assertGreater(now["space"]["data_bytes"], before["space"]["data_bytes"] + 60 * MIB)
        self.assertEqual(now["blocks"]["published"], before["blocks"]["published"])

    def test_what_is_refused(self):
        store = self.make()
        self.bad("grow", store, "--size", "64MiB", "--timeout", "0.3", code=1, says="kvpool serve")
        self.assertEqual(os.stat(self.folder / "pool").st_size, 32 * MIB, "nothing is reserved for nobody")
        self.serve(store)
        self.bad("grow", store, code=2, says="--size")
        self.bad("grow", store, "--size", "33MiB", code=2, says="multiple of 2 MiB")
        self.bad("grow", store, "--size", "16MiB", code=2, says="kvpool shrink")
        self.bad("shrink", store, "--size", "64MiB", code=2, says="kvpool grow")
        self.bad("shrink", store, "--size", "2MiB", code=1, says="too small")
        self.bad("grow", store, "--size", "64GiB", code=1, says="--max-size")
        self.bad("grow", f"file:{self.folder / 'none'}", "--size", "64MiB", code=3, says="no such file")
        self.assertEqual(self.bytes_of(store), 32 * MIB)
        other = self.make("roomy", "16MiB", "--max-size", "256MiB")
        self.assertGreaterEqual(self.json("info", other)["data"]["pool_bytes_max"], 250 * MIB)
        self.bad("format", f"{self.address('never')}", "--max-size", "16MiB", code=2, says="largest size")

    def test_without_space_nothing_changes(self):
        mount = self.folder / "tiny"
        mount.mkdir()
        # An ordinary user cannot mount: then the process may not write so large a file.
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", str(mount)], capture_output=True,
                                 check=False).returncode == 0
        store = f"file:{mount / 'pool'}"
        try:
            self.good("format", store, "--size", "32MiB")
            served = self.serve(store)
            words = [str(KVPOOL), "grow", store, "--size", "64MiB"]
            limit = ["sh", "-c", 'ulimit -f 81920; exec "$@"', "sh"]
            done = subprocess.run(words if mounted else limit + words, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("no space left" if mounted else "limit on file sizes", done.stderr)
            self.assertEqual(os.stat(mount / "pool").st_size, 32 * MIB)
            self.assertEqual(self.bytes_of(store), 32 * MIB)
            self.good("put", "a", "--pool", store, data=os.urandom(MIB))
            self.clean(store)
            self.good("grow", store, "--size", "38MiB")
            served.terminate()
            served.wait()
        finally:
            if mounted:
                subprocess.run(["umount", str(mount)], check=True)

    def waits(self, store):
        """A shrinking that a member keeps from going on."""
        child = self.start("shrink", store, "--size", "12MiB", "--progress", "json")
        line = child.stderr.readline()  # none in the first second
        self.assertIn("held by members", json.loads(line)["unit"], line)
        return child

    def test_killed_and_interrupted(self):
        store = self.make()
        self.serve(store)
        self.good("grow", store, "--size", "64MiB")
        holder = self.hold(store)
        shrinking = self.waits(store)
        shrinking.kill()
        shrinking.wait()
        self.assertEqual(self.bytes_of(store), 64 * MIB)
        shrinking = self.waits(store)
        shrinking.send_signal(signal.SIGINT)
        _, err = shrinking.communicate(timeout=30)
        self.assertEqual(shrinking.returncode, 1)
        self.assertIn("the store has the size it had", err)
        self.assertEqual(self.bytes_of(store), 64 * MIB)
        self.clean(store)
        for i in range(30):  # all extents are granted again
            self.good("put", f"k{i}", "--pool", store, data=os.urandom(MIB))
        shrinking = self.waits(store)
        holder.stdin.close()
        holder.wait()
        self.assertEqual(shrinking.wait(timeout=60), 0, shrinking.stderr.read())
        self.assertEqual(self.bytes_of(store), 12 * MIB)
        self.clean(store)

    def test_owner_killed_meanwhile(self):
        store = self.make("pool", "32MiB", "--lease-ms", "500")
        self.serve(store)
        self.serve(store)
        holder = self.hold(store)
        shrinking = self.waits(store)
        first = self.owner(store)
        os.kill(first, signal.SIGKILL)
        self.assertTrue(wait_until(lambda: self.owner(store) not in (None, first)))
        time.sleep(0.2)
        self.assertIsNone(shrinking.poll(), "it asks the next owner")
        holder.kill()  # its lock says that it will never store again
        holder.wait()
        self.assertEqual(shrinking.wait(timeout=60), 0, shrinking.stderr.read())
        self.assertEqual(self.bytes_of(store), 12 * MIB)
        self.clean(store)
        os.kill(self.owner(store), signal.SIGKILL)
        self.serve(store)
        self.assertEqual(self.bytes_of(store), 12 * MIB)
        self.clean(store)

    def test_grow_killed_at_any_moment(self):
        store = self.make("pool", "32MiB", "--max-size", "1GiB", "--lease-ms", "500")
        self.serve(store)
        size = 32
        for i in range(12):
            growing = self.start("grow", store, "--size", f"{size + 16}MiB")
            time.sleep(0.004 * i)
            growing.kill()
            growing.wait()
            now = self.bytes_of(store)
            self.assertIn(now, (size * MIB, (size + 16) * MIB))
            self.good("put", f"k{i}", "--pool", store, data=os.urandom(MIB))
            size = now // MIB
        self.good("grow", store, "--size", f"{size + 16}MiB")
        self.clean(store)
        self.good("shrink", store, "--size", "32MiB")
        self.clean(store)
        self.assertEqual(run("get", "k11", "--pool", store, os.devnull).returncode in (0, 3), True)


if __name__ == "__main__":
    main()
