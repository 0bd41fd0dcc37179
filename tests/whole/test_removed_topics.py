"""A broker that was down while topics were removed, and made again: its folders are of the removed ones.

The corpus is of real brokers; broker 3 is down. Each of its twins is one that has something to tell.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests import corpora
from tests.audited import above_info, audit_folder
from tests.facts import opened
from tests.forge import Forged

CORPUS, RULE = "two-incarnations-43-down", "replica-of-removed-topic"
OLD = {("inc-ev", 0), ("inc-ev", 1), ("inc-kv", 0)}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return corpora.copy(CORPUS, tmp_path)


def said(root: Path, **options: object) -> set[tuple[str, str, str | None, int | None, int | None]]:
    findings = opened(root, **options).findings
    return {(f.kind, f.severity, f.topic, f.partition, f.broker_id) for f in findings if f.kind == RULE}


def id_of(folder: Path) -> str:
    return (folder / "partition.metadata").read_text().rpartition("topic_id: ")[2].strip()


def with_id(folder: Path, topic_id: str) -> None:
    file = folder / "partition.metadata"
    file.write_text(re.sub(r"topic_id: .*", f"topic_id: {topic_id}", file.read_text()))


def without_metadata(root: Path) -> None:
    for folder in root.glob("broker-*/__cluster_metadata-0"):
        shutil.rmtree(folder)


def test_they_are_compared_with_none_and_said_once(root: Path) -> None:
    audit = opened(root)
    assert above_info(audit.findings) == []
    assert said(root) == {(RULE, "info", *place, 3) for place in OLD}
    messages = {f.message for f in audit.findings if f.kind == RULE}
    assert all("deleted and re-created topic; it is renamed to -stray at startup" in message for message in messages)
    logs = [(row["topic"], row["partition"], row["broker_id"]) for row in audit.judged["log"]]
    assert all((*place, broker) in logs for place in OLD for broker in (1, 2, 3))
    rows = audit.table("producer_states").to_pylist()
    assert {3} <= {row["broker_id"] for row in rows if row["topic"] == "inc-ev"}


def test_alone_it_knows_nothing_of_the_removal(root: Path) -> None:
    for path in [*root.glob("broker-1*"), *root.glob("broker-2*"), *root.glob("server-[12]*")]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert said(root) == set()


def test_without_metadata_each_topic_of_a_name_is_judged_for_itself(root: Path) -> None:
    """Nothing shows which was removed, but the times of their records."""
    without_metadata(root)
    audit = opened(root)
    found = audit.findings
    assert said(root) == {(RULE, "info", *place, 3) for place in OLD}
    assert above_info(found) == []
    leading = {(r["topic"], r["partition"], r["broker_id"]) for r in audit.judged["log"] if r["leader_copy"]}
    assert {(*place, 3) for place in OLD} < leading
    assert all({(*place, 1), (*place, 2)} & leading for place in OLD)
    messages = [f.message for f in found if f.kind == RULE]
    assert all("judged separately" in message and "-stray" not in message for message in messages)
    assert "replica-divergence" not in {f.kind for f in found}


def test_a_topic_that_is_gone_altogether_is_judged_by_nobody(root: Path) -> None:
    """The other two brokers have no folder of that name."""
    for broker in (1, 2):
        for folder in root.glob(f"broker-{broker}/inc-ev-*"):
            if not folder.name.endswith("-delete"):
                shutil.rmtree(folder)
    assert said(root) == {(RULE, "info", *place, 3) for place in OLD}
    about = {f.kind for f in opened(root).findings if f.topic == "inc-ev" and f.partition is not None}
    assert about == {RULE}


def test_a_replica_of_the_same_topic_that_differs_is_told(root: Path) -> None:
    """Broker 3's folder has the id of the topic that there is: its other records are a divergence."""
    with_id(root / "broker-3" / "inc-ev-0", id_of(root / "broker-1" / "inc-ev-0"))
    found = [(f.kind, f.severity, f.topic, f.partition) for f in above_info(opened(root).findings)]
    assert ("replica-divergence", "critical", "inc-ev", 0) in found
    assert said(root) == {(RULE, "info", *place, 3) for place in OLD - {("inc-ev", 0)}}


def test_a_loss_in_a_replica_of_the_same_topic_is_told(root: Path) -> None:
    """Of brokers 1 and 2, beside the folder of the removed topic: a batch in the middle is gone from one."""
    log = Forged(root / "broker-2", "inc-ev-0")
    gone = log.all()[4]
    log.drop(gone)
    log.save()
    found = [(f.kind, f.severity, f.topic, f.offset) for f in above_info(opened(root).findings)]
    assert ("replica-missing-range", "critical", "inc-ev", gone["base_offset"]) in found


def test_an_id_that_nobody_removed_is_a_warning_where_the_broker_is_in_sync(root: Path) -> None:
    """Broker 2 is in sync; its start would set aside what it has."""
    with_id(root / "broker-2" / "inc-ev-0", "A" * 21 + "g")
    assert (RULE, "warning", "inc-ev", 0, 2) in said(root)


def test_a_directory_with_nothing_but_other_topics_is_audited(tmp_path: Path) -> None:
    made = corpora.copy("lively-43", tmp_path / "made")
    for file in made.glob("*/*/partition.metadata"):
        file.write_text("version: 0\ntopic_id: AAAAAAAAQAiAAAAAAAAAAA\n")
    found = audit_folder(made, None)
    assert above_info(found) == []
    assert {f.kind for f in found} >= {RULE}
