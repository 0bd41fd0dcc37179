"""What an input shows of a broker's release, and what follows from it."""

from __future__ import annotations

import pytest

from auditor.model import policies
from auditor.model.policies import DAY_MS, WEEK_MS, ReleaseEvidence, shown_by
from auditor.pipeline.cluster_settings import ClusterSettings, timestamp_limit

OLD, NEW = "transactional.id.expiration.ms", "producer.id.expiration.ms"


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [
        ({}, ReleaseEvidence((0, 11), None)),
        ({"metadata_version": 7}, ReleaseEvidence((3, 3), None)),  # 3.3-IV3
        ({"metadata_version": 11}, ReleaseEvidence((3, 4), None)),  # 3.5-IV2
        ({"metadata_version": 19}, ReleaseEvidence((3, 7), None)),  # 3.7-IV4
        ({"metadata_version": 25}, ReleaseEvidence((4, 0), None)),  # 4.0-IV3
        ({"protocol": "0.11.0-IV2"}, ReleaseEvidence((0, 11), (0, 12))),
        ({"protocol": "2.8-IV1"}, ReleaseEvidence((2, 8), (2, 9))),
        ({"protocol": "2.8", "metadata_version": 8}, ReleaseEvidence((3, 4), None)),
        ({"message_format": "2.0-IV1"}, ReleaseEvidence((2, 0), None)),  # it may lag behind
        ({"cluster_id": False}, ReleaseEvidence((0, 11), (2, 4))),
        ({"cluster_id": True, "directory_id": True}, ReleaseEvidence((3, 7), None)),
        ({"cluster_id": False, "protocol": "x"}, ReleaseEvidence((0, 11), (2, 4))),
        ({"cluster_id": False, "directory_id": True}, ReleaseEvidence((3, 7), None)),  # not from one broker
    ],
)
def test_the_range_of_releases_that_fits(evidence: dict[str, object], expected: ReleaseEvidence) -> None:
    assert shown_by(**evidence) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shown", "settings", "expected"),
    [
        (ReleaseEvidence(), {}, DAY_MS),  # undecidable: what any release remembers at least
        (ReleaseEvidence((0, 11), (2, 4)), {}, WEEK_MS),  # KIP-854: it was transactional.id.expiration.ms before 3.4
        (ReleaseEvidence((3, 3), (3, 4)), {}, WEEK_MS),
        (ReleaseEvidence((3, 4)), {}, DAY_MS),
        (ReleaseEvidence((3, 4)), {OLD: "5"}, DAY_MS),  # which says nothing about producers any more
        (ReleaseEvidence((3, 4)), {NEW: "5", OLD: "7"}, 5),
        (ReleaseEvidence((2, 8), (2, 9)), {NEW: "5", OLD: "7"}, 7),
        (ReleaseEvidence(), {OLD: "7"}, 7),
        (ReleaseEvidence(), {NEW: "5", OLD: "7"}, 5),
        (ReleaseEvidence(), {NEW: "none"}, DAY_MS),
    ],
)
def test_how_long_an_idle_producer_is_remembered(
    shown: ReleaseEvidence, settings: dict[str, str], expected: int
) -> None:
    assert policies.expiration_ms(shown, settings.get) == expected


def test_a_supposed_broker_remembers_as_long_as_the_first_release_of_its_policy() -> None:
    remembered = {name: policies.supposed_expiration_ms(name, {}.get) for name in policies.POLICIES}
    weeks = {name for name, time in remembered.items() if time == WEEK_MS}
    assert weeks == {"pre-kip-360", "kip-360-text", "kip-360"}
    assert set(remembered.values()) == {DAY_MS, WEEK_MS}
    assert policies.supposed_expiration_ms("kip-360", {OLD: "7"}.get) == 7


def test_what_two_log_directories_show_of_one_broker() -> None:
    assert ReleaseEvidence((1, 0), (2, 4)).also(ReleaseEvidence()) == ReleaseEvidence((1, 0), (2, 4))
    assert ReleaseEvidence((1, 0), (2, 4)).also(ReleaseEvidence((3, 4))) == ReleaseEvidence((3, 4))


def test_every_release_has_a_policy_and_the_table_is_in_order() -> None:
    assert [r.since for r in policies.RELEASES] == sorted({r.since for r in policies.RELEASES})
    assert {r.policy for r in policies.RELEASES} <= set(policies.POLICIES)
    assert all(ReleaseEvidence(r.since).rows[0] is r for r in policies.RELEASES)


@pytest.mark.parametrize(
    ("shown", "error"),
    [
        (ReleaseEvidence((0, 11), (1, 0)), policies.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (ReleaseEvidence((1, 0), (2, 4)), policies.UNKNOWN_PRODUCER_ID),
        (ReleaseEvidence((0, 11), (2, 4)), policies.UNKNOWN_PRODUCER_ID),  # undecided: as most of its releases do
        (ReleaseEvidence((4, 0)), policies.UNKNOWN_PRODUCER_ID),  # none of its releases
    ],
)
def test_what_an_unknown_producer_is_answered(shown: ReleaseEvidence, error: int) -> None:
    """0.11 had no UNKNOWN_PRODUCER_ID, as its brokers show."""
    assert policies.policy_at("pre-kip-360", shown).unknown_error == error


def test_names_stand_for_policies() -> None:
    assert policies.CHOICES == (
        "auto", "pre-kip-360", "kip-360", "kip-890", "latest-batch-only", "kip-360-text", "kip-890-p1", "kip-890-p2",
    )  # fmt: skip
    assert [name for name, policy in policies.POLICIES.items() if policy.is_draft] == ["latest-batch-only"]
    assert [name for name, policy in policies.POLICIES.items() if policy.verifies] == ["kip-890-p1", "kip-890-p2"]
    assert [name for name, p in policies.POLICIES.items() if p.bumps_each_transaction] == ["kip-890-p2"]


@pytest.mark.parametrize(
    ("least", "configs", "side", "expected"),
    [
        ((3, 5), {"message.timestamp.difference.max.ms": "5"}, "before", 5),
        ((3, 5), {"message.timestamp.difference.max.ms": "5"}, "after", 5),
        ((3, 6), {"message.timestamp.difference.max.ms": "5", "message.timestamp.before.max.ms": "7"}, "before", 7),
        ((3, 6), {"message.timestamp.difference.max.ms": "5", "message.timestamp.before.max.ms": "7"}, "after", 5),
        ((4, 0), {"message.timestamp.difference.max.ms": "5"}, "before", None),
        ((3, 6), {}, "before", None),
    ],
)
def test_which_setting_limits_timestamps(
    least: tuple[int, int], configs: dict[str, str], side: str, expected: int | None
) -> None:
    """KIP-937: the old setting stands in for whichever new one is unset, until it is gone in 4.0."""
    cluster = ClusterSettings(topic_configs={"t": configs}, releases={1: ReleaseEvidence(least)})
    assert timestamp_limit(cluster, side, "t", 1) == expected


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (ReleaseEvidence((4, 2)), True),  # or newer: it may be 4.3
        (ReleaseEvidence((4, 2), (4, 3)), False),  # 4.2 it is
        (ReleaseEvidence((4, 2), (4, 4)), True),
        (ReleaseEvidence((4, 4)), True),
        (ReleaseEvidence((4, 5)), False),
    ],
)
def test_which_brokers_may_skip_a_marker(shown: ReleaseEvidence, expected: bool) -> None:
    """KAFKA-20734: 4.3.0, 4.3.1 and 4.4.0, as tried on these; 4.2.1 waits."""
    assert shown.may_have(policies.SKIPS_MARKERS) is expected
