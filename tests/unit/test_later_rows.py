"""What later batches of a producer leave has rows of its own (LATER): compared with a plain account of the same
batches, on histories with all that can be odd."""

from __future__ import annotations

from typing import Any

import pytest

from auditor.connectors.codec.batches import FLAW_CRC, rows_of
from auditor.connectors.codec.primitives import crc_of_change
from auditor.facts.events import EventKind
from auditor.replay.producers.state import has_broker_time, is_control, is_foreign, is_marker
from auditor.replay.task import DAY_MS, as_records
from tests.made import APPEND_TIME, TRANSACTIONAL
from tests.unit.batch_histories import LAST, History, facts_of, history

Found = tuple[int, int, int, int]  # position, producer id, and two numbers of the event


class Account:
    """One producer, all of it in one place."""

    def __init__(self) -> None:
        self.batches, self.idle, self.active = 0, 0, -1
        self.transactional = False
        self.epoch, self.epoch_at, self.epoch_leader = -1, -1, -1
        self.data_epoch, self.data_at, self.data_time = -1, -1, -1
        self.last_epoch, self.last_sequence = -1, -1  # of data that no later epoch had fenced
        self.zero: Any = None

    def raise_epoch(self, b: Any) -> Found | None:
        """Takes in the epoch of a judged batch or marker; what an event about it would say."""
        if b["producer_epoch"] < self.epoch:
            return b["position"], b["producer_id"], self.epoch_at, self.epoch_leader
        if b["producer_epoch"] > self.epoch:
            self.epoch, self.epoch_at = b["producer_epoch"], b["base_offset"]
            self.epoch_leader = b["partition_leader_epoch"]
        return None

    def judged_zero(self, b: Any) -> Found | None:
        """Looks at a judged batch's sequences; what an event of the same bytes once more would say."""
        fenced = self.batches > 0 and b["producer_epoch"] < self.data_epoch
        if b["base_sequence"] != 0 or b["last_offset"] < b["base_offset"] or fenced:
            return None
        goes_on = self.batches > 0 and b["producer_epoch"] == self.last_epoch and self.last_sequence != LAST
        said = (b["position"], b["producer_id"], self.zero[1], 0) if goes_on and self._same_bytes(b) else None
        self.zero = (b, b["base_offset"])
        return said

    def _same_bytes(self, b: Any) -> bool:
        if self.zero is None:
            return False
        old, _ = self.zero
        change = old["max_timestamp"] ^ b["max_timestamp"]
        if (old["producer_epoch"], old["bytes"]) != (b["producer_epoch"], b["bytes"]):
            return False
        if change and not b["attributes"] & APPEND_TIME:
            return False
        return bool(old["crc"] ^ b["crc"] == crc_of_change(change, b["bytes"] - 43))


def accounts(made: History, log_start: int) -> tuple[dict[int, Account], list[Found], list[Found], set[int]]:
    """Of all producers, events on epochs that went down and on bytes that came again, and where first batches lie."""
    out, down, again, first, broker_time = dict[int, Account](), list[Found](), list[Found](), set[int](), -1
    for b in as_records(rows_of(made.columns())):
        if b["flaws"] & FLAW_CRC:
            continue
        marker, stamp = is_marker(b), int(b["max_timestamp"])
        time = stamp if has_broker_time(b, marker, False) else max(stamp, broker_time)
        broker_time = max(broker_time, stamp) if has_broker_time(b, marker, False) else broker_time
        if b["magic"] != 2 or b["producer_id"] < 0:
            continue
        if not marker and (is_control(b) or is_foreign(b, True)):
            continue
        a, judged = out.setdefault(int(b["producer_id"]), Account()), b["last_offset"] >= log_start
        if marker:
            down += [said for said in [a.raise_epoch(b) if judged else None] if said]
            a.active = max(a.active, stamp)
            continue
        a.transactional |= bool(b["attributes"] & TRANSACTIONAL)
        if judged:
            a.idle += a.active >= 0 and (stamp - a.active) * 5 > DAY_MS * 4
            again += [said for said in [a.judged_zero(b)] if said]
            down += [said for said in [a.raise_epoch(b)] if said]
            first |= {int(b["position"])} if a.batches == 0 else set()
            a.batches += 1
            if b["producer_epoch"] > a.data_epoch:
                a.data_epoch, a.data_at, a.data_time = b["producer_epoch"], b["base_offset"], time
            if b["producer_epoch"] >= a.data_epoch:
                length, a.last_epoch = int(b["last_offset"] - b["base_offset"]), b["producer_epoch"]
                known = b["base_sequence"] >= 0 and length >= 0
                a.last_sequence = (int(b["base_sequence"]) + length) % (LAST + 1) if known else -1
        elif b["base_sequence"] == 0:
            a.zero = (b, b["base_offset"])
        a.active = stamp
    return out, down, again, first


def compared(made: History, chunk: int) -> tuple[int, int, int]:
    """Compares the facts with the account; how many idle times and events of both kinds there were."""
    facts, idle = facts_of(made, chunk=chunk), 0
    plain, down, again, first = accounts(made, facts.log_start)
    for row in facts.producers:
        a = plain.get(int(row["producer_id"]))
        if a is None:  # only a snapshot knows it
            continue
        assert row["batches"] == a.batches
        kept = row["max_data_epoch"], row["max_data_epoch_offset"], row["max_data_epoch_time"]
        assert kept == (a.data_epoch, a.data_at, a.data_time)
        if not a.transactional:
            assert row["idle_count"] == a.idle
            idle += a.idle
    epochs = facts.events[(facts.events["kind"] == EventKind.EPOCH_REGRESSION)]
    markers = facts.events[(facts.events["kind"] == EventKind.MARKER_EPOCH_REGRESSION)]
    found = {
        tuple(map(int, (e["position"], e["producer_id"], e["known_epoch_offset"], e["known_leader_epoch"])))
        for events in (epochs, markers)
        for e in events
    }
    assert set(down) <= found
    assert {place for place, *_ in found - set(down)} <= first  # what snapshots and batches below say comes to these
    overlaps = facts.events[facts.events["kind"] == EventKind.SEQUENCE_OVERLAP]
    stored = {(int(e["position"]), int(e["producer_id"])): int(e["stored_base_offset"]) for e in overlaps}
    for place, pid, base_offset, _ in again:
        assert stored[place, pid] == base_offset
    return idle, len(down), len(again)


@pytest.mark.parametrize("oddities", [0, 0.02, 0.2, 0.5])
def test_what_later_batches_leave(oddities: float) -> None:
    counts = [0, 0, 0]
    for seed in range(40):
        made = history(seed, 300, 1 + seed % 12, oddities, transactional=0.3 * (seed % 3))
        if seed % 2:  # the same bytes come again where nothing but the offset differs
            for row in made.rows:
                row["max_timestamp"] = 1_700_000_000_000
        counts = [count + more for count, more in zip(counts, compared(made, 1 + seed % 17), strict=True)]
    assert counts[0] > 10
    assert oddities < 0.1 or min(counts) > 10, "each of them is there often enough to mean something"


def test_a_producer_of_one_epoch_has_no_such_row() -> None:
    """It is what keeps a million of them small."""
    seen = []
    made = history(3, 300, 4, 0, transactional=0)
    for row in made.rows:
        row["producer_epoch"], row["max_timestamp"] = 0, 1_700_000_000_000
    sequences: dict[int, int] = {}
    for row in made.rows:
        row["base_sequence"] = sequences.get(row["producer_id"], 0)
        sequences[row["producer_id"]] = row["base_sequence"] + row["last_offset"] - row["base_offset"] + 1
    made.log_start = 0

    def replayed(reader: Any, rows: Any, /) -> None:
        reader.replay_batches(rows)
        seen.append(int(reader.audit.replay.progress["later"]))

    facts_of(made, replay=replayed)
    assert set(seen) == {0}


def test_an_epoch_below_none_is_compared_with_nothing() -> None:
    """A sound checksum over epoch -5, which no producer has: what the event names is none, not what memory held."""
    facts_of(history(1, 300, 12, 0))  # leaves tables that the next replay goes on with
    made = history(2, 20, 1, 0, transactional=0)
    made.rows[0]["producer_epoch"], made.log_start = -5, 0
    events = facts_of(made).events
    (found,) = events[events["kind"] == EventKind.EPOCH_REGRESSION]
    assert found["base_offset"] == made.rows[0]["base_offset"]
    assert (found["known_epoch"], found["known_epoch_offset"], found["known_leader_epoch"]) == (-1, -1, -1)
