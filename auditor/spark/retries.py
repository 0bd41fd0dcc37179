"""Reading in a worker of Spark's: apart where attempts at the same work failed before, and, where a store refuses
files, again by another attempt.

A worker that dies takes its task along, and so does a machine that is taken away; Spark starts the task again, and does
not say which it was. So nothing is concluded from the number of attempts: later ones read apart
(:mod:`auditor.processes.isolation`), where each file is noted before it is opened, and a process that outlives the
reader asks the system how it ended. A file is refused only where that was over it. Where a machine goes all of them go,
and what they found goes nowhere.

A store that refuses for now ends an attempt too. In the last one what it still refuses, for as long as all attempts
together would have asked, is unreadable, however many of them were lost for other reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from auditor.connectors.stores import remote_files, retries, storage
from auditor.processes.isolation import read_apart

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
    return int(said) if said.isdigit() else retries.ROUNDS


def read_each(
    tasks: Sequence[Task], read: Callable[[Task], Result], tries: int = retries.ROUNDS, *, apart: bool | None = None
) -> Iterator[Result]:
    """``read`` of each task in turn; in a process apart where attempts at these tasks failed before.

    ``tries``: how often Spark tries this; ``apart``: whether one ended early, where somebody knows.
    """
    if failed_before() if apart is None else apart:
        yield from read_apart(tasks, read)
        return
    with storage.guarded({}), retries.resigned(rounds(tries)), remote_files.coming(remote_files.of_work(tasks)):
        for task in tasks:
            yield read(task)


def failed_before() -> bool:
    """Whether Spark tries the running task again after it failed, or was lost, more than once: a reason to take care,
    and none to leave anything out."""
    return _attempt() >= FROM_ATTEMPT


def rounds(tries: int) -> int | None:
    """How patient the running attempt is with a store before what it refuses is unreadable; None while Spark will try
    the task again. It is as many rounds as :mod:`auditor.connectors.stores.retries` has for all of them: how many of the
    attempts before this one the store had ended nobody knows."""
    return retries.ROUNDS if _attempt() + 1 >= min(tries, retries.ROUNDS) else None


def _attempt() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.attemptNumber()
