"""Which transaction of a coordinator a marker or a stretch of data in a partition belongs to."""

from __future__ import annotations

import numpy as np

from rules.history import SKEW_MS, CoordinatorHistory, Entry, Window
from rules.view import LogView

SAME_CLOCK_MS = 1_000  # two reads of one broker's clock, and a marker's way through its queues


def skew(log: LogView, partition: int | None) -> int:
    """How far the clocks of a coordinator partition's broker and of this log's leader copy may be apart, in ms."""
    history = log.cluster.coordinator
    broker = None if history is None or partition is None else history.brokers.get(partition)
    same = broker is not None and broker == log.leader.broker_id
    return SAME_CLOCK_MS if same else SKEW_MS


def owner_complete(log: LogView, producer_id: int) -> bool:
    """Whether the whole history of the id that has this producer id, or of all ids if none has it, is in the input."""
    history = log.cluster.coordinator
    if history is None:
        return False
    owner = history.owner(int(producer_id))
    return history.complete_for_all() if owner is None else history.complete(owner)


def marker_fits(window: Window, t: np.void, slack: int) -> bool:
    """Whether a marker can be one of this window's: by epoch, result and the time between decision and completion."""
    decision = window.decided
    if decision is None or bool(t["commit"]) != decision.commit:
        return False
    return _epoch_fits(window, t) and _decided_at(window, t, slack)


def _epoch_fits(window: Window, t: np.void) -> bool:
    decision = window.prepare
    if decision is None:
        return True
    return bool(t["marker_epoch"] == decision.producer_epoch)


def _decided_at(window: Window, t: np.void, slack: int) -> bool:
    begin = window.prepare.time if window.prepare is not None else window.start_time
    end = window.end_time
    stamp = int(t["marker_timestamp"])
    return begin - slack <= stamp and (end is None or stamp <= end + slack)


def contradicting_window(log: LogView, t: np.void) -> Window | None:
    """A window that names the partition and whose decision the marker denies while falling right into its time."""
    history = log.cluster.coordinator
    if history is None:
        return None
    for window in history.windows(int(t["producer_id"])):
        prepare = window.prepare
        if prepare is None or prepare.commit == bool(t["commit"]) or log.name not in window.partitions:
            continue
        slack = skew(log, prepare.partition)
        if _epoch_fits(window, t) and (window.client_version >= 2 or _decided_at(window, t, slack)):
            return window
    return None


def marker_window(log: LogView, t: np.void) -> Window | None:
    """The window that sent this marker, None where none fits."""
    history = log.cluster.coordinator
    if history is None:
        return None
    fitting = [
        w
        for w in history.windows(int(t["producer_id"]))
        if w.decided is not None and marker_fits(w, t, skew(log, w.decided.partition))
    ]
    naming = [w for w in fitting if log.name in w.partitions]
    chosen = naming or fitting
    return min(chosen, key=lambda w: abs(_middle(w) - int(t["marker_timestamp"])), default=None)


def _middle(window: Window) -> int:
    decision = window.decided
    assert decision is not None
    return decision.time


def unmarked_windows(log: LogView, history: CoordinatorHistory) -> list[Window]:
    """Complete windows that name this partition and of which no marker is found in the leader copy.

    Windows and markers are matched one to one in the order of the log, so that a neighbour's marker does not stand in
    for a missing one.
    """
    rows = log.leader.transactions
    rows = rows[rows["marker_offset"] >= 0]
    by_producer: dict[int, list[np.void]] = {}
    for row in rows:
        by_producer.setdefault(int(row["producer_id"]), []).append(row)
    out = []
    for producer_id, windows in history.windows_by_producer.items():
        markers = by_producer.get(producer_id, [])
        used = [False] * len(markers)
        for window in windows:
            if window.complete is None or window.prepare is None or log.name not in window.prepare.partitions:
                continue
            slack = skew(log, window.prepare.partition)
            at = next((k for k, t in enumerate(markers) if not used[k] and marker_fits(window, t, slack)), None)
            if at is None:
                out.append(window)
            else:
                used[at] = True
    return out


def ongoing_after(log: LogView, t: np.void, marker_time: int, data_time: int) -> Entry | None:
    """An Ongoing record that may have allowed this data after the marker at ``marker_time``.

    It names the partition, has the data's epoch, and was written between that decision (give or take the clocks) and
    the data. CreateTime stamps may be earlier than the record that allowed the batch, hence the larger slack there.
    """
    history = log.cluster.coordinator
    if history is None:
        return None
    for window in history.windows(int(t["producer_id"])):
        entry = window.added.get(log.name)
        if entry is None or entry.producer_epoch != t["producer_epoch"]:
            continue
        complete = window.end_time
        slack = skew(log, entry.partition)
        if (complete is None or complete > marker_time + slack) and entry.time <= data_time + SKEW_MS:
            return entry
    return None
