"""Findings as JUnit XML, for the page of a build: a suite for each rule that ran, a test case for each finding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.etree import ElementTree as ET

from auditor.base.at_rest import Values
from auditor.base.words import plural
from auditor.dashboards.wording import SEVERITIES, Finding, clip, place, visible

MAX_TEXT = 4000


def junit(findings: Sequence[Finding], summary: Values, rules: Mapping[str, Values], fail_on: str) -> str:
    """The whole text. ``rules``: those that ran, by id. A finding at or above ``fail_on`` is a failure, one below it a
    skipped case, and so are those that are not printed (``hidden`` of a rule: how many); a rule that found nothing
    passes; what could not be read, or an input without anything to judge, is an error."""
    top = ET.Element("testsuites", name="auditor")
    failing = SEVERITIES[: SEVERITIES.index(fail_on) + 1] if fail_on in SEVERITIES else ()
    by_rule: dict[str, list[Finding]] = {name: [] for name in rules}
    for finding in findings:
        by_rule.setdefault(finding["rule"], []).append(finding)
    for rule, mine in by_rule.items():
        suite = ET.SubElement(top, "testsuite", name=rule)
        for finding in mine:
            _case(suite, finding, failing)
        hidden = rules.get(rule, {}).get("hidden", 0)
        if hidden:
            case = ET.SubElement(suite, "testcase", classname=f"auditor.{rule}", name="not printed")
            ET.SubElement(
                case, "skipped", message=f"{plural(hidden, 'finding')} accepted by the baseline or not chosen"
            )
        elif not mine:
            ET.SubElement(suite, "testcase", classname=f"auditor.{rule}", name="nothing found")
    _input(ET.SubElement(top, "testsuite", name="input"), summary)
    for suite in (*top, top):
        for name, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            suite.set(name, str(sum(1 for _ in suite.iter(tag))))
    ET.indent(top, " ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(top, encoding="unicode") + "\n"


def _case(suite: ET.Element, finding: Finding, failing: Sequence[str]) -> None:
    fingerprint = str(finding.get("fingerprint") or "")
    name = " ".join(filter(None, (_text(place(finding)) or "the cluster", fingerprint[:12])))
    case = ET.SubElement(suite, "testcase", classname=f"auditor.{finding['rule']}", name=name)
    message = _text(finding["message"])
    if finding["severity"] not in failing:
        ET.SubElement(case, "skipped", message=f"{finding['severity']}: {message}")
        return
    failure = ET.SubElement(case, "failure", type=finding["severity"], message=message)
    failure.text = f"{message}\nWhat to do: {_text(finding['remedy'])}\nFingerprint: {fingerprint}"


def _input(suite: ET.Element, summary: Values) -> None:
    for row in summary["unreadable"]:
        where = _text("/".join(filter(None, (row["log_dir"], row["file"]))))
        case = ET.SubElement(suite, "testcase", classname="auditor.input", name=where)
        ET.SubElement(case, "error", type=_text(row["reason"]), message=_text(row["detail"] or row["reason"]))
    if empty := None if summary.get("complete", True) else summary.get("empty_input"):
        case = ET.SubElement(suite, "testcase", classname="auditor.input", name="something to judge")
        ET.SubElement(case, "error", type="empty_input", message=_text(empty))
    elif not summary["unreadable"]:
        ET.SubElement(suite, "testcase", classname="auditor.input", name="all of it was read")


def _text(text: object) -> str:
    """What XML 1.0 can hold: every control character as an escape."""
    return clip(visible(str(text or "")), MAX_TEXT)
