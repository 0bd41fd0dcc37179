"""What reading every record of a batch brings out (KIP-467), as events."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np

from auditor.connectors.codec.batch_columns import (
    FLAW_COUNT_ABOVE_SPAN,
    FLAW_COUNT_BELOW_SPAN,
    FLAW_CRC,
    FLAW_NEGATIVE_SPAN,
    FLAW_PRODUCER_SEQUENCE,
    RECORD_COUNT_MISMATCH,
    RECORD_INNER_CRC,
    RECORD_INNER_MAGIC,
    RECORD_OFFSET_DELTA,
    BatchColumns,
    RecordSummary,
)
from auditor.facts.copy_facts import REFUSALS
from auditor.facts.events import Kind, blank_events
from auditor.replay.copy_task import CopyTask

APPEND_TIME, CONTROL, HORIZON = 0x08, 0x20, 0x40
TOLERANCE_MS = 300_000
IntOrArray = TypeVar("IntOrArray", int, np.ndarray)
_NEVER = 1 << 62  # Long.MAX_VALUE, the setting's default, would leave what 64 bits hold


class Bounds(NamedTuple):
    """Where the chunk lies: the log start, the first offset never cleaned, the last broker-written time before it.

    ``has_sequences``: whether sequences mean something in this log.
    """

    log_start: int
    intact_from: int
    broker_time: int
    segment: int
    has_sequences: bool = True


def check(b: BatchColumns, s: RecordSummary, at: Bounds, task: CopyTask) -> list[np.ndarray]:
    """Events of a chunk's records: broken structure, null keys, header times that are not the records', odd times."""
    judged = (b.last_offset >= at.log_start) & (b.flaws & FLAW_CRC == 0)
    data = (b.attributes & CONTROL == 0) | (b.magic < 2)
    create_time = (b.attributes & APPEND_TIME == 0) & (b.magic == 2)
    flawed = _events(Kind.RECORD_FLAW, judged & (s.flaws != 0), b, at.segment, {
        "flaws": s.flaws, "record_index": s.first_flaw, "records_present": s.present,
        "records_declared": b.record_count,
    })  # fmt: skip
    out = [flawed]
    if task.compacted:
        null = judged & data & (s.null_keys > 0)
        columns = {"null_keys": s.null_keys, "record_index": s.first_null_key}
        out.append(_events(Kind.NULL_KEY, null, b, at.segment, columns))
    out.append(_events(Kind.BATCH_TIMESTAMP, _wrong_times(b, s, at.log_start, at.intact_from), b, at.segment, {
        "found_max_timestamp": s.max_timestamp, "found_base_timestamp": s.first_timestamp,
        "base_timestamp": b.base_timestamp,
    }))  # fmt: skip
    stamped = judged & ((b.attributes & APPEND_TIME != 0) | ~data) & (b.magic == 2)
    before = np.maximum(np.maximum.accumulate(np.where(stamped, b.max_timestamp, -1)), at.broker_time)
    odd = judged & create_time & data & (s.present > 0) & (s.min_timestamp < -1)
    if task.before_ms is not None:
        old = (before >= 0) & (s.min_timestamp != -1) & (s.min_timestamp < oldest(before, task.before_ms))
        odd |= judged & create_time & data & (s.present > 0) & old
    out.append(_events(Kind.RECORD_TIMESTAMP, odd, b, at.segment, {
        "min_timestamp": s.min_timestamp, "max_timestamp": s.max_timestamp,
        "broker_time": before,
    }))  # fmt: skip
    return [events for events in out if len(events)]


def _wrong_times(b: BatchColumns, s: RecordSummary, log_start: int, intact_from: int) -> np.ndarray:
    """Of which batches the header's largest time is not that of the records."""
    judged = (b.last_offset >= max(log_start, intact_from)) & (b.flaws & FLAW_CRC == 0)
    create_time = (b.attributes & APPEND_TIME == 0) & (b.magic == 2)
    whole = judged & create_time & (b.attributes & HORIZON == 0) & (s.present > 0) & (s.flaws == 0)
    return whole & (s.max_timestamp != b.max_timestamp)


def largest_times(b: BatchColumns, s: RecordSummary, log_start: int, intact_from: int) -> np.ndarray:
    """The largest time (ms) of each batch: its records' where its header's is not true."""
    return np.where(_wrong_times(b, s, log_start, intact_from), s.max_timestamp, b.max_timestamp)


def oldest(broker_time: IntOrArray, before_ms: int) -> IntOrArray:
    """The earliest stamp that a leader takes by its clock (ms) under ``message.timestamp.before.max.ms``, with grace
    for the time between that clock's reading and the append."""
    return broker_time - min(before_ms, _NEVER) - TOLERANCE_MS


def refusals(b: BatchColumns, s: RecordSummary | None, at: Bounds, *, compacted: bool) -> dict[str, int]:
    """What a leader would have counted of a chunk in the counters of KIP-467, by the names in ``CopyFacts.sums``.

    As brokers count: a record without key each; else one a batch, since a batch is refused at the first such thing.
    ``s``: None where records were not read. Sequences mean something in ``at.has_sequences`` logs alone.
    """
    judged = b.last_offset >= at.log_start
    sound = judged & (b.flaws & FLAW_CRC == 0)
    cleaned = b.last_offset < at.intact_from
    wrong = b.flaws & (FLAW_COUNT_ABOVE_SPAN | FLAW_NEGATIVE_SPAN) != 0
    wrong |= ~cleaned & (b.flaws & FLAW_COUNT_BELOW_SPAN != 0)
    if at.has_sequences:
        wrong |= b.flaws & FLAW_PRODUCER_SEQUENCE != 0
    crc, magic, keys = judged & (b.flaws & FLAW_CRC != 0), np.zeros(len(judged), bool), 0
    if s is not None:
        wrong |= s.flaws & (RECORD_OFFSET_DELTA | RECORD_COUNT_MISMATCH) != 0
        crc |= sound & (s.flaws & RECORD_INNER_CRC != 0)
        magic = sound & (s.flaws & RECORD_INNER_MAGIC != 0)
        data = (b.attributes & CONTROL == 0) | (b.magic < 2)
        keys = int(s.null_keys[sound & data].sum()) if compacted else 0
    counts = (keys, magic.sum(), crc.sum(), (sound & wrong).sum())
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
