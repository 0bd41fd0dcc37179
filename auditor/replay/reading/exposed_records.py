"""Records of aborted transactions that a replica's transaction index does not keep from read_committed consumers.

A broker answers a fetch with the aborted transactions that it finds in the transaction indexes from the fetch's segment
on. It stops at the first entry whose last stable offset is at or above the upper bound of the fetch. That bound is the
offset of the first entry in the offset index at or behind the last byte of the fetch, else the next segment's base
offset, else the log end. An entry whose last stable offset is too high thus hides the entries behind it.

The smallest fetch that returns a batch ends with it, and a larger one has no lower bound. So a batch is exposed to some
fetch exactly where that smallest one does not find its transaction. Source: TransactionIndex.collectAbortedTxns,
LocalLog.addAbortedTransactions, OffsetIndex.fetchUpperBoundOffset, RemoteLogManager.addAbortedTransactions.

Nearly all logs have no such entry. In others the headers of the segments with hidden entries are read once more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from auditor.base.errors import DecodeError
from auditor.connectors.codec import batches as walking
from auditor.connectors.codec.indexes import OffsetIndex, decode_offset_index
from auditor.connectors.stores.storage import read_file
from auditor.facts.replica_facts import EXPOSED, NO_EXPOSED, ReplicaFacts
from auditor.replay.reading.ahead_counts import FAR, Outcomes
from auditor.replay.reading.headers_from import headers_of
from auditor.replay.task.replica_task import ReplicaTask


class _Entries(NamedTuple):
    """Columns of the entries of all transaction indexes, in the order of segments and positions."""

    segment: np.ndarray
    producer_id: np.ndarray
    last_offset: np.ndarray
    last_stable_offset: np.ndarray


class _Hidden(NamedTuple):
    """Transactions with data in a segment whose entry is behind one with a higher last stable offset than their first
    offset, in the order of their markers: ``stable`` is the highest last stable offset before their entry, in the
    indexes from the segment on, ``entry`` the row that has it."""

    marker: np.ndarray
    first: np.ndarray
    stable: np.ndarray
    entry: np.ndarray


def exposed_records(task: ReplicaTask, facts: ReplicaFacts) -> np.ndarray:
    """The rows of EXPOSED of a replica, by its transactions and the entries of its transaction indexes. Cost: some
    passes over these; the headers of segments with hidden entries."""
    listed = _Entries(*(facts.aborted[name] for name in _Entries._fields))
    found: list[np.ndarray] = []
    outcomes = None
    for number, hidden in _hidden(facts, listed):
        outcomes = outcomes or Outcomes(facts.transactions, facts.log_end)
        bounds = _Bounds(task, number, facts, listed)
        if bounds.may_be_below(int(hidden.stable.max())):
            found.append(_of_segment(task, number, hidden, bounds, outcomes, facts.log_start))
    return np.concatenate(found) if found else NO_EXPOSED


def _hidden(facts: ReplicaFacts, listed: _Entries) -> Iterator[tuple[int, _Hidden]]:
    """The segments with data of hidden entries' transactions, with these."""
    t = facts.transactions
    t = t[(t["commit"] == 0) & (t["marker_offset"] >= 0) & (t["first_offset"] >= 0) & (t["records"] > 0)]
    if not len(t) or not len(listed.segment):
        return
    before = np.maximum.accumulate(np.concatenate([[-1], listed.last_stable_offset[:-1]]))
    t = t[np.argsort(t["marker_offset"], kind="stable")]
    at = np.minimum(np.searchsorted(t["marker_offset"], listed.last_offset), len(t) - 1)
    own = (t["marker_offset"][at] == listed.last_offset) & (t["producer_id"][at] == listed.producer_id)
    rows = np.flatnonzero(own & (before > t["first_offset"][at]))
    if not len(rows):
        return
    bases = np.array(facts.segment_bases, np.int64)
    begins = np.maximum(np.searchsorted(bases, t["first_offset"][at[rows]], "right") - 1, 0)
    ends = np.minimum(np.searchsorted(bases, t["last_offset"][at[rows]], "right") - 1, listed.segment[rows])
    for number in range(int(begins.min()), int(ends.max()) + 1):
        here = rows[(begins <= number) & (ends >= number)]
        if not len(here):
            continue
        start = int(np.searchsorted(listed.segment, number))
        stop = int(here.max()) + 1
        highest = np.maximum.accumulate(listed.last_stable_offset[start:stop])
        # The first entry of each transaction is the one that counts: a second one may be in a later index.
        marker, row = np.unique(listed.last_offset[start:stop], return_index=True)
        row, marker = row[row > 0], marker[row > 0]
        of = at[start + row]
        first, stable = t["first_offset"][of], highest[row - 1]
        kept = own[start + row] & (stable > first) & np.isin(marker, listed.last_offset[here])
        if kept.any():
            entry = start + np.searchsorted(highest, stable[kept])
            yield number, _Hidden(marker[kept], first[kept], stable[kept], entry)


class _Bounds:
    """The upper bounds of fetches from a segment, by the byte in it at which they end."""

    def __init__(self, task: ReplicaTask, number: int, facts: ReplicaFacts, listed: _Entries) -> None:
        bases = facts.segment_bases
        # Of a running broker the transaction index may be newer than the log that was read before it.
        newest = min(max(facts.log_end, int(listed.last_offset.max()) + 1), FAR)
        self.behind = bases[number + 1] if number + 1 < len(bases) else newest
        index = _offset_index(task, number)
        self.known = index is not None
        none = np.empty(0, np.int64)
        self.position = none if index is None else index.log_position
        self.offset = none if index is None else index.offset

    def may_be_below(self, stable: int) -> bool:
        """Whether a fetch may have an upper bound at or below ``stable``."""
        return not self.known or self.behind <= stable or bool((self.offset <= stable).any())

    def of(self, rows: np.ndarray) -> np.ndarray:
        """The upper bounds of fetches that end with each of these batches: the least that some index would give, where
        the segment's own is not known."""
        if not self.known:
            return np.minimum(rows[:, walking.LAST_OFFSET] + 1, self.behind)
        ends = rows[:, walking.POSITION] + rows[:, walking.SIZE]
        at = np.searchsorted(self.position, ends)
        if len(self.position):  # AbstractIndex.binarySearch never compares the first entry for equality
            at[(at == 0) & (ends == self.position[0])] = 1
        return np.append(self.offset, self.behind)[np.minimum(at, len(self.offset))]


def _offset_index(task: ReplicaTask, number: int) -> OffsetIndex | None:
    segment = task.replica.segments[number]
    if segment.index is None:
        return None
    where = segment.index.place or task.place
    data = read_file(where, segment.index.name, limit=task.limits.small_file("index"))
    if isinstance(data, DecodeError):
        return None
    return decode_offset_index(data, segment.base_offset, segment.index.name)[0]


def _of_segment(
    task: ReplicaTask, number: int, hidden: _Hidden, bounds: _Bounds, outcomes: Outcomes, start: int
) -> np.ndarray:
    """The rows of EXPOSED of one segment. ``start``: the first offset that consumers can read."""
    found = np.zeros(len(hidden.marker), EXPOSED)
    found["first_offset"], found["last_offset"] = np.iinfo(np.int64).max, -1
    highest = int(hidden.stable.max())
    for rows in headers_of(task, number, int(hidden.first.min())):
        if isinstance(rows, DecodeError):  # as an audit's errors say already
            break
        if len(rows) and int(rows[0, walking.BASE_OFFSET]) >= highest:
            break
        inside = (rows[:, walking.MAGIC] == 2) & (rows[:, walking.ATTRIBUTES] & walking.TRANSACTIONAL != 0)
        inside &= (rows[:, walking.ATTRIBUTES] & walking.CONTROL == 0) & (rows[:, walking.LAST_OFFSET] >= start)
        rows = rows[inside]
        which = outcomes.which(rows[:, walking.BASE_OFFSET], rows[:, walking.PRODUCER_ID])
        rows, which = rows[which >= 0], which[which >= 0]
        at = np.minimum(np.searchsorted(hidden.marker, outcomes.until[which]), len(found) - 1)
        exposed = (hidden.marker[at] == outcomes.until[which]) & (bounds.of(rows) <= hidden.stable[at])
        rows, at = rows[exposed], at[exposed]
        last, first = rows[:, walking.LAST_OFFSET], np.maximum(rows[:, walking.BASE_OFFSET], start)
        np.minimum.at(found["first_offset"], at, first)
        np.maximum.at(found["last_offset"], at, last)
        np.add.at(found["records"], at, np.minimum(rows[:, walking.RECORD_COUNT], last + 1 - first))
        found["producer_id"][at] = rows[:, walking.PRODUCER_ID]
    found["segment"], found["known"] = number, bounds.known
    found["marker_offset"], found["entry"] = hidden.marker, hidden.entry
    return found[found["records"] > 0]
