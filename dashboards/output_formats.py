"""Findings and rows as CSV, Markdown, SARIF and JUnit."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree as ET

from auditor.base.at_rest import Fields, Values
from auditor.base.evidence_keys import Evidence, read
from auditor.base.words import plural
from auditor.dashboards import answers, finding_groups, page
from auditor.dashboards.wording import (
    SEVERITIES,
    Finding,
    clip,
    escaped,
    kind,
    log_name,
    offsets,
    outcome_of,
    place,
    visible,
)

# CSV and Markdown. Names come from untrusted input: in CSV an apostrophe precedes what a spreadsheet would take for a
# formula; in Markdown all special characters are escaped.


_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_lines(heads: Sequence[str], rows: Iterable[Values]) -> Iterator[str]:
    """Yield a header line and one line per row (RFC 4180, with LF); null is empty, structures are JSON."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for row in ([*heads], *([_csv_cell(row[head]) for head in heads] for row in rows)):
        writer.writerow(row)
        yield out.getvalue()
        out.seek(0)
        out.truncate()


def _csv_cell(value: object) -> Any:
    if isinstance(value, dict | list):
        value = json.dumps(value, ensure_ascii=False, sort_keys=True)
    if not isinstance(value, str):
        return value
    shown = "\n".join(visible(line) for line in value.split("\n"))
    return f"'{shown}" if value.startswith(_FORMULA) else shown


def markdown_lines(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yield a Markdown table; null is empty."""
    yield f"| {' | '.join(heads)} |\n"
    yield f"|{' --- |' * len(heads)}\n"
    for row in rows:
        yield f"| {' | '.join('' if cell is None else escaped(str(cell)) for cell in row)} |\n"


# SARIF 2.1.0 (OASIS).


VERSION = "2.1.0"
SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {"critical": "error", "error": "error", "warning": "warning", "info": "note"}
_RANKS = {"critical": 100.0, "error": 75.0, "warning": 50.0, "info": 10.0}
_FACTS = (
    "severity", "outcome", "broker_id", "topic", "partition", "offset", "last_offset", "producer_id", "producer_epoch",
    "transactional_id", "group_id", "timestamp", "evidence", "remedy", "advice", "source",
)  # fmt: skip


def sarif(findings: Sequence[Finding], summary: Values, rules: Mapping[str, Values], headline: str) -> str:
    """Return the SARIF file. ``rules``: those that ran, by id, with ``title``, ``family``, ``sections`` and
    ``former_ids``."""
    numbers = {name: number for number, name in enumerate(rules)}
    tool = summary["tool"]
    run = {
        "tool": {
            "driver": {
                "name": "kafka-log-auditor",
                "version": str(tool["version"]),
                "rules": [_rule(name, rule) for name, rule in rules.items()],
            }
        },
        "invocations": [
            {
                "executionSuccessful": bool(summary.get("complete", True)),
                "toolExecutionNotifications": _notifications(summary),
            }
        ],
        "results": [_result(finding, numbers) for finding in findings],
        "properties": {"as_of": summary["as_of"], "headline": headline},
    }
    content = {"$schema": SCHEMA, "version": VERSION, "runs": [run]}
    text = json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    return text.encode("utf-8", "replace").decode("utf-8")


def _rule(name: str, rule: Values) -> Fields:
    sections = rule["sections"]
    former = list(rule.get("former_ids") or ())
    return {
        "id": name,
        **({"deprecatedIds": former} if former else {}),  # by which results of earlier versions are found
        "shortDescription": {"text": rule["title"]},
        "fullDescription": {"text": f"{sections['Checks']} {sections['Why it matters']}"},
        "help": {"text": f"{sections['What to do']} It can be wrong: {sections['Can be wrong']}"},
        "properties": {"tags": [rule["family"]], "source": sections["Source"]},
    }


def _notifications(summary: Values) -> list[Fields]:
    errors = [f"{row['log_dir']}/{row['file']}: {row['detail'] or row['reason']}" for row in summary["unreadable"]]
    notifications = [{"level": "error", "message": {"text": visible(text)}} for text in errors]
    if empty := summary.get("empty_input"):
        level = "note" if summary.get("complete", True) else "error"
        notifications.append({"level": level, "message": {"text": visible(empty)}})
    return notifications


def _result(finding: Finding, numbers: Mapping[str, int]) -> Fields:
    result = {
        "ruleId": finding["rule"],
        "level": _LEVELS[finding["severity"]],
        "rank": _RANKS[finding["severity"]],
        "message": {"text": visible(_said(finding))},
        "locations": [_location(finding)],
        "properties": {"kind": kind(finding)} | {name: finding[name] for name in _FACTS if finding[name] is not None},
    }
    if finding["rule"] in numbers:
        result["ruleIndex"] = numbers[finding["rule"]]
    if finding.get("fingerprint"):
        result["partialFingerprints"] = {"auditor/v1": finding["fingerprint"]}
    return result


def _said(finding: Finding) -> str:
    # Code hosts show only the message of a result, so it has the remedy, too.
    message, remedy = finding["message"] or finding["rule"], finding["remedy"]
    return f"{message}\n\n{remedy}" if remedy else str(message)


def _location(finding: Finding) -> Fields:
    span = offsets(finding["offset"], finding["last_offset"])
    name = visible(log_name(finding) or "cluster") + (f"@{span}" if span else "")
    location: Fields = {"logicalLocations": [{"fullyQualifiedName": name, "kind": "resource"}]}
    if finding["file"]:
        log_dir = read(Evidence, finding["evidence"]).get("log_dir")
        path = "/".join(str(part) for part in (log_dir, finding["file"]) if part)
        artifact = {"uri": quote(path.lstrip("/"), errors="replace")}
        location["physicalLocation"] = {"artifactLocation": artifact}
        if finding["position"] is not None:
            location["physicalLocation"]["region"] = {"byteOffset": finding["position"]}
    return location


# JUnit XML: one suite per rule, one test case per finding.


MAX_TEXT = 4000


def junit(findings: Sequence[Finding], summary: Values, rules: Mapping[str, Values], fail_on: str) -> str:
    """Return the JUnit file. ``rules``: those that ran, by id.

    Findings at or above ``fail_on`` are failures, others skipped cases, and so are findings that are not printed
    (``hidden`` of a rule: how many). A rule without findings passes. Unreadable files, or an input without anything to
    judge, are errors.
    """
    top = ET.Element("testsuites", name="auditor")
    failing = SEVERITIES[: SEVERITIES.index(fail_on) + 1] if fail_on in SEVERITIES else ()
    by_rule: dict[str, list[Finding]] = {name: [] for name in rules}
    for finding in findings:
        by_rule.setdefault(finding["rule"], []).append(finding)
    for rule, rule_findings in by_rule.items():
        suite = ET.SubElement(top, "testsuite", name=rule)
        for finding in rule_findings:
            _case(suite, finding, failing)
        hidden = rules.get(rule, {}).get("hidden", 0)
        if hidden:
            case = ET.SubElement(suite, "testcase", classname=f"auditor.{rule}", name="not printed")
            ET.SubElement(
                case, "skipped", message=f"{plural(hidden, 'finding')} suppressed by the baseline or filtered out"
            )
        elif not rule_findings:
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
    outcome = f"Outcome: {outcome_of(finding)}\n" if outcome_of(finding) else ""
    failure.text = f"{message}\n{outcome}What to do: {_text(finding['remedy'])}\nFinding ID: {fingerprint}"


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
    # XML 1.0 cannot hold control characters.
    return clip(visible(str(text or "")), MAX_TEXT)


# All formats. They have the findings that are printed; the verdict is of the whole run.


FORMATS = ("table", "json", "markdown", "csv", "sarif", "junit")
OF_LISTS = ("table", "json", "markdown", "csv")  # the formats of other lists than findings


def rendered(
    kind: str,
    findings: Sequence[Finding],
    run: answers.RunReport,
    rules: Mapping[str, Values],
    fail_on: str,
) -> Iterator[str]:
    """Yield the text in parts. ``kind``: of :data:`FORMATS`, except table and json; ``findings``: those that are
    printed; ``rules``: those that ran."""
    if kind == "csv":
        yield from csv_lines(answers.FINDING, findings)
    elif kind == "markdown":
        remedies = finding_groups.remedies(findings, run.verdict.held)[: finding_groups.SHOWN]
        clock = answers.clock(run.full)
        yield page.text("findings.md.j2", run=run, clock=clock, findings=findings, remedies=remedies)
    elif kind == "sarif":
        yield sarif(findings, run.full, rules, run.verdict.headline)
    else:
        yield junit(findings, run.full, rules, fail_on)


def list_lines(kind: str, rows: Sequence[Values]) -> Iterator[str]:
    """Yield rows with the same keys as JSON lines, Markdown or CSV; nothing for no rows."""
    heads = list(rows[0]) if rows else []
    if kind == "json":
        yield from (json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows)
    elif kind == "csv" and rows:
        yield from csv_lines(heads, rows)
    elif rows:
        yield from markdown_lines(heads, ([row[head] for head in heads] for row in rows))
