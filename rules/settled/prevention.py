"""What would have prevented a finding, with what is set at present: nothing that is set, cannot apply, or is refused.

What is declared of rules (:mod:`auditor.rules.catalogue.safeguards`) is held against the finding and its cluster here.
"""

from __future__ import annotations

from collections.abc import Iterable
from shlex import quote
from typing import NamedTuple

from auditor.base.at_rest import Fields
from auditor.base.numbers import setting_number
from auditor.base.words import duration, plural
from auditor.rules.catalogue.safeguards import METADATA, OF_A_DEFECT, At, Safeguard, replicas_of
from auditor.rules.lib.commands import PLACE
from auditor.rules.seen.cluster_view import Cluster
from auditor.rules.seen.finding import SEVERITIES, Finding

SHOWN = 5  # present values, and commands, of one setting
BY_METADATA, BY_COORDINATOR, BY_DEFAULT = f"by {METADATA}", "by __transaction_state", "Kafka's default"
NOT_SHOWN, NOBODYS = "now: the input does not show it", ("", "")
# Broker-level names of topic settings that safeguards look at; the rest have the same name at both levels.
BROKER_NAMES = {"message.timestamp.type": "log.message.timestamp.type"}


class Prevention(NamedTuple):
    """A safeguard that would have prevented a finding: ``now``, what is set at present, and ``command``, which sets it;
    each empty where there is nothing to say."""

    safeguard: Safeguard
    now: str
    command: str


class Present(NamedTuple):
    """What is set at present: by whom it is known, and of which entity of Kafka's (type and name, "" for the default of
    all brokers)."""

    value: str
    by: str
    entity: tuple[str, str]


def prevented_by(finding: Finding, declared: Iterable[Safeguard], cluster: Cluster) -> list[Prevention]:
    """What of the declared would have prevented a finding of a cluster. A defect of Kafka itself no setting prevents;
    what keeps it from showing is said instead."""
    mine = OF_A_DEFECT if finding.evidence.get("known_defect") else declared
    found = (_held(safeguard, finding, cluster) for safeguard in mine)
    return [each for each in found if each is not None]


def summed(found: Iterable[tuple[Finding, list[Prevention]]]) -> list[Fields]:
    """Rows, a safeguard each, with how many findings it would have prevented: the worst severity first, then most
    findings."""
    rows: dict[str, Fields] = {}
    ranks: dict[str, int] = {}
    for finding, preventions in found:
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
            for key, said in (("now", now), ("commands", command)):
                row[key] |= {said: None} if said else {}
    ordered = sorted(
        rows.values(),
        key=lambda row: (SEVERITIES.index(row["severity"]), -row["findings"], ranks[row["setting"]], row["setting"]),
    )
    return [row | {key: _first(row[key]) for key in ("now", "commands")} for row in ordered]


def _first(said: Iterable[str]) -> list[str]:
    return list(said)[:SHOWN]


def _held(safeguard: Safeguard, finding: Finding, cluster: Cluster) -> Prevention | None:
    taken = _takes(safeguard, cluster)
    if taken is False or not safeguard.applies(finding, cluster):
        return None if safeguard.or_else is None else _held(safeguard.or_else, finding, cluster)
    present = _present(safeguard, finding, cluster, sure=bool(taken))
    if present is not None and _prevents(safeguard, present.value):
        return None
    command = _command(safeguard, finding, cluster, present) if taken and present is not None else ""
    return Prevention(safeguard, _now(safeguard, finding, present), command)


def _takes(safeguard: Safeguard, cluster: Cluster) -> bool | None:
    """Whether the brokers' release takes it; None where nothing shows that."""
    shown, since, below = cluster.releases.values(), safeguard.since, safeguard.below
    if below is not None:
        return any(r.below is not None and r.below <= below for r in shown)
    if since is None:
        return True
    if any(r.below is not None and r.below <= since for r in shown):
        return False
    return True if shown and all(r.least >= since for r in shown) else None


def _prevents(safeguard: Safeguard, value: str) -> bool:
    """Whether a present value is the one that prevents, or a higher number."""
    wanted, given = setting_number(safeguard.value), setting_number(value)
    if wanted is not None and given is not None:
        return given >= wanted
    return value.strip() == safeguard.value


def _present(safeguard: Safeguard, finding: Finding, cluster: Cluster, *, sure: bool) -> Present | None:
    """``sure``: the release is known to have the setting, so that its default counts where nobody set it."""
    name, topic = safeguard.name, finding.topic or ""
    match safeguard.at:
        case At.PRODUCER:
            ms, state = finding.evidence.get(name), finding.evidence.get("coordinator_state")
            return Present(str(ms), BY_COORDINATOR, NOBODYS) if ms is not None and state is not None else None
        case At.REPLICAS:
            count = replicas_of(finding, cluster)
            return None if count is None else Present(str(count), BY_METADATA, ("topics", topic))
        case At.FEATURE:
            return Present(str(cluster.levels.get(name, 0)), BY_METADATA, NOBODYS) if cluster.has_metadata else None
        case At.TOPIC if (own := cluster.setting(topic, name)) is not None:
            return _readable(safeguard, Present(own, f"by {cluster.configs_by}", ("topics", topic)))
        case At.TOPIC | At.BROKER:
            return _of_broker(safeguard, finding, cluster, sure=sure)
    return None


def _of_broker(safeguard: Safeguard, finding: Finding, cluster: Cluster, *, sure: bool) -> Present | None:
    """What the broker that leads the partition has: set for it, for all brokers, in its file, or by nobody."""
    name = BROKER_NAMES.get(safeguard.name, safeguard.name)
    led = cluster.last_leader(finding.topic or "", -1 if finding.partition is None else finding.partition)
    broker = finding.broker_id if led is None else led
    in_file = cluster.of_files.get(broker)
    for entity in (str(broker), ""):
        value = cluster.broker_configs.get(entity, {}).get(name)
        if value is not None and entity and in_file is not None and name in in_file:
            return _readable(safeguard, Present(value, f"by server.properties of broker {broker}", ("brokers", "")))
        if value is not None:
            return _readable(safeguard, Present(value, f"by {cluster.configs_by}", ("brokers", entity)))
    known = sure and cluster.has_metadata and in_file is not None and not cluster.is_unknown(broker, name)
    return Present(safeguard.default, BY_DEFAULT, ("brokers", "")) if known and safeguard.default else None


def _readable(safeguard: Safeguard, present: Present) -> Present | None:
    """None for a value that no broker takes: a name that is replaced before the start, say."""
    number = setting_number(safeguard.value or safeguard.default) is not None
    readable = setting_number(present.value) is not None if number else present.value.strip().isalpha()
    return present if readable else None


def _now(safeguard: Safeguard, finding: Finding, present: Present | None) -> str:
    if safeguard.at is At.PRACTICE:
        return ""
    if present is None:
        return NOT_SHOWN
    value, number = present.value, setting_number(present.value)
    if safeguard.at is At.REPLICAS:
        value = f"{plural(int(value), 'replica')} of {finding.topic}-{finding.partition}"
    elif number is not None and safeguard.name.endswith(("_ms", ".ms")):
        value = duration(number)
    elif present.entity[0] == "topics":
        value = f"{value} for {present.entity[1]}"
    return f"now {value}{', ' if present.by is BY_DEFAULT else ' '}{present.by}"


def _command(safeguard: Safeguard, finding: Finding, cluster: Cluster, present: Present) -> str:
    """What sets it, where the present value is: one of a topic, or of a broker, goes before that of all brokers."""
    if safeguard.at is At.FEATURE:
        return f"kafka-features.sh {PLACE}upgrade --feature {safeguard.name}={safeguard.value}"
    enough = not safeguard.replicas or (replicas_of(finding, cluster) or 0) >= safeguard.replicas
    if safeguard.at not in (At.TOPIC, At.BROKER) or safeguard.static or not enough:
        return ""
    kind, name = ("topics", finding.topic or "") if safeguard.of_each else present.entity
    to = f"--entity-name {quote(name)}" if name else "--entity-default"
    setting = f"{safeguard.name}={safeguard.value}"
    return f"kafka-configs.sh {PLACE}--entity-type {kind} {to} --alter --add-config {setting}"
