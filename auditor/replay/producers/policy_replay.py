"""One replica under several policies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from auditor.base.errors import bounded
from auditor.facts.replica_facts import LEAST_MS, SHOWN, PolicyOutcomes, ReplicaPolicyOutcome, state_bytes
from auditor.model.policies import Policy
from auditor.replay.producers import policy_kernel
from auditor.replay.producers.audit_replay import ReplicaBounds, inherited
from auditor.replay.producers.snapshot_chain import Stored
from auditor.replay.task import FAR, PolicySettings, as_records

HOUR_MS = 3_600_000


def _relevant(policy: Policy) -> Policy:
    """The policy without what neither a leader's answer to a single append nor the size of its state depends on."""
    return policy._replace(
        snapshots_follow_log_start=False,
        follower_checks_markers=False,
        lone_marker_completes=False,
        open_needs_same_epoch=False,
        verifies=False,
        bumps_each_transaction=False,
        after_max_ms=-1,
    )


class PolicyReplay:
    """Replays one replica under some policies; those that cannot differ are replayed once.

    ``first_base``: base offset of the first segment, -1 for none; ``start_known``: whether the log starts where
    ``bounds`` say; ``newest_time``: no producer's clock is believed beyond it, ms.
    """

    def __init__(
        self,
        policies: Sequence[PolicySettings],
        bounds: ReplicaBounds,
        stored: Sequence[Stored],
        first_base: int,
        *,
        start_known: bool = True,
        newest_time: int = FAR,
    ) -> None:
        self.same = {p.name: p._replace(name="", policy=_relevant(p.policy)) for p in policies}
        self.worlds = {key: policy_kernel.new_world(key.policy, _rules(key, bounds)) for key in self.same.values()}
        self.bounds = bounds
        inherited_ids = inherited(stored, first_base)
        self.paces = policy_kernel.new_rates(bounds, inherited_ids, start_known=start_known, newest_time=newest_time)
        before = [s for s in stored if s.sound and 0 <= s.offset <= first_base]
        if before:
            self._load(max(before, key=lambda s: s.offset))

    def _load(self, stored: Stored) -> None:
        """Begin with the snapshot's producers; what it rests on counts as one segment that retention removes first."""
        rows = np.empty(len(stored.entries.producer_id), np.int32)
        self.paces = policy_kernel.rates_with_room(self.paces, len(rows))
        policy_kernel.load_rates(self.paces, stored.entries, rows)
        for key, world in self.worlds.items():
            self.worlds[key] = policy_kernel.verdicts_with_room(world, len(rows))
            policy_kernel.load_entries(self.worlds[key], key.policy, stored.entries, rows)
            if len(rows):
                policy_kernel.end_segment(self.worlds[key], stored.offset)

    def begin_segment(self, number: int) -> None:
        """Begin the segment of this number."""
        for world in self.worlds.values():
            world.totals["segment"] = number

    def take(self, rows: np.ndarray, steps: np.ndarray) -> None:
        """Replay the rows of a walk by the audit replay's STEP rows, which are changed."""
        batches, count = as_records(rows), len(rows)
        highest = int(steps["row"][:count].max(initial=-1))
        self.paces = policy_kernel.rates_with_room(self.paces, count, highest)
        policy_kernel.complete_steps(self.paces, batches, steps, count)
        for key in self.worlds:
            self.worlds[key] = policy_kernel.verdicts_with_room(self.worlds[key], count)
            policy_kernel.replay_under(self.worlds[key], key.policy, batches, steps, count)

    def end_segment(self, after: int) -> None:
        """End the segment; the next one begins at the offset ``after``, -1 for none."""
        for key in self.worlds if after >= 0 else ():
            self.worlds[key] = policy_kernel.verdicts_with_room(self.worlds[key], 0)
            policy_kernel.end_segment(self.worlds[key], after)

    def finish(self) -> PolicyOutcomes:
        """Return the outcomes."""
        outcomes = {key: _outcome(world) for key, world in self.worlds.items()}
        out = PolicyOutcomes({name: outcomes[key] for name, key in self.same.items()})
        out.newest_time = int(self.paces.place["any_time"][0])
        self._count(out)
        return out

    def _count(self, out: PolicyOutcomes) -> None:
        """Count what holds for every policy."""
        used = int(self.paces.ids.meta[0])
        h, ids = self.paces.pace[:used], self.paces.ids.producer_id[:used]
        wrote = h["batches"] > 0
        h, ids = h[wrote], ids[wrote]
        out.producers_seen, out.one_batch = len(h), int(np.count_nonzero(h["batches"] == 1))
        if not len(h):
            return
        out.span = int(h["span"].max())
        transactional = h["transactional"] == 1
        out.wraps = int(h["wraps"][~transactional].sum()), int(h["wraps"][transactional].sum())
        elapsed = h["last_time"] - h["first_time"]
        rate = np.where(elapsed >= LEAST_MS, h["records"] * HOUR_MS / np.maximum(elapsed, 1), 0.0)
        if self.bounds.sequences:
            out.rates = float(rate[~transactional].sum()), float(rate[transactional].sum())
            out.fastest = _fastest(h, ids)
        hours = h["first_time"] // HOUR_MS
        for hour in np.unique(hours).tolist():
            in_hour = hours == hour
            out.hours[int(hour)] = int(np.count_nonzero(in_hour)), int(ids[in_hour].max())


def _rules(settings: PolicySettings, bounds: ReplicaBounds) -> policy_kernel.Rules:
    return policy_kernel.Rules(bounds.log_start, bounds.sequences, *(bounded(value) for value in settings[2:]))


def _outcome(world: policy_kernel.World) -> ReplicaPolicyOutcome:
    t = {name: int(world.totals[name][0]) for name in policy_kernel.TOTALS.names or ()}
    return ReplicaPolicyOutcome(
        world.verdicts[: t["verdicts"]].copy(),
        t["dropped"],
        t["peak_producers"],
        t["peak_bytes"],
        t["live"],
        state_bytes(t["live"], t["cached"]),
        t["late"],
    )


def _fastest(h: np.ndarray, ids: np.ndarray) -> list[dict[str, int]]:
    """The producers with the most sequences or epochs per time, each once."""
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
