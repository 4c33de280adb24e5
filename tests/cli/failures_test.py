#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows: each failure of Documentation/operations.md looks as the page says, its commands help, and no more is lost.
How: each section names texts and commands; its test makes the failure happen with real processes, runs the section's
own commands and must have seen every text of it. A section without a test fails, and so does a test without one."""
import functools
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from cli import KVPOOL, SOURCE, Case, flip, main, run, wait_until  # noqa: E402

sys.path.insert(0, str(SOURCE / "tests" / "golden"))
from read_image import crc, word  # noqa: E402

LEASE = 0.5  # seconds, of stores whose lease matters
SLOW = 4 if os.environ.get("KVPOOL_SANITIZE") else 1


def sections():
    """The page's failures: title, texts that are printed, commands."""
    page = (SOURCE / "Documentation" / "operations.md").read_text()
    part = page[page.index("## When something is wrong"):page.index("## Measure it")]
    found = {}
    for title, body in re.findall(r"^### (.+)\n((?:(?!^### ).*\n)*)", part, re.MULTILINE):
        commands = [line for block in re.findall(r"```sh\n(.*?)```", body, re.DOTALL) for line in block.splitlines()]
        prose = re.sub(r"```sh\n.*?```", "", body, flags=re.DOTALL)
        spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose)]
        # Commands and options are no output, nor are the names of errors.
        texts = [span for span in spans if not re.match(r"kvpool |-", span)]
        found[title] = (texts, commands)
    return found


SECTIONS = sections()
TABLE = {}  # section: its test


class Section:
    """One section while its test runs: what was printed, and which of its commands are still to be run."""

    def __init__(self, case, title):
        self.case, self.title = case, title
        self.texts, self.commands = SECTIONS[title][0], list(SECTIONS[title][1])
        self.output = ""

    def hear(self, done):
        self.output += done.out + done.err
        return done

    def take(self, start, store):
        for command in self.commands:
            if command.startswith(f"kvpool {start}"):
                self.commands.remove(command)
                return shlex.split(command.replace("$POOL", store))[1:]
        return self.case.fail(f"{self.title}: the section has no command 'kvpool {start}' (left)")

    def do(self, start, store, code=0):
        """Runs the section's next command that starts so."""
        words = self.take(start, store)
        done = self.hear(run(*words))
        self.case.assertEqual(done.returncode, code, f"{words}: {done.out}{done.err}")
        return done

    def serve(self, store):
        return self.case.serve(self.take("serve", store)[1])

    def close(self):
        self.case.assertEqual(self.commands, [], f"{self.title}: commands of the section that were not run")
        for text in self.texts:
            self.case.assertIn(text, self.output, f"{self.title}: never printed")


def section(title):
    def wrap(function):
        @functools.wraps(function)
        def test(self):
            at = Section(self, title)
            function(self, at)
            at.close()
        TABLE[title] = test
        return test
    return wrap


class Member:
    """kvpool debug hold: does what it is told, a line each."""

    def __init__(self, case, store, rank=0):
        self.child = subprocess.Popen([str(KVPOOL), "debug", "hold", store, "--seed", str(rank)], text=True,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        case.children.append(self.child)
        self.case = case
        case.assertEqual(self.hear()[0], "ready")

    def say(self, *words):
        self.child.stdin.write(" ".join(words) + "\n")
        self.child.stdin.flush()
        return self.hear()

    def hear(self):
        name, result, text = self.child.stdout.readline().split(" ", 2)
        return name, int(result), text.strip()

    def reserve(self, key):
        _, result, ticket = self.say("reserve", key)
        self.case.assertEqual(result, 1, ticket)
        return ticket

    def end(self):
        """Ends it, and gives what it logged."""
        return self.child.communicate(timeout=30)[1]


class Failures(Case):
    def tearDown(self):
        for child in self.children:
            if child.poll() is None:
                child.send_signal(signal.SIGCONT)
            if child.stdin and not child.stdin.closed:
                try:
                    child.stdin.close()
                except BrokenPipeError:  # it ended before it read everything
                    pass
        super().tearDown()

    def quick(self, name="pool", *options):
        """A store whose lease is short."""
        return self.make(name, "32MiB", "--lease-ms", str(int(LEASE * 1000)), *options)

    def put(self, store, key="a", data=b"x" * 4096, code=0, timeout=10):
        done = run("put", key, "--pool", store, "--timeout", timeout, data=data)
        self.assertEqual(done.returncode, code, done.out + done.err)
        return done

    def stat(self, store):
        return self.json("stat", store)["data"]

    def members(self, store, name):
        return [member for member in self.stat(store)["members"] if member["name"] == name]

    def until(self, what, seconds=10):
        self.assertTrue(wait_until(what, seconds * SLOW), "it never came to that")

    def until_settled(self, member, keys):
        """Until each key is a hit or a miss: while a lost device is noticed a get may also be -EIO or -EAGAIN."""
        def settled():
            got = {member.say("get", key)[1] for key in keys}
            self.assertTrue(got <= {0, 1, -5, -11}, got)
            return got == {0, 1}
        self.until(settled)

    def clean(self, store):
        self.assertTrue(self.json("check", store, "--payload")["data"]["clean"])

    def kill(self, child):
        child.kill()
        child.wait(timeout=20)

    # ---- owners ----

    @section("Owner process killed")
    def test_owner_killed(self, at):
        store = self.quick()
        owner = self.serve(store)
        self.put(store)
        self.kill(owner)
        at.hear(self.put(store, "b", code=1, timeout=0.3))
        at.hear(self.good("stat", store))
        self.good("get", "a", "--pool", store)
        owner = at.serve(store)
        at.do("check", store)
        self.put(store, "b")
        self.serve(store)  # a standby: now nothing is seen
        self.kill(owner)
        self.put(store, "c")
        for key in "abc":
            self.good("get", key, "--pool", store)

    @section("Owner hangs and comes back")
    def test_owner_hangs(self, at):
        store = self.quick()
        owner, standby = self.serve(store), self.serve(store)
        self.put(store)
        owner.send_signal(signal.SIGSTOP)
        self.put(store, "b", timeout=20)  # waits for the take-over
        both = self.members(store, "owner")
        self.assertEqual({member["pid"]: member["owner"] for member in both}, {owner.pid: False, standby.pid: True})
        owner.send_signal(signal.SIGCONT)
        self.until(lambda: [m["state"] for m in self.members(store, "owner") if m["pid"] == owner.pid] == ["dead"])
        at.do("stat", store)
        self.kill(standby)  # what came back stands by
        self.put(store, "c", timeout=20)
        self.assertEqual([m["pid"] for m in self.members(store, "owner") if m["owner"]], [owner.pid])
        owner.send_signal(signal.SIGSTOP)  # without a standby
        said = at.hear(self.put(store, "d", code=1, timeout=2 * LEASE)).err
        self.assertIn(f"the owner (pid {owner.pid} on host 0)", said)
        self.good("get", "a", "--pool", store)
        owner.send_signal(signal.SIGCONT)
        self.put(store, "d", timeout=20)
        self.clean(store)

    def test_suspicion(self):
        """A standby need not wait for a lease, and one with more patience does not take over before it."""
        store = self.make("patient", "32MiB", "--lease-ms", "60000", "--standbys", "3")
        owner, patient = self.serve(store), self.serve(store, "--suspicion", "50")
        eager = self.serve(store, "--suspicion", "0.4")
        self.put(store)
        time.sleep(1)
        self.assertEqual([m["pid"] for m in self.members(store, "owner") if m["owner"]], [owner.pid], "its heartbeat moves")
        owner.send_signal(signal.SIGSTOP)
        self.put(store, "b", timeout=20)
        self.assertEqual([m["pid"] for m in self.members(store, "owner") if m["owner"]], [eager.pid])
        owner.send_signal(signal.SIGCONT)
        self.put(store, "c", timeout=20)
        self.kill(eager)
        self.put(store, "d", timeout=20)
        self.assertIsNone(patient.poll())
        self.clean(store)

    @section("Standby killed")
    def test_standby_killed(self, at):
        store = self.quick()
        owner, standby = self.serve(store), self.serve(store)
        self.kill(standby)
        at.hear(self.good("stat", store))
        alive = [member for member in self.members(store, "serve") if member["state"] == "alive"]
        self.assertEqual([member["pid"] for member in alive], [owner.pid])
        self.put(store)
        at.serve(store)
        self.kill(owner)
        self.put(store, "b")
        self.clean(store)

    # ---- members ----

    @section("Member killed")
    def test_member_killed(self, at):
        store = self.quick()
        self.serve(store)
        member = Member(self, store)
        self.assertEqual(member.say("put", "mine")[1], 1)
        self.assertEqual(member.say("pin", "mine")[1], 1)
        self.assertEqual(member.say("pending", "soon")[1], 1)
        member.reserve("never")
        self.assertGreater(self.stat(store)["space"]["extents_members"], 0)
        self.until(lambda: self.json("why", "soon", "--pool", store, code=3)["data"]["reason"] == "pending")
        self.kill(member.child)
        at.do("stat", store)
        self.until(lambda: self.stat(store)["space"]["extents_members"] == 0)
        self.assertEqual(self.stat(store)["space"]["extents_tainted"], 0)
        self.assertNotEqual(self.json("why", "soon", "--pool", store, code=3)["data"]["reason"], "pending")
        self.good("get", "mine", "--pool", store)
        at.do("check", store)

    @section("Member paused longer than its lease")
    def test_member_paused(self, at):
        store = self.quick()
        self.serve(store)
        member = Member(self, store)
        self.assertEqual(member.say("put", "mine")[1], 1)
        ticket = member.reserve("never")
        self.assertEqual(member.say("write", ticket)[1], 0)
        member.child.send_signal(signal.SIGSTOP)
        time.sleep(2 * LEASE)
        before = self.members(store, "rank-0")
        at.do("stat", store)
        self.until(lambda: self.stat(store)["space"]["extents_tainted"] > 0)
        self.assertEqual(self.members(store, "rank-0"), before, "its heartbeat stands still")
        member.child.send_signal(signal.SIGCONT)
        self.until(lambda: self.members(store, "rank-0")[0]["heartbeat"] != before[0]["heartbeat"])
        self.assertLess(member.say("publish", ticket)[1], 0, "its reservations are gone")
        self.assertEqual(member.say("put", "again")[1], 1)
        at.output += member.end()
        for key in ("mine", "again"):
            self.good("get", key, "--pool", store)
        self.clean(store)

    @section("A rank of a group dies while writing in shards")
    def test_rank_dies(self, at):
        store = self.quick()
        self.serve(store)
        first, second = Member(self, store, 0), Member(self, store, 1)
        ticket = first.reserve("shared")
        self.assertEqual(second.say("write", ticket)[1], 0)
        self.assertEqual(first.say("write", ticket)[1], 0)
        self.assertEqual(first.say("publish", ticket)[1], 1)  # as it is when nobody dies
        lost = first.reserve("lost")
        self.assertEqual(second.say("write", lost)[1], 0)
        self.kill(first.child)
        at.do("stat", store)
        self.until(lambda: self.stat(store)["space"]["extents_members"] == 0)
        self.assertLess(second.say("write", lost)[1], 0, "nobody writes for the dead")
        second.end()
        self.assertLess(Member(self, store, 1).say("write", lost)[1], 0, "nor does a rank that comes later")
        at.hear(self.good("why", "lost", "--pool", store, code=3))
        self.good("get", "shared", "--pool", store)
        at.do("check", store)

    # ---- hosts ----

    @section("All hosts off, and the store opened next day")
    def test_all_off(self, at):
        store = self.quick()
        owner = self.serve(store)
        member = Member(self, store)
        self.assertEqual(member.say("put", "a")[1], 1)
        member.reserve("never")
        for child in (member.child, owner):
            self.kill(child)
        at.hear(self.good("stat", store))
        at.do("check", store)
        at.serve(store)
        self.good("get", "a", "--pool", store)
        self.until(lambda: self.stat(store)["space"]["extents_members"] == 0)
        self.put(store, "b")
        self.clean(store)
        at.hear(self.bad("info", f"mem:kvpool-gone-{os.getpid()}", code=3))

    @section("A host is lost for ever")
    def test_host_lost(self, at):
        store = self.quick("pool", "--hosts", "2", "--members", "8")
        self.serve(store)
        there = f"{store}?host=1"
        member = Member(self, there)
        self.assertEqual(member.say("put", "a")[1], 1)
        at.hear(self.bad("host", "fence", "1", store, "--confirmed", code=1))
        member.child.send_signal(signal.SIGSTOP)  # its lock says that it lives
        self.bad("host", "fence", "1", store, "--confirmed", code=1, says="processes of this machine")
        self.kill(member.child)
        self.bad("host", "fence", "1", store, code=1, says="--confirmed")
        self.bad("host", "fence", "7", store, "--confirmed", code=2, says="hosts 0 to 1")
        self.assertEqual(len(self.json("host", "fence", "1", store, "--dry-run")["data"]["fenced"]), 1)
        at.do("host fence", store)
        self.assertIn("quiet", self.good("check", store, "--decode", "reaper:8").out.lower())
        self.until(lambda: self.stat(store)["space"]["extents_members"] == 0)
        self.assertEqual(self.stat(store)["space"]["extents_tainted"], 0)
        self.bad("host", "fence", "0", store, "--confirmed", code=1, says="is alive")
        self.good("get", "a", "--pool", store)
        self.clean(store)

    @section("A host loses its link")
    def test_link_lost(self, at):
        store = self.quick("pool", "--hosts", "2", "--members", "8")
        owner = Member(self, store, 0)  # serves as well, on host 0
        self.assertEqual(owner.say("serve")[1], 1)
        there = Member(self, f"{store}?host=1", 1)
        standby = self.serve(f"{store}?host=1")
        self.assertEqual(there.say("put", "mine")[1], 1)
        ticket = there.reserve("never")
        self.assertEqual(there.say("write", ticket)[1], 0)

        # A host with members only.
        self.assertGreater(there.say("cut")[1], 0)
        for word in ("put", "get"):
            _, result, text = there.say(word, "mine")
            self.assertLess(result, 0, "bytes that cannot be read are no block, and no miss")
            at.output += text + "\n"
        self.put(store, "others")
        for key in ("mine", "others"):
            self.good("get", key, "--pool", store)
        self.until(lambda: self.stat(store)["space"]["extents_tainted"] > 0)
        self.assertEqual([m["state"] for m in self.members(store, "rank-1")], ["alive"], "its process is")
        at.do("stat", store)
        self.assertLess(there.say("put", "b")[1], 0)
        self.assertEqual(there.say("mend")[1], 0)
        self.until(lambda: there.say("put", "b")[1] in (0, 1))
        self.assertLess(there.say("publish", ticket)[1], 0, "its reservations are gone")
        self.assertEqual(there.say("get", "mine")[1], 1)

        # The owner's.
        self.assertGreater(owner.say("cut")[1], 0)
        self.put(store, "c", timeout=20)
        self.assertEqual([m["pid"] for m in self.stat(store)["members"] if m["owner"]], [standby.pid])
        self.assertLess(owner.say("put", "d")[1], 0)
        self.assertEqual(owner.say("mend")[1], 0)
        self.until(lambda: owner.say("put", "d")[1] in (0, 1))
        at.output += there.end()
        for key in ("mine", "others", "b", "c", "d"):
            self.good("get", key, "--pool", store)
        at.do("check", store)

    def foreign_beat(self, path, step):
        """The line of host 0 as another machine would write it."""
        with open(path, "r+b") as file:
            identity = file.read(64)
            file.seek(HOST_LINE)
            line = bytearray(file.read(64))
            line[16:32] = b"another boot id."
            line[32:40] = b"incarna."
            line[40:48] = word(1_000_000 + step)
            line[60:64] = line_crc(identity, HOST_LINE, line).to_bytes(4, "little")
            file.seek(HOST_LINE)
            file.write(line)

    @section("A host id is used twice")
    def test_host_twice(self, at):
        store = self.quick("pool", "--hosts", "2", "--members", "8")
        owner = self.serve(store)
        self.put(store)
        over = threading.Event()

        def other_machine():
            step = 0
            while not over.wait(0.01):
                step += 1
                self.foreign_beat(self.folder / "pool", step)

        thread = threading.Thread(target=other_machine)
        thread.start()
        try:
            out, err = owner.communicate(timeout=20 * SLOW)
            at.output += out + err
            self.assertEqual(owner.returncode, 1, err)
            at.hear(self.bad("put", "b", "--pool", store, code=1, data=b"1"))
            at.serve(store)
            self.put(f"{store}?host=1", "b")
        finally:
            over.set()
            thread.join()
        self.good("get", "a", "--pool", f"{store}?host=1")

    # ---- formats ----

    @section("Two formats at once")
    def test_two_formats(self, at):
        store = self.address("pool", None)
        for _ in range(5):
            (self.folder / "pool").unlink(missing_ok=True)
            both = [subprocess.Popen([str(KVPOOL), "format", self.address("pool", "256MiB")], stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE, text=True) for _ in range(2)]
            for child in both:
                out, err = child.communicate(timeout=60)
                at.output += out + err
            self.assertEqual(sorted(child.returncode for child in both), [0, 1], at.output)
            self.clean(store)
        at.do("check", store)

    @section("Forced format over living members")
    def test_forced_format(self, at):
        store = self.quick()
        owner = self.serve(store)
        member = Member(self, store)
        self.assertEqual(member.say("put", "a")[1], 1)
        at.hear(self.bad("format", store, "--yes", code=1))
        at.do("format", store)
        out, err = owner.communicate(timeout=20 * SLOW)
        self.assertEqual(owner.returncode, 1)
        at.output += out + err
        self.assertIn("the store was formatted anew", err)
        _, result, text = member.say("put", "b")
        self.assertLess(result, 0)
        self.assertIn("the store was formatted anew", text)
        at.hear(run("check", store))
        at.hear(self.good("stat", store))
        self.kill(member.child)
        at.serve(store)
        self.until(lambda: self.stat(store)["space"]["extents_former"] == 0)
        self.until(lambda: run("check", store).returncode == 0)  # the last lines of the former members are gone
        self.bad("get", "a", "--pool", store, code=3)
        self.put(store, "c")
        self.until(lambda: run("check", store).returncode == 0)
        at.do("check", store)

    @section("Format killed")
    def test_format_killed(self, at):
        address = self.address("pool", "512MiB")
        store = self.address("pool", None)
        # Killed before its first line: the file is there, and nothing stands in it. Whether a kill
        # strikes that moment is chance, so it is made.
        with open(self.folder / "pool", "wb") as pool:
            pool.truncate(64 << 20)
        self.assertEqual(at.hear(run("stat", store)).returncode, 3)
        for i in range(600):
            delay = 0.0004 * (i % 150) * SLOW
            (self.folder / "pool").unlink(missing_ok=True)
            child = subprocess.Popen([str(KVPOOL), "format", address], stdout=subprocess.DEVNULL,
                                     stderr=subprocess.DEVNULL)
            time.sleep(delay)
            self.kill(child)
            if not (self.folder / "pool").exists():
                continue
            done = at.hear(run("stat", store))
            self.assertIn(done.returncode, (0, 1, 3), done.err)
            if all(text in at.output for text in at.texts) and done.returncode != 0:
                break
        at.do("format", store)
        self.assertTrue(self.json("check", store)["data"]["clean"])

    # ---- files ----

    @section("A file of the pool is truncated")
    def test_truncated(self, at):
        store = self.make()
        owner = self.serve(store)
        self.put(store, "a", os.urandom(1 << 20))
        os.truncate(self.folder / "pool", 16 << 20)
        for command in ("info", "stat", "check", "repair"):
            at.hear(self.bad(command, store, code=4))
        at.hear(self.bad("get", "a", "--pool", store, code=4))
        owner.kill()
        at.hear(self.bad("serve", store, "--seconds", "1", code=4))
        at.do("format", store)
        self.assertTrue(self.json("check", store)["data"]["clean"])

    @section("A file of the pool is gone")
    def test_file_gone(self, at):
        store = f"file:{self.folder / 'one'},{self.folder / 'two'}"
        self.good("format", store, "--size", "64MiB")
        self.serve(store)
        member = Member(self, store)
        (self.folder / "two").unlink()
        for command in ("info", "stat", "check"):
            at.hear(self.bad(command, store, code=3))
        self.assertEqual(member.say("put", "still")[1], 1)
        for child in self.children:
            child.kill()
            child.wait(timeout=20)
        at.do("format", store)
        self.assertTrue(self.json("check", store)["data"]["clean"])

    @section("One of several files is truncated")
    def test_device_lost(self, at):
        store = f"file:{self.folder / 'one'},{self.folder / 'two'}"
        self.good("format", store, "--size", "64MiB", "--lease-ms", str(int(LEASE * 1000)))
        owner = self.serve(store)
        standby = self.serve(store)
        member = Member(self, store)
        follower = subprocess.Popen([str(KVPOOL), "events", store, "--follow"], text=True, stdout=subprocess.PIPE)
        self.children.append(follower)
        keys = [f"k{i}" for i in range(64)]
        for key in keys:
            self.assertEqual(member.say("put", key)[1], 1)
        line = follower.stdout.readline()
        self.assertTrue(line, "the reader of events could not open the store")
        at.output += line
        two = self.folder / "two"
        stood = two.read_bytes()
        os.truncate(two, 2 << 20)

        self.until_settled(member, keys)
        kept = [key for key in keys if member.say("get", key)[1] == 1]
        for i in range(64):
            _, result, text = member.say("put", f"new{i}")
            self.assertEqual(result, 1, text)
            self.assertEqual(member.say("get", f"new{i}")[1], 1)
        for command in ("info", "stat", "check"):
            at.hear(self.bad(command, store, code=4))
        os.truncate(two, 0)
        for command in ("info", "stat"):
            at.hear(self.good(command, store))
        at.do("check", store, code=4)
        while "removed lost" not in line:  # what is followed comes a little later
            line = follower.stdout.readline()
            self.assertTrue(line, "the reader of events ended")
            at.output += line
        time.sleep(0.3)
        self.kill(follower)
        at.output += follower.stdout.read()
        self.kill(owner)  # the other one has what is left, and goes on with it
        self.until(lambda: member.say("put", "later")[1] in (0, 1))
        for key in kept:
            self.assertEqual(member.say("get", key)[1], 1, key)
        with open(two, "r+b") as file:  # from a copy, its identity last
            os.truncate(two, len(stood))
            file.seek(4096)
            file.write(stood[4096:])
            file.flush()
            file.seek(0)
            file.write(stood[:4096])
        self.until(lambda: run("stat", store).returncode == 0)
        got = {key: member.say("get", key)[1] for key in keys}
        self.assertEqual([key for key in keys if got[key] == 1], kept)
        for i in range(64):
            self.assertEqual(member.say("put", f"back{i}")[1], 1)
        self.good("get", kept[0], "--pool", store)
        self.kill(standby)
        at.serve(store)
        self.until(lambda: member.say("put", "last")[1] in (0, 1))
        self.assertTrue(self.json("check", store)["data"]["clean"])

    @section("The first of several files is truncated")
    def test_first_device_lost(self, at):
        store = f"file:{self.folder / 'one'},{self.folder / 'two'}"
        self.good("format", store, "--size", "64MiB", "--lease-ms", str(int(LEASE * 1000)))
        owner = self.serve(store)
        member = Member(self, store)
        keys = [f"k{i}" for i in range(48)]
        for key in keys:
            self.assertEqual(member.say("put", key)[1], 1)
        one = self.folder / "one"
        stood = one.read_bytes()
        os.truncate(one, 0)
        # Nobody can before the owner goes on from the other file.
        at.hear(self.bad("put", "b", "--pool", store, code=1, data=b"b"))

        def left():
            _, result, text = member.say("put", "b")
            at.output += text + "\n"
            self.assertLess(result, 0)
            return "open it again" in text
        self.until(left)
        self.kill(member.child)
        member = Member(self, store)  # the owner has opened it again by itself
        self.until(lambda: member.say("put", "c")[1] in (0, 1))

        self.until_settled(member, keys)
        kept = [key for key in keys if member.say("get", key)[1] == 1]
        for i in range(64):
            _, result, text = member.say("put", f"new{i}")
            self.assertEqual(result, 1, text)
            self.assertEqual(member.say("get", f"new{i}")[1], 1)
        self.assertEqual(self.json("info", store)["data"]["control_device"], 1)
        self.kill(owner)
        at.output += owner.stderr.read()
        self.assertIn("members' lines on device 1", self.good("stat", store).out)
        at.serve(store)  # another one, with nothing special to do
        self.until(lambda: member.say("put", "later")[1] in (0, 1))
        at.do("info", store)
        with open(one, "r+b") as file:  # from a copy, its identity last
            os.truncate(one, len(stood))
            file.seek(4096)
            file.write(stood[4096:])
            file.flush()
            file.seek(0)
            file.write(stood[:4096])
        for key in keys:
            self.assertEqual(member.say("get", key)[1], int(key in kept), key)
        for i in range(64):
            self.assertEqual(member.say("put", f"back{i}")[1], 1)
        self.assertEqual(self.json("info", store)["data"]["control_device"], 1)

    def test_first_device_lost_unserved(self):
        """Nobody serves when the file goes: whoever begins to may go on. Others cannot use the store before."""
        store = f"file:{self.folder / 'one'},{self.folder / 'two'}"
        self.good("format", store, "--size", "64MiB", "--lease-ms", str(int(LEASE * 1000)))
        owner = self.serve(store)
        member = Member(self, store)
        keys = [f"k{i}" for i in range(48)]
        for key in keys:
            self.assertEqual(member.say("put", key)[1], 1)
        self.kill(member.child)
        self.kill(owner)
        os.truncate(self.folder / "one", 0)
        self.assertIn("kvpool serve", self.bad("put", "q", "--pool", store, code=1, data=b"q").err)
        self.assertEqual(self.json("info", store)["data"]["control_device"], 0)
        self.assertIn("which is lost", self.good("doctor", store, code=1).out)
        self.bad("serve", store, "--control-device", "2", code=2)
        self.serve(store, "--control-device", "1")
        member = Member(self, store)

        self.until_settled(member, keys)
        self.put(store, "q")
        self.bad("serve", store, "--control-device", "0", code=1)

    def test_lost_device_at_opening(self):
        """Who comes while a device is lost, be it the second or a later one: opens, reads, puts, serves, takes over."""
        for lost in (1, 2):
            files = [self.folder / f"{lost}-{i}" for i in range(3)]
            store = "file:" + ",".join(map(str, files))
            self.good("format", store, "--size", "96MiB", "--lease-ms", str(int(LEASE * 1000)))
            owner = self.serve(store)
            member = Member(self, store)
            keys = [f"k{i}" for i in range(48)]
            for key in keys:
                self.assertEqual(member.say("put", key)[1], 1)
            stood = files[lost].read_bytes()
            os.truncate(files[lost], 0)

            self.until_settled(member, keys)
            kept = [key for key in keys if member.say("get", key)[1] == 1]
            for command in ("info", "stat", "doctor"):
                said = run(command, store)
                self.assertEqual(said.returncode, 1 if command == "doctor" else 0, said.out + said.err)
                self.assertIn(f"{files[lost]} is lost", said.out + said.err, command)
            self.bad("check", store, code=4, says=f"{files[lost]} is lost")
            self.bad("repair", store, "--yes", code=4, says=f"{files[lost]} is lost")
            self.good("events", store)
            standby = self.serve(store)  # beside the owner, and it takes over
            self.kill(owner)
            late = Member(self, store, 1)
            self.until(lambda: late.say("put", "later")[1] in (0, 1))
            self.assertEqual([m["pid"] for m in self.stat(store)["members"] if m["owner"]], [standby.pid])
            self.assertEqual([key for key in keys if late.say("get", key)[1] == 1], kept)
            self.put(store, "new")
            self.good("get", "new", "--pool", store)
            for child in (standby, member.child, late.child):  # and once nobody lives
                self.kill(child)
            self.serve(store)
            late = Member(self, store, 1)
            self.until_settled(late, keys)
            self.assertEqual([key for key in keys if late.say("get", key)[1] == 1], kept)
            with open(files[lost], "r+b") as file:  # from a copy, its identity last
                os.truncate(files[lost], len(stood))
                file.seek(4096)
                file.write(stood[4096:])
                file.flush()
                file.seek(0)
                file.write(stood[:4096])
            self.until(lambda: self.stat(store)["owned"])
            for key in keys:
                self.assertEqual(late.say("get", key)[1], int(key in kept), key)
            for i in range(64):
                self.assertEqual(late.say("put", f"back{i}")[1], 1)
            self.assertNotIn("lost", self.good("info", store).err)

    @section("Full file system")
    def test_full_file_system(self, at):
        mount = self.folder / "tiny"
        mount.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(mount)], capture_output=True,
                                 check=False)
        if mounted.returncode == 0:
            store = f"file:{mount / 'pool'}"
            try:
                at.do("format", store, code=1)
                self.assertEqual(list(mount.iterdir()), [])
            finally:
                subprocess.run(["umount", str(mount)], check=True)
            return
        # An ordinary user: no file system takes more than it has.
        words = at.take("format", f"file:{self.folder / 'big'}")
        words[words.index("--size") + 1] = "900TiB"
        at.hear(self.bad(*words, code=1))
        self.assertFalse((self.folder / "big").exists())

    @section("Store of a newer version")
    def test_newer(self, at):
        store = self.make()
        with open(self.folder / "pool", "r+b") as file:
            for copy in (0, 8192):
                file.seek(copy)
                line = bytearray(file.read(64))
                line[47] += 1
                start = crc(crc(0xFFFFFFFF, bytes(line[0:8])), word(line[45]))
                line[60:64] = crc(start, bytes(line[0:60])).to_bytes(4, "little")
                file.seek(copy)
                file.write(line)
        before = (self.folder / "pool").read_bytes()
        at.do("info", store, code=1)
        self.bad("serve", store, "--seconds", "1", code=1)
        self.assertEqual((self.folder / "pool").read_bytes(), before)

    # ---- bits ----

    @section("A flipped bit in metadata")
    def test_metadata_bit(self, at):
        store = self.make()
        owner = self.serve(store)
        self.put(store, "a")
        self.put(store, "b")
        owner.terminate()
        self.assertEqual(owner.wait(timeout=20), 0)
        flip(self.folder / "pool", 20)  # the first copy of the superblock
        at.do("check", store, code=4)
        self.good("info", store)
        at.do("repair", store)
        self.clean(store)
        number = self.json("ls", store)["data"]["blocks"][0]["entry"]
        place = self.json("check", store, "--decode", f"entry:{number}", schema="check.line")["data"]["at"]
        flip(self.folder / "pool", int(place.split(":")[1]) + 17)
        at.hear(self.good("check", store, code=4))
        at.serve(store)
        self.until(lambda: self.stat(store)["owned"])
        codes = sorted(run("get", key, "--pool", store).returncode for key in "ab")
        self.assertEqual(codes, [0, 3], "that block is dropped, no other one")
        self.clean(store)

    @section("A flipped bit in payload")
    def test_payload_bit(self, at):
        store = self.make()
        self.serve(store)
        data = os.urandom(8192)
        self.put(store, "a", data)
        self.put(store, "b", data)
        victim = self.json("get", "a", str(self.folder / "out"), "--pool", store)["data"]["key"]
        for seed in range(50):
            if self.good("debug", "corrupt", store, "--seed", str(seed)).out.strip() == victim:
                break
        else:
            self.fail("the block was never hit")
        self.bad("check", store, "--payload", code=4, says="kvpool rm --hex")
        at.do("check", store, code=4)
        at.hear(self.bad("get", "a", "--pool", store, code=4))
        at.do("rm", store)
        at.hear(self.bad("get", "a", "--pool", store, code=3))
        if run("get", "b", "--pool", store).returncode != 0:  # it was hit on the way
            self.good("rm", "b", "--pool", store)
        self.clean(store)

    @section("A line of the metadata, or of a block, cannot be read")
    def test_poison(self, at):
        store = self.quick()
        member = Member(self, store)
        self.assertEqual(member.say("serve")[1], 1)
        self.assertEqual(member.say("put", "a")[1], 1)
        image = (self.folder / "pool").read_bytes()
        pages = [byte for byte in range(0, len(image), 4096) if image[byte:byte + 4096] == b"h" * 4096]
        self.assertGreaterEqual(len(pages), 31)
        keys = [f"k{i}" for i in range(24)]
        for key in keys:
            self.assertEqual(member.say("put", key)[1], 1)

        # A line of a block.
        self.assertEqual(member.say("cut", str(pages[7]), "4096")[1], 1)
        _, result, text = member.say("get", "a")
        self.assertLess(result, 0, "neither a block nor a miss")
        at.output += text + "\n"
        self.assertEqual({member.say("get", key)[1] for key in keys}, {1}, "others stay")
        at.do("rm", store)
        self.assertEqual(member.say("get", "a")[1], 0)
        for key in ("a", *(f"new{i}" for i in range(24))):  # whoever gets its place puts the block elsewhere
            self.assertEqual(member.say("put", key)[1], 1)
            self.assertEqual(member.say("get", key)[1], 1)
        self.assertEqual(member.say("mend")[1], 0)

        # A page of entries, as the next owner finds it.
        entries = {one["key"]: one["entry"] for one in self.json("ls", store)["data"]["blocks"]}
        place = self.json("check", store, "--decode", f"entry:{min(entries.values())}", schema="check.line")["data"]["at"]
        page = int(place.split(":")[1]) // 4096 * 4096
        heir = Member(self, store, 1)
        self.assertEqual(heir.say("cut", str(page), "4096")[1], 1)
        self.kill(member.child)
        self.assertEqual(heir.say("serve")[1], 1)
        self.until(lambda: heir.say("put", "served")[1] == 1)  # it has taken over
        found = [heir.say("get", key)[1] for key in ("a", *keys)]
        self.assertEqual(set(found), {0, 1}, "those in the page are misses, others stay")
        self.assertEqual(heir.say("mend")[1], 0)
        self.assertEqual([heir.say("get", key)[1] for key in ("a", *keys)], found, "what was dropped stays so")
        self.assertEqual(heir.say("put", "last")[1], 1)
        heir.end()
        at.serve(store)
        self.assertEqual([run("get", key, "--pool", store).returncode for key in ("a", *keys)],
                         [0 if one else 3 for one in found])
        at.do("check", store)
        self.clean(store)

    @section("Unreadable claim lines")
    def test_claims(self, at):
        store = self.make()
        owner = self.serve(store)
        self.put(store)
        owner.terminate()
        self.assertEqual(owner.wait(timeout=20), 0)
        flip(self.folder / "pool", 8 * 64 + 5)
        self.good("repair", store, "--yes")
        self.good("get", "a", "--pool", store)
        flip(self.folder / "pool", 8 * 64 + 5)
        flip(self.folder / "pool", 8192 + 8 * 64 + 5)
        at.hear(self.good("check", store, code=4))
        self.bad("stat", store, code=4)
        at.hear(self.bad("serve", store, "--seconds", "1", code=4))
        at.do("repair", store, code=4)
        at.do("repair", store)
        self.clean(store)
        self.bad("get", "a", "--pool", store, code=3)

    def test_new_life_over_living_members(self):
        """As a forced format: refused unless forced, and those who live there are told."""
        store = self.quick()
        owner = self.serve(store)
        member = Member(self, store)
        self.assertEqual(member.say("put", "a")[1], 1)
        self.kill(owner)
        for copy in (0, 8192):
            for slot in (8, 9):
                flip(self.folder / "pool", copy + slot * 64 + 5)
        self.assertIn("claim-unreadable", self.good("check", store, code=4).out)
        for words in ((), ("--yes",)):
            self.bad("repair", store, "--new-life", *words, code=1, says="processes have this store open")
        self.good("repair", store, "--new-life", "--yes", "--force")
        self.serve(store)

        def told():
            _, result, text = member.say("put", "b")
            self.assertLess(result, 0)
            return "the store was formatted anew" in text
        self.until(told)
        self.kill(member.child)
        self.put(store, "b")
        self.good("get", "b", "--pool", store)
        self.bad("get", "a", "--pool", store, code=3)
        self.assertEqual(self.json("info", store)["data"]["lease_ms"], int(LEASE * 1000))

    # ---- space ----

    @section("Full store")
    def test_full_store(self, at):
        store = self.make()
        self.serve(store)
        data = os.urandom(4 << 20)
        for i in range(12):
            self.put(store, f"k{i}", data)
        self.good("get", "k11", "--pool", store)
        at.do("why", store, code=3)
        at.hear(self.put(store, "huge", data * 12, code=1))
        self.clean(store)

    def busy(self, store, done):
        """Two members that put, get and verify every byte, again and again, until `done` is set."""
        results = []

        def work():
            while not done.is_set():
                results.append(run("replay", "--pool", store, "--members", 2, "--requests", 60, "--block-bytes", "64KiB",
                                   "--progress", "none"))
        thread = threading.Thread(target=work)
        thread.start()
        return thread, results

    def gone_on(self, busy, done):
        """The members went on, without one failure, and after what was done as well."""
        thread, results = busy
        so_far = len(results)
        self.assertTrue(wait_until(lambda: len(results) > so_far + 1, 60))
        done.set()
        thread.join()
        for result in results:
            self.assertEqual(result.returncode, 0, result.out + result.err)

    @section("Pool too small")
    def test_pool_too_small(self, at):
        store = self.make()
        self.serve(store)
        data = os.urandom(4 << 20)
        for i in range(12):
            self.put(store, f"k{i}", data)
        at.hear(self.good("why", "k0", "--pool", store, code=3))
        at.hear(self.good("info", store))
        done = threading.Event()
        busy = self.busy(store, done)
        try:
            at.do("grow", store)
            self.assertEqual(self.json("info", store)["data"]["pool_bytes"], 32 << 20)
            at.do("grow", store)
            self.gone_on(busy, done)
        finally:
            done.set()
        self.assertEqual(self.json("info", store)["data"]["pool_bytes"], 64 << 20)
        for i in range(10):
            self.put(store, f"n{i}", data)
            self.good("get", f"n{i}", "--pool", store)
        at.do("check", store)
        self.clean(store)

    @section("Pool too large")
    def test_pool_too_large(self, at):
        store = self.make()
        self.serve(store)
        data = os.urandom(1 << 20)
        for i in range(30):
            self.put(store, f"k{i}", data)
        took = os.stat(self.folder / "pool").st_blocks
        done = threading.Event()
        busy = self.busy(store, done)
        try:
            at.do("shrink", store)
            self.gone_on(busy, done)
        finally:
            done.set()
        stat = self.hear_stat(at, store)
        self.assertGreater(stat["data"]["space"]["extents_retired"], 6)
        self.assertEqual(os.stat(self.folder / "pool").st_size, 32 << 20)
        self.assertLess(os.stat(self.folder / "pool").st_blocks, took - (15 << 20) // 512)
        at.do("check", store)
        self.clean(store)

    def hear_stat(self, at, store):
        at.do("stat", store)
        return self.json("stat", store)

    @section("Namespace over its quota")
    def test_quota(self, at):
        store = self.make()
        self.serve(store)
        self.put(store, "other")
        self.good("ns", "create", "m", "--quota", "1MiB", "--pool", store)
        for i in range(4):
            self.good("put", f"k{i}", "--ns", "m", "--pool", store, data=os.urandom(400_000))
        at.do("ns list", store)
        at.hear(self.good("why", "k0", "--ns", "m", "--pool", store, code=3))
        self.good("get", "k3", "--ns", "m", "--pool", store)
        self.good("get", "other", "--pool", store)
        self.assertLessEqual([ns["bytes"] for ns in self.stat(store)["namespaces"] if ns["name"] == "m"][0], 1 << 20)

    # ---- the page itself ----

    def test_each_section_has_a_test_and_each_test_a_section(self):
        self.assertGreater(len(SECTIONS), 15)
        self.assertEqual(set(SECTIONS), set(TABLE))
        for title, (texts, commands) in SECTIONS.items():
            self.assertTrue(texts and commands, f"{title}: says neither what is seen nor what to do")


HOST_LINE = 12288  # of host 0, in a store with one device


def line_crc(identity, byte, line):
    """The seal of a control line outside of areas, as format.md has it; `identity`: the superblock's first line."""
    base = crc(0xFFFFFFFF, identity[8:32])
    return crc(crc(crc(base, word(0)), word(byte)) or 0x6B767031, bytes(line[:60]))


if __name__ == "__main__":
    main()
