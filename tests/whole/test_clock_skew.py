"""Brokers of which one's clock is 40 s ahead: that is said once, of that broker, and nothing else is."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest

from tests import corpora
from tests.audited import above_info
from tests.broker.clocks import AHEAD
from tests.facts import opened
from tests.forge import Forged

CAMPAIGNS = ("clock-apart-43", "clock-apart-v1-43")
BROKERS = [kept for count in (1, 2, 3) for kept in itertools.combinations((1, 2, 3), count)]


@pytest.mark.parametrize("name", CAMPAIGNS)
@pytest.mark.parametrize("kept", BROKERS)
def test_whose_clock_it_is_and_by_how_much(name: str, kept: tuple[int, ...], tmp_path: Path) -> None:
    """As it was set, to a second: by all of the directories, and by any of them."""
    root = corpora.copy(name, tmp_path)
    for broker in {1, 2, 3} - set(kept):
        shutil.rmtree(root / f"broker-{broker}")
    (f,) = above_info(opened(root).findings)
    ((broker, ahead),) = AHEAD.items()
    assert (f.rule, f.severity) == ("clock-skew", "warning")
    assert f.message.startswith(f"The clock of broker {broker} is at least ")
    assert tuple(f.evidence["brokers"]) == (1, 3, broker)
    assert 0 <= ahead - f.evidence["ahead_ms"] <= 1_000


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_a_marker_that_is_lost_is_missed_all_the_same(name: str, tmp_path: Path) -> None:
    """A COMMIT in the middle of a partition that is led by the broker whose clock is off, gone from every replica."""
    root = corpora.copy(name, tmp_path)
    (broker,) = AHEAD
    folder = led_by(root, broker)
    logs = [Forged(root / f"broker-{number}", folder) for number in (1, 2, 3)]
    markers = [b for b in logs[0].markers() if b.records()[0]["key"][-1] == 1]
    gone = markers[len(markers) // 2]
    for log in logs:
        log.drop(log.find(gone["base_offset"]))
        log.save()
    found = {f.rule: f for f in above_info(opened(root).findings)}
    assert {"clock-skew", "missing-marker"} <= set(found) <= {"clock-skew", "missing-marker", "offset-hole"}
    f = found["missing-marker"]
    assert (f"{f.topic}-{f.partition}", f.severity, f.producer_id) == (folder, "critical", gone["producer_id"])
    assert f.evidence["between"][0] < gone["base_offset"] < f.evidence["between"][1]


def led_by(root: Path, broker: int) -> str:
    """A partition of the topic that a broker led from its beginning on, by the metadata."""
    (cluster,) = opened(root).clusters.values()
    return next(f"trio.log-{p}" for p in range(3) if cluster.led("trio.log", p, 0) == broker)
