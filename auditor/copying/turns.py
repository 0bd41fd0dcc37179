"""Folders that are copied at once, one of which is worked on at a time while the others wait for their store.

A store takes its time for each answer, and a folder needs several, one after the other. Nothing but that waiting is
done side by side: files of the broker are read one at a time, as by one process without threads.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Given = TypeVar("Given")

AT_ONCE = 8  # folders


class _BrokenOff(BaseException):
    """Ends a folder since another one failed, as the end of the process would."""


class Turns:
    """Who works at the moment."""

    def __init__(self) -> None:
        self._one = threading.Lock()
        self._mine = threading.local()
        self._over = False

    def each(self, work: Callable[[Given], object], given: Sequence[Given]) -> None:
        """``work`` of each, which are begun in their order. Errors: those of ``work``; none is begun behind one."""
        if len(given) < 2:
            for one in given:
                work(one)
            return
        with ThreadPoolExecutor(min(len(given), AT_ONCE), thread_name_prefix="folder") as pool:
            try:
                for done in [pool.submit(self._in_turn, work, one) for one in given]:
                    done.result()
            except BaseException:
                self._over = True
                pool.shutdown(cancel_futures=True)
                raise

    def _in_turn(self, work: Callable[[Given], object], one: Given) -> None:
        with self._one:
            self._mine.working = True
            try:
                work(one)
            finally:
                self._mine.working = False

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """While this one waits for a store, it is another's turn."""
        if not getattr(self._mine, "working", False):
            yield
            return
        self._one.release()
        try:
            yield
        finally:
            self._one.acquire()
        if self._over:
            raise _BrokenOff
