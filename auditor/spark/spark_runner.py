"""The two steps of an audit on Spark: any master, classic or Connect."""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from auditor.base.at_rest import Fields
from auditor.pipeline.cluster_context import Brief
from auditor.pipeline.runner import REPLICA, Judged, JudgeLog, KeptFacts, Replicas, Runner, briefs_of
from auditor.processes.isolation import Pool
from auditor.replay.reading.task import ReplicaTask, TextTask
from auditor.rules.seen.cluster_view import Cluster
from auditor.spark.progress import watched
from auditor.spark.session import tuned

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from auditor.pipeline.runner import Audited
    from auditor.pipeline.table_tasks import Part, Wanted, Written
    from auditor.pipeline.work_folder import WorkFolder


# Loaded while Java starts: what the read step needs, and what pyspark loads at its first call with a list or dict
# (NumpyScalarConverter). Nothing of pyspark's own, whose modules the start loads at the same time.
AHEAD = ("auditor.spark.scan", "pandas")


def _load_ahead() -> None:
    for name in AHEAD:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


class SparkReplicas(Replicas):
    """Facts in a frame, see :data:`auditor.spark.scan.FACTS`."""

    def __init__(
        self, frame: DataFrame | Callable[[], DataFrame], progress: Callable[[float], None] | None = None
    ) -> None:
        self._frame = frame
        self.progress = progress

    @cached_property
    def frame(self) -> DataFrame:
        """The frame; with a work folder what is not there yet is read for it."""
        return self._frame() if callable(self._frame) else self._frame

    def briefs(self) -> list[Brief]:
        """The briefs of all replicas. Runs the first job, whose tasks have about as many bytes each."""
        frame = self.frame
        with watched(frame.sparkSession, self.progress), tuned(frame.sparkSession):
            found = self.frame.select("brief").toArrow().column("brief")
        return briefs_of(row for chunk in found.chunks for row in chunk.to_pylist())

    def rows(self) -> list[KeptFacts]:
        """All facts, on the driver."""
        return [KeptFacts(**row) for row in self.frame.toArrow().to_pylist()]

    def replaced(self, again: Replicas) -> SparkReplicas:
        """The newer facts of each replica."""
        assert isinstance(again, SparkReplicas)
        gone = again.frame.select(*REPLICA)
        return SparkReplicas(self.frame.join(gone, list(REPLICA), "left_anti").unionByName(again.frame))

    def close(self) -> None:
        """Gives back Spark's memory, where Java has not ended: then what ended it is the error to show, not this."""
        with contextlib.suppress(Exception):
            self.frame.unpersist()


class SparkRunner(Runner):
    """Runs on a session: the caller's, or one that is started, for an input of so many bytes, when it is needed."""

    slow_start = True

    def __init__(self, start: Callable[[int], SparkSession]) -> None:
        super().__init__(Pool(1))
        self._start = start
        self.name = "Spark"

    def ready(self) -> None:
        """Starts the session."""
        _ = self.spark

    @cached_property
    def spark(self) -> SparkSession:
        """The session."""
        threading.Thread(target=_load_ahead, daemon=True).start()
        return self._start(self.input_bytes)

    def read(self, tasks: Sequence[ReplicaTask | TextTask], work: WorkFolder | None = None) -> SparkReplicas:
        """Plans the first job."""
        from auditor.spark import scan

        if work is not None:
            from auditor.spark import kept_reading

            def read() -> DataFrame:
                with watched(self.spark, self.progress), tuned(self.spark):
                    return kept_reading.read_replicas(self.spark, tasks, work, self.work_notes)

            return SparkReplicas(read, self.progress)

        return SparkReplicas(scan.read_replicas(self.spark, tasks), self.progress)

    def keep(self, rows: Sequence[KeptFacts]) -> SparkReplicas:
        """Facts that the driver has, as a frame."""
        from auditor.spark import scan

        return SparkReplicas(scan.held(self.spark, rows))

    def judge(self, replicas: Replicas, clusters: dict[str, Cluster], judge: JudgeLog) -> Iterator[Judged]:
        """Runs the second job."""
        from auditor.spark import scan

        assert isinstance(replicas, SparkReplicas)
        return scan.judge_logs(replicas.frame, clusters, judge)

    def parts(self, audit: Audited, wanted: Wanted) -> list[Part]:
        """One job."""
        from auditor.spark import table_job

        return table_job.run(self.spark, self.pool, audit, wanted)

    def table(self, audit: Audited, name: str) -> DataFrame:
        """A frame."""
        from auditor.spark import spark_tables

        return spark_tables.frame(self.spark, audit, _facts(audit, name), name)

    def query(self, audit: Audited, text: str, tables: frozenset[str]) -> pa.Table:
        """Asks Spark."""
        from auditor.spark.spark_tables import query

        return query(self.spark, audit, text, tables)

    @property
    def elsewhere(self) -> bool:
        """On any cluster, and where a server of Connect's may be another machine."""
        from auditor.spark.session import LOCAL_ATTEMPTS

        here = LOCAL_ATTEMPTS.fullmatch(self.spark.conf.get("spark.master", "") or "")
        return here is None or not hasattr(self.spark, "_jvm")

    def count(self, written: Written, table: str) -> list[Fields]:
        """Counts with Spark."""
        from auditor.spark.spark_tables import count, read

        return count(read(self.spark, written, table), table)


def _facts(audit: Audited, table: str) -> DataFrame | None:
    """What a derived table is made of; None for any other."""
    from auditor.pipeline.derived_tables import OF_FACTS

    return audit.replicas.frame if table in OF_FACTS else None  # type: ignore[attr-defined]
