"""Rules that became part of another: their ids are kinds of its findings, which calls, baselines and names go by."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from types import MappingProxyType

import pytest

from auditor import cli
from auditor.dashboards import output_formats
from auditor.outputs import printing
from auditor.rules.catalogue import registry
from auditor.rules.catalogue.kinds import FORMER_IDS
from auditor.rules.resolution.resolve import fingerprint, sign
from auditor.rules.seen.view import Finding
from tests import earlier

DIRS = {"b1": "c"}


@pytest.fixture
def merged(monkeypatch: pytest.MonkeyPatch) -> None:
    """``sequence-gap`` with a kind ``lost-batch``, which was a rule about files."""
    gap = registry.kinds()["sequence-gap"]
    lost = dataclasses.replace(gap, id="lost-batch", family="segment integrity")
    kinds = MappingProxyType({**registry.kinds(), "lost-batch": lost})
    monkeypatch.setattr(registry, "kinds", lambda: kinds)


def test_a_fingerprint_is_made_over_the_kind_with_its_old_family(merged: None) -> None:
    """So that what a baseline has is found again: the text that the sum is of stands in the old rule's words."""
    row = Finding("sequence-gap", "error", 3, "t", 0, 7, kind="lost-batch").to_dict()
    old = ["lost-batch", "c", "t", 0, 7, None, None, None, None, 3]
    assert fingerprint(row, "c") == hashlib.sha256(json.dumps(old, separators=(",", ":")).encode()).hexdigest()
    past = {name: value for name, value in row.items() if name != "kind"} | {"rule": "lost-batch"}
    assert fingerprint(past, "c") == fingerprint(row, "c")
    own = ["sequence-gap", "c", "t", 0, 7, None, None, None, None, None]
    row["kind"] = "sequence-gap"
    assert fingerprint(row, "c") == hashlib.sha256(json.dumps(own, separators=(",", ":")).encode()).hexdigest()


def test_every_rule_of_the_release_before_is_a_kind_with_the_fingerprints_of_then() -> None:
    made_up = [row for row in earlier.findings() if row["corpus"] is None]
    assert len(made_up) == 86
    for row in made_up:
        assert fingerprint(row, row["cluster_id"]) == row["fingerprint"], row["kind"]
        (kind,) = (kind for kind in registry.named(row["kind"]) if kind.id == row["kind"])
        assert kind in registry.load()[kind.rule].kinds


def test_a_former_id_means_the_rule_and_its_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(FORMER_IDS) == 13
    for former, current in FORMER_IDS.items():
        assert registry.named(former) == registry.named(current) == registry.load()[current].kinds
        assert former not in registry.load()
        assert former in registry.load()[current].former_ids
        assert cli.main(["rules", former]) == 0
        assert capsys.readouterr().out.startswith(f"{current}\n")


def test_a_rule_that_is_its_only_kind_keeps_the_former_id_as_kind() -> None:
    """So fingerprints, which contain the kind, do not change."""
    assert [(kind.id, kind.rule) for kind in registry.named("offset-gap")] == [("offset-hole", "offset-gap")]
    (kind,) = registry.named("plain-data-inside-transaction")
    assert (kind.id, kind.rule) == ("plain-data-inside-transaction", "non-transactional-write-in-transaction")


def test_sarif_lists_former_ids() -> None:
    rules = printing._rules(["offset-hole", "long-open-transaction"])
    described = [output_formats._rule(name, rule) for name, rule in rules.items()]
    assert [(rule["id"], rule["deprecatedIds"][-1]) for rule in described] == [
        ("offset-gap", "offset-hole"),
        ("transaction-past-timeout", "late-transaction"),
    ]


def test_findings_are_signed_with_their_own_cluster() -> None:
    found = [
        Finding("sequence-gap", "error", topic="t", partition=p, evidence={"log_dir": d})
        for p, d in ((1, "b1"), (0, "b2"))
    ]
    ids = {"b1": "c", "b2": None}
    for each in found:
        sign(each, ids)
    first, second = found
    assert (first.fingerprint, second.fingerprint) == (
        fingerprint(first.to_dict(), "c"),
        fingerprint(second.to_dict(), None),
    )
    alone = Finding("sequence-gap", "error", topic="t", partition=0)
    sign(alone, DIRS)
    assert alone.fingerprint == fingerprint(alone.to_dict(), "c")


def test_an_unknown_kind_is_no_rule(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        cli.main(
            ["audit", str(tmp_path), "--out", str(tmp_path / "o"), "--rule", "lost-batch", "--master", "inline[1]"]
        )
        == 2
    )
    assert "no rule named 'lost-batch'" in capsys.readouterr().err
