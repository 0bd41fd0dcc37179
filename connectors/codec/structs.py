"""Kafka's message structs as data: read from bytes, printed as Kafka's tools print them."""

from __future__ import annotations

import base64
import functools
import json
import math
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from auditor.base.at_rest import Fields, Values

# A :class:`Message` states fields, versions and tags in the terms of Kafka's own message definitions (KIP-482 for the
# flexible, compact form). Bytes are untrusted: every length is checked before it is used, unreadable values are a
# :class:`Problem`.
# Why this is not kafka-python's codec: docs/decisions/002-struct-codec.md.


MAX_STRING_BYTES = 0x7FFF  # Kafka's own limit, also in the compact form
MAX_ELEMENTS = 250_000  # array elements in one message, nested ones too: an element takes more memory than its byte
LAST_VERSION = 0x7FFF
FRAME_VERSION = 1


class Problem(NamedTuple):
    """Why a value could not be read: a code of ``errors.REASONS``, the byte in the value, and the facts in words."""

    reason: str
    position: int
    detail: str


class Field(NamedTuple):
    """A field: ``type`` is a fixed type, ``string``, ``bytes``, ``uuid``, ``struct`` or one of them after ``[]``.

    ``fields`` are those of a struct. It exists from version ``since`` to ``until``; with a ``tag`` it is optional and
    has a ``default``. Null is allowed from version ``nullable`` on.
    """

    name: str
    type: str
    fields: tuple[Field, ...] = ()
    since: int = 0
    until: int = LAST_VERSION
    nullable: int = LAST_VERSION
    tag: int | None = None
    default: Any = None


def plain_fields(text: str) -> tuple[Field, ...]:
    """Fields with only a name and a type, such as ``"host string, port uint16"``."""
    return tuple(Field(name, kind) for name, kind in map(str.split, text.split(",")))


@dataclass(frozen=True, eq=False)  # compared by identity, so that the cache of readers is fast
class Message:
    """A message: its fields in byte order, its last version and the first flexible one."""

    name: str
    fields: tuple[Field, ...]
    last_version: int = 0
    flexible: int = 0


class FieldSpan(NamedTuple):
    """The place of a field of text or bytes in a value, or of an unknown tagged one, which has no name."""

    name: str
    start: int
    size: int


class Cursor:
    """A position in a value that never passes its end. ``spans``: places of texts and bytes, if requested."""

    __slots__ = ("data", "elements", "end", "position", "spans")

    def __init__(self, data: bytes, position: int) -> None:
        self.data = data
        self.position = position
        self.end = len(data)
        self.elements = 0
        self.spans: list[FieldSpan] | None = None

    def advance(self, size: int) -> int:
        """Skip ``size`` bytes; return the position before them."""
        start = self.position
        if size > self.end - start:
            raise _Malformed("truncated", start, f"{size} bytes wanted, {self.end - start} left")
        self.position = start + size
        return start


class _Malformed(Exception):
    # Carries a problem from the depth of a struct to decode(), which returns it.
    def __init__(self, reason: str, position: int, detail: str) -> None:
        super().__init__(detail)
        self.problem = Problem(reason, position, detail)


Reader = Callable[[Cursor], Any]


def decode(message: Message, version: int, data: bytes, position: int = 0) -> tuple[Fields, int] | Problem:
    """The fields by name (tags with their defaults) and the position after the last one, or why not.

    Uuids are their 22-character text; bytes of a string that are not UTF-8 become U+FFFD as in Java. Cost: one pass.
    Reasons: ``bad_version``, ``truncated``, ``bad_size``, ``bad_value`` (null where it is not allowed), ``limit``.
    """
    if not 0 <= version <= message.last_version:
        return unknown_version(message, version, position)
    cursor = Cursor(data, position)
    try:
        return _message_reader(message, version)(cursor), cursor.position
    except _Malformed as malformed:
        problem = malformed.problem
        return problem._replace(detail=f"{message.name} v{version}: {problem.detail}")


def spans_of(message: Message, version: int, data: bytes, position: int = 0) -> tuple[list[FieldSpan], int] | Problem:
    """The places of texts and bytes in a value, and the end of its fields; errors as for :func:`decode`."""
    if not 0 <= version <= message.last_version:
        return unknown_version(message, version, position)
    cursor = Cursor(data, position)
    cursor.spans = []
    try:
        _message_reader(message, version)(cursor)
    except _Malformed as malformed:
        return malformed.problem
    return cursor.spans, cursor.position


def unknown_version(message: Message, version: int, position: int) -> Problem:
    """A version of a message that no known release writes."""
    return Problem("bad_version", position, f"{message.name} version {version}, known: 0 to {message.last_version}")


def decode_versioned(message: Message, data: bytes) -> tuple[int, Fields, int] | Problem:
    """Version, fields and end of a value that starts with its int16 version; errors as for :func:`decode`."""
    version = read_int16(data)
    if isinstance(version, Problem):
        return version
    decoded = decode(message, version, data, 2)
    return decoded if isinstance(decoded, Problem) else (version, *decoded)


def decode_either(message: Message, preview: Message | None, data: bytes) -> tuple[Message, int, Fields, int] | Problem:
    """As :func:`decode_versioned`, with the message in front: ``preview`` if only that fits every byte.

    For messages that changed under the same version number before they were finished.
    """
    decoded = decode_versioned(message, data)
    if preview is not None and (isinstance(decoded, Problem) or decoded[2] != len(data)):
        earlier = decode_versioned(preview, data)
        if not isinstance(earlier, Problem) and earlier[2] == len(data):
            return preview, *earlier
    return decoded if isinstance(decoded, Problem) else (message, *decoded)


def read_frame(value: bytes) -> tuple[int, int, int] | Problem:
    """Api key, version and start of the body in a value of KRaft's or the remote storage's metadata.

    Source: Kafka's AbstractApiMessageSerde. Reasons: ``bad_version`` (of the frame), ``truncated``, ``bad_size``.
    """
    header = []
    position = 0
    for _ in range(3):
        read = read_uvarint(value, position)
        if isinstance(read, Problem):
            return read
        number, position = read
        header.append(number)
    frame_version, api_key, version = header
    if frame_version != FRAME_VERSION:
        return Problem("bad_version", 0, f"frame version {frame_version}, known: {FRAME_VERSION}")
    return api_key, version, position


def read_uvarint(data: bytes, position: int) -> tuple[int, int] | Problem:
    """An unsigned varint and the position after it, or why not."""
    cursor = Cursor(data, position)
    try:
        return _uvarint(cursor), cursor.position
    except _Malformed as malformed:
        return malformed.problem


def read_int16(data: bytes) -> int | Problem:
    """The type or version at the start of a key or value."""
    if len(data) < 2:
        return Problem("truncated", 0, f"{len(data)} of the 2 bytes of a type or version")
    return int.from_bytes(data[:2], "big", signed=True)


def left_over(data: bytes, end: int) -> Problem | None:
    """A ``bad_length`` problem if bytes remain after ``end``."""
    if end == len(data):
        return None
    return Problem("bad_length", end, f"{len(data) - end} bytes after the last field")


def uuid_text(raw: bytes) -> str:
    """The text form of Kafka's Uuid: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(raw)[:22].decode()


@functools.cache
def _message_reader(message: Message, version: int) -> Reader:
    return _read_struct(message.fields, version, version >= message.flexible)


def _read_struct(fields: tuple[Field, ...], version: int, flexible: bool) -> Reader:
    present = [field for field in fields if field.since <= version <= field.until]
    steps = [(field.name, _field(field, version, flexible)) for field in present if field.tag is None]
    tags = {f.tag: (f.name, _field(f, version, flexible)) for f in present if f.tag is not None}
    defaults = {field.name: field.default for field in fields if field.tag is not None}

    def read(cursor: Cursor) -> Fields:
        values = dict(defaults)
        for name, step in steps:
            values[name] = step(cursor)
        if flexible:
            _read_tags(cursor, tags, values)
        return values

    return read


def _read_tags(cursor: Cursor, tags: Mapping[int, tuple[str, Reader]], values: Fields) -> None:
    # Unknown tags are skipped; a known one must fill its stated length.
    for _ in range(_uvarint(cursor)):
        tag = _uvarint(cursor)
        size = _uvarint(cursor)
        start = cursor.advance(size)
        if tag not in tags:
            if cursor.spans is not None:
                cursor.spans.append(FieldSpan("", start, size))
            continue
        name, read = tags[tag]
        outer_end, cursor.end, cursor.position = cursor.end, start + size, start
        values[name] = read(cursor)
        if cursor.position != cursor.end:
            raise _Malformed("bad_size", start, f"tag {tag} of {size} bytes ends after {cursor.position - start}")
        cursor.end = outer_end


def _field(field: Field, version: int, flexible: bool) -> Reader:
    kind, nullable = field.type, version >= field.nullable
    if kind == "struct" and nullable:
        return _nullable_struct(_read_struct(field.fields, version, flexible), tagged=field.tag is not None)
    if kind.startswith("[]"):
        element = _element(kind[2:], field.fields, version, flexible)
        return _array(field.name, element, nullable, flexible)
    if kind in ("string", "bytes"):
        return _text_or_bytes(field.name, kind, nullable, flexible)
    return _element(kind, field.fields, version, flexible)


def _element(kind: str, fields: tuple[Field, ...], version: int, flexible: bool) -> Reader:
    if kind == "struct":
        return _read_struct(fields, version, flexible)
    if kind in ("string", "bytes"):
        return _text_or_bytes("element", kind, False, flexible)
    return _SIMPLE[kind]


def _nullable_struct(struct: Reader, tagged: bool) -> Reader:
    # It starts with a byte that is negative for null, in a tag with a varint that is 0 for null.
    marker = _SIMPLE["int8"]

    def read(cursor: Cursor) -> Fields | None:
        is_null = _uvarint(cursor) == 0 if tagged else marker(cursor) < 0
        return None if is_null else struct(cursor)

    return read


def _array(name: str, element: Reader, nullable: bool, flexible: bool) -> Reader:
    length = _uvarint if flexible else _SIMPLE["int32"]

    def read(cursor: Cursor) -> list[Any] | None:
        start = cursor.position
        count = length(cursor) - flexible
        if count < 0:
            _allow_null(name, nullable, start)
            return None
        if count > cursor.end - cursor.position:  # every element takes at least one byte
            raise _Malformed("bad_size", start, f"{name}: {count} elements in {cursor.end - cursor.position} bytes")
        cursor.elements += count
        if cursor.elements > MAX_ELEMENTS:
            raise _Malformed("limit", start, f"{name}: more than {MAX_ELEMENTS} elements")
        return [element(cursor) for _ in range(count)]

    return read


def _text_or_bytes(name: str, kind: str, nullable: bool, flexible: bool) -> Reader:
    is_text = kind == "string"
    length = _uvarint if flexible else _SIMPLE["int16" if is_text else "int32"]

    def read(cursor: Cursor) -> str | bytes | None:
        start = cursor.position
        size = length(cursor) - flexible
        if size < 0:
            _allow_null(name, nullable, start)
            return None
        if is_text and size > MAX_STRING_BYTES:
            raise _Malformed("bad_size", start, f"{name}: a string of {size} bytes")
        begin = cursor.advance(size)
        if cursor.spans is not None:
            cursor.spans.append(FieldSpan(name, begin, size))
        raw = cursor.data[begin : begin + size]
        return raw.decode("utf-8", "replace") if is_text else raw

    return read


def _allow_null(name: str, nullable: bool, position: int) -> None:
    if not nullable:
        raise _Malformed("bad_value", position, f"{name} is null")


def _fixed(code: str) -> Reader:
    unpack, size = struct.Struct(">" + code).unpack_from, struct.calcsize(">" + code)

    def read(cursor: Cursor) -> Any:
        return unpack(cursor.data, cursor.advance(size))[0]

    return read


def _uuid(cursor: Cursor) -> str:
    start = cursor.advance(16)
    return uuid_text(cursor.data[start : start + 16])


def _uvarint(cursor: Cursor) -> int:
    start, value = cursor.position, 0
    for shift in range(0, 35, 7):
        byte = cursor.data[cursor.advance(1)]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0x7FFFFFFF:
                break
            return value
    raise _Malformed("bad_size", start, "a varint above 2^31 - 1")


_SIMPLE: dict[str, Reader] = {
    "int8": _fixed("b"),
    "int16": _fixed("h"),
    "uint16": _fixed("H"),
    "int32": _fixed("i"),
    "int64": _fixed("q"),
    "float64": _fixed("d"),
    "bool": _fixed("?"),
    "uuid": _uuid,
}


# A struct's fields as Kafka's own tools print them: JSON of the generated JsonConverter classes.
#
# Uuids are text and bytes base64; a tagged field with its default is omitted. Bytes, which clients choose, and
# addresses are null unless requested.


ADDRESSES = frozenset({"clientHost", "userEndpoint", "endPoints"})


def as_printed(message: Message, version: int, fields: Values, *, payload: bool = False) -> Fields:
    """Decoded ``fields`` of a message as Kafka's tools print them; ``payload``: bytes and addresses too."""
    return _struct_as_json(message.fields, version, fields, payload)


def json_text(value: object) -> str:
    """One line of JSON, the keys in the order of the fields."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _struct_as_json(fields: Iterable[Field], version: int, values: Values, payload: bool) -> Fields:
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
        return _struct_as_json(field.fields, version, value, payload)
    if field.type == "float64" and not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"  # no numbers in JSON
    if field.type == "bytes":
        return base64.b64encode(value).decode() if payload else None
    return value
