"""A directory of text dumps read as one log directory."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from auditor.base.at_rest import Fields
from auditor.base.errors import DEFAULT_LIMITS, DecodeError, Limits
from auditor.connectors import kafka_names
from auditor.connectors.codec.batches import BatchColumns
from auditor.connectors.codec.group_topics import GroupMetadataRow, OffsetCommitRow
from auditor.connectors.codec.indexes import (
    ENTRY,
    OFFSET_ENTRY,
    TIME_ENTRY,
    TXN_ENTRY,
    AbortedTransactions,
    OffsetIndex,
    ProducerEntries,
    TimeIndex,
)
from auditor.connectors.codec.transaction_log import TransactionLogRow
from auditor.connectors.logdir.files import TextFile
from auditor.connectors.stores.storage import StorageLocation, read_file
from auditor.connectors.text.dump import Numbers, Section, parse_dump
from auditor.connectors.text.internal_topics import Row, Unread, parse_console, read_printed
from auditor.connectors.text.lines import normalise


class TextSegment(NamedTuple):
    """One segment. ``file`` is ``folder/name`` from its banner, else the dump's name; ``sources`` are the dumps.

    ``base_offset`` is the number in its name, else its first batch's. ``cannot_show``: columns unknown or guessed in
    some row. ``errors`` report bytes that the tool could not read. ``cut``: the text apparently ends before the
    segment.
    """

    file: str
    sources: tuple[str, ...]
    base_offset: int
    batches: BatchColumns
    cannot_show: frozenset[str] = frozenset()
    errors: tuple[DecodeError, ...] = ()
    cut: bool = False


class TextSnapshot(NamedTuple):
    """One producer snapshot; ``offset`` is the number in its name. A ``last_timestamp`` of -1 was not printed."""

    file: str
    offset: int
    entries: ProducerEntries


class TextIndex(NamedTuple):
    """One index of a segment."""

    file: str
    base_offset: int
    entries: AbortedTransactions | OffsetIndex | TimeIndex


@dataclass(slots=True)
class TextReplica:
    """One log in the dumps of a directory. Topic and partition are None if unknown.

    ``rows``: table (transaction_log, offset_commits, group_metadata) to rows of its columns after the log's key, as the
    binary reader returns them; None for what text cannot show. A console dump has no offsets: rows of one id or group
    are in order, others need not be. ``unreadable``: records that the tool printed and this program cannot parse.
    """

    topic: str | None
    partition: int | None
    segments: list[TextSegment] = field(default_factory=list)
    snapshots: list[TextSnapshot] = field(default_factory=list)
    indexes: list[TextIndex] = field(default_factory=list)
    rows: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    unreadable: list[DecodeError] = field(default_factory=list)

    @property
    def ends_early(self) -> bool:
        """Whether the log is known to continue after the dumps: a cut dump, or a snapshot beyond it."""
        ends = [
            int(segment.batches.last_offset[-1]) + 1 for segment in self.segments if len(segment.batches.last_offset)
        ]
        beyond = any(snapshot.offset > max(ends) for snapshot in self.snapshots) if ends else False
        return beyond or any(segment.cut for segment in self.segments)

    @property
    def cannot_show(self) -> list[str]:
        """The columns of ``batches`` that are unknown or guessed somewhere in this replica."""
        return sorted(frozenset().union(*(segment.cannot_show for segment in self.segments)))


class Origin(NamedTuple):
    """The source file of a dump: its log (None: unknown), its path as ``folder/name``, and its parsed name."""

    topic: str | None
    partition: int | None
    kind: str  # live, or the kind of a directory of no live replica
    file: str
    offset: int


_INTERNAL = re.compile(r"(__transaction_state|__consumer_offsets|__cluster_metadata)-([0-9]{1,10})")
_ENDINGS = re.compile(r"(?:\.(?:txt|log|out|dump|text|snapshots?|txnindex|index|timeindex))+$")
_LOG = re.compile(r"([a-zA-Z0-9._-]{1,249})-([0-9]{1,10})")
_OFFSET = re.compile(r"(?<![0-9])[0-9]{20}(?![0-9])")


def origin(path: str | None, dump: str) -> Origin:
    """The source of a dump: from the path in its banner, else from its own name (``...<topic>-<partition>...txt``)."""
    parts = re.split(r"[/\\]", path or "")
    folder = kafka_names.partition_folder(parts[-2]) if len(parts) > 1 else None
    says = kafka_names.data_name(parts[-1])
    match = _OFFSET.search(dump)
    offset = says.offset if says else int(match[0]) if match and path is None else -1
    if folder:
        return Origin(folder.topic, folder.partition, folder.kind, "/".join(parts[-2:]), offset)
    topic, partition = _by_name(dump.rpartition("/")[2])
    return Origin(topic, partition, "live", dump, offset)


def _by_name(dump: str) -> tuple[str | None, int | None]:
    stem = _OFFSET.sub("", _ENDINGS.sub("", dump)).rstrip("._-")
    match = _INTERNAL.search(dump) or _LOG.fullmatch(stem)
    if not match or int(match[2]) > 0x7FFFFFFF:
        return None, None
    return match[1], int(match[2])


# Several dumps of one log are merged to one replica. Contract section 1.


_UNKNOWN = -1
_FILLED = ("control_type", "coordinator_epoch", "partition_leader_epoch", "producer_epoch", "size", "crc")


class Printed(NamedTuple):
    """A row as one dump shows it; None for what it does not show.

    ``head``: file, position, offset, record timestamp; ``batch``: leader epoch, whether transactional, producer id and
    epoch.
    """

    partition: int | None
    head: tuple[str, int, int | None, int | None]
    batch: tuple[int | None, bool | None, int | None, int | None]
    row: Row


def merge_segments(shown: Iterable[TextSegment]) -> list[TextSegment]:
    """One segment per base offset, ascending: the dump that reaches furthest, completed from the others."""
    by_base: dict[int, list[TextSegment]] = defaultdict(list)
    for segment in shown:
        by_base[segment.base_offset].append(segment)
    return [_merge_segment(by_base[base]) for base in sorted(by_base)]


def _merge_segment(shown: list[TextSegment]) -> TextSegment:
    shown = sorted(shown, key=lambda item: (-_end(item), len(item.cannot_show), item.sources))
    best = shown[0]
    batches, unknown = best.batches, best.cannot_show
    for other in shown[1:]:
        batches = _fill(batches, other.batches)
        unknown &= other.cannot_show
    sources = tuple(sorted({source for item in shown for source in item.sources}))
    cut = all(item.cut for item in shown if _end(item) == _end(best))
    return best._replace(batches=batches, cannot_show=unknown, sources=sources, cut=cut)


def _end(segment: TextSegment) -> int:
    return int(segment.batches.last_offset[-1]) if len(segment.batches.last_offset) else -1


def _fill(best: BatchColumns, other: BatchColumns) -> BatchColumns:
    # Also adds the batches that other has before the first of best.
    own = {key: row for row, key in enumerate(zip(best.position.tolist(), best.base_offset.tolist(), strict=True))}
    theirs = list(zip(other.position.tolist(), other.base_offset.tolist(), strict=True))
    pairs = [(own[key], row) for row, key in enumerate(theirs) if key in own]
    filled = BatchColumns(*(column.copy() for column in best))
    if pairs:
        into, source = np.array(pairs).T
        for name in _FILLED:
            target, values = getattr(filled, name), getattr(other, name)[source]
            unknown = target[into] == (0 if name == "crc" else _UNKNOWN)
            target[into[unknown]] = values[unknown]
    first = best.position[0] if len(best.position) else np.iinfo(np.int64).max
    before = other.position < first
    return BatchColumns(*(np.concatenate([a[before], b]) for a, b in zip(other, filled, strict=True)))


def merge_rows(dumps: Iterable[list[Printed]]) -> list[Printed]:
    """The records of one table from all dumps: each once, with what any dump shows of it.

    Records are equal if they show the same for one id and have the same ordinal among such records. The dump that shows
    most records of an id gives the order; records with offsets are sorted by them.
    """
    by_owner: dict[Hashable, list[list[Printed]]] = {}
    for dump in dumps:
        owned: dict[Hashable, list[Printed]] = defaultdict(list)
        for item in dump:
            owned[_owner(item.row)].append(item)
        for owner, items in owned.items():
            by_owner.setdefault(owner, []).append(items)
    merged = [item for shown in by_owner.values() for item in _merge_owner(shown)]
    with_offsets = [item for item in merged if item.head[2] is not None]
    with_offsets.sort(key=lambda item: (item.partition or 0, item.head[2] or 0))
    return with_offsets + [item for item in merged if item.head[2] is None]


def _merge_owner(shown: list[list[Printed]]) -> list[Printed]:
    shown = sorted(shown, key=lambda items: (-len(items), items[0].head[2] is None))
    result = list(shown[0])
    places: dict[Hashable, list[int]] = defaultdict(list)
    for place, item in enumerate(result):
        places[_printed_values(item.row)].append(place)
    for items in shown[1:]:
        counts: dict[Hashable, int] = defaultdict(int)
        for item in items:
            printed = _printed_values(item.row)
            if counts[printed] < len(places[printed]):
                place = places[printed][counts[printed]]
                result[place] = _both(result[place], item)
            else:
                places[printed].append(len(result))
                result.append(item)
            counts[printed] += 1
    return result


def _both(first: Printed, second: Printed) -> Printed:
    # The place is taken from the print that shows the offset.
    if first.head[2] is None and second.head[2] is not None:
        first, second = second, first
    fields: Fields = {name: value for name, value in second.row._asdict().items() if getattr(first.row, name) is None}
    partition = second.partition if first.partition is None else first.partition
    batch = tuple(b if a is None else a for a, b in zip(first.batch, second.batch, strict=True))
    return Printed(partition, first.head, batch, first.row._replace(**fields))  # type: ignore[arg-type]


def _owner(row: Row) -> Hashable:
    # Records of one owner are in order.
    if isinstance(row, TransactionLogRow):
        return row.transactional_id
    if isinstance(row, OffsetCommitRow):
        return row.group_id, row.consumed_topic, row.consumed_partition
    return row.group_id


def _printed_values(row: Row) -> Hashable:
    # Fields that every print of a record shows.
    if isinstance(row, TransactionLogRow):
        state = row.producer_id, row.producer_epoch, row.status, row.last_update_timestamp
        return row.tombstone, state, tuple(sorted(row.partitions or ()))
    if isinstance(row, OffsetCommitRow):
        return row.tombstone, row.committed_offset
    assert isinstance(row, GroupMetadataRow)
    return row.key_type, row.tombstone, row.generation


# Reading a directory of text dumps.


TRANSACTION_STATE, CONSUMER_OFFSETS = "__transaction_state", "__consumer_offsets"
_TABLES = {"TransactionLogRow": "transaction_log", "OffsetCommitRow": "offset_commits"}
_TOPICS = {"transaction_log": TRANSACTION_STATE, "offset_commits": CONSUMER_OFFSETS, "group_metadata": CONSUMER_OFFSETS}
_NO_BATCH = (None, None, None, None)
Log = tuple[str | None, int | None]


class TextFolder(NamedTuple):
    """Content of a directory's dumps.

    ``errors`` are about the texts, ``file`` being a dump's name; ``notes`` are sentences for people on excluded text.
    ``bytes_read`` is the size of all dumps that could be read.
    """

    replicas: list[TextReplica]
    errors: list[DecodeError]
    notes: list[str]
    bytes_read: int


def read_texts(place: StorageLocation, texts: Sequence[TextFile], limits: Limits = DEFAULT_LIMITS) -> TextFolder:
    """Read the dumps of one directory. Bad text is in ``errors``, never an exception.

    Cost: one pass over each dump, one at a time in memory (at most ``limits.max_small_file_bytes`` each).
    """
    gathered = _DumpedLogs()
    bytes_read = 0
    for text in sorted(texts):
        data = read_file(place, text.name, limit=limits.max_small_file_bytes)
        if isinstance(data, DecodeError):
            gathered.errors.append(data)
            continue
        bytes_read += len(data)
        if text.kind == "console":
            gathered.console(normalise(data), text.name)
        else:
            gathered.dump(normalise(data), text.name)
    return TextFolder(gathered.replicas(), gathered.errors, gathered.notes, bytes_read)


class _DumpedLogs:
    def __init__(self) -> None:
        self.logs: dict[Log, TextReplica] = {}
        self.shown: dict[str, list[list[Printed]]] = defaultdict(list)  # table -> dumps -> rows
        self.errors: list[DecodeError] = []
        self.notes: list[str] = []

    def log(self, topic: str | None, partition: int | None) -> TextReplica:
        return self.logs.setdefault((topic, partition), TextReplica(topic, partition))

    def console(self, text: bytes, name: str) -> None:
        content = parse_console(text, name)
        self.errors += content.errors
        rows: dict[str, list[Printed]] = defaultdict(list)
        for row, position, _ in content.rows:
            rows[_table(row)].append(Printed(None, (name, position, None, None), _NO_BATCH, row))
        for table, printed in rows.items():
            self.shown[table].append(printed)

    def dump(self, text: bytes, name: str) -> None:
        content = parse_dump(text, name)
        self.errors += content.errors
        for section in content.sections:
            source = origin(section.path, name)
            if source.kind == "live":
                self._section(section, source, name)
            else:
                self.notes.append(f"{name}: {section.path} belongs to a {source.kind} directory and was skipped")

    def _section(self, section: Section, source: Origin, name: str) -> None:
        replica = self.log(source.topic, source.partition)
        if section.crashed:
            self.notes.append(f"{name}: kafka-dump-log failed with an exception: the dump ends early")
        batches = section.batches.columns
        if len(batches.position) or section.invalid_tail:
            replica.segments.append(_segment(section, source, name))
        if section.snapshot:
            self._snapshot(section.snapshot, source, replica)
        for index in _indexes(section, source):
            replica.indexes.append(index)
        self._records(section, source, replica, name)

    def _snapshot(self, lines: list[Numbers], source: Origin, replica: TextReplica) -> None:
        entries = _entries(lines)
        if entries is None:
            self.errors.append(DecodeError(source.file, 0, -1, "bad_value", "a producer entry with a number too large"))
        elif source.offset < 0:
            self.notes.append(f"{source.file}: skipped a snapshot without a known offset")
        else:
            replica.snapshots.append(TextSnapshot(source.file, source.offset, entries))

    def _records(self, section: Section, source: Origin, replica: TextReplica, name: str) -> None:
        # Only internal topics have records, whatever the payload of others looks like.
        if source.topic not in (None, TRANSACTION_STATE, CONSUMER_OFFSETS):
            return
        batches = section.batches.columns
        rows: dict[str, list[Printed]] = defaultdict(list)
        for record in section.records:
            row = read_printed(record.key, record.value)
            if isinstance(row, Unread):
                if not row.skipped:
                    error = DecodeError(name, record.position, record.length, row.reason, row.detail)
                    replica.unreadable.append(error)
                continue
            position = int(batches.position[record.batch]) if record.batch >= 0 else record.position
            head = (source.file, position, record.offset, record.timestamp)
            rows[_table(row)].append(Printed(source.partition, head, _batch(batches, record.batch), row))
        for table, printed in rows.items():
            self.shown[table].append(printed)

    def replicas(self) -> list[TextReplica]:
        """All logs with their rows, ordered by topic and partition."""
        for table, dumps in self.shown.items():
            for item in merge_rows(dumps):
                replica = self.log(_TOPICS[table], item.partition)
                replica.rows.setdefault(table, []).append(_columns(item))
        for replica in self.logs.values():
            replica.segments = merge_segments(replica.segments)
            replica.snapshots = _best_snapshots(replica.snapshots)
            replica.indexes = sorted({item.file: item for item in replica.indexes}.values(), key=lambda item: item.file)
        replicas = [
            replica
            for replica in self.logs.values()
            if replica.segments or replica.snapshots or replica.indexes or replica.rows
        ]
        return sorted(
            replicas, key=lambda replica: (replica.topic or "", -1 if replica.partition is None else replica.partition)
        )


def _segment(section: Section, source: Origin, name: str) -> TextSegment:
    batches = section.batches.columns
    base = source.offset
    if base < 0:
        base = int(batches.base_offset[0]) if len(batches.base_offset) else 0
    errors: tuple[DecodeError, ...] = ()
    if section.invalid_tail:
        end = int(batches.position[-1]) + int(batches.size[-1]) if len(batches.position) else 0
        detail = "kafka-dump-log found invalid bytes at the end"
        errors = (DecodeError(source.file, end, section.invalid_tail, "truncated", detail),)
    return TextSegment(
        source.file, (name,), base, batches, section.batches.cannot_show, errors, section.batches.cut or section.crashed
    )


def _entries(lines: list[Numbers]) -> ProducerEntries | None:
    # Fields that a line does not show have the value for none (0 for the offset delta).
    rows = [
        (
            line["producerId"],
            line["producerEpoch"],
            line.get("lastSequence", -1),
            line.get("lastOffset", -1),
            line.get("offsetDelta", 0),
            line.get("lastTimestamp", line.get("timestamp", -1)),
            line.get("coordinatorEpoch", -1),
            line.get("currentTxnFirstOffset", -1),
        )
        for line in lines
    ]
    types = [ENTRY[name].newbyteorder("=") for name in ProducerEntries._fields]
    for values, dtype in zip(zip(*rows, strict=True), types, strict=True):
        limit = np.iinfo(dtype)
        if min(values) < limit.min or max(values) > limit.max:
            return None
    return ProducerEntries(*(np.array(v, t) for v, t in zip(zip(*rows, strict=True), types, strict=True)))


def _best_snapshots(shown: list[TextSnapshot]) -> list[TextSnapshot]:
    # One per offset: the dump with most entries, and most times.
    best: dict[int, TextSnapshot] = {}
    for item in shown:
        other = best.get(item.offset)
        if other is None or _shows(item) > _shows(other):
            best[item.offset] = item
    return [best[offset] for offset in sorted(best)]


def _shows(snapshot: TextSnapshot) -> tuple[int, int]:
    times = snapshot.entries.last_timestamp
    return len(times), int((times >= 0).sum())


def _indexes(section: Section, source: Origin) -> list[TextIndex]:
    # Positions in the files follow from the entries' sizes.
    indexes: list[AbortedTransactions | OffsetIndex | TimeIndex] = []
    if section.aborted:
        version, producer_id, first, last, stable = _arrays(
            section.aborted, "version", "producer_id", "first_offset", "last_offset", "last_stable_offset"
        )
        positions, size = _positions(section.aborted, TXN_ENTRY.itemsize)
        indexes.append(AbortedTransactions(positions, version, producer_id, first, last, stable, size))
    # For a preallocated file without entries the tool prints one at position 0.
    real = [entry for entry in section.offset_entries if entry["position"] != 0]
    if real:
        offset, log_position = _arrays(real, "offset", "position")
        positions, size = _positions(real, OFFSET_ENTRY.itemsize)
        indexes.append(OffsetIndex(positions, offset, log_position, size, 0))
    if section.time_entries:
        timestamp, offset = _arrays(section.time_entries, "timestamp", "offset")
        positions, size = _positions(section.time_entries, TIME_ENTRY.itemsize)
        indexes.append(TimeIndex(positions, timestamp, offset, size, 0))
    return [TextIndex(source.file, source.offset, entries) for entries in indexes]


def _arrays(entries: list[Numbers], *names: str) -> list[np.ndarray]:
    return [np.array([entry[name] for entry in entries], np.int64) for name in names]


def _positions(entries: list[Numbers], size: int) -> tuple[np.ndarray, int]:
    return np.arange(len(entries), dtype=np.int64) * size, len(entries) * size


def _batch(batches: BatchColumns, row: int) -> tuple[int | None, bool | None, int | None, int | None]:
    if row < 0:
        return _NO_BATCH
    transactional = bool(batches.attributes[row] & 0x10)
    epoch, producer_id = int(batches.partition_leader_epoch[row]), int(batches.producer_id[row])
    return epoch, transactional, producer_id, int(batches.producer_epoch[row])


def _table(row: object) -> str:
    return _TABLES.get(type(row).__name__, "group_metadata")


def _columns(item: Printed) -> tuple[Any, ...]:
    """A row of its table after the log's key, as auditor.connectors.schema orders it."""
    if isinstance(item.row, TransactionLogRow):
        return (*item.head, item.batch[0], *item.row)
    if isinstance(item.row, OffsetCommitRow):
        return (*item.head, *item.row, *item.batch[1:])
    return (*item.head, *item.row)
