"""Keyed sums of ranges of batches, against SipHash as CPython has it and written out in whole numbers."""

from __future__ import annotations

import itertools
import pickle
import random
import struct

import numpy as np
import pytest

from auditor.facts import batch_sums
from auditor.facts.batch_sums import SHIFT, SUMMED, BatchSums, siphash, wide
from tests.seeded_tests import seeded

KEY = bytes(range(100, 116))
MASK = (1 << 64) - 1


def written_out(key: bytes, words: list[int]) -> int:
    """SipHash-1-3 of whole words, by the paper."""
    k0, k1 = struct.unpack("<QQ", key)
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def rotated(x: int, by: int) -> int:
        return (x << by | x >> (64 - by)) & MASK

    def rounds(count: int) -> None:
        for _ in range(count):
            for a, b, by in ((0, 1, 13), (2, 3, 16)):
                v[a] = (v[a] + v[b]) & MASK
                v[b] = rotated(v[b], by) ^ v[a]
            v[0] = rotated(v[0], 32)
            for a, b, by in ((2, 1, 17), (0, 3, 21)):
                v[a] = (v[a] + v[b]) & MASK
                v[b] = rotated(v[b], by) ^ v[a]
            v[2] = rotated(v[2], 32)

    for word in [*words, len(words) * 8 << 56]:
        v[3] ^= word
        rounds(1)
        v[0] ^= word
    v[2] ^= 0xFF
    rounds(3)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def test_it_is_the_hash_that_cpython_has() -> None:
    """``PYTHONHASHSEED=0 python -c 'print(hash(struct.pack("<5Q", 1, 2, 3, 4, 5)))'`` of CPython 3.11."""
    found = siphash(np.zeros(2, np.uint64), *np.array([1, 2, 3, 4, 5], np.uint64))
    assert int(np.uint64(found)) == 774957180820668115
    assert written_out(bytes(16), [1, 2, 3, 4, 5]) == 774957180820668115


def log(count: int, rng: random.Random, spread: int = 3_000) -> dict[str, np.ndarray]:
    """Batches that follow each other, of all kinds of values."""
    rows, offset = [], rng.randrange(spread)
    for number in range(count):
        last = offset + rng.randrange(spread)
        magic = rng.choice((2, 2, 2, 1, 0))
        rows.append((offset, last, rng.randrange(1 << 32), rng.randrange(-1, 4) if magic == 2 else -1,
                     rng.randrange(-1, 1 << 62), rng.randrange(-1, 1 << 15), rng.randrange(-1, 1 << 31), magic,
                     rng.random() < 0.9, 100 * number, number // 50))  # fmt: skip
        offset = last + rng.randrange(1, spread)
    return {name: np.array(column) for name, column in zip(SUMMED, zip(*rows, strict=True), strict=True)}


def sums_of(rows: dict[str, np.ndarray], *, at_a_time: int = 10**9, shift: int = SHIFT) -> BatchSums:
    sums = BatchSums(KEY, shift)
    for start in range(0, len(rows["magic"]), at_a_time):
        sums.add_columns({name: column[start : start + at_a_time] for name, column in rows.items()})
    return sums


@seeded(5)
def test_a_range_is_the_sum_of_its_batches_hashes(seed: int) -> None:
    rows = log(400, random.Random(seed))
    expected: dict[int, list[int]] = {}
    for row in zip(*(rows[name].tolist() for name in SUMMED), strict=True):
        base, last, crc, leader_epoch, producer, epoch, sequence, magic, ok, position, segment = row
        small = epoch & 0xFFFF | (magic & 0xFF) << 16 | int(ok) << 24 | (sequence & 0xFFFFFFFF) << 32
        crc = crc if magic == 2 else 0
        words = [base, last, crc << 32 | leader_epoch & 0xFFFFFFFF, producer & MASK, small]
        found = expected.setdefault(base >> SHIFT, [base >> SHIFT, 0, base, 0, 0, 0, segment, position])
        found[1] += 1
        found[3] = last
        found[4] = (found[4] + written_out(KEY, words)) & MASK
        found[5] += not ok
    sums = sums_of(rows, at_a_time=37)
    assert sums.ordered
    assert [[*row[:4], row[4] & MASK, *row[5:]] for row in sums.ranges.tolist()] == [*expected.values()]


@pytest.mark.parametrize("name", SUMMED[:9])
def test_any_column_that_is_compared_changes_the_sum(name: str) -> None:
    rows = log(100, random.Random(8))
    at = next(k for k in range(50, 100) if rows["magic"][k] == 2)
    other = {key: column.copy() for key, column in rows.items()}
    other[name][at] = {"crc_ok": ~rows["crc_ok"][at], "magic": 1}.get(name, rows[name][at] ^ 1)
    one, two = sums_of(rows).ranges, sums_of(other).ranges
    assert (one["digest"] != two["digest"]).sum() == 1


def test_too_many_ranges_become_wider_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_sums, "MAX_RANGES", batch_sums.FIRST_ROOM)
    rows = log(6_000, random.Random(3), spread=20_000)
    sums = sums_of(rows, at_a_time=500)
    assert sums.shift > SHIFT
    assert len(sums.ranges) <= batch_sums.FIRST_ROOM
    monkeypatch.setattr(batch_sums, "MAX_RANGES", 1 << 20)
    narrow = sums_of(rows)
    assert narrow.shift == SHIFT
    assert np.array_equal(wide(narrow.ranges, sums.shift - SHIFT), sums.ranges)


def test_runs_of_leader_epochs_are_of_sound_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = log(300, random.Random(4))
    sound = rows["crc_ok"] & (rows["magic"] == 2) & (rows["partition_leader_epoch"] >= 0)
    epochs, bases = rows["partition_leader_epoch"][sound], rows["base_offset"][sound]
    starts = np.flatnonzero(np.diff(epochs, prepend=-1))
    expected = zip(epochs[starts], bases[starts], bases[np.append(starts[1:], len(bases)) - 1], strict=True)
    assert sums_of(rows, at_a_time=40).runs.tolist() == [tuple(map(int, run)) for run in expected]
    monkeypatch.setattr(batch_sums, "FIRST_ROOM", 16)
    monkeypatch.setattr(batch_sums, "MAX_RUNS", 64)
    assert not sums_of(rows).ordered  # too many to be kept


@pytest.mark.parametrize("change", [("base_offset", -1), ("last_offset", -1), ("base_offset", 0)])
def test_what_is_out_of_order_has_no_sums(change: tuple[str, int]) -> None:
    rows = log(100, random.Random(5))
    rows[change[0]][60] = change[1]
    sums = sums_of(rows, at_a_time=13)
    assert not sums.ordered
    assert sums.total == sums_of(rows).total
    assert sums.total[0] == 100
    rows["crc"][np.flatnonzero(rows["magic"] == 2)[-1]] ^= 1
    assert sums.total != sums_of(rows).total


@seeded(30)
def test_sums_of_stretches_together_are_those_of_the_whole(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the stretches are, in order or not, where ranges have to be made wider and where runs are too many."""
    rng = random.Random(seed)
    monkeypatch.setattr(batch_sums, "FIRST_ROOM", 16)
    monkeypatch.setattr(batch_sums, "MAX_RANGES", rng.choice((64, 1 << 16)))
    monkeypatch.setattr(batch_sums, "MAX_RUNS", rng.choice((128, 1 << 16, 1 << 16)))
    rows = log(300, rng, spread=rng.choice((3_000, 40_000)))
    if seed % 3 == 0:
        rows[rng.choice(("base_offset", "last_offset"))][rng.randrange(300)] = rng.choice((0, 5_000, 1 << 40))
    whole, cuts = sums_of(rows), sorted(rng.choices(range(301), k=rng.randrange(1, 6)))
    together = sums_of({name: column[:0] for name, column in rows.items()})
    for start, stop in itertools.pairwise([0, *cuts, 300]):
        columns = {name: column[start:stop] for name, column in rows.items()}
        if rng.random() < 0.4:  # of the next segment the headers were kept
            together.add_columns(columns)
            continue
        part = sums_of(columns)
        if rng.random() < 0.5:
            part.pack()
        together.append(part)
    assert (together.ordered, together.total) == (whole.ordered, whole.total)
    if whole.ordered:
        assert together.shift == whole.shift
        assert np.array_equal(together.ranges, whole.ranges)
        assert np.array_equal(together.runs, whole.runs)


def test_what_comes_behind_sums_put_together_is_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_sums, "FIRST_ROOM", 16)
    monkeypatch.setattr(batch_sums, "MAX_RANGES", 64)
    monkeypatch.setattr(batch_sums, "MAX_RUNS", 64)
    rows = log(400, random.Random(7), spread=40_000)
    first, rest = ({name: column[part] for name, column in rows.items()} for part in (slice(0, 50), slice(50, 400)))
    together = BatchSums(KEY)
    together.append(sums_of(first))
    together.add_columns(rest)
    assert not together.ordered  # by its runs
    rows["partition_leader_epoch"][:] = 3
    first, rest = ({name: column[part] for name, column in rows.items()} for part in (slice(0, 50), slice(50, 400)))
    together = BatchSums(KEY)
    together.append(sums_of(first))
    together.add_columns(rest)
    assert together.ordered
    assert len(together.ranges) <= 64


def test_put_to_rest_it_is_small_and_the_same() -> None:
    sums = sums_of(log(400, random.Random(6)))
    before = sums.ranges, sums.runs
    sums.pack()
    again = pickle.loads(pickle.dumps(sums))
    assert len(pickle.dumps(sums)) < 1_000 + 64 * len(sums.ranges) + 24 * len(sums.runs)
    assert np.array_equal(again.ranges, before[0])
    assert np.array_equal(again.runs, before[1])
