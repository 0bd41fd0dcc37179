"""Findings as SARIF 2.1.0 (OASIS), which code hosts and security tools show."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from auditor.base.at_rest import Fields, Values
from auditor.dashboards.wording import Finding, kind, log_name, offsets, visible

VERSION = "2.1.0"
SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {"critical": "error", "error": "error", "warning": "warning", "info": "note"}
_RANKS = {"critical": 100.0, "error": 75.0, "warning": 50.0, "info": 10.0}
_FACTS = (
    "severity",
    "outcome",
    "broker_id",
    "topic",
    "partition",
    "offset",
    "last_offset",
    "producer_id",
    "producer_epoch",
    "transactional_id",
    "group_id",
    "timestamp",
    "evidence",
    "remedy",
    "source",
)


def sarif(findings: Sequence[Finding], summary: Values, rules: Mapping[str, Values], headline: str) -> str:
    """The whole text. ``rules``: those that ran, by id, with ``title``, ``family``, ``sections`` and ``kinds``."""
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
    former = [kind for kind in rule.get("kinds") or () if kind != name]
    return {
        "id": name,
        **({"deprecatedIds": former} if former else {}),  # by which results of earlier versions are found
        "shortDescription": {"text": rule["title"]},
        "fullDescription": {"text": f"{sections['Checks']} {sections['Why it matters']}"},
        "help": {"text": f"{sections['What to do']} It can be wrong: {sections['Can be wrong']}"},
        "properties": {"tags": [rule["family"]], "source": sections["Source"]},
    }


def _notifications(summary: Values) -> list[Fields]:
    """What could not be read, and that there was nothing to judge."""
    said = [f"{row['log_dir']}/{row['file']}: {row['detail'] or row['reason']}" for row in summary["unreadable"]]
    found = [{"level": "error", "message": {"text": visible(text)}} for text in said]
    if empty := summary.get("empty_input"):
        level = "note" if summary.get("complete", True) else "error"
        found.append({"level": level, "message": {"text": visible(empty)}})
    return found


def _result(finding: Finding, numbers: Mapping[str, int]) -> Fields:
    """A result; a location in a file where the finding has one, and always where in the cluster."""
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
    """What happened, and what to do about it: code hosts show of a result its message alone."""
    message, remedy = finding["message"] or finding["rule"], finding["remedy"]
    return f"{message}\n\n{remedy}" if remedy else str(message)


def _location(finding: Finding) -> Fields:
    span = offsets(finding["offset"], finding["last_offset"])
    name = visible(log_name(finding) or "cluster") + (f"@{span}" if span else "")
    location: Fields = {"logicalLocations": [{"fullyQualifiedName": name, "kind": "resource"}]}
    if finding["file"]:
        log_dir = (finding["evidence"] or {}).get("log_dir")
        path = "/".join(str(part) for part in (log_dir, finding["file"]) if part)
        artifact = {"uri": quote(path.lstrip("/"), errors="replace")}
        location["physicalLocation"] = {"artifactLocation": artifact}
        if finding["position"] is not None:
            location["physicalLocation"]["region"] = {"byteOffset": finding["position"]}
    return location
