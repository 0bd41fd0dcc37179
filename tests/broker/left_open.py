"""Histories of transactions that are left open: hanging, beyond their time-out, within it.

Who left them is gone, so their coordinators' partitions have no later record; the broker works on for others.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.broker.cluster import Cluster, Driver, Made
from tests.broker.jars import numbers
from tests.broker.raw_requests import Wire

NAP = 0.5  # seconds until the markers of a finished transaction are surely there
PASSES = 12  # seconds in which a broker writes its high watermarks down twice, every five
OVERDUE = 36  # seconds beyond a time-out that no look of the coordinator's explains
UNVERIFIED = {"transaction_partition_verification_enable": "false"}
UNSWEPT = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": "3600000"}
BUSY = "teller"  # alone in partition 1 of __transaction_state's three, by String.hashCode; the others in 0 and 2


def first_transaction(run: Driver, topic: str) -> None:
    """A client's transaction: only clients ask for the coordinator, which creates ``__transaction_state``."""
    run(f"load first {topic} 1 n=1")
    run("wait")


def late_writes(version: str, scratch: Path, target: Path, **settings: str) -> Made:
    """Transactions left hanging, in a broker that ends by ``kill -9``."""
    with Cluster(version, scratch, 1, **settings) as cluster, Driver(cluster) as run, Wire(cluster.ports[0]) as wire:
        run("topic bank.ledger 4 1")
        first_transaction(run, "bank.ledger")
        hanging = [late(wire, "bank-abort", 0, commit=False), late(wire, "bank-commit", 1, commit=True), stray(wire)]
        for k in range(12):  # the coordinator of every id writes on: its copy reaches beyond all that
            run(f"load other{k} bank.ledger 1 parts=4 n=1")
        run("wait")
        cluster.kill()
        at = cluster.copy(target)
    return Made(at, hanging)


def late(wire: Wire, name: str, partition: int, *, commit: bool) -> dict[str, Any]:
    """Data behind the end of its transaction; what is to be found."""
    producer = wire.init(name)
    assert wire.add(name, producer, "bank.ledger", partition) == 0
    assert wire.produce("bank.ledger", partition, producer, 0, 10, transactional_id=name, age_ms=0)[0] == 0
    assert wire.end(name, producer, commit=commit) == 0
    time.sleep(NAP)
    answer = wire.produce("bank.ledger", partition, producer, 10, 4, transactional_id=name)
    return _left(partition, name, producer, answer, 4)


def stray(wire: Wire) -> dict[str, Any]:
    """Data in a partition that its transaction does not have; what is to be found."""
    name = "bank-stray"
    producer = wire.init(name)
    assert wire.add(name, producer, "bank.ledger", 0) == 0
    answer = wire.produce("bank.ledger", 2, producer, 0, 5, transactional_id=name)
    assert wire.end(name, producer, commit=True) == 0
    time.sleep(NAP)
    return _left(2, name, producer, answer, 5)


def _left(partition: int, name: str, producer: tuple[int, int], answer: tuple[int, int], n: int) -> dict[str, Any]:
    assert answer[0] == 0, answer
    return {
        "finding": "hanging_transaction", "topic": "bank.ledger", "partition": partition, "transactionalId": name,
        "producerId": producer[0], "producerEpoch": producer[1], "firstOffset": answer[1],
        "lastOffset": answer[1] + n - 1,
    }  # fmt: skip


def idle_held(version: str, scratch: Path, target: Path, *, kill: bool) -> Made:
    """Hanging ones of half a minute and of seconds, one beyond its time-out, one within it; copied in the documented
    order after ``kill -9``, or while the broker runs."""
    settings = UNSWEPT | (UNVERIFIED if numbers(version) >= (3, 6) else {})
    with Cluster(version, scratch, 1, **settings) as cluster, Driver(cluster) as run, Wire(cluster.ports[0]) as wire:
        run("topic bank.ledger 4 1")
        run("topic bank.open 2 1")
        run("topic bank.day 1 1")
        first_transaction(run, "bank.ledger")
        overdue = _open(wire, "bank-late", 0, timeout_ms=3000)
        _open(wire, "bank-open", 1, timeout_ms=600_000)
        found = [late(wire, "bank-abort", 0, commit=False), late(wire, "bank-commit", 1, commit=True)]
        run(f"load {BUSY} bank.day {1000 * (OVERDUE + PASSES)} n=1 size=8 pause=400")
        time.sleep(OVERDUE)
        found.append(stray(wire))
        time.sleep(PASSES - 2)
        if kill:
            cluster.kill()
        at = cluster.copy_in_order(target)
    late_one = {"finding": "transaction_past_timeout", "transactionalId": "bank-late", "timeoutMs": 3000}
    return Made(at, [*found, late_one | {"producerId": overdue[0], "producerEpoch": overdue[1]}])


def _open(wire: Wire, name: str, partition: int, timeout_ms: int) -> tuple[int, int]:
    """A transaction that nobody ends; its producer id and epoch."""
    producer = wire.init(name, timeout_ms)
    assert wire.add(name, producer, "bank.open", partition) == 0
    assert wire.produce("bank.open", partition, producer, 0, 4, transactional_id=name, age_ms=0)[0] == 0
    return producer


def idle_running(version: str, scratch: Path, target: Path) -> Made:
    """A healthy broker, copied slowly in the documented order while it works: an application that stopped after its
    last commit, another that stopped within its transaction, and one that goes on."""
    with Cluster(version, scratch, 1) as cluster, Driver(cluster) as run:
        run("topic bank.ledger 4 1")
        run("load bank-commit bank.ledger 1500 parts=4 n=2 size=8 pause=40")
        run("load desk bank.ledger 1500 parts=4 n=2 size=8 pause=60")
        run("copy group bank.ledger bank.ledger 1500")
        run("wait")
        run("producer open transactional.id=bank-open transaction.timeout.ms=600000")
        run("init open")
        run("begin open")
        for partition in range(4):
            run(f"send open bank.ledger {partition} 3 size=8")
        run(f"load {BUSY} bank.ledger {1000 * 2 * PASSES} parts=4 n=1 size=8 pause=60")
        time.sleep(PASSES)
        at = cluster.copy_in_order(target, pause=0.5)
        run("wait")
    return Made(at, [])


def _idle(tag: str, version: str) -> dict[str, tuple[str, str, Callable[[Path, Path], Made]]]:
    """Three campaigns of a release."""
    silent = "transactions whose coordinators fell silent"
    killed, held = (partial(idle_held, version, kill=kill) for kill in (True, False))
    return {
        f"idle-killed-{tag}": (version, f"Hanging, overdue and open {silent}, ended by kill -9", killed),
        f"idle-held-{tag}": (version, f"Hanging, overdue and open {silent}, the broker running", held),
        f"idle-running-{tag}": (version, f"Healthy {silent}, the broker running", partial(idle_running, version)),
    }


IDLE = {
    name: campaign
    for tag, version in (("28", "2.8.2"), ("39", "3.9.1"), ("41", "4.1.0"), ("43", "4.3.1"))
    for name, campaign in _idle(tag, version).items()
}
