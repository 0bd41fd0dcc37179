"""The table of whole transactions: what the coordinators' log says of each, with what the partitions' logs hold of it.

Each log gives its shares by partition of the coordinators' log, and one task an own partition puts them together.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from auditor.base.at_rest import Fields
from auditor.connectors.tables.schema import LOG_KEY, array_of, declared, from_columns, lists, texts
from auditor.facts.coordinator_log import STATES, Columns, CoordinatorLog
from auditor.facts.replica_facts import ReplicaFacts
from auditor.pipeline.cluster.brief import BEHIND_OFFSETS
from auditor.rules.seen.cluster_view import TRANSACTION_STATE, Cluster
from auditor.rules.seen.view import LogView
from auditor.rules.transactions import coordinated
from auditor.rules.transactions.coordinated import BRANCH, Transactions

COORDINATED = declared(
    "coordinated_transactions",
    LOG_KEY,
    """
    transactional_id:string `transactional.id` of the producer
    transaction_key:string joins it with its branches in `transactions`: producer id and `offset`
    producer_id:long
    producer_epoch:int epoch of the first record that is left of it
    state:string its last state in the coordinator's log
    outcome:string COMMIT or ABORT; null while neither is decided
    decided_by:string client, timeout, fenced (by a new instance), operator (fenced the id); null: open, or not known
    timeout_ms:int `transaction.timeout.ms` of the producer, ms
    began_not_before:time when it began, by its coordinator's clock; null where that is not written
    began_not_after:time the same, at the latest
    decided_at:time when it was decided, by the same clock; null: that record is not there, yet or any more
    ended_not_before:time when it was decided, or its markers sent
    ended_not_after:time when the coordinator knew all markers written; null while it does not
    duration_ms:long from its beginning until it was complete, by one broker's clock; null where either is not known
    duration_least_ms:long from the latest beginning to the earliest end
    duration_most_ms:long from the earliest beginning to the latest end
    partitions:strings its partitions as `topic-partition`; null where only its end is left
    partitions_seen:int in how many of them the input has its data or marker: of those are the next three
    batches:long its data batches there
    records:long its records in them
    bytes:long bytes of these batches
    groups:strings consumer groups whose offsets it carries, as far as `__consumer_offsets` in the input shows
    offset:long offset of its first record that is left in the coordinator's log; null in console text
    last_offset:long offset of its last record there; null in console text
""",
)
_OUTCOMES = texts(["ABORT", "COMMIT"])
Keyed = tuple[str, int, bytes]  # cluster, partition of the coordinators' log, a packed share


def shares_of(join_key: str, replicas: list[ReplicaFacts], cluster: Cluster) -> Iterator[Keyed]:
    """What one log knows, on its way to who puts the table together."""
    for partition, share in coordinated.shares(LogView(replicas, cluster)):
        yield join_key, partition, pickle.dumps(share, 5)


def rows(cluster: Cluster, partition: int, packed: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
    """The transactions of one partition of the coordinators' log, a batch a piece of it."""
    history, found = cluster.coordinator, [pickle.loads(share) for share in packed]
    at = next((share.at for share in found if share.at is not None), None)
    if history is None or at is None:
        return
    branches = coordinated.summed(np.concatenate([np.empty(0, BRANCH), *(share.branches for share in found)]))
    groups: dict[tuple[int, int], set[str]] = {}
    for name, mine in itertools.chain.from_iterable(share.groups.items() for share in found):
        groups.setdefault(name, set()).update(mine)
    for log, counts in history.whole_ids(partition):
        for columns in log.all_pieces():
            mine = _counting(coordinated.transactions(columns, log.damaged), counts[columns["id"]])
            if len(mine.starts):
                values = _own(log, columns, mine) | _of_partitions(columns, mine, branches, groups)
                yield from_columns(COORDINATED, (*at, TRANSACTION_STATE, partition), len(mine.starts), values)


def _counting(mine: Transactions, counts: np.ndarray) -> Transactions:
    wanted = counts[mine.starts]
    ends = type(mine.ends)(*(column[wanted] for column in mine.ends))
    return Transactions(mine.starts[wanted], mine.ongoing[wanted], ends, mine.forced[wanted])


def _own(log: CoordinatorLog, columns: Columns, mine: Transactions) -> Fields:
    """What the coordinator's log itself says."""
    prepare, complete, decision = mine.ends
    last = np.maximum.reduce([mine.ongoing, prepare, complete])
    began = coordinated.begun(columns, mine)
    updated = np.where(columns["last_update"] >= 0, columns["last_update"], columns["record_time"])
    decided = np.where(prepare >= 0, updated[prepare], -1)
    over = np.where(complete >= 0, np.maximum(updated[complete], columns["record_time"][complete]), -1)
    earliest = np.where(complete >= 0, updated[complete], decided)
    ids, names = np.unique(columns["id"][mine.starts], return_inverse=True)
    told = mine.ongoing >= 0
    members = np.where(prepare >= 0, prepare, mine.ongoing)
    return {
        "transactional_id": texts([log.ids[n] for n in ids.tolist()]).take(array_of(names.astype(np.int64))),
        "transaction_key": _keys(columns["producer_id"][mine.starts], columns["offset"][mine.starts]),
        "producer_id": columns["producer_id"][mine.starts],
        "producer_epoch": columns["producer_epoch"][mine.starts],
        "state": texts([STATES[n] for n in columns["state"][last].tolist()]),
        "outcome": _OUTCOMES.take(array_of(np.maximum(decision, 0).astype(np.int64), decision < 0)),
        "decided_by": texts(coordinated.decided_by(columns, mine, began)),
        "timeout_ms": columns["timeout_ms"][last],
        "began_not_before": began,
        "began_not_after": began,
        "decided_at": decided,
        "ended_not_before": earliest,
        "ended_not_after": over,
        "duration_ms": _between(began, over),
        "duration_least_ms": _between(began, earliest),
        "duration_most_ms": _between(began, over),
        "partitions": lists(
            [
                sorted(log.partitions(code)) if known else None
                for code, known in zip(columns["set"][members].tolist(), (told | (prepare >= 0)).tolist(), strict=True)
            ]
        ),
        "offset": _offsets(columns["offset"][mine.starts]),
        "last_offset": _offsets(columns["offset"][last]),
    }


def _offsets(offsets: np.ndarray) -> pa.Array:
    return array_of(offsets, offsets >= BEHIND_OFFSETS)


def _keys(producers: np.ndarray, offsets: np.ndarray) -> pa.Array:
    return texts(
        [coordinated.transaction_key(*each) for each in zip(producers.tolist(), offsets.tolist(), strict=True)]
    )


def _between(begin: np.ndarray, end: np.ndarray) -> pa.Array:
    """Milliseconds from one time to the other, null where either is not known."""
    return array_of(end - begin, (begin < 0) | (end < 0))


def _of_partitions(
    columns: Columns, mine: Transactions, branches: np.ndarray, groups: dict[tuple[int, int], set[str]]
) -> Fields:
    """What the logs of their partitions hold."""
    producers, offsets = columns["producer_id"][mine.starts], columns["offset"][mine.starts]
    rows = np.append(branches, np.zeros(1, BRANCH))[_places(branches, producers, offsets)]
    of = [
        sorted(groups[each]) if each in groups else []
        for each in zip(producers.tolist(), offsets.tolist(), strict=True)
    ]
    return {
        "partitions_seen": rows["logs"].astype(np.int32),
        "batches": rows["batches"].copy(),
        "records": rows["records"].copy(),
        "bytes": rows["bytes"].copy(),
        "groups": lists(of),
    }


def _places(branches: np.ndarray, producers: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """The row of each transaction in ``branches``, which ascend; their number for none. Cost: that of the piece."""
    ids, which = np.unique(producers, return_inverse=True)
    known = np.ascontiguousarray(branches["producer_id"])
    first, end = np.searchsorted(known, ids), np.searchsorted(known, ids, side="right")
    counts = end - first
    rows = np.repeat(first - np.append(0, np.cumsum(counts)[:-1]), counts) + np.arange(counts.sum())
    _, numbers = np.unique(np.append(branches["offset"][rows], offsets), return_inverse=True)
    names = np.repeat(np.arange(len(ids)), counts) << 32 | numbers[: len(rows)]
    wanted = which << 32 | numbers[len(rows) :]
    at = np.searchsorted(names, wanted)
    there = np.append(names, -1)[at] == wanted
    out: np.ndarray = np.where(there, np.append(rows, 0)[at], len(branches))
    return out
