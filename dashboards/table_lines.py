"""Tables and lists as lines of a terminal."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from auditor.base.advice import pieces
from auditor.base.at_rest import Values
from auditor.base.words import duration, plural
from auditor.dashboards.wording import aligned, instant, log_name, number, size, step_lines, visible, wrap

# ``auditor cleaner``.


CLEANER_HEADS = ("partition", "broker", "stands", "cleaned to", "dirty", "ratio", "cleanable", "left alone", "note")
HELD = {
    "active_segment": "",
    "last_stable_offset": "the last stable offset",
    "min_compaction_lag": "min.compaction.lag.ms",
}


def cleaner_lines(rows: Sequence[Values], every: bool) -> Iterator[str]:
    """Yield the sums and one line per replica with something to clean, or, with ``every``, for all."""
    if not rows:
        yield "No compacted log is in the input.\n"
        return
    rows = sorted(rows, key=lambda row: row["stands"] != "held")
    counts = Counter(row["stands"] for row in rows)
    yield f"{plural(len(rows), 'compacted log')}: {', '.join(f'{n} {s}' for s, n in counts.items())}\n"
    for why, n in Counter(row["undecided"] for row in rows if row["undecided"]).items():
        yield f"not sure of {plural(n, 'log')}: {visible(why)}\n"
    shown = [row for row in rows if every or cleaner_row_matters(row)]
    if shown:
        yield "\n"
        yield from aligned([CLEANER_HEADS, *(cleaner_cells(row) for row in shown)])
    if more := len(rows) - len(shown):
        yield f"\n{plural(more, 'log')} with nothing to clean but the active segment: --all lists them\n"


def cleaner_row_matters(row: Values) -> bool:
    """Whether more than the active segment is to be cleaned, or something prevents it."""
    return row["stands"] != "clean" or row["held_by"] != "active_segment"


def cleaner_cells(row: Values) -> tuple[str, ...]:
    """Return a row under :data:`CLEANER_HEADS`."""
    return (
        log_name(row),
        str(row["broker_id"]) if row["broker_id"] is not None else "–",
        row["stands"],
        "–" if row["checkpoint"] is None else str(row["checkpoint"]),
        number(row["dirty_offsets"]),
        f"{row['dirty_ratio']:.2f} of {row['min_dirty_ratio']:.2f}",
        size(row["cleanable_bytes"]),
        size(row["uncleanable_bytes"]),
        visible(cleaner_note(row)),
    )


def cleaner_note(row: Values) -> str:
    """Return faults, deadlines and what prevents cleaning."""
    notes = []
    if row["fault"] is not None:
        offset = f" at offset {row['fault_offset']}" if row["fault_offset"] >= 0 else ""
        notes.append(f"{row['fault']}{offset}, byte {row['fault_position']} of {row['fault_file']}")
    if row["due_because"] == "max_compaction_lag":
        notes.append("due by max.compaction.lag.ms")
    if HELD[row["held_by"]]:
        producer = row["held_producer_id"]
        who = "" if producer is None else f", open by {row['held_by_transaction'] or f'producer {producer}'}"
        since = f" since {instant(row['held_since'])}" if row["held_since"] else ""
        until = f" until {instant(row['held_until'])}" if row["held_until"] else who + since
        bytes_behind = f"; {size(row['held_bytes'])} behind it wait" if row["held_bytes"] > 0 else ""
        notes.append(f"held at offset {row['held_at']} by {HELD[row['held_by']]}{until}{bytes_behind}")
    if row["horizons"]:
        notes.append(
            f"{plural(row['horizons'], 'batch')} with a delete horizon, from {instant(row['first_horizon'])} on"
        )
    return "; ".join(notes)


# ``auditor space``.


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
SPACE_HEADS = ("segment", "broker", "size", "what becomes of it", "when", "setting", "note")
MOST = 20  # topics and producers that are listed


def space_lines(rows: Sequence[Values], every: bool) -> Iterator[str]:
    """Yield sums by cause, topic and producer, then one line per segment that is retained unusually, or, with
    ``every``, for all."""
    if not rows:
        yield "No segment is in the input.\n"
        return
    aborted = sum(row["aborted_bytes"] for row in rows)
    whole = sum(row["size"] for row in rows)
    yield f"{plural(len(rows), 'segment')}, {size(whole)}, of which {size(aborted)} of aborted transactions\n\n"
    yield from _sums("cause", rows, lambda row: CAUSES[cause(row)])
    yield from _sums("topic and cause", rows, lambda row: f"{row['topic']}: {CAUSES[cause(row)]}")
    in_future = [row for row in rows if row["kept_by"] == "timestamp_in_the_future"]
    yield from _sums("producer of the newest timestamp, in the future", in_future, producer)
    yield from _sums("not sure, since", [row for row in rows if row["undecided"]], lambda row: row["undecided"])
    shown = [row for row in rows if every or space_row_matters(row)]
    if shown:
        yield from aligned([SPACE_HEADS, *(space_cells(row) for row in shown)])
    if more := len(rows) - len(shown):
        yield f"{plural(more, 'segment')} that retention takes, or leaves, as is normal: --all lists them\n"


def cause(row: Values) -> str:
    """Return why a segment is deleted or retained, a key of :data:`CAUSES`."""
    return str(row["goes"] or row["kept_by"])


def space_row_matters(row: Values) -> bool:
    """Whether something other than its age and the limits retains a segment."""
    return cause(row) in ("timestamp_in_the_future", "older_segment", "no_timestamps") or (
        cause(row) in ("high_watermark", "not_in_remote_storage") and not row["active"]
    )


def producer(row: Values) -> str:
    """Return who wrote the largest timestamp of a segment."""
    if row["producer_id"] < 0:
        return "none (not idempotent)"
    return row["transactional_id"] or f"producer {row['producer_id']}"


def space_cells(row: Values) -> tuple[str, ...]:
    """Return a row under :data:`SPACE_HEADS`."""
    when = "" if row["goes_at"] is None else f"{instant(row['goes_at'])}"
    by = "" if row["setting"] is None else f"{row['setting']} ({row['setting_by']})"
    return (
        f"{log_name(row)}/{row['base_offset']}",
        "–" if row["broker_id"] is None else str(row["broker_id"]),
        size(row["size"]),
        CAUSES[cause(row)],
        "next check" if row["goes"] else when,
        by,
        visible(space_note(row)),
    )


def space_note(row: Values) -> str:
    """Return timestamps in the future, and what else retains a segment."""
    notes = []
    if row["kept_by"] == "timestamp_in_the_future":
        notes.append(f"{instant(row['largest_timestamp'])} at offset {row['largest_offset']}, of {producer(row)}")
    if row["kept_by_file"] is not None:
        notes.append(f"behind {row['kept_by_file'].rpartition('/')[2]}")
    if row["held_from"] is not None:
        notes.append(f"a transaction is open at {row['held_from']}")
    return "; ".join(notes)


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


# ``auditor lag``.


LAG_HEADS = ("group", "partition", "position", "offsets", "committed", "uncommitted", "behind a hold", "since", "note")


def lag_lines(rows: Sequence[Values], every: bool) -> Iterator[str]:
    """Yield the sums and one line per position with lag, or, with ``every``, for all."""
    if not rows:
        yield "No group has an offset in these logs.\n"
        return
    yield f"{summary(rows)}\n"
    shown = [row for row in rows if every or lag_row_matters(row)]
    if shown:
        yield "\n"
        yield from aligned([LAG_HEADS, *(lag_cells(row) for row in shown)])
    if more := len(rows) - len(shown):
        yield f"\n{plural(more, 'position')} at the end, with nothing left: --all lists them\n"


def summary(rows: Sequence[Values]) -> str:
    """Return the sums of all positions in a sentence."""
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


def lag_row_matters(row: Values) -> bool:
    """Whether a position has lag or is invalid."""
    return bool(row["offsets"]) or row["undecided"] is not None or row["stands"] in ("beyond_end", "before_start")


def lag_cells(row: Values) -> tuple[str, ...]:
    """Return a row under :data:`LAG_HEADS`."""
    offset = row["committed_offset"]
    behind = (row["waiting_records"] or 0) + (row["open_records"] or 0)
    return (
        row["group_id"] + (" (share)" if row["kind"] == "share" else ""),
        log_name(row),
        "–" if offset is None else str(offset),
        number(row["offsets"]),
        _between(row["committed_records"], row["committed_most"]),
        _between(row["uncommitted_records"], row["uncommitted_most"]),
        number(behind) if row["held_producer_id"] is not None else "",
        since(row),
        visible(lag_note(row)),
    )


def since(row: Values) -> str:
    """Return since when the first record waits for read_committed consumers, by brokers' clocks."""
    earliest, latest = row["since_not_before"], row["since_not_after"]
    if latest is not None:
        return instant(latest) if earliest == latest else f"{instant(latest)} at the latest"
    return "" if earliest is None else f"{instant(earliest)} at the earliest"


def lag_note(row: Values) -> str:
    """Return what is unusual about a position."""
    if row["undecided"] is not None:
        return f"not decided: {row['undecided']}"
    notes = []
    if row["stands"] == "beyond_end":
        notes.append(f"beyond the end {row['end_offset']}: auto.offset.reset decides")
    elif row["stands"] == "before_start":
        decides = "" if row["kind"] == "share" else "auto.offset.reset decides; "  # a share group goes on at the start
        notes.append(f"before the start {row['log_start']}: {decides}counted from the start")
    elif row["stands"] in ("gap", "marker"):
        notes.append(f"at a {row['stands']}")
    if row["held_producer_id"] is not None:
        who = row["held_by"] or f"producer {row['held_producer_id']}"
        began = f" since {instant(row['held_since'])}" if row["held_since"] else ""
        notes.append(f"held at {row['last_stable_offset']} by {who} ({row['held_class']}){began}")
    if row["pending_offset"] is not None:
        notes.append(f"a commit of {row['pending_offset']} waits for its transaction")
    hidden = [f"{number(row['aborted_records'])} aborted"] if row["aborted_records"] else []
    hidden += [plural(row["marker_offsets"], "marker")] if row["marker_offsets"] else []
    hidden += [f"{number(row['missing_offsets'])} gone"] if row["missing_offsets"] else []
    return "; ".join([*notes, *([", ".join(hidden)] if hidden else [])])


def _between(least: int | None, most: int | None) -> str:
    return number(least) if least == most else f"{number(least)} to {number(most)}"


# ``auditor audit --plan``.


MOST_DIRS = 20


def plan_lines(plan: Values) -> Iterator[str]:
    """Yield the lines of a plan of :mod:`auditor.pipeline.plan`."""
    dirs = plan["log_dirs"]
    rows = [("log directory", "broker", "partitions", "segments", "files", "size")]
    rows += [
        (
            d["log_dir"],
            "–" if d["broker_id"] is None else str(d["broker_id"]),
            number(d["partitions"]),
            number(d["segments"]),
            number(d["files"]),
            size(d["bytes"]),
        )
        for d in dirs[:MOST_DIRS]
    ]
    yield from aligned(rows)
    if len(dirs) > MOST_DIRS:
        yield f"and {plural(len(dirs) - MOST_DIRS, 'more log directory')}; --format json lists all\n"
    topics = [("topics", "partitions", "segments", "size")]
    topics += [(t["kind"], number(t["partitions"]), number(t["segments"]), size(t["bytes"])) for t in plan["topics"]]
    yield "\n"
    yield from aligned(topics)
    yield "\n"
    sentences = (*_beside(plan), _tasks(plan["tasks"]), *_estimate(plan["estimate"]))
    yield from (f"{line}\n" for line in sentences)
    yield from (f"note: {visible(note)}\n" for note in plan["notes"])


def _beside(plan: Values) -> Iterator[str]:
    if plan["remote"]["files"]:
        yield f"beside these {plural(plan['remote']['files'], 'remote file')}, {size(plan['remote']['bytes'])}"
    if plan["not_read"]["files"]:
        left = plan["not_read"]
        yield f"not read: {plural(left['files'], 'file')}, {size(left['bytes'])}"
    if (left := plan["left_out"])["files"]:
        begun = f", {plural(left['begun'], 'copy')} from a later segment on" if left["begun"] else ""
        yield f"left out by the scope: {plural(left['files'], 'file')}, {size(left['bytes'])}{begun}"
    if plan["unreadable"]:
        yield f"cannot be read: {plural(plan['unreadable'], 'file')} (the audit will end with status 3)"


def _tasks(tasks: Values) -> str:
    if tasks["count"] is None:
        how = "shared out when the cluster says how many tasks run at a time"
    else:
        how = f"in {plural(tasks['count'], 'task')}, {tasks['slots']} at a time ({tasks['way']})"
    parts = f", {number(tasks['in_parts'])} of them in parts" if tasks["in_parts"] else ""
    largest = tasks["largest"]
    last = f"; the largest is {visible(largest['name'])}, {size(largest['bytes'])}" if largest else ""
    return f"{plural(tasks['replicas'], 'partition copy')} {how}{parts}{last}"


def _span(values: list[float]) -> str:
    least, most = (duration(max(1, round(value)) * 1000) for value in values)
    return least if least == most else f"{least} to {most}"


def _estimate(estimate: Values) -> Iterator[str]:
    large, small = (size(value) for value in estimate["batches_of_bytes"])
    yield f"Estimates, from batches of {large} to batches of {small}; they depend on the machine:"
    if estimate["seconds"] is None:
        yield f"  time: {_span(estimate['cpu_seconds'])} of one core; divide by the cores of the cluster"
    else:
        yield f"  time: {_span(estimate['seconds'])} ({_span(estimate['cpu_seconds'])} of one core)"
    yield f"  a disk of 500 MiB/s gives these bytes in {_span([estimate['disk_seconds']] * 2)}"
    memory = estimate["memory_bytes"]
    yield f"  memory: driver {size(memory['driver'])}, each worker {size(memory['worker'])}"
    if memory["comparing"]:
        least, most = map(size, memory["comparing"])
        yield f"  the worker that compares the replicas of the largest partition: {least} to {most}"


# ``auditor recheck``.


def recheck_lines(rows: Sequence[Values], notes: Sequence[str], width: int) -> Iterator[str]:
    """Yield the counts by answer, then each question with its answer and, if it is still open, what to do; each advice
    once.

    ``rows``: of :meth:`auditor.outputs.recheck.AnsweredQuestion.row`; ``notes``: what was not compared.
    """
    printed = []
    counts = Counter(row["answer"] for row in rows)
    yield f"{len(rows)} compared: " + ", ".join(f"{count} {answer}" for answer, count in counts.items())
    for row in rows:
        yield ""
        yield from wrap(visible(f"{str(row['answer']).upper()}  {_about(row)}: {row['why']}"), width)
        advice = _advice(row)
        if advice in printed:
            continue
        printed.append(advice)
        yield from step_lines(advice, width)
    yield ""
    for note in notes:
        yield from wrap(f"{note[0].upper()}{note[1:]}.", width)


def _about(row: Values) -> str:
    place = f"{row['topic']}-{row['partition']}"
    place += "" if row["first_offset"] is None else f" at offset {row['first_offset']}"
    if row["fingerprint"] is not None:
        return f"{row['severity']} {row['rule']} {row['fingerprint'][:12]}{f', {place}' if row['topic'] else ''}"
    return f"{place}, by {row['transactional_id'] or 'producer ' + str(row['producer_id'])}"


def _advice(row: Values) -> list[tuple[str, str]]:
    if row["answer"] in ("over", "gone"):
        return []
    advice = (row["blocked"] or {}).get("advice") or (row["finding"] or {}).get("advice")
    return pieces(advice) if advice else []


# Cards of the page: groups of blocked partitions, disk space, log cleaner.


MAX_ROWS = 20  # of each on a page
TITLES = {
    "group": ("What the groups that read held partitions have left", "auditor lag"),
    "space": ("Segments that a timestamp in the future keeps on the disk", "auditor space"),
    "cleaner": ("Where the log cleaner is held", "auditor cleaner"),
}


class PartitionLine(NamedTuple):
    """A partition with its broker, if that matters, and a sentence about it."""

    where: str
    says: str


class Card(NamedTuple):
    """Lines under a title. ``more``: how many are omitted; ``command`` prints all of them."""

    title: str
    command: str
    lines: list[PartitionLine]
    more: int


def cards(rows: Iterable[Values]) -> list[Card]:
    """Return the cards that have lines; ``rows``: the summary's ``asides``."""
    of: dict[str, list[PartitionLine]] = {about: [] for about in TITLES}
    for row in rows:
        if row["about"] in of:
            of[row["about"]].append(_line(row))
    return [
        Card(*TITLES[about], lines[:MAX_ROWS], max(0, len(lines) - MAX_ROWS)) for about, lines in of.items() if lines
    ]


def _line(row: Values) -> PartitionLine:
    if row["about"] == "group":
        return PartitionLine(f"{log_name(row)}, group {row['group_id']}", _left(row))
    broker = "" if row["broker_id"] is None else f", broker {row['broker_id']}"
    return PartitionLine(f"{log_name(row)}{broker}", f"{row['says']} ({size(row['bytes'])})")


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
