"""Batches of a magic above 2, which brokers take for 2 where their checksum is right: it does not cover the magic."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from auditor.connectors.codec import batch as walking
from auditor.connectors.codec.batch_columns import FLAW_CRC
from auditor.connectors.codec.segment import read_segment

MAGIC_AT = walking.PREFIX - 1  # byte of a batch that holds the magic


def foreign_row(data: bytes, position: int) -> np.ndarray | None:
    """The row of a walk that a broker has of the bytes from ``position`` of a segment on; None where they are no whole
    batch to it."""
    if len(data) <= MAGIC_AT or data[MAGIC_AT] > 127:
        return None
    patched: Any = io.BytesIO(data[:MAGIC_AT] + b"\x02" + data[MAGIC_AT + 1 :])
    chunk = next(iter(read_segment(patched, len(data), file="")))
    if len(chunk.rows) != 1 or chunk.errors or chunk.rows[0, walking.FLAWS] & FLAW_CRC:
        return None
    row: np.ndarray = chunk.rows[0].copy()
    row[walking.POSITION] += position
    return row
