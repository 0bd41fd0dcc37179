"""The table impact."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from auditor.base.at_rest import Fields, Values
from auditor.base.errors import SEQUENCES, DecodeError
from auditor.base.evidence_keys import Evidence, SequenceEvidence, read
from auditor.connectors.codec import batches as walking
from auditor.connectors.codec.batches import BatchColumns
from auditor.connectors.schema import MadeOf, declared
from auditor.facts.replica_facts import ReplicaFacts, SegmentScan
from auditor.pipeline.lag_table import ReadCluster
from auditor.replay.reading import lag_counts
from auditor.replay.task import ReplicaTask
from auditor.rules.lib.lost_batches import READ, SentAgain, sent_again
from auditor.rules.lib.replica_pairs import last_before
from auditor.rules.seen.cluster_view import Cluster
from auditor.rules.seen.view import IMPACTS, Finding, LogView, plain
from auditor.rules.transactions.making import around

# Which records are lost, hidden, exposed or duplicated. Rules decide that and name the offsets (``Finding.ranges``);
# here the headers of these batches are read again, for what else is known of their records.


IMPACT = declared(
    "impact",
    """
    a range of offsets whose records are lost, hidden, exposed or duplicated, of one producer and transaction; see \
[impact](impact.md)
    SELECT outcome, topic, partition, sum(records) AS records FROM impact GROUP BY ALL ORDER BY records DESC
    outcome:string lost, hidden (committed, and read_committed consumers do not get them), exposed (aborted, and they \
do) or duplicated
    first_offset:long first offset in the log of `log_dir`; null where the records have no offset
    last_offset:long last offset there; null likewise
    records:long number of records; null where their batches cannot be read
    bytes:long bytes of the batches that hold them; null likewise
    producer_id:long id of their producer; null where it is unknown
    producer_epoch:int epoch of that producer id; null likewise
    first_sequence:int sequence number of the first record; null: none
    transactional_id:string
    transaction:string `transaction_key` of their transaction in `transactions`; null: none, or not known
    framework:string framework that uses the transactional id, as in `blocked`; null: not known
    application:string application that uses it; null: not known
    first_at:time when the first record was written, at the earliest, by brokers' clocks; else its batch's timestamp; \
null where the batches cannot be read
    last_at:time when the last record was written, at the latest, by the same clocks; null likewise
    on_other_replica:bool whether another replica than the one that consumers read has them; null: not known
    other_log_dir:string log directory of that replica, which has them under `first_offset` to `last_offset`; \
null: none
    sent_again:bool whether the leader's log has all of them under another offset (same producer, epoch and \
sequences); null: not known
    sent_again_offset:long first offset there; null: not sent again, or not known
    groups:strings groups that committed an offset behind `first_offset`; may be empty
    kind:string kind of the finding
    finding:string fingerprint of the finding
    confidence:string confidence of the finding: `proved`, `likely` or `undecidable`
    undecided:string why the row may be incomplete; null where nothing suggests it
""",
    of=MadeOf.FINDINGS,
)
LOST, HIDDEN, EXPOSED, _ = IMPACTS
MOST_GROUPS = 1_000  # rows of one range; a range of more has one row
MOST_ROWS = 10_000  # of a log
MOST_SEARCHES = 20  # ranges of a log whose records are searched for in the rest of it
NO_COPY = "no replica in the input has them"
NOT_IN_INPUT = "the partition is not in the input"
ONLY_DECIDED = "only the coordinator's log shows its transaction, without the number of its records"
MANY = "it has more producers and transactions than are listed separately"
UNREAD = "batches of this input cannot be read a second time"


class ImpactedRange(NamedTuple):
    """Offsets that a finding names; negative for records without offsets. ``row``: columns that the finding knows."""

    first: int
    last: int
    producer_id: int | None
    row: Fields

    def bare(self, topic: str, partition: int) -> Fields:
        """Return its row where the input lacks the partition."""
        place = {"topic": topic, "partition": partition, "undecided": NOT_IN_INPUT}
        offsets = {"first_offset": self.first, "last_offset": self.last} if self.first >= 0 else {}
        return {**offsets, **self.row, **place}


AskedLog = tuple[str, str, int]  # join key, topic and partition
UNLISTED = (*IMPACTS, "at_risk", "unreadable")  # outcomes of findings that :func:`without_rows` returns
_RecordSource = tuple[str, int, str | None, int | None, str | None]  # log, log directory, producer and transactional id


def ranges_by_log(findings: Iterable[Finding], clusters: Mapping[str, str]) -> dict[AskedLog, list[ImpactedRange]]:
    """Return what findings name as lost, hidden, exposed or duplicated. ``clusters``: join key by log directory."""
    by_log: dict[AskedLog, list[ImpactedRange]] = defaultdict(list)
    for f in findings:
        if f.outcome not in IMPACTS:
            continue
        evidence, several = read(Evidence, f.evidence), list[tuple[_RecordSource, list[int]]]()
        own = f.ranges if f.topic is not None and f.partition is not None else []
        for other in evidence.get("also", ()):
            topic, partition = other["topic"], other["partition"]
            if other.get("outcome") != f.outcome or topic is None or partition is None:
                continue
            source = (topic, partition, other.get("log_dir"), other.get("producer_id"), other.get("transactional_id"))
            here = own if (topic, partition) == (f.topic, f.partition) else ()
            several += [(source, span) for span in other.get("ranges", ()) if not _overlaps(span, here)]
        if f.topic is not None and f.partition is not None:
            source = (f.topic, f.partition, evidence.get("log_dir"), f.producer_id, f.transactional_id)
            several = [(source, span) for span in own or ([] if several else [[-1, -1]])] + several
        for (topic, partition, log_dir, producer, owner), span in several:
            row = _known(f) | {"log_dir": log_dir, "transactional_id": owner}
            of_data = None if f.group_id is not None or f.outcome == LOST else producer
            named = ImpactedRange(span[0], span[1], span[2] if len(span) > 2 else of_data, row)
            by_log[clusters.get(log_dir or "", ""), topic, partition].append(named)
    return dict(by_log)


def without_rows(findings: Iterable[Finding], rows: Iterable[Values]) -> list[Finding]:
    """Return the findings whose records are or may be lost, or are unreadable, and that no row is about."""
    by_log, listed = defaultdict[tuple[str | None, int | None], list[Values]](list), set[str]()
    for row in rows:
        by_log[row["topic"], row["partition"]].append(row)
        listed.add(row["finding"])
    return [
        f
        for f in findings
        if f.outcome in UNLISTED
        and f.fingerprint not in listed
        and not any(_is_in(row, f) for row in by_log.get((f.topic, f.partition), ()))
    ]


def _is_in(row: Values, f: Finding) -> bool:
    first, last = row.get("first_offset"), row.get("last_offset")
    if row["outcome"] not in (LOST, f.outcome) or first is None or last is None or f.offset is None:
        return False
    return bool(first <= f.offset <= last)


def _overlaps(span: list[int], others: Iterable[list[int]]) -> bool:
    return any(span[0] <= other[1] and other[0] <= span[1] and span[2:] == other[2:] for other in others)


def _known(f: Finding) -> Fields:
    evidence = read(Evidence, f.evidence)
    row: Fields = {"outcome": f.outcome, "kind": f.kind, "finding": f.fingerprint}
    row |= {"confidence": evidence.get("confidence"), "groups": [] if f.group_id is None else [f.group_id]}
    if "ranges_in_all" in evidence:
        row["undecided"] = f"the finding lists {len(f.ranges)} of {evidence['ranges_in_all']} ranges"
    if "summed" in evidence:
        row["undecided"] = f"{evidence['summed']} findings between these offsets: {evidence.get('listed_by', '')}"
        return row | {"first_offset": evidence["first_offset"], "last_offset": evidence["last_offset"]}
    if not f.ranges and f.group_id is None:
        row |= {"records": evidence.get("missing_records"), "sent_again": False}
        if "transaction_key" in evidence:  # only its coordinator's log shows it
            row |= {"transaction": evidence["transaction_key"], "undecided": ONLY_DECIDED}
        else:
            row["first_sequence"] = read(SequenceEvidence, f.evidence).get("expected")
        row |= {"producer_id": f.producer_id, "producer_epoch": f.producer_epoch}
    return row


def rows_of(
    asked: Mapping[AskedLog, list[ImpactedRange]],
    keys_of: Callable[[LogView], Sequence[str | None]],
    replicas: list[ReplicaFacts],
    cluster: Cluster,
) -> Iterator[tuple[str, Fields]]:
    """Yield the rows about one log, times in ms. ``keys_of``: of each transaction of a log's leader its key."""
    place = replicas[0].join_key, replicas[0].topic, replicas[0].partition
    if (ranges := asked.get(place)) is None or not isinstance(cluster, ReadCluster):
        return
    log = LogView(replicas, cluster)
    for row in _ImpactReading(log, cluster, keys_of).rows(ranges):
        yield "impact", plain({"topic": log.topic, "partition": log.partition, **row})


def data_in(
    task: ReplicaTask, scans: Sequence[SegmentScan], first: int, last: int
) -> Iterator[tuple[int, BatchColumns]]:
    """Yield the data batches of a replica between two offsets with the number of their segment, as far as readable."""
    for number, (base, behind) in enumerate(lag_counts.stretches(task)):
        if behind <= first or base > last:
            continue
        for rows in lag_counts.headers_of(task, number, first, scans):
            if isinstance(rows, DecodeError):
                break
            data = (rows[:, walking.MAGIC] < 2) | (rows[:, walking.ATTRIBUTES] & walking.CONTROL == 0)
            inside = (rows[:, walking.LAST_OFFSET] >= first) & (rows[:, walking.BASE_OFFSET] <= last)
            yield number, walking.columns_of(rows[data & inside])
            if len(rows) and rows[-1, walking.BASE_OFFSET] > last:
                break


class _ImpactReading:
    """The ranges of one log, with what its batches, its transactions and its groups tell of them."""

    def __init__(self, log: LogView, cluster: ReadCluster, keys_of: Callable[[LogView], Sequence[str | None]]) -> None:
        self.log, self.cluster = log, cluster
        self.by_dir = {replica.log_dir: replica for replica in log.replicas}
        self.keys_of = keys_of
        self.keys: dict[str, Sequence[str | None]] = {}  # of each replica's transactions, by log directory
        self.searches = 0
        self.positions = cluster.positions.get((log.topic, log.partition), ())

    def rows(self, ranges: Sequence[ImpactedRange]) -> Iterator[Fields]:
        """Yield the rows of ranges; records without offsets last, and not where other rows have them."""
        made: dict[tuple[object, ...], Fields] = {}
        for number, one in enumerate(ranges):
            if len(made) >= MOST_ROWS:
                left = {"undecided": f"{len(ranges) - number} further ranges of this partition are not listed"}
                yield self._named(self.log.leader, {**one.row, "transactional_id": None, **left})
                break
            for row in self._rows(one) if one.first >= 0 else ():
                name = tuple(row.get(n) for n in ("outcome", "log_dir", "first_offset", "last_offset", "producer_id"))
                made.setdefault(name, row)
        yield from made.values()
        named = {row.get("transaction") for row in made.values()} - {None}
        for one in ranges:
            if one.row.get("transaction") in named:
                continue
            if one.first < 0 and not any(_has(row, one.row) for row in made.values()):
                yield self._named(self.by_dir.get(one.row["log_dir"] or "", self.log.leader), one.row)

    def _rows(self, one: ImpactedRange) -> Iterator[Fields]:
        replica = self.by_dir.get(one.row["log_dir"] or "", self.log.leader)
        bare = self._named(replica, one.row | {"first_offset": one.first, "last_offset": one.last})
        batches, holder = self._read(replica, one), replica
        lost = one.row["outcome"] == LOST
        if lost and batches is not None and not len(batches.position):  # the leader lacks them, another may have them
            for holder in (other for other in self.log.replicas if other is not replica):
                batches = self._read(holder, one)
                if batches is not None and len(batches.position):
                    break
        if batches is not None:
            one, batches = _of_whole_batches(one, batches)
        if batches is None or not len(batches.position):
            bare |= {} if lost or batches is None else {"records": 0, "bytes": 0}
            why = UNREAD if batches is None else NO_COPY if lost else None
            on_other = False if lost and batches is not None else None
            yield bare | {"undecided": one.row.get("undecided") or why, "on_other_replica": on_other}
            return
        other = holder if lost and holder is not self.log.leader else self._other_with(batches, holder, one)
        among = {"on_other_replica": other is not None, "other_log_dir": None if other is None else other.log_dir}
        again = self._again(batches, one)
        for transaction, rows in self._parted(holder, batches, several=one.row["groups"] != []):
            if lost and transaction is not None and transaction["marker_offset"] >= 0 and not transaction["commit"]:
                continue  # aborted: consumers never got them
            some = batches.take(rows)
            first, last = max(one.first, int(some.base_offset.min())), min(one.last, int(some.last_offset.max()))
            row = bare | among | self._of_batches(holder, some, one, transaction)
            row |= {"first_offset": first, "last_offset": last}
            if one.row["groups"] == [] and len(np.unique(some.producer_id)) > 1:
                row["undecided"] = MANY
            if again is not None:
                row["sent_again"] = whole = bool(again.whole[rows].all())
                row["sent_again_offset"] = again.first if whole else None
            yield row | {"groups": row["groups"] or self._groups_behind(first)}

    def _read(self, replica: ReplicaFacts, one: ImpactedRange) -> BatchColumns | None:
        """Data batches of a replica in a range; None where they cannot be read again."""
        if (replica.log_dir, self.log.topic, self.log.partition) not in self.cluster.tasks:
            return None
        pieces = [walking.columns_of(walking.walk_rows(0)), *self._pieces(replica, one.first, one.last)]
        batches = BatchColumns(*map(np.concatenate, zip(*pieces, strict=True)))
        return batches if one.producer_id is None else batches.take(batches.producer_id == one.producer_id)

    def _pieces(self, replica: ReplicaFacts, first: int, last: int) -> Iterator[BatchColumns]:
        task = self.cluster.tasks.get((replica.log_dir, self.log.topic, self.log.partition))
        pieces = () if task is None else data_in(task, replica.scans, first, last)
        return (batches for _, batches in pieces)

    def _other_with(self, batches: BatchColumns, holder: ReplicaFacts, one: ImpactedRange) -> ReplicaFacts | None:
        """Another replica that has the same batches at the same offsets."""
        for other in self.log.replicas:
            if other is holder or (theirs := self._read(other, one)) is None:
                continue
            same = np.array_equal(theirs.base_offset, batches.base_offset) and np.array_equal(theirs.crc, batches.crc)
            if same:
                return other
        return None

    def _parted(
        self, replica: ReplicaFacts, batches: BatchColumns, *, several: bool
    ) -> Iterator[tuple[np.void | None, np.ndarray]]:
        """Yield which batches are of one producer, epoch and transaction (TRANSACTION), in log order; all if many."""
        t = replica.transactions
        numbers = last_before((t["producer_id"], t["first_offset"]), (batches.producer_id, batches.base_offset))
        ended = np.append(t["last_offset"], -1)[numbers] >= batches.base_offset
        numbers = np.where(ended & (batches.attributes & walking.TRANSACTIONAL != 0), numbers, -1)
        columns = np.stack([batches.producer_id, batches.producer_epoch.astype(np.int64), numbers])
        _, begin, group = np.unique(columns, axis=1, return_index=True, return_inverse=True)
        if several or len(begin) > MOST_GROUPS:
            yield None, np.ones(len(numbers), bool)
            return
        for number in np.argsort(begin, kind="stable").tolist():
            row = int(numbers[begin[number]])
            yield None if row < 0 else t[row], np.ravel(group) == number

    def _of_batches(
        self, replica: ReplicaFacts, some: BatchColumns, one: ImpactedRange, transaction: np.void | None
    ) -> Fields:
        within = np.minimum(some.last_offset, one.last) - np.maximum(some.base_offset, one.first) + 1
        alone = len(np.unique(some.producer_id)) == 1 and int(some.producer_id[0]) >= 0
        row: Fields = {
            "records": int(np.minimum(some.record_count, within).sum()),
            "bytes": int(some.size.sum()),
        } | self._times(replica, some, one)
        if not alone:
            return row
        producer, sequence = int(some.producer_id[0]), int(some.base_sequence[0])
        skipped = max(0, one.first - int(some.base_offset[0]))
        row |= {"producer_id": producer, "producer_epoch": int(some.producer_epoch[0])}
        row["first_sequence"] = None if sequence < 0 else (sequence + skipped) % SEQUENCES
        if transaction is None:
            return row | {"transactional_id": None}
        row["transactional_id"] = name = self.log.owner(producer) or one.row["transactional_id"]
        return row | self._origin(name) | {"transaction": self._key(replica, transaction)}

    def _key(self, replica: ReplicaFacts, transaction: np.void) -> str | None:
        if replica.log_dir not in self.keys:
            alone = self.log if replica is self.log.leader else LogView([replica], self.cluster)
            self.keys[replica.log_dir] = self.keys_of(alone)
        t = replica.transactions
        same = (t["producer_id"] == transaction["producer_id"]) & (t["first_offset"] == transaction["first_offset"])
        return self.keys[replica.log_dir][int(np.flatnonzero(same)[0])]

    def _times(self, replica: ReplicaFacts, some: BatchColumns, one: ImpactedRange) -> Fields:
        stamps = some.max_timestamp[some.max_timestamp >= 0]
        earliest, latest = (int(stamps.min()), int(stamps.max())) if len(stamps) else (-1, -1)
        by_broker = bool((some.attributes & walking.LOG_APPEND_TIME != 0).all())
        if replica is self.log.leader and not by_broker:
            producer = int(some.producer_id[0])
            began, _ = around(self.log, producer, max(one.first, int(some.base_offset[0])))
            _, ended = around(self.log, producer, min(one.last, int(some.last_offset[-1])))
            earliest, latest = began if began >= 0 else earliest, ended if ended >= 0 else latest
        return {name: ms if ms >= 0 else None for name, ms in (("first_at", earliest), ("last_at", latest))}

    def _again(self, batches: BatchColumns, one: ImpactedRange) -> SentAgain | None:
        """Which lost batches the leader has further on; None where their sequences do not tell, or of many ranges."""
        numbered = self.log.has_sequences and bool((batches.base_sequence >= 0).all())
        if one.row["outcome"] != LOST or not numbered or self.searches == MOST_SEARCHES:
            return None
        self.searches += 1
        return sent_again(_compared(batches), map(_compared, self._pieces(self.log.leader, one.first, lag_counts.FAR)))

    def _groups_behind(self, first: int) -> list[str]:
        return sorted({p.group_id for p in self.positions if p.offset > first})

    def _named(self, replica: ReplicaFacts, row: Fields) -> Fields:
        """A row of what the finding knows."""
        place = {"broker_id": replica.broker_id, "log_dir": replica.log_dir}
        return row | place | self._origin(row.get("transactional_id"))

    def _origin(self, transactional_id: str | None) -> Fields:
        origin = self.cluster.origin(transactional_id)
        return {} if origin is None else {name: origin.row()[name] for name in ("framework", "application")}


def _of_whole_batches(one: ImpactedRange, batches: BatchColumns) -> tuple[ImpactedRange, BatchColumns]:
    """Extend or narrow what a transaction index hides or exposes to whole batches, as consumers drop them.

    A consumer drops a batch that ends at or behind the first offset of the entry. Source: CompletedFetch.
    """
    if one.row["outcome"] == EXPOSED:
        return one, batches.take((batches.base_offset >= one.first) & (batches.last_offset <= one.last))
    if one.row["outcome"] != HIDDEN or not len(batches.position):
        return one, batches
    first, last = int(batches.base_offset.min()), int(batches.last_offset.max())
    return one._replace(first=min(one.first, first), last=max(one.last, last)), batches


def _compared(batches: BatchColumns) -> dict[str, np.ndarray]:
    columns = {name: getattr(batches, name) for name in READ if name != "crc_ok"}
    return columns | {"crc_ok": (batches.flaws & walking.FLAW_CRC == 0).astype(np.int8)}


def _has(row: Fields, gap: Fields) -> bool:
    """Whether a row with offsets has the records of one without: same producer, epoch and sequences."""
    same = all(row.get(name) == gap.get(name) for name in ("outcome", "producer_id", "producer_epoch"))
    if not same or gap.get("records") is None or row.get("records") is None or row.get("first_sequence") is None:
        return False
    ahead = (gap["first_sequence"] - row["first_sequence"]) % SEQUENCES
    return bool(ahead + gap["records"] <= row["records"])
