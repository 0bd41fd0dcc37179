"""What the cluster did, beside what was found: a real cluster's metadata log, and entries in their order."""

from __future__ import annotations

import pytest

from auditor.base.errors import DEFAULT_LIMITS
from auditor.connectors.logdir.inventory import discover
from auditor.dashboards.answers import FINDING
from auditor.dashboards.page import around, stories, when
from auditor.dashboards.terminal import explained
from auditor.pipeline import cluster_settings
from auditor.pipeline.cluster_settings import EventsTask, read_events
from tests import corpora
from tests.facts import opened


def events(*wanted: tuple[str, int]) -> dict[str, list[dict[str, object]]]:
    """Of broker 2, which saw all of it: broker 1 was killed before the end."""
    inventory = discover([str(corpora.unpack("unclean-43"))])
    (log_dir,) = (one for one in inventory.log_dirs if one.name == "broker-2a")
    replica = next(c for c in log_dir.replicas if c.topic == "__cluster_metadata")
    rows = read_events(EventsTask(log_dir.place, replica, wanted, DEFAULT_LIMITS))
    return {f"{row['topic']}-{row['partition']}": row["events"] for row in rows}


def test_the_unclean_election_stands_among_what_led_to_it() -> None:
    """The records at these offsets are those that Kafka's own tool prints (see test_rules_elections)."""
    said = {e["metadata_offset"]: str(e["says"]) for e in events(("un", 0))["un-0"]}
    assert said[613].startswith("leader 2 (before: leader 1), leader epoch 3; in sync 2 (before: 1)")
    assert said[613].endswith("elected without being in sync (recovering)")
    assert said[572] == "in sync 1 (before: 1, 2)"
    assert (said[576], said[586], said[617]) == ("broker 2 fenced", "broker 2 unfenced", "broker 1 fenced")
    assert list(said) == sorted(said)  # type: ignore[type-var]


def test_a_reassignment_is_said_where_it_begins_and_ends() -> None:
    said = {e["metadata_offset"]: str(e["says"]) for e in events(("mv", 0))["mv-0"]}
    assert said[157] == "being moved: to 3, away from 1"
    assert said[161].endswith("moved: replicas 3, 2")


def test_old_events_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = events(("un", 0))["un-0"]
    monkeypatch.setattr(cluster_settings, "MAX_EVENTS", 4)
    assert events(("un", 0))["un-0"] == everything[-4:]


def test_nothing_is_read_where_nothing_was_found() -> None:
    assert opened(corpora.unpack("healthy-41")).cluster_events == []


def event(time: str | None, says: str) -> dict[str, object]:
    return {"time": time, "metadata_offset": 1, "says": says}


ROWS = [{"topic": "t", "partition": 0, "left_out": 3, "events": [
    event(None, "led"), *(event(f"2026-01-01T00:00:{second:02}.000Z", f"event {second}") for second in range(0, 40, 2)),
]}]  # fmt: skip


def found(**given: object) -> dict[str, object]:
    row = dict.fromkeys(FINDING) | {"topic": "t", "partition": 0, "severity": "error", "message": "the finding",
                                    "rule": "r", "fingerprint": "f", "evidence": {}}  # fmt: skip
    return row | {"timestamp": "2026-01-01T00:00:19.000Z"} | given


def test_findings_stand_between_the_events_of_their_partition() -> None:
    other = [found(partition=1), found(severity="info"), found(timestamp=None)]
    (story,) = stories(ROWS, [found(), *other])
    said = [entry.says for entry in story.entries]
    assert (story.name, story.left_out, said[0]) == ("t-0", 3, "led")
    at = said.index("the finding")
    assert said[at - 1 : at + 2] == ["event 18", "the finding", "event 20"]
    assert len(said) == 22


def test_a_finding_stands_where_the_brokers_saw_it_not_where_its_producers_clock_did() -> None:
    """hanging-36: a producer whose clock is two hours behind, whose topic was made before it wrote."""
    evidence = {"since": "2026-01-01T00:00:19.500Z", "since_by_producer": "2025-12-31T22:00:19.500Z"}
    late = found(timestamp="2025-12-31T22:00:19.500Z", evidence=evidence)
    (story,) = stories(ROWS, [late])
    at = [entry.severity for entry in story.entries].index("error")
    assert (story.entries[at].time, story.entries[at - 1].says) == ("2026-01-01T00:00:19.500Z", "event 18")
    assert when(found(evidence={"since": "2026-01-01T00:00:01.000Z"})) == "2026-01-01T00:00:19.000Z"


def test_explain_shows_what_came_right_before_and_after() -> None:
    said = [entry.says for entry in around(ROWS, found())]
    assert said == [f"event {n}" for n in (10, 12, 14, 16, 18, 20, 22, 24, 26, 28)]
    assert around(ROWS, found(partition=7)) == []
    assert [entry.says for entry in around(ROWS, found(timestamp=None))][-1] == "event 38"
    text = "\n".join(explained(found(), {}, 120, ROWS))
    assert "Cluster events:" in text
    assert "event 18" in text
