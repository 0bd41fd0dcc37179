"""Rounds of SipHash, an authentication code for short messages (Aumasson and Bernstein, 2012).

SipHash-2-4 takes two rounds per word of 8 bytes and four at the end, SipHash-1-3 one and three.
"""

from __future__ import annotations

import numpy as np

from auditor.base.compiled import kernel

U64 = np.uint64
State = tuple[U64, U64, U64, U64]
_0, _1, _2, _3 = map(U64, (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573))
_R13, _R16, _R17, _R21, _R32, _R43, _R47, _R48, _R51 = map(U64, (13, 16, 17, 21, 32, 43, 47, 48, 51))
_END = U64(0xFF)


@kernel
def begun(key: np.ndarray) -> State:
    """Return the state under a key of two words (uint64)."""
    return key[0] ^ _0, key[1] ^ _1, key[0] ^ _2, key[1] ^ _3


@kernel
def _round(v: State) -> State:
    v0, v1, v2, v3 = v
    v0, v2 = v0 + v1, v2 + v3
    v1, v3 = ((v1 << _R13) | (v1 >> _R51)) ^ v0, ((v3 << _R16) | (v3 >> _R48)) ^ v2
    v0, v2 = ((v0 << _R32) | (v0 >> _R32)) + v3, v2 + v1
    v1, v3 = ((v1 << _R17) | (v1 >> _R47)) ^ v2, ((v3 << _R21) | (v3 >> _R43)) ^ v0
    return v0, v1, (v2 << _R32) | (v2 >> _R32), v3


@kernel
def absorb(v: State, word: U64, rounds: int) -> State:
    """Return the state behind a further word of the message; the last one has its length in the highest byte."""
    v0, v1, v2, v3 = v[0], v[1], v[2], v[3] ^ word
    for _ in range(rounds):
        v0, v1, v2, v3 = _round((v0, v1, v2, v3))
    return v0 ^ word, v1, v2, v3


@kernel
def ended(v: State, rounds: int) -> U64:
    """Return the code of a message whose words were all absorbed."""
    v0, v1, v2, v3 = v[0], v[1], v[2] ^ _END, v[3]
    for _ in range(rounds):
        v0, v1, v2, v3 = _round((v0, v1, v2, v3))
    return v0 ^ v1 ^ v2 ^ v3
