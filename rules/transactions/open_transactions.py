"""Open transactions: when their records were written, and their classes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from auditor.base.at_rest import Fields
from auditor.base.words import NO_TIMEOUT_MS, few
from auditor.evidence.cluster_clocks import BrokerTime, Held, OwnTimes
from auditor.evidence.horizons import ReadTimes, apart_ms
from auditor.facts.coordinator_history import SKEW_MS, CoordinatorHistory, TransactionWindow
from auditor.facts.coordinator_log import StateRecord
from auditor.facts.replica_facts import ReplicaFacts
from auditor.model.transaction_states import IDLE, PREPARED
from auditor.rules.lib.log_bounds import cleaned
from auditor.rules.seen.cluster_view import TRANSACTION_STATE, Cluster, LeaderBounds, OpenHere
from auditor.rules.seen.view import LogView, iso, once
from auditor.transactions.matching import (
    SAME_CLOCK_MS,
    ahead_by,
    clocks_apart,
    markers_of,
    matching,
    naming,
    owner_complete,
    skew,
    unmarked_behind,
)

# When data was written and logs were read, by broker clocks.


# Open transactions by the times at which logs were read, where a copy's manifest has them.
#
# These times only count where nothing in the logs contradicts them. Data is read before its coordinator's log, so a
# transaction that ended in between is open in the one and completed in the other.


def read_of(log: LogView) -> ReadTimes | None:
    """Return when a log was read, None where no copy says it."""
    bounds = log.cluster.bounds.get((log.topic, log.partition))
    return None if bounds is None else bounds.read


def read_behind(cluster: Cluster, log: tuple[str, int], other: tuple[str, int]) -> bool:
    """Whether another log was read after this one by the same clock: it then has the records this one needed."""
    first, then = (bounds.read if (bounds := cluster.bounds.get(place)) else None for place in (log, other))
    return first is not None and then is not None and first.clock == then.clock and first.done <= then.begun


def ended_behind(log: LogView, window: TransactionWindow) -> bool:
    """Whether a transaction completed no sooner than its log was read: its marker may have come after the copy."""
    read, end = read_of(log), window.end_time
    if read is None or end is None or window.complete is None:
        return False
    bounds = log.cluster.bounds.get((TRANSACTION_STATE, window.complete.partition))
    same = bounds is not None and bounds.read is not None and bounds.read.clock == read.clock
    return end >= read.begun + (0 if same else SKEW_MS)


def ended_since(log: LogView, row: np.void, entry: StateRecord, ends: list[TransactionWindow], allowed_ms: int) -> bool:
    """Whether a transaction was open when its log was read and ended afterwards.

    ``entry``: the last record of its id, which does not show it; ``ends``: completed transactions of the id that it may
    be. Either one of them ended after the read, or the cleaner removed the later records of a transaction that is
    within ``allowed_ms``.
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


def open_in_time(log: LogView, entry: StateRecord, begun: int, allowed_ms: int) -> bool:
    """Whether a transaction was within ``allowed_ms`` when its coordinator log was read, after the data. ``begun``:
    ms."""
    coordinators = TRANSACTION_STATE, entry.partition
    bounds = log.cluster.bounds.get(coordinators)
    read = None if bounds is None else bounds.read
    behind = read_behind(log.cluster, (log.topic, log.partition), coordinators)
    return read is not None and behind and read.begun <= begun + allowed_ms


# When data was written, by broker clocks: clients may stamp records with event times, however old.


UNBOUNDED = 1 << 62  # ms; later than any file was copied
CLIENT_MS = 250  # from a client's stamp, or the last broker's stamp before a batch, to the record that let it write


def around(log: LogView, producer_id: int, offset: int) -> tuple[int, int]:
    """Bound when data at an offset was written: earliest and latest, ms; -1: no bound.

    Markers before and after it in the leader replica carry broker times. Data is also no older than the first
    coordinator record of its producer id, and than the checkpoint below which it is not.
    """
    earliest, latest = around_each(log, np.array([producer_id]), np.array([offset]))
    return int(earliest[0]), int(latest[0])


def around_each(log: LogView, producer_ids: np.ndarray, at_offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """:func:`around` for many."""
    offsets, newest, oldest = _marker_clocks(log)
    before, behind = offsets.searchsorted(at_offsets, "left"), offsets.searchsorted(at_offsets, "right")
    ids, which = np.unique(producer_ids, return_inverse=True)
    known_from = np.array([_known_from(log, producer_id) for producer_id in ids.tolist()], np.int64)[which]
    entry, written = log.leader.high_watermark, log.cluster.checkpointed.get(log.leader.log_dir, -1)
    checkpointed = np.where(at_offsets >= entry, written, -1) if entry is not None else np.full(len(at_offsets), -1)
    earliest = np.maximum.reduce([np.append(newest, -1)[before - 1], known_from, checkpointed])
    return earliest, np.append(oldest, -1)[behind]


def written_bounds(log: LogView, replica: ReplicaFacts) -> tuple[np.ndarray, np.ndarray]:
    """:func:`around` for the first data of each transaction of a replica; -1 too where it has none."""
    rows = replica.transactions
    bounds = np.full((2, len(rows)), -1)
    data = np.flatnonzero(rows["first_offset"] >= 0)
    if not log.is_gone and replica not in log.of_another and len(data):  # the offsets of the leader replica
        bounds[:, data] = around_each(log, rows["producer_id"][data], rows["first_offset"][data])
    return bounds[0], bounds[1]


def last_seen(log: LogView, replica: ReplicaFacts) -> np.ndarray:
    """Return the earliest time each producer of a replica can have written last, by broker clocks, ms; -1: unknown."""
    rows = replica.producers
    offsets, newest, _ = _marker_clocks(log)
    before = offsets.searchsorted(rows["data_last_offset"], "left")
    return np.maximum(rows["marker_time"], np.append(newest, -1)[before - 1])


def at_the_latest(log: LogView, producer_id: int, offset: int, stamp: int) -> int:
    """Return the time (ms) after which a file must have been copied to hold what was written before this data.

    Its timestamp, unless broker times show that the data is younger: then the marker after it, or :data:`UNBOUNDED` for
    none. A timestamp up to :data:`SKEW_MS` too early may come from a slow clock, and bounds the data by that much.
    """
    earliest, latest = around(log, producer_id, offset)
    if stamp >= earliest:
        return stamp
    bound = stamp + SKEW_MS if stamp >= earliest - SKEW_MS else UNBOUNDED
    return min(bound, latest) if latest >= 0 else bound


def recorded(log: LogView, partition: int, t: np.void) -> bool:
    """Whether the coordinator file would hold the record that let a transaction write: it precedes the first batch.

    Clients stamp records before they ask the coordinator, which :data:`CLIENT_MS` allows for. A marker after the data
    bounds the record's time, however old the timestamps are. Data committed when the broker wrote its checkpoint, or
    read before the coordinator log, proves it without any clock.
    """
    own, entry = (log.topic, log.partition), log.leader.high_watermark
    if read_behind(log.cluster, own, (TRANSACTION_STATE, partition)):
        return True
    if entry is not None and t["first_offset"] < entry and log.cluster.of_one_pass(own, (TRANSACTION_STATE, partition)):
        return True  # the data was committed by then, and so was what let it be written, whatever its stamps say
    ahead = ahead_ms(log, partition)
    stamp = log.time(t["first_time"]) + CLIENT_MS
    written = at_the_latest(log, int(t["producer_id"]), int(t["first_offset"]), stamp)
    if t["first_append_time"] == 1 and written < UNBOUNDED:
        written -= ahead
    needed_by = max(written, int(t["marker_timestamp"]) - ahead)
    other = skew(log, partition) > SAME_CLOCK_MS
    return not log.cluster.lacks(TRANSACTION_STATE, partition, needed_by, other_clock=other)


@once
def _marker_clocks(log: LogView) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    # Offsets of the leader replica's markers, the newest time up to each and the oldest from each: a search per
    # transaction in place of a pass over all markers.
    rows = log.leader.transactions
    rows = rows[(rows["marker_offset"] >= 0) & (rows["marker_timestamp"] >= 0)]
    order = np.argsort(rows["marker_offset"], kind="stable")
    times = rows["marker_timestamp"][order]
    oldest = np.minimum.accumulate(times[::-1])[::-1]
    return rows["marker_offset"][order], np.maximum.accumulate(times), oldest


def _known_from(log: LogView, producer_id: int) -> int:
    history = log.cluster.coordinator
    if history is None or not owner_complete(log, producer_id):
        return -1
    owners = history.owners(producer_id)
    return int(owners["first_time"].min()) if len(owners) else -1


@once
def began(log: LogView) -> int:
    """Return when the log began, ms by broker clocks; -1: unknown.

    Of a whole log: its first timestamp, corrected by the least lag of markers behind their data, since a client clock
    may be slow. Otherwise no later than the first marker stored or read: timestamps of clients may be any. Unknown too
    where no marker follows its data: a clock may have been set back.
    """
    ended, markers = closed(log), log.leader.transactions
    if log.leader.log_start == 0:
        slow = max(0, int((ended["marker_timestamp"] - ended["last_timestamp"]).min())) if len(ended) else 0
        return log.leader.first_time + slow if log.leader.first_time >= 0 else -1
    markers = markers[markers["marker_offset"] >= log.leader.log_start]
    first = markers["marker_timestamp"][np.argsort(markers["marker_offset"])[:1]]
    return int(first[0]) if len(first) and len(ended) else -1


def closed(log: LogView) -> np.ndarray:
    """Return the leader replica's transactions that have data and a marker."""
    rows = log.leader.transactions
    return rows[(rows["marker_offset"] >= 0) & (rows["first_offset"] >= 0)]


def must_have_marker(log: LogView, window: TransactionWindow, before: int = -1) -> bool:
    """Whether the log reaches back far enough, uncleaned, that it would still have the window's marker.

    ``before``: the offset of the producer's last marker of an earlier decision. If it is stored above everything
    cleaned, the order of both logs decides and no clock is needed.
    """
    prepare, replica = window.prepare, log.leader
    assert prepare is not None
    if replica.unreadable or replica.absent or (replica.text and not replica.live):
        return False
    end, newest = cleaned(log, replica)
    if before >= max(end, 0):
        return True
    begin = window.start_time if window.start_time >= 0 else prepare.time
    if log.cluster.clocks.spread_ms:
        begin += ahead_ms(log, prepare.partition, prepare)
    first_time = began(log)
    if first_time < 0 or first_time > begin - (0 if replica.log_start == 0 else SKEW_MS):
        return False
    if end <= replica.log_start:
        return True
    times = [time for base, time in zip(replica.segment_bases[1:], replica.segment_times, strict=False) if base <= end]
    return begin > max(newest, *times, -1) + SKEW_MS


def ahead_ms(log: LogView, partition: int, entry: StateRecord | None = None) -> int:
    """Return by how many ms a log's clock is ahead of a coordinator's, as pairs of decisions and markers show it.

    ``entry``: a record of the coordinator, which may have been another broker then. Negative for behind; 0 where the
    difference is within what two clocks may differ by, or nothing shows it. Another partition of the same coordinator
    counts where this one has no pairs.
    """
    history, bounds = log.cluster.coordinator, log.cluster.bounds.get((log.topic, log.partition))
    if bounds is not None and log.cluster.clocks.spread_ms:
        broker = log.cluster.coordinator_of(partition, entry)
        measured = log.cluster.clocks.measured_ms(bounds.clock, broker)
        if measured is not None:
            return measured
    ahead = _clocks_ahead(log)
    if partition in ahead or history is None:
        return ahead.get(partition, 0)
    broker = history.brokers.get(partition)
    of_broker = [ms for p, ms in ahead.items() if broker is not None and history.brokers.get(p) == broker]
    return max(of_broker, key=abs, default=0)


@once
def _clocks_ahead(log: LogView) -> dict[int, int]:
    # By coordinator partition, of those whose clock differs. Cost: the first call matches all producers.
    out: dict[int, int] = {}
    for producer_id in np.unique(naming(log).rows["producer_id"]).tolist() if clocks_apart(log) else ():
        of = matching(log, producer_id)
        matched = np.flatnonzero(of.numbers >= 0)
        windows = of.windows[of.numbers[matched]]
        ahead = ahead_by(windows, markers_of(log, producer_id, matched)["marker_timestamp"])
        for partition in clocks_apart(log):
            own = ahead[windows["partition"] == partition].tolist()
            out[partition] = max([*own, out.get(partition, 0)], key=abs)
    return {p: ms + SAME_CLOCK_MS if ms > 0 else ms for p, ms in out.items()}


# Open transactions and their classes.


class Status(StrEnum):
    """Status of a transaction."""

    OPEN = "open"  # within its timeout
    OVERDUE = "overdue"
    HANGING = "hanging"  # no coordinator will end it
    PREPARED = "prepared"  # decided, its marker is not there yet
    COMPLETED = "completed"  # ended since its log was copied
    UNKNOWN = "unknown"


# Classes of open transactions (rules.md, *Classes of an open transaction*).


DEFAULT_TIMEOUT_MS = 15 * 60_000  # transaction.max.timeout.ms: no transaction may live longer
DAMAGED = "the damaged part of __transaction_state"
LOST_DECISION = "what was decided may be in a batch of __transaction_state that has a CRC mismatch"


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction open at the end of a log's leader replica, with its class and the evidence for it.

    ``klass``: active, late, hanging, orphan, ghost or undecidable. ``in_flight``: the contradicting record or marker
    may only be missing because the copy was made too early. ``since`` and ``age_ms`` go by time(b). ``end_unknown``:
    its marker may be in an unreadable part of the log. ``ended``: it was open when its log was read and has ended
    since.
    """

    row: np.void
    klass: str
    reason: str
    entry: StateRecord | None
    owner: str | None
    since: int
    age_ms: int
    timeout_ms: int
    in_flight: bool
    missing: str | None
    end_unknown: bool
    ended: bool = False

    def evidence(self) -> Fields:
        """Return the facts compared, for a finding."""
        t, e = self.row, self.entry
        return {
            "class": self.klass,
            "why": self.reason,
            "coordinator_state": None if e is None else e.state or "tombstone",
            "coordinator_epoch_of_id": None if e is None else e.producer_epoch,
            "coordinator_producer_id": None if e is None else e.producer_id,
            "coordinator_offset": None if e is None else e.offset,
            "partition_leader_epochs": [t["first_leader_epoch"], t["last_leader_epoch"]],
            "previous_marker_offset": t["prev_marker_offset"] if t["prev_marker_offset"] >= 0 else None,
            "batches": t["batches"],
            "records": t["records"],
            "bytes": t["bytes"],
            "age_ms": self.age_ms,
            "timeout_ms": self.timeout_ms,
            "in_flight": True if self.in_flight else None,
            "missing": self.missing,
        }


@once
def open_transactions(log: LogView) -> list[OpenTransaction]:
    """Return the transactions open at the end of the leader replica, by first offset. Computed once per log."""
    rows = log.leader.transactions
    if len(rows):
        rows = np.sort(rows[(rows["marker_offset"] < 0) & (rows["first_offset"] >= 0)], order="first_offset")
    return [_classify(log, row) for row in rows]


def open_of(log: LogView, producer_id: int) -> list[OpenTransaction]:
    """Return the open transactions of one producer."""
    return _by_producer(log).get(producer_id, [])


@once
def _by_producer(log: LogView) -> dict[int, list[OpenTransaction]]:
    by_producer: dict[int, list[OpenTransaction]] = {}
    for t in open_transactions(log):
        by_producer.setdefault(int(t.row["producer_id"]), []).append(t)
    return by_producer


def _classify(log: LogView, row: np.void) -> OpenTransaction:
    history = log.cluster.coordinator
    since = log.time(row["first_time"])
    entry = log.last_entry(row["producer_id"])
    timeout = time_allowed(entry)
    klass, reason, in_flight, missing = _class(log, row, history, entry, timeout)
    memory = log.leader.producer_memory  # a running cluster was asked twice, and nothing moved
    unchanged = memory is not None and (int(row["producer_id"]), int(row["first_offset"])) in memory.settled
    unsure = log.cluster.mixed or log.may_be_removed
    in_flight = (in_flight and not unchanged) or unsure
    ended = False
    if entry is not None and in_flight and not unsure and klass in ("hanging", "ghost"):
        allowed = log.cluster.clocks.ended_after_ms(coordinator_of(log.cluster, entry), timeout)
        ended = ended_since(log, row, entry, lost_ends(log, row), allowed)
    if ended:
        klass, reason, in_flight = "active", "it was open when this log was read, and has ended since", False
    return OpenTransaction(
        row=row,
        klass=klass,
        reason=reason,
        entry=entry,
        owner=None if entry is None else entry.transactional_id,
        since=since,
        age_ms=age_ms(log, entry, since, ends=klass in ("active", "late")) if since >= 0 else 0,
        timeout_ms=timeout,
        in_flight=in_flight,
        missing=missing,
        end_unknown=_ends_early(log) or unreadable_behind(log, row),
        ended=ended,
    )


def coordinator_of(cluster: Cluster, entry: StateRecord) -> int | None:
    """Return the broker that coordinates the id of a record."""
    return cluster.writer(TRANSACTION_STATE, entry.partition)


def age_ms(log: LogView, entry: StateRecord | None, begun: int, *, ends: bool = True) -> int:
    """Return for how long a transaction has been open, ms, while the broker was up that would end it.

    That is the coordinator of its record; without a record the leader of its log; nobody where no broker ``ends`` it.
    """
    cluster = log.cluster
    if entry is None:
        return cluster.clocks.age_ms(BrokerTime(begun, cluster.writer(log.topic, log.partition)))
    return cluster.clocks.age_ms(BrokerTime(begun, coordinator_of(cluster, entry) if ends else None))


def due(cluster: Cluster, entry: StateRecord) -> int:
    """Return when (ms) the coordinator's log has the end of a transaction, or of its decision, if that came in time."""
    begun = entry.start if entry.state == "Ongoing" and entry.start >= 0 else entry.time
    return begun + cluster.clocks.ended_after_ms(coordinator_of(cluster, entry), time_allowed(entry))


def overdue(cluster: Cluster, entry: StateRecord) -> bool:
    """Whether a transaction is still as its last record has it, though its coordinator was up for long enough."""
    begun = entry.start if entry.state == "Ongoing" and entry.start >= 0 else entry.time
    return cluster.clocks.is_overdue(BrokerTime(begun, coordinator_of(cluster, entry)), time_allowed(entry))


def time_allowed(entry: StateRecord | None) -> int:
    """Return how long, ms, a transaction may be open by its coordinator's record.

    Its timeout; 15 minutes where it is unknown, or for a decided two-phase commit, whose markers are sent at once.
    """
    if entry is None or entry.timeout_ms <= 0 or (entry.timeout_ms == NO_TIMEOUT_MS and entry.state in PREPARED):
        return DEFAULT_TIMEOUT_MS
    return entry.timeout_ms


def unreadable_behind(log: LogView, row: np.void) -> bool:
    """Whether unreadable or missing bytes follow the transaction's data: they may hold its marker."""
    return bool(_unreadable_to(log) > row["last_offset"])


@once
def _unreadable_to(log: LogView) -> int:
    return max(log.leader.unreadable_at, *(start for start, _ in log.leader.absent), -1)


@once
def _ends_early(log: LogView) -> bool:
    return log.leader.ends_early


def _class(
    log: LogView, row: np.void, history: CoordinatorHistory | None, entry: StateRecord | None, timeout: int
) -> tuple[str, str, bool, str | None]:
    below = row["last_offset"] < log.leader.own_start
    below |= bool(row["from_snapshot"] and row["batches"] == 0 and row["first_offset"] < log.leader.own_start)
    contradiction = None if entry is None else _contradiction(log, row, entry)
    if below and (entry is None or contradiction is not None or _late(log, entry, timeout)):
        return _ghost(log, row, history, entry)
    if "control_type" in log.leader.cannot_show:
        return "undecidable", "the dump does not show its markers", False, "the markers of this log"
    if _ends_early(log):
        return "undecidable", "what is known of this log breaks off before its end", False, "the rest of the log"
    if unreadable_behind(log, row):
        return "undecidable", "bytes behind it could not be read", False, "the batches that could not be read"
    if history is None:
        return "undecidable", "the coordinator's log is not among the inputs", False, "__transaction_state"
    if entry is None:
        return _unowned(log, row, history)
    outdated = history.may_be_outdated(entry)
    if (outdated or contradiction is not None) and decision_may_be_lost(log, row, entry):
        return "undecidable", LOST_DECISION, False, DAMAGED
    if outdated:
        return "undecidable", "a newer record of its id may be unreadable", False, "a part of __transaction_state"
    if contradiction is not None:
        return "hanging", contradiction, _marker_in_flight(log, row, entry), None
    klass = "late" if _late(log, entry, timeout) else "active"
    return klass, f"the coordinator has it as {entry.state}", False, None


def decision_may_be_lost(log: LogView, row: np.void, entry: StateRecord | None) -> bool:
    """Whether the decision about open data may be in a ``__transaction_state`` batch with a CRC mismatch.

    True unless a broker clock shows that the data was written after that batch. ``entry``: the last record of its id,
    None where the id is unknown and any partition may have it.
    """
    history = log.cluster.coordinator
    if history is None:
        return False
    written = int(row["first_time"]) if row["first_append_time"] == 1 else -1
    since = max(written, int(row["prev_marker_time"]))
    return any(history.may_lack_since(p, since) for p in (history.logs if entry is None else (entry.partition,)))


def _ghost(
    log: LogView, row: np.void, history: CoordinatorHistory | None, entry: StateRecord | None
) -> tuple[str, str, bool, str | None]:
    # Whether somebody will still end it is known only where the coordinator log was read whole.
    in_flight, missing = False, None
    if history is None:
        missing = "__transaction_state"
    elif entry is None:
        _, _, in_flight, missing = _unowned(log, row, history)
    elif decision_may_be_lost(log, row, entry):
        missing = DAMAGED
    elif history.may_be_outdated(entry):
        missing = "a part of __transaction_state"
    elif _contradiction(log, row, entry) is not None:
        in_flight = _marker_in_flight(log, row, entry)
    return "ghost", "its data lies below the log start", in_flight, missing


def open_at_coordinator(log: LogView, t: OpenTransaction) -> bool:
    """Whether its coordinator has it open or decided, with this partition and an epoch that may end it."""
    entry = t.entry
    if entry is None or entry.producer_id != t.row["producer_id"] or entry.state not in ("Ongoing", *PREPARED):
        return False
    near = entry.producer_epoch - int(t.row["last_epoch"])
    return log.name in entry.partitions and (near <= 0 or (entry.state in PREPARED and near <= 2))


def _late(log: LogView, entry: StateRecord, timeout: int) -> bool:
    if entry.state == "Ongoing" and timeout == NO_TIMEOUT_MS:
        return False
    return overdue(log.cluster, entry)


def _unowned(log: LogView, row: np.void, history: CoordinatorHistory) -> tuple[str, str, bool, str | None]:
    if decision_may_be_lost(log, row, None):
        return "undecidable", LOST_DECISION, False, DAMAGED
    if not history.complete_for_all():
        absent = few(p for p in range(history.partition_count) if p not in history.complete_from)
        missing = f"__transaction_state partitions {absent}" if absent else "the cleaned part of __transaction_state"
        if not history.count_known:
            missing = "how many partitions __transaction_state has"
        return "undecidable", "no id is known for its producer id, but the history is not complete", False, missing
    time = at_the_latest(log, int(row["producer_id"]), int(row["first_offset"]), log.time(row["last_time"]))
    doubt = log.cluster.coordinators_lack(int(row["producer_id"]), time)
    return "orphan", "no transactional id ever had this producer id", doubt, None


def _contradiction(log: LogView, row: np.void, entry: StateRecord) -> str | None:
    # Conditions a to c of rules.md.
    data_epoch = int(row["last_epoch"])
    if entry.state is None:
        return "the coordinator has forgotten the id (tombstone)"
    if entry.producer_id != row["producer_id"]:
        return f"the id has another producer id now ({entry.producer_id})"
    if entry.state in IDLE:
        return f"the coordinator has nothing open for this id: {entry.state}"
    deciding = entry.state in PREPARED
    if entry.producer_epoch > data_epoch and not (deciding and entry.producer_epoch - data_epoch <= 2):
        return f"the coordinator is at epoch {entry.producer_epoch} already"
    if log.name not in entry.partitions:
        return f"the coordinator's {entry.state} transaction does not have this partition"
    return None


def _marker_in_flight(log: LogView, row: np.void, entry: StateRecord) -> bool:
    # Either is enough: this log was copied before the marker of a completed transaction, or the coordinator log before
    # the record of a later one.
    bounds, history = log.cluster.bounds.get((log.topic, log.partition)), log.cluster.coordinator
    lags = bounds is not None and bounds.out_of_sync
    if row["prev_marker_offset"] >= 0 and row["last_epoch"] < row["prev_marker_epoch"] and not lags:
        return False  # by the order within one log: behind a marker of a higher epoch it is of nobody
    if naming(log).left_out or matching(log, int(row["producer_id"])).unsure:  # what is not held here may have ended it
        return True
    read = None if bounds is None else bounds.read
    if read is not None and history is not None and not history.known_since(entry, read.begun):
        return True  # what the cleaner has taken away may have ended it
    other_clock = skew(log, entry.partition) > SAME_CLOCK_MS
    ends, ahead = lost_ends(log, row), ahead_ms(log, entry.partition)
    ended = (w.end_time + ahead_ms(log, entry.partition, w.complete) for w in ends if w.end_time)
    if any(log.doubt(time, other_clock=other_clock, committed=True) for time in ended):
        return True
    by_broker = ahead if row["first_append_time"] == 1 else 0
    latest = log.time(row["first_time"]) - by_broker + (SKEW_MS if other_clock else 0)
    inside = any(w.prepare is not None and latest <= w.prepare.time for w in ends)
    return not inside and not recorded(log, entry.partition, row)


def lost_ends(log: LogView, row: np.void) -> list[TransactionWindow]:
    """Return completed transactions without a marker here that open data may belong to."""
    windows = [(w, w.complete) for w in unmarked_behind(log, row) if w.end_time is not None and w.complete is not None]
    time, by_broker = log.time(row["last_time"]), row["first_append_time"] == 1
    return [
        w for w, done in windows if w.may_hold(row, time - (ahead_ms(log, done.partition, done) if by_broker else 0))
    ]


# Whether a coordinator's log may have been copied before a transaction ended that it has as open or decided.
#
# The files of a running cluster are copied one after another. The last record of an id shows the state when its log was
# copied; the partitions of the transaction show whether it ended since.


UNREADABLE = "a newer record of its id may be in a part of its coordinator's log that is damaged or could not be read"


def still_open(cluster: Cluster, entry: StateRecord) -> dict[str, OpenHere]:
    """Return the partitions where an id's transaction is open, by name, as far as they are in the input."""
    begin = entry.start if entry.start >= 0 else entry.time
    raised = 2 if entry.state in PREPARED else 0
    open_logs = cluster.open_here.get(entry.producer_id, {})
    named = {name: open_logs[name] for name in sorted(entry.partitions) if name in open_logs}
    return {
        name: here
        for name, here in named.items()
        if 0 <= entry.producer_epoch - here.epoch <= raised and here.ended_before <= begin + SKEW_MS
    }


def ended(cluster: Cluster, entry: StateRecord) -> str | None:
    """Explain how the input shows that the transaction ended after its coordinator log was copied; None if it does not.

    A marker was written after the record that contradicts it, and no partition with the open transaction was copied
    later.
    """
    history = cluster.coordinator
    if history is not None and history.may_be_outdated(entry):
        return UNREADABLE
    if history is None or _of_one_moment(cluster, entry):
        return None
    opened = still_open(cluster, entry)
    time = _ended(cluster, history, entry, by_abort=not opened)
    if time is not None and all(_copied(cluster, name) <= time + SKEW_MS for name in opened):
        return f"its coordinator's log was copied before the marker of {iso(time)} was decided"
    if entry.state in PREPARED and not opened and _all_ended(cluster, entry):
        return "all its partitions have taken their markers, and its coordinator's log ends before them"
    return None


def never_begun(cluster: Cluster, entry: StateRecord) -> str | None:
    """Explain why an open transaction may never have begun; None where it did or nothing tells.

    The append of its first record may have failed. Then no partition has data or a marker of it; all of them have to be
    in the input, as they were after that record.
    """
    alone = entry.state == "Ongoing" and 0 <= entry.start == entry.last_update
    marked = any(marker.time > entry.start - SKEW_MS for marker in cluster.ended.get(entry.producer_id, ()))
    if not alone or marked or not entry.partitions or still_open(cluster, entry):
        return None
    for name in entry.partitions:
        bounds = _bounds(cluster, name)
        if bounds is None or not bounds.open_known or not (bounds.clean_shutdown or bounds.copy_time > entry.time):
            return None
    return "no partition has data of it, and the append of its record may have failed"


def unsure(cluster: Cluster, entry: StateRecord, due: int) -> str | None:
    """Explain why the transaction may have ended by ``due`` (ms); None where nothing suggests it.

    Besides :func:`ended`: the coordinator log and the logs with the open transaction end before ``due``, while other
    logs of the input are newer.
    """
    history = cluster.coordinator
    if history is not None and history.may_be_outdated(entry):
        return UNREADABLE
    if history is None or _of_one_moment(cluster, entry):
        return None
    if (how := ended(cluster, entry)) is not None:
        return how
    names = (_log_of(entry), *still_open(cluster, entry))
    whole_until = max(_whole_until(cluster, name) for name in names)
    if whole_until >= due:
        return None
    if (time := history.outdated.get(entry.partition)) is not None:
        return f"its coordinator's log was copied before the marker of another one, of {iso(time)}, was decided"
    others_go_on = cluster.newest_time >= due - SKEW_MS
    if not others_go_on or not _others_newer(cluster, whole_until, history.brokers.get(entry.partition)):
        return None
    return f"other logs of the input are newer than its coordinator's, which ends at {iso(whole_until)}"


def _log_of(entry: StateRecord) -> str:
    return f"{TRANSACTION_STATE}-{entry.partition}"


def _of_one_moment(cluster: Cluster, entry: StateRecord) -> bool:
    # The coordinator log and everything beside it are of the same time.
    bounds = _bounds(cluster, _log_of(entry))
    return cluster.at_once or (bounds is not None and bounds.clean_shutdown)


def _others_newer(cluster: Cluster, time: int, broker: int | None) -> bool:
    for bounds in cluster.bounds.values():
        same = broker is not None and bounds.broker_id == broker
        if min(bounds.copy_time, cluster.newest_time) > time + (SAME_CLOCK_MS if same else SKEW_MS):
            return True
    return False


def _ended(cluster: Cluster, history: CoordinatorHistory, entry: StateRecord, *, by_abort: bool) -> int | None:
    # When (ms) a marker was written after the end of the coordinator log that can only carry out a later decision. Its
    # epoch is higher, or it is newer than every decision made by then: an open transaction is ended by the first COMMIT
    # after its record; a decided one has its own marker, so the marker before must be newer than its start. An ABORT of
    # an open transaction's own epoch may be written by hand in one of its partitions and proves nothing about the
    # others: ``by_abort`` says whether it counts.
    coordinator, copied = history.brokers.get(entry.partition), _copied(cluster, _log_of(entry))
    for marker in cluster.ended.get(entry.producer_id, ()):
        apart = apart_ms(marker.broker_id, coordinator)
        if entry.state in PREPARED:
            newer = 0 <= entry.start < marker.before - apart
        else:
            newer = (marker.commit or by_abort) and marker.time > entry.time + apart and not marker.has_decision
        if (marker.epoch > entry.producer_epoch or newer) and copied <= marker.time + apart:
            return marker.time
    return None


def _all_ended(cluster: Cluster, entry: StateRecord) -> bool:
    all_present = all(_bounds(cluster, name) is not None for name in entry.partitions)
    marked = any(marker.time > entry.time - SKEW_MS for marker in cluster.ended.get(entry.producer_id, ()))
    return bool(entry.partitions) and all_present and marked


def _copied(cluster: Cluster, name: str) -> int:
    # The log was copied at its newest time or later.
    bounds = _bounds(cluster, name)
    return -1 if bounds is None else bounds.copy_time


def _whole_until(cluster: Cluster, name: str) -> int:
    topic, _, partition = name.rpartition("-")
    if not partition.isdecimal() or (topic, int(partition)) not in cluster.bounds:
        return -1
    return cluster.horizon(topic, int(partition), committed=True).until


def _bounds(cluster: Cluster, name: str) -> LeaderBounds | None:
    topic, _, partition = name.rpartition("-")
    return cluster.bounds.get((topic, int(partition))) if partition.isdecimal() else None


# Since when a transaction is open.


def is_its_own(t: OpenTransaction) -> bool:
    """Whether its coordinator has it, open or decided, and it has not ended since."""
    return t.klass in ("active", "late") and not t.ended


def began_between(log: LogView, t: OpenTransaction) -> tuple[int, int]:
    """Bound when the transaction began here by broker clocks: earliest and latest, ms; -1: no bound.

    See :func:`around`. Where the coordinator has it with this partition,
    it began after the start stored there and before the decision.
    """
    earliest, latest = around(log, int(t.row["producer_id"]), int(t.row["first_offset"]))
    if t.entry is not None and is_its_own(t) and log.name in t.entry.partitions:
        earliest = max(earliest, t.entry.start)
        if t.entry.state in PREPARED:
            latest = min(latest, t.entry.time) if latest >= 0 else t.entry.time
    return earliest, latest


def since(log: LogView, t: OpenTransaction) -> int:
    """Return when the transaction began here, ms; -1 where unknown.

    The producer's time, unless it contradicts the broker times around it by more than :data:`SKEW_MS`.
    """
    earliest, latest = began_between(log, t)
    if 0 <= t.since < earliest - SKEW_MS:
        return earliest
    return latest if 0 <= latest < t.since - SKEW_MS else t.since


def dated(log: LogView, t: OpenTransaction) -> dict[str, str | None]:
    """Return ``since`` with the broker bounds for pages, and the producer's own timestamp where it differs."""
    begun, stamp = since(log, t), int(t.row["first_timestamp"])
    differs = begun >= 0 and stamp >= 0 and abs(begun - stamp) > SKEW_MS
    earliest, latest = began_between(log, t)
    return {
        "since": iso(begun),
        "since_by_producer": iso(stamp) if differs else None,
        "since_not_before": iso(earliest),
        "since_not_after": iso(latest),
    }


# What the log itself shows: its own broker-written times behind the data, whatever the age of other files.


def held_by_stamps(log: LogView, t: OpenTransaction) -> Held:
    """Return how long it has been open at least by the broker-written times behind it in its own log."""
    own = int(t.row["first_time"]) if t.row["first_append_time"] == 1 else -1
    return own_times(log).held(int(t.row["first_offset"]), own)


@once
def own_times(log: LogView) -> OwnTimes:
    """Return the broker-written times of its leader replica."""
    return OwnTimes(log.leader.track, log.cluster.as_of if log.cluster.clock_given else None)


def coordinator(log: LogView, t: OpenTransaction) -> int | None:
    """Return the broker that coordinates its id, None where unknown."""
    return None if t.entry is None else coordinator_of(log.cluster, t.entry)


def overdue_ms(log: LogView, t: OpenTransaction) -> int:
    """Return after how many ms it is overdue at its coordinator."""
    return log.cluster.clocks.overdue_after_ms(coordinator(log, t), t.timeout_ms)


def is_held_too_long(log: LogView, t: OpenTransaction) -> bool:
    """Whether these times are beyond its timeout, whoever will end it. Its marker must not be there unseen."""
    unseen = (
        t.ended or t.end_unknown or log.cluster.mixed or log.may_be_removed or "control_type" in log.leader.cannot_show
    )
    return not unseen and t.timeout_ms != NO_TIMEOUT_MS and held_by_stamps(log, t).at_least_ms > overdue_ms(log, t)


def sure_ms(log: LogView, t: OpenTransaction) -> int:
    """Return how much of it is proved: not what a last time alone shows, far ahead of all else in the cluster."""
    by = held_by_stamps(log, t)
    return by.without_last_ms if _is_alone(log) else by.at_least_ms


@once
def _is_alone(log: LogView) -> bool:
    others = [b for place, b in log.cluster.bounds.items() if place != (log.topic, log.partition)]
    same = (b.broker_time for b in others if b.broker_id == log.leader.broker_id)
    return own_times(log).is_doubted(same, max((b.broker_time for b in others), default=-1))


def is_prepared(t: OpenTransaction) -> bool:
    """Whether its coordinator has decided it, and its marker is not there."""
    return t.entry is not None and t.entry.state in PREPARED and is_its_own(t)
