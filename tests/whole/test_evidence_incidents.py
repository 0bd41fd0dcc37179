"""Incidents in which a clock, an incomplete copy or a copy too many decides what is found, each with its twin.

Forged from nothing, or from a real cluster where one is altered: every offset and time is the test's own, and what is
true follows from them.
"""

from __future__ import annotations

import base64
import random
import shutil
import struct
from pathlib import Path

import pytest

from auditor.rules.seen.view import Finding
from tests import bare_broker, corpora
from tests.audited import above_info
from tests.bare_broker import BEGAN, data, end, finish
from tests.broker_clocks import shift
from tests.cluster_writers import LOG_APPEND_TIME, METADATA
from tests.controller_records import Controller
from tests.coordinator_records import Coordinator
from tests.facts import opened
from tests.forge import Batch, Forged
from tests.transformations import add_partition
from tests.whole.test_copied_one_by_one import copied_until, newest_time
from tests.whole.test_never_in_flight import Running

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
OVERDUE = {"timeout-not-enforced", "long-open-transaction", "lso-stuck"}
APP, OTHER = 100, 200  # producer ids
COMMIT = struct.pack(">hh", 0, 1)  # key of a control record
COORDINATOR = "__transaction_state-0"


class Brokers:
    """Brokers stopped cleanly, made from nothing. ``logs``: partition and who leads it at last; ``created``: who led it
    at first, where it was another one. Broker 1 has the metadata and the coordinator of every id."""

    def __init__(self, root: Path, logs: dict[str, int], **created: int) -> None:
        self.root = root
        self.paths: dict[int, Path] = {}
        placed = logs | {COORDINATOR: 1}
        for number in sorted(set(placed.values())):
            folders = [name for name, leader in logs.items() if leader == number]
            self.paths[number] = path = bare_broker.broker(root, *folders, number=number)
            if number != 1:
                shutil.rmtree(path / COORDINATOR)
        first = self.paths[1]
        (first / METADATA).mkdir()
        for suffix in ("log", "index", "timeindex"):
            (first / METADATA / f"{0:020}.{suffix}").touch()
        (first / METADATA / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
        self.controller = Controller(first, BEGAN - DAY)
        for number in self.paths:
            self.controller.register(number)
        for name, leader in placed.items():
            topic = name.rpartition("-")[0]
            fresh = base64.urlsafe_b64encode(topic.encode()[-16:].ljust(16, b"=")).decode().rstrip("=")
            (self.paths[leader] / name / "partition.metadata").write_text(f"version: 0\ntopic_id: {fresh}\n")
            self.controller.create(topic, fresh, created.get(topic, leader))
        self.states = Coordinator(first, 0)
        self.logs = {name: Forged(self.paths[leader], name) for name, leader in logs.items()}
        self.epochs = dict.fromkeys(logs, 0)

    def elect(self, name: str, leader: int, *isr: int) -> None:
        """Another leader epoch of a partition, that of what is written from here on."""
        self.controller.broker = self.paths[leader]
        self.controller.partition(name, isr=isr, replicas=isr)
        self.controller.partition(name, isr=isr, replicas=isr, leader=leader)
        if name == COORDINATOR:
            self.states.load()
            return
        log = self.logs[name]
        (log.folder / "leader-epoch-checkpoint").write_text(f"0\n2\n0 0\n1 {log.end}\n")
        self.epochs[name] = 1

    def write(self, name: str, producer: int, time: int) -> Batch:
        """Three records of a transaction."""
        log = self.logs[name]
        sequence = sum(b["count"] for b in log.data(producer)) if log.all() else 0
        return data(log, producer, sequence, time, transactional=True, leader_epoch=self.epochs[name])

    def transaction(
        self, name: str, time: int, *, known: bool = True, ahead: int = 0, commit: bool = True, producer: int = OTHER
    ) -> None:
        """One that lasts a second. ``ahead``: the clock of the partition's leader; ``known``: to its coordinator."""
        who, decided = (f"id-{producer}", (producer, 0)), "Commit" if commit else "Abort"
        if known:
            self.states.state(who[0], "Ongoing", who[1], time, name, start=time)
        batch = self.write(name, producer, time + ahead + 5)
        if known:
            self.states.state(who[0], f"Prepare{decided}", who[1], time + SECOND, name, start=time)
        end(self.logs[name], batch, commit, time + SECOND + ahead + 2)
        if known:
            self.states.state(who[0], f"Complete{decided}", who[1], time + SECOND + 4, start=time)

    def open(self, name: str, time: int, timeout: int = MINUTE) -> Batch:
        """A transaction of another id that nobody ends."""
        self.states.state("app", "Ongoing", (APP, 0), time, name, start=time, timeout=timeout)
        return self.write(name, APP, time + 5)

    def save(self) -> None:
        """The directories, with the metadata log as new as the newest of the others."""
        self.controller.go_on(max(b["max_time"] for log in (*self.logs.values(), self.states.log) for b in log.all()))
        self.controller.save()
        finish(*self.logs.values(), self.states)

    def are_running(self) -> None:
        for path in self.paths.values():
            (path / ".kafka_cleanshutdown").unlink()

    def found(self) -> list[Finding]:
        """What is above info, at the newest time of the input."""
        self.save()
        return above_info(opened(self.root).findings)


def kinds(found: list[Finding]) -> set[str]:
    return {f.kind for f in found}


# What time is it


@pytest.mark.parametrize("behind", [0, 2 * HOUR])
def test_a_leader_whose_clock_is_behind_makes_no_transaction_younger(behind: int, tmp_path: Path) -> None:
    """Kind 2: u-0 gets another leader, whose clock is two hours behind. Nothing fell; an hour has passed in t-0."""
    found = with_another_leader(tmp_path, behind, overdue=True)
    assert kinds(found) - {"clock-skew"} <= OVERDUE
    assert [f.producer_id for f in found if f.kind in OVERDUE] == [APP]


@pytest.mark.parametrize("behind", [0, 2 * HOUR])
def test_nor_is_a_leader_whose_clock_is_behind_an_incident(behind: int, tmp_path: Path) -> None:
    assert kinds(with_another_leader(tmp_path, behind, overdue=False)) == ({"clock-skew"} if behind else set())


def with_another_leader(root: Path, behind: int, *, overdue: bool) -> list[Finding]:
    brokers = Brokers(root, {"t-0": 1, "u-0": 2}, u=1)
    for number in range(3):
        brokers.transaction("u-0", BEGAN + number * 10 * MINUTE)
    brokers.elect("u-0", 2, 1, 2)
    changed = BEGAN + 40 * MINUTE
    if overdue:
        brokers.open("t-0", changed)
    for number in range(1, 7):
        brokers.transaction("u-0", changed + number * 10 * MINUTE, ahead=-behind)
    return brokers.found()


@pytest.mark.parametrize("other", [False, True])
def test_another_clusters_clock_makes_no_transaction_younger(other: bool, tmp_path: Path) -> None:
    """Kind 3, reversed: the other cluster's clock was two hours ahead for a while and is right since."""
    brokers = Brokers(tmp_path / "one", {"t-0": 1, "u-0": 1})
    brokers.open("t-0", BEGAN)
    for number in range(1, 4):
        brokers.transaction("u-0", BEGAN + number * 10 * MINUTE)
    brokers.save()
    if other:
        another = Running(tmp_path / "other")
        file = another.path / "meta.properties"
        file.write_text(file.read_text().replace("Q0xVU1RFUi0tLS0tLS0tLQ", "b3RoZXItY2x1c3Rlci0tLQ"))
        for time in (-3 * HOUR, -HOUR, -2 * HOUR, -HOUR, 0, 30 * MINUTE):
            another.other(BEGAN + time, another.held, another.busy)
        another.save()
    found = above_info(opened(tmp_path).findings)
    assert [f.producer_id for f in found if f.kind in OVERDUE] == [APP]
    assert kinds(found) <= OVERDUE | {"clock-skew"}


@pytest.mark.parametrize(("age", "overdue"), [(34, False), (36, True), (42, True)])
def test_a_killed_brokers_transaction_is_one_status_everywhere(age: int, overdue: bool, tmp_path: Path) -> None:
    """Kind 7: with a timeout of 5 s it is overdue after 5 + 10 + 20 s, for findings, rows, exit code and headline."""
    brokers = Brokers(tmp_path, {"t-0": 1, "u-0": 1})
    brokers.open("t-0", BEGAN, timeout=5 * SECOND)
    for time in range(2, age - 1, 4):
        brokers.transaction("u-0", BEGAN + time * SECOND)
    brokers.states.state("id-200", "Ongoing", (OTHER, 0), BEGAN + age * SECOND, "u-0", start=BEGAN + age * SECOND)
    brokers.are_running()
    brokers.save()
    audit = opened(tmp_path)
    found = [f for f in above_info(audit.findings) if f.kind in OVERDUE]
    (row,) = [row for row in audit.judged["blocked"] if row["topic"] == "t"]
    (opening,) = [row for row in audit.judged["open"] if row["producer_id"] == APP]
    said = {
        "finding": bool(found), "blocked": row["standing"] == "overdue", "open": opening["standing"] == "overdue",
        "beyond_timeout": row["beyond_timeout"], "exit code": bool(audit.exit_code()),
    }  # fmt: skip
    assert said == dict.fromkeys(said, overdue)


@pytest.mark.parametrize("idle", [False, True])
@pytest.mark.parametrize("stepped", [False, True])
def test_a_clock_step_is_one_finding(stepped: bool, idle: bool, tmp_path: Path) -> None:
    """Kind 8: five producers write before, within and after a minute in which the clock ran two days ahead. One that
    was idle for two days before is one that was idle."""
    brokers = Brokers(tmp_path, {"w-0": 1})
    log = brokers.logs["w-0"]
    if idle:
        for number, time in enumerate((-4 * DAY, -2 * DAY + HOUR)):
            data(log, 300, 3 * number, BEGAN + time, attributes=LOG_APPEND_TIME)
    for number, time in enumerate((0, 2 * DAY * stepped + 20 * SECOND, MINUTE, 2 * MINUTE)):
        for producer in range(APP, APP + 5):
            data(log, producer, 3 * number, BEGAN + time + producer, attributes=LOG_APPEND_TIME)
    expected = [("clock-skew", None)] * stepped + [("producer-expired-while-active", 300)] * idle
    found = brokers.found()
    assert [(f.kind, f.producer_id) for f in sorted(found, key=lambda f: f.kind)] == expected


@pytest.mark.parametrize("idle", [False, True])
def test_a_clock_ahead_before_a_silence_shows_no_idle_producer(idle: bool, tmp_path: Path) -> None:
    """Kind 8: within a minute the clock jumps by three days and is used once; the log goes on two days later, with
    times a day behind. ``idle``: others had written for two days since the producer's last batch."""
    brokers = Brokers(tmp_path, {"w-0": 1})
    log = brokers.logs["w-0"]
    written = [(APP, -2 * DAY if idle else 0), (OTHER, -DAY // 2), (OTHER, MINUTE), (APP, 3 * DAY), (OTHER, 2 * DAY)]
    counts = dict.fromkeys((APP, OTHER), 0)
    for producer, time in sorted(written[:3], key=lambda one: one[1]) + written[3:]:
        data(log, producer, counts[producer], BEGAN + time, attributes=LOG_APPEND_TIME)
        counts[producer] += 3
    found = [(f.kind, f.producer_id) for f in brokers.found() if f.producer_id != OTHER]
    assert found == [("producer-expired-while-active", APP)] * idle + [("clock-skew", None)]


def test_a_clock_behind_for_one_batch_shows_no_idle_producer(tmp_path: Path) -> None:
    """Kind 8: brokers and clients read three days less for a moment, and a marker behind the data shows it."""
    brokers = Brokers(tmp_path, {"w-0": 1})
    for number, time in enumerate((0, 20 * SECOND - 3 * DAY, MINUTE)):
        data(brokers.logs["w-0"], APP, 3 * number, BEGAN + time)
        brokers.transaction("w-0", BEGAN + 30 * SECOND * number, ahead=-3 * DAY * (number == 1), producer=OTHER)
    assert kinds(brokers.found()) == {"clock-skew"}


@pytest.mark.parametrize("name", ["replicas-41", "rolling-cold-copies-43"])
def test_each_wrong_clock_is_one_finding(name: str, tmp_path: Path) -> None:
    """Broker 3 is 20 min behind, broker 1 three hours ahead: both by the clock of broker 2, which is between them."""
    root = corpora.copy(name, tmp_path)
    shift(root, 3, -20 * MINUTE)
    shift(root, 1, 3 * HOUR)
    found = [f for f in above_info(opened(root).findings) if f.kind == "clock-skew"]
    ahead = {tuple(f.evidence["brokers"]): f.evidence["ahead_ms"] for f in found}
    assert len(found) == 2
    assert {brokers: round(by / MINUTE) for brokers, by in ahead.items()} == {(2, 3): -20, (2, 1): 180}


@pytest.mark.parametrize("idle", [False, True])
def test_a_time_far_ahead_of_its_broker_shows_no_idle_producer(idle: bool, tmp_path: Path) -> None:
    """Kind 4: the newest batch of w-0 is stamped a month ahead. If u-0 goes on as long, its producer was idle."""
    brokers = Brokers(tmp_path, {"w-0": 1, "u-0": 1})
    for number, time in enumerate((0, MINUTE, 30 * DAY)):
        data(brokers.logs["w-0"], APP, 3 * number, BEGAN + time, attributes=LOG_APPEND_TIME)
    brokers.transaction("u-0", BEGAN + (30 * DAY if idle else 2 * MINUTE))
    brokers.save()
    shutil.rmtree(brokers.paths[1] / METADATA)
    assert kinds(above_info(opened(tmp_path).findings)) == ({"producer-expired-while-active"} if idle else set())


# How complete is a log


THREE = {"rolling-cold-copies-43": (3, 1), "replicas-41": (2, 1)}  # whose clock is behind, and whose is ahead


@pytest.mark.parametrize("differ", [False, True])
@pytest.mark.parametrize(
    ("name", "running"),
    [("rolling-cold-copies-43", False), ("rolling-cold-copies-43", True), ("replicas-41", True)],
)
def test_three_clocks_that_differ_lose_nothing(name: str, running: bool, differ: bool, tmp_path: Path) -> None:
    """Kind 11: one broker is 40 min behind, another one 55 min ahead. ``running``: copied while they ran, the topics
    before the coordinators' logs."""
    root = corpora.copy(name, tmp_path)
    newest, chance = newest_time(root), random.Random(name)
    if running:
        for mark in root.rglob(".kafka_cleanshutdown"):
            mark.unlink()
        for partition in sorted(root.glob("broker-*/[!_]*-[0-9]*")):
            copied_until(partition, newest - chance.randint(0, 10 * SECOND))
    if differ:
        behind, ahead = THREE[name]
        shift(root, behind, -40 * MINUTE)
        shift(root, ahead, 55 * MINUTE)
    assert kinds(above_info(opened(root).findings)) == ({"clock-skew"} if differ else set())


@pytest.mark.parametrize("ahead", [0, 40 * SECOND])
def test_a_marker_that_was_decided_does_not_make_the_coordinators_log_older(ahead: int, tmp_path: Path) -> None:
    """Kind 14: t-0 has data behind its ABORT marker. The coordinator's log ends with the decision of u-0's marker,
    whose leader's clock is ahead of it; w-0 goes on for an hour."""
    brokers = Brokers(tmp_path, {"t-0": 1, "w-0": 1, "u-0": 2})
    brokers.transaction("t-0", BEGAN, commit=False, producer=APP)
    brokers.transaction("u-0", BEGAN + MINUTE, ahead=ahead)
    late = brokers.write("t-0", APP, BEGAN + 2 * MINUTE)
    for number in range(3, 63):
        data(brokers.logs["w-0"], 300, 3 * (number - 3), BEGAN + number * MINUTE, attributes=LOG_APPEND_TIME)
    data(brokers.logs["t-0"], 300, 0, BEGAN + 61 * MINUTE, attributes=LOG_APPEND_TIME)
    brokers.are_running()
    brokers.save()
    for path in brokers.paths.values():
        (path / "replication-offset-checkpoint").unlink()
    (f,) = [f for f in above_info(opened(tmp_path).findings) if f.kind != "clock-skew"]
    assert (f.kind, f.severity, f.topic, f.offset) == ("hanging-transaction", "critical", "t", late["base_offset"])


@pytest.mark.parametrize(("newest", "severity"), [(-7 * DAY, "critical"), (0, "error")])
def test_an_idle_log_does_not_make_a_proved_hang_doubtful(newest: int, severity: str, tmp_path: Path) -> None:
    """Kind 16: t-0's own stamps show three hours. Another partition of its broker was written a week before, or until
    the transaction began: only then may a clock have jumped."""
    root = incident("held-3h-coordinator-copied-before-it", tmp_path)
    begun = Forged(root / "broker-1", "t-0").all()[1]["max_time"]
    add_partition(root, Path("broker-1"), "idle", 0, tuple(begun + newest - number * MINUTE for number in (2, 1, 0)))
    (f,) = above_info(opened(root).findings)
    assert (f.kind, f.severity, f.producer_id) == ("hanging-transaction", severity, 4)


@pytest.mark.parametrize("lost", [False, True])
def test_a_coordinator_restored_from_a_backup_is_one_finding(lost: bool, tmp_path: Path) -> None:
    """Kind 18: the log of its decisions lacks half an hour, and goes on under another leader epoch."""
    brokers = Brokers(tmp_path, {"t-0": 1, "u-0": 1})
    for number in range(30):
        is_known = not (lost and 10 <= number < 20)
        if lost and number == 20:
            brokers.states.load()
            brokers.controller.partition(COORDINATOR, isr=(1,), replicas=(1,), leader=1)
        for producer, name in ((APP, "t-0"), (OTHER, "u-0"), (300, "t-0"), (400, "u-0")):
            time = BEGAN + number * 3 * MINUTE + producer * 10
            brokers.transaction(name, time, known=is_known, commit=number != 5, producer=producer)
    found = brokers.found()
    assert [(f.kind, f.severity, f.topic) for f in found] == (
        [("coordinator-log-restored", "error", "__transaction_state")] if lost else []
    )


# Which copy counts


@pytest.mark.parametrize("days", [0, 6])
@pytest.mark.parametrize("known", [False, True])
def test_what_is_open_in_a_topic_that_was_probably_removed_is_in_doubt(known: bool, days: int, tmp_path: Path) -> None:
    """Kind 20: t was made again, of which the metadata is not in the input. In broker 2's log, which is days older or,
    by its markers, a day younger than the other one, a transaction is open, too. ``known``: its id is, and has nothing
    open; else no id had its producer id."""
    root = incident("the-same-other-numbers", tmp_path)
    log, begun = Forged(root / "broker-2", "t-0"), Forged(root / "broker-1", "t-0").all()[0]["base_time"]
    for batch in log.all():
        batch.set(base_time=batch["base_time"] + days * DAY, max_time=batch["max_time"] + days * DAY)
    late = data(log, 9 if known else 70, 5 if known else 0, log.last["max_time"] + MINUTE, transactional=True)
    log.checkpoint("replication-offset-checkpoint", log.end)
    log.save()
    found = [
        f for f in opened(root).findings if f.kind in ("hanging-transaction", "long-open-transaction", "lso-stuck")
    ]
    assert (late["base_time"] > begun) == bool(days)
    said = {(f.broker_id, f.offset): (f.severity, f.if_true is None) for f in found}
    assert said[1, 0] == (("info", False) if days else ("critical", True))
    assert days or said[2, 18] == ("info", False)


@pytest.mark.parametrize("foreign", [False, True])
def test_partitions_of_another_cluster_are_one_finding(foreign: bool, tmp_path: Path) -> None:
    """Kind 22: partition directories of another cluster were copied into a broker's log directory."""
    root = corpora.copy("twopc-43", tmp_path)
    before = above_info(opened(root).findings)
    if foreign:
        for path in (corpora.unpack("healthy-41") / "broker-1").glob("[!_]*-[0-9]*"):
            shutil.copytree(path, root / "broker-1" / path.name)
    new = [f for f in above_info(opened(root).findings) if f.fingerprint not in {b.fingerprint for b in before}]
    assert [(f.kind, f.severity) for f in new] == ([("partition-of-another-cluster", "error")] if foreign else [])


# Whose marker is it


def incident(name: str, target: Path) -> Path:
    """A forged incident, to be altered."""
    shutil.copytree(corpora.unpack("incidents") / name / "input", target, dirs_exist_ok=True)
    return target


@pytest.mark.parametrize("commit", [False, True])
def test_an_operators_abort_decides_nothing_elsewhere_and_a_commit_may(commit: bool, tmp_path: Path) -> None:
    """Kind 23: no operator's tool writes COMMIT, so that one is a decision which the coordinator's copy lacks."""
    root = incident("one-of-two-aborted-by-hand", tmp_path)
    log = Forged(root / "broker-1", "u-0")
    if commit:
        (marker,) = log.markers()
        (record,) = marker.records()
        marker.refill({**record, "key": COMMIT})
        log.save()
    found = above_info(opened(root).findings)
    assert bool(kinds(found) & OVERDUE) != commit, [f.message for f in found]


@pytest.mark.parametrize(
    ("late", "second", "expected"),
    [
        (False, "PrepareCommit", set()),
        (True, "PrepareAbort", {"split-decision"}),
        (True, "PrepareCommit", {"marker-without-decision"}),
    ],
)
def test_a_late_commit_marker_ends_no_epoch(late: bool, second: str, expected: set[str], tmp_path: Path) -> None:
    """Kind 25: KIP-1228 with the coordinator's log. The marker of the earlier transaction came again inside the next
    one, which showed its first half early: none of that was written after its own marker."""
    root = incident("late-commit-no-coordinator" if late else "twin-no-coordinator", tmp_path)
    log = Forged(root / "broker-1", "t-0")
    if late and second == "PrepareCommit":
        marker = log.markers()[-1]
        (record,) = marker.records()
        marker.refill({**record, "key": COMMIT})
        log.save()
        for file in log.folder.glob("*.txnindex"):
            file.unlink()
    add_coordinator(root / "broker-1", second)
    assert kinds(above_info(opened(root).findings)) == expected


def add_coordinator(broker: Path, second: str) -> None:
    """The log of the coordinator of both transactions (version 2: the epoch is bumped when one is decided)."""
    folder = broker / COORDINATOR
    folder.mkdir()
    for suffix in ("log", "index", "timeindex"):
        (folder / f"{0:020}.{suffix}").touch()
    (folder / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    fresh = base64.urlsafe_b64encode(b"transaction_stat").decode().rstrip("=")
    (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {fresh}\n")
    controller = Controller(broker, Forged(broker, METADATA).last["max_time"])
    controller.create("__transaction_state", fresh, 1)
    controller.save()
    states, first = Coordinator(broker, 0), Forged(broker, "t-0").all()[0]["base_time"]
    for epoch, begun, ended, decided in ((0, 0, 900, "PrepareCommit"), (1, 2_000, 3_900, second)):
        start, time = first - 50 + begun, first + ended
        states.state("app", "Ongoing", (9, epoch), start, "t-0", start=start, client=2)
        states.state("app", decided, (9, epoch + 1), time, "t-0", start=start, client=2)
        completed = decided.replace("Prepare", "Complete")
        states.state("app", completed, (9, epoch + 1), time + 20, start=start, client=2)
    finish(states)
