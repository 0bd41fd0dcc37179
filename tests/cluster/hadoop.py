"""HDFS and YARN on the loopback: Hadoop's own mini clusters from Maven Central, in one JVM."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.broker import jars
from tests.cluster.standalone import SPARK_HOME, wait_for

STARTED_S = 900  # its keys alone take half a minute of CPU
SETTINGS = "conf"


@dataclass(frozen=True)
class Hadoop:
    """``files`` is the URI of its HDFS, ``settings`` the folder that HADOOP_CONF_DIR names for its clients."""

    files: str
    settings: Path


def version() -> str:
    """Hadoop's, as the Spark has it that tests run."""
    (jar,) = (SPARK_HOME / "jars").glob("hadoop-client-api-*.jar")
    return jar.stem.removeprefix("hadoop-client-api-")


def classpath() -> str:
    """The mini clusters, and what they need and do not name themselves."""
    name = f"hadoop-{version()}"
    found = jars.resolved(
        name, f"org.apache.hadoop:hadoop-client-minicluster:{version()}", "org.bouncycastle:bcpkix-jdk18on:1.80",
        "org.junit.jupiter:junit-jupiter-api:5.11.4", "org.slf4j:slf4j-reload4j:1.7.36",
    )  # fmt: skip
    return jars.compiled(Path(__file__).parent / "MiniHadoop.java", jars.BUILD / name, found)


@contextmanager
def running(folder: Path) -> Iterator[Hadoop]:
    """Both of them; gone afterwards. Cost: 400 MB of heap."""
    log = folder / "hadoop.log"
    options = ["-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command = ["java", *options, "-cp", classpath(), "MiniHadoop", str(folder)]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=out, cwd=folder)
    try:
        settings = folder / SETTINGS
        wait_for("Hadoop", lambda: settings.exists() or process.poll() is not None, STARTED_S)
        assert settings.exists(), log.read_text(errors="replace")[-5000:]
        text = (settings / "core-site.xml").read_text(encoding="utf-8")
        found = re.search(r"<name>fs\.defaultFS</name>\s*<value>([^<]+)</value>", text)
        assert found is not None
        yield Hadoop(found[1], settings)
    finally:
        process.kill()
        process.wait()


def shell(cluster: Hadoop, *words: str) -> bytes:
    """What ``hdfs dfs`` prints, Hadoop's own tool."""
    path = f"{cluster.settings}{os.pathsep}{classpath()}"
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", path, "org.apache.hadoop.fs.FsShell", *words]
    return subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
