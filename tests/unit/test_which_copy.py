"""Which copies count: by offsets that only grow, topic ids and times that brokers wrote, never by directory names."""

from __future__ import annotations

from itertools import permutations
from typing import NamedTuple

import pytest

from auditor.evidence.which_copy import (
    NOBODY,
    ClusterCopy,
    CopyEnd,
    DirectoryCopy,
    DirectoryIdentity,
    KnownCopy,
    KnownTopics,
    NamedDirectory,
    WhichCopies,
    identities,
    incarnations,
    leader_of,
    names_by_id,
    several_clusters,
    which_copies,
)

NOON = 1_700_000_000_000


class Copy(NamedTuple):
    log_dir: str
    broker_id: int | None
    rank: tuple[int, int]
    settled_end: int
    broker_time: int = -1
    topic: str = "t"
    partition: int = 0


@pytest.mark.parametrize(
    ("copies", "named", "expected"),
    [
        ([("a", 1, (0, 9), 9), ("b", 2, (1, 5), 5)], 1, "b"),  # the epoch comes first
        ([("a", 1, (1, 9), 9), ("b", 2, (1, 5), 5)], 2, "a"),  # then the end, whoever leads
        ([("a", 1, (1, 9), 9), ("b", 2, (1, 9), 9)], 2, "b"),
        ([("a", 1, (1, 9), 9), ("b", 2, (1, 9), 9)], None, "a"),
        ([("a", 1, (1, 99), 5), ("b", 2, (1, 9), 9)], None, "b"),  # 99 may be a damaged number
        ([("z", 1, (1, 9), 9, 50), ("a", 1, (1, 9), 9, 40)], None, "z"),
    ],
)
def test_the_copy_that_stands_for_a_log(copies: list[tuple[object, ...]], named: int | None, expected: str) -> None:
    for order in permutations(Copy(*one) for one in copies):  # type: ignore[arg-type]
        assert leader_of(order, named).log_dir == expected


def directory(name: str, directory_id: str | None = None, **ends: tuple[int, int, int]) -> DirectoryCopy:
    """Of broker 1; the ends of topics' partition 0: leader epoch, log end, newest broker-written time."""
    logs = {(t, 0): CopyEnd(epoch, end, None, (time, -1)) for t, (epoch, end, time) in ends.items()}
    return DirectoryCopy(name, 1, directory_id, logs)


def both_ways(one: DirectoryCopy, other: DirectoryCopy) -> WhichCopies:
    """The same result in any order, and whatever their names are."""
    found = which_copies([one, other])
    assert which_copies([other, one]) == found
    names = {one.log_dir: other.log_dir, other.log_dir: one.log_dir}
    swapped = which_copies([c._replace(log_dir=names[c.log_dir]) for c in (one, other)])
    assert {names[name] for name in swapped.superseded} == set(found.superseded)
    assert swapped.unordered == found.unordered
    return found


def test_a_copy_that_has_no_log_further_is_the_older_one() -> None:
    """Although its newest time is later: a clock that ran ahead says nothing against offsets."""
    found = both_ways(
        directory("new", u=(0, 126, NOON), t=(0, 5, NOON)), directory("old", u=(0, 6, 2 * NOON), t=(0, 5, 0))
    )
    assert found.unordered == frozenset()
    (old,) = found.superseded.values()
    assert (old.log_dir, old.by) == ("old", "new")
    assert old.why == "log end of u-0: 6, then 126; 1 of 2 logs continued, no log is behind"


def test_a_later_leader_epoch_is_later_though_the_log_was_cut() -> None:
    found = both_ways(directory("new", u=(3, 10, -1)), directory("old", u=(2, 12, -1)))
    assert set(found.superseded) == {"old"}


def test_checkpoints_order_copies_whose_logs_end_alike() -> None:
    new, old = (
        DirectoryCopy(name, 1, None, {("t", 0): CopyEnd(0, 9, (0, watermark), (-1, -1))})
        for name, watermark in (("new", 9), ("old", 7))
    )
    assert both_ways(new, old).superseded["old"].why.startswith("high watermark of t-0: 7, then 9")


def test_where_ends_cross_the_broker_s_times_decide_but_not_for_what_the_older_one_has_more_of() -> None:
    found = both_ways(
        directory("new", u=(0, 6, NOON + 60_000), t=(0, 9, NOON)), directory("old", u=(0, 7, NOON), t=(0, 5, NOON))
    )
    assert set(found.superseded) == {"old"}
    assert found.unordered == {("u", 0)}
    for topic, excluded in (("t", 1), ("u", 0)):
        copies = [Copy(name, 1, (0, 9), 9, topic=topic) for name in ("old", "new")]
        assert len(found.counting(copies)[1]) == excluded


def test_where_nothing_orders_them_both_stay_and_the_logs_that_differ_are_inconclusive() -> None:
    one, other = directory("a", u=(0, 6, NOON), t=(0, 9, NOON)), directory("b", u=(0, 7, NOON), t=(0, 5, NOON))
    assert both_ways(one, other) == WhichCopies({}, frozenset({("u", 0), ("t", 0)}))


def test_equal_copies_are_one() -> None:
    assert both_ways(directory("a", u=(0, 6, NOON)), directory("b", u=(0, 6, NOON))) == WhichCopies()


def test_when_they_were_read_orders_equal_copies() -> None:
    one, other = (
        DirectoryCopy(name, 1, None, {("t", 0): CopyEnd(0, 9, None, (NOON, read))})
        for name, read in (("new", NOON + 120_000), ("old", NOON + 60_000))
    )
    assert set(both_ways(one, other).superseded) == {"old"}


def test_two_log_directories_of_a_broker_are_no_copies_of_one() -> None:
    known = both_ways(directory("d1", "id-1", u=(0, 6, NOON)), directory("d2", "id-2", u=(0, 7, NOON)))
    unknown = both_ways(directory("d1", u=(0, 6, 0), v=(0, 1, 0), w=(0, 1, 0)), directory("d2", u=(0, 7, 0)))
    disjoint = both_ways(directory("d1", u=(0, 6, 0)), directory("d2", v=(0, 7, 0)))
    assert known == unknown == disjoint == WhichCopies()


def test_of_three_days_the_last_one_replaces_the_others() -> None:
    days = [directory(name, t=(0, end, -1)) for name, end in (("wed", 9), ("mon", 5), ("tue", 7))]
    for order in permutations(days):
        found = which_copies(order).superseded
        assert {name: one.by for name, one in found.items()} == {"mon": "wed", "tue": "wed"}


def test_of_a_log_that_only_the_older_copy_has_that_one_counts() -> None:
    copies = both_ways(directory("new", t=(0, 9, -1)), directory("old", t=(0, 5, -1)))
    old, new = Copy("old", 1, (0, 5), 5), Copy("new", 1, (0, 9), 9)
    follower = Copy("other", 2, (0, 5), 5)
    assert copies.counting([old]) == ([old], [])
    assert copies.counting([old, follower]) == ([old, follower], [])
    assert copies.counting([old, new, follower]) == ([new, follower], [old])


# Directories under another name.


def named(folder: str, topic_id: str, reach: int = 0) -> NamedDirectory:
    topic, _, partition = folder.rpartition("-")
    return NamedDirectory(folder, topic, int(partition), topic_id, (reach, 0))


@pytest.mark.parametrize(
    ("folders", "counts", "expected"),
    [
        (["ab-0", "ab-0-20261128"], {"ab": 1}, {"ab-0-20261128": DirectoryIdentity("ab", 0, "ab-0")}),
        (["old.ab-0"], {"ab": 1}, {"old.ab-0": DirectoryIdentity("ab", 0)}),
        (["ab-0", "old.ab-1"], {"ab": 2}, {"old.ab-1": DirectoryIdentity("ab", 1)}),
        (["ab-0", "ab-1", "ab-1-20261128"], {"ab": 2}, {"ab-1-20261128": DirectoryIdentity("ab", 1, "ab-1")}),
        (["saved-1"], {"ab": 2}, {"saved-1": DirectoryIdentity("ab", 1)}),
        (["saved-20261128"], {"ab": 2}, {"saved-20261128": DirectoryIdentity("ab", None)}),
        (["ab-0", "ab-1"], {"ab": 2}, {}),
    ],
)
def test_the_topic_id_says_whose_a_directory_is(
    folders: list[str], counts: dict[str, int], expected: dict[str, DirectoryIdentity]
) -> None:
    assert identities([named(folder, "id") for folder in folders], {"id": "ab"}, counts) == expected


@pytest.mark.parametrize(
    ("folder", "counts", "expected"),
    [
        ("b-1-20261128", {}, 1),
        ("b-1-20261128", {"b": 2}, 1),
        ("b-1-20261128", {"b": 1}, 1),  # the metadata does not have its creation yet: another directory has
        ("old.b-2-20261128", {"b": 1}, None),  # of the only one? its name says otherwise
        ("backup-0", {"b": 1}, 0),
        ("b.old-7", {"b": 1}, 0),
        ("b.old-1", {"b": 2}, 1),
        ("old-b-20261128-1", {"b": 2}, 1),
    ],
)
def test_the_name_says_which_partition_it_was(folder: str, counts: dict[str, int], expected: int | None) -> None:
    beside = [named("b-1", "id")] if folder == "b-1-20261128" else []
    found = identities([*beside, named(folder, "id")], {"id": "b"}, counts)
    assert (found[folder].topic, found[folder].partition) == ("b", expected)


def test_a_topic_that_is_called_like_a_copy_is_itself() -> None:
    folders = [named("ab-0", "id"), named("ab-0-20261128", "own")]
    assert identities(folders, {"id": "ab", "own": "ab-0"}, {"ab": 1, "ab-0": 20_261_129}) == {}
    assert identities(folders, names_by_id(folders, {}), {}) == {}


def test_a_directory_named_like_another_topic_keeps_its_name() -> None:
    """Its partition.metadata may be wrong, and the broker opens it by name."""
    assert identities([named("cd-0", "id")], {"id": "ab", "other": "cd"}, {"ab": 1, "cd": 1}) == {}


def test_of_two_directories_without_the_partition_s_own_the_further_one_stands_for_it() -> None:
    folders = [named("ab-0.monday-0", "id", 40), named("ab-0.tuesday-0", "id", 70)]
    found = identities(folders, {"id": "ab"}, {"ab": 1})
    assert found == {
        "ab-0.tuesday-0": DirectoryIdentity("ab", 0),
        "ab-0.monday-0": DirectoryIdentity("ab", 0, "ab-0.tuesday-0"),
    }


def test_without_metadata_the_name_that_the_others_contain_is_the_topic_s() -> None:
    assert names_by_id([named("ab-0", "id"), named("ab-0-20261128", "id")], {}) == {"id": "ab"}
    assert names_by_id([named("ab-0", "id"), named("cd-0", "id")], {}) == {}


# Topics of one name.

OLD, NEW, OTHER = "old-id", "new-id", "other-id"


@pytest.mark.parametrize(
    ("copies", "current", "removed", "expected"),
    [
        ([(NEW, 50), (NEW, 60), (None, 70)], {"t": NEW}, {OLD}, {}),
        ([(OLD, 90), (NEW, 50)], {"t": NEW}, {OLD}, {"t": NEW}),
        ([(OLD, 90), (NEW, 50)], {"t": NEW}, set(), {"t": NEW}),
        ([(OLD, 50), (NEW, 190)], {"t": OLD}, set(), {"t": NEW}),  # made again behind the end of the metadata
        ([(OLD, 50)], {"t": NEW}, {OLD}, {"t": NOBODY}),
        ([(OLD, 50)], {}, {OLD}, {"t": NOBODY}),
        ([(OLD, 50)], {"t": NEW}, set(), {}),  # nothing tells which of the two is older
        ([(OLD, 60), (NEW, 50)], {}, {OLD}, {"t": NEW}),
        ([(OLD, 60), (NEW, 50), (OTHER, 55)], {"t": NEW}, {OLD}, {"t": NEW}),
        ([(NEW, 50)], {"t": NEW}, {NEW}, {}),  # a deleted folder of a replica that was moved
    ],
)
def test_the_topic_that_there_is(
    copies: list[tuple[str | None, int]], current: dict[str, str], removed: set[str], expected: dict[str, str]
) -> None:
    topics = KnownTopics(current, frozenset(removed), 100)
    found = incarnations([KnownCopy("t", *copy) for copy in copies], topics)
    assert found.now == expected
    assert not found.rivals
    assert not found.strange


def test_without_metadata_each_topic_of_a_name_is_judged_for_itself() -> None:
    """CreateTime data without markers has no broker's time: its producers' times say what was probably removed."""
    copies = [KnownCopy("t", OLD, 40, 50), KnownCopy("t", NEW, -1, 60), KnownCopy("t", OTHER, -1, -1)]
    for order in permutations(copies):
        found = incarnations(order, KnownTopics())
        assert [(r.topic_id, r.time) for r in found.rivals["t"]] == [(NEW, 60), (OLD, 50), (OTHER, -1)]
        assert [found.seen_from(number).now["t"] for number in range(4)] == [NEW, OLD, OTHER, NEW]


@pytest.mark.parametrize(
    ("copy", "whole", "expected"),
    [
        (KnownCopy("t", OTHER, -1, NOON - 60_000), True, True),
        (KnownCopy("t", OTHER, -1, NOON - 1_000), True, False),  # perhaps created after the metadata was copied
        (KnownCopy("t", OTHER, -1, NOON + 60_000), True, False),
        (KnownCopy("t", OTHER, -1, -1), True, False),
        (KnownCopy("t", OTHER, -1, NOON + 60_000, at_rest=True), True, True),
        (KnownCopy("t", OTHER, -1, NOON - 60_000), False, False),  # a part of the metadata could not be read
        (KnownCopy("t", OLD, -1, NOON - 60_000), True, False),  # removed
        (KnownCopy("t", NEW, -1, NOON - 60_000), True, False),
        (KnownCopy("__cluster_metadata", OTHER, -1, NOON - 60_000), True, False),
    ],
)
def test_a_topic_that_the_cluster_has_not(copy: KnownCopy, whole: bool, expected: bool) -> None:
    topics = KnownTopics({"t": NEW}, frozenset({OLD}), NOON, whole, since_start=True)
    found = incarnations([copy], topics)
    assert (copy.topic_id in found.strange) == expected
    assert (found.now.get("t") == NOBODY) == (expected or copy.topic_id == OLD)


@pytest.mark.parametrize(
    ("open_until", "others", "doubted"),
    [
        ((-1, 60), (50, 50), False),  # newer than all of the other by its broker, as far as its producers say
        ((-1, 60), (-1, 70), True),
        ((-1, 60), (60, 10), True),
        ((55, 60), (50, 90), False),  # the other's producers may have stamped ahead
        ((55, 55), (70, 70), True),
    ],
)
def test_a_topic_may_be_the_removed_one(open_until: tuple[int, int], others: tuple[int, int], doubted: bool) -> None:
    copies = [KnownCopy("t", OLD, *open_until), KnownCopy("t", NEW, *others)]
    found = incarnations(copies, KnownTopics())
    assert found.may_be_removed("t", OLD) == doubted
    assert not found.may_be_removed("u", OLD)
    alike = [copy._replace(first_batches=(0, 77)) for copy in copies]
    found = incarnations(alike, KnownTopics())
    assert not found.may_be_removed("t", OLD)
    assert sorted(found.is_named_twice("t", i) for i in (OLD, NEW)) == [False, True]


def cluster_copy(name: str, broker: int | None, topics: str | None, has: str = "", own: bool = True) -> ClusterCopy:
    ids = None if topics is None else frozenset(topics)
    return ClusterCopy(name, broker, name if own else None, ids, frozenset(has or topics or ""))


@pytest.mark.parametrize(
    ("copies", "expected"),
    [
        ([cluster_copy("x", 1, "ab"), cluster_copy("y", 1, "cd")], [["x"], ["y"]]),
        ([cluster_copy("x", 1, "ab"), cluster_copy("y", 1, "bc")], []),  # two copies of one
        ([cluster_copy("x", 1, "ab"), cluster_copy("y", 2, "cd")], []),  # nothing shows that it is one node
        ([cluster_copy("x", 1, "ab"), cluster_copy("y", 1, "cd", own=False)], []),
        ([cluster_copy("x", 1, "ab"), cluster_copy("y", 1, "")], []),  # perhaps before its first topic
        ([cluster_copy("x", 1, "ab"), cluster_copy("y", 1, None, "cd")], []),
        (
            [cluster_copy("x", 1, "ab"), cluster_copy("y", 1, "cd"), cluster_copy("z", 2, "ad", "a")],
            [],  # a third one has topics of both
        ),
        (
            [cluster_copy(*of) for of in (("x", 1, "ab"), ("y", 1, "cd"), ("z", 2, "d"), ("j", 1, None, "b"))],
            [["x", "j"], ["y", "z"]],
        ),
    ],
)
def test_clusters_that_were_given_one_id(copies: list[ClusterCopy], expected: list[list[str]]) -> None:
    assert sorted([c.log_dir for c in of] for of in several_clusters(copies)) == expected
