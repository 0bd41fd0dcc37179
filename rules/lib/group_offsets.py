"""Committed offsets of one ``__consumer_offsets`` partition: as the replica's reader left them, or replayed from
rows."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from auditor.facts.batch_sums import touches
from auditor.facts.events import Kind
from auditor.facts.offsets import WatchedOffsets, in_force_of
from auditor.model.groups import GROUP_RECORDS, NO_PRODUCER_ID, Assignments, Story, Watcher
from auditor.model.offset_watch import Committers, Rivals, Values
from auditor.rules.seen.view import LogView

CONSUMER_OFFSETS = "__consumer_offsets"
FAR = 1 << 62


def watched(log: LogView) -> WatchedOffsets | None:
    """What one pass over the records brought out, made once; None for other topics."""
    if log.topic != CONSUMER_OFFSETS:
        return None
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
            pending=pending,
            in_force=in_force_of(story.in_force()),
            groups=[group for group in dict.fromkeys(groups) if group is not None],
        )
    return log.leader.watched_offsets


def lost_between(log: LogView, first: int, last: int | None = None) -> bool:
    """Whether records between two offsets of the log, or behind one, are in batches with a CRC mismatch."""
    return touches(log.leader.damaged, first, FAR if last is None else last)


def story_of(log: LogView, *watchers: Watcher, assignments: Assignments | None = None) -> Story:
    """Replays the judged records of the leader replica of a ``__consumer_offsets`` partition."""
    # No limit of its own: the rows are in memory as it is.
    story = Story(tuple(watchers), assignments=assignments or Assignments(), most_waiting=sys.maxsize)
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
    """The judged rows of a table by offset; rows without an offset (console text) cannot be placed and stay out."""
    found = log.leader.tables.get(table)
    if found is None:
        return
    import pyarrow.compute  # a tenth of a second that whoever only names the rules need not wait for

    found = found.filter(pyarrow.compute.greater_equal(found["offset"], log.leader.log_start))
    found = found.sort_by("offset")
    lists = [_plain(found[name]) for name in ("offset", *columns)]
    damaged = [(e["base_offset"], e["last_offset"]) for e in log.events(Kind.CRC)]
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
    names = (
        "group_id",
        "consumed_topic",
        "consumed_partition",
        "tombstone",
        "committed_offset",
        "record_timestamp",
        "producer_id",
        "producer_epoch",
        "file",
        "position",
        "is_transactional",
    )
    for offset, kind, row in _rows(log, "offset_commits", "commit", names):
        *head, time, producer_id, epoch, file, position, transactional = row
        writer = (producer_id, epoch) if transactional else (NO_PRODUCER_ID, -1)
        yield offset, kind, (*head, -1 if time is None else time, *writer, file, position)


def _markers(log: LogView) -> Iterator[Step]:
    rows = log.leader.transactions
    rows = rows[rows["marker_offset"] >= log.leader.log_start]
    for row in rows[np.argsort(rows["marker_offset"], kind="stable")]:
        yield int(row["marker_offset"]), "marker", (int(row["producer_id"]), bool(row["commit"] == 1))
