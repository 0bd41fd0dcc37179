"""xxHash32 of LZ4 frame headers and blocks (``KafkaLZ4BlockInputStream``), for use from Python and inside kernels."""

from __future__ import annotations

import numpy as np

from auditor.base.compiled import kernel

P1 = np.uint32(2654435761)
P2 = np.uint32(2246822519)
P3 = np.uint32(3266489917)
P4 = np.uint32(668265263)
P5 = np.uint32(374761393)


@kernel
def _rotate(value: np.uint32, bits: int) -> np.uint32:
    return np.uint32((value << np.uint32(bits)) | (value >> np.uint32(32 - bits)))


@kernel
def _word(buf: np.ndarray, at: int) -> np.uint32:
    low = np.uint32(buf[at]) | np.uint32(buf[at + 1]) << np.uint32(8)
    return np.uint32(low | np.uint32(buf[at + 2]) << np.uint32(16) | np.uint32(buf[at + 3]) << np.uint32(24))


@kernel
def _lane(state: np.uint32, word: np.uint32) -> np.uint32:
    return np.uint32(_rotate(np.uint32(state + np.uint32(word * P2)), 13) * P1)


@kernel
def xxh32(buf: np.ndarray, start: int, end: int) -> np.uint32:
    """XXH32 with seed 0 of ``buf[start:end]``, a uint8 array. The caller proves 0 <= start <= end <= size."""
    at = start
    state = P5
    if end - start >= 16:
        a, b, c, d = np.uint32(P1 + P2), P2, np.uint32(0), np.uint32(np.uint32(0) - P1)
        while at + 16 <= end:
            a, b = _lane(a, _word(buf, at)), _lane(b, _word(buf, at + 4))
            c, d = _lane(c, _word(buf, at + 8)), _lane(d, _word(buf, at + 12))
            at += 16
        state = np.uint32(np.uint32(_rotate(a, 1) + _rotate(b, 7)) + np.uint32(_rotate(c, 12) + _rotate(d, 18)))
    state = np.uint32(state + np.uint32(end - start))
    while at + 4 <= end:
        state = np.uint32(_rotate(np.uint32(state + np.uint32(_word(buf, at) * P3)), 17) * P4)
        at += 4
    while at < end:
        state = np.uint32(_rotate(np.uint32(state + np.uint32(np.uint32(buf[at]) * P5)), 11) * P1)
        at += 1
    state = np.uint32((state ^ (state >> np.uint32(15))) * P2)
    state = np.uint32((state ^ (state >> np.uint32(13))) * P3)
    return np.uint32(state ^ (state >> np.uint32(16)))
