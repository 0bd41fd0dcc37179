"""The commands of Kafka that findings give to copy: printed, never run. Names in them come from untrusted input."""

from __future__ import annotations

from shlex import quote

from auditor.base.advice import Advice

PLACE = "--bootstrap-server B "
TRANSACTIONS = "kafka-transactions.sh --bootstrap-server B"


def addressed(advice: Advice, bootstrap: str | None) -> Advice:
    """An advice whose commands go to this ``host:port`` in place of the letter B."""
    return advice if bootstrap is None else advice.worded(lambda words: addressed_to(words, bootstrap))


def addressed_to(words: str, bootstrap: str | None) -> str:
    """The same of words that hold commands."""
    return words if bootstrap is None else words.replace(PLACE, f"--bootstrap-server {quote(bootstrap)} ")


def abort(topic: str, partition: int, offset: int) -> str:
    """Closes the hanging transaction that begins at an offset."""
    return f"{TRANSACTIONS} abort --topic {quote(topic)} --partition {partition} --start-offset {offset}"


def describe_producers(topic: str, partition: int) -> str:
    """Shows the open transactions of a partition as its leader knows them."""
    return f"{TRANSACTIONS} describe-producers --topic {quote(topic)} --partition {partition}"


def describe_id(transactional_id: str) -> str:
    """Shows a transactional id as its coordinator knows it."""
    return f"{TRANSACTIONS} describe --transactional-id {quote(transactional_id)}"


def find_hanging(topic: str) -> str:
    """Lists the transactions of a topic that hang."""
    return f"{TRANSACTIONS} find-hanging --topic {quote(topic)}"


def describe_topic(topic: str) -> str:
    """Shows the leaders and in-sync replicas of a topic."""
    return f"kafka-topics.sh --bootstrap-server B --describe --topic {quote(topic)}"


def quorum() -> str:
    """Shows how far each voter has the log of the metadata."""
    return "kafka-metadata-quorum.sh --bootstrap-server B describe --replication"


def remove_voter(broker: int | None, directory: str | None) -> str:
    """Takes a voter out of a dynamic quorum; ``directory``: its directory.id (KIP-853)."""
    return (
        f"kafka-metadata-quorum.sh --bootstrap-server B remove-controller --controller-id {broker} "
        f"--controller-directory-id {quote(directory or 'ID')}"
    )


def add_voter() -> str:
    """Makes the node of these properties a voter of a dynamic quorum."""
    return "kafka-metadata-quorum.sh --bootstrap-server B --command-config ITS_PROPERTIES add-controller"


def unavailable() -> str:
    """Lists the partitions that nobody leads."""
    return "kafka-topics.sh --bootstrap-server B --describe --unavailable-partitions"


def under_replicated() -> str:
    """Lists the partitions of which not every replica is in sync."""
    return "kafka-topics.sh --bootstrap-server B --describe --under-replicated-partitions"


def describe_topics() -> str:
    """Shows the leaders and in-sync replicas of all topics."""
    return "kafka-topics.sh --bootstrap-server B --describe"


def list_ids() -> str:
    """Lists all transactional ids with their producer ids and states."""
    return f"{TRANSACTIONS} list"


def prefer(topic: str, partition: int) -> str:
    """Lets the first of a partition's replicas lead, where it is in sync. An election of type ``unclean`` would let one
    lead that is not, and drop what it lacks."""
    return (
        f"kafka-leader-election.sh --bootstrap-server B --election-type preferred --topic {quote(topic)} "
        f"--partition {partition}"
    )


def reset_offset(group: str, topic: str, partition: int, offset: int) -> str:
    """Shows where a group would go on in a partition; whoever has read what it loses runs it with ``--execute``."""
    return (
        f"kafka-consumer-groups.sh --bootstrap-server B --group {quote(group)} --topic {quote(f'{topic}:{partition}')} "
        f"--reset-offsets --to-offset {offset} --dry-run"
    )


def dump(file: str | None, how: str) -> str:
    """Prints a segment: ``how`` is the option that says how deep."""
    return f"kafka-dump-log.sh --files {quote(file or 'SEGMENT')} {how}"
