"""Whether an audit keeps facts, and where (``--work``). Loads what reads them only where it does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from auditor.base.errors import AuditInputError
from auditor.pipeline.options import AuditOptions
from auditor.replay.reading.task import ReplicaTask, TextTask

if TYPE_CHECKING:
    from auditor.pipeline.work_folder import WorkFolder


def folder(options: AuditOptions) -> WorkFolder | None:
    """Where facts are kept. Errors: :class:`AuditInputError` where there is nothing to resume."""
    if options.work is None:
        return None
    from auditor.pipeline.work_folder import WorkFolder

    work = WorkFolder(options.work)
    if options.resume and not work.is_begun():
        raise AuditInputError("--work holds nothing to resume; check its path, or leave --resume out")
    return work


def under_its_key(tasks: Sequence[ReplicaTask | TextTask], options: AuditOptions) -> Sequence[ReplicaTask | TextTask]:
    """The tasks, what replicas are compared by under a key that outlives this process where facts do."""
    work = folder(options)
    return tasks if work is None else under_key(tasks, work.key())


def under_key(tasks: Sequence[ReplicaTask | TextTask], key: bytes) -> list[ReplicaTask | TextTask]:
    """The tasks, what replicas are compared by under another key."""
    return [replace(t, digests=key) if isinstance(t, ReplicaTask) and t.digests else t for t in tasks]
