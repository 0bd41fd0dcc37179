"""pyspark's daemon, the parent of all Python workers, with an audit's modules imported before it forks.

Each worker would import the same modules by itself, some 0.8 s of processor time, and have them in memory of its own.
For sessions that the auditor starts on this machine: ``spark.python.daemon.module``. Source: pyspark/daemon.py
"""

from __future__ import annotations

import contextlib
import importlib
import os

from pyspark import daemon

LOADED = ("pyspark.worker", "auditor.spark.jobs", "auditor.base.machine_code", "auditor.replay.reading.replica_reader")
ONE_THREAD = "OPENBLAS_NUM_THREADS"  # numpy's library would start others, which a fork leaves behind


def load() -> None:
    """Import :data:`LOADED`. An import error here is left to the worker that needs the module."""
    before = os.environ.get(ONE_THREAD)
    os.environ[ONE_THREAD] = "1"
    for name in LOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if before is None:
        del os.environ[ONE_THREAD]
    else:
        os.environ[ONE_THREAD] = before


if __name__ == "__main__":
    load()
    # Or all workers would draw the same random numbers.
    os.register_at_fork(after_in_child=importlib.import_module("numpy").random.seed)
    daemon.manager()
