"""Rules on producer snapshots and transaction indexes."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from auditor.base.advice import Advice, Condition, Moves, Step, Verdict, check, shown
from auditor.base.evidence_keys import Evidence, SnapshotEvidence, read
from auditor.base.words import few, plural
from auditor.evidence.horizons import whole_from
from auditor.facts.replica_facts import Difference, ReplicaFacts, SnapshotLink
from auditor.rules.catalogue.registry import rule
from auditor.rules.lib import repairs
from auditor.rules.lib.lost_batches import TOP
from auditor.rules.lib.repairs import check_in_sync, gated, in_sync, keeps_out, lead
from auditor.rules.lib.replica_pairs import Pair, entry_keys, last_before, last_of, row_of
from auditor.rules.lib.replica_pairs import pairs as replica_pairs
from auditor.rules.producer_memory import PROVED, UNDECIDABLE, largest_that_fits, settings_known, verdict
from auditor.rules.resolution.finding_limits import summed
from auditor.rules.resolution.resolve import by_cause
from auditor.rules.seen.view import SEVERITIES, Finding, LogView

# Producer snapshots and transaction indexes, compared with the replay.


SPAN = ["first_offset", "last_offset", "producer_id"]  # of Finding.ranges
MOST_ENTRIES = 20  # differences of one snapshot shown in its evidence


@rule("snapshot-unreadable")
def snapshot_unreadable(log: LogView) -> Iterator[Finding]:
    """A producer snapshot is unreadable

    Checks: a .snapshot file has an unknown version, a CRC mismatch, or a length that contradicts its count.
    Why it matters: the broker deletes it at the next start and rebuilds the state from an older one, or from the log.
    Can be wrong: the newest one was being written; exit code 3 means that a Kafka newer than this auditor wrote it.
    What to do: nothing if older ones are intact.
    Source: ProducerStateManager.readSnapshot
    """
    for replica in log.replicas:
        for error in replica.errors:
            if error.file.endswith(".snapshot") and error.reason not in ("unreadable", "vanished"):
                yield log.finding(
                    "warning",
                    f"{error.file} is unreadable: {error.detail}",
                    replica=replica,
                    file=error.file,
                    position=error.position,
                    evidence={"reason": error.reason, "detail": error.detail},
                )


def _one_unknown(f: Finding) -> Hashable:
    # What the input lacks of a broker, by which all of its snapshots may be right.
    evidence = read(Evidence, f.evidence)
    listed = "snapshots" in read(SnapshotEvidence, f.evidence)
    return (evidence["log_dir"], evidence["missing"]) if listed else None


def _all_undecidable(findings: Sequence[Finding]) -> str:
    why, evidences = findings[0].message.rpartition(", ")[2], [read(SnapshotEvidence, f.evidence) for f in findings]
    limits = [
        evidence["largest_expiration_that_fits_ms"]
        for evidence in evidences
        if "largest_expiration_that_fits_ms" in evidence
    ]
    if len(limits) == len(findings):
        why = why.replace(f" {limits[0]} ", f" {min(limits)} ")
    return f"Snapshots of {plural(len(findings), 'partition')} do not match their logs, {why}"


@rule(
    "snapshot-replay-mismatch",
    when={
        "critical": "if an open transaction differs",
        "info": "if the producer id may have expired, or the log's start is unknown",
    },
    together=by_cause(_one_unknown, _all_undecidable),
)
def snapshot_replay_mismatch(log: LogView) -> Iterator[Finding]:
    """A producer snapshot does not match the log

    Checks: each snapshot differs from a replay of the log up to its offset, from the previous snapshot on, for
    producers with data in the log. Compared are epoch, last sequence and offset, coordinator epoch, the start of an
    open transaction, and entries that only one of the two has.
    Why it matters: the broker starts from the snapshot. It will refuse good batches, accept duplicates, or block
    consumers for a transaction that does not exist.
    Can be wrong: a producer id missing in the snapshot may have expired. It is only reported if a broker-written time
    proves the contrary, or the snapshot has another one that was idle for longer. Brokers expire by their own clocks,
    which client timestamps do not show. It is one inconclusive info per broker if its settings are not in the input
    (with the largest producer.id.expiration.ms that fits), or if a replica may be re-created. Not reported: brokers up
    to 2.3 drop a producer with its last data below the log start; 0.11 stores the offset of an end marker. A replica
    built from remote storage begins without producers (seen with 4.3.1), and may accept a duplicate of an earlier
    batch. Compacted topics are compared by epochs and open transactions only.
    What to do: make another in-sync replica lead whose snapshots match; otherwise nothing, since the producer continues
    with a new epoch. Only if it causes an open transaction, stop the broker, move the snapshot away and keep it, so
    that an older one is loaded and the log replayed. Do not do this if the log below it is deleted. Do not remove
    .kafka_cleanshutdown: the broker would leave all ISRs, as after a crash (KIP-966). Before the stop, prepare the
    broker's partitions without another in-sync replica, as the finding describes.
    Source: ProducerStateManager
    """
    for replica in log.replicas:
        in_doubt: list[tuple[SnapshotLink, list[Difference]]] = []
        for link in replica.snapshots:
            judged = [(d, verdict(log, replica, link, d)) for d in link.differences]
            wrong = [d for d, says in judged if says == PROVED]
            gap = any(start < link.offset and link.base < end for start, end in replica.absent)  # in its replay
            if not link.comparable or gap:
                continue
            if wrong:
                yield _mismatch(log, replica, link, wrong)
            elif doubtful := [d for d, says in judged if says == UNDECIDABLE]:
                in_doubt.append((link, doubtful))
        if in_doubt:
            yield _undecidable(log, replica, in_doubt)


def _undecidable(log: LogView, replica: ReplicaFacts, links: list[tuple[SnapshotLink, list[Difference]]]) -> Finding:
    link, first = links[0]
    expiry = [(item, [d for d in some if d.name == "missing"]) for item, some in links]
    limit = largest_that_fits(log, expiry) if any(some for _, some in expiry) else None
    if limit is None:
        why, missing = "since they count end markers as batches (like 0.11 brokers)", "the broker's release"
    elif settings_known(log, replica):
        why, missing = "unless they expired by its clock", "the clock of the broker when it wrote them"
    else:
        why = f"unless producer.id.expiration.ms is {limit} or less there"
        missing = "server.properties (producer.id.expiration.ms)"
    producers = {d.producer_id for _, some in links for d in some}
    return log.finding(
        "info",
        f"{plural(len(links), 'snapshot')} of {log.name} {'does' if len(links) == 1 else 'do'} not match the log for "
        f"{plural(len(producers), 'producer id')}, {why}",
        replica=replica,
        file=link.file,
        offset=link.offset,
        last_offset=links[-1][0].offset,
        producer_id=first[0].producer_id,
        evidence={
            "snapshots": [item.file for item, _ in links[:MOST_ENTRIES]],
            "producers": sorted(producers)[:MOST_ENTRIES],
            "number": sum(len(some) for _, some in links),
            "went_on": sorted({d.producer_id for item, some in links for d in some if d.producer_id in item.went_on})[
                :MOST_ENTRIES
            ],
            "largest_expiration_that_fits_ms": limit,
            "differences": [
                {"producer_id": d.producer_id, "field": d.name, "stored": d.stored, "replayed": d.replayed}
                for d in first[:MOST_ENTRIES]
            ],
            "confidence": "undecidable",
            "missing": missing,
        },
        advice=Advice(
            Verdict.INVESTIGATE_FIRST,
            afterwards="Audit again with server.properties of the broker next to its log directories",
        ),
    )


def _mismatch(log: LogView, replica: ReplicaFacts, link: SnapshotLink, differences: list[Difference]) -> Finding:
    pid, name, stored, replayed, last_offset = differences[0]
    name = "last_offset" if name == "marker_offset" else name
    open_differs = any(difference.name == "open" for difference in differences)
    words = {
        "extra": "is in the snapshot, but the log has no batch of it",
        "missing": "is in the log, but not in the snapshot",
        "open": f"has an open transaction since {stored} in the snapshot, but {replayed} in the log (-1: none)",
    }.get(name, f"has {name} {stored} in the snapshot, but {replayed} in the log")
    producers = sorted({difference.producer_id for difference in differences})
    return log.finding(
        "info" if log.unknown_start(replica) else "critical" if open_differs else "error",
        f"{link.file} does not match the log up to offset {link.offset}: producer id {pid} {words}"
        + (f" ({len(producers)} producer ids in total)" if len(producers) > 1 else ""),
        replica=replica,
        file=link.file,
        offset=link.offset,
        last_offset=link.offset,
        producer_id=pid,
        evidence={
            "differences": [
                {"producer_id": p, "field": "last_offset" if f == "marker_offset" else f, "stored": s, "replayed": r}
                for p, f, s, r, _ in differences[:MOST_ENTRIES]
            ],
            "number": len(differences) + link.extra_differences,
            "replayed_from": link.base,
            "last_offset_in_log": last_offset if last_offset >= 0 else None,
            **log.unknown_start(replica),
        },
        advice=wrong_snapshot(log, replica, link, opened=open_differs),
    )


def _aborted(replica: ReplicaFacts) -> np.ndarray:
    t = replica.transactions
    return t[(t["commit"] == 0) & (t["marker_offset"] >= replica.log_start) & (t["first_offset"] >= 0)]


@rule(
    "aborted-transaction-not-indexed",
    when={
        "warning": "if fetches find its entry",
        "info": "in flight, or if no .txnindex was copied",
    },
)
def aborted_transaction_not_indexed(log: LogView) -> Iterator[Finding]:
    """An aborted transaction is not in the transaction index

    Checks: the log has an aborted transaction with stored data, but the .txnindex of its marker's segment has no entry
    for it. All transactions of one missing .txnindex are one finding. If the input has no .txnindex at all, they were
    probably not copied, which is reported once per log. The entry may also be in the .txnindex of another segment. A
    fetch reads the indexes from its own segment on. It misses an entry in an earlier segment than some of the data
    (critical), and finds one in a later segment (warning), unless an earlier entry ends the search.
    Why it matters: read_committed consumers use the index to skip aborted records, so they get them. The next start
    treats an index with an entry from below its segment as corrupt, and rebuilds it without that entry.
    Can be wrong: compacted segments without data; a live directory. Segments copied without any index are skipped.
    What to do: if no batch of the segment is broken (a recovery would truncate it there), stop the broker and move the
    segment's .txnindex and .index away. Without .index the start recovers the segment and rebuilds both. Before the
    stop, prepare the broker's partitions without another in-sync replica, as the finding describes.
    Source: TransactionIndex.collectAbortedTxns, sanityCheck; LocalLog.collectAbortedTransactions
    """
    for replica in log.replicas:
        yield from _in_other_segments(log, replica)
        without_index: dict[int, list[np.void]] = {}
        for t in _unindexed(replica):
            number = int(t["marker_segment"])
            if number in replica.abort_indexes:
                yield _not_indexed(log, replica, [t])
            else:
                without_index.setdefault(number if log.cluster.abort_indexes else -1, []).append(t)
        for rows in without_index.values():
            yield _not_indexed(log, replica, rows)


def _stored(replica: ReplicaFacts) -> np.ndarray:
    rows = _aborted(replica)
    return rows[(rows["records"] > 0) & (rows["last_offset"] >= replica.log_start)]


def _unindexed(replica: ReplicaFacts) -> Iterator[np.void]:
    rows = _stored(replica)
    if not len(rows):
        return
    unreadable = {e.file for e in replica.errors if e.file.endswith(".txnindex")}
    rows = rows[np.isin(rows["marker_segment"], list(replica.indexed))]
    listed = (replica.aborted["producer_id"], replica.aborted["last_offset"])
    rows = rows[last_of(listed, (rows["producer_id"], rows["marker_offset"])) < 0]
    for t in rows:
        if _index_file(replica, t) not in unreadable:
            yield t


def _in_other_segments(log: LogView, replica: ReplicaFacts) -> Iterator[Finding]:
    rows, listed = _stored(replica), replica.aborted
    which, entries = strays(replica, rows)
    if not len(which):
        return
    t, found_in = rows[which], listed["segment"][entries]
    behind = np.searchsorted(replica.segment_bases, t["last_offset"], side="right") - 1
    hidden = np.isin(t["marker_offset"], replica.exposed["marker_offset"])
    later = found_in > t["marker_segment"]
    for pair in np.unique(np.stack([found_in, t["marker_segment"]])[:, later | (found_in < behind)], axis=1).T:
        here = (found_in == pair[0]) & (t["marker_segment"] == pair[1]) & (later | (found_in < behind))
        yield _in_another_segment(log, replica, t[here], listed[entries[here]], bool(hidden[here].any()))


def _in_another_segment(
    log: LogView, replica: ReplicaFacts, rows: np.ndarray, entries: np.ndarray, hidden: bool
) -> Finding:
    t, entry, count = rows[0], entries[0], len(rows)
    found_in, belongs = _index_of(replica, int(entry["segment"])), _index_file(replica, t)
    later = bool(entry["segment"] > t["marker_segment"])
    if not later:
        missed = f"fetches from offset {replica.segment_bases[entry['segment'] + 1]} on miss it"
    elif hidden:
        missed = "fetches of its first records may end their search before it"
    else:
        missed = "fetches find it, but the next start treats that index as corrupt and rebuilds it without the entry"
    return log.finding(
        "warning" if later and not hidden else "critical",
        f"The aborted transaction of producer id {t['producer_id']} in {log.name} (offsets {t['first_offset']} to "
        f"{t['last_offset']}, marker at {t['marker_offset']})"
        + (f" and {count - 1:,} more" if count > 1 else "")
        + f" is listed in {found_in} instead of {belongs}: {missed}, and read_committed consumers get its records",
        replica=replica,
        file=found_in,
        position=entry["position"],
        offset=t["first_offset"],
        last_offset=t["marker_offset"],
        producer_id=t["producer_id"],
        producer_epoch=t["producer_epoch"],
        transactional_id=log.owner(t["producer_id"]),
        time_ms=t["marker_timestamp"],
        evidence={
            "ranges": rows[SPAN].tolist(),
            "records": int(rows["records"].sum()),
            "last_data_offset": t["last_offset"],
            "transactions": count if count > 1 else None,
            "expected_file": belongs,
        },
        advice=repairs.rebuild(log, replica, belongs, f"{belongs.removesuffix('.txnindex')}.index"),
    )


def _index_file(replica: ReplicaFacts, t: np.void) -> str:
    return _index_of(replica, int(t["marker_segment"]))


def _index_of(replica: ReplicaFacts, segment: int) -> str:
    return (replica.file(segment) or "").removesuffix(".log") + ".txnindex"


def _index_may_be_older(replica: ReplicaFacts, t: np.void) -> bool:
    # It then has no later entry either.
    if replica.clean_shutdown or int(t["marker_segment"]) != len(replica.segments) - 1:
        return False
    return not np.any(replica.aborted["last_offset"] > t["marker_offset"])


def _not_indexed(log: LogView, replica: ReplicaFacts, rows: list[np.void]) -> Finding:
    t, count, records = rows[0], len(rows), sum(int(row["records"]) for row in rows)
    file, not_copied = _index_file(replica, t), not log.cluster.abort_indexes
    in_flight = _index_may_be_older(replica, t)
    where = f"offsets {t['first_offset']} to {t['last_offset']}, marker at {t['marker_offset']}"
    if count == 1:
        subject = f"The aborted transaction of producer id {t['producer_id']} in {log.name} ({where}) is"
    else:
        subject = f"{count} aborted transactions in {log.name} (first: producer id {t['producer_id']}, {where}) are"
    got = f"read_committed consumers get {'its' if count == 1 else 'their'} {plural(records, 'record')}"
    if not_copied:
        got = f"the input has no .txnindex at all. They were not copied, or they are lost, and then {got}"
    return log.finding(
        "info" if not_copied else "critical",
        f"{subject} not in {file}: {got}",
        replica=replica,
        doubt=in_flight,
        file=file,
        offset=t["first_offset"],
        last_offset=t["marker_offset"],
        producer_id=t["producer_id"],
        producer_epoch=t["producer_epoch"],
        transactional_id=log.owner(t["producer_id"]),
        time_ms=t["marker_timestamp"],
        evidence={
            "ranges": [row[SPAN].item() for row in rows],
            "records": records,
            "last_data_offset": t["last_offset"],
            "transactions": count if count > 1 else None,
            **({"confidence": "undecidable", "missing": "the .txnindex files"} if not_copied else {}),
        },
        advice=Advice(
            Verdict.INVESTIGATE_FIRST,
            afterwards=f"Look for {file} in the directory of broker {replica.broker_id}; copy the .txnindex files too",
        )
        if not_copied
        else repairs.rebuild(log, replica, file, f"{file.removesuffix('.txnindex')}.index"),
    )


@rule(
    "aborted-index-extra-entry",
    when={
        "critical": "if it hides committed data",
        "info": "if it hides no records",
        "hidden": "if it covers committed data",
        "exposed": "if it begins after the start of the transaction",
        "at_risk": "otherwise",
    },
)
def aborted_index_extra_entry(log: LogView) -> Iterator[Finding]:
    """The transaction index has an entry without an aborted transaction

    Checks: in a region never compacted, the log has no aborted transaction with the producer, first offset and marker
    of an entry. Its last stable offset may differ from the replay's; if that exposes aborted records,
    aborted-records-exposed reports it.
    Can be wrong: brokers up to 2.7 index lone ABORT markers (handled). Retention deletes the beginning of a
    transaction: an entry that begins below the log start is right if no marker of the producer precedes its own. If the
    broker ran while `auditor copy` read it, entries past the log end offset are newer and not reported.
    What to do: as for aborted-transaction-not-indexed.
    Source: TransactionIndex
    """
    for replica in log.replicas:
        wrong = faults(replica, whole_from(log, replica))
        if (replica.log_dir, log.topic, log.partition) in log.cluster.read_at:  # of a broker that ran on
            wrong = wrong.take(np.flatnonzero(wrong.fault != BEYOND))
        if not len(wrong.entry):
            continue
        listed, others = wrong.gravest(log.most, replica.aborted["first_offset"][wrong.entry])
        for entry, (_, t, fault, severity) in zip(
            replica.aborted[listed.entry], zip(*listed, strict=True), strict=True
        ):
            yield _extra(log, replica, entry, replica.transactions[t] if t >= 0 else None, fault, severity)
        for severity in np.unique(others.severity):
            offsets = replica.aborted["first_offset"][others.entry[others.severity == severity]]
            ends = len(offsets), int(offsets.min()), int(offsets.max())
            outcome = "hidden" if severity == CRITICAL else "at_risk"
            yield summed(log, SEVERITIES[severity], *ends, replica=replica, outcome=outcome)


def hidden_by(replica: ReplicaFacts, entry: np.void) -> list[list[int]]:
    """Return the offsets of committed data of its producer that an entry covers."""
    t = replica.transactions
    t = t[(t["producer_id"] == entry["producer_id"]) & (t["commit"] == 1) & (t["first_offset"] >= 0)]
    t = t[(t["first_offset"] <= entry["last_offset"]) & (t["last_offset"] >= entry["first_offset"])]
    spans = np.maximum(t["first_offset"], entry["first_offset"]), np.minimum(t["last_offset"], entry["last_offset"])
    return np.stack(spans, axis=1).tolist()


def _words(entry: np.void, t: np.void | None, fault: int) -> str:
    if t is None or fault in (BEYOND, NO_MARKER):
        beyond = fault == BEYOND
        return "is past the log end offset" if beyond else "has no ABORT marker of this producer at its last offset"
    return {
        COMMITTED: "lists a committed transaction",
        CLOSED_NOTHING: "has a marker without an open transaction",
        BEGINS: f"begins at {entry['first_offset']}, but its transaction at {t['first_offset']}",
    }[fault]


def _extra(
    log: LogView, replica: ReplicaFacts, entry: np.void, t: np.void | None, fault: int, severity: int
) -> Finding:
    stem = (replica.file(int(entry["segment"])) or "").removesuffix(".log")
    late = fault == BEGINS and t is not None and t["first_offset"] < entry["first_offset"]
    outcome = "hidden" if severity == CRITICAL else "exposed" if late else "at_risk"
    return log.finding(
        SEVERITIES[severity],
        f"An entry of {stem}.txnindex (producer id {entry['producer_id']}, offsets {entry['first_offset']} to "
        f"{entry['last_offset']}) {_words(entry, t, int(fault))}",
        replica=replica,
        file=f"{stem}.txnindex",
        position=entry["position"],
        offset=entry["first_offset"],
        last_offset=entry["last_offset"],
        producer_id=entry["producer_id"],
        transactional_id=log.owner(entry["producer_id"]),
        evidence={
            "found": [entry["first_offset"], entry["last_offset"], entry["last_stable_offset"]],
            "expected": None if t is None else [t["first_offset"], t["marker_offset"], t["last_stable_offset"]],
            "ranges": hidden_by(replica, entry)
            if outcome == "hidden"
            else [[t["first_offset"], entry["first_offset"] - 1]]
            if t is not None and outcome == "exposed"
            else None,
        },
        advice=repairs.rebuild(log, replica, f"{stem}.txnindex", f"{stem}.index"),
        outcome=outcome,
    )


# Transaction indexes of the replicas of one log.


@rule("replica-abort-index-divergence", when={"info": "while it may be in flight"})
def replica_abort_index_divergence(log: LogView) -> Iterator[Finding]:
    """Transaction indexes of replicas differ

    Checks: only one of two replicas has an entry in its .txnindex (producer, first offset, marker offset), although
    both have the marker's batch. Entries below both high watermarks and above both log starts are compared.
    Can be wrong: last_stable_offset differs legally and is not compared; retention and compaction are excluded; the
    index of a live directory was copied at another time (reported as in flight).
    What to do: if no batch of the segment is broken (a recovery would truncate it there), stop the broker without the
    entry, move the segment's .txnindex and .index away and start it. The start recovers the segment and rebuilds both.
    Before the stop, prepare the broker's partitions without another in-sync replica, as the finding describes.
    Source: TransactionIndex, UnifiedLog.rebuildProducerState
    """
    for pair in replica_pairs(log):
        only_leader, only_replica = pair.index_entries()
        if len(only_leader) or len(only_replica):
            yield _index_finding(log, pair, only_leader, only_replica)


def _index_finding(log: LogView, pair: Pair, only_leader: np.ndarray, only_replica: np.ndarray) -> Finding:
    replica, leader = pair.replica, pair.leader
    entry = min([*only_leader[:1], *only_replica[:1]], key=lambda e: e["last_offset"])
    without, holder = (leader, replica) if entry in only_replica else (replica, leader)
    number = int(np.searchsorted(replica.segment_bases, entry["last_offset"], side="right")) - 1
    file = (replica.file(number) or "").removesuffix(".log") + ".txnindex"
    late = _index_is_late(log, without, holder, entry)
    return log.finding(
        "error",
        f"Broker {without.broker_id} has no index entry for the aborted transaction of producer id "
        f"{entry['producer_id']} at offsets {entry['first_offset']} to {entry['last_offset']} of {log.name}, but "
        f"broker {holder.broker_id} has one. read_committed consumers of the former get aborted records",
        replica=replica,
        offset=entry["first_offset"],
        last_offset=entry["last_offset"],
        producer_id=entry["producer_id"],
        transactional_id=log.owner(entry["producer_id"]),
        file=file,
        evidence={
            "ranges": (only_replica if without is leader else only_leader)[SPAN].tolist(),
            "missing_in": {"broker_id": without.broker_id, "log_dir": without.log_dir},
            "present_in": {"broker_id": holder.broker_id, "log_dir": holder.log_dir},
            "only_in_leader_copy": [list(map(int, e)) for e in only_leader[:TOP]],
            "only_in_this_copy": [list(map(int, e)) for e in only_replica[:TOP]],
            "columns": ["producer_id", "first_offset", "marker_offset"],
            "entries": len(only_leader) + len(only_replica),
        },
        doubt=late,
        advice=repairs.rebuild(
            log, without, f"the .txnindex of the segment with offset {entry['last_offset']}", "its .index"
        ),
    )


def _index_is_late(log: LogView, without: ReplicaFacts, holder: ReplicaFacts, entry: np.void) -> bool:
    # Nothing later is in it, and the batch is recent or could not be read again.
    later = bool(np.any(without.aborted["last_offset"] > entry["last_offset"]))
    row = row_of(log, holder, int(entry["last_offset"]))
    if later or not row:
        return not later
    return log.doubt(log.time(row["max_timestamp"]), other_clock=True, replica=without)


# Aborted records that a replica returns to read_committed consumers.


EXPOSED_SHOWN = 20  # transactions shown in the evidence of one finding
ENTRY = ["producer_id", "first_offset", "last_offset", "last_stable_offset"]
COLUMNS = ["producer_id", "first_offset", "last_offset", "records", "marker_offset"]
RULE = "aborted-records-exposed"


@rule(
    RULE,
    when={
        "warning": "if an open transaction still blocks these records",
        "info": "if the segment's .index is not in the input",
    },
)
def aborted_records_exposed(log: LogView) -> Iterator[Finding]:
    """read_committed consumers get records of aborted transactions

    Checks: every fetch that can end inside a segment, by the replica's transaction and offset indexes. A broker stops
    looking for aborted transactions at the first .txnindex entry whose last stable offset is at or above the fetch's
    upper bound. That bound is an entry of the .index, the next segment's base offset or the log end offset. If the
    entry precedes the entry of a transaction in the fetch, its records are returned. One finding per replica.
    Why it matters: consumers with isolation.level=read_committed process aborted records when this replica leads, or
    when they fetch from it as a follower (KIP-392), depending on the size of their fetches. A tiered topic keeps the
    wrong index in remote storage.
    Can be wrong: a running broker whose .index was copied earlier than its .txnindex may expose more.
    What to do: make another in-sync replica with a right index the leader. Then stop the broker, move the .index and
    the .txnindex of the segment away and start it: it rebuilds both. Do not move the .txnindex alone: the broker starts
    without it and returns all aborted records. Before the stop, prepare the broker's partitions without another in-sync
    replica, as the finding describes. See docs/aborted-records-exposed.md.
    Source: TransactionIndex.collectAbortedTxns; LocalLog.addAbortedTransactions; ProducerStateManager.lastStableOffset
    """
    for replica in log.replicas:
        rows = _of_its_own(log, replica)
        if len(rows):
            yield _exposed(log, replica, rows)


def _of_its_own(log: LogView, replica: ReplicaFacts) -> np.ndarray:
    # Without transactions listed in the index of another segment (aborted-transaction-not-indexed), and without records
    # in remote storage that the leader's finding has.
    rows = replica.exposed
    if not len(rows):
        return rows
    t = replica.transactions
    t = t[(t["commit"] == 0) & np.isin(t["marker_offset"], rows["marker_offset"])]
    marked = t["marker_offset"][strays(replica, t)[0]]
    rows = rows[~np.isin(rows["marker_offset"], marked)]
    if replica is log.leader or not len(log.leader.exposed):
        return rows
    remote = np.array([replica.is_remote(int(number)) for number in rows["segment"]], bool)
    return rows[~(remote & np.isin(rows["first_offset"], log.leader.exposed["first_offset"]))]


def _exposed(log: LogView, replica: ReplicaFacts, rows: np.ndarray) -> Finding:
    t = replica.transactions
    stable = int(t["first_offset"][t["marker_offset"] < 0].min(initial=replica.log_end))
    proved = rows[rows["known"] == 1]
    shown, severity, returns = proved[proved["first_offset"] < stable], "critical", "returns"
    if not len(shown):
        shown, severity, returns = proved, "warning", f"will return, after the transaction at offset {stable} ends,"
    if not len(shown):
        shown, severity, returns = rows, "info", "may return"
    first, last = int(shown["first_offset"].min()), int(shown["last_offset"].max())
    records = int(shown["records"].sum())
    ends = replica.aborted[np.unique(shown["entry"])]
    missing = sorted({f"{_stem(replica, int(number))}.index" for number in rows["segment"][rows["known"] == 0]})
    return log.finding(
        severity,
        f"Broker {replica.broker_id} {returns} up to {plural(records, 'aborted record')} of {log.name} "
        f"(offsets {first} to {last}) to read_committed consumers: {plural(len(ends), 'entry')} of its transaction "
        f"index {'has' if len(ends) == 1 else 'have'} too high a last stable offset",
        replica=replica,
        file=f"{_stem(replica, int(ends[0]['segment']))}.txnindex",
        position=ends[0]["position"],
        offset=first,
        last_offset=last,
        evidence={
            "ranges": shown[SPAN].tolist(),
            "records": records,
            "transactions": len(np.unique(shown["marker_offset"])),
            "columns": COLUMNS,
            "exposed": [[int(row[name]) for name in COLUMNS] for row in shown[:EXPOSED_SHOWN]],
            "index_columns": ENTRY,
            "index_entries": [[int(entry[name]) for name in ENTRY] for entry in ends[:EXPOSED_SHOWN]],
            "in_remote_storage": any(replica.is_remote(int(number)) for number in shown["segment"]) or None,
            "missing": few(missing) or None,
            **({"confidence": "undecidable"} if severity == "info" else {}),
        },
        advice=_advice(log, replica, {int(number) for number in ends["segment"]})
        if len(proved)
        else Advice(
            Verdict.INVESTIGATE_FIRST,
            afterwards=f"Copy {few(missing)} of broker {replica.broker_id} too, and audit again",
        ),
    )


def _stem(replica: ReplicaFacts, segment: int) -> str:
    return (replica.file(segment) or "").removesuffix(".log")


def _advice(log: LogView, replica: ReplicaFacts, segments: set[int]) -> Advice:
    # A start recovers a segment without offset index, and computes its last stable offsets batch by batch
    # (LogSegment.recover).
    broker, name = replica.broker_id, log.name
    files = [_stem(replica, number) for number in sorted(segments) if not replica.is_remote(number)]
    if not files:
        return Advice(
            Verdict.INVESTIGATE_FIRST,
            "Kafka has no command that rebuilds the transaction index of a segment in remote storage",
            afterwards="Compare the records that read_committed consumers processed with the listed offsets",
        )
    checks, steps, conditions, moves = _another_leads(log, replica)
    pair = (
        f"{files[0]}.index and {files[0]}.txnindex" if len(files) == 1 else f"the .index and .txnindex of {few(files)}"
    )
    advice = Advice(
        Verdict.ACT,
        "no records are lost. Do not move the .txnindex alone: the broker then returns all aborted records of it",
        checks,
        steps=(*steps, Step(f"stop broker {broker}, move {pair} away and keep them, start it: it rebuilds both")),
        afterwards=f"Audit again when broker {broker} has {name} in sync. Transactions that end while it is down can "
        "get wrong entries in the same way, unless it catches up with replica.fetch.max.bytes=1 and "
        "replica.fetch.response.max.bytes=1 (one batch per fetch, slow)",
        moves=moves,
    )
    return gated(log.cluster, broker, advice, repairs.unbroken(log, replica), *conditions)


def _another_leads(
    log: LogView, replica: ReplicaFacts
) -> tuple[tuple[Condition, ...], tuple[Step, ...], tuple[Condition, ...], Moves]:
    place, broker = (log.topic, log.partition), replica.broker_id
    if log.cluster.replicas.get(place) == 1:
        return (), (), (), Moves()
    leader = log.cluster.leaders.get(place)
    if leader not in (None, broker):
        look = check(repairs.describe_topic(log.topic), f"the Leader of {log.name} is not broker {broker}")
        return (look,), (), (), Moves()
    others = (c for c in log.replicas if c is not replica and not len(c.exposed))
    other = next((c for c in others if c is log.leader or repairs.keeps_out(log, c) is None), None)
    may_lead = shown(
        f"another replica of {log.name} may lead and exposes no records",
        None if other is None else True,
        "its replicas",
    )
    if other is None:
        look = check(repairs.describe_topic(log.topic), f"the Isr of {log.name} lists a broker besides {broker}")
        return (look,), (), (may_lead,), Moves()
    look, synced = repairs.check_in_sync(log, other.broker_id), repairs.in_sync(log, other.broker_id)
    return (look,), repairs.lead(log, other), (may_lead, synced), Moves(leads=other.broker_id)


# Transaction index entries, compared with the replay by columns: a forged index may have millions.
#
# Cost of each function: a sort of both sides; memory: some 100 bytes per entry while it runs.


NONE, BEYOND, NO_MARKER, COMMITTED, CLOSED_NOTHING, BEGINS = range(6)
BY_WHAT_IT_HIDES = (NO_MARKER, CLOSED_NOTHING, BEGINS)
CRITICAL, ERROR, INFO = (SEVERITIES.index(name) for name in ("critical", "error", "info"))


class Faults(NamedTuple):
    """Wrong entries of transaction indexes.

    ``entry``: rows in ``ReplicaFacts.aborted``; ``transaction``: rows in ``ReplicaFacts.transactions`` (-1: none);
    ``fault``: what is wrong; ``severity``: an index of SEVERITIES.
    """

    entry: np.ndarray
    transaction: np.ndarray
    fault: np.ndarray
    severity: np.ndarray

    def take(self, rows: np.ndarray) -> Faults:
        """Select rows."""
        return Faults(*(column[rows] for column in self))

    def gravest(self, most: int, offsets: np.ndarray) -> tuple[Faults, Faults]:
        """Split off at most so many, the most severe with the lowest of ``offsets``; both parts keep their order."""
        order = np.lexsort((offsets, self.severity))
        return self.take(np.sort(order[:most])), self.take(np.sort(order[most:]))


def faults(replica: ReplicaFacts, intact_from: int) -> Faults:
    """Find the wrong entries of a replica's transaction indexes, above the log start and where it is intact."""
    none = np.empty(0, np.int64)
    if replica.unreadable or not len(replica.aborted):
        return Faults(none, none, none, none)
    judged = (replica.aborted["last_offset"] >= replica.log_start) & (replica.aborted["first_offset"] >= intact_from)
    rows = np.flatnonzero(judged)
    first, last, producer = (replica.aborted[name][rows] for name in ("first_offset", "last_offset", "producer_id"))
    t = replica.transactions
    transaction = last_of((t["producer_id"], t["marker_offset"]), (producer, last))
    fault = np.where(last >= replica.log_end, np.int8(BEYOND), np.int8(NO_MARKER))
    matched = np.flatnonzero(transaction >= 0)
    fault[matched] = _of_matched(replica, transaction[matched], first[matched], last[matched])
    wrong = np.flatnonzero(fault != NONE)
    fault, transaction = fault[wrong], transaction[wrong]
    severity = np.where(fault == COMMITTED, np.int8(CRITICAL), np.int8(INFO))
    doubted = np.flatnonzero(np.isin(fault, BY_WHAT_IT_HIDES))
    some = wrong[doubted]
    severity[doubted] = np.where(hides(replica, producer[some], first[some], last[some]), CRITICAL, ERROR)
    return Faults(rows[wrong], transaction, fault, severity)


def _of_matched(replica: ReplicaFacts, transaction: np.ndarray, first: np.ndarray, last: np.ndarray) -> np.ndarray:
    # Entries whose transactions are in the log.
    begins, commit, before = (
        replica.transactions[name][transaction] for name in ("first_offset", "commit", "prev_marker_offset")
    )
    lone = begins < 0  # a marker alone: brokers up to 2.7 index it with first = last
    own = (first == last) | (first < replica.log_start)
    headless = (first < replica.log_start) & (before < replica.log_start)  # retention took where it begins
    return np.select(
        [
            commit != 0,
            lone & own,
            lone,
            headless,
            (first != begins) & (np.maximum(first, begins) >= replica.log_start),
        ],
        [COMMITTED, NONE, CLOSED_NOTHING, NONE, BEGINS],
        NONE,
    )


def strays(replica: ReplicaFacts, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find aborted transactions (TRANSACTION rows) listed only in the index of another segment than their marker's.

    Returns their rows in ``t`` and in ``ReplicaFacts.aborted``.
    """
    listed, nothing = replica.aborted, np.empty(0, np.int64)
    at_home = np.searchsorted(replica.segment_bases, listed["last_offset"], side="right") - 1 == listed["segment"]
    if at_home.all():  # as in nearly every log
        return nothing, nothing
    wanted = (t["producer_id"], t["marker_offset"])
    rows = np.flatnonzero(last_of(entry_keys(listed[at_home]), wanted) < 0)
    elsewhere = np.flatnonzero(~at_home)
    entry = last_of(entry_keys(listed[elsewhere]), (wanted[0][rows], wanted[1][rows]))
    rows, entry = rows[entry >= 0], elsewhere[entry[entry >= 0]]
    strays = listed["segment"][entry] != t["marker_segment"][rows]
    return rows[strays], entry[strays]


def hides(replica: ReplicaFacts, producer: np.ndarray, first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Return which entries cover committed data of their producer."""
    t = replica.transactions
    t = t[(t["commit"] == 1) & (t["first_offset"] >= 0)]
    t = t[np.lexsort((t["first_offset"], t["producer_id"]))]
    hidden = np.zeros(len(producer), bool)
    some = np.flatnonzero(np.isin(producer, t["producer_id"]))
    if not len(some):
        return hidden
    # Of the transactions of a producer so far, the one that ends last: ranks, so that each producer begins anew.
    ends, rank = np.unique(t["last_offset"], return_inverse=True)
    _, group = np.unique(t["producer_id"], return_inverse=True)
    furthest = ends[np.maximum.accumulate(group * len(ends) + rank) % len(ends)]
    index = last_before((t["producer_id"], t["first_offset"]), (producer[some], last[some]))
    hidden[some] = (index >= 0) & (furthest[index] >= first[some])
    return hidden


# Repairs of wrong producer snapshots: seldom needed, and never with a start as after a crash.
#
# A start without ``.kafka_cleanshutdown`` removes a broker from the in-sync and eligible replicas of all its partitions
# (KIP-966), for one snapshot of one of them.


def wrong_snapshot(log: LogView, replica: ReplicaFacts, link: SnapshotLink, *, opened: bool) -> Advice:
    """Advise on a wrong snapshot.

    No step if no start reads it; another leader if an in-sync replica's snapshots match the log; a start without it
    only if it causes an open transaction (``opened``).
    """
    newest = max(replica.snapshots, key=lambda other: other.offset)
    name = log.name
    if newest is not link:
        return Advice(
            Verdict.WAIT,
            f"no records are lost: broker {replica.broker_id} starts from {newest.file}, which is newer",
            afterwards=f"Keep {link.file} for a report",
        )
    if replica is not log.leader or log.cluster.last_leader(log.topic, log.partition) not in (None, replica.broker_id):
        if not opened:
            return Advice(
                Verdict.WAIT,
                f"no records are lost while broker {replica.broker_id} follows: it takes each producer's state from "
                "the leader's next batches",
                afterwards=f"Do not make it the leader of {name} before these producers have written again",
            )
        return _without_snapshot(log, replica, link)
    sound = next((c for c in log.replicas if c is not replica and keeps_out(log, c) is None), None)
    if sound is not None and not any(snapshot.differences for snapshot in sound.snapshots):
        return Advice(
            Verdict.ACT,
            f"no records are lost if broker {sound.broker_id} leads, whose snapshots match the log",
            (
                shown(f"broker {sound.broker_id} has all records of the leader", True, "both replicas"),
                check_in_sync(log, sound.broker_id),
            ),
            lead(log, sound),
            afterwards=f"Broker {replica.broker_id} then takes each producer's state from its new leader",
            moves=Moves(leads=sound.broker_id),
        ).unless(in_sync(log, sound.broker_id))
    if opened:
        return _without_snapshot(log, replica, link)
    place = log.topic, log.partition
    alone = log.cluster.replicas.get(place) == 1 or log.cluster.in_sync.get(place) == (replica.broker_id,)
    others = check(
        repairs.describe_topic(log.topic), f"the Isr of {name} lists a broker other than {replica.broker_id}"
    )
    return Advice(
        Verdict.NONE if alone else Verdict.INVESTIGATE_FIRST,
        "a producer whose next batch is refused (OUT_OF_ORDER_SEQUENCE_NUMBER) continues with a new epoch. A batch "
        "that was sent twice in the meantime may be stored twice",
        () if alone else (others,),
        () if alone else (Step(f"make that broker lead {name}"),),
        afterwards=f"Keep {link.file} for a report",
    )


def _without_snapshot(log: LogView, replica: ReplicaFacts, link: SnapshotLink) -> Advice:
    # A clean start reads the next older snapshot and replays the log from there; it must not become a start as after a
    # crash.
    older = any(other.offset < link.offset for other in replica.snapshots)
    begins_later = bool(replica.log_start > 0 or (replica.segment_bases and replica.segment_bases[0] > 0))
    if not older:
        return Advice(
            Verdict.INVESTIGATE_FIRST,
            "the log below it is deleted, so its state of older producers would be lost"
            if begins_later
            else "a start without a snapshot loses all producer state, except after a crash",
            afterwards=f"Do not delete {link.file}: compare it with the snapshots of the other replicas",
        )
    act = Step(
        f"stop broker {replica.broker_id}, move {link.file} out of the directory and keep it, start the broker: it "
        "loads an older one and replays the log"
    )
    older_one = shown("an older snapshot exists", True, f"the directory of broker {replica.broker_id}")
    return gated(
        log.cluster,
        replica.broker_id,
        Advice(Verdict.ACT, "no state is lost: the log has all of it", steps=(act,)),
        older_one,
    )
