# SPDX-License-Identifier: Apache-2.0
"""Reading of C and C++ text for the lint: code without comments and strings, functions and their length."""
from __future__ import annotations

import re

_TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^(\s]*)\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Za-z_])\'(?:\\.|[^\'\\\n])+\'',
    re.DOTALL)
_CONTROL = re.compile(r"\b(if|for|while|switch|catch|do|else|try)\s*(\(|$)")
_TYPE = re.compile(r"^(\s*(export|typedef|static|inline|constexpr|template\s*<[^{}]*>|requires\s[^{}]*))*\s*"
                   r"(namespace|class|struct|union|enum|extern\s+\"|concept)\b")
_FUNCTION = re.compile(
    r"\)\s*(const|noexcept(\s*\([^{}]*\))?|override|final|mutable|try|&&?|->\s*[\w:<>,&*\s]+|:\s*[^{}]*|requires\s[^{}]*"
    r"|__attribute__\s*\(\(.*\)\)|\s)*$")


def blank(text: str, keep_strings: bool = False) -> str:
    """The same text with comments, and unless asked otherwise strings, replaced by spaces; lines stay where they were."""

    def spaces(match: re.Match[str]) -> str:
        token = match.group(0)
        if keep_strings and not token.startswith(("//", "/*")):
            return token
        return re.sub(r"[^\n]", " ", token)

    return _TOKEN.sub(spaces, text)


def comments(text: str) -> str:
    """The same text with everything but comments replaced by spaces."""
    result, last = [], 0
    for match in _TOKEN.finditer(text):
        token = match.group(0)
        result.append(re.sub(r"[^\n]", " ", text[last:match.start()]))
        result.append(token if token.startswith(("//", "/*")) else re.sub(r"[^\n]", " ", token))
        last = match.end()
    result.append(re.sub(r"[^\n]", " ", text[last:]))
    return "".join(result)


def functions(text: str) -> list[tuple[int, int, str]]:
    """(first line, lines, head) of each outermost function body; a lambda counts with the function around it."""
    code = re.sub(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", lambda directive: "\n" * directive.group(0).count("\n"),
                  blank(text), flags=re.MULTILINE | re.DOTALL)
    text_of = list(code)
    found: list[tuple[int, int, str]] = []
    stack: list[str] = []  # what each open brace is: function, member (initialiser in a constructor's head), other
    head_start, line, start_line, head, member_at = 0, 1, 0, "", 0
    for at, char in enumerate(code):
        if char == "\n":
            line += 1
        elif char == "}" and stack and stack[-1] == "member":
            stack.pop()
            text_of[member_at:at + 1] = " " * (at + 1 - member_at)
        elif char == "}":
            if stack and stack.pop() == "function" and "function" not in stack:
                found.append((start_line, line - start_line + 1, head))
            head_start = at + 1
        elif char == ";":
            head_start = at + 1
        elif char == "{":
            before = "".join(text_of[head_start:at])
            kind = _kind(before) if "function" not in stack else "other"
            if kind == "function":
                head = " ".join(before.split())[:80]
                start_line = line - before.lstrip().count("\n")
            stack.append(kind)
            if kind == "member":
                member_at = at
            else:
                head_start = at + 1
    return found


def _kind(before: str) -> str:
    """What the brace after this text opens."""
    if _TYPE.match(before) or _CONTROL.search(before.strip()) or not _FUNCTION.search(before):
        return "other"
    return "member" if re.search(r"\)[^)]*[^:]:[^:].*[\w>]$", before, re.DOTALL) else "function"
