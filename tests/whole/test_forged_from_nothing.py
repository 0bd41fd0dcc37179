"""Incidents and their healthy twins in directories made from nothing, where every offset and time is the test's own."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from auditor.rules.seen.view import Finding
from tests import bare_broker, segments
from tests.audited import above_info, audit_folder
from tests.bare_broker import BEGAN, data, end, finish
from tests.coordinator_records import Coordinator
from tests.forge import Batch, Forged, Producer, marker, reported

LOG, SECOND, HOUR = "a-0", 1_000, 3_600_000
FOREVER = 2_147_483_647  # the time-out of two-phase commit


def audited(root: Path, after: int = HOUR) -> list[Finding]:
    return audit_folder(root, BEGAN + after)


def rules(found: list[Finding]) -> list[tuple[str, str]]:
    return sorted((f.kind, f.severity) for f in above_info(found))


# The log start


@pytest.mark.parametrize("first", [24, 27], ids=["as the snapshot has it", "another batch below the log start"])
def test_an_aborted_transaction_whose_head_retention_took_is_indexed_rightly(tmp_path: Path, first: int) -> None:
    """The snapshot at the log start has it open since then; the broker's entry begins there (ProducerAppendInfo)."""
    path = bare_broker.broker(tmp_path, LOG, start=30)
    log, states = Forged(path, LOG), Coordinator(path, 0)
    log.snapshots[30] = [Producer(100, 0, 29, 29, 2, BEGAN - 5 * SECOND, -1, first)]
    states.state("tx", "Ongoing", (100, 0), BEGAN - 6 * SECOND, LOG, start=BEGAN - 6 * SECOND)
    batch = data(log, 100, 30, BEGAN, transactional=True)
    states.state("tx", "PrepareAbort", (100, 0), BEGAN + SECOND, LOG, start=BEGAN - 6 * SECOND)
    end(log, batch, False, BEGAN + SECOND + 2)
    log.aborted = [(100, first, log.last["base_offset"])]
    states.state("tx", "CompleteAbort", (100, 0), BEGAN + SECOND + 9, start=BEGAN - 6 * SECOND)
    finish(log, states)
    assert rules(audited(tmp_path)) == []


@pytest.mark.parametrize("same", [True, False], ids=["the same bytes", "other records"])
def test_a_retry_of_what_was_deleted_is_stored_twice(tmp_path: Path, same: bool) -> None:
    """KIP-360's first problem: records deleted, the producer unknown, and the write before was there after all."""
    path = bare_broker.broker(tmp_path, LOG)
    log = Forged(path, LOG)
    first = data(log, 7, 0, BEGAN)
    data(log, 7, 3, BEGAN + SECOND)
    again = log.next(first) if same else data(log, 7, 0, BEGAN + 2 * SECOND)
    log.checkpoint("log-start-offset-checkpoint", again["base_offset"])
    finish(log)
    found = [("duplicate-sequence-range", "error", again["base_offset"], again.last)] if same else []
    assert list(reported(audited(tmp_path))) == found


@pytest.mark.parametrize("snapshot", [True, False], ids=["known by the snapshot there", "known by the batch below"])
@pytest.mark.parametrize(("commit", "expected"), [
    (True, ("committed-transaction-hole", "critical")), (False, ("sequence-gap", "error"))])  # fmt: skip
def test_records_missing_at_the_log_start_inside_a_transaction(
    tmp_path: Path, snapshot: bool, commit: bool, expected: tuple[str, str]
) -> None:
    path = bare_broker.broker(tmp_path, LOG, start=3 if snapshot else 0)
    log, states = Forged(path, LOG), Coordinator(path, 0)
    states.state("tx", "Ongoing", (100, 0), BEGAN, LOG, start=BEGAN)
    if snapshot:
        log.snapshots[3] = [Producer(100, 0, 2, 2, 2, BEGAN + 12, -1, 0)]
    else:
        data(log, 100, 0, BEGAN + 10, transactional=True)
        log.checkpoint("log-start-offset-checkpoint", 3)
    batch = data(log, 100, 9, BEGAN + 20, transactional=True)
    decided = "Commit" if commit else "Abort"
    states.state("tx", f"Prepare{decided}", (100, 0), BEGAN + SECOND, LOG, start=BEGAN)
    end(log, batch, commit, BEGAN + SECOND + 4)
    log.aborted = [] if commit else [(100, 0, log.last["base_offset"])]
    states.state("tx", f"Complete{decided}", (100, 0), BEGAN + SECOND + 9, start=BEGAN)
    finish(log, states)
    assert rules(audited(tmp_path)) == [expected]


@pytest.mark.parametrize(("commit", "severity"), [(True, "critical"), (False, "error")])
def test_records_missing_between_two_transactions_are_no_hole_of_the_second(
    tmp_path: Path, commit: bool, severity: str
) -> None:
    """The first was open at the log start, and ended before the batch that does not go on: they may have been its, and
    then they were acknowledged if it was committed."""
    decided = "Commit" if commit else "Abort"
    path = bare_broker.broker(tmp_path, LOG, start=3)
    log, states = Forged(path, LOG), Coordinator(path, 0)
    log.snapshots[3] = [Producer(100, 0, 2, 2, 2, BEGAN + 12, -1, 0)]
    like = Batch(segments.simple(3, 3, producer_id=100, epoch=0, sequence=3, base_time=BEGAN, attributes=0x10))
    log.append(marker(like, commit, base_offset=3, time=BEGAN + SECOND))
    log.aborted = [] if commit else [(100, 0, 3)]
    states.state("tx", f"Prepare{decided}", (100, 0), BEGAN + SECOND - 5, LOG, start=BEGAN)
    states.state("tx", f"Complete{decided}", (100, 0), BEGAN + SECOND + 9, start=BEGAN)
    states.state("tx", "Ongoing", (100, 0), BEGAN + 2 * SECOND, LOG, start=BEGAN + 2 * SECOND)
    batch = data(log, 100, 9, BEGAN + 2 * SECOND + 5, transactional=True)
    states.state("tx", "PrepareCommit", (100, 0), BEGAN + 3 * SECOND, LOG, start=BEGAN + 2 * SECOND)
    end(log, batch, True, BEGAN + 3 * SECOND + 4)
    states.state("tx", "CompleteCommit", (100, 0), BEGAN + 3 * SECOND + 9, start=BEGAN + 2 * SECOND)
    finish(log, states)
    assert rules(audited(tmp_path)) == [("sequence-gap", severity)]


@pytest.mark.parametrize(("at", "known", "severities"), [
    (30, (), ["warning"]), (30, (100,), []), (27, (), ["info"]), (None, (), ["info"])])  # fmt: skip
def test_a_snapshot_that_does_not_know_the_producer_outweighs_the_log_start(
    tmp_path: Path, at: int | None, known: tuple[int, ...], severities: list[str]
) -> None:
    """Its first batch is the first of all, at the log start 30. What came between a snapshot at 27 and there is gone;
    where there is none the broker may have known it."""
    path = bare_broker.broker(tmp_path, LOG, start=30)
    log = Forged(path, LOG)
    if at is not None:
        log.snapshots[at] = [Producer(7, 0, 5, 20, 2, BEGAN - SECOND, -1, -1)]
        log.snapshots[at] += [Producer(k, 0, 29, 29, 2, BEGAN - SECOND, -1, -1) for k in known]
    batch = data(log, 100, 30, BEGAN)
    finish(log)
    found = [f for f in audited(tmp_path) if f.kind == "unknown-producer-first-sequence"]
    assert [(f.severity, f.offset) for f in found] == [(s, batch["base_offset"]) for s in severities]


Turn = tuple[int, bool | None]  # a transaction of a producer: records before it that are not there, and its outcome
HOLES: dict[str, tuple[list[Turn], list[tuple[str, str]]]] = {
    "nothing is missing": ([(0, True), (0, True)], []),
    "between two that were committed": ([(0, True), (4, True)], [("sequence-gap", "critical")]),
    "perhaps the tail of one that was aborted": ([(0, False), (4, True)], [("sequence-gap", "error")]),
    "before one that was aborted": ([(0, True), (4, False)], [("sequence-gap", "error")]),
    "behind one of which the marker alone is left": ([(0, True), (0, None), (4, True)], [("sequence-gap", "critical")]),
}


@pytest.mark.parametrize("kind", HOLES)
def test_a_hole_of_sequences_between_two_transactions(tmp_path: Path, kind: str) -> None:
    """Versions 0 and 1, where a producer numbers on from one transaction to the next. None: committed, and lost but for
    its marker."""
    turns, expected = HOLES[kind]
    path = bare_broker.broker(tmp_path, LOG)
    log, states = Forged(path, LOG), Coordinator(path, 0)
    sequence = 0
    for number, (lost, outcome) in enumerate(turns):
        begun, decided = BEGAN + number * SECOND, "Abort" if outcome is False else "Commit"
        sequence += lost
        states.state("tx", "Ongoing", (100, 0), begun, LOG, start=begun)
        if outcome is None:
            log.append(marker(log.data()[-1], True, base_offset=log.end, time=begun + 30))
        states.state("tx", f"Prepare{decided}", (100, 0), begun + 20, LOG, start=begun)
        if outcome is not None:
            end(log, data(log, 100, sequence, begun + 10, transactional=True), outcome, begun + 30)
            sequence += 3
        states.state("tx", f"Complete{decided}", (100, 0), begun + 40, start=begun)
    finish(log, states)
    assert rules(audited(tmp_path)) == expected


# A new leader that has written nothing yet


@pytest.mark.parametrize("took_over", [True, False])
def test_what_the_old_leader_has_beyond_the_new_ones_first_offset_is_lost(tmp_path: Path, took_over: bool) -> None:
    """A replica that becomes leader notes the epoch at its log end (KIP-101); a follower that lags notes nothing."""
    old, new = (Forged(bare_broker.broker(tmp_path, LOG, number=number), LOG) for number in (1, 2))
    for number in range(5):
        for log in (old, new):
            data(log, 7, 3 * number, BEGAN + number * SECOND)
    tail = data(old, 7, 15, BEGAN + 9 * SECOND)
    finish(old, new)
    old.checkpoint("replication-offset-checkpoint", 15)
    if took_over:
        (new.folder / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 15\n")
    found = above_info(audited(tmp_path))
    assert [(f.kind, f.severity, f.broker_id, f.offset, f.last_offset) for f in found] == (
        [("replica-divergence", "critical", 1, 15, tail.last)] if took_over else []
    )
    assert not found or found[0].evidence["lost"]["lies_on"]["broker_id"] == 1


# Late data in the next transaction


def transaction(log: Forged, states: Coordinator, sequence: int, begun: int, ahead: int) -> Batch:
    """One of two seconds; the clock of the partition's leader, which stamps data and marker, is ``ahead``."""
    states.state("tx", "Ongoing", (100, 0), begun, LOG, start=begun)
    batch = written(log, sequence, begun + 100 + ahead)
    states.state("tx", "PrepareCommit", (100, 0), begun + 2 * SECOND, LOG, start=begun)
    end(log, batch, True, begun + 2 * SECOND + 5 + ahead)
    states.state("tx", "CompleteCommit", (100, 0), begun + 2 * SECOND + 30, start=begun)
    return batch


def written(log: Forged, sequence: int, time: int) -> Batch:
    """Stamped by the broker (LogAppendTime)."""
    return data(log, 100, sequence, time, attributes=0x10 | 0x08, max_time=time)


@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize("ahead", [-5 * SECOND, 0, 9 * SECOND])
def test_a_late_write_is_known_by_two_brokers_clocks(tmp_path: Path, late: bool, ahead: int) -> None:
    """The coordinator is another broker than the partition's leader; markers show how far their clocks are apart."""
    leader, coordinator = (bare_broker.broker(tmp_path, LOG, number=number) for number in (1, 2))
    for folder in (leader / "__transaction_state-0", coordinator / LOG):
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
    log, states = Forged(leader, LOG), Coordinator(coordinator, 0)
    for number in range(3):
        transaction(log, states, 3 * number, BEGAN + number * 100 * SECOND, ahead)
    foreign = written(log, 9, BEGAN + 205 * SECOND + ahead) if late else None
    transaction(log, states, 12 if late else 9, BEGAN + 210 * SECOND, ahead)
    finish(log, states)
    found = above_info(audited(tmp_path))
    assert [(f.kind, f.severity, f.offset) for f in found] == (
        [("transactions-merged-under-one-marker", "critical", foreign["base_offset"])] if foreign else []
    )


# Two-phase commit, and time-outs


@pytest.mark.parametrize(("minutes", "severity"), [(20, None), (50, None), (120, "critical")])
def test_a_partition_is_blocked_whatever_time_out_its_client_asked_for(
    tmp_path: Path, minutes: int, severity: str | None
) -> None:
    path = bare_broker.broker(tmp_path, LOG)
    log, states = Forged(path, LOG), Coordinator(path, 0)
    states.state("tx", "Ongoing", (100, 0), BEGAN, LOG, start=BEGAN, timeout=FOREVER)
    data(log, 100, 0, BEGAN + 50, transactional=True)
    data(log, 7, 0, BEGAN + minutes * 60 * SECOND)
    finish(log, states)
    assert rules(audited(tmp_path, minutes * 60 * SECOND)) == ([("lso-stuck", severity)] if severity else [])


@pytest.mark.parametrize(("timeout", "named"), [(10_000, False), (60_000, False), (60_001, True), (900_000, True)])
def test_time_outs_above_the_clients_default_are_worth_a_line(tmp_path: Path, timeout: int, named: bool) -> None:
    path = bare_broker.broker(tmp_path, LOG)
    states = Coordinator(path, 0)
    states.state("tx", "Empty", (100, 0), BEGAN, timeout=timeout)
    finish(states)
    found = audited(tmp_path)
    assert rules(found) == []
    assert [f.severity for f in found if f.kind == "transaction-timeout-too-large"] == ["info"] * named


def test_many_ids_with_one_timeout_are_one_information(tmp_path: Path) -> None:
    path = bare_broker.broker(tmp_path, LOG)
    states = Coordinator(path, 0)
    for number in range(12):
        states.state(f"app-{number}", "Empty", (100 + number, 0), BEGAN, timeout=900_000)
    finish(states)
    (found,) = (f for f in audited(tmp_path) if f.kind == "transaction-timeout-too-large")
    assert (found.severity, found.evidence["count"], len(found.evidence["transactional_ids"])) == ("info", 12, 12)


# One cause, one finding


def test_the_coordinators_own_marker_behind_an_operators_of_a_higher_epoch(tmp_path: Path) -> None:
    path = bare_broker.broker(tmp_path, LOG)
    log, states = Forged(path, LOG), Coordinator(path, 0)
    states.state("tx", "Ongoing", (100, 0), BEGAN, LOG, start=BEGAN)
    batch = data(log, 100, 0, BEGAN + 10, transactional=True)
    states.state("tx", "PrepareCommit", (100, 0), BEGAN + SECOND, LOG, start=BEGAN)
    by_hand = end(log, batch, False, BEGAN + 40 * SECOND).set(epoch=1)
    end(log, batch, True, BEGAN + 41 * SECOND)
    states.state("tx", "CompleteCommit", (100, 0), BEGAN + 41 * SECOND + 9, start=BEGAN)
    finish(log, states)
    (f,) = above_info(audited(tmp_path))
    assert (f.kind, f.severity, f.offset) == ("split-decision", "critical", by_hand["base_offset"])
    assert "epoch-regression" in {also["rule"] for also in f.evidence["also"]}


@pytest.mark.parametrize("length", [49, 60])
def test_a_last_batch_whose_length_is_too_small(tmp_path: Path, length: int) -> None:
    """What is left of its bytes behind it is the same damage as its checksum, which no other length makes right."""
    log = Forged(bare_broker.broker(tmp_path, LOG), LOG)
    for number in range(4):
        last = data(log, 7, 3 * number, BEGAN + number * SECOND)
    finish(log)
    file = log.file(0, "log")
    content = bytearray(file.read_bytes())
    struct.pack_into(">i", content, len(content) - len(last.data) + 8, length)
    content[-3] ^= 4
    file.write_bytes(bytes(content))
    (f,) = above_info(audited(tmp_path))
    assert (f.kind, f.severity, f.offset) == ("batch-crc-mismatch", "critical", last["base_offset"])
    assert "torn-tail" in {also["rule"] for also in f.evidence["also"]}
