"""A partition over several appends: transactions, offsets, and verification. Pages: docs/model."""

from __future__ import annotations

import pytest

from auditor.model import producers as kernel
from auditor.model.policies import policy
from tests.reference.appends import CLIENT, COORDINATOR, REPLICATION, Batch, EmptyControl, Marker, Plain
from tests.reference.partition import Duplicate, Partition
from tests.reference.producer_state import DEFAULTS, Settings
from tests.reference.refusal import Refused
from tests.reference.transactions import Completed
from tests.reference.verification import Verification, Verifications

VERIFYING = Settings(transaction_verification=True)


def partition(name: str = "kip-360", settings: Settings = DEFAULTS, end: int = 0) -> Partition:
    return Partition(policy(name), settings, 0, end, end)


def data(pid: int, offset: int, first: int = 0, epoch: int = 0, count: int = 1, guard: object | None = None) -> Batch:
    """Transactional data."""
    return Batch(pid, epoch, first, first + count - 1, offset, offset + count - 1, 1000 + offset, True, guard)


def plain_data(pid: int, offset: int, first: int = 0, epoch: int = 0) -> Batch:
    """Data of an idempotent producer outside of transactions."""
    return data(pid, offset, first, epoch)._replace(transactional=False)


def marker(pid: int, offset: int, aborted: bool = False, epoch: int = 0, coordinator_epoch: int = 0) -> Marker:
    return Marker(pid, epoch, coordinator_epoch, offset, 1000 + offset, aborted)


def refused(name: str, log: Partition, *items: Batch | Marker | EmptyControl | Plain, origin: str = CLIENT) -> None:
    with pytest.raises(Refused, match=f"^{name}$"):
        log.append_to_log(items, origin)


def stored(log: Partition, pid: int) -> tuple[int, int, int]:
    """Epoch, newest sequence, transaction start of a producer."""
    row = kernel.find(log.producers, pid)
    p = log.producers
    return int(p.epoch[row]), int(kernel.newest_sequence(p, row)), int(p.txn_first_offset[row])


# --- one append ---


def test_an_append_is_applied_whole_or_not_at_all() -> None:
    log = partition()
    log.append_to_log([plain_data(1, 0)], CLIENT)
    refused("OUT_OF_ORDER_SEQUENCE_NUMBER", log, plain_data(1, 1, 1), plain_data(2, 2), plain_data(1, 3, 3))
    assert stored(log, 1) == (0, 0, -1)
    assert kernel.find(log.producers, 2) == -1
    assert (log.log_end, log.map_end) == (1, 1)
    log.append_to_log([plain_data(1, 1, 1), plain_data(2, 2), plain_data(1, 3, 2)], CLIENT)
    assert stored(log, 1) == (0, 2, -1)
    assert (log.log_end, log.map_end) == (4, 4)


def test_a_pending_batch_of_a_new_epoch_is_what_the_next_one_follows() -> None:
    log = partition()
    log.append_to_log([plain_data(1, 0, 0), plain_data(1, 1, 1)], CLIENT)
    refused("OUT_OF_ORDER_SEQUENCE_NUMBER", log, plain_data(1, 2, 0, epoch=1), plain_data(1, 3, 2, epoch=1))
    log.append_to_log([plain_data(1, 2, 0, epoch=1), plain_data(1, 3, 1, epoch=1)], CLIENT)
    assert stored(log, 1) == (1, 1, -1)


def test_a_pending_marker_of_a_new_epoch_hides_the_stored_sequences() -> None:
    log = partition()
    log.append_to_log([data(1, 0)], CLIENT)
    refused("OUT_OF_ORDER_SEQUENCE_NUMBER", log, marker(1, 1, epoch=1), data(1, 2, 1, epoch=1))
    log.append_to_log([marker(1, 1), data(1, 2, 1)], CLIENT)
    assert stored(log, 1) == (0, 1, 2)


def test_more_producers_in_one_append_than_pending_has_room_for() -> None:
    log = partition()
    log.append_to_log([data(pid, pid) for pid in range(30)], REPLICATION)
    assert sorted(log.transactions.ongoing.values()) == list(range(30))
    assert [stored(log, pid)[2] for pid in range(30)] == list(range(30))


def test_a_duplicate_ends_the_append_with_the_old_offsets() -> None:
    log = partition()
    log.append_to_log([data(1, 10, 0, count=5)], CLIENT)
    assert log.append_to_log([data(1, 15, 0, count=5)], CLIENT) == Duplicate(10, 14)
    assert log.log_end == 15
    log.append_to_log([data(1, 15, 0, count=5)], COORDINATOR)  # only clients' batches are looked up
    log.append_to_log([data(1, 20, 0, count=5)], REPLICATION)
    assert log.log_end == 25


def test_records_without_a_producer_only_move_the_end() -> None:
    log = partition()
    assert log.append_to_log([Plain(0, 9)], CLIENT) == []
    assert (log.log_end, log.map_end, log.producers.meta[0]) == (10, 10, 0)


def test_an_empty_control_batch_leaves_an_entry_without_epoch() -> None:
    log = partition()
    assert log.append_to_log([EmptyControl(1, 5, 3)], REPLICATION) == []
    assert stored(log, 1) == (-1, -1, -1)
    assert log.map_end == 4
    log.append_to_log([data(1, 4, 17, epoch=2)], CLIENT)  # as good as unknown


# --- origins ---


@pytest.mark.parametrize(("origin", "taken"), [(CLIENT, False), (COORDINATOR, False), (REPLICATION, True)])
def test_who_may_write_an_older_epoch(origin: str, taken: bool) -> None:
    log = partition()
    log.append_to_log([plain_data(1, 0, epoch=5)], CLIENT)
    if taken:
        log.append_to_log([plain_data(1, 1, epoch=4)], origin)
        log.append_to_log([marker(1, 2, epoch=3)], origin)
    else:
        refused("INVALID_PRODUCER_EPOCH", log, plain_data(1, 1, epoch=4), origin=origin)
        refused("INVALID_PRODUCER_EPOCH", log, marker(1, 1, epoch=4), origin=origin)
    assert stored(log, 1)[0] == (3 if taken else 5)


@pytest.mark.parametrize("name", ["pre-kip-360", "kip-360"])
def test_followers_check_markers_up_to_2_4_0(name: str) -> None:
    log = partition(name)
    log.append_to_log([marker(1, 0, epoch=5, coordinator_epoch=5)], COORDINATOR)
    old = (marker(1, 1, epoch=4, coordinator_epoch=5), marker(1, 2, epoch=5, coordinator_epoch=4))
    if name == "pre-kip-360":
        refused("INVALID_PRODUCER_EPOCH", log, old[0], origin=REPLICATION)
        refused("TRANSACTION_COORDINATOR_FENCED", log, old[1], origin=REPLICATION)
        log.append_to_log([plain_data(1, 1, epoch=4)], REPLICATION)  # data was never checked there
    else:
        log.append_to_log(old, REPLICATION)
        assert log.producers.coordinator_epoch[kernel.find(log.producers, 1)] == 4


@pytest.mark.parametrize("origin", [CLIENT, COORDINATOR])
def test_an_older_coordinator_is_fenced_where_a_leader_writes(origin: str) -> None:
    log = partition()
    log.append_to_log([data(1, 0)], CLIENT)
    log.append_to_log([marker(1, 1, coordinator_epoch=5)], COORDINATOR)
    refused("TRANSACTION_COORDINATOR_FENCED", log, marker(1, 2, coordinator_epoch=4), origin=origin)
    log.append_to_log([marker(1, 2, coordinator_epoch=5)], origin)


@pytest.mark.parametrize("origin", [CLIENT, COORDINATOR, REPLICATION])
def test_plain_data_inside_the_own_transaction_is_refused_for_all(origin: str) -> None:
    log = partition()
    log.append_to_log([data(1, 0)], CLIENT)
    refused("INVALID_TXN_STATE", log, plain_data(1, 1, 1), origin=origin)
    assert stored(log, 1) == (0, 0, 0)
    log.append_to_log([plain_data(2, 1)], origin)


@pytest.mark.parametrize("origin", [COORDINATOR, REPLICATION])
def test_only_clients_must_follow_sequences(origin: str) -> None:
    log = partition()
    log.append_to_log([plain_data(1, 0, 0)], CLIENT)
    refused("OUT_OF_ORDER_SEQUENCE_NUMBER", log, plain_data(1, 1, 7))
    log.append_to_log([plain_data(1, 1, 7)], origin)
    assert stored(log, 1)[1] == 7


def test_a_follower_takes_offsets_that_rise_from_the_end_on() -> None:
    log = partition()
    log.append_to_log([Plain(0, 4)], CLIENT)
    refused("UNEXPECTED_APPEND_OFFSET", log, plain_data(1, 4), origin=REPLICATION)
    refused("OFFSETS_OUT_OF_ORDER", log, plain_data(1, 6), plain_data(1, 6), origin=REPLICATION)
    log.append_to_log([plain_data(1, 5), plain_data(1, 6)], REPLICATION)
    assert log.log_end == 7


# --- transactions, LSO, index ---


def test_the_lso_waits_for_the_oldest_transaction_and_for_its_markers_replication() -> None:
    log = partition()
    log.append_to_log([data(1, 0)], CLIENT)
    log.append_to_log([data(2, 1)], CLIENT)
    log.append_to_log([marker(1, 2)], COORDINATOR)
    assert (log.first_unstable(), log.transactions.first_undecided(), log.last_stable_offset()) == (0, 1, 0)
    log.advance_high_watermark(2)
    assert (log.first_unstable(), log.last_stable_offset()) == (0, 0)  # the marker itself is at 2
    log.advance_high_watermark(3)
    assert (log.first_unstable(), log.last_stable_offset()) == (1, 1)
    log.append_to_log([marker(2, 3)], COORDINATOR)
    log.advance_high_watermark(4)
    assert (log.first_unstable(), log.transactions.first_undecided(), log.last_stable_offset()) == (None, None, 4)


def test_the_lso_is_never_above_the_high_watermark() -> None:
    log = partition()
    log.append_to_log([Plain(0, 9), data(1, 10)], CLIENT)
    log.advance_high_watermark(5)
    assert (log.first_unstable(), log.last_stable_offset()) == (10, 5)
    log.advance_high_watermark(99)
    assert (log.high_watermark, log.last_stable_offset()) == (11, 10)


def test_the_index_has_the_aborted_transactions_in_the_order_of_their_markers() -> None:
    log = partition()
    log.append_to_log([data(1, 0), data(2, 1), data(3, 2)], REPLICATION)
    assert log.append_to_log([marker(2, 3, aborted=True)], COORDINATOR) == [Completed(2, 1, 3, True, 0)]
    assert log.append_to_log([marker(1, 4)], COORDINATOR) == [Completed(1, 0, 4, False, 2)]
    log.append_to_log([marker(3, 5, aborted=True)], COORDINATOR)
    assert log.aborted == [Completed(2, 1, 3, True, 0), Completed(3, 2, 5, True, 6)]


def test_the_own_next_transaction_does_not_hold_the_indexed_offset_back() -> None:
    log = partition()
    log.append_to_log([data(1, 0), marker(1, 1, aborted=True), data(1, 2, 1), data(2, 3)], REPLICATION)
    assert log.aborted == [Completed(1, 0, 1, True, 3)]


@pytest.mark.parametrize(("name", "index"), [("kip-360", []), ("kip-360-text", [Completed(1, 7, 7, True, 8)])])
def test_a_marker_without_a_transaction(name: str, index: list[Completed]) -> None:
    log = partition(name)
    log.append_to_log([marker(1, 7, aborted=True)], COORDINATOR)
    assert log.aborted == index
    assert log.first_unstable() == (7 if index else None)
    log.advance_high_watermark(8)
    assert log.first_unstable() is None


def test_a_marker_of_a_transaction_that_is_not_there() -> None:
    log = partition()
    log.append_to_log([data(1, 0)], CLIENT)
    log.transactions.clear()
    refused("ILLEGAL_ARGUMENT", log, marker(1, 1), origin=COORDINATOR)


# --- verification ---


def test_transactional_data_needs_the_live_guard() -> None:
    log = partition("kip-890-p1", VERIFYING)
    refused("INVALID_TXN_STATE", log, data(1, 0))
    guard = log.verifications.start(1, 0, 0, 1000, False)
    other = log.verifications.start(2, 0, 0, 1000, False)
    refused("INVALID_TXN_STATE", log, data(1, 0))
    refused("INVALID_TXN_STATE", log, data(1, 0, guard=other))
    refused("INVALID_TXN_STATE", log, data(1, 0, guard=other), origin=COORDINATOR)
    log.append_to_log([plain_data(3, 0)], CLIENT)
    log.append_to_log([data(1, 1, guard=guard)], CLIENT)
    assert list(log.verifications.entries) == [2]
    log.append_to_log([data(1, 2, 1)], CLIENT)  # its transaction is open
    log.append_to_log([data(4, 3)], REPLICATION)


def test_a_guard_from_before_a_marker_is_of_no_use() -> None:
    log = partition("kip-890-p1", VERIFYING)
    old = log.verifications.start(1, 0, 0, 1000, False)
    log.append_to_log([marker(1, 0, aborted=True)], COORDINATOR)
    assert log.verifications.entries == {}
    log.verifications.start(1, 0, 0, 2000, False)
    refused("INVALID_TXN_STATE", log, data(1, 1, guard=old))


def test_a_guard_from_before_a_restart_is_of_no_use() -> None:
    log = partition("kip-890-p1", VERIFYING)
    old = log.verifications.start(1, 0, 0, 1000, False)
    log.restart()
    log.verifications.start(1, 0, 0, 2000, False)
    refused("INVALID_TXN_STATE", log, data(1, 0, guard=old))


def test_an_empty_control_batch_ends_a_verification_too() -> None:
    log = partition("kip-890-p1")
    log.verifications.start(1, 0, 0, 1000, False)
    log.append_to_log([EmptyControl(1, 0, 0)], REPLICATION)
    assert log.verifications.entries == {}


def test_without_verification_anything_goes() -> None:
    log = partition("kip-890-p1")
    log.append_to_log([data(1, 0, 0)], CLIENT)
    log.append_to_log([marker(1, 1)], COORDINATOR)
    log.append_to_log([data(1, 2, 1)], CLIENT)
    assert stored(log, 1) == (0, 1, 2)


@pytest.mark.parametrize(("name", "needed"), [("kip-890-p1", False), ("kip-890-p2", True)])
def test_an_open_transaction_of_an_older_epoch(name: str, needed: bool) -> None:
    log = partition(name, VERIFYING)
    log.append_to_log([data(1, 0, guard=log.verifications.start(1, 0, 0, 0, False))], CLIENT)
    assert log.has_open_transaction(1, 0)
    assert log.has_open_transaction(1, 1) != needed
    assert not log.has_open_transaction(2, 0)
    log.append_to_log([marker(1, 1)], COORDINATOR)
    assert not log.has_open_transaction(1, 0)


def test_a_batch_above_the_lowest_waiting_sequence_is_refused() -> None:
    log = partition("kip-890-p1")
    log.verifications.start(1, 5, 0, 1000, False)
    refused("OUT_OF_ORDER_SEQUENCE_NUMBER", log, plain_data(1, 0, 6))
    log.append_to_log([plain_data(1, 0, 5)], CLIENT)
    assert 1 in log.verifications.entries  # plain data does not end it


@pytest.mark.parametrize(
    ("name", "speaks_version_2", "first", "ok"),
    [
        ("kip-890-p2", True, 5, False),
        ("kip-890-p2", True, 0, True),
        ("kip-890-p2", False, 5, True),
        ("kip-890-p1", True, 5, True),
    ],
)
def test_version_2_clients_begin_at_zero(name: str, speaks_version_2: bool, first: int, ok: bool) -> None:
    log = partition(name, VERIFYING)
    guard = log.verifications.start(1, first, 0, 1000, speaks_version_2)
    if not ok:
        refused("OUT_OF_ORDER_SEQUENCE_NUMBER", log, data(1, 0, first, guard=guard))
        return
    log.append_to_log([data(1, 0, first, guard=guard)], CLIENT)
    log.append_to_log([marker(1, 1)], COORDINATOR)
    guard = log.verifications.start(1, first + 1, 0, 1000, speaks_version_2)
    log.append_to_log([data(1, 2, first + 1, guard=guard)], CLIENT)  # its batches are known now


def test_a_version_2_client_of_which_only_an_empty_control_batch_is_known_begins_at_zero() -> None:
    log = partition("kip-890-p2", VERIFYING)
    log.append_to_log([EmptyControl(1, 0, 0)], REPLICATION)
    guard = log.verifications.start(1, 5, 0, 1000, True)
    refused("OUT_OF_ORDER_SEQUENCE_NUMBER", log, data(1, 1, 5, guard=guard))


def test_the_lowest_sequence_of_the_highest_epoch_counts() -> None:
    waiting = Verifications()
    guards = {waiting.start(1, sequence, epoch, 50, False) for sequence, epoch in ((5, 1), (3, 1), (4, 1), (1, 0))}
    assert len(guards) == 1
    assert waiting.entries[1] == Verification(50, 3, 1, False, guards.pop())
    waiting.start(1, 9, 2, 60, False)
    assert (waiting.entries[1].lowest_sequence, waiting.entries[1].epoch, waiting.entries[1].started) == (9, 2, 50)


def test_verifications_expire_like_producers() -> None:
    log = partition("kip-890-p1", Settings(producer_id_expiration_ms=100))
    log.verifications.start(1, 0, 0, 1000, False)
    log.expire(1099)
    assert 1 in log.verifications.entries
    log.expire(1100)
    assert log.verifications.entries == {}
