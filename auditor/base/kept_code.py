"""Where code that was made from a module's source is kept for the next process."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path


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
