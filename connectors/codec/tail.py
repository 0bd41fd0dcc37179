"""The offset after a segment's last record, by batch headers alone: what start-up asks of a replacement segment."""

from __future__ import annotations

import struct
from typing import Any, Protocol

HEADER = 27  # bytes up to and with lastOffsetDelta of magic 2
OVERHEAD = 12  # offset and size, which the size does not count
SMALLEST = 14  # no sound batch has a smaller size field


class Seekable(Protocol):
    """A binary file."""

    def readinto(self, buffer: Any, /) -> int:
        """Fill ``buffer`` as far as one read gives."""

    def seek(self, position: int, whence: int = 0, /) -> int:
        """Go to a byte."""


def end_offset(file: Seekable) -> int:
    """The offset after the last whole batch header in ``file``, 0 if there is none.

    Cost: one short read a batch, so for small numbers of segments only. Bytes that are no batch end the walk.
    """
    header = bytearray(HEADER)
    position = end = 0
    while _filled(file, position, header):
        offset, size, _epoch, magic, _crc, _attributes, delta = struct.unpack(">qiibIhi", header)
        if size < SMALLEST or offset < 0:
            break
        end = max(end, offset + 1 + (max(delta, 0) if magic > 1 else 0))
        position += OVERHEAD + size
    return end


def _filled(file: Seekable, position: int, buffer: bytearray) -> bool:
    """Whether ``buffer`` could be filled from ``position`` on."""
    file.seek(position)
    view = memoryview(buffer)
    got = 0
    while got < len(buffer) and (more := file.readinto(view[got:])):
        got += more
    return got == len(buffer)
