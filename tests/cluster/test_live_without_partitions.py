"""``auditor live`` where a real broker shows no partition: a cluster without topics, and a user without permissions."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

import auditor
from auditor import cli
from auditor.connectors.live.live_cluster import LiveCluster
from tests import corpora
from tests.broker.cluster import Cluster
from tests.broker.jars import missing_tools
from tests.cluster import live_story as story
from tests.cluster.live_story import TOPIC, Access

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(missing_tools() is not None, reason=str(missing_tools()))]
NOTHING_VISIBLE = "no partitions visible: empty cluster, or missing Describe permission"
PERMISSIONS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:{story.USER};User:ANONYMOUS",  # ANONYMOUS: the listener of the controllers, which is plain
}


@pytest.fixture(scope="module")
def access(tmp_path_factory: pytest.TempPathFactory) -> Access:
    return story.secured(tmp_path_factory.mktemp("live") / "certificates")


@pytest.fixture(scope="module")
def cluster(access: Access, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("brokers")
    with Cluster("4.3.1", folder / "cluster", **access.broker, **PERMISSIONS) as cluster:
        until = time.monotonic() + 60
        while not metadata(cluster, access.client)[0] and time.monotonic() < until:
            time.sleep(1)
        yield cluster


def guest(access: Access) -> dict[str, Any]:
    return access.client | {"sasl_plain_username": story.GUEST, "sasl_plain_password": story.GUEST_PASSWORD}


def metadata(cluster: Cluster, client: dict[str, Any]) -> tuple[list[int], set[str]]:
    """The brokers and the topics that a broker lists to a user."""
    with LiveCluster(cluster.servers, client) as live:
        _, brokers, logs = live.metadata()
        return brokers, {log.topic for log in logs}


def connected(cluster: Cluster, client: dict[str, Any], folder: Path) -> list[str]:
    file = folder / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in client.items()), encoding="utf-8")
    return ["--bootstrap-server", cluster.servers, "--client-config", str(file)]


def assert_says_so(cluster: Cluster, client: dict[str, Any], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each command and output that asks the cluster says why it judged nothing, and none says that all is well."""
    where, out = connected(cluster, client, folder), folder / "out"
    assert cli.main(["live", *where, "--out", str(out)]) == 3
    said = capsys.readouterr()
    assert said.err.splitlines() == [f"auditor: {NOTHING_VISIBLE}"]
    summary = json.loads((out / "summary.json").read_text())
    assert summary["complete"] is False
    assert summary["empty_input"] == NOTHING_VISIBLE
    assert (summary["verdict"]["tone"], summary["verdict"]["exit"]) == ("unsure", 3)
    page = (out / "report.html").read_text()
    for text in (said.out, json.dumps(summary), page):
        assert "1970-01-01" not in text
        assert "no problems" not in text.lower()
    assert NOTHING_VISIBLE[1:] in page
    assert 'kafka_audit_complete{cluster="' in (out / "metrics.prom").read_text()
    # A filter matches nothing because nothing is visible, not because it is wrong.
    assert cli.main(["live", *where, "--topic", TOPIC, "--out", str(folder / "filtered"), "--quiet"]) == 3
    assert capsys.readouterr().err.splitlines() == [f"auditor: {NOTHING_VISIBLE}"]

    earlier = folder / "earlier"
    assert cli.main(["audit", str(corpora.unpack("hanging-36")), "--out", str(earlier), "--quiet"]) == 1
    assert cli.main(["recheck", "--out", str(earlier), *where]) == 3
    assert capsys.readouterr().err.splitlines() == [f"auditor: {NOTHING_VISIBLE}"]

    with auditor.open(bootstrap_server=cluster.servers, client_config=client) as audit:
        assert audit.exit_status == 3
        assert audit.summary["verdict"]["tone"] == "unsure"


def test_a_cluster_without_topics(
    cluster: Cluster, access: Access, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert metadata(cluster, access.client) == ([1], set())
    assert_says_so(cluster, access.client, tmp_path, capsys)


def test_the_directory_of_a_new_broker(cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its metadata shows that there are no topics yet, which is right."""
    cluster.copy(tmp_path / "copy")
    assert cli.main(["audit", str(tmp_path / "copy"), "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr()
    assert said.err.startswith("auditor: no topics yet")
    assert said.out.startswith("No topics yet")
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["complete"] is True
    assert (summary["verdict"]["tone"], summary["verdict"]["exit"]) == ("unsure", 0)


def test_a_user_who_may_describe_nothing(
    cluster: Cluster, access: Access, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A broker lists itself to any user, leaves out the topics that one may not see, and reports no error."""
    story.create_topic(cluster, access)
    with KafkaProducer(bootstrap_servers=cluster.servers, **access.client) as producer:
        producer.send(TOPIC, b"value", partition=0).get(30)
    assert metadata(cluster, access.client) == ([1], {TOPIC})
    assert metadata(cluster, guest(access)) == ([1], set())
    assert_says_so(cluster, guest(access), tmp_path, capsys)
    where = connected(cluster, access.client, tmp_path)
    assert cli.main(["live", *where, "--out", str(tmp_path / "allowed"), "--quiet"]) == 0
    assert capsys.readouterr().err == ""
    assert json.loads((tmp_path / "allowed" / "summary.json").read_text())["empty_input"] is None
