"""One copy of a partition read once and replayed under several policies side by side."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from auditor.base.errors import DecodeError
from auditor.connectors.codec.columns import BatchColumns
from auditor.connectors.codec.gaps import offset_range
from auditor.connectors.codec.segment import Chunk, read_segment
from auditor.connectors.codec.snapshot import ProducerEntries, decode_snapshot
from auditor.connectors.storage import open_file, read_file
from auditor.facts.copy_facts import SEQUENCE_FREE_TOPICS
from auditor.model.policies import POLICIES
from auditor.replay import policy_kernel as pol
from auditor.replay.copy_reader import INTERNAL_TOPICS, CopyTask

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
SHOWN = 20  # producers of one copy that wrap, or run out of epochs, first
LEAST_MS = 1_000  # a rate needs that much time between two batches
# How long each generation of brokers remembers an idle producer where no setting says: transactional.id.expiration.ms
# until 3.4 had producer.id.expiration.ms.
EXPIRATION_MS = {"kip-890-p1": DAY_MS, "kip-890-p2": DAY_MS}
OLD_EXPIRATION_MS = 7 * DAY_MS


@dataclass(frozen=True, slots=True)
class Settings:
    """What a policy's world needs beyond the files. Times in ms, sizes in bytes; negative: no limit.

    ``expiration_ms`` None is each policy's own default. ``newest_time`` is the newest broker-written time of the input,
    beyond which no producer's clock is believed.
    """

    expiration_ms: int | None = None
    check_ms: int = 600_000
    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = -1
    newest_time: int = pol.NEVER


@dataclass(slots=True)
class World:
    """What one policy would have made of the copy. Sizes are estimates in bytes; ``dropped``: runs not kept."""

    verdicts: np.ndarray
    dropped: int
    producers_peak: int
    bytes_peak: int
    producers_end: int
    bytes_end: int
    forgotten: int


@dataclass(slots=True)
class CopyWorlds:
    """One copy under each policy, and the numbers on its producers that hold under all of them.

    ``hours``: hour since the epoch -> (producers that began in it, largest producer id seen). ``wraps``: how often
    sequences began again at 0, by plain and transactional producers; ``rates``: the records an hour of all producers
    of either kind, each while it wrote. ``span``: most sequences of one producer in five batches on end. ``fastest``:
    the producers that wrap, or run out of epochs, first.
    """

    join_key: str
    log_dir: str
    broker_id: int | None
    topic: str
    partition: int
    segments: list[str]
    worlds: dict[str, World] = field(default_factory=dict)
    producers_seen: int = 0
    one_batch: int = 0
    span: int = 0
    wraps: tuple[int, int] = (0, 0)
    rates: tuple[float, float] = (0.0, 0.0)
    hours: dict[int, tuple[int, int]] = field(default_factory=dict)
    fastest: list[dict[str, int]] = field(default_factory=list)


def replay_copy(task: CopyTask, names: tuple[str, ...], settings: Settings) -> CopyWorlds:
    """Reads a copy and replays it under the named policies. Cost: one reading, and one walk a policy."""
    return _Replay(task, names, settings).run()


class _Replay:
    def __init__(self, task: CopyTask, names: tuple[str, ...], settings: Settings) -> None:
        copy = task.copy
        self.task, self.names, self.settings = task, names, settings
        self.out = CopyWorlds(
            task.join_key, copy.log_dir, task.broker_id, copy.topic or "", copy.partition or 0,
            [s.name for s in copy.segments],
        )  # fmt: skip
        bases = [s.base_offset for s in copy.segments]
        self.log_start = max([task.log_start or 0, *bases[:1]])
        stored = self._snapshots()
        ids, at = _first_known(stored)
        self.worlds = {name: pol.new_world(POLICIES[name], self._params(stored, name), ids, at) for name in names}
        before = [(offset, entries) for offset, entries in stored if bases and offset <= bases[0]]
        if before:
            self._load(*before[-1])

    def _params(self, stored: list[tuple[int, ProducerEntries]], name: str) -> np.ndarray:
        segments, task, limits = self.task.copy.segments, self.task, self.settings
        params = np.zeros(pol.PARAMS, np.int64)
        start = [k for k, s in enumerate(segments) if s.base_offset <= self.log_start]
        cleaned = (
            task.cleaner_offset if task.cleaner_offset is not None else (segments[-1].base_offset if segments else 0)
        )
        params[pol.P_LOG_START] = self.log_start
        params[pol.P_START_SEGMENT] = start[-1] if start else -1
        params[pol.P_INTACT_FROM] = cleaned if task.may_be_cleaned else 0
        params[pol.P_SEQUENCES] = self.out.topic not in SEQUENCE_FREE_TOPICS
        params[pol.P_BROKER_TIMES] = self.out.topic in INTERNAL_TOPICS
        default = EXPIRATION_MS.get(name, OLD_EXPIRATION_MS)
        params[pol.P_EXPIRY_MS] = default if limits.expiration_ms is None else limits.expiration_ms
        params[pol.P_CHECK_MS] = limits.check_ms
        params[pol.P_RETENTION_MS] = -1 if task.compacted else limits.retention_ms
        params[pol.P_RETENTION_BYTES] = -1 if task.compacted else limits.retention_bytes
        params[pol.P_NEWEST_TIME] = limits.newest_time
        params[pol.P_FIRST_SNAPSHOT] = min([offset for offset, _ in stored], default=pol.NEVER)
        return params

    def _snapshots(self) -> list[tuple[int, ProducerEntries]]:
        """The snapshots that can be read, by offset; what cannot be is told by the audit."""
        out = []
        for file in self.task.copy.snapshots:
            data = read_file(self.task.place, file.name, limit=self.task.limits.small_file(file.kind))
            if not isinstance(data, DecodeError):
                entries, errors = decode_snapshot(data, file.name)
                if not errors:
                    out.append((file.offset, entries))
        return sorted(out, key=lambda pair: pair[0])

    def _load(self, offset: int, entries: ProducerEntries) -> None:
        """Begins with what the snapshot knew; what it rests on counts as one segment that retention takes first."""
        rows = len(entries.producer_id)
        for name in self.names:
            w = self.worlds[name] = pol.with_room(self.worlds[name], rows)
            for k in range(rows):
                pol.load_entry(
                    w, POLICIES[name], entries.producer_id[k], entries.producer_epoch[k], entries.coordinator_epoch[k],
                    entries.last_timestamp[k], entries.current_txn_first_offset[k], entries.last_sequence[k],
                    entries.last_offset[k], entries.offset_delta[k],
                )  # fmt: skip
            if rows:
                w.scalars[pol.S_SEGMENT_NEWEST] = int(entries.last_timestamp.max())
                pol.end_segment(w, offset)

    def run(self) -> CopyWorlds:
        """The whole copy."""
        segments = self.task.copy.segments
        for number, segment in enumerate(segments):
            for w in self.worlds.values():
                w.scalars[pol.S_SEGMENT] = number
            f = open_file(self.task.place, segment.name)
            if isinstance(f, DecodeError):
                self._unreadable()
                continue
            try:
                following = segments[number + 1].base_offset if number + 1 < len(segments) else -1
                for chunk in read_segment(
                    f, segment.size, file=segment.name, limits=self.task.limits,
                    offsets=offset_range(segment.base_offset, following),
                ):  # fmt: skip
                    self._replay_between_errors(chunk)
            finally:
                f.close()
            if number + 1 < len(segments):
                self._end_segment(segments[number + 1].base_offset)
        self._finish()
        return self.out

    def _replay_between_errors(self, chunk: Chunk) -> None:
        """The batches of a chunk; each stretch of bytes that are none is noted where it lies."""
        at = 0
        for error in chunk.errors:
            behind = int(np.searchsorted(chunk.batches.position, error.position))
            self._replay(chunk.batches.take(slice(at, behind)))
            self._unreadable()
            at = behind
        self._replay(chunk.batches.take(slice(at, None)))

    def _unreadable(self) -> None:
        for w in self.worlds.values():
            w.scalars[pol.S_UNREADABLE] = w.scalars[pol.S_ORDINAL]

    def _replay(self, b: BatchColumns) -> None:
        for name in self.names:
            w = self.worlds[name] = pol.with_room(self.worlds[name], len(b.position))
            pol.replay_under(w, POLICIES[name], b, 0, len(b.position))

    def _end_segment(self, next_base: int) -> None:
        for name in self.names:
            self.worlds[name] = pol.with_room(self.worlds[name], 0)
            pol.end_segment(self.worlds[name], next_base)

    def _finish(self) -> None:
        for name, w in self.worlds.items():
            s = w.scalars
            self.out.worlds[name] = World(
                w.verdicts[: s[pol.S_VERDICTS]].copy(), int(s[pol.S_DROPPED]), int(s[pol.S_PEAK_PRODUCERS]),
                int(s[pol.S_PEAK_BYTES]), int(s[pol.S_LIVE]),
                int(pol.BYTES_A_PRODUCER * s[pol.S_LIVE] + pol.BYTES_A_BATCH * s[pol.S_CACHED]), int(s[pol.S_LATE]),
            )  # fmt: skip
        wide = max(self.names, key=lambda name: POLICIES[name].cached_batches)
        self._numbers(self.worlds[wide])

    def _numbers(self, w: pol.World) -> None:
        """What holds whatever the policy."""
        used = int(w.producers.meta[0])
        h, ids = w.history[:used], w.producers.producer_id[:used]
        wrote = h["batches"] > 0
        h, ids = h[wrote], ids[wrote]
        out = self.out
        out.producers_seen, out.one_batch = len(h), int(np.count_nonzero(h["batches"] == 1))
        if not len(h):
            return
        out.span = int(h["span"].max())
        transactional = h["transactional"] == 1
        out.wraps = int(h["wraps"][~transactional].sum()), int(h["wraps"][transactional].sum())
        elapsed = (h["last_time"] - h["first_time"]).astype(np.int64)
        rate = np.where(elapsed >= LEAST_MS, h["records"] * HOUR_MS / np.maximum(elapsed, 1), 0.0)
        if out.topic not in SEQUENCE_FREE_TOPICS:
            out.rates = float(rate[~transactional].sum()), float(rate[transactional].sum())
            out.fastest = _fastest(h, ids)
        hours = h["first_time"] // HOUR_MS
        for hour in np.unique(hours).tolist():
            mine = hours == hour
            out.hours[int(hour)] = int(np.count_nonzero(mine)), int(ids[mine].max())


def _first_known(stored: list[tuple[int, ProducerEntries]]) -> tuple[np.ndarray, np.ndarray]:
    """Producer ids that snapshots know, sorted, and the offset of the first snapshot that knows each."""
    if not stored:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    ids = np.concatenate([np.asarray(entries.producer_id, np.int64) for _, entries in stored])
    at = np.concatenate([np.full(len(entries.producer_id), offset, np.int64) for offset, entries in stored])
    unique, first = np.unique(ids, return_index=True)
    return unique, at[first]


def _fastest(h: np.ndarray, ids: np.ndarray) -> list[dict[str, int]]:
    """The producers with the most sequences or epochs a time, each once."""
    elapsed = np.maximum(h["last_time"] - h["first_time"], 1)
    bumps = h["last_epoch"].astype(np.int64) - h["first_epoch"]
    by_records = np.argsort(-h["records"] / elapsed, kind="stable")[:SHOWN]
    by_epochs = [k for k in np.argsort(-bumps / elapsed, kind="stable")[:SHOWN] if bumps[k] > 0]
    names = (
        "batches",
        "records",
        "first_time",
        "last_time",
        "first_epoch",
        "last_epoch",
        "span",
        "wraps",
        "transactional",
    )
    return [
        {"producer_id": int(ids[k])} | {name: int(h[name][k]) for name in names}
        for k in dict.fromkeys([*by_records.tolist(), *map(int, by_epochs)])
    ]
