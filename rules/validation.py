"""Rules on stored batches by the leaders' validation of record sets (KIP-467)."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import TypedDict

from auditor.base.advice import Advice, Verdict, check
from auditor.base.at_rest import Fields
from auditor.base.errors import SEQUENCES
from auditor.base.words import plural
from auditor.connectors.codec import batches as col
from auditor.evidence.horizons import Missing, hole
from auditor.facts.events import Culprits, Event, EventKind
from auditor.facts.replica_facts import ReplicaFacts
from auditor.model.batch_validation import ERRORS, FINE, LEADERS_LOOK_AT, OF_HEADER, OFFSET_RANGE
from auditor.rules.catalogue.registry import rule
from auditor.rules.integrity import LENGTH, MAGIC, damaged_fields, is_whole, tails
from auditor.rules.lib import repairs
from auditor.rules.seen.view import Finding, LogView, runs

BROKER_METRIC = "kafka.server:type=BrokerTopicMetrics,name="
# The counters of KIP-467 by their broker names, by the sums of facts.replica_facts.REFUSALS. The KIP calls the last one
# NonIncreasingOffsetRecordsPerSec.
METRICS = {
    "no_key_compacted": "NoKeyCompactedTopicRecordsPerSec",
    "invalid_magic": "InvalidMagicNumberRecordsPerSec",
    "invalid_checksum": "InvalidMessageCrcRecordsPerSec",
    "invalid_offset_or_sequence": "InvalidOffsetOrSequenceRecordsPerSec",
}
COUNTED_BY_RECORDS = ("no_key_compacted", "invalid_magic")  # of which headers alone show nothing

LEGACY_FLAWS = {
    col.RECORD_INNER_MAGIC: "an inner record has another magic than its wrapper",
    col.RECORD_INNER_CRC: "an inner record has a CRC mismatch",
    col.RECORD_INNER_CODEC: "an inner record is marked as compressed",
    col.RECORD_WRAPPER_OFFSET: "the wrapper's offset is below its last inner offset",
}
LEGACY_METRICS = {col.RECORD_INNER_CRC: "invalid_checksum", col.RECORD_INNER_MAGIC: "invalid_magic"}
RECORD_FLAWS = {
    col.RECORD_COUNT_MISMATCH: "the number of records differs from the declared one",
    col.RECORD_BYTES_LEFT: "bytes follow the last record",
    col.RECORD_UNDECOMPRESSABLE: "its body cannot be decompressed",
    col.RECORD_OFFSET_DELTA: "offset deltas do not increase or exceed the last one declared",
    col.RECORD_LENGTH: "a record's length is negative or does not fit",
    col.RECORD_HEADER_KEY_NULL: "a header has a null key",
}
BATCH_FLAWS = {
    col.FLAW_COUNT_ABOVE_SPAN: "more records are declared than its offsets allow",
    col.FLAW_COUNT_BELOW_SPAN: "fewer records are declared than its offsets span",
    col.FLAW_NEGATIVE_SPAN: "its record count or offset span is negative",
    col.FLAW_CODEC_UNKNOWN: "its codec does not exist",
}
SPAN_FLAWS = col.RECORD_COUNT_MISMATCH | col.RECORD_OFFSET_DELTA  # its last offset may be another than it states
CONTROL_FLAWS = {
    col.FLAW_CONTROL_NO_PRODUCER: "it has no producer id",
    col.FLAW_CONTROL_SEQUENCE: "it has a sequence",
    col.FLAW_CONTROL_RECORDS: "it has more than one record",
    col.FLAW_CONTROL_NOT_TRANSACTIONAL: "it is not transactional",
    col.FLAW_CONTROL_TYPE: "its type is neither ABORT nor COMMIT",
    col.FLAW_CONTROL_KEY: "its key is too short",
    col.FLAW_CONTROL_VALUE: "its value is too short",
    col.FLAW_CONTROL_COMPRESSED: "it is compressed",
}
PRODUCER_FLAWS = {
    col.FLAW_NO_PRODUCER_FIELDS: "it has no producer id but the transactional or the control bit",
    col.FLAW_PRODUCER_EPOCH: "it has a producer id but no epoch",
    col.FLAW_PRODUCER_SEQUENCE: "it has a producer id but no sequence",
}


def words(flaws: int, table: dict[int, str]) -> list[str]:
    """Return the texts of the flaws set in ``flaws``."""
    return [text for bit, text in table.items() if flaws & bit]


def error_code(name: str) -> Fields:
    """Return the error of a current leader: its name, code, and whether clients retry."""
    codes = {"INVALID_RECORD": (87, False), "INVALID_TIMESTAMP": (32, False), "CORRUPT_MESSAGE": (2, True)}
    code, retriable = codes[name]
    return {"error": name, "error_code": code, "retriable": retriable}


def _structural(
    log: LogView, kinds: tuple[EventKind, ...], table: dict[int, str], but: Container[tuple[int, int]] = ()
) -> Iterator[list[Event]]:
    # ``but``: places of batches to skip.
    mask = sum(table)
    flawed = (e for e in log.events(*kinds) if e["flaws"] & mask and _place(e) not in but)
    return runs(flawed, "kind", "flaws", "producer_id")


@rule("record-structure-invalid")
def record_structure_invalid(log: LogView) -> Iterator[Finding]:
    """A malformed batch

    Checks: with --records, the number of records differs from the declared count, bytes follow the last record, or the
    body cannot be decompressed. Or offset deltas do not increase or exceed the last one, lengths are impossible, or a
    header key is null. Always: an unknown codec or magic, a declared count that contradicts the offsets, or bytes
    between intact batches that are no batch (a wrong length, zeros, other bytes).
    Why it matters: leaders refuse such batches, except wrong deltas, which they repair or accept. A stored one breaks
    consumers and followers that read it. The checksum does not cover length and magic. If it is right with another
    length or with magic 2, only that field is damaged, and the batch is used with the right value. Bytes that are no
    batch end a segment for a broker: consumers stop there, and an unclean restart truncates all later records. The
    auditor searches the next intact batch and continues from it.
    Can be wrong: fewer records than offsets are legal after compaction by any broker (not reported). If a search begins
    in the middle of a record, a complete batch inside its value with fitting offsets may count as a batch of the log.
    What to do: find the client by its producer id; kafka-dump-log.sh with --deep-iteration shows the batch. For bytes
    that are no batch, get the named offsets from another replica, before this broker next starts or becomes leader.
    Source: KIP-467; LogValidator, DefaultRecordBatch
    """
    no_codec = {_place(e) for e in log.events(EventKind.HEADER_FLAW) if e["flaws"] & col.FLAW_CODEC_UNKNOWN}
    explained: set[tuple[int, int]] = set()
    for run in _structural(log, (EventKind.RECORD_FLAW,), RECORD_FLAWS, no_codec):
        explained |= {_place(e) for e in run}
        e = run[0]
        what = words(e["flaws"], RECORD_FLAWS)
        more: Fields = {
            "records_present": e["records_present"],
            "records_declared": e["records_declared"],
            "record_index": e["record_index"] if e["record_index"] >= 0 else None,
            "culprits": blamed(log, run, "flawed"),
        }
        in_doubt = bool(e["flaws"] & SPAN_FLAWS) or None
        yield _invalid(log, run, what, e["cause"], span_in_doubt=in_doubt, **more)
    for run in _structural(log, (EventKind.HEADER_FLAW,), BATCH_FLAWS):
        if left := [e for e in run if _place(e) not in explained]:
            in_doubt = bool(left[0]["flaws"] & ~col.FLAW_CODEC_UNKNOWN) or None
            what = words(left[0]["flaws"], BATCH_FLAWS)
            yield _invalid(log, left, what, span_in_doubt=in_doubt)
    short = [e for e in log.events(EventKind.COUNT_BELOW_SPAN) if hole(log, log.leader, e) != Missing.UNDECIDABLE]
    for run in runs(short, "record_count", "producer_id"):
        if left := [e for e in run if _place(e) not in explained]:
            what = [BATCH_FLAWS[col.FLAW_COUNT_BELOW_SPAN]]
            count, span = left[0]["record_count"], left[0]["span"]
            numbers: Fields = {"declared": count, "span": span, "confidence": hole(log, log.leader, left[0])}
            yield _invalid(log, left, what, span_in_doubt=True, **numbers)
    yield from damaged_fields(log, "error", LENGTH, MAGIC, **error_code("CORRUPT_MESSAGE"))
    yield from _unknown_formats(log, {e["position"] for e in log.events(EventKind.HEADER_FLAW)})
    for replica in log.replicas:  # each is damaged by itself
        yield from _gaps(log, replica)


def _place(e: Event) -> tuple[int, int]:
    return int(e["segment"]), int(e["position"])


def _unknown_formats(log: LogView, reported: set[int]) -> Iterator[Finding]:
    replica = log.leader
    in_tail = {(e.file, e.position) for pieces in tails(replica).values() for e in pieces}
    for error in replica.errors:
        wrapper = error.reason == "bad_codec" and error.position not in reported
        if error.file not in replica.segments or (error.file, error.position) in in_tail:
            continue
        if wrapper or is_whole(error):
            newest = error.file == replica.segments[-1] and replica.scans[-1:] != []
            at_end = newest and error.position + error.length == replica.scans[-1].size
            what = "compression" if wrapper else "format"
            yield log.finding(
                "error",
                f"A batch in {error.file} has an unknown {what}: {error.detail}",
                file=error.file,
                position=error.position,
                offset=error.first_offset if error.first_offset >= 0 else None,
                evidence={"reason": error.reason, "at_log_end": at_end or None, **error_code("INVALID_RECORD")},
            )


def _gaps(log: LogView, replica: ReplicaFacts) -> Iterator[Finding]:
    for error in replica.errors:
        if error.reason != "bad_size" or error.last_offset < 0 or error.file not in replica.segments:
            continue
        first, last = error.first_offset, error.last_offset
        lost = f"offsets {first} to {last}" if last >= first else "no offset"
        yield log.finding(
            "error",
            f"No batch in {plural(error.length, 'byte')} of {error.file} from byte {error.position} on "
            f"({error.detail}): {lost} of {log.name} is unreadable, and so are all later batches for a broker",
            replica=replica, file=error.file, position=error.position,
            offset=first, last_offset=last if last >= first else None,
            evidence={"reason": error.reason, "bytes": error.length, "detail": error.detail,
                      "unread_offsets": [first, last] if last >= first else None, **error_code("CORRUPT_MESSAGE")},
            advice=Advice(
                Verdict.INVESTIGATE_FIRST,
                f"an unclean restart or a move of broker {replica.broker_id} could truncate the rest",
                conditions=(
                    check(
                        repairs.describe_topic(log.topic),
                        f"the Isr of {log.name} lists no broker whose copy has these bytes intact",
                    ),
                ),
                afterwards=f"Audit the copy of another in-sync replica: it may have {lost}",
            ),
        )  # fmt: skip


def _invalid(
    log: LogView,
    run: list[Event],
    what: list[str],
    cause: int = OFFSET_RANGE,
    *,
    control: bool = False,
    **evidence: object,
) -> Finding:
    # ``cause``: why a leader would have refused the batch. It ignores other fields of headers (LogValidator), so that
    # the batch may be counted for its records.
    e = run[0]
    counted = cause in OF_HEADER and (e["kind"] != EventKind.HEADER_FLAW or control or e["flaws"] & LEADERS_LOOK_AT)
    return log.at_event(
        "error",
        f"{plural(len(run), 'malformed batch')} in {log.name} from offset {e['base_offset']} on: {'; '.join(what)}",
        e,
        last_offset=run[-1]["last_offset"],
        evidence={
            "flaws": what,
            "batches": len(run),
            "metric": BROKER_METRIC + METRICS["invalid_offset_or_sequence"] if counted else None,
            **(error_code(ERRORS[cause]) if cause != FINE else {}),
            **evidence,
        },
        advice=Advice(
            Verdict.INVESTIGATE_FIRST,
            conditions=(
                check(
                    repairs.dump(log.leader.file(int(e["segment"])), "--deep-iteration"),
                    f"the output shows such a batch at offset {e['base_offset']}",
                ),
            ),
            afterwards=_who_writes(e, control=control),
        ),
    )


def _who_writes(e: Event, *, control: bool) -> str:
    if control:
        return (
            "Clients cannot write control batches: find what writes into the brokers' files (a restore or a mirror of "
            "raw segments), end it, and keep a copy of the directory"
        )
    who = f"the client of producer id {e['producer_id']}" if e["producer_id"] >= 0 else "the client that writes these"
    return f"Stop {who}, and upgrade it before it writes again: a validating leader refuses such batches"


@rule("null-key-in-compacted-topic")
def null_key_in_compacted_topic(log: LogView) -> Iterator[Finding]:
    """A record without key in a compacted topic

    Checks: data records have a null key in a topic whose cleanup.policy contains compact. The evidence has the position
    of each in its batch, and the batch without them.
    Why it matters: compaction drops them. Leaders refuse them as INVALID_RECORD.
    Can be wrong: compaction was enabled after they were written.
    What to do: write them again with a key.
    Source: KIP-467; LogValidator
    """
    for run in runs(log.events(EventKind.NULL_KEY), "producer_id"):
        e = run[0]
        yield log.at_event(
            "warning",
            f"{plural(sum(x['null_keys'] for x in run), 'record')} without key in the compacted topic {log.topic}, "
            f"partition {log.partition}, from offset {e['base_offset']} on: compaction drops records without key",
            e,
            last_offset=run[-1]["last_offset"],
            evidence={
                "records": sum(x["null_keys"] for x in run),
                "batches": len(run),
                "record_index": e["record_index"],
                "culprits": blamed(log, run, "null_keys"),
                "metric": BROKER_METRIC + METRICS["no_key_compacted"],
                **error_code("INVALID_RECORD"),
            },
        )


@rule("legacy-inner-record-invalid")
def legacy_inner_record_invalid(log: LogView) -> Iterator[Finding]:
    """A wrapper of the old formats contains broken messages

    Checks: an inner message of a magic 0 or 1 wrapper has another magic, a CRC mismatch or its own codec. Or the
    wrapper offset is below its last inner offset.
    Why it matters: consumers fail at it, and it cannot be converted.
    Can be wrong: wrapper offset 0, as written by old librdkafka releases (handled).
    What to do: produce the records again.
    Source: KIP-467; AbstractLegacyRecordBatch
    """
    for run in _structural(log, (EventKind.RECORD_FLAW,), LEGACY_FLAWS):
        e = run[0]
        what = words(e["flaws"], LEGACY_FLAWS)
        metric = next((name for bit, name in LEGACY_METRICS.items() if e["flaws"] & bit), None)
        yield log.at_event(
            "error",
            f"Broken messages in {plural(len(run), 'wrapper')} of {log.name} from offset {e['base_offset']} on: "
            f"{'; '.join(what)}",
            e,
            last_offset=run[-1]["last_offset"],
            evidence={
                "flaws": what,
                "batches": len(run),
                "record_index": e["record_index"] if e["record_index"] >= 0 else None,
                "culprits": blamed(log, run, "flawed"),
                "metric": BROKER_METRIC + METRICS[metric] if metric else None,
                **(error_code(ERRORS[e["cause"]]) if e["cause"] != FINE else {}),
            },
        )


@rule("malformed-control-batch")
def malformed_control_batch(log: LogView) -> Iterator[Finding]:
    """A control batch is not a valid marker

    Checks: outside of __cluster_metadata, a control batch has no producer id, a sequence, more than one record, or
    another type than ABORT or COMMIT. Or it is not transactional, is compressed, or has a key or value that is too
    short.
    Why it matters: clients cannot write control batches, so something else wrote into the log. A 4.1 broker that has to
    replay an unknown type does not start.
    Can be wrong: an empty control batch after compaction is legal (handled).
    What to do: keep a copy of the directory, and re-fetch this replica only if another in-sync one is known to be
    intact. Find what writes into its files (a restore, or a mirror of raw segments) and end it.
    Source: KIP-98; ControlRecordType, EndTransactionMarker
    """
    for run in _structural(log, (EventKind.HEADER_FLAW,), CONTROL_FLAWS):
        yield _invalid(log, run, words(run[0]["flaws"], CONTROL_FLAWS), control=True)


@rule("producer-fields-inconsistent", when={"info": "for fields left by default clients"})
def producer_fields_inconsistent(log: LogView) -> Iterator[Finding]:
    """A batch's producer fields contradict each other

    Checks: the transactional bit without producer id, a producer id without epoch, or data with a producer id but
    without sequence. An epoch or a sequence without producer id is an info for the first such batch of a log.
    Why it matters: leaders refuse the former, and replicas that replay one get a wrong producer state. Non-idempotent
    sarama, kafkajs and franz-go producers write the latter (0 instead of -1), and leaders ignore both fields.
    Can be wrong: internal topics, whose coordinators write sequence 0 without producer id (excluded).
    What to do: stop the client that writes these batches, and upgrade it; nothing for an info.
    Source: KIP-98, KIP-467; LogValidator
    """
    for e in log.events(EventKind.LEFTOVER_FIELDS):
        yield log.at_event(
            "info",
            f"Batches of {log.name} from offset {e['base_offset']} on have an epoch or a sequence but no producer id, "
            "as from non-idempotent sarama, kafkajs and franz-go producers: leaders ignore these fields",
            e,
            evidence={"producer_epoch": e["producer_epoch"]},
            advice=Advice(Verdict.NONE),
        )
    reported = {_place(e) for e in log.events(EventKind.HEADER_FLAW) if e["flaws"] & col.FLAW_CONTROL_NO_PRODUCER}
    for run in _structural(log, (EventKind.HEADER_FLAW,), PRODUCER_FLAWS, reported):
        yield _invalid(log, run, words(run[0]["flaws"], PRODUCER_FLAWS))


# Culprit records of a batch, and the batch without them (KIP-467).


SHOWN = 20  # batches of one finding


class BatchPlace(TypedDict):
    """The location of a batch."""

    segment: int
    position: int
    base_offset: int


def blamed(
    log: LogView, run: Sequence[Event | BatchPlace], kind: str, *, newest: int | None = None
) -> list[Fields] | None:
    """Return the culprits of a kind (a field of :class:`Culprits`) in the first batches of a run, and what remains.

    ``error_records`` counts from 0 in the batch, as a ProduceResponse does. None where the batches could not be read
    again (a running cluster). ``newest``: the latest valid timestamp (ms), where known.
    """
    rows = []
    for e in run[:SHOWN]:
        culprits = log.leader.culprits.get((int(e["segment"]), int(e["position"])))
        if culprits is None:
            continue
        if newest is not None:
            culprits = culprits._replace(ahead=tuple(named for named in culprits.ahead if named[1] > newest))
        if indexes := _indexes(culprits, kind):
            rows.append(_row(int(e["base_offset"]), culprits, indexes))
    return rows or None


def _indexes(culprits: Culprits, kind: str) -> list[int]:
    named = getattr(culprits, kind)
    return [index for index, _stamp in named] if kind == "ahead" else list(named)


def _row(base_offset: int, culprits: Culprits, indexes: list[int]) -> Fields:
    row: Fields = {"base_offset": base_offset, "records": culprits.records, "error_records": indexes}
    others = {index for kind in ("null_keys", "flawed", "old", "ahead") for index in _indexes(culprits, kind)}
    if culprits.left_out:
        row["left_out"] = culprits.left_out
    elif culprits.records == culprits.declared:  # else nobody can tell what is behind the last one that could be read
        row["remaining"] = _remaining(culprits, others)
    return row


def _remaining(batch: Culprits, culprits: set[int]) -> Mapping[str, int]:
    # What a client would send again by KIP-467: without culprits, numbered from 0.
    records = batch.records - len(culprits)
    if not records:
        return {"records": 0}
    out = {"records": records, "last_offset_delta": records - 1}
    if batch.base_sequence >= 0:
        out |= {
            "base_sequence": batch.base_sequence,
            "last_sequence": (batch.base_sequence + records - 1) % SEQUENCES,
        }
    return out
