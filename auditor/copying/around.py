"""What one finding rests on: the folders that are copied for a ticket, and the names that stand in them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from auditor.base.at_rest import Values
from auditor.base.errors import DEFAULT_LIMITS, AuditInputError
from auditor.base.user_input import is_internal
from auditor.connectors.logdir import names
from auditor.connectors.logdir.names import METADATA_TOPIC
from auditor.connectors.tables.internal_rows import CONSUMER_OFFSETS, TRANSACTION_STATE
from auditor.connectors.tables.rows import FilePiece, How, metadata_records
from auditor.copying.folders import Folder, Folders
from auditor.model.transaction_states import partition_for
from auditor.pipeline.whole_audit import Audit

Log = tuple[str, int]  # topic and partition


@dataclass
class Named:
    """The names that stand in a copy."""

    topics: set[str] = field(default_factory=set)
    transactional_ids: set[str] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    clients: set[str] = field(default_factory=set)
    hosts: set[str] = field(default_factory=set)

    def lines(self) -> Iterator[str]:
        """A line a kind, with all names of it."""
        for kind, found in vars(self).items():
            said = (json.dumps(name) if not name.isprintable() else name for name in sorted(found))
            yield f"{kind.replace('_', ' ')} ({len(found)}): {', '.join(said) or 'none'}"


def log_of(folder: Folder) -> Log | None:
    """The partition that a folder is of, one of remote segments too."""
    name = folder.place.path.rstrip("/").rpartition("/")[2]
    live = names.partition_folder(name) if folder.topic is not None else None
    says = live or names.remote_folder(folder.place.path)
    return None if says is None else (says.topic, says.partition)


def wanted(finding: Values, paths: Sequence[str]) -> Iterator[set[str]]:
    """The folders of the copy that a finding rests on; then, in case they are too few, those that it may rest on.

    Errors: :class:`AuditInputError` for a PATH that is none, and for PATHs without the finding's partition.
    """
    folders = Folders(paths, DEFAULT_LIMITS).found
    logs = {name: log_of(folder) for name, folder in folders.items()}
    there = {log for log in logs.values() if log is not None}
    mine = set(_logs(finding, there))
    if finding["file"] is not None and finding["topic"] not in (None, *(topic for topic, _ in mine)):
        where = finding["topic"] if finding["partition"] is None else f"{finding['topic']}-{finding['partition']}"
        raise AuditInputError(f"the PATHs hold no folder of {where}; give those that the run read")
    coordinators = {log for log in there if log[0] in (TRANSACTION_STATE, METADATA_TOPIC)}
    internal = {log for log in there if is_internal(log[0])}
    topics = {topic for topic, _ in mine}
    whole = {log for log in there if log[0] in topics}
    for chosen in (mine | coordinators, mine | internal, whole | internal, there):
        yield {name for name, log in logs.items() if log is None or log in chosen}


def _logs(finding: Values, there: set[Log]) -> Iterator[Log]:
    """The partitions that a finding names, by its fields, by its evidence, and that of its group's coordinator."""
    topic, partition, group = finding["topic"], finding["partition"], finding["group_id"]
    yield from (log for log in there if log[0] == topic and partition in (None, log[1]))
    if group is not None and (offsets := [log[1] for log in there if log[0] == CONSUMER_OFFSETS]):
        yield CONSUMER_OFFSETS, partition_for(group, max(offsets) + 1)
    by_name = {f"{topic}-{partition}": (topic, partition) for topic, partition in there}
    yield from (by_name[text] for text in _texts(finding["evidence"]) if text in by_name)


def _texts(value: object) -> Iterator[str]:
    """The texts in evidence, and ``topic-partition`` of each object that has both."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        if "topic" in value and "partition" in value:
            yield f"{value['topic']}-{value['partition']}"
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


def names_in(audit: Audit) -> Named:
    """The names in the input of an audit of a copy."""
    found = Named()
    for log_dir in audit.inventory.log_dirs:
        found.topics |= {replica.topic for replica in log_dir.replicas if replica.topic is not None}
        for replica in log_dir.replicas:
            if replica.topic == METADATA_TOPIC:
                for file in replica.files():
                    if file.kind in ("log", "checkpoint"):
                        key = (log_dir.cluster_id, log_dir.broker_id, log_dir.name, replica.topic, replica.partition)
                        _of_metadata(FilePiece(file.place or log_dir.place, key, file), found)
    coordinated = audit.table("transaction_log")
    found.transactional_ids |= _column(coordinated, "transactional_id")
    found.topics |= {p.rpartition("-")[0] for row in coordinated.column("partitions").to_pylist() for p in row or ()}
    for table in ("offset_commits", "group_metadata"):
        rows = audit.table(table)
        found.groups |= _column(rows, "group_id")
        if table == "offset_commits":
            found.topics |= _column(rows, "consumed_topic")
        else:
            found.clients |= {text for row in rows.column("client_ids").to_pylist() for text in row or () if text}
    return found


def _of_metadata(piece: FilePiece, found: Named) -> None:
    for table, rows in metadata_records(piece, How(payload=True)):
        if table == "metadata_records":
            for name, fields in zip(rows.column("name").to_pylist(), rows.column("fields").to_pylist(), strict=True):
                said = json.loads(fields)
                found.hosts |= set(_hosts(said))
                if name == "TopicRecord":
                    found.topics.add(said["name"])


def _hosts(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        if isinstance(value.get("host"), str) and value["host"]:
            yield value["host"]
        for each in value.values():
            yield from _hosts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _hosts(each)


def _column(table: Any, name: str) -> set[str]:
    return {text for text in table.column(name).to_pylist() if text is not None}


def size_of(folder: Path) -> int:
    """Bytes of the files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
