"""One bit flipped in each of the 21 bytes of a batch that its checksum does not cover, the checksum among them.

The damage is named with segment file, position, field, stored and expected value; nothing else is said but what was
said before, nobody else is accused, and no remedy moves a sound replica away or fetches from the damaged one. In the
first, a middle and the last batch of a log, with its other replicas and alone. ``FLIPPED_BITS``: how many bits of each
field, all for 64; ``UNTIDY=all`` takes all, too.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from auditor.rules.seen.view import Finding
from tests import corpora
from tests.audited import above_info, audit_folder
from tests.forge import Batch, Forged

BITS = int(os.environ.get("FLIPPED_BITS", "64" if os.environ.get("UNTIDY") == "all" else "1"))
FIELDS = {"base offset": (0, 8), "length": (8, 4), "leader epoch": (12, 4), "magic": (16, 1), "checksum": (17, 4)}
RULES = {
    "base offset": "offsets-not-increasing", "length": "record-structure-invalid", "magic": "record-structure-invalid",
    "leader epoch": "leader-epoch-mismatch", "checksum": "batch-crc-mismatch",
}  # fmt: skip
# Three brokers each: stopped cleanly one after the other and copied, stopped at once, a controller's log, killed.
LOGS = [
    ("rolling-cold-copies-43", "broker-1", "ro3-0"),
    ("rolling-cold-copies-43", "broker-2", "__transaction_state-0"),
    ("rolling-cold-copies-43", "broker-3", "__cluster_metadata-0"),
    ("replicas-41", "broker-2", "trio.log-2"),
    ("unclean-43", "broker-3a", "__transaction_state-0"),
    ("skipped-marker-43", "broker-2", "__cluster_metadata-0"),
]


class Flip(NamedTuple):
    """One bit of a batch in a partition's folder: ``bit`` 0 is the lowest of the field."""

    place: str
    number: int
    field: str
    bit: int


def flips(count: int, seed: str) -> Iterator[Flip]:
    chosen = random.Random(seed)
    for place, number in (("first", 0), ("middle", count // 2), ("last", count - 1)):
        for field, (_, width) in FIELDS.items():
            for bit in sorted(chosen.sample(range(8 * width), min(BITS, 8 * width))):
                yield Flip(place, number, field, bit)


def values(batch: Batch) -> dict[str, int]:
    names = {"checksum": "crc"} | {name: name.replace(" ", "_") for name in FIELDS if name != "checksum"}
    return {name: batch[stored] for name, stored in names.items()}


def said(found: list[Finding]) -> set[tuple[object, ...]]:
    return {(f.kind, f.severity, f.broker_id, f.topic, f.partition, f.offset, f.message) for f in found}


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], tuple[Path, list[Finding]]]:
    """Directories that the tests alter and put back, and what is said of them: of all brokers, of one alone ("")."""
    made = {}
    for name, broker, _ in LOGS:
        for only in ("", broker):
            if (name, only) not in made:
                root = tmp_path_factory.mktemp(name)
                whole = corpora.copy(name, root)
                for path in whole.iterdir():
                    if only and path.is_dir() and path.name != only:
                        shutil.rmtree(path)
                made[name, only] = root, audit_folder(root, as_of(name))
    return made


def as_of(name: str) -> int | None:
    told = corpora.manifest(name)
    moment = told.get("as_of") or told.get("copied_at")
    return None if moment is None else int(moment)


@pytest.mark.parametrize("alone", [False, True], ids=["one of three", "alone"])
@pytest.mark.parametrize(("name", "broker", "partition"), LOGS, ids=lambda v: str(v))
def test_one_flipped_bit(
    bases: dict[tuple[str, str], tuple[Path, list[Finding]]], name: str, broker: str, partition: str, alone: bool
) -> None:
    root, before = bases[name, broker if alone else ""]
    folder = next(root.rglob(f"{broker}/{partition}"))
    log = Forged(folder.parent, partition)
    path = max(folder.glob("*.log"), key=lambda p: p.stat().st_size)
    batches = log.segments[int(path.stem)]
    clean = (folder.parent / ".kafka_cleanshutdown").exists()
    sound = path.read_bytes()
    for flip in flips(len(batches), f"{name} {partition} {alone}"):
        first, width = FIELDS[flip.field]
        at = sum(len(b.data) for b in batches[: flip.number])
        data = bytearray(sound)
        data[at + first + width - 1 - flip.bit // 8] ^= 1 << flip.bit % 8
        path.write_bytes(data)
        try:
            found = audit_folder(root, as_of(name))
        finally:
            path.write_bytes(sound)
        stored = Batch(bytes(data[at : at + len(batches[flip.number].data)]))
        new = [f for f in found if not {*said([f])} & said(before)]
        assert_named(new, flip, stored, batches[flip.number], f"{partition}/{path.name}", at, clean=clean)
        gone = said(before) - said(found)
        assert_nobody_else(new, gone, flip, int(broker.removeprefix("broker-")[0]), clean=clean)
    assert said(audit_folder(root, as_of(name))) == said(before)


def assert_named(new: list[Finding], flip: Flip, stored: Batch, was: Batch, file: str, at: int, *, clean: bool) -> None:
    """The finding about the damage. Where no neighbour tells, and nothing wrote the end down, it is at least said that
    something is wrong there."""
    named = [f for f in new if f.kind == RULES[flip.field] and (f.file, f.position) == (file, at)]
    if flip.place == "last" and not clean and not named:
        assert new, flip
        return
    assert named, (flip, [(f.kind, f.message) for f in new])
    (f,) = named
    assert f.evidence["confidence"] != "undecidable" or (flip.place == "last" and not clean), flip
    if flip.field != "checksum":
        assert (f.evidence["found"], f.evidence["expected"]) == (values(stored)[flip.field], values(was)[flip.field])


def assert_nobody_else(
    new: list[Finding], gone: set[tuple[object, ...]], flip: Flip, broker: int, *, clean: bool
) -> None:
    """Nothing else changes but what a batch that nobody can trust hides; no sound replica is accused or moved."""
    open_ended = flip.place == "last" and not clean
    if flip.field != "checksum" and not open_ended:
        assert (len(new), gone) == (1, set()), (flip, [(f.kind, f.message) for f in new], gone)
    assert {f.broker_id for f in above_info(new)} <= {broker}, (flip, [(f.kind, f.message) for f in new])
    moves = [f.advice.moves for f in new if f.advice is not None]
    assert {m.away for m in moves} <= {broker, None}, flip
    assert broker not in {b for m in moves for b in (*m.sources, m.leads)}, flip


def test_the_whole_copy_of_the_metadata_tells_of_elections(tmp_path: Path) -> None:
    """unclean-43: broker 2 was elected out of sync. Each copy of the metadata in turn is damaged from its middle on."""
    root = corpora.copy("unclean-43", tmp_path)
    before = elections(audit_folder(root, as_of("unclean-43")))
    assert before
    for folder in root.rglob("__cluster_metadata-0"):
        log = Forged(folder.parent, folder.name)
        path = folder / f"{min(log.segments):020}.log"
        sound = path.read_bytes()
        batches = log.segments[min(log.segments)]
        at = sum(len(b.data) for b in batches[: len(batches) // 3])
        data = bytearray(sound)
        for batch in batches[len(batches) // 3 :]:
            at += len(batch.data)
            data[at - 2] ^= 1
        path.write_bytes(bytes(data))
        assert elections(audit_folder(root, as_of("unclean-43"))) == before, folder
        path.write_bytes(sound)


def elections(found: list[Finding]) -> set[tuple[object, ...]]:
    return {(f.topic, f.partition, f.severity) for f in found if f.kind == "unclean-election"}


def test_a_batch_with_a_wrong_checksum_dates_nothing(tmp_path: Path) -> None:
    """A bit of its largest time: the time index contradicts nothing, no clock is off, nothing is older than it was."""
    name, partition = "rolling-cold-copies-43", "ro3-0"
    root = corpora.copy(name, tmp_path)
    before = said(audit_folder(root, as_of(name)))
    log = Forged(root / "broker-1", partition)
    path = root / "broker-1" / partition / f"{0:020}.log"
    sound, batches = path.read_bytes(), log.segments[0]
    entries = (path.with_suffix(".timeindex")).read_bytes()
    assert any(entries)
    for bit in (41, 20):
        data = bytearray(sound)
        data[len(batches[0].data) + 35 + 7 - bit // 8] ^= 1 << bit % 8
        path.write_bytes(bytes(data))
        new = said(audit_folder(root, as_of(name))) - before
        assert [(f[0], f[2]) for f in new] == [("batch-crc-mismatch", 1)]


def test_one_batch_under_two_leader_epochs_is_no_loss(tmp_path: Path) -> None:
    """The last batch of a killed broker, with an epoch above the others': it led by that, and they had diverged."""
    name, partition = "unclean-43", "__transaction_state-0"
    root = corpora.copy(name, tmp_path)
    before = said(audit_folder(root, as_of(name)))
    log = Forged(root / "broker-3a", partition)
    log.all()[-1].set(leader_epoch=3)
    log.save()
    found = audit_folder(root, as_of(name))
    new = [f for f in above_info(found) if not {*said([f])} & before]
    assert [(f.rule, f.severity, f.broker_id) for f in new] == [("leader-epoch-mismatch", "error", 3)]
    assert all(f.severity == "info" for f in found if (f.rule, f.topic) == ("replica-divergence", partition[:-2]))
