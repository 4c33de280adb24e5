#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds, runs the suites and sums them up: what `make test`, `make check` and `make test-long` do.

Use: test.py [quick|full|long]. Every stage prints its time. The last line is `N passed, N failed, N skipped` over all
suites of all stages. A skipped test that tests/allowed-skips does not name counts as failed, and so does a test program
that ran no test. The stages are data (`STAGES`), so that what is run can be read in one place.
"""
from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
JOBS = str(os.cpu_count() or 2)
OUTPUT_LIMIT = "4000000"  # characters of a test's output that ctest keeps; the counts stand at its end


@dataclass
class Stage:
    """One build tree and the tests that are run in it."""

    name: str
    folder: str
    cmake: list[str]
    targets: list[str]
    labels: str = ""   # regular expression over ctest labels; empty: all
    exclude: str = ""  # regular expression over test names
    tidy: bool = False  # clang-tidy over library and tools


RELEASE = Stage("release", "build", [], ["all", "unit_tests"])
SANITIZER_FLAGS = ["-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g", "-DCMAKE_C_FLAGS_RELWITHDEBINFO=-O1 -g"]
STAGES = {
    "quick": [Stage("quick", "build", [], ["all", "unit_tests"], labels="^(lint|unit)$")],
    "full": [
        RELEASE,
        Stage("asan+ubsan", "build-asan",
              ["-DKVPOOL_SANITIZE=address;undefined", *SANITIZER_FLAGS],
              # Not sim: AddressSanitizer does not know its fibers' stacks and reports overflows that are none.
              ["all", "unit_tests"], labels="^(unit|cli|fuzz)$"),
    ],
    "long": [
        Stage("clang", "build-clang",
              ["-DCMAKE_C_COMPILER=clang-14", "-DCMAKE_CXX_COMPILER=clang++-14", "-DKVPOOL_SIM_SEEDS=20000",
               "-DKVPOOL_FUZZ_SECONDS=60"],
              ["all", "unit_tests"], labels="^(unit|model|sim|cli|fuzz)$", tidy=True),
        Stage("debug", "build-debug",
              ["-DCMAKE_BUILD_TYPE=Debug", "-DKVPOOL_SIM_SEEDS=200", "-DKVPOOL_FUZZ_SECONDS=120"],
              ["all", "unit_tests"], labels="^(unit|cli|sim|fuzz)$"),
        Stage("tsan", "build-tsan", ["-DKVPOOL_SANITIZE=thread", "-DKVPOOL_TORTURE_SECONDS=180", *SANITIZER_FLAGS],
              ["all"], labels="^torture$"),
    ],
}


@dataclass
class Counts:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    skips: list[str] = field(default_factory=list)

    def add(self, other: "Counts") -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.skips += other.skips

    def line(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def count_tap(output: str) -> Counts | None:
    """Criterion's --tap output: a line for every test."""
    if not re.search(r"^TAP version", output, re.MULTILINE):
        return None
    counts = Counts()
    for verdict, name in re.findall(r"^(ok|not ok) - (.*)$", output, re.MULTILINE):
        if verdict == "not ok":
            counts.failed += 1
        elif "# SKIP" in name:
            counts.skipped += 1
            counts.skips.append(name.split()[0])
        else:
            counts.passed += 1
    return counts


def count_plain(output: str, test: str) -> Counts | None:
    """Our own closing line, and that of Python's unittest."""
    found = re.findall(r"^(?:\w+: )?(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$", output, re.MULTILINE)
    if found:
        passed, failed, skipped = (int(number or 0) for number in found[-1])
        return Counts(passed, failed, skipped, [test] * skipped)
    ran = re.findall(r"^Ran (\d+) tests? in ", output, re.MULTILINE)
    if ran:
        tail = output[output.rindex("Ran "):]
        bad = sum(int(number) for number in re.findall(r"(?:failures|errors)=(\d+)", tail))
        skipped = sum(int(number) for number in re.findall(r"skipped=(\d+)", tail))
        return Counts(int(ran[-1]) - bad - skipped, bad, skipped, [test] * skipped)
    return None


def count_test(test: str, status: str, output: str) -> Counts:
    """What one ctest entry contributes. A crash counts as one failure more than the program could report itself."""
    if status in ("notrun", "disabled"):
        return Counts(skipped=1, skips=[test])
    counts = count_tap(output) or count_plain(output, test)
    if counts is None:
        return Counts(passed=1) if status == "run" else Counts(failed=1)
    if status != "run" and counts.failed == 0:
        counts.failed = 1
    if status == "run" and counts.passed + counts.failed + counts.skipped == 0:
        print(f"{test}: ran no test, which counts as a failure")
        counts.failed = 1
    return counts


def read_junit(path: Path) -> tuple[Counts, dict[str, Counts]]:
    """All counts of one ctest run, and the same by suite (the part of the name before the first dot)."""
    total, suites = Counts(), {}
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = case.get("name", "")
        output = "".join(case.find("system-out").itertext()) if case.find("system-out") is not None else ""
        counts = count_test(name, case.get("status", "fail"), output)
        total.add(counts)
        suites.setdefault(name.split(".")[0], Counts()).add(counts)
    return total, suites


def allowed_skips() -> set[str]:
    names = set()
    for line in (ROOT / "tests/allowed-skips").read_text().splitlines():
        words = line.split()
        if len(words) > 1 and not words[0].startswith("#"):
            names.add(words[0])
    return names


def forbid_skips(counts: Counts, allowed: set[str]) -> None:
    for name in counts.skips:
        if name not in allowed:
            print(f"{name}: skipped, but tests/allowed-skips does not allow it")
            counts.failed += 1


class Timer:
    def __init__(self, name: str) -> None:
        self.name = name
        self.start = time.monotonic()
        print(f"== {name}", flush=True)

    def stop(self, result: str) -> None:
        print(f"== {self.name}: {result} ({time.monotonic() - self.start:.0f} s)", flush=True)


def build(stage: Stage) -> bool:
    timer = Timer(f"{stage.name}: build")
    folder = ROOT / stage.folder
    folder.mkdir(exist_ok=True)
    configure = subprocess.run(["cmake", "-S", ".", "-B", stage.folder, "-G", "Ninja", *stage.cmake], cwd=ROOT,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    (folder / "configure.log").write_text(configure.stdout)
    if configure.returncode != 0:
        print(configure.stdout)
        timer.stop("configuring failed")
        return False
    with (folder / "build.log").open("w") as log:
        done = subprocess.run(["cmake", "--build", stage.folder, "-j", JOBS, "--target", *stage.targets], cwd=ROOT,
                              stdout=log, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        print((folder / "build.log").read_text()[-20000:])
    timer.stop("built" if done.returncode == 0 else "building failed")
    return done.returncode == 0


def run_ctest(stage: Stage) -> Counts:
    timer = Timer(f"{stage.name}: tests")
    junit = ROOT / stage.folder / "results.xml"
    junit.unlink(missing_ok=True)
    command = ["ctest", "--test-dir", stage.folder, "--output-on-failure", "-j", JOBS, "--output-junit", str(junit),
               "--test-output-size-passed", OUTPUT_LIMIT, "--test-output-size-failed", OUTPUT_LIMIT]
    if stage.labels:
        command += ["-L", stage.labels]
    if stage.exclude:
        command += ["-E", stage.exclude]
    done = subprocess.run(command, cwd=ROOT, check=False)
    if not junit.exists():
        timer.stop("ctest wrote no result")
        return Counts(failed=1)
    counts, suites = read_junit(junit)
    forbid_skips(counts, allowed_skips())
    if done.returncode != 0 and counts.failed == 0:
        counts.failed = 1
    for name, suite in sorted(suites.items()):
        print(f"   {name}: {suite.passed} of {suite.passed + suite.failed} held")
    if counts.passed == 0:
        print("no test passed at all, which counts as a failure")
        counts.failed += 1
    timer.stop("all held" if counts.failed == 0 else f"{counts.failed} failed")
    return counts


def run_tidy(stage: Stage) -> Counts:
    """One test for each source of library and tools."""
    timer = Timer(f"{stage.name}: clang-tidy")
    commands = json.loads((ROOT / stage.folder / "compile_commands.json").read_text())
    sources = sorted({entry["file"] for entry in commands
                      if Path(entry["file"]).is_relative_to(ROOT / "libkvpool")
                      or Path(entry["file"]).is_relative_to(ROOT / "tools")})

    def judge(source: str) -> bool:
        done = subprocess.run(["clang-tidy-14", "-p", stage.folder, "--quiet", source], cwd=ROOT, capture_output=True,
                              text=True, check=False)
        if done.returncode != 0:
            print(done.stdout, flush=True)
        return done.returncode == 0

    with ThreadPoolExecutor(int(JOBS)) as pool:
        good = list(pool.map(judge, sources))
    counts = Counts(passed=good.count(True), failed=good.count(False) + (not good))
    timer.stop(counts.line())
    return counts


def main() -> int:
    kind = sys.argv[1] if len(sys.argv) > 1 else "full"
    if kind not in STAGES:
        print(f"test.py: no kind '{kind}' ({', '.join(STAGES)})", file=sys.stderr)
        return 2
    total = Counts()
    for stage in STAGES[kind]:
        if build(stage):
            total.add(run_ctest(stage))
            if stage.tidy:
                total.add(run_tidy(stage))
        else:
            total.failed += 1
    print(total.line(), flush=True)
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
