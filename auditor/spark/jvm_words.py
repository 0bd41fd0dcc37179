"""What the JVM says on standard error, without the one line that Spark makes it say at every start.

Spark's launcher asks for the module jdk.incubator.vector whatever it is told, and Java (ModuleBootstrap) has no
option that keeps it from warning about incubating modules. So the JVM's standard error passes through here, and that
line alone is dropped.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

DROPPED = b"WARNING: Using incubator modules: jdk.incubator.vector"
EXIT_S = 1.0  # that the last words of a JVM that did not start are waited for


@contextlib.contextmanager
def filtered() -> Iterator[None]:
    """Processes started within write to standard error through a thread, for as long as they live.

    Nothing changes where there is no standard error.
    """
    try:
        ours = os.dup(2)
    except OSError:
        yield
        return
    reading, writing = os.pipe()
    os.dup2(writing, 2)
    os.close(writing)
    passing = threading.Thread(target=_pass_on, args=(reading, ours), name="words of the JVM", daemon=True)
    passing.start()
    started = False
    try:
        yield
        started = True
    finally:
        os.dup2(ours, 2)
        if not started:
            passing.join(EXIT_S)


def _pass_on(reading: int, writing: int) -> None:
    """Everything but the dropped line, as it comes: only what may become that line waits for its end."""
    held, at_start = b"", True
    with contextlib.suppress(OSError):
        while data := os.read(reading, 1 << 16):
            *lines, held = (held + data).split(b"\n")
            for line in lines:
                if not (at_start and line.rstrip() == DROPPED):
                    os.write(writing, line + b"\n")
                at_start = True
            if held and not (at_start and DROPPED.startswith(held)):
                os.write(writing, held)
                held, at_start = b"", False
        os.write(writing, held)
    os.close(reading)
    os.close(writing)
