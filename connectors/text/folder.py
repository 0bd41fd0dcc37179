"""A folder of text dumps read as one log directory: every log that any dump in it shows, each once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from auditor.base.errors import DEFAULT_LIMITS, DecodeError, Limits
from auditor.connectors.codec.batch_columns import BatchColumns
from auditor.connectors.codec.consumer_offsets import OffsetCommitRow
from auditor.connectors.codec.index import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    TXN_ENTRY,
    AbortedTransactions,
    OffsetIndex,
    TimeIndex,
)
from auditor.connectors.codec.snapshot import ENTRY, ProducerEntries
from auditor.connectors.codec.transaction_log import TransactionLogRow
from auditor.connectors.files import TextFile
from auditor.connectors.storage import Place, read_file
from auditor.connectors.text.checked_rows import Unread
from auditor.connectors.text.console import parse_console
from auditor.connectors.text.dump import Numbers, Section, parse_dump
from auditor.connectors.text.internal_topics import read_printed
from auditor.connectors.text.logs import Origin, TextIndex, TextReplica, TextSegment, TextSnapshot, origin
from auditor.connectors.text.merge import Printed, merge_rows, merge_segments
from auditor.connectors.text.sniff import normalise

TRANSACTION_STATE, CONSUMER_OFFSETS = "__transaction_state", "__consumer_offsets"
_TABLES = {"TransactionLogRow": "transaction_log", "OffsetCommitRow": "offset_commits"}
_TOPICS = {"transaction_log": TRANSACTION_STATE, "offset_commits": CONSUMER_OFFSETS, "group_metadata": CONSUMER_OFFSETS}
_NO_BATCH = (None, None, None, None)
Log = tuple[str | None, int | None]


class TextFolder(NamedTuple):
    """What a folder's dumps show. ``errors`` are of the texts themselves, ``file`` being a dump's name; ``notes`` are
    sentences for people on what text left out. ``bytes_read`` is the size of all dumps that could be read.
    """

    replicas: list[TextReplica]
    errors: list[DecodeError]
    notes: list[str]
    bytes_read: int


def read_texts(place: Place, texts: Sequence[TextFile], limits: Limits = DEFAULT_LIMITS) -> TextFolder:
    """Read the dumps of one folder. Bad text is in ``errors``, never an exception.

    Cost: one pass over each dump, held in memory one after the other (at most ``limits.max_small_file_bytes`` each).
    """
    gathered = _Gathered()
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


class _Gathered:
    """What all dumps showed, by log."""

    def __init__(self) -> None:
        self.logs: dict[Log, TextReplica] = {}
        self.shown: dict[str, list[list[Printed]]] = defaultdict(list)  # table -> dumps -> rows
        self.errors: list[DecodeError] = []
        self.notes: list[str] = []

    def log(self, topic: str | None, partition: int | None) -> TextReplica:
        return self.logs.setdefault((topic, partition), TextReplica(topic, partition))

    def console(self, text: bytes, name: str) -> None:
        found = parse_console(text, name)
        self.errors += found.errors
        rows: dict[str, list[Printed]] = defaultdict(list)
        for row, position, _ in found.rows:
            rows[_table(row)].append(Printed(None, (name, position, None, None), _NO_BATCH, row))
        for table, printed in rows.items():
            self.shown[table].append(printed)

    def dump(self, text: bytes, name: str) -> None:
        found = parse_dump(text, name)
        self.errors += found.errors
        for section in found.sections:
            source = origin(section.path, name)
            if source.kind == "live":
                self._section(section, source, name)
            else:
                self.notes.append(f"{name}: {section.path} is of a {source.kind} folder and was left out")

    def _section(self, section: Section, source: Origin, name: str) -> None:
        replica = self.log(source.topic, source.partition)
        if section.crashed:
            self.notes.append(f"{name}: kafka-dump-log broke off with an exception, so this dump ends early")
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
            self.notes.append(f"{source.file}: a snapshot whose offset nothing shows was left out")
        else:
            replica.snapshots.append(TextSnapshot(source.file, source.offset, entries))

    def _records(self, section: Section, source: Origin, replica: TextReplica, name: str) -> None:
        """The records that a decoder printed; user topics have none, whatever their payload looks like."""
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
            at = int(batches.position[record.batch]) if record.batch >= 0 else record.position
            head = (source.file, at, record.offset, record.timestamp)
            rows[_table(row)].append(Printed(source.partition, head, _batch(batches, record.batch), row))
        for table, printed in rows.items():
            self.shown[table].append(printed)

    def replicas(self) -> list[TextReplica]:
        """All logs, each with its rows, in the order of topic and partition."""
        for table, dumps in self.shown.items():
            for item in merge_rows(dumps):
                replica = self.log(_TOPICS[table], item.partition)
                replica.rows.setdefault(table, []).append(_columns(item))
        for replica in self.logs.values():
            replica.segments = merge_segments(replica.segments)
            replica.snapshots = _best_snapshots(replica.snapshots)
            replica.indexes = sorted({item.file: item for item in replica.indexes}.values(), key=lambda item: item.file)
        found = [
            replica
            for replica in self.logs.values()
            if replica.segments or replica.snapshots or replica.indexes or replica.rows
        ]
        return sorted(
            found, key=lambda replica: (replica.topic or "", -1 if replica.partition is None else replica.partition)
        )


def _segment(section: Section, source: Origin, name: str) -> TextSegment:
    """A segment; invalid bytes at its end, of which the tool spoke, are its error."""
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
    """The entries of a snapshot; what a line does not show is as the file says "none" (0 for the offset delta)."""
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
    """One snapshot for each offset: the dump that shows most entries, and most of their times."""
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
    """The indexes that a section shows; positions in the files follow from the entries' sizes."""
    found: list[AbortedTransactions | OffsetIndex | TimeIndex] = []
    if section.aborted:
        version, producer_id, first, last, stable = _arrays(
            section.aborted, "version", "producer_id", "first_offset", "last_offset", "last_stable_offset"
        )
        positions, size = _positions(section.aborted, TXN_ENTRY.itemsize)
        found.append(AbortedTransactions(positions, version, producer_id, first, last, stable, size))
    # The tool prints one entry at position 0 for a file that was preallocated and never written to.
    real = [entry for entry in section.offset_entries if entry["position"] != 0]
    if real:
        offset, log_position = _arrays(real, "offset", "position")
        positions, size = _positions(real, OFFSET_ENTRY.itemsize)
        found.append(OffsetIndex(positions, offset, log_position, size, 0))
    if section.time_entries:
        timestamp, offset = _arrays(section.time_entries, "timestamp", "offset")
        positions, size = _positions(section.time_entries, TIME_ENTRY.itemsize)
        found.append(TimeIndex(positions, timestamp, offset, size, 0))
    return [TextIndex(source.file, source.offset, entries) for entries in found]


def _arrays(entries: list[Numbers], *names: str) -> list[np.ndarray]:
    return [np.array([entry[name] for entry in entries], np.int64) for name in names]


def _positions(entries: list[Numbers], size: int) -> tuple[np.ndarray, int]:
    """Where each entry stands in its file, and the bytes of all."""
    return np.arange(len(entries), dtype=np.int64) * size, len(entries) * size


def _batch(batches: BatchColumns, row: int) -> tuple[int | None, bool | None, int | None, int | None]:
    """What a record takes from the batch above it."""
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
