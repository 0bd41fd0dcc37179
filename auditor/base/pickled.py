"""Values of our own as bytes at rest: pickled and compressed. Nothing that others could write is read so."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa

_CODEC = pa.Codec("zstd", 1)
_SIZE = 8  # bytes that say how long it is unpacked


def dumps(value: object) -> bytes:
    """A value, behind its size."""
    plain = pickle.dumps(value, 5)
    return len(plain).to_bytes(_SIZE, "little") + bytes(_CODEC.compress(plain, asbytes=True))


def loads(packed: bytes) -> Any:
    """What :func:`dumps` packed."""
    size = int.from_bytes(packed[:_SIZE], "little")
    return pickle.loads(_CODEC.decompress(memoryview(packed)[_SIZE:], size, asbytes=True))
