"""Pythons in which constants of the product are others: an audit's tasks small, so that there is something to kill
between; the waits for stores short.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from auditor.connectors.stores import results, retries, storage
from auditor.pipeline import plan, table_parts
from tests.conftest import ROOT

CONSTANTS = {
    plan: {"TASK_BYTES": 1},
    table_parts: {"LEAST_BYTES": 10, "MOST_BYTES": 10},
}  # most of a table's is opening

# What is waited for a store that refuses is most often the user's mistake, or gone at the next request.
WAITS = {storage: {"_FIRST_S": 0.5, "LISTING_S": 2.0}, results: {"TRIAL_S": 0.5}, retries: {"MOST_WAIT_S": 0.5}}

# The constants are set once their module has run, in whatever process loads it.
SMALL = """
import sys
from importlib.machinery import PathFinder

SMALL = {small}

class Small:
    def find_spec(self, name, path=None, target=None):
        if name not in SMALL:
            return None
        spec = PathFinder.find_spec(name, path)
        load = spec.loader.exec_module

        def small(module):
            load(module)
            vars(module).update(SMALL[name])

        spec.loader.exec_module = small
        return spec

sys.meta_path.insert(0, Small())
"""


def python_path(folder: Path, task_bytes: int, more: str = "") -> str:
    """The PYTHONPATH of such Pythons, which also run ``more`` when they start. What it needs is put into ``folder``."""
    return _python_path(
        folder, {m: {k: n * task_bytes for k, n in names.items()} for m, names in CONSTANTS.items()}, more
    )


def impatient_python_path(folder: Path) -> str:
    """The PYTHONPATH of Pythons that do not wait long for a store."""
    return _python_path(folder, WAITS)


def _python_path(folder: Path, constants: Mapping[ModuleType, Mapping[str, float]], more: str = "") -> str:
    assert all(hasattr(module, name) for module, names in constants.items() for name in names)
    small = {module.__name__: dict(names) for module, names in constants.items()}
    site = folder / "site"
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text(SMALL.format(small=small) + more)
    return os.pathsep.join([str(site), str(ROOT)])
