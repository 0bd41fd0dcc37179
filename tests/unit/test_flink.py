"""Advice about transactional ids that may be Flink's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.base.advice import Advice, Verdict, step, text
from auditor.base.transactional_ids import Framework, IdOrigin, adapted, by_scheme, guidance, is_flinks
from auditor.rules.seen.cluster_view import Cluster
from tests import corpora
from tests.bare_broker import BEGAN, broker, data, end, finish
from tests.coordinator_records import Coordinator
from tests.facts import opened
from tests.forge import Forged

RESTORED = "If this is Flink: restor"
HARMFUL = re.compile(r"\bsen[dt] (?:\S+ ){0,8}again(?! after)|\bre-sen[dt]|restart its client", re.IGNORECASE)
RESTARTS = {"Ongoing": "data-epoch-ahead-of-coordinator", "tombstone": "expired-id-still-producing"}
# What coordinators send again are markers.
OF_COORDINATORS = re.compile(r"(?:so that )?its markers are re-sent|re-sends the markers")


@given(st.text(min_size=1).filter(lambda prefix: "onne" not in prefix and "ebezium" not in prefix.lower()),
       st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1))  # fmt: skip
def test_prefix_subtask_checkpoint_may_be_flinks(prefix: str, subtask: int, checkpoint: int) -> None:
    """As TransactionalIdFactory.buildTransactionalId of flink-connector-kafka makes it; pooled ones have a counter."""
    whose = by_scheme(f"{prefix}-{subtask}-{checkpoint}")
    assert whose is not None
    assert is_flinks(whose)
    assert not whose.certain
    assert (whose.application, whose.part) == (prefix, f"subtask {subtask}, checkpoint {checkpoint}")


@pytest.mark.parametrize("name", [
    None, "", "tx-1", "-0-1", "wc-ae23737a-c37b-445e-b041-20535b5afea7-1", "app-0_1", "orders-7-x", "orders-7-1-",
    "orders--7", "connect-cluster-123456789012-1", "connect-cluster-5-1", "orders-\u0663-\u0664",
])  # fmt: skip
def test_other_names_are_not(name: str | None) -> None:
    """Kafka Streams' (application, process, thread), Connect's, and a prefix alone."""
    assert not is_flinks(by_scheme(name))


def test_it_is_said_once_and_before_what_is_done() -> None:
    first = guidance(by_scheme("p-0-1"), "open", "its timeout at 2026-11-28T20:00:00.000Z, ")
    assert first.startswith(
        f"{RESTORED}e the job of p (subtask 0, checkpoint 1) from the checkpoint or savepoint: this commits"
    )
    assert "A manual abort, its timeout at 2026-11-28T20:00:00.000Z, or a cancel without" in first
    acts = Advice(Verdict.ACT, "c", steps=(step("kafka-transactions.sh --bootstrap-server B abort --topic t"),))
    twice = adapted(adapted(acts, first), first)
    assert [each.do or each.command for each in twice.steps] == [first, acts.steps[0].command]
    words = adapted(adapted(Advice(Verdict.INVESTIGATE_FIRST, "c", afterwards="then this"), first), first)
    assert words.afterwards == f"{first}. Then this"
    assert adapted(acts, guidance(by_scheme("p-1"), "open")) == acts


@pytest.mark.parametrize("name", [
    "hanging-36", "hanging-43-killed", "open-41-killed", "skipped-marker-43", "skipped-then-goes-on-43", "twopc-43",
    "mended-then-hangs-43", "retried-elsewhere-44", "idle-running-43", "idle-held-43", "idle-killed-41",
])  # fmt: skip
@pytest.mark.parametrize("minutes", [0, 300])
def test_nobody_is_told_to_send_again_what_restoring_the_job_commits(
    name: str, minutes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every id of real clusters taken for Flink's, at once and when time-outs are over: no advice says what loses or
    duplicates its data, and whatever is said of an open transaction says what is different."""
    monkeypatch.setattr(
        Cluster, "origin", lambda _, name: name and IdOrigin(Framework.FLINK, name, "subtask 0", certain=False, why="")
    )
    audit = opened(corpora.unpack(name), as_of=corpora.manifest(name)["copied_at"] + minutes * 60_000)
    for found in audit.findings:
        assert found.advice is not None
        if found.transactional_id is not None:
            said = OF_COORDINATORS.sub("", text(found.advice.row()))
            assert HARMFUL.search(said) is None, (found.kind, said)
    assert audit.blocked
    for held in audit.blocked:
        if held["transactional_id"] is not None:
            said = text(held["advice"])
            assert RESTORED in said
            assert HARMFUL.search(OF_COORDINATORS.sub("", said)) is None, said
            assert "nothing is lost: it ends by itself" not in said


@pytest.mark.parametrize("state", ["Ongoing", "tombstone"])
def test_no_producer_that_may_be_flinks_is_restarted(state: str, tmp_path: Path) -> None:
    """Data with an epoch that the coordinator never gave, and data behind the tombstone of its id."""
    path = broker(tmp_path, "t-0")
    log, coordinator = Forged(path, "t-0"), Coordinator(path, 0)
    coordinator.state("sink-0-7", "Empty", (4, 0), BEGAN)
    if state == "tombstone":
        coordinator.forget("sink-0-7", BEGAN)
    written = BEGAN + 3_600_000
    end(log, data(log, 4, 0, written, transactional=True, epoch=int(state == "Ongoing")), True, written + 9)
    coordinator.state("other", "Empty", (9, 0), written + 60_000)
    finish(log, coordinator)
    found = [f for f in opened(tmp_path).findings if f.kind == RESTARTS[state]]
    assert found
    for each in found:
        assert each.advice is not None
        said = text(each.advice.row())
        assert RESTORED in said
        assert not re.search("restart", said, re.IGNORECASE)
