"""Control batches that were compressed: Kafka never writes them, but brokers would read and obey them."""

from __future__ import annotations

import numpy as np

from auditor.base.errors import Limits
from auditor.connectors.codec import batch_columns as col
from auditor.connectors.codec.batch import CODEC_MASK, HEADER, control_record
from auditor.connectors.codec.batch_columns import BatchColumns
from auditor.connectors.codec.compression import Failure, decompress


def open_controls(buf: np.ndarray, origin: int, batches: BatchColumns, limits: Limits) -> list[tuple[int, Failure]]:
    """Give each compressed control batch its type and coordinator epoch; return rows that could not be opened.

    ``buf`` holds the stored bytes, ``origin`` is the file position of ``buf[0]``. Cost: decompression of each.
    """
    failures: list[tuple[int, Failure]] = []
    compressed = batches.flaws & col.FLAW_CONTROL_COMPRESSED != 0
    for row in np.flatnonzero(compressed & (batches.record_count > 0)).tolist():
        start = int(batches.position[row]) - origin
        stored = buf[start + HEADER : start + int(batches.size[row])]
        plain = decompress(int(batches.attributes[row]) & CODEC_MASK, stored, limits=limits)
        if isinstance(plain, Failure):
            failures.append((row, plain))
            continue
        kind, epoch, flaws = control_record(plain, 0, len(plain))
        batches.control_type[row], batches.coordinator_epoch[row] = kind, epoch
        batches.flaws[row] |= flaws
    return failures
