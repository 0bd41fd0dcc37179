"""Each recipe of the cookbook as Spark answers it: what DuckDB answers, whose answers tests/processes compares with
what Kafka's tools printed."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pytest
from chispa import assert_df_equality

import auditor
from auditor.pipeline.derived_tables import all_columns
from auditor.spark.spark_tables import local
from tests import corpora
from tests.cookbook import Recipe, plain, recipes
from tests.facts import opened
from tests.whole.test_questions import OVER_NIGHTS, TEXTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@functools.cache
def on_spark(corpus: str, spark: SparkSession) -> auditor.OpenedAudit:
    return auditor.open(corpora.unpack(corpus), spark=spark, as_of=corpora.manifest(corpus).get("copied_at"))


@pytest.mark.parametrize("recipe", recipes(), ids=lambda recipe: recipe.title)
def test_spark_answers_as_duckdb_does(recipe: Recipe, spark: SparkSession) -> None:
    by_duckdb = opened(corpora.unpack(recipe.corpus), as_of=corpora.manifest(recipe.corpus).get("copied_at"))
    rows = plain(on_spark(recipe.corpus, spark).sql(recipe.sql).to_dicts())
    assert rows
    assert rows == plain(by_duckdb.query(recipe.sql).to_pylist())


@pytest.mark.parametrize("name", [name for name in TEXTS if name != OVER_NIGHTS])
def test_spark_answers_the_page_of_tables_as_duckdb_does(name: str, spark: SparkSession) -> None:
    by_duckdb = opened(corpora.unpack("hanging-36"), as_of=corpora.manifest("hanging-36").get("copied_at"))
    found = plain(on_spark("hanging-36", spark).sql(TEXTS[name]).to_dicts())
    assert sorted(map(str, found)) == sorted(map(str, plain(by_duckdb.query(TEXTS[name]).to_pylist())))


def test_findings_are_a_frame(spark: SparkSession) -> None:
    found = on_spark("hanging-36", spark).findings
    assert [row.fingerprint for row in found.to_spark().collect()] == found.fingerprints
    assert len(found) >= 4


@pytest.mark.parametrize("name", all_columns())
def test_a_table_is_the_same_by_either_way(name: str, spark: SparkSession) -> None:
    """Columns and types, and the rows of the frame too."""
    given = {"as_of": corpora.manifest("hanging-36")["copied_at"]}
    with auditor.open(corpora.unpack("hanging-36"), master="inline[1]", **given) as inline:
        expected = inline.table(name).to_arrow()
    table = on_spark("hanging-36", spark).table(name)
    assert table.to_arrow().schema == expected.schema == table.schema
    rows = sorted(map(str, plain(expected.to_pylist())))
    assert sorted(map(str, plain(table.to_dicts()))) == rows
    # Spark sorts no maps; findings have their order.
    loosely = {"ignore_nullable": True, "ignore_metadata": True, "ignore_row_order": name != "findings"}
    for frame in (table.to_spark(), table.to_spark(spark)):
        assert_df_equality(frame, local(spark, expected), **loosely)


def test_sql_reaches_evidence_and_advice(spark: SparkSession) -> None:
    """By either engine what findings.jsonl has."""
    text = "SELECT fingerprint, batches, evidence['class'] AS class, advice.verdict AS verdict FROM findings"
    given = {"as_of": corpora.manifest("hanging-36")["copied_at"]}
    with auditor.open(corpora.unpack("hanging-36"), master="inline[1]", **given) as inline:
        by_duckdb, lines = inline.sql(text).to_dicts(), inline.findings.to_dicts()
    assert by_duckdb == on_spark("hanging-36", spark).sql(text).to_dicts()
    assert by_duckdb == [
        {"fingerprint": line["fingerprint"], "batches": line["evidence"].get("batches"),
         "class": line["evidence"].get("class"), "verdict": (line["advice"] or {}).get("verdict")}
        for line in lines
    ]  # fmt: skip
    assert {row["class"] for row in by_duckdb} > {None}
