"""Whether a finding's evidence has the types that its kind declares."""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict

from auditor.base.evidence_keys import Evidence
from auditor.rules.catalogue.registry import Kind


@functools.cache
def _hints(shapes: tuple[type, ...]) -> Mapping[str, Any]:
    return {key: hint for shape in (Evidence, *shapes) for key, hint in get_type_hints(shape).items()}


def declared(kind: Kind) -> Mapping[str, Any]:
    """The keys that are read again of a kind's evidence, with their types."""
    return _hints(kind.evidence)


def faults(kind: Kind, given: Mapping[str, Any]) -> list[str]:
    """What in the evidence of a kind's finding has another type than is declared."""
    hints = declared(kind)
    return [
        f"{kind.id}.{key}: {value!r}" for key, value in given.items() if key in hints and not fits(value, hints[key])
    ]


def fits(value: Any, hint: Any) -> bool:
    """Whether a value has a type; what a dict without named keys has in it is not looked at."""
    if hint is Any:
        return True
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(fits(value, one) for one in arguments)
    if is_typeddict(hint):
        hints = get_type_hints(hint)
        return (
            isinstance(value, dict)
            and hint.__required_keys__ <= value.keys()
            and all(fits(value[key], one) for key, one in hints.items() if key in value)
        )
    if origin is list:
        return isinstance(value, list) and all(fits(item, arguments[0]) for item in value)
    if origin in (tuple, dict):
        return isinstance(value, origin)
    return isinstance(value, hint) and (hint is not int or not isinstance(value, bool))
