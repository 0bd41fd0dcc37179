"""The account of one id: every form that an append which failed leaves behind, and what none can have left.

Source: TransactionStateManager.appendTransactionToLog, TransactionMarkerChannelManager.tryAppendToLog,
TransactionCoordinator.endTransaction and TransactionMetadata of 4.3.1; which forms these give was worked out by hand.
"""

from __future__ import annotations

import pytest

from auditor.model.transaction_states import (
    MOST_STATES,
    CachedTransaction,
    IdAccount,
    TransactionState,
    TransactionValue,
    after_failure,
    held_before,
    step_problem,
)

S = TransactionState
TWO = frozenset(("a-0", "a-1"))
ONE = frozenset(("a-1",))
IDLE = TransactionValue(7, 3, 1000, S.COMPLETE_COMMIT, start_ts=50, last_update_ts=90)
OPEN = TransactionValue(7, 3, 1000, S.ONGOING, TWO, 100, 100)
LATER = OPEN._replace(partitions=ONE, start_ts=150, last_update_ts=150)  # begun anew
COMMIT = OPEN._replace(state=S.PREPARE_COMMIT, last_update_ts=200)
ABORT = OPEN._replace(state=S.PREPARE_ABORT, last_update_ts=200)
FENCE = ABORT._replace(producer_epoch=4)
COMMITTED = COMMIT._replace(state=S.COMPLETE_COMMIT, partitions=frozenset(), last_update_ts=300)
ABORTED = COMMITTED._replace(state=S.COMPLETE_ABORT)
RAISED = TransactionValue(7, 4, 1000, S.EMPTY, last_update_ts=400)
COMMIT_2 = COMMIT._replace(producer_epoch=4, client_tv=2)
ABORT_2 = ABORT._replace(producer_epoch=4, client_tv=2)
FENCE_2 = ABORT._replace(producer_epoch=5, client_tv=2)
Values = list[TransactionValue | None]


def again(value: TransactionValue) -> TransactionValue:
    """The same, a second later."""
    return value._replace(last_update_ts=value.last_update_ts + 1000)


def told(values: Values, epochs: list[int] | None = None) -> list[tuple[int, list[str]]]:
    """What the account says of every record behind the first one."""
    under = epochs or [5] * len(values)
    account = IdAccount(values[0], under[0], known=True)
    judged = [account.take(value, epoch) for value, epoch in zip(values[1:], under[1:], strict=True)]
    return [(judgement.failed, judgement.problems) for judgement in judged]


def failed(values: Values) -> list[int]:
    """How many failed before each record, all of which may follow."""
    judged = told(values)
    assert [problems for _, problems in judged] == [[]] * len(judged)
    return [count for count, _ in judged]


@pytest.mark.parametrize(
    ("values", "counts"),
    [
        ([IDLE, OPEN, COMMIT, again(COMMIT), COMMITTED], [0, 0, 1, 0]),
        ([IDLE, OPEN, COMMIT, again(COMMIT), again(COMMIT), COMMITTED], [0, 0, 1, 2, 0]),
        ([IDLE, OPEN, ABORT, again(ABORT), ABORTED], [0, 0, 1, 0]),
        ([IDLE, OPEN, COMMIT, COMMITTED, COMMITTED], [0, 0, 0, 1]),
        ([IDLE, OPEN, COMMIT, COMMITTED, COMMITTED, COMMITTED, RAISED], [0, 0, 0, 1, 2, 0]),
        ([IDLE, OPEN, LATER, LATER._replace(state=S.PREPARE_COMMIT)], [0, 1, 0]),
        ([IDLE, OPEN, again(LATER)._replace(partitions=TWO, start_ts=1150)], [0, 1]),
        ([IDLE, OPEN, RAISED], [0, 1]),
        ([IDLE, RAISED, OPEN, COMMIT], [0, 1, 0]),
        ([IDLE, OPEN, COMMIT, ABORT, ABORTED], [0, 0, 1, 0]),
        ([IDLE, OPEN, ABORT, COMMIT, COMMITTED], [0, 0, 1, 0]),
        ([IDLE, OPEN, COMMIT, FENCE, ABORTED._replace(producer_epoch=4)], [0, 0, 1, 0]),
        ([IDLE, OPEN, FENCE, again(FENCE), ABORTED._replace(producer_epoch=4), RAISED], [0, 0, 1, 0, 0]),
        ([IDLE, OPEN, COMMIT, again(OPEN)._replace(partitions=TWO | {"b-0"})], [0, 0, 1]),
        ([IDLE, OPEN, None], [0, 1]),
        ([IDLE, None, OPEN], [0, 1]),
        ([IDLE, None, None, RAISED], [0, 0, 2]),
        ([IDLE, None, RAISED._replace(producer_id=8, producer_epoch=0)], [0, 0]),
    ],
)
def test_what_the_append_of_a_record_that_failed_leaves(values: Values, counts: list[int]) -> None:
    assert failed(values) == counts


@pytest.mark.parametrize(
    ("values", "counts"),
    [
        ([IDLE, OPEN, COMMIT_2, again(COMMIT_2), COMMITTED._replace(producer_epoch=4, client_tv=2)], [0, 0, 1, 0]),
        ([IDLE, OPEN, ABORT_2, again(ABORT_2), ABORTED._replace(producer_epoch=4, client_tv=2)], [0, 0, 1, 0]),
        ([IDLE, OPEN, FENCE_2, again(FENCE_2), ABORTED._replace(producer_epoch=5, client_tv=2)], [0, 0, 1, 0]),
        ([IDLE, OPEN, COMMIT_2, ABORT_2], [0, 0, 1]),
        ([IDLE, OPEN, COMMIT_2, FENCE_2, again(FENCE_2)], [0, 0, 1, 2]),
        # the abort of a transaction that was never begun: each attempt has a start of its own
        ([IDLE, ABORT_2._replace(partitions=frozenset(), start_ts=400),
          ABORT_2._replace(partitions=frozenset(), start_ts=500)], [0, 1]),
    ],
)  # fmt: skip
def test_what_it_leaves_under_version_2(values: Values, counts: list[int]) -> None:
    """A client's decision raises the epoch in its record alone; a fence before 4.0 in memory, and in its record too."""
    assert failed(values) == counts


def test_exhausted_epochs() -> None:
    """32767 fences and ends; the producer id that is taken over with it is another one each time."""
    last = [v._replace(producer_epoch=32766) for v in (IDLE, OPEN)]
    fence, commit = ABORT._replace(producer_epoch=32767), COMMIT._replace(producer_epoch=32767, client_tv=2)
    over = COMMITTED._replace(producer_id=8, producer_epoch=0, client_tv=2)
    assert failed([*last, fence, again(fence), ABORTED._replace(producer_epoch=32767)]) == [0, 0, 1, 0]
    assert failed([*last, commit, again(commit), over, over]) == [0, 0, 1, 0, 1]
    fence_2 = commit._replace(state=S.PREPARE_ABORT)
    assert failed([*last, fence_2, again(fence_2), commit, over]) == [0, 0, 1, 2, 0]
    rotated = RAISED._replace(producer_id=9, producer_epoch=0)
    assert failed([last[0], rotated, last[1]]) == [0, 1]


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ([IDLE, OPEN, FENCE, again(COMMIT)], "illegal_state"),  # the epoch was raised before the append
        ([IDLE, OPEN, FENCE, again(ABORT)], "illegal_state"),
        ([IDLE, OPEN, FENCE, again(OPEN)], "illegal_state"),
        ([IDLE, OPEN, FENCE, again(OPEN)._replace(producer_epoch=4)], "illegal_state"),  # which nobody was told
        ([IDLE, OPEN, FENCE, COMMIT._replace(producer_epoch=4)], "illegal_state"),
        ([IDLE, OPEN, FENCE, FENCE._replace(producer_epoch=5)], "illegal_state"),  # nor is it raised again
        ([IDLE, OPEN, FENCE_2, COMMIT_2], "illegal_state"),
        ([IDLE, OPEN, COMMIT, COMMITTED, again(COMMIT)], "illegal_state"),  # Complete behind it: it had not failed
        ([IDLE, OPEN, COMMIT, COMMITTED, ABORT], "illegal_state"),
        ([IDLE, OPEN, COMMIT, COMMITTED, ABORTED], "illegal_state"),
        ([IDLE, OPEN, COMMIT, ABORTED], "illegal_state"),
        ([IDLE, OPEN, COMMIT, LATER], "illegal_state"),  # another transaction, and the decision is gone
        ([IDLE, OPEN, COMMIT, RAISED], "illegal_state"),
        ([IDLE, OPEN, COMMIT, COMMIT._replace(partitions=ONE)], "illegal_state"),
        ([IDLE, OPEN, again(OPEN), RAISED], "illegal_state"),  # one transaction: the first record had not failed
        ([IDLE, OPEN, again(OPEN), None], "illegal_state"),
        ([IDLE, OPEN, COMMIT, None], "illegal_state"),
        ([IDLE, None, COMMIT], "illegal_state"),
        ([IDLE, RAISED, RAISED._replace(producer_epoch=3)], "epoch_regressed"),
        ([IDLE, OPEN, again(OPEN)._replace(partitions=ONE)], "partitions_shrunk"),  # the same transaction
    ],
)
def test_what_no_append_that_failed_explains(values: Values, problem: str) -> None:
    *before, (count, problems) = told(values)
    assert [problems for _, problems in before] == [[]] * len(before)
    assert (count, problems) == (0, [problem])


@pytest.mark.parametrize(
    "values",
    [
        [IDLE, OPEN, COMMIT, again(COMMIT)], [IDLE, OPEN, COMMIT, ABORT], [IDLE, OPEN, LATER], [IDLE, OPEN, RAISED],
        [IDLE, RAISED, OPEN], [IDLE, OPEN, FENCE, again(FENCE)], [IDLE, COMMIT, COMMITTED, COMMITTED],
        [IDLE, None, OPEN],
    ],
)  # fmt: skip
def test_a_coordinator_that_loads_the_log_has_its_last_record(values: Values) -> None:
    epochs = [5] * (len(values) - 1) + [6]
    assert told(values, epochs)[-1][1]
    assert told(values, [5] * len(values))[-1][1] == []


def test_one_that_goes_on_after_it_has_loaded_may_fail_too() -> None:
    assert told([IDLE, OPEN, COMMIT, again(COMMIT)], [5, 5, 6, 6]) == [(0, []), (0, []), (1, [])]


@pytest.mark.parametrize(
    ("first", "second"),
    [(COMMIT, again(COMMIT)), (COMMIT_2, again(COMMIT_2)), (COMMITTED, COMMITTED), (OPEN, LATER), (RAISED, LATER),
     (RAISED._replace(producer_epoch=0), RAISED._replace(producer_epoch=0)), (OPEN, RAISED), (None, OPEN)],
)  # fmt: skip
def test_what_may_have_been_before_the_first_record_that_is_known(
    first: TransactionValue | None, second: TransactionValue
) -> None:
    assert IdAccount(first, 5, known=False).take(second, 5).problems == []
    if first is not None:
        assert step_problem(held_before(first), first) == []


def test_behind_a_finding_the_account_goes_on_from_the_record() -> None:
    judged = told([IDLE, OPEN, COMMIT, LATER, LATER._replace(state=S.PREPARE_COMMIT), again(LATER)])
    assert [problems for _, problems in judged] == [[], [], ["illegal_state"], [], []]


def test_a_fence_that_failed_is_in_memory_alone() -> None:
    (held,) = after_failure(CachedTransaction(OPEN), FENCE)
    assert held.value == OPEN._replace(producer_epoch=4)
    assert held.has_failed_epoch_fence
    assert after_failure(held, FENCE) == (held,)
    assert after_failure(CachedTransaction(OPEN), ABORT) == (CachedTransaction(OPEN),)
    assert after_failure(CachedTransaction(OPEN), ABORT_2) == (CachedTransaction(OPEN),)


def test_what_an_abort_with_the_last_epoch_was_is_not_told() -> None:
    """A client's of the last epoch but one, or a fence of it: only the fence is in memory when the append fails."""
    abort = ABORT_2._replace(producer_epoch=32767)
    before = [OPEN._replace(producer_epoch=epoch) for epoch in (32765, 32766, 32767)]
    left = [
        [held.value.producer_epoch for held in after_failure(CachedTransaction(old), abort) if held.value]
        for old in before
    ]
    assert left == [[32766], [32766, 32767], [32767]]


def test_only_so_many_states_are_followed_at_once() -> None:
    """A transaction that grows by a partition a record might go on from each of them; the last ones are followed."""
    grown: Values = [IDLE]
    for number in range(3 * MOST_STATES):
        grown.append(OPEN._replace(partitions=frozenset(f"a-{k}" for k in range(number + 1))))
    back = [grown[-2], grown[1 - MOST_STATES], grown[-1 - MOST_STATES]]
    decided = [value._replace(state=S.PREPARE_COMMIT) for value in back if value is not None]
    assert [told([*grown, one])[-1] for one in decided] == [(1, []), (MOST_STATES - 2, []), (0, ["partitions_differ"])]
