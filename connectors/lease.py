"""Two that write into one folder of a store: a store has no lock, so each says that it is there, and looks for others.

Each puts an object of its own beside the others', and only then lists what is there: of two that begin at once, one at
least sees the other. Who writes changes its object every few seconds. One that stays as it is for longer is of a run
that was killed, and is taken away. No two clocks are compared, and a store needs but list what it took.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator

from auditor.base.errors import AuditInputError, StoreTrouble
from auditor.connectors import result_folder, storage
from auditor.connectors.storage import REFUSED

RENEW_S = 10.0
WATCHED_S = 45.0  # for which another's object is watched: some renewals may be late
_SIZES = 100  # bytes of an object, one more each time: a list of the folder shows that it changed
_TROUBLE = (*REFUSED, AuditInputError, StoreTrouble)


@contextlib.contextmanager
def alone_in(uri: str, prefix: str, what: str) -> Iterator[Callable[[str], None]]:
    """While nobody else who does the same writes into a folder of a store. Gives what raises ``OSError`` once another
    took this one for killed, as when its machine stood still.

    ``prefix``: how names of these objects begin; ``what``: what they are of, for people.
    Errors: :class:`AuditInputError` where another writes there, or the store cannot be written or listed.
    """
    lease = _Lease(uri, prefix, what)
    try:
        lease.begin()
        yield lease.check
    finally:
        lease.end()


class _Lease:
    def __init__(self, uri: str, prefix: str, what: str) -> None:
        self.place, self.folder = storage.remote_place(uri), result_folder.folder(uri)
        self.prefix, self.what = prefix, what
        self.own, self.size = f"{prefix}{uuid.uuid4().hex}", 1
        self.renewed_at, self.lost, self.over = time.monotonic(), False, threading.Event()
        self.thread = threading.Thread(target=self._renew, daemon=True)

    def begin(self) -> None:
        """Waits until others are known to be gone, and says all the time that this one is there."""
        storage.is_there(self.place)  # which says what is wrong with credentials
        result_folder.tried(self.folder, "--out", self.own, keep=True)
        self.thread.start()
        first, until = self._others(), time.monotonic() + WATCHED_S
        while (now := self._others()) and time.monotonic() < until:
            if any(first.get(name) != size for name, size in now.items()):
                where = self.folder.shown
                raise AuditInputError(
                    f"another {self.what} writes to {where}; wait for its end or choose another --out"
                )
            time.sleep(RENEW_S / 4)
        self._take_away(now)

    def _there(self) -> dict[str, int]:
        """The objects of all, with their sizes by now. Errors: :class:`AuditInputError` where a store does not list
        them: that says nothing of who is there."""
        found = storage.listing(self.place, deep=False)
        if wrong := [error.detail for error in found.errors if error.reason != "vanished"]:  # an empty folder is none
            raise AuditInputError(f"cannot list {self.folder.shown}: {wrong[0]}; allow that or choose another --out")
        return {entry.name: entry.size for entry in found.files if entry.name.startswith(self.prefix)}

    def _others(self) -> dict[str, int]:
        return {name: size for name, size in self._there().items() if name != self.own}

    def _renew(self) -> None:
        while not self.over.wait(RENEW_S):
            with contextlib.suppress(*_TROUBLE):  # who writes next will hear of that, too
                self._go_on()

    def _go_on(self) -> None:
        self.lost = self.lost or self.own not in self._there()
        if not self.lost:
            self.size = self.size % _SIZES + 1
            self.folder.put(self.own, b"." * self.size)
            self.renewed_at = time.monotonic()

    def check(self, _about: str = "") -> None:
        """Errors: ``OSError`` where another writes by now; those of the store where it does not tell."""
        if time.monotonic() - self.renewed_at > WATCHED_S - RENEW_S:
            self._go_on()
        if self.lost:
            raise OSError(0, f"another {self.what} writes there, which took this one for killed, for it stood still")

    def _take_away(self, names: Iterable[str]) -> None:
        for name in names:
            with contextlib.suppress(*_TROUBLE):  # gone meanwhile
                self.folder.delete_file(name)

    def end(self) -> None:
        """Takes its object away."""
        self.over.set()
        if self.thread.ident is not None:
            self.thread.join()
        self._take_away([self.own])
