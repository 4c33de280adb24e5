#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two guests with one store on partitions of one pool: blocks stored by one host are read by the other, an owner whose
host loses power or stands still is followed by the other host, and what was published stays.

Use: rack_store.py [--kernel SERIES]. The last line is `N passed, N failed`.
"""
from __future__ import annotations

import argparse
import signal
import sys
import time
from pathlib import Path

import rack
import rig

RANGES = "--range 0x100000000+384MiB --range 0x118000000+384MiB"
STORE = "dev:ctl+more"


class StoreRack(rack.Rack):
    NAMES = ("first", "second")
    TOOL = True

    def sh(self, machine: rack.Machine, line: str, what: str, wanted: int = 0) -> None:
        self.same(machine, f"sh {line}", wanted, what)

    def put(self, machine: rack.Machine, number: int) -> None:
        self.sh(machine, f"seq {number} 40000 | head -c 150000 | kvpool put k{number} - --pool {STORE} --timeout 20",
                f"block {number} is stored")

    def get(self, machine: rack.Machine, number: int) -> None:
        self.sh(machine, f"kvpool get k{number} /tmp/o --pool {STORE} && head -c 150000 /tmp/o >/tmp/p && "
                         f"seq {number} 40000 | head -c 150000 | cmp - /tmp/p", f"block {number} is read")

    def serve(self, machine: rack.Machine) -> None:
        self.sh(machine, f"kvpool serve {STORE} --ready-fd 9 9>/tmp/served &", "an owner or standby starts")
        self.until(machine, "sh grep -q ready /tmp/served", 0, 0, "it is served", 30)

    def scenes(self) -> None:
        first, second = self.machines
        self.sh(first, f"kvpool setup claim {RANGES} --host 0 --hosts 2 --label", "the first host labels")
        self.sh(first, "kvpool setup partition create ctl --size 128MiB", "and makes two partitions")
        self.sh(first, "kvpool setup partition create more --size 128MiB", "")
        self.sh(second, f"kvpool setup claim {RANGES} --host 0", "a number that is in use", 1)
        self.sh(second, f"kvpool setup claim {RANGES} --host 1", "the second host claims")
        self.until(second, "partition more", 2, 1, "it has the partitions")
        self.sh(first, f"kvpool format {STORE} --hosts 2 --block-bytes 64KiB", "the first host formats")
        self.serve(first)
        self.both_ways()
        self.power_lost()
        self.stood_still()
        for machine in self.machines:
            self.sh(machine, f"kvpool check --payload {STORE}", "every line and block verifies")
            self.sh(machine, "killall kvpool; true", "the store is left")

    def both_ways(self) -> None:
        first, second = self.machines
        self.put(first, 1)
        self.get(second, 1)
        self.put(second, 2)
        self.get(first, 2)
        self.sh(second, f"kvpool format {STORE} --yes", "a store that another host has open is formatted on force only", 1)
        self.sh(second, f"kvpool host fence 0 {STORE} --confirmed", "a host that is on is not fenced", 1)
        self.sh(second, "kvpool setup host fence 0 --confirmed", "nor by its driver", 1)

    def power_lost(self) -> None:
        first, second = self.machines
        self.serve(second)  # it stands by
        first.signal(signal.SIGKILL)
        time.sleep(2)
        self.put(second, 3)
        for number in (1, 2, 3):
            self.get(second, number)
        self.sh(second, "kvpool setup admin", "the administration passes on")
        self.sh(second, f"kvpool host fence 0 {STORE} --confirmed", "the host that is off is fenced, in both layers")
        self.sh(second, "kvpool setup host list | grep -q up", "hosts are listed")
        first.boot()
        first.wait_ready()
        self.sh(first, f"kvpool setup claim {RANGES} --host 0", "it comes back")
        self.until(first, "partition more", 2, 1, "with its partitions")
        for number in (1, 2, 3):
            self.get(first, number)
        self.put(first, 4)
        self.get(second, 4)

    # A whole guest stopped for longer than every lease, its owner with it.
    def stood_still(self) -> None:
        first, second = self.machines
        self.serve(first)  # it stands by
        second.signal(signal.SIGSTOP)
        time.sleep(13)
        self.put(first, 5)
        second.signal(signal.SIGCONT)
        time.sleep(3)
        self.sh(second, "pidof kvpool", "the owner that slept goes on")
        for number in (1, 2, 3, 4, 5):
            self.get(second, number)
        self.sh(first, "killall -9 kvpool", "the one that followed it is killed")
        time.sleep(2)
        self.put(second, 6)  # which shows that the first one has its memory back
        self.get(first, 6)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernel", default="6.12")
    parser.add_argument("--program", type=Path, default=rig.BUILD / "qemu/guest")
    options = parser.parse_args()
    machines = StoreRack(options.kernel, rig.BUILD / "qemu/rack-store", options.program)
    start = time.monotonic()
    machines.run_all()
    failed = machines.failed + len(machines.warnings)
    print(f"== {options.kernel} rack-store: {time.monotonic() - start:.0f} s")
    print(f"{machines.passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
