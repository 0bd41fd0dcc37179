"""How far Spark's running jobs are, asked while they run."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAUSE_S = 0.5


@contextlib.contextmanager
def watched(spark: SparkSession, heard: Callable[[float], None] | None) -> Iterator[None]:
    """Says again and again which part of the running jobs' tasks is done. Says nothing over Spark Connect, which has no
    such news, and where nobody listens."""
    tracker = None
    if heard is not None:
        with contextlib.suppress(Exception):  # of Connect, in the words of many versions
            tracker = spark.sparkContext.statusTracker()
    if tracker is None or heard is None:
        yield
        return
    over = threading.Event()

    def ask() -> None:
        while not over.wait(PAUSE_S):
            stages = [
                tracker.getStageInfo(stage)
                for job in tracker.getActiveJobsIds()
                for stage in getattr(tracker.getJobInfo(job), "stageIds", ())
            ]
            known = [stage for stage in stages if stage is not None]
            tasks = sum(stage.numTasks for stage in known)
            if tasks and not over.is_set():
                heard(sum(stage.numCompletedTasks for stage in known) / tasks)

    asking = threading.Thread(target=ask, name="progress of Spark", daemon=True)
    asking.start()
    try:
        yield
    finally:
        over.set()
        asking.join(2 * PAUSE_S)
