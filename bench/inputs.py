"""What is measured on: log directories of one broker, made of real batches multiplied to the size asked for.

``bench/batches`` holds what the Java producer sent to a broker of 4.1 (:mod:`bench.freeze`). Each copy of a batch gets
the next offset, its producer's next sequence, a time one millisecond later and the checksum that fits, so that the logs
are sound: whoever audits them has to find nothing. Segments have their offset and time index, as a broker writes them.
"""

from __future__ import annotations

import os
import shutil
import struct
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numba import njit

from auditor.base.errors import AuditInputError
from auditor.connectors.codec.primitives import crc32c
from bench.freeze import HERE, batches
from tests.segments import record

MIB, GIB = 1 << 20, 1 << 30
SEGMENT_BYTES = GIB
BUFFER = 32 << 20
THREADS = 2
INDEX_INTERVAL = 4096  # index.interval.bytes of a broker
OFFSET, SEGMENT_START, POSITION, SINCE_ENTRY, NUMBER, ENTRIES = range(6)  # of a log while it is written
PROPERTIES = "version=1\nnode.id=1\ncluster.id=YmVuY2gtb25lLWNsdXN0ZQ\n"


class Kind(NamedTuple):
    """Logs of one kind in each disk: the file of real batches, partitions, producer ids in each."""

    batches: str
    partitions: int = 4
    producers: int = 1


class Made(NamedTuple):
    """One log directory, and of each of its segments how many batches and records it holds."""

    folder: Path
    counts: dict[Path, tuple[int, int]]
    size: int

    @property
    def logs(self) -> list[Path]:
        """The segments."""
        return list(self.counts)

    @property
    def batches(self) -> int:
        """In all segments."""
        return sum(batches for batches, _ in self.counts.values())

    @property
    def records(self) -> int:
        """In all segments."""
        return sum(records for _, records in self.counts.values())


@njit(cache=True, nogil=True)
def _number(out, at, width, value):  # type: ignore[no-untyped-def]
    """Writes a big-endian number."""
    for k in range(width):
        out[at + k] = (value >> (8 * (width - 1 - k))) & 0xFF


@njit(cache=True, nogil=True)
def _value(out, at, width):  # type: ignore[no-untyped-def]
    value = np.int64(0)
    for k in range(width):
        value = (value << 8) | out[at + k]
    return value


@njit(cache=True, nogil=True)
def _fill(out, models, starts, log, sequences, index, until):  # type: ignore[no-untyped-def]
    """Batches one after the other into ``out`` while they fit and begin before ``until``; how many bytes.

    ``log`` is the state of the log (the names above), ``sequences`` each producer's next one, ``index`` gets a row of
    offset, position and time where a broker writes an entry.
    """
    used = 0
    while log[POSITION] < until:
        model = log[NUMBER] % (len(starts) - 1)
        first, size = starts[model], starts[model + 1] - starts[model]
        if used + size > len(out):
            break
        out[used : used + size] = models[first : first + size]
        count, producer = _value(out, used + 57, 4), log[NUMBER] % len(sequences)
        time, span = _value(models, 35, 8) + log[NUMBER], _value(out, used + 35, 8) - _value(out, used + 27, 8)
        _number(out, used, 8, log[OFFSET])
        _number(out, used + 27, 8, time - span)
        _number(out, used + 35, 8, time)
        _number(out, used + 43, 8, 1000 + producer)
        _number(out, used + 53, 4, sequences[producer])
        _number(out, used + 17, 4, np.int64(crc32c(out, used + 21, used + size)))
        if log[SINCE_ENTRY] > INDEX_INTERVAL:
            index[log[ENTRIES], 0] = log[OFFSET] + count - 1 - log[SEGMENT_START]
            index[log[ENTRIES], 1], index[log[ENTRIES], 2] = log[POSITION], time
            log[ENTRIES] += 1
            log[SINCE_ENTRY] = 0
        sequences[producer] += count
        log[OFFSET] += count
        log[POSITION] += size
        log[SINCE_ENTRY] += size
        log[NUMBER] += 1
        used += size
    return used


@cache
def models_of(name: str) -> list[bytes]:
    """The batches to multiply. ``16m``, which no producer makes by default, is built of bytes of real ones."""
    real = batches((HERE / "batches" / f"{'64k' if name == '16m' else name}.log").read_bytes())
    if name != "16m":
        return real
    body, count = bytearray(), 0
    while len(body) < 16_000_000:
        body += record(count, b"k%09d" % count, real[0][100:330])
        count += 1
    return [real[0][:8] + struct.pack(">i", 49 + len(body)) + real[0][12:23] + struct.pack(">i", count - 1)
            + real[0][27:57] + struct.pack(">i", count) + body]  # fmt: skip


def _segment(folder: Path, kind: Kind, log: np.ndarray, sequences: np.ndarray, size: int) -> Path:
    """Writes one segment of about ``size`` bytes with its indexes."""
    real = models_of(kind.batches)
    starts = np.cumsum([0, *map(len, real)])
    models, out = np.frombuffer(b"".join(real), np.uint8), np.empty(BUFFER, np.uint8)
    index = np.empty((size // INDEX_INTERVAL + 2, 3), np.int64)
    log[[POSITION, SINCE_ENTRY, ENTRIES]], log[SEGMENT_START] = 0, log[OFFSET]
    path = folder / f"{log[OFFSET]:020d}.log"
    with path.open("wb", buffering=0) as f:
        while log[POSITION] < size:
            f.write(out[: _fill(out, models, starts, log, sequences, index, size)].data)
    entries = index[: log[ENTRIES]]
    path.with_suffix(".index").write_bytes(entries[:, :2].astype(">i4").tobytes())
    times = np.zeros(len(entries), [("time", ">i8"), ("offset", ">i4")])
    times["time"], times["offset"] = entries[:, 2], entries[:, 0]
    path.with_suffix(".timeindex").write_bytes(times.tobytes())
    return path


def _partition(folder: Path, kind: Kind, size: int, segment: int) -> dict[Path, tuple[int, int]]:
    """Writes one log; its segments with their batches and records."""
    folder.mkdir(parents=True)
    log, sequences, left = np.zeros(6, np.int64), np.zeros(kind.producers, np.int64), size
    counts = {}
    while left > 0:
        number, offset = int(log[NUMBER]), int(log[OFFSET])
        path = _segment(folder, kind, log, sequences, min(left, segment))
        counts[path] = (int(log[NUMBER]) - number, int(log[OFFSET]) - offset)
        left -= path.stat().st_size
    return counts


def make(folder: Path, kind: Kind, size: int, disk: int = 0, segment: int = 0) -> Made:
    """A log directory ``disk-N`` of about ``size`` bytes below ``folder``, the N-th of its broker; a segment has about
    ``segment`` bytes, :data:`SEGMENT_BYTES` by default.

    Each has a topic of its own, so that several are one broker's, not replicas.
    """
    target = folder / f"disk-{disk}"
    target.mkdir(parents=True)
    partitions = [target / f"bench{disk}-{partition}" for partition in range(kind.partitions)]
    with ThreadPoolExecutor(THREADS) as threads:
        made = list(
            threads.map(lambda p: _partition(p, kind, size // kind.partitions, segment or SEGMENT_BYTES), partitions)
        )
    (target / "meta.properties").write_text(PROPERTIES + f"directory.id=YmVuY2gtZGlza251bWJlc{disk}\n")
    (target / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    counts = {path: count for counts in made for path, count in counts.items()}
    return Made(target, counts, sum(path.stat().st_size for path in counts))


def part_of(whole: Made, part: int, folder: Path) -> Made:
    """The first segments of each partition, with their indexes, as a log directory of its own. Takes no room: its files
    are those of the whole."""
    counts = {}
    for log in {path.parent for path in whole.logs}:
        target = folder / log.name
        target.mkdir(parents=True)
        for segment in sorted(path for path in whole.logs if path.parent == log)[:part]:
            for file in log.glob(f"{segment.stem}.*"):
                os.link(file, target / file.name)
            counts[target / segment.name] = whole.counts[segment]
    for file in (path for path in whole.folder.iterdir() if path.is_file()):
        os.link(file, folder / file.name)
    return Made(folder, counts, sum(path.stat().st_size for path in counts))


@contextmanager
def space(root: Path | None, size: int) -> Iterator[Path]:
    """A folder for ``size`` bytes below ``root`` (None: the system's temporary folder), removed at the end.

    Errors: :class:`AuditInputError` where there is too little room.
    """
    root = root or Path(tempfile.gettempdir())
    root.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(root).free
    if free < size + GIB:
        raise AuditInputError(
            f"{root} has {free / GIB:.1f} GiB free and {size / GIB + 1:.1f} are needed; set BENCH_DIR to a larger disk"
        )
    with tempfile.TemporaryDirectory(prefix="bench-", dir=root) as folder:
        yield Path(folder)
