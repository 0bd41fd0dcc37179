"""How kernels are compiled, and where their machine code is cached."""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import os
import re
import stat
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba import config, njit
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from auditor.base.at_rest import Numba

# Kernels: functions that are compiled, or whose machine code is loaded, when they are first called.
#
# A process that imports kernels and calls none, as the driver of an audit, never loads numba: see
# :mod:`auditor.base.compiled`.


CHECKED = os.environ.get("NUMBA_BOUNDSCHECK", "0") not in ("", "0")  # whether kernels check each index


class Kernel:
    """A function that runs as machine code. ``py_func`` is the same as the interpreter runs it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.py_func = function

    @functools.cached_property
    def dispatcher(self) -> Numba:
        """numba's function, which finds the machine code for the types of its arguments."""

        return dispatcher(self.py_func)

    @property
    def _numba_type_(self) -> Numba:
        """What numba takes this for where another kernel calls it."""
        return self.dispatcher._numba_type_

    def __call__(self, *given: Any, **named: Any) -> Numba:
        """Calls the machine code for arguments of these types."""
        return self.dispatcher(*given, **named)


class ChosenKernel(Kernel):
    """The kernel that ``choose`` names when one is first needed, and its callers are compiled."""

    def __init__(self, choose: Callable[[], Kernel]) -> None:
        self.choose = choose

    @functools.cached_property
    def dispatcher(self) -> Numba:
        """That of the chosen one."""
        return self.choose().dispatcher


class _Instruction:
    """Machine instructions: see :func:`instruction`."""

    def __init__(self, define: Callable[..., Any]) -> None:
        self.define = define

    @functools.cached_property
    def _numba_type_(self) -> Numba:
        """What numba takes this for where a kernel calls it."""

        return type_of_instruction(self.define)


def kernel(function: Callable[..., Any]) -> Numba:
    """``function`` as a :class:`Kernel`. It allocates nothing: its results go into arrays that it is given."""
    return Kernel(function)


def instruction(define: Callable[..., Any]) -> Numba:
    """What kernels call and Python cannot: machine instructions that ``define`` writes when a caller is compiled.

    ``define(context, *types)`` gives the signature and the function that builds them, as for numba's ``intrinsic``.
    """
    return _Instruction(define)


# Where code that was made from a module's source is kept for the next process.


@cache
def folder_for(module: str, file: str) -> Path | None:
    """The first place that can be written to, and by nobody else, None if there is none.

    What NUMBA_CACHE_DIR says (an absolute path: another would be below the working directory, which may hold the
    input), else beside the source ``file``, else in the user's own cache; for executors whose user
    has no home, a folder of their own among the temporary files.
    """
    for place in (*_places(module, file), _shared(module)):
        if place is None:
            continue
        try:
            place.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=place).close()
        except OSError:
            continue
        return place
    return None


def is_kept(module: str) -> bool:
    """Whether machine code of a module, which need not be imported, is kept; where there is no place, none ever is."""
    source = Path(__file__).parents[1].joinpath(*module.split(".")[1:])
    place = folder_for(module, f"{source}.py")
    return place is not None and any(place.glob("*.nbi"))


def _places(module: str, file: str) -> Iterator[Path]:
    if os.path.isabs(asked := os.environ.get("NUMBA_CACHE_DIR", "")):
        yield Path(asked, module)
        return
    if Path(file).is_file():
        yield Path(file).parent / "__pycache__"
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if os.path.isabs(home):
        yield Path(home, "kafka-log-auditor", module)


def _shared(module: str) -> Path | None:
    """A folder in the common one for temporary files. None if somebody else may have put code there."""
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


# Machine code of kernels: made by numba, and kept where there is a place for it.
#
# numba itself keeps machine code by the file that a function stands in, and would go on running what was compiled from
# an earlier version of the kernels it calls and the constants it names. Here the key is the content of that file and of
# every file of this project that it imports, so that no upgrade ever runs old code, and a copy of a warm folder is
# warm.
#
# Imports numba, which takes 0.3 s: :mod:`auditor.base.compiled` imports this when a kernel is first called.


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
