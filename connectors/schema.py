"""The decoded tables: their columns in order, as Arrow schemas; what Parquet, SQL or ``auditor decode`` show.

Every log-level table begins with :data:`LOG_KEY`. Times are UTC timestamps in milliseconds, sizes are bytes, offsets
and sequences are as Kafka stores them (-1 where there is none). Contract section 4.
"""

from __future__ import annotations

import pyarrow as pa

TIME = pa.timestamp("ms", tz="UTC")
JSON = {b"json": b"object"}  # metadata of a column of text that is JSON already

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


def _table(key: list[pa.Field], text: str) -> pa.Schema:
    """A schema from ``name:type`` words after the key's columns."""
    types = {
        "string": pa.string(), "long": pa.int64(), "int": pa.int32(), "short": pa.int16(), "bool": pa.bool_(),
        "time": TIME, "ints": pa.list_(pa.int32()), "strings": pa.list_(pa.string()), "binary": pa.binary(),
        "json": pa.string(),
    }  # fmt: skip
    words = (word.split(":") for word in text.split())
    fields = [pa.field(name, types[kind], metadata=JSON if kind == "json" else None) for name, kind in words]
    return pa.schema([*key, *fields])


BATCHES = _table(
    LOG_KEY,
    "file:string position:long size:long magic:int base_offset:long last_offset:long record_count:long "
    "partition_leader_epoch:int crc:long crc_ok:bool compression:string timestamp_type:string base_timestamp:time "
    "max_timestamp:time is_transactional:bool is_control:bool control_type:string coordinator_epoch:int "
    "producer_id:long producer_epoch:int base_sequence:int last_sequence:int delete_horizon:time flaws:int",
)
RECORDS = _table(
    LOG_KEY,
    "file:string position:long base_offset:long record_index:int offset:long timestamp:time key_size:int "
    "value_size:int header_count:int producer_id:long producer_epoch:int sequence:int is_control:bool flaws:int",
)
PAYLOAD = [pa.field("key", pa.binary()), pa.field("value", pa.binary())]  # only with --include-payload

PRODUCER_SNAPSHOTS = _table(
    LOG_KEY,
    "file:string snapshot_offset:long producer_id:long producer_epoch:int last_sequence:int last_offset:long "
    "offset_delta:int last_timestamp:time coordinator_epoch:int current_txn_first_offset:long",
)
ABORTED_TRANSACTIONS = _table(
    LOG_KEY,
    "file:string position:long version:int producer_id:long first_offset:long last_offset:long last_stable_offset:long",
)
INDEX_ENTRIES = _table(  # kind: offset, time
    LOG_KEY, "file:string position:long kind:string offset:long log_position:long timestamp:time"
)
CHECKPOINTS = _table(  # kind: recovery-point, high-watermark, log-start, cleaner, leader-epoch
    LOG_KEY, "file:string kind:string offset:long leader_epoch:int"
)
# One row a record of __transaction_state. state is null and tombstone true for a null value; status is the stored
# number, also where it is none that exists. offset, record_timestamp, leader_epoch are null in console text.
TRANSACTION_LOG = _table(
    LOG_KEY,
    "file:string position:long offset:long record_timestamp:time leader_epoch:int transactional_id:string "
    "tombstone:bool value_version:int producer_id:long producer_epoch:int timeout_ms:int status:int state:string "
    "partitions:strings partitions_null:bool last_update_timestamp:time start_timestamp:time previous_producer_id:long "
    "next_producer_id:long client_transaction_version:int next_producer_epoch:int",
)
# consumed_topic, consumed_partition: what the group reads; topic_id: of it, since 4.1; metadata, which the client
# chose, only with --include-payload.
OFFSET_COMMITS = _table(
    LOG_KEY,
    "file:string position:long offset:long record_timestamp:time group_id:string consumed_topic:string "
    "consumed_partition:int tombstone:bool value_version:int committed_offset:long leader_epoch:int "
    "commit_timestamp:time expire_timestamp:time topic_id:string metadata:string is_transactional:bool "
    "producer_id:long producer_epoch:int",
)
# Groups of every kind: classic (key type 2), consumer (3 to 8, 16), share (9 to 15), streams (17 to 23), their key type
# by name in kind, their epoch as generation. value: every field of the record's value as JSON, as kafka-dump-log.sh
# prints it; addresses and bytes that the client chose are null there but with --include-payload.
GROUP_METADATA = _table(
    LOG_KEY,
    "file:string position:long offset:long record_timestamp:time group_id:string key_type:int kind:string "
    "tombstone:bool value_version:int protocol_type:string protocol:string generation:int leader:string "
    "state_timestamp:time member_ids:strings group_instance_ids:strings client_ids:strings regular_expression:string "
    "value:json",
)
# One row a record of __share_group_state. kind: ShareSnapshot, or ShareUpdate of one. state_batches: JSON, the offsets
# from start_offset on that were delivered, as kafka-dump-log.sh prints them.
SHARE_GROUP_STATE = _table(
    LOG_KEY,
    "file:string position:long offset:long record_timestamp:time group_id:string topic_id:string "
    "consumed_partition:int key_type:int kind:string tombstone:bool value_version:int snapshot_epoch:int "
    "state_epoch:int leader_epoch:int start_offset:long delivery_complete_count:int create_timestamp:time "
    "write_timestamp:time state_batches:json",
)
# One row a record of __remote_log_metadata: what was copied to and deleted from the remote storage of tiered topics.
REMOTE_LOG_METADATA = _table(
    LOG_KEY,
    "file:string position:long offset:long record_timestamp:time key_type:int kind:string value_version:int "
    "tiered_topic:string tiered_partition:int topic_id:string segment_id:string state:string state_number:int "
    "event_broker_id:int event_timestamp:time start_offset:long end_offset:long max_timestamp:time size:long "
    "leader_epochs:json txn_index_empty:bool custom_metadata:binary",
)
TOPICS = _table(DIR_KEY, "topic:string topic_id:string")
TOPIC_CONFIGS = _table(DIR_KEY, "topic:string name:string value:string")
BROKER_CONFIGS = _table(DIR_KEY, "entity:string name:string value:string")  # entity: broker id, or "" for the default
# leader_recovery_state: RECOVERED, or RECOVERING after an unclean election until the leader has seen to it.
PARTITIONS = _table(
    DIR_KEY,
    "topic:string partition:int topic_id:string replicas:ints isr:ints leader:int leader_epoch:int partition_epoch:int "
    "adding_replicas:ints removing_replicas:ints eligible_leader_replicas:ints last_known_elr:ints "
    "leader_recovery_state:string",
)
# One row a change that __cluster_metadata records; of a partition its state behind the change, and before it the
# leader, ISR and ELR. record: Kafka's name of it. offset is null in what the oldest snapshot says, where the log
# begins behind it. topic: of a setting's, too. node_id: a broker, or with a controller's record a controller. entity:
# whose setting it is (a broker's id, "" for the default of all); name and value: a setting (null value: deleted, or
# withheld), or a feature and its level.
METADATA_HISTORY = _table(
    LOG_KEY,
    "offset:long timestamp:time record:string version:int topic_id:string leader:int previous_leader:int "
    "leader_epoch:int partition_epoch:int isr:ints previous_isr:ints eligible_leader_replicas:ints "
    "previous_elr:ints last_known_elr:ints leader_recovery_state:string replicas:ints adding_replicas:ints "
    "removing_replicas:ints node_id:int broker_epoch:long fenced:bool in_controlled_shutdown:bool entity:string "
    "name:string value:string",
)
DECODE_ERRORS = _table(LOG_KEY, "file:string position:long length:long reason:string detail:string")

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
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence",
)  # fmt: skip
