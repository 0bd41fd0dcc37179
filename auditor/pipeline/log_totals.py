"""What the rows of all logs come to, in one pass over them: they are at rest, and there may be a million."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from auditor.base.words import plural
from auditor.connectors.names import METADATA_TOPIC

BYTES = ("total", "decoded", "skipped", "error")
OF_A_RUN = ("truncates", "poison", "undecided", "from_recovery_point")  # of a dry run, where there is something to say


@dataclass(slots=True)
class LogTotals:
    """Sums over the rows of kind ``log`` (:func:`auditor.pipeline.judge.judge_log`).

    ``refused``: what leaders would have refused, by column of ``sums``, each log once. ``open``: open transactions by
    class. ``padded``: replicas with bytes that were skipped, of which ``padded_example`` is the first. ``recovery``: by
    log directory the dry runs of its logs, those in which nothing happens left out. ``unlooked``: by log directory the
    batches whose records were to be looked at, and are in no copy; ``with_records``: how many there are whose
    records can be.
    """

    batches: int = 0
    records: int = 0
    bytes: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    open: Counter[str] = field(default_factory=Counter)
    padded: int = 0
    padded_example: str = ""
    notes: set[str] = field(default_factory=set)
    topics: set[tuple[str, str]] = field(default_factory=set)  # with their log directory
    recovery: dict[str, list[Any]] = field(default_factory=dict)
    unlooked: Counter[str] = field(default_factory=Counter)
    with_records: int = 0

    @classmethod
    def of(cls, rows: Iterable[dict[str, Any]]) -> LogTotals:
        """Those of some rows, in their order."""
        totals = cls()
        for row in rows:
            totals._add(row)
        return totals

    def _add(self, row: dict[str, Any]) -> None:
        sums, log = row["sums"], f"{row['topic']}-{row['partition']}"
        self.batches += sums["batches"]
        self.records += sums["records"]
        self.with_records += sums["batches"] if row["topic"] != METADATA_TOPIC else 0
        self.unlooked[row["log_dir"]] += row["unlooked"]
        for name in BYTES:
            self.bytes[name] += sums[f"bytes_{name}"]
        if row["leader_copy"]:
            self.refused.update(sums)
        self.open.update(row["open_transactions"])
        if sums["bytes_skipped"]:
            self.padded_example = self.padded_example or f"{row['log_dir']}/{log}"
            self.padded += 1
        if row["dropped_events"]:
            n = plural(sum(row["dropped_events"].values()), "event")
            self.notes.add(f"{log} in {row['log_dir']}: {n} beyond those that are kept")
        self.notes.update(row["notes"])
        self.topics.add((row["log_dir"], row["topic"]))
        if (run := row.get("recovery")) is not None:
            runs = self.recovery.setdefault(row["log_dir"], [])
            if any(run[name] for name in OF_A_RUN):
                runs.append(run)
