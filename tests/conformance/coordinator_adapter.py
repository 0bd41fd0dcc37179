"""Runs `coordinator` cases: a name of the README for each operation, metadata written and read as the README has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from auditor.model.transaction_states import COMPLETED, PREPARED, TransactionState, TransactionValue
from tests.conformance.cases import Result
from tests.reference.coordinator import Coordinator, ProducerIdAndEpoch, coordinator_policy
from tests.reference.refusal import ILLEGAL_STATE, Refused
from tests.reference.transaction_metadata import TransactionMetadata, state_by_id
from tests.reference.transaction_store import Availability, LogRecord, Prepared, TransactionStore, coordinator_error

Args = dict[str, Any]
Returns = dict[str, Any]


def run_model(case: dict[str, Any]) -> CoordinatorModel:
    """A coordinator in the initial state of `case`."""
    return CoordinatorModel(case.get("initial") or {}, case["policy"])


def _value(fields: Args) -> TransactionValue:
    known = {key: fields[key] for key in TransactionValue._fields if key in fields}
    known["state"] = TransactionState(known.get("state", TransactionState.EMPTY))
    known["partitions"] = frozenset(known.get("partitions") or ())
    return TransactionValue(**known)


def _shown(value: TransactionValue) -> Returns:
    return value._asdict() | {"state": value.state.value, "partitions": sorted(value.partitions)}


def _producer(args: Args) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(args["producer_id"], args["producer_epoch"])


class CoordinatorModel:
    """One coordinator with its store."""

    def __init__(self, initial: dict[str, Any], policy_name: str) -> None:
        config, policy = initial.get("config") or {}, coordinator_policy(policy_name)
        limits = {
            "max_timeout_ms": config.get("transaction_max_timeout_ms"),
            "expiration_ms": config.get("transactional_id_expiration_ms"),
        }
        self.store = TransactionStore(
            initial.get("coordinator_epoch", 0),
            Availability(initial.get("availability", Availability.OWNER)),
            keeps_last_epoch=policy.keeps_last_epoch,
            **{key: limit for key, limit in limits.items() if limit is not None},
        )
        self.coordinator = Coordinator(
            self.store, policy, initial.get("server_tv", 0), initial.get("next_producer_ids") or ()
        )
        for name, fields in (initial.get("txns") or {}).items():
            metadata = TransactionMetadata(_value(fields), None, fields.get("has_failed_epoch_fence", False))
            self.store.txns[name] = metadata
            if fields.get("pending_state") in COMPLETED and metadata.value.state in PREPARED:
                completion = metadata.prepare_complete(metadata.value.last_update_ts)
                self.coordinator.transitions[name] = self.store.prepared(completion)
            elif fields.get("pending_state") is not None:
                metadata.pending_state = TransactionState(fields["pending_state"])

    def apply(self, op: str, args: Args) -> Result:
        try:
            returns = _OPERATIONS[op](self, args) or {}
        except Refused as refused:
            seen = refused.as_seen_by_client() if op in _OF_CLIENTS else refused
            return Result("error", seen.error, {}, self.state())
        return Result("ok", None, returns, self.state())

    def state(self) -> Returns:
        record = self.store.last_record
        shown: Returns | None = None
        if record is not None:
            shown = {"tid": record.transactional_id}
            shown |= {"tombstone": True} if record.value is None else _shown(record.value)
        return {
            "txns": {name: self._metadata(metadata) for name, metadata in self.store.txns.items()},
            "last_log_record": shown,
            "log_count": self.store.log_count,
            "markers_sent": [sent._asdict() for sent in self.coordinator.markers_sent],
        }

    @staticmethod
    def _metadata(metadata: TransactionMetadata) -> Returns:
        pending = metadata.pending_state
        return _shown(metadata.value) | {
            "pending_state": None if pending is None else pending.value,
            "has_failed_epoch_fence": metadata.has_failed_epoch_fence,
        }

    def init_producer_id(self, args: Args) -> Returns:
        expected = args.get("expected")
        return self.coordinator.init_producer_id(
            args["transactional_id"],
            args["timeout_ms"],
            args["now"],
            None if expected is None else _producer(expected),
            args.get("append", "ok"),
        )._asdict()

    def add_partitions(self, args: Args) -> Returns:
        appended = self.coordinator.add_partitions(
            args["transactional_id"], _producer(args), args["partitions"], args["now"], args.get("append", "ok")
        )
        return {"appended": appended}

    def verify_partitions(self, args: Args) -> Returns:
        verified = self.coordinator.verify_partitions(args["transactional_id"], _producer(args), args["partitions"])
        return {"partitions": verified}

    def end_txn(self, args: Args) -> Returns:
        return self.coordinator.end_txn(
            args["transactional_id"],
            _producer(args),
            args["result"],
            args["client_tv"],
            args["now"],
            args.get("append", "ok"),
        )._asdict()

    def marker_acked(self, args: Args) -> Returns:
        return {"remaining": self.coordinator.marker_acked(args["transactional_id"], args["partition"])}

    def complete_markers(self, args: Args) -> None:
        self.coordinator.complete_markers(args["transactional_id"], args.get("append", "ok"))

    def abort_timed_out(self, args: Args) -> Returns:
        return {"aborted": self.coordinator.abort_timed_out(args["now"], args.get("append", "ok"))}

    def expire_ids(self, args: Args) -> Returns:
        return {"tombstones": self.store.expire(args["now"], args.get("append", "ok"))}

    def load(self, args: Args) -> Returns:
        records = [
            LogRecord(
                record["transactional_id"],
                None if record.get("value") is None else _value(record["value"]),
                (record.get("value") or {}).get("version"),
            )
            for record in args["records"]
            if not record.get("unknown_key")
        ]
        sent = self.coordinator.load(records, args["coordinator_epoch"], args["now"])
        return {"pending_completions": [{"transactional_id": m.transactional_id, "result": m.result} for m in sent]}

    def unload(self, args: Args) -> None:
        self.store.unload()

    def describe(self, args: Args) -> Returns:
        return _shown(self.store.describe(args["transactional_id"]))

    def list(self, args: Args) -> Returns:
        ids, unknown = self.store.list_transactions(
            args["now"], args.get("duration_ms", -1), args.get("states") or (), args.get("producer_ids") or ()
        )
        return {"transactional_ids": ids, "unknown_states": unknown}

    def validate_timeout(self, args: Args) -> Returns:
        return {"valid": self.store.valid_timeout(args["timeout_ms"])}

    def decode_state(self, args: Args) -> Returns:
        return {"name": state_by_id(args["id"]).value}

    def prepare(self, args: Args, transition: Callable[[TransactionMetadata], TransactionValue]) -> Returns:
        """Prepare one transition of the metadata object and keep it for append_prepared or complete_transition."""
        name = args["transactional_id"]
        value = transition(self._object(name))
        self.coordinator.transitions[name] = self.store.prepared(value)
        return _shown(value)

    def prepare_increment_epoch(self, args: Args) -> Returns:
        error = self.coordinator.policy.fenced_error
        asked = (args["timeout_ms"], args["expected_epoch"], args["now"])
        return self.prepare(args, lambda metadata: metadata.prepare_increment_epoch(*asked, error))

    def prepare_rotation(self, args: Args) -> Returns:
        asked = (args["new_producer_id"], args["timeout_ms"], args["now"], args["record_last_epoch"])
        return self.prepare(args, lambda metadata: metadata.prepare_rotation(*asked))

    def prepare_add_partitions(self, args: Args) -> Returns:
        added = frozenset(args["partitions"])
        return self.prepare(args, lambda metadata: metadata.prepare_add_partitions(added, args["now"]))

    def prepare_end(self, args: Args) -> Returns:
        asked = (TransactionState(args["state"]), args["client_tv"], args["next_producer_id"], args["now"])
        return self.prepare(args, lambda metadata: metadata.prepare_end(*asked))

    def prepare_complete(self, args: Args) -> Returns:
        return self.prepare(args, lambda metadata: metadata.prepare_complete(args["now"]))

    def prepare_fence(self, args: Args) -> Returns:
        return self.prepare(args, lambda metadata: metadata.prepare_fence())

    def clear_pending(self, args: Args) -> None:
        self._object(args["transactional_id"]).pending_state = None

    def _object(self, name: str) -> TransactionMetadata:
        """The metadata itself, whoever owns the partition."""
        if name not in self.store.txns:
            raise Refused(ILLEGAL_STATE)
        return self.store.txns[name]

    def _transition(self, name: str) -> Prepared:
        if name not in self.coordinator.transitions:
            raise Refused(ILLEGAL_STATE)
        return self.coordinator.transitions[name]

    def complete_transition(self, args: Args) -> None:
        name = args["transactional_id"]
        self._object(name).complete(self._transition(name).value)

    def append_prepared(self, args: Args) -> None:
        name, result = args["transactional_id"], args["append"]
        retried = (coordinator_error(result),) if args.get("retry") else ()
        self.store.append(name, self._transition(name), result, retried)


_OF_CLIENTS = frozenset(
    ("init_producer_id", "add_partitions", "verify_partitions", "end_txn", "describe", "list", "complete_markers")
)
_OPERATIONS: dict[str, Callable[[CoordinatorModel, Args], Returns | None]] = {
    name: operation
    for name, operation in vars(CoordinatorModel).items()
    if not name.startswith("_") and name not in ("apply", "state", "prepare")
}
