"""Where a batch may follow in a log: offsets rise, whoever gave them.

Source: UnifiedLog.append and analyzeAndValidateRecords of Kafka's trunk of October 2024; semantics 1.15, 4.2.
"""

from __future__ import annotations

from auditor.base.compiled import kernel


@kernel
def goes_back(first_offset: int, log_end: int) -> bool:
    """Whether what begins with this offset begins below the end of the log."""
    return first_offset < log_end
