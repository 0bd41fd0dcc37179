"""Rules on the producers' state in a partition: sequences, resets, unknown producers, idle producers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from auditor.facts.copy_facts import (
    AFTER_UNREADABLE,
    IN_START_SEGMENT,
    IN_TRANSACTION,
    KNOWN_BELOW,
    KNOWN_IN_SNAPSHOT,
    SNAPSHOT_DENIES,
    STATE_MAY_BE_LOST,
    Ahead,
    Kind,
)
from auditor.rules import commands
from auditor.rules.finding import Finding, iso, lowered
from auditor.rules.registry import rule
from auditor.rules.view import LogView, at_ahead, is_ahead_of_all, runs
from auditor.rules.windows import naming

FAMILY = "producer state"
GAPS_REMEMBERED = 8  # of one producer, to find what fills them later
INHERITED_SHOWN = 100  # inherited producers of one log that get a line each


@rule("sequence-gap", family=FAMILY, severity="error")
def sequence_gap(log: LogView) -> Iterator[Finding]:
    """A producer's sequence numbers jump: records that it numbered are not in the log

    Checks: two neighbouring data batches of one producer and epoch, in a region that was never cleaned, whose sequences
    do not continue and do not touch anything stored before.
    Why it matters: an idempotent producer numbers every record of a partition. A number that is missing was given to a
    record that a broker acknowledged and lost, or that was written elsewhere, or was never written.
    Can be wrong: the broker had forgotten the producer (expiry, restart, leader change) and took any sequence from it;
    then the missing numbers may never have reached a broker.
    What to do: compare the replicas of the partition; look at the log around the gap with kafka-dump-log.sh
    --print-data-log; check for unclean elections, acks and min.insync.replicas; replay the source between both times.
    Source: UnknownProducerId and OutOfOrderSequence page, KIP-360
    """
    for gap in _gaps(log):
        e, swapped = gap[0], len(gap) > 1
        missing = (int(e["b"]) - int(e["a"])) % 2**31
        ahead = missing < 2**30 and not swapped
        idle = int(e["timestamp"] - e["e"])
        what = "the records between come later" if swapped else "the sequence went back"
        lost = "loss across a leader change" if e["f"] & STATE_MAY_BE_LOST else "loss or state loss"
        yield log.at_event(
            "sequence-gap",
            "error",
            f"Producer {e['producer_id']} (epoch {e['producer_epoch']}) continues with sequence {e['b']} where "
            f"{e['a']} was expected: "
            + (f"{missing} records are not in this log" if ahead else what)
            + (f" (it had been idle for {idle / 1000:.1f} s)" if idle > 1000 else ""),
            e,
            last_offset=gap[1]["last_offset"] if swapped else e["last_offset"],
            evidence={
                "expected": e["a"],
                "found": e["b"],
                "missing_records": missing if ahead else None,
                "previous_last_offset": e["c"],
                "previous_time": iso(int(e["e"])),
                "leader_epochs": [e["d"], e["leader_epoch"]],
                "class": "out of order" if swapped else lost,
                **_certainty(log, e),
            },
            remedy=_dump(log, e)
            + "; compare the replicas, check unclean elections and acks, replay the source between the two times",
        )


def _certainty(log: LogView, e: np.void) -> dict[str, str]:
    """For the evidence of a gap: how sure it is that records are lost, and what would decide it."""
    if any(e["c"] < start < end <= e["base_offset"] for start, end in log.leader.absent):
        return {"confidence": "undecidable", "missing": "perhaps a segment file that was not copied"}
    return {"confidence": "likely" if e["f"] & STATE_MAY_BE_LOST else "proved"}


def _gaps(log: LogView) -> list[list[np.void]]:
    """The gaps to tell, each with what is wrong only because its batches lie in another order.

    That is a batch that begins where the gap does, behind it, and the one that then goes on where those before ended.
    """
    intact, out = log.intact_from(), []
    newest: dict[tuple[int, int], list[list[np.void]]] = {}
    for e in log.events(Kind.SEQUENCE_GAP):
        if e["c"] < intact or e["f"] & AFTER_UNREADABLE or _in_committed(log, e):
            continue
        mine = newest.setdefault((int(e["producer_id"]), int(e["producer_epoch"])), [])
        gap = next((g for g in mine if e["b"] == g[0]["a"] or (len(g) > 1 and e["a"] == g[0]["b"])), None)
        if gap is not None:
            gap.append(e)
            continue
        out.append([e])
        mine.append(out[-1])
        del mine[:-GAPS_REMEMBERED]
    return out


def _in_committed(log: LogView, e: np.void) -> bool:
    """Whether the gap is inside a committed transaction, which is told by committed-transaction-hole."""
    if not e["f"] & IN_TRANSACTION:
        return False
    t = log.leader.transactions
    return bool(
        np.any(
            (t["producer_id"] == e["producer_id"])
            & (t["commit"] == 1)
            & (t["gap_offset"] >= 0)
            & (t["first_offset"] <= e["base_offset"])
            & (t["marker_offset"] > e["base_offset"])
        )
    )


def _dump(log: LogView, e: np.void) -> str:
    return commands.dump(log.leader.file(int(e["segment"])), "--print-data-log")


@rule("duplicate-sequence-range", family=FAMILY, severity="error")
def duplicate_sequence_range(log: LogView) -> Iterator[Finding]:
    """Records of a producer are stored twice

    Checks: a data batch whose sequences overlap those of an earlier batch of the same producer and epoch in the
    partition, without a full turn of the sequence numbers between them.
    Why it matters: this is the duplicate that idempotence exists to prevent; consumers read the records twice.
    Can be wrong: a raw segment was restored over a log that already held it.
    What to do: deduplicate downstream by producer id, epoch and sequence; raise producer.id.expiration.ms; upgrade
    clients to 2.5 or newer; move the cluster to transaction.version 2.
    Source: KIP-360
    """
    for run in runs(log.events(Kind.SEQUENCE_OVERLAP), "producer_id", "producer_epoch"):
        first, last = run[0], run[-1]
        yield log.at_event(
            "duplicate-sequence-range",
            "error",
            f"Producer {first['producer_id']} (epoch {first['producer_epoch']}) has sequence {first['b']} "
            f"stored a second "
            f"time: {len(run)} batch(es) repeat records that are already in the log",
            first,
            last_offset=last["last_offset"],
            evidence={
                "expected": first["a"],
                "found": first["b"],
                "batches": len(run),
                "stored_before_at": first["e"] if first["e"] >= 0 else None,
                "previous_last_offset": first["c"],
                "leader_epochs": [first["d"], first["leader_epoch"]],
            },
        )


@rule("sequence-reset-same-epoch", family=FAMILY, severity="warning")
def sequence_reset_same_epoch(log: LogView) -> Iterator[Finding]:
    """A producer starts again at sequence 0 without a new epoch

    Checks: a data batch with base sequence 0 in the epoch of the producer's batch before it, whose last sequence was
    not the largest there is.
    Why it matters: clients before 2.5 renumber after UNKNOWN_PRODUCER_ID; retries from before are then not recognised,
    and new records shaped like cached ones are taken for duplicates and lost.
    Can be wrong: the wrap of the sequence numbers, when the batch that ended at 2147483647 was cleaned away.
    What to do: upgrade clients (2.5 and newer raise the epoch); compare retention with how long producers are idle.
    Source: KIP-360
    """
    intact = log.intact_from()
    for e in log.events(Kind.SEQUENCE_RESET):
        if e["f"] & AFTER_UNREADABLE:
            continue
        severity = "warning" if e["c"] >= intact and log.leader.log_start_known else "info"
        yield log.at_event(
            "sequence-reset-same-epoch",
            severity,
            f"Producer {e['producer_id']} starts again at sequence 0 in the same epoch {e['producer_epoch']}: "
            f"{e['a']} was expected",
            e,
            evidence={
                "expected": e["a"],
                "found": 0,
                "previous_last_offset": e["c"],
                "leader_epochs": [e["d"], e["leader_epoch"]],
                **log.unknown_start(),
            },
        )


@rule("unknown-producer-first-sequence", family=FAMILY, severity="warning; info where retention explains it")
def unknown_producer_first_sequence(log: LogView) -> Iterator[Finding]:
    """The first batch of a producer does not begin at sequence 0

    Checks: the first batch of a producer in the partition has a sequence above 0 although nothing was removed before
    it: the log starts at 0, or a producer snapshot at or below the batch does not know the producer.
    Why it matters: the broker took an unknown producer at its word. The sequences below were lost, or were written
    before the broker lost its state, or never existed.
    Can be wrong: an id older than the first snapshot that is kept; a partition mirrored from raw segments; a topic that
    was deleted and created anew under a producer (info where the coordinator shows it).
    What to do: look for a leader change, DeleteRecords or an expiration just before; compare other replicas; treat the
    sequences below as possibly lost.
    Source: KIP-360, UnknownProducerId and OutOfOrderSequence page
    """
    shown, more = 0, 0
    for e in log.events(Kind.FIRST_NONZERO):
        if e["f"] & AFTER_UNREADABLE or e["base_offset"] < log.intact_from():
            continue
        inherited = _inherited(log, int(e["f"]))
        if inherited and shown >= INHERITED_SHOWN:
            more += 1
            continue
        shown += inherited
        yield _first_sequence(log, e, inherited)
    if more:
        yield log.finding(
            "unknown-producer-first-sequence",
            "info",
            f"{more} more producers have their first retained batch above sequence 0, as retention leaves them",
            evidence={"producers": more, "confidence": "undecidable", "missing": "the records below the log start"},
        )


def _inherited(log: LogView, flags: int) -> bool:
    if not log.leader.log_start_known:
        return True
    if log.leader.log_start <= 0:
        cleaned = log.intact_from() > 0  # what was before the batch may have been cleaned away
        return cleaned and not flags & SNAPSHOT_DENIES
    return bool(flags & (IN_START_SEGMENT | KNOWN_BELOW | KNOWN_IN_SNAPSHOT)) or not flags & SNAPSHOT_DENIES


def _created_anew(log: LogView, producer_id: int) -> bool:
    """Whether the coordinator knows of the producer's transactions in this partition from before this log began."""
    history, began = log.cluster.coordinator, int(log.leader.state.get("first_time", -1))
    if history is None or began < 0 or log.leader.log_start > 0:
        return False
    windows = naming(log).windows.get(producer_id, [])
    return any(w.end_time is not None and w.end_time < began for w in windows)


def _first_sequence(log: LogView, e: np.void, inherited: bool) -> Finding:
    who = f"Producer {e['producer_id']} (epoch {e['producer_epoch']})"
    anew = not inherited and _created_anew(log, int(e["producer_id"]))
    if inherited:
        lost = f"below the log start {log.leader.log_start}" if log.leader.log_start else "that the cleaner took"
        message = f"{who} has its first retained batch at sequence {e['b']}: what was before may be among those {lost}"
        extra = {"confidence": "undecidable", "missing": f"offsets {lost}"} | log.unknown_start()
    elif anew:
        message = f"{who} begins at sequence {e['b']} in this log: it wrote to one of this name before this one began"
        extra = {"confidence": "likely", "missing": "the deleted topic of the same name"}
    else:
        message = (
            f"{who} begins at sequence {e['b']} in this log: the broker took it without knowing it, and sequences 0 to "
            f"{int(e['b']) - 1} are nowhere here"
        )
        extra = {"confidence": "likely"}
    return log.at_event(
        "unknown-producer-first-sequence",
        "info" if inherited or anew else "warning",
        message,
        e,
        evidence={"expected": 0, "found": e["b"], "log_start": log.leader.log_start, **extra},
    )


@rule("first-batch-after-bump-nonzero", family=FAMILY, severity="error; warning where the leader had changed")
def first_batch_after_bump_nonzero(log: LogView) -> Iterator[Finding]:
    """A producer's new epoch does not begin at sequence 0

    Checks: the first batch of a higher epoch of a producer has a base sequence other than 0, where nothing was cleaned.
    Why it matters: a new epoch restarts the numbering; a leader that knows the producer refuses anything else.
    Can be wrong: the leader had lost the producer's state and could not refuse it.
    What to do: as for sequence-gap; report the client library if it repeats.
    Source: KIP-360, KIP-467
    """
    intact = log.intact_from()
    for e in log.events(Kind.BUMP_NONZERO):
        if e["c"] < intact or e["f"] & AFTER_UNREADABLE:
            continue
        changed = bool(e["f"] & STATE_MAY_BE_LOST)
        yield log.at_event(
            "first-batch-after-bump-nonzero",
            "warning" if changed else "error",
            f"Producer {e['producer_id']} begins its epoch {e['producer_epoch']} at sequence {e['b']} instead of 0",
            e,
            evidence={
                "expected": 0,
                "found": e["b"],
                "previous_epoch": e["e"],
                "previous_last_offset": e["c"],
                "leader_epochs": [e["d"], e["leader_epoch"]],
                "confidence": "likely" if changed else "proved",
            },
            remedy=_dump(log, e) + "; compare the replicas; report the client library if it repeats",
        )


@rule("plain-data-inside-transaction", family=FAMILY, severity="critical; warning where the leader had changed")
def plain_data_inside_transaction(log: LogView) -> Iterator[Finding]:
    """A producer writes outside its own open transaction

    Checks: a data batch without the transactional bit from a producer that has a transaction open in the partition.
    Why it matters: consumers read the batch as committed whatever becomes of the transaction; every broker refuses it,
    followers stop replicating at it, and a 4.1 broker that has to replay it does not start.
    Can be wrong: the leader had lost the open transaction in between.
    What to do: find the client by its producer id, stop mixing transactional and plain sends, watch the followers' lag.
    Source: KIP-360; ProducerAppendInfo
    """
    for run in runs(log.events(Kind.PLAIN_IN_TRANSACTION), "producer_id", "a"):
        e = run[0]
        changed = e["d"] >= 0 and e["d"] != e["leader_epoch"]
        yield log.at_event(
            "plain-data-inside-transaction",
            "warning" if changed else "critical",
            f"Producer {e['producer_id']} wrote {len(run)} plain batch(es) while its transaction that began at offset "
            f"{e['a']} was open: they count as committed whatever becomes of it",
            e,
            last_offset=run[-1]["last_offset"],
            evidence={
                "transaction_first_offset": e["a"],
                "batches": len(run),
                "leader_epochs": [e["d"], e["leader_epoch"]],
            },
            remedy=f"{commands.describe_producers(log.topic, log.partition)}; stop the client that mixes both; watch "
            "ReplicaFetcherManager lag",
        )


@rule("producer-expired-while-active", family=FAMILY, severity="warning", time=True)
def producer_expired_while_active(log: LogView) -> Iterator[Finding]:
    """A producer was idle longer than the broker remembers it, and then went on

    Checks: between two batches of a producer that continue each other lies more time than producer.id.expiration.ms
    (before 3.4: transactional.id.expiration.ms), with no transaction open.
    Why it matters: the broker had forgotten the producer: brokers before 2.4 refuse such a batch, newer ones take it
    without protection against duplicates.
    Can be wrong: CreateTime of replayed data; the setting is taken as one day where the input does not tell it.
    What to do: keep producers longer than they are idle, with kafka-configs.sh --bootstrap-server B --entity-type
    brokers --entity-default --alter --add-config producer.id.expiration.ms=604800000
    Source: KIP-360
    """
    limit = log.cluster.expiration_ms(log.leader.broker_id)
    for run in runs(log.events(Kind.IDLE_BEYOND_EXPIRY), "producer_id"):
        e = run[0]
        severity = "warning" if e["base_offset"] >= log.intact_from() else lowered("warning")
        yield log.at_event(
            "producer-expired-while-active",
            severity,
            f"Producer {e['producer_id']} was idle for {int(e['a']) / 3600000:.1f} h, longer than the "
            f"{limit / 3600000:.1f} h that brokers remember it, and went on at sequence {e['b']}",
            e,
            last_offset=run[-1]["last_offset"],
            evidence={
                "idle_ms": e["a"],
                "expiration_ms": limit,
                "previous_last_offset": e["c"],
                "times": len(run),
                "confidence": "likely",
            },
        )


@rule("producer-timestamp-skew", family=FAMILY, severity="warning")
def producer_timestamp_skew(log: LogView) -> Iterator[Finding]:
    """A producer's clock is far from the brokers'

    Checks: in a CreateTime topic, batches stamped earlier than a broker-written time before them by more than
    producer.id.expiration.ms, or later than a broker-written time after them by more than an hour.
    Why it matters: producers expire by their own stamps: old ones make the broker forget them at once, future ones hide
    late transactions from kafka-transactions.sh find-hanging.
    Can be wrong: back-fills that keep the original event times.
    What to do: set message.timestamp.type=LogAppendTime, or message.timestamp.before.max.ms and after.max.ms; mend the
    clocks.
    Source: KIP-360
    """
    for kind, word in ((Kind.TIMESTAMP_BEHIND, "behind"), (Kind.TIMESTAMP_AHEAD, "ahead of")):
        for run in runs(log.events(kind), "producer_id"):
            e = run[0]
            who = f"Producer {e['producer_id']}" if e["producer_id"] >= 0 else "A producer without id"
            hours = abs(int(e["a"]) - int(e["timestamp"])) / 3600000
            yield log.at_event(
                "producer-timestamp-skew",
                "warning",
                f"{who} stamps records {hours:.1f} h {word} the broker's clock",
                e,
                last_offset=run[-1]["last_offset"],
                evidence={"found": iso(int(e["timestamp"])), "broker_time": iso(int(e["a"])), "batches": len(run)},
            )
    ahead = log.leader.state.get("ahead")
    if isinstance(ahead, Ahead) and is_ahead_of_all(log, ahead):
        yield at_ahead(log, "producer-timestamp-skew", ahead)
