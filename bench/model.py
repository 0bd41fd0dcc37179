"""The model alone, on one core: batches a second of the replay against Kafka's own ProducerStateManager."""

from __future__ import annotations

import subprocess
import time

import numpy as np

from auditor.connectors.codec import batches as col
from auditor.connectors.codec.segment import ROWS
from auditor.replay.producers import state as st
from auditor.replay.producers.kernel import replay_batches
from auditor.replay.task import as_records
from bench.java import compiled
from bench.sides import in_turn, medians
from bench.sizes import Plan
from bench.table import Row, ratio

DAY_MS = 86_400_000
ROUND = 10  # batches of a producer's transaction, the marker among them
FILLED = {col.SIZE: 400, col.MAGIC: 2, col.RECORD_COUNT: 1}
ABSENT = (col.CONTROL_TYPE, col.COORDINATOR_EPOCH)
TARGETS = {10_000: 2.5, 1_000_000: 1.5}  # producers: times faster
ONE_CORE = ("-XX:ActiveProcessorCount=1", "-Xmx4g")


def rows(first: int, count: int, producers: int, transactions: bool) -> np.ndarray:
    """Rows of batches of one record, the producers in turn, each with its own sequence; one batch a millisecond."""
    offset = np.arange(first, first + count)
    turn = offset // producers
    made = np.zeros((count, col.FLAWS + 1), np.int64)
    out = made.T
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
    return made


def replay_seconds(producers: int, batches: int, transactions: bool) -> float:
    """Seconds of the replay alone. Raises if it finds anything odd in a sound history."""
    params = np.zeros(1, st.PARAMS)
    params["has_sequences"], params["expiration_ms"] = 1, DAY_MS
    none = np.empty(0, np.int64)
    replay, took = st.new_replay(params, none, none), 0.0
    progress = replay.progress
    progress["segment"] = progress["segment_base_offset"] = 0
    for first in range(0, batches, ROWS):
        chunk, at = as_records(rows(first, min(ROWS, batches - first), producers, transactions)), 0
        began = time.perf_counter()
        while at < len(chunk):
            replay = st.ensure_room(replay, len(chunk) - at)
            at = int(replay_batches(replay, chunk, at, len(chunk)))
            if progress["events"]:
                raise AssertionError(f"a sound history has events: {replay.log.events[0]}")
            progress["transactions"] = 0
        took += time.perf_counter() - began
    return took


def manager_seconds(producers: int, batches: int, origin: str) -> float:
    """Seconds of ProducerStateManager for the same, after the JVM has compiled it."""
    command = [*compiled("Replay", *ONE_CORE), str(producers), str(batches), origin]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return batches / float(ran.stdout)


def measure(plan: Plan) -> list[Row]:
    """A row a number of producers."""
    replay_seconds(10, 1000, True)  # compiles
    return [_row(producers, target, plan) for producers, target in TARGETS.items()]


def _row(producers: int, target: float, plan: Plan) -> Row:
    batches = plan.replayed
    times = in_turn(
        {
            "plain": lambda: replay_seconds(producers, batches, False),
            "transactions": lambda: replay_seconds(producers, batches, True),
            "manager": lambda: manager_seconds(producers, batches, "CLIENT"),
        },
        plan.runs,
    )
    times["REPLICATION"] = [manager_seconds(producers, batches, "REPLICATION")]
    rate = {name: batches / seconds / 1e6 for name, seconds in medians(times).items()}
    note = f"with transactions {rate['transactions']:.1f} M/s; Kafka's as a replica {rate['REPLICATION']:.2f} M/s"
    return ratio(
        f"model replay, one core, {producers:,} producers, against ProducerStateManager (origin CLIENT)", target,
        rate["plain"] / rate["manager"], f"{rate['plain']:.1f} against {rate['manager']:.2f} M batches/s", note,
    )  # fmt: skip
