"""What would else make the first audits slow: ``python -m auditor.spark.warm [run]``, at the end of set-up.

Compiles every kernel that audits use and keeps the machine code, and keeps the classes of Spark's JVM. With ``run``,
for ``make demo``, what only a what-if and tables use is left to the first of these: a quarter of the time.

Reads the demo's logs in this process, as the workers of an audit and of a what-if would; without this, whoever audits
first waits for it. Where the machine code goes is for :mod:`auditor.base.compiled` to say. Takes half a minute, a
few seconds where nothing changed. The classes (:mod:`auditor.spark.jvm`) take as long again, once.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from auditor.connectors.inventory import discover
from auditor.connectors.pieces import plan
from auditor.connectors.rows import How, read_piece
from auditor.connectors.schema import DECODED
from auditor.model.policies import POLICIES
from auditor.pipeline import cluster_settings
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.plan import copy_tasks, segment_tasks
from auditor.replay.chunks import read_packed
from auditor.replay.copy_reader import CopyReader, read_copy
from auditor.replay.copy_task import CopyTask, PolicySettings
from auditor.spark import jvm
from auditor.spark.session import find_java
from auditor.spark.split import arriving

DEMO = Path(__file__).parents[1] / "demo"


def warm(logs: Path, audits_only: bool = False) -> None:
    """Reads all copies below ``logs`` with and without their records; then one under every policy, one in
    parts, and all tables."""
    for records in (True, False):
        options = AuditOptions((str(logs),), logs, records=records)
        inventory = discover([str(logs)])
        settings, _ = cluster_settings.read_settings(inventory, options.limits)
        copies = [task for task in copy_tasks(inventory, settings, options) if isinstance(task, CopyTask)]
        for task in copies:
            read_copy(task)
    largest = max(copies, key=lambda t: t.copy.size)
    if audits_only:
        return
    for piece in plan(inventory, frozenset(DECODED)):
        for _ in read_piece(piece, frozenset(DECODED), How()):
            pass  # only the reading counts
    read_copy(replace(largest, policies=tuple(PolicySettings(name, policy) for name, policy in POLICIES.items())))
    _read_in_parts(largest)


def _read_in_parts(task: CopyTask) -> None:
    """Reads a copy as the two stages for large ones do."""
    rows = [row for part in segment_tasks([task]) for row in read_packed(part)]
    CopyReader(task, arriving(iter(rows))).run()


def keep_classes() -> None:
    """Runs the demo in a process of its own, for its JVM to keep its classes; nothing where Spark is not installed."""
    if find_spec("pyspark") is not None and (java := find_java()) is not None:
        with tempfile.TemporaryDirectory() as out:
            demo = ("-m", "auditor.cli", "demo", "--quiet", "--master", "local[2]", "--out", out)
            jvm.make_archive(java, demo)


if __name__ == "__main__":
    warm(DEMO / "logs", audits_only="run" in sys.argv[1:])
    keep_classes()
