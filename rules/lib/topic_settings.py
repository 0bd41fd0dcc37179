"""Settings that retention and cleaning go by, with who says them: the topic, its broker, or Kafka's default."""

from __future__ import annotations

from typing import NamedTuple

from auditor.base.numbers import setting_number
from auditor.rules.seen.cluster_view import Cluster

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
WEEK_MS = 7 * DAY_MS
FOREVER = (1 << 63) - 1
LOWEST = -(1 << 63)


class Named(NamedTuple):
    """A topic's setting: what brokers call it, each with the ms or bytes of one unit, and its default."""

    at_broker: tuple[tuple[str, int], ...]
    default: str


# Source: LogConfig, ServerLogConfigs and ServerTopicConfigSynonyms; the first one of a broker that is set counts.
SETTINGS = {
    "cleanup.policy": Named((("log.cleanup.policy", 1),), "delete"),
    "retention.ms": Named(
        (("log.retention.ms", 1), ("log.retention.minutes", MINUTE_MS), ("log.retention.hours", HOUR_MS)), str(WEEK_MS)
    ),
    "retention.bytes": Named((("log.retention.bytes", 1),), "-1"),
    "local.retention.ms": Named((("log.local.retention.ms", 1),), "-2"),
    "local.retention.bytes": Named((("log.local.retention.bytes", 1),), "-2"),
    "segment.ms": Named((("log.roll.ms", 1), ("log.roll.hours", HOUR_MS)), str(WEEK_MS)),
    "remote.storage.enable": Named((), "false"),
    "remote.log.copy.disable": Named((), "false"),
    "min.cleanable.dirty.ratio": Named((("log.cleaner.min.cleanable.ratio", 1),), "0.5"),
    "min.compaction.lag.ms": Named((("log.cleaner.min.compaction.lag.ms", 1),), "0"),
    "max.compaction.lag.ms": Named((("log.cleaner.max.compaction.lag.ms", 1),), str(FOREVER)),
    "delete.retention.ms": Named((("log.cleaner.delete.retention.ms", 1),), str(DAY_MS)),
}
COMPACTED = ("__consumer_offsets", "__transaction_state", "__share_group_state")  # brokers make them so
OF_INTERNAL = {"__share_group_state": "compact,delete"}  # that are more than compacted


class Setting(NamedTuple):
    """A value, by whom, and whether it is known: the topic's own settings and the broker's file are in the input."""

    value: str
    by: str
    sure: bool

    @property
    def number(self) -> int:
        """The value as a number. A value that is none is that of its default, which the input does not show."""
        found = setting_number(self.value, least=LOWEST)
        return LOWEST if found is None else found


def setting(cluster: Cluster, broker_id: int | None, topic: str, name: str) -> Setting:
    """A topic's setting as its replica's broker goes by."""
    own = cluster.setting(topic, name)
    if own is not None:
        return Setting(own, f"topic {name}", True)
    if name == "cleanup.policy" and topic in COMPACTED:
        return Setting(OF_INTERNAL.get(topic, "compact"), "internal topic", cluster.has_metadata)
    names = SETTINGS[name].at_broker
    sure = cluster.has_metadata and not cluster.is_unknown(broker_id, *(at for at, _ in names))
    for at, unit in names:
        value = cluster.broker_setting(broker_id, at)
        if value is None:
            continue
        number = None if unit == 1 else setting_number(value, least=LOWEST)
        return Setting(value if number is None else str(number * unit), f"broker {at}", sure)
    sure = sure and (not names or broker_id in cluster.of_files)
    return Setting(SETTINGS[name].default, "default", sure)
