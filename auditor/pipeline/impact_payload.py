"""Keys and values of lost and hidden records that a replica in the input still has, to send them again."""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from auditor.base.at_rest import Values
from auditor.base.errors import DecodeError
from auditor.connectors.codec import batches as walking
from auditor.connectors.codec.records import records_of
from auditor.pipeline.impact_table import MANY, data_in
from auditor.replay.reading import lag_counts
from auditor.replay.task import ReplicaTask
from auditor.rules.lib.lost_batches import joined_spans

if TYPE_CHECKING:
    from auditor.pipeline.runner import Audited

Span = tuple[int, int]  # first and last offset


class PayloadRange(NamedTuple):
    """Offsets of a replica to read. ``producer_id``: only records of this producer; -1: of none; None: all records."""

    task: ReplicaTask
    first: int
    last: int
    producer_id: int | None


def payload_lines(audit: Audited, rows: Iterable[Values]) -> Iterator[str]:
    """Yield a line of JSON per record of the lost and hidden rows of ``impact`` whose batches are in the input.

    ``key``, ``value`` and the values of ``headers`` are base64, or null. Cost: the batches of these rows are read.
    """
    spans: dict[tuple[str, str, int, int | None], list[Span]] = defaultdict(list)
    for row in rows:
        if row["outcome"] in ("lost", "hidden") and row.get("records") is not None and row["first_offset"] is not None:
            none = None if row["undecided"] == MANY else -1
            producer_id = none if row["producer_id"] is None else row["producer_id"]
            holder = row["other_log_dir"] if row["outcome"] == "lost" else row["log_dir"]
            place = holder or row["log_dir"], row["topic"], row["partition"], producer_id
            spans[place].append((row["first_offset"], row["last_offset"]))
    of_replica = {
        (t.replica.log_dir, t.replica.topic or "", t.replica.partition or 0): t
        for t in audit.tasks
        if isinstance(t, ReplicaTask)
    }
    for (log_dir, topic, partition, producer_id), several in spans.items():
        if (task := of_replica.get((log_dir, topic, partition))) is not None:
            wanted = [PayloadRange(task, first, last, producer_id) for first, last in joined_spans(several)]
            for _, lines in audit.runner.pool.map(wanted, lines_of):
                yield from lines or ()


def lines_of(wanted: PayloadRange) -> Iterator[list[str]]:
    """Yield the lines of a range, a batch at a time."""
    task, topic, partition = wanted.task, wanted.task.replica.topic, wanted.task.replica.partition
    for number, batches in data_in(task, (), wanted.first, wanted.last):
        for row in np.flatnonzero((wanted.producer_id is None) | (batches.producer_id == wanted.producer_id)).tolist():
            stored, raw = lag_counts.stored_batch(task, number, int(batches.position[row])) or (None, None)
            if stored is None or raw is None:
                continue
            decoded = records_of([raw], walking.columns_of(stored[None, :]), file="", limits=task.limits)
            records = (record for _, record in decoded if not isinstance(record, DecodeError))
            yield [
                json.dumps(
                    {
                        "topic": topic,
                        "partition": partition,
                        "offset": record.offset,
                        "timestamp": record.timestamp,
                        "key": _text(record.key),
                        "value": _text(record.value),
                        "headers": [[name.decode("utf-8", "replace"), _text(value)] for name, value in record.headers],
                    }
                )
                for record in records
                if wanted.first <= record.offset <= wanted.last
            ]


def _text(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()
