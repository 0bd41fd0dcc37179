"""Byte strings known by numbers, and which bytes are ASCII, against Python's own dictionaries and strings."""

from __future__ import annotations

import random

import numpy as np

from auditor.connectors.codec.records import FULL, Interner
from auditor.connectors.codec.transaction_log import all_ascii


def placed(texts: list[bytes], gap: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Texts behind one another at odd places: the bytes, starts, sizes; the last one ends with the bytes."""
    data, starts = bytearray(), []
    for text in texts:
        data += b"\xff" * gap
        starts.append(len(data))
        data += text
    return np.frombuffer(data, np.uint8), np.array(starts, np.int64), np.array([len(t) for t in texts], np.int64)


def test_strings_that_differ_in_one_byte_anywhere_have_their_own_numbers() -> None:
    texts = [b""]
    for size in (1, 7, 8, 9, 15, 16, 17, 40):
        same = bytes(range(65, 65 + size))
        texts += [same, *(same[:k] + b"\x80" + same[k + 1 :] for k in range(size))]
    random.Random(3).shuffle(texts)
    numbers: dict[bytes, int] = {}
    expected = [numbers.setdefault(text, len(numbers)) for text in texts * 2]
    found = Interner(1 << 20)
    assert found.codes(*placed(texts * 2, 3)).tolist() == expected
    assert [found.bytes_of(number) for number in range(len(found))] == list(numbers)
    assert found.code(texts[0]) == expected[0]


def test_what_is_known_is_found_when_there_is_no_more_room() -> None:
    found = Interner(20)
    assert found.codes(*placed([b"0123456789", b"abcdefgh", b"more than is left", b"abcdefgh"], 1)).tolist() == [
        0, 1, FULL, 1,
    ]  # fmt: skip


def test_ascii_is_what_python_takes_for_it() -> None:
    rng = random.Random(5)
    for size in range(40):
        plain = bytes(rng.randrange(0x80) for _ in range(size))
        for text in (plain, *(plain[:k] + bytes([rng.randrange(0x80, 0x100)]) + plain[k + 1 :] for k in range(size))):
            data, starts, sizes = placed([text], 5)
            assert all_ascii(data, starts[0], sizes[0]) == text.isascii()
