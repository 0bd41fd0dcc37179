"""Kept runs for who asks for them again and again: what was read of a run is kept, since no file of one changes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock

import pyarrow as pa

from auditor.outputs import runs
from auditor.outputs.runs import History, Run

WHO = ("fingerprint", "cluster_id", "severity", "topic", "partition", "transactional_id", "producer_id")
LOG = ("cluster_id", "topic", "partition")
MOST_BYTES = 256 << 20  # of tables in memory, the oldest of which then goes

Log = tuple[str | None, str | None, int | None]  # by LOG


@dataclass(slots=True)
class Shelf:
    """A history, and the tables that were read of it. Manifests are read once, tables again where they had to go."""

    history: History
    _manifests: dict[str, Run] = field(default_factory=dict)
    _tables: OrderedDict[tuple[object, ...], pa.Table] = field(default_factory=OrderedDict)
    _less: dict[tuple[str, ...], frozenset[Log]] = field(default_factory=dict)
    _bytes: int = 0
    _lock: Lock = field(default_factory=Lock)  # pages are asked for side by side

    def runs(self) -> list[Run]:
        """What is committed now, the oldest first. Errors: as of :func:`runs.kept`."""
        return runs.kept(self.history, self._manifests).runs

    def read(self, run: Run, table: str, columns: Sequence[str] | None = None) -> pa.Table:
        """A table of a run, or some columns of it. Errors: as of :func:`runs.read`."""
        asked = run.run_id, run.published_at, table, tuple(columns or ())
        with self._lock:
            found = self._tables.get(asked)
        if found is None:
            found = runs.read(self.history, run, table, list(columns) if columns else None)
        with self._lock:
            before = self._tables.pop(asked, None)
            self._bytes += found.nbytes - (0 if before is None else before.nbytes)
            self._tables[asked] = found
            while self._bytes > MOST_BYTES and len(self._tables) > 1:
                _, gone = self._tables.popitem(last=False)
                self._bytes -= gone.nbytes
        return found

    def logs_less(self, then: Run, now: Run) -> frozenset[Log]:
        """The partitions of which one run had logs and another has none; none where either kept no list of them."""
        two = then.run_id, then.published_at, now.run_id, now.published_at
        if two not in self._less:
            kept = [
                set(zip(*(self.read(run, "logs", LOG)[name].to_pylist() for name in LOG), strict=True))
                for run in (then, now)
                if "logs" in run.files
            ]
            self._less[two] = frozenset(kept[0] - kept[1] if len(kept) > 1 else ())
        return self._less[two]

    def who(self, run: Run, accepted: bool = True) -> pa.Table:
        """A run's findings, by what is asked of many runs: :data:`WHO`. Not ``accepted``: without those that its
        baseline accepts."""
        found = self.read(run, "findings", WHO)
        return found if accepted else self.unaccepted(run, found)

    def unaccepted(self, run: Run, found: pa.Table) -> pa.Table:
        """Findings of a run without those that its baseline accepts: what is new and gone is asked of these."""
        names = runs.accepted(self.history, run)
        if not names:
            return found
        return found.filter(pa.array([name not in names for name in found["fingerprint"].to_pylist()], pa.bool_()))
