"""Text dumps as replicas: what they show of each log goes through the same replay as files do.

Text has no checkpoints and no settings, so it cannot show where a log starts or whether it is compacted: a log with
holes counts as cleaned, and one whose dump breaks off has no end that anything could be concluded from.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from auditor.connectors.codec.batches import BatchColumns, rows_of
from auditor.connectors.codec.indexes import AbortedTransactions, OffsetIndex
from auditor.connectors.logdir.files import Replica, SegmentFile
from auditor.connectors.tables import schema
from auditor.connectors.tables.schema import from_rows
from auditor.connectors.text.folder import TextIndex, TextReplica, read_texts
from auditor.facts.replica_facts import ABORTED, ReplicaFacts
from auditor.replay.producers.bounds import INTERNAL_TOPICS
from auditor.replay.producers.snapshot_chain import Stored
from auditor.replay.reading.replica_reader import ReplicaReader
from auditor.replay.segments.index_checks import OffsetCheck, TimeCheck
from auditor.replay.task.replica_task import ReplicaTask, TextTask

UNKNOWN_LOG = "(unknown)"


def read_text_replicas(task: TextTask) -> list[ReplicaFacts]:
    """The facts of every log that the dumps show; the first one carries what is said of the folder as a whole."""
    folder = read_texts(task.place, task.texts, task.limits)
    wanted = [c for c in folder.replicas if task.scope.wants(c.topic, c.partition, task.broker_id)]
    facts = [_read(task, replica) for replica in wanted]
    if not facts:
        facts = [_read(task, TextReplica(None, None))]
    lost = [e for e in folder.errors if e.reason in ("unreadable", "vanished", "limit")]
    bad = sum(max(e.length, 0) for e in folder.errors if e not in lost)
    unread = sum(t.size for t in task.texts if t.name in {e.file for e in lost})
    first = facts[0]
    first.errors = folder.errors + first.errors
    first.notes = folder.notes
    first.sums["bytes_total"] = folder.bytes_read + unread
    first.sums["bytes_error"] = min(bad, folder.bytes_read) + unread
    first.sums["bytes_decoded"] = folder.bytes_read - min(bad, folder.bytes_read)
    return facts


def _read(task: TextTask, replica: TextReplica) -> ReplicaFacts:
    topic, partition = replica.topic or UNKNOWN_LOG, -1 if replica.partition is None else replica.partition
    segments = tuple(SegmentFile(s.file, s.base_offset, 0) for s in replica.segments)
    cleaned = _may_be_cleaned(replica)
    compacted = topic in INTERNAL_TOPICS or cleaned
    reader = ReplicaReader(
        ReplicaTask(
            task.place,
            Replica(task.log_dir, topic, partition, "", segments=segments),
            task.cluster_id,
            task.broker_id,
            task.join_key,
            clean_shutdown=False,
            compacted=compacted,
            expiration_ms=task.expiration_ms,
            cleaner_offset=_end(replica) if cleaned else None,
            limits=task.limits,
        )
    )
    reader.internal = None
    stored = [Stored(s.file, s.offset, s.entries, True) for s in replica.snapshots]
    none = np.empty(0, np.int64)
    reader.begin(stored, none, none)
    for number, segment in enumerate(replica.segments):
        after = replica.segments[number + 1].base_offset if number + 1 < len(replica.segments) else -1
        reader.begin_segment(number, segment.file, segment.base_offset, after)
        reader.replay_batches(rows_of(_countable(segment.batches)))
        reader.facts.errors += segment.errors
        reader.end_segment()
        _indexes(reader, replica, number)
    reader.facts.text = True  # there are no files that could be read again
    facts = reader.finish(stored)
    facts.cleaner_offset = None if not compacted else facts.cleaner_offset
    key = (task.cluster_id, task.broker_id, task.log_dir, topic, partition)
    facts.tables = {
        name: pa.Table.from_batches([from_rows(schema.DECODED[name], key, rows)]) for name, rows in replica.rows.items()
    }
    facts.breaks_off, facts.cannot_show, facts.may_be_cleaned = replica.ends_early, replica.cannot_show, compacted
    facts.unreadable_records = [(0, e.position, e) for e in replica.unreadable]
    return facts


def _may_be_cleaned(replica: TextReplica) -> bool:
    """Whether the log has holes, between batches or inside them, that compaction would explain."""
    expected = replica.segments[0].base_offset if replica.segments else -1  # the first batches may be what is gone
    for segment in replica.segments:
        b = segment.batches
        if not len(b.position):
            continue
        holes = bool(np.any(b.base_offset[1:] > b.last_offset[:-1] + 1))
        thinned = bool(np.any((b.record_count >= 0) & (b.record_count < b.last_offset - b.base_offset + 1)))
        if holes or thinned or (expected >= 0 and int(b.base_offset[0]) > expected):
            return True
        expected = int(b.last_offset[-1]) + 1
    return False


def _end(replica: TextReplica) -> int:
    return max([int(s.batches.last_offset[-1]) + 1 for s in replica.segments if len(s.batches.position)], default=0)


def _countable(b: BatchColumns) -> BatchColumns:
    """The same batches, counts that a dump does not print taken from the span of offsets."""
    span = (b.last_offset - b.base_offset + 1).astype(b.record_count.dtype)
    return b._replace(record_count=np.where(b.record_count < 0, span, b.record_count))


def _indexes(reader: ReplicaReader, replica: TextReplica, number: int) -> None:
    """What was dumped of the indexes beside a segment."""
    segment = replica.segments[number]
    b = segment.batches
    rows = rows_of(b)
    end = int(b.position[-1] + b.size[-1]) if len(b.position) else 0
    log_end = int(b.last_offset[-1]) + 1 if end else 0
    for index in (i for i in replica.indexes if i.base_offset == segment.base_offset):
        if isinstance(index.entries, AbortedTransactions):
            _aborted(reader, index, number)
        elif isinstance(index.entries, OffsetIndex):
            offsets = OffsetCheck(index.entries)
            offsets.take(rows)
            reader.audit.keep(offsets.faults(end).events(number, log_end))
        else:
            times = TimeCheck(index.entries)
            times.take(rows)
            reader.audit.keep(times.faults().events(number, log_end))


def _aborted(reader: ReplicaReader, index: TextIndex, number: int) -> None:
    entries: Any = index.entries
    rows = np.zeros(len(entries.producer_id), ABORTED)
    rows["segment"] = number
    for name in ("position", "producer_id", "first_offset", "last_offset", "last_stable_offset"):
        rows[name] = getattr(entries, name)
    reader.aborted.append(rows)
    reader.facts.indexed_segments = [*(reader.facts.indexed_segments or []), number]
    reader.facts.abort_indexes.append(number)
