"""Replay as an operation on frames: :func:`replay_batches`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, get_type_hints

from auditor import running
from auditor.api import notebook
from auditor.api.face import Face
from auditor.api.finding_list import Findings
from auditor.api.hints import check
from auditor.api.open_options import Several, Time, moment_of, several
from auditor.api.tabular import Table
from auditor.base.errors import AuditInputError
from auditor.pipeline import summary
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.table_parts import schemas

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from auditor.pipeline.frames_audit import FramesAudit
    from auditor.pipeline.runner import Replicas, Runner

# What batches do not carry, and what is therefore not decided.
UNDECIDED = (
    "who owns a producer id: transactional ids and keys of whole transactions are null (__transaction_state)",
    "whether an open transaction hangs: its class is undecidable (__transaction_state, the high watermark)",
    "whether records are missing or were cleaned, unless `compacted` says which topics are: a log with holes counts "
    "as cleaned (topic settings, the cleaner's checkpoint)",
    "where a log starts but for its first batch, and what its broker remembered there (checkpoints, snapshots)",
    "what indexes, leader-epoch checkpoints, records and committed offsets say, and whether replicas are alike",
)


def replay_batches(
    batches: Any, *, as_of: Time | None = None, compacted: Several | None = None, rule: Several = (),
    skip_rule: Several = (), master: str | None = None, progress: bool | None = None,
) -> ReplayedBatches:  # fmt: skip
    """Replays batches that lie in a frame through the model of a correct broker, a partition a group.

    Arguments:
        batches: The columns of the table ``batches``, wherever they come from: a DataFrame of Spark, classic or Connect
            (``spark.read.format("kafka_log_batches")``, ``--tables``, a lake of one's own), which runs on its session;
            or what gives Arrow's data (``pyarrow.Table``, pandas, polars, DuckDB, ``audit.table("batches")``), which
            runs in processes of this machine. ``last_sequence`` is not needed; ``cluster_id``, ``broker_id``,
            ``log_dir``, ``crc_ok``, ``flaws`` and ``delete_horizon`` may be absent. Rows may come in any order.
        as_of: When the batches were read, which time-outs are judged by: a ``datetime``, ISO-8601 or epoch
            milliseconds. Default: the newest broker-written time among them.
        compacted: Globs of the topics that are compacted, none of the others being so: then a hole in one of those is
            lost data. Not given: nobody knows, and a log with holes counts as cleaned.
        rule: Only this rule, or these.
        skip_rule: All but this rule, or these.
        master: Of a frame that is not Spark's: ``inline`` (the default) or ``inline[N]``.
        progress: Whether a line says what is being done. By default it does in notebooks.

    Returns:
        What came of it, a context manager. Nothing is replayed before it is asked for, and nothing twice.

    Errors:
        ``AuditInputError``, one sentence, for a frame without the columns of ``batches``, or of other types, and for an
        argument of another type.
    """
    from auditor.pipeline import frames_audit

    own = {
        "as_of": as_of,
        "compacted": compacted,
        "rule": rule,
        "skip_rule": skip_rule,
        "master": master,
        "progress": progress,
    }
    check(own, get_type_hints(replay_batches))
    shown, cleaned = notebook.progress(progress), None if compacted is None else several(compacted)
    session = getattr(batches, "sparkSession", None)
    if session is None and (session := _session_of(batches)) is not None:
        batches = batches.to_spark()
    options = AuditOptions(
        ("the frame",),
        Path(),
        as_of=moment_of(as_of),
        rules=several(rule),
        skip_rules=several(skip_rule),
        master=master or "inline",
    )
    if session is not None:
        from auditor.spark import spark_runner
        from auditor.spark.session import register

        spark_runner.check(batches)
        register(session)
        read: Callable[[], Replicas] = partial(spark_runner.replicas, batches, cleaned)
    else:
        table = _arrow(batches)
        frames_audit.check(table.schema)
        read = partial(_replicas, table, cleaned)
    runner = running.runner_for(options.master, session)
    say = {} if shown.silent else {"say": shown.say}
    return ReplayedBatches(frames_audit.FramesAudit(options, runner, read, **say), runner, shown)


def _session_of(batches: object) -> SparkSession | None:
    """The session of a table of an audit on Spark."""
    session: SparkSession | None = batches._session() if isinstance(batches, Table) else None
    return session


def _arrow(batches: object) -> pa.Table:
    import pyarrow as pa

    if isinstance(batches, pa.Table):
        return batches
    if not hasattr(batches, "__arrow_c_stream__"):
        given = type(batches).__name__
        raise AuditInputError(f"batches is a DataFrame of Spark, or what gives Arrow's data, not a {given}")
    return pa.table(batches)


def _replicas(table: pa.Table, compacted: tuple[str, ...] | None) -> Replicas:
    from auditor.pipeline.frames_audit import in_order, replicas_of
    from auditor.pipeline.runner import kept
    from auditor.processes.inline_runner import KeptReplicas

    return KeptReplicas(lambda: map(kept, replicas_of(in_order(table), compacted)))


class ReplayedBatches(Face):
    """What :func:`replay_batches` gives: tables, which are DataFrames by ``.to_spark()``, and findings.

    ``undecided``: what batches do not carry, in sentences; nothing is said of it.
    """

    undecided = UNDECIDED

    def __init__(self, audit: FramesAudit, runner: Runner, shown: notebook.Shown) -> None:
        self._replayed = audit
        self._runner = runner
        self._shown = shown

    @property
    def _audit(self) -> FramesAudit:
        return self._replayed

    @property
    def events(self) -> Table:
        """What was odd in each replica: the table ``events``."""
        return self._table("events", schemas()["events"])

    @property
    def transactions(self) -> Table:
        """A row a transaction of a producer in a replica: the table ``transactions``."""
        return self._table("transactions", schemas()["transactions"])

    @property
    def producers(self) -> Table:
        """What a broker would hold of each producer at the log's end: the table ``producer_states``."""
        return self._table("producer_states", schemas()["producer_states"])

    @cached_property
    def findings(self) -> Findings:
        """What was found, the worst first."""
        with self._asking():
            return Findings(self._audit.findings, summary.findings_table(self._audit), self._session)

    def close(self) -> None:
        """Ends what was started; the session of the frame stays open."""
        self._replayed.close()
        self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
