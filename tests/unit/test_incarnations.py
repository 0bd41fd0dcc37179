"""Which copies are of the topic that there is: by what the metadata says, else by when they were written."""

from __future__ import annotations

import pytest

from auditor.rules.seen.cluster_view import NOBODY, KnownCopy, topic_ids

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
        ([(OLD, 50), (NEW, 60)], {}, set(), {"t": NEW}),
        ([(OLD, 60), (NEW, 50)], {}, {OLD}, {"t": NEW}),
        ([(OLD, 60), (NEW, 50), (OTHER, 55)], {"t": NEW}, {OLD}, {"t": NEW}),
        ([(NEW, 50)], {"t": NEW}, {NEW}, {}),  # a deleted folder of a replica that was moved
    ],
)
def test_the_topic_that_there_is(
    copies: list[tuple[str | None, int]], current: dict[str, str], removed: set[str], expected: dict[str, str]
) -> None:
    assert topic_ids([KnownCopy("t", *copy) for copy in copies], current, removed, 100) == expected
