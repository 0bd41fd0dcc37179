"""Where the log cleaner stands, as lines of a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from auditor.base.at_rest import Values
from auditor.base.words import plural
from auditor.dashboards.wording import aligned, instant, log_name, number, size, visible

HEADS = ("partition", "broker", "stands", "cleaned to", "dirty", "ratio", "cleanable", "left alone", "note")
HELD = {
    "active_segment": "",
    "last_stable_offset": "the last stable offset",
    "min_compaction_lag": "min.compaction.lag.ms",
}


def lines(rows: Sequence[Values], every: bool) -> Iterator[str]:
    """A line a replica in which there is something to clean, or all; first what they come to."""
    if not rows:
        yield "No compacted log is in the input.\n"
        return
    counts = Counter(row["stands"] for row in rows)
    yield f"{plural(len(rows), 'compacted log')}: {', '.join(f'{n} {s}' for s, n in counts.items())}\n"
    for why, n in Counter(row["undecided"] for row in rows if row["undecided"]).items():
        yield f"not sure of {plural(n, 'log')}: {visible(why)}\n"
    shown = [row for row in rows if every or says_something(row)]
    if shown:
        yield "\n"
        yield from aligned([HEADS, *(cells(row) for row in shown)])
    if more := len(rows) - len(shown):
        yield f"\n{plural(more, 'log')} with nothing to clean but the active segment: --all lists them\n"


def says_something(row: Values) -> bool:
    """Whether a log has more to clean than its active segment, or something keeps it from being cleaned."""
    return row["stands"] != "clean" or row["held_by"] != "active_segment"


def cells(row: Values) -> tuple[str, ...]:
    """A log under :data:`HEADS`."""
    return (
        log_name(row),
        str(row["broker_id"]) if row["broker_id"] is not None else "–",
        row["stands"],
        "–" if row["checkpoint"] is None else str(row["checkpoint"]),
        number(row["dirty_offsets"]),
        f"{row['dirty_ratio']:.2f} of {row['min_dirty_ratio']:.2f}",
        size(row["cleanable_bytes"]),
        size(row["uncleanable_bytes"]),
        visible(note(row)),
    )


def note(row: Values) -> str:
    """What else there is to know of it."""
    said = []
    if row["fault"] is not None:
        at = f" at offset {row['fault_offset']}" if row["fault_offset"] >= 0 else ""
        said.append(f"{row['fault']}{at}, byte {row['fault_position']} of {row['fault_file']}")
    if row["due_because"] == "max_compaction_lag":
        said.append("due by max.compaction.lag.ms")
    if HELD[row["held_by"]]:
        producer = row["held_producer_id"]
        who = "" if producer is None else f", open by {row['held_by_transaction'] or f'producer {producer}'}"
        until = f" until {instant(row['held_until'])}" if row["held_until"] else who
        said.append(f"held at {row['first_uncleanable_offset']} by {HELD[row['held_by']]}{until}")
    if row["horizons"]:
        said.append(
            f"{plural(row['horizons'], 'batch')} with a delete horizon, from {instant(row['first_horizon'])} on"
        )
    return "; ".join(said)
