"""What a broker would meet if it recovered a segment after a crash."""

from __future__ import annotations

from dataclasses import dataclass, field

from auditor.facts.at_rest import without_defaults


@without_defaults
@dataclass(slots=True)
class SegmentScan:
    """What a broker would meet if it recovered a segment after a crash (``LogSegment.recover``).

    ``indexed``: its ``.index`` is there. ``next_offset`` follows its last whole batch, ``records`` are those of whole
    batches. ``cut``: the byte at which recovery would cut the file, -1 for none; ``cut_offset`` and ``cut_records`` say
    where the log would end then and how many records would stay. ``fatal``: markers of an unknown type before the cut,
    ``(position, offset, producer_id, type)`` each. ``undecided``: in words, what keeps this from being certain.

    ``largest_time`` (ms, -1: none) is the largest timestamp of its batches, as a broker keeps it, of the batch that
    ends at ``largest_offset`` of producer ``largest_producer``; ``first_time`` that of its first batch. ``horizons``:
    batches with a delete horizon (KIP-534), and the earliest of these, ms. ``controls``: records of its
    control batches. ``plain``: no byte and no batch of it had to be looked at for itself, so that ``size`` and
    ``records`` are what its batches come to. ``overflow``: position and offset of the first batch that ends too far
    from ``base_offset`` for an index to hold it, -1 each for none.
    """

    base_offset: int
    size: int
    indexed: bool
    next_offset: int
    records: int = 0
    cut: int = -1
    cut_reason: str = ""
    cut_offset: int = -1
    cut_records: int = 0
    fatal: list[tuple[int, int, int, int]] = field(default_factory=list)
    undecided: str = ""
    largest_time: int = -1
    largest_offset: int = -1
    largest_producer: int = -1
    first_time: int = -1
    horizons: int = 0
    first_horizon: int = -1
    controls: int = 0
    plain: bool = True
    overflow: tuple[int, int] = (-1, -1)
