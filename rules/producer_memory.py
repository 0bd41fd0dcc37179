"""Rules on producer state: its cost, its expiration, and the memory of running brokers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from auditor.base.advice import Advice, Verdict, check
from auditor.base.at_rest import Fields
from auditor.base.errors import LAST_SEQUENCE
from auditor.base.words import duration, plural
from auditor.evidence.cluster_clocks import at_least_ms, falls, step_between
from auditor.evidence.horizons import whole_from
from auditor.facts.coordinator_history import CoordinatorHistory
from auditor.facts.coordinator_log import STATES, value
from auditor.facts.events import Event, EventKind
from auditor.facts.replica_facts import (
    BYTES_A_BATCH,
    BYTES_A_PRODUCER,
    Difference,
    ReplicaFacts,
    SnapshotLink,
    state_bytes,
)
from auditor.model import policies
from auditor.model.policies import ERRORS, OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_PRODUCER_ID
from auditor.model.transaction_states import LOGGED, IdAccount, TransactionValue
from auditor.rules.catalogue.registry import kinds, rule
from auditor.rules.catalogue.safeguards import (
    FORGOTTEN_BY,
    RETENTION,
)
from auditor.rules.clocks import at_ahead
from auditor.rules.lib import repairs
from auditor.rules.seen.cluster_view import DAY_MS
from auditor.rules.seen.view import Finding, LogView, iso, lowered, runs

# The cost of producer state, and producers that are about to lose it.


CACHED_BATCHES = 5
MANY_BYTES = 256 << 20
MANY_PRODUCERS = 100_000
WORTH_KNOWING = 10_000  # producers of one partition from which on its cost is worth a finding
SHORT_LIVED, SHORT_BATCHES = 1_000, 3
SHOWN = 100  # producers of one log that get a line each


class Peak(NamedTuple):
    """The largest producer state of one replica: producer count and estimated bytes."""

    producers: int
    bytes: int


def known_peaks(replica: ReplicaFacts, expiration_ms: int) -> list[Peak]:
    """Return the peak of a replica's producer state with :data:`CACHED_BATCHES` per producer, and with one.

    Each producer counts from its first batch to its expiry. One that expired and returned counts in between too, so
    this is an upper bound.
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
    gone = np.searchsorted(end[last], begin[first], side="right")  # one that ends when another begins is before it
    alive = np.arange(1, len(p) + 1) - gone
    peaks = []
    for cost in costs:
        left = np.concatenate([[0], np.cumsum(cost[last])])
        peaks.append(Peak(int(alive.max()), int((np.cumsum(cost[first]) - left[gone]).max())))
    return peaks


@rule(
    "producer-state-memory",
    when={
        "warning": "above 100,000 producers or 256 MiB",
        "info": "otherwise",
    },
)
def producer_state_memory(log: LogView) -> Iterator[Finding]:
    """A partition's producer state uses much broker memory

    Checks: the number of producers in the broker's memory at the peak of the replay, each from its first batch until it
    expires. The estimate is 224 bytes per producer and 40 per cached batch. It is reported from 10,000 producers of a
    partition on. 'auditor what-if' reports it for whole brokers of any size.
    Can be wrong: the bytes are an estimate; producers may expire earlier than by the settings in the input.
    What to do: find the short-lived producers; check the metric kafka.server:type=ReplicaManager,name=ProducerIdCount;
    from 3.4 on, lower producer.id.expiration.ms, so that they expire earlier.
    Source: KIP draft on keeping only the latest batch
    """
    if len(log.leader.producers) < WORTH_KNOWING:  # as of nearly all
        return
    expiration = log.cluster.expiration_ms(log.leader.broker_id)
    peak, drafted = known_peaks(log.leader, expiration)
    if peak.producers < WORTH_KNOWING:
        return
    yield log.finding(
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
            "Find the short-lived producers, and check the metric "
            "kafka.server:type=ReplicaManager,name=ProducerIdCount",
        ),
    )


def _fewer(log: LogView, first: str) -> Advice:
    # Before 3.4 the only setting also expires transactional ids.
    by_id = {release.expiration_setting == policies.BY_ID for release in log.cluster.release(log.leader.broker_id).rows}
    from_then = "" if by_id == {True} else "from 3.4 on, "
    lower = f"; {from_then}lower {policies.BY_ID}, after which an idle producer id expires" if True in by_id else ""
    return Advice(Verdict.INVESTIGATE_FIRST, afterwards=first + lower)


def broker_memory(log_dir: str, broker_id: int | None, now: Peak, drafted: Peak) -> Finding:
    """Make the finding on a whole log directory: the sums of its partitions' peaks, with and without the draft."""
    heavy = now.bytes > MANY_BYTES
    finding = Finding(
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
    (whole,) = kinds()["producer-state-memory"].completed([finding])
    return whole


@rule("short-lived-producers")
def short_lived_producers(log: LogView) -> Iterator[Finding]:
    """Many short-lived producers with hardly any batches

    Checks: a thousand or more producer ids wrote three batches or fewer to the partition, and all began in one day.
    Can be wrong: functions that are short-lived by design.
    What to do: share producers between requests. Reuse a few transactional ids, which need idempotence. Without
    transactions, set enable.idempotence=false if duplicates do no harm: such producers have no producer id. From 3.4
    on, lower producer.id.expiration.ms, so that they expire earlier.
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
    start = int(np.argmax(within))
    count = int(within[start])
    if count < SHORT_LIVED:
        return
    first, last = int(times[start]), int(times[start + count - 1])
    transactional = int(np.count_nonzero(short["transactional"][start : start + count]))
    yield log.finding(
        "warning",
        f"{count:,} producers began in {log.name} within a day and wrote {SHORT_BATCHES} batches or fewer each",
        offset=int(short["first_offset"][start : start + count].min()),
        last_offset=int(short["data_last_offset"][start : start + count].max()),
        time_ms=log.time(first),
        evidence={
            "producers": count,
            "span_ms": last - first,
            "one_batch": int(np.count_nonzero(short["batches"][start : start + count] == 1)),
            "examples": short["producer_id"][start : start + 5].tolist(),
            "bytes": state_bytes(count, count),
            "transactional": transactional,
        },
        advice=_fewer(log, _shared(count - transactional, transactional)),
    )


def _shared(plain: int, transactional: int) -> str:
    # A client refuses a transactional.id with enable.idempotence=false.
    steps = ["Share producers between requests"]
    steps += [f"reuse a few transactional ids ({transactional} of these have one)"] if transactional else []
    steps += [f"set enable.idempotence=false if duplicates do no harm ({plain} of these)"] if plain else []
    return "; ".join(steps)


@rule(
    "unknown-producer-exposure",
    when={
        "warning": "on brokers before 2.4, and for idle producers",
        "info": "otherwise",
    },
)
def unknown_producer_exposure(log: LogView) -> Iterator[Finding]:
    """A producer id may expire, or has expired, before its next write

    Checks: all batches of a producer are below the log start, by the file or a snapshot. It has not written since, or
    restarted at sequence 0 in the same epoch. Or a producer that still writes was idle twice or more for over 80% of
    the expiration. Producers idle past the expiration are excluded.
    Why it matters: brokers before 2.4 expire a producer id with its last batch, even if its end marker is retained.
    They refuse its next batch with UNKNOWN_PRODUCER_ID; 0.11 keeps it while the marker is stored, and refuses with
    OUT_OF_ORDER_SEQUENCE_NUMBER. Later brokers keep it until it expires, but a new replica has no state of it.
    Can be wrong: CreateTime timestamps; a closed producer that will never write again; 0.11 counts as 1.0 if no
    snapshot shows an end marker.
    What to do: if the next write will be refused, keep records (retention.ms) for longer than the producer is idle, or
    upgrade the brokers. If it nearly expires, make it write more often. Otherwise nothing.
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
            "warning" if log.policy().evicts_below_log_start else "info",
            f"All batches of {plural(len(rows) - SHOWN, 'more producer')} are below the log start of {log.name}",
            evidence={"producers": len(rows) - SHOWN, "log_start": log.leader.own_start, **_expired_by_capacity(log)},
        )
    yield from _idle(log, expiration)


def _below(log: LogView, expiration_ms: int) -> Iterator[np.void]:
    # All batches below the log start, by the offset of the last one.
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
    by_marker = (p["markers"] > 0) & (counts_markers(log.leader))
    exposed = p[below & (gone | restarted) & ~by_marker]
    yield from exposed[np.lexsort((exposed["producer_id"], exposed["below_last_offset"]))]


def _exposed(log: LogView, row: np.void) -> Finding:
    old = log.policy().evicts_below_log_start
    restarted = bool(row["batches"] > 0)
    refused = "was" if restarted else "will be"
    message = (
        f"All batches of producer id {row['producer_id']} (epoch {row['below_epoch']}) up to offset "
        f"{row['below_last_offset']} are below the log start {log.leader.own_start}"
        + (f"; it restarted at sequence 0 at offset {row['first_offset']}" if restarted else "")
    )
    if old:
        by_snapshots = OUT_OF_ORDER_SEQUENCE_NUMBER if counts_markers(log.leader) else UNKNOWN_PRODUCER_ID
        shown = policies.policy_at(log.policy_name(), log.cluster.release(log.leader.broker_id)).unknown_error
        answer = ERRORS[by_snapshots if shown == UNKNOWN_PRODUCER_ID else shown]
        message += f": its next write {refused} refused with {answer}"
    else:
        message += ": brokers of 2.4 or newer keep its state until it expires, but a new replica does not have it"
    return log.finding(
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
            **_expired_by_capacity(log),
        },
    )


def _expired_by_capacity(log: LogView) -> dict[str, str]:
    # Why the broker has no state of the producer, if it expires producer ids with their last batch.
    return {FORGOTTEN_BY: RETENTION} if log.policy().evicts_below_log_start else {}


def _known_from(row: np.void) -> str:
    return "a batch below the log start" if row["below_batches"] > 0 else "a producer snapshot"


def _idle(log: LogView, expiration_ms: int) -> Iterator[Finding]:
    # Producers that still write, and nearly expired twice or more.
    p = log.leader.producers
    often = p["idle_count"] >= 2
    if not often.any():
        return
    often &= (p["batches"] > 0) & (p["max_idle_ms"] < expiration_ms)
    writing = log.cluster.as_of - p["data_timestamp"] < expiration_ms
    for row in p[often & writing][:SHOWN]:
        longest = f"{duration(row['max_idle_ms'])} of {duration(expiration_ms)}"
        yield log.finding(
            "warning",
            f"Producer id {row['producer_id']} (epoch {row['data_epoch']}) was idle {row['idle_count']} times for over "
            f"80% of producer.id.expiration.ms ({longest}) and still writes to {log.name}",
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


# Producer state in the memory of running brokers (``auditor live``).


@rule("broker-memory-differs", when={"info": "if an append of the coordinator may have failed"})
def broker_memory_differs(log: LogView) -> Iterator[Finding]:
    """A running broker's memory differs from its log

    Checks: producers and transactional ids that did not change while the log was read differ from the replay of the
    log. Compared are epoch, last sequence, coordinator epoch and open transaction in the leader's memory
    (DescribeProducers). For the coordinator: state, producer id, epoch and partitions (ListTransactions,
    DescribeTransactions). Only auditor live can query them. It is an info if the coordinator has the state before its
    last records: their append failed (coordinator-append-failed), and it continues from there.
    Why it matters: brokers decide by their memory, and rebuild it from the log when they start. Such a broker accepts
    or refuses other batches than after its next start.
    Can be wrong: memory rebuilt from a snapshot that has more than the log still contains.
    What to do: compare with kafka-transactions.sh describe-producers; restart the broker or move the leader, which
    rebuilds the memory; keep both outputs for a report. Before the restart, prepare the broker's partitions without
    another in-sync replica, as the finding describes.
    Source: KIP-664
    """
    if (memory := log.leader.producer_memory) is not None:
        for producer in memory.unchanged:
            yield from _producer(log, producer)
        yield from _unknown_to_the_broker(log, memory.ids)
    if (coordinator := log.leader.coordinator_memory) is not None:
        for transactional_id, listing in sorted(coordinator.transactions.items()):
            yield from _transactional_id(log, transactional_id, listing, coordinator.asked_at)


def _producer(log: LogView, state: dict[str, int]) -> Iterator[Finding]:
    rows = log.leader.producers
    matching_rows = rows[rows["producer_id"] == state["producer_id"]]
    started = state["txn_first_offset"]
    if not len(matching_rows):
        if started >= log.leader.log_start:
            yield _differs(log, state, {"txn_first_offset": started}, {"txn_first_offset": None})
        return
    row = matching_rows[0]
    names = ["txn_first_offset"] if started < 0 or started >= log.leader.log_start else []
    if row["batches"] or row["markers"]:
        names.append("producer_epoch")
    if row["batches"] and row["data_epoch"] == row["producer_epoch"] and log.has_sequences:
        names.append("last_sequence")
    if row["markers"]:
        names.append("coordinator_epoch")
    other = [name for name in names if state[name] != int(row[name])]
    if other:
        yield _differs(log, state, {n: state[n] for n in other}, {n: int(row[n]) for n in other})


def _unknown_to_the_broker(log: LogView, ids: list[int]) -> Iterator[Finding]:
    # The broker was asked before and after the log was read.
    rows = log.leader.transactions
    for row in rows[(rows["marker_offset"] < 0) & ~np.isin(rows["producer_id"], ids)]:
        if row["first_offset"] >= log.leader.log_start:
            state = {"producer_id": int(row["producer_id"]), "producer_epoch": int(row["producer_epoch"])}
            first = int(row["first_offset"])
            yield _differs(log, state, {"txn_first_offset": None}, {"txn_first_offset": first}, offset=first)


def _differs(
    log: LogView, state: dict[str, int], memory: Fields, replayed: Fields, offset: int | None = None
) -> Finding:
    words = ", ".join(f"{name} {memory[name]} in memory, {replayed[name]} by the log" for name in memory)
    return log.finding(
        "warning",
        f"The leader's memory of producer id {state['producer_id']} differs from {log.name}: {words}",
        offset=offset,
        producer_id=state["producer_id"],
        producer_epoch=state["producer_epoch"],
        transactional_id=log.owner(state["producer_id"]),
        evidence={"found": memory, "expected": replayed},
        advice=_what_to_do(log),
    )


def _transactional_id(log: LogView, transactional_id: str, listing: Fields, asked_at: int) -> Iterator[Finding]:
    history = log.cluster.coordinator
    entry = history.last(transactional_id) if history is not None else None
    if listing["state"] not in LOGGED or log.leader.ends_early:
        return
    if entry is not None and entry.record_time > at_least_ms(asked_at):
        return  # it is at work: that it was asked twice in the same state says nothing
    memory: Fields = {"state": listing["state"], "producer_id": listing["producer_id"]}
    logged: Fields = {"state": entry and entry.state, "producer_id": entry and entry.producer_id}
    if entry is not None and listing["producer_epoch"] >= 0:
        memory |= {"producer_epoch": listing["producer_epoch"], "partitions": sorted(listing["partitions"])}
        logged |= {"producer_epoch": entry.producer_epoch, "partitions": sorted(entry.partitions)}
    other = [name for name in memory if memory[name] != logged[name]]
    if other:
        words = ", ".join(f"{name} {memory[name]} in memory, {logged[name]} by the log" for name in other)
        failed = history is not None and any(
            memory.items() <= _as_listed(value).items() for value in may_be_held(history, transactional_id)
        )
        yield log.finding(
            "info" if failed else "warning",
            f"The coordinator's memory of {transactional_id} differs from {log.name}: {words}"
            + (": the append of its last record failed" if failed else ""),
            offset=None if entry is None else entry.offset,
            producer_id=listing["producer_id"],
            transactional_id=transactional_id,
            evidence={"found": {n: memory[n] for n in other}, "expected": {n: logged[n] for n in other}},
            advice=_what_to_do(log),
        )


LATEST = 64  # records of an id that matter for what its coordinator may have in memory


def may_be_held(history: CoordinatorHistory, transactional_id: str) -> list[TransactionValue]:
    """Return what the coordinator that wrote an id's last record may have in memory, if appends failed."""
    state_log, number = history.place(transactional_id)
    if state_log is None:
        return []
    columns, span = list(state_log.rows_of(number))[-1]
    first, *behind = state_log.entries(columns, slice(max(span.start, span.stop - LATEST), span.stop))
    if any(entry.state is not None and entry.state not in STATES for entry in (first, *behind)):
        return []
    last = behind[-1] if behind else first
    if history.leader_epochs.get(last.partition, -1) > last.leader_epoch:  # it has loaded that record
        return []
    account = IdAccount(value(first), first.leader_epoch, known=False)
    for entry in behind:
        account.take(value(entry), entry.leader_epoch)
    return [cached.value for cached in account.held() if cached.value is not None]


def _what_to_do(log: LogView) -> Advice:
    advice = Advice(
        Verdict.INVESTIGATE_FIRST,
        conditions=(
            check(repairs.describe_producers(log.topic, log.partition), "the output still differs from the log"),
        ),
        afterwards="A restart of the broker, or a move of the leader, rebuilds its memory from the log. Do this before "
        "the difference does harm, and keep both outputs for a report to Kafka",
    )
    return repairs.at_risk(log.cluster, log.cluster.last_leader(log.topic, log.partition), advice)


def _as_listed(value: TransactionValue) -> Fields:
    # In the form of DescribeTransactions.
    return {
        "state": value.state.value,
        "producer_id": value.producer_id,
        "producer_epoch": value.producer_epoch,
        "partitions": sorted(value.partitions),
    }


# Idle producers that expired, and timestamps far from broker time.


@rule("producer-expired-while-active", when={"info": "if only producers' clocks show it"})
def producer_expired_while_active(log: LogView) -> Iterator[Finding]:
    """A producer resumed after its producer id expired

    Checks: a producer was idle between two consecutive batches for longer than producer.id.expiration.ms (before 3.4:
    transactional.id.expiration.ms), without an open transaction. Or a producer snapshot between two batches of one
    epoch does not have the producer id, since it expired (snapshot-replay-mismatch reports inconclusive cases).
    Why it matters: the broker had no producer state. Brokers before 2.4 refuse such a batch, newer ones accept it
    without protection against duplicates. Event times older than the expiration cause it at every check (10 minutes).
    Can be wrong: CreateTime of replayed data, which shows the age of the events: info if an
    earlier broker-written time shows that, or the log has none (a back-fill without end markers). A clock that was set
    back also shows idle times (clock-skew reports those), and so does a clock that is ahead of all other times of its
    broker: info. The setting counts as one day if the input does not show it.
    What to do: look for re-sent records where it resumed, which no broker could detect; make it write more often than
    its producer id expires.
    Source: KIP-360
    """
    shown = list(_expired_while_idle(log))
    yield from shown
    behind = {e["base_offset"] for e in log.events(EventKind.TIMESTAMP_BEHIND)}
    shown_ids = {f.producer_id for f in shown}
    idle = (e for e in log.events(EventKind.IDLE_BEYOND_EXPIRY) if e["producer_id"] not in shown_ids)
    for run in runs(idle, "producer_id"):
        e, limit = run[0], log.cluster.expiration_ms(log.leader.broker_id)
        old = e["base_offset"] in behind
        by_a_clock = e["broker_time"] >= 0 and not old
        severity = "warning" if e["base_offset"] >= whole_from(log) and by_a_clock else lowered("warning")
        step_ms = _step_ms(log, e, limit)
        yield log.at_event(
            lowered(severity) if step_ms else severity,
            f"Producer id {e['producer_id']} was idle for {duration(e['idle_ms'])} (producer.id.expiration.ms is "
            f"{duration(limit)}) and resumed at sequence {e['found_sequence']}",
            e,
            last_offset=run[-1]["last_offset"],
            evidence={
                "idle_ms": e["idle_ms"],
                "expiration_ms": limit,
                "previous_last_offset": e["previous_last_offset"],
                "step_ms": step_ms,
                "times": len(run),
                "confidence": "likely" if by_a_clock and not step_ms else "undecidable",
            },
        )


def _step_ms(log: LogView, e: Event, limit: int) -> int | None:
    # By how much a clock was set, where that alone makes the producer look idle for so long.
    idle, time, track = e["idle_ms"], e["timestamp"], log.leader.track
    own = step_between(falls(track), e["previous_last_offset"], time - idle, e["base_offset"], time)
    clocks, writer = log.cluster.clocks, log.cluster.writer(log.topic, log.partition)
    step = own or clocks.explains(writer, idle, time)
    if step is None:
        by_ms = clocks.beyond_ms(writer, time) if time <= e["broker_time"] else 0
        return by_ms if by_ms and idle - by_ms < limit else None
    if own is not None and own.offset <= e["base_offset"]:
        return own.by_ms if idle - own.by_ms < limit else None
    # It was ahead by an unknown time: the producer was idle until the newest time before that, at least.
    right = track["time"][(track["offset"] < e["base_offset"]) & (track["time"] <= step.then)]
    return step.by_ms if int(right.max(initial=0)) - (time - idle) < limit else None


def _expired_while_idle(log: LogView) -> Iterator[Finding]:
    # A snapshot lacks the producer between two of its batches.
    replica, reported = log.leader, set()
    for link in replica.snapshots if log.has_sequences else ():
        for d in link.differences:
            last = link.went_on.get(d.producer_id, -1)
            if d.name != "missing" or last < 0 or d.producer_id in reported or not link.comparable:
                continue
            if built_without(replica, link, d) or d.last_offset < replica.own_start:
                continue
            if verdict(log, replica, link, d) != EXPLAINED:
                continue
            reported.add(d.producer_id)
            yield log.finding(
                "warning",
                f"{link.file} lacks producer id {d.producer_id}, which wrote to {log.name} before and after it: the "
                "producer id expired, and the broker accepted its next batch without producer state",
                file=link.file,
                offset=link.offset,
                last_offset=last,
                producer_id=d.producer_id,
                transactional_id=log.owner(d.producer_id),
                time_ms=d.replayed,
                evidence={
                    "snapshot": link.file,
                    "previous_last_offset": d.last_offset,
                    "last_time": iso(d.replayed),
                    "confidence": "likely",
                },
            )


@rule(
    "producer-timestamp-skew",
    when={
        "warning": "ahead of the broker",
        "info": "behind it",
    },
)
def producer_timestamp_skew(log: LogView) -> Iterator[Finding]:
    """A producer's clock is far from the brokers'

    Checks: in a CreateTime topic, the timestamp of a batch is more than producer.id.expiration.ms before an earlier
    broker-written time. Nothing else keeps the producer's state (end markers do in 0.11 and since 2.4.1). Or the
    timestamp is more than an hour after a later broker-written time.
    Why it matters: producer ids expire by their own timestamps. Old ones make them expire at the broker's next check
    (producer-expired-while-active reports it), future ones hide overdue transactions from kafka-transactions.sh
    find-hanging.
    Can be wrong: back-fills with the original event times (old timestamps are info).
    What to do: correct the clock of the producer's host.
    Source: KIP-360
    """
    producers = log.leader.producers
    marked = producers["producer_id"][producers["markers"] > 0] if log.policy().marker_refreshes else ()
    refreshed = set(map(int, marked))
    for kind, word in ((EventKind.TIMESTAMP_BEHIND, "behind"), (EventKind.TIMESTAMP_AHEAD, "ahead of")):
        for run in runs(log.events(kind), "producer_id"):
            e = run[0]
            behind = kind == EventKind.TIMESTAMP_BEHIND
            if behind and e["producer_id"] in refreshed:
                continue
            who = f"Producer id {e['producer_id']}" if e["producer_id"] >= 0 else "A producer without id"
            off = duration(abs(e["broker_time"] - e["timestamp"]))
            yield log.at_event(
                "info" if behind else "warning",
                f"{who} stamps records {off} {word} the broker's clock",
                e,
                last_offset=run[-1]["last_offset"],
                evidence={"found": iso(e["timestamp"]), "broker_time": iso(e["broker_time"]), "batches": len(run)},
            )
    ahead = log.leader.ahead
    if ahead is not None and log.cluster.is_ahead_of_all(ahead.time):
        yield at_ahead(log, ahead)


# Whether a producer id missing from a snapshot may have expired on the broker that wrote it.
#
# A broker measures idle time from the timestamps in the log to its own clock. Only broker-written times bound that.


EXPLAINED, UNDECIDABLE, PROVED = "explained", "undecidable", "proved"
OWN_SETTINGS = ("log.dirs", "log.dir", "broker.id", "node.id", "process.roles")  # each broker's file has some of them
MARKERS_END = (1, 0)  # from here on an end marker is no batch of its producer


def counts_markers(replica: ReplicaFacts) -> bool:
    """Whether snapshots show that the broker counts an end marker as a producer's last batch: only 0.11 does."""
    shown = any(d.name == "marker_offset" for link in replica.snapshots for d in link.differences)
    return shown and not any(link.by_data for link in replica.snapshots)


def settings_known(log: LogView, replica: ReplicaFacts) -> bool:
    """Whether the broker's settings are in the input, so that defaults apply to the rest."""
    own = log.cluster.broker_configs.get(str(replica.broker_id), {})
    names = ("producer.id.expiration.ms", "transactional.id.expiration.ms")
    if log.cluster.is_unknown(replica.broker_id, *names):
        return False
    expiration = log.cluster.broker_setting(replica.broker_id, *names)
    return expiration is not None or any(name in own for name in OWN_SETTINGS)


def verdict(log: LogView, replica: ReplicaFacts, link: SnapshotLink, d: Difference) -> str:
    """Judge a difference between a snapshot and the replay: PROVED (wrong), EXPLAINED (normal) or UNDECIDABLE."""
    if d.name == "marker_offset":  # 0.11 counts end markers as a producer's last batch, no later release does
        shown = log.cluster.release(replica.broker_id)
        if not counts_markers(replica) or shown.least >= MARKERS_END:
            return PROVED
        return EXPLAINED if log.policy(replica).evicts_below_log_start else UNDECIDABLE
    if d.name != "missing":
        return PROVED
    evicted = d.last_offset < replica.own_start  # also -1, of a producer known by its marker alone
    if evicted and log.policy(replica).evicts_below_log_start:
        return EXPLAINED
    if built_without(replica, link, d):
        return EXPLAINED
    if d.producer_id in link.unexpired:
        return PROVED
    return _expired(log, replica, link, d.replayed)


def built_without(replica: ReplicaFacts, link: SnapshotLink, d: Difference) -> bool:
    """Whether this replica, or the one that uploaded this snapshot, may have been rebuilt from remote storage since.

    Such a replica starts without producers: the fetched snapshot is deleted on reload (seen with 4.3.1;
    TierStateMachine, ProducerStateManager.truncateFullyAndReloadSnapshots).
    """
    first = replica.unread_from if replica.unread_from >= 0 else next(iter(replica.segment_bases), -1)
    if first < 0 or replica.local_start <= first:
        return False
    if link.offset < replica.local_start:  # of the leader that copied it, which may have been built so
        return len(replica.leader_epochs) > 1
    return d.last_offset < replica.local_start  # what was written since, this replica has appended itself


def _expired(log: LogView, replica: ReplicaFacts, link: SnapshotLink, stamp: int) -> str:
    # ``stamp``: the producer's last timestamp, ms. The evaluation time bounds when the snapshot was taken if the user
    # gave it or a controller log reaches that far. A time in this log behind the snapshot bounds it for the broker that
    # led, not for a replica re-created since.
    if not settings_known(log, replica):
        return UNDECIDABLE
    cluster = log.cluster
    limit, now = cluster.expiration_ms(replica.broker_id), max(cluster.as_of, cluster.newest_time)
    if now - stamp < limit:
        given = cluster.has_metadata or now != cluster.newest_time
        return PROVED if link.time >= 0 or (given and cluster.newest_time >= 0) else UNDECIDABLE
    return UNDECIDABLE if link.time >= 0 and link.time - stamp < limit else EXPLAINED


def largest_that_fits(log: LogView, links: list[tuple[SnapshotLink, list[Difference]]]) -> int:
    """Return the largest producer.id.expiration.ms (ms) that explains all of these missing producers.

    By the first timestamp after each snapshot; 0 where those regress.
    """
    now = max(log.cluster.as_of, log.cluster.newest_time)
    idle = [(link.next_time if link.next_time >= 0 else now) - d.replayed for link, several in links for d in several]
    return max(0, min(idle, default=0))
