"""Rules on the sequences of a producer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from auditor.base.advice import Advice, Condition, Verdict, check
from auditor.base.errors import SEQUENCES
from auditor.base.words import duration, few, plural
from auditor.evidence.horizons import LEADERS_LOG, Missing, between, both_intact, whole_from
from auditor.facts.events import (
    AFTER_UNREADABLE,
    IN_TRANSACTION,
    KNOWN_BELOW,
    KNOWN_IN_SNAPSHOT,
    SNAPSHOT_DENIES,
    STATE_MAY_BE_LOST,
    Event,
    EventKind,
)
from auditor.model.policies import POLICIES
from auditor.rules.catalogue.registry import rule
from auditor.rules.lib import repairs
from auditor.rules.lib.lost_batches import joined_spans
from auditor.rules.seen.view import Finding, LogView, iso, once, runs
from auditor.transactions.matching import naming

# Sequences of a producer: gaps, duplicates, resets.


NOT_IDLE_MS = 1000  # no broker is set to forget a producer so soon
GAPS_REMEMBERED = 8  # of one producer, to find what fills them later


@rule(
    "sequence-gap",
    when={
        "critical": "before a committed transaction",
        "info": "if its leader may have compacted the log",
        "lost": "if they were committed, or the broker knew the producer",
        "reordered": "if the records between are stored later",
        "at_risk": "otherwise",
    },
)
def sequence_gap(log: LogView) -> Iterator[Finding]:
    """A sequence gap: numbered records of a producer are missing

    Checks: the sequences of two neighbouring data batches of one producer and epoch do not continue, and overlap no
    stored batch. The region was never compacted, or has only markers between them. If the next batch continues as if
    the previous one had the expected sequence, it is not a second gap. The first batch at the log start is compared
    with the last one below it, or with the producer snapshot there.
    Why it matters: an idempotent producer numbers every record of a partition. A missing number belongs to a record
    that a broker acknowledged and lost, that was written elsewhere, or that was never written. It was acknowledged if a
    committed transaction begins there, and the producer's earlier transactions in the log were committed too.
    Can be wrong: the broker had no producer state (expiration, restart, leader change) and accepted any sequence. The
    missing numbers may then never have reached a broker. They may be the end of an earlier aborted transaction. A
    follower of a compacted topic stores the gaps of its leader's compaction (info, inconclusive).
    What to do: compare the replicas of the partition. Check the log around the gap with kafka-dump-log.sh
    --print-data-log. Check for unclean elections, acks and min.insync.replicas. Re-send the records written between the
    two batches from their source.
    Source: UnknownProducerId and OutOfOrderSequence page of Kafka's wiki, KIP-360
    """
    for gap in _gaps(log):
        e, swapped = gap[0], len(gap) > 1
        jump = (e["found_sequence"] - e["expected_sequence"]) % SEQUENCES
        ahead = jump < SEQUENCES // 2 and not swapped
        idle = e["timestamp"] - e["previous_time"]
        what = "the records between are stored later" if swapped else "the sequence moved backwards"
        lost = "loss across a leader change" if e["context"] & STATE_MAY_BE_LOST else "loss or state loss"
        sure = certainty(log, e)
        if sure["confidence"] == Missing.PROVED and e["context"] & STATE_MAY_BE_LOST:
            sure = {"confidence": Missing.LIKELY}
        grave = ahead and sure["confidence"] != Missing.UNDECIDABLE and _between_committed(log, e)
        accepted = grave or (ahead and sure["confidence"] == Missing.PROVED and _remembered(e))
        yield log.at_event(
            "critical" if grave else "info" if sure.get("missing") == LEADERS_LOG else "error",
            f"Producer id {e['producer_id']} (epoch {e['producer_epoch']}) continues with sequence "
            f"{e['found_sequence']} instead of {e['expected_sequence']}: "
            + (f"{plural(jump, 'record')} missing in this log" if ahead else what)
            + (", of committed transactions" if grave else "")
            + (f" (idle for {duration(idle)} before)" if idle > NOT_IDLE_MS else ""),
            e,
            last_offset=gap[1]["last_offset"] if swapped else e["last_offset"],
            if_true="error" if sure.get("missing") == LEADERS_LOG else None,
            outcome="reordered" if swapped else "lost" if accepted else "at_risk",
            evidence={
                "expected": e["expected_sequence"],
                "found": e["found_sequence"],
                "missing_records": jump if ahead else None,
                "ranges": [[e["base_offset"], gap[1]["last_offset"]]] if swapped else [],
                "previous_last_offset": e["previous_last_offset"],
                "previous_time": iso(e["previous_time"]),
                "leader_epochs": [e["previous_leader_epoch"], e["leader_epoch"]],
                "class": "out of order" if swapped else lost,
                **sure,
            },
            advice=Advice(
                Verdict.INVESTIGATE_FIRST,
                conditions=(look_at(log, e),),
                afterwards=f"Check the batches around it{_and_at_others(log)}"
                + (f", and re-send the records written {_between(e)} from their source" if ahead else ""),
            ),
        )


def _remembered(e: Event) -> bool:
    # Only then does an accepted batch prove that all lower numbers had been accepted. The expiration may have been
    # shorter for a while than any setting shows now.
    return not e["context"] & STATE_MAY_BE_LOST and 0 <= e["timestamp"] - e["previous_time"] <= NOT_IDLE_MS


def _and_at_others(log: LogView) -> str:
    alone = log.cluster.replicas.get((log.topic, log.partition)) == 1
    return "" if alone else ", compare the replicas, check for unclean elections"


def certainty(log: LogView, e: Event) -> dict[str, str]:
    """Return the evidence on how certain it is that the log had the missing records, and what would decide it."""
    if any(e["previous_last_offset"] < start < end <= e["base_offset"] for start, end in log.leader.absent):
        return {"confidence": "undecidable", "missing": "perhaps a segment file that was not copied"}
    missing = between(log, e)
    return {"confidence": missing, **({"missing": LEADERS_LOG} if missing == Missing.UNDECIDABLE else {})}


def _between_committed(log: LogView, e: Event) -> bool:
    # Only commits end what the producer wrote in between. The missing records were then acknowledged, or the producer
    # would not have committed: they are of this transaction, of the previous one, or of one in between whose marker
    # alone is stored.
    begun, ended = _committed_around_gaps(log)
    row = begun.get((int(e["producer_id"]), int(e["base_offset"])))
    markers = 0
    while row is not None and row["commit"] == 1 and row["prev_marker_offset"] > e["previous_last_offset"]:
        row, markers = ended.get(int(row["prev_marker_offset"])), markers + 1
    return row is not None and row["commit"] == 1 and markers > 0


@once
def _committed_around_gaps(log: LogView) -> tuple[dict[tuple[int, int], np.void], dict[int, np.void]]:
    # By producer id and first offset; and all by their marker.
    t = log.leader.transactions
    producers = np.unique([e["producer_id"] for e in log.events(EventKind.SEQUENCE_GAP)])
    t = t[(t["marker_offset"] >= 0) & np.isin(t["producer_id"], producers)]
    begun = {(int(row["producer_id"]), int(row["first_offset"])): row for row in t if row["commit"] == 1}
    return begun, {int(row["marker_offset"]): row for row in t}


def _gaps(log: LogView) -> list[list[Event]]:
    # Each with the events that it explains: a later batch that starts where the gap does, and the one that then
    # continues from where those before ended.
    out: list[list[Event]] = []
    newest: dict[tuple[int, int], list[list[Event]]] = {}
    for e in log.events(EventKind.SEQUENCE_GAP):
        if not both_intact(log, e) or e["context"] & AFTER_UNREADABLE or _in_committed(log, e):
            continue
        if behind_another_number(log, e):
            continue
        recent = newest.setdefault((int(e["producer_id"]), int(e["producer_epoch"])), [])
        if any(_goes_on_as_expected(g[0], e) for g in recent):
            continue
        gap = next(
            (
                g
                for g in recent
                if e["found_sequence"] == g[0]["expected_sequence"]
                or (len(g) > 1 and e["expected_sequence"] == g[0]["found_sequence"])
            ),
            None,
        )
        if gap is not None:
            gap.append(e)
            continue
        out.append([e])
        recent.append(out[-1])
        del recent[:-GAPS_REMEMBERED]
    return out


def _goes_on_as_expected(gap: Event, e: Event) -> bool:
    # The batch before it is then the only odd one.
    would_end = (gap["expected_sequence"] + gap["last_offset"] - gap["base_offset"] + 1) % SEQUENCES
    return bool(e["previous_last_offset"] == gap["last_offset"] and e["found_sequence"] == would_end)


def behind_another_number(log: LogView, e: Event) -> bool:
    """Whether a batch continues as if the previous one, with a lower sequence than expected, had that one."""
    return any(_goes_on_as_expected(low, e) for low in _lower_numbers(log).get(int(e["previous_last_offset"]), ()))


def next_continues(log: LogView, low: Event) -> bool:
    """Whether the producer's next batch continues as if this one, with its lower sequence, had the expected one."""
    return int(low["last_offset"]) in _numbers_gone_on(log)


def _meets_another_number(log: LogView, e: Event) -> bool:
    # An earlier batch had these numbers by mistake; its gap reports it.
    if e["found_sequence"] != e["expected_sequence"]:
        return False
    first, count = e["found_sequence"], e["last_offset"] - e["base_offset"] + 1
    return any(
        (g["producer_id"], g["producer_epoch"]) == (e["producer_id"], e["producer_epoch"])
        and (
            (g["found_sequence"] - first) % SEQUENCES < count
            or (first - g["found_sequence"]) % SEQUENCES <= g["last_offset"] - g["base_offset"]
        )
        for g in _numbers_ahead(log)
    )


@once
def _numbers_ahead(log: LogView) -> list[Event]:
    # Batches with a sequence ahead of the expected one, after which the producer continues as if they had that one.
    gaps = list(log.events(EventKind.SEQUENCE_GAP))
    behind = {int(e["previous_last_offset"]): e for e in gaps}
    return [g for g in gaps if (e := behind.get(int(g["last_offset"]))) is not None and _goes_on_as_expected(g, e)]


@once
def _lower_numbers(log: LogView) -> dict[int, list[Event]]:
    # By last offset.
    by_last_offset: dict[int, list[Event]] = {}
    for low in log.events(EventKind.SEQUENCE_OVERLAP, EventKind.SEQUENCE_RESET):
        by_last_offset.setdefault(int(low["last_offset"]), []).append(low)
    return by_last_offset


@once
def _numbers_gone_on(log: LogView) -> set[int]:
    # By last offset.
    gaps = (e for e in log.events(EventKind.SEQUENCE_GAP) if behind_another_number(log, e))
    return {int(e["previous_last_offset"]) for e in gaps}


def _in_committed(log: LogView, e: Event) -> bool:
    # committed-transaction-hole reports these.
    if not e["context"] & IN_TRANSACTION:
        return False
    t = log.leader.transactions
    around = (t["first_offset"] <= e["base_offset"]) & (t["marker_offset"] > e["base_offset"])
    own = (t["producer_id"] == e["producer_id"]) & (t["commit"] == 1) & (t["gap_offset"] >= 0)
    return bool(np.any(own & around))


def _between(e: Event) -> str:
    before, behind = iso(e["previous_time"]), iso(e["timestamp"])
    if before is None or behind is None or before >= behind:
        return "around it"
    return f"between {before} and {behind}"


def look_at(log: LogView, e: Event) -> Condition:
    """Show the batch with Kafka's own tool."""
    shown = f"the output shows baseOffset {e['base_offset']} of producerId {e['producer_id']} with baseSequence"
    command = repairs.dump(log.leader.file(int(e["segment"])), "--print-data-log")
    return check(command, f"{shown} {e['found_sequence']}")


@rule("duplicate-sequence-range")
def duplicate_sequence_range(log: LogView) -> Iterator[Finding]:
    """Records of a producer are stored twice

    Checks: the sequences of a data batch overlap an earlier batch of the same producer and epoch in the partition,
    without a wrap of the sequence numbers between. From sequence 0 on, only the same bytes (length and checksum,
    without the time of LogAppendTime) are a duplicate; others are a reset. The first batch at the log start is compared
    with those below it that the file still has, or with the snapshot there. If one batch is ahead of the expected
    number and the next continues as if it were not, sequence-gap reports it. Later batches with those numbers are no
    duplicates.
    Why it matters: idempotence exists to prevent this duplicate. Consumers read the records twice.
    Can be wrong: a raw segment was restored over a log that already had it; the first copy may be below the log start,
    and consumers read it before its deletion. If the next batch continues as if this one had the expected number
    (goes_on_as_expected in the evidence), only its number is wrong, and its records may be stored once.
    What to do: deduplicate downstream by producer id, epoch and sequence; upgrade its client to 2.5 or newer.
    Source: KIP-360
    """
    for run in runs(log.events(EventKind.SEQUENCE_OVERLAP), "producer_id", "producer_epoch"):
        if all(_meets_another_number(log, e) for e in run):
            continue
        first, last = run[0], run[-1]
        yield log.at_event(
            "error",
            f"Producer id {first['producer_id']} (epoch {first['producer_epoch']}) stored sequence "
            f"{first['found_sequence']} twice: {plural(len(run), 'batch')} with already stored sequences",
            first,
            last_offset=last["last_offset"],
            evidence={
                "expected": first["expected_sequence"],
                "found": first["found_sequence"],
                "batches": len(run),
                "ranges": spans_of(run),
                "goes_on_as_expected": next_continues(log, last) or None,
                "log_age_ms": log_age(log, first),
                "stored_before_at": first["stored_base_offset"] if first["stored_base_offset"] >= 0 else None,
                "previous_last_offset": first["previous_last_offset"],
                "leader_epochs": [first["previous_leader_epoch"], first["leader_epoch"]],
            },
        )


def spans_of(run: Iterable[Event]) -> list[list[int]]:
    """Return the offsets of the batches of some events as ranges."""
    return [list(span) for span in joined_spans([(int(e["base_offset"]), int(e["last_offset"])) for e in run])]


@rule("repeated-records")
def repeated_records(log: LogView) -> Iterator[Finding]:
    """Records of a producer are stored again under its next epoch

    Checks: a plain batch at sequence 0 of the next epoch has the bytes (by length and checksum) of one of the
    producer's last five batches in the previous epoch. Epoch, sequence and the time of LogAppendTime do not count. The
    next batches after both are included. If the producer wrote equal batches before the new epoch, it is not reported.
    Why it matters: consumers read the records twice. A client without an answer bumps its epoch and numbers its batches
    from 0, so the broker cannot recognise them.
    Can be wrong: the application wrote the same records twice within a millisecond.
    What to do: deduplicate downstream by the content of the records; give the client more time for an answer
    (delivery.timeout.ms), and look for the cause of the delay, such as a leader change.
    Source: KIP-360, TransactionManager.bumpIdempotentProducerEpoch
    """
    for run in runs(log.events(EventKind.SENT_AGAIN), "producer_id", "producer_epoch"):
        first, last = run[0], run[-1]
        if first["producer_epoch"] != first["previous_epoch"] + 1:  # a client bumps it by one
            continue
        yield log.at_event(
            "warning",
            f"Producer id {first['producer_id']} stored {plural(len(run), 'batch')} of epoch {first['previous_epoch']} "
            f"again under epoch {first['producer_epoch']}: the records from offset {first['stored_base_offset']} on",
            first,
            last_offset=last["last_offset"],
            outcome="duplicated",
            evidence={
                "batches": len(run),
                "ranges": spans_of(run),
                "stored_before_at": first["stored_base_offset"],
                "previous_epoch": first["previous_epoch"],
                "previous_last_offset": first["previous_last_offset"],
            },
        )


@rule(
    "sequence-reset-same-epoch",
    when={
        "error": "if the next batch continues as if there was no reset",
        "info": "if the producer id may have expired, or batches between may be missing",
    },
)
def sequence_reset_same_epoch(log: LogView) -> Iterator[Finding]:
    """A producer restarts at sequence 0 without a new epoch

    Checks: a data batch has base sequence 0 in the epoch of the producer's previous batch, which did not end at the
    largest sequence. Its bytes differ from the earlier batch at sequence 0. It is an error if the next batch continues
    as if it had the expected number: then no client restarted, and its number is wrong.
    Why it matters: clients before 2.5 renumber after UNKNOWN_PRODUCER_ID. Brokers then do not recognise earlier
    retries, and treat new records that resemble cached ones as duplicates, which loses them.
    Can be wrong: a wrap of the sequence numbers, if the batch that ended at 2147483647 was compacted away. A broker
    before 2.4 expires a producer id together with its last batch: below the log start this is an info if the release is
    unknown.
    What to do: upgrade clients (2.5 and newer bump the epoch); compare retention with the idle time of producers.
    Source: KIP-360
    """
    for e in log.events(EventKind.SEQUENCE_RESET):
        below = e["previous_last_offset"] < log.leader.own_start
        evicted = below and log.policy().evicts_below_log_start
        if e["context"] & AFTER_UNREADABLE or evicted:  # unknown-producer-exposure reports the latter
            continue
        may_be_evicted = below and any(
            POLICIES[r.policy].evicts_below_log_start for r in log.cluster.release(log.leader.broker_id).rows
        )
        intact = both_intact(log, e) and between(log, e) != Missing.UNDECIDABLE
        sure = intact and log.leader.log_start_known and not may_be_evicted
        goes_on = next_continues(log, e)
        severity = "info" if not sure else "error" if goes_on else "warning"
        yield log.at_event(
            severity,
            f"Producer id {e['producer_id']} restarts at sequence 0 in the same epoch {e['producer_epoch']} instead of "
            f"{e['expected_sequence']}",
            e,
            evidence={
                "expected": e["expected_sequence"],
                "found": 0,
                "goes_on_as_expected": goes_on or None,
                "idle_ms": e["time"] - e["previous_time"],
                "previous_last_offset": e["previous_last_offset"],
                "leader_epochs": [e["previous_leader_epoch"], e["leader_epoch"]],
                **({"confidence": "undecidable", "missing": "the broker's release"} if may_be_evicted else {}),
                **log.unknown_start(),
            },
        )


def log_age(log: LogView, e: Event) -> int | None:
    """Return the age of the log, ms, when an event's batch was written: no producer was idle for longer.

    None where its beginning is missing.
    """
    began = log.leader.first_time
    return max(0, e["time"] - began) if log.leader.log_start == 0 and began >= 0 else None


@rule("plain-data-inside-transaction", when={"warning": "if the leader changed before"})
def plain_data_inside_transaction(log: LogView) -> Iterator[Finding]:
    """A non-transactional write inside an open transaction

    Checks: a data batch without the transactional bit, from a producer with an open transaction in the partition.
    Why it matters: consumers read the batch as committed whatever the outcome of the transaction. Every broker refuses
    it, followers stop replicating at it, and a 4.1 broker that has to replay it does not start.
    Can be wrong: the leader had lost the open transaction in between.
    What to do: find the client by its producer id; stop mixing transactional and plain sends; check the followers' lag.
    Source: KIP-360; ProducerAppendInfo
    """
    for run in runs(log.events(EventKind.PLAIN_IN_TRANSACTION), "producer_id", "transaction_first_offset"):
        e = run[0]
        changed = e["previous_leader_epoch"] >= 0 and e["previous_leader_epoch"] != e["leader_epoch"]
        yield log.at_event(
            "warning" if changed else "critical",
            f"Producer id {e['producer_id']} wrote {plural(len(run), 'non-transactional batch')} inside its "
            f"transaction from offset {e['transaction_first_offset']}: consumers see this data in any case",
            e,
            last_offset=run[-1]["last_offset"],
            evidence={
                "transaction_first_offset": e["transaction_first_offset"],
                "batches": len(run),
                "leader_epochs": [e["previous_leader_epoch"], e["leader_epoch"]],
            },
            advice=Advice(
                Verdict.INVESTIGATE_FIRST,
                conditions=(
                    check(
                        repairs.describe_producers(log.topic, log.partition),
                        f"the output lists producer id {e['producer_id']}",
                    ),
                ),
                afterwards="Stop the client that mixes both, and check the lag of ReplicaFetcherManager",
            ),
        )


# First batches of a log or an epoch that do not begin at sequence 0.


INHERITED_SHOWN = 100  # inherited producers of one log that get a line each


@rule("unknown-producer-first-sequence", when={"info": "if retention explains it"})
def unknown_producer_first_sequence(log: LogView) -> Iterator[Finding]:
    """The first batch of a producer does not begin at sequence 0

    Checks: the first batch of a producer in the partition has a sequence above 0, although no batch before it was
    removed. The log starts at 0, or a producer snapshot of the leader at or below the batch does not have the producer.
    If a snapshot at the log start, or a batch below it, has the producer, the batch is judged like any other.
    Why it matters: the broker accepted the batch without producer state. The earlier sequences were lost, were written
    before the broker lost its state, or never existed.
    Can be wrong: a topic re-created under a running producer; a partition mirrored from raw segments; an id older than
    the first kept snapshot. A re-created topic is an info if the coordinator or the metadata log shows it: the name of
    a deleted topic, an earlier producer id, a batch within producer.id.expiration.ms.
    What to do: look for a leader change, DeleteRecords or an expiration just before; compare other replicas; treat the
    earlier sequences as possibly lost.
    Source: KIP-360, UnknownProducerId and OutOfOrderSequence page of Kafka's wiki
    """
    shown, more = 0, 0
    for e in log.events(EventKind.FIRST_NONZERO):
        if e["context"] & AFTER_UNREADABLE or e["base_offset"] < whole_from(log):
            continue
        inherited = _inherited(log, e)
        if inherited and shown >= INHERITED_SHOWN:
            more += 1
            continue
        shown += inherited
        yield _first_sequence(log, e, inherited)
    if more:
        yield log.finding(
            "info",
            f"{plural(more, 'more producer')} with a first retained batch above sequence 0, as after retention",
            evidence={"producers": more, "confidence": "undecidable", "missing": "the records below the log start"},
        )


def _inherited(log: LogView, e: Event) -> bool:
    # A snapshot at or below the batch decides, if everything after it is in the files and it is not a follower's: one
    # that joined late never knew the leader's producers.
    flags, replica = e["context"], log.leader
    if replica.unread_from >= 0:
        return True
    if replica.log_start_known and replica.log_start <= 0:
        cleaned = whole_from(log) > 0  # what was before the batch may have been compacted away
        return cleaned and not flags & SNAPSHOT_DENIES
    if flags & (KNOWN_BELOW | KNOWN_IN_SNAPSHOT):
        return True
    led = log.cluster.led(log.topic, log.partition, int(e["leader_epoch"]))
    return not flags & SNAPSHOT_DENIES or led not in (None, replica.broker_id)


def _recreated(log: LogView, producer_id: int) -> bool:
    # The coordinator has transactions of the producer in this partition from before this log.
    history, began = log.cluster.coordinator, log.leader.first_time
    if history is None or began < 0 or log.leader.log_start > 0:
        return False
    named = naming(log)
    windows = named.rows[named.of(int(producer_id))]
    return bool((windows["has_complete"] & (windows["ended"] < began)).any())


def _topic_made_anew(log: LogView, e: Event) -> dict[str, str | None]:
    # By the metadata log: within the expiration a producer of the removed topic may still be active.
    removed, created, next_id = log.cluster.made_anew.get(log.topic, (None, None, None))
    if created is None or log.leader.log_start > 0:
        return {}
    younger = next_id is not None and e["producer_id"] >= next_id
    late = e["time"] - created >= log.cluster.expiration_ms(log.leader.broker_id)
    if younger or late:
        return {}
    return {"topic_removed": None if removed is None else iso(removed), "topic_created": iso(created)}


def _what_is_not_here(log: LogView) -> str:
    replica = log.leader
    if replica.unread_from >= 0:
        return f"below offset {replica.log_start} (excluded)"
    if replica.own_start < replica.log_start:
        return f"from {replica.own_start} to {replica.log_start - 1} (in remote storage)"
    return f"below the log start {replica.log_start}" if replica.log_start else "that were compacted away"


def _with_earlier_sequences(log: LogView, e: Event) -> list[int | None]:
    # The brokers whose replica has them.
    brokers = []
    for replica in log.replicas:
        rows = replica.producers[replica.producers["producer_id"] == e["producer_id"]]
        first = rows["first_sequence"][rows["first_epoch"] == e["producer_epoch"]]
        if ((first >= 0) & (first < e["found_sequence"])).any():
            brokers.append(replica.broker_id)
    return brokers


def _first_sequence(log: LogView, e: Event, inherited: bool) -> Finding:
    who, first = f"producer id {e['producer_id']} (epoch {e['producer_epoch']})", e["found_sequence"]
    made = {} if inherited else _topic_made_anew(log, e)
    recreated = bool(made) or (not inherited and _recreated(log, e["producer_id"]))
    if inherited:
        lost = _what_is_not_here(log)
        message = f"First retained batch of {who} has sequence {first}: earlier batches may be at offsets {lost}"
        extra: dict[str, str | None] = {"confidence": "undecidable", "missing": f"offsets {lost}"}
        extra |= log.unknown_start()
    elif recreated:
        message = f"First sequence of {who} is {first}, not 0: it wrote to an earlier log of this name before"
        extra = {"confidence": "likely", "missing": "the deleted topic of the same name", **made}
    else:
        others = _with_earlier_sequences(log, e)
        where = "and no other replica of the input" if len(log.replicas) > 1 else "the only replica of the input"
        message = (
            f"First sequence of {who} is {first}, not 0: the broker accepted it without producer state. This replica "
            f"does not have sequences 0 to {first - 1}, {f'broker {few(others)} has them' if others else where}"
        )
        extra = {"confidence": "likely"}
    return log.at_event(
        "info" if inherited or recreated else "warning",
        message,
        e,
        evidence={
            "expected": 0,
            "found": first,
            "log_start": log.leader.log_start,
            "log_age_ms": log_age(log, e),
            **extra,
        },
    )


@rule("first-batch-after-bump-nonzero", when={"warning": "if the leader changed before"})
def first_batch_after_bump_nonzero(log: LogView) -> Iterator[Finding]:
    """A producer's new epoch does not begin at sequence 0

    Checks: the first batch of a higher epoch of a producer has a base sequence other than 0, in a region without
    compaction. It is the first one in the partition; a batch after a fenced producer's batch is compared with the last
    one of its own epoch.
    Why it matters: a new epoch restarts the numbering. A leader with producer state refuses anything else.
    Can be wrong: the leader had lost the producer's state and could not refuse it.
    What to do: compare the replicas of the partition; check for unclean elections, acks and min.insync.replicas; report
    the client library if it repeats.
    Source: KIP-360, KIP-467
    """
    for e in log.events(EventKind.BUMP_NONZERO):
        if not both_intact(log, e) or e["context"] & AFTER_UNREADABLE or between(log, e) == Missing.UNDECIDABLE:
            continue
        changed = bool(e["context"] & STATE_MAY_BE_LOST)
        yield log.at_event(
            "warning" if changed else "error",
            f"Producer id {e['producer_id']} begins epoch {e['producer_epoch']} at sequence {e['found_sequence']} "
            "instead of 0",
            e,
            evidence={
                "expected": 0,
                "found": e["found_sequence"],
                "previous_epoch": e["previous_epoch"],
                "previous_last_offset": e["previous_last_offset"],
                "leader_epochs": [e["previous_leader_epoch"], e["leader_epoch"]],
                "confidence": "likely" if changed else "proved",
            },
            advice=Advice(
                Verdict.INVESTIGATE_FIRST,
                conditions=(look_at(log, e),),
                afterwards="Check the batches around it, compare the replicas; report the client library if it repeats",
            ),
        )
