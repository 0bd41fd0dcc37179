"""Files that crash the process that opens them, once or always: what a bug in a native library would do to a worker."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from auditor import running
from auditor.connectors.stores.storage import StorageLocation
from auditor.pipeline import plan
from auditor.pipeline.options import AuditOptions
from tests import corpora


class CrashingPlace(NamedTuple):
    """A place like any other, but that the process that opens one of its files ends.

    ``how``: exit, segfault, kill, raise or hang. ``once``: a file made the first time, which prevents more.
    """

    uri: str
    path: str
    view: None
    file: str
    how: str
    once: str

    def child(self, name: str) -> StorageLocation:
        if name.endswith(self.file) and not (self.once and os.path.exists(self.once)):
            if self.once:
                Path(self.once).touch()
            die(self.how)
        return StorageLocation(self.uri, self.path).child(name)


def die(how: str) -> None:
    if how == "exit":
        os._exit(7)
    if how == "segfault":
        ctypes.string_at(0)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "hang":
        time.sleep(600)
    raise ZeroDivisionError("a mistake of the reader's own")


def crashing_tasks(file: str, how: str, once: str = "") -> Callable[..., list[object]]:
    """What to put in place of :func:`auditor.pipeline.plan.replica_tasks`, so that whoever opens such a file ends."""
    tasks_of = plan.replica_tasks

    def crashing(*arguments: object) -> list[object]:
        return [crashing_task(task) for task in tasks_of(*arguments)]  # type: ignore[arg-type]

    def crashing_task(task: object) -> object:
        return replace(task, place=CrashingPlace(*task.place, file, how, once))  # type: ignore[type-var, attr-defined]

    return crashing


def main(name: str, out: str, file: str, how: str, once: str, master: str = "local[1]") -> int:
    """An audit of a corpus with such a file, as the console script would run it."""
    plan.replica_tasks = crashing_tasks(file, how, once)  # type: ignore[assignment]
    as_of = corpora.manifest(name)["copied_at"]
    options = AuditOptions((str(corpora.unpack(name)),), Path(out), records=True, as_of=as_of, master=master)
    return running.audit(options, lambda _: None).exit_code()
