"""Mutants in every test run, with numba's bounds checks on, as many as ``FUZZ_MUTANTS`` says; and all old finds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from connectors.errors import DecodeError
from tests.fuzz import mutate, seeds
from tests.fuzz.targets import TARGETS, told

ROOT = Path(__file__).parents[2]
FINDS = sorted(path for path in Path(__file__).with_name("finds").glob("*=*"))
MUTANTS = os.environ.get("FUZZ_MUTANTS", "20000")


def test_every_kind_has_seeds_and_a_target() -> None:
    known = seeds.by_kind()
    assert known.keys() <= TARGETS.keys()
    assert {"segment", "index", "timeindex", "txnindex", "snapshot", *seeds.INTERNAL, "dump", "console"} <= known.keys()
    assert all(len(data) <= 64 << 10 for found in known.values() for data in found)


@pytest.mark.parametrize("kind", TARGETS)
def test_a_mutant_is_its_number_and_most_differ_from_their_seed(kind: str) -> None:
    known = seeds.by_kind().get(kind, [b"version=0\n"])
    made = [mutate.mutated(kind, known, 1, number) for number in range(50)]
    assert made == [mutate.mutated(kind, known, 1, number) for number in range(50)]
    assert sum(data not in known for data in made) > 25


def test_no_mutant_makes_a_decoder_raise_or_leave_its_buffers(tmp_path: Path) -> None:
    """In a process of its own: the bounds checks are compiled in, and a crash must not take the tests along."""
    last = tmp_path / "last"
    command = [sys.executable, "-m", "tests.fuzz", "--mutants", MUTANTS, "--last", str(last)]
    env = os.environ | {"PYTHONPATH": str(ROOT), "NUMBA_BOUNDSCHECK": "1"}
    ran = subprocess.run(command, capture_output=True, text=True, env=env, check=False, cwd=ROOT)
    assert ran.returncode == 0, f"{last.read_text()}\n{ran.stderr}"
    assert ran.stdout.startswith(f"{MUTANTS} mutants")
    assert int(ran.stdout.split("memory grew by ")[1].split()[0]) < 512


@pytest.mark.parametrize("path", FINDS, ids=lambda path: path.name)
def test_what_was_found_once_is_read(path: Path) -> None:
    TARGETS[path.name.partition("=")[0]](path.read_bytes())


def test_an_error_outside_of_its_file_is_seen() -> None:
    for wrong in (DecodeError("f", 9, 3, "truncated", ""), DecodeError("f", 0, 3, "no such reason", "")):
        with pytest.raises(AssertionError):
            told(10, [wrong])
