"""Text files of a broker as lines with their positions, and Java's ``.properties`` syntax."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from auditor.base.errors import DEFAULT_LIMITS, DecodeError

_NATURAL_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)?")
_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Line(NamedTuple):
    """A line without its end; ``position`` and ``length`` are bytes, length with the line's end."""

    position: int
    length: int
    text: str


def text_lines(data: bytes, file: str) -> tuple[Iterator[Line], list[DecodeError]]:
    """The lines of a UTF-8 text one by one, split as Java does. Error: ``not_text`` (then the lines up to there)."""
    errors = []
    try:
        text = data.decode()
        bad = text.find("\0")
    except UnicodeDecodeError as error:
        text, bad = data[: error.start].decode(), error.start
    if bad >= 0:
        start = max(text.rfind("\n", 0, bad), text.rfind("\r", 0, bad)) + 1
        text = text[:start]
        position = len(text.encode())
        errors.append(DecodeError(file, position, len(data) - position, "not_text", "bytes that are no UTF-8 text"))
    return _split(text, "utf-8"), errors


def too_many_bad(file: str, line: Line, size: int) -> DecodeError:
    """The error for what comes behind the last bad line that is named."""
    end = line.position + line.length
    return DecodeError(file, end, size - end, "bad_line", "not read: too many bad lines come before it")


def decode_properties(data: bytes, file: str = "") -> tuple[dict[str, str], list[DecodeError]]:
    """Keys and values of a Java properties file (``server.properties``, ``meta.properties``); the last of a key wins.

    Errors: ``not_text`` for zero bytes (a file lost in a crash), ``bad_line`` for a broken ``\\u`` escape. Cost: one
    pass. Source: java.util.Properties.load, which reads ISO 8859-1.
    """
    zero = data.find(b"\0")
    if zero >= 0:
        return {}, [DecodeError(file, 0, len(data), "not_text", f"a zero byte at {zero}")]
    found: dict[str, str] = {}
    errors = []
    for line in _logical_lines(data.decode("latin-1")):
        raw_key, raw_value = _split_property(line.text)
        key, value = _unescape(raw_key), _unescape(raw_value)
        if key is None or value is None:
            errors.append(DecodeError(file, line.position, line.length, "bad_line", "a broken \\u escape"))
            if len(errors) == DEFAULT_LIMITS.max_bad_lines:
                errors.append(too_many_bad(file, line, len(data)))
                break
        else:
            found[key] = value
    return found, errors


def only_properties(data: bytes, keeps: Callable[[str], bool]) -> bytes:
    """A properties file with blanks for all but the lines of the keys that ``keeps`` lets through: every line that is
    left, and every error, is where it was."""
    zero = data.find(b"\0")
    if zero >= 0:
        return b" " * zero
    kept = bytearray(b" " * len(data))
    for line in _logical_lines(data.decode("latin-1")):
        raw_key, raw_value = _split_property(line.text)
        key, here = _unescape(raw_key), slice(line.position, line.position + line.length)
        if key is None or _unescape(raw_value) is None:
            kept[here] = b"\\u".ljust(line.length)[: line.length]  # as broken as it was
        elif keeps(key):
            kept[here] = data[here]
        if data[here].endswith((b"\n", b"\r")):
            kept[here.stop - 1] = ord("\n")
    return bytes(kept)


def _split(text: str, encoding: str) -> Iterator[Line]:
    """Natural lines with their place in the bytes."""
    position = 0
    for match in _NATURAL_LINE.finditer(text):
        length = len(match[0].encode(encoding))
        if length:
            yield Line(position, length, match[0].rstrip("\r\n"))
        position += length


def _logical_lines(text: str) -> Iterator[Line]:
    """Lines that are neither blank nor comments, continued where they end in an odd number of backslashes."""
    start = 0
    parts: list[str] = []
    for line in _split(text, "latin-1"):
        stripped = line.text.lstrip(_BLANK)
        if not parts:
            start = line.position
            if not stripped or stripped[0] in "#!":
                continue
        if (len(stripped) - len(stripped.rstrip("\\"))) % 2:
            parts.append(stripped[:-1])
            continue
        yield Line(start, line.position + line.length - start, "".join([*parts, stripped]))
        parts = []
    if parts:
        yield Line(start, len(text) - start, "".join(parts))


def _split_property(line: str) -> tuple[str, str]:
    """Key and value as written: the key ends at the first unescaped blank, ``=`` or ``:``."""
    end = 0
    while end < len(line) and line[end] not in _BLANK + "=:":
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return line[:end], rest


def _unescape(text: str) -> str | None:
    """The text behind its escapes, None for a broken one."""
    if "\\" not in text:
        return text
    out = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char == "\\" and position < len(text):
            char = text[position]
            position += 1
            if char == "u":
                digits = text[position : position + 4]
                if not re.fullmatch("[0-9a-fA-F]{4}", digits):
                    return None
                char = chr(int(digits, 16))
                position += 4
            else:
                char = _ESCAPES.get(char, char)
        out.append(char)
    # Java's chars are UTF-16 units: join pairs, and let a lone half not break every later writer of UTF-8.
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
