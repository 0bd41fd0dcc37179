"""A cluster whose machines come and go: the findings of a quiet run, byte for byte, and hardly a file read twice.

``SPOT_RUNS``: how many (2), ``SPOT_SEED``: the seed of the first. Executors and workers are killed by pid, and workers
added, at random times, under dynamic allocation and speculation; what is read is what the executors' Pythons open.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster import standalone
from tests.cluster.standalone import Cluster
from tests.cluster.test_spark_submit import ROOT, audit_args, local

pytestmark = [pytest.mark.cluster, pytest.mark.spark]

RUNS, SEED = int(os.environ.get("SPOT_RUNS", "2")), int(os.environ.get("SPOT_SEED", "36"))
TASK_BYTES = 60_000  # three of the longest segments
PAUSE_S = (1.0, 6.0)  # between two losses
LOSSES = 4
KIND = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
# In the Pythons of executors: lists of a few files each, and a line for each segment that is opened.
OPENS = """
import os, sys

class Small:
    def find_spec(self, name, path=None, target=None):
        if name == "auditor.pipeline.plan":
            sys.meta_path.remove(self)
            import auditor.pipeline.plan as plan
            plan.TASK_BYTES = {task}
            sys.meta_path.insert(0, self)
        return None

sys.meta_path.insert(0, Small())

def ask(event, args):
    if event == "open" and isinstance(args[0], str) and args[0].endswith(".log") and "/__" not in args[0]:
        out = os.open({log!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(out, (args[0] + chr(10)).encode())
        os.close(out)

sys.addaudithook(ask)
"""
CONF = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.maxExecutors": "4",
    "spark.dynamicAllocation.executorIdleTimeout": "5s",
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.task.maxFailures": "8",
    "spark.executor.memory": "700m",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
}
__all__ = ["local"]  # the fixture


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Cluster]:
    with standalone.cluster(tmp_path, 3) as made:
        yield made


def executors(made: Cluster) -> list[int]:
    """The pids of this cluster's executors, and of nothing else."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            inside = (process / "cwd").readlink().is_relative_to(made.folder)
            if inside and KIND.encode() in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    return sorted(found)


def lose(made: Cluster, chance: random.Random, over: threading.Event, done: list[str]) -> None:
    """Takes machines away and brings others."""
    while len(done) < LOSSES and not over.wait(chance.uniform(*PAUSE_S)):
        running = [node for node in made.workers if node.process.poll() is None]
        if len(running) > 2 and chance.random() < 0.3:
            chance.choice(running).kill()
            done.append("worker")
        elif there := executors(made):
            with contextlib.suppress(ProcessLookupError):
                os.kill(chance.choice(there), signal.SIGKILL)
                done.append("executor")
        if len([node for node in made.workers if node.process.poll() is None]) < 3:
            name = f"worker-{len(made.nodes)}"
            made.start(
                name, "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--port", "0",
                "--webui-port", "0", "--cores", "1", "--memory", "1g", "--work-dir",
                str(made.folder / name), made.master,
            )  # fmt: skip


def site_of(folder: Path) -> str:
    """A folder for the PYTHONPATH of who tells in ``opened`` what it opens."""
    site = folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(OPENS.format(log=str(folder / "opened"), task=TASK_BYTES))
    return os.pathsep.join([str(site), str(ROOT)])


def opened(folder: Path) -> Counter[str]:
    return Counter((folder / "opened").read_text().split())


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Counter[str]:
    """How often each segment is opened by an audit that nothing happens to."""
    folder = tmp_path_factory.mktemp("quiet")
    command = [sys.executable, "-m", "auditor.cli", "audit", *audit_args(folder / "out"), "--master", "inline[2]"]
    subprocess.run(command, env=os.environ | {"PYTHONPATH": site_of(folder)}, cwd=folder, check=True)
    return opened(folder)


def submit(made: Cluster, folder: Path) -> subprocess.Popen[bytes]:
    """The submission, running; what its executors open is in ``opened``."""
    python_path = site_of(folder)
    conf = CONF | {
        "spark.pyspark.python": sys.executable, "spark.pyspark.driver.python": sys.executable,
        "spark.executorEnv.PYTHONPATH": python_path,
    }  # fmt: skip
    command = [str(standalone.SPARK_HOME / "bin" / "spark-submit"), "--master", made.master]
    for name, value in conf.items():
        command += ["--conf", f"{name}={value}"]
    command += [str(ROOT / "auditor" / "job.py"), *audit_args(folder / "out"), "--work", str(folder / "kept")]
    with (folder / "submit.log").open("wb") as log:
        environment = standalone.environment() | {"PYTHONPATH": python_path}
        return subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, env=environment)


@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="looks for executors in /proc")
@pytest.mark.parametrize("number", range(RUNS))
def test_machines_that_come_and_go_change_nothing(
    machines: Cluster,
    local: bytes,
    quiet: Counter[str],
    tmp_path: Path,
    number: int,
    record_property: Callable[[str, object], None],
) -> None:  # fmt: skip
    over, done = threading.Event(), list[str]()
    job = submit(machines, tmp_path)
    losing = threading.Thread(target=lose, args=(machines, random.Random(SEED + number), over, done))
    losing.start()
    try:
        status = job.wait(600)
    finally:
        over.set()
        losing.join()
    assert status == 0, (tmp_path / "submit.log").read_text(errors="replace")[-5000:]
    assert (tmp_path / "out" / "findings.jsonl").read_bytes() == local
    found = opened(tmp_path)
    assert found.keys() == quiet.keys()
    size = {path: Path(path).stat().st_size for path in found}
    again = sum(max(0, times - quiet[path]) * size[path] for path, times in found.items())
    record_property("losses", " ".join(done))
    record_property("bytes read twice", again)
    print(f"\nrun {number}: lost {done}, {sum(size.values())} bytes, {again} of them read again")
    # What was in flight: of an executor, which has one core, a list, and that of a speculative copy.
    most = 2 * len(done) * (TASK_BYTES + max(size.values()))
    assert again <= most < sum(size.values())
