"""Rules on what producers' state costs, and on who is about to lose it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from auditor.base.advice import Advice, Verdict
from auditor.base.numbers import LAST_SEQUENCE
from auditor.base.words import duration, plural
from auditor.facts.replica_facts import BYTES_A_BATCH, BYTES_A_PRODUCER, ReplicaFacts, state_bytes
from auditor.model import policies
from auditor.model.policies import ERRORS, OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_PRODUCER_ID
from auditor.rules.catalogue.needs import Need
from auditor.rules.catalogue.registry import kinds, rule
from auditor.rules.catalogue.safeguards import FORGOTTEN_BY, KNOWN_BELOW_LOG_START, PRODUCER_EXPIRATION, RETENTION
from auditor.rules.lib.expiry import counts_markers
from auditor.rules.seen.cluster_view import DAY_MS
from auditor.rules.seen.finding import Finding
from auditor.rules.seen.view import LogView

FAMILY = "capacity"
CACHED_BATCHES = 5
MANY_BYTES = 256 << 20
MANY_PRODUCERS = 100_000
WORTH_KNOWING = 10_000  # producers of one partition from which on its cost is worth a finding
SHORT_LIVED, SHORT_BATCHES = 1_000, 3
SHOWN = 100  # producers of one log that get a line each


class Peak(NamedTuple):
    """The largest producer state of one replica: how many producers, and its estimated bytes."""

    producers: int
    bytes: int


def known_peaks(replica: ReplicaFacts, expiration_ms: int) -> list[Peak]:
    """The peak of a replica's producer state, each producer counted from its first batch to its expiry: with
    CACHED_BATCHES kept of each, and with the latest alone.

    Producers that expired and came back count in between too: an upper bound.
    """
    p = replica.producers
    if not len(p):
        return [Peak(0, 0), Peak(0, 0)]
    marker_time, below_time = p["marker_time"], p["below_timestamp"]
    stamps = [np.where(times >= 0, times, 1 << 62) for times in (p["first_time"], marker_time, below_time)]
    begin = np.min(stamps, axis=0)
    begin = np.where(begin == 1 << 62, 0, begin)
    end = np.max([p["data_time"], marker_time, below_time, p["last_timestamp"]], axis=0)
    end = np.where(p["txn_first_offset"] >= 0, 1 << 62, end + max(expiration_ms, 0))
    batches = p["batches"] + p["below_batches"]
    costs = [BYTES_A_PRODUCER + BYTES_A_BATCH * np.clip(batches, 0, cached) for cached in (CACHED_BATCHES, 1)]
    if begin.max() < end.min():  # as of most logs: all of them are there together when the last one comes
        return [Peak(len(p), int(cost.sum())) for cost in costs]
    first, last = np.argsort(begin, kind="stable"), np.argsort(end, kind="stable")
    gone = np.searchsorted(end[last], begin[first], side="right")  # what ends when one begins goes before it
    alive = np.arange(1, len(p) + 1) - gone
    peaks = []
    for cost in costs:
        left = np.concatenate([[0], np.cumsum(cost[last])])
        peaks.append(Peak(int(alive.max()), int((np.cumsum(cost[first]) - left[gone]).max())))
    return peaks


@rule(
    "producer-state-memory",
    family=FAMILY,
    severities={"warning": "above 100,000 producers or 256 MiB", "info": "else"},
    needs=(Need.PRODUCERS,),
)
def producer_state_memory(log: LogView) -> Iterator[Finding]:
    """A partition's producer state takes much of the broker's memory

    Checks: the number of producers that the broker had in memory at the peak of the replay, each from its first batch
    until it expires, at 224 bytes a producer and 40 a cached batch; reported from 10,000 producers of a partition on.
    'auditor what-if' says it for whole brokers, whatever their size.
    Can be wrong: the bytes are an estimate; producers may expire sooner than the settings in the input say.
    What to do: find the short-lived producers; watch the metric kafka.server:type=ReplicaManager,name=ProducerIdCount;
    from 3.4 on a lower producer.id.expiration.ms lets brokers forget them sooner.
    Source: KIP draft on keeping only the latest batch
    """
    if len(log.leader.producers) < WORTH_KNOWING:  # as of nearly all
        return
    expiration = log.cluster.expiration_ms(log.leader.broker_id)
    peak, drafted = known_peaks(log.leader, expiration)
    if peak.producers < WORTH_KNOWING:
        return
    yield log.finding(
        "producer-state-memory",
        "warning" if peak.producers > MANY_PRODUCERS or peak.bytes > MANY_BYTES else "info",
        f"{log.name} had {plural(peak.producers, 'producer')} at its peak: about {peak.bytes / 2**20:.1f} MiB "
        "in every broker with a replica",
        evidence={
            "producers_peak": peak.producers,
            "bytes_peak": peak.bytes,
            "bytes_peak_latest_batch_only": drafted.bytes,
            "expiration_ms": expiration,
            "confidence": "likely",
        },
        advice=_fewer(
            log,
            "find the short-lived producers, and watch the metric "
            "kafka.server:type=ReplicaManager,name=ProducerIdCount",
        ),
    )


def _fewer(log: LogView, first: str) -> Advice:
    """What makes a broker remember fewer producers; before 3.4 no setting does that which ids do not need, too."""
    by_id = {release.expiration_setting == policies.BY_ID for release in log.cluster.release(log.leader.broker_id).rows}
    from_then = "" if by_id == {True} else "from 3.4 on, "
    lower = f"; {from_then}lower {policies.BY_ID}, after which an idle one is forgotten" if True in by_id else ""
    return Advice(Verdict.LOOK, then=first + lower)


def broker_memory(log_dir: str, broker_id: int | None, now: Peak, drafted: Peak) -> Finding:
    """What all partitions of a log directory hold together: the sums of their peaks, as it is and under the draft."""
    heavy = now.bytes > MANY_BYTES
    found = Finding(
        "producer-state-memory",
        "warning" if heavy else "info",
        broker_id,
        message=f"The partitions of {log_dir} had {plural(now.producers, 'producer')} at their peaks: at most "
        f"about {now.bytes / 2**20:.1f} MiB of the broker's memory, or {drafted.bytes / 2**20:.1f} MiB with "
        "one batch each",
        evidence={
            "producers_peak": now.producers,
            "bytes_peak": now.bytes,
            "bytes_peak_latest_batch_only": drafted.bytes,
            "log_dir": log_dir,
            "confidence": "likely",
        },
    )
    (whole,) = kinds()["producer-state-memory"].completed([found])
    return whole


@rule("short-lived-producers", family=FAMILY, severities={"warning": ""}, needs=(Need.PRODUCERS,))
def short_lived_producers(log: LogView) -> Iterator[Finding]:
    """Producers come and go with hardly a batch each

    Checks: a thousand or more producer ids that wrote three batches or fewer to the partition, all begun in one day.
    Can be wrong: functions that are meant to be short-lived.
    What to do: share producers between requests. With transactional ids use a few of them again: they need idempotence;
    without, enable.idempotence=false gives them no producer id, where duplicates do no harm. From 3.4 on a lower
    producer.id.expiration.ms lets brokers forget them sooner.
    Source: KIP draft on keeping only the latest batch, KIP-360
    """
    p = log.leader.producers
    if len(p) < SHORT_LIVED:
        return
    written = p["batches"] + p["below_batches"]
    short_lived = np.flatnonzero((p["batches"] > 0) & (written <= SHORT_BATCHES))
    if len(short_lived) < SHORT_LIVED:
        return
    asked = ("first_time", "first_offset", "data_last_offset", "batches", "producer_id", "transactional")
    short = {name: p[name][short_lived] for name in asked}  # of a million, not all columns
    by_time = np.argsort(short["first_time"], kind="stable")
    short = {name: values[by_time] for name, values in short.items()}
    times = short["first_time"]
    within = np.searchsorted(times, times + DAY_MS, side="left") - np.arange(len(times))
    at = int(np.argmax(within))
    count = int(within[at])
    if count < SHORT_LIVED:
        return
    first, last = int(times[at]), int(times[at + count - 1])
    transactional = int(np.count_nonzero(short["transactional"][at : at + count]))
    yield log.finding(
        "short-lived-producers",
        "warning",
        f"{count} producers began in {log.name} within a day and wrote {SHORT_BATCHES} batches or fewer each",
        offset=int(short["first_offset"][at : at + count].min()),
        last_offset=int(short["data_last_offset"][at : at + count].max()),
        time_ms=log.time(first),
        evidence={
            "producers": count,
            "span_ms": last - first,
            "one_batch": int(np.count_nonzero(short["batches"][at : at + count] == 1)),
            "examples": short["producer_id"][at : at + 5].tolist(),
            "bytes": state_bytes(count, count),
            "transactional": transactional,
        },
        advice=_fewer(log, _shared(count - transactional, transactional)),
    )


def _shared(plain: int, transactional: int) -> str:
    """How there are fewer of both kinds. A client refuses a transactional.id with enable.idempotence=false."""
    said = ["share producers between requests"]
    said += [f"use a few transactional ids again ({transactional} of these have one)"] if transactional else []
    said += [f"set enable.idempotence=false where duplicates do no harm ({plain} of these)"] if plain else []
    return "; ".join(said)


@rule(
    "unknown-producer-exposure",
    family=FAMILY,
    severities={"warning": "on brokers before 2.4 and for idle ones", "info": "else"},
    time=True,
    prevented_by=(KNOWN_BELOW_LOG_START, PRODUCER_EXPIRATION),
    needs=(Need.PRODUCERS,),
)
def unknown_producer_exposure(log: LogView) -> Iterator[Finding]:
    """A producer whose state a broker may forget, or has forgotten, before its next write

    Checks: producers all of whose batches lie below the log start, known from the file or a snapshot, that have not
    written since or began again at sequence 0 in the same epoch; and producers that still write and twice or more were
    idle for over 80 % of the expiration. Producers idle beyond the expiration are left out.
    Why it matters: brokers before 2.4 forget a producer with its last batch, also where its end marker is retained, and
    refuse its next one with UNKNOWN_PRODUCER_ID (0.11, which keeps it while the marker is there, with
    OUT_OF_ORDER_SEQUENCE_NUMBER); later ones keep it until it expires, but a new replica or a lost snapshot forgets it
    as well.
    Can be wrong: CreateTime stamps; a producer that was closed and will never write again; 0.11 is taken for 1.0 where
    no snapshot shows an end marker.
    What to do: where a next write will be refused, keep records (retention.ms) for longer than the producer is idle, or
    upgrade the brokers; where it nearly expires, let it write more often. Else nothing.
    Source: KIP-360
    """
    if not log.has_sequences or not len(log.leader.producers):
        return
    expiration = log.cluster.expiration_ms(log.leader.broker_id)
    rows = list(_below(log, expiration))
    for row in rows[:SHOWN]:
        yield _exposed(log, row)
    if len(rows) > SHOWN:
        yield log.finding(
            "unknown-producer-exposure",
            "warning" if log.policy().evicts_below_log_start else "info",
            f"All batches lie below the log start of {log.name}: {plural(len(rows) - SHOWN, 'more producer')}",
            evidence={"producers": len(rows) - SHOWN, "log_start": log.leader.own_start, **_forgotten(log)},
        )
    yield from _idle(log, expiration)


def _below(log: LogView, expiration_ms: int) -> Iterator[np.void]:
    """Producers of the first kind, by the offset of their last batch below the log start."""
    p = log.leader.producers
    last = p["below_last_offset"]
    below = (last >= 0) & (last < log.leader.own_start)
    if not below.any():  # each column of many producers has to be unpacked
        return
    same_epoch = p["producer_epoch"] == p["below_epoch"]  # a marker of a later one lets it begin at 0 anyway
    gone = (p["batches"] == 0) & same_epoch & (log.cluster.as_of - p["below_timestamp"] < expiration_ms)
    restarted = (
        (p["batches"] > 0)
        & (p["first_sequence"] == 0)
        & (p["first_epoch"] == p["below_epoch"])
        & (p["below_last_sequence"] != LAST_SEQUENCE)
        & (p["below_last_sequence"] >= 0)
        & (p["first_timestamp"] - p["below_timestamp"] < expiration_ms)
    )
    kept = (p["markers"] > 0) & (counts_markers(log.leader))
    found = p[below & (gone | restarted) & ~kept]
    yield from found[np.lexsort((found["producer_id"], found["below_last_offset"]))]


def _exposed(log: LogView, row: np.void) -> Finding:
    old = log.policy().evicts_below_log_start
    restarted = bool(row["batches"] > 0)
    refused = "was" if restarted else "will be"
    message = (
        f"All batches of producer {row['producer_id']} (epoch {row['below_epoch']}) up to offset "
        f"{row['below_last_offset']} lie below the log start {log.leader.own_start}"
        + (f"; it began again at sequence 0 at offset {row['first_offset']}" if restarted else "")
    )
    if old:
        by_snapshots = OUT_OF_ORDER_SEQUENCE_NUMBER if counts_markers(log.leader) else UNKNOWN_PRODUCER_ID
        shown = policies.policy_at(log.policy_name(), log.cluster.release(log.leader.broker_id)).unknown_error
        answer = ERRORS[by_snapshots if shown == UNKNOWN_PRODUCER_ID else shown]
        message += f": its next write {refused} refused with {answer}"
    else:
        message += ": brokers of 2.4 or newer keep its state until it expires, a new replica knows nothing of it"
    return log.finding(
        "unknown-producer-exposure",
        "warning" if old else "info",
        message,
        offset=row["below_last_offset"],
        last_offset=row["below_last_offset"],
        producer_id=row["producer_id"],
        producer_epoch=row["below_epoch"],
        transactional_id=log.owner(row["producer_id"]),
        time_ms=row["below_timestamp"],
        evidence={
            "last_sequence": row["below_last_sequence"],
            "last_offset": row["below_last_offset"],
            "log_start": log.leader.own_start,
            "known_from": _known_from(row),
            "restarted_at": row["first_offset"] if restarted else None,
            "policy": log.policy_name(),
            **_forgotten(log),
        },
    )


def _forgotten(log: LogView) -> dict[str, str]:
    """For the evidence: why the broker does not know the producer any more, where it forgets with the last batch."""
    return {FORGOTTEN_BY: RETENTION} if log.policy().evicts_below_log_start else {}


def _known_from(row: np.void) -> str:
    return "a batch below the log start" if row["below_batches"] > 0 else "a producer snapshot"


def _idle(log: LogView, expiration_ms: int) -> Iterator[Finding]:
    """Producers of the second kind: those that still write, and nearly expired twice or more."""
    p = log.leader.producers
    often = p["idle_count"] >= 2
    if not often.any():
        return
    often &= (p["batches"] > 0) & (p["max_idle_ms"] < expiration_ms)
    writing = log.cluster.as_of - p["data_timestamp"] < expiration_ms
    for row in p[often & writing][:SHOWN]:
        longest = f"{duration(row['max_idle_ms'])} of {duration(expiration_ms)}"
        yield log.finding(
            "unknown-producer-exposure",
            "warning",
            f"Producer {row['producer_id']} (epoch {row['data_epoch']}) was idle {row['idle_count']} times for over "
            f"80 % of the time after which it is forgotten ({longest}) and still writes to {log.name}",
            offset=row["first_offset"],
            last_offset=row["data_last_offset"],
            producer_id=row["producer_id"],
            producer_epoch=row["data_epoch"],
            transactional_id=log.owner(row["producer_id"]),
            time_ms=row["data_timestamp"],
            evidence={
                "idle_times": row["idle_count"],
                "max_idle_ms": row["max_idle_ms"],
                "expiration_ms": expiration_ms,
                "last_sequence": row["data_last_sequence"],
                "last_offset": row["data_last_offset"],
            },
        )
