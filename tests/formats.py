"""What Kafka 4.3.1 wrote into internal topics, what its newest tool prints of it, and the schemas of its messages.

``tests/data/formats/<corpus>`` holds the partitions of the internal topics of one broker of a real cluster
(``data.tar.gz``; of regrouped-43 that is among the campaigns) and beside it in ``oracle/`` the record lines of
DumpLogSegments of 4.3.1, without no-op records.
``kafka-<version>-schemas.json`` is what ``tests/differential/newest/Schemas.java`` prints of that version's jars.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from auditor.connectors import schema
from auditor.connectors.codec import (
    cluster_metadata,
    group_topics,
    indexes,
    remote_log_metadata,
    small_files,
    transaction_log,
)
from auditor.connectors.codec.structs import Field, Message
from auditor.connectors.tables.rows import CONTROL_TYPES
from tests import corpora

NAMES = ("groups-43", "regrouped-43", "tiered-43", "unclean-43")
SCHEMAS = "kafka-4.4.0-schemas.json"
_RECORD = re.compile(r"\| offset: (\d+) .*? headerKeys: \[\] (?:key: (\{.*?\}\}) )?payload: ?(.*)")

# Stored, but no records: what reads them knows these versions.
FILES = {
    "EndTxnMarker": 0, "ControlRecordTypeSchema": 0, "ProducerSnapshot": indexes.VERSION, "QuorumStateData": 1,
    "AbortedTxn": indexes.TXN_VERSION,
}  # fmt: skip
VERSIONS = {
    "RecordBatch": 2,
    "LeaderEpochCheckpointFile": small_files.CHECKPOINT_VERSION,
    "OffsetCheckpointFile": small_files.CHECKPOINT_VERSION,
    "PartitionMetadataFile": small_files.PARTITION_METADATA_VERSION,
}
NAMED = {  # what is stored as a number and shown by name, or decides something
    "CompressionType": {name.upper() for name in schema.COMPRESSION_NAMES},
    "ControlRecordType": set(CONTROL_TYPES.to_pylist()),
    "TransactionState": {re.sub("(?<=[a-z])(?=[A-Z])", "_", name).upper() for name in schema.TRANSACTION_STATES},
    "MetaPropertiesVersion": {"V0", "V1"},
    "LeaderRecoveryState": set(schema.RECOVERY_STATES),
    "RemoteLogSegmentState": set(remote_log_metadata.SEGMENT_STATES),
    "RemotePartitionDeleteState": set(remote_log_metadata.DELETE_STATES),
    "RecordState": {"AVAILABLE", "ACQUIRED", "ACKNOWLEDGED", "ARCHIVING", "ARCHIVED"},
}


def printed(topic: str) -> Iterator[tuple[str, Path, dict[tuple[str, int], tuple[str | None, str]]]]:
    """(corpus, partition folder, (file, offset) -> key and payload as printed) of each partition of a topic."""
    for name in NAMES:
        for text in sorted((corpora.FORMATS / name / "oracle").glob(f"*.{topic}-*.log.txt")):
            broker, _, folder = text.name.removesuffix(".log.txt").partition(".")
            yield name, corpora.unpack(name) / broker / folder, _records(text)


def _records(text: Path) -> dict[tuple[str, int], tuple[str | None, str]]:
    found, file = {}, ""
    for line in text.read_text(encoding="utf-8").splitlines():
        if line.startswith("Dumping "):
            file = line.removeprefix("Dumping ")
        elif match := _RECORD.match(line):
            found[file, int(match[1])] = match[2], match[3]
    return found


def schemas() -> dict[str, dict[str, Any]]:
    """The messages of Kafka 4.4.0 by their simple names."""
    return by_name(stored()["messages"])


def stored() -> dict[str, Any]:
    """All that Kafka 4.4.0 may store: ``messages``, levels of ``features``, ``versions`` of files, ``names`` of what
    is stored as numbers."""
    content: dict[str, Any] = json.loads((corpora.FORMATS / SCHEMAS).read_text(encoding="utf-8"))
    return content


def by_name(schemas: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The same by the names of the classes, without packages."""
    return {name.rpartition(".")[2]: content for name, content in schemas.items()}


def ours() -> dict[str, Message]:
    """The messages that are read here, by the names of Kafka's classes."""
    groups = group_topics.GROUP_TYPES.values()
    shares = group_topics.TYPES.values()
    return {
        "TransactionLogKey": transaction_log.KEY,
        "TransactionLogValue": transaction_log.VALUE,
        **dict.fromkeys(("OffsetCommitKey", "LegacyOffsetCommitKey"), group_topics.OFFSET_COMMIT_KEY),
        **dict.fromkeys(("OffsetCommitValue", "LegacyOffsetCommitValue"), group_topics.OFFSET_COMMIT_VALUE),
        "ConsumerProtocolSubscription": group_topics.SUBSCRIPTION,
        "ConsumerProtocolAssignment": group_topics.ASSIGNMENT,
        **{f"{kind.kind}Key": kind.key for kind in groups},
        **{f"{kind.kind}Value": kind.value for kind in groups},
        **{f"{kind.kind}Key": group_topics.KEY for kind in shares},
        **{f"{kind.kind}Value": kind.value for kind in shares},
        **{message.name: message for message in remote_log_metadata.MESSAGES.values()},
        **cluster_metadata.BY_NAME,
    }


def known() -> dict[str, int]:
    """The last version that is known here of each message that Kafka stores, by the name of its class."""
    return {name: message.last_version for name, message in ours().items()} | FILES | unread()


def unread() -> dict[str, int]:
    """The records of ``__cluster_metadata`` that are named and not read: all have version 0 only."""
    return dict.fromkeys(cluster_metadata.UNREAD.values(), 0)


def news(kafkas: dict[str, dict[str, Any]]) -> list[str]:
    """What Kafka's messages have that is not known here, in words."""
    versions = known()
    found = []
    for name, content in kafkas.items():
        last = max(map(int, content["versions"]))
        if name not in versions:
            found.append(f"{name} (api key or type {content['apiKey']}) is new, version {last}")
        elif last > versions[name]:
            found.append(f"{name} has version {last}, known: {versions[name]}")
        elif name in ours():
            found += _fields_that_differ(name, content)
    return found


def others(kafkas: dict[str, Any]) -> list[str]:
    """What Kafka may store besides messages that is not known here, in words."""
    found = []
    for name, level in kafkas["features"].items():
        if level > cluster_metadata.FEATURE_LEVELS.get(name, 0):
            found.append(f"{name} has level {level}, known: {cluster_metadata.FEATURE_LEVELS.get(name, 0)}")
    for name, version in kafkas["versions"].items():
        if version > VERSIONS[name]:
            found.append(f"{name} has version {version}, known: {VERSIONS[name]}")
    for name, values in kafkas["names"].items():
        found += [f"{name} {value} is new" for value in values if value not in NAMED[name]]
    return found


def _fields_that_differ(name: str, content: dict[str, Any]) -> list[str]:
    message, found = ours()[name], []
    for version, kafkas in content["versions"].items():
        here = shape(message, int(version))
        there = _shape_of(kafkas["fields"])
        if name in {m.name for m in cluster_metadata.CONTROL_MESSAGES.values()}:
            there = there[1:]  # the version, which we take for the frame
        if here != there:
            found.append(f"{name} v{version}: {[f for f in there if f not in here]} in place of "
                         f"{[f for f in here if f not in there]}")  # fmt: skip
    return found


def shape(message: Message, version: int) -> list[Any]:
    """The fields of a version, comparable with those of Kafka's schema."""
    return _shape(message.fields, version)


def _shape(fields: tuple[Field, ...], version: int) -> list[Any]:
    there = [field for field in fields if field.since <= version <= field.until]
    rows = [
        (
            f.name,
            f.type,
            version >= f.nullable and _can_be_null(f.type),
            f.tag,
            _shape(f.fields, version) if f.fields else None,
        )
        for f in there
    ]
    return _ordered(rows)


def _shape_of(fields: list[dict[str, Any]]) -> list[Any]:
    rows = [
        (f["name"], f["type"], f["nullable"], f.get("tag"), _shape_of(f["struct"]["fields"]) if "struct" in f else None)
        for f in fields
    ]
    return _ordered(rows)


def _ordered(rows: list[Any]) -> list[Any]:
    """Untagged fields in the order of their bytes, tagged ones by their tag."""
    return [row for row in rows if row[3] is None] + sorted((r for r in rows if r[3] is not None), key=lambda r: r[3])


def _can_be_null(kind: str) -> bool:
    return kind.startswith("[]") or kind in ("string", "bytes", "struct")
