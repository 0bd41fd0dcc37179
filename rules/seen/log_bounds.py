"""The little of one log that must be known everywhere: where it begins and ends, and until when its file is whole."""

from __future__ import annotations

from typing import NamedTuple


class Read(NamedTuple):
    """When a log was read, as a copy of it says, in ms by its broker's clock: it has what was written before ``begun``,
    and nothing that came after ``done``. Times of one ``clock`` compare as they are.
    """

    begun: int
    done: int
    clock: str


class Bounds(NamedTuple):
    """Where the leader replica of a log begins and ends, and what its file can prove about time.

    ``clean_shutdown``: whether its file has all there was: its broker was stopped cleanly, and was in sync.
    ``open_known``: whether all transactions that are open in it are known. ``moment`` (ms): its file has all that was
    written until then, by its own newest time, or by how long copying its log directory can have taken.
    ``read``: when, as a copy says; ``moment`` is then its beginning.
    ``out_of_sync``: its broker is not in sync by the metadata, and none that is got just as far in the input; or it ran
    on, or again, behind what is here. ``until``: it was stopped cleanly, but may have gone on behind this time (ms).
    ``end_damaged``: a batch with a CRC mismatch is behind ``log_end``, whose offsets nobody knows.
    """

    log_start: int
    log_end: int
    high_watermark: int | None
    copy_time: int
    clean_shutdown: bool
    topic_id: str | None
    broker_id: int | None
    starts_late: bool = False
    open_known: bool = True
    moment: int = -1
    out_of_sync: bool = False
    until: int = -1
    read: Read | None = None
    end_damaged: bool = False


class OpenHere(NamedTuple):
    """An open transaction of a producer in one log: where it begins, its epoch, and the producer's marker before it.

    ``ended_before``: ms when that marker was written, -1 where there is none.
    """

    first_offset: int
    epoch: int
    ended_before: int
