"""Rules on how long a producer was idle, by its own clock: what a broker forgets, and stamps far from its time."""

from __future__ import annotations

from collections.abc import Iterator

from auditor.base.words import duration
from auditor.facts.events import Kind
from auditor.rules.catalogue.needs import Need
from auditor.rules.catalogue.registry import rule
from auditor.rules.catalogue.relations import WRONG_TIMES, By, idle_by_stamps_alone
from auditor.rules.catalogue.safeguards import PRODUCER_EXPIRATION, TIMESTAMP_LIMITS
from auditor.rules.lib.cleaning import whole_from
from auditor.rules.lib.expiry import EXPLAINED, built_without, verdict
from auditor.rules.lib.stamps_ahead import at_ahead, is_ahead_of_all
from auditor.rules.producer_sequences import FAMILY
from auditor.rules.seen.finding import Finding, iso, lowered
from auditor.rules.seen.view import LogView, runs


@rule(
    "producer-expired-while-active",
    family=FAMILY,
    severities={"warning": "", "info": "where only producers' clocks show it"},
    time=True,
    absorbed_by=(
        WRONG_TIMES,
        By("producer-timestamp-skew", idle_by_stamps_alone),
    ),
    prevented_by=(PRODUCER_EXPIRATION,),
    needs=(Need.SNAPSHOTS, Need.EVENTS),
)
def producer_expired_while_active(log: LogView) -> Iterator[Finding]:
    """A producer was idle longer than the broker remembers it, and then went on

    Checks: between two batches of a producer that continue each other lies more time than producer.id.expiration.ms
    (before 3.4: transactional.id.expiration.ms), with no transaction open; or a producer snapshot that lies between two
    batches of one epoch does not have the producer, which had expired (snapshot-replay-mismatch says where that is in
    doubt).
    Why it matters: the broker had forgotten the producer: brokers before 2.4 refuse such a batch, newer ones take it
    without protection against duplicates. Event times older than the expiration do it at every check (10 minutes).
    Can be wrong: CreateTime of replayed data, which says how old the events are and not how long the producer was idle:
    info where a broker-written time before the batch shows that, or where the log has none that could show it (a
    back-fill into a partition without end markers). The setting is taken as one day where the input does not show it.
    What to do: look for records that were sent again where it went on: no broker could tell; let it write more often
    than it is forgotten.
    Source: KIP-360
    """
    shown = list(_forgotten(log))
    yield from shown
    behind = {e["base_offset"] for e in log.events(Kind.TIMESTAMP_BEHIND)}
    shown_ids = {f.producer_id for f in shown}
    idle = (e for e in log.events(Kind.IDLE_BEYOND_EXPIRY) if e["producer_id"] not in shown_ids)
    for run in runs(idle, "producer_id"):
        e, limit = run[0], log.cluster.expiration_ms(log.leader.broker_id)
        old = e["base_offset"] in behind
        by_a_clock = e["broker_time"] >= 0 and not old
        severity = "warning" if e["base_offset"] >= whole_from(log) and by_a_clock else lowered("warning")
        yield log.at_event(
            "producer-expired-while-active",
            severity,
            f"Producer {e['producer_id']} was idle for {duration(e['idle_ms'])}, longer than the "
            f"{duration(limit)} that brokers remember it, and went on at sequence {e['found_sequence']}",
            e,
            last_offset=run[-1]["last_offset"],
            evidence={
                "idle_ms": e["idle_ms"],
                "expiration_ms": limit,
                "previous_last_offset": e["previous_last_offset"],
                "times": len(run),
                "confidence": "likely" if by_a_clock else "undecidable",
            },
        )


def _forgotten(log: LogView) -> Iterator[Finding]:
    """Producers that a snapshot lacks between two of their batches, one finding each."""
    replica, seen = log.leader, set()
    for link in replica.snapshots if log.has_sequences else ():
        for d in link.differences:
            last = link.went_on.get(d.producer_id, -1)
            if d.name != "missing" or last < 0 or d.producer_id in seen or not link.comparable:
                continue
            if built_without(replica, link, d) or d.last_offset < replica.own_start:
                continue
            if verdict(log, replica, link, d) != EXPLAINED:
                continue
            seen.add(d.producer_id)
            yield log.finding(
                "producer-expired-while-active",
                "warning",
                f"{link.file} does not know producer {d.producer_id}, which wrote to {log.name} before it and went on "
                f"behind it: the broker had forgotten it, and took its next batch without knowing what came before",
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
    family=FAMILY,
    severities={"warning": "ahead of the broker", "info": "behind it"},
    absorbed_by=(WRONG_TIMES,),
    prevented_by=(TIMESTAMP_LIMITS,),
    needs=(Need.EVENTS, Need.AHEAD),
)
def producer_timestamp_skew(log: LogView) -> Iterator[Finding]:
    """A producer's clock is far from the brokers'

    Checks: in a CreateTime topic, batches stamped earlier than a broker-written time before them by more than
    producer.id.expiration.ms, where nothing else keeps the producer's state (end markers do in 0.11 and since 2.4.1),
    or later than a broker-written time after them by more than an hour.
    Why it matters: producers expire by their own stamps: old ones make the broker forget them at its next check (that
    it did is said by producer-expired-while-active), future ones hide late transactions from kafka-transactions.sh
    find-hanging.
    Can be wrong: back-fills that keep the original event times: old stamps are info.
    What to do: correct the clock of the host that the producer runs on.
    Source: KIP-360
    """
    producers = log.leader.producers
    marked = producers["producer_id"][producers["markers"] > 0] if log.policy().marker_refreshes else ()
    kept = set(map(int, marked))
    for kind, word in ((Kind.TIMESTAMP_BEHIND, "behind"), (Kind.TIMESTAMP_AHEAD, "ahead of")):
        for run in runs(log.events(kind), "producer_id"):
            e = run[0]
            behind = kind == Kind.TIMESTAMP_BEHIND
            if behind and e["producer_id"] in kept:
                continue
            who = f"Producer {e['producer_id']}" if e["producer_id"] >= 0 else "A producer without id"
            off = duration(abs(e["broker_time"] - e["timestamp"]))
            yield log.at_event(
                "producer-timestamp-skew",
                "info" if behind else "warning",
                f"{who} stamps records {off} {word} the broker's clock",
                e,
                last_offset=run[-1]["last_offset"],
                evidence={"found": iso(e["timestamp"]), "broker_time": iso(e["broker_time"]), "batches": len(run)},
            )
    ahead = log.leader.ahead
    if ahead is not None and is_ahead_of_all(log, ahead):
        yield at_ahead(log, "producer-timestamp-skew", ahead)
