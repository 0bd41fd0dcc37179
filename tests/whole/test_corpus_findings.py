"""The main promise: on directories of real brokers the audit reports what is there, and nothing else above info."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from auditor.pipeline.options import AuditOptions
from auditor.pipeline.whole_audit import Audit
from auditor.rules.catalogue import registry
from auditor.rules.resolution.resolve import PARTS
from auditor.rules.seen.view import Finding
from tests import corpora, earlier
from tests.audited import graver_inside, published, undeclared

# What a manifest's "allowed_too", in words, allows besides: rules by topic-partition. Read from the manifests.
ALLOWED_TOO = {
    "snapshot at the old end": "snapshot-replay-mismatch",
    "snapshot_beyond_log_end": "snapshot-replay-mismatch",
    "high_watermark_beyond_log_end": "checkpoint-beyond-log-end",
    "index_entry_beyond_log_end": "index-mismatch",
    "sequence_gap": "sequence-gap",
    "timeindex": "index-mismatch",
    "record_parse_failure": "record-structure-invalid",
    "aborted transaction of the log missing": "aborted-transaction-not-indexed",
}
BINARY = [*corpora.judged(), *corpora.campaigns()]
# What is not right yet, with the issue that it waits for: a test that begins to pass fails here, and its line goes.
ACCUSED: dict[str, str] = {}


def every(waiting: dict[str, str]) -> list[Any]:
    """All of them, those that wait for something marked as such."""
    marks = {name: pytest.mark.xfail(strict=True, reason=reason) for name, reason in waiting.items()}
    return [pytest.param(name, marks=marks[name]) if name in marks else name for name in BINARY]


@functools.cache
def findings_of(name: str, out: Path) -> Audit:
    as_of = corpora.manifest(name).get("as_of", corpora.manifest(name)["copied_at"])
    options = AuditOptions((str(corpora.unpack(name)),), out / name, records=True, as_of=as_of)
    return published(options)


@pytest.fixture(scope="session")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audits")


def matches(expected: dict[str, Any], finding: Finding) -> bool:
    rules = corpora.rule_ids()[expected["finding"]]
    same = {
        "topic": finding.topic, "partition": finding.partition, "producerId": finding.producer_id,
        "producerEpoch": finding.producer_epoch, "transactionalId": finding.transactional_id,
        "baseOffset": finding.offset, "firstOffset": finding.offset, "lastOffset": finding.last_offset,
    }  # fmt: skip
    if finding.offset is None or expected["finding"] in ("truncated_tail", "snapshot_differs_from_replay"):
        same = {k: v for k, v in same.items() if k in ("topic", "partition", "producerId")}
    if finding.producer_id is None:
        same = {k: v for k, v in same.items() if not k.startswith("producer")}
    return finding.kind in rules and all(expected[k] == v for k, v in same.items() if k in expected)


def allowed(manifest: dict[str, Any], finding: Finding) -> bool:
    if finding.kind in corpora.true_too(manifest["corpus"]):
        return True
    for expected in manifest["expect"]:
        if (expected.get("topic"), expected.get("partition")) == (finding.topic, finding.partition):
            words = " ".join(expected.get("allowed_too", ()))
            if any(said in words and rule == finding.kind for said, rule in ALLOWED_TOO.items()):
                return True
    return False


@pytest.mark.parametrize("name", BINARY)
def test_expected_findings_are_reported(name: str, out: Path) -> None:
    found = findings_of(name, out).findings
    for expected in corpora.manifest(name)["expect"]:
        hits = [f for f in found if matches(expected, f)]
        if expected["finding"] in corpora.unknowable(name) and expected.get("severity") == "info":
            assert all(f.severity == "info" for f in hits)
            continue
        assert hits, f"not reported: {expected}"
        if "position" in expected and expected["finding"] != "index_entry_inside_batch":
            assert hits[0].position == expected["position"]
        if "file" in expected:
            assert expected["file"].endswith(hits[0].file or "?")
        severity = expected.get("severity", "")
        if severity.startswith("info"):
            assert all(f.severity == "info" for f in hits)
        elif not severity:
            assert any(f.severity != "info" for f in hits)


@pytest.mark.parametrize("name", every(ACCUSED))
def test_nothing_else_above_info_is_reported(name: str, out: Path) -> None:
    manifest = corpora.manifest(name)
    extra = [
        f
        for f in findings_of(name, out).findings
        if f.severity != "info" and not allowed(manifest, f) and not any(matches(e, f) for e in manifest["expect"])
    ]
    assert not extra, [f.to_json() for f in extra]


@pytest.mark.parametrize("name", BINARY)
def test_no_finding_is_graver_than_the_one_that_explains_it(name: str, out: Path) -> None:
    """One cause is one finding: what it explains must not disappear in it."""
    assert not list(graver_inside(findings_of(name, out).findings))


@pytest.mark.parametrize("name", BINARY)
def test_each_severity_is_declared_at_its_rule(name: str, out: Path) -> None:
    assert not undeclared(findings_of(name, out).findings)


def test_a_baseline_that_was_written_before_rules_were_merged_holds(out: Path) -> None:
    """What is found now at the place and of the kind of a finding of an earlier release has the fingerprint of then."""
    then = {place(row, row["corpus"]): row["fingerprint"] for row in earlier.findings()}
    audits = {name: findings_of(name, out).findings for name in BINARY}
    now = {place(f.to_dict(), name): f.fingerprint for name, found in audits.items() for f in found}
    same = then.keys() & now.keys()
    assert len(same) > len(then) / 2  # some are said together now, or are no findings any more
    assert {at: now[at] for at in same} == {at: then[at] for at in same}


def place(row: Mapping[str, Any], corpus: str) -> tuple[Any, ...]:
    return (corpus, row["kind"], row["broker_id"], *(row[name] for name in PARTS))


@pytest.mark.parametrize("name", BINARY)
def test_one_record_is_one_finding_of_a_rule(name: str, out: Path) -> None:
    """However many replicas have it. A finding with advice of its own is of something of its own, as a file of one
    replica; and rules on replicas speak of each by itself."""
    said: set[tuple[object, ...]] = set()
    for f in findings_of(name, out).findings:
        of_replica = registry.kinds()[f.kind].family == "replicas"
        # What is of no offset is of what it names: a producer, an id, a group, partitions.
        subject = (f.message,) if f.offset is None else ()
        about = (f.kind, f.topic, f.partition, f.offset, f.broker_id if of_replica else f.remedy, *subject)
        assert about not in said, f.to_json()
        said.add(about)


# What no log shows: who read what, what a client was told, where data lies that only a coordinator's record names.
CLAIMS = ("has read", "have read", "acknowledged", "already in the log", "never allocated", "it is open in")


@pytest.mark.parametrize("name", BINARY)
def test_messages_claim_only_what_was_compared(name: str, out: Path) -> None:
    said = [f.message for f in findings_of(name, out).findings]
    assert not [message for message in said if any(claim in message for claim in CLAIMS)]


def before_compression(manifest: Path) -> int:
    """Bytes that a remote segment had more than it has as Aiven's plugin stored it: counted is what it was."""
    if manifest.suffix != ".rsm-manifest":
        return 0
    says = json.loads(manifest.read_text())
    size = int(says["chunkIndex"]["originalFileSize"])
    return size - manifest.with_suffix(".log").stat().st_size if says["compression"] else 0


@pytest.mark.parametrize("name", BINARY)
def test_every_input_byte_and_offset_is_accounted_for(name: str, out: Path) -> None:
    findings_of(name, out)
    summary = json.loads((out / name / "summary.json").read_text())
    files = [p for p in corpora.unpack(name).rglob("*") if p.is_file()]
    sizes = sum(p.stat().st_size for p in files) + sum(map(before_compression, files))
    assert summary["bytes"]["total"] == sizes
    assert sizes == sum(summary["bytes"][k] for k in ("decoded", "skipped", "unreadable"))
    for log in summary["logs"]:
        offsets = log["offsets"]
        assert offsets["total"] == log["log_end"] - log["log_start"]
        assert offsets["not_reached"] >= 0
        assert offsets["total"] == sum(v for k, v in offsets.items() if k != "total")


def test_healthy_logs_are_proved_by_their_snapshots(out: Path) -> None:
    findings_of("healthy-41", out)
    summary = json.loads((out / "healthy-41" / "summary.json").read_text())
    chains = {f"{log['topic']}-{log['partition']}": log["chain"] for log in summary["logs"]}
    assert chains["shop.orders-0"]["fraction"] == 1
    assert all(not chain["broken"] for chain in chains.values())
