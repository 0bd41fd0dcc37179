"""What depends on a broker's release and on no policy: one row a release from which on something is otherwise.

What an input shows of a release is a range: what only newer brokers write says that it is at least so new, what they
never leave out that it is older. Where the range holds several rows that differ, nothing is decided, and every function
here says what it takes for granted then.

Sources: KIP-854 (producer.id.expiration.ms, 3.4), KIP-858 (directory.id, 3.7), MetadataVersion, KIP-360 and the page
UnknownProducerId/OutOfOrderSequence; what 0.11 answers, of real brokers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from auditor.base.numbers import setting_number
from auditor.model.policies import (
    AS_WRITTEN,
    ASSUMED,
    BY_TRANSACTION_VERSION,
    OLDEST,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    POLICIES,
    UNKNOWN_PRODUCER_ID,
    Policy,
)

DAY_MS = 86_400_000
WEEK_MS = 7 * DAY_MS
Version = tuple[int, int]


class Release(NamedTuple):
    """From ``since`` on. ``metadata_version``: the first level that this release knows, 0: none.

    ``policy``: what its brokers do without transaction.version. ``expiration_setting`` and ``expiration_ms``: what says
    how long an idle producer is remembered, and how long it is where nobody set it. ``unknown_error``: the answer to an
    unknown producer that may not begin like that.
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
UNNAMED_COMMIT: Version = (4, 0)  # groups of KIP-848 take transactional commits without any ids, as classic ones do
OLDER_EPOCHS_COMMIT: Version = (4, 3)  # and commits of epochs from a partition's assignment on (KIP-1251)


class Defect(NamedTuple):
    """A defect of Kafka itself: its issue, the releases that have it, and those as a range [since, below)."""

    issue: str
    releases: str
    since: Version
    below: Version


# TransactionMarkerChannelManager takes a partition whose leader is not alive for one that was deleted (KAFKA-17573
# brought it): it logs "likely deleted already and hence can be skipped" and completes. Up to 4.2.1 it waits.
SKIPS_MARKERS = Defect("KAFKA-20734", "4.3.0, 4.3.1 and 4.4.0", (4, 3), (4, 5))


class Shown(NamedTuple):
    """What an input shows of a broker's release: at least ``least`` and, where that is known, below ``below``."""

    least: Version = OLDEST_RELEASE
    below: Version | None = None

    def may_have(self, defect: Defect) -> bool:
        """Whether a broker that shows this may have a defect."""
        return self.least < defect.below and (self.below is None or self.below > defect.since)

    @property
    def rows(self) -> tuple[Release, ...]:
        """The rows of the table that it may be of; there is at least one."""
        first = max((k for k, r in enumerate(RELEASES) if r.since <= self.least), default=0)
        return tuple(r for r in RELEASES[first:] if r is RELEASES[first] or self.below is None or r.since < self.below)

    def also(self, other: Shown) -> Shown:
        """What both show of one broker."""
        bounds = [shown.below for shown in (self, other) if shown.below is not None]
        least, below = max(self.least, other.least), min(bounds, default=None)
        return Shown(least, below if below is not None and below > least else None)


UNKNOWN = Shown()


def shown_by(
    metadata_version: int = 0,
    protocol: str | None = None,
    message_format: str | None = None,
    cluster_id: bool | None = None,
    directory_id: bool = False,
) -> Shown:
    """The range of releases that fits the evidence.

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
        return Shown(newest, (newest[0], newest[1] + 1))
    if cluster_id is False and newest < NAMES_CLUSTER:
        return Shown(newest, NAMES_CLUSTER)
    return Shown(newest)


def parsed(text: str | None) -> Version | None:
    """The release that a protocol version such as 2.8-IV1 or 0.11.0 names; None for what is none."""
    numbers = [setting_number(part, bits=32) for part in (text or "").partition("-")[0].split(".")]
    if len(numbers) < 2 or numbers[0] is None or numbers[1] is None:
        return None
    return numbers[0], numbers[1]


def expiration_ms(shown: Shown, setting: Callable[[str], str | None]) -> int:
    """How long a broker remembers an idle producer, ms: what ``setting`` gives for the name that counts, else the
    release's default. Undecidable between the two generations: the newer name goes before the older, and a day is
    assumed where neither is set, the least that any release remembers.
    """
    rows = shown.rows
    for name in dict.fromkeys(r.expiration_setting for r in reversed(rows)):
        value = setting_number(setting(name), bits=32)
        if value is not None:
            return value
    return min(r.expiration_ms for r in rows)


def supposed_expiration_ms(name: str, setting: Callable[[str], str | None]) -> int:
    """The same of a broker that is only supposed to work under a policy, ms: whatever was set, else as the policy's
    first release does, or the newest one where it is no release's.
    """
    rows = [r for r in RELEASES if r.policy == name] or [RELEASES[-1]]
    values = (setting_number(setting(name), bits=32) for name in (BY_ID, BY_TRANSACTIONAL_ID))
    return next((value for value in values if value is not None), rows[0].expiration_ms)


def policy_at(name: str, shown: Shown) -> Policy:
    """The policy as the release that is shown has it; as its later releases do where that is not decided."""
    errors = {r.unknown_error for r in shown.rows if r.policy == name}
    return POLICIES[name]._replace(unknown_error=errors.pop()) if len(errors) == 1 else POLICIES[name]
