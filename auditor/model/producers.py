"""The producers of one partition: a table that compiled code looks them up in, and what an entry holds.

An entry is what a broker keeps of one producer (ProducerStateEntry, KIP-98); what a broker decides by it is in
:mod:`auditor.model.producer_appends`. Compiled by numba; with ``NUMBA_DISABLE_JIT=1`` all runs as plain Python. A
``row`` is the place of a producer in the columns, -1 where the partition does not know it. Rows stay valid until
:func:`keep` or :func:`clear`.
"""

from __future__ import annotations

import secrets
from typing import NamedTuple

import numpy as np

from auditor.base.compiled import kernel

NONE = -1  # no epoch, no sequence, no offset, no timestamp, no row
LOW_31 = 0x7FFF_FFFF


# What is known of a producer. ``timestamp`` is its newest batch's; ``cached`` of its batches are in its ring, the
# newest at ``newest``; ``ascending``: 1 where that one has the largest last sequence of them. np.record, so that fields
# are attributes in plain Python too.
ENTRY = np.dtype(
    (
        np.record,
        np.dtype(
            [
                ("producer_id", "i8"),
                ("last_timestamp", "i8"),
                ("txn_first_offset", "i8"),
                ("timestamp", "i8"),
                ("coordinator_epoch", "i4"),
                ("epoch", "i2"),
                ("cached", "i1"),
                ("newest", "i1"),
                ("ascending", "i1"),
            ],
            align=True,
        ),
    )
)
CACHED = np.dtype((np.record, [("last_offset", "i8"), ("last_sequence", "i4"), ("offset_delta", "i4")]))


class Producers(NamedTuple):
    """One partition's producers, and the hash table that finds them.

    What is known of one producer lies together: with many of them, most of a batch's time is waiting for memory. Its
    batches lie apart: one at a time is written, and a producer of few batches takes no memory for more.
    ``slots`` is an open-addressing table of rows. ``meta`` is [rows used, two random hash factors]: they decide places
    in ``slots`` only, so results never depend on them, but crafted ids cannot make look-ups slow.
    Offsets of records; timestamps in ms; -1 means none. Outside of kernels, each field is there as a column.
    """

    slots: np.ndarray  # int32
    meta: np.ndarray  # int64
    entries: np.ndarray  # ENTRY, by row
    rings: np.ndarray  # CACHED[cache size, rows], the newest batches of each

    @property
    def producer_id(self) -> np.ndarray:
        """int64."""
        return self.entries["producer_id"]

    @property
    def epoch(self) -> np.ndarray:
        """int16."""
        return self.entries["epoch"]

    @property
    def coordinator_epoch(self) -> np.ndarray:
        """int32."""
        return self.entries["coordinator_epoch"]

    @property
    def last_timestamp(self) -> np.ndarray:
        """int64."""
        return self.entries["last_timestamp"]

    @property
    def txn_first_offset(self) -> np.ndarray:
        """int64."""
        return self.entries["txn_first_offset"]

    @property
    def timestamp(self) -> np.ndarray:
        """int64, of the newest batch."""
        return self.entries["timestamp"]

    @property
    def cached(self) -> np.ndarray:
        """int8, batches in the ring."""
        return self.entries["cached"]

    @property
    def newest(self) -> np.ndarray:
        """int8, the newest one's place there."""
        return self.entries["newest"]

    @property
    def last_sequence(self) -> np.ndarray:
        """int32[rows, cache size]."""
        return self.rings["last_sequence"].T

    @property
    def last_offset(self) -> np.ndarray:
        """int64[rows, cache size]."""
        return self.rings["last_offset"].T

    @property
    def offset_delta(self) -> np.ndarray:
        """int32[rows, cache size]."""
        return self.rings["offset_delta"].T


def new_producers(capacity: int = 64, cached_batches: int = 5) -> Producers:
    """An empty map with room for ``capacity`` producers, ``cached_batches`` per producer.

    A producer takes about 60 bytes, once it is there, and 16 a batch: what is not used is memory that was never written
    to.
    """
    size = 1 << max(4, (2 * capacity - 1).bit_length())
    random = secrets.randbits(60)
    slots = np.empty(size, np.int32)
    slots.fill(NONE)
    return Producers(
        slots,
        np.array([0, random >> 30 | 1, random & (1 << 30) - 1 | 1], np.int64),
        np.empty(capacity, ENTRY),
        np.empty((cached_batches, capacity), CACHED),
    )


def grow(p: Producers, capacity: int = 0) -> Producers:
    """The same producers in the same rows with at least twice the room; called when :func:`insert` answers -1."""
    rows = int(p.meta[0])
    bigger = new_producers(max(2 * len(p.entries), capacity, 16), len(p.rings))
    bigger.entries[:rows] = p.entries[:rows]
    bigger.rings[:, :rows] = p.rings[:, :rows]
    bigger.meta[0] = rows
    index_rows(bigger)
    return bigger


def used(p: Producers) -> Producers:
    """The same rows without room for more, and without what finds them: to be stored, and given to :func:`grow`."""
    rows = int(p.meta[0])
    return p._replace(slots=p.slots[:0], entries=p.entries[:rows], rings=p.rings[:, :rows])


def keep(p: Producers, wanted: np.ndarray) -> None:
    """Forget the producers whose row is False in ``wanted`` (bool, rows used long); the others move up, in order."""
    rows = int(p.meta[0])
    kept = int(np.count_nonzero(wanted))
    for table in (p.entries, *p.rings):
        table[:kept] = table[:rows][wanted]
    p.meta[0] = kept
    index_rows(p)


def clear(p: Producers) -> None:
    """Forget every producer."""
    p.meta[0] = 0
    p.slots.fill(NONE)


@kernel
def find_slot(p: Producers, producer_id: int) -> int:
    """The slot that holds ``producer_id``, or the free one where it belongs.

    Brokers give ids out one after the other. Sixteen such lie in 64 bytes, one line of the processor's cache; where
    another sixteen are there first, all of them go on to the next line, each past one slot.
    """
    mask, sixteen = len(p.slots) - 1, producer_id >> 4
    mixed = (sixteen & LOW_31) * p.meta[1] + ((sixteen >> 31) & LOW_31) * p.meta[2]
    slot = ((((mixed ^ (mixed >> 29)) & LOW_31) * p.meta[1] >> 20) ^ (producer_id & 15)) & mask
    while p.slots[slot] >= 0 and p.entries[p.slots[slot]].producer_id != producer_id:
        slot = (slot + 17) & mask  # odd, so that it comes to every slot
    return slot


@kernel
def find(p: Producers, producer_id: int) -> int:
    """Row of the producer, -1 if unknown."""
    return p.slots[find_slot(p, producer_id)]


@kernel
def find_many(p: Producers, batches: np.ndarray, rows: np.ndarray) -> None:
    """Fills ``rows`` with those of the producers of batches; -1 where unknown.

    No look-up waits for the one before: the processor fetches what several of them need from memory at once.
    """
    for k in range(len(batches)):
        rows[k] = find(p, batches[k].producer_id)


@kernel
def index_rows(p: Producers) -> None:
    """Fill ``slots`` anew from the rows in use."""
    p.slots[:] = NONE
    for row in range(p.meta[0]):
        p.slots[find_slot(p, p.entries[row].producer_id)] = row


@kernel
def insert(p: Producers, producer_id: int) -> int:
    """Row of the producer, an empty entry if it was unknown; -1 when there is no room (then :func:`grow`)."""
    slot = find_slot(p, producer_id)
    if p.slots[slot] >= 0:
        return p.slots[slot]
    row = p.meta[0]
    if row == len(p.entries):
        return NONE
    p.meta[0] = row + 1
    p.slots[slot] = row
    entry = p.entries[row]
    entry.producer_id = producer_id
    entry.epoch = NONE
    entry.coordinator_epoch = NONE
    entry.last_timestamp = NONE
    entry.txn_first_offset = NONE
    entry.timestamp = NONE
    entry.cached = 0
    entry.newest = 0
    entry.ascending = 1
    return row


# --- an entry --------------------------------------------------------------------------------------------------------


@kernel
def cached_slot(p: Producers, row: int, age: int) -> int:
    """Ring place of the cached batch of ``age``: 0 the newest, ``cached`` - 1 the oldest."""
    at = p.entries[row].newest - age
    return at if at >= 0 else at + len(p.rings)  # no division: this is asked for every batch


@kernel
def newest_sequence(p: Producers, row: int) -> int:
    """Last sequence of the newest batch known, -1 without one."""
    if row < 0 or p.entries[row].cached == 0:
        return NONE
    return p.rings[p.entries[row].newest, row].last_sequence


@kernel
def newest_offset(p: Producers, row: int) -> int:
    """Last offset of the newest batch known, -1 without one."""
    if row < 0 or p.entries[row].cached == 0:
        return NONE
    return p.rings[p.entries[row].newest, row].last_offset


@kernel
def set_epoch(p: Producers, row: int, epoch: int) -> None:
    """Another epoch, higher or lower, forgets the cached batches."""
    entry = p.entries[row]
    if entry.epoch != epoch:
        entry.epoch = epoch
        entry.cached = 0


@kernel
def remember_batch(
    p: Producers, row: int, last_sequence: int, last_offset: int, offset_delta: int, timestamp: int
) -> None:
    """Cache one batch, in the place of the oldest when the ring is full."""
    entry, width = p.entries[row], len(p.rings)
    if entry.cached == 0:
        entry.ascending = 1
    elif last_sequence <= p.rings[entry.newest, row].last_sequence:
        entry.ascending = 0  # until another epoch: to know when the last such batch has left would cost every batch
    place = entry.newest + 1
    if place == width:
        place = 0
    entry.newest = place
    newest = p.rings[place, row]
    newest.last_sequence = last_sequence
    newest.last_offset = last_offset
    newest.offset_delta = offset_delta
    entry.timestamp = timestamp
    if entry.cached < width:
        entry.cached += 1
