"""Moments that people write, as milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime


def moment_ms(text: str) -> int | None:
    """An ISO-8601 moment (UTC unless it says otherwise) in ms since the epoch; None for any other text."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
