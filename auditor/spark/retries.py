"""Reading in a worker of Spark's, and in a process apart where workers died over the same work before.

A worker that dies takes its task along, and Spark starts the task again. From the third attempt on files are read
apart (:mod:`auditor.pipeline.isolation`), so that the one which kills is named, while all else is audited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from auditor.connectors import gate
from auditor.pipeline.isolation import read_apart

Task = TypeVar("Task")
Result = TypeVar("Result")

FROM_ATTEMPT = 2  # counted from 0; Spark gives a task four


def read_each(tasks: Sequence[Task], read: Callable[[Task], Result]) -> Iterator[Result]:
    """``read`` of each task in turn; in a process apart where workers of Spark's died over these tasks before."""
    if died_before():
        yield from read_apart(tasks, read)
        return
    with gate.guarded({}):
        for task in tasks:
            yield read(task)


def died_before() -> bool:
    """Whether Spark tries the running task again because it failed before, more than once."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context is not None and context.attemptNumber() >= FROM_ATTEMPT
