"""A broker's settings: which may be shown, and which values of those that an audit goes by no broker takes."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from auditor.base.numbers import setting_number
from auditor.connectors.codec.text_lines import only_properties

# An allow-list, since any other may be a password, a key or an address.
_SHOWN = re.compile(
    r"(?:log|message|producer\.id|transaction|transactional\.id|offsets|group|replica|unclean|min|num|default|auto"
    r"|delete|compression|leader|controlled|metadata\.log|broker\.id|node\.id|process\.roles|inter\.broker\.protocol)\b"
    r"[a-z0-9.]*"
)
_SENSITIVE = re.compile(r"password|secret|jaas|keystore|truststore|credential|token|license", re.IGNORECASE)
_TOPICS_SHOWN = re.compile(
    r"(?:cleanup\.policy|compression|delete\.retention|file\.delete|flush|index|leader|follower|local|max|message|min"
    r"|preallocate|remote|retention|segment|unclean)\b[a-z0-9.]*"
)
_LOWEST = -(1 << 63)
# Of ConfigDef in 2.8.2 and 4.3.1, bits and the least value; where releases differ, what the most tolerant one takes.
_OF_BROKERS = {
    "broker.id": (32, _LOWEST),
    "node.id": (32, _LOWEST),
    "producer.id.expiration.ms": (32, 1),
    "producer.id.expiration.check.interval.ms": (32, 1),
    "transactional.id.expiration.ms": (32, 1),
    "transaction.state.log.num.partitions": (32, 1),
    "offsets.topic.num.partitions": (32, 1),
    "log.segment.bytes": (32, 14),
    "log.retention.ms": (64, _LOWEST),
    "log.retention.minutes": (32, _LOWEST),
    "log.retention.hours": (32, _LOWEST),
    "log.retention.bytes": (64, _LOWEST),
    "log.message.timestamp.difference.max.ms": (64, _LOWEST),
    "log.message.timestamp.before.max.ms": (64, 0),
    "log.message.timestamp.after.max.ms": (64, 0),
}
_OF_TOPICS = {
    "segment.bytes": (32, 14),
    "retention.ms": (64, -1),
    "retention.bytes": (64, _LOWEST),
    "message.timestamp.difference.max.ms": (64, _LOWEST),
    "message.timestamp.before.max.ms": (64, 0),
    "message.timestamp.after.max.ms": (64, 0),
}
_NUMBERS = _OF_BROKERS | _OF_TOPICS
_VERSIONS = ("inter.broker.protocol.version", "log.message.format.version")
OF_BROKERS, OF_TOPICS = (*_OF_BROKERS, *_VERSIONS), (*_OF_TOPICS,)  # the settings that an audit goes by
# What else an audit asks for of a broker's own file, or that shows whether it is one.
_ASKED = ("log.cleanup.policy", "log.preallocate", "log.message.timestamp.type", "message.max.bytes", "process.roles",
          "log.cleaner.delete.retention.ms", "log.dirs", "log.dir", "log.cleaner.enable", "log.roll.ms",
          "log.roll.hours", "log.cleaner.min.cleanable.ratio", "log.cleaner.min.compaction.lag.ms",
          "log.cleaner.max.compaction.lag.ms",
          "log.local.retention.ms", "log.local.retention.bytes", "log.retention.check.interval.ms",
          "replica.selector.class")  # fmt: skip
# Brokers look at two numbers (three behind "0.") and what -IV they have: 2.8.x and 0.9.0.X are versions to them.
_VERSION = re.compile(r"(?:0\.[0-9]{1,4}(?:\.[0-9]{1,4})?|[1-9][0-9]{0,3}\.[0-9]{1,4})(?:-IV[0-9]{1,4})?(?:\..*)?")
# ConfigTransformer's ${provider:path:key}, and what deployments replace before the start: $NAME, $(NAME), {{ name }}.
_ELSEWHERE = re.compile(r"\$[\w({]|\{\{")


def audited_settings(data: bytes) -> bytes:
    """A ``server.properties`` with blanks for all lines but those of settings that an audit goes by."""
    wanted = frozenset({*OF_BROKERS, *_ASKED})
    return only_properties(data, wanted.__contains__)


class Sorted(NamedTuple):
    """Settings by what is known of them: with their value, with one that stands elsewhere, with one nobody takes."""

    known: dict[str, str]
    elsewhere: frozenset[str]
    refused: frozenset[str]


def may_show(name: str) -> bool:
    """Whether the value of this broker setting may leave the input; the names of all settings may."""
    return bool(_SHOWN.fullmatch(name)) and not _SENSITIVE.search(name)


def may_show_topic(name: str) -> bool:
    """The same of a topic's setting."""
    return bool(_TOPICS_SHOWN.fullmatch(name)) and not _SENSITIVE.search(name)


def sort_out(settings: Mapping[str, str], names: Collection[str]) -> Sorted:
    """Sorts settings. ``names``: the ones that an audit goes by; all others are known, whatever their value.

    A number in quotes, with a unit or a decimal point is refused, as by a broker; blanks, a sign, and leading zeros are
    not. Cost: linear in the lengths of the values. Source: ConfigDef.parseType and the validators of KafkaConfig.
    """
    refused = {name for name in names if name in settings and _refused(name, settings[name])}
    elsewhere = frozenset(name for name in refused if _ELSEWHERE.search(settings[name]))
    known = {name: value for name, value in settings.items() if name not in refused}
    return Sorted(known, elsewhere, frozenset(refused - elsewhere))


def _refused(name: str, value: str) -> bool:
    if name in _VERSIONS:
        return _VERSION.fullmatch(value.strip()) is None
    bits, least = _NUMBERS[name]
    return setting_number(value, least, bits) is None
