"""The entry for ``spark-submit auditor/job.py ARGS``: the same as ``auditor audit ARGS`` on the submitted session."""

from __future__ import annotations

import os
import sys
from pathlib import Path

if __package__ in (None, ""):  # run as a file: the packages lie beside this one, unless --py-files brought them
    sys.path.append(str(Path(__file__).resolve().parents[1]))

from auditor.cli import main

if __name__ == "__main__":
    os.environ["SPARK_SUBMIT_MODE"] = "1"
    sys.exit(main(["audit", *sys.argv[1:]]))
