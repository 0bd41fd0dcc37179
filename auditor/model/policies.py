"""Broker policies and releases as data."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from auditor.base.errors import setting_number

# Broker policies as data: what each generation of brokers decides differently, over one algorithm.
#
# Sources: KIP-360, KIP-890, KIP-937, the latest-batch draft, KAFKA-7190, KAFKA-8710, KAFKA-9144, KAFKA-12257 (2.8).
# Every value is an int or a bool, so a :class:`Policy` can be passed to compiled kernels. Only this package knows
# policies by name: callers ask for a field. Differences between releases within a policy are in :data:`RELEASES`.


# Answers to an append. Positive values are Kafka's error codes (org.apache.kafka.common.protocol.Errors).
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
        """Whether only the newest batch is cached, and sequences within a window behind it count as duplicates."""
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
    """Return the policies that these names stand for, each once; :data:`COMPARED` for none."""
    return tuple(dict.fromkeys(part for name in names or COMPARED for part in PARTS.get(name, (name,))))


def policy(name: str) -> Policy:
    """The broker policy called ``name``; KeyError names the known ones."""
    if name not in POLICIES:
        raise KeyError(f"no broker policy {name!r}; there are {', '.join(POLICIES)}")
    return POLICIES[name]


# Differences between releases that belong to no policy: one row per release that changes something.
#
# Evidence of a release is a range: what only newer brokers write shows a lower bound, what they never omit an upper
# one. Where the range has several rows that differ, nothing is decided, and every function here documents what it
# assumes.
#
# Sources: KIP-854 (producer.id.expiration.ms, 3.4), KIP-858 (directory.id, 3.7), MetadataVersion, KIP-360 and the
# page UnknownProducerId/OutOfOrderSequence; answers of 0.11 were taken from real brokers.


DAY_MS = 86_400_000
WEEK_MS = 7 * DAY_MS
Version = tuple[int, int]


class Release(NamedTuple):
    """Behaviour from release ``since`` on.

    ``metadata_version``: the first level that this release knows, 0: none. ``policy``: what its brokers do without
    transaction.version. ``expiration_setting`` and ``expiration_ms``: the setting for how long an idle producer is
    remembered, and its default. ``unknown_error``: the answer to an unknown producer that may not begin at its
    sequence.
    """

    since: Version
    metadata_version: int
    policy: str
    expiration_setting: str
    expiration_ms: int
    unknown_error: int = UNKNOWN_PRODUCER_ID


BY_ID, BY_TRANSACTIONAL_ID = "producer.id.expiration.ms", "transactional.id.expiration.ms"
RELEASES = (
    Release((0, 11), 0, OLDEST, BY_TRANSACTIONAL_ID, WEEK_MS, OUT_OF_ORDER_SEQUENCE_NUMBER),
    Release((1, 0), 0, OLDEST, BY_TRANSACTIONAL_ID, WEEK_MS),
    Release((2, 4), 0, AS_WRITTEN, BY_TRANSACTIONAL_ID, WEEK_MS),
    Release((2, 5), 0, ASSUMED, BY_TRANSACTIONAL_ID, WEEK_MS),
    Release((3, 3), 7, ASSUMED, BY_TRANSACTIONAL_ID, WEEK_MS),
    Release((3, 4), 8, ASSUMED, BY_ID, DAY_MS),
    Release((3, 6), 12, BY_TRANSACTION_VERSION[1], BY_ID, DAY_MS),
    Release((3, 7), 15, BY_TRANSACTION_VERSION[1], BY_ID, DAY_MS),
    Release((4, 0), 22, BY_TRANSACTION_VERSION[1], BY_ID, DAY_MS),
)
OLDEST_RELEASE = RELEASES[0].since
NAMES_CLUSTER: Version = (2, 4)  # from here on meta.properties has a cluster.id
NAMES_DIRECTORY: Version = (3, 7)  # and from here on a directory.id (KIP-858)


class Defect(NamedTuple):
    """A defect of Kafka itself: its issue, the affected releases, and those as a range [since, below)."""

    issue: str
    releases: str
    since: Version
    below: Version


# TransactionMarkerChannelManager takes a partition whose leader is not alive for one that was deleted (KAFKA-17573
# brought it): it logs "likely deleted already and hence can be skipped" and completes. Up to 4.2.1 it waits.
SKIPS_MARKERS = Defect("KAFKA-20734", "4.3.0, 4.3.1 and 4.4.0", (4, 3), (4, 5))


# The highest metadata.version that each release supports. Source: MetadataVersion.LATEST_PRODUCTION of these releases.
SUPPORTED_LEVELS: dict[Version, int] = {(3, 9): 21, (4, 0): 25, (4, 1): 27, (4, 2): 29, (4, 3): 30, (4, 4): 33}


class ReleaseEvidence(NamedTuple):
    """Evidence of a broker's release: at least ``least`` and, if known, below ``below``."""

    least: Version = OLDEST_RELEASE
    below: Version | None = None

    def may_have(self, defect: Defect) -> bool:
        """Whether such a broker may have a defect."""
        return self.least < defect.below and (self.below is None or self.below > defect.since)

    @property
    def rows(self) -> tuple[Release, ...]:
        """The rows of the table that fit; at least one."""
        first = max((k for k, r in enumerate(RELEASES) if r.since <= self.least), default=0)
        return tuple(r for r in RELEASES[first:] if r is RELEASES[first] or self.below is None or r.since < self.below)

    def also(self, other: ReleaseEvidence) -> ReleaseEvidence:
        """Merge two pieces of evidence about one broker."""
        bounds = [shown.below for shown in (self, other) if shown.below is not None]
        least, below = max(self.least, other.least), min(bounds, default=None)
        return ReleaseEvidence(least, below if below is not None and below > least else None)


UNKNOWN = ReleaseEvidence()


def shown_by(
    metadata_version: int = 0,
    protocol: str | None = None,
    message_format: str | None = None,
    cluster_id: bool | None = None,
    directory_id: bool = False,
) -> ReleaseEvidence:
    """Return the range of releases that fits the evidence.

    ``metadata_version``: its level in ``__cluster_metadata``, 0 for none. ``protocol``: inter.broker.protocol.version,
    which is raised to a release once all brokers run it, and so stands for it where nothing shows a newer one;
    ``message_format``: log.message.format.version, which may lag behind. ``cluster_id``, ``directory_id``: whether
    ``meta.properties`` has them, None where there is no such file.
    """
    least = [r.since for r in RELEASES if 0 < r.metadata_version <= metadata_version]
    least += [NAMES_DIRECTORY] * directory_id
    least += [version for text in (protocol, message_format) if (version := parsed(text)) is not None]
    newest = max(least, default=OLDEST_RELEASE)
    if parsed(protocol) == newest:
        return ReleaseEvidence(newest, (newest[0], newest[1] + 1))
    if cluster_id is False and newest < NAMES_CLUSTER:
        return ReleaseEvidence(newest, NAMES_CLUSTER)
    return ReleaseEvidence(newest)


def shown_by_levels(in_force: int, supported: int = 0) -> ReleaseEvidence:
    """Return the range of releases by metadata.version: its level in force, and the highest that a broker supports.

    0: unknown. The first is a lower bound only.
    """
    least, below, before = OLDEST_RELEASE, None, 0
    for release, level in SUPPORTED_LEVELS.items():
        if before < max(in_force, supported):
            least = release if before else least
        if 0 < supported <= level and below is None:
            below = (release[0], release[1] + 1)
        before = level
    if max(in_force, supported) > before:
        least = (release[0], release[1] + 1)
    return ReleaseEvidence(least, below)


def parsed(text: str | None) -> Version | None:
    """Return the release that a protocol version such as 2.8-IV1 or 0.11.0 names; None for an invalid one."""
    numbers = [setting_number(part, bits=32) for part in (text or "").partition("-")[0].split(".")]
    if len(numbers) < 2 or numbers[0] is None or numbers[1] is None:
        return None
    return numbers[0], numbers[1]


def expiration_ms(shown: ReleaseEvidence, setting: Callable[[str], str | None]) -> int:
    """Return how long a broker remembers an idle producer, ms.

    That is what ``setting`` gives for the name that counts, else the release's default. If the release may be of either
    generation, the newer name takes precedence, and without a setting a day is assumed, the least that any release
    remembers.
    """
    rows = shown.rows
    for name in dict.fromkeys(r.expiration_setting for r in reversed(rows)):
        value = setting_number(setting(name), bits=32)
        if value is not None:
            return value
    return min(r.expiration_ms for r in rows)


def supposed_expiration_ms(name: str, setting: Callable[[str], str | None]) -> int:
    """Return the same for a broker that is only supposed to work under a policy, ms.

    Any setting that was made, else the default of the policy's first release, or of the newest one where the policy is
    no release's.
    """
    rows = [r for r in RELEASES if r.policy == name] or [RELEASES[-1]]
    values = (setting_number(setting(name), bits=32) for name in (BY_ID, BY_TRANSACTIONAL_ID))
    return next((value for value in values if value is not None), rows[0].expiration_ms)


def policy_at(name: str, shown: ReleaseEvidence) -> Policy:
    """Return the policy as the shown release has it; if that is ambiguous, as its later releases do."""
    errors = {r.unknown_error for r in shown.rows if r.policy == name}
    return POLICIES[name]._replace(unknown_error=errors.pop()) if len(errors) == 1 else POLICIES[name]
