"""``__share_group_state`` while it is read: the last state of each group in each partition is kept."""

from __future__ import annotations

import json

from auditor.base.errors import DecodeError, Limits
from auditor.connectors.codec.group_topics import ShareGroupStateRow
from auditor.connectors.codec.segment import Chunk
from auditor.connectors.tables.internal_rows import SHARE_GROUP_STATE, InternalRows
from auditor.facts.offsets import ShareOffset
from auditor.facts.replica_facts import ReplicaFacts
from auditor.replay.internal.share_batches import Batch, combined, settled

SNAPSHOT = 0  # key type; 1 is an update of one


class ShareReader(InternalRows):
    """Folds the records of one replica. Memory: a row a group and partition. Source: Kafka's ShareCoordinatorShard."""

    def __init__(self, log_start: int, limits: Limits) -> None:
        super().__init__(SHARE_GROUP_STATE, limits)
        self.log_start = log_start
        self.states: dict[tuple[str, str, int], ShareOffset] = {}
        self.batches: dict[tuple[str, str, int], list[Batch]] = {}

    def take(self, file: str, chunk: Chunk) -> list[DecodeError]:
        """Reads the records of every batch of a chunk (read with ``raw``); returns what kept a batch closed."""
        errors = self.add(file, chunk)
        for name, position, offset, time, *values in self.rows.pop("share_group_state", ()):
            if offset >= self.log_start:
                self._record(ShareGroupStateRow(*values), (offset, time, name, position))
        return errors

    def _record(self, row: ShareGroupStateRow, at: tuple[int, int, str, int]) -> None:
        key = (row.group_id, row.topic_id, row.consumed_partition)
        before = self.states.get(key)
        if row.tombstone:
            self.states.pop(key, None)
            self.batches.pop(key, None)
            return
        start = -1 if row.start_offset is None else row.start_offset
        more = [_batch(said) for said in json.loads(row.state_batches or "[]")]
        delivered = max((last for _, last, *_ in more), default=-1)
        if row.key_type != SNAPSHOT and before is not None:
            start = before.start_offset if start < 0 else start
            delivered = max(delivered, before.delivered)
            more = combined(self.batches[key], more, start)
        self.batches[key] = more
        offset, time, file, position = at
        delivered = delivered if delivered >= start else -1
        self.states[key] = ShareOffset(*key, start, delivered, offset, time, file, position)

    def leave(self, facts: ReplicaFacts) -> None:
        """Puts the states, and what could not be decoded, into the facts."""
        facts.share_offsets = [
            state._replace(settled=settled(combined(self.batches[key], (), state.start_offset)))
            for key, state in sorted(self.states.items())
        ]
        facts.unreadable_records, facts.unknown_records = self.unreadable, self.unknown


def _batch(said: dict[str, int]) -> Batch:
    return said["firstOffset"], said["lastOffset"], said["deliveryCount"], said["deliveryState"]
