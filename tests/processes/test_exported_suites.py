"""The suites in somebody else's great-expectations project say what the audit's own run says: DuckDB with pandas."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from auditor.cli import main
from auditor.pipeline.options import AuditOptions
from auditor.rules.expectations.measures import MEASURES
from tests import corpora
from tests.audited import published
from tests.conftest import ROOT
from tests.exported_suites import blocks, of_the_audit, placed, said

OURS = re.compile(r"violations|steady|sum_to_whole")


@pytest.fixture(scope="module", params=["healthy-41", "altered-41", "hanging-36"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An audit with all tables and two kept runs, the exported suites, and an empty project."""
    where = tmp_path_factory.mktemp(request.param)
    for run_id in ("1", "2"):
        published(
            AuditOptions(
                (str(corpora.unpack(request.param)),), where / "OUT", records=True, tables=True, expectations=True,
                as_of=corpora.manifest(request.param)["copied_at"], history=where / "HISTORY", run_id=run_id,
            )
        )  # fmt: skip
    assert main(["expectations", "--export", str(where / "EXPORT")]) == 0
    (where / "PROJECT").mkdir()
    return where


def test_results_are_those_of_the_audits_own_run(folder: Path) -> None:
    given: dict[str, Any] = {}
    for code in blocks()[:2]:
        exec(placed(code, folder), given)
    found, expected = said(given["results"]), of_the_audit(folder / "OUT")
    assert {key: met for key, (met, _) in found.items() if key in expected} == {
        k: met for k, (met, _) in expected.items()
    }
    for key, (_, broken) in expected.items():
        assert (found[key][1] or 0) == (broken or 0), key
    assert {name for name, _ in found} >= {
        "batches",
        "batches_counts",
        "blocked_counts",
        "logs_judged",
        "run",
        "findings",
    }
    assert (folder / "PROJECT" / "gx" / "uncommitted" / "data_docs" / "local_site" / "index.html").is_file()


def test_what_is_wrong_fails_where_it_is(folder: Path) -> None:
    """By their manifests: a checksum that is wrong and a tail that is torn, transactions that hang, or nothing."""
    failed = {key for key, (met, _) in of_the_audit(folder / "OUT").items() if not met}
    name = folder.name.rstrip("0123456789")
    if name.startswith("healthy"):
        assert not failed
    elif name.startswith("altered"):
        assert {
            ("batches_counts", "every batch has the CRC that it says"),
            ("logs_judged", "every byte could be decoded"),
        } <= failed
    else:
        assert ("blocked_counts", "no partition is blocked for longer than is normal") in failed
        assert ("transaction_partitions_counts", "no transaction hangs") in failed


def test_a_suite_has_nothing_that_only_this_package_knows(tmp_path: Path) -> None:
    """Loaded by an interpreter that has great-expectations and not this package, each expectation by its type."""
    assert main(["expectations", "--export", str(tmp_path)]) == 0
    suites = sorted((tmp_path / "suites").glob("*.json"))
    types = {e["type"] for path in suites for e in json.loads(path.read_text(encoding="utf-8"))["expectations"]}
    assert len(suites) > 20
    assert not [name for name in types if OURS.search(name)]
    code = (
        "import sys, json, pathlib, great_expectations as gx\n"
        "for path in pathlib.Path(sys.argv[1]).glob('*.json'):\n"
        "    gx.ExpectationSuite(**json.loads(path.read_text()))\n"
        "assert not any(name.startswith('auditor') for name in sys.modules)\n"
    )
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {"GX_ANALYTICS_ENABLED": "false"}
    subprocess.run([sys.executable, "-c", code, tmp_path / "suites"], check=True, env=env, cwd=tmp_path)


def test_each_table_has_its_columns_where_nothing_else_ran(tmp_path: Path) -> None:
    code = "import sys; from auditor.cli import main; sys.exit(main(sys.argv[1:]))"
    subprocess.run([sys.executable, "-c", code, "expectations", "--export", tmp_path], check=True, cwd=ROOT)
    for table in (*MEASURES, "findings", "logs"):
        suite = json.loads((tmp_path / "suites" / f"{table}.json").read_text(encoding="utf-8"))
        assert suite["expectations"][0]["type"].startswith("expect_table_columns_to_match_"), table


def test_the_same_release_writes_the_same_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert main(["expectations", "--export", str(tmp_path / name)]) == 0
    first, second = ({p.relative_to(f): p.read_bytes() for p in f.rglob("*") if p.is_file()}
                     for f in (tmp_path / "a", tmp_path / "b"))  # fmt: skip
    assert first == second


def test_a_folder_that_cannot_be_written_is_a_users_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    assert main(["expectations", "--export", str(tmp_path / "file")]) == 2
    assert "cannot write into" in capsys.readouterr().err
