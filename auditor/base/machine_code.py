"""Compile kernels with numba, and cache their machine code where a folder for it exists.

numba itself keys machine code by the file of a function, and would go on running what was compiled from an earlier
version of the kernels it calls and the constants it names. Here the key is the content of that file and of every file
of this project that it imports: no upgrade runs old code, and a copy of a warm folder is warm.

Imports numba, which takes 0.3 s: :mod:`auditor.base.compiled` imports this module when a kernel is first called.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
import platform
import re
import sys
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

from auditor.base.code_cache import carried, compiled, folder_for

Numba = Any  # what numba and llvmlite accept and return: they have no type hints


def _load_numba() -> None:
    # numba reads .numba_config.yaml of the working directory, which may be part of the input, where it can import yaml:
    # when it is imported, and again before it compiles.
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
from numba.core.caching import (  # noqa: E402
    CompileResultCacheImpl,
    FunctionCache,
    IndexDataCacheFile,
    _CacheLocator,
)
from numba.core.registry import cpu_target  # noqa: E402
from numba.extending import intrinsic  # noqa: E402

if "scipy.linalg" not in sys.modules:  # which numba loads for linear algebra that no kernel here does: 0.2 s a process
    sys.modules["scipy.linalg"] = None  # type: ignore[assignment]
    importlib.import_module("numba.np.arraymath")
    del sys.modules["scipy.linalg"]

# What packed machine code may use (scripts/pack_env.py): of x86-64 servers since 2010. Without it checksums are slow.
PORTABLE_CPU = "generic"
PORTABLE_FEATURES = "+crc32,+pclmul,+popcnt,+sse4.2" if platform.machine() in ("x86_64", "AMD64") else ""

_IMPORT = re.compile(r"^from (auditor[\w.]*) import (?:\(([^)]*)\)|(.*))$", re.M)


def dispatcher(function: Callable[..., Any]) -> Numba:
    """Compile ``function`` to run without the interpreter lock, with its machine code cached if possible.

    Kernels allocate nothing, so nothing needs reference counts, and they are inlined into their callers. Otherwise
    numba counts references to every array of every tuple at each call and branch, which made the replay fifty times
    slower.
    """
    compiled = njit(nogil=True, forceinline=True, _nrt=False)(function)
    if not config.DISABLE_JIT and _CodeCacheLocator.from_function(function, "") is not None:
        compiled._cache = _Cache(function)
    return compiled


def type_of_instruction(define: Callable[..., Any]) -> Numba:
    """numba's type for the instructions that ``define`` emits."""
    typing = cpu_target.typing_context
    made = intrinsic(define)
    typing.refresh()
    return typing.resolve_value_type(made)


@cache
def _digest(module: str) -> str:
    # Raises OSError if a source file is missing.
    waiting, sources = [module], dict[str, str]()
    while waiting:
        name = waiting.pop()
        if name not in sources and name in sys.modules:
            sources[name], imported = _source(name)
            waiting += imported
    content = repr((sorted(sources.items()), config.BOUNDSCHECK, numba.__version__))
    return hashlib.sha256(content.encode()).hexdigest()


@cache
def _source(module: str) -> tuple[str, list[str]]:
    # Some of the names after import are no modules; _digest skips them.
    source = inspect.getsource(sys.modules[module])
    imported = []
    for package, several, one in _IMPORT.findall(source):
        imported += [package, *(f"{package}.{word}" for word in re.findall(r"\w+", several + one))]
    return source, imported


class _CodeCacheLocator(_CacheLocator):
    """The folder of a function's machine code, and the digest it depends on."""

    def __init__(self, function: Callable[..., Any], folder: str) -> None:
        self.function, self.folder = function, folder

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> _CodeCacheLocator | None:
        """The locator of a function; None if no folder is available or its source cannot be read."""
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
        """The digest that must be equal for cached machine code to be used."""
        return _digest(self.function.__module__)

    def get_disambiguator(self) -> str:
        """Distinguish functions of one name in one file, and versions of them, so that they never share a file.

        numba writes a function's index before its code: a killed process, or a concurrent reader, would combine the
        index of this version with the code of an earlier one.
        """
        return f"{self.function.__code__.co_firstlineno}-{self.get_source_stamp()[:16]}"


class _Implementation(CompileResultCacheImpl):
    _locator_classes = (_CodeCacheLocator,)

    def reduce(self, cres: Numba) -> Numba:
        """What is stored, without the annotated source, which names a path of this machine."""
        return super().reduce(cres._replace(type_annotation=""))


class _Cache(FunctionCache):
    _impl_class = _Implementation

    def load_overload(self, sig: Numba, target_context: Numba) -> Numba:
        # The base class first initialises all of numba's knowledge of Python (0.2 s per process), which only compiling
        # needs.
        with self._guard_against_spurious_io_errors():
            code = self._load_overload(sig, target_context)
            if code is None:
                code = self._load_carried(sig, target_context)
        if code is None:
            compiled.add(self._py_func.__module__)
        return code

    def _load_carried(self, sig: Numba, target_context: Numba) -> Numba:
        """Load machine code of a packed environment if this CPU has what it uses."""
        name, (triple, _, features), code = self._index_key(sig, target_context.codegen())
        if not set(filter(None, PORTABLE_FEATURES.split(","))) <= set(features.split(",")):
            return None
        for folder in carried(self._py_func.__module__):
            file = IndexDataCacheFile(str(folder), self._impl.filename_base, self._impl.locator.get_source_stamp())
            data = file.load((name, (triple, PORTABLE_CPU, PORTABLE_FEATURES), code))
            if data is not None:
                return self._impl.rebuild(target_context, data)
        return None
