"""What the coordinators wrote: ``__transaction_state`` as histories of ids and windows of transactions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

SKEW_MS = 30_000  # clocks of two brokers
COORDINATOR_CHECK_MS = 10_000  # transaction.abort.timed.out.transaction.cleanup.interval.ms
LEAST_MARGIN_MS = 15 * 60_000
DECIDING = ("PrepareCommit", "PrepareAbort")
DECIDED = ("CompleteCommit", "CompleteAbort")


class Entry(NamedTuple):
    """One record of ``__transaction_state``. Times are ms, -1 for none; ``state`` is None for a tombstone."""

    partition: int
    offset: int
    record_time: int
    leader_epoch: int
    transactional_id: str
    state: str | None
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    partitions: frozenset[str]
    partitions_null: bool
    last_update: int
    start: int
    client_version: int
    file: str
    position: int
    status: int

    @property
    def time(self) -> int:
        """When the coordinator decided this: its own clock, else the record's time."""
        return self.last_update if self.last_update >= 0 else self.record_time

    @property
    def commit(self) -> bool:
        """Whether a Prepare or Complete state decides for COMMIT."""
        return self.state in ("PrepareCommit", "CompleteCommit")


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


@dataclass
class CoordinatorHistory:
    """All that ``__transaction_state`` of one cluster says, over every partition of it that is in the input.

    ``partition_count`` is that of the topic (``count_known``: surely); ``complete_from`` gives for each partition read
    the offset from which its history is whole; ``leader_epochs`` its last leader epoch; ``times`` the newest
    broker-written time in its file.
    """

    partition_count: int
    count_known: bool = True
    complete_from: dict[int, int] = field(default_factory=dict)
    leader_epochs: dict[int, int] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)
    clean: dict[int, bool] = field(default_factory=dict)
    brokers: dict[int, int | None] = field(default_factory=dict)
    broken: dict[int, int] = field(default_factory=dict)  # partition -> last offset where a record could not be read
    by_id: dict[str, list[Entry]] = field(default_factory=dict)
    by_producer: dict[int, list[Entry]] = field(default_factory=dict)
    windows_by_producer: dict[int, list[Window]] = field(default_factory=dict)
    whole_log: dict[int, bool] = field(default_factory=dict)  # partition -> intact from its very first offset

    def owner(self, producer_id: int) -> str | None:
        """The id that had this producer id last."""
        entries = self.by_producer.get(producer_id)
        return entries[-1].transactional_id if entries else None

    def last(self, transactional_id: str) -> Entry | None:
        """The last record of an id."""
        entries = self.by_id.get(transactional_id)
        return entries[-1] if entries else None

    def windows(self, producer_id: int) -> list[Window]:
        """The transactions of a producer id in the order of the log."""
        return self.windows_by_producer.get(producer_id, [])

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
    history = CoordinatorHistory(partition_count)
    for entry in entries:
        history.by_id.setdefault(entry.transactional_id, []).append(entry)
    for records in history.by_id.values():
        for entry in records:
            if entry.state is not None:
                history.by_producer.setdefault(entry.producer_id, []).append(entry)
        for producer_id, windows in build_windows(records).items():
            history.windows_by_producer.setdefault(producer_id, []).extend(windows)
    return history
