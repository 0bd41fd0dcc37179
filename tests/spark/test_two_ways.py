"""Spark and the processes of this machine write the same tables, all of them; findings: ``test_every_corpus``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from auditor import running
from auditor.connectors import schema
from auditor.pipeline import derived_tables
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.whole_audit import Audit
from tests import corpora
from tests.written_tables import tables_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_every_table_is_written_and_the_same(spark: SparkSession, tmp_path: Path) -> None:
    path, as_of = str(corpora.unpack("altered-41")), corpora.manifest("altered-41")["copied_at"]
    options = AuditOptions((path,), tmp_path / "inline", records=True, tables=True, as_of=as_of, master="inline[2]")
    running.audit(replace(options, out=tmp_path / "spark [1]"), spark=spark)
    running.audit(options)
    tables = tables_of(tmp_path / "spark [1]")
    assert tables_of(tmp_path / "inline") == tables
    assert tables.keys() == {*schema.DECODED, *derived_tables.OF_FACTS, "findings", "blocked", "impact", "rehearsal"}
    for name, (written, _) in tables.items():
        assert written.names == schema.TABLES[name].schema().names
    with running.runner(options, spark) as runner:
        asked = Audit(options, runner).query("select count(*) n from batches").to_pylist()
    assert asked == [{"n": len(tables["batches"][1])}]
