"""Transactional ids of one `__transaction_state` partition in memory, and every write to its log.

Source: TransactionStateManager of Kafka's trunk of October 2024; semantics 3.9 to 3.11.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from auditor.model.transaction_states import IDLE, NO_PRODUCER_EPOCH, PREPARED, TransactionState, TransactionValue
from tests.reference.refusal import ILLEGAL_STATE, Refused
from tests.reference.transaction_metadata import TransactionMetadata

OK = "ok"
DEFAULT_MAX_TIMEOUT_MS = 900_000
DEFAULT_EXPIRATION_MS = 604_800_000
_AS_COORDINATOR_ERROR = {
    "UNKNOWN_TOPIC_OR_PARTITION": "COORDINATOR_NOT_AVAILABLE",
    "NOT_ENOUGH_REPLICAS": "COORDINATOR_NOT_AVAILABLE",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": "COORDINATOR_NOT_AVAILABLE",
    "REQUEST_TIMED_OUT": "COORDINATOR_NOT_AVAILABLE",
    "NOT_LEADER_OR_FOLLOWER": "NOT_COORDINATOR",
    "KAFKA_STORAGE_ERROR": "NOT_COORDINATOR",
    "MESSAGE_TOO_LARGE": "UNKNOWN_SERVER_ERROR",
    "RECORD_LIST_TOO_LARGE": "UNKNOWN_SERVER_ERROR",
}


class Availability(StrEnum):
    """Whether this broker leads the partition, and has loaded it."""

    OWNER = "owner"
    LOADING = "loading"
    NOT_OWNER = "not_owner"


class LogRecord(NamedTuple):
    """One record of the transaction log: `value` None is a tombstone; `version` is the value's, None: the newest."""

    transactional_id: str
    value: TransactionValue | None
    version: int | None = None


class Prepared(NamedTuple):
    """A transition on its way to the log, and the coordinator epoch it was prepared under."""

    coordinator_epoch: int
    value: TransactionValue


def coordinator_error(append_error: str) -> str:
    """Return the coordinator's error for its client after an error of the log."""
    return _AS_COORDINATOR_ERROR.get(append_error, append_error)


class TransactionStore:
    """The ids that a coordinator owns.

    `max_timeout_ms`: longest transaction time-out a client may ask for; `expiration_ms`: idle time after which an id
    is forgotten; `keeps_last_epoch`: the log carries the last epoch (KIP-360's text), which no release does.
    `log_count` and `last_record` show what was written since the start.
    """

    def __init__(
        self,
        coordinator_epoch: int = 0,
        availability: Availability = Availability.OWNER,
        max_timeout_ms: int = DEFAULT_MAX_TIMEOUT_MS,
        expiration_ms: int = DEFAULT_EXPIRATION_MS,
        keeps_last_epoch: bool = False,
    ) -> None:
        self.coordinator_epoch = coordinator_epoch
        self.availability = availability
        self.max_timeout_ms = max_timeout_ms
        self.expiration_ms = expiration_ms
        self.keeps_last_epoch = keeps_last_epoch
        self.txns: dict[str, TransactionMetadata] = {}
        self.log_count = 0
        self.last_record: LogRecord | None = None

    def find(self, transactional_id: str) -> TransactionMetadata | None:
        """Return the metadata of an id, None without one; Refused while the partition is loading or led elsewhere."""
        if self.availability == Availability.LOADING:
            raise Refused("COORDINATOR_LOAD_IN_PROGRESS")
        if self.availability == Availability.NOT_OWNER:
            raise Refused("NOT_COORDINATOR")
        return self.txns.get(transactional_id)

    def valid_timeout(self, timeout_ms: int) -> bool:
        """Whether a client may ask for this transaction time-out."""
        return 0 < timeout_ms <= self.max_timeout_ms

    def prepared(self, value: TransactionValue) -> Prepared:
        """Stamp a prepared transition with the present coordinator epoch."""
        return Prepared(self.coordinator_epoch, value)

    def append(self, transactional_id: str, prepared: Prepared, result: str = OK, retried: Iterable[str] = ()) -> None:
        """Write a prepared transition and complete it.

        `result` is what the log answers, `ok` or an error. Refused with the coordinator's name of that error; the
        transition is then forgotten, unless the caller retries that error by itself (`retried`). A transition of an
        earlier term of this coordinator is Refused(NOT_COORDINATOR).
        """
        metadata = self.find(transactional_id)
        if metadata is None or prepared.coordinator_epoch != self.coordinator_epoch:
            raise Refused("NOT_COORDINATOR")
        if result != OK:
            error = coordinator_error(result)
            if error not in retried:
                metadata.pending_state = None
            raise Refused(error)
        metadata.complete(prepared.value)
        self._written(LogRecord(transactional_id, prepared.value))

    def _written(self, record: LogRecord) -> None:
        self.log_count += 1
        self.last_record = record

    def load(self, records: Iterable[LogRecord], coordinator_epoch: int) -> list[str]:
        """Become the owner from the partition's log; returns the ids whose markers have to be sent again, sorted.

        The last value of an id wins, a tombstone removes it, and a value of an unknown version ends the reading there.
        """
        self.txns = {}
        for record in records:
            if record.version is not None and not 0 <= record.version <= 1:
                break
            if record.value is None:
                self.txns.pop(record.transactional_id, None)
            else:
                self.txns[record.transactional_id] = TransactionMetadata(self._as_read(record.value, record.version))
        self.coordinator_epoch = coordinator_epoch
        self.availability = Availability.OWNER
        return sorted(name for name, metadata in self.txns.items() if metadata.value.state in PREPARED)

    def _as_read(self, value: TransactionValue, version: int | None) -> TransactionValue:
        """A value as read back from the log: version 0 has no tagged fields, and the last epoch is never written."""
        if not self.keeps_last_epoch:
            value = value._replace(last_producer_epoch=NO_PRODUCER_EPOCH)
        if version == 0:
            value = value._replace(previous_producer_id=-1, next_producer_id=-1, client_tv=0)
        return value

    def unload(self) -> None:
        """Resign: another broker leads the partition."""
        self.txns = {}
        self.availability = Availability.NOT_OWNER

    def timed_out(self, now: int) -> list[str]:
        """Ids, sorted, whose open transaction is older than its time-out at `now`."""
        if self.availability != Availability.OWNER:
            return []
        return sorted(
            name
            for name, metadata in self.txns.items()
            if metadata.pending_state is None
            and metadata.value.state == TransactionState.ONGOING
            and metadata.value.start_ts + metadata.value.timeout_ms < now
        )

    def expire(self, now: int, result: str = OK) -> list[str]:
        """Write tombstones for the ids that expired at `now`; returns the ids, sorted, also when the log refused."""
        if self.availability != Availability.OWNER:
            return []
        expired = sorted(
            name
            for name, metadata in self.txns.items()
            if metadata.pending_state is None
            and metadata.value.state in IDLE
            and metadata.value.last_update_ts <= now - self.expiration_ms
        )
        for name in expired:
            self.txns[name].prepare_dead()
            if result == OK:
                del self.txns[name]
                self._written(LogRecord(name, None))
            else:
                self.txns[name].pending_state = None
        return expired

    def describe(self, transactional_id: str) -> TransactionValue:
        """DescribeTransactions of one id: its value. Refused when it is unknown or being removed."""
        if not transactional_id:
            raise Refused("INVALID_REQUEST")
        metadata = self.find(transactional_id)
        if metadata is None or metadata.value.state == TransactionState.DEAD:
            raise Refused("TRANSACTIONAL_ID_NOT_FOUND")
        return metadata.value

    def list_transactions(
        self, now: int, duration_ms: int = -1, states: Iterable[str] = (), producer_ids: Iterable[int] = ()
    ) -> tuple[list[str], list[str]]:
        """ListTransactions: (ids, state names that do not exist), both sorted.

        `duration_ms`: only transactions that began longer ago than this; negative: any. Empty filters let all pass.
        """
        if self.availability == Availability.LOADING:
            raise Refused("COORDINATOR_LOAD_IN_PROGRESS")
        states, producer_ids = set(states), set(producer_ids)

        def listed(value: TransactionValue) -> bool:
            return (
                value.state != TransactionState.DEAD
                and (not producer_ids or value.producer_id in producer_ids)
                and (not states or value.state in states)
                and (duration_ms < 0 or now - value.start_ts > duration_ms)
            )

        ids = sorted(name for name, metadata in self.txns.items() if listed(metadata.value))
        return ids, sorted(states - {state.value for state in TransactionState})

    def known(self, transactional_id: str) -> TransactionMetadata:
        """Return the metadata of an id that the caller must have; Refused(ILLEGAL_STATE) otherwise."""
        metadata = self.find(transactional_id)
        if metadata is None:
            raise Refused(ILLEGAL_STATE)
        return metadata
