"""When each log was read, and whether a broker of this machine wrote to it meanwhile: then its clock is ours.

A running broker holds a lock on the file ``.lock`` of each of its log directories. The kernel lists the locks that are
held on this machine: nothing is locked or tried for that, and a directory that lies on another machine has none here.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from pathlib import Path

from auditor.connectors.logdir.copy_lists import Reading
from auditor.connectors.stores.storage import Place

LOCKS, MACHINE = Path("/proc/locks"), Path("/proc/sys/kernel/random/boot_id")
LOCK_FILE = ".lock"
_HELD = re.compile(r"^\d+: (?:POSIX|OFDLCK) +ADVISORY +WRITE +-?\d+ +([0-9a-f]+):([0-9a-f]+):(\d+) ", re.MULTILINE)


def now_ms() -> int:
    """The time by this machine's clock."""
    return time.time_ns() // 1_000_000


def machine() -> str:
    """What this machine has since it was started, and no other; empty where nothing tells."""
    try:
        return MACHINE.read_text().strip()
    except OSError:
        return ""


def held_by_a_broker(log_dir: Place) -> bool:
    """Whether a process of this machine holds the lock of a log directory. False where nothing tells."""
    if log_dir.uri or log_dir.view is not None:
        return False
    try:
        found = os.lstat(log_dir.child(LOCK_FILE).path)
        listed = LOCKS.read_text()
    except OSError:
        return False
    at = os.major(found.st_dev), os.minor(found.st_dev), found.st_ino
    return any((int(m[1], 16), int(m[2], 16), int(m[3])) == at for m in _HELD.finditer(listed))


def readings(found: Sequence[Reading], *, live: bool) -> tuple[Reading, ...]:
    """The readings of a log directory. ``live``: a broker held its lock before the first and after the last one."""
    return tuple(sorted(reading._replace(live=live) for reading in found))
