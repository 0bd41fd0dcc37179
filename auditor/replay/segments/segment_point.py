"""A place inside a growing segment from which its checks may go on when it is read the next time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from auditor.facts.replica_facts import SegmentScan
from auditor.replay.segments.batch_headers import Headers
from auditor.replay.segments.index_checks import Settled, SettledTimes


class SegmentPoint(NamedTuple):
    """Where the checks of a segment (:class:`auditor.replay.segments.segment_checks.SegmentChecks`) stand behind its
    batches before byte ``position``, of which there is nothing to say. To be pickled at once: the checks go on with the
    same objects.

    The last entry of the offset index points at ``position``: what it gets later is about later batches, of which none
    has an offset below ``next_offset``. ``last_position`` and ``last_header`` (bytes, checksum among them) are of the
    batch before: it is another where the log was cut and written anew.
    """

    position: int
    next_offset: int
    last_position: int
    last_header: bytes
    scan: SegmentScan
    rebuilt: np.ndarray
    digests: Headers | None
    offsets: Settled
    times: SettledTimes | None
