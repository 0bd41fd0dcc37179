"""A way to run: the two steps of an audit, read replicas and judge logs, and the tables; nothing else differs.

:mod:`auditor.spark.spark_runner` runs them on Spark, :mod:`auditor.inline.inline_runner` in processes of this machine.
What either gives is the same ([decision 10](docs/decisions/010-two-ways-to-run.md)).
"""

from __future__ import annotations

import json
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Protocol

from auditor.base.at_rest import SORTED_TOGETHER, Fields, RowsAtRest, RowsSeen, TextRows, dumps, loads, row_text
from auditor.base.errors import DecodeError
from auditor.connectors.logdir.files import Inventory
from auditor.facts.replica_facts import ReplicaFacts
from auditor.pipeline.cluster.brief import Brief
from auditor.pipeline.log_totals import LogTotals, Place, place_of
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.read_step import KeptFacts
from auditor.processes.isolation import Pool
from auditor.replay.reading.task import ReplicaTask, TextTask
from auditor.rules.seen.cluster_view import Cluster
from auditor.rules.seen.view import Finding

if TYPE_CHECKING:
    import pyarrow as pa

    from auditor.pipeline.tables.table_tasks import Part, Wanted, Written
    from auditor.pipeline.work_folder import WorkFolder

# Where a row of kind log stands among the others, its text in summary.json, and as JSON what that leaves out.
Placed = tuple[Place, str, str]
Judged = tuple[str, Any]  # kind, and a row of that kind; of kind log many together, with what they come to: SomeLogs
SomeLogs = tuple[RowsAtRest[Placed], LogTotals]
# What is made of the replicas of one log and its cluster: a function of a module, or a partial of one.
JudgeLog = Callable[[list[ReplicaFacts], Cluster], Iterator[tuple[str, Fields]]]
Log = tuple[str, list[bytes]]  # the join key of a log's cluster, and the facts of its replicas, pickled
NOT_OF_A_LOG = ("errors", "sums", "unlooked", "notes", "open_transactions")  # said of the whole run in summary.json
LOG = "log"  # the kind of which there is a row for every replica, healthy ones too
_AT_ONCE = 1000  # rows of JSON
_text = json.JSONEncoder(ensure_ascii=False).encode


def judged_texts(logs: Iterable[tuple[Cluster, Iterable[bytes]]], judge: JudgeLog) -> Iterator[tuple[str, bytes]]:
    """What is said of some logs, whose replicas' facts come pickled: kind and row, which travels as JSON on any way.

    Those of kind :data:`LOG` travel many together, as the driver keeps and writes them: in order, added up, and packed
    by who judges.
    """
    waiting: list[Fields] = []
    for cluster, facts in logs:
        for kind, row in judge([pickle.loads(one) for one in facts], cluster):
            if kind != LOG:
                yield kind, _text(row).encode()
                continue
            waiting.append(row)
            if len(waiting) == SORTED_TOGETHER:
                yield LOG, _packed(waiting)
                waiting = []
    if waiting:
        yield LOG, _packed(waiting)


def judge_list(clusters: Mapping[str, Cluster], judge: JudgeLog, logs: Iterable[Log]) -> RowsAtRest[tuple[str, bytes]]:
    """What is said of some logs, for a process that hands it to another."""
    return RowsAtRest(judged_texts(((clusters[join_key], facts) for join_key, facts in logs), judge))


def _packed(rows: list[Fields]) -> bytes:
    totals, found = LogTotals(), RowsAtRest[Placed]()
    for row in sorted(rows, key=place_of):
        place = place_of(row)
        totals.add(place, row)
        besides = {name: row.pop(name) for name in NOT_OF_A_LOG}
        found.append((place, row_text(row), _text(besides)))
    return dumps((found.settled(), totals))


class JudgedLogs(RowsSeen):
    """The rows of kind :data:`LOG` in their order, and what they come to."""

    def __init__(self, rows: Sequence[Placed], totals: LogTotals) -> None:
        super().__init__(rows, row_of)
        self._placed = rows
        self.totals = totals

    @property
    def of_summary(self) -> TextRows:
        """The rows as they stand in ``summary.json``."""
        return TextRows(RowsSeen(self._placed, itemgetter(1)))


def row_of(placed: Placed) -> Fields:
    """The row of kind :data:`LOG` that is at rest."""
    _, text, besides = placed
    return {**json.loads(text), **json.loads(besides)}


def judged_rows(texts: Iterable[tuple[str, bytes]]) -> Iterator[Judged]:
    """What :func:`judged_texts` made, as rows again; in place of rows of kind :data:`LOG` those that are packed
    together, :data:`SomeLogs`. Many are parsed at once, for then they share their keys' strings.
    """
    left = iter(texts)
    while some := list(islice(left, _AT_ONCE)):
        for kind, text in some:
            if kind == LOG:
                yield LOG, loads(text)
        others = [(kind, text) for kind, text in some if kind != LOG]
        rows = json.loads(b"[" + b",".join(text for _, text in others) + b"]")
        yield from zip((kind for kind, _ in others), rows, strict=True)


class Replicas(ABC):
    """The facts of all replicas, where the runner has them."""

    @abstractmethod
    def briefs(self) -> list[Brief]:
        """The brief of every replica, in a fixed order. The first call reads, where nothing has read yet."""

    @abstractmethod
    def rows(self) -> Sequence[KeptFacts]:
        """All of it, brought to the driver."""

    @abstractmethod
    def replaced(self, again: Replicas) -> Replicas:
        """These, but the replicas that ``again`` has as they are there."""

    @abstractmethod
    def close(self) -> None:
        """Gives back what holds them."""


class Audited(Protocol):
    """What a runner, and the tables of results, ask an audit for (:class:`auditor.pipeline.whole_audit.Audit`)."""

    options: AuditOptions
    fatal: list[tuple[str, DecodeError]]

    @property
    def runner(self) -> Runner:
        """The way to run."""

    @property
    def tasks(self) -> Sequence[ReplicaTask | TextTask]:
        """What there is to read: a task for every replica."""

    @property
    def inventory(self) -> Inventory:
        """What there is below the paths."""

    @property
    def scoped(self) -> Inventory:
        """What is read of it."""

    @property
    def cluster_ids(self) -> list[str]:
        """The ids of the clusters that are looked at, sorted."""

    @property
    def outside(self) -> list[tuple[str, DecodeError]]:
        """What could not be read of the clusters' metadata, each with its log directory."""

    @property
    def replicas(self) -> Replicas:
        """The facts of every replica."""

    @property
    def clusters(self) -> dict[str, Cluster]:
        """What is known of each cluster, by join key."""

    @property
    def judged(self) -> dict[str, Sequence[Any]]:
        """What judging the logs gave, by kind of row."""

    @property
    def findings(self) -> list[Finding]:
        """The findings in the contract's order."""

    @property
    def blocked(self) -> Sequence[Fields]:
        """The partitions that a transaction holds."""

    def held(self, table: str) -> pa.Table | None:
        """A table that is made without reading data files; None for any other."""

    def refused(self) -> dict[str, str]:
        """Paths of the files that are known to kill their reader, with the reason."""


class Runner(ABC):
    """A way to run. ``pool``: processes of the driver's machine for what is read before all else.

    ``input_bytes``: how much there will be to read, as far as it is known when the runner has to be ready.
    ``progress``: hears, while replicas are read, which part of their bytes has been read, from 0 to 1. ``slow_start``:
    whether its start takes so long that other work is worth doing beside it. ``work_notes``: what reading left alone in
    the work folder.
    """

    name: str
    slow_start = False
    input_bytes = 0
    progress: Callable[[float], None] | None = None

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.work_notes: list[str] = []

    def ready(self) -> None:
        """Waits until it has started."""
        return

    @property
    def elsewhere(self) -> bool:
        """Whether its tasks may run on machines that do not share the disks of this one."""
        return False

    @abstractmethod
    def read(self, tasks: Sequence[ReplicaTask | TextTask], work: WorkFolder | None = None) -> Replicas:
        """The read step. Nothing need run until it is asked for. What ``work`` has is not read, the rest goes there."""

    @abstractmethod
    def keep(self, rows: Sequence[KeptFacts]) -> Replicas:
        """Facts that the driver has, for the second step."""

    @abstractmethod
    def judge(self, replicas: Replicas, clusters: dict[str, Cluster], judge: JudgeLog) -> Iterable[Judged]:
        """The judge step: ``judge`` of every log with all its replicas, rows in any order."""

    @abstractmethod
    def parts(self, audit: Audited, wanted: Wanted) -> list[Part]:
        """Runs the tasks that write tables (:mod:`auditor.pipeline.table_parts`); what those attempts wrote that count.

        Files that kill their reader go to ``audit.fatal``.
        """

    @abstractmethod
    def table(self, audit: Audited, name: str) -> Any:
        """A table of an audit: Spark's DataFrame, of which nothing is read yet, or Arrow's table."""

    @abstractmethod
    def query(self, audit: Audited, text: str, tables: frozenset[str]) -> pa.Table:
        """The result of an SQL text over ``tables`` of an audit. Errors: :class:`AuditInputError` for a wrong text."""

    @abstractmethod
    def count(self, written: Written, table: str) -> list[Fields]:
        """What is counted in a written table for the expectations (:mod:`auditor.rules.expectations.measures`)."""

    def close(self) -> None:
        """Ends what was started."""
        self.pool.close()
