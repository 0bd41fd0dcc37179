"""A broker's clock is wrong: what it wrote, and nothing else, has other times, in every replica's copy of it.

Which are the times of markers, of the coordinators' and the groups' records with those inside of them, of the metadata
and of topics with LogAppendTime. Records with times of their clients stay. Checksums, time indexes and snapshots fit.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.forge import ENTRY as SNAPSHOT_ENTRY
from tests.forge import Batch, Producer, _batches, snapshot

LOG_APPEND_TIME = 0x08
TRANSACTIONS, GROUPS, METADATA = "__transaction_state", "__consumer_offsets", "__cluster_metadata"
Wrote = Callable[[str, int, int], bool]  # topic, partition, leader epoch: whether the broker led there


class Shift(NamedTuple):
    """By how much (ms), and from when on (ms, by the clock as it was)."""

    by: int
    since: int = 0

    def of(self, time: int) -> int:
        return time + self.by if time >= self.since and time > 0 else time


def shift(brokers: Iterator[Path] | list[Path], wrote: Wrote, how: Shift) -> int:
    """Shifts what a broker wrote in all these directories; returns how many batches that were."""
    count = 0
    for broker in brokers:
        for folder in sorted(p for p in broker.iterdir() if p.is_dir()):
            topic, _, number = folder.name.rpartition("-")
            if number.isdecimal() and topic:
                count += _partition(folder, topic, int(number), wrote, how)
    return count


def _partition(folder: Path, topic: str, partition: int, wrote: Wrote, how: Shift) -> int:
    moved: dict[tuple[int, int], int] = {}  # producer id and old time of a marker, and its new time
    begun: dict[tuple[bytes, int], int] = {}  # key and begin of a transaction, and its new begin: by who wrote it first
    count = 0
    for file in sorted(folder.glob("*.log")):
        batches = _batches(file.read_bytes())
        theirs = [b for b in batches if _is_theirs(b, topic)]
        changed = [b for b in theirs if wrote(topic, partition, b["leader_epoch"])]
        for b in theirs:
            old, own = b["max_time"], any(b is other for other in changed)
            _inside(b, topic, how if own else Shift(0), begun)
            if own:
                _change(b, how)
            moved[b["producer_id"], old] = b["max_time"]
        if changed:
            file.write_bytes(b"".join(bytes(b.data) for b in batches))
            _time_index(file, batches)
        count += len(changed)
    for file in folder.glob("*.snapshot"):
        entries = [Producer(*row) for row in SNAPSHOT_ENTRY.iter_unpack(file.read_bytes()[10:])]
        file.write_bytes(
            snapshot([e._replace(timestamp=moved.get((e.producer_id, e.timestamp), e.timestamp)) for e in entries])
        )
    return count


def _is_theirs(b: Batch, topic: str) -> bool:
    return b["magic"] == 2 and (
        b.control or topic in (TRANSACTIONS, GROUPS, METADATA) or bool(b["attributes"] & LOG_APPEND_TIME)
    )


def _inside(b: Batch, topic: str, how: Shift, begun: dict[tuple[bytes, int], int]) -> None:
    """The times in the values. The begin of a transaction stays what it was first written as, whoever writes it on."""
    if topic not in (TRANSACTIONS, GROUPS) or b.control or b.codec:
        return
    for at, key, value in _records(b):
        for number, place in enumerate(_times(topic, key, value)):
            (time,) = struct.unpack_from(">q", b.data, at + place)
            new = how.of(time)
            if topic == TRANSACTIONS and number == 1:
                new = begun.setdefault((key, time), new)
            struct.pack_into(">q", b.data, at + place, new)
    b.seal()


def _change(b: Batch, how: Shift) -> None:
    base, newest = b["base_time"], b["max_time"]
    moved = how.of(newest)
    b.set(base_time=base + moved - newest if base > 0 else base, max_time=moved)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift_by = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift_by
        shift_by += 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at


def _records(b: Batch) -> Iterator[tuple[int, bytes, bytes]]:
    """Of each record with a value where that begins in the batch, its key, and the value."""
    data, at = bytes(b.data), 61
    for _ in range(b["count"]):
        size, at = _varint(data, at)
        end = at + size
        at += 1
        for _ in range(2):
            _, at = _varint(data, at)
        length, at = _varint(data, at)
        key, at = data[at : at + max(length, 0)], at + max(length, 0)
        length, at = _varint(data, at)
        if length > 0:
            yield at, key, data[at : at + length]
        at = end


def _times(topic: str, key: bytes, value: bytes) -> list[int]:
    """Where in a value a broker's times stand (TransactionLogValue, OffsetCommitValue, GroupMetadataValue)."""
    kind, version = struct.unpack_from(">h", key)[0], struct.unpack_from(">h", value)[0]
    if topic == TRANSACTIONS:
        return _of_transaction(value, flexible=version >= 1)
    if kind in (0, 1) and version <= 3:
        at = 2 + 8 + (4 if version == 3 else 0)
        at += 2 + struct.unpack_from(">h", value, at)[0]
        return [at, *([at + 8] if version == 1 else [])]
    if kind == 2 and version in (2, 3):
        at = 2
        for fixed in (4, 0, 0):  # protocol type, generation; protocol; leader
            at += 2 + max(struct.unpack_from(">h", value, at)[0], 0) + fixed
        return [at]
    return []


def _of_transaction(value: bytes, *, flexible: bool) -> list[int]:
    at = 2 + 8 + 2 + 4 + 1

    def length(at: int) -> tuple[int, int]:
        if not flexible:
            return struct.unpack_from(">i", value, at)[0], at + 4
        size = shift_by = 0
        while True:
            byte = value[at]
            at += 1
            size |= (byte & 0x7F) << shift_by
            shift_by += 7
            if byte < 0x80:
                return size - 1, at

    topics, at = length(at)
    for _ in range(max(topics, 0)):
        if flexible:
            size, at = length(at)
        else:
            size, at = struct.unpack_from(">h", value, at)[0], at + 2
        at += size
        partitions, at = length(at)
        at += 4 * partitions + (1 if flexible else 0)
    return [at, at + 8]


def _time_index(file: Path, batches: list[Batch]) -> None:
    """The time index as a broker writes it: with each entry of the offset index, and when the file is closed."""
    index, times = file.with_suffix(".index"), file.with_suffix(".timeindex")
    if not index.exists() or not times.exists() or not times.stat().st_size:
        return
    base = int(file.stem)
    indexed = {base + e[0] for e in struct.iter_unpack(">ii", index.read_bytes())}
    out: list[tuple[int, int]] = []
    newest, where = -1, -1
    for number, b in enumerate(batches):
        if b["max_time"] > newest:
            newest, where = b["max_time"], b.last
        if (b.last in indexed or number == len(batches) - 1) and newest > (out[-1][0] if out else -1):
            out.append((newest, where - base))
    times.write_bytes(b"".join(struct.pack(">qi", *entry) for entry in out))
