"""Interface of the ways to run an audit: read replicas, judge logs."""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from auditor.base.at_rest import (
    SORTED_TOGETHER,
    TOGETHER,
    Fields,
    MappedRows,
    RowsAtRest,
    TextRows,
    Values,
    dumps,
    loads,
    row_text,
)
from auditor.base.errors import AuditInputError, DecodeError, failure, is_unread
from auditor.base.words import FirstRows, plural
from auditor.connectors.kafka_names import METADATA_TOPIC
from auditor.connectors.logdir.files import Inventory
from auditor.facts.arrow_codec import Codec
from auditor.facts.replica_facts import (
    NOTHING_ENDED,
    ReplicaFacts,
    log_of,
)
from auditor.pipeline.cluster_context import NOTHING_OPEN, NOTHING_UNDECIDED, Brief, brief
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.plan import Item, ReplicaTasks, sharing
from auditor.processes.isolation import Pool
from auditor.replay.reading.chunks import FACTS_AT_REST, logs_of
from auditor.replay.task import KeptPoints, KeptTask, ReadLog, ReplicaTask, SharingTask, TextTask
from auditor.rules.seen.cluster_view import Cluster
from auditor.rules.seen.view import Finding

if TYPE_CHECKING:
    import pyarrow as pa

    from auditor.pipeline.table_tasks import TableRequest, WrittenPart, WrittenTables
    from auditor.pipeline.work_folder import WorkFolder


# Read step: from a list of tasks to the facts of whole logs.
#
# Modules that read are imported by workers only: the driver names this step and never takes it.


Pair = tuple[Brief, ReplicaFacts]
Task = ReplicaTask | TextTask
ReadTasks = Callable[[Sequence[Any], bool], Iterator[ReplicaFacts]]


class PackedFacts(NamedTuple):
    """Facts of all replicas of some logs: what reading a list gives. ``briefs`` are for the driver: of each replica,
    with the files of the work folder that were damaged."""

    briefs: bytes
    facts: bytes


class ListBriefs(NamedTuple):
    """The briefs of a list, and the files of the work folder that were damaged."""

    briefs: list[Brief]
    damaged: list[str]


BRIEFS_AT_REST = Codec(ListBriefs)


NOT_SHARED = ""  # in place of a damaged file: the work folder is not there where a list is read


def read_list(items: Sequence[Item], work: WorkFolder | None, read: ReadTasks) -> PackedFacts:
    """Return the facts of a list: from ``work`` where they are kept, else read and kept there.

    ``read`` yields the facts of some tasks in any order; it is told whether an earlier attempt at them ended early.
    """
    damaged: list[str] = []
    facts = read([item for item in items if isinstance(item, ReplicaTask | TextTask)], False)
    if kept := [item for item in items if isinstance(item, KeptTask)]:
        assert work is not None
        facts = itertools.chain(facts, _read_kept(kept, work, read, damaged))
    before = [pair for item in items if isinstance(item, ReadLog) for pair in pairs_of(item)]
    return pack([*before, *map(pair_of, facts)], damaged)


def _read_kept(kept: list[KeptTask], work: WorkFolder, read: ReadTasks, damaged: list[str]) -> Iterator[ReplicaFacts]:
    files: dict[str, list[KeptTask]] = {}
    for one in kept:
        files.setdefault(one.at[0] if one.at else "", []).append(one)
    missing = files.pop("", [])
    for name, of_file in files.items():
        facts = work.facts(name, [one.at[1] for one in of_file if one.at])
        if facts is None:
            damaged.append(name)
            missing += of_file
        else:
            yield from facts
    if not missing:
        return
    names = [one.identity for one in missing]
    stored = work.kept_of(names)  # by another attempt at this list
    if stored:
        (name,) = {position.file for position in stored.values()}
        replicas = work.facts(name, [position.row for position in stored.values()])
        yield from replicas or ()
        stored = {} if replicas is None else stored
    left = {_place(one.task): one for one in missing if one.identity not in stored}
    if stored and not left:
        return
    # Else this machine sees another folder than the driver: what it kept there, nobody would find.
    if not (shared := work.is_begun()):
        damaged.append(NOT_SHARED)
    died = shared and work.begins(names)
    whole = []
    for replica in read([one.task for one in left.values()], died):
        if not any(is_unread(e.reason, e.detail) for e in replica.errors):
            whole.append((left[replica.log_dir, replica.folder].identity, replica))
        yield replica
    if shared and not stored:
        work.keep(whole, names)
    if shared:
        work.ended(names)


def _place(task: ReplicaTask) -> tuple[str, str]:
    return task.replica.log_dir, task.replica.folder


def read_all(tasks: Sequence[Task], died: bool = False) -> Iterator[ReplicaFacts]:
    """Yield the facts of some tasks, read here."""
    from auditor.connectors.stores import remote_files

    shared = sharing(tasks)
    with remote_files.coming(remote_files.of_work(shared)):
        for task in shared:
            yield from read_task(task)


def read_task(task: ReplicaTask | SharingTask | TextTask) -> list[ReplicaFacts]:
    """Return the facts of a task's replicas; without records and further policies where the look at these fails."""
    try:
        return _read_task(task)
    except Exception as error:
        if (plain := _without_looks(task)) == task:
            raise
        failed = failure(error, "records or policies were skipped")
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


# Facts at rest: those of some whole logs together, in the order of their logs.


def pair_of(facts: ReplicaFacts) -> Pair:
    """Return a replica's brief and its facts, without what every judge gets with its cluster: that travels once."""
    pair = brief(facts), facts
    facts.coordinator_log = None
    return pair


def pack(pairs: Iterable[Pair], damaged: Sequence[str] = ()) -> PackedFacts:
    """Return the packed form of facts in any order."""
    ordered = sorted(pairs, key=lambda pair: (*log_of(pair[0]), pair[0].log_dir))
    briefs = [one for one, _ in ordered]
    packed = BRIEFS_AT_REST.pack([ListBriefs(briefs, list(damaged))])
    return PackedFacts(packed, FACTS_AT_REST.pack([facts for _, facts in ordered]))


def pack_logs(pairs: Iterable[Pair]) -> Iterator[PackedFacts]:
    """Yield the packed form of facts whose logs come one after the other, some dozens of replicas together."""
    waiting: list[Pair] = []
    for _, of_log in itertools.groupby(pairs, lambda pair: log_of(pair[0])):
        waiting += of_log
        if len(waiting) >= TOGETHER:
            yield pack(waiting)
            waiting = []
    if waiting:
        yield pack(waiting)


def pairs_of(packed: PackedFacts | ReadLog) -> list[Pair]:
    """Unpack briefs and facts."""
    return list(zip(briefs_of(packed.briefs).briefs, FACTS_AT_REST.unpack(packed.facts), strict=True))


def briefs_of(packed: bytes) -> ListBriefs:
    """Unpack briefs, and the names of damaged files."""
    return BRIEFS_AT_REST.unpack(packed)[0]


def _shared(item: Brief, alike: dict[tuple[int, int], tuple[int, int]]) -> Brief:
    """Return a brief that shares equal values with others through ``alike``: a driver may hold a million briefs."""
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
OverFacts = Callable[
    [Iterable[bytes]], Iterable[bytes]
]  # what is made of packed facts: a partial of a module's function
SharesOf = Callable[[Iterable[bytes]], Iterable[tuple[str, int, bytes]]]  # a share, behind its key
OverShares = Callable[[Iterable[tuple[tuple[str, int], Iterable[bytes]]]], Iterable[bytes]]
Frames = tuple[str, Iterable[Any]]  # a table or view by name, as frames of some of its rows each
ViewsOf = Callable[[str, Iterable[str]], Mapping[str, str]]  # SQL in a dialect over tables, by the view's name
TaskRows = Callable[[Any], Iterator["pa.RecordBatch"]]  # rows that a task makes: a function of a module
JudgeLog = Callable[[list[ReplicaFacts], Cluster], Iterator[tuple[str, Fields]]]
NOT_OF_A_LOG = ("errors", "sums", "unlooked", "notes", "open_transactions")  # said of the whole run in summary.json
LOG = "log"  # the kind of which there is a row for every replica, healthy ones too
_AT_ONCE = 1000  # rows of JSON


_text = json.JSONEncoder(ensure_ascii=False).encode


JUDGED_AT_REST = Codec(tuple[str, bytes])  # kind and row, of which each way to run carries some together


def judge_list(clusters: Mapping[str, Cluster], judge: JudgeLog, packed: Iterable[bytes]) -> Iterator[bytes]:
    """Judge logs given as packed facts; yield kinds and rows, which travel as JSON, some together: :func:`judged_rows`.

    Rows of kind :data:`LOG` travel in sorted, summed and packed groups, as the driver keeps and writes them.
    """
    texts = _judged_texts(clusters, judge, packed)
    while some := list(itertools.islice(texts, TOGETHER)):
        yield JUDGED_AT_REST.pack(some)


def _judged_texts(
    clusters: Mapping[str, Cluster], judge: JudgeLog, packed: Iterable[bytes]
) -> Iterator[tuple[str, bytes]]:
    waiting: list[Fields] = []
    of_topics = (clusters[replicas[0].join_key].by_topic(replicas) for replicas in logs_of(packed))
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


def _packed(rows: list[Fields]) -> bytes:
    totals, placed = LogTotals(), RowsAtRest[Placed]()
    for row in sorted(rows, key=place_of):
        place = place_of(row)
        totals.add(place, row)
        besides = {name: row.pop(name) for name in NOT_OF_A_LOG}
        placed.append((place, row_text(row), _text(besides)))
    return dumps((placed.packed(), totals))


def listed(work: Callable[[Any], Iterable[bytes]], given: Any) -> list[bytes]:
    """Return what ``work`` yields: a result that a process hands back at its end, and not before it dies."""
    return list(work(given))


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


def judged_rows(results: Iterable[bytes]) -> Iterator[Judged]:
    """Parse what :func:`judge_list` yields; for rows of kind :data:`LOG`, unpack groups (:data:`SomeLogs`).

    Many rows are parsed at once, since they then share the strings of their keys.
    """
    left = itertools.chain.from_iterable(map(JUDGED_AT_REST.unpack, results))
    while some := list(itertools.islice(left, _AT_ONCE)):
        for kind, text in some:
            if kind == LOG:
                yield LOG, loads(text)
        others = [(kind, text) for kind, text in some if kind != LOG]
        rows = json.loads(b"[" + b",".join(text for _, text in others) + b"]")
        yield from zip((kind for kind, _ in others), rows, strict=True)


class HeldFacts(ABC):
    """The facts of some lists, wherever the way to run keeps them."""

    @abstractmethod
    def briefs(self) -> Iterable[bytes]:
        """Bring the packed briefs to the driver. The first call reads the input."""

    @abstractmethod
    def packed(self) -> Iterable[PackedFacts]:
        """Bring all to the driver."""

    @abstractmethod
    def close(self) -> None:
        """Release the facts."""


class Replicas:
    """The facts of all replicas. ``held``: them; ``notes`` gets what turns out to be damaged in the work folder."""

    def __init__(self, held: HeldFacts, notes: list[str] | None = None) -> None:
        self.held = held
        self.notes = [] if notes is None else notes
        self.log_count: int | None = None

    def briefs(self) -> list[Brief]:
        """Return the brief of every replica, in a fixed order. The first call reads the input."""
        alike: dict[tuple[int, int], tuple[int, int]] = {}
        briefs, damaged = [], set[str]()
        for some, files in map(briefs_of, self.held.briefs()):
            briefs += [_shared(item, alike) for item in some]
            damaged.update(files)
        if NOT_SHARED in damaged:
            damaged.remove(NOT_SHARED)
            self.notes.append(
                "--work does not exist where partitions are read: nothing was cached; give a URI or a mount that all "
                "hosts share"
            )
        if damaged:
            from auditor.pipeline.work_folder import HALF, WorkFolderContent

            self.notes += WorkFolderContent({}, dict.fromkeys(damaged, HALF)).notes(())
        briefs.sort(key=lambda b: (b.join_key, b.topic, b.partition, b.log_dir))
        self.log_count = len(set(map(log_of, briefs)))
        return briefs

    def pairs(self) -> Iterator[Pair]:
        """Bring the briefs and facts of all replicas to the driver."""
        return itertools.chain.from_iterable(map(pairs_of, self.held.packed()))

    def close(self) -> None:
        """Release the facts."""
        self.held.close()


class Joins(ABC):
    """SQL over rows that tasks have made; texts are in what DuckDB and Spark share."""

    @abstractmethod
    def put(self, name: str, table: pa.Table) -> None:
        """Make a small table of the driver known by a name."""

    @abstractmethod
    def keep(self, name: str, text: str) -> None:
        """Keep the result of a query under a name, on disk where it is large."""

    @abstractmethod
    def ask(self, text: str) -> pa.Table:
        """Bring the result of a query to the driver."""


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

    @property
    def impact(self) -> list[Fields]:
        """Rows of the table ``impact``."""

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

    def read(self, tasks: Sequence[Task], work: WorkFolder | None = None) -> Replicas:
        """Run the read step, lazily. Facts stored in ``work`` are not read again; others are stored there."""

        def items() -> Sequence[Item]:
            items = self._with_read_texts(tasks)
            if work is None:
                return items
            from auditor.pipeline.work_folder import kept_tasks

            return kept_tasks(items, work, self.work_notes)

        return Replicas(self.hold(items, work), self.work_notes)

    def _with_read_texts(self, tasks: Sequence[Task]) -> Sequence[Item]:
        """Return the tasks with text dumps read, whose logs nobody knows before, where others may have replicas too."""
        texts = tasks.texts if isinstance(tasks, ReplicaTasks) else [t for t in tasks if isinstance(t, TextTask)]
        keys = Counter(task.join_key for task in tasks) if texts else Counter[str]()
        mixed = [task for task in texts if keys[task.join_key] > 1]
        if not mixed:
            return tasks
        with contextlib.closing(Replicas(self.hold(lambda: mixed, None))) as read:
            pairs = sorted(read.pairs(), key=lambda pair: log_of(pair[0]))
        logs = [ReadLog(*log, *pack(of_log)) for log, of_log in itertools.groupby(pairs, lambda pair: log_of(pair[0]))]
        return [*logs, *(task for task in tasks if task not in mixed)]

    def judge(self, replicas: Replicas, clusters: dict[str, Cluster], judge: JudgeLog) -> Iterator[Judged]:
        """Run the judge step: call ``judge`` for every log with all its replicas; rows come in any order."""
        job = "judge logs" if replicas.log_count is None else f"judge {plural(replicas.log_count, 'log')}"
        return judged_rows(self.over(replicas.held, partial(judge_list, clusters, judge), job))

    def keep(self, pairs: Callable[[], Iterable[Pair]]) -> Replicas:
        """Hold facts that the driver has, log by log, for the judge step."""
        return Replicas(self.hold_packed(lambda: pack_logs(pairs())))

    @abstractmethod
    def hold(self, items: Callable[[], Sequence[Item]], work: WorkFolder | None) -> HeldFacts:
        """Have :func:`read_list` read lists of these items, lazily, and hold what it gives."""

    @abstractmethod
    def hold_packed(self, packed: Callable[[], Iterable[PackedFacts]]) -> HeldFacts:
        """Hold facts that the driver has, lazily."""

    @abstractmethod
    def over(self, held: HeldFacts, work: OverFacts, job: str = "") -> Iterator[bytes]:
        """Bring what ``work`` yields over the packed facts, where these are; ``job`` describes it."""

    @abstractmethod
    def gather(self, held: HeldFacts, shares: SharesOf, work: OverShares, job: str = "") -> Iterator[bytes]:
        """Bring what ``work`` yields over the ``shares`` of the packed facts, those with one key together."""

    @abstractmethod
    def decode(self, audit: Audited, wanted: TableRequest) -> list[WrittenPart]:
        """Write the decoded tables, by lists of files; files that kill their reader are added to ``audit.fatal``."""

    @abstractmethod
    def table(self, audit: Audited, name: str) -> Any:
        """Return a table of an audit: a lazy Spark DataFrame, or an Arrow table."""

    @abstractmethod
    def query(self, audit: Audited, text: str, tables: frozenset[str]) -> pa.Table:
        """Return the result of an SQL text over ``tables``. Errors: :class:`AuditInputError` for a wrong text."""

    @abstractmethod
    def joins(
        self, name: str, columns: pa.Schema, tasks: Sequence[Any], work: TaskRows
    ) -> AbstractContextManager[Joins]:
        """Run ``work`` for every task, and answer queries over all of their rows, the table ``name``."""

    @abstractmethod
    def frames(self, written: WrittenTables | None, held: Mapping[str, pa.Table], views: ViewsOf) -> Iterator[Frames]:
        """Yield tables, written and held, and views over them as frames that great-expectations judges.

        A table is pandas frames of some of its rows each, or a Spark frame; a view is a pandas frame.
        """

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
        raise AuditInputError("--work is empty: nothing to resume; check the path or omit --resume")
    return work


def with_lasting_key(
    tasks: Sequence[ReplicaTask | TextTask], options: AuditOptions
) -> Sequence[ReplicaTask | TextTask]:
    """Return the tasks; if facts are kept, with a digest key that outlives this process, and with resume points."""
    work = work_folder_of(options)
    if work is None:
        return tasks
    from auditor.pipeline.work_folder import with_points

    key = work.key()
    keyed = [replace(t, digests=key) if isinstance(t, ReplicaTask) and t.digests else t for t in tasks]
    return [with_points(t, KeptPoints(work.text, key)) if isinstance(t, ReplicaTask) else t for t in keyed]
