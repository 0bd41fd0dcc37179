"""Records of two inputs that are compared: which logs are read, and rows of sums of their records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from auditor.base.at_rest import dumps, loads
from auditor.base.errors import AuditInputError, DamagedField, DecodeError
from auditor.connectors.codec import batches as walking
from auditor.connectors.codec import mirror_maker
from auditor.connectors.codec.mirror_maker import TranslatedOffset
from auditor.connectors.codec.records import UNRELIABLE
from auditor.connectors.kafka_names import OWN_TOPICS
from auditor.connectors.schema import from_columns, texts
from auditor.facts.replica_facts import ReplicaFacts, SummedRun
from auditor.pipeline.lag_table import stable_end
from auditor.pipeline.space_table import FOREVER, ahead_ms, setting
from auditor.replay.reading import lag_counts
from auditor.replay.reading.chunks import logs_of
from auditor.replay.reading.lag_counts import Outcomes
from auditor.replay.reading.record_sums import RecordReading, RecordSummer, SummedRecords, UnreadRecords
from auditor.replay.task import ReplicaTask
from auditor.rules.seen.view import LogView

if TYPE_CHECKING:
    from collections.abc import Mapping

    from auditor.pipeline.whole_audit import Audit
    from auditor.rules.seen.cluster_view import Cluster


Log = tuple[str, int]  # topic and partition
NOT_REMOTE = "in remote storage: give its directory by --remote"
NO_FILE = "no segment file has these offsets"
NO_END = "its checkpoints or snapshots promise more than the log has"


class InOrder(NamedTuple):
    """Records with one sum, and whether a broker set the timestamp of any."""

    records: int
    total: int
    by_broker: bool


class ReadableLog(NamedTuple):
    """What read_committed consumers get of a log: of the leader's copy the offsets from ``start`` to before ``stable``.

    ``outcomes`` has the transactions that are aborted or open. ``end``: of the log; ``expired_ms``: latest timestamp of
    what retention can have deleted; ``damaged``: first and last offset of batches that consumers get otherwise than
    they were written, and why. ``summed``: by segment what an audit summed, None where it is to be read again.
    """

    join_key: str
    log_dir: str
    topic: str
    partition: int
    start: int
    stable: int
    end: int
    outcomes: Outcomes
    expired_ms: int
    damaged: list[tuple[int, int, str]]
    summed: list[InOrder | None]


def readable_logs(audit: Audit) -> dict[Log, ReadableLog]:
    """Return the logs of an input, without Kafka's own. Errors: :class:`AuditInputError` for several clusters."""
    work = partial(_readable, audit.clusters, audit.options.sum_key)
    packed_logs = audit.runner.over(audit.replicas.held, work, "find what consumers get")
    logs: dict[Log, ReadableLog] = {}
    for log in (log for packed in packed_logs for log in loads(packed)):
        if (other := logs.setdefault((log.topic, log.partition), log)).join_key != log.join_key:
            dirs = f"{other.log_dir} and {log.log_dir}"
            raise AuditInputError(f"{dirs} are of different clusters: give the directories of one cluster on each side")
    return logs


def _readable(clusters: Mapping[str, Cluster], key: bytes, packed: Iterable[bytes]) -> Iterator[bytes]:
    logs, summer = [], RecordSummer(key)
    for replicas in logs_of(packed):
        log = LogView(replicas, clusters[replicas[0].join_key])
        leader, end = log.leader, log.readable_end
        if log.is_gone or log.topic in OWN_TOPICS or not (leader.scans or leader.text):
            continue  # without a segment file, even an empty one, nothing is known of the log
        outcomes, stable = Outcomes(leader.transactions, end), stable_end(leader, end)
        place = (leader.join_key, leader.log_dir, log.topic, log.partition)
        damaged = [*_damaged(leader.errors, stable), *_lacking(leader)]
        summed = [_summed(scan.sums, leader.own_start, stable, outcomes, summer) for scan in leader.scans]
        span = leader.own_start, stable, leader.log_end
        logs.append(ReadableLog(*place, *span, outcomes, _expired_ms(log), damaged, summed))
    yield dumps(logs)


def _summed(
    runs: Sequence[SummedRun] | None, start: int, stable: int, outcomes: Outcomes, summer: RecordSummer
) -> InOrder | None:
    inside = [run for run in runs or () if run.last >= start and run.first < stable]
    if runs is None or any(run.first < start or run.last >= stable for run in inside):
        return None
    first, whose = (np.array([getattr(run, name) for run in inside], np.int64) for name in ("first", "producer_id"))
    seen = (whose < 0) | (outcomes.of(first, whose) == lag_counts.SEEN)
    records, total, by_broker = 0, 0, False
    for run in (run for run, one in zip(inside, seen.tolist(), strict=True) if one):
        records, total = records + run.records, summer.joined(total, run.total, run.records)
        by_broker |= run.by_broker
    return InOrder(records, total, by_broker)


def _lacking(leader: ReplicaFacts) -> Iterator[tuple[int, int, str]]:
    """Offsets that the log has or had, and no file of the input has."""
    if leader.remote_from >= 0:
        yield leader.remote_from, leader.log_start - 1, NOT_REMOTE
    for first, behind in leader.absent:
        yield first, behind - 1, NOT_REMOTE if behind <= leader.local_start else NO_FILE
    if leader.promised_end > leader.log_end:
        yield leader.log_end, leader.promised_end - 1, NO_END


def _damaged(errors: Iterable[DecodeError], stable: int) -> Iterator[tuple[int, int, str]]:
    for error in errors:
        if (field := DamagedField.of(error)) is not None and error.first_offset < stable:
            last = stable - 1 if field.hides else error.last_offset
            yield error.first_offset, last, f"{error.file}: damaged {field.name} at byte {error.position}"


def _expired_ms(log: LogView) -> int:
    """Return the latest timestamp of what retention can have deleted; without its settings, of anything."""
    leader, cluster = log.leader, log.cluster
    time, size = (setting(cluster, leader.broker_id, log.topic, f"retention.{unit}") for unit in ("ms", "bytes"))
    policy = setting(cluster, leader.broker_id, log.topic, "cleanup.policy")
    if policy.sure and "delete" not in policy.value:
        return -FOREVER
    by_request = leader.own_start > min((scan.base_offset for scan in leader.scans), default=0)
    if (
        by_request
        or size.number >= 0
        or not (time.sure and size.sure and (cluster.has_metadata or cluster.clock_given))
    ):
        return FOREVER
    return -FOREVER if time.number < 0 else cluster.as_of + ahead_ms(cluster) - time.number


# Offsets that MirrorMaker translated.


def translations(audit: Audit, logs: Mapping[Log, ReadableLog]) -> list[TranslatedOffset]:
    """Return the last checkpoint of each group and partition, and the last offset sync of each partition."""
    named = {log for log in logs if mirror_maker.is_read(log[0])}
    tasks = tasks_of(audit, {log: logs[log] for log in named})
    last: dict[tuple[str | None, str, int], TranslatedOffset] = {}
    for _, some in sorted(audit.runner.pool.map(list(tasks.values()), _translations)):
        last |= {(one.group_id, one.topic, one.partition): one for one in some}
    return list(last.values())


def _translations(task: ReplicaTask) -> list[TranslatedOffset]:
    offsets: list[TranslatedOffset] = []
    for number in range(len(task.replica.segments)):
        for chunk in lag_counts.chunks_with_bytes(task, number):
            if isinstance(chunk, DecodeError):
                continue
            data = np.flatnonzero(chunk.rows[:, walking.ATTRIBUTES] & walking.CONTROL == 0)
            for run in chunk.opened(data, chunk.batches.take(data), task.limits):
                sound = np.flatnonzero(run.records.flaws & UNRELIABLE == 0).tolist()
                offsets += mirror_maker.translated(task.replica.topic or "", map(run.stored, sound))
    return offsets


# Rows of sums.


A, B = 0, 1  # sides
RECORD, UNREAD, ASKED, END = range(4)  # kinds of rows
# Of each record its sums. n: its number among those of its task; place: its offset; stamp: its timestamp. Of an
# UNREAD row `place` and `stamp` are the first and last offset, and `says` is the reason; of an ASKED row n records of
# the task are before the offset `place`; of an END row n is the number of its records, `place` their sum in order, and
# `by_broker` is whether a broker set the timestamp of any.
# Tasks first make END, ASKED and UNREAD rows, and then, of the partitions that differ, RECORD and END rows.
ROWS = pa.schema(
    [("task", pa.int32()), ("pair", pa.int32()), ("part", pa.int32()), ("kind", pa.int8())]
    + [(name, pa.int64()) for name in ("n", "place", "stamp", "producer", "key_sum", "value_sum", "header_sum")]
    + [("by_broker", pa.bool_()), ("says", pa.string())]
)


class SummingTask(NamedTuple):
    """Segments of a log to sum.

    ``pair``: number of the pair of topics; ``asked``: offsets to number, in order; ``known``: what an audit summed, so
    that they need not be read; ``each``: whether records have rows.
    """

    number: int
    side: int
    pair: int
    log: ReadableLog
    task: ReplicaTask
    segments: range
    asked: tuple[int, ...]
    key: bytes
    known: InOrder | None = None
    each: bool = False

    @property
    def size(self) -> int:
        """Bytes to read."""
        return sum(self.task.replica.segments[number].size for number in self.segments)


MOST_BYTES = 256 << 20  # of a task
NO_KEY = (None, None, "", None, None)


def tasks_of(audit: Audit, logs: Mapping[Log, ReadableLog]) -> dict[Log, ReplicaTask]:
    """Return the task of each log's counting copy. Errors: :class:`AuditInputError` for a log of a text dump."""
    by_place = {
        (t.replica.log_dir, t.replica.topic or "", t.replica.partition or 0): t
        for t in audit.tasks
        if isinstance(t, ReplicaTask)
    }
    missing = [log for log, of in logs.items() if (of.log_dir, *log) not in by_place]
    if missing:
        topic, partition = missing[0]
        raise AuditInputError(f"{topic}-{partition} is a text dump, without keys and values: give its log directory")
    return {log: by_place[of.log_dir, *log] for log, of in logs.items()}


def summing_tasks(
    side: int, pair: int, log: ReadableLog, task: ReplicaTask, asked: Sequence[int], key: bytes
) -> list[SummingTask]:
    """Return the tasks of a log: some segments each; ``asked`` are any offsets."""
    spans = lag_counts.stretches(task)
    chosen = [n for n, (base, behind) in enumerate(spans) if behind > log.start and base < log.stable]
    tasks: list[SummingTask] = []
    for k, number in enumerate(chosen):
        low = -1 if k == 0 else spans[number][0]
        behind = lag_counts.FAR if k == len(chosen) - 1 else spans[chosen[k + 1]][0]
        here = tuple(sorted({offset for offset in asked if low <= offset < behind}))
        known = None if here or number >= len(log.summed) else log.summed[number]
        last = tasks[-1] if tasks else None
        if last is not None and last.known is known is None and last.size < MOST_BYTES:
            segments = range(last.segments.start, number + 1)
            tasks[-1] = last._replace(segments=segments, asked=last.asked + here)
        else:
            tasks.append(SummingTask(-1, side, pair, log, task, range(number, number + 1), here, key, known))
    return tasks or [SummingTask(-1, side, pair, log, task, range(0), tuple(sorted(set(asked))), key)]


def sum_rows(task: SummingTask) -> Iterator[pa.RecordBatch]:
    """Yield the rows (:data:`ROWS`) of a task: records in offset order, and after them the others."""
    log, count, by_broker, total = task.log, 0, False, 0
    summer = RecordSummer(task.key)
    reading = RecordReading(task.task, log.start, log.stable, log.outcomes, summer, task.each)
    others: list[tuple[int, int, int, int, str]] = []
    waiting = list(task.asked)
    for one in reading.summed(task.segments):
        if isinstance(one, UnreadRecords):
            before = others.pop() if others and (others[-1][0], others[-1][-1]) == (UNREAD, one.reason) else None
            others.append((UNREAD, count, one.first if before is None else before[2], one.last, one.reason))
            continue
        while waiting and len(one.offset) and waiting[0] <= one.offset[-1]:
            others.append((ASKED, count + int(np.searchsorted(one.offset, waiting[0])), waiting.pop(0), -1, ""))
        if isinstance(one, SummedRecords):
            yield _batch(task, one, count)
        else:
            by_broker |= one.by_broker
            total = summer.joined(total, one.total, len(one.offset))
        count += len(one.offset)
    others += [(ASKED, count, offset, -1, "") for offset in waiting]
    others.append((END, count, total, -1, ""))
    kinds, *numbers, says = zip(*others, strict=True)
    columns = dict(zip(("n", "place", "stamp"), (np.array(c, np.int64) for c in numbers), strict=True))
    place = {"task": task.number, "pair": task.pair, "part": log.partition, "kind": np.array(kinds, np.int8)}
    yield from_columns(ROWS, NO_KEY, len(kinds), place | columns | {"by_broker": by_broker, "says": texts(says)})


def _batch(task: SummingTask, records: SummedRecords, count: int) -> pa.RecordBatch:
    rows = len(records.offset)
    columns = {
        "task": task.number,
        "pair": task.pair,
        "part": task.log.partition,
        "kind": RECORD,
        "n": count + np.arange(rows, dtype=np.int64),
        "place": records.offset,
        "stamp": records.timestamp,
        "producer": records.producer_id,
        "key_sum": records.key_sum,
        "value_sum": records.value_sum,
        "header_sum": records.header_sum,
        "by_broker": records.append_time,
    }
    return from_columns(ROWS, NO_KEY, rows, columns)
