"""Interface of the ways to run an audit: read replicas, judge logs."""

from __future__ import annotations

import itertools
import json
import pickle
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from auditor.base.at_rest import (
    SORTED_TOGETHER,
    Fields,
    MappedRows,
    RowsAtRest,
    TextRows,
    Values,
    dumps,
    loads,
    row_text,
)
from auditor.base.errors import AuditInputError, DecodeError, failure
from auditor.base.words import FirstRows, plural
from auditor.connectors.kafka_names import METADATA_TOPIC
from auditor.connectors.logdir.files import Inventory
from auditor.facts.replica_facts import NOTHING_ENDED, ReplicaFacts, at_rest
from auditor.pipeline.cluster_context import NOTHING_OPEN, NOTHING_UNDECIDED, Brief, brief
from auditor.pipeline.options import AuditOptions
from auditor.processes.isolation import Pool
from auditor.replay.task import ReplicaTask, SharingTask, TextTask
from auditor.rules.seen.cluster_view import Cluster
from auditor.rules.seen.view import Finding

if TYPE_CHECKING:
    import pyarrow as pa

    from auditor.pipeline.table_tasks import TableRequest, WrittenPart, WrittenTables
    from auditor.pipeline.work_folder import WorkFolder


# Read step: from a task to the facts of its replicas, and facts at rest, one pickled row per replica.
#
# Modules that read are imported by workers only: the driver names this step and never takes it.


class KeptFacts(NamedTuple):
    """Stored facts of one replica: what names its log and replica, and pickled its brief and all its facts.

    ``resume_point``: what the next reading of the replica may be given, empty unless asked for.
    """

    join_key: str
    topic: str
    partition: int
    log_dir: str
    brief: bytes
    facts: bytes
    resume_point: bytes


REPLICA = KeptFacts._fields[:4]  # what names one


def read_task(task: ReplicaTask | SharingTask | TextTask) -> list[ReplicaFacts]:
    """Return the facts of a task's replicas; without records and further policies where the look at these fails."""
    try:
        return _read_task(task)
    except Exception as error:
        if (plain := _without_looks(task)) == task:
            raise
        failed = failure(error, "the look at records or policies was left out")
        replicas = _read_task(plain)
        for facts in replicas:
            facts.errors.append(failed._replace(file=f"{facts.topic}-{facts.partition}"))
        return replicas


def _without_looks(task: ReplicaTask | SharingTask | TextTask) -> ReplicaTask | SharingTask | TextTask:
    if isinstance(task, SharingTask):
        return SharingTask(tuple(replace(one, records=False, policies=()) for one in task.tasks))
    return task if isinstance(task, TextTask) else replace(task, records=False, policies=())


def _read_task(task: ReplicaTask | SharingTask | TextTask) -> list[ReplicaFacts]:
    if isinstance(task, TextTask):
        from auditor.replay.reading.other_replicas import read_text_replicas

        return read_text_replicas(task)
    if isinstance(task, SharingTask):
        from auditor.replay.reading.replica_reader import read_sharing

        return read_sharing(task.tasks)
    from auditor.replay.reading.replica_reader import read_replica

    return [read_replica(task)]


def read_kept(task: ReplicaTask | SharingTask | TextTask) -> list[KeptFacts]:
    """Return the facts of a task's replicas, pickled."""
    return [kept(facts) for facts in read_task(task)]


def kept(facts: ReplicaFacts) -> KeptFacts:
    """Return the stored form of one replica's facts."""
    key = (facts.join_key, facts.topic, facts.partition, facts.log_dir)
    little = at_rest(brief(facts))
    facts.coordinator_log = None  # which every judge gets with its cluster: it travels once
    point, facts.resume_point = facts.resume_point, b""
    return KeptFacts(*key, little, at_rest(facts), point)


def briefs_of(rows: Iterable[bytes]) -> list[Brief]:
    """Unpickle briefs, in the order of their replicas."""
    alike: dict[tuple[int, int], tuple[int, int]] = {}
    return sorted((_brief(row, alike) for row in rows), key=lambda b: (b.join_key, b.topic, b.partition, b.log_dir))


def _brief(row: bytes, alike: dict[tuple[int, int], tuple[int, int]]) -> Brief:
    """Unpickle a brief and share equal values with others through ``alike``: a driver may hold a million briefs."""
    item: Brief = pickle.loads(row)
    item.join_key, item.log_dir, item.topic = map(sys.intern, (item.join_key, item.log_dir, item.topic))
    item.rank = alike.setdefault(item.rank, item.rank)
    if not len(item.ended):
        item.ended = NOTHING_ENDED
    if not len(item.oldest):
        item.oldest = NOTHING_ENDED
    if not len(item.undecided):
        item.undecided = NOTHING_UNDECIDED
    if not item.open_here:
        item.open_here = NOTHING_OPEN
    return item


# Totals over the rows of all logs: judging processes add up their own, and the driver joins the sums without
# unpacking rows, of which it may have a million.


BYTES = ("total", "decoded", "skipped", "error")
Place = tuple[Any, ...]
OF_A_RUN = ("truncates", "poison", "undecided", "from_recovery_point")  # of a dry run, where there is something to say


@dataclass(slots=True)
class LogTotals:
    """Sums over the rows of kind ``log`` (:func:`auditor.pipeline.judge.judge_log`).

    ``refused``: what leaders would have refused, by column of ``sums``, each log once. ``open``: open transactions by
    class. ``padded``: replicas with skipped bytes, ``padded_first`` the first of them. ``recovery``: by log directory
    the dry runs of its logs in which something happens. ``unlooked``: by log directory the batches whose records were
    to be checked and are in no copy; ``with_records``: how many batches can have records. ``with_metadata``: log
    directories with a replica of ``__cluster_metadata``. ``errors``: read errors. ``chained``, ``counted``: what the
    report shows of snapshot chains and of offsets.
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
        """Return the sums of some rows, in their order."""
        totals = cls()
        for row in rows:
            totals.add(place_of(row), row)
        return totals

    def add(self, place: Place, row: Values) -> None:
        """Add one more row and its sort key."""
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
        """Add the sums of other rows in any order; call :meth:`settled` after the last one."""
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
        """Sort what it lists by row and return itself."""
        self.errors.sort(key=itemgetter(0))
        for runs in self.recovery.values():
            runs.sort(key=itemgetter(0))
        return self


def place_of(row: Values) -> Place:
    """Return the sort key of a row among rows of its kind."""
    return (row["topic"], row["partition"], row.get("log_dir") or "", row.get("first_offset") or 0)


# Ways to run: the two steps of an audit, and its tables.
#
# :mod:`auditor.spark.spark_runner` runs them on Spark, :mod:`auditor.inline` in processes of this machine. Both give
# the same results ([decision 10](docs/decisions/010-two-ways-to-run.md)).


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


def log_of(row: KeptFacts) -> tuple[str, str, int]:
    """Return what names the log of a replica: the join key of its cluster, topic and partition."""
    return row[:3]


# Bunch and Logs are here, and not with their maker, since workers load this module before they are forked.
class Bunch(NamedTuple):
    """Facts of all replicas of some logs, in order. ``size``: their bytes. Packed, except for few large ones."""

    size: int
    content: bytes | list[KeptFacts]

    @property
    def rows(self) -> list[KeptFacts]:
        """A row per replica."""
        return loads(self.content) if isinstance(self.content, bytes) else self.content


class Logs:
    """The logs of some bunches, unpacked as they are read: what one task judges."""

    def __init__(self, bunches: Sequence[Bunch]) -> None:
        self.bunches = bunches

    def __iter__(self) -> Iterator[Log]:
        for bunch in self.bunches:
            for key, rows in itertools.groupby(bunch.rows, key=log_of):
                yield key[0], [row.facts for row in rows]


_text = json.JSONEncoder(ensure_ascii=False).encode


def judged_texts(logs: Iterable[tuple[Cluster, Iterable[bytes]]], judge: JudgeLog) -> Iterator[tuple[str, bytes]]:
    """Judge logs given as pickled facts; yield kind and row, which travels as JSON on any way to run.

    Rows of kind :data:`LOG` travel in sorted, summed and packed groups, as the driver keeps and writes them.
    """
    waiting: list[Fields] = []
    of_topics = (cluster.by_topic([pickle.loads(one) for one in facts]) for cluster, facts in logs)
    for replicas, cluster in itertools.chain.from_iterable(of_topics):
        for kind, row in judge(replicas, cluster):
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
    """Judge some logs in a process that hands the result to another."""
    return RowsAtRest(judged_texts(((clusters[join_key], facts) for join_key, facts in logs), judge))


def _packed(rows: list[Fields]) -> bytes:
    totals, placed = LogTotals(), RowsAtRest[Placed]()
    for row in sorted(rows, key=place_of):
        place = place_of(row)
        totals.add(place, row)
        besides = {name: row.pop(name) for name in NOT_OF_A_LOG}
        placed.append((place, row_text(row), _text(besides)))
    return dumps((placed.packed(), totals))


class JudgedLogs(MappedRows):
    """The rows of kind :data:`LOG` in their order, and their totals."""

    def __init__(self, rows: Sequence[Placed], totals: LogTotals) -> None:
        super().__init__(rows, row_of)
        self._placed = rows
        self.totals = totals

    @property
    def of_summary(self) -> TextRows:
        """The rows as ``summary.json`` has them."""
        return TextRows(MappedRows(self._placed, itemgetter(1)))


def row_of(placed: Placed) -> Fields:
    """Return a stored row of kind :data:`LOG`."""
    _, text, besides = placed
    return {**json.loads(text), **json.loads(besides)}


def judged_rows(texts: Iterable[tuple[str, bytes]]) -> Iterator[Judged]:
    """Parse what :func:`judged_texts` yields; for rows of kind :data:`LOG`, unpack groups (:data:`SomeLogs`).

    Many rows are parsed at once, since they then share the strings of their keys.
    """
    left = iter(texts)
    while some := list(itertools.islice(left, _AT_ONCE)):
        for kind, text in some:
            if kind == LOG:
                yield LOG, loads(text)
        others = [(kind, text) for kind, text in some if kind != LOG]
        rows = json.loads(b"[" + b",".join(text for _, text in others) + b"]")
        yield from zip((kind for kind, _ in others), rows, strict=True)


class Replicas(ABC):
    """The facts of all replicas, wherever the runner has them."""

    @abstractmethod
    def briefs(self) -> list[Brief]:
        """Return the brief of every replica, in a fixed order. The first call reads the input."""

    @abstractmethod
    def rows(self) -> Sequence[KeptFacts]:
        """Bring all facts to the driver."""

    @abstractmethod
    def replaced(self, again: Replicas) -> Replicas:
        """Return these facts with those replicas replaced that ``again`` has."""

    @abstractmethod
    def close(self) -> None:
        """Release the facts."""


class Audited(Protocol):
    """What runners and result tables need of an audit (:class:`auditor.pipeline.whole_audit.Audit`)."""

    options: AuditOptions
    fatal: list[tuple[str, DecodeError]]

    @property
    def runner(self) -> Runner:
        """The way to run."""

    @property
    def tasks(self) -> Sequence[ReplicaTask | TextTask]:
        """A task for every replica to read."""

    @property
    def inventory(self) -> Inventory:
        """Everything below the paths."""

    @property
    def scoped(self) -> Inventory:
        """The part of the inventory that is read."""

    @property
    def cluster_ids(self) -> list[str]:
        """The ids of the audited clusters, sorted."""

    @property
    def outside(self) -> list[tuple[str, DecodeError]]:
        """Read errors of the clusters' metadata, each with its log directory."""

    @property
    def replicas(self) -> Replicas:
        """The facts of every replica."""

    @property
    def clusters(self) -> dict[str, Cluster]:
        """The context of each cluster, by join key."""

    @property
    def copy_shares(self) -> dict[tuple[str, str, int], Any]:
        """What each copy of a log counts for, where the input has several."""

    @property
    def judged(self) -> dict[str, Sequence[Any]]:
        """Results of the judge step, by kind of row."""

    @property
    def findings(self) -> list[Finding]:
        """The findings in the contract's order."""

    @property
    def blocked(self) -> Sequence[Fields]:
        """The partitions that a transaction blocks."""

    def held(self, table: str) -> pa.Table | None:
        """Return a table that needs no data files; None for any other."""

    def refused(self) -> dict[str, str]:
        """Return the paths of files known to kill their reader, with the reason."""


class Runner(ABC):
    """A way to run. ``pool``: local processes for what is read first, such as the clusters' metadata.

    ``input_bytes``: size of the input, as far as known when the runner has to be ready. ``progress``: called while
    replicas are read with the part of their bytes read so far, 0 to 1, and with their batches where these are known.
    ``slow_start``: whether other work is worth doing beside its start. ``work_notes``: notes about content of the work
    folder that was left alone.
    """

    name: str
    slow_start = False
    input_bytes = 0
    progress: Callable[..., None] | None = None

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.work_notes: list[str] = []

    def ready(self) -> None:
        """Wait until the runner has started."""
        return

    @property
    def elsewhere(self) -> bool:
        """Whether tasks may run on machines that do not share this machine's disks."""
        return False

    @abstractmethod
    def read(self, tasks: Sequence[ReplicaTask | TextTask], work: WorkFolder | None = None) -> Replicas:
        """Run the read step, lazily. Facts stored in ``work`` are not read again; others are stored there."""

    @abstractmethod
    def keep(self, rows: Sequence[KeptFacts]) -> Replicas:
        """Hold facts that the driver has, for the judge step."""

    @abstractmethod
    def judge(self, replicas: Replicas, clusters: dict[str, Cluster], judge: JudgeLog) -> Iterable[Judged]:
        """Run the judge step: call ``judge`` for every log with all its replicas; rows come in any order."""

    @abstractmethod
    def parts(self, audit: Audited, wanted: TableRequest) -> list[WrittenPart]:
        """Run the tasks that write tables (:mod:`auditor.pipeline.table_parts`); return the parts that count.

        Files that kill their reader are added to ``audit.fatal``.
        """

    @abstractmethod
    def table(self, audit: Audited, name: str) -> Any:
        """Return a table of an audit: a lazy Spark DataFrame, or an Arrow table."""

    @abstractmethod
    def query(self, audit: Audited, text: str, tables: frozenset[str]) -> pa.Table:
        """Return the result of an SQL text over ``tables``. Errors: :class:`AuditInputError` for a wrong text."""

    @abstractmethod
    def count(self, written: WrittenTables, table: str) -> list[Fields]:
        """Return the counts over a written table for the expectations (:mod:`auditor.rules.expectations.measures`)."""

    def close(self) -> None:
        """Stop what was started."""
        self.pool.close()


# Work folder (``--work``), imported only where it is used.


def work_folder_of(options: AuditOptions) -> WorkFolder | None:
    """Return the work folder if facts are kept. Errors: :class:`AuditInputError` where there is nothing to resume."""
    if options.work is None:
        return None
    from auditor.pipeline.work_folder import WorkFolder

    work = WorkFolder(options.work)
    if options.resume and not work.is_begun():
        raise AuditInputError("--work holds nothing to resume; check its path, or leave --resume out")
    return work


def with_lasting_key(
    tasks: Sequence[ReplicaTask | TextTask], options: AuditOptions
) -> Sequence[ReplicaTask | TextTask]:
    """Return the tasks; if facts are kept, with a digest key that outlives this process."""
    work = work_folder_of(options)
    if work is None:
        return tasks
    key = work.key()
    return [replace(t, digests=key) if isinstance(t, ReplicaTask) and t.digests else t for t in tasks]
