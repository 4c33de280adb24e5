#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows: every public function has a page in section 3 whose synopsis and text are the header's; pages are sound.
How: the generator compares; a changed declaration in a copy must be noticed; scdoc and mandoc read every page."""
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
# What scdoc itself writes in every page.
HARMLESS = re.compile(r"lower case character in document title|skipping paragraph macro: PP|longer than 80 bytes")


def generator(root: Path) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, str(root / "scripts" / "make_man3.py"), "--check"], capture_output=True,
                          text=True, check=False)


def check_same() -> str:
    return generator(ROOT).stderr


def check_teeth() -> str:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for part in ("scripts", "Documentation/man", "libkvpool/include", "libkvpool/src/api"):
            shutil.copytree(ROOT / part, copy / part)
        shutil.copy(ROOT / "VERSION", copy)
        header = copy / "libkvpool" / "include" / "kvpool" / "kvpool.h"
        header.write_text(header.read_text().replace("kvpool_event_fd(struct kvpool_ctx *ctx)",
                                                     "kvpool_event_fd(struct kvpool_ctx *context)"))
        said = generator(copy)
    return "" if said.returncode == 1 and "kvpool_event_fd" in said.stderr else "a changed declaration was not noticed"


def check_pages() -> str:
    wrong = []
    for page in sorted((ROOT / "Documentation" / "man").glob("*.3.scd")):
        made = subprocess.run(["scdoc"], stdin=page.open("rb"), capture_output=True, check=False)
        if made.returncode != 0:
            wrong.append(f"{page.name}: {made.stderr.decode().strip()}")
            continue
        lint = subprocess.run(["mandoc", "-T", "lint"], input=made.stdout, capture_output=True, check=False)
        wrong += [f"{page.name}: {line}" for line in lint.stdout.decode().splitlines() if not HARMLESS.search(line)]
    return "\n".join(wrong)


def main() -> int:
    failed = 0
    for check in (check_same, check_teeth, check_pages):
        if said := check():
            failed += 1
            print(f"{check.__name__}: {said}", file=sys.stderr)
    print(f"{3 - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
