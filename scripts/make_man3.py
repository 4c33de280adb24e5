#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes Documentation/man/kvpool_*.3.scd from the declarations and comments of kvpool.h.

Use: make_man3.py [--check]. With --check, nothing is written; exit code 1 if a page is not what the header gives, or a
page has no function. The header is the only place to edit.
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADER = ROOT / "libkvpool" / "include" / "kvpool" / "kvpool.h"
FOLDER = ROOT / "Documentation" / "man"
VERSION = (ROOT / "VERSION").read_text().strip()
ITEM = re.compile(r"/\*(?P<comment>(?:(?!\*/).)*)\*/\n(?P<decls>(?:KVPOOL_API[^;]*;\n)+)", re.S)
STRUCT = re.compile(r"^struct (kvpool_\w+) \{\n.*?^\};\n", re.S | re.M)
ENUM = re.compile(r"^enum (kvpool_\w+) \{\n.*?^\};\n", re.S | re.M)
FLAGS = re.compile(r"^#define (KVPOOL_(\w+)_F_\w+) .*\n", re.M)


def plain(comment: str) -> list[str]:
    """Paragraphs of a C comment."""
    lines = [re.sub(r"^ ?\*? ?", "", line).rstrip() for line in comment.strip().split("\n")]
    paragraphs, current = [], []
    for line in lines:
        if line:
            current.append(line)
        elif current:
            paragraphs.append(current)
            current = []
    if current:
        paragraphs.append(current)
    return ["\n".join(p) if any(line.startswith("  ") for line in p) else " ".join(p) for p in paragraphs]


def escape(text: str) -> str:
    """Text for scdoc; what the comment sets in backquotes is emphasised."""
    return "*".join(map(literal, text.split("`")))


def literal(text: str) -> str:
    return re.sub(r"([\\_*`~#.\[\]<>])", lambda m: m[1] if m[1] in ".<>" else "\\" + m[1], text)


def body(paragraphs: list[str]) -> str:
    out = []
    for paragraph in paragraphs:
        if "\n" in paragraph:
            head = [line for line in paragraph.split("\n") if not line.startswith("  ")]
            code = [line for line in paragraph.split("\n") if line.startswith("  ")]
            out.append(escape(" ".join(head)) + "\n\n```\n" + "\n".join(code) + "\n```")
        else:
            out.append(escape(paragraph))
    return "\n\n".join(out)


def first_sentence(text: str) -> str:
    sentence = re.split(r"(?<=[a-z)`])[.:;] |\.$", text, maxsplit=1)[0]
    sentence = sentence.strip().rstrip(".").replace("`", "")
    return escape(sentence[0].lower() + sentence[1:] if sentence[1:2].islower() else sentence)


def used(kind: str, text: str, found: dict[str, str]) -> list[str]:
    names = re.findall(rf"\b{kind} (kvpool_\w+)", text)
    return [found[name] for name in dict.fromkeys(names) if name in found]


def pages() -> dict[str, str]:
    header = HEADER.read_text()
    structs = {m[1]: m[0] for m in STRUCT.finditer(header)}
    enums = {m[1]: m[0] for m in ENUM.finditer(header)}
    out = {}
    for item in ITEM.finditer(header):
        paragraphs = plain(item["comment"])
        names = re.findall(r"\b(kvpool_\w+)\(", item["decls"])
        about = structs_of(item["decls"], structs)
        for name in names:
            out[name] = page(name, names, item["decls"], paragraphs, about, enums, header)
    return out


def structs_of(decls: str, structs: dict[str, str]) -> list[str]:
    """Structs with members that the declarations name, and those that these name by value."""
    found = used("struct", decls, structs)
    for text in found:
        for more in used("struct", text.split("\n", 1)[1], structs):
            if more not in found:
                found.append(more)
    return found


def flags_of(about: list[str], header: str) -> str:
    out = []
    for text in about:
        stem = re.match(r"struct kvpool_(\w+?)_opts", text)
        if stem:
            out += [m[0].rstrip() for m in FLAGS.finditer(header) if m[2].lower() == stem[1]]
    return "\n".join(out)


def page(name: str, names: list[str], decls: str, paragraphs: list[str], about: list[str], enums: dict[str, str],
         header: str) -> str:
    synopsis = re.sub(r"KVPOOL_API ", "", decls).rstrip()
    text = f'{name}(3) "kvpool {VERSION}" "kvpool C API"\n\n; SPDX-License-Identifier: Apache-2.0\n\n# NAME\n\n'
    text += f"{escape(', '.join(names))} - {first_sentence(paragraphs[0])}\n\n"
    text += f"# SYNOPSIS\n\n*#include <kvpool/kvpool.h>*, link with *-lkvpool*\n\n```\n{synopsis}\n```\n\n"
    text += f"# DESCRIPTION\n\n{body(paragraphs)}\n"
    if about:
        shown = "\n".join(about)
        values = used("enum", shown + decls, enums)
        flags = flags_of(about, header)
        text += "\n# TYPES\n\nFrom the header:\n\n```\n" + (flags + "\n\n" if flags else "") + "\n".join(about + values).rstrip() + "\n```\n"
    text += "\n# SEE ALSO\n\n*libkvpool*(3) has what holds for every call: results, outputs, options, deadlines, threads, "
    text += "fork, memory and common errors.\n"
    return text


def overview() -> str:
    header = HEADER.read_text()
    comment = re.search(r"^/\*\n( \* kvpool: a store.*?)\*/", header, re.S | re.M)[1]
    lines = [re.sub(r"^ \* ?", "", line).rstrip() for line in comment.strip().split("\n")]
    terms, term = [], None
    for line in lines[4:]:
        match = re.match(r"^([A-Z][a-z]+) {2,}(.*)", line)
        if match:
            term = [match[1], match[2]]
            terms.append(term)
        elif term and line.strip():
            term[1] += " " + line.strip()
    text = f'libkvpool(3) "kvpool {VERSION}" "kvpool C API"\n\n; SPDX-License-Identifier: Apache-2.0\n\n# NAME\n\nlibkvpool - a store of KV-cache blocks in memory '
    text += "that several hosts share\n\n# SYNOPSIS\n\n*#include <kvpool/kvpool.h>*, link with *-lkvpool*\n\n"
    text += "# DESCRIPTION\n\nWhat follows holds for every call unless its own page says otherwise.\n\n"
    text += "\n\n".join(f"*{name}*\n\t{escape(said)}" for name, said in terms)
    text += "\n\n# ERRORS\n\n*kvpool_error_class*(3) sorts results by what the caller can do:\n\n"
    text += "\n".join(f"- {name}: {' '.join(codes)}" for name, codes in classes().items())
    functions = sorted(re.findall(r"^KVPOOL_API[^;(]*?\b(kvpool_\w+)\(", header, re.M))
    text += "\n\nEvery other error: caller.\n\n# SEE ALSO\n\n" + ", ".join(f"*{f}*(3)" for f in functions) + "\n"
    return text


def classes() -> dict[str, list[str]]:
    """The table of errors, from the one place that decides it."""
    source = (ROOT / "libkvpool" / "src" / "api" / "handles.cc").read_text()
    start = source.index("enum kvpool_class kvpool_error_class(")
    out, codes = {}, []
    for line in source[start:source.index("\n}\n", start)].split("\n"):
        codes += re.findall(r"case (E\w+):", line)
        if (done := re.search(r"return KVPOOL_CLASS_(\w+);", line)) and codes:
            out[done[1].lower()] = codes
            codes = []
    return out


def main() -> int:
    wanted = {f"{name}.3.scd": text for name, text in pages().items()}
    wanted["libkvpool.3.scd"] = overview()
    present = {p.name for p in FOLDER.glob("*.3.scd")}
    if "--check" not in sys.argv:
        FOLDER.mkdir(parents=True, exist_ok=True)
        for name, text in wanted.items():
            (FOLDER / name).write_text(text)
        for name in present - wanted.keys():
            (FOLDER / name).unlink()
        print(f"{len(wanted)} pages")
        return 0
    wrong = sorted(present ^ wanted.keys())
    wrong += [n for n in sorted(present & wanted.keys()) if (FOLDER / n).read_text() != wanted[n]]
    for name in wrong:
        print(f"Documentation/man/{name}: not what kvpool.h gives; run scripts/make_man3.py", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
