"""Tables and lists as lines of a terminal."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from auditor.base.advice import pieces
from auditor.base.at_rest import Values
from auditor.base.words import duration, plural
from auditor.dashboards import page
from auditor.dashboards.wording import STATUSES, instant, log_name, number, size


def _lines(template: str, **content: object) -> Iterator[str]:
    return (f"{line}\n" for line in page.lines(template, None, **content))


# ``auditor cleaner``.


HELD = {
    "active_segment": "",
    "last_stable_offset": "the last stable offset",
    "min_compaction_lag": "min.compaction.lag.ms",
}


def cleaner_lines(rows: Sequence[Values], every: bool) -> Iterator[str]:
    """Yield the sums and one line per replica with something to clean, or, with ``every``, for all."""
    rows = sorted(rows, key=lambda row: row["stands"] != "held")
    shown = [row for row in rows if every or cleaner_row_matters(row)]
    counts, unsure = Counter(row["stands"] for row in rows), Counter(filter(None, (row["undecided"] for row in rows)))
    return _lines("cleaner.txt.j2", rows=rows, shown=shown, counts=counts, unsure=unsure, note=cleaner_note)


def cleaner_row_matters(row: Values) -> bool:
    """Whether more than the active segment is to be cleaned, or something prevents it."""
    return row["stands"] != "clean" or row["held_by"] != "active_segment"


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
        who = "" if producer is None else f", open by {row['held_by_transaction'] or f'producer id {producer}'}"
        since = f" since {instant(row['held_began_at'])}" if row["held_began_at"] else ""
        until = f" until {instant(row['held_until_at'])}" if row["held_until_at"] else who + since
        bytes_behind = f"; {size(row['held_bytes'])} above it not cleaned" if row["held_bytes"] > 0 else ""
        notes.append(f"held at offset {row['held_offset']} by {HELD[row['held_by']]}{until}{bytes_behind}")
    if row["horizons"]:
        notes.append(
            f"{plural(row['horizons'], 'batch')} with a delete horizon, from {instant(row['first_horizon_at'])} on"
        )
    return "; ".join(notes)


# ``auditor space``.


CAUSES = {
    "log_start_offset": "deleted: below the log start",
    "retention_bytes": "deleted: retention by size",
    "retention_ms": "deleted: retention by time",
    "not_old_enough": "not old enough",
    "timestamp_in_the_future": "its newest timestamp is in the future",
    "size_below_limit": "log size is below its retention limit",
    "older_segment": "an older segment is retained",
    "high_watermark": "not below the high watermark",
    "not_in_remote_storage": "not copied to remote storage",
    "cleanup_policy": "compacted, not deleted",
    "retention_off": "retention is off",
    "empty": "active and empty",
    "no_timestamps": "no timestamps: file modification time decides",
}
MOST = 20  # topics and producers that are listed


def space_lines(rows: Sequence[Values], every: bool) -> Iterator[str]:
    """Yield sums by cause, topic and producer, then one line per segment that is retained unusually, or, with
    ``every``, for all."""
    in_future = [row for row in rows if row["kept_by"] == "timestamp_in_the_future"]
    tables = (
        ("cause", _sums(rows, cause)),
        ("topic and cause", _sums(rows, lambda row: f"{row['topic']}: {cause(row)}")),
        ("producer of the newest timestamp, in the future", _sums(in_future, producer)),
        ("inconclusive", _sums([row for row in rows if row["undecided"]], lambda row: row["undecided"])),
    )
    shown = [row for row in rows if every or space_row_matters(row)]
    return _lines("space.txt.j2", rows=rows, shown=shown, tables=tables, cause=cause, note=space_note, most=MOST)


def cause(row: Values) -> str:
    """Return why a segment is deleted or retained, in words."""
    return CAUSES[row["goes"] or row["kept_by"]]


def space_row_matters(row: Values) -> bool:
    """Whether something other than its age and the limits retains a segment."""
    kept_by = row["goes"] or row["kept_by"]
    return kept_by in ("timestamp_in_the_future", "older_segment", "no_timestamps") or (
        kept_by in ("high_watermark", "not_in_remote_storage") and not row["active"]
    )


def producer(row: Values) -> str:
    """Return who wrote the largest timestamp of a segment."""
    if row["producer_id"] < 0:
        return "none (not idempotent)"
    return row["transactional_id"] or f"producer id {row['producer_id']}"


def space_note(row: Values) -> str:
    """Return timestamps in the future, and what else retains a segment."""
    notes = []
    if row["kept_by"] == "timestamp_in_the_future":
        notes.append(f"{instant(row['largest_timestamp'])} at offset {row['largest_offset']}, from {producer(row)}")
    if row["kept_by_file"] is not None:
        notes.append(f"retained by {row['kept_by_file'].rpartition('/')[2]}")
    if row["held_offset"] is not None:
        notes.append(f"open transaction at offset {row['held_offset']}")
    return "; ".join(notes)


def _sums(rows: Sequence[Values], of: Callable[[Values], str]) -> list[tuple[str, int, int]]:
    # The bytes and the number of segments by name, the largest first.
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for row in rows:
        sums[of(row)][0] += row["bytes"]
        sums[of(row)][1] += 1
    return [(name, sums[name][0], sums[name][1]) for name in sorted(sums, key=lambda name: (-sums[name][0], name))]


# ``auditor lag``.


def lag_lines(rows: Sequence[Values], every: bool) -> Iterator[str]:
    """Yield the sums and one line per position with lag, or, with ``every``, for all."""
    shown = [row for row in rows if every or lag_row_matters(row)]
    undecided = sum(row["undecided"] is not None for row in rows)
    return _lines(
        "lag.txt.j2", rows=rows, shown=shown, undecided=undecided, between=_between, since=since, note=lag_note
    )


def lag_row_matters(row: Values) -> bool:
    """Whether a position has lag or is invalid."""
    return bool(row["offsets"]) or row["undecided"] is not None or row["stands"] in ("beyond_end", "before_start")


def since(row: Values) -> str:
    """Return since when the first record waits for read_committed consumers, by brokers' clocks."""
    earliest, latest = row["readable_earliest_at"], row["readable_latest_at"]
    if latest is not None:
        return instant(latest) if earliest == latest else f"{instant(latest)} at the latest"
    return "" if earliest is None else f"{instant(earliest)} at the earliest"


def lag_note(row: Values) -> str:
    """Return what is unusual about a position."""
    if row["undecided"] is not None:
        return f"inconclusive: {row['undecided']}"
    notes = []
    if row["stands"] == "beyond_end":
        notes.append(f"past the log end offset {row['end_offset']}: auto.offset.reset decides")
    elif row["stands"] == "before_start":
        decides = "" if row["kind"] == "share" else "auto.offset.reset decides; "  # a share group needs no reset
        notes.append(f"below the log start {row['log_start']}: {decides}counted from the log start")
    elif row["stands"] in ("gap", "marker"):
        notes.append(f"at a {row['stands']}")
    if row["held_producer_id"] is not None:
        who = row["held_by"] or f"producer id {row['held_producer_id']}"
        began = f" since {instant(row['held_began_at'])}" if row["held_began_at"] else ""
        status = STATUSES.get(row["held_class"], row["held_class"])
        notes.append(f"blocked at {row['last_stable_offset']} by {who} ({status}){began}")
    if row["pending_offset"] is not None:
        notes.append(f"pending commit of {row['pending_offset']} (open transaction)")
    hidden = [f"{number(row['aborted_records'])} aborted"] if row["aborted_records"] else []
    hidden += [plural(row["marker_offsets"], "marker")] if row["marker_offsets"] else []
    hidden += [f"{number(row['missing_offsets'])} removed"] if row["missing_offsets"] else []
    return "; ".join([*notes, *([", ".join(hidden)] if hidden else [])])


def _between(least: int | None, most: int | None) -> str:
    return number(least) if least == most else f"{number(least)} to {number(most)}"


# ``auditor impact``, and its section of the page.


IMPACT_SHOWN = 100  # ranges


def impact_lines(rows: Sequence[Values], every: bool, unlisted: int = 0) -> Iterator[str]:
    """Yield the sums by outcome, and one line per range: the first ones, or, with ``every``, all.

    ``unlisted``: number of findings whose records may be lost too, without a row.
    """
    shown = rows if every else rows[:IMPACT_SHOWN]
    functions = {"offsets": _offsets, "producer": _impacted_producer, "note": impact_note}
    note = unlisted_note(unlisted) if unlisted else ""
    return _lines("impact.txt.j2", rows=rows, shown=shown, counts=impact_counts(rows), unlisted=note, **functions)


def unlisted_note(count: int) -> str:
    """Return the line about findings without a row."""
    return f"{plural(count, 'finding')} without a row: records may be lost or unreadable"


def impact_counts(rows: Iterable[Values]) -> dict[str, dict[str, int]]:
    """Return ranges, records and bytes by outcome; what several replicas have counts once."""
    key = ("outcome", "topic", "partition", "first_offset", "last_offset", "producer_id", "finding")
    once = {
        tuple(row.get(name) for name in key[: 6 if row.get("first_offset") is not None else 7]): row for row in rows
    }
    counts: dict[str, dict[str, int]] = defaultdict(lambda: {"ranges": 0, "records": 0, "bytes": 0})
    for row in once.values():
        count = counts[row["outcome"]]
        count["ranges"] += 1
        for name in ("records", "bytes"):
            count[name] += row.get(name) or 0
    return dict(counts)


def _offsets(row: Values) -> str:
    first, last = row.get("first_offset"), row.get("last_offset")
    if first is None:
        return "" if row.get("first_sequence") is None else f"sequence {row['first_sequence']} on"
    return f"{first}" if first == last else f"{first} to {last}"


def _impacted_producer(row: Values) -> str:
    producer_id = row.get("producer_id")
    return row.get("transactional_id") or ("" if producer_id is None else f"producer id {producer_id}")


def impact_note(row: Values) -> str:
    """Return what is known of other copies and of consumers."""
    notes = [f"also on {row['other_log_dir']}"] if row.get("other_log_dir") else []
    if row.get("sent_again"):
        notes.append(f"sent again at offset {row['sent_again_offset']}")
    if row.get("groups"):
        notes.append(f"{plural(len(row['groups']), 'group')} past it: {', '.join(row['groups'][:3])}")
    return "; ".join([*notes, *filter(None, (row.get("undecided"),))])


# ``auditor compare``, and its page.


def comparison_lines(
    rows: Sequence[Values], partitions: int, records: tuple[int, int], incomplete: bool, every: bool = False
) -> Iterator[str]:
    """Yield the sums by kind, and one line per range: the first ones, or, with ``every``, all.

    ``incomplete``: whether part of the input was not read.
    """
    rows = rows if every else without_right_groups(rows)
    shown = rows if every else rows[:IMPACT_SHOWN]
    functions = {"offsets": compared_offsets, "place": compared_place}
    content = {"rows": rows, "shown": shown, "counts": comparison_counts(rows), "partitions": partitions}
    return _lines("comparison.txt.j2", records=records, incomplete=incomplete, **content, **functions)


def without_right_groups(rows: Iterable[Values]) -> list[Values]:
    """Return the rows that are listed without ``--all``."""
    return [row for row in rows if row["kind"] != "group_right"]


def comparison_counts(rows: Iterable[Values]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return ranges and records (None: unknown) by kind and by why it is no difference, empty where it is one."""
    counts: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        unsure = row["kind"] == "unread" or (row["note"] or "").startswith("inconclusive")
        why = "" if row["differs"] else "inconclusive" if unsure else "explained"
        count = counts.setdefault((row["kind"], why), {"ranges": 0, "records": None})
        count["ranges"] += 1
        if row["records"] is not None:
            count["records"] = (count["records"] or 0) + row["records"]
    return counts


def compared_place(row: Values, side: str) -> str:
    """Return the topic and partition of a side (``other_``: B), as far as known."""
    topic, partition = row[f"{side}topic"], row[f"{side}partition"]
    return topic or "" if partition is None else f"{topic}-{partition}"


def compared_offsets(row: Values, side: str) -> str:
    """Return the offsets of a side; of records that it lacks, those around them."""
    first, last = row[f"{side}first_offset"], row[f"{side}last_offset"]
    if first is None and last is None:
        return ""
    kinds, who = (("missing", "behind"), "B lacks") if side else (("extra",), "A lacks")
    if row["kind"] in kinds or (row["note"] or "").startswith(who):
        return " and ".join(
            filter(None, ("" if first is None else f"after {first}", "" if last is None else f"before {last}"))
        )
    if last is None:
        return f"from {first}" if row["kind"] == "unread" else f"{first}"
    return f"{first}" if first == last else f"{first} to {last}"


# ``auditor audit --plan``.


MOST_DIRS = 20


def plan_lines(plan: Values) -> Iterator[str]:
    """Yield the lines of a plan of :mod:`auditor.pipeline.plan`."""
    return _lines("plan.txt.j2", plan=plan, most=MOST_DIRS, span=_span)


def _span(values: list[float]) -> str:
    least, most = (duration(max(1, round(value)) * 1000) for value in values)
    return least if least == most else f"{least} to {most}"


# ``auditor recheck``.

# What is printed for an answer, where that differs from its value in JSON.
ANSWERS = {
    "over": "resolved", "still held": "still blocked", "held by another": "blocked by another transaction",
    "not decided": "inconclusive", "gone": "resolved", "still there": "still present", "not looked at": "not checked",
}  # fmt: skip


def recheck_lines(rows: Sequence[Values], notes: Sequence[str], width: int) -> list[str]:
    """Return the counts by answer, then each question with its answer and, if it is still open, what to do; each advice
    once.

    ``rows``: of :meth:`auditor.outputs.recheck.AnsweredQuestion.row`; ``notes``: what was not compared.
    """
    answered, printed = [], set()
    for row in rows:
        advice = tuple(_advice(row))
        answered.append((row, () if advice in printed else advice))
        printed.add(advice)
    counts = Counter(row["answer"] for row in rows)
    return page.lines("recheck.txt.j2", width, rows=answered, counts=counts, notes=notes, answers=ANSWERS)


def _advice(row: Values) -> list[tuple[str, str]]:
    if row["answer"] in ("over", "gone"):
        return []
    advice = (row["blocked"] or {}).get("advice") or (row["finding"] or {}).get("advice")
    return pieces(advice) if advice else []


# Cards of the page: groups of blocked partitions, disk space, log cleaner.


MAX_ROWS = 20  # of each on a page
TITLES = {
    "group": ("Consumer lag in blocked partitions", "auditor lag"),
    "space": ("Segments retained by a timestamp in the future", "auditor space"),
    "cleaner": ("Log cleaner held back", "auditor cleaner"),
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
        return f"inconclusive: {row['undecided']}"
    least, most = row["committed_records"] or 0, row["committed_most"] or 0
    now = plural(least, "record") if least == most else f"{number(least)} to {number(most)} records"
    waiting = plural(row["waiting_records"] or 0, "decided record")
    return (
        f"{now} readable now; above the LSO: {waiting}, {number(row['open_records'])} of open transactions; "
        f"lag {plural(row['offsets'] or 0, 'offset')}"
    )


class ImpactCard(NamedTuple):
    """Sums by outcome and the first ranges. ``more``: how many are not among these; ``unlisted``: about findings
    without a range."""

    counts: dict[str, dict[str, int]]
    lines: list[PartitionLine]
    more: int
    unlisted: str


def impact_card(section: Values | None) -> ImpactCard:
    """Return the card of the summary's ``impact``; empty for a run of an earlier release."""
    section = section or {}
    rows = section.get("rows") or ()
    lines = [
        PartitionLine(
            f"{log_name(row)}, {_offsets(row) or 'no offsets'}",
            "; ".join(filter(None, (row["outcome"], _impacted_producer(row), impact_note(row)))),
        )
        for row in rows[:MAX_ROWS]
    ]
    more, unlisted = section.get("left_out", 0) + len(rows) - len(lines), section.get("unlisted", 0)
    return ImpactCard(section.get("outcomes") or {}, lines, more, unlisted_note(unlisted) if unlisted else "")


# ``auditor rehearse``, and its section of the page.


REHEARSAL_SHOWN = 50  # risks of a broker
# What is counted under each risk above info; without a noun: of the broker itself.
RISK_WORDS = {
    "start_fails": ("reason", "why it does not start again"),
    "quorum_lost": ("", "no majority of controllers left"),
    "offline": ("partition", "without a leader"),
    "marker_skipped": ("marker", "that may be skipped (KAFKA-20734)"),
    "unclean_election": ("unclean election", ""),
    "below_min_isr": ("partition", "below min.insync.replicas"),
    "coordinator_offline": ("client", "without a coordinator (transactional ids, groups)"),
    "transaction_waits": ("transaction", "that cannot end"),
    "start_loses": ("partition", "that its start drops"),
    "recovery_cuts": ("log", "that recovery truncates"),
    "one_copy": ("partition", "with one in-sync replica left"),
    "one_rack": ("partition", "with in-sync replicas in one rack only"),
    "already_offline": ("partition", "without a leader already"),
    "not_running": ("", "fenced or shutting down already"),
}


def rehearsal_lines(row: Values, every: bool) -> Iterator[str]:
    """Yield the answer of ``auditor rehearse``: of each broker the first risks above info, or, with ``every``, all."""

    def shown(risks: Sequence[Values]) -> Sequence[Values]:
        return risks if every else [risk for risk in risks if _matters(risk)][:REHEARSAL_SHOWN]

    return _lines("rehearsal.txt.j2", row=row, shown=shown)


def _matters(risk: Values) -> bool:
    return risk["severity"] != "info" or risk["risk"] == "unknown"


def _risk(risk: str, count: int) -> str:
    noun, what = RISK_WORDS.get(risk, ("risk", risk.replace("_", " ")))
    return f"{plural(count, noun) if noun else ''} {what}".strip()


def rehearsal_card(section: Values | None) -> list[PartitionLine]:
    """Return a line per broker and way to stop that has risks; ``section``: the summary's ``rehearsal``."""
    return [
        PartitionLine(
            f"Broker {row['broker_id']} {'killed' if row['how'] == 'kill' else 'stopped'}",
            "; ".join(_risk(*counted) for counted in row["risks"].items()),
        )
        for row in (section or {}).get("brokers", ())
        if row["risks"]
    ][:MAX_ROWS]
