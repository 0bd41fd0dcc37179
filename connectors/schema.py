"""The decoded tables: their columns in order, as Arrow schemas; what Parquet, SQL or ``auditor decode`` show.

Every log-level table begins with :data:`LOG_KEY`. Times are UTC timestamps in milliseconds, sizes are bytes, offsets
and sequences are as Kafka stores them (-1 where there is none). Contract section 4.
"""

from __future__ import annotations

import pyarrow as pa

from auditor.connectors.declared import MEANINGS, declared

# Where a row comes from. log_dir is relative to the deepest folder above all PATHs; broker_id and cluster_id are null
# where meta.properties does not say.
LOG_KEY: list[pa.Field] = [
    pa.field("cluster_id", pa.string()),
    pa.field("broker_id", pa.int32()),
    pa.field("log_dir", pa.string()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
]
DIR_KEY = LOG_KEY[:3]


BATCHES = declared(
    "batches",
    LOG_KEY,
    """
    file:string
    position:long
    size:long bytes of the batch in the file, its header counted
    magic:int version of the record format: 0, 1 or 2
    base_offset:long offset of the first record; of a wrapper of magic 0 or 1, of the first message inside
    last_offset:long offset of the last record that the batch was written with
    record_count:long records that the header declares; cleaning leaves fewer than offsets
    partition_leader_epoch:int epoch of the leader that appended it; -1 in magic 0 and 1
    crc:long stored checksum: CRC-32C in magic 2, CRC-32 before
    crc_ok:bool whether the bytes have that checksum; null where nobody has verified it (a copy without payload)
    compression:string none, gzip, snappy, lz4 or zstd; null for a codec that does not exist
    timestamp_type:string who set the timestamps: CreateTime (the producer) or LogAppendTime (the broker)
    base_timestamp:time timestamp of the first record; where `delete_horizon` is set, that instead
    max_timestamp:time largest timestamp of its records, as the header has it
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
4: negative span, 8: unknown codec, 16 to 2048: no sound control batch, 4096 to 16384: producer fields that \
contradict each other, 32768: checksum, 65536: a wrapper that could not be opened
""",
)
RECORDS = declared(
    "records",
    LOG_KEY,
    """
    file:string
    position:long byte in `file` where its batch begins
    base_offset:long first offset of its batch
    record_index:int its place in the batch, from 0
    offset:long
    timestamp:time its timestamp, by the clock that `timestamp_type` of its batch names
    key_size:int bytes of its key; -1: null
    value_size:int bytes of its value; -1: null
    header_count:int number of its headers
    producer_id:long
    producer_epoch:int
    sequence:int its sequence number; -1: none
    is_control:bool whether it is a marker's record
    flaws:int what is wrong with it, as bits; 0: nothing. 2: behind the declared records, 8: offset, 16: length, \
32: a header without key, 64 to 512: no sound message inside a wrapper of magic 0 or 1
""",
)
PAYLOAD = [pa.field("key", pa.binary()), pa.field("value", pa.binary())]  # only with --include-payload
MEANINGS["records"] |= {
    "key": "its key; only with `--include-payload`",
    "value": "its value; only with `--include-payload`",
}
PRODUCER_SNAPSHOTS = declared(
    "producer_snapshots",
    LOG_KEY,
    """
    file:string
    snapshot_offset:long offset that the snapshot was taken at: it holds what came before (the file's name)
    producer_id:long
    producer_epoch:int
    last_sequence:int sequence number of the producer's last record; -1: none since its epoch began
    last_offset:long offset of the producer's last record; -1: none
    offset_delta:int last offset less first offset of its last batch
    last_timestamp:time timestamp of its last batch or marker
    coordinator_epoch:int epoch of the coordinator that sent its last marker; -1: none
    current_txn_first_offset:long first offset of its open transaction; -1: none is open
""",
)
ABORTED_TRANSACTIONS = declared(
    "aborted_transactions",
    LOG_KEY,
    """
    file:string
    position:long
    version:int version of the entry: 0
    producer_id:long
    first_offset:long first offset of the transaction
    last_offset:long offset of its ABORT marker
    last_stable_offset:long last stable offset once it was aborted
""",
)
INDEX_ENTRIES = declared(
    "index_entries",
    LOG_KEY,
    """
    file:string
    position:long
    kind:string offset (`.index`) or time (`.timeindex`)
    offset:long offset that the entry leads to
    log_position:long of an offset index: byte in the segment; null in a time index
    timestamp:time of a time index: the largest timestamp up to that offset; null in an offset index
""",
)
CHECKPOINTS = declared(
    "checkpoints",
    LOG_KEY,
    """
    file:string
    kind:string recovery-point, high-watermark, log-start, cleaner or leader-epoch
    offset:long the offset that it notes for the log; of a leader epoch, its first one
    leader_epoch:int of `leader-epoch`: the epoch that begins there; else null
""",
)
# status is the stored number, also where it is none that exists. What console text does not show is null.
TRANSACTION_LOG = declared(
    "transaction_log",
    LOG_KEY,
    """
    file:string
    position:long byte in `file` where the record's batch begins
    offset:long offset of the record; null in console text
    record_timestamp:time
    leader_epoch:int leader epoch of the batch; null in console text
    transactional_id:string the transactional id that the record is about (its key)
    tombstone:bool whether the record deletes the id: it expired (`transactional.id.expiration.ms`)
    value_version:int
    producer_id:long id that the coordinator gave the producer
    producer_epoch:int epoch that it gave it
    timeout_ms:int `transaction.timeout.ms` of the producer, ms
    status:int state as the stored number, also where no such state exists
    state:string Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort, Dead or \
PrepareEpochFence; null for a tombstone
    partitions:strings partitions of the transaction as `topic-partition`
    partitions_null:bool whether the record has a null in place of its partitions, as Empty has
    last_update_timestamp:time when the coordinator changed the state, by its clock
    start_timestamp:time when the transaction began, by the coordinator's clock; null where none is open
    previous_producer_id:long producer id before the last change of it; -1: none (KIP-890)
    next_producer_id:long producer id that follows once the transaction is complete; -1: none (KIP-890)
    client_transaction_version:int `transaction.version` that the client used: 2 raises the epoch with each transaction
    next_producer_epoch:int producer epoch that follows once the transaction is complete; -1: none
""",
)
OFFSET_COMMITS = declared(
    "offset_commits",
    LOG_KEY,
    """
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
    leader_epoch:int leader epoch of the last record that was read; -1: not known
    commit_timestamp:time when it was committed, by the coordinator's clock
    expire_timestamp:time when it expires, where the client asked for a time of its own; else null
    topic_id:string id of `consumed_topic`; since Kafka 4.1, else null
    metadata:string what the client chose to keep with it; null but with `--include-payload`
    is_transactional:bool whether it is part of a transaction: it counts once that is committed
    producer_id:long
    producer_epoch:int
""",
)
# Groups of every kind: classic (key type 2), consumer (3 to 8, 16), share (9 to 15), streams (17 to 23).
GROUP_METADATA = declared(
    "group_metadata",
    LOG_KEY,
    """
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
    protocol_type:string of a classic group: `consumer`, or what else its members are
    protocol:string of a classic group: assignor that its members agreed on
    generation:int generation of a classic group, epoch of the others
    leader:string of a classic group: member that leads it
    state_timestamp:time of a classic group: when its state changed
    member_ids:strings members that the record names
    group_instance_ids:strings `group.instance.id` of each of them, null where it has none
    client_ids:strings `client.id` of each of them
    regular_expression:string of a consumer group: pattern that its members subscribed to
    value:json every field of the value, as `kafka-dump-log.sh` prints it; addresses and bytes that the client chose \
are null but with `--include-payload`
""",
)
SHARE_GROUP_STATE = declared(
    "share_group_state",
    LOG_KEY,
    """
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
    snapshot_epoch:int number of the snapshot, which an update belongs to
    state_epoch:int epoch of the state, raised when it begins anew
    leader_epoch:int leader epoch of the partition that is read
    start_offset:long what lies before it is settled; -1: not known yet
    delivery_complete_count:int offsets behind `start_offset` that are settled; -1: not known
    create_timestamp:time of a snapshot: when it was made first
    write_timestamp:time of a snapshot: when it was written
    state_batches:json offsets from `start_offset` on that were delivered, with their state and number of deliveries, \
as `kafka-dump-log.sh` prints them
""",
)
REMOTE_LOG_METADATA = declared(
    "remote_log_metadata",
    LOG_KEY,
    """
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
    start_offset:long first offset of the segment
    end_offset:long last offset of the segment
    max_timestamp:time largest timestamp in the segment
    size:long bytes of the segment
    leader_epochs:json leader epochs in the segment, each with its first offset
    txn_index_empty:bool whether the segment has no transaction index
    custom_metadata:binary what the storage plugin keeps with it
""",
)
TOPICS = declared("topics", DIR_KEY, "topic:string its name\ntopic_id:string")
TOPIC_CONFIGS = declared(
    "topic_configs",
    DIR_KEY,
    """
    topic:string the topic
    name:string the setting, such as `retention.ms`
    value:string its value
""",
)
BROKER_CONFIGS = declared(
    "broker_configs",
    DIR_KEY,
    """
    entity:string broker id; empty for the default of all brokers
    name:string the setting
    value:string its value; null where it is withheld, because it may be secret
""",
)
PARTITIONS = declared(
    "partitions",
    DIR_KEY,
    """
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
)
METADATA_HISTORY = declared(
    "metadata_history",
    LOG_KEY,
    """
    offset:long offset of the record; null for what the oldest snapshot says, where the log begins behind it
    timestamp:time when the controller wrote it; of a snapshot, the snapshot's time
    record:string Kafka's name of it, such as PartitionChangeRecord
    version:int version of its schema
    topic_id:string
    leader:int leader behind the change; -1: none; null where it is about no partition
    previous_leader:int leader before the change
    leader_epoch:int leader epoch behind the change
    partition_epoch:int partition epoch behind the change
    isr:ints in-sync replicas behind the change
    previous_isr:ints in-sync replicas before the change
    eligible_leader_replicas:ints eligible leader replicas behind the change (KIP-966)
    previous_elr:ints eligible leader replicas before the change
    last_known_elr:ints those that were eligible before, behind the change
    leader_recovery_state:string RECOVERED or RECOVERING, behind the change
    replicas:ints brokers with a replica, behind the change
    adding_replicas:ints brokers that a reassignment adds
    removing_replicas:ints brokers that a reassignment removes
    node_id:int broker, or with a controller's record the controller, that it is about
    broker_epoch:long epoch that the broker registered with
    fenced:bool whether the broker is fenced behind the change
    in_controlled_shutdown:bool whether the broker is shutting down behind the change
    entity:string whose setting it is: a topic, a broker id, empty for the default of all brokers
    name:string the setting, or the feature
    value:string its value, or the feature's level; null: deleted, or withheld because it may be secret
""",
)
DECODE_ERRORS = declared(
    "decode_errors",
    LOG_KEY,
    """
    file:string
    position:long byte where it begins
    length:long bytes; -1: to the end of the file, or not known
    reason:string code, such as `crc_mismatch`, `truncated`, `bad_compression` or `unreadable`
    detail:string what was found, in words, never payload
""",
)

DECODED: dict[str, pa.Schema] = {
    "batches": BATCHES,
    "records": RECORDS,
    "producer_snapshots": PRODUCER_SNAPSHOTS,
    "aborted_transactions": ABORTED_TRANSACTIONS,
    "index_entries": INDEX_ENTRIES,
    "checkpoints": CHECKPOINTS,
    "transaction_log": TRANSACTION_LOG,
    "offset_commits": OFFSET_COMMITS,
    "group_metadata": GROUP_METADATA,
    "share_group_state": SHARE_GROUP_STATE,
    "remote_log_metadata": REMOTE_LOG_METADATA,
    "topics": TOPICS,
    "topic_configs": TOPIC_CONFIGS,
    "broker_configs": BROKER_CONFIGS,
    "partitions": PARTITIONS,
    "metadata_history": METADATA_HISTORY,
    "decode_errors": DECODE_ERRORS,
}

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
