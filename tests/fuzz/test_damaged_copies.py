"""Randomly damaged directories: an audit of a copy says what one of the directory says, of records too.

``FUZZ_COPIES`` of them, from number ``FUZZ_COPIES_FROM`` on, of the day's seed. A failure names its number.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from auditor.base.errors import AuditInputError
from auditor.copying.run import copy_logs
from tests.conftest import NIGHTLY
from tests.facts import opened
from tests.fuzz import mutated_directories

COPIES = int(os.environ.get("FUZZ_COPIES", "3000" if NIGHTLY else "100"))
FIRST = int(os.environ.get("FUZZ_COPIES_FROM", "0"))
SEED = int(os.environ["FUZZ_SEED"])
LIMITS = mutated_directories.LIMITS
NOTHING = ["nothing to audit"]


def found(path: Path, *, records: bool) -> list[str]:
    """The findings, a line each, but for what a broker's start meets: none starts on a copy."""
    try:
        found = opened(path, limits=LIMITS, records=records).findings
        return [f.to_json() for f in found if f.kind != "start-fails"]
    except AuditInputError:
        return NOTHING


def differ(number: int, root: Path) -> str:
    """What an audit of a copy of a mutant says otherwise, "" for nothing. Of every second one records are looked at."""
    source, copy, records = root / "source", root / "copy", number % 2 == 1
    tree = mutated_directories.mutant(SEED, number)
    mutated_directories.write({k: v for k, v in tree.items() if "rsm-manifest" not in k}, source)
    was = found(source, records=records)
    try:
        copy_logs([str(source)], copy, LIMITS, records=records)
    except AuditInputError:
        return "" if was == NOTHING else "it could not be copied"
    now = found(copy, records=records)
    return "" if now == was else "\n".join([f"- {x}" for x in was if x not in now] + [f"+ {x}" for x in now])


def test_damaged_directories_are_found_the_same_in_a_copy(tmp_path: Path) -> None:
    said = 0
    for number in range(FIRST, FIRST + COPIES):
        wrong = differ(number, tmp_path)
        assert not wrong, f"mutant {number}, FUZZ_SEED={SEED} FUZZ_COPIES=1 FUZZ_COPIES_FROM={number}:\n{wrong}"
        said += (tmp_path / "copy").is_dir()
        shutil.rmtree(tmp_path, ignore_errors=True)
    assert said > COPIES // 2
