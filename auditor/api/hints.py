"""Arguments held against their type hints: what is not of its type is a wrong call, said in one line."""

from __future__ import annotations

import datetime
import os
import reprlib
from collections.abc import Callable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from auditor.base.at_rest import Values
from auditor.base.errors import AuditInputError

_WORDS = {
    str: "a text",
    int: "a whole number",
    bool: "True or False",
    datetime.datetime: "a datetime",
    NoneType: "None",
    os.PathLike: "a path",
    Callable: "a function",
}
_SEVERAL = {str: "texts", int: "whole numbers", os.PathLike: "paths"}


def check(given: Values, hints: Values) -> None:
    """Holds each value against the hint of its name. Errors: :class:`AuditInputError` for the first that is of another
    type, with what it may be. True is no whole number."""
    for name, value in given.items():
        if not _fits(value, hints[name]):
            *others, last = dict.fromkeys(_words(hints[name]))
            takes = f"{', '.join(others)} or {last}" if others else last
            raise AuditInputError(f"{name} is {' '.join(reprlib.repr(value).split())}; give {takes}")


def _fits(value: Any, hint: Any) -> bool:
    kind, inside = get_origin(hint) or hint, get_args(hint)
    if kind is Any:
        return True
    if kind in (Union, UnionType):
        return any(_fits(value, one) for one in inside)
    if kind is Literal:  # which of them it is, is asked where it is known what they mean
        return any(isinstance(value, type(one)) for one in inside)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        return False
    if issubclass(kind, Mapping):
        return all(_fits(key, inside[0]) and _fits(one, inside[1]) for key, one in value.items())
    if kind in (tuple, list, Sequence):
        return not isinstance(value, str | bytes) and all(_fits(one, inside[0]) for one in value)
    return True


def _words(hint: Any) -> list[str]:
    """What a value may be, each kind once by itself."""
    kind, inside = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, UnionType):
        return [word for one in inside for word in _words(one)]
    if kind is Literal:
        return [repr(one) for one in inside]
    if issubclass(kind, Mapping):
        return ["a dict by texts"]
    if kind in (tuple, list, Sequence):
        of = {get_origin(one) or one for one in (get_args(inside[0]) or inside[:1])}
        return [f"a list of {_SEVERAL[one]}" for one in (os.PathLike, str, int) if one in of][:1]
    return [_WORDS[kind]]
