"""Copies without payload on Spark: every corpus in one audit, with the bytes of findings that its directories have."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession

from auditor import running
from auditor.copying.run import copy_logs
from auditor.pipeline.options import AuditOptions
from tests import corpora, every_corpus
from tests.spark.test_pruning import pushes as pushes
from tests.unit.test_copied_checksums import COUNT, batch


def test_every_corpus_is_found_the_same_in_a_copy(spark: SparkSession, tmp_path: Path) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    paths = [Path(path) for path in every_corpus.paths(source) if Path(path).parent == source]
    copy_logs([str(path) for path in paths], copy, records=True)
    of_copies = tuple(str(copy / path.name) for path in paths)
    how = {"as_of": every_corpus.AS_OF, "records": True}
    running.audit(AuditOptions(tuple(map(str, paths)), tmp_path / "a", master="inline[2]", **how))
    # In parts: a replica of more than this many bytes is read by several tasks.
    running.audit(AuditOptions(of_copies, tmp_path / "b", split_size=200_000, **how), spark=spark)
    was, now = ((tmp_path / out / "findings.jsonl").read_bytes() for out in ("a", "b"))
    assert was.count(b"\n") > 300
    assert now == was


def test_what_is_open_is_open_in_parts_too(spark: SparkSession, tmp_path: Path) -> None:
    """A leap of sequences among batches whose checksums nobody has verified, in a replica that many tasks read."""
    folder = tmp_path / "in" / "broker-1" / "t-0"
    folder.mkdir(parents=True)
    (folder.parent / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=Q0xVU1RFUi0tLS0tLS0tLQ\n")
    for first in range(0, 4 * COUNT, COUNT):
        leap = 5 if first > COUNT else 0
        data = b"".join(batch(n, sequence=n + leap) for n in range(first, first + COUNT))
        (folder / f"{first:020}.log").write_bytes(data)
    copy_logs([str(folder.parent.parent)], tmp_path / "copy", checksums="none")
    found = {}
    for out, master, session in (("a", "inline[1]", None), ("b", "local[2]", spark)):
        options = AuditOptions((str(tmp_path / "copy"),), tmp_path / out, master=master, split_size=1 << 20)
        running.audit(options, spark=session)
        found[out] = (tmp_path / out / "findings.jsonl").read_text()
    assert '"checksums": "not verified"' in found["a"] or '"checksums":"not verified"' in found["a"]
    assert found["a"] == found["b"]


TABLES = ("producer_snapshots", "aborted_transactions", "index_entries", "checkpoints", "transaction_log")
SOME = (  # options and a condition
    ({}, "topic = 'trio.log' and partition = 1"),
    ({}, "broker_id <> 1 and topic like '\\\\_\\\\_%'"),
    ({"brokers": "[1, 2]", "partitions": '["trio.log-*"]', "fromOffset": "150"}, "base_offset > 170"),
    ({"columns": '["topic", "base_offset", "crc_ok"]'}, "base_offset < 100"),
)


def test_sources_read_copies_beside_directories(spark: SparkSession, pushes: bool, tmp_path: Path) -> None:
    """One broker of three as a copy: all rows, some by options and conditions, and columns that were asked for."""
    whole, mixed = corpora.copy("replicas-41", tmp_path / "whole"), tmp_path / "mixed"
    copy_logs([str(whole / "broker-1")], mixed)
    for name in ("broker-2", "broker-3"):
        shutil.copytree(whole / name, mixed / name)

    def rows(root: Path, table: str, options: dict[str, str], condition: str) -> DataFrame:
        paths = json.dumps([str(root / f"broker-{number}") for number in (1, 2, 3)])
        read = spark.read.format(f"kafka_{table}").options(**options, paths=paths)
        return read.load().where(condition)

    asked = [("log_batches", *how) for how in SOME] + [(table, {}, "true") for table in TABLES]
    for table, options, condition in asked:
        was = rows(whole, table, options, condition)
        assert was.count() > 3, (table, condition)
        assert_df_equality(rows(mixed, table, options, condition), was, ignore_row_order=True)
