#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows: bad stores, addresses, options and memory are refused by name, with the documented exit code, and harm nothing.
How: images that are truncated, zeroed, flipped, newer, foreign; full and read-only files; unknown words."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from cli import KVPOOL, SOURCE, Case, flip, main, run, wait_until  # noqa: E402

sys.path.insert(0, str(SOURCE / "tests" / "golden"))
from read_image import crc, word  # noqa: E402

READERS = ("info", "stat", "check", "ls")


class Words(Case):
    def test_unknown_words(self):
        self.bad("stta", code=2, says="did you mean stat?")
        self.bad("frobnicate", code=2, says="unknown command")
        self.bad("stat", "--wacth", "1", code=2, says="did you mean --watch?")
        self.bad("stat", "a", "b", code=2, says="one argument too many")
        self.bad("put", code=2, says="KEY is missing")
        self.bad("format", "mem:x?size=1GiB", "--hosts", "many", code=2, says="not a whole number")
        self.bad("format", "mem:x?size=1GiB", "--hosts", "17", code=2, says="outside 1 to 16")
        self.bad("format", "mem:x?size=1GiB", "--standby-hosts", "0,one", code=2, says="neither a host id nor any")
        self.bad("format", "mem:x?size=1GiB", "--standby-hosts", "0,1", "--standbys", "3", code=2, says="names 2 slots")
        self.bad("format", "mem:x?size=1GiB", "--standby-hosts", "0,3", "--hosts", "2", code=2, says="no host 3")
        self.bad("serve", "mem:x", "--suspicion", "0", code=2, says="0.2 to 600 seconds")
        self.bad("format", "mem:x", "--size", "1ZB", code=2, says="not a size")
        self.bad("format", "mem:x", "--size", "99999999999999999999", code=2, says="not a size")
        self.bad("stat", "--watch", "nan", "mem:x", code=2, says="not a number")
        self.bad("ns", "destroy", "x", code=2, says="none of")
        self.bad("ns", "create", "--pool", "mem:x", code=2, says="needs a NAME")
        self.bad("ns", "create", "a-name-of-more-than-sixteen-bytes", "--pool", "mem:x", code=2)
        self.assertEqual(run().returncode, 2)

    def test_values_that_make_no_sense(self):
        for words in (("get", "k"), ("put", "k"), ("rm", "k")):
            self.bad(*words, "--pool", "mem:x", "--timeout", "-1", code=2, says="negative")
        self.bad("grow", "mem:x", "--size", "1GiB", "--timeout", "-0.5", code=2, says="negative")
        self.bad("stat", "mem:x", "--watch", "-1", code=2, says="negative")
        self.bad("events", "mem:x", "--limit", "0", code=2, says="outside 1 to")
        self.bad("top", "mem:x", "--count", "0", code=2, says="outside 1 to")
        self.bad("stat", "mem:x", "--watch", "1", "--count", "0", code=2, says="outside 1 to")
        self.bad("serve", "mem:x", "--ready-fd", "77", code=2, says="77 is no open descriptor")
        self.bad("replay", "--capacity", "0", code=2, says="0 bytes")

    def test_words_of_the_environment(self):
        store = self.make()
        for name, value in (("KVPOOL_ISA", "neon"), ("KVPOOL_FLUSH", "always")):
            for words in (("info", store), ("stat", store), ("check", store), ("repair", store), ("ls", store),
                          ("serve", store), ("top", store), ("events", store), ("ns", "list", "--pool", store),
                          ("put", "k", "--pool", store), ("get", "k", "--pool", store), ("rm", "k", "--pool", store),
                          ("why", "k", "--pool", store), ("format", store, "--yes"), ("bench", "--list"),
                          ("grow", store, "--size", "64MiB"), ("shrink", store, "--size", "16MiB")):
                self.bad(*words, code=2, says=f"{name}: '{value}' is none of", env={name: value}, data=b"x")
            done = run("doctor", store, "--json", env={name: value})
            self.assertEqual(done.returncode, 1, done.out + done.err)
            self.assertIn(f"{name}: '{value}' is none of", done.out)
            self.assertIn("can be read", done.out)

    def test_hints_name_what_helps(self):
        store = self.make()
        path = self.folder / "pool"
        owner = self.serve(store)
        self.good("put", "a", "--pool", store, data=b"a")
        self.good("put", "b", "--pool", store, data=b"b" * 200_000)
        owner.terminate()
        owner.wait(timeout=20)

        def line(what):
            return self.json("check", store, "--decode", what, schema="check.line")["data"]
        entry = next(b["entry"] for b in self.json("ls", store)["data"]["blocks"] if b["bytes"] > 100_000)
        address = re.search(r"pool address 0x([0-9a-f]+)", line(f"entry:{entry}")["text"])
        extent = int(address[1], 16) // (2 << 20)
        flip(path, int(line(f"extent:{extent}")["at"].split(":")[1]) + extent % 8 * 8)
        for command in ("check", "repair"):
            self.bad(command, store, code=4, says=f"kvpool serve {store}: the next owner mends it")
        self.serve(store)
        self.assertTrue(wait_until(lambda: self.json("stat", store)["data"]["owned"]))
        for key in "ab":
            self.good("get", key, "--pool", store)
        self.good("check", store)

    def test_what_is_no_store(self):
        for size in (1, 8, 100, 300_000, (2 << 20) - 1):
            path = self.folder / f"foreign-{size}"
            path.write_bytes(os.urandom(size))
            for command in (*READERS, "repair"):
                self.bad(command, f"file:{path}", code=3, says="is no store")
        (self.folder / "folder").mkdir()
        folder = f"file:{self.folder / 'folder'}"
        for options in ((), ("--yes",), ("--yes", "--force"), ("--dry-run",)):
            self.bad("format", folder, "--size", "16MiB", *options, code=1, says="is a directory")

    def test_smallest_store(self):
        for size in (2, 4, 5):
            self.bad("format", self.address("least", None), "--size", f"{size}MiB", code=1, says="needs 6144 KiB")
        self.good("format", self.address("least", None), "--size", "6MiB")

    def test_help_is_everywhere(self):
        self.assertIn("Commands:", self.good("--help").out)
        names = re.findall(r"^  ([a-z]+) ", self.good("--help").out, re.MULTILINE)
        self.assertGreater(len(names), 15)
        for name in names:
            self.assertIn("--help", self.good(name, "--help").out)
            self.assertEqual(self.good("help", name).out, self.good(name, "--help").out)
        self.assertRegex(self.good("--version").out, r"^kvpool \d+\.\d+\.\d+\n$")

    def test_addresses(self):
        self.bad("info", "mme:x", code=2, says="mem")
        for words in (("get", "k", "--pool"), ("put", "k", "--pool"), ("rm", "k", "--pool"), ("ns", "list", "--pool"),
                      ("events",), ("serve",), ("stat",), ("doctor",), ("format",), ("replay", "--pool")):
            self.bad(*words, "mme:x", code=2, says="mem")
        for words in (("get", "k"), ("stat",)):
            self.bad(*words, code=2, says="mem", env={"KVPOOL": "mme:x"})
        self.bad("info", "file:", code=2)
        self.bad("info", "mem:x?seize=1GiB", code=2, says="size")
        self.bad("info", "dev:no-such-one", code=1, says="driver")
        self.bad("info", "mem:there-is-none", code=3, says="kvpool format")
        self.bad("info", self.address("none", None), code=3)
        self.bad("info", f"file:{self.folder}", code=1)
        self.bad("info", "file:/dev/null", code=1)

    def test_values_out_of_range_are_wrong_use(self):
        # Of the address's own words, wherever they stand: nothing is looked for.
        for bad, says in (("mem:x?size=0", "0 bytes"), ("mem:x?host=16", "not within 0 to 15"),
                          ("mem:x?devices=17", "not within 1 to 16"), ("mem:x?devices=0", "not within"),
                          ("mem:" + "n" * 201, "201 characters"), ("mem:x?size=99999999999TiB", "more than a pool"),
                          ("file:" + ",".join(f"/p{i}" for i in range(17)), "more than 16 devices"),
                          ("file:/" + "p" * 4096, "longer than")):
            for words in (("info",), ("format",), ("check",), ("serve",), ("get", "k", "--pool"), ("ns", "list", "--pool"),
                          ("replay", "--pool")):
                self.bad(*words, bad, code=2, says=says)
            self.bad("stat", code=2, says=says, env={"KVPOOL": bad})
        for words in (("--size", "0"), ("--max-size", "0"), ("--size", "1048577TiB"), ("--devices", "0"),
                      ("--devices", "17")):
            self.bad("format", "mem:x", *words, code=2, says=f"{words[0]}: {words[1]} is outside 1 to")
        self.bad("grow", "mem:x", "--size", "0", code=2, says="outside 1 to 1024 PiB")
        self.bad("format", "", "--size", "1GiB", code=2, says="no pool named")
        store = self.make()
        self.bad("put", "k", "--pool", store + "?host=5", code=2, says="not below the store's", data=b"1")
        self.bad("get", "k", "--pool", store + "?host=5", code=2, says="kvpool info")

    def test_names_that_are_too_long(self):
        store = self.make()
        before = (self.folder / "pool").read_bytes()
        for name, says in (("n" * 17, "17 bytes, expected 1 to 16"), ("", "0 bytes, expected 1 to 16")):
            for words in (("put", "k", "--pool", store, "--embedded"), ("get", "k", "--pool", store), ("ls", store),
                          ("rm", "k", "--pool", store), ("why", "k", "--pool", store)):
                self.bad(*words, "--ns", name, code=2, says=f"--ns: {says}", data=b"1")
        for action in ("create", "clear", "bypass", "resume", "remove"):
            self.bad("ns", action, "n" * 17, "--pool", store, code=2, says="NAME: 17 bytes")
        for words in (("put", "k"), ("get", "k"), ("ns", "create", "n")):
            self.bad(*words, "--pool", store, "--model", "", code=2, says="--model: 0 bytes", data=b"1")
        self.bad("put", "k", "--pool", store, "--embedded", "--dtype", "auto", code=2, says="auto", data=b"1")
        self.bad("put", "k", "--pool", store, "--parent", "k" * 257, code=2, says="--parent: 257", data=b"1")
        self.bad("ns", "create", "n", "--pool", store, "--embedded", "--block-bytes", "100", code=2, says="multiple of 64")
        self.assertFalse(self.json("ns", "list", "--pool", store)["data"]["namespaces"])
        self.assertEqual(len(before), (self.folder / "pool").stat().st_size)

    def test_keys(self):
        store = self.make()
        self.good("put", "k" * 256, "--pool", store, "--embedded", data=b"1")
        self.bad("put", "k" * 257, "--pool", store, "--embedded", code=2, says="1 to 256", data=b"1")
        self.bad("get", "xyz", "--hex", "--pool", store, code=2, says="hexadecimal")
        self.bad("put", "e", "--pool", store, "--embedded", code=3, says="empty", data=b"")
        self.bad("put", "e", str(self.folder / "none"), "--pool", store, "--embedded", code=3, says="no such file")
        self.bad("get", "k", "--pool", store, "--json", code=2, says="FILE")


class Images(Case):
    def setUp(self):
        super().setUp()
        self.store = self.make()
        self.path = self.folder / "pool"

    def refused(self, code, says=""):
        for command in READERS:
            self.bad(command, self.store, code=code, says=says)
        self.bad("get", "x", "--pool", self.store, code=code)
        self.bad("serve", self.store, "--seconds", "1", code=code)

    def test_truncated(self):
        os.truncate(self.path, 16 << 20)
        for command in READERS:
            self.assertIn(run(command, self.store).returncode, (1, 4), command)
        self.assertNotEqual(run("serve", self.store, "--seconds", "1").returncode, 0)
        for command in ("check", "repair"):
            said = run(command, self.store).err
            self.assertIn(f"kvpool format {self.store} --yes --force", said)
            self.assertNotIn("kvpool repair " + self.store, said)
        os.truncate(self.path, 0)
        self.assertNotIn(run("info", self.store).returncode, (0, 2))

    def test_cut_files_are_damage(self):
        """Whatever is left of a device: exit code 4, its path and its size, and a hint that can be followed."""
        for left in ((16 << 20) + 4096 + 5, 2 << 20, (2 << 20) - 1, 100_000, 64):
            self.store = self.make("cut", "32MiB", "--yes", "--force")
            path = self.folder / "cut"
            os.truncate(path, left)
            for words in (*((command, self.store) for command in (*READERS, "repair", "top", "doctor")),
                          ("get", "k", "--pool", self.store), ("put", "k", "--pool", self.store),
                          ("rm", "k", "--pool", self.store), ("why", "k", "--pool", self.store),
                          ("ns", "list", "--pool", self.store), ("ns", "clear", "n", "--yes", "--pool", self.store),
                          ("events", self.store), ("host", "fence", "0", self.store, "--confirmed"),
                          ("serve", self.store, "--seconds", "1"), ("grow", self.store, "--size", "64MiB"),
                          ("shrink", self.store, "--size", "16MiB")):
                if words[0] == "doctor":
                    said = run(*words)
                    self.assertEqual(said.returncode, 1)
                    self.assertIn(str(left), said.out)
                    continue
                done = self.bad(*words, code=4, data=b"1")
                said = done.out + done.err  # what check finds stands on standard output
                self.assertIn("truncated", said, words)
                self.assertIn(str(path), said, words)
                self.assertRegex(said, rf"\b{left} bytes", words)
                self.assertIn(f"kvpool format {self.store} --yes --force --size 32MiB", said, words)
            self.good(*re.search(r"kvpool (format [^;\n]*)", said).group(1).split())
            self.good("check", self.store)

    def test_a_cut_of_what_the_pool_has_grown_by(self):
        store = self.make("grown", "32MiB", "--max-size", "64MiB")
        path = self.folder / "grown"
        owner = self.serve(store)
        self.good("grow", store, "--size", "64MiB")
        owner.terminate()
        owner.wait(timeout=20)
        os.truncate(path, 48 << 20)
        for words in (("info", store), ("stat", store), ("ls", store), ("get", "k", "--pool", store),
                      ("put", "k", "--pool", store), ("serve", store, "--seconds", "1")):
            self.bad(*words, code=4, says=f"({path}) is truncated: {48 << 20} bytes", data=b"1")

    def test_a_device_that_is_wrong_is_named_by_its_path(self):
        both = [self.folder / "a", self.folder / "b"]
        store = f"file:{both[0]},{both[1]}"
        self.good("format", store, "--size", "64MiB")
        os.truncate(both[1], 4 << 20)
        self.bad("info", store, code=4, says=f"device 1 ({both[1]}) is truncated: {4 << 20} bytes of {32 << 20}")
        hint = self.bad("get", "k", "--pool", store, code=4, says=f"device 1 ({both[1]})").err
        self.assertIn("--yes --force --size 64MiB", hint)
        both[1].rename(self.folder / "away")
        hint = self.bad("get", "k", "--pool", store, code=3, says=f"{both[1]}: no such file").err
        self.assertNotIn("--yes", hint)
        (self.folder / "away").rename(both[1])
        os.truncate(both[1], 0)
        self.bad("check", store, code=4)
        self.assertIn(f"{both[1]} is lost", self.good("doctor", store, code=1).out)
        self.good("format", store, "--yes", "--force", "--size", "64MiB")
        self.assertEqual(self.json("info", store)["data"]["pool_bytes"], 64 << 20)
        shutil.copy(self.path, both[1])
        self.bad("info", store, code=1, says=str(both[1]))

    def test_zeroed_and_random(self):
        self.path.write_bytes(bytes(32 << 20))
        self.refused(3, "no kvpool store")
        self.path.write_bytes(os.urandom(1 << 20) * 32)
        self.refused(3, "no kvpool store")

    def test_both_superblocks_damaged(self):
        flip(self.path, 20)
        flip(self.path, 8192 + 20)
        for command in READERS:
            self.bad(command, self.store, code=4)

    def test_one_superblock_damaged_is_mended(self):
        for where in (20, 64 + 9, 8192 + 20, 8192 + 128 + 3):
            flip(self.path, where)
            self.good("info", self.store)
            self.assertFalse(self.json("check", self.store, code=4)["data"]["clean"], where)
            self.good("repair", self.store, "--dry-run")
            self.assertEqual(run("check", self.store).returncode, 4, "a dry run must change nothing")
            mended = self.json("repair", self.store, "--yes")["data"]["mended"]
            self.assertGreater(len(mended), 0)
            self.assertTrue(self.json("check", self.store)["data"]["clean"], where)

    def test_claim_copy_is_mended(self):
        flip(self.path, 8 * 64 + 5)
        self.good("repair", self.store, "--yes")
        self.assertTrue(self.json("check", self.store)["data"]["clean"])
        flip(self.path, 8 * 64 + 5)
        flip(self.path, 8192 + 8 * 64 + 5)
        self.bad("check", self.store, code=4)
        self.bad("repair", self.store, "--yes", code=4)

    def test_new_life_keeps_the_options(self):
        """Damage with no second copy: a new store in the place of the old one, with its options, once that was said."""
        options = ("--lease-ms", "700", "--grace-us", "5000", "--hosts", "3", "--members", "5", "--standbys", "3",
                   "--standby-hosts", "any,1,2", "--namespaces", "9", "--block-bytes", "100000", "--index-growth", "3",
                   "--max-size", "96MiB")
        store = f"file:{self.folder / 'one'},{self.folder / 'two'}"
        for words in (self.store, ()), (store, ("--size", "64MiB", "--width", "1", *options)):
            address, how = words
            if how:
                self.good("format", address, *how)
                self.path = self.folder / "one"
            for words in ("--new-life",), ("--new-life", "--yes"), ("--new-life", "--yes", "--force"):
                self.bad("repair", address, *words, code=3, says="nothing that only a new life would mend")
            self.bad("repair", address, "--force", code=2, says="--new-life")
            self.good("put", "a", "--pool", address, "--embedded", data=b"1")
            before = self.json("info", address)["data"]
            flip(self.path, 8 * 64 + 5)
            if how:
                flip(self.folder / "two", 8 * 64 + 5)
            else:
                self.bad("repair", address, "--new-life", "--yes", code=3, says=f"kvpool repair {address}")
                flip(self.path, 8192 + 8 * 64 + 5)
            image = self.path.read_bytes()
            for command in ("check", "repair"):
                said = self.bad(command, address, code=4, says="--new-life").err
                self.assertIn(f"kvpool repair {address} --new-life", said)
            for last in ((), ("--yes", "--dry-run")):
                said = self.good("repair", address, "--new-life", *last).out
                self.assertIn("would start a new life", said)
                self.assertIn("lost: all blocks", said)
            self.assertFalse(self.json("repair", address, "--new-life")["data"]["new_life"]["started"])
            self.assertEqual(self.path.read_bytes(), image, "a dry run must change nothing")
            done = self.json("repair", address, "--new-life", "--yes")["data"]["new_life"]
            self.assertTrue(done["started"])
            after = self.json("info", address)["data"]
            for name in ("uuid", "life", "nonce", "epoch", "owner_member"):
                before.pop(name, None), after.pop(name, None)
            self.assertEqual(after, before)
            self.assertTrue(self.json("check", address)["data"]["clean"])
            self.serve(address)
            self.bad("get", "a", "--pool", address, code=3)
            self.good("put", "a", "--pool", address, data=b"1")
            self.good("get", "a", "--pool", address)

    def test_new_life_needs_the_superblock(self):
        flip(self.path, 20)
        flip(self.path, 8192 + 20)
        said = self.bad("repair", self.store, "--new-life", "--yes", code=4, says="no copy of the superblock").err
        self.good(*re.search(r"kvpool (format [^;\n]*?--force)", said).group(1).split())

    def at(self, name):
        return int(self.json("check", self.store, "--decode", name, schema="check.line", code=None)["data"]["at"].split(":")[1])

    def test_lines_that_nobody_mends_in_passing(self):
        """Host, reaper and notice lines: no owner writes them without a reason, so repair does."""
        self.good("put", "a", "--pool", self.store, "--embedded", data=b"1")
        names = {"host:1": "host-line", "reaper:3": "reaper-line", "notice:2.1": "notice-line", "notice:0.0": "notice-line"}
        for name in names:
            flip(self.path, self.at(name) + 13)
        self.serve(self.store).terminate()
        self.children[-1].wait(timeout=20)
        found = self.json("check", self.store, code=4)["data"]["findings"]
        self.assertEqual(sorted(one["name"] for one in found), sorted(names.values()))
        self.bad("check", self.store, code=4, says=f"hint: kvpool repair {self.store} mends it, while nobody is attached")
        said = self.good("repair", self.store, "--dry-run").out
        for text in ("line of host 1", "reaper line of member slot 3", "notice line of member slot 2, standby slot 1"):
            self.assertIn(f"would mend: {text} at ", said)
        self.assertEqual(len(self.json("repair", self.store, "--yes")["data"]["mended"]), len(names))
        self.assertIn(": clean:", self.good("check", self.store).out)
        self.good("get", "a", "--pool", self.store)

    def test_torn_namespace_line_is_named_with_its_remedy(self):
        owner = self.serve(self.store)
        self.good("ns", "create", "n", "--pool", self.store)
        owner.terminate()
        owner.wait(timeout=20)
        number = self.json("ns", "list", "--pool", self.store)["data"]["namespaces"][0]["id"]
        flip(self.path, self.at(f"ns:{number}") + 20)
        self.bad("get", "k", "--ns", "n", "--pool", self.store, code=4, says="kvpool check")
        done = self.good("check", self.store)
        self.assertIn("warning: namespace-torn: ", done.out)
        self.assertIn(": no damage: ", done.out)
        self.assertIn(f"hint: kvpool serve {self.store}: the next owner mends it", done.err)
        said = self.json("check", self.store)["data"]
        self.assertFalse(said["clean"] or said["damaged"])
        self.serve(self.store)
        self.bad("get", "k", "--ns", "n", "--pool", self.store, code=3)
        done = self.good("check", self.store)
        self.assertIn(": clean:", done.out)
        self.assertEqual(done.err, "")

    def reseal_superblock(self, change):
        """As a later release would write it: something else, and the seal that goes with it."""
        with open(self.path, "r+b") as file:
            for copy in (0, 8192):
                file.seek(copy)
                line = bytearray(file.read(64))
                change(line)
                seed = crc(crc(0xFFFFFFFF, bytes(line[0:8])), word(line[45]))
                line[60:64] = crc(seed, bytes(line[0:60])).to_bytes(4, "little")
                file.seek(copy)
                file.write(line)

    def test_features_a_writer_must_know(self):
        def change(line):
            line[36] |= 0x80

        self.reseal_superblock(change)
        flip(self.path, 8 * 64 + 5)
        before = self.path.read_bytes()
        self.bad("put", "a", "--pool", self.store, "--embedded", code=1, says="does not know", data=b"1")
        for words in (("--yes",), ("--dry-run",), ("--new-life", "--yes", "--force")):
            self.bad("repair", self.store, *words, code=1, says="does not know")
        self.assertEqual(self.path.read_bytes(), before)

    def test_hint_to_make_a_store_can_be_followed(self):
        self.path.write_bytes(bytes(32 << 20))
        said = self.bad("put", "a", "--pool", self.store, code=3, says="kvpool format", data=b"1").err
        self.good(*re.search(r"hint: make one: kvpool (format [^;\n]*)", said).group(1).split())

    def test_newer_format(self):
        def change(line):
            line[47] += 1

        self.reseal_superblock(change)
        for command in (*READERS, "serve"):
            self.bad(command, self.store, code=1, says="version 2")

    def test_flipped_payload_is_found(self):
        self.good("put", "a", "--pool", self.store, "--embedded", data=os.urandom(100000 // 64 * 64))
        self.good("check", self.store, "--payload")
        self.good("debug", "corrupt", self.store)
        self.good("check", self.store)
        found = self.json("check", self.store, "--payload", code=4)["data"]
        self.assertIn("payload", [finding["name"] for finding in found["findings"]])
        self.bad("repair", self.store, "--yes", code=3, says="kvpool rm")
        said = self.bad("check", self.store, "--payload", code=4, says="kvpool rm --hex").err
        self.bad("get", "a", "--pool", self.store, code=4)
        self.serve(self.store)
        self.good(*re.search(r"hint: kvpool (rm .*) removes", said).group(1).split())
        self.good("check", self.store, "--payload")

    def test_devices_of_other_stores(self):
        both = f"file:{self.folder / 'a'},{self.folder / 'b'}"
        self.good("format", both, "--size", "64MiB")
        self.good("info", both)
        self.bad("info", f"file:{self.folder / 'b'},{self.folder / 'a'}", code=1)
        self.bad("info", f"file:{self.folder / 'a'}", code=1)
        self.bad("info", f"file:{self.folder / 'a'},{self.path}", code=1)
        shutil.copy(self.folder / "b", self.folder / "old")
        self.good("format", both, "--size", "64MiB", "--yes")
        self.bad("info", f"file:{self.folder / 'a'},{self.folder / 'old'}", code=1)

    def test_check_bad_names(self):
        self.bad("check", self.store, "--decode", "nonsense:1", code=2)
        self.bad("check", self.store, "--decode", "0:33", code=2)
        self.bad("check", self.store, "--decode", "claim:99", code=2)
        self.bad("check", self.store, "--decode", "9:0", code=2)

    def test_decode_marks_what_does_not_verify(self):
        flip(self.path, 8 * 64 + 5)
        done = self.good("check", self.store, "--decode", "claim:0", code=4)
        self.assertIn("DOES NOT VERIFY", done.out)

    def test_read_only_file(self):
        os.chmod(self.path, 0o444)
        self.good("info", self.store)
        if os.getuid() != 0:
            self.bad("serve", self.store, "--seconds", "1", code=1)
        os.chmod(self.path, 0o644)

    def test_what_stands_there_is_named_whatever_size_is_wanted(self):
        for size in ("16MiB", "32MiB", "64MiB"):
            self.bad("format", self.store + f"?size={size}", code=1, says="a store is there")
            self.bad("replay", "--scratch", self.store, "--requests", "1", "--capacity", size, code=1,
                     says="holds a store; its blocks would be lost")

    def test_in_use(self):
        self.serve(self.store)
        self.bad("repair", self.store, "--yes", code=1, says="attached")
        self.bad("format", self.address(), "--yes", code=1, says="--force")
        self.good("put", "still", "--pool", self.store, data=b"1")


class Space(Case):
    def test_too_small(self):
        for size in ("0", "2MiB", "1MiB"):
            done = run("format", self.address("small", size))
            self.assertIn(done.returncode, (1, 2), size)
            self.assertFalse((self.folder / "small").exists(), "nothing may be left behind")

    def test_full_file_system(self):
        mount = self.folder / "tiny"
        mount.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(mount)],
                                 capture_output=True, check=False)
        if mounted.returncode != 0:  # an ordinary user: no file system takes more than it has either
            done = run("format", f"file:{self.folder / 'big'}?size=900TiB")
            self.assertEqual(done.returncode, 1, done.err)
            self.assertFalse((self.folder / "big").exists())
            return
        try:
            self.bad("format", f"file:{mount / 'pool'}?size=64MiB", code=1, says="space")
            self.assertEqual(list(mount.iterdir()), [])
        finally:
            subprocess.run(["umount", str(mount)], check=True)

    def test_full_store_evicts_and_stays_sound(self):
        store = self.make("pool", "32MiB")
        self.serve(store)
        data = os.urandom(1 << 20)
        for i in range(60):
            self.good("put", f"k{i}", "--pool", store, data=data)
        self.good("get", "k59", "--pool", store)
        self.bad("get", "k0", "--pool", store, code=3)
        self.assertEqual(self.json("why", "k0", "--pool", store, code=3)["data"]["reason"], "evicted")
        self.bad("put", "huge", "--pool", store, code=1, data=os.urandom(64) * (1 << 20))
        self.assertTrue(self.json("check", store, "--payload")["data"]["clean"])

    def test_two_formats_at_once(self):
        for round_ in range(12):
            both = [subprocess.Popen([str(KVPOOL), "format", self.address(f"p{round_}"), "--yes"],
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(2)]
            codes = [child.wait(timeout=60) for child in both]
            self.assertIn(0, codes)
            self.assertTrue(set(codes) <= {0, 1})
            self.assertTrue(self.json("check", self.address(f"p{round_}", None))["data"]["clean"])

    def test_kill_during_format(self):
        address = self.address("killed", "256MiB")
        for delay in (0.002, 0.01, 0.02, 0.05, 0.1):
            child = subprocess.Popen([str(KVPOOL), "format", address, "--yes"], stdout=subprocess.DEVNULL,
                                     stderr=subprocess.DEVNULL)
            time.sleep(delay)
            child.kill()
            child.wait()
            self.assertIn(run("info", self.address("killed", None)).returncode, (0, 1, 3, 4))
        self.good("format", address, "--yes")
        self.assertTrue(self.json("check", self.address("killed", None))["data"]["clean"])


class Permission(Case):
    def test_another_users_store(self):
        if os.getuid() != 0:
            # Without root there is no other user to be; a folder without rights stands for that.
            store = self.make()
            os.chmod(self.folder, 0)
            try:
                self.bad("info", store, code=1)
            finally:
                os.chmod(self.folder, 0o700)
            return
        with tempfile.TemporaryDirectory(prefix="kvpool-cli-", dir="/tmp") as folder:
            path = Path(folder) / "pool"
            self.good("format", f"file:{path}?size=32MiB")
            os.chmod(folder, 0o755)
            os.chmod(path, 0o600)
            done = subprocess.run([str(KVPOOL), "info", f"file:{path}"], capture_output=True, check=False,
                                  user="nobody", cwd="/")
            if b"error while loading" in done.stderr or done.returncode == 126:
                self.fail("the program itself cannot be run by another user")
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(b"ermission denied", done.stderr)


if __name__ == "__main__":
    main()
