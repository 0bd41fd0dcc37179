"""What ``__cluster_metadata`` says of each thing, as values: partitions, brokers, feature levels, blocks of ids."""

from __future__ import annotations

from typing import NamedTuple

from auditor.connectors.codec.metadata_records import MetadataRecord


class MetadataEntry(NamedTuple):
    """A record of the metadata log or a snapshot, with the place of its batch (``position``, ``size``: bytes)."""

    file: str
    position: int
    size: int
    is_control: bool
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


class PartitionState(NamedTuple):
    """A partition as the controller last knew it. ``leader`` is -1 where there is none.

    ``adding`` and ``removing`` are replicas of a reassignment, ``elr`` the replicas that may lead though they are not
    in sync (KIP-966). ``recovery_state`` is 1 (RECOVERING) after an unclean election until the leader has seen to it.
    """

    topic: str
    partition: int
    topic_id: str
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    recovery_state: int = 0


class BrokerState(NamedTuple):
    """A registered broker as the controller last knew it. ``cordoned``: log dirs that take no new replicas (KIP-1066,
    None: not said); ids are uuids as text.
    """

    broker_id: int
    broker_epoch: int
    incarnation_id: str
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: tuple[str, ...] = ()
    cordoned: tuple[str, ...] | None = None


class Change(NamedTuple):
    """A record that changed the state. ``partition`` or ``broker`` is the state behind it, ``before`` the one it
    replaced (None: there was none). ``offset`` and ``timestamp`` (ms) are None in a snapshot.
    """

    offset: int | None
    timestamp: int | None
    record: MetadataRecord
    topic: str | None = None
    partition: PartitionState | None = None
    before: PartitionState | None = None
    broker: BrokerState | None = None


class FeatureLevel(NamedTuple):
    """A feature's level; ``offset`` and ``timestamp`` (ms) of its record in the log, None if a snapshot says it."""

    level: int
    offset: int | None
    timestamp: int | None


class Creation(NamedTuple):
    """A topic that was recreated under the name of a removed one: times (ms) of both records, None from a snapshot, and
    the first producer id not given out by then, None where nothing says so."""

    removed: int | None
    created: int | None
    next_producer_id: int | None


class ProducerIdBlock(NamedTuple):
    """The last block of producer ids given out: ``next_producer_id`` is the first id behind it."""

    broker_id: int
    next_producer_id: int
    offset: int | None
    timestamp: int | None
