"""Transactions that went wrong between a real coordinator's log and a real partition: open, undecided, contradicted.

The coordinator's log goes on from where the real one ended; the partition's batches and markers likewise.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from auditor.rules.seen.view import Finding
from tests.audited import above_info
from tests.coordinator_records import Coordinator
from tests.forge import Batch, Forged, Lab, reported

MINUTE_MS = 60_000
LEDGER = "bank.ledger-4"
CURED, CURED_PRODUCER = "bank-cured", (4, 0)  # its last record is CompleteAbort, an operator closed what hung
BUSY, BUSY_PRODUCER, BUSY_SINCE, BUSY_TIMEOUT = "bank-busy", (6, 0), 1795233080779, 600_000  # Ongoing since then
LATER = 1795233090000  # behind all that the corpus holds
ABORTED = {"web.orders-0": ("healthy-28", 667), "shop.orders-0": ("healthy-41", 759)}  # and their last COMMIT markers


class Bank:
    """A partition of the 3.6 corpus and the coordinator that its producers belong to."""

    def __init__(self, root: Path, *more: str, log: str = LEDGER) -> None:
        self.lab = Lab(root, "hanging-36", log, *more)
        self.log = self.lab.log(log)
        self.coordinator = Coordinator(self.lab.broker(), 1)

    def write(self, time: int, *, producer: tuple[int, int] = CURED_PRODUCER, sequence: int = 13) -> Batch:
        """A transactional batch of three records."""
        like = self.log.data(4)[-1]
        header = {"producer_id": producer[0], "epoch": producer[1], "sequence": sequence}
        return self.log.next(like, base_time=time, max_time=time + like["max_time"] - like["base_time"], **header)

    def end(self, commit: bool, time: int, **header: int) -> Batch:
        return self.log.decide(self.log.data(4)[-1], commit, time=time, **header)

    def write_states(self, *states: str, start: int, partitions: tuple[str, ...] = (LEDGER,)) -> list[Batch]:
        """Records of the cured id, a second apart; the first one is at ``start``."""
        return [
            self.coordinator.state(
                CURED, state, CURED_PRODUCER, start + 1000 * k, *(() if state.startswith("Complete") else partitions),
                start=start,
            )
            for k, state in enumerate(states)
        ]  # fmt: skip

    def findings(self, as_of: int | None = None, *, live: bool = False) -> list[Finding]:
        self.log.save()
        self.coordinator.save()
        if live:
            self.lab.is_live()
        return self.lab.findings(as_of)

    def reported(self, as_of: int | None = None) -> list[tuple[str, str, int | None, int | None]]:
        return sorted(reported(self.findings(as_of)))


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    return Bank(tmp_path)


def the_only(found: list[Finding], rule: str) -> Finding:
    assert [f.kind for f in above_info(found)] == [rule], [f.message for f in above_info(found)]
    return above_info(found)[0]


def at(f: Finding, log: Forged, first: Batch, last: Batch | None = None) -> tuple[object, ...]:
    """Checks the place, returns who."""
    assert (f.topic, f.partition, f.offset, f.last_offset) == (
        log.topic, log.partition, first["base_offset"], (last or first).last,
    )  # fmt: skip
    assert (f.file, f.position) == log.place(first)
    return f.severity, f.producer_id, f.producer_epoch, f.transactional_id


# Hanging


def test_late_data_hangs(bank: Bank) -> None:
    first, last = bank.write(LATER), bank.write(LATER + 5, sequence=16)
    f = the_only(bank.findings(), "hanging-transaction")
    assert at(f, bank.log, first, last) == ("critical", *CURED_PRODUCER, CURED)
    assert f.evidence["class"] == "hanging"
    assert [a["rule"] for a in f.evidence["also"]] == ["late-write-after-marker"]
    assert "abort --topic bank.ledger --partition 4 --start-offset 99" in f.remedy


def test_late_data_of_a_running_broker_may_not_be_late(bank: Bank) -> None:
    bank.write(LATER)
    found = bank.findings(live=True)
    assert not above_info(found)
    assert [f.offset for f in found if f.kind == "hanging-transaction"] == [99]


def test_data_of_an_id_that_nobody_knows_hangs(bank: Bank) -> None:
    batch = bank.write(LATER, producer=(900, 0), sequence=0)
    f = the_only(bank.findings(), "hanging-transaction")
    assert at(f, bank.log, batch) == ("critical", 900, 0, None)
    assert f.evidence["class"] == "orphan"


def test_data_outside_of_what_its_transaction_has_hangs(bank: Bank) -> None:
    batch = bank.write(LATER, producer=BUSY_PRODUCER, sequence=0)
    f = the_only(bank.findings(LATER), "hanging-transaction")
    assert at(f, bank.log, batch) == ("critical", *BUSY_PRODUCER, BUSY)
    assert [a["rule"] for a in f.evidence["also"]] == ["partition-not-in-transaction"]


@pytest.mark.parametrize("readable_behind", [False, True])
def test_a_record_of_the_coordinator_that_cannot_be_read_may_be_the_newest(bank: Bank, readable_behind: bool) -> None:
    """Here it is: the transaction goes on in it. With a later record of the id behind it, it no longer matters."""
    bank.coordinator.state(CURED, "Ongoing", CURED_PRODUCER, LATER, LEDGER, start=LATER, version=99)
    if readable_behind:
        bank.coordinator.state(CURED, "Empty", (CURED_PRODUCER[0], 1), LATER + 1000)
    bank.write(LATER + 5)
    found = {f.kind: f for f in bank.findings()}
    assert "unreadable-transaction-record" in found
    f = found["hanging-transaction" if readable_behind else "long-open-transaction"]
    assert (f.topic, f.partition, f.offset, f.producer_id) == ("bank.ledger", 4, 99, CURED_PRODUCER[0])
    assert (f.severity, f.evidence["class"]) == (
        ("critical", "hanging") if readable_behind else ("info", "undecidable")
    )  # fmt: skip
    assert ("hanging-transaction" in found) == readable_behind


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("name", ABORTED)
def test_a_marker_that_never_came(tmp_path: Path, name: str, live: bool) -> None:
    """The coordinator had decided COMMIT: an abort would make it worse. A running broker may have had it later, but not
    than its checkpoint, nor than copying takes."""
    corpus, marker = ABORTED[name]
    lab = Lab(tmp_path, corpus, name)
    log = lab.log(name)
    producer = log.find(marker)["producer_id"]
    log.cut(marker)
    log.save()
    if live:
        lab.is_live()
    f = the_only(lab.findings(), "hanging-transaction")
    mine = [b for b in log.data(producer) if b["base_offset"] >= f.offset]
    assert at(f, log, mine[0], mine[-1])[:2] == ("critical", producer)
    assert f.evidence["decided"] == "COMMIT"
    assert [a["rule"] for a in f.evidence["also"]] == ["missing-marker"]
    assert f.remedy.startswith("Commit it, do not abort: the coordinator committed")


def test_a_transaction_pinned_at_the_log_start(tmp_path: Path) -> None:
    bank = Bank(tmp_path, log="bank.ledger-0")
    bank.log.checkpoint("log-start-offset-checkpoint", 118)
    f = the_only(bank.findings(), "transaction-pinned-at-log-start")
    assert (f.severity, f.offset, f.last_offset) == ("error", 71, 117)
    assert (f.producer_id, f.transactional_id) == (1, "bank-abort")


# Past the time-out, prepared and not completed


@pytest.mark.parametrize("over", [30_001, 60_000, 20 * MINUTE_MS])
def test_transaction_past_timeout(tmp_path: Path, over: int) -> None:
    bank = Bank(tmp_path, "bank.audit-1")
    f = the_only(bank.findings(BUSY_SINCE + BUSY_TIMEOUT + over), "timeout-not-enforced")
    assert (f.severity, f.topic, f.partition, f.offset) == ("error", "__transaction_state", 1, 5)
    assert (f.transactional_id, f.producer_id, f.producer_epoch) == (BUSY, *BUSY_PRODUCER)
    assert f.evidence["partitions"] == ["bank.audit-1"]


@pytest.mark.parametrize("over", [-1, 30_000])
def test_a_transaction_within_its_time_is_nobodys_business(tmp_path: Path, over: int) -> None:
    """The coordinator looks every ten seconds, and 20 s are allowed for what it does then."""
    assert not above_info(Bank(tmp_path, "bank.audit-1").findings(BUSY_SINCE + BUSY_TIMEOUT + over))


@pytest.mark.parametrize("minutes", [10, 30, 90])
def test_an_open_transaction_whose_coordinator_is_not_in_the_input(tmp_path: Path, minutes: int) -> None:
    lab = Lab(tmp_path, "hanging-36", LEDGER)
    for path in lab.broker().glob("__transaction_state-*"):
        shutil.rmtree(path)
    log = lab.log(LEDGER)
    log.cut(98)
    log.save()
    since = log.find(90)["max_time"]
    found = lab.findings(since + minutes * MINUTE_MS)
    if minutes < 15:
        assert not above_info(found)
        return
    f = the_only(found, "long-open-transaction")
    assert (f.offset, f.last_offset, f.producer_id) == (75, 77, 4)
    assert f.severity == ("critical" if minutes > 60 else "error")  # the stable offset that it holds back counts
    assert f.evidence["missing"] == "__transaction_state"


@pytest.mark.parametrize("state", ["PrepareCommit", "PrepareAbort"])
def test_transaction_prepared_not_completed(tmp_path: Path, state: str) -> None:
    bank = Bank(tmp_path, "bank.audit-1")
    decided = BUSY_SINCE + 5_000
    record = bank.coordinator.state(
        BUSY, state, BUSY_PRODUCER, decided, "bank.audit-1", start=BUSY_SINCE, timeout=BUSY_TIMEOUT
    )
    f = the_only(bank.findings(decided + 16 * MINUTE_MS), "stuck-prepare")
    assert at(f, bank.coordinator.log, record) == ("critical", *BUSY_PRODUCER, BUSY)
    assert f.evidence["partitions"] == ["bank.audit-1"]
    first = bank.lab.log("bank.audit-1").data(BUSY_PRODUCER[0])[0]["base_offset"]
    assert f.evidence["without_marker"] == {"bank.audit-1": first}
    assert "bank.audit-1 has no marker of it" in f.message


def test_markers_take_a_moment(tmp_path: Path) -> None:
    bank = Bank(tmp_path, "bank.audit-1")
    times = {"start": BUSY_SINCE, "timeout": BUSY_TIMEOUT}
    bank.coordinator.state(BUSY, "PrepareCommit", BUSY_PRODUCER, BUSY_SINCE + 5_000, "bank.audit-1", **times)
    assert not above_info(bank.findings(BUSY_SINCE + 60_000))


# Contradictions


def turn(marker: Batch) -> None:
    """COMMIT for ABORT, ABORT for COMMIT."""
    (record,) = marker.records()
    marker.refill({**record, "key": record["key"][:3] + bytes([1 - record["key"][3]])})


def test_a_marker_that_contradicts_the_decision(bank: Bank) -> None:
    """That the right one is missing, and that the index knows of an abort, is the same cause."""
    marker = bank.log.find(74)
    turn(marker)
    f = the_only(bank.findings(), "split-decision")
    assert at(f, bank.log, marker) == ("critical", *CURED_PRODUCER, CURED)
    assert (f.evidence["marker"], f.evidence["expected"]) == ("COMMIT", "ABORT")
    assert [a["rule"] for a in f.evidence["also"]] == [
        "aborted-index-extra-entry", "marker-contradicts-decision", "missing-marker"]  # fmt: skip


@pytest.mark.parametrize(("name", "offset"), [("web.orders-0", 81), ("web.orders-0", 667), ("shop.orders-0", 86)])
def test_a_transaction_split_between_partitions(tmp_path: Path, name: str, offset: int) -> None:
    lab = Lab(tmp_path, ABORTED[name][0], name)
    log = lab.log(name)
    marker = log.find(offset)
    turn(marker)
    log.save()
    f = the_only(lab.findings(), "split-decision")
    assert at(f, log, marker)[:3] == ("critical", marker["producer_id"], marker["epoch"])
    assert len(f.evidence["partitions"]) > 1
    assert {a["rule"] for a in f.evidence["also"]} == {
        "marker-contradicts-decision", "missing-marker", "aborted-transaction-not-indexed",
    }  # fmt: skip


@pytest.mark.parametrize("name", ABORTED)
def test_a_marker_of_a_wrong_epoch(tmp_path: Path, name: str) -> None:
    """It closed the transaction, but it is not what the coordinator sent, as the snapshot remembers."""
    lab = Lab(tmp_path, ABORTED[name][0], name)
    log = lab.log(name)
    marker = log.find(ABORTED[name][1])
    marker.set(epoch=marker["epoch"] + 1)
    log.save()
    f = the_only(lab.findings(), "marker-without-decision")
    assert at(f, log, marker)[:3] == ("critical", marker["producer_id"], marker["epoch"])
    assert [a["rule"] for a in f.evidence["also"]] == ["missing-marker", "snapshot-replay-mismatch"]


def test_a_marker_of_a_coordinator_that_never_was(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "healthy-28", "web.orders-0")
    log = lab.log("web.orders-0")
    marker = log.find(667)
    (record,) = marker.records()
    marker.refill({**record, "value": b"\0\0\0\0\0\7"})
    log.save()
    f = the_only(lab.findings(), "unknown-coordinator-epoch")
    assert at(f, log, marker)[0] == "error"
    assert [a["rule"] for a in f.evidence["also"]] == ["snapshot-replay-mismatch"]


def test_a_commit_that_nobody_decided(bank: Bank) -> None:
    first = bank.write(LATER)
    marker = bank.end(True, LATER + 100)
    found = {f.kind: f for f in above_info(bank.findings())}
    assert set(found) == {"late-write-after-marker", "marker-without-decision"}
    assert at(found["marker-without-decision"], bank.log, marker) == ("warning", *CURED_PRODUCER, CURED)
    assert "kafka-transactions.sh" not in found["marker-without-decision"].remedy  # which writes no COMMIT
    assert "visible as committed" in found["marker-without-decision"].remedy
    assert at(found["late-write-after-marker"], bank.log, first)[0] == "error"


def test_an_operators_abort_is_right(bank: Bank) -> None:
    first = bank.write(LATER)
    bank.end(False, LATER + 100)
    bank.log.aborted.append((4, 99, 102))
    found = bank.findings()
    assert not above_info(found)
    assert (first["base_offset"], "info") in {
        (f.offset, f.severity) for f in found if f.kind == "late-write-after-marker"
    }


def test_two_transactions_under_one_marker(bank: Bank) -> None:
    """Data that came 100 s before its transaction had the partition belongs to none."""
    first, last = bank.write(LATER), bank.write(LATER + 100_500, sequence=16)
    marker = bank.end(True, LATER + 101_500)
    bank.write_states("Ongoing", "PrepareCommit", "CompleteCommit", start=LATER + 100_000)
    f = the_only(bank.findings(), "transactions-merged-under-one-marker")
    assert at(f, bank.log, first, last) == ("critical", *CURED_PRODUCER, CURED)
    assert f.evidence["marker_offset"] == marker["base_offset"]


def test_a_partition_that_its_transaction_never_had(bank: Bank) -> None:
    batch = bank.write(BUSY_SINCE + 100, producer=BUSY_PRODUCER, sequence=0)
    marker = bank.end(True, BUSY_SINCE + 1_100, producer_id=BUSY_PRODUCER[0])
    for state, after in (("PrepareCommit", 1_000), ("CompleteCommit", 1_200)):
        partitions = () if state.startswith("Complete") else ("bank.audit-1",)
        times = {"start": BUSY_SINCE, "timeout": BUSY_TIMEOUT}
        bank.coordinator.state(BUSY, state, BUSY_PRODUCER, BUSY_SINCE + after, *partitions, **times)
    found = {f.kind: f for f in above_info(bank.findings())}
    # The data, and what ended it, whose time is older than those of the markers before it.
    assert set(found) == {"partition-not-in-transaction", "marker-without-decision", "clock-skew"}
    assert at(found["partition-not-in-transaction"], bank.log, batch) == ("error", *BUSY_PRODUCER, BUSY)
    assert found["partition-not-in-transaction"].evidence["partitions"] == ["bank.audit-1"]
    assert at(found["marker-without-decision"], bank.log, marker)[0] == "warning"


def test_data_of_an_epoch_that_no_coordinator_gave(bank: Bank) -> None:
    """It hangs, and the epoch tells why: one record, one finding."""
    batch = bank.write(LATER, producer=(4, 5), sequence=0)
    f = the_only(bank.findings(), "hanging-transaction")
    assert at(f, bank.log, batch) == ("critical", 4, 5, CURED)
    assert "data-epoch-ahead-of-coordinator" in {a["rule"] for a in f.evidence["also"]}


def test_a_producer_id_that_was_never_given_out(bank: Bank) -> None:
    batch = bank.log.next(bank.log.data(0)[-1], producer_id=50_000, sequence=0)
    f = the_only(bank.findings(), "producer-id-not-allocated")
    assert at(f, bank.log, batch) == ("error", 50_000, 0, None)


def test_an_id_that_writes_on_after_it_was_forgotten(bank: Bank) -> None:
    bank.coordinator.forget(CURED, LATER)
    batch = bank.write(LATER + MINUTE_MS)
    bank.end(False, LATER + MINUTE_MS + 1_000)
    bank.log.aborted.append((4, 99, 102))
    f = the_only(bank.findings(), "expired-id-still-producing")
    assert (f.severity, f.last_offset, f.transactional_id) == ("warning", batch.last, CURED)


# The coordinator's own log


def test_illegal_transition(bank: Bank) -> None:
    record = bank.coordinator.state(CURED, "PrepareCommit", CURED_PRODUCER, LATER, LEDGER, start=LATER)
    f = the_only(bank.findings(LATER), "illegal-transition")
    assert at(f, bank.coordinator.log, record) == ("critical", *CURED_PRODUCER, CURED)
    assert (f.evidence["before"]["state"], f.evidence["after"]["state"]) == ("CompleteAbort", "PrepareCommit")


@pytest.mark.parametrize("state", ["Dead", "PrepareEpochFence"])
def test_a_state_that_is_never_written(bank: Bank, state: str) -> None:
    record = bank.coordinator.state(CURED, state, CURED_PRODUCER, LATER, LEDGER, start=LATER)
    found = above_info(bank.findings(LATER))
    assert {f.kind for f in found} == {"illegal-transition"}
    assert all(at(f, bank.coordinator.log, record)[0] == "critical" for f in found)


def test_partitions_that_change_at_the_decision(bank: Bank) -> None:
    bank.write_states("Ongoing", start=LATER, partitions=("bank.ledger-2", "bank.ledger-3"))
    record = bank.coordinator.state(CURED, "PrepareAbort", CURED_PRODUCER, LATER + 5, "bank.ledger-3", start=LATER)
    f = the_only(bank.findings(LATER), "transition-invariant-broken")
    assert at(f, bank.coordinator.log, record) == ("error", *CURED_PRODUCER, CURED)


def test_a_complete_record_with_partitions(bank: Bank) -> None:
    bank.write_states("Ongoing", "PrepareAbort", start=LATER, partitions=("bank.ledger-3",))
    record = bank.coordinator.state(CURED, "CompleteAbort", CURED_PRODUCER, LATER + 5_000, "bank.ledger-3", start=LATER)
    found = above_info(bank.findings(LATER))
    assert {f.kind for f in found} == {"transition-invariant-broken"}
    assert all(at(f, bank.coordinator.log, record)[0] == "error" for f in found)


def test_state_epoch_regression(bank: Bank) -> None:
    coordinator = bank.coordinator
    coordinator.state(CURED, "Empty", (4, 1), LATER)
    record = coordinator.state(CURED, "Empty", (4, 0), LATER + 1_000)
    f = the_only(bank.findings(LATER), "state-epoch-regression")
    assert at(f, coordinator.log, record) == ("critical", 4, 0, CURED)
    assert (f.evidence["before"]["epoch"], f.evidence["after"]["epoch"]) == (1, 0)


def test_a_producer_id_with_two_owners(bank: Bank) -> None:
    record = bank.coordinator.state(CURED, "Empty", (5, 0), LATER)
    found = above_info(bank.findings(LATER))
    assert {f.kind for f in found} == {"producer-id-reused"}
    assert at(found[0], bank.coordinator.log, record) == ("critical", 5, 0, CURED)
    assert found[0].evidence["other_transactional_id"] == "bank-zombie"


def test_an_id_in_a_partition_that_does_not_own_it(bank: Bank) -> None:
    elsewhere = Coordinator(bank.lab.broker(), 0)
    elsewhere.state("bank-stranger-2", "Empty", (7, 0), LATER)
    elsewhere.save()
    f = the_only(bank.findings(LATER), "key-in-wrong-partition")
    assert (f.severity, f.topic, f.partition, f.offset) == ("error", "__transaction_state", 0, 0)
    assert (f.transactional_id, f.evidence["found"]) == ("bank-stranger-2", 0)
    assert f.evidence["expected"] == java_hash("bank-stranger-2") % 3 != 0


def java_hash(text: str) -> int:
    """abs(String.hashCode()) for ASCII."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return abs(value - (1 << 32) if value >= 1 << 31 else value)


@pytest.mark.parametrize("how", ["version", "key", "body"])
def test_a_record_that_coordinators_cannot_read(bank: Bank, how: str) -> None:
    if how == "version":
        record = bank.coordinator.state(CURED, "Empty", CURED_PRODUCER, LATER, version=9)
    elif how == "key":
        record = bank.coordinator.append(None, b"\0\0", LATER)
    else:
        record = bank.coordinator.append(b"\0\0\0\4bank", b"\0\0\0\0\0", LATER)
    f = the_only(bank.findings(LATER), "unreadable-transaction-record")
    assert (f.severity, f.topic, f.partition, f.offset) == ("error", "__transaction_state", 1, record["base_offset"])


def test_an_id_whose_transactions_are_aborted_again_and_again(bank: Bank) -> None:
    records = [
        record
        for k in range(25)
        for record in bank.write_states(
            "Ongoing",
            "PrepareAbort" if k % 4 == 0 else "PrepareCommit",
            "CompleteAbort" if k % 4 == 0 else "CompleteCommit",
            start=LATER + 10_000 * k,
            partitions=("bank.ledger-3",),
        )
    ]
    f = the_only(bank.findings(LATER), "transaction-abort-rate")
    assert (f.severity, f.transactional_id, f.last_offset) == ("warning", CURED, records[-1].last)
    assert (f.evidence["decided"], f.evidence["aborted"], f.evidence["by_coordinator"]) == (26, 8, 0)


def test_instances_that_share_an_id(bank: Bank) -> None:
    records = [bank.coordinator.state(CURED, "Empty", (4, e), LATER + 20_000 * e) for e in range(1, 13)]
    f = the_only(bank.findings(LATER), "epoch-bump-storm")
    assert (f.severity, f.transactional_id, f.offset) == ("warning", CURED, records[0]["base_offset"])


FLINKS = ("orders-1-0", "orders-1-3", f"Sink: orders-{'0f' * 16}-4")  # ids of pools of its two producers


def pooled(bank: Bank, name: str, states: tuple[str, ...]) -> list[Finding]:
    """Twelve transactions of an id, 20 s apart, before each of which its producer initialises."""
    bank.coordinator.state("orders-1-0", "Empty", (40, 0), LATER)
    epoch = 0
    for k in range(12):
        for state in ("Empty", *states):
            epoch += state in ("Empty", "PrepareAbort")
            partitions = (LEDGER,) if state in ("Ongoing", "PrepareAbort", "PrepareCommit") else ()
            at = LATER + 20_000 * k
            bank.coordinator.state(name, state, (41, epoch), at + 1000, *partitions, start=at)
    return bank.findings(LATER + 240_000)


@pytest.mark.parametrize("states", [(), ("Ongoing", "PrepareCommit", "CompleteCommit")], ids=["idle", "busy"])
@pytest.mark.parametrize("name", FLINKS)
def test_a_pool_of_flink_raises_its_epochs(bank: Bank, name: str, states: tuple[str, ...]) -> None:
    """As it does in each checkpoint, whether there was a record or not. (No data is here for the transactions.)"""
    assert [f.kind for f in pooled(bank, name, states) if f.kind == "epoch-bump-storm"] == []


@pytest.mark.parametrize("name", FLINKS)
def test_jobs_that_share_a_pool_of_flink(bank: Bank, name: str) -> None:
    """Each cuts off what the other one has open."""
    found = pooled(bank, name, ("Ongoing", "PrepareAbort", "CompleteAbort"))
    (f,) = (f for f in found if f.kind == "epoch-bump-storm")
    assert (f.severity, f.transactional_id) == ("warning", name)


@pytest.mark.parametrize("states", [(), ("Ongoing", "PrepareCommit", "CompleteCommit")], ids=["idle", "busy"])
def test_other_ids_whose_epochs_are_raised_again_and_again(bank: Bank, states: tuple[str, ...]) -> None:
    (f,) = (f for f in pooled(bank, "orders", states) if f.kind == "epoch-bump-storm")
    assert (f.severity, f.transactional_id) == ("warning", "orders")


def test_a_large_time_out_is_worth_a_line(bank: Bank) -> None:
    found = bank.findings()
    assert [(f.transactional_id, f.severity) for f in found if f.kind == "transaction-timeout-too-large"] == [
        (BUSY, "info")
    ]
