"""Each limit that SECURITY.md states, reached by one too many: an error with its reason, and the run goes on."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from auditor.base.errors import MIB, DecodeError, Limits
from auditor.connectors.codec.records import iter_records, records_of
from auditor.connectors.logdir.internal_rows import InternalRows
from auditor.connectors.stores import storage
from tests.segments import accounted, batch, chunks, reasons, record, simple


def errors_of(data: bytes, limits: Limits) -> list[DecodeError]:
    return [row for row in iter_records(data, file="f", limits=limits) if isinstance(row, DecodeError)]


def test_a_batch_as_stored() -> None:
    big = simple(3, 1, value=bytes(MIB))
    found = chunks(simple(0) + big + simple(4), limits=Limits(max_batch_bytes=MIB))
    assert reasons(found) == [(len(simple(0)), len(big), "batch_limit")]
    assert accounted(found) == len(simple(0) + big + simple(4))
    assert reasons(chunks(big, limits=Limits(max_batch_bytes=len(big)))) == []


@pytest.mark.parametrize(
    "limits",
    [Limits(max_batch_bytes=MIB), Limits(max_batch_ratio=100, ratio_floor_bytes=1)],
    ids=["decompressed bytes", "ratio"],
)
def test_a_batch_as_decompressed(limits: Limits) -> None:
    body = gzip.compress(record(0, b"k", bytes(2 * MIB)))
    bomb = batch(body, 1, attributes=1)
    found = chunks(bomb + simple(1), records=True, limits=limits)
    assert [(e.position, e.length, e.reason) for c in found for e in c.body_errors] == [(0, len(bomb), "bomb_limit")]
    assert [int(offset) for c in found for offset in c.batches.base_offset] == [0, 1]
    assert not [e for c in chunks(bomb, records=True, limits=Limits()) for e in c.body_errors]


def test_records_of_a_batch() -> None:
    data = simple(0, 5, codec=1)
    (error,) = errors_of(data, Limits(max_records=4))
    assert (error.position, error.length, error.reason) == (0, len(data), "limit")
    assert error.detail == "5 records, limit 4"
    assert errors_of(data, Limits(max_records=5)) == []


def test_a_batch_of_too_many_records_hides_no_other() -> None:
    (chunk,) = chunks(simple(0, 2) + simple(2, 5) + simple(7, 2), raw=True)
    found = [
        (row, "error" if isinstance(item, DecodeError) else item.offset)
        for row, item in records_of(chunk.raw or [], chunk.batches, file="f", limits=Limits(max_records=4))
    ]
    assert found == [(0, 0), (0, 1), (1, "error"), (2, 7), (2, 8)]


def test_records_in_an_internal_topic_over_the_limit_make_the_run_incomplete() -> None:
    (chunk,) = chunks(simple(0, 5), raw=True)
    found = InternalRows("__consumer_offsets", Limits(max_records=4)).add("f", chunk)
    assert [error.reason for error in found] == ["limit"]


def test_headers_of_a_record() -> None:
    data = batch(record(0, b"k", b"v", headers=[(b"h", b"x")] * 3), 1)
    assert [error.reason for error in errors_of(data, Limits(max_headers=2))] == ["limit"]
    assert errors_of(data, Limits(max_headers=3)) == []


def test_a_small_file(tmp_path: Path) -> None:
    (tmp_path / "x.index").write_bytes(bytes(17))
    where = storage.place(str(tmp_path))
    error = storage.read_file(where, "x.index", limit=16)
    assert isinstance(error, DecodeError)
    assert error.reason == "limit"
    assert storage.read_file(where, "x.index", limit=17) == bytes(17)


@pytest.mark.parametrize(
    ("limits", "listed"),
    [(Limits(max_files=3), 3), (Limits(max_path_length=4), 4), (Limits(max_files=5, max_path_length=5), 5)],
)
def test_files_and_their_names(limits: Limits, listed: int, tmp_path: Path) -> None:
    for name in ("a", "b", "c", "d", "eeeee"):
        (tmp_path / name).touch()
    found = storage.listing(storage.place(str(tmp_path)), limits=limits)
    assert len(found.files) == listed
    assert [error.reason for error in found.errors] == ["limit"] * (listed < 5)


def test_the_limits_leave_real_batches_alone() -> None:
    """Brokers take 1 MiB by default; hardly anyone allows 100 MiB."""
    limits = Limits()
    assert limits.max_batch_bytes >= 100 * MIB
    assert limits.max_records * 7 > 16 * MIB  # a record has 7 bytes at least
    assert np.iinfo(np.int32).max > limits.max_records
