"""The Python API on Spark as a script has it, for a process of its own: ``python -m tests.processes.api_script``.

Its words are a master, that of a classic session or ``connect``, and a path. Nothing chooses a Python for the workers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

import auditor


def main(master: str, path: str) -> None:
    """Prints what a test compares, a line each."""
    if master == "connect":
        spark = SparkSession.builder.remote("local[2]").getOrCreate()
    else:
        spark = SparkSession.builder.master(master).config("spark.ui.enabled", "false").getOrCreate()
    with auditor.open(path, spark=spark) as audit:
        print("batches", spark.read.format("kafka_log_batches").load(path).count())
        frame = audit.table("transaction_partitions").to_spark()
        print("hanging", frame.where("class = 'hanging'").count(), "connect" in type(frame).__module__)
        print("findings", len(audit.findings.where(lambda f: f.severity == "critical")))
        found = audit.table("findings").to_spark()
        print("frame", found.where("severity = 'critical' AND timestamp > '2026-01-01'").count())
        print("tables", [row["name"] for row in audit.sql("SHOW TABLES;").to_dicts()] == [*audit.tables])
        print("blocked", audit.blocked.to_spark().count() == len(audit.blocked) > 0)
        print(
            "same",
            audit.table("transactions").schema == audit.table("transactions").to_arrow().schema,
        )
        with auditor.replay_batches(spark.read.format("kafka_log_batches").load(path)) as replayed:
            own = audit.table("transaction_partitions").to_spark().where("class IS NOT NULL").count()
            print("replayed", replayed.transaction_partitions.to_spark().where("kind = 'open'").count() == own > 0)
        for ask in (lambda: audit.sql("select nothing from batches"), lambda: audit.table("nothing")):
            print("mistake", said(ask))
    print("alive", spark.range(3).count())
    spark.stop()


def said(ask: Callable[[], Any]) -> str:
    """The one sentence of a mistake."""
    try:
        ask()
    except auditor.AuditInputError as error:
        return str(error).replace("\n", "(a line more)")[:60]
    return "none"


if __name__ == "__main__":
    main(*sys.argv[1:])
