"""Whether a coordinator's log may have been copied before a transaction ended that it still has as open or decided.

The files of a running cluster are copied one after another. What the last record of an id says was so when its log was
copied; whether it still is shows where the transaction has its data.
"""

from __future__ import annotations

from auditor.facts.coordinator_log import Entry
from auditor.rules.coordinator_history import CoordinatorHistory
from auditor.rules.finding import iso
from auditor.rules.named import DECIDING, SKEW_MS
from auditor.rules.view import Bounds, Cluster, OpenHere
from auditor.rules.windows import SAME_CLOCK_MS


def still_open(cluster: Cluster, entry: Entry) -> dict[str, OpenHere]:
    """The partitions of an id's transaction in which it is open, by name, as far as they are in the input."""
    begin = entry.start if entry.start >= 0 else entry.time
    raised = 2 if entry.state in DECIDING else 0
    found = cluster.open_here.get(entry.producer_id, {})
    mine = {name: found[name] for name in sorted(entry.partitions) if name in found}
    return {
        name: here
        for name, here in mine.items()
        if 0 <= entry.producer_epoch - here.epoch <= raised and here.ended_before <= begin + SKEW_MS
    }


def unsure(cluster: Cluster, entry: Entry, due: int) -> str | None:
    """Why the transaction may have ended by ``due`` (ms), None where nothing suggests that.

    A marker that came behind the record shows it, unless a partition where the transaction is open was copied later
    than that. Else it is known by what was copied behind ``due``: the coordinator's own log, and those in which it is
    open. Where they end before and others do not, they may have been copied before; no copying takes longer than the
    margin that rules on age leave.
    """
    history = cluster.coordinator
    if history is None:
        return None
    opened = still_open(cluster, entry)
    time = _ended(cluster, history, entry)
    if time is not None and all(_copied(cluster, name) <= time + SKEW_MS for name in opened):
        return f"its coordinator's log was copied before the marker of {iso(time)} was decided"
    if history.clean.get(entry.partition, False) or cluster.as_of - entry.time > cluster.margin(entry.timeout_ms):
        return None
    seen = max(history.times.get(entry.partition, -1), *(_copied(cluster, name) for name in opened), -1)
    if seen >= due:
        return None
    if entry.state in DECIDING and not opened and _all_ended(cluster, entry):
        return "all its partitions have taken their markers, and its coordinator's log ends before them"
    if not _others_newer(cluster, seen, history.brokers.get(entry.partition)):
        return None
    return f"other logs of the input are newer than its coordinator's, which ends at {iso(seen)}"


def _others_newer(cluster: Cluster, seen: int, broker: int | None) -> bool:
    """Whether some log has what was written behind ``seen`` (ms), by more than the clocks of two brokers differ."""
    for bounds in cluster.bounds.values():
        same = broker is not None and bounds.broker_id == broker
        if min(bounds.copy_time, cluster.newest_time) > seen + (SAME_CLOCK_MS if same else SKEW_MS):
            return True
    return False


def _ended(cluster: Cluster, history: CoordinatorHistory, entry: Entry) -> int | None:
    """When (ms) a marker was written that its coordinator can only have decided behind this record, if there is one.

    One with a higher epoch, or one that comes after all that the coordinator had decided by then. An open transaction
    is ended by the first marker behind its record, a decided one by its own, so that only a second one is of a later.
    """
    coordinator = history.brokers.get(entry.partition)
    for broker, epoch, time, before in cluster.ended.get(entry.producer_id, ()):
        same = broker is not None and broker == coordinator
        later = before if entry.state in DECIDING else time
        if epoch > entry.producer_epoch or later > entry.time + (SAME_CLOCK_MS if same else SKEW_MS):
            return time
    return None


def _all_ended(cluster: Cluster, entry: Entry) -> bool:
    """Whether every partition of a decided transaction is in the input, and a marker came behind the decision."""
    there = all(_bounds(cluster, name) is not None for name in entry.partitions)
    marked = any(time > entry.time - SKEW_MS for _, _, time, _ in cluster.ended.get(entry.producer_id, ()))
    return bool(entry.partitions) and there and marked


def _copied(cluster: Cluster, name: str) -> int:
    """The newest time (ms) in a partition's log: it was copied then or later."""
    bounds = _bounds(cluster, name)
    return -1 if bounds is None else bounds.copy_time


def _bounds(cluster: Cluster, name: str) -> Bounds | None:
    topic, _, partition = name.rpartition("-")
    return cluster.bounds.get((topic, int(partition))) if partition.isdecimal() else None
