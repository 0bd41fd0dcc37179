"""The table ``metadata_history``: what the controller decided, change by change, with its offset and time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from auditor.base.at_rest import Fields
from auditor.base.errors import Limits
from auditor.connectors.arrow import Key, from_rows
from auditor.connectors.codec.cluster_metadata import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    Change,
    ClusterMetadata,
    PartitionState,
)
from auditor.connectors.codec.small_files import may_show
from auditor.connectors.files import Replica
from auditor.connectors.metadata_log import MetadataLog
from auditor.connectors.schema import METADATA_HISTORY, RECOVERY_STATES
from auditor.connectors.storage import Place

_ROWS = 1 << 14  # of a record batch
_COLUMNS = METADATA_HISTORY.names[3:]  # behind the log directory's key


def history(place: Place, key: Key, replica: Replica, limits: Limits) -> Iterator[pa.RecordBatch]:
    """The changes that a replica of ``__cluster_metadata`` still shows, oldest first.

    A log that no longer begins at offset 0 is preceded by what its oldest complete snapshot says (offset null, the
    snapshot's time). Records that cannot be read are left out here: they are errors of the metadata. Cost: every record
    once; memory: the state, and a snapshot's rows.
    """
    reading = MetadataLog(place, replica, limits)
    rows: list[tuple[Any, ...]] = []

    def drained() -> pa.RecordBatch:
        batch = from_rows(METADATA_HISTORY, key[:3], rows)
        rows.clear()
        return batch

    metadata, changes = beginning(reading)
    rows += [row_of(change, metadata.snapshot_timestamp) for change in changes]
    metadata.on_change = lambda change: rows.append(row_of(change, metadata.snapshot_timestamp))
    for entry in reading.log():
        metadata.log_entry(entry)
        if len(rows) >= _ROWS:
            yield drained()
    if rows:
        yield drained()


def beginning(reading: MetadataLog) -> tuple[ClusterMetadata, list[Change]]:
    """The state before the first record of the log that is still there, and the changes of the snapshot it comes from.

    Nothing listens to the state yet.
    """
    first = reading.replica.segments[0].base_offset if reading.replica.segments else 0
    for file in reversed(reading.snapshots()) if first > 0 else ():
        changes: list[Change] = []
        metadata = ClusterMetadata(file.offset, changes.append)
        for entry in reading.snapshot(file) if file.offset >= first else ():
            metadata.snapshot_entry(entry)
        if metadata.snapshot_complete:
            metadata.on_change = None
            return metadata, changes
    return ClusterMetadata(max(first, 0)), []


def row_of(change: Change, snapshot_time: int | None) -> tuple[Any, ...]:
    """A change's values behind the log directory's key; ``snapshot_time``: of what a snapshot says, in ms."""
    fields = change.record.fields
    said: Fields = {
        "topic": change.topic,
        "offset": change.offset,
        "timestamp": snapshot_time if change.offset is None else change.timestamp,
        "record": change.record.name,
        "version": change.record.version,
        "topic_id": fields.get("topicId"),
    }
    if change.partition is not None:
        said |= _partition(change.partition, change.before)
    elif change.broker is not None:
        said |= {
            "node_id": change.broker.broker_id,
            "broker_epoch": change.broker.broker_epoch,
            "fenced": change.broker.fenced,
            "in_controlled_shutdown": change.broker.in_controlled_shutdown,
        }
    elif change.record.name == "ConfigRecord":
        said |= _setting(fields)
    elif change.record.name == "FeatureLevelRecord":
        said |= {"name": fields["name"], "value": str(fields["featureLevel"])}
    elif "controllerId" in fields:
        said["node_id"] = fields["controllerId"]
    return tuple(said.get(name) for name in _COLUMNS)


def _partition(state: PartitionState, before: PartitionState | None) -> Fields:
    recovery = state.recovery_state
    return {
        "partition": state.partition,
        "topic_id": state.topic_id,
        "leader": state.leader,
        "previous_leader": before.leader if before else None,
        "leader_epoch": state.leader_epoch,
        "partition_epoch": state.partition_epoch,
        "isr": state.isr,
        "previous_isr": before.isr if before else None,
        "eligible_leader_replicas": state.elr,
        "previous_elr": before.elr if before else None,
        "last_known_elr": state.last_known_elr,
        "leader_recovery_state": RECOVERY_STATES[recovery] if 0 <= recovery < len(RECOVERY_STATES) else None,
        "replicas": state.replicas,
        "adding_replicas": state.adding,
        "removing_replicas": state.removing,
    }


def _setting(fields: Fields) -> Fields:
    kind, name = fields["resourceType"], fields["name"]
    shown = kind != BROKER_RESOURCE or may_show(name)
    return {
        "topic": fields["resourceName"] if kind == TOPIC_RESOURCE else None,
        "entity": fields["resourceName"],
        "name": name,
        "value": fields["value"] if shown else None,
    }
