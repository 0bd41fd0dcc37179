"""Which setting would have prevented a finding: the last answer of the report.

Names are those of Kafka's own configuration reference; a command is given where a running cluster can be changed by
one. ``B`` stands for a bootstrap server, as in the remedies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from auditor.dashboards.wording import SEVERITIES


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting that prevents what ``rules`` find: where it is set, what it does, and how to set it now."""

    setting: str
    where: str
    why: str
    command: str | None
    rules: frozenset[str]


def _broker(setting: str) -> str:
    return (
        "kafka-configs.sh --bootstrap-server B --entity-type brokers --entity-default --alter "
        f"--add-config {setting}"
    )  # fmt: skip


_LATE_WRITES = frozenset(
    {
        "hanging-transaction", "late-write-after-marker", "partition-not-in-transaction", "pending-offsets-blocked",
        "transaction-pinned-at-log-start", "transactions-merged-under-one-marker",
    }
)  # fmt: skip

SETTINGS = (
    Setting(
        "transaction.version=2", "cluster feature, brokers and clients from 4.0 on (KIP-890)",
        "Each transaction gets an epoch of its own, so a late write can no longer slip behind a marker.",
        "kafka-features.sh --bootstrap-server B upgrade --feature transaction.version=2", _LATE_WRITES,
    ),
    Setting(
        "transaction.partition.verification.enable=true", "broker, from 3.6 on (KIP-890 part 1)",
        "The leader asks the coordinator before the first write of a transaction and refuses strays.",
        _broker("transaction.partition.verification.enable=true"), _LATE_WRITES,
    ),
    Setting(
        "transaction.timeout.ms", "producer; capped by the brokers' transaction.max.timeout.ms",
        "A shorter time-out bounds how long a crashed client can hold its readers back.",
        None,
        frozenset({"long-open-transaction", "lso-stuck", "timeout-not-enforced", "transaction-timeout-too-large"}),
    ),
    Setting(
        "unclean.leader.election.enable=false", "broker or topic",
        "A replica that missed acknowledged batches cannot become leader, so no acknowledged state is rolled back.",
        _broker("unclean.leader.election.enable=false"),
        frozenset({
            "sequence-gap", "committed-transaction-hole", "replica-divergence", "replica-missing-range",
            "data-epoch-ahead-of-coordinator", "state-epoch-regression", "illegal-transition", "epoch-regression",
            "missing-marker", "split-decision", "first-batch-after-bump-nonzero", "checkpoint-beyond-log-end",
        }),
    ),
    Setting(
        "min.insync.replicas=2 with acks=all", "topic and producer",
        "What a producer was told is stored lies on two disks before it is told so.",
        None,
        frozenset({"sequence-gap", "committed-transaction-hole", "replica-missing-range", "torn-tail", "offset-hole"}),
    ),
    Setting(
        "producer.id.expiration.ms=604800000", "broker, from 3.4 on",
        "Brokers remember idle producers for a week, so a producer that pauses keeps its duplicate protection.",
        _broker("producer.id.expiration.ms=604800000"),
        frozenset({
            "producer-expired-while-active", "unknown-producer-exposure", "unknown-producer-first-sequence",
            "duplicate-sequence-range", "sequence-reset-same-epoch",
        }),
    ),
    Setting(
        "transactional.id.expiration.ms", "broker",
        "Kept above the longest idle time, an id is not forgotten while its client still writes.",
        None, frozenset({"expired-id-still-producing"}),
    ),
    Setting(
        "sendOffsetsToTransaction(offsets, groupMetadata); Streams: processing.guarantee=exactly_once_v2",
        "client (KIP-447)",
        "The group fences a member that has been replaced, so it cannot commit offsets behind its successor's back.",
        None, frozenset({"zombie-offset-commit", "interleaved-offset-producers", "offset-regression"}),
    ),
    Setting(
        "message.timestamp.type=LogAppendTime, or message.timestamp.before.max.ms and after.max.ms", "topic",
        "Time stamps that expire state at once, or hide what is late, are not let in.",
        None, frozenset({"producer-timestamp-skew", "timestamp-out-of-range"}),
    ),
)  # fmt: skip


def prevent(by_rule: Mapping[str, int], severity_of: Mapping[str, str]) -> list[tuple[Setting, int]]:
    """The settings that would have prevented findings, with how many: worst severity first, then most findings.

    ``by_rule`` counts findings by rule; ``severity_of`` gives the worst severity of each. Rules that only inform (info)
    ask for no setting.
    """
    told = [(setting, *_weight(setting.rules, by_rule, severity_of)) for setting in SETTINGS]
    wanted = [(setting, worst, count) for setting, worst, count in told if count]
    return [(setting, count) for setting, _, count in sorted(wanted, key=lambda entry: (entry[1], -entry[2]))]


def _weight(rules: Iterable[str], by_rule: Mapping[str, int], severity_of: Mapping[str, str]) -> tuple[int, int]:
    mine = [rule for rule in rules if by_rule.get(rule) and severity_of.get(rule, "info") != "info"]
    worst = min((SEVERITIES.index(severity_of[rule]) for rule in mine), default=len(SEVERITIES))
    return worst, sum(by_rule[rule] for rule in mine)
