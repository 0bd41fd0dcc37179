"""The options of the Spark data sources, and which files a query reads."""

from __future__ import annotations

import contextlib
import itertools
import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from operator import and_, eq, ge, gt, le, lt
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from auditor.base.at_rest import Fields, Values
from auditor.base.errors import DEFAULT_LIMITS, AuditInputError, DecodeError, Limits, setting_number
from auditor.base.user_input import Scope, since_of
from auditor.connectors.codec import batches as walking
from auditor.connectors.codec.batches import FLAW_CRC
from auditor.connectors.codec.gaps import SeekableFile, offset_range
from auditor.connectors.codec.segment import HeaderHop, StoredChunks, read_segment
from auditor.connectors.logdir.files import DataFile, Inventory, LogDir, Replica
from auditor.connectors.schema import BATCHES, LOG_KEY, CopyShares, Key
from auditor.connectors.stores.retries import REFUSED
from auditor.connectors.stores.storage import open_file
from auditor.connectors.tables import input_splits as logdir_scope
from auditor.connectors.tables.rows import BY_HEADER, FilePiece, How, Piece, chosen, read_piece

FAR = 1 << 62
# The tables of segments, which readStream supports.
STREAMED = (
    "batches",
    "records",
    "transaction_log",
    "offset_commits",
    "group_metadata",
    "share_group_state",
    "remote_log_metadata",
)


NO_PATH = (
    "no path was given; give it to load(), or several as a JSON list in the option paths. In SQL, Spark passes no "
    "options of CREATE TABLE: use CREATE TEMPORARY VIEW t USING ... OPTIONS (path '...'), or FROM t WITH ('path'='...')"
)


@dataclass(frozen=True)
class ReadOptions:
    """Options of a reader; ``split_size`` in bytes, ``refused``: files not to open by path, and why.

    ``offsets``: the first and the last offset of segments to read.
    """

    paths: list[str]
    scope: Scope
    split_size: int
    how: How
    refused: dict[str, str]
    offsets: tuple[int, int] = (0, FAR)


def asked(given: Mapping[str, str]) -> ReadOptions:
    """Parse the options of a reader, in any case. Errors: :class:`AuditInputError` for an invalid one, or no path."""
    options = {name.lower(): value for name, value in given.items()}
    paths = options.get("paths") or options.get("path")
    if not paths:
        raise AuditInputError(NO_PATH)
    since = options.get("since")
    scope = Scope(
        tuple(map(str, _several(options, "topics"))),
        tuple(map(str, _several(options, "partitions"))),
        tuple(_numbers(options, "brokers")),
        None if since is None else since_of(since),
    )
    return ReadOptions(
        json.loads(paths) if "paths" in options else [paths],
        scope,
        _number(options, "splitSize", 128 << 20, 1 << 16),
        how_of(given),
        json.loads(options.get("refused", "{}")),
        (_number(options, "fromOffset", 0, 0), _number(options, "toOffset", FAR, 0)),
    )


def inventory_of(given: Mapping[str, str]) -> Inventory | None:
    """The inventory of the paths, if the auditor has listed them already (option ``inventory``).

    Errors: :class:`AuditInputError` for any other text.
    """
    text = {name.lower(): value for name, value in given.items()}.get("inventory", "")
    return logdir_scope.loads(text) if text else None


def copy_shares(given: Mapping[str, str], inventory: Inventory) -> CopyShares | None:
    """What each copy of a log counts for: as an audit decided it (option ``shares``); else known of single copies.

    Errors: :class:`AuditInputError` for any other text.
    """
    text = {name.lower(): value for name, value in given.items()}.get("shares", "")
    try:
        if text:
            return {(d, t, p): (bool(leads), [(a, b) for a, b in of]) for d, t, p, leads, of in json.loads(text)}
    except (ValueError, TypeError):
        raise AuditInputError("option shares is not one that the auditor made; leave it out") from None
    logs = [(d.join_key, c.topic, c.partition) for d in inventory.log_dirs for c in d.replicas]
    texts = sum(bool(d.texts) for d in inventory.log_dirs)
    return {} if len(set(logs)) == len(logs) and texts < 2 else None


def shares_in(pieces: Sequence[Piece], shares: CopyShares | None) -> CopyShares | None:
    """Those of the log directories of some pieces."""
    if not shares:
        return shares
    dirs = {piece.key[2] for piece in pieces}
    return {place: share for place, share in shares.items() if place[0] in dirs}


def streamed(table: str, given: Mapping[str, str]) -> None:
    """Raise :class:`AuditInputError` for invalid options, or a table without a streaming form."""
    asked(given)
    if table not in STREAMED:
        raise AuditInputError(f"{table} cannot be streamed: expected one of {', '.join(STREAMED)}")


def fails(given: Mapping[str, str]) -> bool:
    """Whether a stream fails if data was deleted before it was read: the option ``failOnDataLoss``."""
    return _flag({"failondataloss": "true", **{name.lower(): value for name, value in given.items()}}, "failOnDataLoss")


def how_of(given: Mapping[str, str]) -> How:
    """Parse the options on how files are read, in any case. Errors: :class:`AuditInputError`."""
    options = {name.lower(): value for name, value in given.items()}
    limits = DEFAULT_LIMITS._replace(
        max_batch_bytes=_number(options, "maxBatchBytes", DEFAULT_LIMITS.max_batch_bytes, 1 << 10),
        max_batch_ratio=_number(options, "maxBatchRatio", DEFAULT_LIMITS.max_batch_ratio, 1),
    )
    return How(limits, _flag(options, "includePayload"), _flag(options, "deep"))


def columns_of(given: Mapping[str, str]) -> tuple[str, ...]:
    """The requested columns, empty for all. Errors: :class:`AuditInputError`."""
    return tuple(map(str, _several({name.lower(): value for name, value in given.items()}, "columns")))


def _several(options: Mapping[str, str], name: str) -> list[object]:
    # A JSON list, or a single value.
    text = options.get(name, "[]")
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    return value if isinstance(value, list) else [value]


def _numbers(options: Mapping[str, str], name: str) -> list[int]:
    values = _several(options, name)
    numbers = [one for one in values if isinstance(one, int)]
    if len(numbers) < len(values):
        raise AuditInputError(f"option {name} is {options[name]!r}; give a JSON list of whole numbers")
    return numbers


def _flag(options: Mapping[str, str], name: str) -> bool:
    return str(options.get(name.lower(), "false")).lower() == "true"


def _number(options: Mapping[str, str], name: str, default: int, least: int) -> int:
    text = str(options.get(name.lower(), default))
    number = setting_number(text, least)
    if number is None:
        raise AuditInputError(f"option {name} is {text!r}; give a whole number of at least {least}")
    return number


# What the conditions of a query exclude: whole files by values common to all of their rows, and rows.
#
# Spark applies every condition again, so that an unsupported one only costs time. Conditions are recognised by name:
# the oldest supported Spark has none of these classes.


_COMPARED: dict[str, Callable[[Any, Any], pc.Expression]] = {
    "EqualTo": eq,
    "EqualNullSafe": lambda column, value: column.is_null() if value is None else pc.coalesce(column == value, False),
    "GreaterThan": gt,
    "GreaterThanOrEqual": ge,
    "LessThan": lt,
    "LessThanOrEqual": le,
    "In": pc.Expression.isin,
    "StringStartsWith": pc.starts_with,
    "StringEndsWith": pc.ends_with,
    "StringContains": pc.match_substring,
    "IsNull": lambda column, _: column.is_null(),
    "IsNotNull": lambda column, _: column.is_valid(),
}
UNFIT = (pa.ArrowException, TypeError, ValueError, AttributeError, KeyError)  # of a condition that Arrow does not have


def _expression(condition: Any) -> pc.Expression:
    # Of one of Spark's conditions (pyspark.sql.datasource.Filter).
    name = type(condition).__name__
    if name == "Not":
        return ~_expression(condition.child)
    (column,) = condition.attribute
    return _COMPARED[name](pc.field(column), getattr(condition, "value", None))


def where(conditions: Sequence[Any], columns: pa.Schema) -> pc.Expression | None:
    """What Spark's conditions say of rows of these columns: no row is excluded that fulfils them; None for nothing."""
    known = []
    for condition in conditions:
        with contextlib.suppress(*UNFIT):
            one = _expression(condition)
            columns.empty_table().filter(one)
            known.append(one)
    return reduce(and_, known) if known else None


def by_header(table: str, conditions: Sequence[Any]) -> pc.Expression | None:
    """What they say of the batches whose rows a table has; None for nothing."""
    return where(conditions, chosen(BATCHES, BY_HEADER[table])) if table in BY_HEADER else None


def file_filter(conditions: Sequence[Any], first: int, last: int) -> Callable[[FilePiece], bool]:
    """Select files that may have rows for which all ``conditions`` hold, and by their names offsets from ``first`` to
    ``last``; the last segment of a log may have any from its base on."""

    @cache
    def has_rows(key: Key) -> bool:
        known = {field: [value] for field, value in zip(LOG_KEY, key, strict=True) if value is not None}
        row = pa.table([*known.values()], schema=pa.schema([*known]))
        asked = where(conditions, row.schema)
        return asked is None or row.filter(asked).num_rows > 0

    def selected(piece: FilePiece) -> bool:
        starts, behind = piece.file.offset, piece.next_base
        return not (starts >= 0 and (starts > last or 0 <= behind <= first)) and has_rows(piece.key)

    return selected


# The streaming form of the data sources.
#
# A log only grows at its end, so progress is one number, the offset after the last batch read. Brokers may roll,
# delete, or compact segments meanwhile, but batches keep their offsets. File and position only show where to continue.


GONE = (
    "{}: offsets {} to {} were deleted before they were read; read more often, or go on without them by the option "
    "failOnDataLoss=false"
)

UNREAD = "{}: its partition.metadata, which says whose log it is, cannot be read now; start the query again"

_HEADER = struct.Struct(">qiibIhi")  # of a batch, up to lastOffsetDelta


class End(NamedTuple):
    """Where reading a log ended: the offset after its last batch, and its place in its newest segment: the byte after
    that batch (``position``) and its first byte (``last``, -1 if the segment had none)."""

    offset: int
    file: str
    position: int
    last: int = -1


# By the directory of each replica and its topic's id, as in Spark's checkpoint.
Ends = Mapping[str, Values]


class Lot(NamedTuple):
    """A part of a file, of which the batches with offsets in ``[first, behind)`` are read."""

    piece: FilePiece
    first: int
    behind: int


def _logs(
    inventory: Inventory, wanted: Callable[[Replica], bool]
) -> tuple[dict[str, tuple[LogDir, Replica]], frozenset[str]]:
    # By the key that Ends use; also the directories of those whose topic id cannot be read now, so that they match no
    # known log.
    logs, unread = {}, set()
    failed = {(folder, error.file) for folder, error in inventory.errors if error.reason in ("unreadable", "vanished")}
    for log_dir in inventory.log_dirs:
        for replica in log_dir.replicas:
            if wanted(replica):
                where = log_dir.place.child(replica.folder).shown
                if (log_dir.name, f"{replica.folder}/partition.metadata") in failed:
                    unread.add(where)
                else:
                    logs[f"{where} {replica.topic_id or ''}".rstrip()] = log_dir, replica
    return logs, frozenset(unread)


def ends(inventory: Inventory, given: Ends, wanted: Callable[[Replica], bool], limits: Limits) -> Fields:
    """The current end of each log, not before those ``given``. ``wanted``: which replicas count.

    Cost: data appended to each newest segment is walked, checksums included; without a given end, all of it.
    """
    offsets = dict(given)
    for key, (log_dir, replica) in _logs(inventory, wanted)[0].items():
        before = End(**given[key]) if key in given else None
        end = _end(log_dir, replica, before, limits)
        if end is not None and (before is None or end.offset > before.offset):
            offsets[key] = end._asdict()
    return offsets


def _end(log_dir: LogDir, replica: Replica, before: End | None, limits: Limits) -> End | None:
    # None if the newest segment cannot be read now.
    if not replica.segments:
        return None
    segment = replica.segments[-1]
    f = open_file(segment.place or log_dir.place, segment.name)
    if isinstance(f, DecodeError):
        return None
    least, below = offset_range(segment.base_offset)
    end = End(max(least, 0), segment.name, 0)
    with contextlib.closing(f):
        if before is not None and before.file == segment.name and _goes_on(f, before, segment.size):
            end = before
        try:
            hop = HeaderHop(f, segment.size, limits, end.position, (end.offset, below))
            hopped = hop.chunks() if not isinstance(f, StoredChunks) else iter(())
            for rows in itertools.chain(hopped, _walked(f, segment.size, segment.name, hop, below, limits)):
                if len(rows):
                    last = rows[-1]
                    position, size = int(last[walking.POSITION]), int(last[walking.SIZE])
                    end = End(int(last[walking.LAST_OFFSET]) + 1, segment.name, position + size, position)
        except REFUSED:
            return None
    return end


def _walked(f: SeekableFile, size: int, name: str, hop: HeaderHop, below: int, limits: Limits) -> Iterator[Any]:
    # Without trailing batches whose bytes are not all written yet.
    if hop.end == size:
        return
    for chunk in read_segment(f, size, file=name, start=hop.end, limits=limits, offsets=(hop.next_offset, below)):
        sound = (chunk.rows[:, walking.FLAWS] & FLAW_CRC == 0).nonzero()[0]
        yield chunk.rows[: sound[-1] + 1] if len(sound) else chunk.rows[:0]


def _goes_on(f: SeekableFile, before: End, size: int) -> bool:
    # Whether the last batch is still at its place: not in a file that was compacted, or truncated and rewritten.
    if isinstance(f, StoredChunks) or before.position > size:
        return False
    if before.last < 0:
        return before.position == 0
    header = bytearray(_HEADER.size)
    try:
        f.seek(before.last)
        if (f.readinto(memoryview(header)) or 0) < len(header):
            return False
    except OSError:
        return False
    offset, length, _, magic, _, _, delta = _HEADER.unpack(header)
    ends = offset + (delta if magic > 1 else 0) + 1
    return bool(ends == before.offset and before.last + walking.OVERHEAD + length == before.position)


def lots(
    inventory: Inventory, start: Ends, end: Ends, wanted: Callable[[Replica], bool], fail_on_loss: bool = True
) -> Iterator[Lot]:
    """The data between two ends. Errors: ``AuditInputError`` if some of it was already deleted, unless ``fail_on_loss``
    is off."""
    logs, unread = _logs(inventory, wanted)
    for key, says in end.items():
        until, before = End(**says), End(**start[key]) if key in start else None
        if before is not None and until.offset <= before.offset:
            continue
        if key not in logs and key.rpartition(" ")[0] in unread:
            raise AuditInputError(UNREAD.format(key))
        log_dir, replica = logs.get(key, (None, None))
        first = replica.segments[0].base_offset if replica is not None and replica.segments else until.offset
        read = before.offset if before is not None else first if replica is not None else 0
        if fail_on_loss and first > read:
            raise AuditInputError(GONE.format(key, read, first - 1))
        if log_dir is not None and replica is not None:
            yield from _of_replica(log_dir, replica, before, until)


def _of_replica(log_dir: LogDir, replica: Replica, before: End | None, until: End) -> Iterator[Lot]:
    key = (log_dir.cluster_id, log_dir.broker_id, log_dir.name, replica.topic, replica.partition)
    first = 0 if before is None else before.offset
    behind = [segment.base_offset for segment in replica.segments[1:]] + [-1]
    for segment, next_base in zip(replica.segments, behind, strict=True):
        if segment.base_offset >= until.offset or 0 <= next_base <= first:
            continue
        where = segment.place or log_dir.place
        start = before.position if before is not None and before.file == segment.name else 0
        begins = -1
        if start and before is not None and not isinstance(f := open_file(where, segment.name), DecodeError):
            with contextlib.closing(f):
                begins = before.offset if _goes_on(f, before, segment.size) else -1
        stop = until.position if segment.name == until.file and begins >= 0 else None
        file = DataFile(segment.name, segment.size, "log", segment.base_offset, segment.place)
        piece = FilePiece(where, key, file, start if begins >= 0 else 0, stop, next_base, begins)
        yield Lot(piece, first, until.offset)


def rows(lot: Lot, table: str, how: How) -> Iterator[pa.RecordBatch]:
    """The rows of a lot for a table. Errors: ``AuditInputError`` if its file has vanished: it is then planned again, or
    reported as lost."""
    file, column = lot.piece.file, "base_offset" if table == "batches" else "offset"
    opened = open_file(lot.piece.place, file.name)
    if isinstance(opened, DecodeError):
        raise AuditInputError(f"{file.name} is gone or cannot be read ({opened.detail}) since it was listed")
    opened.close()
    for _table, batch in read_piece(lot.piece, frozenset({table}), how):
        offsets = batch.column(column)
        own = pc.and_(pc.greater_equal(offsets, lot.first), pc.less(offsets, lot.behind))
        yield how.asked(table, batch.filter(own), None)
