"""Numbers that no cluster has: stored as they are, and bounded where something computes with them."""

from __future__ import annotations

import json
import struct
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from auditor.base.errors import LAST_MS, MOST_OFFSET, OUT_OF_RANGE_MS, bounded, bounded_time
from auditor.commands.decode import DecodeOptions, decode, lines, locate
from auditor.connectors.codec.batches import BASE_OFFSET, LAST_OFFSET, MAX_TIMESTAMP, bound_numbers, rows_of
from auditor.connectors.logdir.files import TextFile
from auditor.connectors.logdir.internal_rows import MetadataLog
from auditor.connectors.stores.storage import StorageLocation
from auditor.facts.events import EventKind, events_of
from auditor.pipeline.plan import bytes_of, sizes_of
from auditor.replay.task import TextTask
from auditor.rules.seen.view import iso, moment
from tests.fuzz.mutated_directories import LIMITS
from tests.made import APPEND_TIME, batches, data, marker
from tests.segments import chunks, simple
from tests.unit.batch_histories import History, facts_of

LONGEST, SHORTEST = 2**63 - 1, -(2**63)
T, HOUR = 1_700_000_000_000, 3_600_000


@pytest.mark.parametrize(
    ("number", "nearest"),
    [(LONGEST, MOST_OFFSET), (MOST_OFFSET + 1, MOST_OFFSET), (MOST_OFFSET - 1, MOST_OFFSET - 1), (-1, -1),
     (SHORTEST, -MOST_OFFSET), (10**30, MOST_OFFSET)],
)  # fmt: skip
def test_a_number_is_the_nearest_one_within_its_bounds(number: int, nearest: int) -> None:
    assert bounded(number) == nearest
    if abs(number) <= LONGEST + 1:
        assert bounded(np.array([number, 7])).tolist() == [nearest, 7]
        assert bounded(np.int64(number)) == nearest


def test_a_time_is_out_of_range_from_the_year_10000_on() -> None:
    assert [bounded_time(ms) for ms in (LAST_MS, LAST_MS + 1, LONGEST)] == [LAST_MS, OUT_OF_RANGE_MS, OUT_OF_RANGE_MS]
    assert moment(LAST_MS) == datetime(9999, 12, 31, 23, 59, 59, 999_000, UTC)
    assert moment(OUT_OF_RANGE_MS) is None
    assert [iso(ms) for ms in (LAST_MS, OUT_OF_RANGE_MS, -1, None)] == [
        "9999-12-31T23:59:59.999Z", "after the year 9999", None, None,
    ]  # fmt: skip


def test_a_last_offset_that_wrapped_is_bounded_as_its_base_offset() -> None:
    rows = rows_of(batches(data(0, 0), data(3, 3)))
    rows[0, [BASE_OFFSET, LAST_OFFSET, MAX_TIMESTAMP]] = LONGEST - 1, SHORTEST, LONGEST
    bound_numbers(rows)
    assert rows[:, [BASE_OFFSET, LAST_OFFSET, MAX_TIMESTAMP]].tolist() == [
        [MOST_OFFSET, MOST_OFFSET, OUT_OF_RANGE_MS], [3, 3, 1_000_000],
    ]  # fmt: skip


def stamped(offset: int, time: int) -> dict[str, Any]:
    return data(offset, -1, pid=-1, producer_epoch=-1, attributes=APPEND_TIME) | {"max_timestamp": time}


@pytest.mark.parametrize("wrong", [LAST_MS + 1, LONGEST, SHORTEST])
def test_no_clock_shows_a_time_out_of_range(wrong: int) -> None:
    rows = [stamped(0, T), stamped(1, wrong), marker(2, 0) | {"max_timestamp": wrong}, stamped(3, T + HOUR)]
    facts = facts_of(History(rows), checkpoint=False)
    assert (facts.broker_time, facts.any_time) == (T + HOUR, T + HOUR)
    assert facts.track["time"].tolist() == [T, T + HOUR]
    assert set(facts.track["era"].tolist()) == {0}
    last = facts_of(History([stamped(0, T), stamped(1, LAST_MS)]), checkpoint=False)
    assert last.broker_time == LAST_MS


@pytest.mark.parametrize("wrong", [LAST_MS + 1, LONGEST, SHORTEST])
def test_no_producer_was_idle_until_a_time_out_of_range(wrong: int) -> None:
    """Nor since one: the difference of two 64-bit numbers has 65."""
    rows = [data(k, k) | {"max_timestamp": time} for k, time in enumerate((T, wrong, T + 1))]
    facts = facts_of(History(rows), checkpoint=False)
    assert not list(events_of(facts.events, EventKind.IDLE_BEYOND_EXPIRY, EventKind.TIMESTAMP_BEHIND))
    assert int(facts.producers["max_idle_ms"].max()) <= 1  # type: ignore[index]


@pytest.mark.parametrize("base", [MOST_OFFSET, LONGEST])
def test_nothing_is_missing_before_an_offset_out_of_range(base: int) -> None:
    """No checksum covers a base offset."""
    facts = facts_of(History([data(0, 0), data(base, 1), data(1, 2), data(2, 3)]), checkpoint=False)
    assert facts.log_end == 3
    assert facts.sums["hole_offsets_intact"] == 0
    events = list(events_of(facts.events, EventKind.OFFSETS_NOT_INCREASING, EventKind.OFFSET_HOLE))
    assert [(e["base_offset"], e.get("previous_last_offset")) for e in events] == [(MOST_OFFSET, 0)]


def test_the_newest_time_of_metadata_is_one_that_a_controller_read() -> None:
    log = SimpleNamespace(newest=-1)
    MetadataLog._note_times(log, np.array([T, LONGEST]))  # type: ignore[arg-type]
    MetadataLog._note_times(log, np.array([LAST_MS + 1]))  # type: ignore[arg-type]
    assert log.newest == T


def test_tasks_of_exbibytes_are_compared() -> None:
    """A sparse file takes no room."""
    task = TextTask(StorageLocation("", "/nowhere"), "", "", None, None, (TextFile("t", 1 << 62, "dump"),))
    assert bytes_of([task] * 9).tolist() == [1 << 50] * 9
    assert 9 << 50 < int(sizes_of([task] * 9).sum()) < 10 << 50


def test_decode_shows_what_is_stored_and_no_sum_that_wrapped(tmp_path: Path) -> None:
    path = tmp_path / "t-0" / f"{0:020}.log"
    path.parent.mkdir()
    path.write_bytes(struct.pack(">q", LONGEST - 1) + simple(0, 3)[8:])
    options, shown = DecodeOptions((str(path),), False, False, False, LIMITS), []
    for piece in locate(options):
        for own, table, rows in decode(piece, options):
            shown += [json.loads(line) for line in lines(rows, "" if own else table, False)]
    row = next(row for row in shown if "base_offset" in row)
    assert (row["base_offset"], row["last_offset"]) == (LONGEST - 1, None)
    assert row["last_sequence"] == -1
    (error,) = (row for row in shown if "reason" in row)
    assert (error["reason"], error["detail"]) == ("bad_value", f"the last offset, {LONGEST + 1}, exceeds 64 bits")


def test_the_offsets_of_an_error_fit_a_copy_s_list() -> None:
    """A damaged length between offsets at the end of 64 bits, and one behind them."""
    damaged = bytearray(simple(LONGEST - 1, 3))
    struct.pack_into(">i", damaged, 8, 60)
    errors = [e for c in chunks(bytes(damaged) + simple(7)) for e in (*c.errors, *c.body_errors)]
    assert errors
    assert all(abs(offset) <= LONGEST for e in errors for offset in (e.first_offset, e.last_offset))
