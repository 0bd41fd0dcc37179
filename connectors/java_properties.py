"""Java's files of properties, and the login lines (JAAS) that stand in them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from auditor.base.errors import AuditInputError

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_KEY = re.compile(r"((?:\\.|[^\\=:\s])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_OPTION = re.compile(r"""\s+([\w.-]+)\s*=\s*(?:"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'|([^\s;"']+))""")
_LOGIN = re.compile(r"\s*([\w.$]+)\s+(required|requisite|sufficient|optional)\b", re.IGNORECASE)


class Login(NamedTuple):
    """What ``sasl.jaas.config`` says: a login module's class without its package, and its options."""

    module: str
    options: dict[str, str]


def properties(path: Path) -> dict[str, str]:
    """The properties of a file as ``java.util.Properties.load`` has them: the last one of a name counts.

    Errors: :class:`AuditInputError` where it cannot be read.
    """
    try:
        text = path.read_bytes().decode("latin-1")
    except OSError:
        raise AuditInputError(f"cannot read {path}; --command-config takes a file of Java client properties") from None
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        match = _KEY.match(line)
        assert match is not None  # it matches any text
        found[_plain(match[1])] = _plain(match[2])
    return found


def _logical_lines(text: str) -> list[str]:
    """Lines without comments; one that ends with an odd number of backslashes goes on in the next."""
    lines: list[str] = []
    going_on = False
    for each in re.split(r"\r\n|\r|\n", text):
        line = each.lstrip(" \t\f")
        if not going_on and (not line or line[0] in "#!"):
            continue
        more = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        part = line[:-1] if more else line
        if going_on:
            lines[-1] += part
        else:
            lines.append(part)
        going_on = more
    return lines


def _plain(text: str) -> str:
    def value(found: re.Match[str]) -> str:
        name = found[1]
        return chr(int(name[1:], 16)) if len(name) == 5 else _ESCAPES.get(name, name)

    return _ESCAPED.sub(value, text)


def login(text: str) -> Login | None:
    """A login line, ``CLASS required NAME="VALUE" ...;``; None for what is none."""
    head = _LOGIN.match(text)
    if head is None:
        return None
    options: dict[str, str] = {}
    at = head.end()
    while found := _OPTION.match(text, at):
        options[found[1]] = _plain(found[2] if found[2] is not None else found[3] or found[4] or "")
        at = found.end()
    return Login(head[1].rpartition(".")[2], options) if text[at:].strip() == ";" else None
