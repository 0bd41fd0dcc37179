"""Whether the machine is quiet while a side is measured: what other programs take would be counted as its time.

Before each side the bench waits until others take next to nothing; a side beside which they took more is run again, and
where that does not help, its row says so.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import TypeVar

SHARE = 0.1  # of a core: what others may take
TRIES = 3
SAMPLE = 1.0  # seconds
PATIENCE = 600.0  # seconds that a whole bench waits for others, all sides together
MARK = "BENCH_OF"  # in the environment of all that the bench starts
HOST = -1
KTHREADD = 2  # the parent of the kernel's threads, which write back what sides write
UTIME, STIME, STEAL = 11, 12, 8  # fields of /proc/PID/stat behind the name, of the first line of /proc/stat

T = TypeVar("T")
_marks: list[str] = []
_waited = 0.0
os.environ[MARK] = str(os.getpid())


def others(proc: Path = Path("/proc")) -> dict[int, float]:
    """Seconds of processor time that each process which the bench did not start has had so far, those that still run;
    under ``HOST`` what the machine's host took away from it (steal)."""
    found = {HOST: int((proc / "stat").read_text().split("\n", 1)[0].split()[STEAL])}
    for folder in proc.iterdir():
        if folder.name.isdecimal() and folder.name != str(os.getpid()):
            found[int(folder.name)] = _ticks(folder)
    return {pid: ticks / os.sysconf("SC_CLK_TCK") for pid, ticks in found.items()}


def _ticks(folder: Path) -> int:
    """Of a process that is none of the bench's; 0 for one of its own, of the kernel, or that is gone."""
    try:
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        if int(folder.name) == KTHREADD or int(fields[1]) == KTHREADD or _is_ours(folder):
            return 0
    except OSError:
        return 0
    return int(fields[UTIME]) + int(fields[STIME])


def _is_ours(folder: Path) -> bool:
    try:
        return f"{MARK}={os.environ[MARK]}".encode() in (folder / "environ").read_bytes().split(b"\0")
    except PermissionError:  # another user's
        return False


def taken(before: dict[int, float], after: dict[int, float]) -> float:
    """Seconds that others had between two looks; of a process that ended in between nothing is known."""
    return sum(max(0.0, seconds - before.get(pid, 0.0)) for pid, seconds in after.items())


def settle() -> None:
    """Waits until others take next to nothing, or patience is at its end."""
    global _waited
    while _waited < PATIENCE:
        before = others()
        time.sleep(SAMPLE)
        if taken(before, others()) <= SHARE * SAMPLE:
            return
        _waited += SAMPLE


def undisturbed(name: str, side: Callable[[], T]) -> T:
    """What a side gives, run again while others disturb it; of several runs the one that was disturbed least."""
    tries: list[tuple[float, T]] = []
    while not tries or (tries[-1][0] > SHARE and len(tries) < TRIES):
        settle()
        before, began = others(), time.monotonic()
        result = side()
        tries.append((taken(before, others()) / max(time.monotonic() - began, SAMPLE), result))
    share, result = min(tries, key=itemgetter(0))
    if share > SHARE:
        _marks.append(f"{name} (others took {share:.1f} of a core)")
    return result


def marks() -> list[str]:
    """The sides that were disturbed since this was asked last."""
    found = list(dict.fromkeys(_marks))
    _marks.clear()
    return found
