"""What stands first on every page of the dashboard: what is blocked now, what is lost, what is new. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from auditor.base.at_rest import Values
from auditor.dashboards.answers import Blocked
from auditor.dashboards.verdict import Verdict
from auditor.dashboards.wording import SEVERITIES, Finding

Item = TypeVar("Item")
SHOWN = 8  # of a column


class Cluster(NamedTuple):
    """A cluster as people know it: ``id`` as its brokers do (several with commas), ``name`` the id where nobody said
    another one, and what else was said."""

    id: str
    name: str
    owner: str = ""
    link: str = ""
    labels: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Board:
    """A cluster in its last run, or as of a run. ``new`` and ``gone`` are rows of findings above info against the run
    before, ``still`` how many are in both; None where there is no run before. ``as_of`` is what ages go by."""

    cluster: Cluster
    verdict: Verdict
    as_of: str | None
    new: Sequence[Finding] | None = None
    gone: Sequence[Finding] | None = None
    still: int = 0
    infos: Mapping[str, int] = field(default_factory=dict)  # infos that are new, and gone
    unseen: int = 0
    partly: str = ""


@dataclass(frozen=True, slots=True)
class Column(Generic[Item]):
    """One of the three columns: its first items, each with its cluster, and how many there are beyond them."""

    items: Sequence[tuple[Cluster, Item]]
    more: int

    @property
    def count(self) -> int:
        """Of all."""
        return len(self.items) + self.more


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of some boards. ``compared``: whether any has a run before it; ``open``: how many critical and error
    findings are open; ``suppressed``: how many of any severity a baseline suppresses; ``unsure``: whether the input of
    some run could not be judged, or not all of it."""

    held: Column[Blocked]
    lost: Column[Finding]
    new: Column[Finding]
    compared: bool
    open: int = 0
    suppressed: int = 0
    unsure: bool = False


def columns(boards: Sequence[Board]) -> Columns:
    """What is blocked, the oldest hold first; what is lost; what is new, the gravest first."""
    held = [(board.cluster, row) for board in boards for row in board.verdict.held]
    lost = [(board.cluster, row) for board in boards for row in board.verdict.lost]
    new = [(board.cluster, row) for board in boards for row in board.new or ()]
    held.sort(key=lambda item: _begun(item[1].holder.row))
    new.sort(key=lambda item: SEVERITIES.index(item[1]["severity"]))
    return Columns(
        _column(held),
        _column(lost),
        _column(new),
        any(board.new is not None for board in boards),
        sum(board.verdict.open for board in boards),
        sum(sum(board.verdict.suppressed.values()) for board in boards),
        any(board.partly or board.verdict.tone == "unsure" for board in boards),
    )


def oldest(boards: Iterable[Board]) -> str | None:
    """Since when the oldest hold is; None where nothing is blocked, or nothing tells."""
    begun = (row.holder.row.get("since") for board in boards for row in board.verdict.held)
    return min(filter(None, begun), default=None)


def _begun(row: Values) -> tuple[bool, str, int]:
    return not row.get("since"), row.get("since") or "", -(row.get("age_ms") or 0)


def _column(rows: Sequence[tuple[Cluster, Item]]) -> Column[Item]:
    return Column(rows[:SHOWN], max(0, len(rows) - SHOWN))
