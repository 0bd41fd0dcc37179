"""What users write: cluster names, TOML files, times and URIs."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import tomllib
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from auditor.base.at_rest import Fields, Values
from auditor.base.errors import AuditInputError
from auditor.base.numbers import parse_int
from auditor.base.words import did_you_mean, few

# TOML files that people write.


LIMIT_BYTES = 1 << 20
MOST_OF_KEY = 80  # characters of a key in a message


def read(path: Path) -> Fields:
    """What a file says. Errors: :class:`AuditInputError` where it cannot be read, is too large or is no TOML."""
    try:
        with path.open("rb") as file:
            content = file.read(LIMIT_BYTES + 1)
        if len(content) > LIMIT_BYTES:
            raise AuditInputError(f"{path} is larger than {LIMIT_BYTES} bytes; give a file of options")
        return tomllib.loads(content.decode())
    except OSError as error:
        raise AuditInputError(f"cannot read {path}: {error.strerror}; give a TOML file, such as auditor.toml") from None
    except ValueError as error:  # of the encoding, or of TOML
        raise AuditInputError(f"{path} is no TOML: {error}; mend it, or give another file") from None
    except RecursionError:
        raise AuditInputError(f"{path} is nested too deeply; mend it, or give another file") from None


def shown_key(key: str) -> str:
    """A key as TOML writes it, shortened, so that no control character of a file gets into a terminal."""
    short = key if len(key) <= MOST_OF_KEY else f"{key[:MOST_OF_KEY]}..."
    return short if re.fullmatch(r"[\w.-]+", short, re.ASCII) else json.dumps(short)


# What people call a cluster, whose id nobody knows by heart: a name, its owner, a link, labels.


MOST = 200  # characters of each text


class ClusterName(NamedTuple):
    """A cluster as people know it; what nobody said is empty. ``link``: of its page, http or https."""

    name: str
    owner: str = ""
    link: str = ""
    labels: tuple[tuple[str, str], ...] = ()

    def row(self) -> Fields:
        """For JSON."""
        return {**self._asdict(), "labels": dict(self.labels)}


Names = tuple[tuple[str, ClusterName], ...]  # by the cluster's id


def of_table(table: Values, at: str) -> Names:
    """The table ``[clusters]`` of a file of options: an id's name, or a table of what is known.

    Errors: :class:`AuditInputError`, naming ``at``, the file and the table.
    """
    return tuple((id, _named(says, f"{at} {shown_key(id)}")) for id, says in table.items())


def of_file(path: Path) -> Names:
    """The table ``[clusters]`` of a file of options. Errors: :class:`AuditInputError`, naming the file."""
    table = read(path).get("clusters")
    if not isinstance(table, dict):
        raise AuditInputError(f'{path} has no table [clusters]; write [clusters] and a line CLUSTER-ID = "name" each')
    return of_table(table, f"{path}: [clusters]")


def _named(says: object, at: str) -> ClusterName:
    known = {"name": says} if isinstance(says, str) else says
    if not isinstance(known, dict) or not {"name"} <= known.keys() <= set(ClusterName._fields):
        raise AuditInputError(f"{at} is a name, or a table with name and, where wanted, owner, link and labels")
    labels = known.get("labels", {})
    if not isinstance(labels, dict):
        raise AuditInputError(f'{at} labels is a table, such as {{ stage = "prod" }}')
    found = ClusterName(**{**known, "labels": tuple(labels.items())})
    for text in (found.name, found.owner, found.link, *(part for label in found.labels for part in label)):
        if not isinstance(text, str) or len(text) > MOST or not text.isprintable():
            raise AuditInputError(f"{at}: a text is of at most {MOST} printable characters")
    if not found.name:
        raise AuditInputError(f"{at} has an empty name; leave the cluster out instead")
    if found.link and not found.link.startswith(("https://", "http://")):
        raise AuditInputError(f"{at} link begins with https:// or http://")
    return found


def shown_cluster(ids: str, names: Mapping[str, str]) -> str:
    """Ids with commas between, each as its name where there is one."""
    return ",".join(names.get(id, id) for id in ids.split(","))


# Moments that people write, as milliseconds.


def moment_ms(text: str) -> int | None:
    """An ISO-8601 moment (UTC unless it says otherwise) in ms since the epoch; None for any other text."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


# URIs of stores as users give them: their parts, and how they are shown, without what is secret in them.


def parsed(uri: str) -> urllib.parse.SplitResult:
    """The parts of a URI. Errors: :class:`AuditInputError` where it has none."""
    try:
        return urllib.parse.urlsplit(uri)
    except ValueError:
        hint = "write brackets and other signs of its user and password as %5B, %5D and so on"
        raise AuditInputError(f"a URI that cannot be parsed; {hint}") from None


def shown_uri(text: str) -> str:
    """A path or URI for people: bytes that are not UTF-8 as ``\\xNN``, no user, password or options of a URI."""
    scheme, is_uri, rest = os.fsencode(text).decode("utf-8", "backslashreplace").partition("://")
    if not is_uri:
        return scheme
    user, at, after = rest.rpartition("@")
    if at and "?" in user:  # in a password or before an option: nobody knows
        return f"{scheme}://…"
    if at and "/" in user and ":" not in user:  # a name with an @ in it
        after = rest
    return f"{scheme}://{after.partition('?')[0]}"


# The part of the input that is read: topics, partitions, brokers, and from where on.
#
# What a scope leaves out is never opened, and nothing follows from it: it is neither absent nor lost. Internal topics,
# metadata and checkpoints are always read, for what they know of all others.


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


# How many processes ``--master inline`` means. Imports next to nothing: workers start to load before all else.


MASTER = re.compile(r"inline(?:\[(\*|[1-9]\d{0,3})\])?")


def processes_of(master: str) -> int:
    """How many processes ``inline``, ``inline[*]`` or ``inline[N]`` means. Errors: :class:`AuditInputError`."""
    found = MASTER.fullmatch(master)
    if found is None:
        raise AuditInputError(f"--master {master!r} is none; give inline, inline[N], local[N] or the URL of a Spark")
    if found[1] in (None, "*"):
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(found[1])
