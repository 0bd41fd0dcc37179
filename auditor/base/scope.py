"""The part of the input that is read: topics, partitions, brokers, and from where on.

What a scope leaves out is never opened, and nothing follows from it: it is neither absent nor lost. Internal topics,
metadata and checkpoints are always read, for what they know of all others.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from auditor.base.errors import AuditInputError
from auditor.base.near import did_you_mean
from auditor.base.numbers import parse_int
from auditor.base.times import moment_ms
from auditor.base.words import few


class Since(NamedTuple):
    """From where on logs are read: an offset, or a time in ms. ``text``: as it was given."""

    text: str
    offset: int | None
    time_ms: int | None

    @property
    def said(self) -> str:
        """In words, behind "from"."""
        return f"offset {self.offset}" if self.offset is not None else self.text


def since_of(text: str) -> Since:
    """What ``--since`` means: a whole number is an offset. Errors: :class:`AuditInputError`."""
    offset = parse_int(text)
    time = None if offset is not None else moment_ms(text)
    if (offset is None and time is None) or (offset is not None and offset < 0):
        raise AuditInputError(
            f"--since {text!r} is no place in a log; give an offset, or a time such as 2026-11-21T04:00:00Z"
        )
    return Since(text, offset, time)


@dataclass(frozen=True, slots=True)
class Scope:
    """What is read. Of each kind any of its values will do, every kind that has values must fit; empty: everything.

    ``topics``: globs; ``partitions``: globs over ``topic-partition``, or a partition's number alone. ``may_lack``: who
    names them does not know whether they are there, and that one is not is no mistake.
    """

    topics: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    brokers: tuple[int, ...] = ()
    since: Since | None = None
    may_lack: bool = False

    @property
    def leaves_out(self) -> bool:
        """Whether it leaves out anything."""
        return self != EVERYTHING

    def wants(self, topic: str | None, partition: int | None, broker_id: int | None) -> bool:
        """Whether a replica is read."""
        return self.wants_log(topic, partition) and (
            not self.brokers or broker_id in self.brokers or is_internal(topic)
        )

    def wants_log(self, topic: str | None, partition: int | None) -> bool:
        """Whether replicas of a partition are read, of whichever brokers."""
        return is_internal(topic) or self.names(topic, partition)

    def names(self, topic: str | None, partition: int | None) -> bool:
        """Whether a partition is asked for; internal ones are read if not, too, since they explain others."""
        if self.topics and not any(fnmatch.fnmatchcase(topic or "", glob) for glob in self.topics):
            return False
        return not self.partitions or any(is_of(topic or "", partition, glob) for glob in self.partitions)

    @property
    def said(self) -> str:
        """In words; empty where it leaves out nothing."""
        return was_read(self.topics, self.partitions, self.brokers, self.since.said if self.since else None)


def was_read(
    topics: Sequence[str] | None, partitions: Sequence[str] | None, brokers: Sequence[int] | None, since: str | None
) -> str:
    """What was read of a scope, in words."""
    named = (("topics that match", topics), ("partitions that match", partitions), ("copies of broker", brokers))
    which = " and ".join(f"{kind} {few(values)}" for kind, values in named if values)
    begun = f" from {since} on" if since else ""
    return f"{f'only {which}' if which else 'logs'} were read{begun}" if which or begun else ""


EVERYTHING = Scope()
Seen = tuple[str | None, int | None, int | None]  # topic, partition and broker of a replica


def is_internal(topic: str | None) -> bool:
    """Whether a topic is one of Kafka's own."""
    return (topic or "").startswith("__")


def fits(text: str, glob: str) -> bool:
    """Whether a name is the glob itself, or fits it: names may hold the signs of globs."""
    return text == glob or fnmatch.fnmatchcase(text, glob)


def is_of(topic: str, partition: int | None, glob: str) -> bool:
    """Whether ``TOPIC-N`` or a number of any topic means a partition."""
    return glob == str(partition) or fits(f"{topic}-{partition}", glob)


def check(scope: Scope, seen: Iterable[Seen]) -> None:
    """Errors: :class:`AuditInputError` where a value of the scope fits nothing of what there is, or all together."""
    if not scope.leaves_out or scope.may_lack:
        return
    there = list(seen)
    topics = {topic or "" for topic, _, _ in there}
    for glob in scope.topics:
        if not any(fnmatch.fnmatchcase(topic, glob) for topic in topics):
            meant = did_you_mean(glob, topics)
            raise AuditInputError(
                f"--topic {glob} matches no topic of the input{meant or '; give another glob, in quotes'}"
            )
    for glob in scope.partitions:
        if not any(is_of(topic or "", partition, glob) for topic, partition, _ in there):
            meant = did_you_mean(glob, (f"{topic}-{partition}" for topic, partition, _ in there))
            raise AuditInputError(
                f"--only-partition {glob} matches no partition of the input{meant}; give TOPIC-N, a number or a glob"
            )
    brokers = {broker for _, _, broker in there}
    for number in scope.brokers:
        if number not in brokers:
            known = sorted(broker for broker in brokers if broker is not None)
            raise AuditInputError(f"--only-broker {number} matches no broker of the input; give one of {known}")
    asked = any(topic is not None and is_internal(topic) and _asks_for(scope, topic, n) for topic, n, _ in there)
    if not asked and not any(scope.wants(*one) and not is_internal(one[0]) for one in there):
        raise AuditInputError(
            "--topic, --only-partition and --only-broker together match no partition copy of the input; leave one out"
        )


def _asks_for(scope: Scope, topic: str, partition: int | None) -> bool:
    """Whether an internal topic is one of those that the scope names."""
    named = not scope.topics or any(fnmatch.fnmatchcase(topic, glob) for glob in scope.topics)
    return named and (not scope.partitions or any(is_of(topic, partition, glob) for glob in scope.partitions))
