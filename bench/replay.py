"""Speed and memory of the replay: ``python -m bench.replay [MILLION_BATCHES]``, on one core, in CPU time.

Three things are measured. The kernel alone, on rows as a walk leaves them: plain idempotent batches and transactions of
nine batches and a marker, of 10 000 and of 1 000 000 interleaved producers. A whole copy, from the segment file to its
facts, at 400 bytes a batch. And what it costs to compile everything, and to load it again.

Measured on two shared cores of an AMD EPYC: 14 million batches/s with 10 000 producers, with or without transactions,
2 to 2.5 million with 1 000 000; compiling takes 20 s, loading under one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from auditor.facts import CopyFacts
from auditor.replay import state as st
from auditor.replay.copy import CopyTask, read_copy
from auditor.replay.kernel import replay_batches
from connectors.codec import batch as col
from connectors.codec.crc32c import crc32c
from connectors.codec.segment import ROWS
from connectors.files import Copy, SegmentFile
from connectors.storage import Place
from tests.segments import batch, record

DAY_MS = 86_400_000
ROUND = 10  # batches of a producer's transaction, the marker among them
FILLED = {col.SIZE: 400, col.MAGIC: 2, col.RECORD_COUNT: 1}
ABSENT = (col.CONTROL_TYPE, col.COORDINATOR_EPOCH)
LOAD = "from pathlib import Path; from auditor.warm import warm; from auditor.cli import DEMO; warm(DEMO / 'logs')"


def rows(first: int, count: int, producers: int, transactions: bool) -> np.ndarray:
    """Rows of batches of one record, the producers in turn, each with its own sequence; one batch a millisecond."""
    offset = np.arange(first, first + count)
    turn = offset // producers
    out = np.zeros((col.FLAWS + 1, count), np.int64)
    for column, value in FILLED.items():
        out[column] = value
    for column in (col.BASE_OFFSET, col.LAST_OFFSET, col.BASE_TIMESTAMP, col.MAX_TIMESTAMP):
        out[column] = offset
    out[col.POSITION] = offset * 400
    out[col.PRODUCER_ID] = offset % producers + 1000
    out[col.BASE_SEQUENCE] = turn
    for column in ABSENT:
        out[column] = -1
    if transactions:
        marker = turn % ROUND == ROUND - 1
        out[col.ATTRIBUTES] = np.where(marker, 0x30, 0x10)
        out[col.BASE_SEQUENCE] = np.where(marker, -1, turn - turn // ROUND)
        out[col.CONTROL_TYPE] = np.where(marker, 1, -1)
        out[col.COORDINATOR_EPOCH] = np.where(marker, 0, -1)
    return out


def replay_speed(producers: int, batches: int, transactions: bool) -> float:
    """Batches a second of CPU time. Raises if the replay finds anything odd in a sound history."""
    params = np.zeros(st.PARAMS, np.int64)
    params[[st.P_SEQUENCES, st.P_EXPIRY_MS]] = 1, DAY_MS
    none = np.empty(0, np.int64)
    replay, took = st.new_replay(params, none, none), 0.0
    replay.scalars[[st.S_SEGMENT, st.S_SEGMENT_BASE]] = 0
    for first in range(0, batches, ROWS):
        chunk, at = rows(first, min(ROWS, batches - first), producers, transactions), 0
        began = time.process_time()
        while at < chunk.shape[1]:
            replay = st.ensure_room(replay, chunk.shape[1] - at)
            at = int(replay_batches(replay, chunk, at, chunk.shape[1]))
            if replay.scalars[st.S_EVENTS]:
                raise AssertionError(f"a sound history has events: {replay.log.events[0]}")
            replay.scalars[st.S_TRANSACTIONS] = 0
        took += time.process_time() - began
    return batches / took


def write_segment(path: Path, producers: int, batches: int) -> None:
    """A segment of batches of 400 bytes of as many producers, each with its own sequence."""
    model = bytearray(batch(record(0, b"key", bytes(327), 0), 1, producer_id=0, epoch=0, sequence=0))
    bytes_of = np.frombuffer(model, np.uint8)
    with path.open("wb", buffering=1 << 20) as f:
        for offset in range(batches):
            model[0:8] = offset.to_bytes(8, "big")
            model[27:35] = model[35:43] = offset.to_bytes(8, "big")
            model[43:51] = (offset % producers + 1000).to_bytes(8, "big")
            model[53:57] = (offset // producers).to_bytes(4, "big")
            model[17:21] = int(crc32c(bytes_of, 21, len(model))).to_bytes(4, "big")
            f.write(model)


def read(folder: Path) -> CopyFacts:
    """The facts of the copy in ``folder``."""
    (log,) = folder.glob("*.log")
    copy = Copy("bench", "t", 0, "t-0", segments=(SegmentFile(log.name, 0, log.stat().st_size),))
    return read_copy(CopyTask(Place("", str(folder)), copy, None, 1, "bench", clean_shutdown=True))


def private_mib() -> int:
    """Private memory of this process in MiB, as Linux counts it."""
    found = [line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if "RssAnon" in line]
    return int(found[0]) // 1024 if found else -1


def copy_speed(producers: int, batches: int) -> None:
    """Prints how fast a whole copy is read, and the private memory after it."""
    with tempfile.TemporaryDirectory() as folder:
        write_segment(Path(folder, "00000000000000000000.log"), producers, batches)
        before, began = private_mib(), time.process_time()
        facts = read(Path(folder))
        took = time.process_time() - began
        if len(facts.events) or facts.errors or len(facts.producers) != producers:
            raise AssertionError("the copy was not read as it was written")
        print(f"whole copy, {producers} producers: {batches / took / 1e6:.2f} million batches/s, "
              f"{before} MiB private before, {private_mib()} after")  # fmt: skip


def compile_times() -> None:
    """Prints what a first run costs, and one that finds everything compiled."""
    with tempfile.TemporaryDirectory() as folder:
        for what in ("compiled and run", "loaded and run"):
            before = os.times()
            subprocess.run([sys.executable, "-c", LOAD], env=os.environ | {"NUMBA_CACHE_DIR": folder}, check=True)
            after = os.times()
            spent = after.children_user - before.children_user
            print(f"all kernels {what}, imports included: {spent:.1f} s of CPU time")


def main(millions: int = 8) -> None:
    """Prints a line a case."""
    replay_speed(10, 1000, True)  # compiles
    for producers in (10_000, 1_000_000):
        for transactions in (False, True):
            speed = replay_speed(producers, millions * 1_000_000, transactions)
            what = "transactions" if transactions else "idempotent"
            print(f"replay, {producers} producers, {what}: {speed / 1e6:.1f} million batches/s")
    copy_speed(10_000, 1_000_000)
    copy_speed(1_000_000, 1_000_000)
    compile_times()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
