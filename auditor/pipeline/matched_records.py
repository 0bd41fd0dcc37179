"""The records of two inputs matched by their sums, in SQL that DuckDB and Spark share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from auditor.base.at_rest import Fields
from auditor.pipeline.alignment import Alignment, MatchedRun, in_order
from auditor.pipeline.compared_records import RECORD
from auditor.pipeline.runner import Joins

# A stream is what is compared in order: the records of a partition, in A and in B; of topics with different numbers
# of partitions all records (stream -1), in order by key. A record is identified by the sums of its key and value and by
# its timestamp, if that is kept. Records are numbered in their stream; in stream -1 the partition is above the number.


PARTITION_BITS = 40
MOST_RANGES = 100_000  # of one kind of a comparison
IDENTITY = ("pair", "stream", "key_sum", "value_sum", "ts")
_SIDE = """SELECT r.pair, t.stream, r.n + t.base AS n, r.place, r.stamp, r.producer, r.key_sum, r.value_sum,
r.header_sum, CASE WHEN t.keeps THEN r.stamp ELSE 0 END AS ts FROM sums r JOIN tasks t ON r.task = t.task
WHERE r.kind = {record} AND t.side = {side}"""
_SAME = "a.key_sum = b.key_sum AND a.value_sum = b.value_sum AND a.ts = b.ts"
_OTHER = f"count(CASE WHEN {_SAME} AND (a.header_sum <> b.header_sum OR a.stamp <> b.stamp) THEN 1 END) AS others"
# What the first records have in common, and whether headers or timestamps differ.
_PREFIX = f"""SELECT a.pair, a.stream, min(CASE WHEN {_SAME} THEN NULL ELSE a.n END) AS first, {_OTHER}
FROM ({{a}}) a JOIN ({{b}}) b ON a.pair = b.pair AND a.stream = b.stream AND a.n = b.n
WHERE a.stream >= 0 GROUP BY a.pair, a.stream"""
# Numbered from the end, so that a join hashes the number too.
_FROM_END = """SELECT r.*, r.n - s.{name}_count AS back FROM ({side}) r JOIN ends s
ON r.pair = s.pair AND r.stream = s.stream WHERE r.n >= s.low"""
_SUFFIX = f"""SELECT a.pair, a.stream, max(CASE WHEN {_SAME} THEN NULL ELSE a.n END) AS last, {_OTHER}
FROM ({_FROM_END.format(side="{a}", name="a")}) a JOIN ({_FROM_END.format(side="{b}", name="b")}) b
ON a.pair = b.pair AND a.stream = b.stream AND a.back = b.back GROUP BY a.pair, a.stream"""
# Of matched runs, in how many records these differ.
_DIFFERING = """SELECT a.pair, count(CASE WHEN a.header_sum <> b.header_sum THEN 1 END) AS headers,
count(CASE WHEN a.stamp <> b.stamp THEN 1 END) AS stamps FROM ({a}) a
JOIN runs s ON a.pair = s.pair AND a.stream = s.stream AND a.n >= s.first AND a.n <= s.last
JOIN ({b}) b ON s.pair = b.pair AND s.stream = b.stream AND a.n + s.shift = b.n GROUP BY a.pair"""
_MIDDLE = """SELECT r.* FROM ({side}) r JOIN spans s ON r.pair = s.pair AND r.stream = s.stream
WHERE r.n >= s.{name}_low AND r.n < s.{name}_behind"""
_ON = " AND ".join(f"r.{name} = o.{name}" for name in IDENTITY)
_BY = ", ".join(IDENTITY)
# Records that the middle of the other side has less often: the last copies; of a compacted topic the first ones, since
# its cleaner removes these.
_UNMATCHED = f"""SELECT r.* FROM (SELECT m.*, row_number() OVER (
PARTITION BY {", ".join(f"m.{name}" for name in IDENTITY)} ORDER BY CASE WHEN p.compacted THEN -n ELSE n END) AS k
FROM middle_{{name}} m JOIN pairs p ON m.pair = p.pair) r
LEFT JOIN (SELECT {_BY}, count(*) AS c FROM middle_{{other}} GROUP BY {_BY}) o ON {_ON} WHERE r.k > coalesce(o.c, 0)"""
_ONCE = f"""SELECT {_BY}, min(n) AS n, min(header_sum) AS h, min(stamp) AS s
FROM middle_{{name}} GROUP BY {_BY} HAVING count(*) = 1"""
_ANCHORS = f"""SELECT r.pair, r.stream, r.key_sum, r.n AS a, o.n AS b, r.h <> o.h AS headers, r.s <> o.s AS stamps
FROM ({_ONCE.format(name="a")}) r JOIN ({_ONCE.format(name="b")}) o ON {_ON}"""
# The first and last record of each run.
_RUNS = """SELECT pair, stream, a, b, starts, ends FROM (
SELECT pair, stream, a, b, coalesce(a <> 1 + lag(a) OVER w OR b <> 1 + lag(b) OVER w, true) AS starts,
coalesce(a <> lead(a) OVER w - 1 OR b <> lead(b) OVER w - 1, true) AS ends
FROM anchors WHERE stream >= 0 WINDOW w AS (PARTITION BY pair, stream ORDER BY a)) e
WHERE starts OR ends ORDER BY pair, stream, a LIMIT {most}"""
# By key: records that B has behind a later one of the same key, in the same partition.
_INVERTED = f"""SELECT pair, a, b FROM (
SELECT pair, a, b, lag(b) OVER (PARTITION BY pair, key_sum ORDER BY a) AS p
FROM anchors WHERE stream < 0 AND key_sum <> 0) e
WHERE p > b AND floor(p / {1 << PARTITION_BITS}) = floor(b / {1 << PARTITION_BITS})
ORDER BY pair, a LIMIT {MOST_RANGES}"""
_OF_R = ", ".join(f"r.{name}" for name in IDENTITY)
_ELSEWHERE = f"""SELECT {_OF_R}, min(r.n) AS other FROM ({{side}}) r
JOIN (SELECT DISTINCT {_BY} FROM unmatched_{{name}}) o ON {_ON} GROUP BY {_OF_R}"""
# Of each key of these, the last record on their side, and whether the other side has records of the key. A cleaner
# explains what is missing of a key if the other side has that last record; or none, and it is a tombstone.
_LATEST = """SELECT r.pair, r.stream, r.key_sum, max(r.n) AS latest, max_by(r.value_sum, r.n) AS value_sum
FROM ({side}) r JOIN (SELECT DISTINCT u.pair, u.stream, u.key_sum FROM unmatched_{name} u
JOIN pairs p ON u.pair = p.pair WHERE p.compacted AND u.key_sum <> 0) o
ON r.pair = o.pair AND r.stream = o.stream AND r.key_sum = o.key_sum
GROUP BY r.pair, r.stream, r.key_sum"""
_SETTLED = """SELECT l.pair, l.stream, l.key_sum FROM latest_{name} l LEFT JOIN latest_of_{name} o
ON l.pair = o.pair AND l.stream = o.stream AND l.key_sum = o.key_sum
LEFT JOIN unmatched_{name} u ON l.pair = u.pair AND l.stream = u.stream AND l.latest = u.n
WHERE u.n IS NULL OR (l.value_sum = 0 AND o.key_sum IS NULL)"""
_FLAGGED = f"""SELECT u.pair, u.stream, u.n, u.place, u.stamp, u.producer, u.key_sum, u.value_sum, u.ts, o.other,
l.key_sum IS NOT NULL AS superseded FROM unmatched_{{name}} u LEFT JOIN settled_{{name}} l ON u.pair = l.pair
AND u.stream = l.stream AND u.key_sum = l.key_sum LEFT JOIN elsewhere_{{name}} o ON {_ON.replace("r.", "u.")}"""
_LONE = """SELECT pair, stream, key_sum, ts, min(n) AS n FROM flagged_{name} WHERE other IS NULL AND NOT superseded
AND (key_sum <> 0 OR ts <> 0) GROUP BY pair, stream, key_sum, ts HAVING count(*) = 1"""
_CHANGED = f"""SELECT r.pair, r.stream, r.n AS a, o.n AS b FROM ({_LONE.format(name="a")}) r
JOIN ({_LONE.format(name="b")}) o ON r.pair = o.pair AND r.stream = o.stream AND r.key_sum = o.key_sum
AND r.ts = o.ts"""
# Records with consecutive numbers and equal flags; `shift` leads from a number to that of the record that was changed.
_RANGES = f"""SELECT pair, stream, elsewhere, superseded, shift, min(n) AS first, max(n) AS last,
min(place) AS first_at, max(place) AS last_at, min(stamp) AS earliest,
max(stamp) AS latest, min(producer) AS producer, max(producer) AS most,
min(other) AS other_first, max(other) AS other_last FROM (
SELECT f.*, f.n - row_number() OVER (PARTITION BY pair, stream, elsewhere, superseded, shift ORDER BY n) AS g FROM (
SELECT u.*, u.other IS NOT NULL AS elsewhere, c.{{other}} - c.{{name}} AS shift FROM flagged_{{name}} u
LEFT JOIN changed c ON u.pair = c.pair AND u.stream = c.stream AND u.n = c.{{name}}) f) e
GROUP BY pair, stream, elsewhere, superseded, shift, g ORDER BY pair, stream, first LIMIT {MOST_RANGES + 1}"""
_AT = """SELECT w.pair, w.stream, w.n, r.place, r.stamp FROM wanted w JOIN ({side}) r
ON w.pair = r.pair AND w.stream = r.stream AND w.n = r.n"""

Stream = tuple[int, int]  # pair and partition; partition -1: all of them


class TaskRow(NamedTuple):
    """Where the numbers of a task's records begin in its stream; ``keeps``: whether timestamps identify records."""

    task: int
    side: int
    pair: int
    stream: int
    base: int
    keeps: bool


class Matched(NamedTuple):
    """What matching two inputs gives.

    ``unmatched``: by side ranges of records without a counterpart. ``headers``, ``stamps``: by pair, of how many of the
    ``matched`` records these differ. ``inverted``: of streams -1 the records out of order. ``too_many``: whether
    ranges or runs were cut off.
    """

    alignments: dict[Stream, Alignment]
    unmatched: tuple[list[Fields], list[Fields]]
    inverted: list[Fields]
    headers: Mapping[int, int]
    stamps: Mapping[int, int]
    matched: Mapping[int, int]
    too_many: bool


class RecordMatcher:
    """Matches records of the table ``sums``; ``tasks``: those of streams in which A and B differ."""

    def __init__(self, joins: Joins, tasks: Sequence[TaskRow], compacted: Mapping[int, bool]) -> None:
        self.joins, self.any = joins, bool(tasks)
        self.a, self.b = (_SIDE.format(record=RECORD, side=side) for side in (0, 1))
        kinds = (pa.int32(), pa.int8(), pa.int32(), pa.int32(), pa.int64(), pa.bool_())
        joins.put("tasks", _table(dict(zip(TaskRow._fields, kinds, strict=True)), tasks))
        joins.put("pairs", _table({"pair": pa.int32(), "compacted": pa.bool_()}, compacted.items()))
        self.headers, self.stamps, self.matched = (defaultdict[int, int](int) for _ in range(3))

    def _put(self, name: str, columns: Sequence[str], rows: Iterable[Sequence[int]]) -> None:
        kinds = {"pair": pa.int32(), "stream": pa.int32(), **dict.fromkeys(columns, pa.int64())}
        self.joins.put(name, _table(kinds, rows))

    def _ask(self, text: str) -> list[Fields]:
        rows: list[Fields] = self.joins.ask(text).to_pylist()
        return rows

    def match(self, counts: Mapping[Stream, tuple[int, int]]) -> Matched:
        """Match all streams; of those with one number of partitions first what both begin and end with.

        ``counts``: of each stream the records of A and of B. A stream without tasks is the same in both.
        """
        runs = self._ends(counts)
        middle = {stream for stream, (first, last) in runs.items() if not _is_all(first, last, counts[stream])}
        spans = [(*stream, *_span(*runs[stream], counts[stream])) for stream in sorted(middle)]
        spans += [(*stream, 0, 1 << 62, 0, 1 << 62) for stream in counts if stream[1] < 0]
        unmatched: tuple[list[Fields], list[Fields]] = ([], [])
        runs_of, inverted = dict[Stream, list[MatchedRun]](), list[Fields]()
        if spans:
            self._keep_middles(spans)
            runs_of, inverted = self._anchors(), self._ask(_INVERTED)
            unmatched = self._unmatched()
        too_many = max(len(unmatched[0]), len(unmatched[1]), len(inverted) + 1) > MOST_RANGES
        too_many |= sum(map(len, runs_of.values())) >= MOST_RANGES
        alignments = {}
        for stream, (first, last) in runs.items():
            kept, moved = in_order(runs_of.get(stream, []))
            alignments[stream] = Alignment([*_joined([first, *kept, last])], moved)
        return Matched(alignments, unmatched, inverted, self.headers, self.stamps, self.matched, too_many)

    def _note(self, row: Fields) -> None:
        self.headers[row["pair"]] += row["headers"]
        self.stamps[row["pair"]] += row["stamps"]

    def _ends(self, counts: Mapping[Stream, tuple[int, int]]) -> dict[Stream, tuple[MatchedRun, MatchedRun]]:
        """Return what each stream of one partition begins and ends with in both inputs."""
        low, others = {stream: min(count) for stream, count in counts.items() if stream[1] >= 0}, 0
        for row in self._ask(_PREFIX.format(a=self.a, b=self.b)) if self.any else ():
            others += row["others"]
            if row["first"] is not None:
                low[row["pair"], row["stream"]] = row["first"]
        ends = [(*stream, *counts[stream], n) for stream, n in low.items() if n < max(counts[stream])]
        last = {stream: max(n, n + counts[stream][0] - counts[stream][1]) for stream, n in low.items()}
        if ends:
            self._put("ends", ("a_count", "b_count", "low"), ends)
            for row in self._ask(_SUFFIX.format(a=self.a, b=self.b)):
                others += row["others"]
                if row["last"] is not None:
                    last[row["pair"], row["stream"]] = row["last"] + 1
        runs = {}
        for stream, n in low.items():
            count, other = counts[stream]
            end = MatchedRun(last[stream], count - 1, last[stream] - count + other)
            runs[stream] = MatchedRun(0, n - 1, 0), end
            self.matched[stream[0]] += n + max(0, end.records)
        if others:
            shifts = [(*stream, run.first, run.last, run.other - run.first) for stream in runs for run in runs[stream]]
            self._put("runs", ("first", "last", "shift"), shifts)
            for row in self._ask(_DIFFERING.format(a=self.a, b=self.b)):
                self._note(row)
        return runs

    def _keep_middles(self, spans: Sequence[tuple[int, ...]]) -> None:
        self._put("spans", ("a_low", "a_behind", "b_low", "b_behind"), spans)
        for name, side in (("a", self.a), ("b", self.b)):
            self.joins.keep(f"middle_{name}", _MIDDLE.format(side=side, name=name))
        self.joins.keep("anchors", _ANCHORS)

    def _anchors(self) -> dict[Stream, list[MatchedRun]]:
        counted = (
            "SELECT pair, count(*) AS n, count(CASE WHEN headers THEN 1 END) AS headers, "
            "count(CASE WHEN stamps THEN 1 END) AS stamps FROM anchors"
        )
        for row in self._ask(f"{counted} GROUP BY pair"):
            self._note(row)
            self.matched[row["pair"]] += row["n"]
        runs: dict[Stream, list[MatchedRun]] = {}
        begun: Fields = {}
        for row in self._ask(_RUNS.format(most=2 * MOST_RANGES)):
            begun = row if row["starts"] else begun
            if row["ends"]:
                one = MatchedRun(begun["a"], row["a"], begun["b"])
                runs.setdefault((row["pair"], row["stream"]), []).append(one)
        return runs

    def _unmatched(self) -> tuple[list[Fields], list[Fields]]:
        for name, other, ours, theirs in (("a", "b", self.a, self.b), ("b", "a", self.b, self.a)):
            self.joins.keep(f"unmatched_{name}", _UNMATCHED.format(name=name, other=other))
            self.joins.keep(f"elsewhere_{name}", _ELSEWHERE.format(name=name, side=theirs))
            self.joins.keep(f"latest_{name}", _LATEST.format(name=name, side=ours))
            self.joins.keep(f"latest_of_{name}", _LATEST.format(name=name, side=theirs))
            self.joins.keep(f"settled_{name}", _SETTLED.format(name=name))
            self.joins.keep(f"flagged_{name}", _FLAGGED.format(name=name))
        self.joins.keep("changed", _CHANGED)
        return self._ask(_RANGES.format(name="a", other="b")), self._ask(_RANGES.format(name="b", other="a"))

    def offsets(self, side: int, wanted: Iterable[tuple[int, int, int]]) -> dict[tuple[int, int, int], int]:
        """Return the offsets of records, each given by pair, stream and number."""
        rows = sorted(set(wanted))
        if not rows:
            return {}
        self._put("wanted", ("n",), rows)
        numbered = self._ask(_AT.format(side=self.b if side else self.a))
        return {(row["pair"], row["stream"], row["n"]): row["place"] for row in numbered}


def _table(kinds: Mapping[str, pa.DataType], rows: Iterable[Sequence[Any]]) -> pa.Table:
    columns = [*zip(*rows, strict=True)] or [()] * len(kinds)
    arrays = [pa.array(values, kind) for values, kind in zip(columns, kinds.values(), strict=True)]
    return pa.table(arrays, names=list(kinds))


def _is_all(first: MatchedRun, last: MatchedRun, counts: tuple[int, int]) -> bool:
    return first.records + max(0, last.records) == max(counts)


def _span(first: MatchedRun, last: MatchedRun, counts: tuple[int, int]) -> tuple[int, int, int, int]:
    """The records between what both begin and end with: of A and of B the first, and behind the last."""
    return first.last + 1, min(last.first, counts[0]), first.last + 1, min(last.other, counts[1])


def _joined(runs: Iterable[MatchedRun]) -> list[MatchedRun]:
    joined: list[MatchedRun] = []
    for run in runs:
        if run.records <= 0:
            continue
        if joined and joined[-1].last + 1 == run.first and joined[-1].other_last + 1 == run.other:
            joined[-1] = joined[-1]._replace(last=run.last)
        else:
            joined.append(run)
    return joined
