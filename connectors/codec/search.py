"""The search for the next sound batch in bytes of which nobody knows where a batch begins.

A place is taken for a batch's when offset, length and magic are possible and the checksum is right. The checksum covers
neither offset nor length, and a record's value may hold a whole batch of another log (backups and bridges write such),
so two more things are asked: offsets as this place of this segment can have them, and no length of a key or value right
before it that ends where it, or a row of batches that it begins, ends.
"""

from __future__ import annotations

import numpy as np

from auditor.base.compiled import kernel
from auditor.connectors.codec.batch import HEADER, MIN_SIZES, OVERHEAD, PREFIX, is_sound
from auditor.connectors.codec.primitives import be32, be64

# How a search ended.
MORE = 0  # no place in this buffer; at the index given more bytes are needed
FOUND = 1
EXHAUSTED = 2  # the bytes that may be read for places that turn out to be none are used up
LONGEST = 4 << 20  # key or value in bytes that is looked through for being a row of batches
LEAD = 5  # bytes before a place that are looked at: the longest length of a key or value


@kernel
def _embedded(buf: np.ndarray, at: int, end: int, first: int) -> int:
    """The bytes of a key or value that begins at ``at`` with a batch of ``first`` bytes and ends with one, else 0.

    Negative where the buffer ends too early to say: so many bytes from ``at`` on are needed.
    """
    length = np.int64(0)
    for back in range(1, LEAD + 1):
        if at - back < 0 or (buf[at - back] > 127) != (back > 1):
            return 0
        length = (length << 7) | np.int64(buf[at - back] & 127)  # its last byte holds the highest bits
        stated = (length >> 1) ^ -(length & 1)
        if stated > LONGEST:
            return 0
        run = first
        while run + PREFIX <= stated:
            if at + run + PREFIX > end:
                return -int(stated)
            size = be32(buf, at + run + 8)
            if size < MIN_SIZES[0] or buf[at + run + 16] > 2:
                break
            run += size + OVERHEAD
        if run == stated:
            return int(stated)
    return 0


@kernel
def _fits(buf: np.ndarray, at: int, end: int, magic: int, above: int, below: int) -> bool:
    """Whether the offsets that are stated at ``at``, as far as the buffer shows them, lie between two others."""
    offset = be64(buf, at)
    if offset <= above or offset >= below:
        return False
    delta = be32(buf, at + 23) if magic == 2 and end - at >= HEADER else 0
    return delta >= 0 and offset + delta < below


@kernel
def find_batch(
    buf: np.ndarray, at: int, stop: int, end: int, behind: int, limit: int, above: int, below: int, work: int
) -> tuple[int, int, int, int]:
    """The first sound batch that begins in ``buf[at:stop]``: how it ended, the index reached, bytes needed from there,
    and what is left of ``work``.

    ``buf[:end]`` is there, the file ends at index ``behind``. ``limit`` is the largest batch in bytes; the offset lies
    between ``above`` and ``below``. ``work``: bytes that may be read for checksums and for places at the buffer's end.
    Cost: one pass over the bytes, and ``work``.
    """
    while at < stop:
        if end - at < PREFIX:
            return MORE, at, PREFIX, work
        magic = np.int64(buf[at + 16])
        if magic > 2:
            at += 1
            continue
        total = be32(buf, at + 8) + OVERHEAD
        if total < MIN_SIZES[magic] + OVERHEAD or total > min(limit, behind - at):
            at += 1
            continue
        fits = _fits(buf, at, end, magic, above, below)
        inside = _embedded(buf, at, end, total)
        if inside < 0 and -inside > behind - at:
            inside = 0
        if not fits and inside == 0:
            at += 1
            continue
        need = max(total, HEADER if magic == 2 else total, -inside)
        work -= need
        if work < 0:
            return EXHAUSTED, at, 0, work
        if need > end - at:
            return MORE, at, need, work
        if not is_sound(buf, at, total, magic):
            at += 1
        elif inside == 0:
            return FOUND, at, total, work
        else:
            at += inside
    return MORE, at, 0, work
