"""The state batches of a share group in a partition, put together as its coordinator does (KIP-932).

Of each offset the state with the higher delivery count holds, of equal counts the higher state. Source:
PersisterStateBatchCombiner.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

SETTLED = (2, 4)  # acknowledged, archived: not delivered again
Batch = tuple[int, int, int, int]  # first and last offset, delivery count, state


def combined(before: Sequence[Batch], more: Sequence[Batch], start: int) -> list[Batch]:
    """The batches that hold after more have come, without what lies below ``start``, in order. Cost: of n batches
    n log n, unless many cover the same offsets."""
    cut = [(max(first, start), *rest) for first, *rest in (*before, *more) if rest[0] >= start]
    edges = sorted({edge for first, last, *_ in cut for edge in (first, last + 1)})
    found: list[Batch] = []
    waiting = sorted(cut, reverse=True)
    covering: list[tuple[int, ...]] = []
    for low, high in pairwise(edges):
        covering = [batch for batch in covering if batch[1] >= low]
        while waiting and waiting[-1][0] <= low:
            covering.append(waiting.pop())
        if covering:
            count, state = max((batch[2], batch[3]) for batch in covering)
            if found and found[-1][1] + 1 == low and found[-1][2:] == (count, state):
                found[-1] = (found[-1][0], high - 1, count, state)
            else:
                found.append((low, high - 1, count, state))
    return found


def settled(batches: Iterable[Batch]) -> tuple[tuple[int, int], ...]:
    """The stretches of offsets that are not delivered again."""
    return tuple((first, last) for first, last, _, state in batches if state in SETTLED)
