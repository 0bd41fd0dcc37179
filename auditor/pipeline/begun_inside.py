"""Findings about logs that were not read from their start."""

from __future__ import annotations

from collections.abc import Iterable

from auditor.rules.catalogue import registry
from auditor.rules.seen.view import Finding


def without_news(found: Iterable[Finding], begun: set[tuple[str | None, int | None]]) -> list[Finding]:
    """Where a log (topic and partition, in ``begun``) was not read from its start, that something began before is no
    news."""
    kinds = registry.kinds()
    return [
        f
        for f in found
        if (f.topic, f.partition) not in begun or not kinds[f.kind].before_start or f.severity != "info"
    ]
