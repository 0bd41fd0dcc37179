"""Every column of every table says what it holds, where it is declared."""

from __future__ import annotations

import pyarrow as pa
import pytest

from auditor.connectors.schema import EVERYWHERE, LOG_KEY, RENAMED, TABLES, TYPES, declared
from auditor.pipeline.derived_tables import NAMES, moved

# Kafka's own: BatchMetadata's deleteHorizonMs.
KAFKAS = {"delete_horizon"}


@pytest.mark.parametrize("name", TABLES)
def test_every_column_has_a_meaning(name: str) -> None:
    table = TABLES[name]
    assert list(table.meanings) == table.schema(payload=True).names
    assert not [column for column, text in table.meanings.items() if len(text) < 6 or text == column]
    assert name in table.example
    assert len(table.row) > 4


def test_a_column_without_words_is_one_that_means_the_same_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(TABLES, "sample", raising=False)
    text = "a sample\nSELECT 1 FROM sample\nfile:string\nbytes_sent:long bytes of it\nvalue:binary? its value\n"
    found = declared("sample", text, key=LOG_KEY[:1], copy_by=None)
    table = TABLES.pop("sample")
    assert found.names == ["cluster_id", "file", "bytes_sent"]
    assert table.schema(payload=True).names == [*found.names, "value"]
    assert table.row == "a sample"
    assert table.meanings["file"] == EVERYWHERE["file"]
    assert found.field("bytes_sent").type == TYPES["long"]
    with pytest.raises(KeyError):
        declared("sample", "a sample\nSELECT 1\nbytes_sent:long\n", key=())
    assert "sample" not in TABLES


@pytest.mark.parametrize("name", NAMES)
def test_one_vocabulary_names_sizes_counts_durations_and_moments(name: str) -> None:
    """Kept runs have the names of summary.json instead."""
    columns = TABLES[name].schema(payload=True)
    for column in columns:
        last = column.name.rpartition("_")[2]
        before = RENAMED.get(name, {}) if name == "batches" else {}
        assert column.name in before or last not in ("size", "length"), column.name
        assert (last == "at") <= pa.types.is_timestamp(column.type), column.name
        if pa.types.is_timestamp(column.type):
            assert last in ("at", "timestamp") or column.name in KAFKAS, column.name
        if last in ("bytes", "records", "ms"):
            assert pa.types.is_integer(column.type), column.name


def test_a_query_with_an_old_name_is_told_the_new_one() -> None:
    for table, names in RENAMED.items():
        columns = TABLES[table].schema(payload=True).names
        assert set(names.values()) <= set(columns)
        for old, new in names.items():
            assert (old in columns) == (table == "batches")
            assert (f"in {table}, {old} is now {new}" in moved(f"SELECT {old} FROM {table}")) == (table != "batches")
    assert moved("SELECT sum(size) FROM batches_once") == ""
    assert moved("SELECT first_timestamp, size FROM transactions") == (
        "in transactions, size is now bytes; "
        "transactions has a row per transaction; in transaction_partitions: first_timestamp"
    )
