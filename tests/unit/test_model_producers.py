"""The kernel: finding producers, what a leader answers, what batches and markers leave behind."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.model import producers as kernel
from auditor.model import producers as model_producers
from auditor.model.policies import (
    DUPLICATE,
    ERRORS,
    INVALID_PRODUCER_EPOCH,
    INVALID_TXN_STATE,
    OK,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    POLICIES,
    TRANSACTION_COORDINATOR_FENCED,
    policy,
)
from auditor.model.producers import NONE, Producers
from tests.reference import pending_producers

LATER = policy("kip-360")
MAX = 2**31 - 1


def enter(p: Producers, producer_id: int) -> tuple[Producers, int]:
    row = kernel.insert(p, producer_id)
    if row != NONE:
        return p, row
    p = kernel.grow(p)
    return p, kernel.insert(p, producer_id)


def one(cached_batches: int = 5) -> tuple[Producers, int]:
    return enter(kernel.new_producers(4, cached_batches), 7)


def write(p: Producers, row: int, epoch: int, first: int, last: int, offset: int, transactional: bool = False) -> int:
    span = (last - first) % 2**31
    return model_producers.apply_data(p, row, epoch, last, offset, offset + span, 1000 + offset, transactional)


# --- the table ---


@given(st.lists(st.integers(0, 2**63 - 1) | st.integers(0, 40)))
def test_every_producer_has_one_row_and_keeps_it(producer_ids: list[int]) -> None:
    p = kernel.new_producers(1)
    rows: dict[int, int] = {}
    for producer_id in producer_ids:
        p, row = enter(p, producer_id)
        assert rows.setdefault(producer_id, row) == row
    assert p.meta[0] == len(rows)
    assert sorted(rows.values()) == list(range(len(rows)))
    assert {pid: kernel.find(p, pid) for pid in rows} == rows
    assert all(kernel.find(p, other) == NONE for other in range(41, 50) if other not in rows)


@given(st.dictionaries(st.integers(0, 2**63 - 1), st.booleans(), max_size=50))
def test_forgetting_keeps_the_others_whole_and_in_order(producers: dict[int, bool]) -> None:
    p = kernel.new_producers(2)
    for producer_id in producers:
        p, row = enter(p, producer_id)
        p.last_timestamp[row] = producer_id
        p.last_offset[row] = producer_id
    kernel.keep(p, np.array(list(producers.values()), np.bool_))
    kept = [producer_id for producer_id, wanted in producers.items() if wanted]
    assert p.producer_id[: len(kept)].tolist() == kept
    assert [kernel.find(p, pid) for pid in producers if not producers[pid]] == [NONE] * (len(producers) - len(kept))
    assert [kernel.find(p, pid) for pid in kept] == list(range(len(kept)))
    assert p.last_timestamp[: len(kept)].tolist() == kept
    assert p.last_offset[: len(kept), 4].tolist() == kept


def test_a_full_table_says_so_and_grows() -> None:
    p = kernel.new_producers(2)
    assert [kernel.insert(p, pid) for pid in (10, 11, 12, 11)] == [0, 1, NONE, 1]
    p = kernel.grow(p)
    assert [kernel.insert(p, pid) for pid in (12, 10)] == [2, 0]


def test_a_row_used_again_begins_empty() -> None:
    p, row = one()
    write(p, row, 3, 0, 4, 0, transactional=True)
    model_producers.apply_marker(p, row, 3, 8, 99)
    write(p, row, 3, 5, 5, 6, transactional=True)
    kernel.clear(p)
    assert kernel.find(p, 7) == NONE
    p, row = enter(p, 8)
    left = [int(column[row]) for column in (p.epoch, p.coordinator_epoch, p.last_timestamp, p.txn_first_offset)]
    assert left == [NONE] * 4
    assert p.cached[row] == 0


def test_many_sequential_producers_are_found_in_few_steps() -> None:
    p = kernel.new_producers(10_000)
    for producer_id in range(4000, 14_000):
        kernel.insert(p, producer_id)
    used = np.flatnonzero(p.slots >= 0)
    assert len(used) == 10_000
    longest = max(len(run) for run in np.split(used, np.flatnonzero(np.diff(used) != 1) + 1))
    assert longest < 1000


def test_sixteen_ids_given_out_together_have_their_slots_together() -> None:
    p = kernel.new_producers(10_000)
    lines = [
        {kernel.find_slot(p, producer_id) // 16 for producer_id in range(at, at + 16)} for at in range(0, 4096, 16)
    ]
    assert {len(line) for line in lines} == {1}
    assert len(set[int]().union(*lines)) > 100  # of 256, in 2048: not all in the same few


def test_many_are_found_at_once() -> None:
    p = kernel.new_producers(4)
    for producer_id in (7, 9):
        kernel.insert(p, producer_id)
    batches, rows = np.array([(9,), (8,), (7,), (9,)], [("producer_id", "i8")]), np.full(6, 77, np.int32)
    kernel.find_many(p, batches, rows)
    assert rows.tolist() == [1, NONE, 0, 1, 77, 77]


# --- the cache of batches ---


@pytest.mark.parametrize("width", [1, 5])
@given(sizes=st.lists(st.integers(1, 9), max_size=12))
def test_the_newest_batches_and_only_they_are_duplicates(width: int, sizes: list[int]) -> None:
    p, row = one(width)
    written: list[tuple[int, int, int]] = []
    sequence = MAX - 6
    for size in sizes:
        first, last = sequence, (sequence + size - 1) % 2**31
        written.append((first, last, 100 * len(written)))
        write(p, row, 2, *written[-1])
        sequence = (last + 1) % 2**31
    for age, (first, last, offset) in enumerate(reversed(written)):
        place = model_producers.find_duplicate(p, row, 2, first, last)
        assert (place != NONE) == (age < width)
        if place != NONE:
            assert p.last_offset[row, place] - p.offset_delta[row, place] == offset
            assert kernel.cached_slot(p, row, age) == place
            assert model_producers.find_duplicate(p, row, 1, first, last) == NONE
            assert model_producers.find_duplicate(p, row, 3, first, last) == NONE
            assert model_producers.find_duplicate(p, row, 2, first, last + 1) == NONE
            assert model_producers.find_duplicate(p, row, 2, first + 1, last) == NONE
    assert kernel.newest_sequence(p, row) == (written[-1][1] if written else NONE)
    newest = written[-1][2] + sizes[-1] - 1 if written else NONE
    assert kernel.newest_offset(p, row) == newest
    assert p.cached[row] == min(len(written), width)


def test_of_two_equal_batches_the_older_one_is_found() -> None:
    p, row = one()
    write(p, row, 0, 0, 4, 100)
    write(p, row, 0, 0, 4, 200)
    assert p.last_offset[row, model_producers.find_duplicate(p, row, 0, 0, 4)] == 104


def test_an_unknown_producer_has_no_duplicate_and_no_batches() -> None:
    p, _ = one()
    assert model_producers.find_duplicate(p, NONE, NONE, NONE, NONE) == NONE
    assert kernel.newest_sequence(p, NONE) == NONE
    assert kernel.newest_offset(p, NONE) == NONE


def test_nothing_is_newest_after_the_epoch_changed() -> None:
    p, row = one()
    write(p, row, 3, 0, 4, 10)
    model_producers.apply_marker(p, row, 4, 0, 50)
    assert (kernel.newest_sequence(p, row), kernel.newest_offset(p, row)) == (NONE, NONE)


# --- checks ---


def test_an_older_epoch_is_fenced() -> None:
    p, row = one()
    write(p, row, 5, 0, 0, 0)
    assert [model_producers.check_epoch(p, row, epoch) for epoch in (4, 5, 6)] == [INVALID_PRODUCER_EPOCH, OK, OK]
    assert model_producers.check_epoch(p, NONE, 0) == OK


def test_an_older_coordinator_is_fenced() -> None:
    p, row = one()
    model_producers.apply_marker(p, row, 0, 5, 1)
    answers = [model_producers.check_coordinator_epoch(p, row, epoch) for epoch in (4, 5, 6)]
    assert answers == [TRANSACTION_COORDINATOR_FENCED, OK, OK]
    assert model_producers.check_coordinator_epoch(p, NONE, 0) == OK


def test_the_row_below_the_first_is_no_producer() -> None:
    p, row = enter(kernel.new_producers(1), 7)
    write(p, row, 9, 0, 4, 0)
    model_producers.apply_marker(p, row, 9, 9, 1)
    assert model_producers.check_append(p, NONE, LATER, 0, 5, 5, False) == OK
    assert model_producers.check_sequence(p, NONE, policy("pre-kip-360"), 0, 0) == OK


def test_what_a_leader_answers_in_its_order() -> None:
    p, row = one()
    write(p, row, 3, 0, 4, 0)
    write(p, row, 3, 5, 9, 5)
    expected = {
        (3, 10, 12): OK,
        (3, 5, 9): DUPLICATE,
        (3, 0, 4): DUPLICATE,
        (3, 0, 9): OUT_OF_ORDER_SEQUENCE_NUMBER,  # merged
        (3, 5, 8): OUT_OF_ORDER_SEQUENCE_NUMBER,  # split
        (3, 11, 11): OUT_OF_ORDER_SEQUENCE_NUMBER,
        (2, 5, 9): INVALID_PRODUCER_EPOCH,  # an older epoch is no duplicate
        (2, 10, 12): INVALID_PRODUCER_EPOCH,
        (4, 0, 0): OK,
        (4, 10, 12): OUT_OF_ORDER_SEQUENCE_NUMBER,
    }
    assert {batch: model_producers.check_append(p, row, LATER, *batch, False) for batch in expected} == expected


def the_long_way(p: Producers, row: int, name: str, epoch: int, first: int, last: int) -> int:
    """What a leader answers, each check in turn."""
    if model_producers.find_duplicate(p, row, epoch, first, last) != NONE:
        return DUPLICATE
    answer = model_producers.check_epoch(p, row, epoch)
    return int(answer if answer != OK else model_producers.check_sequence(p, row, policy(name), epoch, first))


@given(
    st.sampled_from([1, 2, 5]),
    st.lists(st.tuples(st.sampled_from([0, 0, 0, 0, 0, 1]), st.integers(-4, 4), st.integers(1, 3)), max_size=14),
    st.sampled_from([0, 1, 7, MAX - 8, MAX]),
)
def test_a_batch_that_simply_goes_on_is_accepted_as_the_long_way_would(
    cached: int, steps: list[tuple[int, int, int]], start: int
) -> None:
    """Mostly the next sequence, else some numbers off, in a ring that turns."""
    p, row = one(cached)
    following, epoch, offset = start, 0, 0
    for bump, off, count in steps:
        epoch, first = epoch + bump, (following + (off if abs(off) > 2 else 0)) % (MAX + 1)
        last = (first + count - 1) % (MAX + 1)
        if model_producers.goes_on(p, row, epoch, first, last):
            assert {name: the_long_way(p, row, name, epoch, first, last) for name in POLICIES} == dict.fromkeys(
                POLICIES, OK
            )
        write(p, row, epoch, first, last, offset)
        following, offset = (last + 1) % (MAX + 1), offset + count
    ascends = bool(p.entries[row].ascending) and bool(steps) and following > 0
    assert bool(model_producers.goes_on(p, row, epoch, following, following)) == ascends


def test_a_marker_of_version_two_has_an_epoch_of_its_own() -> None:
    """ProducerAppendInfo.checkProducerEpoch of 4.3.1 (KIP-1228), read from its bytecode."""

    def answers(epoch: int) -> list[int]:
        return [int(model_producers.check_marker(p, row, epoch, 1, version)) for version in (0, 1, 2)]

    p, row = one()
    write(p, row, 3, 0, 4, 0, transactional=True)
    assert answers(2) == [INVALID_PRODUCER_EPOCH] * 3
    assert answers(3) == [OK, OK, INVALID_PRODUCER_EPOCH]  # late: of the transaction before
    assert answers(4) == [OK] * 3
    model_producers.apply_marker(p, row, 4, 1, 9)
    assert answers(4) == [OK] * 3  # sent once more, nothing is open
    write(p, row, 32_767, 0, 0, 9, transactional=True)
    assert answers(32_767) == [OK] * 3  # no epoch is left
    assert model_producers.check_marker(p, NONE, 0, 0, 2) == OK
    model_producers.apply_marker(p, row, 32_767, 5, 10)
    assert answers(32_767) == [TRANSACTION_COORDINATOR_FENCED] * 3


def test_sequences_go_on_over_a_marker_of_the_same_epoch_only() -> None:
    p, row = one()
    write(p, row, 3, 0, 4, 0, transactional=True)
    model_producers.apply_marker(p, row, 3, 0, 50)
    assert model_producers.check_sequence(p, row, LATER, 3, 5) == OK
    model_producers.apply_marker(p, row, 4, 0, 60)
    assert model_producers.check_sequence(p, row, LATER, 4, 5) == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert model_producers.check_sequence(p, row, LATER, 4, 0) == OK


# --- effects ---


def test_a_batch_of_the_same_epoch_adds_to_the_cache_and_another_clears_it() -> None:
    p, row = one()
    write(p, row, 3, 0, 4, 10)
    write(p, row, 3, 5, 5, 15)
    assert (p.epoch[row], p.cached[row], p.last_timestamp[row]) == (3, 2, 1015)
    write(p, row, 2, 0, 0, 16)  # a follower takes an older epoch as well
    assert (p.epoch[row], p.cached[row], kernel.newest_offset(p, row)) == (2, 1, 16)


def test_a_transaction_opens_with_the_first_batch_and_closes_with_the_marker() -> None:
    p, row = one()
    assert write(p, row, 0, 0, 0, 10) == OK
    assert p.txn_first_offset[row] == NONE
    assert write(p, row, 0, 1, 2, 11, transactional=True) == OK
    assert write(p, row, 0, 3, 3, 13, transactional=True) == OK
    assert p.txn_first_offset[row] == 11
    assert model_producers.apply_marker(p, row, 0, 6, 77) == 11
    assert (p.txn_first_offset[row], p.coordinator_epoch[row], p.last_timestamp[row]) == (NONE, 6, 77)
    assert model_producers.apply_marker(p, row, 0, 6, 78) == NONE


def test_a_transaction_may_open_at_offset_zero() -> None:
    p, row = one()
    write(p, row, 0, 0, 0, 0, transactional=True)
    assert p.txn_first_offset[row] == 0
    assert model_producers.apply_marker(p, row, 1, 0, 5) == 0


def test_plain_data_inside_the_own_transaction() -> None:
    p, row = one()
    write(p, row, 0, 0, 0, 10, transactional=True)
    assert write(p, row, 0, 1, 1, 11) == INVALID_TXN_STATE
    assert (p.txn_first_offset[row], kernel.newest_sequence(p, row)) == (10, 1)


# --- expiration ---


@pytest.mark.parametrize(("idle", "expected"), [(99, False), (100, True), (101, True)])
def test_a_producer_expires_when_idle_for_the_limit(idle: int, expected: bool) -> None:
    p, row = one()
    write(p, row, 0, 0, 0, 0)  # at 1000 ms
    assert model_producers.is_expired(p, row, LATER, 1000 + idle, 100) == expected
    write(p, row, 0, 1, 1, 0, transactional=True)
    assert not model_producers.is_expired(p, row, LATER, 1000 + idle, 100)


def test_whether_a_marker_keeps_its_producer() -> None:
    p, row = one()
    before = policy("pre-kip-360")
    model_producers.apply_marker(p, row, 0, 0, 5000)
    assert (model_producers.idle_since(p, row, LATER), model_producers.idle_since(p, row, before)) == (5000, -1)
    write(p, row, 0, 0, 0, 1)
    model_producers.apply_marker(p, row, 0, 0, 5000)
    assert (model_producers.idle_since(p, row, LATER), model_producers.idle_since(p, row, before)) == (5000, 1001)


# --- pending appends ---


def test_pending_state_begins_as_the_stored_one_without_batches() -> None:
    p, row = one()
    write(p, row, 3, 0, 4, 10, transactional=True)
    p.coordinator_epoch[row] = 6
    pending = kernel.new_producers(1)
    at = pending_producers.begin(p, pending, 7)
    known = (pending.epoch[at], pending.coordinator_epoch[at], pending.last_timestamp[at], pending.txn_first_offset[at])
    assert known == (3, 6, 1010, 10)
    assert pending.cached[at] == 0
    write(pending, at, 3, 5, 5, 15)
    assert pending_producers.begin(p, pending, 7) == at
    assert kernel.newest_sequence(pending, at) == 5
    p, other = enter(p, 9)
    write(p, other, 8, 0, 0, 20)
    assert pending_producers.begin(p, pending, 8) == pending_producers.begin(p, pending, 9) == NONE  # no room
    assert pending.epoch[at] == 3
    pending = kernel.grow(pending)
    unknown = pending_producers.begin(p, pending, 8)
    assert (pending.epoch[unknown], pending.txn_first_offset[unknown]) == (NONE, NONE)


def test_merging_adds_the_pending_batches_in_order() -> None:
    p, row = one()
    for number in range(4):
        write(p, row, 3, number, number, number)
    pending = kernel.new_producers(1)
    at = pending_producers.begin(p, pending, 7)
    write(pending, at, 3, 4, 4, 4)
    write(pending, at, 3, 5, 5, 5, transactional=True)
    pending_producers.merge(p, row, pending, at)
    offsets = [int(p.last_offset[row, kernel.cached_slot(p, row, age)]) for age in range(5)]
    assert offsets == [5, 4, 3, 2, 1]
    assert (p.txn_first_offset[row], p.last_timestamp[row]) == (5, 1005)


def test_merging_another_epoch_forgets_the_old_batches() -> None:
    p, row = one()
    write(p, row, 3, 0, 0, 0)
    pending = kernel.new_producers(1)
    at = pending_producers.begin(p, pending, 7)
    model_producers.apply_marker(pending, at, 4, 9, 55)
    pending_producers.merge(p, row, pending, at)
    assert (p.epoch[row], p.cached[row], p.coordinator_epoch[row], p.last_timestamp[row]) == (4, 0, 9, 55)


# --- policies ---


def test_policies_are_known_by_name() -> None:
    assert [name for name, known in POLICIES.items() if policy(name) is known] == list(POLICIES)
    with pytest.raises(KeyError, match="kip-360-text"):
        policy("kip-361")


def test_errors_carry_their_code_on_the_wire() -> None:
    assert ERRORS == {  # org.apache.kafka.common.protocol.Errors
        1: "OFFSET_OUT_OF_RANGE",
        45: "OUT_OF_ORDER_SEQUENCE_NUMBER",
        46: "DUPLICATE_SEQUENCE_NUMBER",
        47: "INVALID_PRODUCER_EPOCH",
        48: "INVALID_TXN_STATE",
        52: "TRANSACTION_COORDINATOR_FENCED",
        59: "UNKNOWN_PRODUCER_ID",
    }
