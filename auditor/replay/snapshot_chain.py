"""Producer snapshots held against the replay: the links of the chain proof.

A snapshot at N must be what replaying the log up to N gives, plus what was known from before the log start, minus
producers that had expired (semantics 1.14). What a snapshot merely carries over from the one before is not its fault.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from auditor.connectors.codec.snapshot import ProducerEntries
from auditor.facts.snapshot_links import Difference, SnapshotLink
from auditor.replay.producer_columns import column
from auditor.replay.state import Replay

MAX_DIFFERENCES = 200
OPEN = "txn_first_offset"
FIELDS = ("producer_epoch", "last_sequence", "last_offset", "offset_delta", "coordinator_epoch")


class Stored(NamedTuple):
    """A snapshot file as decoded. ``sound``: no error came up."""

    file: str
    offset: int
    entries: ProducerEntries
    sound: bool


class Differences:
    """What two accounts of the same producers disagree on, in columns: there may be a million of each."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.parts: list[np.ndarray] = []

    def add(self, name: str, rows: np.ndarray, stored: np.ndarray | int, ours: np.ndarray | int) -> None:
        """The field ``name`` of the producers in these rows of the replay is ``stored`` there and ``ours`` here."""
        if len(rows):
            values = np.broadcast_arrays(rows, len(self.names), stored, ours)
            self.parts.append(np.array(values, np.int64))
            self.names.append(name)

    def report(self, link: SnapshotLink, replay: Replay) -> None:
        """Adds them to a link, producer by producer, up to the number that it holds."""
        if not self.parts:
            return
        rows, names, stored, ours = np.concatenate(self.parts, axis=1)
        order = np.lexsort((names, rows))[:MAX_DIFFERENCES]
        link.extra_differences += len(rows) - len(order)
        last_offsets = column(replay, "last_offset")
        for k in order.tolist():
            row, pid = rows[k], int(replay.producers.producer_id[rows[k]])
            found = Difference(pid, self.names[names[k]], int(stored[k]), int(ours[k]), int(last_offsets[row]))
            link.differences.append(found)


class Known:
    """A decoded snapshot that producers can be looked up in; of several entries for one producer the last counts."""

    def __init__(self, entries: ProducerEntries) -> None:
        self.entries = entries
        self.order = np.argsort(entries.producer_id, kind="stable")
        self.ids = entries.producer_id[self.order]

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """The row of each producer id, -1 where it is not there."""
        if not len(self.ids):
            return np.full(len(ids), -1)
        at = np.maximum(np.searchsorted(self.ids, ids, side="right") - 1, 0)
        return np.where(self.ids[at] == ids, self.order[at], -1)

    def column(self, name: str, rows: np.ndarray) -> np.ndarray:
        """What it stores in those rows, under the names of PRODUCER columns."""
        stored: np.ndarray = getattr(self.entries, "current_" + name if name == OPEN else name)
        return stored[rows].astype(np.int64)


class Chain:
    """Compares the snapshots of one copy, in order of their offsets, with its replay as it passes them."""

    def __init__(self, stored: list[Stored], log_start: int, compacted: bool) -> None:
        self.waiting = sorted(stored, key=lambda s: s.offset)
        self.log_start = log_start
        self.compacted = compacted
        self.links: list[SnapshotLink] = []
        self.carried: Known | None = None
        self.base = log_start

    def next_offset(self) -> int:
        """The offset of the snapshot to compare next; beyond all offsets when there is none."""
        return self.waiting[0].offset if self.waiting else 1 << 62

    def compare(self, replay: Replay, readable_log: bool, time: int) -> None:
        """Holds the next snapshot against the replay, which stands right before its offset.

        ``readable_log``: nothing unreadable came before; ``time``: of the first batch behind it, -1 if there is none.
        """
        stored = self.waiting.pop(0)
        comparable = stored.sound and readable_log and stored.offset > self.log_start
        link = SnapshotLink(
            stored.file, stored.offset, self.base, len(stored.entries.producer_id), stored.sound, comparable, time=time
        )
        self.links.append(link)
        if not stored.sound:
            return
        known = Known(stored.entries)
        if comparable:
            self._differences(link, replay, known)
        self.carried, self.base = known, stored.offset

    def finish(self, replay: Replay, readable_log: bool, log_end: int) -> None:
        """Compares what is left at the log's end; a snapshot beyond it says nothing about this log."""
        while self.waiting:
            self.compare(replay, readable_log and self.waiting[0].offset <= log_end, -1)

    def _differences(self, link: SnapshotLink, replay: Replay, known: Known) -> None:
        seen = np.flatnonzero((column(replay, "batches") > 0) | (column(replay, "markers") > 0))
        ids = column(replay, "producer_id")[seen]
        there = known.rows(ids)
        found = Differences()
        self._absent(found, replay, seen[there < 0])
        self._unequal(found, replay, seen[there >= 0], known, there[there >= 0])
        found.report(link, replay)
        if not self.compacted:
            self._extra(link, known, ids)

    def _extra(self, link: SnapshotLink, known: Known, ids: np.ndarray) -> None:
        """The snapshot has producers that the log does not show, with batches that it should."""
        rows = np.sort(known.rows(np.setdiff1d(known.ids, ids)))
        last_offsets = known.column("last_offset", rows)
        rows, last_offsets = rows[last_offsets >= self.log_start], last_offsets[last_offsets >= self.log_start]
        room = MAX_DIFFERENCES - len(link.differences)
        for row, last in zip(rows[:room].tolist(), last_offsets[:room].tolist(), strict=True):
            link.differences.append(Difference(int(known.entries.producer_id[row]), "extra", last, -1, last))
        link.extra_differences += max(0, len(rows) - room)

    def _absent(self, found: Differences, replay: Replay, rows: np.ndarray) -> None:
        """The replay has a producer that the snapshot does not: it may have expired, unless a transaction is open."""
        ours = column(replay, OPEN)[rows]
        is_open = ours >= self.log_start
        found.add("open", rows[is_open], -1, ours[is_open])
        if not self.compacted:
            found.add("missing", rows[~is_open], -1, column(replay, "last_timestamp")[rows[~is_open]])

    def _unequal(self, found: Differences, replay: Replay, rows: np.ndarray, known: Known, there: np.ndarray) -> None:
        """Both have the producers; ``there`` are their rows in the snapshot."""
        moved = ~self._carried_over(replay, rows, known, there)
        rows, there = rows[moved], there[moved]
        ours, theirs = column(replay, OPEN)[rows], known.column(OPEN, there)
        if self.compacted:
            self._unequal_cleaned(found, replay, rows, known, there)
            wrong = (ours >= self.log_start) & ~((theirs >= 0) & (theirs <= ours))
        else:
            for name in FIELDS:
                self._unequal_field(found, replay, name, rows, known, there)
            wrong = (ours != theirs) & (np.maximum(ours, theirs) >= self.log_start)
        found.add("open", rows[wrong], theirs[wrong], ours[wrong])

    def _unequal_field(
        self, found: Differences, replay: Replay, name: str, rows: np.ndarray, known: Known, there: np.ndarray
    ) -> None:
        ours, theirs = column(replay, name)[rows], known.column(name, there)
        wrong = ours != theirs
        if name == "coordinator_epoch":
            wrong &= column(replay, "markers")[rows] > 0
        elif name != "producer_epoch":  # of the last batch, which the log shows only if it lies in it
            last = np.maximum(column(replay, "last_offset")[rows], known.column("last_offset", there))
            wrong &= last >= self.log_start
        found.add(name, rows[wrong], theirs[wrong], ours[wrong])

    def _unequal_cleaned(
        self, found: Differences, replay: Replay, rows: np.ndarray, known: Known, there: np.ndarray
    ) -> None:
        """The cleaner takes aborted data with all that it says, and the head of any transaction, but no marker before
        the data that it closes: what is still stored may lag behind the snapshot, and never be ahead of it."""
        ours, theirs = column(replay, "producer_epoch")[rows], known.column("producer_epoch", there)
        found.add("producer_epoch", rows[theirs < ours], theirs[theirs < ours], ours[theirs < ours])

    def _carried_over(self, replay: Replay, rows: np.ndarray, known: Known, there: np.ndarray) -> np.ndarray:
        """Whether the snapshot says of a producer what the one before said, and it wrote nothing in between."""
        if self.carried is None:
            return np.zeros(len(rows), np.bool_)
        active = np.maximum(column(replay, "data_last_offset"), column(replay, "marker_offset"))[rows] >= self.base
        before = self.carried.rows(column(replay, "producer_id")[rows])
        same = (before >= 0) & ~active
        for name in (*FIELDS, OPEN):
            same[same] = self.carried.column(name, before[same]) == known.column(name, there[same])
        return same
