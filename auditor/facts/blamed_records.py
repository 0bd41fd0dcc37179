"""The records of a batch that a leader would have blamed when it refused the batch (KIP-467)."""

from __future__ import annotations

from typing import NamedTuple


class Culprits(NamedTuple):
    """Positions of records in their batch, from 0 on, as ``error_records`` of a ProduceResponse counts them.

    ``records``: how many the batch has, ``declared``: how many it says; ``base_sequence`` is -1 where it has none.
    ``null_keys``: without a key; ``flawed``: not built as records must be; ``old``: stamped below -1, or too far behind
    the broker's clock; ``ahead``: beyond it by an hour or more, with their stamps (ms). ``left_out``: how many more
    there are of all these.
    """

    records: int
    declared: int
    base_sequence: int
    null_keys: tuple[int, ...] = ()
    flawed: tuple[int, ...] = ()
    old: tuple[int, ...] = ()
    ahead: tuple[tuple[int, int], ...] = ()
    left_out: int = 0
