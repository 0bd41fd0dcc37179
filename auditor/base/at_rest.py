"""Values and rows at rest: pickled for our own workers, JSON for people and programs."""

from __future__ import annotations

import bisect
import heapq
import itertools
import json
import operator
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Generic, NoReturn, TypeVar, overload

# Only bytes that this program wrote are unpickled, never anything that others could write.
_SIZE = 8  # bytes of the uncompressed size


@cache
def _codec() -> Any:
    import pyarrow as pa  # only now: commands that keep nothing do not load Arrow

    return pa.Codec("zstd", 1)


def dumps(value: object) -> bytes:
    """Pickle and compress a value; the result starts with the uncompressed size."""
    plain = pickle.dumps(value, 5)
    return len(plain).to_bytes(_SIZE, "little") + bytes(_codec().compress(plain, asbytes=True))


def loads(packed: bytes) -> Any:
    """Restore a value that :func:`dumps` packed."""
    size = int.from_bytes(packed[:_SIZE], "little")
    return pickle.loads(_codec().decompress(memoryview(packed)[_SIZE:], size, asbytes=True))


# Values by name: a row of a table, a finding's evidence, JSON. Their types are in the table's schema (``auditor
# schema``).


Values = Mapping[str, Any]  # read only
Fields = dict[str, Any]  # being built
MOST_OF_SUMMARY = 20_000_000  # values of a summary, which has some 20 of each log
MOST_VALUES = 4_000_000  # of a JSON text that others wrote: some 300 MB when parsed
Json = Any  # parsed from a text that others may have written, and not checked yet


# Rows of one kind that the driver keeps of each partition, pickled and compressed by the dozen. Similar partitions have
# similar rows: one that takes 3 KB as Python objects takes some 30 bytes here.


Row = TypeVar("Row")
TOGETHER = 64  # rows per block
OPEN = 4  # blocks that stay unpacked while single rows are read
SORTED_TOGETHER = 32 * TOGETHER  # rows that are sorted before they are packed


def parsed(text: bytes | str, most: int = MOST_VALUES) -> Json:
    """Parse JSON that others wrote. Its values are counted first: a few bytes each become 50 and more.

    Errors: ``ValueError`` for what is no JSON, has more than ``most`` values or a number that is none, or nests deeply.
    """
    text = text if isinstance(text, str) else text.decode("utf-8", "surrogatepass")
    if sum(map(text.count, ",[{")) > most:
        raise ValueError(f"more than {most} values")
    try:
        return _OF_OTHERS.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


_OF_OTHERS = json.JSONDecoder(parse_constant=_no_number)


class RowsAtRest(Sequence[Row]):
    """A compressed sequence of rows that is appended to and read in order, each row as a new object.

    Cost: some 10 us to append a row of 1 KB, 5 us to read it. Reading a single row unpacks its block; its neighbours
    then cost nothing, and may be an object that was returned before.
    Memory: :data:`TOGETHER` rows, some more blocks while single rows are read, and all rows packed.
    """

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self._blocks: list[bytes] = []
        self._ends: list[int] = []  # number of rows up to the end of each block
        self._loose: list[Row] = []
        self._open: dict[int, list[Row]] = {}  # the last blocks from which single rows were read
        for row in rows:
            self.append(row)

    def append(self, row: Row) -> None:
        """Append a row, which may be pickled now or later."""
        self._loose.append(row)
        if len(self._loose) == TOGETHER:
            self.packed()

    def packed(self) -> RowsAtRest[Row]:
        """Pack all rows; return self."""
        if self._loose:
            self._blocks.append(dumps(self._loose))
            self._ends.append(self._packed_rows + len(self._loose))
            self._loose = []
        return self

    def extend(self, rows: Iterable[Row]) -> None:
        """Append rows. Blocks of another :class:`RowsAtRest` are taken over without packing them again."""
        if isinstance(rows, RowsAtRest):
            self.packed()
            before = self._packed_rows
            self._blocks += rows._blocks
            self._ends += [before + end for end in rows._ends]
            rows = rows._loose
        for row in rows:
            self.append(row)

    @property
    def _packed_rows(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __len__(self) -> int:
        return self._packed_rows + len(self._loose)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(operator.eq, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __iter__(self) -> Iterator[Row]:
        for block in self._blocks:
            yield from loads(block)
        yield from self._loose

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        number = range(len(self))[index]
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


class MappedRows(Sequence[Any]):
    """A view of rows that converts each row whenever it is read."""

    def __init__(self, rows: Sequence[Any], convert: Callable[[Any], Any]) -> None:
        self._rows = rows
        self._convert = convert

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Any]:
        return map(self._convert, self._rows)

    def __getitem__(self, index: Any) -> Any:
        rows = self._rows[index]
        return [self._convert(row) for row in rows] if isinstance(index, slice) else self._convert(rows)


class ExternalSort(Generic[Row]):
    """Sort rows that arrive in any order: some thousands at a time in memory, then merged.

    A small number of rows stays unpacked. ``place``: the sort key; the sort is stable.
    """

    def __init__(self, place: Callable[[Row], Any]) -> None:
        self._place = place
        self._runs: list[RowsAtRest[Row]] = []
        self._new: list[Row] = []
        self._last: Any = None  # the key that ends the last run
        self._apart = True  # whether each run starts after the end of the one before

    def append(self, row: Row) -> None:
        """Add a row."""
        self._new.append(row)
        if len(self._new) == SORTED_TOGETHER:
            self._sort()
            self._runs.append(RowsAtRest(self._new))
            self._new = []

    def take(self, rows: RowsAtRest[Row]) -> None:
        """Add rows that are sorted and packed already; not to be mixed with :meth:`append`."""
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
        """All rows in order. Call it, or :meth:`in_order`, once."""
        self._sort()
        runs, self._runs = [*self._runs, self._new], []
        return itertools.chain.from_iterable(runs) if self._apart else heapq.merge(*runs, key=self._place)

    def in_order(self) -> Sequence[Row]:
        """All rows as a sequence. Call it once. Rows that arrived in order are not packed again."""
        self._sort()
        if not self._runs:
            return self._new
        if not self._apart:
            return RowsAtRest(self.merged())
        first, *others = self._runs
        for rows in (*others, self._new):
            first.extend(rows)
        return first


# JSON files for people and programs: the same bytes for the same content; rows at rest are written one by one.


CONTAINERS = (dict, list, tuple)
ROW_LEVEL = 2  # depth of the rows of a list that :func:`pieces` writes one by one


class TextRows(MappedRows):
    """Rows that :func:`row_text` serialised, each parsed whenever it is read."""

    def __init__(self, texts: Sequence[str]) -> None:
        super().__init__(texts, json.loads)
        self.texts = texts


def row_text(row: object) -> str:
    """Serialise a row as :func:`pieces` writes it within its list. Cost: some 25 us per KB."""
    return _text(row, ROW_LEVEL)


def as_json(content: Values) -> str:
    """The complete text of a JSON file."""
    return "".join(pieces(content))


def pieces(content: Values) -> Iterator[str]:
    """Serialise an object in pieces: keys sorted, one space of indent per level.

    Each row of a sequence that is not a list is a piece. Memory: one row. Cost: some 25 us per KB, next to nothing for
    :class:`TextRows`.
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
    # Same result as json.dumps(value, indent=1, sort_keys=True) at this level. Python's own encoder indents in plain
    # Python; the compiled one knows no indent but accepts any separator. A separator with the next line's indent makes
    # a container of plain values one call; containers inside it are null at first. Line breaks within a text are
    # escaped, so items end only at separators.
    encode, indent = _encoder(level)
    if not value or not isinstance(value, CONTAINERS):
        return encode(value)
    plain: Any
    keys: Sequence[Any]
    if isinstance(value, dict):
        keys = sorted(value)
        inner = {index for index, key in enumerate(keys) if isinstance(value[key], CONTAINERS) and value[key]}
        plain = value | dict.fromkeys([keys[index] for index in inner]) if inner else value
    else:
        keys = range(len(value))
        inner = {index for index, one in enumerate(value) if isinstance(one, CONTAINERS) and one}
        plain = [None if index in inner else one for index, one in enumerate(value)] if inner else value
    text = encode(plain)
    items = text[1:-1]
    if inner:
        split = items.split(f",{indent}")
        for index in inner:
            split[index] = split[index].removesuffix("null") + _text(value[keys[index]], level + 1)
        items = f",{indent}".join(split)
    return f"{text[0]}{indent}{items}{indent[:-1]}{text[-1]}"


@cache
def _encoder(level: int) -> tuple[Callable[[Any], str], str]:
    # Encodes a container without inner containers, brackets on the same line; and the indent of its items.
    indent = "\n" + " " * (level + 1)
    encoder = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(f",{indent}", ": "))
    return encoder.encode, indent
