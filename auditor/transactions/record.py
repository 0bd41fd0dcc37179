"""The record of an incomplete transaction, for rules, tables, pages and alerts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import NamedTuple

import numpy as np

from auditor.base.at_rest import Fields
from auditor.base.transactional_ids import IdOrigin
from auditor.base.words import NO_TIMEOUT_MS
from auditor.evidence.cluster_clocks import HOUR_MS, Confidence, Held
from auditor.facts.coordinator_log import StateRecord
from auditor.facts.replica_facts import TRANSACTION
from auditor.model.transaction_states import PREPARED

DEFAULT_TIMEOUT_MS = 15 * 60_000  # transaction.max.timeout.ms


class Status(StrEnum):
    """Status of a transaction."""

    OPEN = "open"  # within its timeout
    OVERDUE = "overdue"
    HANGING = "hanging"  # no coordinator will complete it
    PREPARED = "prepared"  # decided, its marker is not written yet
    COMPLETED = "completed"  # ended after its log was copied
    UNKNOWN = "unknown"


class Case(StrEnum):
    """The broker that will end a transaction, by the records alone (rules.md, *Classes of an open transaction*)."""

    ACTIVE = "active"  # its coordinator, within its timeout
    LATE = "late"  # its coordinator, past its timeout
    HANGING = "hanging"  # no coordinator, by the last record of its id
    ORPHAN = "orphan"  # no coordinator: no transactional id ever had its producer id
    GHOST = "ghost"  # its data is below the log start
    UNDECIDABLE = "undecidable"  # the deciding record is not in the input


class BlockedState(StrEnum):
    """Status of a partition with an open transaction, most severe first."""

    STUCK = "stuck"  # no coordinator will complete the transaction
    OVERDUE = "overdue"  # it is open past its timeout
    UNDELIVERABLE = "undeliverable"  # it is decided, and the partition has no leader to take its marker
    UNKNOWN = "unknown"  # the input does not show its age, or whether it is still open
    WAITING = "waiting"  # within its timeout


class Hold(Enum):
    """The findings about an open transaction that blocks consumers, by its status."""

    NOBODYS = "nobodys"  # no coordinator will complete it
    PINNED = "pinned"  # its data is below the log start
    PREPARED = "prepared"  # decided, and a partition does not have its marker
    OVERDUE = "overdue"  # open past its timeout
    LONG = "long"  # within its timeout, or without a timeout


ORDER = tuple(BlockedState)
STATES = {Status.HANGING: BlockedState.STUCK, Status.UNKNOWN: BlockedState.UNKNOWN}
STATUSES = {state: status for status, state in STATES.items()} | {BlockedState.UNDELIVERABLE: Status.PREPARED}
BLOCKED = (BlockedState.STUCK, BlockedState.OVERDUE, BlockedState.UNDELIVERABLE)  # past the timeout
NOBODYS, ITS_COORDINATORS = (Case.HANGING, Case.ORPHAN), (Case.ACTIVE, Case.LATE)
NO_DATA = np.full(1, -1, TRANSACTION)[0]


class Interval(NamedTuple):
    """Bounds of a time by broker clocks: earliest and latest, ms; -1: no bound."""

    earliest: int = -1
    latest: int = -1


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction that is open at the end of a log, or by the last record of its id. Times are ms.

    ``row``: its data in the log, with the producer's marker before it (a TRANSACTION row; :data:`NO_DATA` where only
    __transaction_state shows it); ``entry``: the last record of its id; ``case``: who will end it, with ``reason``.

    ``in_flight``: the contradicting record or marker may be missing because the copy was made too early; ``missing``:
    the deciding evidence that is not in the input; ``end_unknown``: its marker may be in an unreadable part of the log;
    ``completed``: it was open when its log was read and has ended since; ``may_have_ended``, ``may_never_have_begun``:
    the reason.

    ``since``: the producer's time, unless it contradicts ``began``; ``age_ms``: by the clock of broker ``clock``, of
    its coordinator while that was up, or by its own log (``held``), the longest one; ``overdue_after_ms``,
    ``margin_ms``: the age from which it is overdue, and from which it is old whoever ends it.

    ``overdue``: it is open, or decided, for too long; ``undeliverable``: it is decided, and the partition has no
    leader; ``by_stamps``: only ``held`` shows that it is overdue. ``severity``: of the finding about it, None for no
    finding; ``if_true``: the severity if it is still open, where that is unknown. It blocks the log from ``lso`` on.
    ``origin``: the owner of its transactional id.
    """

    row: np.void
    entry: StateRecord | None
    case: Case
    reason: str
    timeout_ms: int
    overdue_after_ms: int
    margin_ms: int
    in_flight: bool = False
    missing: str | None = None
    end_unknown: bool = False
    completed: bool = False
    may_have_ended: str | None = None
    may_never_have_begun: str | None = None
    began: Interval = Interval()  # noqa: RUF009 (a tuple)
    since: int = -1
    age_ms: int = 0
    clock: int | None = None
    held: Held = Held()  # noqa: RUF009 (a tuple)
    status: Status = Status.UNKNOWN
    overdue: bool = False
    undeliverable: bool = False
    by_stamps: bool = False
    severity: str | None = None
    if_true: str | None = None
    lso: int = -1
    origin: IdOrigin | None = None

    @property
    def producer_id(self) -> int:
        """The id of the producer that began it."""
        return int(self.row["producer_id"]) if self.has_data or self.entry is None else self.entry.producer_id

    @property
    def producer_epoch(self) -> int:
        """The epoch that it began with; without data, that of its coordinator's record."""
        return int(self.row["producer_epoch"]) if self.has_data or self.entry is None else self.entry.producer_epoch

    @property
    def transactional_id(self) -> str | None:
        """Its transactional id, None where unknown."""
        return None if self.entry is None else self.entry.transactional_id

    @property
    def has_data(self) -> bool:
        """Whether its data in the log is known."""
        return bool(self.row["first_offset"] >= 0)

    @property
    def first_offset(self) -> int:
        """The offset of its first record."""
        return int(self.row["first_offset"])

    @property
    def is_its_own(self) -> bool:
        """Whether its coordinator has it, open or decided, and it has not ended since."""
        return self.case in ITS_COORDINATORS and not self.completed

    @property
    def is_prepared(self) -> bool:
        """Whether its coordinator has decided it, and its marker is not written."""
        return self.entry is not None and self.entry.state in PREPARED and self.is_its_own

    @property
    def is_unknown(self) -> bool:
        """Whether the input does not show its status."""
        return self.status is Status.UNKNOWN

    @property
    def is_old(self) -> bool:
        """Whether consumers are blocked for too long, whatever timeout the client asked for."""
        return self.age_ms > min(self.margin_ms, HOUR_MS)

    @property
    def standing(self) -> BlockedState:
        """Status of the partition that it blocks."""
        if self.status in STATES:
            return STATES[self.status]
        if self.undeliverable:
            return BlockedState.UNDELIVERABLE
        return BlockedState.OVERDUE if self.overdue else BlockedState.WAITING

    @property
    def klass(self) -> str:
        """The class it is listed and counted as; one that its coordinator will end is not counted as hanging."""
        if self.by_stamps:
            return Case.LATE
        if self.is_unknown:
            return Case.UNDECIDABLE
        if self.case is not Case.GHOST or self.status is Status.HANGING:
            return self.case
        return Case.ACTIVE if self.standing is BlockedState.WAITING else Case.LATE

    @property
    def hold(self) -> Hold:
        """The findings that report it."""
        if self.case in NOBODYS or self.case is Case.GHOST:
            return Hold.PINNED if self.case is Case.GHOST else Hold.NOBODYS
        if self.standing is BlockedState.UNDELIVERABLE or (self.is_prepared and not self.has_data):
            return Hold.PREPARED
        waits = self.standing is BlockedState.WAITING or self.timeout_ms == NO_TIMEOUT_MS
        return Hold.LONG if waits else Hold.OVERDUE

    @property
    def certainty(self) -> Confidence:
        """How certain its status is."""
        if self.is_unknown:
            return Confidence.INCONCLUSIVE
        likely = self.case is Case.UNDECIDABLE
        if self.by_stamps:
            likely = self.held.without_last_ms <= self.overdue_after_ms
        return Confidence.LIKELY if likely else Confidence.PROVED

    @property
    def confidence(self) -> str:
        """Its certainty, in the words of findings."""
        return "undecidable" if self.is_unknown else self.certainty.value

    def evidence(self) -> Fields:
        """Return the facts compared, for a finding."""
        row, e = self.row, self.entry
        return {
            "class": str(self.klass),
            "why": self.reason,
            "coordinator_state": None if e is None else e.state or "tombstone",
            "coordinator_epoch_of_id": None if e is None else e.producer_epoch,
            "coordinator_producer_id": None if e is None else e.producer_id,
            "coordinator_offset": None if e is None else e.offset,
            "partition_leader_epochs": [row["first_leader_epoch"], row["last_leader_epoch"]],
            "previous_marker_offset": row["prev_marker_offset"] if row["prev_marker_offset"] >= 0 else None,
            "batches": row["batches"],
            "records": row["records"],
            "bytes": row["bytes"],
            "age_ms": self.age_ms,
            "held_at_least_ms": self.held.at_least_ms if self.by_stamps else None,
            "timeout_ms": self.timeout_ms,
            "in_flight": True if self.in_flight and not self.by_stamps else None,
            "missing": self.missing,
            **({} if self.origin is None else self.origin.row()),
        }
