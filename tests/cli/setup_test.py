#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows: kvpool setup says what is wrong with its words before it looks for the driver, and what to do where there is none.
How: the command on a machine without the driver; what it does with one is shown in tests/qemu."""
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from cli import Case, main, run  # noqa: E402

LOADED = Path("/dev/kvpool").exists()
RANGE = ("--range", "0x100000000+384MiB")
ACTIONS = [("claim", *RANGE, "--host", "0"), ("claim", *RANGE, "--host", "0", "--label", "--hosts", "2"), ("release",),
           ("admin",), ("partition", "create", "a", "--size", "1GiB"), ("partition", "destroy", "a"), ("partition", "list"),
           ("partition", "grow", "a", "--size", "1GiB"), ("partition", "shrink", "a", "--size", "1GiB", "--yes"),
           ("partition", "shrink", "a", "--slice-id", "7", "--slice-id", "8"), ("device", "watch", "0", "--pci", "0000:3a:00.0"),
           ("host", "list"), ("host", "fence", "1", "--confirmed"), ("device", "list")]


class Setup(Case):
    @unittest.skipIf(LOADED, "this machine has the driver")
    def test_without_the_driver(self):
        for words in ACTIONS:
            for more in ((), ("--json",), ("--dry-run",), ("--dry-run", "--json")):
                self.bad("setup", *words, *more, code=1, says="modprobe kvpool")
        self.bad("info", "dev:a", code=1, says="modprobe kvpool")
        self.bad("format", "dev:a", code=1, says="modprobe kvpool")
        self.bad("format", "dev:a", "--yes", "--dry-run", code=1, says="modprobe kvpool")
        self.bad("serve", "dev:a+b", code=1, says="/dev/kvpool-a")
        self.bad("put", "k", "--pool", "dev:a", code=1, says="modprobe kvpool", data=b"x")
        self.bad("host", "fence", "1", "dev:a", "--confirmed", code=1, says="modprobe kvpool")
        self.assertIn("not loaded", self.good("doctor").out)

    def test_words_that_make_no_sense(self):
        for words, says in (((), "WHAT is missing"),
                            (("clam",), "did you mean claim?"),
                            (("partition",), "create, destroy, grow, shrink, list"),
                            (("partition", "fence", "a"), "create, destroy, grow, shrink, list"),
                            (("partition", "grow", "a"), "how much more"),
                            (("partition", "grow", "a", "--size", "1GiB", "--yes"), "no use for it"),
                            (("partition", "shrink", "a"), "how much less"),
                            (("partition", "shrink", "a", "--size", "1GiB", "--slice-id", "7"), "how much less"),
                            (("partition", "shrink", "a", "--slice-id", "x"), "no number of a slice"),
                            (("partition", "shrink", "a", "--slice-id", "0"), "no number of a slice"),
                            (("device", "watch"), "number is missing"),
                            (("device", "watch", "0"), "PCI function"),
                            (("device", "watch", "0", "--pci", "0000:3a:20.0"), "no PCI function"),
                            (("device", "watch", "x", "--pci", "0000:3a:00.0"), "no number"),
                            (("host", "create"), "list, fence"),
                            (("claim", "list"), "no second word"),
                            (("claim", "--host", "0"), "no range"),
                            (("claim", *RANGE), "this host's number"),
                            (("claim", "--range", "4GiB", "--host", "0"), "START+BYTES"),
                            (("claim", "--range", "0x100000000-0x1ffffffff", "--host", "0"), "START+BYTES"),
                            (("claim", *RANGE, "--host", "64"), "0 to 63"),
                            (("claim", *RANGE, "--host", "0", "--label"), "number of hosts"),
                            (("claim", *RANGE, "--host", "0", "--hosts", "2"), "only with --label"),
                            (("claim", *RANGE, "--host", "2", "--label", "--hosts", "2"), "hosts are 0 to 1"),
                            (("claim", *RANGE, "--host", "0", "--force"), "only with --label"),
                            (("claim", *RANGE, "--host", "0", "--uuid", "0" * 32), "UUID"),
                            (("claim", *RANGE, "--host", "0", "--uuid", "x" * 32), "UUID"),
                            (("partition", "create"), "name is missing"),
                            (("partition", "create", "A", "--size", "1GiB"), "small letters"),
                            (("partition", "create", "a"), "size is missing"),
                            (("partition", "create", "a", "--size", "1GB"), "not a size"),
                            (("partition", "create", "a", "--size", "1GiB", "--type", "uc"), "did you mean"),
                            (("partition", "list", "a"), "no use for it"),
                            (("partition", "list", "--size", "1GiB"), "no use for it"),
                            (("release", "--force"), "no use for it"),
                            (("host", "fence", "--confirmed"), "number is missing"),
                            (("host", "fence", "a", "--confirmed"), "no number"),
                            (("host", "fence", "64", "--confirmed"), "no number"),
                            (("device", "list", "--yes"), "no use for it")):
            with self.subTest(words):
                self.bad("setup", *words, code=2, says=says)

    def test_a_fence_needs_a_word(self):
        self.bad("setup", "host", "fence", "1", code=1, says="--confirmed")

    def test_addresses(self):
        for address, says in (("dev:", "small letters"), ("dev:a?host=1", "leave it out"), ("dev:a+a", "named twice"),
                              ("dev:/dev/kvpool-a", "dev:prod")):
            self.bad("info", address, code=2, says=says)
        self.assertIn("dev:NAME", run("--help").out)


if __name__ == "__main__":
    main()
