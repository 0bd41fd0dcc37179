"""Our messages encoded by kafka-python: its encoder makes the bytes that our decoder must read."""

from __future__ import annotations

import base64
import functools
import uuid
from typing import Any

from hypothesis import strategies as st
from kafka.protocol.schemas.fields.base import BaseField
from kafka.protocol.schemas.fields.struct import StructField

from auditor.connectors.codec.structs import Field, Message, uuid_text

BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
NO_DEFAULT = -(1 << 70)  # no field can have it, so kafka-python leaves no value out


@functools.cache
def kafka_python(message: Message) -> StructField:
    """The message as kafka-python's schema."""
    return StructField(
        {
            "type": "data",
            "name": message.name,
            "validVersions": f"0-{message.last_version}",
            "fields": [_json(field) for field in message.fields],
        }
    )


def encode(message: Message, version: int, values: dict[str, Any]) -> bytes:
    """The bytes kafka-python writes for values that are named and shaped as ours."""
    if not message.fields:  # which kafka-python cannot describe
        return b"\0"
    flexible = version >= message.flexible
    item = _item(message.fields, values)
    encoded: bytes = kafka_python(message).encode(item, version=version, compact=flexible, tagged=flexible)
    return encoded


def values(message: Message, version: int) -> st.SearchStrategy[dict[str, Any]]:
    """Any values of a message in a version, as our decoder should give them."""
    return _struct(message.fields, version)


def _json(field: Field) -> dict[str, Any]:
    json: dict[str, Any] = {"name": field.name, "type": field.type, "versions": f"{field.since}-{field.until}"}
    if field.fields:
        json["fields"] = [_json(inner) for inner in field.fields]
        json["type"] = field.type.replace("struct", "Struct")
    if field.tag is not None:
        json |= {"tag": field.tag, "taggedVersions": json["versions"], "default": _default(field)}
    return json


def _default(field: Field) -> str:
    if field.type in BITS:
        return str(NO_DEFAULT if field.default is None else field.default)
    if field.type == "bool":
        return str(bool(field.default)).lower()
    return "null" if field.type != "uuid" else ""


def _item(fields: tuple[Field, ...], values: dict[str, Any]) -> dict[str, Any]:
    """Without tags that have our default, under kafka-python's names."""
    return {
        BaseField.underscore_name(field.name): _value(field, values[field.name])
        for field in fields
        if field.name in values and (field.tag is None or values[field.name] != field.default)
    }


def _value(field: Field, value: Any) -> Any:
    if value is None:
        return None
    if field.type.startswith("[]"):
        inner = field._replace(type=field.type[2:])
        return [_value(inner, element) for element in value]
    if field.type == "struct":
        return _item(field.fields, value)
    return _uuid(value) if field.type == "uuid" else value


def _uuid(text: str) -> uuid.UUID:
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def _struct(fields: tuple[Field, ...], version: int) -> st.SearchStrategy[dict[str, Any]]:
    wanted = {}
    for field in fields:
        if field.since <= version <= field.until:
            wanted[field.name] = _field(field, version)
        elif field.tag is not None:
            wanted[field.name] = st.just(field.default)
    return st.fixed_dictionaries(wanted)


def _field(field: Field, version: int) -> st.SearchStrategy[Any]:
    if field.type.startswith("[]"):
        made: st.SearchStrategy[Any] = st.lists(_simple(field._replace(type=field.type[2:]), version), max_size=3)
    else:
        made = _simple(field, version)
    if field.tag is not None:
        made |= st.just(field.default)
    elif version >= field.nullable:
        made |= st.none()
    return made


def _simple(field: Field, version: int) -> st.SearchStrategy[Any]:
    match field.type:
        case "struct":
            return _struct(field.fields, version)
        case "string":
            return st.text(st.characters(codec="utf-8"), max_size=150)
        case "bytes":
            return st.binary(max_size=150)
        case "bool":
            return st.booleans()
        case "uint16":
            return st.integers(0, 0xFFFF)
        case "uuid":
            return st.binary(min_size=16, max_size=16).map(uuid_text)
    return st.integers(-(1 << BITS[field.type] - 1), (1 << BITS[field.type] - 1) - 1)
