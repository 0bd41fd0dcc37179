"""Parse the names of Kafka's directories and files (UnifiedLog, LogFileUtils)."""

from __future__ import annotations

import re
from typing import NamedTuple

INDEX_KINDS = ("index", "timeindex", "txnindex")
SEGMENT_KINDS = ("log", *INDEX_KINDS)
METADATA_TOPIC = "__cluster_metadata"
OWN_TOPICS = frozenset(  # that brokers create
    (METADATA_TOPIC, "__consumer_offsets", "__transaction_state", "__share_group_state", "__remote_log_metadata")
)
REMOTE_INDEX_CACHE = "remote-log-index-cache"
META = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
CHECKPOINT_KINDS = {
    "recovery-point-offset-checkpoint": "recovery-point",
    "replication-offset-checkpoint": "high-watermark",
    "log-start-offset-checkpoint": "log-start",
    "cleaner-offset-checkpoint": "cleaner",
}
WITNESSES = ("high-watermark", "recovery-point", "cleaner")  # above 0 only for a log that had a segment
OF_A_BROKER = (META, CLEAN_SHUTDOWN, *CHECKPOINT_KINDS)  # at the top of its log directories
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
COPY_LIST = "copied.parquet"  # the file of a directory of `auditor copy`; its metadata is the list of what was there
COPY_LIST_1 = "copied.json.gz"  # the list of a copy of version 1
COPY_README = "0-THIS-IS-NO-BACKUP.txt"  # at the top of a copy
QUORUM_STATE = "quorum-state"
BOOTSTRAP = "bootstrap.checkpoint"

_LIVE = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})")
_ASIDE = re.compile(r"([a-zA-Z0-9._-]*)-([0-9]{1,10})\.[0-9a-f]{32}-(delete|future|stray)")
_DATA = re.compile(r"([0-9]{20})\.(log|index|timeindex|txnindex|snapshot)(?:\.(deleted|cleaned|swap))?")
_METADATA_SNAPSHOT = re.compile(r"([0-9]{20})-[0-9]{10}(?:-.*)?\.checkpoint(?:\.(part|deleted))?")
_UUID = r"[0-9a-zA-Z_-]{22}"
_REMOTE_FOLDER = re.compile(rf"([a-zA-Z0-9._-]{{1,249}})-(0|[1-9][0-9]{{0,9}})-({_UUID})")
_TOPIC_FOLDER = re.compile(rf"(.{{1,512}})-({_UUID})")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}")
_REMOTE = re.compile(
    rf"([0-9]{{1,20}})[-_]({_UUID})\.(log|index|timeindex|txnindex|snapshot|leader_epoch_checkpoint)(?:\.(deleted))?"
)
_OBJECT = re.compile(rf"([0-9]{{20}})-({_UUID})\.(log|indexes|rsm-manifest)")
_FOLDER_KINDS = {"delete": "deleted", "future": "future", "stray": "stray"}


_PARTITION_NUMBER = re.compile(r"[+]?[0-9]+")
_UNNUMBERED = re.compile(r"(?![0-9]+[.])[^.]*[.](?:.*[.])?(?:log|index|timeindex|txnindex|snapshot)")


def is_refused_folder(name: str) -> bool:
    """Whether a start ends at a directory of this name in a log directory: it is no ``TOPIC-N``.

    Source: LocalLog.parseTopicPartitionName, LogManager.loadLogs.
    """
    if name == REMOTE_INDEX_CACHE:
        return False
    aside = next((suffix for suffix in ("-delete", "-future", "-stray") if name.endswith(suffix)), "")
    if aside and not re.fullmatch(rf"\S+-\S+\.\S+{aside}", name):
        return True
    topic, dash, number = (name.rpartition(".")[0] if aside else name).rpartition("-")
    return not (dash and topic and _PARTITION_NUMBER.fullmatch(number) and int(number) <= 0x7FFFFFFF)


def lacks_number(name: str) -> bool:
    """Whether a start ends at a file of this name in a partition directory: Kafka takes it for a segment's or a
    snapshot, whose names begin with an offset.

    Source: LogFileUtils.offsetFromFileName.
    """
    return _UNNUMBERED.fullmatch(name) is not None


class PartitionFolder(NamedTuple):
    """A parsed partition directory name; ``kind`` is live, future, stray or deleted.

    The topic of a deleted or stray directory may be cut short, since Kafka keeps the name within 255 characters.
    """

    topic: str
    partition: int
    kind: str


class DataName(NamedTuple):
    """The parsed name of a file in a partition directory.

    ``offset`` is the number in it (-1: none), ``kind`` its content; ``state``: "", deleted, cleaned, swap or part.
    """

    offset: int
    kind: str
    state: str


_FIXED = {name: DataName(-1, name, "") for name in (LEADER_EPOCHS, PARTITION_METADATA, QUORUM_STATE)}


def partition_folder(name: str) -> PartitionFolder | None:
    """The partition of a directory, by its name alone: the split is at the last ``-``."""
    aside = _ASIDE.fullmatch(name)
    match = aside or _LIVE.fullmatch(name)
    if not match or int(match[2]) > 0x7FFFFFFF:
        return None
    return PartitionFolder(match[1], int(match[2]), _FOLDER_KINDS[aside[3]] if aside else "live")


def data_name(name: str) -> DataName | None:
    """The kind of a file of a partition directory, by its name alone (without directory)."""
    if match := _DATA.fullmatch(name):
        offset = int(match[1])
        return DataName(offset, match[2], match[3] or "") if offset < 1 << 63 else None
    if match := _METADATA_SNAPSHOT.fullmatch(name):
        return DataName(int(match[1]), "checkpoint", match[2] or "")
    return _FIXED.get(name)


class RemoteName(NamedTuple):
    """The parsed path of a directory of remote segments; ``depth`` is the number of directories parsed.

    With ``depth`` 2 the topic may have a prefix that the operator chose.
    """

    topic: str
    partition: int
    topic_id: str
    depth: int


def remote_folder(path: str) -> RemoteName | None:
    """The partition of a directory of remote segments, by its path or name.

    ``<topic>-<partition>-<topic id>`` is LocalTieredStorage's, ``<prefix><topic>-<topic id>/<partition>`` that of
    Aiven's RemoteStorageManager.
    """
    above, _, name = path.rpartition("/")
    if match := _REMOTE_FOLDER.fullmatch(name):
        number, depth, topic_id = match[2], 1, match[3]
    elif (match := _TOPIC_FOLDER.fullmatch(above.rpartition("/")[2])) and _NUMBER.fullmatch(name):
        number, depth, topic_id = name, 2, match[2]
    else:
        return None
    return RemoteName(match[1], int(number), topic_id, depth) if int(number) <= 0x7FFFFFFF else None


def object_name(name: str) -> DataName | None:
    """The kind of an object that Aiven's RemoteStorageManager stored: log, indexes or rsm-manifest."""
    match = _OBJECT.fullmatch(name)
    return DataName(int(match[1]), match[3], "") if match and int(match[1]) < 1 << 63 else None


def remote_name(name: str) -> DataName | None:
    """The kind of a file of a remote segment: ``<offset>-<uuid>.log`` and the like (LocalTieredStorage), or with ``_``
    in ``remote-log-index-cache``.

    A snapshot has no offset: its name has that of its segment's start, but it is of its end. Source: Kafka's
    RemoteLogSegmentFileset, RemoteIndexCache.
    """
    match = _REMOTE.fullmatch(name)
    if not match or int(match[1]) >= 1 << 63:
        return None
    kind = LEADER_EPOCHS if match[3] == "leader_epoch_checkpoint" else match[3]
    return DataName(int(match[1]) if kind in SEGMENT_KINDS else -1, kind, match[4] or "")


def remote_segment(name: str) -> tuple[int, str] | None:
    """First offset and id of the remote segment to which a file belongs."""
    match = _REMOTE.fullmatch(name) or _OBJECT.fullmatch(name)
    return (int(match[1]), match[2]) if match and int(match[1]) < 1 << 63 else None


def trailing_digits(name: str) -> int | None:
    """The number at the end of a directory name such as ``broker-3``; None for none, or if it cannot be a broker id."""
    match = re.search(r"[0-9]+$", name)
    number = int(match[0]) if match and len(match[0]) <= 10 else None
    return number if number is not None and number <= 0x7FFFFFFF else None
