"""Which files a condition of a query rules out, by what is the same in all of their rows: broker, topic, partition.

Spark asks every condition again of the rows that come, so that what is not understood here costs time and nothing else.
Conditions are told by their names: the oldest Spark that may run this has none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import eq, ge, gt, le, lt
from typing import Any, NamedTuple

from auditor.base.at_rest import Values
from auditor.connectors.rows import FilePiece

KEY = ("cluster_id", "broker_id", "log_dir", "topic", "partition")
_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "EqualTo": eq,
    "EqualNullSafe": eq,
    "GreaterThan": gt,
    "GreaterThanOrEqual": ge,
    "LessThan": lt,
    "LessThanOrEqual": le,
    "StringStartsWith": str.startswith,
    "StringEndsWith": str.endswith,
    "StringContains": str.__contains__,
}


class Wanted(NamedTuple):
    """Which files may have rows for which all ``conditions`` hold, and by their names offsets from ``first`` to
    ``last``; the last segment of a log may hold any that is not below it."""

    conditions: Sequence[Any]
    first: int
    last: int

    def __call__(self, piece: FilePiece) -> bool:
        """Whether a file is one of them."""
        starts, behind = piece.file.offset, piece.next_base
        if starts >= 0 and (starts > self.last or 0 <= behind <= self.first):
            return False
        row = {name: value for name, value in zip(KEY, piece.key, strict=True) if value is not None}
        return all(holds(condition, row) is not False for condition in self.conditions)


def holds(condition: Any, row: Values) -> bool | None:
    """Whether one of Spark's conditions (``pyspark.sql.datasource.Filter``) holds; None where that is not known."""
    name = type(condition).__name__
    if name == "Not":
        inside = holds(condition.child, row)
        return None if inside is None else not inside
    path: tuple[str, ...] = getattr(condition, "attribute", ())
    if len(path) != 1 or (column := path[0]) not in row:
        return None
    if name in ("IsNull", "IsNotNull"):
        return name == "IsNotNull"
    value: Any = getattr(condition, "value", None)
    if name == "In":
        return True if row[column] in value else None if None in value else False
    if name not in _COMPARED or value is None:
        return None
    try:
        return bool(_COMPARED[name](row[column], value))
    except TypeError:
        return None
