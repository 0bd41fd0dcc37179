"""Values of declared types as Arrow columns: a record batch for many values, in a form that is safe to read.

A row per value. Each field becomes a column of the type that its annotation says, fields of fields likewise, at any
depth. A field that has its default in all values has no column. Names of columns, and of types of numpy arrays, are in
the schema, so that any Arrow program can read them.

Nothing that is read is executed. Reading creates plain values, arrays of numbers, and instances of the classes in the
annotations; all else is :class:`DamagedFacts`. A class whose instances are not their fields has three members:
``stored_as``, a type whose instances are, ``at_rest()``, which returns one, and ``restored(…)``, a class method that
takes it.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import itertools
import json
import operator
import re
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeVar, Union

import numpy as np
import pyarrow as pa

from auditor.base.at_rest import parsed

Value = TypeVar("Value")
Values = Sequence[Any]  # of one type
PROGRAM = b"kafka-log-auditor facts"
SIZE_BYTES = 8  # before the compressed bytes
LEAST_LIMIT, MOST_RATIO = 64 << 20, 4096  # bytes that may always be decompressed, and how many times the stored ones
NUMBERS = re.compile(r"[<>|=][biufc]\d{1,2}")  # numpy's names of types of numbers
MOST_NUMBERS = 1 << 28  # in a column that says its own length
WRONG = (
    pa.ArrowException,
    ArithmeticError,
    AttributeError,
    IndexError,
    KeyError,
    MemoryError,
    OSError,
    RecursionError,
    TypeError,
    ValueError,
)
_ZSTD = pa.Codec("zstd", 1)


class DamagedFacts(ValueError):
    """Bytes that :meth:`Codec.pack` of this release did not write."""


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise DamagedFacts(what)


class Codec(Generic[Value]):
    """Packs values of a class. ``stand_ins``: returns the class to store for a protocol, by protocol."""

    def __init__(self, cls: type[Value], stand_ins: Callable[[], Mapping[Any, type]] = dict) -> None:
        self._cls = cls
        self._stand_ins = stand_ins

    @functools.cached_property
    def _form(self) -> Form:
        return _Forms(self._stand_ins).of(self._cls)

    def pack(self, values: Iterable[Value]) -> bytes:
        """Return the values as a compressed Arrow stream behind its size. Errors: TypeError, ValueError, OverflowError
        or an Arrow exception for a value that is not of the declared type.
        """
        array = self._form.encode(list(values))
        meta = {b"program": PROGRAM, b"class": self._cls.__name__.encode()}
        schema = pa.schema([pa.field("row", array.type)], metadata=meta)
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, schema) as stream:
            stream.write_batch(pa.RecordBatch.from_arrays([array], schema=schema))
        plain = out.getvalue()
        return plain.size.to_bytes(SIZE_BYTES, "little") + bytes(_ZSTD.compress(plain, asbytes=True))

    def unpack(self, data: bytes | pa.Buffer) -> list[Value]:
        """Return the values of :meth:`pack`, as new objects. Errors: :class:`DamagedFacts` for any other bytes."""
        try:
            packed = memoryview(data)
            size = int.from_bytes(packed[:SIZE_BYTES], "little")
            _require(size <= max(LEAST_LIMIT, MOST_RATIO * len(packed)), "too large")
            plain = _ZSTD.decompress(packed[SIZE_BYTES:], size)
            return self._form.decode(self._rows(plain))
        except DamagedFacts:
            raise
        except WRONG as error:
            raise DamagedFacts(f"no {self._cls.__name__} at rest: {error}") from error

    def _rows(self, plain: pa.Buffer) -> pa.Array:
        with pa.ipc.open_stream(plain) as stream:
            meta = stream.schema.metadata or {}
            _require(meta.get(b"program") == PROGRAM, "no facts")
            _require(meta.get(b"class") == self._cls.__name__.encode(), "facts of another class")
            _require(stream.schema.names == ["row"], "not one column")
            batch = stream.read_next_batch()
        batch.validate(full=True)
        return batch.column(0)


# Forms: how values of one type become an array, and back.


NUMPY_TYPES = {pa.int64(): np.int64, pa.float64(): np.float64, pa.bool_(): np.bool_}
BLANK: dict[pa.DataType, Any] = {
    pa.int64(): 0,
    pa.float64(): 0.0,
    pa.bool_(): False,
    pa.string(): "",
    pa.large_binary(): b"",
}


class Form(ABC):
    """Stores values of one type."""

    @abstractmethod
    def encode(self, values: Values) -> pa.Array:
        """Return an array with an item per value."""

    @abstractmethod
    def decode(self, array: pa.Array) -> list[Any]:
        """Return the values of an array of any content."""

    def are_all(self, values: Values, default: Any) -> bool:
        """Whether all values are the default."""
        return values.count(default) == len(values)


class _Plain(Form):
    """Numbers, texts and None: a column of Arrow's own type. Bytes stand for texts that are not valid Unicode."""

    def __init__(self, kind: pa.DataType, nullable: bool = False) -> None:
        self.kind, self.nullable = kind, nullable
        self.blank = BLANK[kind]

    def encode(self, values: Values) -> pa.Array:
        there = None
        if self.nullable:
            there = np.fromiter((v is not None for v in values), np.bool_, len(values))
            values = [self.blank if v is None else v for v in values]
        return _array(values, self.kind, there)

    def decode(self, array: pa.Array) -> list[Any]:
        _require(self.nullable or not array.null_count, "a value is missing")
        values: list[Any] = array.to_pylist()
        if array.type == self.kind:
            return values
        _require(self.kind == pa.string() and array.type == pa.binary(), f"{array.type} is not {self.kind}")
        return [v if v is None else v.decode("utf-8", "surrogatepass") for v in values]


# Arrays of Python values, not by pyarrow.array, which would load pandas.


def _array(values: Values, kind: pa.DataType, there: np.ndarray | None) -> pa.Array:
    if kind in NUMPY_TYPES:
        return _numbers(np.array(values, NUMPY_TYPES[kind]), kind, there)
    if kind == pa.string():
        try:
            values = list(map(str.encode, values))
        except UnicodeEncodeError:  # a name of a file may be any bytes
            values, kind = [value.encode("utf-8", "surrogatepass") for value in values], pa.binary()
    return _bytes(b"".join(values), np.fromiter(map(len, values), np.int64, len(values)), kind, there)


def _numbers(values: np.ndarray, kind: pa.DataType, there: np.ndarray | None = None) -> pa.Array:
    _require(values.ndim == 1, "no numbers")
    return pa.Array.from_buffers(
        kind, len(values), [_bits(there), _bits(values) if kind == pa.bool_() else _buffer(values)]
    )


def _bytes(data: bytes, lengths: np.ndarray, kind: pa.DataType, there: np.ndarray | None = None) -> pa.Array:
    ends = np.zeros(len(lengths) + 1, np.int64 if kind == pa.large_binary() else np.int32)
    np.cumsum(lengths, out=ends[1:])
    _require(len(data) == ends[-1], "too many bytes")
    return pa.Array.from_buffers(kind, len(lengths), [_bits(there), _buffer(ends), pa.py_buffer(data)])


def _bits(mask: np.ndarray | None) -> pa.Buffer | None:
    return None if mask is None else pa.py_buffer(np.packbits(mask, bitorder="little"))


def _buffer(values: np.ndarray) -> pa.Buffer:
    return pa.py_buffer(np.ascontiguousarray(values))


class _Via(Form):
    """Values that are stored as values of another type."""

    def __init__(self, form: Form, store: Callable[[Any], Any], restore: Callable[[Any], Any]) -> None:
        self.form, self.store, self.restore = form, store, restore

    def encode(self, values: Values) -> pa.Array:
        return self.form.encode(list(map(self.store, values)))

    def decode(self, array: pa.Array) -> list[Any]:
        return list(map(self.restore, self.form.decode(array)))


class _Items(Form):
    """Lists of any length. ``items`` returns those of a value, ``make`` takes a list of them."""

    def __init__(self, form: Form, make: Callable[[list[Any]], Any], items: Callable[[Any], Iterable[Any]]) -> None:
        self.form, self.make, self.items = form, make, items

    def encode(self, values: Values) -> pa.Array:
        ends = np.zeros(len(values) + 1, np.int32)
        np.cumsum([*map(len, values)], out=ends[1:])
        every = list(itertools.chain.from_iterable(map(self.items, values)))
        _require(len(every) == ends[-1], "too many items")
        return pa.ListArray.from_arrays(_numbers(ends, pa.int32()), self.form.encode(every))

    def decode(self, array: pa.Array) -> list[Any]:
        _require(pa.types.is_list(array.type) and not array.null_count, f"{array.type} is no list")
        items = self.form.decode(array.values)
        ends = _ends(array, array.offsets)
        return [self.make(items[begin:end]) for begin, end in itertools.pairwise(ends)]

    def are_all(self, values: Values, default: Any) -> bool:
        return (not any(values)) if default is not None and not default else super().are_all(values, default)


def _ends(array: pa.Array, offsets: pa.Array) -> list[int]:
    ends: list[int] = offsets.to_pylist() if len(array) else [0]
    return ends


class _Optional(Form):
    """A value or None: a list of at most one item, whose column then has no room for what is missing."""

    def __init__(self, form: Form) -> None:
        self.form = form

    def encode(self, values: Values) -> pa.Array:
        there = np.fromiter((v is not None for v in values), np.bool_, len(values))
        ends = np.zeros(len(values) + 1, np.int32)
        np.cumsum(there, out=ends[1:])
        return pa.ListArray.from_arrays(
            _numbers(ends, pa.int32()), self.form.encode([v for v in values if v is not None])
        )

    def decode(self, array: pa.Array) -> list[Any]:
        _require(pa.types.is_list(array.type) and not array.null_count, f"{array.type} is no list")
        items = self.form.decode(array.values)
        return [items[begin] if end > begin else None for begin, end in itertools.pairwise(_ends(array, array.offsets))]

    def are_all(self, values: Values, default: Any) -> bool:
        return default is None and all(v is None for v in values)


class _Default(NamedTuple):
    """The default of a field; ``make`` returns a new one of those that can change."""

    value: Any
    make: Callable[[], Any] | None = None

    def each(self) -> Iterable[Any]:
        """Return it for any number of objects."""
        return itertools.repeat(self.value) if self.make is None else iter(self.make, self)


Fields = Mapping[str, tuple[Form, _Default | None]]


class _Struct(Form):
    """Objects with named fields. ``take`` returns a column of values, ``make`` takes columns and returns objects."""

    def __init__(
        self,
        fields: Fields,
        take: Mapping[str, Callable[[Any], Any]],
        make: Callable[..., Iterable[Any]],
    ) -> None:
        self.forms = {name: form for name, (form, _) in fields.items()}
        self.default = {name: default for name, (_, default) in fields.items()}
        self.take, self.make = take, make

    def encode(self, values: Values) -> pa.Array:
        arrays = {}
        for name, form in self.forms.items():
            column, default = list(map(self.take[name], values)), self.default[name]
            if default is None or not form.are_all(column, default.value):
                arrays[name] = form.encode(column)
        if not arrays:  # a struct has a length by its columns only
            name, form = next(iter(self.forms.items()))
            arrays[name] = form.encode(list(map(self.take[name], values)))
        return pa.StructArray.from_arrays([*arrays.values()], names=[*arrays])

    def decode(self, array: pa.Array) -> list[Any]:
        _require(pa.types.is_struct(array.type) and not array.null_count, f"{array.type} is no struct")
        there = [array.type.field(k).name for k in range(array.type.num_fields)]
        _require(0 < len(there) == len(set(there) & self.forms.keys()), "other fields")
        if not len(array):
            return []
        columns: list[Iterable[Any]] = []
        for name, form in self.forms.items():
            if name in there:
                columns.append(form.decode(array.field(there.index(name))))
                continue
            if (default := self.default[name]) is None:
                raise DamagedFacts(f"no {name}")
            columns.append(default.each())
        return list(self.make(*columns))


class _Either(Form):
    """A value of one of several classes: a field for each, with the values of that class."""

    def __init__(self, forms: Mapping[type, Form], nullable: bool) -> None:
        self.forms = {cls: (cls.__name__, _Optional(form)) for cls, form in forms.items()}
        self.nullable = nullable

    def encode(self, values: Values) -> pa.Array:
        kinds = set(map(type, values))
        _require(kinds <= {*self.forms, type(None)}, "a value of another class")
        arrays = {
            name: form.encode([v if type(v) is cls else None for v in values])
            for cls, (name, form) in self.forms.items()
            if cls in kinds or cls is next(iter(self.forms))
        }
        return pa.StructArray.from_arrays([*arrays.values()], names=[*arrays])

    def decode(self, array: pa.Array) -> list[Any]:
        _require(pa.types.is_struct(array.type) and not array.null_count, f"{array.type} is no struct")
        names = [array.type.field(k).name for k in range(array.type.num_fields)]
        forms = dict(self.forms.values())
        _require(0 < len(names) == len(set(names) & forms.keys()), "other classes")
        columns = [forms[name].decode(array.field(k)) for k, name in enumerate(names)]
        out = []
        for row in zip(*columns, strict=True):
            values = [v for v in row if v is not None]
            _require(len(values) == 1 or (self.nullable and not values), "not one value")
            out.append(values[0] if values else None)
        return out

    def are_all(self, values: Values, default: Any) -> bool:
        if isinstance(default, np.ndarray):
            return not any(type(v) is not np.ndarray or len(v) for v in values)
        return default is None and all(v is None for v in values)


class _Arrays(Form):
    """Arrays of numbers, or of rows of numbers: their bytes, in a field that is named after their type.

    ``dtype``: the object to use for that type, since numpy takes 10 us to compare two of PRODUCER's size.
    """

    def __init__(self, default: Any = None) -> None:
        self.dtype = default.dtype if isinstance(default, np.ndarray) else np.dtype(np.int64)
        self.name = _described(self.dtype, ())

    def encode(self, values: Values) -> pa.Array:
        if all(v.dtype is self.dtype and v.ndim == 1 for v in values):
            return pa.StructArray.from_arrays([_binary(values, self.dtype)], names=[self.name])
        names = [_described(v.dtype, v.shape[1:]) for v in values]
        of_any = _Plain(pa.large_binary(), nullable=True)
        arrays = [
            of_any.encode(
                [np.ascontiguousarray(v).tobytes() if of == name else None for of, v in zip(names, values, strict=True)]
            )
            for name in dict.fromkeys(names)
        ]
        return pa.StructArray.from_arrays(arrays, names=[*dict.fromkeys(names)])

    def decode(self, array: pa.Array) -> list[Any]:
        _require(pa.types.is_struct(array.type) and not array.null_count, f"{array.type} is no struct")
        columns = [
            self._rows(array.field(k), array.type.field(k).name, array.type.num_fields > 1)
            for k in range(array.type.num_fields)
        ]
        if len(columns) == 1:
            return columns[0]
        arrays = [[v for v in row if v is not None] for row in zip(*columns, strict=True)]
        _require(all(len(row) == 1 for row in arrays), "not one array")
        return [row[0] for row in arrays]

    def _rows(self, array: pa.Array, name: str, nullable: bool) -> list[Any]:
        _require(array.type == pa.large_binary() and (nullable or not array.null_count), f"{array.type} has no rows")
        if not len(array):
            return []
        dtype, shape = (self.dtype, ()) if name == self.name else _dtype_of(name)
        size = dtype.itemsize * int(np.prod(shape, dtype=object))
        _, offsets, data = array.buffers()
        ends = np.frombuffer(offsets, np.int64, len(array) + 1)
        ends, rest = np.divmod(ends, size)
        _require(not rest.any(), "half a row")
        rows = np.array(np.frombuffer(data or b"", dtype, int(ends[-1]) * (size // dtype.itemsize)))  # writable
        if shape:
            rows = rows.reshape(-1, *shape)
        cut = [rows[begin:end] for begin, end in itertools.pairwise(ends.tolist())]
        return [a if v else None for a, v in zip(cut, array.is_valid().to_pylist(), strict=True)] if nullable else cut

    def are_all(self, values: Values, default: Any) -> bool:
        return isinstance(default, np.ndarray) and not len(default) and not any(map(len, values))


def _binary(values: Values, dtype: np.dtype) -> pa.Array:
    # Concatenating rows takes 15 us for each array.
    lengths = np.fromiter(map(len, values), np.int64, len(values)) * dtype.itemsize
    return _bytes(b"".join(map(np.ndarray.tobytes, values)), lengths, pa.large_binary())


@functools.lru_cache(256)
def _described(dtype: np.dtype, shape: tuple[int, ...]) -> str:
    # Numbers, or rows of numbers; behind it the size of each item of an array of several dimensions.
    kind = [list(field) for field in dtype.descr] if dtype.names else dtype.str
    name = json.dumps([kind, *shape], separators=(",", ":"))
    _require(_dtype_of(name)[0] == dtype, "no array of numbers")
    return name


@functools.lru_cache(256)
def _dtype_of(name: str) -> tuple[np.dtype, tuple[int, ...]]:
    kind, *shape = parsed(name, 10_000)
    fields = [("", kind)] if isinstance(kind, str) else [(str(field), of) for field, of in kind]
    _require(bool(fields) and all(NUMBERS.fullmatch(of) for _, of in fields), "no numbers")
    _require(len(shape) < 3 and all(type(n) is int and 0 < n < 1 << 20 for n in shape), "no shape")
    return np.dtype(kind if isinstance(kind, str) else fields), tuple(shape)


def _table_bytes(table: pa.Table) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as stream:
        stream.write_table(table)
    return bytes(out.getvalue())


def _table(data: bytes) -> pa.Table:
    with pa.ipc.open_stream(data) as stream:
        table = stream.read_all()
    table.validate(full=True)
    return table


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), default=_number)


def _number(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} has no form at rest")


class _StandIn(Form):
    """The form of a class that is loaded for its first value."""

    def __init__(self, form: Callable[[], Form]) -> None:
        self._load = form

    @functools.cached_property
    def _form(self) -> Form:
        return self._load()

    def encode(self, values: Values) -> pa.Array:
        return self._form.encode(values)

    def decode(self, array: pa.Array) -> list[Any]:
        return self._form.decode(array)


# Forms by type.


PLAIN = {
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    str: pa.string(),
    bytes: pa.large_binary(),
}


class _Forms:
    """The form of each type that is part of another one."""

    def __init__(self, stand_ins: Callable[[], Mapping[Any, type]]) -> None:
        self._stand_ins = stand_ins
        self._made: dict[Any, Form] = {}

    def of(self, kind: Any, default: Any = None) -> Form:
        """Return the form of a type. Errors: TypeError for a type that has none."""
        if kind in PLAIN:
            return _Plain(PLAIN[kind])
        if kind is Any:
            return _Via(_Plain(pa.string()), _json, parsed)
        if kind is np.ndarray:
            return _Arrays(default)
        if kind is np.dtype:
            return _Via(_Plain(pa.string()), lambda dtype: _described(dtype, ()), lambda name: _dtype_of(name)[0])
        if kind is pa.Table:
            return _Via(_Plain(pa.large_binary()), _table_bytes, _table)
        origin, of = typing.get_origin(kind), typing.get_args(kind)
        if origin in (Union, types.UnionType):
            return self._union(of, default)
        if origin is Literal:
            return _Via(_Plain(pa.int64()), of.index, dict(enumerate(of)).__getitem__)
        if origin is not None:
            return self._items(origin, of)
        return self._class(kind)

    def _union(self, of: tuple[Any, ...], default: Any) -> Form:
        rest = [one for one in of if one is not type(None)]
        if len(rest) > 1:
            return _Either({typing.get_origin(one) or one: self.of(one, default) for one in rest}, len(rest) < len(of))
        form = self.of(rest[0])
        return _Plain(form.kind, nullable=True) if isinstance(form, _Plain) else _Optional(form)

    def _items(self, origin: Any, of: tuple[Any, ...]) -> Form:
        if issubclass(origin, Mapping):
            pair = self._tuple({"key": (self.of(of[0]), None), "value": (self.of(of[1]), None)})
            return _Items(pair, dict, operator.methodcaller("items"))
        if origin is tuple and of[-1] is not Ellipsis:
            return self._tuple({str(number): (self.of(one), None) for number, one in enumerate(of)})
        make = origin if origin in (tuple, set, frozenset) else list
        return _Items(self.of(of[0]), make, iter)

    def _tuple(self, fields: Fields) -> Form:
        return _Struct(fields, {name: operator.itemgetter(k) for k, name in enumerate(fields)}, zip)

    def _class(self, kind: Any) -> Form:
        if kind not in self._made:
            self._made[kind] = self._new(kind)
        return self._made[kind]

    def _new(self, kind: Any) -> Form:
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            return _Via(_Plain(pa.int64()), operator.attrgetter("value"), kind)
        if hasattr(kind, "stored_as"):
            return _Via(self.of(kind.stored_as), kind.at_rest, kind.restored)
        if not dataclasses.is_dataclass(kind) and not hasattr(kind, "_fields"):
            return _StandIn(lambda: self.of(self._stand_in(kind)))
        hints = typing.get_type_hints(kind)
        fields = {
            name: (self.of(hints[name], default and default.value), default)
            for name, default in _defaults(kind).items()
        }
        return _Struct(fields, {name: operator.attrgetter(name) for name in fields}, functools.partial(map, kind))

    def _stand_in(self, kind: Any) -> Any:
        stand_ins = self._stand_ins()
        if kind not in stand_ins:
            raise TypeError(f"{kind} has no form at rest")
        return stand_ins[kind]


def _defaults(kind: Any) -> dict[str, _Default | None]:
    if not dataclasses.is_dataclass(kind):
        given = kind._field_defaults
        return {name: _Default(given[name]) if name in given else None for name in kind._fields}
    return {field.name: _default(field) for field in dataclasses.fields(kind)}


def _default(field: Any) -> _Default | None:
    if field.default_factory is dataclasses.MISSING:
        return None if field.default is dataclasses.MISSING else _Default(field.default)
    value = field.default_factory()
    return _Default(value, None if isinstance(value, np.ndarray) else field.default_factory)
