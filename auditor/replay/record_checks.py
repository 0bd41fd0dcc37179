"""What reading every record of a batch brings out (KIP-467), as events."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from auditor.connectors.codec.columns import FLAW_CRC, BatchColumns, RecordSummary
from auditor.facts.copy_facts import EVENT, Kind
from auditor.replay.copy_task import CopyTask

APPEND_TIME, CONTROL, HORIZON = 0x08, 0x20, 0x40
TOLERANCE_MS = 300_000


class Bounds(NamedTuple):
    """Where the chunk lies: the log start, the first offset never cleaned, the last broker-written time before it."""

    log_start: int
    intact_from: int
    broker_time: int
    segment: int


def check(b: BatchColumns, s: RecordSummary, at: Bounds, task: CopyTask) -> list[np.ndarray]:
    """Events of a chunk's records: broken structure, null keys, header times that belie the records, odd times."""
    judged = (b.last_offset >= at.log_start) & (b.flaws & FLAW_CRC == 0)
    data = (b.attributes & CONTROL == 0) | (b.magic < 2)
    create_time = (b.attributes & APPEND_TIME == 0) & (b.magic == 2)
    intact = b.last_offset >= at.intact_from
    segment = at.segment
    out = [
        _events(Kind.RECORD_FLAW, judged & (s.flaws != 0), b, segment, s.flaws, s.first_flaw, s.present, b.record_count)
    ]
    if task.compacted:
        null = judged & data & (s.null_keys > 0)
        out.append(_events(Kind.NULL_KEY, null, b, segment, s.null_keys, s.first_null_key))
    whole = judged & create_time & intact & (b.attributes & HORIZON == 0) & (s.present > 0) & (s.flaws == 0)
    wrong = whole & ((s.max_timestamp != b.max_timestamp) | (s.first_timestamp != b.base_timestamp))
    out.append(_events(Kind.BATCH_TIMESTAMP, wrong, b, segment, s.max_timestamp, s.first_timestamp, b.base_timestamp))
    before = at.broker_time
    odd = judged & create_time & data & (s.present > 0) & (s.min_timestamp < -1)
    if task.before_ms is not None and before >= 0:
        oldest = before - task.before_ms - TOLERANCE_MS
        odd |= judged & create_time & data & (s.present > 0) & (s.min_timestamp != -1) & (s.min_timestamp < oldest)
    clock = np.full(len(b.position), before)
    out.append(_events(Kind.RECORD_TIMESTAMP, odd, b, segment, s.min_timestamp, s.max_timestamp, clock))
    return [events for events in out if len(events)]


def _events(kind: Kind, where: np.ndarray, b: BatchColumns, segment: int, *values: np.ndarray) -> np.ndarray:
    rows = np.flatnonzero(where)
    out = np.zeros(len(rows), EVENT)
    out["kind"], out["segment"] = int(kind), segment
    out["time"] = out["a"] = out["b"] = out["c"] = out["d"] = out["e"] = -1
    for name in ("position", "base_offset", "last_offset", "producer_id", "producer_epoch"):
        out[name] = getattr(b, name)[rows]
    out["timestamp"], out["leader_epoch"] = b.max_timestamp[rows], b.partition_leader_epoch[rows]
    for name, column in zip("abcd", values, strict=False):
        out[name] = column[rows]
    return out
