"""The rule on records of ``__transaction_state`` that were written although their append failed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from auditor.base.at_rest import Fields
from auditor.base.words import plural
from auditor.facts.coordinator_log import STATES, Entry
from auditor.rules.catalogue.needs import Need
from auditor.rules.catalogue.registry import rule
from auditor.rules.seen.finding import Finding, iso
from auditor.rules.seen.view import LogView
from auditor.rules.transactions.state_steps import resumed
from auditor.rules.transitions import FAMILY

APART_MS = 10 * 60_000  # between two records that failed: another stretch of time
OUT_OF_SYNC = "NOT_ENOUGH_REPLICAS_AFTER_APPEND: a follower of this partition fell out of sync"
TOO_SLOW = "REQUEST_TIMED_OUT: the followers of this partition did not have it within the transaction's time-out"
FAILED = np.dtype([("offset", "i8"), ("time", "i8"), ("id", "i8"), ("state", "i2"), ("waited", "?"), ("timed", "?")])


@rule("coordinator-append-failed", family=FAMILY, severities={"info": ""}, needs=(Need.TRANSACTION_STATE,))
def coordinator_append_failed(log: LogView) -> Iterator[Finding]:
    """A coordinator's record was written, but its append failed

    Checks: records of an id behind which its coordinator, under the same epoch, went on from the state before them: a
    decision, a completion, an Ongoing, an Empty record or a tombstone that was written again or gone back on. One
    finding for each stretch of time, with less than ten minutes from one to the next.
    Why it matters: nothing is lost by it, its client was told COORDINATOR_NOT_AVAILABLE and tries again. But the
    partition had too few replicas in sync, or slow ones, and the transactions of its ids waited for them.
    Can be wrong: a record that failed and that the next one follows all the same is not seen: there may be more.
    What to do: see whether this __transaction_state partition has all its replicas in sync (kafka-topics.sh --describe
    --topic __transaction_state), and what its followers' brokers had at that time: a restart, a slow disk or network.
    Three replicas with min.insync.replicas=2 go through the loss of one. Nothing has to be repaired.
    Source: TransactionStateManager.appendTransactionToLog, TransactionMarkerChannelManager.tryAppendToLog
    """
    ids: dict[str, int] = {}
    rows = np.fromiter(_failed(log, ids), FAILED)
    if not len(rows):
        return
    rows = rows[np.argsort(rows["offset"])]
    names = list(ids)
    for mine in np.split(rows, np.flatnonzero(np.diff(rows["time"]) >= APART_MS) + 1):
        yield _stretch(log, mine, names)


def _failed(log: LogView, ids: dict[str, int]) -> Iterator[tuple[int, int, int, int, bool, bool]]:
    """Those records as rows of :data:`FAILED`; ``ids`` gets a number for each id."""
    for step in resumed(log):
        for entry in step.failed:
            number = ids.setdefault(entry.transactional_id, len(ids))
            state = -1 if entry.state is None else STATES.index(entry.state)
            time = _written(entry)
            timed = entry.timeout_ms > 0  # which a tombstone does not say
            yield entry.offset, time, number, state, timed and _written(step.new) - time >= entry.timeout_ms, timed


def _written(entry: Entry) -> int:
    return entry.record_time if entry.record_time >= 0 else entry.time


def _stretch(log: LogView, rows: np.ndarray, names: list[str]) -> Finding:
    numbers = np.unique(rows["id"])
    states = np.unique(rows["state"], return_counts=True)
    first, last, name = rows[0], rows[-1], names[rows[0]["id"]]
    many = len(numbers) > 1
    evidence: Fields = {
        "records": len(rows),
        "transactional_ids": len(numbers),
        "states": {"tombstone" if s < 0 else STATES[s]: int(n) for s, n in zip(*states, strict=True)},
        "first_time": iso(int(first["time"])),
        "last_time": iso(int(rows["time"].max())),
        "likely_cause": TOO_SLOW if 2 * rows["waited"].sum() > rows["timed"].sum() else OUT_OF_SYNC,
    }
    return log.finding(
        "coordinator-append-failed",
        "info",
        f"{plural(len(rows), 'record')} of {plural(len(numbers), 'transactional id') if many else name} in {log.name} "
        f"{'were' if len(rows) > 1 else 'was'} written, but the append failed, likely since too few replicas were in "
        "sync, or they were too slow; the coordinator went on from before",
        offset=first["offset"],
        last_offset=last["offset"],
        transactional_id=None if many else name,
        time_ms=first["time"],
        evidence=evidence,
    )
