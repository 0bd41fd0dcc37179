"""What a run says beside its findings: groups behind a hold, disks, cleaners; for the page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from auditor.base.at_rest import Values
from auditor.base.words import plural
from auditor.dashboards.wording import log_name, number, size

MAX_ROWS = 20  # of each on a page
TITLES = {
    "group": ("What the groups that read held partitions have left", "auditor lag"),
    "space": ("Segments that a timestamp in the future keeps on the disk", "auditor space"),
    "cleaner": ("Where the log cleaner is held", "auditor cleaner"),
}


class Line(NamedTuple):
    """A partition with its broker, if that matters, and what is said of it."""

    where: str
    says: str


class Card(NamedTuple):
    """Lines under a title; ``more`` were left out; ``command`` has all of it."""

    title: str
    command: str
    lines: list[Line]
    more: int


def cards(rows: Iterable[Values]) -> list[Card]:
    """The cards that have something to say; ``rows``: the summary's ``asides``."""
    of: dict[str, list[Line]] = {about: [] for about in TITLES}
    for row in rows:
        if row["about"] in of:
            of[row["about"]].append(_line(row))
    return [
        Card(*TITLES[about], lines[:MAX_ROWS], max(0, len(lines) - MAX_ROWS)) for about, lines in of.items() if lines
    ]


def _line(row: Values) -> Line:
    if row["about"] == "group":
        return Line(f"{log_name(row)}, group {row['group_id']}", _left(row))
    broker = "" if row["broker_id"] is None else f", broker {row['broker_id']}"
    return Line(f"{log_name(row)}{broker}", f"{row['says']} ({size(row['bytes'])})")


def _left(row: Values) -> str:
    if row["undecided"]:
        return f"not decided: {row['undecided']}"
    least, most = row["committed_records"] or 0, row["committed_most"] or 0
    now = plural(least, "record") if least == most else f"{number(least)} to {number(most)} records"
    waiting = plural(row["waiting_records"] or 0, "decided record")
    return (
        f"{now} at present; {waiting} and {number(row['open_records'])} of open transactions behind the hold; "
        f"{number(row['offsets'])} by offsets"
    )
