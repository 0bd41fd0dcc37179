"""The audit from top to bottom: open, read, judge, publish. The table of contents of the program.

Every surface (``audit``, ``sql``, ``what-if``, ``live``, ``watch``, the tests) opens an :class:`Audit` and asks it for
what it needs. Nothing is done before it is asked for, and nothing twice.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from auditor.base.at_rest import Fields
from auditor.base.errors import VENDOR, AuditInputError, DecodeError, is_unread
from auditor.connectors.logdir.files import Inventory
from auditor.connectors.logdir.inventory import MIXED
from auditor.connectors.logdir.names import COPY_LIST
from auditor.pipeline import held, results
from auditor.pipeline.judged_audit import JudgedAudit
from auditor.pipeline.tables import derived_tables
from auditor.processes.isolation import KILLS
from auditor.rules.seen.view import SEVERITIES

if TYPE_CHECKING:
    import pyarrow as pa


class Audit(JudgedAudit):
    """One audit of ``options.paths`` by a way to run. What it gives is computed when it is first asked for, and kept.

    What there is and is read: :class:`ReadAudit`; what the rules find: :class:`JudgedAudit`; here tables, and what came
    of it all.
    """

    def table(self, name: str) -> Any:
        """A table as the way to run has tables: Spark's DataFrame, or Arrow's table.

        Errors: :class:`AuditInputError` for a name that is none. Cost: on Spark nothing before the frame is used, but
        for the derived tables, which need the replay; else the table's files are read, and its rows held in memory.
        """
        if name not in derived_tables.NAMES:
            raise AuditInputError(f"no table named {name!r}; one of {', '.join(derived_tables.NAMES)}")
        _ = self.inventory
        self.ready()
        return self.runner.table(self, name)

    def query(self, text: str) -> pa.Table:
        """The result of an SQL text over the tables.

        Errors: :class:`AuditInputError` for a text that is wrong. Cost: what the tables that the text names cost; the
        derived ones need the replay, ``findings`` the rules too. The result is held in memory.
        """
        _ = self.inventory  # a wrong path is said before anything starts
        if (names := derived_tables.listed(text)) is not None:
            return names
        self.ready()
        return self.runner.query(self, text, derived_tables.mentioned(text))

    def held(self, table: str) -> pa.Table | None:
        """A table that is made without reading data files; None for one that is decoded or derived from facts."""
        if table == "findings":
            return results.findings_table(self)
        if table == "blocked":
            return results.blocked_table(self)
        return derived_tables.of_metadata(self.settings, table) if table in derived_tables.OF_METADATA else None

    def written_tables(self) -> list[str]:
        """The tables that ``--tables`` writes; ``records`` only under ``--records``. ``decode_errors`` is the last of
        those that are decoded, and so knows what reading the others died of."""
        names = [name for name in derived_tables.NAMES if name != "verdicts"]
        return [name for name in names if name != "records" or self.options.records]

    # what came of it

    def unread(self) -> list[tuple[str, DecodeError]]:
        """What could not be read or decoded so far, each with its log directory, and once: several may have tried."""
        found = [(u.log_dir, u.error) for u in self.inventory.errors]
        found += [(log_dir, error) for log_dir, error in self.outside if error.reason != VENDOR]
        found += self._errors_of_logs if self.is_known("judged") else []
        mixed = sorted(self.mixed) if self.is_known("clusters") else []
        found += [(name, DecodeError(COPY_LIST, 0, -1, "unreadable", MIXED)) for name in mixed]
        return list(dict.fromkeys(found + self.fatal))

    @property
    def _errors_of_logs(self) -> list[tuple[str, DecodeError]]:
        return [(log_dir, error) for _, log_dir, error in self.logs.totals.errors]

    def refused(self) -> dict[str, str]:
        """Paths of the files that are known to kill their reader, with the reason."""
        places = {log_dir.name: log_dir.place for log_dir in self.inventory.log_dirs}
        found = [(name, e) for name, e in self.unread() if name in places and e.detail.startswith(KILLS)]
        replicas = [(d.name, c) for d in self.inventory.log_dirs for c in d.replicas] if found else []
        remote = {(name, f.name): f.place for name, c in replicas for f in c.files() if f.place is not None}
        return {f"{remote.get((name, e.file), places[name]).path}/{e.file}": e.detail for name, e in found}

    def incomplete(self) -> bool:
        """Whether a part of the input could not be read (not: read and found damaged, in flight or gone), or there was
        nothing to judge though the cluster is not known to be new."""
        if (empty := self.empty_input) is not None and not empty.is_new:
            return True
        return any(is_unread(error.reason, error.detail) for _, error in self.unread())

    def exit_code(self) -> int:
        """0, 1 or 3 as the contract says; 3 goes before 1. What the baseline accepts does not count.

        Partitions that are held count by themselves: what is said of one may be about a log that ``--topic`` left out.
        """
        if self.incomplete():
            return 3
        level = self.options.fail_on
        failing = () if level == "never" else SEVERITIES[: SEVERITIES.index(level) + 1]
        if not failing:
            return 0
        unsure = self.options.fail_on_unsure
        found = any(f.severity in failing for f in self.open_findings)
        unlooked = unsure and self.logs.totals.unlooked.total() > 0
        return int(found or unlooked or any(held.fails(row, failing, unsure) for row in self.blocked))

    def spared(self) -> Inventory | None:
        """The input that results must not be written into; None where it is no folder."""
        return self.inventory

    def staged(self, folder: Path) -> None:
        """Hears where its results are being gathered, before anything is read."""

    def of_summary(self) -> Fields:
        """What the summary says beyond what every audit's says."""
        return {}
