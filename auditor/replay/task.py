"""Task to read one replica."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from auditor.base.errors import DEFAULT_LIMITS, Limits
from auditor.base.user_input import EVERYTHING, Scope
from auditor.connectors.codec.batches import BatchColumns
from auditor.connectors.logdir import internal_rows
from auditor.connectors.logdir.files import DataFile, Replica, SegmentFile, TextFile, travels_light
from auditor.connectors.stores.remote_files import Coming
from auditor.connectors.stores.storage import StorageLocation
from auditor.model.policies import DAY_MS, KIP_360, WEEK_MS, Policy

# Tasks to read one replica of a partition, or a directory of text dumps. Imports no reader.


POINT = ".point"  # how names of kept resume points end
FAR = 1 << 62  # no offset and no time goes so far


class PolicySettings(NamedTuple):
    """A policy to replay a replica under, and settings of its brokers.

    Times in ms, sizes in bytes; negative: no limit. ``check_ms`` is producer.id.expiration.check.interval.ms.
    """

    name: str
    policy: Policy
    expiration_ms: int = DAY_MS
    check_ms: int = 600_000
    retention_ms: int = WEEK_MS
    retention_bytes: int = -1


class KeptPoints(NamedTuple):
    """Where resume points are kept between audits: a work folder, and its key, which proves them."""

    folder: str
    key: bytes


@travels_light
@dataclass(frozen=True, slots=True)
class ReplicaTask:
    """Everything a worker needs to read one replica. Offsets are those of the checkpoints, None where these have none.

    ``remote_from``: the log start if it is below the first segment here, the offsets between being in remote storage.
    ``log_start_known``: whether the log starts at its lowest segment when ``log_start`` is None; without the checkpoint
    file it may start later. ``cleaning_unknown``: neither settings nor a checkpoint file show whether the topic is
    compacted. ``before_ms`` is message.timestamp.before.max.ms where set; ``digests`` asks for digests to compare
    replicas, under this key of 16 bytes (:mod:`auditor.facts.batch_sums`); ``sum_key`` for sums of records
    (:mod:`auditor.replay.reading.record_sums`); ``policy`` is the broker's, as far as known
    before the log is read; ``policies`` are further ones to replay the replica under, and ``newest_time`` (ms) is the
    time beyond which no producer's clock is believed there. ``share``: this replica's part of what all replicas of
    internal topics may leave together, since the driver holds all of it. ``points``: where the reading finds the
    point to resume from, and leaves one. Without it ``leaves_resume_point`` asks for a point in the facts, and
    ``resume_point`` is the one that the last reading left there (:mod:`auditor.replay.reading.replica_reader`).
    """

    place: StorageLocation
    replica: Replica
    cluster_id: str | None
    broker_id: int | None
    join_key: str
    clean_shutdown: bool
    log_start: int | None = None
    remote_from: int | None = None
    high_watermark: int | None = None
    recovery_point: int | None = None
    cleaner_offset: int | None = None
    compacted: bool = False
    cleaning_unknown: bool = False
    log_start_known: bool = True
    expiration_ms: int = DAY_MS
    before_ms: int | None = None
    records: bool = False
    digests: bytes = b""
    policy: Policy = KIP_360
    policies: tuple[PolicySettings, ...] = ()
    newest_time: int = FAR
    share: float = 1.0
    limits: Limits = field(default=DEFAULT_LIMITS)
    leaves_resume_point: bool = False
    resume_point: bytes = b""
    sum_key: bytes = field(default=b"", repr=False)
    points: KeptPoints | None = field(default=None, repr=False)  # the facts do not depend on them

    @property
    def may_be_cleaned(self) -> bool:
        """Whether records may be missing because of compaction."""
        return self.compacted or self.cleaning_unknown

    @property
    def has_internal_rows(self) -> bool:
        """Whether its records are decoded into table rows, which needs the stored bytes."""
        return self.replica.topic in internal_rows.TABLES

    def coming(self) -> Iterator[Coming]:
        """Yield its files in stores in reading order; none if reading resumes near the end."""
        replica = self.replica
        if self.resume_point or not (self.place.uri or any(s.place for s in replica.segments)):
            return
        beside = [*replica.snapshots, replica.leader_epochs, replica.partition_metadata, *replica.others]
        for file in beside:
            if file is not None:
                yield from self._coming(file)
        for number in range(len(replica.segments)):
            yield from self.segment_coming(number)

    def segment_coming(self, number: int) -> Iterator[Coming]:
        """Yield the files of one segment in stores."""
        segment = self.replica.segments[number]
        for file in (segment.index, segment.timeindex, segment, segment.txnindex):
            if file is not None:
                yield from self._coming(file)

    def _coming(self, file: DataFile | SegmentFile) -> Iterator[Coming]:
        where = file.place or self.place
        if where.uri and where.view is None:
            yield Coming(where.uri, where.child(file.name).path, file.size)


@dataclass(frozen=True, slots=True)
class SharingTask:
    """Replicas of a partition that share remote segments, which are read once for all of them."""

    tasks: tuple[ReplicaTask, ...]

    def coming(self) -> Iterator[Coming]:
        """Yield their files in stores."""
        return (file for task in self.tasks for file in task.coming())


@dataclass(frozen=True, slots=True)
class TextTask:
    """A directory of text dumps to read. ``log_dir`` is its name in the tables."""

    place: StorageLocation
    log_dir: str
    join_key: str
    cluster_id: str | None
    broker_id: int | None
    texts: tuple[TextFile, ...]
    expiration_ms: int = DAY_MS
    limits: Limits = field(default=DEFAULT_LIMITS)
    scope: Scope = EVERYTHING


@dataclass(frozen=True, slots=True)
class KeptTask:
    """A replica whose facts a work folder keeps under ``identity``: in a row of a file (``at``), or not yet (None)."""

    task: ReplicaTask
    identity: bytes
    at: tuple[str, int] | None


@dataclass(frozen=True, slots=True)
class ReadLog:
    """Replicas of a log that were read before its other replicas, which text dumps name: packed briefs and facts."""

    join_key: str
    topic: str
    partition: int
    briefs: bytes
    facts: bytes


# Batches of a chunk as records, whose fields kernels access by name.


# The columns of BatchColumns; its ``size`` is ``bytes`` here, for numpy's records have a size of their own.
BATCH = np.dtype([("bytes" if name == "size" else name, "i8") for name in BatchColumns._fields])


def as_records(rows: np.ndarray) -> np.ndarray:
    """Return a chunk's ``rows`` (a walk's, int64, C order) as BATCH records: a view of the same memory."""
    return rows.view(BATCH)[:, 0]
