"""What has to be so of the advices of any audit: the same on every surface, none that acts on what is not known, and no
two that contradict each other.

Surfaces break lines and escape signs as they must; nothing else may differ.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from auditor.api.objects import Findings
from auditor.base import advice
from auditor.outputs.alerts import SHOWN
from auditor.outputs.publish import run_report
from auditor.pipeline import summary
from auditor.pipeline.whole_audit import Audit
from auditor.rules.catalogue import safeguards
from auditor.rules.catalogue.safeguards import NOT_SHOWN, Safeguard
from auditor.rules.seen.view import Finding
from tests.blocked_states import surfaces

SIGNS = re.compile(r"[\s`'\\\"]")  # what lines, quotes and markup add or change
OF_EACH = ("page", "csv", "sarif", "pagerduty")
GRAVE = ("critical", "error")
SETTINGS = re.compile("|".join(re.escape(name) for name in sorted(
    {s.current.name for s in vars(safeguards).values() if isinstance(s, Safeguard) and "." in s.current.name}
    | {"replication.factor", "enable.idempotence"}
)))  # fmt: skip
# Commands that change a cluster, and steps by hand that do.
ACTS = re.compile(
    r"kafka-[\w-]+\.sh --[^;]*?(?:\babort\b|--execute|--alter|--delete|--election-type|remove-controller|add-controller"
    r"|\bformat\b|\bupgrade\b)|\bstop broker \d|\bmove \S+ (?:and \S+ )?(?:away|out of)|\bmake broker \d+ the leader"
)
# What stops or starts a broker again, and what has to be said of it then.
STOPS = re.compile(r"\b(?:stop|restart) broker \d|\bits broker has to start again|\brestart of the broker")
AT_RISK = "without another in-sync replica"


def plain(text: str) -> str:
    """Without what surfaces may change."""
    text = text.replace("records", "record").replace("are discarded", "is discarded")  # one text for several partitions
    for sign, escaped in (("<", "&lt;"), (">", "&gt;"), ("&", "&amp;"), ("–", "\\u2013")):
        text = text.replace(escaped, sign)
    return SIGNS.sub("", text)


def said(row: dict[str, Any]) -> list[str]:
    """What has to be read of an advice wherever it is."""
    parts = [text for _, text in advice.pieces(row)]
    steps = [each[name] for each in row["steps"] for name in ("do", "command") if each[name]]
    steps = [text[:1].upper() + text[1:] if text[:6] != "kafka-" else text for text in steps]
    return [*parts[:1], *(each["what"] for each in row["conditions"]), *steps, row["side_effects"]]


def everywhere(audit: Audit, folder: Path) -> None:
    """Verdict and conditions of every finding are the same on every surface, and of every partition that is held."""
    rows = run_report(audit).findings
    texts = {name: plain(text) for name, text in surfaces(audit, folder).items()}
    for row, line in zip(rows, _machines(audit), strict=True):
        assert (line["advice"], line["remedy"]) == (json.loads(json.dumps(row["advice"])), advice.text(row["advice"]))
    news = [row for row in rows if row["severity"] != "info"]
    for row in news:
        several = [r for r in rows if r["kind"] == row["kind"]]
        names = [*OF_EACH, *(["slack"] if row in rows[:SHOWN] else [])]
        names += ["junit"] if row["severity"] in GRAVE else []  # the others pass
        names += [f"explain {row['kind']}"] if row is several[-1] else []
        for name in names:
            lacks = [part for part in said(row["advice"]) if plain(part) not in texts[name]]
            cut = name == "slack" and f"moreby{plain('auditor explain')}{row['fingerprint']}" in texts[name]
            assert cut or not lacks, (name, row["kind"], lacks)
            assert plain(_with_outcome(name, row)) in texts[name], (name, row["kind"], row["outcome"])
    for held in audit.blocked:
        for name in ("page", "terminal", "markdown") if held["severity"] in GRAVE else ():
            lacks = [part for part in said(held["advice"]) if plain(part) not in texts[name]]
            rest = texts["terminal"].rpartition(plain("run: auditor explain ID (ID:"))[0].rpartition(plain("For "))[2]
            cut = name == "terminal" and plain(held["topic"]) in rest  # beyond a screen
            assert cut or not lacks, (name, held["topic"], lacks)
    agree(audit)
    _prevention_is_said(audit, texts["page"])


def _with_outcome(name: str, row: dict[str, Any]) -> str:
    """How a surface says the outcome of a finding; empty where it has none."""
    outcome, severity = row["outcome"], row["severity"]
    if outcome == "none":
        return ""
    words = outcome.replace("_", " ")
    return {
        "page": f"outcome{words}", "csv": f",{severity},{outcome},", "sarif": f"outcome: {outcome}",
        "junit": f"Outcome: {words}", "slack": f"*{severity}* {words}", "pagerduty": f"outcome: {outcome}",
    }.get(name, f"Outcome: {words}")  # fmt: skip


def _machines(audit: Audit) -> list[dict[str, Any]]:
    """The findings as programs get them: a line each, and the same objects and table of the API."""
    lines = [json.loads(finding.to_json()) for finding in audit.findings]
    of_api = Findings(audit.findings, summary.findings_table(audit))
    table = of_api.to_arrow().select(["advice", "remedy"]).to_pylist()
    for line, each, row in zip(lines, of_api.to_dicts(), table, strict=True):
        assert json.loads(json.dumps(each["advice"])) == line["advice"] == row["advice"]
        assert each["remedy"] == line["remedy"] == row["remedy"]
    return lines


def agree(audit: Audit) -> None:
    """No advice acts but by its acts, whose conditions are known to hold; no two contradict each other."""
    for found in audit.findings:
        assert found.advice is not None, found.kind
        acts_by_its_steps(found.kind, found.advice.row())
        a_stop_names_what_it_puts_at_risk(found.kind, found.advice.row())
    for held in audit.blocked:
        acts_by_its_steps("blocked", held["advice"])
        a_stop_names_what_it_puts_at_risk("blocked", held["advice"])
    nobody_is_source_and_target(audit.findings)
    _one_verdict_of_a_transaction(audit)


def acts_by_its_steps(name: str, row: dict[str, Any]) -> None:
    """What changes a cluster stands in the steps, whose conditions hold, or which wait until they do."""
    if row["steps"] and row["verdict"] in ("safe_to_abort", "act"):
        assert all(each["holds"] is True or each["command"] for each in row["conditions"]), (name, row)
    assert all(each["expect"] for each in row["conditions"] if each["command"]), name
    words = [row["why"], row["afterwards"], row["side_effects"]]
    words += [each[field] for each in row["conditions"] for field in ("what", "command", "expect")]
    assert [found[0] for text in words for found in ACTS.finditer(text)] == [], name


def a_stop_names_what_it_puts_at_risk(name: str, row: dict[str, Any]) -> None:
    """Whoever is told to stop or restart a broker is told which partitions wait for it, and where some do, on releases
    with KAFKA-20734 what comes first, and that it is audited again."""
    text = advice.text(row)
    if not STOPS.search(text):
        return
    assert AT_RISK in text, name
    if "20734" in text:
        assert text.index("end the transactions of") < text.index("top the broker only when"), name
        assert "udit again after the start in any case" in text, name


def nobody_is_source_and_target(found: list[Finding]) -> None:
    """Of each partition: who is fetched again is no source and no leader, and only one is made leader."""
    away, used, led = defaultdict[Any, set[int]](set), defaultdict[Any, set[int]](set), defaultdict[Any, set[int]](set)
    for f in found:
        if f.advice is not None:
            place, moves = (f.topic, f.partition), f.advice.moves
            away[place] |= {moves.away} - {None}
            led[place] |= {moves.leads} - {None}
            used[place] |= {*moves.sources, *led[place]}
    for place, gone in away.items():
        assert gone.isdisjoint(used[place]), place
    assert [place for place, brokers in led.items() if len(brokers) > 1] == []


def _one_verdict_of_a_transaction(audit: Audit) -> None:
    """An abort is offered by nobody where another advice of the same data says that it must not be, or waits."""
    verdicts: dict[Any, set[tuple[str, bool]]] = defaultdict(set)
    for f in audit.findings:
        if f.advice is not None and f.producer_id is not None:
            aborts = f.advice.acts and any(" abort " in each.command for each in f.advice.steps)
            verdicts[f.topic, f.partition, f.producer_id, f.offset].add((f.advice.verdict.value, aborts))
    for held in audit.blocked:
        aborts = held["advice"]["verdict"] == "safe_to_abort"
        place = (held["topic"], held["partition"], held["producer_id"], held["first_offset"])
        verdicts[place].add((held["advice"]["verdict"], aborts))
    for place, all_of_it in verdicts.items():
        if any(aborts for _, aborts in all_of_it):
            assert not {"wait", "do_not_abort", "commit_it"} & {verdict for verdict, _ in all_of_it}, (place, all_of_it)


def _prevention_is_said(audit: Audit, page: str) -> None:
    """The last card has each setting, commands only where the present value is known, and is not empty where an advice
    of the page names one."""
    rows, last = run_report(audit).summary["prevention"], page.rpartition(plain("4 Prevention"))[2]
    for row in rows[:4]:
        assert [text for text in (row["setting"], row["why"], *row["commands"]) if plain(text) not in last] == []
        assert not row["commands"] or any(now != NOT_SHOWN for now in row["now"]), row
    grave = [f for f in audit.findings if f.severity != "info"]
    named = {name for f in grave if f.advice for name in SETTINGS.findall(advice.text(f.advice.row()))}
    assert not named or rows, named
    assert plain("none No findings above info.") not in last or not grave
