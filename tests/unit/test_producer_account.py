"""What the one account of a producer says of batches that no leader takes, forced in: logs by hand, answers by Kafka's
rules (ProducerAppendInfo.checkSequence, the look-up of five batches), kinds by arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from auditor.connectors.codec.batches import FLAW_CRC
from auditor.connectors.codec.primitives import crc_of_change
from auditor.facts.events import AFTER_UNREADABLE, KNOWN_BELOW, EventKind, events_of
from auditor.facts.replica_facts import ReplicaFacts
from auditor.model.policies import DUPLICATE, INVALID_PRODUCER_EPOCH, OK, OUT_OF_ORDER_SEQUENCE_NUMBER
from auditor.replay.producers import explanations
from auditor.replay.producers.state import LATER, MAX_OLD_RUNS, PARAMS, new_replay, producer_row
from tests.made import APPEND_TIME, data, marker
from tests.unit.batch_histories import History, crc_sent_again, facts_of

GAP, OVERLAP, RESET, RESUMED = (
    EventKind.SEQUENCE_GAP,
    EventKind.SEQUENCE_OVERLAP,
    EventKind.SEQUENCE_RESET,
    EventKind.SEQUENCE_RESUMED,
)
BUMP, LOWER, FIRST = EventKind.BUMP_NONZERO, EventKind.EPOCH_REGRESSION, EventKind.FIRST_NONZERO
OUT = OUT_OF_ORDER_SEQUENCE_NUMBER
OF_PRODUCERS = {GAP, OVERLAP, RESET, RESUMED, BUMP, LOWER, FIRST, EventKind.MARKER_EPOCH_REGRESSION}
LAST = 2**31 - 1


def log(
    *batches: tuple[int, int] | tuple[int, int, int], log_start: int = 0, retries: dict[int, int] | None = None
) -> ReplicaFacts:
    """One producer's batches, each from a first sequence to a last one, perhaps with an epoch; ``retries``: those that
    have the bytes of an earlier one."""
    rows: list[dict[str, Any]] = []
    offset = 0
    for number, (first, last, *epoch) in enumerate(batches):
        row = data(offset, first, (last - first) % 2**31 + 1, producer_epoch=epoch[0] if epoch else 0)
        made = (retries or {}).get(number, number)
        rows.append(row | {"position": 100 * number, "crc": made, "max_timestamp": 1_700_000_000_000 + made})
        offset = row["last_offset"] + 1
    return facts_of(History(rows, log_start=log_start), checkpoint=False)


def said(facts: ReplicaFacts, *names: str) -> list[tuple[Any, ...]]:
    """Number of the batch and kind of each event on producers, and these columns."""
    return [
        (int(e["position"]) // 100, EventKind(int(e["kind"])), *(int(e[name]) for name in names))
        for e in facts.events
        if e["kind"] in OF_PRODUCERS
    ]


def test_behind_an_overlap_a_retry_is_a_duplicate_and_no_gap() -> None:
    facts = log((0, 6), (6, 8), (9, 10), (11, 12), (9, 10), (11, 12), (13, 14))
    assert said(facts, "answer", "expected_sequence") == [
        (1, OVERLAP, OUT, 7), (4, OVERLAP, DUPLICATE, 13), (5, OVERLAP, DUPLICATE, 11),
    ]  # fmt: skip
    stored = {int(e["base_offset"]): int(e["stored_base_offset"]) for e in facts.events}
    assert stored == {7: 0, 14: 10, 16: 12}


def test_what_left_the_cache_of_five_is_a_duplicate_still() -> None:
    facts = log((0, 6), (6, 8), *[(n, n + 1) for n in range(9, 30, 2)], (7, 8), (9, 10))
    assert said(facts, "answer") == [(1, OVERLAP, OUT), (13, OVERLAP, OUT), (14, OVERLAP, OK)]


def test_a_producer_goes_on_where_it_stood_before_a_repetition() -> None:
    facts = log((0, 9), (10, 19), (0, 4), (20, 29), (30, 39))
    assert said(facts, "answer", "expected_sequence") == [(2, RESET, OUT, 20), (3, GAP, OUT, 5)]
    facts = log((0, 9), (10, 19), (20, 29), (10, 14), (30, 39), (40, 49))
    assert said(facts, "answer", "expected_sequence") == [(3, OVERLAP, OUT, 30), (4, RESUMED, OUT, 15)]


def test_a_fenced_producers_batch_does_not_move_its_successor() -> None:
    facts = log((0, 9, 5), (10, 19, 4), (20, 29, 4), (10, 19, 5), (30, 39, 5))
    assert said(facts, "answer") == [
        (1, LOWER, INVALID_PRODUCER_EPOCH), (2, LOWER, OK), (3, RESUMED, OUT), (4, GAP, OUT),
    ]  # fmt: skip


def test_who_went_beyond_a_repetition_goes_on_behind_a_fenced_producers_batch() -> None:
    """The leader's state is of the older epoch: it refuses what is just the next number."""
    facts = log((0, 4, 1), (10, 14, 1), (4, 4, 1), (5, 19, 1), (0, 4, 0), (20, 24, 1), (25, 29, 1))
    assert said(facts, "answer")[3:] == [(4, LOWER, INVALID_PRODUCER_EPOCH), (5, RESUMED, OUT)]


def test_a_hole_that_is_filled_late_is_no_second_oddity() -> None:
    assert said(log((0, 9), (20, 29), (5, 9), (10, 19))) == [(1, GAP), (2, OVERLAP)]


def test_a_repetition_that_goes_beyond_what_was_stored_moves_the_producer() -> None:
    facts = log((0, 9), (5, 14), (15, 19), (12, 13), (20, 24))
    assert said(facts) == [(1, OVERLAP), (3, OVERLAP), (4, RESUMED)]


def test_a_batch_that_begins_before_what_was_stored_and_reaches_into_it_repeats_some() -> None:
    assert said(log((10, 14), (7, 11), (15, 19))) == [(0, FIRST), (1, OVERLAP), (2, RESUMED)]
    assert said(log((10, 14), (7, 9), (15, 19))) == [(0, FIRST), (1, GAP), (2, GAP)]


def test_the_ring_of_sequences_turns_without_an_event() -> None:
    assert said(log((LAST - 4, LAST), (0, 4), (5, 9)))[1:] == []
    assert said(log((LAST - 4, 1), (2, 4), (LAST, 0)))[1:] == [(2, OVERLAP)]


def test_an_epoch_that_is_new_begins_at_zero() -> None:
    assert said(log((0, 4, 0), (0, 4, 1), (5, 9, 1))) == []
    assert said(log((0, 4, 0), (5, 9, 1), (10, 14, 1)), "answer") == [(1, BUMP, OUT)]
    assert said(log((0, 4, 0), (5, 9, 1), (0, 4, 1)), "answer") == [(1, BUMP, OUT), (2, RESET, OUT)]


def test_a_batch_behind_its_own_fencing_marker_is_of_an_old_epoch_alone() -> None:
    rows = [
        data(0, 0, 5, transactional=True), marker(5, 1), data(6, 5, 5, transactional=True),
    ]  # fmt: skip
    facts = facts_of(History([row | {"position": 100 * n} for n, row in enumerate(rows)]), checkpoint=False)
    assert said(facts, "answer") == [(2, LOWER, INVALID_PRODUCER_EPOCH)]


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        ([(0, 4), (5, 9), (10, 14), (2, 3)], [(3, OVERLAP)]),  # stored below the log start
        ([(0, 4), (5, 9), (10, 14), (20, 24)], [(3, GAP)]),
        ([(0, 4), (7, 9), (10, 14), (1, 2)], [(3, OVERLAP)]),
    ],
)
def test_what_lies_below_the_log_start_was_stored_before(
    batches: list[tuple[int, int]], expected: list[tuple[int, EventKind]]
) -> None:
    assert [one for one in said(log(*batches, log_start=7)) if one[0] > 1] == expected


@pytest.mark.parametrize("between", [[], [(10, 14), (15, 19)]], ids=["where it stands", "ahead of where it stands"])
def test_who_comes_to_what_was_stored_ahead_repeats_it(between: list[tuple[int, int]]) -> None:
    """The leader, who goes by the newest batch, takes it: no batch that it remembers has just these sequences."""
    ahead = 20 if between else 10
    facts = log((ahead, ahead + 4), (5, 9), *between, (ahead, ahead + 2))
    assert said(facts, "answer") == [(0, FIRST, OK), (1, GAP, OUT), (2 + len(between), OVERLAP, OK)]


@pytest.mark.parametrize("retry", [True, False], ids=["the same bytes", "other bytes"])
@pytest.mark.parametrize("of", [0, 2], ids=["of the first batch", "of a later one"])
def test_from_zero_on_only_the_same_bytes_are_a_repetition(retry: bool, of: int) -> None:
    """``of``: the batch at 0 that comes again; behind a later one the first is forgotten."""
    batches = [(0, 4), (5, 9), (0, 4), (5, 9), (0, 4)] if of else [(0, 4), (5, 9), (0, 4)]
    last = len(batches) - 1
    facts = log(*batches, retries={last: of} if retry else {})
    resets = [(2, RESET, -1)] if of else []
    resumed = [e for e in said(facts) if e[1] == RESUMED]
    wanted = (last, OVERLAP, 5 * of) if retry else (last, RESET, -1)
    assert [e for e in said(facts, "stored_base_offset") if e[1] != RESUMED] == [*resets, wanted]
    assert resumed == ([(3, RESUMED)] if of else [])  # of the numbers before the reset the leader still has these


def test_all_that_goes_on_below_the_log_start_is_one_run() -> None:
    """More batches than runs are looked up in: the first of them was stored, not lost."""
    batches = [(5 * n, 5 * n + 4) for n in range(2 * MAX_OLD_RUNS)]
    first = len(batches) - 1
    assert [one for one in said(log(*batches, (2, 3), log_start=5 * first)) if one[0] > first] == [(first + 1, OVERLAP)]


def test_numbers_from_before_a_reset_below_the_log_start_are_no_repetition() -> None:
    """The leader has 5 to 9 among its newest batches and takes them for a retry; who numbers anew did not send one."""
    facts = log((0, 4), (5, 9), (0, 2), (3, 4), (5, 9), log_start=13)
    assert [one for one in said(facts, "answer") if one[0] > 3] == [(4, RESUMED, DUPLICATE)]


def test_that_a_producer_goes_on_is_compared_with_what_is_judged_alone() -> None:
    """20 to 24 lie below the log start: who read from there on has them once."""
    facts = log((0, 4), (20, 24), (5, 9), (10, 14), (10, 11), (15, 19), (20, 22), log_start=15)
    assert [one for one in said(facts, "answer") if one[0] > 3] == [(4, OVERLAP, OUT), (5, RESUMED, OUT)]


def test_who_has_no_earlier_runs_leaves_those_of_others_alone() -> None:
    """The only row of LATER is another producer's."""
    none = np.empty(0, np.int64)
    replay = new_replay(np.zeros(1, PARAMS), none, none)._replace(later=np.zeros(1, LATER))
    replay.runs["behind"][0] = 0
    row = producer_row(replay, 7, -1)
    explanations.begin_run(replay, row, -1, 0, 0, 5)
    explanations.begin_judging(replay, row)
    assert (replay.later["old_run"][0], replay.runs["behind"][0]) == (0, 0)
    assert (replay.live["run_start"][row], replay.live["run_length"][row]) == (0, 5)


@pytest.mark.parametrize("broken", [True, False])
def test_a_first_batch_behind_bytes_that_cannot_be_read_says_so(broken: bool) -> None:
    rows = [data(0, 0), data(1, 1, flaws=FLAW_CRC if broken else 0), data(2, 7, pid=2)]
    (event,) = facts_of(History([row | {"position": 100 * n} for n, row in enumerate(rows)]), checkpoint=False).events[
        -1:
    ]
    assert (EventKind(int(event["kind"])), bool(event["context"] & AFTER_UNREADABLE)) == (FIRST, broken)


@pytest.mark.parametrize("pid", [1, 2], ids=["its own batch", "another producer's"])
def test_a_first_batch_says_whether_its_producer_is_known_from_below_the_log_start(pid: int) -> None:
    """In a cleaned log, where nobody compares the two."""
    rows = [data(0, 0, 5, pid=pid), data(5, 9)]
    facts = facts_of(History([row | {"position": 100 * n} for n, row in enumerate(rows)], log_start=5), compacted=True)
    contexts = [bool(e["context"] & KNOWN_BELOW) for e in facts.events if e["kind"] == FIRST]
    assert contexts == [pid == 1]


@pytest.mark.parametrize(
    ("batches", "log_start", "expected"),
    [
        ([(15, 15), (10, 19), (15, 15), (16, 16)], 1, [(2, OVERLAP), (3, OVERLAP)]),
        ([(15, 15), (10, 19), (20, 20), (21, 29)], 1, []),
        ([(10, 19), (5, 6), (7, 7), (10, 19), (8, 9), (10, 12)], 12, [(3, OVERLAP), (4, RESUMED), (5, OVERLAP)]),
        ([(10, 19), (5, 6), (7, 7), (8, 9), (10, 12)], 12, []),  # stored below it alone
        ([(10, 19), (5, 6), (10, 19), (7, 9), (10, 12)], 12, [(2, OVERLAP), (3, RESUMED), (4, OVERLAP)]),
    ],
)
def test_what_is_repeated_from_below_the_log_start_stands_above_it(
    batches: list[tuple[int, int]], log_start: int, expected: list[tuple[int, EventKind]]
) -> None:
    facts = log(*batches, log_start=log_start)
    assert [one for one in said(facts) if one[0] > 1 and one[1] != FIRST] == expected


# The records of an epoch that come again under the next one (KIP-360): in a batch of 100 bytes, 43 follow the sequence.


T = 1_700_000_000_000


def again(*batches: tuple[int, int, int] | tuple[int, int, int, int], **given: Any) -> list[tuple[Any, ...]]:
    """Number and epoch of each batch that was stored before, and the offset at which.

    ``batches``: epoch, sequence, time behind T (ms), perhaps the number of the one that is sent again. Two records in
    each.
    """
    rows: list[dict[str, Any]] = []
    for number, (epoch, sequence, time, *of) in enumerate(batches):
        row = data(2 * number, sequence, 2, producer_epoch=epoch, max_timestamp=T + time, crc=1_000 + number, **given)
        if of:
            row["crc"] = crc_sent_again(rows[of[0]], epoch, sequence)
            change = rows[of[0]]["max_timestamp"] ^ row["max_timestamp"]
            row["crc"] ^= int(crc_of_change(np.int64(change), np.int64(100 - 43)))
        rows.append(row | {"position": 100 * number})
    facts = facts_of(History(rows), checkpoint=False)
    found = events_of(facts.events, EventKind.SENT_AGAIN)
    return [(e["position"] // 100, e["previous_epoch"], e["stored_base_offset"]) for e in found]


def test_a_batch_that_comes_again_under_the_next_epoch() -> None:
    assert again((0, 0, 0), (0, 2, 10), (1, 0, 10, 1), (1, 2, 20)) == [(2, 0, 2)]


def test_all_that_was_in_flight_comes_again() -> None:
    before = [(0, 2 * k, 10 * k) for k in range(7)]
    sent = [(1, 2 * k, 10 * (k + 2), k + 2) for k in range(5)]
    assert again(*before, *sent, (1, 10, 100), (1, 12, 110)) == [(7 + k, 0, 2 * (k + 2)) for k in range(5)]


def test_what_follows_is_compared_with_what_followed() -> None:
    assert again((0, 0, 0), (0, 2, 10), (0, 4, 20), (1, 0, 10, 1), (1, 2, 30), (1, 4, 20, 2)) == [(3, 0, 2)]


def test_an_epoch_in_which_nothing_arrived_changes_nothing() -> None:
    assert again((3, 0, 0), (3, 2, 10), (5, 0, 10, 1)) == [(2, 3, 2)]


def test_a_batch_beyond_the_cache_is_not_remembered() -> None:
    assert again(*[(0, 2 * k, 10 * k) for k in range(6)], (1, 0, 0, 0)) == []
    assert again(*[(0, 2 * k, 10 * k) for k in range(5)], (1, 0, 0, 0)) == [(5, 0, 0)]


def test_new_records_under_the_next_epoch_are_no_repetition() -> None:
    """Others, or the same at another time: the time is the client's."""
    assert again((0, 0, 0), (0, 2, 10), (1, 0, 10)) == []
    assert again((0, 0, 0), (0, 2, 10), (1, 0, 11, 1)) == []


def test_a_broker_stamps_them_anew() -> None:
    given = {"attributes": APPEND_TIME}
    days = 40 * 86_400_000
    assert again((0, 0, 0), (0, 2, 10), (1, 0, days, 1), **given) == [(2, 0, 2)]


def test_a_producer_that_writes_equal_batches_anyway() -> None:
    """The third has the bytes of the second, but for its sequence."""
    assert again((0, 0, 0), (0, 2, 10), (0, 4, 10, 1), (1, 0, 10, 1)) == []


def test_transactions_begin_with_what_an_aborted_one_had() -> None:
    assert again((0, 0, 0), (0, 2, 10), (1, 0, 10, 1), transactional=True) == []
