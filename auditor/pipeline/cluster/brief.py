"""The little of each replica that must be known everywhere before any log is judged."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from auditor.facts.coordinator_log import ONGOING, PREPARE_ABORT, PREPARE_COMMIT, CoordinatorLog, Entry, pack
from auditor.facts.events import HOLES, Kind, events_of, hole_of
from auditor.facts.replica_facts import ENDED, ReplicaFacts, without_defaults
from auditor.rules.seen.cluster_view import Bounds, OpenHere
from auditor.rules.transactions.windows import SAME_CLOCK_MS

TRANSACTION_STATE = "__transaction_state"
MOST_OPEN = 50_000  # open transactions of a replica that are known everywhere, the oldest
NOTHING_ENDED, NOTHING_UNDECIDED = np.empty(0, ENDED), np.empty(0, np.int64)
NOTHING_OPEN: dict[int, OpenHere] = {}
MOST_ENDED = 1_000  # producers of a log whose newest marker is known everywhere: 29 bytes each
BEHIND_OFFSETS = 1 << 60  # console rows have no offset; they come behind those that have one, in the order printed


@without_defaults
@dataclass(slots=True)
class Brief:
    """The little of one replica that must be known everywhere: bounds, clocks, and what its coordinator wrote."""

    join_key: str
    log_dir: str
    broker_id: int | None
    topic: str
    partition: int
    rank: tuple[int, int]
    settled_end: int
    bounds: Bounds
    broker_time: int
    any_time: int
    intact_from: int
    first_offset: int
    text: bool
    lacks_end: bool
    epoch_start: int
    ends_early: bool
    abort_indexes: bool
    coordinator_log: CoordinatorLog | None = None
    broken_at: int | None = None
    open_here: dict[int, OpenHere] = field(default_factory=dict)  # by producer id
    ended: np.ndarray = field(default_factory=lambda: NOTHING_ENDED)
    undecided: np.ndarray = field(default_factory=lambda: NOTHING_UNDECIDED)  # producer ids of unfinished ids
    went_back: int = 0  # ms
    oldest: np.ndarray = field(default_factory=lambda: NOTHING_ENDED)  # the first markers
    unverified: list[tuple[int, int]] = field(default_factory=list)


def brief(facts: ReplicaFacts) -> Brief:
    """The brief of a replica."""
    copy_time = facts.broker_time if facts.broker_time >= 0 else facts.any_time
    opened = open_here(facts.transactions)
    bounds = Bounds(
        log_start=facts.own_start,
        log_end=facts.log_end,
        high_watermark=facts.high_watermark,
        copy_time=copy_time,
        clean_shutdown=facts.clean_shutdown and not facts.cut_short,
        topic_id=facts.topic_id,
        broker_id=facts.broker_id,
        starts_late=facts.starts_late,
        end_damaged=any(last >= facts.log_end for _, last in facts.damaged),
        open_known=facts.lost_at < 0 and not facts.ends_early and len(opened) < MOST_OPEN and not facts.open_unknown,
    )
    lost = facts.lost_at  # behind it bytes could not be read: no history is whole across it
    broken = [offset for offset, *_ in facts.unreadable_records] + [lost] * (lost >= 0)
    broken += [facts.log_end] * facts.cut_short
    broken += [-1 if facts.coordinator_log is None else facts.coordinator_log.broken_at]
    broken += [last for _, last in facts.damaged]  # records of these batches are no evidence
    coordinator_log = _coordinator_log(facts)
    started = facts.leader_epochs[-1][1] if facts.leader_epochs else -1
    return Brief(
        join_key=facts.join_key,
        log_dir=facts.log_dir,
        broker_id=facts.broker_id,
        topic=facts.topic,
        partition=facts.partition,
        rank=facts.rank,
        settled_end=facts.settled_end,
        bounds=bounds,
        broker_time=facts.broker_time,
        any_time=facts.any_time,
        intact_from=max(facts.intact_from, lost, _behind_holes(facts)),
        first_offset=facts.segment_bases[0] if facts.segment_bases else 0,
        text=facts.text,
        lacks_end=facts.lacks_end,
        epoch_start=started,
        ends_early=facts.ends_early,
        abort_indexes=bool(facts.abort_indexes),
        coordinator_log=coordinator_log,
        broken_at=max((b for b in broken if b >= 0), default=None),
        open_here=opened,
        ended=_a_producer(facts.transactions, first=False),
        undecided=NOTHING_UNDECIDED if coordinator_log is None else _undecided(coordinator_log),
        went_back=_went_back(facts.transactions, coordinator_log),
        oldest=_a_producer(facts.transactions, first=True),
        unverified=facts.unverified,
    )


def _behind_holes(facts: ReplicaFacts) -> int:
    """Where the last hole of a coordinator's log ends, -1 without any: no history is whole across one, whoever left it.
    A replica that was fetched anew has those of its leader's cleaner."""
    if facts.topic != TRANSACTION_STATE or not len(facts.events):
        return -1
    if any(facts.dropped_events.get(int(kind)) for kind in HOLES):
        return facts.log_end
    return max((hole_of(e)[1] for e in events_of(facts.events, *HOLES)), default=-1)


def open_here(transactions: np.ndarray) -> dict[int, OpenHere]:
    """The open transactions of a replica by producer id, the oldest :data:`MOST_OPEN` of them."""
    if not len(transactions):
        return {}
    begun = transactions[(transactions["marker_offset"] < 0) & (transactions["first_offset"] >= 0)]
    begun = begun[np.argsort(begun["first_offset"], kind="stable")[:MOST_OPEN]]
    return {
        int(t["producer_id"]): OpenHere(int(t["first_offset"]), int(t["last_epoch"]), int(t["prev_marker_time"]))
        for t in begun
    }


def _a_producer(transactions: np.ndarray, *, first: bool) -> np.ndarray:
    """One marker of each producer, rows of :data:`ENDED`: its first or its last; the oldest or the newest of them, at
    most :data:`MOST_ENDED`."""
    if not len(transactions):
        return NOTHING_ENDED
    rows = transactions[(transactions["marker_offset"] >= 0) & (transactions["repeated"] == 0)]
    found = np.zeros(len(rows), ENDED)
    columns = ("producer_id", "marker_epoch", "marker_timestamp", "prev_marker_time", "commit")
    for name, column in zip(ENDED.names or (), columns, strict=True):
        found[name] = rows[column]
    found = found[np.lexsort((rows["marker_offset"], found["producer_id"]))]
    other = np.ones(len(found), bool)
    if first:
        other[1:] = found["producer_id"][1:] != found["producer_id"][:-1]
    else:
        other[:-1] = found["producer_id"][1:] != found["producer_id"][:-1]
    found = found[other]
    in_order = found[np.argsort(found["time"], kind="stable")]
    return in_order[:MOST_ENDED] if first else in_order[-MOST_ENDED:]


def _went_back(transactions: np.ndarray, coordinator_log: CoordinatorLog | None) -> int:
    """By how much (ms) a marker's time, or the last one of an id at its coordinator, lies below one before it, at most:
    a clock was set back, or the next leader's is behind."""
    rows = transactions[transactions["marker_offset"] >= 0] if len(transactions) else transactions
    found = [(rows["marker_offset"], rows["marker_timestamp"])] if len(rows) else []
    if coordinator_log is not None:
        columns, there = coordinator_log.last_rows()
        found.append((columns["offset"][there], columns["record_time"][there]))
    fell = max((_fell(offsets, times) for offsets, times in found if len(offsets)), default=0)
    return fell if fell > SAME_CLOCK_MS else 0


def _fell(offsets: np.ndarray, times: np.ndarray) -> int:
    in_order = times[np.argsort(offsets, kind="stable")]
    return int((np.maximum.accumulate(in_order) - in_order).max())


def _undecided(log: CoordinatorLog) -> np.ndarray:
    """The producer ids of the ids whose last record shows a transaction that is not complete."""
    columns, there = log.last_rows()
    return columns["producer_id"][there & np.isin(columns["state"], (ONGOING, PREPARE_COMMIT, PREPARE_ABORT))]


def entries(table: pa.Table) -> list[Entry]:
    """Rows of ``transaction_log`` as the rules read them, by offset (console text: as printed)."""
    times = ("record_timestamp", "last_update_timestamp", "start_timestamp")  # which Python's dates may not hold
    ms = {name: table[name].cast(pa.int64()).to_pylist() for name in times}
    out = []
    for k, row in enumerate(table.drop_columns(list(times)).to_pylist()):
        names = row["partitions"] or []
        out.append(
            Entry(
                partition=row["partition"],
                offset=_number(row["offset"], BEHIND_OFFSETS + k),
                record_time=_number(ms["record_timestamp"][k]),
                leader_epoch=_number(row["leader_epoch"]),
                transactional_id=row["transactional_id"],
                state=None if row["tombstone"] else row["state"] or f"unknown state {row['status']}",
                producer_id=_number(row["producer_id"]),
                producer_epoch=_number(row["producer_epoch"]),
                timeout_ms=_number(row["timeout_ms"]),
                partitions=frozenset(names),
                partitions_null=bool(row["partitions_null"]),
                last_update=_number(ms["last_update_timestamp"][k]),
                start=_number(ms["start_timestamp"][k]),
                client_version=row["client_transaction_version"] or 0,
                file=row["file"],
                position=_number(row["position"]),
                status=_number(row["status"]),
            )
        )
    return out


def _undamaged(found: list[Entry], facts: ReplicaFacts) -> list[Entry]:
    """The entries of a dump, without those of batches that it shows with a CRC mismatch."""
    wrong = [(e["base_offset"], e["last_offset"]) for e in events_of(facts.events, Kind.CRC)]
    return [entry for entry in found if not any(first <= entry.offset <= last for first, last in wrong)]


def _number(value: int | None, otherwise: int = -1) -> int:
    return otherwise if value is None else value


def _coordinator_log(facts: ReplicaFacts) -> CoordinatorLog | None:
    """What the replica holds of ``__transaction_state``; of texts, which are small, made from their table."""
    table = facts.tables.get("transaction_log")
    if facts.coordinator_log is not None:
        facts.coordinator_log.damaged = {facts.partition: facts.damaged} if facts.damaged else {}
    if facts.coordinator_log is not None or table is None:
        return facts.coordinator_log
    log = pack(_undamaged(entries(table), facts))
    log.damaged = {facts.partition: facts.damaged} if facts.damaged else {}
    log.version_1 = 1 in table["value_version"].unique().to_pylist()
    return log
