"""Decompression as Kafka does it: the reference's verified streams, the quirks of each codec, and bombs stopped."""

from __future__ import annotations

import gzip
import resource
import struct
from pathlib import Path
from typing import Any

import cramjam
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh32_intdigest

from auditor.base.errors import MIB, Limits
from auditor.connectors.codec.compression import Failure, decompress, decompress_into
from tests.segments import LZ4_HEADER, XERIAL, compress

CODECS = (1, 2, 3, 4)
ROOT = Path(__file__).parents[2]
HELLO = {
    1: "1f8b08000000000000ffcb48cdc9c9070086a6103605000000",
    2: "82534e41505059000000000100000001 00000007 051068656c6c6f",
    3: "04224d18 60 40 82 05000080 68656c6c6f 00000000",
    4: "28b52ffd 00 58 280000 68656c6c6f 010000",
}


def opened(codec: int, data: bytes, **options: Any) -> bytes | str:
    """The plain bytes, or the reason there are none."""
    result = decompress(codec, np.frombuffer(data, np.uint8), **options)
    return result.reason if isinstance(result, Failure) else result.tobytes()


@pytest.mark.parametrize("codec", CODECS)
def test_the_verified_streams(codec: int) -> None:
    assert opened(codec, bytes.fromhex(HELLO[codec])) == b"hello"


def test_snappy_without_its_frame() -> None:
    assert opened(2, bytes.fromhex("114068656c6c6f2068656c6c6f2068656c6c6f")) == b"hello hello hello"


@pytest.mark.parametrize("codec", [1, 2, 4])
def test_streams_that_follow_each_other(codec: int) -> None:
    assert opened(codec, bytes.fromhex(HELLO[codec]) + compress(codec, b" there")) == b"hello there"


def test_lz4_ends_with_the_first_frame() -> None:
    assert opened(3, bytes.fromhex(HELLO[3]) + compress(3, b" there")) == b"hello"
    assert opened(3, bytes.fromhex(HELLO[3]) + b"anything") == b"hello"


def test_lz4_header_of_magic_0() -> None:
    wrong = compress(3, b"hello", magic=0)
    assert wrong[6] == 0x1A
    assert opened(3, wrong, magic=0) == b"hello"
    assert opened(3, wrong, magic=1) == "bad_compression"


@pytest.mark.parametrize("flags", [0x40, 0x61, 0x62, 0xA0, 0x20])
def test_lz4_frames_kafka_refuses(flags: int) -> None:
    """Dependent blocks, a dictionary, a reserved bit, other versions; each with its right checksum."""
    header = bytes([flags, 0x40])
    digest = (xxh32_intdigest(header) >> 8) & 0xFF
    frame = LZ4_HEADER[:4] + header + bytes([digest]) + bytes.fromhex("0500008068656c6c6f00000000")
    assert opened(3, frame) == "bad_compression"


def test_lz4_with_sizes_and_checksums() -> None:
    """Block checksums and a content size, as other clients may write them."""
    header = bytes([0x78, 0x40]) + struct.pack("<Q", 5)
    digest = (xxh32_intdigest(header) >> 8) & 0xFF
    block = struct.pack("<I", 5 | 1 << 31) + b"hello"
    seal = struct.pack("<I", xxh32_intdigest(b"hello"))
    frame = LZ4_HEADER[:4] + header + bytes([digest]) + block
    assert opened(3, frame + seal + bytes(4)) == b"hello"
    assert opened(3, frame + b"abcd" + bytes(4)) == "bad_compression"


def test_snappy_versions() -> None:
    assert opened(2, XERIAL[:8] + bytes(8) + bytes.fromhex("00000007051068656c6c6f")) == "bad_compression"
    assert opened(2, XERIAL[:11]) == "bad_compression"


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_codecs_that_do_not_exist(codec: int) -> None:
    assert opened(codec, b"hello") == "bad_codec"


@given(st.sampled_from(CODECS), st.binary(max_size=300), st.integers(0, 700), st.integers(0, 2))
def test_what_was_compressed_comes_back(codec: int, piece: bytes, times: int, magic: int) -> None:
    assert opened(codec, compress(codec, piece * times, magic), magic=magic) == piece * times


@pytest.mark.parametrize("codec", CODECS)
def test_every_cut_of_a_stream_is_an_error_or_shorter(codec: int) -> None:
    plain = bytes(range(256)) * 300
    stream = compress(codec, plain)
    for end in [*range(0, min(len(stream), 300)), *range(300, len(stream), 97)]:
        got = opened(codec, stream[:end])
        assert got == "bad_compression" or (codec == 2 and isinstance(got, bytes) and plain.startswith(got)), end


@pytest.mark.parametrize("codec", CODECS)
def test_damaged_streams_never_raise(codec: int) -> None:
    random = np.random.default_rng(codec)
    stream = np.frombuffer(compress(codec, bytes(range(200)) * 400), np.uint8)
    out = np.zeros(MIB, np.uint8)
    for _ in range(1500):
        damaged = stream.copy()
        places = random.integers(0, min(len(stream), 400), random.integers(1, 4))
        damaged[places] = random.integers(0, 256, len(places))
        got = decompress_into(codec, damaged, out[: MIB // 2])
        assert isinstance(got, Failure) or 0 <= got <= MIB // 2
    assert not out[MIB // 2 :].any()


def bomb(codec: int) -> bytes:
    """256 MiB of zeros, made in pieces so that making it does not take the memory whose use is measured."""
    if codec in (1, 4):
        compressor = (cramjam.gzip if codec == 1 else cramjam.zstd).Compressor()
        for _ in range(256):
            compressor.compress(bytes(MIB))
        return bytes(compressor.finish())
    unit = compress(codec, bytes(4 * MIB))
    if codec == 2:
        return unit + unit[len(XERIAL) :] * 63
    return LZ4_HEADER + unit[len(LZ4_HEADER) : -4] * 64 + bytes(4)


def peak_growth(codec: int) -> None:
    """Print by how many KiB a stopped bomb raised this process's peak of memory."""
    stream = bomb(codec)
    opened(codec, compress(codec, b"warm"))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert opened(codec, stream, limits=Limits(max_batch_bytes=8 * MIB)) == "bomb_limit"
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)


@pytest.mark.parametrize("codec", CODECS)
def test_the_limit_is_exact(codec: int) -> None:
    stream = compress(codec, bytes(100_000))
    assert opened(codec, stream, limits=Limits(max_batch_bytes=100_000)) == bytes(100_000)
    assert opened(codec, stream, limits=Limits(max_batch_bytes=99_999)) == "bomb_limit"


def test_the_ratio_counts_above_its_floor() -> None:
    stream = gzip.compress(bytes(3 * MIB), mtime=0)
    assert opened(1, stream, limits=Limits(max_batch_ratio=100, ratio_floor_bytes=MIB)) == "bomb_limit"
    assert opened(1, stream, limits=Limits(max_batch_ratio=100, ratio_floor_bytes=3 * MIB)) == bytes(3 * MIB)


def test_a_zstd_frame_may_not_ask_for_any_window() -> None:
    """Header of a frame whose window is 2^41 bytes, in front of an empty last block."""
    assert opened(4, bytes.fromhex("28b52ffd00f8010000")) == "bad_compression"
