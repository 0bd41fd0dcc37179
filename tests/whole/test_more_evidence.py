"""More evidence turns nothing from red to green.

A part is taken away of a corpus with an incident: where the lesser copy is red about a partition, the whole may not be
silent about it, unless what was added denies it. For a longer run ``EVIDENCE_SEEDS`` tries so many other choices of
parts, of every corpus, and takes a second part away of what the first one left.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from auditor.rules.seen.view import Finding
from tests import corpora
from tests.bare_broker import BEGAN
from tests.conftest import NIGHTLY
from tests.earlier_states import own
from tests.facts import opened
from tests.whole.test_copied_one_by_one import SPREAD_MS, batches, checkpointed_at, copied_until
from tests.whole.test_files_that_are_absent import link
from tests.whole.test_never_in_flight import FOR_GOOD, Running

LONGER = NIGHTLY or "EVIDENCE_SEEDS" in os.environ
SEEDS = range(int(os.environ.get("EVIDENCE_SEEDS", "2" if NIGHTLY else "1")))
MARK = ".kafka_cleanshutdown"

# Why what was added denies what was said without it, by rule and the kind of part that was taken away.
NOTHING_LOST = "the old leader's replica shows that nothing which only it had was committed"
DENIED = {
    ("aborted-transaction-not-indexed", "every */*.txnindex"): "these indexes, beside the remote segments' own",
    ("checkpoint-beyond-log-end", "a log ends earlier"): "the rest of the log",
    ("start-fails", "meta.properties"): "the file that a start lacks",
    ("stuck-prepare", "meta.properties"): "that another directory of its cluster is newer",
    ("unclean-election", "a broker"): NOTHING_LOST,
    ("unclean-election", "meta.properties"): NOTHING_LOST,  # without it nobody knows which broker's replica it is
}
# What is silent without a reason yet, with the issue that it waits for.
WAITS = {"failed-appends-v2-43": "issue 32, 2: directories of different moments"} if LONGER else {}


class Part(NamedTuple):
    """What may be taken away of a copy: what kind of part it is, which one, and how."""

    kind: str
    name: str
    take: Callable[[Path], None]


def parts(folder: Path) -> Iterator[Part]:
    """All that may be taken away of log directories."""
    newest = max((time for file in folder.glob("*/*/*.log") for *_, time in batches(file)), default=0)
    for path in sorted(folder.glob("broker-*/*-[0-9]*/")):
        internal = path.name.startswith("__")
        yield _files(folder, path.name.rpartition("-")[0] if internal else "a partition", path)
        if path.name != "__cluster_metadata-0":
            earlier = _ends_earlier(path.relative_to(folder), newest - SPREAD_MS)
            yield Part("a log ends earlier", str(path.relative_to(folder)), earlier)
    for files in ("__transaction_state-*", "__consumer_offsets-*", "*/*.snapshot", "*/*.txnindex", MARK):
        yield _files(folder, f"every {files}", *folder.glob(f"broker-*/{files}"))
    for path in sorted(p for p in folder.glob("broker-*/*") if p.is_file()):
        yield _files(folder, path.name, path)
    yield _files(folder, "server.properties", *folder.glob("*.properties"))
    brokers = sorted(folder.glob("broker-*/"))
    for path in brokers if len(brokers) > 1 else ():
        yield _files(folder, "a broker", path)
        yield Part("a broker is older", path.name, _is_older(path.name))


def _files(folder: Path, kind: str, *paths: Path) -> Part:
    names = sorted(str(path.relative_to(folder)) for path in paths)

    def take(copy: Path) -> None:
        for path in (copy / name for name in names):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    return Part(kind, names[0] if len(names) == 1 else f"{len(names)} files", take)


def _ends_earlier(name: Path, moment: int) -> Callable[[Path], None]:
    """A partition was copied first, of a broker that was running; the checkpoints were copied with the others."""

    def take(copy: Path) -> None:
        broker, partition = (copy / name).parent, copy / name
        (broker / MARK).unlink(missing_ok=True)
        if partition.is_dir():
            own(broker)
            copied_until(partition, moment)

    return take


def _is_older(name: str) -> Callable[[Path], None]:
    """A directory is an earlier state of itself, of a broker that was running, when it had so much of its batches."""

    def take(copy: Path) -> None:
        (copy / name / MARK).unlink(missing_ok=True)
        own(copy / name)
        logs = sorted((copy / name).glob("*-[0-9]*/"))
        times = sorted(time for path in logs for file in path.glob("*.log") for *_, time in batches(file))
        moment = times[int(0.6 * len(times))]
        for path in logs:
            checkpointed_at(path, moment)
            copied_until(path, moment)

    return take


def audited(folder: Path, as_of: int) -> list[Finding]:
    return opened(folder, as_of=as_of).findings


def red(found: list[Finding]) -> list[Finding]:
    """What sets the exit status, of what is about a partition."""
    return [f for f in found if f.severity in ("critical", "error") and f.partition is not None]


def is_silent(found: list[Finding], claim: Finding) -> bool:
    """Whether nothing above info is about what the claim is about, in words of another rule or not."""
    return not any(_about(f, claim) for f in found if f.severity != "info")


def _about(f: Finding, claim: Finding) -> bool:
    if (f.kind, f.topic, f.partition) in _inside(claim) or (claim.kind, claim.topic, claim.partition) in _inside(f):
        return True
    if (f.topic, f.partition) != (claim.topic, claim.partition):
        return False
    same = claim.producer_id is not None and f.producer_id == claim.producer_id
    return same or f.offset is None or claim.offset is None or (_last(f) >= claim.offset and _last(claim) >= f.offset)


def _inside(f: Finding) -> list[tuple[str, str | None, int | None]]:
    """Rule and partition of what a finding explains."""
    return [(also["rule"], also["topic"], also["partition"]) for also in f.evidence.get("also", ())]


def _last(f: Finding) -> int:
    return f.last_offset if f.last_offset is not None else int(f.offset or 0)


def denied(whole: Path, name: str, as_of: int, target: Path, seed: int) -> Iterator[str]:
    """What is red in a lesser copy and one with more is silent about, one part of each kind taken away of the whole."""
    most, chance = audited(whole, as_of), random.Random(f"{name} {seed}")
    every = list(parts(whole))
    found = list({part.kind: part for part in chance.sample(every, len(every))}.values())
    for first, second in zip(found, [*found[1:], found[0]], strict=True):
        shutil.copytree(whole, target, copy_function=link)
        more, gone = most, ""
        for part in (first, second) if LONGER else (first,):
            part.take(target)
            less = audited(target, as_of)
            for claim in red(less):
                if (claim.kind, part.kind) not in DENIED and is_silent(more, claim):
                    place = f"{claim.topic}-{claim.partition} at {claim.offset}"
                    yield f"{claim.kind} of {place}, without {gone}{part.name}"
            more, gone = less, f"{part.name} and "
        shutil.rmtree(target)


def incidents() -> list[str]:
    """The corpora in which something above info is to be found; for a longer run all."""
    found = (*corpora.judged(), *corpora.campaigns())
    wanted = [n for n in found if any(e.get("severity") != "info" for e in corpora.manifest(n)["expect"])]
    return list(found) if LONGER else wanted


def marked(name: str) -> Any:
    marks = pytest.mark.xfail(strict=False, reason=WAITS.get(name, ""))  # some choices of parts do not show it
    return pytest.param(name, marks=marks) if name in WAITS else name


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", [marked(name) for name in incidents()])
def test_the_whole_is_not_silent_about_what_is_red_without_a_part(name: str, seed: int, tmp_path: Path) -> None:
    manifest = corpora.manifest(name)
    as_of = manifest.get("as_of", manifest["copied_at"])
    assert not list(denied(corpora.unpack(name), name, as_of, tmp_path / "less", seed))


@pytest.mark.parametrize("made", FOR_GOOD)
def test_nor_is_it_about_what_no_later_record_can_excuse(made: Callable[[Running], int], tmp_path: Path) -> None:
    """The data alone shows that somebody is held; the coordinator's log beside it does not make it less."""
    broker = Running(tmp_path / "whole")
    made(broker)
    broker.save()
    assert not list(denied(broker.root, made.__name__, BEGAN + FOR_GOOD[made], tmp_path / "less", 0))
