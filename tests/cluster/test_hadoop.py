"""``hdfs://`` as input and as ``--out``, and ``spark-submit --master yarn``: what local mode finds, byte for byte.

HDFS is opened by the packages fsspec and hdfs-native, which lie in an environment of their own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import corpora
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
    command += [str(ROOT / "auditor" / "job.py"), f"{cluster.files}/copies/broker-1", *arguments(out)]
    env = environment() | {"HADOOP_CONF_DIR": str(cluster.settings), "PYTHONPATH": str(drivers)}
    with (tmp_path / "submit.log").open("wb") as log:
        ended = subprocess.run(command, stdout=log, stderr=log, cwd=tmp_path, env=env, check=False)
    assert ended.returncode == 0, (tmp_path / "submit.log").read_text(errors="replace")[-5000:]
    assert hadoop.shell(cluster, "-cat", f"/audits/{mode}/findings.jsonl") == local
