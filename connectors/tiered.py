"""The remote part of tiered topics put before the local one: one replica, from the log's own start (KIP-405).

What LocalTieredStorage keeps: ``<topic>-<partition>-<topic id>/<base offset>-<segment id>.log``, with the files that
belong to the segment beside it; what Aiven's RemoteStorageManager keeps, :mod:`auditor.connectors.stored_objects` makes
such files of. Which of them are of a log is what ``__remote_log_metadata`` says; without it, what the files hold.
Source: Kafka's LocalTieredStorage, RemoteLogSegmentFileset, RemoteLogManager.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from auditor.base.errors import DEFAULT_LIMITS, DecodeError
from auditor.base.remote_segments import EpochStarts, RemoteLogs, RemotePartition, State
from auditor.base.user_input import EVERYTHING, Scope
from auditor.connectors import names
from auditor.connectors.codec.segment import end_offset
from auditor.connectors.codec.small_files import decode_leader_epochs
from auditor.connectors.files import (
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
from auditor.connectors.storage import Place, open_file, read_file
from auditor.connectors.stored_objects import INDEXES, MANIFEST, as_copied, is_unfinished

NO_REPLICA = "remote segment of a partition without a replica in the input"
NOT_ASKED_FOR = "remote segment of a partition that is not read"
NOT_FINISHED = "remote segment whose copy was not finished, or that was deleted"
OTHER_EPOCHS = "remote segment of other leader epochs than the log's"
NOT_NEEDED = "remote segment that the log's other segments hold already"
BELOW_START = "remote segment below the log start"
CUT_OFF = "remote segment before offsets that are missing"
AS_COPIED = "what a remote segment's start was when it was copied"
PART_OF_NONE = "file of a remote segment without its .log"
AS_SAID = "manifest of a remote segment, read for how it is stored"
BESIDE_PARTS = "bytes beside the indexes of a remote segment"

Reasons = dict[tuple[Place | None, str], str]  # place and name of a file: why it is not read


class Candidate(NamedTuple):
    """A remote segment that may be of a log; ``end`` is the offset behind its last one."""

    segment: RemoteFiles
    end: int


def with_remote(inventory: Inventory, known: Mapping[str, RemoteLogs], scope: Scope = EVERYTHING) -> Inventory:
    """The inventory with the remote segments of each replica put before its own; what is not needed is skipped with
    why.

    ``known``: what ``__remote_log_metadata`` says of each cluster, by join key. Every replica has the remote part, as
    every broker would serve it, but those that ``scope`` leaves out. Cost: small; a read for every manifest; without
    metadata, one short read a batch of the remote segments.
    """
    if not inventory.remote:
        return inventory
    files = _Files()
    used: set[tuple[Place | None, str]] = set()
    log_dirs = []
    for log_dir in inventory.log_dirs:
        logs = known.get(log_dir.join_key, RemoteLogs())
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


class _Files:
    """The files of remote segments as the brokers had them, each segment opened once, and why some are not read."""

    def __init__(self) -> None:
        self.reasons: Reasons = {}
        self._opened: dict[RemoteFiles, RemoteFiles | DecodeError] = {}

    def open(self, segment: RemoteFiles) -> RemoteFiles | None:
        """The segment as it was copied, None where it cannot be read, which is then an error."""
        if segment not in self._opened:
            self._opened[segment] = as_copied(segment)
        opened = self._opened[segment]
        if isinstance(opened, DecodeError):
            return None
        self.say(opened, AS_SAID, MANIFEST)
        self.say(opened, BESIDE_PARTS, INDEXES)
        return opened

    def left(self, segment: RemoteFiles) -> tuple[DataFile, ...]:
        """The files of a segment, as they were copied where it was opened; none where that went wrong."""
        opened = self._opened.get(segment, segment)
        return opened.files if isinstance(opened, RemoteFiles) else ()

    def unread(self) -> list[DecodeError]:
        """The segments that cannot be read, each with the bytes of all its objects."""
        return [error for error in self._opened.values() if isinstance(error, DecodeError)]

    def say(self, segment: RemoteFiles, why: str, *kinds: str) -> None:
        """Why files of a segment, all or those of some kinds, are not read."""
        self.reasons |= {(f.place, f.name): why for f in self.left(segment) if not kinds or f.kind in kinds}


def _whole(
    log_dir: LogDir, replica: Replica, folders: Iterable[RemoteFolder], logs: RemoteLogs, files: _Files
) -> Replica:
    """A replica with its remote part, where there is one and it reaches the local one."""
    mine = [f for f in folders if f.is_of(replica)]
    if len({f.topic_id for f in mine}) != 1 or not replica.segments:
        return replica
    at = (replica.topic or "", replica.partition or 0)
    part = logs.of(*at, mine[0].topic_id)
    candidates = _candidates(_leader_epochs(log_dir, replica), [s for f in mine for s in f.segments], part, files)
    starts = log_dir.checkpoints.get("log-start")
    start = None if starts is None else starts.get(at)
    start = part.start_from(start) if part is not None and start is not None else start
    chosen = _reaching(candidates, start or 0, replica.local_start, files)
    return _before(replica, chosen, files) if chosen else replica


def _candidates(
    epochs: EpochStarts, segments: Iterable[RemoteFiles], part: RemotePartition | None, files: _Files
) -> list[Candidate]:
    """The segments that were copied whole and are of this log, by first offset."""
    found = []
    for segment in segments:
        recorded = part.segments.get(segment.segment_id) if part is not None else None
        unknown = recorded is None and (part is None or not part.whole)
        if segment.file("log") is None:
            files.say(segment, PART_OF_NONE)
        elif unknown and is_unfinished(segment):
            files.say(segment, NOT_FINISHED)
        elif unknown:
            if (opened := files.open(segment)) is not None:
                found.append(Candidate(opened, _end_offset(opened)))
        elif recorded is None or recorded.state != State.COPY_SEGMENT_FINISHED:
            files.say(segment, NOT_FINISHED)
        elif not recorded.is_of(epochs):
            files.say(segment, OTHER_EPOCHS)
        elif (opened := files.open(segment)) is not None:
            found.append(Candidate(opened, recorded.end_offset + 1))
    return sorted(found, key=lambda c: (c.segment.start, -c.end))


def _reaching(candidates: Iterable[Candidate], start: int, local: int, files: _Files) -> list[Candidate]:
    """Those that lead from the log start, or from behind the last hole, to the first local segment without a hole."""
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


def _before(replica: Replica, chosen: list[Candidate], files: _Files) -> Replica:
    """The replica with these segments in front, and the snapshots of their ends.

    Segments of different leaders overlap: where the next one begins is read from that. The reader leaves out what is
    beyond; such a segment's indexes and snapshot speak of more than is read of it, and so are left out here.
    """
    snapshots = {s.offset: s for s in replica.snapshots}
    segments = []
    starts = [*(c.segment.start for c in chosen[1:]), replica.local_start]
    for c, following in zip(chosen, starts, strict=True):
        log, cut = c.segment.file("log"), c.end > following
        assert log is not None
        index, times, aborted = (None if cut else c.segment.file(kind) for kind in names.INDEX_KINDS)
        segments.append(SegmentFile(log.name, c.segment.start, log.size, index, times, aborted, log.place))
        snapshot = c.segment.file("snapshot")
        if snapshot is not None and not cut:
            snapshots.setdefault(c.end, snapshot._replace(offset=c.end))
        files.say(c.segment, NOT_NEEDED, "snapshot", *names.INDEX_KINDS)
        files.say(c.segment, AS_COPIED, names.LEADER_EPOCHS)
    ordered = tuple(snapshots[offset] for offset in sorted(snapshots))
    return replace(replica, segments=(*segments, *replica.segments), snapshots=ordered)


def _leader_epochs(log_dir: LogDir, replica: Replica) -> EpochStarts:
    """The leader epochs of the local log, none where they cannot be read: then they decide nothing."""
    file = replica.leader_epochs
    data = read_file(log_dir.place, file.name, limit=DEFAULT_LIMITS.small_file(file.kind)) if file else None
    if file is None or data is None or isinstance(data, DecodeError):
        return ()
    entries, errors = decode_leader_epochs(data, file.name)
    return () if errors else [(e.epoch, e.start_offset) for e in entries]


def _end_offset(segment: RemoteFiles) -> int:
    """The offset behind a segment's last record, 0 where it cannot be read."""
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
