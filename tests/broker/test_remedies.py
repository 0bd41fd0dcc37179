"""Remedies carried out on real clusters: brought into a state by real means, audited, what the findings say done as it
is printed. What was promised must come: readers go on, exactly what was said to be lost is lost, and a second audit has
nothing to say above info."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

from tests.broker.as_printed import LOST, STARTED, Operator, commands, of
from tests.broker.cluster import Cluster, Driver, segment_bytes
from tests.broker.jars import missing_tools
from tests.broker.left_open import UNVERIFIED, first_transaction, late, stray
from tests.broker.raw_requests import Wire

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(missing_tools() is not None, reason=str(missing_tools()))]

IDLE_S = 36  # beyond the difference of clocks that is reckoned with (30 s)
FENCED = {"broker_session_timeout_ms": "6000"}  # soon, once a broker is killed
AWAY = "bank.away"  # a partition each for ABORT and COMMIT, on broker 2 alone


def test_placeholder() -> None: ...


def _coordinators_write_on(run: Driver, topic: str, parts: int = 1) -> None:
    """The coordinators of all ids: their logs then show what they did not do."""
    for k in range(12):
        run(f"load other{k} {topic} 1 parts={parts} n=1")
    run("wait")


def _ended_while_away(cluster: Cluster, run: Driver) -> dict[str, range]:
    """Transactions that are ended while broker 2, which alone has a partition of each, is killed: their offsets there,
    of ``abort`` and ``commit`` in this order of partitions."""
    sent = {}
    run(f"topic {AWAY} 2 1 on=2")
    for partition, end in enumerate(("abort", "commit")):
        run(f"producer {end} transactional.id=away-{end}")
        run(f"init {end}")
        run(f"begin {end}")
        first, last = map(int, run(f"send {end} {AWAY} {partition} 3 size=8").split())
        run(f"send {end} bank.here 0 2 size=8")
        sent[end] = range(first, last + 1)
    cluster.kill(2)
    time.sleep(12)  # until it is fenced
    for end in sent:
        run(f"{end} {end}")
    return sent


def _wait_until(done: Any, what: str, seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < until, what
        time.sleep(1)


@pytest.mark.parametrize("level", [1, 2])
def test_an_abort_loses_what_it_says_and_no_more(level: int, tmp_path: Path) -> None:
    """Under both versions of transactions: data behind the end of its transaction, data that its transaction does not
    have, and markers that a 4.3.1 coordinator skipped (KAFKA-20734), of which the COMMIT is written again."""
    words = ("--feature", f"transaction.version={level}")
    with (
        Cluster("4.3.1", tmp_path / "cluster", 2, voters=1, heap="256m", format_words=words, **UNVERIFIED, **FENCED,
                transaction_state_log_replication_factor="1") as cluster,
        Driver(cluster) as run, Wire(cluster.ports[0]) as wire,
    ):  # fmt: skip
        operator = Operator(cluster, run, tmp_path)
        for topic, parts in (("bank.ledger", 4), ("bank.here", 1)):
            run(f"topic {topic} {parts} 1 on=1")
        first_transaction(run, "bank.ledger")
        for partition in range(3):
            run(f"reassign __transaction_state {partition} 1")
        time.sleep(5)
        made = [late(wire, "bank-abort", 0, commit=False), late(wire, "bank-commit", 1, commit=True), stray(wire)]
        held = {("bank.ledger", each["partition"]): range(each["firstOffset"], each["lastOffset"] + 1) for each in made}
        sent = _ended_while_away(cluster, run)
        cluster.start(2)
        cluster.await_port(2)
        _wait_until(lambda: all(run(f"open {AWAY} {p}", may_fail=True).strip().endswith(":0") for p in (0, 1)), AWAY)
        held[AWAY, 0] = sent["abort"]
        time.sleep(IDLE_S)
        _coordinators_write_on(run, "bank.ledger", 4)

        before = {place: operator.reads(*place) for place in (*held, (AWAY, 1))}
        hanging = operator.audit("before")
        assert [row["rule"] for row in hanging] == ["hanging-transaction"] * 5
        for place, offsets in held.items():
            row = of(hanging, "hanging-transaction", *place)
            assert range(row["offset"], row["last_offset"] + 1) == offsets
            confirm, abort = commands(row)
            assert f"\t{row['offset']} " in operator.paste(confirm)
            operator.paste(abort)
            assert LOST.search(row["remedy"])[1] == str(len(offsets))
        commit = of(hanging, "hanging-transaction", AWAY, 1)
        _write_marker(wire_of := commit, cluster)

        for place, offsets in held.items():
            readable, written = operator.reads(*place), operator.reads(*place, "read_uncommitted")
            dropped = [o for o in written if o < offsets.start and o not in before[place]]  # aborted by its client
            assert sorted({*written} - {*readable}) == [*dropped, *offsets]
        assert operator.reads(AWAY, 1) == [*sent["commit"]]
        for partition, end in enumerate(sent):  # whose transactions were ended by hand goes on
            run(f"begin {end}")
            run(f"send {end} {AWAY} {partition} 1")
            run(f"commit {end}")
            assert len(operator.reads(AWAY, partition)) == (1 if end == "abort" else 4)
        assert operator.audit("after") == []


def _write_marker(row: dict[str, Any], cluster: Cluster) -> None:
    """The COMMIT marker that a remedy has written again, by the request that it names."""
    said = re.search(
        r"WriteTxnMarkers request \(API key 27, needs ClusterAction\) to the leader of (\S+)-(\d+) with producerId "
        r"(\d+), producerEpoch (\d+), coordinatorEpoch (\d+) and transactionResult true", row["remedy"],
    )  # fmt: skip
    assert said is not None, row["remedy"]
    producer_id, epoch, coordinator_epoch = map(int, said.groups()[2:])
    with Wire(cluster.ports[1]) as leader:
        assert leader.mark(said[1], int(said[2]), (producer_id, epoch), coordinator_epoch, commit=True) == 0


def test_a_decided_transaction_ends_once_its_partition_has_a_leader(tmp_path: Path) -> None:
    """A 4.1.0 coordinator waits for a broker that was killed: with the copy of the other broker alone, and with both."""
    with Cluster("4.1.0", tmp_path / "cluster", 2, voters=1, heap="256m", **FENCED) as cluster, Driver(cluster) as run:
        time.sleep(4)
        operator = Operator(cluster, run, tmp_path)
        run("topic bank.here 1 1 on=1")
        first_transaction(run, "bank.here")
        sent = _ended_while_away(cluster, run)
        _coordinators_write_on(run, "bank.here")
        time.sleep(IDLE_S)
        _coordinators_write_on(run, "bank.here")

        for name, brokers in (("alone", (1,)), ("both", ())):
            found = operator.audit(name, *brokers)
            prepared = [row for row in found if row["rule"] == "stuck-prepare"]
            assert {row["transactional_id"] for row in prepared} == {"away-abort", "away-commit"}
            assert {row["rule"] for row in found} == {"stuck-prepare", "partition-offline"}
            assert {STARTED.search(row["remedy"])[1] for row in found} == {"2"}
        shown = {command for row in found for command in commands(row, "kafka-topics.sh")}
        (look,) = shown
        assert all(f"Topic: {AWAY}\tPartition: {p}" in operator.paste(look) for p in (0, 1))

        cluster.start(2)
        cluster.await_port(2)
        operator.paste_until(look, lambda said: not said.strip())
        _wait_until(lambda: operator.reads(AWAY, 1) == [*sent["commit"]], "no COMMIT")
        assert operator.reads(AWAY, 0) == []
        assert operator.reads(AWAY, 0, "read_uncommitted") == [*sent["abort"]]
        for row in prepared:  # what would be next where it did not go on, and does no harm
            (elect,) = commands(row, "kafka-leader-election.sh")
            operator.paste(elect)
        assert operator.audit("after") == []
