"""Pythons in which an audit's tasks are small, so that there is something to kill between."""

from __future__ import annotations

import os
from pathlib import Path

from auditor.pipeline import plan, table_parts
from tests.conftest import ROOT

CONSTANTS = {
    plan: {"TASK_BYTES": 1},
    table_parts: {"LEAST_BYTES": 10, "MOST_BYTES": 10},
}  # most of a table's is opening

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
    assert all(hasattr(module, name) for module, names in CONSTANTS.items() for name in names)
    small = {m.__name__: {name: n * task_bytes for name, n in names.items()} for m, names in CONSTANTS.items()}
    site = folder / "site"
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text(SMALL.format(small=small) + more)
    return os.pathsep.join([str(site), str(ROOT)])
