"""What kafka-python encodes, we decode to the same; what we call sound, it decodes to the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from auditor.connectors.codec.records import Record, iter_records
from tests import corpora
from tests.segments import TIME, chunks

contents = st.none() | st.binary(max_size=200)
times = st.integers(TIME - 10**12, TIME + 10**12)
headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8)), max_size=4)
records = st.lists(st.tuples(times, contents, contents, headers), min_size=1, max_size=30)
producers = st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1), st.booleans())


def as_stored(found: list[Any]) -> list[tuple[Any, ...]]:
    return [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in found if isinstance(r, Record)]


@given(records, st.sampled_from([0, 1]), st.none() | producers)
def test_batches_of_kafka_python(rows: list[Any], codec: int, producer: tuple[int, int, int, bool] | None) -> None:
    pid, epoch, sequence, transactional = producer or (-1, -1, -1, False)
    builder = DefaultRecordBatchBuilder(2, codec, transactional, pid, epoch, sequence, 1 << 30)
    for index, (time, key, value, pairs) in enumerate(rows):
        builder.append(index, time, key, value, pairs)
    data = bytes(builder.build())
    (chunk,) = chunks(data, records=True)
    assert chunk.summary is not None
    b, s = chunk.batches, chunk.summary
    assert (b.size[0], b.record_count[0], b.last_offset[0]) == (len(data), len(rows), len(rows) - 1)
    assert (b.producer_id[0], b.producer_epoch[0], b.base_sequence[0]) == (pid, epoch, sequence)
    assert bool(b.attributes[0] & 0x10) == transactional
    assert (b.flaws[0], s.flaws[0], s.present[0]) == (0, 0, len(rows))
    assert (s.first_timestamp[0], s.min_timestamp[0]) == (rows[0][0], min(row[0] for row in rows))
    assert s.max_timestamp[0] == max(row[0] for row in rows)
    assert s.null_keys[0] == sum(row[1] is None for row in rows)
    assert as_stored(list(iter_records(data))) == [
        (index, time, key, value, tuple((name.encode(), content) for name, content in pairs))
        for index, (time, key, value, pairs) in enumerate(rows)
    ]


@given(records, st.sampled_from([0, 1]), st.sampled_from([0, 1]))
def test_messages_of_kafka_python(rows: list[Any], magic: int, codec: int) -> None:
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 30)
    for index, (time, key, value, _pairs) in enumerate(rows):
        builder.append(index, time, key, value)
    data = bytes(builder.build())
    (chunk,) = chunks(data, records=True, raw=True)
    assert chunk.summary is not None
    assert chunk.raw is not None
    assert not chunk.errors
    assert not chunk.body_errors
    assert not chunk.batches.flaws.any()
    assert not chunk.summary.flaws.any()
    assert chunk.summary.present.sum() == len(rows)
    found = [r for raw in chunk.raw for r in iter_records(raw)]
    assert as_stored(found) == [
        (index, time if magic else -1, key, value, ()) for index, (time, key, value, _pairs) in enumerate(rows)
    ]


def theirs(data: bytes) -> list[tuple[Any, ...]]:
    """All records that kafka-python finds."""
    found: list[tuple[Any, ...]] = []
    batches = MemoryRecords(data)
    while batches.has_next():
        for r in batches.next_batch():
            pairs = tuple((name.encode(), content) for name, content in r.headers)
            found.append((r.offset, -1 if r.timestamp is None else r.timestamp, r.key, r.value, pairs))
    return found


@pytest.mark.parametrize("corpus", corpora.names())
def test_real_segments_as_kafka_python_reads_them(corpus: str) -> None:
    """Keys, values and header values, which dumps do not show; batches with a codec it has no library for are left."""
    compared = 0
    for path in sorted(corpora.unpack(corpus).glob("broker-1/*/*.log")):
        for chunk in chunks(path.read_bytes(), raw=True):
            assert chunk.raw is not None
            for raw, codec in zip(chunk.raw, chunk.batches.attributes & 7, strict=True):
                found = list(iter_records(raw))
                if codec < 2 and all(isinstance(r, Record) for r in found):
                    assert as_stored(found) == theirs(raw), path
                    compared += len(found)
    assert compared > 50
