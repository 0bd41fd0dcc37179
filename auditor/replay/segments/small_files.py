"""The small files of a replica, read as a whole: snapshots, indexes, checkpoints; and what came of their bytes."""

from __future__ import annotations

from typing import Protocol

from auditor.base.errors import DecodeError
from auditor.connectors.logdir.files import DataFile
from auditor.connectors.stores.storage import Place
from auditor.replay.task.replica_task import ReplicaTask

SHORTENED_TO = {"index": 8, "timeindex": 12}  # bytes of an entry
BYTES = ("bytes_total", "bytes_decoded", "bytes_skipped", "bytes_error")


class ReadsSmall(Protocol):
    """Reads a small file, as :func:`auditor.connectors.stores.storage.read_file`."""

    def __call__(self, where: Place, name: str, /, *, limit: int) -> bytes | DecodeError:
        """The whole content of ``name`` below ``where``, or why it cannot be had."""


def no_bytes() -> dict[str, int]:
    """Counts of bytes before any file was read."""
    return dict.fromkeys(BYTES, 0)


class SmallFiles:
    """Reads small files with ``read`` and books them: what is wrong goes to ``errors``, bytes to ``bytes``
    (:data:`BYTES`)."""

    def __init__(self, task: ReplicaTask, read: ReadsSmall, errors: list[DecodeError], bytes_: dict[str, int]) -> None:
        self.task, self.read = task, read
        self.errors, self.bytes = errors, bytes_

    def content(self, file: DataFile | None) -> bytes | None:
        """The bytes of a file, None (and an error noted) when it could not be read."""
        if file is None:
            return None
        data = self.read(file.place or self.task.place, file.name, limit=self.task.limits.small_file(file.kind))
        if isinstance(data, DecodeError):
            self.error(data._replace(file=file.name), file.size)
            self.bytes["bytes_total"] += file.size
            return None
        if _broke_off(file, data):
            detail = f"the file is {file.size - len(data)} bytes shorter than when it was listed"
            self.error(DecodeError(file.name, 0, file.size, "vanished", detail))
            self.bytes["bytes_total"] += file.size
            return None
        self.bytes["bytes_total"] += len(data)
        return data

    def error(self, error: DecodeError, length: int = 0) -> None:
        """Notes an error; ``length`` (bytes) counts where the error has none of its own."""
        self.errors.append(error)
        self.bytes["bytes_error"] += length if error.length < 0 else error.length

    def account(self, size: int, errors: list[DecodeError], skipped: int = 0) -> None:
        """Books a small file of ``size`` bytes: what its errors do not cover was decoded."""
        bad = min(size, sum(e.length if e.length >= 0 else size - e.position for e in errors))
        self.errors += errors
        self.bytes["bytes_error"] += bad
        self.bytes["bytes_skipped"] += min(skipped, size - bad)
        self.bytes["bytes_decoded"] += size - bad - min(skipped, size - bad)


def _broke_off(file: DataFile, data: bytes) -> bool:
    """Whether a binary file was being cut or rewritten while it was read: then nothing in it counts.

    Brokers shorten the indexes of a segment that they close, to whole entries; text files they replace at once.
    """
    if len(data) >= file.size or file.kind not in ("snapshot", "index", "timeindex", "txnindex"):
        return False
    return len(data) % SHORTENED_TO[file.kind] != 0 if file.kind in SHORTENED_TO else True
