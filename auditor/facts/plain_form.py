"""Facts in a form that another program, or somebody else, may have written: plain values, arrays and known classes.

A pickle runs what its writer likes. Here a value becomes JSON and a list of bytes, and what is read can only become
values of the classes that the reader names.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from auditor.base.at_rest import Fields

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
