"""Values, rows and code at rest: pickled for our own workers, JSON for people and programs, and where code is kept."""

from __future__ import annotations

import bisect
import heapq
import itertools
import json
import operator
import os
import pickle
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

# Values of our own as bytes at rest: pickled and compressed. Nothing that others could write is read so.


_SIZE = 8  # bytes that say how long it is unpacked


@cache
def _codec() -> Any:
    """zstd of Arrow, which commands that keep nothing need not load."""
    import pyarrow as pa

    return pa.Codec("zstd", 1)


def dumps(value: object) -> bytes:
    """A value, behind its size."""
    plain = pickle.dumps(value, 5)
    return len(plain).to_bytes(_SIZE, "little") + bytes(_codec().compress(plain, asbytes=True))


def loads(packed: bytes) -> Any:
    """What :func:`dumps` packed."""
    size = int.from_bytes(packed[:_SIZE], "little")
    return pickle.loads(_codec().decompress(memoryview(packed)[_SIZE:], size, asbytes=True))


# What stands by name: a row of a table by column, a finding's evidence, what JSON has.
#
# Of what type a value is, the table's schema says (``auditor schema``), or the text that it was read from: no hint can.


Values = Mapping[str, Any]  # that are read
Fields = dict[str, Any]  # that are being put together
Json = Any  # of a text that somebody else may have written: nothing is known of it yet
Numba = Any  # what numba and llvmlite give and take, which no hints of theirs say


# Rows of one kind at rest: what a driver keeps of each partition, some dozens pickled and compressed together.
#
# Rows of like partitions are alike: a row that takes 3 KB as Python's objects takes some 30 bytes here.


Row = TypeVar("Row")
TOGETHER = 64  # rows that are packed together, and of which one reading has objects
OPEN = 4  # blocks that are kept unpacked for who asks for single rows
SORTED_TOGETHER = 32 * TOGETHER  # rows that are put in order before they are packed


class RowsAtRest(Sequence[Row]):
    """Rows that are added once and read in their order, each time as objects of their own.

    Cost: some 10 us to add a row of 1 KB, 5 us to read it; one alone costs the reading of those packed with it, the
    next ones beside it nothing, and may be an object that was given before.
    Memory: :data:`TOGETHER` rows, of those asked for alone some more, and all of them packed.
    """

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self._blocks: list[bytes] = []
        self._ends: list[int] = []  # how many rows there are up to the end of each block
        self._loose: list[Row] = []
        self._open: dict[int, list[Row]] = {}  # the last blocks of which single rows were asked for
        for row in rows:
            self.append(row)

    def append(self, row: Row) -> None:
        """One more, which may be pickled now or later."""
        self._loose.append(row)
        if len(self._loose) == TOGETHER:
            self.settled()

    def settled(self) -> RowsAtRest[Row]:
        """Itself, with all rows packed."""
        if self._loose:
            self._blocks.append(dumps(self._loose))
            self._ends.append(self._packed + len(self._loose))
            self._loose = []
        return self

    def extend(self, rows: Iterable[Row]) -> None:
        """More of them. Those of blocks at rest stay as they are packed."""
        if isinstance(rows, RowsAtRest):
            self.settled()
            before = self._packed
            self._blocks += rows._blocks
            self._ends += [before + end for end in rows._ends]
            rows = rows._loose
        for row in rows:
            self.append(row)

    @property
    def _packed(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __len__(self) -> int:
        return self._packed + len(self._loose)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(operator.eq, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __iter__(self) -> Iterator[Row]:
        for block in self._blocks:
            yield from loads(block)
        yield from self._loose

    @overload
    def __getitem__(self, at: int) -> Row: ...
    @overload
    def __getitem__(self, at: slice) -> list[Row]: ...
    def __getitem__(self, at: int | slice) -> Row | list[Row]:
        """A row, or those of a slice."""
        if isinstance(at, slice):
            return [self[number] for number in range(*at.indices(len(self)))]
        number = range(len(self))[at]
        block = bisect.bisect_right(self._ends, number)
        rows = self._opened(block) if block < len(self._blocks) else self._loose
        return rows[number - (self._ends[block - 1] if block else 0)]

    def _opened(self, block: int) -> list[Row]:
        if block not in self._open:
            if len(self._open) == OPEN:
                del self._open[next(iter(self._open))]
            self._open[block] = loads(self._blocks[block])
        return self._open[block]

    def __getstate__(self) -> Fields:
        return vars(self) | {"_open": {}}


class RowsSeen(Sequence[Any]):
    """Rows as a function gives them, each anew whenever it is read."""

    def __init__(self, rows: Sequence[Any], seen: Callable[[Any], Any]) -> None:
        self._rows = rows
        self._seen = seen

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Any]:
        return map(self._seen, self._rows)

    def __getitem__(self, at: Any) -> Any:
        found = self._rows[at]
        return [self._seen(row) for row in found] if isinstance(at, slice) else self._seen(found)


class ExternalSort(Generic[Row]):
    """Rows that come in any order, to be read in one: sorted some thousands at a time, and merged.

    Few rows stay as they are. ``place``: what a row goes by; of two alike the one that came first is first.
    """

    def __init__(self, place: Callable[[Row], Any]) -> None:
        self._place = place
        self._runs: list[RowsAtRest[Row]] = []
        self._new: list[Row] = []
        self._last: Any = None  # where the last run ends
        self._apart = True  # whether each run begins where the one before has ended

    def append(self, row: Row) -> None:
        """One more."""
        self._new.append(row)
        if len(self._new) == SORTED_TOGETHER:
            self._sort()
            self._runs.append(RowsAtRest(self._new))
            self._new = []

    def take(self, rows: RowsAtRest[Row]) -> None:
        """More that are in order and at rest already; to be mixed with no others."""
        if len(rows):
            self._apart &= not self._runs or self._last <= self._place(rows[0])
            self._runs.append(rows)
            self._last = self._place(rows[-1])

    def _sort(self) -> None:
        self._new.sort(key=self._place)
        if self._new and self._runs:
            self._apart &= self._last <= self._place(self._new[0])
        if self._new:
            self._last = self._place(self._new[-1])

    def merged(self) -> Iterator[Row]:
        """All of them in order. To be asked once, or :meth:`in_order`."""
        self._sort()
        runs, self._runs = [*self._runs, self._new], []
        return itertools.chain.from_iterable(runs) if self._apart else heapq.merge(*runs, key=self._place)

    def in_order(self) -> Sequence[Row]:
        """All of them at rest. To be asked once. Those that came in order are not packed again."""
        self._sort()
        if not self._runs:
            return self._new
        if not self._apart:
            return RowsAtRest(self.merged())
        first, *others = self._runs
        for rows in (*others, self._new):
            first.extend(rows)
        return first


# JSON files for people and programs, the same bytes for the same content; rows at rest are written one by one.


CONTAINERS = (dict, list, tuple)
ROW_LEVEL = 2  # how deep the rows of a list stand that :func:`pieces` writes one by one


class TextRows(Sequence[Any]):
    """Rows that were written by :func:`row_text` before, each parsed whenever it is read."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts

    def __len__(self) -> int:
        return len(self.texts)

    def __iter__(self) -> Iterator[Any]:
        return map(json.loads, self.texts)

    def __getitem__(self, at: Any) -> Any:
        found = self.texts[at]
        return json.loads(found) if isinstance(found, str) else [json.loads(text) for text in found]


def row_text(row: object) -> str:
    """A row as :func:`pieces` writes it within its list. Cost: some 25 us a KB."""
    return _text(row, ROW_LEVEL)


def as_json(content: Values) -> str:
    """The whole text of a file."""
    return "".join(pieces(content))


def pieces(content: Values) -> Iterator[str]:
    """The text of an object in pieces, keys sorted, a space of indent a level.

    Of a value that is a sequence but no list, each row is a piece. Memory: one of them. Cost: some 25 us a KB, of
    :class:`TextRows` next to nothing.
    """
    before = "{"
    for name in sorted(content):
        value = content[name]
        yield f"{before}\n {_text(name, 1)}: "
        before = ","
        if isinstance(value, Sequence) and not isinstance(value, (*CONTAINERS, str)):
            yield from _rows(value)
        else:
            yield _text(value, 1)
    yield "{}\n" if before == "{" else "\n}\n"


def _rows(rows: Sequence[Any]) -> Iterator[str]:
    before = "["
    for text in rows.texts if isinstance(rows, TextRows) else map(row_text, rows):
        yield f"{before}\n  {text}"
        before = ","
    yield "[]" if before == "[" else "\n ]"


def _text(value: object, level: int) -> str:
    """What ``json.dumps(value, indent=1)`` gives, keys sorted, for a place so many levels deep.

    Python's own encoder indents value by value in plain Python. Its compiled one knows no indent but takes any
    separator: with one that holds the next line's indent, a container of plain values is one call. Containers in it are
    null at first. Line breaks within a text are escaped, so that the separators are where one item ends.
    """
    encode, indent = _encoder(level)
    if not value or not isinstance(value, CONTAINERS):
        return encode(value)
    plain: Any
    keys: Sequence[Any]
    if isinstance(value, dict):
        keys = sorted(value)
        inner = {at for at, key in enumerate(keys) if isinstance(value[key], CONTAINERS) and value[key]}
        plain = value | dict.fromkeys([keys[at] for at in inner]) if inner else value
    else:
        keys = range(len(value))
        inner = {at for at, one in enumerate(value) if isinstance(one, CONTAINERS) and one}
        plain = [None if at in inner else one for at, one in enumerate(value)] if inner else value
    text = encode(plain)
    items = text[1:-1]
    if inner:
        split = items.split(f",{indent}")
        for at in inner:
            split[at] = split[at].removesuffix("null") + _text(value[keys[at]], level + 1)
        items = f",{indent}".join(split)
    return f"{text[0]}{indent}{items}{indent[:-1]}{text[-1]}"


@cache
def _encoder(level: int) -> tuple[Callable[[Any], str], str]:
    """What writes a container without containers in it, its brackets on the line of its items; and what stands before
    each of them."""
    indent = "\n" + " " * (level + 1)
    encoder = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(f",{indent}", ": "))
    return encoder.encode, indent


# Where code that was made from a module's source is kept for the next process.


@cache
def folder_for(module: str, file: str) -> Path | None:
    """The first place that can be written to, and by nobody else, None if there is none.

    What NUMBA_CACHE_DIR says (an absolute path: another would be below the working directory, which may hold the
    input), else beside the source ``file``, else in the user's own cache; for executors whose user
    has no home, a folder of their own among the temporary files.
    """
    for place in (*_places(module, file), _shared(module)):
        if place is None:
            continue
        try:
            place.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=place).close()
        except OSError:
            continue
        return place
    return None


def is_kept(module: str) -> bool:
    """Whether machine code of a module, which need not be imported, is kept; where there is no place, none ever is."""
    source = Path(__file__).parents[1].joinpath(*module.split(".")[1:])
    place = folder_for(module, f"{source}.py")
    return place is not None and any(place.glob("*.nbi"))


def _places(module: str, file: str) -> Iterator[Path]:
    if os.path.isabs(asked := os.environ.get("NUMBA_CACHE_DIR", "")):
        yield Path(asked, module)
        return
    if Path(file).is_file():
        yield Path(file).parent / "__pycache__"
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if os.path.isabs(home):
        yield Path(home, "kafka-log-auditor", module)


def _shared(module: str) -> Path | None:
    """A folder in the common one for temporary files. None if somebody else may have put code there."""
    if not hasattr(os, "getuid"):
        return None
    mine = Path(tempfile.gettempdir(), f"kafka-log-auditor-{os.getuid()}")
    try:
        mine.mkdir(mode=0o700, exist_ok=True)
        found = mine.lstat()
    except OSError:
        return None
    private = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not stat.S_IMODE(found.st_mode) & 0o022
    return mine / module if private else None
