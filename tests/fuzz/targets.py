"""What reads a mutant of each kind, as far as the audit would take it; each says what must hold of any bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from auditor.base.errors import MIB, REASONS, DecodeError, Limits
from auditor.connectors import schema
from auditor.connectors.codec import indexes, small_files
from auditor.connectors.codec.cluster_metadata import Change, ClusterMetadata, MetadataEntry, decode_control_record
from auditor.connectors.codec.group_topics import OffsetCommitRow, decode_consumer_offsets, decode_share_group_state
from auditor.connectors.codec.indexes import decode_snapshot
from auditor.connectors.codec.records import decode_records, records_of
from auditor.connectors.codec.remote_log_metadata import decode_manifest, decode_remote_log_metadata
from auditor.connectors.codec.segment import Chunk
from auditor.connectors.codec.transaction_log import decode_transaction_log
from auditor.connectors.logdir.internal_rows import InternalRows, row_of
from auditor.connectors.logdir.text_folder import _DumpedLogs
from auditor.connectors.schema import from_rows
from auditor.connectors.tables.rows import batch_rows
from auditor.connectors.text.dump import parse_dump
from auditor.connectors.text.internal_topics import parse_console
from auditor.connectors.text.lines import normalise, sniff
from auditor.facts.coordinator_history import naming
from auditor.replay.internal_readers import CoordinatorReader, OffsetsReader
from tests.internal_tables import same_both_ways
from tests.segments import accounted, batch, chunks, record

LIMITS = Limits(max_batch_bytes=64 * MIB)
MANIFEST_LIMITS = Limits(max_index_entries=10_000)
KEY = (None, 1, "logs", "t", 0)
BASE = 1 << 40  # base offset of the index files


def segment(data: bytes) -> None:
    found = chunks(data, records=True, raw=True, limits=LIMITS)
    assert accounted(found) == len(data)
    for chunk in found:
        assert chunk.summary is not None
        present = 0
        for run in decode_records(chunk.raw or [], chunk.batches, limits=LIMITS, payload=True):
            ends = run.records.key_start + np.maximum(run.records.key_size, 0)
            assert (ends <= len(run.records.payload)).all()
            present += len(run.records.offset)
        assert present == int(chunk.summary.present.sum())
        reported(len(data), [row for _, row in records_of(chunk.raw or [], chunk.batches, file="f", limits=LIMITS)])
        reported(len(data), [*chunk.errors, *chunk.body_errors])
        batch_rows(KEY, "f", chunk.batches)
        collected = InternalRows(("__transaction_state", "__consumer_offsets")[len(data) % 2], LIMITS)
        collected.add("f", chunk)
        assert all(batch.num_rows for _, batch in collected.drain(KEY))


def reported(size: int, errors: Iterable[object]) -> None:
    """Each error has a known reason and lies in the file."""
    for error in errors:
        if isinstance(error, DecodeError):
            assert error.reason in REASONS
            assert 0 <= error.position <= size
            assert -1 <= error.length <= size - error.position


def small(decode: Callable[[bytes, str], tuple[object, list[DecodeError]]]) -> Callable[[bytes], None]:
    """A decoder of a small file."""

    def run(data: bytes) -> None:
        reported(len(data), decode(data, "f")[1])

    return run


def _parts(data: bytes) -> tuple[bytes | None, bytes | None]:
    """Key and value of a record, see :func:`tests.fuzz.seeds.packed`; an empty one is null."""
    size = int.from_bytes(data[:2], "big")
    return data[2 : 2 + size] or None, data[2 + size :] or None


def manifest(data: bytes) -> None:
    says = decode_manifest(data, "f", limits=MANIFEST_LIMITS)
    if isinstance(says, DecodeError):
        reported(len(data), [says])
    else:
        assert len(says.chunks) <= MANIFEST_LIMITS.max_index_entries
        assert all(0 <= part.position <= part.position + part.size for part in says.parts)


def transaction(data: bytes) -> None:
    row, problem = decode_transaction_log(*_parts(data))
    assert problem is None or problem.reason in REASONS
    if row is not None:
        from_rows(schema.DECODED["transaction_log"], KEY, [("f", 0, 0, 0, 0, *row)])


def offsets(data: bytes) -> None:
    row, problem = decode_consumer_offsets(*_parts(data))
    assert problem is None or problem.reason in REASONS
    if isinstance(row, OffsetCommitRow):
        from_rows(schema.DECODED["offset_commits"], KEY, [("f", 0, 0, 0, *row, False, -1, -1)])
    elif row is not None:
        from_rows(schema.DECODED["group_metadata"], KEY, [("f", 0, 0, 0, *row)])


def metadata(data: bytes) -> None:
    key, value = _parts(data)
    changes: list[Change] = []
    state = ClusterMetadata(0, changes.append)
    for offset, control in enumerate((False, True, False)):
        state.log_entry(MetadataEntry("f", 0, len(data), control, offset, 0, key, value))
    state.snapshot_entry(MetadataEntry("f", 0, len(data), False, 0, 0, key, value))
    decode_control_record(key, value)
    from_rows(schema.METADATA_HISTORY, KEY[:3], [row_of(change, None) for change in changes])


def share_state(data: bytes) -> None:
    row, problem = decode_share_group_state(*_parts(data))
    assert problem is None or problem.reason in REASONS
    if row is not None:
        from_rows(schema.DECODED["share_group_state"], KEY, [("f", 0, 0, 0, *row)])


def remote_metadata(data: bytes) -> None:
    row, problem = decode_remote_log_metadata(_parts(data)[1])
    assert problem is None or problem.reason in REASONS
    if row is not None:
        from_rows(schema.DECODED["remote_log_metadata"], KEY, [("f", 0, 0, 0, *row)])


def _log_of(data: bytes) -> list[Chunk]:
    """A log in which a record comes in three batches, as the readers of internal topics get it."""
    one = record(0, *_parts(data))
    return chunks(b"".join(batch(one, 1, base_offset=offset) for offset in range(3)), keep_bytes=True, limits=LIMITS)


def transactions_read(data: bytes) -> None:
    same_both_ways("__transaction_state", batch(record(0, *_parts(data)), 1))
    reader = CoordinatorReader(0, LIMITS)
    for chunk in _log_of(data):
        reported(1 << 32, reader.take("f", chunk))
    reported(1 << 32, reader.errors())
    log = reader.finish()
    entries = [entry for code in range(log.id_count) for entry in log.entries_of(code)]
    assert len(entries) == log.count
    for name in {name for entry in entries for name in list(entry.partitions)[:2]}:
        named = naming([(log, np.ones(log.id_count, bool))], name)
        for row in range(len(named.rows)):
            assert named.window(row).producer_id == named.rows["producer_id"][row]


def offsets_read(data: bytes) -> None:
    same_both_ways("__consumer_offsets", batch(record(0, *_parts(data)), 1), payload=len(data) % 2 == 0)
    reader = OffsetsReader(0, LIMITS)
    for chunk in _log_of(data):
        reported(1 << 32, reader.take("f", chunk))
    reported(1 << 32, reader.errors())
    reader.finish()


def dump(data: bytes) -> None:
    sniff(data)
    text = normalise(data)
    reported(len(text), parse_dump(text, "f").errors)
    gathered = _DumpedLogs()
    gathered.dump(text, "f")
    gathered.replicas()


def console(data: bytes) -> None:
    sniff(data)
    text = normalise(data)
    reported(len(text), parse_console(text, "f").errors)
    gathered = _DumpedLogs()
    gathered.console(text, "f")
    for replica in gathered.replicas():
        for table, rows in replica.rows.items():
            from_rows(schema.DECODED[table], KEY, rows)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "segment": segment,
    "index": small(lambda data, file: indexes.decode_offset_index(data, BASE, file)),
    "timeindex": small(lambda data, file: indexes.decode_time_index(data, BASE, file)),
    "txnindex": small(indexes.decode_txn_index),
    "snapshot": small(decode_snapshot),
    "rsm-manifest": manifest,
    "__transaction_state": transaction,
    "__consumer_offsets": offsets,
    "__cluster_metadata": metadata,
    "__share_group_state": share_state,
    "__remote_log_metadata": remote_metadata,
    "transactions as read": transactions_read,
    "offsets as read": offsets_read,
    "dump": dump,
    "console": console,
    "meta.properties": small(small_files.decode_meta_properties),
    "server.properties": small(small_files.decode_properties),
    "partition.metadata": small(small_files.decode_partition_metadata),
    "leader-epoch-checkpoint": small(small_files.decode_leader_epochs),
    "quorum-state": small(small_files.decode_quorum_state),
    "replication-offset-checkpoint": small(small_files.decode_offset_checkpoint),
    "recovery-point-offset-checkpoint": small(small_files.decode_offset_checkpoint),
    "log-start-offset-checkpoint": small(small_files.decode_offset_checkpoint),
    "cleaner-offset-checkpoint": small(small_files.decode_offset_checkpoint),
}
