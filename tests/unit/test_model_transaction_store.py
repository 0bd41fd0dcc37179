"""The coordinator's memory and its log: semantics 3.8 to 3.10, and the two steps of a transition."""

from __future__ import annotations

import pytest

from auditor.model.transaction_states import TransactionState, TransactionValue
from tests.reference.refusal import Refused
from tests.reference.transaction_metadata import TransactionMetadata
from tests.reference.transaction_store import Availability, TransactionStore, coordinator_error

S = TransactionState
EMPTY = TransactionValue(10, 5, 1000, S.EMPTY, start_ts=50, last_update_ts=100)
ONGOING = EMPTY._replace(state=S.ONGOING, partitions=frozenset(("a-0",)))


def store(value: TransactionValue) -> TransactionStore:
    model = TransactionStore(expiration_ms=1000)
    model.txns["t"] = TransactionMetadata(value)
    return model


@pytest.mark.parametrize(
    ("append", "reported"),
    [
        ("UNKNOWN_TOPIC_OR_PARTITION", "COORDINATOR_NOT_AVAILABLE"),
        ("NOT_ENOUGH_REPLICAS", "COORDINATOR_NOT_AVAILABLE"),
        ("NOT_ENOUGH_REPLICAS_AFTER_APPEND", "COORDINATOR_NOT_AVAILABLE"),
        ("REQUEST_TIMED_OUT", "COORDINATOR_NOT_AVAILABLE"),
        ("NOT_LEADER_OR_FOLLOWER", "NOT_COORDINATOR"),
        ("KAFKA_STORAGE_ERROR", "NOT_COORDINATOR"),
        ("MESSAGE_TOO_LARGE", "UNKNOWN_SERVER_ERROR"),
        ("RECORD_LIST_TOO_LARGE", "UNKNOWN_SERVER_ERROR"),
        ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_LOAD_IN_PROGRESS"),
    ],
)
def test_errors_of_the_log(append: str, reported: str) -> None:
    assert coordinator_error(append) == reported


@pytest.mark.parametrize("retried", [True, False])
def test_a_failed_write_is_forgotten_unless_it_is_tried_again(retried: bool) -> None:
    model = store(EMPTY)
    prepared = model.prepared(model.txns["t"].prepare_add_partitions(frozenset(("a-0",)), 200))
    with pytest.raises(Refused, match="NOT_COORDINATOR"):
        model.append("t", prepared, "KAFKA_STORAGE_ERROR", ("NOT_COORDINATOR",) if retried else ("other",))
    assert model.txns["t"].pending_state == (S.ONGOING if retried else None)
    assert (model.txns["t"].value, model.log_count, model.last_record) == (EMPTY, 0, None)


def test_a_transition_of_an_earlier_term_is_dropped() -> None:
    model = store(EMPTY)
    prepared = model.prepared(model.txns["t"].prepare_add_partitions(frozenset(("a-0",)), 200))
    model.coordinator_epoch += 1
    with pytest.raises(Refused, match="NOT_COORDINATOR"):
        model.append("t", prepared)
    model.coordinator_epoch -= 1
    del model.txns["t"]
    with pytest.raises(Refused, match="NOT_COORDINATOR"):
        model.append("t", prepared)


def test_a_record_of_empty_has_no_start_but_memory_keeps_it() -> None:
    model = store(EMPTY)
    model.append("t", model.prepared(model.txns["t"].prepare_increment_epoch(9, None, 200)))
    assert model.last_record is not None
    assert model.last_record.value is not None
    assert (model.last_record.value.start_ts, model.txns["t"].value.start_ts, model.log_count) == (-1, 50, 1)


@pytest.mark.parametrize("value", [EMPTY, ONGOING._replace(state=S.PREPARE_COMMIT), ONGOING._replace(state=S.DEAD)])
def test_only_open_transactions_run_out_of_time(value: TransactionValue) -> None:
    assert store(value).timed_out(10_000) == []


def test_time_runs_from_the_first_partition_and_the_bound_is_strict() -> None:
    model = store(ONGOING)
    assert (model.timed_out(1050), model.timed_out(1051)) == ([], ["t"])
    model.txns["t"].pending_state = S.ONGOING
    assert model.timed_out(1051) == []
    model.txns["t"].pending_state = None
    model.availability = Availability.LOADING
    assert model.timed_out(1051) == []


def test_idle_ids_expire_after_their_time_inclusively() -> None:
    model = store(EMPTY)
    assert model.expire(1099) == []
    model.txns["t"].pending_state = S.ONGOING
    assert model.expire(1100) == []
    model.txns["t"].pending_state = None
    model.availability = Availability.NOT_OWNER
    assert model.expire(1100) == []
    model.availability = Availability.OWNER
    assert model.expire(1100, "REQUEST_TIMED_OUT") == ["t"]
    assert (model.txns["t"].pending_state, model.log_count) == (None, 0)
    assert model.expire(1100) == ["t"]
    assert (model.txns, model.log_count, model.last_record) == ({}, 1, ("t", None, None))


@pytest.mark.parametrize("state", [S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT, S.DEAD, S.PREPARE_EPOCH_FENCE])
def test_busy_ids_never_expire(state: TransactionState) -> None:
    assert store(EMPTY._replace(state=state)).expire(10**9) == []


def test_listing() -> None:
    model = store(ONGOING)
    model.txns["u"] = TransactionMetadata(EMPTY._replace(producer_id=11))
    model.txns["v"] = TransactionMetadata(EMPTY._replace(state=S.DEAD))
    assert model.list_transactions(1000) == (["t", "u"], [])
    assert model.list_transactions(1050, 1000) == ([], [])
    assert model.list_transactions(1051, 1000) == (["t", "u"], [])
    assert model.list_transactions(50, 0) == ([], [])
    assert model.list_transactions(0, -1, ["Empty", "Zzz", "Abc"], [11]) == (["u"], ["Abc", "Zzz"])
    model.availability = Availability.LOADING
    with pytest.raises(Refused, match="COORDINATOR_LOAD_IN_PROGRESS"):
        model.list_transactions(0)


def test_describing_and_knowing() -> None:
    model = store(ONGOING)
    assert model.describe("t") == ONGOING
    for name, error in (("", "INVALID_REQUEST"), ("u", "TRANSACTIONAL_ID_NOT_FOUND")):
        with pytest.raises(Refused, match=error):
            model.describe(name)
    assert model.known("t").value == ONGOING
    with pytest.raises(Refused, match="ILLEGAL_STATE"):
        model.known("u")
    model.unload()
    with pytest.raises(Refused, match="NOT_COORDINATOR"):
        model.find("t")
    assert model.txns == {}


def test_time_outs_that_clients_may_ask_for() -> None:
    model = TransactionStore(max_timeout_ms=10)
    assert [model.valid_timeout(timeout) for timeout in (-1, 0, 1, 10, 11)] == [False, False, True, True, False]


# --- the two steps of a transition


def test_one_transition_at_a_time() -> None:
    metadata = TransactionMetadata(ONGOING)
    metadata.prepare_add_partitions(frozenset(("b-0",)), 200)
    with pytest.raises(Refused, match="ILLEGAL_STATE"):
        metadata.prepare_fence()
    assert metadata.pending_state == S.ONGOING


def test_ids_and_epochs_are_never_negative() -> None:
    new = EMPTY._replace(producer_epoch=-1)
    with pytest.raises(Refused, match="ILLEGAL_ARGUMENT"):
        TransactionMetadata(new).prepare_add_partitions(frozenset(), 1)
    with pytest.raises(Refused, match="ILLEGAL_ARGUMENT"):
        TransactionMetadata(EMPTY).prepare_rotation(-1, 1, 1, record_last=False)
    assert TransactionMetadata(new).prepare_dead().state == S.DEAD
    assert TransactionMetadata(new._replace(producer_epoch=0, producer_id=0)).prepare_add_partitions(frozenset(), 1)


def test_what_is_completed_was_prepared() -> None:
    metadata = TransactionMetadata(ONGOING)
    decided = metadata.prepare_end(S.PREPARE_COMMIT, 0, -1, 200)
    with pytest.raises(Refused, match="ILLEGAL_STATE"):
        metadata.complete(decided._replace(state=S.PREPARE_ABORT))
    with pytest.raises(Refused, match="ILLEGAL_STATE"):
        metadata.complete(decided._replace(timeout_ms=7))
    assert metadata.value == ONGOING
    metadata.complete(decided)
    assert (metadata.value, metadata.pending_state) == (decided, None)


def test_a_fence_and_a_removal_are_never_applied() -> None:
    for metadata in (TransactionMetadata(ONGOING), TransactionMetadata(EMPTY)):
        prepared = metadata.prepare_fence() if metadata.value is ONGOING else metadata.prepare_dead()
        with pytest.raises(Refused, match="ILLEGAL_STATE"):
            metadata.complete(prepared)


def test_a_transaction_without_a_start_cannot_be_completed() -> None:
    metadata = TransactionMetadata(ONGOING._replace(state=S.PREPARE_COMMIT, start_ts=-1))
    completion = metadata.prepare_complete(300)
    with pytest.raises(Refused, match="ILLEGAL_STATE"):
        metadata.complete(completion)


@pytest.mark.parametrize("state", [S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_ids_are_not_rotated_inside_a_transaction(state: TransactionState) -> None:
    with pytest.raises(Refused, match="ILLEGAL_STATE"):
        TransactionMetadata(ONGOING._replace(state=state)).prepare_rotation(11, 1, 1, record_last=True)


@pytest.mark.parametrize(("expected", "epoch", "last"), [(None, 6, -1), (5, 6, 5), (4, 5, 4)])
def test_epochs_a_recovering_client_may_hold(expected: int | None, epoch: int, last: int) -> None:
    metadata = TransactionMetadata(EMPTY._replace(last_producer_epoch=4))
    prepared = metadata.prepare_increment_epoch(9, expected, 200)
    assert (prepared.producer_epoch, prepared.last_producer_epoch) == (epoch, last)
    for stranger in (3, 6):
        with pytest.raises(Refused, match="PRODUCER_FENCED"):
            TransactionMetadata(metadata.value).prepare_increment_epoch(9, stranger, 200)


def test_a_completion_under_version_2() -> None:
    decided = ONGOING._replace(state=S.PREPARE_ABORT, client_tv=2, previous_producer_id=3)
    done = TransactionMetadata(decided).prepare_complete(300)
    assert (done.last_producer_epoch, done.previous_producer_id, done.client_tv) == (5, 10, 2)
    done = TransactionMetadata(decided._replace(client_tv=1)).prepare_complete(300)
    assert (done.last_producer_epoch, done.previous_producer_id) == (-1, 10)  # every transition says whose it was
    with pytest.raises(Refused, match="ILLEGAL_STATE"):
        TransactionMetadata(ONGOING).prepare_complete(300)
