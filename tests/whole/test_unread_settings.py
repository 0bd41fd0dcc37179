"""A setting whose value no broker takes: the same in the exit status, the summary, the tables, and on the page."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from auditor.base.errors import is_unread
from auditor.connectors.codec.cluster_metadata import ClusterMetadata
from auditor.connectors.logdir.files import LogDir
from auditor.connectors.stores.storage import StorageLocation
from auditor.pipeline.cluster_settings import ClusterSettings, drop_invalid_settings
from auditor.pipeline.options import AuditOptions
from tests import corpora
from tests.audited import published

NAME = "producer.id.expiration.ms"
SAID = f"{NAME} has an invalid value; checks that need it use Kafka's default, or are skipped"


@pytest.mark.parametrize(("value", "status"), [("9" * 20, 3), ('"60000"', 3), (" 0060000", 1), ("${env:TTL}", 1)])
def test_every_surface_says_the_same(tmp_path: Path, value: str, status: int) -> None:
    """A value that Java takes is none of it, nor one that a config provider gives: that one is a note."""
    settings = corpora.copy("hanging-36", tmp_path / "in") / "server-1.properties"
    settings.write_text(settings.read_text() + f"\n{NAME}={value}\n")
    audit = published(AuditOptions((str(tmp_path / "in"),), tmp_path / "out", tables=True))
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    rows = pq.read_table(tmp_path / "out" / "tables" / "decode_errors").to_pylist()
    said = [(item["file"], item["reason"], item["detail"]) for item in summary["unreadable"]]
    assert audit.exit_code() == status
    assert summary["complete"] is (status != 3)
    assert said == [("server-1.properties", "bad_setting", SAID)] * (status == 3)
    assert [(row["file"], row["reason"], row["detail"]) for row in rows] == said
    assert summary["counts"]["by_rule"]["hanging-transaction"] == 4
    page = (tmp_path / "out" / "report.html").read_text()
    assert (f"{NAME} has an invalid value" in page) is (status == 3)
    assert any("from a source that is missing" in note for note in summary["notes"]) is value.startswith("$")


def test_what_the_metadata_sets_is_taken_as_controllers_take_it() -> None:
    """No controller writes such a value: each name is said once, however many topics have it."""
    metadata = ClusterMetadata()
    metadata.topic_configs = {f"t{n}": {"retention.ms": "9" * 20, "cleanup.policy": "delete"} for n in range(1000)}
    metadata.topic_configs["sound"] = {"retention.ms": "-1", "made.up": "9" * 20}
    cluster = ClusterSettings(
        metadata, source=LogDir("b", StorageLocation("file", "/b"), "k"), topic_configs=dict(metadata.topic_configs),
        broker_configs={"": {NAME: "x"}, "1": {NAME: "60000"}},
    )  # fmt: skip
    errors = drop_invalid_settings(cluster)
    assert [error.detail.partition(" has ")[0] for _, error in errors] == [
        f"{NAME} of broker default", "retention.ms of topic t0 and 999 more"
    ]  # fmt: skip
    assert all(is_unread(error.reason, error.detail) for _, error in errors)
    assert cluster.topic_configs["t0"] == {"cleanup.policy": "delete"}
    assert cluster.topic_configs["sound"] == {"retention.ms": "-1", "made.up": "9" * 20}
    assert cluster.broker_configs == {"": {}, "1": {NAME: "60000"}}
    assert metadata.topic_configs["t0"]["retention.ms"] == "9" * 20  # as it is stored
