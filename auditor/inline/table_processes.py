"""The tasks that write tables, in processes of this machine."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from auditor.base.errors import DecodeError
from auditor.inline.kept_replicas import KeptReplicas, Log, lists
from auditor.pipeline import summary, table_parts, table_tasks
from auditor.pipeline.derived_tables import Keyed, shares_of
from auditor.pipeline.table_tasks import Part, Wanted
from auditor.processes.isolation import KILLS, Pool

if TYPE_CHECKING:
    from auditor.pipeline.runner import Audited
    from auditor.rules.seen.cluster_view import Cluster


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
        replicas, clusters = audit.replicas, summary.clusters_for(audit, wanted.derived)
        assert isinstance(replicas, KeptReplicas)
        logs = list(enumerate(lists(replicas, pool.size)))
        if wanted.of_logs:
            for _, parts in pool.map(logs, partial(_derive, wanted, clusters), reads=False):
                found += parts
        if wanted.of_all:
            found += _gather(pool, wanted, clusters, logs)
    return found


def _gather(pool: Pool, wanted: Wanted, clusters: dict[str, Cluster], logs: Sequence[Any]) -> list[Part]:
    """The table that all logs have a share in."""
    shares: dict[tuple[str, int], list[bytes]] = {}
    for _, found in pool.map(logs, partial(_shares, clusters), reads=False):
        for join_key, partition, share in found:
            shares.setdefault((join_key, partition), []).append(share)
    tasks = [(number, (*key, mine)) for number, (key, mine) in enumerate(sorted(shares.items()))]
    return [part for _, parts in pool.map(tasks, partial(_gathered, wanted, clusters), reads=False) for part in parts]


def _shares(clusters: dict[str, Cluster], numbered: tuple[int, Iterable[Log]]) -> list[Keyed]:
    return [
        share
        for join_key, facts in numbered[1]
        for share in shares_of(join_key, [pickle.loads(one) for one in facts], clusters[join_key])
    ]


def _gathered(
    wanted: Wanted, clusters: dict[str, Cluster], numbered: tuple[int, tuple[str, int, list[bytes]]]
) -> list[Part]:
    return table_tasks.gather(wanted, clusters, numbered[0], [numbered[1]])


def _derive(wanted: Wanted, clusters: dict[str, Cluster], numbered: tuple[int, Iterable[Log]]) -> list[Part]:
    return table_tasks.derive(wanted, clusters, *numbered)


def _named(audit: Audited, refused: dict[str, str]) -> Iterator[tuple[str, DecodeError]]:
    """Files that killed, by log directory and name."""
    for log_dir in audit.inventory.log_dirs:
        for file in log_dir.files():
            path = f"{(file.place or log_dir.place).path}/{file.name}"
            if refused.get(path, "").startswith(KILLS):
                yield log_dir.name, DecodeError(file.name, 0, file.size, "unreadable", refused[path])
