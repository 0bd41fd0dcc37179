"""The file of a copied directory: its row groups are moved as they are, and small files lie between them."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from auditor.connectors.codec.batches import BatchColumns
from auditor.connectors.codec.records import empty_summary
from auditor.connectors.logdir import copy_format, copy_view
from auditor.connectors.logdir.copy_format import (
    GROUP_ROWS,
    LIST,
    TAIL,
    FolderList,
    Listed,
    Records,
    SegmentRows,
    SegmentWriter,
    decode_list,
    read_footer,
)
from auditor.connectors.stores.storage import StorageLocation
from auditor.copying.run import copy_logs
from tests.copies import listed
from tests.growing import batches, broker, rows_of

COUNT = 3 * GROUP_ROWS


def rows(count: int) -> np.ndarray:
    found = np.zeros((count, len(BatchColumns._fields)), np.int64)
    found[:, 0] = 100 * np.arange(count)
    found[:, 1], found[:, 2] = 100, 2
    found[:, 8] = np.random.default_rng(1).integers(0, 1 << 32, count)
    return found


def written(path: Path, write: Callable[[SegmentWriter], object], *files: Listed, records: bool = False) -> SegmentRows:
    writer = SegmentWriter(path, stored=False, records=records)
    write(writer)
    content = writer.close(FolderList(files))
    data = path.read_bytes()
    read = lambda begin, count: data[begin : begin + count]  # noqa: E731
    footer, packed = read_footer(read, len(data))
    assert decode_list(packed) == content
    return SegmentRows(footer, content.groups, read)


def test_large_row_groups_are_moved_as_they_are(tmp_path: Path) -> None:
    """Half of the first one is gone and a few rows come behind: what lies between is the same bytes, once."""
    found = rows(COUNT)
    before = written(tmp_path / "before", lambda writer: [writer.add(part) for part in np.array_split(found, 30)])
    first = before.groups[0].rows // 2
    wanted = np.concatenate([found[:7], found[first:], found[:5]])

    def later(writer: SegmentWriter) -> None:
        writer.add(found[:7])
        writer.keep(b"x" * 1_000)
        writer.carry(before, first, COUNT)
        writer.add(found[:5])

    after = written(tmp_path / "after", later)
    assert np.array_equal(after.rows(0, len(wanted))[0], wanted)
    moved = {group.digest for group in before.groups[1:-1]}
    assert len(moved) >= 1
    assert moved <= {group.digest for group in after.groups}
    assert len(after.groups) <= len(before.groups) + 1
    table = pq.read_table(tmp_path / "after")  # as any reader of Parquet has it
    assert table.column("position").to_pylist() == wanted[:, 0].tolist()
    assert table.column("crc").to_numpy().astype(np.int64).tolist() == wanted[:, 8].tolist()


def test_rows_that_are_moved_again_and_again_stay_in_few_row_groups(tmp_path: Path) -> None:
    """Each time a part in the middle is written anew, as when its checksums are verified, and the log grows."""
    dice, found = random.Random(56), rows(COUNT)
    reader, have = written(tmp_path / "0", lambda writer: writer.add(found)), found
    for number in range(1, 20):
        low = dice.randrange(len(have) - 3_000)

        def later(writer: SegmentWriter, reader: SegmentRows = reader, low: int = low, end: int = len(have)) -> None:
            writer.carry(reader, 0, low)
            writer.add(reader.rows(low, low + 1_000)[0])
            writer.carry(reader, low + 1_000, end)
            writer.add(found[:100])

        reader, have = written(tmp_path / str(number), later), np.concatenate([have, found[:100]])
    assert np.array_equal(reader.rows(0, len(have))[0], have)
    assert len(reader.groups) <= 2 * (COUNT // (GROUP_ROWS // 2)) + 1  # a small one at most beside each large one


def test_segments_with_and_without_summaries_of_records_share_a_file(tmp_path: Path) -> None:
    found, summary = rows(10), empty_summary(4)._replace(present=np.arange(1, 5, dtype=np.int32))
    before = written(tmp_path / "before", lambda writer: writer.add(found[:6]))

    def later(writer: SegmentWriter) -> None:
        writer.carry(before, 0, 6)
        writer.add(found[6:], None, Records(summary, [b"a", None, b"c", None]))

    after = written(tmp_path / "after", later, records=True)
    assert np.array_equal(after.rows(0, 10)[0], found)
    assert after.summaries(0, 10).present.tolist() == [0] * 6 + [1, 2, 3, 4]
    assert after.details(5, 10) == [None, b"a", None, b"c", None]


@pytest.mark.parametrize("count", [1, 3_000])
def test_a_list_of_any_length_is_found(tmp_path: Path, count: int) -> None:
    dice = random.Random(3)
    files = [Listed(f"{k}.snapshot", 60, content=dice.randbytes(60), length=60) for k in range(count)]
    reader = written(tmp_path / LIST, lambda writer: writer.add(rows(5)), *files)
    assert ((tmp_path / LIST).stat().st_size > TAIL) is (count > 1)
    assert len(reader.rows(0, 5)[0]) == 5
    found = copy_view.list_of(StorageLocation("", str(tmp_path)))
    assert isinstance(found, FolderList)
    assert found.files == tuple(files)


def test_structs_of_thrift_come_back_as_they_were(tmp_path: Path) -> None:
    written(tmp_path / "x", lambda writer: writer.add(rows(300)))
    footer = copy_format.footer_in((tmp_path / "x").read_bytes())
    assert copy_format.packed_struct(copy_format.parsed_struct(footer)) == footer


def test_contents_beside_the_list_are_there_when_the_list_alone_changed(tmp_path: Path) -> None:
    """Of a log directory with checkpoints too large for the list, which is marked before each copy."""
    source, copy = broker(tmp_path / "in" / "broker-1"), tmp_path / "copy"
    dice = random.Random(1)
    offsets = [f"topic-{dice.getrandbits(64):x} {k} {dice.getrandbits(40)}" for k in range(2_000)]
    (source / "recovery-point-offset-checkpoint").write_text("\n".join(["0", "2000", *offsets, ""]))
    (source / "t-0" / f"{15:020}.log").write_bytes(batches(5, 2))
    for _ in range(3):
        copy_logs([str(source.parent)], copy)
        assert rows_of(copy)["checkpoints"] == rows_of(source.parent)["checkpoints"]
    (kept,) = [file["kept"] for file in listed(copy / "broker-1")["files"] if "kept" in file]
    assert kept[1] > 16 << 10
