"""Aborted records that read_committed consumers get: what the audit says against every fetch that a broker may answer.

The fetches are simulated here after Kafka's code, one by one: LocalLog.read and addAbortedTransactions,
AbstractIndex.smallestUpperBoundSlotFor, TransactionIndex.collectAbortedTxns, and the consumer's CompletedFetch.
"""

from __future__ import annotations

import random
import struct
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from auditor.base.advice import Verdict, text
from auditor.connectors.logdir.files import DataFile, Replica, SegmentFile
from auditor.connectors.stores.storage import place
from auditor.facts.replica_facts import ReplicaFacts
from auditor.replay.reading.replica_reader import read_replica
from auditor.replay.task import ReplicaTask
from auditor.rules.seen.cluster_view import Cluster
from auditor.rules.seen.view import Finding, LogView
from tests import corpora, segments
from tests.facts import corpus_logs, judge
from tests.forge import CONTROL, TRANSACTIONAL, Batch, marker
from tests.seeded_tests import seeded

RULE = "aborted-records-exposed"
CORPUS = "index-hides-abort-43"
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


def written(log: list[Segment], folder: Path, *, without_index: bool = False, log_start: int = 0) -> ReplicaFacts:
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
    return read_replica(ReplicaTask(place(str(folder)), replica, None, 1, "", True, log_start=log_start))


def fetches(log: list[Segment], number: int) -> Iterator[tuple[int, list[Batch], int]]:
    """Every fetch from a segment: its first batch's offset, the whole batches in it, and its upper bound."""
    segment, positions = log[number], log[number].positions
    behind = log[number + 1].base if number + 1 < len(log) else log[-1].batches[-1].last + 1
    for first in range(len(segment.batches)):
        for stop in range(first + 1, len(segment.batches) + 1):
            more = stop < len(segment.batches)
            for end in (positions[stop], positions[stop] + 7) if more else (positions[stop],):
                slot = upper_bound_slot([at for _, at in segment.offsets], end)
                bound = behind if slot < 0 else segment.offsets[slot][0]
                yield segment.batches[first]["base_offset"], segment.batches[first:stop], bound


def upper_bound_slot(positions: list[int], target: int) -> int:
    """AbstractIndex.smallestUpperBoundSlotFor of a small index: its binary search never compares the first entry."""
    if not positions:
        return -1
    if positions[0] > target:
        return 0
    low, high = 0, len(positions) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if positions[middle] == target:
            return middle
        low, high = (low, middle - 1) if positions[middle] > target else (middle, high)
    return -1 if low == len(positions) - 1 else low + 1


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
        key: (min(counts), max(counts) + counts[max(counts)] - 1, sum(counts.values())) for key, counts in found.items()
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


@seeded(60)
def test_exposed_is_what_some_fetch_returns(seed: int, tmp_path: Path) -> None:
    log = made_log(random.Random(seed))
    replica = written(log, Path(tempfile.mkdtemp(dir=tmp_path)))
    expected = exposed_by_fetches(log)
    assert said(replica) == expected
    found = findings(replica)
    assert len(found) == (1 if expected else 0)
    for f in found:
        assert f.evidence["transactions"] <= len(expected)


def test_most_seeds_expose_something_and_some_do_not(tmp_path: Path) -> None:
    counts = [len(exposed_by_fetches(made_log(random.Random(seed)))) for seed in range(60)]
    assert 10 < sum(count > 0 for count in counts) < 60


def defect(*, open_first: bool = False, indexed: bool = True) -> list[Segment]:
    """Three aborted transactions of a producer, then a committed one of another producer, and last stable offsets as a
    follower writes them that appends all of this at once. ``open_first``: behind the data of an open transaction."""
    segment, end = Segment(0), 0

    def add(producer: int, commit: bool | None) -> int:
        nonlocal end
        data = Batch(segments.simple(end, 3, producer_id=producer, epoch=0, sequence=0, attributes=TRANSACTIONAL))
        segment.batches.append(data)
        end = data.last + 1
        if commit is not None:
            segment.batches.append(marker(data, commit, base_offset=end, time=segments.TIME))
            end += 1
        return data["base_offset"]

    if open_first:
        add(7, None)
    aborted = [(add(1, False), end - 1) for _ in range(3)]
    behind = add(2, True)
    segment.aborted = [Entry(1, first, last, behind) for first, last in aborted]
    batches = zip(segment.batches, segment.positions, strict=False)
    segment.offsets = [(batch.last, at) for batch, at in list(batches)[1:]] if indexed else []
    return [segment]


def test_a_transaction_behind_an_entry_that_is_too_high_is_exposed(tmp_path: Path) -> None:
    (f,) = findings(written(defect(), tmp_path))
    assert (f.severity, f.broker_id, f.offset, f.last_offset) == ("critical", 1, 4, 10)
    assert f.evidence["exposed"] == [[1, 4, 6, 3, 7], [1, 8, 10, 3, 11]]
    assert f.evidence["index_entries"] == [[1, 0, 3, 12]]
    assert f.evidence["confidence"] == "proved"


def test_entries_that_are_too_high_expose_nothing_where_no_fetch_can_end(tmp_path: Path) -> None:
    """As in healthy clusters: the next entry of the offset index, or the end, lies behind the last stable offsets."""
    assert findings(written(defect(indexed=False), tmp_path)) == []


def test_records_behind_an_open_transaction_are_not_exposed_yet(tmp_path: Path) -> None:
    (f,) = findings(written(defect(open_first=True), tmp_path))
    assert (f.severity, f.offset, f.last_offset) == ("warning", 7, 13)
    assert "after the transaction at offset 0 ends" in f.message


def test_without_the_offset_index_nobody_knows_where_a_fetch_can_end(tmp_path: Path) -> None:
    (f,) = findings(written(defect(), tmp_path, without_index=True))
    assert (f.severity, f.evidence["confidence"], f.evidence["missing"]) == ("info", "undecidable", f"{0:020}.index")
    assert f.advice is not None
    assert not f.advice.acts


def test_no_broker_is_stopped_while_its_replica_may_lead(tmp_path: Path) -> None:
    """No other replica is in the input: nothing that stops the broker is printed as a step to take."""
    (f,) = findings(written(defect(), tmp_path))
    assert f.advice is not None
    assert (f.advice.verdict, f.advice.acts) == (Verdict.INVESTIGATE_FIRST, False)
    later = text(f.advice.row()).partition("only after all conditions are confirmed")[2]
    assert f"{0:020}.index and {0:020}.txnindex" in later
    assert "Do not move the .txnindex alone" in f.advice.why


def test_what_is_below_the_log_start_is_not_exposed(tmp_path: Path) -> None:
    """Records that were deleted (DeleteRecords) are returned to nobody."""
    (f,) = findings(written(defect(), tmp_path, log_start=5))
    assert f.evidence["exposed"] == [[1, 5, 6, 2, 7], [1, 8, 10, 3, 11]]


def test_the_records_are_as_many_as_a_real_consumer_got() -> None:
    """The corpus has them counted, with the smallest fetches, from broker 2, and from broker 1, which exposes none."""
    counted = corpora.manifest(CORPUS)["read_committed_records"]
    right, small = counted["leader broker 1"], counted["leader broker 2, max.partition.fetch.bytes=1"]
    found = judge(corpus_logs(CORPUS), RULE)
    assert {(f.broker_id, f.topic): f.evidence["records"] for f in found} == {
        (2, topic): small[topic] - right[topic] for topic in right
    }
    assert {f.severity for f in found} == {"critical"}
