"""Facts as bytes: the types of their rows by name, and of a healthy replica only what is not as it always is.

Written out, these types and the names of fields that say nothing are most of a healthy replica's facts.
"""

from __future__ import annotations

import copyreg
import dataclasses
import io
import operator
import pickle
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from auditor.facts.events import EVENT
from auditor.facts.producer_rows import PRODUCER
from auditor.facts.transaction_rows import ABORTED, ENDED, EXPOSED, TRANSACTION

ROWS = {
    "event": EVENT, "producer": PRODUCER, "transaction": TRANSACTION, "aborted": ABORTED, "ended": ENDED,
    "exposed": EXPOSED,
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in ROWS.items()}
Facts = TypeVar("Facts")
_FIELDS: dict[type, list[str]] = {}  # at rest they go by their place, which takes a byte
_SAME = {id(dtype): name for name, dtype in ROWS.items()}  # numpy takes 10 us to hash so many columns


def rows_named(name: str) -> np.dtype:
    """The type of rows that :data:`ROWS` has under a name."""
    return ROWS[name]


def _by_name(dtype: np.dtype) -> tuple[Any, ...]:
    name = _SAME.get(id(dtype)) or _NAMES.get(dtype)
    reduced: Any = dtype.__reduce__() if name is None else (rows_named, (name,))
    return tuple(reduced)


_DISPATCH: dict[type, Callable[[Any], Any]] = {**copyreg.dispatch_table, type(EVENT): _by_name}


def without_defaults(cls: type[Facts]) -> type[Facts]:
    """Decorates a dataclass of facts, at rest an instance has only the fields that differ from their defaults."""
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    names = [field.name for field in fields]
    made = [f.default if f.default_factory is dataclasses.MISSING else f.default_factory() for f in fields]
    values = operator.attrgetter(*names)
    _FIELDS[cls] = names

    def reduced(facts: Facts) -> tuple[Any, ...]:
        places, said = bytearray(), []
        for place, (value, default) in enumerate(zip(values(facts), made, strict=True)):
            if value is not default and _says(value, default):
                places.append(place)
                said.append(value)
        return _with, (cls, bytes(places), *said)

    _DISPATCH[cls] = reduced
    return cls


def _with(cls: type[Facts], places: bytes, *said: object) -> Facts:
    names = _FIELDS[cls]
    return cls(**{names[place]: value for place, value in zip(places, said, strict=True)})


def _says(value: Any, default: Any) -> bool:
    """Whether a field is not as it is by default, to its type. A default table has no rows."""
    if type(value) is not type(default):
        return True
    if type(value) is np.ndarray:
        return len(value) > 0 or value.dtype is not default.dtype
    return bool(value != default)


def at_rest(value: object) -> bytes:
    """``value`` for :func:`pickle.loads`, in a process of the same program."""
    out = io.BytesIO()
    pickler = pickle.Pickler(out, 5)
    pickler.dispatch_table = _DISPATCH
    pickler.dump(value)
    return out.getvalue()
