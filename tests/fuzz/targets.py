"""What reads a mutant of each kind, as far as the audit would take it; each says what must hold of any bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from auditor.base.errors import REASONS, DecodeError
from auditor.base.limits import MIB, Limits
from auditor.connectors import schema
from auditor.connectors.arrow import from_rows
from auditor.connectors.batch_rows import batch_rows
from auditor.connectors.codec import checkpoint, index, text_lines
from auditor.connectors.codec.cluster_metadata import ClusterMetadata, MetadataEntry
from auditor.connectors.codec.consumer_offsets import OffsetCommitRow, decode_consumer_offsets
from auditor.connectors.codec.metadata_records import decode_control_record
from auditor.connectors.codec.records import decode_records, records_of
from auditor.connectors.codec.snapshot import decode_snapshot
from auditor.connectors.codec.transaction_log import decode_transaction_log
from auditor.connectors.internal_rows import InternalRows
from auditor.connectors.text.console import parse_console
from auditor.connectors.text.dump import parse_dump
from auditor.connectors.text.folder import _Gathered
from auditor.connectors.text.sniff import normalise, sniff
from tests.segments import accounted, chunks

LIMITS = Limits(max_batch_bytes=64 * MIB)
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
    state = ClusterMetadata()
    for offset, control in enumerate((False, True, False)):
        state.log_entry(MetadataEntry("f", 0, len(data), control, offset, 0, key, value))
    state.snapshot_entry(MetadataEntry("f", 0, len(data), False, 0, 0, key, value))
    decode_control_record(key, value)


def dump(data: bytes) -> None:
    sniff(data)
    text = normalise(data)
    reported(len(text), parse_dump(text, "f").errors)
    gathered = _Gathered()
    gathered.dump(text, "f")
    gathered.copies()


def console(data: bytes) -> None:
    sniff(data)
    text = normalise(data)
    reported(len(text), parse_console(text, "f").errors)
    gathered = _Gathered()
    gathered.console(text, "f")
    for copy in gathered.copies():
        for table, rows in copy.rows.items():
            from_rows(schema.DECODED[table], KEY, rows)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "segment": segment,
    "index": small(lambda data, file: index.decode_offset_index(data, BASE, file)),
    "timeindex": small(lambda data, file: index.decode_time_index(data, BASE, file)),
    "txnindex": small(index.decode_txn_index),
    "snapshot": small(decode_snapshot),
    "__transaction_state": transaction,
    "__consumer_offsets": offsets,
    "__cluster_metadata": metadata,
    "dump": dump,
    "console": console,
    "meta.properties": small(checkpoint.decode_meta_properties),
    "server.properties": small(text_lines.decode_properties),
    "partition.metadata": small(checkpoint.decode_partition_metadata),
    "leader-epoch-checkpoint": small(checkpoint.decode_leader_epochs),
    "quorum-state": small(checkpoint.decode_quorum_state),
    "replication-offset-checkpoint": small(checkpoint.decode_offset_checkpoint),
    "recovery-point-offset-checkpoint": small(checkpoint.decode_offset_checkpoint),
    "log-start-offset-checkpoint": small(checkpoint.decode_offset_checkpoint),
    "cleaner-offset-checkpoint": small(checkpoint.decode_offset_checkpoint),
}
