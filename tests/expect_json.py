#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a program that prints one JSON object and checks an expression over it.

Use: expect_json.py EXPRESSION -- PROGRAM [ARGUMENT...]; the object is `d`. Fails when the program fails, prints no
JSON, or the expression is not true. Passes the program's stderr through.
"""
import json
import subprocess
import sys


def main() -> int:
    if len(sys.argv) < 4 or sys.argv[2] != "--":
        print(__doc__, file=sys.stderr)
        return 2
    expression, command = sys.argv[1], sys.argv[3:]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout)
    if done.returncode != 0:
        print(f"{command[0]}: exit code {done.returncode}")
        return 1
    try:
        data = json.loads(done.stdout)
        held = bool(eval(expression, {"d": data}))
    except (ValueError, KeyError, TypeError) as error:
        print(f"{command[0]}: {type(error).__name__}: {error}")
        return 1
    print(f"{'holds' if held else 'DOES NOT HOLD'}: {expression}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
