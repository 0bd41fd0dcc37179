"""All kinds of findings in one table, a row each: rule, severities, outcomes, what explains its findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import TypedDict, Unpack

from auditor.base.evidence_keys import (
    ClassEvidence,
    ClockSkewEvidence,
    CommittedOffsetEvidence,
    CoordinatorEpochEvidence,
    DamageEvidence,
    DecisionEvidence,
    DivergenceEvidence,
    ElectionEvidence,
    FinishEvidence,
    FlawsEvidence,
    ForgottenEvidence,
    HoleEvidence,
    IndexEntryEvidence,
    LateDataEvidence,
    LeaderEpochsEvidence,
    LoneMarkersEvidence,
    LostDecisionsEvidence,
    MarkerEvidence,
    MissingRangeEvidence,
    OfflineEvidence,
    OffsetsEvidence,
    OpenTransactionEvidence,
    PartitionsEvidence,
    PolicyEvidence,
    SequenceEvidence,
    SnapshotEvidence,
    StepEvidence,
    TimeoutEvidence,
    TransactionsEvidence,
)
from auditor.rules.catalogue.relations import (
    ABANDONED,
    ABANDONED_FOR_SURE,
    ANOTHER_BATCH_ELSEWHERE,
    DIVERGED_BEFORE,
    ENDED_OTHERWISE,
    OPEN_AT_ITS_COORDINATOR,
    RESTORED,
    UNDER_A_WRONG_MARKER,
    WRITTEN_LATE,
    WRONG_TIMES,
    By,
    Relation,
    at_its_marker_whoever_wrote_it,
    at_the_log_end,
    behind_a_batch_with_another_number,
    beside_its_batch,
    end_in_the_missing_segment,
    end_that_another_has,
    from_its_torn_end_on,
    hole_of_its_marker,
    idle_by_a_step_of_the_clock,
    idle_by_stamps_alone,
    in_or_right_behind_what_the_leader_lacks,
    index_entry_of_its_batch,
    marker_instead_of_it,
    missing_right_behind,
    of_a_producer_that_begins_many_epochs,
    of_a_producer_that_goes_on_in_its_old_epoch,
    of_the_marker_that_raised_its_epoch,
    of_the_missing_segment,
    of_the_next_one_of_its_producer,
    of_the_same_commit,
    of_unread_bytes,
    offsets_right_behind,
    offsets_that_another_has,
    over_missing_offsets,
    same_batch_on_another_broker,
    same_decision,
    same_offset_on_the_same_replica,
    same_record,
    same_transaction,
    snapshot_before_its_marker,
    snapshot_of_another_coordinator,
    snapshot_of_its_batch,
    snapshot_of_the_missing,
    snapshot_with_the_number_expected,
    within_its_offsets,
)
from auditor.rules.catalogue.safeguards import (
    CLEAN_ELECTION,
    GROUP_METADATA,
    ID_EXPIRATION,
    IN_SYNC_REPLICAS,
    KNOWN_BELOW_LOG_START,
    LATE_WRITES,
    PRODUCER_EXPIRATION,
    TIMESTAMP_LIMITS,
    TRANSACTION_TIMEOUT,
    Safeguard,
)
from auditor.rules.seen.view import GRAVE, OUTCOMES, SEVERITIES
from auditor.transactions.record import Hold

# What a row can say of its kind.


class Need(Enum):
    """A property of a log that a rule needs; of any of its replicas that is not a copy of another topic."""

    EVENTS = "an odd batch, or an odd pair of batches"
    ERRORS = "unreadable or undecodable bytes"
    AHEAD = "a producer's time without a later broker-written time"
    PRODUCERS = "producer ids"
    TRANSACTIONS = "transactions, or markers"
    STEPS = "broker-written times that moved backwards"
    ABORTED = "entries of a transaction index"
    EXPOSED = "aborted records that its transaction index does not hide"
    SNAPSHOTS = "producer snapshots"
    REPLICAS = "more than one replica"
    OF_ANOTHER = "a copy of another topic of its name"
    REMOTE = "a part in tiered storage"
    ELECTIONS = "elections that the metadata shows"
    COORDINATOR = "__transaction_state in the input"
    TRANSACTION_STATE = "it is a partition of __transaction_state"
    CONSUMER_OFFSETS = "it is a partition of __consumer_offsets"
    METADATA = "it is __cluster_metadata"
    SHARE_OFFSETS = "offsets of share groups"
    LOST_FILES = "no segments at all, or indexes without their segment"
    STARTS = "files that make a start of its broker fail or lose a partition"
    MEMORY = "the memory of its running broker"


class Blocks(Enum):
    """The clients that a finding above info blocks."""

    READERS = "readers"  # the partition's read_committed consumers
    GROUP = "group"  # they, and the group that the finding names, which cannot fetch its offsets


class Unverified(Enum):
    """The reason why a leader that verifies with the coordinator refuses the data of a finding (KIP-890)."""

    ENDED = "its transaction has ended, and under transaction.version 2 so has its epoch"
    NOT_ADDED = "the transaction does not have the partition"


FAMILIES = (
    "producer state",
    "epochs",
    "transactions",
    "coordinator",
    "cross-checks",
    "consumer offsets",
    "record validation",
    "segment integrity",
    "replicas",
    "tiered storage",
    "capacity",
)


class Marks(TypedDict, total=False):
    """Optional fields of a row, see :class:`auditor.rules.catalogue.registry.Kind`."""

    blocks: Blocks
    hold: Hold
    decided: bool
    moving: bool
    before_start: bool
    records: bool
    time: bool
    what_if: bool
    voids: bool
    unverified: Unverified
    needs: tuple[Need, ...]
    prevented_by: tuple[Safeguard, ...]
    evidence: tuple[type, ...]


@dataclass(frozen=True, slots=True)
class KindRow:
    """A row of the table. ``severities`` and ``outcomes``: those that findings may have, the usual one first.

    ``family``: by which fingerprints go; ``rule_family``: under which the rule is listed. Most often the same.
    """

    id: str
    rule: str
    severities: tuple[str, ...]
    outcomes: tuple[str, ...]
    absorbed_by: tuple[By, ...]
    marks: Marks
    family: str
    rule_family: str = ""


def row(
    id: str,
    rule: str,
    severities: str,
    outcomes: str,
    *absorbed_by: By,
    family: str = "",
    **marks: Unpack[Marks],
) -> KindRow:
    """A row of the table. ``rule``: empty for a kind that is a rule of its own; ``severities``, ``outcomes``: words.

    Errors: AssertionError for a word that is no severity or outcome, and for critical or error findings without an
    outcome.
    """
    levels, meanings = tuple(severities.split()), tuple(outcomes.split())
    if not levels or set(levels) - set(SEVERITIES):
        raise AssertionError(f"rule {id}: {severities=}")
    if set(meanings) - set(OUTCOMES) or (not meanings and set(levels) & set(GRAVE)):
        raise AssertionError(f"rule {id}: {outcomes=}: critical and error findings need some of {OUTCOMES}")
    return KindRow(id, rule or id, levels, meanings, absorbed_by, marks, family)


def _family(name: str, *rows: KindRow) -> tuple[KindRow, ...]:
    assert name in FAMILIES
    return tuple(replace(kind_row, family=kind_row.family or name, rule_family=name) for kind_row in rows)


# What explains findings of several kinds below.
#
# Batches whose fields are wrong make their neighbours' sequences look odd; where their end is wrong, too.
OF_A_WRONG_BATCH = (
    By(
        (
            "record-structure-invalid if span_in_doubt",
            "offsets-not-increasing",
            "producer-fields-inconsistent if error_code",
        ),
        beside_its_batch,
    ),
    By("offset-hole", over_missing_offsets),
    ANOTHER_BATCH_ELSEWHERE,
)
OF_A_HANGING_BATCH = (*OF_A_WRONG_BATCH, ABANDONED_FOR_SURE)
SAID_OF_IT = By(("transaction-pinned-at-log-start", "long-open-transaction"), same_transaction)


# The table, in the order of ``auditor rules``. A row: the kind's id, its rule (empty: a rule of its own), the severities
# and outcomes that findings may have, the usual one first; then what absorbs its findings, the first that does; then
# its marks.


# fmt: off
_ROWS = (
    *_family(
        "producer state",
        #   id                                      rule                             severities                     outcomes
        row("sequence-gap",                         "missing-records",               "error critical info",         "lost reordered at_risk",
            *OF_A_HANGING_BATCH, By("replica-missing-range", in_or_right_behind_what_the_leader_lacks),
            needs=(Need.EVENTS,), prevented_by=(CLEAN_ELECTION, IN_SYNC_REPLICAS),
            evidence=(ClassEvidence, LeaderEpochsEvidence, SequenceEvidence)),
        row("committed-transaction-hole",           "missing-records",               "critical info",               "lost at_risk",
            *OF_A_WRONG_BATCH, family="transactions", needs=(Need.TRANSACTIONS,),
            prevented_by=(CLEAN_ELECTION, IN_SYNC_REPLICAS),
            evidence=(LeaderEpochsEvidence, SequenceEvidence)),
        row("duplicate-sequence-range",             "repeated-sequences",            "error",                       "duplicated",
            *OF_A_HANGING_BATCH, By("sequence-reset-same-epoch", within_its_offsets),
            By("missing-records", behind_a_batch_with_another_number), needs=(Need.EVENTS,),
            prevented_by=(PRODUCER_EXPIRATION,),
            evidence=(ForgottenEvidence, SequenceEvidence)),
        row("repeated-records",                     "",                              "warning",                     "duplicated",
            By("epoch-regression", of_a_producer_that_goes_on_in_its_old_epoch),
            By("epoch-bump-storm", of_a_producer_that_begins_many_epochs), needs=(Need.EVENTS,)),
        row("sequence-reset-same-epoch",            "repeated-sequences",            "warning error info",          "at_risk",
            *OF_A_WRONG_BATCH, needs=(Need.EVENTS,), prevented_by=(PRODUCER_EXPIRATION,),
            evidence=(ForgottenEvidence, SequenceEvidence)),
        row("plain-data-inside-transaction",        "non-transactional-write-in-transaction", "critical warning",            "refused",
            needs=(Need.EVENTS,)),
        row("unknown-producer-first-sequence",      "nonzero-first-sequence",        "warning info",                "",
            *OF_A_WRONG_BATCH, By("replica-divergence", within_its_offsets), before_start=True,
            needs=(Need.EVENTS,), prevented_by=(PRODUCER_EXPIRATION,),
            evidence=(ForgottenEvidence, StepEvidence)),
        row("first-batch-after-bump-nonzero",       "nonzero-first-sequence",        "error warning",               "at_risk",
            *OF_A_HANGING_BATCH, needs=(Need.EVENTS,), prevented_by=(CLEAN_ELECTION,),
            evidence=(LeaderEpochsEvidence, StepEvidence)),
        row("producer-expired-while-active",        "expired-producer-id",           "warning info",                "",
            WRONG_TIMES, By("clock-skew", idle_by_a_step_of_the_clock),
            By("producer-timestamp-skew", idle_by_stamps_alone), time=True,
            needs=(Need.SNAPSHOTS, Need.EVENTS), prevented_by=(PRODUCER_EXPIRATION,),
            evidence=(ForgottenEvidence,)),
        row("unknown-producer-exposure",            "expired-producer-id",           "warning info",                "",
            family="capacity", time=True, needs=(Need.PRODUCERS,),
            prevented_by=(KNOWN_BELOW_LOG_START, PRODUCER_EXPIRATION),
            evidence=(ForgottenEvidence, PolicyEvidence)),
        row("producer-timestamp-skew",              "",                              "warning info",                "",
            WRONG_TIMES, needs=(Need.EVENTS, Need.AHEAD), prevented_by=(TIMESTAMP_LIMITS,)),
    ),
    *_family(
        "epochs",
        #   id                                      rule                             severities                     outcomes
        row("epoch-regression",                     "",                              "critical error",              "at_risk",
            WRITTEN_LATE, By("split-decision", of_the_marker_that_raised_its_epoch), needs=(Need.EVENTS,),
            prevented_by=(CLEAN_ELECTION,),
            evidence=(LeaderEpochsEvidence, MarkerEvidence)),
        row("epoch-near-exhaustion",                "",                              "warning info error",          "at_risk",
            needs=(Need.EVENTS, Need.PRODUCERS)),
        row("epoch-bump-storm",                     "",                              "warning",                     "",
            needs=(Need.EVENTS, Need.TRANSACTION_STATE)),
    ),
    *_family(
        "transactions",
        #   id                                      rule                             severities                     outcomes
        row("hanging-transaction",                  "",                              "critical error info",         "blocked",
            blocks=Blocks.READERS, hold=Hold.NOBODYS, moving=True, needs=(Need.TRANSACTIONS,),
            prevented_by=LATE_WRITES,
            evidence=(OpenTransactionEvidence, FinishEvidence)),
        row("late-write-after-marker",              "",                              "critical error info",         "blocked exposed hidden none",
            ABANDONED, ENDED_OTHERWISE, RESTORED, unverified=Unverified.ENDED, needs=(Need.TRANSACTIONS,),
            prevented_by=LATE_WRITES,
            evidence=(LateDataEvidence,)),
        row("marker-without-transaction",           "",                              "info warning",                "",
            before_start=True, needs=(Need.TRANSACTIONS,),
            evidence=(LoneMarkersEvidence, PartitionsEvidence)),
        row("transaction-abort-rate",               "",                              "warning",                     "",
            needs=(Need.TRANSACTION_STATE,)),
        row("stuck-prepare",                        "missing-or-pending-marker",     "critical error info",         "blocked",
            family="coordinator", blocks=Blocks.READERS, hold=Hold.PREPARED, decided=True, time=True,
            needs=(Need.TRANSACTION_STATE,),
            evidence=(OpenTransactionEvidence, PartitionsEvidence)),
        row("missing-marker",                       "missing-or-pending-marker",     "critical info",               "blocked at_risk lost",
            ABANDONED, OPEN_AT_ITS_COORDINATOR,
            By(("split-decision", "marker-contradicts-decision"), same_decision),
            By(("epoch-regression", "marker-without-decision"), marker_instead_of_it), family="cross-checks",
            decided=True, moving=True, needs=(Need.COORDINATOR,), prevented_by=(CLEAN_ELECTION,),
            evidence=(DecisionEvidence, LeaderEpochsEvidence, PartitionsEvidence)),
        row("timeout-not-enforced",                 "transaction-past-timeout",      "error warning info",          "blocked",
            family="coordinator", blocks=Blocks.READERS, time=True, needs=(Need.TRANSACTION_STATE,),
            evidence=(OpenTransactionEvidence, PartitionsEvidence)),
        row("long-open-transaction",                "transaction-past-timeout",      "error critical warning info", "blocked",
            ABANDONED, OPEN_AT_ITS_COORDINATOR, SAID_OF_IT, blocks=Blocks.READERS, hold=Hold.OVERDUE, time=True,
            needs=(Need.TRANSACTIONS,), prevented_by=(TRANSACTION_TIMEOUT,),
            evidence=(OpenTransactionEvidence,)),
        row("lso-stuck",                            "transaction-past-timeout",      "error critical warning info", "blocked",
            ABANDONED, OPEN_AT_ITS_COORDINATOR, SAID_OF_IT, blocks=Blocks.READERS, hold=Hold.LONG, time=True,
            needs=(Need.TRANSACTIONS,), prevented_by=(TRANSACTION_TIMEOUT,),
            evidence=(OpenTransactionEvidence,)),
        row("transaction-pinned-at-log-start",      "transaction-past-timeout",      "error critical warning info", "blocked",
            ABANDONED, blocks=Blocks.READERS, hold=Hold.PINNED, needs=(Need.TRANSACTIONS,),
            prevented_by=LATE_WRITES,
            evidence=(OpenTransactionEvidence,)),
        row("pending-offsets-blocked",              "transaction-past-timeout",      "critical error warning info", "blocked",
            family="consumer offsets", blocks=Blocks.GROUP, moving=True, time=True, needs=(Need.CONSUMER_OFFSETS,),
            prevented_by=LATE_WRITES,
            evidence=(OpenTransactionEvidence, PartitionsEvidence)),
        row("transactions-merged-under-one-marker", "",                              "critical warning info",       "exposed hidden none",
            ENDED_OTHERWISE, By("late-write-after-marker", same_transaction), RESTORED, needs=(Need.TRANSACTIONS,),
            prevented_by=LATE_WRITES,
            evidence=(LateDataEvidence,)),
    ),
    *_family(
        "coordinator",
        #   id                                      rule                             severities                     outcomes
        row("clock-skew",                           "",                              "warning info",                "",
            needs=(Need.TRANSACTIONS, Need.STEPS),
            evidence=(ClockSkewEvidence,)),
        row("transaction-timeout-too-large",        "",                              "info",                        "",
            needs=(Need.TRANSACTION_STATE,),
            evidence=(PartitionsEvidence, TimeoutEvidence)),
        row("unreadable-transaction-record",        "undecodable-transaction-record", "error",                       "unreadable",
            needs=(Need.TRANSACTION_STATE,)),
        row("key-in-wrong-partition",               "undecodable-transaction-record", "error",                       "at_risk",
            needs=(Need.TRANSACTION_STATE, Need.CONSUMER_OFFSETS)),
        row("coordinator-append-failed",            "",                              "info",                        "",
            needs=(Need.TRANSACTION_STATE,)),
        row("coordinator-log-starts-late",          "transaction-state-log-truncated", "warning",                     "",
            needs=(Need.TRANSACTION_STATE,)),
        row("coordinator-log-restored",             "transaction-state-log-truncated", "error critical",              "at_risk hidden exposed",
            needs=(Need.TRANSACTION_STATE,),
            evidence=(LostDecisionsEvidence,)),
        row("illegal-transition",                   "impossible-transition",         "critical",                    "at_risk",
            RESTORED, needs=(Need.TRANSACTION_STATE,), prevented_by=(CLEAN_ELECTION,),
            evidence=(LeaderEpochsEvidence,)),
        row("transition-invariant-broken",          "impossible-transition",         "error",                       "at_risk",
            By("illegal-transition", same_record), RESTORED, needs=(Need.TRANSACTION_STATE,)),
        row("state-epoch-regression",               "impossible-transition",         "critical",                    "at_risk",
            By(("illegal-transition", "producer-id-reused"), same_record), RESTORED, needs=(Need.TRANSACTION_STATE,),
            prevented_by=(CLEAN_ELECTION,),
            evidence=(LeaderEpochsEvidence,)),
        row("producer-id-reused",                   "impossible-transition",         "critical",                    "refused",
            RESTORED, needs=(Need.TRANSACTION_STATE,)),
    ),
    *_family(
        "cross-checks",
        #   id                                      rule                             severities                     outcomes
        row("split-decision",                       "marker-against-decision",       "critical error info",         "hidden exposed",
            needs=(Need.TRANSACTIONS,), prevented_by=(CLEAN_ELECTION,),
            evidence=(DecisionEvidence, LeaderEpochsEvidence, MarkerEvidence, PartitionsEvidence)),
        row("marker-contradicts-decision",          "marker-against-decision",       "critical",                    "hidden exposed none",
            RESTORED, needs=(Need.TRANSACTIONS,),
            evidence=(DecisionEvidence,)),
        row("marker-without-decision",              "marker-against-decision",       "warning info",                "",
            By("epoch-regression", same_record), RESTORED, needs=(Need.TRANSACTIONS,),
            evidence=(MarkerEvidence,)),
        row("unknown-coordinator-epoch",            "marker-coordinator-epoch-mismatch", "error info",                  "at_risk",
            needs=(Need.TRANSACTIONS,),
            evidence=(CoordinatorEpochEvidence,)),
        row("coordinator-epoch-regression",         "marker-coordinator-epoch-mismatch", "error",                       "at_risk",
            family="epochs", needs=(Need.EVENTS,),
            evidence=(CoordinatorEpochEvidence,)),
        row("partition-not-in-transaction",         "",                              "error",                       "blocked at_risk",
            ABANDONED, WRITTEN_LATE, RESTORED, unverified=Unverified.NOT_ADDED, needs=(Need.TRANSACTIONS,),
            prevented_by=LATE_WRITES,
            evidence=(LateDataEvidence,)),
        row("data-epoch-ahead-of-coordinator",      "unallocated-producer-id",       "critical info",               "at_risk",
            ABANDONED_FOR_SURE, RESTORED, needs=(Need.PRODUCERS,), prevented_by=(CLEAN_ELECTION,),
            evidence=(LeaderEpochsEvidence, PartitionsEvidence)),
        row("producer-id-not-allocated",            "unallocated-producer-id",       "error info",                  "at_risk",
            ABANDONED_FOR_SURE, needs=(Need.PRODUCERS,)),
        row("expired-id-still-producing",           "",                              "warning",                     "",
            time=True, needs=(Need.PRODUCERS,), prevented_by=(ID_EXPIRATION,)),
        row("broker-memory-differs",                "",                              "warning info",                "",
            needs=(Need.MEMORY,)),
    ),
    *_family(
        "consumer offsets",
        #   id                                      rule                             severities                     outcomes
        row("offset-regression",                    "",                              "error warning info",          "duplicated",
            By("partition-owned-twice", of_the_same_commit), needs=(Need.CONSUMER_OFFSETS,),
            prevented_by=(GROUP_METADATA,),
            evidence=(CommittedOffsetEvidence,)),
        row("offset-skips-aborted-input",           "",                              "warning info",                "",
            needs=(Need.CONSUMER_OFFSETS,)),
        row("committed-offset-out-of-range",        "offset-out-of-range",           "error warning info",          "at_risk",
            needs=(Need.CONSUMER_OFFSETS,)),
        row("share-offset-out-of-range",            "offset-out-of-range",           "error warning info",          "at_risk",
            needs=(Need.SHARE_OFFSETS,)),
        row("mixed-processing-guarantees",          "",                              "warning info",                "",
            needs=(Need.CONSUMER_OFFSETS,), prevented_by=(GROUP_METADATA,)),
        row("zombie-offset-commit",                 "partition-owned-twice",         "error warning info",          "duplicated",
            needs=(Need.CONSUMER_OFFSETS,), prevented_by=(GROUP_METADATA,),
            evidence=(CommittedOffsetEvidence,)),
        row("interleaved-offset-producers",         "partition-owned-twice",         "error warning info",          "duplicated",
            needs=(Need.CONSUMER_OFFSETS,), prevented_by=(GROUP_METADATA,),
            evidence=(CommittedOffsetEvidence,)),
    ),
    *_family(
        "record validation",
        #   id                                      rule                             severities                     outcomes
        row("record-structure-invalid",             "malformed-batch",               "error",                       "unreadable",
            ANOTHER_BATCH_ELSEWHERE, needs=(Need.EVENTS, Need.ERRORS),
            evidence=(DamageEvidence, FlawsEvidence)),
        row("malformed-control-batch",              "malformed-batch",               "error",                       "unreadable",
            needs=(Need.EVENTS,)),
        row("producer-fields-inconsistent",         "malformed-batch",               "error info",                  "refused",
            ANOTHER_BATCH_ELSEWHERE, needs=(Need.EVENTS,),
            evidence=(FlawsEvidence,)),
        row("legacy-inner-record-invalid",          "malformed-batch",               "error",                       "unreadable",
            records=True, needs=(Need.EVENTS,)),
        row("null-key-in-compacted-topic",          "",                              "warning",                     "",
            By("unreadable-transaction-record", same_record), records=True, needs=(Need.EVENTS,)),
        row("batch-timestamp-mismatch",             "wrong-timestamp",               "warning",                     "",
            records=True, needs=(Need.EVENTS,)),
        row("timestamp-out-of-range",               "wrong-timestamp",               "warning",                     "",
            records=True, needs=(Need.EVENTS, Need.AHEAD), prevented_by=(TIMESTAMP_LIMITS,)),
    ),
    *_family(
        "segment integrity",
        #   id                                      rule                             severities                     outcomes
        row("batch-crc-mismatch",                   "",                              "critical info",               "unreadable at_risk",
            voids=True, needs=(Need.EVENTS,),
            evidence=(DamageEvidence,)),
        row("torn-tail",                            "",                              "warning error critical info", "unreadable at_risk",
            By("batch-crc-mismatch", same_offset_on_the_same_replica), needs=(Need.ERRORS,),
            prevented_by=(IN_SYNC_REPLICAS,),
            evidence=(DamageEvidence,)),
        row("offset-hole",                          "offset-gap",                    "error info",                  "lost at_risk",
            By(("record-structure-invalid if span_in_doubt", "offsets-not-increasing"), missing_right_behind),
            By("replica-missing-range", offsets_that_another_has), By("missing-marker", hole_of_its_marker),
            By("orphaned-index if whole", of_the_missing_segment),
            needs=(Need.EVENTS,), prevented_by=(IN_SYNC_REPLICAS,),
            evidence=(HoleEvidence, PartitionsEvidence)),
        row("offsets-not-increasing",               "",                              "critical",                    "reordered",
            By(("record-structure-invalid if span_in_doubt", "offsets-not-increasing"), offsets_right_behind),
            ANOTHER_BATCH_ELSEWHERE, needs=(Need.EVENTS, Need.ERRORS),
            evidence=(DamageEvidence, OffsetsEvidence)),
        row("index-mismatch",                       "",                              "warning info",                "",
            By(("record-structure-invalid if span_in_doubt", "offsets-not-increasing"), index_entry_of_its_batch),
            needs=(Need.EVENTS, Need.ERRORS),
            evidence=(IndexEntryEvidence,)),
        row("leader-epoch-mismatch",                "",                              "error",                       "at_risk",
            ANOTHER_BATCH_ELSEWHERE, needs=(Need.EVENTS, Need.ERRORS)),
        row("aborted-records-exposed",              "",                              "critical warning info",       "exposed",
            UNDER_A_WRONG_MARKER, needs=(Need.EXPOSED,),
            evidence=(TransactionsEvidence,)),
        row("checkpoint-beyond-log-end",            "",                              "error critical info",         "at_risk",
            By(("batch-crc-mismatch", "torn-tail", "record-structure-invalid", "offsets-not-increasing"),
               at_the_log_end),
            By("replica-missing-range", end_that_another_has), By("orphaned-index if whole", end_in_the_missing_segment),
            prevented_by=(CLEAN_ELECTION,), evidence=(LeaderEpochsEvidence, PartitionsEvidence)),
        row("missing-segment",                      "",                              "critical error info",         "at_risk",
            needs=(Need.LOST_FILES,), evidence=(PartitionsEvidence,)),
        row("orphaned-index",                       "",                              "error warning info",          "at_risk",
            needs=(Need.LOST_FILES,), evidence=(HoleEvidence,)),
        row("snapshot-unreadable",                  "producer-snapshot-mismatch",    "warning",                     "",
            needs=(Need.ERRORS,)),
        row("snapshot-replay-mismatch",             "producer-snapshot-mismatch",    "error critical info",         "at_risk",
            By(("record-structure-invalid if span_in_doubt", "offsets-not-increasing",
                "producer-fields-inconsistent if error_code"), snapshot_of_its_batch),
            By("offset-hole", snapshot_of_the_missing),
            By(("missing-records", "repeated-sequences"), snapshot_with_the_number_expected),
            By(("epoch-regression", "marker-without-decision"), snapshot_before_its_marker),
            By("marker-coordinator-epoch-mismatch", snapshot_of_another_coordinator), needs=(Need.SNAPSHOTS,),
            evidence=(PartitionsEvidence, SnapshotEvidence)),
        row("aborted-transaction-not-indexed",      "wrong-transaction-index",       "critical warning info",       "exposed",
            UNDER_A_WRONG_MARKER, By("replica-divergence", at_its_marker_whoever_wrote_it),
            needs=(Need.TRANSACTIONS,),
            evidence=(TransactionsEvidence,)),
        row("aborted-index-extra-entry",            "wrong-transaction-index",       "error critical info",         "hidden exposed at_risk",
            UNDER_A_WRONG_MARKER, ENDED_OTHERWISE, By("missing-marker", of_the_next_one_of_its_producer),
            needs=(Need.ABORTED,),
            evidence=(TransactionsEvidence,)),
        row("replica-abort-index-divergence",       "wrong-transaction-index",       "error info",                  "exposed",
            DIVERGED_BEFORE, By(("aborted-transaction-not-indexed", "aborted-index-extra-entry"), same_transaction),
            family="replicas", needs=(Need.REPLICAS,)),
    ),
    *_family(
        "replicas",
        #   id                                      rule                             severities                     outcomes
        row("partition-offline",                    "",                              "error critical info",         "blocked",
            needs=(Need.METADATA,),
            evidence=(OfflineEvidence, PartitionsEvidence)),
        row("replica-absent",                       "",                              "critical info",               "at_risk",
            needs=(Need.METADATA,),
            evidence=(PartitionsEvidence,)),
        row("start-fails",                          "",                              "error critical info",         "at_risk",
            needs=(Need.STARTS, Need.ERRORS)),
        row("replica-of-removed-topic",             "misplaced-replica",             "info warning",                "",
            needs=(Need.OF_ANOTHER,)),
        row("partition-of-another-cluster",         "misplaced-replica",             "error info",                  "at_risk",
            needs=(Need.OF_ANOTHER,), evidence=(PartitionsEvidence,)),
        row("partition-in-two-log-dirs",            "misplaced-replica",             "error info",                  "at_risk",
            needs=(Need.REPLICAS,)),
        row("replica-state-differs",                "",                              "info",                        "",
            DIVERGED_BEFORE, needs=(Need.REPLICAS,)),
        row("replica-divergence",                   "",                              "critical warning info",       "lost",
            By("replica-divergence", same_batch_on_another_broker), needs=(Need.REPLICAS,),
            prevented_by=(CLEAN_ELECTION, IN_SYNC_REPLICAS),
            evidence=(DivergenceEvidence, LeaderEpochsEvidence)),
        row("replica-missing-range",                "",                              "critical warning info",       "at_risk lost",
            DIVERGED_BEFORE, By("record-structure-invalid", of_unread_bytes), By("torn-tail", from_its_torn_end_on),
            needs=(Need.REPLICAS,), prevented_by=(CLEAN_ELECTION, IN_SYNC_REPLICAS),
            evidence=(LeaderEpochsEvidence, MissingRangeEvidence, PartitionsEvidence)),
        row("unclean-election",                     "",                              "critical warning info",       "at_risk",
            needs=(Need.ELECTIONS,), prevented_by=(CLEAN_ELECTION, IN_SYNC_REPLICAS),
            evidence=(ElectionEvidence, LeaderEpochsEvidence, PartitionsEvidence)),
    ),
    *_family(
        "tiered storage",
        #   id                                      rule                             severities                     outcomes
        row("remote-log-gap",                       "",                              "error info",                  "lost",
            needs=(Need.REMOTE,)),
        row("remote-copy-behind",                   "remote-log-mismatch",           "warning info",                "",
            needs=(Need.REMOTE,)),
        row("remote-segment-leftover",              "remote-log-mismatch",           "info",                        "",
            time=True, needs=(Need.REMOTE,)),
    ),
    *_family(
        "capacity",
        #   id                                      rule                             severities                     outcomes
        row("producer-state-memory",                "producer-memory",               "warning info",                "",
            needs=(Need.PRODUCERS,)),
        row("short-lived-producers",                "producer-memory",               "warning",                     "",
            needs=(Need.PRODUCERS,)),
        row("what-if-rejection",                    "what-if-refusal",               "info",                        "",
            what_if=True),
        row("draft-false-duplicate",                "what-if-refusal",               "warning",                     "",
            what_if=True),
    ),
)
# fmt: on
KINDS: dict[str, KindRow] = {each.id: each for each in _ROWS}
assert len(KINDS) == len(_ROWS), "a kind has two rows"


# Rules that have several kinds: a page each. What it says its kinds need not say.
#
# Each kind was a rule before, and has that id.


@dataclass(frozen=True, slots=True)
class RulePage:
    """The page of a rule with several kinds. ``one_by``: a finding for which this holds is explained by one of a kind
    of the same rule that is above its own in the table."""

    id: str
    text: str
    one_by: Relation | None = None


_PAGES = (
    RulePage(
        "transaction-past-timeout",
        """A transaction past its timeout blocks consumers

        Why it matters: read_committed consumers stop at its first offset until it ends, and so does compaction.
        """,
    ),
    RulePage(
        "missing-or-pending-marker",
        """A decided transaction has no marker in a partition

        Why it matters: read_committed consumers stop before its data. While the coordinator retries, every client of
        the id gets CONCURRENT_TRANSACTIONS.
        """,
    ),
    RulePage(
        "marker-against-decision",
        """A marker does not match the coordinator's decision

        Why it matters: the transaction is not atomic any more. Consumers miss committed data, or see aborted data, or
        acknowledged commits are lost.
        """,
        one_by=same_record,
    ),
    RulePage(
        "marker-coordinator-epoch-mismatch",
        """The coordinator epoch of a marker is too low or never existed

        Why it matters: the coordinator epoch fences former coordinators, whose decisions must not count.
        """,
    ),
    RulePage(
        "impossible-transition",
        """Records of a transactional id that no coordinator writes in this order

        Why it matters: coordinator data was lost, altered or mixed up. The decision of a transaction may be wrong or
        missing, and zombies may write again.
        """,
    ),
    RulePage(
        "undecodable-transaction-record",
        """A coordinator record is undecodable or in the wrong partition

        Why it matters: a coordinator that loads the partition continues without it, so ids and groups are stale or
        unknown.
        """,
    ),
    RulePage(
        "unallocated-producer-id",
        """Data has a producer id or an epoch that was never allocated

        Why it matters: the data comes from another cluster, or the state of this one regressed. Ids collide, and
        zombies may write again.
        """,
    ),
    RulePage(
        "wrong-transaction-index",
        """A transaction index does not match the log

        Why it matters: read_committed consumers use the index to skip aborted records. They get aborted records, or
        miss committed ones.
        """,
    ),
    RulePage(
        "malformed-batch",
        """A stored batch has an invalid format""",
    ),
    RulePage(
        "partition-owned-twice",
        """Two producers commit offsets of the same group and partition

        Why it matters: input is processed twice, or skipped, although every transaction is atomic by itself.
        """,
    ),
    RulePage(
        "offset-out-of-range",
        """A group's offset is outside its log""",
    ),
    RulePage(
        "remote-log-mismatch",
        """Remote storage does not match the log""",
    ),
    RulePage(
        "producer-memory",
        """Producers use much broker memory

        Why it matters: every broker with a replica keeps them in its heap until they expire, and writes them into each
        producer snapshot.
        """,
    ),
    RulePage(
        "wrong-timestamp",
        """Timestamps of batches or records are wrong

        Why it matters: retention, the time index and lookup by time use them.
        """,
        one_by=within_its_offsets,
    ),
    RulePage(
        "what-if-refusal",
        """Another policy would have answered differently""",
    ),
    RulePage(
        "missing-records",
        """Numbered records of a producer are missing""",
    ),
    RulePage(
        "nonzero-first-sequence",
        """A producer, or its epoch, does not begin at sequence 0""",
    ),
    RulePage(
        "repeated-sequences",
        """A producer's sequence numbers repeat""",
    ),
    RulePage(
        "expired-producer-id",
        """A producer id expired, or may expire before its next write""",
    ),
    RulePage(
        "producer-snapshot-mismatch",
        """A producer snapshot is unreadable or does not match the log""",
    ),
    RulePage(
        "misplaced-replica",
        """A broker has a partition directory in the wrong place""",
    ),
)
PAGES: Mapping[str, RulePage] = MappingProxyType({each.id: each for each in _PAGES})


# The current id of each rule that was renamed. A former id is valid wherever an id is given.
FORMER_IDS: Mapping[str, str] = MappingProxyType(
    {
        "producer-never-given-out": "unallocated-producer-id",
        "useless-coordinator-record": "undecodable-transaction-record",
        "wrong-snapshot": "producer-snapshot-mismatch",
        "remote-copy-out-of-step": "remote-log-mismatch",
        "forgotten-producer": "expired-producer-id",
        "late-transaction": "transaction-past-timeout",
        "undelivered-decision": "missing-or-pending-marker",
        "marker-of-a-wrong-coordinator": "marker-coordinator-epoch-mismatch",
        "group-with-two-owners": "partition-owned-twice",
        "replica-out-of-place": "misplaced-replica",
        "plain-data-inside-transaction": "non-transactional-write-in-transaction",
        "offset-hole": "offset-gap",
        "coordinator-log-starts-late": "transaction-state-log-truncated",
    }
)
