"""An audit through Spark Connect, for a process of its own: ``python -m tests.processes.connect_audit PATH AS_OF OUT``.

A server starts in this machine beside it; the session has no SparkContext.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from auditor import running
from auditor.pipeline.options import AuditOptions


def main(path: str, as_of: str, out: str) -> None:
    """Audits with everything."""
    os.environ["PYSPARK_PYTHON"] = sys.executable  # of the server's workers
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    assert type(spark).__module__.startswith("pyspark.sql.connect")
    options = AuditOptions((path,), Path(out), records=True, as_of=int(as_of), tables=True)
    running.audit(options, spark=spark)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
