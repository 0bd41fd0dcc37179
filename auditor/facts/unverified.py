"""Offsets of batches whose checksum nobody has verified, as ranges: what rests on them is not decided."""

from __future__ import annotations

import numpy as np

MOST = 256  # ranges of a log; beyond, those that lie next to each other are one


def joined(ranges: list[tuple[int, int]], first: np.ndarray, last: np.ndarray) -> list[tuple[int, int]]:
    """Ranges of offsets with those of more batches, in the order of the log. Ranges that follow each other are one."""
    begins = np.ones(len(first), bool)
    begins[1:] = first[1:] != last[:-1] + 1
    starts = np.flatnonzero(begins)
    ends = np.append(starts[1:], len(first)) - 1
    found = list(ranges)
    for a, b in zip(first[starts].tolist(), last[ends].tolist(), strict=True):
        if found and found[-1][1] + 1 == a:
            found[-1] = found[-1][0], b
        else:
            found.append((a, b))
    if len(found) > MOST:
        found = [
            (min(pair)[0], max(end for _, end in pair)) for pair in (found[k : k + 2] for k in range(0, len(found), 2))
        ]
    return found


def touches(ranges: list[tuple[int, int]], first: int | None, last: int | None) -> bool:
    """Whether one of the batches lies between two offsets; where there are none, whether there is one at all."""
    if first is None or not ranges:
        return bool(ranges)
    return any(a <= max(first, first if last is None else last) and first <= b for a, b in ranges)
