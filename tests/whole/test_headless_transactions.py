"""A transaction whose head retention took while it was open: a snapshot has it from below the log start, the log
from its first batch above. In the corpus, a real broker's, producer 1 wrote 0 to 3, 124 to 127 and ended at 143."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests import corpora, forge
from tests.audited import above_info, audit_folder
from tests.forge import Forged

CORPUS, START, BETWEEN, END = "retention-in-transaction-43", 104, 128, 149


def opened(log: Forged, snapshot: int, first: int) -> None:
    """Lets a snapshot have the transaction open from an offset on, or with -1 not at all."""
    known = log.snapshots[snapshot]
    log.snapshots[snapshot] = [p._replace(txn_first_offset=first) if p.producer_id == 1 else p for p in known]


def found(root: Path) -> list[tuple[str, str, int | None, int | None]]:
    said = above_info(audit_folder(root, corpora.manifest(CORPUS)["copied_at"]))
    return [(f.kind, f.severity, f.offset, f.producer_id) for f in said]


def wrong(snapshot: int) -> list[tuple[str, str, int | None, int | None]]:
    return [("snapshot-replay-mismatch", "critical", snapshot, 1)]


def without_the_oldest(log: Forged) -> None:
    del log.snapshots[START]


def nothing(_: Forged) -> None: ...


@pytest.mark.parametrize("alter", [nothing, without_the_oldest])
def test_one_that_retention_beheaded_is_the_same(tmp_path: Path, alter: Callable[[Forged], None]) -> None:
    root = corpora.copy(CORPUS, tmp_path)
    log = Forged(root / "broker-1", "rl-0")
    alter(log)
    log.save()
    assert found(root) == []


def missing(log: Forged) -> None:
    opened(log, BETWEEN, -1)


def denied(log: Forged) -> None:
    opened(log, START, -1)


def begun_elsewhere(log: Forged) -> None:
    opened(log, BETWEEN, 2)


def never_known(log: Forged) -> None:
    log.snapshots[START] = [p for p in log.snapshots[START] if p.producer_id != 1]


@pytest.mark.parametrize("alter", [missing, denied, begun_elsewhere])
def test_another_one_than_the_log_and_the_snapshot_before_have(tmp_path: Path, alter: Callable[[Forged], None]) -> None:
    root = corpora.copy(CORPUS, tmp_path)
    log = Forged(root / "broker-1", "rl-0")
    alter(log)
    log.save()
    assert found(root) == wrong(BETWEEN)


def left_open(log: Forged) -> None:
    opened(log, END, 0)


@pytest.mark.parametrize(("alter", "snapshot"), [(never_known, BETWEEN), (left_open, END)])
def test_open_in_a_snapshot_alone(tmp_path: Path, alter: Callable[[Forged], None], snapshot: int) -> None:
    """That its producer is unknown below its first batch, or open for ever, is said besides."""
    root = corpora.copy(CORPUS, tmp_path)
    log = Forged(root / "broker-1", "rl-0")
    alter(log)
    log.save()
    assert wrong(snapshot)[0] in found(root)


def test_open_from_below_the_start_though_a_marker_lies_between(tmp_path: Path) -> None:
    """An ABORT at 119: what begins at 124 is another transaction."""
    root = corpora.copy(CORPUS, tmp_path)
    log = Forged(root / "broker-1", "rl-0")
    before = log.find(119)
    log.insert(before, forge.marker(log.find(124), commit=False))
    log.save()
    assert ("snapshot-replay-mismatch", "critical", 1) in [(f[0], f[1], f[3]) for f in found(root)]


def test_a_wrong_snapshot_accuses_no_sound_one_behind_it(tmp_path: Path) -> None:
    root = corpora.copy(CORPUS, tmp_path)
    log = Forged(root / "broker-1", "rl-0")
    later = [p._replace(offset=132, sequence=124) if p.producer_id == 0 else p for p in log.snapshots[BETWEEN]]
    log.snapshots[133] = later
    missing(log)
    log.save()
    assert found(root) == wrong(BETWEEN)
