"""Verification of transactional appends with the coordinator (KIP-890 part 1, 3.6+; VerificationStateEntry).

A guard is an object equal to itself alone: one from before an abort, or a restart, is of no use afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass

from auditor.model.policies import Policy


@dataclass
class Verification:
    """A producer whose partition is being verified: when that began (ms), the lowest sequence seen and its epoch."""

    started: int
    lowest_sequence: int
    epoch: int
    supports_epoch_bump: bool
    guard: object

    def lower(self, sequence: int, epoch: int) -> None:
        """Add a waiting batch: a lower sequence of the same epoch, or any of a higher one, takes over."""
        if epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence
        elif epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)

    def admits(self, policy: Policy, first_sequence: int, knows_batches: bool) -> bool:
        """Whether a client's batch keeps the order among waiting ones; also when verification is off by now."""
        strict = policy.strict_first_sequence and self.supports_epoch_bump
        if strict and not knows_batches and first_sequence != 0:
            return False
        return first_sequence <= self.lowest_sequence


class Verifications:
    """The verifications in progress in one partition, by producer id."""

    def __init__(self) -> None:
        self.entries: dict[int, Verification] = {}

    def start(self, producer_id: int, sequence: int, epoch: int, now: int, supports_epoch_bump: bool) -> object:
        """Begin, or join, the verification of a producer at ``now`` (ms); return its guard."""
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = Verification(now, sequence, epoch, supports_epoch_bump, guard=object())
            self.entries[producer_id] = entry
        entry.lower(sequence, epoch)
        return entry.guard

    def accepts(self, producer_id: int, guard: object | None) -> bool:
        """Whether ``guard`` is the live one of the producer."""
        entry = self.entries.get(producer_id)
        return entry is not None and entry.guard is guard

    def clear(self, producer_id: int) -> None:
        """End the verification of a producer."""
        self.entries.pop(producer_id, None)

    def expire(self, now: int, expiration_ms: int) -> None:
        """Drop what began ``expiration_ms`` or longer before ``now``."""
        self.entries = {pid: entry for pid, entry in self.entries.items() if now - entry.started < expiration_ms}
