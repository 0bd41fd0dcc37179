"""How many processes ``--master inline`` means. Imports next to nothing: workers start to load before all else."""

from __future__ import annotations

import os
import re

from auditor.base.errors import AuditInputError

MASTER = re.compile(r"inline(?:\[(\*|[1-9]\d{0,3})\])?")


def processes_of(master: str) -> int:
    """How many processes ``inline``, ``inline[*]`` or ``inline[N]`` means. Errors: :class:`AuditInputError`."""
    found = MASTER.fullmatch(master)
    if found is None:
        raise AuditInputError(f"--master {master!r} is none; give inline, inline[N], local[N] or the URL of a Spark")
    if found[1] in (None, "*"):
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(found[1])
