"""The small text files of a log directory: checkpoints, leader epochs, ``meta.properties``, ids and quorum state."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from auditor.base.at_rest import Fields
from auditor.base.errors import DEFAULT_LIMITS, DecodeError, Limits
from auditor.base.numbers import parse_int
from auditor.connectors.codec.text_lines import Line, decode_properties, text_lines, too_many_bad

CHECKPOINT_VERSION = 0
PARTITION_METADATA_VERSION = 0
MAX_JSON_BYTES = 1 << 20
ZERO_ID = "A" * 22


class EpochStart(NamedTuple):
    """A line of ``leader-epoch-checkpoint``: the epoch begins at ``start_offset`` and ends where the next begins."""

    epoch: int
    start_offset: int


class MetaProperties(NamedTuple):
    """``meta.properties``; None where the file does not say. ``broker_id`` is node.id in a KRaft cluster."""

    version: int
    broker_id: int | None
    cluster_id: str | None
    directory_id: str | None


class QuorumState(NamedTuple):
    """``quorum-state`` of a KRaft node; -1 where there is none. ``voters`` is empty under a dynamic quorum."""

    data_version: int
    leader_id: int
    leader_epoch: int
    voted_id: int
    voters: tuple[int, ...]


class Offsets(Mapping[tuple[str, int], int]):
    """Offsets by topic and partition, a dictionary of numbers for each topic: of all partitions of a broker, without
    the names of their topics and pairs of both."""

    def __init__(self, offsets: Mapping[tuple[str, int], int]) -> None:
        self._of: dict[str, dict[int, int]] = {}
        for (topic, partition), offset in offsets.items():
            self._of.setdefault(topic, {})[partition] = offset

    def __getitem__(self, at: tuple[str, int]) -> int:
        topic, partition = at
        return self._of[topic][partition]

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return ((topic, partition) for topic, some in self._of.items() for partition in some)

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))


def decode_offset_checkpoint(data: bytes, file: str = "") -> tuple[dict[tuple[str, int], int], list[DecodeError]]:
    """(topic, partition) -> offset of a ``*-offset-checkpoint``; an empty file has none and is sound.

    Errors, the other lines being read all the same: ``not_text``, ``bad_version`` (a newer one: nothing is read),
    ``bad_line``, ``bad_value`` (another number of lines than stated; with nothing read, a first line that is no version
    there ever was), ``limit``. Kafka refuses a file with any but the last. Source: CheckpointFile.
    """
    found = {}
    entries = _Entries(data, file, 3, "topic partition offset")
    for words in entries:
        partition, offset = parse_int(words[1], 32), parse_int(words[2])
        if partition is None or partition < 0 or offset is None:
            entries.bad()
        else:
            found[words[0], partition] = offset
    return found, entries.errors


def decode_leader_epochs(data: bytes, file: str = "") -> tuple[list[EpochStart], list[DecodeError]]:
    """The lines of a ``leader-epoch-checkpoint`` in file order.

    Errors as of :func:`decode_offset_checkpoint`; order is not judged here. Source: LeaderEpochCheckpointFile.
    """
    found = []
    entries = _Entries(data, file, 2, "epoch offset")
    for words in entries:
        epoch, start = parse_int(words[0], 32), parse_int(words[1])
        if epoch is None or start is None:
            entries.bad()
        else:
            found.append(EpochStart(epoch, start))
    return found, entries.errors


def decode_meta_properties(data: bytes, file: str = "") -> tuple[MetaProperties, list[DecodeError]]:
    """Who a log directory belongs to. Errors: ``not_text``, ``bad_line``, ``bad_version``, ``bad_value`` (no version),
    ``bad_setting``.

    A missing version is 0. What an unknown version says is given as far as the known keys go.
    Source: Kafka's MetaProperties.
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

    Errors: ``not_text``, ``bad_line``, ``bad_value``, and ``bad_version`` for a newer one, whose id counts all the same
    and whose other lines are not looked at, as in Kafka. Source: PartitionMetadataFile, PartitionMetadataReadBuffer.
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
    """The JSON of ``quorum-state``. Errors, then None: ``limit``, ``bad_value``, ``bad_version`` (a newer one)."""
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


class _Entries:
    """The entry lines of a checkpoint as words, one by one; ``errors`` are complete behind the last.

    At most ``limits.max_checkpoint_entries`` lines are given, and as many bad ones named as ``limits.max_bad_lines``
    says: what is behind is one error.
    """

    def __init__(self, data: bytes, file: str, words: int, shape: str, limits: Limits = DEFAULT_LIMITS) -> None:
        self.size = len(data)
        self.file = file
        self.words = words
        self.shape = shape
        self.limits = limits
        self.lines, self.errors = text_lines(data, file)
        self.at = Line(0, 0, "")
        self.full = False
        self.wrong = 0

    def bad(self, detail: str = "") -> None:
        """Notes that the line at hand is no entry."""
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


def _unless_known(version: int | None, known: tuple[int, ...], size: int, file: str) -> list[DecodeError]:
    """The error of a file of so many bytes in another version: a newer one, or none that ever was (None: no number)."""
    if version in known:
        return []
    newest = " or ".join(map(str, known))
    if version is not None and version > known[-1]:
        return [DecodeError(file, 0, size, "bad_version", f"version {version}, known: {newest}")]
    return [DecodeError(file, 0, size, "bad_value", f"its version is not {newest}")]


def _bad_line(line: Line, file: str, detail: str) -> DecodeError:
    return DecodeError(file, line.position, line.length, "bad_line", detail)


def _json_object(data: bytes, file: str) -> tuple[Fields | None, list[DecodeError]]:
    if len(data) > MAX_JSON_BYTES:
        return None, [DecodeError(file, 0, len(data), "limit", f"more than {MAX_JSON_BYTES} bytes of JSON")]
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        return None, [DecodeError(file, 0, len(data), "bad_value", "not a JSON object")]
    return values, []


def _dicts(value: object) -> Iterator[Fields]:
    return (item for item in value if isinstance(item, dict)) if isinstance(value, list) else iter(())
