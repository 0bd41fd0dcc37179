"""Validation of a produced record set by a partition leader, and its offsets (KIP-467 as implemented).

What no log shows: which path a set takes, whether it is rebuilt, what it is converted to, what the time index is told.
Of each batch and record :mod:`auditor.model.batch_validation` decides. Source: LogValidator of Kafka's trunk of October
2024; semantics 4.3 to 4.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from auditor.model.batch_validation import (
    ANSWER,
    ERRORS,
    FINE,
    INVALID_RECORD,
    NO_TIMESTAMP,
    NO_TOPIC,
    RECORDS,
    SENT,
    SENT_RECORD,
    TIMES,
    Topic,
    accepted_times,
    judge,
)
from tests.reference.record_set import (
    CLIENT,
    NO_PRODUCER_ID,
    NONE,
    Batch,
    Record,
    RecordError,
    Rejected,
    ValidationMetrics,
)

_ZSTD_SINCE = (2, 1)


class TopicSettings(NamedTuple):
    """Topic settings that a record set is validated against.

    `target_compression`: the topic's codec, the source's own where the topic says `producer`; `target_magic`: message
    format; `log_append_time`: the broker stamps records; `before_max_ms`, `after_max_ms`: how far a CreateTime may lie
    behind and ahead of the clock; `inter_broker_protocol`: "latest" or a version such as "2.0".
    """

    target_compression: str = NONE
    target_magic: int = 2
    compacted: bool = False
    log_append_time: bool = False
    before_max_ms: int = 2**63 - 1
    after_max_ms: int = 2**63 - 1
    inter_broker_protocol: str = "latest"


class Validated(NamedTuple):
    """An accepted record set: assigned `offsets` in record order, and what goes into the log's time index.

    `shallow_offset_of_max_timestamp`: last offset of the batch that holds `max_timestamp`, epoch ms; both -1 without
    timestamps. `size_maybe_changed`: the set was rebuilt, which counts `converted_records`.
    """

    offsets: range
    max_timestamp: int
    shallow_offset_of_max_timestamp: int
    size_maybe_changed: bool
    converted_records: int
    output_compression: str


def validate(
    batches: Sequence[Batch],
    settings: TopicSettings,
    source_compression: str,
    origin: str,
    now: int,
    next_offset: int,
    metrics: ValidationMetrics,
) -> Validated:
    """Check a record set as the leader does and assign offsets from `next_offset`; Rejected with the error otherwise.

    `origin` is client, coordinator, replication or raft_leader; only clients' headers are mistrusted. `now`: broker
    clock, epoch ms. `metrics` is counted up, also before a rejection.
    """
    compressed_path = source_compression != NONE or settings.target_compression != NONE
    if settings.target_compression == "zstd" and _before_zstd(settings.inter_broker_protocol):
        raise Rejected("UNSUPPORTED_COMPRESSION_TYPE")
    first = _first_batch(batches, source_compression)
    rebuilt = _needs_rebuild(batches, settings, source_compression)
    topic = Topic(
        settings.compacted,
        settings.log_append_time,
        *accepted_times(now, settings.before_max_ms, settings.after_max_ms),
    )
    timestamps: list[int] = []
    for batch in batches:
        if batch.magic != first.magic:
            metrics.invalid_magic += 1
            raise Rejected(INVALID_RECORD)
        _check_format(batch, settings.target_magic, origin, metrics)
        offsets_are_kept = batch.magic > 0 and settings.target_magic > 0
        for record in _check_records(batch, topic, source_compression, metrics):
            if compressed_path and offsets_are_kept and record.offset != len(timestamps):
                rebuilt = True  # old clients number inner records wrongly: repaired rather than refused
            timestamps.append(record.known_timestamp)
    offsets = range(next_offset, next_offset + len(timestamps))
    highest, shallow = _time_index_entry(timestamps, offsets, settings, now, rebuilt, compressed_path)
    return Validated(
        offsets=offsets,
        max_timestamp=highest,
        shallow_offset_of_max_timestamp=shallow,
        size_maybe_changed=rebuilt,
        converted_records=len(timestamps) if rebuilt else 0,
        output_compression=settings.target_compression if rebuilt else source_compression,
    )


def _before_zstd(inter_broker_protocol: str) -> bool:
    if inter_broker_protocol == "latest":
        return False
    numbers = inter_broker_protocol.partition("-")[0].split(".")
    return tuple(int(number) for number in numbers[:2]) < _ZSTD_SINCE


def _first_batch(batches: Sequence[Batch], source_compression: str) -> Batch:
    """The first batch, which must be the only one unless old uncompressed messages follow each other."""
    if not batches:
        raise Rejected(INVALID_RECORD)
    if len(batches) > 1 and (batches[0].magic >= 2 or source_compression != NONE):
        raise Rejected(INVALID_RECORD)
    return batches[0]


def _needs_rebuild(batches: Sequence[Batch], settings: TopicSettings, source_compression: str) -> bool:
    """Whether codec or format keep the client's bytes from being stored as they are."""
    if source_compression == NONE and settings.target_compression == NONE:
        return any(batch.magic != settings.target_magic for batch in batches)
    if source_compression == NONE and batches[0].control:
        return False  # control batches are never compressed by the broker
    same_format = batches[0].magic == settings.target_magic != 0
    return source_compression != settings.target_compression or not same_format


def _check_format(batch: Batch, target_magic: int, origin: str, metrics: ValidationMetrics) -> None:
    """Check a client's header (semantics 4.3, 4 to 8), then whether the stored format can hold it (9 and 10)."""
    if origin == CLIENT:
        _raise_refused(batch, _sent(batch, NONE, client=True), NO_TOPIC, metrics)
    if target_magic < 2 and (batch.transactional or batch.producer_id != NO_PRODUCER_ID):
        raise Rejected("UNSUPPORTED_FOR_MESSAGE_FORMAT")


def _check_records(
    batch: Batch, topic: Topic, source_compression: str, metrics: ValidationMetrics
) -> tuple[Record, ...]:
    """Check every record of a batch before it is refused; return those that a reader would return."""
    sent = _sent(batch, source_compression, client=False)
    sent["looked"], sent["records"] = True, len(batch.records)
    _raise_refused(batch, sent, topic, metrics)
    return batch.records if batch.magic < 2 or batch.declared_count else ()


def _sent(batch: Batch, source_compression: str, *, client: bool) -> np.ndarray:
    sent = np.zeros(1, SENT)
    sent["magic"], sent["compressed"] = batch.magic, batch.compression != NONE
    sent["source_compressed"], sent["stamped"] = source_compression != NONE, batch.log_append_time
    sent["control"], sent["client"], sent["intact"], sent["opened"] = batch.control, client, True, True
    sent["more"], sent["span"] = batch.declared_count < len(batch.records), batch.last_offset_delta + 1
    sent["declared"], sent["producer_id"] = batch.declared_count, batch.producer_id
    sent["base_sequence"] = batch.base_sequence
    return sent


def _raise_refused(batch: Batch, sent: np.ndarray, topic: Topic, metrics: ValidationMetrics) -> None:
    rows = [
        (r.known_timestamp, r.readable, r.compressed, r.magic == batch.magic, r.crc_ok, r.has_key, FINE)
        for r in batch.records[: int(sent["records"][0])]
    ]
    records, answers = np.array(rows, SENT_RECORD), np.zeros(1, ANSWER)
    judge(sent, records, topic, answers)
    metrics.add(answers[0])
    cause = int(answers["cause"][0])
    if cause == FINE:
        return
    named: tuple[RecordError, ...] = ()
    if cause in (RECORDS, TIMES):
        causes = enumerate(records["cause"].tolist())
        named = tuple(RecordError(index, ERRORS[code]) for index, code in causes if code != FINE)
    raise Rejected(ERRORS[cause], named)


def _time_index_entry(
    timestamps: list[int], offsets: range, settings: TopicSettings, now: int, rebuilt: bool, compressed_path: bool
) -> tuple[int, int]:
    """Highest timestamp and the last offset of the earliest batch that holds it; -1, -1 where there is none."""
    magic, base, last = settings.target_magic, offsets.start, offsets.stop - 1
    single_batch = magic >= 2 or (compressed_path if not rebuilt else settings.target_compression != NONE)
    stored_in_place = compressed_path and not rebuilt
    if settings.log_append_time:
        if magic == 0 and not (rebuilt or compressed_path):
            return NO_TIMESTAMP, -1
        return now, last if single_batch else base
    highest = max([NO_TIMESTAMP, *timestamps]) if magic > 0 else NO_TIMESTAMP
    if highest == NO_TIMESTAMP and not stored_in_place:
        return NO_TIMESTAMP, -1
    return highest, last if single_batch else base + timestamps.index(highest)
