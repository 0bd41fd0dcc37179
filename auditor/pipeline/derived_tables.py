"""Tables that are derived from facts, metadata and findings."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from auditor.base.at_rest import Fields
from auditor.base.errors import DecodeError
from auditor.connectors import schema
from auditor.connectors.logdir.files import Inventory
from auditor.connectors.schema import (
    CopyShares,
    MadeOf,
    array_of,
    declared,
    from_columns,
    from_errors,
    lists,
    makes,
    texts,
    with_leader_copy,
)
from auditor.evidence.which_copy import OneCopy
from auditor.facts.arrow_codec import Codec
from auditor.facts.coordinator_history import Transactions, first_rows, transaction_key, transactions
from auditor.facts.coordinator_log import EMPTY, ONGOING, STATES, Columns, CoordinatorLog
from auditor.facts.events import PLACE, EventKind, events_of
from auditor.facts.packed import PackedRows
from auditor.facts.replica_facts import ReplicaFacts, once
from auditor.pipeline import (  # noqa: F401
    cluster_settings,
    finding_tables,
    impact_table,
    lag_table,
    rehearsal_table,
    space_table,
    what_if_verdicts,
)
from auditor.pipeline.cluster_context import BEHIND_OFFSETS
from auditor.pipeline.cluster_settings import ClusterSettings
from auditor.replay.reading.chunks import logs_of
from auditor.rules.committed_offsets import CONSUMER_OFFSETS, watched
from auditor.rules.seen.cluster_view import TRANSACTION_STATE, Cluster
from auditor.rules.seen.view import LogView
from auditor.rules.transactions.making import around_each, marker_clocks, open_transactions
from auditor.transactions.matching import naming, windows_of_markers
from auditor.transactions.record import ITS_COORDINATORS

# Table ``events``: what the model of a correct broker found odd in a replica, before any rule judged it.


EVENTS = declared(
    "events",
    """
    an anomaly that the model of a correct broker found while it replayed a replica. Rules judge it. At most 10,000 \
per kind and replica
    SELECT kind, count(*) AS events FROM events WHERE leader_copy GROUP BY kind ORDER BY events DESC
    kind:string what was odd, such as sequence_gap, offset_hole or epoch_regression
    file:string
    position:long
    base_offset:long first offset of the batch that it is about; -1: none
    last_offset:long last offset of it; -1: none
    producer_id:long
    producer_epoch:int
    max_timestamp:time largest timestamp of the batch, as stored; null where it is not known
    written_at:time when it was written, by brokers' clocks as far as the log shows; null where it is not known
    leader_epoch:int epoch of the leader that appended it; -1: none
    fields:json what its kind has besides, such as expected_sequence and found_sequence
""",
    copy_by="base_offset",
    of=MadeOf.LOG,
)
_NAMES = texts([kind.name.lower() for kind in EventKind])
_NUMBERS = np.array([int(kind) for kind in EventKind], np.int64)  # ascending


@makes("events")
def event_rows(log: LogView) -> Iterator[pa.RecordBatch]:
    """Yield a row per event of each replica, at most 10,000 per kind."""
    return map(_events, log.copies)


def _events(replica: ReplicaFacts) -> pa.RecordBatch:
    events = replica.events
    columns = {name: events[name].copy() for name in PLACE if name in EVENTS.names}
    columns |= {new: events[old].copy() for old, new in schema.RENAMED["events"].items()}
    own = ({k: v for k, v in event.items() if k not in PLACE} for event in events_of(events, *EventKind))
    columns |= {
        "kind": _NAMES.take(array_of(np.searchsorted(_NUMBERS, events["kind"]).astype(np.int64))),
        "file": texts([replica.file(number) for number in events["segment"].tolist()]),
        "fields": texts([json.dumps(fields) for fields in own]),
    }
    return from_columns(EVENTS, replica.table_key, len(events), columns)


# Table ``transactions``: records of the coordinators' log joined with those of the partitions' logs.
#
# Each log gives shares by partition of the coordinators' log, and one task per such partition joins them. Branches of
# transactions that the coordinators' log lacks are shared by their producer, and put together by what markers show.


TRANSACTIONS = declared(
    "transactions",
    """
    a transaction with all its partitions, by the coordinators' logs. If these lack it (compacted, or not in the \
input), it is made from data and markers in the partitions, with null for what only a coordinator knows
    SELECT transactional_id, count(outcome) AS decided, count(*) FILTER (WHERE outcome = 'ABORT') AS aborted FROM \
transactions GROUP BY ALL ORDER BY aborted DESC
    transactional_id:string `transactional.id` of the producer; null where it is not known
    transaction_key:string joins it with `transaction_partitions`: producer id and `offset`; null without that
    producer_id:long
    producer_epoch:int epoch of the first record that is left of it, or of its data
    state:string its last state in the coordinator's log; null: not there
    outcome:string COMMIT or ABORT; null while neither is decided
    decided_by:string client, timeout, fenced (by a new instance), operator (fenced the id); null: open, or not known
    timeout_ms:int `transaction.timeout.ms` of the producer, ms; null where it is not known
    began_earliest_at:time when it began, by its coordinator's clock, else by its partitions' brokers'; null: not known
    began_latest_at:time the same, at the latest; null where it is not known
    decided_at:time when it was decided, by the same clock; null: that record is not there, yet or any more
    ended_earliest_at:time when it was decided, or its markers written; null where it is not known
    ended_latest_at:time when the coordinator knew all markers written; null while it does not
    duration_ms:long from its beginning until it was complete, by one broker's clock; null where either is not known
    duration_least_ms:long from the latest beginning to the earliest end; null where it is not known
    duration_most_ms:long from the earliest beginning to the latest end; null where it is not known
    partitions:strings its partitions as `topic-partition`; null where only its end is left; without a \
coordinator's record those with its data
    partitions_seen:int in how many of them the input has its data or marker: of those are the next three
    batches:long its data batches there
    records:long its records in them
    bytes:long bytes of these batches
    groups:strings consumer groups whose offsets it carries, as far as `__consumer_offsets` in the input shows
    offset:long offset of its first record that is left in the coordinator's log; null in console text
    last_offset:long offset of its last record there; null in console text
""",
    of=MadeOf.LOGS,
)
CLIENT, TIMEOUT, FENCED, OPERATOR, COORDINATOR = "client", "timeout", "fenced", "operator", "coordinator"
OPERATORS_TIMEOUT_MS = 1  # what Admin.fenceProducers asks an id's next producer for
# What the partitions' logs add to a transaction, by its producer id and the offset of its first record that is left.
BRANCH = np.dtype(
    [("producer_id", "i8"), ("offset", "i8"), ("logs", "i8"), ("batches", "i8"), ("records", "i8"), ("bytes", "i8")]
)
NO_BRANCHES = np.empty(0, BRANCH)
# A branch of a transaction that no coordinator's log has; ``earliest``, ``latest``: when its data begins, by brokers.
BRANCH_ALONE = np.dtype(
    [(name, "i8") for name in ("producer_id", "first_offset", "batches", "records", "bytes", "earliest", "latest")]
    + [(name, "i8") for name in ("first_timestamp", "last_timestamp", "marker_offset", "marker_timestamp")]
    + [("producer_epoch", "i4"), ("commit", "i1")]
)
PRODUCER_PARTS = 50  # as many tasks put the branches of such transactions together
FOREVER = (1 << 63) - 1

_OUTCOMES = texts(["ABORT", "COMMIT"])
Keyed = tuple[str, int, bytes]  # cluster, partition of the coordinators' log, packed shares


def shares_of(clusters: Mapping[str, Cluster], packed: Iterable[bytes]) -> Iterator[Keyed]:
    """Yield what some logs, given as packed facts, contribute to ``transactions``, together."""
    by_partition: dict[tuple[str, int], list[Share]] = {}
    for replicas in logs_of(packed):
        join_key = replicas[0].join_key
        for partition, share in shares(LogView(replicas, clusters[join_key])):
            by_partition.setdefault((join_key, partition), []).append(share)
    for (join_key, partition), some in by_partition.items():
        yield join_key, partition, SHARES_AT_REST.pack(some)


def coordinated_rows(cluster: Cluster, partition: int, packed: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
    """Yield the transactions of one partition of the coordinators' log, a batch per piece of it."""
    history, shares = cluster.coordinator, [share for some in packed for share in SHARES_AT_REST.unpack(some)]
    if partition < 0:
        yield from _of_branches(shares)
        return
    place = next((share.at for share in shares if share.at is not None), None)
    if history is None or place is None:
        return
    branches = summed(np.concatenate([NO_BRANCHES, *(share.branches for share in shares)]))
    groups: dict[tuple[int, int], set[str]] = {}
    for transaction, names in itertools.chain.from_iterable(share.groups.items() for share in shares):
        groups.setdefault(transaction, set()).update(names)
    for log, counts in history.whole_ids(partition):
        for columns in log.all_pieces():
            t = _counting(transactions(columns, log.damaged), counts[columns["id"]])
            if len(t.starts):
                values = _own(log, columns, t) | _of_partitions(columns, t, branches, groups)
                yield from_columns(TRANSACTIONS, (*place, TRANSACTION_STATE, partition), len(t.starts), values)


def _counting(t: Transactions, counts: np.ndarray) -> Transactions:
    wanted = counts[t.starts]
    ends = type(t.ends)(*(column[wanted] for column in t.ends))
    return Transactions(t.starts[wanted], t.ongoing[wanted], ends, t.forced[wanted])


def _own(log: CoordinatorLog, columns: Columns, t: Transactions) -> Fields:
    """Columns from the coordinator's log itself."""
    prepare, complete, decision = t.ends
    last = np.maximum.reduce([t.ongoing, prepare, complete])
    began = begun(columns, t)
    updated = np.where(columns["last_update"] >= 0, columns["last_update"], columns["record_time"])
    decided = np.where(prepare >= 0, updated[prepare], -1)
    over = np.where(complete >= 0, np.maximum(updated[complete], columns["record_time"][complete]), -1)
    earliest = np.where(complete >= 0, updated[complete], decided)
    ids, names = np.unique(columns["id"][t.starts], return_inverse=True)
    ongoing = t.ongoing >= 0
    members = np.where(prepare >= 0, prepare, t.ongoing)
    return {
        "transactional_id": texts([log.ids[n] for n in ids.tolist()]).take(array_of(names.astype(np.int64))),
        "transaction_key": _coordinated_keys(columns["producer_id"][t.starts], columns["offset"][t.starts]),
        "producer_id": columns["producer_id"][t.starts],
        "producer_epoch": columns["producer_epoch"][t.starts],
        "state": texts([STATES[n] for n in columns["state"][last].tolist()]),
        "outcome": _OUTCOMES.take(array_of(np.maximum(decision, 0).astype(np.int64), decision < 0)),
        "decided_by": texts(decided_by(columns, t, began)),
        "timeout_ms": columns["timeout_ms"][last],
        "began_earliest_at": began,
        "began_latest_at": began,
        "decided_at": decided,
        "ended_earliest_at": earliest,
        "ended_latest_at": over,
        "duration_ms": _between(began, over),
        "duration_least_ms": _between(began, earliest),
        "duration_most_ms": _between(began, over),
        "partitions": lists(
            [
                sorted(log.partitions(code)) if shown else None
                for code, shown in zip(
                    columns["set"][members].tolist(), (ongoing | (prepare >= 0)).tolist(), strict=True
                )
            ]
        ),
        "offset": _offsets(columns["offset"][t.starts]),
        "last_offset": _offsets(columns["offset"][last]),
    }


def _offsets(offsets: np.ndarray) -> pa.Array:
    return array_of(offsets, offsets >= BEHIND_OFFSETS)


def _coordinated_keys(producers: np.ndarray, offsets: np.ndarray) -> pa.Array:
    return texts([transaction_key(*pair) for pair in zip(producers.tolist(), offsets.tolist(), strict=True)])


def _between(begin: np.ndarray, end: np.ndarray) -> pa.Array:
    """Milliseconds between two times, null where either is unknown."""
    return array_of(end - begin, (begin < 0) | (end < 0))


def _of_partitions(
    columns: Columns, t: Transactions, branches: np.ndarray, groups: dict[tuple[int, int], set[str]]
) -> Fields:
    """Columns from the logs of the transactions' partitions."""
    producers, offsets = columns["producer_id"][t.starts], columns["offset"][t.starts]
    rows = np.append(branches, np.zeros(1, BRANCH))[_places(branches, producers, offsets)]
    of = [
        sorted(groups[pair]) if pair in groups else []
        for pair in zip(producers.tolist(), offsets.tolist(), strict=True)
    ]
    return {
        "partitions_seen": rows["logs"].astype(np.int32),
        "batches": rows["batches"].copy(),
        "records": rows["records"].copy(),
        "bytes": rows["bytes"].copy(),
        "groups": lists(of),
    }


def _places(branches: np.ndarray, producers: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Row of each transaction in ``branches``, which ascend; the number of branches for none.

    Cost: linear in the piece.
    """
    ids, which = np.unique(producers, return_inverse=True)
    producer_ids = np.ascontiguousarray(branches["producer_id"])
    first, end = np.searchsorted(producer_ids, ids), np.searchsorted(producer_ids, ids, side="right")
    counts = end - first
    rows = np.repeat(first - np.append(0, np.cumsum(counts)[:-1]), counts) + np.arange(counts.sum())
    _, numbers = np.unique(np.append(branches["offset"][rows], offsets), return_inverse=True)
    names = np.repeat(np.arange(len(ids)), counts) << 32 | numbers[: len(rows)]
    wanted = which << 32 | numbers[len(rows) :]
    position = np.searchsorted(names, wanted)
    matches = np.append(names, -1)[position] == wanted
    out: np.ndarray = np.where(matches, np.append(rows, 0)[position], len(branches))
    return out


def begun(columns: Columns, piece: Transactions) -> np.ndarray:
    """Return when each transaction began by the coordinator's clock (ms; -1: unknown)."""
    times = columns["start"][piece.starts]
    first = first_rows(piece.starts, columns["state"] == ONGOING)
    update_time = np.where(columns["last_update"] >= 0, columns["last_update"], columns["record_time"])
    return np.where((times < 0) & (first >= 0), update_time[first], times)


def decided_by(columns: Columns, piece: Transactions, began: np.ndarray) -> list[str | None]:
    """Tell who decided each transaction.

    The client, the coordinator after the timeout, another instance of the id (fenced), or an operator
    (Admin.fenceProducers). None where it is open or the log no longer shows it.
    """
    prepare, complete = piece.ends.prepare, piece.ends.complete
    commit = piece.ends.decision == 1
    has_records = (prepare >= 0) & (prepare > piece.starts)
    timeout = columns["timeout_ms"][prepare]
    waited = columns["last_update"][prepare] - began
    late = (began >= 0) & (timeout > 0) & (waited >= timeout)
    last = np.maximum(prepare, complete)
    after = np.minimum(last + 1, len(columns["id"]) - 1)
    same = (after > last) & (columns["id"][after] == columns["id"][last])
    asked = same & (columns["state"][after] == EMPTY) & (columns["timeout_ms"][after] == OPERATORS_TIMEOUT_MS)
    forced = piece.forced
    choices = [commit | (has_records & ~forced), forced & late, forced & asked, forced & (began >= 0), forced]
    names = [CLIENT, TIMEOUT, OPERATOR, FENCED, COORDINATOR, None]
    return [names[n] for n in np.select(choices, range(len(choices)), len(choices)).tolist()]


class Share(NamedTuple):
    """What one log adds to the transactions of one partition of ``__transaction_state``.

    ``at``: cluster, broker and log directory of the leader replica, set for the coordinator log itself alone;
    ``groups``: the consumer groups whose offsets a transaction commits, by producer id and first offset. ``alone``: its
    branches of transactions that no coordinator's log has, of ``log`` (cluster, topic-partition), with the ids of their
    ``owners``; ``groups`` then are by producer id and first offset of the branch.
    """

    at: tuple[str | None, int | None, str] | None
    branches: np.ndarray
    groups: dict[tuple[int, int], list[str]]
    alone: np.ndarray = NO_BRANCHES
    log: tuple[str | None, str] = (None, "")
    owners: tuple[tuple[int, str | None], ...] = ()


SHARES_AT_REST = Codec(Share)


@once
def windows_of_rows(log: LogView) -> np.ndarray:
    """Return for each transaction of the leader replica its row in ``naming(log).rows``, -1 for none."""
    window_rows, named = windows_of_markers(log), naming(log).rows
    if not len(named):
        return window_rows
    places = {
        (int(row["producer_id"]), int(row["first_offset"])): number
        for number, row in enumerate(log.leader.transactions)
        if row["marker_offset"] < 0
    }
    for t in open_transactions(log) if places else ():
        span = naming(log).of(int(t.row["producer_id"]))
        if t.case in ITS_COORDINATORS and span.stop > span.start and not named["has_complete"][span.stop - 1]:
            window_rows[places[int(t.row["producer_id"]), int(t.row["first_offset"])]] = span.stop - 1
    return window_rows


def keys_of(log: LogView) -> list[str | None]:
    """Return the key that joins each transaction of the leader replica with ``transactions``."""
    rows = naming(log).rows
    return [
        None if n < 0 else transaction_key(int(rows["producer_id"][n]), int(rows["offset"][n]))
        for n in windows_of_rows(log).tolist()
    ]


def begun_at(log: LogView) -> np.ndarray:
    """Return when each transaction of the leader replica began by the coordinator's clock, ms; -1 where unknown."""
    return np.append(naming(log).rows["begun"], -1)[windows_of_rows(log)]


def shares(log: LogView) -> Iterator[tuple[int, Share]]:
    """Yield what a log adds to transactions, by the partition of ``__transaction_state`` that has them.

    A negative number stands for producers of which no partition has these transactions.
    """
    if log.topic == TRANSACTION_STATE:
        c = log.leader
        yield log.partition, Share((c.cluster_id, c.broker_id, c.log_dir), NO_BRANCHES, {})
        return
    window_rows = windows_of_rows(log)
    yield from _alone(log, np.flatnonzero((window_rows < 0) & (log.leader.transactions["first_offset"] >= 0)))
    which = np.flatnonzero(window_rows >= 0)
    if not len(which):
        return
    windows, rows = naming(log).rows[window_rows[which]], log.leader.transactions[which]
    groups = _groups(log, rows)
    partitions = _coordinators(log, windows)
    for partition in np.unique(partitions).tolist():
        inside = np.flatnonzero(partitions == partition)
        yield partition, Share(None, _branches(windows[inside], rows[inside]), _by_key(windows[inside], inside, groups))


def _alone(log: LogView, which: np.ndarray) -> Iterator[tuple[int, Share]]:
    """What no coordinator's log has, by producer: all branches of one come together."""
    rows, c = log.leader.transactions[which], log.leader
    if not len(rows):
        return
    groups = _groups(log, rows)
    out = np.zeros(len(rows), BRANCH_ALONE)
    for name in set(out.dtype.names or ()) & set(rows.dtype.names or ()):
        out[name] = rows[name]
    out["earliest"], out["latest"] = (bounds[which] for bounds in _written_bounds(log, c))
    parts = -1 - rows["producer_id"] % PRODUCER_PARTS
    for part in np.unique(parts).tolist():
        inside = np.flatnonzero(parts == part)
        ids = np.unique(rows["producer_id"][inside]).tolist()
        by_row = {
            (int(row["producer_id"]), int(row["first_offset"])): groups[number]
            for number, row in zip(inside.tolist(), rows[inside], strict=True)
            if groups and groups[number]
        }
        owners = tuple((producer_id, log.owner(producer_id)) for producer_id in ids)
        yield part, Share(None, NO_BRANCHES, by_row, out[inside], (c.cluster_id, log.name), owners)


def _of_branches(shares: Sequence[Share]) -> Iterator[pa.RecordBatch]:
    """Transactions that no coordinator's log has, from their branches in all logs."""
    shares = sorted(shares, key=lambda share: share.log[1])
    rows = np.concatenate([share.alone for share in shares])
    logs = np.repeat(np.arange(len(shares)), [len(share.alone) for share in shares])
    ended = np.where(rows["marker_offset"] >= 0, rows["marker_timestamp"], FOREVER)
    order = np.lexsort((logs, ended, rows["producer_epoch"], rows["producer_id"]))
    rows, logs = rows[order], logs[order]
    whole, owners = _together(rows, logs), [dict(share.owners) for share in shares]
    starts = np.flatnonzero(np.diff(whole, prepend=-1))
    first = rows[starts]
    closed = first["marker_offset"] >= 0
    members = np.split(np.arange(len(rows)), starts[1:])
    earliest = np.minimum.reduceat(rows["earliest"], starts)
    latest = np.minimum.reduceat(np.where(rows["latest"] < 0, FOREVER, rows["latest"]), starts)
    marked = np.where(closed, np.maximum.reduceat(rows["marker_timestamp"], starts), -1)
    latest = np.where(latest == FOREVER, -1, latest)
    columns: Fields = {name: np.add.reduceat(rows[name], starts) for name in ("batches", "records", "bytes")}
    columns |= {
        "transactional_id": texts([owners[logs[n]][int(rows["producer_id"][n])] for n in starts.tolist()]),
        "producer_id": first["producer_id"].copy(),
        "producer_epoch": first["producer_epoch"].copy(),
        "outcome": _OUTCOMES.take(array_of((first["commit"] == 1).astype(np.int64), ~closed)),
        "began_earliest_at": earliest,
        "began_latest_at": latest,
        "ended_earliest_at": marked,
        "duration_least_ms": array_of(np.maximum(marked - latest, 0), (marked < 0) | (latest < 0)),
        "partitions": lists([sorted({shares[logs[n]].log[1] for n in of.tolist()}) for of in members]),
        "partitions_seen": np.array([len(np.unique(logs[of])) for of in members], np.int32),
        "groups": lists([sorted({g for n in of for g in _groups_of(shares[logs[n]], rows[n])}) for of in members]),
        "log_dir": None,
    }
    yield from_columns(TRANSACTIONS, (shares[0].log[0], None, "", None, None), len(starts), columns)


def _groups_of(share: Share, row: np.void) -> Sequence[str]:
    return share.groups.get((int(row["producer_id"]), int(row["first_offset"])), ())


def _together(rows: np.ndarray, logs: np.ndarray) -> np.ndarray:
    """Number the transactions of branches, which are in the order of producer, epoch and marker's time.

    A producer's next transaction begins once all markers of the one before are written. So a branch is of another one
    if its log has a branch of this one, if its outcome is another, or if its data was written behind a marker of it, by
    the brokers' clocks, or by the producer's as far as that agrees with them.
    """
    out = np.zeros(len(rows), np.int64)
    fast = _ahead(rows)
    number, seen, begun, marked = -1, set[int](), (-1, -1, -1), -1
    fields = ("producer_id", "producer_epoch", "marker_offset", "commit", "marker_timestamp", "earliest")
    values = [*zip(*(rows[name].tolist() for name in fields), (rows["first_timestamp"] - fast).tolist(), strict=True)]
    for n, (producer, epoch, marker, commit, time, earliest, first) in enumerate(values):
        ends_as = (producer, epoch, commit if marker >= 0 else -1)
        if ends_as != begun or (marker >= 0 and (int(logs[n]) in seen or max(earliest, first) > marked)):
            number, begun, marked = number + 1, ends_as, time
            seen.clear()
        seen.add(int(logs[n]))
        out[n] = number
    return out


def _ahead(rows: np.ndarray) -> np.ndarray:
    """By how much the clock of each row's producer is ahead of the brokers', at least (ms)."""
    ids, which = np.unique(rows["producer_id"], return_inverse=True)
    ahead = np.zeros(len(ids), np.int64)
    closed = rows["marker_offset"] >= 0
    np.maximum.at(ahead, which[closed], rows["last_timestamp"][closed] - rows["marker_timestamp"][closed])
    out: np.ndarray = ahead[which]
    return out


def _branches(windows: np.ndarray, rows: np.ndarray) -> np.ndarray:
    out = np.zeros(len(rows), BRANCH)
    out["producer_id"], out["offset"], out["logs"] = windows["producer_id"], windows["offset"], 1
    for name in ("batches", "records", "bytes"):
        out[name] = rows[name]
    return summed(out, logs=False)


def summed(branches: np.ndarray, *, logs: bool = True) -> np.ndarray:
    """Sum branches to one row per transaction; ``logs``: whether the rows come from different logs."""
    order = np.lexsort((branches["offset"], branches["producer_id"]))
    rows = branches[order]
    new = np.ones(len(rows), bool)
    new[1:] = (rows["producer_id"][1:] != rows["producer_id"][:-1]) | (rows["offset"][1:] != rows["offset"][:-1])
    starts = np.flatnonzero(new)
    out = rows[starts]
    for name in ("logs", "batches", "records", "bytes") if len(starts) else ():
        if logs or name != "logs":
            out[name] = np.add.reduceat(rows[name], starts)
    return out


def _coordinators(log: LogView, windows: np.ndarray) -> np.ndarray:
    named, history = naming(log), log.cluster.coordinator
    assert history is not None
    out = np.full(len(windows), -1)
    rows = np.maximum.reduce([windows[name] for name in ("first_row", "prepare_row", "ongoing_row", "added_row")])
    for chunk in np.unique(windows["chunk"]).tolist():
        in_chunk = windows["chunk"] == chunk
        source, columns = named.chunks[chunk]
        if source is history.shared:
            out[in_chunk] = source.first_partitions()[columns["id"][rows[in_chunk]]]
        else:
            out[in_chunk] = columns["partition"][rows[in_chunk]]
    return out


def _groups(log: LogView, rows: np.ndarray) -> list[list[str]]:
    # By the first and last commit of each producer for a group, in transactions that were not aborted.
    if log.topic != CONSUMER_OFFSETS:
        return []
    of: dict[int, list[tuple[str, int, int]]] = {}
    for group, producers in watched(log).committers.items():
        for producer_id, (first, last) in producers.items():
            of.setdefault(producer_id, []).append((group, first.record_offset, last.record_offset))
    out = []
    for row in rows:
        writers = of.get(int(row["producer_id"]), []) if row["records"] > 0 else []
        begin, end = int(row["first_offset"]), int(row["last_offset"])
        inside = [group for group, first, last in writers if len(writers) == 1 or (first <= end and last >= begin)]
        out.append(sorted(inside))
    return out


def _by_key(windows: np.ndarray, which: np.ndarray, groups: list[list[str]]) -> dict[tuple[int, int], list[str]]:
    groups_by_key: dict[tuple[int, int], list[str]] = {}
    for window, number in zip(windows, which.tolist(), strict=True) if groups else ():
        if groups[number]:
            groups_by_key.setdefault((int(window["producer_id"]), int(window["offset"])), []).extend(groups[number])
    return groups_by_key


# Tables derived from facts: of the replay, the clusters' metadata and the judge step.


# What each replica's replay leaves of its producers, as a broker would hold it at the log's end.
PRODUCER_STATES = declared(
    "producer_states",
    """
    a producer as a broker would hold it at the log's end
    SELECT producer_id, transactional_id, max(last_timestamp) AS seen FROM producer_states GROUP BY ALL ORDER BY seen
    producer_id:long
    producer_epoch:int
    last_sequence:int sequence number of its last record; -1: none since its epoch began
    last_offset:long offset of its last record; -1: none
    offset_delta:int last offset less first offset of its last batch; -1: not known
    last_timestamp:time timestamp of its last batch or marker; null where it is not known
    coordinator_epoch:int epoch of the coordinator that sent its last marker; -1: none
    current_txn_first_offset:long first offset of its open transaction; -1: none is open
    transactional_id:string
    batches:long its data batches in the log; 0: only a snapshot knows it
    records:long its records in them
    markers:long its transactions' markers in the log
    first_offset:long of its first batch at or behind the log start; -1: none
    first_sequence:int sequence number that this batch begins with; -1: none
    max_epoch:int its largest epoch in the log; -1: none
    last_seen_at:time when it wrote last, at the earliest, by markers, which carry brokers' times; null: none
    expires_at:time when the broker forgets it, which goes by `last_timestamp`; null while a transaction is open
""",
    of=MadeOf.LOG,
)
TRANSACTION_PARTITIONS = declared(
    "transaction_partitions",
    """
    a transaction of a producer in a replica; `outcome` is null while it is open. `class` is then one of: \
`active`, `late`, `hanging`, `orphan`, `ghost` or `undecidable`
    SELECT topic, partition, producer_id, first_offset FROM transaction_partitions \
WHERE class = 'hanging'
    producer_id:long
    producer_epoch:int
    transactional_id:string
    outcome:string COMMIT or ABORT; null while it is open
    class:string of an open one in the leader's replica: `active`, `late`, `hanging`, `orphan`, `ghost` or \
`undecidable`; else null
    first_offset:long offset of its first record; -1: a marker that ended nothing here
    last_offset:long offset of its last record; -1: none
    marker_offset:long offset of its marker; -1: it is open
    marker_epoch:int producer epoch of the marker; -1: none
    coordinator_epoch:int epoch of the coordinator that sent the marker; -1: none
    last_stable_offset:long last stable offset behind its marker; -1: none
    first_timestamp:time timestamp of its first batch; else null
    last_timestamp:time timestamp of its last batch; else null
    marker_timestamp:time timestamp of its marker; else null
    batches:long its batches in the log
    records:long its records in them
    bytes:long bytes of these batches
    file:string segment that it begins in; where it has no data, that of its marker
    position:long byte in it
    kind:string closed (data and marker), open, or marker_only: a marker that ended nothing here
    transaction_key:string joins it with `transactions`; null: no coordinator's log shows its transaction
    began_earliest_at:time when its first batch was written, at the earliest, by brokers' clocks; null: not known
    began_latest_at:time the same, at the latest; null where it is not known
""",
    copy_by="marker_offset first_offset",
    of=MadeOf.LOG,
)
UNOPENED = ("unreadable", "vanished")
_KINDS = texts(["closed", "open", "marker_only"])


# Views, and what they are of: the name that a table had before, for one release, and rows that count once.
FORMERLY = {"coordinated_transactions": "transactions"}
ONCE = {"batches_once": "batches", "records_once": "records"}
VIEWS = {former: f"SELECT * FROM {name}" for former, name in FORMERLY.items()}
VIEWS |= {once: f"SELECT * FROM {name} WHERE leader_copy" for once, name in ONCE.items()}


def tables_in(text: str) -> frozenset[str]:
    """Return the tables whose names occur in an SQL text."""
    named = re.findall(r"\w+", text.lower())
    return frozenset((FORMERLY | ONCE).get(name, name) for name in named) & frozenset(NAMES)


# Columns under names that tell their table, so that the plan of a query shows which of them it reads.


def marked(table: str, column: str) -> str:
    """Return the name of a column in plans."""
    return f"of_{table}__{column}"


def columns_in(plan: str, table: str, columns: pa.Schema) -> list[str]:
    """Return the columns of a table that a plan names; the first where it needs none, as to count rows."""
    named = set(re.findall(rf"{marked(table, '')}(\w+)", plan))
    if table == "decode_errors":  # whose rows an audit reads too
        named |= set(columns.names) - {"leader_copy"}
    return [name for name in columns.names if name in named] or columns.names[:1]


def moved(text: str) -> str:
    """Tell where columns that a text names are now, if it cannot be answered; empty for none."""
    named = set(re.findall(r"\w+", text.lower()))
    hints = [
        f"in {table}, {old} is now {new}"
        for table in sorted(tables_in(text) & schema.RENAMED.keys() - {"batches"})
        for old, new in schema.RENAMED[table].items()
        if old in named
    ]
    gone = [name for name in TRANSACTION_PARTITIONS.names if name in named and name not in TRANSACTIONS.names]
    if "transactions" in named and gone:
        hints.append(f"transactions has a row per transaction; in transaction_partitions: {', '.join(gone)}")
    return "; ".join(hints)


def listed(text: str) -> pa.Table | None:
    """Return all tables by name if an SQL text asks for just that (SHOW TABLES); None for any other text."""
    return pa.table({"name": texts(NAMES)}) if re.fullmatch(r"\s*show\s+tables\s*;?\s*", text, re.I) else None


def of_log(replicas: list[ReplicaFacts], cluster: Cluster, table: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a derived table about one log, whose replicas explain each other."""
    shares = cluster.copy_shares([*map(_as_copy, replicas)])
    for of_topic, its_cluster in cluster.by_topic(replicas):
        for rows in schema.ROWS_OF_LOG[table](LogView(of_topic, its_cluster)):
            yield with_leader_copy(table, rows, shares)


def _as_copy(c: ReplicaFacts) -> OneCopy:
    first = c.segment_bases[0] if c.segment_bases else 0
    return OneCopy(
        c.topic, c.partition, c.log_dir, c.broker_id, c.topic_id, c.rank, c.settled_end, c.broker_time, first
    )


def of_metadata(settings: dict[str, ClusterSettings], table: str) -> pa.Table:
    """Return a table of ``__cluster_metadata`` content, of all clusters."""
    by_cluster = [cluster_settings.tables(cluster) for cluster in settings.values()]
    batches = [batch for tables in by_cluster if table in tables for batch in tables[table].to_batches()]
    return pa.Table.from_batches(batches, schema.DECODED[table])


def metadata_errors(inventory: Inventory, errors: list[tuple[str, DecodeError]], shares: CopyShares) -> pa.Table:
    """Return read errors of the clusters' metadata, except files that readers of tables cannot open either."""
    dirs = {log_dir.name: log_dir for log_dir in inventory.log_dirs}

    def rows(log_dir: str, error: DecodeError) -> pa.RecordBatch:
        place = dirs[log_dir]
        key = (place.cluster_id, place.broker_id, log_dir, cluster_settings.METADATA_TOPIC, 0)
        return with_leader_copy("decode_errors", from_errors(key, [error]), shares)

    unread = [(log_dir, error) for log_dir, error in errors if error.reason not in UNOPENED]
    return pa.Table.from_batches([rows(*item) for item in unread], schema.TABLES["decode_errors"].schema())


def _columns(rows: np.ndarray | PackedRows, wanted: pa.Schema) -> Fields:
    """Columns that facts and table have under the same name."""
    return {name: rows[name].copy() for name in rows.dtype.names or () if name in wanted.names}


def _owners(log: LogView, producer_ids: np.ndarray) -> pa.Array:
    """Transactional id of each producer id, null where the coordinator's log does not show it."""
    ids, position = np.unique(producer_ids, return_inverse=True)
    return texts([log.owner(pid) for pid in ids.tolist()]).take(array_of(position.astype(np.int64)))


@makes("producer_states")
def state_rows(log: LogView) -> Iterator[pa.RecordBatch]:
    """Yield a row per producer of each replica."""
    return (_states(log, replica) for replica in log.copies)


def _states(log: LogView, replica: ReplicaFacts) -> pa.RecordBatch:
    rows = replica.producers
    columns = _columns(rows, PRODUCER_STATES)
    columns |= {
        "current_txn_first_offset": rows["txn_first_offset"].copy(),
        "transactional_id": _owners(log, rows["producer_id"]),
        "last_seen_at": _last_seen(log, replica),
        "expires_at": _expiry(log, replica),
    }
    return from_columns(PRODUCER_STATES, replica.table_key, len(rows), columns)


def _last_seen(log: LogView, replica: ReplicaFacts) -> np.ndarray:
    """Return the earliest time each producer of a replica can have written last, by broker clocks, ms; -1: unknown."""
    rows = replica.producers
    offsets, newest, _ = marker_clocks(log)
    before = offsets.searchsorted(rows["data_last_offset"], "left")
    return np.maximum(rows["marker_time"], np.append(newest, -1)[before - 1])


def _expiry(log: LogView, replica: ReplicaFacts) -> np.ndarray:
    """When a broker expires each producer id, ms; -1 while a transaction is open or the time is unknown."""
    rows, allowed = replica.producers, log.cluster.expiration_ms(replica.broker_id)
    idle = (rows["txn_first_offset"] < 0) & (rows["last_timestamp"] >= 0)
    out: np.ndarray = np.where(idle, rows["last_timestamp"] + allowed, -1)
    return out


@makes("transaction_partitions")
def transaction_rows(log: LogView) -> Iterator[pa.RecordBatch]:
    """Yield a row per transaction of a producer in each replica."""
    return (_transactions(log, replica) for replica in log.copies)


def _transactions(log: LogView, replica: ReplicaFacts) -> pa.RecordBatch:
    rows = replica.transactions
    is_open = rows["marker_offset"] < 0
    classes: dict[tuple[int, int], str] = {}
    if replica is log.leader and not log.is_gone:
        classes = {(t.producer_id, t.first_offset): str(t.klass) for t in open_transactions(log)}
    where = zip(rows["producer_id"].tolist(), rows["first_offset"].tolist(), is_open.tolist(), strict=True)
    segments = np.where(rows["segment"] >= 0, rows["segment"], rows["marker_segment"])
    positions = np.where(rows["segment"] >= 0, rows["position"], rows["marker_position"])
    columns = _columns(rows, TRANSACTION_PARTITIONS)
    columns |= {
        "transactional_id": _owners(log, rows["producer_id"]),
        "outcome": _OUTCOMES.take(array_of((rows["commit"] == 1).astype(np.int64), is_open)),
        "class": texts([classes.get((pid, first)) if still else None for pid, first, still in where]),
        "file": texts([replica.file(number) for number in segments.tolist()]),
        "position": positions,
        "kind": _KINDS.take(array_of(np.where(is_open, 1, np.where(rows["first_offset"] < 0, 2, 0)))),
        "transaction_key": _log_keys(log, replica),
    } | _began(log, replica)
    return from_columns(TRANSACTION_PARTITIONS, replica.table_key, len(rows), columns)


def _began(log: LogView, replica: ReplicaFacts) -> dict[str, np.ndarray]:
    """Bounds of when each transaction began: between markers, and not before its coordinator added the partition."""
    earliest, latest = _written_bounds(log, replica)
    if replica is log.leader:
        earliest = np.where(earliest < 0, earliest, np.maximum(earliest, begun_at(log)))
    return {"began_earliest_at": earliest, "began_latest_at": latest}


def _written_bounds(log: LogView, replica: ReplicaFacts) -> tuple[np.ndarray, np.ndarray]:
    """:func:`around` for the first data of each transaction of a replica; -1 too where it has none."""
    rows = replica.transactions
    bounds = np.full((2, len(rows)), -1)
    data = np.flatnonzero(rows["first_offset"] >= 0)
    if not log.is_gone and replica not in log.of_another and len(data):  # the offsets of the leader replica
        bounds[:, data] = around_each(log, rows["producer_id"][data], rows["first_offset"][data])
    return bounds[0], bounds[1]


def _log_keys(log: LogView, replica: ReplicaFacts) -> pa.Array:
    """The transaction that each row is a branch of; in a follower, that of the leader's row with the same end."""
    keys = keys_of(log)
    if replica is log.leader:
        return texts(keys)
    of_leader = {_place(row): key for row, key in zip(log.leader.transactions, keys, strict=True)}
    return texts([of_leader.get(_place(row)) for row in replica.transactions])


def _place(row: np.void) -> tuple[int, int, int]:
    marker = int(row["marker_offset"])
    return int(row["producer_id"]), marker, int(row["first_offset"]) if marker < 0 else -1


# All tables that a query may name are declared now.


OF_FACTS = schema.names(MadeOf.LOG, MadeOf.LOGS)
NAMES = schema.names(*(made_of for made_of in MadeOf if made_of is not MadeOf.RUN))


def all_columns(payload: bool = False) -> dict[str, pa.Schema]:
    """Return the columns of each of them; ``payload``: with the keys and values of records."""
    return {name: schema.TABLES[name].schema(payload) for name in NAMES}
