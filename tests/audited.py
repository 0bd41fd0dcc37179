"""A whole audit in this process: what ``auditor audit`` says of a folder."""

from __future__ import annotations

from pathlib import Path

from auditor.rules.finding import Finding
from tests.facts import opened


def audit_folder(path: Path, as_of: int | None, *, records: bool = True) -> list[Finding]:
    """All findings about the log directories below ``path``, in the contract's order. ``as_of``: ms, the clock."""
    return opened(path, records=records, as_of=as_of).findings


def above_info(found: list[Finding]) -> list[Finding]:
    """What somebody would be woken for."""
    return [f for f in found if f.severity != "info"]
