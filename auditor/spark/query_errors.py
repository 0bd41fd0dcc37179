"""Why a question to Spark failed: for a mistake in it, since a Python worker died, or for what is nobody's mistake."""

from __future__ import annotations

import errno
import os
import re

from pyspark.errors import PySparkException

from auditor.spark.adopted import lacking

try:
    from py4j.protocol import Py4JError
except ImportError:  # Spark Connect alone
    FAILED: tuple[type[Exception], ...] = (PySparkException,)  # how a job's end comes to the driver
else:
    FAILED = (PySparkException, Py4JError)

# An executor that is lost takes its workers along: what a file costs may have been too much for its container.
DIED = re.compile(r"Python worker exited|ExecutorLostFailure")
OURS = re.compile(r'auditor[/\\](?:connectors|spark)[/\\](?!worker_daemon)\w+\.py", line')  # in a trace of Python's
CONDITION = re.compile(r"(?:^|: )(\[[A-Z][A-Z0-9_.]+\] .*)$", re.MULTILINE)  # [DIVIDE_BY_ZERO] Division by zero.
RAISED = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)")
CAUSE = re.compile(r"^Caused by: (.*)$", re.MULTILINE)


def worker_died(error: BaseException) -> bool:
    """Whether a job failed since Python workers died over a task."""
    return DIED.search(str(error)) is not None


def mistake(error: BaseException) -> str | None:
    """What is wrong with the question, in one line; None where Spark failed, or a program of ours in it."""
    said = str(error).strip()
    lacks_room = "OutOfMemoryError" in said or os.strerror(errno.ENOSPC) in said
    no_answer = not isinstance(error, PySparkException) and "Trace:" not in said and "\n\tat " not in said
    stopped = isinstance(error.__context__, KeyboardInterrupt)
    if worker_died(error) or lacks_room or no_answer or stopped or OURS.search(said) or lacking(error):
        return None
    for pattern in (RAISED, CONDITION, CAUSE):
        if found := pattern.findall(said):
            return str(found[-1]).strip()
    return said.splitlines()[0] if said else type(error).__name__
