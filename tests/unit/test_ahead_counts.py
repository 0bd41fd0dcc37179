"""What lies ahead of an offset, against counting record by record."""

from __future__ import annotations

import random
from typing import NamedTuple

import numpy as np

from auditor.connectors.codec import batches as walking
from auditor.facts.replica_facts import TRANSACTION
from auditor.replay.internal_readers import combined, settled
from auditor.replay.reading import lag_counts
from auditor.replay.reading.lag_counts import ABORTED, FAR, MARKER, OPEN, SEEN, WAITING, Counts, Outcomes
from tests.seeded_tests import seeded

MARKER_OF = {"commit": 1, "abort": 0}


class Record(NamedTuple):
    """A record that is in the log, or a marker: whose it is, and the batch that it is in."""

    offset: int
    producer: int
    transaction: int  # its number, -1 for none
    marker: bool


class Log(NamedTuple):
    """A random log: the batches as rows of a walk, its records, its transactions and how each ended."""

    rows: np.ndarray
    records: list[Record]
    transactions: np.ndarray
    ended: dict[int, str]
    end: int


def made(seed: int) -> Log:
    """Transactions of three producers and plain batches, some of them cleaned."""
    rng = random.Random(seed)
    offset, records, lines = rng.choice((0, 1000)), [], []
    begun: dict[int, int] = {}
    transactions: list[dict[str, int]] = []
    ended: dict[int, str] = {}
    cleaned = rng.random() < 0.5
    for _ in range(rng.randint(5, 60)):
        producer = rng.choice((-1, 7, 8, 9))
        if producer in begun and rng.random() < 0.4:
            how = rng.choice(("commit", "abort"))
            number = begun.pop(producer)
            transactions[number] |= {"marker_offset": offset, "commit": MARKER_OF[how]}
            ended[number] = how
            records.append(Record(offset, producer, number, True))
            lines.append(_line(offset, offset, 1, producer, walking.TRANSACTIONAL | walking.CONTROL))
            offset += 1
            continue
        number = -1
        if producer >= 0:
            if producer not in begun:
                begun[producer] = len(transactions)
                transactions.append({"producer_id": producer, "first_offset": offset, "marker_offset": -1})
            number = begun[producer]
        span = rng.randint(1, 9)
        kept = [k for k in range(span) if not cleaned or rng.random() < 0.5]
        records += [Record(offset + k, producer, number, False) for k in kept]
        attributes = walking.TRANSACTIONAL if producer >= 0 else 0
        if kept or rng.random() < 0.5:
            lines.append(_line(offset, offset + span - 1, len(kept), producer, attributes))
        offset += span
        if cleaned and rng.random() < 0.2:
            offset += rng.randint(1, 5)
    lines.append(_line(offset, offset, 1, -1, 0))
    records.append(Record(offset, -1, -1, False))
    found = np.zeros(len(transactions), TRANSACTION)
    for row, said in zip(found, transactions, strict=True):
        for name, value in said.items():
            row[name] = value
    return Log(np.array(lines), records, found, ended, offset + 1)


def _line(base: int, last: int, count: int, producer: int, attributes: int) -> np.ndarray:
    row = walking.walk_rows(1)[0]
    row[:] = 0
    row[walking.BASE_OFFSET], row[walking.LAST_OFFSET], row[walking.RECORD_COUNT] = base, last, count
    row[walking.PRODUCER_ID], row[walking.ATTRIBUTES], row[walking.MAGIC] = producer, attributes, 2
    row[walking.SIZE] = 61 + count
    return row


def expected(log: Log, stable: int, offset: int) -> list[int]:
    """Of each class how many records there are from an offset on, one by one."""
    counts = [0] * lag_counts.CLASSES
    for record in log.records:
        if record.offset < offset:
            continue
        if record.marker:
            counts[MARKER] += 1
        elif record.transaction >= 0 and record.transaction not in log.ended:
            counts[OPEN] += 1
        elif record.transaction >= 0 and log.ended[record.transaction] == "abort":
            counts[ABORTED] += 1
        else:
            counts[WAITING if record.offset >= stable else SEEN] += 1
    return counts


@seeded(60)
def test_counts_are_those_of_the_records_one_by_one(seed: int) -> None:
    log = made(seed)
    rng = random.Random(seed)
    outcomes = Outcomes(log.transactions, log.end)
    stable = min(outcomes.first_open, log.end)
    asked = sorted({rng.randint(int(log.rows[0, walking.BASE_OFFSET]), log.end) for _ in range(8)})
    counts = Counts(asked, outcomes, stable, log.end)
    at = 0
    while at < len(log.rows):  # in chunks of any size
        some = rng.randint(1, 7)
        counts.take(log.rows[at : at + some], 0)
        at += some
    for offset in asked:
        found, wanted = counts.ahead(offset), np.array(expected(log, stable, offset))
        assert (found.least <= wanted).all()
        assert (wanted <= found.most).all()
    for offset, _, position in counts.unsure():
        assert position == 0
        batch = next(row for row in log.rows if row[walking.LAST_OFFSET] >= offset)
        inside = range(batch[walking.BASE_OFFSET], batch[walking.LAST_OFFSET] + 1)
        counts.looked_into(offset, np.array([r.offset for r in log.records if r.offset in inside]))
    for offset in asked:
        found = counts.ahead(offset)
        assert found.least.tolist() == found.most.tolist() == expected(log, stable, offset)
        seen = [r.offset for r in log.records if r.offset >= offset and _is_seen(log, r, stable)]
        if found.first is None:
            assert not seen
        else:
            first, last = (int(found.first[k]) for k in (walking.BASE_OFFSET, walking.LAST_OFFSET))
            assert not seen or first <= seen[0] <= last
        stands = {record.offset: lag_counts.AT_MARKER if record.marker else lag_counts.RECORD
                  for record in log.records}  # fmt: skip
        outside = lag_counts.NOWHERE if offset == log.end else lag_counts.GAP
        assert found.stands == stands.get(offset, outside)


@seeded(30)
def test_stretches_have_what_lies_in_them(seed: int) -> None:
    """Also where both ends lie in one cleaned batch."""
    log, rng = made(seed), random.Random(seed)
    outcomes = Outcomes(log.transactions, log.end)
    stable = min(outcomes.first_open, log.end)
    first = int(log.rows[0, walking.BASE_OFFSET])
    pairs = []
    for _ in range(12):
        at = rng.randint(first, log.end - 1)
        pairs.append((at, min(at + rng.randint(1, 6), log.end)))
    counts = Counts([edge for pair in pairs for edge in pair], outcomes, stable, log.end)
    counts.take(log.rows, 0)
    for at, behind in pairs:
        fewest, most = counts.between(at, behind)
        there = np.array(expected(log, stable, at)) - expected(log, stable, behind)
        assert (fewest >= 0).all()
        assert (fewest <= there).all()
        assert (there <= most).all()


def _is_seen(log: Log, record: Record, stable: int) -> bool:
    return not record.marker and record.offset < stable and log.ended.get(record.transaction, "commit") == "commit"


def test_a_marker_beyond_the_end_decides_nothing_yet() -> None:
    row = np.zeros(1, TRANSACTION)
    row["producer_id"], row["first_offset"], row["marker_offset"], row["commit"] = 7, 10, 20, 1
    assert Outcomes(row, 21).first_open == FAR
    assert Outcomes(row, 20).first_open == 10


def test_states_of_a_share_group_are_put_together_as_its_coordinator_does() -> None:
    """The higher delivery count holds, of equal ones the higher state; what lies below the start is dropped."""
    before = [(0, 9, 1, 0), (10, 19, 1, 2)]
    more = [(5, 12, 2, 4), (18, 25, 1, 0), (0, 3, 1, 2)]
    found = combined(before, more, 2)
    assert found == [(2, 3, 1, 2), (4, 4, 1, 0), (5, 12, 2, 4), (13, 19, 1, 2), (20, 25, 1, 0)]
    assert settled(found) == ((2, 3), (5, 12), (13, 19))


@seeded(20)
def test_states_are_those_of_each_offset_alone(seed: int) -> None:
    rng = random.Random(seed)

    def some() -> list[tuple[int, int, int, int]]:
        firsts = [rng.randint(0, 40) for _ in range(6)]
        return [(a, a + rng.randint(0, 9), rng.randint(1, 3), rng.choice((0, 2, 4))) for a in firsts]

    before, more, start = some(), some(), rng.randint(0, 20)
    found = {at: batch[2:] for batch in combined(before, more, start) for at in range(batch[0], batch[1] + 1)}
    wanted = {}
    for at in range(start, 60):
        states = [batch[2:] for batch in (*before, *more) if batch[0] <= at <= batch[1]]
        if states:
            wanted[at] = max(states)
    assert found == wanted
