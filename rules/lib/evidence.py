"""Terms that several rules share as evidence."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypedDict

import numpy as np
import pyarrow as pa

from auditor.base.at_rest import Fields
from auditor.base.errors import SEQUENCES, DamagedField, DecodeError
from auditor.facts.batch_sums import touches
from auditor.facts.events import Culprits, Event, EventKind
from auditor.facts.offsets import WatchedOffsets, in_force_of
from auditor.facts.replica_facts import ReplicaFacts
from auditor.model.groups import GROUP_RECORDS, NO_PRODUCER_ID, Assignments, CommitReplay, Watcher
from auditor.model.offset_watch import Committers, Rivals, Values
from auditor.rules.lib import repairs
from auditor.rules.seen.view import Finding, LogView

# Culprit records of a batch, and what would remain of it without them (KIP-467).


SHOWN = 20  # batches of one finding


class BatchPlace(TypedDict):
    """The location of a batch."""

    segment: int
    position: int
    base_offset: int


def blamed(
    log: LogView, run: Sequence[Event | BatchPlace], kind: str, *, newest: int | None = None
) -> list[Fields] | None:
    """Return the culprits of a kind (a field of :class:`Culprits`) in the first batches of a run, and what remains.

    ``error_records`` counts from 0 in the batch, as a ProduceResponse does. None where the batches could not be read
    again (a running cluster). ``newest``: the latest valid timestamp (ms), where known.
    """
    rows = []
    for e in run[:SHOWN]:
        culprits = log.leader.culprits.get((int(e["segment"]), int(e["position"])))
        if culprits is None:
            continue
        if newest is not None:
            culprits = culprits._replace(ahead=tuple(named for named in culprits.ahead if named[1] > newest))
        if indexes := _indexes(culprits, kind):
            rows.append(_row(int(e["base_offset"]), culprits, indexes))
    return rows or None


def _indexes(culprits: Culprits, kind: str) -> list[int]:
    named = getattr(culprits, kind)
    return [index for index, _stamp in named] if kind == "ahead" else list(named)


def _row(base_offset: int, culprits: Culprits, indexes: list[int]) -> Fields:
    row: Fields = {"base_offset": base_offset, "records": culprits.records, "error_records": indexes}
    others = {index for kind in ("null_keys", "flawed", "old", "ahead") for index in _indexes(culprits, kind)}
    if culprits.left_out:
        row["left_out"] = culprits.left_out
    elif culprits.records == culprits.declared:  # else nobody can tell what is behind the last one that could be read
        row["remaining"] = _remaining(culprits, others)
    return row


def _remaining(batch: Culprits, culprits: set[int]) -> Mapping[str, int]:
    # What a client would send again by KIP-467: without culprits, numbered from 0.
    records = batch.records - len(culprits)
    if not records:
        return {"records": 0}
    out = {"records": records, "last_offset_delta": records - 1}
    if batch.base_sequence >= 0:
        out |= {
            "base_sequence": batch.base_sequence,
            "last_sequence": (batch.base_sequence + records - 1) % SEQUENCES,
        }
    return out


# Damaged header fields that the checksum does not cover: base offset, length, leader epoch and magic. Everything else
# about such a batch uses the values that fit.


OFFSET, EPOCH, LENGTH, MAGIC = "base offset", "leader epoch", "length", "magic"


def damaged_fields(log: LogView, severity: str, *names: str, **evidence: object) -> Iterator[Finding]:
    """Yield a rule's findings about damaged header fields, one per batch."""
    for replica in log.replicas:
        for error in replica.errors:
            field = DamagedField.of(error)
            if field is not None and field.name in names and error.last_offset >= replica.log_start:
                yield _finding(log, severity, replica, error, field, evidence)


def _finding(
    log: LogView,
    severity: str,
    replica: ReplicaFacts,
    error: DecodeError,
    field: DamagedField,
    evidence: Fields,
) -> Finding:
    likely = "" if field.sure else "most likely "
    moved = field.stored - field.expected if field.name == OFFSET else 0
    return log.finding(
        severity,
        f"A batch of {log.name} at byte {error.position} of {error.file} has the {field.name} {field.stored}, which "
        f"was {likely}{field.expected} before it was damaged (its checksum is right, and does not cover it): "
        f"{_consequence(field)}",
        replica=replica,
        file=error.file,
        position=error.position,
        offset=error.first_offset + moved,
        last_offset=None if field.name == MAGIC else error.last_offset + moved,
        **_producer(log, field),
        evidence={
            "field": field.name.replace(" ", "_"),
            "found": field.stored,
            "expected": field.expected,
            "batches": 1,
            "bytes": error.length,
            "confidence": "proved" if field.sure else "likely",
            **evidence,
        },
        advice=repairs.refetch(log, replica),
    )


def _producer(log: LogView, field: DamagedField) -> Fields:
    # As other findings of the rule have it.
    if field.producer_id < 0 or field.name in (LENGTH, MAGIC):
        return {}
    owner = log.owner(field.producer_id)
    return {"producer_id": field.producer_id, "producer_epoch": field.producer_epoch, "transactional_id": owner}


def _consequence(field: DamagedField) -> str:
    # FileLogInputStream, ByteBufferLogInputStream, LogSegment.recover.
    if field.name == OFFSET:
        if field.stored < field.expected:
            return "consumers pass over its records, and followers refuse it"
        return "consumers go on behind these offsets, and followers refuse what follows"
    if field.name == EPOCH:
        return "followers and consumers that fetch it take the epoch over, and truncate by it"
    if field.name == MAGIC:
        return "consumers fail here" + (", and a recovery cuts the log here" if field.stored in (0, 1) else "")
    return "brokers find no batch behind it, consumers do not get past it, and a recovery cuts the log here"


# Committed offsets of one ``__consumer_offsets`` partition: from the replica's reader, or replayed from rows.


CONSUMER_OFFSETS = "__consumer_offsets"
FAR = 1 << 62


def watched(log: LogView) -> WatchedOffsets:
    """Return the result of one pass over the records, cached; nothing for other topics."""
    if log.topic != CONSUMER_OFFSETS:
        return WatchedOffsets([], [], [], [], [], {}, {}, in_force_of(()))
    if log.leader.watched_offsets is None:
        assignments = Assignments()
        committers, rivals, values = Committers(), Rivals(assignments), Values(assignments)
        story = story_of(log, committers, rivals, values, assignments=assignments)
        pending = {producer_id: story.pending(producer_id) for producer_id in story.model.pending}
        tables = (log.leader.tables.get(name) for name in ("offset_commits", "group_metadata"))
        groups = [group for table in tables if table is not None for group in table["group_id"].to_pylist()]
        log.leader.watched_offsets = WatchedOffsets(
            zombies=rivals.zombies,
            interleaved=rivals.interleaved,
            handed_over=rivals.handed_over,
            falls=values.falls(),
            skips=values.skips,
            committers=committers.seen,
            mixed=committers.mixed,
            pending=pending,
            in_force=in_force_of(story.in_force()),
            groups=[group for group in dict.fromkeys(groups) if group is not None],
        )
    return log.leader.watched_offsets


def lost_between(log: LogView, first: int, last: int | None = None) -> bool:
    """Whether records between two offsets, or after one, are in batches with a CRC mismatch."""
    return touches(log.leader.damaged, first, FAR if last is None else last)


def story_of(log: LogView, *watchers: Watcher, assignments: Assignments | None = None) -> CommitReplay:
    """Replay the judged records of the leader replica of a ``__consumer_offsets`` partition."""
    # No limit of its own: the rows are in memory as it is.
    story = CommitReplay(tuple(watchers), assignments=assignments or Assignments(), most_waiting=sys.maxsize)
    steps = heapq.merge(_groups(log), _commits(log), _markers(log), key=lambda step: step[0])
    for offset, kind, row in steps:
        if kind == "commit":
            story.offset_record(offset, row)
        elif kind == "group":
            story.group_record(offset, row)
        else:
            story.marker(*row)
    story.end()
    return story


Step = tuple[int, str, tuple[Any, ...]]


def _rows(log: LogView, table: str, kind: str, columns: tuple[str, ...]) -> Iterator[Step]:
    # Rows without an offset (console text) cannot be ordered and are skipped.
    rows = log.leader.tables.get(table)
    if rows is None:
        return
    import pyarrow.compute  # a tenth of a second that whoever only names the rules need not wait for

    rows = rows.filter(pyarrow.compute.greater_equal(rows["offset"], log.leader.log_start))
    rows = rows.sort_by("offset")
    lists = [_plain(rows[name]) for name in ("offset", *columns)]
    damaged = [(e["base_offset"], e["last_offset"]) for e in log.events(EventKind.CRC)]
    for offset, *row in zip(*lists, strict=True):
        if not any(first <= offset <= last for first, last in damaged):
            yield offset, kind, tuple(row)


def _plain(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    return list(column.to_pylist())


def _groups(log: LogView) -> Iterator[Step]:
    names = ("group_id", "key_type", "tombstone", "generation", "member_ids", "value", "record_timestamp")
    return (step for step in _rows(log, "group_metadata", "group", names) if step[2][1] in GROUP_RECORDS)


def _commits(log: LogView) -> Iterator[Step]:
    head_names = ("group_id", "consumed_topic", "consumed_partition", "tombstone", "committed_offset")
    names = ("record_timestamp", "producer_id", "producer_epoch", "file", "position", "is_transactional")
    for offset, kind, row in _rows(log, "offset_commits", "commit", head_names + names):
        *head, time, producer_id, epoch, file, position, transactional = row
        writer = (producer_id, epoch) if transactional else (NO_PRODUCER_ID, -1)
        yield offset, kind, (*head, -1 if time is None else time, *writer, file, position)


def _markers(log: LogView) -> Iterator[Step]:
    rows = log.leader.transactions
    rows = rows[rows["marker_offset"] >= log.leader.log_start]
    for row in rows[np.argsort(rows["marker_offset"], kind="stable")]:
        yield int(row["marker_offset"]), "marker", (int(row["producer_id"]), bool(row["commit"] == 1))


# Consumer groups that read a topic, by ``__consumer_offsets``: they wait where it is blocked.


def readers(log: LogView) -> list[Fields]:
    """List the groups of this ``__consumer_offsets`` partition by the topics they have offsets in.

    ``groups`` are at most :data:`SHOWN` names, ``more`` counts the rest. Whether a group reads committed records only
    is a consumer setting, which no broker stores.
    """
    by_topic: dict[str, set[str]] = {}
    for topic, group in watched(log).in_force.topics_of_groups():
        by_topic.setdefault(topic, set()).add(group)
    return [
        {
            "topic": topic,
            "partition": log.partition,
            "groups": sorted(groups)[:SHOWN],
            "more": max(0, len(groups) - SHOWN),
        }
        for topic, groups in sorted(by_topic.items())
    ]
