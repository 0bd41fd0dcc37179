"""The transactions of the coordinators' logs, a row each: what the rule on abort rates counts, and the table shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from auditor.facts.coordinator_log import (
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    Columns,
    CoordinatorLog,
    Damaged,
    tally,
    windows_of,
)
from auditor.rules.lib.group_offsets import watched
from auditor.rules.seen.memo import once
from auditor.rules.seen.named import Ends, ends_of, first_rows, last_rows
from auditor.rules.seen.view import LogView
from auditor.rules.transactions.open_transactions import open_transactions
from auditor.rules.transactions.windows import naming, windows_of_markers

CLIENT, TIMEOUT, FENCED, OPERATOR, COORDINATOR = "client", "timeout", "fenced", "operator", "coordinator"
OPERATORS_TIMEOUT_MS = 1  # what Admin.fenceProducers asks an id's next producer for
# What the partitions' logs add to a transaction, by its producer id and the offset of its first record that is left.
BRANCH = np.dtype(
    [("producer_id", "i8"), ("offset", "i8"), ("logs", "i8"), ("batches", "i8"), ("records", "i8"), ("bytes", "i8")]
)


class Transactions(NamedTuple):
    """The transactions of a piece of a coordinator's log, by row numbers of it (-1: no such record).

    ``starts``: the first record that is left; ``forced``: whether its end was the coordinator's own.
    """

    starts: np.ndarray
    ongoing: np.ndarray
    ends: Ends
    forced: np.ndarray


def transactions(columns: Columns, damaged: Damaged | None = None) -> Transactions:
    """Those of a piece, in its order. ``damaged``: the batches of its log whose records are lost."""
    numbers = windows_of(columns, damaged)
    starts = np.flatnonzero((numbers >= 0) & (np.append(-1, numbers[:-1])[: len(numbers)] != numbers))
    inside = numbers >= 0
    ends = ends_of(columns, starts, inside)
    ongoing = last_rows(starts, columns["state"] == ONGOING)
    return Transactions(starts, ongoing, ends, _forced(columns, starts, ends.prepare))


def _forced(columns: Columns, starts: np.ndarray, prepare: np.ndarray) -> np.ndarray:
    """Which aborts the coordinator decided by itself: the epoch rises from the record before to the abort (by two,
    where each end raises it by one)."""
    before = np.maximum(prepare - 1, -1)
    known = (prepare >= 0) & (before >= starts)
    state, version = columns["state"], columns["client_version"] >= 2
    failed = known & (state[before] != ONGOING)  # a decision whose append failed
    least = 1 + version[prepare] - (failed & version[before])
    rise = columns["producer_epoch"][prepare] - columns["producer_epoch"][before]
    same = columns["producer_id"][prepare] == columns["producer_id"][before]
    found: np.ndarray = known & same & (state[prepare] == PREPARE_ABORT) & (rise >= least)
    return found


def decisions(found: CoordinatorLog) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each id how many transactions were decided, how many aborted, and how many of those by the coordinator.

    A decision that another record of its transaction is behind has failed, and counts for nothing.
    """
    decided, aborted, forced = (np.zeros(found.id_count, np.int64) for _ in range(3))
    for columns in found.all_pieces():
        mine = transactions(columns, found.damaged)
        ids, prepare = columns["id"][mine.starts], mine.ends.prepare
        abort = (prepare >= 0) & (columns["state"][prepare] == PREPARE_ABORT)
        tally(decided, ids[prepare >= 0])
        tally(aborted, ids[abort])
        tally(forced, ids[mine.forced])
    return decided, aborted, forced


def begun(columns: Columns, mine: Transactions) -> np.ndarray:
    """When each began, by its coordinator's clock (ms; -1: not known). Every record of it has that time."""
    times = columns["start"][mine.starts]
    first = first_rows(mine.starts, columns["state"] == ONGOING)
    at = np.where(columns["last_update"] >= 0, columns["last_update"], columns["record_time"])
    found: np.ndarray = np.where((times < 0) & (first >= 0), at[first], times)
    return found


def decided_by(columns: Columns, mine: Transactions, began: np.ndarray) -> list[str | None]:
    """Who decided each: the client, the coordinator after the time-out, another instance of the id (fenced), or an
    operator who fenced it; None where it is open, or the log no longer shows."""
    prepare, complete = mine.ends.prepare, mine.ends.complete
    commit = mine.ends.decision == 1
    seen = (prepare >= 0) & (prepare > mine.starts)
    timeout = columns["timeout_ms"][prepare]
    waited = columns["last_update"][prepare] - began
    late = (began >= 0) & (timeout > 0) & (waited >= timeout)
    last = np.maximum(prepare, complete)
    after = np.minimum(last + 1, len(columns["id"]) - 1)
    same = (after > last) & (columns["id"][after] == columns["id"][last])
    asked = same & (columns["state"][after] == EMPTY) & (columns["timeout_ms"][after] == OPERATORS_TIMEOUT_MS)
    forced = mine.forced
    choices = [commit | (seen & ~forced), forced & late, forced & asked, forced & (began >= 0), forced]
    names = [CLIENT, TIMEOUT, OPERATOR, FENCED, COORDINATOR, None]
    return [names[n] for n in np.select(choices, range(len(choices)), len(choices)).tolist()]


class Share(NamedTuple):
    """What one log has to say of the transactions of one partition of the coordinators' log.

    ``at``: cluster, broker and log directory of the leader replica, of that log itself alone; ``groups``: the consumer
    groups whose offsets a transaction carries, by its producer id and the offset of its first record.
    """

    at: tuple[str | None, int | None, str] | None
    branches: np.ndarray
    groups: dict[tuple[int, int], list[str]]


@once
def windows_of_rows(log: LogView) -> np.ndarray:
    """Of each transaction of the leader replica the row of ``naming(log).rows`` that it is a branch of, -1 for none."""
    found, named = windows_of_markers(log), naming(log).rows
    places = (
        {
            (int(row["producer_id"]), int(row["first_offset"])): number
            for number, row in enumerate(log.leader.transactions)
            if row["marker_offset"] < 0
        }
        if len(named)
        else {}
    )
    for t in open_transactions(log) if places else ():
        mine = naming(log).of(int(t.row["producer_id"]))
        if t.klass in ("active", "late") and mine.stop > mine.start and not named["has_complete"][mine.stop - 1]:
            found[places[int(t.row["producer_id"]), int(t.row["first_offset"])]] = mine.stop - 1
    return found


def keys(log: LogView) -> list[str | None]:
    """What joins each transaction of the leader replica with the table of whole transactions."""
    rows = naming(log).rows
    return [
        None if n < 0 else key(int(rows["producer_id"][n]), int(rows["offset"][n]))
        for n in windows_of_rows(log).tolist()
    ]


def begun_at(log: LogView) -> np.ndarray:
    """When each of them began by its coordinator's clock, ms; -1 where that is not known."""
    times = np.append(naming(log).rows["begun"], -1)
    found: np.ndarray = times[windows_of_rows(log)]
    return found


def key(producer_id: int, offset: int) -> str:
    """A transaction's name. Its beginning would not do: a fast broker has two of one producer in a millisecond."""
    return f"{producer_id}:{offset}"


def shares(log: LogView) -> Iterator[tuple[int, Share]]:
    """What a log knows of transactions, by the partition of the coordinators' log that they are in."""
    history = log.cluster.coordinator
    if history is None:
        return
    if log.topic == "__transaction_state":
        c = log.leader
        yield log.partition, Share((c.cluster_id, c.broker_id, c.log_dir), np.empty(0, BRANCH), {})
        return
    found = windows_of_rows(log)
    which = np.flatnonzero(found >= 0)
    if not len(which):
        return
    windows, rows = naming(log).rows[found[which]], log.leader.transactions[which]
    groups = _groups(log, rows)
    partitions = _coordinators(log, windows)
    for partition in np.unique(partitions).tolist():
        mine = np.flatnonzero(partitions == partition)
        yield partition, Share(None, _branches(windows[mine], rows[mine]), _by_key(windows[mine], mine, groups))


def _branches(windows: np.ndarray, rows: np.ndarray) -> np.ndarray:
    out = np.zeros(len(rows), BRANCH)
    out["producer_id"], out["offset"], out["logs"] = windows["producer_id"], windows["offset"], 1
    for name in ("batches", "records", "bytes"):
        out[name] = rows[name]
    return summed(out, logs=False)


def summed(branches: np.ndarray, *, logs: bool = True) -> np.ndarray:
    """One row a transaction; ``logs``: whether its rows are of different logs."""
    order = np.lexsort((branches["offset"], branches["producer_id"]))
    rows = branches[order]
    new = np.ones(len(rows), bool)
    new[1:] = (rows["producer_id"][1:] != rows["producer_id"][:-1]) | (rows["offset"][1:] != rows["offset"][:-1])
    at = np.flatnonzero(new)
    out = rows[at]
    for name in ("logs", "batches", "records", "bytes") if len(at) else ():
        if logs or name != "logs":
            out[name] = np.add.reduceat(rows[name], at)
    return out


def _coordinators(log: LogView, windows: np.ndarray) -> np.ndarray:
    """The partition of the coordinators' log that each of some windows counts in."""
    named, history = naming(log), log.cluster.coordinator
    assert history is not None
    out = np.full(len(windows), -1)
    rows = np.maximum.reduce([windows[name] for name in ("first_row", "prepare_row", "ongoing_row", "added_row")])
    for chunk in np.unique(windows["chunk"]).tolist():
        mine = windows["chunk"] == chunk
        source, columns = named.chunks[chunk]
        if source is history.shared:
            out[mine] = source.first_partitions()[columns["id"][rows[mine]]]
        else:
            out[mine] = columns["partition"][rows[mine]]
    return out


def _groups(log: LogView, rows: np.ndarray) -> list[list[str]]:
    """For which groups each of some stretches of a partition of ``__consumer_offsets`` has offsets.

    By the first and last commit of each producer for a group, in transactions that were not aborted.
    """
    seen = watched(log)
    if seen is None:
        return []
    of: dict[int, list[tuple[str, int, int]]] = {}
    for group, producers in seen.committers.items():
        for producer_id, (first, last) in producers.items():
            of.setdefault(producer_id, []).append((group, first.record_offset, last.record_offset))
    out = []
    for row in rows:
        known = of.get(int(row["producer_id"]), []) if row["records"] > 0 else []
        begin, end = int(row["first_offset"]), int(row["last_offset"])
        inside = [group for group, first, last in known if len(known) == 1 or (first <= end and last >= begin)]
        out.append(sorted(inside))
    return out


def _by_key(windows: np.ndarray, which: np.ndarray, groups: list[list[str]]) -> dict[tuple[int, int], list[str]]:
    found: dict[tuple[int, int], list[str]] = {}
    for window, number in zip(windows, which.tolist(), strict=True) if groups else ():
        if groups[number]:
            found.setdefault((int(window["producer_id"]), int(window["offset"])), []).extend(groups[number])
    return found
