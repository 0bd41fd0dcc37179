"""The recipes of docs/cookbook.md, and the answers of one way to ask in a form that compares with another's."""

from __future__ import annotations

import math
import re
from datetime import datetime
from typing import Any, NamedTuple

from tests.conftest import ROOT

# Of each recipe the corpus that it is asked of, and the id that stands in the place of the page's.
ASKED = {
    "Who aborts most, and why": ("tiered-43", ""),
    "How long transactions take, by hour": ("healthy-41", ""),
    "Idle producers, and when their ids expire": ("healthy-41", ""),
    "Bytes by codec and batch size": ("healthy-41", ""),
    "Producer ids that come and go": ("healthy-41", ""),
    "LSO lag over time": ("tiered-43", ""),
    "Offsets that transactions commit": ("healthy-41", ""),
    "What one transactional id did on its worst day": ("tiered-43", "tiered-ab"),
}


class Recipe(NamedTuple):
    """A question with its answer in SQL and in Python, and the corpus that it is asked of."""

    title: str
    corpus: str
    sql: str
    python: str


def recipes() -> list[Recipe]:
    """Those of the page, in its order."""
    page = (ROOT / "docs" / "cookbook.md").read_text(encoding="utf-8")
    found = []
    for part in page.split("\n## ")[1:]:
        title, text = part.split("\n", 1)
        corpus, name = ASKED[title]
        sql, python = (re.findall(rf"```{kind}\n(.*?)\n```", text, re.DOTALL) for kind in ("sql", "python"))
        assert len(sql) == len(python) == 1, title
        found.append(Recipe(title, corpus, *(each[0].replace("payments-7", name) for each in (sql, python))))
    assert len(found) == len(ASKED)
    return found


def plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows without the types of whoever gave them: times in ms, no difference between 3 and 3.0, none for not known."""
    return [{name: _plain(value) for name, value in row.items()} for row in rows]


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000) if value == value else None
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, str):
        return value
    if hasattr(value, "tolist"):
        value = value.tolist()
    return value if isinstance(value, list | dict) else round(float(value), 6)
