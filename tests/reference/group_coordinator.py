"""Answers of a group coordinator to requests about offsets: commits, fetches, deletions, and their expiration.

What it holds, and what records do to it, is :mod:`auditor.model.groups`. Source: OffsetMetadataManager of Kafka's trunk
of October 2024; semantics section 5. Times are epoch milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from auditor.model.groups import NO_PRODUCER_ID, CommittedOffset, GroupOffsets, GroupPartition
from auditor.model.policies import Version
from tests.reference.commit_checks import ANONYMOUS, FIRST_CONSUMER_GROUPS, Committer, Group, check_commit
from tests.reference.refusal import Refused

NO_OFFSET = -1
UNSTABLE = "UNSTABLE_OFFSET_COMMIT"
DEFAULT_RETENTION_MS = 604_800_000


def topic_of(partition: str) -> str:
    """Topic of a `topic-N` name; topics may hold dashes themselves."""
    return partition.rpartition("-")[0]


class GroupCoordinator(GroupOffsets):
    """A group coordinator with its groups; iteration costs are linear in the group's partitions.

    `stable_fetch`: requests carry member ids and stable fetches are honoured (KIP-447); False for brokers before 2.5.
    `release`: the broker's, where groups of KIP-848 differ by it.
    """

    def __init__(
        self,
        groups: Mapping[str, Group],
        retention_ms: int = DEFAULT_RETENTION_MS,
        stable_fetch: bool = True,
        release: Version = FIRST_CONSUMER_GROUPS,
    ) -> None:
        super().__init__()
        self.groups = dict(groups)
        self.retention_ms = retention_ms
        self.stable_fetch = stable_fetch
        self.release = release

    def validate(self, group: str, committer: Committer, transactional: bool, partition: str = "") -> None:
        """Check a commit of a partition; Refused with its error."""
        checked = committer if self.stable_fetch or not transactional else ANONYMOUS
        check_commit(self.groups.get(group), checked, transactional, partition, self.release)

    def commit(
        self,
        group: str,
        committer: Committer,
        offsets: Mapping[str, int],
        record_offset: int,
        producer_id: int = NO_PRODUCER_ID,
    ) -> None:
        """Answer OffsetCommit, or TxnOffsetCommit with a producer id: check, then store `offsets` by partition.

        Refused with the error of the first partition that is refused; a broker answers each by itself.
        """
        for partition in offsets or ("",):
            self.validate(group, committer, producer_id != NO_PRODUCER_ID, partition)
        for partition, offset in offsets.items():
            self.replay(GroupPartition(group, partition), CommittedOffset(offset, record_offset), producer_id)

    def replay(self, place: GroupPartition, value: CommittedOffset, producer_id: int = NO_PRODUCER_ID) -> None:
        """Apply an offset record of the log, which creates an unknown group."""
        self.groups.setdefault(place.group, Group())
        super().replay(place, value, producer_id)

    def fetch(self, group: str, partitions: Iterable[str] | None, require_stable: bool) -> dict[str, int | str]:
        """Answer OffsetFetch: an offset, -1 for none, or :data:`UNSTABLE` for each partition.

        `partitions` None asks for all that have a committed value. A stable fetch refuses partitions for which any
        producer has a pending value.
        """
        if partitions is None:
            partitions = sorted(place.partition for place in self.committed if place.group == group)
        offsets: dict[str, int | str] = {}
        for partition in partitions:
            place = GroupPartition(group, partition)
            if require_stable and self.stable_fetch and self.is_pending(place):
                offsets[partition] = UNSTABLE
            else:
                offsets[partition] = self.committed[place].offset if place in self.committed else NO_OFFSET
        return offsets

    def is_pending(self, place: GroupPartition) -> bool:
        """Whether any producer has an undecided value there."""
        return any(place in values for values in self.pending.values())

    def _places(self) -> Iterator[GroupPartition]:
        yield from self.committed
        for values in self.pending.values():
            yield from values

    def _remove(self, places: Iterable[GroupPartition]) -> list[GroupPartition]:
        removed = sorted(set(places))
        for place in removed:
            self.replay_tombstone(place)
        return removed

    def delete(self, group: str, partitions: Iterable[str]) -> list[GroupPartition]:
        """Answer OffsetDelete: the places, sorted, that got a tombstone, pending ones included."""
        if group not in self.groups:
            raise Refused("GROUP_ID_NOT_FOUND")
        wanted = {GroupPartition(group, partition) for partition in partitions}
        return self._remove(wanted.intersection(self._places()))

    def delete_group(self, group: str) -> list[GroupPartition]:
        """Delete the offsets of a group (DeleteGroups); return as :meth:`delete`."""
        return self._remove(place for place in self._places() if place.group == group)

    def delete_partitions(self, partitions: Iterable[str]) -> list[GroupPartition]:
        """Delete every group's values of partitions that were deleted with their topic; return as :meth:`delete`."""
        gone = set(partitions)
        return self._remove(place for place in self._places() if place.partition in gone)

    def expire(self, group: str, now: int, subscribed_topics: Iterable[str]) -> tuple[list[GroupPartition], bool]:
        """Expire offsets of a group: (tombstones, whether the group may be removed).

        Values of subscribed topics and places with a pending value stay; a group with either stays too.
        """
        subscribed = set(subscribed_topics)
        places = [place for place in self.committed if place.group == group]
        expired = [
            place
            for place in places
            if topic_of(place.partition) not in subscribed
            and now - self.committed[place].commit_ts >= self.retention_ms
            and not self.is_pending(place)
        ]
        in_transaction = any(place.group == group for values in self.pending.values() for place in values)
        return self._remove(expired), len(expired) == len(places) and not in_transaction
