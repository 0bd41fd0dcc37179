"""The partitions that are held as a table on a terminal: a row each, and one for each further transaction of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from auditor.base.advice import WORDS, Verdict, whole
from auditor.base.at_rest import Values
from auditor.dashboards import answers, causes
from auditor.dashboards.text_columns import cells, pad, shortened, wrap
from auditor.dashboards.wording import Finding, moment, number, short_fingerprint, visible

ROWS = 20  # from here on a row stands for all that one producer holds
BEHIND = 5  # further transactions of a partition
HEADS = ("PARTITION", "SINCE", "HOLDER", "WAITING", "DO", "FINDING")
_LEAST = 20  # columns for partition and holder, below which a row takes lines of its own


class Row(NamedTuple):
    """The cells, in the order of :data:`HEADS`; ``more``: for how many more partitions it stands."""

    partition: str
    since: str
    holder: str
    waiting: str
    do: str
    finding: str
    more: int = 0


def lines(rows: Sequence[answers.Blocked], as_of: str | None, width: int, every: bool) -> list[str]:
    """The table, at most ``width`` columns wide; names that are too long lose their middle. ``every``: a row for each
    partition, however many. ``as_of``: the time of the audit, whose day is not said again."""
    if not rows:
        return []
    parts = [causes.Held([row]) for row in rows] if every or len(rows) <= ROWS else causes.holders(rows)
    shown = parts if every else parts[:ROWS]
    made = [row for held in shown for row in _rows(held, as_of or "")]
    rest = sum(len(held.rows) for held in parts[len(shown) :])
    more = wrap(f"… {rest:,} more: --verbose lists them", width) if rest else []
    return [*_laid_out(made, width), *more]


def _rows(held: causes.Held, as_of: str) -> list[Row]:
    first, holder = held.rows[0], held.first
    fingerprint = next((name for f in holder.findings if (name := short_fingerprint(f))), "")
    rows = [
        Row(
            visible(holder.name),
            _since(holder.row, as_of),
            _holder(holder.row),
            number(held.waiting),
            holder.word,
            fingerprint,
            len(held.rows) - 1,
        )
    ]
    if len(held.rows) > 1:
        return rows
    rows += [_behind(finding, as_of) for finding in first.behind[:BEHIND]]
    unnamed = first.others - len(first.behind[:BEHIND])
    return [*rows, Row(f"  and {unnamed:,} more", "", "", "", "", "")] if unnamed > 0 else rows


def _since(row: Values, as_of: str) -> str:
    """When it began; with a question mark where only its producer's clock tells."""
    if not row.get("since"):
        return "unknown"
    by_brokers = row.get("since_by_producer") or row.get("since_not_before")
    return moment(row["since"], as_of) + ("" if by_brokers else "?")


def _behind(finding: Finding, as_of: str) -> Row:
    advice = whole(finding.get("advice"))
    word = WORDS[Verdict(advice["verdict"])] if advice else ""
    since = moment(finding["timestamp"], as_of) if finding["timestamp"] else "unknown"
    return Row(f"  @{finding['offset']}", since, _holder(finding), "", word, short_fingerprint(finding))


def _holder(row: Finding) -> str:
    name, producer = row.get("transactional_id"), row.get("producer_id")
    return visible(str(name) if name is not None else "unknown" if producer is None else f"producer {producer}")


def _laid_out(rows: Sequence[Row], width: int) -> list[str]:
    wides = [max(cells(text) for text in column) for column in zip(HEADS, *(row[:6] for row in rows), strict=True)]
    wides[0] = max(wides[0], *(cells(row.partition) + len(_more(row)) for row in rows))
    room = width - sum(wides[at] for at in (1, 3, 4, 5)) - 2 * (len(HEADS) - 1)
    if room < _LEAST:
        return [line for row in rows for line in wrap(" · ".join(filter(None, _named(row))), width)]
    wides[0], wides[2] = _shared(wides[0], wides[2], room)
    right = ("WAITING",)
    out = []
    for row in [Row(*HEADS), *rows]:
        place = shortened(row.partition, wides[0] - len(_more(row))) + _more(row)
        texts = [place, row.since, shortened(row.holder, wides[2]), row.waiting, row.do, row.finding]
        padded = [
            " " * (wide - cells(text)) + text if head in right else pad(text, wide)
            for text, wide, head in zip(texts, wides, HEADS, strict=True)
        ]
        out.append("  ".join(padded).rstrip())
    return out


def _named(row: Row) -> list[str]:
    return [
        row.partition + _more(row),
        row.since,
        row.holder,
        row.waiting and f"{row.waiting} waiting",
        row.do,
        row.finding,
    ]


def _more(row: Row) -> str:
    return f" +{row.more:,}" if row.more else ""


def _shared(left: int, right: int, room: int) -> tuple[int, int]:
    """Widths of two columns that fit: each as wide as it has to be, or half of the room."""
    if left + right <= room:
        return left, right
    half = room // 2
    if right <= half:
        return room - right, right
    return (left, room - left) if left <= half else (room - half, half)
