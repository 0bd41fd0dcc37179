"""The checks of each table that relate rows to each other and to other tables, and the SQL that counts violations.

What a column alone may hold is declared with its table (:meth:`DeclaredTable.may_be`); the suites take it from there. A
check is a condition on a row in SQL common to Spark and DuckDB, true where the row violates it; columns that identify a
row; or a condition on all rows of a key. Rows are joined by equal columns with other tables, whose columns get a prefix,
and with ``logs``, the replicas as the audit read them: decoding and reading come to their numbers each by itself. The
counts are views with one row per log, which the suites judge. Cost: one pass over a table, with one sort where a check
needs the previous row, and a hash join per other table.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from auditor.base.errors import RECORD_AT, UNREAD, VENDOR
from auditor.connectors.schema import COMPRESSION_NAMES, LOGS, RECOVERY_STATES, TRANSACTION_STATES
from auditor.model.transaction_states import COMPLETION_OF, NEVER_WRITTEN, STATES_BY_ID

FRESH_MS = 24 * 3_600_000
LOG, DIR = ("log_dir", "topic", "partition"), ("log_dir",)
DUCKDB, SPARK = "duckdb", "spark"
DIALECTS = (DUCKDB, SPARK)


@dataclass(frozen=True, slots=True)
class Check:
    """A check of a table: SQL that is true for a violating row; ``unique``: columns that no two rows share; ``of_all``:
    SQL over all rows of a key."""

    name: str
    says: str
    broken: str
    how: str = "row"
    severity: str = "critical"
    mostly: float = 1.0  # the part of the logs that has to keep it


@dataclass(frozen=True, slots=True)
class Measure:
    """The checks of a table, counted by ``key``; ``before``: columns of the previous row, by ``within``, in
    ``order``. ``joins``: a line per other table: prefix, table, columns that are equal (its own=the other's), columns."""

    checks: tuple[Check, ...]
    key: tuple[str, ...] = LOG
    before: tuple[str, ...] = ()
    within: tuple[str, ...] = LOG
    order: tuple[str, ...] = ("file", "position")
    joins: str = ""


def _checks(text: str) -> tuple[Check, ...]:
    # A line each: name | what is expected | condition, with "unique:" or "all:" before it | the part of the logs that
    # has to keep it, if not all | severity, if not critical.
    out = []
    for line in filter(None, text.splitlines()):
        name, says, broken, *severity = (part.strip() for part in line.split(" | "))
        how, _, rest = broken.partition(": ")
        own = (how, rest) if how in ("unique", "all") else ("row", broken)
        mostly = float(severity.pop(0)) if severity and severity[0][0].isdigit() else 1.0
        out.append(Check(name, says, own[1], own[0], *(severity or ["critical"]), mostly))
    return tuple(out)


def _in(column: str, names: object) -> str:
    # True for a value that is none of these.
    return f"{column} NOT IN ({', '.join(repr(str(name)) for name in names)})"  # type: ignore[attr-defined]


# After compaction any state may follow another, except for states that are never written.
_STATES = [str(state) for state in STATES_BY_ID if state not in NEVER_WRITTEN]
_JUMP = " OR ".join(f"(state = '{s}' AND {_in('before_state', (str(p), str(s)))})" for p, s in COMPLETION_OF.items())
_NUMBER = " ".join(f"WHEN '{state}' THEN {number}" for number, state in enumerate(TRANSACTION_STATES))
_OUTCOMES, CLASSES = ("COMMIT", "ABORT"), ("active", "late", "hanging", "orphan", "ghost", "undecidable")
PARTITION = ("leader", "leader_epoch", "partition_epoch", "replicas", "isr", "adding_replicas", "removing_replicas",
             "eligible_leader_replicas", "last_known_elr", "leader_recovery_state")  # fmt: skip
_COMMITS = ("PrepareCommit", "CompleteCommit")
_UNKNOWN = ("unreadable", "missing", "remote", "left_out", "not_reached")
UNREAD_OFFSETS = " + ".join(f"coalesce(offsets_{name}, 0)" for name in _UNKNOWN)
# As errors.is_unread
_LISTED = ", ".join(repr(reason) for reason in sorted(UNREAD))
_UNREAD = f"(reason IN ({_LISTED}) OR (reason = 'unknown_key_type' AND detail LIKE '{RECORD_AT}%'))"
_ISR = """
isr_no_replica | in-sync replicas are replicas | size(array_except(isr, replicas)) > 0
leader_no_replica | leaders are replicas | leader >= 0 AND NOT array_contains(replicas, leader)
eligible_in_sync | eligible leader replicas are replicas outside the ISR | size(array_except(eligible_leader_replicas, \
array_except(replicas, isr))) > 0
"""
# Records of an internal topic, each in a batch of its log
_IN_BATCH = """
outside_batch | every record is in its batch | (offset IS NOT NULL AND b_there IS NULL) OR (b_there AND (offset IS NULL \
OR offset < b_base_offset OR offset > b_last_offset))
timestamp_outside | no record is newer than its batch | b_there AND (record_timestamp IS NULL OR \
record_timestamp > b_max_timestamp)
versioned | tombstones alone have no version | tombstone <> (value_version IS NULL)
duplicate_offsets | no two records have one offset | unique: offset, file, position
"""
_BATCH = """b batches file, position: base_offset, last_offset, max_timestamp, is_transactional, producer_id, \
producer_epoch, partition_leader_epoch
n batches : records = sum(record_count) WHERE NOT is_control"""
_ALL_RECORDS = "all: max(l_unread) = 0 AND count(present){} < max(n_records) AND max(topic) = '{}'"

MEASURES = {
    "batches": Measure(
        _checks("""
crc_wrong | every batch has the CRC that it says | NOT crc_ok
offsets_not_increasing | base offsets increase through each log | base_offset <= before_last_offset
last_before_base | no batch ends before it begins | last_offset < base_offset
duplicate_offsets | no two batches of a log have one base offset | unique: base_offset
control_unknown | control batches alone have a type that Kafka has | is_control <> (control_type IS NOT NULL) AND record_count > 0 OR \
control_type = 'UNKNOWN'
transaction_without_producer | every transactional batch has a producer | is_transactional AND (producer_id < 0 OR \
producer_epoch < 0)
half_a_producer | a producer has an epoch | producer_id >= 0 AND producer_epoch < 0
sequence_span | sequence numbers span what offsets do | base_sequence >= 0 AND \
last_sequence <> (base_sequence + last_offset - base_offset) % 2147483648
not_contiguous | batches follow each other in a segment | position <> before_position + before_size AND file = before_file
more_records_than_offsets | a batch has no more records than offsets | record_count > last_offset - base_offset + 1
times_upside_down | no batch is newer at its first record than at its newest | (record_count > 0 AND \
(base_timestamp IS NULL) <> (max_timestamp IS NULL)) OR (base_timestamp > max_timestamp AND delete_horizon IS NULL AND \
l_compacted = 0 AND timestamp_type = 'CreateTime') OR delete_horizon <> base_timestamp
marker_without_coordinator | markers alone have a coordinator's epoch | (coordinator_epoch >= 0) <> \
(coalesce(control_type, '') IN ('COMMIT', 'ABORT'))
epoch_unknown | leader epochs are those of the checkpoint | k_epochs > 0 AND e_there IS NULL AND \
partition_leader_epoch >= 0 AND topic <> '__cluster_metadata' | warning
batches_off | there are as many batches as were read | all: count(present) <> coalesce(max(l_batches), 0)
records_off | there are as many records as were read | all: coalesce(sum(record_count), 0) <> coalesce(max(l_records), 0)
bytes_off | batches have no more bytes than were decoded | all: sum(size) > max(l_bytes_decoded)
ends_elsewhere | a log ends behind its last batch | all: max(l_unread) = 0 AND max(last_offset) + 1 <> max(l_log_end)
"""),
        before=("last_offset", "position", "size", "file"),
        joins="""e checkpoints partition_leader_epoch = leader_epoch: WHERE kind = 'leader-epoch'
k checkpoints : epochs = count(*) WHERE kind = 'leader-epoch'""",
    ),
    "records": Measure(
        _checks("""
flawed | every record keeps its format's rules (KIP-467) | flaws <> 0
outside_batch | every record is in its batch | (b_there IS NULL OR base_offset <> b_base_offset OR \
offset < base_offset OR offset > b_last_offset)
offsets_not_increasing | offsets increase through each log | offset <= before_offset
duplicate_offsets | no two records of a log have one offset | unique: offset
not_contiguous | records follow each other in a batch | l_compacted = 0 AND CASE WHEN position = before_position THEN \
record_index <> before_record_index + 1 ELSE record_index <> 0 END
of_another | a record has its batch's producer, sequence and kind | producer_id <> b_producer_id OR \
producer_epoch <> b_producer_epoch OR is_control <> b_is_control OR (b_base_sequence >= 0 AND \
sequence <> (b_base_sequence + offset - base_offset) % 2147483648)
timestamp_outside | no record is newer than its batch | timestamp > b_max_timestamp OR \
(timestamp IS NULL) <> (b_max_timestamp IS NULL)
too_large | an uncompressed record fits into its batch | b_record_count = 1 AND b_magic = 2 AND b_compression = 'none' AND \
68 + greatest(key_size, 0) + greatest(value_size, 0) + 2 * header_count > b_size
newest_off | the newest record has its batch's timestamp | all: max(timestamp) < max(b_max_timestamp) | warning
records_off | there are as many records as batches declare | all: max(l_unread) = 0 AND \
count(present) <> coalesce(max(l_records), 0)
"""),
        before=("offset", "position", "record_index"), order=("file", "position", "record_index"),
        joins="b batches file, position: base_offset, last_offset, max_timestamp, producer_id, producer_epoch, "
        "base_sequence, is_control, size, magic, compression, record_count",
    ),
    "producer_snapshots": Measure(
        _checks("""
duplicate_producers | a snapshot names a producer once | unique: file, producer_id
beyond_snapshot | a snapshot knows nothing behind its own offset | greatest(last_offset, current_txn_first_offset) >= \
snapshot_offset
other_name | a snapshot is named after its offset | \
TRY_CAST(regexp_extract(file, '([0-9]+)[.]snapshot', 1) AS BIGINT) <> snapshot_offset
ahead_of_log | a snapshot is not ahead of the log | (s_max_epoch >= 0 AND producer_epoch > s_max_epoch) OR (last_offset >= l_log_start AND last_timestamp > n_newest) OR \
(last_timestamp IS NULL AND s_last_timestamp IS NOT NULL) OR \
(s_coordinator_epoch >= 0 AND coordinator_epoch > s_coordinator_epoch)
not_in_log | a producer's last batch is in the log | last_offset >= l_log_start AND l_unread = 0 AND \
((b_there IS NULL AND l_compacted = 0) OR last_sequence <> b_last_sequence OR offset_delta <> last_offset - b_base_offset) | warning
open_not_in_log | what is open in a snapshot is in the log | current_txn_first_offset >= l_log_start AND l_unread = 0 AND \
l_compacted = 0 AND o_there IS NULL | warning
unknown_producer | a snapshot knows the producers of the log | s_there IS NULL
"""),
        joins="""s producer_states producer_id: max_epoch, last_timestamp, coordinator_epoch
n batches : newest = max(max_timestamp)
b batches producer_id, last_offset: base_offset, last_sequence WHERE NOT is_control
o transaction_partitions producer_id, current_txn_first_offset = first_offset:""",
    ),
    "aborted_transactions": Measure(
        _checks("""
upside_down | no transaction ends before it begins | last_offset < first_offset
not_ascending | an index lists markers as they were written | last_offset <= before_last_offset
not_contiguous | entries follow each other in the index | position <> coalesce(before_position + 34, 0)
not_in_log | the log has the transactions that its index lists | last_offset >= l_log_start AND l_unread = 0 AND \
(m_there IS NULL OR m_outcome <> 'ABORT' OR (l_compacted = 0 AND (m_first_offset <> first_offset OR \
m_last_stable_offset <> last_stable_offset))) | warning
"""),
        before=("last_offset", "position"), within=(*LOG, "file"),
        joins="m transaction_partitions producer_id, last_offset = marker_offset: first_offset, last_stable_offset, outcome",
    ),
    "index_entries": Measure(
        _checks("""
offsets_not_ascending | offsets ascend through each index | offset < before_offset
positions_not_ascending | positions ascend through each offset index | log_position < before_log_position
times_not_ascending | times ascend through each time index | timestamp < before_timestamp
not_contiguous | entries follow each other in the index | position <> coalesce(before_position + CASE kind \
WHEN 'offset' THEN 8 ELSE 12 END, 0)
half_an_entry | an offset index has positions, a time index times | (kind = 'offset') <> (log_position IS NOT NULL) OR \
(kind = 'time') <> (timestamp IS NOT NULL)
no_batch | an offset index leads to batches | l_unread = 0 AND kind = 'offset' AND \
coalesce(b_position, c_position, -1) <> log_position | warning
newer_than_log | no time index is newer than its log | timestamp > n_newest
no_entries | a log of some size has an index | all: count(present) = 0 AND max(l_bytes_decoded) > 16384 | warning
"""),
        before=("offset", "log_position", "timestamp", "position"), within=(*LOG, "file"),
        joins="""b batches offset = last_offset: position
c batches offset = base_offset: position
n batches : newest = max(max_timestamp)""",
    ),
    "checkpoints": Measure(
        _checks("""
other_broker | rows have the cluster and the broker of their log | l_there AND (cluster_id IS DISTINCT FROM l_cluster_id \
OR broker_id IS DISTINCT FROM l_broker_id)
named_twice | a checkpoint names a log once | unique: kind, leader_epoch
epochs_not_ascending | leader epochs and their start offsets ascend together | kind = 'leader-epoch' AND \
offset < before_offset
half_an_epoch | leader epochs alone have a number | (kind = 'leader-epoch') <> (leader_epoch IS NOT NULL)
behind_end | no checkpoint is behind the end of its log | l_unread = 0 AND offset > greatest(l_log_end, l_high_watermark) | warning
high_watermark_off | high watermarks are those that were read | kind = 'high-watermark' AND offset <> l_high_watermark
epoch_ahead | no leader epoch is ahead of the cluster's metadata | leader_epoch > p_leader_epoch
no_high_watermark | a log with a high watermark has it in a checkpoint | all: max(l_high_watermark) IS NOT NULL AND \
coalesce(count_if(kind = 'high-watermark'), 0) = 0
"""),
        before=("offset",), within=(*LOG, "file", "kind"), order=("leader_epoch",),
        joins="p* partitions topic, partition: leader_epoch = max(leader_epoch)",
    ),
    "transaction_log": Measure(
        _checks(f"""{_IN_BATCH}
state_never_written | states are those that a coordinator writes | NOT tombstone AND (state IS NULL OR \
{_in('state', _STATES)}) OR status <> CASE state {_NUMBER} END
completed_unprepared | no transaction completes otherwise than it was prepared | {_JUMP} | warning
half_a_record | records but tombstones have all that a coordinator writes | tombstone <> (producer_id IS NULL) OR \
tombstone <> (producer_epoch IS NULL) OR tombstone <> (timeout_ms IS NULL) OR tombstone <> (status IS NULL) OR \
tombstone <> (last_update_timestamp IS NULL) OR tombstone <> (partitions_null IS NULL)
open_without_partitions | open transactions have partitions and a start | state IN ('Ongoing', 'PrepareCommit', \
'PrepareAbort') AND (coalesce(size(partitions), 0) = 0 OR start_timestamp IS NULL)
times_upside_down | what is recorded was before its record | unix_millis(start_timestamp) > \
unix_millis(last_update_timestamp) + 43200000 OR unix_millis(last_update_timestamp) > unix_millis(record_timestamp) + 43200000
other_epoch | a record has the leader epoch of its batch | leader_epoch <> b_partition_leader_epoch OR (b_there AND \
leader_epoch IS NULL)
no_transaction | what is ongoing is a transaction | state = 'Ongoing' AND cluster_id IS NOT NULL AND \
(t_there IS NULL OR t_timeout_ms < timeout_ms)
records_missing | there are as many records as batches declare | {_ALL_RECORDS.format('', '__transaction_state')}
"""),
        before=("state",), within=(*LOG, "transactional_id"), order=("offset", "file", "position"),
        joins=f"""{_BATCH}
t* transactions transactional_id, producer_id, producer_epoch: timeout_ms = max(timeout_ms)""",
    ),
    "offset_commits": Measure(
        _checks(f"""{_IN_BATCH}
half_a_commit | commits but tombstones have an offset and a time | tombstone <> (committed_offset IS NULL) OR \
tombstone <> (leader_epoch IS NULL) OR tombstone <> (commit_timestamp IS NULL)
of_another | a commit has the producer of its batch | is_transactional <> b_is_transactional OR \
producer_id <> b_producer_id OR producer_epoch <> b_producer_epoch
committed_later | no commit is newer than its record | unix_millis(commit_timestamp) > unix_millis(record_timestamp) + 43200000
beyond_end | no committed offset is beyond the end | committed_offset > e_log_end | warning
epoch_ahead | no leader epoch is ahead of the cluster's metadata | leader_epoch > p_leader_epoch
partition_unknown | what is consumed is a partition of the cluster | s_there AND p_there IS NULL | warning
other_topic | a commit has the id of its topic | topic_id <> s_topic_id
records_missing | there are as many records as batches declare | {_ALL_RECORDS.format(' + coalesce(max(g_others), 0)',
                                                                                '__consumer_offsets')}
"""),
        joins=f"""{_BATCH}
g group_metadata : others = count(*)
e* logs consumed_topic = topic, consumed_partition = partition: log_end = max(log_end)
p* partitions consumed_topic = topic, consumed_partition = partition: leader_epoch = max(leader_epoch)
s* topics consumed_topic = topic: topic_id = max(topic_id)""",
    ),
    "group_metadata": Measure(
        _checks(f"""{_IN_BATCH}
generation_negative | generations are -1 or more, for a static member that left -2 | generation < -2
half_a_group | classic groups have a protocol type, a time and members | key_type = 2 AND NOT tombstone AND \
(protocol_type IS NULL OR generation IS NULL OR member_ids IS NULL OR client_ids IS NULL OR group_instance_ids IS NULL)
other_kind | kinds and their numbers agree | (kind = 'GroupMetadata') <> (key_type = 2)
no_value | records but tombstones have a value | tombstone <> (value IS NULL)
members_differ | each member has a client | size(client_ids) <> size(member_ids) OR size(group_instance_ids) <> size(member_ids)
state_later | no state is newer than its record | unix_millis(state_timestamp) > unix_millis(record_timestamp) + 43200000
"""),
        joins=_BATCH,
    ),
    "share_group_state": Measure(
        _checks(f"""{_IN_BATCH}
half_a_snapshot | records but tombstones have a state | NOT tombstone AND (snapshot_epoch IS NULL OR leader_epoch IS NULL \
OR start_offset IS NULL OR state_batches IS NULL OR delivery_complete_count IS NULL)
snapshot_times | snapshots have times that do not lie behind their record | (NOT tombstone AND key_type = 0 AND \
(create_timestamp IS NULL OR write_timestamp IS NULL OR state_epoch IS NULL)) OR create_timestamp > write_timestamp OR \
unix_millis(write_timestamp) > unix_millis(record_timestamp) + 43200000
other_kind | kinds and their numbers agree | kind <> CASE key_type WHEN 0 THEN 'ShareSnapshot' ELSE 'ShareUpdate' END
epoch_ahead | no leader epoch is ahead of the cluster's metadata | leader_epoch > p_leader_epoch
partition_unknown | what is read is a partition of the cluster | s_there AND p_there IS NULL | warning
beyond_end | no start is beyond the end | start_offset + delivery_complete_count > e_log_end
records_missing | there are as many records as batches declare | {_ALL_RECORDS.format('', '__share_group_state')}
"""),
        joins=f"""{_BATCH}
s* topics topic_id: name = max(topic)
p* partitions topic_id, consumed_partition = partition: leader_epoch = max(leader_epoch)
e* logs s_name = topic, consumed_partition = partition: log_end = max(log_end)""",
    ),
    "remote_log_metadata": Measure(
        _checks(f"""{_IN_BATCH.replace('tombstone <> ', '')}
upside_down | no segment ends before it begins | end_offset < start_offset
half_a_segment | what is copied has offsets, bytes and epochs | kind = 'RemoteLogSegmentMetadataRecord' AND \
(start_offset IS NULL OR end_offset IS NULL OR size IS NULL OR max_timestamp IS NULL OR leader_epochs IS NULL OR \
txn_index_empty IS NULL)
in_the_future | no event is newer than its record | unix_millis(event_timestamp) > unix_millis(record_timestamp) + 43200000
partition_unknown | what is copied is a partition of the cluster | s_there AND p_there IS NULL
other_topic | a segment has the id of its topic | topic_id <> s_topic_id | warning
records_missing | there are as many records as batches declare | {_ALL_RECORDS.format('', '__remote_log_metadata')}
"""),
        joins=f"""{_BATCH}
p* partitions tiered_topic = topic, tiered_partition = partition: leader_epoch = max(leader_epoch)
s* topics tiered_topic = topic: topic_id = max(topic_id)""",
    ),
    "topics": Measure(
        _checks("""
duplicate_topics | a topic exists once | unique: topic
duplicate_ids | no two topics have one id | unique: topic_id
no_partitions | a topic has partitions, under its id | (p_there IS NULL OR topic_id <> p_topic_id)
not_recorded | the metadata records each topic | h_there IS NULL
"""),
        key=DIR,
        joins="""p partitions topic: topic_id = max(topic_id)
h metadata_history topic, topic_id: changes = count(*)""",
    ),
    "topic_configs": Measure(
        _checks("""
set_twice | a setting has one value | unique: topic, name
not_recorded | the last record of a setting has its value | (h_there IS NULL OR value IS DISTINCT FROM h_value)
"""),
        key=DIR,
        joins="h metadata_history topic, name: value = max_by(value, coalesce(offset, -1)) WHERE record = 'ConfigRecord'",
    ),
    "broker_configs": Measure(
        _checks("""
set_twice | a setting has one value | unique: entity, name
not_recorded | the last record of a setting has its value | h_there AND value IS DISTINCT FROM h_value
"""),
        key=DIR,
        joins="h metadata_history entity, name: value = max_by(value, coalesce(offset, -1)) WHERE record = 'ConfigRecord' "
        "AND topic IS NULL",
    ),
    "partitions": Measure(
        _checks(f"""{_ISR}
duplicate_partitions | a partition exists once | unique: topic, partition
no_replicas | every partition has replicas | size(replicas) = 0
numbers_missing | partitions of a topic are numbered from 0 | partition >= n_partitions
no_topic | a partition is of a topic | (t_there IS NULL OR topic_id <> t_topic_id)
not_recorded | the last change of a partition left it as it is | (h_there IS NULL OR \
{' OR '.join(f"{name} IS DISTINCT FROM h_{name}" for name in PARTITION)})
"""),
        key=DIR,
        joins=f"""t topics topic: topic_id
n partitions topic: partitions = count(*)
h metadata_history topic_id, partition: {', '.join(f"{name} = max_by({name}, coalesce(offset, -1))" for name in PARTITION)} \
WHERE leader_epoch IS NOT NULL""",
    ),
    "metadata_history": Measure(
        _checks(f"""{_ISR}
half_a_change | records have what their kind says | (record LIKE 'Partition%') <> (leader_epoch IS NOT NULL) OR \
(record LIKE 'Partition%' AND (leader IS NULL OR topic IS NULL OR partition IS NULL OR topic_id IS NULL)) OR \
(record LIKE '%Broker%') AND (node_id IS NULL OR broker_epoch IS NULL) OR record = 'TopicRecord' AND topic_id IS NULL OR \
record = 'ConfigRecord' AND (entity IS NULL OR name IS NULL)
not_continued | a change begins where the last one ended | record = 'PartitionChangeRecord' AND \
(previous_leader IS DISTINCT FROM before_leader OR previous_isr IS DISTINCT FROM before_isr OR \
previous_elr IS DISTINCT FROM before_eligible_leader_replicas)
epoch_back | partition epochs increase | partition_epoch <= before_partition_epoch OR leader_epoch < before_leader_epoch
no_such_time | changes have the time of their batch | offset IS NOT NULL AND e_unread = 0 AND b_there IS NULL
beyond_end | no change is beyond the end of the log | offset >= e_log_end
not_in_force | settings are in force as recorded | record = 'ConfigRecord' AND topic IS NOT NULL AND t_there AND \
c_there IS NULL AND value IS NOT NULL | warning
"""),
        key=DIR, before=("leader", "isr", "eligible_leader_replicas", "partition_epoch", "leader_epoch"),
        within=("log_dir", "topic_id", "partition"), order=("offset",),
        joins=f"""b batches timestamp = max_timestamp: batches = count(*) WHERE topic = '__cluster_metadata'
e logs : log_end = max(log_end), unread = max({UNREAD_OFFSETS}) WHERE topic = '__cluster_metadata'
t topics topic: topic_id
c topic_configs topic, name: value""",
    ),
    "decode_errors": Measure(
        _checks(f"""
not_read | all of the input was read | {_UNREAD}
not_decoded | all that was read could be decoded | {_in('reason', ('vanished', VENDOR))} AND NOT {_UNREAD} | warning
not_listed | bytes in error are listed | all: max(l_bytes_error) > 0 AND count(present) = 0
""")
    ),
    "producer_states": Measure(
        _checks("""
duplicate_producers | a replica knows a producer once | unique: producer_id
epoch_below_highest | no producer went back to an older epoch | producer_epoch < max_epoch
batches_off | a producer has its batches in the log | l_unread = 0 AND l_log_start <= n_first AND (batches <> coalesce(d_batches, 0) OR \
records <> coalesce(d_records, 0) OR markers <> coalesce(d_markers, 0))
first_off | a producer begins with its first batch | l_unread = 0 AND l_log_start <= n_first AND (first_offset <> coalesce(d_first, -1) OR \
first_sequence <> coalesce(f_base_sequence, -1))
last_off | a producer is where its last batch left it | l_unread = 0 AND l_log_start <= n_first AND (producer_epoch <> d_last_epoch OR \
max_epoch < d_epoch OR last_timestamp IS DISTINCT FROM d_newest AND d_there OR coordinator_epoch <> d_coordinator_epoch OR \
last_offset >= l_log_start AND (b_there IS NULL OR last_sequence <> b_last_sequence OR \
offset_delta <> last_offset - b_base_offset))
epoch_ahead | no epoch is ahead of the log and its snapshots | s_there IS NULL AND max_epoch > d_epoch
open_not_in_log | what is open is a transaction | current_txn_first_offset >= 0 AND o_there IS NULL
other_owner | an id owns a producer in all tables | transactional_id IS NULL AND t_transactional_id IS NOT NULL OR \
transactional_id <> t_transactional_id | warning
seen_later | brokers saw no producer a day after the newest batch | unix_millis(last_seen_by_broker) > \
unix_millis(n_newest) + 43200000 OR \
(markers > 0 AND last_seen_by_broker IS NULL)
expiry_off | a producer expires unless a transaction is open | expires_at <= last_timestamp OR (expires_at IS NOT NULL) <> \
(current_txn_first_offset < 0 AND last_timestamp IS NOT NULL)
producers_off | there are as many producers as were read | all: max(l_log_start) <= max(n_first) AND \
count_if(batches + markers > 0) <> coalesce(max(l_producers), 0)
"""),
        joins="""d batches producer_id: batches = count_if(NOT is_control), records = sum(CASE WHEN is_control THEN 0 \
ELSE record_count END), markers = count_if(is_control), first = min(CASE WHEN NOT is_control THEN base_offset END), \
epoch = max(producer_epoch), last_epoch = max_by(producer_epoch, last_offset), newest = max_by(max_timestamp, last_offset), \
coordinator_epoch = max_by(coordinator_epoch, CASE WHEN is_control THEN last_offset END) WHERE producer_id >= 0
f batches producer_id, first_offset = base_offset: base_sequence
b batches producer_id, last_offset: last_sequence, base_offset WHERE NOT is_control
n batches : newest = max(max_timestamp), first = min(base_offset)
s producer_snapshots producer_id: files = count(*)
o transaction_partitions producer_id, current_txn_first_offset = first_offset: WHERE outcome IS NULL
t* transactions producer_id: transactional_id = max(transactional_id)""",
    ),
    "transaction_partitions": Measure(
        _checks(f"""
outcome_unknown | markers commit or abort, open transactions do not | (outcome IS NULL) <> (marker_offset < 0)
kind_off | kinds are what offsets show | kind <> CASE WHEN marker_offset < 0 THEN 'open' WHEN first_offset < 0 THEN \
'marker_only' ELSE 'closed' END
class_unknown | open transactions have a class | {_in('class', CLASSES)} OR (outcome IS NULL AND leader_copy AND class IS NULL)
upside_down | no transaction ends before it begins | last_offset < first_offset OR (marker_offset >= 0 AND \
marker_offset <= last_offset) OR (first_offset < 0) <> (last_offset < 0) OR last_stable_offset > marker_offset + 1 OR (marker_offset >= 0 AND first_offset >= 0) <> (last_stable_offset >= 0)
stuck | no transaction hangs | class IN ('hanging', 'orphan', 'ghost')
late | no transaction is beyond its time-out | class = 'late' | warning
first_off | the log has a transaction's first batch | l_unread = 0 AND first_offset >= l_log_start AND (b_there IS NULL OR \
first_timestamp IS DISTINCT FROM b_max_timestamp OR file <> b_file OR position <> b_position OR \
producer_epoch <> b_producer_epoch)
last_off | the log has a transaction's last batch | l_unread = 0 AND last_offset >= l_log_start AND (e_there IS NULL OR \
last_timestamp IS DISTINCT FROM e_max_timestamp)
marker_off | the log has a transaction's marker | l_unread = 0 AND marker_offset >= l_log_start AND (m_there IS NULL OR \
outcome <> m_control_type OR marker_timestamp IS DISTINCT FROM m_max_timestamp OR marker_epoch <> m_producer_epoch OR \
coordinator_epoch <> m_coordinator_epoch)
unmarked | what is open has no marker | marker_offset < 0 AND marker_epoch >= 0
not_indexed | what is aborted is in the index | l_unread = 0 AND outcome = 'ABORT' AND batches > 0 AND \
x_there IS NULL | warning
no_transaction | a transaction's partitions are in its row | transaction_key IS NOT NULL AND cluster_id IS NOT NULL AND \
t_there IS NULL
other_owner | an id owns a producer in all tables | transactional_id IS DISTINCT FROM p_transactional_id
began_later | no transaction began half a day after its marker | unix_millis(began_not_before) > \
unix_millis(m_max_timestamp) + 43200000 OR unix_millis(began_not_after) > unix_millis(m_max_timestamp) + 43200000 OR (first_offset >= l_log_start AND l_unread = 0 AND m_there AND leader_copy AND \
began_not_after IS NULL) | warning
markers_off | each marker ends a transaction | all: max(l_unread) = 0 AND count_if(marker_offset >= 0) <> \
coalesce(max(n_markers), 0)
data_off | transactional batches are in transactions | all: max(l_unread) = 0 AND max(l_log_start) = 0 AND \
(coalesce(sum(batches), 0) <> coalesce(max(n_batches), 0) OR sum(records) <> max(n_records) OR sum(size) <> max(n_bytes))
not_blocked | what is open blocks its partition | all: count(class) > 0 AND max(w_blocked) IS NULL
"""),
        joins="""b batches producer_id, first_offset = base_offset: max_timestamp, file, position, producer_epoch
e batches producer_id, last_offset: max_timestamp WHERE NOT is_control
m batches producer_id, marker_offset = base_offset: max_timestamp, coordinator_epoch, producer_epoch, control_type
x aborted_transactions producer_id, marker_offset = last_offset:
p producer_states producer_id: transactional_id
t* transactions transaction_key: outcome
w blocked : blocked = count(*)
n batches : markers = count_if(control_type IN ('COMMIT', 'ABORT')), batches = count_if(is_transactional AND \
NOT is_control), records = sum(CASE WHEN is_transactional AND NOT is_control THEN record_count END), \
bytes = sum(CASE WHEN is_transactional AND NOT is_control THEN size END)""",
    ),
    "transactions": Measure(
        _checks(f"""
duplicate_keys | a producer has one transaction at a time | unique: transaction_key
timed_out | no transaction ran into its time-out | decided_by = 'timeout' | warning
upside_down | no transaction ends before it begins | duration_ms < 0 OR began_not_after < began_not_before OR \
ended_not_after < ended_not_before OR decided_at > ended_not_before OR decided_at < began_not_before | warning
duration_off | durations are between the times | unix_millis(ended_not_after) - unix_millis(began_not_before) <> duration_most_ms \
OR duration_ms <> duration_most_ms OR (state IS NOT NULL AND (duration_ms IS NULL) <> (ended_not_after IS NULL OR \
began_not_after IS NULL) OR (duration_ms IS NULL) <> (duration_most_ms IS NULL)) OR \
(duration_least_ms IS NULL) <> (ended_not_before IS NULL OR began_not_after IS NULL) OR duration_least_ms <> \
greatest(unix_millis(ended_not_before) - unix_millis(began_not_after), CASE WHEN state IS NULL THEN 0 ELSE -86400000 END)
outcome_off | outcomes are those of states | state IN ({', '.join(repr(s) for s in _COMMITS)}) <> (outcome = 'COMMIT') OR \
state IN ('Empty', 'Ongoing') <> (outcome IS NULL) OR (outcome IS NULL) <> (ended_not_before IS NULL)
not_audited | rows are of logs that were audited | topic IS NOT NULL AND (l_there IS NULL OR \
cluster_id IS DISTINCT FROM l_cluster_id OR broker_id IS DISTINCT FROM l_broker_id) OR (topic IS NULL) <> (state IS NULL)
first_off | the coordinator's log has the first record | topic IS NOT NULL AND offset IS NOT NULL AND (f_there IS NULL OR \
producer_id <> f_producer_id OR producer_epoch <> f_producer_epoch OR transactional_id IS DISTINCT FROM f_transactional_id OR \
transaction_key <> concat(producer_id, ':', offset) OR transaction_key IS NULL OR last_offset IS NULL)
last_off | the coordinator's log has the last record | z_there IS NULL AND last_offset IS NOT NULL OR state <> z_state OR \
timeout_ms <> z_timeout_ms OR (z_there AND (timeout_ms IS NULL OR state IS NULL OR began_not_before IS NULL))
undecided | what is decided was decided by somebody | (outcome IS NULL AND decided_by IS NOT NULL) OR \
(state IS NOT NULL AND outcome IS NOT NULL AND offset < last_offset AND (decided_by IS NULL OR decided_at IS NULL))
half_a_row | what has an offset has a state | (offset IS NULL) <> (last_offset IS NULL) OR (last_offset IS NULL) <> (state IS NULL)
unlisted | a transaction lists the partitions that were seen | size(partitions) < partitions_seen OR \
(partitions IS NULL AND partitions_seen > 0 AND offset < last_offset)
partitions_off | a transaction is the sum of its partitions | cluster_id IS NOT NULL AND state IS NOT NULL AND \
(partitions_seen <> coalesce(p_partitions, 0) OR batches <> coalesce(p_batches, 0) OR records <> coalesce(p_records, 0) OR \
bytes <> coalesce(p_bytes, 0))
other_outcome | partitions end as their transaction does | p_outcome <> outcome OR p_producer_id <> producer_id
"""),
        joins="""f transaction_log offset: producer_id, producer_epoch, transactional_id
z transaction_log last_offset = offset: state, timeout_ms
p* transaction_partitions transaction_key: partitions = count(DISTINCT concat(topic, partition)), batches = sum(batches), \
records = sum(records), bytes = sum(size), outcome = max(outcome), producer_id = max(producer_id) WHERE leader_copy""",
    ),
    "events": Measure(
        _checks("""
upside_down | no event ends before it begins | last_offset >= 0 AND last_offset < base_offset
not_in_log | an event is about a batch of the log | base_offset >= 0 AND b_there AND (last_offset <> b_last_offset OR \
position <> b_position OR producer_id <> b_producer_id OR producer_epoch <> b_producer_epoch OR file <> b_file OR \
leader_epoch <> b_partition_leader_epoch OR timestamp IS DISTINCT FROM b_max_timestamp)
no_batch | an event is about an offset of the log | l_unread = 0 AND base_offset >= 0 AND b_there IS NULL
offset_gaps | no log has gaps between offsets | kind = 'offset_hole' AND l_compacted = 0 | 0.99 | warning
overlaps | no log has offsets or sequence numbers twice | kind IN ('offsets_not_increasing', 'sequence_overlap')
sequence_gaps | no producer skips sequence numbers | kind = 'sequence_gap' AND l_compacted = 0 | 0.99 | warning
epoch_regressions | no epoch goes back | kind IN ('epoch_regression', 'marker_epoch_regression', \
'coordinator_epoch_regression', 'leader_epoch_decrease')
"""),
        joins="b batches base_offset: last_offset, position, producer_id, producer_epoch, file, partition_leader_epoch, "
        "max_timestamp",
    ),
    "lag": Measure(
        _checks("""
upside_down | what is left at most is no less than at least | committed_most < committed_records OR \
uncommitted_most < uncommitted_records OR since_not_after < since_not_before
not_audited | rows are of logs that were audited | stands IS NOT NULL AND (l_there IS NULL OR \
cluster_id IS DISTINCT FROM l_cluster_id OR broker_id IS DISTINCT FROM l_broker_id)
other_bounds | a group reads between the bounds of the log | l_unread = 0 AND leader_copy AND (end_offset <> l_log_end OR \
log_start <> l_log_start OR (last_stable_offset <> l_last_stable_offset AND l_high_watermark = l_log_end))
lag_off | lag is the end less the position | offsets <> greatest(end_offset - greatest(coalesce(committed_offset, \
log_start), log_start), 0) | warning
beyond_end | no position is beyond the end | committed_offset > end_offset | warning
records_off | lag is records, markers and gaps | undecided IS NULL AND kind = 'consumer' AND uncommitted_records = uncommitted_most AND \
(uncommitted_records + marker_offsets + missing_offsets <> offsets OR \
committed_records = committed_most AND committed_records + waiting_records + open_records + aborted_records <> uncommitted_records)
bytes_off | records have bytes | committed_bytes > uncommitted_bytes OR uncommitted_bytes > l_bytes_decoded OR \
(uncommitted_records > 0 AND uncommitted_bytes = 0) OR (waiting_records + open_records = 0 AND committed_bytes <> uncommitted_bytes)
half_a_row | a position has all that follows from it | stands IS NOT NULL AND (log_start IS NULL OR \
last_stable_offset IS NULL OR end_offset IS NULL OR offsets IS NULL OR committed_records IS NULL OR \
committed_most IS NULL OR uncommitted_records IS NULL OR uncommitted_most IS NULL OR waiting_records IS NULL OR \
open_records IS NULL OR aborted_records IS NULL OR marker_offsets IS NULL OR missing_offsets IS NULL OR \
committed_bytes IS NULL OR uncommitted_bytes IS NULL) OR l_there AND stands IS NULL OR \
(kind = 'share') <> (settled_records IS NOT NULL AND stands IS NOT NULL) AND stands IS NOT NULL
committed_elsewhere | a group stands where it committed | kind = 'consumer' AND c_there AND (committed_at > c_newest OR \
committed_at IS NULL OR committed_offset <> c_committed_offset OR committed_offset IS NULL)
"""),
        joins="""c* offset_commits group_id, topic = consumed_topic, partition = consumed_partition: \
newest = max(record_timestamp), committed_offset = max_by(committed_offset, offset) WHERE NOT is_transactional""",
    ),
    "space": Measure(
        _checks("""
goes_and_stays | a segment goes or something keeps it | (goes IS NULL) = (kept_by IS NULL)
duplicate_segments | a replica has a segment once | unique: base_offset
future | no segment is kept by a timestamp in the future | kept_by = 'timestamp_in_the_future' | warning
other_name | a segment is named after its offset | TRY_CAST(regexp_extract(file, '([0-9]+)[.]log', 1) AS BIGINT) <> base_offset
bytes_off | a segment is its batches | l_unread = 0 AND size <> coalesce(b_bytes, 0)
newest_off | a segment has its newest batch's time | largest_timestamp IS DISTINCT FROM b_newest | warning
largest_elsewhere | the newest batch is in the segment | largest_offset > b_last OR (largest_offset < base_offset AND \
largest_timestamp IS NOT NULL) OR (g_there AND producer_id <> g_producer_id) OR (largest_offset >= 0 AND g_there IS NULL)
half_a_setting | a setting was set by somebody | (setting IS NULL) <> (setting_by IS NULL)
goes_later | a segment goes when its time is over | abs(unix_millis(goes_at) - unix_millis(largest_timestamp) - \
TRY_CAST(regexp_extract(setting, '^retention.ms=([0-9]+)$', 1) AS BIGINT)) > 3600000
aborted_off | aborted bytes are those of transactions | l_unread = 0 AND aborted_bytes <> coalesce(x_bytes, 0)
segments_off | there are as many segments as files with batches | all: max(l_unread) = 0 AND \
count(DISTINCT CASE WHEN size > 0 THEN file END) <> coalesce(max(n_files), 0) AND max(topic) <> '__cluster_metadata'
active_off | one segment is written | all: count(present) > 0 AND count_if(active) <> 1
"""),
        joins="""b batches file: bytes = sum(size), newest = max(max_timestamp), last = max(last_offset)
g batches largest_offset = last_offset: producer_id
n batches : files = count(DISTINCT file) WHERE regexp_extract(file, '/[0-9]+([.])log$', 1) = '.'
x transaction_partitions file: bytes = sum(size) WHERE outcome = 'ABORT'""",
    ),
    "cleaner": Measure(
        _checks("""
ratio_off | a dirty ratio is cleanable of all bytes | abs(dirty_ratio * (clean_bytes + cleanable_bytes) - \
cleanable_bytes) > 0.01 + 0.001 * cleanable_bytes OR dirty_ratio > 1 OR min_dirty_ratio > 1
faulty | no cleaner has to read a damaged batch | stands = 'faulty'
checkpoint_off | a checkpoint is that of the file | checkpoint IS DISTINCT FROM k_offset
upside_down | cleaning ends behind its begin and in the log | first_uncleanable_offset < first_dirty_offset OR \
first_uncleanable_offset > l_log_end OR (checkpoint >= l_log_start AND checkpoint <= l_log_end AND \
first_dirty_offset <> checkpoint) OR (checkpoint IS NULL AND first_dirty_offset <> l_log_start)
offsets_off | dirty offsets are those to the end | dirty_offsets <> l_log_end - first_dirty_offset
bytes_off | all bytes are clean, cleanable or not | clean_bytes + cleanable_bytes + uncleanable_bytes <> s_bytes OR \
held_bytes > uncleanable_bytes
held_elsewhere | what holds the cleaner is in the log | held_at > l_log_end OR (held_by = 'last_stable_offset' AND \
(held_at IS NULL OR held_at <> l_last_stable_offset)) OR (held_by = 'min_compaction_lag') <> (held_until IS NOT NULL) OR \
(held_at IS NOT NULL AND held_by = 'active_segment') OR (held_bytes > 0 AND held_by IS NULL)
horizons_off | delete horizons are those of batches | horizons <> coalesce(h_horizons, 0) OR \
first_horizon IS DISTINCT FROM h_first
not_listed | compacted topics are listed | all: max(c_policies) > 0 AND count(present) = 0 AND max(s_bytes) > 0
"""),
        joins="""k checkpoints : offset = max(offset) WHERE kind = 'cleaner'
s space : bytes = sum(size)
h batches : horizons = count(delete_horizon), first = min(delete_horizon)
c* topic_configs topic: policies = count(*) WHERE name = 'cleanup.policy' AND value LIKE '%compact%'""",
    ),
    "blocked": Measure(
        _checks("""
blocked | no partition is blocked for longer than is normal | standing IN ('stuck', 'overdue', 'undeliverable') AND NOT accepted
unknown | the status of every transaction is known | standing = 'unknown' | warning
not_in_log | what blocks is an open transaction | first_offset >= l_log_start AND l_unread = 0 AND (o_there IS NULL OR \
producer_epoch <> o_producer_epoch OR last_offset <> o_last_offset OR batches <> o_batches OR records <> o_records OR \
bytes <> o_bytes OR class <> o_class OR transactional_id IS DISTINCT FROM o_transactional_id)
other_bounds | a partition is blocked between its bounds | l_unread = 0 AND (last_stable_offset <> l_last_stable_offset OR \
log_end <> l_log_end OR high_watermark <> l_high_watermark OR readable_end > log_end OR readable_end < first_offset)
half_a_holder | what blocks has offsets and a beginning | l_there AND (first_offset IS NULL OR last_offset IS NULL OR \
batches IS NULL OR records IS NULL OR bytes IS NULL OR log_end IS NULL)
other_timeout | a transaction has its id's time-out | timeout_ms <> t_timeout_ms OR (status <> 'unknown' AND \
timeout_ms IS NULL AND t_timeout_ms IS NOT NULL) OR (beyond_timeout IS NULL) <> (timeout_ms IS NULL OR since IS NULL)
since_off | a partition is blocked since its transaction began | unix_millis(since) < \
unix_millis(since_not_before) - 300000 OR since > since_not_after OR \
since IS NULL AND since_not_before IS NOT NULL OR held_at_least_ms > age_ms
half_a_framework | an application is of a framework | (framework IS NULL) <> (application IS NULL) OR \
(framework IS NULL) <> (framework_certainty IS NULL) OR (framework IS NULL) <> (framework_why IS NULL)
unreported | what is blocked is reported | standing IN ('stuck', 'overdue') AND NOT left_out AND (severity IS NULL OR \
fingerprint IS NULL)
no_advice | what is blocked has advice | advice = '{}' OR remedy IS NULL
"""),
        joins="""o transaction_partitions producer_id, first_offset: producer_epoch, last_offset, batches, records, \
bytes = size, class, transactional_id WHERE outcome IS NULL
t* transactions transactional_id, producer_id: timeout_ms = max(timeout_ms)""",
    ),
    "verdicts": Measure(
        _checks("""
upside_down | no verdict ends before it begins | last_offset < base_offset OR run_last_offset < last_offset
rejected | every policy would have taken what is stored | error <> 'DUPLICATE' | warning
""")
    ),
}  # fmt: skip


# What a column may hold beside what its declaration says, by table and column: one of these values, or in these bounds.
_CONTROL = ("ABORT", "COMMIT", "LEADER_CHANGE", "SNAPSHOT_HEADER", "SNAPSHOT_FOOTER", "KRAFT_VERSION", "KRAFT_VOTERS")
SETS: dict[str, tuple[str, ...]] = {
    "batches.compression": COMPRESSION_NAMES,
    "batches.timestamp_type": ("CreateTime", "LogAppendTime"),
    "batches.control_type": (*_CONTROL, "UNKNOWN"),
    "index_entries.kind": ("offset", "time"),
    "checkpoints.kind": ("recovery-point", "high-watermark", "log-start", "cleaner", "leader-epoch"),
    "transaction_log.state": tuple(_STATES),
    "partitions.leader_recovery_state": RECOVERY_STATES,
    "metadata_history.leader_recovery_state": RECOVERY_STATES,
    "transaction_partitions.outcome": _OUTCOMES,
    "transaction_partitions.class": CLASSES,
    "transaction_partitions.kind": ("closed", "open", "marker_only"),
    "transactions.state": tuple(_STATES),
    "transactions.outcome": _OUTCOMES,
    "lag.kind": ("consumer", "share"),
    "space.goes": ("log_start_offset", "retention_bytes", "retention_ms"),
    "space.setting_by": ("topic", "broker", "default"),
    "cleaner.stands": ("held", "faulty", "due", "below_ratio", "clean", "off"),
    "blocked.status": ("open", "overdue", "hanging", "prepared", "completed", "unknown"),
    "blocked.class": CLASSES,
}
LIMITS: dict[str, tuple[float, float]] = {
    "batches.magic": (0, 2),
    "batches.crc": (0, (1 << 32) - 1),
    "aborted_transactions.version": (0, 0),
    "transaction_log.value_version": (0, 1),
    "transaction_log.status": (0, 7),
    "offset_commits.value_version": (0, 4),
    "group_metadata.key_type": (2, 23),
    "group_metadata.generation": (-2, 1 << 31),
    "transactions.duration_least_ms": (-FRESH_MS, 1 << 62),  # brokers' clocks may be set
    "transactions.duration_ms": (-FRESH_MS, 1 << 62),
    "transactions.duration_most_ms": (-FRESH_MS, 1 << 62),
    "share_group_state.key_type": (0, 1),
    "metadata_history.version": (0, 9),
    "cleaner.dirty_ratio": (0, 1),
    "cleaner.min_dirty_ratio": (0, 1),
}

# Functions of Spark's SQL that DuckDB names otherwise, so that one text works for both
MACROS = {
    "size(x)": "len(x)",
    "array_except(a, b)": "list_filter(a, lambda x: NOT list_contains(b, x))",
    "unix_millis(t)": "epoch_ms(t)",
    "get_json_object(text, path)": "json_extract_string(text, path)",
}
AUDITED = Check(
    "not_audited",
    "rows are of logs that were audited",
    "l_there IS NULL OR cluster_id IS DISTINCT FROM l_cluster_id OR broker_id IS DISTINCT FROM l_broker_id",
)
ELSEWHERE = ("decode_errors", "transactions", "verdicts", "lag", "checkpoints")  # tables with rows of logs that were not audited


def checks(table: str) -> tuple[Check, ...]:
    """Return all checks of a table."""
    return MEASURES[table].checks if table in ELSEWHERE else (AUDITED, *MEASURES[table].checks)


def counting(table: str, dialect: str) -> str:
    """Return the SQL that counts how many rows of a table violate each check, a row per key."""
    wanted = MEASURES[table]
    key, quote = ", ".join(wanted.key), '"' if dialect == DUCKDB else "`"
    window = f"PARTITION BY {', '.join(wanted.within)} ORDER BY {', '.join(f'{c} NULLS FIRST' for c in wanted.order)}"
    before = "".join(f", lag({name}) OVER ({window}) AS before_{name}" for name in wanted.before)
    counts = [f"max(coalesce({name}, l_{name})) AS {name}" for name in ("cluster_id", "broker_id")]
    counts += [key, "count(present) AS rows", *(f"{_count(check, dialect)} AS {check.name}" for check in checks(table))]
    joined = "".join(f"\nLEFT JOIN {_join(line, wanted.key)}" for line in wanted.joins.splitlines())
    text = (
        f"SELECT {f',{chr(10)}  '.join(counts)}\nFROM (SELECT *, TRUE AS present{before} FROM {table})\n"
        f"FULL JOIN ({_logs(wanted.key)}) USING ({key}){joined}\nGROUP BY {key} ORDER BY {key}"
    )
    return re.sub(r"(?<!')\boffset\b(?!')", f"{quote}offset{quote}", text)  # the one column that is a keyword


def _count(check: Check, dialect: str) -> str:
    if check.how == "all":
        return f"CAST(coalesce({check.broken}, FALSE) AS BIGINT)"
    if check.how == "row":
        return f"CAST(count_if(present AND ({check.broken})) AS BIGINT)"
    names = check.broken.split(", ")
    fields = "struct_pack({})" if dialect == DUCKDB else "struct({})"
    row = fields.format(", ".join(f"{n} := {n}" if dialect == DUCKDB else n for n in names))
    unique = row if len(names) > 1 else names[0]  # a null is not known, and repeats nothing
    return f"count({unique}) - count(DISTINCT {unique})"


def _logs(key: tuple[str, ...]) -> str:
    if key == DIR:
        return (
            "SELECT log_dir, max(cluster_id) AS l_cluster_id, max(broker_id) AS l_broker_id, TRUE AS l_there "
            "FROM logs GROUP BY log_dir"
        )
    columns = ", ".join(f"{name} AS l_{name}" for name in LOGS.names if name not in (*key, "offsets_compacted"))
    return f"SELECT {', '.join(key)}, {columns}, {UNREAD_OFFSETS} AS l_unread, offsets_compacted AS l_compacted, TRUE AS l_there FROM logs"


def _join(line: str, key: tuple[str, ...]) -> str:
    # A table by equal columns: those of the key, or of the cluster alone for a prefix that ends with "*".
    about, _, wanted = line.partition(":")
    wanted, _, where = wanted.partition("WHERE")
    prefix, table, equal = [*about.split(" ", 2), ""][:3]
    pairs = [(own.strip(), (other or own).strip()) for own, _, other in (e.partition("=") for e in equal.split(",") if e.strip())]
    own_key = ["cluster_id"] if prefix.endswith("*") else [name for name in key if name not in dict(pairs)]
    name = prefix.rstrip("*")
    columns = [c.partition(" = ") for c in re.split(r", (?=\w+(?: = |, |$))", wanted.strip()) if c]
    taken = [f"{of or column} AS {name}_{column}" for column, _, of in columns]
    using, source = [*own_key, *(own for own, _ in pairs)], [*own_key, *(other for _, other in pairs)]
    shown = [of if own == of else f"{of} AS {own}" for own, of in zip(using, source, strict=True)]
    grouped = f" GROUP BY {', '.join(source)}" if not columns or any("(" in of for _, _, of in columns) else ""
    text = f"SELECT {', '.join([*shown, *taken, f'TRUE AS {name}_there'])} FROM {table}"
    return f"({text}{' WHERE ' + where.strip() if where else ''}{grouped}) AS {name} USING ({', '.join(using)})"
