"""How far below the last stable offset a log is read: to the markers before open data that no coordinator will end.

Whether such data belongs to a transaction that was decided COMMIT shows only where the markers of its transactional id
are. Open data that its coordinator will end needs none of them, so that a healthy log is not read further back.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from auditor.connectors.live.live_cluster import Producer
from auditor.facts.coordinator_log import Entry, pack
from auditor.facts.replica_facts import ReplicaFacts
from auditor.model.transaction_states import PREPARED
from auditor.rules.seen.coordinator_history import NONE, SKEW_MS, CoordinatorHistory, join

DECISIONS = 2  # of each id: the marker of the one before shows whether that of the last one is missing
MOST_BACK = 1 << 20  # offsets below the last stable offset


def history_of(coordinators: Iterable[ReplicaFacts]) -> CoordinatorHistory | None:
    """The coordinators' history, None where a partition of ``__transaction_state`` was not read to its end."""
    read = sorted(coordinators, key=lambda facts: facts.partition)
    if not read or any(facts.breaks_off for facts in read):
        return None
    return join(len(read), {f.partition: pack(()) if f.coordinator_log is None else f.coordinator_log for f in read})


def earliest_times(history: CoordinatorHistory, name: str, producers: Iterable[Producer]) -> list[int]:
    """Times (ms) before which no marker is needed, the latest first; empty where none is.

    ``name``: ``topic-N``; ``producers``: those that the log's leader has in memory. Of each that has a transaction open
    which its coordinator will not end, the markers of the last :data:`DECISIONS` decisions about the log are needed.
    """
    last, before = [], []
    for producer in producers:
        entry = history.last_of_owner(producer.producer_id)
        if producer.txn_first_offset < 0 or entry is None or _will_end(entry, name, producer):
            continue
        named = history.named(name)
        rows = named.rows[named.of(producer.producer_id)]
        decided = np.sort(rows["decided_time"][rows["decision"] != NONE])[-DECISIONS:].tolist()
        if not decided and entry.state in ("CompleteCommit", "CompleteAbort"):  # a cleaner took what named the log
            decided = [entry.start if entry.start >= 0 else entry.time]
        last += decided[-1:]
        before += decided[:1]
    return [min(times) - SKEW_MS for times in (last, before) if times]


def _will_end(entry: Entry, name: str, producer: Producer) -> bool:
    """Whether the coordinator has the transaction open or decided, with this partition."""
    if entry.producer_id != producer.producer_id or name not in entry.partitions:
        return False
    ahead = entry.producer_epoch - producer.producer_epoch
    return ahead <= 0 if entry.state == "Ongoing" else entry.state in PREPARED and ahead <= 2
