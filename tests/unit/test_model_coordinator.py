"""Decisions of the coordinator, row by row of semantics 3.4 to 3.11, where the conformance cases leave a corner."""

from __future__ import annotations

import pytest

from auditor.model.transaction_states import TransactionState, TransactionValue
from tests.reference.coordinator import ABORT, COMMIT, Coordinator, ProducerIdAndEpoch, coordinator_policy
from tests.reference.refusal import Refused
from tests.reference.transaction_metadata import TransactionMetadata
from tests.reference.transaction_store import Availability, LogRecord, TransactionStore

S = TransactionState
IDLE = TransactionValue(10, 5, 1000, S.COMPLETE_COMMIT, start_ts=1, last_update_ts=2)
ONGOING = IDLE._replace(state=S.ONGOING, partitions=frozenset(("a-0", "a-1")), start_ts=100)


def coordinator(value: TransactionValue | None = None, policy: str = "kip-360", server_tv: int = 0) -> Coordinator:
    store = TransactionStore(coordinator_epoch=4)
    if value is not None:
        store.txns["t"] = TransactionMetadata(value)
    return Coordinator(store, coordinator_policy(policy), server_tv, next_producer_ids=(77, 78))


def value_of(model: Coordinator) -> TransactionValue:
    return model.store.txns["t"].value


def pair(producer_id: int, epoch: int) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(producer_id, epoch)


def init(model: Coordinator, expected: ProducerIdAndEpoch | None = None, append: str = "ok") -> ProducerIdAndEpoch:
    return model.init_producer_id("t", 1000, 500, expected, append)


# --- InitProducerId


def test_idempotence_alone_leaves_nothing_behind() -> None:
    model = coordinator()
    model.store.availability = Availability.NOT_OWNER
    assert model.init_producer_id(None, -1, 0) == (77, 0)
    assert (model.store.txns, model.store.log_count) == ({}, 0)


def test_requests_are_checked_before_the_coordinator_is() -> None:
    model = coordinator()
    model.store.availability = Availability.LOADING
    for name, timeout_ms, error in (
        ("", 1, "INVALID_REQUEST"),
        ("t", 0, "INVALID_TRANSACTION_TIMEOUT"),
        ("t", 1, "COORDINATOR_LOAD_IN_PROGRESS"),
    ):
        with pytest.raises(Refused, match=error):
            model.init_producer_id(name, timeout_ms, 0)


def test_a_new_id_whose_write_failed_starts_at_epoch_0_all_the_same() -> None:
    model = coordinator()
    with pytest.raises(Refused, match="COORDINATOR_NOT_AVAILABLE"):
        init(model, append="REQUEST_TIMED_OUT")
    assert (value_of(model).producer_epoch, model.store.log_count) == (-1, 0)
    assert init(model, pair(3, 9)) == (77, 0)  # nobody can hold anything of it yet
    assert value_of(model).last_producer_epoch == -1


def test_a_pending_transition_comes_before_fencing() -> None:
    model = coordinator(IDLE)
    model.store.txns["t"].pending_state = S.ONGOING
    with pytest.raises(Refused, match="CONCURRENT_TRANSACTIONS"):
        init(model, pair(99, 0))


def test_a_retry_of_a_rotation_gets_the_new_id_once_more() -> None:
    model = coordinator(IDLE._replace(producer_epoch=32766))
    assert init(model, pair(10, 32766)) == (77, 0)
    assert (value_of(model).previous_producer_id, value_of(model).last_producer_epoch) == (10, 32766)
    assert init(model, pair(10, 32766)) == (77, 0)
    for stranger in (pair(10, 32765), pair(11, 32766)):
        with pytest.raises(Refused, match="PRODUCER_FENCED"):
            init(model, stranger)


def test_rotation_without_recovery_forgets_the_old_epoch() -> None:
    model = coordinator(IDLE._replace(producer_epoch=32766))
    assert init(model) == (77, 0)
    assert value_of(model).last_producer_epoch == -1
    assert coordinator(IDLE._replace(producer_epoch=32765)).init_producer_id("t", 1, 1) == (10, 32766)


def test_the_last_epoch_of_an_exhausted_producer_is_an_internal_error() -> None:
    model = coordinator(IDLE._replace(producer_epoch=32766, last_producer_epoch=32765))
    with pytest.raises(Refused, match="ILLEGAL_STATE") as raised:
        init(model, pair(10, 32765))
    assert raised.value.as_seen_by_client().error == "UNKNOWN_SERVER_ERROR"
    assert value_of(model).producer_epoch == 32766


def test_before_kip_360_every_call_bumps() -> None:
    assert init(coordinator(IDLE, "pre-kip-360"), pair(10, 1)) == (10, 6)
    for policy, error in (("kip-360", "PRODUCER_FENCED"), ("kip-360-text", "INVALID_PRODUCER_EPOCH")):
        with pytest.raises(Refused, match=error):
            init(coordinator(IDLE, policy), pair(10, 1))


def test_an_old_epoch_has_the_old_name_before_2_7() -> None:
    for policy in ("pre-kip-360", "kip-360-text"):
        with pytest.raises(Refused, match="INVALID_PRODUCER_EPOCH"):
            coordinator(ONGOING, policy).end_txn("t", pair(10, 4), COMMIT, 0, 1)


def test_an_id_that_is_being_removed_cannot_be_renewed() -> None:
    with pytest.raises(Refused, match="ILLEGAL_STATE"):
        init(coordinator(IDLE._replace(state=S.DEAD)))


def test_without_a_new_id_to_hand_out_the_client_waits() -> None:
    model = coordinator()
    for _ in range(2):
        model.init_producer_id(None, 1, 1)
    with pytest.raises(Refused, match="COORDINATOR_LOAD_IN_PROGRESS"):
        model.init_producer_id(None, 1, 1)


# --- fencing and time-outs


@pytest.mark.parametrize(
    ("server_tv", "epoch", "after", "last"),
    [
        (0, 5, 6, -1),
        (1, 5, 6, -1),
        (2, 5, 7, 6),
        (0, 32766, 32767, -1),
        (2, 32766, 32767, -1),
        (2, 32765, 32767, 32766),
    ],
)
def test_epoch_after_a_coordinators_abort(server_tv: int, epoch: int, after: int, last: int) -> None:
    model = coordinator(ONGOING._replace(producer_epoch=epoch), server_tv=server_tv)
    assert model.abort_timed_out(1101) == {"t": "NONE"}
    value = value_of(model)
    assert (
        value.state,
        value.producer_id,
        value.producer_epoch,
        value.last_producer_epoch,
        value.next_producer_id,
    ) == (
        S.PREPARE_ABORT,
        10,
        after,
        last,
        -1,
    )
    assert [(sent.producer_epoch, sent.result) for sent in model.markers_sent] == [(after, ABORT)]
    model.complete_markers("t")
    assert (value_of(model).state, value_of(model).producer_id) == (S.COMPLETE_ABORT, 10)


def test_a_fence_that_failed_is_not_raised_again() -> None:
    model = coordinator(ONGOING._replace(last_producer_epoch=4))
    for _ in range(2):
        assert model.abort_timed_out(1101, "NOT_LEADER_OR_FOLLOWER") == {"t": "NOT_COORDINATOR"}
        assert (value_of(model).producer_epoch, value_of(model).last_producer_epoch) == (6, -1)
        assert model.store.txns["t"].has_failed_epoch_fence
    assert model.abort_timed_out(1101) == {"t": "NONE"}
    assert value_of(model).producer_epoch == 6
    assert not model.store.txns["t"].has_failed_epoch_fence


def test_a_clients_end_that_failed_is_no_failed_fence() -> None:
    model = coordinator(ONGOING)
    with pytest.raises(Refused, match="COORDINATOR_NOT_AVAILABLE"):
        model.end_txn("t", pair(10, 5), ABORT, 0, 1, "NOT_ENOUGH_REPLICAS")
    metadata = model.store.txns["t"]
    assert (metadata.has_failed_epoch_fence, metadata.pending_state, metadata.value) == (False, None, ONGOING)


def test_the_last_epoch_cannot_be_fenced() -> None:
    model = coordinator(ONGOING._replace(producer_epoch=32767))
    assert model.abort_timed_out(1101) == {"t": "UNKNOWN_SERVER_ERROR"}
    assert (value_of(model).producer_epoch, model.store.log_count) == (32767, 0)


def test_an_abort_may_take_over_a_prepared_fence() -> None:
    model = coordinator(ONGOING)
    model.store.txns["t"].prepare_fence()
    with pytest.raises(Refused, match="CONCURRENT_TRANSACTIONS"):
        model.add_partitions("t", pair(10, 5), ["a-0"], 1)
    assert model.end_txn("t", pair(10, 5), ABORT, 0, 1) == (10, 5)
    assert value_of(model).last_producer_epoch == -1
    model = coordinator(ONGOING)
    model.store.txns["t"].prepare_fence()
    with pytest.raises(Refused, match="ILLEGAL_STATE"):
        model.end_txn("t", pair(10, 5), COMMIT, 0, 1)


# --- AddPartitionsToTxn, verification


@pytest.mark.parametrize("name", [None, ""])
def test_partitions_of_nobody(name: str | None) -> None:
    for call in (
        lambda model: model.add_partitions(name, pair(10, 5), ["a-0"], 1),
        lambda model: model.verify_partitions(name, pair(10, 5), ["a-0"]),
        lambda model: model.end_txn(name, pair(10, 5), COMMIT, 0, 1),
    ):
        with pytest.raises(Refused, match="INVALID_REQUEST"):
            call(coordinator(ONGOING))


def test_known_partitions_need_no_record() -> None:
    model = coordinator(ONGOING)
    assert not model.add_partitions("t", pair(10, 5), ["a-0"], 200)
    assert not model.add_partitions("t", pair(10, 5), ["a-0", "a-1"], 200)
    assert (model.store.log_count, value_of(model)) == (0, ONGOING)
    assert model.add_partitions("t", pair(10, 5), ["a-1", "b-0"], 200)
    added = {"partitions": frozenset(("a-0", "a-1", "b-0")), "last_update_ts": 200, "previous_producer_id": 10}
    assert value_of(model) == ONGOING._replace(**added)


@pytest.mark.parametrize(
    ("producer", "error"),
    [
        (pair(11, 5), "INVALID_PRODUCER_ID_MAPPING"),
        (pair(10, 4), "PRODUCER_FENCED"),
        (pair(10, 6), "PRODUCER_FENCED"),
    ],
)
def test_strangers_may_neither_add_nor_verify(producer: ProducerIdAndEpoch, error: str) -> None:
    with pytest.raises(Refused, match=error):
        coordinator(ONGOING).add_partitions("t", producer, ["b-0"], 1)
    with pytest.raises(Refused, match=error):
        coordinator(ONGOING).verify_partitions("t", producer, ["b-0"])


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_a_transaction_that_is_being_ended_takes_no_partitions(state: TransactionState) -> None:
    model = coordinator(ONGOING._replace(state=state))
    with pytest.raises(Refused, match="CONCURRENT_TRANSACTIONS"):
        model.add_partitions("t", pair(10, 5), ["a-0"], 1)


def test_verification_does_not_look_at_pending_transitions() -> None:
    model = coordinator(ONGOING)
    model.store.txns["t"].pending_state = S.ONGOING
    assert model.verify_partitions("t", pair(10, 5), ["a-0", "b-0"]) == {"a-0": "NONE", "b-0": "TRANSACTION_ABORTABLE"}


# --- EndTxn


@pytest.mark.parametrize("client_tv", [0, 2])
@pytest.mark.parametrize("result", [COMMIT, ABORT])
def test_nothing_to_end(client_tv: int, result: str) -> None:
    with pytest.raises(Refused, match="INVALID_TXN_STATE"):
        coordinator(IDLE._replace(state=S.EMPTY)).end_txn("t", pair(10, 5), result, client_tv, 1)
    with pytest.raises(Refused, match="INVALID_PRODUCER_ID_MAPPING"):
        coordinator().end_txn("t", pair(10, 5), result, client_tv, 1)
    with pytest.raises(Refused, match="ILLEGAL_STATE"):
        coordinator(IDLE._replace(state=S.DEAD)).end_txn("t", pair(10, 5), result, client_tv, 1)


def test_a_decision_with_its_markers_under_way_is_not_argued_about() -> None:
    model = coordinator(ONGOING)
    model.end_txn("t", pair(10, 5), COMMIT, 0, 1)
    for result in (COMMIT, ABORT):
        with pytest.raises(Refused, match="CONCURRENT_TRANSACTIONS"):
            model.end_txn("t", pair(10, 5), result, 0, 1)


@pytest.mark.parametrize(("client_tv", "result"), [(1, COMMIT), (2, COMMIT), (2, ABORT)])
def test_two_transactions_of_one_producer(client_tv: int, result: str) -> None:
    model = coordinator(ONGOING)
    bump = client_tv // 2
    assert model.end_txn("t", pair(10, 5), result, client_tv, 7) == (10, 5 + bump)
    assert model.markers_sent[0] == ("t", 10, 5 + bump, result, 4, ["a-0", "a-1"])
    assert value_of(model).client_tv == client_tv
    model.complete_markers("t")
    assert value_of(model).last_update_ts == 7
    assert model.end_txn("t", pair(10, 5), result, client_tv, 9) == (10, 5 + bump)  # a retry
    assert model.store.log_count == 2
    assert model.add_partitions("t", pair(10, 5 + bump), ["a-0"], 11)
    assert (value_of(model).client_tv, value_of(model).start_ts) == (0, 11)


def test_an_exhausted_producer_goes_on_under_a_new_id() -> None:
    model = coordinator(ONGOING._replace(producer_epoch=32766))
    assert model.end_txn("t", pair(10, 32766), ABORT, 2, 7) == (77, 0)
    assert (value_of(model).producer_epoch, value_of(model).next_producer_id) == (32767, 77)
    model.complete_markers("t")
    value = value_of(model)
    assert (value.producer_id, value.producer_epoch, value.previous_producer_id, value.next_producer_id) == (
        77,
        0,
        10,
        -1,
    )
    assert model.end_txn("t", pair(10, 32766), ABORT, 2, 8) == (77, 0)
    for stranger in (pair(10, 32765), pair(9, 32766)):
        with pytest.raises(Refused, match="INVALID_PRODUCER_ID_MAPPING"):
            model.end_txn("t", stranger, ABORT, 2, 8)
    model.add_partitions("t", pair(77, 0), ["a-0"], 9)
    with pytest.raises(Refused, match="INVALID_PRODUCER_ID_MAPPING"):
        model.end_txn("t", pair(10, 32766), ABORT, 2, 10)


def test_old_clients_do_not_use_ids_up() -> None:
    model = coordinator(ONGOING._replace(producer_epoch=32766))
    assert model.end_txn("t", pair(10, 32766), COMMIT, 1, 7) == (10, 32766)
    model = coordinator(ONGOING._replace(producer_epoch=32765))
    assert model.end_txn("t", pair(10, 32765), COMMIT, 2, 7) == (10, 32766)


# --- markers


def test_markers_are_counted_down() -> None:
    model = coordinator(ONGOING)
    with pytest.raises(Refused, match="ILLEGAL_STATE"):
        model.marker_acked("t", "a-0")
    with pytest.raises(Refused, match="ILLEGAL_STATE"):
        model.complete_markers("t")
    model.end_txn("t", pair(10, 5), COMMIT, 0, 1)
    assert model.marker_acked("t", "a-1") == ["a-0"]
    assert model.marker_acked("t", "a-0") == []
    assert model.store.last_record is not None
    assert model.store.last_record.value is not None
    assert model.store.last_record.value.partitions == {"a-0", "a-1"}
    model.complete_markers("t")
    assert value_of(model).state == S.COMPLETE_COMMIT


@pytest.mark.parametrize(
    ("append", "pending"), [("NOT_ENOUGH_REPLICAS", S.COMPLETE_COMMIT), ("KAFKA_STORAGE_ERROR", None)]
)
def test_only_an_unavailable_log_is_tried_again(append: str, pending: TransactionState | None) -> None:
    model = coordinator(ONGOING)
    model.end_txn("t", pair(10, 5), COMMIT, 0, 1)
    with pytest.raises(Refused):
        model.complete_markers("t", append)
    assert (model.store.txns["t"].pending_state, value_of(model).state) == (pending, S.PREPARE_COMMIT)
    if pending is None:
        with pytest.raises(Refused, match="ILLEGAL_STATE"):
            model.complete_markers("t")
    else:
        model.complete_markers("t")
        assert value_of(model).state == S.COMPLETE_COMMIT


def test_a_decision_found_in_memory_can_be_completed() -> None:
    model = coordinator(ONGOING._replace(state=S.PREPARE_ABORT, last_update_ts=150))
    model.complete_markers("t")
    assert (value_of(model).state, value_of(model).last_update_ts) == (S.COMPLETE_ABORT, 150)


# --- load


def test_a_new_owner_sends_the_markers_of_what_was_decided() -> None:
    model = coordinator()
    records = [
        LogRecord("b", ONGOING._replace(state=S.PREPARE_ABORT)),
        LogRecord("a", ONGOING._replace(state=S.PREPARE_COMMIT)),
        LogRecord("c", ONGOING._replace(last_producer_epoch=4)),
        LogRecord("d", ONGOING),
        LogRecord("d", None),
        LogRecord("e", None),
    ]
    sent = model.load(records, 9, 400)
    assert [(marker.transactional_id, marker.result, marker.coordinator_epoch) for marker in sent] == [
        ("a", COMMIT, 9),
        ("b", ABORT, 9),
    ]
    assert sorted(model.store.txns) == ["a", "b", "c"]
    assert model.store.txns["c"].value == ONGOING
    model.complete_markers("b")
    assert model.store.txns["b"].value.last_update_ts == 400


def test_the_text_of_kip_360_keeps_the_last_epoch() -> None:
    store = TransactionStore(keeps_last_epoch=True)
    store.load([LogRecord("t", IDLE._replace(last_producer_epoch=4))], 1)
    assert store.txns["t"].value.last_producer_epoch == 4
    assert coordinator_policy("kip-360-text").keeps_last_epoch
    assert not coordinator_policy("kip-360").keeps_last_epoch


def test_an_unknown_version_ends_the_reading() -> None:
    tagged = IDLE._replace(client_tv=2, next_producer_id=7, previous_producer_id=6)
    for version, kept in ((0, ["a", "b"]), (1, ["a", "b"]), (None, ["a", "b"]), (2, ["a"]), (-1, ["a"])):
        store = TransactionStore()
        store.load([LogRecord("a", IDLE), LogRecord("b", tagged, version), LogRecord("a", IDLE)], 1)
        assert sorted(store.txns) == kept
        if version == 0:
            assert store.txns["b"].value == IDLE
        elif "b" in kept:
            assert store.txns["b"].value == tagged
