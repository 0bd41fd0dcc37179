"""A whole audit in this process: what ``auditor audit`` says of a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from auditor import running
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.whole_audit import Audit, Say, nobody
from auditor.rules.catalogue import registry
from auditor.rules.seen.view import SEVERITIES, Finding
from tests.declared_evidence import faults
from tests.facts import here, opened

LOOKS: list[Callable[[Audit], None]] = []


def audit_folder(path: Path, as_of: int | None, *, records: bool = True) -> list[Finding]:
    """All findings about the log directories below ``path``, in the contract's order. ``as_of``: ms, the clock.

    Whatever the incident, none is graver than the finding that explains it; who else looks at each is in :data:`LOOKS`.
    """
    audit = opened(path, records=records, as_of=as_of)
    found = audit.findings
    assert not list(graver_inside(found))
    assert not undeclared(found)
    assert not [fault for f in found for fault in faults(registry.kinds()[f.kind], f.evidence)]
    for look in LOOKS:
        look(audit)
    return found


def undeclared(found: list[Finding]) -> set[tuple[str, str]]:
    """Kinds and severities of findings, raised by what they explain too, that no rule's page says."""
    kinds = registry.kinds()
    return {(f.kind, f.severity) for f in found if f.severity not in {*kinds[f.kind].severities, *kinds[f.kind].raised}}


def graver_inside(found: list[Finding]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Rule, severity and what is graver of each finding that another one explains, which is less grave."""
    for f in found:
        for also in f.evidence.get("also", ()):
            if SEVERITIES.index(also["severity"]) < SEVERITIES.index(f.severity):
                yield f.kind, f.severity, also


def above_info(found: list[Finding]) -> list[Finding]:
    """What somebody would be woken for."""
    return [f for f in found if f.severity != "info"]


def published(options: AuditOptions, say: Say = nobody) -> Audit:
    """A whole audit with everything that it leaves in ``options.out``, in this process."""
    done = Audit(options, here(), say)
    running.write(done)
    return done
