"""State of one transactional id in a coordinator, and the two steps of each of its transitions.

A transition is prepared (computed and noted as pending), written to the transaction log, then completed (checked and
applied). Source: TransactionMetadata of Kafka's trunk of October 2024; KIP-98, KIP-360, KIP-890.
"""

from __future__ import annotations

from dataclasses import dataclass

from auditor.base.errors import LAST_EPOCH
from auditor.model.transaction_states import (
    COMPLETED,
    COMPLETION_OF,
    EXHAUSTED_EPOCH,
    IDLE,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    STATES_BY_ID,
    CachedTransaction,
    TransactionState,
    TransactionValue,
    bumps_epoch,
    fenced,
    legal_previous,
    step_problem,
)
from tests.reference.refusal import ILLEGAL_ARGUMENT, ILLEGAL_STATE, Refused


def state_by_id(state_id: int) -> TransactionState:
    """Return the state of the byte in a log record; Refused(ILLEGAL_STATE) for an unknown byte."""
    if not 0 <= state_id < len(STATES_BY_ID):
        raise Refused(ILLEGAL_STATE)
    return STATES_BY_ID[state_id]


@dataclass
class TransactionMetadata:
    """One transactional id in the coordinator's memory.

    `value`: as the last completed transition left it. `pending_state`: target of the transition that is prepared and
    not yet completed. `has_failed_epoch_fence`: a fencing epoch was taken but could not be written, and is taken again.
    """

    value: TransactionValue
    pending_state: TransactionState | None = None
    has_failed_epoch_fence: bool = False

    @property
    def epoch_exhausted(self) -> bool:
        """Whether no further epoch may be given to a client."""
        return self.value.producer_epoch >= EXHAUSTED_EPOCH

    def prepare_increment_epoch(
        self, timeout_ms: int, expected_epoch: int | None, now: int, fenced_error: str = "PRODUCER_FENCED"
    ) -> TransactionValue:
        """Next epoch for InitProducerId (KIP-360); `expected_epoch` is what a recovering client holds, else None.

        Refused with `fenced_error` when the client holds neither the current nor the last epoch, and with
        ILLEGAL_STATE when no epoch is left.
        """
        value = self.value
        if self.epoch_exhausted:
            raise Refused(ILLEGAL_STATE)
        epoch, last = value.producer_epoch + 1, NO_PRODUCER_EPOCH
        if expected_epoch is not None and value.producer_epoch in (NO_PRODUCER_EPOCH, expected_epoch):
            last = value.producer_epoch
        elif expected_epoch is not None and expected_epoch == value.last_producer_epoch:
            epoch, last = value.producer_epoch, value.last_producer_epoch  # a retry of the request that bumped
        elif expected_epoch is not None:
            raise Refused(fenced_error)
        return self._prepare(self._renewed(value.producer_id, epoch, last, timeout_ms, now))

    def prepare_rotation(self, new_producer_id: int, timeout_ms: int, now: int, record_last: bool) -> TransactionValue:
        """A new producer id at epoch 0, for an exhausted one; `record_last` keeps the old epoch for a retry."""
        last = self.value.producer_epoch if record_last else NO_PRODUCER_EPOCH
        return self._prepare(self._renewed(new_producer_id, 0, last, timeout_ms, now))

    def _renewed(self, producer_id: int, epoch: int, last: int, timeout_ms: int, now: int) -> TransactionValue:
        return TransactionValue(
            producer_id=producer_id,
            producer_epoch=epoch,
            last_producer_epoch=last,
            timeout_ms=timeout_ms,
            state=TransactionState.EMPTY,
            last_update_ts=now,
        )

    def prepare_add_partitions(self, partitions: frozenset[str], now: int) -> TransactionValue:
        """Ongoing with `partitions` added; the transaction starts now unless it is open already."""
        value = self.value
        return self._prepare(
            value._replace(
                state=TransactionState.ONGOING,
                partitions=value.partitions | partitions,
                start_ts=now if value.state in IDLE else value.start_ts,
                last_update_ts=now,
                client_tv=0,
            )
        )

    def prepare_end(self, state: TransactionState, client_tv: int, next_producer_id: int, now: int) -> TransactionValue:
        """Prepare the decision: PrepareCommit or PrepareAbort, with transaction.version 2 with a bumped epoch.

        `next_producer_id`: id that takes over at completion when the epochs are exhausted, -1 otherwise. An epoch that
        fencing has taken to 32767 stays there.
        """
        value = self.value
        epoch, last = value.producer_epoch, value.last_producer_epoch
        if bumps_epoch(client_tv) and epoch < LAST_EPOCH:
            epoch, last = epoch + 1, epoch
        return self._prepare(
            value._replace(
                state=state,
                producer_epoch=epoch,
                last_producer_epoch=last,
                next_producer_id=next_producer_id,
                last_update_ts=now,
                client_tv=client_tv,
            )
        )

    def prepare_complete(self, now: int) -> TransactionValue:
        """Prepare the end of a decided transaction, once every partition has its marker."""
        value = self.value
        state = COMPLETION_OF.get(value.state, TransactionState.COMPLETE_ABORT)
        done = value._replace(state=state, partitions=frozenset(), last_update_ts=now, next_producer_id=NO_PRODUCER_ID)
        if bumps_epoch(value.client_tv):
            done = done._replace(last_producer_epoch=value.producer_epoch)
            if value.next_producer_id != NO_PRODUCER_ID:
                done = done._replace(producer_id=value.next_producer_id, producer_epoch=0)
        prepared = self._prepare(done)
        self.has_failed_epoch_fence = False  # the decision is in the log, and the fencing epoch with it
        return prepared

    def prepare_fence(self) -> TransactionValue:
        """Prepare the epoch that fences the producer before an abort; it is never written by itself."""
        value = self.value
        epoch = value.producer_epoch
        if not self.has_failed_epoch_fence:
            if epoch == LAST_EPOCH:
                raise Refused(ILLEGAL_STATE)
            epoch += 1
        return self._prepare(
            value._replace(
                state=TransactionState.PREPARE_EPOCH_FENCE, producer_epoch=epoch, last_producer_epoch=NO_PRODUCER_EPOCH
            )
        )

    def prepare_dead(self) -> TransactionValue:
        """Prepare the tombstone of an expired id."""
        return self._prepare(self.value._replace(state=TransactionState.DEAD, partitions=frozenset()))

    def _prepare(self, new: TransactionValue) -> TransactionValue:
        if self.pending_state is not None:
            raise Refused(ILLEGAL_STATE)
        if new.producer_id < 0 or (new.state != TransactionState.DEAD and new.producer_epoch < 0):
            raise Refused(ILLEGAL_ARGUMENT)
        if self.value.state not in legal_previous(new.state):
            raise Refused(ILLEGAL_STATE)
        self.pending_state = new.state
        return new._replace(previous_producer_id=self.value.producer_id)

    def take_fencing_epoch(self, epoch: int) -> None:
        """Turn a prepared fence into the abort that follows it: the epoch is taken before the log has it."""
        self.pending_state = None
        self.value = fenced(self.value, epoch)

    def complete(self, new: TransactionValue) -> None:
        """Apply a prepared transition; Refused(ILLEGAL_STATE) when it is not pending or breaks an invariant."""
        if self.pending_state != new.state or new.state in (
            TransactionState.PREPARE_EPOCH_FENCE,
            TransactionState.DEAD,
        ):
            raise Refused(ILLEGAL_STATE)
        without_start = new.state in COMPLETED and new.start_ts == NO_TIMESTAMP
        if without_start or step_problem(CachedTransaction(self.value, self.has_failed_epoch_fence), new):
            raise Refused(ILLEGAL_STATE)
        if new.state == TransactionState.EMPTY:
            new = new._replace(start_ts=self.value.start_ts)  # only the record says -1
        self.value = new
        self.pending_state = None
