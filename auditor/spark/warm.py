"""Warm-up at the end of set-up: ``python -m auditor.spark.warm [run]`` compiles kernels and archives JVM classes.

With ``run``, for ``make demo``, what only a what-if and tables use is left to the first of these: a quarter of the
time.

Reads the demo's logs in this process, as the workers of an audit and of a what-if would; without this, the first audit
waits for it. The location of machine code is decided by :mod:`auditor.base.code_cache`. Takes half a minute, a few
seconds where nothing changed. The classes (:mod:`auditor.spark.session`) take as long again, once.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from auditor.connectors.logdir.inventory import discover
from auditor.connectors.schema import DECODED
from auditor.connectors.tables.input_splits import plan
from auditor.connectors.tables.rows import How, read_piece
from auditor.model.policies import POLICIES
from auditor.pipeline import cluster_settings
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.plan import replica_tasks, segment_tasks
from auditor.replay.reading.chunks import read_packed
from auditor.replay.reading.replica_reader import ReplicaReader, read_replica
from auditor.replay.task import PolicySettings, ReplicaTask
from auditor.spark import session
from auditor.spark.session import find_java

DEMO = Path(__file__).parents[1] / "demo"


def warm(logs: Path, audits_only: bool = False) -> None:
    """Read all replicas below ``logs`` with and without records, one under all policies and in parts, and tables."""
    for records in (True, False):
        options = AuditOptions((str(logs),), logs, records=records)
        inventory = discover([str(logs)])
        settings, _ = cluster_settings.read_settings(inventory, options.limits)
        replicas = [task for task in replica_tasks(inventory, settings, options) if isinstance(task, ReplicaTask)]
        for task in replicas:
            read_replica(task)
    largest = max(replicas, key=lambda t: t.replica.size)
    if audits_only:
        return
    for piece in plan(inventory, frozenset(DECODED)):
        for _ in read_piece(piece, frozenset(DECODED), How()):
            pass  # only the reading counts
    read_replica(replace(largest, policies=tuple(PolicySettings(name, policy) for name, policy in POLICIES.items())))
    _read_in_parts(largest)


def _read_in_parts(task: ReplicaTask) -> None:
    """Reads a replica as the two stages for large ones do."""
    from auditor.spark.jobs import arriving  # imports pyspark, which "make demo" does not install

    rows = [row for part in segment_tasks([task]) for row in read_packed(part)]
    ReplicaReader(task, arriving(iter(rows))).run()


def keep_classes() -> None:
    """Run the demo in a process of its own, for its JVM to archive its classes; nothing without Spark."""
    if find_spec("pyspark") is not None and (java := find_java()) is not None:
        with tempfile.TemporaryDirectory() as out:
            demo = ("-P", "-m", "auditor.cli", "demo", "--quiet", "--master", "local[2]", "--out", out)
            session.make_archive(java, demo)


if __name__ == "__main__":
    warm(DEMO / "logs", audits_only="run" in sys.argv[1:])
    keep_classes()
