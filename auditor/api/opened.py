"""Audits in Python programs: auditor.open and auditor.replay_batches."""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack, get_type_hints

from auditor import running
from auditor.api import objects, open_options
from auditor.api.objects import Blocked, Findings, Page, Table, Text, WhatIf
from auditor.api.open_options import AnyPath, Several, Time, check, moment_of, several
from auditor.base import user_input
from auditor.base.at_rest import Fields, Values
from auditor.base.errors import AuditInputError, require
from auditor.base.user_input import ClusterName
from auditor.connectors import schema
from auditor.connectors.live import client_properties
from auditor.connectors.stores import storage
from auditor.connectors.stores.results import ResultFolder
from auditor.dashboards.answers import RunReport
from auditor.model.policies import AUTO, CHOICES, DRAFT_WINDOW, named
from auditor.model.rehearsal import KILL, STOP, rehearse
from auditor.outputs import printing, publish
from auditor.outputs.delivery import writable
from auditor.pipeline import derived_tables, rehearsal_table
from auditor.pipeline import summary as pipeline_summary
from auditor.pipeline.options import AuditOptions, check_window, out_of
from auditor.pipeline.runner import Runner
from auditor.pipeline.what_if_audit import AuditWithVerdicts, WhatIfAudit
from auditor.pipeline.whole_audit import Audit, nobody

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from auditor.pipeline.frames_audit import FramesAudit, RecordsOfLogs
    from auditor.pipeline.runner import Replicas


class AuditFrontEnd(ABC):
    """The common part of audits in programs: sessions, tables, progress, closing."""

    _runner: Runner
    _shown: objects.Shown

    @property
    @abstractmethod
    def _audit(self) -> Audit:
        """The audit. Errors: ``AuditInputError`` if it is closed."""

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        # Around whatever may read: converts failures, and removes the progress line.
        try:
            with running.failures():
                yield
        finally:
            self._shown.done()

    def _session(self) -> SparkSession | None:
        session: SparkSession | None = getattr(self._runner, "spark", None)
        return session

    def _table(self, name: str, columns: pa.Schema) -> Table:
        return Table(name, columns, partial(self._rows, name), partial(self._frame, name), self._session)

    def _rows(self, name: str) -> pa.Table:
        with self._asking():
            rows = self._audit.table(name)
            return rows if self._session() is None else rows.toArrow()

    def _frame(self, name: str, spark: SparkSession) -> DataFrame | None:
        # None for a session other than the audit's own: its rows are sent from this process.
        with self._asking():
            return self._audit.table(name) if spark is self._session() else None

    @abstractmethod
    def close(self) -> None:
        """End what was started."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# An audit of paths or of a running cluster. It converts arguments and results; all work is done, lazily and once, by
# :mod:`auditor.pipeline.whole_audit`.


TABLES = derived_tables.NAMES
WIDTH = 110  # columns of an explanation


class OpenedAudit(AuditFrontEnd):
    """An audit opened by :func:`auditor.open`. Close it, or use it in ``with``, to end its processes."""

    def __init__(
        self,
        options: AuditOptions,
        runner: Runner,
        client_config: Values | None = None,
        *,
        live: bool = False,
        shown: objects.Shown | None = None,
    ) -> None:
        self._ends = contextlib.ExitStack()
        self._ends.callback(runner.close)
        self._runner = runner
        self._closed = False
        self._reported: tuple[int, RunReport] | None = None
        self._shown = shown or running.Progress(silent=True)
        self._say = nobody if self._shown.silent else self._shown.say
        try:
            self._opened: Audit = (
                self._live(options, client_config or {}) if live else AuditWithVerdicts(options, runner, self._say)
            )
        except BaseException:
            self._ends.close()
            raise

    @property
    def _audit(self) -> Audit:
        if self._closed:
            raise AuditInputError("this audit is closed; open it again with auditor.open, or ask before it is closed")
        if self._opened.options.work is not None:
            _ = self._work
        return self._opened

    @cached_property
    def _work(self) -> ResultFolder:
        # Checked once: facts must not be written into the input.
        with running.failures():
            return writable(out_of(self._opened.options.work or ""), self._opened.inventory, "work")

    def _live(self, options: AuditOptions, client_config: Values) -> Audit:
        require("kafka")
        from auditor.connectors.live.client_properties import MAX_BYTES, MAX_RATE
        from auditor.connectors.live.live_cluster import Budget, LiveCluster
        from auditor.pipeline.live_audit import ClusterReading, LiveAudit

        assert options.bootstrap is not None
        cluster = self._ends.enter_context(LiveCluster(options.bootstrap, dict(client_config)))
        return LiveAudit(ClusterReading(cluster, options, Budget(MAX_BYTES, MAX_RATE), "lso"), self._runner, self._say)

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables."""
        return TABLES

    def table(self, name: str) -> Table:
        """Return a table of docs/tables.md, of the same type with and without Spark. It is read on first use:
        ``.to_arrow()``, ``.to_pandas()``, ``.to_spark()``, ``.to_dicts()``.

        Errors: ``AuditInputError`` for an unknown name.
        """
        _ = self._audit
        name = derived_tables.FORMERLY.get(name, name)
        if name not in TABLES:
            raise AuditInputError(f"no table named {name!r}; one of {', '.join(TABLES)}")
        return self._table(name, derived_tables.all_columns(self._opened.options.include_payload)[name])

    def _rows(self, name: str) -> pa.Table:
        if self._session() is None:
            return super()._rows(name)
        with self._asking():
            return self._audit.query(f"SELECT * FROM {name}")  # which outlives a file that kills its reader

    def sql(self, text: str) -> Table:
        """Return the result of an SQL text over the tables, held in memory. Spark's SQL, or DuckDB's without Spark.

        Errors: ``AuditInputError`` for an invalid text, or if DuckDB is needed and not installed.
        """
        with self._asking():
            return Table.of("sql", self._audit.query(text), self._session)

    @cached_property
    def findings(self) -> Findings:
        """All findings, the most severe first. On first use all input is read and judged."""
        with self._asking():
            if self._opened.options.cluster_name is not None:
                pipeline_summary.cluster_names(self._audit)  # which may be a usage error
            return Findings(self._audit.findings, pipeline_summary.findings_table(self._audit), self._session)

    @cached_property
    def blocked(self) -> Blocked:
        """The partitions with an open transaction as objects, the worst first; the rows of
        ``audit.table("blocked")``."""
        with self._asking():
            return Blocked(pipeline_summary.blocked_table(self._audit), self._session)

    @cached_property
    def cluster_names(self) -> dict[str, ClusterName]:
        """The names of the input's clusters by id, from ``cluster_name`` and ``clusters``.

        Errors: ``AuditInputError`` for one name of several clusters.
        """
        with self._asking():
            return pipeline_summary.cluster_names(self._audit)

    @property
    def _report(self) -> RunReport:
        """The results, described once; anew where tables have shown files that kill their reader since."""
        fatal = len(self._audit.fatal)
        if self._reported is None or self._reported[0] != fatal:
            self._reported = fatal, publish.run_report(self._audit)
        return self._reported[1]

    @cached_property
    def summary(self) -> Fields:
        """The content of ``summary.json``: counts, inputs, all bytes by what became of them, each log."""
        with self._asking():
            result = self._report.summary
            return result | {name: [*result[name]] for name in ("logs", "blocked")}

    @property
    def exit_status(self) -> int:
        """The exit code of ``auditor audit``: 0, 1 (findings at or above ``fail_on``), 3 (input unread or empty)."""
        with self._asking():
            return self._audit.exit_code()

    def explain(self, fingerprint: str) -> Text:
        """Return one finding with its evidence and its rule, by its fingerprint or the first digits of it."""
        row = printing.finding_by_fingerprint(self.findings.to_dicts(), fingerprint)
        with self._asking():
            return Text(printing.text(row, WIDTH, self._audit.cluster_events))

    def timeline(self, topic: Several = ()) -> Page:
        """Return a picture of the transactions per partition, blocked ones first. ``topic``: globs, by default all."""
        from auditor.dashboards.report import render_timelines

        check({"topic": topic}, {"topic": Several})
        with self._asking():
            shown = self._audit.judged["timeline"]
            if globs := several(topic):
                shown = [row for row in shown if any(fnmatch.fnmatchcase(row["topic"], glob) for glob in globs)]
            html = render_timelines(self._report, self._audit.judged["open"], shown)
        return Page(html, 420)

    def report(self) -> Page:
        """Return the page ``report.html``."""
        with self._asking():
            return Page(publish.report_page(self._audit, self._report), 720)

    def what_if(self, *policies: str, duplicate_window: int = DRAFT_WINDOW) -> WhatIf:
        """Compare the history with other broker policies, by default all: which batches would have been rejected.

        The policy that the input was written under is included. ``duplicate_window``: how many sequence numbers before
        the newest the draft policy accepts as duplicates. Errors: ``AuditInputError`` for an unknown policy, a window
        below 1, and for a running cluster.
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

    def rehearse(self, broker: int, *, killed: bool = False) -> Table:
        """Return what happens if a broker stops, or is ``killed``: rows of the table ``rehearsal``, worst first.

        Errors: ``AuditInputError`` for a broker that the input does not know.
        """
        check({"broker": broker, "killed": killed}, {"broker": int, "killed": bool})
        how = KILL if killed else STOP
        with self._asking():
            states = {id: s for id, s in self._audit.states.items() if broker in s.brokers or broker in s.starts}
            if not states:
                raise AuditInputError(f"the input has no broker {broker}")
            rows = [
                rehearsal_table.row_of(risk, id, broker, how)
                for id, s in states.items()
                for risk in rehearse(s, broker, how)
            ]
            return Table.of("rehearsal", rehearsal_table.table_of_rows(rows), self._session)

    def write(
        self,
        out: AnyPath,
        *,
        tables: bool = False,
        expectations: bool = False,
        history: AnyPath | None = None,
        history_format: str = "parquet",
        run_id: str | None = None,
    ) -> Path | str:
        """Write the results of ``auditor audit --out``, with its options of these names; return the directory or URI.

        Errors: ``AuditInputError`` if the target cannot be written, belongs to another run, or is in a log directory.
        """

        check(locals(), get_type_hints(OpenedAudit.write))
        history_dir = None if history is None else out_of(os.fspath(history))
        if history_dir is not None and run_id is None:
            from auditor.outputs import runs

            run_id = runs.new_run_id()
        where = out_of(os.fspath(out))
        before = self._audit.options
        self._audit.options = dataclasses.replace(
            before, out=where, tables=tables, expectations=expectations, history=history_dir,
            history_format=history_format, run_id=run_id,
        )  # fmt: skip
        try:
            with self._asking():
                running.write(self._audit)
        finally:
            self._audit.options = before
        return where

    def close(self) -> None:
        """End what was started. A session of the caller stays open; findings and Arrow tables remain valid."""
        self._closed = True
        self._opened.close()
        self._ends.close()

    def _repr_html_(self) -> str:
        # No findings until they were asked for: a notebook's display must not start an audit.
        if self._closed or not self._opened.is_known("findings"):
            return objects.unread_html(repr(self), "audit.findings")
        names = ", ".join(cluster.name for cluster in self.cluster_names.values())
        headline = ": ".join(filter(None, (names, self.summary["verdict"]["headline"])))
        return objects.audit_html(headline, self.blocked.to_dicts(), self.findings)

    def __repr__(self) -> str:
        options = self._opened.options
        what = ", ".join(map(user_input.shown_uri, options.paths)) or options.bootstrap
        return f"<{'closed ' * self._closed}audit of {what} by {self._runner.name}>"


def open(
    *paths: open_options.AnyPath,
    spark: SparkSession | None = None,
    master: str | None = None,
    bootstrap_server: str | None = None,
    client_config: Values | None = None,
    command_config: open_options.AnyPath | None = None,
    progress: bool | None = None,
    **more: Unpack[open_options.OpenOptions],
) -> OpenedAudit:
    """Open an audit of log directories, or of a running cluster. Nothing is read until something is asked for.

    Arguments:
        paths: Log directories, folders above some, partition folders, files, URIs (``s3://...``).
        spark: The session to run on, classic or Connect. It stays open; the data sources are registered in it.
        master: Where ``spark`` is not given: ``inline`` (the default: processes of this machine, no Java),
            ``inline[N]``, or a Spark master such as ``local[4]`` or ``sc://HOST:PORT``.
        bootstrap_server: With paths, the address in suggested commands. Without, the cluster to read, by read-only
            requests (needs the extra ``live``).
        client_config: Options of the connection to that cluster, by kafka-python's names.
        command_config: Instead, a file of Java client properties, as every Kafka tool takes.
        progress: Whether to show a progress line. By default in notebooks only.
        more: The options of ``auditor audit`` by name (:class:`OpenOptions`).

    Returns:
        The audit, which is also a context manager.

    Errors:
        ``AuditInputError``, one sentence, for a wrong argument or a path that does not exist. Cost: one request per
        URI.
    """
    own = {
        "master": master,
        "bootstrap_server": bootstrap_server,
        "client_config": client_config,
        "command_config": command_config,
        "progress": progress,
    }
    check(own, get_type_hints(open, localns={"SparkSession": Any}))
    if not paths and bootstrap_server is None:
        raise AuditInputError("auditor.open needs a path, or the bootstrap_server of a running cluster")
    if wrong := [path for path in paths if not isinstance(path, str | os.PathLike)]:
        given = type(wrong[0]).__name__
        raise AuditInputError(f"a path is a text or a Path, not a {given}; give several as open(*paths)")
    if spark is not None and not hasattr(spark, "createDataFrame"):
        given = type(spark).__name__
        raise AuditInputError(f"spark is a SparkSession, not a {given}; give the URL of a master as master=")
    if spark is not None and master is not None:
        raise AuditInputError("auditor.open takes spark or master, not both")
    live = not paths
    if live and more.get("work") is not None:
        raise AuditInputError("work keeps what was read of log directories; a running cluster is read again each time")
    chosen = open_options.audit_options(
        paths,
        {**more, "as_of": "now"} if live and more.get("as_of") is None else more,
        bootstrap=bootstrap_server,
        master=master or "inline",
    )
    with running.failures():
        for path in chosen.inputs:
            storage.place(path)
    if spark is not None:
        from auditor.spark.session import register

        register(spark)
    if live and command_config is not None:
        client_config = {**client_properties.connection(Path(command_config)), **(client_config or {})}
    runner = running.runner_for(chosen.master, spark)
    return OpenedAudit(chosen, runner, client_config if live else None, live=live, shown=objects.progress(progress))


open.__signature__ = open_options.signature(open)  # type: ignore[attr-defined]


# Replay of batches in frames.


# What is not decided, because batches do not show it.
UNDECIDED = (
    "who owns a producer id: transactional ids and keys of whole transactions are null (__transaction_state)",
    "whether an open transaction hangs: its class is undecidable (__transaction_state, the high watermark)",
    "whether records are missing or were cleaned, unless `compacted` says which topics are: a log with holes counts "
    "as cleaned (topic settings, the cleaner's checkpoint)",
    "where a log starts but for its first batch, and what its broker remembered there (checkpoints, snapshots)",
    "what indexes, leader-epoch checkpoints, records and committed offsets say, and whether replicas are alike",
)


def replay_batches(
    batches: Any, *, transaction_log: Any = None, offset_commits: Any = None, group_metadata: Any = None,
    metadata: Mapping[str, Any] | None = None, at_once: bool = False, as_of: Time | None = None,
    compacted: Several | None = None, rule: Several = (), skip_rule: Several = (), master: str | None = None,
    progress: bool | None = None,
) -> ReplayedBatches:  # fmt: skip
    """Replay the batches of a frame through the model of a correct broker, partition by partition.

    Arguments:
        batches: The columns of the table ``batches``: a DataFrame of Spark, classic or Connect
            (``spark.read.format("kafka_log_batches")``, ``--tables``, your own lake), which runs on its session; or an
            object with Arrow data (``pyarrow.Table``, pandas, polars, DuckDB, ``audit.table("batches")``), which runs
            in processes of this machine. ``last_sequence`` is not needed; ``cluster_id``, ``broker_id``, ``log_dir``,
            ``crc_ok``, ``flaws`` and ``delete_horizon`` may be absent. Rows may come in any order.
        transaction_log: The table of this name, of logs whose batches are among ``batches``, brought to this process.
            With it open transactions are decided as in an audit, and transactional ids are known.
        offset_commits: The table of this name, likewise, with ``group_metadata``: findings about committed offsets.
        group_metadata: The table of this name, likewise.
        metadata: By name the tables ``partitions``, ``topic_configs`` and ``broker_configs``: leaders and settings.
        at_once: All frames are of one moment: do not excuse differences by the time of copying.
        as_of: When the batches were read, for timeouts: a ``datetime``, ISO-8601 or epoch milliseconds. Default: the
            newest broker-written time in the batches.
        compacted: Globs of all compacted topics; a gap in another topic is then lost data. By default unknown: a log
            with gaps counts as compacted.
        rule: Only this rule, or these.
        skip_rule: All but this rule, or these.
        master: For a frame that is not Spark's: ``inline`` (the default) or ``inline[N]``.
        progress: Whether to show a progress line. By default in notebooks only.

    Returns:
        The result, a context manager. Batches are replayed once, on first use.

    Errors:
        ``AuditInputError``, one sentence, for a frame that lacks columns of ``batches`` or has them with other types,
        and for an argument of another type.
    """
    from auditor.pipeline import frames_audit

    check(locals(), get_type_hints(replay_batches))
    shown, cleaned = objects.progress(progress), None if compacted is None else several(compacted)
    session = getattr(batches, "sparkSession", None)
    if isinstance(batches, Table) and (session := batches._session()) is not None:
        batches = batches.to_spark()
    options = AuditOptions(
        ("the frame",),
        Path(),
        at_once=at_once,
        as_of=moment_of(as_of),
        rules=several(rule),
        skip_rules=several(skip_rule),
        master=master or "inline",
    )
    of_topics = zip(frames_audit.RECORDS, (transaction_log, offset_commits, group_metadata), strict=True)
    records = frames_audit.records_of_logs(_tables(of_topics))
    settings = frames_audit.settings_of(_tables((metadata or {}).items()))
    if session is not None:
        from auditor.spark import spark_runner
        from auditor.spark.session import register

        spark_runner.check(batches)
        register(session)
        runner: Any = running.runner_for(options.master, session)
        read: Callable[[], Replicas] = partial(spark_runner.replicas, runner, batches, cleaned, records)
    else:
        table = _arrow(batches)
        frames_audit.check(table.schema)
        runner = running.runner_for(options.master)
        read = partial(_replicas, runner, table, cleaned, records)
    audit = frames_audit.FramesAudit(options, runner, read, settings, nobody if shown.silent else shown.say)
    return ReplayedBatches(audit, runner, shown, UNDECIDED[0 if transaction_log is None else 2 :])


def _tables(given: Iterable[tuple[str, Any]]) -> dict[str, pa.Table]:
    return {name: _arrow(rows, name) for name, rows in given if rows is not None}


def _arrow(rows: Any, name: str = "batches") -> pa.Table:
    import pyarrow as pa

    if isinstance(rows, pa.Table):
        return rows
    if hasattr(rows, "toArrow"):
        return rows.toArrow()
    if not hasattr(rows, "__arrow_c_stream__"):
        given = type(rows).__name__
        raise AuditInputError(f"{name} is a DataFrame of Spark, or what gives Arrow's data, not a {given}")
    return pa.table(rows)


def _replicas(runner: Runner, table: pa.Table, compacted: tuple[str, ...] | None, records: RecordsOfLogs) -> Replicas:
    from auditor.pipeline.frames_audit import in_order, replicas_of
    from auditor.pipeline.runner import pair_of

    return runner.keep(lambda: map(pair_of, replicas_of(in_order(table), compacted, records)))


class ReplayedBatches(AuditFrontEnd):
    """The result of :func:`replay_batches`: tables, which are DataFrames by ``.to_spark()``, and findings.

    ``undecided``: what is not decided because batches do not show it, in sentences.
    """

    def __init__(self, audit: FramesAudit, runner: Runner, shown: objects.Shown, undecided: Sequence[str]) -> None:
        self._replayed, self.undecided = audit, undecided
        self._runner = runner
        self._shown = shown

    @property
    def _audit(self) -> FramesAudit:
        return self._replayed

    @property
    def events(self) -> Table:
        """The table ``events``: what was unusual in each replica."""
        return self._table("events", schema.TABLES["events"].schema())

    @property
    def transactions(self) -> Table:
        """The table ``transactions``: one row per transaction."""
        return self._table("transactions", schema.TABLES["transactions"].schema())

    @property
    def transaction_partitions(self) -> Table:
        """The table ``transaction_partitions``: one row per transaction of a producer in a replica."""
        return self._table("transaction_partitions", schema.TABLES["transaction_partitions"].schema())

    @property
    def producers(self) -> Table:
        """The table ``producer_states``: the producer state at the end of each log."""
        return self._table("producer_states", schema.TABLES["producer_states"].schema())

    @cached_property
    def findings(self) -> Findings:
        """All findings, the most severe first."""
        with self._asking():
            return Findings(self._audit.findings, pipeline_summary.findings_table(self._audit), self._session)

    def close(self) -> None:
        """End what was started. The session of the frame stays open."""
        self._replayed.close()
        self._runner.close()
