"""More input never removes or lowers a finding, unless what was added has a record that contradicts it.

Each input is changed in the ways of :mod:`tests.transformations`. What is above info with less evidence may be neither
gone nor lower with more, and what is added but says nothing about the cluster changes nothing. A run takes some inputs,
each with one change of each kind; the nightly run takes all inputs, ``MONOTONE=all`` all changes of all inputs; another
word takes other ones.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from auditor.rules.seen.view import SEVERITIES, Finding
from tests import corpora
from tests.audited import above_info
from tests.conftest import NIGHTLY
from tests.facts import opened
from tests.transformations import JUMPED, UNRELATED, Transformation, every, some
from tests.whole.test_files_that_are_absent import link
from tests.whole.test_untidy_clusters import NO_MOMENTS

WHICH = os.environ.get("MONOTONE", "all inputs" if NIGHTLY else "")
INCIDENTS = [f"incident {name}" for name in corpora.incidents()]
CORPORA = [*corpora.judged(), *corpora.campaigns()]

# Why what was added contradicts a finding: by the kind of change and those of findings. At most ten.
EXCEPTIONS = {
    ("without __cluster_metadata", "replica-divergence"): "its replica sets show that a record was never committed",
    ("without __cluster_metadata", "unknown-coordinator-epoch"): "it has the new coordinator's leader epoch",
    ("without __cluster_metadata", "unknown-producer-first-sequence"): "it has the removal of the topic",
    ("without a log directory", "coordinator-log-starts-late"): "its coordinators' log is not in the metadata's topic",
    ("without a log directory", "unclean-election"): "the old leader's log shows that no record was lost",
    ("without cleaner-offset-checkpoint", "offset-hole"): "its entry shows that a cleaner removed these offsets",
    ("without log-start-offset-checkpoint", "unknown-producer-first-sequence"): "its entry shows deleted records",
    (
        "without meta.properties",
        "coordinator-log-starts-late",
        "long-open-transaction",
    ): "cluster ids tell clusters apart",
    ("without partition.metadata", "replica-divergence", "late-write-after-marker"): "topic ids tell topics apart",
    ("without server.properties", "timeout-not-enforced"): "it sets how often the coordinator looks",
}
# What breaks it still: by the kind of change the kinds of findings (none named: any), and the kind of issue 52.
OPEN_LONG = ("timeout-not-enforced", "long-open-transaction")
WAITING: dict[str, tuple[tuple[str, ...], str]] = {}
LARGE_BYTES = 300_000  # of an archive: its audits take seconds


class Broken(NamedTuple):
    """A finding that a change of the input should have left as it is."""

    how: str  # lost, lowered or new
    change: Transformation
    finding: Finding

    def __str__(self) -> str:
        f, change = self.finding, f"{self.change.kind} ({self.change.name}) {self.how}"
        return f"{change}: {f.severity} {f.kind} {f.topic}-{f.partition} @{f.offset} {f.message}"


def folder_of(name: str) -> Path:
    kind, _, incident = name.partition(" ")
    return corpora.unpack("incidents") / incident / "input" if incident else corpora.unpack(kind)


def audited(root: Path) -> list[Finding]:
    """At the newest time of the input: it must not depend on what was added either."""
    return opened(root).findings


def covers(one: Finding, other: Finding) -> bool:
    """Whether a finding is about the other one's subject: the same, one that explains it, or of the same records."""
    if _subject(one) == _subject(other) or _explains(one, other) or _explains(other, one):
        return True
    if one.kind == other.kind == "clock-skew":  # it names one partition of those that show it
        return bool(one.evidence["brokers"] == other.evidence["brokers"])
    if other.partition is None or (one.topic, one.partition) != (other.topic, other.partition):
        return False
    if one.offset is None or other.offset is None:
        return one.kind == other.kind or (one.producer_id is not None and one.producer_id == other.producer_id)
    same = one.producer_id == other.producer_id or None in (one.producer_id, other.producer_id)
    return same and _last(one) >= other.offset and _last(other) >= one.offset


def _subject(f: Finding) -> tuple[object, ...]:
    return (f.kind, f.topic, f.partition, f.offset, f.producer_id, f.transactional_id, f.group_id)


def _explains(one: Finding, other: Finding) -> bool:
    explained = [(also["rule"], also["topic"], also["partition"]) for also in one.evidence.get("also", ())]
    return (other.kind, other.topic, other.partition) in explained


def _last(f: Finding) -> int:
    return f.last_offset if f.last_offset is not None else int(f.offset or 0)


def gone(less: list[Finding], more: list[Finding], change: Transformation) -> Iterator[Broken]:
    """What is above info with less, and lower or not there with more."""
    for f in above_info(less):
        same = [m for m in more if covers(m, f)]
        if not any(SEVERITIES.index(m.severity) <= SEVERITIES.index(f.severity) for m in same):
            yield Broken("lowered" if same else "lost", change, f)


def appeared(less: list[Finding], more: list[Finding], change: Transformation) -> Iterator[Broken]:
    """What is above info with something added that is not about it."""
    for f in above_info(more):
        if not any(covers(m, f) for m in above_info(less)) and not rests_on(f, change.paths):
            yield Broken("new", change, f)


def rests_on(f: Finding, paths: tuple[str, ...]) -> bool:
    """Whether a finding is about files below one of these paths, or names the partition that is one of them."""
    partitions = {f"{UNRELATED}-0", f"{JUMPED}-0"} & {Path(path).name for path in paths}
    return any(text in f.to_json() for text in (*paths, *partitions)) or f.topic in (UNRELATED, JUMPED)


def broken(before: list[Finding], after: list[Finding], change: Transformation) -> Iterator[Broken]:
    if change.kind.startswith("without"):
        yield from gone(after, before, change)
    else:
        yield from gone(before, after, change)
        yield from appeared(before, after, change)


def chosen(name: str) -> list[Transformation]:
    root = folder_of(name)
    found = list(every(root)) if WHICH == "all" else some(root, f"{name} {WHICH}")
    return [one for one in found if not (name in NO_MOMENTS and one.kind == "add an older backup")]


def inputs() -> list[str]:
    found = [*INCIDENTS, *CORPORA]
    if WHICH not in ("all", "all inputs"):
        small = [name for name in CORPORA if corpora.archive(name).stat().st_size < LARGE_BYTES]
        chance = random.Random(WHICH)
        found = [*chance.sample(INCIDENTS, 12), *chance.sample(small, 4)]
    return found


def waits(one: Broken) -> bool:
    if one.change.kind not in WAITING:
        return False
    kinds, _ = WAITING[one.change.kind]
    return not kinds or one.finding.kind in kinds


def is_excepted(one: Broken) -> bool:
    return any(one.change.kind == change and one.finding.kind in kinds for change, *kinds in EXCEPTIONS)


def is_about(one: Broken) -> bool:
    """Whether it names the file that was taken away."""
    file = str(one.finding.evidence.get("file")).rpartition("/")[2]
    return one.finding.kind == "start-fails" and one.change.kind == f"without {file}"


@pytest.mark.parametrize("name", inputs())
def test_more_input_removes_no_finding(name: str, tmp_path: Path) -> None:
    before, found = audited(folder_of(name)), []
    for number, change in enumerate(chosen(name)):
        root = tmp_path / str(number) / "input"
        shutil.copytree(folder_of(name), root, copy_function=link)
        change.make(root)
        found += list(broken(before, audited(root), change))
        shutil.rmtree(root)
    found = [one for one in found if not is_excepted(one) and not is_about(one)]
    assert not [str(one) for one in found if not waits(one)]
    if found:
        pytest.xfail("; ".join(sorted({f"issue 52, kind {WAITING[one.change.kind][1]}" for one in found})))


def test_exceptions_are_few() -> None:
    assert len(EXCEPTIONS) <= 10
