"""``auditor finish``: what must hold before it writes a marker, each refusal, the request's bytes, the journal."""

from __future__ import annotations

import dataclasses
import json
import re
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.errors import KafkaConnectionError, NodeNotReadyError, RequestTimedOutError

from auditor import cli
from auditor.base.errors import AuditInputError
from auditor.commands.finish import FinishJournal
from auditor.connectors.codec.transaction_log import TransactionLogRow
from auditor.connectors.live.live_cluster import ListedTransaction, PartitionMetadata, Producer
from auditor.connectors.live.marker_writer import BrokerLevels, MarkerCluster, MarkerRequest
from auditor.pipeline import commit_marker
from auditor.pipeline.commit_marker import CommittedOpen, IdHistory, MarkerLook, MarkerPlan, decide
from tests import corpora
from tests.conftest import ROOT

FORMATS = Path(__file__).parents[1] / "data" / "formats"
TID, PID, COMPLETED = "payments-1", 4001, 120


def asked(**changes: Any) -> CommittedOpen:
    """A finding of a run; transaction.version 2, so that the marker's epoch is 8."""
    it = CommittedOpen(
        topic="payments", partition=7, offset=50, producer_id=PID, producer_epoch=7, transactional_id=TID,
        cluster_id="one", completed_offset=COMPLETED, unmarked=1, last_sequence=12, last_timestamp=1_000, flaws=(),
    )  # fmt: skip
    return dataclasses.replace(it, **changes)


def state(name: str | None, **more: Any) -> TransactionLogRow:
    fields = {"producer_id": PID, "producer_epoch": 8, "client_transaction_version": 2} | more
    return TransactionLogRow(TID, name is None, state=name, **fields)


PREPARE = (COMPLETED - 1, state("PrepareCommit", partitions=["payments-7", "orders-0"]))
COMPLETE = (COMPLETED, state("CompleteCommit"))


def history(*records: tuple[int, TransactionLogRow], **more: Any) -> IdHistory:
    fields: dict[str, Any] = {"gaps": (), "damaged": (), "end": 200, "stopped": None}
    return IdHistory(records or (PREPARE, COMPLETE), **fields | more)


def seen(**changes: Any) -> MarkerLook:
    """What a healthy 4.3 cluster shows of it."""
    it = MarkerLook(
        cluster_id="one",
        log=PartitionMetadata("payments", 7, 1, 5, (1, 2), (1, 2)),
        coordinator=PartitionMetadata("__transaction_state", 3, 2, 9, (1, 2), (1, 2)),
        levels={1: BrokerLevels(30, 2), 2: BrokerLevels(30, 2)},
        min_in_sync=2,
        may_write=True,
        history=history(),
        coordinator_end=200,
        state=ListedTransaction("CompleteCommit", PID, 8),
        listed={TID: "CompleteCommit"},
        stable_offset=50,
        producers=(Producer(PID, 7, 12, 1_000, 4, 50), Producer(9, 0, 0, 900, -1, -1)),
        problems={},
    )
    return dataclasses.replace(it, **changes)


def whats(plan: MarkerPlan) -> list[str]:
    return [condition.what for condition in plan.refused]


def test_all_of_it_holds_and_the_request_has_the_prepares_epoch() -> None:
    plan = decide(asked(), seen())
    assert (plan.refused, plan.unknown) == ([], [])
    assert plan.request == MarkerRequest(1, 2, "payments", 7, PID, 8, 4, 2)
    assert plan.begin == COMPLETED - 1
    assert not plan.late_risk


@pytest.mark.parametrize(
    ("metadata_version", "version", "client", "epoch", "request_version", "sent_version", "risk"),
    [
        (21, 1, 0, 7, 1, 0, True),  # 3.9
        (27, 1, 2, 8, 1, 0, True),  # 4.1 under version 2
        (30, 2, 1, 7, 2, 1, True),  # 4.3 under version 1
        (33, 2, 2, 8, 2, 2, False),  # 4.4
        (33, 3, 2, 8, 2, 2, False),  # a later version of the request is not used
    ],
)
def test_the_request_by_release_and_transaction_version(
    metadata_version: int, version: int, client: int, epoch: int, request_version: int, sent_version: int, risk: bool
) -> None:
    level = BrokerLevels(metadata_version, version)
    done = (COMPLETED, state("CompleteCommit", producer_epoch=epoch, client_transaction_version=client))
    plan = decide(asked(), seen(levels={1: level, 2: level}, history=history(done)))
    assert (plan.refused, plan.unknown, plan.late_risk) == ([], [], risk)
    assert plan.request == MarkerRequest(1, request_version, "payments", 7, PID, epoch, 4, sent_version)


def test_a_producer_without_a_marker_has_coordinator_epoch_0() -> None:
    plan = decide(asked(), seen(producers=(Producer(PID, 7, 12, 1_000, -1, 50),)))
    assert plan.request is not None
    assert (plan.refused, plan.request.coordinator_epoch) == ([], 0)


PRODUCER = Producer(PID, 7, 12, 1_000, 4, 50)
RECORDED = "a record decides COMMIT"
FOLLOWS = "nothing of the id follows but Empty"
READ = f"the records from offset {COMPLETED} on are intact and without a gap"
OPEN = f"{TID} has no open transaction"
REFUSALS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "a flaw of the run": ({"flaws": ("its evidence is not proved",)}, {},
                          "the finding proves a COMMIT without its marker"),
    "two transactions": ({"unmarked": 2}, {}, "only one transaction would be closed"),
    "an older run": ({"unmarked": None}, {}, "only one transaction would be closed"),
    "another cluster": ({}, {"cluster_id": "two"}, "the cluster is that of the run"),
    "a moved leader": ({}, {"stable_offset": None, "problems": {"stable_offset": "offsets: FencedLeaderEpochError"}},
                       "a broker leads payments-7"),
    "no leader": ({}, {"log": None, "stable_offset": None, "problems": {"stable_offset": "it has no leader"}},
                  "a broker leads payments-7"),
    "too few in sync": ({}, {"min_in_sync": 3}, "enough replicas are in sync"),
    "a moved coordinator": ({}, {"coordinator_end": None, "problems": {"coordinator_end": "NotLeaderError"}},
                            "a broker leads __transaction_state of the id"),
    "4.2": ({}, {"levels": {1: BrokerLevels(29, 2), 2: BrokerLevels(30, 2)}}, "the release of broker 1 was tried"),
    "a coordinator with ZooKeeper": ({}, {"levels": {1: BrokerLevels(30, 2), 2: BrokerLevels(-1, 1)}},
                                     "the release of broker 2 was tried"),
    "no right": ({}, {"may_write": False}, "this user may write markers"),
    "closed": ({}, {"producers": (PRODUCER._replace(txn_first_offset=-1),)},
               "first offset of its open transaction as in the run"),
    "another transaction": ({}, {"producers": (PRODUCER._replace(txn_first_offset=60),)},
                            "first offset of its open transaction as in the run"),
    "a merged one": ({}, {"producers": (PRODUCER._replace(last_sequence=13),)}, "last sequence as in the run"),
    "of the same length": ({}, {"producers": (PRODUCER._replace(last_timestamp=1_001),)},
                           "last timestamp as in the run"),
    "a fenced producer": ({}, {"producers": (PRODUCER._replace(producer_epoch=8),)}, "producer epoch as in the run"),
    "a forgotten producer": ({}, {"producers": ()}, f"producer id {PID} has this transaction open"),
    "a coordinator epoch from elsewhere": ({}, {"producers": (PRODUCER._replace(coordinator_epoch=10),)},
                                           "coordinator epoch is not too high"),
    "the id has begun": ({}, {"state": ListedTransaction("Ongoing", PID, 8)}, OPEN),
    "the id was aborted since": ({}, {"state": ListedTransaction("CompleteAbort", PID, 9)}, OPEN),
    "the id has another producer": ({}, {"state": ListedTransaction("Empty", PID + 1, 0)}, OPEN),
    "another id has it": ({}, {"listed": {TID: "Empty", "other": "Empty"}}, f"no other id has producer id {PID}"),
    "an edited run, aborted": ({}, {"history": history((COMPLETED, state("CompleteAbort")))}, RECORDED),
    "compacted away": ({}, {"history": history((110, state("CompleteCommit")))}, RECORDED),
    "a later one in its place": ({}, {"history": history((180, state("CompleteCommit")))}, RECORDED),
    "another producer id": ({}, {"history": history((COMPLETED, state("CompleteCommit", producer_id=1)))}, RECORDED),
    "another partition": ({}, {"history": history((119, state("PrepareCommit", partitions=["orders-0"])), COMPLETE)},
                          "its Prepare record names the partition"),
    "begun again": ({}, {"history": history(PREPARE, COMPLETE, (150, state("Ongoing")))}, FOLLOWS),
    "expired": ({}, {"history": history(COMPLETE, (150, state(None)))}, FOLLOWS),
    "completed again": ({}, {"history": history(COMPLETE, (150, state("CompleteCommit")))}, FOLLOWS),
    "a gap": ({}, {"history": history(gaps=((130, 131),))}, READ),
    "damage": ({}, {"history": history(damaged=(COMPLETED,))}, READ),
    "an epoch that does not fit": ({"producer_epoch": 8}, {"producers": (PRODUCER._replace(producer_epoch=8),)},
                                   "the marker's epoch fits the data's"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_each_is_refused(name: str) -> None:
    of_run, of_cluster, what = REFUSALS[name]
    plan = decide(asked(**of_run), seen(**of_cluster))
    assert what in whats(plan)
    assert decide(asked(), seen()).changes(plan)  # so it is, too, where it comes between the two looks


@pytest.mark.parametrize(
    ("field", "what"),
    [
        ("cluster_id", "the cluster is that of the run"), ("stable_offset", "a broker leads payments-7"),
        ("min_in_sync", "enough replicas are in sync"), ("history", RECORDED), ("state", OPEN),
        ("coordinator_end", "a broker leads __transaction_state of the id"),
        ("listed", f"no other id has producer id {PID}"), ("producers", f"producer id {PID} has this transaction open"),
    ],
)  # fmt: skip
def test_what_is_not_shown_is_unknown(field: str, what: str) -> None:
    problem = {} if field == "cluster_id" else {field: "TopicAuthorizationFailedError (permission: Read)"}
    plan = decide(asked(), seen(**{field: None}, problems=problem))
    assert plan.refused == []
    assert [c.what for c in plan.unknown] == [what]
    assert field == "cluster_id" or "permission" in plan.unknown[0].value


def test_a_reading_that_stops_early_is_unknown() -> None:
    plan = decide(asked(), seen(history=history(stopped="read limit reached (--max-bytes)")))
    assert (plan.refused, [c.what for c in plan.unknown]) == ([], ["they were read to the log end"])
    plan = decide(asked(), seen(history=IdHistory((), (), (), 100, "read limit reached")))
    assert [c.what for c in plan.unknown] == [RECORDED]


def test_what_was_before_the_decision_does_not_matter() -> None:
    before = history((40, state("CompleteAbort")), PREPARE, COMPLETE, (150, state("Empty", producer_epoch=9)),
                     gaps=((60, 70),), damaged=(30,))  # fmt: skip
    plan = decide(asked(), seen(history=before, state=ListedTransaction("Empty", PID, 9), listed={TID: "Empty"}))
    assert (plan.refused, plan.unknown) == ([], [])


NUMBERS = st.integers(min_value=-1, max_value=2**31 - 1)


@given(st.sampled_from([n for n in Producer._fields if n not in ("producer_id", "coordinator_epoch")]), NUMBERS)
def test_no_value_of_the_producer_may_differ(name: str, value: int) -> None:
    changed = PRODUCER._replace(**{name: value})
    plan = decide(asked(), seen(producers=(changed,)))
    assert bool(plan.refused) == (changed != PRODUCER)


OF_RUN = ("offset", "producer_id", "producer_epoch", "completed_offset", "last_sequence", "last_timestamp", "unmarked")


@given(st.sampled_from(OF_RUN), NUMBERS)
def test_no_value_of_the_run_may_differ(name: str, value: int) -> None:
    plan = decide(asked(**{name: value}), seen())
    assert bool(plan.refused) == (value != getattr(asked(), name))


@given(st.integers(0, 2**15 - 1), st.integers(0, 3), st.integers(0, 2**15 - 1))
def test_the_epoch_of_the_marker_follows_from_the_data_alone(data: int, client: int, decided: int) -> None:
    done = (COMPLETED, state("CompleteCommit", producer_epoch=decided, client_transaction_version=client))
    plan = decide(asked(producer_epoch=data),
                  seen(history=history(done), producers=(PRODUCER._replace(producer_epoch=data),)))  # fmt: skip
    assert bool(plan.refused) == (decided != data + (client >= 2))


@given(st.integers(-1, 20), st.integers(0, 20))
def test_the_coordinator_epoch_is_never_above_its_leader_epoch(epoch: int, leader_epoch: int) -> None:
    states = PartitionMetadata("__transaction_state", 3, 2, leader_epoch, (1, 2), (1, 2))
    plan = decide(asked(), seen(coordinator=states, producers=(PRODUCER._replace(coordinator_epoch=epoch),)))
    assert bool(plan.refused) == (max(epoch, 0) > leader_epoch)
    assert plan.request is not None
    assert plan.request.coordinator_epoch == max(epoch, 0)


# The request's bytes: by the schema in kafka-clients 4.4.0, and as its WriteTxnMarkersRequestData writes them.

BYTES = {
    1: "020000000000000fa100080102097061796d656e7473020000000700000000030000",
    2: "020000000000000fa100080102097061796d656e747302000000070000000003020000",
}
SIZES = {"int8": ">b", "int16": ">h", "int32": ">i", "int64": ">q", "bool": ">?"}


def _schema() -> dict[str, Any]:
    text = (FORMATS / "WriteTxnMarkersRequest-4.4.0.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(re.sub(r"(?m)^\s*//.*$", "", text))
    assert (schema["apiKey"], schema["validVersions"], schema["flexibleVersions"]) == (27, "1-2", "1+")
    return schema


def _decoded(fields: list[dict[str, Any]], version: int, data: bytes, at: int) -> tuple[dict[str, Any], int]:
    """A struct of flexible version, all of whose lengths fit one byte; it ends with its tagged fields, none."""
    values = {}
    for field in fields:
        if int(field["versions"].split("+")[0]) > version:
            continue
        kind = field["type"]
        if kind.startswith("[]"):
            items, count, at = [], data[at] - 1, at + 1
            for _ in range(count):
                inner = field.get("fields")
                item, at = _decoded(inner, version, data, at) if inner else _plain(kind[2:], data, at)
                items.append(item)
            values[field["name"]] = items
        else:
            values[field["name"]], at = _plain(kind, data, at)
    assert data[at] == 0
    return values, at + 1


def _plain(kind: str, data: bytes, at: int) -> tuple[Any, int]:
    if kind == "string":
        size = data[at] - 1
        return data[at + 1 : at + 1 + size].decode(), at + 1 + size
    return struct.unpack_from(SIZES[kind], data, at)[0], at + struct.calcsize(SIZES[kind])


@pytest.mark.parametrize("version", [1, 2])
def test_the_bytes_of_the_request(version: int) -> None:
    message = MarkerRequest(1, version, "payments", 7, 4001, 8, 3, 2).message()
    assert message.API_KEY == 27
    assert version == message.API_VERSION
    data = message.encode()
    assert data.hex() == BYTES[version]
    values, end = _decoded(_schema()["fields"], version, data, 0)
    assert end == len(data)
    marker = {"ProducerId": 4001, "ProducerEpoch": 8, "TransactionResult": True, "CoordinatorEpoch": 3,
              "Topics": [{"Name": "payments", "PartitionIndexes": [7]}]}  # fmt: skip
    assert values == {"Markers": [marker | ({"TransactionVersion": 2} if version == 2 else {})]}


def test_a_journal_is_a_new_file_and_keeps_each_step(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with FinishJournal(path) as journal:
        journal.add("before", commit_marker.as_row(decide(asked(), seen())))
        (line,) = path.read_text(encoding="utf-8").splitlines()  # on disk before the next step
        row = json.loads(line)
        assert (row["step"], row["request"]["producer_epoch"]) == ("before", 8)
        assert all(condition["holds"] for condition in row["conditions"])
        journal.add("request", {})
    assert [json.loads(line)["step"] for line in path.read_text(encoding="utf-8").splitlines()] == ["before", "request"]
    with pytest.raises(AuditInputError, match="give a new --journal"):
        FinishJournal(path)
    with pytest.raises(AuditInputError, match="cannot create journal"):
        FinishJournal(tmp_path / "missing" / "journal.jsonl")


# What is refused before a broker is asked.


@pytest.fixture(scope="module")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out: Path = tmp_path_factory.mktemp("run")
    cli.main(["audit", str(corpora.unpack("skipped-marker-43")), "--out", str(out), "--master", "inline", "--quiet"])
    return out


STOPPED = ("--write", "--confirm", "ulna.leg-0", "--application-stopped")


@pytest.mark.parametrize(
    ("owner", "words", "code", "says"),
    [
        ("ulna-c", ("--write",), 2, "--write needs --confirm PARTITION and --application-stopped"),
        ("ulna-c", ("--write", "--confirm", "ulna.leg-0"), 2, "--write needs --confirm PARTITION and --application-st"),
        ("ulna-c", ("--write", "--confirm", "leg-0", "--application-stopped"), 1, "Refused: 'leg-0' is not ulna.leg-0"),
        ("ulna-c", (*STOPPED, "--journal", "JOURNAL"), 2, "exists; give a new --journal FILE"),
        ("ulna-a", STOPPED, 1, "(hanging-transaction): its transaction was not committed."),
    ],
)
def test_what_needs_no_broker_is_refused_at_once(
    owner: str, words: tuple[str, ...], code: int, says: str, run_of: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The manifest aborts the transaction of ulna-a and commits that of ulna-c."""
    monkeypatch.setattr("auditor.commands.finish.require", lambda _: pytest.fail("a broker would be asked"))
    (tmp_path / "journal").touch()
    rows = map(json.loads, (run_of / "findings.jsonl").read_text().splitlines())
    (name,) = (r["fingerprint"] for r in rows if r["transactional_id"] == owner and r["severity"] == "critical")
    given = [str(tmp_path / "journal") if word == "JOURNAL" else word for word in words]
    assert cli.main(["finish", name, "--out", str(run_of), "--bootstrap-server", "localhost:1", *given]) == code
    assert says in "".join(capsys.readouterr())


def test_a_missing_id_is_named(run_of: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["finish", "", "--out", str(run_of), "--bootstrap-server", "localhost:1"]) == 2
    assert "missing finding ID" in capsys.readouterr().err


# It is sent once, and by nothing else.


class _Sender:
    """Counts what a connection is given to send, and fails."""

    def __init__(self, error: BaseException) -> None:
        self.error, self.sent = error, list[Any]()

    def run(self, send: Any, request: Any, node: int) -> Any:
        self.sent.append((request, node))
        raise self.error


@pytest.mark.parametrize(
    "error",
    [RequestTimedOutError(), NodeNotReadyError(), KafkaConnectionError(), OSError("reset"), ValueError("bytes")],
)
def test_whatever_the_answer_is_it_is_sent_once(error: Exception) -> None:
    cluster, sender = MarkerCluster.__new__(MarkerCluster), _Sender(error)
    cluster.manager = sender
    answer = cluster.send_once(MarkerRequest(3, 1, "payments", 7, PID, 8, 4, 0))
    assert type(error).__name__ in answer
    ((request, node),) = sender.sent
    assert (node, request.API_KEY, request.API_VERSION) == (3, 27, 1)


WORDS = ("marker_writer", "send_once", "import WriteTxnMarkersRequest", "commands.finish", "commands import finish")


def test_nothing_else_can_write_to_a_cluster() -> None:
    """Which modules of the product name the connection that can write, the request, and the command."""
    named: dict[str, set[str]] = {}
    for folder in ("auditor", "connectors", "rules", "dashboards", "airflow_dags"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            for word in (word for word in WORDS if word in text):
                named.setdefault(word, set()).add(path.relative_to(ROOT).as_posix())
    writer, command = "connectors/live/marker_writer.py", "auditor/commands/finish.py"
    assert named == {
        "marker_writer": {command, "auditor/pipeline/commit_marker.py"},
        "send_once": {writer, command},
        "import WriteTxnMarkersRequest": {writer},
        "commands.finish": {writer},  # its docstring
    }
    others = re.compile(r"\b(Produce|EndTxn|InitProducerId|AddPartitionsToTxn|Create\w+|Delete\w+|Alter\w+)Request\b")
    clients = (ROOT / "connectors" / "live").glob("*.py")
    assert not [path for path in clients if others.search(path.read_text(encoding="utf-8"))]
