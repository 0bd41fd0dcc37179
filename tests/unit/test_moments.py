"""Until when each file of a copy has all that was written, and what a finding says that rests on more than that."""

from __future__ import annotations

import pytest
from auditor.pipeline.moments import ReadLog, checkpoint_passes, complete_until, copying_ms

from auditor.connectors.codec.cluster_metadata import ClusterMetadata, PartitionState
from auditor.facts.coordinator_history import StateRecord, build_history
from auditor.pipeline.cluster_context import brief, build
from auditor.pipeline.cluster_settings import ClusterSettings
from auditor.rules.resolution.resolve import resolve
from auditor.rules.seen.cluster_view import TRANSACTION_STATE, Cluster, Election, LeaderBounds, ReadTimes
from auditor.rules.seen.view import Finding, LogView
from tests import made

NOW, S, MIN = 10_000_000, 1_000, 60_000


@pytest.mark.parametrize(
    ("size", "wanted"),
    [(0, 30 * S), (2_000_000_000, 130 * S), (17_400_000_000, 900 * S), (1 << 50, 900 * S)],
)
def test_copying_takes_half_a_minute_and_as_long_as_20_mb_a_second_but_no_quarter_of_an_hour(
    size: int, wanted: int
) -> None:
    assert copying_ms(size) == wanted


def log(name: str, newest: int, folder: str = "broker-1", *, text: bool = False) -> ReadLog:
    topic, _, partition = name.rpartition("-")
    return ReadLog(folder, topic, int(partition), newest, text)


def moments(*logs: ReadLog, cluster: Cluster | None = None) -> dict[str, int]:
    return complete_until(list(logs), cluster or Cluster(NOW, NOW), 30 * S)


def test_each_directory_goes_by_its_own_newest_time() -> None:
    found = moments(log("t-0", NOW), log("u-0", NOW - MIN), log("t-0", NOW - 10 * MIN, "broker-2"), log("v-0", -1, "e"))
    assert found == {"broker-1": NOW - 30 * S, "broker-2": NOW - 10 * MIN - 30 * S}


def test_a_metadata_log_that_ends_earlier_was_copied_then() -> None:
    """A controller writes twice a second; a second is allowed for."""
    assert moments(log("t-0", NOW), log("__cluster_metadata-0", NOW - MIN)) == {"broker-1": NOW - MIN - S}
    assert moments(log("t-0", NOW), log("__cluster_metadata-0", NOW)) == {"broker-1": NOW - 30 * S}


def test_texts_are_made_by_hand_one_after_another() -> None:
    assert moments(log("t-0", NOW, text=True)) == {"broker-1": NOW - 15 * MIN}


def entry(state: str, time: int, epoch: int = 0) -> StateRecord:
    names = frozenset({"t-0"})
    return StateRecord(0, 1, time, 0, "app", state, 7, epoch, MIN, names, False, time, time, 0, "f", 0, 1)


@pytest.mark.parametrize(
    ("epoch", "time", "lacks"),
    [
        (0, NOW - MIN, True),  # half a minute behind the record that has it open
        (0, NOW - 5 * MIN + 20 * S, False),  # it may be the one before, by two clocks
        (1, NOW - 5 * MIN, True),  # of an epoch that was given out later
    ],
)
def test_a_marker_shows_that_the_coordinators_log_was_copied_before_its_decision(
    epoch: int, time: int, lacks: bool
) -> None:
    cluster = Cluster(NOW, NOW, coordinator=build_history(1, [entry("Ongoing", NOW - 5 * MIN)]))
    cluster.ended[7] = [(1, epoch, time, -1)]
    found = moments(log("t-0", NOW), log(f"{TRANSACTION_STATE}-0", NOW - 4 * MIN), cluster=cluster)
    assert found == {"broker-1": NOW - 4 * MIN - S if lacks else NOW - 30 * S}


def lacks(needed_by: int, *, moment: int, copied: int = -1, **given: bool) -> bool:
    whole = given.pop("whole", False)
    bounds = {("t", 0): LeaderBounds(0, 9, 9, copied, whole, None, 1, moment=moment)}
    return Cluster(NOW, NOW, bounds=bounds, **given).lacks("t", 0, needed_by, other_clock=False)  # type: ignore[arg-type]


def test_what_a_log_must_have() -> None:
    assert lacks(NOW, moment=NOW)
    assert not lacks(NOW - 1, moment=NOW)
    assert not lacks(NOW - 1, moment=-1, copied=NOW)  # it has something newer itself, however long copying took
    assert not lacks(NOW + MIN, moment=-1, whole=True)
    assert not lacks(NOW + MIN, moment=-1, at_once=True)
    assert Cluster(NOW, NOW, at_once=True).lacks("t", 0, -1, other_clock=False)  # it is not in the input at all
    two_clocks = Cluster(NOW, NOW, bounds={("t", 0): LeaderBounds(0, 9, 9, NOW, False, None, 1)})
    assert two_clocks.lacks("t", 0, NOW - 30 * S, other_clock=True)
    assert not two_clocks.lacks("t", 0, NOW - 30 * S - 1, other_clock=True)


def test_a_finding_in_doubt_is_an_info_that_says_what_it_would_be() -> None:
    view = LogView([made.facts(log_end=9)], Cluster(NOW, NOW))
    f = view.finding("critical", "m", doubt=True, evidence={"confidence": "proved"})
    assert (f.severity, f.if_true) == ("info", "critical")
    assert (f.evidence["confidence"], f.evidence["in_flight"]) == ("undecidable", True)
    f = view.finding("critical", "m", doubt=False)
    assert (f.severity, f.if_true, f.evidence["confidence"]) == ("critical", None, "proved")
    assert "in_flight" not in f.evidence


HELD = {"topic": "t", "partition": 0, "producer_id": 7, "offset": 5}


@pytest.mark.parametrize(
    ("head", "explained", "wanted"),
    [
        (("info", "critical"), ("critical", None), ("critical", None)),  # proved beside a doubt: it counts
        (("info", "critical"), ("error", None), ("error", "critical")),
        (("info", "critical"), ("info", "error"), ("info", "critical")),  # both in doubt
        (("critical", None), ("info", "error"), ("critical", None)),
        (("error", None), ("info", "critical"), ("error", "critical")),
    ],
)
def test_doubt_lowers_first_and_the_head_is_as_grave_as_what_it_explains(
    head: tuple[str, str | None], explained: tuple[str, str | None], wanted: tuple[str, str | None]
) -> None:
    def evidence(said: tuple[str, str | None]) -> dict[str, object]:
        return {"in_flight": True} if said[1] and said[0] == "info" else {}

    cause = Finding("hanging-transaction", head[0], if_true=head[1], evidence=evidence(head), **HELD)  # type: ignore[arg-type]
    other = Finding("late-write-after-marker", explained[0], if_true=explained[1], evidence=evidence(explained), **HELD)  # type: ignore[arg-type]
    (f,) = resolve([cause, other])
    assert (f.kind, f.severity, f.if_true) == ("hanging-transaction", *wanted)
    assert [also["severity"] for also in f.evidence["also"]] == [explained[0]]


def led(name: str, newest: int, end: int, checkpoint: int | None, epoch_start: int = 0) -> ReadLog:
    topic, _, partition = name.rpartition("-")
    return ReadLog("broker-1", topic, int(partition), newest, False, 1, end, checkpoint, 3, epoch_start)


def passed(*logs: ReadLog) -> dict[tuple[str, int], tuple[str, int]]:
    return checkpoint_passes(list(logs), Cluster(NOW, NOW, leaders={(log.topic, log.partition): 1 for log in logs}))


def test_a_checkpoint_is_one_moment_of_all_the_logs_of_its_directory() -> None:
    """A pass is no older than the newest marker below an entry; a second is left for reading all of them."""
    logs = led("t-0", NOW - MIN, 10, 10), led("u-0", NOW, 20, 20)
    assert passed(*logs) == dict.fromkeys([("t", 0), ("u", 0)], ("broker-1", NOW - S))


@pytest.mark.parametrize(
    ("end", "checkpoint", "leader", "epoch_start", "there"),
    [
        (10, 10, 1, 0, True),
        (12, 10, 1, 0, True),  # what came behind the entry is there too
        (9, 10, 1, 0, False),  # the copy ends before what the checkpoint promises
        (10, None, 1, 0, False),
        (10, 10, 2, 0, False),  # a follower: its watermark comes a fetch late
        (10, 10, -1, 0, False),
        (10, 10, None, 0, True),  # nobody tells, as with ZooKeeper
        (10, 10, 1, 10, True),
        (12, 10, 1, 11, False),  # a new leader's watermark, as it was when it followed
    ],
)
def test_what_a_log_needs_to_be_known_by_its_checkpoint(
    end: int, checkpoint: int | None, leader: int | None, epoch_start: int, there: bool
) -> None:
    beside = led("u-0", NOW, 20, 20)
    cluster = Cluster(NOW, NOW, leaders={("u", 0): 1} | ({} if leader is None else {("t", 0): leader}))
    assert (
        ("t", 0) in checkpoint_passes([led("t-0", NOW - MIN, end, checkpoint, epoch_start), beside], cluster)
    ) == there


def test_a_leader_that_has_stopped_since_is_the_one_of_its_epoch() -> None:
    elected = Election("id", 1, 3, 2, (1,), (1, 2), (), (), recovering=False, reassigned=False, offset=9, time=NOW)
    gone = elected._replace(leader=-1, leader_epoch=4, last_leader=1)
    cluster = Cluster(NOW, NOW, leaders={("t", 0): -1}, elections={("t", 0): [elected, gone]})
    assert ("t", 0) in checkpoint_passes([led("t-0", NOW, 10, 10)], cluster)


def test_times_behind_an_entry_say_nothing_of_when_the_checkpoint_was_written() -> None:
    assert passed(led("t-0", NOW, 12, 10), led("u-0", NOW - MIN, 20, 20))["t", 0] == ("broker-1", NOW - MIN - S)


def test_two_directories_have_two_checkpoints() -> None:
    cluster = Cluster(NOW, NOW)
    cluster.passes = {("t", 0): ("a", NOW), ("u", 0): ("b", NOW), ("v", 0): ("a", NOW)}
    assert cluster.of_one_pass(("t", 0), ("v", 0))
    assert not cluster.of_one_pass(("t", 0), ("u", 0))
    assert not cluster.of_one_pass(("t", 0), ("w", 0))


@pytest.mark.parametrize(("committed", "wanted"), [(True, False), (False, True)])
def test_only_what_had_to_be_committed_is_known_by_a_checkpoint(committed: bool, wanted: bool) -> None:
    """A client's stamp says nothing of when its data was committed."""
    bounds = {("t", 0): LeaderBounds(0, 9, 9, NOW - 9 * MIN, False, None, 1)}
    cluster = Cluster(NOW, NOW, bounds=bounds, passes={("t", 0): ("broker-1", NOW)})
    assert cluster.lacks("t", 0, NOW - S, other_clock=False, committed=committed) == wanted


@pytest.mark.parametrize(
    ("isr", "read", "known"),
    [((1, 2), ReadTimes(NOW, NOW + S, "m"), True), ((2,), ReadTimes(NOW, NOW + S, "m"), False), ((1, 2), None, False)],
)
def test_a_broker_that_ran_on_was_in_sync_when_its_log_was_read(
    isr: tuple[int, ...], read: ReadTimes | None, known: bool
) -> None:
    """Of three brokers that are copied while they run, all but one go on behind their own copy of the metadata. Only
    where nobody says when a log was read may it be of any time before."""
    metadata = ClusterMetadata()
    metadata.partitions["id", 0] = PartitionState("t", 0, "id", (1, 2), isr, 1, 0, 0)
    settings = {"cluster": ClusterSettings(metadata=metadata, went_on=frozenset({1}))}
    read_at = {} if read is None else {("broker-1", "t", 0): read}
    (cluster,) = build([brief(made.facts(broker_time=NOW, log_end=9))], settings, NOW, read_at=read_at).values()
    bounds = cluster.bounds["t", 0]
    assert (bounds.read, bounds.out_of_sync) == ((read, False) if known else (None, True))
