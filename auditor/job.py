"""Entry point of ``spark-submit auditor/job.py ARGS``: ``auditor audit ARGS`` on the submitted session.

``job.py dashboard ARGS`` is ``auditor dashboard ARGS``, for installations of the auditor on Spark only (Airflow).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

if __package__ in (
    None,
    "",
):  # run as a file: the package is the folder that this one lies in, unless --py-files brought it
    here = Path(__file__).resolve().parent
    sys.path[:] = [p for p in sys.path if Path(p).resolve() != here]  # else its modules could be imported by two names
    sys.path.append(str(here.parent))

from auditor.cli import main

if __name__ == "__main__":
    os.environ["SPARK_SUBMIT_MODE"] = "1"
    words = sys.argv[1:]
    if words[:1] != ["dashboard"]:
        sys.exit(main(["audit", *words]))
    from auditor.spark import session

    spark = session.start(None)  # it has no work for Spark, but YARN takes a driver without a session for a failed one
    status = main(words)
    spark.stop()
    sys.exit(status)
