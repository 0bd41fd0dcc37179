"""Entries of transaction indexes that are at rest packed, as very many are, are judged as those that are not."""

from __future__ import annotations

import pytest

from auditor.facts.packed import PackedRows
from auditor.replay.reading import replica_reader
from auditor.rules.seen.view import Finding
from tests import corpora
from tests.facts import judge, logs_below

RULES = ("aborted-index-extra-entry", "aborted-transaction-not-indexed", "replica-abort-index-divergence")


@pytest.mark.parametrize("name", ["altered-41", "replicas-41", "hanging-36"])
def test_packed_or_not_the_findings_are_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def found() -> list[Finding]:
        return judge(logs_below(corpora.unpack(name)), *RULES)

    plain = found()
    monkeypatch.setattr(replica_reader, "PACK_ABOVE", 0)
    packed = [
        replica.aborted for log in logs_below(corpora.unpack(name)) for replica in log.replicas if len(replica.aborted)
    ]
    assert packed
    assert all(isinstance(rows, PackedRows) for rows in packed)
    assert [f.to_dict() for f in found()] == [f.to_dict() for f in plain]
