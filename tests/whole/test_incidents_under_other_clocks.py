"""What is truly there is found whatever a broker's clock says: each corpus' incidents, with one broker's clock off.

The counterpart of :mod:`tests.whole.test_untidy_clusters`: what keeps silent there must not be blind here. That it is
less sure by other clocks is fine; that it is gone is not. A run takes one case of each cluster, ``UNTIDY=all`` all.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from auditor.rules.seen.view import Finding
from tests import corpora
from tests.whole.test_corpus_findings import matches
from tests.whole.test_files_that_are_absent import link
from tests.whole.test_untidy_clusters import CORPORA, NO_CLOCKS, WHICH, Case, audited, clocks

BY = ("40 s", "2 h")  # of one case alone
TIMED = ("transaction_past_timeout", "transaction_open_long")


def incidents(corpus: str, case: Case | None = None) -> list[dict[str, Any]]:
    """What a cluster's manifest expects, but for what would be an information, or what another clock mends."""
    expected = [e for e in corpora.manifest(corpus)["expect"] if not e.get("severity", "").startswith("info")]
    return [e for e in expected if case is None or not is_mended(e["finding"], case)]


def is_mended(finding: str, case: Case) -> bool:
    """Two clocks that differ may be made alike. And by a broker's own clock that is set back, which is what times
    transactions out, what is open has not lasted."""
    younger = case.kind == "a clock is set" and " -" in case.name
    return finding == "clock_skew" or (finding in TIMED and younger)


def chosen(corpus: str) -> Iterator[Case]:
    every = list(clocks(corpora.unpack(corpus)))
    some = [case for case in every if case.name.endswith(BY)]
    yield from every if WHICH == "all" else [random.Random(f"{corpus} {WHICH}").choice(some)]


def is_found(expected: dict[str, Any], found: list[Finding]) -> bool:
    """Whether it is a finding, or what another one of that partition stands for."""
    rules = corpora.rule_ids()[expected["finding"]]
    place = expected.get("topic"), expected.get("partition")
    explained = ((also, f) for f in found for also in f.evidence.get("also", ()))
    return any(matches(expected, f) for f in found) or any(
        also["rule"] in rules and (also["topic"], also["partition"]) == place for also, _ in explained
    )


@pytest.mark.parametrize("corpus", [name for name in CORPORA if name not in NO_CLOCKS and incidents(name)])
def test_an_incident_is_found_by_other_clocks(corpus: str, tmp_path: Path) -> None:
    lost = []
    for case in chosen(corpus):
        shutil.copytree(corpora.unpack(corpus), tmp_path / "off", copy_function=link)
        case.make(tmp_path / "off")
        found = audited(corpus, tmp_path / "off", when_is_given="as_of" in corpora.manifest(corpus))
        lost += [(case.kind, case.name, e) for e in incidents(corpus, case) if not is_found(e, found)]
        shutil.rmtree(tmp_path / "off")
    assert not lost
