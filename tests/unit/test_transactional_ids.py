"""Whose a transactional id is: ids that the frameworks' own classes made, and names that only look like them.

``tests/data/transactional_ids.json`` has what the classes of the named releases gave when they were called from plain
Java with their jars of Maven. Not ksqlDB's: its ids follow from QueryApplicationId (confluentinc/ksql) and Streams.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from auditor.base.advice import text
from auditor.base.transactional_ids import COLUMNS, SCHEMES, Framework, IdOrigin, by_scheme, guidance
from auditor.dashboards.wording import who
from auditor.facts.coordinator_history import CoordinatorHistory, StateRecord, build_history
from auditor.rules.seen.cluster_view import Cluster
from auditor.rules.seen.view import Finding
from auditor.transactions.id_origins import Surroundings, recognize
from tests import corpora, segments
from tests.bare_broker import BEGAN, broker, data, end, finish
from tests.coordinator_records import Coordinator
from tests.facts import opened, opened_all
from tests.forge import Batch, Forged
from tests.unit.test_copied_secrets import classic_group, key

RECORDED = json.loads((Path(__file__).parents[1] / "data" / "transactional_ids.json").read_text())
IDS = {row["release"] + row["class"]: row for row in RECORDED}
MINUTE = 60_000
OPERATOR = "cbc357ccb763df2852fee8c4fc7d55f2"
PROCESS = "cf81074c-64b8-42f8-800d-c13a3536f6dc"


def history(*transactions: tuple[str, int]) -> CoordinatorHistory:
    """Transactions of ids, each complete, with when they began."""
    return build_history(1, [
        StateRecord(0, 2 * k + after, begun + after, 0, name, state, 1000 + k, 0, MINUTE, frozenset(), False,
                    begun + after, begun, 0, "0.log", 0, 0)
        for k, (name, begun) in enumerate(transactions)
        for after, state in enumerate(("Ongoing", "CompleteCommit"))
    ])  # fmt: skip


def of(
    name: str, *transactions: tuple[str, int], groups: dict[str, str] | None = None, **topics: int
) -> IdOrigin | None:
    """The origin of an id beside these transactions, groups and topics (``_`` in their names for ``-``)."""
    known = history(*transactions) if transactions else None
    return recognize(name, Surroundings(known, groups or {}, {t.replace("_", "-"): n for t, n in topics.items()}))


def named(whose: IdOrigin | None) -> tuple[str, str, str, bool] | None:
    return None if whose is None else (whose.framework, whose.application, whose.part, whose.certain)


@pytest.mark.parametrize("row", RECORDED, ids=lambda row: f"{row['release']} {row['class'][:20]}")
def test_an_id_is_its_frameworks_and_no_other_schemes_before(row: dict[str, object]) -> None:
    """Alone no id is more than likely, and none is another framework's."""
    for name in row["ids"]:  # type: ignore[attr-defined]
        whose = by_scheme(name)
        assert whose is None or not whose.certain
        assert recognize(name, Surroundings(None, {}, {})) == whose
        if row["framework"] != "Spring Kafka" and name != "team-a-jdbc-orders-12":  # these need a second sign
            assert whose is not None
            assert whose.framework == row["framework"]


def test_checkpoints_of_a_job_prove_flink() -> None:
    """Ids of INCREMENTING in the order in which its sink takes them, in both subtasks."""
    begun = [(f"orders-sink-{subtask}-{n}", 1000 * n + subtask) for n in range(6, 9) for subtask in (0, 1)]
    assert named(of("orders-sink-1-8", *begun)) == ("Flink", "orders-sink", "subtask 1, checkpoint 8", True)
    assert named(of("orders-sink-0-6", *begun)) == ("Flink", "orders-sink", "subtask 0, checkpoint 6", True)
    new = ("orders-sink-3-9", 9003)  # of a job that was scaled up
    assert named(of(new[0], *begun, new)) == ("Flink", "orders-sink", "subtask 3, checkpoint 9", True)
    whose = of("orders-sink-1-8", *begun[:4], ("orders-sink-1-8", 8001))
    assert whose is not None
    assert "3 ids of one subtask have one transaction each" in whose.why


@pytest.mark.parametrize("begun", [
    [("orders-3-7", 7)],  # alone
    [("orders-3-7", 7), ("orders-3-8", 8), ("other-3-9", 9)],  # too few
    [("orders-3-7", 9), ("orders-3-8", 8), ("orders-3-9", 7), ("orders-0-8", 8)],  # out of order, as a pool's
    [("orders-3-7", 7), ("orders-3-8", 8), ("orders-3-9", 9), ("orders-0-8", 8), ("orders-3-7", 10)],  # used again
    [("orders-3-7", 7), ("orders-3-8", 8), ("orders-3-9", 9)],  # no subtask 0
    [("orders-3-7", 7), ("orders-3-7", 8), ("orders-0-7", 7), ("orders-0-8", 8), ("orders-0-9", 9)],  # again, itself
    [("orders-3-6", 7), ("orders-3-8", 8), ("orders-3-9", 9), ("orders-0-8", 8)],  # itself without a transaction
])  # fmt: skip
def test_names_that_look_like_flinks_are_only_likely(begun: list[tuple[str, int]]) -> None:
    assert named(of("orders-3-7", *begun)) == ("Flink", "orders", "subtask 3, checkpoint 7", False)


def test_a_pool_of_flink_is_only_likely() -> None:
    """POOLING takes its numbers from 0 on, as a pool of any application does."""
    ids = IDS["flink-connector-kafka 4.0.1-2.0TransactionNamingStrategyImpl.POOLING over "
              "TransactionNamingStrategyContextImpl"]["ids"]  # fmt: skip
    begun = [(name, k) for k, name in enumerate(ids)] + [("orders-sink-0-2", 2)]
    assert named(of(ids[2], *begun)) == ("Flink", "orders-sink", "subtask 3, producer 2 of its pool", False)
    rising = [("orders-3-0", 1), ("orders-3-7", 7), ("orders-3-8", 8), ("orders-3-9", 9), ("orders-0-8", 8)]
    assert named(of("orders-3-7", *rising)) == ("Flink", "orders", "subtask 3, producer 7 of its pool", False)
    assert named(of("orders-0-8", *rising)) == ("Flink", "orders", "subtask 0, checkpoint 8", False)


def test_a_day_is_no_subtask() -> None:
    begun = [(f"batch-{day}-{n}", n) for n in (1, 2, 3) for day in (0, 20261128)]
    whose = of("batch-20261128-2", *begun)
    assert whose is not None
    assert not whose.certain


def test_the_legacy_producer_of_flink() -> None:
    job = f"Map -> Sink: Unnamed-{OPERATOR}"
    assert named(of(f"{job}-7")) == ("Flink", job, "producer 7 of its pool", False)
    assert named(of(f"{job}-7", (f"{job}-0", 1), (f"{job}-6", 2), (f"{job}-7", 3))) == (
        "Flink", job, "producer 7 of its pool", True,
    )  # fmt: skip
    other = f"orders-{OPERATOR}"  # any application may take a UUID without hyphens
    assert named(of(f"{other}-1", (f"{other}-0", 1), (f"{other}-1", 2))) == (
        "Flink", other, "producer 1 of its pool", False,
    )  # fmt: skip


def test_connect_is_proved_by_its_group_its_leader_or_its_topics() -> None:
    task = ("Kafka Connect", "team-a", "task 12 of connector jdbc-orders", True)
    assert of("team-a-jdbc-orders-12") is None
    assert named(of("team-a-jdbc-orders-12", groups={"team-a": "connect", "team": "streams"})) == task
    assert named(of("team-a-jdbc-orders-12", ("connect-cluster-team-a", 1))) == task
    leader = ("Kafka Connect", "team-a", "the worker that leads the group")
    assert named(of("connect-cluster-team-a")) == (*leader, False)
    assert named(of("connect-cluster-team-a", groups={"team-a": "connect"})) == (*leader, True)
    default = ("Kafka Connect", "connect-cluster", "task 0 of connector jdbc-orders")
    assert named(of("connect-cluster-jdbc-orders-0")) == (*default, False)
    topics = {"connect_configs": 1, "connect_offsets": 25, "connect_status": 5}
    assert named(of("connect-cluster-jdbc-orders-0", **topics)) == (*default, True)
    assert named(of("connect-cluster-jdbc-orders-0", connect_offsets=25)) == (*default, False)
    # A connector whose name ends with a number makes ids of Flink's form.
    assert named(of("team-a-jdbc-3-0", groups={"team-a": "connect"})) == (
        "Kafka Connect", "team-a", "task 0 of connector jdbc-3", True,
    )  # fmt: skip
    assert named(of("team-a-debezium-inventory-0", groups={"team-a": "connect"})) == (
        "Debezium", "team-a", "task 0 of connector debezium-inventory", True,
    )  # fmt: skip


def test_mirror_maker_is_proved_by_its_internal_topics() -> None:
    whose = ("MirrorMaker", "a-mm2", "task 0 of connector MirrorSourceConnector")
    assert named(of("a-mm2-MirrorSourceConnector-0")) == (*whose, False)
    beside = Surroundings(None, {}, {"mm2-offsets.a.internal": 25})
    assert named(recognize("a-mm2-MirrorSourceConnector-0", beside)) == (*whose, True)


def test_streams_is_proved_by_its_group_or_its_internal_topics() -> None:
    thread, task = f"word-count-{PROCESS}-1", "word-count-0_1"
    for name, part in ((thread, f"thread 1 of process {PROCESS}"), (task, "task 0_1")):
        assert named(of(name)) == ("Kafka Streams", "word-count", part, False)
        assert named(of(name, groups={"word-count": "streams"})) == ("Kafka Streams", "word-count", part, True)
        assert named(of(name, word_count_counts_changelog=4)) == ("Kafka Streams", "word-count", part, True)
        assert named(of(name, word_changelog=4, groups={"word": "streams"})) == (
            "Kafka Streams", "word-count", part, False,
        )  # fmt: skip
    query = "_confluent-ksql-default_query_CTAS_TOTALS_5"
    assert named(of(f"{query}-{PROCESS}-1")) == ("ksqlDB", query, f"thread 1 of process {PROCESS}", False)
    assert named(of(f"{query}-0_3", groups={query: "streams"})) == ("ksqlDB", query, "task 0_3", True)


def test_spring_needs_a_second_sign_to_be_likely() -> None:
    assert of("tx-2") is None
    assert of("tx-2", ("tx-1", 1), ("tx-2", 2)) is None
    assert named(of("tx-2", ("tx-0", 1), ("tx-1", 2), ("tx-2", 3))) == (
        "Spring Kafka", "tx", "producer 2 of its pool", False,
    )  # fmt: skip
    assert of("tx-0", ("tx-0", 1)) is None
    name = "tx-billing.shop.orders.2"
    assert of(name) is None
    orders = Surroundings(None, {}, {"shop.orders": 3})
    assert named(recognize(name, orders)) == ("Spring Kafka", "tx-billing", "the consumer of shop.orders-2", False)
    assert recognize("tx-billing.shop.orders.3", orders) is None


@pytest.mark.parametrize("unit", ["-", "a-", "query_-", "debezium-", "1_", "-1", "a.", "\u0661-"])
@pytest.mark.parametrize("length", [1_190, 32_000])
def test_long_names_take_no_time(unit: str, length: int) -> None:
    """Patterns that go back over a name would take hours for one that somebody made for that."""
    name = f"_confluent-ksql-{unit * (length // len(unit))}x"
    assert recognize(name, Surroundings(history(("z", 1)), {"g": "connect"}, {"t": 3})) is None


@pytest.mark.parametrize("name", ["", "orders", "orders-7", "tx-007", "a.b.c", "-", "0", "-0", ".2", "x" * 40, "\n-\n"])
def test_other_names_are_nobodys(name: str) -> None:
    assert of(name, ("z", 1), groups={"g": "connect"}, t=3) is None


def test_the_page_has_framework_class_and_releases_of_each_scheme() -> None:
    page = (Path(__file__).parents[2] / "docs" / "transactional-ids.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if "(read: " in line]
    expected = {(str(scheme.framework), scheme.source, scheme.releases) for scheme in SCHEMES}
    assert {(framework, source, releases) for framework, _, source, releases in rows} == expected


@pytest.mark.parametrize("status", ["open", "overdue", "prepared", "hanging"])
@pytest.mark.parametrize("framework", Framework)
@pytest.mark.parametrize("certain", [True, False])
def test_guidance_names_framework_application_and_part(framework: Framework, status: str, certain: bool) -> None:
    """But Spring's producers, which are as any others. An application may be named as it likes."""
    said = guidance(IdOrigin(framework, "{app} %s", "part {0}", certain, "why"), status)
    if framework is Framework.SPRING:
        assert said == ""
        return
    assert said.startswith(f"This is {framework}: " if certain else f"If this is {framework}: ")
    assert "{app} %s" in said
    assert "part {0}" in said
    assert ("restor" if framework is Framework.FLINK else "restart") in said
    assert ("aborts" in said) == (status in ("open", "overdue"))
    assert ("at its timeout, or at once by" in said) == ("at once by" in said and status == "open")  # not past it


@pytest.mark.parametrize("status", ["open", "overdue"])
def test_a_leader_of_workers_is_followed_not_started_again(status: str) -> None:
    """A worker that starts reads Connect's topics to their ends, and waits for this transaction (KafkaBasedLog)."""
    leader, task = guidance(of("connect-cluster-team-a"), status), guidance(of("connect-cluster-orders-0"), status)
    assert "make another running worker the leader of team-a: it fences this producer" in leader
    assert leader.endswith("the worker that leads the group was writing to Connect again")
    assert "its next producer fences this one" not in leader
    assert "restart task 0 of connector orders (connect-cluster): its next producer fences this one" in task
    assert "configuration" not in task
    for advice in (leader, task):
        assert "a starting worker waits until it ends" in advice.lower()


@pytest.mark.parametrize("name", [
    "retried-elsewhere-44", "skipped-marker-43", "skipped-then-goes-on-43", "mended-then-hangs-43", "open-41-killed",
])  # fmt: skip
def test_no_restart_is_advised_where_an_abort_loses_records(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each id of real clusters taken for a Connect task's: a restart has its coordinator abort what is open."""
    task = IdOrigin(Framework.CONNECT, "g", "task 0 of connector c", certain=True, why="")
    monkeypatch.setattr(Cluster, "origin", lambda _, name: name and task)
    audit = opened(corpora.unpack(name), as_of=corpora.manifest(name)["copied_at"])
    advice = [row["advice"] for row in audit.blocked] + [f.advice.row() for f in audit.findings if f.advice]
    forbidden = [text(each) for each in advice if each["verdict"] in ("do_not_abort", "commit_it")]
    assert advice
    assert [words for words in forbidden if "fences this one" in words or "forceTerminate" in words] == []


@pytest.mark.parametrize("name", ["billing-2024-01", "orders-007-3", f"Sink-{'0a' * 16}-03"])
def test_flink_writes_its_numbers_without_zeros_before_them(name: str) -> None:
    """TransactionalIdFactory and TransactionalIdsGenerator join them as numbers. A date is none of its ids."""
    assert by_scheme(name) is None


def test_an_origin_is_restored_from_its_row() -> None:
    whose = IdOrigin(Framework.CONNECT, "g", "task 0 of connector c", certain=True, why="w")
    assert IdOrigin.of(whose.row()) == whose
    assert IdOrigin.of({"transactional_id": "sink-0-7"}) == by_scheme("sink-0-7")  # of a run before there were origins
    assert IdOrigin.of({"transactional_id": "sink-0-7", "framework": "Of another release"}) == by_scheme("sink-0-7")
    assert IdOrigin.of({}) is None


def of_connect(path: Path, protocol: str) -> None:
    """The group team-a by its record, and its task with a transaction open for an hour."""
    log, coordinator = Forged(path, "t-0"), Coordinator(path, 0)
    groups = Forged(path, "__consumer_offsets-0")
    record = segments.record(0, key(2, "team-a"), classic_group(protocol, b"", b""))
    groups.append(Batch(segments.batch(record, 1, base_offset=0, base_time=BEGAN, max_time=BEGAN, leader_epoch=0)))
    data(log, 4, 0, BEGAN, transactional=True)
    coordinator.state("team-a-jdbc-7-12", "Ongoing", (4, 0), BEGAN, "t-0", start=BEGAN)
    coordinator.state("other", "Empty", (9, 0), BEGAN + 60 * MINUTE)
    finish(log, coordinator, groups)


@pytest.mark.parametrize(("protocol", "framework"), [("connect", "Kafka Connect"), ("consumer", "Flink (likely)")])
def test_finding_blocked_row_and_advice_name_it(protocol: str, framework: str, tmp_path: Path) -> None:
    """The id has the form of Flink's, too: only the group's record tells that it is a task of Connect."""
    of_connect(broker(tmp_path, "t-0", "__consumer_offsets-0"), protocol)
    audit = opened_all([str(tmp_path)])
    (held,) = audit.blocked
    found = [f for f in audit.findings if f.transactional_id == "team-a-jdbc-7-12" and f.severity != "info"]
    assert found
    if protocol == "connect":
        expected = ("Kafka Connect", "team-a", "task 12 of connector jdbc-7", "proved")
        advice = (
            "This is Kafka Connect: restart task 12 of connector jdbc-7 (team-a): its next producer fences this one"
        )
    else:
        expected = ("Flink", "team-a-jdbc", "subtask 7, checkpoint 12", "likely")
        advice = "If this is Flink: restore the job of team-a-jdbc (subtask 7, checkpoint 12) from the checkpoint"
    assert tuple(held[name] for name in COLUMNS[:4]) == expected
    for f in found:
        assert tuple(f.evidence[name] for name in COLUMNS[:4]) == expected
    for words in (text(held["advice"]), *(f.remedy for f in found)):
        assert advice in words
        assert "Stop or restart its client" not in words
    assert f"{framework}: {expected[1]}, {expected[2]}" in who(held)
    assert f"{framework}: {expected[1]}, {expected[2]}" in who(found[0].to_dict())
    row = audit.held("blocked").to_pylist()[0]
    assert tuple(row[name] for name in COLUMNS[:4]) == expected


def test_flinks_time_is_named_until_when_it_may_be_committed(tmp_path: Path) -> None:
    """Within its time-out, which is 15 minutes after BEGAN."""
    path = broker(tmp_path, "t-0")
    log, coordinator = Forged(path, "t-0"), Coordinator(path, 0)
    data(log, 4, 0, BEGAN, transactional=True)
    coordinator.state("sink-0-7", "Ongoing", (4, 0), BEGAN, "t-0", start=BEGAN, timeout=15 * MINUTE)
    finish(log, coordinator)
    (held,) = opened(tmp_path, as_of=BEGAN + MINUTE).blocked
    assert held["status"] == "open"
    said = text(held["advice"])
    assert "A manual abort, its timeout at 2026-11-21T22:41:40.000Z, or a cancel without" in said
    assert "nothing is lost" not in said


def aborted_by_hand(root: Path, name: str, start: int, *decided: str) -> list[Finding]:
    """Three records from BEGAN on, aborted by hand a second later; when the transaction of the id began that its
    coordinator has, and how it goes on a minute later."""
    path = broker(root, "t-0")
    log, coordinator = Forged(path, "t-0"), Coordinator(path, 0)
    end(log, data(log, 4, 0, BEGAN, transactional=True), False, BEGAN + 1000)
    for k, state in enumerate(("Ongoing", *decided)):
        partitions = () if state.startswith("Complete") else ("t-0",)
        coordinator.state(name, state, (4, 0), start + k * MINUTE, *partitions, start=start, timeout=15 * MINUTE)
    coordinator.state("other", "Empty", (9, 0), BEGAN + 5 * MINUTE)
    finish(log, coordinator)
    return opened(root, as_of=BEGAN + 5 * MINUTE).findings


@pytest.mark.parametrize(("name", "again"), [
    ("sink-0-7", "f this is Flink: the checkpoint that counts offsets 0–2 as written never writes"),
    ("worker", "Re-send offsets 0–2"),
])  # fmt: skip
def test_an_abort_by_hand_hides_what_may_be_committed(name: str, again: str, tmp_path: Path) -> None:
    """Its coordinator has it open: Flink's next job commits it, and so does any client that is alive."""
    (f,) = (f for f in aborted_by_hand(tmp_path, name, BEGAN) if f.severity != "info")
    assert (f.kind, f.severity, f.offset, f.transactional_id) == ("marker-without-decision", "warning", 3, name)
    assert f"consumers never see 3 records at offsets 0–2, even if {name} commits" in f.remedy
    assert again in f.remedy


@pytest.mark.parametrize("start", [BEGAN + 5000, BEGAN + 2 * MINUTE])
def test_an_abort_by_hand_before_a_transaction_hides_nothing_of_it(start: int, tmp_path: Path) -> None:
    """What it ended was left hanging: its coordinator began the open one after it."""
    found = [f for f in aborted_by_hand(tmp_path, "sink-0-7", start) if f.kind == "marker-without-decision"]
    assert {f.severity for f in found} <= {"info"}


@pytest.mark.parametrize(("name", "again"), [
    ("sink-0-7", "f this is Flink: the checkpoint that counts offsets 0–2 as written"),
    ("worker", "e-send offsets 0–2"),
])  # fmt: skip
def test_what_an_abort_by_hand_hid_is_compensated(name: str, again: str, tmp_path: Path) -> None:
    found = aborted_by_hand(tmp_path, name, BEGAN, "PrepareCommit", "CompleteCommit")
    (f,) = (f for f in found if f.severity != "info")
    assert (f.kind, f.severity, f.outcome) == ("split-decision", "critical", "hidden")
    assert again in f.remedy
