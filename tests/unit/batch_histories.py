"""Random histories of one partition as batches in columns: sound ones, and the same with all that can be odd."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from auditor.connectors.codec.batches import (
    FLAW_COUNT_BELOW_SPAN,
    FLAW_CRC,
    FLAW_NO_PRODUCER_FIELDS,
    FLAW_PRODUCER_EPOCH,
    FLAW_PRODUCER_SEQUENCE,
    BatchColumns,
    rows_of,
)
from auditor.connectors.codec.indexes import ProducerEntries
from auditor.connectors.codec.primitives import crc_of_change
from auditor.connectors.logdir.files import Replica, SegmentFile
from auditor.connectors.stores.storage import StorageLocation
from auditor.facts.replica_facts import ReplicaFacts
from auditor.replay.producers.snapshot_chain import Stored
from auditor.replay.reading.replica_reader import ReplicaReader
from auditor.replay.task import ReplicaTask
from tests.made import CONTROL, batches, data, marker

LAST, LAST_EPOCH = 2**31 - 1, 32767
RESTLESS = 101  # a producer that begins a new epoch all the time
CHUNK = 61  # rows replayed at once: many small chunks, as tables grow between them


@dataclass
class Producer:
    """What a client would know of itself."""

    pid: int
    transactional: bool
    epoch: int = 0
    sequence: int = 0
    open: bool = False

    def bump(self) -> None:
        """Begins a new epoch, if there is one."""
        if self.epoch < LAST_EPOCH:
            self.epoch, self.sequence = self.epoch + 1, 0


@dataclass
class History:
    """Rows in offset order, and the snapshots that lie beside them."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    snapshots: list[Stored] = field(default_factory=list)
    log_start: int = 0

    def columns(self) -> BatchColumns:
        """The rows as batches."""
        return batches(*self.rows)


def history(
    seed: int, length: int = 400, producers: int = 12, oddities: float = 0.15, transactional: float = 0.6
) -> History:
    """A history of ``length`` batches; about ``oddities`` of them are what no sound log has, and ``transactional`` of
    the producers are."""
    draw = random.Random(seed)
    out, clients, offset, leader_epoch, now = History(), [], draw.choice([0, 1000]), 0, 1_700_000_000_000
    stored: dict[int, dict[str, Any]] = {}
    for number in range(producers):
        first = draw.choice([0, 0, 0, LAST - 20, LAST])
        clients.append(Producer(100 + number, draw.random() < transactional, draw.choice([0, 0, 3, 32767]), first))
    for number in range(length):
        now += draw.choice([0, 5, 1000, 60_000, 90_000_000 if draw.random() < 0.05 else 7])
        leader_epoch += draw.random() < 0.02
        row = _next(draw, draw.choice(clients), offset)
        row |= {"partition_leader_epoch": leader_epoch, "max_timestamp": now + draw.choice([0, 0, 0, -5000, 4_000_000])}
        if draw.random() < oddities:
            _spoil(draw, row)
        if not row["attributes"] & CONTROL and "base_sequence" in row:
            _send_again(stored.get(row["producer_id"]), row)
            stored[row["producer_id"]] = row
        row["position"] = 100 * number
        out.rows.append(row)
        offset = max(offset, row["last_offset"] + 1)
        if draw.random() < 0.02:
            out.snapshots.append(_snapshot(draw, clients, offset))
    if draw.random() < 0.4:
        out.log_start = draw.choice(out.rows[: length // 2])["base_offset"]
    return out


def _send_again(before: dict[str, Any] | None, row: dict[str, Any]) -> None:
    """Gives the first batch of an epoch the records of the one before, if it has as many."""
    if before is None or row["base_sequence"] != 0 or row["producer_epoch"] <= before["producer_epoch"]:
        return
    if row["last_offset"] - row["base_offset"] == before["last_offset"] - before["base_offset"]:
        row["max_timestamp"] = before["max_timestamp"]
        row["crc"] = crc_sent_again(before, row["producer_epoch"], row["base_sequence"])


def crc_sent_again(before: dict[str, Any], epoch: int, sequence: int) -> int:
    """The checksum of a batch of 100 bytes under another epoch and sequence: 43 bytes follow those."""
    word = (before["producer_epoch"] ^ epoch) << 32 | (before["base_sequence"] ^ sequence)
    return int(before.get("crc", 0) ^ crc_of_change(np.int64(word), np.int64(43)))


def _next(draw: random.Random, client: Producer, offset: int) -> dict[str, Any]:
    """The next batch or marker of a producer."""
    if client.open and draw.random() < 0.3:
        client.open = False
        row = marker(offset, client.epoch, pid=client.pid, commit=draw.random() < 0.7, coordinator_epoch=1)
        if draw.random() < 0.3:
            client.bump()
        return row
    if not client.open and draw.random() < (0.8 if client.pid == RESTLESS else 0.04):
        client.bump()
    count = draw.choice([1, 1, 2, 5, 30])
    row = data(offset, client.sequence, count, pid=client.pid, transactional=client.transactional)
    row["producer_epoch"] = client.epoch
    client.sequence = (client.sequence + count) % (LAST + 1)
    client.open = client.transactional
    return row


ODDITIES = (
    "sequence", "again", "epoch", "offset", "hole", "crc", "attributes", "coordinator", "magic", "time", "leader epoch",
    "flaws", "id",
)  # fmt: skip


def _spoil(draw: random.Random, row: dict[str, Any]) -> None:
    """Changes something that a log does not have."""
    match draw.choice(ODDITIES):
        case "sequence":
            row["base_sequence"] = draw.choice([0, 7, LAST, (row.get("base_sequence", 0) + 4) % (LAST + 1)])
        case "again":
            row["base_sequence"] = max(0, row.get("base_sequence", 0) - draw.choice([1, 2, 30, 100]))
        case "epoch":
            row["producer_epoch"] = draw.choice([0, 1, 9, 32767])
        case "offset":
            move = draw.choice([1, 40, 400])
            row["base_offset"], row["last_offset"] = (
                max(0, row["base_offset"] - move),
                max(0, row["last_offset"] - move),
            )
        case "hole":
            row["base_offset"] += 50
            row["last_offset"] += 50
        case "crc":
            row["flaws"] = FLAW_CRC
        case "attributes":
            row["attributes"] = draw.choice([0, 0x08, 0x10, 0x20, 0x30])
        case "coordinator":
            row["coordinator_epoch"] = draw.choice([0, 2, 5])
        case "magic":
            row |= {"magic": 1, "producer_id": -1, "producer_epoch": -1, "base_sequence": -1, "control_type": -1}
        case "time":
            row["max_timestamp"] = draw.choice([-1, 1_600_000_000_000, row["max_timestamp"] - 200_000_000])
        case "leader epoch":
            row["partition_leader_epoch"] = draw.choice([-1, 0, 5])
        case "flaws":
            row["flaws"] = draw.choice(
                [FLAW_COUNT_BELOW_SPAN, FLAW_PRODUCER_SEQUENCE, FLAW_PRODUCER_EPOCH, FLAW_NO_PRODUCER_FIELDS]
            )
        case "id":
            row["producer_id"] = draw.choice([-1, 0, 2**62, 7])


def _snapshot(draw: random.Random, clients: list[Producer], offset: int) -> Stored:
    """What a snapshot could say there: partly right, partly not."""
    known = draw.sample(clients, draw.randint(0, len(clients)))
    columns = {
        "producer_id": [c.pid for c in known] + [5000 + draw.randint(0, 3) for _ in range(draw.randint(0, 2))],
    }
    rows = len(columns["producer_id"])
    columns["producer_epoch"] = [c.epoch for c in known] + [0] * (rows - len(known))
    columns["last_sequence"] = [c.sequence - 1 for c in known] + [3] * (rows - len(known))
    columns["last_offset"] = [draw.randint(0, offset) for _ in range(rows)]
    columns["offset_delta"] = [0] * rows
    columns["last_timestamp"] = [1_700_000_000_000] * rows
    columns["coordinator_epoch"] = [draw.choice([-1, 1]) for _ in range(rows)]
    columns["current_txn_first_offset"] = [draw.choice([-1, draw.randint(0, offset)]) for _ in range(rows)]
    small = ("last_sequence", "offset_delta", "coordinator_epoch")
    types = {"producer_epoch": np.int16} | dict.fromkeys(small, np.int32)
    entries = ProducerEntries(*(np.array(columns[n], types.get(n, np.int64)) for n in ProducerEntries._fields))
    return Stored(f"{offset:020d}.snapshot", offset, entries, True)


class Rows(Protocol):
    """Has a reader replay rows of a walk."""

    def __call__(self, reader: ReplicaReader, rows: np.ndarray, /) -> None:
        """All of them, in their order."""


def facts_of(
    made: History, *, compacted: bool = False, replay: Rows = ReplicaReader.replay_batches, chunk: int = CHUNK,
    checkpoint: bool = True,
) -> ReplicaFacts:  # fmt: skip
    """The facts of a replica with this history in two segments, replayed ``chunk`` rows at a time; ``checkpoint``: with
    one of leader epochs."""
    half = made.rows[len(made.rows) // 2]["base_offset"]
    segments = (SegmentFile("0.log", made.rows[0]["base_offset"], 0), SegmentFile("1.log", half, 0))
    replica = Replica("broker-1", "t", 0, "t-0", segments=segments)
    task = ReplicaTask(
        StorageLocation("", "/nowhere"),
        replica,
        None,
        1,
        "cluster",
        clean_shutdown=True,
        log_start=made.log_start,
        compacted=compacted,
    )
    reader = ReplicaReader(task)
    epochs = np.array([[0, 1, 3], [0, 1500, 4000]] if checkpoint else [[], []], np.int64)
    reader.begin(made.snapshots, *epochs)
    rows = rows_of(made.columns())
    cut = len(made.rows) // 2
    for number, (first, last) in enumerate(((0, cut), (cut, len(rows)))):
        reader.begin_segment(number, f"{number}.log", segments[number].base_offset, half if number == 0 else -1)
        for at in range(first, last, chunk):
            replay(reader, rows[at : min(at + chunk, last)])
        reader.end_segment()
    return reader.finish(list(made.snapshots))
