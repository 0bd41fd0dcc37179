"""Names of log directories and files that stay the same when everything is copied elsewhere."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping

from auditor.connectors.storage import Place


def common_folder(places: Iterable[Place]) -> Place | None:
    """The deepest folder that holds all places or is one of them; None where they are in different file systems."""
    found = list(places)
    if len({place.uri for place in found}) != 1:
        return None
    try:
        return found[0]._replace(path=posixpath.commonpath([place.path or "." for place in found]))
    except ValueError:
        return None


def is_above(folder: Place, place: Place) -> bool:
    """Whether ``folder`` is a folder above ``place``, not the place itself."""
    head = folder.path.rstrip("/") + "/"
    return folder.uri == place.uri and place.path.startswith(head) and place.path != head


def relative(place: Place, base: Place | None) -> str:
    """The path of a place below ``base``, or all of it where ``base`` is not above."""
    if base is None or not is_above(base, place):
        return place.shown
    return place.path[len(base.path.rstrip("/")) + 1 :]


class Naming:
    """How places are named in one run: relative to the deepest folder above all PATHs.

    A PATH that is above its log directories counts as such a folder itself; for a PATH that is one (or lies in one),
    the folder above the log directory does, so that a log directory always has a name.
    """

    def __init__(self, log_dirs: Mapping[Place, Iterable[Place]]) -> None:
        """``log_dirs``: each log directory with the PATHs that it was found by."""
        above = [
            given if is_above(given, place) else place.parent for place, paths in log_dirs.items() for given in paths
        ]
        self._base = common_folder(above)
        self._names = {place: relative(place, self._base) for place in log_dirs}

    def name(self, log_dir: Place) -> str:
        """The column ``log_dir`` of a log directory."""
        return self._names[log_dir]

    def owner(self, place: Place) -> tuple[str, str]:
        """The log directory a file lies in and its path there; "" and a path below the common folder if in none."""
        folder = place.parent
        while folder not in self._names and folder.path not in ("", "/"):
            folder = folder.parent
        if folder in self._names:
            return self._names[folder], relative(place, folder)
        return "", relative(place, self._base)
