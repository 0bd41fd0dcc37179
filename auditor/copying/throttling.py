"""Rate, priority and memory of a copy on the host of a broker."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import platform
import re
import sys

DEFAULT_RATE = "50MB"  # bytes a second of what is read
_RATE = re.compile(r"(\d{1,12}(?:\.\d{1,6})?) ?([kmgt]?)(i?)(?:B(?:/s)?)?", re.IGNORECASE)
_TIME = re.compile(r"(\d{1,5}) ?([dhm])", re.IGNORECASE)
_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000}
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}  # the number of the system call: the C library has no name for it
_OF_THIS_PROCESS, _IDLE = 1, 3 << 13
_ARENAS, _OWN_MAP, _TRIM = -8, -3, -1  # numbers of glibc's mallopt
_LARGE = 128 << 10  # bytes


def rate(text: str) -> int:
    """Parse a rate such as ``50MB``, ``200 kB/s`` or ``1GiB`` as bytes per second; 0 (no limit) for ``0`` and ``none``.

    Errors: :class:`argparse.ArgumentTypeError` for any other text.
    """
    if text == "none":
        return 0
    match = _RATE.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"invalid rate {text!r}: expected 50MB, 200kB or 1GiB (per second), or none")
    number, unit, binary = match.groups()
    value = float(number) * (1024 if binary else 1000) ** _POWERS[unit.lower()]
    if 0 < value < 1000:
        raise argparse.ArgumentTypeError(f"invalid rate {text!r}: below 1 kB per second (plain numbers are bytes)")
    return int(value)


def keep_time(text: str) -> int:
    """Parse a time such as ``30d``, ``12h`` or ``90m`` as milliseconds.

    Errors: :class:`argparse.ArgumentTypeError` for any other text.
    """
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration: expected for example 30d, 12h or 90m")
    return int(match[1]) * _MS[match[2].lower()]


def lower_priority() -> None:
    """Give this process the lowest CPU priority and, on Linux, the idle I/O class, as far as the system permits."""
    with contextlib.suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, 0, 19)
    number = _IOPRIO_SET.get(platform.machine()) if sys.platform == "linux" and sys.maxsize > 2**32 else None
    if number is not None:
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).syscall(number, _OF_THIS_PROCESS, 0, _IDLE)


def trim_freed_memory() -> None:
    """Return freed memory to the system, as far as glibc permits: by default it keeps some per thread, and tens of
    MiB after large blocks. Arrow is told to use glibc, which must happen before it is loaded."""
    if sys.platform != "linux":
        return
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    with contextlib.suppress(OSError, AttributeError):
        for option, value in ((_ARENAS, 1), (_OWN_MAP, _LARGE), (_TRIM, _LARGE)):
            ctypes.CDLL(None).mallopt(option, value)
