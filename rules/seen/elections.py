"""Who led a partition, and whether its leader was one that had to have all of it: what the controller decided."""

from __future__ import annotations

from typing import NamedTuple

UP, SHUTTING_DOWN = "up", "shutting down"  # how a broker stands
RECOVERING = 1  # LeaderRecoveryState: elected without being in sync, and not yet seen to it


class Election(NamedTuple):
    """A leader that the controller put in place, by a PartitionChangeRecord of ``__cluster_metadata``.

    ``offset`` (in the metadata log) and ``time`` (ms) are None where only a snapshot says it. The lists ``_before``
    are those of the record before: replicas in sync, eligible (ELR), and the last known eligible one. ``recovering``:
    this record set RECOVERING; ``reassigned``: it completed a reassignment. ``last_leader``: the broker that led last.
    ``left_sync``: the metadata offset at which the new leader had left the in-sync set, None where that is not shown;
    ``in_sync_to_the_end``: the last leader's own metadata log ends before that record, so that it had stopped by then.
    """

    topic_id: str
    leader: int
    leader_epoch: int
    last_leader: int
    isr: tuple[int, ...]
    isr_before: tuple[int, ...]
    elr_before: tuple[int, ...]
    last_known_elr_before: tuple[int, ...]
    recovering: bool
    reassigned: bool
    offset: int | None
    time: int | None
    left_sync: int | None = None
    in_sync_to_the_end: bool = False

    @property
    def clean(self) -> bool:
        """Whether the leader had all that was committed: it was in sync, or eligible. Source: KIP-966."""
        if self.recovering:
            return False
        return self.reassigned or self.leader in self.isr_before or self.leader in self.elr_before

    @property
    def only_its_own_tail(self) -> bool:
        """Whether the leader had led last, alone: nobody else can have more, only its own unflushed tail can be gone.

        An automatic election after a kill, where a partition has one replica. Source: KIP-966, last known ELR.
        """
        return self.last_known_elr_before == (self.leader,)


def standing(
    rank: tuple[int, int], settled_end: int, reach: int, broker_id: int | None, named: int | None
) -> tuple[int, int, bool]:
    """Orders the replicas of a log: the highest is the leader replica (rules.md, *leader copy*).

    ``rank``: last leader epoch and log end; an end that is not settled counts only as far as any replica is sure to
    ``reach``. Of equals it is who led last by the metadata; not that one always: its copy may have been made before
    the others', and then it lacks what it wrote itself.
    """
    end = rank[1] if rank[1] <= reach else settled_end
    return (rank[0], end, broker_id is not None and broker_id == named)


class WithoutLeader(NamedTuple):
    """A time (ms) in which nobody led a partition, since ``offset`` in the metadata log; ``until`` is None while it
    lasts."""

    topic_id: str
    since: int
    until: int | None = None
    offset: int | None = None


class Offline(NamedTuple):
    """A partition that nobody leads at the end of the metadata, while some broker of the cluster is up.

    ``in_sync``: the replicas in sync and the eligible ones (ELR), each with how its broker stands: ``up``, ``fenced``,
    ``shutting down`` or ``not registered``; ``up``: the brokers that are up, the first of them.
    """

    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: dict[int, str]
    up: tuple[int, ...]


class Absent(NamedTuple):
    """A replica in sync by the metadata whose broker is in the input without a folder of it.

    ``in_sync``: the replicas in sync, and the eligible ones, as before the shutdowns that end the metadata;
    ``sure``: its broker's own metadata ends with it, and its files are of one moment with that.
    """

    topic: str
    partition: int
    broker_id: int
    in_sync: tuple[int, ...]
    sure: bool


class Alone(NamedTuple):
    """What waits for one broker while it is down: ``names``, the partitions (``topic-N``) of which it has the only
    replica in sync, and the ids of the ``producers`` that have transactions there by these logs, some of each log."""

    names: tuple[str, ...] = ()
    producers: tuple[int, ...] = ()


Elections = dict[tuple[str, int], list[Election]]
Leaderless = dict[tuple[str, int], list[WithoutLeader]]
