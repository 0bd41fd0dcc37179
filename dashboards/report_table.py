"""The report's first table: every open transaction once, the partitions that it blocks first, and where on the page its
advice stands."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from auditor.base import advice
from auditor.base.words import NO_TIMEOUT_MS
from auditor.dashboards import causes, verdict
from auditor.dashboards.answers import Blocked, Open
from auditor.dashboards.remedies import Remedy
from auditor.dashboards.wording import short_fingerprint

ADVISED, UNSURE = 8, 4  # advices that the page prints: of blocked partitions, and of those that may be


@dataclass(slots=True)
class Row:
    """Partitions that one producer holds alike; ``note`` how they stand, where their class does not say it;
    ``anchor``: of the place on the page that says what to do about them, ``finding``: of what was found about the first
    of them; empty where there is none."""

    held: causes.Held
    note: str = ""
    anchor: str = ""
    finding: str = ""

    @property
    def first(self) -> Open:
        """What holds the first of them."""
        return self.held.first

    @property
    def calm(self) -> bool:
        """Whether it is as is normal, so that nothing has to be done now, whatever would be later."""
        return self.first.standing == "waiting" and not self.first.blocks


@dataclass(slots=True)
class Table:
    """``rows`` in the order of the page. Of these ``advised`` are blocked and ``asked`` may be, and the page says what
    to do about each; ``unsure``: all that may be; ``unadvised``: blocked partitions without an advice of their own."""

    rows: list[Row]
    advised: list[Row]
    unsure: list[Row]
    asked: list[Row]
    unadvised: int

    @property
    def kinds(self) -> set[str]:
        """What the rows are called, for the words that explain it; not of those whose note says otherwise."""
        return {row.first.kind for row in self.rows if not _endless(row.first)}


def table(
    decided: verdict.Verdict, everything: Iterable[Open], remedies: Sequence[Remedy], anchors: Collection[str]
) -> Table:
    """Who is blocked, then who may be, then who waits as is normal, what the baseline accepts, and what is open behind
    these. ``remedies``: those that the page prints, which no other advice says again; ``anchors``: of the findings that
    have a row on the page. Cost: linear."""
    blocked = [Row(held, _note(held.first)) for held in causes.holders(decided.held)]
    named = [Row(held, _note(held.first)) for held in causes.holders(decided.named)]
    accepted = [Row(held, "the baseline accepts it") for held in causes.holders(decided.accepted)]
    known = {_key(row.holder) for row in (*decided.held, *decided.named, *decided.accepted)}
    behind = [
        Row(causes.Held([Blocked(entry)]), "behind the one that holds its partition")
        for entry in everything
        if _key(entry) not in known
    ]
    unsure, waiting = ([row for row in named if (row.first.standing == "waiting") is so] for so in (False, True))
    rows = [*blocked, *unsure, *waiting, *accepted, *behind]
    advised = blocked[:ADVISED]
    said = {one.text: f"do-about-{n}" for n, one in enumerate(remedies, 1)}
    for row in unsure:
        row.anchor = said.get(advice.text(row.first.advice), "")
    own = [row for row in unsure if not row.anchor][:UNSURE]
    for n, row in enumerate((*advised, *own), 1):
        row.anchor = f"do-{n}"
    for row in rows:
        row.finding = next((a for f in row.first.findings if (a := short_fingerprint(f)) in anchors), "")
        row.anchor = row.anchor or row.finding
    unadvised = sum(len(row.held.rows) for row in blocked[ADVISED:])
    return Table(rows, advised, unsure, own, unadvised)


def _note(holder: Open) -> str:
    if holder.left_out:
        return "only a rule that was left out reports it"
    return verdict.stands(holder) if _endless(holder) or holder.standing == "unknown" else ""


def _endless(holder: Open) -> bool:
    return bool(holder.row.get("timeout_ms") == NO_TIMEOUT_MS)


def _key(entry: Open) -> tuple[object, ...]:
    return (entry.cluster, *(entry.row[name] for name in ("topic", "partition", "producer_id", "first_offset")))
