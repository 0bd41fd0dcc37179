"""``hdfs://`` as input, as ``--out``, for kept runs and for copies, and ``spark-submit --master yarn``: what local mode
finds, byte for byte.

HDFS is opened by the packages fsspec and hdfs-native, which lie in an environment of their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import corpora, growing
from tests.broker import jars
from tests.cluster import hadoop
from tests.cluster.hadoop import Hadoop
from tests.cluster.standalone import BARE_PYTHON, SPARK_HOME, environment
from tests.conftest import ROOT
from tests.environments import python_with

pytestmark = [pytest.mark.cluster, pytest.mark.spark]

NAME = "hanging-36"
DRIVERS = ("fsspec", "hdfs-native==0.14.7")
JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hadoop]:
    """Both clusters, with the corpus below ``/copies``."""
    if missing := jars.missing_tools():
        pytest.skip(missing)
    with hadoop.running(tmp_path_factory.mktemp("hadoop")) as found:
        hadoop.shell(found, "-mkdir", "/copies")
        hadoop.shell(found, "-put", str(corpora.unpack(NAME)), "/copies/broker-1")
        yield found


@pytest.fixture(scope="module")
def drivers() -> Path:
    """The folder with the packages that open HDFS."""
    (site,) = (python_with("hdfs", *DRIVERS).parents[1] / "lib").glob("python*/site-packages")
    return site


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    out = tmp_path_factory.mktemp("local")
    inline([str(corpora.unpack(NAME)), *arguments(str(out))], {})
    found = (out / "findings.jsonl").read_bytes()
    assert b"hanging-transaction" in found
    return found


def arguments(out: str) -> list[str]:
    as_of = str(corpora.manifest(NAME)["copied_at"])
    return ["--records", "--as-of", as_of, "--fail-on", "never", "--quiet", "--out", out]


def inline(words: list[str], env: dict[str, str]) -> None:
    command = [sys.executable, "-m", "auditor.cli", "audit", *words, "--master", "inline"]
    ran = subprocess.run(command, env=os.environ | env, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_hdfs_in_and_out(cluster: Hadoop, drivers: Path, local: bytes, tmp_path: Path) -> None:
    """Named by its host, and as the default of Hadoop's settings."""
    path = os.pathsep.join([str(ROOT), str(drivers)])
    for number, files in enumerate((cluster.files, "hdfs://")):
        words = [f"{files}/copies/broker-1", *arguments(f"{files}/audits/inline-{number}")]
        inline(words, {"PYTHONPATH": path, "HADOOP_CONF_DIR": str(cluster.settings)})
        assert hadoop.shell(cluster, "-cat", f"/audits/inline-{number}/findings.jsonl") == local


def test_runs_and_copies_are_kept_there(cluster: Hadoop, drivers: Path, tmp_path: Path) -> None:
    """A run is replaced by another of its id, a copy goes on where files grew, and the commands read both."""
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(drivers)]), "HADOOP_CONF_DIR": str(cluster.settings)
    }  # fmt: skip

    def says(*words: str) -> str:
        command = [sys.executable, "-m", "auditor.cli", *words]
        ran = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    history, out, copy = (f"{cluster.files}/{name}" for name in ("history", "audits/kept", "copied"))
    audit = ["audit", str(corpora.unpack(NAME)), *arguments(out), "--tables", "--master", "inline[1]"]
    for night in ("night-1", "night-2", "night-2"):
        says(*audit, "--history", history, "--run-id", night)
    assert says("history", history, "--diff", "night-1", "night-2").endswith("0 new, 0 resolved, 7 unchanged\n")
    first, *_ = hadoop.shell(cluster, "-cat", "/audits/kept/findings.jsonl").splitlines()
    fingerprint = json.loads(first)["fingerprint"]
    assert fingerprint in says("explain", fingerprint, "--out", out)
    source = growing.broker(tmp_path / "in" / "broker-1")
    counted = "SELECT topic, count(*) AS n, sum(size) AS s FROM batches GROUP BY topic ORDER BY topic"
    for change in (lambda _: None, growing.appended, growing.rolled):
        change(source)
        says("copy", str(source.parent), "--out", copy)
        found = [says("sql", counted, path, "--engine", "duckdb", "--format", "json") for path in (str(source), copy)]
        assert found[0] == found[1] != ""
    left = hadoop.shell(cluster, "-ls", "-R", "/").decode()
    assert "part-00000.parquet" in left
    assert ".partial-" not in left


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_spark_submit_on_yarn(
    cluster: Hadoop, drivers: Path, shipped: tuple[Path, Path], local: bytes, tmp_path: Path, mode: str
) -> None:
    """In cluster mode the driver's Python is as bare as those of executors."""
    package, packed = shipped
    path = os.pathsep.join(["./env", str(drivers)])
    conf = {
        "spark.yarn.jars": f"local:{SPARK_HOME}/jars/*",  # else all of them are copied into HDFS
        "spark.pyspark.python": BARE_PYTHON,
        "spark.pyspark.driver.python": sys.executable if mode == "client" else BARE_PYTHON,
        "spark.executorEnv.PYTHONPATH": path,
        "spark.executorEnv.HADOOP_CONF_DIR": str(cluster.settings),
        "spark.yarn.appMasterEnv.PYTHONPATH": path,
        "spark.yarn.appMasterEnv.HADOOP_CONF_DIR": str(cluster.settings),
        "spark.executor.instances": "1", "spark.executor.memory": "600m", "spark.driver.memory": "500m",
        "spark.driver.extraJavaOptions": JVM, "spark.executor.extraJavaOptions": JVM,
        "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "4", "spark.network.timeout": "1800s",
    }  # fmt: skip
    command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", "yarn", "--deploy-mode", mode]
    command += ["--py-files", str(package), "--archives", f"{packed}#env"]
    for name, value in conf.items():
        command += ["--conf", f"{name}={value}"]
    out = f"{cluster.files}/audits/{mode}"
    command += [str(ROOT / "auditor" / "job.py"), f"{cluster.files}/copies/broker-1", *arguments(out), "--tables"]
    env = environment() | {"HADOOP_CONF_DIR": str(cluster.settings), "PYTHONPATH": str(drivers)}
    with (tmp_path / "submit.log").open("wb") as log:
        ended = subprocess.run(command, stdout=log, stderr=log, cwd=tmp_path, env=env, check=False)
    assert ended.returncode == 0, (tmp_path / "submit.log").read_text(errors="replace")[-5000:]
    assert hadoop.shell(cluster, "-cat", f"/audits/{mode}/findings.jsonl") == local
    left = hadoop.shell(cluster, "-ls", "-R", f"/audits/{mode}").decode()
    assert all(f"/tables/{table}/part-00000.parquet" in left for table in ("batches", "transactions", "findings"))
    assert ".unfinished/" not in left
