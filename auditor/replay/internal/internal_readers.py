"""Who reads the records of an internal topic for an audit."""

from __future__ import annotations

from typing import Protocol

from auditor.base.errors import DecodeError
from auditor.connectors.codec.segment import Chunk
from auditor.connectors.tables.internal_rows import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE, InternalRows
from auditor.facts.replica_facts import ReplicaFacts
from auditor.replay.internal.coordinator_reader import CoordinatorReader, coordinator_room
from auditor.replay.internal.offsets_reader import OffsetsReader, dictionary_room
from auditor.replay.internal.share_reader import ShareReader
from auditor.replay.task.replica_task import ReplicaTask


class InternalReader(Protocol):
    """Takes the chunks of one replica in order, and leaves what they came to."""

    def take(self, file: str, chunk: Chunk) -> list[DecodeError]:
        """Reads the records of every batch of a chunk; returns what kept a batch closed."""

    def errors(self) -> list[DecodeError]:
        """The records that could not be decoded."""

    def leave(self, facts: ReplicaFacts) -> None:
        """Puts what was taken into the facts of the replica."""


class CheckedRecords(InternalRows):
    """Decodes the records of a topic that no rule reads: what cannot be decoded is said, the rest is let go."""

    def take(self, file: str, chunk: Chunk) -> list[DecodeError]:
        """Reads the records of every batch of a chunk (read with ``raw``); returns what kept a batch closed."""
        errors = self.add(file, chunk)
        self.rows.clear()
        return errors

    def leave(self, facts: ReplicaFacts) -> None:
        """Puts what could not be decoded into the facts."""
        facts.unreadable_records, facts.unknown_records = self.unreadable, self.unknown


def reader_of(task: ReplicaTask, log_start: int) -> InternalReader | None:
    """The reader of a replica's records, None where its topic is none that brokers write for themselves."""
    if task.replica.topic == TRANSACTION_STATE:
        return CoordinatorReader(task.replica.partition or 0, task.limits, coordinator_room(task.share))
    if task.replica.topic == CONSUMER_OFFSETS:
        return OffsetsReader(log_start, task.limits, dictionary_room(task.share))
    if task.replica.topic == SHARE_GROUP_STATE:
        return ShareReader(log_start, task.limits)
    return CheckedRecords(task.replica.topic or "", task.limits) if task.has_internal_rows else None
