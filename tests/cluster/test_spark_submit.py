"""``spark-submit auditor/job.py`` on a standalone cluster whose Pythons are bare: what local mode finds, byte for byte.

The dependencies go along as docs/spark.md says: the zip of ``make wheel``, and the packed environment.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from auditor.spark.spark_runner import COMPILED
from tests import corpora
from tests.cluster import standalone
from tests.cluster.standalone import Cluster, Node

pytestmark = [pytest.mark.cluster, pytest.mark.spark]

ROOT = Path(__file__).parents[2]
# In the Pythons of executors: the first one to judge a log ends its executor, with the half of the shuffle and of the
# facts that lie there. The parent of a Python is the daemon it was forked from, whose parent is the executor.
KILLER = """
import os, signal, sys

def ask(event, args):
    if event != "import" or args[0] != "auditor.pipeline.judge":
        return
    try:
        os.close(os.open({flag!r}, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    with open(f"/proc/{{os.getppid()}}/stat") as stat:
        os.kill(int(stat.read().rpartition(")")[2].split()[1]), signal.SIGKILL)

sys.addaudithook(ask)
"""
INPUTS = ("hanging-36", "altered-41", "replicas-41")


def audit_args(out: Path) -> list[str]:
    paths = [str(corpora.unpack(name)) for name in INPUTS]
    as_of = str(corpora.manifest("altered-41")["copied_at"])
    return [*paths, "--records", "--as-of", as_of, "--fail-on", "never", "--quiet", "--out", str(out)]


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    out = tmp_path_factory.mktemp("local")
    command = [sys.executable, "-m", "auditor.cli", "audit", *audit_args(out), "--master", "local[2]"]
    subprocess.run(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, cwd=out, check=True)
    found = (out / "findings.jsonl").read_bytes()
    assert found.count(b"\n") > 30
    return found


@pytest.fixture
def two_workers(tmp_path: Path) -> Iterator[Cluster]:
    with standalone.cluster(tmp_path, 2) as made:
        yield made


def submit(made: Cluster, shipped: tuple[Path, Path], out: Path, *python_path: str) -> subprocess.Popen[bytes]:
    """The submission, running. Only the driver's Python has the project's dependencies."""
    package, packed = shipped
    conf = {
        "spark.pyspark.python": standalone.BARE_PYTHON,
        "spark.pyspark.driver.python": sys.executable,
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(["./env", *python_path]),
        "spark.executorEnv.NUMBA_CACHE_DIR": str(out.parent / "code"),  # as on a new machine
        "spark.executor.memory": "700m",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "4",
    }
    command = [str(standalone.SPARK_HOME / "bin" / "spark-submit"), "--master", made.master]
    command += ["--py-files", str(package), "--archives", f"{packed}#env"]
    for name, value in conf.items():
        command += ["--conf", f"{name}={value}"]
    command += [str(ROOT / "auditor" / "job.py"), *audit_args(out)]
    with (made.folder / "submit.log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, cwd=made.folder, env=standalone.environment())


def finish(job: subprocess.Popen[bytes], made: Cluster) -> None:
    assert job.wait(900) == 0, (made.folder / "submit.log").read_text(errors="replace")[-5000:]


def computes(worker: Node) -> bool:
    """Whether a Python of an executor of this worker runs: its command line and its folder say so."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            inside = (process / "cwd").readlink().is_relative_to(worker.work)
            python = b"pyspark.daemon" in (process / "cmdline").read_bytes()
        except OSError:  # it ended while it was looked at
            continue
        if inside and python:
            return True
    return False


def test_findings_on_a_cluster_are_those_of_local_mode(
    two_workers: Cluster, shipped: tuple[Path, Path], local: bytes, tmp_path: Path
) -> None:
    finish(submit(two_workers, shipped, tmp_path / "out"), two_workers)
    assert (tmp_path / "out" / "findings.jsonl").read_bytes() == local
    assert COMPILED not in (two_workers.folder / "submit.log").read_text(errors="replace")
    assert not list((tmp_path / "code").rglob("*.nb?")), "an executor compiled what was packed"
    for worker in two_workers.workers:
        assert list(worker.work.glob("app-*/*/stderr")), "both workers had an executor"


@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="looks for the workers' Pythons in /proc")
def test_a_worker_killed_in_the_middle_changes_nothing(
    two_workers: Cluster, shipped: tuple[Path, Path], local: bytes, tmp_path: Path
) -> None:
    job = submit(two_workers, shipped, tmp_path / "out")
    victim = two_workers.workers[0]
    standalone.wait_for("a Python of the first worker", lambda: computes(victim) or job.poll() is not None, 300)
    assert job.poll() is None, "the job ended before a worker could be killed"
    victim.kill()
    finish(job, two_workers)
    assert (tmp_path / "out" / "findings.jsonl").read_bytes() == local
    master = two_workers.nodes[0].log.read_text(errors="replace")
    assert "Removing worker" in master or "got disassociated" in master


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for the executor in /proc")
def test_an_executor_killed_in_the_middle_of_the_shuffle_changes_nothing(
    two_workers: Cluster, shipped: tuple[Path, Path], local: bytes, tmp_path: Path
) -> None:
    flag, site = tmp_path / "killed", tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(KILLER.format(flag=str(flag)))
    finish(submit(two_workers, shipped, tmp_path / "out", str(site)), two_workers)
    assert flag.exists(), "nothing was judged by an executor"
    assert (tmp_path / "out" / "findings.jsonl").read_bytes() == local
    ended = "".join(worker.log.read_text(errors="replace") for worker in two_workers.workers)
    assert "exitStatus 137" in ended
