"""The coordinators' transactions that name one partition: a row each, an object only for those that are looked at.

What a task holds of them has a bound that no file can raise: :data:`MOST_RECORDS`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from auditor.facts.coordinator_log import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    ONGOING,
    PREPARE_COMMIT,
    Columns,
    CoordinatorLog,
    Damaged,
    Entry,
    clocks,
    windows_of,
)

SKEW_MS = 30_000  # clocks of two brokers
MOST_RECORDS = 3 << 20  # of the coordinators, in the transactions that name a partition: some 120 bytes each
WINDOWS_AT_HAND = 256
NONE, ABORT, COMMIT = -1, 0, 1  # what was decided

# A row a transaction: its chunk, and the rows of it in which its first and last Ongoing record are, its decision, its
# completion, and the first record that names the partition (-1 for not there, yet or any more); when it began, was
# prepared and complete (ms, -1 for not); the epoch of ``prepare``, which its marker carries; epoch, time and the
# coordinator's partition of what says COMMIT or ABORT; when and with which epoch the partition was added; the offset of
# its first record that is left.
WINDOW = np.dtype(
    [
        ("producer_id", "i8"), ("chunk", "i4"), ("first_row", "i4"), ("ongoing_row", "i4"), ("prepare_row", "i4"),
        ("complete_row", "i4"), ("begun", "i8"), ("prepared", "i8"),
        ("ended", "i8"), ("epoch", "i4"), ("decided_epoch", "i4"), ("decided_time", "i8"), ("partition", "i4"),
        ("decision", "i1"), ("has_prepare", "?"), ("has_complete", "?"), ("added_row", "i4"), ("added_time", "i8"),
        ("added_epoch", "i4"), ("offset", "i8"),
    ]
)  # fmt: skip
STAMP = np.dtype([("producer_id", "i8"), ("epoch", "i4"), ("time", "i8")])  # of an Ongoing record, ms
Source = tuple[CoordinatorLog, np.ndarray]  # a log, and which of its ids count there


@dataclass(slots=True)
class Window:
    """One transaction of an id: from its first Ongoing record to its Complete record, as far as the log shows it.

    ``first`` and ``last_ongoing`` are its first and last Ongoing entries, ``prepare`` and ``complete`` the deciding
    ones, each None when not there (yet, or any more); ``added`` the first entry that names the partition which this is
    about. Of several the last Prepare decides: the append of one that another record of the transaction is behind has
    failed, and so have its partitions no part where the last record does not name them. A marker carries the epoch of
    ``prepare``. ``start_time``: ms when it began, -1 when its beginning is not in the log. ``end_time``: ms when it was
    complete, None while it is not.
    """

    transactional_id: str
    producer_id: int
    start_time: int
    end_time: int | None
    first: Entry | None = None
    prepare: Entry | None = None
    complete: Entry | None = None
    last_ongoing: Entry | None = None
    added: Entry | None = None

    @property
    def partitions(self) -> frozenset[str]:
        """The partitions that take part, where a record tells: a Complete one has none any more."""
        entry = self.prepare or self.last_ongoing
        return frozenset() if entry is None else entry.partitions

    @property
    def decided(self) -> Entry | None:
        """The entry that says COMMIT or ABORT."""
        return self.prepare or self.complete

    @property
    def data_epoch(self) -> int | None:
        """The epoch its data was written with, where an Ongoing entry shows it."""
        entry = self.first or self.last_ongoing
        return None if entry is None else entry.producer_epoch

    @property
    def client_version(self) -> int:
        """transaction.version of the client: 2 where Prepare or Complete say so."""
        return max((e.client_version for e in (self.prepare, self.complete, self.last_ongoing) if e), default=0)

    def may_hold(self, t: np.void, time: int) -> bool:
        """Whether data whose newest stamp is ``time`` (ms) may be of this transaction: by its epoch, and by the stamp.

        A stamp behind the end by more than two brokers' clocks differ rules it out; one before the start only where a
        broker wrote it: clients stamp records with the times of events, which Streams hands on to what it writes.
        """
        end = self.end_time
        after = t["first_append_time"] != 1 or self.start_time - SKEW_MS <= time
        return self.data_epoch in (None, int(t["last_epoch"])) and after and (end is None or time <= end + SKEW_MS)


@dataclass
class Named:
    """What the coordinators wrote of one partition (``name``: ``topic-N``).

    ``rows`` (:data:`WINDOW`): the transactions that name it, by producer id, those of one in the order of the log;
    ``stamps`` (:data:`STAMP`): when Ongoing records did, by producer id, epoch and time. ``left_out``: whether there
    are more than a task can hold, so that what is not here may be there all the same.
    """

    name: str = ""
    rows: np.ndarray = field(default_factory=lambda: np.empty(0, WINDOW))
    stamps: np.ndarray = field(default_factory=lambda: np.empty(0, STAMP))
    chunks: list[tuple[CoordinatorLog, Columns]] = field(default_factory=list)
    left_out: bool = False
    at_hand: dict[int, Window] = field(default_factory=dict)
    _columns: dict[tuple[str, str], np.ndarray] = field(default_factory=dict)

    def of(self, producer_id: int) -> slice:
        """Which rows are a producer's."""
        return slice(*_between(self._column("rows", "producer_id"), producer_id))

    def _column(self, table: str, name: str) -> np.ndarray:
        """A column by itself: numpy would copy it for each search otherwise."""
        if (table, name) not in self._columns:
            self._columns[table, name] = np.ascontiguousarray(getattr(self, table)[name])
        return self._columns[table, name]

    def window(self, row: int) -> Window:
        """A row as an object."""
        if row not in self.at_hand:
            if len(self.at_hand) >= WINDOWS_AT_HAND:
                del self.at_hand[next(iter(self.at_hand))]
            self.at_hand[row] = self._window(self.rows[row])
        return self.at_hand[row]

    def _window(self, found: np.void) -> Window:
        log, columns = self.chunks[found["chunk"]]
        names = ("first", "prepare", "complete", "ongoing", "added")
        rows = {name: int(found[f"{name}_row"]) for name in names}
        numbers = sorted({number for number in rows.values() if number >= 0})
        entries: dict[int, Entry] = dict(zip(numbers, log.entries(columns, numbers), strict=True))
        first, prepare, complete, ongoing, added = (entries.get(rows[name]) for name in names)
        some = next(iter(entries.values()))
        end = int(found["ended"]) if found["has_complete"] else None
        own = some.transactional_id, int(found["producer_id"]), int(found["begun"]), end
        return Window(*own, first, prepare, complete, ongoing, added)

    def some_ongoing(self, producer_id: int, epoch: int, after: int, until: int | None) -> bool:
        """Whether an Ongoing record with this producer id and epoch names the partition within these times (ms)."""
        first, last = _between(self._column("stamps", "producer_id"), producer_id)
        low, high = _between(self._column("stamps", "epoch")[first:last], epoch)
        times = self._column("stamps", "time")[first:last][low:high]
        at = int(np.searchsorted(times, after))
        return at < len(times) and (until is None or bool(times[at] <= until))


def _between(column: np.ndarray, value: int) -> tuple[int, int]:
    return int(np.searchsorted(column, value)), int(np.searchsorted(column, value, side="right"))


def naming(sources: Iterable[Source], name: str, most: int = MOST_RECORDS) -> Named:
    """What logs say of a partition. Cost: the pieces that name it; memory: at most ``most`` of their records."""
    out = Named(name)
    rows, stamps = [out.rows], [out.stamps]
    taken = 0
    for log, counts in sources:
        if not log.elements(name):  # none of its transactions has the topic
            continue
        pieces, sets = log.naming(name)
        for number in pieces.tolist():
            if taken >= most:
                out.left_out = True
                break
            columns, found, times = _of_piece(log.unpacked(number), log.damaged, counts, sets)
            found["chunk"] = len(out.chunks)
            taken += len(columns["id"])
            out.chunks.append((log, columns))
            rows.append(found)
            stamps.append(times)
    if not out.chunks:
        return out
    every = np.concatenate(rows)
    out.rows = every[np.argsort(every["producer_id"], kind="stable")]
    times = np.concatenate(stamps)
    out.stamps = times[np.lexsort((times["time"], times["epoch"], times["producer_id"]))]
    return out


def _of_piece(
    columns: Columns, damaged: Damaged, counts: np.ndarray, sets: np.ndarray
) -> tuple[Columns, np.ndarray, np.ndarray]:
    """The records of a piece whose transactions name a partition, which the ``sets`` have; those transactions; and when
    Ongoing records name it."""
    naming = sets[columns["set"]] & counts[columns["id"]]
    ongoing = np.flatnonzero(naming & (columns["state"] == ONGOING))
    stamps = np.zeros(len(ongoing), STAMP)
    stamps["producer_id"], stamps["epoch"] = columns["producer_id"][ongoing], columns["producer_epoch"][ongoing]
    stamps["time"] = clocks(columns)[ongoing]
    numbers = windows_of(columns, damaged)
    wanted = np.zeros(int(numbers.max(initial=-1)) + 2, bool)
    wanted[numbers[naming]] = True
    wanted[-1] = False  # where those lie that are of no transaction
    picked = np.flatnonzero(wanted[numbers])
    mine = {name: column[picked] for name, column in columns.items()}
    return mine, _rows(mine, numbers[picked], naming[picked]), stamps


def _rows(columns: Columns, numbers: np.ndarray, naming: np.ndarray) -> np.ndarray:
    """The transactions of records that follow one another, :data:`WINDOW` but for the chunk."""
    starts = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1])[: len(numbers)])
    out = np.zeros(len(starts), WINDOW)
    if not len(starts):
        return out
    state, times = columns["state"], clocks(columns)
    ongoing = state == ONGOING
    out["producer_id"], out["offset"] = columns["producer_id"][starts], columns["offset"][starts]
    first, last = out["first_row"], out["ongoing_row"]
    first[:], last[:] = first_rows(starts, ongoing), last_rows(starts, ongoing)
    prepare, complete, added = out["prepare_row"], out["complete_row"], out["added_row"]
    prepare[:], complete[:], out["decision"] = ends_of(columns, starts)
    added[:] = first_rows(starts, ongoing & naming)
    start, epoch = columns["start"], columns["producer_epoch"]
    of_first = np.where(start[first] >= 0, start[first], times[first])
    out["begun"] = np.where(first >= 0, of_first, np.where(prepare >= 0, start[prepare], -1))
    out["has_prepare"], out["has_complete"] = prepare >= 0, complete >= 0
    out["prepared"] = np.where(prepare >= 0, times[prepare], -1)
    # The update time of a Complete record is taken when its markers are sent, its record's when they have come.
    out["ended"] = np.where(complete >= 0, np.maximum(times[complete], columns["record_time"][complete]), -1)
    out["epoch"] = epoch[prepare]
    decided = np.where(prepare >= 0, prepare, complete)
    out["decided_epoch"], out["decided_time"] = epoch[decided], times[decided]
    out["partition"] = np.where(decided >= 0, columns["partition"][decided], -1)
    out["added_time"], out["added_epoch"] = times[added], epoch[added]
    # Decided by what an Ongoing record has without the partition: the append failed that would have added it.
    decided_set = columns["set"][np.repeat(prepare, np.diff(np.append(starts, len(state))))]
    without = first_rows(starts, ongoing & ~naming & (columns["set"] == decided_set)) >= 0
    return out[(prepare < 0) | naming[prepare] | ~without]


class Ends(NamedTuple):
    """Which record decided each transaction, which completed it (-1: none), and the result (:data:`NONE` or so)."""

    prepare: np.ndarray
    complete: np.ndarray
    decision: np.ndarray


def ends_of(columns: Columns, starts: np.ndarray, inside: np.ndarray | None = None) -> Ends:
    """The ends of the transactions that begin at ``starts``; ``inside``: which records are of any, if not all are."""
    state = columns["state"]
    ended = (state == COMPLETE_COMMIT) | (state == COMPLETE_ABORT)
    last = last_rows(starts, ~ended if inside is None else ~ended & inside)
    prepare = np.where((last >= 0) & (state[last] != ONGOING), last, -1)
    complete = last_rows(starts, ended)
    decided = np.where(prepare >= 0, prepare, complete)
    commits = (state[decided] == PREPARE_COMMIT) | (state[decided] == COMPLETE_COMMIT)
    return Ends(prepare, complete, np.where(decided < 0, NONE, np.where(commits, COMMIT, ABORT)))


def first_rows(starts: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The first row of each transaction, which begin at ``starts``, where the mask holds, -1 for none."""
    found = np.minimum.reduceat(np.where(mask, np.arange(len(mask)), len(mask)), starts)
    return np.where(found < len(mask), found, -1)


def last_rows(starts: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The last one."""
    return np.maximum.reduceat(np.where(mask, np.arange(len(mask)), -1), starts)


def arrived(moment: int, needed_by: int, *, other_clock: bool) -> bool:
    """Whether a file that is whole until ``moment`` (ms) has what was written by ``needed_by``, by these clocks."""
    return moment > needed_by + (SKEW_MS if other_clock else 0)
