"""Every corpus on Spark: byte for byte what this machine's own processes find, in copies read whole and in parts.

All corpora are one audit: each audit of Spark's costs seconds whatever its size. What has to be found in each is held
against its manifest in ``tests/whole``; the command on one core is in ``tests/processes``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from auditor import running
from auditor.replay.copy_task import CopyTask, TextTask
from auditor.spark import scan
from tests import every_corpus
from tests.spark.test_split import Divided, divide_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    return every_corpus.paths(tmp_path_factory.mktemp("corpora"))


@pytest.fixture(scope="module")
def inline(paths: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("inline")
    running.audit(every_corpus.options(paths, out, "inline[2]"))
    return every_corpus.results(out)


def test_every_corpus_is_there(inline: dict[str, Any]) -> None:
    """So that equal results are results of something."""
    read = {name for log in inline["summary"]["logs"] for name in every_corpus.NAMES if f"/{name}/" in log["log_dir"]}
    assert read == set(every_corpus.NAMES)
    assert len(inline["findings"]) > 100
    clusters = [cluster["cluster_id"] for cluster in inline["summary"]["inputs"]]
    assert len(set(clusters)) > len(every_corpus.NAMES) / 2


def some_in_parts(tasks: list[CopyTask | TextTask], slots: int) -> Divided:
    """The copies of two corpora in parts; a copy in parts is a task of its own, so that all of them would take long."""
    large, small = divide_all(tasks, slots)
    divided = [t for t in large if {"hanging-36", "replicas-41"} & set(t.place.path.split("/"))]
    return divided, [*small, *(t for t in large if t not in divided)]


@pytest.mark.parametrize("in_parts", [False, True], ids=["whole", "some in parts"])
def test_spark_finds_the_same(
    in_parts: bool, inline: dict[str, Any], paths: tuple[str, ...], spark: SparkSession, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    if in_parts:
        monkeypatch.setattr(scan, "divide", some_in_parts)
    running.audit(every_corpus.options(paths, tmp_path), spark=spark)
    found = every_corpus.results(tmp_path)
    assert found["findings"] == inline["findings"]
    assert found["summary"] == inline["summary"]
