"""The records of internal topics, reduced while they pass."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np

from auditor.base.compiled import kernel
from auditor.base.errors import LAST_MS, MIB, DecodeError, Limits
from auditor.connectors.codec import group_topics, transaction_log
from auditor.connectors.codec.batches import CONTROL, TRANSACTIONAL, BatchColumns
from auditor.connectors.codec.records import FULL, Decoded, Interner
from auditor.connectors.codec.segment import Chunk
from auditor.connectors.logdir.internal_rows import (
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
    InternalRows,
    RecordProblems,
    data_runs,
)
from auditor.facts.coordinator_log import COLUMNS, STATES, TOMBSTONE, CoordinatorLog, Dictionaries, build, split
from auditor.facts.offsets import COMMIT_COLUMNS, ShareOffset, WatchedOffsets, in_force
from auditor.facts.packed import PackedColumns
from auditor.facts.replica_facts import ReplicaFacts
from auditor.model.groups import (
    GROUP_RECORDS,
    MOST_BEHIND,
    NO_PRODUCER_ID,
    Assignments,
    CommitReplay,
    Generation,
    GroupPartition,
    OffsetCommit,
)
from auditor.model.offset_watch import Committers, Rivals, Values
from auditor.replay.task import ReplicaTask

# ``__transaction_state``: records are decoded by column and packed.
#
# Memory: some 15 bytes per record, the distinct ids and the distinct sets of partitions, limited by a :class:`Room`
# and :data:`SETS_BYTES`.


DICTIONARY_BYTES = 128 * MIB
SETS_BYTES = 32 * MIB  # 8 a partition of a set: what a rule looks at becomes Python's text, ten times as large
MOST_RECORDS = 16 << 20  # of a replica: a broker's cleaner leaves a hundredth of that
PACKED_BYTES = 256 * MIB  # of them, however odd they are: sound ones take 15 bytes each
# Of all replicas of a run together, which the driver holds.
RECORDS_IN_ALL, PACKED_IN_ALL, TRANSACTION_DICTIONARIES = 256 << 20, 1024 * MIB, 512 * MIB
UNREADABLE = FULL - 1  # in place of a set
UNKNOWN = len(STATES)  # the first of the states that have no name


class Room(NamedTuple):
    """Limits of what one replica may leave: records, bytes of them packed, bytes of each dictionary."""

    records: int = MOST_RECORDS
    packed_bytes: int = PACKED_BYTES
    dictionary_bytes: int = DICTIONARY_BYTES


def coordinator_room(share: float) -> Room:
    """Return the limits of a replica with this share of the total."""
    return Room(
        min(MOST_RECORDS, int(RECORDS_IN_ALL * share)),
        min(PACKED_BYTES, int(PACKED_IN_ALL * share)),
        min(DICTIONARY_BYTES, int(TRANSACTION_DICTIONARIES * share)),
    )


ALONE = coordinator_room(1.0)


class PartitionSets:
    """Sets of partitions of stored lists: each list is decoded once, equal sets get one number."""

    def __init__(self, limit: int) -> None:
        self.lists = Interner(limit)
        self.topics = Interner(limit)
        self.sets = Interner(min(limit, SETS_BYTES))  # of their elements' bytes
        self.set_of = np.empty(0, np.int32)  # by the number of a list, FULL where there was no room for the set
        self.null = np.empty(0, bool)

    def codes(self, data: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of the sets (FULL where the limit is reached), and which lists are null."""
        lists = self.lists.codes(data, starts, sizes)
        count = len(self.set_of)
        if len(self.lists) > count:
            self._learn(count)
        if not len(self.set_of):
            return lists, np.zeros(len(lists), bool)
        sets = np.where(lists == FULL, FULL, self.set_of[lists])
        return sets, self.null[lists] & (lists != FULL)

    def _learn(self, first_list: int) -> None:
        """Decode new lists."""
        ends = self.lists.ends[first_list : len(self.lists) + 1]
        parts = transaction_log.take_apart(self.lists.arena, ends[:-1], ends[1:])
        topics = self.topics.codes(self.lists.arena, parts.starts, parts.sizes)
        numbers = np.repeat(np.arange(len(parts.ends)), np.diff(parts.ends, prepend=0))
        full = np.zeros(len(parts.ends), bool)
        full[numbers[topics == FULL]] = True
        self._store(numbers, topics << 32 | (parts.partitions & 0xFFFFFFFF), full)
        sizes = np.diff(ends)
        first = self.lists.arena[np.minimum(ends[:-1], len(self.lists.arena) - 1)]  # an empty one may stand at its end
        self.null = np.append(self.null, ((sizes == 1) & (first == 0)) | ((sizes == 4) & (first == 255)))

    def _store(self, numbers: np.ndarray, elements: np.ndarray, full: np.ndarray) -> None:
        order = np.lexsort((elements, numbers))
        numbers, elements = numbers[order], elements[order]
        new = np.ones(len(numbers), bool)
        new[1:] = (numbers[1:] != numbers[:-1]) | (elements[1:] != elements[:-1])
        numbers, elements = numbers[new], elements[new]
        ends = np.searchsorted(numbers, np.arange(len(full)), side="right") * 8
        starts = np.append(0, ends[:-1])
        codes = self.sets.codes(np.append(elements, 0).view(np.uint8), starts, ends - starts)
        self.set_of = np.append(self.set_of, np.where(full, FULL, codes).astype(np.int32))

    def code_of(self, names: list[str]) -> int:
        """Return the number of a set of names that were decoded one by one, FULL without room."""
        elements = []
        for name in names:
            topic, partition = split(name)
            code = self.topics.code(topic.encode("utf-8", "surrogatepass"))
            if code == FULL:
                return FULL
            elements.append(code << 32 | (partition & 0xFFFFFFFF))
        return self.sets.code(np.unique(np.array(elements, np.int64)).tobytes())


class CoordinatorReader(RecordProblems):
    """Packs the records of one replica of ``__transaction_state``, from chunks that were read with ``raw``."""

    def __init__(self, partition: int, limits: Limits, room: Room = ALONE) -> None:
        super().__init__()
        self.room = room
        self.partition = partition
        self.limits = limits.counting()
        self.ids = Interner(room.dictionary_bytes)
        self.sets = PartitionSets(room.dictionary_bytes)
        self.rows = PackedColumns({name: np.dtype(kind) for name, kind in COLUMNS.items()})
        self.count = 0
        self.files: list[str] = []
        self.states: dict[int, int] = {}  # status that is none -> number of its state
        self.left_out = 0
        self.broken_at = -1
        self.version_1 = False
        self.some_odd = False

    def take(self, file: str, chunk: Chunk) -> list[DecodeError]:
        """Read the records of every batch of a chunk; return errors of batches that could not be opened."""
        if not self.files or self.files[-1] != file:
            self.files.append(file)
        errors: list[DecodeError] = []
        for one in data_runs(chunk, file, self.limits):
            errors += one.errors
            if len(one.sound):
                errors += self._run(file, one.run, one.batches, one.sound)
        return errors

    def _run(self, file: str, run: Decoded, batches: BatchColumns, chosen: np.ndarray) -> list[DecodeError]:
        records = run.records
        fields = transaction_log.parse(records, chosen)
        batch = records.batch[chosen]
        out = np.empty((len(COLUMNS), len(chosen)), np.int64)
        columns = {name: out[k] for k, name in enumerate(COLUMNS)}
        columns["partition"][:] = self.partition
        columns["offset"][:], columns["record_time"][:] = records.offset[chosen], _times(records.timestamp[chosen])
        columns["leader_epoch"][:] = batches.partition_leader_epoch[batch]
        columns["file"][:], columns["position"][:] = len(self.files) - 1, batches.position[batch]
        plain = fields[:, transaction_log.VERSION] != transaction_log.ODD
        self._plain(records.payload, fields[plain], columns, plain)
        for k in np.flatnonzero(~plain).tolist():
            where = (file, int(columns["position"][k]), int(batches.size[batch[k]]))
            if not self._odd(run, int(chosen[k]), where, {name: column[k : k + 1] for name, column in columns.items()}):
                columns["id"][k], columns["set"][k] = 0, UNREADABLE
        left = (columns["set"] == FULL) | (columns["id"] == FULL)
        full = self.rows.size > self.room.packed_bytes
        if full or self.count + len(left) > self.room.records:
            left[0 if full else max(0, self.room.records - self.count) :] = True
        accepted = np.flatnonzero(~left & (columns["set"] >= 0))
        self.rows.add(out[:, accepted] if len(accepted) < len(chosen) else out)
        self.count += len(accepted)
        return self._limit(file, columns, left) if left.any() else []

    def _plain(self, payload: np.ndarray, fields: np.ndarray, columns: dict[str, np.ndarray], rows: np.ndarray) -> None:
        """Fill the rows of records that were decoded by column."""
        f = np.ascontiguousarray(fields.T)
        gone = f[transaction_log.VERSION] == transaction_log.TOMBSTONE
        self.version_1 |= bool((f[transaction_log.VERSION] == 1).any())
        columns["id"][rows] = self.ids.codes(payload, f[transaction_log.ID_START], f[transaction_log.ID_SIZE])
        columns["set"][rows], columns["partitions_null"][rows] = self.sets.codes(
            payload, f[transaction_log.LIST_START], f[transaction_log.LIST_SIZE]
        )
        columns["producer_id"][rows], columns["producer_epoch"][rows] = (
            f[transaction_log.PRODUCER_ID],
            f[transaction_log.PRODUCER_EPOCH],
        )
        columns["timeout_ms"][rows], columns["client_version"][rows] = (
            f[transaction_log.TIMEOUT_MS],
            f[transaction_log.CLIENT_VERSION],
        )
        columns["last_update"][rows], columns["start"][rows] = (
            _times(f[transaction_log.LAST_UPDATE]),
            _times(f[transaction_log.START]),
        )
        columns["status"][rows] = f[transaction_log.STATUS]
        state = np.where(gone, TOMBSTONE, f[transaction_log.STATUS])
        for status in np.unique(state[(state >= UNKNOWN) | (state < TOMBSTONE) | ((state < 0) & ~gone)]).tolist():
            state[(f[transaction_log.STATUS] == status) & ~gone] = self._unknown(status)
        columns["state"][rows] = state

    def _unknown(self, status: int) -> int:
        return self.states.setdefault(status, UNKNOWN + len(self.states))

    def _odd(self, run: Decoded, record: int, where: tuple[str, int, int], columns: dict[str, np.ndarray]) -> bool:
        """Decode a record by itself and fill its row; return whether it was readable.

        ``where``: the batch's file, position, bytes.
        """
        row, problem = transaction_log.decode_transaction_log(*run.stored(record))
        if row is None:
            if problem is not None:
                self.note(where, int(columns["offset"][0]), problem)
            return False
        status = -1 if row.status is None else row.status
        columns["id"][:] = self.ids.code(row.transactional_id.encode("utf-8", "surrogatepass"))
        columns["set"][:] = self.sets.code_of(row.partitions or [])
        columns["state"][:] = TOMBSTONE if row.tombstone else status if 0 <= status < UNKNOWN else self._unknown(status)
        columns["status"][:], columns["partitions_null"][:] = status, bool(row.partitions_null)
        for name in ("producer_id", "producer_epoch", "timeout_ms"):
            value_of = getattr(row, name)
            columns[name][:] = -1 if value_of is None else value_of
        columns["client_version"][:] = row.client_transaction_version or 0
        columns["last_update"][:], columns["start"][:] = _time(row.last_update_timestamp), _time(row.start_timestamp)
        self.version_1 |= row.value_version == 1
        self.some_odd = True
        return True

    def _limit(self, file: str, columns: dict[str, np.ndarray], left: np.ndarray) -> list[DecodeError]:
        """Note records without room; one error stands for all."""
        first = not self.left_out
        self.left_out += int(left.sum())
        self.broken_at = max(self.broken_at, int(columns["offset"][left].max()))
        row = int(np.flatnonzero(left)[0])
        behind = f"from the record at offset {columns['offset'][row]} on, "
        if FULL in (columns["set"][row], columns["id"][row]):
            new = "new transactional ids and lists of partitions are skipped"
            detail = f"{behind}{new}: those before take {self.room.dictionary_bytes / MIB:.3g} MiB"
        else:
            detail = f"{behind}records are skipped: {self.count} are before it, which is the limit"
        return [DecodeError(file, int(columns["position"][row]), -1, "limit", detail)] if first else []

    def _in_order(self, ids: list[str]) -> tuple[list[str], np.ndarray]:
        """Ids in order of their first record, and the place of each: odd records were decoded out of order."""
        used, first = np.unique(self.rows["id"], return_index=True)
        order = np.concatenate([used[np.argsort(first)], np.setdiff1d(np.arange(len(ids)), used)])
        place = np.empty(len(ids), np.int32)
        place[order] = np.arange(len(ids))
        return [ids[number] for number in order.tolist()], place

    def leave(self, facts: ReplicaFacts) -> None:
        """Put the results into the facts of the replica."""
        facts.coordinator_log = self.finish()
        facts.unreadable_records, facts.unknown_records = self.unreadable, self.unknown

    def finish(self) -> CoordinatorLog:
        """Return the packed log of all records."""
        self.rows.pack()
        sets = self.sets
        elements = sets.sets.arena[: sets.sets.ends[len(sets.sets)]].view(np.int64)
        dictionaries = Dictionaries(
            self.ids.texts(),
            sets.topics.texts(),
            sets.sets.ends[1 : len(sets.sets) + 1] // 8,
            elements,
            self.files,
            [f"unknown state {status}" for status in self.states],
        )
        if not self.some_odd:
            log = build(self.rows.__getitem__, self.count, dictionaries)
        else:
            names, place = self._in_order(dictionaries.ids)
            dictionaries = dictionaries._replace(ids=names)
            log = build(lambda n: place[self.rows[n]] if n == "id" else self.rows[n], self.count, dictionaries)
        log.broken_at, log.version_1 = self.broken_at, self.version_1
        return log


def _times(values: np.ndarray) -> np.ndarray:
    """Times as in the tables: -1 where they are negative or beyond all calendars."""
    return np.where((values < 0) | (values > LAST_MS), -1, values)


def _time(value: int | None) -> int:
    return -1 if value is None or not 0 <= value <= LAST_MS else value


# State batches of a share group in a partition, merged as its coordinator does (KIP-932).
#
# Of each offset the state with the higher delivery count wins, of equal counts the higher state. Source:
# PersisterStateBatchCombiner.


SETTLED = (2, 4)  # acknowledged, archived: not delivered again
Batch = tuple[int, int, int, int]  # first and last offset, delivery count, state


def combined(before: Sequence[Batch], more: Sequence[Batch], start: int) -> list[Batch]:
    """Merge state batches, without offsets below ``start``, in order.

    Cost: n log n for n batches, unless many cover the same offsets.
    """
    cut = [(max(first, start), *rest) for first, *rest in (*before, *more) if rest[0] >= start]
    edges = sorted({edge for first, last, *_ in cut for edge in (first, last + 1)})
    merged: list[Batch] = []
    waiting = sorted(cut, reverse=True)
    covering: list[tuple[int, ...]] = []
    for low, high in pairwise(edges):
        covering = [batch for batch in covering if batch[1] >= low]
        while waiting and waiting[-1][0] <= low:
            covering.append(waiting.pop())
        if covering:
            count, state = max((batch[2], batch[3]) for batch in covering)
            if merged and merged[-1][1] + 1 == low and merged[-1][2:] == (count, state):
                merged[-1] = (merged[-1][0], high - 1, count, state)
            else:
                merged.append((low, high - 1, count, state))
    return merged


def settled(batches: Iterable[Batch]) -> tuple[tuple[int, int], ...]:
    """Return the ranges of offsets that are not delivered again."""
    return tuple((first, last) for first, last, _, state in batches if state in SETTLED)


# ``__share_group_state``: the last state of each group in each partition.


SNAPSHOT = 0  # key type; 1 is an update of one


class ShareReader(InternalRows):
    """Folds the records of one replica of ``__share_group_state``. Memory: a row per group and partition.

    Source: ShareCoordinatorShard.
    """

    def __init__(self, log_start: int, limits: Limits) -> None:
        super().__init__(SHARE_GROUP_STATE, limits)
        self.log_start = log_start
        self.states: dict[tuple[str, str, int], ShareOffset] = {}
        self.batches: dict[tuple[str, str, int], list[Batch]] = {}

    def take(self, file: str, chunk: Chunk) -> list[DecodeError]:
        """Read the records of a chunk (read with ``raw``); return errors of batches that could not be opened."""
        errors = self.add(file, chunk)
        for name, position, offset, time, *values in self.rows.pop("share_group_state", ()):
            if offset >= self.log_start:
                self._record(group_topics.ShareGroupStateRow(*values), (offset, time, name, position))
        return errors

    def _record(self, row: group_topics.ShareGroupStateRow, place: tuple[int, int, str, int]) -> None:
        key = (row.group_id, row.topic_id, row.consumed_partition)
        before = self.states.get(key)
        if row.tombstone:
            self.states.pop(key, None)
            self.batches.pop(key, None)
            return
        start = -1 if row.start_offset is None else row.start_offset
        more = [_batch(item) for item in json.loads(row.state_batches or "[]")]
        delivered = max((last for _, last, *_ in more), default=-1)
        if row.key_type != SNAPSHOT and before is not None:
            start = before.start_offset if start < 0 else start
            delivered = max(delivered, before.delivered)
            more = combined(self.batches[key], more, start)
        self.batches[key] = more
        offset, time, file, position = place
        delivered = delivered if delivered >= start else -1
        self.states[key] = ShareOffset(*key, start, delivered, offset, time, file, position)

    def leave(self, facts: ReplicaFacts) -> None:
        """Put the states, and undecodable records, into the facts."""
        facts.share_offsets = [
            state._replace(settled=settled(combined(self.batches[key], (), state.start_offset)))
            for key, state in sorted(self.states.items())
        ]
        facts.unreadable_records, facts.unknown_records = self.unreadable, self.unknown


def _batch(item: dict[str, int]) -> Batch:
    return item["firstOffset"], item["lastOffset"], item["deliveryCount"], item["deliveryState"]


# ``__consumer_offsets``: records are decoded by column; results are watched commits and the values in force.
#
# A place (a group's partition) that only has commits outside transactions is followed by a compiled pass. From its
# first transactional commit on, and for group records, the story takes over
# (:class:`auditor.model.groups.CommitReplay`). Memory: some 120 bytes per place, the pending values, and a limited
# number of commits that wait for an undecided one.


OFFSET_DICTIONARIES = 1024 * MIB  # of all replicas of a run: 16 million places
NOTHING, PLAIN, IN_STORY = range(3)  # of a place: no value, a value in force, handed over to the story
COMMIT, GONE, SPECIAL = range(3)  # of a record; special: not by column
# Columns of records and of values in force.
R_PLACE, R_KIND, R_VALUE, R_OFFSET, R_TIME, R_PRODUCER, R_EPOCH, R_POSITION, R_FIELDS = range(9)
V_VALUE, V_OFFSET, V_TIME, V_POSITION, V_FILE, V_GENERATION, V_STATE, V_FIELDS = range(8)
FALLS = 1024  # that the pass may find before it comes back
DONE, FALLS_FULL, AT_SPECIAL = range(3)


@kernel
def _follow(
    records: np.ndarray,
    first: int,
    file: int,
    groups: np.ndarray,
    generations: np.ndarray,
    values: np.ndarray,
    falls: np.ndarray,
    before: np.ndarray,
    out: np.ndarray,
) -> None:
    """Follow plain places until a record needs the story. ``out``: position, reason, number of falls."""
    fall_count, position, why = 0, first, DONE
    while position < records.shape[1]:
        place, kind = records[R_PLACE, position], records[R_KIND, position]
        if kind == SPECIAL or records[R_PRODUCER, position] != NO_PRODUCER_ID or values[place, V_STATE] == IN_STORY:
            why = AT_SPECIAL
            break
        now = values[place]
        if kind == GONE:
            now[V_STATE] = NOTHING
        else:
            value = records[R_VALUE, position]
            if now[V_STATE] == PLAIN and value < now[V_VALUE]:
                if fall_count == len(falls):
                    why = FALLS_FULL
                    break
                falls[fall_count] = position
                for k in range(V_FIELDS):
                    before[fall_count, k] = now[k]
                fall_count += 1
            now[V_VALUE], now[V_OFFSET], now[V_TIME] = value, records[R_OFFSET, position], records[R_TIME, position]
            now[V_POSITION], now[V_FILE] = records[R_POSITION, position], file
            now[V_GENERATION], now[V_STATE] = generations[groups[place]], PLAIN
        position += 1
    out[0], out[1], out[2] = position, why, fall_count


def _grown(array: np.ndarray, rows: int, fill: int) -> np.ndarray:
    if rows <= len(array):
        return array
    out = np.full((max(rows, len(array) * 3 // 2, 1024), *array.shape[1:]), fill, array.dtype)
    out[: len(array)] = array
    return out


def dictionary_room(share: float) -> int:
    """Return the bytes for names in one replica; ``share``: see :class:`ReplicaTask`."""
    return min(DICTIONARY_BYTES, int(OFFSET_DICTIONARIES * share))


class GroupPartitions:
    """Places so far, each a group, a topic and a partition."""

    def __init__(self, limit: int) -> None:
        self.keys, self.groups, self.topics = Interner(limit), Interner(limit), Interner(limit)
        self.group = np.empty(0, np.int64)
        self.topic = np.empty(0, np.int64)
        self.partition = np.empty(0, np.int64)

    def codes(self, data: np.ndarray, f: np.ndarray) -> np.ndarray:
        """Return the place of each commit, whose fields are lines of ``f``; FULL without room."""
        earlier = len(self.keys)
        codes = self.keys.codes(data, f[group_topics.KEY_START], f[group_topics.KEY_SIZE])
        count = len(self.keys)
        if count > earlier:
            new, first = np.unique(codes, return_index=True)
            rows = first[new >= earlier]
            self.group = _grown(self.group, count, 0)
            self.topic = _grown(self.topic, count, 0)
            self.partition = _grown(self.partition, count, 0)
            self.group[earlier:count] = self.groups.codes(
                data, f[group_topics.KEY_START][rows] + 2, f[group_topics.GROUP_SIZE][rows]
            )
            self.topic[earlier:count] = self.topics.codes(
                data, f[group_topics.TOPIC_START][rows], f[group_topics.TOPIC_SIZE][rows]
            )
            self.partition[earlier:count] = f[group_topics.PARTITION][rows]
        return codes

    def code(self, group: str, topic: str, partition: int) -> int:
        """Return the place of a commit that was decoded by itself."""
        first, second = (text.encode("utf-8", "surrogatepass") for text in (group, topic))
        head = struct.pack(">h", len(first)) + first
        key = head + struct.pack(">h", len(second)) + second + struct.pack(">i", partition)
        f = np.zeros((group_topics.TOPIC_SIZE + 3, 1), np.int64)
        (
            f[group_topics.KEY_SIZE],
            f[group_topics.GROUP_SIZE],
            f[group_topics.TOPIC_START],
            f[group_topics.TOPIC_SIZE],
        ) = len(key), len(first), len(head) + 2, len(second)
        f[group_topics.PARTITION] = partition
        return int(self.codes(np.frombuffer(bytearray(key), np.uint8), f)[0])


class OffsetsReader(RecordProblems):
    """Watches the commits in one replica of ``__consumer_offsets``, from chunks with their bytes.

    Records below ``log_start`` do not count.
    """

    def __init__(
        self,
        log_start: int,
        limits: Limits,
        dictionary_bytes: int = DICTIONARY_BYTES,
        most_waiting: int = MOST_BEHIND,
    ) -> None:
        super().__init__()
        self.log_start = log_start
        self.limits = limits.counting()
        self.dictionary_bytes = dictionary_bytes
        self.places = GroupPartitions(dictionary_bytes)
        self.values = np.empty((0, V_FIELDS), np.int64)
        self.generation_of = np.empty(0, np.int64)  # of each group now
        self.generations: dict[Generation, int] = {}
        self.known_generations: list[Generation] = []
        self.names: dict[int, str] = {}  # of groups that the story knows
        assignments = Assignments()
        self.committers, self.rivals, self.watch = Committers(), Rivals(assignments), Values(assignments)
        self.story = CommitReplay(
            (self.committers, self.rivals, self.watch), assignments=assignments, most_waiting=most_waiting
        )
        self.waiting_limit_reported = False
        self.files: list[str] = []
        self.markers: list[tuple[int, int, bool]] = []  # of the chunk at hand: offset, producer id, commit
        self.batch_bytes = np.empty(0, np.int64)  # of the chunk being read
        self.left_out = 0

    def take(self, file: str, chunk: Chunk) -> list[DecodeError]:
        """Read the records of every batch of a chunk; return errors of batches that could not be opened."""
        if not self.files or self.files[-1] != file:
            self.files.append(file)
        errors: list[DecodeError] = []
        batches = chunk.batches
        control = (batches.attributes & CONTROL != 0) & (batches.magic == 2)
        ends = np.flatnonzero(control & (batches.control_type >= 0) & (batches.control_type <= 1))
        ends = ends[batches.base_offset[ends] >= self.log_start]
        columns = (batches.base_offset[ends], batches.producer_id[ends], batches.control_type[ends] == 1)
        self.markers = list(zip(*(column.tolist() for column in columns), strict=True))[::-1]
        for one in data_runs(chunk, file, self.limits):
            errors += one.errors
            if len(one.sound):
                errors += self._run(one.run, one.batches, one.sound)
        self._end_transactions(None)
        return errors + self._waiting_limit()

    def _run(self, run: Decoded, batches: BatchColumns, chosen: np.ndarray) -> list[DecodeError]:
        records = run.records
        self.batch_bytes = batches.size
        fields = group_topics.parse(records, chosen)
        batch = records.batch[chosen]
        odd = fields[:, group_topics.VERSION] == group_topics.ODD
        f = np.ascontiguousarray(fields[~odd].T)
        out = np.empty((R_FIELDS, len(chosen)), np.int64)
        out[R_PLACE, odd], out[R_VALUE, odd] = 0, 0
        out[R_PLACE, ~odd], out[R_VALUE, ~odd] = self.places.codes(records.payload, f), f[group_topics.VALUE]
        out[R_KIND] = np.where(
            odd, SPECIAL, np.where(fields[:, group_topics.VERSION] == group_topics.TOMBSTONE, GONE, COMMIT)
        )
        out[R_OFFSET], stamp = records.offset[chosen], records.timestamp[chosen]
        out[R_TIME] = _times(stamp)
        inside = (batches.attributes[batch] & TRANSACTIONAL != 0) & (batches.magic[batch] == 2)
        out[R_PRODUCER] = np.where(inside, batches.producer_id[batch], NO_PRODUCER_ID)
        out[R_EPOCH] = np.where(inside, batches.producer_epoch[batch], -1)
        out[R_POSITION] = batches.position[batch]
        left = out[R_PLACE] == FULL
        accepted = np.flatnonzero(~left & ((out[R_OFFSET] >= self.log_start) | odd))
        self._make_room()
        self._records(np.take(out, accepted, axis=1) if len(accepted) < len(chosen) else out, run, chosen[accepted])
        return self._limit(out, left) if left.any() else []

    def _make_room(self) -> None:
        self.values = _grown(self.values, len(self.places.keys), 0)
        self.generation_of = _grown(self.generation_of, len(self.places.groups), -1)

    def _records(self, records: np.ndarray, run: Decoded, numbers: np.ndarray) -> None:
        """Follow records in order, by column as far as possible."""
        falls, before = np.empty(FALLS, np.int64), np.empty((FALLS, V_FIELDS), np.int64)
        out = np.zeros(3, np.int64)
        position = 0
        while position < records.shape[1]:
            groups = self.places.group if len(self.places.group) else np.zeros(1, np.int64)
            values = self.values if len(self.values) else np.zeros((1, V_FIELDS), np.int64)
            _follow(records, position, len(self.files) - 1, groups, self.generation_of, values, falls, before, out)
            position, why, fall_count = out.tolist()
            for row, old in zip(falls[:fall_count].tolist(), before[:fall_count], strict=True):
                place = int(records[R_PLACE, row])
                self.watch.fall(self._in_force(place, old), self._commit(records[:, row]))
            if why == AT_SPECIAL:
                self._special(records[:, position], run, int(numbers[position]))
                position += 1

    def _special(self, record: np.ndarray, run: Decoded, number: int) -> None:
        """Give the story a record: of a group, transactional, of a place that had such a one, or odd."""
        if record[R_KIND] == SPECIAL and not self._odd(record, run, number):
            return
        offset = int(record[R_OFFSET])
        if offset < self.log_start:
            return
        place = int(record[R_PLACE])
        value = self.values[place]
        if value[V_STATE] != IN_STORY:
            if value[V_STATE] == PLAIN:
                self.story.begin_with(self._in_force(place, value))
            value[V_STATE] = IN_STORY
        self._end_transactions(offset)
        group, topic = self._name(int(self.places.group[place])), self._topic(place)
        self.story.offset_record(
            offset,
            (
                group,
                topic,
                int(self.places.partition[place]),
                bool(record[R_KIND] == GONE),
                int(record[R_VALUE]),
                *(int(record[k]) for k in (R_TIME, R_PRODUCER, R_EPOCH)),
                self.files[-1],
                int(record[R_POSITION]),
            ),
        )

    def _odd(self, record: np.ndarray, run: Decoded, number: int) -> bool:
        """Decode a record by itself; return whether it is a commit, which ``record`` then describes."""
        row, problem = group_topics.decode_consumer_offsets(*run.stored(number))
        offset, position = int(record[R_OFFSET]), int(record[R_POSITION])
        if row is None:
            if problem is not None:
                self.note((self.files[-1], position, int(self.batch_bytes[run.records.batch[number]])), offset, problem)
            return False
        if isinstance(row, group_topics.OffsetCommitRow):
            place = self.places.code(row.group_id, row.consumed_topic, row.consumed_partition)
            if place == FULL:
                self.left_out += 1
                return False
            self._make_room()
            gone = row.tombstone or row.committed_offset is None
            record[R_PLACE], record[R_KIND] = place, GONE if gone else COMMIT
            record[R_VALUE] = 0 if row.committed_offset is None else row.committed_offset
            return True
        group = self.places.groups.code(row.group_id.encode("utf-8", "surrogatepass"))
        if group != FULL and offset >= self.log_start and row.key_type in GROUP_RECORDS:
            self._make_room()
            name = self._name(group)
            self._end_transactions(offset)
            of_group = (name, row.key_type, row.tombstone, row.generation, row.member_ids, row.value)
            self.story.group_record(offset, (*of_group, int(record[R_TIME])))
            self.generation_of[group] = self._number(self.story.generations.get(name))
        return False

    def _number(self, generation: Generation | None) -> int:
        if generation is None:
            return -1
        if generation not in self.generations:
            self.generations[generation] = len(self.known_generations)
            self.known_generations.append(generation)
        return self.generations[generation]

    def _name(self, group: int) -> str:
        if group not in self.names:
            self.names[group] = self.places.groups.bytes_of(group).decode("utf-8", "replace")
        return self.names[group]

    def _topic(self, place: int) -> str:
        return self.places.topics.bytes_of(int(self.places.topic[place])).decode("utf-8", "replace")

    def _commit(self, record: np.ndarray) -> OffsetCommit:
        place = int(record[R_PLACE])
        row = np.zeros(V_FIELDS, np.int64)
        row[[V_VALUE, V_OFFSET, V_TIME, V_POSITION]] = record[[R_VALUE, R_OFFSET, R_TIME, R_POSITION]]
        row[V_FILE], row[V_GENERATION] = len(self.files) - 1, self.generation_of[self.places.group[place]]
        return self._in_force(place, row)

    def _in_force(self, place: int, row: np.ndarray) -> OffsetCommit:
        """The value of a place that was committed outside a transaction."""
        value, offset, time, position, file, generation = row[:V_STATE].tolist()
        topic, partition = self._topic(place), int(self.places.partition[place])
        group = self.places.groups.bytes_of(int(self.places.group[place])).decode("utf-8", "replace")
        commit_generation = None if generation < 0 else self.known_generations[generation]
        where = GroupPartition(group, f"{topic}-{partition}")
        return OffsetCommit(
            place=where,
            topic=topic,
            partition=partition,
            value=value,
            record_offset=offset,
            time=time,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=-1,
            file=self.files[file],
            position=position,
            generation=commit_generation,
        )

    def _end_transactions(self, offset: int | None) -> None:
        """Give the story the markers below an offset, or all in the chunk."""
        while self.markers and (offset is None or self.markers[-1][0] < offset):
            _, producer_id, commit = self.markers.pop()
            self.story.marker(producer_id, commit)

    def _limit(self, records: np.ndarray, left: np.ndarray) -> list[DecodeError]:
        """Note commits without room in the dictionaries; one error stands for all."""
        first = not self.left_out
        self.left_out += int(left.sum())
        row = int(np.flatnonzero(left)[0])
        detail = (
            f"from the record at offset {records[R_OFFSET, row]} on, new groups and partitions are skipped: "
            f"those before take {self.dictionary_bytes / MIB:.3g} MiB"
        )
        return [DecodeError(self.files[-1], int(records[R_POSITION, row]), -1, "limit", detail)] if first else []

    def _waiting_limit(self) -> list[DecodeError]:
        """Report once that too many commits waited for open transactions to be compared."""
        c = self.story.waiting.first_left_out
        if c is None or self.waiting_limit_reported:
            return []
        self.waiting_limit_reported = True
        detail = (
            f"from the record at offset {c.record_offset} on, producers that commit a group's partition behind an open "
            f"transaction are not compared in full: {self.story.waiting.most} such commits wait for its end"
        )
        return [DecodeError(c.file, c.position, -1, "limit", detail)]

    def leave(self, facts: ReplicaFacts) -> None:
        """Put the results into the facts of the replica."""
        facts.watched_offsets = self.finish()
        facts.unreadable_records, facts.unknown_records = self.unreadable, self.unknown

    def finish(self) -> WatchedOffsets:
        """Return the results after the last chunk."""
        self.story.end()
        story, places = self.story, self.places
        plain = np.flatnonzero(self.values[: len(places.keys), V_STATE] == PLAIN)
        rows = self.values[plain]
        table = np.stack(
            [
                places.group[plain],
                places.topic[plain],
                places.partition[plain],
                rows[:, V_VALUE],
                rows[:, V_OFFSET],
                rows[:, V_TIME],
                np.full(len(plain), NO_PRODUCER_ID),
                np.full(len(plain), -1),
                rows[:, V_FILE],
                rows[:, V_POSITION],
                rows[:, V_GENERATION],
            ]
        )
        groups, topics = places.groups.texts(), places.topics.texts()
        in_story = np.array(list(self._in_story(groups, topics)), np.int64).reshape(-1, len(COMMIT_COLUMNS)).T
        table = np.concatenate([table, in_story], axis=1)
        pending = {producer_id: story.pending(producer_id) for producer_id in story.model.pending}
        return WatchedOffsets(
            zombies=self.rivals.zombies,
            interleaved=self.rivals.interleaved,
            handed_over=self.rivals.handed_over,
            falls=self.watch.falls(),
            skips=self.watch.skips,
            committers=self.committers.seen,
            mixed=self.committers.mixed,
            pending=pending,
            in_force=in_force(table, groups, topics, self.files, self.known_generations),
            groups=groups,
            kinds=story.assignments.kinds,
        )

    def _in_story(self, groups: list[str], topics: list[str]) -> Iterator[tuple[Any, ...]]:
        """Values in force in the story, as rows of the table."""
        commits = list(self.story.in_force())
        group_numbers = {name: number for number, name in enumerate(groups)} if commits else {}
        topic_numbers = {name: number for number, name in enumerate(topics)}
        files = {name: number for number, name in enumerate(self.files)}
        for c in commits:
            yield (
                group_numbers[c.place.group],
                topic_numbers[c.topic],
                c.partition,
                c.value,
                c.record_offset,
                c.time,
                c.producer_id,
                c.producer_epoch,
                files[c.file],
                c.position,
                self._number(c.generation),
            )


# Readers by internal topic.


class InternalReader(Protocol):
    """Reads the records of one replica's chunks, in order, and puts the results into its facts."""

    def take(self, file: str, chunk: Chunk) -> list[DecodeError]:
        """Read the records of every batch of a chunk; return errors of batches that could not be opened."""

    def errors(self) -> list[DecodeError]:
        """Return the errors of undecodable records."""

    def leave(self, facts: ReplicaFacts) -> None:
        """Put the results into the facts of the replica."""


class CheckedRecords(InternalRows):
    """Decodes the records of a topic that no rule reads, to report undecodable ones."""

    def take(self, file: str, chunk: Chunk) -> list[DecodeError]:
        """Read the records of a chunk (read with ``raw``); return errors of batches that could not be opened."""
        errors = self.add(file, chunk)
        self.rows.clear()
        return errors

    def leave(self, facts: ReplicaFacts) -> None:
        """Put undecodable records into the facts."""
        facts.unreadable_records, facts.unknown_records = self.unreadable, self.unknown


def reader_of(task: ReplicaTask, log_start: int) -> InternalReader | None:
    """Return the reader of a replica's records, None unless its topic is an internal one."""
    if task.replica.topic == TRANSACTION_STATE:
        return CoordinatorReader(task.replica.partition or 0, task.limits, coordinator_room(task.share))
    if task.replica.topic == CONSUMER_OFFSETS:
        return OffsetsReader(log_start, task.limits, dictionary_room(task.share))
    if task.replica.topic == SHARE_GROUP_STATE:
        return ShareReader(log_start, task.limits)
    return CheckedRecords(task.replica.topic or "", task.limits) if task.has_internal_rows else None
