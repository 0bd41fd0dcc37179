"""What keeps segments on the disk, as lines of a terminal: by cause, by topic, by who wrote what keeps them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from auditor.base.at_rest import Values
from auditor.base.words import plural
from auditor.dashboards.wording import aligned, instant, log_name, size, visible

CAUSES = {
    "log_start_offset": "goes: below the log start",
    "retention_bytes": "goes: by size",
    "retention_ms": "goes: by age",
    "not_old_enough": "not old enough",
    "timestamp_in_the_future": "its newest timestamp lies in the future",
    "size_below_limit": "the log is below its limit of bytes",
    "older_segment": "a segment in front of it stays",
    "high_watermark": "not below the high watermark",
    "not_in_remote_storage": "not copied to remote storage",
    "cleanup_policy": "compacted, not deleted",
    "retention_off": "retention is off",
    "empty": "active and empty",
    "no_timestamps": "no timestamps: the file's time of change decides",
}
HEADS = ("segment", "broker", "size", "what becomes of it", "when", "setting", "note")
MOST = 20  # topics and producers that are listed


def lines(rows: Sequence[Values], every: bool) -> Iterator[str]:
    """Sums by cause, topic and producer, then a line a segment that something unusual keeps, or each."""
    if not rows:
        yield "No segment is in the input.\n"
        return
    aborted = sum(row["aborted_bytes"] for row in rows)
    whole = sum(row["size"] for row in rows)
    yield f"{plural(len(rows), 'segment')}, {size(whole)}, of which {size(aborted)} of aborted transactions\n\n"
    yield from _sums("cause", rows, lambda row: CAUSES[cause(row)])
    yield from _sums("topic and cause", rows, lambda row: f"{row['topic']}: {CAUSES[cause(row)]}")
    held = [row for row in rows if row["kept_by"] == "timestamp_in_the_future"]
    yield from _sums("producer of the newest timestamp, in the future", held, producer)
    yield from _sums("not sure, since", [row for row in rows if row["undecided"]], lambda row: row["undecided"])
    shown = [row for row in rows if every or says_something(row)]
    if shown:
        yield from aligned([HEADS, *(cells(row) for row in shown)])
    if more := len(rows) - len(shown):
        yield f"{plural(more, 'segment')} that retention takes, or leaves, as is normal: --all lists them\n"


def cause(row: Values) -> str:
    """Why a segment goes or stays."""
    return str(row["goes"] or row["kept_by"])


def says_something(row: Values) -> bool:
    """Whether something beside its age and the limits keeps a segment."""
    return cause(row) in (
        "timestamp_in_the_future",
        "older_segment",
        "no_timestamps",
    ) or (cause(row) in ("high_watermark", "not_in_remote_storage") and not row["active"])


def producer(row: Values) -> str:
    """Who wrote the largest timestamp of a segment."""
    if row["producer_id"] < 0:
        return "none (not idempotent)"
    return row["transactional_id"] or f"producer {row['producer_id']}"


def cells(row: Values) -> tuple[str, ...]:
    """A segment under :data:`HEADS`."""
    when = "" if row["goes_at"] is None else f"{instant(row['goes_at'])}"
    by = "" if row["setting"] is None else f"{row['setting']} ({row['setting_by']})"
    return (
        f"{log_name(row)}/{row['base_offset']}",
        "–" if row["broker_id"] is None else str(row["broker_id"]),
        size(row["size"]),
        CAUSES[cause(row)],
        "next check" if row["goes"] else when,
        by,
        visible(note(row)),
    )


def note(row: Values) -> str:
    """What else there is to know of it."""
    said = []
    if row["kept_by"] == "timestamp_in_the_future":
        said.append(f"{instant(row['largest_timestamp'])} at offset {row['largest_offset']}, of {producer(row)}")
    if row["kept_by_file"] is not None:
        said.append(f"behind {row['kept_by_file'].rpartition('/')[2]}")
    if row["held_from"] is not None:
        said.append(f"a transaction is open at {row['held_from']}")
    return "; ".join(said)


def _sums(title: str, rows: Sequence[Values], of: Callable[[Values], str]) -> Iterator[str]:
    if not rows:
        return
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for row in rows:
        sums[of(row)][0] += row["size"]
        sums[of(row)][1] += 1
    largest = sorted(sums.items(), key=lambda item: (-item[1][0], item[0]))
    yield from aligned(
        [("size", "segments", title), *((size(b), str(n), visible(name)) for name, (b, n) in largest[:MOST])]
    )
    if (more := len(largest) - MOST) > 0:
        yield f"and {more} more\n"
    yield "\n"
