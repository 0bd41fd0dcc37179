"""The audit's own listener of the reader: the compiled replay, the snapshots it passes, and the facts it leaves."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from auditor.connectors.codec import batches as walking
from auditor.connectors.codec.batches import FLAW_CRC, UNVERIFIED
from auditor.facts.batch_sums import joined
from auditor.facts.replica_facts import ReplicaFacts
from auditor.model.policies import KIP_360, Policy
from auditor.replay.producers import finish
from auditor.replay.producers import state as st
from auditor.replay.producers.bounds import ReplicaBounds
from auditor.replay.producers.kernel import replay_and_note, replay_batches
from auditor.replay.producers.snapshot_chain import Chain, Stored
from auditor.replay.task.batch_records import as_records

MAX_EVENTS_OF_A_KIND = 10_000  # kept per replica; what is beyond is counted


class AuditReplay:
    """The replay of one replica into its facts. ``compacted``: its records may have been cleaned away; ``policy``: what
    its broker decides by; ``noted``: whether what each batch came to is asked for (:attr:`steps`).

    ``checkpoint``: epochs and their starts of the leader-epoch checkpoint. Memory: the producers' states.
    """

    def __init__(
        self,
        facts: ReplicaFacts,
        bounds: ReplicaBounds,
        stored: list[Stored],
        checkpoint: tuple[np.ndarray, np.ndarray],
        *,
        compacted: bool,
        policy: Policy = KIP_360,
        noted: bool = False,
    ) -> None:
        self.facts, self.bounds, self.stored = facts, bounds, stored
        self.kept: dict[int, int] = {}
        self.events: list[np.ndarray] = []
        self.transactions: list[np.ndarray] = []
        self.chain = Chain(stored, bounds.log_start, compacted)
        self.replay = st.new_replay(_params(bounds), *checkpoint, policy)
        self.noted = noted
        self.steps = np.empty(1024 if noted else 0, st.STEP)

    @property
    def broker_time(self) -> int:
        """The newest broker-written time so far, ms."""
        return int(self.replay.progress["broker_time"])

    @property
    def expected(self) -> int:
        """The next offset, -1 before the first batch."""
        return int(self.replay.progress["expected_offset"])

    @property
    def segment(self) -> int:
        """The number of the segment being read."""
        return int(self.replay.progress["segment"])

    def take_flaws(self) -> int:
        """The flaws of the batches since it was asked last, all together."""
        progress = self.replay.progress
        flaws, progress["flaws"] = int(progress["flaws"]), 0
        return flaws & ~UNVERIFIED

    def begin_segment(self, number: int, base_offset: int, after: int) -> None:
        """A segment comes; ``after`` is the next one's base offset, -1 for none."""
        progress = self.replay.progress
        progress["segment"], progress["segment_base_offset"] = number, base_offset
        self.segment_ends(after)
        progress["segment_time"] = progress["segment_any_time"] = -1

    def segment_ends(self, after: int) -> None:
        """The segment being read has this one behind it by now, by its base offset, -1 for none."""
        self.replay.progress["next_segment_base_offset"] = after

    def end_segment(self, after: int) -> None:
        """Notes the newest time of the segment."""
        progress = self.replay.progress
        self.facts.segment_times.append(int(max(progress["segment_time"], progress["segment_any_time"])))

    def note_unreadable(self, *, lost: bool, until: int = 0) -> None:
        """Bytes that could not be read lie here, perhaps with what offsets up to ``until`` held."""
        progress = self.replay.progress
        until = max(until, int(progress["expected_offset"]))
        progress["unreadable_ordinal"], progress["unreadable_offset"] = progress["ordinal"], until
        if lost:
            self.facts.lost_at = until

    def _note_checksums(self, rows: np.ndarray) -> None:
        """Note which offsets have batches with a CRC mismatch, and batches whose checksum nobody has verified."""
        flaws = rows[:, walking.FLAWS]
        if not np.bitwise_or.reduce(flaws, initial=0) & (UNVERIFIED | FLAW_CRC):
            return
        damaged = rows[flaws & FLAW_CRC != 0, walking.BASE_OFFSET]
        if len(damaged):
            self.facts.damaged = joined(self.facts.damaged, damaged, damaged)
        found = rows[flaws & UNVERIFIED != 0]
        if len(found):
            self.facts.unverified_batches += len(found)
            self.facts.unverified = joined(
                self.facts.unverified, found[:, walking.BASE_OFFSET], found[:, walking.LAST_OFFSET]
            )

    def take(self, rows: np.ndarray) -> None:
        """Replays the rows of a walk one by one, stopping at each snapshot's offset to compare. Where they are noted,
        ``steps`` then has a STEP for each of them, until the next call."""
        if self.noted and len(self.steps) < len(rows):
            self.steps = np.empty(2 * len(rows), st.STEP)
        self._note_checksums(rows)
        at, batches = 0, as_records(rows)
        self.chain.date(batches, self.bounds.broker_times)
        while at < len(rows):
            stop = len(rows)
            if self.chain.waiting:
                behind = np.flatnonzero(batches["base_offset"][at:] >= self.chain.next_offset())
                stop = at + int(behind[0]) if len(behind) else stop
                if stop == at:
                    self._compare()
                    self.chain.date(batches[at:], self.bounds.broker_times)
                    continue
            self.replay = st.ensure_room(self.replay, stop - at)
            if self.noted:
                at = int(replay_and_note(self.replay, batches, at, stop, self.steps))
            else:
                at = int(replay_batches(self.replay, batches, at, stop))
            self._drain()

    def _compare(self) -> None:
        """Compares the next snapshot, before whose offset the replay stands."""
        self.chain.compare(self.replay, self.replay.progress["unreadable_ordinal"] < 0)

    def _drain(self) -> None:
        events, transactions = st.take_rows(self.replay)
        if len(events):
            self.keep([events])
        if len(transactions):
            self.transactions.append(transactions)

    def keep(self, found: Iterable[np.ndarray]) -> None:
        """Keeps events up to a number of each kind, and counts those beyond."""
        for events in found:
            for kind in np.unique(events["kind"]) if len(events) else ():
                mine = events[events["kind"] == kind]
                room = max(0, MAX_EVENTS_OF_A_KIND - self.kept.get(int(kind), 0))
                self.kept[int(kind)] = self.kept.get(int(kind), 0) + min(room, len(mine))
                if len(mine) > room:
                    dropped = self.facts.dropped_events
                    dropped[int(kind)] = dropped.get(int(kind), 0) + len(mine) - room
                if room:
                    self.events.append(mine[:room].copy())  # a slice would keep all of them in memory

    def finish(self, last_base: int) -> None:
        """Fills the facts, when every segment has been replayed; ``last_base``: where the last one begins. To be called
        last: the replay is another's then."""
        facts, progress = self.facts, self.replay.progress
        facts.log_end = max(int(progress["expected_offset"]), facts.log_start, last_base, 0)
        self.chain.finish(self.replay, progress["unreadable_ordinal"] < 0, facts.log_end)
        if self.events:
            events = np.concatenate(self.events)
            facts.events = events[np.lexsort((events["kind"], events["position"], events["segment"]))]
        facts.transactions = finish.open_rows(self.replay)
        if self.transactions:
            facts.transactions = np.concatenate([*self.transactions, facts.transactions])
        facts.snapshots = self.chain.links
        finish.add_snapshot_knowledge(facts, self.replay, self.stored)
        facts.sums = finish.sums(self.replay)
        facts.last_leader_epoch = int(progress["leader_epoch"])
        facts.broker_time, facts.any_time = int(progress["broker_time"]), int(progress["any_time"])
        facts.first_time, facts.intact_from = int(progress["first_time"]), self.bounds.intact_from
        facts.unreadable = bool(progress["unreadable_ordinal"] >= 0)
        facts.unreadable_at = max(0, int(progress["unreadable_offset"])) if facts.unreadable else -1
        facts.ahead = finish.pending_ahead(self.replay)
        st.let_go(self.replay)


def _params(bounds: ReplicaBounds) -> np.ndarray:
    params = {
        "log_start": bounds.log_start,
        "intact_from": bounds.intact_from,
        "has_sequences": bounds.sequences,
        "broker_times": bounds.broker_times,
        "expiration_ms": bounds.expiration_ms,
        "is_kraft": bounds.kraft,
    }
    return np.array([tuple(params[name] for name in st.PARAMS.names or ())], st.PARAMS)
