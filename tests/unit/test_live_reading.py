"""A log handed out by a broker in pieces is replayed to what its files are replayed to; budgets and mistakes."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow.parquet as pq
import pytest

from auditor import cli, running
from auditor.base.errors import AuditInputError
from auditor.base.user_input import since_of
from auditor.commands import live
from auditor.connectors import schema
from auditor.connectors.live.client_properties import CONNECTION_OPTIONS
from auditor.connectors.live.live_cluster import (
    EARLIEST,
    TOPIC,
    BrokerFeatures,
    Budget,
    ControllerQuorum,
    FetchedBatches,
    ListedTransaction,
    LiveCluster,
    Name,
    PartitionMetadata,
    Producer,
)
from auditor.dashboards.finding_groups import Printing
from auditor.facts.replica_facts import ReplicaFacts
from auditor.outputs import alerts
from auditor.pipeline import derived_tables
from auditor.pipeline.judge import judge_log
from auditor.pipeline.live_audit import Abandoned, ClusterReading, LiveAudit
from auditor.pipeline.options import AuditOptions
from auditor.replay.reading.other_replicas import LiveReader, LiveTask, whole_batches
from auditor.rules.seen.cluster_view import Cluster
from auditor.rules.seen.view import LogView
from tests import corpora, segments
from tests.facts import corpus_logs, here, judge, log_of

CORPORA = ("hanging-36", "healthy-41")


def logs() -> Iterator[tuple[str, LogView]]:
    for name in CORPORA:
        yield from ((name, log) for log in corpus_logs(name) if log.leader.segments and log.topic[:9] != "__cluster")


def handed_out(name: str, facts: ReplicaFacts, piece: int) -> ReplicaFacts:
    """The log as a broker would hand it out: from each offset asked for, a piece of the stored bytes."""
    (log_dir,) = corpora.unpack(name).glob("broker-*")
    data = b"".join((log_dir / file).read_bytes() for file in facts.segments)
    task = LiveTask(facts.topic, facts.partition, 1, "broker-1", "c", "c", facts.log_start, facts.log_end)
    reader, at = LiveReader(task), 0
    while reader.next_offset < task.end and at < len(data):
        length = piece
        while not reader.take(data[at : at + length]):
            length *= 2
        at = reader.size
    return reader.done(-1, task.end)


@pytest.mark.parametrize("piece", [100, 5_000, 1 << 30])
def test_pieces_replay_to_what_the_files_do(piece: int) -> None:
    seen = 0
    for name, log in logs():
        whole = log.leader
        if whole.snapshots or whole.errors or len(whole.segments) != 1:
            continue
        seen += 1
        pieces = handed_out(name, whole, piece)
        for field in ("producer_id", "producer_epoch", "last_sequence", "last_offset", "txn_first_offset"):
            np.testing.assert_array_equal(
                np.sort(pieces.producers, order="producer_id")[field],
                np.sort(whole.producers, order="producer_id")[field],
            )
        names = ["producer_id", "first_offset", "last_offset", "marker_offset", "commit"]
        assert pieces.transactions[names].tolist() == whole.transactions[names].tolist()
        assert (pieces.log_start, pieces.log_end) == (whole.log_start, whole.log_end)
    assert seen


@pytest.mark.parametrize("cut", [1, 11, 12, 40])
def test_a_batch_that_is_cut_off_waits_for_the_next_piece(cut: int) -> None:
    first, second = segments.simple(0), segments.simple(3)
    assert whole_batches(first + second[:cut], 6) == len(first)
    reader = LiveReader(LiveTask("t", 0, 1, "broker-1", None, "live", 0, 6))
    assert reader.take(first + second[:cut])
    assert reader.next_offset == 3
    assert reader.take(second)
    assert not reader.take(second), "nothing new"
    assert reader.done(-1, 6).errors == []


def test_what_comes_behind_the_end_is_left() -> None:
    assert whole_batches(segments.simple(0) + segments.simple(3), 3) == len(segments.simple(0))


def test_what_has_been_cleaned_is_shown_by_the_batches_alone() -> None:
    task = LiveTask("__transaction_state", 0, 1, "broker-1", None, "live", 0, 20, compacted=True)
    reader = LiveReader(task)
    reader.take(segments.simple(0) + segments.simple(10) + segments.simple(13))
    assert reader.done(-1, 20).intact_from == 10


class OneLog:
    """What is asked of a cluster whose only log holds these bytes up to the offset 16."""

    failures = ()

    def __init__(self, data: bytes, settings: dict[str, str]) -> None:
        self.data, self.settings = data, settings

    def metadata(self) -> tuple[str, list[int], list[PartitionMetadata]]:
        return "c", [1], [PartitionMetadata("t", 0, 1, 0, (1,), (1,))]

    def configs(self, kind: int, names: list[str], node: int | None = None) -> dict[str, dict[str, str]]:
        return {name: self.settings for name in names if kind == TOPIC}

    def offsets(self, node: int, names: list[Name], spec: int, *_: int, **__: int) -> dict[Name, int]:
        return dict.fromkeys(names, 0 if spec == EARLIEST else 16)

    def producers(self, *_: object) -> dict[Name, list[Producer]]:
        return {}

    def transactions(self, *_: object) -> dict[str, ListedTransaction]:
        return {}

    def fetch(self, log: PartitionMetadata, offset: int, most: int) -> FetchedBatches:
        return FetchedBatches(self.data, 16, 16)

    def racks(self) -> tuple[dict[int, str | None], int]:
        return {1: None}, 1

    def quorum(self) -> ControllerQuorum | None:
        return None

    def features(self, node: int) -> BrokerFeatures:
        return BrokerFeatures({}, {})

    def groups(self, brokers: list[int]) -> list[str]:
        return []


@pytest.mark.parametrize(
    ("settings", "intact_from", "rules"),
    [
        ({"cleanup.policy": "delete"}, 0, ["offset-hole"]),
        ({"cleanup.policy": "compact"}, 10, []),
        ({"segment.ms": "1"}, 10, []),
        ({}, 10, []),
    ],
)
def test_a_topic_whose_settings_are_not_known_may_have_been_cleaned(
    settings: dict[str, str], intact_from: int, rules: list[str]
) -> None:
    """Offsets 3 to 9 are not there: lost, or taken by the cleaner."""
    held = segments.simple(0) + segments.simple(10) + segments.simple(13)
    cluster, options = cast(LiveCluster, OneLog(held, settings)), AuditOptions(("c",), Path())
    reading = ClusterReading(cluster, options, Budget(1 << 20, 1 << 30), "start")
    reading.run(lambda _: None)
    assert [(facts.log_end, facts.intact_from) for facts in reading.facts] == [(16, intact_from)]
    assert [f.kind for f in judge([log_of(reading.facts)], "offset-hole")] == rules


def test_the_audit_of_a_cluster_is_published_as_ever_and_sends_its_alerts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[int, list[str]]] = []
    monkeypatch.setattr(alerts, "send", lambda reported, channels: sent.append((len(reported.new), channels)) or [])
    monkeypatch.setenv("AUDITOR_SLACK_WEBHOOK", "http://127.0.0.1:1/")
    held = segments.simple(0) + segments.simple(10) + segments.simple(13)
    cluster = cast(LiveCluster, OneLog(held, {"cleanup.policy": "delete"}))
    options = AuditOptions(("c",), tmp_path, records=True, tables=True, as_of=0)
    audit = LiveAudit(ClusterReading(cluster, options, Budget(1 << 20, 1 << 30), "start"), here())
    status = running.command(audit, Printing(quiet=True), alerts.AlertOptions(["slack"], "info"))
    found = [json.loads(line) for line in (tmp_path / "findings.jsonl").read_text().splitlines()]
    assert "offset-hole" in [f["kind"] for f in found]
    assert {f["file"] for f in found} == {None}
    assert sent == [(len(found), ["slack"])]
    assert status == int(any(f["severity"] in ("error", "critical") for f in found))
    assert json.loads((tmp_path / "summary.json").read_text())["live"]["brokers"] == [1]
    read = {path.name: pq.read_table(path) for path in (tmp_path / "tables").iterdir()}
    assert set(read) == {*schema.DECODED, *derived_tables.OF_FACTS, "findings", "blocked", "impact", "rehearsal"}
    assert read["batches"].column("base_offset").to_pylist() == [0, 10, 13]
    assert read["findings"].num_rows == len(found)


class Hidden(OneLog):
    """A cluster that lists these partitions to a user, and shows nothing of them."""

    def __init__(self, logs: list[PartitionMetadata]) -> None:
        super().__init__(b"", {})
        self.listed = logs

    def metadata(self) -> tuple[str, list[int], list[PartitionMetadata]]:
        return "c", [1], self.listed

    def offsets(self, *_: object, **__: object) -> dict[Name, int]:
        return {}


NOT_VISIBLE = "no partitions visible: empty cluster, or missing Describe permission"


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        ([], NOT_VISIBLE),
        ([PartitionMetadata("t", 0, -1, 0, (1,), ())], "all visible partitions are unreadable"),
        ([PartitionMetadata("t", 0, 1, 0, (1,), (1,))], "all visible partitions are unreadable"),
    ],
    ids=["nothing-listed", "no-leader", "no-answer"],
)
def test_a_cluster_of_which_nothing_was_read_is_no_all_clear(
    listed: list[PartitionMetadata], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = AuditOptions(("c",), tmp_path, as_of=1_795_838_417_137)
    reading = ClusterReading(cast(LiveCluster, Hidden(listed)), options, Budget(1 << 20, 1 << 30), "lso")
    assert running.command(LiveAudit(reading, here()), Printing(quiet=True)) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"auditor: {said}")
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["complete"], summary["as_of"]) == (False, "2026-11-28T04:00:17.137Z")
    assert summary["verdict"]["tone"] == "unsure"
    assert summary["verdict"]["headline"].startswith(said[0].upper() + said[1:])


@pytest.mark.parametrize("scope", [{"topics": ("t",)}, {"only_partitions": ("t-0",), "may_lack": True}])
def test_where_nothing_is_visible_no_filter_is_wrong(scope: dict[str, Any]) -> None:
    options = AuditOptions(("c",), Path(), **scope)
    audit = LiveAudit(ClusterReading(cast(LiveCluster, Hidden([])), options, Budget(1 << 20, 1 << 30), "lso"), here())
    assert audit.empty_input is not None
    assert audit.empty_input.reason == NOT_VISIBLE


def test_an_early_end_is_an_error_of_its_own() -> None:
    reader = LiveReader(LiveTask("t", 0, 1, "broker-1", None, "live", 0, 6))
    reader.take(segments.simple(0))
    facts = reader.done(-1, 6, "read limit reached (--max-bytes)")
    assert [(e.reason, "offset 3 to 6" in e.detail) for e in facts.errors] == [("limit", True)]
    assert facts.breaks_off
    assert facts.log_end == 3
    rows = dict(judge_log([facts], Cluster(as_of=0, newest_time=0), ()))
    assert rows["log"]["notes"] == ["t-0: the log was not read to its end, so its end is not checked"]


def test_a_budget_keeps_to_its_rate_and_its_bytes() -> None:
    now, slept = [0.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    budget = Budget(1000, 100, clock=lambda: now[0], sleep=sleep)
    for _ in range(4):
        budget.take(200)
    assert now[0] == pytest.approx(8)
    assert not budget.spent
    budget.take(200)
    assert budget.spent


EMPTY = ListedTransaction("CompleteCommit", 7)
ONGOING = ListedTransaction("Ongoing", 7, 0, frozenset({"t-1"}))


@pytest.mark.parametrize(
    ("before", "after", "abandoned"),
    [
        ({"a": EMPTY}, {"a": EMPTY}, True),
        ({"a": ONGOING}, {"a": ONGOING}, True),  # of another partition
        ({"a": ONGOING._replace(partitions=frozenset({"t-0"}))},) * 2 + (False,),
        ({"a": ONGOING}, {"a": EMPTY}, False),
        ({"a": ListedTransaction("PrepareCommit", 7, 0)},) * 2 + (False,),
        ({"a": ListedTransaction("Ongoing", 7)},) * 2 + (False,),  # not described, so its partitions are not known
        ({}, {}, True),  # no id has this producer id
        (None, {}, False),  # a coordinator did not answer
    ],
)
def test_only_what_no_coordinator_has_open_is_abandoned(
    before: dict[str, ListedTransaction] | None, after: dict[str, ListedTransaction] | None, abandoned: bool
) -> None:
    assert Abandoned(before, after)(7, ("t", 0)) is abandoned


def given_options(**values: object) -> argparse.Namespace:
    return argparse.Namespace(
        **(dict.fromkeys(CONNECTION_OPTIONS) | {"client_config": None, "command_config": None} | values)
    )


def test_secrets_come_from_a_file_and_the_command_line_goes_first(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# mine\nsasl_plain_password = s=e\nsecurity_protocol=SASL_SSL\nrequest_timeout_ms=500\n")
    options = given_options(client_config=file, security_protocol="SASL_PLAINTEXT", ssl_check_hostname="false")
    assert live.connection(options) == {
        "sasl_plain_password": "s=e", "security_protocol": "SASL_PLAINTEXT", "request_timeout_ms": 500,
        "ssl_check_hostname": False,
    }  # fmt: skip


@pytest.mark.parametrize("text", ["password=x", "request_timeout_ms=soon"])
def test_an_option_that_is_none_is_reported_without_its_value(tmp_path: Path, text: str) -> None:
    file = tmp_path / "client.properties"
    file.write_text(text)
    with pytest.raises(AuditInputError) as raised:
        live.connection(given_options(client_config=file))
    assert "=x" not in str(raised.value)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--from", "here"], "lso, start, or an offset"),
        (["--max-bytes", "1"], "--max-bytes"),
        (["--client-config", "no-such-file"], "name=value"),
        (["--request-timeout-ms", "300"], "cannot reach a cluster"),
    ],
)
def test_mistakes_end_in_one_line(
    more: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ["live", "--bootstrap-server", "127.0.0.1:1", "--out", str(tmp_path), "--sasl-plain-password", "hidden"]
    assert cli.main([*call, *more]) == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert says in said.err
    assert "hidden" not in said.err + said.out


class Timed(OneLog):
    """Its last stable offset is 5, the first offset as young as a second 10, and nothing is younger than two; the
    coordinator's log is as long."""

    def metadata(self) -> tuple[str, list[int], list[PartitionMetadata]]:
        topics = ("t", "u", "__transaction_state")
        return "c", [1, 2], [PartitionMetadata(topic, 0, 2 if topic == "u" else 1, 0, (1,), (1,)) for topic in topics]

    def offsets(self, node: int, names: list[Name], spec: int, *isolation: int, **__: int) -> dict[Name, int]:
        at = {EARLIEST: 0, 1000: 10, 2000: -1}.get(spec, 5 if isolation else 16)
        return dict.fromkeys(names, at)


@pytest.mark.parametrize(
    ("since", "begins"),
    [("12", 5), ("3", 3), ("0", 0), ("1970-01-01T00:00:01Z", 5), ("1970-01-01T00:00:02Z", 5)],
)
def test_since_begins_at_the_last_stable_offset_where_that_is_lower(since: str, begins: int) -> None:
    """So that whoever holds the log is named."""
    options = AuditOptions((), Path(), since=since_of(since), only_partitions=("t-0",))
    held = b"".join(segments.simple(at) for at in range(0, 16, 3))
    reading = ClusterReading(cast(LiveCluster, Timed(held, {})), options, Budget(1 << 20, 1 << 30), "lso")
    reading.run(lambda _: None)
    assert {log.topic: reading.first(log) for log in reading.logs} == {"t": begins, "__transaction_state": 0}
    assert reading.left_out == 1


def test_a_scope_of_a_cluster_is_by_leaders_and_must_match() -> None:
    def logs_of(**asked: tuple[int, ...] | tuple[str, ...]) -> list[str]:
        options = AuditOptions((), Path(), **asked)  # type: ignore[arg-type]
        cluster = cast(LiveCluster, Timed(segments.simple(0), {}))
        reading = ClusterReading(cluster, options, Budget(1 << 20, 1 << 30), "lso")
        reading.run(lambda _: None)
        return [log.topic for log in reading.logs]

    assert logs_of(only_brokers=(2,)) == ["u", "__transaction_state"]
    with pytest.raises(AuditInputError, match="--only-broker 3 matches no broker"):
        logs_of(only_brokers=(3,))
    with pytest.raises(AuditInputError, match="--only-partition t-7 matches no partition"):
        logs_of(only_partitions=("t-7",))
