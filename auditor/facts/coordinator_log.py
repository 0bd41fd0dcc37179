"""One partition of ``__transaction_state`` at rest: every record in a few bytes, by transactional id.

Records are columns of numbers, those of an id together in log order, cut into pieces that are compressed separately and
never split a transaction. Ids and sets of partitions are dictionaries. About 7 bytes per record; pieces are unpacked on
demand, so that the records of a whole log are never in memory.
"""

from __future__ import annotations

import functools
import itertools
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from auditor.base.at_rest import Fields
from auditor.base.compiled import kernel
from auditor.base.errors import LAST_EPOCH
from auditor.facts.arrow_codec import Codec
from auditor.facts.packed import Packed, packed, unpacked
from auditor.model.transaction_states import (
    EXHAUSTED_EPOCH,
    NO_TIMESTAMP,
    STATES_BY_ID,
    CachedTransaction,
    IdAccount,
    Judgement,
    TransactionState,
    TransactionValue,
    step_problem,
    value_problem,
)

STATES = tuple(str(state) for state in STATES_BY_ID)
EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = range(6)
TOMBSTONE = -1  # in the column state; states beyond STATES are in CoordinatorLog.more_states
PIECE_ROWS = 16_384
TEXTS, ROWS = Codec(str), Codec(np.ndarray)
PIECES_AT_HAND = 3  # unpacked pieces per log: 1.4 MB each, and there may be fifty logs
NAMES_AT_HAND = 500_000  # partition names cached per log
PLAIN_ROWS = 4_096  # up to this the interpreter is faster than loading numba, which the driver does not need otherwise
WHOLE_NAME = -(1 << 31)  # in place of a partition number: the topic is the whole name
COLUMNS = {
    "id": "i4",
    "partition": "i4",
    "offset": "i8",
    "record_time": "i8",
    "leader_epoch": "i4",
    "state": "i2",
    "producer_id": "i8",
    "producer_epoch": "i4",
    "timeout_ms": "i4",
    "set": "i4",
    "partitions_null": "i1",
    "last_update": "i8",
    "start": "i8",
    "client_version": "i4",
    "file": "i4",
    "position": "i8",
    "status": "i4",
}
PAIR = np.dtype(
    [
        ("producer_id", "i8"),
        ("id", "i4"),
        ("piece", "i4"),
        ("row", "i4"),
        ("partition", "i4"),
        ("epoch", "i4"),
        ("first_time", "i8"),
    ]
)
Columns = Mapping[str, np.ndarray]  # by name, of COLUMNS


class OnDemand(Columns):
    """Columns that are computed when they are first read: most passes over a log use few of them."""

    def __init__(self, make: Callable[[str], np.ndarray]) -> None:
        self._make = make
        self._made: dict[str, np.ndarray] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._made:
            if name not in COLUMNS:
                raise KeyError(name)
            self._made[name] = self._make(name)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COLUMNS)

    def __len__(self) -> int:
        return len(COLUMNS)


class StateRecord(NamedTuple):
    """One record of ``__transaction_state``. Times are ms, -1 for none; ``state`` is None for a tombstone."""

    partition: int
    offset: int
    record_time: int
    leader_epoch: int
    transactional_id: str
    state: str | None
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    partitions: frozenset[str]
    partitions_null: bool
    last_update: int
    start: int
    client_version: int
    file: str
    position: int
    status: int

    @property
    def time(self) -> int:
        """When the coordinator decided this: by its own clock, else the record's timestamp."""
        return self.last_update if self.last_update >= 0 else self.record_time

    @property
    def commit(self) -> bool:
        """Whether a Prepare or Complete state decides for COMMIT."""
        return self.state in ("PrepareCommit", "CompleteCommit")


@kernel
def _cut(ids: np.ndarray, states: np.ndarray, producers: np.ndarray, begun: np.ndarray, out: np.ndarray) -> int:
    # Records are by id and in log order; -1: of no transaction.
    number, producer, start = -1, np.int64(0), np.int64(0)
    opened, prepared, completed = False, False, -1
    for k in range(len(ids)):
        state = states[k]
        if k and ids[k] != ids[k - 1]:
            opened, completed = False, -1
        if ONGOING <= state <= PREPARE_ABORT:
            if not opened or producer != producers[k] or (prepared and start != begun[k]):
                number, producer, opened = number + 1, producers[k], True
            prepared, start, completed = state != ONGOING, begun[k], -1
            out[k] = number
        elif COMPLETE_COMMIT <= state <= COMPLETE_ABORT:
            if not opened and completed != state:
                number += 1
            opened, completed = False, state
            out[k] = number
        else:
            opened, completed = False, -1
            out[k] = -1
    return number + 1


Damaged = Mapping[int, Sequence[tuple[int, int]]]  # by partition, the offsets of batches that have a CRC mismatch


def gaps_before(columns: Columns, damaged: Damaged) -> np.ndarray:
    """Count the damaged batches before each row in its partition: rows with equal counts have no lost record between
    them.

    In a log with many such batches several may be in one range; a row inside it gets a number of its own.
    """
    out = np.zeros(len(columns["id"]), np.int64)
    for partition, ranges in damaged.items():
        edges = np.sort(np.array(ranges, np.int64).ravel())
        own = columns["partition"] == partition
        offsets = columns["offset"][own]
        before = np.searchsorted(edges, offsets)
        inside = before % 2 == 1
        out[own] = before + np.where(inside, (offsets + 1) * (len(edges) + 1), 0)
    return out


def windows_of(columns: Columns, damaged: Damaged | None = None) -> np.ndarray:
    """Number the transaction of each row, -1 for none; the rows of a transaction are consecutive.

    A transaction starts with its first Ongoing record, or where another field shows that a new one had started, and
    ends with its Complete record. A record that is repeated after a failed append starts none: a decision in it has the
    same start. Rows of an id with a ``damaged`` batch between them belong to one transaction only if they have the same
    start.
    """
    out = np.empty(len(columns["id"]), np.int32)
    cut = _cut if len(out) > PLAIN_ROWS else _cut.py_func
    cut(columns["id"], columns["state"], columns["producer_id"], columns["start"], out)
    return _parted(columns, damaged, out) if damaged else out


def _parted(columns: Columns, damaged: Damaged, numbers: np.ndarray) -> np.ndarray:
    gaps, start = gaps_before(columns, damaged), columns["start"]
    other = (gaps[1:] != gaps[:-1]) & ((start[1:] != start[:-1]) | (start[1:] < 0))
    more = np.cumsum(np.append(0, other & (numbers[1:] == numbers[:-1]) & (numbers[1:] >= 0)))[: len(numbers)]
    return np.where(numbers >= 0, numbers + more, -1).astype(np.int32)


def tally(counts: np.ndarray, ids: np.ndarray) -> None:
    """Count ids, ascending as in a piece, into ``counts`` by id. Cost: linear in the ids."""
    if len(ids):
        some = np.bincount(ids - ids[0])
        counts[ids[0] : ids[0] + len(some)] += some


def clocks(columns: Columns) -> np.ndarray:
    """:attr:`StateRecord.time` of each row."""
    return np.where(columns["last_update"] >= 0, columns["last_update"], columns["record_time"])


def _behind(before: Columns, last: int, columns: Columns, rows: np.ndarray | slice, name: str) -> np.ndarray:
    return np.append(before[name][last : last + 1], columns[name][rows])


@dataclass
class CoordinatorLog:
    """The records of one log, or of a few ids of several. Ids are numbered in the order of their first record.

    ``pairs`` (:data:`PAIR`) has a row for each producer id that an id had, by producer id and id: the place of its last
    record, that record's partition, the highest epoch, and the earliest time. ``broken_at``: the last offset whose
    record a limit excluded, -1 for none. ``version_1``: whether a value has version 1, written since 4.0. ``damaged``:
    the batches between its records that have a CRC mismatch; their records are not included.
    """

    count: int
    id_count: int
    packed_ids: bytes
    packed_topics: bytes
    set_ends: Packed
    set_elements: Packed
    packed_pairs: bytes
    pieces: list[dict[str, Packed]]
    first_ids: np.ndarray  # of each piece
    named: tuple[Packed, Packed]  # elements, by element, and a piece in which each is
    files: list[str]
    more_states: list[str] = field(default_factory=list)
    broken_at: int = -1
    version_1: bool = False
    damaged: Damaged = field(default_factory=dict)

    def __getstate__(self) -> Fields:
        names = self.__dataclass_fields__
        return {name: value for name, value in self.__dict__.items() if name in names}

    def read_ids(self) -> list[str]:
        """The transactional ids, without caching them."""
        return TEXTS.unpack(self.packed_ids)

    @functools.cached_property
    def ids(self) -> list[str]:
        """The transactional ids by number."""
        return TEXTS.unpack(self.packed_ids)

    @functools.cached_property
    def topics(self) -> list[str]:
        """The topics that partitions refer to."""
        return TEXTS.unpack(self.packed_topics)

    @functools.cached_property
    def pairs(self) -> np.ndarray:
        """See the class."""
        return ROWS.unpack(self.packed_pairs)[0]

    @functools.cached_property
    def sets(self) -> tuple[np.ndarray, np.ndarray]:
        """The end of each set of partitions, and the elements of all sets: topic << 32 | partition."""
        return unpacked(self.set_ends), unpacked(self.set_elements)

    @functools.cached_property
    def _named(self) -> tuple[np.ndarray, np.ndarray]:
        return unpacked(self.named[0]), unpacked(self.named[1])

    @functools.cached_property
    def _known_sets(self) -> tuple[dict[int, frozenset[str]], list[int]]:
        return {}, [0]

    @functools.cached_property
    def _pieces_at_hand(self) -> dict[int, Columns]:
        return {}

    def partitions(self, code: int) -> frozenset[str]:
        """A set of partitions by its number."""
        cache, names = self._known_sets
        if code not in cache:
            ends, elements = self.sets
            own = elements[ends[code - 1] if code else 0 : ends[code]]
            names[0] += len(own) + 1
            if names[0] > NAMES_AT_HAND:
                cache.clear()
                names[0] = len(own) + 1
            cache[code] = frozenset(self.name_of(element) for element in own.tolist())
        return cache[code]

    def name_of(self, element: int) -> str:
        """The partition that an element denotes."""
        topic, partition = self.topics[element >> 32], int(np.int32(np.uint32(element & 0xFFFFFFFF)))
        return topic if partition == WHOLE_NAME else f"{topic}-{partition}"

    def set_sizes(self, codes: np.ndarray) -> np.ndarray:
        """The number of partitions in each of these sets."""
        ends = self.sets[0]
        return ends[codes] - np.where(codes > 0, ends[codes - 1], 0)

    def elements(self, name: str) -> list[int]:
        """The elements that denote a partition, several if a text has its name as a whole name too."""
        places = {topic: number for number, topic in enumerate(self.topics)}
        return [
            places[topic] << 32 | (partition & 0xFFFFFFFF)
            for topic, partition in {split(name), (name, WHOLE_NAME)}
            if topic in places
        ]

    def ids_in(self, names: Collection[str]) -> np.ndarray:
        """The ids, by number, with a record that names one of these partitions. Cost: a pass over all pieces."""
        places = {topic: number for number, topic in enumerate(self.topics)}
        parts = {part for name in names for part in (split(name), (name, WHOLE_NAME)) if part[0] in places}
        wanted = [places[topic] << 32 | (partition & 0xFFFFFFFF) for topic, partition in parts]
        ends, members = self.sets
        sets = np.zeros(len(ends), bool)
        sets[np.searchsorted(ends, np.flatnonzero(np.isin(members, wanted)), side="right")] = True
        present = np.zeros(self.id_count, bool)
        for columns in self.all_pieces() if sets.any() else ():
            present[columns["id"][sets[columns["set"]]]] = True
        return np.flatnonzero(present)

    def naming(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """The pieces that name a partition, by number, and whether each set has it."""
        wanted = self.elements(name)
        elements, pieces = self._named
        spans = [slice(*np.searchsorted(elements, [e, e + 1])) for e in wanted]
        ends, members = self.sets
        sets = np.zeros(len(ends), bool)
        sets[np.searchsorted(ends, np.flatnonzero(np.isin(members, wanted)), side="right")] = True
        return np.unique(np.concatenate([pieces[s] for s in spans] or [pieces[:0]])), sets

    def piece(self, number: int) -> Columns:
        """The columns of a piece, cached."""
        at_hand = self._pieces_at_hand
        if number not in at_hand:
            if len(at_hand) >= PIECES_AT_HAND:
                del at_hand[next(iter(at_hand))]
            at_hand[number] = self.unpacked(number)
        return at_hand[number]

    def unpacked(self, number: int) -> Columns:
        """The columns of a piece that is used once: it is not cached."""
        packed = self.pieces[number]
        return OnDemand(lambda name: unpacked(packed[name], COLUMNS[name]))

    def all_pieces(self) -> Iterator[Columns]:
        """All pieces in order."""
        return (self._in_passing(number) for number in range(len(self.pieces)))

    def _in_passing(self, number: int) -> Columns:
        # Cached only if all pieces fit, else a pass would evict each piece before its next use.
        return self.piece(number) if len(self.pieces) <= PIECES_AT_HAND else self.unpacked(number)

    def rows_of(self, code: int) -> Iterator[tuple[Columns, slice]]:
        """The records of an id: pieces, and its rows in each."""
        last = int(np.searchsorted(self.first_ids, code, side="right"))
        for number in range(max(0, int(np.searchsorted(self.first_ids, code)) - 1), last):
            columns = self.piece(number)
            span = slice(*np.searchsorted(columns["id"], [code, code + 1]).tolist())
            if span.start < span.stop:
                yield columns, span

    def entries(self, columns: Columns, rows: Sequence[int] | np.ndarray | slice) -> Iterator[StateRecord]:
        """Rows of a piece as records."""
        if not isinstance(rows, slice) and not len(rows):
            return
        yield from map(self._entry, *(columns[name][rows].tolist() for name in COLUMNS))

    def _entry(
        self, id: int, partition: int, offset: int, record_time: int, leader_epoch: int, state: int, producer_id: int,
        producer_epoch: int, timeout: int, partitions: int, null: int, updated: int, start: int, client: int, file: int,
        position: int, status: int,
    ) -> StateRecord:  # fmt: skip
        # Arguments in the order of COLUMNS.
        return StateRecord(
            partition=partition,
            offset=offset,
            record_time=record_time,
            leader_epoch=leader_epoch,
            transactional_id=self.ids[id],
            state=self._state(state),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timeout_ms=timeout,
            partitions=self.partitions(partitions),
            partitions_null=bool(null),
            last_update=updated,
            start=start,
            client_version=client,
            file=self.files[file],
            position=position,
            status=status,
        )

    def _state(self, state: int) -> str | None:
        if state == TOMBSTONE:
            return None
        return STATES[state] if state < len(STATES) else self.more_states[state - len(STATES)]

    def entries_of(self, code: int) -> Iterator[StateRecord]:
        """The records of an id in log order."""
        for columns, span in self.rows_of(code):
            yield from self.entries(columns, span)

    def last_rows(self, least_offset: int | None = None) -> tuple[Columns, np.ndarray]:
        """The last record of every id, at or above an offset, as columns by id, and which ids have one."""
        pieces, rows = np.full(self.id_count, -1, np.int32), np.zeros(self.id_count, np.int32)
        for number, columns in enumerate(self.all_pieces()):
            chosen = np.arange(len(columns["id"]))
            if least_offset is not None:
                chosen = np.flatnonzero(columns["offset"] >= least_offset)
            ids = columns["id"][chosen]
            last = chosen[np.append(ids[1:] != ids[:-1], np.ones(min(1, len(ids)), bool))]
            pieces[columns["id"][last]], rows[columns["id"][last]] = number, last
        return OnDemand(lambda name: self._gathered(name, pieces, rows)), pieces >= 0

    def _gathered(self, name: str, pieces: np.ndarray, rows: np.ndarray) -> np.ndarray:
        # One row per id; 0 for ids without one.
        out = np.zeros(len(pieces), COLUMNS[name])
        ids = np.flatnonzero(pieces >= 0)
        numbers, starts = np.unique(pieces[ids], return_index=True)  # ascending as the ids are
        for number, members in zip(numbers.tolist(), np.split(ids, starts[1:]), strict=False):
            out[members] = self._in_passing(number)[name][rows[members]]
        return out

    @functools.cached_property
    def _last_rows(self) -> Columns:
        return self.last_rows()[0]

    def last(self, code: int) -> StateRecord:
        """The last record of an id."""
        return self._entry(*(column.item(code) for column in self._last_columns))

    @functools.cached_property
    def _last_columns(self) -> list[np.ndarray]:
        return [self._last_rows[name] for name in COLUMNS]

    def standing(self, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The last record of each of these ids: whether it has a transaction open, its time (ms, the coordinator's
        clock), and whether it is not a tombstone."""
        last = {name: self._last_rows[name][codes] for name in ("state", "last_update", "record_time")}
        is_open = (last["state"] >= ONGOING) & (last["state"] <= PREPARE_ABORT)
        return is_open, clocks(last), last["state"] != TOMBSTONE

    def forgotten(self, codes: np.ndarray) -> np.ndarray:
        """Whether the last record of each of these ids is a tombstone."""
        return self._last_rows["state"][codes] == TOMBSTONE

    def first_partitions(self) -> np.ndarray:
        """The partition of each id's first record."""
        out = np.full(self.id_count, -1)
        for columns in self.all_pieces():
            ids, first = np.unique(columns["id"], return_index=True)
            new = out[ids] < 0
            out[ids[new]] = columns["partition"][first[new]]
        return out

    def neighbours(self, least_offset: int | None = None) -> Iterator[Columns]:
        """Records at or above an offset, by piece, each piece with the last record before it in front; the first has
        one of no id (-1)."""
        before: Columns = OnDemand(lambda name: np.full(1, -1, COLUMNS[name]))  # of no id
        last = 0
        for columns in self.all_pieces():
            rows: np.ndarray | slice = slice(0, len(columns["id"]))
            if least_offset is not None:
                rows = np.flatnonzero(columns["offset"] >= least_offset)
            yield OnDemand(functools.partial(_behind, before, last, columns, rows))
            places = np.arange(len(columns["id"]))[rows]
            if len(places):
                before, last = columns, int(places[-1])

    def at(self, piece: int, row: int) -> StateRecord:
        """One record."""
        return next(self.entries(self.piece(piece), slice(row, row + 1)))


def split(name: str) -> tuple[str, int]:
    """Topic and partition of a name; the whole name and WHOLE_NAME if it does not end with a number."""
    topic, dash, number = name.rpartition("-")
    if dash and number.isdecimal() and str(int(number)) == number and int(number) < 1 << 31:
        return topic, int(number)
    return name, WHOLE_NAME


# Packing: records are sorted by id, cut into pieces and compressed.


class Dictionaries(NamedTuple):
    """The values that the columns' numbers refer to; set ``k`` has ``set_elements[set_ends[k - 1]:set_ends[k]]``."""

    ids: list[str]
    topics: list[str]
    set_ends: np.ndarray
    set_elements: np.ndarray
    files: list[str]
    more_states: list[str]


def build(column: Any, rows: int, dictionaries: Dictionaries) -> CoordinatorLog:
    """Pack records that are in log order; ``column`` returns them by column name, called once each.

    Memory: four columns of all rows, beside what ``column`` holds.
    """
    ids = column("id")
    order = _by_id(ids)
    key = {name: column(name)[order] for name in ("state", "producer_id")} | {"id": ids[order]}
    del ids
    cuts = _piece_ends(key, windows_of(key | {"start": _picked(column("start"), order)}))
    pieces: list[dict[str, Packed]] = [{} for _ in cuts]
    columns: dict[str, np.ndarray] = {}
    for name in COLUMNS:
        values = key[name] if name in key else _picked(column(name), order)
        for piece, (start, stop) in zip(pieces, _spans(cuts), strict=True):
            piece[name] = packed(values[start:stop], "zstd")
        if name in ("partition", "record_time", "producer_epoch", "set"):
            columns[name] = values
        elif name == "last_update":
            columns["clock"] = np.where(values >= 0, values, columns.pop("record_time"))
        del values
    pairs = _pairs(key | columns, cuts)
    return CoordinatorLog(
        count=rows,
        id_count=len(dictionaries.ids),
        packed_ids=TEXTS.pack(dictionaries.ids),
        packed_topics=TEXTS.pack(dictionaries.topics),
        set_ends=packed(dictionaries.set_ends, "zstd"),
        set_elements=packed(dictionaries.set_elements, "zstd"),
        packed_pairs=ROWS.pack([pairs]),
        pieces=pieces,
        first_ids=key["id"][[start for start, _ in _spans(cuts)]],
        named=_named_in(columns["set"], cuts, dictionaries),
        files=dictionaries.files,
        more_states=dictionaries.more_states,
    )


@kernel
def _place(ids: np.ndarray, next_of: np.ndarray, out: np.ndarray) -> None:
    for row in range(len(ids)):
        out[next_of[ids[row]]] = row
        next_of[ids[row]] += 1


def _by_id(ids: np.ndarray) -> np.ndarray:
    # A counting sort: linear, since ids count from 0.
    counts = np.bincount(ids)
    out = np.empty(len(ids), np.int32 if len(ids) < 1 << 31 else np.int64)
    place = _place if len(ids) > PLAIN_ROWS else _place.py_func
    place(ids, np.cumsum(counts) - counts, out)
    return out


def _picked(column: np.ndarray, rows: np.ndarray) -> np.ndarray:
    # Many columns are constant and need no shuffling.
    return column if len(column) and (column == column[0]).all() else column[rows]


def _spans(cuts: list[int]) -> Iterator[tuple[int, int]]:
    return zip([0, *cuts], cuts, strict=False)


def _piece_ends(columns: Columns, windows: np.ndarray) -> list[int]:
    # Pieces end between two ids, or behind a completed transaction: nothing before it matters for what follows.
    ids, state, rows = columns["id"], columns["state"], len(windows)
    completed = (state[:-1] >= COMPLETE_COMMIT) & (state[:-1] <= COMPLETE_ABORT) & (windows[1:] != windows[:-1])
    free = np.flatnonzero((ids[1:] != ids[:-1]) | completed) + 1
    wanted = np.arange(PIECE_ROWS, rows, PIECE_ROWS)
    places = np.searchsorted(free, wanted)
    ends: list[int] = np.unique(free[places[places < len(free)]]).tolist()
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


def _named_in(sets: np.ndarray, cuts: list[int], dictionaries: Dictionaries) -> tuple[Packed, Packed]:
    begins = np.append(0, dictionaries.set_ends)
    names = []
    for number, (start, stop) in enumerate(_spans(cuts)):
        codes = np.unique(sets[start:stop])
        sizes = begins[codes + 1] - begins[codes]
        places = np.arange(int(sizes.sum())) + np.repeat(begins[codes] - (np.cumsum(sizes) - sizes), sizes)
        elements = np.unique(dictionaries.set_elements[places])
        names.append(np.stack([elements, np.full(len(elements), number)]))
    both = np.concatenate([np.empty((2, 0), np.int64), *names], axis=1)
    both = both[:, np.lexsort((both[1], both[0]))]
    return packed(both[0], "zstd"), packed(both[1], "zstd")


def pack(entries: Iterable[StateRecord]) -> CoordinatorLog:
    """Pack records in the given order: those of text dumps, and of ids that occur in several partitions."""
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
    dictionaries = Dictionaries(list(ids), list(topics), ends, flat, list(files), list(states)[len(STATES) :])
    names = list(COLUMNS)
    return build(lambda name: table[:, names.index(name)].astype(COLUMNS[name]), len(rows), dictionaries)


# The records of each id, one after the other, judged by the model's account of an id (IdAccount).
#
# The model judges each kind of step once: steps that agree in all its inputs are of one kind, and a sound log of ten
# million records has some dozens. Where a record does not follow the one before it, the account is replayed from the
# last record before which nothing matters.


AT_HAND = 2_000  # odd records or steps that are kept for the next rule

KIND_BITS = 23  # of a number of _kinds

# Offsets of records of an id, by its number, whose append cannot have failed.
Appended = Callable[[int], frozenset[int]]


def value(entry: StateRecord) -> TransactionValue | None:
    """Convert a record to the model's value, None for a tombstone."""
    if entry.state is None:
        return None
    return TransactionValue(
        entry.producer_id,
        entry.producer_epoch,
        entry.timeout_ms,
        TransactionState(entry.state),
        entry.partitions,
        entry.start,
        entry.last_update,
        client_tv=entry.client_version,
    )


def unsound_in(state_log: CoordinatorLog, log_start: int) -> Iterator[tuple[StateRecord, list[str]]]:
    for columns in state_log.all_pieces():
        state, start = columns["state"], columns["start"]
        idle = (state == EMPTY) | ((state > PREPARE_ABORT) & (state <= COMPLETE_ABORT))
        odd = (columns["producer_id"] < 0) | (columns["producer_epoch"] < 0) | (state > COMPLETE_ABORT)
        odd |= idle & (state_log.set_sizes(columns["set"]) > 0)
        odd |= (start == NO_TIMESTAMP) & (state != EMPTY)
        odd &= (state != TOMBSTONE) & (columns["offset"] >= log_start)
        for entry in state_log.entries(columns, np.flatnonzero(odd)):
            stored = value(entry) if entry.state in STATES else None
            problems = ["state_never_written"] if stored is None else value_problem(stored)
            if entry.start < 0 and entry.record_time < 0:  # old text dumps print no start
                problems = [p for p in problems if p != "start_missing"]
            if problems:
                yield entry, problems


class StateStep(NamedTuple):
    """A record that does not follow the previous one: its problems, or the earlier records now known to have failed."""

    old: StateRecord
    new: StateRecord
    problems: list[str]
    failed: tuple[StateRecord, ...] = ()


def odd_steps(
    state_log: CoordinatorLog, log_start: int, intact: int, appended: Appended = lambda _: frozenset()
) -> Iterator[StateStep]:
    """Yield steps from ``log_start`` and ``intact`` on that the previous record does not explain."""
    sieve = _Sieve(state_log)
    for columns in state_log.neighbours(log_start):
        states = columns["state"]
        readable = states < len(STATES)
        pairs = (columns["id"][1:] == columns["id"][:-1]) & readable[1:] & readable[:-1]
        gaps = gaps_before(columns, state_log.damaged)
        lost = gaps[1:] != gaps[:-1]  # records between two rows are in a batch with a CRC mismatch
        candidates = np.flatnonzero(pairs & ((states[1:] != TOMBSTONE) | (states[:-1] != TOMBSTONE)))
        odd = candidates[~sieve.sound(columns, candidates)]
        if not len(odd):
            continue
        whole = (columns["offset"][odd] >= intact) & ~lost[odd]
        parted = np.append(False, ~pairs | lost)  # a piece begins behind a completed transaction, or with another id
        parted[odd[~whole] + 1] = True  # records between may have been cleaned away
        yield from _replayed(state_log, columns, odd[whole], parted, appended)


def _beginnings(columns: Columns, odd: np.ndarray, parted: np.ndarray) -> np.ndarray:
    # For each odd row the last row up to it from which the account can be replayed: the first one known, the last one
    # under a coordinator epoch, or a decision that was completed.
    state, epoch = columns["state"], columns["leader_epoch"]
    decided = (state[:-1] == PREPARE_COMMIT) | (state[:-1] == PREPARE_ABORT)
    completed = decided & (state[1:] >= COMPLETE_COMMIT) & (state[1:] <= COMPLETE_ABORT)
    completed[odd] = False
    once = np.append(state[2:] != state[1:-1], True)  # from one that comes again it is replayed before that
    begins = parted.copy()
    begins[:-1] |= (epoch[1:] != epoch[:-1]) | (completed & ~once)
    begins[1:] |= completed & once
    return np.maximum.accumulate(np.where(begins, np.arange(len(begins)), 0))[odd]


def _replayed(
    state_log: CoordinatorLog, columns: Columns, odd: np.ndarray, parted: np.ndarray, appended: Appended
) -> Iterator[StateStep]:
    # ``parted``: rows before which another record may have been.
    account, reached, reported = None, -1, -1
    latest: deque[StateRecord] = deque(maxlen=AT_HAND)
    number, sure = -1, frozenset[int]()
    for row, begin in zip(odd.tolist(), _beginnings(columns, odd, parted).tolist(), strict=True):
        if number != columns["id"][row]:
            number = int(columns["id"][row])
            sure = appended(number)
        starts_over = account is None or begin > reached
        entries = state_log.entries(columns, slice(begin if starts_over else reached + 1, row + 2))
        if account is None or starts_over:
            latest.append(next(entries))
            known = not parted[begin] or latest[-1].offset in sure
            account = IdAccount(value(latest[-1]), latest[-1].leader_epoch, known=known)
            reported = begin - 1
        judgement = Judgement([])
        for entry in entries:
            judgement = account.take(value(entry), entry.leader_epoch, appended=entry.offset in sure)
            latest.append(entry)
        reached = row + 1
        failed = min(judgement.failed, row - reported, len(latest) - 1)
        reported = row if failed else reported
        behind = len(latest) - 1
        yield StateStep(
            latest[-2], latest[-1], judgement.problems, tuple(itertools.islice(latest, behind - failed, behind))
        )


class _Sieve:
    """Judges steps by the previous record alone, once per kind of step."""

    def __init__(self, state_log: CoordinatorLog) -> None:
        self._found = state_log
        self._judged = np.zeros(1 << KIND_BITS, np.int8)  # by kind: 1 sound, -1 not, 0 not judged yet

    def sound(self, columns: Columns, old_rows: np.ndarray) -> np.ndarray:
        """Whether each step from one of these rows to the next row is sound."""
        kinds = _kinds(self._found, columns, old_rows)
        new, example = np.unique(kinds[self._judged[kinds] == 0], return_index=True)
        rows = old_rows[self._judged[kinds] == 0][example]
        for kind, row in zip(new.tolist(), rows.tolist(), strict=True):
            old, following = (value(entry) for entry in self._found.entries(columns, slice(row, row + 2)))
            self._judged[kind] = -1 if step_problem(CachedTransaction(old), following) else 1
        return self._judged[kinds] > 0


def _kinds(state_log: CoordinatorLog, columns: Columns, rows: np.ndarray) -> np.ndarray:
    # Every input of step_problem, packed into one number per step.
    def pair(name: str) -> tuple[np.ndarray, np.ndarray]:
        return columns[name][rows].astype(np.int64), columns[name][rows + 1].astype(np.int64)

    (old_state, state), (old_epoch, epoch), (old_start, start) = pair("state"), pair("producer_epoch"), pair("start")
    (old_producer, producer), (old_timeout, timeout) = pair("producer_id"), pair("timeout_ms")
    facts = (
        columns["client_version"][rows + 1] >= 2,
        producer == old_producer,
        old_epoch == LAST_EPOCH,
        old_epoch >= EXHAUSTED_EPOCH,
        epoch == LAST_EPOCH,
        epoch == 0,
        timeout == old_timeout,
        start == old_start,
        start == NO_TIMESTAMP,
        start == columns["last_update"][rows + 1],
    )
    kind = (old_state + 1) << 4 | (state + 1)
    kind = kind << 3 | (np.clip(epoch - old_epoch, -1, 3) + 1)
    kind = kind << 2 | _relation(state_log, *pair("set"), state)
    for fact in facts:
        kind = kind << 1 | fact
    return kind


def _relation(state_log: CoordinatorLog, old: np.ndarray, new: np.ndarray, state: np.ndarray) -> np.ndarray:
    # 0: same sets of partitions; 1: an Ongoing record adds partitions; 2: they differ otherwise.
    out = np.where(old == new, 0, 2)
    grown = np.flatnonzero((old != new) & (state == ONGOING))
    begun = state_log.set_sizes(old[grown]) == 0
    out[grown[begun]] = 1
    grown = grown[~begun]
    both, which = np.unique(old[grown] << 32 | new[grown], return_inverse=True)
    within = [state_log.partitions(one >> 32) <= state_log.partitions(one & 0xFFFFFFFF) for one in both.tolist()]
    out[grown[np.array(within, bool)[which]]] = 1
    return out
