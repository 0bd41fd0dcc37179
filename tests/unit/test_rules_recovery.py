"""The recovery dry run: what real brokers did over altered logs, and what Kafka's recovery does with made segments."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import Any

import pytest
from kafka.record.util import calc_crc32c

from auditor.base.errors import Limits
from auditor.connectors.logdir.files import DataFile, Replica, SegmentFile
from auditor.connectors.stores.storage import place
from auditor.facts.crash_recovery import both_runs, directory, dry_run
from auditor.facts.replica_facts import ReplicaFacts, SegmentScan
from auditor.replay.reading.replica_reader import read_replica
from auditor.replay.reading.segment_checks import RecoveryScan
from auditor.replay.task import ReplicaTask
from tests import corpora
from tests.facts import corpus_logs
from tests.segments import batch, chunks, record, simple

ORACLE = json.loads((corpora.oracle("altered-41") / "broker-recovery.json").read_text())
TRANSACTIONAL, CONTROL = 0x10, 0x20


def replicas(name: str) -> dict[str, ReplicaFacts]:
    return {log.name: log.leader for log in corpus_logs(name)}


def ran(replica: ReplicaFacts, recovery_point: int = 0) -> dict[str, Any]:
    run = dry_run(replica, recovery_point)
    assert run is not None
    return run


@pytest.mark.parametrize("name", sorted(ORACLE["partitions"]))
def test_the_dry_run_says_what_the_broker_did(name: str) -> None:
    """It was started without .kafka_cleanshutdown and without recovery points: everything was scanned."""
    replica, did = replicas("altered-41")[name], ORACLE["partitions"][name]
    run = ran(replica)
    assert run["starts"]
    assert not run["undecided"]
    assert run["log_end_after"] == did["after"]["highWatermark"]
    assert run["last_stable_offset_after"] == did["after"]["lastStableOffset"]
    sizes = {
        file: scan.size
        for file, scan in zip(replica.segments, replica.scans, strict=True)
        if file not in run["deletes"]
    }
    sizes |= {cut["file"]: cut["position"] for cut in run["truncates"]}
    assert {Path(file).name: size for file, size in sizes.items()} == did["sizes"]


def test_the_cuts_are_those_the_broker_logged() -> None:
    said = "\n".join(ORACLE["log"])
    logged = re.findall(
        r"partition=([\w.]+-\d+), .*Corruption found in segment (\d+), truncating to offset (\d+)", said
    )
    cuts = [cut for replica in replicas("altered-41").values() for cut in ran(replica)["truncates"]]
    assert sorted(
        (f"{c['topic']}-{c['partition']}", str(int(Path(c["file"]).stem)), str(c["offset"])) for c in cuts
    ) == (sorted(logged))
    positions = re.findall(r"/([\w.]+-\d+/\d+\.log) at byte offset (\d+)", said)
    assert set(positions) <= {(c["file"], str(c["position"])) for c in cuts}


def test_from_its_recovery_point_a_broker_looks_at_the_end_alone() -> None:
    replica = replicas("altered-41")["bay.case-6"]
    assert replica.recovery_point == 220
    run = both_runs(replica)
    assert run is not None
    assert run["log_end_after"] == 80
    assert run["from_recovery_point"]["truncates"] == []
    assert run["from_recovery_point"]["log_end_after"] == 220


def test_a_log_directory_is_judged_by_its_worst_logs() -> None:
    runs = [run for replica in replicas("altered-41").values() if (run := both_runs(replica)) is not None]
    reported = directory("broker-1", runs, clean_shutdown=True)
    assert reported["starts"] is True
    assert [cut["partition"] for cut in reported["truncates"]] == [6, 7, 8]
    assert [cut["partition"] for cut in reported["from_recovery_points"]["truncates"]] == [7, 8]
    assert "cut 3 logs" in reported["says"]
    assert reported["says"].endswith("a start now scans nothing")


@pytest.mark.parametrize("name", [n for n in corpora.names() if n != "altered-41"])
def test_sound_logs_end_where_their_brokers_said(name: str) -> None:
    """Nothing is cut, and log end and last stable offset are those of the live broker, transactions that hang too."""
    live = corpora.manifest(name).get("live") or {}
    for log in corpus_logs(name):
        for replica in log.replicas:
            run = both_runs(replica)
            assert run is not None
            assert (run["truncates"], run["poison"], run["undecided"]) == ([], [], [])
            assert run["from_recovery_point"] is None
            if (said := live.get(log.name)) is not None:
                assert run["log_end_after"] == said["highWatermark"]
                assert run["last_stable_offset_after"] == said["lastStableOffset"]


# --- one segment ---


def scan(data: bytes, base_offset: int = 0, *, indexed: bool = True, **options: Any) -> SegmentScan:
    scanning = RecoveryScan(base_offset, len(data), indexed, lambda at, length: data[at : at + length])
    for chunk in chunks(data, **options):
        scanning.take(chunk)
    return scanning.finish()


def marker(offset: int, kind: int = 1, key: bytes | None = None, value: bytes = bytes(6), **header: Any) -> bytes:
    body = record(0, struct.pack(">hh", 0, kind) if key is None else key, value)
    fields = {"base_offset": offset, "attributes": TRANSACTIONAL | CONTROL, "producer_id": 7, "epoch": 0}
    return batch(body, 1, **fields | header)


def broken(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def of_magic(data: bytes, magic: int) -> bytes:
    """The checksum of a batch does not cover its magic."""
    return data[:16] + bytes([magic]) + data[17:]


def test_a_whole_segment_is_not_cut() -> None:
    found = scan(simple(10) + simple(13, 2) + marker(15), 10)
    assert (found.cut, found.next_offset, found.records, found.fatal) == (-1, 16, 6, [])


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        (broken(simple(3)), "crc_mismatch"),
        (simple(3)[:-1], "truncated"),
        (simple(3)[:10], "truncated"),
        (bytes(100), "zero_filled"),
        (bytes(5), "zero_filled"),
        (of_magic(broken(simple(3)), 3), "bad_magic"),
        (of_magic(simple(3), 200), "bad_magic"),
    ],
)
def test_the_cut_is_at_the_first_batch_that_is_not_sound(tail: bytes, reason: str) -> None:
    found = scan(simple(0) + tail)
    assert (found.cut, found.cut_reason, found.cut_offset, found.cut_records) == (len(simple(0)), reason, 3, 3)


def test_what_is_sound_behind_a_cut_is_counted_as_lost() -> None:
    found = scan(simple(0) + broken(simple(3)) + simple(6, 5))
    assert (found.cut_records, found.records, found.next_offset) == (3, 8, 11)


def test_brokers_take_a_higher_magic_for_two() -> None:
    found = scan(simple(0) + of_magic(simple(3, 4), 3) + simple(7))
    assert (found.cut, found.next_offset, found.undecided) == (-1, 10, "")


def test_a_marker_of_unknown_type_stops_a_start_where_a_producer_wrote_it() -> None:
    found = scan(marker(0) + marker(1, kind=9) + marker(2, kind=9, producer_id=-1, epoch=-1))
    assert found.fatal == [(len(marker(0)), 1, 7, 9)]
    assert found.cut == -1


def test_a_fatal_batch_behind_a_cut_does_no_harm() -> None:
    assert scan(broken(simple(0)) + marker(3, kind=9)).fatal == []


@pytest.mark.parametrize("bad", [marker(0, key=b"\0\0"), marker(0, value=b"\0\0"), marker(0, key=b"\xff\xff\0\0")])
def test_an_unreadable_control_record_ends_recovery_behind_its_batch(bad: bytes) -> None:
    """Its bytes count as valid before the record is looked at."""
    found = scan(bad + simple(1))
    assert (found.cut, found.cut_reason, found.cut_offset) == (len(bad), "control_record", 1)
    assert scan(bad).cut == -1


def test_offsets_that_go_back_matter_only_where_the_index_gets_an_entry() -> None:
    """Batches of 1 KiB: entries are due at bytes 5120, 10240, ..., the first more than 4096 behind the one before."""
    size = 1024
    value = b"v" * (size - len(simple(0, 1, value=b"v" * 900)) + 900)
    assert len(simple(0, 1, value=value)) == size
    offsets = list(range(100, 120))
    sound = [simple(o, 1, value=value) for o in offsets]
    assert scan(b"".join(sound), 100).cut == -1
    between = scan(b"".join([*sound[:7], simple(100, 1, value=value)]), 100)
    assert (between.cut, between.next_offset) == (-1, 101)  # at byte 7168 no entry is due; the log ends behind it
    due = scan(b"".join([*sound[:10], simple(100, 1, value=value), *sound[10:]]), 100)
    assert (due.cut, due.cut_reason, due.cut_offset, due.cut_records) == (0, "offsets_not_increasing", 100, 0)


def test_offsets_outside_of_the_segment_are_not_decided() -> None:
    assert "split" in scan(simple(5), base_offset=10).undecided
    assert "split" in scan(simple(2**31, 1)).undecided
    assert scan(simple(2**31 - 1, 1)).undecided == ""


def test_what_only_the_auditor_does_not_read_is_not_decided() -> None:
    found = scan(simple(0) + simple(3, 40), limits=Limits(max_batch_bytes=1000))
    assert found.cut == -1
    assert "batch_limit" in found.undecided


# --- a log ---


def log(tmp_path: Path, *segments: bytes, unindexed: tuple[int, ...] = (), **settings: Any) -> ReplicaFacts:
    """A replica of segments, each named by its first batch's offset."""
    files = []
    for number, data in enumerate(segments):
        (base,) = struct.unpack_from(">q", data)
        name = f"{base:020}"
        (tmp_path / f"{name}.log").write_bytes(data)
        (tmp_path / f"{name}.index").touch()
        index = None if number in unindexed else DataFile(f"{name}.index", 0, "index", base)
        files.append(SegmentFile(f"{name}.log", base, len(data), index))
    replica = Replica("dir", "t", 0, "", segments=tuple(files))
    return read_replica(ReplicaTask(place(str(tmp_path)), replica, None, 1, "", False, **settings))


def data(offset: int, sequence: int, count: int = 3, *, transactional: bool = True) -> bytes:
    attributes = TRANSACTIONAL if transactional else 0
    return simple(offset, count, attributes, producer_id=7, epoch=0, sequence=sequence)


def test_segments_behind_a_cut_go(tmp_path: Path) -> None:
    second = simple(3) + broken(simple(6)) + simple(9)
    replica = log(tmp_path, simple(0), second, simple(12), simple(15))
    run = ran(replica)
    assert (run["log_end"], run["log_end_after"]) == (18, 6)
    assert run["deletes"] == [f"{12:020}.log", f"{15:020}.log"]
    (cut,) = run["truncates"]
    assert cut["bytes"] == len(broken(simple(6)) + simple(9) + simple(12) + simple(15))
    assert (cut["records"], cut["offset"], cut["position"]) == (9, 6, len(simple(3)))


@pytest.mark.parametrize(("recovery_point", "log_end"), [(0, 6), (11, 6), (12, 18), (100, 18)])
def test_the_scan_begins_at_the_segment_of_the_recovery_point(
    tmp_path: Path, recovery_point: int, log_end: int
) -> None:
    replica = log(tmp_path, simple(0), simple(3) + broken(simple(6)) + simple(9), simple(12), simple(15))
    assert ran(replica, recovery_point)["log_end_after"] == log_end


def test_a_segment_without_index_is_cut_alone(tmp_path: Path) -> None:
    replica = log(tmp_path, simple(0) + broken(simple(3)), simple(6), unindexed=(0,))
    for recovery_point in (0, 6):
        run = ran(replica, recovery_point)
        assert (run["log_end_after"], run["deletes"]) == (9, [])
        assert [cut["position"] for cut in run["truncates"]] == [len(simple(0))]


def test_a_log_that_ends_below_its_start_begins_anew(tmp_path: Path) -> None:
    run = ran(log(tmp_path, simple(0) + broken(simple(3)), log_start=5))
    assert (run["log_end_after"], run["last_stable_offset_after"]) == (5, 5)
    assert run["deletes"] == [f"{0:020}.log"]


def test_a_cut_below_a_marker_opens_its_transaction_again(tmp_path: Path) -> None:
    whole = data(0, 0) + data(3, 3) + marker(6)
    assert ran(log(tmp_path, whole + simple(7)))["last_stable_offset_after"] == 10
    run = ran(log(tmp_path, data(0, 0) + data(3, 3) + broken(marker(6)) + simple(7)))
    assert (run["log_end_after"], run["last_stable_offset_after"]) == (6, 0)
    run = ran(log(tmp_path, simple(0) + data(3, 0) + broken(data(6, 3)), log_start=4))
    assert (run["log_end_after"], run["last_stable_offset_after"]) == (6, 4)


def test_a_transaction_that_begins_at_the_cut_is_gone(tmp_path: Path) -> None:
    assert ran(log(tmp_path, simple(0) + broken(simple(3)) + data(6, 0)))["last_stable_offset_after"] == 3


def test_a_plain_batch_inside_a_transaction_keeps_a_broker_from_starting(tmp_path: Path) -> None:
    replica = log(tmp_path, data(0, 0) + data(3, 3, transactional=False) + marker(6))
    run = ran(replica)
    assert run["starts"] is False
    (fatal,) = run["poison"]
    assert (fatal["offset"], fatal["producer_id"], fatal["position"]) == (3, 7, len(data(0, 0)))
    assert "plain batch" in fatal["why"]
    assert "from starting" in run["says"]
    assert "would not start" in directory("d", [run | {"from_recovery_point": None}], False)["says"]


def test_a_fatal_batch_harms_only_where_it_is_replayed(tmp_path: Path) -> None:
    """From a recovery point behind it the log is replayed from the newest snapshot, here from none: from its start."""
    fatal, later = data(0, 0) + data(3, 3, transactional=False) + marker(6), simple(7)
    replica = log(tmp_path, fatal, later)
    assert not ran(replica, 7)["starts"]
    body = struct.pack(">i", 0)
    (tmp_path / f"{7:020}.snapshot").write_bytes(struct.pack(">hI", 1, calc_crc32c(body)) + body)
    task = ReplicaTask(place(str(tmp_path)), Replica("dir", "t", 0, "", segments=tuple(segments_of(replica)),
                    snapshots=(DataFile(f"{7:020}.snapshot", 10, "snapshot", 7),)), None, 1, "", False)  # fmt: skip
    with_snapshot = read_replica(task)
    assert ran(with_snapshot, 7)["starts"]
    assert not ran(with_snapshot, 0)["starts"]


def segments_of(replica: ReplicaFacts) -> list[SegmentFile]:
    return [
        SegmentFile(file, scan.base_offset, scan.size, DataFile(file.replace(".log", ".index"), 0, "index", -1))
        for file, scan in zip(replica.segments, replica.scans, strict=True)
    ]


def test_an_unknown_marker_type_keeps_a_broker_from_starting(tmp_path: Path) -> None:
    run = ran(log(tmp_path, data(0, 0) + marker(3, kind=5)))
    assert [p["why"] for p in run["poison"]] == ["a marker of unknown control type 5"]


def test_text_shows_no_bytes() -> None:
    assert dry_run(ReplicaFacts(None, None, "texts", "t", 0, text=True)) is None
