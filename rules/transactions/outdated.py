"""Whether a coordinator's log may have been copied before a transaction ended that it still has as open or decided.

The files of a running cluster are copied one after another. What the last record of an id says was so when its log was
copied; whether it still is shows where the transaction has its data.
"""

from __future__ import annotations

from auditor.facts.coordinator_log import Entry
from auditor.model.transaction_states import PREPARED
from auditor.rules.seen.cluster_view import TRANSACTION_STATE, Cluster
from auditor.rules.seen.coordinator_history import CoordinatorHistory
from auditor.rules.seen.finding import iso
from auditor.rules.seen.log_bounds import Bounds, OpenHere
from auditor.rules.seen.named import SKEW_MS
from auditor.rules.transactions.windows import SAME_CLOCK_MS

UNREADABLE = "a newer record of its id may be in a part of its coordinator's log that is damaged or could not be read"


def still_open(cluster: Cluster, entry: Entry) -> dict[str, OpenHere]:
    """The partitions of an id's transaction in which it is open, by name, as far as they are in the input."""
    begin = entry.start if entry.start >= 0 else entry.time
    raised = 2 if entry.state in PREPARED else 0
    found = cluster.open_here.get(entry.producer_id, {})
    mine = {name: found[name] for name in sorted(entry.partitions) if name in found}
    return {
        name: here
        for name, here in mine.items()
        if 0 <= entry.producer_epoch - here.epoch <= raised and here.ended_before <= begin + SKEW_MS
    }


def ended(cluster: Cluster, entry: Entry) -> str | None:
    """How it shows that the transaction ended after its coordinator's log was copied, None where nothing shows that.

    A marker came behind the record, and no partition where the transaction is open was copied later than that.
    """
    history = cluster.coordinator
    if history is not None and history.may_be_outdated(entry):
        return UNREADABLE
    if history is None or _of_one_moment(cluster, entry):
        return None
    opened = still_open(cluster, entry)
    time = _ended(cluster, history, entry)
    if time is not None and all(_copied(cluster, name) <= time + SKEW_MS for name in opened):
        return f"its coordinator's log was copied before the marker of {iso(time)} was decided"
    if entry.state in PREPARED and not opened and _all_ended(cluster, entry):
        return "all its partitions have taken their markers, and its coordinator's log ends before them"
    return None


def never_begun(cluster: Cluster, entry: Entry) -> str | None:
    """Why an open transaction may never have begun, None where it did or where nobody can tell.

    The append of the record that began it may have failed: then no partition has data or a marker of it, all of which
    have to be in the input, as they were after that record.
    """
    alone = entry.state == "Ongoing" and 0 <= entry.start == entry.last_update
    marked = any(time > entry.start - SKEW_MS for _, _, time, _ in cluster.ended.get(entry.producer_id, ()))
    if not alone or marked or not entry.partitions or still_open(cluster, entry):
        return None
    for name in entry.partitions:
        bounds = _bounds(cluster, name)
        if bounds is None or not bounds.open_known or not (bounds.clean_shutdown or bounds.copy_time > entry.time):
            return None
    return "no partition has data of it, and the append of its record may have failed"


def unsure(cluster: Cluster, entry: Entry, due: int) -> str | None:
    """Why the transaction may have ended by ``due`` (ms), None where nothing suggests that.

    Besides :func:`ended`: it is known by what holds all that was written until ``due``, the coordinator's own log, and
    those in which it is open. Where they end before and others go on, they may have been copied before.
    """
    history = cluster.coordinator
    if history is not None and history.may_be_outdated(entry):
        return UNREADABLE
    if history is None or _of_one_moment(cluster, entry):
        return None
    if (how := ended(cluster, entry)) is not None:
        return how
    names = (_log_of(entry), *still_open(cluster, entry))
    seen = max(_whole_until(cluster, name) for name in names)
    if seen >= due:
        return None
    if (time := history.outdated.get(entry.partition)) is not None:
        return f"its coordinator's log was copied before the marker of another one, of {iso(time)}, was decided"
    others_go_on = cluster.newest_time >= due - SKEW_MS
    if not others_go_on or not _others_newer(cluster, seen, history.brokers.get(entry.partition)):
        return None
    return f"other logs of the input are newer than its coordinator's, which ends at {iso(seen)}"


def _log_of(entry: Entry) -> str:
    return f"{TRANSACTION_STATE}-{entry.partition}"


def _of_one_moment(cluster: Cluster, entry: Entry) -> bool:
    """Whether the coordinator's log is of the same moment as all that is beside it."""
    bounds = _bounds(cluster, _log_of(entry))
    return cluster.at_once or (bounds is not None and bounds.clean_shutdown)


def _others_newer(cluster: Cluster, seen: int, broker: int | None) -> bool:
    """Whether some log has what was written behind ``seen`` (ms), by more than the clocks of two brokers differ."""
    for bounds in cluster.bounds.values():
        same = broker is not None and bounds.broker_id == broker
        if min(bounds.copy_time, cluster.newest_time) > seen + (SAME_CLOCK_MS if same else SKEW_MS):
            return True
    return False


def _ended(cluster: Cluster, history: CoordinatorHistory, entry: Entry) -> int | None:
    """When (ms) a marker was written behind the end of its coordinator's log that can only be of what was decided
    after this record, if there is one.

    One with a higher epoch, or a newer one than all that was decided by then: an open transaction is ended by the first
    marker behind its record; of a decided one, which has its own, the one before it was then newer than its beginning.
    """
    coordinator, copied = history.brokers.get(entry.partition), _copied(cluster, _log_of(entry))
    for broker, epoch, time, before in cluster.ended.get(entry.producer_id, ()):
        apart = SAME_CLOCK_MS if broker is not None and broker == coordinator else SKEW_MS
        second = 0 <= entry.start < before - apart
        newer = second if entry.state in PREPARED else time > entry.time + apart
        if (epoch > entry.producer_epoch or newer) and copied <= time + apart:
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


def _whole_until(cluster: Cluster, name: str) -> int:
    """The time (ms) until which a log holds all that was written."""
    bounds = _bounds(cluster, name)
    if bounds is None:
        return -1
    return cluster.newest_time if cluster.at_once else max(bounds.copy_time, bounds.moment, _passed(cluster, name))


def _passed(cluster: Cluster, name: str) -> int:
    topic, _, partition = name.rpartition("-")
    return cluster.passed(topic, int(partition)) if partition.isdecimal() else -1


def _bounds(cluster: Cluster, name: str) -> Bounds | None:
    topic, _, partition = name.rpartition("-")
    return cluster.bounds.get((topic, int(partition))) if partition.isdecimal() else None
