"""The licence list is that of the lock, and nothing in it forbids the use of this project."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements.lock"
ROW = re.compile(r"^\| ([a-z0-9][\w.-]*) \| (\d[\w.+!]*) \| ([^|]+) \|", re.MULTILINE)


def made(folder: Path, lock: Path = LOCK) -> tuple[str, dict[str, list[dict[str, object]]]]:
    page, sbom = folder / "licenses.md", folder / "dist" / "sbom.json"
    subprocess.run([sys.executable, ROOT / "scripts" / "sbom.py", lock, page, sbom], check=True)
    return page.read_text(), json.loads(sbom.read_text())


def test_the_committed_list_names_what_the_lock_pins() -> None:
    pins = re.findall(r"^([\w.-]+)(?:\[.*\])?==([^\s;]+)", LOCK.read_text(), re.MULTILINE)
    rows = ROW.findall((ROOT / "docs" / "licenses.md").read_text())
    assert {(name, version) for name, version, _ in rows} == set(pins)


def test_no_licence_asks_for_the_source_of_users() -> None:
    rows = ROW.findall((ROOT / "docs" / "licenses.md").read_text())
    assert len(rows) > 50
    assert not [row for row in rows if re.search(r"\bA?GPL|General Public", row[2]) and "Lesser" not in row[2]]


def test_the_list_is_made_offline_from_the_lock(tmp_path: Path) -> None:
    page, sbom = made(tmp_path)
    licences = {name: licence.strip() for name, _, licence in ROW.findall(page)}
    assert licences["kafka-python"] == "Apache-2.0"
    assert licences["pyspark"].startswith("Apache")
    numpy = next(each for each in sbom["components"] if each["name"] == "numpy")
    pin = next(line for line in LOCK.read_text().splitlines() if line.startswith("numpy=="))
    assert pin.startswith(f"numpy=={numpy['version']}")
    assert numpy["properties"]


@pytest.mark.parametrize(
    ("line", "row"),
    [
        ("no-such-package-at-all==1.0 \\\n    --hash=sha256:" + "0" * 64, "not installed where this list was made"),
        (
            "pytest==0.0.1 ; sys_platform == 'win32' \\\n    --hash=sha256:" + "0" * 64,
            "MIT | sys_platform == 'win32' |",
        ),
    ],
)
def test_a_pin_becomes_a_row(line: str, row: str, tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.write_text(line + "\n")
    page, sbom = made(tmp_path, lock)
    assert row in page
    assert sbom["components"][0]["properties"] == [{"name": "sha256", "value": "0" * 64}]
