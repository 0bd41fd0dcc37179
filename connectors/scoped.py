"""What a scope leaves of an inventory: its replicas, and of each the segments that are read.

A log that is read from an offset on begins with a segment: the newest at or below it for which a producer snapshot
says how things stood; where there is none, the newest at or below it. From a time on it begins with the first segment
that has a record as young as that, by the last entry of its time index: brokers write the largest time of a segment
there when they close it. What has no such entry may hold anything, and is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from auditor.base import user_input as scopes
from auditor.base.user_input import Scope, Seen, Since, is_internal
from auditor.connectors import asking, threads
from auditor.connectors.codec.indexes import TIME_ENTRY
from auditor.connectors.files import DataFile, Inventory, Replica, SegmentFile
from auditor.connectors.storage import Place, read_head


class LeftOut(NamedTuple):
    """What a scope leaves out: copies of partitions, copies that are read from a later segment on, and the files and
    bytes of both. ``without_state``: of the latter those of which no snapshot says how things stood there."""

    copies: int = 0
    begun: int = 0
    without_state: int = 0
    files: int = 0
    bytes: int = 0


def narrowed(inventory: Inventory, scope: Scope) -> Inventory:
    """The inventory with what is read of it alone. Cost: for a time the end of a time index for each segment that is
    left out and one more.

    Errors: :class:`AuditInputError` where the scope fits nothing. Topics of texts are known when they are read.
    """
    if not scope.leaves_out:
        return inventory
    if not any(d.texts for d in inventory.log_dirs):
        scopes.check(scope, seen(inventory))
    log_dirs = []
    for d in inventory.log_dirs:
        wanted = [c for c in d.replicas if scope.wants(c.topic, c.partition, d.broker_id)]
        if scope.since is not None:
            wanted = threads.side_by_side(partial(_begun, d.place, scope.since), wanted)
        log_dirs.append(replace(d, replicas=tuple(wanted)))
    return replace(inventory, log_dirs=tuple(log_dirs))


def seen(inventory: Inventory) -> Iterator[Seen]:
    """Topic, partition and broker of all replicas; of log directories without any, the broker."""
    for d in inventory.log_dirs:
        yield None, None, d.broker_id
        yield from ((c.topic, c.partition, d.broker_id) for c in d.replicas)


def left_out(whole: Inventory, read: Inventory) -> LeftOut:
    """What :func:`narrowed` took away."""
    if read is whole:
        return LeftOut()
    copies = begun = without_state = files = size = 0
    for before, after in zip(whole.log_dirs, read.log_dirs, strict=True):
        kept = {(c.folder, c.topic, c.partition) for c in after.replicas}
        gone = [c for c in before.replicas if (c.folder, c.topic, c.partition) not in kept]
        later = [c for c in after.replicas if c.unread]
        copies, begun = copies + len(gone), begun + len(later)
        without_state += sum(not _says_state(c) for c in later)
        unread = [file for c in gone for file in c.files()] + [file for c in later for file in c.unread]
        files, size = files + len(unread), size + sum(file.size for file in unread)
    return LeftOut(copies, begun, without_state, files, size)


def _says_state(replica: Replica) -> bool:
    """Whether a snapshot says which transactions were open where the reading began, or later."""
    return any(s.offset >= replica.segments[0].base_offset for s in replica.snapshots)


def _begun(place: Place, since: Since, replica: Replica) -> Replica:
    if is_internal(replica.topic):
        return replica
    number = first_read(replica, since, lambda segment: _newest(place, segment))
    return _from(replica, number) if number else replica


def first_read(replica: Replica, since: Since, newest: Callable[[SegmentFile], int | None]) -> int:
    """The number of the segment that a reading begins with. ``newest``: the largest time (ms) of a closed segment."""
    segments = replica.segments
    number = 0
    if since.offset is not None:
        number = max((n for n, s in enumerate(segments) if s.base_offset <= since.offset), default=0)
    elif since.time_ms is not None:
        times = ((n, newest(s)) for n, s in enumerate(segments[:-1]))
        number = next((n for n, time in times if time is None or time >= since.time_ms), len(segments) - 1)
    known = {snapshot.offset for snapshot in replica.snapshots}
    with_state = (n for n in range(number, 0, -1) if segments[n].base_offset in known)
    return max(next(with_state, number), 0)


def _newest(place: Place, segment: SegmentFile) -> int | None:
    """The last time of a segment's time index, None where it has none."""
    index = segment.timeindex
    if index is None or index.size < TIME_ENTRY.itemsize or index.size % TIME_ENTRY.itemsize:
        return None
    with asking.resigned(asking.ROUNDS):
        data = read_head(index.place or place, index.name, TIME_ENTRY.itemsize, start=index.size - TIME_ENTRY.itemsize)
    if not isinstance(data, bytes) or len(data) < TIME_ENTRY.itemsize or not any(data):
        return None
    return int.from_bytes(data[:8], "big", signed=True)


def _from(replica: Replica, number: int) -> Replica:
    """The replica without its first segments and the snapshots below."""
    kept = replica.segments[number:]
    base = kept[0].base_offset
    below = [snapshot for snapshot in replica.snapshots if snapshot.offset < base]
    unread = [*_files(replica.segments[:number]), *below]
    snapshots = tuple(snapshot for snapshot in replica.snapshots if snapshot.offset >= base)
    return replace(replica, segments=kept, snapshots=snapshots, unread=tuple(unread))


def _files(segments: Iterable[SegmentFile]) -> Iterator[DataFile]:
    for s in segments:
        yield DataFile(s.name, s.size, "log", s.base_offset, s.place)
        yield from (index for index in (s.index, s.timeindex, s.txnindex) if index is not None)
