"""The limits every decoder keeps, so that no input can exhaust the machine. Each has its reason code in ``errors``."""

from __future__ import annotations

from typing import NamedTuple

MIB = 1 << 20


class Limits(NamedTuple):
    """Bounds on one run's decoding. Sizes are bytes.

    ``max_batch_bytes`` caps a batch as stored and as decompressed (``--max-batch-bytes``); ``max_batch_ratio`` caps
    decompressed over stored size (``--max-batch-ratio``), but never below ``ratio_floor_bytes``. ``max_records`` is
    of a batch whose records are handed out one by one; summing them up needs no such limit.
    """

    max_batch_bytes: int = 256 * MIB
    max_batch_ratio: int = 1000
    ratio_floor_bytes: int = 16 * MIB
    max_records: int = 4_000_000
    max_headers: int = 100_000
    max_small_file_bytes: int = 1024 * MIB
    max_files: int = 5_000_000
    max_path_length: int = 4096

    def decompressed_cap(self, stored: int) -> int:
        """Bytes that ``stored`` compressed bytes may become."""
        return min(self.max_batch_bytes, max(self.ratio_floor_bytes, stored * self.max_batch_ratio))


DEFAULT_LIMITS = Limits()
