"""Parse what users write: cluster names, TOML files, times, URIs and scopes."""

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
from auditor.base.errors import AuditInputError, parse_int
from auditor.base.words import did_you_mean, few

# TOML files.


LIMIT_BYTES = 1 << 20
MOST_OF_KEY = 80  # characters of a key in a message


def read(path: Path) -> Fields:
    """Parse a TOML file. Errors: :class:`AuditInputError` if it cannot be read, is too large or is not TOML."""
    try:
        with path.open("rb") as file:
            content = file.read(LIMIT_BYTES + 1)
        if len(content) > LIMIT_BYTES:
            raise AuditInputError(f"{path} is larger than {LIMIT_BYTES} bytes: expected an options file")
        return tomllib.loads(content.decode())
    except OSError as error:
        raise AuditInputError(
            f"cannot read {path}: {error.strerror}: expected a TOML file such as auditor.toml"
        ) from None
    except ValueError as error:  # of the encoding, or of TOML
        raise AuditInputError(f"{path} is not valid TOML: {error}; fix it or give another file") from None
    except RecursionError:
        raise AuditInputError(f"{path} is nested too deeply; fix it or give another file") from None


def shown_key(key: str) -> str:
    """A key as TOML writes it, shortened, so that no control character of a file reaches a terminal."""
    short = key if len(key) <= MOST_OF_KEY else f"{key[:MOST_OF_KEY]}..."
    return short if re.fullmatch(r"[\w.-]+", short, re.ASCII) else json.dumps(short)


# Names of clusters, since nobody knows their ids by heart.


MOST = 200  # characters of each text


class ClusterName(NamedTuple):
    """A cluster's name and what else users configured for it; empty if not given. ``link``: http or https."""

    name: str
    owner: str = ""
    link: str = ""
    labels: tuple[tuple[str, str], ...] = ()

    def row(self) -> Fields:
        """The fields for JSON."""
        return {**self._asdict(), "labels": dict(self.labels)}


Names = tuple[tuple[str, ClusterName], ...]  # by the cluster's id


def of_table(table: Values, where: str) -> Names:
    """Parse the table ``[clusters]`` of an options file: by id, a name or a table.

    Errors: :class:`AuditInputError`, naming ``where``, the file and the table.
    """
    return tuple((id, _named(says, f"{where} {shown_key(id)}")) for id, says in table.items())


def of_file(path: Path) -> Names:
    """Parse the table ``[clusters]`` of an options file. Errors: :class:`AuditInputError`, naming the file."""
    table = read(path).get("clusters")
    if not isinstance(table, dict):
        raise AuditInputError(f'{path} has no table [clusters]: expected [clusters] with lines CLUSTER-ID = "name"')
    return of_table(table, f"{path}: [clusters]")


def _named(says: object, where: str) -> ClusterName:
    fields = {"name": says} if isinstance(says, str) else says
    if not isinstance(fields, dict) or not {"name"} <= fields.keys() <= set(ClusterName._fields):
        raise AuditInputError(
            f"invalid {where}: expected a name, or a table with name and optional owner, link and labels"
        )
    labels = fields.get("labels", {})
    if not isinstance(labels, dict):
        raise AuditInputError(f'invalid {where} labels: expected a table such as {{ stage = "prod" }}')
    cluster = ClusterName(**{**fields, "labels": tuple(labels.items())})
    for text in (cluster.name, cluster.owner, cluster.link, *(part for label in cluster.labels for part in label)):
        if not isinstance(text, str) or len(text) > MOST or not text.isprintable():
            raise AuditInputError(f"invalid {where}: expected at most {MOST} printable characters")
    if not cluster.name:
        raise AuditInputError(f"{where} has an empty name; give a name or remove the entry")
    if cluster.link and not cluster.link.startswith(("https://", "http://")):
        raise AuditInputError(f"invalid {where} link: expected https:// or http://")
    return cluster


def shown_cluster(ids: str, names: Mapping[str, str]) -> str:
    """Replace each of several ids, separated by commas, by its name if it has one."""
    return ",".join(names.get(id, id) for id in ids.split(","))


# Times.


def moment_ms(text: str) -> int | None:
    """Parse an ISO-8601 time (UTC by default) to ms since the epoch; None for any other text."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


# URIs of stores.


def parsed(uri: str) -> urllib.parse.SplitResult:
    """Split a URI. Errors: :class:`AuditInputError` if it cannot be parsed."""
    try:
        return urllib.parse.urlsplit(uri)
    except ValueError:
        hint = "escape special characters in user and password, such as %5B for ["
        raise AuditInputError(f"invalid URI: {hint}") from None


def existing(path: str) -> str | None:
    """Return the real path of a local path or a ``file:`` URI; None for any other URI.

    Errors: :class:`AuditInputError` where it does not exist.
    """
    parts = parsed(path)
    if "://" in path and parts.scheme != "file":
        return None
    local = os.path.realpath(os.path.expanduser(urllib.parse.unquote(parts.path) if "://" in path else path))
    if not os.path.lexists(local):
        shown = os.fsencode(path).decode("utf-8", "backslashreplace")
        raise AuditInputError(f"{shown}: no such file or directory; check the path")
    return local


def shown_uri(text: str) -> str:
    r"""A path or URI to print: bytes that are not UTF-8 as ``\xNN``, and no user, password or options of a URI."""
    scheme, is_uri, rest = os.fsencode(text).decode("utf-8", "backslashreplace").partition("://")
    if not is_uri:
        return scheme
    user, separator, after = rest.rpartition("@")
    if separator and "?" in user:  # the @ may be in a password or in an option
        return f"{scheme}://…"
    if separator and "/" in user and ":" not in user:  # a name with an @ in it
        after = rest
    return f"{scheme}://{after.partition('?')[0]}"


# Scopes. Excluded input is never opened, and nothing is concluded from it: it is neither absent nor lost. Internal
# topics, metadata and checkpoints are always read, since they describe all others.


class Since(NamedTuple):
    """Where reading of logs starts: an offset, or a time in ms. ``text``: as given."""

    text: str
    offset: int | None
    time_ms: int | None

    @property
    def described(self) -> str:
        """In words, to follow "from"."""
        return f"offset {self.offset}" if self.offset is not None else self.text


def since_of(text: str) -> Since:
    """Parse ``--since``: a whole number is an offset. Errors: :class:`AuditInputError`."""
    offset = parse_int(text)
    time = None if offset is not None else moment_ms(text)
    if (offset is None and time is None) or (offset is not None and offset < 0):
        raise AuditInputError(f"invalid --since {text!r}: expected an offset or an ISO-8601 time")
    return Since(text, offset, time)


@dataclass(frozen=True, slots=True)
class Scope:
    """The part of the input to read. A replica must match one value of every kind that has values; empty: everything.

    ``topics``: globs; ``partitions``: globs over ``topic-partition``, or a partition number alone. ``may_lack``: a name
    without a match is no mistake.
    """

    topics: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    brokers: tuple[int, ...] = ()
    since: Since | None = None
    may_lack: bool = False

    @property
    def leaves_out(self) -> bool:
        """Whether it excludes anything."""
        return self != EVERYTHING

    def wants(self, topic: str | None, partition: int | None, broker_id: int | None) -> bool:
        """Whether a replica is read."""
        return self.wants_log(topic, partition) and (
            not self.brokers or broker_id in self.brokers or is_internal(topic)
        )

    def wants_log(self, topic: str | None, partition: int | None) -> bool:
        """Whether replicas of a partition are read, of any broker."""
        return is_internal(topic) or self.names(topic, partition)

    def names(self, topic: str | None, partition: int | None) -> bool:
        """Whether a partition is asked for. Internal ones are read in any case, since they explain others."""
        if self.topics and not any(fnmatch.fnmatchcase(topic or "", glob) for glob in self.topics):
            return False
        return not self.partitions or any(is_of(topic or "", partition, glob) for glob in self.partitions)

    @property
    def described(self) -> str:
        """In words; empty if it excludes nothing."""
        return was_read(self.topics, self.partitions, self.brokers, self.since.described if self.since else None)


def was_read(
    topics: Sequence[str] | None, partitions: Sequence[str] | None, brokers: Sequence[int] | None, since: str | None
) -> str:
    """Describe a scope in words."""
    named = (("topics that match", topics), ("partitions that match", partitions), ("replicas of broker", brokers))
    which = " and ".join(f"{kind} {few(values)}" for kind, values in named if values)
    begun = f" from {since} on" if since else ""
    return f"{f'only {which}' if which else 'logs'} were scanned{begun}" if which or begun else ""


EVERYTHING = Scope()
Seen = tuple[str | None, int | None, int | None]  # topic, partition and broker of a replica


def is_internal(topic: str | None) -> bool:
    """Whether a topic is one of Kafka's own."""
    return (topic or "").startswith("__")


def fits(text: str, glob: str) -> bool:
    """Whether a name equals or matches a glob: names may contain the special characters of globs."""
    return text == glob or fnmatch.fnmatchcase(text, glob)


def is_of(topic: str, partition: int | None, glob: str) -> bool:
    """Whether a glob over ``TOPIC-N``, or a partition number of any topic, matches a partition."""
    return glob == str(partition) or fits(f"{topic}-{partition}", glob)


def check(scope: Scope, replicas: Iterable[Seen]) -> None:
    """Raise :class:`AuditInputError` if a value of the scope, or all together, match none of the ``replicas``."""
    if not scope.leaves_out or scope.may_lack:
        return
    present = list(replicas)
    topics = {topic or "" for topic, _, _ in present}
    for glob in scope.topics:
        if not any(fnmatch.fnmatchcase(topic, glob) for topic in topics):
            meant = did_you_mean(glob, topics)
            raise AuditInputError(
                f"--topic {glob} matches no topic of the input{meant or '; give another glob, in quotes'}"
            )
    for glob in scope.partitions:
        if not any(is_of(topic or "", partition, glob) for topic, partition, _ in present):
            meant = did_you_mean(glob, (f"{topic}-{partition}" for topic, partition, _ in present))
            raise AuditInputError(
                f"--only-partition {glob} matches no partition of the input{meant}; give TOPIC-N, a number or a glob"
            )
    brokers = {broker for _, _, broker in present}
    for number in scope.brokers:
        if number not in brokers:
            numbers = sorted(broker for broker in brokers if broker is not None)
            raise AuditInputError(f"--only-broker {number} matches no broker of the input; give one of {numbers}")
    asked = any(topic is not None and is_internal(topic) and _asks_for(scope, topic, n) for topic, n, _ in present)
    if not asked and not any(scope.wants(*one) and not is_internal(one[0]) for one in present):
        raise AuditInputError(
            "--topic, --only-partition and --only-broker together match no replica of the input; omit one"
        )


def _asks_for(scope: Scope, topic: str, partition: int | None) -> bool:
    # Internal topics are always read; here they must be named.
    named = not scope.topics or any(fnmatch.fnmatchcase(topic, glob) for glob in scope.topics)
    return named and (not scope.partitions or any(is_of(topic, partition, glob) for glob in scope.partitions))


# ``--master inline``.


MASTER = re.compile(r"inline(?:\[(\*|[1-9]\d{0,3})\])?")
COUNT = r"(\*|[1-9]\d*)"
OF_SPARK = re.compile(rf"local(\[{COUNT}(,[1-9]\d*)?\])?|local-cluster\[.+\]|yarn|(spark|k8s|sc)://.+")


def check_master(master: str) -> None:
    """Errors: :class:`AuditInputError` for what is neither ``inline`` nor a master of Spark 4."""
    if not MASTER.fullmatch(master) and not OF_SPARK.fullmatch(master):
        raise AuditInputError(
            f"invalid --master {master!r}: expected inline, inline[N], local[N], yarn, spark://HOST:PORT, "
            "k8s://URL or sc://HOST:PORT"
        )


def processes_of(master: str) -> int:
    """The number of processes for ``inline``, ``inline[*]`` or ``inline[N]``. Errors: :class:`AuditInputError`."""
    match = MASTER.fullmatch(master)
    if match is None:
        raise AuditInputError(f"invalid --master {master!r}: expected inline or inline[N]")
    if match[1] in (None, "*"):
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(match[1])
