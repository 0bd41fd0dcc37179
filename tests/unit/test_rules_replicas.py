"""Rules on replicas: a real log of three brokers, one replica of it altered in one way at a time."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.util import calc_crc32c

from auditor.facts.packed import PackedColumns
from auditor.facts.replica_facts import ReplicaFacts
from auditor.replay.reading.segment_checks import DIGEST
from auditor.rules.lib.replica_pairs import pairs
from auditor.rules.seen.view import Finding
from tests import corpora
from tests.facts import corpus_logs, judge, log_of, logs_below

RULES = ("replica-divergence", "replica-missing-range", "replica-abort-index-divergence", "replica-state-differs")
LOG = "trio.log-0"  # batches and index entries below are those of its dumps in the corpus
FIRST, SECOND, THIRD = (f"{base:020}" for base in (0, 123, 250))


class Trio:
    """The log directories of three brokers with one partition in each."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def file(self, broker: int, name: str) -> Path:
        return self.root / f"broker-{broker}" / LOG / name

    def beside(self, broker: int, name: str) -> Path:
        return self.root / f"broker-{broker}" / name

    def checkpoint(self, broker: int, name: str, offset: int) -> None:
        self.beside(broker, name).write_text(f"0\n1\ntrio.log 0 {offset}\n")

    def is_live(self, broker: int) -> None:
        self.beside(broker, ".kafka_cleanshutdown").unlink()

    def change(self, broker: int, segment: str, offset: int, change: Callable[[bytearray], object]) -> None:
        """Changes the batch that begins at an offset; its checksum is left to ``change``."""
        path = self.file(broker, f"{segment}.log")
        data = path.read_bytes()
        start, end = next((a, b) for base, a, b in batches(data) if base == offset)
        batch = bytearray(data[start:end])
        change(batch)
        path.write_bytes(data[:start] + batch + data[end:])

    def drop(self, broker: int, segment: str, *offsets: int) -> None:
        for offset in offsets:
            self.change(broker, segment, offset, bytearray.clear)

    def findings(self, *more: str) -> list[Finding]:
        return judge(logs_below(self.root), *RULES, *more)


def batches(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Base offset, first byte and the byte after each batch."""
    at = 0
    while at < len(data):
        base, length = struct.unpack_from(">qi", data, at)
        yield base, at, at + 12 + length
        at += 12 + length


def other_value(batch: bytearray) -> None:
    """Another last byte, and the checksum that fits."""
    batch[-1] ^= 1
    batch[17:21] = struct.pack(">I", calc_crc32c(bytes(batch[21:])))


@pytest.fixture
def trio(tmp_path: Path) -> Trio:
    for broker in (1, 2, 3):
        source, target = corpora.unpack("replicas-41") / f"broker-{broker}", tmp_path / f"broker-{broker}"
        shutil.copytree(source / LOG, target / LOG)
        for path in (p for p in source.iterdir() if p.is_file()):
            shutil.copy(path, target)
    return Trio(tmp_path)


def reported(found: list[Finding]) -> list[tuple[str, str, int | None, int | None, int | None]]:
    return [(f.kind, f.severity, f.broker_id, f.offset, f.last_offset) for f in found]


def test_real_replicas_are_alike() -> None:
    found = judge(corpus_logs("replicas-41"), *RULES)
    assert all(f.severity == "info" for f in found), [f.message for f in found]
    assert not [f for f in found if f.topic == "trio.log"]


def test_a_replica_with_another_batch_diverges(trio: Trio) -> None:
    trio.change(2, THIRD, 292, other_value)
    (f,) = trio.findings()
    assert reported([f]) == [("replica-divergence", "critical", 2, 292, 299)]
    assert (f.file, f.position, f.producer_id) == (f"{LOG}/{THIRD}.log", 4786, 0)
    assert f.evidence["differs"] == ["crc"]
    assert f.evidence["same_as_leader_copy"] == [3]
    assert f.evidence["same_as_this_copy"] == []
    assert f.evidence["leader_copy"]["broker_id"] == 1


def test_a_run_of_other_batches_is_one_finding(trio: Trio) -> None:
    for offset in (276, 284, 292):
        trio.change(3, THIRD, offset, other_value)
    (f,) = trio.findings()
    assert reported([f]) == [("replica-divergence", "critical", 3, 276, 299)]
    assert f.evidence["batches"] == 3


def test_batches_cut_differently_diverge(trio: Trio) -> None:
    """Offsets 285 to 291 in place of 284 to 291: the broker's batch overlaps the leader replica's."""

    def cut(batch: bytearray) -> None:
        struct.pack_into(">q", batch, 0, 285)
        struct.pack_into(">i", batch, 23, 6)
        other_value(batch)

    trio.change(2, THIRD, 284, cut)
    (f,) = trio.findings()
    assert reported([f]) == [("replica-divergence", "critical", 2, 284, 291)]


def test_a_damaged_offset_is_no_divergence(trio: Trio) -> None:
    trio.change(2, THIRD, 284, lambda b: b.__setitem__(slice(0, 8), struct.pack(">q", 285)))
    (f,) = trio.findings("offsets-not-increasing")
    assert (f.kind, f.broker_id, f.evidence["found"], f.evidence["expected"]) == ("offsets-not-increasing", 2, 285, 284)


def test_a_wrong_checksum_is_no_divergence(trio: Trio) -> None:
    trio.change(2, THIRD, 292, lambda b: b.__setitem__(-1, b[-1] ^ 1))
    trio.change(2, THIRD, 300, lambda b: b.__setitem__(slice(43, 51), struct.pack(">q", 77)))
    assert not trio.findings()
    assert [f.kind for f in trio.findings("batch-crc-mismatch")] == ["batch-crc-mismatch"]


def test_what_differs_at_the_high_watermark_may_still_be_truncated(trio: Trio) -> None:
    trio.checkpoint(2, "replication-offset-checkpoint", 300)
    trio.change(2, THIRD, 300, other_value)
    assert not trio.findings()
    trio.checkpoint(2, "replication-offset-checkpoint", 301)
    assert reported(trio.findings()) == [("replica-divergence", "critical", 2, 300, 307)]


def test_divergence_takes_in_what_follows_from_it(trio: Trio) -> None:
    trio.change(3, SECOND, 226, other_value)
    trio.drop(3, THIRD, 300, 308)
    (f,) = trio.findings()
    assert reported([f]) == [("replica-divergence", "critical", 3, 226, 233)]
    assert [a["rule"] for a in f.evidence["also"]] == ["replica-missing-range"]


def test_what_differs_before_a_divergence_is_reported_too(trio: Trio) -> None:
    trio.drop(3, SECOND, 226)
    trio.change(3, THIRD, 300, other_value)
    found = {f.kind: f.offset for f in trio.findings()}
    assert found == {"replica-divergence": 300, "replica-missing-range": 226}


def test_a_lost_tail_below_the_high_watermark(trio: Trio) -> None:
    trio.drop(3, THIRD, 300, 308)
    (f,) = trio.findings()
    assert reported([f]) == [("replica-missing-range", "critical", 3, 300, 315)]
    assert f.evidence["missing_in"]["broker_id"] == 3
    assert f.evidence["present_in"]["file"] == f"{LOG}/{THIRD}.log"
    assert (f.evidence["batches"], f.evidence["offsets"]) == (2, 16)
    assert f.evidence["confidence"] == "proved"


def test_a_lost_tail_of_a_live_directory_may_not_have_come_yet(trio: Trio) -> None:
    trio.drop(3, THIRD, 300, 308)
    trio.is_live(3)
    (f,) = trio.findings()
    assert reported([f]) == [("replica-missing-range", "info", 3, 300, 315)]
    assert f.evidence["in_flight"] is True


def test_a_follower_that_lags(trio: Trio) -> None:
    trio.drop(2, THIRD, 300, 308)
    trio.checkpoint(2, "replication-offset-checkpoint", 300)
    (f,) = trio.findings()
    assert reported([f]) == [("replica-missing-range", "info", 2, 300, 315)]
    assert "in_flight" not in f.evidence


def test_without_a_checkpoint_the_log_end_is_the_high_watermark(trio: Trio) -> None:
    trio.drop(2, THIRD, 300, 308)
    trio.beside(2, "replication-offset-checkpoint").unlink()
    assert reported(trio.findings()) == [("replica-missing-range", "info", 2, 300, 315)]


def test_a_hole_is_proved_by_what_follows_it_even_in_a_live_directory(trio: Trio) -> None:
    trio.drop(2, SECOND, 226)
    trio.is_live(2)
    assert reported(trio.findings()) == [("replica-missing-range", "critical", 2, 226, 233)]


def test_what_the_leader_replica_lacks_is_reported_once_and_explains_the_sequence_gap(trio: Trio) -> None:
    trio.drop(1, SECOND, 226)
    (f,) = trio.findings("sequence-gap")
    assert reported([f]) == [("replica-missing-range", "critical", 2, 226, 233)]
    assert f.evidence["missing_in"]["broker_id"] == 1
    assert f.evidence["missing_in"]["leader_copy"] is True
    assert (f.file, f.position) == (f"{LOG}/{SECOND}.log", 12588)
    assert [a["rule"] for a in f.evidence["also"]] == ["sequence-gap"]


def test_a_gap_of_the_leader_replica_is_not_explained_by_what_a_follower_lacks(trio: Trio) -> None:
    """All replicas have the gap at 234; that broker 3 lacks the batch behind it besides is another cause."""
    for broker in (1, 2, 3):
        trio.drop(broker, SECOND, 226)
    trio.drop(3, SECOND, 234)
    assert {f.kind for f in trio.findings("sequence-gap")} == {"sequence-gap", "replica-missing-range"}


def test_a_batch_that_could_not_be_read_is_not_missing_for_certain(trio: Trio) -> None:
    def spoil(batch: bytearray) -> None:
        batch[16], batch[-1] = 3, batch[-1] ^ 1

    trio.change(2, THIRD, 292, spoil)
    (f,) = trio.findings()
    assert reported([f]) == [("replica-missing-range", "info", 2, 292, 299)]
    assert f.evidence["confidence"] == "undecidable"


def test_retention_is_no_loss(trio: Trio) -> None:
    for path in trio.file(3, "").glob(f"{FIRST}.*"):
        path.unlink()
    assert not trio.findings()


def test_a_follower_that_starts_below_the_leader_replica(trio: Trio) -> None:
    trio.checkpoint(1, "log-start-offset-checkpoint", 123)
    assert reported(trio.findings()) == [
        ("replica-state-differs", "info", 2, 0, 122),
        ("replica-state-differs", "info", 3, 0, 122),
    ]


@pytest.mark.parametrize(("start", "went_back"), [(100, True), (0, False)])
def test_a_log_start_that_went_back_at_a_failover(trio: Trio, start: int, went_back: bool) -> None:
    """KIP-360's second problem: broker 2 was told of a DeleteRecords, of which the leader now knows nothing."""
    trio.checkpoint(2, "log-start-offset-checkpoint", start)
    expected = [("replica-state-differs", "info", 1, 0, start - 1)] if went_back else []
    assert reported(trio.findings()) == expected


def test_a_log_start_at_a_segments_begin_may_be_retention(trio: Trio) -> None:
    trio.checkpoint(2, "log-start-offset-checkpoint", int(SECOND))
    assert not trio.findings()


def test_cleaned_regions_are_not_compared(trio: Trio) -> None:
    for broker in (1, 2, 3):
        trio.checkpoint(broker, "cleaner-offset-checkpoint", 250)
    trio.change(2, FIRST, 30, other_value)
    trio.drop(2, FIRST, 36)
    trio.file(3, f"{SECOND}.txnindex").write_bytes(b"")
    assert not trio.findings()
    trio.change(2, THIRD, 292, other_value)
    (f,) = trio.findings()
    assert reported([f]) == [("replica-divergence", "critical", 2, 292, 299)]
    assert f.evidence["compared_from"] == 250


def test_folders_of_one_broker_are_no_replicas(trio: Trio) -> None:
    shutil.rmtree(trio.root / "broker-3")
    trio.drop(2, THIRD, 300, 308)
    shutil.copy(trio.beside(1, "meta.properties"), trio.beside(2, "meta.properties"))
    assert not trio.findings()


def test_an_index_entry_that_one_replica_lacks(trio: Trio) -> None:
    trio.file(3, f"{SECOND}.txnindex").write_bytes(b"")
    (f,) = trio.findings()
    assert reported([f]) == [("replica-abort-index-divergence", "error", 3, 135, 149)]
    assert f.evidence["only_in_leader_copy"] == [[1000, 135, 149]]
    assert f.evidence["missing_in"]["broker_id"] == 3
    assert f.file == f"{LOG}/{SECOND}.txnindex"
    assert "top broker 3," in f.remedy


def test_an_index_entry_that_the_leader_replica_lacks(trio: Trio) -> None:
    trio.file(1, f"{SECOND}.txnindex").unlink()
    found = trio.findings()
    assert [f.broker_id for f in found] == [2, 3]
    assert all(f.evidence["missing_in"]["broker_id"] == 1 and "top broker 1," in f.remedy for f in found)


def test_an_index_of_a_live_directory_may_be_of_another_moment(trio: Trio) -> None:
    """The marker is of 1795232931x, the newest broker-written time 19 s later: within the 30 s between clocks."""
    trio.file(3, f"{SECOND}.txnindex").write_bytes(b"")
    trio.is_live(3)
    assert reported(trio.findings()) == [("replica-abort-index-divergence", "info", 3, 135, 149)]


def test_last_stable_offsets_of_index_entries_may_differ(trio: Trio) -> None:
    path = trio.file(3, f"{SECOND}.txnindex")
    path.write_bytes(path.read_bytes()[:-8] + struct.pack(">q", 151))
    assert not trio.findings()
    entry = bytearray(path.read_bytes())
    entry[10:18] = struct.pack(">q", 136)  # after int16 version and int64 producer id: the first offset
    path.write_bytes(entry)
    (f,) = trio.findings()
    assert f.evidence["only_in_leader_copy"] == [[1000, 135, 149]]
    assert f.evidence["only_in_this_copy"] == [[1000, 136, 149]]


def test_snapshots_that_know_different_producers(trio: Trio) -> None:
    path = trio.file(3, f"{THIRD}.snapshot")
    data = path.read_bytes()
    entry = (len(data) - 10) // 2  # after int16 version, uint32 checksum, int32 count
    body = struct.pack(">i", 1) + data[10 : 10 + entry]
    path.write_bytes(data[:2] + struct.pack(">I", calc_crc32c(body)) + body)
    (f,) = trio.findings()
    assert reported([f]) == [("replica-state-differs", "info", 3, 250, 250)]
    kept = struct.unpack_from(">q", body, 4)[0]
    assert f.evidence["only_in_leader_copy"] == [{0: 1000, 1000: 0}[kept]]
    assert f.evidence["only_in_this_copy"] == []


def made(broker: int, spans: list[tuple[int, int]], odd: set[int], log_end: int) -> ReplicaFacts:
    """A replica of batches ``(base, last)``; those at ``odd`` base offsets have another checksum."""
    base, last = (np.array([s[k] for s in spans], np.int64) for k in (0, 1))
    plain: dict[str, Any] = dict.fromkeys(DIGEST, np.zeros(len(spans), np.int64))
    columns = plain | {
        "base_offset": base, "last_offset": last, "crc": np.isin(base, sorted(odd)).astype(np.int64),
        "magic": np.full(len(spans), 2), "crc_ok": np.ones(len(spans), np.int64), "position": base,
        "max_timestamp": last,
    }  # fmt: skip
    digests = PackedColumns(DIGEST)
    digests.add(np.array([*columns.values()], np.int64))
    return ReplicaFacts(
        None, broker, f"broker-{broker}", "t", 0, clean_shutdown=True, segments=["s"], segment_bases=[0],
        log_end=log_end, high_watermark=log_end, digests=digests,
    )  # fmt: skip


def test_a_gap_ends_where_the_other_replica_goes_on() -> None:
    """Each has what the other lacks, by turns: what either has is in no gap of its own."""
    replicas = [made(broker, [(n, n) for n in has], set(), 14) for broker, has in ((1, [0, 11, 13]), (2, [0, 12]))]
    (pair,) = pairs(log_of(replicas))
    found = sorted((g.in_leader, g.first_offset, g.last_offset, g.batches) for g in pair.gaps)
    assert found in ([(False, 11, 11, 1), (False, 13, 13, 1), (True, 12, 12, 1)],
                     [(False, 12, 12, 1), (True, 11, 11, 1), (True, 13, 13, 1)])  # fmt: skip


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=30), st.data()
)  # sizes of batches; then which of them each replica lacks, or has otherwise
def test_gaps_and_differences_are_those_of_offset_sets(sizes: list[int], data: st.DataObject) -> None:
    ends = np.cumsum(sizes).tolist()
    spans = [(end - size, end - 1) for end, size in zip(ends, sizes, strict=True)]
    some = st.sets(st.sampled_from(spans))
    lacking = {1: data.draw(some), 2: data.draw(some)}
    odd = {base for base, _ in data.draw(some)}
    replicas = [
        made(broker, [s for s in spans if s not in lacking[broker]], odd if broker == 2 else set(), ends[-1])
        for broker in (1, 2)
    ]
    (pair,) = pairs(log_of(replicas))
    holder = {True: lacking[1] - lacking[2], False: lacking[2] - lacking[1]}
    for in_leader, spans_there in holder.items():
        covered = [range(g.first_offset, g.last_offset + 1) for g in pair.gaps if g.in_leader == in_leader]
        reported_offsets = {o for span in covered for o in span}
        assert {o for base, last in spans_there for o in (base, last)} <= reported_offsets
        held = {s for s in spans if s not in lacking[1 if in_leader else 2]}
        assert not reported_offsets & {o for base, last in held for o in (base, last)}
    differing = {base for base in odd if not any(base == b for b, _ in lacking[1] | lacking[2])}
    assert pair.divergent == len(differing)
    assert pair.first_offset == min(differing, default=-1)


def turned(batch: bytearray) -> None:
    """The other result of a marker, and the checksum that fits: the type's low byte is the key's last."""
    at = batch.index(b"\x08\x00\x00\x00", 61) + 4  # behind the key's length, 4, and its version
    assert batch[at] in (0, 1)
    batch[at] ^= 1
    batch[17:21] = struct.pack(">I", calc_crc32c(bytes(batch[21:])))


@pytest.mark.parametrize("also_the_index", [True, False])
def test_replicas_that_differ_at_a_marker_do_not_differ_in_their_indexes(trio: Trio, also_the_index: bool) -> None:
    """The transaction from 135 on was aborted at 149, and broker 3 has COMMIT: each index is right for its log."""
    trio.change(3, SECOND, 149, turned)
    if also_the_index:
        trio.file(3, f"{SECOND}.txnindex").write_bytes(b"")
    assert reported(trio.findings()) == [("replica-divergence", "critical", 3, 149, 149)]
