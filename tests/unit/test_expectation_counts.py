"""What the suites count without Spark, on rows of the tables themselves; tests/spark counts the same with Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from auditor import inline
from auditor.pipeline import table_tasks
from auditor.rules.expectations.measures import MEASURES
from tests.broken_rows import BREAKS, broken, rows_of


def test_every_check_has_rows_that_break_it() -> None:
    assert {table: set(breaks) for table, breaks in BREAKS.items()} == {
        table: {check.name for check in wanted.checks} for table, wanted in MEASURES.items()
    }


@pytest.mark.parametrize("table", MEASURES)
def test_duckdb_counts_the_same(table: str, tmp_path: Path) -> None:
    rows, expected = rows_of(table)
    table_tasks.write(rows, tmp_path / "part-0.parquet")
    assert broken(inline.count(tmp_path, table), table) == expected
