"""Files of a real partition made wrong in one way: ends of segments, holes, indexes, snapshots, checkpoints."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from auditor.rules.seen.view import Finding
from tests.audited import above_info
from tests.forge import Batch, Forged, Lab, Producer, snapshot

LOGS = {
    "4.1": ("altered-41", "bay.case-0"),
    "3.6": ("hanging-36", "bank.ledger-4"),
    "2.8": ("healthy-28", "web.orders-0"),
    "2.8 trimmed": ("trimmed-28", "reel.tape-6"),
    "4.1 transactional": ("healthy-41", "shop.orders-0"),
}
PRODUCERS = ("sequence", "epoch", "offset", "delta", "coordinator_epoch")


def open_log(root: Path, name: str = "4.1") -> tuple[Lab, Forged]:
    lab = Lab(root, *LOGS[name])
    return lab, lab.log(LOGS[name][1])


def the_only(found: list[Finding]) -> Finding:
    assert len(above_info(found)) == 1, [f.message for f in above_info(found)]
    return above_info(found)[0]


def live_at_times(lab: Lab, turn: int) -> None:
    """What files say for themselves they say of a running broker too: every other case."""
    if turn % 2:
        lab.is_live()


def size_of(log: Forged, base: int) -> int:
    return sum(len(b.data) for b in log.segments[base])


# Ends of segments


TAILS = {
    "zero_filled_tail": bytes(4096),
    "garbage_tail": random.Random(5).randbytes(300),
    "garbage of a header's size": random.Random(7).randbytes(40),
    "garbage that looks like a batch first": bytes(8) + struct.pack(">i", 100) + bytes(range(60, 200)),
}


@pytest.mark.parametrize("kind", TAILS)
@pytest.mark.parametrize("name", LOGS)
def test_a_tail_that_is_no_batch(tmp_path: Path, name: str, kind: str) -> None:
    lab, log = open_log(tmp_path, name)
    log.tails[max(log.segments)] = TAILS[kind]
    log.save()
    turn = list(LOGS).index(name) + list(TAILS).index(kind)
    live_at_times(lab, turn)
    f = the_only(lab.findings())
    ends = not turn % 2 and kind != "garbage of a header's size"  # that has a size beyond the end of the file
    assert (f.kind, f.severity) == ("torn-tail", "error" if ends else "warning")
    assert ("Broker 1 fails to start at them" in f.message) is ends
    assert (f.topic, f.partition, f.offset, f.producer_id) == (log.topic, log.partition, log.end, None)
    assert f.file == f"{log.folder.name}/{max(log.segments):020}.log"
    assert (f.position, f.evidence["bytes"]) == (size_of(log, max(log.segments)), len(TAILS[kind]))


@pytest.mark.parametrize(("short", "severity"), [(0, "info"), (1, "warning")])
def test_zeros_up_to_the_size_of_segments_are_preallocated(tmp_path: Path, short: int, severity: str) -> None:
    """Where ZooKeeper has the topic's settings: log.preallocate fills the newest segment up to its full size."""
    lab, log = open_log(tmp_path, "2.8")
    with (lab.root / "server-1.properties").open("a") as settings:
        settings.write("log.segment.bytes=65536\n")
    log.tails[max(log.segments)] = bytes(65536 - size_of(log, max(log.segments)) - short)
    log.save()
    lab.is_live()
    (f,) = [f for f in lab.findings() if f.kind == "torn-tail"]
    assert (f.severity, f.offset) == (severity, log.end)


@pytest.mark.parametrize("name", LOGS)
def test_truncated_tail(tmp_path: Path, name: str) -> None:
    """The high watermark lies in what was lost: reported with the tail, not beside it."""
    lab, log = open_log(tmp_path, name)
    last, base = log.last, max(log.segments)
    log.drop(last)
    log.tails[base] = bytes(last.data[: len(last.data) * 3 // 5])
    log.save()
    f = the_only(lab.findings())
    assert (f.kind, f.severity) == ("torn-tail", "critical")
    assert (f.offset, f.position, f.evidence["bytes"]) == (log.end, size_of(log, base), len(log.tails[base]))
    assert [a["rule"] for a in f.evidence["also"]] == ["checkpoint-beyond-log-end"]
    assert f"truncates its log at offset {log.end} when it starts" in f.remedy
    zookeeper = name.startswith("2.8")  # which alone knows how many replicas there are
    assert ("o other replica exists: read the truncated part" in f.remedy) != zookeeper
    assert ("make it the leader" in f.remedy) == zookeeper


@pytest.mark.parametrize("live", [False, True])
def test_a_torn_append_behind_the_high_watermark(tmp_path: Path, live: bool) -> None:
    """What a crash leaves: no news of a running broker. After a clean stop a broker would append behind it."""
    lab, log = open_log(tmp_path)
    log.tails[189] = bytes(log.last.copy().set(base_offset=220).data[:100])
    log.save()
    if live:
        lab.is_live()
    (f,) = [f for f in lab.findings() if f.kind == "torn-tail"]
    assert (f.severity, f.offset, f.position) == ("info" if live else "warning", 220, size_of(log, 189))
    if live:
        assert f.remedy.startswith("Nothing to do: the high watermark is below it")
    else:
        assert f.remedy.startswith("Investigate first: do not start the broker before you repair the file")
        assert "Move .kafka_cleanshutdown out of the log directory" in f.remedy


@pytest.mark.parametrize("name", ["4.1", "2.8", "2.8 trimmed", "4.1 transactional"])
def test_an_older_segment_breaks_off(tmp_path: Path, name: str) -> None:
    lab, log = open_log(tmp_path, name)
    base = min(log.segments)
    last = log.segments[base][-1]
    log.drop(last)
    log.tails[base] = bytes(last.data[:-7])
    log.save()
    f = the_only(lab.findings())
    assert (f.kind, f.severity, f.offset) == ("torn-tail", "error", None)
    assert (f.file, f.position) == (f"{log.folder.name}/{base:020}.log", size_of(log, base))


# Offsets


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("where", [0.3, 0.6, 1.0])
def test_offset_gap(tmp_path: Path, name: str, where: float) -> None:
    lab, log = open_log(tmp_path, name)
    batches = log.all()
    number = min(len(batches) - 1, int(len(batches) * where))
    for b in batches[number:]:
        b.move(14)
    behind = batches[number]
    log.save()
    renamed = lab.log(log.folder.name)  # a hole before a whole segment moves its name
    f = the_only(lab.findings())
    assert (f.kind, f.severity) == ("offset-hole", "error")
    assert (f.offset, f.last_offset) == (behind["base_offset"], behind.last)
    assert (f.file, f.position) == renamed.place(renamed.find(behind["base_offset"]))
    assert f.evidence["missing_range"] == [behind["base_offset"] - 14, behind["base_offset"] - 1]


def test_a_lost_batch_is_a_hole_and_a_gap(tmp_path: Path) -> None:
    lab, log = open_log(tmp_path)
    log.drop(log.find(134))
    log.save()
    (f,) = above_info(lab.findings())
    assert (f.kind, f.severity, f.offset, f.last_offset) == ("offset-hole", "error", 140, 145)
    assert "here is no other replica of" in f.remedy
    assert "sequence-gap" in {a["rule"] for a in f.evidence["also"]}


def test_a_snapshot_that_remembers_what_the_log_lost_proves_the_hole(tmp_path: Path) -> None:
    lab, log = open_log(tmp_path, "3.6")
    log.drop(log.find(96))
    log.save()
    f = the_only(lab.findings())
    assert (f.kind, f.offset, f.evidence["missing_range"]) == ("offset-hole", 98, [96, 97])
    assert [a["rule"] for a in f.evidence["also"]] == ["snapshot-replay-mismatch"]


def test_a_segment_that_is_not_there(tmp_path: Path) -> None:
    lab, log = open_log(tmp_path)
    for path in log.folder.glob(f"{104:020}.*"):
        path.unlink()
    f = next(f for f in above_info(lab.findings()) if f.kind == "offset-hole")
    assert (f.offset, f.evidence["missing_range"], f.evidence["confidence"]) == (189, [104, 188], "undecidable")


def test_a_batch_in_the_wrong_segment(tmp_path: Path) -> None:
    lab, log = open_log(tmp_path)
    moved = log.segments[104].pop()
    log.segments[189].insert(0, moved)
    log.save()
    f = the_only(lab.findings())
    assert (f.kind, f.severity, f.offset, f.position) == ("offsets-not-increasing", "critical", 188, 0)


# Indexes


def entries(path: Path, form: str) -> list[list[int]]:
    return [list(e) for e in struct.iter_unpack(form, path.read_bytes())]


def store(path: Path, form: str, rows: list[list[int]]) -> None:
    path.write_bytes(b"".join(struct.pack(form, *row) for row in rows))


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("entry", [0, -1])
def test_index_entry_inside_batch(tmp_path: Path, name: str, entry: int) -> None:
    lab, log = open_log(tmp_path, name)
    for base in {min(log.segments), max(log.segments)}:
        path = log.file(base, "index")
        rows = entries(path, ">ii")
        rows[entry][1] += 37
        store(path, ">ii", rows)
    live_at_times(lab, list(LOGS).index(name) + entry)
    found = above_info(lab.findings())
    assert [f.kind for f in found] == ["index-mismatch"] * len({min(log.segments), max(log.segments)})
    for f, base in zip(found, sorted({min(log.segments), max(log.segments)}), strict=True):
        number = entry % len(entries(log.file(base, "index"), ">ii"))
        assert (f.severity, f.offset, f.topic, f.partition) == ("warning", None, log.topic, log.partition)
        assert (f.file, f.position) == (f"{log.folder.name}/{base:020}.index", 8 * number)
        assert f.evidence["why"] == "no batch starts at its position"


def test_an_index_entry_with_an_offset_of_elsewhere(tmp_path: Path) -> None:
    lab, log = open_log(tmp_path)
    path = log.file(104, "index")
    rows = entries(path, ">ii")
    rows[1][0] -= 12
    store(path, ">ii", rows)
    f = the_only(lab.findings())
    assert (f.kind, f.position, f.evidence["entry_offset"]) == ("index-mismatch", 8, 104 + 53 - 12)
    assert f.evidence["why"] == "its offset is not in the batches from its position on"


@pytest.mark.parametrize("name", ["4.1", "2.8", "4.1 transactional"])
def test_index_not_monotone(tmp_path: Path, name: str) -> None:
    lab, log = open_log(tmp_path, name)
    path = log.file(min(log.segments), "index")
    rows = entries(path, ">ii")
    rows[1], rows[2] = rows[2], rows[1]
    store(path, ">ii", rows)
    f = the_only(lab.findings())
    assert (f.kind, f.severity, f.file) == ("index-mismatch", "warning", f"{log.folder.name}/{path.name}")
    assert (f.position, f.evidence["why"]) == (16, "entries do not increase")


@pytest.mark.parametrize("name", LOGS)
def test_timeindex_entry_wrong(tmp_path: Path, name: str) -> None:
    """Too early a time: an earlier record is later."""
    lab, log = open_log(tmp_path, name)
    path = log.file(max(log.segments), "timeindex")
    rows = entries(path, ">qi")
    rows[0][0] -= 60_000
    store(path, ">qi", rows)
    f = the_only(lab.findings())
    assert (f.kind, f.severity, f.file, f.position) == (
        "index-mismatch", "warning", f"{log.folder.name}/{path.name}", 0,
    )  # fmt: skip
    assert f.evidence["why"] == "an earlier record has a larger timestamp"


def test_timeindex_not_monotone(tmp_path: Path) -> None:
    lab, log = open_log(tmp_path)
    path = log.file(0, "timeindex")
    rows = entries(path, ">qi")
    rows[2][0] = rows[1][0] - 10
    store(path, ">qi", rows)
    f = the_only(lab.findings())
    assert (f.kind, f.position, f.evidence["why"]) == ("index-mismatch", 24, "entries do not increase")


@pytest.mark.parametrize("suffix", ["index", "timeindex", "txnindex"])
def test_part_of_an_entry(tmp_path: Path, suffix: str) -> None:
    lab, log = open_log(tmp_path)
    path = log.file(104, suffix)
    whole = path.stat().st_size
    path.write_bytes(path.read_bytes() + b"\0\0\1")
    f = the_only(lab.findings())
    assert (f.kind, f.file, f.position) == ("index-mismatch", f"bay.case-0/{path.name}", whole)


def test_a_preallocated_index_is_no_finding(tmp_path: Path) -> None:
    lab, log = open_log(tmp_path)
    for suffix, size in (("index", 8), ("timeindex", 12)):
        path = log.file(189, suffix)
        path.write_bytes(path.read_bytes() + bytes(100 * size))
    lab.is_live()
    assert not above_info(lab.findings())


# Transaction indexes


ABORTED = ">hqqqq"  # version, producer id, first offset, last offset, last stable offset


@pytest.mark.parametrize("name", ["4.1", "3.6", "2.8", "4.1 transactional"])
@pytest.mark.parametrize("entry", [0, -1])
def test_txnindex_entry_missing(tmp_path: Path, name: str, entry: int) -> None:
    lab, log = open_log(tmp_path, name)
    path = next(p for p in sorted(log.folder.glob("*.txnindex")) if p.stat().st_size)
    rows = entries(path, ABORTED)
    gone = rows.pop(entry)
    store(path, ABORTED, rows)
    f = the_only(lab.findings())
    assert (f.kind, f.severity) == ("aborted-transaction-not-indexed", "critical")
    assert (f.offset, f.last_offset, f.producer_id) == (gone[2], gone[3], gone[1])
    assert (f.file, f.topic, f.partition) == (f"{log.folder.name}/{path.name}", log.topic, log.partition)
    assert f.transactional_id is not None


def test_a_live_copy_may_lack_the_newest_entry(tmp_path: Path) -> None:
    lab, log = open_log(tmp_path, "3.6")
    path = log.file(0, "txnindex")
    store(path, ABORTED, entries(path, ABORTED)[:-1])
    lab.is_live()
    assert not above_info(lab.findings())


WRONG = {"first offset": (2, 1), "last offset": (3, 2), "producer": (1, 70)}


@pytest.mark.parametrize("name", ["4.1", "2.8", "4.1 transactional"])
@pytest.mark.parametrize("field", WRONG)
def test_txnindex_entry_wrong(tmp_path: Path, name: str, field: str) -> None:
    """A wrong first offset is one finding; where the entry belongs to no marker, the real one lacks its entry too."""
    lab, log = open_log(tmp_path, name)
    path = next(p for p in sorted(log.folder.glob("*.txnindex")) if p.stat().st_size)
    rows = entries(path, ABORTED)
    column, by = WRONG[field]
    rows[0][column] += by
    store(path, ABORTED, rows)
    found = above_info(lab.findings())
    f = next(f for f in found if f.kind == "aborted-index-extra-entry")
    assert (f.offset, f.last_offset, f.producer_id, f.position) == (rows[0][2], rows[0][3], rows[0][1], 0)
    assert f.file == f"{log.folder.name}/{path.name}"
    rest = {x.kind for x in found} - {f.kind}
    assert rest == (set() if field == "first offset" else {"aborted-transaction-not-indexed"})


def test_an_entry_for_a_committed_transaction_hides_it(tmp_path: Path) -> None:
    lab, log = open_log(tmp_path)
    path = log.file(0, "txnindex")
    store(path, ABORTED, [[0, 1, 90, 99, 100]])
    f = the_only(lab.findings())
    assert (f.kind, f.severity, f.offset, f.last_offset) == ("aborted-index-extra-entry", "critical", 90, 99)


# Snapshots


def writing(log: Forged, offset: int) -> list[int]:
    """The entries of a snapshot whose last batch lies in the log, the youngest last."""
    known = [(p.offset, k) for k, p in enumerate(log.snapshots[offset]) if p.offset >= log.all()[0]["base_offset"]]
    return [k for _, k in sorted(known)]


@pytest.mark.parametrize("field", PRODUCERS)
@pytest.mark.parametrize("name", LOGS)
def test_snapshot_differs_from_replay(tmp_path: Path, name: str, field: str) -> None:
    lab, log = open_log(tmp_path, name)
    offset = next(o for o in sorted(log.snapshots, reverse=True) if writing(log, o))
    known, markers = log.snapshots[offset], {b["producer_id"] for b in log.markers()}
    number = writing(log, offset)[-1]
    if field == "coordinator_epoch":
        number = next((k for k, p in enumerate(known) if p.producer_id in markers), -1)
    right = getattr(known[number], field)
    known[number] = known[number]._replace(**{field: right + 3})
    log.save()
    live_at_times(lab, list(LOGS).index(name) + PRODUCERS.index(field))
    f = the_only(lab.findings())
    names = {"sequence": "last_sequence", "epoch": "producer_epoch", "offset": "last_offset", "delta": "offset_delta"}
    assert (f.kind, f.severity, f.offset) == ("snapshot-replay-mismatch", "error", offset)
    assert (f.file, f.position) == (f"{log.folder.name}/{offset:020}.snapshot", None)
    assert (f.topic, f.partition, f.producer_id) == (log.topic, log.partition, known[number].producer_id)
    difference = {"producer_id": f.producer_id, "field": names.get(field, field), "stored": right + 3}
    assert f.evidence["differences"] == [{**difference, "replayed": right}]


@pytest.mark.parametrize("name", LOGS)
def test_snapshot_producer_missing(tmp_path: Path, name: str) -> None:
    """The newest one that knows somebody who still has data in the log loses him."""
    lab, log = open_log(tmp_path, name)
    offset = next(o for o in sorted(log.snapshots, reverse=True) if writing(log, o))
    gone = log.snapshots[offset].pop(writing(log, offset)[-1])
    log.save()
    f = the_only(lab.findings())
    assert (f.kind, f.offset, f.producer_id) == ("snapshot-replay-mismatch", offset, gone.producer_id)
    assert f.file == f"{log.folder.name}/{offset:020}.snapshot"


def test_a_producer_of_the_snapshot_alone(tmp_path: Path) -> None:
    lab, log = open_log(tmp_path)
    log.snapshots[220].append(Producer(4711, 0, 7, 205, 0, 1795232783225, -1, -1))
    log.save()
    f = the_only(lab.findings())
    assert (f.kind, f.severity, f.offset, f.producer_id) == ("snapshot-replay-mismatch", "error", 220, 4711)


@pytest.mark.parametrize("first", [217, -1])
def test_a_snapshot_with_another_open_transaction(tmp_path: Path, first: int) -> None:
    """It would hold back consumers for nothing, or let them read what is not decided."""
    lab, log = open_log(tmp_path)
    offset = 220 if first >= 0 else 189
    log.snapshots[offset] = [
        p._replace(txn_first_offset=first) if p.producer_id == 1 else p for p in log.snapshots[offset]
    ]
    log.save()
    f = the_only(lab.findings())
    assert (f.kind, f.severity, f.offset, f.producer_id) == ("snapshot-replay-mismatch", "critical", offset, 1)


@pytest.mark.parametrize("name", LOGS)
def test_snapshot_crc_mismatch(tmp_path: Path, name: str) -> None:
    lab, log = open_log(tmp_path, name)
    path = log.file(max(log.snapshots), "snapshot")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    f = the_only(lab.findings())
    assert (f.kind, f.severity, f.file) == ("snapshot-unreadable", "warning", f"{log.folder.name}/{path.name}")
    assert (f.topic, f.partition, f.offset) == (log.topic, log.partition, None)


@pytest.mark.parametrize("content", [b"\0\x09" + bytes(20), b"\0\1", snapshot([])[:8]])
def test_a_snapshot_of_another_shape(tmp_path: Path, content: bytes) -> None:
    lab, log = open_log(tmp_path)
    log.file(104, "snapshot").write_bytes(content)
    f = the_only(lab.findings())
    assert (f.kind, f.severity) == ("snapshot-unreadable", "warning")


# Checkpoints


@pytest.mark.parametrize(
    ("file", "severity"), [("replication-offset-checkpoint", "critical"), ("recovery-point-offset-checkpoint", "error")]
)
def test_checkpoint_beyond_log_end(tmp_path: Path, file: str, severity: str) -> None:
    lab, log = open_log(tmp_path)
    log.checkpoint(file, 230)
    f = the_only(lab.findings())
    assert (f.kind, f.severity, f.offset, f.last_offset) == ("checkpoint-beyond-log-end", severity, 220, 230)


def test_a_batch_is_not_judged_below_the_log_start(tmp_path: Path) -> None:
    lab, log = open_log(tmp_path)
    batch: Batch = log.find(10)
    batch.set(sequence=5, epoch=3, leader_epoch=7, max_time=1, delta=20)
    log.save()
    log.checkpoint("log-start-offset-checkpoint", 60)
    assert not above_info(lab.findings())
