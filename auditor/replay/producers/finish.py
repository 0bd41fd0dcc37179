"""What is left to say of a replica when its last batch was replayed."""

from __future__ import annotations

import itertools

import numpy as np

from auditor.facts.events import KNOWN_IN_SNAPSHOT, SNAPSHOT_DENIES, Kind
from auditor.facts.packed import PACK_ABOVE, PackedRows
from auditor.facts.replica_facts import (
    NO_PRODUCERS,
    NO_TRANSACTIONS,
    PRODUCER,
    TRANSACTION,
    Ahead,
    ReplicaFacts,
    blank_producers,
)
from auditor.model import producers as model
from auditor.replay.producers import first_batches
from auditor.replay.producers.producer_columns import column, rows_of_producers
from auditor.replay.producers.snapshot_chain import OPEN, Known, Stored
from auditor.replay.producers.state import Replay

AT_ONCE = 16_384  # producers that stay in the processor's cache until each of their columns is packed


def open_rows(replay: Replay) -> np.ndarray:
    """The transactions still open, by first offset."""
    if not (count := int(replay.progress["open"])):
        return NO_TRANSACTIONS
    return np.sort(replay.open[replay.queue["slot"][:count]], order="first_offset")


def sums(replay: Replay) -> dict[str, int]:
    """Volumes and offset accounting."""
    progress, used = replay.progress, int(replay.producers.meta[0])
    return {
        "batches": int(progress["batches"]),
        "records": int(progress["records"]),
        "data_offsets": int(progress["data_offsets"]),
        "marker_offsets": int(progress["marker_offsets"]),
        "hole_offsets_intact": int(progress["holes_intact"]),
        "hole_offsets_cleaned": int(progress["holes_cleaned"]),
        "unreadable_offsets": int(progress["unreadable_offsets"]),
        "producers": used,
        "cached_batches": int(replay.producers.cached[:used].sum()),
    }


def pending_ahead(replay: Replay) -> Ahead | None:
    """The batch with the largest producer time that no broker-written time follows."""
    progress = replay.progress
    if progress["ahead_time"] < 0:
        return None
    return Ahead(**{name: int(progress[f"ahead_{name}"]) for name in Ahead._fields})


def add_snapshot_knowledge(facts: ReplicaFacts, replay: Replay, stored: list[Stored]) -> None:
    """Adds to the facts what only snapshots remember: producers below the log start, and transactions left open."""
    sound = sorted((s for s in stored if s.sound), key=lambda s: s.offset)
    _deny_or_know(facts, sound)
    first_batches.judge(facts, replay, sound)
    others = _only_in_snapshots(replay, [s for s in sound if s.offset <= facts.log_end])
    below = _data_in_snapshots(replay, [s for s in sound if s.offset <= facts.log_end])
    facts.producers = _producers(replay, below, others)
    _begin_below(facts, sound)
    if sound and sound[-1].offset <= facts.log_end:
        ghosts = _ghosts(facts, replay, sound[-1])
        if ghosts:
            facts.transactions = np.concatenate([facts.transactions, *ghosts])


def _producers(replay: Replay, below: dict[str, np.ndarray], others: np.ndarray) -> np.ndarray | PackedRows:
    """The producers of the log with what snapshots say of some, and behind them ``others``. Many are packed."""
    used = int(replay.producers.meta[0])
    if not used and not len(others):
        return others
    if used + len(others) > PACK_ABOVE:
        parts = (_of_the_log(replay, below, slice(at, at + AT_ONCE)) for at in range(0, used, AT_ONCE))
        return PackedRows(PRODUCER, itertools.chain(parts, [others]))
    rows = _of_the_log(replay, below)
    return np.concatenate([rows, others]) if len(others) else rows


def _of_the_log(replay: Replay, below: dict[str, np.ndarray], wanted: slice = slice(None)) -> np.ndarray:
    """The producers of the log, or some."""
    rows = rows_of_producers(replay, wanted)
    for name, said in below.items():
        rows[name] = said[wanted]
    return rows


def _deny_or_know(facts: ReplicaFacts, sound: list[Stored]) -> None:
    """Asks the snapshots at or below each FIRST_NONZERO event whether they know its producer."""
    if not len(facts.events):
        return
    first = np.flatnonzero(facts.events["kind"] == Kind.FIRST_NONZERO)
    ids, offsets = facts.events["producer_id"][first], facts.events["base_offset"][first]
    flags, begins = np.zeros(len(first), np.int64), min(facts.segment_bases, default=0)
    for snapshot in sound:
        below = snapshot.offset <= offsets
        if snapshot.offset >= begins:  # else what came right behind it is not here
            flags[below] |= SNAPSHOT_DENIES
        flags[below & np.isin(ids, snapshot.entries.producer_id)] |= KNOWN_IN_SNAPSHOT
    facts.events["context"][first] |= np.where(flags & KNOWN_IN_SNAPSHOT, KNOWN_IN_SNAPSHOT, flags)


def _only_in_snapshots(replay: Replay, sound: list[Stored]) -> np.ndarray:
    """PRODUCER rows of those that the log does not show, as the newest snapshot that knows each has them."""
    if not sound:
        return NO_PRODUCERS
    ids = np.concatenate([np.empty(0, np.int64), *(s.entries.producer_id for s in sound)])
    unknown = np.flatnonzero(~np.isin(ids, column(replay, "producer_id")))
    if not len(unknown):
        return NO_PRODUCERS
    first = np.unique(ids[unknown], return_index=True)[1]
    last = len(unknown) - 1 - np.unique(ids[unknown][::-1], return_index=True)[1]
    rows = unknown[last[np.argsort(first, kind="stable")]]
    out = blank_producers(len(rows))
    out["producer_id"], out["below_in_snapshot"] = ids[rows], 1
    for name, below in COPIED.items():
        stored = np.concatenate([getattr(s.entries, name) for s in sound])[rows]
        out[below] = stored
        out[name if name != "current_txn_first_offset" else "txn_first_offset"] = stored
    return out


def _data_in_snapshots(replay: Replay, sound: list[Stored]) -> dict[str, np.ndarray]:
    """Columns below_* with what snapshots say of producers of which the log has markers alone; empty if none is."""
    if not sound:
        return {}
    bare = np.flatnonzero(
        (replay.live[: int(replay.producers.meta[0])]["batches"] == 0) & (column(replay, "below_batches") == 0)
    )
    out: dict[str, np.ndarray] = {}
    for snapshot in sound if len(bare) else ():
        e = snapshot.entries
        known = Known(e)
        there = known.rows(column(replay, "producer_id")[bare])
        rows, at = bare[there >= 0], there[there >= 0]
        with_data = e.last_offset[at] >= 0
        rows, at = rows[with_data], at[with_data]
        for name, below in COPIED.items():
            if len(rows) and below.startswith("below_"):
                out.setdefault(below, column(replay, below).copy())[rows] = getattr(e, name)[at]
        if len(rows):
            out.setdefault("below_in_snapshot", column(replay, "below_in_snapshot").copy())[rows] = 1
    return out


# Columns of a snapshot's entries, and where else they stand in a PRODUCER row.
COPIED = {
    "producer_epoch": "below_epoch",
    "last_sequence": "below_last_sequence",
    "last_offset": "below_last_offset",
    "last_timestamp": "below_timestamp",
    "coordinator_epoch": "coordinator_epoch",
    "current_txn_first_offset": "txn_first_offset",
}


def _begin_below(facts: ReplicaFacts, sound: list[Stored]) -> None:
    """Open transactions whose first batches are not here, though the log has them, begin where the snapshot at the
    first offset that is here says."""
    t = facts.transactions
    if facts.own_start >= facts.log_start or not len(t):
        return
    for snapshot in (s for s in sound if s.offset == facts.log_start):
        known = Known(snapshot.entries)
        rows = np.flatnonzero((t["marker_offset"] < 0) & (t["first_offset"] >= 0) & (t["prev_marker_offset"] < 0))
        there = known.rows(t["producer_id"][rows])
        rows, there = rows[there >= 0], there[there >= 0]
        first, time = known.column(OPEN, there), known.column("last_timestamp", there)
        goes_on = (first >= facts.own_start) & (first < t["first_offset"][rows])
        goes_on &= known.column("producer_epoch", there) == t["producer_epoch"][rows]
        t["first_offset"][rows[goes_on]] = first[goes_on]
        for name in ("first_timestamp", "first_time"):
            t[name][rows[goes_on]] = np.minimum(t[name][rows[goes_on]], time[goes_on])


def _ghosts(facts: ReplicaFacts, replay: Replay, newest: Stored) -> list[np.ndarray]:
    """Open transactions that only the newest snapshot remembers, with no marker behind it."""
    out = []
    e = newest.entries
    for row in np.flatnonzero(e.current_txn_first_offset >= 0):
        first, pid = int(e.current_txn_first_offset[row]), int(e.producer_id[row])
        at = int(model.find(replay.producers, pid))
        if first >= facts.log_start or (at >= 0 and _moved_on(replay, at, newest.offset)):
            continue
        t = np.zeros(1, TRANSACTION)
        for name in TRANSACTION.names or ():
            t[name] = -1
        t["producer_id"], t["producer_epoch"], t["last_epoch"] = pid, e.producer_epoch[row], e.producer_epoch[row]
        t["first_offset"], t["last_offset"] = first, e.last_offset[row]
        t["first_timestamp"] = t["first_time"] = t["last_timestamp"] = t["last_time"] = e.last_timestamp[row]
        for name in ("batches", "records", "bytes", "commit", "repeated", "risen_records"):
            t[name] = 0
        t["from_snapshot"] = 1
        out.append(t)
    return out


def _moved_on(replay: Replay, row: int, offset: int) -> bool:
    """Whether the log shows the transaction itself, or a marker of the producer behind the snapshot."""
    o = replay.live[row]
    return bool(o["open_slot"] >= 0 or (o["marked"] >= 0 and replay.marked["offset"][o["marked"]] >= offset))
