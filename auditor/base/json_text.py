"""JSON files for people and programs, the same bytes for the same content; rows at rest are written one by one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

from auditor.base.values import Values

CONTAINERS = (dict, list, tuple)
ROW_LEVEL = 2  # how deep the rows of a list stand that :func:`pieces` writes one by one


class TextRows(Sequence[Any]):
    """Rows that were written by :func:`row_text` before, each parsed whenever it is read."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts

    def __len__(self) -> int:
        return len(self.texts)

    def __iter__(self) -> Iterator[Any]:
        return map(json.loads, self.texts)

    def __getitem__(self, at: Any) -> Any:
        found = self.texts[at]
        return json.loads(found) if isinstance(found, str) else [json.loads(text) for text in found]


def row_text(row: object) -> str:
    """A row as :func:`pieces` writes it within its list. Cost: some 25 us a KB."""
    return _text(row, ROW_LEVEL)


def as_json(content: Values) -> str:
    """The whole text of a file."""
    return "".join(pieces(content))


def pieces(content: Values) -> Iterator[str]:
    """The text of an object in pieces, keys sorted, a space of indent a level.

    Of a value that is a sequence but no list, each row is a piece. Memory: one of them. Cost: some 25 us a KB, of
    :class:`TextRows` next to nothing.
    """
    before = "{"
    for name in sorted(content):
        value = content[name]
        yield f"{before}\n {_text(name, 1)}: "
        before = ","
        if isinstance(value, Sequence) and not isinstance(value, (*CONTAINERS, str)):
            yield from _rows(value)
        else:
            yield _text(value, 1)
    yield "{}\n" if before == "{" else "\n}\n"


def _rows(rows: Sequence[Any]) -> Iterator[str]:
    before = "["
    for text in rows.texts if isinstance(rows, TextRows) else map(row_text, rows):
        yield f"{before}\n  {text}"
        before = ","
    yield "[]" if before == "[" else "\n ]"


def _text(value: object, level: int) -> str:
    """What ``json.dumps(value, indent=1)`` gives, keys sorted, for a place so many levels deep.

    Python's own encoder indents value by value in plain Python. Its compiled one knows no indent but takes any
    separator: with one that holds the next line's indent, a container of plain values is one call. Containers in it are
    null at first. Line breaks within a text are escaped, so that the separators are where one item ends.
    """
    encode, indent = _encoder(level)
    if not value or not isinstance(value, CONTAINERS):
        return encode(value)
    plain: Any
    keys: Sequence[Any]
    if isinstance(value, dict):
        keys = sorted(value)
        inner = {at for at, key in enumerate(keys) if isinstance(value[key], CONTAINERS) and value[key]}
        plain = value | dict.fromkeys([keys[at] for at in inner]) if inner else value
    else:
        keys = range(len(value))
        inner = {at for at, one in enumerate(value) if isinstance(one, CONTAINERS) and one}
        plain = [None if at in inner else one for at, one in enumerate(value)] if inner else value
    text = encode(plain)
    items = text[1:-1]
    if inner:
        split = items.split(f",{indent}")
        for at in inner:
            split[at] = split[at].removesuffix("null") + _text(value[keys[at]], level + 1)
        items = f",{indent}".join(split)
    return f"{text[0]}{indent}{items}{indent[:-1]}{text[-1]}"


@cache
def _encoder(level: int) -> tuple[Callable[[Any], str], str]:
    """What writes a container without containers in it, its brackets on the line of its items; and what stands before
    each of them."""
    indent = "\n" + " " * (level + 1)
    encoder = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(f",{indent}", ": "))
    return encoder.encode, indent
