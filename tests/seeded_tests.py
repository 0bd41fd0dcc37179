"""Properties that hold of whatever a seed makes: one test, many seeds, the one that fails named."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import NIGHTLY

MOST = 2**32 - 1


def seeded(count: int, nightly: int | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Runs a test with each ``seed`` below ``count``; in the nightly run with ``nightly`` of all seeds, by default ten
    times as many. What it takes of pytest is shared by all of them.
    """
    tried = (nightly or 10 * count) if NIGHTLY else count
    last = MOST if NIGHTLY else count - 1

    def decorated(test: Callable[..., None]) -> Callable[..., None]:
        shared = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
        return settings(max_examples=tried, suppress_health_check=shared)(given(seed=st.integers(0, last))(test))

    return decorated
