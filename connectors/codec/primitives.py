"""Reading Kafka's primitive types inside compiled kernels.

The loads read without a bounds check, as the kernels prove their indexes beforehand. With ``NUMBA_BOUNDSCHECK=1`` every
load checks.
"""

from __future__ import annotations

import numpy as np

from auditor.base.at_rest import Numba
from auditor.base.compiled import CHECKED, instruction, kernel


def _loader(bits: int, big_endian: bool) -> Numba:
    """An unaligned load of a signed integer from a uint8 array."""

    @instruction
    def load(_context: Numba, buf: Numba, index: Numba) -> Numba:
        from llvmlite import ir
        from numba import types

        result = types.Integer.from_bitwidth(bits, signed=True)

        def codegen(context: Numba, builder: Numba, signature: Numba, args: Numba) -> Numba:
            data = context.make_array(signature.args[0])(context, builder, args[0]).data
            address = builder.gep(data, [args[1]])
            value = builder.load(builder.bitcast(address, ir.IntType(bits).as_pointer()), align=1)
            return builder.bswap(value) if big_endian else value

        return result(buf, types.int64), codegen

    return load


_load_be16 = _loader(16, True)
_load_be32 = _loader(32, True)
_load_be64 = _loader(64, True)
_load_le64 = _loader(64, False)


@kernel
def _check(buf: np.ndarray, index: int, width: int) -> None:
    if index < 0 or index + width > buf.size:
        raise IndexError("a load outside of its buffer")


@kernel
def be16(buf: np.ndarray, index: int) -> np.int64:
    """The int16 at ``index``, widened."""
    if CHECKED:
        _check(buf, index, 2)
    return np.int64(_load_be16(buf, index))


@kernel
def be32(buf: np.ndarray, index: int) -> np.int64:
    """The int32 at ``index``, widened."""
    if CHECKED:
        _check(buf, index, 4)
    return np.int64(_load_be32(buf, index))


@kernel
def be64(buf: np.ndarray, index: int) -> int:
    """The int64 at ``index``."""
    if CHECKED:
        _check(buf, index, 8)
    return _load_be64(buf, index)


@kernel
def le64(buf: np.ndarray, index: int) -> int:
    """The 8 bytes at ``index`` as a little-endian number: what checksums are fed with."""
    if CHECKED:
        _check(buf, index, 8)
    return _load_le64(buf, index)


@kernel
def varlong(buf: np.ndarray, index: int, end: int) -> tuple[np.int64, int]:
    """The zigzag varlong at ``index`` and the index after it; the index is -1 where there is none before ``end``.

    Ten bytes at most, as ``ByteUtils.readVarlong``. A varint is read with it too: see :func:`varint`.
    """
    value = np.uint64(0)
    shift = np.uint64(0)
    while index < end and shift < np.uint64(70):
        byte = np.uint64(buf[index])
        index += 1
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), index
        shift += np.uint64(7)
    return np.int64(0), -1


@kernel
def varint(buf: np.ndarray, index: int, end: int) -> tuple[np.int64, int]:
    """The zigzag varint at ``index`` and the index after it; the index is -1 where there is none of 32 bits."""
    if index < end and buf[index] < 0x80:  # one byte: nearly all
        byte = np.int64(buf[index])
        return (byte >> 1) ^ -(byte & 1), index + 1
    if index + 1 < end and buf[index + 1] < 0x80:  # two: nearly all others
        pair = np.int64(buf[index] & 0x7F) | np.int64(buf[index + 1]) << 7
        return (pair >> 1) ^ -(pair & 1), index + 2
    value, after = varlong(buf, index, min(end, index + 5))
    if value < -(2**31) or value >= 2**31:
        return np.int64(0), -1
    return value, after
