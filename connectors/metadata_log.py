"""A replica of ``__cluster_metadata`` read record by record: its snapshots, and the log behind them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from auditor.base.errors import DecodeError, Limits
from auditor.connectors.codec.batches import CONTROL, FLAW_CRC, BatchColumns
from auditor.connectors.codec.cluster_metadata import MetadataEntry
from auditor.connectors.codec.damaged_fields import Known
from auditor.connectors.codec.records import records_of
from auditor.connectors.codec.segment import read_segment
from auditor.connectors.codec.small_files import decode_quorum_state
from auditor.connectors.files import DataFile, Replica
from auditor.connectors.leader_epochs import EpochStarts
from auditor.connectors.names import LEADER_EPOCHS, QUORUM_STATE
from auditor.connectors.storage import Place, open_file, read_file


class MetadataLog:
    """The files of a replica while they are read.

    ``newest`` is the newest time seen, in ms (-1: none); ``lost``: a part could not be read, as ``unopened`` says of
    files; bytes that are no batch are reported when the replica itself is audited. ``lineage``: the leader epochs of
    the log with their first offsets, both rising. ``sound``: the last leader epoch of the log, and its end, up to the
    first thing that is wrong with it (``doubted``). Memory: a chunk of a segment.
    """

    def __init__(self, place: Place, replica: Replica, limits: Limits) -> None:
        self.place = place
        self.replica = replica
        self.limits = limits.counting()
        self.newest, self.lost = -1, not replica.segments
        self.sound, self.doubted = (-1, -1), False
        self.unopened: list[DecodeError] = []
        self.lineage: list[tuple[int, int]] = []
        epochs = EpochStarts(place, replica.leader_epochs, limits.small_file(LEADER_EPOCHS))
        self.known = Known(has_holes=False, epochs=epochs)

    def snapshots(self) -> list[DataFile]:
        """The snapshots, the newest first; ``offset``: the first one behind it. Complete is one with its footer."""
        found = (file for file in self.replica.others if file.kind == "checkpoint" and file.offset > 0)
        return sorted(found, key=lambda file: -file.offset)

    def snapshot(self, file: DataFile) -> Iterator[MetadataEntry]:
        """The records of a snapshot."""
        return self._entries([(file.name, file.size)])

    def log(self) -> Iterator[MetadataEntry]:
        """The records of the log, in order."""
        return self._entries((segment.name, segment.size) for segment in self.replica.segments)

    def voters(self) -> tuple[int, ...]:
        """The voters by ``quorum-state``, whose version 0 names them. What is wrong with it is said elsewhere."""
        file = next((file for file in self.replica.others if file.kind == QUORUM_STATE), None)
        data = file and read_file(self.place, file.name, limit=self.limits.small_file(QUORUM_STATE))
        state = decode_quorum_state(data)[0] if isinstance(data, bytes) else None
        return () if state is None else state.voters

    def _note_epochs(self, b: BatchColumns) -> None:
        """Takes note of the leader epochs of sound batches."""
        sound = np.flatnonzero(b.flaws & FLAW_CRC == 0)
        epochs, known = b.partition_leader_epoch[sound], self.lineage[-1][0] if self.lineage else -1
        rises = np.flatnonzero(epochs > np.maximum.accumulate(np.append(known, epochs))[:-1])
        self.lineage += zip(epochs[rises].tolist(), b.base_offset[sound[rises]].tolist(), strict=True)

    def _count(self, b: BatchColumns, whole: np.ndarray, *, lost: bool) -> None:
        """Takes note of how far the log is sound: nothing is ever missing in it."""
        end = self.sound[1] if self.sound[1] >= 0 else int(b.base_offset[0])
        odd = np.flatnonzero(~whole | (b.base_offset != np.append(end, b.last_offset[:-1] + 1)))
        sound = int(odd[0]) if len(odd) else len(whole)
        if sound and not self.doubted:
            epoch = max(self.sound[0], int(b.partition_leader_epoch[:sound].max()))
            self.sound = epoch, int(b.last_offset[sound - 1]) + 1
        self.doubted |= lost or sound < len(whole)

    def _entries(self, files: Iterable[tuple[str, int]]) -> Iterator[MetadataEntry]:
        for name, size in files:
            f = open_file(self.place, name)
            if isinstance(f, DecodeError):
                self.unopened.append(f._replace(length=size))
                self.lost = True
                continue
            try:
                for chunk in read_segment(f, size, file=name, limits=self.limits, raw=True, known=self.known):
                    b = chunk.batches
                    self.lost |= any(e.reason not in ("truncated", "zero_filled") for e in chunk.errors)
                    if len(b.position):
                        whole = b.flaws & FLAW_CRC == 0
                        self.newest = max(self.newest, int(b.max_timestamp[whole].max(initial=-1)))
                        if name.endswith(".log"):
                            self._note_epochs(b)
                            self._count(b, whole, lost=bool(chunk.errors))
                        elif not whole.all():  # without its footer it is passed over
                            self.lost |= any(segment.base_offset > 0 for segment in self.replica.segments[:1])
                            return
                        self.lost |= not whole.all()
                    chunk = chunk.intact()
                    b = chunk.batches
                    for i, record in records_of(chunk.raw or [], b, file=name, limits=self.limits):
                        if not isinstance(record, DecodeError):
                            control = bool(b.attributes[i] & CONTROL)
                            place = (name, int(b.position[i]), int(b.size[i]), control, record.offset, record.timestamp)
                            yield MetadataEntry(*place, record.key, record.value)
            finally:
                f.close()
