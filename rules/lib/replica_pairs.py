"""Two replicas of a log compared batch by batch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from auditor.base.errors import DecodeError
from auditor.evidence.horizons import whole_from
from auditor.facts.batch_headers import (
    COMPARED,
    Allowance,
    Columns,
    HeadersLost,
    Lineage,
    ReplicaBatches,
    differing,
    overlaps,
)
from auditor.facts.replica_facts import ReplicaFacts
from auditor.rules.seen.cluster_view import METADATA_TOPIC
from auditor.rules.seen.view import LogView, once

# Entries of transaction indexes, by columns. Cost of each function: a sort of both sides.


def entry_keys(entries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return what names an entry of a transaction index."""
    return entries["producer_id"], entries["last_offset"]


def last_of(keys: tuple[np.ndarray, np.ndarray], wanted: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Return for each wanted pair the last row of ``keys`` that equals it, -1 for none."""
    index = last_before(keys, wanted)
    same = index >= 0
    for key, want in zip(keys, wanted, strict=True):
        same[same] = key[index[same]] == want[same]
    return np.where(same, index, -1)


def entries_apart(ours: np.ndarray, theirs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct rows that only one side has, and only the other, sorted by their fields."""
    rows = np.concatenate([ours, theirs])
    columns = [rows[name] for name in rows.dtype.names or ()]
    order = np.lexsort(columns[::-1])
    begins = np.ones(len(rows), bool)
    begins[1:] = np.any([column[order][1:] != column[order][:-1] for column in columns], axis=0)
    group = np.cumsum(begins) - 1
    here, in_theirs = np.zeros((2, int(begins.sum())), bool)
    here[group[order < len(ours)]] = in_theirs[group[order >= len(ours)]] = True
    distinct = rows[order[begins]]
    return distinct[here & ~in_theirs], distinct[in_theirs & ~here]


def last_before(keys: tuple[np.ndarray, np.ndarray], wanted: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Find rows equal in the first part; in the second the largest at or below, the last of these; -1 for none."""
    index = np.full(len(wanted[0]), -1)
    some = np.flatnonzero(np.isin(wanted[0], keys[0]))  # of an index that is made up, few or none
    if not len(some):
        return index
    count = len(keys[0])
    first, second = (np.concatenate([key, want[some]]) for key, want in zip(keys, wanted, strict=True))
    order = np.lexsort((second, first))  # it is stable: keys stand before what is wanted and equal
    row_of_key = np.maximum.accumulate(np.where(order < count, np.arange(len(order)), -1))
    ours = np.flatnonzero(order >= count)
    before = row_of_key[ours]
    key = np.where(before >= 0, order[before], 0)
    same = (before >= 0) & (first[key] == first[order[ours]])
    index[some[order[ours] - count]] = np.where(same, key, -1)
    return index


# A follower's replica compared with the leader's, one row per batch.
#
# Only what replication makes equal is compared: at or above both log starts, and where neither replica was cleaned (a
# cleaner rewrites batches, on each replica at its own pace). Cost: a few passes over the batches of both replicas, in
# pieces, or over the sums of their ranges (:mod:`auditor.facts.batch_headers`); memory: 80 bytes per batch that
# differs.


UNDECIDED = ("unreadable", "vanished", "limit", "batch_limit", "bad_magic")  # bytes there that may hold the batches
INDEX_ENTRY = ["producer_id", "first_offset", "last_offset"]


class Gap(NamedTuple):
    """A run of batches that one replica lacks. ``in_leader``: the leader's replica lacks it."""

    in_leader: bool
    first_offset: int
    last_offset: int
    batches: int
    undecidable: bool


@dataclass(slots=True)
class Pair:
    """A replica and the leader's. Batches are compared from offset ``low`` on; ``high`` is the smaller high watermark.

    ``divergent`` counts batches that differ, below ``high`` or by the lineage of leader epochs; they are between
    ``first_offset`` and ``last_offset``. ``forked_at``: the offset where the lineages diverge (-1: one lineage),
    ``lost_epoch``: the replica's leader epoch there. ``until``: where a limit ended the comparison, None without;
    ``undecided``: not everything was compared, for that or because batches could not be read again. ``apart``:
    ascending first and last offsets of the batches that differ, or that only one lineage has.
    """

    replica: ReplicaFacts
    leader: ReplicaFacts
    low: int
    high: int
    divergent: int = 0
    first_offset: int = -1
    last_offset: int = -1
    forked_at: int = -1
    lost_epoch: int = -1
    until: int | None = None
    undecided: bool = False
    gaps: list[Gap] = field(default_factory=list)
    apart: tuple[np.ndarray, np.ndarray] = (np.empty(0, np.int64), np.empty(0, np.int64))

    def index_entries(self) -> tuple[np.ndarray, np.ndarray]:
        """Return transaction index entries that only the leader replica has, and only the replica; by offset."""
        if any(e.file.endswith(".txnindex") for c in (self.replica, self.leader) for e in c.errors):
            return self._entries(self.leader)[:0], self._entries(self.replica)[:0]
        only = entries_apart(self._entries(self.leader), self._entries(self.replica))
        return only[0][np.argsort(only[0]["last_offset"])], only[1][np.argsort(only[1]["last_offset"])]

    def _entries(self, replica: ReplicaFacts) -> np.ndarray:
        rows, last = replica.aborted, replica.aborted["last_offset"]
        keep = (last >= self.low) & (last < self.high)
        for gap in self.gaps:  # its marker is missing: reported already
            keep &= (last < gap.first_offset) | (last > gap.last_offset)
        keep &= ~_within_any(last, *self.apart)  # another marker there, or none: each has what its own log says
        keep &= not self.undecided if self.until is None else last < self.until
        for c in (self.replica, self.leader):  # an index that was not copied shows nothing of the other one
            segment = np.searchsorted(c.segment_bases, last, side="right") - 1
            keep &= np.isin(segment, list(c.indexed))
        entries = np.empty(int(keep.sum()), [(name, "i8") for name in INDEX_ENTRY])
        for name in INDEX_ENTRY:
            entries[name] = rows[name][keep]
        return entries

    def snapshots(self) -> list[tuple[int, np.ndarray, np.ndarray]]:
        """Return offsets with a snapshot in both, and the producers that only one of the two has."""
        ours, theirs = self.replica.snapshot_producers, self.leader.snapshot_producers
        differing = [
            (offset, np.setdiff1d(ours[offset], theirs[offset]), np.setdiff1d(theirs[offset], ours[offset]))
            for offset in sorted(ours.keys() & theirs.keys())
        ]
        return [f for f in differing if len(f[1]) or len(f[2])]


def _within_any(offsets: np.ndarray, firsts: np.ndarray, lasts: np.ndarray) -> np.ndarray:
    # The ranges begin in ascending order.
    if not len(firsts):
        return np.zeros(len(offsets), bool)
    behind = np.searchsorted(firsts, offsets, side="right") - 1
    return (behind >= 0) & (offsets <= np.maximum.accumulate(lasts)[np.maximum(behind, 0)])


def watermark(replica: ReplicaFacts) -> int:
    """Return a replica's high watermark: its checkpoint, otherwise its log end."""
    return replica.log_end if replica.high_watermark is None else replica.high_watermark


@once
def pairs(log: LogView) -> list[Pair]:
    """Compare every replica on another broker than the leader's with the leader replica. Computed once per log."""
    leader = log.leader
    return [
        _compare(log, replica)
        for replica in log.replicas
        if None not in (replica.broker_id, leader.broker_id)
        and replica.broker_id != leader.broker_id
        and all(c.digests or not (c.segments or c.text) for c in (replica, leader))
    ]


def row_of(log: LogView, replica: ReplicaFacts, offset: int) -> dict[str, int]:
    """Return the batch of a replica that holds ``offset``, otherwise the next one, otherwise the last.

    Empty if there is none, or it has to be read again and cannot.
    """
    batches = batches_of(log, replica)
    try:
        return batches.row_of(offset)
    except HeadersLost as why:
        if why.limited and batches.again is not None:
            batches.again.limit(offset, "what findings show of single batches was too much to be read again")
        return {}


@once
def allowance(log: LogView) -> Allowance:
    """Return the log's allowance for reading headers again."""
    return Allowance()


@once
def _batches(log: LogView) -> dict[str, ReplicaBatches]:
    # The cache of :func:`batches_of`, by log directory.
    return {}


def batches_of(log: LogView, replica: ReplicaFacts) -> ReplicaBatches:
    """Return the batches of a replica, cached."""
    batches = _batches(log)
    if replica.log_dir not in batches:
        batches[replica.log_dir] = ReplicaBatches(replica, allowance(log))
    return batches[replica.log_dir]


def unread_again(log: LogView, replica: ReplicaFacts) -> list[DecodeError]:
    """Return why batches of a replica were not compared: files that vanished or changed since, or a limit."""
    batches = _batches(log)
    return batches[replica.log_dir].errors if replica.log_dir in batches else []


def _compare(log: LogView, replica: ReplicaFacts) -> Pair:
    leader = log.leader
    low = max(leader.log_start, replica.log_start, whole_from(log, leader), whole_from(log, replica))
    pair = Pair(replica, leader, low, min(watermark(leader), watermark(replica)))
    lineage = Lineage(_lineage(leader, batches_of(log, leader)), low)
    try:
        ours, theirs, pair.until, unread = differing(batches_of(log, replica), batches_of(log, leader), lineage)
    except HeadersLost:  # why is among the errors
        pair.undecided = True
        return pair
    pair.undecided = unread or pair.until is not None
    if not len(ours["magic"]) and not len(theirs["magic"]):
        return pair
    ours = _without_uncommitted(log, pair, ours, lineage)
    _, same, to = np.intersect1d(ours["base_offset"], theirs["base_offset"], assume_unique=True, return_indices=True)
    differ = _differ(ours, theirs, same, to) & _within(pair, ours)[same]
    odd = [(ours["base_offset"][same[differ]], ours["last_offset"][same[differ]])]
    for rows, others, in_leader, without in ((ours, theirs, True, leader), (theirs, ours, False, replica)):
        alone = ~np.isin(rows["base_offset"], others["base_offset"]) & (rows["crc_ok"] != 0)
        touching = overlaps(rows, others) & alone & _within(pair, rows)
        odd.append((rows["base_offset"][touching], rows["last_offset"][touching]))
        lone = alone & ~overlaps(rows, others) & (rows["base_offset"] >= low)
        pair.gaps += _gaps(rows, others, lone, in_leader, _undecidable(without))
    odd.append(_forked(pair, ours, lineage))
    first, last = (np.concatenate(columns) for columns in zip(*odd, strict=True))
    order = np.argsort(first, kind="stable")
    pair.apart = first[order], last[order]
    if len(first):
        pair.divergent = len(np.unique(first))
        pair.first_offset, pair.last_offset = int(first.min()), int(last.max())
    return pair


def _differ(ours: Columns, theirs: Columns, our_rows: np.ndarray, their_rows: np.ndarray) -> np.ndarray:
    # Only batches with a valid checksum count. Magic 0 and 1 have no common checksum.
    differ = np.zeros(len(our_rows), bool)
    for name in COMPARED:
        unequal = ours[name][our_rows] != theirs[name][their_rows]
        differ |= unequal & (ours["magic"][our_rows] == 2) if name == "crc" else unequal
    return differ & (ours["crc_ok"][our_rows] != 0) & (theirs["crc_ok"][their_rows] != 0)


def _without_uncommitted(log: LogView, pair: Pair, ours: Columns, lineage: Lineage) -> Columns:
    # A KRaft voter that led and was cut off keeps its uncommitted tail until it follows again, unless a majority of the
    # voters, or a snapshot, has it (KIP-595).
    outside = lineage.outside(ours)
    if log.topic != METADATA_TOPIC or not np.any(outside):
        return ours
    fork = int(ours["base_offset"][outside].min())
    if fork < log.cluster.metadata_committed.get(pair.replica.log_dir, 0):
        return ours
    pair.high = min(pair.high, fork)
    return {name: column[ours["base_offset"] < fork] for name, column in ours.items()}


def _forked(pair: Pair, ours: Columns, lineage: Lineage) -> tuple[np.ndarray, np.ndarray]:
    # Whatever the checkpoints say.
    outside = lineage.outside(ours)
    if np.any(outside):
        pair.forked_at = int(ours["base_offset"][outside].min())
        pair.lost_epoch = int(ours["partition_leader_epoch"][outside].max())
    return ours["base_offset"][outside], ours["last_offset"][outside]


def _lineage(replica: ReplicaFacts, batches: ReplicaBatches) -> dict[int, int]:
    # The checkpoint also has epochs whose batches are gone; its entries above the log end never existed.
    lineage = dict(batches.lineage)
    for epoch, start in replica.leader_epochs:
        if start <= replica.log_end:
            lineage[epoch] = min(start, lineage.get(epoch, start))
    return lineage


def _within(pair: Pair, rows: Columns) -> np.ndarray:
    return (rows["base_offset"] >= pair.low) & (rows["base_offset"] < pair.high)


def _gaps(rows: Columns, others: Columns, lone: np.ndarray, in_leader: bool, undecidable: bool) -> list[Gap]:
    # One gap for batches without any batch of either replica between them.
    numbers = np.flatnonzero(lone)
    if not len(numbers):
        return []
    below = np.searchsorted(others["base_offset"], rows["base_offset"][numbers])
    cuts = np.flatnonzero((np.diff(numbers) > 1) | (np.diff(below) > 0))
    starts, ends = np.concatenate([[0], cuts + 1]), np.concatenate([cuts, [len(numbers) - 1]])
    counts = np.add.reduceat(rows["batches"][numbers], starts)
    return [
        Gap(in_leader, int(first), int(last), int(batches), undecidable)
        for first, last, batches in zip(
            rows["base_offset"][numbers[starts]], rows["last_offset"][numbers[ends]], counts, strict=True
        )
    ]


def _undecidable(replica: ReplicaFacts) -> bool:
    # Unreadable bytes, or a log without segments, may hold what seems missing.
    return not replica.segments or any(e.reason in UNDECIDED and e.file in replica.segments for e in replica.errors)
