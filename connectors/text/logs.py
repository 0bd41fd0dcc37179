"""What a folder of text dumps shows of each log: the counterpart of a partition folder, as far as text goes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from auditor.base.errors import DecodeError
from auditor.connectors import names
from auditor.connectors.codec.batch_columns import BatchColumns
from auditor.connectors.codec.index import AbortedTransactions, OffsetIndex, TimeIndex
from auditor.connectors.codec.snapshot import ProducerEntries


class TextSegment(NamedTuple):
    """One segment. ``file`` is ``folder/name`` as its banner says, else the dump's name; ``sources`` are the dumps.

    ``base_offset`` is the number in its name, else its first batch's. ``cannot_show``: columns unknown or guessed in
    some row. ``errors`` report bytes that the tool could not read. ``cut``: the text ends before the segment does, as
    far as can be seen.
    """

    file: str
    sources: tuple[str, ...]
    base_offset: int
    batches: BatchColumns
    cannot_show: frozenset[str] = frozenset()
    errors: tuple[DecodeError, ...] = ()
    cut: bool = False


class TextSnapshot(NamedTuple):
    """One producer snapshot; ``offset`` is the number in its name. A ``last_timestamp`` of -1 was not shown."""

    file: str
    offset: int
    entries: ProducerEntries


class TextIndex(NamedTuple):
    """One index beside a segment."""

    file: str
    base_offset: int
    entries: AbortedTransactions | OffsetIndex | TimeIndex


@dataclass(slots=True)
class TextReplica:
    """One log as the dumps of a folder show it. Topic and partition are None where nothing shows them.

    ``rows``: table (transaction_log, offset_commits, group_metadata) to rows of its columns after the log's key, as
    the binary reader gives them; what text cannot show is None. A console dump shows no offsets: rows of one id or
    group are in order, others need not be. ``unreadable``: records that the tool showed and no reader understands.
    """

    topic: str | None
    partition: int | None
    segments: list[TextSegment] = field(default_factory=list)
    snapshots: list[TextSnapshot] = field(default_factory=list)
    indexes: list[TextIndex] = field(default_factory=list)
    rows: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    unreadable: list[DecodeError] = field(default_factory=list)

    @property
    def ends_early(self) -> bool:
        """Whether the log is known to go on behind what the dumps show: a cut dump, or a snapshot beyond it."""
        ends = [
            int(segment.batches.last_offset[-1]) + 1 for segment in self.segments if len(segment.batches.last_offset)
        ]
        beyond = any(snapshot.offset > max(ends) for snapshot in self.snapshots) if ends else False
        return beyond or any(segment.cut for segment in self.segments)

    @property
    def cannot_show(self) -> list[str]:
        """The columns of ``batches`` that are unknown or guessed somewhere in this replica."""
        return sorted(frozenset().union(*(segment.cannot_show for segment in self.segments)))


class Origin(NamedTuple):
    """The file that a dump is of: its log (None: unknown), its path as ``folder/name``, and what its name says."""

    topic: str | None
    partition: int | None
    kind: str  # live, or why the folder is none of a live replica
    file: str
    offset: int


_INTERNAL = re.compile(r"(__transaction_state|__consumer_offsets|__cluster_metadata)-([0-9]{1,10})")
_ENDINGS = re.compile(r"(?:\.(?:txt|log|out|dump|text|snapshots?|txnindex|index|timeindex))+$")
_LOG = re.compile(r"([a-zA-Z0-9._-]{1,249})-([0-9]{1,10})")
_OFFSET = re.compile(r"(?<![0-9])[0-9]{20}(?![0-9])")


def origin(path: str | None, dump: str) -> Origin:
    """Where a dump comes from: by the path in its banner, else by its own name (``...<topic>-<partition>...txt``)."""
    parts = re.split(r"[/\\]", path or "")
    folder = names.partition_folder(parts[-2]) if len(parts) > 1 else None
    says = names.data_name(parts[-1])
    found = _OFFSET.search(dump)
    offset = says.offset if says else int(found[0]) if found and path is None else -1
    if folder:
        return Origin(folder.topic, folder.partition, folder.kind, "/".join(parts[-2:]), offset)
    topic, partition = _by_name(dump.rpartition("/")[2])
    return Origin(topic, partition, "live", dump, offset)


def _by_name(dump: str) -> tuple[str | None, int | None]:
    """Topic and partition by the name of a dump."""
    stem = _OFFSET.sub("", _ENDINGS.sub("", dump)).rstrip("._-")
    found = _INTERNAL.search(dump) or _LOG.fullmatch(stem)
    if not found or int(found[2]) > 0x7FFFFFFF:
        return None, None
    return found[1], int(found[2])
