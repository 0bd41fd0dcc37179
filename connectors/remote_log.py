"""``__remote_log_metadata`` folded: what is known of every segment in tiered storage (KIP-405).

All records about a partition lie in one partition of the topic, in the order in which they happened. Source: Kafka's
RemoteLogMetadataCache.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

from auditor.base.errors import DecodeError, Limits
from auditor.base.remote_segments import RemoteLogs, RemotePartition, RemoteSegment
from auditor.connectors.codec.remote_log_metadata import RemoteLogMetadataRow
from auditor.connectors.codec.segment import read_segment
from auditor.connectors.files import Inventory, LogDir, Replica
from auditor.connectors.internal_rows import REMOTE_LOG_METADATA, InternalRows
from auditor.connectors.storage import Place, open_file

Key = tuple[str, int]  # topic id and partition


class RemoteLogTask(NamedTuple):
    """A copy of a partition of the topic to read. ``clean``: its broker had shut down."""

    place: Place
    replica: Replica
    clean: bool
    broker_id: int | None
    limits: Limits


def tasks(inventory: Inventory, limits: Limits) -> list[tuple[str, RemoteLogTask]]:
    """Of each cluster and partition of the topic the replica that goes furthest, by its newest segment; each with the
    cluster's join key."""
    furthest: dict[tuple[str, int], tuple[tuple[int, int], LogDir, Replica]] = {}
    for log_dir in inventory.log_dirs:
        for replica in log_dir.replicas:
            if replica.topic == REMOTE_LOG_METADATA and replica.segments:
                end = (replica.segments[-1].base_offset, replica.segments[-1].size)
                at = (log_dir.join_key, replica.partition or 0)
                if at not in furthest or end > furthest[at][0]:
                    furthest[at] = (end, log_dir, replica)
    return [
        (join_key, RemoteLogTask(d.place, replica, d.clean_shutdown, d.broker_id, limits))
        for (join_key, _), (_, d, replica) in furthest.items()
    ]


def read_remote_log(task: RemoteLogTask) -> dict[Key, RemotePartition]:
    """What one replica says, by topic id and partition. What cannot be read is said when the replica itself is audited.

    Cost: every record once; memory: the segments that were ever recorded, and a chunk.
    """
    reading = _Reading(task)
    for segment in task.replica.segments:
        reading.segment(segment.name, segment.size)
    for partition in reading.found.values():
        partition.whole = not reading.lost and task.replica.segments[0].base_offset <= 0
        partition.newest, partition.clean, partition.metadata_broker = reading.newest, task.clean, task.broker_id
    return reading.found


def read_all(found: Iterable[tuple[str, RemoteLogTask]]) -> dict[str, RemoteLogs]:
    """The remote parts of each cluster's partitions, read in this process."""
    return joined((join_key, read_remote_log(task)) for join_key, task in found)


def joined(reads: Iterable[tuple[str, dict[Key, RemotePartition]]]) -> dict[str, RemoteLogs]:
    """What the replicas say, put together by cluster."""
    of_cluster: dict[str, dict[Key, RemotePartition]] = {}
    for join_key, partitions in reads:
        of_cluster.setdefault(join_key, {}).update(partitions)
    return {join_key: RemoteLogs(partitions) for join_key, partitions in of_cluster.items()}


class _Reading:
    """The state of reading one replica."""

    def __init__(self, task: RemoteLogTask) -> None:
        self.task = task
        self.rows = InternalRows(REMOTE_LOG_METADATA, task.limits)
        self.found: dict[Key, RemotePartition] = {}
        self.newest, self.unread = -1, False

    @property
    def lost(self) -> bool:
        """Whether some record could not be read."""
        return self.unread or bool(self.rows.errors())

    def segment(self, name: str, size: int) -> None:
        """The records of one segment of the metadata's log."""
        f = open_file(self.task.place, name)
        if isinstance(f, DecodeError):
            self.unread = True
            return
        try:
            for chunk in read_segment(f, size, file=name, limits=self.task.limits, raw=True):
                self.unread |= any(e.reason not in ("truncated", "zero_filled") for e in chunk.errors)
                sound = chunk.intact()
                self.unread |= len(sound.rows) < len(chunk.rows)
                self.unread |= bool(self.rows.add(name, sound))
                for _file, _position, offset, time, *values in self.rows.rows.pop("remote_log_metadata", ()):
                    self.newest = max(self.newest, time)
                    self._record(offset, RemoteLogMetadataRow(*values))
        finally:
            f.close()

    def _record(self, offset: int, row: RemoteLogMetadataRow) -> None:
        if row.topic_id is None or row.tiered_partition is None or row.segment_id is None:
            return  # about a whole partition that was removed, or of a broker's own snapshot
        at = (row.topic_id, row.tiered_partition)
        if at not in self.found:
            self.found[at] = RemotePartition(row.tiered_topic or "", row.tiered_partition, row.topic_id)
        segment = _changed(self.found[at].segments.get(row.segment_id), row, offset)
        if segment is not None:
            self.found[at].take(segment)


def _changed(before: RemoteSegment | None, row: RemoteLogMetadataRow, offset: int) -> RemoteSegment | None:
    """A segment after a record; None where the record that describes it is gone."""
    if row.start_offset is None or row.end_offset is None:
        if before is None:
            return None
        return before._replace(state=row.state_number, changed_at=row.event_timestamp, record_offset=offset)
    epochs: dict[str, int] = json.loads(row.leader_epochs or "{}")
    return RemoteSegment(
        segment_id=row.segment_id or "",
        start_offset=row.start_offset,
        end_offset=row.end_offset,
        leader_epochs=tuple(sorted((int(epoch), start) for epoch, start in epochs.items())),
        size=row.size or 0,
        state=row.state_number,
        broker_id=row.event_broker_id,
        changed_at=row.event_timestamp,
        record_offset=offset,
    )
