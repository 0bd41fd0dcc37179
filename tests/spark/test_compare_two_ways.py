"""A comparison gives the same rows on Spark and in processes of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from auditor import running
from tests.bare_broker import BEGAN
from tests.compared import Directory, Sent, compared, sent


@pytest.mark.parametrize("parts", [1, 2])
def test_rows_are_the_same(spark: SparkSession, tmp_path: Path, parts: int) -> None:
    """Records are missing, repeated, moved and changed; with two partitions in B they are compared by key."""
    records = [record._replace(key=b"key-%d" % (n % 6)) for n, record in enumerate(sent(*range(120)))]
    theirs = [*records[:20], *records[25:60], *records[50:90], *records[100:110], *records[90:100], *records[112:]]
    theirs[10] = theirs[10]._replace(value=b"other")
    theirs.append(Sent(b"key-0", None, BEGAN))
    a = Directory(tmp_path / "a", "t-0")
    a.write("t-0", records)
    b = Directory(tmp_path / "b", *(f"t-{n}" for n in range(parts)))
    for n in range(parts):
        b.write(f"t-{n}", [record for record in theirs if int((record.key or b"")[4:]) % parts == n])
    paths = a.save(), b.save()
    inline = compared(*paths)
    runner = running.runner_for("local[2]", spark)
    assert compared(*paths, runner=runner) == inline
    assert compared(paths[0], paths[0], runner=runner) == compared(paths[0], paths[0])
    assert {"missing", "duplicated", "changed", "extra"} <= {row["kind"] for row in inline.rows}
