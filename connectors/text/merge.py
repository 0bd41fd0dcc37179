"""Several dumps of one log are one replica: put together what each shows. Contract section 1."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from typing import NamedTuple

import numpy as np

from auditor.base.at_rest import Fields
from auditor.connectors.codec.batch_columns import BatchColumns
from auditor.connectors.codec.consumer_offsets import GroupMetadataRow, OffsetCommitRow
from auditor.connectors.codec.transaction_log import TransactionLogRow
from auditor.connectors.text.checked_rows import Row
from auditor.connectors.text.logs import TextSegment

_UNKNOWN = -1
_FILLED = ("control_type", "coordinator_epoch", "partition_leader_epoch", "producer_epoch", "size", "crc")


class Printed(NamedTuple):
    """A row as one dump shows it. ``head``: file, position, offset, record timestamp; ``batch``: leader epoch, whether
    transactional, producer id and epoch. What is not shown is None.
    """

    partition: int | None
    head: tuple[str, int, int | None, int | None]
    batch: tuple[int | None, bool | None, int | None, int | None]
    row: Row


def merge_segments(shown: Iterable[TextSegment]) -> list[TextSegment]:
    """One segment for each base offset, ascending. The dump that goes furthest counts; others fill in what it lacks."""
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
    """The last offset shown, -1 for none."""
    return int(segment.batches.last_offset[-1]) if len(segment.batches.last_offset) else -1


def _fill(best: BatchColumns, other: BatchColumns) -> BatchColumns:
    """``best`` with its unknown fields from the same batches of ``other``, and the batches ``other`` has before."""
    mine = {key: row for row, key in enumerate(zip(best.position.tolist(), best.base_offset.tolist(), strict=True))}
    theirs = list(zip(other.position.tolist(), other.base_offset.tolist(), strict=True))
    pairs = [(mine[key], row) for row, key in enumerate(theirs) if key in mine]
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

    Records are the same when they say the same of the same id and are as many-th to do so. The dump that shows most
    of an id gives the order; records with offsets come in theirs.
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
    """The records of one id."""
    shown = sorted(shown, key=lambda items: (-len(items), items[0].head[2] is None))
    result = list(shown[0])
    places: dict[Hashable, list[int]] = defaultdict(list)
    for place, item in enumerate(result):
        places[_said(item.row)].append(place)
    for items in shown[1:]:
        seen: dict[Hashable, int] = defaultdict(int)
        for item in items:
            said = _said(item.row)
            if seen[said] < len(places[said]):
                place = places[said][seen[said]]
                result[place] = _both(result[place], item)
            else:
                places[said].append(len(result))
                result.append(item)
            seen[said] += 1
    return result


def _both(first: Printed, second: Printed) -> Printed:
    """One record from two prints of it; where it stands is known from the print that shows its offset."""
    if first.head[2] is None and second.head[2] is not None:
        first, second = second, first
    fields: Fields = {name: value for name, value in second.row._asdict().items() if getattr(first.row, name) is None}
    partition = second.partition if first.partition is None else first.partition
    batch = tuple(b if a is None else a for a, b in zip(first.batch, second.batch, strict=True))
    return Printed(partition, first.head, batch, first.row._replace(**fields))  # type: ignore[arg-type]


def _owner(row: Row) -> Hashable:
    """Whose records are in order among themselves."""
    if isinstance(row, TransactionLogRow):
        return row.transactional_id
    if isinstance(row, OffsetCommitRow):
        return row.group_id, row.consumed_topic, row.consumed_partition
    return row.group_id


def _said(row: Row) -> Hashable:
    """What any print of a record shows of it."""
    if isinstance(row, TransactionLogRow):
        state = row.producer_id, row.producer_epoch, row.status, row.last_update_timestamp
        return row.tombstone, state, tuple(sorted(row.partitions or ()))
    if isinstance(row, OffsetCommitRow):
        return row.tombstone, row.committed_offset
    assert isinstance(row, GroupMetadataRow)
    return row.key_type, row.tombstone, row.generation
