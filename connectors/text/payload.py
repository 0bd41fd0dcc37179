"""Where a record line's key and payload end: they are printed raw, newlines and lines like ours in them too."""

from __future__ import annotations

from typing import NamedTuple

KEY = b" key: "
PAYLOAD = b" payload: "
_ID_PREFIXES = (
    b"transaction_metadata::transactionalId=",
    b"transactionalId=",
    b"group_metadata::group=",
    b"metadata::",
)
_ID_OVERHEAD = 4  # a stored key holds two bytes of type and two of length besides the id


class Shown(NamedTuple):
    """Key and payload as printed, None where not shown; ``end`` is where the line ends.

    ``exact``: the printed text has the stored sizes, or ends where they say, so it ends here for sure.
    """

    key: bytes | None
    value: bytes | None
    end: int
    exact: bool


def line_end(text: bytes, at: int) -> int:
    """The index of the newline that ends the line at ``at``, or the length of the text."""
    end = text.find(b"\n", at)
    return len(text) if end < 0 else end


def take(text: bytes, at: int, key_size: int, value_size: int) -> Shown | None:
    """Key and payload from ``at``, where a record line's known part ends; None if something else stands there."""
    if at == len(text) or text[at : at + 1] == b"\n":
        return Shown(None, None, at, True)
    if not text.startswith((KEY, PAYLOAD), at):
        return None
    return _by_sizes(text, at, key_size, value_size) or _decoded_id(text, at, key_size) or _by_line(text, at)


def _by_sizes(text: bytes, at: int, key_size: int, value_size: int) -> Shown | None:
    """Raw print: key and payload have the stored sizes (as they have unless they are no UTF-8)."""
    key = value = None
    if text.startswith(KEY, at) and key_size >= 0:
        key = text[at + len(KEY) : at + len(KEY) + key_size]
        at += len(KEY) + key_size
    if text.startswith(PAYLOAD, at) and value_size >= 0:
        value = text[at + len(PAYLOAD) : at + len(PAYLOAD) + value_size]
        at += len(PAYLOAD) + value_size
    elif value_size >= 0:
        return None
    whole = at == len(text) or (at < len(text) and text[at] == ord("\n"))
    return Shown(key, value, at, True) if whole else None


def _decoded_id(text: bytes, at: int, key_size: int) -> Shown | None:
    """A decoder's print of a key that is nothing but an id: its length follows from the stored key's."""
    start = at + len(KEY)
    prefix = next((item for item in _ID_PREFIXES if text.startswith(KEY + item, at)), None)
    if prefix is None:
        return None
    end = start + len(prefix) + key_size - _ID_OVERHEAD
    if end < start or not text.startswith(PAYLOAD, end):
        return None
    stop = line_end(text, end + len(PAYLOAD))
    return Shown(text[start:end], text[end + len(PAYLOAD) : stop], stop, True)


def _by_line(text: bytes, at: int) -> Shown:
    """Everything up to the line's end, cut at the last place where a payload may begin."""
    stop = line_end(text, at)
    key, found, value = text[at:stop].partition(PAYLOAD)
    return Shown(key[len(KEY) :] if key.startswith(KEY) else None, value if found else None, stop, False)
