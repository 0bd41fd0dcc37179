"""Machine code of kernels: kept by content, where there is a place for it."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from auditor import running
from auditor.base import code_cache, machine_code

ROOT = Path(__file__).parents[2]
OF_BASE = ("__init__", "code_cache", "compiled", "machine_code")
BASE = ("__init__", *(f"base/{name}" for name in OF_BASE))
CONSTANTS = "STEP = 1\n"
KERNEL = """from auditor.base.compiled import kernel
from auditor.constants import STEP

@kernel
def add(x):
    return x + STEP
"""
SHOW = """from auditor.kernels import add
result, stats = add(1), add.dispatcher.stats
print(result, len(stats.cache_hits), len(stats.cache_misses), stats.cache_path)
"""
SETTINGS = """import sys, yaml
import auditor.base.machine_code, numba
assert sys.modules["yaml"] is yaml
"""
# Ends after the index of the kernel is written and before its code is.
KILLED = """import os
from numba.core.caching import IndexDataCacheFile
IndexDataCacheFile._save_data = lambda *_: os._exit(9)
"""
LINEAR_ALGEBRA = """import sys
from auditor.kernels import add
add(1)
print("scipy.linalg" in sys.modules)
import scipy.linalg
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A package like ours with one kernel, whose constant stands in another file."""
    for name in BASE:
        target = tmp_path / "project" / "auditor" / f"{name}.py"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text((ROOT / "auditor" / f"{name}.py").read_text())
    (tmp_path / "project" / "auditor" / "constants.py").write_text(CONSTANTS)
    (tmp_path / "project" / "auditor" / "kernels.py").write_text(KERNEL)
    return tmp_path / "project"


def started(project: Path, home: Path, code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """``code`` in a new process that finds the project and that home."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA", "XDG"))}
    clean |= {"PYTHONPATH": str(project), "HOME": str(home), "TMPDIR": str(home.parent)} | environment
    clean["PYTHONDONTWRITEBYTECODE"] = "1"  # Python takes a file of the same size and second for the one it compiled
    return subprocess.run([sys.executable, "-c", code], env=clean, cwd=home.anchor, capture_output=True, text=True)


def run(project: Path, home: Path, **environment: str) -> tuple[int, int, int, str]:
    """Result, cache hits, cache misses and folder of the kernel called in a new process."""
    done = started(project, home, SHOW, **environment)
    assert done.returncode == 0, done.stderr
    result, hits, misses, folder = done.stdout.split(maxsplit=3)
    return int(result), int(hits), int(misses), folder.strip()


def zipped(project: Path) -> Path:
    archive = project.parent / "project.zip"
    with zipfile.ZipFile(archive, "w") as z:
        for file in project.rglob("*.py"):
            z.write(file, file.relative_to(project))
    return archive


def test_code_lies_beside_its_source_and_is_used_again(project: Path, tmp_path: Path) -> None:
    folder = str(project / "auditor" / "__pycache__")
    assert run(project, tmp_path) == (2, 0, 1, folder)
    assert run(project, tmp_path) == (2, 1, 0, folder)


def test_a_constant_of_another_file_makes_old_code_void(project: Path, tmp_path: Path) -> None:
    assert run(project, tmp_path)[0] == 2
    (project / "auditor" / "constants.py").write_text(CONSTANTS.replace("1", "5"))
    assert run(project, tmp_path)[:3] == (6, 0, 1)


def test_a_process_that_dies_while_it_keeps_its_code_leaves_no_old_code_behind(project: Path, tmp_path: Path) -> None:
    """numba writes the index first: in it stood the new version's stamp, beside the old version's code."""
    assert run(project, tmp_path)[0] == 2
    (project / "auditor" / "constants.py").write_text(CONSTANTS.replace("1", "5"))
    assert started(project, tmp_path, KILLED + SHOW).returncode == 9
    assert run(project, tmp_path)[0] == 6


def test_linear_algebra_is_loaded_by_nobody_but_who_asks_for_it(project: Path, tmp_path: Path) -> None:
    done = started(project, tmp_path, LINEAR_ALGEBRA)
    assert (done.stdout, done.returncode) == ("False\n", 0), done.stderr


def test_times_of_files_do_not_matter(project: Path, tmp_path: Path) -> None:
    run(project, tmp_path)
    for file in project.rglob("*.py"):
        os.utime(file, (1, 1))
    assert run(project, tmp_path)[1:3] == (1, 0)


def test_from_an_archive_the_users_cache_is_taken(project: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    archive = zipped(project)
    folder = str(home / ".cache" / "kafka-log-auditor" / "auditor.kernels")
    assert run(archive, home) == (2, 0, 1, folder)
    assert run(archive, home) == (2, 1, 0, folder)


def test_without_a_home_a_private_temporary_folder_is_taken(project: Path, tmp_path: Path) -> None:
    nowhere = tmp_path / "file" / "home"
    nowhere.parent.write_text("no folder")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    archive = zipped(project)
    mine = temporary / f"kafka-log-auditor-{os.getuid()}"
    assert run(archive, nowhere, TMPDIR=str(temporary))[3] == str(mine / "auditor.kernels")
    assert run(archive, nowhere, TMPDIR=str(temporary))[1:3] == (1, 0)
    mine.chmod(0o777)  # anybody may have put code there
    assert run(archive, nowhere, TMPDIR=str(temporary)) == (2, 0, 1, "None")


def test_the_folder_that_is_asked_for_comes_first(project: Path, tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    assert run(project, tmp_path, NUMBA_CACHE_DIR=str(asked))[3] == str(asked / "auditor.kernels")


def test_a_relative_folder_is_not_taken(project: Path, tmp_path: Path) -> None:
    """It would be below the working directory, where an unpacked ticket may have put machine code."""
    assert run(project, tmp_path, NUMBA_CACHE_DIR="asked")[3].startswith(str(project))


def portable(project: Path, tmp_path: Path) -> Path:
    """A packed environment with the kernel's code, made as scripts/pack_env.py makes it."""
    env = tmp_path / "env"
    settings = {"NUMBA_CPU_NAME": machine_code.PORTABLE_CPU, "NUMBA_CPU_FEATURES": machine_code.PORTABLE_FEATURES}
    assert run(project, tmp_path, NUMBA_CACHE_DIR=str(env / code_cache.CARRIED), **settings)[:3] == (2, 0, 1)
    return env


COMPILED = SHOW + "from auditor.base import code_cache\nprint(sorted(code_cache.compiled))\n"


def test_packed_code_is_used_on_any_cpu_of_the_platform(project: Path, tmp_path: Path) -> None:
    env, cache = portable(project, tmp_path), {"NUMBA_CACHE_DIR": str(tmp_path / "own")}
    both = {"PYTHONPATH": f"{zipped(project)}{os.pathsep}{env}"}
    assert run(project, tmp_path, **cache, **both)[:3] == (2, 1, 0)
    assert started(project, tmp_path, COMPILED, **cache, **both).stdout.splitlines()[1] == "[]"
    assert not list((tmp_path / "own").rglob("*.nb?"))
    assert started(project, tmp_path, COMPILED, **cache).stdout.splitlines()[1] == "['auditor.kernels']"


def test_packed_code_of_other_sources_is_not_used(project: Path, tmp_path: Path) -> None:
    env = portable(project, tmp_path)
    (project / "auditor" / "constants.py").write_text(CONSTANTS.replace("1", "5"))
    path = f"{zipped(project)}{os.pathsep}{env}"
    assert run(project, tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "own"), PYTHONPATH=path)[:3] == (6, 0, 1)


@pytest.mark.skipif(not machine_code.PORTABLE_FEATURES, reason="packed code needs nothing here")
def test_packed_code_is_not_used_where_the_cpu_lacks_what_it_needs(project: Path, tmp_path: Path) -> None:
    env = portable(project, tmp_path)
    old = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "+sse2", "NUMBA_CACHE_DIR": str(tmp_path / "own")}
    assert run(project, tmp_path, PYTHONPATH=f"{project}{os.pathsep}{env}", **old)[:3] == (2, 0, 1)


def test_stored_code_names_no_path_of_this_machine(project: Path, tmp_path: Path) -> None:
    files = [file.read_bytes() for file in portable(project, tmp_path).rglob("*.nb?")]
    assert len(files) == 2
    assert not any(str(project).encode() in data for data in files)


def test_no_settings_of_the_working_directory_are_read(project: Path, tmp_path: Path) -> None:
    pytest.importorskip("yaml")  # without it numba reads none
    (tmp_path / ".numba_config.yaml").write_text("disable_jit: 1\n")
    plain = "import numba, os; print(numba.config.DISABLE_JIT)"
    ours = SETTINGS + "numba.config.reload_config(); print(numba.config.DISABLE_JIT)\n"
    for call, expected in ((plain, "1"), (ours, "0")):
        done = subprocess.run(
            [sys.executable, "-P", "-c", call],
            cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(project)}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.stdout.split()[-1:], done.stderr) == ([expected], "")


def test_checked_and_unchecked_code_are_distinguished(project: Path, tmp_path: Path) -> None:
    run(project, tmp_path)
    assert run(project, tmp_path, NUMBA_BOUNDSCHECK="1")[:3] == (2, 0, 1)


def test_this_numba_has_what_is_taken_from_its_inside() -> None:
    """docs/decisions/011-compiled-code.md: fails with the name of what a newer numba no longer has."""
    import numba
    from numba.core import caching
    from numba.core.options import DefaultOptions
    from packaging.requirements import Requirement

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = next(r for r in map(Requirement, project["dependencies"]) if r.name == "numba")
    assert wanted.specifier.contains(numba.__version__), f"numba {numba.__version__} is not {wanted.specifier}"
    assert any(s.operator in ("<", "<=") for s in wanted.specifier), "numba has no upper bound"
    for name, methods in {
        "CompileResultCacheImpl": ("_locator_classes", "reduce", "rebuild", "filename_base"),
        "FunctionCache": (
            "_impl_class",
            "load_overload",
            "save_overload",
            "_load_overload",
            "_index_key",
            "_guard_against_spurious_io_errors",
        ),
        "_CacheLocator": ("get_cache_path", "get_source_stamp", "get_disambiguator", "from_function"),
        "IndexDataCacheFile": ("_save_index", "_save_data", "load"),
    }.items():
        found = getattr(caching, name, None)
        missing = [m for m in methods if not hasattr(found, m)]
        assert found is not None, f"numba {numba.__version__} has no numba.core.caching.{name}"
        assert not missing, f"numba {numba.__version__}: {name} lacks {missing}"
    assert hasattr(DefaultOptions, "_nrt"), (
        f"numba {numba.__version__} has no option _nrt"  # kernels would count references
    )


def test_only_the_first_run_says_that_it_compiles(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A minute in which nothing else would be said; asked before anything of the kernels is imported."""
    monkeypatch.setattr(code_cache, "folder_for", lambda module, file: tmp_path if Path(file).is_file() else None)
    for expected in ("auditor: compiling native code", ""):
        running.runner_for("inline[1]").close()
        assert capsys.readouterr().err.startswith(expected)
        (tmp_path / "batch.kernel.nbi").touch()
    running.runner_for("inline[1]").close()
    assert capsys.readouterr().err == ""
