"""The tables cleaner and space at their edges, of made-up facts: offsets that overflow a segment, by release; who holds
a log; what could not be looked at; a tiered log whose start was raised."""

from __future__ import annotations

from typing import Any

import pytest

from auditor.base.errors import DecodeError
from auditor.base.remote_segments import RemotePartition, RemoteSegment, RemoteSegmentState
from auditor.dashboards import table_lines
from auditor.facts.replica_facts import ReplicaFacts, SegmentScan
from auditor.model.policies import ReleaseEvidence, shown_by
from auditor.pipeline.space_table import row_of, segments_of
from auditor.pipeline.summary import of_log
from auditor.replay.reading.segment_checks import RecoveryScan
from auditor.rules.seen.cluster_view import Cluster
from auditor.rules.seen.view import LogView
from tests.made import facts, transactions
from tests.segments import chunks, simple

FAR = 2**31  # relative offsets have 31 bits: the first that an index cannot hold
NOW = 10_000_000
SPLITS = shown_by(metadata_version=7)
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.5"}


def scanned(base: int, *offsets: int) -> tuple[SegmentScan, list[int]]:
    """A segment of a batch of one record at each offset, and where these begin."""
    parts = [simple(offset, 1) for offset in offsets]
    data = b"".join(parts)
    scan = RecoveryScan(base, len(data), True, lambda at, length: data[at : at + length])
    for chunk in chunks(data, offsets=(base, 1 << 40)):
        scan.take(chunk)
    return scan.finish(), [sum(map(len, parts[:k])) for k in range(len(parts))]


def replica(*scans: SegmentScan, **given: Any) -> ReplicaFacts:
    names, bases = [f"t-0/{scan.base_offset:020}.log" for scan in scans], [scan.base_offset for scan in scans]
    return facts(
        **{"segments": names, "segment_bases": bases, "scans": [*scans], "log_end": scans[-1].next_offset, **given}
    )


def cluster(shown: ReleaseEvidence | None = None, **settings: str) -> Cluster:
    made = Cluster(
        NOW,
        NOW,
        topic_configs={"t": COMPACTED | settings},
        has_metadata=True,
        of_files={1: frozenset(), 2: frozenset()},
    )
    made.releases = {} if shown is None else {1: shown}
    return made


def row(of: ReplicaFacts, shown: ReleaseEvidence | None = SPLITS, **settings: str) -> dict[str, Any]:
    found = row_of(LogView([of], cluster(shown, **settings)), of)
    assert found is not None
    return found


@pytest.mark.parametrize(("offsets", "overflows"), [
    ([0, FAR - 2, FAR - 1], None), ([0, FAR - 1, FAR, FAR + 5], 2), ([0, FAR + 7], 1),
])  # fmt: skip
def test_the_first_batch_that_no_index_can_hold(offsets: list[int], overflows: int | None) -> None:
    """Of a segment that begins at 100."""
    scan, positions = scanned(100, *(100 + offset for offset in offsets))
    expected = (-1, -1) if overflows is None else (positions[overflows], 100 + offsets[overflows])
    assert scan.overflow == expected


@pytest.mark.parametrize(("shown", "stands", "says"), [
    (shown_by(metadata_version=7), "due", "offsets overflow the segment, which the cleaner first splits"),
    (shown_by(protocol="2.0-IV1"), "due", "offsets overflow the segment, which the cleaner first splits"),
    (shown_by(protocol="1.1-IV0"), "faulty", "offsets overflow the segment"),
    (shown_by(protocol="0.11.0-IV2"), "faulty", "offsets overflow the segment"),
    (None, "due", "offsets overflow the segment"),
])  # fmt: skip
def test_what_a_cleaner_does_where_offsets_overflow_a_segment(
    shown: ReleaseEvidence | None, stands: str, says: str
) -> None:
    """KAFKA-6264: it splits the segment since 2.0; before that its thread died at LogSegment.append."""
    first, positions = scanned(0, 0, 1, FAR + 3, FAR + 4)
    of = replica(first, scanned(FAR + 10, FAR + 10)[0])
    found = row(of, shown)
    assert (found["stands"], found["fault"]) == (stands, says)
    assert (found["fault_offset"], found["fault_position"]) == (FAR + 3, positions[2])
    assert found["fault_file"] == "t-0/00000000000000000000.log"
    assert (found["undecided"] is not None) == (shown is None)
    assert f"{says} at offset {FAR + 3}, byte {positions[2]} of t-0" in table_lines.cleaner_note(shown_row(found))


def test_an_overflow_in_what_is_not_cleaned_is_none() -> None:
    of = replica(scanned(0, 0, 1)[0], scanned(5, 5, FAR + 9)[0])
    assert row(of, shown_by(protocol="1.1-IV0")).get("fault") is None


def test_zeros_in_a_segment_stop_a_cleaner_and_the_limits_of_this_program_do_not() -> None:
    """MemoryRecords throws at a size of 0; a batch above --max-batch-bytes is one that only this program skipped."""
    of = replica(scanned(0, 0, 1)[0], scanned(5, 5)[0])
    file = of.segments[0]
    of.errors = [DecodeError(file, 70, 30, "zero_filled", "")]
    assert (row(of)["stands"], row(of)["undecided"]) == ("faulty", None)
    of.errors = [DecodeError(file, 70, 30, "batch_limit", "")]
    assert (row(of)["stands"], row(of).get("fault")) == ("due", None)
    assert "not all bytes" in row(of)["undecided"]
    of.errors = [DecodeError(of.segments[1], 70, 30, "batch_limit", "")]
    assert row(of)["undecided"] is None


def test_checksums_that_nobody_verified_are_no_sound_ones() -> None:
    of = replica(scanned(0, 0, 1)[0], scanned(5, 5)[0], unverified=[(1, 1)])
    assert "checksums" in row(of)["undecided"]
    of.unverified = [(5, 5)]
    assert row(of)["undecided"] is None


def test_a_follower_that_is_behind_its_leader_is_held_by_what_it_has_open() -> None:
    """The leader has the marker already. Its producer has the id 0, and no transactional id is known."""
    scans = scanned(0, 0, 1)[0], scanned(5, 5, 6)[0], scanned(8, 8)[0]
    leader = replica(*scans, transactions=transactions({"producer_id": 0, "first_offset": 5, "marker_offset": 9}),
                     log_end=10)  # fmt: skip
    follower = replica(*scans, broker_id=2, log_dir="broker-2",
                       transactions=transactions({"producer_id": 0, "first_offset": 5}))  # fmt: skip
    log = LogView([leader, follower], cluster())
    found = row_of(log, follower)
    assert found is not None
    assert (found["held_by"], found["held_producer_id"], found["held_by_transaction"]) == (
        "last_stable_offset",
        0,
        None,
    )
    assert "held at offset 5 by the last stable offset, open by producer id 0" in table_lines.cleaner_note(
        shown_row(found)
    )
    says = [aside["says"] for aside in of_log(log)]
    assert says == ["nothing is cleaned from offset 5 on while producer 0 has its transaction open"]


def test_a_log_that_an_open_transaction_keeps_from_being_cleaned_is_held_and_comes_first() -> None:
    """All but the active segment waits behind the transaction: nothing can be cleaned, and the log is not clean."""
    scans = scanned(0, 0, 1)[0], scanned(5, 5, 6)[0], scanned(8, 8)[0]
    held = replica(*scans, transactions=transactions({"producer_id": 7, "first_offset": 1, "first_time": 1_000}))
    found = row(held)
    waiting = sum(scan.size for scan in scans[:2])
    assert (found["stands"], found["held_offset"], found["held_bytes"]) == ("held", 1, waiting)
    assert (found["cleanable_bytes"], found["held_producer_id"]) == (0, 7)
    clean = row(replica(scanned(0, 0)[0]))
    assert (clean["stands"], clean["held_bytes"], clean["held_producer_id"]) == ("clean", 0, None)
    assert clean.keys() - found.keys() == found.keys() - clean.keys() == set()
    place = {"broker_id": 1, "topic": "t", "partition": 0}
    since = {"held_began_at": "2026-11-28T10:00:00.000Z"}
    first, *_ = table_lines.cleaner_lines([place | shown_row(clean), place | shown_row(found) | since], every=True)
    assert first == "2 compacted logs: 1 held, 1 clean\n"


def test_what_the_high_watermark_alone_holds_is_nobodys_transaction() -> None:
    of = replica(scanned(0, 0, 1)[0], scanned(5, 5, 6)[0], scanned(8, 8)[0], high_watermark=4, clean_shutdown=True)
    of.transactions = transactions({"producer_id": 7, "first_offset": -1, "marker_offset": -1})
    log = LogView([of], cluster())
    found = row_of(log, of)
    assert found is not None
    assert (found["held_by"], found["held_producer_id"]) == ("last_stable_offset", None)
    assert not list(of_log(log))


def test_records_that_were_deleted_from_a_tiered_log_go_from_its_disk() -> None:
    """UnifiedLog: the local log start is never below the log start."""
    of = replica(scanned(0, 0, 1)[0], scanned(5, 5)[0], scanned(8, 8)[0], log_start=6, local_start=0)
    settings = {"cleanup.policy": "delete", "retention.ms": "-1", "remote.storage.enable": "true"}
    rows = segments_of(LogView([of], cluster(**settings)), of)
    assert [found["goes"] for found in rows] == ["log_start_offset", None, None]


@pytest.mark.parametrize(("epochs", "highest"), [
    ([(0, 0), (1, 50)], 79),  # both copied all that was rolled
    ([(0, 0), (2, 60)], 59),  # another broker led in epoch 1, of which this one has nothing
    ([(0, 0), (2, 40)], 39),  # the log of its leader ended in the midst of what epoch 0 had copied
    ([(2, 0)], -1), ([], 79),
])  # fmt: skip
def test_what_a_broker_takes_to_be_in_remote_storage_is_of_its_own_leader_epochs(
    epochs: list[tuple[int, int]], highest: int
) -> None:
    """As RemoteLogManager.findHighestRemoteOffset looks: a segment of epoch 0, and one of 0 and 1."""
    part = RemotePartition("t", 0, "id")
    for start, end, own in ((0, 39, ((0, 0),)), (40, 79, ((0, 40), (1, 60)))):
        part.take(RemoteSegment(str(start), start, end, own, 10, RemoteSegmentState.COPY_SEGMENT_FINISHED, 1, 0, start))
    assert part.highest(epochs, 100) == highest


def shown_row(found: dict[str, Any]) -> dict[str, Any]:
    """A row as the table has it: what was not said is null."""
    return {"fault": None, **found}
