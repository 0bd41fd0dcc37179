"""Sessions that others started: they learn the data sources, and their workers the Python that has this package."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
from typing import TYPE_CHECKING
from weakref import WeakSet

from auditor.base.errors import require

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TOLD: WeakSet[SparkSession] = WeakSet()
LACKS = re.compile(r"(?:No module named '|has no package )(auditor|numpy|numba|pyarrow|cramjam|xxhash)\b")


def register(spark: SparkSession) -> None:
    """Makes the data sources ``kafka_log_batches`` and the like known to a session, classic or Connect.

    A local session whose workers were not given a Python gets this one: the default, ``python3`` on the PATH, need not
    have this package.
    """
    require("pyspark")
    from auditor.connectors.tables.sources import register_all

    adopt(spark)
    register_all(spark)


def register_running() -> None:
    """The same for the session that runs, if one does. An old or closed session is left as it is."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    with contextlib.suppress(PySparkException, AttributeError):
        if (session := SparkSession.getActiveSession()) is not None:
            register(session)


def adopt(spark: SparkSession) -> SparkSession:
    """The session, whose workers on this machine use this Python where nobody chose another."""
    _say_once(spark)
    context = None if "connect" in type(spark).__module__ else spark.sparkContext
    chosen = "PYSPARK_PYTHON" in os.environ or (context and context.getConf().get("spark.pyspark.python"))
    if context is not None and context.master.startswith("local") and not chosen:
        context.pythonExec = sys.executable
    return spark


def _say_once(spark: SparkSession) -> None:
    """Logs, once for each session, what would keep its workers from importing what lies beside the input."""
    from auditor.spark import session

    if spark not in _TOLD and session.imports_from_directory(spark):
        logging.getLogger("auditor").warning(session.IMPORTS_FROM_DIRECTORY)
    _TOLD.add(spark)


def lacking(error: BaseException) -> str | None:
    """What to say where Spark's workers lack this package or its libraries; None for any other error."""
    from auditor.connectors.tables.sources import NO_PACKAGE

    found = LACKS.search(str(error))
    return None if found is None else NO_PACKAGE.format(found[1])
