"""Folders where code that is generated from a module's source is cached for the next process."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

CARRIED = "kafka_log_auditor_kernels"  # a directory beside packages: machine code for every CPU of a platform
compiled: set[str] = set()  # modules of kernels for which this process found no machine code


@cache
def carried(module: str) -> tuple[Path, ...]:
    """Return the directories with a module's machine code in a packed environment. They are only read.

    Whoever can write there can also change the packages that are imported from there.
    """
    folders = (Path(entry, CARRIED, module) for entry in sys.path if os.path.isabs(entry))
    return tuple(folder for folder in folders if folder.is_dir())


@cache
def folder_for(module: str, file: str) -> Path | None:
    """The first folder that is writable, and only by us; None if none is.

    Candidates: NUMBA_CACHE_DIR (an absolute path, since a relative one would be below the working directory, which may
    hold the input), ``__pycache__`` beside the source ``file``, the user's cache directory, and, for executors whose
    user has no home, a folder in the directory for temporary files.
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


def is_cached(module: str) -> bool:
    """Whether machine code of a module is cached or packed. The module need not be imported."""
    source = Path(__file__).parents[1].joinpath(*module.split(".")[1:])
    place = folder_for(module, f"{source}.py")
    return bool(carried(module)) or (place is not None and any(place.glob("*.nbi")))


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
    # None if another user may have put code there.
    if not hasattr(os, "getuid"):
        return None
    folder = Path(tempfile.gettempdir(), f"kafka-log-auditor-{os.getuid()}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return None
    private = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not stat.S_IMODE(status.st_mode) & 0o022
    return folder / module if private else None
