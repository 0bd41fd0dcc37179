"""What the times at which logs were read decide of an open transaction, where a copy says them.

They are the copy's claim, and are gone by only where nothing in its logs contradicts them. Data is read first, then its
coordinator's log: so a transaction that ended in between is open in the one and over in the other.
"""

from __future__ import annotations

import numpy as np

from auditor.facts.coordinator_log import Entry
from auditor.rules.seen.cluster_view import TRANSACTION_STATE, Cluster
from auditor.rules.seen.log_bounds import Read
from auditor.rules.seen.named import SKEW_MS, Window
from auditor.rules.seen.view import LogView


def read_of(log: LogView) -> Read | None:
    """When a log was read."""
    bounds = log.cluster.bounds.get((log.topic, log.partition))
    return None if bounds is None else bounds.read


def read_behind(cluster: Cluster, log: tuple[str, int], other: tuple[str, int]) -> bool:
    """Whether another log was read behind this one, as a copy of both says: it has what this one's needed."""
    first, then = (bounds.read if (bounds := cluster.bounds.get(at)) else None for at in (log, other))
    return first is not None and then is not None and first.clock == then.clock and first.done <= then.begun


def ended_behind(log: LogView, window: Window) -> bool:
    """Whether a transaction was complete no sooner than its log was read, where a copy says when that was: its marker
    may have come behind it, and that it lacks it says nothing. The next copy shows it."""
    read, end = read_of(log), window.end_time
    if read is None or end is None or window.complete is None:
        return False
    bounds = log.cluster.bounds.get((TRANSACTION_STATE, window.complete.partition))
    same = bounds is not None and bounds.read is not None and bounds.read.clock == read.clock
    return end >= read.begun + (0 if same else SKEW_MS)


def ended_since(log: LogView, row: np.void, entry: Entry, ends: list[Window], allowed_ms: int) -> bool:
    """Whether a transaction was open when its log was read, and ended behind that.

    ``entry``: the last record of its id, which has nothing of it; ``ends``: the transactions of the id, complete there,
    that it may be. That of one came behind the reading; or the cleaner has taken away what came since, of a transaction
    that is no older than its time-out (``allowed_ms``) allows.
    """
    read, bounds = read_of(log), log.cluster.bounds.get((TRANSACTION_STATE, entry.partition))
    coordinators = None if bounds is None else bounds.read
    if read is None or log.cluster.coordinator is None:
        return False
    if any(ended_behind(log, window) for window in ends):
        return True
    same = coordinators is not None and coordinators.clock == read.clock
    young = log.time(row["first_time"]) >= read.begun - allowed_ms
    return same and young and not log.cluster.coordinator.known_since(entry, read.begun)


def open_in_time(log: LogView, entry: Entry, begun: int, allowed_ms: int) -> bool:
    """Whether a transaction that its coordinator has as open, read behind the data, was open for no longer than is
    allowed when that was read. ``begun``: ms."""
    coordinators = TRANSACTION_STATE, entry.partition
    bounds = log.cluster.bounds.get(coordinators)
    read = None if bounds is None else bounds.read
    behind = read_behind(log.cluster, (log.topic, log.partition), coordinators)
    return read is not None and behind and read.begun <= begun + allowed_ms
