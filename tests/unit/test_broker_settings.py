"""Which settings are read from a broker's file, and which values of them no broker takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from auditor.base.errors import DEFAULT_LIMITS
from auditor.connectors.codec.small_files import OF_BROKERS, OF_TOPICS, sort_out
from auditor.connectors.logdir.files import Inventory
from auditor.connectors.logdir.inventory import discover
from auditor.pipeline import cluster_settings
from auditor.rules.seen.cluster_view import Cluster

# What ConfigDef.parseType and the validators of 2.8.2 and 4.3.1 took of these, and of the texts in REFUSED.
VALUES = ("86400000", " 86400000 ", "+86400000", "0086400000", "0" * 5000 + "86400000", "\u0661", "2147483648",
          "9223372036854775807", "-1", "-5", "0", "1", "13")  # fmt: skip
REFUSED = ("99999999999999999999", "7" * 5000, '"86400000"', "86400000ms", "1.5", "1e3", "", "\u00b2", "null", "0xFF")
ANY_INT = {*VALUES} - {"2147483648", "9223372036854775807"}
POSITIVE_INT = ANY_INT - {"-1", "-5", "0"}
TAKEN = {
    "broker.id": ANY_INT,
    "node.id": ANY_INT,
    "producer.id.expiration.ms": POSITIVE_INT,
    "producer.id.expiration.check.interval.ms": POSITIVE_INT,
    "transactional.id.expiration.ms": POSITIVE_INT,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": POSITIVE_INT,
    "transaction.state.log.num.partitions": POSITIVE_INT,
    "offsets.topic.num.partitions": POSITIVE_INT,
    "log.segment.bytes": POSITIVE_INT - {"1", "13", "\u0661"},
    "log.retention.ms": {*VALUES},
    "log.retention.minutes": ANY_INT,
    "log.retention.hours": ANY_INT,
    "log.retention.bytes": {*VALUES},
    "log.message.timestamp.difference.max.ms": {*VALUES},
    "log.message.timestamp.before.max.ms": {*VALUES} - {"-1", "-5"},
    "log.message.timestamp.after.max.ms": {*VALUES} - {"-1", "-5"},
}


@pytest.mark.parametrize("name", TAKEN)
def test_values_are_refused_as_kafka_refuses_them(name: str) -> None:
    for value in VALUES + REFUSED:
        found = sort_out({name: value}, OF_BROKERS)
        assert (name in found.known, name in found.refused) == (value in TAKEN[name], value not in TAKEN[name]), value


def test_versions_and_what_no_audit_goes_by() -> None:
    name = "inter.broker.protocol.version"
    for version in ("3.6", "2.8-IV1", "0.11.0", "0.8.2", "0.9.0.X", "0.10.0-IV0", "2.8.x"):
        assert sort_out({name: version}, OF_BROKERS).known == {name: version}
    for version in ("9" * 5000, "three", ""):
        assert sort_out({name: version}, OF_BROKERS).refused == {name}
    others = {"num.io.threads": "9" * 20, "made.up": "-", "retention.ms": "x", "log.flush.interval.ms": "9" * 20}
    assert sort_out(others, OF_BROKERS).known == others
    assert sort_out(others, OF_TOPICS).refused == {"retention.ms"}


@pytest.mark.parametrize("value", ["${file:/etc/kafka/x:ttl}", "${env:TTL}", "$TTL", "$(TTL)", "{{ ttl }}"])
def test_a_value_from_elsewhere_is_unknown_and_not_an_error(tmp_path: Path, value: str) -> None:
    """Where the value stands is no part of the input, and a broker that has it starts."""
    found = _discovered(tmp_path, f"broker.id=1\nproducer.id.expiration.ms={value}\n")
    assert not found.errors
    (note,) = (note for note in found.notes if "from a source that is missing" in note)
    assert "server.properties takes producer.id.expiration.ms from a source that is missing from the input" in note
    assert found.log_dirs[0].unknown_settings == {"producer.id.expiration.ms"}
    assert found.log_dirs[0].configs == {"broker.id": "1"}


def test_a_line_that_does_not_parse_may_have_been_any_setting(tmp_path: Path) -> None:
    """Java's Properties throw at it; what the file sets elsewhere is known all the same."""
    found = _discovered(tmp_path, "broker.id=1\nproducer.id.expiration.ms=5\nlog.\\u12=1\n")
    assert [(item.error.file, item.error.reason) for item in found.errors] == [("server.properties", "bad_setting")]
    assert found.log_dirs[0].unknown_settings == set(OF_BROKERS) - {"broker.id", "producer.id.expiration.ms"}


def test_an_unknown_value_is_not_kafkas_default() -> None:
    cluster = Cluster(0, 0, partition_counts={"__transaction_state": 50})
    assert cluster.knows_count("__transaction_state")
    cluster.unknown_settings = {1: frozenset({"transaction.state.log.num.partitions"})}
    assert not cluster.knows_count("__transaction_state")
    assert cluster.is_unknown(1, "log.dirs", "transaction.state.log.num.partitions")
    assert not cluster.is_unknown(2, "transaction.state.log.num.partitions")


def test_a_broker_s_other_directory_does_not_make_a_setting_known(tmp_path: Path) -> None:
    """Only one of a broker's directories may lie beside its settings."""
    for name in ("a", "b"):
        _discovered(tmp_path / name, "broker.id=1\nproducer.id.expiration.ms=${env:TTL}\n" if name == "a" else "")
    found, _ = cluster_settings.read_settings(discover([str(tmp_path)]), DEFAULT_LIMITS)
    assert {"producer.id.expiration.ms"} in [each.unknown.get(1) for each in found.values()]


def _discovered(root: Path, settings: str) -> Inventory:
    (root / "data" / "t-0").mkdir(parents=True)
    (root / "data" / "t-0" / f"{0:020}.log").touch()
    (root / "data" / "meta.properties").write_text("version=0\nbroker.id=1\n")
    (root / "server.properties").write_text(settings)
    return discover([str(root)])
