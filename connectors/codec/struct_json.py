"""A struct's fields as Kafka's own tools print them: JSON by the generated JsonConverter classes.

Uuids are text and bytes base64; a tagged field that has its default is left out. What only clients chose (bytes) and
addresses are withheld unless asked for: they stand there as null.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable
from typing import Any

from auditor.base.at_rest import Fields, Values
from auditor.connectors.codec.structs import Field, Message

ADDRESSES = frozenset({"clientHost", "userEndpoint", "endPoints"})


def as_printed(message: Message, version: int, fields: Values, *, payload: bool = False) -> Fields:
    """Decoded ``fields`` of a message in the shape that the tools print; ``payload``: bytes and addresses too."""
    return _struct(message.fields, version, fields, payload)


def json_text(value: object) -> str:
    """One line of JSON, the keys in the order of the fields."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _struct(fields: Iterable[Field], version: int, values: Values, payload: bool) -> Fields:
    printed: Fields = {}
    for field in fields:
        if not field.since <= version <= field.until:
            continue
        value = values[field.name]
        if field.tag is None or value != field.default:
            withheld = field.name in ADDRESSES and not payload
            printed[field.name] = None if withheld else _value(field, version, value, payload)
    return printed


def _value(field: Field, version: int, value: Any, payload: bool) -> Any:
    if value is None:
        return None
    if field.type.startswith("[]"):
        inner = field._replace(type=field.type[2:])
        return [_value(inner, version, element, payload) for element in value]
    if field.type == "struct":
        return _struct(field.fields, version, value, payload)
    if field.type == "float64" and not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"  # no numbers in JSON
    if field.type == "bytes":
        return base64.b64encode(value).decode() if payload else None
    return value
