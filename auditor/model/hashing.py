"""Which partition of an internal topic owns a transactional id or a consumer group."""

from __future__ import annotations

_MIN_INT = -(2**31)


def java_string_hash(text: str) -> int:
    """`String.hashCode` of `text`, as a signed 32-bit number.

    The hash runs over UTF-16 code units, so a character outside the basic plane counts as two. Lone surrogates, which
    decoded names may hold, are hashed like any unit. Cost: linear in the length. Source: java.lang.String.
    """
    units = text.encode("utf-16-be", "surrogatepass")
    total = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        total = (31 * total + (high << 8 | low)) & 0xFFFFFFFF
    return total - 2**32 if total >= 2**31 else total


def partition_for(name: str, partitions: int) -> int:
    """Partition of `__transaction_state` (`name`: transactional id) or `__consumer_offsets` (`name`: group id).

    `partitions` is the partition count of that topic; ValueError when it is not positive. The hash is made positive by
    its absolute value, with 0 for the one int that has none; it is not masked as client partitioners do.
    Source: TransactionStateManager.partitionFor, Utils.abs.
    """
    if partitions <= 0:
        raise ValueError(f"a topic has at least one partition, not {partitions}")
    value = java_string_hash(name)
    return 0 if value == _MIN_INT else abs(value) % partitions
