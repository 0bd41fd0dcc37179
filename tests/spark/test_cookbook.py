"""Each recipe of the cookbook as Spark answers it: what DuckDB answers, whose answers tests/processes compares with
what Kafka's tools printed."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pytest

import auditor
from tests import corpora
from tests.cookbook import Recipe, plain, recipes
from tests.facts import opened

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@functools.cache
def on_spark(corpus: str, spark: SparkSession) -> auditor.OpenedAudit:
    return auditor.open(corpora.unpack(corpus), spark=spark, as_of=corpora.manifest(corpus).get("copied_at"))


@pytest.mark.parametrize("recipe", recipes(), ids=lambda recipe: recipe.title)
def test_spark_answers_as_duckdb_does(recipe: Recipe, spark: SparkSession) -> None:
    by_duckdb = opened(corpora.unpack(recipe.corpus), as_of=corpora.manifest(recipe.corpus).get("copied_at"))
    rows = plain(on_spark(recipe.corpus, spark).sql(recipe.sql).to_pylist())
    assert rows
    assert rows == plain(by_duckdb.query(recipe.sql).to_pylist())


def test_findings_are_a_frame(spark: SparkSession) -> None:
    found = on_spark("hanging-36", spark).findings
    assert [row.fingerprint for row in found.to_spark(spark).collect()] == found.fingerprints
    assert len(found) >= 4


@pytest.mark.parametrize("name", ["coordinated_transactions", "blocked"])
def test_a_table_of_all_logs_is_a_frame(name: str, spark: SparkSession) -> None:
    by_duckdb = opened(corpora.unpack("hanging-36"), as_of=corpora.manifest("hanging-36")["copied_at"])
    rows = on_spark("hanging-36", spark).table(name).toArrow().to_pylist()
    found = by_duckdb.query(f"SELECT * FROM {name}").to_pylist()
    assert sorted(map(str, plain(rows))) == sorted(map(str, plain(found)))
    assert len(found) > 3
