"""Indexes against their segment: what is done for all entries at once is what the definition says of each."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np
from hypothesis import given
from hypothesis import strategies as some

from auditor.connectors.codec.indexes import OffsetIndex, TimeIndex
from auditor.connectors.codec.segment import Chunk
from auditor.facts.events import EVENT, EventKind
from auditor.replay.reading import index_checks
from auditor.replay.reading.index_checks import OffsetCheck, TimeCheck
from tests import segments

Entry = tuple[int, int]  # place in the segment or time, and offset
Check = TypeVar("Check", OffsetCheck, TimeCheck)
SIZES = some.lists(some.integers(1, 4), max_size=12)
ENTRIES = some.lists(some.tuples(some.integers(0, 12), some.integers(-2, 2)), max_size=6)


def segment(counts: list[int], times: list[int]) -> list[Chunk]:
    """Chunks of a segment whose batches have so many records and such a largest time."""
    base, data = 0, b""
    for count, time in zip(counts, times, strict=False):
        data += segments.simple(base, count, base_time=time, max_time=time)
        base += count
    return segments.chunks(data)


def fed(check: Check, rows: np.ndarray, cut: int) -> Check:
    """The check, given batches in chunks of ``cut``."""
    for at in range(0, len(rows), cut):
        check.take(rows[at : at + cut])
    return check


def found(events: Iterable[np.ndarray]) -> list[tuple[int, ...]]:
    second = {EventKind.INDEX_ENTRY: "entry_position", EventKind.TIME_INDEX_ENTRY: "entry_timestamp"}
    return [
        tuple(int(row[n]) for n in ("position", "entry_offset", second[row["kind"]], "fault", "larger_last_offset"))
        for part in events
        for row in part
    ]


def offset_index_says(b: Any, entries: list[Entry], end: int) -> list[tuple[int, ...]]:
    """The definition, an entry at a time."""
    out = []
    for k, (at, offset) in enumerate(entries):
        rows = np.flatnonzero(b.position == at)
        until = entries[k + 1][0] if k + 1 < len(entries) else end
        if k and (offset <= entries[k - 1][1] or at <= entries[k - 1][0]):
            out.append((8 * k, offset, at, index_checks.NOT_INCREASING, -1))
        elif at < end and not len(rows):
            out.append((8 * k, offset, at, index_checks.NO_BATCH_THERE, -1))
        elif at < end:
            final = max(int(rows[0]), int(np.count_nonzero(b.position < until)) - 1)
            if not b.base_offset[rows[0]] <= offset <= b.last_offset[final]:
                out.append((8 * k, offset, at, index_checks.OFFSET_ELSEWHERE, -1))
    return out


def time_index_says(b: Any, entries: list[Entry], log_end: int) -> list[tuple[int, ...]]:
    """The definition, an entry at a time."""
    out = []
    for k, (stamp, offset) in enumerate(entries):
        before = np.flatnonzero(b.last_offset <= offset)
        if k and (stamp <= entries[k - 1][0] or offset < entries[k - 1][1]):
            out.append((12 * k, offset, stamp, index_checks.NOT_INCREASING, -1))
        elif offset < log_end and len(before) and (largest := b.max_timestamp[before].max()) > stamp:
            culprit = before[b.max_timestamp[before] == largest][-1]
            out.append((12 * k, offset, stamp, index_checks.EARLIER_IS_LARGER, int(b.last_offset[culprit])))
    return out


@given(some.data(), SIZES, some.integers(1, 5))
def test_an_offset_index_is_judged_as_its_definition_says(data: Any, counts: list[int], cut: int) -> None:
    (chunk,) = segment(counts, [segments.TIME] * len(counts))
    b, end = chunk.batches, int(chunk.batches.size.sum())
    places = [*b.position.tolist(), end, 7]
    entries = [
        (places[min(at, len(places) - 1)], int(b.last_offset[at]) + off if at < len(counts) else off)
        for at, off in sorted(data.draw(ENTRIES))
    ]
    index = OffsetIndex(
        np.arange(len(entries)) * 8, np.array([o for _, o in entries], np.int64),
        np.array([p for p, _ in entries], np.int64), 8 * len(entries), 0,
    )  # fmt: skip
    assert found(fed(OffsetCheck(index), chunk.rows, cut).faults(end).events(0, end)) == [
        (p, a, at, c, d) for p, a, at, c, d in offset_index_says(b, entries, end)
    ]


@given(some.data(), SIZES, some.integers(1, 5))
def test_a_time_index_is_judged_as_its_definition_says(data: Any, counts: list[int], cut: int) -> None:
    times = data.draw(some.lists(some.integers(0, 9), min_size=len(counts), max_size=len(counts)))
    (chunk,) = segment(counts, [segments.TIME + time for time in times])
    b, log_end = chunk.batches, sum(counts)
    entries = [(segments.TIME + stamp, stamp + off) for stamp, off in sorted(data.draw(ENTRIES))]
    index = TimeIndex(
        np.arange(len(entries)) * 12, np.array([t for t, _ in entries], np.int64),
        np.array([o for _, o in entries], np.int64), 12 * len(entries), 0,
    )  # fmt: skip
    assert found(fed(TimeCheck(index), chunk.rows, cut).faults().events(0, log_end)) == time_index_says(
        b, entries, log_end
    )


def test_entries_that_are_wrong_by_the_million_are_events_some_at_a_time() -> None:
    """16 MiB of one entry again and again: events of all at once took 676 MiB."""
    count = 1 << 18
    entries = np.ones(count, np.int64)
    check = OffsetCheck(OffsetIndex(8 * np.arange(count), entries, entries, 8 * count, 0))
    tracemalloc.start()
    sizes = [(len(events), events["kind"][0]) for events in check.faults(1).events(0, 1)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sum(size for size, _ in sizes) == count - 1
    assert peak < count * EVENT.itemsize // 3
