"""What would else make the first audits slow: ``python -m auditor.spark.warm``, at the end of set-up.

Compiles every kernel that audits use and keeps the machine code, and keeps the classes of Spark's JVM.

Reads the demo's logs in this process, as the workers of an audit and of a what-if would; without this, whoever audits
first waits for it. Where the machine code goes is for :mod:`auditor.base.compiled` to say. Takes half a minute, a
few seconds where nothing changed. The classes (:mod:`auditor.spark.jvm`) take as long again, once.
"""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import replace
from pathlib import Path

from auditor.commands.demo import DEMO
from auditor.connectors.pieces import plan
from auditor.connectors.rows import How, read_piece
from auditor.connectors.schema import DECODED
from auditor.inline.runner import InlineRunner
from auditor.model.policies import POLICIES
from auditor.pipeline.audit import Audit
from auditor.pipeline.options import AuditOptions
from auditor.replay.copy_reader import CopyTask, read_copy
from auditor.replay.copy_task import PolicySettings
from auditor.spark import jvm
from auditor.spark.session import find_java


def warm(logs: Path) -> None:
    """Reads all copies below ``logs`` with and without their records, one under every policy, and all tables."""
    for records in (True, False):
        options = AuditOptions((str(logs),), logs, records=records)
        with contextlib.closing(InlineRunner(1)) as runner:
            audit = Audit(options, runner)
            copies = [task for task in audit.tasks if isinstance(task, CopyTask)]
        for task in copies:
            read_copy(task)
    for piece in plan(audit.inventory, frozenset(DECODED)):
        for _ in read_piece(piece, frozenset(DECODED), How()):
            pass  # only the reading counts
    largest = max(copies, key=lambda t: sum(f.size for f in t.copy.files()))
    read_copy(replace(largest, policies=tuple(PolicySettings(name, policy) for name, policy in POLICIES.items())))


def keep_classes() -> None:
    """Runs the demo in a process of its own, for its JVM to keep its classes."""
    if (java := find_java()) is not None:
        with tempfile.TemporaryDirectory() as out:
            demo = ("-m", "auditor.cli", "demo", "--quiet", "--master", "local[2]", "--out", out)
            jvm.make_archive(java, demo)


if __name__ == "__main__":
    warm(DEMO / "logs")
    keep_classes()
