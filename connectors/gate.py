"""Who is asked before a file is opened: a file that kills its reader stays closed, and none holds it up for good.

Whoever reads for others sets this up: a worker of Spark's, and the process that finds out which file kills
(:mod:`auditor.processes.isolation`). Paths are those of places, without their URI.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

ALL = ""  # in place of a path: every file
PATIENCE_S = 3600  # for one file; whoever takes longer is ended by SIGALRM


def _open_to_all(path: str) -> str:
    return ""


_ask: Callable[[str], str] = _open_to_all


def closed(path: str) -> str:
    """Why the file at ``path`` is not to be opened; empty if it is."""
    return _ask(path)


def _nobody(path: str) -> None:
    return None


@contextmanager
def guarded(
    refused: Mapping[str, str], opened: Callable[[str], None] = _nobody, patience_s: float = PATIENCE_S
) -> Iterator[None]:
    """While files are read: ``refused`` (path, or ``ALL``, -> why) stay closed, ``opened`` is called with the others.

    The process ends where ``patience_s`` seconds pass with neither another file opened nor the end of the block.
    """
    global _ask

    def ask(path: str) -> str:
        if reason := refused.get(path) or refused.get(ALL, ""):
            return reason
        signal.setitimer(signal.ITIMER_REAL, patience_s)
        opened(path)
        return ""

    before, _ask = _ask, ask
    try:
        yield
    finally:
        _ask = before
        signal.setitimer(signal.ITIMER_REAL, 0)
