"""How a partition of ``__transaction_state`` is put to rest: its records sorted by id, cut into pieces and packed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from auditor.base.at_rest import dumps
from auditor.base.compiled import kernel
from auditor.facts.coordinator_log import (
    COLUMNS,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    PAIR,
    PIECE_ROWS,
    PLAIN_ROWS,
    STATES,
    TOMBSTONE,
    Columns,
    CoordinatorLog,
    Entry,
    split,
    windows_of,
)
from auditor.facts.packed_numbers import Packed, packed


class Dictionaries(NamedTuple):
    """What the columns' numbers stand for; set ``k`` has ``set_elements[set_ends[k - 1]:set_ends[k]]``."""

    ids: list[str]
    topics: list[str]
    set_ends: np.ndarray
    set_elements: np.ndarray
    files: list[str]
    more_states: list[str]


def build(column: Any, rows: int, known: Dictionaries) -> CoordinatorLog:
    """The log of records that stand in the order of their log; ``column`` gives them by name, one at a time.

    Memory: four columns of all rows, beside what ``column`` holds.
    """
    ids = column("id")
    order = _by_id(ids)
    key = {name: column(name)[order] for name in ("state", "producer_id")} | {"id": ids[order]}
    del ids
    cuts = _piece_ends(key, windows_of(key | {"start": _picked(column("start"), order)}))
    pieces: list[dict[str, Packed]] = [{} for _ in cuts]
    kept: dict[str, np.ndarray] = {}
    for name in COLUMNS:
        values = key[name] if name in key else _picked(column(name), order)
        for piece, (start, stop) in zip(pieces, _spans(cuts), strict=True):
            piece[name] = packed(values[start:stop], "zstd")
        if name in ("partition", "record_time", "producer_epoch", "set"):
            kept[name] = values
        elif name == "last_update":
            kept["clock"] = np.where(values >= 0, values, kept.pop("record_time"))
        del values
    pairs = _pairs(key | kept, cuts)
    return CoordinatorLog(
        count=rows,
        id_count=len(known.ids),
        packed_ids=dumps(known.ids),
        packed_topics=dumps(known.topics),
        set_ends=packed(known.set_ends, "zstd"),
        set_elements=packed(known.set_elements, "zstd"),
        packed_pairs=dumps(pairs),
        pieces=pieces,
        first_ids=key["id"][[start for start, _ in _spans(cuts)]],
        named=_named_in(kept["set"], cuts, known),
        files=known.files,
        more_states=known.more_states,
    )


@kernel
def _place(ids: np.ndarray, next_of: np.ndarray, out: np.ndarray) -> None:
    """Puts each row at the next place of its id."""
    for row in range(len(ids)):
        out[next_of[ids[row]]] = row
        next_of[ids[row]] += 1


def _by_id(ids: np.ndarray) -> np.ndarray:
    """The rows by id, those of an id in their order. Cost: linear, as ids count from 0."""
    counts = np.bincount(ids)
    out = np.empty(len(ids), np.int32 if len(ids) < 1 << 31 else np.int64)
    place = _place if len(ids) > PLAIN_ROWS else _place.py_func
    place(ids, np.cumsum(counts) - counts, out)
    return out


def _picked(column: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Rows of a column, which is as it was where all of it is the same: many are, and are not shuffled for it."""
    return column if len(column) and (column == column[0]).all() else column[rows]


def _spans(cuts: list[int]) -> Iterator[tuple[int, int]]:
    return zip([0, *cuts], cuts, strict=False)


def _piece_ends(columns: Columns, windows: np.ndarray) -> list[int]:
    """Where pieces end: between two ids, or behind a completed transaction, before which nothing matters for what may
    follow it."""
    ids, state, rows = columns["id"], columns["state"], len(windows)
    completed = (state[:-1] >= COMPLETE_COMMIT) & (state[:-1] <= COMPLETE_ABORT) & (windows[1:] != windows[:-1])
    free = np.flatnonzero((ids[1:] != ids[:-1]) | completed) + 1
    wanted = np.arange(PIECE_ROWS, rows, PIECE_ROWS)
    at = np.searchsorted(free, wanted)
    ends: list[int] = np.unique(free[at[at < len(free)]]).tolist()
    return [*ends, rows] if rows else []


def _pairs(columns: Columns, cuts: list[int]) -> np.ndarray:
    rows = np.flatnonzero(columns["state"] != TOMBSTONE)
    ids, producers = columns["id"][rows], columns["producer_id"][rows]
    new = np.ones(len(rows), bool)
    new[1:] = (ids[1:] != ids[:-1]) | (producers[1:] != producers[:-1])
    starts = np.flatnonzero(new)
    if not len(starts):
        return np.empty(0, PAIR)
    last = rows[np.append(starts[1:], len(rows)) - 1]
    runs = np.zeros(len(starts), PAIR)
    runs["id"], runs["producer_id"] = ids[starts], producers[starts]
    runs["epoch"] = np.maximum.reduceat(columns["producer_epoch"][rows], starts)
    runs["first_time"] = np.minimum.reduceat(columns["clock"][rows], starts)
    runs["partition"] = columns["partition"][last]
    runs["piece"] = np.searchsorted(cuts, last, side="right")
    runs["row"] = last - np.array([0, *cuts])[runs["piece"]]
    runs = runs[np.lexsort((runs["id"], runs["producer_id"]))]  # stable: runs of one pair stay in their order
    new = np.ones(len(runs), bool)
    new[1:] = (runs["id"][1:] != runs["id"][:-1]) | (runs["producer_id"][1:] != runs["producer_id"][:-1])
    starts = np.flatnonzero(new)
    pairs = runs[np.append(starts[1:], len(runs)) - 1]
    pairs["epoch"] = np.maximum.reduceat(runs["epoch"], starts)
    pairs["first_time"] = np.minimum.reduceat(runs["first_time"], starts)
    return pairs


def _named_in(sets: np.ndarray, cuts: list[int], known: Dictionaries) -> tuple[Packed, Packed]:
    """Every element with the pieces in which it is."""
    begins = np.append(0, known.set_ends)
    found = []
    for number, (start, stop) in enumerate(_spans(cuts)):
        codes = np.unique(sets[start:stop])
        sizes = begins[codes + 1] - begins[codes]
        places = np.arange(int(sizes.sum())) + np.repeat(begins[codes] - (np.cumsum(sizes) - sizes), sizes)
        elements = np.unique(known.set_elements[places])
        found.append(np.stack([elements, np.full(len(elements), number)]))
    both = np.concatenate([np.empty((2, 0), np.int64), *found], axis=1)
    both = both[:, np.lexsort((both[1], both[0]))]
    return packed(both[0], "zstd"), packed(both[1], "zstd")


def pack(entries: Iterable[Entry]) -> CoordinatorLog:
    """The log of entries in the order given: of what texts print, and of ids that several partitions have."""
    ids: dict[str, int] = {}
    topics: dict[str, int] = {}
    sets: dict[frozenset[str], int] = {}
    files: dict[str, int] = {}
    states = {name: number for number, name in enumerate(STATES)}
    rows = []
    for e in entries:
        state = TOMBSTONE if e.state is None else states.setdefault(e.state, len(states))
        rows.append(
            (
                ids.setdefault(e.transactional_id, len(ids)),
                e.partition,
                e.offset,
                e.record_time,
                e.leader_epoch,
                state,
                e.producer_id,
                e.producer_epoch,
                e.timeout_ms,
                sets.setdefault(e.partitions, len(sets)),
                e.partitions_null,
                e.last_update,
                e.start,
                e.client_version,
                files.setdefault(e.file, len(files)),
                e.position,
                e.status,
            )
        )
    elements = [
        [topics.setdefault(topic, len(topics)) << 32 | (partition & 0xFFFFFFFF) for topic, partition in map(split, s)]
        for s in sets
    ]
    ends = np.cumsum([len(e) for e in elements], dtype=np.int64)
    flat = np.array([x for e in elements for x in sorted(e)], np.int64)
    table = np.array(rows, np.int64).reshape(len(rows), len(COLUMNS))
    known = Dictionaries(list(ids), list(topics), ends, flat, list(files), list(states)[len(STATES) :])
    names = list(COLUMNS)
    return build(lambda name: table[:, names.index(name)].astype(COLUMNS[name]), len(rows), known)
