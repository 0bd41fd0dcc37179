"""Replicas that are made up, as many as asked for: an inventory, the facts that reading them would have left, and an
audit of them by either way to run. No byte of a log is read, so what grows then grows with replicas alone.

Each is a healthy log of its own: a segment with two indexes, a leader epoch checkpoint, ``partition.metadata``. Its
facts are those of one small partition that was really read, under its own names, made by the tasks of the read step.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from auditor.connectors.codec.small_files import Offsets
from auditor.connectors.logdir.files import Inventory, LogDir
from auditor.connectors.logdir.inventory import folder_replica
from auditor.connectors.stores.storage import StorageLocation
from auditor.facts.replica_facts import ReplicaFacts
from auditor.inline import FactsHere, InlineRunner
from auditor.pipeline import plan
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.runner import HeldFacts, PackedFacts, Runner, pack, pair_of, read_task
from auditor.pipeline.whole_audit import Audit
from auditor.replay.reading.chunks import FACTS_AT_REST
from auditor.replay.task import ReplicaTask

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from auditor.pipeline.work_folder import WorkFolder

OF_A_TOPIC, OF_A_DIRECTORY = 100, 10_000  # partitions; replicas
MOST_DIRECTORIES = 50
LIST_TASKS = 2_000  # facts that one task makes up
SIZES = {
    f"{0:020}.log": 1 << 20, f"{0:020}.index": 512, f"{0:020}.timeindex": 768, "leader-epoch-checkpoint": 10,
    "partition.metadata": 43,
}  # fmt: skip


def inventory(count: int) -> Inventory:
    """So many replicas as a listing finds them, each a partition of its own."""
    directories = max(1, min(MOST_DIRECTORIES, count // OF_A_DIRECTORY))
    each = -(-count // directories)
    return Inventory(
        tuple(_log_dir(n, range(n * each, min(count, (n + 1) * each))) for n in range(directories)), (), (), (), ()
    )  # fmt: skip


def _log_dir(number: int, numbers: range) -> LogDir:
    name, place = f"broker-{number}", StorageLocation("", f"/nowhere/broker-{number}")
    replicas, marks = [], {}
    for n in numbers:
        topic, partition = f"topic-{n // OF_A_TOPIC}", n % OF_A_TOPIC
        found = folder_replica(place, name, f"{topic}-{partition}", SIZES).replica
        replicas.append(dataclasses.replace(found, topic_id=f"id-of-{topic:>16}"))
        marks[topic, partition] = 1
    return LogDir(
        name, place, "cluster made-up", "made-up", number, "meta.properties",
        checkpoints={"high-watermark": Offsets(marks), "recovery-point": Offsets(marks)},
        whole_checkpoints=frozenset({"high-watermark", "recovery-point", "log-start", "cleaner"}),
        replicas=tuple(replicas),
    )  # fmt: skip


def read_once(_: object = None) -> bytes:
    """The facts of a partition of one batch, read as audits read, at rest."""
    from auditor.connectors.logdir.inventory import discover
    from tests import segments

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "broker-0", "topic-0")
        path.mkdir(parents=True)
        (path.parent / "meta.properties").write_text("version=1\nbroker.id=0\ncluster.id=made-up\n")
        (path / f"{0:020}.log").write_bytes(segments.simple(0))
        options = AuditOptions((folder,), Path(folder, "out"))
        ((facts,),) = map(read_task, plan.replica_tasks(discover([folder]), {}, options))
        return FACTS_AT_REST.pack([facts])


class MakesUp:
    """From a task the facts that its replica has, as if it had been read."""

    def __init__(self, facts: bytes) -> None:
        self.facts = facts

    def __call__(self, task: ReplicaTask) -> ReplicaFacts:
        """Those of one replica."""
        (found,) = FACTS_AT_REST.unpack(self.facts)
        replica = task.replica
        assert replica.topic is not None
        assert replica.partition is not None
        found.cluster_id, found.broker_id, found.join_key = task.cluster_id, task.broker_id, task.join_key
        found.log_dir, found.topic, found.partition = replica.log_dir, replica.topic, replica.partition
        found.folder, found.topic_id = replica.folder, replica.topic_id
        found.segments = [segment.name for segment in replica.segments]
        found.high_watermark, found.recovery_point = found.log_end, found.log_end
        return found

    def of(self, tasks: list[ReplicaTask]) -> PackedFacts:
        """Those of a list."""
        return pack([pair_of(self(task)) for task in tasks])

    def batches(self, tasks: list[ReplicaTask]) -> Iterator[pa.RecordBatch]:
        """The same as Spark takes them."""
        from auditor.spark import jobs

        return jobs.in_batches([self.of(tasks)], jobs.FACTS_ARROW)


def _lists(items: Sequence[plan.Item]) -> plan.WorkLists:
    return plan.WorkLists(items, -(-len(items) // LIST_TASKS))  # as the product shares them out


def making_up(runner: Runner, facts: bytes) -> Runner:
    """A way to run whose read step makes facts up."""
    make = MakesUp(facts)

    def inline(items: Callable[[], Sequence[plan.Item]], work: WorkFolder | None) -> HeldFacts:
        def found() -> Iterator[PackedFacts]:
            return (packed for _, packed in sorted(runner.pool.map(_lists(items()), make.of, reads=False)))

        return FactsHere(found)

    def spark(items: Callable[[], Sequence[plan.Item]], work: WorkFolder | None) -> HeldFacts:
        from auditor.spark import jobs
        from auditor.spark.session import A_TASK_EACH, tuned
        from auditor.spark.spark_runner import FactsOfJob

        def planned() -> DataFrame:
            session = runner.spark  # type: ignore[attr-defined]
            with tuned(session, A_TASK_EACH):
                return jobs.each_list(session, _lists(items()), make.batches, jobs.FACTS).persist()

        return FactsOfJob(runner, planned)  # type: ignore[arg-type]

    runner.hold = inline if isinstance(runner, InlineRunner) else spark  # type: ignore[method-assign]
    return runner


class MadeUp(Audit):
    """An audit of what is not there."""

    def __init__(self, options: AuditOptions, runner: Runner, count: int) -> None:
        super().__init__(options, runner)
        self.count = count

    @cached_property
    def _found(self) -> Inventory:
        return inventory(self.count)

    @cached_property
    def _opened(self) -> Any:
        return {}, []
