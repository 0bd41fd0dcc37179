"""An end for what takes too long: by processor time, since a machine that others use may take any other time."""

from __future__ import annotations

import faulthandler
import signal


def ends_after(seconds: int) -> None:
    """Ends this process with a stack trace once it has used so many seconds more, in compiled code too; 0: does not."""
    faulthandler.register(signal.SIGPROF, chain=True)
    signal.setitimer(signal.ITIMER_PROF, seconds)
