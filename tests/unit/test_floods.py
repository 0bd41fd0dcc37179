"""Findings that are too many to list are counted: the bounds, what explains what all the same, and a small bomb."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from auditor.connectors.logdir import internal_rows
from auditor.rules.catalogue import registry
from auditor.rules.resolution import finding_limits
from auditor.rules.resolution.resolve import resolve
from auditor.rules.seen.view import SEVERITIES, Finding, in_order
from tests import corpora, segments
from tests.audited import audit_folder
from tests.facts import log_of, opened
from tests.made import facts


def bomb(folder: Path, records: int) -> Path:
    """A partition of ``__transaction_state`` whose records have no key, nor anything else: they are compressed well."""
    log = folder / "__transaction_state-0"
    log.mkdir(parents=True)
    (folder / "meta.properties").write_text("version=0\nbroker.id=1\n")
    plain = b"".join(segments.record(delta, None, b"") for delta in range(records))
    data = segments.batch(segments.compress(4, plain), records, attributes=4)
    (log / f"{0:020}.log").write_bytes(data)
    return folder


def test_few_bytes_make_few_findings(tmp_path: Path) -> None:
    found = audit_folder(bomb(tmp_path / "broker-1", 5_000), None)
    mine = [f for f in found if f.kind == "unreadable-transaction-record"]
    (summed,) = (f for f in mine if finding_limits.is_summed(f))
    assert len(mine) == 1_001
    assert (summed.severity, summed.offset, summed.topic, summed.partition) == ("error", None, "__transaction_state", 0)
    evidence = summed.evidence
    assert (evidence["summed"], evidence["first_offset"], evidence["last_offset"]) == (4_000, 1_000, 4_999)
    assert sorted(f.offset for f in mine if f.offset is not None) == [*range(1_000)]
    assert (
        "--rule unreadable-transaction-record --topic __transaction_state --max-findings 5000" in evidence["listed_by"]
    )


def test_what_is_said_to_list_them_does(tmp_path: Path) -> None:
    path = bomb(tmp_path / "broker-1", 1_500)
    asked = {"rules": ("unreadable-transaction-record",), "topics": ("__transaction_state",), "max_findings": 1_500}
    found = opened(path, **asked).findings
    assert [f.offset for f in found] == [*range(1_500)]


def test_errors_on_the_way_to_the_driver_are_few(tmp_path: Path) -> None:
    errors = opened(bomb(tmp_path / "broker-1", 3_000), records=True).judged["log"][0]["errors"]
    assert len(errors) == 1_001
    assert errors[-1]["detail"].endswith("(2000 such errors from here on)")


def test_what_a_reader_keeps_of_records_that_cannot_be_decoded_has_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 50 records 10 are named, and one more that stands for the other 40."""
    monkeypatch.setattr(internal_rows, "MOST_NAMED", 10)
    found = audit_folder(bomb(tmp_path / "broker-1", 50), None)
    mine = [f for f in found if f.kind == "unreadable-transaction-record"]
    assert [f.offset for f in mine] == [*range(10), 49]
    assert "40 more such records, the last at offset 49" in mine[-1].message


def rule_of(*found: Finding) -> registry.Rule:
    """A rule of a known id that finds these."""

    def check(log: object) -> Iterator[Finding]:
        yield from found

    return replace(registry.kinds()[found[0].rule], check=check, severities=dict.fromkeys(SEVERITIES, ""))


def at(offset: int | None, rule: str = "epoch-regression", severity: str = "error", partition: int = 0) -> Finding:
    evidence = {"log_dir": "b1", "confidence": "proved"}
    return Finding(rule, severity, 1, "t", partition, offset, offset, 7, evidence=evidence, message=f"at {offset}")


def test_the_severest_stay_and_each_severity_has_its_sum() -> None:
    found = [*(at(n) for n in range(10)), *(at(n, severity="critical") for n in range(10, 13)), at(20, severity="info")]
    kept = list(finding_limits.judge_bounded(log_of([facts()]), [rule_of(*found)], 5))
    assert [(f.severity, f.offset) for f in kept if not finding_limits.is_summed(f)] == [
        ("error", 0), ("error", 1), ("critical", 10), ("critical", 11), ("critical", 12),
    ]  # fmt: skip
    sums = {f.severity: f.evidence for f in kept if finding_limits.is_summed(f)}
    assert sums.keys() == {"error", "info"}
    assert [sums["error"][name] for name in ("summed", "first_offset", "last_offset")] == [8, 2, 9]


def test_as_many_as_the_limit_are_all_listed() -> None:
    kept = list(finding_limits.judge_bounded(log_of([facts()]), [rule_of(*(at(n) for n in range(5)))], 5))
    assert [f.offset for f in kept] == [*range(5)]


def test_rules_that_find_nothing_hide_none_that_do() -> None:
    def nothing(log: object) -> Iterator[Finding]:
        yield from ()

    silent = replace(registry.kinds()["epoch-near-exhaustion"], check=nothing)
    chosen = [silent, rule_of(at(1), at(2)), silent, rule_of(at(3, "offset-hole")), silent]
    kept = list(finding_limits.judge_bounded(log_of([facts()]), chosen, 5))
    assert [(f.kind, f.offset) for f in kept] == [("epoch-regression", 1), ("epoch-regression", 2), ("offset-hole", 3)]
    for f in kept:  # a finding that says neither has those of its rule's page; an error has it in steps
        page = registry.kinds()[f.kind]
        assert f.source == page.source
        assert f.advice is not None
        assert ". ".join(step.do for step in f.advice.steps) + "." == page.sections["What to do"].replace("; ", ". ")


def test_a_sum_stands_where_nothing_is_listed() -> None:
    summed = at(None)
    summed.evidence |= {finding_limits.SUMMED: 7, "first_offset": 3, "last_offset": 9}
    (kept,) = finding_limits.judge_bounded(log_of([facts()]), [rule_of(summed)], 5)
    assert [kept.evidence[name] for name in (finding_limits.SUMMED, "first_offset", "last_offset")] == [7, 3, 9]


def test_a_long_list_in_the_evidence_is_cut_and_says_so() -> None:
    f = at(1)
    f.evidence["partitions"] = [f"t-{n}" for n in range(5_000)]
    (kept,) = finding_limits.judge_bounded(log_of([facts()]), [rule_of(f)], 5)
    assert (len(kept.evidence["partitions"]), kept.evidence["partitions_in_all"]) == (1_000, 5_000)


def test_what_a_run_keeps_depends_on_no_order() -> None:
    found = [at(n, partition=partition) for partition in range(4) for n in range(100)]
    results = set()
    for seed in range(5):
        kept = finding_limits.LimitedFindings(registry.kinds(), 1)
        for f in random.Random(seed).sample(found, len(found)):
            kept.add(f)
        listed = resolve(kept.findings())
        assert sum(f.evidence.get("summed", 1) for f in listed) == 400
        assert sum(not finding_limits.is_summed(f) for f in listed) == finding_limits.IN_ALL
        results.add("".join(f.to_json() for f in listed))
    assert len(results) == 1


def test_findings_are_in_the_order_of_all_their_fields() -> None:
    """Of those at one place, of one rule, the evidence and the messages decide too."""
    found = [at(offset, rule, severity, partition)
             for rule in ("epoch-regression", "sequence-gap") for severity in ("error", "info")
             for partition in (0, 1) for offset in (None, 1, 2)]  # fmt: skip
    found += [replace(f, producer_id=producer_id, message=text) for f in found for producer_id in (None, 3)
              for text in ("a", "b")]  # fmt: skip
    mixed = random.Random(3).sample(found, len(found))
    assert in_order(mixed) == sorted(mixed, key=Finding.sort_key)


def test_sums_of_sums_count_all() -> None:
    log = log_of([facts()])
    kept = finding_limits.LimitedFindings(registry.kinds(), 1)
    for _ in range(2):
        for f in finding_limits.judge_bounded(log, [rule_of(*(at(n) for n in range(10)))], 3):
            kept.add(f)
    (summed,) = (f for f in kept.findings() if finding_limits.is_summed(f))
    assert [summed.evidence[name] for name in ("summed", "first_offset", "last_offset")] == [14, 3, 9]


def test_a_sum_explains_and_is_explained() -> None:
    """late-write-after-marker explains epoch-regression at the same transaction: those that are counted do, too."""
    causes = [at(n, "hanging-transaction", "critical") for n in range(20)]
    effects = [at(n, "late-write-after-marker") for n in range(20)]
    log = log_of([facts()])
    found = [
        *finding_limits.judge_bounded(log, [rule_of(*causes), rule_of(*effects)], 5),
        at(15, "late-write-after-marker"),
    ]
    kept = resolve(found)
    assert {f.kind for f in kept} == {"hanging-transaction"}
    (summed,) = (f for f in kept if finding_limits.is_summed(f))
    assert len(summed.evidence["also"]) == 2  # the sum of the effects, and the one listed beyond


@pytest.mark.parametrize("corpus", ["lively-11", "lively-40"])
def test_a_healthy_live_copy_misses_markers_once_a_partition(corpus: str) -> None:
    """Transactions went on while the files were copied; their markers are missing for one cause."""
    found = [f for f in audit_folder(corpora.unpack(corpus), None) if f.kind == "missing-marker"]
    assert found
    names = [(f.topic, f.partition) for f in found]
    assert len(names) == len(set(names))
    assert all(f.severity == "info" and f.evidence["count"] > 1 for f in found)
