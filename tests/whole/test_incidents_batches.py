"""One batch of a real log made wrong in one way: one finding, at that batch, and nothing else above info.

Every kind of ``rules.json`` that a single batch can show, in logs of 2.8, 3.6 and 4.1: plain, idempotent and
transactional data, of every codec, in the first, a middle and the last place.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from auditor.rules.seen.view import Finding
from tests import corpora
from tests.audited import above_info
from tests.forge import TRANSACTIONAL, Batch, Forged, Lab

LOGS = {
    "4.1": ("altered-41", "bay.case-0"),
    "3.6": ("hanging-36", "bank.ledger-4"),
    "2.8": ("healthy-28", "web.orders-0"),
    "2.8 trimmed": ("trimmed-28", "reel.tape-6"),
    "4.1 transactional": ("healthy-41", "shop.orders-0"),
}
DAY_MS = 86_400_000
Harm = Callable[[Batch], object]


def whole(batch: Batch) -> bool:
    """Data of more than one record: what most harms need."""
    return not batch.control and batch["count"] > 1


def numbers(log: Forged, wanted: Callable[[Batch], bool] = whole) -> list[int]:
    """The first, a middle and the last of the wanted batches, but for the very first of the log."""
    found = [k for k, b in enumerate(log.all()) if k and wanted(b)]
    return sorted({found[0], found[len(found) // 2], found[-1]})


def one(name: str, turn: int, wanted: Callable[[Batch], bool] = whole) -> int:
    """One of them: over the logs and kinds of a test all three places have their turn."""
    corpus, folder = LOGS[name]
    found = numbers(Forged(corpora.unpack(corpus) / "broker-1", folder), wanted)
    return found[(list(LOGS).index(name) + turn) % len(found)]


def every(name: str, wanted: Callable[[Batch], bool] = whole) -> list[int]:
    """All three."""
    corpus, folder = LOGS[name]
    return numbers(Forged(corpora.unpack(corpus) / "broker-1", folder), wanted)


def alter(root: Path, name: str, number: int, harm: Harm, *, live: bool = False) -> tuple[Forged, Batch, list[Finding]]:
    """The log with one batch altered, the batch, and all findings."""
    lab = Lab(root / str(number), *LOGS[name])
    log = lab.log(LOGS[name][1])
    batch = log.all()[number]
    harm(batch)
    log.save()
    if live:
        lab.is_live()
    return log, batch, lab.findings()


def only(found: list[Finding], rule: str, log: Forged, batch: Batch, severity: str = "") -> Finding:
    """The one finding above info, which has to point at the batch."""
    assert [f.kind for f in above_info(found)] == [rule], [f.message for f in above_info(found)]
    (f,) = above_info(found)
    assert (f.topic, f.partition, f.broker_id) == (log.topic, log.partition, 1)
    assert (f.offset, f.last_offset) == (batch["base_offset"], batch.last)
    assert (f.file, f.position) == log.place(batch)
    assert f.severity == severity or not severity
    if batch["producer_id"] >= 0 and rule != "batch-crc-mismatch":
        assert (f.producer_id, f.producer_epoch) == (batch["producer_id"], batch["epoch"])
    else:
        assert f.producer_id is None
    return f


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("name", LOGS)
def test_untouched_logs_are_in_order(tmp_path: Path, name: str, live: bool) -> None:
    lab = Lab(tmp_path, *LOGS[name])
    log = lab.log(LOGS[name][1])
    files = {p.name: p.read_bytes() for p in log.folder.iterdir()}
    log.save()
    assert files == {p.name: p.read_bytes() for p in log.folder.iterdir()}  # the forger alone changes nothing
    if live:
        lab.is_live()
    assert not above_info(lab.findings())


def repeat_a_delta(batch: Batch) -> None:
    records = batch.records()
    records[1]["delta"] = records[0]["delta"]
    batch.refill(*records)


def null_header_key(batch: Batch) -> None:
    records = batch.records()
    records[-1]["headers"] = [(b"trace", b"1"), (None, b"2")]
    batch.refill(*records)


def break_gzip(batch: Batch) -> None:
    batch.set(attributes=batch["attributes"] & ~7 | 1)
    batch.data[61:] = b"\x1f\x8b\x08\0" + random.Random(1).randbytes(100)
    batch.seal()


STRUCTURE: dict[str, tuple[Harm, str]] = {
    "record_offset_delta_invalid": (repeat_a_delta, "offset deltas do not increase or exceed the last one declared"),
    "record_count_mismatch": (
        lambda b: b.set(count=b["count"] + 4),
        "the number of records differs from the declared one",
    ),
    "too few declared": (lambda b: b.set(count=b["count"] - 1), "bytes follow the last record"),
    "last_offset_delta_mismatch": (
        lambda b: b.set(delta=b["delta"] + 2),
        "fewer records are declared than its offsets span",
    ),
    "last offset delta too small": (
        lambda b: b.set(delta=b["delta"] - 1),
        "offset deltas do not increase or exceed the last one declared",
    ),
    "header_key_null": (null_header_key, "a header has a null key"),
    "undecompressable_batch": (break_gzip, "its body cannot be decompressed"),
    "unknown_codec": (lambda b: b.set(attributes=b["attributes"] & ~7 | 6), "its codec does not exist"),
}


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("kind", STRUCTURE)
def test_a_batch_not_built_as_batches_are(tmp_path: Path, name: str, kind: str) -> None:
    harm, flaw = STRUCTURE[kind]
    log, batch, found = alter(tmp_path, name, one(name, list(STRUCTURE).index(kind)), harm)
    f = only(found, "record-structure-invalid", log, batch)
    assert f.severity in ("error", "critical")  # critical where what follows from it would be
    assert flaw in f.evidence["flaws"]
    index = {"header_key_null": batch["count"] - 1, "record_offset_delta_invalid": 1}.get(kind)
    assert index is None or f.evidence["record_index"] == index


@pytest.mark.parametrize("kind", ["last_offset_delta_mismatch", "unknown_codec"])
def test_what_headers_show_is_reported_without_the_records(tmp_path: Path, kind: str) -> None:
    lab = Lab(tmp_path, *LOGS["4.1"])
    log = lab.log("bay.case-0")
    batch = log.find(122)
    STRUCTURE[kind][0](batch)
    log.save()
    assert (
        STRUCTURE[kind][1]
        in only(lab.findings(records=False), "record-structure-invalid", log, batch).evidence["flaws"]
    )


@pytest.mark.parametrize("magic", [3, -1])
@pytest.mark.parametrize("wanted", [whole, lambda b: b.control], ids=["data", "marker"])
@pytest.mark.parametrize("name", LOGS)
def test_unknown_magic(tmp_path: Path, name: str, wanted: Callable[[Batch], bool], magic: int) -> None:
    """Its offset stands before it; what comes behind it gives no hole, no gap and no transaction that hangs."""
    log, batch, found = alter(tmp_path, name, one(name, magic, wanted), lambda b: b.set(magic=magic))
    (f,) = above_info(found)
    assert (f.kind, f.topic, f.partition) == ("record-structure-invalid", log.topic, log.partition)
    assert (f.offset, f.last_offset, f.producer_id) == (batch["base_offset"], None, None)
    assert (f.file, f.position) == log.place(batch)
    assert f"magic: {magic}," in f.message


@pytest.mark.parametrize("wanted", [whole, lambda b: b.control], ids=["data", "marker"])
@pytest.mark.parametrize("name", LOGS)
def test_crc_mismatch(tmp_path: Path, name: str, wanted: Callable[[Batch], bool]) -> None:
    for number in every(name, wanted):
        log, batch, found = alter(tmp_path, name, number, lambda b: b.data.__setitem__(-3, b.data[-3] ^ 4))
        only(found, "batch-crc-mismatch", log, batch, "critical")


@pytest.mark.parametrize("name", LOGS)
def test_max_timestamp_mismatch(tmp_path: Path, name: str) -> None:
    for number in every(name):
        for by in (777_777, -5_000):
            log, batch, found = alter(tmp_path / str(by), name, number, lambda b: b.set(max_time=b["max_time"] + by))  # noqa: B023
            only(found, "batch-timestamp-mismatch", log, batch, "warning")


@pytest.mark.parametrize("name", LOGS)
def test_timestamp_negative(tmp_path: Path, name: str) -> None:
    for number in every(name):
        log, batch, found = alter(
            tmp_path, name, number, lambda b: b.set(max_time=b["max_time"] - b["base_time"] - 500, base_time=-500)
        )
        f = only(found, "timestamp-out-of-range", log, batch, "warning")
        assert f.evidence["found"] == -500


@pytest.mark.parametrize("name", LOGS)
def test_timestamp_in_future(tmp_path: Path, name: str) -> None:
    """Since 4.0 leaders refuse what is an hour ahead; before, it is a producer's clock that is wrong."""
    rule = "timestamp-out-of-range" if name.startswith("4.1") else "producer-timestamp-skew"
    marked = Lab(tmp_path, *LOGS[name]).log(LOGS[name][1]).markers()[-1]["base_offset"]
    for number in every(name):
        log, batch, found = alter(
            tmp_path,
            name,
            number,
            lambda b: b.set(max_time=b["max_time"] + 30 * DAY_MS, base_time=b["base_time"] + 30 * DAY_MS),
        )
        if name == "2.8 trimmed" and batch["base_offset"] > marked:
            continue  # nothing a broker wrote is later, and ZooKeeper's brokers write nothing by themselves
        only(found, rule, log, batch, "warning")


def test_a_producer_without_id_may_be_ahead_too(tmp_path: Path) -> None:
    lab = Lab(tmp_path, *LOGS["4.1"])
    log = lab.log("bay.case-0")
    batch = log.find(80)
    batch.set(max_time=batch["max_time"] + DAY_MS, base_time=batch["base_time"] + DAY_MS)
    log.save()
    only(lab.findings(), "timestamp-out-of-range", log, batch, "warning")


@pytest.mark.parametrize(("setting", "found"), [("difference", True), ("before", True), ("after", False)])
def test_older_than_the_topic_allows(tmp_path: Path, setting: str, found: bool) -> None:
    """By the marker right before the batch, in the same segment; the oldest setting was the only limit up to 3.5."""
    lab = Lab(tmp_path, *LOGS["2.8"])
    log = lab.log(LOGS["2.8"][1])
    marker = log.markers()[0]
    batch = next(b for b in log.data() if b["base_offset"] > marker["base_offset"])
    settings = next(lab.broker().parent.glob("server-*.properties"), lab.broker().parent / "server-1.properties")
    had = settings.read_text() if settings.exists() else ""
    settings.write_text(f"{had}\nbroker.id=1\nlog.message.timestamp.{setting}.max.ms=3600000\n")
    shift = batch["base_time"] - marker["max_time"] + DAY_MS
    batch.set(max_time=batch["max_time"] - shift, base_time=batch["base_time"] - shift)
    log.save()
    rules = [f.offset for f in lab.findings() if f.kind == "timestamp-out-of-range" and f.severity == "warning"]
    assert rules == [batch["base_offset"]] * found


def test_nothing_is_ahead_of_brokers_whose_controllers_log_is_not_there(tmp_path: Path) -> None:
    """No marker lies behind the batch; that a broker wrote nothing as late, only the controller's log makes sure."""
    lab = Lab(tmp_path, *LOGS["4.1"])
    log = lab.log("bay.case-0")
    batch = log.last
    assert batch["base_offset"] > log.markers()[-1].last
    batch.set(max_time=batch["max_time"] + DAY_MS, base_time=batch["base_time"] + DAY_MS)
    log.save()
    only(lab.findings(), "timestamp-out-of-range", log, batch, "warning")
    for path in lab.broker().glob("__cluster_metadata-0/*.log"):
        path.unlink()
    assert not {"timestamp-out-of-range", "producer-timestamp-skew"} & {f.kind for f in lab.findings()}


HOLES = ("committed-transaction-hole", "sequence-gap")  # critical where what was committed may be gone
FIELDS: dict[str, Callable[[Batch], Batch]] = {
    "no producer id": lambda b: b.set(producer_id=-1),
    "no epoch": lambda b: b.set(epoch=-1),
    "no sequence": lambda b: b.set(sequence=-1),
}


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("kind", FIELDS)
def test_producer_header_inconsistent(tmp_path: Path, name: str, kind: str) -> None:
    """The gap that the batch leaves in its producer's sequences, and what a snapshot knows of it, are one cause."""
    number = one(name, list(FIELDS).index(kind), lambda b: whole(b) and b["producer_id"] >= 0)
    log, batch, found = alter(tmp_path, name, number, FIELDS[kind])
    if kind == "no producer id" and not batch.transactional:  # what default clients leave: the numbers are missing
        (said,) = [f for f in found if f.kind == "producer-fields-inconsistent"]
        assert (said.severity, said.offset) == ("info", batch["base_offset"])
        (gap,) = above_info(found)
        assert (gap.kind, gap.severity, gap.evidence["expected"]) == ("sequence-gap", "error", batch["sequence"])
        return
    f = only(found, "producer-fields-inconsistent", log, batch)
    taken = [a["severity"] for a in f.evidence.get("also", ()) if a["rule"] in HOLES]
    assert f.severity == ("critical" if "critical" in taken else "error")


@pytest.mark.parametrize("name", ["4.1", "3.6", "2.8"])
def test_a_stranger_among_producers(tmp_path: Path, name: str) -> None:
    lab = Lab(tmp_path, *LOGS[name])
    log = lab.log(LOGS[name][1])
    batch = log.next(log.data()[2], producer_id=-1, epoch=-1, sequence=-1)
    batch.set(attributes=batch.codec | TRANSACTIONAL)
    log.save()
    only(lab.findings(), "producer-fields-inconsistent", log, batch, "error")


@pytest.mark.parametrize("name", ["2.8", "4.1", "4.1 transactional"])
def test_non_transactional_batch_in_transaction(tmp_path: Path, name: str) -> None:
    log = Lab(tmp_path, *LOGS[name]).log(LOGS[name][1])

    def second(batch: Batch) -> bool:
        """Not the first of its transaction: then the transaction would only begin behind it."""
        mine = [
            b for b in log.all() if b["producer_id"] == batch["producer_id"] and b["base_offset"] < batch["base_offset"]
        ]
        return batch.transactional and not batch.control and bool(mine) and not mine[-1].control

    for number in numbers(log, second):
        log, batch, found = alter(tmp_path, name, number, lambda b: b.set(attributes=b["attributes"] & ~TRANSACTIONAL))
        f = only(found, "plain-data-inside-transaction", log, batch, "critical")
        assert f.evidence["transaction_first_offset"] < batch["base_offset"]
        assert f.transactional_id is not None


@pytest.mark.parametrize("partition", [0, 1])
def test_key_missing_in_compacted_topic(tmp_path: Path, partition: int) -> None:
    lab = Lab(tmp_path, "altered-41", f"bay.keyed-{partition}")
    log = lab.log(f"bay.keyed-{partition}")
    if partition == 0:  # one such batch is there already, at offset 50
        log.cut(50)
    for offset in (10, 40):
        batch = log.find(offset)
        records = batch.records()
        records[-1]["key"] = None
        batch.refill(*records)
    log.save()
    (f,) = above_info(lab.findings())
    first, last = log.find(10), log.find(40)
    assert (f.kind, f.severity) == ("null-key-in-compacted-topic", "warning")
    assert (f.offset, f.last_offset, f.producer_id) == (first["base_offset"], last.last, first["producer_id"])
    assert (f.evidence["records"], f.evidence["record_index"]) == (2, first["count"] - 1)


@pytest.mark.parametrize("name", LOGS)
def test_offset_not_increasing(tmp_path: Path, name: str) -> None:
    for number in every(name):
        log, batch, found = alter(tmp_path, name, number, lambda b: b.move(-2))
        f = only(found, "offsets-not-increasing", log, batch, "critical")
        assert f.evidence["expected"] == batch["base_offset"] + 2 or isinstance(f.evidence["expected"], list)


@pytest.mark.parametrize("name", LOGS)
def test_leader_epoch_regression(tmp_path: Path, name: str) -> None:
    """A single batch under another leader epoch: what follows it has the right one, as the checkpoint says."""
    for number in every(name):
        for by in (1, -1):
            lab = Lab(tmp_path / f"{number} {by}", *LOGS[name])
            log = lab.log(LOGS[name][1])
            batch = log.all()[number]
            epoch = batch["leader_epoch"]
            if epoch + by < 0:
                continue
            batch.set(leader_epoch=epoch + by)
            log.save()
            f = only(lab.findings(), "leader-epoch-mismatch", log, batch, "error")
            assert (f.evidence["expected"], f.evidence["found"]) == (epoch, epoch + by)
