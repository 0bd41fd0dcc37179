"""The records of ``__transaction_state`` while a replica is read: columns in, a packed log out.

Memory: some 15 bytes a record, the distinct ids and the distinct sets of partitions, of which no more is kept than
a :class:`Room` and :data:`SETS_BYTES` say.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from auditor.base.errors import MIB, DecodeError, Limits
from auditor.connectors.codec.batches import BatchColumns
from auditor.connectors.codec.records import FULL, Decoded, Interner
from auditor.connectors.codec.segment import Chunk
from auditor.connectors.codec.transaction_log import (
    CLIENT_VERSION,
    ID_SIZE,
    ID_START,
    LAST_UPDATE,
    LIST_SIZE,
    LIST_START,
    ODD,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    START,
    STATUS,
    TIMEOUT_MS,
    VERSION,
    decode_transaction_log,
    parse,
    take_apart,
)
from auditor.connectors.codec.transaction_log import TOMBSTONE as NO_VALUE
from auditor.connectors.tables.internal_rows import RecordProblems, data_runs
from auditor.connectors.tables.schema import MAX_TIME_MS
from auditor.facts.coordinator_log import COLUMNS, STATES, TOMBSTONE, CoordinatorLog, Dictionaries, build, split
from auditor.facts.packed import PackedColumns
from auditor.facts.replica_facts import ReplicaFacts

DICTIONARY_BYTES = 128 * MIB
SETS_BYTES = 32 * MIB  # 8 a partition of a set: what a rule looks at becomes Python's text, ten times as large
MOST_RECORDS = 16 << 20  # of a replica: a broker's cleaner leaves a hundredth of that
PACKED_BYTES = 256 * MIB  # of them, however odd they are: sound ones take 15 bytes each
# Of all replicas of a run together, which the driver holds.
RECORDS_IN_ALL, PACKED_IN_ALL, DICTIONARIES_IN_ALL = 256 << 20, 1024 * MIB, 512 * MIB
UNREADABLE = FULL - 1  # in place of a set
UNKNOWN = len(STATES)  # the first of the states that have no name


class Room(NamedTuple):
    """What one replica may leave: records, bytes of them packed, bytes of each dictionary."""

    records: int = MOST_RECORDS
    packed_bytes: int = PACKED_BYTES
    dictionary_bytes: int = DICTIONARY_BYTES


def coordinator_room(share: float) -> Room:
    """The room of a replica that has this part of what all have."""
    return Room(
        min(MOST_RECORDS, int(RECORDS_IN_ALL * share)),
        min(PACKED_BYTES, int(PACKED_IN_ALL * share)),
        min(DICTIONARY_BYTES, int(DICTIONARIES_IN_ALL * share)),
    )


ALONE = coordinator_room(1.0)


class PartitionSets:
    """The sets of partitions that stored lists stand for, each list taken apart once, equal sets under one number."""

    def __init__(self, limit: int) -> None:
        self.lists = Interner(limit)
        self.topics = Interner(limit)
        self.sets = Interner(min(limit, SETS_BYTES))  # of their elements' bytes
        self.set_of = np.empty(0, np.int32)  # by the number of a list, FULL where there was no room for the set
        self.null = np.empty(0, bool)

    def codes(self, data: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of the sets (FULL where the limit is reached), and which lists are null."""
        lists = self.lists.codes(data, starts, sizes)
        known = len(self.set_of)
        if len(self.lists) > known:
            self._learn(known)
        if not len(self.set_of):
            return lists, np.zeros(len(lists), bool)
        found = np.where(lists == FULL, FULL, self.set_of[lists])
        return found, self.null[lists] & (lists != FULL)

    def _learn(self, known: int) -> None:
        """Takes new lists apart."""
        ends = self.lists.ends[known : len(self.lists) + 1]
        found = take_apart(self.lists.arena, ends[:-1], ends[1:])
        topics = self.topics.codes(self.lists.arena, found.starts, found.sizes)
        numbers = np.repeat(np.arange(len(found.ends)), np.diff(found.ends, prepend=0))
        full = np.zeros(len(found.ends), bool)
        full[numbers[topics == FULL]] = True
        self._store(numbers, topics << 32 | (found.partitions & 0xFFFFFFFF), full)
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
        """The number of a set of names that were decoded one by one, FULL where there is no room."""
        elements = []
        for name in names:
            topic, partition = split(name)
            code = self.topics.code(topic.encode("utf-8", "surrogatepass"))
            if code == FULL:
                return FULL
            elements.append(code << 32 | (partition & 0xFFFFFFFF))
        return self.sets.code(np.unique(np.array(elements, np.int64)).tobytes())


class CoordinatorReader(RecordProblems):
    """Takes the chunks of one replica of ``__transaction_state`` (read with ``raw``) and packs their records."""

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
        """Reads the records of every batch of a chunk; returns what kept a batch closed."""
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
        fields = parse(records, chosen)
        batch = records.batch[chosen]
        out = np.empty((len(COLUMNS), len(chosen)), np.int64)
        at = {name: out[k] for k, name in enumerate(COLUMNS)}
        at["partition"][:] = self.partition
        at["offset"][:], at["record_time"][:] = records.offset[chosen], _times(records.timestamp[chosen])
        at["leader_epoch"][:] = batches.partition_leader_epoch[batch]
        at["file"][:], at["position"][:] = len(self.files) - 1, batches.position[batch]
        plain = fields[:, VERSION] != ODD
        self._plain(records.payload, fields[plain], at, plain)
        for k in np.flatnonzero(~plain).tolist():
            where = (file, int(at["position"][k]), int(batches.size[batch[k]]))
            if not self._odd(run, int(chosen[k]), where, {name: column[k : k + 1] for name, column in at.items()}):
                at["id"][k], at["set"][k] = 0, UNREADABLE
        left = (at["set"] == FULL) | (at["id"] == FULL)
        full = self.rows.size > self.room.packed_bytes
        if full or self.count + len(left) > self.room.records:
            left[0 if full else max(0, self.room.records - self.count) :] = True
        kept = np.flatnonzero(~left & (at["set"] >= 0))
        self.rows.add(out[:, kept] if len(kept) < len(chosen) else out)
        self.count += len(kept)
        return self._limit(file, at, left) if left.any() else []

    def _plain(self, payload: np.ndarray, fields: np.ndarray, at: dict[str, np.ndarray], rows: np.ndarray) -> None:
        """Fills the rows of records that were read by column."""
        f = np.ascontiguousarray(fields.T)
        gone = f[VERSION] == NO_VALUE
        self.version_1 |= bool((f[VERSION] == 1).any())
        at["id"][rows] = self.ids.codes(payload, f[ID_START], f[ID_SIZE])
        at["set"][rows], at["partitions_null"][rows] = self.sets.codes(payload, f[LIST_START], f[LIST_SIZE])
        at["producer_id"][rows], at["producer_epoch"][rows] = f[PRODUCER_ID], f[PRODUCER_EPOCH]
        at["timeout_ms"][rows], at["client_version"][rows] = f[TIMEOUT_MS], f[CLIENT_VERSION]
        at["last_update"][rows], at["start"][rows] = _times(f[LAST_UPDATE]), _times(f[START])
        at["status"][rows] = f[STATUS]
        state = np.where(gone, TOMBSTONE, f[STATUS])
        for status in np.unique(state[(state >= UNKNOWN) | (state < TOMBSTONE) | ((state < 0) & ~gone)]).tolist():
            state[(f[STATUS] == status) & ~gone] = self._unknown(status)
        at["state"][rows] = state

    def _unknown(self, status: int) -> int:
        return self.states.setdefault(status, UNKNOWN + len(self.states))

    def _odd(self, run: Decoded, record: int, where: tuple[str, int, int], at: dict[str, np.ndarray]) -> bool:
        """Fills the row of one that was not; whether it could be read. ``where``: the batch's file, position, bytes."""
        row, problem = decode_transaction_log(*run.stored(record))
        if row is None:
            if problem is not None:
                self.note(where, int(at["offset"][0]), problem)
            return False
        status = -1 if row.status is None else row.status
        at["id"][:] = self.ids.code(row.transactional_id.encode("utf-8", "surrogatepass"))
        at["set"][:] = self.sets.code_of(row.partitions or [])
        at["state"][:] = TOMBSTONE if row.tombstone else status if 0 <= status < UNKNOWN else self._unknown(status)
        at["status"][:], at["partitions_null"][:] = status, bool(row.partitions_null)
        for name in ("producer_id", "producer_epoch", "timeout_ms"):
            value_of = getattr(row, name)
            at[name][:] = -1 if value_of is None else value_of
        at["client_version"][:] = row.client_transaction_version or 0
        at["last_update"][:], at["start"][:] = _time(row.last_update_timestamp), _time(row.start_timestamp)
        self.version_1 |= row.value_version == 1
        self.some_odd = True
        return True

    def _limit(self, file: str, at: dict[str, np.ndarray], left: np.ndarray) -> list[DecodeError]:
        """Notes records that there is no room for; one error stands for all."""
        first = not self.left_out
        self.left_out += int(left.sum())
        self.broken_at = max(self.broken_at, int(at["offset"][left].max()))
        row = int(np.flatnonzero(left)[0])
        behind = f"from the record at offset {at['offset'][row]} on, "
        if FULL in (at["set"][row], at["id"][row]):
            new = "transactional ids and lists of partitions that are new are left out"
            detail = f"{behind}{new}: those before take {self.room.dictionary_bytes / MIB:.3g} MiB"
        else:
            detail = f"{behind}records are left out: {self.count} are before it, as many as there is room for"
        return [DecodeError(file, int(at["position"][row]), -1, "limit", detail)] if first else []

    def _in_order(self, ids: list[str]) -> tuple[list[str], np.ndarray]:
        """The ids in the order in which they first come, and the place of each: odd records were read out of order."""
        used, first = np.unique(self.rows["id"], return_index=True)
        order = np.concatenate([used[np.argsort(first)], np.setdiff1d(np.arange(len(ids)), used)])
        place = np.empty(len(ids), np.int32)
        place[order] = np.arange(len(ids))
        return [ids[number] for number in order.tolist()], place

    def leave(self, facts: ReplicaFacts) -> None:
        """Puts what was taken into the facts of the replica."""
        facts.coordinator_log = self.finish()
        facts.unreadable_records, facts.unknown_records = self.unreadable, self.unknown

    def finish(self) -> CoordinatorLog:
        """The packed log of all that was taken."""
        self.rows.pack()
        sets = self.sets
        elements = sets.sets.arena[: sets.sets.ends[len(sets.sets)]].view(np.int64)
        known = Dictionaries(
            self.ids.texts(),
            sets.topics.texts(),
            sets.sets.ends[1 : len(sets.sets) + 1] // 8,
            elements,
            self.files,
            [f"unknown state {status}" for status in self.states],
        )
        if not self.some_odd:
            log = build(self.rows.__getitem__, self.count, known)
        else:
            names, place = self._in_order(known.ids)
            known = known._replace(ids=names)
            log = build(lambda n: place[self.rows[n]] if n == "id" else self.rows[n], self.count, known)
        log.broken_at, log.version_1 = self.broken_at, self.version_1
        return log


def _times(values: np.ndarray) -> np.ndarray:
    """Times as the tables have them: none where they are negative or beyond all calendars."""
    return np.where((values < 0) | (values > MAX_TIME_MS), -1, values)


def _time(value: int | None) -> int:
    return -1 if value is None or not 0 <= value <= MAX_TIME_MS else value
