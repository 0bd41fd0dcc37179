"""What is printed for other programs: read back by other programs."""

from __future__ import annotations

import csv
import io
import json
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from jsonschema import Draft7Validator

from auditor.dashboards import answers, output_formats
from auditor.dashboards.output_formats import escaped
from auditor.rules.catalogue import registry
from tests.unit import report_samples as samples

TEXT = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string", "minLength": 1}}}
# What SARIF 2.1.0 requires of the objects that we write, and the values that it knows (OASIS, sarif-schema-2.1.0.json).
REQUIRED = {
    "type": "object",
    "required": ["version", "runs"],
    "properties": {
        "version": {"enum": ["2.1.0"]},
        "runs": {"type": "array", "items": {
            "type": "object",
            "required": ["tool"],
            "properties": {
                "tool": {"type": "object", "required": ["driver"], "properties": {"driver": {
                    "type": "object", "required": ["name"], "properties": {"rules": {"type": "array", "items": {
                        "type": "object", "required": ["id"],
                        "properties": {"shortDescription": TEXT, "fullDescription": TEXT, "help": TEXT},
                    }}},
                }}},
                "invocations": {"type": "array", "items": {"type": "object", "required": ["executionSuccessful"]}},
                "results": {"type": "array", "items": {
                    "type": "object",
                    "required": ["message"],
                    "properties": {
                        "message": TEXT,
                        "level": {"enum": ["none", "note", "warning", "error"]},
                        "rank": {"type": "number", "minimum": -1, "maximum": 100},
                        "ruleIndex": {"type": "integer", "minimum": -1},
                        "partialFingerprints": {"type": "object", "additionalProperties": {"type": "string"}},
                        "locations": {"type": "array", "items": {"type": "object", "properties": {
                            "physicalLocation": {"type": "object", "anyOf": [
                                {"required": ["address"]}, {"required": ["artifactLocation"]}]},
                        }}},
                    },
                }},
            },
        }},
    },
}  # fmt: skip


def rendered(kind: str, findings: list[dict[str, Any]], summary: dict[str, Any], fail_on: str = "error") -> str:
    rows = [row | {"fingerprint": f"{n:064x}"} for n, row in enumerate(registry.described(findings))]
    run = answers.report_of(rows, summary)
    known = registry.kinds()
    rules = {
        name: {"title": known[name].title, "family": known[name].family, "sections": known[name].sections}
        for name in ("hanging-transaction", "sequence-gap")
    }
    return "".join(output_formats.rendered(kind, run.findings, run, rules, fail_on))


@pytest.mark.parametrize("sample", [samples.hanging, samples.hostile])
def test_sarif_has_what_its_schema_requires(sample: Any) -> None:
    findings, summary, *_ = sample()
    content = json.loads(rendered("sarif", findings, summary))
    Draft7Validator(REQUIRED).validate(content)
    (run,) = content["runs"]
    assert len(run["results"]) == len(findings)
    for result in run["results"]:
        if "ruleIndex" in result:
            assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]


def test_sarif_levels_and_places() -> None:
    found = [
        samples.finding(rule="sequence-gap", severity=s, topic="t", partition=0, offset=5, message="m",
                        file="t-0/a b.log", position=9, evidence={"log_dir": "d"})
        for s in ("critical", "error", "warning", "info")
    ]  # fmt: skip
    results = json.loads(rendered("sarif", found, samples.empty_summary()))["runs"][0]["results"]
    assert [r["level"] for r in results] == ["error", "error", "warning", "note"]
    place = results[0]["locations"][0]
    assert place["physicalLocation"] == {"artifactLocation": {"uri": "d/t-0/a%20b.log"}, "region": {"byteOffset": 9}}
    assert place["logicalLocations"][0]["fullyQualifiedName"] == "t-0@5"


@pytest.mark.parametrize("sample", [samples.hanging, samples.hostile])
def test_junit_can_be_parsed_and_counts(sample: Any) -> None:
    findings, summary, *_ = sample()
    top = ET.fromstring(rendered("junit", findings, summary, "warning"))
    assert top.tag == "testsuites"
    for suite in (top, *top):
        assert int(suite.get("tests", "")) == len(list(suite.iter("testcase")))
        assert int(suite.get("failures", "")) == len(list(suite.iter("failure")))
    failing = [f for f in findings if f["severity"] != "info"]
    assert int(top.get("failures", "")) == len(failing)
    assert int(top.get("skipped", "")) == len(findings) - len(failing)


def test_junit_says_what_was_not_read_and_what_found_nothing() -> None:
    lost = [{"log_dir": "b1", "file": "t-0/0.log", "position": 9, "reason": "unreadable", "detail": "EIO\x00"}]
    top = ET.fromstring(rendered("junit", [], samples.empty_summary(unreadable=lost)))
    assert {s.get("name"): s.get("errors") for s in top} == {
        "hanging-transaction": "0",
        "sequence-gap": "0",
        "input": "1",
    }
    assert [e.get("message") for e in top.iter("error")] == ["EIO\\x00"]
    assert sum(1 for case in top.iter("testcase") if case.get("name") == "nothing found") == 2


def test_junit_never_passes_a_rule_whose_findings_are_not_printed() -> None:
    from auditor.dashboards.output_formats import junit

    full = answers.summary(samples.empty_summary())
    (case,) = ET.fromstring(junit([], full, {"r": {"hidden": 2}}, "error"))[0]
    assert [e.tag for e in case] == ["skipped"]


def test_csv_reads_back_and_holds_no_formula() -> None:
    names = {"transactional_id": '=HYPERLINK("x")', "group_id": "-a", "message": 'say "a", b\nc'}
    found = samples.finding(rule="sequence-gap", topic="t", partition=0, offset=-1, **names)
    (row,) = csv.DictReader(io.StringIO(rendered("csv", [found], samples.empty_summary())))
    assert list(row) == list(answers.FINDING)
    assert row["transactional_id"] == "'" + names["transactional_id"]
    assert (row["group_id"], row["message"], row["offset"]) == ("'-a", names["message"], "-1")


def test_csv_shows_no_control_characters() -> None:
    found = samples.finding(rule="sequence-gap", message="\x1b]0;owned\x07 a\u202eb", transactional_id="\x1b[2J")
    said = rendered("csv", [found], samples.empty_summary())
    assert not {"\x1b", "\x07", "\u202e"} & set(said)
    (row,) = csv.DictReader(io.StringIO(said))
    assert (row["message"], row["transactional_id"]) == (r"\x1b]0;owned\x07 a\u202eb", r"\x1b[2J")


def test_markdown_names_the_blocked_and_keeps_names_harmless() -> None:
    findings, summary, *_ = samples.hanging()
    said = rendered("markdown", findings, summary)
    assert said.startswith("# ")
    assert "\n    kafka-transactions.sh " in said
    assert sum(line.startswith("| critical |") for line in said.splitlines()) == len(findings)
    assert escaped("a|b<script>`x`[y](z)\n") == r"a\|b\<script\>\`x\`\[y\](z)\\x0a"


@pytest.mark.parametrize(("kind", "first"), [("csv", "a,b\n"), ("markdown", "| a | b |\n"), ("json", '{"a": 1')])
def test_lists(kind: str, first: str) -> None:
    assert "".join(output_formats.list_lines(kind, [{"a": 1, "b": "x"}])).startswith(first)
    assert "".join(output_formats.list_lines(kind, [])) == ""
