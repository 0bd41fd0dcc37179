"""A standalone Spark cluster on the loopback interface: a master and workers, each a JVM of this test run."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

SPARK_HOME = Path(pyspark.__file__).parent
STARTED_S = 600  # beside other work a JVM takes minutes
LOOPBACK = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
# An executor may have nothing but a bare Python: what it needs, the job ships.
BARE_PYTHON = getattr(sys, "_base_executable", sys.executable)


def environment() -> dict[str, str]:
    """The environment of Spark's own processes: nothing of this project in it."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "SPARK"))}
    quiet = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    return env | {
        "SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": quiet,
    }  # fmt: skip


@dataclass
class Node:
    """A master or a worker: its process, its log, and for a worker the folder of its executors."""

    process: subprocess.Popen[bytes]
    log: Path
    work: Path

    def kill(self) -> None:
        """Ends it at once, as a machine that fails would."""
        self.process.kill()
        self.process.wait()


@dataclass
class Cluster:
    """``master`` is its URL."""

    folder: Path
    master: str = ""
    nodes: list[Node] = field(default_factory=list)

    @property
    def workers(self) -> list[Node]:
        """The workers, in the order they were started."""
        return self.nodes[1:]

    def start(self, name: str, *args: str) -> Node:
        """Starts a master or worker; its log and work folder lie in the cluster's."""
        log, work = self.folder / f"{name}.log", self.folder / name
        command = [str(SPARK_HOME / "bin" / "spark-class"), *args]
        with log.open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out, cwd=self.folder, env=environment())
        node = Node(process, log, work)
        self.nodes.append(node)
        return node

    def add_worker(self) -> Node:
        """Starts a worker of one core and 1 GiB."""
        name = f"worker-{len(self.workers)}"
        size = ("--cores", "1", "--memory", "1g", "--work-dir", str(self.folder / name))
        return self.start(name, "org.apache.spark.deploy.worker.Worker", *LOOPBACK, *size, self.master)


def wait_for(what: str, found: Callable[[], object], timeout_s: float = STARTED_S) -> None:
    """Waits until something is there. Errors: TimeoutError."""
    end = time.monotonic() + timeout_s
    while not found():
        if time.monotonic() > end:
            raise TimeoutError(f"{what} not seen within {timeout_s} s")
        time.sleep(0.2)


@contextmanager
def cluster(folder: Path, workers: int) -> Iterator[Cluster]:
    """A running cluster whose workers have one core and 1 GiB each; its processes are gone afterwards."""
    made = Cluster(folder)
    try:
        master = made.start("master", "org.apache.spark.deploy.master.Master", *LOOPBACK)
        url = re.compile(r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
        wait_for("the master", lambda: url.search(master.log.read_text(errors="replace")))
        found = url.search(master.log.read_text(errors="replace"))
        assert found is not None
        made.master = found[1]
        for _ in range(workers):
            made.add_worker()
        registered = "Successfully registered with master"
        for worker in made.workers:
            wait_for("a worker", lambda log=worker.log: registered in log.read_text(errors="replace"))
        yield made
    finally:
        for node in reversed(made.nodes):
            if node.process.poll() is None:
                node.process.send_signal(signal.SIGTERM)
        for node in made.nodes:
            try:
                node.process.wait(30)
            except subprocess.TimeoutExpired:
                node.kill()
