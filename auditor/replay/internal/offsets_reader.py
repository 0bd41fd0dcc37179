"""The records of ``__consumer_offsets`` while a replica is read: columns in, what is watched and the values in force
out.

A place (a group's partition) that only has commits outside transactions is followed by a compiled pass. From its first
commit in a transaction on, and for all that groups' own records say, :class:`auditor.model.groups.Story` goes
on. Memory: some 120 bytes a place, the pending values, and what waits behind an undecided one, which has a bound.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from auditor.base.compiled import kernel
from auditor.base.errors import MIB, DecodeError, Limits
from auditor.connectors.codec.batches import CONTROL, TRANSACTIONAL, BatchColumns
from auditor.connectors.codec.group_topics import (
    GROUP_SIZE,
    KEY_SIZE,
    KEY_START,
    ODD,
    PARTITION,
    TOMBSTONE,
    TOPIC_SIZE,
    TOPIC_START,
    VALUE,
    VERSION,
    OffsetCommitRow,
    decode_consumer_offsets,
    parse,
)
from auditor.connectors.codec.records import FULL, Decoded, Interner
from auditor.connectors.codec.segment import Chunk
from auditor.connectors.tables.internal_rows import RecordProblems, data_runs
from auditor.connectors.tables.schema import MAX_TIME_MS
from auditor.facts.offsets import COMMIT_COLUMNS, WatchedOffsets, in_force
from auditor.facts.replica_facts import ReplicaFacts
from auditor.model.groups import (
    GROUP_RECORDS,
    MOST_BEHIND,
    NO_PRODUCER_ID,
    Assignments,
    Commit,
    Generation,
    GroupPartition,
    Story,
)
from auditor.model.offset_watch import Committers, Rivals, Values

DICTIONARY_BYTES = 128 * MIB
DICTIONARIES_IN_ALL = 1024 * MIB  # of all replicas of a run: 16 million places
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
    """Follows plain places until a record is met that only the story understands. ``out``: where, why, falls found."""
    found, at, why = 0, first, DONE
    while at < records.shape[1]:
        place, kind = records[R_PLACE, at], records[R_KIND, at]
        if kind == SPECIAL or records[R_PRODUCER, at] != NO_PRODUCER_ID or values[place, V_STATE] == IN_STORY:
            why = AT_SPECIAL
            break
        now = values[place]
        if kind == GONE:
            now[V_STATE] = NOTHING
        else:
            value = records[R_VALUE, at]
            if now[V_STATE] == PLAIN and value < now[V_VALUE]:
                if found == len(falls):
                    why = FALLS_FULL
                    break
                falls[found] = at
                for k in range(V_FIELDS):
                    before[found, k] = now[k]
                found += 1
            now[V_VALUE], now[V_OFFSET], now[V_TIME] = value, records[R_OFFSET, at], records[R_TIME, at]
            now[V_POSITION], now[V_FILE] = records[R_POSITION, at], file
            now[V_GENERATION], now[V_STATE] = generations[groups[place]], PLAIN
        at += 1
    out[0], out[1], out[2] = at, why, found


def _grown(array: np.ndarray, rows: int, fill: int) -> np.ndarray:
    if rows <= len(array):
        return array
    out = np.full((max(rows, len(array) * 3 // 2, 1024), *array.shape[1:]), fill, array.dtype)
    out[: len(array)] = array
    return out


def dictionary_room(share: float) -> int:
    """Bytes for the names that one replica has, of what all replicas have; ``share``: see :class:`ReplicaTask`."""
    return min(DICTIONARY_BYTES, int(DICTIONARIES_IN_ALL * share))


class Places:
    """The places met so far, each a group, a topic and a partition."""

    def __init__(self, limit: int) -> None:
        self.keys, self.groups, self.topics = Interner(limit), Interner(limit), Interner(limit)
        self.group = np.empty(0, np.int64)
        self.topic = np.empty(0, np.int64)
        self.partition = np.empty(0, np.int64)

    def codes(self, data: np.ndarray, f: np.ndarray) -> np.ndarray:
        """The place of each commit, whose fields are lines of ``f``; FULL where there is no room."""
        known = len(self.keys)
        codes = self.keys.codes(data, f[KEY_START], f[KEY_SIZE])
        count = len(self.keys)
        if count > known:
            new, first = np.unique(codes, return_index=True)
            rows = first[new >= known]
            self.group = _grown(self.group, count, 0)
            self.topic = _grown(self.topic, count, 0)
            self.partition = _grown(self.partition, count, 0)
            self.group[known:count] = self.groups.codes(data, f[KEY_START][rows] + 2, f[GROUP_SIZE][rows])
            self.topic[known:count] = self.topics.codes(data, f[TOPIC_START][rows], f[TOPIC_SIZE][rows])
            self.partition[known:count] = f[PARTITION][rows]
        return codes

    def code(self, group: str, topic: str, partition: int) -> int:
        """The place of a commit that was decoded alone."""
        first, second = (text.encode("utf-8", "surrogatepass") for text in (group, topic))
        head = struct.pack(">h", len(first)) + first
        key = head + struct.pack(">h", len(second)) + second + struct.pack(">i", partition)
        f = np.zeros((TOPIC_SIZE + 3, 1), np.int64)
        f[KEY_SIZE], f[GROUP_SIZE], f[TOPIC_START], f[TOPIC_SIZE] = len(key), len(first), len(head) + 2, len(second)
        f[PARTITION] = partition
        return int(self.codes(np.frombuffer(bytearray(key), np.uint8), f)[0])


class OffsetsReader(RecordProblems):
    """Takes the chunks of one replica of ``__consumer_offsets`` (read with their bytes), and watches.

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
        self.places = Places(dictionary_bytes)
        self.values = np.empty((0, V_FIELDS), np.int64)
        self.generation_of = np.empty(0, np.int64)  # of each group now
        self.generations: dict[Generation, int] = {}
        self.known_generations: list[Generation] = []
        self.names: dict[int, str] = {}  # of groups that the story knows
        assignments = Assignments()
        self.committers, self.rivals, self.watch = Committers(), Rivals(assignments), Values(assignments)
        self.story = Story(
            (self.committers, self.rivals, self.watch), assignments=assignments, most_waiting=most_waiting
        )
        self.silent_said = False
        self.files: list[str] = []
        self.markers: list[tuple[int, int, bool]] = []  # of the chunk at hand: offset, producer id, commit
        self.batch_bytes = np.empty(0, np.int64)  # of the chunk being read
        self.left_out = 0

    def take(self, file: str, chunk: Chunk) -> list[DecodeError]:
        """Reads the records of every batch of a chunk; returns what kept a batch closed."""
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
        fields = parse(records, chosen)
        batch = records.batch[chosen]
        odd = fields[:, VERSION] == ODD
        f = np.ascontiguousarray(fields[~odd].T)
        out = np.empty((R_FIELDS, len(chosen)), np.int64)
        out[R_PLACE, odd], out[R_VALUE, odd] = 0, 0
        out[R_PLACE, ~odd], out[R_VALUE, ~odd] = self.places.codes(records.payload, f), f[VALUE]
        out[R_KIND] = np.where(odd, SPECIAL, np.where(fields[:, VERSION] == TOMBSTONE, GONE, COMMIT))
        out[R_OFFSET], stamp = records.offset[chosen], records.timestamp[chosen]
        out[R_TIME] = np.where((stamp < 0) | (stamp > MAX_TIME_MS), -1, stamp)
        inside = (batches.attributes[batch] & TRANSACTIONAL != 0) & (batches.magic[batch] == 2)
        out[R_PRODUCER] = np.where(inside, batches.producer_id[batch], NO_PRODUCER_ID)
        out[R_EPOCH] = np.where(inside, batches.producer_epoch[batch], -1)
        out[R_POSITION] = batches.position[batch]
        left = out[R_PLACE] == FULL
        kept = np.flatnonzero(~left & ((out[R_OFFSET] >= self.log_start) | odd))
        self._make_room()
        self._records(np.take(out, kept, axis=1) if len(kept) < len(chosen) else out, run, chosen[kept])
        return self._limit(out, left) if left.any() else []

    def _make_room(self) -> None:
        self.values = _grown(self.values, len(self.places.keys), 0)
        self.generation_of = _grown(self.generation_of, len(self.places.groups), -1)

    def _records(self, records: np.ndarray, run: Decoded, numbers: np.ndarray) -> None:
        """Follows records in order, by column as far as that goes."""
        falls, before = np.empty(FALLS, np.int64), np.empty((FALLS, V_FIELDS), np.int64)
        out = np.zeros(3, np.int64)
        at = 0
        while at < records.shape[1]:
            groups = self.places.group if len(self.places.group) else np.zeros(1, np.int64)
            values = self.values if len(self.values) else np.zeros((1, V_FIELDS), np.int64)
            _follow(records, at, len(self.files) - 1, groups, self.generation_of, values, falls, before, out)
            at, why, found = out.tolist()
            for row, old in zip(falls[:found].tolist(), before[:found], strict=True):
                place = int(records[R_PLACE, row])
                self.watch.fall(self._in_force(place, old), self._commit(records[:, row]))
            if why == AT_SPECIAL:
                self._special(records[:, at], run, int(numbers[at]))
                at += 1

    def _special(self, record: np.ndarray, run: Decoded, number: int) -> None:
        """A record for the story: of a group, in a transaction, of a place that has had one, or odd."""
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
        """Reads a record that is not by column; whether it is a commit, which ``record`` then describes."""
        row, problem = decode_consumer_offsets(*run.stored(number))
        offset, position = int(record[R_OFFSET]), int(record[R_POSITION])
        if row is None:
            if problem is not None:
                self.note((self.files[-1], position, int(self.batch_bytes[run.records.batch[number]])), offset, problem)
            return False
        if isinstance(row, OffsetCommitRow):
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

    def _commit(self, record: np.ndarray) -> Commit:
        place = int(record[R_PLACE])
        row = np.zeros(V_FIELDS, np.int64)
        row[[V_VALUE, V_OFFSET, V_TIME, V_POSITION]] = record[[R_VALUE, R_OFFSET, R_TIME, R_POSITION]]
        row[V_FILE], row[V_GENERATION] = len(self.files) - 1, self.generation_of[self.places.group[place]]
        return self._in_force(place, row)

    def _in_force(self, place: int, row: np.ndarray) -> Commit:
        """The value of a place that was committed outside a transaction."""
        value, offset, time, position, file, generation = row[:V_STATE].tolist()
        topic, partition = self._topic(place), int(self.places.partition[place])
        group = self.places.groups.bytes_of(int(self.places.group[place])).decode("utf-8", "replace")
        known = None if generation < 0 else self.known_generations[generation]
        where = GroupPartition(group, f"{topic}-{partition}")
        return Commit(
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
            generation=known,
        )

    def _end_transactions(self, offset: int | None) -> None:
        """Gives the story the markers below an offset, or of all in the chunk."""
        while self.markers and (offset is None or self.markers[-1][0] < offset):
            _, producer_id, commit = self.markers.pop()
            self.story.marker(producer_id, commit)

    def _limit(self, records: np.ndarray, left: np.ndarray) -> list[DecodeError]:
        """Notes commits that the dictionaries have no room for; one error stands for all."""
        first = not self.left_out
        self.left_out += int(left.sum())
        row = int(np.flatnonzero(left)[0])
        detail = (
            f"from the record at offset {records[R_OFFSET, row]} on, groups and partitions that are new are left out: "
            f"those before take {self.dictionary_bytes / MIB:.3g} MiB"
        )
        return [DecodeError(self.files[-1], int(records[R_POSITION, row]), -1, "limit", detail)] if first else []

    def _waiting_limit(self) -> list[DecodeError]:
        """Says once that commits behind open transactions were too many to be compared."""
        c = self.story.waiting.first_left_out
        if c is None or self.silent_said:
            return []
        self.silent_said = True
        detail = (
            f"from the record at offset {c.record_offset} on, producers that commit one partition of a group behind an "
            f"open transaction are not compared in full: {self.story.waiting.most} such commits wait for its end"
        )
        return [DecodeError(c.file, c.position, -1, "limit", detail)]

    def leave(self, facts: ReplicaFacts) -> None:
        """Puts what was taken into the facts of the replica."""
        facts.watched_offsets = self.finish()
        facts.unreadable_records, facts.unknown_records = self.unreadable, self.unknown

    def finish(self) -> WatchedOffsets:
        """What was watched, when the last chunk was taken."""
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
            pending=pending,
            in_force=in_force(table, groups, topics, self.files, self.known_generations),
            groups=groups,
        )

    def _in_story(self, groups: list[str], topics: list[str]) -> Iterator[tuple[Any, ...]]:
        """The values in force that the story has, as rows of the table."""
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
