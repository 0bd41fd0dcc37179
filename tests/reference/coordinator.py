"""Decisions of the transaction coordinator: InitProducerId, AddPartitionsToTxn, EndTxn, markers and timeouts.

Every refusal is a :class:`tests.reference.refusal.Refused` that leaves no trace, except where an error of the log
leaves one by design (a fencing epoch that was taken). Internal errors are reported as such, not as a client would see
them. Times are arguments, epoch milliseconds. Source: TransactionCoordinator of Kafka's trunk of October 2024; KIP-98,
KIP-360, KIP-890; semantics section 3.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from auditor.model.transaction_states import (
    COMPLETED,
    EXHAUSTED_EPOCH,
    IDLE,
    NEVER_WRITTEN,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    PREPARED,
    TransactionState,
    TransactionValue,
    bumps_epoch,
)
from tests.reference.refusal import ILLEGAL_STATE, Refused
from tests.reference.transaction_metadata import TransactionMetadata
from tests.reference.transaction_store import OK, LogRecord, Prepared, TransactionStore

COMMIT = "COMMIT"
ABORT = "ABORT"
_PREPARE = {COMMIT: TransactionState.PREPARE_COMMIT, ABORT: TransactionState.PREPARE_ABORT}
_STATES_OF = {
    COMMIT: (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT),
    ABORT: (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT),
}


class ProducerIdAndEpoch(NamedTuple):
    """Producer id and epoch that a producer's batches carry."""

    producer_id: int
    producer_epoch: int


class MarkersSent(NamedTuple):
    """A decision on its way to the partitions of a transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    result: str
    coordinator_epoch: int
    partitions: list[str]


class CoordinatorPolicy(NamedTuple):
    """Differences between generations of coordinators.

    `fenced_error`: name of the error for a wrong epoch; `takes_expected_epoch`: InitProducerId looks at the epoch a
    client holds (2.5); `keeps_last_epoch`: the last epoch survives a failover, as KIP-360's text has it.
    """

    fenced_error: str = "PRODUCER_FENCED"
    takes_expected_epoch: bool = True
    keeps_last_epoch: bool = False


def coordinator_policy(name: str) -> CoordinatorPolicy:
    """Policy of a name of conformance/README.md; names that say nothing about coordinators are `kip-360`."""
    if name == "pre-kip-360":
        return CoordinatorPolicy(fenced_error="INVALID_PRODUCER_EPOCH", takes_expected_epoch=False)
    if name == "kip-360-text":
        return CoordinatorPolicy(fenced_error="INVALID_PRODUCER_EPOCH", keeps_last_epoch=True)
    return CoordinatorPolicy()


class Coordinator:
    """One coordinator over one store.

    `server_tv`: the cluster's transaction.version, with which the coordinator aborts on its own; `next_producer_ids`:
    ids to hand out, oldest first. `markers_sent` is everything sent since the start; `transitions` holds for each id
    the last transition that was prepared to be written later, such as the completion that waits for its markers.
    """

    def __init__(
        self,
        store: TransactionStore,
        policy: CoordinatorPolicy,
        server_tv: int = 0,
        next_producer_ids: Iterable[int] = (),
    ) -> None:
        self.store = store
        self.policy = policy
        self.server_tv = server_tv
        self.markers_sent: list[MarkersSent] = []
        self._next_producer_ids = list(next_producer_ids)
        self.transitions: dict[str, Prepared] = {}

    def init_producer_id(
        self,
        transactional_id: str | None,
        timeout_ms: int,
        now: int,
        expected: ProducerIdAndEpoch | None = None,
        append: str = OK,
    ) -> ProducerIdAndEpoch:
        """Answer InitProducerId (KIP-360): the producer's next id and epoch.

        `transactional_id` None: idempotence only, nothing is remembered. `expected`: what a recovering producer holds.
        """
        if transactional_id is None:
            return ProducerIdAndEpoch(self._new_producer_id(), 0)
        if not transactional_id:
            raise Refused("INVALID_REQUEST")
        if not self.store.valid_timeout(timeout_ms):
            raise Refused("INVALID_TRANSACTION_TIMEOUT")
        if not self.policy.takes_expected_epoch:
            expected = None
        metadata = self._found_or_created(transactional_id, timeout_ms, now)
        if metadata.pending_state is not None:
            raise Refused("CONCURRENT_TRANSACTIONS")
        if expected is not None and not _may_recover(metadata.value, expected):
            raise Refused(self.policy.fenced_error)
        if metadata.value.state in PREPARED:
            raise Refused("CONCURRENT_TRANSACTIONS")
        if metadata.value.state == TransactionState.ONGOING:
            self._fence_and_abort(transactional_id, metadata, now, append)
            raise Refused("CONCURRENT_TRANSACTIONS")
        if metadata.value.state not in IDLE:
            raise Refused(ILLEGAL_STATE)
        value = self._renew(metadata, timeout_ms, expected, now)
        self.store.append(transactional_id, self.store.prepared(value), append)
        return ProducerIdAndEpoch(value.producer_id, value.producer_epoch)

    def _new_producer_id(self) -> int:
        if not self._next_producer_ids:
            raise Refused("COORDINATOR_LOAD_IN_PROGRESS")  # what the id manager says while it waits for a new block
        return self._next_producer_ids.pop(0)

    def _found_or_created(self, transactional_id: str, timeout_ms: int, now: int) -> TransactionMetadata:
        metadata = self.store.find(transactional_id)
        if metadata is None:
            created = TransactionValue(self._new_producer_id(), NO_PRODUCER_EPOCH, timeout_ms, last_update_ts=now)
            metadata = self.store.txns[transactional_id] = TransactionMetadata(created)
        return metadata

    def _renew(
        self, metadata: TransactionMetadata, timeout_ms: int, expected: ProducerIdAndEpoch | None, now: int
    ) -> TransactionValue:
        """Next epoch, or a new producer id when the epochs are used up."""
        epoch = None if expected is None else expected.producer_epoch
        if metadata.epoch_exhausted and epoch in (None, metadata.value.producer_epoch):
            return metadata.prepare_rotation(self._new_producer_id(), timeout_ms, now, record_last=epoch is not None)
        return metadata.prepare_increment_epoch(timeout_ms, epoch, now, self.policy.fenced_error)

    def add_partitions(
        self,
        transactional_id: str | None,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[str],
        now: int,
        append: str = OK,
    ) -> bool:
        """Answer AddPartitionsToTxn: whether a record was needed, which it is not for partitions added before."""
        transactional_id, metadata = self._of_producer(transactional_id, producer)
        if metadata.pending_state is not None or metadata.value.state in PREPARED:
            raise Refused("CONCURRENT_TRANSACTIONS")
        added = frozenset(partitions)
        if metadata.value.state == TransactionState.ONGOING and added <= metadata.value.partitions:
            return False
        value = metadata.prepare_add_partitions(added, now)
        self.store.append(transactional_id, self.store.prepared(value), append)
        return True

    def verify_partitions(
        self, transactional_id: str | None, producer: ProducerIdAndEpoch, partitions: Iterable[str]
    ) -> dict[str, str]:
        """Answer a verify-only AddPartitionsToTxn (KIP-890): for each partition NONE, or its error."""
        _, metadata = self._of_producer(transactional_id, producer)
        if metadata.value.state in PREPARED:
            raise Refused("CONCURRENT_TRANSACTIONS")
        return {name: "NONE" if name in metadata.value.partitions else "TRANSACTION_ABORTABLE" for name in partitions}

    def _known_id(self, transactional_id: str | None) -> tuple[str, TransactionMetadata]:
        if not transactional_id:
            raise Refused("INVALID_REQUEST")
        metadata = self.store.find(transactional_id)
        if metadata is None:
            raise Refused("INVALID_PRODUCER_ID_MAPPING")
        return transactional_id, metadata

    def _of_producer(
        self, transactional_id: str | None, producer: ProducerIdAndEpoch
    ) -> tuple[str, TransactionMetadata]:
        name, metadata = self._known_id(transactional_id)
        if metadata.value.producer_id != producer.producer_id:
            raise Refused("INVALID_PRODUCER_ID_MAPPING")
        if metadata.value.producer_epoch != producer.producer_epoch:
            raise Refused(self.policy.fenced_error)
        return name, metadata

    def end_txn(
        self,
        transactional_id: str | None,
        producer: ProducerIdAndEpoch,
        result: str,
        client_tv: int,
        now: int,
        append: str = OK,
    ) -> ProducerIdAndEpoch:
        """Answer a client's EndTxn: write the decision, send the markers, return the producer's next id and epoch.

        `client_tv`: transaction.version the client speaks, 2 for EndTxn version 5.
        """
        name, metadata = self._known_id(transactional_id)
        value = metadata.value
        overflowed = _retry_over_rotation(value, producer)
        if value.producer_id != producer.producer_id and not overflowed:
            raise Refused("INVALID_PRODUCER_ID_MAPPING")
        if not (overflowed or _valid_end_epoch(value, producer.producer_epoch)):
            raise Refused(self.policy.fenced_error)
        fencing = metadata.pending_state == TransactionState.PREPARE_EPOCH_FENCE
        if metadata.pending_state is not None and not fencing:
            raise Refused("CONCURRENT_TRANSACTIONS")
        if value.state == TransactionState.ONGOING:
            return self._decide(name, metadata, producer.producer_epoch, result, client_tv, now, append)
        if value.state in NEVER_WRITTEN:
            raise Refused(ILLEGAL_STATE)
        if value.state not in _STATES_OF[result]:
            raise Refused("INVALID_TXN_STATE")
        if value.state in PREPARED:
            raise Refused("CONCURRENT_TRANSACTIONS")
        return ProducerIdAndEpoch(value.producer_id, value.producer_epoch)

    def _decide(
        self,
        name: str,
        metadata: TransactionMetadata,
        epoch: int,
        result: str,
        client_tv: int,
        now: int,
        append: str,
    ) -> ProducerIdAndEpoch:
        """Write the decision on an open transaction and send its markers; `epoch` is the requester's."""
        fencing = metadata.pending_state == TransactionState.PREPARE_EPOCH_FENCE
        rotates = bumps_epoch(client_tv) and metadata.epoch_exhausted and not fencing
        next_id = self._new_producer_id() if rotates else NO_PRODUCER_ID
        if fencing and result == ABORT:
            metadata.take_fencing_epoch(epoch)
        value = metadata.prepare_end(_PREPARE[result], client_tv, next_id, now)
        try:
            self.store.append(name, self.store.prepared(value), append)
        except Refused:
            metadata.has_failed_epoch_fence |= fencing
            raise
        return self._send_markers(name, metadata, now)

    def _send_markers(self, name: str, metadata: TransactionMetadata, now: int) -> ProducerIdAndEpoch:
        """Send the markers of a decided transaction; returns the id and epoch that it will complete with."""
        value = metadata.value
        completion = metadata.prepare_complete(now)
        self.transitions[name] = self.store.prepared(completion)
        result = COMMIT if value.state == TransactionState.PREPARE_COMMIT else ABORT
        self.markers_sent.append(
            MarkersSent(
                name,
                value.producer_id,
                value.producer_epoch,
                result,
                self.store.coordinator_epoch,
                sorted(value.partitions),
            )
        )
        return ProducerIdAndEpoch(completion.producer_id, completion.producer_epoch)

    def marker_acked(self, transactional_id: str, partition: str) -> list[str]:
        """Note that a partition wrote its marker; return the partitions, sorted, that have not answered yet."""
        metadata = self.store.known(transactional_id)
        if metadata.value.state not in PREPARED:
            raise Refused(ILLEGAL_STATE)
        remaining = metadata.value.partitions - {partition}
        metadata.value = metadata.value._replace(partitions=remaining)
        return sorted(remaining)

    def complete_markers(self, transactional_id: str, append: str = OK) -> None:
        """Write the Complete record after all partitions answered.

        A decision whose markers this coordinator never sent completes as of the time it was taken.
        """
        metadata = self.store.known(transactional_id)
        if metadata.value.state in PREPARED and transactional_id not in self.transitions:
            completion = metadata.prepare_complete(metadata.value.last_update_ts)
            self.transitions[transactional_id] = self.store.prepared(completion)
        if metadata.pending_state not in COMPLETED:
            raise Refused(ILLEGAL_STATE)
        prepared = self.transitions[transactional_id]
        self.store.append(transactional_id, prepared, append, retried=("COORDINATOR_NOT_AVAILABLE",))

    def abort_timed_out(self, now: int, append: str = OK) -> dict[str, str]:
        """Run the timeout task once: for each overdue transaction NONE, or why it could not end."""
        outcomes = {}
        for name in self.store.timed_out(now):
            try:
                self._fence_and_abort(name, self.store.txns[name], now, append)
                outcomes[name] = "NONE"
            except Refused as refused:
                outcomes[name] = refused.as_seen_by_client().error
        return outcomes

    def _fence_and_abort(self, name: str, metadata: TransactionMetadata, now: int, append: str) -> None:
        """Abort an open transaction on the coordinator's own account, with an epoch that fences its producer."""
        epoch = metadata.prepare_fence().producer_epoch
        self._decide(name, metadata, epoch, ABORT, self.server_tv, now, append)

    def load(self, records: Iterable[LogRecord], coordinator_epoch: int, now: int) -> list[MarkersSent]:
        """Become the owner from the log; return the markers sent again for decided transactions, in order of id."""
        decided = self.store.load(records, coordinator_epoch)
        for name in decided:
            self._send_markers(name, self.store.txns[name], now)
        return self.markers_sent[len(self.markers_sent) - len(decided) :]


def _may_recover(value: TransactionValue, expected: ProducerIdAndEpoch) -> bool:
    """Whether a producer that holds `expected` may be this id's; its epoch is judged when the next one is computed."""
    return (
        value.producer_epoch == NO_PRODUCER_EPOCH
        or expected.producer_id == value.producer_id
        or (expected.producer_id == value.previous_producer_id and expected.producer_epoch >= EXHAUSTED_EPOCH)
    )


def _retry_over_rotation(value: TransactionValue, producer: ProducerIdAndEpoch) -> bool:
    """Whether an EndTxn repeats the one that used the last epoch up and was completed under a new producer id."""
    return (
        bumps_epoch(value.client_tv)
        and value.state in COMPLETED
        and producer == (value.previous_producer_id, EXHAUSTED_EPOCH)
        and value.producer_epoch == 0
    )


def _valid_end_epoch(value: TransactionValue, epoch: int) -> bool:
    """Whether an EndTxn may carry `epoch`: the current one, or, once version 2 has raised it, the one before."""
    if bumps_epoch(value.client_tv) and value.state in PREPARED | COMPLETED:
        return value.producer_epoch == epoch + 1
    return epoch == value.producer_epoch
