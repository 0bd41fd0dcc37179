"""How fast segments are read: GB/s of the walk, records/s of the deep walk, on one core, the file in the page cache.

``python -m bench.codec [--mib N]`` writes segments of N MiB of copies of one batch into a temporary folder, and prints
a line each.
"""

from __future__ import annotations

import argparse
import struct
import tempfile
import time
from pathlib import Path

import numpy as np

from connectors.codec.compression import NAMES
from connectors.codec.segment import read_segment
from tests.segments import batch, compress, record

VALUE_BYTES = 230  # with key and framing: a record of 250 bytes


def one_batch(size: int, codec: int = 0) -> bytes:
    """A batch of records of 250 bytes, about ``size`` bytes of them before compression."""
    random = np.random.default_rng(7)
    words = random.integers(97, 123, (64, 10), dtype=np.uint8)  # text that compresses to a fifth, about as JSON does
    count = max(1, size // 250)
    picked = [words[random.integers(0, 64, VALUE_BYTES // 10)].tobytes() for _ in range(count)]
    body = b"".join(record(index, b"k%09d" % index, value, index) for index, value in enumerate(picked))
    return batch(compress(codec, body), count, attributes=codec)


def write_segment(path: Path, batch: bytes, size: int) -> int:
    """Copies of ``batch`` with rising offsets, about ``size`` bytes; returns the records in a batch."""
    (delta,) = struct.unpack_from(">i", batch, 23)
    with path.open("wb") as f:
        for number in range(max(1, size // len(batch))):
            f.write(struct.pack(">q", number * (delta + 1)) + batch[8:])  # the checksum does not cover the offset
    return int(delta) + 1


def measure(path: Path, *, records: bool, crc: bool) -> tuple[float, int, int]:
    """Seconds of the best of five walks, bytes, batches."""
    best, rows = float("inf"), 0
    size = path.stat().st_size
    for _ in range(5):
        start = time.perf_counter()
        with path.open("rb", buffering=0) as f:
            rows = sum(len(c.batches.position) for c in read_segment(f, size, file="b", records=records, crc=crc))
        best = min(best, time.perf_counter() - start)
    return best, size, rows


def main() -> None:
    """Print one line a case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=256, help="size of each segment in MiB")
    target = parser.parse_args().mib << 20
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "00000000000000000000.log"
        for size in (65_536, 400):
            write_segment(path, one_batch(size), target)
            for crc in (True, False):
                seconds, total, rows = measure(path, records=False, crc=crc)
                what = f"walk, {total // rows} byte batches, {'with checksums' if crc else 'headers only'}"
                print(f"{what}: {total / seconds / 1e9:.2f} GB/s, {rows / seconds / 1e6:.2f} M batches/s")
        for codec, name in enumerate(NAMES):
            count = write_segment(path, one_batch(65_536, codec), target // (1 if codec == 0 else 8))
            seconds, total, rows = measure(path, records=True, crc=True)
            what = f"records of 250 bytes, {name}, {total // rows} byte batches"
            print(f"{what}: {rows * count / seconds / 1e6:.2f} M records/s, {total / seconds / 1e9:.2f} GB/s stored")


if __name__ == "__main__":
    main()
