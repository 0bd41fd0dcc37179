"""What groups have left to read, as lines of a terminal and rows of a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from auditor.base.at_rest import Values
from auditor.base.words import plural
from auditor.dashboards.wording import aligned, instant, log_name, number, visible

HEADS = ("group", "partition", "position", "offsets", "committed", "uncommitted", "behind a hold", "since", "note")


def lines(rows: Sequence[Values], every: bool) -> Iterator[str]:
    """A line a position with something left, or all; first what they come to, last what was left out."""
    if not rows:
        yield "No group has an offset in these logs.\n"
        return
    yield f"{summary(rows)}\n"
    shown = [row for row in rows if every or says_something(row)]
    if shown:
        yield "\n"
        yield from aligned([HEADS, *(cells(row) for row in shown)])
    if more := len(rows) - len(shown):
        yield f"\n{plural(more, 'position')} at the end, with nothing left: --all lists them\n"


def summary(rows: Sequence[Values]) -> str:
    """What all positions come to, in a sentence."""
    groups = len({row["group_id"] for row in rows})
    committed, uncommitted, offsets = (
        sum(row[name] or 0 for row in rows) for name in ("committed_records", "uncommitted_records", "offsets")
    )
    undecided = sum(row["undecided"] is not None for row in rows)
    text = (
        f"{plural(groups, 'group')}, {plural(len(rows), 'position')}: {plural(offsets, 'offset')} left, of which "
        f"read_committed readers get {plural(committed, 'record')} at present, read_uncommitted ones "
        f"{number(uncommitted)}"
    )
    return text + (f"; {plural(undecided, 'position')} not decided" if undecided else "")


def says_something(row: Values) -> bool:
    """Whether something is left of a position, or it is no good one."""
    return bool(row["offsets"]) or row["undecided"] is not None or row["stands"] in ("beyond_end", "before_start")


def cells(row: Values) -> tuple[str, ...]:
    """A position under :data:`HEADS`."""
    at = row["committed_offset"]
    behind = (row["waiting_records"] or 0) + (row["open_records"] or 0)
    return (
        row["group_id"] + (" (share)" if row["kind"] == "share" else ""),
        log_name(row),
        "–" if at is None else str(at),
        number(row["offsets"]),
        _between(row["committed_records"], row["committed_most"]),
        _between(row["uncommitted_records"], row["uncommitted_most"]),
        number(behind) if row["held_producer_id"] is not None else "",
        since(row),
        visible(note(row)),
    )


def since(row: Values) -> str:
    """Since when the first record waits for a read_committed reader, by brokers' clocks."""
    earliest, latest = row["since_not_before"], row["since_not_after"]
    if latest is not None:
        return instant(latest) if earliest == latest else f"{instant(latest)} at the latest"
    return "" if earliest is None else f"{instant(earliest)} at the earliest"


def note(row: Values) -> str:
    """What else there is to know of a position."""
    if row["undecided"] is not None:
        return f"not decided: {row['undecided']}"
    said = []
    if row["stands"] == "beyond_end":
        said.append(f"beyond the end {row['end_offset']}: auto.offset.reset decides")
    elif row["stands"] == "before_start":
        decides = "" if row["kind"] == "share" else "auto.offset.reset decides; "  # a share group goes on at the start
        said.append(f"before the start {row['log_start']}: {decides}counted from the start")
    elif row["stands"] in ("gap", "marker"):
        said.append(f"at a {row['stands']}")
    if row["held_producer_id"] is not None:
        who = row["held_by"] or f"producer {row['held_producer_id']}"
        began = f" since {instant(row['held_since'])}" if row["held_since"] else ""
        said.append(f"held at {row['last_stable_offset']} by {who} ({row['held_class']}){began}")
    if row["pending_offset"] is not None:
        said.append(f"a commit of {row['pending_offset']} waits for its transaction")
    hidden = [f"{number(row['aborted_records'])} aborted"] if row["aborted_records"] else []
    hidden += [plural(row["marker_offsets"], "marker")] if row["marker_offsets"] else []
    hidden += [f"{number(row['missing_offsets'])} gone"] if row["missing_offsets"] else []
    return "; ".join([*said, *([", ".join(hidden)] if hidden else [])])


def _between(least: int | None, most: int | None) -> str:
    return number(least) if least == most else f"{number(least)} to {number(most)}"
