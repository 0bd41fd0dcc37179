"""Records of internal topics and of ``__cluster_metadata`` as rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from auditor.base.at_rest import Fields
from auditor.base.errors import LAST_MS, RECORD_AT, DecodeError, Limits, StartFile, bounded_time
from auditor.connectors import schema
from auditor.connectors.codec import group_topics as commits
from auditor.connectors.codec import transaction_log as transactions
from auditor.connectors.codec.batches import CONTROL, FLAW_CRC, TRANSACTIONAL, BatchColumns
from auditor.connectors.codec.cluster_metadata import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    Change,
    ClusterMetadata,
    MetadataEntry,
    PartitionState,
)
from auditor.connectors.codec.damaged_fields import SegmentContext
from auditor.connectors.codec.gaps import ANY_OFFSET, offset_range
from auditor.connectors.codec.group_topics import OffsetCommitRow, decode_consumer_offsets, decode_share_group_state
from auditor.connectors.codec.records import Decoded, Record, failures_of, records_of, sound
from auditor.connectors.codec.remote_log_metadata import decode_remote_log_metadata
from auditor.connectors.codec.segment import Chunk, read_segment
from auditor.connectors.codec.small_files import decode_quorum_state, may_show
from auditor.connectors.codec.structs import Problem, uuid_text
from auditor.connectors.codec.transaction_log import Texts, are_ascii, decode_transaction_log, gather, partition_names
from auditor.connectors.kafka_names import BOOTSTRAP, LEADER_EPOCHS, QUORUM_STATE
from auditor.connectors.logdir.files import DataFile, EpochStarts, Replica
from auditor.connectors.schema import METADATA_HISTORY, RECOVERY_STATES, Key, array_of, from_columns, from_rows, texts
from auditor.connectors.stores.storage import StorageLocation, file_size, is_there, open_file, read_file

TRANSACTION_STATE = "__transaction_state"
CONSUMER_OFFSETS = "__consumer_offsets"
SHARE_GROUP_STATE = "__share_group_state"
REMOTE_LOG_METADATA = "__remote_log_metadata"
TABLES = {
    TRANSACTION_STATE: frozenset({"transaction_log"}),
    CONSUMER_OFFSETS: frozenset({"offset_commits", "group_metadata"}),
    SHARE_GROUP_STATE: frozenset({"share_group_state"}),
    REMOTE_LOG_METADATA: frozenset({"remote_log_metadata"}),
}
MOST_NAMED = 100_000  # undecodable records listed per replica: some 600 bytes each
PACKED = frozenset({TRANSACTION_STATE, CONSUMER_OFFSETS})  # topics that are read by column


class DataRun(NamedTuple):
    """A run of data records of a chunk, with the batches of its rows. ``sound``: the complete records; ``errors``: of
    batches that could not be opened."""

    run: Decoded
    batches: BatchColumns
    sound: np.ndarray
    errors: list[DecodeError]


def data_runs(chunk: Chunk, file: str, limits: Limits) -> Iterator[DataRun]:
    """The records of a chunk (read with its bytes) by column, without those of control batches."""
    batches = chunk.batches
    data = np.flatnonzero((batches.attributes & CONTROL == 0) | (batches.magic != 2))
    chosen = batches.take(data)
    for run in chunk.opened(data, chosen, limits):
        yield DataRun(run, chosen, sound(run, limits), failures_of(run, chosen, file, limits))


class RecordProblems:
    """Records of an internal topic that could not be decoded.

    ``unreadable`` are those with a malformed key or value: they stop a coordinator's loading, so they are separate from
    damaged bytes; each with its offset and the position of its batch. ``unknown`` are records of unknown key types,
    which a coordinator skips. The last of more than :data:`MOST_NAMED` counts all others. The errors' length is that of
    the batch, in bytes.
    """

    def __init__(self) -> None:
        self.unreadable: list[tuple[int, int, DecodeError]] = []
        self.unknown: list[DecodeError] = []
        self.more = {"unreadable": 0, "unknown": 0}

    def note(self, batch: tuple[str, int, int], offset: int, problem: Problem) -> None:
        """Add one; ``batch``: its file, position and size in bytes."""
        error = DecodeError(*batch, problem.reason, f"{RECORD_AT} {offset}: {problem.detail}")
        if problem.reason == "unknown_key_type":
            if len(self.unknown) <= MOST_NAMED:
                self.unknown.append(error)
            else:
                self.unknown[-1] = self._more(batch, offset, "unknown")
        elif len(self.unreadable) <= MOST_NAMED:
            self.unreadable.append((offset, batch[1], error))
        else:
            self.unreadable[-1] = (offset, batch[1], self._more(batch, offset, "unreadable"))

    def _more(self, batch: tuple[str, int, int], offset: int, kind: str) -> DecodeError:
        self.more[kind] += 1
        detail = f"{self.more[kind] + 1} more such records, the last at offset {offset}, are not named one by one"
        return DecodeError(*batch, "limit", detail)

    def errors(self) -> list[DecodeError]:
        """Return the records that could not be decoded."""
        return [error for _offset, _position, error in self.unreadable] + self.unknown


class InternalRows(RecordProblems):
    """Collects the decoded records of one replica of an internal topic. ``payload``: also what only clients choose."""

    def __init__(self, topic: str, limits: Limits, *, payload: bool = False) -> None:
        super().__init__()
        self.topic = topic
        self.limits = limits.counting()
        self.payload = payload
        self.rows: dict[str, list[tuple[Any, ...]]] = {}

    def add(self, file: str, chunk: Chunk) -> list[DecodeError]:
        """Decode the records of every batch of a chunk (read with ``raw``); return errors of batches that could not be
        opened."""
        errors = []
        batches = chunk.batches
        data = np.flatnonzero((batches.attributes & CONTROL == 0) | (batches.magic != 2))
        raw = [chunk.raw[i] for i in data] if chunk.raw else []
        chosen = batches.take(data)
        for row, record in records_of(raw, chosen, file=file, limits=self.limits):
            if isinstance(record, DecodeError):
                errors.append(record)
                continue
            table, values = self.row_of(file, chosen, row, record)
            if values is not None:
                self.rows.setdefault(table, []).append(values)
        return errors

    def row_of(self, file: str, batches: BatchColumns, row: int, record: Record) -> tuple[str, tuple[Any, ...] | None]:
        """The table of a record of the batch ``row``, and its row; None for an unreadable one, which is noted."""
        batch = (
            int(batches.partition_leader_epoch[row]),
            bool(batches.attributes[row] & TRANSACTIONAL and batches.magic[row] == 2),
            int(batches.producer_id[row]),
            int(batches.producer_epoch[row]),
        )
        table, values, problem = self._decode(record, batch)
        position = int(batches.position[row])
        if values is not None:
            return table, (file, position, record.offset, record.timestamp, *values)
        if problem is not None:
            self.note((file, position, int(batches.size[row])), record.offset, problem)
        return table, None

    def _decode(
        self, record: Record, batch: tuple[int, bool, int, int]
    ) -> tuple[str, tuple[Any, ...] | None, Problem | None]:
        # Returns table, values after the record's place, and problem. batch: partition leader epoch, whether it is
        # transactional, producer id and epoch.
        if self.topic == TRANSACTION_STATE:
            transaction, problem = decode_transaction_log(record.key, record.value)
            return "transaction_log", None if transaction is None else (batch[0], *transaction), problem
        if self.topic == SHARE_GROUP_STATE:
            return "share_group_state", *decode_share_group_state(record.key, record.value)
        if self.topic == REMOTE_LOG_METADATA:
            return "remote_log_metadata", *decode_remote_log_metadata(record.value)
        row, problem = decode_consumer_offsets(record.key, record.value, payload=self.payload)
        if isinstance(row, OffsetCommitRow):
            return "offset_commits", (*row, *batch[1:]), problem
        return "group_metadata", row, problem

    def tables(self, key: Key) -> dict[str, pa.Table]:
        """The collected rows by table of contract section 4, after the replica's key."""
        tables: dict[str, list[pa.RecordBatch]] = {}
        for name, batch in self._batches(key):
            tables.setdefault(name, []).append(batch)
        return {name: pa.Table.from_batches(batches) for name, batches in tables.items()}

    def drain(self, key: Key) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the collected rows in batches and clear them."""
        yield from self._batches(key)
        self.forget()

    def forget(self) -> None:
        """Clear the collected rows."""
        self.rows = {}

    def _batches(self, key: Key) -> Iterator[tuple[str, pa.RecordBatch]]:
        for name, rows in self.rows.items():
            yield name, from_rows(schema.DECODED[name], key, rows)


# ``__transaction_state`` and ``__consumer_offsets`` by column: compiled kernels convert what brokers write from bytes
# to Arrow. Odd records (another version or kind, damage, text that is not ASCII) are decoded one by one by
# :class:`InternalRows`; the rows are the same, in the same order.


_STATES = texts([*schema.TRANSACTION_STATES, None])
_NO_STATE = len(schema.TRANSACTION_STATES)
_NO_TOPIC = bytes(16)
Columns = Fields


def internal_records(topic: str, limits: Limits, *, payload: bool = False) -> InternalRows:
    """The collector of an internal topic's rows. ``payload``: also what only clients choose."""
    return (InternalColumns if topic in PACKED else InternalRows)(topic, limits, payload=payload)


class BatchRunRows(NamedTuple):
    """The rows of one run of batches: ``columns`` of the records at ``places`` in it, and ``others`` that were decoded
    one by one, by table, each with its place."""

    table: str
    places: np.ndarray
    columns: Columns
    others: dict[str, list[tuple[int, tuple[Any, ...]]]]


class InternalColumns(InternalRows):
    """Collects the same rows for a topic of :data:`PACKED`, by column."""

    def __init__(self, topic: str, limits: Limits, *, payload: bool = False) -> None:
        super().__init__(topic, limits, payload=payload)
        self.runs: list[BatchRunRows] = []

    def add(self, file: str, chunk: Chunk) -> list[DecodeError]:
        """Decode the records of every batch of a chunk (read with its bytes); return errors of batches that could not
        be opened."""
        errors = []
        for one in data_runs(chunk, file, self.limits):
            errors += one.errors
            if len(one.sound):
                self._run(file, one.run, one.batches, one.sound)
        return errors

    def _run(self, file: str, run: Decoded, batches: BatchColumns, chosen: np.ndarray) -> None:
        records = run.records
        if self.topic == TRANSACTION_STATE:
            fields = transactions.parse(records, chosen)
            odd = fields[:, transactions.VERSION] == transactions.ODD
            plain = np.flatnonzero(~odd)
            table, columns = "transaction_log", _transactions(records.payload, fields[plain])
        else:
            fields = commits.parse(records, chosen)
            odd = fields[:, commits.VERSION] == commits.ODD
            details = self._details(run, chosen, fields, odd)
            plain = np.flatnonzero(~odd)
            table, columns = "offset_commits", _commits(records.payload, fields[plain], details[:, plain])
            columns["metadata"] = _metadata(records.payload, details[:, plain]) if self.payload else None
        batch = records.batch[chosen[plain]]
        columns |= {
            "file": file,
            "position": batches.position[batch],
            "offset": records.offset[chosen[plain]],
            "record_timestamp": records.timestamp[chosen[plain]],
        }
        if self.topic == TRANSACTION_STATE:
            columns["leader_epoch"] = batches.partition_leader_epoch[batch]
        else:
            in_transaction = batches.attributes[batch] & TRANSACTIONAL != 0
            columns["is_transactional"] = in_transaction & (batches.magic[batch] == 2)
            columns["producer_id"], columns["producer_epoch"] = (
                batches.producer_id[batch],
                batches.producer_epoch[batch],
            )
        self.runs.append(BatchRunRows(table, plain, columns, self._others(file, run, batches, chosen, odd)))

    def _details(self, run: Decoded, chosen: np.ndarray, fields: np.ndarray, odd: np.ndarray) -> np.ndarray:
        # Commits whose metadata is requested and not ASCII become odd.
        versions = np.where(odd, commits.TOMBSTONE, fields[:, commits.VERSION])
        details = commits.details(run.records, chosen, versions)
        if self.payload:
            odd |= ~are_ascii(run.records.payload, details[commits.TEXT_START], details[commits.TEXT_SIZE])
        return details

    def _others(
        self, file: str, run: Decoded, batches: BatchColumns, chosen: np.ndarray, odd: np.ndarray
    ) -> dict[str, list[tuple[int, tuple[Any, ...]]]]:
        others: dict[str, list[tuple[int, tuple[Any, ...]]]] = {}
        for place in np.flatnonzero(odd).tolist():
            record, row = _record(run, int(chosen[place])), int(run.records.batch[chosen[place]])
            table, values = self.row_of(file, batches, row, record)
            if values is not None:
                others.setdefault(table, []).append((place, values))
        return others

    def _batches(self, key: Key) -> Iterator[tuple[str, pa.RecordBatch]]:
        for run in self.runs:
            columns = schema.DECODED[run.table]
            rows = from_columns(columns, key, len(run.places), run.columns)
            if run.table in run.others:
                places, values = zip(*run.others.pop(run.table), strict=True)
                order = np.argsort(np.concatenate([run.places, np.array(places, np.int64)]))
                rows = pa.concat_batches([rows, from_rows(columns, key, values)]).take(array_of(order))
            if rows.num_rows:
                yield run.table, rows
            for table, others in run.others.items():
                yield table, from_rows(schema.DECODED[table], key, [values for _, values in others])

    def forget(self) -> None:
        """Clear the collected rows."""
        self.runs = []


def _record(run: Decoded, number: int) -> Record:
    return Record(int(run.records.offset[number]), int(run.records.timestamp[number]), *run.stored(number), ())


def _array(strings: Texts, null: np.ndarray | None = None) -> pa.Array:
    valid = None if null is None else pa.py_buffer(np.packbits(~null, bitorder="little"))
    return pa.Array.from_buffers(
        pa.string(), len(strings.ends) - 1, [valid, pa.py_buffer(strings.ends), pa.py_buffer(strings.data)]
    )


def _transactions(data: np.ndarray, fields: np.ndarray) -> Columns:
    t, f = transactions, np.ascontiguousarray(fields.T)
    gone = f[t.VERSION] == t.TOMBSTONE
    flexible = f[t.VERSION] == 1
    partitions, null = _partitions(data, f[t.LIST_START], f[t.LIST_SIZE], flexible)
    status = np.where(gone | (f[t.STATUS] < 0) | (f[t.STATUS] >= _NO_STATE), _NO_STATE, f[t.STATUS])
    later = t.later_fields(data, fields)
    numbers = {
        "value_version": f[t.VERSION],
        "producer_id": f[t.PRODUCER_ID],
        "producer_epoch": f[t.PRODUCER_EPOCH],
        "timeout_ms": f[t.TIMEOUT_MS],
        "status": f[t.STATUS],
        "previous_producer_id": later[0],
        "next_producer_id": later[1],
        "client_transaction_version": f[t.CLIENT_VERSION],
        "next_producer_epoch": later[2],
    }
    return {name: array_of(values, gone) for name, values in numbers.items()} | {
        "transactional_id": _array(gather(data, f[t.ID_START], f[t.ID_SIZE])),
        "tombstone": gone,
        "state": _STATES.take(array_of(status)),
        "partitions": partitions,
        "partitions_null": array_of(null & ~gone, gone),
        "last_update_timestamp": f[t.LAST_UPDATE],
        "start_timestamp": f[t.START],
    }


def _partitions(
    data: np.ndarray, starts: np.ndarray, sizes: np.ndarray, flexible: np.ndarray
) -> tuple[pa.Array, np.ndarray]:
    # Lists of no bytes, of tombstones, are null too.
    lists = transactions.take_apart(data, starts, starts + sizes, flexible)
    null = transactions.are_null(data, starts, sizes)
    ends = np.zeros(len(starts) + 1, np.int32)
    ends[1:] = lists.ends
    valid = pa.py_buffer(np.packbits(~null, bitorder="little"))
    names = _array(partition_names(data, lists))
    column = pa.Array.from_buffers(pa.list_(pa.string()), len(starts), [valid, pa.py_buffer(ends)], children=[names])
    return column, null


def _commits(data: np.ndarray, fields: np.ndarray, details: np.ndarray) -> Columns:
    c, f = commits, np.ascontiguousarray(fields.T)
    gone = f[c.VERSION] == c.TOMBSTONE
    return {
        "group_id": _array(gather(data, f[c.KEY_START] + 2, f[c.GROUP_SIZE])),
        "consumed_topic": _array(gather(data, f[c.TOPIC_START], f[c.TOPIC_SIZE])),
        "consumed_partition": f[c.PARTITION],
        "tombstone": gone,
        "value_version": array_of(f[c.VERSION], gone),
        "committed_offset": array_of(f[c.VALUE], gone),
        "leader_epoch": array_of(details[c.LEADER_EPOCH], gone),
        "commit_timestamp": details[c.COMMIT_TIME],
        "expire_timestamp": details[c.EXPIRE_TIME],
        "topic_id": _topic_ids(data, details[c.TOPIC_ID]),
    }


def _metadata(data: np.ndarray, details: np.ndarray) -> pa.Array:
    start, size = details[commits.TEXT_START], details[commits.TEXT_SIZE]
    return _array(gather(data, start, size), size < 0)


def _topic_ids(data: np.ndarray, positions: np.ndarray) -> pa.Array:
    # Few distinct ids occur.
    if not (positions >= 0).any():
        return pa.nulls(len(positions), pa.string())
    stored = data[np.maximum(positions, 0)[:, None] + np.arange(16)]
    stored[positions < 0] = 0
    unique, which = np.unique(stored.view("V16").ravel(), return_inverse=True)
    names = texts([None if (raw := one.tobytes()) == _NO_TOPIC else uuid_text(raw) for one in unique])
    return names.take(array_of(which.astype(np.int64)))


class MetadataLog:
    """The files of a replica of ``__cluster_metadata`` while they are read, record by record.

    ``newest`` is the latest time so far behind the last fall of the clock, in ms (-1: none); ``lost``: a part could not
    be read, for files see ``unopened``; bytes that are no batch are reported when the replica itself is audited.
    ``lineage``: the leader epochs of the log with their first offsets, both rising. ``sound``: the last leader epoch of
    the log, and its end, up to its first defect (``doubted``). Memory: a chunk of a segment.
    """

    def __init__(self, place: StorageLocation, replica: Replica, limits: Limits) -> None:
        self.place = place
        self.replica = replica
        self.limits = limits.counting()
        self.newest, self.lost = -1, not replica.segments
        self.sound, self.doubted = (-1, -1), False
        self.unopened: list[DecodeError] = []
        self.lineage: list[tuple[int, int]] = []
        epochs = EpochStarts(place, replica.leader_epochs, limits.small_file(LEADER_EPOCHS))
        self.known = SegmentContext(has_holes=False, epochs=epochs)

    def snapshots(self) -> list[DataFile]:
        """The snapshots, newest first; ``offset``: the first one after it. A complete one has a footer."""
        checkpoints = (file for file in self.replica.others if file.kind == "checkpoint" and file.offset > 0)
        return sorted(checkpoints, key=lambda file: -file.offset)

    def snapshot(self, file: DataFile) -> Iterator[MetadataEntry]:
        """The records of a snapshot."""
        return self._entries([(file.name, file.size, ANY_OFFSET)])

    def log(self) -> Iterator[MetadataEntry]:
        """The records of the log, in order."""
        segments = self.replica.segments
        following = [*(segment.base_offset for segment in segments), -1][1:]
        ranges = (offset_range(one.base_offset, behind) for one, behind in zip(segments, following, strict=True))
        return self._entries((one.name, one.size, offsets) for one, offsets in zip(segments, ranges, strict=True))

    def voters(self) -> tuple[int, ...]:
        """The voters from ``quorum-state``, which version 0 lists. Its errors are reported elsewhere."""
        file = next((file for file in self.replica.others if file.kind == QUORUM_STATE), None)
        data = file and read_file(self.place, file.name, limit=self.limits.small_file(QUORUM_STATE))
        state = decode_quorum_state(data)[0] if isinstance(data, bytes) else None
        return () if state is None else state.voters

    def _note_epochs(self, b: BatchColumns) -> None:
        # Of sound batches only.
        sound = np.flatnonzero(b.flaws & FLAW_CRC == 0)
        epochs, newest = b.partition_leader_epoch[sound], self.lineage[-1][0] if self.lineage else -1
        rises = np.flatnonzero(epochs > np.maximum.accumulate(np.append(newest, epochs))[:-1])
        self.lineage += zip(epochs[rises].tolist(), b.base_offset[sound[rises]].tolist(), strict=True)

    def _note_times(self, times: np.ndarray) -> None:
        times = times[times <= LAST_MS]
        newest = np.maximum.accumulate(np.append(self.newest, times))
        falls = np.flatnonzero(times < newest[:-1])
        self.newest = int(times[falls[-1] :].max()) if len(falls) else int(newest[-1])

    def _count(self, b: BatchColumns, whole: np.ndarray, *, lost: bool) -> None:
        # This log is never compacted: offsets have no holes.
        end = self.sound[1] if self.sound[1] >= 0 else int(b.base_offset[0])
        odd = np.flatnonzero(~whole | (b.base_offset != np.append(end, b.last_offset[:-1] + 1)))
        sound = int(odd[0]) if len(odd) else len(whole)
        if sound and not self.doubted:
            epoch = max(self.sound[0], int(b.partition_leader_epoch[:sound].max()))
            self.sound = epoch, int(b.last_offset[sound - 1]) + 1
        self.doubted |= lost or sound < len(whole)

    def _entries(self, files: Iterable[tuple[str, int, tuple[int, int]]]) -> Iterator[MetadataEntry]:
        for name, size, offsets in files:
            f = open_file(self.place, name)
            if isinstance(f, DecodeError):
                self.unopened.append(f._replace(length=size))
                self.lost = True
                continue
            try:
                for chunk in read_segment(
                    f, size, file=name, limits=self.limits, raw=True, offsets=offsets, context=self.known
                ):
                    b = chunk.bounded().batches
                    self.lost |= any(e.reason not in ("truncated", "zero_filled") for e in chunk.errors)
                    if len(b.position):
                        whole = b.flaws & FLAW_CRC == 0
                        self._note_times(b.max_timestamp[whole])
                        if name.endswith(".log"):
                            self._note_epochs(b)
                            self._count(b, whole, lost=bool(chunk.errors))
                        elif not whole.all():  # without its footer it is skipped
                            self.lost |= any(segment.base_offset > 0 for segment in self.replica.segments[:1])
                            return
                        self.lost |= not whole.all()
                    chunk = chunk.intact()
                    b = chunk.batches
                    for i, record in records_of(chunk.raw or [], b, file=name, limits=self.limits):
                        if not isinstance(record, DecodeError):
                            control = bool(b.attributes[i] & CONTROL)
                            place = (name, int(b.position[i]), int(b.size[i]), control, record.offset)
                            yield MetadataEntry(*place, bounded_time(record.timestamp), record.key, record.value)
            finally:
                f.close()


SNAPSHOT_FOOTER = 4  # control type of the last batch of a checkpoint


def checkpoint_state(place: StorageLocation, name: str, size: int, limits: Limits) -> str:
    """Whether a checkpoint of ``__cluster_metadata`` is whole: "" if it is, otherwise empty, cut, or damaged.

    A cut one ends in the middle of its records, and a reader takes those before for all. Cost: one pass.
    """
    f = open_file(place, name)
    if isinstance(f, DecodeError) or not size:
        return "empty" if not size else ""
    last, cut = -1, False
    try:
        for chunk in read_segment(f, size, file=name, limits=limits):
            if bool((chunk.batches.flaws & FLAW_CRC).any()) or any(e.reason != "truncated" for e in chunk.errors):
                return "damaged"
            cut |= bool(chunk.errors)
            last = int(chunk.batches.control_type[-1]) if len(chunk.batches.position) else last
    finally:
        f.close()
    return "cut" if cut or last != SNAPSHOT_FOOTER else ""


def checkpoints_at_start(place: StorageLocation, replica: Replica, limits: Limits) -> Iterator[StartFile]:
    """Yield the checkpoints that a start of a controller reads and that are not whole.

    ``place``: its log directory; ``replica``: its ``__cluster_metadata``. Cost: one pass over each.
    """
    bootstrap = place.child(BOOTSTRAP)
    if (
        not place.uri
        and is_there(bootstrap)
        and (state := checkpoint_state(place, BOOTSTRAP, file_size(bootstrap), limits))
    ):
        yield StartFile(BOOTSTRAP, BOOTSTRAP, state)
    newest = max((file for file in replica.others if file.kind == "checkpoint"), key=lambda f: f.name, default=None)
    state = "" if newest is None else checkpoint_state(place, newest.name, newest.size, limits)
    # That of offset 0 only has the settings of the format, which the log repeats.
    if newest is not None and state and (newest.offset > 0 or state == "damaged" or not replica.segments):
        yield StartFile(newest.name, "checkpoint", state)


# The table ``metadata_history``.


_ROWS = 1 << 14  # per record batch
_COLUMNS = METADATA_HISTORY.names[3:]  # after the log directory's key


def history(place: StorageLocation, key: Key, replica: Replica, limits: Limits) -> Iterator[pa.RecordBatch]:
    """The changes in a replica of ``__cluster_metadata``, oldest first.

    A log that no longer starts at offset 0 is preceded by the state of its oldest complete snapshot (offset null, the
    snapshot's time). Unreadable records are skipped here: they are errors of the metadata. Cost: every record once;
    memory: the state, and a snapshot's rows.
    """
    reading = MetadataLog(place, replica, limits)
    rows: list[tuple[Any, ...]] = []

    def drained() -> pa.RecordBatch:
        batch = from_rows(METADATA_HISTORY, key[:3], rows)
        rows.clear()
        return batch

    metadata, changes = beginning(reading)
    rows += [row_of(change, metadata.snapshot_timestamp) for change in changes]
    metadata.on_change = lambda change: rows.append(row_of(change, metadata.snapshot_timestamp))
    for entry in reading.log():
        metadata.log_entry(entry)
        if len(rows) >= _ROWS:
            yield drained()
    if rows:
        yield drained()


def beginning(reading: MetadataLog) -> tuple[ClusterMetadata, list[Change]]:
    """The state before the first record of the log, and the changes of the snapshot it is from.

    The state has no ``on_change`` yet.
    """
    first = reading.replica.segments[0].base_offset if reading.replica.segments else 0
    for file in reversed(reading.snapshots()) if first > 0 else ():
        changes: list[Change] = []
        metadata = ClusterMetadata(file.offset, changes.append)
        for entry in reading.snapshot(file) if file.offset >= first else ():
            metadata.snapshot_entry(entry)
        if metadata.snapshot_complete:
            metadata.on_change = None
            return metadata, changes
    return ClusterMetadata(max(first, 0)), []


def row_of(change: Change, snapshot_time: int | None) -> tuple[Any, ...]:
    """A change's values after the log directory's key; ``snapshot_time`` (ms): for changes from a snapshot."""
    fields = change.record.fields
    columns: Fields = {
        "topic": change.topic,
        "offset": change.offset,
        "timestamp": snapshot_time if change.offset is None else change.timestamp,
        "record": change.record.name,
        "version": change.record.version,
        "topic_id": fields.get("topicId"),
    }
    if change.partition is not None:
        columns |= _partition(change.partition, change.before)
    elif change.broker is not None:
        columns |= {
            "node_id": change.broker.broker_id,
            "broker_epoch": change.broker.broker_epoch,
            "fenced": change.broker.fenced,
            "in_controlled_shutdown": change.broker.in_controlled_shutdown,
        }
    elif change.record.name == "ConfigRecord":
        columns |= _setting(fields)
    elif change.record.name == "FeatureLevelRecord":
        columns |= {"name": fields["name"], "value": str(fields["featureLevel"])}
    elif "controllerId" in fields:
        columns["node_id"] = fields["controllerId"]
    return tuple(columns.get(name) for name in _COLUMNS)


def _partition(state: PartitionState, before: PartitionState | None) -> Fields:
    recovery = state.recovery_state
    return {
        "partition": state.partition,
        "topic_id": state.topic_id,
        "leader": state.leader,
        "previous_leader": before.leader if before else None,
        "leader_epoch": state.leader_epoch,
        "partition_epoch": state.partition_epoch,
        "isr": state.isr,
        "previous_isr": before.isr if before else None,
        "eligible_leader_replicas": state.elr,
        "previous_elr": before.elr if before else None,
        "last_known_elr": state.last_known_elr,
        "leader_recovery_state": RECOVERY_STATES[recovery] if 0 <= recovery < len(RECOVERY_STATES) else None,
        "replicas": state.replicas,
        "adding_replicas": state.adding,
        "removing_replicas": state.removing,
    }


def _setting(fields: Fields) -> Fields:
    kind, name = fields["resourceType"], fields["name"]
    shown = kind != BROKER_RESOURCE or may_show(name)
    return {
        "topic": fields["resourceName"] if kind == TOPIC_RESOURCE else None,
        "entity": fields["resourceName"],
        "name": name,
        "value": fields["value"] if shown else None,
    }
