"""No rule looks at all partitions of the cluster for each log that it judges: time would grow with their square."""

from __future__ import annotations

from typing import Any, NoReturn

from auditor.rules.catalogue import registry
from auditor.rules.seen.cluster_view import Cluster, LeaderBounds
from tests.facts import log_of
from tests.made import facts


class Unwalked(dict[Any, Any]):
    """Where single ones may be looked up."""

    def _walk(self, *_: object) -> NoReturn:
        raise AssertionError("all partitions were walked")

    __iter__ = keys = values = items = _walk


def test_an_ordinary_log_is_judged_by_itself() -> None:
    bounds = Unwalked({("t", 0): LeaderBounds(0, 10, 10, 1_000, True, None, 1)})
    cluster = Cluster(as_of=3_600_000, newest_time=3_600_000, bounds=bounds)
    assert not list(registry.judge(log_of([facts()], cluster), registry.kinds().values()))
