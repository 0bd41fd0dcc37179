"""Internal topics to measure on: ``__transaction_state`` and ``__consumer_offsets`` of a busy, sound cluster.

Batches are as coordinators write them: one record for each step of a transaction, one batch for each commit of a group
with a record a partition. Ids and groups take turns, so that neighbours in the log differ in both. An audit has to find
nothing.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numba import njit

from auditor.connectors.codec.primitives import crc32c
from bench.inputs import BUFFER, PROPERTIES, SEGMENT_BYTES, Made, _number
from tests.segments import batch, record

TIME_MARK, START_MARK, VALUE_MARK = (bytes([mark] * 7 + [1]) for mark in (0xA1, 0xA2, 0xA3))
BEGUN = 1_700_000_000_000  # ms, of the first record
IN_FLIGHT = 50  # transactions at a time
OFFSET, TIME, STEP, STOP = range(4)  # of a log while it is written; STOP: the step before which the last one began


class Templates(NamedTuple):
    """Batches to be numbered: template ``k`` is ``data[starts[k]:starts[k + 1]]`` with ``records[k]`` records; times,
    starts of transactions and values go to the bytes that ``marks[k]`` names (-1: none), a line per record."""

    data: np.ndarray
    starts: np.ndarray
    records: np.ndarray
    marks: np.ndarray


@njit(cache=True, nogil=True)
def _write(out, used, t, k, log, begun, value):  # type: ignore[no-untyped-def]
    """One batch; the bytes it took."""
    data, starts, records, marks = t
    first, size = starts[k], starts[k + 1] - starts[k]
    out[used : used + size] = data[first : first + size]
    _number(out, used, 8, log[OFFSET])
    _number(out, used + 27, 8, log[TIME])
    _number(out, used + 35, 8, log[TIME])
    for r in range(records[k]):
        if marks[k, r, 0] >= 0:
            _number(out, used + marks[k, r, 0], 8, log[TIME])
        if marks[k, r, 1] >= 0:
            _number(out, used + marks[k, r, 1], 8, begun)
        if marks[k, r, 2] >= 0:
            _number(out, used + marks[k, r, 2], 8, value + r)
    _number(out, used + 17, 4, np.int64(crc32c(out, used + 21, used + size)))
    log[OFFSET] += records[k]
    return size


@njit(cache=True, nogil=True)
def _transactions(out, t, log, order, begun, until):  # type: ignore[no-untyped-def]
    """Steps while they fit: one transaction begins, one that began a while ago is decided, the one before it ends.

    From the offset ``until`` on none begins, and at the end none is open.
    """
    used, ids = 0, len(order)
    while used + 4096 < len(out):
        step = log[STEP]
        if log[OFFSET] >= until and log[STOP] < 0:
            log[STOP] = step
        since_stop = step - log[STOP] if log[STOP] >= 0 else -1
        if since_stop > IN_FLIGHT:
            break
        log[TIME] += 1
        if since_stop < 0:
            begun[order[step % ids]] = log[TIME]
            used += _write(out, used, t, 3 * order[step % ids], log, log[TIME], 0)
        if step >= IN_FLIGHT and since_stop < IN_FLIGHT:
            one = order[(step - IN_FLIGHT) % ids]
            used += _write(out, used, t, 3 * one + 1, log, begun[one], 0)
        if step > IN_FLIGHT:
            one = order[(step - IN_FLIGHT - 1) % ids]
            used += _write(out, used, t, 3 * one + 2, log, begun[one], 0)
        log[STEP] += 1
    return used


@njit(cache=True, nogil=True)
def _commits(out, t, log, order, until):  # type: ignore[no-untyped-def]
    """Commits of one group after the other while they fit, each further than the one before."""
    used, groups = 0, len(order)
    while used + 16_384 < len(out) and log[OFFSET] < until:
        step = log[STEP]
        log[TIME] += 1
        used += _write(out, used, t, order[step % groups], log, log[TIME], 100 * (step // groups))
        log[STEP] += 1
    return used


def _templates(batches: list[tuple[bytes, int]]) -> Templates:
    most = max(count for _, count in batches)
    marks = np.full((len(batches), most, 3), -1, np.int64)
    for k, (stored, count) in enumerate(batches):
        for column, mark in enumerate((TIME_MARK, START_MARK, VALUE_MARK)):
            at = -1
            for r in range(count):
                at = stored.find(mark, at + 1)
                marks[k, r, column] = at
                if at < 0:
                    break
    data = np.frombuffer(b"".join(stored for stored, _ in batches), np.uint8)
    starts = np.cumsum([0, *(len(stored) for stored, _ in batches)])
    return Templates(data, starts, np.array([count for _, count in batches]), marks)


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def transaction_templates(ids: int, topics: int = 20) -> Templates:
    """Three batches of each id: Ongoing with three partitions, PrepareCommit, CompleteCommit; values of version 0."""
    out = []
    for number in range(ids):
        key = b"\0\0" + _text(f"payments-{number:06d}-{number * 7919 % 65536:04x}")
        parts = [f"orders.topic-{(number + k) % topics:02d}" for k in range(3)]
        some = struct.pack(">i", 3) + b"".join(_text(p) + struct.pack(">ii", 1, number % 50) for p in parts)
        for status, partitions in ((1, some), (2, some), (4, b"\0\0\0\0")):
            value = struct.pack(">hqhib", 0, 1000 + number, 0, 60_000, status) + partitions + TIME_MARK + START_MARK
            out.append((batch(record(0, key, value), 1), 1))
    return _templates(out)


def commit_templates(groups: int, partitions: int = 8) -> Templates:
    """A batch of each group: a commit of every partition of its topic, values of version 3."""
    out = []
    for number in range(groups):
        body = b""
        for partition in range(partitions):
            topic = f"orders.topic-{number % 40:02d}"
            key = b"\0\1" + _text(f"group-{number:06d}") + _text(topic) + struct.pack(">i", partition)
            value = struct.pack(">h", 3) + VALUE_MARK + struct.pack(">i", 0) + _text("") + TIME_MARK
            body += record(partition, key, value)
        out.append((batch(body, partitions), partitions))
    return _templates(out)


def _log(folder: Path, records: int, fill) -> dict[Path, tuple[int, int]]:  # type: ignore[no-untyped-def]
    """Writes one log of about ``records`` records in segments of a GiB; ``fill`` fills a buffer up to an offset."""
    folder.mkdir(parents=True)
    log, out = np.array([0, BEGUN, 0, -1], np.int64), np.empty(BUFFER, np.uint8)
    counts = {}
    used = -1
    while used:
        path, first, size = folder / f"{log[OFFSET]:020d}.log", int(log[OFFSET]), 0
        with path.open("wb", buffering=0) as f:
            while used and size < SEGMENT_BYTES - BUFFER:
                used = fill(out, log, records)
                f.write(out[:used].data)
                size += used
        counts[path] = (0, int(log[OFFSET]) - first)
        path.with_suffix(".index").write_bytes(b"")
        path.with_suffix(".timeindex").write_bytes(b"")
    return counts


def transactions(folder: Path, records: int, partitions: int = 1, ids: int = 10_000) -> Made:
    """A log directory with ``records`` of ``__transaction_state`` in this many partitions, each with its own ids."""
    t = transaction_templates(ids)
    order = np.random.default_rng(7).permutation(ids)
    counts: dict[Path, tuple[int, int]] = {}
    for partition in range(partitions):
        mine = np.array_split(order, partitions)[partition]
        begun = np.zeros(ids, np.int64)
        counts |= _log(
            folder / f"__transaction_state-{partition}", records // partitions,
            lambda out, log, until, mine=mine, begun=begun: _transactions(out, t, log, mine, begun, until),
        )  # fmt: skip
    return _made(folder, counts)


def commits(folder: Path, records: int, partitions: int = 1, groups: int = 10_000) -> Made:
    """A log directory with ``records`` commits in this many partitions of ``__consumer_offsets``."""
    t = commit_templates(groups)
    order = np.random.default_rng(7).permutation(groups)
    counts: dict[Path, tuple[int, int]] = {}
    for partition in range(partitions):
        mine = np.array_split(order, partitions)[partition]
        counts |= _log(
            folder / f"__consumer_offsets-{partition}", records // partitions,
            lambda out, log, until, mine=mine: _commits(out, t, log, mine, until),
        )  # fmt: skip
    return _made(folder, counts)


def _made(folder: Path, counts: dict[Path, tuple[int, int]]) -> Made:
    (folder / "meta.properties").write_text(PROPERTIES + "directory.id=YmVuY2gtaW50ZXJuYWwtb25l\n")
    (folder / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    return Made(folder, counts, sum(path.stat().st_size for path in counts))
