"""Spark and the processes of this machine write the same tables; the same findings: ``test_every_corpus``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from auditor import running
from auditor.pipeline.options import AuditOptions
from tests import corpora
from tests.written_tables import tables_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_tables_are_the_same(spark: SparkSession, tmp_path: Path) -> None:
    path, as_of = str(corpora.unpack("altered-41")), corpora.manifest("altered-41")["copied_at"]
    options = AuditOptions((path,), tmp_path / "inline", records=True, tables=True, as_of=as_of, master="inline[2]")
    running.audit(replace(options, out=tmp_path / "spark [1]"), spark=spark)
    running.audit(options)
    assert tables_of(tmp_path / "inline") == tables_of(tmp_path / "spark [1]")
