"""Rules on a producer's first batch in a log, or in a new epoch, that does not begin at sequence 0."""

from __future__ import annotations

from collections.abc import Iterator

from auditor.base.advice import Advice, Verdict
from auditor.base.words import plural
from auditor.facts.events import (
    AFTER_UNREADABLE,
    KNOWN_BELOW,
    KNOWN_IN_SNAPSHOT,
    SNAPSHOT_DENIES,
    STATE_MAY_BE_LOST,
    Event,
    Kind,
)
from auditor.rules.catalogue.needs import Need
from auditor.rules.catalogue.registry import rule
from auditor.rules.catalogue.relations import By, within_its_offsets
from auditor.rules.catalogue.safeguards import CLEAN_ELECTION, PRODUCER_EXPIRATION
from auditor.rules.lib.cleaning import Missing, between, both_intact, whole_from
from auditor.rules.producer_sequences import FAMILY, OF_A_HANGING_BATCH, OF_A_WRONG_BATCH, log_age, look_at
from auditor.rules.seen.finding import Finding, iso
from auditor.rules.seen.view import LogView
from auditor.rules.transactions.windows import naming

INHERITED_SHOWN = 100  # inherited producers of one log that get a line each


@rule(
    "unknown-producer-first-sequence",
    family=FAMILY,
    severities={"warning": "", "info": "where retention explains it"},
    absorbed_by=(*OF_A_WRONG_BATCH, By("replica-divergence", within_its_offsets)),
    prevented_by=(PRODUCER_EXPIRATION,),
    before_start=True,
    needs=(Need.EVENTS,),
)
def unknown_producer_first_sequence(log: LogView) -> Iterator[Finding]:
    """The first batch of a producer does not begin at sequence 0

    Checks: the first batch of a producer in the partition has a sequence above 0 although nothing was removed before
    it: the log starts at 0, or a producer snapshot at or below the batch, of the broker that led, does not know the
    producer. Where a snapshot
    at the log start, or a batch below it, does know it, the batch is judged as any other one and not named here.
    Why it matters: the broker took an unknown producer at its word. The sequences below were lost, or were written
    before the broker lost its state, or never existed.
    Can be wrong: a topic that was made again under a producer (info where the coordinator shows it, or the metadata
    log: the name of a removed topic, a producer id given out before, a batch within the time that brokers remember a
    producer); a partition mirrored from raw segments; an id older than the first snapshot that is kept.
    What to do: look for a leader change, DeleteRecords or an expiration just before; compare other replicas; treat the
    sequences below as possibly lost.
    Source: KIP-360, UnknownProducerId and OutOfOrderSequence page of Kafka's wiki
    """
    shown, more = 0, 0
    for e in log.events(Kind.FIRST_NONZERO):
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
            "unknown-producer-first-sequence",
            "info",
            f"The first retained batch is above sequence 0, as retention leaves it, of {plural(more, 'more producer')}",
            evidence={"producers": more, "confidence": "undecidable", "missing": "the records below the log start"},
        )


def _inherited(log: LogView, e: Event) -> bool:
    """Whether the broker may have known the producer from before the first batch that is still there. A snapshot at or
    below the batch decides, once all that follows it is in the files, and unless it is a follower's: one that joined
    late never knew whom its leader did."""
    flags, replica = e["context"], log.leader
    if replica.unread_from >= 0:
        return True
    if replica.log_start_known and replica.log_start <= 0:
        cleaned = whole_from(log) > 0  # what was before the batch may have been cleaned away
        return cleaned and not flags & SNAPSHOT_DENIES
    if flags & (KNOWN_BELOW | KNOWN_IN_SNAPSHOT):
        return True
    led = log.cluster.led(log.topic, log.partition, int(e["leader_epoch"]))
    return not flags & SNAPSHOT_DENIES or led not in (None, replica.broker_id)


def _recreated(log: LogView, producer_id: int) -> bool:
    """Whether the coordinator knows of the producer's transactions in this partition from before this log began."""
    history, began = log.cluster.coordinator, log.leader.first_time
    if history is None or began < 0 or log.leader.log_start > 0:
        return False
    named = naming(log)
    windows = named.rows[named.of(int(producer_id))]
    return bool((windows["has_complete"] & (windows["ended"] < began)).any())


def _topic_made_anew(log: LogView, e: Event) -> dict[str, str | None]:
    """What the metadata log says of a topic that took a removed one's name under a producer that may have been there
    before, within the time that brokers remember one; empty where that is not so."""
    removed, created, next_id = log.cluster.made_anew.get(log.topic, (None, None, None))
    if created is None or log.leader.log_start > 0:
        return {}
    younger = next_id is not None and e["producer_id"] >= next_id
    late = e["time"] - created >= log.cluster.expiration_ms(log.leader.broker_id)
    if younger or late:
        return {}
    return {"topic_removed": None if removed is None else iso(removed), "topic_created": iso(created)}


def _what_is_not_here(log: LogView) -> str:
    """Where the batches are that came before the first one here."""
    replica = log.leader
    if replica.unread_from >= 0:
        return f"below offset {replica.log_start}, which were not read"
    if replica.own_start < replica.log_start:
        return f"from {replica.own_start} to {replica.log_start - 1}, which are in remote storage"
    return f"below the log start {replica.log_start}" if replica.log_start else "that the cleaner took"


def _first_sequence(log: LogView, e: Event, inherited: bool) -> Finding:
    who, found = f"Producer {e['producer_id']} (epoch {e['producer_epoch']})", e["found_sequence"]
    made = {} if inherited else _topic_made_anew(log, e)
    recreated = bool(made) or (not inherited and _recreated(log, e["producer_id"]))
    if inherited:
        lost = _what_is_not_here(log)
        message = f"{who} has its first retained batch at sequence {found}: what was before may be among those {lost}"
        extra: dict[str, str | None] = {"confidence": "undecidable", "missing": f"offsets {lost}"}
        extra |= log.unknown_start()
    elif recreated:
        message = f"{who} begins at sequence {found} in this log: it wrote to one of this name before this one began"
        extra = {"confidence": "likely", "missing": "the deleted topic of the same name", **made}
    else:
        message = (
            f"{who} begins at sequence {found} in this log: the broker took it without knowing it, and sequences 0 to "
            f"{found - 1} are nowhere here"
        )
        extra = {"confidence": "likely"}
    return log.at_event(
        "unknown-producer-first-sequence",
        "info" if inherited or recreated else "warning",
        message,
        e,
        evidence={
            "expected": 0,
            "found": found,
            "log_start": log.leader.log_start,
            "log_age_ms": log_age(log, e),
            **extra,
        },
    )


@rule(
    "first-batch-after-bump-nonzero",
    family=FAMILY,
    severities={"error": "", "warning": "where the leader had changed"},
    outcomes={"at_risk": ""},
    absorbed_by=OF_A_HANGING_BATCH,
    prevented_by=(CLEAN_ELECTION,),
    needs=(Need.EVENTS,),
)
def first_batch_after_bump_nonzero(log: LogView) -> Iterator[Finding]:
    """A producer's new epoch does not begin at sequence 0

    Checks: the first batch of a higher epoch of a producer has a base sequence other than 0, where nothing was cleaned.
    It is the first one in the partition: what follows a fenced producer's batch is compared with the epoch's own last.
    Why it matters: a new epoch restarts the numbering; a leader that knows the producer refuses anything else.
    Can be wrong: the leader had lost the producer's state and could not refuse it.
    What to do: as for sequence-gap; report the client library if it repeats.
    Source: KIP-360, KIP-467
    """
    for e in log.events(Kind.BUMP_NONZERO):
        if not both_intact(log, e) or e["context"] & AFTER_UNREADABLE or between(log, e) == Missing.UNDECIDABLE:
            continue
        changed = bool(e["context"] & STATE_MAY_BE_LOST)
        yield log.at_event(
            "first-batch-after-bump-nonzero",
            "warning" if changed else "error",
            f"Producer {e['producer_id']} begins its epoch {e['producer_epoch']} at sequence {e['found_sequence']} "
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
                Verdict.LOOK,
                look=(look_at(log, e),),
                then="look at what lies around it, compare the replicas, and report the client library if it repeats",
            ),
        )
