"""Kafka's primitive types and checksums inside compiled kernels."""

from __future__ import annotations

import numpy as np

from auditor.base.compiled import CHECKED, ChosenKernel, Numba, instruction, kernel

# Loads have no bounds check, as kernels prove their indexes beforehand. With ``NUMBA_BOUNDSCHECK=1`` every load checks.


def _loader(bits: int, big_endian: bool) -> Numba:
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
    """The 8 bytes at ``index`` as a little-endian number, the input of checksums."""
    if CHECKED:
        _check(buf, index, 8)
    return _load_le64(buf, index)


@kernel
def varlong(buf: np.ndarray, index: int, end: int) -> tuple[np.int64, int]:
    """The zigzag varlong at ``index`` and the index after it; the index is -1 if there is none before ``end``.

    Ten bytes at most, as in ``ByteUtils.readVarlong``. :func:`varint` uses it too.
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
    """The zigzag varint at ``index`` and the index after it; the index is -1 if there is none of 32 bits."""
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


# Checksums: CRC-32C (magic 2) and CRC-32 (magic 0 and 1).
#
# CRC-32C uses the processor's instruction if numba is configured for it: three interleaved streams hide its latency,
# and a carry-less multiplication joins them. Otherwise, and for CRC-32, eight tables process eight bytes per step. The
# choice follows numba's configuration, not the host: an instruction that numba does not target kills the process.


CASTAGNOLI = 0x82F63B78
ZLIB = 0xEDB88320
ONES = np.uint32(0xFFFFFFFF)
STREAM_WORDS = 480  # largest part of one of the three streams, in 8-byte words


def _slices(polynomial: int) -> np.ndarray:
    # Table k is the checksum state of a byte followed by k zero bytes.
    state = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        state = np.where(state & 1, (state >> 1) ^ np.uint32(polynomial), state >> 1)
    tables = [state]
    for _ in range(7):
        tables.append((tables[-1] >> 8) ^ state[tables[-1] & 255])
    return np.stack(tables).astype(np.uint32)


def _shifts(words: int) -> np.ndarray:
    # Factors that advance a state over k words of zeros, k up to words: x^(64k - 33) modulo the polynomial.
    factors = [0, 1]
    for _ in range(words - 1):
        state = factors[-1]
        for _ in range(8):
            state = (state >> 8) ^ int(CRC32C_TABLES[0, state & 255])
        factors.append(state)
    return np.array(factors, np.int64)


CRC32C_TABLES = _slices(CASTAGNOLI)
_ZLIB = _slices(ZLIB)
_SHIFTS = _shifts(2 * STREAM_WORDS)


def has_instructions() -> bool:
    """Whether numba compiles for a processor with the CRC-32C and the carry-less multiplication instruction."""
    from numba.core.registry import cpu_target

    _triple, _cpu, features = cpu_target.target_context.codegen().magic_tuple()
    enabled = set(features.split(","))
    return bool({"+sse4.2", "+crc32"} & enabled) and "-crc32" not in enabled and "+pclmul" in enabled


def _crc_step(state_bits: int, word_bits: int, signed: bool) -> Numba:
    """One step of CRC-32C over a word, by the processor's instruction."""

    @instruction
    def step(_context: Numba, state: Numba, word: Numba) -> Numba:
        from llvmlite import ir
        from numba import types

        def codegen(_c: Numba, builder: Numba, _signature: Numba, args: Numba) -> Numba:
            state_type, word_type = ir.IntType(state_bits), ir.IntType(word_bits)
            kind = ir.FunctionType(state_type, [state_type, word_type])
            name = f"llvm.x86.sse42.crc32.{state_bits}.{word_bits}"
            return builder.call(builder.module.declare_intrinsic(name, (), kind), args)

        result, added = (types.Integer.from_bitwidth(bits, signed=signed) for bits in (state_bits, word_bits))
        return result(result, added), codegen

    return step


_crc64, _crc8 = _crc_step(64, 64, True), _crc_step(32, 8, False)


@instruction
def _multiply(_context: Numba, left: Numba, right: Numba) -> Numba:
    from llvmlite import ir
    from numba import types

    def codegen(_c: Numba, builder: Numba, _signature: Numba, args: Numba) -> Numba:
        vector = ir.VectorType(ir.IntType(64), 2)
        i32 = ir.IntType(32)
        kind = ir.FunctionType(vector, [vector, vector, ir.IntType(8)])
        product = builder.module.declare_intrinsic("llvm.x86.pclmulqdq", (), kind)
        empty = ir.Constant(vector, [0, 0])
        operands = [builder.insert_element(empty, arg, i32(0)) for arg in args]
        return builder.extract_element(builder.call(product, [*operands, ir.IntType(8)(0)]), i32(0))

    return types.int64(types.int64, types.int64), codegen


@kernel
def _sliced(tables: np.ndarray, buf: np.ndarray, index: int, end: int, state: np.uint32) -> np.uint32:
    # Eight bytes at a time.
    while index + 8 <= end:
        word = np.uint64(le64(buf, index)) ^ np.uint64(state)
        state = np.uint32(0)
        for k in range(8):
            state ^= tables[7 - k, np.int64((word >> np.uint64(8 * k)) & np.uint64(255))]
        index += 8
    while index < end:
        state = np.uint32(state >> np.uint32(8)) ^ tables[0, np.int64((state ^ buf[index]) & np.uint32(255))]
        index += 1
    return state


@kernel
def _streams(buf: np.ndarray, index: int, end: int) -> np.uint32:
    state = np.int64(0xFFFFFFFF)
    words = (end - index) >> 3
    while words >= 6:
        length = min(words // 3, STREAM_WORDS)
        second = np.int64(0)
        third = np.int64(0)
        for position in range(index, index + 8 * length, 8):
            state = _crc64(state, le64(buf, position))
            second = _crc64(second, le64(buf, position + 8 * length))
            third = _crc64(third, le64(buf, position + 16 * length))
        moved = _multiply(state, _SHIFTS[2 * length]) ^ _multiply(second, _SHIFTS[length])
        state = _crc64(np.int64(0), moved) ^ third
        index += 24 * length
        words -= 3 * length
    while words > 0:
        state = _crc64(state, le64(buf, index))
        index += 8
        words -= 1
    short = np.uint32(state)
    while index < end:
        short = _crc8(short, buf[index])
        index += 1
    return short


@kernel
def _by_tables(buf: np.ndarray, index: int, end: int) -> np.uint32:
    return _sliced(CRC32C_TABLES, buf, index, end, ONES)


_state = ChosenKernel(lambda: _streams if has_instructions() else _by_tables)


@kernel
def crc32c(buf: np.ndarray, start: int, end: int) -> np.uint32:
    """CRC-32C (RFC 3720) of ``buf[start:end]``, a uint8 array. The caller proves 0 <= start <= end <= size."""
    return _state(buf, start, end) ^ ONES


@kernel
def crc32(buf: np.ndarray, start: int, end: int) -> np.uint32:
    """The CRC-32 of zlib of ``buf[start:end]``, a uint8 array. The caller proves 0 <= start <= end <= size."""
    return _sliced(_ZLIB, buf, start, end, ONES) ^ ONES


@kernel
def crc_of_change(word: int, zeros: int) -> np.int64:
    """The bits in which two CRC-32Cs differ if only ``word`` differs (8 bytes, big endian, XOR of both), with ``zeros``
    equal bytes after it.

    Cost: linear in ``zeros``, nothing if the word is 0.
    """
    state = np.int64(0)
    if word == 0:
        return state
    for k in range(8 + zeros):
        byte = (word >> np.int64(56 - 8 * k)) & 255 if k < 8 else np.int64(0)
        state = (state >> 8) ^ np.int64(CRC32C_TABLES[0, (state ^ byte) & 255])
    return state
