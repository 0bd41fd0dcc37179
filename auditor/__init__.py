"""Audits what Kafka brokers write to disk: :func:`open` is the way in.

    import auditor

    audit = auditor.open("/copies/broker-1")
    audit.findings                # objects; a table in a notebook
    audit.table("transactions")   # .to_pandas(), .to_arrow(), .to_spark()

Importing loads nothing but this. A Spark session that runs by then learns the formats ``kafka_log_batches`` and so on;
:func:`register` is for one that starts later.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from auditor.base import VERSION as __version__

if os.path.isfile(os.path.join(os.path.dirname(__file__), "rules")):  # a file where a checkout has a link to rules/
    sys.stderr.write("auditor: this copy has lost its symbolic links (a zip download?): run 'pipx install .' in it\n")
    raise SystemExit(2)

if TYPE_CHECKING:
    from auditor.api.comparisons import Compared, compare
    from auditor.api.objects import Blocked, BlockedPartition, Findings, PolicyOutcome, Table, WhatIf
    from auditor.api.open_options import OpenOptions
    from auditor.api.opened import OpenedAudit, ReplayedBatches, open, replay_batches
    from auditor.base.errors import AuditFailure, AuditInputError
    from auditor.rules.seen.view import Finding
    from auditor.spark.session import register

__all__ = (
    "AuditFailure",
    "AuditInputError",
    "Blocked",
    "BlockedPartition",
    "Compared",
    "Finding",
    "Findings",
    "OpenOptions",
    "OpenedAudit",
    "PolicyOutcome",
    "ReplayedBatches",
    "Table",
    "WhatIf",
    "__version__",
    "compare",
    "open",
    "register",
    "replay_batches",
)
_NAMES = {
    "auditor.api.comparisons": ("Compared", "compare"),
    "auditor.api.opened": ("open", "OpenedAudit", "ReplayedBatches", "replay_batches"),
    "auditor.api.open_options": ("OpenOptions",),
    "auditor.api.objects": ("Blocked", "BlockedPartition", "Findings", "PolicyOutcome", "Table", "WhatIf"),
    "auditor.base.errors": ("AuditFailure", "AuditInputError"),
    "auditor.rules.seen.view": ("Finding",),
    "auditor.spark.session": ("register",),
}
_PLACES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """What is exported, imported when it is first asked for."""
    if name not in _PLACES:
        raise AttributeError(f"module 'auditor' has no attribute {name!r}")
    import importlib

    try:
        value = getattr(importlib.import_module(_PLACES[name]), name)
    except ModuleNotFoundError as error:
        from auditor.base.errors import absent

        raise absent(error.name or "") or error from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


if "pyspark.sql" in sys.modules:  # else no session runs, and nothing of Spark's is loaded for one
    from auditor.spark.session import register_running

    register_running()
