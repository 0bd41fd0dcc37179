"""Machine code of kernels: made by numba, and kept where there is a place for it.

numba itself keeps machine code by the file that a function stands in, and would go on running what was compiled from
an earlier version of the kernels it calls and the constants it names. Here the key is the content of that file and of
every file of this project that it imports, so that no upgrade ever runs old code, and a copy of a warm folder is warm.

Imports numba, which takes 0.3 s: :mod:`auditor.base.compiled` imports this when a kernel is first called.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
import re
import sys
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

from auditor.base.at_rest import Numba, folder_for


def _load_numba() -> None:
    """Imports numba without the settings in ``.numba_config.yaml`` of the working directory, which may come with the
    input. numba reads that file where it can import yaml, when it is imported and before it compiles."""
    before = sys.modules.get("yaml")
    sys.modules["yaml"] = None  # type: ignore[assignment]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the file cannot be read
            settings = importlib.import_module("numba.core.config")
    finally:
        del sys.modules["yaml"]
        if before is not None:
            sys.modules["yaml"] = before
    settings._config_fname = os.devnull  # type: ignore[attr-defined]


_load_numba()

import numba  # noqa: E402
from numba import config, njit  # noqa: E402
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator  # noqa: E402
from numba.core.registry import cpu_target  # noqa: E402
from numba.extending import intrinsic  # noqa: E402

if "scipy.linalg" not in sys.modules:  # which numba loads for linear algebra that no kernel here does: 0.2 s a process
    sys.modules["scipy.linalg"] = None  # type: ignore[assignment]
    importlib.import_module("numba.np.arraymath")
    del sys.modules["scipy.linalg"]

_IMPORT = re.compile(r"^from (auditor[\w.]*) import (?:\(([^)]*)\)|(.*))$", re.M)


def dispatcher(function: Callable[..., Any]) -> Numba:
    """``function`` compiled without the interpreter lock, its machine code kept where there is a place for it.

    Kernels allocate nothing, so nothing need be counted, and they are inlined wherever another kernel calls them:
    numba would otherwise count references to every array of every tuple at each call and branch, which made the replay
    fifty times slower.
    """
    compiled = njit(nogil=True, forceinline=True, _nrt=False)(function)
    if not config.DISABLE_JIT and _CodeCacheLocator.from_function(function, "") is not None:
        compiled._cache = _Cache(function)
    return compiled


def type_of_instruction(define: Callable[..., Any]) -> Numba:
    """numba's type of what ``define`` writes."""
    typing = cpu_target.typing_context
    made = intrinsic(define)
    typing.refresh()
    return typing.resolve_value_type(made)


@cache
def _digest(module: str) -> str:
    """Of the source of a module and of all that it imports from this project; raises OSError where there is none."""
    waiting, sources = [module], dict[str, str]()
    while waiting:
        name = waiting.pop()
        if name not in sources and name in sys.modules:
            sources[name], imported = _source(name)
            waiting += imported
    told = repr((sorted(sources.items()), config.BOUNDSCHECK, numba.__version__))
    return hashlib.sha256(told.encode()).hexdigest()


@cache
def _source(module: str) -> tuple[str, list[str]]:
    """The source of a module, and what it may import from this project, some of it no module."""
    source = inspect.getsource(sys.modules[module])
    imported = []
    for package, several, one in _IMPORT.findall(source):
        imported += [package, *(f"{package}.{word}" for word in re.findall(r"\w+", several + one))]
    return source, imported


class _CodeCacheLocator(_CacheLocator):
    """Tells numba the folder of a function's machine code, and what it depends on."""

    def __init__(self, function: Callable[..., Any], folder: str) -> None:
        self.function, self.folder = function, folder

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> _CodeCacheLocator | None:
        """The folder of this function; None where there is no place, or no source to know it by."""
        try:
            _digest(py_func.__module__)
        except (OSError, TypeError):
            return None
        folder = folder_for(py_func.__module__, inspect.getfile(py_func))
        return None if folder is None else cls(py_func, str(folder))

    def get_cache_path(self) -> str:
        """The folder."""
        return self.folder

    def get_source_stamp(self) -> str:
        """What must be equal for machine code to be used again."""
        return _digest(self.function.__module__)

    def get_disambiguator(self) -> str:
        """Tells functions of one name in one file apart, and versions of them, so that these never share a file.

        numba writes a function's index before its code: a process that was killed in between, or another that reads
        just then, would take the code of an earlier version for that of this one.
        """
        return f"{self.function.__code__.co_firstlineno}-{self.get_source_stamp()[:16]}"


class _Implementation(CompileResultCacheImpl):
    _locator_classes = (_CodeCacheLocator,)


class _Cache(FunctionCache):
    _impl_class = _Implementation

    def load_overload(self, sig: Numba, target_context: Numba) -> Numba:
        """Machine code that is kept; only who compiles needs all that numba knows of Python: 0.2 s a process."""
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)
