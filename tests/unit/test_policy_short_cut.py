"""What the policies' replay takes in without asking what a broker would answer leaves what asking leaves."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from auditor.connectors.codec.batch import rows_of
from auditor.connectors.codec.batch_columns import FLAW_CRC
from auditor.model import policies as model
from auditor.model import producers
from auditor.replay import policy_kernel as pol
from auditor.replay import policy_replay
from auditor.replay.bounds import CopyBounds
from auditor.replay.copy_task import FAR, PolicySettings
from auditor.replay.policy_replay import PolicyReplay
from tests.made import batches, data, marker
from tests.unit.batch_histories import LAST, History, history

NOW, HOUR = 1_700_000_000_000, 3_600_000
SETTINGS = (  # expiry, how often brokers look, retention by time and by size
    (24 * HOUR, 600_000, 168 * HOUR, -1), (HOUR, 600_000, HOUR, -1), (2000, 1000, -1, 900), (24 * HOUR, 0, -1, -1),
)  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {  # bounds of copies that are no plain topic's, and what else its replay is given
    "sequences mean nothing": {"sequences": False},
    "an internal topic": {"sequences": False, "broker_times": True},
    "__cluster_metadata": {"sequences": False, "broker_times": True, "kraft": True},
    "times are a broker's": {"broker_times": True},
    "cleaned up to offset 8": {"intact_from": 8},
    "cleaned as a whole": {"intact_from": FAR},
    "the start is in segment 1": {"start_segment": 1},
    "the start is not known": {"start_known": False},
    "a clock that is not believed": {"newest_time": NOW + 5000},
}


class Counted:
    """Counts what goes the short way, or, where not ``allowed``, has nothing go there."""

    def __init__(self, allowed: bool) -> None:
        self.allowed = allowed
        self.counts: Counter[str] = Counter()

    def __call__(self, h: Any, rows: np.ndarray, start: int, stop: int, steps: np.ndarray) -> None:
        """In place of :func:`auditor.replay.producer_history.take_steps`."""
        TAKE_STEPS(h, rows, start, stop, steps)
        mine = steps[: stop - start]
        self.counts += Counter(
            {"follows": int((mine["follows"] >= 5).sum()), "others": int((mine["follows"] < 5).sum())}
        )
        if not self.allowed:
            mine["follows"] = 0


TAKE_STEPS = policy_replay.past.take_steps


def compared(
    made: History, monkeypatch: pytest.MonkeyPatch, settings: tuple[int, ...] = SETTINGS[0], of: str = ""
) -> Counter[str]:
    """Replays a history both ways, comparing all that is known after each chunk; how many batches could go which.

    ``of``: which of :data:`KINDS` the copy is, plain where it is none.
    """
    counted, seen = {short: Counted(short) for short in (True, False)}, {}
    for short, steps in counted.items():
        monkeypatch.setattr(policy_replay.past, "take_steps", steps)
        seen[short] = list(_states(made, settings, **KINDS.get(of, {})))
    assert seen[True] == seen[False]
    return counted[True].counts


def _states(
    made: History, settings: tuple[int, ...], start_known: bool = True, newest_time: int = FAR, **others: Any
) -> Any:
    bounds = CopyBounds(made.log_start, -1, 0, True, False, False, settings[0])._replace(**others)
    policies = [PolicySettings(name, policy, *settings) for name, policy in model.POLICIES.items()]
    replay = PolicyReplay(
        policies, bounds, made.snapshots, made.rows[0]["base_offset"], start_known=start_known, newest_time=newest_time
    )
    for number in range(0, len(made.rows), 40):  # segments
        rows = made.rows[number : number + 40]
        replay.begin_segment(number // 40, rows[0]["base_offset"], -1)
        for at in range(0, len(rows), 13):
            replay.take(rows_of(batches(*rows[at : at + 13])))
            yield [state(world) for world in replay.worlds.values()]
        replay.end_segment(rows[-1]["last_offset"] + 1)
    out = replay.finish()
    yield [(name, o.verdicts.tolist(), o.bytes_peak, o.bytes_end, o.forgotten) for name, o in out.by_policy.items()]


def state(w: pol.World) -> Any:
    """All that is known under a policy, but for memory that is not in use."""
    used, p, totals = int(w.producers.meta[0]), w.producers, w.totals[0]
    rings = [
        [p.rings[producers.cached_slot(p, row, age), row].tolist() for age in range(p.cached[row])]
        for row in range(used)
    ]
    names = [name for name in p.entries.dtype.names or () if name != "timestamp"]
    timestamps = [int(p.timestamp[row]) for row in range(used) if p.cached[row]]
    return (
        totals.tolist(), p.entries[:used][names].tolist(), timestamps, rings, w.verdict_of[:used].tolist(),
        w.verdicts[: totals["verdicts"]].tolist(),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(24))
def test_random_histories_come_to_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = history(seed, 400, 1 + seed % 6, (0, 0.01, 0.08)[seed % 3], transactional=0.5 * (seed % 2))
    compared(made, monkeypatch, SETTINGS[seed % len(SETTINGS)])


def test_enough_go_either_way_to_mean_something(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = Counter[str]()
    for seed in range(6):
        counts += compared(history(seed, 300, 2, 0.02, transactional=0), monkeypatch, SETTINGS[seed % len(SETTINGS)])
    assert min(counts["follows"], counts["others"]) > 300


def plain(first: int = 0, count: int = 12, sequence: int | None = None, **given: Any) -> list[dict[str, Any]]:
    """Batches of one record, one a second, from an offset on."""
    start = first if sequence is None else sequence
    return [data(first + n, (start + n) % (LAST + 1), 1, max_timestamp=NOW + 1000 * (first + n), **given)
            for n in range(count)]  # fmt: skip


BETWEEN = {
    "a gap": [data(12, 40, max_timestamp=NOW + 12_000)],
    "one that is there": [data(12, 9, max_timestamp=NOW + 12_000)],
    "an older sequence": [data(12, 2, max_timestamp=NOW + 12_000)],
    "a new epoch": [data(12, 0, producer_epoch=1, max_timestamp=NOW + 12_000)],
    "a marker of its epoch": [marker(12, 0) | {"max_timestamp": NOW + 12_000}],
    "a marker of a new epoch": [marker(12, 1) | {"max_timestamp": NOW + 12_000}],
    "a marker of an old coordinator": [marker(12, 0, coordinator_epoch=7), marker(13, 0, coordinator_epoch=6)],
    "a transaction": [data(12, 12, max_timestamp=NOW + 12_000, transactional=True)],
    "somebody else, a day later": [data(12, 0, pid=9, max_timestamp=NOW + 30 * HOUR)],
    "bytes that are broken": [data(12, 12, max_timestamp=NOW + 12_000, flaws=FLAW_CRC)],
}  # fmt: skip


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("between", BETWEEN)
def test_what_follows_something_odd_comes_to_the_same(
    between: str, settings: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = BETWEEN[between]
    for log_start in (0, 6, 20):
        for sequence in (12, 13, 41, 0, LAST - 3):
            for epoch in (0, 1):
                after = plain(14, 14, sequence, producer_epoch=epoch)
                made = History([*plain(), *odd, *after], log_start=log_start)
                assert compared(made, monkeypatch, settings)["follows"] > 7


@pytest.mark.parametrize("of", KINDS)
def test_other_copies_than_a_plain_topics_come_to_the_same(of: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = Counter[str]()
    for seed in range(9):
        made = history(seed, 200, 1 + seed % 3, (0.01, 0.08)[seed % 2], transactional=0.5 * (seed % 2))
        counts += compared(made, monkeypatch, SETTINGS[seed % len(SETTINGS)], of)
    for odd in BETWEEN.values():
        for settings in SETTINGS:
            made = History([*plain(), *odd, *plain(14, 14, 13, producer_epoch=1)])
            counts += compared(made, monkeypatch, settings, of)
    assert min(counts["follows"], counts["others"]) > 300


def test_a_batch_is_no_duplicate_of_one_remembered_because_another_precedes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """5 is stored, then 3, 4 and 5: the last one follows 4, and is still remembered from before."""
    made = History([*plain(0, 6), *plain(6, 3, sequence=3), *plain(9, 9, sequence=6)])
    compared(made, monkeypatch)
    monkeypatch.undo()
    *_, last = _states(made, SETTINGS[0])
    errors = {name: [row[0] for row in verdicts] for name, verdicts, *_ in last}
    assert errors["kip-360"] == [model.DUPLICATE]  # 3, 4 and 5, one run
