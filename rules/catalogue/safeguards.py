"""Settings that would have prevented a finding."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from shlex import quote
from typing import NamedTuple

from auditor.base.at_rest import Fields
from auditor.base.errors import setting_number
from auditor.base.evidence_keys import (
    Evidence,
    ForgottenEvidence,
    LateDataEvidence,
    LeaderEpochsEvidence,
    OpenTransactionEvidence,
    read,
)
from auditor.base.words import NO_TIMEOUT_MS, duration, plural
from auditor.model.policies import BY_ID, BY_TRANSACTIONAL_ID, Version
from auditor.rules.lib.repairs import PLACE
from auditor.rules.seen.cluster_view import Cluster
from auditor.rules.seen.view import SEVERITIES, Finding

# Settings and practices that would have prevented findings; a rule names its own in ``prevented_by``.
#
# Names are those of Kafka's configuration reference. ``B`` stands for a bootstrap server, as in the remedies.


METADATA, WEEK = "__cluster_metadata", "604800000"
FORGOTTEN_BY, RETENTION = "forgotten_by", "retention"  # in the evidence: why a broker does not know a producer


class SettingLocation(Enum):
    """Where the current value of a setting is found."""

    PRACTICE = "practice"  # nowhere: what people do
    PRODUCER = "producer"  # the timeout of a transaction, as its coordinator stored it
    REPLICAS = "replicas"  # how many a partition has
    FEATURE = "feature"
    TOPIC = "topic"
    BROKER = "broker"


class CurrentSetting(NamedTuple):
    """The setting whose current value decides.

    ``value``: the one that prevents; a higher number does too. ``default``: Kafka's own.
    """

    location: SettingLocation = SettingLocation.PRACTICE
    name: str = ""
    value: str = ""
    default: str | None = None


def _always(finding: Finding, cluster: Cluster) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Safeguard:
    """A setting or practice: its name, where it is set, and what it does.

    ``rank`` orders safeguards that would have prevented equally many: the lowest first. ``current``: the setting whose
    current value decides. ``since``, ``below``: the releases that have it. ``or_else``: proposed where this one does
    not apply. ``of_each``: set per
    topic; ``static``: cannot be changed on a running broker; ``replicas``: the replica count that setting it by a
    command requires. ``applies``: whether it applies to a finding.
    """

    setting: str
    where: str
    why: str
    rank: int = 100
    current: CurrentSetting = CurrentSetting()  # noqa: RUF009 (a tuple)
    since: Version | None = None
    below: Version | None = None
    or_else: Safeguard | None = None
    of_each: bool = False
    static: bool = False
    replicas: int = 0
    applies: Callable[[Finding, Cluster], bool] = _always


def replicas_of(finding: Finding, cluster: Cluster) -> int | None:
    """Return the replica count of a finding's partition; None where unknown."""
    if finding.topic is None or finding.partition is None:
        return None
    return cluster.replicas.get((finding.topic, finding.partition))


def _came_late(finding: Finding, cluster: Cluster) -> bool:
    # Not where the marker of a COMMIT is missing.
    evidence = read(LateDataEvidence, finding.evidence)
    return evidence.get("decided") != "COMMIT" and evidence.get("class") in (None, "hanging", "orphan", "undecidable")


def _by_election(finding: Finding, cluster: Cluster) -> bool:
    # __cluster_metadata has no ISR elections: its voters vote.
    epochs = read(LeaderEpochsEvidence, finding.evidence).get("leader_epochs")
    same = isinstance(epochs, list) and len(epochs) == 2 and epochs[0] == epochs[1] >= 0
    return not same and _may_have_others(finding, cluster)


def _may_have_others(finding: Finding, cluster: Cluster) -> bool:
    return replicas_of(finding, cluster) != 1 and finding.topic != METADATA


def _has_no_other(finding: Finding, cluster: Cluster) -> bool:
    return replicas_of(finding, cluster) == 1 and finding.topic != METADATA


def _within_timeout(finding: Finding, cluster: Cluster) -> bool:
    # A two-phase commit has no timeout (KIP-939).
    evidence = read(OpenTransactionEvidence, finding.evidence)
    timeout, age = evidence.get("timeout_ms"), evidence.get("age_ms")
    has_coordinator = evidence.get("coordinator_state", "") is not None  # else the timeout is a guess
    return timeout != NO_TIMEOUT_MS and (not has_coordinator or timeout is None or age is None or age <= timeout)


def _idle_for_longer(finding: Finding, cluster: Cluster) -> bool:
    evidence = read(ForgottenEvidence, finding.evidence)
    if evidence.get("forgotten_by") == RETENTION:
        return False
    idle = next((ms for ms in (evidence.get("idle_ms"), evidence.get("log_age_ms")) if ms is not None), None)
    at_most = cluster.expiration_ms(finding.broker_id)
    return idle is None or (idle >= at_most and ("log_age_ms" in evidence or idle < int(WEEK)))


def _by_retention(finding: Finding, cluster: Cluster) -> bool:
    return read(ForgottenEvidence, finding.evidence).get("forgotten_by") == RETENTION


def _by_a_transaction(finding: Finding, cluster: Cluster) -> bool:
    return finding.producer_id is not None or finding.transactional_id is not None


TRANSACTION_VERSION_2 = Safeguard(
    "transaction.version=2",
    "cluster feature, brokers and clients from 4.0 on (KIP-890)",
    "Each transaction gets its own epoch, so a late write can no longer be stored after a marker.",
    1,
    CurrentSetting(SettingLocation.FEATURE, "transaction.version", "2", "0"),
    since=(4, 0),
    applies=_came_late,
)
NEWER_BROKERS = Safeguard(
    "brokers of 3.6 or newer",
    "broker (KIP-890)",
    "The leader verifies the first write of a transaction with the coordinator and refuses any other. Older brokers "
    "accept late writes.",
    2,
    below=(3, 6),
    applies=_came_late,
)
VERIFICATION = Safeguard(
    "transaction.partition.verification.enable=true",
    "broker, from 3.6 on (KIP-890 part 1)",
    "The leader verifies the first write of a transaction with the coordinator and refuses any other.",
    2,
    CurrentSetting(SettingLocation.BROKER, "transaction.partition.verification.enable", "true", "true"),
    since=(3, 6),
    or_else=NEWER_BROKERS,
    applies=_came_late,
)
TRANSACTION_TIMEOUT = Safeguard(
    "transaction.timeout.ms",
    "producer; capped by the brokers' transaction.max.timeout.ms",
    "A shorter timeout limits how long a crashed client blocks consumers.",
    3,
    CurrentSetting(SettingLocation.PRODUCER, "timeout_ms"),
    applies=_within_timeout,
)
CLEAN_ELECTION = Safeguard(
    "unclean.leader.election.enable=false",
    "broker or topic",
    "A replica that lacks acknowledged batches cannot become leader, so no acknowledged state is rolled back.",
    4,
    CurrentSetting(SettingLocation.TOPIC, "unclean.leader.election.enable", "false", "false"),
    applies=_by_election,
)
REPLICATION = Safeguard(
    "replication.factor=3",
    "topic, by kafka-reassign-partitions.sh if it exists already",
    "Acknowledged records are stored on other disks too, and another replica leads while one is down.",
    5,
    CurrentSetting(SettingLocation.REPLICAS, "replicas", "3"),
    applies=_has_no_other,
)
IN_SYNC_REPLICAS = Safeguard(
    "min.insync.replicas=2 with acks=all",
    "topic and producer; with three replicas, writes continue while one is down",
    "Records are stored on two disks before the producer gets the acknowledgement.",
    5,
    CurrentSetting(SettingLocation.TOPIC, "min.insync.replicas", "2", "1"),
    or_else=REPLICATION,
    of_each=True,
    replicas=3,
    applies=_may_have_others,
)
OLDER_EXPIRATION = Safeguard(
    f"{BY_TRANSACTIONAL_ID}={WEEK}",
    "broker, up to 3.3 also for producers without a transactional id",
    "Producer ids expire after a week, so a producer that pauses keeps its duplicate protection.",
    6,
    CurrentSetting(SettingLocation.BROKER, BY_TRANSACTIONAL_ID, WEEK, WEEK),
    below=(3, 4),
    static=True,
    applies=_idle_for_longer,
)
PRODUCER_EXPIRATION = Safeguard(
    f"{BY_ID}={WEEK}",
    "broker, from 3.4 on",
    "Producer ids expire after a week, so a producer that pauses keeps its duplicate protection.",
    6,
    CurrentSetting(SettingLocation.BROKER, BY_ID, WEEK, "86400000"),
    since=(3, 4),
    or_else=OLDER_EXPIRATION,
    applies=_idle_for_longer,
)
KNOWN_BELOW_LOG_START = Safeguard(
    "brokers of 2.4 or newer",
    "broker (KIP-360)",
    "They keep a producer's state until it expires, independent of retention. Older ones drop it with its last batch.",
    6,
    applies=_by_retention,
)
ID_EXPIRATION = Safeguard(
    BY_TRANSACTIONAL_ID,
    "broker",
    "Set above the longest idle time, an id does not expire while its client still writes.",
    7,
    CurrentSetting(SettingLocation.BROKER, BY_TRANSACTIONAL_ID, default=WEEK),
    static=True,
)
GROUP_METADATA = Safeguard(
    "sendOffsetsToTransaction(offsets, groupMetadata); Streams: processing.guarantee=exactly_once_v2",
    "client (KIP-447)",
    "The group fences a replaced member, so it cannot commit offsets after its successor took over.",
    8,
    applies=_by_a_transaction,
)
OLDER_TIMESTAMP_LIMIT = Safeguard(
    "message.timestamp.type=LogAppendTime, or message.timestamp.difference.max.ms",
    "topic",
    "Brokers refuse timestamps that expire state at once or hide overdue transactions.",
    9,
    CurrentSetting(SettingLocation.TOPIC, "message.timestamp.type", "LogAppendTime", "CreateTime"),
    below=(3, 6),
    static=True,
)
TIMESTAMP_LIMITS = Safeguard(
    "message.timestamp.type=LogAppendTime, or message.timestamp.before.max.ms and after.max.ms",
    "topic, the limits from 3.6 on (KIP-937)",
    "Brokers refuse timestamps that expire state at once or hide overdue transactions.",
    9,
    CurrentSetting(SettingLocation.TOPIC, "message.timestamp.type", "LogAppendTime", "CreateTime"),
    since=(3, 6),
    or_else=OLDER_TIMESTAMP_LIMIT,
    static=True,
)
ONE_AT_A_TIME = Safeguard(
    "one broker restarted at a time",
    "restart procedure, until a release has the fix",
    "A partition with a live leader at the end of a transaction gets its marker. If a broker has the only in-sync "
    "replica, end the transactions before it stops.",
    6,
)

LATE_WRITES = (TRANSACTION_VERSION_2, VERIFICATION)  # what keeps a late write out
# Against KAFKA-20734: a coordinator skips the marker of a leaderless partition.
OF_A_DEFECT = (REPLICATION, ONE_AT_A_TIME)


# The safeguards that apply to a finding of a cluster, with the current values.
#
# Excludes what is set already, cannot apply, or is unknown to the brokers' release.


SHOWN = 5  # present values, and commands, of one setting
BY_METADATA, BY_COORDINATOR, BY_DEFAULT = f"by {METADATA}", "by __transaction_state", "Kafka's default"
NOT_SHOWN, NOBODYS = "now: the input does not show it", ("", "")
# Broker-level names of topic settings; the rest have the same name at both levels.
BROKER_NAMES = {"message.timestamp.type": "log.message.timestamp.type"}


class Prevention(NamedTuple):
    """A safeguard that would have prevented a finding.

    ``now``: the current value; ``command``: sets it; each empty where there is none.
    """

    safeguard: Safeguard
    now: str
    command: str


class Present(NamedTuple):
    """The current value of a setting, its source, and its entity type and name ("" for the default of all brokers)."""

    value: str
    by: str
    entity: tuple[str, str]


def prevented_by(finding: Finding, declared: Iterable[Safeguard], cluster: Cluster) -> list[Prevention]:
    """Return the declared safeguards that would have prevented a finding.

    A Kafka defect is not prevented by any setting: :data:`OF_A_DEFECT` is proposed instead.
    """
    candidates = OF_A_DEFECT if read(Evidence, finding.evidence).get("known_defect") else declared
    preventions = (_applicable(safeguard, finding, cluster) for safeguard in candidates)
    return [prevention for prevention in preventions if prevention is not None]


def summed(prevented: Iterable[tuple[Finding, list[Prevention]]]) -> list[Fields]:
    """Return a row per safeguard with the number of findings it would have prevented.

    Highest severity first, then most findings.
    """
    rows: dict[str, Fields] = {}
    ranks: dict[str, int] = {}
    for finding, preventions in prevented:
        for safeguard, now, command in preventions:
            name = safeguard.setting
            ranks[name] = safeguard.rank
            row = rows.setdefault(
                name,
                {
                    "setting": name,
                    "where": safeguard.where,
                    "why": safeguard.why,
                    "severity": finding.severity,
                    "findings": 0,
                    "now": {},
                    "commands": {},
                },
            )
            row["severity"] = min(row["severity"], finding.severity, key=SEVERITIES.index)
            row["findings"] += 1
            for key, text in (("now", now), ("commands", command)):
                row[key] |= {text: None} if text else {}
    ordered = sorted(
        rows.values(),
        key=lambda row: (SEVERITIES.index(row["severity"]), -row["findings"], ranks[row["setting"]], row["setting"]),
    )
    return [row | {key: list(row[key])[:SHOWN] for key in ("now", "commands")} for row in ordered]


def _applicable(safeguard: Safeguard, finding: Finding, cluster: Cluster) -> Prevention | None:
    supported = _takes(safeguard, cluster)
    if supported is False or not safeguard.applies(finding, cluster):
        return None if safeguard.or_else is None else _applicable(safeguard.or_else, finding, cluster)
    present = _present(safeguard, finding, cluster, sure=bool(supported))
    if present is not None and _prevents(safeguard, present.value):
        return None
    command = _command(safeguard, finding, cluster, present) if supported and present is not None else ""
    return Prevention(safeguard, _now(safeguard, finding, present), command)


def _takes(safeguard: Safeguard, cluster: Cluster) -> bool | None:
    # None where nothing shows the release.
    shown, since, below = cluster.releases.values(), safeguard.since, safeguard.below
    if below is not None:
        return any(r.below is not None and r.below <= below for r in shown)
    if since is None:
        return True
    if any(r.below is not None and r.below <= since for r in shown):
        return False
    return True if shown and all(r.least >= since for r in shown) else None


def _prevents(safeguard: Safeguard, value: str) -> bool:
    # A higher number prevents too.
    wanted, given = setting_number(safeguard.current.value), setting_number(value)
    if wanted is not None and given is not None:
        return given >= wanted
    return value.strip() == safeguard.current.value


def _present(safeguard: Safeguard, finding: Finding, cluster: Cluster, *, sure: bool) -> Present | None:
    # ``sure``: the release is known to have the setting, so that its default applies if it is not set.
    name, topic = safeguard.current.name, finding.topic or ""
    match safeguard.current.location:
        case SettingLocation.PRODUCER:
            evidence = read(OpenTransactionEvidence, finding.evidence)
            ms, state = evidence.get("timeout_ms"), evidence.get("coordinator_state")
            return Present(str(ms), BY_COORDINATOR, NOBODYS) if ms is not None and state is not None else None
        case SettingLocation.REPLICAS:
            count = replicas_of(finding, cluster)
            return None if count is None else Present(str(count), BY_METADATA, ("topics", topic))
        case SettingLocation.FEATURE:
            return Present(str(cluster.levels.get(name, 0)), BY_METADATA, NOBODYS) if cluster.has_metadata else None
        case SettingLocation.TOPIC if (own := cluster.setting(topic, name)) is not None:
            return _readable(safeguard, Present(own, f"by {cluster.configs_by}", ("topics", topic)))
        case SettingLocation.TOPIC | SettingLocation.BROKER:
            return _of_broker(safeguard, finding, cluster, sure=sure)
    return None


def _of_broker(safeguard: Safeguard, finding: Finding, cluster: Cluster, *, sure: bool) -> Present | None:
    # Set for the leading broker, for all brokers, in its file, or not set.
    name = BROKER_NAMES.get(safeguard.current.name, safeguard.current.name)
    led = cluster.last_leader(finding.topic or "", -1 if finding.partition is None else finding.partition)
    broker = finding.broker_id if led is None else led
    in_file = cluster.of_files.get(broker)
    for entity in (str(broker), ""):
        value = cluster.broker_configs.get(entity, {}).get(name)
        if value is not None and entity and in_file is not None and name in in_file:
            return _readable(safeguard, Present(value, f"by server.properties of broker {broker}", ("brokers", "")))
        if value is not None:
            return _readable(safeguard, Present(value, f"by {cluster.configs_by}", ("brokers", entity)))
    is_default = sure and cluster.has_metadata and in_file is not None and not cluster.is_unknown(broker, name)
    return (
        Present(safeguard.current.default, BY_DEFAULT, ("brokers", ""))
        if is_default and safeguard.current.default
        else None
    )


def _readable(safeguard: Safeguard, present: Present) -> Present | None:
    # No broker takes an invalid value: a placeholder that is replaced before the start, say.
    number = setting_number(safeguard.current.value or safeguard.current.default) is not None
    readable = setting_number(present.value) is not None if number else present.value.strip().isalpha()
    return present if readable else None


def _now(safeguard: Safeguard, finding: Finding, present: Present | None) -> str:
    if safeguard.current.location is SettingLocation.PRACTICE:
        return ""
    if present is None:
        return NOT_SHOWN
    value, number = present.value, setting_number(present.value)
    if safeguard.current.location is SettingLocation.REPLICAS:
        value = f"{plural(int(value), 'replica')} of {finding.topic}-{finding.partition}"
    elif number is not None and safeguard.current.name.endswith(("_ms", ".ms")):
        value = duration(number)
    elif present.entity[0] == "topics":
        value = f"{value} for {present.entity[1]}"
    return f"now {value}{', ' if present.by is BY_DEFAULT else ' '}{present.by}"


def _command(safeguard: Safeguard, finding: Finding, cluster: Cluster, present: Present) -> str:
    # A value of a topic, or of a broker, overrides that of all brokers.
    if safeguard.current.location is SettingLocation.FEATURE:
        return f"kafka-features.sh {PLACE}upgrade --feature {safeguard.current.name}={safeguard.current.value}"
    enough = not safeguard.replicas or (replicas_of(finding, cluster) or 0) >= safeguard.replicas
    if (
        safeguard.current.location not in (SettingLocation.TOPIC, SettingLocation.BROKER)
        or safeguard.static
        or not enough
    ):
        return ""
    kind, name = ("topics", finding.topic or "") if safeguard.of_each else present.entity
    to = f"--entity-name {quote(name)}" if name else "--entity-default"
    setting = f"{safeguard.current.name}={safeguard.current.value}"
    return f"kafka-configs.sh {PLACE}--entity-type {kind} {to} --alter --add-config {setting}"
