"""Facts as bytes. The types of their rows travel by name: written out they are most of a healthy copy's facts."""

from __future__ import annotations

import copyreg
import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from auditor.facts.events import EVENT
from auditor.facts.producer_rows import PRODUCER
from auditor.facts.transaction_rows import ABORTED, ENDED, TRANSACTION

ROWS = {"event": EVENT, "producer": PRODUCER, "transaction": TRANSACTION, "aborted": ABORTED, "ended": ENDED}
_NAMES = {dtype: name for name, dtype in ROWS.items()}
_SAME = {id(dtype): name for name, dtype in ROWS.items()}  # numpy takes 10 us to hash so many columns


def rows_named(name: str) -> np.dtype:
    """The type of rows that :data:`ROWS` has under a name."""
    return ROWS[name]


def _by_name(dtype: np.dtype) -> tuple[Any, ...]:
    name = _SAME.get(id(dtype)) or _NAMES.get(dtype)
    reduced: Any = dtype.__reduce__() if name is None else (rows_named, (name,))
    return tuple(reduced)


_DISPATCH: dict[type, Callable[[Any], Any]] = {**copyreg.dispatch_table, type(EVENT): _by_name}


def at_rest(value: object) -> bytes:
    """``value`` for :func:`pickle.loads`, in a process of the same program."""
    out = io.BytesIO()
    pickler = pickle.Pickler(out, 5)
    pickler.dispatch_table = _DISPATCH
    pickler.dump(value)
    return out.getvalue()
