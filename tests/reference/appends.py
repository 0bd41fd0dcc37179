"""One append to a partition: its items and their effects, pending until all of them have passed.

Sources: ProducerAppendInfo, AppendOrigin (KIP-98, KIP-360, KIP-890).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from auditor.model import producers as kernel
from auditor.model import producers as model_producers
from auditor.model.policies import ERRORS, OK, Policy
from auditor.model.producers import NONE
from tests.reference import pending_producers
from tests.reference.refusal import Refused
from tests.reference.transactions import Completed
from tests.reference.verification import Verifications

CLIENT, COORDINATOR, REPLICATION = "client", "coordinator", "replication"


class Batch(NamedTuple):
    """A data batch with a producer id. ``guard`` is the verification guard that the append carries."""

    producer_id: int
    epoch: int
    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    max_timestamp: int
    transactional: bool
    guard: object | None = None


class Marker(NamedTuple):
    """An end transaction marker: a control batch of one record. ``transaction_version``: that of its request."""

    producer_id: int
    epoch: int
    coordinator_epoch: int
    first_offset: int
    timestamp: int
    aborted: bool
    transaction_version: int = 0

    @property
    def last_offset(self) -> int:
        """The marker's offset."""
        return self.first_offset


class EmptyControl(NamedTuple):
    """A control batch whose record was compacted away."""

    producer_id: int
    epoch: int
    first_offset: int

    @property
    def last_offset(self) -> int:
        """The batch's offset."""
        return self.first_offset


class Plain(NamedTuple):
    """Records without a producer id."""

    first_offset: int
    last_offset: int


Item = Batch | Marker | EmptyControl | Plain


def require(answer: int) -> None:
    """Raise :class:`Refused` unless ``answer`` is OK."""
    if answer != OK:
        raise Refused(ERRORS[answer])


class State(Protocol):
    """What an append is checked against: the map of one partition (:mod:`tests.reference.producer_state`)."""

    policy: Policy
    producers: kernel.Producers
    verifications: Verifications


class Pending:
    """Effects of one append, item by item, on copies of the producers it concerns (ProducerAppendInfo)."""

    def __init__(self, state: State, origin: str) -> None:
        self.state = state
        self.origin = origin
        self.producers = kernel.new_producers(8, state.policy.cached_batches)
        self.started: list[tuple[int, int]] = []  # first offset, producer id
        self.completed: list[Completed] = []
        self.verified: set[int] = set()

    def take(self, item: Item) -> None:
        """Check one item and add its effects; :class:`Refused` ends the whole append."""
        if isinstance(item, Plain):
            return
        row = pending_producers.begin(self.state.producers, self.producers, item.producer_id)
        if row == NONE:
            self.producers = kernel.grow(self.producers)
            row = pending_producers.begin(self.state.producers, self.producers, item.producer_id)
        if isinstance(item, Batch):
            self._take_batch(row, item)
        else:
            self.verified.add(item.producer_id)
            if isinstance(item, Marker):
                self._take_marker(row, item)

    def _take_batch(self, row: int, batch: Batch) -> None:
        if self.origin != REPLICATION:
            require(model_producers.check_epoch(self.producers, row, batch.epoch))
        if self.origin == CLIENT:
            self._check_sequence(row, batch)
        was_open = self.producers.txn_first_offset[row] != NONE
        require(
            model_producers.apply_data(
                self.producers,
                row,
                batch.epoch,
                batch.last_sequence,
                batch.first_offset,
                batch.last_offset,
                batch.max_timestamp,
                batch.transactional,
            )
        )
        if batch.transactional:
            self.verified.add(batch.producer_id)
            if not was_open:
                self.started.append((batch.first_offset, batch.producer_id))

    def _check_sequence(self, row: int, batch: Batch) -> None:
        state = self.state
        stored_row = kernel.find(state.producers, batch.producer_id)
        stored_epoch = NONE if stored_row == NONE else int(state.producers.epoch[stored_row])
        verification = state.verifications.entries.get(batch.producer_id)
        knows_batches = stored_row != NONE and bool(state.producers.cached[stored_row])
        if verification and not verification.admits(state.policy, batch.first_sequence, knows_batches):
            raise Refused("OUT_OF_ORDER_SEQUENCE_NUMBER")
        last = NONE
        if self.producers.cached[row]:
            last = kernel.newest_sequence(self.producers, row)
        elif stored_epoch == batch.epoch:
            last = kernel.newest_sequence(state.producers, stored_row)
        pending_epoch = int(self.producers.epoch[row])
        require(
            model_producers.sequence_answer(
                state.policy, batch.epoch, batch.first_sequence, stored_epoch, pending_epoch, last
            )
        )

    def _take_marker(self, row: int, marker: Marker) -> None:
        policy = self.state.policy
        if self.origin != REPLICATION or policy.follower_checks_markers:
            check = model_producers.check_marker
            require(check(self.producers, row, marker.epoch, marker.coordinator_epoch, marker.transaction_version))
        first_offset = int(
            model_producers.apply_marker(self.producers, row, marker.epoch, marker.coordinator_epoch, marker.timestamp)
        )
        if first_offset == NONE and policy.lone_marker_completes:
            first_offset = marker.first_offset
            self.started.append((first_offset, marker.producer_id))
        if first_offset != NONE:
            closed = Completed(marker.producer_id, first_offset, marker.last_offset, marker.aborted)
            self.completed.append(closed)
