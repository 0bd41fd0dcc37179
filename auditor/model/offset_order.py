"""Where a batch may follow in a log: offsets rise, whoever gave them.

Source: UnifiedLog.append and analyzeAndValidateRecords of Kafka's trunk of October 2024; semantics 1.15, 4.2.
"""

from __future__ import annotations

from collections.abc import Iterable

from auditor.base.compiled import kernel

OFFSETS_OUT_OF_ORDER = "OFFSETS_OUT_OF_ORDER"
UNEXPECTED_APPEND_OFFSET = "UNEXPECTED_APPEND_OFFSET"


@kernel
def goes_back(first_offset: int, log_end: int) -> bool:
    """Whether what begins with this offset begins below the end of the log."""
    return first_offset < log_end


def offsets_refusal(spans: Iterable[tuple[int, int]], log_end: int) -> str | None:
    """Why a follower refuses batches, by their first and last offsets; None if it takes them.

    A leader gives the offsets itself, and looks at none.
    """
    before, first_of_all = -1, log_end
    for number, (first, last) in enumerate(spans):
        if last <= before:
            return OFFSETS_OUT_OF_ORDER
        first_of_all = first if number == 0 else first_of_all
        before = last
    return UNEXPECTED_APPEND_OFFSET if goes_back(first_of_all, log_end) else None
