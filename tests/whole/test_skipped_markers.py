"""KAFKA-20734: a coordinator completes a transaction while a partition has no leader, and its marker never comes.

The demo is a real 4.3.1 cluster that did so (times and states as Kafka's own tools and logs gave them).
"""

from __future__ import annotations

import dataclasses
import io

import pytest

from auditor.commands.demo import DEMO
from auditor.dashboards import report, terminal
from auditor.dashboards.answers import report_of
from auditor.model.policies import SKIPS_MARKERS, ReleaseEvidence
from auditor.outputs.publish import run_report
from auditor.rules.catalogue import registry, safeguards
from auditor.rules.seen.cluster_view import WithoutLeader
from auditor.rules.seen.view import Finding
from tests.conftest import ROOT
from tests.facts import judge, logs_below, opened

AS_OF = int((DEMO / "as-of").read_text())
RULE = "hanging-transaction"


def hanging(*, leaderless: bool = True, release: ReleaseEvidence | None = None) -> list[Finding]:
    logs = logs_below(DEMO / "logs", as_of=AS_OF)
    for log in logs:
        if not leaderless:
            log.cluster.leaderless = {}
        if release is not None:
            log.cluster.releases = dict.fromkeys(log.cluster.releases, release)
    return judge(logs, RULE)


def test_the_finding_names_the_defect_and_who_has_it() -> None:
    found = {f.transactional_id: f for f in hanging()}
    assert set(found) == {"ulna-c", "ulna-a", "ulna-fine"}  # as the data's truth says
    for f in found.values():
        assert (f.severity, f.topic, f.partition) == ("critical", "ulna.leg", 0)
        assert f.evidence["known_defect"] == "KAFKA-20734"
        assert f.evidence["no_leader_from"] < f.evidence["completed"] < f.evidence["no_leader_until"]
        assert "4.3.0, 4.3.1 and 4.4.0" in f.message
        assert "likely deleted already" in f.remedy
    assert found["ulna-c"].remedy.startswith("Commit it, do not abort: the coordinator committed")
    assert "abort --topic ulna.leg --partition 0 --start-offset 25" in found["ulna-a"].remedy


def test_the_first_screen_names_all_that_have_to_be_ended() -> None:
    """Each by its own advice: one of the three that hold the partition may be aborted, the others must not be."""
    audit = opened(DEMO / "logs", as_of=AS_OF)
    found, summary = run_report(audit).findings, run_report(audit).summary
    out = io.StringIO()
    terminal.print_findings(report_of(found, summary), out)
    first = out.getvalue()
    rows = {line.split()[2]: line.split()[3:-1] for line in first.splitlines()[4:7]}
    assert rows == {"ulna-c": ["45", "Commit", "it"], "ulna-a": ["Safe", "to", "abort"], "ulna-fine": ["Commit", "it"]}
    shown = (ROOT / "docs" / "reading.md").read_text(encoding="utf-8").partition("PARTITION   SINCE")[2]
    assert first.partition("PARTITION   SINCE")[2].startswith(shown.partition("```")[0])
    assert "Consumers stay blocked until the other transactions of this partition end too" in first
    assert "--start-offset" not in first  # how that one is aborted stands with its own conditions, in 'auditor explain'
    card = report.render_report(report_of(found, summary), audit.judged["open"], audit.judged["timeline"])
    card = card.partition('id="q2"')[2].partition('id="q3"')[0]
    assert "--start-offset</span> 25<" in card
    assert "--start-offset</span> 20<" not in card
    assert "--start-offset</span> 30<" not in card


def test_a_partition_that_always_had_a_leader_hangs_for_another_reason() -> None:
    assert [f for f in hanging(leaderless=False) if "known_defect" in f.evidence or "KAFKA" in f.remedy] == []


def test_when_nobody_led_is_what_the_metadata_says() -> None:
    (log,) = (log for log in logs_below(DEMO / "logs", as_of=AS_OF) if log.name == "ulna.leg-0")
    gone = log.cluster.leaderless["ulna.leg", 0][0]  # and once more when all was stopped
    assert isinstance(gone, WithoutLeader)
    assert gone.until is not None
    assert gone.since < 1795308343727 < gone.until  # the last update of ulna-c in __transaction_state


@pytest.mark.parametrize(
    ("shown", "may"),
    [
        (ReleaseEvidence(), True),
        (ReleaseEvidence((4, 0)), True),
        (ReleaseEvidence((3, 0), (4, 0)), False),
        (ReleaseEvidence((4, 5)), False),
    ],
)
def test_which_releases_may_have_it(shown: ReleaseEvidence, may: bool) -> None:
    assert shown.may_have(SKIPS_MARKERS) is may


def test_what_keeps_a_defect_from_showing_is_said_and_no_setting() -> None:
    """What card 3 says of it, by the metadata's one replica; without the defect, late writes are prevented."""
    logs = logs_below(DEMO / "logs", as_of=AS_OF)
    cluster, declared = logs[0].cluster, registry.kinds()[RULE].prevented_by
    (found, *_) = (f for f in judge(logs, RULE) if f.transactional_id == "ulna-a")
    said = [(each.safeguard.setting, each.now) for each in safeguards.prevented_by(found, declared, cluster)]
    assert said == [
        ("replication.factor=3", "now 1 replica of ulna.leg-0 by __cluster_metadata"),
        ("one broker restarted at a time", ""),
    ]
    other = dataclasses.replace(found, evidence={})
    assert {each.safeguard for each in safeguards.prevented_by(other, declared, cluster)} < {*declared}
