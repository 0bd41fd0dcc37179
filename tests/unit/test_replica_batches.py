"""Replicas compared a stretch at a time, against the comparison of all their batches at once."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest

from auditor.facts.copy_facts import CopyFacts
from auditor.facts.packed import PackedColumns
from auditor.replay.segment_checks import DIGEST
from auditor.rules import pairs as comparing
from auditor.rules.pairs import Pair, pairs, row_of
from auditor.rules.replica_batches import ReplicaBatches
from tests.facts import log_of

Row = dict[str, int]
LOW = {"base_offset": 0, "magic": 2, "crc_ok": 1, "producer_id": -1, "producer_epoch": -1, "base_sequence": -1}


def history(rng: random.Random, count: int, magic: int = 2) -> list[Row]:
    """Sound batches with holes between some of them, under rising leader epochs."""
    rows, offset, epoch = [], rng.randrange(5), rng.randrange(3)
    for number in range(count):
        offset += rng.choice((0, 0, 0, 3))
        epoch += rng.random() < 0.05
        last = offset + rng.randrange(4)
        rows.append(LOW | {
            "base_offset": offset, "last_offset": last, "crc": rng.randrange(1 << 32), "position": 70 * number,
            "partition_leader_epoch": epoch if magic == 2 else -1, "max_timestamp": 1_000 + number, "attributes": 0,
            "magic": magic,
        })  # fmt: skip
        offset = last + 1
    return rows


def altered(rng: random.Random, rows: list[Row], wild: bool) -> list[Row]:
    """The same with some of them missing, or different, some at the end, and, where wild, out of order."""
    out = []
    for row in rows:
        chance = rng.random()
        if chance < 0.03:
            continue
        name = rng.choice(("crc", "producer_epoch", "partition_leader_epoch", "crc_ok", "attributes"))
        out.append(row | {name: rng.randrange(2)} if chance < 0.06 else row)
        if chance > 0.98 and row["last_offset"] > row["base_offset"]:  # one batch as two
            middle = row["base_offset"]
            out[-1:] = [row | {"last_offset": middle}, row | {"base_offset": middle + 1, "crc": 7}]
    if wild and out:
        for _ in range(rng.randrange(1, 4)):
            out.insert(rng.randrange(len(out)), rng.choice(rows) | {"crc": rng.randrange(3)})
    return out[: len(out) - rng.randrange(4)]


def replica(rng: random.Random, broker: int, rows: list[Row], pieces: int) -> CopyFacts:
    digests = PackedColumns(DIGEST)
    at = 0
    while at < len(rows) or not at:
        stop = at + rng.randrange(0, pieces)
        digests.add(np.array([[row[name] for name in DIGEST] for row in rows[at:stop]], np.int64).reshape(-1, 12).T)
        digests.pack()
        at = max(stop, 1)
    digests.add(np.array([[row[name] for name in DIGEST] for row in rows[at:]], np.int64).reshape(-1, 12).T)
    end = max((row["last_offset"] + 1 for row in rows), default=0)
    epochs = {row["partition_leader_epoch"]: row["base_offset"] for row in rows[::-1] if row["magic"] == 2}
    return CopyFacts(
        None, broker, f"broker-{broker}", "t", 0, clean_shutdown=True, segments=["s"], segment_bases=[0], log_end=end,
        log_start=rng.choice((0, 0, end // 3)), high_watermark=rng.choice((end, end // 2)), digests=digests,
        leader_epochs=sorted(epochs.items()) if rng.random() < 0.5 else [],
    )  # fmt: skip


def two(seed: int) -> list[CopyFacts]:
    rng = random.Random(seed)
    rows = history(rng, rng.choice((0, 1, 40, 300)), rng.choice((2, 2, 2, 1)))
    second = altered(rng, rows, wild=rng.random() < 0.3) if rng.random() < 0.8 else rows
    if rng.random() < 0.3:  # a fork: from there on other batches under another epoch
        at = rng.randrange(len(second) + 1)
        second = second[:at] + [row | {"partition_leader_epoch": row["partition_leader_epoch"] + rng.choice((1, 2)),
                                       "crc": rng.randrange(9)} for row in second[at:]]  # fmt: skip
    pieces = rng.choice((2, 8, 50, 1_000))
    return [replica(rng, broker, its, pieces) for broker, its in ((1, rows), (2, second))]


class AtOnce(ReplicaBatches):
    """The same replica, sorted as a whole."""

    def __init__(self, copy: CopyFacts) -> None:
        super().__init__(copy)
        self.ordered = False
        if self.starts:
            self.starts, self._numbers = [-1], [0]


def compared(copies: list[CopyFacts]) -> tuple[list[Pair], list[list[Row]]]:
    log = log_of(copies)
    end = max(copy.log_end for copy in copies)
    found = [dataclasses.replace(pair) for pair in pairs(log)]
    return found, [[row_of(log, copy, offset) for offset in range(-1, end + 2)] for copy in copies]


@pytest.mark.parametrize("seed", range(150))
def test_a_stretch_at_a_time_is_as_all_at_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found, rows = compared(two(seed))
    monkeypatch.setattr(comparing, "ReplicaBatches", AtOnce)
    expected, all_rows = compared(two(seed))
    assert rows == all_rows
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        for field in ("low", "high", "divergent", "first_offset", "last_offset", "forked_at", "lost_epoch", "gaps"):
            assert getattr(one, field) == getattr(other, field), field


def test_the_histories_show_what_they_are_made_for() -> None:
    """Without it the test above would compare nothing with nothing."""
    seen = {"same": 0, "divergent": 0, "forked": 0, "gaps": 0, "out of order": 0, "many pieces": 0}
    for seed in range(150):
        copies = two(seed)
        batches = [ReplicaBatches(copy) for copy in copies]
        seen["out of order"] += not all(one.ordered for one in batches)
        seen["many pieces"] += all(len(one.starts) > 3 for one in batches)
        for pair in pairs(log_of(copies)):
            seen["same"] += not pair.divergent and not pair.gaps
            seen["divergent"] += pair.divergent > 0
            seen["forked"] += pair.forked_at >= 0
            seen["gaps"] += len(pair.gaps) > 1
    assert min(seen.values()) >= 10, seen


def test_of_replicas_that_are_the_same_one_batch_a_stretch_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(1)
    rows = history(rng, 500)
    copies = [replica(rng, broker, rows, 60) for broker in (1, 2)]
    held = []
    intersect = np.intersect1d

    def counted(ours: np.ndarray, theirs: np.ndarray, **how: bool) -> object:
        held.append(len(ours))
        return intersect(ours, theirs, **how)

    monkeypatch.setattr(np, "intersect1d", counted)
    (pair,) = pairs(log_of(copies))
    assert (pair.divergent, pair.gaps) == (0, [])
    assert held[0] <= len(ReplicaBatches(copies[0]).starts) + len(ReplicaBatches(copies[1]).starts)
