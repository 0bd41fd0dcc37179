"""Real brokers now, not frozen: each campaign is made again, and its audit says what the campaign expects."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audited import audit_folder
from tests.broker.campaigns import CAMPAIGNS
from tests.broker.jars import missing_tools
from tests.corpora import rule_ids
from tests.whole.test_corpus_findings import matches

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(missing_tools() is not None, reason=str(missing_tools())),
]


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_what_a_campaign_expects_is_reported_and_nothing_else(name: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    made = CAMPAIGNS[name][2](tmp_path / "cluster", copy)
    found = audit_folder(copy, made.at)
    incidents = [e for e in made.expect if e.get("severity") != "info"]
    reported = [f for f in found if f.severity != "info"]
    assert [e for e in incidents if not any(matches(e, f) for f in reported)] == []
    assert [f.to_json() for f in reported if not any(matches(e, f) for e in incidents)] == []
    notes = {(f.topic, f.partition, f.kind) for f in found if f.severity == "info"}
    for e in made.expect:
        if e not in incidents:
            assert notes & {(e["topic"], e["partition"], rule) for rule in rule_ids()[e["finding"]]}, e
