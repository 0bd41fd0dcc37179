"""What outlives appends: expiration, log start, truncation, snapshots, recovery. Pages: docs/model."""

from __future__ import annotations

import pytest

from auditor.model import producers as kernel
from auditor.model.policies import policy
from tests.reference.appends import CLIENT, COORDINATOR, Item, Plain
from tests.reference.partition import Partition
from tests.reference.producer_state import ProducerState, Settings
from tests.reference.refusal import Refused
from tests.reference.snapshots import SnapshotEntry, Snapshots
from tests.reference.transactions import Completed
from tests.unit.test_model_partition import data, marker, partition, plain_data, stored

NOW = 5000
SHORT = Settings(producer_id_expiration_ms=100, max_transaction_timeout_ms=1000)


def known(state: ProducerState) -> list[int]:
    return sorted(state.producers.producer_id[: state.producers.meta[0]].tolist())


# --- time ---


def test_idle_producers_expire_and_open_transactions_never() -> None:
    log = partition(settings=SHORT)
    log.append_to_log([plain_data(1, 0), data(2, 1)], CLIENT)  # at 1000 and 1001
    log.expire(1099)
    assert known(log) == [1, 2]
    log.expire(1100)
    assert known(log) == [2]
    log.expire(9_999_999)
    assert known(log) == [2]
    log.append_to_log([plain_data(1, 2, 44)], CLIENT)  # unknown again: any sequence


@pytest.mark.parametrize(("name", "left"), [("pre-kip-360", []), ("kip-360", [1])])
def test_a_marker_alone_keeps_its_producer_since_2_5(name: str, left: list[int]) -> None:
    log = partition(name, SHORT)
    log.append_to_log([marker(1, 0)], COORDINATOR)  # at 1000
    log.expire(1099)
    assert known(log) == left


def test_a_transaction_is_late_after_the_longest_time_out_and_five_minutes_of_silence() -> None:
    log = partition(settings=SHORT)
    assert not log.has_late_transaction(10**12)
    log.append_to_log([data(1, 0), data(2, 1)], CLIENT)  # at 1000 and 1001
    assert not log.has_late_transaction(302_000)
    assert log.has_late_transaction(302_001)
    log.append_to_log([data(1, 2, 1)], CLIENT)  # the oldest writes again, at 1002; the second is not looked at
    assert not log.has_late_transaction(302_002)
    assert log.has_late_transaction(302_003)


def test_a_transaction_without_a_time_is_never_late() -> None:
    log = partition(settings=SHORT)
    log.append_to_log([data(1, 0)._replace(max_timestamp=0)], CLIENT)
    assert not log.has_late_transaction(10**12)
    log.append_to_log([data(1, 1, 1)._replace(max_timestamp=1)], CLIENT)
    assert log.has_late_transaction(10**12)


# --- log start ---


def trimmed(name: str) -> Partition:
    """Producer 1 has an open transaction [0, 4], 2 one batch at 5, 3 only a marker, at 6; the start moves to 5."""
    log = partition(name)
    log.append_to_log([data(1, 0, count=5), plain_data(2, 5)], CLIENT)
    log.take_snapshot()
    log.append_to_log([marker(3, 6)], COORDINATOR)
    log.take_snapshot()
    log.advance_high_watermark(7)
    log.increment_log_start(5)
    return log


@pytest.mark.parametrize(
    ("name", "producers", "unstable"),
    [("pre-kip-360", [2], None), ("kip-360-text", [1, 2, 3], 5), ("kip-360", [1, 2, 3], 5)],
)
def test_who_survives_the_log_start(name: str, producers: list[int], unstable: int | None) -> None:
    log = trimmed(name)
    assert known(log) == producers
    assert log.first_unstable() == unstable
    assert log.last_stable_offset() == (7 if unstable is None else 5)


@pytest.mark.parametrize(("name", "left"), [("pre-kip-360", [7]), ("kip-360-text", [7]), ("kip-360", [6, 7])])
def test_snapshots_below_the_log_start_went_up_to_2_4(name: str, left: list[int]) -> None:
    log = trimmed(name)
    log.increment_log_start(7)
    assert sorted(log.snapshots.files) == left


def test_the_log_start_stays_within_the_log() -> None:
    log = partition()
    log.append_to_log([Plain(0, 9)], CLIENT)
    log.advance_high_watermark(5)
    with pytest.raises(Refused, match="OFFSET_OUT_OF_RANGE"):
        log.increment_log_start(6)
    log.increment_log_start(5)
    log.increment_log_start(4)
    assert log.log_start == 5
    log.advance_high_watermark(3)
    assert log.high_watermark == 5


def test_a_log_start_that_does_not_move_changes_nothing() -> None:
    log = partition()
    log.append_to_log([Plain(0, 9)], CLIENT)
    assert log.take_snapshot() == 10
    log.snapshots.files.clear()
    log.increment_log_start(0)
    assert log.take_snapshot() is None


def test_decided_transactions_below_the_log_start_hold_nothing_back() -> None:
    state = ProducerState(policy("kip-360"))
    state.append([data(1, 0), marker(1, 1), data(2, 2), marker(2, 3)], "replication")
    state.increment_log_start(1)
    assert state.first_unstable() == 0
    state.increment_log_start(2)
    assert state.first_unstable() == 2


def test_the_map_ends_at_the_log_start_or_later() -> None:
    state = ProducerState(policy("kip-360"))
    state.append([plain_data(1, 0)], CLIENT)
    state.increment_log_start(10)
    assert (state.map_end, state.take_snapshot()) == (10, None)
    state.append([plain_data(1, 10, 1)], CLIENT)
    state.increment_log_start(5)
    assert state.map_end == 11


# --- snapshots ---


def test_a_snapshot_is_taken_only_when_something_was_applied() -> None:
    log = partition(end=7)
    assert log.take_snapshot() is None
    log.append_to_log([plain_data(1, 7)], CLIENT)
    assert [log.take_snapshot(), log.take_snapshot()] == [8, None]


def test_a_snapshot_holds_the_newest_batch_and_the_open_transaction() -> None:
    log = partition()
    log.append_to_log([plain_data(1, 0), plain_data(1, 1, 1)], CLIENT)
    log.append_to_log([data(1, 2, 2, count=3), marker(2, 5, epoch=4, coordinator_epoch=6)], CLIENT)
    log.take_snapshot()
    assert log.snapshots.files == {
        6: [SnapshotEntry(1, 0, 4, 4, 2, 1002, -1, 2), SnapshotEntry(2, 4, -1, -1, 0, 1005, 6, -1)]
    }


def test_reloading_keeps_one_batch_and_opens_transactions_again() -> None:
    log = partition()
    log.append_to_log([plain_data(1, 0), plain_data(1, 1, 1)], CLIENT)
    log.append_to_log([data(2, 2), data(3, 3), marker(3, 4), marker(4, 5, epoch=8, coordinator_epoch=3)], "replication")
    log.take_snapshot()
    log.restart()
    assert known(log) == []
    log.truncate_and_reload(0, 6, NOW)
    assert known(log) == [1, 2, 3, 4]
    assert [stored(log, pid) for pid in (1, 2, 3, 4)] == [(0, 1, -1), (0, 0, 2), (0, 0, -1), (8, -1, -1)]
    p = log.producers
    assert [int(p.cached[kernel.find(p, pid)]) for pid in (1, 2, 3, 4)] == [1, 1, 1, 0]
    assert p.coordinator_epoch[kernel.find(p, 4)] == 3
    assert p.last_timestamp[kernel.find(p, 4)] == 1005
    assert (log.transactions.ongoing, log.transactions.decided) == ({2: 2}, {})
    assert log.append_to_log([plain_data(1, 6, 1)], CLIENT) == (1, 1)  # a duplicate still
    with pytest.raises(Refused, match="OUT_OF_ORDER"):
        log.append_to_log([plain_data(1, 6, 0)], CLIENT)  # not any more


def test_a_batch_at_offset_zero_survives_a_snapshot() -> None:
    log = partition()
    log.append_to_log([data(1, 0)], CLIENT)
    log.take_snapshot()
    log.truncate_and_reload(0, 5, NOW)
    assert stored(log, 1) == (0, 0, 0)
    assert log.transactions.ongoing == {0: 1}


def test_entries_known_from_markers_had_a_batch_of_sequence_minus_one_up_to_2_3() -> None:
    entry = SnapshotEntry(1, 4, -1, -1, 0, 1005, 6, -1)
    cached = {}
    for name in ("pre-kip-360", "kip-360"):
        state = ProducerState(policy(name))
        state.load(entry)
        cached[name] = int(state.producers.cached[0])
    assert cached == {"pre-kip-360": 1, "kip-360": 0}


def test_expired_entries_are_not_loaded() -> None:
    log = partition(settings=SHORT)
    log.append_to_log([plain_data(1, 0), data(2, 1), plain_data(3, 2)], CLIENT)  # at 1000, 1001, 1002
    log.take_snapshot()
    log.truncate_and_reload(0, 5, 1101)
    assert known(log) == [2, 3]


def test_entries_below_the_log_start_were_not_loaded_up_to_2_3() -> None:
    survivors = {}
    for name in ("pre-kip-360", "kip-360"):
        log = partition(name)
        log.append_to_log([data(1, 0), data(2, 1), marker(3, 2)], CLIENT)
        log.take_snapshot()
        log.truncate_and_reload(1, 5, NOW)
        survivors[name] = (known(log), log.transactions.ongoing)
    assert survivors == {"pre-kip-360": ([2], {1: 2}), "kip-360": ([1, 2, 3], {0: 1, 1: 2})}


def test_damaged_snapshots_are_deleted_and_the_next_older_one_is_loaded() -> None:
    log = partition()
    for number in range(3):
        log.append_to_log([plain_data(1, number, number)], CLIENT)
        log.take_snapshot()
    log.snapshots.files[3] = None
    log.truncate_and_reload(0, 9, NOW)
    assert sorted(log.snapshots.files) == [1, 2]
    assert (stored(log, 1), log.map_end) == ((0, 1, -1), 2)
    log.snapshots.files.clear()
    log.truncate_and_reload(0, 9, NOW)
    assert (known(log), log.map_end) == ([], 0)


def test_truncation_keeps_the_snapshots_inside_the_log() -> None:
    log = partition()
    log.snapshots.files = {offset: [] for offset in (2, 3, 5, 6)}
    log.truncate_and_reload(2, 5, NOW)
    assert sorted(log.snapshots.files) == [3, 5]
    assert (log.log_start, log.log_end, log.map_end, log.take_snapshot()) == (2, 5, 5, None)


def test_truncation_to_where_the_map_is_only_moves_the_log_start() -> None:
    log = partition("pre-kip-360")
    log.append_to_log([plain_data(1, 0), plain_data(2, 1)], CLIENT)
    log.truncate_and_reload(1, 2, NOW)
    assert (known(log), log.log_start, log.map_end) == ([2], 1, 2)


def test_truncation_takes_the_high_watermark_along() -> None:
    log = partition()
    log.append_to_log([Plain(0, 9)], CLIENT)
    log.advance_high_watermark(10)
    log.truncate_and_reload(0, 6, NOW)
    assert log.high_watermark == 6


def test_full_truncation_leaves_nothing() -> None:
    log = partition()
    log.append_to_log([data(1, 0), marker(1, 1), data(1, 2, 1)], CLIENT)
    log.take_snapshot()
    log.truncate_fully(20)
    assert (known(log), log.snapshots.files, log.first_unstable()) == ([], {}, None)
    assert (log.log_start, log.log_end, log.high_watermark, log.map_end) == (20, 20, 20, 20)
    assert log.take_snapshot() is None
    log.truncate_fully(30, log_start=25)
    assert (log.log_start, log.log_end) == (25, 30)


@pytest.mark.parametrize(
    ("segments", "left"),
    [([5], [5, 42]), ([42], [42]), ([41], [42]), ([43], []), ([5, 43], [5]), ([], [42]), ([2, 5, 42], [2, 5, 42])],
)
def test_stray_snapshots(segments: list[int], left: list[int]) -> None:
    snapshots = Snapshots()
    snapshots.files = dict.fromkeys((5, 2, 42))
    snapshots.remove_stray(segments)
    assert sorted(snapshots.files) == left


def test_deleting_snapshots_before_an_offset_keeps_that_one() -> None:
    snapshots = Snapshots()
    snapshots.files = dict.fromkeys((2, 3, 4))
    snapshots.delete_before(3)
    assert sorted(snapshots.files) == [3, 4]


# --- recovery ---

LOG: list[Item] = [
    data(1, 0),
    marker(1, 1, aborted=True),
    plain_data(2, 2),
    data(1, 3, 1),
    marker(1, 4, aborted=True),
    Plain(5, 5),
    plain_data(2, 6, 1),
]
FIRST, SECOND = Completed(1, 0, 1, True, 2), Completed(1, 3, 4, True, 5)


def written() -> Partition:
    log = partition()
    for item in LOG[:3]:
        log.append_to_log([item], "replication")
    log.take_snapshot()
    for item in LOG[3:]:
        log.append_to_log([item], "replication")
    return log


def test_recovery_replays_from_the_snapshot_and_ends_with_one() -> None:
    log = written()
    log.restart()
    log.rebuild(LOG, 0, 7, NOW)
    assert (stored(log, 1), stored(log, 2), log.map_end) == ((0, 1, -1), (0, 1, -1), 7)
    assert log.producers.cached[kernel.find(log.producers, 1)] == 2  # one of the snapshot, one replayed
    assert sorted(log.snapshots.files) == [3, 7]


@pytest.mark.parametrize("recover_index", [False, True])
def test_truncating_below_a_marker_opens_its_transaction_again(recover_index: bool) -> None:
    log = written()
    assert log.aborted == [FIRST, SECOND]
    log.rebuild(LOG, 0, 4, NOW, recover_index)
    assert (log.first_unstable(), log.transactions.first_undecided(), log.map_end) == (3, 3, 4)
    assert stored(log, 2) == (0, 0, -1)
    assert log.aborted == ([FIRST] if recover_index else [FIRST, SECOND])


def test_recovery_writes_the_index_anew_from_the_snapshot_on() -> None:
    log = written()
    log.aborted = [FIRST]
    log.restart()
    log.rebuild(LOG, 0, 7, NOW, recover_index=True)
    assert log.aborted == [FIRST, SECOND]


def test_recovery_without_any_snapshot_replays_what_is_retained() -> None:
    log = written()
    log.restart()
    log.snapshots.files.clear()
    log.rebuild(LOG[3:], 3, 7, NOW)
    assert (stored(log, 1), stored(log, 2)) == ((0, 1, -1), (0, 1, -1))
    assert (log.log_start, log.log_end) == (3, 7)


def test_recovery_does_not_index_a_marker_right_at_the_snapshot_twice() -> None:
    log = partition()
    log.append_to_log(LOG[:4], "replication")
    assert log.take_snapshot() == 4
    log.append_to_log(LOG[4:], "replication")
    log.rebuild(LOG, 0, 6, NOW, recover_index=True)
    assert log.aborted == [FIRST, SECOND]
