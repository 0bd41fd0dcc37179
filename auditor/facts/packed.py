"""Numbers, tables and plain values at rest."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from auditor.base.at_rest import Fields
from auditor.base.compiled import kernel

# Numbers at rest: the one form of columns and tables of them.
#
# Most columns of batches go on by the same step all the time: those are two numbers. Of the others the like bytes of
# all
# numbers, or of the steps from each to the next, lie together, compressed.


NUMBER_BYTES = 8
Codec = Literal["lz4_raw", "zstd"]
_CODECS = {"lz4_raw": pa.Codec("lz4_raw"), "zstd": pa.Codec("zstd", 1)}


class Packed(NamedTuple):
    """``length`` numbers, the ``first`` and what follows. Each, or where ``steps`` each step from one to the next, is
    as far above ``low`` as ``width`` bytes of ``data`` say: their lowest bytes first, compressed by ``codec``."""

    length: int
    first: int
    low: int
    width: int
    steps: bool
    codec: Codec
    data: bytes


def packed(column: np.ndarray, codec: Codec = "lz4_raw") -> Packed:
    """Numbers of at most 64 bits at rest, for a short time, or for long (``zstd``: fewer bytes, twice the time).

    Differences that overflow do so again where they are added up. Cost: docs/lab-book.md.
    """
    column = np.ascontiguousarray(column, np.int64)
    if len(column) < 2:
        return equal(column)
    numbers, steps = column[1:] - column[:-1], True
    low, width = _span(numbers)
    if width > 1 and (plain := _span(column))[1] < width:
        numbers, steps, (low, width) = column, False, plain
    data = b""
    if width:
        apart = (numbers - low).view(np.uint8).reshape(-1, NUMBER_BYTES)
        lines = np.ascontiguousarray(apart[:, :width].T)
        data = bytes(_CODECS[codec].compress(lines.data, asbytes=True))
    return Packed(len(column), int(column[0]), low, width, steps, codec, data)


def equal(column: np.ndarray) -> Packed:
    """What :func:`packed` makes of a column of which the caller knows that all numbers are the same."""
    return Packed(len(column), int(column[0]) if len(column) else 0, 0, 0, True, "lz4_raw", b"")


def unpacked(stored: Packed, kind: str | np.dtype = "i8") -> np.ndarray:
    """Undoes :func:`packed`: numbers of a type that has room for them."""
    out = np.empty(stored.length, np.int64)
    out[:1] = stored.first
    rest = out[1:] if stored.steps else out
    if stored.width:
        plain = _CODECS[stored.codec].decompress(stored.data, stored.width * len(rest), asbytes=True)
        _put_together(np.frombuffer(plain, np.uint8).reshape(stored.width, len(rest)), rest)
        rest += stored.low
    elif stored.low:
        rest[:] = stored.low
    else:
        rest[:] = stored.first
        return out.astype(kind, copy=False)
    if stored.steps:
        np.cumsum(out, out=out)
    return out.astype(kind, copy=False)


def packed_table(rows: np.ndarray) -> list[Packed]:
    """Rows of numbers at rest for a short time, column by column."""
    return [packed(column) for column in rows.T]


def unpacked_table(columns: list[Packed]) -> np.ndarray:
    """Undoes :func:`packed_table`: int64 in C order. There is at least one column."""
    rows = np.empty((columns[0].length, len(columns)), np.int64)
    for number, column in enumerate(columns):
        rows[:, number] = unpacked(column) if column.width or column.low else column.first
    return rows


def _span(numbers: np.ndarray) -> tuple[int, int]:
    """The least number, and how many bytes the distance of the others from it takes."""
    low = int(numbers.min())
    return low, ((int(numbers.max()) - low).bit_length() + 7) // NUMBER_BYTES


def _put_together(lines: np.ndarray, out: np.ndarray) -> None:
    """Numbers of which the lowest bytes are in the first line, the next ones in the second."""
    if len(lines) == 1:
        out[:] = lines[0]
        return
    out[:] = 0
    places = out.view(np.uint8).reshape(-1, NUMBER_BYTES)
    for k, line in enumerate(lines):
        places[:, k] = line


# Many rows at rest: a table of a million producers that takes a tenth of its memory until it is asked for columns,
# and columns of a row a batch, packed as they grow.


PACK_ABOVE = 50_000  # rows; fewer are kept as they are
PIECE = 65_536  # rows that are packed together


class PackedRows:
    """A structured array kept compressed, column by column, that is read as one. ``parts``: its rows, some at a time.

    ``rows["name"]`` is a column, ``rows[mask]`` (or indexes, or a slice) a structured array of those rows; each reading
    costs a decompression of the columns it takes (1 or 2 ms a million rows).
    """

    def __init__(self, dtype: np.dtype, parts: Iterable[np.ndarray]) -> None:
        self.dtype = dtype
        self.length = 0
        self.columns: dict[str, list[Packed]] = {name: [] for name in dtype.names or ()}
        for rows in parts:
            self.length += len(rows)
            varying = _varying(rows)
            for name, pieces in self.columns.items():
                pieces.append((packed if name in varying else equal)(rows[name]))

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, key: Any) -> np.ndarray:
        if isinstance(key, str):
            return _joined(self.columns[key], self.dtype[key])
        first, *others = self.dtype.names or ()
        head = self[first][key]
        out = np.empty(head.shape, self.dtype)
        out[first] = head
        for name in others if head.size else ():  # most rules choose none, and each column is unpacked for it
            out[name] = self[name][key]
        return out[()]

    def __iter__(self) -> Iterator[np.void]:
        return iter(self[:])


def _varying(rows: np.ndarray) -> frozenset[str]:
    """The columns of a structured array that are not the same in all rows: of producers a few, and to look at each
    column by itself takes longer than to pack those."""
    size, fields = rows.dtype.itemsize, rows.dtype.fields
    assert fields is not None
    change = np.zeros(size, np.uint8)
    _varying_bytes(np.ascontiguousarray(rows).view(np.uint8).reshape(-1, size), change)
    return frozenset(name for name, (kind, at, *_) in fields.items() if change[at : at + kind.itemsize].any())


@kernel
def _varying_bytes(rows: np.ndarray, change: np.ndarray) -> None:
    """Leaves bits in ``change`` for bytes that are not the same in all rows."""
    for at in range(1, len(rows)):
        for k in range(len(change)):
            change[k] |= rows[at, k] ^ rows[0, k]


def _joined(parts: list[Packed], dtype: np.dtype) -> np.ndarray:
    """A column whose parts were packed one by one."""
    return np.concatenate([np.empty(0, dtype), *(unpacked(part, dtype) for part in parts)])


class PackedColumns:
    """Columns of numbers that grow by some rows at a time, kept as compressed steps: of batches, about 10 bytes a row.

    Read like a dictionary of arrays; each reading costs a decompression of the column. ``dtypes`` are those of what is
    read, by name, in the order in which rows are added.
    """

    def __init__(self, dtypes: dict[str, np.dtype]) -> None:
        self.dtypes = dtypes
        self.pieces: list[list[Packed]] = []
        self.waiting: list[np.ndarray] = []
        self.size = 0  # bytes of the pieces
        self.rows = 0

    def add(self, rows: np.ndarray) -> None:
        """More rows: an array with a column to each line."""
        self.waiting.append(rows)
        self.rows += rows.shape[1]
        if self._waiting_rows() >= PIECE:
            self.pack()

    def pack(self) -> None:
        """Packs what is not yet: to be called when the last row is there."""
        if not self.waiting:
            return
        self.pieces.append([packed(column) for column in np.concatenate(self.waiting, axis=1)])
        self.size += sum(len(column.data) for column in self.pieces[-1])
        self.waiting = []

    def append(self, more: PackedColumns) -> None:
        """The rows of another one of the same columns behind those of this one, few of them with these in a piece."""
        rest = np.concatenate([np.empty((len(self.dtypes), 0), np.int64), *more.waiting], axis=1)
        if more.pieces or self._waiting_rows() + rest.shape[1] > PIECE:
            self.pack()
            self.pieces += more.pieces
            self.size += more.size
        self.rows += more.rows - rest.shape[1]
        if more.waiting:
            self.add(rest)

    def _waiting_rows(self) -> int:
        return sum(rows.shape[1] for rows in self.waiting)

    def __getstate__(self) -> Fields:
        waiting = packed_table(np.concatenate(self.waiting, axis=1).T.copy()) if self.waiting else None
        return vars(self) | {"waiting": waiting}

    def __setstate__(self, state: Fields) -> None:
        waiting = state["waiting"]
        vars(self).update(state)
        self.waiting = [] if waiting is None else [np.ascontiguousarray(unpacked_table(waiting).T)]

    def __len__(self) -> int:
        """Columns; none where nothing was added, not even no rows."""
        return len(self.dtypes) if self.pieces or self.waiting else 0

    def piece_count(self) -> int:
        """How many pieces there are for :meth:`piece`; what waits is packed for it."""
        self.pack()
        return len(self.pieces)

    def piece(self, number: int, names: Iterable[str]) -> dict[str, np.ndarray]:
        """Some columns of one piece, of about PIECE rows."""
        at = {name: place for place, name in enumerate(self.dtypes)}
        return {name: _joined([self.pieces[number][at[name]]], self.dtypes[name]) for name in names}

    def __getitem__(self, name: str) -> np.ndarray:
        at, dtype = list(self.dtypes).index(name), self.dtypes[name]
        packed = _joined([piece[at] for piece in self.pieces], dtype)
        return np.concatenate([packed, *(rows[at].astype(dtype) for rows in self.waiting)]) if self.waiting else packed

    def items(self) -> Iterator[tuple[str, np.ndarray]]:
        """Each column with its name."""
        return ((name, self[name]) for name in self.dtypes)


# Facts in a form that another program, or somebody else, may have written: plain values, arrays and known classes.
#
# A pickle runs what its writer likes. Here a value becomes JSON and a list of bytes, and what is read can only become
# values of the classes that the reader names.


TAG = "t"
Stored = tuple[str, list[bytes]]


def known(classes: Iterable[type]) -> dict[str, type]:
    """The classes by the names that they are stored under."""
    return {cls.__name__: cls for cls in classes}


def stored(value: object, classes: Mapping[str, type]) -> Stored:
    """A value as text and bytes. Errors: TypeError for what is of no known class."""
    blobs: list[bytes] = []
    return json.dumps(_plain(value, classes, blobs), separators=(",", ":")), blobs


def loaded(text: str, blobs: list[bytes], classes: Mapping[str, type]) -> Any:
    """What :func:`stored` was given. Errors: TypeError, ValueError, KeyError, IndexError for what it did not make."""
    return _value(json.loads(text), blobs, classes)


def _plain(value: Any, classes: Mapping[str, type], blobs: list[bytes]) -> Any:
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is list:
        return [_plain(one, classes, blobs) for one in value]
    if kind is bytes:
        blobs.append(value)
        return {TAG: "bytes", "at": len(blobs) - 1}
    if kind is dict:
        pairs = [[_plain(one, classes, blobs) for one in pair] for pair in value.items()]
        return {TAG: "dict", "of": pairs}
    if kind in (tuple, set, frozenset):
        return {TAG: kind.__name__, "of": [_plain(one, classes, blobs) for one in value]}
    if value is tuple:  # in place of a function that gives none
        return {TAG: "empty"}
    if isinstance(value, np.dtype):
        return {TAG: "dtype", "of": _described(value)}
    if isinstance(value, np.ndarray | np.generic):
        blobs.append(np.ascontiguousarray(value).tobytes())
        shape = list(value.shape) if kind is np.ndarray else None
        return {TAG: "array", "of": _described(value.dtype), "shape": shape, "at": len(blobs) - 1}
    if classes.get(kind.__name__) is not kind:
        raise TypeError(f"{kind.__name__} has no form at rest")
    return {TAG: "object", "class": kind.__name__, "of": _plain(_fields(value), classes, blobs)}


def _described(dtype: np.dtype) -> Any:
    """A type of numbers, or of rows of numbers. Errors: TypeError for one of objects."""
    if dtype.hasobject:
        raise TypeError("objects in an array have no form at rest")
    if dtype.names and any(len(field) != 2 for field in dtype.descr):
        raise TypeError("rows of arrays have no form at rest")
    return [list(field) for field in dtype.descr] if dtype.names else dtype.str


def _dtype(said: Any) -> np.dtype:
    found = np.dtype(said if isinstance(said, str) else [(str(n), str(k)) for n, k in said])
    if found.hasobject:
        raise TypeError("an array of objects")
    return found


def _fields(value: Any) -> Fields:
    if hasattr(value, "_asdict"):
        return {name: getattr(value, name) for name in value._fields}
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return vars(value) if hasattr(value, "__dict__") else {name: getattr(value, name) for name in value.__slots__}


def _value(said: object, blobs: list[bytes], classes: Mapping[str, type]) -> Any:
    if isinstance(said, list):
        return [_value(one, blobs, classes) for one in said]
    if not isinstance(said, dict):
        return said
    tag = said[TAG]
    if tag == "bytes":
        return blobs[said["at"]]
    if tag == "dict":
        return {_value(k, blobs, classes): _value(v, blobs, classes) for k, v in said["of"]}
    if tag in ("tuple", "set", "frozenset"):
        made = {"tuple": tuple, "set": set, "frozenset": frozenset}[tag]
        return made(_value(one, blobs, classes) for one in said["of"])
    if tag == "empty":
        return tuple
    if tag == "dtype":
        return _dtype(said["of"])
    if tag == "array":
        flat = np.frombuffer(blobs[said["at"]], _dtype(said["of"])).copy()
        return flat[0] if said["shape"] is None else flat.reshape(said["shape"])
    if tag != "object":
        raise ValueError("no value at rest")
    return _object(classes[said["class"]], _value(said["of"], blobs, classes))


def _object(cls: type, fields: object) -> Any:
    if not isinstance(fields, dict):
        raise TypeError("no fields")
    if hasattr(cls, "_fields") or dataclasses.is_dataclass(cls):
        return cls(**fields)
    made: Any = object.__new__(cls)
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made
