#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Three guests on one pool: an administrator, a user and a rival, and what happens when one of them is stopped, killed,
started again, or writes where it must not. Each guest runs the agent (agent.c), this program tells it what to do.

Use: rack.py [--kernel SERIES]. The last line is `N passed, N failed`; results are added to build/qemu.json by run.py.
"""
from __future__ import annotations

import argparse
import errno
import signal
import socket
import sys
import time
from pathlib import Path

import rig

WB, WC = 0, 1
UP, LEFT, GONE = 2, 3, 4
LABEL = 1
FORCE = 1
AREA_BYTES, LABEL_BYTES = 1 << 20, 2 << 20
DEVICE_BYTES = 384 << 20
DATA_UNITS = 10
SIGBUS = 7


class Machine:
    """A guest and its command line."""

    def __init__(self, name: str, series: str, folder: Path, program: Path, tool: bool) -> None:
        self.name, self.series, self.folder, self.program, self.tool = name, series, folder, program, tool
        self.lives = 0
        self.guest: rig.Guest | None = None
        self.file = None

    def boot(self) -> None:
        self.lives += 1
        line = self.folder / f"{self.name}.line"
        ramdisk = self.folder / "rack.cpio.gz"
        if not ramdisk.exists():
            ramdisk.write_bytes(rig.initramfs(self.series, self.program, "agent", tool=self.tool))
        line.unlink(missing_ok=True)
        self.guest = rig.Guest(self.series, self.folder / "rack.pool", ramdisk, 1, line)
        self.guest.start(self.folder / f"{self.name}-{self.lives}.log")

        # At once: what a guest says while nobody is connected is lost.
        end = time.monotonic() + 60
        while self.file is None:
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.connect(str(line))
            except OSError:
                connection.close()
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)
                continue
            connection.settimeout(120)
            self.file = connection.makefile("rw")

    def wait_ready(self) -> None:
        assert self.file is not None and self.file.readline().strip() == "ready", f"{self.name} is not ready"

    def ask(self, command: str) -> list[int]:
        """Numbers of its answer; the first is errno, or a signal."""
        assert self.file is not None
        self.file.write(command + "\n")
        self.file.flush()
        words = self.file.readline().split()
        numbers = []
        for word in words:
            try:
                numbers.append(int(word, 0))
            except ValueError:
                numbers.append(-1)
        return numbers or [errno.EIO]

    def signal(self, number: int) -> None:
        assert self.guest is not None and self.guest.process is not None
        self.guest.process.send_signal(number)
        if number == signal.SIGKILL:
            self.guest.process.wait()
            self.file = None

    def end(self) -> str:
        assert self.guest is not None and self.file is not None
        self.file.write("end\n")
        self.file.flush()
        return self.guest.wait(180 + time.monotonic() - self.guest.started)


class Rack:
    NAMES = ("admin", "user", "rival")
    TOOL = False  # whether guests have the command line tool

    def __init__(self, series: str, folder: Path, program: Path) -> None:
        self.passed, self.failed = 0, 0
        self.warnings: list[str] = []
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for stale in folder.iterdir():
            stale.unlink()
        self.machines = [Machine(name, series, folder, program, self.TOOL) for name in self.NAMES]

    def expect(self, held: bool, what: str, seen: object = "") -> None:
        if held:
            self.passed += 1
        else:
            self.failed += 1
            print(f"   not ok: {what} {seen}", flush=True)

    def same(self, machine: Machine, command: str, wanted: int, what: str) -> list[int]:
        got = machine.ask(command)
        self.expect(got[0] == wanted, f"{what}: '{command}' on {machine.name} gave {got}, wanted {wanted}")
        return got

    def until(self, machine: Machine, command: str, index: int, wanted: int, what: str, seconds: float = 10) -> None:
        """Asks until the number at `index` of the answer is the wanted one."""
        end, got = time.monotonic() + seconds, [0]
        while time.monotonic() < end:
            got = machine.ask(command)
            if len(got) > index and got[index] == wanted:
                break
            time.sleep(0.1)
        self.expect(len(got) > index and got[index] == wanted, f"{what}: '{command}' on {machine.name}", got)

    def run(self) -> None:
        for machine in self.machines:
            machine.boot()
        for machine in self.machines:
            machine.wait_ready()
        self.scenes()
        for machine in self.machines:
            verdict = rig.judge(machine.end())
            self.passed += verdict.passed
            self.failed += verdict.failed
            for line in verdict.problems:
                print(f"   {machine.name}: {line}")
            for line in verdict.warnings:
                print(f"   {machine.name}: kernel log: {line}")
            self.warnings += verdict.warnings

    def scenes(self) -> None:
        self.meet()
        self.hand_over()
        self.resized()
        self.killed_user()
        self.paused_administrator()
        self.paused_user()
        self.lost_devices()
        self.killed_administrator()
        self.second_writer()
        self.fenced_alive()

    # What one host decides the others follow; what one writes the others read.
    def meet(self) -> None:
        admin, user, rival = self.machines
        self.same(admin, f"claim {LABEL} 0", 0, "the administrator labels")
        self.same(admin, f"create ctl 1 {WB}", 0, "and creates")
        self.same(admin, f"create pay 4 {WC}", 0, "two partitions")
        self.same(user, "claim 0 1", 0, "the user claims")
        self.same(rival, "claim 0 1", errno.EADDRINUSE, "a host id that is in use")
        self.same(rival, "claim 0 2", 0, "the rival claims")
        for machine in (user, rival):
            self.until(machine, "partition pay", 2, 1, "it has the partition")
            self.same(machine, f"create x 1 {WC}", errno.EAGAIN, "who is no administrator creates nothing")
        self.same(user, "member 0 join 600000", 0, "a member of the user")
        self.same(rival, "member 0 join 600000 1", 0, "a member of the rival, with a zero page")
        self.same(user, "member 0 write 4096 0x1234", 0, "it writes")
        self.expect(rival.ask("member 0 read 4096") == [0, 0x1234], "and the other host reads it")

    # Units pass on when each host is out, and not before.
    def hand_over(self) -> None:
        admin, user, rival = self.machines
        self.same(admin, "destroy pay", 0, "the payload partition is destroyed")
        self.until(user, "member 0 revoked", 1, 1, "its members are revoked")
        self.expect(user.ask("member 0 write 4096 1")[0] == SIGBUS, "and their mappings gone")
        self.until(rival, "member 0 revoked", 1, 1, "on all hosts")
        self.expect(rival.ask("member 0 write 4096 1") == [0], "who asked for a zero page goes on with it")
        # Where leaves are small the one page stands at every offset, with what was stored at the first word.
        self.expect(rival.ask("member 0 read 8704") == [0, 0], "and sees nothing of the pool")
        self.until(admin, "held", 1, 0b110, "held by both hosts that used it")
        self.same(admin, "create all 9 1", errno.ENOSPC, "nobody gets its units")
        self.same(rival, "member 0 quit", 0, "the rival's member ends")
        self.until(admin, "held", 1, 0b010, "held by the other host alone")
        self.same(user, "member 0 quit", 0, "and the user's")
        self.until(admin, "partition pay", 1, 0, "now it is gone")
        self.until(user, "partition pay", 1, 0, "on all hosts")
        self.same(admin, f"create pay 4 {WC}", 0, "and another one is made of its units")
        self.until(user, "partition pay", 2, 1, "everywhere")
        self.same(user, "member 0 join 600000", 0, "which the user joins")
        self.expect(user.ask("member 0 sum") == [0, 0], "it holds nothing of what was there")

    # A partition grows under members of another host, and gives back what they did not keep.
    def resized(self) -> None:
        admin, user, rival = self.machines
        self.same(admin, "grow pay 2", 0, "the partition grows")
        self.until(user, "partition pay", 6, 4, "all hosts see its new slices")
        self.same(rival, "member 0 join 600000", 0, "a member of the rival, which maps the old ones")
        self.until(user, "member 0 slice 2", 0, 0, "who had joined before maps a new one")
        self.expect(user.ask("member 0 sum") == [0, 0], "it is zero")
        self.same(user, "member 0 write 64 0x4321", 0, "and written")
        self.same(admin, "shrink pay 2", 0, "both new slices are to go")
        self.until(user, "member 0 lost", 1, 2, "its member is told")
        self.expect(user.ask("member 0 write 64 1")[0] == SIGBUS, "and its mapping gone")
        self.until(admin, "held", 1, 0b010, "held by the one host that mapped it")
        self.until(admin, "partition pay", 6, 2, "the partition stays, with what it had")
        self.same(rival, "member 0 write 64 0x55", 0, "where the others go on")
        self.same(user, "member 0 quit", 0, "the member ends")
        self.until(admin, "held", 1, 0, "nobody holds it any more")
        self.until(admin, "info", 5, DATA_UNITS - 5, "and its units are free")
        self.same(rival, "member 0 quit", 0, "the rival's member ends, too")
        self.same(user, "member 0 join 600000", 0, "a member of the user's, as before")

    # A host that is gone proves nothing by being silent.
    def killed_user(self) -> None:
        admin, user, _ = self.machines
        incarnation = admin.ask("host 1")[2]
        user.signal(signal.SIGKILL)
        self.same(admin, "destroy pay", 0, "the user's host is killed, its partition destroyed")
        self.until(admin, "held", 1, 0b010, "it is held")
        time.sleep(3)
        self.until(admin, "held", 1, 0b010, "for as long as it takes")
        self.same(admin, f"fence 1 {incarnation ^ 2}", errno.ESTALE, "a fence around another incarnation")
        self.same(admin, f"fence 1 {incarnation}", 0, "until an operator says that the host is off")
        self.until(admin, "partition pay", 1, 0, "then it is gone")
        self.same(admin, f"create pay 4 {WC}", 0, "and its units are another's")
        user.boot()
        user.wait_ready()
        self.same(user, "claim 0 1", 0, "the host comes back")
        self.until(admin, "host 1", 1, UP, "which the others see")
        time.sleep(0.5)
        self.expect(admin.ask("host 1")[2] != incarnation, "as another incarnation")
        self.same(user, "member 0 join 600000", 0, "and has members again")
        self.same(user, "member 0 quit", 0, "which leave")

        # Killed again, and back before anybody said a word: its new incarnation is the proof.
        self.same(user, "member 0 join 600000", 0, "a member")
        user.signal(signal.SIGKILL)
        self.same(admin, "destroy pay", 0, "destroyed while it is down")
        self.until(admin, "held", 1, 0b010, "held")
        user.boot()
        user.wait_ready()
        self.same(user, "claim 0 1", 0, "it comes back")
        self.until(admin, "partition pay", 1, 0, "and that proves it out")
        self.same(admin, f"create pay 4 {WC}", 0, "the units are another's")

    # An administrator that was asleep does not know that it is none any more, and cannot do harm.
    def paused_administrator(self) -> None:
        admin, _, rival = self.machines
        admin.signal(signal.SIGSTOP)
        time.sleep(1)
        self.same(rival, "admin", 0, "the rival takes over from a paused administrator")
        self.same(rival, f"create theirs 1 {WC}", 0, "and creates")
        admin.signal(signal.SIGCONT)
        self.same(admin, f"create ours 1 {WC}", errno.EAGAIN, "the former one is refused")
        self.until(admin, "info", 2, 0, "and knows that it is none")
        self.until(admin, "partition theirs", 2, 1, "it follows the new one")
        self.expect(admin.ask("info")[3] == 2, "whom it names")
        self.same(rival, "destroy theirs", 0, "the new one destroys")
        self.until(rival, "partition theirs", 1, 0, "and is obeyed")

    # A user that slept through the end of its partition.
    def paused_user(self) -> None:
        admin, user, rival = self.machines
        self.same(user, "member 0 join 600000", 0, "a member")
        self.same(user, "member 0 write 8192 0x77", 0, "that writes")
        user.signal(signal.SIGSTOP)
        self.same(rival, "destroy pay", 0, "its partition is destroyed while its host sleeps")
        self.until(rival, "held", 1, 0b010, "held")
        time.sleep(2)
        self.same(rival, f"create next 9 {WC}", errno.ENOSPC, "nobody gets the units")
        user.signal(signal.SIGCONT)
        self.until(user, "member 0 revoked", 1, 1, "it wakes and is revoked")
        self.expect(user.ask("member 0 write 8192 1")[0] == SIGBUS, "nothing it stores arrives")
        self.same(user, "member 0 quit", 0, "it ends")
        self.until(rival, "partition pay", 1, 0, "and the units are free")
        self.same(rival, f"create pay 4 {WC}", 0, "for the next")
        self.until(admin, "partition pay", 2, 1, "which all see")
        self.same(admin, "member 0 join 600000", 0, "a member of another host")
        self.expect(admin.ask("member 0 sum") == [0, 0], "finds nothing in it")
        self.same(admin, "member 0 quit", 0, "and leaves")

    # Hosts lose a device that the others have: first a user of it, then the administrator.
    def lost_devices(self) -> None:
        admin, user, rival = self.machines
        for machine in (user, admin):
            self.same(machine, "member 0 join 600000", 0, "a member")
            self.same(machine, "member 0 slice 1", 0, "that maps a slice on the second device")
        self.same(user, "member 0 write 64 0x11", 0, "one writes")
        self.expect(admin.ask("member 0 read 64") == [0, 0x11], "the other reads")
        self.same(user, "gone 1", 0, "the user's host loses the device")
        self.expect(user.ask("member 0 lost") == [0, 1], "its member is told")
        self.expect(user.ask("member 0 write 64 1")[0] == SIGBUS, "and has nothing there any more")
        self.same(admin, "member 0 write 64 0x22", 0, "the other host has it as before")
        self.same(user, "member 0 slice 0", 0, "the first device is still there")
        self.same(user, "member 0 write 64 0x33", 0, "for the user, too")
        self.same(user, "admin", errno.ENXIO, "who sees one copy of all lines does not administer")
        self.same(rival, "destroy pay", 0, "the partition is destroyed")
        self.until(user, "member 0 revoked", 1, 1, "the host follows the table by the copy that is left")
        self.same(user, "member 0 quit", 0, "its member ends")
        self.same(admin, "member 0 quit", 0, "and the other host's")
        self.until(rival, "held", 1, 0b010, "held by who could still write a line back")
        time.sleep(2)
        self.until(rival, "held", 1, 0b010, "for as long as it takes")
        self.until(user, "release", 0, 0, "it gives the pool up")
        self.until(rival, "host 1", 1, GONE, "without saying that it left")
        self.until(rival, "held", 1, 0b010, "so it is held on")
        self.same(user, "claim 0 1", 0, "until the host claims anew")
        self.until(rival, "partition pay", 1, 0, "which is the proof")

        self.same(rival, "gone 0", 0, "the administrator loses the first device")
        self.expect(rival.ask("info")[2] == 0, "and is none any more")
        self.same(rival, f"create x 1 {WC}", errno.EAGAIN, "it creates nothing")
        self.same(admin, "admin", 0, "another host takes over")
        self.same(admin, f"create pay 4 {WC}", 0, "and creates")
        self.until(rival, "partition pay", 2, 1, "which the former one sees by the copy that is left")
        self.same(rival, "release", 0, "it gives the pool up")
        self.until(admin, "host 2", 1, LEFT, "and has left, since it held nothing")
        self.same(rival, "claim 0 2", 0, "with all devices it comes back")
        self.same(rival, "admin", 0, "and administers")
        self.until(user, "partition pay", 2, 1, "all have the partition")

    # Killed in the middle of its decisions: the others have one table or the other, and go on.
    def killed_administrator(self) -> None:
        admin, user, rival = self.machines
        self.same(user, "member 0 join 600000", 0, "a member that stays")
        self.same(user, "member 0 write 64 0xabc", 0, "with something in the pool")
        for _ in range(3):
            self.same(rival, "churn", 0, "the administrator creates and destroys without a pause")
            time.sleep(1.5)
            rival.signal(signal.SIGKILL)
            self.same(admin, "admin", 0, "it is killed, another takes over")
            self.expect(user.ask("member 0 read 64") == [0, 0xabc], "members go on meanwhile")
            for i in range(3):
                if admin.ask(f"partition churn{i}")[1]:
                    self.same(admin, f"destroy churn{i}", 0, "what it left is known")
            for i in range(3):
                self.until(admin, f"partition churn{i}", 1, 0, "and goes")
            rival.boot()
            rival.wait_ready()
            self.same(rival, "claim 0 2", 0, "the killed one comes back")
            self.expect(rival.ask("info")[2] == 0, "as no administrator")
            self.same(rival, "admin", 0, "takes over in turn")
        self.expect(rival.ask("info")[5] == DATA_UNITS - 5, "no unit is lost", rival.ask("info"))
        self.same(user, "member 0 quit", 0, "the member leaves")

    # Somebody writes a host's own line: the id is used twice, or the pool is somebody's memory.
    def second_writer(self) -> None:
        admin, user, _ = self.machines
        self.same(user, "member 0 join 600000", 0, "a member")
        self.same(admin, "release", 0, "another host leaves")
        self.same(user, "host 0", 0, "hosts are listed")
        self.until(user, "host 0", 1, LEFT, "and says so in its line")
        self.same(admin, f"poke {LABEL_BYTES + AREA_BYTES + 20}", 0, "and changes the user's host line")
        self.until(user, "info", 1, 2, "which fences itself")
        self.expect(user.ask("member 0 write 64 1")[0] == SIGBUS, "its members are cut off")
        self.same(user, "member 1 join 600000", errno.ENODEV, "and nobody joins there any more")
        self.same(user, "member 1 quit", 0, "")
        self.same(user, "member 0 quit", 0, "they end")
        self.until(user, "release", 0, 0, "then it can be given up")
        self.same(user, "claim 0 1", 0, "and claimed anew")

    # Fenced by mistake: it lives, and ends itself when it sees what is thought of it.
    def fenced_alive(self) -> None:
        _, user, rival = self.machines
        self.until(user, "partition pay", 2, 1, "a host is there")
        self.same(user, "member 0 join 600000", 0, "with a member")
        self.same(user, "member 0 write 64 1", 0, "that writes")
        self.until(rival, "host 1", 1, UP, "and is seen")
        time.sleep(0.5)
        self.same(rival, f"fence 1 {rival.ask('host 1')[2]}", 0, "an operator says that it is off")
        self.until(user, "info", 1, 2, "it fences itself")
        self.until(user, "member 0 revoked", 1, 1, "its members are cut off")
        self.expect(user.ask("member 0 write 64 1")[0] == SIGBUS, "and store nothing any more")
        self.same(user, "member 0 quit", 0, "they end")
        self.until(user, "release", 0, 0, "it is given up")
        self.same(user, "claim 0 1", 0, "and claimed anew, as another incarnation")


    def run_all(self) -> None:
        """run(), whatever happens: a rack that stops in between has failed, and leaves no guest behind."""
        try:
            self.run()
        except (AssertionError, OSError) as error:
            self.failed += 1
            print(f"   not ok: the rack stopped: {error}")
        finally:
            for machine in self.machines:
                if machine.guest and machine.guest.process and machine.guest.process.poll() is None:
                    machine.guest.process.kill()
                    machine.guest.process.wait()
            (self.folder / "rack.pool").unlink(missing_ok=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernel", default="6.12")
    parser.add_argument("--program", type=Path, default=rig.BUILD / "qemu/guest")
    options = parser.parse_args()
    rack = Rack(options.kernel, rig.BUILD / "qemu/rack", options.program)
    start = time.monotonic()
    rack.run_all()
    failed = rack.failed + len(rack.warnings)
    print(f"== {options.kernel} rack: {time.monotonic() - start:.0f} s")
    print(f"{rack.passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
