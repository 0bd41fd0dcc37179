"""Named relations by which one finding explains another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from operator import attrgetter
from typing import Any

from auditor.base.errors import SEQUENCES
from auditor.base.evidence_keys import (
    ClockSkewEvidence,
    CommittedOffsetEvidence,
    CoordinatorEpochEvidence,
    DamageEvidence,
    DecisionEvidence,
    DivergenceEvidence,
    Evidence,
    ForgottenEvidence,
    HoleEvidence,
    IndexEntryEvidence,
    LostDecisionsEvidence,
    MarkerEvidence,
    MissingRangeEvidence,
    OffsetsEvidence,
    PartitionsEvidence,
    SequenceEvidence,
    SnapshotDifference,
    SnapshotEvidence,
    StepEvidence,
    TransactionsEvidence,
    read,
)
from auditor.evidence.cluster_clocks import beyond_ms, is_after
from auditor.rules.seen.view import Finding

Test = Callable[[Finding, Finding], bool]


@dataclass(frozen=True, slots=True)
class Relation:
    """Whether a finding (the second argument of ``holds``) follows from a cause (the first).

    ``in_common`` returns the fields equal in both, by which causes are looked up.
    """

    holds: Test
    in_common: attrgetter[Any]

    @property
    def name(self) -> str:
        """The name that rule pages show."""
        return self.holds.__name__.replace("_", " ")


@dataclass(frozen=True, slots=True)
class Tie:
    """Findings of one kind explain others if ``relation`` holds, and a fact of the cause's evidence, ``when``."""

    kind: str
    relation: Relation
    when: str = ""

    def explains(self, cause: Finding, finding: Finding) -> bool:
        """Whether this cause, a finding of :attr:`kind`, explains the other."""
        return (not self.when or bool(cause.evidence.get(self.when))) and self.relation.holds(cause, finding)


@dataclass(frozen=True, slots=True)
class By:
    """Declares that findings of ``causes`` explain those of the declaring kind if ``relation`` holds.

    ``causes``: rules or kinds; "NAME if FACT" where a fact of the cause's evidence has to be true.
    """

    causes: str | tuple[str, ...]
    relation: Relation

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules and kinds named."""
        return tuple(cause.partition(" if ")[0] for cause in self._all)

    @property
    def _all(self) -> tuple[str, ...]:
        return (self.causes,) if isinstance(self.causes, str) else self.causes

    def ties(self, kinds: Mapping[str, tuple[str, ...]]) -> Iterator[Tie]:
        """Yield a tie per cause. ``kinds``: by rule; other names are kinds themselves."""
        for cause in self._all:
            name, _, fact = cause.partition(" if ")
            for kind in kinds.get(name, (name,)):
                yield Tie(kind, self.relation, fact)


def relation(*in_common: str) -> Callable[[Test], Relation]:
    """Make a function a relation between findings that are equal at least in these fields."""
    return lambda holds: Relation(holds, attrgetter(*in_common))


def _same_replica(cause: Finding, other: Finding) -> bool:
    return read(Evidence, cause.evidence).get("log_dir") == read(Evidence, other.evidence).get("log_dir")


def _differences(snapshot: Finding) -> list[SnapshotDifference]:
    return read(SnapshotEvidence, snapshot.evidence)["differences"]


def _is_missing_in(lacking: Finding, other: Finding) -> bool:
    """Whether the replica that lacks something is the other finding's."""
    place = read(MissingRangeEvidence, lacking.evidence)["missing_in"]
    return place["log_dir"] == read(Evidence, other.evidence).get("log_dir")


@relation("topic", "partition", "producer_id", "offset")
def same_transaction(cause: Finding, other: Finding) -> bool:
    """Producer and first offset are the same."""
    return True


@relation("topic", "partition", "producer_id", "offset")
def same_transaction_unless_info(cause: Finding, other: Finding) -> bool:
    """Producer and first offset are the same, and the cause is more than an information."""
    return cause.severity != "info"


@relation("topic", "partition", "offset")
def same_offset_on_the_same_replica(cause: Finding, other: Finding) -> bool:
    """Both start at the same offset of one replica."""
    return other.offset is not None and _same_replica(cause, other)


@relation("topic", "partition", "producer_id")
def of_the_marker_that_raised_its_epoch(cause: Finding, other: Finding) -> bool:
    """A marker with a lower epoch than the cause's earlier marker."""
    marker = read(MarkerEvidence, other.evidence)
    return bool(marker.get("marker")) and marker.get("higher_epoch_offset") == cause.offset


@relation("topic", "partition", "offset")
def same_record(cause: Finding, other: Finding) -> bool:
    """Both start at the same offset."""
    return True


@relation("topic", "partition")
def within_its_offsets(cause: Finding, other: Finding) -> bool:
    """The finding starts within the offsets of the cause."""
    if cause.offset is None or other.offset is None:
        return False
    return cause.offset <= other.offset <= (cause.last_offset if cause.last_offset is not None else cause.offset)


@relation("topic", "partition", "producer_id", "producer_epoch")
def behind_a_batch_with_another_number(cause: Finding, other: Finding) -> bool:
    """It continues from the end of the cause's batch, had that the expected sequence."""
    wrong, step = read(SequenceEvidence, cause.evidence), read(SequenceEvidence, other.evidence)
    if cause.offset is None or cause.last_offset is None or "expected" not in wrong:
        return False
    goes_on = (int(wrong["expected"]) + cause.last_offset - cause.offset + 1) % SEQUENCES
    return (step.get("previous_last_offset"), step.get("found")) == (cause.last_offset, goes_on)


@relation("topic", "partition")
def snapshot_with_the_number_expected(cause: Finding, other: Finding) -> bool:
    """A snapshot only differs in the last sequence, as if the cause's batch had the expected one."""
    wrong = read(SequenceEvidence, cause.evidence)
    if cause.offset is None or cause.last_offset is None or "expected" not in wrong:
        return False
    ends = (int(wrong["expected"]) + cause.last_offset - cause.offset) % SEQUENCES
    differences = [(d["producer_id"], d["field"], d["stored"]) for d in _differences(other)]
    return differences == [(cause.producer_id, "last_sequence", ends)]


@relation("topic", "partition", "producer_id")
def of_a_producer_that_goes_on_in_its_old_epoch(cause: Finding, other: Finding) -> bool:
    """The finding starts at the batch of the higher epoch: its client writes on with the lower one."""
    return read(MarkerEvidence, cause.evidence).get("higher_epoch_offset") == other.offset


@relation("topic", "partition", "producer_id")
def of_a_producer_that_begins_many_epochs(cause: Finding, other: Finding) -> bool:
    """It is about the same producer, which sends again with each epoch."""
    return True


@relation("topic", "partition", "producer_id")
def idle_by_stamps_alone(cause: Finding, other: Finding) -> bool:
    """It is about batches of the same producer, and no snapshot confirms their timestamps."""
    return "snapshot" not in read(ForgottenEvidence, other.evidence) and within_its_offsets.holds(cause, other)


@relation("broker_id")
def idle_by_a_step_of_the_clock(cause: Finding, other: Finding) -> bool:
    """A step of the broker's clock explains how long the producer seems to have been idle."""
    stepped = len(set(read(ClockSkewEvidence, cause.evidence)["brokers"])) == 1
    return stepped and bool(read(ForgottenEvidence, other.evidence).get("step_ms"))


@relation("producer_id", "transactional_id")
def in_a_partition_of_its_transaction(cause: Finding, other: Finding) -> bool:
    """A finding in a partition of the transaction that the coordinator's finding is about."""
    return f"{other.topic}-{other.partition}" in read(PartitionsEvidence, cause.evidence).get("partitions", ())


@relation("topic", "partition")
def at_the_log_end(cause: Finding, other: Finding) -> bool:
    """It is about the end of a log, and the cause about its last bytes, in the same replica.

    A cause without a last offset has the offset where the complete batches end.
    """
    last = cause.offset if cause.last_offset is None else cause.last_offset
    if not _same_replica(cause, other) or other.offset is None:
        return False
    return bool(read(DamageEvidence, cause.evidence).get("at_log_end")) or (
        last is not None and last + 1 >= other.offset
    )


@relation("topic", "partition")
def beside_its_batch(cause: Finding, other: Finding) -> bool:
    """It is about the cause's batch, or about a step over it between the producer's neighbouring batches."""
    if cause.offset is None or cause.last_offset is None or other.offset is None or not _same_replica(cause, other):
        return False
    before = read(StepEvidence, other.evidence).get("previous_last_offset")
    if before is not None and before <= cause.last_offset and cause.offset < other.offset:
        return True
    return cause.offset <= other.offset <= cause.last_offset


@relation("topic", "partition")
def snapshot_of_its_batch(cause: Finding, other: Finding) -> bool:
    """A snapshot only differs for one producer, whose last batch is the cause's."""
    if cause.offset is None or cause.last_offset is None or other.offset is None or not _same_replica(cause, other):
        return False
    differences = _differences(other)
    offsets = [d[side] for d in differences if d["field"] == "last_offset" for side in ("stored", "replayed")]
    alone = len({d["producer_id"] for d in differences}) == 1
    return alone and any(cause.offset <= offset <= cause.last_offset for offset in offsets)


@relation("topic", "partition")
def snapshot_of_the_missing(cause: Finding, other: Finding) -> bool:
    """A snapshot only has producers of batches that the log has lost."""
    if not _same_replica(cause, other):
        return False
    first, last = read(HoleEvidence, cause.evidence)["missing_range"]
    differences = _differences(other)
    missing = {d["producer_id"] for d in differences if d["field"] == "last_offset" and first <= d["stored"] <= last}
    return {d["producer_id"] for d in differences} == missing


@relation("topic", "partition")
def of_the_missing_segment(cause: Finding, other: Finding) -> bool:
    """It is about offsets in segments that the same replica has lost."""
    first, last = read(HoleEvidence, cause.evidence)["missing_range"]
    within = read(HoleEvidence, other.evidence)["missing_range"]
    return _same_replica(cause, other) and first <= within[0] <= within[1] <= last


@relation("topic", "partition")
def end_in_the_missing_segment(cause: Finding, other: Finding) -> bool:
    """It is about an end of the log in segments that the same replica has lost."""
    first, last = read(HoleEvidence, cause.evidence)["missing_range"]
    return _same_replica(cause, other) and other.offset is not None and first <= other.offset <= last


@relation("topic", "partition")
def missing_right_behind(cause: Finding, other: Finding) -> bool:
    """The missing range follows the cause's batch directly, whose end is uncertain."""
    behind = (
        cause.last_offset is not None
        and read(HoleEvidence, other.evidence)["missing_range"][0] == cause.last_offset + 1
    )
    return behind and _same_replica(cause, other)


@relation("topic", "partition")
def offsets_right_behind(cause: Finding, other: Finding) -> bool:
    """The same batch, or one expected directly after the cause's, whose end is uncertain."""
    if cause.last_offset is None or not _same_replica(cause, other):
        return False
    return bool(
        other.offset == cause.offset or read(OffsetsEvidence, other.evidence)["expected"] == cause.last_offset + 1
    )


@relation("topic", "partition")
def index_entry_of_its_batch(cause: Finding, other: Finding) -> bool:
    """An index entry that points at the cause's batch."""
    if cause.last_offset is None or not _same_replica(cause, other):
        return False
    stem = str(cause.file).removesuffix(".log")
    return (
        other.file == f"{stem}.index"
        and read(IndexEntryEvidence, other.evidence).get("segment_position", -1) == cause.position
    )


@relation("topic", "partition")
def from_there_on(cause: Finding, other: Finding) -> bool:
    """The same replica, from the cause's offset on."""
    if cause.offset is None or other.offset is None:
        return False
    return _same_replica(cause, other) and other.offset >= cause.offset


@relation("topic", "partition")
def in_or_right_behind_what_the_leader_lacks(cause: Finding, other: Finding) -> bool:
    """It starts in a range that the leader lacks, or directly after it."""
    if not read(MissingRangeEvidence, cause.evidence).get("missing_in", {}).get("leader_copy"):
        return False
    if cause.last_offset is None or other.offset is None or cause.offset is None:
        return False
    return cause.offset <= other.offset <= cause.last_offset + 1


@relation("topic", "partition", "producer_id")
def same_decision(cause: Finding, other: Finding) -> bool:
    """Both are about the decision of one Prepare record."""
    one, another = (read(DecisionEvidence, f.evidence)["prepare_offset"] for f in (cause, other))
    return one == another


@relation("topic", "partition", "producer_id")
def ends_at_its_marker(cause: Finding, other: Finding) -> bool:
    """A transaction that ends at the cause's marker, alone."""
    return (
        cause.last_offset == other.last_offset
        and read(TransactionsEvidence, other.evidence).get("transactions", 1) == 1
    )


@relation("topic", "partition", "group_id", "offset")
def of_the_same_commit(cause: Finding, other: Finding) -> bool:
    """Both are about one record of a committed offset."""
    one, another = (read(CommittedOffsetEvidence, f.evidence) for f in (cause, other))
    return (one["offsets_partition"], one["record_offset"]) == (another["offsets_partition"], another["record_offset"])


@relation("topic", "partition", "producer_id")
def of_the_transaction_it_ended(cause: Finding, other: Finding) -> bool:
    """It is about the transaction that the cause's marker ended, by first offset."""
    first = read(MarkerEvidence, cause.evidence).get("transaction_first_offset")
    return other.offset is not None and first == other.offset


@relation("topic", "partition", "producer_id")
def of_the_next_one_of_its_producer(cause: Finding, other: Finding) -> bool:
    """It ends at the marker before which the missing one belongs, which ends both transactions now."""
    between = read(DecisionEvidence, cause.evidence).get("between")
    return between is not None and other.last_offset == between[1]


@relation("topic", "partition")
def hole_of_its_marker(cause: Finding, other: Finding) -> bool:
    """One offset is missing in the same replica, where the marker belongs."""
    between = read(DecisionEvidence, cause.evidence).get("between")
    first, last = read(HoleEvidence, other.evidence)["missing_range"]
    return first == last and between is not None and _same_replica(cause, other) and between[0] < first < between[1]


@relation("topic", "partition", "producer_id")
def marker_instead_of_it(cause: Finding, other: Finding) -> bool:
    """The cause's marker was written about when the missing one was due."""
    if "marker" not in read(MarkerEvidence, cause.evidence):
        return False
    if cause.timestamp is None or other.timestamp is None:
        return False
    return not beyond_ms((cause.timestamp - other.timestamp) / timedelta(milliseconds=1))


@relation("topic", "partition", "producer_id")
def snapshot_before_its_marker(cause: Finding, other: Finding) -> bool:
    """A snapshot only has another epoch of the producer than the cause's marker set."""
    if "marker" not in read(MarkerEvidence, cause.evidence):
        return False
    differences = _differences(other)
    epochs = [d["replayed"] for d in differences if d["field"] == "producer_epoch"]
    return epochs == [cause.producer_epoch] and {d["producer_id"] for d in differences} == {cause.producer_id}


@relation("topic", "partition")
def snapshot_of_another_coordinator(cause: Finding, other: Finding) -> bool:
    """A snapshot only has another coordinator epoch than the cause's marker set."""
    differences = {(d["producer_id"], d["field"], d["replayed"]) for d in _differences(other)}
    return differences == {
        (cause.producer_id, "coordinator_epoch", read(CoordinatorEpochEvidence, cause.evidence)["found"])
    }


@relation("topic", "partition")
def of_unread_bytes(cause: Finding, other: Finding) -> bool:
    """A replica lacks a range because its bytes there are not a batch."""
    unread = read(DamageEvidence, cause.evidence).get("unread_offsets")
    if unread is None or other.offset is None or other.last_offset is None:
        return False
    return bool(unread[0] <= other.offset and other.last_offset <= unread[1])


@relation("topic", "partition")
def over_missing_offsets(cause: Finding, other: Finding) -> bool:
    """A step from the producer's previous batch to this one over offsets that the replica lacks."""
    before = read(StepEvidence, other.evidence).get("previous_last_offset")
    if before is None or other.offset is None or not _same_replica(cause, other):
        return False
    first, last = read(HoleEvidence, cause.evidence)["missing_range"]
    return bool(before < first and last < other.offset)


@relation("topic", "partition")
def offsets_that_another_has(cause: Finding, other: Finding) -> bool:
    """Another replica has the batches of the gap."""
    if not _is_missing_in(cause, other):
        return False
    first, last = read(HoleEvidence, other.evidence)["missing_range"]
    return (
        cause.offset is not None
        and cause.last_offset is not None
        and cause.offset <= first <= last <= cause.last_offset
    )


@relation("topic", "partition", "offset")
def end_that_another_has(cause: Finding, other: Finding) -> bool:
    """The replica ends where another one continues."""
    return _is_missing_in(cause, other)


@relation("topic", "partition", "offset")
def from_its_torn_end_on(cause: Finding, other: Finding) -> bool:
    """A replica lacks batches from the offset where its last segment is torn."""
    return _is_missing_in(other, cause)


@relation("topic", "partition", "offset")
def same_batch_on_another_broker(cause: Finding, other: Finding) -> bool:
    """Another follower has the same batch there, which otherwise only the leader has."""
    one, another = (read(DivergenceEvidence, f.evidence) for f in (cause, other))
    return one.get("lost") is None and bool(one["found"] == another["found"])


@relation("topic", "partition")
def at_its_marker_whoever_wrote_it(cause: Finding, other: Finding) -> bool:
    """A transaction that ends at the offset where replicas differ, alone."""
    alone = read(TransactionsEvidence, other.evidence).get("transactions", 1) == 1
    return alone and cause.offset is not None and cause.offset == other.last_offset


@relation("__class__")  # in any partition
def of_a_producer_whose_decisions_are_lost(cause: Finding, other: Finding) -> bool:
    """It is about a producer whose decisions the coordinator's log has lost, from the time of the loss on."""
    lost = read(LostDecisionsEvidence, cause.evidence)
    time = None if other.timestamp is None else int(other.timestamp.timestamp() * 1_000)
    return other.producer_id in lost["producer_ids"] and (time is None or not is_after(lost["begins_ms"], time))


# Causes shared by several kinds
RESTORED = By("coordinator-log-restored", of_a_producer_whose_decisions_are_lost)
ABANDONED = By("hanging-transaction", same_transaction)
ABANDONED_FOR_SURE = By("hanging-transaction", same_transaction_unless_info)
WRITTEN_LATE = By("late-write-after-marker", same_transaction_unless_info)
OPEN_AT_ITS_COORDINATOR = By(("timeout-not-enforced", "stuck-prepare"), in_a_partition_of_its_transaction)
ENDED_OTHERWISE = By("split-decision", of_the_transaction_it_ended)
UNDER_A_WRONG_MARKER = By(("split-decision", "marker-contradicts-decision"), ends_at_its_marker)


@relation("topic", "partition", "offset")
def same_record_that_differs(cause: Finding, other: Finding) -> bool:
    """The same record, with other contents: not one batch under two leader epochs."""
    return cause.if_true is None


ANOTHER_BATCH_ELSEWHERE = By("replica-divergence", same_record_that_differs)
DIVERGED_BEFORE = By("replica-divergence", from_there_on)
WRONG_TIMES = By("wrong-timestamp", within_its_offsets)
