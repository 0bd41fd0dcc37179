"""Every corpus on Spark: byte for byte what this machine's own processes find, in replicas read whole and in parts.

All corpora are one audit: each audit of Spark's costs seconds whatever its size. What has to be found in each is held
against its manifest in ``tests/whole``; the command on one core is in ``tests/processes``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from auditor import running
from auditor.replay.task import ReplicaTask, TextTask
from auditor.spark import jobs
from tests import every_corpus
from tests.audited import published
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


def test_spark_finds_the_same(
    inline: dict[str, Any], paths: tuple[str, ...], spark: SparkSession, tmp_path: Path
) -> None:
    running.audit(every_corpus.options(paths, tmp_path), spark=spark)
    found = every_corpus.results(tmp_path)
    assert found["findings"] == inline["findings"]
    assert found["summary"] == inline["summary"]
    assert found["drawn"] == inline["drawn"]


IN_PARTS = frozenset({"hanging-36", "replicas-41"})
BESIDE = frozenset({"healthy-28", "legacy-0102", "healthy-41"})  # the last is the name of a folder of texts, too


def some_in_parts(tasks: list[ReplicaTask | TextTask]) -> Divided:
    """The replicas of two corpora in parts; a replica in parts is a task of its own, so that all of them would take
    long."""
    large, small = divide_all(tasks)
    divided = [of_log for of_log in large if IN_PARTS & set(of_log[0].place.path.split("/"))]  # type: ignore[union-attr]
    return divided, [*small, *(item for of_log in large if of_log not in divided for item in of_log)]


def test_spark_finds_the_same_in_parts_beside_whole_ones(
    paths: tuple[str, ...], spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = tuple(path for path in paths if Path(path).name in IN_PARTS | BESIDE)
    assert len(some) > len(IN_PARTS | BESIDE)
    published(every_corpus.options(some, tmp_path / "here"))
    monkeypatch.setattr(jobs, "divide", some_in_parts)
    running.audit(every_corpus.options(some, tmp_path / "spark"), spark=spark)
    here, found = (every_corpus.results(tmp_path / name) for name in ("here", "spark"))
    assert found["findings"] == here["findings"]
    assert found["summary"] == here["summary"]
    assert here["findings"]
