"""What the data sources would open, by their options and by a query's conditions; no session is started."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from auditor.connectors.tables.rows import FilePiece
from auditor.connectors.tables.source_options import where
from auditor.connectors.tables.sources import PruningReader, TableReader
from tests import corpora

TOPIC, PARTITION, BROKER, OTHER = ("topic",), ("partition",), ("broker_id",), ("magic",)
ROW = pa.table(
    {"topic": ["shop.kv"], "partition": pa.array([3], pa.int32()), "broker_id": pa.array([None], pa.int32())}
)


@pytest.mark.parametrize(
    ("condition", "known"),
    [
        (EqualTo(PARTITION, 3), True),
        (EqualTo(PARTITION, 4), False),
        (EqualTo(PARTITION, "3"), None),
        (EqualNullSafe(TOPIC, "shop.kv"), True),
        (EqualTo(TOPIC, None), False),
        (EqualTo(OTHER, 2), None),
        (EqualTo(("topic", "part"), "shop.kv"), None),  # of a structure
        (In(PARTITION, (1, 3)), True),
        (In(PARTITION, (1, 2)), False),
        (In(PARTITION, (1, None)), False),
        (EqualTo(BROKER, 1), False),
        (Not(EqualTo(BROKER, 1)), False),
        (EqualNullSafe(BROKER, 1), False),
        (Not(EqualNullSafe(BROKER, 1)), True),
        (EqualNullSafe(BROKER, None), True),
        (GreaterThan(PARTITION, 3), False),
        (GreaterThanOrEqual(PARTITION, 3), True),
        (LessThan(PARTITION, 3), False),
        (LessThanOrEqual(PARTITION, 3), True),
        (GreaterThan(PARTITION, "x"), None),  # nobody knows how these compare
        (IsNull(TOPIC), False),
        (IsNotNull(TOPIC), True),
        (IsNull(OTHER), None),
        (StringStartsWith(TOPIC, "shop"), True),
        (StringEndsWith(TOPIC, "shop"), False),
        (StringContains(TOPIC, "op.k"), True),
        (StringContains(PARTITION, "3"), None),
        (Not(EqualTo(PARTITION, 3)), False),
        (Not(In(PARTITION, (1, 3, None))), False),
        (Not(EqualTo(OTHER, 2)), None),
    ],
    ids=repr,
)
def test_a_condition_holds_or_does_not_or_nobody_knows(condition: Filter, known: bool | None) -> None:
    """As in SQL, where a comparison with null does not hold."""
    asked = where([condition], ROW.schema)
    assert (asked is None) if known is None else ROW.filter(asked).num_rows == known


def files(reader: TableReader) -> set[str]:
    """What a reader would open, by its partitions."""
    lists = [pickle.loads(partition.value)[0] for partition in reader.partitions()]
    return {f"{piece.key[2]}/{piece.file.name}" for some in lists for piece in some if isinstance(piece, FilePiece)}


def test_options_say_what_is_read() -> None:
    options = {"path": str(corpora.unpack("healthy-41"))}
    whole = files(TableReader("batches", options))
    logs = {path for path in whole if "/__" not in path}
    assert files(TableReader("batches", options | {"partitions": '["shop.orders-0", 1]'})) - (whole - logs) == {
        path for path in logs if "/shop.orders-0/" in path or path.split("/")[1].endswith("-1")
    }
    assert files(TableReader("batches", options | {"brokers": "[1]"})) == whole
    assert files(TableReader("producer_snapshots", options | {"topics": '["shop.kv"]', "since": "700"})) < files(
        TableReader("producer_snapshots", options | {"topics": '["shop.kv"]'})
    )
    between = files(TableReader("batches", options | {"fromOffset": "500", "toOffset": "600", "topics": "shop.kv"}))
    bases = sorted(int(Path(path).stem) for path in logs if "/shop.kv-0/" in path)
    assert {int(Path(path).stem) for path in between if "/shop.kv-0/" in path} == {
        base for base, behind in zip(bases, [*bases[1:], 10**9], strict=True) if base <= 600 and behind > 500
    }


def test_conditions_of_the_reader() -> None:
    options = {"path": str(corpora.unpack("healthy-41"))}
    whole = files(TableReader("batches", options))
    reader = PruningReader("batches", options)
    asked = [EqualTo(("partition",), 1), Not(In(("topic",), ("shop.kv",))), EqualTo(("magic",), 2)]
    assert reader.pushFilters(asked) == asked  # Spark asks all of them again
    assert files(reader) == {path for path in whole if path.split("/")[1].endswith("-1") and "/shop.kv-1/" not in path}
