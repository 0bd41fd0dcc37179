"""A produced record set as validation sees it, without its bytes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np

from auditor.model.batch_validation import METRICS, NO_TIMESTAMP
from tests.reference.client import RETRIABLE
from tests.reference.refusal import Refused

NONE = "none"
CLIENT = "client"
REPLICATION = "replication"
NO_PRODUCER_ID = -1


class Record(NamedTuple):
    """A record: `offset` relative, as stored; `timestamp` epoch ms, -1 none; `crc_ok` is of old formats' own checksum.

    `compressed`: a record of an old format that claims a codec of its own; `readable`: its lengths and headers are
    those of a record.
    """

    offset: int
    timestamp: int = NO_TIMESTAMP
    has_key: bool = True
    magic: int = 2
    crc_ok: bool = True
    compressed: bool = False
    readable: bool = True

    @property
    def known_timestamp(self) -> int:
        """The timestamp as a reader sees it: format 0 has none."""
        return self.timestamp if self.magic > 0 else NO_TIMESTAMP


class Batch(NamedTuple):
    """A batch with its header's fields; `declared_count` is the header's number of records."""

    records: tuple[Record, ...]
    magic: int = 2
    compression: str = NONE
    base_offset: int = 0
    last_offset_delta: int = 0
    declared_count: int = 0
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = -1
    base_sequence: int = -1
    transactional: bool = False
    control: bool = False
    log_append_time: bool = False


@dataclass(frozen=True)
class RecordError:
    """A refused record: its position in the batch, and the error's name."""

    index: int
    error: str


class Rejected(Refused):
    """A record set that is refused as a whole; `record_errors` is empty when it is the batch that fails."""

    def __init__(self, error: str, record_errors: tuple[RecordError, ...] = ()) -> None:
        super().__init__(error)
        self.record_errors = record_errors

    @property
    def retriable(self) -> bool:
        """Whether a client may send the same bytes again (KIP-467): only where they may have been damaged."""
        return self.error in RETRIABLE


@dataclass
class ValidationMetrics:
    """Counts of rejected records by cause; the broker's metric adds `invalid_offset` and `invalid_sequence` up.

    Source: BrokerTopicMetrics: InvalidMagicNumber-, InvalidOffsetOrSequence-, InvalidMessageCrc- and
    NoKeyCompactedTopicRecordsPerSec.
    """

    invalid_magic: int = 0
    invalid_offset: int = 0
    invalid_sequence: int = 0
    invalid_checksum: int = 0
    no_key_compacted: int = 0

    def add(self, counts: np.record) -> None:
        """Count what an answer of :mod:`auditor.model.batch_validation` counts."""
        for name in METRICS:
            setattr(self, name, getattr(self, name) + int(counts[name]))

    def as_dict(self) -> dict[str, int]:
        """Return the counts by name."""
        return asdict(self)


def without_culprits(batch: Batch, errors: tuple[RecordError, ...]) -> Batch:
    """Return what KIP-467's text lets a client send again: the batch without failed records, numbered from 0.

    No released client does this. The batch may be empty; then nothing is left to send.
    """
    culprits = {error.index for error in errors}
    left = [record for index, record in enumerate(batch.records) if index not in culprits]
    return batch._replace(
        records=tuple(record._replace(offset=index) for index, record in enumerate(left)),
        last_offset_delta=len(left) - 1,
        declared_count=len(left),
    )
