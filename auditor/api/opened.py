"""An audit in a Python program: opened from paths or a running cluster, asked for what is wanted, closed.

A thin face of the one audit (:mod:`auditor.pipeline.whole_audit`): it turns Python's arguments into its options, and
what it gives into what programs and notebooks take. Nothing is read before it is asked for, and nothing twice.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self, get_type_hints

from auditor import running
from auditor.api import notebook
from auditor.api.blocked import Blocked
from auditor.api.compared_policies import WhatIf
from auditor.api.face import Face
from auditor.api.finding_list import Findings
from auditor.api.hints import check
from auditor.api.notebook import Page, Text
from auditor.api.open_options import AnyPath, Several, several
from auditor.api.tabular import Table
from auditor.base import user_input
from auditor.base.at_rest import Fields, Values
from auditor.base.errors import AuditInputError, require
from auditor.base.user_input import Named
from auditor.connectors.stores.results import Folder
from auditor.model.policies import AUTO, CHOICES, DRAFT_WINDOW, named
from auditor.outputs import printing, publish
from auditor.outputs.delivery import writable
from auditor.pipeline import derived_tables
from auditor.pipeline import summary as pipeline_summary
from auditor.pipeline.options import AuditOptions, check_window, out_of
from auditor.pipeline.table_parts import schemas
from auditor.pipeline.what_if_audit import AuditWithVerdicts, WhatIfAudit
from auditor.pipeline.whole_audit import Audit, nobody

if TYPE_CHECKING:
    import pyarrow as pa

    from auditor.pipeline.runner import Runner

TABLES = derived_tables.NAMES
WIDTH = 110  # columns of an explanation


class OpenedAudit(Face):
    """An audit that was opened by :func:`auditor.open`. Close it, or use it in ``with``, to end its processes."""

    def __init__(
        self,
        options: AuditOptions,
        runner: Runner,
        client_config: Values | None = None,
        *,
        live: bool = False,
        shown: notebook.Shown | None = None,
    ) -> None:
        self._ends = contextlib.ExitStack()
        self._ends.callback(runner.close)
        self._runner = runner
        self._closed = False
        self._shown = shown or running.Progress(silent=True)
        self._say = nobody if self._shown.silent else self._shown.say
        with _closing_on_error(self._ends):
            self._opened: Audit = (
                self._live(options, client_config or {}) if live else AuditWithVerdicts(options, runner, self._say)
            )

    @property
    def _audit(self) -> Audit:
        """The audit. Errors: :class:`AuditInputError` once it is closed."""
        if self._closed:
            raise AuditInputError("this audit is closed; open it again with auditor.open, or ask before it is closed")
        if self._opened.options.work is not None:
            _ = self._work
        return self._opened

    @cached_property
    def _work(self) -> Folder:
        """Where facts are kept: outside of what is read. Errors: as of :func:`claim.writable`."""
        with running.failures():
            return writable(out_of(self._opened.options.work or ""), self._opened.inventory, "work")

    def _live(self, options: AuditOptions, client_config: Values) -> Audit:
        require("kafka")
        from auditor.connectors.live.client_options import MAX_BYTES, MAX_RATE
        from auditor.connectors.live.live_cluster import Budget, LiveCluster
        from auditor.pipeline.live_audit import LiveAudit, Reading

        assert options.bootstrap is not None
        cluster = self._ends.enter_context(LiveCluster(options.bootstrap, dict(client_config)))
        return LiveAudit(Reading(cluster, options, Budget(MAX_BYTES, MAX_RATE), "lso"), self._runner, self._say)

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables."""
        return TABLES

    def table(self, name: str) -> Table:
        """A table of docs/tables.md, of one type whatever the audit runs on. Nothing is read before its rows are asked
        for: ``.to_arrow()``, ``.to_pandas()``, ``.to_spark()``, ``.to_dicts()``.

        Errors: ``AuditInputError`` for a name that is none.
        """
        _ = self._audit
        if name not in TABLES:
            raise AuditInputError(f"no table named {name!r}; one of {', '.join(TABLES)}")
        return self._table(name, schemas(self._opened.options.include_payload)[name])

    def _rows(self, name: str) -> pa.Table:
        if self._session() is None:
            return super()._rows(name)
        with self._asking():
            return self._audit.query(f"SELECT * FROM {name}")  # which outlives a file that kills its reader

    def sql(self, text: str) -> Table:
        """The answer to an SQL text over the tables, held in memory: Spark's SQL, or without Spark DuckDB's.

        Errors: ``AuditInputError`` for a text that is wrong, or where DuckDB is needed and not there.
        """
        with self._asking():
            return Table.of("sql", self._audit.query(text), self._session)

    @cached_property
    def findings(self) -> Findings:
        """What was found, the worst first. The first time, all input is read and judged."""
        with self._asking():
            if self._opened.options.cluster_name is not None:
                pipeline_summary.cluster_names(self._audit)  # which may be a wrong call
            return Findings(self._audit.findings, pipeline_summary.findings_table(self._audit), self._session)

    @cached_property
    def blocked(self) -> Blocked:
        """The partitions that transactions hold, as objects, the worst first; what ``audit.table("blocked")`` has."""
        with self._asking():
            return Blocked(pipeline_summary.blocked_table(self._audit), self._session)

    @cached_property
    def cluster_names(self) -> dict[str, Named]:
        """What people call the clusters of the input, by id, as ``cluster_name`` and ``clusters`` said.

        Errors: ``AuditInputError`` for one name of several clusters.
        """
        with self._asking():
            return pipeline_summary.cluster_names(self._audit)

    @cached_property
    def summary(self) -> Fields:
        """What ``summary.json`` holds: counts, inputs, every byte accounted for, each log."""
        with self._asking():
            found = publish.summarise(self._audit)
            return found | {name: [*found[name]] for name in ("logs", "blocked")}

    @property
    def exit_status(self) -> int:
        """What ``auditor audit`` would end with: 0, 1 (findings at or above ``fail_on``), 3 (input unread or empty)."""
        with self._asking():
            return self._audit.exit_code()

    def explain(self, fingerprint: str) -> Text:
        """One finding with its evidence and its rule, by its fingerprint or the first digits of it."""
        row = printing.one(self.findings.to_dicts(), fingerprint)
        with self._asking():
            return Text(printing.text(row, WIDTH, self._audit.cluster_events))

    def timeline(self, topic: Several = ()) -> Page:
        """The transactions of partitions as a picture, those that are blocked first; of topics by glob, or all."""
        from auditor.dashboards.report import render_timelines

        check({"topic": topic}, {"topic": Several})
        with self._asking():
            rows = publish.described_findings(self._audit)
            shown = [row for row in self._audit.judged["timeline"] if _matches(row["topic"], several(topic))]
            html = render_timelines(rows, self.summary, self._audit.judged["open"], shown)
        return Page(html, 420)

    def report(self) -> Page:
        """The page that ``report.html`` is."""
        with self._asking():
            return Page(publish.report_page(self._audit), 720)

    def what_if(self, *policies: str, duplicate_window: int = DRAFT_WINDOW) -> WhatIf:
        """The same history under other broker policies (all of them where none is named): who would have been refused.

        The policy that the input itself worked under comes along, to compare with. ``duplicate_window``: how many
        sequence numbers behind the newest the draft takes for duplicates.

        Errors: ``AuditInputError`` for a policy that is none, a window below 1, and for a running cluster.
        """
        if not isinstance(self._audit, AuditWithVerdicts):
            raise AuditInputError("what-if needs log directories; a running cluster does not give what it compares")
        check(
            {"policies": policies, "duplicate_window": duplicate_window}, {"policies": Several, "duplicate_window": int}
        )
        for policy in policies:
            if policy not in CHOICES or policy == AUTO:
                raise AuditInputError(
                    f"no policy named {policy!r}; one of {', '.join(n for n in CHOICES if n != AUTO)}"
                )
        check_window(duplicate_window)
        options = dataclasses.replace(self._audit.options, fail_on="never")
        audit = WhatIfAudit(options, self._runner, named(policies), duplicate_window, self._say)
        return WhatIf(audit, self._asking, self._session)

    def write(
        self,
        out: AnyPath,
        *,
        tables: bool = False,
        expectations: bool = False,
        history: AnyPath | None = None,
        run_id: str | None = None,
    ) -> Path | str:
        """Writes what ``auditor audit --out`` writes, with its options of these names, and returns the folder or URI.

        Errors: ``AuditInputError`` where it cannot be written, is another run's, or is in a log directory.
        """
        own = {"out": out, "tables": tables, "expectations": expectations, "history": history, "run_id": run_id}
        check(own, get_type_hints(OpenedAudit.write))
        kept = None if history is None else out_of(os.fspath(history))
        if kept is not None and run_id is None:
            from auditor.outputs import runs

            run_id = runs.new_run_id()
        where = out_of(os.fspath(out))
        before = self._audit.options
        self._audit.options = dataclasses.replace(
            before, out=where, tables=tables, expectations=expectations, history=kept, run_id=run_id
        )
        try:
            with self._asking():
                running.write(self._audit)
        finally:
            self._audit.options = before
        return where

    def close(self) -> None:
        """Ends what was started. A session of the caller's stays open; findings and Arrow tables stay what they are."""
        self._closed = True
        self._opened.close()
        self._ends.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _repr_html_(self) -> str:
        """Who is blocked and what to do, once something was asked that needed reading: nothing is read for a look."""
        if self._closed or not self._opened.is_known("findings"):
            return notebook.unread_html(repr(self), "audit.findings")
        names = ", ".join(known.name for known in self.cluster_names.values())
        headline = ": ".join(filter(None, (names, self.summary["verdict"]["headline"])))
        return notebook.audit_html(headline, self.blocked.to_dicts(), self.findings)

    def __repr__(self) -> str:
        options = self._opened.options
        what = ", ".join(map(user_input.shown_uri, options.paths)) or options.bootstrap
        return f"<{'closed ' * self._closed}audit of {what} by {self._runner.name}>"


@contextlib.contextmanager
def _closing_on_error(ends: contextlib.ExitStack) -> Iterator[None]:
    try:
        yield
    except BaseException:
        ends.close()
        raise


def _matches(topic: str, globs: tuple[str, ...]) -> bool:
    return not globs or any(fnmatch.fnmatchcase(topic, glob) for glob in globs)
