"""Broker policies as data: what each generation of brokers decides differently, over one algorithm.

Sources: KIP-360, KIP-890, KIP-937, the latest-batch draft, KAFKA-7190, KAFKA-8710, KAFKA-9144, KAFKA-12257 (2.8).
Every value is an int or a bool, so a :class:`Policy` can be handed to compiled kernels as it is. Only this room knows a
policy by its name: whoever wants to know what one does asks for a field. What depends on the release within a policy
stands in :mod:`auditor.model.releases`.
"""

from __future__ import annotations

from typing import NamedTuple

# Answers to an append. Positive values are Kafka's codes on the wire (org.apache.kafka.common.protocol.Errors).
OK = 0
DUPLICATE = -2  # no error: success with the offsets of the cached batch, and nothing written
OFFSET_OUT_OF_RANGE = 1
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
DUPLICATE_SEQUENCE_NUMBER = 46
INVALID_PRODUCER_EPOCH = 47
INVALID_TXN_STATE = 48
TRANSACTION_COORDINATOR_FENCED = 52
UNKNOWN_PRODUCER_ID = 59

ERRORS = {
    OFFSET_OUT_OF_RANGE: "OFFSET_OUT_OF_RANGE",
    OUT_OF_ORDER_SEQUENCE_NUMBER: "OUT_OF_ORDER_SEQUENCE_NUMBER",
    DUPLICATE_SEQUENCE_NUMBER: "DUPLICATE_SEQUENCE_NUMBER",
    INVALID_PRODUCER_EPOCH: "INVALID_PRODUCER_EPOCH",
    INVALID_TXN_STATE: "INVALID_TXN_STATE",
    TRANSACTION_COORDINATOR_FENCED: "TRANSACTION_COORDINATOR_FENCED",
    UNKNOWN_PRODUCER_ID: "UNKNOWN_PRODUCER_ID",
}


class Policy(NamedTuple):
    """What one generation of brokers does where generations differ. The defaults are ``kip-360`` (2.5 to 3.5).

    ``cached_batches``: batches kept per producer for the duplicate lookup.
    ``duplicate_window``: sequences behind the newest that are answered DUPLICATE_SEQUENCE_NUMBER; 0: none.
    ``unknown_accepts_any``: an unknown producer may begin at any sequence (KAFKA-8710, 2.5).
    ``marker_only_unknown``: same epoch but no batch known, sequence not 0: UNKNOWN_PRODUCER_ID, not OUT_OF_ORDER.
    ``evicts_below_log_start``: producers go with their last batch (up to 2.3, KAFKA-7190).
    ``snapshots_follow_log_start``: snapshots below the log start are removed when it moves (up to 2.4).
    ``marker_refreshes``: a marker's timestamp keeps its producer from expiring (2.4.1).
    ``follower_checks_markers``: a replicated marker of an older (coordinator) epoch is an error (up to 2.4.0).
    ``lone_marker_completes``: a marker without an open transaction counts as a transaction of itself (up to 2.7).
    ``snapshot_batch_always``: an entry loaded from a snapshot always has a batch, of sequence -1 if need be (to 2.3).
    ``open_needs_same_epoch``: an open transaction of another epoch does not spare verification (4.0).
    ``strict_first_sequence``: clients of transaction.version 2 begin at 0 when no batch is known (4.0).
    ``unknown_error``: the answer where an unknown producer may not begin like that (0.11 had no UNKNOWN_PRODUCER_ID).
    ``verifies``: transactional appends are verified with the coordinator (KIP-890).
    ``bumps_each_transaction``: each transaction has an epoch of its own, so that what comes late is of an old one
    (KIP-890, transaction.version 2).
    ``after_max_ms``: message.timestamp.after.max.ms where nobody set it; -1: no limit (4.0: an hour, KIP-937).
    """

    cached_batches: int = 5
    duplicate_window: int = 0
    unknown_accepts_any: bool = True
    marker_only_unknown: bool = False
    evicts_below_log_start: bool = False
    snapshots_follow_log_start: bool = False
    marker_refreshes: bool = True
    follower_checks_markers: bool = False
    lone_marker_completes: bool = False
    snapshot_batch_always: bool = False
    open_needs_same_epoch: bool = False
    strict_first_sequence: bool = False
    unknown_error: int = UNKNOWN_PRODUCER_ID
    verifies: bool = False
    bumps_each_transaction: bool = False
    after_max_ms: int = -1

    @property
    def is_draft(self) -> bool:
        """Whether only the newest batch is kept, and what lies behind it within a window counts as a duplicate."""
        return self.duplicate_window > 0


DRAFT_WINDOW = 10_000_000  # max.in.flight.sequence.number.per.connection of the latest-batch draft

KIP_360 = Policy()
KIP_360_TEXT = KIP_360._replace(
    unknown_accepts_any=False, marker_only_unknown=True, snapshots_follow_log_start=True, lone_marker_completes=True
)
PRE_KIP_360 = KIP_360_TEXT._replace(
    evicts_below_log_start=True, marker_refreshes=False, follower_checks_markers=True, snapshot_batch_always=True
)
LATEST_BATCH_ONLY = KIP_360._replace(cached_batches=1, duplicate_window=DRAFT_WINDOW)
KIP_890_P1 = KIP_360._replace(verifies=True)
KIP_890_P2 = KIP_890_P1._replace(
    open_needs_same_epoch=True, strict_first_sequence=True, bumps_each_transaction=True, after_max_ms=3_600_000
)

POLICIES = {
    "pre-kip-360": PRE_KIP_360,
    "kip-360-text": KIP_360_TEXT,
    "kip-360": KIP_360,
    "latest-batch-only": LATEST_BATCH_ONLY,
    "kip-890-p1": KIP_890_P1,
    "kip-890-p2": KIP_890_P2,
}

# What each one is, in a line for people.
SAYS = {
    "pre-kip-360": "brokers to 2.3: a producer is forgotten with its last batch; one not known must begin at 0",
    "kip-360-text": "KIP-360 as written: a producer that is not known must begin at 0 all the same",
    "kip-360": "2.5 to 3.5: producers stay known until they expire; one not known may go on anywhere",
    "kip-890-p1": "3.6 and later: transactional writes are verified with their coordinator",
    "kip-890-p2": "4.0 and later, transaction.version 2: and each transaction has an epoch of its own",
    "latest-batch-only": "the draft: one batch is kept a producer; what lies within a window behind it is a duplicate",
}

ASSUMED = "kip-360"  # where nothing in an input shows another
OLDEST = "pre-kip-360"
AS_WRITTEN = "kip-360-text"  # which 2.4 comes closest to
DRAFT = "latest-batch-only"
AUTO = "auto"  # by what the input shows
BY_TRANSACTION_VERSION = {1: "kip-890-p1", 2: "kip-890-p2"}  # of the feature; later ones are like the last
VERIFIED = "kip-890"  # stands for both its parts: which one is in force, transaction.version says
PARTS = {VERIFIED: tuple(BY_TRANSACTION_VERSION.values())}
CHOICES = (AUTO, OLDEST, ASSUMED, VERIFIED, DRAFT, *(name for name in POLICIES if name not in (OLDEST, ASSUMED, DRAFT)))
COMPARED = (OLDEST, ASSUMED, *PARTS[VERIFIED], DRAFT)  # what a what-if compares where none are named


def named(names: tuple[str, ...]) -> tuple[str, ...]:
    """The policies that these names stand for, each once; those worth comparing for none."""
    return tuple(dict.fromkeys(part for name in names or COMPARED for part in PARTS.get(name, (name,))))


def policy(name: str) -> Policy:
    """The broker policy called ``name``; KeyError names the known ones."""
    if name not in POLICIES:
        raise KeyError(f"no broker policy {name!r}; there are {', '.join(POLICIES)}")
    return POLICIES[name]
