"""The remote part of tiered topics (KIP-405)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from auditor.base.errors import DEFAULT_LIMITS, DecodeError, Limits
from auditor.base.remote_segments import EpochStarts, RemoteLogs, RemotePartition, RemoteSegment, RemoteSegmentState
from auditor.base.user_input import EVERYTHING, Scope
from auditor.connectors import kafka_names
from auditor.connectors.codec.compression import ZSTD, Failure, decompress_into
from auditor.connectors.codec.gaps import read_at
from auditor.connectors.codec.remote_log_metadata import Manifest, RemoteLogMetadataRow, decode_manifest
from auditor.connectors.codec.segment import end_offset, read_segment
from auditor.connectors.codec.small_files import decode_leader_epochs
from auditor.connectors.kafka_names import INDEX_KINDS
from auditor.connectors.logdir.files import (
    DataFile,
    Inventory,
    LogDir,
    RemoteFiles,
    RemoteFolder,
    Replica,
    SegmentFile,
    Skipped,
    Unreadable,
)
from auditor.connectors.logdir.internal_rows import REMOTE_LOG_METADATA, InternalRows
from auditor.connectors.stores.storage import BinaryFile, StorageLocation, open_file, read_file

# Files that remote storage keeps in another form: as a range of an object, or in chunks (Aiven's RemoteStorageManager;
# :mod:`auditor.connectors.codec.remote_log_metadata`). Opened by their StorageLocation, they have the bytes of the
# broker's disk. One chunk is in memory at a time.


MANIFEST, INDEXES = "rsm-manifest", "indexes"
NO_MANIFEST = "its objects are there without the manifest that says how they are made up"


def read_manifest(folder: StorageLocation, name: str) -> Manifest | DecodeError:
    """The manifest of that name."""
    data = read_file(folder, name, limit=DEFAULT_LIMITS.small_file(MANIFEST))
    return data if isinstance(data, DecodeError) else decode_manifest(data, name)


def is_unfinished(segment: RemoteFiles) -> bool:
    """Whether the manifest, which is stored last, is missing."""
    return segment.objects and segment.file(MANIFEST) is None


def as_copied(segment: RemoteFiles) -> RemoteFiles | DecodeError:
    """A remote segment with its files as the broker had them, or why they cannot be read.

    One whose files are stored unchanged is returned as it is. Cost: its manifest is read.
    """
    if not segment.objects:
        return segment
    log, indexes, manifest = (segment.file(kind) for kind in ("log", INDEXES, MANIFEST))
    size = sum(file.size for file in segment.files)
    if manifest is None or manifest.place is None:
        return DecodeError(segment.files[-1].name, 0, size, "bad_manifest", NO_MANIFEST)
    says = read_manifest(manifest.place, manifest.name)
    if isinstance(says, DecodeError):
        return says._replace(length=size)
    if says.encrypted_by is not None:
        detail = f"AES, with a key that the RSA key {says.encrypted_by!r} wraps: not decrypted"
        return DecodeError((log or manifest).name, 0, size, "encrypted", detail)
    if wrong := _beyond(says, log, indexes):
        return DecodeError(manifest.name, 0, size, "bad_manifest", wrong)
    files = [manifest]
    if log is not None:
        view = None if says.plain else Chunked(manifest.name)
        files.append(log._replace(size=says.size, place=manifest.place._replace(view=view)))
    files += _parts(segment.start, says, indexes)
    return segment._replace(files=tuple(files))


def _beyond(says: Manifest, log: DataFile | None, indexes: DataFile | None) -> str:
    stored, end = int(says.chunks.sum()), max((part.position + part.size for part in says.parts), default=0)
    if log is not None and stored != log.size:
        return f"chunks of {stored} bytes in an object of {log.size}"
    if indexes is None or end > indexes.size:
        return f"indexes up to byte {end} in an object of {indexes.size if indexes else 0}"
    return ""


def _parts(start: int, says: Manifest, indexes: DataFile | None) -> list[DataFile]:
    # Bytes of the object outside of the listed indexes become files of kind INDEXES.
    if indexes is None or indexes.place is None:
        return []
    parts, offset = [], 0
    ends = [*says.parts, (INDEXES, indexes.size, 0)]
    for kind, position, size in ends:
        for name, first, length in ((INDEXES, offset, position - offset), (kind, position, size)):
            if length or name != INDEXES:
                view = ObjectRange(indexes.name, first, length)
                number = start if name in INDEX_KINDS else -1
                named = f"{indexes.name}#{name}" if name != INDEXES else f"{indexes.name}#{first}"
                parts.append(DataFile(named, length, name, number, indexes.place._replace(view=view)))
        offset = position + size
    return parts


class ObjectRange(NamedTuple):
    """A file that is ``size`` bytes of the object ``file`` from byte ``start`` on."""

    file: str
    start: int
    size: int

    def open(self, folder: StorageLocation, name: str) -> BinaryFile | DecodeError:
        """Open the file for reading."""
        opened = open_file(folder, self.file)
        return opened._replace(file=name) if isinstance(opened, DecodeError) else _StretchFile(opened, self)


class Chunked(NamedTuple):
    """A segment that is stored in chunks, as its ``manifest`` file describes."""

    manifest: str

    def open(self, folder: StorageLocation, name: str) -> BinaryFile | DecodeError:
        """Open the original segment for reading."""
        says = read_manifest(folder, self.manifest)
        if isinstance(says, DecodeError):
            return says
        opened = open_file(folder, name)
        return opened if isinstance(opened, DecodeError) else _ChunkedFile(opened, says)


class _PositionedFile:
    def __init__(self, stored: BinaryFile, size: int) -> None:
        self.stored = stored
        self.size = size
        self.at = 0

    def seek(self, position: int, whence: int = os.SEEK_SET, /) -> int:
        """Go to a byte."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self.at, os.SEEK_END: self.size}[whence]
        self.at = base + position
        return self.at

    def close(self) -> None:
        """Close the stored file."""
        self.stored.close()


class _StretchFile(_PositionedFile):
    def __init__(self, stored: BinaryFile, part: ObjectRange) -> None:
        super().__init__(stored, part.size)
        self.start = part.start

    def readinto(self, buffer: Any, /) -> int:
        """Fill ``buffer`` with one read; 0 at the end of the range."""
        view = memoryview(buffer)[: max(0, self.size - self.at)]
        if not len(view):
            return 0
        self.stored.seek(self.start + self.at)
        got = int(self.stored.readinto(view) or 0)
        self.at += got
        return got


class _ChunkedFile(_PositionedFile):
    # starts: the start of each stored chunk, and the end of the last one.
    def __init__(self, stored: BinaryFile, says: Manifest) -> None:
        super().__init__(stored, says.size)
        self.says = says
        self.starts = np.append(0, np.cumsum(says.chunks))
        self.number = -1  # of the current chunk
        self.chunk = np.empty(0, np.uint8)

    def readinto(self, buffer: Any, /) -> int:
        """Fill ``buffer`` from one chunk; 0 at the end. Errors: ``OSError`` with the chunk's defect."""
        if self.at >= self.size:
            return 0
        number, inside = divmod(self.at, self.says.chunk_bytes)
        if number != self.number:
            self.chunk, self.number = self._read(number), number
        view = memoryview(buffer)
        part = self.chunk[inside : inside + len(view)]
        view[: len(part)] = part.data
        self.at += len(part)
        return len(part)

    def _read(self, number: int) -> np.ndarray:
        # No larger than its manifest and the limits allow.
        start, end = int(self.starts[number]), int(self.starts[number + 1])
        size = min(self.says.chunk_bytes, self.size - number * self.says.chunk_bytes)
        what = f"chunk {number} at byte {start}"
        if max(size, end - start) > DEFAULT_LIMITS.max_batch_bytes:
            raise OSError(0, f"{what}: more than {DEFAULT_LIMITS.max_batch_bytes} bytes")
        if size > DEFAULT_LIMITS.decompressed_cap(end - start):
            raise OSError(0, f"{what}: {end - start} bytes that are to become {size}")
        data = read_at(self.stored, start, end - start)
        if len(data) < end - start:
            raise OSError(0, f"{what}: {end - start - len(data)} of its {end - start} bytes are not there")
        if not self.says.compressed:
            return data
        chunk = np.empty(size, np.uint8)
        got = decompress_into(ZSTD, data, chunk)
        if isinstance(got, Failure):
            raise OSError(0, f"{what}: {got.detail}")
        if got < size:
            raise OSError(0, f"{what}: {got} bytes where the manifest says {size}")
        return chunk


# The remote part before the local one: one replica, from the log's own start.
#
# LocalTieredStorage stores ``<topic>-<partition>-<topic id>/<base offset>-<segment id>.log`` with the segment's other
# files beside it; objects of Aiven's RemoteStorageManager are converted to such files. ``__remote_log_metadata`` lists
# those of a log; without it, their content decides. Source: Kafka's LocalTieredStorage, RemoteLogSegmentFileset,
# RemoteLogManager.


NO_REPLICA = "remote segment of a partition without a replica in the input"
NOT_ASKED_FOR = "remote segment of an excluded partition"
NOT_FINISHED = "remote segment whose copy was not finished, or that was deleted"
OTHER_EPOCHS = "remote segment of other leader epochs than the log's"
NOT_NEEDED = "remote segment already covered by other segments"
BELOW_START = "remote segment below the log start"
CUT_OFF = "remote segment before offsets that are missing"
AS_COPIED = "start of a remote segment when it was copied"
PART_OF_NONE = "file of a remote segment without its .log"
AS_SAID = "manifest of a remote segment (read separately)"
BESIDE_PARTS = "bytes beside the indexes of a remote segment"

Reasons = dict[tuple[StorageLocation | None, str], str]  # place and name of a file: why it is not read


class Candidate(NamedTuple):
    """A remote segment that may belong to a log; ``end`` is the offset after its last one."""

    segment: RemoteFiles
    end: int


def with_remote(inventory: Inventory, remote_logs: Mapping[str, RemoteLogs], scope: Scope = EVERYTHING) -> Inventory:
    """The inventory with the remote segments of each replica before its own; unneeded ones are skipped with a reason.

    ``remote_logs``: the content of ``__remote_log_metadata`` of each cluster, by join key. Every replica gets the
    remote part, as every broker would serve it, except those that ``scope`` excludes. Cost: small; one read per
    manifest; without metadata, one short read per batch of the remote segments.
    """
    if not inventory.remote:
        return inventory
    files = _OpenRemoteFiles()
    used: set[tuple[StorageLocation | None, str]] = set()
    log_dirs = []
    for log_dir in inventory.log_dirs:
        logs = remote_logs.get(log_dir.join_key, RemoteLogs())
        replicas = tuple(
            _whole(log_dir, c, inventory.remote, logs, files)
            if scope.wants(c.topic, c.partition, log_dir.broker_id)
            else c
            for c in log_dir.replicas
        )
        used |= {(file.place, file.name) for replica in replicas for file in replica.files() if file.place is not None}
        log_dirs.append(replace(log_dir, replicas=replicas))
    skipped = [
        Skipped("", file.name, file.size, files.reasons.get((file.place, file.name), otherwise))
        for folder in inventory.remote
        for otherwise in [NO_REPLICA if scope.wants_log(folder.topic, folder.partition) else NOT_ASKED_FOR]
        for segment in folder.segments
        for file in files.left(segment)
        if (file.place, file.name) not in used
    ]
    return replace(
        inventory,
        log_dirs=tuple(log_dirs),
        skipped=tuple(sorted([*inventory.skipped, *skipped])),
        errors=tuple(sorted([*inventory.errors, *(Unreadable("", error) for error in files.unread())])),
        unread_bytes=inventory.unread_bytes + sum(error.length for error in files.unread()),
    )


class _OpenRemoteFiles:
    # Opens each segment once, and collects why files are not read.
    def __init__(self) -> None:
        self.reasons: Reasons = {}
        self._opened: dict[RemoteFiles, RemoteFiles | DecodeError] = {}

    def open(self, segment: RemoteFiles) -> RemoteFiles | None:
        """The segment as it was copied, None if it cannot be read, which is then an error."""
        if segment not in self._opened:
            self._opened[segment] = as_copied(segment)
        opened = self._opened[segment]
        if isinstance(opened, DecodeError):
            return None
        self.say(opened, AS_SAID, MANIFEST)
        self.say(opened, BESIDE_PARTS, INDEXES)
        return opened

    def left(self, segment: RemoteFiles) -> tuple[DataFile, ...]:
        """The files of a segment, as copied if it was opened; none after an error."""
        opened = self._opened.get(segment, segment)
        return opened.files if isinstance(opened, RemoteFiles) else ()

    def unread(self) -> list[DecodeError]:
        """The segments that cannot be read, each with the bytes of all its objects."""
        return [error for error in self._opened.values() if isinstance(error, DecodeError)]

    def say(self, segment: RemoteFiles, why: str, *kinds: str) -> None:
        """Note why files of a segment, all or those of some kinds, are not read."""
        self.reasons |= {(f.place, f.name): why for f in self.left(segment) if not kinds or f.kind in kinds}


def _whole(
    log_dir: LogDir, replica: Replica, folders: Iterable[RemoteFolder], logs: RemoteLogs, files: _OpenRemoteFiles
) -> Replica:
    # Unchanged if there is no remote part, or it does not reach the local one.
    own = [f for f in folders if f.is_of(replica)]
    if len({f.topic_id for f in own}) != 1 or not replica.segments:
        return replica
    partition = (replica.topic or "", replica.partition or 0)
    part = logs.of(*partition, own[0].topic_id)
    candidates = _candidates(_leader_epochs(log_dir, replica), [s for f in own for s in f.segments], part, files)
    starts = log_dir.checkpoints.get("log-start")
    start = None if starts is None else starts.get(partition)
    start = part.start_from(start) if part is not None and start is not None else start
    chosen = _reaching(candidates, start or 0, replica.local_start, files)
    return _before(replica, chosen, files) if chosen else replica


def _candidates(
    epochs: EpochStarts, segments: Iterable[RemoteFiles], part: RemotePartition | None, files: _OpenRemoteFiles
) -> list[Candidate]:
    candidates = []
    for segment in segments:
        recorded = part.segments.get(segment.segment_id) if part is not None else None
        unknown = recorded is None and (part is None or not part.whole)
        if segment.file("log") is None:
            files.say(segment, PART_OF_NONE)
        elif unknown and is_unfinished(segment):
            files.say(segment, NOT_FINISHED)
        elif unknown:
            if (opened := files.open(segment)) is not None:
                candidates.append(Candidate(opened, _end_offset(opened)))
        elif recorded is None or recorded.state != RemoteSegmentState.COPY_SEGMENT_FINISHED:
            files.say(segment, NOT_FINISHED)
        elif not recorded.is_of(epochs):
            files.say(segment, OTHER_EPOCHS)
        elif (opened := files.open(segment)) is not None:
            candidates.append(Candidate(opened, recorded.end_offset + 1))
    return sorted(candidates, key=lambda c: (c.segment.start, -c.end))


def _reaching(candidates: Iterable[Candidate], start: int, local: int, files: _OpenRemoteFiles) -> list[Candidate]:
    # Those that lead from the log start, or from after the last hole, to the first local segment without a hole.
    run: list[Candidate] = []
    for c in candidates:
        reach = run[-1].end if run else c.segment.start
        if c.end <= start:
            files.say(c.segment, BELOW_START)
        elif c.segment.start >= local or (run and c.end <= reach):
            files.say(c.segment, NOT_NEEDED)
        else:
            if c.segment.start > reach:
                for before in run:
                    files.say(before.segment, CUT_OFF)
                run = []
            run.append(c)
    if run and run[-1].end < local:
        for before in run:
            files.say(before.segment, CUT_OFF)
        return []
    return run


def _before(replica: Replica, chosen: list[Candidate], files: _OpenRemoteFiles) -> Replica:
    # Segments of different leaders overlap; the start of the next one shows it. The reader stops there. Indexes and
    # snapshot of such a segment cover more than is read of it, and are excluded.
    snapshots = {s.offset: s for s in replica.snapshots}
    segments = []
    starts = [*(c.segment.start for c in chosen[1:]), replica.local_start]
    for c, following in zip(chosen, starts, strict=True):
        log, cut = c.segment.file("log"), c.end > following
        assert log is not None
        index, times, aborted = (None if cut else c.segment.file(kind) for kind in kafka_names.INDEX_KINDS)
        segments.append(SegmentFile(log.name, c.segment.start, log.size, index, times, aborted, log.place))
        snapshot = c.segment.file("snapshot")
        if snapshot is not None and not cut:
            snapshots.setdefault(c.end, snapshot._replace(offset=c.end))
        files.say(c.segment, NOT_NEEDED, "snapshot", *kafka_names.INDEX_KINDS)
        files.say(c.segment, AS_COPIED, kafka_names.LEADER_EPOCHS)
    ordered = tuple(snapshots[offset] for offset in sorted(snapshots))
    return replace(replica, segments=(*segments, *replica.segments), snapshots=ordered)


def _leader_epochs(log_dir: LogDir, replica: Replica) -> EpochStarts:
    # Unreadable epochs decide nothing.
    file = replica.leader_epochs
    data = read_file(log_dir.place, file.name, limit=DEFAULT_LIMITS.small_file(file.kind)) if file else None
    if file is None or data is None or isinstance(data, DecodeError):
        return ()
    entries, errors = decode_leader_epochs(data, file.name)
    return () if errors else [(e.epoch, e.start_offset) for e in entries]


def _end_offset(segment: RemoteFiles) -> int:
    # 0 if it cannot be read.
    file = segment.file("log")
    assert file is not None
    assert file.place is not None
    f = open_file(file.place, file.name)
    if isinstance(f, DecodeError):
        return 0
    try:
        return end_offset(f)
    except OSError:
        return 0
    finally:
        f.close()


# Reading ``__remote_log_metadata``: all records about a partition are in one partition of the topic, in order. Source:
# Kafka's RemoteLogMetadataCache.


Key = tuple[str, int]  # topic id and partition


class RemoteLogTask(NamedTuple):
    """A replica of a partition of ``__remote_log_metadata`` to read. ``clean``: its broker had shut down."""

    place: StorageLocation
    replica: Replica
    clean: bool
    broker_id: int | None
    limits: Limits


def tasks(inventory: Inventory, limits: Limits) -> list[tuple[str, RemoteLogTask]]:
    """For each cluster and partition of the topic, the replica with the newest last segment; each with the cluster's
    join key."""
    furthest: dict[tuple[str, int], tuple[tuple[int, int], LogDir, Replica]] = {}
    for log_dir in inventory.log_dirs:
        for replica in log_dir.replicas:
            if replica.topic == REMOTE_LOG_METADATA and replica.segments:
                end = (replica.segments[-1].base_offset, replica.segments[-1].size)
                key = (log_dir.join_key, replica.partition or 0)
                if key not in furthest or end > furthest[key][0]:
                    furthest[key] = (end, log_dir, replica)
    return [
        (join_key, RemoteLogTask(d.place, replica, d.clean_shutdown, d.broker_id, limits))
        for (join_key, _), (_, d, replica) in furthest.items()
    ]


def read_remote_log(task: RemoteLogTask) -> dict[Key, RemotePartition]:
    """Read one replica: remote partitions by topic id and partition. Its errors are reported when the replica itself is
    audited.

    Cost: every record once; memory: the segments that were ever recorded, and a chunk.
    """
    reading = _TieredReading(task)
    for segment in task.replica.segments:
        reading.segment(segment.name, segment.size)
    for partition in reading.found.values():
        partition.whole = not reading.lost and task.replica.segments[0].base_offset <= 0
        partition.newest, partition.clean, partition.metadata_broker = reading.newest, task.clean, task.broker_id
    return reading.found


def read_all(reads: Iterable[tuple[str, RemoteLogTask]]) -> dict[str, RemoteLogs]:
    """The remote parts of each cluster's partitions, read in this process."""
    return joined((join_key, read_remote_log(task)) for join_key, task in reads)


def joined(reads: Iterable[tuple[str, dict[Key, RemotePartition]]]) -> dict[str, RemoteLogs]:
    """Merge the replicas' results by cluster."""
    of_cluster: dict[str, dict[Key, RemotePartition]] = {}
    for join_key, partitions in reads:
        of_cluster.setdefault(join_key, {}).update(partitions)
    return {join_key: RemoteLogs(partitions) for join_key, partitions in of_cluster.items()}


class _TieredReading:
    def __init__(self, task: RemoteLogTask) -> None:
        self.task = task
        self.rows = InternalRows(REMOTE_LOG_METADATA, task.limits)
        self.found: dict[Key, RemotePartition] = {}
        self.newest, self.unread = -1, False

    @property
    def lost(self) -> bool:
        """Whether a record could not be read."""
        return self.unread or bool(self.rows.errors())

    def segment(self, name: str, size: int) -> None:
        """Read one segment of the metadata's log."""
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
            return  # about a removed partition, or of a broker's own snapshot
        key = (row.topic_id, row.tiered_partition)
        if key not in self.found:
            self.found[key] = RemotePartition(row.tiered_topic or "", row.tiered_partition, row.topic_id)
        segment = _changed(self.found[key].segments.get(row.segment_id), row, offset)
        if segment is not None:
            self.found[key].take(segment)


def _changed(before: RemoteSegment | None, row: RemoteLogMetadataRow, offset: int) -> RemoteSegment | None:
    # None if the record that describes the segment is gone.
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
