"""The read step: from a task to the facts of its copies, and facts at rest, one pickled row a copy.

Readers are loaded by who reads: the driver names this step and never takes it.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import NamedTuple

from auditor.facts.at_rest import at_rest
from auditor.facts.copy_facts import CopyFacts
from auditor.pipeline.context import Brief, brief
from auditor.replay.copy_task import CopyTask, TextTask


class KeptFacts(NamedTuple):
    """The facts of one copy at rest: what names its log and its copy, and pickled its brief and all its facts.

    ``resume_point`` is what the next reading of the copy may be given, empty where nobody asked for it.
    """

    join_key: str
    topic: str
    partition: int
    log_dir: str
    brief: bytes
    facts: bytes
    resume_point: bytes


def read_task(task: CopyTask | TextTask) -> list[CopyFacts]:
    """The facts of a task's copies."""
    if isinstance(task, TextTask):
        from auditor.replay.text_copy import read_text_copies

        return read_text_copies(task)
    from auditor.replay.copy_reader import read_copy

    return [read_copy(task)]


def read_kept(task: CopyTask | TextTask) -> list[KeptFacts]:
    """The same, at rest."""
    return [kept(facts) for facts in read_task(task)]


def kept(facts: CopyFacts) -> KeptFacts:
    """The row of one copy."""
    key = (facts.join_key, facts.topic, facts.partition, facts.log_dir)
    little = at_rest(brief(facts))
    facts.coordinator_log = None  # which every judge gets with its cluster: it travels once
    point, facts.resume_point = facts.resume_point, b""
    return KeptFacts(*key, little, at_rest(facts), point)


def briefs_of(rows: Iterable[bytes]) -> list[Brief]:
    """Pickled briefs as objects, in the order of their copies."""
    return sorted(map(pickle.loads, rows), key=lambda b: (b.join_key, b.topic, b.partition, b.log_dir))
