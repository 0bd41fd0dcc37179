"""JSON files for people and programs, the same bytes for the same content; rows at rest are written one by one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def as_json(content: Mapping[str, Any]) -> str:
    """The whole text of a file."""
    return "".join(pieces(content))


def pieces(content: Mapping[str, Any]) -> Iterator[str]:
    """The text of an object in pieces, keys sorted, a space of indent a level.

    Of a value that is a sequence but no list, each row is a piece. Memory: one of them.
    """
    before = "{"
    for name in sorted(content):
        value = content[name]
        yield f"{before}\n {_text(name)}: "
        before = ","
        if isinstance(value, Sequence) and not isinstance(value, (list, tuple, str)):
            yield from _rows(value)
        else:
            yield _text(value).replace("\n", "\n ")
    yield "{}\n" if before == "{" else "\n}\n"


def _rows(rows: Sequence[Any]) -> Iterator[str]:
    before = "["
    for row in rows:
        yield f"{before}\n{_text(row)}".replace("\n", "\n  ")
        before = ","
    yield "[]" if before == "[" else "\n ]"


def _text(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True)
