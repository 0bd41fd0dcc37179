"""What the replay of a replica under other policies leaves: verdicts, what the producer state would have cost, and
numbers on the producers that hold under every policy. Offsets and sizes as in the log, times in ms; -1 means absent.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

BYTES_A_PRODUCER, BYTES_A_BATCH = 224, 40  # of a 64-bit JVM with compressed references: an estimate (semantics 2.6)
LEAST_MS = 1_000  # a rate needs that much time between two batches
SHOWN = 20  # producers of one replica that wrap, or run out of epochs, first

# One row a run of batches (or a marker) that would have been answered otherwise; the first of the run, and how many.
VERDICT = np.dtype(
    [
        ("error", "i4"),
        ("producer_id", "i8"),
        ("producer_epoch", "i4"),
        ("segment", "i4"),
        ("position", "i8"),
        ("base_offset", "i8"),
        ("last_offset", "i8"),
        ("base_sequence", "i4"),
        ("last_sequence", "i4"),
        ("known_epoch", "i4"),
        ("known_last_sequence", "i4"),
        ("max_timestamp", "i8"),
        ("transactional", "i1"),
        ("control", "i1"),
        ("batches", "i8"),
        ("records", "i8"),
        ("run_last_offset", "i8"),
        ("stored_before", "i1"),
    ]
)


@dataclass(slots=True)
class PolicyOutcome:
    """What one policy would have made of the replica. Sizes are estimates in bytes.

    ``dropped``: verdicts that were not kept; ``forgotten``: batches that found their producer forgotten.
    """

    verdicts: np.ndarray
    dropped: int
    producers_peak: int
    bytes_peak: int
    producers_end: int
    bytes_end: int
    forgotten: int


@dataclass(slots=True)
class PolicyOutcomes:
    """One replica under each policy that was asked for, by name, and what holds under all of them.

    ``hours``: hour since the epoch -> (producers that began in it, largest producer id seen). ``wraps``: how often
    sequences began again at 0, by plain and transactional producers; ``rates``: the records an hour of all producers
    of either kind, each while it wrote. ``span``: most sequences of one producer in five batches on end. ``fastest``:
    the producers that wrap, or run out of epochs, first. ``newest_time``: how far the clock went, by any time-stamp.
    """

    by_policy: dict[str, PolicyOutcome] = field(default_factory=dict)
    producers_seen: int = 0
    one_batch: int = 0
    span: int = 0
    wraps: tuple[int, int] = (0, 0)
    rates: tuple[float, float] = (0.0, 0.0)
    hours: dict[int, tuple[int, int]] = field(default_factory=dict)
    fastest: list[dict[str, int]] = field(default_factory=list)
    newest_time: int = -1


def state_bytes(producers: int, batches: int) -> int:
    """About what a broker's memory holds for so many producers with so many cached batches in all."""
    return BYTES_A_PRODUCER * producers + BYTES_A_BATCH * batches
