"""A clock that sleeping moves, for tests of what waits: minutes pass at once."""

from __future__ import annotations

import time


class Ahead:
    """In place of the module ``time`` where something sleeps: ``monotonic`` is the true one and all that was slept."""

    def __init__(self) -> None:
        self.slept = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.slept

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
