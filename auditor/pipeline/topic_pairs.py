"""Pairs of topics that are compared: the same name, a name that MirrorMaker gives, or what ``--topic-map`` says."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from auditor.base.errors import AuditInputError
from auditor.base.words import did_you_mean

SEPARATOR = "."  # of DefaultReplicationPolicy


class TopicPair(NamedTuple):
    """A topic of A and the topic of B that should have its records.

    ``by_key``: they have different numbers of partitions, so that order is compared by key. ``compacted``: whether
    one of them is; None where the input does not show it.
    """

    first: str
    other: str
    by_key: bool = False
    compacted: bool | None = False


def parsed_map(texts: Sequence[str]) -> dict[str, str]:
    """Parse ``A=B``. Errors: :class:`AuditInputError`."""
    pairs: dict[str, str] = {}
    for text in texts:
        first, equals, other = text.partition("=")
        if not (first and equals and other) or pairs.setdefault(first, other) != other:
            raise AuditInputError(f"invalid --topic-map {text!r}: expected A=B, once per topic, as orders=west.orders")
    return pairs


def named_pairs(
    ours: Collection[str], theirs: Collection[str], given: Mapping[str, str]
) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the pairs of topic names, and the topics of A without a pair.

    A name of A means the topic of that name in B (IdentityReplicationPolicy), else the only topic ``SOURCE.NAME`` there
    that A does not have itself (DefaultReplicationPolicy, KIP-382). Errors: :class:`AuditInputError` for a name of
    ``given`` that no input has, for several topics that may be meant, and for a topic of B in several pairs.
    """
    for first, other in given.items():
        for name, side, topics in ((first, "A", ours), (other, "B", theirs)):
            if name not in topics:
                raise AuditInputError(
                    f"--topic-map {first}={other}: no topic {name} in {side}{did_you_mean(name, topics)}"
                )
    pairs, lacking = list(given.items()), []
    for topic in sorted(set(ours) - set(given)):
        renamed = [t for t in sorted(set(theirs) - set(ours)) if t.endswith(SEPARATOR + topic)]
        renamed = [t for t in renamed if t not in given.values()]
        if topic in theirs and not renamed:
            pairs.append((topic, topic))
        elif topic not in theirs and len(renamed) == 1:
            pairs.append((topic, renamed[0]))
        elif renamed:
            names = ", ".join([topic] * (topic in theirs) + renamed)
            raise AuditInputError(
                f"topic {topic} of A may be any of {names} in B; choose one: --topic-map {topic}={renamed[0]}"
            )
        else:
            lacking.append(topic)
    several = {other: sorted(first for first, one in pairs if one == other) for _, other in pairs}
    for other, firsts in several.items():
        if len(firsts) > 1:
            raise AuditInputError(
                f"topic {other} of B would be compared with {' and '.join(firsts)} of A; choose one of them by --topic"
            )
    return sorted(pairs), lacking
