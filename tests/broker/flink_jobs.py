"""A real Flink job in a JVM of its own, which can halt between the pre-commit and the commit of a checkpoint."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.broker.cluster import Cluster
from tests.broker.jars import BUILD, HERE, compiled, resolved

CONNECTORS = {"1.20.1": "3.4.0-1.20", "2.0.0": "4.0.1-2.0"}
PARTS = ("flink-clients", "flink-streaming-java", "flink-runtime", "flink-connector-base", "flink-connector-datagen")
LOGGING = "org.slf4j:slf4j-simple:1.7.36"
OPENED = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in ("lang", "net", "time", "util")]
HALTED = 42
PREFIX, TOPIC = "orders", "numbers"
NUMBERS = 1200
NEWER = 2 * 20  # records of both subtasks in the transactions behind the last checkpoint


def flink_classpath(release: str) -> str:
    """``FlinkJob.java`` compiled against a release of Flink and its connector, with their jars."""
    parts = [f"org.apache.flink:{part}:{release}" for part in PARTS]
    connector = f"org.apache.flink:flink-connector-kafka:{CONNECTORS[release]}"
    jars = resolved(f"flink-{release}", *parts, connector, LOGGING)
    return compiled(HERE / "FlinkJob.java", BUILD / f"flink-{release}", jars)


@dataclass
class FlinkJob:
    """A job that writes the numbers below ``numbers`` to a topic, 100 a second. ``naming``: of its ids, where the
    connector has more than one; ``timeout_ms``: its transaction.timeout.ms."""

    cluster: Cluster
    folder: Path
    release: str
    naming: str = ""
    timeout_ms: int = 600_000
    numbers: int = NUMBERS

    def run(self, restored: Path | None = None, halt: int = 0) -> None:
        """Run it to its end, or to a checkpoint at which it halts; below 0: that many seconds, then a savepoint."""
        words = [
            self.cluster.servers, TOPIC, PREFIX, (self.folder / "checkpoints").as_uri(), str(self.numbers),
            str(self.timeout_ms), str(restored or "-"), str(halt), *filter(None, [self.naming]),
        ]  # fmt: skip
        options = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *OPENED]
        with (self.folder / "flink.out").open("ab") as out:
            ended = subprocess.run(
                ["java", *options, "-cp", flink_classpath(self.release), "FlinkJob", *words],
                stdout=out, stderr=out, check=False, timeout=180,
            )  # fmt: skip
        assert ended.returncode == (HALTED if halt > 0 else 0), (self.folder / "flink.out").read_text()[-3000:]

    def stored(self, name: str) -> Path:
        """The folder of a checkpoint or savepoint that is complete."""
        (metadata,) = (self.folder / "checkpoints").rglob(f"{name}/_metadata")
        return metadata.parent
