"""Rules on the replicas of one log."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from auditor.base.advice import Advice, Step, Verdict, check, shown
from auditor.base.at_rest import Fields
from auditor.base.evidence_keys import MissingRangeEvidence, read
from auditor.base.words import plural
from auditor.evidence.horizons import Missing
from auditor.facts.batch_headers import COMPARED
from auditor.facts.replica_facts import ReplicaFacts
from auditor.rules.catalogue.registry import rule
from auditor.rules.lib import repairs
from auditor.rules.lib.lost_batches import TOP, lost_of, never_visible, tail_advice, unsent, why_not_lost
from auditor.rules.lib.replica_pairs import Gap, Pair, row_of, watermark
from auditor.rules.lib.replica_pairs import pairs as replica_pairs
from auditor.rules.resolution.finding_limits import ENTRIES
from auditor.rules.resolution.resolve import by_cause, logs_of
from auditor.rules.seen.cluster_view import METADATA_TOPIC, Election
from auditor.rules.seen.view import Finding, LogView

# Replicas of one log on several brokers that differ.


COPIED_BEFORE, ABOVE = "its files may have been copied before these were written", "so they are not committed on both"
ONE_BATCH = "but only in the leader epoch, which no checksum covers: damaged on one, or re-sent, under"
FEW = 5  # partitions in which a replica is behind that are reported separately
EPOCHS_SHOWN = 8  # newest entries of the leader-epoch checkpoint in evidence


def _place(replica: ReplicaFacts, row: dict[str, int]) -> Fields:
    number = int(np.searchsorted(replica.segment_bases, row["base_offset"], side="right")) - 1
    return {"file": replica.file(number), "position": row["position"]}


def _lineage(replica: ReplicaFacts) -> list[list[int]]:
    return [list(entry) for entry in replica.leader_epochs[-EPOCHS_SHOWN:]]


@rule(
    "replica-divergence",
    when={
        "warning": "for uncommitted records of a crashed leader after a clean election",
        "lost": "also in a warning, if clients without producer ids wrote some of them",
        "info": "if it is one batch under two leader epochs, or no records are lost",
    },
)
def replica_divergence(log: LogView) -> Iterator[Finding]:
    """Replicas have different batches at the same offset

    Checks: in a region that neither replica compacted, one offset has two leader epochs. Or a replica has batches of an
    epoch at or past the offset where the leader's lineage ends that epoch. This does not depend on high-watermark
    checkpoints, since those of a killed leader are seconds old. Below both high watermarks, each batch is also compared
    with the leader's at the same offset: last offset, checksum, producer fields, leader epoch. Batches with a CRC
    mismatch are excluded. In __cluster_metadata, the old epoch of an isolated former leader is excluded: only records
    that a majority of the voters in the input has, or its own snapshot, were committed.
    Why it matters: records that a leader appended, and may have acknowledged, are no longer in the cluster. Consumers
    saw one version or the other. If only the leader epoch of one batch differs, no records are lost, since no checksum
    covers it.
    Can be wrong: compacted regions differ legally and are not compared (the evidence has the first compared offset). It
    does not prove that acknowledged records were lost, since a checkpoint is only a lower bound of committed records.
    If all later elections were clean by the metadata, these are uncommitted records of a crashed leader (then a
    warning). They are lost if a follower has them and the same leader was elected again, since its disk then lost them.
    Clients with acks=1 do not wait for the commit: records without a producer id may have been acknowledged (likely
    lost). Batches were re-sent if the leader's log has their producer id, epoch and sequences later on, or the same
    bytes without a producer id. If all of them were, or a coordinator's records were never committed, no records are
    lost (then an info).
    What to do: keep the losing replica before its broker starts, since the start truncates it; read its records with
    kafka-dump-log.sh and re-send those that the finding lists as not re-sent. If two replicas of one lineage differ,
    find out which one is right. Copy the other one to a safe place, and re-fetch it while the right one is in the ISR.
    Source: KIP-101; UnknownProducerId and OutOfOrderSequence page of Kafka's wiki; UnifiedLog.truncateTo
    """
    for pair in replica_pairs(log):
        if pair.divergent and row_of(log, pair.replica, pair.first_offset):
            yield _diverging(log, pair)


def _severity(log: LogView, pair: Pair, lost: Fields | None) -> str:
    # The tail of a crashed leader is no loss where the lineages part at a clean election, and all since were clean.
    since = [e for e in log.cluster.elected(log.topic, log.partition) if e.leader_epoch > pair.lost_epoch]
    elected = bool(since) and min(e.leader_epoch for e in since) <= _epoch_at(log, pair)
    below = pair.forked_at < 0 or pair.forked_at > pair.first_offset
    committed = not elected or below or not all(e.clean for e in since) or _lost_by_its_leader(log, pair, since)
    if lost is not None and (lost["all_sent_again"] or (never_visible(log) and not committed)):
        return "info"
    return "critical" if committed else "warning"


def _lost_by_its_leader(log: LogView, pair: Pair, since: list[Election]) -> bool:
    # The same broker was elected again, without records that this follower had fetched from it.
    leader = log.cluster.led(log.topic, log.partition, pair.lost_epoch)
    again = min(since, key=lambda e: e.leader_epoch).leader
    return leader == again and leader not in (None, pair.replica.broker_id)


def _epoch_at(log: LogView, pair: Pair) -> int:
    # The last epoch of the leader replica where none starts at or before the fork.
    later = [epoch for epoch, start in pair.leader.leader_epochs if epoch > pair.lost_epoch and start <= pair.forked_at]
    return min(later, default=pair.leader.last_leader_epoch)


def _diverging(log: LogView, pair: Pair) -> Finding:
    replica, leader = pair.replica, pair.leader
    first, ours = pair.first_offset, row_of(log, replica, pair.first_offset)
    theirs = row_of(log, leader, first) if first < leader.log_end else {}  # a new leader may have none there yet
    fields = [name for name in COMPARED if theirs and ours.get(name) != theirs.get(name)]
    with_replica, with_leader = _sides(log, pair)
    same = fields == ["partition_leader_epoch"] and pair.divergent == 1  # damaged on one, or sent again
    lost = lost_of(log, pair) if pair.forked_at == first and not same else None
    severity = _severity(log, pair, lost)
    unnumbered = lost.pop("unnumbered") if lost is not None else []  # clients with acks=1 may have had an answer
    acked = severity == "warning" and unnumbered != []
    ranges = None if lost is None else lost.pop("ranges")
    differ = f"they differ in {', '.join(fields)}" if fields else "the leader's batch there is unreadable"
    why = (
        f"{ONE_BATCH} {ours['partition_leader_epoch']} and {theirs['partition_leader_epoch']}"
        if same
        else f"below their high watermark {pair.high}: {differ}"
        if lost is None
        else f"under leader epochs {ours['partition_leader_epoch']} and "
        f"{theirs.get('partition_leader_epoch', _epoch_at(log, pair))}: offsets {first} to {lost['last_offset']}"
        f"{' at least' if pair.until is not None else ''}{_what_became(pair, lost, severity)}"
        f"{', but clients with acks=1 may have got an acknowledgement' if acked else ''}"
    )
    return log.finding(
        severity,
        f"Broker {replica.broker_id} and broker {leader.broker_id} (leader) "
        f"have different {'batches' if theirs else 'histories'} of {log.name} from offset {first} on, {why}",
        replica=replica,
        offset=first,
        last_offset=pair.last_offset,
        producer_id=ours["producer_id"] if ours["producer_id"] >= 0 else None,
        producer_epoch=ours["producer_epoch"] if ours["producer_id"] >= 0 else None,
        time_ms=ours["max_timestamp"],
        doubt=same,
        outcome="lost" if acked else "",
        **_place(replica, ours),
        evidence={
            "found": {name: ours[name] for name in COMPARED},
            "expected": {name: theirs[name] for name in COMPARED} if theirs else None,
            "differs": fields,
            "batches": pair.divergent,
            "leader_copy": {
                "broker_id": leader.broker_id,
                "log_dir": leader.log_dir,
                **(_place(leader, theirs) if theirs else {"log_end": leader.log_end}),
            },
            "same_as_this_copy": with_replica,
            "same_as_leader_copy": with_leader,
            "common_prefix_ends_at": first,
            "high_watermark": pair.high,
            "lost": lost,
            "ranges": unnumbered if acked else ranges or np.stack(pair.apart, axis=1)[:ENTRIES].tolist(),
            **({"confidence": Missing.LIKELY} if acked else {}),
            "compared_from": pair.low,
            **({} if pair.until is None else {"compared_until": pair.until}),
            "leader_epochs": {"this_copy": _lineage(replica), "leader_copy": _lineage(leader)},
            "topic_ids": [replica.topic_id, leader.topic_id] if replica.topic_id != leader.topic_id else None,
        },
        advice=_of_one_batch(first)
        if same
        else repairs.rescue(log, replica, first)
        if log.topic == METADATA_TOPIC
        else tail_advice(log, replica, lost, lossless=severity == "info")
        if lost is not None
        else _which_is_right(log, replica, first),
    )


def _what_became(pair: Pair, lost: Fields, severity: str) -> str:
    if severity == "info":
        return f" that only broker {pair.replica.broker_id} has are not lost: {why_not_lost(lost)}"
    never = ", but were never committed (all later elections were clean)" if severity == "warning" else ""
    rest = f"; {lost['sent_again']} of {plural(lost['batches'], 'batch')} were re-sent, but not {unsent(lost)}"
    return f" that a leader had appended are lost{never}{rest if lost['sent_again'] else ''}"


def _of_one_batch(first: int) -> Advice:
    look = check(
        repairs.dump(None, "--deep-iteration"), f"both have the same batch at offset {first}, except its leader epoch"
    )
    return Advice(Verdict.NONE, "no records are lost: leave both replicas as they are", (look,))


def _which_is_right(log: LogView, replica: ReplicaFacts, first: int) -> Advice:
    # Both have one lineage, so nothing in the input decides.
    leader = log.leader
    right = shown(f"broker {leader.broker_id} has the right batches", None, f"both differ from offset {first} on")
    refetched = repairs.refetch(log, replica, leader)
    look = check(repairs.dump(None, "--print-data-log"), f"the records of broker {leader.broker_id} there are right")
    advice = refetched.unless(right).also(look)
    compare = Step(f"compare both at offset {first}, and the leader epochs in the evidence")
    return replace(advice, steps=(compare, *advice.steps))


def _sides(log: LogView, pair: Pair) -> tuple[list[int | None], list[int | None]]:
    ours, theirs = (_compared(log, c, pair.first_offset) for c in (pair.replica, pair.leader))
    others = [
        (c.broker_id, _compared(log, c, pair.first_offset))
        for c in log.replicas
        if c not in (pair.replica, pair.leader)
    ]
    return [b for b, row in others if row == ours], [b for b, row in others if row == theirs]


def _compared(log: LogView, replica: ReplicaFacts, offset: int) -> dict[str, int]:
    row = row_of(log, replica, offset)
    return {name: row[name] for name in COMPARED} if row else {}


def _behind(f: Finding) -> Hashable:
    # Behind for a reason that is no loss.
    why = next((why for why in (COPIED_BEFORE, ABOVE) if f.message.endswith(why)), None)
    return (
        None
        if why is None or f.severity != "info"
        else (why, read(MissingRangeEvidence, f.evidence)["missing_in"]["log_dir"])
    )


def _all_behind(group: Sequence[Finding]) -> str:
    lacking = [read(MissingRangeEvidence, f.evidence) for f in group]
    broker, offsets = lacking[0]["missing_in"]["broker_id"], sum(gap["offsets"] for gap in lacking)
    why = group[0].message.endswith(ABOVE)
    return (
        f"Broker {broker} lacks {plural(offsets, 'offset')} of {plural(len(logs_of(group)), 'partition')} that other "
        f"brokers have: {'they begin at or above the high watermarks, ' + ABOVE if why else COPIED_BEFORE}"
    )


@rule(
    "replica-missing-range",
    when={
        "critical": "below both high watermarks",
        "warning": "if a follower is ahead",
        "info": "otherwise",
        "lost": "if the leader lacks them",
        "at_risk": "otherwise",
    },
    together=by_cause(_behind, _all_behind, few=FEW),
)
def replica_missing_range(log: LogView) -> Iterator[Finding]:
    """A replica lacks batches that another one has

    Checks: only one of two replicas has batches at or above both log starts, in a region that neither compacted. It is
    critical if they begin below both high watermarks. It is a warning if a follower has batches that the leader (by the
    metadata) lacks, although both were stopped cleanly.
    Why it matters: records below the high watermark were acknowledged. They are lost when the replica without them
    leads.
    Can be wrong: a lagging follower, or a replica that was copied before the batches were written (reported as in
    flight); unreadable bytes (reported as inconclusive). Retention and compaction are excluded.
    What to do: re-fetch the replica without them. If that is the leader, first copy the directory of a replica that has
    them to a safe place. Make that replica lead if it is in sync and lacks no record of the leader.
    Source: UnknownProducerId and OutOfOrderSequence page of Kafka's wiki; UnifiedLog.highWatermark
    """
    reported: set[tuple[int, int]] = set()  # what the leader replica lacks is one cause, however many followers have it
    for pair in replica_pairs(log):
        for gap in pair.gaps:
            key = (gap.first_offset, gap.last_offset)
            shown = row_of(log, pair.replica if gap.in_leader else pair.leader, gap.first_offset)
            if shown and (not gap.in_leader or key not in reported):
                yield _missing(log, pair, gap)
            if gap.in_leader:
                reported.add(key)


def _missing(log: LogView, pair: Pair, gap: Gap) -> Finding:
    without, holder = (pair.leader, pair.replica) if gap.in_leader else (pair.replica, pair.leader)
    row = row_of(log, holder, gap.first_offset)
    committed = gap.first_offset < pair.high
    forked = 0 <= pair.forked_at <= gap.first_offset  # then it never had them, whenever it was copied
    tail = gap.first_offset >= without.log_end and not forked
    time = log.time(row["max_timestamp"])
    late = tail and not log.at_rest(without) and log.doubt(time, other_clock=True, replica=without)
    not_copied = any(start <= gap.first_offset and gap.last_offset < end for start, end in without.absent)
    severity = "critical" if committed and not gap.undecidable else "info"
    if (severity == "info" or late) and not gap.undecidable and _ahead_of_its_leader(log, without, holder):
        severity = "warning"
    one = gap.first_offset == gap.last_offset
    span = f"offset {gap.first_offset}" if one else f"offsets {gap.first_offset} to {gap.last_offset}"
    return log.finding(
        severity,
        f"Broker {without.broker_id}{' (leader)' if gap.in_leader else ''} lacks {span} of {log.name} that broker "
        f"{holder.broker_id} has: {_meaning(pair, gap, committed, late, forked)}",
        replica=pair.replica,
        offset=gap.first_offset,
        last_offset=gap.last_offset,
        time_ms=row["max_timestamp"],
        **(_place(holder, row) if gap.in_leader else {}),
        evidence={
            "missing_in": {
                "broker_id": without.broker_id,
                "log_dir": without.log_dir,
                "log_end": without.log_end,
                "high_watermark": without.high_watermark,
                "leader_copy": gap.in_leader,
            },
            "present_in": {
                "broker_id": holder.broker_id,
                "log_dir": holder.log_dir,
                "log_end": holder.log_end,
                "high_watermark": holder.high_watermark,
                **_place(holder, row),
            },
            "batches": gap.batches,
            "offsets": gap.last_offset - gap.first_offset + 1,
            "high_watermark": pair.high,
            "confidence": "undecidable" if gap.undecidable or not_copied else "proved",
            "missing": "unreadable bytes of the replica without them"
            if gap.undecidable
            else "perhaps a segment file that was not copied"
            if not_copied
            else None,
        },
        doubt=late,
        outcome="lost" if gap.in_leader and severity == "critical" else "",
        advice=Advice(Verdict.NONE, "a lagging replica catches up by itself")
        if late or severity == "info"
        else _cure(log, without, holder, gap.first_offset),
    )


def _ahead_of_its_leader(log: LogView, without: ReplicaFacts, holder: ReplicaFacts) -> bool:
    # Both were stopped cleanly, so this is no lag.
    named = log.cluster.leaders.get((log.topic, log.partition))
    return log.at_rest(without) and log.at_rest(holder) and named is not None and named == without.broker_id


def _meaning(pair: Pair, gap: Gap, committed: bool, late: bool, forked: bool) -> str:
    if gap.undecidable:
        return "bytes of it are unreadable, so this is inconclusive"
    if forked:
        return f"their lineages diverge at offset {pair.forked_at}"
    if late:
        return COPIED_BEFORE
    if not committed:
        return f"they begin at or above the high watermark {pair.high}, {ABOVE}"
    loss = "consumers lack committed records" if gap.in_leader else "committed records are lost if it becomes leader"
    return f"they begin below the high watermark {pair.high}: {loss}"


def _cure(log: LogView, without: ReplicaFacts, holder: ReplicaFacts, offset: int) -> Advice:
    again = repairs.refetch(log, without, holder)
    if log.topic == METADATA_TOPIC:
        return again
    if without is not log.leader:
        return replace(
            again,
            afterwards=_and(f"Do not make broker {without.broker_id} the leader of {log.name}", again.afterwards),
        )
    keep = f"first copy the directory {holder.folder} of broker {holder.broker_id} to a safe place"
    if why := repairs.keeps_out(log, holder):
        return Advice(
            Verdict.ACT,
            f"broker {holder.broker_id} has them, but must not lead: {why}",
            steps=(Step(keep), repairs.read_the_copy(holder, offset)),
        )
    if not again.acts:
        return replace(again, afterwards=_and(keep, again.afterwards))
    steps = (Step(keep), *repairs.lead(log, holder), *again.steps)
    return replace(again, steps=steps, moves=replace(again.moves, leads=holder.broker_id))


def _and(first: str, then: str) -> str:
    return f"{first}. {then}" if then else first


# Log starts and producers that differ between replicas: legal, but visible after a failover.


@rule("replica-state-differs")
def replica_state_differs(log: LogView) -> Iterator[Finding]:
    """Replicas have different producers or log start offsets

    Checks: a follower's log start is below the leader's. Or a leader's log start is below a follower's, which is inside
    a segment, where only a leader's DeleteRecords sets it. It moved backwards at a failover, since brokers store it
    once a minute. Or snapshots of two replicas at the same offset have different producers.
    Why it matters: the next leader may have a producer id that expired here, or lack one. Clients before 2.5 then get
    UNKNOWN_PRODUCER_ID or OUT_OF_ORDER_SEQUENCE_NUMBER. If the start moved backwards, deleted records are readable
    again.
    Can be wrong: it is legal, since each replica has its own retention, expiration and start. A running leader's start
    may be higher than its stored one (reported as in flight).
    What to do: nothing while clients are 2.5 or newer.
    Source: KIP-360 (problem 2, and the note on reassignment); ProducerStateManager.truncateAndReload
    """
    for pair in replica_pairs(log):
        if pair.replica.segments and pair.leader.segments and pair.replica.own_start < pair.leader.own_start:
            yield _lower_start(log, pair)
        if _went_back(pair):
            yield _start_back(log, pair)
        differing = pair.snapshots()
        if differing:
            yield _other_producers(log, pair, differing)


def _lower_start(log: LogView, pair: Pair) -> Finding:
    replica, leader = pair.replica, pair.leader
    return log.finding(
        "info",
        f"{log.name} starts at offset {replica.own_start} on broker {replica.broker_id}, but at {leader.own_start} on "
        f"broker {leader.broker_id} (leader): a leader change can restore producer ids that expired on the leader",
        replica=replica,
        offset=replica.own_start,
        last_offset=leader.own_start - 1,
        evidence={
            "log_start": replica.own_start,
            "log_start_of_leader_copy": leader.own_start,
            "leader_copy": {"broker_id": leader.broker_id, "log_dir": leader.log_dir},
        },
    )


def _went_back(pair: Pair) -> bool:
    # Only DeleteRecords puts a log start within a segment.
    replica, leader = pair.replica, pair.leader
    comparable = replica.segments and leader.segments and replica.log_start_known and leader.log_start_known
    comparable = comparable and replica.unread_from < 0  # else nobody looked whether it begins within a segment
    return bool(comparable) and leader.own_start < replica.own_start and replica.own_start not in replica.segment_bases


def _start_back(log: LogView, pair: Pair) -> Finding:
    replica, leader = pair.replica, pair.leader
    doubt = not log.at_rest(leader)
    return log.finding(
        "info",
        f"The log start of {log.name} moved backwards from {replica.own_start} to {leader.own_start} when broker "
        f"{leader.broker_id} became leader or restarted: deleted records and expired producer ids are back"
        + (" (its stored start may only be outdated)" if doubt else ""),
        replica=leader,
        offset=leader.own_start,
        last_offset=replica.own_start - 1,
        evidence={
            "log_start": leader.own_start,
            "log_start_before": replica.own_start,
            "leader_epochs": [replica.last_leader_epoch, leader.last_leader_epoch],
            "seen_on": {"broker_id": replica.broker_id, "log_dir": replica.log_dir},
        },
        doubt=doubt,
        advice=Advice(
            Verdict.INVESTIGATE_FIRST,
            afterwards=f"If records below {replica.own_start} must not be readable, delete them again "
            "(kafka-delete-records.sh), which cannot be undone",
        ),
    )


def _other_producers(log: LogView, pair: Pair, differing: list[tuple[int, np.ndarray, np.ndarray]]) -> Finding:
    offset, only_replica, only_leader = differing[-1]
    return log.finding(
        "info",
        f"The producer snapshots of {log.name} at offset {offset} have different producers: {len(only_replica)} only "
        f"on broker {pair.replica.broker_id}, {len(only_leader)} only on broker {pair.leader.broker_id} (leader)",
        replica=pair.replica,
        offset=offset,
        last_offset=offset,
        file=next((link.file for link in pair.replica.snapshots if link.offset == offset), None),
        evidence={
            "only_in_this_copy": only_replica[:TOP].tolist(),
            "only_in_leader_copy": only_leader[:TOP].tolist(),
            "snapshots": [snapshot_offset for snapshot_offset, _, _ in differing][-TOP:],
            "leader_copy": {"broker_id": pair.leader.broker_id, "log_dir": pair.leader.log_dir},
            "high_watermarks": [watermark(pair.replica), watermark(pair.leader)],
        },
    )
