"""The tasks that write tables, in processes of this machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from auditor.base.errors import DecodeError
from auditor.inline.kept_replicas import KeptReplicas, Log, lists
from auditor.pipeline import group_positions, table_parts, table_tasks
from auditor.pipeline.isolation import KILLS, Pool
from auditor.pipeline.table_tasks import Part, Wanted

if TYPE_CHECKING:
    from auditor.pipeline.runner import Audited
    from auditor.rules.view import Cluster


def run(pool: Pool, audit: Audited, wanted: Wanted) -> list[Part]:
    """Runs them. Files that kill their reader go to ``audit.fatal``."""
    refused = audit.refused()
    known = dict(refused)
    shares = list(enumerate(table_parts.lists(audit, wanted, pool.size, pool, refused)))
    found = [
        part
        for _, parts in pool.map(shares, partial(table_tasks.decode, wanted), refused=refused, rows=wanted.has_errors)
        for part in parts
    ]
    audit.fatal += sorted(_named(audit, {path: why for path, why in refused.items() if path not in known}))
    if wanted.derived:
        replicas, clusters = audit.replicas, group_positions.clusters_for(audit, wanted.derived)
        assert isinstance(replicas, KeptReplicas)
        logs = list(enumerate(lists(replicas, pool.size)))
        for _, parts in pool.map(logs, partial(_derive, wanted, clusters), reads=False):
            found += parts
    return found


def _derive(wanted: Wanted, clusters: dict[str, Cluster], numbered: tuple[int, Iterable[Log]]) -> list[Part]:
    return table_tasks.derive(wanted, clusters, *numbered)


def _named(audit: Audited, refused: dict[str, str]) -> Iterator[tuple[str, DecodeError]]:
    """Files that killed, by log directory and name."""
    for log_dir in audit.inventory.log_dirs:
        for file in log_dir.files():
            path = f"{(file.place or log_dir.place).path}/{file.name}"
            if refused.get(path, "").startswith(KILLS):
                yield log_dir.name, DecodeError(file.name, 0, file.size, "unreadable", refused[path])
