"""Broker policies as data: what each generation of brokers decides differently, over one algorithm.

Sources: KIP-360, KIP-890, the latest-batch draft, KAFKA-7190, KAFKA-8710, KAFKA-9144, KAFKA-12257 (2.8).
Every value is an int or a bool, so a :class:`Policy` can be handed to compiled kernels as it is.
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


DRAFT_WINDOW = 10_000_000  # max.in.flight.sequence.number.per.connection of the latest-batch draft

KIP_360 = Policy()
KIP_360_TEXT = KIP_360._replace(
    unknown_accepts_any=False, marker_only_unknown=True, snapshots_follow_log_start=True, lone_marker_completes=True
)
PRE_KIP_360 = KIP_360_TEXT._replace(
    evicts_below_log_start=True, marker_refreshes=False, follower_checks_markers=True, snapshot_batch_always=True
)
LATEST_BATCH_ONLY = KIP_360._replace(cached_batches=1, duplicate_window=DRAFT_WINDOW)
KIP_890_P1 = KIP_360
KIP_890_P2 = KIP_890_P1._replace(open_needs_same_epoch=True, strict_first_sequence=True)

POLICIES = {
    "pre-kip-360": PRE_KIP_360,
    "kip-360-text": KIP_360_TEXT,
    "kip-360": KIP_360,
    "latest-batch-only": LATEST_BATCH_ONLY,
    "kip-890-p1": KIP_890_P1,
    "kip-890-p2": KIP_890_P2,
}


def policy(name: str) -> Policy:
    """The broker policy called ``name``; KeyError names the known ones."""
    if name not in POLICIES:
        raise KeyError(f"no broker policy {name!r}; there are {', '.join(POLICIES)}")
    return POLICIES[name]
