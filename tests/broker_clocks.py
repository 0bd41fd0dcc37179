"""Log directories as they would be had one broker's clock been off: all that it wrote has other times, and only that.

One clock a broker: what it wrote is shifted in every replica's copy, in batches and within the records of coordinators,
and in what brokers derive of them (time indexes, producer snapshots). Checksums fit. Segments in remote storage and the
records about them stay as they are, as if the clock had been right until they were moved, and so do messages of magic 0
and 1.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.cluster_writers import LOG_APPEND_TIME, METADATA, Writers, batches_in, partitions
from tests.forge import Batch, Producer, producers, snapshot

TRANSACTIONS, OFFSETS = "__transaction_state", "__consumer_offsets"
TIME = struct.Struct(">qi")  # of a time index
UNFINISHED = (1, 2, 3)  # states of a transaction: Ongoing, PrepareCommit, PrepareAbort
PAUSE_MS = 20  # at least, between two records of a coordinator
SNAPSHOT_HEADER = 3  # a type of control records
Clock = Callable[[int, int], int]  # broker and time: the time as that broker would have had it


class Span(NamedTuple):
    """A batch in its log: its offsets, its producer, and its newest time as it was and as it is."""

    first: int
    last: int
    producer_id: int
    was: int
    now: int


def shift(root: Path, broker: int, by: int, since: int = 0) -> None:
    """One broker's clock was off by so many ms, all the time or from a moment (ms, by itself) on."""
    writers = Writers(root)

    def clock(who: int, time: int) -> int:
        return time + by if who == broker and time >= since and time > 0 else time

    started: dict[tuple[str, bytes, int], int] = {}
    for directory in writers.ids:
        for partition in partitions(directory):
            _shift_partition(partition, writers, clock, started)


def settable(root: Path, broker: int, by: int) -> int | None:
    """A moment (ms) in which a broker's clock could be set by so much without a time-out that passes by that: the one
    nearest to the middle at which none of its transactions is open, None where there is none."""
    writers = Writers(root)
    unfinished: dict[bytes, bool] = {}
    found, before, states = [], 0, sorted(_states(writers, broker))
    for time, key, is_unfinished in states:
        if time - before > PAUSE_MS and (by < 0 or not any(unfinished.values())):
            found.append(time - PAUSE_MS // 2)  # a value's times are of before its record is written
        unfinished[key], before = is_unfinished, time
    middle = (states[0][0] + states[-1][0]) // 2 if states else 0
    return min(found, key=lambda time: abs(time - middle)) if found else None


def _states(writers: Writers, broker: int) -> set[tuple[int, bytes, bool]]:
    """Time, key, and whether something is unfinished, of each record that a coordinator wrote."""
    return {
        (
            batch["base_time"] + record["time"],
            record["key"],
            bool(record["value"]) and record["value"][16] in UNFINISHED,
        )
        for directory in writers.ids
        for path in partitions(directory)
        if path.name.rpartition("-")[0] == TRANSACTIONS
        for file in path.glob("*.log")
        for batch in batches_in(file.read_bytes())
        if not batch.control and writers.of(path, batch) == broker
        for record in batch.records()
    }


def _shift_partition(
    partition: Path, writers: Writers, clock: Clock, started: dict[tuple[str, bytes, int], int]
) -> None:
    spans: list[Span] = []
    for file in sorted([*partition.glob("*.log"), *partition.glob("*.checkpoint")]):
        data = file.read_bytes()
        new, of_file = bytearray(data), []
        for batch in batches_in(data):
            was, who = batch["max_time"], writers.of(partition, batch)
            if who is not None:
                _shift_batch(partition, batch, who, clock, started)
                assert batch.was is not None
                new[batch.was : batch.was + len(batch.data)] = batch.data
            producer = batch["producer_id"]
            of_file.append(Span(batch["base_offset"], batch.last, producer, was, batch["max_time"]))
        _write(file, data, bytes(new))
        if file.suffix == ".log":
            spans += of_file
            _shift_time_index(file.with_suffix(".timeindex"), int(file.stem), of_file)
    for file in partition.glob("*.snapshot"):
        _shift_snapshot(file, spans, writers, clock)


def _write(file: Path, was: bytes, now: bytes) -> None:
    """In place of a file that may have other names."""
    assert len(was) == len(now) or file.suffix == ".timeindex", file
    if was != now:
        file.unlink()
        file.write_bytes(now)


def _shift_batch(
    partition: Path, batch: Batch, who: int, clock: Clock, started: dict[tuple[str, bytes, int], int]
) -> None:
    size, topic = len(batch.data), partition.name.rpartition("-")[0]
    if topic in (TRANSACTIONS, OFFSETS) and not batch.control:
        records = list(batch.records())
        for r in records:
            if r["value"] is not None and topic == OFFSETS:
                r["value"] = _of_group(r["key"], r["value"], lambda time: clock(who, time))
            elif r["value"] is not None:
                r["value"] = _of_transaction(partition.name, r["key"], r["value"], who, clock, started)
        batch.refill(*records)
    elif partition.name == METADATA and batch.control:
        records = list(batch.records())
        for r in records:
            if struct.unpack_from(">hh", r["key"])[1] == SNAPSHOT_HEADER:
                r["value"] = _at(r["value"], 2, lambda time: clock(who, time))
        batch.refill(*records)
    assert len(batch.data) == size, (partition, batch["base_offset"])
    if batch["attributes"] & LOG_APPEND_TIME:
        batch.set(max_time=clock(who, batch["max_time"]))
    else:
        off = clock(who, batch["base_time"]) - batch["base_time"]
        batch.set(base_time=batch["base_time"] + off, max_time=batch["max_time"] + off)


# Times within values


def _at(value: bytes, at: int, change: Callable[[int], int]) -> bytes:
    time = struct.unpack_from(">q", value, at)[0]
    return value[:at] + struct.pack(">q", change(time)) + value[at + 8 :]


def _of_transaction(
    log: str, key: bytes, value: bytes, who: int, clock: Clock, started: dict[tuple[str, bytes, int], int]
) -> bytes:
    """Both times of a state. A transaction's start is of the coordinator that first wrote it, whoever repeats it."""
    at = 2 + 8 + 2 + 4 + 1
    if struct.unpack_from(">h", value)[0]:
        count, at = _unsigned(value, at)
        for _ in range(count - 1):
            length, at = _unsigned(value, at)
            partitions, at = _unsigned(value, at + length - 1)
            at += 4 * (partitions - 1) + 1
    else:
        at = len(value) - 16
    begun: int = struct.unpack_from(">q", value, at + 8)[0]
    first = started.setdefault((log, key, begun), who)
    return _at(_at(value, at, lambda time: clock(who, time)), at + 8, lambda time: clock(first, time))


def _of_group(key: bytes, value: bytes, change: Callable[[int], int]) -> bytes:
    """The times of a committed offset, and of a classic group's state."""
    kind, version = struct.unpack_from(">h", key)[0], struct.unpack_from(">h", value)[0]
    if kind in (0, 1):
        at = 2 + 8 + (4 if version >= 3 else 0)
        at = _behind_text(value, at, version >= 4)
        value = _at(value, at, change)
        if version == 1 and struct.unpack_from(">q", value, at + 8)[0] >= 0:
            value = _at(value, at + 8, change)
    elif kind == 2 and version >= 2:
        at = _behind_text(value, 2, version >= 4) + 4
        at = _behind_text(value, _behind_text(value, at, version >= 4), version >= 4)
        value = _at(value, at, change)
    return value


def _behind_text(value: bytes, at: int, compact: bool) -> int:
    if compact:
        length, at = _unsigned(value, at)
        return at + max(length - 1, 0)
    return at + 2 + max(int(struct.unpack_from(">h", value, at)[0]), 0)


def _unsigned(value: bytes, at: int) -> tuple[int, int]:
    """A varint, and where the next field begins."""
    number, shift_by = 0, 0
    while value[at] & 0x80:
        number |= (value[at] & 0x7F) << shift_by
        at, shift_by = at + 1, shift_by + 7
    return number | value[at] << shift_by, at + 1


# What brokers derive of batches


def _shift_time_index(file: Path, base: int, spans: list[Span]) -> None:
    """An entry where one was: the newest time up to there; and the segment's newest, where the index had it."""
    if all(s.was == s.now for s in spans) or not file.exists():
        return
    data = file.read_bytes()
    was = list(TIME.iter_unpack(data[: len(data) // TIME.size * TIME.size]))
    used = [e for e in was if e[0] > 0]
    newest, now = max(s.was for s in spans), list(_entries(base, used, spans))
    if used and used[-1][0] == newest:
        now += [e for e in _entries(base, [(0, spans[-1].last - base)], spans) if not now or e[0] > now[-1][0]]
    padding = data[len(used) * TIME.size :] if len(used) < len(was) else b""
    _write(file, data, b"".join(TIME.pack(*e) for e in now) + padding[: max(0, len(data) - len(now) * TIME.size)])


def _entries(base: int, used: list[tuple[int, int]], spans: list[Span]) -> Iterator[tuple[int, int]]:
    """For each entry that there was one of the newest time of the batches up to it, as long as times rise."""
    last = -1
    for _time, at in used:
        newest = max((s for s in spans if s.first <= base + at), key=lambda s: (s.now, -s.first), default=None)
        if newest is not None and newest.now > last:
            here = newest.first <= base + at <= newest.last
            yield newest.now, at if here else newest.last - base
            last = newest.now


def _shift_snapshot(file: Path, spans: list[Span], writers: Writers, clock: Clock) -> None:
    data, end = file.read_bytes(), int(file.stem)
    partition = file.parent

    def follow(p: Producer) -> Producer:
        for s in reversed(spans):
            if s.producer_id == p.producer_id and s.last < end and s.was == p.timestamp:
                return p._replace(timestamp=s.now)
        if partition.name.startswith("__"):  # its last batch is gone: cleaned, as only this broker's records are
            return p._replace(timestamp=clock(writers.leader(partition, _epoch_at(partition, end)), p.timestamp))
        return p

    entries: list[Any] = producers(data)
    new = [follow(p) for p in entries]
    if new != entries:
        _write(file, data, snapshot(new))


def _epoch_at(partition: Path, offset: int) -> int:
    """The leader epoch right below an offset."""
    lines = (partition / "leader-epoch-checkpoint").read_text().splitlines()[2:]
    return max((int(e) for e, start in (line.split() for line in lines) if int(start) < offset), default=0)
