"""A whole audit without Spark: what ``auditor run`` would say of a folder, by the same rules and the same settling."""

from __future__ import annotations

from pathlib import Path

from auditor.rules import registry
from auditor.rules.finding import Finding
from tests.facts import judge, logs_below


def audit_folder(path: Path, as_of: int | None, *, records: bool = True) -> list[Finding]:
    """All findings about the log directories below ``path``, in the contract's order. ``as_of``: ms, the clock."""
    wanted = (r for r in registry.load().values() if not r.what_if and (records or not r.records))
    return judge(logs_below(path, records=records, as_of=as_of), *(r.id for r in wanted))


def above_info(found: list[Finding]) -> list[Finding]:
    """What somebody would be woken for."""
    return [f for f in found if f.severity != "info"]
