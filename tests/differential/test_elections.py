"""Elections against Kafka's own PartitionChangeBuilder, over random partitions."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Sequence

import pytest

from auditor.model.leader_election import ElectionState, without
from tests.broker.jars import BUILD, classpath, compiled
from tests.differential.broker import HERE, needs_kafka

pytestmark = needs_kafka
CASES = 20_000


def case(at: random.Random) -> tuple[ElectionState, int, frozenset[int], bool]:
    """A partition as a controller may have it, the broker that leaves its ISR, who is up, and whether ELR is on."""
    brokers = range(1, 6)
    replicas = tuple(at.sample(brokers, at.randint(1, 5)))
    isr = tuple(at.sample(replicas, at.randint(1, len(replicas))))
    alive = frozenset(b for b in brokers if at.random() < 0.7)
    elr_enabled = at.random() < 0.6
    others = [b for b in replicas if b not in isr]
    elr = tuple(at.sample(others, at.randint(0, len(others)))) if elr_enabled else ()
    up = [b for b in isr if b in alive]
    leader = at.choice(up) if up and at.random() < 0.9 else -1
    known = (at.choice(replicas),) if elr_enabled and leader < 0 and at.random() < 0.5 else ()
    least = at.randint(1, 4)
    state = ElectionState(replicas, isr, leader, elr, known, least, at.random() < 0.4)
    return state, at.choice(isr), alive, elr_enabled


def text(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers)) or "-"


@pytest.mark.parametrize("version", ["3.9.1", "4.3.1"])
def test_every_election_is_kafkas(version: str) -> None:
    jars = compiled(HERE / "elections" / "Elections.java", BUILD / version, classpath(version))
    at = random.Random(60)
    cases = [case(at) for _ in range(CASES)]
    if version == "3.9.1":  # whose controller elects a last known leader though it is down (ELR was a preview)
        cases = [one for one in cases if not one[0].last_known]
    lines = [
        " ".join(
            (text(s.replicas), text(s.isr), str(s.leader), text(s.elr), text(s.last_known), str(s.least),
             str(s.unclean).lower(), str(on).lower(), str(broker), text(sorted(alive)))
        )
        for s, broker, alive, on in cases
    ]  # fmt: skip
    ran = subprocess.run(
        ["java", "-Xmx256m", "-cp", jars, "Elections"],
        input="\n".join(lines), capture_output=True, text=True, check=True,
    )  # fmt: skip
    kafkas = [line for line in ran.stdout.splitlines() if line[:1] in "-0123456789" and line.count(" ") == 3]
    ours = []
    for state, broker, alive, on in cases:
        after = without(state, broker, alive, elr_enabled=on)
        s = after.state
        ours.append(f"{s.leader} {text(s.isr)} {text(sorted(s.elr))} {str(after.lossy).lower()}")
    assert len(kafkas) == len(ours)
    wrong = [(line, k, o) for line, k, o in zip(lines, kafkas, ours, strict=True) if k != o]
    assert wrong == [], wrong[:5]
    assert {k.split(" ")[3] for k in kafkas} == {"true", "false"}
    assert sum(k.startswith("-1") for k in kafkas) > CASES // 100
