"""What sound clusters do that is easily taken for damage, and the damage beside it that still has to be found."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from auditor.facts.coordinator_history import StateRecord, build_history
from auditor.facts.events import EventKind, events_of
from auditor.rules.seen.cluster_view import Cluster
from auditor.rules.seen.view import Finding, LogView
from tests import corpora, made, segments
from tests.audited import above_info, audit_folder
from tests.facts import judge, log_of
from tests.forge import TRANSACTIONAL, Forged, Lab, reported
from tests.unit.batch_histories import History, facts_of

DAY_MS = 86_400_000
IDEMPOTENT = {"4.1": ("altered-41", "bay.case-0"), "2.8": ("trimmed-28", "reel.tape-6")}


def open_log(root: Path, name: str = "4.1") -> tuple[Lab, Forged]:
    lab = Lab(root, *IDEMPOTENT[name])
    return lab, lab.log(IDEMPOTENT[name][1])


def of_rule(found: list[Finding], rule: str) -> list[Finding]:
    return [f for f in found if f.kind == rule]


def newest(log: Forged) -> int:
    """The id of the log's newest idempotent producer."""
    return [b for b in log.data() if b["producer_id"] >= 0 and not b.transactional][-1]["producer_id"]


# Default clients


@pytest.mark.parametrize(("epoch", "sequence"), [(-1, 0), (0, 0), (0, -1)])
def test_what_default_clients_leave_in_unused_fields(tmp_path: Path, epoch: int, sequence: int) -> None:
    """sarama, kafkajs and franz-go, as corpus default-clients-43 has them; one info, however many batches."""
    lab, log = open_log(tmp_path)
    first = log.next(log.data()[2], producer_id=-1, epoch=epoch, sequence=sequence)
    for _ in range(3):
        log.next(first)
    log.save()
    found = lab.findings()
    assert not above_info(found)
    (f,) = of_rule(found, "producer-fields-inconsistent")
    assert (f.severity, f.offset) == ("info", first["base_offset"])


def test_a_transaction_without_producer_id_is_no_default(tmp_path: Path) -> None:
    lab, log = open_log(tmp_path)
    log.next(log.data()[2], producer_id=-1, epoch=0, sequence=0)
    batch = log.next(log.data()[2], producer_id=-1, epoch=0, sequence=0)
    batch.set(attributes=batch.codec | TRANSACTIONAL)
    log.save()
    place = (batch["base_offset"], batch.last)
    assert list(reported(lab.findings())) == [("producer-fields-inconsistent", "error", *place)]


# Event times older than a day


@pytest.fixture
def backfill(tmp_path: Path) -> tuple[Path, Forged]:
    root = corpora.copy("backfill-hourly-43", tmp_path)
    return root, Forged(root / "broker-1", "back-0")


def test_a_producer_that_was_forgotten_between_its_batches(backfill: tuple[Path, Forged]) -> None:
    """Job 1 goes on behind the snapshot that lacks it: the true hazard of event times older than a day."""
    root, log = backfill
    last = log.data(0)[-1]
    batch = log.next(last, sequence=last["sequence"] + last["count"])
    log.snapshots = {500: log.snapshots[500]}
    log.save()
    found = above_info(audit_folder(root, corpora.manifest("backfill-hourly-43")["copied_at"]))
    assert [(f.kind, f.severity, f.partition, f.producer_id) for f in found] == [
        ("producer-expired-while-active", "warning", 0, 0)
    ]
    assert (found[0].evidence["snapshot"], found[0].last_offset) == (f"back-0/{500:020}.snapshot", batch.last)


def test_another_producer_idle_for_longer_denies_the_expiry(backfill: tuple[Path, Forged]) -> None:
    """A check takes all that were idle as long: the snapshot lost one of them otherwise."""
    root, log = backfill
    older = log.data(0)[0].copy().set(producer_id=77, base_time=1, max_time=2)
    after = log.insert(log.data(0)[0], older)
    log.snapshots = {
        offset: [p._replace(producer_id=77, epoch=0, sequence=after["count"] - 1, offset=after.old_last,
                            delta=after["delta"], timestamp=after["max_time"]) for p in known[:1]] if offset == 500
        else known
        for offset, known in {500: log.snapshots[1000], 1000: []}.items()
    }  # fmt: skip
    del log.snapshots[1000]
    log.save()
    path = next(log.folder.glob("*.snapshot"))
    data = bytearray(path.read_bytes())
    struct.pack_into(">q", data, 10 + 8 + 2 + 4, after.last)  # its last offset
    struct.pack_into(">I", data, 2, segments.calc_crc32c(bytes(data[6:])))
    path.write_bytes(bytes(data))
    found = above_info(audit_folder(root, corpora.manifest("backfill-hourly-43")["copied_at"]))
    assert ("snapshot-replay-mismatch", "error", 0) in [(f.kind, f.severity, f.producer_id) for f in found]


# Old brokers


def test_011_stores_its_end_markers_and_2_8_does_not(tmp_path: Path) -> None:
    root = corpora.copy("hanging-011", tmp_path / "011")
    log = Forged(root / "broker-1", "hoard.ledger-1")
    as_of = corpora.manifest("hanging-011")["copied_at"]
    expected = {(e["topic"], e["partition"]) for e in corpora.manifest("hanging-011")["expect"]}
    assert {(f.topic, f.partition) for f in above_info(audit_folder(root, as_of))} == expected
    (offset, known), *_ = log.snapshots.items()
    at_marker = next(p for p in known if p.delta == 0 and log.find(p.offset).control)
    log.snapshots[offset] = [p._replace(offset=p.offset - 1) if p == at_marker else p for p in known]
    log.save()
    found = above_info(audit_folder(root, as_of))
    wrong = [(f.severity, f.partition, f.producer_id) for f in of_rule(found, "snapshot-replay-mismatch")]
    assert wrong == [("error", 1, at_marker.producer_id)]

    lab = Lab(tmp_path / "28", "healthy-28", "web.orders-0")
    newer = lab.log("web.orders-0")
    offset, known = max(newer.snapshots.items())
    ended = next(p for p in known if p.offset >= 0 and newer.find(p.offset).transactional)
    end = next(m for m in newer.markers() if m["producer_id"] == ended.producer_id and m["base_offset"] > ended.offset)
    newer.snapshots[offset] = [p._replace(offset=end.last, delta=0) if p == ended else p for p in known]
    newer.save()
    (f,) = above_info(lab.findings())
    assert (f.kind, f.severity, f.producer_id) == ("snapshot-replay-mismatch", "error", ended.producer_id)


def test_1_1_drops_a_producer_whose_marker_alone_is_retained(tmp_path: Path) -> None:
    """In skein.tape-3 the snapshots at 94 and 99 lack producer 1, whose data ends at 72 and whose marker is at 73."""
    root = corpora.copy("trimmed-11", tmp_path)
    as_of = corpora.manifest("trimmed-11")["copied_at"]
    found = above_info(audit_folder(root, as_of))
    assert {f.kind for f in found} == {"unknown-producer-exposure"}
    assert all("UNKNOWN_PRODUCER_ID" in f.message for f in found)
    log = Forged(root / "broker-1", "skein.tape-3")
    offset, known = max(log.snapshots.items())
    live = max(known, key=lambda p: p.offset)
    assert live.offset >= 73
    log.snapshots[offset] = [p for p in known if p != live]
    log.save()
    wrong = of_rule(above_info(audit_folder(root, as_of)), "snapshot-replay-mismatch")
    assert [(f.severity, f.producer_id) for f in wrong] == [("error", live.producer_id)]


# Settings that are not in the input


@pytest.mark.parametrize("settings", [True, False])
def test_a_producer_that_a_snapshot_lacks_with_and_without_settings(tmp_path: Path, settings: bool) -> None:
    lab, log = open_log(tmp_path)
    offset, known = max(log.snapshots.items())
    idle = min(known, key=lambda p: p.timestamp)
    log.snapshots[offset] = [p for p in known if p != idle]
    log.save()
    if not settings:
        (tmp_path / "server-1.properties").unlink()
    (f,) = of_rule(lab.findings(), "snapshot-replay-mismatch")
    assert f.producer_id == idle.producer_id
    if settings:
        assert f.severity == "error"
        return
    assert (f.severity, f.evidence["confidence"]) == ("info", "undecidable")
    fits = f.evidence["largest_expiration_that_fits_ms"]
    assert 0 <= fits <= lab.as_of - idle.timestamp


def test_the_one_that_wrote_last_cannot_have_expired_before_the_others(tmp_path: Path) -> None:
    lab, log = open_log(tmp_path)
    offset, known = max(log.snapshots.items())
    last = max(known, key=lambda p: p.offset)
    assert len(known) > 1
    log.snapshots[offset] = [p for p in known if p != last]
    log.save()
    (tmp_path / "server-1.properties").unlink()
    (f,) = above_info(lab.findings())
    assert (f.kind, f.severity, f.producer_id) == ("snapshot-replay-mismatch", "error", last.producer_id)


# What a truncation leaves in a running broker's index


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_entries_behind_the_end_of_an_index(tmp_path: Path, suffix: str, live: bool) -> None:
    lab, log = open_log(tmp_path)
    last = log.segments[max(log.segments)][-1]
    relative = last.last - max(log.segments)
    inside = sum(len(b.data) for b in log.segments[max(log.segments)]) - 1
    entry = struct.pack(">ii", relative, inside) if suffix == "index" else struct.pack(">qi", 77, relative)
    path = log.file(max(log.segments), suffix)
    path.write_bytes(path.read_bytes() + entry + bytes(100 * len(entry)))
    if live:
        lab.is_live()
    (f,) = of_rule(lab.findings(), "index-mismatch")
    assert (f.severity, f.evidence["confidence"]) == (("info", "undecidable") if live else ("warning", "proved"))


def test_an_entry_before_a_sound_one_is_no_residue(tmp_path: Path) -> None:
    lab, log = open_log(tmp_path)
    path = log.file(max(log.segments), "index")
    entries = path.read_bytes()
    relative, place = struct.unpack_from(">ii", entries, len(entries) - 8)
    wrong = struct.pack(">ii", relative - 1, place - 1)
    path.write_bytes(entries[:-8] + wrong + entries[-8:] + bytes(800))
    lab.is_live()
    assert [(f.kind, f.severity) for f in above_info(lab.findings())] == [("index-mismatch", "warning")]


# Base timestamps, topics recreated, epochs that go on


def test_a_base_timestamp_below_the_first_record_s(tmp_path: Path) -> None:
    """kafkajs writes the smallest of its records there."""
    lab, log = open_log(tmp_path)
    like = log.data()[-1]
    records = like.records()
    early = like["base_time"] - 40
    batch = log.next(like, sequence=like["sequence"] + like["count"], base_time=early)
    batch.refill(*({**r, "time": r["time"] + 40} for r in records))
    assert (batch["base_time"], batch.records()[0]["time"]) == (early, records[0]["time"] + 40)
    log.save()
    assert not above_info(lab.findings())


def test_a_topic_made_anew_under_its_producers(tmp_path: Path) -> None:
    """The metadata log has the removal of ``again`` and its creation, a few seconds before the first batch."""
    root = corpora.copy("expiry-unknown-43", tmp_path)
    as_of = corpora.manifest("expiry-unknown-43")["copied_at"]
    found = [f for f in of_rule(audit_folder(root, as_of), "unknown-producer-first-sequence") if f.topic == "again"]
    assert {f.severity for f in found} == {"info"}
    assert all(f.evidence["topic_removed"] <= f.evidence["topic_created"] <= f.to_dict()["timestamp"] for f in found)


@pytest.mark.parametrize("name", IDEMPOTENT)
def test_an_epoch_goes_on_behind_a_zombie(tmp_path: Path, name: str) -> None:
    """Epoch 1 began at 0: what comes behind the fenced batch continues it, and a gap in it is still one."""
    lab, log = open_log(tmp_path, name)
    last = log.data(newest(log))[-1]
    first = log.next(last, epoch=last["epoch"] + 1, sequence=0)
    zombie = log.next(last, sequence=last["sequence"] + last["count"])
    log.next(first, sequence=first["count"])
    log.save()
    regression = ("epoch-regression", "critical", zombie["base_offset"], zombie.last)
    assert list(reported(lab.findings())) == [regression]
    gap = log.next(first, sequence=2 * first["count"] + 3)
    log.save()
    expected = [regression, ("sequence-gap", "error", gap["base_offset"], gap.last)]
    assert sorted(reported(lab.findings())) == sorted(expected)


def test_an_epoch_that_begins_behind_a_zombie_has_to_begin_at_0(tmp_path: Path) -> None:
    lab, log = open_log(tmp_path)
    last = log.data(newest(log))[-1]
    log.next(last, epoch=last["epoch"] + 2, sequence=0)
    log.next(last, sequence=last["sequence"] + last["count"])
    bad = log.next(last, epoch=last["epoch"] + 3, sequence=9)
    log.save()
    assert ("first-batch-after-bump-nonzero", "error", bad["base_offset"], bad.last) in reported(lab.findings())


# The first batch at the log start


@pytest.fixture
def at_start(tmp_path: Path) -> tuple[Lab, Forged]:
    """Partition 2 begins at 380, with a snapshot there that knows producer 2 up to sequence 359."""
    lab = Lab(tmp_path, "unknown-producer-41", "gps.events-2")
    return lab, lab.log("gps.events-2")


def test_what_the_snapshot_at_the_log_start_bears_out_is_not_named(at_start: tuple[Lab, Forged]) -> None:
    lab, _ = at_start
    assert not of_rule(lab.findings(), "unknown-producer-first-sequence")


@pytest.mark.parametrize(
    ("by", "rule"), [(5, "sequence-gap"), (-3, "duplicate-sequence-range"), (-359, "duplicate-sequence-range")]
)
def test_the_first_batch_is_judged_by_the_snapshot(at_start: tuple[Lab, Forged], by: int, rule: str) -> None:
    lab, log = at_start
    first = log.data(2)[0]
    assert (first["base_offset"], first["sequence"]) == (380, 360)
    log.resequence(2, 0, 380, by)
    log.save()
    (f,) = above_info(lab.findings())
    assert (f.kind, f.severity, f.offset, f.last_offset) == (rule, "error", 380, first.last)
    assert (f.evidence["expected"], f.evidence["found"]) == (360, 360 + by)


@pytest.mark.parametrize(("epoch", "rule"), [(1, "epoch-regression"), (-1, "first-batch-after-bump-nonzero")])
def test_the_first_epoch_is_judged_by_the_snapshot(at_start: tuple[Lab, Forged], epoch: int, rule: str) -> None:
    """The snapshot has another epoch than the batches behind it."""
    lab, log = at_start
    for b in log.data(2):
        b.set(epoch=1)
    log.snapshots = {o: [p._replace(epoch=1) if p.producer_id == 2 and o > 380 else p for p in known]
                     for o, known in log.snapshots.items()}  # fmt: skip
    log.snapshots[380] = [p._replace(epoch=1 + epoch) if p.producer_id == 2 else p for p in log.snapshots[380]]
    log.save()
    (f,) = above_info(lab.findings())
    assert (f.kind, f.offset) == (rule, 380)


def test_a_snapshot_below_what_is_stored_proves_nothing(at_start: tuple[Lab, Forged]) -> None:
    """Between it and the first segment there may have been more batches."""
    lab, log = at_start
    log.snapshots[300] = log.snapshots.pop(380)
    log.resequence(2, 0, 380, 5)
    log.save()
    found = lab.findings()
    assert not above_info(found)
    assert [f.producer_id for f in of_rule(found, "unknown-producer-first-sequence")] == [2]


# The same bytes again from sequence 0 on


@pytest.mark.parametrize("append_time", [False, True])
def test_the_same_bytes_from_sequence_0_are_a_duplicate(tmp_path: Path, append_time: bool) -> None:
    lab, log = open_log(tmp_path)
    last = log.data(newest(log))[-1]
    new = {"epoch": last["epoch"] + 1, "attributes": last["attributes"] | (8 if append_time else 0)}
    later = {"base_time": last["base_time"] + 1, "max_time": last["max_time"] + 1}  # else they are stored twice already
    first = log.next(last, sequence=0, **later, **new)
    log.next(last, sequence=first["count"], **new)
    again = log.next(first, max_time=first["max_time"] + (5000 if append_time else 0))
    more = log.next(first, sequence=first["count"], max_time=first["max_time"] + (5000 if append_time else 0))
    log.next(last, sequence=2 * first["count"], **({"max_time": more["max_time"]} if append_time else {}), **new)
    log.save()
    (f,) = above_info(lab.findings())
    assert (f.kind, f.severity) == ("duplicate-sequence-range", "error")
    assert (f.offset, f.last_offset) == (again["base_offset"], more.last)
    assert f.evidence["stored_before_at"] == first["base_offset"]


def test_other_bytes_from_sequence_0_are_a_reset(tmp_path: Path) -> None:
    lab, log = open_log(tmp_path)
    last = log.data(newest(log))[-1]
    later = {"base_time": last["base_time"] + 1, "max_time": last["max_time"] + 1}  # else it is stored twice
    first = log.next(last, epoch=last["epoch"] + 1, sequence=0, **later)
    reset = log.next(first, base_time=first["base_time"] + 1, max_time=first["max_time"] + 1)
    log.save()
    assert list(reported(lab.findings())) == [
        ("sequence-reset-same-epoch", "warning", reset["base_offset"], reset.last)
    ]


# Text dumps


def test_a_dump_whose_first_batches_the_cleaner_took(tmp_path: Path) -> None:
    """Nothing in text says that a log was never cleaned: a hole before its first batch proves no more than another."""
    name = "dump-by-2.8.2.web.plain-0.txt"
    lines = (corpora.ROOT / "text-dumps/texts/healthy-28" / name).read_text(encoding="utf-8").splitlines(keepends=True)
    batches = [k for k, line in enumerate(lines) if line.startswith("baseOffset:")]
    (tmp_path / name).write_text("".join(lines[: batches[0]] + lines[batches[2] :]), encoding="utf-8")
    assert lines[batches[0]].startswith("baseOffset: 0 ")
    assert not above_info(audit_folder(tmp_path, None))


# Rotation to the next producer id


@pytest.mark.parametrize(("last_id", "policy", "severity"), [
    (8, "kip-360", "info"), (7, "kip-360", "warning"), (7, "kip-890-p2", "info"),
])  # fmt: skip
def test_normal_rotation_is_not_near_exhaustion(last_id: int, policy: str, severity: str) -> None:
    """An id that goes on as another producer, or that takes an epoch a transaction (transaction.version 2)."""

    def record(offset: int, pid: int) -> StateRecord:
        return StateRecord(
            0, offset, offset, 0, "rot", "Empty", pid, 0, 60_000, frozenset(), True, offset, -1, 0, "f", 0, 0
        )

    cluster = Cluster(as_of=9, newest_time=9, coordinator=build_history(1, [record(0, 7), record(1, last_id)]))
    row = {"producer_id": 7, "max_data_epoch": 31_000, "max_data_epoch_offset": 5, "batches": 1, "transactional": 1}
    log = log_of([made.facts(producers=made.producers(row))], cluster)
    cluster.policy[log.leader.log_dir] = policy
    (f,) = judge([log], "epoch-near-exhaustion")
    assert (f.severity, f.evidence.get("next_producer_id")) == (severity, 8 if last_id == 8 else None)


@pytest.mark.parametrize(("zeros", "severity"), [(1, "info"), (6, "info"), (8, "warning"), (200, "warning")])
def test_a_live_copy_may_end_within_the_zeros_of_the_next_batchs_offset(
    tmp_path: Path, zeros: int, severity: str
) -> None:
    """The log ends at 760: six bytes of the next offset are zeros, the seventh is 2."""
    lab = Lab(tmp_path, "healthy-41", "shop.orders-0")
    log = lab.log("shop.orders-0")
    assert log.end.to_bytes(8, "big")[:7] == bytes([0] * 6 + [2])
    log.tails[max(log.segments)] = bytes(zeros)
    log.save()
    lab.is_live()
    assert [f.severity for f in of_rule(lab.findings(), "torn-tail")] == [severity]


@pytest.mark.parametrize(("broker_time", "severity"), [(-1, "info"), (1_000, "warning")])
def test_stamps_alone_do_not_show_that_a_producer_was_idle(broker_time: int, severity: str) -> None:
    """A back-fill of daily data: each batch is stamped a day after the last one, all are written within minutes."""
    rows = [made.data(10 * k, 10 * k, 10, max_timestamp=2_000 + 25 * 3_600_000 * k, producer_epoch=0) for k in range(3)]
    if broker_time >= 0:
        rows.insert(0, {**made.marker(0, 0, pid=9), "max_timestamp": broker_time})
        rows[1:] = [{**r, "base_offset": r["base_offset"] + 1, "last_offset": r["last_offset"] + 1} for r in rows[1:]]
    rows = [{**made_row, "position": 100 * k} for k, made_row in enumerate(rows)]
    events = facts_of(History(rows)).events
    assert [e["broker_time"] for e in events_of(events, EventKind.IDLE_BEYOND_EXPIRY)] == [broker_time] * 2
    replica = made.facts(events=events, log_end=31)
    found = of_rule(judge([LogView([replica], Cluster(10**9, 10**9))], "producer-expired-while-active"),
                    "producer-expired-while-active")  # fmt: skip
    assert [f.severity for f in found] == [severity]
