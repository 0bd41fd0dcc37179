"""The Spark data sources: the rows that the readers give in this process, for any split size, and nothing raised."""

from __future__ import annotations

import base64
import json
import pickle
import random
import zlib
from pathlib import Path

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from auditor import register
from auditor.connectors.logdir.inventory import discover
from auditor.connectors.schema import TABLES, with_leader_copy
from auditor.connectors.tables.input_splits import plan
from auditor.connectors.tables.rows import How, read_piece
from auditor.connectors.tables.sources import SOURCES
from auditor.spark.spark_tables import local
from tests import corpora
from tests.segments import simple


@pytest.fixture
def load(spark: SparkSession):  # type: ignore[no-untyped-def]
    register(spark)

    def frame(name: str, path: Path, **options: object) -> DataFrame:
        return spark.read.format(name).options(**{k: str(v) for k, v in options.items()}).load(str(path))

    return frame


def big(folder: Path, index: bytes) -> Path:
    """A log directory with one segment of about 3 MB: batches of all codecs, damage inside, a torn end."""
    made = [simple(offset, 3, codec=offset % 5, value=b"payload" * 60) for offset in range(0, 9000, 3)]
    made[1000] = made[1000][:16] + b"\x09" + made[1000][17:]
    data = b"".join(made)[:-5]
    assert len(data) > 1 << 20
    (folder / "orders-0").mkdir(parents=True)
    (folder / "orders-0" / "00000000000000000000.log").write_bytes(data)
    (folder / "orders-0" / "00000000000000000000.index").write_bytes(index)
    return folder


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.format)
def test_rows_are_those_of_the_readers(source, load, spark: SparkSession) -> None:  # type: ignore[no-untyped-def]
    elsewhere = {"share_group_state": "groups-43", "remote_log_metadata": "tiered-43"}
    path = corpora.unpack(elsewhere.get(source.table, "healthy-41"))
    wanted = frozenset({source.table})
    read = [
        with_leader_copy(source.table, batch, {})  # of one broker: each copy counts
        for piece in plan(discover([str(path)]), wanted)
        for _, batch in read_piece(piece, wanted, How())
    ]
    expected = local(spark, pa.Table.from_batches(read, TABLES[source.table].schema()))
    assert_df_equality(load(source.format, path), expected, ignore_metadata=True, ignore_row_order=True)
    assert sum(batch.num_rows for batch in read) or source.table == "decode_errors"


def test_a_tiered_log_is_whole(load) -> None:  # type: ignore[no-untyped-def]
    """The remote segments, which lie outside of the log directory, come before the local ones."""
    rows = load("kafka_log_batches", corpora.unpack("tiered-43")).where("topic = 'plain'")
    assert rows.selectExpr("min(base_offset)", "sum(record_count)").first() == (0, 1260)


def test_split_sizes_change_no_row(load, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    path = big(tmp_path / "broker-1", b"")
    for name in ("kafka_log_batches", "kafka_log_records", "kafka_decode_errors"):
        whole = load(name, path, splitSize=1 << 40).cache()
        for split_size in (1 << 16, 1 << 20):
            split = load(name, path, splitSize=split_size)
            assert split.rdd.getNumPartitions() > 1
            assert_df_equality(split, whole, ignore_row_order=True)
        assert whole.count() == {"kafka_log_batches": 2999, "kafka_log_records": 8997, "kafka_decode_errors": 2}[name]
        whole.unpersist()


def test_a_damaged_index_changes_no_row(load, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    paths = [big(tmp_path / name / "broker-1", index) for name, index in
             {"none": b"", "garbled": random.Random(3).randbytes(4096)}.items()]  # fmt: skip
    sound, damaged = (load("kafka_log_batches", path, splitSize=1 << 16) for path in paths)
    assert_df_equality(damaged, sound, ignore_row_order=True)


def test_bytes_are_all_accounted_for(load) -> None:  # type: ignore[no-untyped-def]
    """Batches and errors add up to the segments' sizes, in the corpus whose segments were altered."""
    path = corpora.unpack("altered-41")
    sizes = sum(file.stat().st_size for file in path.rglob("*.log") if not file.parent.name.endswith("-delete"))
    batches = load("kafka_log_batches", path).groupBy().sum("size").first()[0]
    errors = load("kafka_decode_errors", path).where("file like '%.log'").groupBy().sum("bytes").first()[0]
    assert batches + errors == sizes


def test_payload_only_on_request(load) -> None:  # type: ignore[no-untyped-def]
    path = corpora.unpack("healthy-41")
    assert not {"key", "value"} & set(load("kafka_log_records", path).columns)
    sizes = load("kafka_log_records", path, includePayload="true").selectExpr(
        "sum(length(key))", "sum(length(value))", "sum(if(key_bytes < 0, 0, key_bytes))",
        "sum(if(value_bytes < 0, 0, value_bytes))",
    ).first()  # fmt: skip
    assert tuple(sizes[:2]) == tuple(sizes[2:])


def test_topics_are_chosen_by_glob(load) -> None:  # type: ignore[no-untyped-def]
    frame = load("kafka_log_batches", corpora.unpack("healthy-41"), topics=json.dumps(["shop.o*"]))
    assert {row.topic for row in frame.select("topic").distinct().collect() if not row.topic.startswith("__")} == {
        "shop.orders",
        "shop.out",
    }


@pytest.mark.parametrize("option", [{"splitSize": "10"}, {"maxBatchRatio": "many"}])
def test_a_wrong_option_ends_with_a_hint(option: dict[str, str], load) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(PySparkException, match="give a whole number"):
        load("kafka_log_batches", corpora.unpack("healthy-41"), **option).count()


class Runs:
    """Unpickled, it writes a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> object:
        return Path.write_text, (self.mark, "ran")


def test_no_option_of_a_query_is_unpickled(spark: SparkSession, tmp_path: Path) -> None:
    """Who may send SQL must not run commands on the driver."""
    register(spark)
    mark, path = tmp_path / "mark", corpora.unpack("healthy-41")
    packed = base64.b85encode(zlib.compress(pickle.dumps(Runs(mark)))).decode()
    options = f"OPTIONS (path '{path}', inventory '{packed}')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW hostile USING kafka_log_batches {options}")
    with pytest.raises(PySparkException, match="option inventory is not one that the auditor made"):
        spark.sql("SELECT count(*) FROM hostile").collect()
    assert not mark.exists()
