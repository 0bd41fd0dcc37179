"""No healthy cluster is accused of what is only untidy: a clock that is off, directories of different moments, a folder
that was not copied, some of the brokers.

Each case alters a real cluster's directories in one way that leaves it sound. What may be said of it then is written
down here, in :func:`may`: nothing else is above info that was not before. A run takes one case of each cluster, the
nightly one ten, ``UNTIDY=all`` all; ``UNTIDY`` with another word takes other ones.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import pytest

from auditor.rules.seen.view import SEVERITIES, Finding
from tests import corpora
from tests.audited import above_info
from tests.broker_clocks import settable, shift
from tests.cluster_writers import Writers, partitions
from tests.conftest import NIGHTLY
from tests.earlier_states import MARK, cut, moments, own, producers_at
from tests.facts import opened
from tests.forge import Forged
from tests.whole.test_corpus_findings import ACCUSED, allowed, matches
from tests.whole.test_files_that_are_absent import link

WHICH = os.environ.get("UNTIDY", "")
AT_ONCE = 10 if NIGHTLY else 1  # cases of a cluster, each of another group as far as there are several
OFF = {"5 s": 5_000, "40 s": 40_000, "2 h": 7_200_000}
SKEW_MS = 30_000  # from where on it is a warning that two brokers' clocks differ

ABSENT = ("a folder is gone", "a folder is gone everywhere", "some brokers")
# What is true of one cluster made so.
TRUE_SO = {
    # Before its marker was written by hand.
    ("remedied-43", "a directory is older"): "hanging-transaction",
    # What was deleted later cannot be brought back: the earlier state has the log starts of the later one.
    ("expiry-unknown-43", "a directory is older"): "committed-offset-out-of-range",
    # The election is in the metadata; that nothing was lost by it only the copy of the leader before can show.
    ("replicas-39-unclean", "some brokers"): "unclean-election",
    ("replicas-39-unclean", "a folder is gone"): "unclean-election",
}
# Cases that a healthy cluster was accused in, or an incident's cause mistaken: they are tried in every run.
ONCE_ACCUSED = {
    "in-turn-43": "a clock is off 1 -40 s",  # of another broker: one had decided what another one completed
    "trimmed-11": "a clock is off 1 +40 s",
    "trimmed-28": "a clock is off 1 +2 h",
    "expiry-unknown-43": "a clock is set 1 -2 h",
    "lively-39": "a clock is set 1 -40 s",
    "live-41": "a clock is off 1 +2 h",
    "remedied-43": "a directory is older broker-2 2",
    "replicas-39-unclean": "some brokers broker-2 broker-3",
}
NO_CLOCKS = {
    "legacy-0102": "messages of magic 0 and 1",
    "altered-41": "damaged batches",
}
NO_MOMENTS = NO_CLOCKS | {
    "clock-step5-43": "its clock went back: no moment divides it",
    "old-stamps-36": "data has the times of events, which tell nothing of when it was written",
    "backfill-hourly-43": "the same",
    "groups-43": "what Kafka Streams writes has the times of its input",
    "regrouped-43": "the same",
}


class Case(NamedTuple):
    """A way in which a cluster is untidy; ``make`` alters a copy of its directories."""

    kind: str
    name: str
    make: Callable[[Path], None]
    broker: int | None = None  # whose clock is off
    by: int = 0  # ms


def may(case: Case, f: Finding) -> bool:
    """Whether it may be said above info of what a case made, though it was not said of the cluster as it was."""
    if f.kind == "coordinator-log-starts-late":  # without a part of it, or with another broker's copy alone
        return case.kind in ABSENT
    if f.kind == "clock-skew":  # that of two brokers, or that a clock went back
        its_own = case.kind == "a clock is set"  # forward too: stamps of before may come behind it
        return case.broker in f.evidence["brokers"] and (abs(case.by) > SKEW_MS or its_own)
    # Two hours behind its clients a broker has data from its future, and would refuse it from 3.6 on.
    return f.kind in ("timestamp-out-of-range", "producer-timestamp-skew") and case.by < -3_600_000


def cases(corpus: str) -> Iterator[Case]:
    """All of a cluster."""
    for group in groups(corpus):
        yield from group(corpora.unpack(corpus))


def groups(corpus: str) -> list[Callable[[Path], Iterator[Case]]]:
    """What a cluster can be made untidy by."""
    several = len(list(corpora.unpack(corpus).glob("broker-*/"))) > 1
    clocks_of = [] if corpus in NO_CLOCKS else [clocks]
    moments_of = [] if corpus in NO_MOMENTS else [_moments]
    return [*clocks_of, *moments_of, _folders, *([_brokers] if several else [])]


def clocks(root: Path) -> Iterator[Case]:
    kind = "a clock is set" if (root / "remote").is_dir() else "a clock is off"  # there stays what was there before
    for broker in sorted(set(Writers(root).ids.values())):
        for words, by in OFF.items():
            for signed, sign in ((by, "+"), (-by, "-")):
                off = partial(shift, broker=broker, by=signed)
                yield Case(kind, f"{broker} {sign}{words}", off, broker, signed)
                if (since := settable(root, broker, signed)) is not None:
                    make = partial(shift, broker=broker, by=signed, since=since)
                    yield Case("a clock is set", f"{broker} {sign}{words}", make, broker, signed)


def _moments(root: Path) -> Iterator[Case]:
    for directory in sorted(root.glob("broker-*/")):
        for number, moment in enumerate(moments(directory, 3)):
            for clean in (True, False) if (directory / MARK).exists() else (False,):
                kind = "a directory is older" + (", clean" if clean else "")
                yield Case(kind, f"{directory.name} {number}", partial(_older, directory.name, moment, clean))


def _older(name: str, moment: int, clean: bool, root: Path) -> None:
    own(root / name)
    cut(root / name, moment, clean=clean)


def _folders(root: Path) -> Iterator[Case]:
    directories = sorted(root.glob("broker-*/"))
    for name in sorted({path.name for directory in directories for path in partitions(directory)}):
        having = tuple(directory.name for directory in directories if (directory / name).is_dir())
        yield Case("a folder is gone everywhere", name, partial(_without, having, name))
        for directory in having if len(having) > 1 else ():
            yield Case("a folder is gone", f"{directory} {name}", partial(_without, (directory,), name))


def _without(directories: tuple[str, ...], name: str, root: Path) -> None:
    for directory in directories:
        shutil.rmtree(root / directory / name)


def _brokers(root: Path) -> Iterator[Case]:
    directories = sorted(path.name for path in root.glob("broker-*/"))
    for count in range(1, min(len(directories), 3)):
        for kept in combinations(directories, count):
            yield Case("some brokers", " ".join(kept), partial(_only, kept))


def _only(kept: tuple[str, ...], root: Path) -> None:
    for directory in root.glob("broker-*/"):
        if directory.name not in kept:
            shutil.rmtree(directory)


# What is new


def known(corpus: str) -> list[Finding]:
    """What is truly there above info, of the cluster as it was; where nothing is, it need not be looked for."""
    manifest = corpora.manifest(corpus)
    if not manifest["expect"] and not corpora.true_too(corpus):
        return []
    found = above_info(audited(corpus, corpora.unpack(corpus)))
    return [f for f in found if allowed(manifest, f) or any(matches(e, f) for e in manifest["expect"])]


def audited(corpus: str, root: Path, *, when_is_given: bool = True) -> list[Finding]:
    manifest = corpora.manifest(corpus)
    return opened(root, as_of=manifest.get("as_of", manifest["copied_at"]) if when_is_given else None).findings


def fresh(case: Case, root: Path, before: list[Finding], corpus: str) -> list[Finding]:
    """What is above info of the altered cluster, and neither may be nor was said before, as grave, of the same."""
    # Which clock a user's --as-of would be of, where clocks differ, nobody knows; and an older copy is not of then.
    found = above_info(audited(corpus, root, when_is_given=case.kind in ABSENT))
    true = corpora.manifest(corpus)["expect"]  # what was not said before because more was there that explained it
    so = TRUE_SO.get((corpus, case.kind.removesuffix(", clean")))
    new = [f for f in found if f.kind != so and not may(case, f) and not any(matches(e, f) for e in true)]
    return [f for f in new if not any(_covers(b, f) for b in before)]


def _covers(before: Finding, f: Finding) -> bool:
    if f.kind == "clock-skew":  # it names one partition of those it is seen in
        return before.kind == f.kind and before.evidence["brokers"] == f.evidence["brokers"]
    same = before.kind == f.kind if f.partition is None else (before.topic, before.partition) == (f.topic, f.partition)
    explained = before.evidence.get("also", ())
    inside = any((also["topic"], also["partition"]) == (f.topic, f.partition) for also in explained)
    of_id = f.transactional_id is not None and f.transactional_id == before.transactional_id
    return (same or inside or of_id) and SEVERITIES.index(before.severity) <= SEVERITIES.index(f.severity)


def chosen(corpus: str) -> Iterator[Case]:
    """Some of a cluster's cases, by group in turn; another cluster begins with another group."""
    if WHICH == "all":
        yield from cases(corpus)
        return
    chance, found = random.Random(f"{corpus} {WHICH}"), groups(corpus)
    first = CORPORA.index(corpus) + chance.randrange(len(found)) if WHICH else CORPORA.index(corpus)
    for number in range(first, first + AT_ONCE):
        every = list(found[number % len(found)](corpora.unpack(corpus)))
        if every:
            yield chance.choice(every)


CORPORA = [*corpora.judged(), *corpora.campaigns()]


@pytest.mark.parametrize("corpus", CORPORA)
def test_nothing_is_said_of_what_is_only_untidy(corpus: str, tmp_path: Path) -> None:
    before, wrong = known(corpus), []
    for case in (*chosen(corpus), *(c for c in cases(corpus) if f"{c.kind} {c.name}" == ONCE_ACCUSED.get(corpus))):
        shutil.copytree(corpora.unpack(corpus), tmp_path / "untidy", copy_function=link)
        case.make(tmp_path / "untidy")
        said = fresh(case, tmp_path / "untidy", before, corpus)
        wrong += [(case.kind, f"{case.name}: {f.severity} {f.kind}: {f.message}") for f in said]
        shutil.rmtree(tmp_path / "untidy")
    if wrong and corpus in ACCUSED:
        pytest.xfail(str(ACCUSED[corpus]))
    assert not wrong


# That the cases are what a broker would have written


@pytest.mark.parametrize("corpus", ["in-turn-43", "groups-43", "live-28"])
def test_a_clock_that_is_right_alters_nothing_and_one_that_is_off_is_put_right(corpus: str, tmp_path: Path) -> None:
    """A shift there and back leaves every byte of logs, snapshots and checkpoints as it was."""
    root = corpora.copy(corpus, tmp_path / "there")
    files = {p: p.read_bytes() for p in root.rglob("*") if p.is_file() and p.suffix != ".timeindex"}
    shift(root, 1, 5_000)
    altered = [p for p, data in files.items() if p.read_bytes() != data]
    assert {p.suffix for p in altered} >= {".log", ".snapshot"}
    shift(root, 1, -5_000)
    assert [p for p, data in files.items() if p.read_bytes() != data] == []


@pytest.mark.parametrize("corpus", ["in-turn-43", "healthy-41", "rolling-cold-copies-43"])
def test_a_snapshot_at_a_cut_is_the_one_that_the_broker_wrote_there(corpus: str) -> None:
    compared = 0
    for directory in corpora.unpack(corpus).glob("broker-*/"):
        for path in partitions(directory):
            log = Forged(directory, path.name)
            for offset, stored in log.snapshots.items():
                assert sorted(producers_at(log, offset)) == sorted(stored), (path, offset)
                compared += len(stored)
    assert compared > 10
