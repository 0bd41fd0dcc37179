"""Rows as CSV and as Markdown, for other programs and for tickets.

Names come from untrusted input. In CSV a text that a spreadsheet would take for a formula has an apostrophe in front;
in Markdown every sign that has a meaning there is escaped.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from auditor.base.at_rest import Values
from auditor.dashboards.wording import visible

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_SIGNS = re.compile(r"([\\`*_\[\]<>|~#])")


def csv_lines(heads: Sequence[str], rows: Iterable[Values]) -> Iterator[str]:
    """A line of heads and one a row (RFC 4180, but for line ends, which are LF); null is empty, structures are JSON."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for row in ([*heads], *([_csv_cell(row[head]) for head in heads] for row in rows)):
        writer.writerow(row)
        yield out.getvalue()
        out.seek(0)
        out.truncate()


def _csv_cell(value: object) -> Any:
    if isinstance(value, dict | list):
        value = json.dumps(value, ensure_ascii=False, sort_keys=True)
    if not isinstance(value, str):
        return value
    return f"'{value}" if value.startswith(_FORMULA) else value


def markdown_lines(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """A table of Markdown; null is empty."""
    yield f"| {' | '.join(heads)} |\n"
    yield f"|{' --- |' * len(heads)}\n"
    for row in rows:
        yield f"| {' | '.join('' if cell is None else escaped(str(cell)) for cell in row)} |\n"


def escaped(text: str) -> str:
    """``text`` as itself in Markdown, on one line."""
    return _SIGNS.sub(r"\\\1", visible(text))
