"""What is read again of the evidence of findings: its keys, with their types.

Evidence has many more keys, for people, which are only shown. Which shapes a kind's evidence has is in the table of
kinds (:mod:`auditor.rules.catalogue.kinds`); :class:`Evidence` is that of all. Every key may be absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict, TypeVar, cast

Shape = TypeVar("Shape")


def read(shape: type[Shape], evidence: Mapping[str, Any] | None) -> Shape:
    """A finding's evidence in one of the shapes that its kind declares. None, as in runs of the past: no key."""
    return cast(Shape, {} if evidence is None else evidence)


class AbsorbedFinding(TypedDict):
    """A finding that another one explains."""

    rule: str
    severity: str
    topic: str | None
    partition: int | None
    message: str


class AbsorbedImpact(AbsorbedFinding, total=False):
    """A finding that another one explains, with the records that it has as lost, hidden, exposed or duplicated."""

    outcome: str
    ranges: list[list[int]]
    producer_id: int | None
    transactional_id: str | None
    log_dir: str | None


class Evidence(TypedDict, total=False):
    """What any finding may have. ``missing``: what would decide it; ``also``: what it explains.

    ``framework`` and what follows: :class:`auditor.base.transactional_ids.IdOrigin` of its transactional id.
    ``records``, ``missing_records`` or ``missing_offsets``: how many records it is about. ``summed``: of how many that
    are not listed it is the sum, from ``first_offset`` to ``last_offset``. ``ranges``: the offsets that its outcome is
    about, where these are not the finding's: first, last, and the producer id where there are several producers; empty
    for records without offsets. ``missing_records``: from sequence ``expected`` on.
    """

    log_dir: str | None
    ranges: list[list[int]]
    ranges_in_all: int
    confidence: str
    batches: int
    checksums: str
    in_flight: bool
    missing: str | list[str]
    known_defect: str
    also: list[AbsorbedImpact]
    framework: str
    application: str
    application_part: str
    framework_certainty: str
    framework_why: str
    records: int | None
    missing_records: int | None
    missing_offsets: int
    summed: int
    first_offset: int | None
    last_offset: int | None
    listed_by: str
    transaction_key: str


# The keys that most kinds have are columns of the table ``findings``, numbers or texts; others are in its map.
COMMON: dict[str, type] = {"log_dir": str, "confidence": str, "expected": str, "found": str, "missing": str,
                           "batches": int, "records": int}  # fmt: skip


# "class" is a keyword of Python, so this shape cannot be written as a class.
ClassEvidence = TypedDict("ClassEvidence", {"class": str}, total=False)


class LateDataEvidence(ClassEvidence, total=False):
    """Of data that may have come after its transaction's end. ``decided``: COMMIT or ABORT, or when it was decided."""

    decided: str


class OpenTransactionEvidence(LateDataEvidence, total=False):
    """Keys of findings about an open transaction."""

    age_ms: int
    timeout_ms: int
    coordinator_state: str
    records: int
    bytes: int
    since: str
    since_by_producer: str


class FinishEvidence(TypedDict, total=False):
    """Of a completed transaction without its marker, for ``auditor finish``. ``completed_offset``: of its Complete
    record; ``unmarked_transactions``: how many have no marker there; ``last_sequence``, ``last_timestamp_ms``: of the
    last batch of its producer."""

    completed_offset: int
    unmarked_transactions: int
    last_sequence: int
    last_timestamp_ms: int


class PartitionsEvidence(TypedDict, total=False):
    """Of several partitions, or of one transaction's. ``partitions_in_all``: where not all are named."""

    partitions: list[str]
    partitions_in_all: int


class LostDecisionsEvidence(TypedDict):
    """Of a coordinator's log that lost its records since ``begins`` (ms): whose decisions those were."""

    producer_ids: list[int]
    begins_ms: int


class StepEvidence(TypedDict, total=False):
    """Of a step from a producer's batch before, which ends at ``previous_last_offset``."""

    previous_last_offset: int


class SequenceEvidence(StepEvidence, total=False):
    """Of a sequence number that is not the next one."""

    expected: int
    found: int


class OffsetsEvidence(TypedDict, total=False):
    """Of an offset that is not the next one."""

    expected: int | list[int | None]


class LeaderEpochsEvidence(TypedDict, total=False):
    """Of what an election may have led to: the leader epochs of two batches, or of two replicas."""

    leader_epochs: list[int] | dict[str, Any]


class ForgottenEvidence(TypedDict, total=False):
    """Of a producer that a broker may have forgotten. ``forgotten_by``: why; ``step_ms``: that a clock was set by."""

    forgotten_by: str
    step_ms: int
    idle_ms: int
    log_age_ms: int
    snapshot: str


class MarkerEvidence(TypedDict, total=False):
    """Of a marker, or (True) of a batch that is one. ``transaction_first_offset``: of the data that it ended."""

    marker: str | bool
    higher_epoch_offset: int
    transaction_first_offset: int


class CoordinatorEpochEvidence(TypedDict, total=False):
    """Of a marker with the coordinator epoch ``found``."""

    found: int


class DecisionEvidence(TypedDict, total=False):
    """Of what a Prepare record decided. ``between``: the offsets between which its marker should be."""

    prepare_offset: int
    between: list[int]


class TransactionsEvidence(TypedDict, total=False):
    """Of so many transactions."""

    transactions: int


class CommittedOffsetEvidence(TypedDict, total=False):
    """Of a record of a committed offset."""

    offsets_partition: str
    record_offset: int


class SnapshotDifference(TypedDict):
    """A field of a producer in which a snapshot is not what the log gives."""

    producer_id: int
    field: str
    stored: Any
    replayed: Any


class SnapshotEvidence(TypedDict, total=False):
    """Of a producer snapshot, or of several, by file."""

    differences: list[SnapshotDifference]
    snapshots: list[str]
    largest_expiration_that_fits_ms: int


class HoleEvidence(TypedDict, total=False):
    """Of offsets that a replica lacks, first and last. ``whole``: its directory has all files that its broker had."""

    missing_range: list[int]
    whole: bool


class ReplicaPlace(TypedDict, total=False):
    """Keys that place a replica."""

    log_dir: str
    broker_id: int | None
    leader_copy: bool


class MissingRangeEvidence(TypedDict, total=False):
    """Of ``offsets`` that one replica lacks and another one has."""

    missing_in: ReplicaPlace
    offsets: int


class DivergenceEvidence(TypedDict, total=False):
    """Of replicas that differ. ``found``: this replica's batch; ``lost``: what no replica that may lead has."""

    found: Any
    lost: dict[str, Any]


class DamageEvidence(TypedDict, total=False):
    """Of bytes that are no batch. ``unread_offsets``: those that they may have been, first and last."""

    at_log_end: bool
    unread_offsets: list[int]


class FlawsEvidence(TypedDict, total=False):
    """Of a batch whose fields are wrong. ``span_in_doubt``: whether its last offset is, too."""

    span_in_doubt: bool
    error_code: int


class IndexEntryEvidence(TypedDict, total=False):
    """Keys of findings about one index entry."""

    segment_position: int


class ClockSkewEvidence(Evidence, total=False):
    """Of the clocks of brokers, the last one's ahead of the others'. ``partitions``: how many show it."""

    brokers: list[int] | tuple[int, ...]
    ahead_ms: int
    since: str
    since_by: int
    partitions: int


class TimeoutEvidence(TypedDict, total=False):
    """Of a transactional id's time-out."""

    timeout_ms: int
    commits_offsets: bool


class LoneMarkersEvidence(TypedDict, total=False):
    """Of ``closed_nothing`` markers without data. ``cleaned``: whether a cleaner may have taken it."""

    cleaned: bool
    closed_nothing: int


class OfflineEvidence(TypedDict, total=False):
    """Of a partition without a leader."""

    in_sync: list[int]


class ElectionEvidence(TypedDict, total=False):
    """Of an unclean election."""

    leader: int
    last_known_eligible_before: list[int]


class PolicyEvidence(TypedDict, total=False):
    """Of what holds under one broker policy."""

    policy: str
