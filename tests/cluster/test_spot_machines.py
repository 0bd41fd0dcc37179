"""A cluster whose machines come and go, and drivers that are killed: the findings and tables of a quiet run, byte for
byte and row for row, and hardly a file read twice.

``SPOT_RUNS``: runs in which machines go (2), ``SPOT_POINTS``: points at which the driver is killed, while a store fails
(2); ``SPOT_SEED``: the seed of the first. Executors, their Pythons and workers are killed by pid, and workers added, as
so many files have been opened, under dynamic allocation and speculation.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from auditor.pipeline.work_folder import FACTS
from tests import corpora, failing_store, small_tasks, store
from tests.cluster import standalone
from tests.cluster.standalone import Cluster
from tests.cluster.test_spark_submit import INPUTS, ROOT
from tests.failing_store import BREAKS_OFF, FailingStore, Fault
from tests.written_tables import tables_of

pytestmark = [
    pytest.mark.cluster, pytest.mark.spark,
    pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="looks for processes in /proc"),
]  # fmt: skip

RUNS, POINTS = int(os.environ.get("SPOT_RUNS", "2")), int(os.environ.get("SPOT_POINTS", "2"))
SEED = int(os.environ.get("SPOT_SEED", "36"))
TASK_BYTES = 150_000  # some twelve lists of files
LOSSES = 4
AT_ONCE = 3  # workers
EXECUTOR, PYTHON = b"org.apache.spark.executor.CoarseGrainedExecutorBackend", b"pyspark.daemon"
# In all Pythons: a line for each segment that is opened.
OPENS = """
import os

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
    "spark.sql.shuffle.partitions": "4",
}


def arguments(out: Path, paths: list[str]) -> list[str]:
    as_of = str(corpora.manifest("altered-41")["copied_at"])
    return [*paths, "--records", "--tables", "--as-of", as_of, "--fail-on", "never", "--quiet", "--out", str(out)]


PATHS = [str(corpora.unpack(name)) for name in INPUTS]


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standalone.cluster(tmp_path_factory.mktemp("cluster"), AT_ONCE) as made:
        yield made


def processes(made: Cluster, kind: bytes) -> list[int]:
    """The pids of this cluster's executors, or of their Pythons, and of nothing else."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            inside = (process / "cwd").readlink().is_relative_to(made.folder)
            if inside and kind in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    return sorted(found)


def running(made: Cluster) -> list[standalone.Node]:
    return [node for node in made.workers if node.process.poll() is None]


def lose_one(made: Cluster, chance: random.Random) -> str:
    """Takes a machine away, an executor alone, or one of its Pythons; brings another machine. What it took."""
    kind = chance.choice(("worker", "executor", "executor", "python"))
    if kind == "worker":
        chance.choice(running(made)).kill()
    else:
        there = processes(made, EXECUTOR if kind == "executor" else PYTHON)
        if not there:
            return ""
        with contextlib.suppress(ProcessLookupError):
            os.kill(chance.choice(there), signal.SIGKILL)
    for _ in range(AT_ONCE - len(running(made))):
        made.add_worker()
    return kind


def lose(
    made: Cluster, folder: Path, total: int, chance: random.Random, over: threading.Event, done: list[str]
) -> None:
    """Loses something each time that so many segments have been opened, of ``total`` for facts and for tables; in the
    middle of these logs are judged."""
    for share in sorted(chance.uniform(0, 0.95) for _ in range(LOSSES)):
        while sum(opened(folder).values()) < share * total and not over.wait(0.1):
            pass
        over.wait(chance.uniform(0, 1.5))
        while not over.is_set() and not (what := lose_one(made, chance)):
            over.wait(0.1)
        if over.is_set():
            return
        done.append(f"{what} at {share:.0%}")


def python_path(folder: Path) -> str:
    """Of Pythons that tell in ``opened`` what they open."""
    return small_tasks.python_path(folder, TASK_BYTES, OPENS.format(log=str(folder / "opened")))


def opened(folder: Path) -> Counter[str]:
    log = folder / "opened"
    return Counter(log.read_text().split() if log.exists() else ())


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an audit leaves that nothing happens to, beside what it opened."""
    folder = tmp_path_factory.mktemp("quiet")
    command = [sys.executable, "-m", "auditor.cli", "audit", *arguments(folder / "out", PATHS), "--master", "inline[2]"]
    subprocess.run(command, env=os.environ | {"PYTHONPATH": python_path(folder)}, cwd=folder, check=True)
    assert (folder / "out" / "findings.jsonl").read_bytes().count(b"\n") > 20
    return folder


def submit(
    made: Cluster, folder: Path, out: Path, paths: list[str], env: dict[str, str], *more: str
) -> subprocess.Popen[bytes]:
    """The submission, running; what its Pythons open is in ``opened``."""
    path = python_path(folder)
    conf = CONF | {
        "spark.pyspark.python": sys.executable, "spark.pyspark.driver.python": sys.executable,
        **{f"spark.executorEnv.{name}": value for name, value in (env | {"PYTHONPATH": path}).items()},
    }  # fmt: skip
    command = [str(standalone.SPARK_HOME / "bin" / "spark-submit"), "--master", made.master]
    for name, value in conf.items():
        command += ["--conf", f"{name}={value}"]
    command += [str(ROOT / "auditor" / "job.py"), *arguments(out, paths), "--work", str(folder / "kept"), *more]
    with (folder / f"{out.name}.log").open("wb") as log:
        environment = standalone.environment() | env | {"PYTHONPATH": path}
        return subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, env=environment, start_new_session=True)


def ended_well(job: subprocess.Popen[bytes], out: Path, timeout_s: float = 1800) -> None:
    status = job.wait(timeout_s)
    assert status == 0, (out.parent / f"{out.name}.log").read_text(errors="replace")[-5000:]


@pytest.mark.parametrize("number", range(RUNS))
def test_machines_that_come_and_go_change_nothing(
    machines: Cluster, quiet: Path, tmp_path: Path, number: int, record_property: Callable[[str, object], None]
) -> None:
    over, done, expected = threading.Event(), list[str](), opened(quiet)
    job, out = submit(machines, tmp_path, tmp_path / "out", PATHS, {}), tmp_path / "out"
    given = (machines, tmp_path, expected.total(), random.Random(SEED + number), over, done)
    losing = threading.Thread(target=lose, args=given)
    losing.start()
    try:
        ended_well(job, out)
    finally:
        over.set()
        losing.join()
    assert (out / "findings.jsonl").read_bytes() == (quiet / "out" / "findings.jsonl").read_bytes()
    assert tables_of(out) == tables_of(quiet / "out")
    found = opened(tmp_path)
    assert found.keys() == expected.keys()
    size = {path: Path(path).stat().st_size for path in found}
    again = sum(max(0, times - expected[path]) * size[path] for path, times in found.items())
    every = sum(times * size[path] for path, times in expected.items())
    record_property("bytes read twice", again)
    print(f"\nrun {number}: lost {', '.join(done)}; {again} of {every} bytes read again")
    # What was in flight: of an executor, which has one core, a list, and that of a speculative copy.
    assert again <= 2 * len(done) * (TASK_BYTES + max(size.values()))


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[FailingStore]:
    """A store with all corpora, which fails at random."""
    bucket = tmp_path / "bucket"
    for name in INPUTS:
        shutil.copytree(corpora.unpack(name), bucket / name)
    with failing_store.failing(copies=bucket) as server:
        server.manner.faults = [Fault(what, share=0.03) for what in ("SlowDown", "InternalError", BREAKS_OFF)]
        yield server


def bytes_read(server: FailingStore, since: int = 0) -> int:
    """Bytes of segments of clients' topics that were asked for."""
    asked = (r for r in server.log[since:] if r.method == "GET" and r.key.endswith(".log") and "/__" not in r.key)
    return sum(request.size for request in asked)


@pytest.mark.parametrize("number", range(POINTS))
def test_a_driver_that_is_killed_goes_on_where_it_was(
    machines: Cluster, s3: FailingStore, tmp_path: Path, number: int
) -> None:
    """At even points while facts are read, at odd ones while tables are written."""
    env = {name: value for name, value in store.clean_environment(s3.environment()).items() if name.startswith("AWS_")}
    paths, chance = [f"s3://copies/{name}" for name in INPUTS], random.Random(SEED + number)
    where, wanted = ("kept", f"*{FACTS}") if number % 2 == 0 else ("killed/.unfinished", "**/*.parquet")
    count, end = chance.randint(1, 8), time.monotonic() + 1800
    job = submit(machines, tmp_path, tmp_path / "killed", paths, env)
    while len([*(tmp_path / where).glob(wanted)]) < count and job.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    assert job.poll() is None, (tmp_path / "killed.log").read_text(errors="replace")[-5000:]
    os.killpg(job.pid, signal.SIGKILL)
    job.wait()
    standalone.wait_for("the end of its executors", lambda: not processes(machines, EXECUTOR))
    kept, first = len([*(tmp_path / "kept").glob(f"*{FACTS}")]), bytes_read(s3)
    since, out = len(s3.log), tmp_path / "resumed"
    ended_well(submit(machines, tmp_path, out, paths, env, "--resume"), out)
    again = bytes_read(s3, since)
    # The names of log directories are those of the store: the same audit, undisturbed, there.
    expected = tmp_path / "expected"
    command = [sys.executable, "-m", "auditor.cli", "audit", *arguments(expected, paths), "--master", "inline[2]"]
    subprocess.run(command, env=os.environ | env | {"PYTHONPATH": str(ROOT)}, cwd=tmp_path, check=True)
    assert (out / "findings.jsonl").read_bytes() == (expected / "findings.jsonl").read_bytes()
    assert tables_of(out) == tables_of(expected)
    once = sum(p.stat().st_size for p in s3.buckets["copies"].rglob("*.log") if not p.parent.name.startswith("__"))
    print(f"\npoint {number}: killed with {kept} lists kept and {first} bytes read; then {again}; of {once} once")
    if number % 2:  # all facts were kept: tables alone are read, some requests twice
        assert again < 1.5 * once
