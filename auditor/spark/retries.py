"""Reading in a worker of Spark's: apart where workers died over the same work before, and, where a store refuses files,
again by another attempt.

A worker that dies takes its task along, and Spark starts the task again. From the third attempt on files are read
apart (:mod:`auditor.pipeline.isolation`), so that the one which kills is named, while all else is audited. A store that
refuses for now ends an attempt too; in the last one what it still refuses is unreadable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from auditor.connectors import ahead, asking, gate
from auditor.pipeline.isolation import read_apart

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Task = TypeVar("Task")
Result = TypeVar("Result")

FROM_ATTEMPT = 2  # counted from 0; Spark gives a task four


def attempts(spark: SparkSession) -> int:
    """How often Spark tries a task, as far as it says so: four times, on one machine as its master says."""
    from auditor.spark.session import ATTEMPTS_OF, LOCAL_ATTEMPTS

    if found := LOCAL_ATTEMPTS.fullmatch(spark.conf.get("spark.master", "") or ""):
        return int(found[1] or 1)
    said = spark.conf.get(ATTEMPTS_OF, "") or ""
    return int(said) if said.isdigit() else asking.ROUNDS


def read_each(
    tasks: Sequence[Task], read: Callable[[Task], Result], tries: int = asking.ROUNDS, *, apart: bool | None = None
) -> Iterator[Result]:
    """``read`` of each task in turn; in a process apart where workers of Spark's died over these tasks before.

    ``tries``: how often Spark tries this; ``apart``: whether workers died, where somebody knows.
    """
    if died_before() if apart is None else apart:
        yield from read_apart(tasks, read)
        return
    with gate.guarded({}), asking.resigned(rounds(tries)), ahead.coming(ahead.of_work(tasks)):
        for task in tasks:
            yield read(task)


def died_before() -> bool:
    """Whether Spark tries the running task again because it failed before, more than once."""
    return _attempt() >= FROM_ATTEMPT


def rounds(tries: int) -> int | None:
    """How patient the running attempt is with a store before what it refuses is unreadable; None while Spark will try
    the task again. All attempts together are as many rounds as those of :mod:`auditor.connectors.asking`."""
    return max(1, asking.ROUNDS + 1 - tries) if _attempt() + 1 >= min(tries, asking.ROUNDS) else None


def _attempt() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.attemptNumber()
