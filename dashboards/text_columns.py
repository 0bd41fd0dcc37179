"""Text in columns of a terminal: how wide it is, filled up, broken into lines."""

from __future__ import annotations

import unicodedata


def cells(text: str) -> int:
    """How many columns of a terminal ``text`` takes: wide characters two, combining ones none."""
    return sum(_cell(sign) for sign in text)


def pad(text: str, width: int) -> str:
    """``text`` with spaces up to ``width`` columns."""
    return text + " " * max(0, width - cells(text))


def wrap(text: str, width: int) -> list[str]:
    """``text`` in lines of at most ``width`` columns, broken between words where it can be. One empty line for none."""
    lines, line, room = [], "", width
    for word in text.split(" "):
        for part in _split(word, width):
            need = cells(part) + (1 if line else 0)
            if need > room and line:
                lines.append(line)
                line, room, need = "", width, cells(part)
            line, room = f"{line} {part}" if line else part, room - need
    return [*lines, line]


def _split(word: str, width: int) -> list[str]:
    """A word in parts of at most ``width`` columns."""
    if cells(word) <= width:
        return [word]
    parts, part, room = [], "", width
    for sign in word:
        if _cell(sign) > room and part:
            parts.append(part)
            part, room = "", width
        part, room = part + sign, room - _cell(sign)
    return [*parts, part]


def _cell(sign: str) -> int:
    if unicodedata.combining(sign):
        return 0
    return 2 if unicodedata.east_asian_width(sign) in "WF" else 1
