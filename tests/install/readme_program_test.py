#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows: the C program in the README is examples/put_get.c, has under 50 lines, and works.
How: the text is taken out of the README, compiled against the library just built, and run on a store of its own."""
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = Path(os.environ.get("KVPOOL_BUILD_DIR", ROOT / "build"))


def program() -> str:
    blocks = re.findall(r"^```c\n(.*?)^```", (ROOT / "README.md").read_text(), re.S | re.M)
    whole = [block for block in blocks if "int main(" in block]
    if len(whole) != 1:
        raise SystemExit(f"README.md has {len(whole)} whole C programs, not one")
    return whole[0]


def checks() -> list[str]:
    text, wrong = program(), []
    if text != (ROOT / "examples" / "put_get.c").read_text():
        wrong.append("the README's program is not examples/put_get.c")
    if len(text.splitlines()) >= 50:
        wrong.append(f"the program has {len(text.splitlines())} lines")
    sanitize = [f"-fsanitize={name}" for name in re.split("[;,]", os.environ.get("KVPOOL_SANITIZE", "")) if name]
    with tempfile.TemporaryDirectory() as folder:
        source, binary = Path(folder) / "program.c", Path(folder) / "program"
        source.write_text(text)
        command = ["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", *sanitize, "-I", ROOT / "libkvpool" / "include", source,
                   "-o", binary, f"-L{BUILD / 'lib'}", "-lkvpool", f"-Wl,-rpath,{BUILD / 'lib'}"]
        subprocess.run(command, check=True)
        for run in ("first", "again"):
            done = subprocess.run([binary, f"file:{folder}/store?size=64MiB"], capture_output=True, text=True, check=False)
            if done.returncode != 0 or done.stdout.strip() != "1 block found, same":
                wrong.append(f"{run} run: exit {done.returncode}: {done.stdout}{done.stderr}")
    return wrong


def main() -> int:
    wrong = checks()
    print("\n".join(wrong), file=sys.stderr)
    print(f"{0 if wrong else 1} passed, {len(wrong)} failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
