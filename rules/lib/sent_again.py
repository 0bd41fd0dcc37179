"""Which batches of one replica are in another one too, further on: their producers sent them again.

A producer id, an epoch and a sequence number name one record of a partition. Batches without sequence numbers prove
nothing, and neither do topics whose writers use none. Source: KIP-98, ProducerStateManager.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from auditor.base.numbers import SEQUENCES
from auditor.rules.lib.headers_again import Columns

READ = ("base_offset", "last_offset", "producer_id", "producer_epoch", "base_sequence", "crc_ok", "magic")
MOST_READ = 500_000  # batches of the other replica that are searched: retries come within minutes


class SentAgain(NamedTuple):
    """Of some batches: ``whole`` for each whether all its records were sent again, ``missing`` the offsets of the
    records that were not, as (first, last) in ascending order; ``first``: where in the other replica the first one is
    (-1: none)."""

    whole: np.ndarray
    missing: list[tuple[int, int]]
    first: int = -1


class _Runs(NamedTuple):
    """Sequence numbers that follow one another without a hole, as (first, last) codes; in ascending order."""

    first: np.ndarray
    last: np.ndarray


def sent_again(ours: Columns, theirs: Iterable[Columns]) -> SentAgain:
    """Which records of data batches (columns :data:`READ`) are in another replica too.

    ``theirs``: its batches from the offset on at which both part, some at a time; it is read no further than needed.
    Cost: sorting those of the same producers.
    """
    numbered = _numbered(ours)
    groups = np.unique(_pairs(ours)[numbered])
    spans = _spans(ours, np.flatnonzero(numbered), groups)
    begins = int(ours["base_offset"].min()) if len(numbered) else 0
    runs, first, read = _Runs(*(np.empty(0, np.int64),) * 2), -1, 0
    for rows in theirs:
        if not len(groups) or read > MOST_READ:
            break
        read += len(rows["base_offset"])
        near = rows["base_offset"] < begins + SEQUENCES  # further on the same number is another record's
        mine = np.flatnonzero(near & _numbered(rows) & np.isin(_pairs(rows), groups))
        if not len(mine):
            continue
        found = _spans(rows, mine, groups)
        touched = _touches(found[1], found[2], _runs(spans[1], spans[2]))
        if first < 0 and touched.any():
            first = int(rows["base_offset"][found[0][touched]].min())
        runs = _runs(np.append(runs.first, found[1]), np.append(runs.last, found[2]))
        if _within(spans[1], spans[2], runs).all():
            break
    whole = np.zeros(len(numbered), bool)
    whole[np.flatnonzero(numbered)] = True
    whole[spans[0][~_within(spans[1], spans[2], runs)]] = False
    return SentAgain(whole, joined_spans(_missing(ours, whole, spans, runs)), first)


def _numbered(rows: Columns) -> np.ndarray:
    """Which batches have sequence numbers, and are what was written."""
    named: np.ndarray = (rows["producer_id"] >= 0) & (rows["base_sequence"] >= 0) & (rows["magic"] == 2)
    return named & (rows["crc_ok"] != 0)


def _pairs(rows: Columns) -> np.ndarray:
    """Producer id and epoch of each batch."""
    out = np.empty(len(rows["producer_id"]), [("producer_id", "i8"), ("producer_epoch", "i8")])
    out["producer_id"], out["producer_epoch"] = rows["producer_id"], rows["producer_epoch"]
    return out


def _spans(rows: Columns, mine: np.ndarray, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row, first and last code of each run of sequence numbers; one that goes on at 0 behind the last number is two.

    A code is the place of producer id and epoch among ``groups``, and the sequence number in its lower 32 bits.
    """
    group = np.searchsorted(groups, _pairs(rows)[mine]).astype(np.int64) << 32
    begin = rows["base_sequence"][mine].astype(np.int64)
    end = begin + (rows["last_offset"][mine] - rows["base_offset"][mine]).astype(np.int64)
    over = end >= SEQUENCES
    return (
        np.append(mine, mine[over]),
        np.append(group + begin, group[over]),
        np.append(group + np.minimum(end, SEQUENCES - 1), group[over] + end[over] - SEQUENCES),
    )


def _runs(first: np.ndarray, last: np.ndarray) -> _Runs:
    """Spans put together where they touch."""
    order = np.argsort(first, kind="stable")
    first, reach = first[order], np.maximum.accumulate(last[order]) if len(last) else last
    new = np.append(np.ones(min(1, len(first)), bool), first[1:] > reach[:-1] + 1)
    ends = np.append(np.flatnonzero(new)[1:] - 1, np.full(min(1, len(first)), len(first) - 1))
    return _Runs(first[new], reach[ends])


def _touches(first: np.ndarray, last: np.ndarray, runs: _Runs) -> np.ndarray:
    """Which spans have a number of some run."""
    at = np.searchsorted(runs.first, last, side="right") - 1
    found: np.ndarray = (at >= 0) & (np.append(runs.last, -1)[at] >= first)
    return found


def _within(first: np.ndarray, last: np.ndarray, runs: _Runs) -> np.ndarray:
    """Which spans lie within one run."""
    at = np.searchsorted(runs.first, first, side="right") - 1
    found: np.ndarray = (at >= 0) & (np.append(runs.last, -1)[at] >= last)
    return found


def _missing(
    ours: Columns, whole: np.ndarray, spans: tuple[np.ndarray, np.ndarray, np.ndarray], runs: _Runs
) -> list[tuple[int, int]]:
    """Offsets of what was not sent again: whole batches, but for those of which some records were."""
    rows, first, last = spans
    some = np.zeros(len(whole), bool)
    some[rows[_touches(first, last, runs)]] = True
    lone = ~whole & ~some
    out = list(zip(ours["base_offset"][lone].tolist(), ours["last_offset"][lone].tolist(), strict=True))
    for row in np.flatnonzero(some & ~whole).tolist():
        base, begin = int(ours["base_offset"][row]), int(ours["base_sequence"][row])
        for k in np.flatnonzero(rows == row).tolist():
            shift = (int(first[k]) - begin) % SEQUENCES  # of the part behind the last number, too
            out += [(base + shift + a, base + shift + b) for a, b in _holes(int(first[k]), int(last[k]), runs)]
    return out


def _holes(first: int, last: int, runs: _Runs) -> list[tuple[int, int]]:
    """What of a span no run has, counted from its beginning."""
    out, at = [], first
    low = max(0, int(np.searchsorted(runs.first, first, side="right")) - 1)
    for k in range(low, int(np.searchsorted(runs.first, last, side="right"))):
        begin, end = int(runs.first[k]), int(runs.last[k])
        if begin > at:
            out.append((at - first, begin - 1 - first))
        at = max(at, end + 1)
    return [*out, (at - first, last - first)] if at <= last else out


def joined_spans(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges in ascending order, those that follow one another put together."""
    out: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if out and first <= out[-1][1] + 1:
            out[-1] = out[-1][0], max(out[-1][1], last)
        else:
            out.append((first, last))
    return out
