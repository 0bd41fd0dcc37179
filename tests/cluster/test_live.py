"""The whole story against real brokers: healthy load, a hang, both audits, the remedy executed, silence again."""

from __future__ import annotations

import contextlib
import io
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kafka import KafkaProducer

from auditor import cli
from tests.broker.cluster import Cluster
from tests.broker.jars import missing_tools
from tests.cluster import live_story as story
from tests.cluster.live_story import TOPIC, Access

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(missing_tools() is not None, reason=str(missing_tools()))]

WHERE = ("rule", "severity", "topic", "partition", "offset", "last_offset", "producer_id", "producer_epoch",
         "transactional_id")  # fmt: skip


@dataclass
class Setting:
    cluster: Cluster
    access: Access
    folder: Path
    as_of: str = ""

    def live(self, name: str, *more: str) -> tuple[int, list[dict[str, Any]]]:
        out = self.folder / name
        config = self.folder / "client.properties"
        config.write_text("".join(f"{k}={v}\n" for k, v in self.access.client.items()), encoding="utf-8")
        status = cli.main([
            "live", "--bootstrap-server", self.cluster.servers, "--client-config", str(config), "--out", str(out),
            "--as-of", self.as_of, "--quiet", *more,
        ])  # fmt: skip
        return status, story.findings(out)

    def recheck(self, name: str) -> tuple[int, list[tuple[str, str]], set[tuple[str, str]]]:
        """Exit code, of each hold that a run left its answer and why, and of each finding its kind and answer, as the
        running cluster shows it."""
        call = ["recheck", "--out", str(self.folder / name), "--bootstrap-server", self.cluster.servers,
                "--client-config", str(self.folder / "client.properties"), "--as-of", self.as_of]  # fmt: skip
        with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), "utf-8")) as said:
            status = cli.main([*call, "--format", "json"])
        said.seek(0)
        rows = [json.loads(line) for line in said]
        holds = [(row["answer"], row["why"]) for row in rows if row["fingerprint"] is None]
        return status, holds, {(row["kind"], row["answer"]) for row in rows if row["fingerprint"] is not None}

    def offline(self, name: str) -> list[dict[str, Any]]:
        self.cluster.copy(self.folder / f"{name}-copy")
        out = self.folder / name
        cli.main(["audit", str(self.folder / f"{name}-copy"), "--out", str(out), "--as-of", self.as_of, "--quiet"])
        return story.findings(out)

    def with_a_flipped_bit(self, name: str) -> str:
        """The results of an audit of a copy that :meth:`offline` made, in which a body lost a bit: what the copy shows,
        and no broker does."""
        copy, out = self.folder / f"{name}-copy", self.folder / f"{name}-damaged"
        file = next(copy.rglob(f"{TOPIC}-0/*.log"))
        content = bytearray(file.read_bytes())
        content[64] ^= 1
        file.write_bytes(content)
        cli.main(["audit", str(copy), "--out", str(out), "--as-of", self.as_of, "--quiet", "--master", "inline"])
        return out.name


@pytest.fixture(
    params=[
        ("3.6.2", {"transaction.partition.verification.enable": "false"}, False),
        ("3.6.2", {"transaction.partition.verification.enable": "false"}, True),
        ("4.1.0", {"transaction.partition.verification.enable": "false"}, False),
        ("2.8.2", {}, False),
    ],
    ids=["3.6.2", "3.6.2-SASL_SSL", "4.1.0", "2.8.2"],
)
def setting(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Setting]:
    version, settings, secure = request.param
    access = story.secured(tmp_path / "certificates") if secure else Access()
    with Cluster(version, tmp_path / "brokers", **settings, **access.broker) as cluster:
        story.create_topic(cluster, access)
        yield Setting(cluster, access, tmp_path)


def hung(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in found if row["kind"] == "hanging-transaction"]


def hang_by_default(setting: Setting) -> dict[str, Any]:
    """Read from the last stable offset. Coordinators before 3.0 show nothing: there it takes the clocks' skew, 30 s."""
    until = time.monotonic() + 120
    while True:
        found = hung(setting.live("hanging-lso")[1])
        if found or time.monotonic() > until:
            return found[0]
        time.sleep(5)


def test_a_hang_is_found_closed_and_gone(spark: SparkSession, setting: Setting) -> None:
    cluster, access = setting.cluster, setting.access
    setting.as_of = str(int(time.time() * 1000) + 3_600_000)
    producer = KafkaProducer(bootstrap_servers=cluster.servers, transactional_id="story", **access.client)
    producer.init_transactions()
    story.transactions(producer, 0, 6)
    assert setting.live("healthy", "--from", "start") == (0, [])

    state = producer._transaction_manager.producer_id_and_epoch
    offset = story.write_late(cluster, access, state.producer_id, state.epoch, 6 * 3)
    time.sleep(1)  # the coordinator's log must show that it went on after the late data
    story.transactions(producer, 1, 3)
    assert story.last_stable_offset(cluster, access) == offset

    status, found = setting.live("hanging", "--from", "start", "--tables")
    assert status == 1
    (hang,) = hung(found)
    assert (hang["topic"], hang["partition"], hang["offset"], hang["producer_id"]) == (
        TOPIC, 0, offset, state.producer_id,
    )  # fmt: skip
    assert hang_by_default(setting)["offset"] == offset
    assert [[row[n] for n in WHERE] for row in setting.offline("offline")] == [[row[n] for n in WHERE] for row in found]

    status, ((answer, _),), compared = setting.recheck("hanging")
    assert (status, answer, compared) == (1, "still held", {("hanging-transaction", "still there")})
    damaged = setting.with_a_flipped_bit("offline")
    assert ("batch-crc-mismatch", "not looked at") in setting.recheck(damaged)[2]

    story.execute(hang["remedy"], cluster, access)
    story.transactions(producer, 1, 3)
    producer.close()
    assert story.last_stable_offset(cluster, access) == offset + 3  # two records and the marker
    over = ("over", f"its ABORT marker is at offset {offset + 2}")
    assert setting.recheck("hanging") == (0, [over], {("hanging-transaction", "gone")})
    assert setting.recheck(damaged) == (
        3,
        [over],
        {("hanging-transaction", "gone"), ("batch-crc-mismatch", "not looked at")},
    )
    assert hung(setting.live("after", "--from", "start")[1]) == []
    summary = json.loads((setting.folder / "after" / "summary.json").read_text(encoding="utf-8"))
    log = next(log for log in summary["live"]["logs"] if (log["topic"], log["partition"]) == (TOPIC, 0))
    assert log["last_stable_offset"] == log["log_end"] == offset + 3
    for out in ("healthy", "hanging", "after"):
        for file in (setting.folder / out).glob("*.*"):
            assert not access.client or story.PASSWORD not in file.read_text(encoding="utf-8")
