# SPDX-License-Identifier: Apache-2.0
"""Guests: an initramfs of busybox, the driver and a test program; QEMU; the serial line read back.

The pool is the second NUMA node of the guest, one file that guests may share, reserved from the guest's kernel. Node 0
fills all memory below 4 GiB, so that firmware and initramfs never lie in the shared file.
"""
from __future__ import annotations

import gzip
import lzma
import os
import re
import stat
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = Path(os.environ.get("KVPOOL_BUILD_DIR", ROOT / "build"))
CACHE = Path(os.environ.get("KVPOOL_CACHE") or
             Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kvpool")
POOL_START = 0x100000000
POOL_MIB = 768
LOW_MIB = 2048
MODULES = ("crc32c_generic", "libcrc32c")
MARKER = "# kernel log from here"
# What a kernel says when something is wrong; the words of the tests' own lines are not among them.
TROUBLE = re.compile(
    r"WARNING:|BUG:|Oops|general protection|Call Trace|RIP:|INFO: (?:task|rcu|possible)|lockdep|KASAN|UBSAN|KFENCE"
    r"|refcount_t|scheduling while atomic|soft lockup|Bad page|bad pmd|Unable to handle|memtype_")

INIT = """#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /tmp
/bin/busybox --install -s /bin
mount -t proc p /proc; mount -t sysfs s /sys; mount -t devtmpfs d /dev
mount -t debugfs g /sys/kernel/debug
echo "{marker}"; echo "kvpool-tests-begin" >/dev/kmsg
for m in {modules}; do insmod /$m.ko || echo "not ok insmod $m"; done
dmesg -n 4
/guest {arguments}
echo "# guest exit $?"
{after}
dmesg -n 1
echo "# dmesg"; dmesg | sed '1,/kvpool-tests-begin/d'
echo "# end"
poweroff -f
"""


def available() -> str:
    """Why guests cannot run here; empty if they can."""
    if not any(os.access(Path(folder) / "qemu-system-x86_64", os.X_OK)
               for folder in os.environ.get("PATH", "").split(":")):
        return "qemu-system-x86_64 is not installed"
    return ""


def kernels() -> list[str]:
    """Series whose images are there; not the debug kernel, which is asked for by name."""
    names = [path.parent.name for path in CACHE.glob("*/image")]
    return sorted((name for name in names if re.fullmatch(r"[\d.]+", name)), key=lambda name: [int(n) for n in name.split(".")])


def _cpio(files: dict[str, tuple[int, bytes]]) -> bytes:
    """An archive in the form that the kernel unpacks ("newc")."""
    out = bytearray()
    for number, (name, (mode, data)) in enumerate([*files.items(), ("TRAILER!!!", (0, b""))], 1):
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 5 if name == "dev/console" else 0,
                  1 if name == "dev/console" else 0, len(name) + 1, 0)
        out += b"070701" + b"".join(b"%08X" % value for value in fields) + name.encode() + b"\0"
        out += b"\0" * (-len(out) % 4) + data
        out += b"\0" * (-len(out) % 4)
    return bytes(out)


def _module(series: str, name: str) -> bytes:
    found = sorted((CACHE / series / "image/lib/modules").rglob(f"{name}.ko*"))
    if not found:
        raise FileNotFoundError(f"{name}.ko of {series}")
    data = found[0].read_bytes()
    return lzma.decompress(data) if found[0].suffix == ".xz" else data


def tool_files() -> dict[str, tuple[int, bytes]]:
    """The command line tool as it was built, without debug information, and the libraries that it is linked with."""
    tool = BUILD / "bin/kvpool"
    if not tool.exists():
        raise FileNotFoundError(f"{tool}: `make build` first")
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder) / "kvpool"
        subprocess.run(["strip", "-o", small, tool], check=True)
        files = {"bin/kvpool": (stat.S_IFREG | 0o755, small.read_bytes())}
    linked = subprocess.run(["ldd", tool], check=True, capture_output=True, text=True).stdout
    for name in re.findall(r"(/\S+) \(0x", linked):
        for folder in reversed(Path(name).parents[:-1]):
            files.setdefault(str(folder).lstrip("/"), (stat.S_IFDIR | 0o755, b""))
        files[name.lstrip("/")] = (stat.S_IFREG | 0o755, Path(name).read_bytes())
    return files


def initramfs(series: str, program: Path, arguments: str = "", module_arguments: str = "", after: str = "",
              tool: bool = False) -> bytes:
    busybox = (CACHE / "busybox/bin/busybox").read_bytes()
    driver = (BUILD / "kmod" / series / "kmod/kvpool.ko").read_bytes()
    files = {"bin": (stat.S_IFDIR | 0o755, b""), "dev": (stat.S_IFDIR | 0o755, b""),
             "dev/console": (stat.S_IFCHR | 0o600, b""),
             "bin/busybox": (stat.S_IFREG | 0o755, busybox), "guest": (stat.S_IFREG | 0o755, program.read_bytes()),
             "kvpool.ko": (stat.S_IFREG | 0o644, driver),
             "arguments": (stat.S_IFREG | 0o644, module_arguments.encode())}
    if tool:
        files.update(tool_files())
    for name in MODULES:
        files[f"{name}.ko"] = (stat.S_IFREG | 0o644, _module(series, name))
    script = INIT.format(marker=MARKER, modules=" ".join(MODULES), arguments=arguments, after=after)
    files["init"] = (stat.S_IFREG | 0o755, script.encode())
    return gzip.compress(_cpio(files), 1)


def accelerator() -> list[str]:
    """KVM where it is wanted and opens; else software, which is what the tests are timed for."""
    if os.environ.get("KVPOOL_QEMU_KVM") == "1" and os.access("/dev/kvm", os.R_OK | os.W_OK):
        return ["-accel", "kvm", "-cpu", "host,arch-capabilities=off"]
    return ["-accel", "tcg,thread=multi", "-cpu", "max"]


@dataclass
class Guest:
    """One guest, from start to power-off."""

    series: str
    pool: Path
    ramdisk: Path
    cpus: int = 1
    line: Path | None = None  # socket of the second serial line, for a guest that takes commands
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    log: Path = field(default_factory=Path)

    def start(self, log: Path) -> None:
        image = next((CACHE / self.series / "image/boot").glob("vmlinuz-*"))
        self.log = log
        self.started = time.monotonic()
        second = [] if self.line is None else ["-chardev", f"socket,id=line,path={self.line},server=on,wait=off",
                                               "-serial", "chardev:line"]
        self.process = subprocess.Popen(
            ["qemu-system-x86_64", "-M", "q35", *accelerator(), "-smp", str(self.cpus), "-m",
             f"{LOW_MIB + POOL_MIB}M", "-object", f"memory-backend-ram,id=low,size={LOW_MIB}M", "-object",
             f"memory-backend-file,id=pool,size={POOL_MIB}M,mem-path={self.pool},share=on",
             "-numa", f"node,nodeid=0,memdev=low,cpus=0-{self.cpus - 1}", "-numa", "node,nodeid=1,memdev=pool",
             "-kernel", str(image), "-initrd", str(self.ramdisk), "-display", "none", "-serial", f"file:{log}", *second,
             # A port with a driver, which the tests of removal unbind.
             "-device", "pcie-root-port,id=root1,bus=pcie.0,addr=0x10,chassis=1",
             "-monitor", "none", "-nic", "none", "-no-reboot", "-append",
             # no_timer_check: on a busy machine no tick may come while 6.1 looks for one, and it panics.
             f"console=ttyS0 loglevel=4 panic=-1 oops=panic nokaslr mitigations=off no_timer_check memmap={POOL_MIB}M${POOL_START:#x}"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def wait(self, seconds: float) -> str:
        """Its serial output; a guest that does not end by itself is ended, and its log says so."""
        assert self.process is not None
        error = b""
        try:
            _, error = self.process.communicate(timeout=max(1.0, seconds - (time.monotonic() - self.started)))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            error = b"\nnot ok guest did not end in time\n"
        return (self.log.read_text(errors="replace") if self.log.exists() else "") + error.decode(errors="replace")


@dataclass
class Verdict:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    warnings: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def judge(output: str) -> Verdict:
    """Counts TAP lines; a run without an end, a plan that was not kept or a troubled kernel log fails."""
    verdict = Verdict()
    text = output.replace("\r", "")
    body = text[text.find(MARKER):] if MARKER in text else ""
    if not body:
        verdict.problems.append("the guest never came to its tests")
    for line in body.split("\n"):
        if re.match(r"not ok\b", line):
            verdict.failed += 1
            verdict.problems.append(line)
        elif re.match(r"ok\b.*# SKIP", line):
            verdict.skipped += 1
            verdict.problems.append(line)
        elif re.match(r"ok\b", line):
            verdict.passed += 1
    plan = re.search(r"^1\.\.(\d+)$", body, re.MULTILINE)
    if not plan or int(plan.group(1)) != verdict.passed + verdict.failed + verdict.skipped:
        verdict.failed += 1
        verdict.problems.append("the plan was not kept" if plan else "no plan: the program did not end")
    if "# end" not in body:
        verdict.failed += 1
        verdict.problems.append("no end: the guest stopped in between")
    verdict.warnings = [line for line in body.split("\n") if TROUBLE.search(line)]
    return verdict
