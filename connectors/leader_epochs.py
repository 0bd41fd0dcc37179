"""The leader-epoch checkpoint of a replica, for who seldom asks."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from auditor.connectors.codec.small_files import decode_leader_epochs
from auditor.connectors.files import DataFile
from auditor.connectors.storage import Place, read_file


@dataclass(frozen=True, slots=True)
class EpochStarts:
    """Reads it when called: epochs with their first offsets, both rising; none where it says otherwise, or cannot be
    read. ``limit``: bytes."""

    place: Place
    file: DataFile | None
    limit: int

    def __call__(self) -> list[tuple[int, int]]:
        """The entries."""
        data = b"" if self.file is None else read_file(self.file.place or self.place, self.file.name, limit=self.limit)
        if not isinstance(data, bytes) or not data:
            return []
        entries, errors = decode_leader_epochs(data)
        rising = all(a.epoch < b.epoch and a.start_offset <= b.start_offset for a, b in itertools.pairwise(entries))
        return [(e.epoch, e.start_offset) for e in entries] if rising and not errors else []
