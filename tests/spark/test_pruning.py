"""What of the input a question to Spark reads: by options of the data sources, and by its conditions where the session
pushes them down."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from chispa import assert_df_equality
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceReader

import auditor
from auditor.connectors.tables.sources import PUSHDOWN
from tests import corpora

NAME = "replicas-41"


@pytest.fixture(params=[True, False], ids=["pushed down", "not pushed down"])
def pushes(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[bool]:
    """Both states of a session; the sources are registered for each."""
    before = spark.conf.get(PUSHDOWN, "false")
    spark.conf.set(PUSHDOWN, str(request.param).lower())
    auditor.register(spark)
    yield request.param and hasattr(DataSourceReader, "pushFilters")  # which the oldest Spark has not
    spark.conf.set(PUSHDOWN, before)
    auditor.register(spark)


def load(spark: SparkSession, table: str = "kafka_log_batches", **options: object) -> DataFrame:
    given = {name: value if isinstance(value, str) else json.dumps(value) for name, value in options.items()}
    return spark.read.format(table).options(**given).load(str(corpora.unpack(NAME)))


CONDITIONS = (
    "topic = 'trio.log' and partition = 1",
    "topic in ('trio.log', 'nowhere')",
    "partition > 0 and not topic like '\\\\_\\\\_%'",
    "broker_id <> 1 and topic <=> 'trio.log'",
    "broker_id is null or partition <=> 1",
    "topic like 'trio%' and base_offset < 100",
    "partition = 77",
)


def test_conditions_change_no_row(spark: SparkSession, pushes: bool) -> None:
    every = load(spark)
    local = spark.createDataFrame(every.collect(), every.schema)
    for condition in CONDITIONS:
        assert_df_equality(load(spark).where(condition), local.where(condition), ignore_row_order=True)


def test_only_files_that_may_have_such_rows_are_planned(spark: SparkSession, pushes: bool) -> None:
    """A task is given a file at least: so many tasks there are for one copy of a partition, and eight for all."""
    copies = list(corpora.unpack(NAME).glob("broker-1/trio.log-1/*.log"))
    asked = load(spark).where("topic = 'trio.log' and partition = 1 and broker_id = 1")
    assert load(spark).rdd.getNumPartitions() == 8
    assert asked.rdd.getNumPartitions() == (min(len(copies), 8) if pushes else 8)
    sizes = sum(file.stat().st_size for file in copies)
    assert asked.selectExpr("sum(size)").first()[0] == sizes
    options = load(spark, partitions=["trio.log-1"], brokers=[1]).where("topic = 'trio.log'")
    assert options.selectExpr("sum(size)").first()[0] == sizes


def test_a_session_that_changed_registers_again(spark: SparkSession, pushes: bool) -> None:
    """Spark refuses a source that takes filters where they are not pushed down."""
    spark.conf.set(PUSHDOWN, str(not pushes).lower())
    if pushes:
        with pytest.raises(PySparkException, match="DATA_SOURCE_PUSHDOWN_DISABLED"):
            load(spark).count()
    else:
        assert load(spark).count()  # without
    auditor.register(spark)
    assert load(spark).where("partition = 0").count()


def test_sql_of_the_auditor_takes_both(spark: SparkSession) -> None:
    ours = "SELECT count(*) AS n, min(broker_id) AS b FROM batches WHERE topic = 'trio.log' AND partition = 1"
    with auditor.open(corpora.unpack(NAME), spark=spark) as audit, auditor.open(corpora.unpack(NAME)) as inline:
        assert audit.sql(ours).to_dicts() == inline.sql(ours).to_dicts() != [{"n": 0, "b": None}]
    with auditor.open(corpora.unpack(NAME), spark=spark, only_broker=2) as audit:
        assert audit.sql(ours).to_dicts()[0]["b"] == 2


def test_a_schema_is_honoured(spark: SparkSession, pushes: bool) -> None:
    frame = spark.read.format("kafka_log_batches").schema("base_offset string, topic string, max_timestamp timestamp")
    given = frame.load(str(corpora.unpack(NAME))).where("base_offset = '0' and topic = 'trio.log'")
    every = load(spark).where("base_offset = 0 and topic = 'trio.log'")
    assert given.schema.simpleString() == "struct<base_offset:string,topic:string,max_timestamp:timestamp>"
    assert sorted(map(tuple, given.collect())) == sorted(
        map(tuple, every.selectExpr("string(base_offset)", "topic", "max_timestamp").collect())
    )


def test_a_table_of_sql_gets_its_path_in_each_query(spark: SparkSession) -> None:
    """Spark gives a source no options of CREATE TABLE; what reaches it is in the error."""
    auditor.register(spark)
    path = str(corpora.unpack(NAME))
    spark.sql("CREATE TABLE pruned USING kafka_log_batches")
    try:
        with pytest.raises(PySparkException, match=r"CREATE TEMPORARY VIEW t USING .* FROM t WITH"):
            spark.sql("SELECT count(*) FROM pruned").collect()
        counted = load(spark).count()
        assert spark.sql(f"SELECT count(*) FROM pruned WITH ('path'='{path}')").first() == (counted,)
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW pruned_view USING kafka_log_batches OPTIONS (path '{path}')")
        assert spark.sql("SELECT count(*) FROM pruned_view").first() == (counted,)
    finally:
        spark.sql("DROP TABLE pruned")


def test_only_who_asks_which_copy_counts_waits_for_the_replay(spark: SparkSession) -> None:
    """On either way to run, and with the columns that are read."""
    for given in ({"spark": spark}, {"master": "inline[1]"}):
        with auditor.open(corpora.unpack(NAME), **given) as audit:
            counted = audit.sql("SELECT count(*) AS n, sum(size) AS s FROM batches WHERE topic = 'trio.log'").to_dicts()
            assert not audit._audit.is_known("briefs")
            once = audit.sql("SELECT count(*) AS n FROM batches_once WHERE topic = 'trio.log'").to_dicts()
            assert audit._audit.is_known("briefs")
            assert once[0]["n"] * 3 == counted[0]["n"] > 0


def test_columns_are_those_asked_for(spark: SparkSession) -> None:
    frame = load(spark, columns=["base_offset", "topic"])
    assert frame.columns == ["base_offset", "topic"]
    assert_df_equality(frame, load(spark).select("base_offset", "topic"), ignore_row_order=True)


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"columns": ["nothing"]}, "no column 'nothing'; there are cluster_id"),
        ({"brokers": ["one"]}, "give a JSON list of whole numbers"),
        ({"partitions": ["nowhere-7"]}, "matches no partition of the input"),
        ({"since": "soon"}, "invalid --since"),
        ({"fromOffset": "-3"}, "give a whole number of at least 0"),
    ],
)
def test_a_wrong_option_ends_with_a_hint(spark: SparkSession, options: dict[str, object], hint: str) -> None:
    auditor.register(spark)
    with pytest.raises(PySparkException, match=hint):
        load(spark, **options).count()
