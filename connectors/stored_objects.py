"""Files that lie in remote storage in another shape than their brokers had them: cut out of one object, or in chunks.

Who opens a file by its :class:`~auditor.connectors.storage.Place` gets its bytes as they were on the broker's disk
(Aiven's RemoteStorageManager; :mod:`auditor.connectors.codec.remote_log_metadata`). One chunk is in memory at a time.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np

from auditor.base.errors import DEFAULT_LIMITS, DecodeError
from auditor.connectors.codec.compression import ZSTD, Failure, decompress_into
from auditor.connectors.codec.remote_log_metadata import Manifest, decode_manifest
from auditor.connectors.files import DataFile, RemoteFiles
from auditor.connectors.names import INDEX_KINDS
from auditor.connectors.storage import BinaryFile, Place, open_file, read_file

MANIFEST, INDEXES = "rsm-manifest", "indexes"
NO_MANIFEST = "its objects are there without the manifest that says how they are made up"


def read_manifest(folder: Place, name: str) -> Manifest | DecodeError:
    """The manifest of that name."""
    data = read_file(folder, name, limit=DEFAULT_LIMITS.small_file(MANIFEST))
    return data if isinstance(data, DecodeError) else decode_manifest(data, name)


def is_unfinished(segment: RemoteFiles) -> bool:
    """Whether the manifest is not there, which is stored last."""
    return segment.objects and segment.file(MANIFEST) is None


def as_copied(segment: RemoteFiles) -> RemoteFiles | DecodeError:
    """A remote segment with its files as the broker had them, or why they cannot be had.

    One whose files are there as they were is given back as it is. Cost: its manifest is read.
    """
    if not segment.objects:
        return segment
    log, indexes, manifest = (segment.file(kind) for kind in ("log", INDEXES, MANIFEST))
    size = sum(file.size for file in segment.files)
    if manifest is None or manifest.place is None:
        return DecodeError(segment.files[-1].name, 0, size, "bad_manifest", NO_MANIFEST)
    says = read_manifest(manifest.place, manifest.name)
    if isinstance(says, DecodeError):
        return says._replace(length=size)
    if says.encrypted_by is not None:
        detail = f"AES, with a key that the RSA key {says.encrypted_by!r} wraps: not decrypted"
        return DecodeError((log or manifest).name, 0, size, "encrypted", detail)
    if wrong := _beyond(says, log, indexes):
        return DecodeError(manifest.name, 0, size, "bad_manifest", wrong)
    files = [manifest]
    if log is not None:
        view = None if says.plain else Chunked(manifest.name)
        files.append(log._replace(size=says.size, place=manifest.place._replace(view=view)))
    files += _parts(segment.start, says, indexes)
    return segment._replace(files=tuple(files))


def _beyond(says: Manifest, log: DataFile | None, indexes: DataFile | None) -> str:
    """What the objects do not have of what the manifest says, "" for nothing."""
    stored, end = int(says.chunks.sum()), max((part.position + part.size for part in says.parts), default=0)
    if log is not None and stored != log.size:
        return f"chunks of {stored} bytes in an object of {log.size}"
    if indexes is None or end > indexes.size:
        return f"indexes up to byte {end} in an object of {indexes.size if indexes else 0}"
    return ""


def _parts(start: int, says: Manifest, indexes: DataFile | None) -> list[DataFile]:
    """The indexes as files of their own; what the manifest leaves of their object has its kind."""
    if indexes is None or indexes.place is None:
        return []
    found, at = [], 0
    ends = [*says.parts, (INDEXES, indexes.size, 0)]
    for kind, position, size in ends:
        for name, first, length in ((INDEXES, at, position - at), (kind, position, size)):
            if length or name != INDEXES:
                view = Stretch(indexes.name, first, length)
                number = start if name in INDEX_KINDS else -1
                named = f"{indexes.name}#{name}" if name != INDEXES else f"{indexes.name}#{first}"
                found.append(DataFile(named, length, name, number, indexes.place._replace(view=view)))
        at = position + size
    return found


class Stretch(NamedTuple):
    """A file that is ``size`` bytes of the object ``file`` from byte ``start`` on."""

    file: str
    start: int
    size: int

    def open(self, folder: Place, name: str) -> BinaryFile | DecodeError:
        """The file, for reading."""
        opened = open_file(folder, self.file)
        return opened._replace(file=name) if isinstance(opened, DecodeError) else _StretchFile(opened, self)


class Chunked(NamedTuple):
    """A segment that is stored chunk by chunk, as its manifest, the file ``manifest``, says."""

    manifest: str

    def open(self, folder: Place, name: str) -> BinaryFile | DecodeError:
        """The segment as it was, for reading."""
        says = read_manifest(folder, self.manifest)
        if isinstance(says, DecodeError):
            return says
        opened = open_file(folder, name)
        return opened if isinstance(opened, DecodeError) else _ChunkedFile(opened, says)


class _Seekable:
    """What both kinds have: a position, and bytes from there on."""

    def __init__(self, stored: BinaryFile, size: int) -> None:
        self.stored = stored
        self.size = size
        self.at = 0

    def seek(self, position: int, whence: int = os.SEEK_SET, /) -> int:
        """Go to a byte."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self.at, os.SEEK_END: self.size}[whence]
        self.at = base + position
        return self.at

    def close(self) -> None:
        """Give the file back."""
        self.stored.close()


class _StretchFile(_Seekable):
    def __init__(self, stored: BinaryFile, part: Stretch) -> None:
        super().__init__(stored, part.size)
        self.start = part.start

    def readinto(self, buffer: Any, /) -> int:
        """Fill ``buffer`` as far as one read gives; 0 at the end of the stretch."""
        view = memoryview(buffer)[: max(0, self.size - self.at)]
        if not len(view):
            return 0
        self.stored.seek(self.start + self.at)
        got = int(self.stored.readinto(view) or 0)
        self.at += got
        return got


class _ChunkedFile(_Seekable):
    """``starts``: where each chunk begins as stored, and where the last one ends."""

    def __init__(self, stored: BinaryFile, says: Manifest) -> None:
        super().__init__(stored, says.size)
        self.says = says
        self.starts = np.append(0, np.cumsum(says.chunks))
        self.number = -1  # of the chunk at hand
        self.chunk = np.empty(0, np.uint8)

    def readinto(self, buffer: Any, /) -> int:
        """Fill ``buffer`` as far as one chunk gives; 0 at the end. Errors: ``OSError``, with what is wrong with it."""
        if self.at >= self.size:
            return 0
        number, inside = divmod(self.at, self.says.chunk_bytes)
        if number != self.number:
            self.chunk, self.number = self._read(number), number
        view = memoryview(buffer)
        part = self.chunk[inside : inside + len(view)]
        view[: len(part)] = part.data
        self.at += len(part)
        return len(part)

    def _read(self, number: int) -> np.ndarray:
        """A chunk as it was, no larger than what its manifest and the limits let it be."""
        start, end = int(self.starts[number]), int(self.starts[number + 1])
        size = min(self.says.chunk_bytes, self.size - number * self.says.chunk_bytes)
        what = f"chunk {number} at byte {start}"
        if max(size, end - start) > DEFAULT_LIMITS.max_batch_bytes:
            raise OSError(0, f"{what}: more than {DEFAULT_LIMITS.max_batch_bytes} bytes")
        if size > DEFAULT_LIMITS.decompressed_cap(end - start):
            raise OSError(0, f"{what}: {end - start} bytes that are to become {size}")
        data = self._stored(start, end - start)
        if len(data) < end - start:
            raise OSError(0, f"{what}: {end - start - len(data)} of its {end - start} bytes are not there")
        if not self.says.compressed:
            return data
        chunk = np.empty(size, np.uint8)
        got = decompress_into(ZSTD, data, chunk)
        if isinstance(got, Failure):
            raise OSError(0, f"{what}: {got.detail}")
        if got < size:
            raise OSError(0, f"{what}: {got} bytes where the manifest says {size}")
        return chunk

    def _stored(self, start: int, size: int) -> np.ndarray:
        data = np.empty(size, np.uint8)
        self.stored.seek(start)
        got = 0
        while got < size and (more := self.stored.readinto(data[got:].data)):
            got += more
        return data[:got]
