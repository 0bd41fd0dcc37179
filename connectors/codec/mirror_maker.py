"""Records of MirrorMaker's checkpoint and offset-sync topics."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from auditor.connectors.codec.structs import Message, Problem, decode, plain_fields, read_int16

# Sources: org.apache.kafka.connect.mirror.Checkpoint and OffsetSync; names of topics by ReplicationPolicy (KIP-382).


_SYNC_KEY = Message("OffsetSync", plain_fields("topic string, partition int32"), flexible=1)
_SYNC_VALUE = Message("OffsetSync", plain_fields("upstreamOffset int64, offset int64"), flexible=1)
_CHECKPOINT_KEY = Message("Checkpoint", plain_fields("group string, topic string, partition int32"), flexible=1)
_CHECKPOINT_VALUE = Message("Checkpoint", plain_fields("upstreamOffset int64, offset int64"), flexible=1)
CHECKPOINTS = re.compile(r"(?P<source>.+)[.-]checkpoints[.-]internal")
OFFSET_SYNCS = re.compile(r"mm2-offset-syncs[.-](?P<other>.+)[.-]internal")
INTERNAL = re.compile(r"mm2[.-].+[.-]internal|.+[.-]checkpoints[.-]internal|(.+\.)?heartbeats")


class TranslatedOffset(NamedTuple):
    """An offset of the source cluster (``upstream``) and that of the target for the same place.

    ``group_id`` is that of a checkpoint, None of an offset sync. ``topic`` is as the record has it: of a checkpoint the
    name in the target cluster, of an offset sync that in the source cluster.
    """

    group_id: str | None
    topic: str
    partition: int
    upstream: int
    downstream: int


def is_read(topic: str) -> bool:
    """Whether the records of a topic are checkpoints or offset syncs."""
    return bool(CHECKPOINTS.fullmatch(topic) or OFFSET_SYNCS.fullmatch(topic))


def translated(topic: str, records: Iterator[tuple[bytes | None, bytes | None]]) -> Iterator[TranslatedOffset]:
    """Yield the offsets of keys and values of a topic's records; those that do not parse are skipped."""
    group = CHECKPOINTS.fullmatch(topic) is not None
    for key, value in records:
        if key is None or value is None:
            continue
        version = read_int16(value) if group else 0
        if version != 0:
            continue
        place = decode(_CHECKPOINT_KEY if group else _SYNC_KEY, 0, key)
        offsets = decode(_CHECKPOINT_VALUE if group else _SYNC_VALUE, 0, value, 2 if group else 0)
        if isinstance(place, Problem) or isinstance(offsets, Problem):
            continue
        of, pair = place[0], offsets[0]
        yield TranslatedOffset(of.get("group"), of["topic"], of["partition"], pair["upstreamOffset"], pair["offset"])
