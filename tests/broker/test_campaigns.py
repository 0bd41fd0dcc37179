"""Real brokers now, not frozen: each campaign is made anew, and its audit says what the campaign expects."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from auditor.pipeline import audit, context, plan
from auditor.pipeline.judge import judge_log
from auditor.pipeline.options import AuditOptions
from auditor.rules.finding import Finding
from auditor.rules.resolve import resolve
from auditor.spark import scan
from tests.broker.campaigns import CAMPAIGNS
from tests.broker.jars import missing_tools

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(missing_tools() is not None, reason=str(missing_tools())),
]


def findings(folder: Path, as_of: int, out: Path) -> list[Finding]:
    """All findings about the copies below a folder, without Spark."""
    options = AuditOptions((str(folder),), out, records=True, as_of=as_of)
    run = audit.open_input(options)
    copies = [c for task in plan.copy_tasks(run.inventory, run.settings, options) for c in scan.read_task(task)]
    run.briefs = [context.brief(c) for c in copies]
    audit.add_context(run)
    wanted = audit.chosen_rules(options)
    rows = []
    for key in dict.fromkeys((c.join_key, c.topic, c.partition) for c in copies):
        log = [c for c in copies if (c.join_key, c.topic, c.partition) == key]
        rows += [row for kind, row in judge_log(log, run.clusters[key[0]], wanted) if kind == "finding"]
    return resolve(Finding(**row) for row in json.loads(json.dumps(rows)))


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_what_a_campaign_expects_is_reported_and_nothing_else(name: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    made = CAMPAIGNS[name][2](tmp_path / "cluster", copy)
    told = [f for f in findings(copy, made.at, tmp_path / "out") if f.severity != "info"]
    expected = {(e["topic"], e["partition"], e["producerId"], e["firstOffset"], e["lastOffset"]) for e in made.expect}
    assert {(f.topic, f.partition, f.producer_id, f.offset, f.last_offset) for f in told} == expected
    assert all(f.rule == "hanging-transaction" for f in told)
