"""Judging one log: its findings, and what the summary and the report say of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from auditor.base.errors import DecodeError
from auditor.facts.copy_facts import CopyFacts
from auditor.facts.snapshot_links import Difference
from auditor.rules import blocking, crash_recovery, registry, safety
from auditor.rules.finding import iso
from auditor.rules.open_transactions import OpenTransaction, open_transactions
from auditor.rules.readers import readers
from auditor.rules.view import Cluster, LogView

TIMELINE_TRANSACTIONS = 400  # of one partition, the newest


def judge_log(copies: list[CopyFacts], cluster: Cluster, rule_ids: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Rows of kind finding, log, open, blocked, readers and timeline about one log."""
    log = LogView(copies, cluster)
    catalogue = registry.load()
    for finding in registry.judge(log, (catalogue[i] for i in rule_ids)):
        yield "finding", finding.to_dict()
    opened = open_transactions(log)
    for copy in log.copies:
        yield "log", _log_row(log, copy, opened)
    for t in opened:
        yield "open", _open_row(log, t)
    advice = {int(t.row["first_offset"]): safety.advise(log, t).row() for t in opened}
    for row in blocking.blocked(log, opened):
        yield "blocked", row | {"advice": advice.get(row["first_offset"])}
    for row in readers(log):
        yield "readers", row
    if opened:
        yield "timeline", _timeline(log, opened)


def _log_row(log: LogView, copy: CopyFacts, opened: list[OpenTransaction]) -> dict[str, Any]:
    starts = [max(int(t.row["first_offset"]), copy.log_start) for t in opened] if copy is log.leader else []
    hw = copy.log_end if copy.high_watermark is None else copy.high_watermark
    return {
        "log_dir": copy.log_dir,
        "broker_id": copy.broker_id,
        "topic": copy.topic,
        "partition": copy.partition,
        "leader_copy": copy is log.leader,
        "log_start": copy.log_start,
        "log_end": copy.log_end,
        "high_watermark": copy.high_watermark,
        "hw": hw,
        "lso": min([hw, *starts]),
        "offsets": accounting(copy),
        "chain": chain(copy, cluster_time=log.cluster.as_of),
        "dropped_events": copy.dropped_events or None,
        "producers": copy.sums.get("producers", 0),
        "sums": copy.sums,
        "errors": [e._asdict() for e in (*copy.errors, *_records_in_error(copy))],
        "recovery": crash_recovery.both_runs(copy),
        "notes": _notes(copy),
    }


def _records_in_error(copy: CopyFacts) -> list[DecodeError]:
    """Records of an internal topic that could not be decoded."""
    return [error for _offset, _position, error in copy.unreadable_records] + copy.unknown_records


def _notes(copy: CopyFacts) -> list[str]:
    """What was left out of this log by a text dump, or by a limit of a live audit, in sentences."""
    notes = list(copy.notes)
    name = f"{copy.topic}-{copy.partition}"
    if hidden := copy.cannot_show:
        notes.append(f"{name}: text does not show {', '.join(hidden)}")
    if copy.breaks_off:
        live = "the log was not read to its end"
        what = live if copy.live else "the dump breaks off before the log ends"
        notes.append(f"{name}: {what}, so nothing is said of its end")
    if copy.may_be_cleaned and not copy.topic.startswith("__"):
        notes.append(f"{name}: text does not show whether the topic is compacted, so its holes are taken for cleaning")
    return notes


def accounting(copy: CopyFacts) -> dict[str, int]:
    """Every offset of [log start, log end): data, marker, aborted, compacted away, unreadable or missing."""
    t = copy.transactions
    aborted = t[(t["commit"] == 0) & (t["marker_offset"] >= copy.log_start) & (t["first_offset"] >= copy.log_start)]
    records = int(aborted["records"].sum()) if len(aborted) else 0
    s = copy.sums
    total = copy.log_end - copy.log_start
    out = {
        "data": s["data_offsets"] - min(records, s["data_offsets"]),
        "aborted": min(records, s["data_offsets"]),
        "marker": s["marker_offsets"],
        "compacted": s["hole_offsets_cleaned"],
        "unreadable": s["unreadable_offsets"],
        "missing": s["hole_offsets_intact"],
    }
    rest = total - sum(out.values())
    out["not_reached"] = rest  # behind the last whole batch: an empty or damaged end, never negative in a sound log
    out["total"] = total
    return out


def chain(copy: CopyFacts, cluster_time: int) -> dict[str, Any]:
    """How much of the log is proved by its snapshots: each link replays from one snapshot to the next."""
    links = sorted(copy.snapshots, key=lambda link: link.offset)
    sound = [link for link in links if link.comparable and not _broken(link.differences)]
    proved = sum(max(0, min(link.offset, copy.log_end) - max(link.base, copy.log_start)) for link in sound)
    length = copy.log_end - copy.log_start
    return {
        "snapshots": len(links),
        "proved_links": [link.offset for link in sound][:100],
        "proved": proved,
        "broken": [link.file for link in links if link.comparable and _broken(link.differences)][:100],
        "not_comparable": [link.file for link in links if not link.comparable][:100],
        "fraction": round(proved / length, 4) if length > 0 else None,
    }


def _broken(differences: list[Difference]) -> bool:
    return any(difference.name != "missing" for difference in differences)


def _open_row(log: LogView, t: OpenTransaction) -> dict[str, Any]:
    return {
        "log_dir": log.leader.log_dir,
        "broker_id": log.leader.broker_id,
        "topic": log.topic,
        "partition": log.partition,
        "producer_id": int(t.row["producer_id"]),
        "producer_epoch": int(t.row["producer_epoch"]),
        "transactional_id": t.owner,
        "class": t.klass,
        "why": t.reason,
        "standing": blocking.standing(log, t).value,
        "advice": safety.advise(log, t).row(),
        "in_flight": t.in_flight,
        "first_offset": int(t.row["first_offset"]),
        "last_offset": int(t.row["last_offset"]),
        "since": iso(blocking.since(log, t)),
        "age_ms": blocking.age(log, t),
        "at_least": not log.cluster.clock_given,
        "timeout_ms": t.timeout_ms,
        "state": None if t.entry is None else t.entry.state or "tombstone",
        "batches": int(t.row["batches"]),
        "records": int(t.row["records"]),
        "bytes": int(t.row["bytes"]),
    }


def _timeline(log: LogView, opened: list[OpenTransaction]) -> dict[str, Any]:
    rows = log.leader.transactions
    closed = rows[(rows["marker_offset"] >= log.leader.log_start) & (rows["first_offset"] >= 0)]
    shown = closed[np.argsort(closed["marker_offset"])][-TIMELINE_TRANSACTIONS:]
    classes = {(int(t.row["producer_id"]), int(t.row["first_offset"])): t for t in opened}
    bars = [_bar(log, row, None) for row in shown] + [_bar(log, t.row, t) for t in classes.values()]
    lso = min(max(int(t.row["first_offset"]), log.leader.log_start) for t in opened)
    return {
        "topic": log.topic,
        "partition": log.partition,
        "broker_id": log.leader.broker_id,
        "log_start": log.leader.log_start,
        "log_end": log.leader.log_end,
        "lso": min(lso, log.high_watermark),
        "transactions": bars,
        "truncated": len(closed) - len(shown),
    }


def _bar(log: LogView, row: np.void, opened: OpenTransaction | None) -> dict[str, Any]:
    closed = row["marker_offset"] >= 0
    return {
        "producer_id": int(row["producer_id"]),
        "producer_epoch": int(row["producer_epoch"]),
        "first_offset": int(row["first_offset"]),
        "last_offset": int(row["last_offset"]),
        "marker_offset": int(row["marker_offset"]) if closed else None,
        "marker_epoch": int(row["marker_epoch"]) if closed else None,
        "outcome": ("COMMIT" if row["commit"] else "ABORT") if closed else None,
        "start": iso(log.time(row["first_time"])),
        "end": iso(int(row["marker_timestamp"])) if closed else None,
        "class": None if opened is None else opened.klass,
    }
