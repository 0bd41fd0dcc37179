"""JSON that others may have written is counted before it is parsed: a few bytes become 50 times as many."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from auditor.base.at_rest import MOST_OF_SUMMARY, MOST_VALUES
from auditor.base.errors import AuditInputError
from auditor.connectors.stores.results import folder
from auditor.outputs import delivery
from auditor.outputs.printing import CHECKPOINT, Journal
from auditor.outputs.site import LIST, _stamps
from auditor.pipeline.options import read_baseline

MIB = 1 << 20


def bomb(values: int) -> bytes:
    """JSON of that many values and one more, in 3 bytes each."""
    return b'{"accepted":[' + b"[]," * values + b"0]}"


def refused_by_results(path: Path) -> None:
    (path / delivery.SUMMARY).write_bytes(bomb(MOST_OF_SUMMARY))
    (path / "findings.jsonl").write_bytes(b"")
    with pytest.raises(AuditInputError, match="has no audit results"):
        delivery.read(path)


def refused_by_findings(path: Path) -> None:
    (path / delivery.SUMMARY).write_bytes(b"{}")
    (path / "findings.jsonl").write_bytes(bomb(MOST_VALUES) + b"\n")
    with pytest.raises(AuditInputError, match="has no audit results"):
        delivery.read(path)


def refused_by_baseline(path: Path) -> None:
    (path / "baseline.json").write_bytes(bomb(MOST_VALUES))
    with pytest.raises(AuditInputError, match="is not a baseline: more than"):
        read_baseline(path / "baseline.json")


def refused_by_journal(path: Path) -> None:
    (path / CHECKPOINT).write_bytes(bomb(MOST_VALUES))
    assert Journal(path).open == {}


def refused_by_site(path: Path) -> None:
    (path / LIST).write_bytes(bomb(MOST_VALUES))
    assert _stamps(folder(path)) == {}


@pytest.mark.parametrize(
    "refused", [refused_by_results, refused_by_findings, refused_by_baseline, refused_by_journal, refused_by_site]
)
def test_too_many_values_are_never_parsed(tmp_path: Path, refused: Callable[[Path], None]) -> None:
    tracemalloc.start()
    try:
        refused(tmp_path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * 3 * MOST_OF_SUMMARY  # the text, and as text; its lists alone would take 56 bytes each
