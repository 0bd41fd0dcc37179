"""How the driver's JVM is started, and the archive of its classes that makes it start in half the time.

Spark loads and verifies some ten thousand classes from 280 jars at each start; with an archive (class-data sharing,
JEP 350) the JVM maps them as they were. It is made once, by :mod:`auditor.spark.warm`, into the environment that
Spark is installed in, and is of no use to another Java or Spark: its name says both, and the JVM checks every jar.
Where there is none, everything works as it does with it, four seconds later.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
KEPT = Path(sys.prefix, "share", "kafka-log-auditor")
ARCHIVE = (
    "AUDITOR_ARCHIVE_CLASSES_AT_EXIT"  # the file that a session's JVM is to write, set by auditor.spark.warm alone
)
# Short runs: compile fast rather than well, and collect with one thread.
SHORT = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
OPTIONS = ("-Xshare:auto", "-Xlog:disable")  # what the archive's check says is no news


def archive(java: str) -> Path:
    """Where the archive of this Java and Spark is or would be. Cost: a stat of the ``java`` file."""
    from pyspark import __version__  # not the installation's: a Spark that was unpacked says nothing there

    found = Path(java).resolve()
    depends_on = f"{found} {found.stat().st_mtime_ns} {__version__}"
    name = f"spark-{hashlib.sha256(depends_on.encode()).hexdigest()[:16]}.jsa"
    return KEPT / name


def spark_home() -> str | None:
    """Where pyspark has Spark; None where it has to look itself.

    pyspark looks first into the directory above the working directory, and would start a ``bin/spark-submit`` there
    (``pyspark.find_spark_home``), which may come with the input.
    """
    import pyspark

    package = Path(pyspark.__file__).resolve().parent
    for home in (package / "spark-distribution", package, package.parents[1]):
        if (home / "bin" / "spark-submit").is_file() and (home / "jars").is_dir():
            return str(home)
    return None


def options(java: str | None, *, short: bool = True) -> str:
    """``spark.driver.extraJavaOptions``; ``short``: of a driver that has no cluster to wait for.

    Settings of the logging come by path: with an archive no folder on the class path may hold files, and there is where
    Spark puts its folder of settings.
    """
    always = SHORT + OPTIONS if short else OPTIONS
    chosen = [*always, f'"-Dlog4j2.configurationFile={(HERE / "log4j2.properties").as_uri()}"']
    if made := os.environ.get(ARCHIVE):
        chosen.append(f'"-XX:ArchiveClassesAtExit={made}"')
    elif java is not None and (kept := archive(java)).is_file():
        chosen.append(f'"-XX:SharedArchiveFile={kept}"')
    return " ".join(chosen)


def make_archive(java: str, arguments: Sequence[str]) -> Path | None:
    """Runs Python with ``arguments``, which starts a session, and keeps its classes; None where it cannot.

    Cost: half a minute and 160 MB of disk, once.
    """
    kept = archive(java)
    if kept.is_file():
        return kept
    part = kept.with_suffix(f".{os.getpid()}.part")
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    # The JVM outlives the Python that started it; its end is that of its output.
    subprocess.run(
        [sys.executable, *arguments], env=os.environ | {ARCHIVE: str(part)}, capture_output=True, check=False
    )
    if not part.is_file():
        return None
    part.replace(kept)
    return kept
