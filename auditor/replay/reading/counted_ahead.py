"""A log counted with as little reading as that takes: what no offset points into goes by sums that its facts have."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from auditor.base.errors import DecodeError
from auditor.connectors.codec import batches as walking
from auditor.facts.replica_facts import SegmentScan
from auditor.replay.reading.ahead_counts import Counts
from auditor.replay.reading.headers_from import headers_of, stretches
from auditor.replay.task.replica_task import ReplicaTask


def count(counts: Counts, task: ReplicaTask, scans: Sequence[SegmentScan]) -> DecodeError | None:
    """Gives ``counts`` all that lies from its lowest offset on; why not, where a segment cannot be read. ``scans``: of
    each segment of the replica what an audit found.

    Cost: of a segment that offsets point into the headers from the first to the last of them, where each offset of it
    has a record; of a cleaned one those from its beginning to there, or from there to its end; of any other nothing,
    unless an aborted or open transaction begins in one and goes on in another, or it is remote or odd.
    """
    low, end = int(counts.offsets[0]), counts.end
    each = [(number, base, min(behind, end)) for number, (base, behind) in enumerate(stretches(task))]
    each = [(number, base, behind) for number, base, behind in each if low < behind and base < end]
    for number, base, behind in each:
        left = _sums(task, number, scans, behind)
        if left is not None and counts.may_pass(base, behind):
            counts.pass_over(base, behind, left)
            continue
        full = left is not None and _is_full(counts, scans[number])
        # Where less follows the lowest offset than comes before it, what follows is read to its end.
        if low - base > behind - low and not full:
            left = None
        begins_inside = full and base < low
        for rows in headers_of(task, number, low if full or left is None else base):
            if isinstance(rows, DecodeError):
                if counts.next_offset >= end:  # what is behind had not been written when it was copied
                    break
                return rows
            counts.take(rows, number)
            if left is None:
                continue
            left = left - _of(rows) - (_before(counts, base, rows[0]) if begins_inside else 0)
            begins_inside = False
            if counts.may_pass(counts.next_offset, behind):
                counts.pass_over(counts.next_offset, behind, left)
                break
    return None


def _sums(task: ReplicaTask, number: int, scans: Sequence[SegmentScan], behind: int) -> np.ndarray | None:
    """The records of a segment, those of control batches, and its bytes; None where only its batches tell what of it
    counts."""
    scan = scans[number] if number < len(scans) else None
    remote = task.replica.segments[number].place is not None
    if scan is None or remote or not scan.plain or scan.next_offset > behind:
        return None
    return np.array([scan.records, scan.controls, scan.size])


def _is_full(counts: Counts, scan: SegmentScan) -> bool:
    """Whether each offset of a segment has a record, and what all of its markers are is known."""
    base, behind = scan.base_offset, scan.next_offset
    return scan.records == behind - base and scan.controls == counts.outcomes.markers_in(base, behind)


def _before(counts: Counts, base: int, row: np.ndarray) -> np.ndarray:
    """The same of what lies before a batch in a segment of which each offset has a record."""
    at = int(row[walking.BASE_OFFSET])
    return np.array([at - base, counts.outcomes.markers_in(base, at), row[walking.POSITION]])


def _of(rows: np.ndarray) -> np.ndarray:
    """The same of some batches."""
    records = np.maximum(rows[:, walking.RECORD_COUNT], 0)
    controls = np.where(rows[:, walking.MAGIC] == 2, rows[:, walking.ATTRIBUTES] & walking.CONTROL, 0) != 0
    return np.array([records.sum(), records[controls].sum(), rows[:, walking.SIZE].sum()])
