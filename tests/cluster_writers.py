"""Who wrote what in the log directories of a cluster: each batch's broker, by leader epochs and the metadata.

A broker writes markers and the records of the internal topics, with the times of its own clock; data has its client's.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Iterator
from pathlib import Path

from kafka.record.default_records import DefaultRecordBatch

from auditor.connectors.codec.cluster_metadata import Change, ClusterMetadata, MetadataEntry
from tests.forge import Batch

METADATA = "__cluster_metadata-0"
LEADER_CHANGE = 2  # a type of control records
LOG_APPEND_TIME = 0x08
SMALLEST = 61  # bytes of a batch of magic 2 without records


def batches_in(data: bytes) -> Iterator[Batch]:
    """The whole batches of magic 2 at the beginning of a file; ``was``: where each lies."""
    at = 0
    while at + SMALLEST <= len(data) and data[at + 16] == 2:
        size = 12 + int(struct.unpack_from(">i", data, at + 8)[0])
        if size < SMALLEST or at + size > len(data):
            return
        yield Batch(data[at : at + size], at)
        at += size


class Writers:
    """The brokers of a cluster. ``ids``: that of each log directory; ``changes``: of the metadata, oldest first."""

    def __init__(self, root: Path) -> None:
        found = list(root.glob("broker-*/")) or [file.parent for file in root.glob("*/meta.properties")]
        self.ids = {path: _broker_id(path) for path in sorted(found)}
        self.changes: list[Change] = []
        self._leaders: dict[tuple[str, int, int], int] = {}
        self._controllers: dict[int, int] = {}
        metadata = ClusterMetadata(0, self.changes.append)
        for entry in max((list(_entries(path / METADATA)) for path in self.ids), key=len, default=[]):
            metadata.log_entry(entry)
        for change in self.changes:
            state = change.partition
            if state is not None and state.leader >= 0:
                self._leaders[state.topic_id, state.partition, state.leader_epoch] = state.leader
        for path in self.ids:
            self._controllers |= dict(_elected(path / METADATA))

    def of(self, partition: Path, batch: Batch) -> int | None:
        """The broker whose clock a batch's times are of, None for a client's."""
        if not (partition.name.startswith("__") or batch.control or batch["attributes"] & LOG_APPEND_TIME):
            return None
        return self.leader(partition, batch["leader_epoch"])

    def leader(self, partition: Path, epoch: int) -> int:
        """Who led the partition in an epoch. Where nothing says so (a cluster with ZooKeeper, one without its
        metadata) one and the same of those that have it, as it may have been."""
        if partition.name == METADATA:
            return self._controllers.get(epoch, min(self.ids.values()))
        number = int(partition.name.rpartition("-")[2])
        leader = self._leaders.get((topic_id(partition), number, epoch))
        return min(i for path, i in self.ids.items() if (path / partition.name).is_dir()) if leader is None else leader


def partitions(directory: Path) -> list[Path]:
    """The folders of its partitions, without those that are about to go."""
    return sorted(path for path in directory.iterdir() if path.is_dir() and re.fullmatch(r".+-\d+", path.name))


@functools.lru_cache(maxsize=256)
def topic_id(partition: Path) -> str:
    """The id of the folder's topic, "" where none is known. It stays, whatever becomes of the folder's logs."""
    file = partition / "partition.metadata"
    return file.read_text().rpartition("topic_id:")[2].strip() if file.exists() else ""


def _broker_id(directory: Path) -> int:
    file = directory / "meta.properties"
    found = re.search(r"^(?:broker|node)\.id=(\d+)", file.read_text() if file.exists() else "", re.M)
    return int(found[1]) if found else int(re.sub(r"\D", "", directory.name))


def _entries(partition: Path) -> Iterator[MetadataEntry]:
    for file in sorted(partition.glob("*.log")):
        for batch in batches_in(file.read_bytes()):
            for record in DefaultRecordBatch(bytes(batch.data)):
                place = (file.name, batch.was or 0, len(batch.data), batch.control)
                yield MetadataEntry(*place, record.offset, record.timestamp, record.key, record.value)


def _elected(partition: Path) -> Iterator[tuple[int, int]]:
    """Epoch and node of each election of a controller."""
    for file in sorted(partition.glob("*.log")):
        for batch in batches_in(file.read_bytes()):
            for record in DefaultRecordBatch(bytes(batch.data)) if batch.control else ():
                if struct.unpack_from(">hh", record.key)[1] == LEADER_CHANGE:
                    yield batch["leader_epoch"], struct.unpack_from(">hi", record.value)[1]
