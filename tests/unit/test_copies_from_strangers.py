"""A copy is untrusted: lists and Parquet files that claim more than there can be are refused, and not unpacked."""

from __future__ import annotations

import gzip
import io
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditor.base.at_rest import parsed
from auditor.base.errors import DecodeError
from auditor.connectors.codec.batches import BatchColumns
from auditor.connectors.logdir import copy_format, copy_view
from auditor.connectors.logdir.copy_format import (
    COLUMNS,
    LIST,
    FolderList,
    Listed,
    RowGroup,
    SegmentRows,
    SegmentWriter,
    TakenSegment,
    columns_of,
    digest_of,
    read_footer,
)
from auditor.connectors.logdir.inventory import discover
from auditor.connectors.tables.input_splits import plan
from auditor.connectors.tables.rows import How, read_piece
from tests import segments
from tests.copies import copy_of, listed, relisted

TAKEN = {"first": 0, "rows": 2, "chunks": [[2, 100, 7]]}
GROUP = [4, 100, 2, "aa"]


def packed(**more: Any) -> bytes:
    data = {
        "version": 2,
        "groups": [GROUP],
        "files": [{"name": "x.log", "size": 100, "taken": TAKEN}],
        "errors": [],
    } | more
    return gzip.compress(json.dumps(data).encode(), mtime=0)  # names of tests must not differ by the second


def file_of(**more: Any) -> bytes:
    return packed(files=[{"name": "x.log", "size": 100} | more])


def test_a_list_comes_back_as_it_was() -> None:
    error = DecodeError("x", 70, 30, "zero_filled", "d")
    taken = TakenSegment(3, 1, ((1, 70, -5),), (error,), (), ((1,) * 17,))
    found = FolderList(
        (Listed("x.log", 100, taken=taken), Listed("y", 9, content=b"\xff\0a", length=9), Listed("ü", 3, unused="y"),
         Listed("q", 1, refused=("vanished", "gone")), Listed("k", 1, kept=(4, 25), length=5)),
        (DecodeError("f", 0, -1, "unreadable", "denied"),),
        groups=(RowGroup(29, 300, 4, "aabb"),),
    )  # fmt: skip
    assert copy_format.decode_list(copy_format.encode_list(found)) == found


@pytest.mark.parametrize(
    "data",
    [
        b"", b"no gzip", gzip.compress(b"[]", mtime=0), gzip.compress(b"[" * 100_000, mtime=0), packed(version=1),
        packed(files={}), packed()[:-12],
        file_of(name="../x"), file_of(name="a/b"), file_of(name=".."), file_of(name=""),
        file_of(size=-1),
        file_of(size=1.5), file_of(size=True), file_of(size=1 << 70), file_of(content="!"),
        file_of(content="AAAA", length=1),
        file_of(kept="../../etc/passwd", length=1), file_of(kept=[1], length=1), file_of(kept=[-1, 5], length=1),
        packed(groups=[[4, 0, 2, "aa"]]), packed(groups=[[4, 1 << 40, 2, "aa"]]),
        packed(groups=[[4, 100, 1 << 40, "aa"]]),
        packed(groups=[[4, 100, 2]]), packed(groups=[[4, 100, 2, 7]]), packed(groups={}),
        file_of(unused=3), file_of(refused=["nothing", "known"]),
        file_of(taken=TAKEN | {"first": -1}), file_of(taken=TAKEN | {"rows": 3}),
        file_of(taken=TAKEN | {"chunks": []}), file_of(taken=TAKEN | {"chunks": [[2, 101, 7]]}),
        file_of(taken=TAKEN | {"foreign": [[1, 2]]}), file_of(taken=TAKEN | {"of_records": ["a"]}),
        file_of(taken=TAKEN, unused="both"), file_of(stat=[1, 2]),
        packed(errors=[["a/b", 0, 0, "unreadable", "", -1, -1]]),
        packed(files=[{"name": "x", "size": 1}, {"name": "x", "size": 2}]),
        # Reasons that are no text, and half characters, which nobody can write.
        packed(errors=[["a", 0, 0, ["unreadable"], "", -1, -1]]), file_of(refused=[{}, "known"]),
        packed(errors=[["\ud800", 0, 0, "unreadable", "", -1, -1]]), file_of(refused=["vanished", "\ud800"]),
        packed(errors=[["a", 0, 0, "unreadable", "\ud800", -1, -1]]), file_of(unused="\ud800"),
        packed(machine="\ud800"), packed(readings=[["\ud800", 1, 2, True]]),
    ],
)  # fmt: skip
def test_what_is_no_list_is_none(data: bytes) -> None:
    assert isinstance(copy_format.decode_list(data), str)


def test_a_list_that_explodes_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_format, "MOST_UNPACKED_BYTES", 1 << 20)
    bomb = gzip.compress(b" " * (1 << 24))
    assert len(bomb) < 1 << 16
    assert "becomes more than" in str(copy_format.decode_list(bomb))


def test_the_values_of_a_list_are_counted_before_they_are_made() -> None:
    """Three bytes become 64: 5 million empty lists in some 15 KB."""
    bomb = gzip.compress(b"[" + b"[]," * 5_000_000 + b"0]")
    assert len(bomb) < 1 << 16
    assert copy_format.decode_list(bomb) == "a list that cannot be unpacked"


@pytest.mark.parametrize("text", ["[1, 2, 3]", '{"a": {"b": 1}}', "NaN", '{"a": -Infinity}', "[" * 100_000, "{", ""])
def test_json_of_others_is_bounded(text: str) -> None:
    for given in (text, text.encode()):
        with pytest.raises(ValueError):  # noqa: PT011  json's own among them
            parsed(given, 1)
    assert parsed("[0, 1]", 2) == parsed(b"[0, 1]", 2) == [0, 1]


def rows(count: int, size: int = 100) -> np.ndarray:
    found = np.zeros((count, len(BatchColumns._fields)), np.int64)
    found[:, 0] = np.arange(count) * size
    found[:, 1], found[:, 2] = size, 2
    found[:, 8] = np.random.default_rng(1).integers(0, 1 << 32, count)
    return found


def written(found: np.ndarray) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        writer = SegmentWriter(Path(folder, LIST), stored=False)
        writer.add(found)
        writer.close(FolderList(()))
        return Path(folder, LIST).read_bytes()


def reader_of(data: bytes) -> SegmentRows:
    read = lambda at, count: data[at : at + count]  # noqa: E731
    footer, packed_list = read_footer(read, len(data))
    found = copy_format.decode_list(packed_list)
    assert isinstance(found, FolderList)
    return SegmentRows(footer, found.groups, read)


def test_rows_come_back_as_they_were() -> None:
    found = rows(300_000)
    reader = reader_of(written(found))
    for first, behind in ((0, 10), (0, 300_000), (131_000, 262_200), (299_999, 300_000)):
        assert np.array_equal(reader.rows(first, behind)[0], found[first:behind])
    with pytest.raises(OSError, match="fewer batches"):
        reader.rows(299_999, 300_001)


def table(schema: pa.Schema, count: int, **given: Any) -> pa.Table:
    columns = [given.get(f.name, pa.array(np.zeros(count), f.type)) for f in schema]
    return pa.table(columns, schema=schema)


def alone(data: bytes) -> SegmentRows:
    """What a stranger wrote as one row group."""
    footer = copy_format.footer_in(data)
    group = data[4 : -len(footer) - 8]
    rows = pq.read_metadata(io.BytesIO(data)).num_rows
    groups = [RowGroup(4, len(group), rows, digest_of(group))]
    return SegmentRows(footer, groups, lambda at, count: data[at : at + count])


def parquet(found: pa.Table, **how: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(found, out, **({"row_group_size": 1 << 26} | how))
    return out.getvalue()


def test_few_bytes_that_are_very_many_rows_are_refused() -> None:
    data = parquet(table(COLUMNS, 2_000_000), compression="zstd")
    assert len(data) < 200_000
    with pytest.raises(OSError, match="more than there can be"):
        alone(data).rows(0, 1)


def test_one_value_that_is_repeated_without_end_is_refused() -> None:
    many = pa.DictionaryArray.from_arrays(pa.array(np.zeros(100_000, np.int32)), pa.array([b"x" * 1_000]))
    data = parquet(
        table(columns_of(stored=True, records=False), 100_000, stored=many.cast(pa.binary())),
        compression="zstd",
        use_dictionary=True,
    )
    assert len(data) < 50_000
    with pytest.raises(OSError, match="more than there can be"):
        alone(data).rows(0, 1, stored=True)


@pytest.mark.parametrize(
    "data", [b"", b"PAR1", b"PAR1PAR1PAR1", b"PAR1" + b"\xff" * 20 + b"PAR1", parquet(pa.table({"a": [1]}))]
)
def test_what_is_no_parquet_file_of_a_copy_is_none(data: bytes) -> None:
    with pytest.raises(OSError, match="of a copy"):
        read_footer(lambda at, count: data[at : at + count], len(data))
    with pytest.raises(OSError, match="of a copy"):
        SegmentRows(copy_format.footer_in(data), [], lambda at, count: data[at : at + count])


def decoded_rows(path: Path) -> dict[str, list[Any]]:
    wanted, found = frozenset({"batches", "decode_errors"}), {"batches": [], "decode_errors": []}
    for piece in plan(discover([str(path)]), wanted):
        for name, some in read_piece(piece, wanted, How()):
            found[name] += some.to_pylist()
    return found


@pytest.mark.parametrize("change", ["another", "digest", "rows", "bit", "place"])
def test_batches_that_are_not_there_are_an_error_of_their_segment(tmp_path: Path, change: str) -> None:
    (tmp_path / "in" / "b" / "t-0").mkdir(parents=True)
    (tmp_path / "in" / "b" / "t-0" / f"{0:020}.log").write_bytes(b"".join(segments.simple(3 * n) for n in range(5)))
    copy_of(tmp_path / "in", tmp_path / "copy")
    assert len(decoded_rows(tmp_path / "copy")["batches"]) == 5
    folder = tmp_path / "copy" / "b" / "t-0"
    said = listed(folder)
    if change == "digest":
        said["groups"][0][3] = "00" * 6
        relisted(folder, said)
    elif change == "bit":  # which shows by the digest alone
        data = bytearray((folder / LIST).read_bytes())
        data[10] ^= 1
        (folder / LIST).write_bytes(data)
    elif change == "place":
        said["groups"][0][0] += 1
        relisted(folder, said)
    else:  # batches beyond the end of the segment, or too few
        (folder / LIST).write_bytes(written(rows(4) if change == "rows" else rows(5, 1_000)))
        relisted(folder, said | {"groups": listed(folder)["groups"]})
    copy_view.rows_of.cache_clear()
    copy_view._small.clear()  # who reads is another process
    (error,) = decoded_rows(tmp_path / "copy")["decode_errors"]
    assert (error["reason"], error["file"]) == ("unreadable", f"t-0/{0:020}.log")


@pytest.mark.parametrize("change", ["cut", "footer", "empty", "key"])
def test_a_file_whose_end_is_damaged_is_an_error_of_its_folder(tmp_path: Path, change: str) -> None:
    (tmp_path / "in" / "b" / "t-0").mkdir(parents=True)
    (tmp_path / "in" / "b" / "t-0" / f"{0:020}.log").write_bytes(segments.simple(0))
    copy_of(tmp_path / "in", tmp_path / "copy")
    file = tmp_path / "copy" / "b" / "t-0" / LIST
    data = bytearray(file.read_bytes())
    if change == "cut":
        del data[-100:]
    elif change == "empty":
        data.clear()
    else:
        data[-30 if change == "footer" else -len(copy_format.footer_in(bytes(data))) - 10] ^= 1
    file.write_bytes(data)
    (error,) = discover([str(tmp_path / "copy")]).errors
    assert error.error.file.endswith(LIST)
