"""Settings and practices that would have prevented findings; a rule names its own in ``prevented_by``.

Names are those of Kafka's configuration reference; a command is given where a running cluster can be changed by one.
``B`` stands for a bootstrap server, as in the remedies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from auditor.base.words import NO_TIMEOUT_MS

FORGOTTEN_BY, RETENTION = "forgotten_by", "retention"  # in the evidence: why a broker does not know a producer


@dataclass(frozen=True, slots=True)
class Safeguard:
    """A setting or practice: where it is set, what it does, and how to set it now.

    ``rank`` orders those that would have prevented equally much: the lower one is proposed first. ``unless``, ``only``:
    a name and a value in the evidence of findings that it does not prevent, or of those that alone it does.
    """

    setting: str
    where: str
    why: str
    command: str | None = None
    rank: int = 100
    unless: tuple[str, object] | None = None
    only: tuple[str, object] | None = None

    def prevents(self, evidence: Mapping[str, Any]) -> bool:
        """Whether it would have prevented a finding with this evidence."""
        if self.unless is not None and evidence.get(self.unless[0]) == self.unless[1]:
            return False
        return self.only is None or evidence.get(self.only[0]) == self.only[1]

    def row(self) -> dict[str, Any]:
        """What pages show of it."""
        return {name: getattr(self, name) for name in ("setting", "where", "why", "command", "rank")}


def _broker(setting: str) -> str:
    return (
        "kafka-configs.sh --bootstrap-server B --entity-type brokers --entity-default --alter "
        f"--add-config {setting}"
    )  # fmt: skip


TRANSACTION_VERSION_2 = Safeguard(
    "transaction.version=2", "cluster feature, brokers and clients from 4.0 on (KIP-890)",
    "Each transaction gets an epoch of its own, so a late write can no longer be stored after a marker.",
    "kafka-features.sh --bootstrap-server B upgrade --feature transaction.version=2", 1,
)  # fmt: skip
VERIFICATION = Safeguard(
    "transaction.partition.verification.enable=true", "broker, from 3.6 on (KIP-890 part 1)",
    "The leader asks the coordinator before the first write of a transaction and refuses any other.",
    _broker("transaction.partition.verification.enable=true"), 2,
)  # fmt: skip
TRANSACTION_TIMEOUT = Safeguard(
    "transaction.timeout.ms", "producer; capped by the brokers' transaction.max.timeout.ms",
    "A shorter time-out bounds how long a crashed client can keep its readers waiting.", None, 3,
    unless=("timeout_ms", NO_TIMEOUT_MS),  # a two-phase commit goes by none (KIP-939)
)  # fmt: skip
CLEAN_ELECTION = Safeguard(
    "unclean.leader.election.enable=false", "broker or topic",
    "A replica that missed acknowledged batches cannot become leader, so no acknowledged state is rolled back.",
    _broker("unclean.leader.election.enable=false"), 4,
)  # fmt: skip
IN_SYNC_REPLICAS = Safeguard(
    "min.insync.replicas=2 with acks=all", "topic and producer",
    "What a producer gets an acknowledgement for lies on two disks before it gets it.", None, 5,
)  # fmt: skip
PRODUCER_EXPIRATION = Safeguard(
    "producer.id.expiration.ms=604800000", "broker, from 3.4 on",
    "Brokers remember idle producers for a week, so a producer that pauses keeps its duplicate protection.",
    _broker("producer.id.expiration.ms=604800000"), 6, unless=(FORGOTTEN_BY, RETENTION),
)  # fmt: skip
KNOWN_BELOW_LOG_START = Safeguard(
    "brokers of 2.4 or newer", "broker (KIP-360)",
    "They keep a producer's state until it expires, whatever retention has deleted; older ones forget it with its "
    "last batch.", None, 6, only=(FORGOTTEN_BY, RETENTION),
)  # fmt: skip
ID_EXPIRATION = Safeguard(
    "transactional.id.expiration.ms", "broker",
    "Kept above the longest idle time, an id is not forgotten while its client still writes.", None, 7,
)  # fmt: skip
GROUP_METADATA = Safeguard(
    "sendOffsetsToTransaction(offsets, groupMetadata); Streams: processing.guarantee=exactly_once_v2",
    "client (KIP-447)",
    "The group fences a member that has been replaced, so it cannot commit offsets after its successor has taken over.",
    None, 8,
)  # fmt: skip
TIMESTAMP_LIMITS = Safeguard(
    "message.timestamp.type=LogAppendTime, or message.timestamp.before.max.ms and after.max.ms", "topic",
    "Time stamps that expire state at once, or hide what is late, are refused.", None, 9,
)  # fmt: skip

LATE_WRITES = (TRANSACTION_VERSION_2, VERIFICATION)  # what keeps a late write out
