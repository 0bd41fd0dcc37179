"""Pieces of segments and the rows they give: the same whatever the pieces and whatever the index says."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from auditor.base.errors import LAST_MS
from auditor.commands.decode import DecodeOptions, decode, locate
from auditor.commands.rowtext import json_lines
from auditor.connectors import schema
from auditor.connectors.logdir.inventory import discover
from auditor.connectors.schema import TIME, for_spark, from_columns, from_rows, texts, times
from auditor.connectors.tables.input_splits import MAX_PIECES, FilePiece, plan, size, spread
from auditor.connectors.tables.rows import How, read_piece, sequence_after
from tests import corpora
from tests.conftest import NIGHTLY
from tests.segments import batch, message, record, simple, wrapper

SOURCES = ("batches", "records", "producer_snapshots", "aborted_transactions", "index_entries", "checkpoints",
           "transaction_log", "offset_commits", "group_metadata", "share_group_state",
           "remote_log_metadata", "metadata_history", "decode_errors")  # fmt: skip


HEADERS = How()


def rows(path: Path, table: str, split_size: int = 1 << 40, how: How = HEADERS) -> list[dict[str, object]]:
    pieces = plan(discover([str(path)]), frozenset({table}), split_size)
    batches = [found for piece in pieces for _, found in read_piece(piece, frozenset({table}), how)]
    return [row for found in batches for row in found.to_pylist()]


def segment(folder: Path, data: bytes, index: bytes = b"") -> Path:
    """A log directory of one partition with this segment."""
    (folder / "orders-0").mkdir(parents=True)
    (folder / "orders-0" / "00000000000000000000.log").write_bytes(data)
    (folder / "orders-0" / "00000000000000000000.index").write_bytes(index)
    return folder


@pytest.mark.parametrize("corpus", ["healthy-28", "altered-41", "legacy-0102", "healthy-41"])
@pytest.mark.parametrize("table", ["batches", "records", "transaction_log", "offset_commits", "decode_errors"])
def test_no_split_changes_a_row(corpus: str, table: str) -> None:
    whole = rows(corpora.unpack(corpus), table)
    for split_size in (1 << 10, 10_000, 1 << 16):
        assert rows(corpora.unpack(corpus), table, split_size) == whole
    assert whole or table in ("transaction_log", "offset_commits", "decode_errors")


def test_damaged_segments_are_the_same_in_pieces(tmp_path: Path) -> None:
    """Torn, zeroed and garbled stretches, batches inside of records, wrappers, and a cut at every place."""
    inside = simple(900, 5) + simple(905, 5)
    made = b"".join([
        simple(0, 3), batch(record(0, b"k", inside), 1, base_offset=3), simple(4, 3, codec=4),
        wrapper(9, [message(0, b"a", inside), message(1, b"b", b"v")]), message(10, None, inside, magic=0),
        simple(11, 3)[:16] + b"\x07" + simple(11, 3)[17:], simple(14, 2), bytes(30), simple(16, 2),
    ])  # fmt: skip
    path = segment(tmp_path / "broker-1", made)
    wholes = {table: rows(path, table) for table in ("batches", "records", "decode_errors")}
    assert [len(wholes[table]) for table in ("batches", "decode_errors")] == [8, 2]
    assert sorted(row["reason"] for row in wholes["decode_errors"]) == ["bad_size", "damaged_field"]
    (file,) = [f for f in discover([str(path)]).log_dirs[0].replicas[0].files() if f.kind == "log"]
    place = discover([str(path)]).log_dirs[0].place
    key = (None, 1, "broker-1", "orders", 0)
    wanted = frozenset(wholes)
    for cut in range(1, len(made), 5 if NIGHTLY else 19):
        halves = [FilePiece(place, key, file, 0, cut), FilePiece(place, key, file, cut, None)]
        found = [item for half in halves for item in read_piece(half, wanted, HEADERS)]
        for table, whole in wholes.items():
            decoded = [row for name, b in found if name == table for row in b.to_pylist()]
            if table == "decode_errors":  # of a chunk, those of batches come before those of bytes that are none
                decoded, whole = (sorted(rows_, key=lambda row: row["position"]) for rows_ in (decoded, whole))
            assert decoded == whole


def test_a_damaged_index_changes_nothing_in_what_is_decoded(tmp_path: Path) -> None:
    made = b"".join(simple(offset, 3, codec=offset % 5) for offset in range(0, 3000, 3))
    sound = rows(segment(tmp_path / "sound" / "broker-1", made), "batches", 1 << 12)
    assert len(sound) == 1000
    garbled = random.Random(7).randbytes(800)
    for name, index in {"garbled": garbled, "cut": garbled[:13], "zeros": bytes(80)}.items():
        path = segment(tmp_path / name / "broker-1", made, index)
        assert rows(path, "batches", 1 << 12) == sound
        assert rows(path, "records", 1 << 12) == rows(path, "records")


def test_an_absent_file_is_reported_once(tmp_path: Path) -> None:
    path = segment(tmp_path / "broker-1", b"".join(simple(offset) for offset in range(0, 300, 3)))
    pieces = plan(discover([str(path)]), frozenset({"decode_errors"}), 1 << 10)
    assert len(pieces) > MAX_PIECES
    (path / "orders-0" / "00000000000000000000.log").unlink()
    found = [r for p in pieces for _, b in read_piece(p, frozenset({"decode_errors"}), HEADERS) for r in b.to_pylist()]
    assert [(row["file"], row["reason"]) for row in found] == [("orders-0/00000000000000000000.log", "vanished")]


@pytest.mark.parametrize("table", SOURCES)
def test_columns_are_those_of_the_schema(table: str) -> None:
    pieces = plan(discover([str(corpora.unpack("altered-41"))]), frozenset({table}))
    for piece in pieces:
        for name, found in read_piece(piece, frozenset({table}), HEADERS):
            assert name == table
            assert found.schema == schema.DECODED[table]


def test_every_error_of_the_inventory_is_a_row_once(tmp_path: Path) -> None:
    """Of files that only the inventory reads, and of files that are read again."""
    path = segment(tmp_path / "broker-1", simple(0))
    (path / "meta.properties").write_bytes(b"version=9\ncluster.id=c\nnode.id=1\n")
    (path / "orders-0" / "partition.metadata").write_bytes(b"version: 0\n")
    (path / "recovery-point-offset-checkpoint").write_bytes(b"0\n1\norders x 3\n")
    found = [(row["file"], row["reason"]) for row in rows(path, "decode_errors")]
    assert sorted(found) == [
        ("meta.properties", "bad_version"),
        ("orders-0/partition.metadata", "bad_value"),
        ("recovery-point-offset-checkpoint", "bad_line"),
    ]


def test_bodies_that_cannot_be_opened_are_errors_when_looked_into(tmp_path: Path) -> None:
    torn = batch(b"\x28\xb5\x2f\xfd no frame", 1, attributes=4)
    path = segment(tmp_path / "broker-1", torn + simple(1))
    assert rows(path, "decode_errors") == []
    (row,) = rows(path, "decode_errors", how=How(deep=True))
    assert (row["position"], row["bytes"], row["reason"]) == (0, len(torn), "bad_compression")
    assert [row["offset"] for row in rows(path, "records")] == [1, 2, 3]


def test_text_dumps_give_the_same_batches_as_their_segments() -> None:
    """Of all fields that a dump shows; base_timestamp it does not."""
    texts_of = corpora.ROOT / "text-dumps" / "texts" / "healthy-41"
    names = set(schema.BATCHES.names) - {"cluster_id", "broker_id", "log_dir", "base_timestamp"}
    stored = {(r["file"], r["position"]): r for r in rows(corpora.unpack("healthy-41"), "batches")}
    shown = [r for r in rows(texts_of, "batches") if (r["file"], r["position"]) in stored]
    for row in shown:
        binary = stored[row["file"], row["position"]]
        assert {name: row[name] for name in names} == {name: binary[name] for name in names}
        assert row["base_timestamp"] is None or row["delete_horizon"] is not None
    assert len(shown) > 300


@pytest.mark.parametrize(
    "name",
    ["shop.orders-0/*0.log", "__transaction_state-0/*.log", "__consumer_offsets-0/*.log", "shop.orders-0/*.snapshot",
     "shop.orders-0/*0.index", "shop.orders-0/*0.timeindex", "shop.orders-0/*0.txnindex", "shop.orders-0/leader-*",
     "recovery-point-*", "__cluster_metadata-0/*.log", "__cluster_metadata-0/*.checkpoint", "meta.properties",
     "__cluster_metadata-0/quorum-state", "shop.orders-0/partition.metadata"],
)  # fmt: skip
def test_no_bytes_raise(name: str, tmp_path: Path) -> None:
    """Whatever a bit, a cut or a stretch of noise makes of a file: rows and errors, in the columns of their tables."""
    source = min((corpora.unpack("healthy-41") / "broker-1").glob(name))
    path = tmp_path / source.relative_to(corpora.unpack("healthy-41") / "broker-1")
    path.parent.mkdir(exist_ok=True)
    data, luck, errors = source.read_bytes(), random.Random(11), 0
    for _ in range(60):
        at, count = luck.randrange(len(data)), luck.randrange(1, 40)
        noise = luck.choice([b"", luck.randbytes(count), bytes(count), bytes([data[at] ^ 1 << luck.randrange(8)])])
        path.write_bytes(data[:at] + noise + (b"" if luck.random() < 0.2 else data[at + len(noise) :]))
        for records in (False, True):
            options = DecodeOptions((str(path),), records=records, payload=records)
            for piece in locate(options):
                for _own, table, found in decode(piece, options):
                    assert list(json_lines(found))
                    errors += found.num_rows if table == "decode_errors" else 0
    assert errors or source.suffix in (".log", ".txnindex", ".properties", ".index", ".timeindex")


def test_pieces_are_spread_evenly() -> None:
    pieces = plan(discover([str(corpora.unpack("healthy-28"))]), frozenset({"batches"}), 1 << 14)
    lists = spread(pieces, 4)
    assert sorted(map(id, (p for some in lists for p in some))) == sorted(map(id, pieces))
    loads = [sum(map(size, some)) for some in lists]
    assert max(loads) - min(loads) <= max(map(size, pieces))


def test_sequences_wrap_at_their_end() -> None:
    """DefaultRecordBatch.incrementSequence: after 2147483647 comes 0."""
    base = np.array([0, 2**31 - 2, 2**31 - 1, -1], np.int32)
    assert sequence_after(base, np.array([4, 1, 1, 9])).tolist() == [4, 2**31 - 1, 0, -1]


def test_times_without_a_date_are_null() -> None:
    found = times(np.array([0, -1, -7, LAST_MS, LAST_MS + 1, 2**63 - 1]))
    assert found.to_pylist() == [0, None, None, LAST_MS, None, None]
    by_row = from_rows(pa.schema([("t", TIME)]), (), [(0,), (-1,), (LAST_MS + 1,), (None,)])
    assert by_row.column(0).null_count == 3
    spark = for_spark(
        from_columns(schema.INDEX_ENTRIES, (None, None, "d", None, None), 1, {"timestamp": np.array([5])})
    )
    assert spark.column("timestamp").type == pa.timestamp("us", tz="UTC")
    assert spark.column("timestamp").cast(pa.int64()).to_pylist() == [5000]


def test_texts_and_nulls() -> None:
    assert texts(["", None, "ä€𝄞", "x"]).to_pylist() == ["", None, "ä€𝄞", "x"]
    assert texts([]).to_pylist() == []
