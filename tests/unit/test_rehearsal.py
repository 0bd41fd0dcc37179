"""What a stop does, by Kafka's rules: expected values are those of Kafka's own tests, and arithmetic."""

from __future__ import annotations

import pytest

from auditor.model.leader_election import ElectionState, without
from auditor.model.policies import ReleaseEvidence, shown_by_levels
from auditor.model.rehearsal import (
    KILL,
    MOST,
    STOP,
    ClusterState,
    LogCut,
    OpenWork,
    RehearsedBroker,
    Risk,
    StartForecast,
    rehearse,
    rolling_order,
    waits,
)

P = ("t", 0)
STATE = ("__transaction_state", 0)
V43 = ReleaseEvidence((4, 3), (4, 4))
V39 = ReleaseEvidence((3, 9), (4, 0))


def brokers(*down: int, release: ReleaseEvidence = V39, **racks: str) -> dict[int, RehearsedBroker]:
    return {n: RehearsedBroker(n not in down, racks.get(f"b{n}"), 6_000, release) for n in (1, 2, 3)}


def state(partition: ElectionState, **more: object) -> ClusterState:
    return ClusterState(**{"brokers": brokers(), "partitions": {P: partition}, **more})  # type: ignore[arg-type]


def named(risks: list[Risk]) -> list[str]:
    return [risk.risk for risk in risks if risk.risk != "unknown"]


def one(risks: list[Risk], name: str) -> Risk:
    (found,) = [risk for risk in risks if risk.risk == name]
    return found


@pytest.mark.parametrize(
    ("before", "broker", "alive", "elr", "leader", "isr", "eligible", "lossy"),
    [
        # PartitionChangeBuilderTest.testIsrChangeAndLeaderChange: FOO, target ISR 2, 3
        (ElectionState((2, 1, 3), (2, 1, 3), 1), 1, {1, 2}, False, 2, (2, 3), (), False),
        # testElectLeader: FOO, target ISR 1, 3 keeps leader 1
        (ElectionState((2, 1, 3), (2, 1, 3), 1), 2, {1, 2}, False, 1, (1, 3), (), False),
        # testElectLeader: FOO, only 3 in sync, which is not acceptable
        (ElectionState((2, 1, 3), (1, 3), 1), 1, {1, 2}, False, -1, (3,), (), False),
        # testUncleanLeaderElection: the first acceptable replica, alone in the ISR
        (ElectionState((2, 1, 3), (1, 3), 1, unclean=True), 1, {1, 2}, False, 2, (2,), (), True),
        # testEligibleLeaderReplicas_ElrCanBeElected
        (ElectionState((1, 2, 3, 4), (1,), 1, (3,), (), 3), 1, {2, 3, 4}, True, 3, (3,), (1,), False),
        # testEligibleLeaderReplicas_IsrCanShrinkToZero: without ELR the last member stays
        (ElectionState((1, 2, 3, 4), (1,), 1), 1, {2, 3, 4}, False, -1, (1,), (), False),
        (ElectionState((1, 2, 3, 4), (1,), 1, least=3), 1, {2, 3, 4}, True, -1, (), (1,), False),
    ],
)
def test_elections_of_kafkas_tests(
    before: ElectionState, broker: int, alive: set[int], elr: bool, leader: int, isr: tuple[int, ...],
    eligible: tuple[int, ...], lossy: bool,
) -> None:  # fmt: skip
    after = without(before, broker, alive, elr_enabled=elr)
    assert (after.state.leader, after.state.isr, after.state.elr, after.lossy) == (leader, isr, eligible, lossy)


def test_a_leader_moves_and_writes_go_on() -> None:
    risks = rehearse(state(ElectionState((1, 2, 3), (1, 2, 3), 1, least=2)), 1, STOP)
    move = one(risks, "leader_moves")
    assert named(risks) == ["leader_moves"]
    assert (move.from_leader, move.to_leader, move.isr, move.lasts_ms, move.severity) == (1, 2, (2, 3), 0, "info")
    assert one(rehearse(state(ElectionState((1, 2, 3), (1, 2, 3), 1)), 1, KILL), "leader_moves").lasts_ms == 6_000


def test_a_follower_that_stops_is_no_risk_while_enough_are_in_sync() -> None:
    assert named(rehearse(state(ElectionState((1, 2, 3), (1, 2, 3), 2, least=2)), 1, STOP)) == []
    assert named(rehearse(state(ElectionState((2, 3), (2, 3), 2)), 1, STOP)) == []


def test_min_isr_counts_after_the_broker_has_left() -> None:
    risks = rehearse(state(ElectionState((1, 2, 3), (1, 2), 2, least=2)), 1, STOP)
    assert named(risks) == ["below_min_isr", "one_copy"]
    assert (one(risks, "below_min_isr").isr, one(risks, "below_min_isr").least) == ((2,), 2)
    # Partition.effectiveMinIsr: at most the number of replicas
    assert named(rehearse(state(ElectionState((1, 2), (1, 2), 2, least=3)), 1, STOP)) == ["below_min_isr", "one_copy"]


def test_the_only_replica_in_sync_leaves_no_leader() -> None:
    risks = rehearse(state(ElectionState((1,), (1,), 1)), 1, STOP)
    assert named(risks) == ["offline"]
    assert (one(risks, "offline").to_leader, one(risks, "offline").severity) == (-1, "critical")
    dead = state(ElectionState((1, 2), (1, 2), 1), brokers=brokers(2))
    assert named(rehearse(dead, 1, STOP)) == ["offline"]


def test_what_is_offline_already_is_not_put_down_to_the_stop() -> None:
    risks = rehearse(state(ElectionState((1, 2), (2,), -1), brokers=brokers(2)), 1, STOP)
    assert named(risks) == ["already_offline"]


def test_transactions_hang_where_the_release_skips_markers() -> None:
    partitions = {P: ElectionState((1,), (1,), 1), STATE: ElectionState((2, 3), (2, 3), 2)}
    work = [OpenWork("tx", (P,))]
    risks = rehearse(ClusterState(brokers(release=V43), partitions, work), 1, KILL)
    skipped = [risk for risk in risks if risk.risk == "marker_skipped"]
    assert [(r.transactional_id, r.severity, r.known) for r in skipped] == [
        ("tx", "critical", True),
        (None, "warning", True),
    ]
    assert named(rehearse(ClusterState(brokers(release=V39), partitions, work), 1, KILL)) == [
        "offline",
        "transaction_waits",
    ]
    unknown = rehearse(ClusterState(brokers(release=ReleaseEvidence()), partitions, work), 1, KILL)
    assert [(r.known, r.severity) for r in unknown if r.transactional_id == "tx" and r.risk == "marker_skipped"] == [
        (False, "error")
    ]
    assert "transaction_waits" in named(unknown)


def test_coordinators_move_or_stand_still() -> None:
    work = [OpenWork("tx", (P,))]
    partitions = {P: ElectionState((2, 3), (2, 3), 2), STATE: ElectionState((1, 2), (1, 2), 1)}
    moved = one(rehearse(ClusterState(brokers(), partitions, work), 1, KILL), "coordinator_moves")
    assert (moved.transactional_id, moved.from_leader, moved.to_leader, moved.lasts_ms) == ("tx", 1, 2, 6_000)
    alone = {**partitions, STATE: ElectionState((1,), (1,), 1)}
    still = one(rehearse(ClusterState(brokers(), alone, work), 1, STOP), "coordinator_offline")
    assert (still.transactional_id, still.lasts_ms, still.severity) == ("tx", None, "error")
    refusing = {**partitions, STATE: ElectionState((1, 2), (1, 2), 2, least=2)}
    assert "coordinator_offline" in named(rehearse(ClusterState(brokers(), refusing, work), 1, STOP))
    groups = ClusterState(brokers(), {("__consumer_offsets", 0): ElectionState((1, 2), (1, 2), 1)}, groups=["g"])
    assert one(rehearse(groups, 1, STOP), "coordinator_moves").group_id == "g"


def test_controllers_need_a_majority() -> None:
    def of(*voters: int, lost: tuple[int, ...] = ()) -> list[str]:
        s = ClusterState(brokers(), {}, (), (), voters, lost, controller=1)
        return named(rehearse(s, 1, STOP))

    assert of(1, 2, 3) == ["controller_moves", "quorum_margin"]
    assert of(1, 2, 3, lost=(3,)) == ["quorum_lost"]  # without a majority nobody is elected
    assert of(1) == ["quorum_lost"]
    assert of(4, 5, 6) == ["controller_moves"]


def test_all_copies_in_one_rack() -> None:
    racks = brokers(b1="a", b2="b", b3="b")
    assert named(rehearse(state(ElectionState((2, 1, 3), (1, 2, 3), 2), brokers=racks), 1, STOP)) == ["one_rack"]
    assert named(rehearse(state(ElectionState((2, 1, 3), (1, 2, 3), 2)), 1, STOP)) == []


def test_the_next_start() -> None:
    start = StartForecast(
        fails={STOP: ("a",), KILL: ("a", "b")}, loses=("c",), cuts=(LogCut("t", 0, 9, 4),), bytes=77,
        refused=(((4, 1), "4.1 and newer end at the start: x"),),
    )  # fmt: skip
    s = state(ElectionState((2, 1), (2, 1), 2), starts={1: start})
    assert named(rehearse(s, 1, STOP)) == ["start_fails", "start_loses", "one_copy"]
    killed = rehearse(s, 1, KILL)
    assert named(killed) == ["start_fails", "start_fails", "start_loses", "recovery_cuts", "one_copy", "reads_again"]
    assert (one(killed, "recovery_cuts").severity, one(killed, "reads_again").bytes) == ("warning", 77)
    alone = rehearse(state(ElectionState((1,), (1,), 1), starts={1: start}), 1, KILL)
    assert one(alone, "recovery_cuts").severity == "error"
    assert len([r for r in rehearse(s, 1, STOP, (4, 1)) if r.risk == "start_fails"]) == 2
    assert len([r for r in rehearse(s, 1, STOP, (4, 0)) if r.risk == "start_fails"]) == 1


def test_what_is_not_in_the_input_is_unknown() -> None:
    risks = rehearse(state(ElectionState((2, 3), (2, 3), 2), unknown=("x",)), 1, STOP)
    assert [(r.risk, r.known, r.severity) for r in risks] == [("unknown", False, "info")] * 2
    stopped = rehearse(state(ElectionState((1,), (1,), 1), brokers=brokers(1, 2, 3)), 1, STOP)
    assert named(stopped) == []
    assert any("stopped cluster" in r.says for r in stopped)


def test_rows_of_one_risk_are_bounded() -> None:
    many = ClusterState(brokers(), {("t", n): ElectionState((1,), (1,), 1) for n in range(MOST + 5)})
    risks = rehearse(many, 1, STOP)
    assert len([r for r in risks if r.risk == "offline"]) == MOST + 1
    assert any(r.says.startswith("5 further rows of offline") for r in risks)


def test_the_order_of_restarts_ends_with_the_controller_and_begins_with_what_is_down() -> None:
    partitions = {("t", n): ElectionState((1, 2, 3), (1, 3), 1) for n in range(4)}
    s = ClusterState(brokers(2), partitions, (), (), (1, 2, 3), controller=1)
    assert rolling_order(s) == [2, 3, 1]
    assert any("all its 4 partitions" in step for step in waits(s, 2))
    assert any("controller 2 follows" in step for step in waits(s, 2))


@pytest.mark.parametrize(
    ("in_force", "supported", "least", "below"),
    [
        (0, 21, (0, 11), (3, 10)), (25, 30, (4, 3), (4, 4)), (30, 0, (4, 3), None), (0, 33, (4, 4), (4, 5)),
        (40, 0, (4, 5), None), (0, 0, (0, 11), None),
    ],
)  # fmt: skip
def test_releases_by_levels(
    in_force: int, supported: int, least: tuple[int, int], below: tuple[int, int] | None
) -> None:
    """Levels of MetadataVersion.LATEST_PRODUCTION in the jars of 3.9.1 to 4.4.0."""
    assert shown_by_levels(in_force, supported) == ReleaseEvidence(least, below)
