"""Validation of stored records (KIP-467)."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from auditor.connectors.codec import batches as codec_batches
from auditor.connectors.codec.batches import BatchColumns, RecordColumns, RecordSummary
from auditor.connectors.codec.segment import Look, Opens
from auditor.facts.events import TOLERANCE_MS, EventKind, blank_events
from auditor.facts.replica_facts import REFUSALS, SEQUENCE_FREE_TOPICS
from auditor.model import batch_validation
from auditor.model.batch_validation import IntOrArray, Topic
from auditor.replay.producers.audit_replay import intact_from, log_start_of
from auditor.replay.task import ReplicaTask

# Events of a chunk's batches and records, and a leader's counters (KIP-467).
#
# The model decides what is wrong: with batches as sent, and with batches as stored.


ORDER_OF_REFUSALS = ("invalid_checksum", "invalid_offset_or_sequence", "invalid_magic", "no_key_compacted")


class ChunkBounds(NamedTuple):
    """Bounds of a chunk: the log start, the first offset never cleaned, the last broker-written time before it."""

    log_start: int
    intact_from: int
    broker_time: int
    segment: int


def check(
    b: BatchColumns, s: RecordSummary, answers: np.ndarray | None, bounds: ChunkBounds, task: ReplicaTask
) -> list[np.ndarray]:
    """Return events of a chunk's records: broken structure, null keys, header times that differ, odd times.

    ``answers``: what a leader would have answered to each batch (:data:`auditor.model.batch_validation.ANSWER`), None:
    that all are right.
    """
    judged = _judged(b, bounds.log_start)
    faults = batch_validation.record_faults(s.flaws)
    flawed = _events(
        EventKind.RECORD_FLAW,
        judged & (faults != 0),
        b,
        bounds.segment,
        {
            "flaws": faults,
            "record_index": s.first_flaw,
            "records_present": s.present,
            "records_declared": b.record_count,
            "cause": np.zeros(len(faults), np.int8) if answers is None else answers["cause"],
        },
    )
    wrong = _events(
        EventKind.BATCH_TIMESTAMP,
        _wrong_times(b, s, bounds.log_start, bounds.intact_from),
        b,
        bounds.segment,
        {
            "found_max_timestamp": s.max_timestamp,
            "found_base_timestamp": s.first_timestamp,
            "base_timestamp": b.base_timestamp,
        },
    )
    groups = [flawed, wrong, _odd_times(b, s, bounds, task.before_ms)]
    if answers is not None:
        keyless = {"null_keys": answers["no_key_compacted"], "record_index": answers["first_no_key"]}
        groups.append(_events(EventKind.NULL_KEY, answers["no_key_compacted"] > 0, b, bounds.segment, keyless))
    return [events for events in groups if len(events)]


def _judged(b: BatchColumns, start: int) -> np.ndarray:
    return (b.last_offset >= start) & (b.flaws & codec_batches.FLAW_CRC == 0)


def _odd_times(b: BatchColumns, s: RecordSummary, bounds: ChunkBounds, before_ms: int | None) -> np.ndarray:
    """Events of invalid times, or of times older than the newest broker-written one allows."""
    judged = _judged(b, bounds.log_start)
    control = (b.attributes & batch_validation.STORED_CONTROL != 0) & (b.magic == 2)
    by_producer = batch_validation.stamped_by_producer(b.magic, b.attributes) & ~control
    by_broker = judged & ~by_producer & (b.magic == 2)
    before = np.maximum(np.maximum.accumulate(np.where(by_broker, b.max_timestamp, -1)), bounds.broker_time)
    odd = batch_validation.is_no_time(s.min_timestamp)
    if before_ms is not None:
        odd |= (
            (before >= 0)
            & (s.min_timestamp != batch_validation.NO_TIMESTAMP)
            & (s.min_timestamp < oldest(before, before_ms))
        )
    return _events(
        EventKind.RECORD_TIMESTAMP,
        judged & by_producer & (s.present > 0) & odd,
        b,
        bounds.segment,
        {
            "min_timestamp": s.min_timestamp,
            "max_timestamp": s.max_timestamp,
            "broker_time": before,
        },
    )


def _wrong_times(b: BatchColumns, s: RecordSummary, log_start: int, intact_from: int) -> np.ndarray:
    """Which batches have a header time other than the largest of their records."""
    whole = _judged(b, max(log_start, intact_from)) & (s.present > 0) & (s.flaws == 0)
    return whole & batch_validation.misstates_time(s.max_timestamp, b.max_timestamp, b.magic, b.attributes)


def largest_times(b: BatchColumns, s: RecordSummary, log_start: int, intact_from: int) -> np.ndarray:
    """Return the largest time (ms) of each batch: its records' where its header's is wrong."""
    return np.where(_wrong_times(b, s, log_start, intact_from), s.max_timestamp, b.max_timestamp)


def oldest(broker_time: IntOrArray, before_ms: int) -> IntOrArray:
    """Return the earliest timestamp that a leader accepts by its clock (ms) under ``message.timestamp.before.max.ms``.

    With tolerance for the time between reading that clock and the append.
    """
    return batch_validation.accepted_times(broker_time - TOLERANCE_MS, before_ms, batch_validation.FAR_MS)[0]


def counted(answers: np.ndarray) -> dict[str, int]:
    """Return KIP-467's counters of what leaders would have refused, by the names in ``ReplicaFacts.sums``.

    Each refused batch counts in one of them: a checksum ends its validation, a record's magic is checked before its key
    (LogValidator). A broker's own meters also count what it saw in the same batch before.
    """
    by_name = {name: answers[name] for name in REFUSALS[:-1]}
    by_name[REFUSALS[-1]] = answers["invalid_offset"] + answers["invalid_sequence"]
    counts, uncounted = dict.fromkeys(REFUSALS, 0), np.ones(len(answers), bool)
    for name in ORDER_OF_REFUSALS:
        counts[name] = int(by_name[name][uncounted].sum())
        uncounted &= by_name[name] == 0
    return counts


def _events(
    kind: EventKind, where: np.ndarray, b: BatchColumns, segment: int, columns: dict[str, np.ndarray]
) -> np.ndarray:
    """A row for each batch in ``where``; ``columns`` have a value per batch."""
    rows = np.flatnonzero(where)
    out = blank_events(len(rows))
    out["kind"], out["segment"] = int(kind), segment
    for name in ("position", "base_offset", "last_offset", "producer_id", "producer_epoch"):
        out[name] = getattr(b, name)[rows]
    out["timestamp"], out["leader_epoch"] = b.max_timestamp[rows], b.partition_leader_epoch[rows]
    for name, column in columns.items():
        out[name] = column[rows]
    return out


# Batches of a log as they must once have been sent, put to the model's validator (KIP-467).
#
# Stored batches differ from sent ones: the leader assigned the offsets and perhaps the times, coordinators wrote the
# markers and the internal topics, the cleaner removed records. What cannot be told any more is given to the validator
# as right. Only batches with something odd in them are checked, while their bytes are available.


NO_RECORDS = np.zeros(0, batch_validation.SENT_RECORD)
ANY_TIME = (
    -batch_validation.FAR_MS,
    batch_validation.FAR_MS,
)  # what the broker's clock said is known to the replay alone


class Sender(NamedTuple):
    """Who sent the batches of a replica, and the topic's requirements.

    Batches that end below ``log_start`` are not checked; those below ``intact_from`` may have been cleaned.
    ``clients``: whether clients write here; else only coordinators do.
    """

    log_start: int
    intact_from: int
    clients: bool
    compacted: bool


def sender_of(task: ReplicaTask) -> Sender:
    """Return the sender of a replica."""
    clients = task.replica.topic not in SEQUENCE_FREE_TOPICS
    return Sender(log_start_of(task), intact_from(task), clients, task.compacted)


def look_of(task: ReplicaTask) -> Look | None:
    """Return what answers for the batches of a replica while their records are read; None if they are not read."""
    return functools.partial(answers_of, sender=sender_of(task)) if task.records else None


def answers_of(opens: Opens, b: BatchColumns, s: RecordSummary, *, sender: Sender) -> np.ndarray | None:
    """Return a leader's answer to each batch (ANSWER), whose records ``opens`` gives; None: all are right.

    The leader's clock is not considered. Cost: batches with odd records are opened once more.
    """
    odd = s.flaws != 0
    if sender.compacted:
        odd |= s.null_keys > 0
    if not odd.any():
        return header_answers(b, sender)
    headers = header_answers(b, sender)
    out = np.zeros(len(odd), batch_validation.ANSWER) if headers is None else headers
    odd &= (b.flaws & codec_batches.FLAW_CRC == 0) & (b.last_offset >= sender.log_start)
    closed = s.flaws & codec_batches.RECORD_UNDECOMPRESSABLE != 0
    if (odd & closed).any():
        rows = np.flatnonzero(odd & closed)
        sent = as_sent(b.take(rows), sender, RecordSummary(*(column[rows] for column in s)))
        out[rows] = model_answers(sent, NO_RECORDS, batch_validation.NO_TOPIC)
    rows = np.flatnonzero(odd & ~closed)
    some = b.take(rows)
    for run in opens(rows):
        sent = as_sent(some.take(run.rows), sender, run.summary)
        out[rows[run.rows]] = model_answers(
            sent, sent_records(run.records, some), Topic(sender.compacted, False, *ANY_TIME)
        )
    return out


def header_answers(b: BatchColumns, sender: Sender) -> np.ndarray | None:
    """Return the answers to batches of which only the headers are known."""
    flaws = b.flaws & batch_validation.LEADERS_LOOK_AT
    if not flaws.any():
        return None
    flaws[(flaws == codec_batches.FLAW_COUNT_BELOW_SPAN) & (b.last_offset < sender.intact_from)] = (
        0  # as the cleaner leaves batches
    )
    rows = np.flatnonzero((flaws != 0) & (b.last_offset >= sender.log_start))
    if not len(rows):
        return None
    out = np.zeros(len(b.position), batch_validation.ANSWER)
    out[rows] = model_answers(as_sent(b.take(rows), sender), NO_RECORDS, batch_validation.NO_TOPIC)
    return out


def model_answers(sent: np.ndarray, records: np.ndarray, topic: Topic) -> np.ndarray:
    """Return the model's answers to the batches ``sent``; each of their ``records`` gets its cause."""
    answers = np.zeros(len(sent), batch_validation.ANSWER)
    batch_validation.judge(sent, records, topic, answers)
    return answers


def as_sent(b: BatchColumns, sender: Sender, s: RecordSummary | None = None) -> np.ndarray:
    """Return the batches as they were sent (SENT). ``s``: None where their records are not available."""
    sent = np.zeros(len(b.position), batch_validation.SENT)
    control = (b.attributes & batch_validation.STORED_CONTROL != 0) & (b.magic == 2)
    count, span = b.record_count.astype(np.int64), b.last_offset - b.base_offset + 1
    cleaned = (b.last_offset < sender.intact_from) & (count >= 0) & (count < span)
    sent["magic"], sent["control"], sent["declared"] = b.magic, control, count
    sent["compressed"] = sent["source_compressed"] = b.attributes & codec_batches.CODEC_MASK != 0
    sent["client"] = sender.clients & ~control & ~(cleaned & (count == 0))
    sent["intact"] = b.flaws & codec_batches.FLAW_CRC == 0
    sent["span"] = np.where(cleaned, count, span)
    sent["producer_id"], sent["base_sequence"] = b.producer_id, b.base_sequence
    sent["opened"] = True
    if s is not None:
        sent["looked"], sent["records"] = True, s.present
        sent["opened"] = s.flaws & codec_batches.RECORD_UNDECOMPRESSABLE == 0
        sent["more"] = s.flaws & codec_batches.RECORD_BYTES_LEFT != 0
    return sent


def sent_records(r: RecordColumns, b: BatchColumns) -> np.ndarray:
    """Return the records of batches as they were sent (SENT_RECORD); those of markers as coordinators write them."""
    records = np.zeros(len(r.batch), batch_validation.SENT_RECORD)
    attributes, magic = b.attributes[r.batch], b.magic[r.batch]
    control = (attributes & batch_validation.STORED_CONTROL != 0) & (magic == 2)
    records["timestamp"] = np.where(
        control | (attributes & batch_validation.APPEND_TIME != 0), batch_validation.NO_TIMESTAMP, r.timestamp
    )
    records["readable"] = r.flaws & (codec_batches.RECORD_LENGTH | codec_batches.RECORD_HEADER_KEY_NULL) == 0
    records["codec"] = r.flaws & codec_batches.RECORD_INNER_CODEC != 0
    records["same_magic"] = r.flaws & codec_batches.RECORD_INNER_MAGIC == 0
    records["crc_ok"] = r.flaws & codec_batches.RECORD_INNER_CRC == 0
    records["has_key"] = control | (r.key_size >= 0)
    return records


def packed_answers(answers: np.ndarray) -> tuple[np.ndarray, bytes]:
    """Pack answers for another process: few of them have findings."""
    rows = np.flatnonzero(answers["cause"])
    return rows, answers[rows].tobytes()


def unpacked_answers(packed: tuple[np.ndarray, bytes], batches: int) -> np.ndarray:
    """Unpack :func:`packed_answers` of so many batches."""
    answers = np.zeros(batches, batch_validation.ANSWER)
    rows, stored = packed
    answers[rows] = np.frombuffer(stored, batch_validation.ANSWER)
    return answers
