"""Comparison of two inputs by the content of their records: the table comparison."""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from auditor.base.at_rest import Fields, Values
from auditor.base.errors import AuditInputError
from auditor.connectors.codec import mirror_maker
from auditor.connectors.codec.mirror_maker import TranslatedOffset
from auditor.connectors.kafka_names import OWN_TOPICS
from auditor.connectors.schema import MadeOf, declared
from auditor.facts.offsets import SHARE
from auditor.pipeline import summary
from auditor.pipeline.alignment import Alignment, less
from auditor.pipeline.cluster_settings import METADATA_TOPIC
from auditor.pipeline.compared_records import (
    ASKED,
    END,
    NO_FILE,
    ROWS,
    UNREAD,
    A,
    B,
    Log,
    ReadableLog,
    SummingTask,
    readable_logs,
    sum_rows,
    summing_tasks,
    tasks_of,
    translations,
)
from auditor.pipeline.matched_records import PARTITION_BITS, Matched, RecordMatcher, Stream, TaskRow
from auditor.pipeline.rehearsal_table import NOT_WHOLE
from auditor.pipeline.topic_pairs import TopicPair, named_pairs
from auditor.pipeline.whole_audit import Audit
from auditor.replay.reading.record_sums import KEY_BYTES, RecordSummer
from auditor.rules.seen.view import iso

if TYPE_CHECKING:
    from auditor.pipeline.lag_table import ReadCluster
    from auditor.pipeline.options import AuditOptions
    from auditor.pipeline.runner import Joins, Runner


COMPARISON = declared(
    "comparison",
    """
    a range of records that two inputs, A and B, do not have alike. [auditor compare](compare.md) makes it; no query \
names it
    SELECT kind, topic, sum(records) AS records FROM comparison WHERE differs GROUP BY kind, topic
    kind:string what differs, such as missing, duplicated or group_late; see [kinds](compare.md#rows)
    differs:bool whether it counts as a difference: exit code 1
    records:long how many; of a group those that it reads twice (early) or never (late); null where not known
    topic:string topic of A; null for extra records of topics with different numbers of partitions
    partition:int its partition; null like `topic`, and where it is all of them
    first_offset:long first of these offsets in A; of what only B has, that of the record before; null: none
    last_offset:long last of these offsets in A; of what only B has, that of the record behind; null: none
    other_topic:string topic of B; null: none
    other_partition:int its partition; null where it is not known
    other_first_offset:long first of these offsets in B; of what only A has, that of the record before; null: none
    other_last_offset:long last of these offsets in B; of what only A has, that of the record behind; null: none
    first_at:time earliest timestamp of the records; null where there is none
    last_at:time latest timestamp of the records; null where there is none
    producer_id:long producer of all of the records; -1: none; null: several, or not known
    group_id:string group whose offset was translated; null of an offset sync, and of records
    note:string what explains it, or why it is not sure; null: nothing
""",
    of=MadeOf.RUN,
    key=(),
)
KINDS = (
    *("missing", "duplicated", "out_of_order", "changed", "extra", "behind", "headers", "no_topic", "unread"),
    *("group_late", "group_early", "group_right", "expired", "compacted", "timestamps", "tool_headers"),
)
EXPLAINED = frozenset({"expired", "compacted", "timestamps", "tool_headers", "group_early", "group_right"})
UNMATCHED = ("missing", "behind", "extra", "duplicated", "expired", "compacted")  # kinds of what one side lacks
SPANS = (("first_offset", "last_offset"), ("other_first_offset", "other_last_offset"))  # of A and of B
NO_STREAM: Stream = (-1, -1)  # what is in none
NOT_IN_INPUT = "no copy of it is in the input"
CHANGED = "its files changed while they were read"
REWRITTEN = 2  # timestamps do not identify records where without them at least so many times more match


class CompareOptions(NamedTuple):
    """``topic_map``: topics of B by their name in A; ``key``: of the sums, None for a random one."""

    topic_map: Mapping[str, str] = {}
    key: bytes | None = None


class Comparison(NamedTuple):
    """Rows of the table comparison in their order, times in ms, and the numbers of compared partitions and records.

    ``records``: of A and of B; ``incomplete``: whether part of the input was unreadable.
    """

    rows: list[Fields]
    partitions: int
    records: tuple[int, int]
    incomplete: bool

    @property
    def differs(self) -> bool:
        """Whether there is a difference that nothing explains."""
        return any(row["differs"] for row in self.rows)

    @property
    def shown(self) -> list[Fields]:
        """The rows with times as text."""
        times = ("first_at", "last_at")
        return [row | {n: None if row[n] is None else iso(row[n]) for n in times} for row in self.rows]


@dataclass(slots=True)
class _Side:
    """An input, the logs that consumers get of it, and the positions of its groups."""

    audit: Audit
    logs: dict[Log, ReadableLog]
    counts: dict[Stream, int] = field(default_factory=lambda: defaultdict(int))
    asked: dict[tuple[int, Log, int], int] = field(default_factory=dict)  # numbers of records at offsets of a pair
    has_metadata: bool = False
    named: frozenset[str] = frozenset()  # topics in the metadata

    @classmethod
    def of(cls, audit: Audit) -> _Side:
        known = [cluster for cluster in audit.clusters.values() if cluster.has_metadata]
        named = frozenset(topic for cluster in known for topic, _ in cluster.leaders)
        return cls(audit, readable_logs(audit), has_metadata=bool(known), named=named)

    def partitions(self, topic: str) -> int:
        """The number of partitions of a topic, also of those that the input lacks."""
        known = [cluster.partition_counts.get(topic, 0) for cluster in self.audit.clusters.values()]
        return max(*known, *(partition + 1 for name, partition in self.logs if name == topic), 0)

    def lacks(self, topic: str, elsewhere: int) -> list[int]:
        """Those that the input lacks; without metadata, it may lack as many as the other side has ``elsewhere``."""
        count = self.partitions(topic) if topic in self.named else max(self.partitions(topic), elsewhere)
        return [number for number in range(count) if (topic, number) not in self.logs]

    def committed(self, topics: set[str]) -> dict[tuple[str, Log], int]:
        """Committed offsets by group and log."""
        clusters: Mapping[str, ReadCluster] = summary.read_clusters(self.audit)  # type: ignore[assignment]
        return {
            (p.group_id, log): p.offset
            for cluster in clusters.values()
            for log, positions in cluster.positions.items()
            for p in positions
            if log[0] in topics and p.kind != SHARE and p.offset >= 0
        }


def compare(options: tuple[AuditOptions, AuditOptions], runner: Runner, asked: CompareOptions) -> Comparison:
    """Compare two inputs; ``options`` are those of an audit of each, and its filters name topics of A.

    Errors: :class:`AuditInputError` where no topic of A is in B. Cost: what is compared is read twice, once without
    records. Memory: bounded; sums are on disk.
    """
    listed = [Audit(one, runner) for one in (options[A], replace(options[B], topics=(), only_partitions=()))]
    ours, theirs = ({c.topic for d in audit.scoped.log_dirs for c in d.replicas if c.topic} for audit in listed)

    def is_compared(topic: str) -> bool:
        is_named = options[A].topics or topic in asked.topic_map
        return topic not in OWN_TOPICS and bool(is_named or not mirror_maker.INTERNAL.fullmatch(topic))

    names, lacking = named_pairs([*filter(is_compared, ours)], theirs, asked.topic_map)
    if not names:
        none = "no topic of A is in B: give --topic-map A=B, or check the paths"
        raise AuditInputError(none if lacking else "A has no topic to compare: check --topic and the path of A")
    sides, key = [], asked.key or os.urandom(KEY_BYTES)
    for audit, topics in zip(listed, zip(*names, strict=True), strict=True):
        of = {c.topic for d in audit.inventory.log_dirs for c in d.replicas if c.topic}
        chosen = (*topics, *sorted(t for t in of if mirror_maker.is_read(t)))
        sides.append(_Side.of(Audit(replace(audit.options, topics=chosen, may_lack=True, sum_key=key), runner)))
    with contextlib.closing(sides[A].audit), contextlib.closing(sides[B].audit):
        pairs = [
            TopicPair(first, other, sides[A].partitions(first) != sides[B].partitions(other)) for first, other in names
        ]
        scope = options[A].scope
        absent = [t for t in sorted(sides[A].named - ours) if is_compared(t) and scope.names(t, None)]
        return _Comparing((sides[A], sides[B]), pairs, key).compared(lacking, absent)


class _Translated(NamedTuple):
    """An offset of A and what it became in B; ``group_id`` None of an offset sync."""

    group_id: str | None
    pair: int
    log: Log
    other: Log
    offset: int
    other_offset: int
    source: str


class _Comparing:
    """One comparison."""

    def __init__(self, sides: tuple[_Side, _Side], pairs: list[TopicPair], key: bytes) -> None:
        self.sides, self.pairs, self.key = sides, pairs, key
        self.unread: dict[Stream, list[Fields]] = defaultdict(list)

    def compared(self, lacking: Sequence[str], absent: Sequence[str]) -> Comparison:
        """Return the result.

        ``lacking``: topics of A without a topic of B; ``absent``: topics that A's metadata names, without a directory.
        """
        groups = list(self._translated())
        tasks = self._tasks(groups)
        runner = self.sides[A].audit.runner
        names = ("n", "place", "by_broker")
        others: list[Fields] = [
            {"task": task.number, "kind": END, **dict(zip(names, task.known, strict=True))}
            for task in tasks
            if task.known is not None
        ]
        unknown = [task for task in tasks if task.known is None]
        if unknown:
            with runner.joins("sums", ROWS, unknown, sum_rows) as joins:
                others += joins.ask("SELECT * FROM sums").to_pylist()
        places = self._take(tasks, others)
        streams = self.sides[A].counts.keys() | self.sides[B].counts.keys()
        counts = {s: (self.sides[A].counts[s], self.sides[B].counts[s]) for s in sorted(streams)}
        differing = [tasks[row.task]._replace(each=True) for row in places]
        with runner.joins("sums", ROWS, differing, sum_rows) as joins:
            ends = {row["task"]: row["n"] for row in others if row["kind"] == END}
            for row in joins.ask(f"SELECT task, n FROM sums WHERE kind = {END}").to_pylist():
                task = tasks[row["task"]]
                if row["n"] != ends[row["task"]]:
                    self._unreadable(task.side, task.pair, task.log.partition, (task.log.start, None), CHANGED)
            matcher, matched, rewritten = self._matched(joins, places, counts)
            rows = [*self._of_records(matcher, matched), *self._of_pairs(matched, rewritten)]
        for first in absent:
            self.unread[NO_STREAM].append(_row("unread", topic=first, note=NOT_IN_INPUT, differs=False))
        for n, side in enumerate(self.sides):
            if any(one.metadata is not None and not one.whole for one in side.audit.settings.values()):
                name = {"other_topic" if n == B else "topic": METADATA_TOPIC}
                self.unread[NO_STREAM].append(_row("unread", note=NOT_WHOLE, differs=False) | name)
        for first in lacking:
            if self.sides[B].partitions(first) or not self.sides[B].has_metadata:  # another broker may have it
                self.unread[NO_STREAM].append(_row("unread", topic=first, note=NOT_IN_INPUT, differs=False))
            else:
                rows.append(_row("no_topic", topic=first, note="no such topic in B"))
        rows += [row for of_stream in self.unread.values() for row in of_stream]
        rows += self._of_groups(groups, matched)
        rows.sort(key=_place)
        totals = tuple(sum(side.counts.values()) for side in self.sides)
        incomplete = bool(self.unread) or any(side.audit.lacks_input() for side in self.sides)
        return Comparison(rows, len(counts), (totals[0], totals[1]), incomplete)

    def _matched(
        self, joins: Joins, places: list[TaskRow], counts: Mapping[Stream, tuple[int, int]]
    ) -> tuple[RecordMatcher, Matched, set[int]]:
        """Match records by their timestamps too, unless that of few are alike; return where these were rewritten."""
        compacted = {number: pair.compacted is True for number, pair in enumerate(self.pairs)}
        matcher = RecordMatcher(joins, places, compacted)
        matched, few = matcher.match(counts), dict[int, int]()
        for number in {row.pair for row in places if row.keeps}:
            least = sum(min(count) for (pair, _), count in counts.items() if pair == number)
            if matched.matched[number] * REWRITTEN < least:
                few[number] = matched.matched[number]
        if not few:
            return matcher, matched, set()
        again = [row._replace(keeps=row.keeps and row.pair not in few) for row in places]
        second = RecordMatcher(joins, again, compacted)
        without = second.match(counts)
        rewritten = {number for number, before in few.items() if without.matched[number] > REWRITTEN * before}
        if rewritten == few.keys():
            return second, without, rewritten
        again = [row._replace(keeps=row.keeps and row.pair not in rewritten) for row in places]
        matcher = RecordMatcher(joins, again, compacted)
        return matcher, matcher.match(counts), rewritten

    # what is read

    def _tasks(self, groups: Sequence[_Translated]) -> list[SummingTask]:
        asked: tuple[dict[Log, list[int]], dict[Log, list[int]]] = ({}, {})
        for one in groups:
            asked[A].setdefault(one.log, []).append(one.offset)
            asked[B].setdefault(one.other, []).append(one.other_offset)
        tasks: list[SummingTask] = []
        for side, of in enumerate(self.sides):
            for number, pair in enumerate(self.pairs):
                topic, elsewhere = (pair.other, pair.first) if side else pair[:2]
                for partition in of.lacks(topic, self.sides[1 - side].partitions(elsewhere)):
                    self._unreadable(side, number, partition, (0, None), NOT_IN_INPUT)
                logs = {log: of.logs[log] for log in sorted(of.logs) if log[0] == topic}
                read = tasks_of(of.audit, logs)
                cleaned = [True if t.compacted else None if t.cleaning_unknown else False for t in read.values()]
                known = True if True in cleaned or pair.compacted else None if None in cleaned else pair.compacted
                self.pairs[number] = pair = pair._replace(compacted=known)
                for log, readable in logs.items():
                    self._count(side, self._stream(number, log[1]), 0)
                    for first, last, why in readable.damaged:
                        if side == B and why == NO_FILE:
                            continue  # consumers of B lack them
                        self._unreadable(side, number, log[1], (first, last), why)
                    tasks += summing_tasks(side, number, readable, read[log], asked[side].get(log, ()), self.key)
        return [task._replace(number=number) for number, task in enumerate(tasks)]

    def _stream(self, pair: int, partition: int) -> Stream:
        return pair, -1 if self.pairs[pair].by_key else partition

    def _count(self, side: int, stream: Stream, records: int) -> None:
        self.sides[side].counts[stream] += records

    def _take(self, tasks: Sequence[SummingTask], others: Sequence[Values]) -> list[TaskRow]:
        """Take what tasks found besides records; return where the numbers of each one's records begin.

        Without the tasks of partitions whose records are the same in the same order: there is nothing to match.
        """
        ends = {row["task"]: row for row in others if row["kind"] == END}
        keeps = dict.fromkeys(range(len(self.pairs)), True)
        behind: dict[tuple[int, int, int], int] = {}
        summer, totals = RecordSummer(self.key), (dict[Stream, int](), dict[Stream, int]())
        rows = []
        for task in tasks:
            end, place = ends[task.number], (task.side, task.pair, task.log.partition)
            stream = self._stream(task.pair, task.log.partition)
            base = behind.get(place, task.log.partition << PARTITION_BITS if stream[1] < 0 else 0)
            behind[place] = base + end["n"]
            self._count(task.side, stream, end["n"])
            totals[task.side][stream] = summer.joined(totals[task.side].get(stream, 0), end["place"], end["n"])
            keeps[task.pair] &= not end["by_broker"]
            rows.append(TaskRow(task.number, task.side, *stream, base, True))
        for row in others:
            task, base = tasks[row["task"]], rows[row["task"]].base
            log = task.log.topic, task.log.partition
            if row["kind"] == ASKED:
                self.sides[task.side].asked[task.pair, log, row["place"]] = base + row["n"]
            elif row["kind"] == UNREAD:
                span = (row["place"], row["stamp"])
                self._unreadable(task.side, task.pair, task.log.partition, span, row["says"])
        alike = {stream for stream, total in totals[A].items() if stream[1] >= 0 and totals[B].get(stream) == total}
        alike = {stream for stream in alike if self.sides[A].counts[stream] == self.sides[B].counts[stream]}
        return [row._replace(keeps=keeps[row.pair]) for row in rows if (row.pair, row.stream) not in alike]

    def _unreadable(self, side: int, pair: int, partition: int, span: tuple[int, int | None], says: str) -> None:
        row = _row("unread", note=says, differs=False) | self._topics(pair, partition, only=side)
        row |= dict(zip(SPANS[side], span, strict=True))
        self.unread[self._stream(pair, partition)].append(row)

    def _topics(self, pair: int, partition: int, only: int | None = None) -> Fields:
        """Columns of the topics and partitions of a pair; ``only``: where the partition is that of one side alone."""
        one = self.pairs[pair]
        places: Fields = {"topic": one.first, "other_topic": one.other}
        if only != B or not one.by_key:
            places["partition"] = partition
        if only != A or not one.by_key:
            places["other_partition"] = partition
        return places

    # records

    def _of_records(self, matcher: RecordMatcher, matched: Matched) -> list[Fields]:
        ranges = [*self._missing(matched), *self._only_there(matched), *self._moved(matched)]
        ranges = self._changed(ranges)
        wanted: tuple[list[_Place], list[_Place]] = ([], [])
        for one in ranges:
            wanted[A].extend((*one.stream, n) for n in one.numbers[:2] if n is not None)
            wanted[B].extend((*one.stream, n) for n in one.numbers[2:] if n is not None)
            if one.row["kind"] == "expired":
                wanted[one.side].append((*one.stream, one.source["last"] + 1))
        offsets = matcher.offsets(A, wanted[A]), matcher.offsets(B, wanted[B])
        rows = []
        for one in ranges:
            for k, name in enumerate((*SPANS[A], *SPANS[B])):
                if (n := one.numbers[k]) is not None:
                    one.row[name] = offsets[k // 2].get((*one.stream, n))
            if one.row["kind"] == "expired":
                behind = offsets[one.side].get((*one.stream, one.source["last"] + 1))
                self._check_start(one, behind == one.row[SPANS[1 - one.side][1]])
            if one.row["kind"] in UNMATCHED:
                self._check_unread(one)
            rows.append(one.row)
        if matched.too_many:
            rows.append(_row("missing", note="too many differences: not all of their ranges are listed"))
        return rows

    def _check_unread(self, one: _Range) -> None:
        """Records may be where the other side was not read, between the neighbours that match."""
        low, high = (one.row[name] for name in SPANS[1 - one.side])
        if one.source["elsewhere"]:  # of records alike, any may be the one that is lacking
            low = high = None
        for row in self.unread.get(one.stream, ()):
            first, last = (row[name] for name in SPANS[1 - one.side])
            after_low = low is None or last is None or last > low
            if first is not None and after_low and (high is None or first < high):
                explained = one.row["kind"] in ("compacted", "expired")
                kind = ("missing", "extra")[one.side] if explained else one.row["kind"]
                one.row.update(kind=kind, differs=False, note="inconclusive: not all was read there on the other side")

    def _check_start(self, one: _Range, same_offsets: bool) -> None:
        """Where both sides have the same offsets, retention explains what is below the log start alone."""
        pair = self.pairs[one.stream[0]]
        start = self.sides[1 - one.side].logs[pair.first if one.side == B else pair.other, one.stream[1]].start
        if same_offsets and one.source["last_at"] >= start:
            note = f"the log of {'AB'[1 - one.side]} starts at offset {start}, where it should have some of them"
            one.row.update(kind=("missing", "extra")[one.side], differs=True, note=note)

    def _missing(self, matched: Matched) -> Iterator[_Range]:
        for r in matched.unmatched[A]:
            stream = (r["pair"], r["stream"])
            alignment = matched.alignments.get(stream, Alignment([]))
            before, after = alignment.before(r["first"]), alignment.after(r["last"] + 1)
            kind, note = self._absent(stream, r, A, (before, after))
            if r["shift"] is not None:
                kind, note, before, after = "changed", None, r["first"] + r["shift"], r["last"] + r["shift"]
            elif kind == "missing" and r["elsewhere"]:
                note = note or "B has an identical record, but fewer of them"
            row = self._row_of(r, A, kind, note)
            row["first_offset"], row["last_offset"] = r["first_at"], r["last_at"]
            yield _Range(stream, row, r, (None, None, before, after))

    def _only_there(self, matched: Matched) -> Iterator[_Range]:
        for r in matched.unmatched[B]:
            if r["shift"] is not None:  # its record of A names it
                continue
            stream = (r["pair"], r["stream"])
            back = matched.alignments.get(stream, Alignment([])).reversed()
            before, after = back.before(r["first"]), back.after(r["last"] + 1)
            kind, note = self._absent(stream, r, B, (before, after))
            kind = "extra" if kind == "missing" else kind
            row = self._row_of(r, B, kind, note)
            copy: tuple[int | None, int | None] = (None, None)
            row["other_first_offset"], row["other_last_offset"] = r["first_at"], r["last_at"]
            if kind == "duplicated":
                before, after = r["other_first"], r["other_last"]
                copy = self._later_copy(matched.alignments.get(stream, Alignment([])), r)
            yield _Range(stream, row, r, (before, after, *copy), B)

    @staticmethod
    def _later_copy(alignment: Alignment, r: Values) -> tuple[int | None, int | None]:
        """Return the records of B that match, if they are behind the copies ``r``: then they are the duplicates."""
        first, last = alignment.match(r["other_first"]), alignment.match(r["other_last"])
        later = first is not None and last is not None and first > r["first"] and last - first == r["last"] - r["first"]
        return (first, last) if later else (None, None)

    def _absent(
        self, stream: Stream, r: Values, side: int, around: tuple[int | None, int | None]
    ) -> tuple[str, str | None]:
        """Return the kind of records that one side lacks, and what explains it."""
        pair, records = self.pairs[stream[0]], r["last"] - r["first"] + 1
        other = "B" if side == A else "A"
        if r["superseded"]:
            return "compacted", f"{other} lacks them: compacted at another moment (a later record, or a tombstone)"
        if side == B and r["elsewhere"]:
            return "duplicated", None
        note: str | None = None
        if pair.compacted is None:
            note = "cleanup.policy is not in the input: if it is compact, the cleaner may have removed them"
        lacking = self.sides[1 - side].logs.get((pair.first if side else pair.other, stream[1]))
        if around[0] is None and around[1] is not None and lacking is not None and lacking.start >= records > 0:
            if r["latest"] <= lacking.expired_ms:
                return "expired", f"{other} lacks them: its log starts at offset {lacking.start} (retention)"
            note = f"the log of {other} starts at offset {lacking.start}, but retention keeps records of this age"
        if side == A and around[0] is not None and around[1] is None:
            if lacking is not None and lacking.stable < lacking.end:
                note = f"B may have them from offset {lacking.stable} on, not readable yet: look before you resend"
            return "behind", note or "not in B: lost, or not copied yet"
        return "missing", note

    def _row_of(self, r: Values, side: int, kind: str, note: str | None) -> Fields:
        stream = r["pair"], r["stream"]
        partition = stream[1] if stream[1] >= 0 else r["first"] >> PARTITION_BITS
        row = _row(kind, records=r["last"] - r["first"] + 1, note=note) | self._topics(stream[0], partition, side)
        times = {"first_at": r["earliest"], "last_at": r["latest"]}
        times = {name: ms if ms >= 0 else None for name, ms in times.items()}
        return row | times | {"producer_id": r["producer"] if r["producer"] == r["most"] else None}

    def _moved(self, matched: Matched) -> Iterator[_Range]:
        for stream, alignment in matched.alignments.items():
            for run in alignment.moved:
                row = _row("out_of_order", records=run.records) | self._topics(*stream)
                yield _Range(stream, row, row, (run.first, run.last, run.other, run.other_last))
        for pair in matched.inverted:
            stream, partition = (pair["pair"], -1), pair["a"] >> PARTITION_BITS
            row = _row("out_of_order", records=1, note="behind a later record of its key in B")
            row |= self._topics(pair["pair"], partition, A) | {"other_partition": pair["b"] >> PARTITION_BITS}
            yield _Range(stream, row, row, (pair["a"], pair["a"], pair["b"], pair["b"]))

    def _changed(self, ranges: list[_Range]) -> list[_Range]:
        """Make one of records that A has, and as many others that B has, between the same matched neighbours."""
        extra = {(one.stream, one.numbers[:2]): one for one in ranges if one.row["kind"] == "extra"}
        gone = set[int]()
        for k, one in enumerate(ranges):
            before, after = one.numbers[2:]
            if one.row["kind"] != "missing" or before is None or after is None:
                continue
            around = (one.source["first"] - 1, one.source["last"] + 1)
            other = extra.get((one.stream, around))
            if other is None or other.row["records"] != one.row["records"] or id(other) in gone:
                continue
            gone.add(id(other))
            numbers = (None, None, other.source["first"], other.source["last"])
            row = one.row | {"kind": "changed", "note": "by their place between records that match"}
            ranges[k] = _Range(one.stream, row, one.source, numbers)
        return [one for one in ranges if id(one) not in gone]

    def _of_pairs(self, matched: Matched, rewritten: set[int]) -> Iterator[Fields]:
        """Yield what tools and brokers changed of matched records."""
        for number, pair in enumerate(self.pairs):
            names = {"topic": pair.first, "other_topic": pair.other}
            if stamps := matched.stamps.get(number):
                why = "a tool probably rewrote them" if number in rewritten else "LogAppendTime: the broker sets them"
                yield _row("timestamps", records=stamps, note=why) | names
            if headers := matched.headers.get(number):
                every = headers == matched.matched[number]
                note = "of all records: a tool adds or removes them" if every else None
                yield _row("tool_headers" if every else "headers", records=headers, note=note) | names

    # groups

    def _translated(self) -> Iterator[_Translated]:
        """Offsets of A that became offsets of B: by checkpoints and offset syncs, else by the groups' commits."""
        by_name = ({p.first: n for n, p in enumerate(self.pairs)}, {p.other: n for n, p in enumerate(self.pairs)})
        seen = set[tuple[str | None, Log]]()
        for side, of in enumerate(self.sides):
            for one in translations(of.audit, of.logs):
                number = by_name[A if one.group_id is None else B].get(one.topic)
                if number is not None and (side == B or one.group_id is None):
                    source = "offset sync" if one.group_id is None else "checkpoint"
                    yield from self._asked(number, one, source, seen)
        committed = [of.committed(set(by_name[side])) for side, of in enumerate(self.sides)]
        for (group_id, (topic, partition)), offset in committed[A].items():
            number = by_name[A][topic]
            other = committed[B].get((group_id, (self.pairs[number].other, partition)))
            if other is not None and (group_id, (topic, partition)) not in seen:
                pair = TranslatedOffset(group_id, topic, partition, offset, other)
                yield from self._asked(number, pair, "committed offset", seen)

    def _asked(
        self, number: int, one: TranslatedOffset, source: str, seen: set[tuple[str | None, Log]]
    ) -> Iterator[_Translated]:
        pair = self.pairs[number]
        log, other = (pair.first, one.partition), (pair.other, one.partition)
        if not pair.by_key and log in self.sides[A].logs and other in self.sides[B].logs:
            seen.add((one.group_id, log))
            yield _Translated(one.group_id, number, log, other, one.upstream, one.downstream, source)

    def _of_groups(self, groups: Sequence[_Translated], matched: Matched) -> Iterator[Fields]:
        spans: tuple[dict[Stream, list[tuple[int, int]]], ...] = (defaultdict(list), defaultdict(list))
        copies: dict[Stream, list[Values]] = defaultdict(list)
        for side, of in enumerate(matched.unmatched):
            for r in of:
                spans[side][r["pair"], r["stream"]].append((r["first"], r["last"]))
                if side == B and r["elsewhere"]:
                    copies[r["pair"], r["stream"]].append(r)
        for one in groups:
            stream = one.pair, one.log[1]
            alignment = matched.alignments[stream]
            ours = self.sides[A].asked[one.pair, one.log, one.offset]
            theirs = self.sides[B].asked[one.pair, one.other, one.other_offset]
            before, after = alignment.before(ours), alignment.after(ours)
            low = 0 if before is None else before + 1
            kind, records = "group_right", 0
            if theirs < low:
                kind, records = "group_early", less(spans[B][stream], theirs, low)
            elif after is not None and theirs > after:
                passed = alignment.reversed().before(theirs)  # its copies further on are read
                again = [
                    (r["other_first"] + max(0, theirs - r["first"]), r["other_last"])
                    for r in copies[stream]
                    if r["last"] >= theirs
                ]
                records = less([*spans[A][stream], *again], ours, -1 if passed is None else passed + 1)
                kind = "group_late" if records > 0 else "group_right"
                records = max(0, records)
            row = _row(kind, records=records, note=f"by {one.source}") | self._topics(*stream)
            offsets = {"first_offset": one.offset, "other_first_offset": one.other_offset}
            yield row | offsets | {"group_id": one.group_id}


_Place = tuple[int, int, int]


class _Range(NamedTuple):
    """A row, what it was made of, and numbers of records whose offsets it lacks: two of A, and two of B."""

    stream: Stream
    row: Fields
    source: Values
    numbers: tuple[int | None, int | None, int | None, int | None]
    side: int = A  # whose records


def _row(kind: str, **columns: object) -> Fields:
    return {**dict.fromkeys(COMPARISON.names), "kind": kind, "differs": kind not in EXPLAINED, **columns}


def _place(row: Values) -> tuple[object, ...]:
    names = ("topic", "partition", "first_offset", "other_topic", "other_partition", "other_first_offset", "group_id")
    return (not row["differs"], KINDS.index(row["kind"]), *((row[n] is not None, row[n]) for n in names))
