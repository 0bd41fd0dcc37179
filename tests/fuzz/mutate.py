"""Changing a file as an accident or an attacker would: by the format's own fields, then by any bytes at all."""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Callable

import numpy as np

from auditor.connectors.codec.primitives import crc32, crc32c
from tests.segments import compress, varint

BATCH = tuple(
    zip((0, 8, 12, 16, 17, 21, 23, 27, 35, 43, 51, 53, 57), (8, 4, 4, 1, 4, 2, 4, 8, 8, 8, 2, 4, 4), strict=True)
)
MESSAGE = tuple(zip((0, 8, 12, 16, 17, 18, 18, 22, 26, 30), (8, 4, 4, 1, 1, 8, 4, 4, 4, 4), strict=True))
# Where the fields of a file begin, how wide they are: those of its head, and those of an entry with its size.
HEADS = {"snapshot": ((0, 2), (2, 4), (6, 4)), "txnindex": (), "index": (), "timeindex": ()}
ENTRIES = {
    "snapshot": (10, 46, ((0, 8), (8, 2), (10, 4), (14, 8), (22, 4), (26, 8), (34, 4), (38, 8))),
    "txnindex": (0, 34, ((0, 2), (2, 8), (10, 8), (18, 8), (26, 8))),
    "index": (0, 8, ((0, 4), (4, 4))),
    "timeindex": (0, 12, ((0, 8), (8, 4))),
}
SEALED_FROM = 61  # bytes of a batch, below which it has no place for a checksum
TEXTS = ("dump", "console")
NUMBER = re.compile(rb"-?\d+")
DEEP, LONG = 300, 400  # brackets that nest, digits of a number
WORDS = (
    *(
        b"",
        b"null",
        b"-1",
        b"NaN",
        b"1e999",
        b"9" * LONG,
        b"\xff\xfe",
        b"\x00",
        b"{" * DEEP,
        b"[" * DEEP,
        b'"',
        b"true",
    ),
    *(b"\\u", b"\xc2\x85", b"-9223372036854775809", b"9223372036854775808", b"2147483648", "١٢".encode()),
)


def interesting(random_: random.Random, width: int) -> int:
    """A number at the edge of something, or any."""
    bits = 8 * width
    edges = (
        0,
        1,
        2,
        0x7F,
        0x80,
        0xFF,
        (1 << bits - 1) - 1,
        1 << bits - 1,
        (1 << bits) - 1,
        (1 << bits) - 2,
        61,
        49,
        12,
    )
    chosen = random_.choice(edges) if random_.random() < 0.8 else random_.getrandbits(bits)
    return chosen & ((1 << bits) - 1)


def set_field(random_: random.Random, data: bytearray, at: int, width: int) -> None:
    if at + width <= len(data):
        old = int.from_bytes(data[at : at + width], "big")
        new = old + random_.choice((-2, -1, 1, 2)) if random_.random() < 0.3 else interesting(random_, width)
        data[at : at + width] = (new & ((1 << 8 * width) - 1)).to_bytes(width, "big")


def any_bytes(random_: random.Random, data: bytearray) -> None:
    """What happens to bytes of which nothing is known."""
    at, length = random_.randrange(len(data) + 1), random_.randrange(1, 40)
    match random_.randrange(8):
        case 0 | 1:
            if at < len(data):
                data[at] ^= 1 << random_.randrange(8)
        case 2:
            data[at : at + 1] = random_.randbytes(1)
        case 3:
            data[at : at + length] = bytes(len(data[at : at + length]))
        case 4:
            del data[at : at + length]
        case 5:
            data[at:at] = data[at : at + length]
        case 6:
            data[at : at + length] = varint(interesting(random_, 8) - (1 << 63))
        case _:
            del data[at:]


def mutated(kind: str, seeds: list[bytes], seed: int, number: int) -> bytes:
    """Mutant ``number`` of a kind."""
    random_ = random.Random(seed << 40 | number)
    data = bytearray(random_.choice(seeds))
    for _ in range(random_.choice((1, 1, 1, 2, 3, 8))):
        _STRUCTURED.get(kind, any_bytes)(random_, data)
    if random_.random() < 0.1:  # two files in one, as a torn write leaves them
        data[random_.randrange(len(data) + 1) :] = random_.choice(seeds)
    return bytes(data)


def batches(data: bytearray) -> list[tuple[int, int]]:
    """Start and end of what looks like batches."""
    found, at = [], 0
    while at + 26 <= len(data):
        end = at + 12 + struct.unpack_from(">i", data, at + 8)[0]
        if not at + 26 <= end <= len(data):
            break
        found.append((at, end))
        at = end
    return found


def segment(random_: random.Random, data: bytearray) -> None:
    """A field of a batch, a byte of its records, its body under another codec; its checksum mostly right afterwards."""
    found = batches(data)
    if not found or random_.random() < 0.15:
        any_bytes(random_, data)
        return
    start, end = random_.choice(found)
    fields, head = (BATCH, 61) if data[start + 16] > 1 else (MESSAGE, 18)
    one = bytearray(data[start:end])
    match random_.randrange(4):
        case 0 | 1:
            set_field(random_, one, *random_.choice(fields))
        case 2:
            body = one[head:]
            any_bytes(random_, body)
            one[head:] = body
        case _:
            if head == 61 and len(one) >= 61:
                codec = random_.randrange(1, 5)
                body = one[head:]
                any_bytes(random_, body)
                one[22] = one[22] & 0xF8 | codec
                one[head:] = compress(codec, bytes(body))
    if len(one) != end - start and len(one) >= 12 and random_.random() < 0.9:
        struct.pack_into(">i", one, 8, len(one) - 12)
    if len(one) >= SEALED_FROM and random_.random() < 0.8:
        seal(one)
    data[start:end] = one


def seal(one: bytearray) -> None:
    """Give a batch the checksum of what it is now."""
    buffer = np.frombuffer(bytearray(one), np.uint8)
    if one[16] == 2:
        struct.pack_into(">I", one, 17, int(crc32c(buffer, 21, len(one))))
    else:
        struct.pack_into(">I", one, 12, int(crc32(buffer, 16, len(one))))


def entries(kind: str) -> Callable[[random.Random, bytearray], None]:
    """Mutations of a file of entries of one size."""
    first, size, fields = ENTRIES[kind]

    def change(random_: random.Random, data: bytearray) -> None:
        if random_.random() < 0.3 or len(data) < first + size:
            any_bytes(random_, data)
        elif HEADS[kind] and random_.random() < 0.3:
            set_field(random_, data, *random_.choice(HEADS[kind]))
        else:
            at, width = random_.choice(fields)
            set_field(random_, data, first + size * random_.randrange((len(data) - first) // size) + at, width)

    return change


def text(random_: random.Random, data: bytearray) -> None:
    """A number, a line, or any bytes of a text."""
    numbers = list(NUMBER.finditer(data))
    match random_.randrange(4):
        case 0 | 1 if numbers:
            start, end = random_.choice(numbers).span()
            data[start:end] = random_.choice(WORDS)
        case 2:
            lines = data.split(b"\n")
            here, there = random_.randrange(len(lines)), random_.randrange(len(lines))
            lines[here:here] = [lines[there]] * random_.choice((0, 1, 2))
            del lines[there]
            data[:] = b"\n".join(lines)
        case _:
            at = random_.randrange(len(data) + 1)
            data[at : at + random_.randrange(30)] = random_.choice(WORDS)


_STRUCTURED: dict[str, Callable[[random.Random, bytearray], None]] = {
    "segment": segment,
    **{kind: entries(kind) for kind in ENTRIES},
    **dict.fromkeys(TEXTS, text),
}
for _name in ("meta.properties", "partition.metadata", "leader-epoch-checkpoint", "quorum-state",
              "replication-offset-checkpoint", "recovery-point-offset-checkpoint", "log-start-offset-checkpoint",
              "cleaner-offset-checkpoint"):  # fmt: skip
    _STRUCTURED[_name] = text
