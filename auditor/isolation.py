"""Reading copies in a process apart, once workers have died over them: a file that kills its reader is left out.

A worker that dies takes its task along, and Spark starts the task again. From the third attempt on the copies are read
by a child process that says which file it opens. When it dies, that file is refused to the next child, so that it ends
among the unreadable files while all else is audited. What killed it is in the executor's standard error.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from auditor.facts import CopyFacts
from auditor.replay.copy import CopyTask, read_copy
from auditor.replay.text import TextTask, read_text_copies
from connectors import storage

FROM_ATTEMPT = 2  # counted from 0; Spark gives a task four
MAX_REFUSED = 8  # files of one copy; then the copy as a whole is refused
ALL = ""  # in place of a file's name: every file
Task = TypeVar("Task")
Result = TypeVar("Result")

_START = multiprocessing.get_context("spawn")  # a fork would inherit locks that threads of Arrow or numba hold


def read_task(task: CopyTask | TextTask) -> Iterator[CopyFacts]:
    """The facts of a task's copies, one after the other."""
    if isinstance(task, TextTask):
        yield from read_text_copies(task)
    else:
        yield read_copy(task)


def read_list(tasks: Sequence[Task], read: Callable[[Task], Iterator[Result]]) -> Iterator[Result]:
    """What ``read`` gives for each task in turn; from a process apart where workers died over the list before."""
    if died_before():
        yield from read_apart(tasks, read)
        return
    for task in tasks:
        yield from read(task)


def died_before() -> bool:
    """Whether Spark tries the running task again because it failed before, more than once."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context is not None and context.attemptNumber() >= FROM_ATTEMPT


def read_apart(tasks: Sequence[Task], read: Callable[[Task], Iterator[Result]]) -> Iterator[Result]:
    """What ``read`` gives for each task, from a child; what kills a child is an ``unreadable`` file to the next one.

    ``read`` is a function of a module, and gives anything but text: that is how the child tells of files. Cost: a
    second or two for a child, of which there is one more than deaths, and memory for all that one task gives. Errors:
    ``RuntimeError`` where a child dies with nothing left to refuse.
    """
    done, refused = 0, dict[str, str]()
    while done < len(tasks):
        receiver, sender = _START.Pipe(duplex=False)
        child = _START.Process(target=_read, args=(tasks[done:], read, refused, sender))
        child.start()
        sender.close()
        opened = ALL
        while (message := _received(receiver)) is not None:
            if isinstance(message, str):
                opened = message
            else:
                yield from message
                done, opened, refused = done + 1, ALL, {}
        child.join()
        if done < len(tasks):
            _refuse(opened, _ending(child.exitcode or 0), refused)


def _received(receiver: Connection) -> str | list[Any] | None:
    """What the child says next: a file's name as it opens it, or what its next task gave; None at its end."""
    try:
        message: str | list[Any] = receiver.recv()
    except EOFError:
        return None
    return message


def _refuse(opened: str, ending: str, refused: dict[str, str]) -> None:
    """Refuse the file that was open at a death; all of them where that did not help."""
    if ALL in refused:
        raise RuntimeError(f"the process that reads a copy ends ({ending}) whatever is left out of it")
    name = ALL if opened in refused or len(refused) >= MAX_REFUSED else opened
    refused[name] = f"reading it ends the process: {ending}"


def _ending(status: int) -> str:
    """How a process ended, in words."""
    return signal.Signals(-status).name if status < 0 else f"exit status {status}"


def _read(
    tasks: Sequence[Task], read: Callable[[Task], Iterator[Result]], refused: dict[str, str], sender: Connection
) -> None:
    """The child: reads task after task; ``refused`` are files of the first one that stay closed, with the reason."""

    def gate(name: str) -> str:
        if reason := refused.get(name) or refused.get(ALL, ""):
            return reason
        sender.send(name)
        return ""

    storage.gate = gate
    for task in tasks:
        sender.send(list(read(task)))
        refused = {}
