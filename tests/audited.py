"""A whole audit in this process: what ``auditor audit`` says of a folder."""

from __future__ import annotations

from pathlib import Path

from auditor import running
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.whole_audit import Audit, Say, nobody
from auditor.rules.finding import Finding
from tests.facts import here, opened


def audit_folder(path: Path, as_of: int | None, *, records: bool = True) -> list[Finding]:
    """All findings about the log directories below ``path``, in the contract's order. ``as_of``: ms, the clock."""
    return opened(path, records=records, as_of=as_of).findings


def above_info(found: list[Finding]) -> list[Finding]:
    """What somebody would be woken for."""
    return [f for f in found if f.severity != "info"]


def published(options: AuditOptions, say: Say = nobody) -> Audit:
    """A whole audit with everything that it leaves in ``options.out``, in this process."""
    done = Audit(options, here(), say)
    running.write(done)
    return done
