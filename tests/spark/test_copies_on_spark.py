"""Copies without payload on Spark: every corpus in one audit, with the bytes of findings that its directories have."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from auditor import running
from auditor.copying.run import copied
from auditor.pipeline.options import AuditOptions
from tests import every_corpus


def test_every_corpus_is_found_the_same_in_a_copy(spark: SparkSession, tmp_path: Path) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    paths = [Path(path) for path in every_corpus.paths(source) if Path(path).parent == source]
    copied([str(path) for path in paths], copy)
    of_copies = tuple(str(copy / path.name) for path in paths)
    running.audit(AuditOptions(tuple(map(str, paths)), tmp_path / "a", as_of=every_corpus.AS_OF, master="inline[2]"))
    # In parts: a replica of more than this many bytes is read by several tasks.
    running.audit(AuditOptions(of_copies, tmp_path / "b", as_of=every_corpus.AS_OF, split_size=200_000), spark=spark)
    was, now = ((tmp_path / out / "findings.jsonl").read_bytes() for out in ("a", "b"))
    assert was.count(b"\n") > 300
    assert now == was
