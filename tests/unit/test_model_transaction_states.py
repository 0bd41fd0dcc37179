"""Transitions of a transactional id: semantics 3.2 and 3.3, compared with what real brokers wrote."""

from __future__ import annotations

import pytest

from auditor.connectors.codec.transaction_log import decode_transaction_log
from auditor.model.transaction_states import (
    CachedTransaction,
    TransactionState,
    TransactionValue,
    bumps_epoch,
    legal_previous,
    step_problem,
    value_problem,
)
from tests import corpora
from tests.reference.refusal import Refused
from tests.reference.transaction_metadata import state_by_id
from tests.unit.log_reader import read_partition

S = TransactionState
EMPTY = TransactionValue(7, 3, 1000, S.EMPTY, last_update_ts=100)
ONGOING = TransactionValue(7, 3, 1000, S.ONGOING, frozenset(("a-0", "a-1")), 100, 100)
PREPARED = ONGOING._replace(state=S.PREPARE_COMMIT, last_update_ts=200)
ABORTING = ONGOING._replace(state=S.PREPARE_ABORT, last_update_ts=200)
COMPLETE = PREPARED._replace(state=S.COMPLETE_COMMIT, partitions=frozenset(), last_update_ts=300)
ABORTED = COMPLETE._replace(state=S.COMPLETE_ABORT)
V2 = {"client_tv": 2}


def test_every_pair_of_states() -> None:
    # semantics 3.2, target: sources
    table = {
        "Empty": "Empty CompleteCommit CompleteAbort",
        "Ongoing": "Ongoing Empty CompleteCommit CompleteAbort",
        "PrepareCommit": "Ongoing",
        "PrepareAbort": "Ongoing PrepareEpochFence",
        "CompleteCommit": "PrepareCommit",
        "CompleteAbort": "PrepareAbort",
        "Dead": "Empty CompleteCommit CompleteAbort",
        "PrepareEpochFence": "Ongoing",
    }
    assert {state.value: {str(name) for name in legal_previous(state)} for state in S} == {
        target: set(sources.split()) for target, sources in table.items()
    }
    assert legal_previous(S.PREPARE_ABORT, 1) == legal_previous(S.PREPARE_ABORT)
    assert legal_previous(S.PREPARE_ABORT, 2) - legal_previous(S.PREPARE_ABORT) == {
        S.EMPTY,
        S.COMPLETE_COMMIT,
        S.COMPLETE_ABORT,
    }
    assert legal_previous(S.PREPARE_COMMIT, 2) == {S.ONGOING}


def test_bytes_of_the_states() -> None:
    names = "Empty Ongoing PrepareCommit PrepareAbort CompleteCommit CompleteAbort Dead PrepareEpochFence"
    assert [state_by_id(number).value for number in range(8)] == names.split()
    for number in (-1, 8):
        with pytest.raises(Refused, match="ILLEGAL_STATE"):
            state_by_id(number)


def test_only_version_2_bumps() -> None:
    assert [bumps_epoch(version) for version in (0, 1, 2, 3)] == [False, False, True, True]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (EMPTY, EMPTY._replace(last_update_ts=50)),  # the same again; clocks may go back
        (EMPTY, EMPTY._replace(producer_epoch=4, timeout_ms=5)),
        (EMPTY._replace(producer_epoch=32766), EMPTY._replace(producer_id=8, producer_epoch=0)),
        # with the start of the transaction before, rotated and bumped
        (
            COMPLETE._replace(producer_epoch=32766),
            EMPTY._replace(producer_id=8, producer_epoch=0, start_ts=COMPLETE.start_ts),
        ),
        (COMPLETE, EMPTY._replace(producer_epoch=COMPLETE.producer_epoch + 1, start_ts=COMPLETE.start_ts)),
        (EMPTY, ONGOING),
        (ONGOING, ONGOING._replace(partitions=ONGOING.partitions | {"b-0"}, last_update_ts=150)),
        (ONGOING, PREPARED),
        (ONGOING, ABORTING._replace(producer_epoch=4)),  # fenced
        (ONGOING, PREPARED._replace(producer_epoch=4, **V2)),
        (ONGOING, ABORTING._replace(producer_epoch=4, **V2)),
        (ONGOING, ABORTING._replace(producer_epoch=5, **V2)),  # fenced and bumped, before 4.0
        (
            ONGOING._replace(producer_epoch=32767),
            ABORTING._replace(producer_epoch=32767, last_producer_epoch=5, **V2),
        ),
        (PREPARED, COMPLETE),
        (
            PREPARED._replace(producer_epoch=32767, **V2),
            COMPLETE._replace(producer_id=8, producer_epoch=0, **V2),
        ),
        (COMPLETE, ONGOING._replace(start_ts=400, last_update_ts=400)),
        (COMPLETE, EMPTY),
        (COMPLETE, ABORTING._replace(producer_epoch=4, partitions=frozenset(), start_ts=400, **V2)),
        (COMPLETE, None),
        (EMPTY, None),
        (None, EMPTY._replace(producer_epoch=0)),
        (None, None),
    ],
)
def test_legal(old: TransactionValue | None, new: TransactionValue | None) -> None:
    assert step_problem(CachedTransaction(old), new) == []


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        (PREPARED, ONGOING, "illegal_state"),
        (EMPTY, PREPARED, "illegal_state"),
        (ONGOING, None, "illegal_state"),
        (PREPARED, None, "illegal_state"),
        (None, COMPLETE, "illegal_state"),
        (None, EMPTY, "epoch_not_reset"),
        (PREPARED, PREPARED._replace(last_update_ts=250), "illegal_state"),
        (COMPLETE, ABORTING._replace(partitions=frozenset(), client_tv=1), "illegal_state"),
        (PREPARED, PREPARED._replace(producer_epoch=4), "illegal_state"),
        (ONGOING, PREPARED._replace(producer_id=8), "producer_id_changed"),
        (PREPARED, COMPLETE._replace(producer_id=8, producer_epoch=0, **V2), "producer_id_changed"),
        (PREPARED._replace(producer_epoch=32767), COMPLETE._replace(producer_id=8), "producer_id_changed"),
        (EMPTY, EMPTY._replace(producer_id=8, producer_epoch=0), "producer_id_changed"),  # epochs are left
        (EMPTY._replace(producer_epoch=32765), EMPTY._replace(producer_id=8, producer_epoch=0), "producer_id_changed"),
        (EMPTY._replace(producer_epoch=32766), EMPTY._replace(producer_id=8, producer_epoch=1), "epoch_not_reset"),
        (EMPTY, EMPTY._replace(producer_epoch=2), "epoch_regressed"),
        (EMPTY, EMPTY._replace(producer_epoch=5), "epoch_jumped"),
        (EMPTY, ONGOING._replace(producer_epoch=4), "epoch_jumped"),
        (ONGOING, ONGOING._replace(producer_epoch=4), "epoch_jumped"),
        (ONGOING, PREPARED._replace(producer_epoch=4), "epoch_jumped"),
        (ONGOING, ABORTING._replace(producer_epoch=5), "epoch_jumped"),
        (ONGOING, PREPARED._replace(**V2), "epoch_jumped"),
        (ONGOING, PREPARED._replace(producer_epoch=5, **V2), "epoch_jumped"),
        (ONGOING, ABORTING._replace(**V2), "epoch_jumped"),
        (ONGOING, ABORTING._replace(producer_epoch=6, **V2), "epoch_jumped"),
        (PREPARED, COMPLETE._replace(producer_epoch=4), "epoch_jumped"),
        (ONGOING, PREPARED._replace(timeout_ms=5), "timeout_changed"),
        (ONGOING, ONGOING._replace(partitions=frozenset(("a-0", "b-0"))), "partitions_shrunk"),
        (ONGOING, PREPARED._replace(partitions=frozenset(("a-0", "a-1", "b-0"))), "partitions_differ"),
        (ONGOING, PREPARED._replace(start_ts=101), "start_changed"),
        (PREPARED, COMPLETE._replace(start_ts=101), "start_changed"),
        (EMPTY, ONGOING._replace(start_ts=99), "start_not_update"),
        (COMPLETE, EMPTY._replace(producer_epoch=COMPLETE.producer_epoch + 1, start_ts=99), "start_present"),
        (None, EMPTY._replace(producer_epoch=0, start_ts=COMPLETE.start_ts), "start_present"),
    ],
)
def test_illegal(old: TransactionValue | None, new: TransactionValue | None, code: str) -> None:
    assert step_problem(CachedTransaction(old), new) == [code]


@pytest.mark.parametrize(
    ("value", "codes"),
    [
        (EMPTY, []),
        (ONGOING, []),
        (COMPLETE, []),
        (ONGOING._replace(producer_id=0, producer_epoch=0, start_ts=0), []),
        (ONGOING._replace(state=S.DEAD), ["state_never_written"]),
        (ONGOING._replace(state=S.PREPARE_EPOCH_FENCE, start_ts=-1), ["state_never_written"]),
        (ONGOING._replace(producer_id=-1), ["producer_id_negative"]),
        (ONGOING._replace(producer_epoch=-1), ["epoch_negative"]),
        (COMPLETE._replace(partitions=frozenset("a")), ["partitions_not_empty"]),
        (EMPTY._replace(partitions=frozenset("a")), ["partitions_not_empty"]),
        (EMPTY._replace(start_ts=0), []),  # that of the transaction before, for all that it shows
        (ONGOING._replace(start_ts=-1), ["start_missing"]),
        (PREPARED._replace(start_ts=-1), ["start_missing"]),
        (COMPLETE._replace(start_ts=-1), ["start_missing"]),
    ],
)
def test_a_record_by_itself(value: TransactionValue, codes: list[str]) -> None:
    assert value_problem(value) == codes


@pytest.mark.parametrize("name", ["healthy-28", "healthy-41", "hanging-36", "replicas-41", "trimmed-28"])
def test_real_coordinators_keep_to_it(name: str) -> None:
    problems, seen = [], 0
    for folder in sorted(corpora.unpack(name).glob("**/__transaction_state-*")):
        last: dict[str, CachedTransaction] = {}
        for read in read_partition(folder):
            row, _ = decode_transaction_log(read.key, read.value)
            assert row is not None
            value = None
            if not row.tombstone:
                assert None not in (row.producer_id, row.producer_epoch, row.timeout_ms, row.state)
                value = TransactionValue(
                    row.producer_id or 0,
                    row.producer_epoch or 0,
                    row.timeout_ms or 0,
                    S(row.state),
                    frozenset(row.partitions or ()),
                    -1 if row.start_timestamp is None else row.start_timestamp,
                    row.last_update_timestamp or 0,
                    client_tv=row.client_transaction_version or 0,
                )
                problems += value_problem(value)
            if row.transactional_id in last:
                problems += step_problem(last[row.transactional_id], value)
            last[row.transactional_id] = CachedTransaction(value)
            seen += 1
    assert seen > 20
    assert problems == []
