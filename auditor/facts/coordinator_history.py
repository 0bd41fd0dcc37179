"""Records of the transaction coordinators: histories of ids, and transactions by partition."""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from auditor.facts.coordinator_log import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PAIR,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    Columns,
    CoordinatorLog,
    Damaged,
    StateRecord,
    clocks,
    pack,
    windows_of,
)

# The coordinators' transactions that name one partition, one row each; only rows in use become objects.
#
# Memory per task is bounded whatever the files say: :data:`MOST_RECORDS`.


MOST_RECORDS = 3 << 20  # of the coordinators, in the transactions that name a partition: some 120 bytes each
WINDOWS_AT_HAND = 256
MOST_NAMED = 100_000  # partitions of which the newest decisions are known
_OF_DECISIONS = ("state", "set", "last_update", "record_time")
NONE, ABORT, COMMIT = -1, 0, 1  # what was decided

# One row per transaction. Rows of its chunk, -1 for none: the first and last Ongoing record, the decision, the
# completion, and the first record that names the partition. Times (ms, -1 for none) when it began, was prepared and
# completed. ``epoch`` is that of ``prepare``, which its marker carries. Epoch, time and partition of the record that
# decides, time and epoch of adding the partition, and the offset of its first stored record.
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


def transaction_key(producer_id: int, offset: int) -> str:
    """Name a transaction by its first record in the coordinator's log.

    Its start time is not unique: a fast broker begins two of one producer in a millisecond.
    """
    return f"{producer_id}:{offset}"


@dataclass(slots=True)
class TransactionWindow:
    """One transaction of an id, from its first Ongoing record to its Complete record, as far as the log shows it.

    ``first`` and ``last_ongoing`` are its first and last Ongoing entries, ``prepare`` and ``complete`` the deciding
    ones, each None where missing; ``added`` is the first entry with the partition in question. The last of several
    Prepares decides: the append of one followed by another record of the transaction failed, and so did partitions that
    the last record does not name. A marker has the epoch of ``prepare``. ``start_time``: ms, -1 if the start is not in
    the log. ``end_time``: ms of completion, None before it.
    """

    transactional_id: str
    producer_id: int
    start_time: int
    end_time: int | None
    first: StateRecord | None = None
    prepare: StateRecord | None = None
    complete: StateRecord | None = None
    last_ongoing: StateRecord | None = None
    added: StateRecord | None = None

    @property
    def partitions(self) -> frozenset[str]:
        """The participating partitions, where a record has them: a Complete record has none."""
        entry = self.prepare or self.last_ongoing
        return frozenset() if entry is None else entry.partitions

    @property
    def decided(self) -> StateRecord | None:
        """The entry that decides COMMIT or ABORT."""
        return self.prepare or self.complete

    @property
    def data_epoch(self) -> int | None:
        """The epoch its data was written with, where an Ongoing entry shows it."""
        entry = self.first or self.last_ongoing
        return None if entry is None else entry.producer_epoch

    @property
    def client_version(self) -> int:
        """transaction.version of the client: 2 where Prepare or Complete show it."""
        return max((e.client_version for e in (self.prepare, self.complete, self.last_ongoing) if e), default=0)


@dataclass
class NamedTransactions:
    """The coordinators' transactions that name one partition (``name``: ``topic-N``).

    ``rows`` (:data:`WINDOW`): by producer id, then log order; ``stamps`` (:data:`STAMP`): when Ongoing records named
    it, by producer id, epoch and time. ``left_out``: there are more than a task can hold, so a missing one may exist.
    """

    name: str = ""
    rows: np.ndarray = field(default_factory=lambda: np.empty(0, WINDOW))
    stamps: np.ndarray = field(default_factory=lambda: np.empty(0, STAMP))
    chunks: list[tuple[CoordinatorLog, Columns]] = field(default_factory=list)
    left_out: bool = False
    at_hand: dict[int, TransactionWindow] = field(default_factory=dict)
    _columns: dict[tuple[str, str], np.ndarray] = field(default_factory=dict)

    def of(self, producer_id: int) -> slice:
        """Return which rows are a producer's."""
        return slice(*_between(self._column("rows", "producer_id"), producer_id))

    def _column(self, table: str, name: str) -> np.ndarray:
        # numpy would copy the column for each search otherwise.
        if (table, name) not in self._columns:
            self._columns[table, name] = np.ascontiguousarray(getattr(self, table)[name])
        return self._columns[table, name]

    def window(self, row: int) -> TransactionWindow:
        """Return a row as an object."""
        if row not in self.at_hand:
            if len(self.at_hand) >= WINDOWS_AT_HAND:
                del self.at_hand[next(iter(self.at_hand))]
            self.at_hand[row] = self._window(self.rows[row])
        return self.at_hand[row]

    def _window(self, row: np.void) -> TransactionWindow:
        log, columns = self.chunks[row["chunk"]]
        names = ("first", "prepare", "complete", "ongoing", "added")
        rows = {name: int(row[f"{name}_row"]) for name in names}
        numbers = sorted({number for number in rows.values() if number >= 0})
        entries: dict[int, StateRecord] = dict(zip(numbers, log.entries(columns, numbers), strict=True))
        first, prepare, complete, ongoing, added = (entries.get(rows[name]) for name in names)
        some = next(iter(entries.values()))
        end = int(row["ended"]) if row["has_complete"] else None
        own = some.transactional_id, int(row["producer_id"]), int(row["begun"]), end
        return TransactionWindow(*own, first, prepare, complete, ongoing, added)

    def some_ongoing(self, producer_id: int, epoch: int, after: int, until: int | None) -> bool:
        """Whether an Ongoing record of this producer id and epoch names the partition within these times (ms)."""
        first, last = _between(self._column("stamps", "producer_id"), producer_id)
        low, high = _between(self._column("stamps", "epoch")[first:last], epoch)
        times = self._column("stamps", "time")[first:last][low:high]
        index = int(np.searchsorted(times, after))
        return index < len(times) and (until is None or bool(times[index] <= until))


def _between(column: np.ndarray, value: int) -> tuple[int, int]:
    return int(np.searchsorted(column, value)), int(np.searchsorted(column, value, side="right"))


def naming(sources: Iterable[Source], name: str, most: int = MOST_RECORDS) -> NamedTransactions:
    """Collect what logs record of a partition. Cost: the pieces that name it; memory: at most ``most`` records."""
    out = NamedTransactions(name)
    rows, stamps = [out.rows], [out.stamps]
    record_count = 0
    for log, counts in sources:
        if not log.elements(name):  # none of its transactions has the topic
            continue
        pieces, sets = log.naming(name)
        for number in pieces.tolist():
            if record_count >= most:
                out.left_out = True
                break
            columns, windows, times = _of_piece(log.unpacked(number), log.damaged, counts, sets)
            windows["chunk"] = len(out.chunks)
            record_count += len(columns["id"])
            out.chunks.append((log, columns))
            rows.append(windows)
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
    # The records of transactions that name the partition (in ``sets``), those transactions, and the times of Ongoing
    # records with it.
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
    selected = {name: column[picked] for name, column in columns.items()}
    return selected, _rows(selected, numbers[picked], naming[picked]), stamps


def _rows(columns: Columns, numbers: np.ndarray, naming: np.ndarray) -> np.ndarray:
    # All fields of WINDOW but the chunk.
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


class TransactionEnds(NamedTuple):
    """The records that decided and completed each transaction (-1: none), and the result (:data:`NONE` or another)."""

    prepare: np.ndarray
    complete: np.ndarray
    decision: np.ndarray


def ends_of(columns: Columns, starts: np.ndarray, inside: np.ndarray | None = None) -> TransactionEnds:
    """Find the ends of the transactions that begin at ``starts``. ``inside``: which records are of any, if not all."""
    state = columns["state"]
    ended = (state == COMPLETE_COMMIT) | (state == COMPLETE_ABORT)
    last = last_rows(starts, ~ended if inside is None else ~ended & inside)
    prepare = np.where((last >= 0) & (state[last] != ONGOING), last, -1)
    complete = last_rows(starts, ended)
    decided = np.where(prepare >= 0, prepare, complete)
    commits = (state[decided] == PREPARE_COMMIT) | (state[decided] == COMPLETE_COMMIT)
    return TransactionEnds(prepare, complete, np.where(decided < 0, NONE, np.where(commits, COMMIT, ABORT)))


def newest_decided(log: CoordinatorLog) -> dict[str, tuple[tuple[int, int], ...]]:
    """Return when (ms) the newest two completed transactions that name a partition were decided and completed.

    By partition (``topic-N``), newest first; of the :data:`MOST_NAMED` partitions that were named last. Cost: a pass
    over all pieces.
    """
    best = np.empty((0, 3), np.int64)  # set, decided, completed
    for columns in log.all_pieces():
        numbers = windows_of(columns, log.damaged)
        picked = np.flatnonzero(numbers >= 0)
        if not len(picked):
            continue
        of, numbers = {name: columns[name][picked] for name in _OF_DECISIONS}, numbers[picked]
        starts = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1]))
        prepare, complete, _ = ends_of(of, starts)
        done = (prepare >= 0) & (complete >= 0)
        prepare, complete = prepare[done], complete[done]
        ended = np.maximum(clocks(of)[complete], of["record_time"][complete])
        rows = np.column_stack([of["set"][prepare], clocks(of)[prepare], ended]).astype(np.int64)
        best = _newest_two(np.concatenate([best, rows]))
    if not len(best):
        return {}
    ends, members = log.sets
    sizes = log.set_sizes(best[:, 0])
    places = np.arange(int(sizes.sum())) + np.repeat(ends[best[:, 0]] - sizes - (np.cumsum(sizes) - sizes), sizes)
    rows = _newest_two(np.column_stack([members[places], np.repeat(best[:, 1:], sizes, axis=0)]))
    out: dict[str, tuple[tuple[int, int], ...]] = {}
    for element, decided, completed in rows[np.argsort(-rows[:, 1], kind="stable")].tolist():
        name = log.name_of(element)
        if name in out or len(out) < MOST_NAMED:
            out[name] = (*out.get(name, ()), (decided, completed))
    return out


def _newest_two(rows: np.ndarray) -> np.ndarray:
    # Of each value of the first column.
    rows = rows[np.lexsort((-rows[:, 1], rows[:, 0]))]
    third = rows[2:, 0] == rows[:-2, 0]
    return rows[np.append(np.ones(min(2, len(rows)), bool), ~third)]


def first_rows(starts: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return the first row of each transaction, beginning at ``starts``, where the mask is set, -1 for none."""
    rows = np.minimum.reduceat(np.where(mask, np.arange(len(mask)), len(mask)), starts)
    return np.where(rows < len(mask), rows, -1)


def last_rows(starts: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return the last row of each transaction, beginning at ``starts``, where the mask is set, -1 for none."""
    return np.maximum.reduceat(np.where(mask, np.arange(len(mask)), -1), starts)


# ``__transaction_state`` as histories of ids and windows of transactions.


LISTED = 10  # ids that a sentence may name
OWNED = np.dtype([*PAIR.descr, ("source", "i4"), ("rank", "i8")])  # a pair, and where it is from


class StartsLate(NamedTuple):
    """Evidence that the log begins after the data: the oldest marker of a producer id that it never names.

    ``begins``: the first record (ms) of the first partition to begin; ``producers``: how many such producer ids are
    known.
    """

    name: str
    producer_id: int
    oldest: int
    begins: int
    producers: int


class EpochChange(NamedTuple):
    """The first record of a coordinator's log under another leader epoch: its offset, the time (ms) of the record right
    before it, and its own."""

    offset: int
    begin: int
    end: int


class Restored(NamedTuple):
    """Evidence that a partition of ``__transaction_state`` lost its newest records, and then went on.

    ``offset``, ``begin`` and ``end`` as in :class:`Change`. ``markers``: how many were written in between whose
    decision it lacks, at least, and ``producer_ids``: whose; ``name``: a partition that has some of them.
    """

    offset: int
    begin: int
    end: int
    markers: int
    producer_ids: tuple[int, ...]
    name: str


def changes_of(log: CoordinatorLog) -> list[EpochChange]:
    """Return the changes of leader epoch in a log between two records that follow each other. Cost: a pass over all."""
    edges: dict[int, tuple[tuple[int, int], tuple[int, int]]] = {}
    for columns in log.all_pieces():
        epochs, offsets, times = columns["leader_epoch"], columns["offset"], columns["record_time"]
        for epoch in np.unique(epochs).tolist():
            rows = np.flatnonzero(epochs == epoch)
            first, last = rows[np.argmin(offsets[rows])], rows[np.argmax(offsets[rows])]
            own = [(int(offsets[row]), int(times[row])) for row in (first, last)]
            low, high = edges.get(epoch, (own[0], own[1]))
            edges[epoch] = min(low, own[0]), max(high, own[1])
    ordered = [edges[epoch] for epoch in sorted(edges)]
    pairs = [(before[1], after[0]) for before, after in itertools.pairwise(ordered)]
    return [EpochChange(to, begin, end) for (previous, begin), (to, end) in pairs if previous + 1 == to]


@dataclass
class CoordinatorHistory:
    """Everything in ``__transaction_state`` of one cluster, over each of its partitions in the input.

    ``partition_count`` is that of the topic (``count_known``: certainly); ``complete_from``: for each partition read,
    the offset from which its history is complete; ``leader_epochs``: its last leader epoch, ``highest_epochs``: that of
    the metadata where it is higher; ``outdated``: when (ms) a marker was written whose decision its older replica
    lacks. ``logs``: packed records by partition; those of ids in several partitions are also in ``shared``, together,
    and count there (``ranks``: the place of each among all ids).
    ``starts_late``: evidence that they begin after the data; ``restored``: by partition, that it lost records.
    """

    partition_count: int
    count_known: bool = True
    complete_from: dict[int, int] = field(default_factory=dict)
    leader_epochs: dict[int, int] = field(default_factory=dict)
    highest_epochs: dict[int, int] = field(default_factory=dict)
    outdated: dict[int, int] = field(default_factory=dict)
    brokers: dict[int, int | None] = field(default_factory=dict)
    broken: dict[int, int] = field(default_factory=dict)  # partition -> last offset where a record could not be read
    whole_log: dict[int, bool] = field(default_factory=dict)  # partition -> intact from its very first offset
    logs: dict[int, CoordinatorLog] = field(default_factory=dict)
    shared: CoordinatorLog = field(default_factory=lambda: pack(()))
    ranks: list[int] = field(default_factory=list)
    starts_late: StartsLate | None = None
    restored: dict[int, Restored] = field(default_factory=dict)
    damaged_copies: frozenset[int] = frozenset()  # partitions of which some replica has a CRC mismatch

    def __getstate__(self) -> dict[str, object]:
        names = self.__dataclass_fields__
        return {name: value for name, value in self.__dict__.items() if name in names}

    @functools.cached_property
    def sources(self) -> list[Source]:
        """Logs with a mask of their ids, so that every id counts once."""
        elsewhere = set(self.shared.ids)
        out = []
        for log in self.logs.values():
            counts = np.ones(log.id_count, bool)
            if elsewhere:
                counts[[number for number, name in enumerate(log.ids) if name in elsewhere]] = False
            out.append((log, counts))
        return [*out, (self.shared, np.ones(self.shared.id_count, bool))]

    @functools.cached_property
    def _owners(self) -> np.ndarray:
        # By producer id and rank.
        parts = [np.empty(0, OWNED)]
        for number, (log, counts) in enumerate(self.sources):
            pairs = log.pairs[counts[log.pairs["id"]]]
            rows = np.zeros(len(pairs), OWNED)
            for name in PAIR.names or ():
                rows[name] = pairs[name]
            rows["source"], rows["rank"] = number, rows["id"].astype(np.int64) + (number << 32)
            if log is self.shared:
                rows["rank"] = np.array(self.ranks, np.int64)[rows["id"]]
            parts.append(rows)
        rows = np.concatenate(parts)
        return rows[np.lexsort((rows["rank"], rows["producer_id"]))]

    @functools.cached_property
    def _producers(self) -> np.ndarray:
        return np.ascontiguousarray(self._owners["producer_id"])

    def owners(self, producer_id: int) -> np.ndarray:
        """Return the ids that had a producer id, in order of the ids: rows of :data:`OWNED`."""
        producer_ids = self._producers
        return self._owners[producer_ids.searchsorted(producer_id) : producer_ids.searchsorted(producer_id, "right")]

    def name(self, owner: np.void) -> str:
        """Return the transactional id of such a row."""
        return self.sources[owner["source"]][0].ids[owner["id"]]

    def owner(self, producer_id: int) -> str | None:
        """Return the id that had this producer id last."""
        owners = self.owners(producer_id)
        return self.name(owners[-1]) if len(owners) else None

    def first_owner(self, producer_id: int) -> str | None:
        """Return the id that had this producer id first, by time."""
        owners = self.owners(producer_id)
        return self.name(owners[np.argmin(owners["first_time"])]) if len(owners) else None

    def with_several_owners(self) -> np.ndarray:
        """Return the producer ids of more than one transactional id."""
        ids = self._producers
        return np.unique(ids[1:][ids[1:] == ids[:-1]])

    def highest_epoch(self, producer_id: int) -> int | None:
        """Return the highest epoch of a producer id, None where unknown."""
        owners = self.owners(producer_id)
        return int(owners["epoch"].max()) if len(owners) else None

    def written_in(self, producer_id: int) -> int | None:
        """Return the partition of the last record with this producer id."""
        owners = self.owners(producer_id)
        return int(owners[-1]["partition"]) if len(owners) else None

    def _last_owners(self, producer_ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        index = np.searchsorted(self._producers, producer_ids, side="right") - 1
        places = np.flatnonzero((index >= 0) & (np.append(self._producers, -1)[index] == producer_ids))
        return places, self._owners[index[places]]

    def each_written_in(self, producer_ids: np.ndarray) -> np.ndarray:
        """:meth:`written_in` of many producer ids, -1 for unknown ones."""
        places, owners = self._last_owners(producer_ids)
        out = np.full(len(producer_ids), -1)
        out[places] = owners["partition"]
        return out

    def each_highest_epoch(self, producer_ids: np.ndarray) -> np.ndarray:
        """:meth:`highest_epoch` of many producer ids, -1 for unknown ones."""
        places, _ = self._last_owners(producer_ids)
        out = np.full(len(producer_ids), -1)
        if len(places):
            starts = np.flatnonzero(np.append(True, self._producers[1:] != self._producers[:-1]))
            highest = np.maximum.reduceat(self._owners["epoch"], starts)
            out[places] = highest[np.searchsorted(self._producers[starts], producer_ids[places])]
        return out

    def forgotten(self, producer_ids: np.ndarray) -> np.ndarray:
        """Whether the last owner's last record is a tombstone, for each of many producer ids."""
        places, owners = self._last_owners(producer_ids)
        out = np.zeros(len(producer_ids), bool)
        for number, (log, _) in enumerate(self.sources):
            in_source = owners["source"] == number
            out[places[in_source]] = log.forgotten(owners["id"][in_source])
        return out

    def last_of_producer(self, producer_id: int) -> StateRecord | None:
        """Return the last record with this producer id."""
        owners = self.owners(producer_id)
        if not len(owners):
            return None
        return self.sources[owners[-1]["source"]][0].at(int(owners[-1]["piece"]), int(owners[-1]["row"]))

    def last_ongoing(self, producer_id: int, epoch: int) -> StateRecord | None:
        """Return the last Ongoing record with this producer id and epoch."""
        for owner in self.owners(producer_id)[::-1]:
            log = self.sources[owner["source"]][0]
            for columns, span in list(log.rows_of(int(owner["id"])))[::-1]:
                matches = (columns["producer_id"][span] == producer_id) & (columns["producer_epoch"][span] == epoch)
                rows = np.flatnonzero(matches & (columns["state"][span] == ONGOING))
                if len(rows):
                    return next(log.entries(columns, rows[-1:] + span.start))
        return None

    def initialised(self, producer_id: int, lowest: int, highest: int) -> bool:
        """Whether InitProducerId returned a producer id with an epoch from ``lowest`` to ``highest``.

        By the records still stored.
        """
        for owner in self.owners(producer_id):
            for columns, span in self.sources[owner["source"]][0].rows_of(int(owner["id"])):
                epochs = columns["producer_epoch"][span]
                matches = (columns["producer_id"][span] == producer_id) & (columns["state"][span] == EMPTY)
                if (matches & (lowest <= epochs) & (epochs <= highest)).any():
                    return True
        return False

    def last_of_owner(self, producer_id: int) -> StateRecord | None:
        """Return the last record of the id that had this producer id last."""
        owners = self.owners(producer_id)
        return self.sources[owners[-1]["source"]][0].last(int(owners[-1]["id"])) if len(owners) else None

    def last(self, transactional_id: str) -> StateRecord | None:
        """Return the last record of an id. Cost: the first call indexes all ids."""
        source, number = self.place(transactional_id)
        return None if source is None else source.last(number)

    def place(self, transactional_id: str) -> tuple[CoordinatorLog | None, int]:
        """Return the log with an id, None for no such id, and its number there. Cost: as for :meth:`last`."""
        return self._numbers.get(transactional_id, (None, 0))

    @functools.cached_property
    def _numbers(self) -> dict[str, tuple[CoordinatorLog, int]]:
        return {
            log.ids[number]: (log, number) for log, counts in self.sources for number in np.flatnonzero(counts).tolist()
        }

    def whole_ids(self, partition: int) -> Iterator[tuple[CoordinatorLog, np.ndarray]]:
        """Yield logs and masks of the ids whose records begin in a partition, with all their records."""
        if partition in self.logs:
            yield self.sources[list(self.logs).index(partition)]
        if self.shared.count:
            yield self.shared, self.shared.first_partitions() == partition

    def named(self, name: str) -> NamedTransactions:
        """Return the transactions that name a partition (``topic-N``)."""
        return naming(self.sources, name)

    def ids_in(self, names: tuple[str, ...], producers: tuple[int, ...] = (), but: str = "") -> tuple[int, list[str]]:
        """Count the ids with transactions in some partitions, or last owners of some producer ids, and list the first.

        Up to :data:`LISTED`: ids with an open transaction first, then the newest. Excludes ids that the coordinator has
        forgotten, and ``but``. Cached. Cost: a pass over all records.
        """
        key = (names, producers, but)
        if key not in self._ids_in:
            owners = self._last_owners(np.array(producers, np.int64))[1]
            parts = []
            for number, (log, counts) in enumerate(self.sources):
                wanted = np.zeros(log.id_count, bool)
                wanted[log.ids_in(names)] = wanted[owners["id"][owners["source"] == number]] = True
                ids = np.flatnonzero(wanted & counts)
                is_open, times, current = log.standing(ids)
                keep = current & (np.array([log.ids[k] != but for k in ids.tolist()], bool) if but else True)
                parts.append(np.column_stack([~is_open, -times, np.full(len(ids), number), ids])[keep].astype(np.int64))
            rows = np.concatenate([np.empty((0, 4), np.int64), *parts])
            first = rows[np.lexsort(rows.T[::-1])][:LISTED].tolist()
            self._ids_in[key] = len(rows), [self.sources[number][0].ids[k] for _, _, number, k in first]
        return self._ids_in[key]

    @functools.cached_property
    def _ids_in(self) -> dict[tuple[tuple[str, ...], tuple[int, ...], str], tuple[int, list[str]]]:
        return {}

    def complete(self, transactional_id: str) -> bool:
        """Whether the input has the id's whole history: its partition is there and was never cleaned."""
        from auditor.model.transaction_states import partition_for

        if self.partition_count <= 0 or not self.count_known:
            return False
        partition = partition_for(transactional_id, self.partition_count)
        return self.whole_log.get(partition, False) and partition not in self.broken

    def known_since(self, entry: StateRecord, time: int) -> bool:
        """Whether all records of the entry's id since a time (ms) are stored: none was cleaned away."""
        if entry.time <= time or self.complete(entry.transactional_id):
            return True
        log, number = self.place(entry.transactional_id)
        whole = max(self.complete_from.get(entry.partition, 1 << 62), self.broken.get(entry.partition, -1))
        for columns, span in log.rows_of(number) if log is not None else ():
            intact = (columns["partition"][span] == entry.partition) & (columns["offset"][span] >= whole)
            if (intact & (columns["record_time"][span] <= time)).any():
                return True
        return False

    def complete_for_all(self) -> bool:
        """Whether every partition's whole history is in the input, from before its first marker on."""
        return self.starts_late is None and self._everywhere(lambda p: self.whole_log.get(p, False))

    def begins(self) -> dict[int, int]:
        """Return when (ms) the first record of each partition was written."""
        owned = self._owners
        partitions = np.unique(owned["partition"]).tolist()
        return {p: int(owned["first_time"][owned["partition"] == p].min()) for p in partitions}

    def covered(self) -> bool:
        """Whether the last value of each id is known: all partitions are in the input and readable."""
        return self._everywhere(self.complete_from.__contains__)

    def _everywhere(self, holds: Callable[[int], bool]) -> bool:
        partitions = range(self.partition_count)
        return self.count_known and bool(partitions) and all(holds(p) and p not in self.broken for p in partitions)

    def may_be_outdated(self, entry: StateRecord) -> bool:
        """Whether a newer record of the same id may be unreadable."""
        return entry.offset < self.broken.get(entry.partition, -1)

    def intact(self, entry: StateRecord) -> bool:
        """Whether the log was never cleaned from this record on, and all of it could be read."""
        return entry.offset >= self.complete_from.get(entry.partition, 1 << 62) and not self.may_be_outdated(entry)


def build_history(partition_count: int, entries: Iterable[StateRecord]) -> CoordinatorHistory:
    """Build the history from entries in the order (partition, offset)."""
    by_partition = itertools.groupby(entries, key=lambda entry: entry.partition)
    return join(partition_count, {partition: pack(group) for partition, group in by_partition})


def join(partition_count: int, logs: Mapping[int, CoordinatorLog]) -> CoordinatorHistory:
    """Build the history from the logs of partitions, in their order. Cost: a look at each id."""
    history = CoordinatorHistory(partition_count, logs=dict(logs))
    names = _in_several(logs.values())
    if names:
        places = [{name: number for number, name in enumerate(log.ids) if name in names} for log in logs.values()]
        entries: list[StateRecord] = []
        ranks: dict[str, int] = {}
        for k, (log, numbers) in enumerate(zip(logs.values(), places, strict=True)):
            for name, number in numbers.items():
                ranks.setdefault(name, (k << 32) + number)
                entries += log.entries_of(number)
        history.shared = pack(entries)
        history.shared.damaged = {p: ranges for log in logs.values() for p, ranges in log.damaged.items()}
        history.ranks = [ranks[name] for name in history.shared.ids]
    return history


def _in_several(logs: Iterable[CoordinatorLog]) -> set[str]:
    # Hashes first: ids stored only where they belong cost 8 bytes each.
    hashes = [np.array([hash(name) for name in log.read_ids()], np.int64) for log in logs]
    every = np.sort(np.concatenate([np.empty(0, np.int64), *hashes]))
    twice = np.unique(every[1:][every[1:] == every[:-1]])
    counts: dict[str, int] = defaultdict(int)
    if len(twice):
        for log, hashes_of_log in zip(logs, hashes, strict=True):
            names = log.read_ids()
            for number in np.flatnonzero(np.isin(hashes_of_log, twice)).tolist():
                counts[names[number]] += 1
    return {name for name, count in counts.items() if count > 1}


class Transactions(NamedTuple):
    """The transactions of one piece of a coordinator log, as row numbers of the piece (-1: no such record).

    ``starts``: the first record still stored; ``forced``: whether the coordinator itself aborted the transaction.
    """

    starts: np.ndarray
    ongoing: np.ndarray
    ends: TransactionEnds
    forced: np.ndarray


def transactions(columns: Columns, damaged: Damaged | None = None) -> Transactions:
    """Find the transactions of a piece, in log order. ``damaged``: batches of the log whose records are lost."""
    numbers = windows_of(columns, damaged)
    starts = np.flatnonzero((numbers >= 0) & (np.append(-1, numbers[:-1])[: len(numbers)] != numbers))
    inside = numbers >= 0
    ends = ends_of(columns, starts, inside)
    ongoing = last_rows(starts, columns["state"] == ONGOING)
    return Transactions(starts, ongoing, ends, _forced(columns, starts, ends.prepare))


def _forced(columns: Columns, starts: np.ndarray, prepare: np.ndarray) -> np.ndarray:
    # The epoch rises from the record before to the abort: by one, or by two where each end bumps it (KIP-890).
    before = np.maximum(prepare - 1, -1)
    in_transaction = (prepare >= 0) & (before >= starts)
    state, version = columns["state"], columns["client_version"] >= 2
    failed = in_transaction & (state[before] != ONGOING)  # a decision whose append failed
    least = 1 + version[prepare] - (failed & version[before])
    rise = columns["producer_epoch"][prepare] - columns["producer_epoch"][before]
    same = columns["producer_id"][prepare] == columns["producer_id"][before]
    return in_transaction & same & (state[prepare] == PREPARE_ABORT) & (rise >= least)
