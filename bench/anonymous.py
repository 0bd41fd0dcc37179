"""The anonymous memory of what is measured: a process and all that it started, by what they are; and the processor time
of those that read."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from pathlib import Path

from bench.quiet import STIME, UTIME

SAMPLED_EVERY = 0.02  # seconds


class Anonymous(threading.Thread):
    """Watches the anonymous memory (RssAnon) of a process, the driver, and all below it: JVM, worker; and all of them
    together as ``all``."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid, self.most, self.over = pid, dict[str, int](), threading.Event()
        self.ticks: dict[int, int] = {}  # of each worker, when it was last seen
        self.start()

    def run(self) -> None:
        """Samples until it is ended."""
        while not self.over.wait(SAMPLED_EVERY):
            pids = {pid: self._kind(pid) for pid in (self.pid, *below(self.pid))}
            now = [(kind, anonymous(pid)) for pid, kind in pids.items()]
            self.ticks |= {pid: max(ticks(pid), self.ticks.get(pid, 0)) for pid, k in pids.items() if k == "worker"}
            now.append(("all", sum(size for _, size in now)))
            for kind, size in now:
                self.most[kind] = max(self.most.get(kind, 0), size)

    def _kind(self, pid: int) -> str:
        if pid == self.pid:
            return "driver"
        try:
            # Not by its name: what the JVM is about to start has the name of a thread, and the JVM's memory.
            return "JVM" if Path(f"/proc/{pid}/exe").readlink().name == "java" else "worker"
        except OSError:
            return "worker"

    def of_workers(self) -> float:
        """Seconds of processor time of all workers together, each until it was last seen."""
        return sum(self.ticks.values()) / os.sysconf("SC_CLK_TCK")

    def end(self) -> dict[str, int]:
        """The most bytes that one process of each kind had, and that all had together."""
        self.over.set()
        self.join()
        return self.most


def anonymous(pid: int) -> int:
    """Bytes of anonymous memory of a process, 0 where it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon")), 0)


def ticks(pid: int) -> int:
    """Clock ticks of processor time of a process, 0 where it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[UTIME]) + int(fields[STIME])


def below(pid: int) -> Iterable[int]:
    """All processes that a process started, and those that they did."""
    waiting = [pid]
    while waiting:
        try:
            children = Path(f"/proc/{waiting[0]}/task").glob("*/children")
            found = [int(word) for file in children for word in file.read_text().split()]
        except OSError:
            found = []
        waiting = waiting[1:] + found
        yield from found
