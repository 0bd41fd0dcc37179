"""Which records of a refused batch are to blame: the batch is read once more and put to the model's validator, with
what is known of the broker's clock by now.

Reading sums a batch up in one row, which names the first culprit alone: few batches have any, and a list for each would
cost every healthy one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from auditor.base.errors import DecodeError, Limits
from auditor.connectors.codec.batches import OVERHEAD, BatchColumns, columns_of, open_wrappers, walk, walk_rows
from auditor.connectors.codec.records import Decoded, decode_records
from auditor.connectors.codec.segment import StoredChunks
from auditor.connectors.stores.storage import open_file
from auditor.facts.events import Culprits, Event, Kind, events_of
from auditor.facts.replica_facts import ReplicaFacts
from auditor.model.batch_validation import (
    CHECKSUM,
    CODEC,
    MAGIC,
    NO_KEY,
    TOO_NEW,
    TOO_OLD,
    UNREADABLE,
    Topic,
    misnumbered,
)
from auditor.replay.producers.log_checks import AHEAD_MS
from auditor.replay.segments.record_checks import oldest
from auditor.replay.segments.segment_checks import read_again
from auditor.replay.segments.validated import ANY_TIME, Sender, as_sent, asked, sent_records
from auditor.replay.task.replica_task import ReplicaTask

BATCHES_OF_A_KIND = 100  # the first of a replica; of those beyond, findings name the first culprit
RECORDS_OF_A_BATCH = 10_000  # named of one batch
BLAMED = (Kind.NULL_KEY, Kind.RECORD_FLAW, Kind.RECORD_TIMESTAMP, Kind.TIMESTAMP_AHEAD)
Opened = tuple[BatchColumns, Decoded]  # one batch, and its records


class Where(NamedTuple):
    """A batch with culprits: records stamped before ``oldest`` or after ``newest`` (ms) are, among others."""

    segment: int
    position: int
    oldest: int = ANY_TIME[0]
    newest: int = ANY_TIME[1]


def culprits_of(
    facts: ReplicaFacts, opened: Callable[[int, int], Opened | None], before_ms: int | None, sender: Sender
) -> dict[tuple[int, int], Culprits]:
    """The culprits of a replica's batches by segment number and position.

    ``opened`` gives a batch by these, None where it cannot. Cost: some hundred batches at most are read again.
    """
    out = {}
    for at in _batches(facts, before_ms):
        found = opened(at.segment, at.position)
        if found is not None:
            topic = Topic(sender.compacted, False, at.oldest, at.newest)
            out[at.segment, at.position] = _culprits(found[1], found[0], topic, sender)
    return out


def opened_batch(task: ReplicaTask, number: int, position: int) -> Opened | None:
    """The batch at a position of a replica's segment with its records, read once more."""
    segment, limits = task.replica.segments[number], task.limits
    place = segment.place or task.place
    f = open_file(place, segment.name)
    if isinstance(f, DecodeError):
        return None
    with contextlib.closing(f):
        if isinstance(f, StoredChunks):
            return f.batch(position, limits)
    return batch_of(lambda size: read_again(task, number, position, size), limits)


def batch_of(read: Callable[[int], bytes | None], limits: Limits) -> Opened | None:
    """The same by its stored bytes, of which ``read`` gives the first so many."""
    head = read(OVERHEAD)
    size = OVERHEAD + int.from_bytes(head[8:], "big", signed=True) if head and len(head) == OVERHEAD else 0
    stored = read(size) if OVERHEAD < size <= limits.max_batch_bytes else None
    return _decoded(stored, limits) if stored is not None and len(stored) == size else None


def _batches(facts: ReplicaFacts, before_ms: int | None) -> Iterator[Where]:
    """Every batch that an event blames a record of, once."""
    found: dict[tuple[int, int], Where] = {}
    for kind in BLAMED:
        for number, e in enumerate(events_of(facts.events, kind)):
            if number >= BATCHES_OF_A_KIND:
                break
            place = (int(e["segment"]), int(e["position"]))
            before = found.get(place, Where(*place))
            found[place] = before._replace(**_limits_of(kind, e, before_ms))
    if facts.ahead is not None and facts.broker_time >= 0:
        place = (facts.ahead.segment, facts.ahead.position)
        found[place] = found.get(place, Where(*place))._replace(newest=facts.broker_time + AHEAD_MS)
    yield from found.values()


def _limits_of(kind: Kind, e: Event, before_ms: int | None) -> dict[str, int]:
    if kind is Kind.RECORD_TIMESTAMP:
        known = before_ms is not None and e["broker_time"] >= 0
        return {"oldest": max(int(oldest(e["broker_time"], before_ms)), -1) if known and before_ms is not None else -1}
    return {"newest": int(e["broker_time"]) + AHEAD_MS} if kind is Kind.TIMESTAMP_AHEAD else {}


def _decoded(stored: bytes, limits: Limits) -> Opened | None:
    buf = np.frombuffer(bytearray(stored), np.uint8)  # kernels are compiled for arrays that can be written
    row = walk_rows(1)
    found, end, _why = walk(buf, 0, len(buf), 0, 1, limits.max_batch_bytes, False, 0, row, 0)
    if found != 1 or end != len(buf):
        return None
    batch = columns_of(row)
    open_wrappers(buf, 0, batch, limits)
    for run in decode_records([stored], batch, limits=limits):
        return batch, run
    return None


def _culprits(run: Decoded, batch: BatchColumns, topic: Topic, sender: Sender) -> Culprits:
    r = run.records
    sent = sent_records(r, batch)
    asked(as_sent(batch, sender, run.summary), sent, topic)
    cause = sent["cause"]
    flawed = np.isin(cause, (UNREADABLE, CODEC, MAGIC, CHECKSUM)) | misnumbered(r.flaws)
    wanted = cause == NO_KEY, flawed, cause == TOO_OLD, cause == TOO_NEW
    named = [np.flatnonzero(each)[:RECORDS_OF_A_BATCH] for each in wanted]
    null, flawed, behind, beyond = (tuple(r.index[rows].tolist()) for rows in named)
    return Culprits(
        len(r.index),
        int(batch.record_count[0]),
        int(batch.base_sequence[0]),
        null,
        flawed,
        behind,
        tuple(zip(beyond, r.timestamp[named[3]].tolist(), strict=True)),
        sum(int(each.sum()) - len(rows) for each, rows in zip(wanted, named, strict=True)),
    )
