"""Producer snapshots compared with the replay."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from auditor.connectors.codec.indexes import ProducerEntries
from auditor.facts.replica_facts import Difference, SnapshotLink
from auditor.model import producers as model
from auditor.replay.producers.state import Replay, column, first_broker_time

MAX_DIFFERENCES = 200
OPEN = "txn_first_offset"
FIELDS = ("producer_epoch", "last_sequence", "last_offset", "offset_delta", "coordinator_epoch")


class Stored(NamedTuple):
    """A decoded snapshot file. ``sound``: without errors."""

    file: str
    offset: int
    entries: ProducerEntries
    sound: bool


class ChainAtRest(NamedTuple):
    """The state of a :class:`Chain`, in which links are numbers where they are shared."""

    links: list[SnapshotLink]
    carried: ProducerEntries | None
    doubted: set[int]
    base: int
    undated: list[int]
    forgotten: dict[int, tuple[int, int, int]]


class Differences:
    """Differences between two accounts of the same producers, in columns: there may be a million of each."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.parts: list[np.ndarray] = []

    def add(self, name: str, rows: np.ndarray, stored: np.ndarray | int, ours: np.ndarray | int) -> None:
        """Add a field ``name`` that is ``stored`` in the snapshot and ``ours`` in these rows of the replay."""
        if len(rows):
            values = np.broadcast_arrays(rows, len(self.names), stored, ours)
            self.parts.append(np.array(values, np.int64))
            self.names.append(name)

    def report(self, link: SnapshotLink, replay: Replay) -> None:
        """Add them to a link, by producer, up to the number that it holds."""
        if not self.parts:
            return
        rows, names, stored, ours = np.concatenate(self.parts, axis=1)
        order = np.lexsort((names, rows))[:MAX_DIFFERENCES]
        link.extra_differences += len(rows) - len(order)
        last_offsets = column(replay, "last_offset")
        for k in order.tolist():
            row, pid = rows[k], int(replay.producers.producer_id[rows[k]])
            difference = Difference(pid, self.names[names[k]], int(stored[k]), int(ours[k]), int(last_offsets[row]))
            link.differences.append(difference)


class IndexedSnapshot:
    """A decoded snapshot with look-up of producers; of several entries for one producer the last counts."""

    def __init__(self, entries: ProducerEntries) -> None:
        self.entries = entries
        self.order = np.argsort(entries.producer_id, kind="stable")
        self.ids = entries.producer_id[self.order]

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """Return the row of each producer id, -1 where missing."""
        if not len(self.ids):
            return np.full(len(ids), -1)
        positions = np.maximum(np.searchsorted(self.ids, ids, side="right") - 1, 0)
        return np.where(self.ids[positions] == ids, self.order[positions], -1)

    def column(self, name: str, rows: np.ndarray) -> np.ndarray:
        """Return a column of those rows, under the names of PRODUCER columns."""
        stored: np.ndarray = getattr(self.entries, "current_" + name if name == OPEN else name)
        return stored[rows].astype(np.int64)


class _Both(NamedTuple):
    """Producers that both the replay and a snapshot have, with their rows in either."""

    replay: Replay
    rows: np.ndarray
    snapshot: IndexedSnapshot
    entry_rows: np.ndarray

    def where(self, wanted: np.ndarray) -> _Both:
        return self._replace(rows=self.rows[wanted], entry_rows=self.entry_rows[wanted])

    def ours(self, name: str) -> np.ndarray:
        return column(self.replay, name)[self.rows]

    def theirs(self, name: str) -> np.ndarray:
        return self.snapshot.column(name, self.entry_rows)

    def add(self, differences: Differences, name: str, wrong: np.ndarray, reported_as: str = "") -> None:
        some = self.where(wrong)
        differences.add(reported_as or name, some.rows, some.theirs(name), some.ours(name))


class Chain:
    """Compares the snapshots of one replica, by offset, with its replay as it passes them."""

    def __init__(self, stored: list[Stored], log_start: int, compacted: bool) -> None:
        self.waiting = sorted(stored, key=lambda s: s.offset)
        self.log_start = log_start
        self.compacted = compacted
        self.links: list[SnapshotLink] = []
        self.carried: IndexedSnapshot | None = None
        self.doubted: set[int] = set()  # whose open transaction is another one in what is carried than in the log
        self.base = log_start
        self.undated: list[SnapshotLink] = []
        self.forgotten: dict[int, tuple[SnapshotLink, int, int]] = {}

    def at_rest(self) -> ChainAtRest:
        """Return the state, without the snapshots that wait."""
        number = {id(link): k for k, link in enumerate(self.links)}
        forgotten = {pid: (number[id(link)], epoch, last) for pid, (link, epoch, last) in self.forgotten.items()}
        carried = None if self.carried is None else self.carried.entries
        undated = [number[id(link)] for link in self.undated]
        return ChainAtRest(self.links, carried, self.doubted, self.base, undated, forgotten)

    def go_on(self, stored: ChainAtRest) -> None:
        """Resume from what :meth:`at_rest` returned; newer snapshots wait. Errors: IndexError for other links."""
        links = stored.links
        self.undated = [links[k] for k in stored.undated]
        self.forgotten = {pid: (links[k], epoch, last) for pid, (k, epoch, last) in stored.forgotten.items()}
        compared = {link.offset for link in links}
        self.waiting = [snapshot for snapshot in self.waiting if snapshot.offset not in compared]
        self.links, self.doubted, self.base = links, stored.doubted, stored.base
        self.carried = None if stored.carried is None else IndexedSnapshot(stored.carried)

    def next_offset(self) -> int:
        """Return the offset of the snapshot to compare next; beyond all offsets without one."""
        return self.waiting[0].offset if self.waiting else 1 << 62

    def compare(self, replay: Replay, readable_log: bool) -> None:
        """Compare the next snapshot with the replay, which is right before its offset.

        ``readable_log``: nothing unreadable came before.
        """
        self._see_who_went_on(replay)
        stored = self.waiting.pop(0)
        comparable = bool(stored.sound and readable_log and stored.offset > self.log_start)
        link = SnapshotLink(
            stored.file, stored.offset, self.base, len(stored.entries.producer_id), stored.sound, comparable
        )
        self.links.append(link)
        self.undated.append(link)
        if not stored.sound:
            return
        snapshot = IndexedSnapshot(stored.entries)
        if comparable:
            self._differences(link, replay, snapshot)
        self.carried, self.base = snapshot, stored.offset
        self.doubted = {d.producer_id for d in link.differences if d.name == "open"}

    def finish(self, replay: Replay, readable_log: bool, log_end: int) -> None:
        """Compare what is left at the log's end; a snapshot beyond it says nothing about this log."""
        while self.waiting:
            self.compare(replay, readable_log and self.waiting[0].offset <= log_end)
        self._see_who_went_on(replay)

    def date(self, batches: np.ndarray, broker_times: bool) -> None:
        """Date the snapshots compared so far by the first broker-written time in the batches behind them.

        ``broker_times``: every time of this topic is one. The broker took the snapshots no later than that.
        """
        if not self.undated or not len(batches):
            return
        self.goes_on(int(batches["max_timestamp"][0]))
        time = int(first_broker_time(batches, broker_times))
        if time >= 0:
            for link in self.undated:
                link.time = time
            self.undated.clear()

    def goes_on(self, time: int) -> None:
        """Set the time of the batch behind the snapshots compared so far, whoever wrote it, ms."""
        for link in self.undated:
            if link.next_time < 0:
                link.next_time = time

    def _see_who_went_on(self, replay: Replay) -> None:
        """Note which producers that a snapshot lacked have written since, in their old epoch."""
        for pid, (link, epoch, last) in list(self.forgotten.items()):
            o = replay.live[model.find(replay.producers, pid)]
            if o["data_last_offset"] > last:
                del self.forgotten[pid]
                if o["data_epoch"] == epoch:
                    link.went_on[pid] = int(o["data_last_offset"])

    def _differences(self, link: SnapshotLink, replay: Replay, snapshot: IndexedSnapshot) -> None:
        rows = np.flatnonzero((column(replay, "batches") > 0) | (column(replay, "markers") > 0))
        ids = column(replay, "producer_id")[rows]
        entry_rows = snapshot.rows(ids)
        differences = Differences()
        both = _Both(replay, rows, snapshot, entry_rows).where(entry_rows >= 0)
        self._absent(differences, replay, rows[entry_rows < 0])
        self._unequal(link, differences, both)
        differences.report(link, replay)
        if not self.compacted:
            self._expiry(link, both, rows[entry_rows < 0])
            self._extra(link, snapshot, ids)

    def _extra(self, link: SnapshotLink, snapshot: IndexedSnapshot, ids: np.ndarray) -> None:
        """Producers of the snapshot that the log does not show, with batches that it should."""
        rows = np.sort(snapshot.rows(np.setdiff1d(snapshot.ids, ids)))
        last_offsets = snapshot.column("last_offset", rows)
        rows, last_offsets = rows[last_offsets >= self.log_start], last_offsets[last_offsets >= self.log_start]
        room = MAX_DIFFERENCES - len(link.differences)
        for row, last in zip(rows[:room].tolist(), last_offsets[:room].tolist(), strict=True):
            link.differences.append(Difference(int(snapshot.entries.producer_id[row]), "extra", last, -1, last))
        link.extra_differences += max(0, len(rows) - room)

    def _absent(self, differences: Differences, replay: Replay, rows: np.ndarray) -> None:
        """Producers that the snapshot lacks: they may have expired, unless a transaction is open."""
        ours = column(replay, OPEN)[rows]
        is_open = ours >= self.log_start
        differences.add("open", rows[is_open], -1, ours[is_open])
        if not self.compacted:
            differences.add("missing", rows[~is_open], -1, column(replay, "last_timestamp")[rows[~is_open]])

    def _expiry(self, link: SnapshotLink, both: _Both, gone: np.ndarray) -> None:
        """Find the missing producers that cannot have expired: a check removes all that were idle as long.

        Unless they wrote later. Cost: a sort of the snapshot, once something is missing.
        """
        replay, snapshot = both.replay, both.snapshot
        missing = {pid for pid, name, *_ in link.differences if name == "missing"}
        if not missing:
            return
        for pid in missing:
            o = replay.live[model.find(replay.producers, pid)]
            if o["batches"] > 0:
                self.forgotten[pid] = (link, int(o["data_epoch"]), int(o["data_last_offset"]))
        written = np.maximum(column(replay, "data_last_offset"), column(replay, "marker_offset"))
        last_write = snapshot.entries.last_offset.astype(np.int64)
        np.maximum.at(last_write, both.entry_rows, written[both.rows])
        sure = np.flatnonzero((snapshot.entries.current_txn_first_offset < 0) & (last_write >= 0))
        order = sure[np.argsort(last_write[sure], kind="stable")]
        idle_longest = np.minimum.accumulate(snapshot.entries.last_timestamp[order])
        gone = gone[np.isin(column(replay, "producer_id")[gone], list(missing))]
        before = np.searchsorted(last_write[order], written[gone]) - 1
        stamps = [column(replay, name)[gone] for name in ("last_timestamp", "data_timestamp")]
        stamp = np.where(stamps[1] >= 0, np.minimum(*stamps), stamps[0])
        proved = (before >= 0) & (idle_longest[np.maximum(before, 0)] <= stamp) if len(order) else before > before
        link.unexpired = frozenset(column(replay, "producer_id")[gone[proved]].tolist())

    def _unequal(self, link: SnapshotLink, differences: Differences, both: _Both) -> None:
        """Compare producers that both have."""
        both = both.where(~self._carried_over(both))
        ours, theirs = both.ours(OPEN), both.theirs(OPEN)
        if self.compacted:
            # The cleaner removes aborted data with all that it says, and the head of any transaction, but no marker
            # before the data that it closes: what is still stored may lag behind the snapshot, never be ahead of it.
            both.add(differences, "producer_epoch", both.theirs("producer_epoch") < both.ours("producer_epoch"))
            wrong = (ours >= self.log_start) & ~((theirs >= 0) & (theirs <= ours))
        else:
            at_marker = self._at_marker(link, differences, both)
            for name in FIELDS:
                some = both.where(~at_marker) if name in ("last_offset", "offset_delta") else both
                some.add(differences, name, self._is_unequal(some, name))
            wrong = self._another_transaction(both, ours, theirs)
        both.add(differences, OPEN, wrong, "open")

    def _another_transaction(self, both: _Both, ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
        """Whether the snapshot's open transaction (``theirs``: first offsets) is not the log's (``ours``).

        Retention may have removed the head of one and the same: the snapshot has it from below the log start, the log
        from its first batch above, unless a marker is between, or the snapshot before this one denies it.
        """
        ids, marker = both.ours("producer_id"), both.ours("marker_offset")
        headless = (theirs >= 0) & (theirs < self.log_start) & (marker <= theirs)
        if self.carried is not None:
            before, carried_open = self.carried.rows(ids), np.full(len(ids), -1)
            carried_open[before >= 0] = self.carried.column(OPEN, before[before >= 0])
            headless &= (theirs >= self.base) | (carried_open == theirs) | np.isin(ids, list(self.doubted))
        shown = (np.maximum(ours, theirs) >= self.log_start) | ((theirs >= 0) & (marker > theirs))
        wrong: np.ndarray = (ours != theirs) & shown & ~headless
        return wrong

    def _at_marker(self, link: SnapshotLink, differences: Differences, both: _Both) -> np.ndarray:
        """Which producers are stored with the offset of their end marker, as 0.11 does, and not with that of data."""
        marker, ours, theirs = both.ours("marker_offset"), both.ours("last_offset"), both.theirs("last_offset")
        ended = (marker >= 0) & (marker > np.maximum(ours, both.ours("data_last_offset")))
        at_marker: np.ndarray = ended & (theirs == marker) & (both.theirs("offset_delta") == 0)
        link.by_data += int(np.count_nonzero(ended & (theirs == ours)))
        both.add(differences, "last_offset", at_marker, "marker_offset")
        return at_marker

    def _is_unequal(self, both: _Both, name: str) -> np.ndarray:
        wrong: np.ndarray = both.ours(name) != both.theirs(name)
        if name == "coordinator_epoch":
            wrong &= both.ours("markers") > 0
        elif name != "producer_epoch":  # of the last batch, which the log shows only if it has it
            wrong &= np.maximum(both.ours("last_offset"), both.theirs("last_offset")) >= self.log_start
        return wrong

    def _carried_over(self, both: _Both) -> np.ndarray:
        """Whether the snapshot repeats the one before for a producer that wrote nothing in between."""
        if self.carried is None:
            return np.zeros(len(both.rows), np.bool_)
        active = np.maximum(both.ours("data_last_offset"), both.ours("marker_offset")) >= self.base
        before = self.carried.rows(both.ours("producer_id"))
        same = (before >= 0) & ~active
        for name in (*FIELDS, OPEN):
            same[same] = self.carried.column(name, before[same]) == both.where(same).theirs(name)
        return same
