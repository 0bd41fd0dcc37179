"""Files of a store that are opened, and their first block read, before somebody asks for them.

Small files cost a store's answering time each, one after the other; side by side they cost it once. Who knows what will
be read next says so (:func:`coming`), in groups, such as the files of a replica, in the order of reading. It is a hint
and no more: what is not taken is forgotten, and what could not be had is asked for again by who reads it. Files of this
machine are never meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import NamedTuple, Protocol, runtime_checkable

from auditor.connectors import threads
from auditor.connectors.asking import REFUSED
from auditor.connectors.remote_file import BLOCK, Opened

AT_ONCE = 24  # files that are opened or wait to be taken, for each slot of a cluster
MANY = threads.AT_ONCE  # of them where one process works for all, before there are slots
MOST_BYTES = 32 << 20  # of them in memory


class Coming(NamedTuple):
    """A file that will be read: its URI and path, and its size in bytes as listed."""

    uri: str
    path: str
    size: int


@runtime_checkable
class Comes(Protocol):
    """A piece of work that knows which files of stores it reads."""

    def coming(self) -> Iterable[Coming]:
        """These, in the order of reading."""


def of_work(work: Iterable[object]) -> Iterator[Iterable[Coming]]:
    """What comes with pieces of work, a group each."""
    return (one.coming() if isinstance(one, Comes) else () for one in work)


class _Fetched(NamedTuple):
    group: int
    size: int
    future: Future[Opened]


class _Ahead:
    def __init__(self, groups: Iterable[Iterable[Coming]], at_once: int) -> None:
        self.at_once = at_once
        self.following = ((number, file) for number, group in enumerate(groups) for file in group)
        self.next: tuple[int, Coming] | None = None
        self.fetched: dict[tuple[str, str], _Fetched] = {}
        self.passed: set[tuple[str, str]] = set()
        self.bytes = 0

    def fetch(self) -> None:
        """Begins to fetch as many files as may be under way."""
        while len(self.fetched) < self.at_once:
            number, file = self.next or next(self.following, (-1, None))
            self.next = None
            if file is None:
                return
            size, key = min(file.size, BLOCK), (file.uri, file.path)
            if key in self.passed or key in self.fetched:
                self.passed.discard(key)
                continue
            if self.bytes and self.bytes + size > MOST_BYTES:
                self.next = number, file
                return
            self.bytes += size
            self.fetched[key] = _Fetched(number, size, threads.run(_opened, file, size))

    def taken(self, key: tuple[str, str]) -> Opened | None:
        """A file that was fetched; what should have been read before it is forgotten."""
        found = self.fetched.pop(key, None)
        if found is None:
            self.passed.add(key)
            return None
        self.bytes -= found.size
        for other in [k for k, f in self.fetched.items() if f.group < found.group]:
            left = self.fetched.pop(other)
            left.future.cancel()
            self.bytes -= left.size
        self.fetch()
        try:
            return found.future.result()
        except REFUSED:
            return None

    def close(self) -> None:
        """Forgets the rest."""
        for left in self.fetched.values():
            left.future.cancel()
        self.fetched.clear()


_ahead: _Ahead | None = None


def _opened(file: Coming, size: int) -> Opened:
    opened = Opened(file.uri, file.path)
    opened.first = opened.read(0, min(size, opened.end)) if min(size, opened.end) else None
    return opened


@contextmanager
def coming(groups: Iterable[Iterable[Coming]], at_once: int = AT_ONCE) -> Iterator[None]:
    """While these files are read, in about this order; ``at_once``: how many are under way or wait."""
    global _ahead

    before, _ahead = _ahead, _Ahead(groups, at_once)
    mine = _ahead
    mine.fetch()
    try:
        yield
    finally:
        mine.close()
        _ahead = before


def taken(uri: str, path: str) -> Opened | None:
    """A file that somebody said was coming, once; None for any other."""
    return None if _ahead is None else _ahead.taken((uri, path))
