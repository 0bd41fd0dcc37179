"""What the batches of a chunk and their records bring out (KIP-467): events, and what a leader would have counted.

What is wrong is said by the model: of what was sent (:mod:`auditor.replay.segments.validated`), and of what is stored.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from auditor.connectors.codec.batches import FLAW_CRC, BatchColumns, RecordSummary
from auditor.facts.events import TOLERANCE_MS, Kind, blank_events
from auditor.facts.replica_facts import REFUSALS
from auditor.model import batch_validation as stored
from auditor.model.batch_validation import FAR_MS, IntOrArray, accepted_times
from auditor.replay.task.replica_task import ReplicaTask


class Bounds(NamedTuple):
    """Where the chunk lies: the log start, the first offset never cleaned, the last broker-written time before it."""

    log_start: int
    intact_from: int
    broker_time: int
    segment: int


def check(
    b: BatchColumns, s: RecordSummary, answers: np.ndarray | None, at: Bounds, task: ReplicaTask
) -> list[np.ndarray]:
    """Events of a chunk's records: broken structure, null keys, header times that are not the records', odd times.

    ``answers``: what a leader would have said of each batch (:data:`auditor.model.batch_validation.ANSWER`), None: that
    all are right.
    """
    judged = _judged(b, at.log_start)
    faults = stored.record_faults(s.flaws)
    flawed = _events(
        Kind.RECORD_FLAW,
        judged & (faults != 0),
        b,
        at.segment,
        {
            "flaws": faults,
            "record_index": s.first_flaw,
            "records_present": s.present,
            "records_declared": b.record_count,
            "cause": np.zeros(len(faults), np.int8) if answers is None else answers["cause"],
        },
    )
    wrong = _events(
        Kind.BATCH_TIMESTAMP,
        _wrong_times(b, s, at.log_start, at.intact_from),
        b,
        at.segment,
        {
            "found_max_timestamp": s.max_timestamp,
            "found_base_timestamp": s.first_timestamp,
            "base_timestamp": b.base_timestamp,
        },
    )
    found = [flawed, wrong, _odd_times(b, s, at, task.before_ms)]
    if answers is not None:
        keyless = {"null_keys": answers["no_key_compacted"], "record_index": answers["first_no_key"]}
        found.append(_events(Kind.NULL_KEY, answers["no_key_compacted"] > 0, b, at.segment, keyless))
    return [events for events in found if len(events)]


def _judged(b: BatchColumns, start: int) -> np.ndarray:
    return (b.last_offset >= start) & (b.flaws & FLAW_CRC == 0)


def _odd_times(b: BatchColumns, s: RecordSummary, at: Bounds, before_ms: int | None) -> np.ndarray:
    """Events of times that are none, or older than the newest broker-written one at or before the batch allows."""
    judged = _judged(b, at.log_start)
    control = (b.attributes & stored.STORED_CONTROL != 0) & (b.magic == 2)
    by_producer = stored.stamped_by_producer(b.magic, b.attributes) & ~control
    by_broker = judged & ~by_producer & (b.magic == 2)
    before = np.maximum(np.maximum.accumulate(np.where(by_broker, b.max_timestamp, -1)), at.broker_time)
    odd = stored.is_no_time(s.min_timestamp)
    if before_ms is not None:
        odd |= (before >= 0) & (s.min_timestamp != stored.NO_TIMESTAMP) & (s.min_timestamp < oldest(before, before_ms))
    return _events(
        Kind.RECORD_TIMESTAMP,
        judged & by_producer & (s.present > 0) & odd,
        b,
        at.segment,
        {
            "min_timestamp": s.min_timestamp,
            "max_timestamp": s.max_timestamp,
            "broker_time": before,
        },
    )


def _wrong_times(b: BatchColumns, s: RecordSummary, log_start: int, intact_from: int) -> np.ndarray:
    """Of which batches the header's largest time is not that of the records."""
    whole = _judged(b, max(log_start, intact_from)) & (s.present > 0) & (s.flaws == 0)
    return whole & stored.misstates_time(s.max_timestamp, b.max_timestamp, b.magic, b.attributes)


def largest_times(b: BatchColumns, s: RecordSummary, log_start: int, intact_from: int) -> np.ndarray:
    """The largest time (ms) of each batch: its records' where its header's is not true."""
    return np.where(_wrong_times(b, s, log_start, intact_from), s.max_timestamp, b.max_timestamp)


def oldest(broker_time: IntOrArray, before_ms: int) -> IntOrArray:
    """The earliest stamp that a leader takes by its clock (ms) under ``message.timestamp.before.max.ms``, with grace
    for the time between that clock's reading and the append."""
    return accepted_times(broker_time - TOLERANCE_MS, before_ms, FAR_MS)[0]


def counted(answers: np.ndarray) -> dict[str, int]:
    """What a leader would have counted of batches in the counters of KIP-467, by the names in ``ReplicaFacts.sums``."""
    offset_or_sequence = answers["invalid_offset"].sum() + answers["invalid_sequence"].sum()
    counts = [answers[name].sum() for name in REFUSALS[:-1]] + [offset_or_sequence]
    return dict(zip(REFUSALS, map(int, counts), strict=True))


def _events(kind: Kind, where: np.ndarray, b: BatchColumns, segment: int, columns: dict[str, np.ndarray]) -> np.ndarray:
    """A row for each batch ``where`` says so; ``columns`` have a value a batch."""
    rows = np.flatnonzero(where)
    out = blank_events(len(rows))
    out["kind"], out["segment"] = int(kind), segment
    for name in ("position", "base_offset", "last_offset", "producer_id", "producer_epoch"):
        out[name] = getattr(b, name)[rows]
    out["timestamp"], out["leader_epoch"] = b.max_timestamp[rows], b.partition_leader_epoch[rows]
    for name, column in columns.items():
        out[name] = column[rows]
    return out
