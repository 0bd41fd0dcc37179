"""How large the inputs are, how often each side runs, and where files go."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from bench.inputs import GIB
from bench.sides import fits
from tests import corpora


class Plan(NamedTuple):
    """Sizes in bytes. Quick ones take about ten minutes in all; ``BENCH_FULL=1`` the full ones."""

    root: Path | None
    full: bool
    runs: int

    def disk_bytes(self, disks: int) -> int:
        """Of each log directory of the whole audit: 4 GiB, or 2 where four of them do not stay in the page cache."""
        if not self.full:
            return GIB
        return 4 * GIB if fits(disks * 4 * GIB) else 2 * GIB

    @property
    def dump_bytes(self) -> int:
        """What DumpLogSegments reads of small batches, half of it for the first point of its slope."""
        return GIB if self.full else GIB // 4

    @property
    def part_bytes(self) -> int:
        """Of the inputs with many partitions or producers, and of the tables."""
        return 4 * GIB if self.full else GIB

    @property
    def copied_bytes(self) -> int:
        """Of what is copied without payload, and by others as a whole."""
        return 4 * GIB if self.full else 2 * GIB

    @property
    def records(self) -> int:
        """Records into columns, of 250 bytes each."""
        return 4_000_000 if self.full else 1_000_000

    @property
    def coordinator_records(self) -> int:
        """Records of each internal topic."""
        return 10_000_000 if self.full else 3_000_000

    @property
    def replayed(self) -> int:
        """Batches for the model alone."""
        return 10_000_000 if self.full else 4_000_000

    @staticmethod
    def tiny() -> Path:
        """A few MB of a real broker."""
        return corpora.unpack("healthy-41")


def from_environment() -> Plan:
    """By ``BENCH_DIR``, ``BENCH_FULL`` and ``BENCH_RUNS``."""
    root, full = os.environ.get("BENCH_DIR"), os.environ.get("BENCH_FULL", "") not in ("", "0")
    return Plan(Path(root) if root else None, full, int(os.environ.get("BENCH_RUNS", "3")))
