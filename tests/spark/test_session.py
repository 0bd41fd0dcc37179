"""The shared session is what its fixture says, our packages importable; a worker that lacks them says what to do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from auditor import register, running
from auditor.base import code_cache
from auditor.connectors.tables.sources import _KNOWING, NO_PACKAGE
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.runner import PackedFacts, Replicas
from auditor.spark import jobs, spark_runner
from auditor.spark import session as spark_session
from auditor.spark.session import DAEMON, TUNED, tuned
from auditor.spark.spark_runner import FactsOfJob
from tests import corpora
from tests.conftest import ROOT, SHORT_JVM

NAME = "hanging-36"


def test_workers_run_this_python_and_know_our_packages(spark: SparkSession) -> None:
    def ask(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from auditor.base import errors

        for batch in batches:
            said = [f"{sys.executable} {len(errors.REASONS)}"] * batch.num_rows
            yield pa.RecordBatch.from_arrays([pa.array(said)], names=["said"])

    from auditor.base.errors import REASONS

    rows = spark.range(3).mapInArrow(ask, "said string").collect()
    assert [row.said for row in rows] == [f"{sys.executable} {len(REASONS)}"] * 3


def test_workers_leave_the_working_directory_out(spark: SparkSession) -> None:
    def ask(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            said = [f"{sys.flags.safe_path}"] * batch.num_rows
            yield pa.RecordBatch.from_arrays([pa.array(said)], names=["said"])

    assert {row.said for row in spark.range(3).mapInArrow(ask, "said string").collect()} == {"True"}


class Others:
    """A session that others started, as far as it is asked."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.sparkContext = SimpleNamespace(environment=environment, master="yarn", getConf=dict)


class OthersOverConnect:
    __module__ = "pyspark.sql.connect.session"

    def __init__(self, environment: dict[str, str]) -> None:
        settings = {f"spark.executorEnv.{name}": value for name, value in environment.items()}
        self.conf = SimpleNamespace(get=settings.get)


@pytest.mark.parametrize("kind", [Others, OthersOverConnect])
def test_of_a_session_of_others_it_is_said_once_what_to_set(kind: Any, caplog: pytest.LogCaptureFixture) -> None:
    spark_session.adopt(kind({"PYTHONSAFEPATH": "1"}))
    assert caplog.messages == []
    theirs = kind({})
    for _ in range(2):
        spark_session.adopt(theirs)
    assert len(caplog.messages) == 1
    assert "spark.executorEnv.PYTHONSAFEPATH=1" in caplog.messages[0]


def test_one_shuffle_partition(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.shuffle.partitions") == "1"


def test_workers_have_what_an_audit_needs_before_their_first_task(spark: SparkSession) -> None:
    def ask(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import sys

        loaded = "auditor.replay.reading.replica_reader" in sys.modules
        for batch in batches:
            yield pa.RecordBatch.from_arrays([pa.array([str(loaded)] * batch.num_rows)], names=["loaded"])

    assert {row.loaded for row in spark.range(3).mapInArrow(ask, "loaded string").collect()} == {"True"}


def test_workers_draw_different_numbers(spark: SparkSession) -> None:
    def draw(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import numpy as np

        time.sleep(0.5)  # so that both workers take part
        for _ in batches:
            yield pa.RecordBatch.from_arrays([pa.array([np.random.random()])], names=["drawn"])

    rows = spark.range(0, 2, 1, 2).mapInArrow(draw, "drawn double").collect()
    assert len({row.drawn for row in rows}) == 2


def test_a_query_is_interpreted_and_the_next_compiled_again(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.codegen.factoryMode", "CODEGEN_ONLY")
    before = {key: spark.conf.get(key, None) for key in TUNED}
    first, second = tuned(spark), tuned(spark)  # of two threads
    first.__enter__()
    with second:
        first.__exit__(None, None, None)
        assert {key: spark.conf.get(key) for key in TUNED} == TUNED
        assert "*(1)" not in spark.range(3).filter("id > 1")._jdf.queryExecution().toString()
    assert {key: spark.conf.get(key, None) for key in TUNED} == before
    spark.conf.unset("spark.sql.codegen.factoryMode")
    assert "*(1)" in spark.range(3).filter("id > 1")._jdf.queryExecution().toString()


def note_task(packed: Iterable[bytes]) -> Iterator[bytes]:
    """Says which task each list came to."""
    context = TaskContext.get()
    assert context is not None
    yield from (str(context.partitionId()).encode() for _ in packed)


def test_facts_of_the_driver_are_a_task_each_list(spark: SparkSession) -> None:
    """Whatever users have set: Python takes long over each."""
    frame = jobs.facts_frame(spark, [PackedFacts(b"", b"1") for _ in range(7)])
    assert sorted(map(int, jobs.over(frame, note_task))) == list(range(7))
    frame.unpersist()


def test_a_worker_without_the_package_says_what_to_do(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("auditor.spark.session.adopt", lambda session: session)
    bare = os.path.join(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    monkeypatch.setattr(spark.sparkContext, "pythonExec", bare)
    monkeypatch.setattr(spark.sparkContext, "environment", {"PYTHONPATH": ""})
    conf = spark.sparkContext._jsc.sc().conf()
    ours = conf.get(DAEMON)
    conf.set(DAEMON, "pyspark.daemon")  # as on a cluster
    register_again(spark)
    with pytest.raises(PySparkException, match=NO_PACKAGE.split(" {}")[0]):
        spark.read.format("kafka_log_batches").load(str(corpora.unpack(NAME))).count()
    monkeypatch.undo()
    conf.set(DAEMON, ours)
    register_again(spark)
    assert spark.read.format("kafka_log_batches").load(str(corpora.unpack(NAME))).count()


def register_again(spark: SparkSession) -> None:
    """As if the session were new, so that it takes the workers' Python of now."""
    _KNOWING.pop(spark, None)
    register(spark)


def test_what_comes_to_the_driver_is_bounded_by_its_memory_alone(spark: SparkSession) -> None:
    """Where Spark's own 1g held, an audit of many logs ended after all of them were read."""
    assert spark.sparkContext.getConf().get("spark.driver.maxResultSize") == "0"


def test_settings_and_description_of_the_session_are_as_before(spark: SparkSession, tmp_path: Path) -> None:
    context = spark.sparkContext
    context.setJobDescription("a notebook's own")
    level = context._jvm.org.apache.logging.log4j.LogManager.getRootLogger().getLevel().toString()
    before = settings_of(spark)
    try:
        running.audit(AuditOptions((str(corpora.unpack(NAME)),), tmp_path / "out", tables=True), spark=spark)
        assert context.getLocalProperty("spark.job.description") == "a notebook's own"
    finally:
        context.setLocalProperty("spark.job.description", None)
    assert settings_of(spark) == before
    assert context._jvm.org.apache.logging.log4j.LogManager.getRootLogger().getLevel().toString() == level


def test_compiling_on_a_cluster_is_said_once(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    counted = jobs.Counted.on(spark)
    assert counted is not None
    monkeypatch.setattr(code_cache, "compiled", {"auditor.kernels"})
    replicas: Any = [SimpleNamespace(sums={"batches": 3}), SimpleNamespace(sums={"batches": 4})]
    assert list(jobs.counting(replicas, counted)) == replicas
    assert (counted.batches.value, counted.compiled.value) == (7, 1)
    runner = running.runner_for(None, spark)

    def briefs(counted: jobs.Counted | None) -> list[Any]:
        held = FactsOfJob(runner, lambda: jobs.facts_frame(spark, []))  # type: ignore[arg-type]
        held.counted = counted
        return Replicas(held).briefs()

    assert briefs(counted) == []
    assert caplog.messages == []  # here the first line of the command says it
    monkeypatch.setattr(spark_runner, "is_local", lambda _: False)
    assert briefs(counted) == []
    assert briefs(jobs.Counted.on(spark)) == []
    assert caplog.messages == [spark_runner.COMPILED]


def settings_of(spark: SparkSession) -> dict[str, str]:
    """All settings of a session: those that were set and those of its context."""
    return {row.key: row.value for row in spark.sql("SET").collect()}


THEIRS = """
import json, sys, urllib.request
from pathlib import Path
from pyspark.sql import SparkSession
import auditor
from auditor import running
from auditor.pipeline.options import AuditOptions

spark = (
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "true").config("spark.ui.port", "0")
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.sql.session.timeZone", "Asia/Tokyo").config("spark.driver.maxResultSize", "77m").getOrCreate()
)
context = spark.sparkContext
context.setLogLevel("FATAL")
logs = context._jvm.org.apache.logging.log4j.LogManager
settings = lambda: {row.key: row.value for row in spark.sql("SET").collect()}
before = settings()
# As the command in this process would: nobody gives it the session.
done = running.audit(AuditOptions((sys.argv[1],), Path(sys.argv[2]), master="local[1]"))
url = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/jobs"
jobs = json.load(urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url))
print(json.dumps({
    "jobs": sorted({job.get("description", "") for job in jobs}),
    "same": settings() == before, "level": logs.getRootLogger().getLevel().toString(),
    "theirs": done.runner.spark.sparkContext is context, "replicas": len(done.tasks),
    "logs": len({(b.join_key, b.topic, b.partition) for b in done.briefs}),
}))
"""


def test_a_session_of_others_is_used_as_it_is_and_says_what_its_jobs_do(tmp_path: Path) -> None:
    command = [sys.executable, "-c", THEIRS, str(corpora.unpack(NAME)), str(tmp_path / "out")]
    env = os.environ | SHORT_JVM | {"PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1", "SPARK_LOCAL_IP": "127.0.0.1"}
    ran = subprocess.run(command, capture_output=True, text=True, env=env, check=False, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout.splitlines()[-1])
    assert said["theirs"]
    assert said["same"]
    assert said["level"] == "FATAL"
    read = f"read {said['replicas']} replicas, "
    assert [job for job in said["jobs"] if job.startswith(read)]
    assert f"judge {said['logs']} logs" in said["jobs"]


CONFIGURED = """
import sys
from auditor.spark.session import start
spark = start("local[1]")
conf = spark.sparkContext.getConf()
level = spark.sparkContext._jvm.org.apache.logging.log4j.LogManager.getRootLogger().getLevel().toString()
print(conf.get("spark.driver.maxResultSize"), conf.get("spark.sql.shuffle.partitions"), conf.get("spark.ui.enabled"),
      spark.conf.get("spark.sql.session.timeZone"), level)
"""


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "0 4 false UTC ERROR"),
        (
            {"spark-defaults.conf": "spark.driver.maxResultSize 33m\n  spark.sql.shuffle.partitions=3\n"},
            "33m 3 false UTC ERROR",
        ),
        (
            {
                "spark-defaults.conf": "# spark.ui.enabled true\n",
                "log4j2.properties": "rootLogger.level = fatal\nrootLogger.appenderRef.e.ref = e\n"
                "appender.e.type = Console\nappender.e.name = e\n",
            },
            "0 4 false UTC FATAL",
        ),
    ],
)
def test_the_settings_directory_of_the_user_counts(files: dict[str, str], said: str, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    env.pop("SPARK_CONF_DIR", None)
    if files:
        env["SPARK_CONF_DIR"] = str(tmp_path)
    command = [sys.executable, "-P", "-c", CONFIGURED]
    ran = subprocess.run(command, capture_output=True, text=True, env=env, check=False, cwd=tmp_path)
    assert ran.stdout.strip() == said, ran.stderr
