"""Real brokers now, not frozen: each campaign is made again, and its audit says what the campaign expects."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audited import audit_folder
from tests.broker.campaigns import CAMPAIGNS
from tests.broker.jars import missing_tools
from tests.corpora import rule_ids

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(missing_tools() is not None, reason=str(missing_tools())),
]


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_what_a_campaign_expects_is_reported_and_nothing_else(name: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    made = CAMPAIGNS[name][2](tmp_path / "cluster", copy)
    found = audit_folder(copy, made.at)
    reported = [f for f in found if f.severity != "info"]
    incidents = [e for e in made.expect if e.get("severity") != "info"]
    expected = {(e["topic"], e["partition"], e["producerId"], e["firstOffset"], e["lastOffset"]) for e in incidents}
    assert {(f.topic, f.partition, f.producer_id, f.offset, f.last_offset) for f in reported} == expected
    assert all(f.rule == "hanging-transaction" for f in reported)
    notes = {(f.topic, f.partition, f.rule) for f in found if f.severity == "info"}
    for e in made.expect:
        if e not in incidents:
            assert notes & {(e["topic"], e["partition"], rule) for rule in rule_ids()[e["finding"]]}, e
