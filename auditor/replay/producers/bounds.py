"""What of a replica may be judged, worked out once for every replay of it: where the log starts, what was never
cleaned, which producers a broker may have known before the first batch that is still there (rules.md, *judged*,
*intact*,
*inherited*).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from auditor.connectors.codec.damaged_fields import Known
from auditor.connectors.logdir.files import EpochStarts
from auditor.connectors.logdir.names import LEADER_EPOCHS
from auditor.connectors.tables.internal_rows import CONSUMER_OFFSETS, TRANSACTION_STATE
from auditor.facts.replica_facts import SEQUENCE_FREE_TOPICS
from auditor.replay.producers.snapshot_chain import Stored
from auditor.replay.task.replica_task import FAR, ReplicaTask

METADATA = "__cluster_metadata"
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, "__share_group_state", METADATA})


class ReplicaBounds(NamedTuple):
    """What is fixed for a replica before its first batch. Offsets are of records; a batch is judged when its last
    offset is at or above ``log_start``.

    ``intact_from``: offsets below it may have been cleaned. ``sequences``: whether sequences mean something in this
    topic; ``broker_times``: whether every time-stamp in it is a broker's; ``kraft``: whether it is
    ``__cluster_metadata``, where control batches of other types are at home. ``expiration_ms``: how long its broker
    remembers an idle producer.
    """

    log_start: int
    intact_from: int
    sequences: bool
    broker_times: bool
    kraft: bool
    expiration_ms: int


class Inherited(NamedTuple):
    """The producers that snapshots know: sorted ids, each with the offset of the first snapshot that has it, and the
    offset of the first snapshot above the log's first offset, beyond all offsets where there is none.
    """

    producer_ids: np.ndarray  # int64
    known_at: np.ndarray  # int64
    first_snapshot: int


def bounds_of(task: ReplicaTask) -> ReplicaBounds:
    """The bounds of a replica, by its segments' names, its checkpoints and its topic."""
    topic = task.replica.topic or ""
    return ReplicaBounds(
        log_start_of(task),
        intact_from(task),
        topic not in SEQUENCE_FREE_TOPICS,
        topic in INTERNAL_TOPICS,
        topic == METADATA,
        task.expiration_ms,
    )


def log_start_of(task: ReplicaTask) -> int:
    """Where a replica's log starts, by its checkpoint and its first segment."""
    return max([task.log_start or 0, *(s.base_offset for s in task.replica.segments[:1])])


def unread_from(task: ReplicaTask) -> int:
    """Where the log starts whose first segments are not read, -1 where nothing of it is left out."""
    start = max(task.log_start or 0, task.replica.first_offset)
    return start if task.replica.unread and start < log_start_of(task) else -1


def intact_from(task: ReplicaTask) -> int:
    """Offsets below it may have been cleaned (rules.md, *intact*).

    The cleaner writes its checkpoint behind its work, and a running broker's checkpoints are copied before or after its
    logs: only the active segment, which no cleaner touches, is intact for sure where nothing shut down.
    """
    if not task.may_be_cleaned:
        return 0
    segments, checkpoint = task.replica.segments, task.cleaner_offset
    if checkpoint is not None and task.clean_shutdown:
        return checkpoint
    return max(checkpoint or 0, segments[-1].base_offset if segments else 0)


def known_of(task: ReplicaTask, number: int) -> Known:
    """What is known of a segment's end beside its batches.

    A clean shutdown writes the log's end as recovery point and names a snapshot by it. Nothing is ever missing within
    a controller's log. Source: UnifiedLog.close
    """
    replica, point, end = task.replica, task.recovery_point, -1
    if replica.segments[number].place is None:  # remote ones of different leaders overlap
        if number + 1 < len(replica.segments):
            end = replica.segments[number + 1].base_offset
        elif task.clean_shutdown and any(snapshot.offset == point for snapshot in replica.snapshots):
            end = -1 if point is None else point
    epochs = EpochStarts(task.place, replica.leader_epochs, task.limits.small_file(LEADER_EPOCHS))
    return Known(end, replica.topic != METADATA, epochs, task.clean_shutdown)


def inherited(stored: Sequence[Stored], begins: int) -> Inherited:
    """What the snapshots that could be read know; ``begins``: the log's first offset. Cost: a sort of their entries."""
    sound = sorted((s for s in stored if s.sound), key=lambda s: s.offset)
    if not sound:
        return Inherited(np.empty(0, np.int64), np.empty(0, np.int64), FAR)
    ids = np.concatenate([np.asarray(s.entries.producer_id, np.int64) for s in sound])
    at = np.concatenate([np.full(len(s.entries.producer_id), s.offset, np.int64) for s in sound])
    unique, first = np.unique(ids, return_index=True)
    return Inherited(unique, at[first], next((s.offset for s in sound if s.offset >= begins), FAR))
