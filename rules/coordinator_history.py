"""What the coordinators wrote: ``__transaction_state`` as histories of ids and windows of transactions."""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from auditor.facts.coordinator_log import ONGOING, PAIR, CoordinatorLog, Entry, clocks, pack, windows_of

__all__ = ["CoordinatorHistory", "Entry", "Named", "Window", "build_history", "build_windows", "join"]
SKEW_MS = 30_000  # clocks of two brokers
COORDINATOR_CHECK_MS = 10_000  # transaction.abort.timed.out.transaction.cleanup.interval.ms
LEAST_MARGIN_MS = 15 * 60_000
DECIDING = ("PrepareCommit", "PrepareAbort")
DECIDED = ("CompleteCommit", "CompleteAbort")


@dataclass(slots=True)
class Window:
    """One transaction of an id: from its first Ongoing record to its Complete record, as far as the log shows it.

    ``first`` is its first Ongoing entry, ``prepare`` and ``complete`` the deciding ones, each None when not there
    (yet, or any more). ``epochs`` are those of its entries; a marker carries that of ``prepare``.
    """

    transactional_id: str
    producer_id: int
    first: Entry | None = None
    prepare: Entry | None = None
    complete: Entry | None = None
    last_ongoing: Entry | None = None
    partitions: frozenset[str] = frozenset()
    epochs: frozenset[int] = frozenset()
    added: dict[str, Entry] = field(default_factory=dict)

    @property
    def start_time(self) -> int:
        """ms when the transaction began, -1 when its beginning is not in the log."""
        if self.first is not None:
            return self.first.start if self.first.start >= 0 else self.first.time
        return self.prepare.start if self.prepare is not None else -1

    @property
    def end_time(self) -> int | None:
        """ms when it was complete, None while it is not.

        The update time of a Complete record is taken when its markers are sent, its record's time when they have come.
        """
        return None if self.complete is None else max(self.complete.time, self.complete.record_time)

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

    def covers(self, time: int) -> bool:
        """Whether a clock time falls into the window, give or take the skew of two brokers' clocks."""
        end = self.end_time
        return self.start_time - SKEW_MS <= time and (end is None or time <= end + SKEW_MS)


OWNED = np.dtype([*PAIR.descr, ("source", "i4"), ("rank", "i8")])  # a pair, and where it is from


@dataclass(slots=True)
class Named:
    """What the coordinators wrote of one partition: by producer id the transactions that name it, in the order of the
    log, and by producer id and epoch the times (ms, ascending) of the Ongoing records that do."""

    windows: dict[int, list[Window]] = field(default_factory=dict)
    ongoing: dict[tuple[int, int], list[int]] = field(default_factory=dict)


@dataclass
class CoordinatorHistory:
    """All that ``__transaction_state`` of one cluster says, over every partition of it that is in the input.

    ``partition_count`` is that of the topic (``count_known``: surely); ``complete_from`` gives for each partition read
    the offset from which its history is whole; ``leader_epochs`` its last leader epoch; ``times`` the newest
    broker-written time in its file. ``logs`` are its records by partition, packed; those of ids that several partitions
    have are in ``shared`` too, together, and count there (``ranks``: the place of each among all ids).
    """

    partition_count: int
    count_known: bool = True
    complete_from: dict[int, int] = field(default_factory=dict)
    leader_epochs: dict[int, int] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)
    clean: dict[int, bool] = field(default_factory=dict)
    brokers: dict[int, int | None] = field(default_factory=dict)
    broken: dict[int, int] = field(default_factory=dict)  # partition -> last offset where a record could not be read
    whole_log: dict[int, bool] = field(default_factory=dict)  # partition -> intact from its very first offset
    logs: dict[int, CoordinatorLog] = field(default_factory=dict)
    shared: CoordinatorLog = field(default_factory=lambda: pack(()))
    ranks: list[int] = field(default_factory=list)

    def __getstate__(self) -> dict[str, object]:
        names = self.__dataclass_fields__
        return {name: value for name, value in self.__dict__.items() if name in names}

    @functools.cached_property
    def sources(self) -> list[tuple[CoordinatorLog, np.ndarray]]:
        """Every id once: logs, and which of their ids count there."""
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
        """The pairs of all sources by producer id and rank."""
        found = [np.empty(0, OWNED)]
        for number, (log, counts) in enumerate(self.sources):
            pairs = log.pairs[counts[log.pairs["id"]]]
            rows = np.zeros(len(pairs), OWNED)
            for name in PAIR.names or ():
                rows[name] = pairs[name]
            rows["source"], rows["rank"] = number, rows["id"].astype(np.int64) + (number << 32)
            if log is self.shared:
                rows["rank"] = np.array(self.ranks, np.int64)[rows["id"]]
            found.append(rows)
        rows = np.concatenate(found)
        return rows[np.lexsort((rows["rank"], rows["producer_id"]))]

    @functools.cached_property
    def _producers(self) -> np.ndarray:
        return np.ascontiguousarray(self._owners["producer_id"])

    def owners(self, producer_id: int) -> np.ndarray:
        """The ids that had a producer id, in the order in which the ids come: rows of :data:`OWNED`."""
        first, last = np.searchsorted(self._producers, [producer_id, producer_id + 1])
        return self._owners[first:last]

    def name(self, owner: np.void) -> str:
        """The transactional id of such a row."""
        return self.sources[owner["source"]][0].ids[owner["id"]]

    def owner(self, producer_id: int) -> str | None:
        """The id that had this producer id last."""
        owners = self.owners(producer_id)
        return self.name(owners[-1]) if len(owners) else None

    def first_owner(self, producer_id: int) -> str | None:
        """The id that had this producer id first, by the clock."""
        owners = self.owners(producer_id)
        return self.name(owners[np.argmin(owners["first_time"])]) if len(owners) else None

    def with_several_owners(self) -> np.ndarray:
        """Producer ids that more than one id had."""
        ids = self._producers
        return np.unique(ids[1:][ids[1:] == ids[:-1]])

    def highest_epoch(self, producer_id: int) -> int | None:
        """The highest epoch of a producer id, None where it is not known."""
        owners = self.owners(producer_id)
        return int(owners["epoch"].max()) if len(owners) else None

    def written_in(self, producer_id: int) -> int | None:
        """The partition of the last record with this producer id."""
        owners = self.owners(producer_id)
        return int(owners[-1]["partition"]) if len(owners) else None

    def last_of_producer(self, producer_id: int) -> Entry | None:
        """The last record with this producer id."""
        owners = self.owners(producer_id)
        if not len(owners):
            return None
        return self.sources[owners[-1]["source"]][0].at(int(owners[-1]["piece"]), int(owners[-1]["row"]))

    def last_ongoing(self, producer_id: int, epoch: int) -> Entry | None:
        """The last Ongoing record with this producer id and epoch."""
        for owner in self.owners(producer_id)[::-1]:
            log = self.sources[owner["source"]][0]
            for columns, span in list(log.rows_of(int(owner["id"])))[::-1]:
                mine = (columns["producer_id"][span] == producer_id) & (columns["producer_epoch"][span] == epoch)
                rows = np.flatnonzero(mine & (columns["state"][span] == ONGOING))
                if len(rows):
                    return next(log.entries(columns, rows[-1:] + span.start))
        return None

    def last_of_owner(self, producer_id: int) -> Entry | None:
        """The last record of the id that had this producer id last."""
        owners = self.owners(producer_id)
        return self.sources[owners[-1]["source"]][0].last(int(owners[-1]["id"])) if len(owners) else None

    def last(self, transactional_id: str) -> Entry | None:
        """The last record of an id. Cost: the first call indexes all ids."""
        source, number = self._numbers.get(transactional_id, (None, 0))
        return None if source is None else source.last(number)

    @functools.cached_property
    def _numbers(self) -> dict[str, tuple[CoordinatorLog, int]]:
        return {
            log.ids[number]: (log, number) for log, counts in self.sources for number in np.flatnonzero(counts).tolist()
        }

    def whole_ids(self, partition: int) -> Iterator[tuple[CoordinatorLog, np.ndarray]]:
        """The ids whose records begin in a partition, with all their records: logs, and which of their ids they are."""
        if partition in self.logs:
            yield self.sources[list(self.logs).index(partition)]
        if self.shared.count:
            yield self.shared, self.shared.first_partitions() == partition

    def named(self, name: str) -> Named:
        """What names a partition (``topic-N``). Cost: the pieces that do; memory: the transactions that do."""
        out = Named()
        for log, counts in self.sources:
            pieces, sets = log.naming(name)
            for number in pieces.tolist():
                _name_in(log, log.piece(number), counts, sets, out)
        for times in out.ongoing.values():
            times.sort()
        return out

    def complete(self, transactional_id: str) -> bool:
        """Whether the id's whole history is in the input: its partition is there and was never cleaned."""
        from auditor.model.hashing import partition_for

        if self.partition_count <= 0 or not self.count_known:
            return False
        partition = partition_for(transactional_id, self.partition_count)
        return self.whole_log.get(partition, False) and partition not in self.broken

    def complete_for_all(self) -> bool:
        """Whether every partition's whole history is in the input."""
        return self._everywhere(lambda p: self.whole_log.get(p, False))

    def covered(self) -> bool:
        """Whether the last value of every id is known: all partitions are in the input and were readable."""
        return self._everywhere(self.complete_from.__contains__)

    def _everywhere(self, holds: Callable[[int], bool]) -> bool:
        partitions = range(self.partition_count)
        return self.count_known and bool(partitions) and all(holds(p) and p not in self.broken for p in partitions)

    def may_be_outdated(self, entry: Entry) -> bool:
        """Whether a newer record of the same id may be among those that could not be read."""
        return entry.offset < self.broken.get(entry.partition, -1)

    def intact(self, entry: Entry) -> bool:
        """Whether the log was never cleaned from this record on."""
        return entry.offset >= self.complete_from.get(entry.partition, 1 << 62)


def _name_in(
    log: CoordinatorLog, columns: dict[str, np.ndarray], counts: np.ndarray, sets: np.ndarray, out: Named
) -> None:
    """Adds what a piece says of a partition, which the ``sets`` have."""
    naming = sets[columns["set"]] & counts[columns["id"]]
    ongoing = naming & (columns["state"] == ONGOING)
    producers, epochs = columns["producer_id"][ongoing].tolist(), columns["producer_epoch"][ongoing].tolist()
    for producer, epoch, time in zip(producers, epochs, clocks(columns)[ongoing].tolist(), strict=True):
        out.ongoing.setdefault((producer, epoch), []).append(time)
    numbers = windows_of(columns)
    wanted = np.zeros(int(numbers.max(initial=-1)) + 2, bool)
    wanted[numbers[naming]] = True
    wanted[-1] = False  # where those lie that are of no transaction
    rows = np.flatnonzero(wanted[numbers])
    entries = zip(numbers[rows].tolist(), log.entries(columns, rows), strict=True)
    for _, mine in itertools.groupby(entries, key=lambda entry: entry[0]):
        for producer, windows in build_windows(entry for _, entry in mine).items():
            out.windows.setdefault(producer, []).extend(windows)


def build_windows(entries: Iterable[Entry]) -> dict[int, list[Window]]:
    """Cuts the entries of one id, in log order, into transactions, by the producer id that wrote them."""
    out: dict[int, list[Window]] = defaultdict(list)
    window: Window | None = None
    for entry in entries:
        if entry.state == "Ongoing":
            if window is None or window.prepare is not None or window.producer_id != entry.producer_id:
                window = Window(entry.transactional_id, entry.producer_id, first=entry)
                out[entry.producer_id].append(window)
            for name in entry.partitions - window.partitions:
                window.added[name] = entry
            window.last_ongoing = entry
        elif entry.state in DECIDING:
            if window is None or window.prepare is not None or window.producer_id != entry.producer_id:
                window = Window(entry.transactional_id, entry.producer_id)
                out[entry.producer_id].append(window)
            window.prepare = entry
        elif entry.state in DECIDED:
            if window is None or window.complete is not None:
                window = Window(entry.transactional_id, entry.producer_id)
                out[entry.producer_id].append(window)
            window.complete = entry
        else:
            window = None
        if window is not None:
            window.partitions |= entry.partitions
            window.epochs |= {entry.producer_epoch}
            if entry.state in DECIDED:
                window = None
    return out


def build_history(partition_count: int, entries: Iterable[Entry]) -> CoordinatorHistory:
    """The history from entries in the order (partition, offset)."""
    by_partition = itertools.groupby(entries, key=lambda entry: entry.partition)
    return join(partition_count, {partition: pack(mine) for partition, mine in by_partition})


def join(partition_count: int, logs: Mapping[int, CoordinatorLog]) -> CoordinatorHistory:
    """The history from the logs of partitions, which are given in their order. Cost: a look at each id."""
    history = CoordinatorHistory(partition_count, logs=dict(logs))
    names = _in_several(logs.values())
    if names:
        places = [{name: number for number, name in enumerate(log.ids) if name in names} for log in logs.values()]
        entries: list[Entry] = []
        ranks: dict[str, int] = {}
        for k, (log, numbers) in enumerate(zip(logs.values(), places, strict=True)):
            for name, number in numbers.items():
                ranks.setdefault(name, (k << 32) + number)
                entries += log.entries_of(number)
        history.shared = pack(entries)
        history.ranks = [ranks[name] for name in history.shared.ids]
    return history


def _in_several(logs: Iterable[CoordinatorLog]) -> set[str]:
    """The ids that more than one log has; ids that lie where they belong cost 8 bytes each."""
    hashes = [np.array([hash(name) for name in log.read_ids()], np.int64) for log in logs]
    every = np.sort(np.concatenate([np.empty(0, np.int64), *hashes]))
    twice = np.unique(every[1:][every[1:] == every[:-1]])
    found: dict[str, int] = defaultdict(int)
    if len(twice):
        for log, mine in zip(logs, hashes, strict=True):
            names = log.read_ids()
            for number in np.flatnonzero(np.isin(mine, twice)).tolist():
                found[names[number]] += 1
    return {name for name, count in found.items() if count > 1}
