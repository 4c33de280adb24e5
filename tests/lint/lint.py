#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads the tree and reports what breaks a rule of Documentation/style.md.

Use: lint.py [--list] [PATH...]. With paths, files below them are read too when git does not know them yet, and only
findings there are shown. Exit code 0: nothing found, 1: findings.
"""
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from rules import RULES, Finding, Tree

ROOT = Path(__file__).resolve().parent.parent.parent


def git_names(root: Path, others: list[str]) -> list[str]:
    names = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True).stdout.split("\n")
    if others:
        names += subprocess.run(["git", "ls-files", "--others", "--exclude-standard", "--", *others], cwd=root,
                                capture_output=True, text=True, check=True).stdout.split("\n")
    # A file that is deleted but not yet committed so is no longer part of the tree.
    return sorted({name for name in names if name and (root / name).is_file()})


def findings(tree: Tree) -> dict[str, list[Finding]]:
    return {rule: sorted(set(check(tree))) for rule, check in RULES.items()}


def show(rule: str, finding: Finding) -> str:
    name, line, text = finding
    return f"{name}:{line}: {text} [{rule}]" if line else f"{name}: {text} [{rule}]"


def main() -> int:
    paths = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    if "--list" in sys.argv:
        print("\n".join(RULES))
        return 0
    tree = Tree(ROOT, git_names(ROOT, paths))
    wanted = [str((Path.cwd() / path).resolve().relative_to(ROOT)) for path in paths]
    count = 0
    for rule, found in findings(tree).items():
        for finding in found:
            if not wanted or any(finding[0] == path or finding[0].startswith(path + "/") or path == "."
                                 for path in wanted):
                print(show(rule, finding))
                count += 1
    print(f"lint: {len(tree.names)} files, {len(RULES)} rules, {count} findings")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
