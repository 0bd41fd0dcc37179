"""The read step of this machine's processes with a work folder: what is there is not read, and what is read goes there
a GiB at a time.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from auditor.base.errors import is_unread
from auditor.inline.kept_replicas import KeptReplicas
from auditor.pipeline.plan import TASK_BYTES, file_bytes
from auditor.pipeline.runner import KeptFacts, Replicas, kept
from auditor.pipeline.work_folder import HALF, WorkFolder, identities, is_kept
from auditor.replay.reading.task import ReplicaTask, TextTask

if TYPE_CHECKING:
    from auditor.facts.replica_facts import ReplicaFacts

AnyTask = ReplicaTask | TextTask


def read(
    tasks: Sequence[AnyTask],
    work: WorkFolder,
    read_others: Callable[[Sequence[AnyTask]], Replicas],
    notes: list[str],
) -> KeptReplicas:
    """The facts of all tasks; ``read_others`` reads what the work folder lacks, a list after the other. ``notes``: gets
    what is left alone there."""

    def found() -> Iterator[KeptFacts]:
        mine = [task for task in tasks if isinstance(task, ReplicaTask) and is_kept(task)]
        named = list(zip(mine, identities(mine), strict=True))
        there, left_alone = known = work.known()
        rows: dict[str, list[int]] = {}
        for at in sorted(there[identity] for identity in {i for _, i in named} if identity in there):
            rows.setdefault(at.file, []).append(at.row)
        for file, numbers in rows.items():
            if (at_rest := work.facts(file, numbers)) is None:
                left_alone[file] = HALF
            else:
                yield from map(kept, at_rest)
        notes[:] = known.notes([identity for _, identity in named])
        for some in _lists([one for one in named if one[1] not in there or there[one[1]].file in left_alone]):
            yield from _read_list(some, work, read_others)
        if others := [task for task in tasks if not is_kept(task)]:
            yield from read_others(others).rows()

    return KeptReplicas(found)


def _lists(named: list[tuple[ReplicaTask, bytes]]) -> Iterator[list[tuple[ReplicaTask, bytes]]]:
    some: list[tuple[ReplicaTask, bytes]] = []
    size = 0
    for one in named:
        some.append(one)
        size += file_bytes(one[0])
        if size >= TASK_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some


def _read_list(
    named: list[tuple[ReplicaTask, bytes]], work: WorkFolder, read_others: Callable[[Sequence[AnyTask]], Replicas]
) -> Iterator[KeptFacts]:
    of = {(t.join_key, t.replica.topic, t.replica.partition, t.replica.log_dir): identity for t, identity in named}
    whole: list[tuple[bytes, ReplicaFacts]] = []
    for row in read_others([task for task, _ in named]).rows():
        facts: ReplicaFacts = pickle.loads(row.facts)  # of a process of our own
        if (identity := of.get(row[:4])) is not None and not any(is_unread(e.reason, e.detail) for e in facts.errors):
            whole.append((identity, facts))
        yield row
    work.keep(whole, [identity for _, identity in named])
