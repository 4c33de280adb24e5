#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Keeps the tables of Documentation/models.md equal to what the model programs report.

Use: table.py PROGRAMS          runs every program of that folder and prints both tables
     table.py PROGRAMS --write  puts them into the page; with --long after repeating the clean models' long runs
     table.py PROGRAMS --check  fails if a model or mutant of the page or of the programs lacks its partner,
                                or if a clean run has another number of states than the page says
"""
import json
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "Documentation" / "models.md"


def run(program: Path, *options: str) -> dict:
    done = subprocess.run([program, "--json", *options], stdout=subprocess.PIPE, text=True, check=False)
    return json.loads(done.stdout)


def rules(program: Path) -> tuple[str, dict[str, tuple[str, str]]]:
    """What the model covers, and section and rule of each mutant, from --list."""
    lines = subprocess.run([program, "--list"], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    found = {}
    for line in lines[1:]:
        name, _, section, meaning = line.split(maxsplit=3)
        found[name] = (section, meaning)
    return lines[0].split(": ", 1)[1], found


def long_states(page: str) -> dict[str, str]:
    """Model to the states of its long run, as the page has them."""
    return {row[0][2:]: row[-1].rstrip(" |")
            for row in (line.split(" | ") for line in page.splitlines() if line.startswith("| ")) if len(row) == 5}


def tables(programs: list[Path], page: str, long: bool) -> dict[str, str]:
    known = long_states(page)
    models = ["| model | covers | states, short | steps | states, long |", "|---|---|---|---|---|"]
    mutants = ["| model | mutant | rule that it removes | proto | counterexample | steps |", "|---|---|---|---|---|---|"]
    for program in programs:
        covers, meaning = rules(program)
        report = run(program)
        deep = known.get(program.name, "not run")
        if long:
            deep = f"{run(program, '--long', '--mutant', 'clean')['runs'][0]['states']:,}"
        for row in report["runs"]:
            if not row["ok"]:
                sys.exit(f"{program.name}: {row['name']} {row['verdict']}: {row['why']}")
            if row["name"] == "clean":
                models.append(f"| {program.name} | {covers} | {row['states']:,} | {row['steps']} | {deep} |")
            else:
                section, rule = meaning[row["name"]]
                mutants.append(f"| {program.name} | {row['name']} | {rule} | {section} | {row['why']} | {row['steps']} |")
    return {"models": "\n".join(models), "mutants": "\n".join(mutants)}


def main() -> int:
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    programs = sorted(path for path in Path(sys.argv[1]).iterdir() if path.is_file())
    text = PAGE.read_text() if PAGE.exists() else ""
    made = tables(programs, text, "--long" in sys.argv)
    failed = 0
    for name, table in made.items():
        place = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        if "--write" in sys.argv:
            text = place.sub(lambda m, new=table: m.group(1) + new + "\n" + m.group(2), text)
        elif "--check" in sys.argv:
            def rows(source: str) -> set[tuple[str, ...]]:
                # The last column of the models is the long run, which a check does not repeat.
                return {tuple(row.split(" | ")[:-1]) for row in source.splitlines() if row.startswith("| ")}
            found = place.search(text)
            page = rows(found.group(0)) if found else set()
            for row in sorted(page ^ rows(table)):
                print(("page: " if row in page else "programs: ") + " | ".join(row))
                failed += 1
        else:
            print(table + "\n")
    if "--write" in sys.argv:
        PAGE.write_text(text)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
