"""Brokers of a real cluster stopped and killed under transactional load, each after a rehearsal of it.

``python -m tests.broker.rehearsals VERSION SCRATCH ROUNDS [zookeeper]`` prints what was foretold and what happened.
"""

from __future__ import annotations

import shutil
import sys
import time
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from auditor.connectors.live.live_cluster import LiveCluster, PartitionMetadata
from auditor.model.rehearsal import KILL, STOP, ClusterState, Risk, rehearse
from auditor.pipeline.live_rehearsal import state_by_cluster
from tests.audited import opened
from tests.broker.cluster import Cluster, Driver

Place = tuple[str, int]
OFTEN: dict[str, Any] = {
    "broker_session_timeout_ms": "3000",
    "replica_lag_time_max_ms": "3000",
    "auto_leader_rebalance_enable": "false",
}
TOPICS = (
    "lone 6 1",
    "torn 6 1",
    "pair 6 2 min.insync.replicas=2",
    "loose 6 2 unclean.leader.election.enable=true",
    "trio 9 3 min.insync.replicas=2",
    "strict 3 3 min.insync.replicas=3",
)
TEARS = (3, 9)  # rounds after which a killed broker's file ends within a batch


@dataclass
class Tally:
    """What happened in all rounds, and what of it was not in the list; ``extra``: foretold, and did not happen."""

    stops: int = 0
    kills: int = 0
    leader_changes: int = 0
    offline: int = 0
    below_min: int = 0
    hangs: int = 0
    cuts: int = 0
    gaps_ms: list[tuple[int, int]] = field(default_factory=list)  # without leader after a kill: foretold, measured
    missed: list[str] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join(f"{f.name}: {getattr(self, f.name)}" for f in fields(self))


class Rehearsals:
    """The rounds on one cluster."""

    def __init__(self, cluster: Cluster, run: Driver, scratch: Path) -> None:
        self.cluster, self.run, self.scratch = cluster, run, scratch
        self.tally = Tally()
        self.work: dict[tuple[Place, int], tuple[str, list[Risk]]] = {}  # by partition and first offset

    def asked(self, without: int | None = None) -> LiveCluster:
        """A connection to the brokers that are up."""
        servers = self.cluster.servers.split(",")
        return LiveCluster(",".join(s for n, s in enumerate(servers, 1) if n != without), {})

    def metadata(self, without: int | None = None) -> dict[Place, PartitionMetadata]:
        """All partitions by the brokers that are up."""
        with self.asked(without) as live:
            return {log.name: log for log in live.metadata()[2]}

    def in_sync(self, seconds: float = 90) -> None:
        """Wait until every replica is in sync."""
        until = time.monotonic() + seconds
        while any(set(p.isr) != set(p.replicas) or p.leader < 0 for p in self.metadata().values()):
            assert time.monotonic() < until, [p for p in self.metadata().values() if set(p.isr) != set(p.replicas)]
            time.sleep(1)

    def round(self, number: int) -> None:
        """One stop or kill, what came of it, and the start."""
        broker, how = number % 3 + 1, KILL if number % 2 else STOP
        self.in_sync()
        name, place = f"one-{number}", self._led("lone", broker)
        self.run(f"producer {name} transactional.id={name}")
        self.run(f"init {name}")
        self.run(f"begin {name}")
        first = int(self.run(f"send {name} lone {place[1]} 3 size=8").split()[0])
        self.run(f"send {name} trio {number % 9} 2 size=8")
        with self.asked() as live:
            _, state = state_by_cluster(live, int(time.time() * 1000))
            assert live.failures == [], live.failures
        risks = rehearse(state, broker, how)
        self.work[place, first] = name, risks
        if how == KILL:
            self.cluster.kill(broker)
            self.tally.kills += 1
        else:
            self.cluster.stop_one(broker)
            self.tally.stops += 1
        self._fenced(broker, how, risks)
        self._compare(f"round {number}, {how} {broker}", state, self.metadata(without=broker), risks)
        self.run(f"commit {name}", may_fail=True)
        if number in TEARS:
            self._torn(broker)
        self.cluster.start(broker)
        self.cluster.await_port(broker)
        if number in TEARS:
            self._cut_as_foretold(broker)

    def _fenced(self, broker: int, how: str, risks: list[Risk]) -> None:
        """Wait until no metadata has the broker, and note how long that took."""
        begun = time.monotonic()
        with self.asked(broker) as live:
            while broker in live.metadata()[1]:
                assert time.monotonic() - begun < 60
                time.sleep(0.2)
        if how == KILL:
            foretold = max((r.lasts_ms for r in risks if r.lasts_ms is not None), default=0)
            self.tally.gaps_ms.append((foretold, int((time.monotonic() - begun) * 1000)))
        time.sleep(1)

    def _led(self, topic: str, broker: int) -> Place:
        return next(p for p, log in sorted(self.metadata().items()) if p[0] == topic and log.leader == broker)

    def _compare(
        self, what: str, state: ClusterState, after: dict[Place, PartitionMetadata], risks: list[Risk]
    ) -> None:
        moves: dict[Any, Any] = {
            (r.topic, r.partition): r.to_leader for r in risks if r.risk in ("leader_moves", "unclean_election")
        }
        moves |= {(r.topic, r.partition): -1 for r in risks if r.risk == "offline"}
        happened = {
            place: after[place].leader for place, p in state.partitions.items() if after[place].leader != p.leader
        }
        self.tally.leader_changes += sum(leader >= 0 for leader in happened.values())
        self.tally.offline += sum(leader < 0 for leader in happened.values())
        for place in sorted({*moves, *happened}, key=str):
            if moves.get(place) != happened.get(place):
                says = f"{what}: {place} foretold {moves.get(place)}, then {happened.get(place)}"
                (self.tally.missed if place in happened else self.tally.extra).append(says)
        short = {
            place for place, p in state.partitions.items()
            if after[place].leader >= 0 and len(after[place].isr) < p.effective_least
        }  # fmt: skip
        foretold = {(r.topic, r.partition) for r in risks if r.risk == "below_min_isr"}
        self.tally.below_min += len(short)
        self.tally.missed += [f"{what}: {place} below min.insync.replicas" for place in short - foretold]
        self.tally.extra += [f"{what}: {place} not below min.insync.replicas" for place in foretold - short]

    def _torn(self, broker: int) -> None:
        # As a machine that loses power leaves it: the last batch of a file is there in part.
        folder = next(
            f for f in sorted(self.cluster.log_dir(broker).glob("torn-*")) if (f / f"{0:020}.log").stat().st_size
        )
        file = folder / f"{0:020}.log"
        file.write_bytes(file.read_bytes()[:-7])
        copy = self.scratch / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        self.cluster.copy(copy)
        audit = opened(copy)
        (state,) = audit.states.values()
        cuts = [r for r in rehearse(state, broker, KILL) if r.risk == "recovery_cuts"]
        self.foretold_cuts = {
            (str(r.topic), int(r.partition or 0)): int(r.says.split("offset ")[1].split(":")[0]) for r in cuts
        }
        self.torn: Place = ("torn", int(folder.name.rpartition("-")[2]))

    def _cut_as_foretold(self, broker: int) -> None:
        # The only replica has no leader to fetch from: its end is where recovery cut it.
        time.sleep(5)
        end = int(self.run(f"end-of {self.torn[0]} {self.torn[1]}"))
        self.tally.cuts += 1
        if self.foretold_cuts.get(self.torn) != end:
            self.tally.missed.append(f"{self.torn} of broker {broker} cut at {end}, foretold {self.foretold_cuts}")
        self.tally.extra += [f"{place} cut" for place in self.foretold_cuts if place != self.torn]

    def hangs(self) -> None:
        """Compare what is open once all is quiet with what was foretold."""
        time.sleep(10)
        known = set()
        for partition in range(6):
            for held in self.run(f"open lone {partition}").split():
                place, first = ("lone", partition), int(held.partition(":")[2])
                name, risks = self.work[place, first]
                self.tally.hangs += 1
                known.add(name)
                foretold = {(r.topic, r.partition, r.transactional_id) for r in risks if r.risk == "marker_skipped"}
                if (*place, name) not in foretold:
                    self.tally.missed.append(f"{name} hangs in {place}")
        for name, risks in self.work.values():
            skipped = [r for r in risks if r.risk == "marker_skipped" and r.transactional_id == name]
            self.tally.extra += [f"{name} does not hang" for _ in skipped if name not in known]


class ZooKeeperCluster(Cluster):
    """A cluster with a ZooKeeper, of a release that has both."""

    def _start_all(self) -> None:
        self.kraft = False
        super()._start_all()


def rehearsed(version: str, scratch: Path, rounds: int, *, kraft: bool = True) -> Tally:
    """Run the rounds on a new cluster of three brokers."""
    kind = Cluster if kraft else ZooKeeperCluster
    with kind(version, scratch / "cluster", 3, **OFTEN) as cluster:
        time.sleep(8)  # until a controller leads
        with Driver(cluster) as run:
            for topic in TOPICS:
                run(f"topic {topic}")
            run("producer plain")
            for partition in range(6):
                for _ in range(3):
                    run(f"send plain torn {partition} 4 size=8")
            for name in ("t0", "t1"):
                run(f"load {name} trio {rounds * 120_000} parts=9 n=2 size=8 pause=150")
            run(f"copy group trio trio {rounds * 120_000}")
            time.sleep(5)
            done = Rehearsals(cluster, run, scratch)
            for number in range(rounds):
                done.round(number)
            done.in_sync()
            run("stop", may_fail=True)
            done.hangs()
    return done.tally


if __name__ == "__main__":
    done = rehearsed(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), kraft="zookeeper" not in sys.argv)
    sys.stdout.write(f"{done}\n")
