"""Which replica a controller elects when a broker leaves."""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

# Source: PartitionChangeBuilder and ReplicationControlManager.generateLeaderAndIsrUpdates (KRaft, KIP-966);
# PartitionLeaderElectionAlgorithms (ZooKeeper), which decide alike where ELR is off.

NO_LEADER = -1


class ElectionState(NamedTuple):
    """Replicas of a partition in the order of their assignment, those in sync, its leader (-1: none), and its ELR.

    ``last_known``: the field lastKnownElr, which has the last leader of a partition without one. ``least``:
    min.insync.replicas. ``unclean``: whether an unclean election is allowed.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    elr: tuple[int, ...] = ()
    last_known: tuple[int, ...] = ()
    least: int = 1
    unclean: bool = False

    @property
    def effective_least(self) -> int:
        """Return the in-sync replicas that acks=all needs: at most all replicas. Source: Partition.effectiveMinIsr."""
        return min(self.least, len(self.replicas))

    @property
    def refuses(self) -> bool:
        """Whether its leader refuses appends with acks=all."""
        return self.leader >= 0 and len(self.isr) < self.effective_least


class Elected(NamedTuple):
    """A partition after a change. ``lossy``: the leader was elected without being in sync or eligible."""

    state: ElectionState
    lossy: bool = False


def without(state: ElectionState, broker: int, alive: Container[int], *, elr_enabled: bool) -> Elected:
    """Return a partition after the controller has removed a broker that stops, or that it fences.

    ``alive``: brokers that are neither fenced nor shutting down. A partition that does not have the broker in its ISR
    is left as it is.
    """
    if broker not in state.isr:
        return Elected(state)
    isr = tuple(b for b in state.isr if b != broker)
    elr: tuple[int, ...] = ()
    if elr_enabled and len(isr) < state.effective_least:
        elr = tuple(b for b in dict.fromkeys((*state.elr, *state.isr)) if b not in isr)

    def may_lead(replica: int) -> bool:
        has_all = replica in isr or (not isr and replica in elr)
        return has_all and replica != broker and replica in alive

    order = (state.leader, *state.replicas)
    leader = next((b for b in order if may_lead(b)), NO_LEADER)
    lossy = False
    if (
        leader == NO_LEADER
        and (again := _not_in_sync(state, broker, alive, last=elr_enabled and not (isr or elr))) >= 0
    ):
        leader, lossy = again, True
    if lossy or leader in elr:
        isr, elr = (leader,), () if lossy else tuple(b for b in elr if b != leader)
    elif not isr and not elr_enabled:
        isr = state.isr  # the last in-sync replica stays in the ISR
    return Elected(state._replace(isr=isr, leader=leader, elr=elr), lossy)


def _not_in_sync(state: ElectionState, broker: int, alive: Container[int], *, last: bool) -> int:
    """Return the last leader known, where nobody is in sync or eligible (KIP-966), or one of an unclean election."""
    known = state.last_known if last and len(state.last_known) == 1 else ()
    candidates = (*known, *(state.replicas if state.unclean else ()))
    return next((b for b in candidates if b != broker and b in alive), NO_LEADER)
