"""The limits every decoder keeps, so that no input can exhaust the machine. Each has its reason code in ``errors``."""

from __future__ import annotations

from typing import NamedTuple

MIB = 1 << 20
OF_A_RULE = 1_000  # findings of a rule in a log
IN_ALL = 100  # times as many in a run


class Made:
    """What compressed bodies became so far, and what was stored of them, in bytes."""

    __slots__ = ("plain", "stored")

    def __init__(self) -> None:
        self.plain = self.stored = 0


class Limits(NamedTuple):
    """Bounds on one run's decoding. Sizes are bytes.

    ``max_batch_bytes`` caps a batch as stored and as decompressed (``--max-batch-bytes``); ``max_batch_ratio`` caps
    decompressed over stored size (``--max-batch-ratio``), but never below ``ratio_floor_bytes``. ``max_records`` is
    of a batch whose records are handed out one by one; summing them up needs no such limit. ``max_batch_ratio`` also
    holds for all batches of a file or replica together, whose bodies are counted in ``made`` (:meth:`counting`), but
    never below ``made_floor_bytes``: a megabyte of small bombs would keep a core busy for hours.

    What is made of a small file is larger than the file, so each kind has a limit in entries beside that in bytes.
    Checkpoints: a line a partition of the broker (Kafka's own guidance ends at some thousands) or a leader epoch of the
    log; 200 000 are some 60 MB here. Indexes: an entry every 4 096 bytes of a segment, preallocated to 10 MiB;
    2 Mi are 48 MiB here. Snapshots and transaction indexes: an entry a producer or aborted transaction; 4 Mi are
    184 MiB. ``max_bad_lines`` of a text file are named one by one. ``max_small_file_bytes`` holds for what is not named
    here, such as text dumps.
    """

    max_batch_bytes: int = 256 * MIB
    max_batch_ratio: int = 1000
    ratio_floor_bytes: int = 16 * MIB
    max_records: int = 4_000_000
    max_headers: int = 100_000
    max_small_file_bytes: int = 1024 * MIB
    max_properties_bytes: int = MIB
    max_checkpoint_bytes: int = 64 * MIB
    max_index_bytes: int = 256 * MIB
    max_checkpoint_entries: int = 200_000
    max_index_entries: int = 2 * MIB
    max_producer_entries: int = 4 * MIB
    max_bad_lines: int = 100
    max_files: int = 5_000_000
    max_path_length: int = 4096
    made_floor_bytes: int = 1024 * MIB
    made: Made | None = None

    def small_file(self, kind: str) -> int:
        """Bytes that are read of a file of this kind or name."""
        if kind in ("index", "timeindex", "txnindex", "snapshot"):
            return self.max_index_bytes
        if kind in ("meta.properties", "server.properties", "partition.metadata", "quorum-state", "rsm-manifest"):
            return self.max_properties_bytes
        return self.max_checkpoint_bytes

    def counting(self) -> Limits:
        """The same for one file or replica, all of whose bodies count together from here on."""
        return Limits(*self[:-1], made=Made())  # which is the last: _replace takes three times as long

    def decompressed_cap(self, stored: int) -> int:
        """Bytes that ``stored`` compressed bytes may become."""
        return max(0, min(self._cap(stored), self._left(stored)))

    def note_made(self, stored: int, plain: int) -> None:
        """``stored`` bytes became ``plain`` ones."""
        if self.made is not None:
            self.made.stored += stored
            self.made.plain += plain

    def is_used_up(self, stored: int) -> bool:
        """Whether ``stored`` more bytes may become less than they might if nothing had been opened before them."""
        return self._left(stored) < self._cap(stored)

    def _cap(self, stored: int) -> int:
        return min(self.max_batch_bytes, max(self.ratio_floor_bytes, stored * self.max_batch_ratio))

    def _left(self, stored: int) -> int:
        if self.made is None:
            return self.max_batch_bytes
        return max(self.made_floor_bytes, (self.made.stored + stored) * self.max_batch_ratio) - self.made.plain


DEFAULT_LIMITS = Limits()
