"""A follower's replica compared with the leader's, a row a batch: where they differ and what either lacks.

Compared is only what replication makes alike: at or above both log starts, and where neither copy was cleaned (a
cleaner rewrites batches, on each replica at its own pace). Cost: a sort and a few passes over both copies' batches.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from auditor.facts.copy_facts import CopyFacts
from auditor.rules import index_entries
from auditor.rules.view import LogView

COMPARED = ("last_offset", "crc", "producer_id", "producer_epoch", "base_sequence", "partition_leader_epoch")
UNDECIDED = ("unreadable", "vanished", "limit", "batch_limit", "bad_magic")  # bytes there that may hold the batches
INDEX_ENTRY = ["producer_id", "first_offset", "last_offset"]


class Gap(NamedTuple):
    """A run of batches that one replica has and the other has not. ``in_leader``: the leader's is the one without."""

    in_leader: bool
    first_offset: int
    last_offset: int
    batches: int
    undecidable: bool


@dataclass(slots=True)
class Pair:
    """A replica and the leader's. Compared are batches from offset ``low`` on; ``high`` is the smaller high watermark.

    ``divergent`` counts batches that differ, below ``high`` or by the lineage of leader epochs; they lie between
    ``first_offset`` and ``last_offset``. ``forked_at`` is the offset from which on the lineages are two (-1: one
    lineage), ``lost_epoch`` the leader epoch under which the copy has batches there.
    """

    copy: CopyFacts
    leader: CopyFacts
    low: int
    high: int
    divergent: int = 0
    first_offset: int = -1
    last_offset: int = -1
    forked_at: int = -1
    lost_epoch: int = -1
    gaps: list[Gap] = field(default_factory=list)

    def index_entries(self) -> tuple[np.ndarray, np.ndarray]:
        """Entries of the transaction indexes that only the leader replica has, and only the copy; by producer."""
        if any(e.file.endswith(".txnindex") for c in (self.copy, self.leader) for e in c.errors):
            return self._entries(self.leader)[:0], self._entries(self.copy)[:0]
        only = index_entries.apart(self._entries(self.leader), self._entries(self.copy))
        return only[0][np.argsort(only[0]["last_offset"])], only[1][np.argsort(only[1]["last_offset"])]

    def _entries(self, copy: CopyFacts) -> np.ndarray:
        rows = copy.aborted
        keep = (rows["last_offset"] >= self.low) & (rows["last_offset"] < self.high)
        for gap in self.gaps:  # its marker is missing: reported already
            keep &= (rows["last_offset"] < gap.first_offset) | (rows["last_offset"] > gap.last_offset)
        for c in (self.copy, self.leader):  # an index that was not copied shows nothing of the other one
            segment = np.searchsorted(c.segment_bases, rows["last_offset"], side="right") - 1
            keep &= np.isin(segment, list(c.indexed))
        found = np.empty(int(keep.sum()), [(name, "i8") for name in INDEX_ENTRY])
        for name in INDEX_ENTRY:
            found[name] = rows[name][keep]
        return found

    def snapshots(self) -> list[tuple[int, np.ndarray, np.ndarray]]:
        """Offsets at which both have a snapshot, and the producers that only one of the two knows, by offset."""
        ours, theirs = self.copy.snapshot_producers, self.leader.snapshot_producers
        found = [
            (offset, np.setdiff1d(ours[offset], theirs[offset]), np.setdiff1d(theirs[offset], ours[offset]))
            for offset in sorted(ours.keys() & theirs.keys())
        ]
        return [f for f in found if len(f[1]) or len(f[2])]


def watermark(copy: CopyFacts) -> int:
    """A copy's high watermark: its checkpoint, else its log end."""
    return copy.log_end if copy.high_watermark is None else copy.high_watermark


def pairs(log: LogView) -> list[Pair]:
    """Every copy on another broker than the leader replica's, against it. Computed once for a log."""
    if "pairs" not in log.cache:
        leader = log.leader
        log.cache["pairs"] = [
            _compare(log, copy)
            for copy in log.copies
            if None not in (copy.broker_id, leader.broker_id)
            and copy.broker_id != leader.broker_id
            and all(c.digests or not (c.segments or c.text) for c in (copy, leader))
        ]
    found: list[Pair] = log.cache["pairs"]
    return found


def row_of(log: LogView, copy: CopyFacts, offset: int) -> dict[str, int]:
    """The batch of a copy that holds ``offset``, else the next one, else the last; empty if there is none."""
    d = _batches(log, copy)
    at = int(np.searchsorted(d["base_offset"], offset, side="right")) - 1
    at += at < 0 or int(d["last_offset"][at]) < offset
    at = min(at, len(d["base_offset"]) - 1)
    return {name: int(column[at]) for name, column in d.items()} if at >= 0 else {}


def _batches(log: LogView, copy: CopyFacts) -> dict[str, np.ndarray]:
    """The batches of a copy by base offset, one each. Sorted once for a copy."""
    key = f"batches of {copy.log_dir}"
    if key not in log.cache:
        d = copy.digests or dict.fromkeys(("base_offset", "crc_ok", "magic", *COMPARED), np.empty(0, np.int64))
        _, rows = np.unique(d["base_offset"], return_index=True)
        log.cache[key] = {name: column[rows] for name, column in d.items()}
    found: dict[str, np.ndarray] = log.cache[key]
    return found


def _compare(log: LogView, copy: CopyFacts) -> Pair:
    leader = log.leader
    low = max(leader.log_start, copy.log_start, log.intact_from(leader), log.intact_from(copy))
    pair = Pair(copy, leader, low, min(watermark(leader), watermark(copy)))
    ours, theirs = _batches(log, copy), _batches(log, leader)
    _, at, there = np.intersect1d(ours["base_offset"], theirs["base_offset"], assume_unique=True, return_indices=True)
    differ = _differ(ours, theirs, at, there) & _within(pair, ours)[at]
    odd = [(ours["base_offset"][at[differ]], ours["last_offset"][at[differ]])]
    for rows, others, in_leader, without in ((ours, theirs, True, leader), (theirs, ours, False, copy)):
        alone = ~np.isin(rows["base_offset"], others["base_offset"]) & (rows["crc_ok"] != 0)
        touching = _overlaps(rows, others) & alone & _within(pair, rows)
        odd.append((rows["base_offset"][touching], rows["last_offset"][touching]))
        lone = alone & ~_overlaps(rows, others) & (rows["base_offset"] >= low)
        pair.gaps += _gaps(rows, others, lone, in_leader, _undecidable(without))
    odd.append(_forked(pair, ours, theirs))
    first, last = (np.concatenate(columns) for columns in zip(*odd, strict=True))
    if len(first):
        pair.divergent = len(np.unique(first))
        pair.first_offset, pair.last_offset = int(first.min()), int(last.max())
    return pair


def _differ(
    ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray], at: np.ndarray, there: np.ndarray
) -> np.ndarray:
    """Whether batches at the same offset differ, both being what was written. Magic 0 and 1 have no common checksum."""
    differ = np.zeros(len(at), bool)
    for name in COMPARED:
        unequal = ours[name][at] != theirs[name][there]
        differ |= unequal & (ours["magic"][at] == 2) if name == "crc" else unequal
    return differ & (ours["crc_ok"][at] != 0) & (theirs["crc_ok"][there] != 0)


def _forked(pair: Pair, ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """First and last offsets of the copy's batches outside the leader replica's lineage, whatever checkpoints say.

    A batch of epoch E is not where the leader replica has a later epoch from that offset or an earlier one on, or none
    of E at all. Epochs never come back, so this is proof. Source: KIP-101.
    """
    lineage = _lineage(pair.leader, theirs)
    sound = (ours["crc_ok"] != 0) & (ours["magic"] == 2) & (ours["base_offset"] >= pair.low)
    epochs = ours["partition_leader_epoch"]
    if not lineage or not np.any(sound & (epochs >= 0)):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    known = np.array(sorted(lineage), np.int64)
    starts = np.minimum.accumulate(np.array([lineage[e] for e in known], np.int64)[::-1])[::-1]
    later = np.searchsorted(known, epochs, side="right")
    ends = np.append(starts, np.iinfo(np.int64).max)[later]
    foreign = ~np.isin(epochs, known) & (epochs < known[-1]) & (epochs > known[0])
    outside = sound & (epochs >= 0) & ((ours["base_offset"] >= ends) | foreign)
    if np.any(outside):
        pair.forked_at = int(ours["base_offset"][outside].min())
        pair.lost_epoch = int(epochs[outside].max())
    return ours["base_offset"][outside], ours["last_offset"][outside]


def _lineage(copy: CopyFacts, rows: dict[str, np.ndarray]) -> dict[int, int]:
    """Leader epochs of a copy with their first offsets: by its batches, and its checkpoint where that begins earlier.

    The checkpoint also knows epochs whose batches are gone; what it says behind the log end was never so.
    """
    sound = (rows["crc_ok"] != 0) & (rows["magic"] == 2) & (rows["partition_leader_epoch"] >= 0)
    epochs, at = np.unique(rows["partition_leader_epoch"][sound], return_index=True)
    lineage = dict(zip(epochs.tolist(), rows["base_offset"][sound][at].tolist(), strict=True))
    for epoch, start in copy.leader_epochs:
        if start <= copy.log_end:
            lineage[epoch] = min(start, lineage.get(epoch, start))
    return lineage


def _within(pair: Pair, rows: dict[str, np.ndarray]) -> np.ndarray:
    within: np.ndarray = (rows["base_offset"] >= pair.low) & (rows["base_offset"] < pair.high)
    return within


def _overlaps(rows: dict[str, np.ndarray], others: dict[str, np.ndarray]) -> np.ndarray:
    """Whether some batch of the other copy holds one of a batch's offsets."""
    if not len(others["base_offset"]):
        return np.zeros(len(rows["base_offset"]), bool)
    near = np.searchsorted(others["base_offset"], rows["last_offset"], side="right") - 1
    reach = np.maximum.accumulate(others["last_offset"])
    touches: np.ndarray = (near >= 0) & (reach[np.maximum(near, 0)] >= rows["base_offset"])
    return touches


def _gaps(
    rows: dict[str, np.ndarray], others: dict[str, np.ndarray], lone: np.ndarray, in_leader: bool, undecidable: bool
) -> list[Gap]:
    """Batches that the other copy lacks, together those with no batch of either copy between them."""
    numbers = np.flatnonzero(lone)
    if not len(numbers):
        return []
    below = np.searchsorted(others["base_offset"], rows["base_offset"][numbers])
    cuts = np.flatnonzero((np.diff(numbers) > 1) | (np.diff(below) > 0))
    starts, ends = np.concatenate([[0], cuts + 1]), np.concatenate([cuts, [len(numbers) - 1]])
    return [
        Gap(in_leader, int(first), int(last), int(batches), undecidable)
        for first, last, batches in zip(
            rows["base_offset"][numbers[starts]], rows["last_offset"][numbers[ends]], ends - starts + 1, strict=True
        )
    ]


def _undecidable(copy: CopyFacts) -> bool:
    """Whether bytes of its segments could not be read, or none was copied, which may hold what seems missing."""
    return not copy.segments or any(e.reason in UNDECIDED and e.file in copy.segments for e in copy.errors)
