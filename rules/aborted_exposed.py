"""The rule on aborted records that a replica returns to read_committed consumers: its transaction index is wrong."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from auditor.base.advice import Act, Advice, Condition, Look, Moves, Verdict
from auditor.base.words import few, plural
from auditor.facts.replica_facts import ReplicaFacts
from auditor.rules.catalogue.needs import Need
from auditor.rules.catalogue.registry import rule
from auditor.rules.catalogue.relations import UNDER_A_WRONG_MARKER
from auditor.rules.integrity import FAMILY
from auditor.rules.lib import commands, index_entries, repairs
from auditor.rules.lib.stops import gated
from auditor.rules.seen.finding import Finding
from auditor.rules.seen.view import LogView

TOP = 20  # transactions shown in the evidence of one finding
ENTRY = ["producer_id", "first_offset", "last_offset", "last_stable_offset"]
COLUMNS = ["producer_id", "first_offset", "last_offset", "records", "marker_offset"]
RULE = "aborted-records-exposed"


@rule(
    RULE,
    family=FAMILY,
    severities={
        "critical": "",
        "warning": "where an open transaction still keeps these records from consumers",
        "info": "where the segment's .index is not in the input",
    },
    outcomes={"exposed": ""},
    absorbed_by=(UNDER_A_WRONG_MARKER,),
    needs=(Need.EXPOSED,),
)
def aborted_records_exposed(log: LogView) -> Iterator[Finding]:
    """read_committed consumers get records of aborted transactions

    Checks: every fetch that can end inside a segment, against the replica's transaction and offset indexes. A broker
    stops looking for aborted transactions at the first .txnindex entry whose last stable offset is at or above the
    fetch's upper bound, which is an entry of the .index, the next segment's base offset or the log end. Where that
    entry comes before the entry of a transaction in the fetch, its records are returned. One finding per replica.
    Why it matters: consumers with isolation.level=read_committed process aborted records when this replica leads, or
    when they fetch from it as a follower (KIP-392), depending on the size of their fetches. A tiered topic keeps the
    wrong index in remote storage.
    Can be wrong: a running broker whose .index was copied earlier than its .txnindex may expose more.
    What to do: make another in-sync replica the leader whose index is right. Then stop the broker, move the .index and
    the .txnindex of the segment away and start it: it rebuilds both. Never move the .txnindex alone: the broker starts
    without it and returns all aborted records. Before the stop, see to the broker's partitions without another in-sync
    replica, as the finding says. See docs/aborted-records-exposed.md.
    Source: TransactionIndex.collectAbortedTxns; LocalLog.addAbortedTransactions; ProducerStateManager.lastStableOffset
    """
    for replica in log.replicas:
        rows = _of_its_own(log, replica)
        if len(rows):
            yield _exposed(log, replica, rows)


def _of_its_own(log: LogView, replica: ReplicaFacts) -> np.ndarray:
    """The exposed records of a replica, without those whose entry is in the index of another segment, which are another
    rule's, and without those in remote storage that the leader's finding has."""
    rows = replica.exposed
    if not len(rows):
        return rows
    t = replica.transactions
    t = t[(t["commit"] == 0) & np.isin(t["marker_offset"], rows["marker_offset"])]
    strays = t["marker_offset"][index_entries.strays(replica, t)[0]]
    rows = rows[~np.isin(rows["marker_offset"], strays)]
    if replica is log.leader or not len(log.leader.exposed):
        return rows
    remote = np.array([replica.is_remote(int(number)) for number in rows["segment"]], bool)
    return rows[~(remote & np.isin(rows["first_offset"], log.leader.exposed["first_offset"]))]


def _exposed(log: LogView, replica: ReplicaFacts, rows: np.ndarray) -> Finding:
    t = replica.transactions
    stable = int(t["first_offset"][t["marker_offset"] < 0].min(initial=replica.log_end))
    known = rows[rows["known"] == 1]
    shown, severity, returns = known[known["first_offset"] < stable], "critical", "returns"
    if not len(shown):
        shown, severity, returns = known, "warning", f"will, once the open transaction at offset {stable} ends, return"
    if not len(shown):
        shown, severity, returns = rows, "info", "may return"
    first, last = int(shown["first_offset"].min()), int(shown["last_offset"].max())
    records = int(shown["records"].sum())
    ends = replica.aborted[np.unique(shown["entry"])]
    missing = sorted({f"{_stem(replica, int(number))}.index" for number in rows["segment"][rows["known"] == 0]})
    return log.finding(
        RULE,
        severity,
        f"Broker {replica.broker_id} {returns} up to {plural(records, 'aborted record')} of {log.name} "
        f"(offsets {first} to {last}) to read_committed consumers: {plural(len(ends), 'entry')} of its transaction "
        f"index {'has' if len(ends) == 1 else 'have'} a last stable offset that is too high",
        replica=replica,
        file=f"{_stem(replica, int(ends[0]['segment']))}.txnindex",
        position=ends[0]["position"],
        offset=first,
        last_offset=last,
        evidence={
            "records": records,
            "transactions": len(np.unique(shown["marker_offset"])),
            "columns": COLUMNS,
            "exposed": [[int(row[name]) for name in COLUMNS] for row in shown[:TOP]],
            "index_columns": ENTRY,
            "index_entries": [[int(entry[name]) for name in ENTRY] for entry in ends[:TOP]],
            "in_remote_storage": any(replica.is_remote(int(number)) for number in shown["segment"]) or None,
            "missing": few(missing) or None,
            **({"confidence": "undecidable"} if severity == "info" else {}),
        },
        advice=_advice(log, replica, {int(number) for number in ends["segment"]})
        if len(known)
        else Advice(Verdict.LOOK, then=f"copy {few(missing)} of broker {replica.broker_id} too, and audit again"),
    )


def _stem(replica: ReplicaFacts, segment: int) -> str:
    return (replica.file(segment) or "").removesuffix(".log")


def _advice(log: LogView, replica: ReplicaFacts, segments: set[int]) -> Advice:
    """Another leader first, then a rebuilt index: a start recovers a segment that has no offset index, and works the
    last stable offsets out batch by batch (LogSegment.recover)."""
    broker, name = replica.broker_id, log.name
    files = [_stem(replica, number) for number in sorted(segments) if not replica.is_remote(number)]
    if not files:
        return Advice(
            Verdict.LOOK,
            "no command of Kafka rebuilds the transaction index of a segment in remote storage",
            then="compare what read_committed consumers of these offsets processed with the offsets listed",
        )
    sound = Condition(
        f"no batch of {replica.folder} is broken, since the start would cut it there",
        not repairs.is_damaged(log, replica),
        "all of it was read",
    )
    look, act, conditions, moves = _another_leads(log, replica)
    pair = (
        f"{files[0]}.index and {files[0]}.txnindex" if len(files) == 1 else f"the .index and .txnindex of {few(files)}"
    )
    advice = Advice(
        Verdict.ACT,
        "it loses no record; never move the .txnindex alone, since the broker then returns all aborted records of it",
        look=look,
        act=(*act, Act(f"stop broker {broker}, move {pair} away and keep them, start it: it rebuilds both")),
        then=f"audit again once broker {broker} has {name} in sync: transactions that end while it is down can get "
        "wrong entries in the same way, unless it catches up with replica.fetch.max.bytes=1 and "
        "replica.fetch.response.max.bytes=1 (one batch per fetch, slow)",
        moves=moves,
    )
    return gated(log.cluster, broker, advice, sound, *conditions)


def _another_leads(
    log: LogView, replica: ReplicaFacts
) -> tuple[tuple[Look, ...], tuple[Act, ...], tuple[Condition, ...], Moves]:
    """What lets another replica lead first, one that exposes nothing; nothing where there is no other replica."""
    place, broker = (log.topic, log.partition), replica.broker_id
    if log.cluster.replicas.get(place) == 1:
        return (), (), (), Moves()
    leader = log.cluster.leaders.get(place)
    if leader not in (None, broker):
        look = Look(commands.describe_topic(log.topic), f"the Leader of {log.name} is not broker {broker}")
        return (look,), (), (), Moves()
    others = (c for c in log.replicas if c is not replica and not len(c.exposed))
    other = next((c for c in others if c is log.leader or repairs.keeps_out(log, c) is None), None)
    there = Condition(
        f"another replica of {log.name} may lead and exposes nothing", None if other is None else True, "its replicas"
    )
    if other is None:
        look = Look(commands.describe_topic(log.topic), f"the Isr of {log.name} lists a broker besides {broker}")
        return (look,), (), (there,), Moves()
    seen, synced = repairs.seen_in_sync(log, other.broker_id), repairs.in_sync(log, other.broker_id)
    return (seen,), repairs.lead(log, other), (there, synced), Moves(leads=other.broker_id)
