"""Data of one transaction under the marker of the next, and by whose clock that can be known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from auditor.base.words import duration
from auditor.facts.coordinator_log import Entry
from auditor.rules.catalogue.needs import Need
from auditor.rules.catalogue.registry import rule
from auditor.rules.catalogue.relations import ENDED_OTHERWISE, By, same_transaction
from auditor.rules.catalogue.safeguards import LATE_WRITES
from auditor.rules.closed_transactions import FAMILY, ended_with_another, judged_transactions
from auditor.rules.seen.finding import Finding, iso
from auditor.rules.seen.memo import once
from auditor.rules.seen.named import SKEW_MS, Window
from auditor.rules.seen.view import LogView
from auditor.rules.transactions.state_records import TOPIC
from auditor.rules.transactions.windows import SAME_CLOCK_MS, Matching, matching, owner_complete, skew

NO_CLOCK_MS = 60_000  # a client's stamp that lies farther back than this is no reading of a clock
READ_MS = 50  # from one reading of a clock to the next, where markers show how far two clocks are apart
COMPARED = 64  # markers by which two clocks are compared
ENOUGH = 3  # transactions that show how a producer usually begins
FAR_FROM_USUAL = 5  # times as long as any other time


@dataclass(frozen=True, slots=True)
class Merged:
    """Data that came ``lead_ms`` before its marker's transaction had the partition, and how that is known.

    ``began``: when it came, ms, by the clock of the coordinator's broker where two clocks could be compared.
    """

    began: int
    lead_ms: int
    severity: str
    confidence: str
    known_by: str


@rule(
    "transactions-merged-under-one-marker",
    family=FAMILY,
    severities={
        "critical": "",
        "warning": "where no broker's clock decides, if the producer never began like that",
        "info": "else",
    },
    outcomes={
        "exposed": "where its transaction was aborted and it was committed",
        "hidden": "where its transaction was committed and it was aborted",
        "none": "where it ended like its transaction",
    },
    absorbed_by=(
        ENDED_OTHERWISE,
        By("late-write-after-marker", same_transaction),
    ),
    prevented_by=LATE_WRITES,
    needs=(Need.TRANSACTIONS,),
)
def transactions_merged_under_one_marker(log: LogView) -> Iterator[Finding]:
    """One marker closed the data of two transactions

    Checks: the data between two markers of a producer begins before the coordinator's transaction whose marker closes
    it had this partition, with no other transaction of the id to belong to. Proved where brokers' clocks say when it
    came: its own stamp (LogAppendTime), or a marker of any producer right behind it; these are compared with the
    coordinator's record as one clock if the same broker wrote both (1 s is allowed for), else by how far the two are
    apart, which the markers show that lie between the coordinator's decisions and completions. By clients' stamps
    alone it is likely: critical from 30 s on; below that a warning if the producer never began like that before.
    Why it matters: the first part was committed or aborted together with data it has nothing to do with: atomicity is
    broken, and nothing else shows it.
    Can be wrong: where it is called likely: a client stamps records before it asks its coordinator for the partition,
    and may have to wait for it (a coordinator that moves). Producers that stamp records with old times are left out.
    What to do: list the records of the foreign part (offsets in the evidence) and compensate downstream.
    Source: KIP-360, KIP-890
    """
    for t in judged_transactions(log):
        if t["first_offset"] < log.leader.log_start or t["marker_offset"] < 0:
            continue
        found = matching(log, int(t["producer_id"]))
        number = found.number(int(t["marker_offset"]))
        window = None if number is None else found.window(number)
        added = window.added if window is not None else None
        if number is None or window is None or added is None or window.client_version >= 2:
            continue
        if not _whole(log, found, number) or _marker_is_missing(found, t, number):
            continue
        merged = _by_brokers(log, t, window, added) or _by_stamps(log, t, added)
        if merged is not None:
            yield _finding(log, t, window, added, merged)


def _finding(log: LogView, t: np.void, window: Window, added: Entry, merged: Merged) -> Finding:
    return log.finding(
        "transactions-merged-under-one-marker",
        merged.severity,
        f"The marker at offset {t['marker_offset']} {'closed' if merged.confidence == 'proved' else 'seems to close'} "
        f"data of producer {t['producer_id']} that began at offset {t['first_offset']}, {duration(merged.lead_ms)} "
        f"before its transaction had {log.name}",
        at=t,
        transactional_id=window.transactional_id,
        outcome=ended_with_another(t),
        evidence={
            "marker_offset": t["marker_offset"],
            "partition_added": iso(added.time),
            "data_began": iso(merged.began),
            "coordinator_offset": added.offset,
            "known_by": merged.known_by,
            "confidence": merged.confidence,
        },
    )


def _marker_is_missing(found: Matching, t: np.void, number: int) -> bool:
    """Whether a transaction between the marker before this data and its own has no marker: the data may be that one's,
    and what is wrong is the marker that is lost or cannot be read."""
    before = found.number(int(t["prev_marker_offset"]))
    return bool(np.any((found.unmarked > (-1 if before is None else before)) & (found.unmarked < number)))


def _whole(log: LogView, found: Matching, number: int) -> bool:
    """Whether all that the coordinator wrote of this transaction is in the input, from before it on."""
    if owner_complete(log, int(found.windows["producer_id"][number])):
        return True
    history = log.cluster.coordinator
    before = found.window(number - 1).complete if number else None
    return history is not None and before is not None and history.intact(before)


# By brokers' clocks


def _by_brokers(log: LogView, t: np.void, window: Window, added: Entry) -> Merged | None:
    """Proved: a broker's clock read behind the first batch, still before the coordinator had the partition added."""
    came, known_by = _came_by(log, t)
    if came < 0:
        return None
    came += log.cluster.went_back  # between the record and the batch the clock may have been set back
    if _one_clock(log, t, added) and came + SAME_CLOCK_MS < added.time:
        return Merged(came, added.time - came, "critical", "proved", f"{known_by}, and it is the coordinator's")
    ahead = _ahead_at_least(log, t, added)
    if ahead is not None and came - ahead + READ_MS < added.time:
        began = came - ahead
        why = f"{known_by}, compared with the coordinator's by the markers that it decided"
        return Merged(began, added.time - began, "critical", "proved", why)
    return None


def _one_clock(log: LogView, t: np.void, added: Entry) -> bool:
    """Whether one broker led the partition and its coordinator: by the metadata, else by whose files these are."""
    cluster = log.cluster
    if not cluster.has_metadata:
        return skew(log, added.partition) == SAME_CLOCK_MS
    leader = cluster.led(log.topic, log.partition, int(t["first_leader_epoch"]))
    return leader is not None and leader == cluster.led(TOPIC, added.partition, added.leader_epoch)


def _came_by(log: LogView, t: np.void) -> tuple[int, str]:
    """When the leader had the first batch at the latest, by its own clock, ms; -1 where it did not note a time."""
    if t["first_append_time"] == 1:
        return int(t["first_time"]), "the broker stamped the first batch"
    if t["first_leader_epoch"] != t["last_leader_epoch"]:
        return -1, ""
    markers = _all_markers(log)
    next_one = int(np.searchsorted(markers["marker_offset"], t["first_offset"]))
    if next_one >= len(markers) or markers["marker_offset"][next_one] > t["last_offset"]:
        return -1, ""
    behind = markers[next_one]
    return int(behind["marker_timestamp"]), f"the broker wrote the marker at {behind['marker_offset']} behind it"


@once
def _all_markers(log: LogView) -> np.ndarray:
    rows = log.leader.transactions
    closed = rows[rows["marker_offset"] >= 0]
    return closed[np.argsort(closed["marker_offset"], kind="stable")]


def _ahead_at_least(log: LogView, t: np.void, added: Entry) -> int | None:
    """How far the clock of the partition's leader is ahead of the coordinator's at least, ms; None where unknown.

    A marker is written after its Prepare record's time and before its Complete record's. Only where every marker of the
    producer has its transaction and every transaction its marker is it sure which goes with which.
    """
    found = matching(log, int(t["producer_id"]))
    if len(found.unmarked) or np.any(found.numbers < 0):
        return None
    least: list[int] = []
    for row in _markers_near(log, t):
        window = found.window(found.number(int(row["marker_offset"])) or 0)
        prepare, end = window.prepare, window.end_time
        if prepare is not None and end is not None and prepare.leader_epoch == added.leader_epoch:
            least.append(int(row["marker_timestamp"]) - end)
    return max(least, default=None)


def _markers_near(log: LogView, t: np.void) -> np.ndarray:
    """The producer's last markers up to this one that the leader of the data wrote."""
    markers = _all_markers(log)
    mine = markers[(markers["producer_id"] == t["producer_id"]) & (markers["marker_offset"] <= t["marker_offset"])]
    return mine[mine["marker_leader_epoch"] == t["first_leader_epoch"]][-COMPARED:]


# By the client's stamps


def _by_stamps(log: LogView, t: np.void, added: Entry) -> Merged | None:
    """Likely: the client's stamps begin before the coordinator had the partition added, and go on behind it."""
    began = log.time(t["first_time"])
    lead = added.time - began
    one_clock = t["first_append_time"] == 1
    previous = int(t["prev_marker_time"]) if t["prev_marker_offset"] >= 0 else -1
    if t["batches"] < 2 or began < 0 or lead <= SAME_CLOCK_MS or previous > began:
        return None
    if log.time(t["last_time"]) < added.time or not _reads_a_clock(t):
        return None
    others = _other_leads(log, t)
    as_usual = bool(others) and lead <= FAR_FROM_USUAL * max(others)
    if as_usual or (one_clock and lead <= SKEW_MS):
        return None
    why = "the broker's stamps" if one_clock else "the client's stamps"
    if lead > SKEW_MS:
        return Merged(began, lead, "critical", "likely", why)
    strange = len(others) >= ENOUGH and not _coordinator_moved(log, t, added)
    return Merged(began, lead, "warning" if strange else "info", "likely", why)


def _reads_a_clock(t: np.void) -> bool:
    """Whether the first batch is stamped about when it came, as far as the marker before it shows."""
    return bool(t["prev_marker_offset"] < 0 or t["first_timestamp"] >= t["prev_marker_time"] - NO_CLOCK_MS)


def _other_leads(log: LogView, t: np.void) -> list[int]:
    """By how much the stamps of the producer's other transactions here precede the coordinator's records, ms."""
    found, markers = matching(log, int(t["producer_id"])), _all_markers(log)
    mine = markers[(markers["producer_id"] == t["producer_id"]) & (markers["marker_offset"] != t["marker_offset"])]
    mine = mine[mine["first_offset"] >= 0]
    numbers = found.numbers[np.searchsorted(found.markers, mine["marker_offset"])]
    mine, windows = mine[numbers >= 0], found.windows[numbers[numbers >= 0]]
    leads = (windows["added_time"] - mine["first_timestamp"])[windows["added_row"] >= 0]
    return [int(lead) for lead in leads]


def _coordinator_moved(log: LogView, t: np.void, added: Entry) -> bool:
    """Whether another broker may have become the coordinator between the transaction before and this one."""
    found = matching(log, int(t["producer_id"]))
    before = found.number(int(t["prev_marker_offset"]))
    last = None if before is None else found.window(before).decided
    return last is None or last.leader_epoch != added.leader_epoch
