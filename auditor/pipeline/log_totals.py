"""What the rows of all logs come to: who judges adds up those of some logs, and the driver, which may have a million at
rest, reads none of them for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from auditor.base.at_rest import Values
from auditor.base.errors import DecodeError
from auditor.base.words import FirstRows, plural
from auditor.connectors.logdir.names import METADATA_TOPIC

BYTES = ("total", "decoded", "skipped", "error")
Place = tuple[Any, ...]
OF_A_RUN = ("truncates", "poison", "undecided", "from_recovery_point")  # of a dry run, where there is something to say


@dataclass(slots=True)
class LogTotals:
    """Sums over the rows of kind ``log`` (:func:`auditor.pipeline.judge.judge_log`).

    ``refused``: what leaders would have refused, by column of ``sums``, each log once. ``open``: open transactions by
    class. ``padded``: replicas with bytes that were skipped, of which ``padded_first`` is the first. ``recovery``: by
    log directory the dry runs of its logs, those in which nothing happens left out. ``unlooked``: by log directory the
    batches whose records were to be looked at, and are in no copy; ``with_records``: how many there are whose
    records can be. ``with_metadata``: log directories with a replica of ``__cluster_metadata``. ``errors``: what could
    not be read. ``chained``, ``counted``: what the report shows of chains and of offsets.
    """

    batches: int = 0
    records: int = 0
    bytes: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    open: Counter[str] = field(default_factory=Counter)
    padded: int = 0
    padded_first: tuple[Place, str] | None = None
    notes: set[str] = field(default_factory=set)
    with_metadata: set[str] = field(default_factory=set)
    recovery: dict[str, list[tuple[Place, Any]]] = field(default_factory=dict)
    unlooked: Counter[str] = field(default_factory=Counter)
    with_records: int = 0
    errors: list[tuple[Place, str, DecodeError]] = field(default_factory=list)
    chained: FirstRows = field(default_factory=lambda: FirstRows("chain", "broken", "snapshots"))
    counted: FirstRows = field(default_factory=lambda: FirstRows("offsets", "missing"))

    @classmethod
    def of(cls, rows: Iterable[Values]) -> LogTotals:
        """Those of some rows, in their order."""
        totals = cls()
        for row in rows:
            totals.add(place_of(row), row)
        return totals

    def add(self, place: Place, row: Values) -> None:
        """One more row, and where it stands among the others."""
        sums, log_dir = row["sums"], row["log_dir"]
        self.batches += sums["batches"]
        self.records += sums["records"]
        if row["topic"] == METADATA_TOPIC:
            self.with_metadata.add(log_dir)
        else:
            self.with_records += sums["batches"]
        self.unlooked[log_dir] += row["unlooked"]
        for name in BYTES:
            self.bytes[name] += sums[f"bytes_{name}"]
        if row["leader_copy"]:
            self.refused.update(sums)
        self.open.update(row["open_transactions"])
        if sums["bytes_skipped"]:
            self.padded_first = self.padded_first or (place, f"{log_dir}/{row['topic']}-{row['partition']}")
            self.padded += 1
        if row["dropped_events"]:
            n = plural(sum(row["dropped_events"].values()), "event")
            self.notes.add(f"{row['topic']}-{row['partition']} in {log_dir}: {n} beyond those that are kept")
        self.notes.update(row["notes"])
        self.errors += [(place, log_dir, DecodeError(**e)) for e in row["errors"]]
        if (run := row.get("recovery")) is not None:
            runs = self.recovery.setdefault(log_dir, [])
            if any(run[name] for name in OF_A_RUN):
                runs.append((place, run))
        self.chained.add(place, row)
        self.counted.add(place, row)

    def join(self, other: LogTotals) -> None:
        """Takes in those of other rows, which may lie between its own; when all are in it is to be :meth:`settled`."""
        for name in ("batches", "records", "with_records", "padded"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.padded_first = min(filter(None, (self.padded_first, other.padded_first)), default=None)
        for name in ("bytes", "refused", "open", "unlooked"):
            getattr(self, name).update(getattr(other, name))
        self.notes |= other.notes
        self.with_metadata |= other.with_metadata
        self.errors += other.errors
        for log_dir, runs in other.recovery.items():
            self.recovery.setdefault(log_dir, []).extend(runs)
        self.chained.join(other.chained)
        self.counted.join(other.counted)

    def settled(self) -> LogTotals:
        """Itself, what it lists in the order of the rows."""
        self.errors.sort(key=itemgetter(0))
        for runs in self.recovery.values():
            runs.sort(key=itemgetter(0))
        return self


def place_of(row: Values) -> Place:
    """By what rows of one kind are in order."""
    return (row["topic"], row["partition"], row.get("log_dir") or "", row.get("first_offset") or 0)
