"""What only a fresh Python shows: what it loads and registers, how much memory it takes, which processor it minds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from kafka.record.util import calc_crc32c

from tests import corpora
from tests.conftest import ROOT
from tests.corpora import CONFORMANCE
from tests.unit.test_codec_compression import CODECS


def test_a_plain_processor_gives_the_same(tmp_path: Path) -> None:
    """Numba told not to use the host's instructions must not: the process would end."""
    code = (
        "import numpy as np; from auditor.connectors.codec import primitives as c; assert not c.has_instructions()\n"
        "b = np.arange(32, dtype=np.uint8); print(hex(c.crc32c(b, 0, 32)), hex(c.crc32c(b, 0, 7)))"
    )
    environment = os.environ | {"NUMBA_CPU_NAME": "generic", "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0x46dd794e", hex(calc_crc32c(bytes(range(7))))]


@pytest.mark.parametrize("codec", CODECS)
def test_bombs_stop_at_the_limit(codec: int) -> None:
    """In a process of its own: the peak of this one may be high already."""
    code = f"from tests.unit.test_codec_compression import peak_growth; peak_growth({codec})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 12 * 1024


def test_a_spark_that_was_unpacked_has_an_archive_of_classes_too() -> None:
    """As on YARN: its Python comes as zips beside it, and no installation knows of it."""
    paths = [*map(str, sorted((Path(pyspark.__file__).parent / "python" / "lib").glob("*.zip"))), str(ROOT)]
    code = f"from auditor.spark import session; print(session.archive({sys.executable!r}).name)"
    env = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    ran = subprocess.run([sys.executable, "-S", "-c", code], env=env, capture_output=True, text=True, check=False)
    assert ran.stdout.endswith(".jsa\n"), ran.stderr


def test_neither_spark_nor_pandas_is_loaded() -> None:
    """Both take longer to import than a file to decode."""
    path = corpora.unpack("healthy-41") / "broker-1" / "shop.orders-0" / "00000000000000000000.log"
    code = (
        "import sys; from auditor.cli import main; status = main(sys.argv[1:]);"
        "sys.exit(status or int('pyspark' in sys.modules) + 2 * int('pandas' in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code, "decode", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert all(json.loads(line)["topic"] == "shop.orders" for line in done.stdout.splitlines())


def test_rows_for_spark_load_no_pandas() -> None:
    """Each worker would load it for its first list."""
    code = (
        "import sys; from auditor.spark.jobs import FACTS_ARROW as S, in_batches;"
        "assert next(in_batches([(b'', b'f')], S)).num_rows == 1;"
        "sys.exit('pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_the_command_ends_with_the_count() -> None:
    command = [sys.executable, "-m", "tests.conformance", str(CONFORMANCE / "producer_state.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "65 passed, 0 failed")


def test_suites_use_what_great_expectations_itself_registers() -> None:
    """In a process of its own: whoever reads an exported suite has no classes of ours."""
    code = (
        "import json, sys\nfrom auditor.pipeline import derived_tables\n"
        "from auditor.rules.expectations import suites\n"
        "from great_expectations.expectations.registry import list_registered_expectation_implementations as known\n"
        "names = [*suites.TABLES_JUDGED, *suites.views(suites.DUCKDB)]\n"
        "used = [type(each) for name in names for each in suites.expectations(name)]\n"
        "modules = sorted({one.__module__.partition('.')[0] for one in used})\n"
        "json.dump([sorted(known()), sorted({one.expectation_type for one in used}), modules], sys.stdout)\n"
    )
    done = subprocess.run([sys.executable, "-"], input=code, capture_output=True, text=True, check=True)
    known, used, modules = json.loads(done.stdout)
    assert modules == ["great_expectations"]
    assert {"expect_column_values_to_be_between", "expect_column_values_to_not_be_null"} <= set(used) <= set(known)
