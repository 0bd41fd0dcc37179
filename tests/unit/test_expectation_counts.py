"""What the suites count without Spark, on rows of the tables themselves; tests/spark counts the same with Spark."""

from __future__ import annotations

import pytest

from auditor import inline
from auditor.rules.expectations.measures import DUCKDB, MEASURES, SPARK, checks, counting
from tests.broken_rows import BREAKS, rows_of


def test_broken_rows_are_of_checks() -> None:
    assert not {(t, name) for t, own in BREAKS.items() for name in own} - {
        (t, c.name) for t in MEASURES for c in checks(t)
    }


@pytest.mark.parametrize("table", MEASURES)
def test_rows_are_counted_where_they_break_a_check(table: str) -> None:
    tables, names = rows_of(table)
    views = {DUCKDB: {"counts": counting(table, DUCKDB)}}
    frames = dict(inline.frames(tables, {}, lambda dialect, _: views[dialect]))
    (counts,) = frames["counts"]
    counted = {row["log_dir"]: row for row in counts.to_dict("records")}
    assert [name for name in names if not counted[name][name]] == []


def test_the_two_dialects_differ_in_words_alone() -> None:
    for table in MEASURES:
        in_spark = counting(table, SPARK).replace("`offset`", '"offset"')
        in_duckdb = counting(table, DUCKDB)
        assert in_spark.count("JOIN") == in_duckdb.count("JOIN")
        assert "before_" not in in_spark or "lag(" in in_spark
