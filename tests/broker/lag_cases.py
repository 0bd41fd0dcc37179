"""Random histories of partitions, groups that stop anywhere in them, and what a real consumer then gets."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.broker.cluster import Driver, segment_bytes

KINDS = ("plain", "compacted", "held", "trimmed", "compacted-held", "rolls", "rolls-held")
SEGMENT, ROLLING = (
    4096,
    512,
)  # bytes of a segment; of one that is full after a few batches, in the midst of transactions


@dataclass(frozen=True)
class Case:
    """A group in a partition, and how many records a real consumer got from its offset on, of each isolation."""

    seed: int
    group: str
    topic: str
    partition: int
    committed: int
    read_committed: int
    read_uncommitted: int


def make_logs(run: Driver, version: str, seeds: range) -> dict[int, tuple[str, int]]:
    """A partition a seed with a history of its own; where each is."""
    clean = "cleanup.policy=compact min.cleanable.dirty.ratio=0.01 delete.retention.ms=100"
    count = -(-len(seeds) // len(KINDS))
    for kind in KINDS:
        small = segment_bytes(version, ROLLING if "rolls" in kind else SEGMENT)
        run(f"topic lag.{kind} {count} 1 {small} {clean if 'compacted' in kind else ''}")
    for name in ("t0", "t1"):
        run(f"producer {name} transactional.id={name}")
        run(f"init {name}")
    run("producer plain")
    places = {}
    for k, seed in enumerate(seeds):
        kind, partition = KINDS[k % len(KINDS)], k // len(KINDS)
        topic = f"lag.{kind}"
        places[seed] = (topic, partition)
        _history(run, random.Random(seed), topic, partition)
        if kind == "trimmed":
            end = max(map(int, run(f"read {topic} {partition} read_uncommitted").split()))
            run(f"delete-records {topic} {partition} {random.Random(seed).randint(1, end)}")
        if "held" in kind:
            _hold(run, random.Random(seed), seed, topic, partition)
    return places


def _history(run: Driver, rng: random.Random, topic: str, partition: int) -> None:
    """Transactions of two producers that overlap, committed and aborted, between plain records."""
    begun: set[str] = set()
    for _ in range(rng.randint(20, 40)):
        name = rng.choice(("t0", "t1", "plain"))
        if name in begun and rng.random() < 0.5:
            run(f"{rng.choice(('commit', 'commit', 'abort'))} {name}")
            begun.discard(name)
            continue
        if name != "plain" and name not in begun:
            run(f"begin {name}")
            begun.add(name)
        _send(run, rng, name, topic, partition)
    for name in sorted(begun):
        run(f"{rng.choice(('commit', 'abort'))} {name}")
    _send(run, rng, "plain", topic, partition)


def _send(run: Driver, rng: random.Random, name: str, topic: str, partition: int) -> None:
    codec = rng.randint(1, 12)
    run(f"send {name} {topic} {partition} {codec} size=20 per={rng.randint(1, 6)} keys=5")


def _hold(run: Driver, rng: random.Random, seed: int, topic: str, partition: int) -> None:
    """A transaction that stays open, with decided and aborted ones, and plain records, behind it."""
    name = f"open-{seed}"
    run(f"producer {name} transactional.id={name} transaction.timeout.ms=900000")
    run(f"init {name}")
    run(f"begin {name}")
    _send(run, rng, name, topic, partition)
    _history(run, rng, topic, partition)
    _send(run, rng, name, topic, partition)


def stop_groups(run: Driver, version: str, places: dict[int, tuple[str, int]], each: int) -> list[Case]:
    """Groups at random places: stopped after so many records, or put to an offset, of a marker or gap too."""
    cases = []
    for seed, (topic, partition) in places.items():
        rng = random.Random(seed * 7919)
        end = int(run(f"end-of {topic} {partition}"))
        for k in range(each):
            group, how = f"g-{seed}-{k}", rng.random()
            if how < 0.5:
                isolation = rng.choice(("read_committed", "read_uncommitted"))
                how_many, ways = rng.randint(1, 60), f"isolation.level={isolation}"
                if version.startswith("4.") and rng.random() < 0.5:
                    ways += " group.protocol=consumer"
                at = int(run(f"stop-group {group} {topic} {partition} {how_many} {ways}"))
            else:
                at = rng.randint(0, end + 1) if how < 0.95 else end + rng.randint(1, 9)
                run(f"commit-offset {group} {topic} {partition} {at}")
            got = [
                run(f"read {topic} {partition} {isolation} group={group} auto.offset.reset=earliest").split()
                for isolation in ("read_committed", "read_uncommitted")
            ]
            cases.append(Case(seed, group, topic, partition, at, len(got[0]), len(got[1])))
    return cases


def share_groups(run: Driver, places: dict[int, tuple[str, int]], each: int) -> dict[str, tuple[str, str]]:
    """Share groups that stopped anywhere in topics of one partition, with records that they rejected or released on
    their way; the topic and the isolation of each."""
    groups = {}
    for seed, (topic, _) in places.items():
        rng = random.Random(seed * 104_729)
        for k in range(each):
            group, isolation = f"s-{seed}-{k}", ("read_committed", "read_uncommitted")[k % 2]
            run(f"config group {group} share.auto.offset.reset=earliest share.isolation.level={isolation}")
            run(f"meanwhile share-take {group} {topic} {rng.randint(1, 80)} seed={seed * each + k}")
            groups[group] = topic, isolation
    run("answers")
    return groups


def taken_by(run: Driver, groups: dict[str, tuple[str, str]]) -> dict[str, list[int]]:
    """What share groups then are given."""
    for group, (topic, _) in groups.items():
        run(f"meanwhile share-take {group} {topic} 1000000")
    said = (line.partition(": ") for line in run("answers").split("; "))
    return {words.split()[2]: [int(offset) for offset in offsets.removeprefix("ok").split()]
            for words, _, offsets in said}  # fmt: skip
