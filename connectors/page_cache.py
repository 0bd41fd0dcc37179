"""Which pages of an open file are in the page cache, and how to give back those that only we brought there.

Linux alone, and there the owner of a file (or root) alone, is told which are cached: all others are told that all are,
and give nothing back.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import sys
from typing import Any

import numpy as np

PAGE = mmap.PAGESIZE
_FAILED = ctypes.c_void_p(-1).value
_AT_ONCE = 260  # pages of a MiB, wherever it begins


@functools.cache
def _libc() -> Any:
    """The functions of the C library that Python has no names for; None where this cannot be asked."""
    if sys.platform != "linux" or sys.maxsize < 2**32 or not hasattr(os, "posix_fadvise"):
        return None
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64]
        libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    except (OSError, AttributeError):
        return None
    return libc


class Residency:
    """Tells of an open file which pages are cached, up to the size that it had when this was made. Reads none."""

    def __init__(self, descriptor: int) -> None:
        self._at = 0  # where the file is mapped, for mincore to look at; nobody reads there
        self._libc = _libc()
        self._pages = -(-os.fstat(descriptor).st_size // PAGE)
        self._told = ctypes.create_string_buffer(_AT_ONCE)
        if self._libc is not None and self._pages:
            at = self._libc.mmap(None, self._pages * PAGE, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
            self._at = 0 if at is None or at == _FAILED else at

    def cached(self, first: int, behind: int) -> bytes | None:
        """Of each page from number ``first`` to before ``behind`` a byte, 0 for one that is not cached; fewer where the
        file had fewer; None where nothing tells."""
        count = min(behind, self._pages) - first
        if not self._at or count <= 0:
            return None
        told = self._told if count <= _AT_ONCE else ctypes.create_string_buffer(count)
        if self._libc.mincore(self._at + first * PAGE, count * PAGE, told):
            return None
        return told.raw[:count]

    def close(self) -> None:
        """Ends it."""
        if self._at:
            self._libc.munmap(self._at, self._pages * PAGE)
            self._at = 0


def no_reading_ahead(descriptor: int) -> None:
    """Of what this descriptor reads no more is fetched than was asked for."""
    if _libc() is not None:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)


def give_back(descriptor: int, first: int, pages: np.ndarray) -> None:
    """Takes those pages out of the cache, counted from number ``first`` on, that ``pages`` says."""
    edges = np.flatnonzero(np.diff(pages.astype(np.int8), prepend=0, append=0))
    for begin, end in edges.reshape(-1, 2).tolist():
        os.posix_fadvise(descriptor, (first + begin) * PAGE, (end - begin) * PAGE, os.POSIX_FADV_DONTNEED)
