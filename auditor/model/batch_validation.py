"""Validation of a batch and its records by a leader (KIP-467)."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np

from auditor.base.compiled import kernel
from auditor.connectors.codec import batches
from auditor.connectors.codec.batches import FLAW_COUNT_BELOW_SPAN, FLAW_NO_PRODUCER_FIELDS, FLAW_PRODUCER_SEQUENCE

# Validation of a batch and of each of its records by a leader (KIP-467 as implemented).
#
# One implementation serves record sets as they are produced (:mod:`tests.reference.validator`) and batches of a log
# as they must once have been produced: compiled, over plain rows, since a log may have millions of batches.
#
# Source: LogValidator.validateBatch, validateRecord and processRecordErrors, UnifiedLog.analyzeAndValidateRecords,
# DefaultRecordBatch and AbstractLegacyRecordBatch of Kafka's trunk of October 2024; semantics 4.2 to 4.4.


IntOrArray = TypeVar("IntOrArray", int, np.ndarray)
NO_TIMESTAMP = -1
FAR_MS = 1 << 62  # Long.MAX_VALUE, the default of either limit, would leave what 64 bits hold

# Why a batch or a record is refused, in the order in which it is looked at; CHECKSUM is of a batch or an inner record.
(
    FINE,
    CHECKSUM,
    OFFSET_RANGE,
    CONTROL_BATCH,
    SEQUENCE,
    UNREADABLE,
    CODEC,
    MAGIC,
    NO_KEY,
    TOO_OLD,
    TOO_NEW,
    STAMPED,
    RECORDS,
    TIMES,
) = range(14)
OF_HEADER = (OFFSET_RANGE, CONTROL_BATCH, SEQUENCE)  # counted, each once, as InvalidOffsetOrSequence
OF_TIME = (TOO_OLD, TOO_NEW, STAMPED)
INVALID_RECORD, INVALID_TIMESTAMP, CORRUPT_MESSAGE = "INVALID_RECORD", "INVALID_TIMESTAMP", "CORRUPT_MESSAGE"
ERRORS = dict.fromkeys(range(CHECKSUM, TIMES), INVALID_RECORD) | {
    CHECKSUM: CORRUPT_MESSAGE,
    TOO_OLD: INVALID_TIMESTAMP,
    TOO_NEW: INVALID_TIMESTAMP,
    STAMPED: INVALID_TIMESTAMP,
    TIMES: INVALID_TIMESTAMP,
}

# A batch as it was sent. ``client``: a client's, whose header is mistrusted; ``intact``: its checksum is right;
# ``opened``: its body could be decompressed; ``more``: bytes are left behind the records that it declares;
# ``source_compressed``: the set that it came in was; ``stamped``: it says LogAppendTime. ``span``: offsets from its
# first to its last. ``looked``: its records are at hand, ``records`` of them; else its header alone is judged.
SENT = np.dtype(
    (np.record, [
        ("magic", "i1"), ("compressed", "?"), ("source_compressed", "?"), ("stamped", "?"), ("control", "?"),
        ("client", "?"), ("intact", "?"), ("opened", "?"), ("more", "?"), ("looked", "?"),
        ("span", "i8"), ("declared", "i8"), ("producer_id", "i8"), ("base_sequence", "i8"), ("records", "i8"),
    ])
)  # fmt: skip
# A record of it. ``codec``: it claims one of its own, ``crc_ok``: its own checksum is right (both of formats 0 and 1);
# ``cause`` is filled in: why it is refused, whether or not a reader gets so far.
SENT_RECORD = np.dtype(
    (
        np.record,
        [
            ("timestamp", "i8"),
            ("readable", "?"),
            ("codec", "?"),
            ("same_magic", "?"),
            ("crc_ok", "?"),
            ("has_key", "?"),
            ("cause", "i1"),
        ],
    )
)
METRICS = ("invalid_magic", "invalid_offset", "invalid_sequence", "invalid_checksum", "no_key_compacted")
# What a leader says: why it refuses the batch, by what it counts it, and the first of its records without a key where
# any is counted. All zeros: nothing is wrong.
ANSWER = np.dtype((np.record, [("cause", "i1"), *((name, "i4") for name in METRICS), ("first_no_key", "i4")]))


class Topic(NamedTuple):
    """Topic settings for records.

    ``oldest`` to ``newest``: the accepted times (epoch ms) unless the broker stamps records itself.
    """

    compacted: bool
    log_append_time: bool
    oldest: int
    newest: int


NO_TOPIC = Topic(False, False, -FAR_MS, FAR_MS)  # that asks for nothing: for headers


def accepted_times(now: IntOrArray, before_max_ms: int, after_max_ms: int) -> tuple[IntOrArray, IntOrArray]:
    """Return the oldest and the newest CreateTime that a broker accepts when its clock says ``now``; all in ms."""
    return now - min(before_max_ms, FAR_MS), now + min(after_max_ms, FAR_MS)


@kernel
def header_cause(h: np.record) -> int:
    """Return why a client's batch is refused by its header."""
    if h.magic >= 2 and (h.span <= 0 or h.declared <= 0 or h.span != h.declared):
        return OFFSET_RANGE
    if h.control:
        return CONTROL_BATCH
    return SEQUENCE if h.producer_id >= 0 and h.base_sequence < 0 else FINE


@kernel
def _record_cause(h: np.record, r: np.record, topic: Topic) -> int:
    """The first check that a record fails."""
    in_wrapper = h.magic < 2 and h.compressed
    if not r.readable or (in_wrapper and r.codec):  # a reader of wrappers opens no wrapper inside
        return UNREADABLE
    if h.source_compressed and r.codec:
        return CODEC
    if not r.same_magic:
        return MAGIC
    if in_wrapper and not r.crc_ok:
        return CHECKSUM
    if topic.compacted and not r.has_key:
        return NO_KEY
    if not topic.log_append_time and r.timestamp != NO_TIMESTAMP:
        if r.timestamp < topic.oldest:
            return TOO_OLD
        return TOO_NEW if r.timestamp > topic.newest else FINE
    return STAMPED if h.stamped and h.magic > 0 else FINE


@kernel
def _visited(h: np.record) -> int:
    """Number of records that a reader returns: before the last one it checks what follows, without any it does not."""
    if h.magic >= 2 and (h.more or h.declared <= 0):
        return min(max(h.declared - 1, 0), h.records)
    return h.records


@kernel
def _visit(h: np.record, records: np.ndarray, start: int, answer: np.record) -> int:
    """Why the batch is refused by its records, all of which are visited to count metrics."""
    if not h.opened:
        return UNREADABLE
    refused = FINE
    for number in range(start, start + _visited(h)):
        cause = records[number].cause
        if cause == UNREADABLE:
            return UNREADABLE
        if cause == CHECKSUM:
            answer.invalid_checksum += 1
            return CHECKSUM
        if cause == MAGIC:
            answer.invalid_magic += 1
        if cause == NO_KEY:
            if answer.no_key_compacted == 0:
                answer.first_no_key = number - start
            answer.no_key_compacted += 1
        if cause in OF_TIME:
            refused = TIMES
        elif cause != FINE and refused == FINE:
            refused = RECORDS
    if h.magic >= 2 and h.declared != 0 and (h.more or h.declared != h.records):
        return UNREADABLE
    return refused


@kernel
def _answer(h: np.record, records: np.ndarray, start: int, answer: np.record) -> int:
    if not h.intact:
        answer.invalid_checksum = 1
        return CHECKSUM
    cause = header_cause(h) if h.client else FINE
    if cause == SEQUENCE:
        answer.invalid_sequence = 1
    elif cause != FINE:
        answer.invalid_offset = 1
    if cause != FINE or not h.looked:
        return cause
    return _visit(h, records, start, answer)


@kernel
def judge(sent: np.ndarray, records: np.ndarray, topic: Topic, answers: np.ndarray) -> None:
    """Fill ``answers`` (ANSWER, zeros), one per batch, and the ``cause`` of every record.

    ``sent`` are the batches (SENT), ``records`` those of all of them in order (SENT_RECORD). Cost: one pass.
    """
    start = 0
    for row in range(len(sent)):
        h = sent[row]
        for number in range(start, start + h.records):
            records[number].cause = _record_cause(h, records[number], topic)
        answers[row].cause = _answer(h, records, start, answers[row])
        start += h.records


# Stored batches: what must hold whoever wrote them, beyond a leader's validation.
#
# A leader assigns offsets itself and may set timestamps, only a coordinator writes markers, and the cleaner leaves
# fewer records than offsets. The codec reports observations as bits; here is which of them are faults.
#
# Source: DefaultRecordBatch, MemoryRecordsBuilder, EndTransactionMarker, Cleaner; semantics 4.8, corrections.md
# (`producer-fields-inconsistent`).


APPEND_TIME, TRANSACTIONAL, STORED_CONTROL, HORIZON = 0x08, 0x10, 0x20, 0x40  # bits of the attributes
# Whoever wrote the batch. Fewer records than offsets, or no sequence, are legal somewhere.
HEADER_FAULTS = (
    batches.FLAW_COUNT_ABOVE_SPAN
    | batches.FLAW_NEGATIVE_SPAN
    | batches.FLAW_CODEC_UNKNOWN
    | batches.FLAW_NO_PRODUCER_FIELDS
    | batches.FLAW_PRODUCER_EPOCH
    | batches.FLAW_CONTROL_COMPRESSED
    | batches.FLAW_CONTROL_KEY
    | batches.FLAW_CONTROL_VALUE
    | batches.FLAW_CONTROL_TYPE
    | batches.FLAW_CONTROL_NOT_TRANSACTIONAL
    | batches.FLAW_CONTROL_RECORDS
    | batches.FLAW_CONTROL_SEQUENCE
    | batches.FLAW_CONTROL_NO_PRODUCER
)
# What may be wrong with a batch for its leader, by its header alone; at the other bits no leader looks.
LEADERS_LOOK_AT = (
    batches.FLAW_CRC
    | batches.FLAW_COUNT_ABOVE_SPAN
    | batches.FLAW_COUNT_BELOW_SPAN
    | batches.FLAW_NEGATIVE_SPAN
    | batches.FLAW_PRODUCER_SEQUENCE
)
# Of a record that a leader would have taken: it repairs what old clients number wrongly, so that no log has it.
NUMBERS = batches.RECORD_OFFSET_DELTA | batches.RECORD_WRAPPER_OFFSET
RECORD_FAULTS = (
    NUMBERS
    | batches.RECORD_COUNT_MISMATCH
    | batches.RECORD_BYTES_LEFT
    | batches.RECORD_UNDECOMPRESSABLE
    | batches.RECORD_LENGTH
    | batches.RECORD_HEADER_KEY_NULL
    | batches.RECORD_INNER_MAGIC
    | batches.RECORD_INNER_CRC
    | batches.RECORD_INNER_CODEC
)


@kernel
def header_faults(flaws: int, attributes: int, sequences: bool) -> int:
    """Return the bits of a header that no broker writes. ``sequences``: whether they mean something in this topic."""
    faults = flaws & HEADER_FAULTS
    if sequences:
        faults |= flaws & FLAW_PRODUCER_SEQUENCE
    if not sequences or is_leftover(flaws, attributes):  # coordinators write sequence 0 without a producer id
        faults &= ~FLAW_NO_PRODUCER_FIELDS
    return faults


@kernel
def is_leftover(flaws: int, attributes: int) -> bool:
    """Whether there is an epoch or a sequence without a producer id, which no leader checks."""
    return flaws & FLAW_NO_PRODUCER_FIELDS != 0 and not attributes & (TRANSACTIONAL | STORED_CONTROL)


@kernel
def lacks_records(flaws: int, last_offset: int, intact_from: int) -> bool:
    """Whether fewer records are declared than offsets spanned where no cleaner can have removed them.

    ``intact_from``: the first offset that was never cleaned.
    """
    return flaws & FLAW_COUNT_BELOW_SPAN != 0 and last_offset >= intact_from


def record_faults(flaws: np.ndarray) -> np.ndarray:
    """Return the bits of batches' records that no broker stores."""
    return flaws & RECORD_FAULTS


def misnumbered(flaws: np.ndarray) -> np.ndarray:
    """Return which records have offsets that no log has, though a leader would have repaired and taken them."""
    return flaws & NUMBERS != 0


def stamped_by_producer(magic: np.ndarray, attributes: np.ndarray) -> np.ndarray:
    """Return which batches have CreateTimes, one per record."""
    return (attributes & APPEND_TIME == 0) & (magic == 2)


def misstates_time(largest: np.ndarray, stated: np.ndarray, magic: np.ndarray, attributes: np.ndarray) -> np.ndarray:
    """Return which never cleaned batches state a largest time (ms) other than that of their records.

    ``largest``: the largest of each batch's records. Batches with a delete horizon store that in the base timestamp,
    from which their records count.
    """
    return stamped_by_producer(magic, attributes) & (attributes & HORIZON == 0) & (largest != stated)


def is_no_time(timestamp: np.ndarray) -> np.ndarray:
    """Return which times (ms) no client gives to a record: :data:`NO_TIMESTAMP` stands for none."""
    return timestamp < NO_TIMESTAMP


# Order of batches in a log: offsets ascend.
#
# Source: UnifiedLog.append and analyzeAndValidateRecords of Kafka's trunk of October 2024; semantics 1.15, 4.2.


@kernel
def goes_back(first_offset: int, log_end: int) -> bool:
    """Whether a batch with this first offset begins below the end of the log."""
    return first_offset < log_end
