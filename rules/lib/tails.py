"""The torn end of a segment: bytes that go on to its end without being whole batches."""

from __future__ import annotations

from auditor.base.errors import BREAKS_OFF, DecodeError
from auditor.facts.replica_facts import ReplicaFacts

TAIL_REASONS = ("truncated", "zero_filled", "bad_size", "bad_magic", "bad_value")


def tails(replica: ReplicaFacts) -> dict[str, list[DecodeError]]:
    """By segment file, the bytes that go on to its end without being whole batches, piece by piece.

    A single whole batch of an unknown magic is no tail: brokers step over it too.
    """
    sizes = {replica.segments[k]: scan.size for k, scan in enumerate(replica.scans)}
    out: dict[str, list[DecodeError]] = {}
    for e in sorted(replica.errors, key=lambda e: -e.position):
        begun = out.get(e.file)
        end = begun[-1].position if begun else sizes.get(e.file)
        if e.reason in TAIL_REASONS and end == e.position + e.length:
            out.setdefault(e.file, []).append(e)
    return {file: pieces[::-1] for file, pieces in out.items() if len(pieces) > 1 or not is_whole(pieces[0])}


def is_whole(error: DecodeError) -> bool:
    """Whether the bytes are one whole batch, of a magic that does not exist."""
    return error.reason == "bad_magic" and not error.detail.endswith(BREAKS_OFF)
