"""What the data sources would open, by their options and by a query's conditions; no session is started."""

from __future__ import annotations

import functools
import pickle
import random
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
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
from pyspark.sql.types import BooleanType, StringType, StructField, StructType

from auditor.base.errors import AuditInputError
from auditor.connectors.codec.segment import read_segment
from auditor.connectors.schema import from_columns
from auditor.connectors.tables import rows
from auditor.connectors.tables.rows import FilePiece
from auditor.connectors.tables.source_options import where
from auditor.connectors.tables.sources import PruningReader, TableReader, TableSource
from tests import corpora
from tests.segments import TIME, simple

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


# Rows: a reader gives every row that fulfils the conditions, and what it does not open has none.


def holds(condition: Filter, row: dict[str, object]) -> bool | None:
    """As SQL has it: None for unknown."""
    if isinstance(condition, Not):
        inside = holds(condition.child, row)
        return None if inside is None else not inside
    value, other = row[condition.attribute[0]], getattr(condition, "value", None)
    if isinstance(condition, IsNull | IsNotNull):
        return (value is None) == isinstance(condition, IsNull)
    if isinstance(condition, EqualNullSafe):
        return value == other
    if value is None:
        return None
    if isinstance(condition, In):
        return value in other
    return {EqualTo: value == other, GreaterThan: value > other, GreaterThanOrEqual: value >= other,
            LessThan: value < other, LessThanOrEqual: value <= other}[type(condition)]  # fmt: skip


def log_of(folder: Path, damaged: bool) -> Path:
    """A log of four segments: two of large batches, which headers alone may exclude, and two of small ones.

    Damaged: an offset of the last segment in a batch of the first, and random bytes in one of the second.
    """
    target = folder / "broker-1" / "orders-0"
    target.mkdir(parents=True)
    for number in range(4):
        value = random.Random(number).randbytes(9000 if number < 2 else 20)
        times = [TIME + 1000 * (100 * number + k) for k in range(33)]
        made = [
            simple(100 * number + 3 * k, 3, value=value, producer_id=k % 3, epoch=0, sequence=k, base_time=time,
                   max_time=time + 2)
            for k, time in enumerate(times)
        ]  # fmt: skip
        if damaged and number == 0:
            made[7] = (399).to_bytes(8, "big") + made[7][8:]
        if damaged and number == 1:
            made[9] = made[9][:30] + b"\xff" * 40 + made[9][70:]
        (target / f"{100 * number:020d}.log").write_bytes(b"".join(made))
    return target.parent


def read(table: str, options: dict[str, str], conditions: list[Filter]) -> list[dict[str, object]]:
    reader = PruningReader(table, options)
    reader.pushFilters(conditions)
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    return [row for batch in batches for row in batch.to_pylist()]


KINDS = [EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual, In]
NUMBERS = {"base_offset": (0, 420), "producer_id": (-1, 4), "partition": (0, 2), "position": (0, 400_000)}
TIMES = {"batches": "max_timestamp", "records": "timestamp"}
MORE = {"batches": "last_offset", "records": "offset"}


@st.composite
def conditions(draw: st.DrawFn, table: str) -> Filter:
    name = draw(st.sampled_from([*NUMBERS, TIMES[table], MORE[table]]))
    if name in TIMES.values():
        value = st.integers(-10, 440_000).map(lambda ms: datetime.fromtimestamp((TIME + ms) / 1000, UTC))
    else:
        value = st.integers(*NUMBERS.get(name, (0, 420)))
    kind = draw(
        st.sampled_from([EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual, In])
    )
    made = (
        In((name,), tuple(draw(st.lists(value, min_size=1, max_size=4)))) if kind is In else kind((name,), draw(value))
    )
    return Not(made) if draw(st.booleans()) else made


@pytest.fixture(scope="module", params=[False, True], ids=["sound", "damaged"])
def log(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {"path": str(log_of(tmp_path_factory.mktemp("log"), request.param)), "splitSize": "100000"}


@pytest.mark.parametrize("table", ["batches", "records"])
@given(data=st.data())
def test_no_row_is_lost_that_fulfils_the_conditions(data: st.DataObject, table: str, log: dict[str, str]) -> None:
    asked = data.draw(st.lists(conditions(table), min_size=1, max_size=3))
    expected = [row for row in whole(table, log["path"]) if all(holds(one, row) for one in asked)]
    found = [row for row in read(table, log, asked) if all(holds(one, row) for one in asked)]
    assert sorted(map(str, found)) == sorted(map(str, expected))


@functools.cache
def whole(table: str, path: str) -> list[dict[str, object]]:
    rows = read(table, {"path": path}, [])
    assert len({row["base_offset"] for row in rows}) > 100
    return rows


def test_segments_without_such_rows_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that are decoded: of large batches those of the segment that has such rows, and of small ones all."""
    path = log_of(tmp_path, damaged=False)
    sizes = [file.stat().st_size for file in sorted(path.rglob("*.log"))]
    decoded: list[int] = []

    def counted(f: object, size: int, **more: object) -> object:
        decoded.append(size)
        return read_segment(f, size, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(rows, "read_segment", counted)
    for asked, expected in {
        (GreaterThan(("base_offset",), 150),): sizes[1:],
        (LessThan(("max_timestamp",), datetime.fromtimestamp(TIME / 1000 + 20, UTC)),): [sizes[0], *sizes[2:]],
        (GreaterThan(("base_offset",), 1000),): sizes[2:],
        (): sizes,
    }.items():
        decoded.clear()
        found = read("batches", {"path": str(path)}, list(asked))
        assert sorted(decoded) == sorted(expected), asked
        assert len(found) == sum(all(holds(one, row) for one in asked) for row in whole("batches", str(path)))


def test_columns_are_built_that_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a schema that somebody gives, in its order and types; the unknown one is a mistake."""
    options = {"path": str(corpora.unpack("healthy-41")), "topics": "shop.kv"}
    built: set[str] = set()

    def counted(schema: pa.Schema, key: object, number: int, columns: dict[str, object]) -> pa.RecordBatch:
        built.update(schema.names)
        return from_columns(schema, key, number, columns)  # type: ignore[arg-type]

    monkeypatch.setattr(rows, "from_columns", counted)
    asked = StructType([StructField("crc_ok", BooleanType()), StructField("base_offset", StringType())])
    source = type("Source", (TableSource,), {"table": "batches"})(options)
    reader = source.reader(asked)
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    assert built == {"crc_ok", "base_offset"}
    assert {tuple(map(str, batch.schema.types)) for batch in batches} == {("bool", "string")}
    assert sum(batch.num_rows for batch in batches) == len(read("batches", options, []))
    with pytest.raises(AuditInputError, match="no column 'nothing'"):
        source.reader(StructType([StructField("nothing", StringType())]))
