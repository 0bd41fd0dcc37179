"""Transactions that are not completed, made once per log: when data was written, and who will end it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from auditor.base.words import NO_TIMEOUT_MS, few
from auditor.evidence.cluster_clocks import HOUR_MS, BrokerTime, Held, OwnTimes, at_most_ms, is_after, same_clock
from auditor.evidence.horizons import ReadTimes, may_lack_since
from auditor.facts.coordinator_history import CoordinatorHistory, TransactionWindow
from auditor.facts.coordinator_log import StateRecord
from auditor.model.transaction_states import IDLE, PREPARED
from auditor.rules.seen.cluster_view import TRANSACTION_STATE, Cluster, LeaderBounds, OpenHere
from auditor.rules.seen.view import LogView, iso, once
from auditor.transactions.matching import (
    ahead_by,
    clocks_apart,
    markers_of,
    matching,
    may_hold,
    naming,
    other_clock,
    owner_complete,
    unmarked_behind,
)
from auditor.transactions.record import (
    BLOCKED,
    DEFAULT_TIMEOUT_MS,
    ITS_COORDINATORS,
    NO_DATA,
    NOBODYS,
    STATUSES,
    BlockedState,
    Case,
    Interval,
    Status,
    Transaction,
)

# When logs were read, where a copy's manifest has it.
#
# These times only count where nothing in the logs contradicts them. Data is read before its coordinator's log, so a
# transaction that ended in between is open in the one and completed in the other.


def _read(log: LogView, coordinator: int) -> tuple[ReadTimes | None, ReadTimes | None]:
    # Of this log, and of a coordinator's.
    own, other = (log.cluster.bounds.get(p) for p in ((log.topic, log.partition), (TRANSACTION_STATE, coordinator)))
    return own and own.read, other and other.read


def _read_behind(log: LogView, coordinator: int) -> bool:
    # Whether a coordinator's log was read after this one by the same clock: it then has what this one needed.
    own, other = _read(log, coordinator)
    return own is not None and other is not None and own.clock == other.clock and own.done <= other.begun


def ended_behind(log: LogView, window: TransactionWindow) -> bool:
    """Whether a transaction completed no sooner than its log was read: its marker may have come after the copy."""
    if window.complete is None or window.end_time is None:
        return False
    own, other = _read(log, window.complete.partition)
    same = own is not None and other is not None and other.clock == own.clock
    return own is not None and window.end_time >= (own.begun if same else at_most_ms(own.begun))


def _ended_since(log: LogView, row: np.void, entry: StateRecord, allowed_ms: int) -> bool:
    # Whether it was open when its log was read and ended afterwards: one that it may be of ended after the read, or the
    # cleaner removed the later records of one that is within ``allowed_ms``. The last record does not show it.
    own, other = _read(log, entry.partition)
    if own is None or log.cluster.coordinator is None:
        return False
    same, young = other is not None and other.clock == own.clock, log.time(row["first_time"]) >= own.begun - allowed_ms
    cleaned = same and young and not log.cluster.coordinator.known_since(entry, own.begun)
    return cleaned or any(ended_behind(log, window) for window in lost_ends(log, row))


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
    offsets, newest, oldest = marker_clocks(log)
    before, behind = offsets.searchsorted(at_offsets, "left"), offsets.searchsorted(at_offsets, "right")
    ids, which = np.unique(producer_ids, return_inverse=True)
    known_from = np.array([_known_from(log, producer_id) for producer_id in ids.tolist()], np.int64)[which]
    entry, written = log.leader.high_watermark, log.cluster.checkpointed.get(log.leader.log_dir, -1)
    checkpointed = np.where(at_offsets >= entry, written, -1) if entry is not None else np.full(len(at_offsets), -1)
    earliest = np.maximum.reduce([np.append(newest, -1)[before - 1], known_from, checkpointed])
    return earliest, np.append(oldest, -1)[behind]


def at_the_latest(log: LogView, producer_id: int, offset: int, stamp: int) -> int:
    """Return the time (ms) after which a file must have been copied to hold what was written before this data.

    Its timestamp, unless broker times show that the data is younger: then the marker after it, or :data:`UNBOUNDED` for
    none. One that is a little too early may come from a slow clock, and bounds the data by :func:`at_most_ms`.
    """
    earliest, latest = around(log, producer_id, offset)
    if stamp >= earliest:
        return stamp
    bound = UNBOUNDED if is_after(earliest, stamp) else at_most_ms(stamp)
    return min(bound, latest) if latest >= 0 else bound


def recorded(log: LogView, partition: int, t: np.void) -> bool:
    """Whether the coordinator file would hold the record that let a transaction write: it precedes the first batch.

    Clients stamp records before they ask the coordinator, which :data:`CLIENT_MS` allows for. A marker after the data
    bounds the record's time, however old the timestamps are. Data committed when the broker wrote its checkpoint, or
    read before the coordinator log, proves it without any clock.
    """
    own, entry = (log.topic, log.partition), log.leader.high_watermark
    if _read_behind(log, partition):
        return True
    if entry is not None and t["first_offset"] < entry and log.cluster.of_one_pass(own, (TRANSACTION_STATE, partition)):
        return True  # the data was committed by then, and so was what let it be written, whatever its stamps say
    ahead = ahead_ms(log, partition)
    stamp = log.time(t["first_time"]) + CLIENT_MS
    written = at_the_latest(log, int(t["producer_id"]), int(t["first_offset"]), stamp)
    if t["first_append_time"] == 1 and written < UNBOUNDED:
        written -= ahead
    needed_by = max(written, int(t["marker_timestamp"]) - ahead)
    other = other_clock(log, partition)
    return not log.cluster.lacks(TRANSACTION_STATE, partition, needed_by, other_clock=other)


@once
def marker_clocks(log: LogView) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the offsets of the leader replica's markers, the newest time up to each and the oldest from each."""
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


def closed(log: LogView) -> np.ndarray:
    """Return the leader replica's transactions that have data and a marker."""
    rows = log.leader.transactions
    return rows[(rows["marker_offset"] >= 0) & (rows["first_offset"] >= 0)]


def ahead_ms(log: LogView, partition: int, entry: StateRecord | None = None) -> int:
    """Return by how many ms a log's clock is ahead of a coordinator's, as pairs of decisions and markers show it.

    ``entry``: a record of the coordinator, which may have been another broker then. Negative for behind; 0 where one
    broker writes both, where the difference is within what two clocks may differ by, or nothing shows it. Another
    partition of the same coordinator counts where this one has no pairs.
    """
    history, bounds = log.cluster.coordinator, log.cluster.bounds.get((log.topic, log.partition))
    if bounds is not None and log.cluster.clocks.spread_ms:
        broker = log.cluster.coordinator_of(partition, entry)
        measured = log.cluster.clocks.measured_ms(bounds.clock, broker)
        if measured is not None:
            return measured
    writer = log.cluster.writer(log.topic, log.partition)
    if writer is not None and writer == log.cluster.writer(TRANSACTION_STATE, partition):
        return 0
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
    return {p: at_most_ms(ms, one_clock=True) if ms > 0 else ms for p, ms in out.items()}


# Transactions open in a log.


DAMAGED = "the damaged part of __transaction_state"
LOST_DECISION = "its decision may be in a __transaction_state batch with a CRC mismatch"
ReasonedCase = tuple[Case, str, bool, str | None]  # the case, its reason, whether it may be in flight, what is missing


@once
def open_transactions(log: LogView) -> list[Transaction]:
    """Return the transactions open at the end of the leader replica, by first offset. Computed once per log."""
    rows = log.leader.transactions
    if len(rows):
        rows = np.sort(rows[(rows["marker_offset"] < 0) & (rows["first_offset"] >= 0)], order="first_offset")
    return [_made(log, row) for row in rows]


@once
def open_by_producer(log: LogView) -> dict[int, list[Transaction]]:
    """Return the open transactions of each producer."""
    by_producer: dict[int, list[Transaction]] = {}
    for t in open_transactions(log):
        by_producer.setdefault(t.producer_id, []).append(t)
    return by_producer


def _made(log: LogView, row: np.void) -> Transaction:
    entry, clocks = log.last_entry(row["producer_id"]), log.cluster.clocks
    coordinator, timeout = coordinator_of(log.cluster, entry), time_allowed(entry)
    case, reason, in_flight, missing = _case(log, row, entry)
    memory = log.leader.producer_memory  # a running cluster was asked twice, and nothing moved
    unchanged = memory is not None and (int(row["producer_id"]), int(row["first_offset"])) in memory.settled
    unsure, completed = log.cluster.mixed or log.may_be_removed, False
    in_flight = (in_flight and not unchanged) or unsure
    if entry is not None and in_flight and not unsure and case in (Case.HANGING, Case.GHOST):
        completed = _ended_since(log, row, entry, clocks.ended_after_ms(coordinator, timeout))
    if completed:
        case, reason, in_flight = Case.ACTIVE, "it was open when this log was scanned, and has completed since", False
    t = Transaction(
        row=row,
        entry=entry,
        case=case,
        reason=reason,
        timeout_ms=timeout,
        overdue_after_ms=clocks.overdue_after_ms(coordinator, timeout),
        margin_ms=log.cluster.margin(timeout),
        in_flight=in_flight,
        missing=missing,
        end_unknown=log.leader.ends_early or unreadable_behind(log, row),
        completed=completed,
        lso=max(int(row["first_offset"]), log.leader.own_start),
        origin=None if entry is None else log.cluster.origin(entry.transactional_id),
    )
    return _judged(log, _dated(log, t, coordinator))


def coordinator_of(cluster: Cluster, entry: StateRecord | None) -> int | None:
    """Return the broker that coordinates the id of a record."""
    return None if entry is None else cluster.writer(TRANSACTION_STATE, entry.partition)


def time_allowed(entry: StateRecord | None) -> int:
    """Return how long, ms, a transaction may be open by its coordinator's record.

    Its timeout; 15 minutes where it is unknown, or for a decided two-phase commit, whose markers are sent at once.
    """
    if entry is None or entry.timeout_ms <= 0 or (entry.timeout_ms == NO_TIMEOUT_MS and entry.state in PREPARED):
        return DEFAULT_TIMEOUT_MS
    return entry.timeout_ms


@once
def _unreadable_to(log: LogView) -> int:
    return max(log.leader.unreadable_at, *(start for start, _ in log.leader.absent), -1)


def unreadable_behind(log: LogView, row: np.void) -> bool:
    """Whether unreadable or missing bytes follow the transaction's data: they may hold its marker."""
    return bool(_unreadable_to(log) > row["last_offset"])


def _case(log: LogView, row: np.void, entry: StateRecord | None) -> ReasonedCase:
    contradiction = None if entry is None else _contradiction(log, row, entry)
    start, bare = log.leader.own_start, row["from_snapshot"] and row["batches"] == 0
    below = row["last_offset"] < start or (bare and row["first_offset"] < start)
    if below and (entry is None or contradiction is not None or _is_late(log.cluster, entry)):
        _, _, in_flight, missing = _at_coordinator(log, row, entry, contradiction, gone=True)
        return Case.GHOST, "its data is below the log start offset", in_flight, missing
    if "control_type" in log.leader.cannot_show:
        return Case.UNDECIDABLE, "the dump does not show markers", False, "the markers of this log"
    if log.leader.ends_early:
        return Case.UNDECIDABLE, "the copy of this log ends early", False, "the rest of the log"
    if unreadable_behind(log, row):
        return Case.UNDECIDABLE, "later bytes of this log are unreadable", False, "the unreadable batches"
    return _at_coordinator(log, row, entry, contradiction)


def _at_coordinator(
    log: LogView, row: np.void, entry: StateRecord | None, contradiction: str | None, *, gone: bool = False
) -> ReasonedCase:
    # Whether somebody will still end it is known only where the coordinator's log was read whole.
    history = log.cluster.coordinator
    if history is None:
        return Case.UNDECIDABLE, f"{TRANSACTION_STATE} is not in the input", False, TRANSACTION_STATE
    if entry is None:
        return _unowned(log, row, history)
    outdated = history.may_be_outdated(entry)
    if (outdated or gone or contradiction is not None) and decision_may_be_lost(log, row, entry):
        return Case.UNDECIDABLE, LOST_DECISION, False, DAMAGED
    if outdated:
        return Case.UNDECIDABLE, "a newer record of its id may be unreadable", False, "a part of __transaction_state"
    if contradiction is not None:
        return Case.HANGING, contradiction, _marker_in_flight(log, row, entry), None
    case = Case.LATE if _is_late(log.cluster, entry) else Case.ACTIVE
    return case, f"its state at the coordinator is {entry.state}", False, None


def _unowned(log: LogView, row: np.void, history: CoordinatorHistory) -> ReasonedCase:
    if decision_may_be_lost(log, row, None):
        return Case.UNDECIDABLE, LOST_DECISION, False, DAMAGED
    if not history.complete_for_all():
        absent = few(p for p in range(history.partition_count) if p not in history.complete_from)
        missing = f"__transaction_state partitions {absent}" if absent else "the cleaned part of __transaction_state"
        if not history.count_known:
            missing = "how many partitions __transaction_state has"
        why = "none of the known transactional ids has its producer id, but others may"
        return Case.UNDECIDABLE, why, False, missing
    time = at_the_latest(log, int(row["producer_id"]), int(row["first_offset"]), log.time(row["last_time"]))
    doubt = log.cluster.coordinators_lack(int(row["producer_id"]), time)
    return Case.ORPHAN, "no transactional id ever had this producer id", doubt, None


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
    return any(may_lack_since(history, p, since) for p in (history.logs if entry is None else (entry.partition,)))


def open_at_coordinator(log: LogView, t: Transaction) -> bool:
    """Whether its coordinator has it open or decided, with this partition and an epoch that may end it."""
    entry = t.entry
    if entry is None or entry.producer_id != t.producer_id or entry.state not in ("Ongoing", *PREPARED):
        return False
    near = entry.producer_epoch - int(t.row["last_epoch"])
    return log.name in entry.partitions and (near <= 0 or (entry.state in PREPARED and near <= 2))


def _is_late(cluster: Cluster, entry: StateRecord) -> bool:
    if entry.state == "Ongoing" and entry.timeout_ms == NO_TIMEOUT_MS:
        return False
    begun = BrokerTime(_begun_at_coordinator(entry), coordinator_of(cluster, entry))
    return cluster.clocks.is_overdue(begun, time_allowed(entry))


def _begun_at_coordinator(entry: StateRecord) -> int:
    return entry.start if entry.state == "Ongoing" and entry.start >= 0 else entry.time


def _contradiction(log: LogView, row: np.void, entry: StateRecord) -> str | None:
    # Conditions a to c of rules.md.
    data_epoch = int(row["last_epoch"])
    if entry.state is None:
        return "the coordinator deleted its transactional id (tombstone)"
    if entry.producer_id != row["producer_id"]:
        return f"its transactional id now has producer id {entry.producer_id}"
    if entry.state in IDLE:
        return f"its id is in state {entry.state}"
    deciding = entry.state in PREPARED
    if entry.producer_epoch > data_epoch and not (deciding and entry.producer_epoch - data_epoch <= 2):
        return f"the coordinator is already at epoch {entry.producer_epoch}"
    if log.name not in entry.partitions:
        return f"the coordinator's {entry.state} transaction does not include this partition"
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
    other = other_clock(log, entry.partition)
    ends, ahead = lost_ends(log, row), ahead_ms(log, entry.partition)
    ended = (w.end_time + ahead_ms(log, entry.partition, w.complete) for w in ends if w.end_time)
    if any(log.doubt(time, other_clock=other, committed=True) for time in ended):
        return True
    began = log.time(row["first_time"]) - (ahead if row["first_append_time"] == 1 else 0)
    latest = at_most_ms(began) if other else began
    inside = any(w.prepare is not None and latest <= w.prepare.time for w in ends)
    return not inside and not recorded(log, entry.partition, row)


def lost_ends(log: LogView, row: np.void) -> list[TransactionWindow]:
    """Return completed transactions without a marker here that open data may belong to."""
    windows = [(w, w.complete) for w in unmarked_behind(log, row) if w.end_time is not None and w.complete is not None]
    time, by_broker = log.time(row["last_time"]), row["first_append_time"] == 1
    return [
        w for w, done in windows if may_hold(w, row, time - (ahead_ms(log, done.partition, done) if by_broker else 0))
    ]


# Since when a transaction is open, and its status.


def _dated(log: LogView, t: Transaction, coordinator: int | None) -> Transaction:
    earliest, latest = around(log, t.producer_id, t.first_offset)
    entry, stamp = t.entry if t.is_its_own else None, log.time(t.row["first_time"])
    if entry is not None and log.name in entry.partitions:
        earliest = max(earliest, entry.start)
        if entry.state in PREPARED:
            latest = min(latest, entry.time) if latest >= 0 else entry.time
    since = latest if latest >= 0 and is_after(stamp, latest) else stamp
    since = earliest if stamp >= 0 and is_after(earliest, stamp) else since
    t = replace(t, began=Interval(earliest, latest), since=since)
    clock = log.cluster.writer(log.topic, log.partition) if t.entry is None else coordinator if t.is_its_own else None
    read = _read(log, t.entry.partition)[0] if t.entry is not None and t.completed else None
    begun = _begun(log, t)
    age = read.done - begun if read else log.cluster.clocks.age_ms(BrokerTime(begun, clock))
    times, is_alone = own_times(log)
    held = times.held(t.first_offset, int(t.row["first_time"]) if t.row["first_append_time"] == 1 else -1)
    held = held if is_alone else Held(held.at_least_ms, held.at_least_ms)
    return replace(t, age_ms=max(0, age, held.at_least_ms), clock=clock, held=held)


def _begun(log: LogView, t: Transaction) -> int:
    ongoing = t.entry is not None and t.entry.state == "Ongoing" and t.is_its_own
    begun = [time for time in (t.since, t.entry.start if ongoing and t.entry else -1) if time >= 0]
    return min(begun, default=log.cluster.as_of)


@once
def own_times(log: LogView) -> tuple[OwnTimes, bool]:
    """Return the broker-written times of its leader replica, and whether the last one is far ahead of all other logs.

    It may be of a wrong clock then. Without times in other logs of its broker nothing speaks against it.
    """
    times = OwnTimes(log.leader.track, log.cluster.as_of if log.cluster.clock_given else None)
    others = [b for place, b in log.cluster.bounds.items() if place != (log.topic, log.partition)]
    same = (b.broker_time for b in others if b.broker_id == log.leader.broker_id)
    return times, times.is_doubted(same, max((b.broker_time for b in others), default=-1))


def dated(log: LogView, t: Transaction) -> dict[str, str | None]:
    """Return ``since`` with the broker bounds for pages, and the producer's own timestamp where it differs."""
    stamp = int(t.row["first_timestamp"])
    differs = min(t.since, stamp) >= 0 and is_after(max(t.since, stamp), min(t.since, stamp))
    return {
        "since": iso(t.since),
        "since_by_producer": iso(stamp) if differs else None,
        "since_not_before": iso(t.began.earliest),
        "since_not_after": iso(t.began.latest),
    }


def _judged(log: LogView, t: Transaction) -> Transaction:
    stands, by_stamps = _standing(log, t), False
    if stands in (BlockedState.UNKNOWN, BlockedState.WAITING) and _is_held_too_long(log, t):
        stands, by_stamps = BlockedState.OVERDUE, True
    within = Status.COMPLETED if t.completed else Status.PREPARED if t.is_prepared else Status.OPEN
    overdue = stands is BlockedState.OVERDUE
    status = STATUSES.get(stands, Status.OVERDUE if overdue and within is Status.OPEN else within)
    away = stands is BlockedState.UNDELIVERABLE
    t = replace(t, status=status, overdue=overdue, undeliverable=away, by_stamps=by_stamps)
    severity, if_true = _severity(log, t)
    return replace(t, severity=severity, if_true=if_true)


def _standing(log: LogView, t: Transaction) -> BlockedState:
    if t.in_flight:
        return BlockedState.UNKNOWN
    if t.completed:
        return BlockedState.WAITING
    waits = t.case is Case.GHOST and open_at_coordinator(log, t)  # who has it open or decided will still end it
    if t.case in NOBODYS or (t.case is Case.GHOST and not (waits or t.end_unknown or t.missing)):
        return BlockedState.STUCK
    if t.entry and log.name in undeliverable(log.cluster, t.entry) and not _went_on(log.cluster, t.entry):
        return BlockedState.UNDELIVERABLE
    if not _is_too_long(t):
        return BlockedState.WAITING if waits or t.case in ITS_COORDINATORS else BlockedState.UNKNOWN
    if t.end_unknown or "control_type" in log.leader.cannot_show or _is_single_partition(log.cluster):
        return BlockedState.UNKNOWN
    ended_after = log.cluster.clocks.ended_after_ms(coordinator_of(log.cluster, t.entry), t.timeout_ms)
    allowed = HOUR_MS if t.timeout_ms == NO_TIMEOUT_MS else ended_after
    if not _may_have_ended(log, t, allowed):
        return BlockedState.OVERDUE
    # It was within its time when its coordinator's log was read, after the data.
    read = _read(log, t.entry.partition)[1] if t.entry is not None and _read_behind(log, t.entry.partition) else None
    in_time = read is not None and read.begun <= _begun(log, t) + allowed
    return BlockedState.WAITING if in_time else BlockedState.UNKNOWN


def _is_too_long(t: Transaction) -> bool:
    # 15 minutes where no timeout is known; an hour for a two-phase commit, which has none (KIP-939).
    if t.timeout_ms == NO_TIMEOUT_MS:
        return t.age_ms > HOUR_MS
    return t.case is not Case.ACTIVE and t.age_ms > t.overdue_after_ms


def _is_single_partition(cluster: Cluster) -> bool:
    # Without a given clock one partition cannot tell how old its log end is.
    return cluster.coordinator is None and not cluster.clock_given and len(cluster.bounds) <= 1


def _is_held_too_long(log: LogView, t: Transaction) -> bool:
    # By its own log, whatever the age of other files. Its marker must not be there unseen.
    unsure = t.completed or t.end_unknown or log.cluster.mixed or log.may_be_removed
    unseen = unsure or "control_type" in log.leader.cannot_show
    return not unseen and t.timeout_ms != NO_TIMEOUT_MS and t.held.at_least_ms > t.overdue_after_ms


def _may_have_ended(log: LogView, t: Transaction, allowed_ms: int) -> bool:
    # Whether both logs may have been copied before it ended in time.
    if t.entry is None or t.entry.state not in ("Ongoing", *PREPARED) or not t.is_its_own:
        return False
    return _unsure(log.cluster, t.entry, _begun(log, t) + allowed_ms) is not None


def _severity(log: LogView, t: Transaction) -> tuple[str | None, str | None]:
    if t.by_stamps:
        return "critical" if t.held.without_last_ms > HOUR_MS else "error", None
    grave = "critical" if t.case in NOBODYS or t.age_ms > HOUR_MS else "error"
    if t.case is Case.LATE and t.entry is not None and t.entry.state in PREPARED:
        decided = BrokerTime(t.entry.time, t.clock)
        grave = "critical" if log.cluster.clocks.age_ms(decided) > t.margin_ms else grave
    if t.standing in BLOCKED:
        return grave, None
    if t.is_unknown:
        old = "control_type" in log.leader.cannot_show and t.age_ms > t.margin_ms
        if old and not (t.end_unknown or _is_single_partition(log.cluster)):
            return "warning", None
        return "info", grave if t.in_flight or _is_too_long(t) else None
    old = t.age_ms > HOUR_MS and not t.completed
    return "warning" if old and not _may_have_ended(log, t, HOUR_MS) else None, None


# Transactions that a coordinator has open or decided for too long, wherever their data is.


def of_coordinator(log: LogView, entry: StateRecord) -> Transaction | None:
    """Return the transaction that the last record of an id has open or decided; None while that is normal.

    Where no broker wrote a time, nothing shows whether an open one is within its timeout.
    """
    cluster, allowed, ongoing = log.cluster, time_allowed(entry), entry.state == "Ongoing"
    if ongoing and (entry.timeout_ms <= 0 or entry.timeout_ms == NO_TIMEOUT_MS):
        return None
    coordinator, begun = coordinator_of(cluster, entry), _begun_at_coordinator(entry)
    age, margin = cluster.clocks.age_ms(BrokerTime(begun, coordinator)), cluster.margin(allowed)
    late, away = _is_late(cluster, entry), undeliverable(cluster, entry)
    timeless = ongoing and cluster.as_of < 0
    if not (late or away or timeless):
        return None
    due = begun + cluster.clocks.ended_after_ms(coordinator, allowed)
    ended = _went_on(cluster, entry) if away else _unsure(cluster, entry, due)
    never = None if ended else _never_begun(cluster, entry)
    unknown = bool(ended or never or timeless or cluster.mixed)
    grave = "critical" if not ongoing and age > margin else "error"
    return Transaction(
        row=NO_DATA,
        entry=entry,
        case=Case.LATE if late else Case.ACTIVE,
        reason=f"its state at the coordinator is {entry.state}; no replica of the partition is in the input",
        timeout_ms=allowed,
        overdue_after_ms=cluster.clocks.overdue_after_ms(coordinator, allowed),
        margin_ms=margin,
        may_have_ended=ended,
        may_never_have_begun=never,
        began=Interval(begun),
        since=begun,
        age_ms=age,
        clock=coordinator,
        status=Status.UNKNOWN if unknown else Status.OVERDUE if ongoing else Status.PREPARED,
        overdue=late,
        severity="info" if unknown else grave,
        if_true=grave if unknown and not timeless else None,
        origin=cluster.origin(entry.transactional_id),
    )


def undeliverable(cluster: Cluster, entry: StateRecord) -> list[str]:
    """Return the leaderless partitions of a decided transaction, where its markers cannot be written."""
    away = entry.partitions & cluster.away if entry.state in PREPARED else ()
    return sorted(away - _with_its_marker(cluster, entry)) if away else []


def without_its_marker(cluster: Cluster, entry: StateRecord) -> list[str]:
    """Return the partitions of a decided transaction that are not known to have its marker."""
    return sorted(entry.partitions - _with_its_marker(cluster, entry))


def refusing(cluster: Cluster, entry: StateRecord) -> list[str]:
    """Return the partitions of a decided transaction that lack its marker, and are below min.insync.replicas."""
    short = entry.partitions & cluster.under_min_isr.keys() if entry.state in PREPARED else ()
    return sorted(short - _with_its_marker(cluster, entry)) if short else []


def _with_its_marker(cluster: Cluster, entry: StateRecord) -> set[str]:
    # A marker before the decision, of a transaction before, has the same epoch up to transaction.version 1.
    coordinator, commit = coordinator_of(cluster, entry), entry.state == "PrepareCommit"
    marked = {
        marker.name
        for marker in cluster.ended.get(entry.producer_id, ())
        if (marker.epoch, marker.commit) == (entry.producer_epoch, commit)
        and not is_after(entry.time, marker.time, one_clock=same_clock(marker.broker_id, coordinator))
    }
    return marked - still_open(cluster, entry).keys() if marked else marked


# Whether a coordinator's log may have been copied before a transaction ended that it has as open or decided.
#
# The files of a running cluster are copied one after another. The last record of an id shows the state when its log was
# copied; the partitions of the transaction show whether it ended since.


UNREADABLE = "a newer record of its id may be in a damaged or unreadable part of __transaction_state"


def still_open(cluster: Cluster, entry: StateRecord) -> dict[str, OpenHere]:
    """Return the partitions where an id's transaction is open, by name, as far as they are in the input."""
    begin = at_most_ms(entry.start if entry.start >= 0 else entry.time)
    raised, open_logs = 2 if entry.state in PREPARED else 0, cluster.open_here.get(entry.producer_id, {})
    return {
        name: here
        for name in sorted(entry.partitions)
        if (here := open_logs.get(name)) is not None
        and 0 <= entry.producer_epoch - here.epoch <= raised
        and here.ended_before <= begin
    }


def _went_on(cluster: Cluster, entry: StateRecord, due: int | None = None) -> str | None:
    # How the input shows that it ended after its coordinator's log was copied; None if it does not. A marker was
    # written after the record that contradicts it, and no partition with the open transaction was copied later.
    history = cluster.coordinator
    if history is not None and history.may_be_outdated(entry):
        return UNREADABLE
    if history is None or _is_of_one_moment(cluster, entry):
        return None
    opened = still_open(cluster, entry)
    time = _newer_marker(cluster, history, entry, by_abort=not opened)
    if time is not None and all(_copied(cluster, name) <= at_most_ms(time) for name in opened):
        return f"__transaction_state was copied before the decision of its marker of {iso(time)}"
    all_present = bool(entry.partitions) and all(_bounds(cluster, name) is not None for name in entry.partitions)
    ends_before = due is None or cluster.horizon(*place_of(_log_of(entry)), committed=True).until < due
    if (
        entry.state in PREPARED
        and not opened
        and all_present
        and ends_before
        and _is_marked(cluster, entry, entry.time)
    ):
        return "all its partitions have their markers, and the copy of __transaction_state ends before them"
    return None


def _is_marked(cluster: Cluster, entry: StateRecord, since: int) -> bool:
    return any(at_most_ms(marker.time) > since for marker in cluster.ended.get(entry.producer_id, ()))


def _never_begun(cluster: Cluster, entry: StateRecord) -> str | None:
    # The append of its first record may have failed. Then no partition has data or a marker of it; all of them have to
    # be in the input, as they were after that record.
    alone = entry.state == "Ongoing" and 0 <= entry.start == entry.last_update and entry.partitions
    if not alone or _is_marked(cluster, entry, entry.start) or still_open(cluster, entry):
        return None
    for name in entry.partitions:
        bounds = _bounds(cluster, name)
        if bounds is None or not bounds.open_known or not (bounds.clean_shutdown or bounds.copy_time > entry.time):
            return None
    return "no partition has data of it, and the append of its record may have failed"


def _unsure(cluster: Cluster, entry: StateRecord, due: int) -> str | None:
    # Why it may have ended by ``due`` (ms). Besides _went_on: the coordinator's log and the logs with the open
    # transaction end before that, while other logs of the input are newer.
    history = cluster.coordinator
    if (how := _went_on(cluster, entry, due)) is not None:
        return how
    if history is None or _is_of_one_moment(cluster, entry):
        return None
    names = (_log_of(entry), *still_open(cluster, entry))
    whole_until = max(cluster.horizon(*place_of(name), committed=True).until for name in names)
    if whole_until >= due:
        return None
    if (time := history.outdated.get(entry.partition)) is not None:
        return f"__transaction_state was copied before the decision of another transaction's marker of {iso(time)}"
    newest, whole = cluster.newest_time, BrokerTime(whole_until, history.brokers.get(entry.partition))
    newer = (BrokerTime(min(b.copy_time, newest), b.broker_id).is_after(whole) for b in cluster.bounds.values())
    if is_after(due, newest) or not any(newer):
        return None
    return f"other logs of the input are newer than __transaction_state, which ends at {iso(whole_until)}"


def _log_of(entry: StateRecord) -> str:
    return f"{TRANSACTION_STATE}-{entry.partition}"


def _is_of_one_moment(cluster: Cluster, entry: StateRecord) -> bool:
    # The coordinator's log and everything beside it are of the same time.
    bounds = _bounds(cluster, _log_of(entry))
    return cluster.at_once or (bounds is not None and bounds.clean_shutdown)


def _newer_marker(cluster: Cluster, history: CoordinatorHistory, entry: StateRecord, *, by_abort: bool) -> int | None:
    # When (ms) a marker was written after the end of the coordinator log that can only carry out a later decision. Its
    # epoch is higher, or it is newer than every decision made by then: an open transaction is ended by the first COMMIT
    # after its record; a decided one has its own marker, so the marker before must be newer than its start. An ABORT of
    # an open transaction's own epoch may be written by hand in one of its partitions and proves nothing about the
    # others: ``by_abort`` says whether it counts.
    coordinator, copied = history.brokers.get(entry.partition), _copied(cluster, _log_of(entry))
    for marker in cluster.ended.get(entry.producer_id, ()):
        one = same_clock(marker.broker_id, coordinator)
        if entry.state in PREPARED:
            newer = entry.start >= 0 and is_after(marker.before, entry.start, one_clock=one)
        else:
            counts = (marker.commit or by_abort) and not marker.has_decision
            newer = counts and is_after(marker.time, entry.time, one_clock=one)
        if (marker.epoch > entry.producer_epoch or newer) and not is_after(copied, marker.time, one_clock=one):
            return marker.time
    return None


def _copied(cluster: Cluster, name: str) -> int:
    # The log was copied at its newest time or later.
    bounds = _bounds(cluster, name)
    return -1 if bounds is None else bounds.copy_time


def _bounds(cluster: Cluster, name: str) -> LeaderBounds | None:
    return cluster.bounds.get(place_of(name))


def place_of(name: str) -> tuple[str, int]:
    """Return topic and partition of a ``topic-partition``; -1 for no number."""
    topic, _, partition = name.rpartition("-")
    return topic, int(partition) if partition.isdecimal() else -1
