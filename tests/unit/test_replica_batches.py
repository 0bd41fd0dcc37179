"""Replicas compared a stretch at a time, against the comparison of all their batches at once."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from auditor.base.errors import DecodeError
from auditor.facts import batch_headers
from auditor.facts.batch_headers import FOR_EVIDENCE, Allowance, Columns, ReplicaBatches
from auditor.facts.batch_sums import BatchSums
from auditor.facts.packed import PackedColumns
from auditor.facts.replica_facts import ReplicaFacts
from auditor.replay.reading.segment_checks import DIGEST
from auditor.rules.lib import replica_pairs as comparing
from auditor.rules.lib.repairs import keeps_out
from auditor.rules.lib.replica_pairs import Pair, pairs, row_of, unread_again
from tests.facts import log_of
from tests.seeded_tests import seeded

Row = dict[str, int]
KEY = bytes(range(16))
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
            "segment": 0, "magic": magic,
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


def lines(rows: list[Row]) -> np.ndarray:
    return np.array([[row[name] for name in DIGEST] for row in rows], np.int64).reshape(-1, len(DIGEST)).T


@dataclasses.dataclass
class InMemory:
    """A segment's batches as if they were read again. ``asked``: how many of them were."""

    rows: Columns
    gone: bool = False
    asked: int = 0

    def read(self, number: int, start: int, stop: int | None, lowest: int) -> Iterator[Columns | DecodeError]:
        if self.gone:
            yield DecodeError("s", 0, -1, "vanished", "gone since the directory was listed")
            return
        at = self.rows["position"]
        inside = (at >= start) & (at < (self.size(0) if stop is None else stop))
        self.asked += int(inside.sum())
        middle = np.cumsum(inside) <= inside.sum() // 2
        for some in (inside & middle, inside & ~middle):
            yield {name: column[some] for name, column in self.rows.items()}

    def size(self, number: int) -> int:
        return int(self.rows["position"].max(initial=0)) + 70


def summed(replica: ReplicaFacts, shift: int = 4) -> ReplicaFacts:
    """The same replica, of which sums are left, of narrow ranges."""
    assert isinstance(replica.digests, PackedColumns)
    rows = {name: column.astype(np.int64) for name, column in replica.digests.items()}
    sums = BatchSums(KEY, shift)
    sums.add_columns(rows)
    sums.pack()
    sums.files = InMemory(rows)
    return dataclasses.replace(replica, digests=sums)


def read_again(replica: ReplicaFacts) -> InMemory:
    assert isinstance(replica.digests, BatchSums)
    assert isinstance(replica.digests.files, InMemory)
    return replica.digests.files


def replica_of(rng: random.Random, broker: int, rows: list[Row], pieces: int) -> ReplicaFacts:
    digests = PackedColumns(DIGEST)
    at = 0
    while at < len(rows) or not at:
        stop = at + rng.randrange(0, pieces)
        digests.add(lines(rows[at:stop]))
        digests.pack()
        at = max(stop, 1)
    digests.add(lines(rows[at:]))
    end = max((row["last_offset"] + 1 for row in rows), default=0)
    epochs = {row["partition_leader_epoch"]: row["base_offset"] for row in rows[::-1] if row["magic"] == 2}
    return ReplicaFacts(
        None, broker, f"broker-{broker}", "t", 0, clean_shutdown=True, segments=["s"], segment_bases=[0], log_end=end,
        log_start=rng.choice((0, 0, end // 3)), high_watermark=rng.choice((end, end // 2)), digests=digests,
        leader_epochs=sorted(epochs.items()) if rng.random() < 0.5 else [],
    )  # fmt: skip


def two(seed: int) -> list[ReplicaFacts]:
    rng = random.Random(seed)
    rows = history(rng, rng.choice((0, 1, 40, 300)), rng.choice((2, 2, 2, 1)))
    second = altered(rng, rows, wild=rng.random() < 0.3) if rng.random() < 0.8 else rows
    if rng.random() < 0.3:  # a fork: from there on other batches under another epoch
        at = rng.randrange(len(second) + 1)
        second = second[:at] + [row | {"partition_leader_epoch": row["partition_leader_epoch"] + rng.choice((1, 2)),
                                       "crc": rng.randrange(9)} for row in second[at:]]  # fmt: skip
    pieces = rng.choice((2, 8, 50, 1_000))
    return [replica_of(rng, broker, its, pieces) for broker, its in ((1, rows), (2, second))]


class AtOnce(ReplicaBatches):
    """The same replica, sorted as a whole."""

    def __init__(self, replica: ReplicaFacts, allowance: Allowance | None = None) -> None:
        super().__init__(replica, allowance)
        self.ordered = False
        if self.starts:
            self.starts, self._numbers = [-1], [0]


def compared(replicas: list[ReplicaFacts]) -> tuple[list[Pair], list[list[Row]]]:
    log = log_of(replicas)
    end = max(replica.log_end for replica in replicas)
    found = [dataclasses.replace(pair) for pair in pairs(log)]
    return found, [[row_of(log, replica, offset) for offset in range(-1, end + 2)] for replica in replicas]


def assert_the_same(found: list[Pair], expected: list[Pair]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        for field in ("low", "high", "divergent", "first_offset", "last_offset", "forked_at", "lost_epoch", "gaps"):
            assert getattr(one, field) == getattr(other, field), field
        assert (one.until, one.undecided) == (None, False)


SEEDS = 150


@seeded(SEEDS)
def test_a_stretch_at_a_time_is_as_all_at_once(seed: int) -> None:
    found, rows = compared(two(seed))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(comparing, "ReplicaBatches", AtOnce)
        expected, all_rows = compared(two(seed))
    assert rows == all_rows
    assert_the_same(found, expected)


@seeded(SEEDS)
def test_by_sums_is_as_by_headers(seed: int) -> None:
    """Both replicas summed, with ranges of the same width and not, and one of them alone."""
    expected, all_rows = compared(two(seed))
    for shifts in (((4, 4), (2, 5), (9, 9))[seed % 3], ((4, None), (None, 4))[seed % 2]):
        replicas = [replica if s is None else summed(replica, s) for replica, s in zip(two(seed), shifts, strict=True)]
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(batch_headers, "AT_A_TIME", (8, 64, 131_072)[seed % 3])
            found, rows = compared(replicas)
        assert rows == all_rows
        assert_the_same(found, expected)


def test_the_histories_show_what_they_are_made_for() -> None:
    """Without it the test above would compare nothing with nothing."""
    seen = {"same": 0, "divergent": 0, "forked": 0, "gaps": 0, "out of order": 0, "many pieces": 0}
    for seed in range(SEEDS):
        replicas = two(seed)
        batches = [ReplicaBatches(replica) for replica in replicas]
        seen["out of order"] += not all(one.ordered for one in batches)
        seen["many pieces"] += all(len(one.starts) > 3 for one in batches)
        for pair in pairs(log_of(replicas)):
            seen["same"] += not pair.divergent and not pair.gaps
            seen["divergent"] += pair.divergent > 0
            seen["forked"] += pair.forked_at >= 0
            seen["gaps"] += len(pair.gaps) > 1
    assert min(seen.values()) >= 10, seen


def test_of_replicas_that_are_the_same_no_batch_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(1)
    rows = history(rng, 500)
    replicas = [replica_of(rng, broker, rows, 60) for broker in (1, 2)]
    held = []
    intersect = np.intersect1d

    def counted(ours: np.ndarray, theirs: np.ndarray, **how: bool) -> object:
        held.append(len(ours))
        return intersect(ours, theirs, **how)

    monkeypatch.setattr(np, "intersect1d", counted)
    (pair,) = pairs(log_of(replicas))
    assert (pair.divergent, pair.gaps) == (0, [])
    assert not held
    rows[250] |= {"crc": rows[250]["crc"] ^ 1}
    (pair,) = pairs(log_of([replicas[0], replica_of(rng, 2, rows, 60)]))
    assert pair.divergent == 1
    assert 0 < sum(held) < 2 * (256 + 2)  # of the range that differs, and one for each run of the others


def test_of_replicas_with_the_same_sums_nothing_is_read_again() -> None:
    rng = random.Random(1)
    rows = history(rng, 500)
    replicas = [summed(replica_of(rng, broker, rows, 60)) for broker in (1, 2)]
    for replica in replicas:
        replica.log_start = 0
    (pair,) = pairs(log_of(replicas))
    assert (pair.divergent, pair.gaps) == (0, [])
    assert [read_again(replica).asked for replica in replicas] == [0, 0]


def test_a_tail_that_one_replica_lacks_is_not_read_but_its_edges() -> None:
    rng = random.Random(2)
    rows = history(rng, 2_000)
    replicas = [summed(replica_of(rng, broker, its, 60)) for broker, its in ((1, rows), (2, rows[:900]))]
    for replica in replicas:
        replica.log_start, replica.leader_epochs = 0, []
    (pair,) = pairs(log_of(replicas))
    assert [(gap.first_offset, gap.last_offset, gap.batches) for gap in pair.gaps] == [
        (rows[900]["base_offset"], rows[-1]["last_offset"], 1_100)
    ]
    assert all(read_again(replica).asked < 20 for replica in replicas)


def two_that_differ(**changes: int) -> list[ReplicaFacts]:
    """Two of 500 batches, of which number 300 differs so."""
    rng = random.Random(3)
    rows = history(rng, 500)
    other = [*rows[:300], rows[300] | changes, *rows[301:]]
    replicas = [summed(replica_of(rng, broker, its, 60)) for broker, its in ((1, rows), (2, other))]
    for replica in replicas:
        replica.log_start, replica.leader_epochs, replica.high_watermark = 0, [], replica.log_end
    return replicas


@pytest.mark.parametrize("name", comparing.COMPARED)
def test_each_column_that_is_compared_is_in_the_sum(name: str) -> None:
    replicas = two_that_differ(**{name: 77 if name != "last_offset" else -1})
    if name == "last_offset":  # within the batch
        rng = random.Random(3)
        rows = history(rng, 500)
        at = next(k for k in range(300, 500) if rows[k]["last_offset"] > rows[k]["base_offset"])
        other = [*rows[:at], rows[at] | {name: rows[at][name] - 1}, *rows[at + 1 :]]
        replicas = [summed(replica_of(rng, broker, its, 60)) for broker, its in ((1, rows), (2, other))]
        for replica in replicas:
            replica.log_start, replica.leader_epochs, replica.high_watermark = 0, [], replica.log_end
    (pair,) = pairs(log_of(replicas))
    assert pair.divergent == 1
    assert all(0 < read_again(replica).asked < 50 for replica in replicas)


def vanished(files: InMemory) -> None:
    files.gone = True


def changed(files: InMemory) -> None:
    files.rows["crc"] = files.rows["crc"] ^ 1


def cut(files: InMemory) -> None:
    files.rows = {name: column[:250] for name, column in files.rows.items()}


@pytest.mark.parametrize("happens", [vanished, changed, cut])
@pytest.mark.parametrize("which", [0, 1])
def test_what_is_no_longer_as_it_was_proves_nothing(happens: Callable[[InMemory], None], which: int) -> None:
    replicas = two_that_differ(crc=77)
    happens(read_again(replicas[which]))
    log = log_of(replicas)
    (pair,) = pairs(log)
    assert (pair.divergent, pair.gaps, pair.undecided) == (0, [], True)
    assert keeps_out(log, pair.replica)  # else a remedy would make it leader
    errors = [error for replica in log.replicas for error in unread_again(log, replica)]
    assert [(error.file, error.reason) for error in errors] == [("s", "vanished")]
    assert "compared" in errors[0].detail


def test_only_so_much_is_read_again_and_where_it_ends_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(4)
    rows = history(rng, 2_000)
    other = [row | {"crc": 5} for row in rows]
    replicas = [summed(replica_of(rng, broker, its, 60)) for broker, its in ((1, rows), (2, other))]
    for replica in replicas:
        replica.log_start, replica.leader_epochs, replica.high_watermark = 0, [], replica.log_end
    monkeypatch.setattr(batch_headers, "AT_A_TIME", 64)
    log = log_of(replicas)
    monkeypatch.setattr(comparing, "Allowance", lambda: Allowance(FOR_EVIDENCE + 70 * 500))
    (pair,) = pairs(log)
    assert pair.until is not None
    assert 0 < pair.divergent == sum(row["base_offset"] < pair.until for row in rows) < 500
    (error,) = [error for replica in log.replicas for error in unread_again(log, replica)]
    assert error.reason == "limit"
    assert f"from offset {pair.until} on" in error.detail


@pytest.mark.parametrize("happens", [vanished, changed, cut])
def test_a_log_out_of_order_proves_nothing_where_it_is_no_longer_as_it_was(happens: Callable[[InMemory], None]) -> None:
    rng = random.Random(5)
    rows = history(rng, 300)
    for which in (0, 1):
        shape = [rows, rows]
        shape[which] = [*rows[:200], rows[0], *rows[200:]]
        replicas = [summed(replica_of(rng, broker, its, 60)) for broker, its in enumerate(shape, 1)]
        happens(read_again(replicas[which]))
        log = log_of(replicas)
        (pair,) = pairs(log)
        assert (pair.divergent, pair.gaps, pair.undecided) == (0, [], True)
        assert {e.reason for replica in log.replicas for e in unread_again(log, replica)} == {"vanished"}


def test_a_log_out_of_order_that_is_too_long_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(5)
    rows = history(rng, 300)
    for shape in ([rows, [*rows, rows[0]]], [[*rows, rows[0]], rows]):
        replicas = [summed(replica_of(rng, broker, its, 60)) for broker, its in enumerate(shape, 1)]
        for most, allowance in ((100, Allowance()), (10_000, Allowance(FOR_EVIDENCE + 100))):
            monkeypatch.setattr(batch_headers, "MOST_AT_ONCE", most)
            log = log_of(replicas)
            monkeypatch.setattr(comparing, "allowance", lambda _, given=allowance: given)
            (pair,) = pairs(log)
            assert (pair.divergent, pair.gaps, pair.undecided) == (0, [], True)
            assert {e.reason for replica in log.replicas for e in unread_again(log, replica)} == {"limit"}


def shown(batches: ReplicaBatches) -> list[int]:
    return [offset for rows in batches.above(0, None, ("base_offset",)) for offset in rows["base_offset"].tolist()]


def test_what_findings_show_of_many_batches_ends_at_a_limit_which_is_named() -> None:
    rng = random.Random(6)
    rows = history(rng, 500)
    replica = summed(replica_of(rng, 1, rows, 60))
    batches = ReplicaBatches(replica, Allowance(70 * 200))
    found = shown(batches)
    assert found == [row["base_offset"] for row in rows[: len(found)]]
    assert 0 < len(found) < 500
    (error,) = batches.errors
    assert (error.reason, "what findings show" in error.detail) == ("limit", True)


def test_batches_that_are_gone_are_not_left_out_for_a_limit() -> None:
    rng = random.Random(6)
    replica = summed(replica_of(rng, 1, history(rng, 500), 60))
    vanished(read_again(replica))
    batches = ReplicaBatches(replica)
    assert shown(batches) == []
    assert [error.reason for error in batches.errors] == ["vanished"]


def test_only_so_many_that_differ_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_headers, "AT_A_TIME", 64)
    monkeypatch.setattr(batch_headers, "MOST_APART", 200)
    rng = random.Random(4)
    rows = history(rng, 2_000)
    replicas = [summed(replica_of(rng, b, its, 60)) for b, its in ((1, rows), (2, [row | {"crc": 5} for row in rows]))]
    for replica in replicas:
        replica.log_start, replica.leader_epochs, replica.high_watermark = 0, [], replica.log_end
    (pair,) = pairs(log_of(replicas))
    assert pair.until is not None
    assert 100 <= pair.divergent == sum(row["base_offset"] < pair.until for row in rows) < 200
