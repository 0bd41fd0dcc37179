"""Producer snapshots held against the replay: the links of the chain proof.

A snapshot at N must be what replaying the log up to N gives, plus what was known from before the log start, minus
producers that had expired (semantics 1.14). What a snapshot merely carries over from the one before is not its fault.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from auditor.facts import SnapshotLink
from auditor.model import producers as model
from auditor.replay.state import Replay
from connectors.codec.snapshot import ProducerEntries

MAX_DIFFERENCES = 200
FIELDS = ("producer_epoch", "last_sequence", "last_offset", "offset_delta", "coordinator_epoch")


class Stored(NamedTuple):
    """A snapshot file as decoded. ``sound``: no error came up."""

    file: str
    offset: int
    entries: ProducerEntries
    sound: bool


class Entry(NamedTuple):
    """What a snapshot stores of one producer, but for its time."""

    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    coordinator_epoch: int
    txn_first_offset: int


def entry(entries: ProducerEntries, row: int) -> Entry:
    """One row of a decoded snapshot."""
    return Entry(
        int(entries.producer_epoch[row]),
        int(entries.last_sequence[row]),
        int(entries.last_offset[row]),
        int(entries.offset_delta[row]),
        int(entries.coordinator_epoch[row]),
        int(entries.current_txn_first_offset[row]),
    )


def replayed(replay: Replay, row: int) -> Entry:
    """The same of a producer as the replay has it now."""
    p = replay.producers
    last = model.newest_sequence(p, row)
    known = p.cached[row] > 0
    delta = int(p.offset_delta[row, p.newest[row]]) if known else 0
    return Entry(
        int(p.epoch[row]),
        int(last),
        int(model.newest_offset(p, row)),
        delta,
        int(p.coordinator_epoch[row]),
        int(p.txn_first_offset[row]),
    )


class Chain:
    """Compares the snapshots of one copy, in order of their offsets, with its replay as it passes them."""

    def __init__(self, stored: list[Stored], log_start: int, compacted: bool) -> None:
        self.waiting = sorted(stored, key=lambda s: s.offset)
        self.log_start = log_start
        self.compacted = compacted
        self.links: list[SnapshotLink] = []
        self.carried: dict[int, Entry] = {}
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
        known = {int(pid): entry(stored.entries, row) for row, pid in enumerate(stored.entries.producer_id)}
        if comparable:
            self._differences(link, replay, known)
        self.carried, self.base = known, stored.offset

    def finish(self, replay: Replay, readable_log: bool, log_end: int) -> None:
        """Compares what is left at the log's end; a snapshot beyond it says nothing about this log."""
        while self.waiting:
            self.compare(replay, readable_log and self.waiting[0].offset <= log_end, -1)

    def _differences(self, link: SnapshotLink, replay: Replay, known: dict[int, Entry]) -> None:
        audit = replay.audit[: int(replay.producers.meta[0])]
        seen = np.flatnonzero((audit["batches"] > 0) | (audit["markers"] > 0))
        for row in seen:
            pid = int(audit["producer_id"][row])
            ours = replayed(replay, int(row))
            theirs = known.get(pid)
            if theirs is None:
                self._absent(link, replay, int(row), ours)
            else:
                self._unequal(link, pid, theirs, ours, audit[row])
        replay_ids = set(audit["producer_id"][seen].tolist())
        for pid, theirs in known.items():
            if pid not in replay_ids and theirs.last_offset >= self.log_start and not self.compacted:
                self._add(link, pid, "extra", theirs.last_offset, -1, theirs.last_offset)

    def _absent(self, link: SnapshotLink, replay: Replay, row: int, ours: Entry) -> None:
        """The replay has a producer that the snapshot does not: it may have expired, unless a transaction is open."""
        if ours.txn_first_offset >= self.log_start:
            self._add(link, int(replay.producers.producer_id[row]), "open", -1, ours.txn_first_offset, ours.last_offset)
        elif not self.compacted:
            last_time = int(replay.producers.last_timestamp[row])
            self._add(link, int(replay.producers.producer_id[row]), "missing", -1, last_time, ours.last_offset)

    def _unequal(self, link: SnapshotLink, pid: int, theirs: Entry, ours: Entry, audit: np.void) -> None:
        carried = self.carried.get(pid)
        active = max(int(audit["data_last_offset"]), int(audit["marker_offset"])) >= self.base
        if carried == theirs and not active:
            return
        if self.compacted:
            self._unequal_cleaned(link, pid, theirs, ours)
            return
        fields = ["producer_epoch"]
        data_lies_here = ours.last_offset >= self.log_start or theirs.last_offset >= self.log_start
        fields += ["last_sequence", "last_offset", "offset_delta"] if data_lies_here else []
        fields += ["coordinator_epoch"] if audit["markers"] > 0 else []
        for name in fields:
            if getattr(theirs, name) != getattr(ours, name):
                self._add(link, pid, name, getattr(theirs, name), getattr(ours, name), ours.last_offset)
        ours_open, theirs_open = ours.txn_first_offset, theirs.txn_first_offset
        if ours_open != theirs_open and max(ours_open, theirs_open) >= self.log_start:
            self._add(link, pid, "open", theirs_open, ours_open, ours.last_offset)

    def _unequal_cleaned(self, link: SnapshotLink, pid: int, theirs: Entry, ours: Entry) -> None:
        """The cleaner takes aborted data with all that it says, and the head of any transaction, but no marker before
        the data that it closes: what is still stored may lag behind the snapshot, and never be ahead of it."""
        if theirs.producer_epoch < ours.producer_epoch:
            self._add(link, pid, "producer_epoch", theirs.producer_epoch, ours.producer_epoch, ours.last_offset)
        if ours.txn_first_offset >= self.log_start and not 0 <= theirs.txn_first_offset <= ours.txn_first_offset:
            self._add(link, pid, "open", theirs.txn_first_offset, ours.txn_first_offset, ours.last_offset)

    def _add(self, link: SnapshotLink, pid: int, name: str, stored: int, ours: int, last_offset: int) -> None:
        if len(link.differences) < MAX_DIFFERENCES:
            link.differences.append((pid, name, stored, ours, last_offset))
        else:
            link.extra_differences += 1
