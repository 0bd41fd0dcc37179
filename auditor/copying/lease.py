"""Two copies into one folder of a store: a store has no lock, so each says that it is there, and looks for others.

Each copy puts an object of its own beside the others', and only then lists what is there: of two that begin at once,
one at least sees the other. Who copies changes its object every few seconds. One that stays as it is for longer is of a
copy that was killed, and is taken away. No two clocks are compared, and a store needs but list what it took.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator

from auditor.base.errors import AuditInputError, StoreTrouble
from auditor.connectors import storage
from auditor.connectors.storage import REFUSED
from auditor.copying.store_target import StoreTarget
from auditor.copying.target import COPYING

RENEW_S = 10.0
WATCHED_S = 45.0  # for which another copy's object is watched: some renewals may be late
_SIZES = 100  # bytes of an object, one more each time: a list of the folder shows that it changed
_TROUBLE = (*REFUSED, AuditInputError, StoreTrouble)


@contextlib.contextmanager
def alone_in(uri: str) -> Iterator[Callable[[str], None]]:
    """While no other copy writes into a folder of a store. Gives what raises ``OSError`` once another copy took this
    one for killed, as when its machine stood still.

    Errors: :class:`AuditInputError` where another copy writes there, or the store cannot be written.
    """
    lease = _Lease(uri)
    try:
        lease.begin()
        yield lease.check
    finally:
        lease.end()


class _Lease:
    def __init__(self, uri: str) -> None:
        self.own, self.size = f"{COPYING}{uuid.uuid4().hex}", 1
        self.target = StoreTarget(uri, (self.own, b"."))
        self.renewed_at, self.lost, self.over = time.monotonic(), False, threading.Event()
        self.thread = threading.Thread(target=self._renew, daemon=True)

    def begin(self) -> None:
        """Waits until other copies are known to be gone, and says all the time that this one is there."""
        self.thread.start()
        first, until = self._others(), time.monotonic() + WATCHED_S
        while (now := self._others()) and time.monotonic() < until:
            if any(first.get(name) != size for name, size in now.items()):
                where = self.target.place.shown
                raise AuditInputError(
                    f"another copy is being written to {where}; wait for its end or choose another --out"
                )
            time.sleep(RENEW_S / 4)
        for name in now:
            with contextlib.suppress(*REFUSED):  # gone meanwhile
                self.target.remove("", name)

    def _there(self) -> dict[str, int]:
        """The objects of all copies, with their sizes by now."""
        found = storage.listing(self.target.place, deep=False).files
        return {entry.name: entry.size for entry in found if entry.name.startswith(COPYING)}

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
            self.target.put("", self.own, b"." * self.size)
            self.renewed_at = time.monotonic()

    def check(self, _folder: str = "") -> None:
        """Errors: ``OSError`` where another copy writes by now; those of the store where it does not tell."""
        if time.monotonic() - self.renewed_at > WATCHED_S - RENEW_S:
            self._go_on()
        if self.lost:
            raise OSError(0, "another copy writes there, which took this one for killed, for it stood still")

    def end(self) -> None:
        """Takes its object away."""
        self.over.set()
        self.thread.join()
        with contextlib.suppress(*REFUSED):
            self.target.remove("", self.own)
