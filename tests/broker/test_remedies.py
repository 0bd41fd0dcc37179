"""Remedies carried out on real clusters: brought into a state by real means, audited, what the findings say done as it
is printed. What was promised must come: readers go on, exactly what was said to be lost is lost, and a second audit has
nothing to say above info."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from kafka.admin import ACL, ACLOperation, ACLPermissionType, KafkaAdminClient, ResourcePattern, ResourceType

from auditor.connectors.live.live_cluster import Budget
from auditor.connectors.live.marker_writer import MarkerCluster
from auditor.pipeline.commit_marker import CommittedOpen, decide, look
from tests.broker.as_printed import DONE, STARTED, Operator, commands, named_alone, of
from tests.broker.cluster import CLUSTER_ID, Cluster, Driver, segment_bytes
from tests.broker.dumped import markers
from tests.broker.jars import missing_tools
from tests.broker.left_open import UNVERIFIED, first_transaction, late, stray
from tests.broker.missing_markers import Finisher, begun, cut_last_batch, flip_last_record, more
from tests.broker.raw_requests import Wire

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(missing_tools() is not None, reason=str(missing_tools()))]

IDLE_S = 36  # beyond the difference of clocks that is reckoned with (30 s)
FENCED = {"broker_session_timeout_ms": "6000"}  # soon, once a broker is killed
AWAY = "bank.away"  # a partition each for ABORT and COMMIT, on broker 2 alone


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
        _coordinators_write_on(run, AWAY, 2)  # whose copy must reach beyond all that, too
        _coordinators_write_on(run, "bank.ledger", 4)

        before = {place: operator.reads(*place) for place in (*held, (AWAY, 1))}
        hanging = operator.audit("before")
        assert [row["kind"] for row in hanging] == ["hanging-transaction"] * 5
        for place, offsets in held.items():
            row = of(hanging, "hanging-transaction", *place)
            assert range(row["offset"], row["last_offset"] + 1) == offsets
            confirm, abort = commands(row)
            assert re.search(rf"(?m)^{row['producer_id']}\s.*\t{row['offset']}\s*$", operator.paste(confirm))
            operator.paste(abort)
            assert f"consumers never get {len(offsets)} records " in row["advice"]["side_effects"]
        commit = of(hanging, "hanging-transaction", AWAY, 1)
        _write_marker(commit, cluster)

        for place, offsets in held.items():
            readable, written = operator.reads(*place), operator.reads(*place, "read_uncommitted")
            dropped = [o for o in written if o < offsets.start and o not in before[place]]  # aborted by its client
            assert sorted({*written} - {*readable}) == [*dropped, *offsets]
        assert {*sent["commit"]} <= {*operator.reads(AWAY, 1)}
        assert operator.reads(AWAY, 1) == operator.reads(AWAY, 1, "read_uncommitted")
        for partition, end in enumerate(sent):  # whose transactions were ended by hand goes on
            run(f"begin {end}")
            offset = int(run(f"send {end} {AWAY} {partition} 1").split()[0])
            run(f"commit {end}")
            assert operator.reads(AWAY, partition)[-1] == offset
        assert operator.audit("after") == []


def _write_marker(row: dict[str, Any], cluster: Cluster) -> None:
    """The COMMIT marker that a remedy has written again, by the request that it names."""
    said = re.search(
        r"WriteTxnMarkers request (?:\(API key 27, needs ClusterAction\) )?to the leader of "
        r"(\S+)-(\d+): producerId (\d+), producerEpoch (\d+), coordinatorEpoch (\d+), transactionResult true",
        row["remedy"],
    )  # fmt: skip
    assert said is not None, row["remedy"]
    producer_id, epoch, coordinator_epoch = map(int, said.groups()[2:])
    with Wire(cluster.ports[1]) as leader:
        assert leader.mark(said[1], int(said[2]), (producer_id, epoch), coordinator_epoch, commit=True) == 0


def test_a_decided_transaction_ends_once_its_partition_has_a_leader(tmp_path: Path) -> None:
    """A 4.1.0 coordinator waits for a killed broker: with the copy of the other broker alone, and with both."""
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
            prepared = [row for row in found if row["kind"] == "stuck-prepare"]
            assert {row["transactional_id"] for row in prepared} == {"away-abort", "away-commit"}
            assert {row["kind"] for row in found} == {"stuck-prepare", "partition-offline"}
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
        assert operator.audit("after") == []


def test_a_replica_is_fetched_again_without_a_loss(tmp_path: Path) -> None:
    """A bit of broker 2's disk has flipped: in a log that it follows, and in one that it leads, which nobody can read
    any further then. Each is fetched again from broker 1."""
    with Cluster("4.3.1", tmp_path / "cluster", 2, voters=1, heap="256m") as cluster, Driver(cluster) as run:
        time.sleep(4)
        operator = Operator(cluster, run, tmp_path)
        run("topic bank.ledger 2 2")
        first_transaction(run, "bank.ledger")
        assert {run(f"leader bank.ledger {p}") for p in (0, 1)} == {"1", "2"}
        run("load teller bank.ledger 4000 parts=2 n=3 size=20 pause=40")
        run("wait")
        whole = {p: operator.reads("bank.ledger", p) for p in (0, 1)}
        for partition in whole:
            _flip(cluster.log_dir(2) / f"bank.ledger-{partition}" / f"{0:020}.log")

        for partition in whole:  # one after the other: each is whole again before the next is begun with
            row = of(operator.audit(f"damaged-{partition}"), "batch-crc-mismatch", "bank.ledger", partition)
            assert row["broker_id"] == 2
            dump, look, alone, behind, *ids = commands(row)
            assert operator.paste(behind).strip() == ""  # every replica is in sync: the broker may be stopped
            assert operator.alone(alone, 2) == named_alone(row)
            assert all(operator.state(command) in DONE for command in ids if "describe" in command)
            assert "isvalid: false" in operator.paste(dump, cluster.log_dir(2))
            assert _in_sync(operator.paste(look), partition) == {1, 2}
            assert operator.move_away(row) == 2
            operator.paste_until(look, lambda said, p=partition: _in_sync(said, p) == {1, 2})
        assert {p: operator.reads("bank.ledger", p) for p in whole} == whole
        assert operator.audit("after") == []


def test_a_broker_is_stopped_and_no_transaction_hangs(tmp_path: Path) -> None:
    """A 4.3.1 coordinator skips the markers of partitions without a leader (KAFKA-20734): broker 2 has one of one
    replica, with a transaction open in it, and is to be stopped since a replica of another one is damaged."""
    with (
        Cluster("4.3.1", tmp_path / "cluster", 2, voters=1, heap="256m",
                transaction_state_log_replication_factor="2") as cluster,
        Driver(cluster) as run,
    ):  # fmt: skip
        time.sleep(4)
        operator = Operator(cluster, run, tmp_path)
        run("topic bank.ledger 1 2")
        run(f"topic {AWAY} 1 1 on=2")
        first_transaction(run, "bank.ledger")
        run("load teller bank.ledger 3000 n=3 size=20 pause=40")
        run("wait")
        for name in ("quick", "open"):
            run(f"producer {name} transactional.id=away-{name} transaction.timeout.ms=600000")
            run(f"init {name}")
            run(f"begin {name}")
            run(f"send {name} {AWAY} 0 3 size=8")
            if name == "quick":
                run(f"commit {name}")
        _flip(cluster.log_dir(2) / "bank.ledger-0" / f"{0:020}.log")
        row = of(operator.audit("damaged"), "batch-crc-mismatch", "bank.ledger", 0)
        assert row["broker_id"] == 2
        assert f"{AWAY}-0" in named_alone(row)
        ended, only, *asked = [each["do"] or each["command"] for each in row["advice"]["steps"]][:-1]
        assert ", if brokers run 4.3.0, 4.3.1 or 4.4.0 (KAFKA-20734): end the transactions of " in ended
        assert {"away-open", "away-quick"} <= set(re.findall(r"away-\w+", ended))
        assert only.startswith("stop the broker only when these commands show each id as Empty, Complete")
        asked = [command for command in asked if "describe" in command]
        assert {"Ongoing"} < {operator.state(command) for command in asked}  # so the broker is not stopped yet
        run("commit open")
        for name in ("quick", "open"):
            run(f"close {name}")
        for command in asked:
            operator.paste_until(command, lambda said: any(f"\t{state}" in said for state in DONE))
        for look in row["advice"]["conditions"]:
            if "--under-replicated" in look["command"]:
                assert operator.paste(look["command"]).strip() == ""
        assert operator.move_away(row) == 2
        (look,) = (each["command"] for each in row["advice"]["conditions"] if "--topic bank.ledger" in each["command"])
        operator.paste_until(look, lambda said: _in_sync(said, 0) == {1, 2})
        assert "udit again after the start in any case" in row["advice"]["afterwards"]
        assert operator.audit("after") == []
        assert operator.reads(AWAY, 0) == operator.reads(AWAY, 0, "read_uncommitted")
        assert len(operator.reads(AWAY, 0)) == 6


def _flip(file: Path) -> None:
    """One bit in the middle of a file, where it is in the body of a batch."""
    data = bytearray(file.read_bytes())
    at = data.index(b"aaaa", len(data) // 2)
    data[at] ^= 1
    with file.open("r+b") as log:
        log.seek(at)
        log.write(data[at : at + 1])


def _in_sync(described: str, partition: int) -> set[int]:
    """The Isr of a partition as kafka-topics.sh shows it."""
    (isr,) = re.findall(rf"Partition: {partition}\t.*Isr: ([\d,]*)", described)
    return {int(broker) for broker in isr.split(",") if broker}


def test_an_index_is_rebuilt_and_no_record_is_lost(tmp_path: Path) -> None:
    """A transaction index that was emptied shows readers what was aborted, until it is made anew."""
    with Cluster("4.3.1", tmp_path / "cluster", 1, heap="256m") as cluster, Driver(cluster) as run:
        operator = Operator(cluster, run, tmp_path)
        run(f"topic bank.ledger 1 1 {segment_bytes('4.3.1', 4096)}")
        first_transaction(run, "bank.ledger")
        run("load teller bank.ledger 4000 n=3 size=20 pause=40")
        run("wait")
        whole, written = operator.reads("bank.ledger", 0), operator.reads("bank.ledger", 0, "read_uncommitted")
        folder = cluster.log_dir() / "bank.ledger-0"
        index = next(file for file in sorted(folder.glob("*.txnindex")) if file.stat().st_size)
        cluster.stop_one()
        index.write_bytes(b"")
        cluster.start()
        cluster.await_port()
        _wait_until(lambda: operator.reads("bank.ledger", 0) != whole, "the index is not missed")

        found = operator.audit("damaged")
        assert {row["kind"] for row in found} == {"aborted-transaction-not-indexed"}
        row = of(found, "aborted-transaction-not-indexed", "bank.ledger", 0)
        assert row["file"].endswith(index.name)
        operator.move_away(row)
        assert index.stat().st_size
        assert operator.reads("bank.ledger", 0) == whole
        assert operator.reads("bank.ledger", 0, "read_uncommitted") == written
        assert operator.audit("after") == []


def test_a_group_goes_on_within_the_log(tmp_path: Path) -> None:
    """One whose next records were deleted, and one whose offset came from elsewhere and lies behind the log's end."""
    soon = {"log_flush_start_offset_checkpoint_interval_ms": "1000"}  # where the log starts is on disk then
    with Cluster("4.3.1", tmp_path / "cluster", 1, heap="256m", **soon) as cluster, Driver(cluster) as run:
        operator = Operator(cluster, run, tmp_path)
        run("topic bank.ledger 2 1")
        first_transaction(run, "bank.ledger")
        run("load - bank.ledger 2000 parts=2 n=10 size=20 pause=20")
        run("wait")
        for group in ("late", "early"):  # of members that are gone
            run(f"consume {group} bank.ledger 6000")
        run("wait")
        run("commit-offset late bank.ledger 0 20")
        run("commit-offset early bank.ledger 1 1000000")
        run("delete-records bank.ledger 0 50")
        time.sleep(IDLE_S)
        run("load - bank.ledger 500 parts=2 n=10 size=20 pause=20")  # the log's copy is later than the offsets
        run("wait")
        time.sleep(2)
        written = {p: operator.reads("bank.ledger", p, "read_uncommitted") for p in (0, 1)}
        assert written[0][0] == 50
        end = written[1][-1] + 1

        found = operator.audit("before")
        assert {(row["kind"], row["group_id"]) for row in found} == {
            ("committed-offset-out-of-range", "late"), ("committed-offset-out-of-range", "early"),
        }  # fmt: skip
        for row in found:
            (shown,) = commands(row, "kafka-consumer-groups.sh")
            new = {"late": 50, "early": end}[row["group_id"]]
            for command in (shown, shown.replace("--dry-run", "--execute")):  # as the remedy says in words
                assert re.search(rf"{row['group_id']}\s+bank.ledger\s+[01]\s+{new}\b", operator.paste(command))
        assert operator.reads("bank.ledger", 0, "read_committed", "group=late") == written[0]
        assert operator.reads("bank.ledger", 1, "read_committed", "group=early") == []
        assert operator.audit("after") == []


PAID = "bank.paid"  # with a partition for each transaction that is committed without its marker
COMMITTED = ("paid", "moved", "waits")


def _by_partition(rows: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    return {row["partition"]: row for row in rows if (row["kind"], row["topic"]) == ("hanging-transaction", PAID)}


def _written(
    finish: Finisher, operator: Operator, row: dict[str, Any], offsets: range, versions: tuple[int, int]
) -> None:
    """The marker is written once, by a request of a version and with a transaction version; readers get the records,
    once."""
    partition = row["partition"]
    assert not {*offsets} & {*operator.reads(PAID, partition)}
    code, said, journal = finish.write(row)
    assert code == 0, said
    assert [line["step"] for line in journal] == ["before", "request", "answer", "after"]
    assert journal[2]["answer"] == "NoError"
    assert (journal[1]["request"]["version"], journal[1]["request"]["transaction_version"]) == versions
    marker, commit = journal[3]["marker"]
    assert commit
    assert f"COMMIT marker at offset {marker}" in said
    request = journal[1]["request"]
    folder = operator.cluster.log_dir(request["broker"]) / f"{PAID}-{partition}"
    assert markers(operator.cluster.version, folder)[request["producer_id"], request["producer_epoch"], "COMMIT"] == 1
    readable = operator.reads(PAID, partition)
    assert {*offsets} <= {*readable}
    assert readable == operator.reads(PAID, partition, "read_uncommitted") == sorted({*readable})
    again, said, journal = finish.write(row)
    assert (again, journal) == (1, []), said


def _refused(answer: tuple[Any, ...], *reasons: str) -> None:
    assert answer[0] == 1, answer
    assert "All conditions hold" not in answer[1]
    for reason in reasons:
        assert reason in answer[1], answer[1]
    assert answer[2:] in ((), (["before", "refused"],))


@pytest.mark.parametrize(("version", "level"), [("4.3.1", 2), ("4.4.0", 2), ("4.3.1", 1)])
def test_a_skipped_commit_is_finished(
    version: str, level: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both brokers of a topic are killed in turn, and its transactions end meanwhile: no marker is sent
    (KAFKA-20734)."""
    words = ("--feature", f"transaction.version={level}")
    with (
        Cluster(version, tmp_path / "cluster", 3, voters=1, heap="256m", format_words=words, **FENCED) as cluster,
        Driver(cluster) as run,
    ):
        time.sleep(4)
        operator = Operator(cluster, run, tmp_path)
        run("topic bank.here 1 1 on=1")
        run(f"topic {PAID} 4 2")
        first_transaction(run, "bank.here")
        for partition in range(4):
            run(f"reassign {PAID} {partition} 2,3")
        _wait_until(lambda: {run(f"leader {PAID} {p}") for p in range(4)} <= {"2", "3"}, "leaders")
        time.sleep(5)
        names = (*COMMITTED, "void")
        sent = {p: begun(run, name, PAID, p) for p, name in enumerate(names)}
        for broker in (2, 3):
            cluster.kill(broker)
            time.sleep(12)
        for name in names:
            run(f"{'abort' if name == 'void' else 'commit'} {name}")
        for broker in (3, 2):
            cluster.start(broker)
            cluster.await_port(broker)
        _wait_until(lambda: all(":" in run(f"open {PAID} {p}", may_fail=True) for p in range(4)), "open")
        time.sleep(IDLE_S)
        _coordinators_write_on(run, PAID, 4)
        time.sleep(8)

        rows = _by_partition(operator.audit("before"))
        finish = Finisher(operator, "before", capsys, monkeypatch)
        paid, moved, waits, void = (rows[p] for p in range(4))
        for row in (paid, moved, waits):
            assert row["evidence"]["known_defect"] == "KAFKA-20734"
            assert f"auditor finish ID --bootstrap-server {cluster.servers} --out DIR" in row["remedy"]
            code, said = finish.look(row)
            assert (code, "All conditions hold" in said, "FAILS" in said) == (0, True, False), said
            assert ("would commit half of it" in said) == (level < 2)
        _refused(finish.look(void), commands(void)[-1])
        _refused(finish.edited(void, lambda row: _as_committed(row, paid)), "CompleteAbort")
        _refused(
            finish.edited(paid, lambda row: row["evidence"].update(last_sequence=1)), "last sequence as in the run"
        )
        _refused(finish.edited(paid, lambda row: row.update(transactional_id="waits")), "its ID is not that")
        _refused(finish.typed(moved, lambda: _lead_on_1(run, 1)), "a broker leads bank.paid-1: broker")
        _refused(finish.typed(waits, lambda: more(run, "waits", "bank.here", 0)), "Ongoing")
        _refused(finish.look(waits), "Ongoing")
        run(f"send waits {PAID} 2 1")
        run("commit waits")

        operator.paste(commands(void)[-1])
        for partition, row in ((0, paid), (1, moved)):
            _written(finish, operator, row, sent[partition], (2, 2 if level == 2 else 0))  # as clients are recorded
            more(run, names[partition], PAID, partition)
            run(f"commit {names[partition]}")
        whole = {p: operator.reads(PAID, p) for p in range(4)}
        for broker in (2, 3, 1):
            cluster.restart(broker)
            time.sleep(5)
        _wait_until(lambda: {run(f"leader {PAID} {p}", may_fail=True) for p in range(4)} <= {"1", "2", "3"}, "leaders")
        assert {p: operator.reads(PAID, p) for p in range(4)} == whole
        assert {len(sent[p]) + 3 <= len(whole[p]) for p in (0, 1)} == {True}
        assert operator.audit("after") == []


def _as_committed(row: dict[str, Any], other: dict[str, Any]) -> None:
    """An aborted transaction's finding, changed into that of a committed one, as far as the run's files can."""
    mine = row["evidence"]
    row["advice"] = other["advice"]
    mine.update({name: other["evidence"][name] for name in ("decided", "unmarked_transactions", "last_sequence")})
    mine.update(completed_offset=mine["coordinator_offset"], last_timestamp_ms=other["evidence"]["last_timestamp_ms"])


def _lead_on_1(run: Driver, partition: int) -> None:
    run(f"reassign {PAID} {partition} 1")
    _wait_until(lambda: run(f"leader {PAID} {partition}") == "1", "the leader does not move")


@pytest.mark.parametrize("version", ["4.1.0", "3.9.1"])
def test_a_cut_commit_is_finished(
    version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The markers were at the tails of all replicas, and are lost; under transaction.version 2 on 4.1, 0 on 3.9."""
    with (
        Cluster(version, tmp_path / "cluster", 2, voters=1, heap="256m", **FENCED) as cluster,
        Driver(cluster) as run,
    ):
        time.sleep(4)
        operator = Operator(cluster, run, tmp_path)
        run("topic bank.here 1 2")
        run(f"topic {PAID} 3 2")
        first_transaction(run, "bank.here")
        sent = {p: begun(run, name, PAID, p) for p, name in enumerate(COMMITTED)}
        for name in COMMITTED:
            run(f"commit {name}")
        time.sleep(6)
        for broker in (2, 1):
            cluster.kill(broker)
        for folder in (cluster.log_dir(broker) / f"{PAID}-{p}" for broker in (1, 2) for p in sent):
            cut_last_batch(folder)
        for broker in (1, 2):
            cluster.start(broker)
        for broker in (1, 2):
            cluster.await_port(broker)
        _wait_until(lambda: all(":" in run(f"open {PAID} {p}", may_fail=True) for p in sent), "open")
        time.sleep(IDLE_S)
        _coordinators_write_on(run, PAID, 3)
        time.sleep(8)

        rows = _by_partition(operator.audit("before"))
        finish = Finisher(operator, "before", capsys, monkeypatch)
        paid, moved, waits = (rows[p] for p in range(3))
        for row in (paid, moved, waits):
            code, said = finish.look(row)
            assert (code, "All conditions hold" in said, "FAILS" in said) == (0, True, False), said
            assert "would commit half of it" in said
        if version == "3.9.1":  # the next transaction has the same epoch, and goes on with the open one
            more(run, "moved", PAID, 1, 1)
            _refused(finish.look(moved), "last sequence as in the run", "last timestamp as in the run", "Ongoing")
        else:
            _refused(finish.typed(moved, lambda: more(run, "moved", PAID, 1, 1)), "Ongoing", "producer epoch as in")
        run("commit moved")
        _written(finish, operator, paid, sent[0], (1, 0))
        more(run, "paid", PAID, 0)
        run("commit paid")
        whole = {p: operator.reads(PAID, p) for p in (0, 1)}
        for broker in (2, 1):
            cluster.restart(broker)
            time.sleep(5)
        assert {p: operator.reads(PAID, p) for p in (0, 1)} == whole
        assert {(row["kind"], row["partition"]) for row in operator.audit("after")} == {("hanging-transaction", 2)}
        flip_last_record(cluster, run, "waits")
        _refused(finish.look(waits), "damaged from offset")


USER, PASSWORD = "auditor", "reader-secret"
LOGIN = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="broker" password="broker-secret" '
    f'user_{USER}="{PASSWORD}";'
)
GUARDED = {  # clients of PLAINTEXT may do everything, those of GUARDED what they are granted
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,GUARDED:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.name.guarded.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.guarded.plain.sasl.jaas.config": LOGIN,
}
# By the condition that needs it: what docs/finish.md asks for, and what is printed without it.
RIGHTS = {
    "this user may write markers": (ACLOperation.ALTER, ResourceType.CLUSTER, "kafka-cluster",
                                    "no: needs ClusterAction or (3.8 and newer) Alter on the cluster"),
    "paid has no open transaction": (ACLOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "paid",
                                     "(permission: Describe on transactional id paid)"),
    "a broker leads __transaction_state of the id": (ACLOperation.READ, ResourceType.TOPIC, "__transaction_state",
                                                     "(permission: Read on topic __transaction_state)"),
    "enough replicas are in sync": (ACLOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, PAID,
                                    f"(permission: DescribeConfigs on topic {PAID})"),
}  # fmt: skip


def test_each_missing_permission_is_named(tmp_path: Path) -> None:
    """Of a transaction that its client committed, so that all but the open transaction is as it has to be."""
    with (
        Cluster("4.3.1", tmp_path / "cluster", 1, heap="256m", listeners=("GUARDED",), **GUARDED) as cluster,
        Driver(cluster) as run,
    ):
        run(f"topic {PAID} 1 1")
        begun(run, "paid", PAID, 0)
        run("commit paid")
        admin = KafkaAdminClient(bootstrap_servers=cluster.servers)
        others = [
            (ACLOperation.DESCRIBE, ResourceType.CLUSTER, "kafka-cluster"),
            (ACLOperation.READ, ResourceType.TOPIC, PAID),
        ]
        rights = [_right(*of[:3]) for of in (*others, *RIGHTS.values())]
        admin.create_acls(rights)
        assert {what: said for what, said in _asked_as_user(cluster).items() if "permission" in said} == {}
        for what, (*right, said) in RIGHTS.items():
            admin.delete_acls([_right(*right)])
            assert said in _asked_as_user(cluster)[what], what
            admin.create_acls([_right(*right)])
        admin.delete_acls([_right(*others[1])])  # the topic is not seen at all
        assert (
            _asked_as_user(cluster)["a broker leads bank.paid-0"] == f"not visible (permission: Read on topic {PAID})"
        )
        admin.close()


def _right(operation: ACLOperation, kind: ResourceType, name: str) -> ACL:
    return ACL(f"User:{USER}", "*", operation, ACLPermissionType.ALLOW, ResourcePattern(kind, name))


def _asked_as_user(cluster: Cluster) -> dict[str, str]:
    """What a user without more rights than granted is told, by condition."""
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_plain_username": USER,
             "sasl_plain_password": PASSWORD}  # fmt: skip
    asked = CommittedOpen(PAID, 0, 0, 0, 0, "paid", CLUSTER_ID, 3, 1, 2, 0, ())
    time.sleep(2)  # until the broker has the change
    with MarkerCluster(f"127.0.0.1:{cluster.more_ports[0]['GUARDED']}", login) as connected:
        plan = decide(asked, look(connected, asked, Budget(1 << 30, 1 << 30)))
    return {condition.what: condition.value for condition in plan.conditions}
