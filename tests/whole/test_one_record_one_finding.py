"""One record gives one finding at most above warning: what follows from another one is in its evidence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from auditor.rules.seen.view import Finding
from tests.forge import Forged, Lab

HEALTHY = {"4.1": ("healthy-41", "shop.orders-0"), "2.8": ("healthy-28", "web.orders-0")}
TRIO = ("replicas-41", "trio.log-1")
Reported = tuple[str, str, set[str]]


def reported(found: list[Finding]) -> list[Reported]:
    """Rule, severity, and what it explains."""
    return [
        (f.kind, f.severity, {a["rule"] for a in f.evidence.get("also", ())})
        for f in found
        if f.severity in ("critical", "error")
    ]


def forged(
    root: Path, source: tuple[str, str], harm: Callable[[Forged], object], broker: int | None = None
) -> list[Reported]:
    lab = Lab(root, *source, brokers=(1,) if broker is None else (1, 2, 3))
    log = lab.log(source[1], broker or 1)
    harm(log)
    log.save()
    return reported(lab.findings())


def late(log: Forged, **header: int) -> None:
    """Data behind the last marker of its producer, whose fields go on but for ``header``."""
    last = [b for b in log.data() if b.transactional][-1]
    log.next(last, **({"sequence": last["sequence"] + last["count"]} | header))


def without(log: Forged, number: float) -> None:
    """The log without the batch at a part of its length."""
    data = log.data()
    log.drop(data[int(len(data) * number)])


@pytest.mark.parametrize("name", HEALTHY)
def test_the_producers_steps_over_a_lost_batch_are_the_holes(tmp_path: Path, name: str) -> None:
    (f,) = forged(tmp_path, HEALTHY[name], lambda log: without(log, 0.5))
    assert f[0] == "offset-hole"
    assert f[2] & {"committed-transaction-hole", "first-batch-after-bump-nonzero", "sequence-gap"}


@pytest.mark.parametrize("broker", [1, 2])
def test_what_another_replica_has_is_no_hole_of_its_own(tmp_path: Path, broker: int) -> None:
    (f,) = forged(tmp_path, TRIO, lambda log: without(log, 0.5), broker)
    assert f[:2] == ("replica-missing-range", "critical")
    assert "offset-hole" in f[2]


@pytest.mark.parametrize("broker", [1, 2])
def test_a_lost_end_is_one_finding(tmp_path: Path, broker: int) -> None:
    (f,) = forged(tmp_path, TRIO, lambda log: log.drop(*log.all()[-3:]), broker)
    assert f == ("replica-missing-range", "critical", {"checkpoint-beyond-log-end"})


@pytest.mark.parametrize("broker", [1, 2])
@pytest.mark.parametrize("harm", [{"sequence": 1_000}, {"epoch": -1}, {"count": 99}])
def test_a_batch_that_differs_is_one_finding_on_whichever_replica(
    tmp_path: Path, broker: int, harm: dict[str, int]
) -> None:  # fmt: skip
    def differ(log: Forged) -> None:
        data = [b for b in log.data() if b["producer_id"] >= 0]
        data[len(data) // 2].set(**harm)

    assert {f[:2] for f in forged(tmp_path, TRIO, differ, broker)} == {("replica-divergence", "critical")}


@pytest.mark.parametrize("broker", [1, 2])
def test_a_leader_epoch_that_its_neighbours_deny_is_that_finding_alone(tmp_path: Path, broker: int) -> None:
    """No checksum covers it: it is damaged, and no other lineage."""

    def differ(log: Forged) -> None:
        data = [b for b in log.data() if b["producer_id"] >= 0]
        data[len(data) // 2].set(leader_epoch=9)

    assert {f[:2] for f in forged(tmp_path, TRIO, differ, broker)} == {("leader-epoch-mismatch", "error")}


@pytest.mark.parametrize("name", HEALTHY)
@pytest.mark.parametrize(("header", "also"), [
    ({"epoch": 3_000, "sequence": 9}, {"data-epoch-ahead-of-coordinator", "first-batch-after-bump-nonzero"}),
    ({"producer_id": 999_999, "sequence": 0}, {"producer-id-not-allocated"})])  # fmt: skip
def test_what_hangs_is_said_once(tmp_path: Path, name: str, header: dict[str, int], also: set[str]) -> None:
    (f,) = forged(tmp_path, HEALTHY[name], lambda log: late(log, **header))
    assert f[:2] == ("hanging-transaction", "critical")
    assert f[2] >= (also if name == "4.1" else also - {"producer-id-not-allocated"})  # ZooKeeper's ids are not in it


@pytest.mark.parametrize("name", HEALTHY)
def test_a_lost_marker_merges_no_transactions(tmp_path: Path, name: str) -> None:
    """The next marker of the producer closes both: the one that is missing is what is wrong."""

    def lose(log: Forged) -> None:
        markers = log.markers()
        log.drop(markers[len(markers) // 2])

    rules = [f[0] for f in forged(tmp_path, HEALTHY[name], lose)]
    assert "missing-marker" in rules
    assert "transactions-merged-under-one-marker" not in rules
