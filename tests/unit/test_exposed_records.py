"""Aborted records that read_committed consumers get: what the audit says against every fetch that a broker may answer.

The fetches are simulated here after Kafka's code, one by one: LocalLog.read and addAbortedTransactions,
OffsetIndex.fetchUpperBoundOffset, TransactionIndex.collectAbortedTxns, and the consumer's CompletedFetch.
"""

from __future__ import annotations

import random
import struct
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from auditor.connectors.files import DataFile, Replica, SegmentFile
from auditor.connectors.storage import place
from auditor.facts.replica_facts import ReplicaFacts
from auditor.replay.reading.replica_reader import read_replica
from auditor.replay.task.replica_task import ReplicaTask
from auditor.rules.seen.cluster_view import Cluster
from auditor.rules.seen.finding import Finding
from auditor.rules.seen.view import LogView
from tests import segments
from tests.facts import judge
from tests.forge import CONTROL, TRANSACTIONAL, Batch, marker

RULE = "aborted-records-exposed"
Exposed = dict[tuple[int, int], tuple[int, int, int]]  # by segment and marker: first and last offset, records


class Entry(NamedTuple):
    """An entry of a transaction index."""

    producer: int
    first: int
    last: int
    stable: int


@dataclass
class Segment:
    """A segment and its indexes: (offset, position) each, and those of aborted transactions."""

    base: int
    batches: list[Batch] = field(default_factory=list)
    offsets: list[tuple[int, int]] = field(default_factory=list)
    aborted: list[Entry] = field(default_factory=list)

    @property
    def positions(self) -> list[int]:
        """Where each batch begins, and the end."""
        return np.cumsum([0, *(len(b.data) for b in self.batches)]).tolist()


def made_log(draw: random.Random) -> list[Segment]:
    """Transactions of three producers that overlap, in segments with sparse offset indexes. Some last stable offsets in
    the transaction indexes are wrong, too low or too high."""
    log, end = [Segment(0)], 0
    begun: dict[int, tuple[int, Batch]] = {}
    per_append = draw.random() < 0.3  # as up to 3.7 a follower's append of several batches has one entry
    for _ in range(draw.randint(20, 60)):
        if log[-1].batches and draw.random() < 0.06:
            log.append(Segment(end))
        producer = draw.randrange(4)
        if producer in begun and draw.random() < 0.5:
            first, data = begun.pop(producer)
            commit = draw.random() < 0.2
            batch = marker(data, commit, base_offset=end, time=segments.TIME)
            if not commit:
                right = min((begin for begin, _ in begun.values()), default=end + 1)
                stable = right if draw.random() < 0.6 else draw.randint(max(0, right - 9), right + 25)
                log[-1].aborted.append(Entry(producer, first, end, stable))
        else:
            bits = TRANSACTIONAL if producer else 0
            data = segments.simple(end, draw.randint(1, 3), value=b"v" * draw.choice((9, 90)), producer_id=producer,
                                   epoch=0, sequence=0, attributes=bits)  # fmt: skip
            batch = Batch(data)
            if producer:
                begun.setdefault(producer, (end, batch))
        log[-1].batches.append(batch)
        end = batch.last + 1
    for segment in log:
        _index(draw, segment, per_append)
    return log


def _index(draw: random.Random, segment: Segment, per_append: bool) -> None:
    at = 0
    while at < len(segment.batches):
        size = draw.randint(1, 5) if per_append else 1
        append = segment.batches[at : at + size]
        if at and draw.random() < 0.5:
            segment.offsets.append((append[-1].last, segment.positions[at]))
        at += size


def written(log: list[Segment], folder: Path, *, without_index: bool = False) -> ReplicaFacts:
    """The facts of a log, read from its files."""
    files = []
    for segment in log:
        name = f"{segment.base:020}"
        content = {
            "log": b"".join(bytes(b.data) for b in segment.batches),
            "index": b"".join(struct.pack(">ii", offset - segment.base, at) for offset, at in segment.offsets),
            "txnindex": b"".join(struct.pack(">hqqqq", 0, *entry) for entry in segment.aborted),
        }
        for kind, data in content.items():
            (folder / f"{name}.{kind}").write_bytes(data)
        index, aborted = (DataFile(f"{name}.{k}", len(content[k]), k, segment.base) for k in ("index", "txnindex"))
        files.append(
            SegmentFile(f"{name}.log", segment.base, len(content["log"]), None if without_index else index,
                        txnindex=aborted)
        )  # fmt: skip
    replica = Replica("dir", "t", 0, "", segments=tuple(files))
    return read_replica(ReplicaTask(place(str(folder)), replica, None, 1, "", True))


def fetches(log: list[Segment], number: int) -> Iterator[tuple[int, list[Batch], int]]:
    """Every fetch from a segment: its first batch's offset, the whole batches in it, and its upper bound."""
    segment, positions = log[number], log[number].positions
    behind = log[number + 1].base if number + 1 < len(log) else log[-1].batches[-1].last + 1
    for first in range(len(segment.batches)):
        for stop in range(first + 1, len(segment.batches) + 1):
            more = stop < len(segment.batches)
            for end in (positions[stop], positions[stop] + 7) if more else (positions[stop],):
                bound = next((offset for offset, at in segment.offsets if at >= end), behind)
                yield segment.batches[first]["base_offset"], segment.batches[first:stop], bound


def collected(log: list[Segment], number: int, fetch_offset: int, bound: int) -> list[Entry]:
    """What the broker says of aborted transactions."""
    found = []
    for segment in log[number:]:
        for entry in segment.aborted:
            if entry.last >= fetch_offset and entry.first < bound:
                found.append(entry)
            if entry.stable >= bound:
                return found
    return found


def returned(batches: list[Batch], aborted: list[Entry]) -> Iterator[Batch]:
    """The batches with records that a read_committed consumer returns."""
    waiting, dropped = sorted(aborted, key=lambda entry: entry.first), set()
    for batch in batches:
        while waiting and waiting[0].first <= batch.last:
            dropped.add(waiting.pop(0).producer)
        if batch["attributes"] & CONTROL:
            dropped.discard(batch["producer_id"])
        elif not (batch["attributes"] & TRANSACTIONAL and batch["producer_id"] in dropped):
            yield batch


def exposed_by_fetches(log: list[Segment]) -> Exposed:
    """The records of aborted transactions that some fetch returns."""
    entries = [entry for segment in log for entry in segment.aborted]
    found: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
    for number in range(len(log)):
        for offset, batches, bound in fetches(log, number):
            for batch in returned(batches, collected(log, number, offset, bound)):
                for entry in entries:
                    inside = entry.first <= batch["base_offset"] < entry.last
                    if inside and batch["producer_id"] == entry.producer:
                        found[number, entry.last][batch["base_offset"]] = batch["count"]
    return {
        key: (min(counts), max(counts) + counts[max(counts)] - 1, sum(counts.values()))
        for key, counts in found.items()
    }


def said(replica: ReplicaFacts) -> Exposed:
    return {
        (int(row["segment"]), int(row["marker_offset"])): (
            int(row["first_offset"]), int(row["last_offset"]), int(row["records"])
        )
        for row in replica.exposed
    }  # fmt: skip


def findings(replica: ReplicaFacts) -> list[Finding]:
    return judge([LogView([replica], Cluster(0, 0))], RULE)


@pytest.mark.parametrize("seed", range(60))
def test_exposed_is_what_some_fetch_returns(seed: int, tmp_path: Path) -> None:
    log = made_log(random.Random(seed))
    replica = written(log, tmp_path)
    expected = exposed_by_fetches(log)
    assert said(replica) == expected
    found = findings(replica)
    assert len(found) == (1 if expected else 0)
    for f in found:
        assert f.evidence["transactions"] <= len(expected)


def test_most_seeds_expose_something_and_some_do_not(tmp_path: Path) -> None:
    counts = [len(exposed_by_fetches(made_log(random.Random(seed)))) for seed in range(60)]
    assert 10 < sum(count > 0 for count in counts) < 60
