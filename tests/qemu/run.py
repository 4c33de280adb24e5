#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Boots the guests, one after the other, and sums them up in build/qemu.json.

Use: run.py [--kernel SERIES]... [--only NAME]... The last line is `N passed, N failed, N skipped`. A guest is one entry
of GUESTS for each kernel; what it runs is the program that this folder's C files make.
"""
from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import jsonschema

import rack
import rack_store
import rig

HERE = Path(__file__).resolve().parent
# name, processors, arguments of the program, seconds until it is given up (software emulation on a busy machine)
GUESTS = [("single", 1, "single", 600), ("store", 1, "store", 900)]
RACK_KERNEL = "6.12"  # three guests on one pool; one kernel in every run, the others by --rack


def compile_program(folder: Path) -> Path:
    program = folder / "guest"
    sources = sorted(str(path) for path in HERE.glob("*.c"))
    subprocess.run(["gcc", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-static", "-pthread", f"-I{rig.ROOT}/uapi",
                    *sources, "-o", str(program)], check=True)
    return program


def run_guest(folder: Path, program: Path, series: str, guest: tuple[str, int, str, int]) -> tuple[rig.Verdict, float]:
    name, cpus, arguments, seconds = guest
    pool, ramdisk = folder / f"{series}-{name}.pool", folder / f"{series}-{name}.cpio.gz"
    pool.unlink(missing_ok=True)
    ramdisk.write_bytes(rig.initramfs(series, program, arguments, tool=arguments == "store"))
    start = time.monotonic()
    machine = rig.Guest(series, pool, ramdisk, cpus)
    machine.start(folder / f"{series}-{name}.log")
    output = machine.wait(seconds)
    verdict = rig.judge(output)
    judge_json(output, verdict)
    pool.unlink(missing_ok=True)
    return verdict, time.monotonic() - start


def judge_json(output: str, verdict: rig.Verdict) -> None:
    """What the tool printed as JSON in the guest, against its schema; a guest cannot do that."""
    for line in re.findall(r"^# json (.*)$", output.replace("\r", ""), re.MULTILINE):
        try:
            data = json.loads(line)
            name = data["schema"].removeprefix("kvpool.").split("/")[0]
            schema = json.loads((rig.ROOT / "tools/schema" / f"{name}.json").read_text())
            jsonschema.Draft202012Validator(schema).validate(data)
            verdict.passed += 1
        except (ValueError, KeyError, OSError, jsonschema.ValidationError) as error:
            verdict.failed += 1
            verdict.problems.append(f"not ok: JSON of no schema: {str(error).splitlines()[0]}: {line[:200]}")


def run_rack(folder: Path, program: Path, series: str, name: str, kind: type[rack.Rack], result: dict) -> None:
    start = time.monotonic()
    machines = kind(series, folder / name, program)
    machines.run_all()
    print(f"== {series} {name}: {machines.passed} passed, {machines.failed} failed, "
          f"{len(machines.warnings)} log warnings ({time.monotonic() - start:.0f} s)", flush=True)
    result["guests"].append({"kernel": series, "name": name, "seconds": round(time.monotonic() - start, 1),
                             "passed": machines.passed, "failed": machines.failed, "skipped": 0,
                             "log_warnings": len(machines.warnings)})
    result["passed"] += machines.passed
    result["failed"] += machines.failed
    result["log_warnings"] += len(machines.warnings)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernel", action="append", help="only this series (6.1, 6.12)")
    parser.add_argument("--only", action="append", help="only this guest")
    parser.add_argument("--rack", help="the rack, with this series; alone together with --only none")
    options = parser.parse_args()
    missing = rig.available()
    if missing:
        print(f"test-qemu: {missing}", file=sys.stderr)
        return 2
    folder = rig.BUILD / "qemu"
    folder.mkdir(parents=True, exist_ok=True)
    program = compile_program(folder)
    result = {"schema": "kvpool.qemu/1", "guests": [], "kernels": [], "passed": 0, "failed": 0, "skipped": 0,
              "log_warnings": 0}
    for series in options.kernel or rig.kernels():
        result["kernels"].append(series)
        for guest in GUESTS:
            if options.only and guest[0] not in options.only:
                continue
            verdict, seconds = run_guest(folder, program, series, guest)
            for line in verdict.problems:
                print(f"   {line}")
            for line in verdict.warnings:
                print(f"   kernel log: {line}")
            print(f"== {series} {guest[0]}: {verdict.passed} passed, {verdict.failed} failed, {verdict.skipped} skipped, "
                  f"{len(verdict.warnings)} log warnings ({seconds:.0f} s)", flush=True)
            result["guests"].append({"kernel": series, "name": guest[0], "seconds": round(seconds, 1),
                                     "passed": verdict.passed, "failed": verdict.failed, "skipped": verdict.skipped,
                                     "log_warnings": len(verdict.warnings)})
            for key in ("passed", "failed", "skipped"):
                result[key] += getattr(verdict, key)
            result["log_warnings"] += len(verdict.warnings)
    if options.rack or not (options.only or options.kernel):
        for name, kind in (("rack", rack.Rack), ("rack-store", rack_store.StoreRack)):
            run_rack(folder, program, options.rack or RACK_KERNEL, name, kind, result)
    (rig.BUILD / "qemu.json").write_text(json.dumps(result, indent=1) + "\n")
    # No test of a guest may be skipped.
    failed = result["failed"] + result["skipped"] + result["log_warnings"] + (result["passed"] == 0)
    print(f"{result['passed']} passed, {failed} failed, {result['skipped']} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
