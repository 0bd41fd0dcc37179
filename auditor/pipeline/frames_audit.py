"""Audits of batches in a table."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from auditor.base.errors import AuditInputError, DecodeError
from auditor.base.user_input import fits
from auditor.connectors import kafka_names
from auditor.connectors.codec.batches import BatchColumns
from auditor.connectors.codec.cluster_metadata import ClusterMetadata, PartitionState
from auditor.connectors.logdir.files import Inventory, LogDir, Replica
from auditor.connectors.schema import BATCHES, DECODED, RECOVERY_STATES, array_of
from auditor.connectors.tables.input_splits import LeftOut
from auditor.connectors.tables.rows import batches_of
from auditor.facts.replica_facts import ReplicaFacts
from auditor.model.policies import DAY_MS
from auditor.pipeline.cluster_context import Brief
from auditor.pipeline.cluster_settings import ClusterSettings
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.whole_audit import Audit, Say, nobody
from auditor.replay.reading.other_replicas import NOWHERE, LogKey, read_batches

if TYPE_CHECKING:
    from auditor.pipeline.runner import Replicas, Runner


# Columns that a frame may lack; what they would say is then not known.
OPTIONAL = {"cluster_id": "", "broker_id": -1, "log_dir": "", "crc_ok": None, "flaws": 0, "delete_horizon": None,
            "inferred": None}  # fmt: skip
COLUMNS = pa.schema([f for f in BATCHES if f.name not in ("last_sequence", "bytes", "records")])  # others have these
NEEDED = tuple(name for name in COLUMNS.names if name not in OPTIONAL)
KEY = ("cluster_id", "topic", "partition", "log_dir", "broker_id")
OF_LOG = 3  # of them those that name a log
IN_A_LOG = ("number", "file", "position")  # number: that in the file's name
OFFSETS, NO_OFFSET = ("base_offset", "last_offset"), 2**63 - 1  # behind which there is none
UNNAMED = {"topic": "(unknown)", "partition": -1, "file": ""}
Lot = tuple[LogKey, str, BatchColumns]
RecordsOfLogs = Mapping[LogKey, Mapping[str, pa.Table]]  # rows of internal topics by log and table
RECORDS = ("transaction_log", "offset_commits", "group_metadata")
METADATA = ("partitions", "topic_configs", "broker_configs")


def check(schema: pa.Schema) -> None:
    """Raise ``AuditInputError`` unless the columns are those of ``batches``."""
    if missing := [name for name in NEEDED if name not in schema.names]:
        raise AuditInputError(
            f"the frame has no column {', '.join(missing)}; give the columns of the table batches (docs/tables.md)"
        )
    for field in COLUMNS:
        given = schema.field(field.name).type if field.name in schema.names else field.type
        if not any(of_kind(given) and of_kind(field.type) for of_kind in _KINDS) and not pa.types.is_null(given):
            raise AuditInputError(f"column {field.name} of the frame is {given}, where batches has {field.type}")


def _whole(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_timestamp(kind)  # times may be epoch milliseconds


def _text(kind: pa.DataType) -> bool:
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.types.is_string(plain) or pa.types.is_large_string(plain) or pa.types.is_string_view(plain)


_KINDS: tuple[Callable[[pa.DataType], bool], ...] = (_whole, _text, pa.types.is_boolean)


def in_order(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an in-memory table, log by log, each in log order."""
    whole = table.select([name for name in COLUMNS.names if name in table.column_names])
    filled = [_filled(batch) for batch in whole.to_batches()]
    if not filled:
        return
    numbered = pa.Table.from_batches(filled)
    order = numbered.select(["file"]).append_column("number", _numbers(numbered.column("file")))
    keys = [(name, "ascending") for name in (*KEY, *IN_A_LOG)]
    order_of_rows = pc.sort_indices(numbered.append_column("number", order.column("number")), sort_keys=keys)
    yield from numbered.take(order_of_rows).to_batches(max_chunksize=1 << 16)


def _numbers(files: pa.ChunkedArray) -> pa.Array:
    """The number in the name of each file, -1 without one."""
    coded = files.combine_chunks().dictionary_encode()
    names = [kafka_names.data_name(file.rpartition("/")[2]) for file in coded.dictionary.to_pylist()]
    numbers = np.array([-1 if one is None else one.offset for one in names], np.int64)
    return array_of(numbers[np.asarray(coded.indices)])


def _filled(batch: pa.RecordBatch) -> pa.RecordBatch:
    """All columns of :data:`COLUMNS` in their types, without nulls in those that name a log.

    Errors: ``AuditInputError`` for a number that no batch can have.
    """
    columns = []
    for field in COLUMNS:
        absent = field.name not in batch.schema.names
        column = pa.nulls(batch.num_rows, field.type) if absent else batch.column(field.name)
        if column.type != field.type and not (pa.types.is_timestamp(field.type) and not pa.types.is_null(column.type)):
            try:
                column = column.cast(field.type)
            except pa.ArrowInvalid as error:
                raise AuditInputError(f"column {field.name} of the frame has an invalid value: {error}") from None
        if field.name in OFFSETS and (pc.max(column).as_py() or 0) == NO_OFFSET:
            raise AuditInputError(f"column {field.name} of the frame has an invalid value: offset {NO_OFFSET}")
        none = (OPTIONAL | UNNAMED).get(field.name)
        columns.append(column if none is None else pc.fill_null(column, pa.scalar(none, field.type)))
    return pa.RecordBatch.from_arrays(columns, names=COLUMNS.names)


def replicas_of(
    batches: Iterable[pa.RecordBatch], compacted: tuple[str, ...] | None, records: RecordsOfLogs
) -> Iterator[ReplicaFacts]:
    """Yield the facts of each replica, whose rows come together and in order.

    ``compacted``: globs of compacted topics, None if unknown. Memory: as of
    :mod:`auditor.replay.reading.other_replicas`. Errors: ``AuditInputError`` for a number that no batch can have.
    """
    for key, lots in itertools.groupby(_lots(batches), itemgetter(0)):
        cleaned = None if compacted is None else any(fits(key.topic, glob) for glob in compacted)
        facts = read_batches(key, ((file, columns) for _, file, columns in lots), DAY_MS, cleaned)
        facts.tables = dict(records.get(key, {}))
        yield facts


def typed(name: str, table: pa.Table) -> pa.Table:
    """Return the columns of a decoded table of a frame. Errors: ``AuditInputError`` where it has not these."""
    try:
        return table.select(DECODED[name].names).cast(DECODED[name])
    except (KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise AuditInputError(f"{name} is not the table of docs/tables.md ({error}); give its columns") from None


def records_of_logs(tables: Mapping[str, pa.Table]) -> RecordsOfLogs:
    """Return the rows of internal topics by log. Errors: ``AuditInputError`` for a frame of other columns."""
    out: dict[LogKey, dict[str, pa.Table]] = {}
    for name, table in tables.items():
        rows = typed(name, table)
        keys = [pc.fill_null(rows.column(column), (OPTIONAL | UNNAMED)[column]) for column in KEY]
        numbered = pa.table([*keys, pa.array(range(len(rows)), pa.int64())], [*KEY, "row"])
        for *key, numbers in _tuples(numbered.group_by(list(KEY)).aggregate([("row", "list")])):
            out.setdefault(log_key(*key), {})[name] = rows.take(numbers)
    return out


def settings_of(tables: Mapping[str, pa.Table]) -> dict[str, ClusterSettings]:
    """Return the settings of each cluster by the tables of :data:`METADATA`. Errors: as of :func:`typed`."""
    if unknown := sorted({*tables} - {*METADATA}):
        raise AuditInputError(f"metadata has no table {unknown[0]!r}; give {', '.join(METADATA)}")
    out: dict[str, ClusterSettings] = {}
    for name, table in tables.items():
        for cluster, _, _, *row in _tuples(typed(name, table)):
            settings = out.setdefault(cluster or "", ClusterSettings(ClusterMetadata(), whole="partitions" in tables))
            if name == "partitions" and settings.metadata is not None:
                values: list[Any] = [tuple(v) if isinstance(v, list) else v for v in row]
                state = PartitionState._make([*values[:-1], int(values[-1] == RECOVERY_STATES[1])])
                settings.metadata.partitions[state.topic_id, state.partition] = state
                settings.metadata.topics[state.topic] = state.topic_id
            else:
                of = settings.topic_configs if name == "topic_configs" else settings.broker_configs
                of.setdefault(row[0], {})[row[1]] = row[2]
    return out


def _tuples(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


def _lots(batches: Iterable[pa.RecordBatch]) -> Iterator[Lot]:
    for given in batches:
        if not given.num_rows:
            continue
        batch = _filled(given)
        columns = [batch.column(name) for name in (*KEY, "file")]
        changes = np.zeros(batch.num_rows, bool)
        for column in columns:
            changes[1:] |= np.asarray(pc.not_equal(column.slice(1), column.slice(0, len(column) - 1)))
        cuts = [0, *np.flatnonzero(changes).tolist(), batch.num_rows]
        for first, behind in itertools.pairwise(cuts):
            cluster, topic, partition, log_dir, broker, file = (column[first].as_py() for column in columns)
            key = log_key(cluster, topic, partition, log_dir, broker)
            yield key, file, batches_of(batch.slice(first, behind - first))


def log_key(cluster: str, topic: str, partition: int, log_dir: str, broker: int) -> LogKey:
    """Return the identity of the log of a row with these values of :data:`KEY`."""
    named = log_dir or "/".join(filter(None, (cluster, f"broker-{broker}" if broker >= 0 else "batches")))
    return LogKey(cluster, cluster or None, None if broker < 0 else broker, named, topic, partition)


class FramesAudit(Audit):
    """An audit of replicas that ``read`` makes of a frame; gives findings, blocked partitions and derived tables."""

    def __init__(
        self,
        options: AuditOptions,
        runner: Runner,
        read: Callable[[], Replicas],
        settings: dict[str, ClusterSettings],
        say: Say = nobody,
    ) -> None:
        super().__init__(options, runner, say)
        self._read = read
        self._given = settings

    def ready(self) -> None:
        """Wait until the runner has started."""
        with self.step(f"start {self.runner.name}"):
            self.runner.ready()

    @cached_property
    def replicas(self) -> Replicas:
        """The facts of every replica, wherever the runner has them."""
        self.ready()
        return self._read()

    @cached_property
    def briefs(self) -> list[Brief]:
        """The brief of every replica."""
        with self.step("read and replay"):
            return self.replicas.briefs()

    @cached_property
    def inventory(self) -> Inventory:
        """The frame's content as an inventory of log directories."""
        dirs: dict[tuple[str, str], list[Brief]] = {}
        for one in self.briefs:
            dirs.setdefault((one.join_key, one.log_dir), []).append(one)
        names_of = [name for _, name in dirs]
        if several := sorted({name for name in names_of if names_of.count(name) > 1}):
            raise AuditInputError(f"log_dir {several[0]} is of two clusters in the frame; give each its own name")
        return Inventory(tuple(_log_dir(*key, briefs) for key, briefs in dirs.items()), (), (), (), ())

    @property
    def scoped(self) -> Inventory:
        """The whole inventory: everything in the frame is read."""
        return self.inventory

    @property
    def empty_input(self) -> None:
        """None: an empty frame is its caller's choice."""

    @property
    def left_out(self) -> LeftOut:
        """Zero: nothing is excluded from a frame."""
        return LeftOut(0, 0)

    @cached_property
    def _opened(self) -> tuple[dict[str, ClusterSettings], list[tuple[str, DecodeError]]]:
        return {key: self._given.get(key, ClusterSettings()) for key in {one.join_key for one in self.briefs}}, []

    def spared(self) -> Inventory | None:
        """Return None: a frame is no directory."""
        return None


def _log_dir(join_key: str, name: str, briefs: list[Any]) -> LogDir:
    replicas = tuple(Replica(name, b.topic, b.partition, f"{b.topic}-{b.partition}") for b in briefs)
    return LogDir(name, NOWHERE, join_key, join_key or None, briefs[0].broker_id, "the frame", replicas=replicas)
