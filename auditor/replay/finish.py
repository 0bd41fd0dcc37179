"""What is left to say of a copy when its last batch was replayed."""

from __future__ import annotations

import numpy as np

from auditor.facts import KNOWN_IN_SNAPSHOT, PRODUCER, SNAPSHOT_DENIES, TRANSACTION, Ahead, CopyFacts, Kind
from auditor.model import producers as model
from auditor.replay import state as st
from auditor.replay.snapshots import Stored

BYTES_A_PRODUCER, BYTES_A_BATCH = 224, 40  # of a 64-bit JVM with compressed references, an estimate


def open_rows(replay: st.Replay) -> np.ndarray:
    """The transactions still open, by first offset."""
    return np.sort(replay.open[: replay.scalars[st.S_OPEN]].copy(), order="first_offset")


def sums(replay: st.Replay) -> dict[str, int]:
    """Volumes and offset accounting."""
    s = replay.scalars
    used = int(replay.producers.meta[0])
    return {
        "batches": int(s[st.S_BATCHES]),
        "records": int(s[st.S_RECORDS]),
        "data_offsets": int(s[st.S_DATA_OFFSETS]),
        "marker_offsets": int(s[st.S_MARKER_OFFSETS]),
        "hole_offsets_intact": int(s[st.S_HOLES_INTACT]),
        "hole_offsets_cleaned": int(s[st.S_HOLES_CLEANED]),
        "unreadable_offsets": int(s[st.S_UNREADABLE_OFFSETS]),
        "producers": used,
        "cached_batches": int(replay.producers.cached[:used].sum()),
    }


def pending_ahead(replay: st.Replay) -> Ahead | None:
    """The batch with the largest producer time that no broker-written time follows."""
    s = replay.scalars
    if s[st.S_AHEAD_TIME] < 0:
        return None
    columns = (st.S_AHEAD_TIME, st.S_AHEAD_PRODUCER, st.S_AHEAD_EPOCH, st.S_AHEAD_OFFSET, st.S_AHEAD_LAST,
               st.S_AHEAD_SEGMENT, st.S_AHEAD_POSITION)  # fmt: skip
    return Ahead(*(int(s[at]) for at in columns))


def producer_rows(replay: st.Replay) -> np.ndarray:
    """The producers with their states at the end of the log."""
    p, used = replay.producers, int(replay.producers.meta[0])
    rows = replay.audit[:used].copy()
    rows["producer_epoch"] = p.epoch[:used]
    rows["coordinator_epoch"] = p.coordinator_epoch[:used]
    rows["last_timestamp"] = p.last_timestamp[:used]
    rows["txn_first_offset"] = p.txn_first_offset[:used]
    known = np.flatnonzero(p.cached[:used] > 0)
    newest = p.newest[known]
    rows["last_sequence"], rows["last_offset"], rows["offset_delta"] = -1, -1, 0
    rows["last_sequence"][known] = p.last_sequence[known, newest]
    rows["last_offset"][known] = p.last_offset[known, newest]
    rows["offset_delta"][known] = p.offset_delta[known, newest]
    return rows


def add_snapshot_knowledge(facts: CopyFacts, replay: st.Replay, stored: list[Stored]) -> None:
    """Adds to the facts what only snapshots remember: producers below the log start, and transactions left open."""
    facts.producers = producer_rows(replay)
    sound = sorted((s for s in stored if s.sound), key=lambda s: s.offset)
    _deny_or_know(facts, sound)
    known = set(facts.producers["producer_id"].tolist())
    newest: dict[int, tuple[Stored, int]] = {}
    for snapshot in sound:
        if snapshot.offset <= facts.log_end:
            for row, pid in enumerate(snapshot.entries.producer_id.tolist()):
                newest[pid] = (snapshot, row)
    rows = [_only_in_snapshot(pid, *at) for pid, at in newest.items() if pid not in known]
    if rows:
        facts.producers = np.concatenate([facts.producers, *rows])
    if sound and sound[-1].offset <= facts.log_end:
        ghosts = _ghosts(facts, replay, sound[-1])
        if ghosts:
            facts.transactions = np.concatenate([facts.transactions, *ghosts])


def _deny_or_know(facts: CopyFacts, sound: list[Stored]) -> None:
    """Asks the snapshots at or below each FIRST_NONZERO event whether they know its producer."""
    for event in facts.events:
        if event["kind"] != Kind.FIRST_NONZERO:
            continue
        below = [s for s in sound if s.offset <= event["base_offset"]]
        if any(np.any(s.entries.producer_id == event["producer_id"]) for s in below):
            event["f"] |= KNOWN_IN_SNAPSHOT
        elif below:
            event["f"] |= SNAPSHOT_DENIES


def _only_in_snapshot(pid: int, snapshot: Stored, row: int) -> np.ndarray:
    out = st.blank_audit(1)
    e = snapshot.entries
    out["producer_id"], out["below_in_snapshot"] = pid, 1
    out["producer_epoch"] = out["below_epoch"] = e.producer_epoch[row]
    out["last_sequence"] = out["below_last_sequence"] = e.last_sequence[row]
    out["last_offset"] = out["below_last_offset"] = e.last_offset[row]
    out["last_timestamp"] = out["below_timestamp"] = e.last_timestamp[row]
    out["coordinator_epoch"] = e.coordinator_epoch[row]
    out["txn_first_offset"] = e.current_txn_first_offset[row]
    return out


def _ghosts(facts: CopyFacts, replay: st.Replay, newest: Stored) -> list[np.ndarray]:
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
        for name in ("batches", "records", "bytes", "commit", "repeat"):
            t[name] = 0
        t["from_snapshot"] = 1
        out.append(t)
    return out


def _moved_on(replay: st.Replay, row: int, offset: int) -> bool:
    """Whether the log shows the transaction itself, or a marker of the producer behind the snapshot."""
    audit = replay.audit[row]
    return bool(audit["open_slot"] >= 0 or audit["marker_offset"] >= offset)


__all__ = ["PRODUCER", "add_snapshot_knowledge", "open_rows", "pending_ahead", "sums"]
