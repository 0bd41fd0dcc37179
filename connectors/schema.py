"""Declarations of tables, those that are decoded, and Arrow tables from columns and rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from auditor.base.at_rest import Fields, Values
from auditor.base.errors import LAST_MS, DecodeError
from auditor.base.words import SEVERITIES

# Declarations of tables: what a row is, an example query, and a line per column with its name, type and meaning. All
# else is derived: Arrow and Spark types, Parquet files, views, the suites' columns, completion and the reference page.


TIME = pa.timestamp("ms", tz="UTC")
JSON = {b"json": b"object"}  # metadata of a column of JSON text
_CONDITION = {"what": pa.string(), "holds": pa.bool_(), "command": pa.string(), "expect": pa.string()}
ADVICE = pa.struct(  # the fields of auditor.base.advice.Advice
    {
        **dict.fromkeys(("verdict", "why"), pa.string()),
        "conditions": pa.list_(pa.struct(_CONDITION)),
        "steps": pa.list_(pa.struct(dict.fromkeys(("do", "command", "expect"), pa.string()))),
        **dict.fromkeys(("side_effects", "afterwards"), pa.string()),
    }
)
TYPES = {
    "string": pa.string(),
    "long": pa.int64(),
    "int": pa.int32(),
    "short": pa.int16(),
    "bool": pa.bool_(),
    "double": pa.float64(),
    "time": TIME,
    "ints": pa.list_(pa.int32()),
    "strings": pa.list_(pa.string()),
    "binary": pa.binary(),
    "json": pa.string(),
    "map": pa.map_(pa.string(), pa.string()),
    "advice": ADVICE,
}

# Of columns with the same meaning in all tables.
EVERYWHERE = {
    "cluster_id": "`cluster.id` of `meta.properties`; null where it does not say",
    "broker_id": "`node.id` or `broker.id` of `meta.properties`, else the digits at the end of the directory's name; "
    "null where there are none",
    "log_dir": "the log directory, relative to the deepest directory above all PATHs; empty: that one; null: in none",
    "topic": "the topic whose log it is; null: of none",
    "partition": "the number of the partition whose log it is; null: of none",
    "file": "the file it comes from, relative to `log_dir`",
    "position": "byte in `file` where it begins",
    "offset": "offset of the record",
    "record_timestamp": "timestamp of the record; null in console text",
    "tombstone": "whether the record deletes its key (it has no value)",
    "value_version": "version of the value's schema; null for a tombstone",
    "producer_id": "id that the producer was given; -1: none",
    "producer_epoch": "epoch of that producer id; -1: none",
    "transactional_id": "`transactional.id` of the producer; null where no coordinator's log in the input shows it",
    "group_id": "`group.id` of the consumer, share or streams group",
    "topic_id": "id of the topic, as Kafka's tools print it (22 characters)",
    "leader_copy": "whether to count the row: true in one copy of each offset range, that of the leader or, where it "
    "lacks it, of another; null: not known without an audit",
}

# The source of a row. log_dir is relative to the deepest directory above all PATHs; broker_id and cluster_id are null
# if meta.properties lacks them.
LOG_KEY: list[pa.Field] = [
    pa.field("cluster_id", pa.string()),
    pa.field("broker_id", pa.int32()),
    pa.field("log_dir", pa.string()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
]
DIR_KEY = LOG_KEY[:3]


# Which copy of a log counts: of each copy, by log directory, topic and partition, whether it is the leader's, and the
# offsets (from, to) that it stands for. A copy that is not listed is the only one.
CopyShares = Mapping[tuple[str, str, int], tuple[bool, Sequence[tuple[int, int]]]]
LEADER_COPY = pa.field("leader_copy", pa.bool_())


class MadeOf(Enum):
    """What the rows of a table are made of, and so what asking for it costs."""

    FILES = auto()  # decoded, file by file
    METADATA = auto()  # decoded too, by the driver: what is in force at the end of ``__cluster_metadata``
    LOG = auto()  # the facts of all replicas of one log
    LOGS = auto()  # the facts of all logs together
    POLICIES = auto()  # the facts of a what-if
    FINDINGS = auto()  # what the rules found
    RUN = auto()  # a run as the history keeps it, which no query names


@dataclass(frozen=True, slots=True)
class DeclaredTable:
    """A table: what a row is, an example query, its columns and what they hold, and what its rows are made of.

    ``payload``: further columns, which only ``--include-payload`` asks for. ``copy_by``: columns of offsets, of which
    the largest tells which copy of the log a row counts in; none: the leader's; None: a row is of no copy.
    """

    row: str
    example: str
    columns: pa.Schema
    payload: pa.Schema
    meanings: dict[str, str]
    made_of: MadeOf
    copy_by: tuple[str, ...] | None

    def schema(self, payload: bool = False) -> pa.Schema:
        """Return the columns that a query sees, with those of the payload if asked."""
        return pa.schema([*self.made(payload), *([] if self.copy_by is None else [LEADER_COPY])])

    def may_be(self, column: str, what: str) -> bool:
        """Tell whether a column may be ``null``, ``empty`` or ``-1``: its meaning says so, and decides it."""
        return what in self.meanings[column]

    def made(self, payload: bool = False) -> pa.Schema:
        """Return the columns as they are made, before it is known which copies count."""
        return pa.schema([*self.columns, *self.payload]) if payload else self.columns


# One vocabulary: `bytes` (`*_bytes`), `records` (`*_records`), `*_ms` for durations, `*_at` for moments, and Kafka's
# own names for stored fields. Columns renamed since 0.4: a query that fails with the old name gets the new one. For one
# release, `batches` has both.
_BEGAN = {"began_not_before": "began_earliest_at", "began_not_after": "began_latest_at"}
RENAMED = {
    "batches": {"size": "bytes", "record_count": "records"},
    "records": {"key_size": "key_bytes", "value_size": "value_bytes"},
    "remote_log_metadata": {"size": "bytes"},
    "decode_errors": {"length": "bytes"},
    "events": {"timestamp": "max_timestamp", "time": "written_at"},
    "producer_states": {"last_seen_by_broker": "last_seen_at"},
    "transaction_partitions": {"size": "bytes", **_BEGAN},
    "transactions": {"size": "bytes", **_BEGAN, "ended_not_before": "ended_earliest_at",
                     "ended_not_after": "ended_latest_at"},
    "lag": {"committed_most": "committed_most_records", "uncommitted_most": "uncommitted_most_records",
            "since_not_before": "readable_earliest_at", "since_not_after": "readable_latest_at",
            "held_since": "held_began_at"},
    "space": {"size": "bytes", "held_from": "held_offset"},
    "cleaner": {"held_at": "held_offset", "held_since": "held_began_at", "held_until": "held_until_at",
                "first_horizon": "first_horizon_at"},
    "blocked": {"since": "began_at", "since_not_before": "began_earliest_at", "since_not_after": "began_latest_at",
                "since_by_producer": "began_by_producer_at"},
}  # fmt: skip
TABLES: dict[str, DeclaredTable] = {}  # every table, by name; declared() adds to it
RowsOfLog = Callable[[Any], Iterator[pa.RecordBatch]]
ROWS_OF_LOG: dict[str, RowsOfLog] = {}  # what makes the tables that are made of one log's facts, from its view


def declared(
    name: str,
    text: str,
    *,
    of: MadeOf = MadeOf.FILES,
    key: Sequence[pa.Field] = tuple(LOG_KEY),
    copy_by: str | None = "",
) -> pa.Schema:
    """Declare a table and return its columns, which begin with those of ``key``.

    The lines of ``text``: what a row is, an example query, then a column per line: ``name:type meaning``. Names of
    :data:`EVERYWHERE` need no meaning; a type that ends with ``?`` is a column of the payload. ``copy_by``:
    names of :attr:`DeclaredTable.copy_by`; only tables that are made of files or of one log have copies. A column may
    be null, empty or -1 only where its meaning names that: the expectation suites rest on it.
    """
    by = None if copy_by is None or of not in (MadeOf.FILES, MadeOf.LOG) else tuple(copy_by.split())
    row, example, *lines = (line.strip() for line in text.strip().splitlines())
    columns = [(*word.split(":"), says.strip()) for word, _, says in (line.partition(" ") for line in lines)]
    fields = [
        pa.field(column, TYPES[kind.rstrip("?")], metadata=JSON if kind == "json" else None)
        for column, kind, _ in columns
    ]
    optional = [kind.endswith("?") for _, kind, _ in columns]
    meanings = {field.name: EVERYWHERE[field.name] for field in key}
    TABLES[name] = DeclaredTable(
        row,
        example,
        pa.schema([*key, *(field for field, left_out in zip(fields, optional, strict=True) if not left_out)]),
        pa.schema([field for field, included in zip(fields, optional, strict=True) if included]),
        meanings
        | {column: says or EVERYWHERE[column] for column, _, says in columns}
        | ({} if by is None else {LEADER_COPY.name: EVERYWHERE[LEADER_COPY.name]}),
        of,
        by,
    )
    return TABLES[name].columns


def makes(table: str) -> Callable[[RowsOfLog], RowsOfLog]:
    """Declare the decorated function as what makes the rows of a table about one log."""

    def made(rows: RowsOfLog) -> RowsOfLog:
        ROWS_OF_LOG[table] = rows
        return rows

    return made


def names(*made_of: MadeOf) -> tuple[str, ...]:
    """Return the names of the tables that are made of these; those that are not decoded in alphabetical order."""
    return tuple(name for name in [*DECODED, *sorted(TABLES.keys() - DECODED)] if TABLES[name].made_of in made_of)


# The decoded tables as Arrow schemas, for Parquet, SQL and ``auditor decode``.
#
# Every log-level table starts with :data:`LOG_KEY`. Times are UTC timestamps in milliseconds, sizes are bytes, offsets
# and sequences are as Kafka stores them (-1 for none). Contract section 4.


BATCHES = declared(
    "batches",
    """
    a record batch of a segment, by its header
    SELECT topic, partition, sum(bytes) AS bytes, count(*) AS batches FROM batches WHERE leader_copy GROUP BY ALL \
ORDER BY bytes DESC LIMIT 10
    file:string
    position:long
    size:long deprecated: the same as `bytes`
    magic:int version of the record format: 0, 1 or 2
    base_offset:long offset of the first record; of a wrapper of magic 0 or 1, of the first message inside
    last_offset:long offset of the last record that the batch was written with
    record_count:long deprecated: the same as `records`
    partition_leader_epoch:int epoch of the leader that appended it; -1 in magic 0 and 1
    crc:long stored checksum: CRC-32C in magic 2, CRC-32 before
    crc_ok:bool whether the bytes have that checksum; null where it is unverified (a copy without payload)
    compression:string none, gzip, snappy, lz4 or zstd; null for a codec that does not exist
    timestamp_type:string who set the timestamps: CreateTime (the producer) or LogAppendTime (the broker)
    base_timestamp:time timestamp of the first record; where `delete_horizon` is set, that instead; null: none
    max_timestamp:time largest timestamp of its records, as the header has it; null: none
    is_transactional:bool whether it belongs to a transaction
    is_control:bool whether it is the broker's own (a marker), not a client's data
    control_type:string of a control batch: COMMIT, ABORT, LEADER_CHANGE, ..., UNKNOWN; else null
    coordinator_epoch:int of a transaction's marker: epoch of the coordinator that sent it; else -1
    producer_id:long
    producer_epoch:int
    base_sequence:int sequence number of the first record; -1: none
    last_sequence:int sequence number of the last record; after 2147483647 comes 0; -1: none
    delete_horizon:time until when a cleaned batch keeps its tombstones and markers (KIP-534); null where unset
    flaws:int what is wrong with the header, as bits; 0: nothing. 1: more records declared than offsets, 2: fewer, \
4: negative span, 8: unknown codec. 16 to 2048: no valid control batch, 4096 to 16384: producer fields that \
contradict each other, 32768: CRC mismatch, 65536: a wrapper that cannot be decompressed
    inferred:json columns whose stored value contradicts the batches around it, with the value that an audit uses; \
null where there is none
    bytes:long bytes of the batch in the file, its header counted
    records:long records that the header declares; cleaning leaves fewer than offsets
""",
    copy_by="base_offset",
)
RECORDS = declared(
    "records",
    """
    a record of a batch, without key and value unless `--include-payload` is given
    SELECT topic, partition, min(timestamp) AS oldest FROM records WHERE NOT is_control GROUP BY ALL
    file:string
    position:long byte in `file` where its batch begins
    base_offset:long first offset of its batch
    record_index:int its place in the batch, from 0
    offset:long
    timestamp:time its timestamp, by the clock that `timestamp_type` of its batch names; null: none
    key_bytes:int bytes of its key; -1: it has none
    value_bytes:int bytes of its value; -1: it has none
    header_count:int number of its headers
    producer_id:long
    producer_epoch:int
    sequence:int its sequence number; -1: none
    is_control:bool whether it is a marker's record
    flaws:int what is wrong with it, as bits; 0: nothing. 2: behind the declared records, 8: offset, 16: length, \
32: a header without key, 64 to 512: no sound message inside a wrapper of magic 0 or 1
    key:binary? its key; only with `--include-payload`
    value:binary? its value; only with `--include-payload`
""",
    copy_by="base_offset",
)
PRODUCER_SNAPSHOTS = declared(
    "producer_snapshots",
    """
    a producer in a `.snapshot` file
    SELECT topic, partition, producer_id, max(snapshot_offset) AS newest FROM producer_snapshots GROUP BY ALL
    file:string
    snapshot_offset:long offset that the snapshot was taken at: it holds what came before (the file's name)
    producer_id:long
    producer_epoch:int
    last_sequence:int sequence number of the producer's last record; -1: none since its epoch began
    last_offset:long offset of the producer's last record; -1: none
    offset_delta:int last offset less first offset of its last batch
    last_timestamp:time timestamp of its last batch or marker; null: none
    coordinator_epoch:int epoch of the coordinator that sent its last marker; -1: none
    current_txn_first_offset:long first offset of its open transaction; -1: none is open
""",
)
ABORTED_TRANSACTIONS = declared(
    "aborted_transactions",
    """
    an entry of a `.txnindex` file
    SELECT topic, partition, count(*) AS aborted FROM aborted_transactions WHERE leader_copy GROUP BY ALL
    file:string
    position:long
    version:int version of the entry: 0
    producer_id:long
    first_offset:long first offset of the transaction
    last_offset:long offset of its ABORT marker
    last_stable_offset:long last stable offset once it was aborted
""",
    copy_by="last_offset",
)
INDEX_ENTRIES = declared(
    "index_entries",
    """
    an entry of an `.index` or `.timeindex` file; `kind`: offset or time
    SELECT kind, count(*) AS entries FROM index_entries WHERE leader_copy GROUP BY kind
    file:string
    position:long
    kind:string offset (`.index`) or time (`.timeindex`)
    offset:long offset that the entry leads to
    log_position:long of an offset index: byte in the segment; null in a time index
    timestamp:time of a time index: the largest timestamp up to that offset; null in an offset index
""",
    copy_by="offset",
)
CHECKPOINTS = declared(
    "checkpoints",
    """
    a line of a checkpoint; `kind`: recovery-point, high-watermark, log-start, cleaner, leader-epoch
    SELECT topic, partition, checkpoints.offset FROM checkpoints WHERE kind = 'high-watermark' AND leader_copy
    file:string
    kind:string recovery-point, high-watermark, log-start, cleaner or leader-epoch
    offset:long the offset that it notes for the log; of a leader epoch, its first one
    leader_epoch:int of `leader-epoch`: the epoch that begins there; else null
""",
)
# status is the stored number, also an unknown one. What console text does not show is null.
TRANSACTION_LOG = declared(
    "transaction_log",
    """
    a record of `__transaction_state`
    SELECT transactional_id, state, record_timestamp FROM transaction_log \
WHERE state = 'PrepareCommit' AND leader_copy
    file:string
    position:long byte in `file` where the record's batch begins
    offset:long offset of the record; null in console text
    record_timestamp:time
    leader_epoch:int leader epoch of the batch; null in console text
    transactional_id:string the transactional id that the record is about (its key)
    tombstone:bool whether the record deletes the id: it expired (`transactional.id.expiration.ms`)
    value_version:int
    producer_id:long id that the coordinator gave the producer; null in a tombstone
    producer_epoch:int epoch that it gave it; null in a tombstone
    timeout_ms:int `transaction.timeout.ms` of the producer, ms; null in a tombstone
    status:int state as the stored number, also where no such state exists; null in a tombstone
    state:string Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort, Dead or \
PrepareEpochFence; null for a tombstone
    partitions:strings partitions of the transaction as `topic-partition`; null in a tombstone
    partitions_null:bool whether the record has a null in place of its partitions, as Empty has; null in a tombstone
    last_update_timestamp:time when the coordinator changed the state, by its clock; null in a tombstone
    start_timestamp:time when the transaction began, by the coordinator's clock; null where none is open
    previous_producer_id:long producer id before the last change of it; -1: none (KIP-890); null in a tombstone
    next_producer_id:long producer id that follows once the transaction is complete; -1: none (KIP-890); null in a \
tombstone
    client_transaction_version:int `transaction.version` that the client used: 2 raises the epoch with each \
transaction; null in a tombstone
    next_producer_epoch:int producer epoch that follows once the transaction is complete; -1: none; null in a tombstone
""",
    copy_by="offset",
)
OFFSET_COMMITS = declared(
    "offset_commits",
    """
    a committed offset in `__consumer_offsets`
    SELECT group_id, consumed_topic, consumed_partition, max(committed_offset) AS committed FROM offset_commits GROUP \
BY ALL
    file:string
    position:long byte in `file` where the record's batch begins
    offset:long offset of the record; null in console text
    record_timestamp:time
    group_id:string
    consumed_topic:string topic that the group reads
    consumed_partition:int partition of it
    tombstone:bool whether the record deletes the commit: it expired, or the group or topic was deleted
    value_version:int
    committed_offset:long offset that the group goes on at; null for a tombstone
    leader_epoch:int leader epoch of the last record that was read; -1: not known; null in a tombstone
    commit_timestamp:time when it was committed, by the coordinator's clock; null in a tombstone
    expire_timestamp:time when it expires, where the client asked for a time of its own; else null
    topic_id:string id of `consumed_topic`; since Kafka 4.1, else null
    metadata:string what the client chose to keep with it, may be empty; null but with `--include-payload`
    is_transactional:bool whether it is part of a transaction: it counts once that is committed
    producer_id:long
    producer_epoch:int
""",
    copy_by="offset",
)
# Groups of every kind: classic (key type 2), consumer (3 to 8, 16), share (9 to 15), streams (17 to 23).
GROUP_METADATA = declared(
    "group_metadata",
    """
    what `__consumer_offsets` says of a group of any kind
    SELECT group_id, kind, count(*) AS records FROM group_metadata WHERE leader_copy GROUP BY ALL
    file:string
    position:long byte in `file` where the record's batch begins
    offset:long offset of the record; null in console text
    record_timestamp:time
    group_id:string
    key_type:int kind of the record, as its key has it: 2 classic; 3 to 8 and 16 consumer; 9 to 15 share; 17 to 23 \
streams
    kind:string the same by Kafka's name of it, such as GroupMetadata or ConsumerGroupMemberMetadata
    tombstone:bool
    value_version:int
    protocol_type:string of a classic group: `consumer`, or what else its members are; may be empty; else null
    protocol:string of a classic group: assignor that its members agreed on; else null
    generation:int generation of a classic group, epoch of the others; else null
    leader:string of a classic group: member that leads it; else null
    state_timestamp:time of a classic group: when its state changed; else null
    member_ids:strings members that the record names; else null
    group_instance_ids:strings `group.instance.id` of each of them, null where it has none
    client_ids:strings `client.id` of each of them; else null
    regular_expression:string of a consumer group: pattern that its members subscribed to; else null
    value:json every field of the value, as `kafka-dump-log.sh` prints it; addresses and bytes that the client chose \
are null but with `--include-payload`
""",
    copy_by="offset",
)
SHARE_GROUP_STATE = declared(
    "share_group_state",
    """
    a record of `__share_group_state`
    SELECT group_id, max(start_offset) AS start FROM share_group_state GROUP BY group_id
    file:string
    position:long byte in `file` where the record's batch begins
    offset:long
    record_timestamp:time
    group_id:string
    topic_id:string
    consumed_partition:int partition that the share group reads
    key_type:int 0: snapshot; 1: update of one
    kind:string ShareSnapshot, or ShareUpdate of one
    tombstone:bool
    value_version:int
    snapshot_epoch:int number of the snapshot, which an update belongs to; else null
    state_epoch:int epoch of the state, bumped when it starts again; else null
    leader_epoch:int leader epoch of the partition that is read; else null
    start_offset:long all offsets before it are settled; -1: not known yet; else null
    delivery_complete_count:int offsets behind `start_offset` that are settled; -1: not known; else null
    create_timestamp:time of a snapshot: when it was made first; else null
    write_timestamp:time of a snapshot: when it was written; else null
    state_batches:json offsets from `start_offset` on that were delivered, with their state and number of deliveries, \
as `kafka-dump-log.sh` prints them; else null
""",
    copy_by="offset",
)
REMOTE_LOG_METADATA = declared(
    "remote_log_metadata",
    """
    a record of `__remote_log_metadata`: what was copied to tiered storage
    SELECT tiered_topic, state, count(*) AS segments FROM remote_log_metadata GROUP BY ALL
    file:string
    position:long byte in `file` where the record's batch begins
    offset:long
    record_timestamp:time
    key_type:int kind of the record, as its value has it
    kind:string the same by Kafka's name of it
    value_version:int version of its schema
    tiered_topic:string topic whose segment it is about
    tiered_partition:int partition of it
    topic_id:string
    segment_id:string id of the remote segment
    state:string COPY_SEGMENT_STARTED, COPY_SEGMENT_FINISHED, DELETE_SEGMENT_STARTED, ...; null for an unknown number
    state_number:int the state as the stored number
    event_broker_id:int broker that did it
    event_timestamp:time when, by that broker's clock
    start_offset:long first offset of the segment; null in an update
    end_offset:long last offset of the segment; null in an update
    max_timestamp:time largest timestamp in the segment; null in an update
    bytes:long bytes of the segment; null in an update
    leader_epochs:json leader epochs in the segment, each with its first offset; null in an update
    txn_index_empty:bool whether the segment has no transaction index; null in an update
    custom_metadata:binary what the storage plugin keeps with it; null in an update
""",
    copy_by="offset",
)
TOPICS = declared(
    "topics",
    """
    a topic in `__cluster_metadata`
    SELECT topic, topic_id FROM topics ORDER BY topic
    topic:string its name
    topic_id:string
""",
    of=MadeOf.METADATA,
    key=DIR_KEY,
)
TOPIC_CONFIGS = declared(
    "topic_configs",
    """
    a setting of a topic
    SELECT topic, value FROM topic_configs WHERE name = 'cleanup.policy'
    topic:string the topic
    name:string the setting, such as `retention.ms`
    value:string its value; may be empty
""",
    of=MadeOf.METADATA,
    key=DIR_KEY,
)
BROKER_CONFIGS = declared(
    "broker_configs",
    """
    a setting of a broker; `entity` is its id, empty for the default of all
    SELECT entity, name, value FROM broker_configs
    entity:string broker id; empty for the default of all brokers
    name:string the setting
    value:string its value; may be empty; null where it is withheld, because it may be secret
""",
    of=MadeOf.METADATA,
    key=DIR_KEY,
)
PARTITIONS = declared(
    "partitions",
    """
    a partition as `__cluster_metadata` has it at its end
    SELECT topic, partition, leader FROM partitions WHERE size(isr) < size(replicas)
    topic:string its topic
    partition:int its number
    topic_id:string
    replicas:ints brokers that hold a replica, the preferred leader first
    isr:ints brokers whose replicas are in sync
    leader:int broker that leads it; -1: none
    leader_epoch:int how often a leader was chosen
    partition_epoch:int how often the controller changed it
    adding_replicas:ints brokers that a reassignment adds
    removing_replicas:ints brokers that a reassignment removes
    eligible_leader_replicas:ints brokers outside the ISR that have all committed records (KIP-966)
    last_known_elr:ints brokers that were eligible before, and may have lost something (KIP-966)
    leader_recovery_state:string RECOVERED; RECOVERING after an unclean election until the leader has seen to it
""",
    of=MadeOf.METADATA,
    key=DIR_KEY,
)
METADATA_HISTORY = declared(
    "metadata_history",
    """
    a change that `__cluster_metadata` records
    SELECT timestamp, topic, partition, leader, previous_leader FROM metadata_history WHERE leader <> previous_leader \
ORDER BY timestamp
    offset:long offset of the record; null for what the oldest snapshot says, where the log begins behind it
    timestamp:time when the controller wrote it; of a snapshot, the snapshot's time
    record:string Kafka's name of it, such as PartitionChangeRecord
    version:int version of its schema
    topic_id:string id of the topic; else null
    leader:int leader behind the change; -1: none; null where it is about no partition
    previous_leader:int leader before the change; -1: none; else null
    leader_epoch:int leader epoch behind the change; else null
    partition_epoch:int partition epoch behind the change; else null
    isr:ints in-sync replicas behind the change; else null
    previous_isr:ints in-sync replicas before the change; else null
    eligible_leader_replicas:ints eligible leader replicas behind the change (KIP-966); else null
    previous_elr:ints eligible leader replicas before the change; else null
    last_known_elr:ints those that were eligible before, behind the change; else null
    leader_recovery_state:string RECOVERED or RECOVERING, behind the change; else null
    replicas:ints brokers with a replica, behind the change; else null
    adding_replicas:ints brokers that a reassignment adds; else null
    removing_replicas:ints brokers that a reassignment removes; else null
    node_id:int broker, or with a controller's record the controller, that it is about; else null
    broker_epoch:long epoch that the broker registered with; else null
    fenced:bool whether the broker is fenced behind the change; else null
    in_controlled_shutdown:bool whether the broker is shutting down behind the change; else null
    entity:string whose setting it is: a topic, a broker id, empty for the default of all brokers; else null
    name:string the setting, or the feature; else null
    value:string its value, or the feature's level; may be empty; null: deleted, or withheld
""",
    copy_by=None,
)
DECODE_ERRORS = declared(
    "decode_errors",
    """
    a stretch of bytes that could not be read, and why
    SELECT reason, count(*) AS places, sum(bytes) AS bytes FROM decode_errors WHERE leader_copy GROUP BY reason
    file:string
    position:long byte where it begins
    bytes:long how many; -1: to the end of the file, or not known
    reason:string code, such as `crc_mismatch`, `truncated`, `bad_compression` or `unreadable`
    detail:string what was found, in words, never payload; may be empty
""",
)
DECODED = {name: table.columns for name, table in TABLES.items()}

# What a kept run has beside its findings (``--history``).


def _kept(table: str, text: str, key: Sequence[pa.Field] = ()) -> pa.Schema:
    return declared(table, text, of=MadeOf.RUN, key=key)


LOGS = _kept(
    "logs",
    """
    a replica of a partition, and what was scanned of it
    SELECT topic, partition, bytes_total FROM logs WHERE leader_copy
    leader_copy:bool whether it is the replica that the log is judged by
    log_start:long first offset of the log
    log_end:long offset behind its last record
    high_watermark:long its high watermark; null where it is not known
    last_stable_offset:long where read_committed readers are held
    producers:long producers that it has records of
    batches:long batches that were read
    records:long records in them, by their headers
    bytes_total:long bytes of its files
    bytes_decoded:long those that were decoded
    bytes_skipped:long those that were skipped, with a reason
    bytes_error:long those that could not be decoded
    offsets_data:long offsets from `log_start` to `log_end` of records that are not aborted
    offsets_aborted:long those of records of aborted transactions
    offsets_marker:long those of markers
    offsets_compacted:long those that compaction removed
    offsets_unreadable:long those in bytes that could not be read
    offsets_missing:long those that are nowhere and should be
    offsets_remote:long those in remote storage that was not read
    offsets_left_out:long those that a filter excluded
    offsets_not_reached:long those behind the place where reading ended
    offsets_total:long all of them
""",
    LOG_KEY,
)
RUNS = _kept(
    "runs",
    f"""
    a run that is kept
    SELECT cluster_name, as_of, headline, outcome, critical, error FROM runs ORDER BY as_of
    cluster_id:string `cluster.id` of the audited cluster; several with commas between; null where none is known
    cluster_name:string its name; its id where it has none
    run_at:time when a run of this id was first kept; a rerun keeps it
    published_at:time when this one was kept
    as_of:time evaluation time; null where it is no time
    complete:bool whether all of the input was read
    headline:string the result in one line
    outcome:string the worst outcome of its critical and error findings; null where there are none
    {chr(10).join(f"{name}:long findings of that severity" for name in SEVERITIES)}
    suppressed:long findings that the baseline suppresses; they are not in the four columns before
    blocked:long partitions that are blocked
    bytes:long bytes of the input
    bytes_unreadable:long bytes that could not be read
    batches:long batches that were read
    records:long records in them, by their headers
    tool_version:string the version of the auditor
""",
)
REPORT = _kept(
    "report",
    """
    what the report draws beside findings and summary
    SELECT count(*) FROM report WHERE kind = 'open'
    kind:string open (a transaction) or timeline
    row:string what is drawn, as JSON
""",
)
EXPECTATIONS = _kept(
    "expectations",
    """
    an expectation and how it went
    SELECT suite, says, broken FROM expectations WHERE NOT success
    suite:string the table or view that it judges
    expectation:string its type
    column:string the columns that it is about
    says:string what it expects
    severity:string how much it matters
    success:bool whether it is met
    rows:long rows that were judged
    broken:long rows that break it
    where:string the first logs that break it
    error:string why judging failed
""",
)


RECOVERY_STATES = ("RECOVERED", "RECOVERING")  # LeaderRecoveryState
COMPRESSION_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
TRANSACTION_STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)


# Arrow tables from columns and rows.


Key = tuple[str | None, int | None, str, str | None, int | None]  # the values of LOG_KEY
CACHED_ROWS = 1 << 16  # of a cached column of one value; of a long text fewer


# pyarrow.array and pyarrow.scalar import pandas first, which takes half a second. So columns are made from buffers,
# except those from rows.


def array_of(values: np.ndarray, null: np.ndarray | None = None, kind: pa.DataType | None = None) -> pa.Array:
    """A column of numbers or booleans without a copy, or of a ``kind`` with the same bytes. ``null``: which rows are
    null."""
    valid = None if null is None or not null.any() else _bits(~null)
    data = _bits(values) if values.dtype == bool else pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(kind or pa.from_numpy_dtype(values.dtype), len(values), [valid, data])


def texts(values: Sequence[str | None]) -> pa.Array:
    """A column of texts."""
    encoded = [(value or "").encode() for value in values]
    ends = np.cumsum([0, *(len(value) for value in encoded)], dtype=np.int32)
    valid = _bits(np.array([value is not None for value in values], bool))
    return pa.Array.from_buffers(
        pa.string(), len(encoded), [valid, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    )


def lists(values: Sequence[Sequence[str] | None]) -> pa.Array:
    """A column of lists of texts."""
    return column_of(values, TYPES["strings"])


def column_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """A column of texts, numbers, booleans, times in ms, or of lists, maps (as dicts) and structs of these."""
    if pa.types.is_string(kind):
        return texts(values)
    null = np.array([value is None for value in values], bool)
    if not pa.types.is_nested(kind):
        stored = np.int64 if pa.types.is_timestamp(kind) else kind.to_pandas_dtype()
        return array_of(np.array([0 if value is None else value for value in values], stored), null, kind)
    buffers = [_bits(~null) if null.any() else None]
    if pa.types.is_struct(kind):
        children = [column_of([value and value[f.name] for value in values], f.type) for f in kind]
    else:
        buffers.append(pa.py_buffer(np.cumsum([0, *(len(value or ()) for value in values)], dtype=np.int32)))
        items = [one for value in values for one in value or ()]
        children = [column_of(items, kind.key_type if pa.types.is_map(kind) else kind.value_type)]
    if pa.types.is_map(kind):
        children.append(column_of([one for value in values for one in (value or {}).values()], kind.item_type))
        pair = pa.struct([kind.key_field, kind.item_field])
        children = [pa.Array.from_buffers(pair, len(items), [None], children=children)]
    return pa.Array.from_buffers(kind, len(values), buffers, children=children)


def repeated(value: str | int | bool | None, kind: pa.DataType, rows: int) -> pa.Array:
    """One value for all rows; up to some size, a slice of a cached column."""
    block = 1 << (rows - 1).bit_length() if rows else 0
    if max(block, len(str(value)) * block // 64) > CACHED_ROWS:
        return _repeated.__wrapped__(value, kind, rows)
    return _repeated(value, kind, block).slice(0, rows)


@lru_cache(maxsize=16)
def _repeated(value: str | int | bool | None, kind: pa.DataType, rows: int) -> pa.Array:
    if value is None:
        return pa.nulls(rows, kind)
    one = texts([value]) if isinstance(value, str) else array_of(np.array([value])).cast(kind)
    return one.take(array_of(np.zeros(rows, np.int64)))


def _bits(values: np.ndarray) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little"))


def times(values: np.ndarray, kind: pa.DataType | None = None) -> pa.Array:
    """A column of times from ms, of ``kind`` or as numbers: null for none (negative) and after year 9999."""
    wide = values.astype(np.int64, copy=False)
    return array_of(wide, wide.view(np.uint64) > LAST_MS, kind)  # negative ones are large then


def from_columns(schema: pa.Schema, key: Key, rows: int, columns: Values) -> pa.RecordBatch:
    """``rows`` rows of a table: ``columns`` by name, each an array or one value for all rows; missing ones are null."""
    values: Fields = dict(zip((field.name for field in LOG_KEY), key, strict=True)) | dict(columns)
    return pa.RecordBatch.from_arrays([_array(values.get(f.name), f.type, rows) for f in schema], schema=schema)


def _array(value: Any, kind: pa.DataType, rows: int) -> pa.Array:
    if isinstance(value, np.ndarray):
        value = times(value, kind) if pa.types.is_timestamp(kind) else array_of(value)
    if isinstance(value, pa.Array):
        return value if value.type == kind else value.cast(kind)
    return repeated(value, kind, rows)


def from_rows(schema: pa.Schema, key: Sequence[Any], rows: Iterable[Sequence[Any]]) -> pa.RecordBatch:
    """Rows, each with the values after those of ``key``; times are in ms as for :func:`times`."""
    rest = [schema.field(number) for number in range(len(key), len(schema))]
    given = list(rows)
    columns = zip(*given, strict=True) if given else ((),) * len(rest)
    arrays = [repeated(v, f.type, len(given)) for v, f in zip(key, schema, strict=False)]
    arrays += [_column(values, field.type) for values, field in zip(columns, rest, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def from_dicts(schema: pa.Schema, key: Sequence[Any], rows: Iterable[Values]) -> pa.RecordBatch:
    """As :func:`from_rows`, for rows by name; missing columns are null, unknown names are ignored."""
    names = schema.names[len(key) :]
    return from_rows(schema, key, [[row.get(name) for name in names] for row in rows])


def with_leader_copy(table: str, rows: pa.RecordBatch, shares: CopyShares | None) -> pa.RecordBatch:
    """Add :data:`LEADER_COPY` to rows of one copy, where the table has it; None: not decided.

    Checkpoints of a log directory may be of many logs.
    """
    by = TABLES[table].copy_by
    if by is None:
        return rows
    if shares is None or not shares:
        column = repeated(None if shares is None else True, pa.bool_(), rows.num_rows)
    elif table == "checkpoints":
        keys = zip(*(rows.column(name).to_pylist() for name in ("log_dir", "topic", "partition")), strict=True)
        column = array_of(np.array([shares.get(key, (True,))[0] for key in keys], bool))
    else:
        column = _counts(rows, by, shares)
    return pa.RecordBatch.from_arrays([*rows.columns, column], schema=pa.schema([*rows.schema, LEADER_COPY]))


def _counts(rows: pa.RecordBatch, by: tuple[str, ...], shares: CopyShares) -> pa.Array:
    places = (rows.column(name)[0].as_py() if rows.num_rows else None for name in ("log_dir", "topic", "partition"))
    is_leader, ranges = shares.get(tuple(places), (True, None))  # type: ignore[arg-type]
    if not by or ranges is None:
        return repeated(is_leader, pa.bool_(), rows.num_rows)
    columns = [np.nan_to_num(rows.column(name).to_numpy(zero_copy_only=False), nan=-1) for name in by]
    offsets = np.maximum.reduce(columns)
    out = (offsets < 0) & is_leader  # console text has no offsets
    for begin, end in ranges:
        out |= (offsets >= begin) & (offsets < end)
    return array_of(out)


def from_errors(key: Key, errors: Iterable[DecodeError]) -> pa.RecordBatch:
    """Rows of the table ``decode_errors``."""
    return from_rows(DECODE_ERRORS, key, [error[:5] for error in errors])


def _column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if not pa.types.is_timestamp(kind):
        return pa.array(values, kind)
    return pa.array([v if v is not None and 0 <= v <= LAST_MS else None for v in values], pa.int64()).cast(kind)


def for_spark(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows for Spark: times in microseconds, the only unit it has."""
    fields = [f.with_type(pa.timestamp("us", f.type.tz)) if pa.types.is_timestamp(f.type) else f for f in batch.schema]
    return batch.cast(pa.schema(fields))
