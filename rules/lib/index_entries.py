"""Entries of transaction indexes against the replay, by columns: an index that nobody wrote may have millions.

Cost of each function: a sort of both sides; memory some 100 bytes an entry while it runs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from auditor.facts.replica_facts import ReplicaFacts
from auditor.rules.seen.finding import SEVERITIES

NONE, BEYOND, NO_MARKER, COMMITTED, CLOSED_NOTHING, BEGINS = range(6)
BY_WHAT_IT_HIDES = (NO_MARKER, CLOSED_NOTHING, BEGINS)
CRITICAL, ERROR, INFO = (SEVERITIES.index(name) for name in ("critical", "error", "info"))


class Faults(NamedTuple):
    """Entries that are wrong: their rows in ``ReplicaFacts.aborted``, the row of the transaction that they would be of
    in ``ReplicaFacts.transactions`` (-1: there is none), what is wrong, and how grave that is (of SEVERITIES)."""

    entry: np.ndarray
    transaction: np.ndarray
    fault: np.ndarray
    severity: np.ndarray

    def take(self, rows: np.ndarray) -> Faults:
        """Some of them."""
        return Faults(*(column[rows] for column in self))

    def gravest(self, most: int, offsets: np.ndarray) -> tuple[Faults, Faults]:
        """At most so many, the gravest with the lowest of ``offsets``, and all others; both in their own order."""
        order = np.lexsort((offsets, self.severity))
        return self.take(np.sort(order[:most])), self.take(np.sort(order[most:]))


def faults(replica: ReplicaFacts, intact_from: int) -> Faults:
    """The entries of a replica's transaction indexes that are wrong, above the log start and where it is intact."""
    none = np.empty(0, np.int64)
    if replica.unreadable or not len(replica.aborted):
        return Faults(none, none, none, none)
    kept = (replica.aborted["last_offset"] >= replica.log_start) & (replica.aborted["first_offset"] >= intact_from)
    rows = np.flatnonzero(kept)
    first, last, producer = (replica.aborted[name][rows] for name in ("first_offset", "last_offset", "producer_id"))
    t = replica.transactions
    at = last_of((t["producer_id"], t["marker_offset"]), (producer, last))
    fault = np.where(last >= replica.log_end, np.int8(BEYOND), np.int8(NO_MARKER))
    known = np.flatnonzero(at >= 0)
    fault[known] = _of_known(replica, at[known], first[known], last[known])
    wrong = np.flatnonzero(fault != NONE)
    fault, at = fault[wrong], at[wrong]
    severity = np.where(fault == COMMITTED, np.int8(CRITICAL), np.int8(INFO))
    doubted = np.flatnonzero(np.isin(fault, BY_WHAT_IT_HIDES))
    some = wrong[doubted]
    severity[doubted] = np.where(hides(replica, producer[some], first[some], last[some]), CRITICAL, ERROR)
    return Faults(rows[wrong], at, fault, severity)


def _of_known(replica: ReplicaFacts, at: np.ndarray, first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """What is wrong with entries whose transactions, rows ``at``, are in the log."""
    begins, commit, before = (
        replica.transactions[name][at] for name in ("first_offset", "commit", "prev_marker_offset")
    )
    lone = begins < 0  # a marker alone: brokers up to 2.7 index it with first = last
    own = (first == last) | (first < replica.log_start)
    headless = (first < replica.log_start) & (before < replica.log_start)  # retention took where it begins
    return np.select(
        [
            commit != 0,
            lone & own,
            lone,
            headless,
            (first != begins) & (np.maximum(first, begins) >= replica.log_start),
        ],
        [COMMITTED, NONE, CLOSED_NOTHING, NONE, BEGINS],
        NONE,
    )


def strays(replica: ReplicaFacts, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of aborted transactions (TRANSACTION rows) those that only the index of another segment than their marker's
    lists: their rows in ``t``, and those of their entries in ``ReplicaFacts.aborted``."""
    listed, nothing = replica.aborted, np.empty(0, np.int64)
    at_home = np.searchsorted(replica.segment_bases, listed["last_offset"], side="right") - 1 == listed["segment"]
    if at_home.all():  # as in nearly every log
        return nothing, nothing
    wanted = (t["producer_id"], t["marker_offset"])
    rows = np.flatnonzero(last_of(_keys(listed[at_home]), wanted) < 0)
    elsewhere = np.flatnonzero(~at_home)
    entry = last_of(_keys(listed[elsewhere]), (wanted[0][rows], wanted[1][rows]))
    rows, entry = rows[entry >= 0], elsewhere[entry[entry >= 0]]
    strays = listed["segment"][entry] != t["marker_segment"][rows]
    return rows[strays], entry[strays]


def _keys(entries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return entries["producer_id"], entries["last_offset"]


def hides(replica: ReplicaFacts, producer: np.ndarray, first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Whether committed data of the entry's producer lies inside its range."""
    t = replica.transactions
    t = t[(t["commit"] == 1) & (t["first_offset"] >= 0)]
    t = t[np.lexsort((t["first_offset"], t["producer_id"]))]
    found = np.zeros(len(producer), bool)
    some = np.flatnonzero(np.isin(producer, t["producer_id"]))
    if not len(some):
        return found
    # Of the transactions of a producer so far, the one that ends last: ranks, so that each producer begins anew.
    ends, rank = np.unique(t["last_offset"], return_inverse=True)
    _, group = np.unique(t["producer_id"], return_inverse=True)
    furthest = ends[np.maximum.accumulate(group * len(ends) + rank) % len(ends)]
    at = _last_before((t["producer_id"], t["first_offset"]), (producer[some], last[some]))
    found[some] = (at >= 0) & (furthest[at] >= first[some])
    return found


def last_of(keys: tuple[np.ndarray, np.ndarray], wanted: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """For each pair that is wanted the last row of ``keys`` that equals it, -1 where there is none."""
    at = _last_before(keys, wanted)
    same = at >= 0
    for key, want in zip(keys, wanted, strict=True):
        same[same] = key[at[same]] == want[same]
    return np.where(same, at, -1)


def apart(ours: np.ndarray, theirs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows that only one side has, and only the other, each once, by their fields in order."""
    rows = np.concatenate([ours, theirs])
    columns = [rows[name] for name in rows.dtype.names or ()]
    order = np.lexsort(columns[::-1])
    begins = np.ones(len(rows), bool)
    begins[1:] = np.any([column[order][1:] != column[order][:-1] for column in columns], axis=0)
    group = np.cumsum(begins) - 1
    here, there = np.zeros((2, int(begins.sum())), bool)
    here[group[order < len(ours)]] = there[group[order >= len(ours)]] = True
    distinct = rows[order[begins]]
    return distinct[here & ~there], distinct[there & ~here]


def _last_before(keys: tuple[np.ndarray, np.ndarray], wanted: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """For each pair that is wanted the row of ``keys`` that equals it in its first part, and in its second is the
    largest at or below it, the last of these; -1 where there is none."""
    found = np.full(len(wanted[0]), -1)
    some = np.flatnonzero(np.isin(wanted[0], keys[0]))  # of an index that is made up, few or none
    if not len(some):
        return found
    count = len(keys[0])
    first, second = (np.concatenate([key, want[some]]) for key, want in zip(keys, wanted, strict=True))
    order = np.lexsort((second, first))  # it is stable: keys stand before what is wanted and equal
    row_of_key = np.maximum.accumulate(np.where(order < count, np.arange(len(order)), -1))
    ours = np.flatnonzero(order >= count)
    before = row_of_key[ours]
    key = np.where(before >= 0, order[before], 0)
    same = (before >= 0) & (first[key] == first[order[ours]])
    found[some[order[ours] - count]] = np.where(same, key, -1)
    return found
