"""Headers of a replica that were summed and dropped, read again from its files where somebody asks for them.

What is read counts only if it sums up to what the reading pass found: files may have vanished, grown, been cut or
cleaned since. Then nothing follows for the batches there, and an error says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from auditor.base.errors import MIB, DecodeError
from auditor.facts.batch_sums import BatchSums
from auditor.facts.packed import PackedColumns
from auditor.facts.replica_facts import ReplicaFacts

AGAIN_BYTES = 16_384 * MIB  # of segments, for all replicas of a log
FOR_EVIDENCE = 1_024 * MIB  # of these, kept for what findings show of single batches
MOST_AT_ONCE = 16_000_000  # batches of a log that has to be held as a whole
Columns = dict[str, np.ndarray]


class Unknown(Exception):
    """Headers cannot be had again. ``limited``: because a limit was reached."""

    def __init__(self, *, limited: bool = False) -> None:
        super().__init__()
        self.limited = limited


@dataclass
class Allowance:
    """How many bytes may still be read again to compare the replicas of one log."""

    left: int = AGAIN_BYTES

    def take(self, count: int, *, evidence: bool) -> None:
        """Books a reading. Errors: :class:`Unknown` where there is not so much left."""
        if self.left - count < (0 if evidence else FOR_EVIDENCE):
            raise Unknown(limited=True)
        self.left -= count


class HeadersAgain:
    """The headers of one replica whose ``digests`` are sums. ``errors``: what could not be read again, a file once."""

    def __init__(self, replica: ReplicaFacts, sums: BatchSums, allowance: Allowance) -> None:
        self.replica = replica
        self.sums = sums
        self.ranges = sums.ranges
        self.allowance = allowance
        self._errors: dict[tuple[str, str], DecodeError] = {}

    @property
    def errors(self) -> list[DecodeError]:
        """In the order in which they came up."""
        return list(self._errors.values())

    def note(self, error: DecodeError) -> None:
        """One of them."""
        self._errors.setdefault((error.file, error.reason), error)

    def between(self, low: int, high: int, names: Sequence[str] = (), *, evidence: bool = False) -> Columns:
        """Columns (all, where none is named) of the batches of some ranges, the last one included. Cost: reading what
        lies there, once more where damage hides where a batch begins. Errors: :class:`Unknown`."""
        wanted = self.ranges[low : high + 1]
        if wanted["batches"].sum() > MOST_AT_ONCE:
            raise Unknown(limited=True)
        for whole in (False, True):
            again = BatchSums(self.sums.key, self.sums.shift)
            parts = []
            for rows in self._walk(low, high, evidence, whole=whole):
                again.add_columns(rows)
                parts.append({name: rows[name] for name in names or rows})
            if again.ordered and np.array_equal(again.ranges, wanted):
                return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        begin = wanted[0]
        self._changed(int(begin["segment"]), int(begin["position"]), int(begin["first"]), int(wanted[-1]["last"]))
        raise Unknown

    def _changed(self, segment: int, position: int, first: int, last: int) -> None:
        detail = "changed while it was read: its batches are not compared with those of other replicas"
        detail += f" from offset {first} to {last}"
        self.note(DecodeError(self.replica.segments[segment], position, -1, "vanished", detail))

    def everything(self) -> PackedColumns | None:
        """All headers, packed, of a log that is out of order; None where it has none. Errors: :class:`Unknown`."""
        found: PackedColumns | None = None
        again = BatchSums(self.sums.key)
        if self.sums.total[0] > MOST_AT_ONCE:
            raise Unknown(limited=True)
        for number in range(len(self.replica.segments)):
            for rows in self._read(number, 0, None, -1, evidence=False):
                found = found or PackedColumns({name: column.dtype for name, column in rows.items()})
                found.add(np.array([*rows.values()], np.int64))
                again.add_columns(rows)
        if again.total != self.sums.total:
            self._changed(0, 0, 0, self.replica.log_end - 1)
            raise Unknown
        return found

    def limit(self, offset: int, why: str) -> None:
        """Notes that the comparison with other replicas ends at an offset, for a limit's sake."""
        number = max(0, int(np.searchsorted(self.replica.segment_bases, offset, side="right")) - 1)
        detail = f"not compared with other replicas from offset {offset} on: {why}"
        self.note(DecodeError(self.replica.segments[number], 0, -1, "limit", detail))

    def _walk(self, low: int, high: int, evidence: bool, *, whole: bool) -> Iterator[Columns]:
        """The batches of some ranges, read from where the first begins; or where that did not do, from the segments'
        beginnings to their ends."""
        first, last = self.ranges[low], self.ranges[high]
        begin, end = int(first["segment"]), len(self.replica.segments) - 1
        behind = self.ranges[high + 1] if high + 1 < len(self.ranges) else None
        if behind is not None:
            end = int(behind["segment"])
        for number in range(begin, end + 1):
            start = int(first["position"]) if number == begin and not whole else 0
            stop = int(behind["position"]) if behind is not None and number == end and not whole else None
            if stop is not None and stop <= start:
                continue
            for rows in self._read(number, start, stop, int(first["first"]) if start else -1, evidence=evidence):
                inside = (rows["base_offset"] >= first["first"]) & (rows["base_offset"] <= last["last"])
                yield {name: column[inside] for name, column in rows.items()}

    def _read(self, number: int, start: int, stop: int | None, lowest: int, *, evidence: bool) -> Iterator[Columns]:
        files = self.sums.files
        if files is None:
            raise Unknown
        self.allowance.take((files.size(number) if stop is None else stop) - start, evidence=evidence)
        for rows in files.read(number, start, stop, lowest):
            if isinstance(rows, DecodeError):
                self.note(rows._replace(detail=f"{rows.detail}, when replicas were compared"))
                raise Unknown
            yield rows
