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


def cached(descriptor: int, first: int, behind: int) -> np.ndarray | None:
    """Of each page from number ``first`` to before ``behind`` whether it is cached; None where nothing tells. Reads
    none."""
    libc, size = _libc(), (behind - first) * PAGE
    if libc is None or size <= 0:
        return None
    at = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, first * PAGE)
    if at is None or at == _FAILED:
        return None
    found = np.zeros(behind - first, np.uint8)
    try:
        told = libc.mincore(at, size, found.ctypes.data) == 0
    finally:
        libc.munmap(at, size)
    return found & 1 == 1 if told else None


def no_reading_ahead(descriptor: int) -> None:
    """Of what this descriptor reads no more is fetched than was asked for."""
    if _libc() is not None:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)


def give_back(descriptor: int, first: int, pages: np.ndarray) -> None:
    """Takes those pages out of the cache, counted from number ``first`` on, that ``pages`` says."""
    edges = np.flatnonzero(np.diff(pages.astype(np.int8), prepend=0, append=0))
    for begin, end in edges.reshape(-1, 2).tolist():
        os.posix_fadvise(descriptor, (first + begin) * PAGE, (end - begin) * PAGE, os.POSIX_FADV_DONTNEED)
