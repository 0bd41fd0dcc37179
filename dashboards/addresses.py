"""Where the pages of a dashboard are: names that last, the same for the server and for files behind any web server."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass

FRONT = "index.html"
_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")


def slug(name: str) -> str:
    """A name as that of a file: as it is where any file system and any URL takes it, else digits made of it."""
    if _PLAIN.fullmatch(name):
        return name
    return "~" + hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:32]


def cluster(id: str) -> str:
    """The page of a cluster, by its id; empty for one whose id nobody knows."""
    return f"cluster/{slug(id)}.html"


def run(run_id: str) -> str:
    """The page of a cluster as of a run."""
    return f"run/{slug(run_id)}.html"


def report(run_id: str) -> str:
    """The report of a run."""
    return f"report/{slug(run_id)}.html"


def finding(fingerprint: str) -> str:
    """The page of a finding, of whatever run."""
    return f"finding/{slug(fingerprint)}.html"


def _always(_: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Links:
    """The pages as a page links to them, which lies ``up`` (empty, or ``../``) from the front; ``has``: whether one is
    there. What is not there has no link."""

    up: str = ""
    has: Callable[[str], bool] = _always

    @property
    def front(self) -> str:
        """The page of all clusters."""
        return self.up + FRONT

    def cluster(self, id: str) -> str:
        """See :func:`cluster`."""
        return self._to(cluster(id))

    def run(self, run_id: str) -> str:
        """See :func:`run`."""
        return self._to(run(run_id))

    def report(self, run_id: str) -> str:
        """See :func:`report`."""
        return self._to(report(run_id))

    def finding(self, fingerprint: str | None) -> str:
        """See :func:`finding`."""
        return self._to(finding(fingerprint)) if fingerprint else ""

    def _to(self, path: str) -> str:
        return self.up + path if self.has(path) else ""
