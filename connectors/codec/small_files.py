"""Checkpoints, ``meta.properties``, settings and other text files of a log directory."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

from auditor.base.at_rest import Fields, parsed
from auditor.base.errors import DEFAULT_LIMITS, DecodeError, Limits, parse_int, setting_number

# Text lines with their positions, and Java's ``.properties`` syntax.


_NATURAL_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)?")
_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class TextLine(NamedTuple):
    """A line without its end; ``position`` and ``length`` are bytes, length includes the line's end."""

    position: int
    length: int
    text: str


def text_lines(data: bytes, file: str) -> tuple[Iterator[TextLine], list[DecodeError]]:
    """The lines of a UTF-8 text, split as in Java. Error: ``not_text`` (then the lines before it)."""
    errors = []
    try:
        text = data.decode()
        bad = text.find("\0")
    except UnicodeDecodeError as error:
        text, bad = data[: error.start].decode(), error.start
    if bad >= 0:
        start = max(text.rfind("\n", 0, bad), text.rfind("\r", 0, bad)) + 1
        text = text[:start]
        position = len(text.encode())
        errors.append(DecodeError(file, position, len(data) - position, "not_text", "bytes that are no UTF-8 text"))
    return _split(text, "utf-8"), errors


def too_many_bad(file: str, line: TextLine, size: int) -> DecodeError:
    """The error for the rest of a file after the last bad line that is listed."""
    end = line.position + line.length
    return DecodeError(file, end, size - end, "bad_line", "not read: too many bad lines come before it")


def decode_properties(data: bytes, file: str = "") -> tuple[dict[str, str], list[DecodeError]]:
    r"""Keys and values of a Java properties file (``server.properties``, ``meta.properties``); the last of a key wins.

    Errors: ``not_text`` for zero bytes (a file lost in a crash), ``bad_line`` for a broken ``\u`` escape. Cost: one
    pass. Source: java.util.Properties.load, which reads ISO 8859-1.
    """
    zero = data.find(b"\0")
    if zero >= 0:
        return {}, [DecodeError(file, 0, len(data), "not_text", f"a zero byte at {zero}")]
    properties: dict[str, str] = {}
    errors = []
    for line in logical_lines(data.decode("latin-1")):
        raw_key, raw_value = split_property(line.text)
        key, value = _unescape(raw_key), _unescape(raw_value)
        if key is None or value is None:
            errors.append(DecodeError(file, line.position, line.length, "bad_line", "a broken \\u escape"))
            if len(errors) == DEFAULT_LIMITS.max_bad_lines:
                errors.append(too_many_bad(file, line, len(data)))
                break
        else:
            properties[key] = value
    return properties, errors


def only_properties(data: bytes, keeps: Callable[[str], bool]) -> bytes:
    """Blank all lines of a properties file but those whose key ``keeps`` accepts; remaining lines and errors keep their
    place."""
    zero = data.find(b"\0")
    if zero >= 0:
        return b" " * zero
    chosen = bytearray(b" " * len(data))
    for line in logical_lines(data.decode("latin-1")):
        raw_key, raw_value = split_property(line.text)
        key, here = _unescape(raw_key), slice(line.position, line.position + line.length)
        if key is None or _unescape(raw_value) is None:
            chosen[here] = b"\\u".ljust(line.length)[: line.length]  # still broken
        elif keeps(key):
            chosen[here] = data[here]
        if data[here].endswith((b"\n", b"\r")):
            chosen[here.stop - 1] = ord("\n")
    return bytes(chosen)


def _split(text: str, encoding: str) -> Iterator[TextLine]:
    position = 0
    for match in _NATURAL_LINE.finditer(text):
        length = len(match[0].encode(encoding))
        if length:
            yield TextLine(position, length, match[0].rstrip("\r\n"))
        position += length


def logical_lines(text: str) -> Iterator[TextLine]:
    """Lines that are neither blank nor comments; one that ends in an odd number of backslashes is continued."""
    start = 0
    parts: list[str] = []
    for line in _split(text, "latin-1"):
        stripped = line.text.lstrip(_BLANK)
        if not parts:
            start = line.position
            if not stripped or stripped[0] in "#!":
                continue
        if (len(stripped) - len(stripped.rstrip("\\"))) % 2:
            parts.append(stripped[:-1])
            continue
        yield TextLine(start, line.position + line.length - start, "".join([*parts, stripped]))
        parts = []
    if parts:
        yield TextLine(start, len(text) - start, "".join(parts))


def split_property(line: str) -> tuple[str, str]:
    """Key and value with their escapes; the key ends at the first unescaped blank, ``=`` or ``:``."""
    end = 0
    while end < len(line) and line[end] not in _BLANK + "=:":
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return line[:end], rest


def _unescape(text: str) -> str | None:
    # None for a broken escape.
    if "\\" not in text:
        return text
    out = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char == "\\" and position < len(text):
            char = text[position]
            position += 1
            if char == "u":
                digits = text[position : position + 4]
                if not re.fullmatch("[0-9a-fA-F]{4}", digits):
                    return None
                char = chr(int(digits, 16))
                position += 4
            else:
                char = _ESCAPES.get(char, char)
        out.append(char)
    # Java's chars are UTF-16 units: pairs are joined, and a lone surrogate is replaced, since UTF-8 cannot encode it.
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


# The small text files of a log directory.


CHECKPOINT_VERSION = 0
PARTITION_METADATA_VERSION = 0
MAX_JSON_BYTES = 1 << 20
ZERO_ID = "A" * 22


class EpochStart(NamedTuple):
    """A line of ``leader-epoch-checkpoint``: the epoch starts at ``start_offset`` and ends where the next starts."""

    epoch: int
    start_offset: int


class MetaProperties(NamedTuple):
    """``meta.properties``; None if not in the file. ``broker_id`` is node.id in a KRaft cluster."""

    version: int
    broker_id: int | None
    cluster_id: str | None
    directory_id: str | None


class QuorumState(NamedTuple):
    """``quorum-state`` of a KRaft node; -1 for none. ``voters`` is empty under a dynamic quorum."""

    data_version: int
    leader_id: int
    leader_epoch: int
    voted_id: int
    voters: tuple[int, ...]


class Offsets(Mapping[tuple[str, int], int]):
    """Offsets by topic and partition, a dictionary of numbers per topic: less memory than pairs as keys, for all
    partitions of a broker."""

    def __init__(self, offsets: Mapping[tuple[str, int], int]) -> None:
        self._of: dict[str, dict[int, int]] = {}
        for (topic, partition), offset in offsets.items():
            self._of.setdefault(topic, {})[partition] = offset

    def __getitem__(self, key: tuple[str, int]) -> int:
        topic, partition = key
        return self._of[topic][partition]

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return ((topic, partition) for topic, some in self._of.items() for partition in some)

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))


def decode_offset_checkpoint(data: bytes, file: str = "") -> tuple[dict[tuple[str, int], int], list[DecodeError]]:
    """(topic, partition) -> offset of a ``*-offset-checkpoint``; an empty file has none and is sound.

    Errors, with which the other lines are read: ``not_text``, ``bad_version`` (a newer one: nothing is read),
    ``bad_line``, ``bad_value`` (another number of lines than stated; or, with nothing read, a version that never
    existed), ``limit``. Kafka refuses a file with any but the last. Source: CheckpointFile.
    """
    offsets = {}
    entries = _CheckpointEntries(data, file, 3, "topic partition offset")
    for words in entries:
        partition, offset = parse_int(words[1], 32), parse_int(words[2])
        if partition is None or partition < 0 or offset is None:
            entries.bad()
        else:
            offsets[words[0], partition] = offset
    return offsets, entries.errors


def decode_leader_epochs(data: bytes, file: str = "") -> tuple[list[EpochStart], list[DecodeError]]:
    """The lines of a ``leader-epoch-checkpoint`` in file order.

    Errors as for :func:`decode_offset_checkpoint`; the order is not judged here. Source: LeaderEpochCheckpointFile.
    """
    epochs = []
    entries = _CheckpointEntries(data, file, 2, "epoch offset")
    for words in entries:
        epoch, start = parse_int(words[0], 32), parse_int(words[1])
        if epoch is None or start is None:
            entries.bad()
        else:
            epochs.append(EpochStart(epoch, start))
    return epochs, entries.errors


def decode_meta_properties(data: bytes, file: str = "") -> tuple[MetaProperties, list[DecodeError]]:
    """The cluster and broker of a log directory.

    Errors: ``not_text``, ``bad_line``, ``bad_version``, ``bad_value`` (no version), ``bad_setting``. A missing version
    is 0. The known keys of an unknown version are returned. Source: Kafka's MetaProperties.
    """
    values, errors = decode_properties(data, file)
    version = parse_int(values.get("version", "0"), 32)
    errors += _unless_known(version, (0, 1), len(data), file)
    broker = values.get("node.id", values.get("broker.id"))
    broker_id = parse_int(broker, 32) if broker is not None else None
    if broker is not None and broker_id is None:
        errors.append(DecodeError(file, 0, len(data), "bad_setting", "the broker id is not a number"))
    known_version = -1 if version is None else version
    return MetaProperties(known_version, broker_id, values.get("cluster.id"), values.get("directory.id")), errors


def decode_partition_metadata(data: bytes, file: str = "") -> tuple[str | None, list[DecodeError]]:
    """The topic id (22 characters) of a ``partition.metadata``, None if there is no sound one.

    Errors: ``not_text``, ``bad_line``, ``bad_value``, and ``bad_version`` for a newer one, whose id is used and whose
    other lines are ignored, as in Kafka. Source: PartitionMetadataFile, PartitionMetadataReadBuffer.
    """
    lines, errors = text_lines(data, file)
    values: dict[str, str] = {}
    for line in lines:
        key, colon, value = line.text.partition(":")
        if not colon or key.strip() not in ("version", "topic_id"):
            if (parse_int(values.get("version", ""), 32) or 0) > PARTITION_METADATA_VERSION:
                continue
            errors.append(_bad_line(line, file, "not: version or topic_id"))
            if len(errors) == DEFAULT_LIMITS.max_bad_lines:
                errors.append(too_many_bad(file, line, len(data)))
                break
            continue
        values[key.strip()] = value.strip()
    topic_id, version = values.get("topic_id", ""), parse_int(values.get("version", ""), 32)
    if not is_uuid(topic_id) or topic_id == ZERO_ID or version is None:
        if not errors:
            errors.append(DecodeError(file, 0, len(data), "bad_value", "no version or no sound topic id"))
        return None, errors
    return topic_id, errors + _unless_known(version, (PARTITION_METADATA_VERSION,), len(data), file)


def decode_quorum_state(data: bytes, file: str = "") -> tuple[QuorumState | None, list[DecodeError]]:
    """Decode ``quorum-state``, JSON. Errors, then None: ``limit``, ``bad_value``, ``bad_version`` (a newer one)."""
    values, errors = _json_object(data, file)
    if values is None:
        return None, errors
    voters: list[Any] = [voter.get("voterId") for voter in _dicts(values.get("currentVoters"))]
    numbers = [values.get(name, -1) for name in ("data_version", "leaderId", "leaderEpoch", "votedId")]
    if not all(type(number) is int for number in [*numbers, *voters]):
        return None, [DecodeError(file, 0, len(data), "bad_value", "ids and epochs that are not numbers")]
    version, leader, epoch, voted = numbers
    if wrong := _unless_known(version, (0, 1), len(data), file):
        return None, wrong
    return QuorumState(version, leader, epoch, voted, tuple(voters)), errors


def decode_clean_shutdown(data: bytes, file: str = "") -> tuple[int | None, list[DecodeError]]:
    """The broker epoch in ``.kafka_cleanshutdown`` (JSON since 3.7, empty before: None). Errors: ``bad_value``."""
    if not data:
        return None, []
    values, errors = _json_object(data, file)
    epoch = (values or {}).get("brokerEpoch")
    if type(epoch) is int:
        return epoch, errors
    return None, errors or [DecodeError(file, 0, len(data), "bad_value", "no broker epoch")]


def is_uuid(text: str) -> bool:
    """Whether this is the text form of a Kafka Uuid: 16 bytes in URL-safe base64 without padding."""
    return bool(re.fullmatch(r"[A-Za-z0-9_-]{22}", text)) and len(base64.urlsafe_b64decode(text + "==")) == 16


class _CheckpointEntries:
    # Iterates over the entry lines of a checkpoint as words; errors are complete after the last one. Beyond
    # limits.max_checkpoint_entries lines, or limits.max_bad_lines bad ones, one error stands for the rest.
    def __init__(self, data: bytes, file: str, words: int, shape: str, limits: Limits = DEFAULT_LIMITS) -> None:
        self.size = len(data)
        self.file = file
        self.words = words
        self.shape = shape
        self.limits = limits
        self.lines, self.errors = text_lines(data, file)
        self.at = TextLine(0, 0, "")
        self.full = False
        self.wrong = 0

    def bad(self, detail: str = "") -> None:
        self.errors.append(_bad_line(self.at, self.file, detail or f"not: {self.shape}"))
        self.wrong += 1
        if self.wrong == self.limits.max_bad_lines:
            self.errors.append(too_many_bad(self.file, self.at, self.size))
            self.full = True

    def __iter__(self) -> Iterator[list[str]]:
        version = next(self.lines, None)
        if version is None:
            return
        if wrong := _unless_known(parse_int(version.text.strip(), 32), (CHECKPOINT_VERSION,), self.size, self.file):
            self.errors += wrong
            return
        stated, count = next(self.lines, None), 0
        for line in self.lines:
            self.at = line
            if count == self.limits.max_checkpoint_entries:
                detail = f"more than {count} lines: not read"
                rest = self.size - self.at.position
                self.errors.append(DecodeError(self.file, self.at.position, rest, "limit", detail))
                return
            count += 1
            split = self.at.text.split(None, self.words)
            if len(split) == self.words:
                yield split
            else:
                self.bad(f"not {self.words} words")
            if self.full:
                return
        if stated is not None and parse_int(stated.text.strip(), 32) != count:
            detail = f"the second line does not state the {count} lines that follow"
            self.errors.append(DecodeError(self.file, stated.position, stated.length, "bad_value", detail))


def _unless_known(version: int | None, versions: tuple[int, ...], size: int, file: str) -> list[DecodeError]:
    # bad_version for a newer version, bad_value for one that never existed (None: not a number).
    if version in versions:
        return []
    newest = " or ".join(map(str, versions))
    if version is not None and version > versions[-1]:
        return [DecodeError(file, 0, size, "bad_version", f"version {version}, known: {newest}")]
    return [DecodeError(file, 0, size, "bad_value", f"its version is not {newest}")]


def _bad_line(line: TextLine, file: str, detail: str) -> DecodeError:
    return DecodeError(file, line.position, line.length, "bad_line", detail)


def _json_object(data: bytes, file: str) -> tuple[Fields | None, list[DecodeError]]:
    if len(data) > MAX_JSON_BYTES:
        return None, [DecodeError(file, 0, len(data), "limit", f"more than {MAX_JSON_BYTES} bytes of JSON")]
    try:
        values = parsed(data)
    except ValueError:
        values = None
    if not isinstance(values, dict):
        return None, [DecodeError(file, 0, len(data), "bad_value", "not a JSON object")]
    return values, []


def _dicts(value: object) -> Iterator[Fields]:
    return (item for item in value if isinstance(item, dict)) if isinstance(value, list) else iter(())


# A broker's settings: which may be shown, and which values are invalid.


# An allow-list: any other setting may be a password, a key or an address.
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
# From ConfigDef in 2.8.2 and 4.3.1: bits and the least value; where releases differ, those of the most tolerant one.
_OF_BROKERS = {
    "broker.id": (32, _LOWEST),
    "node.id": (32, _LOWEST),
    "producer.id.expiration.ms": (32, 1),
    "producer.id.expiration.check.interval.ms": (32, 1),
    "transactional.id.expiration.ms": (32, 1),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": (32, 1),
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
OF_BROKERS, OF_TOPICS = (*_OF_BROKERS, *_VERSIONS), (*_OF_TOPICS,)  # the settings that an audit uses
# Further settings that an audit reads from a broker's own file, or by which it recognises one.
_ASKED = ("log.cleanup.policy", "log.preallocate", "log.message.timestamp.type", "message.max.bytes", "process.roles",
          "log.cleaner.delete.retention.ms", "log.dirs", "log.dir", "log.cleaner.enable", "log.roll.ms",
          "log.roll.hours", "log.cleaner.min.cleanable.ratio", "log.cleaner.min.compaction.lag.ms",
          "log.cleaner.max.compaction.lag.ms",
          "log.local.retention.ms", "log.local.retention.bytes", "log.retention.check.interval.ms",
          "transaction.state.log.replication.factor", "offsets.topic.replication.factor",
          "replica.selector.class")  # fmt: skip
# Brokers parse two numbers (three after "0.") and an -IV suffix: 2.8.x and 0.9.0.X are valid versions.
_VERSION = re.compile(r"(?:0\.[0-9]{1,4}(?:\.[0-9]{1,4})?|[1-9][0-9]{0,3}\.[0-9]{1,4})(?:-IV[0-9]{1,4})?(?:\..*)?")
# ConfigTransformer's ${provider:path:key}, and templates of deployment tools: $NAME, $(NAME), {{ name }}.
_ELSEWHERE = re.compile(r"\$[\w({]|\{\{")


def audited_settings(data: bytes) -> bytes:
    """Blank all lines of a ``server.properties`` but those of settings that an audit uses."""
    wanted = frozenset({*OF_BROKERS, *_ASKED})
    return only_properties(data, wanted.__contains__)


class SortedSettings(NamedTuple):
    """Settings by kind: with their value, with a value defined elsewhere, with an invalid value."""

    known: dict[str, str]
    elsewhere: frozenset[str]
    refused: frozenset[str]


def may_show(name: str) -> bool:
    """Whether the value of this broker setting may be shown; the names of all settings may."""
    return bool(_SHOWN.fullmatch(name)) and not _SENSITIVE.search(name)


def may_show_topic(name: str) -> bool:
    """Whether the value of this topic setting may be shown."""
    return bool(_TOPICS_SHOWN.fullmatch(name)) and not _SENSITIVE.search(name)


def sort_out(settings: Mapping[str, str], names: Collection[str]) -> SortedSettings:
    """Sort settings by kind. ``names``: those that an audit uses; all others count as known, whatever their value.

    A number in quotes, with a unit or a decimal point is refused, as by a broker; blanks, a sign, and leading zeros are
    accepted. Cost: linear in the lengths of the values. Source: ConfigDef.parseType and the validators of KafkaConfig.
    """
    refused = {name for name in names if name in settings and _refused(name, settings[name])}
    elsewhere = frozenset(name for name in refused if _ELSEWHERE.search(settings[name]))
    accepted = {name: value for name, value in settings.items() if name not in refused}
    return SortedSettings(accepted, elsewhere, frozenset(refused - elsewhere))


def _refused(name: str, value: str) -> bool:
    if name in _VERSIONS:
        return _VERSION.fullmatch(value.strip()) is None
    bits, least = _NUMBERS[name]
    return setting_number(value, least, bits) is None
