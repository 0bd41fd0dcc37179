"""The audit's own listener of the reader: the compiled replay, the snapshots it passes, and the facts it leaves."""

from __future__ import annotations

import numpy as np

from auditor.connectors.codec import batch as walking
from auditor.facts.copy_facts import EVENT, TRANSACTION, CopyFacts
from auditor.replay import finish
from auditor.replay import state as st
from auditor.replay.bounds import CopyBounds
from auditor.replay.kernel import replay_batches
from auditor.replay.snapshot_chain import Chain, Stored

MAX_EVENTS_OF_A_KIND = 10_000  # kept per copy; what is beyond is counted


class AuditReplay:
    """The replay of one copy into its facts. ``compacted``: its records may have been cleaned away.

    ``epochs`` and ``epoch_starts`` are those of the leader-epoch checkpoint. Memory: the producers' states.
    """

    def __init__(
        self,
        facts: CopyFacts,
        bounds: CopyBounds,
        stored: list[Stored],
        checkpoint: tuple[np.ndarray, np.ndarray],
        *,
        compacted: bool,
    ) -> None:
        self.facts, self.bounds, self.stored = facts, bounds, stored
        self.kept: dict[int, int] = {}
        self.events: list[np.ndarray] = []
        self.transactions: list[np.ndarray] = []
        self.chain = Chain(stored, bounds.log_start, compacted)
        self.replay = st.new_replay(_params(bounds), *checkpoint)

    @property
    def broker_time(self) -> int:
        """The newest broker-written time so far, ms."""
        return int(self.replay.scalars[st.S_BROKER_TIME])

    @property
    def expected(self) -> int:
        """The next offset, -1 before the first batch."""
        return int(self.replay.scalars[st.S_EXPECTED])

    @property
    def segment(self) -> int:
        """The number of the segment being read."""
        return int(self.replay.scalars[st.S_SEGMENT])

    def begin_segment(self, number: int, base_offset: int, after: int) -> None:
        """A segment comes; ``after`` is the next one's base offset, -1 for none."""
        scalars = self.replay.scalars
        scalars[[st.S_SEGMENT, st.S_SEGMENT_BASE, st.S_SEGMENT_NEXT]] = number, base_offset, after
        scalars[[st.S_SEGMENT_TIME, st.S_SEGMENT_ANY_TIME]] = -1

    def end_segment(self, after: int) -> None:
        """Notes the newest time of the segment."""
        scalars = self.replay.scalars
        self.facts.segment_times.append(int(max(scalars[st.S_SEGMENT_TIME], scalars[st.S_SEGMENT_ANY_TIME])))

    def note_unreadable(self, *, lost: bool, until: int = 0) -> None:
        """Bytes that could not be read lie here, perhaps with what offsets up to ``until`` held."""
        scalars = self.replay.scalars
        until = max(until, int(scalars[st.S_EXPECTED]))
        scalars[[st.S_UNREADABLE, st.S_UNREADABLE_AT]] = scalars[st.S_ORDINAL], until
        if lost:
            self.facts.state["lost_at"] = until

    def take(self, b: np.ndarray) -> None:
        """Replays the rows of a walk, stopping at each snapshot's offset to compare."""
        at, rows = 0, len(b)
        while at < rows:
            stop = rows
            if self.chain.waiting:
                behind = np.flatnonzero(b[at:, walking.BASE_OFFSET] >= self.chain.next_offset())
                stop = at + int(behind[0]) if len(behind) else rows
                if stop == at:
                    time = int(b[at, walking.MAX_TIMESTAMP])
                    self.chain.compare(self.replay, self.replay.scalars[st.S_UNREADABLE] < 0, time)
                    continue
            self.replay = st.ensure_room(self.replay, stop - at)
            at = int(replay_batches(self.replay, b, at, stop))
            self._drain()

    def _drain(self) -> None:
        scalars = self.replay.scalars
        if scalars[st.S_EVENTS]:
            self.keep([self.replay.log.events[: scalars[st.S_EVENTS]].copy()])
        if scalars[st.S_TRANSACTIONS]:
            self.transactions.append(self.replay.transactions[: scalars[st.S_TRANSACTIONS]].copy())
        scalars[[st.S_EVENTS, st.S_TRANSACTIONS]] = 0

    def keep(self, found: list[np.ndarray]) -> None:
        """Keeps events up to a number of each kind, and counts those beyond."""
        for events in found:
            for kind in np.unique(events["kind"]) if len(events) else ():
                mine = events[events["kind"] == kind]
                room = max(0, MAX_EVENTS_OF_A_KIND - self.kept.get(int(kind), 0))
                self.kept[int(kind)] = self.kept.get(int(kind), 0) + min(room, len(mine))
                if len(mine) > room:
                    dropped = self.facts.dropped_events
                    dropped[int(kind)] = dropped.get(int(kind), 0) + len(mine) - room
                self.events.append(mine[:room])

    def finish(self, last_base: int) -> None:
        """Fills the facts, when every segment has been replayed; ``last_base``: where the last one begins."""
        facts, scalars = self.facts, self.replay.scalars
        facts.log_end = max(int(scalars[st.S_EXPECTED]), facts.log_start, last_base, 0)
        self.chain.finish(self.replay, scalars[st.S_UNREADABLE] < 0, facts.log_end)
        events = np.concatenate([np.empty(0, EVENT), *self.events])
        facts.events = events[np.lexsort((events["position"], events["segment"]))]
        facts.transactions = np.concatenate(
            [np.empty(0, TRANSACTION), *self.transactions, finish.open_rows(self.replay)]
        )
        facts.snapshots = self.chain.links
        finish.add_snapshot_knowledge(facts, self.replay, self.stored)
        facts.sums = finish.sums(self.replay)
        facts.last_leader_epoch = int(scalars[st.S_LEADER_EPOCH])
        facts.broker_time, facts.any_time = int(scalars[st.S_BROKER_TIME]), int(scalars[st.S_ANY_TIME])
        facts.state |= {
            "intact_from": self.bounds.intact_from,
            "first_time": int(scalars[st.S_FIRST_TIME]),
            "unreadable": bool(scalars[st.S_UNREADABLE] >= 0),
            "unreadable_at": max(0, int(scalars[st.S_UNREADABLE_AT])) if scalars[st.S_UNREADABLE] >= 0 else -1,
            "ahead": finish.pending_ahead(self.replay),
        }


def _params(bounds: CopyBounds) -> np.ndarray:
    params = np.zeros(st.PARAMS, np.int64)
    params[st.P_LOG_START] = bounds.log_start
    params[st.P_START_SEGMENT] = bounds.start_segment
    params[st.P_INTACT_FROM] = bounds.intact_from
    params[st.P_SEQUENCES] = bounds.sequences
    params[st.P_BROKER_TIMES] = bounds.broker_times
    params[st.P_EXPIRY_MS] = bounds.expiration_ms
    params[st.P_KRAFT] = bounds.kraft
    return params
