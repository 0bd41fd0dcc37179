"""How kernels are compiled by numba, and where their machine code is kept.

numba itself keeps machine code by the file that a function stands in, and would go on running what was compiled from
an earlier version of the kernels it calls and the constants it names. Here the key is the content of that file and of
every file of this project that it imports, so that no upgrade ever runs old code, and a copy of a warm folder is warm.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
import re
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba import config, njit
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator

if "scipy.linalg" not in sys.modules:  # which numba loads for linear algebra that no kernel here does: 0.2 s a process
    sys.modules["scipy.linalg"] = None  # type: ignore[assignment]
    importlib.import_module("numba.np.arraymath")
    del sys.modules["scipy.linalg"]

_IMPORT = re.compile(r"^from (auditor[\w.]*) import (?:\(([^)]*)\)|(.*))$", re.M)


def kernel(function: Callable[..., Any]) -> Any:
    """``function`` compiled without the interpreter lock, its machine code kept where there is a place for it.

    Kernels allocate nothing, so nothing need be counted, and they are inlined where another kernel calls them:
    numba would otherwise count references to every array of every tuple at each call and branch, which made the replay
    fifty times slower.
    """
    compiled = njit(nogil=True, forceinline=True, _nrt=False)(function)
    if not config.DISABLE_JIT and _Folder.from_function(function, "") is not None:
        compiled._cache = _Cache(function)
    return compiled


@cache
def _digest(module: str) -> str:
    """Of the source of a module and of all that it imports from this project; raises OSError where there is none."""
    waiting, sources = [module], dict[str, str]()
    while waiting:
        name = waiting.pop()
        if name in sources or name not in sys.modules:
            continue
        sources[name] = inspect.getsource(sys.modules[name])
        for package, several, one in _IMPORT.findall(sources[name]):
            waiting += [package, *(f"{package}.{word}" for word in re.findall(r"\w+", several + one))]
    depends_on = repr((sorted(sources.items()), config.BOUNDSCHECK, numba.__version__))
    return hashlib.sha256(depends_on.encode()).hexdigest()


def _places(module: str, file: str) -> Iterator[Path]:
    """Where machine code may go: what NUMBA_CACHE_DIR says, else beside the source, else into the user's own cache."""
    if config.CACHE_DIR:
        yield Path(config.CACHE_DIR, module)
        return
    if Path(file).is_file():
        yield Path(file).parent / "__pycache__"
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if os.path.isabs(home):
        yield Path(home, "kafka-log-auditor", module)


def _shared(module: str) -> Path | None:
    """A folder in the common one for temporary files, for executors whose user has no home.

    None if somebody else may have put machine code there.
    """
    if not hasattr(os, "getuid"):
        return None
    mine = Path(tempfile.gettempdir(), f"kafka-log-auditor-{os.getuid()}")
    try:
        mine.mkdir(mode=0o700, exist_ok=True)
        found = mine.lstat()
    except OSError:
        return None
    private = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not stat.S_IMODE(found.st_mode) & 0o022
    return mine / module if private else None


@cache
def _folder(module: str, file: str) -> str | None:
    """The first place that can be written to, None if there is none."""
    for place in (*_places(module, file), _shared(module)):
        if place is None:
            continue
        try:
            place.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=place).close()
        except OSError:
            continue
        return str(place)
    return None


class _Folder(_CacheLocator):
    """Gives numba the folder of a function's machine code, and what it depends on."""

    def __init__(self, function: Callable[..., Any], folder: str) -> None:
        self.function, self.folder = function, folder

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> _Folder | None:
        """The folder of this function; None where there is no place, or no source to know it by."""
        try:
            _digest(py_func.__module__)
        except (OSError, TypeError):
            return None
        folder = _folder(py_func.__module__, inspect.getfile(py_func))
        return None if folder is None else cls(py_func, folder)

    def get_cache_path(self) -> str:
        """The folder."""
        return self.folder

    def get_source_stamp(self) -> str:
        """What must be equal for machine code to be used again."""
        return _digest(self.function.__module__)

    def get_disambiguator(self) -> str:
        """Distinguishes functions of one name in one file, and versions of them, so that these never share a file.

        numba writes a function's index before its code: a process that was killed in between, or another that reads
        just then, would take the code of an earlier version for that of this one.
        """
        return f"{self.function.__code__.co_firstlineno}-{self.get_source_stamp()[:16]}"


class _Implementation(CompileResultCacheImpl):
    _locator_classes = (_Folder,)


class _Cache(FunctionCache):
    _impl_class = _Implementation
