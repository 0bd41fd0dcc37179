"""Validation of record sets: semantics 4.2 to 4.6, where the conformance cases leave a corner."""

from __future__ import annotations

import numpy as np
import pytest

from auditor.model.batch_validation import ANSWER, FINE, NO_KEY, NO_TOPIC, SENT, SENT_RECORD, judge
from tests.reference.append_analysis import BatchHeader, analyze
from tests.reference.record_set import Batch, Record, RecordError, Rejected, ValidationMetrics, without_culprits
from tests.reference.validator import TopicSettings, Validated, validate

PLAIN = TopicSettings()


def batch(*records: Record, **fields: object) -> Batch:
    count = len(records)
    header: dict[str, object] = {"last_offset_delta": count - 1, "declared_count": count}
    return Batch(records, **{**header, **fields})  # type: ignore[arg-type]


def records(count: int, magic: int = 2, timestamp: int = -1) -> list[Record]:
    return [Record(index, timestamp, magic=magic) for index in range(count)]


def run(
    *batches: Batch,
    settings: TopicSettings = PLAIN,
    source: str = "none",
    origin: str = "client",
    metrics: ValidationMetrics | None = None,
) -> Validated:
    return validate(batches, settings, source, origin, 1000, 70, metrics or ValidationMetrics())


def refused(*batches: Batch, **arguments: object) -> tuple[str, list[int], dict[str, int]]:
    metrics = ValidationMetrics()
    with pytest.raises(Rejected) as raised:
        run(*batches, metrics=metrics, **arguments)  # type: ignore[arg-type]
    counted = {name: count for name, count in metrics.as_dict().items() if count}
    return raised.value.error, [error.index for error in raised.value.record_errors], counted


# --- batches


@pytest.mark.parametrize(
    ("fields", "metric"),
    [
        ({"last_offset_delta": -1}, "invalid_offset"),
        ({"last_offset_delta": -1, "declared_count": 0}, "invalid_offset"),
        ({"declared_count": 0}, "invalid_offset"),
        ({"last_offset_delta": 2}, "invalid_offset"),
        ({"control": True}, "invalid_offset"),
        ({"producer_id": 0, "base_sequence": -1}, "invalid_sequence"),
    ],
)
def test_headers_of_clients_are_mistrusted(fields: dict[str, object], metric: str) -> None:
    wrong = batch(*records(2), **fields)
    assert refused(wrong) == ("INVALID_RECORD", [], {metric: 1})
    if "declared_count" not in fields:
        assert run(wrong, origin="coordinator").offsets == range(70, 72)


def test_a_header_at_its_bounds_is_taken() -> None:
    assert run(batch(*records(1), producer_id=0, base_sequence=0)).offsets == range(70, 71)
    assert run(batch(*records(1), base_sequence=-1)).offsets == range(70, 71)


def test_the_last_declared_record_is_not_looked_at_where_more_follow() -> None:
    """The reader sees the bytes behind it before it hands it out (differential seed 7403, a broker of 4.1)."""
    first, keyless = Record(0, -1), Record(1, -1, has_key=False)
    compacted = PLAIN._replace(compacted=True)
    more = batch(first, keyless, Record(2, -1), last_offset_delta=1, declared_count=2)
    assert refused(more, settings=compacted) == ("INVALID_RECORD", [], {})
    fewer = batch(first, keyless, last_offset_delta=2, declared_count=3)
    assert refused(fewer, settings=compacted) == ("INVALID_RECORD", [], {"no_key_compacted": 1})


def test_old_formats_may_come_in_many_batches_but_not_in_two_formats() -> None:
    old = [batch(Record(index, magic=1), magic=1) for index in range(2)]
    format_1 = PLAIN._replace(target_magic=1)
    assert run(*old, settings=format_1).offsets == range(70, 72)
    mixed = (old[0], batch(Record(1, magic=0), magic=0))
    assert refused(*mixed, settings=format_1) == ("INVALID_RECORD", [], {"invalid_magic": 1})
    assert refused(*old, settings=format_1, source="gzip")[0] == "INVALID_RECORD"
    assert refused(batch(*records(1)), batch(*records(1)))[0] == "INVALID_RECORD"
    assert refused()[0] == "INVALID_RECORD"


@pytest.mark.parametrize("fields", [{"transactional": True}, {"producer_id": 0, "base_sequence": 0}])
def test_old_formats_know_no_producers(fields: dict[str, object]) -> None:
    for magic, error in ((0, True), (1, True), (2, False)):
        settings, produced = PLAIN._replace(target_magic=magic), batch(*records(1), **fields)
        if error:
            assert refused(produced, settings=settings) == ("UNSUPPORTED_FOR_MESSAGE_FORMAT", [], {})
        else:
            assert run(produced, settings=settings).offsets == range(70, 71)


def test_declared_counts_are_compared_with_the_records() -> None:
    for declared in (1, 3):
        wrong = batch(*records(2), declared_count=declared, last_offset_delta=declared - 1)
        assert refused(wrong) == ("INVALID_RECORD", [], {})
    assert refused(batch(*records(2), declared_count=-1), origin="replication")[0] == "INVALID_RECORD"
    assert run(batch(*records(2), declared_count=0), origin="replication").offsets == range(70, 70)
    format_1 = PLAIN._replace(target_magic=1)
    assert run(batch(Record(0, magic=1), magic=1, declared_count=5), settings=format_1).offsets == range(70, 71)


@pytest.mark.parametrize(
    ("protocol", "known"), [("2.0", False), ("0.11.0", False), ("2.1", True), ("2.1-IV0", True), ("10.0", True)]
)
def test_zstd_since_2_1(protocol: str, known: bool) -> None:
    settings = PLAIN._replace(target_compression="zstd", inter_broker_protocol=protocol)
    if known:
        assert run(batch(*records(1)), settings=settings).output_compression == "zstd"
    else:
        assert refused(batch(*records(1)), settings=settings) == ("UNSUPPORTED_COMPRESSION_TYPE", [], {})
    assert run(batch(*records(1)), settings=settings._replace(target_compression="lz4")).size_maybe_changed


# --- records


def test_the_first_check_that_fails_is_reported_and_every_record_is_visited() -> None:
    settings = PLAIN._replace(target_magic=1, target_compression="gzip", compacted=True, before_max_ms=100)
    produced = batch(
        Record(0, 1, False, magic=0),  # format before key before time
        Record(1, 1, False, magic=1),
        Record(2, 1, True, magic=1),
        Record(3, 1000, True, magic=1),
        magic=1,
        compression="gzip",
    )
    metrics = ValidationMetrics()
    with pytest.raises(Rejected) as raised:
        run(produced, settings=settings, source="gzip", metrics=metrics)
    assert raised.value.error == "INVALID_TIMESTAMP"
    assert [(error.index, error.error) for error in raised.value.record_errors] == [
        (0, "INVALID_RECORD"),
        (1, "INVALID_RECORD"),
        (2, "INVALID_TIMESTAMP"),
    ]
    assert (metrics.invalid_magic, metrics.no_key_compacted) == (1, 1)


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_inner_checksums_are_of_old_compressed_records_only(magic: int) -> None:
    settings = PLAIN._replace(target_magic=magic)
    produced = batch(Record(0, magic=magic, crc_ok=False, has_key=False), magic=magic)
    assert run(produced, settings=settings).offsets == range(70, 71)
    compressed = produced._replace(compression="gzip")
    settings = settings._replace(target_compression="gzip", compacted=True)
    expected = ("CORRUPT_MESSAGE", [], {"invalid_checksum": 1})
    if magic == 2:
        expected = ("INVALID_RECORD", [0], {"no_key_compacted": 1})
    assert refused(compressed, settings=settings, source="gzip") == expected


def test_the_first_record_without_a_key_is_named() -> None:
    sent, answers = np.zeros(1, SENT), np.zeros(1, ANSWER)
    sent["magic"], sent["intact"], sent["opened"], sent["looked"], sent["declared"] = 2, True, True, True, 4
    sent["records"] = 4
    keyed = np.array(
        [(-1, True, False, True, True, has_key, FINE) for has_key in (True, False, True, False)], SENT_RECORD
    )
    judge(sent, keyed, NO_TOPIC._replace(compacted=True), answers)
    assert (answers["no_key_compacted"][0], answers["first_no_key"][0]) == (2, 1)
    assert keyed["cause"].tolist() == [FINE, NO_KEY, FINE, NO_KEY]


def test_only_damage_may_be_sent_again() -> None:
    assert Rejected("CORRUPT_MESSAGE").retriable
    assert not Rejected("INVALID_RECORD").retriable


def test_a_codec_inside_a_codec() -> None:
    settings = PLAIN._replace(target_magic=1, target_compression="gzip")
    inner = batch(Record(0, magic=1), Record(1, magic=1, compressed=True), magic=1, compression="gzip")
    assert refused(inner, settings=settings, source="gzip") == ("INVALID_RECORD", [], {})
    foreign = inner._replace(records=(Record(0, magic=0), *inner.records))  # differential seed 33, a broker of 4.1
    assert refused(foreign, settings=settings, source="gzip") == ("INVALID_RECORD", [], {"invalid_magic": 1})
    behind = inner._replace(records=(*inner.records, Record(2, magic=0)))
    assert refused(behind, settings=settings, source="gzip") == ("INVALID_RECORD", [], {})
    unwrapped = inner._replace(compression="none")
    assert refused(unwrapped, settings=settings, source="gzip") == ("INVALID_RECORD", [1], {})
    assert run(unwrapped, settings=settings).offsets == range(70, 72)


@pytest.mark.parametrize(
    ("timestamp", "accepted"), [(899, False), (900, True), (1000, True), (1050, True), (1051, False), (-1, True)]
)
def test_bounds_of_create_time(timestamp: int, accepted: bool) -> None:
    settings = PLAIN._replace(before_max_ms=100, after_max_ms=50)
    produced = batch(Record(0, timestamp))
    if accepted:
        assert run(produced, settings=settings).max_timestamp == timestamp
    else:
        assert refused(produced, settings=settings) == ("INVALID_TIMESTAMP", [0], {})
    assert run(produced, settings=settings._replace(log_append_time=True)).max_timestamp == 1000


def test_format_0_has_no_timestamps() -> None:
    settings = PLAIN._replace(target_magic=0, before_max_ms=1)
    produced = batch(Record(0, 5, magic=0), magic=0, log_append_time=True)
    assert run(produced, settings=settings)[1:3] == (-1, -1)


def test_clients_may_not_stamp_log_append_time() -> None:
    stamped = batch(Record(0, 1000), log_append_time=True)
    untimed = batch(Record(0, -1), log_append_time=True)
    assert refused(stamped, settings=PLAIN._replace(log_append_time=True))[:2] == ("INVALID_TIMESTAMP", [0])
    assert refused(untimed)[:2] == ("INVALID_TIMESTAMP", [0])
    assert run(stamped).offsets == range(70, 71)  # slips through: its time was checked instead


# --- paths


@pytest.mark.parametrize(
    ("source", "target", "magic", "target_magic", "rebuilt"),
    [
        ("none", "none", 2, 2, False),
        ("none", "none", 0, 0, False),
        ("none", "none", 1, 2, True),
        ("none", "none", 2, 1, True),
        ("gzip", "gzip", 2, 2, False),
        ("gzip", "gzip", 1, 1, False),
        ("gzip", "gzip", 0, 0, True),
        ("gzip", "gzip", 1, 2, True),
        ("gzip", "lz4", 2, 2, True),
        ("gzip", "none", 2, 2, True),
        ("none", "gzip", 2, 2, True),
    ],
)
def test_when_a_set_is_rebuilt(source: str, target: str, magic: int, target_magic: int, rebuilt: bool) -> None:
    settings = PLAIN._replace(target_compression=target, target_magic=target_magic)
    produced = batch(*records(2, magic), magic=magic, compression=source)
    found = run(produced, settings=settings, source=source)
    assert (found.size_maybe_changed, found.converted_records, found.output_compression) == (
        rebuilt,
        2 if rebuilt else 0,
        target if rebuilt else source,
    )


def test_control_batches_are_never_compressed() -> None:
    settings = PLAIN._replace(target_compression="gzip")
    marker = batch(*records(1), control=True)
    assert run(marker, settings=settings, origin="coordinator").output_compression == "none"
    assert run(marker, settings=settings, origin="coordinator", source="lz4").output_compression == "gzip"


@pytest.mark.parametrize(("magic", "rebuilt"), [(1, True), (2, True)])
def test_wrong_inner_offsets_are_repaired(magic: int, rebuilt: bool) -> None:
    settings = PLAIN._replace(target_compression="gzip", target_magic=magic)
    produced = batch(Record(0, magic=magic), Record(0, magic=magic), magic=magic, compression="gzip")
    found = run(produced, settings=settings, source="gzip")
    assert (found.size_maybe_changed, found.offsets) == (rebuilt, range(70, 72))
    plain = produced._replace(compression="none")
    assert not run(plain, settings=settings._replace(target_compression="none")).size_maybe_changed


# last offset of the earliest batch with the highest timestamp; offsets 70, 71, 72
@pytest.mark.parametrize(
    ("source", "target", "magic", "log_append_time", "timestamps", "expected"),
    [
        ("none", "none", 2, False, (5, 9, 7), (9, 72)),
        ("none", "none", 1, False, (5, 9, 9), (9, 71)),
        ("none", "none", 0, False, (5, 9, 7), (-1, -1)),
        ("none", "none", 2, False, (-1, -1, -1), (-1, -1)),
        ("none", "none", 2, True, (5, 9, 7), (1000, 72)),
        ("none", "none", 1, True, (5, 9, 7), (1000, 70)),
        ("none", "none", 0, True, (5, 9, 7), (-1, -1)),
        ("gzip", "gzip", 2, False, (5, 9, 7), (9, 72)),
        ("gzip", "gzip", 1, False, (5, 9, 7), (9, 72)),
        ("gzip", "gzip", 2, False, (-1, -1, -1), (-1, 72)),  # in place: nobody looks whether there is a time
        ("gzip", "lz4", 2, False, (-1, -1, -1), (-1, -1)),
        ("gzip", "lz4", 1, True, (5, 9, 7), (1000, 72)),
        ("gzip", "none", 1, True, (5, 9, 7), (1000, 70)),
        ("gzip", "none", 1, False, (5, 9, 7), (9, 71)),
        ("gzip", "gzip", 0, True, (-1, -1, -1), (1000, 72)),
    ],
)
def test_time_index_entry(
    source: str,
    target: str,
    magic: int,
    log_append_time: bool,
    timestamps: tuple[int, ...],
    expected: tuple[int, int],
) -> None:
    settings = PLAIN._replace(target_compression=target, target_magic=magic, log_append_time=log_append_time)
    of_format = [Record(index, timestamp, magic=magic) for index, timestamp in enumerate(timestamps)]
    batches = [batch(*of_format, magic=magic, compression=source)]
    if magic < 2 and source == "none":
        batches = [batch(record, magic=magic) for record in of_format]
    found = run(*batches, settings=settings, source=source)
    assert (found.max_timestamp, found.shallow_offset_of_max_timestamp) == expected


def test_without_culprits_the_rest_is_numbered_anew() -> None:
    produced = batch(*(Record(index, 10 + index) for index in range(4)), base_sequence=8, producer_id=1)
    left = without_culprits(produced, (RecordError(0, "INVALID_RECORD"), RecordError(2, "INVALID_RECORD")))
    assert [(record.offset, record.timestamp) for record in left.records] == [(0, 11), (1, 13)]
    assert (left.last_offset_delta, left.declared_count, left.base_sequence) == (1, 2, 8)
    assert run(left).offsets == range(70, 72)


# --- before validation


def header(magic: int = 2, base: int = 0, last: int = 0, size: int = 100, crc_ok: bool = True) -> BatchHeader:
    return BatchHeader(magic, base, last, size, crc_ok)


@pytest.mark.parametrize(
    ("batches", "origin", "error"),
    [
        ([header(base=1, last=1)], "client", "INVALID_RECORD"),
        ([header(base=1, last=1)], "coordinator", None),
        ([header(magic=1, base=1, last=1)], "client", None),
        ([header(size=200)], "client", None),
        ([header(size=201)], "client", "MESSAGE_TOO_LARGE"),
        ([header(size=201)], "coordinator", "MESSAGE_TOO_LARGE"),
        ([header(last=50, base=50, size=201)], "replication", None),
        ([header(size=201, crc_ok=False)], "client", "MESSAGE_TOO_LARGE"),
        ([header(crc_ok=False)], "client", "CORRUPT_MESSAGE"),
        ([header(base=50, last=50, crc_ok=False)], "replication", "CORRUPT_MESSAGE"),
        ([header(size=60)], "client", "CORRUPT_MESSAGE"),
        ([header(size=61)], "client", None),
        ([header(magic=1, size=25)], "client", "CORRUPT_MESSAGE"),
        ([header(magic=1, size=26)], "client", None),
        ([header(last=3), header(last=3)], "client", None),
        ([header(base=50, last=51), header(base=51, last=51)], "replication", "OFFSETS_OUT_OF_ORDER"),
        ([header(base=50, last=51), header(base=49, last=50), header(last=60)], "replication", "OFFSETS_OUT_OF_ORDER"),
        ([header(base=50, last=50), header(base=51, last=51)], "replication", None),
        ([header(base=49, last=50)], "replication", "UNEXPECTED_APPEND_OFFSET"),
        ([header(magic=1, base=49, last=50)], "replication", None),
        ([header(magic=1, base=49, last=49)], "replication", "UNEXPECTED_APPEND_OFFSET"),
        ([], "replication", None),
        ([header(last=1, size=150), header(last=2, size=150)], "client", None),
        ([header(last=1, size=150), header(last=2, size=151)], "client", "RECORD_LIST_TOO_LARGE"),
    ],
)
def test_analysis(batches: list[BatchHeader], origin: str, error: str | None) -> None:
    metrics = ValidationMetrics()

    def run_analysis() -> None:
        analyze(batches, origin, 200, 50, metrics, segment_bytes=300)

    if error is None:
        run_analysis()
    else:
        with pytest.raises(Rejected, match=error):
            run_analysis()
    assert metrics.invalid_checksum == (error == "CORRUPT_MESSAGE")


def test_an_empty_log_takes_offset_0() -> None:
    analyze([header()], "replication", 200, 0, ValidationMetrics())
    with pytest.raises(Rejected, match="OFFSETS_OUT_OF_ORDER"):
        analyze([header(last=-1, base=-1)], "replication", 200, 0, ValidationMetrics())
