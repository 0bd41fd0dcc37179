"""The checksums against other libraries, on the processor's instructions and on the tables."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from kafka.record.util import calc_crc32c

from auditor.connectors.codec import primitives as checksums

BYTES = np.random.default_rng(5).integers(0, 256, 40_000, dtype=np.uint8)
# Around the lengths where streams begin, are full, and leave words and bytes over.
LENGTHS = [*range(120), 379, 1000, 3 * 8 * 480 - 1, 3 * 8 * 480, 3 * 8 * 480 + 9, 2 * 3 * 8 * 480 + 47, 39_000]


def test_crc32c_of_the_rfc() -> None:
    """RFC 3720, B.4."""
    counting = np.arange(32, dtype=np.uint8)
    assert checksums.crc32c(np.zeros(32, np.uint8), 0, 32) == 0x8A9136AA
    assert checksums.crc32c(np.full(32, 255, np.uint8), 0, 32) == 0x62A8AB43
    assert checksums.crc32c(counting, 0, 32) == 0x46DD794E
    assert checksums.crc32c(counting[::-1].copy(), 0, 32) == 0x113FDB5C


@pytest.mark.parametrize("start", [0, 1, 7, 13])
def test_crc32c_equals_kafka_python(start: int) -> None:
    for length in LENGTHS:
        expected = calc_crc32c(BYTES[start : start + length].tobytes())
        assert checksums.crc32c(BYTES, start, start + length) == expected, length


def test_crc32_equals_zlib() -> None:
    for length in LENGTHS:
        assert checksums.crc32(BYTES, 3, 3 + length) == zlib.crc32(BYTES[3 : 3 + length]), length
