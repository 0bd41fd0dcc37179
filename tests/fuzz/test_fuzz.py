"""Mutants in every test run, with numba's bounds checks on, as many as ``FUZZ_MUTANTS`` and (of whole directories)
``FUZZ_DIRECTORIES`` say, or (files of herds, through the same) ``FUZZ_HERDED``; and all old finds.

Each day draws others: ``FUZZ_SEED`` is the day's number, which the head of a run prints.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from auditor.base.errors import DecodeError
from tests import segments
from tests.fuzz import coverage_guided, herds, mutate, mutated_directories, seeds
from tests.fuzz.__main__ import run_herds, run_whole
from tests.fuzz.targets import TARGETS, reported

ROOT = Path(__file__).parents[2]
FINDS = sorted(path for path in Path(__file__).with_name("finds").glob("*=*"))
MUTANTS = os.environ.get("FUZZ_MUTANTS", "20000")
DIRECTORIES = os.environ.get("FUZZ_DIRECTORIES", "15")
HERDED = os.environ.get("FUZZ_HERDED", "1000")
SEED = os.environ["FUZZ_SEED"]


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
    command = [sys.executable, "-m", "tests.fuzz", "--mutants", MUTANTS, "--seed", SEED, "--last", str(last)]
    env = os.environ | {"PYTHONPATH": str(ROOT), "NUMBA_BOUNDSCHECK": "1"}
    ran = subprocess.run(command, capture_output=True, text=True, env=env, check=False, cwd=ROOT)
    assert ran.returncode == 0, f"{last.read_text()}\n{ran.stderr}"
    assert ran.stdout.startswith(f"{MUTANTS} mutants of {len(seeds.by_kind())} kinds,")
    assert int(ran.stdout.split("memory grew by ")[1].split()[0]) < 512


def test_no_mutated_directory_makes_an_audit_raise(tmp_path: Path) -> None:
    """From the listing of its files to the report, bounds checks on; one at a time, and many files of one at once."""
    last = tmp_path / "last"
    env = os.environ | {"PYTHONPATH": str(ROOT), "NUMBA_BOUNDSCHECK": "1"}
    for option, count in (("--whole", DIRECTORIES), ("--herds", HERDED)):
        command = [sys.executable, "-m", "tests.fuzz", option, "--mutants", count, "--seed", SEED]
        command += ["--last", str(last)]
        ran = subprocess.run(command, capture_output=True, text=True, env=env, check=False, cwd=ROOT)
        assert ran.returncode == 0, f"{last.read_text()}\n{ran.stdout}{ran.stderr}"
        assert " directories, 0 failed" in ran.stdout
        assert int(ran.stdout.splitlines()[-2].split()[0]) >= int(count)


def test_an_audit_that_raises_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise IndexError

    monkeypatch.setattr(mutated_directories, "audited", fails)
    assert run_whole(range(3), 1, None) == 1


def test_a_herd_that_fails_is_cut_down_to_the_mutants_that_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Be it that the audit raises or that it ends the process, which is how a kernel fails."""
    one = herds.herd(1, 0)
    assert (herds.herd(1, 0), one.tree() == one.sound) == (one, False)
    assert len(one.mutants) > herds.FOLDERS
    culprits = sorted(one.mutants)[7:30:22]

    def fails(tree: dict[str, bytes], *_: object) -> None:
        if all(tree.get(name) == one.mutants[name] for name in culprits):
            os.kill(os.getpid(), signal.SIGKILL) if os.getpid() != here else None
            raise IndexError

    here = os.getpid()
    for module in (herds, mutated_directories):
        monkeypatch.setattr(module, "audit_tree", fails)
    assert run_herds(0, 1, 1, None) == 1
    assert capfd.readouterr().err.splitlines()[-2:] == culprits
    assert herds.run_one(1, 0, tmp_path / "kept") == culprits
    assert all((tmp_path / "kept" / name).read_bytes() == one.mutants[name] for name in culprits)
    assert herds.run_one(1, 1) == []


@pytest.mark.parametrize("number", [1770])  # two commits at one offset
def test_a_directory_that_made_an_audit_raise_is_audited(number: int) -> None:
    mutated_directories.run_one(1, number)


def test_a_mutated_directory_is_its_number() -> None:
    made = [mutated_directories.mutant(1, number) for number in range(20)]
    assert made == [mutated_directories.mutant(1, number) for number in range(20)]
    assert sum(tree not in mutated_directories.trees() for tree in made) > 15


@pytest.mark.parametrize("path", FINDS, ids=lambda path: path.name)
def test_what_was_found_once_is_read(path: Path) -> None:
    TARGETS[path.name.partition("=")[0]](path.read_bytes())


def apart(call: str, *options: str) -> subprocess.CompletedProcess[str]:
    """A Python whose kernels are plain Python too."""
    env = os.environ | {"PYTHONPATH": str(ROOT), "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-c", call, *options]
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False, cwd=ROOT)


def test_plain_python_reads_what_the_kernels_read(tmp_path: Path) -> None:
    """What coverage-guided fuzzing runs: the batches of plain and compressed segments, with their checksums."""
    data = b"".join(segments.simple(6 * codec, 6, codec=codec) for codec in range(5))
    (tmp_path / "segment").write_bytes(data)
    call = (
        "import sys; from pathlib import Path; from tests.fuzz import coverage_guided\n"
        "coverage_guided.without_instructions()\n"
        "from tests.segments import chunks; from tests.fuzz.targets import TARGETS\n"
        "data = Path(sys.argv[1]).read_bytes(); TARGETS['segment'](data)\n"
        "print([(b.base_offset.tolist(), b.flaws.tolist()) for b in (c.batches for c in chunks(data, records=True))])"
    )
    ran = apart(call, str(tmp_path / "segment"))
    assert ran.stdout.strip() == str([([0, 6, 12, 18, 24], [0] * 5)]), ran.stderr


def test_without_atheris_it_is_said_that_nothing_ran(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(coverage_guided.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["coverage_guided"])
    assert coverage_guided.main() == 1
    assert coverage_guided.NOT_RUN in capsys.readouterr().err


def test_coverage_guided_fuzzing_runs(tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason=coverage_guided.NOT_RUN)
    assert coverage_guided.fuzz_apart("index", 2, 1, tmp_path)


def test_an_error_outside_of_its_file_is_seen() -> None:
    for wrong in (DecodeError("f", 9, 3, "truncated", ""), DecodeError("f", 0, 3, "no such reason", "")):
        with pytest.raises(AssertionError):
            reported(10, [wrong])
