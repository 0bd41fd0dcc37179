"""The tables on Spark: derived ones against the manifests, and SQL over them; as Parquet: ``test_two_ways``."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from auditor import running
from auditor.base.errors import AuditInputError
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.what_if_audit import AuditWithVerdicts
from auditor.pipeline.whole_audit import Audit
from tests import corpora


def opened(spark: SparkSession, corpus: str, **options: Any) -> Audit:
    wanted = AuditOptions(
        (str(corpora.unpack(corpus)),), Path(), as_of=corpora.manifest(corpus)["copied_at"], **options
    )
    return AuditWithVerdicts(wanted, running.runner_for(None, spark))


def ask(spark: SparkSession, corpus: str, text: str, **options: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = opened(spark, corpus, **options).query(text).to_pylist()
    return rows


def test_open_transactions_have_their_class(spark: SparkSession) -> None:
    """A table that is decoded beside one that is derived; what else tables hold is in ``tests/whole``."""
    text = """
        select distinct t.topic, t.partition, t.producer_id, t.first_offset
        from transaction_partitions t join batches b on b.topic = t.topic and b.partition = t.partition
        and b.base_offset = t.first_offset
        where t.class = 'hanging'
    """
    found = {tuple(row.values()) for row in ask(spark, "hanging-36", text)}
    expected = [e for e in corpora.manifest("hanging-36")["expect"] if e["finding"] == "hanging_transaction"]
    assert found == {(e["topic"], e["partition"], e["producerId"], e["firstOffset"]) for e in expected}
    assert len(found) == 4


def test_findings_can_be_asked_for(spark: SparkSession) -> None:
    rows = ask(spark, "hanging-36", "select kind, log_dir from findings where severity = 'critical'")
    assert [row["kind"] for row in rows] == ["hanging-transaction"] * 4
    assert all(row["log_dir"] for row in rows)


def test_verdicts_of_a_what_if(spark: SparkSession) -> None:
    (row,) = ask(spark, "unknown-producer-23", "select count(*) n, count(distinct policy) p from verdicts")
    assert row["n"] > 0


def test_wrong_sql_is_one_line_with_a_hint(spark: SparkSession) -> None:
    for text in ("select nothing from batches", "selekt", "select * from batchez"):
        with pytest.raises(AuditInputError, match=r"tables: batches, records") as raised:
            ask(spark, "healthy-41", text)
        assert "\n" not in str(raised.value)


RUN_TIME = {  # what Spark's documentation of error conditions calls each, or what was raised
    "select 1/0 from batches": "[DIVIDE_BY_ZERO]",
    "select array(1, 2)[size + 5] from batches": "[INVALID_ARRAY_INDEX]",
    "select (select size from batches)": "[SCALAR_SUBQUERY_TOO_MANY_ROWS]",
    "select raise_error('no such thing') from batches": "no such thing",
    "select of_mine(size) from batches": "ValueError: of mine",
}


def of_mine(size: int) -> int:
    raise ValueError("of mine")


def test_a_mistake_at_run_time_is_one_line_and_the_shell_goes_on(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """No file is read again for it: nothing killed a worker. Java's traces of each attempt are not printed either."""
    from auditor.commands import sql
    from auditor.spark import spark_tables

    def find(*_: Any) -> list[Any]:
        raise AssertionError("files that kill were looked for")

    monkeypatch.setattr(spark_tables, "_find", find)
    spark.udf.register("of_mine", of_mine, "int")
    texts = [*RUN_TIME, "select count(*) > 0 as there from batches"]
    monkeypatch.setattr("sys.stdin", io.StringIO(";\n".join(texts) + ";\n"))
    answers: list[Any] = []
    sql.sql_shell_run(opened(spark, "hanging-36"), lambda rows: answers.extend(rows.to_pylist()))
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == len(RUN_TIME)
    for line, said in zip(lines, RUN_TIME.values(), strict=True):
        assert line.startswith(f"auditor: {said}") or (line.startswith("auditor: [") and said in line)
    assert answers == [{"there": True}]


def test_where_a_worker_dies_files_that_kill_are_looked_for(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here none does: then it is Spark's failure, and no mistake in the question."""
    from auditor.spark import spark_tables
    from auditor.spark.jobs import failures, worker_died

    looked: list[Any] = []
    monkeypatch.setattr(spark_tables, "_find", lambda *_: looked.append(True) or [])
    spark.udf.register("dies", dies, "int")
    with pytest.raises(failures()) as raised:
        ask(spark, "hanging-36", "select dies(size) from batches")
    assert worker_died(raised.value)
    assert looked == [True]


def dies(size: int) -> int:
    os._exit(9)
