"""Rows of the table ``batches`` as a replica: headers that lie in a table go through the same replay as files do.

A table of batches has neither checkpoints nor indexes nor settings nor records: where the log starts, what was cleaned
and who owns a producer id is not in it. As with text, a log with holes counts as cleaned, and it begins with its first
batch. Memory: some 20 bytes a batch, since only the whole log shows whether it has holes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from auditor.connectors.codec.batches import BATCH_DTYPES, BatchColumns, rows_of
from auditor.connectors.logdir import names
from auditor.connectors.logdir.files import Replica, SegmentFile
from auditor.facts.packed import PackedColumns
from auditor.facts.replica_facts import ReplicaFacts
from auditor.replay.producers.bounds import INTERNAL_TOPICS
from auditor.replay.reading.live_replica import NOWHERE
from auditor.replay.reading.replica_reader import ReplicaReader
from auditor.replay.task.replica_task import ReplicaTask

COLUMNS = dict(zip(BatchColumns._fields, BATCH_DTYPES, strict=True))
NOT_KNOWN = (
    "of {} there are batches alone: what rests on snapshots, indexes, checkpoints, settings, records or the "
    "coordinators' logs is not decided"
)


class LogKey(NamedTuple):
    """Whose log it is. ``join_key``: its cluster."""

    join_key: str
    cluster_id: str | None
    broker_id: int | None
    log_dir: str
    topic: str
    partition: int


class _Seen:
    """The batches of a replica while they come, packed, a segment after the other; and what they show together."""

    def __init__(self) -> None:
        self.segments: list[tuple[str, int, PackedColumns]] = []
        self.holes = False
        self.next_offset = -1
        self.bytes = 0

    def add(self, file: str, b: BatchColumns) -> None:
        """More batches, of one file."""
        if not self.segments or self.segments[-1][0] != file:
            says = names.data_name(file.rpartition("/")[2])
            base = int(b.base_offset[0]) if says is None else says.offset
            self.next_offset = self.next_offset if self.segments else base
            self.segments.append((file, base, PackedColumns(COLUMNS)))
        before = np.concatenate([[self.next_offset], b.last_offset[:-1] + 1])
        self.holes |= bool((b.base_offset > before).any() or (b.record_count < b.last_offset - b.base_offset + 1).any())
        self.next_offset = max(self.next_offset, int(b.last_offset[-1]) + 1)
        self.bytes += int(b.size.sum())
        self.segments[-1][2].add(np.ascontiguousarray(rows_of(b).T))


def read_batches(
    key: LogKey, batches: Iterable[tuple[str, BatchColumns]], expiration_ms: int, is_compacted: bool | None = None
) -> ReplicaFacts:
    """The facts of the log whose batches come in its order, each lot of one file, none empty.

    ``expiration_ms``: for how long its broker remembers an idle producer; ``is_compacted``: None where nobody knows.
    """
    seen = _Seen()
    for file, columns in batches:
        seen.add(file, columns)
    compacted = key.topic in INTERNAL_TOPICS or (seen.holes if is_compacted is None else is_compacted)
    files = tuple(SegmentFile(file, base, 0) for file, base, _ in seen.segments)
    replica = Replica(key.log_dir, key.topic, key.partition, f"{key.topic}-{key.partition}", segments=files)
    reader = ReplicaReader(
        ReplicaTask(
            NOWHERE,
            replica,
            key.cluster_id,
            key.broker_id,
            key.join_key,
            clean_shutdown=False,
            compacted=compacted,
            expiration_ms=expiration_ms,
            cleaner_offset=seen.next_offset if compacted else None,
            log_start_known=False,
        )
    )
    reader.internal = None  # there are no records
    none = np.empty(0, np.int64)
    reader.begin([], none, none)
    for number, (file, base, packed) in enumerate(seen.segments):
        after = files[number + 1].base_offset if number + 1 < len(files) else -1
        reader.begin_segment(number, file, base, after)
        for piece in range(packed.piece_count()):
            reader.replay_batches(rows_of(BatchColumns(**packed.piece(piece, COLUMNS))))
        reader.end_segment(after)
    reader.bytes["bytes_total"] = reader.bytes["bytes_decoded"] = seen.bytes
    facts = reader.finish([])
    facts.text = True  # there are no files that could be judged
    facts.cleaner_offset = None
    facts.may_be_cleaned = compacted and is_compacted is None
    facts.notes = [NOT_KNOWN.format(f"{key.topic}-{key.partition}")]
    return facts
