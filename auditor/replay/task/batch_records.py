"""The batches of a chunk as records: what kernels read by name."""

from __future__ import annotations

import numpy as np

from auditor.connectors.codec.batches import BatchColumns

# The columns of BatchColumns; its ``size`` is ``bytes`` here, for numpy's records have a size of their own.
BATCH = np.dtype([("bytes" if name == "size" else name, "i8") for name in BatchColumns._fields])


def as_records(rows: np.ndarray) -> np.ndarray:
    """A chunk's ``rows`` (a walk's, int64, C order) seen as BATCH records: the same memory, nothing is copied."""
    return rows.view(BATCH)[:, 0]
