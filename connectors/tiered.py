"""The remote part of tiered topics put before the local one: one copy, from the log's own start (KIP-405).

What LocalTieredStorage keeps: ``<topic>-<partition>-<topic id>/<base offset>-<segment id>.log``, with the files that
belong to the segment beside it. Which of them are of a log is what ``__remote_log_metadata`` says; without it, what the
files hold. Source: Kafka's LocalTieredStorage, RemoteLogSegmentFileset, RemoteLogManager.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from auditor.base.errors import DecodeError
from auditor.base.limits import DEFAULT_LIMITS
from auditor.base.remote_segments import EpochStarts, RemoteLogs, RemotePartition, State
from auditor.connectors import names
from auditor.connectors.codec.checkpoint import decode_leader_epochs
from auditor.connectors.codec.tail import end_offset
from auditor.connectors.files import (
    Copy,
    DataFile,
    Inventory,
    LogDir,
    RemoteFiles,
    RemoteFolder,
    SegmentFile,
    Skipped,
)
from auditor.connectors.storage import Place, open_file, read_file

NO_REPLICA = "remote segment of a partition without a replica in the input"
NOT_FINISHED = "remote segment whose copy was not finished, or that was deleted"
OTHER_EPOCHS = "remote segment of other leader epochs than the log's"
NOT_NEEDED = "remote segment that the log's other segments hold already"
BELOW_START = "remote segment below the log start"
CUT_OFF = "remote segment before offsets that are missing"
AS_COPIED = "what a remote segment's start was when it was copied"
PART_OF_NONE = "file of a remote segment without its .log"


Reasons = dict[tuple[Place | None, str], str]  # place and name of a file: why it is not read


class Candidate(NamedTuple):
    """A remote segment that may be of a log; ``end`` is the offset behind its last one."""

    segment: RemoteFiles
    end: int


def with_remote(inventory: Inventory, known: Mapping[str, RemoteLogs]) -> Inventory:
    """The inventory with the remote segments of each copy put before its own; what is not needed is skipped with why.

    ``known``: what ``__remote_log_metadata`` says of each cluster, by join key. Every replica has the remote part, as
    every broker would serve it. Cost: small; without metadata, one short read a batch of the remote segments.
    """
    if not inventory.remote:
        return inventory
    reasons: Reasons = {}
    used: set[tuple[Place | None, str]] = set()
    log_dirs = []
    for log_dir in inventory.log_dirs:
        logs = known.get(log_dir.join_key, RemoteLogs())
        copies = tuple(_whole(log_dir, copy, inventory.remote, logs, reasons) for copy in log_dir.copies)
        used |= {(file.place, file.name) for copy in copies for file in copy.files() if file.place is not None}
        log_dirs.append(replace(log_dir, copies=copies))
    skipped = [
        Skipped("", file.name, file.size, reasons.get((file.place, file.name), NO_REPLICA))
        for folder in inventory.remote
        for segment in folder.segments
        for file in segment.files
        if (file.place, file.name) not in used
    ]
    return replace(inventory, log_dirs=tuple(log_dirs), skipped=tuple(sorted([*inventory.skipped, *skipped])))


def _whole(log_dir: LogDir, copy: Copy, folders: Iterable[RemoteFolder], logs: RemoteLogs, reasons: Reasons) -> Copy:
    """A copy with its remote part, where there is one and it reaches the local one."""
    at = (copy.topic, copy.partition)
    mine = [f for f in folders if (f.topic, f.partition) == at and copy.topic_id in (None, f.topic_id)]
    if len(mine) != 1 or not copy.segments:
        return copy
    part = logs.of(mine[0].topic, mine[0].partition, mine[0].topic_id)
    candidates = _candidates(log_dir, copy, mine[0], part, reasons)
    start = log_dir.checkpoints.get("log-start", {}).get((mine[0].topic, mine[0].partition))
    start = part.start_from(start) if part is not None and start is not None else start
    chosen = _reaching(candidates, start or 0, copy.local_start, reasons)
    return _before(copy, chosen, reasons) if chosen else copy


def _say(reasons: Reasons, segment: RemoteFiles, why: str, *kinds: str) -> None:
    """Why files of a segment, all or those of some kinds, are not read."""
    reasons |= {(f.place, f.name): why for f in segment.files if not kinds or f.kind in kinds}


def _candidates(
    log_dir: LogDir, copy: Copy, folder: RemoteFolder, part: RemotePartition | None, reasons: Reasons
) -> list[Candidate]:
    """The segments that were copied whole and are of this log, by first offset."""
    epochs = _leader_epochs(log_dir, copy)
    found = []
    for segment in folder.segments:
        log = segment.file("log")
        recorded = part.segments.get(segment.segment_id) if part is not None else None
        if log is None:
            _say(reasons, segment, PART_OF_NONE)
        elif recorded is None and (part is None or not part.whole):
            found.append(Candidate(segment, _end_offset(log)))
        elif recorded is None or recorded.state != State.COPY_SEGMENT_FINISHED:
            _say(reasons, segment, NOT_FINISHED)
        elif not recorded.is_of(epochs):
            _say(reasons, segment, OTHER_EPOCHS)
        else:
            found.append(Candidate(segment, recorded.end_offset + 1))
    return sorted(found, key=lambda c: (c.segment.start, -c.end))


def _reaching(candidates: Iterable[Candidate], start: int, local: int, reasons: Reasons) -> list[Candidate]:
    """Those that lead from the log start, or from behind the last hole, to the first local segment without a hole."""
    run: list[Candidate] = []
    for c in candidates:
        reach = run[-1].end if run else c.segment.start
        if c.end <= start:
            _say(reasons, c.segment, BELOW_START)
        elif c.segment.start >= local or (run and c.end <= reach):
            _say(reasons, c.segment, NOT_NEEDED)
        else:
            if c.segment.start > reach:
                for before in run:
                    _say(reasons, before.segment, CUT_OFF)
                run = []
            run.append(c)
    if run and run[-1].end < local:
        for before in run:
            _say(reasons, before.segment, CUT_OFF)
        return []
    return run


def _before(copy: Copy, chosen: list[Candidate], reasons: Reasons) -> Copy:
    """The copy with these segments in front, and the snapshots of their ends.

    Segments of different leaders overlap: where the next one begins is read from that. The reader leaves out what is
    beyond; such a segment's indexes and snapshot speak of more than is read of it, and so are left out here.
    """
    snapshots = {s.offset: s for s in copy.snapshots}
    segments = []
    starts = [*(c.segment.start for c in chosen[1:]), copy.local_start]
    for c, following in zip(chosen, starts, strict=True):
        log, cut = c.segment.file("log"), c.end > following
        assert log is not None
        index, times, aborted = (None if cut else c.segment.file(kind) for kind in names.INDEX_KINDS)
        segments.append(SegmentFile(log.name, c.segment.start, log.size, index, times, aborted, log.place))
        snapshot = c.segment.file("snapshot")
        if snapshot is not None and not cut:
            snapshots.setdefault(c.end, snapshot._replace(offset=c.end))
        _say(reasons, c.segment, NOT_NEEDED, "snapshot", *names.INDEX_KINDS)
        _say(reasons, c.segment, AS_COPIED, names.LEADER_EPOCHS)
    ordered = tuple(snapshots[offset] for offset in sorted(snapshots))
    return replace(copy, segments=(*segments, *copy.segments), snapshots=ordered)


def _leader_epochs(log_dir: LogDir, copy: Copy) -> EpochStarts:
    """The leader epochs of the local log, none where they cannot be read: then they decide nothing."""
    file = copy.leader_epochs
    data = read_file(log_dir.place, file.name, limit=DEFAULT_LIMITS.small_file(file.kind)) if file else None
    if file is None or data is None or isinstance(data, DecodeError):
        return ()
    entries, errors = decode_leader_epochs(data, file.name)
    return () if errors else [(e.epoch, e.start_offset) for e in entries]


def _end_offset(file: DataFile) -> int:
    """The offset behind a segment's last record, 0 where it cannot be read."""
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
