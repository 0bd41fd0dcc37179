"""Text in columns of a terminal: how wide it is, filled up, broken into lines."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from auditor.dashboards.wording import visible


def cells(text: str) -> int:
    """How many columns of a terminal ``text`` takes: wide characters two, combining ones none."""
    return sum(_cell(sign) for sign in text)


def pad(text: str, width: int) -> str:
    """``text`` with spaces up to ``width`` columns."""
    return text + " " * max(0, width - cells(text))


def shortened(text: str, width: int) -> str:
    """``text`` in at most ``width`` columns: what is too long loses its middle, for names differ at their ends."""
    if cells(text) <= width:
        return text
    head, tail = "", ""
    for n in range(len(text)):
        grown = (head + text[len(head)], tail) if n % 2 else (head, text[len(text) - len(tail) - 1] + tail)
        if cells(grown[0] + grown[1]) + 1 > width:
            break
        head, tail = grown
    return f"{head}…{tail}"


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


def indented(text: str, width: int, by: int) -> list[str]:
    """``text`` in lines of at most ``width`` columns, each behind ``by`` blanks; hidden characters become visible."""
    return [" " * by + line for line in wrap(visible(text), width - by) if line]


def aligned_cells(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Rows in columns as wide as their widest cell, two blanks between; one that is wider than ``width`` is broken."""
    shown = [[visible(cell) for cell in row] for row in rows]
    wides = [max(map(cells, column)) for column in zip(*shown, strict=True)]
    lines = ["  ".join(map(pad, row, wides)).rstrip() for row in shown]
    return [part for line in lines for part in ([line] if cells(line) <= width else wrap(line, width))]


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
