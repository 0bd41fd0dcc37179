"""What all compressed batches of a file become together has a limit: bombs that are small, and many."""

from __future__ import annotations

from io import BytesIO

import cramjam
import numpy as np
import pytest

from auditor.base.errors import MIB, Limits
from auditor.connectors.codec.compression import ZSTD, Failure, decompress
from auditor.connectors.codec.gaps import SeekableFile
from auditor.connectors.codec.segment import read_segment
from tests.segments import batch, record

LIMITS = Limits(ratio_floor_bytes=MIB, made_floor_bytes=10 * MIB)
PLAIN = record(0, None, bytes(MIB // 2))


def bomb(offset: int) -> bytes:
    """A batch of one record: half a MiB of zeros, some fifty bytes of zstd."""
    body = bytes(cramjam.zstd.compress(PLAIN))
    return batch(body, 1, base_offset=offset, attributes=ZSTD)


def errors(batches: int, limits: Limits = LIMITS) -> list[tuple[int, str]]:
    data = b"".join(bomb(offset) for offset in range(batches))
    file: SeekableFile = BytesIO(data)
    chunks = list(read_segment(file, len(data), file="0.log", limits=limits, records=True))
    size = len(bomb(0))
    return [(e.position // size, e.reason) for chunk in chunks for e in chunk.body_errors]


def test_batches_are_opened_until_what_they_became_is_too_much() -> None:
    """Twenty halves of a MiB are nearly the ten that the file may become, each being some bytes more than a half."""
    assert errors(19) == []
    assert errors(25) == [(number, "limit") for number in range(19, 25)]


def test_each_file_begins_anew() -> None:
    assert errors(19) + errors(19) == []


def test_a_single_bomb_is_still_called_one() -> None:
    assert errors(1, LIMITS._replace(ratio_floor_bytes=1000, max_batch_ratio=10)) == [(0, "bomb_limit")]


def test_what_is_stored_later_may_become_more_again() -> None:
    """The ratio counts from the beginning of the file: ordinary batches behind bombs are opened once it allows them."""
    limits = Limits(max_batch_ratio=10, ratio_floor_bytes=1000, made_floor_bytes=1000).counting()
    zeros = np.frombuffer(bytes(cramjam.zstd.compress(bytes(1000))), np.uint8)
    ordinary = np.frombuffer(bytes(cramjam.zstd.compress(np.random.default_rng(1).bytes(500))), np.uint8)
    assert not isinstance(decompress(ZSTD, zeros, limits=limits), Failure)
    refused = decompress(ZSTD, zeros, limits=limits)
    assert isinstance(refused, Failure)
    assert refused.reason == "limit"
    assert not isinstance(decompress(ZSTD, ordinary, limits=limits), Failure)
    assert not isinstance(decompress(ZSTD, zeros, limits=limits), Failure)


@pytest.mark.parametrize("stored", [1, 60, 1 << 20])
def test_nothing_is_counted_where_nobody_asked(stored: int) -> None:
    limits = Limits()
    limits.note_made(stored, 1 << 40)
    assert limits.decompressed_cap(stored) == min(256 * MIB, max(16 * MIB, stored * 1000))
