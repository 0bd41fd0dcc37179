"""Packs the libraries that executors need, and a driver that runs among them: pack_env.py OUT.tar.gz [PACKAGE...]

They come from this environment: what this project requires of everybody, pandas for Spark, and the packages that are
named.

Spark unpacks it for each executor (``--archives OUT.tar.gz#env``), whose Python finds it by
``spark.executorEnv.PYTHONPATH=./env``. That Python must be of this version and the machine of this kind: compiled
modules are of one of each. The project itself comes as the zip of ``make dist``.
"""

from __future__ import annotations

import sys
import tarfile
from importlib.metadata import Distribution, distribution
from pathlib import Path, PurePosixPath

from packaging.requirements import Requirement

PROJECT = "kafka-log-auditor"


def closure(names: tuple[str, ...]) -> list[Distribution]:
    """The distributions of these names and all that they require here."""
    found: dict[str, Distribution] = {}
    open_names = list(names)
    while open_names:
        name = open_names.pop()
        if name in found:
            continue
        found[name] = distribution(name)
        wanted = [Requirement(text) for text in found[name].requires or ()]
        open_names += [r.name for r in wanted if r.marker is None or r.marker.evaluate({"extra": ""})]
    return [found[name] for name in sorted(found) if name != PROJECT]


def pack(out: Path, *more: str) -> None:
    """Writes the archive; scripts, tests and C headers stay out."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(out, "w:gz", compresslevel=1) as tar:
        for each in closure((PROJECT, "pandas", *more)):
            for file in each.files or ():
                parts = PurePosixPath(file).parts
                if ".." not in parts and not {"tests", "include", "__pycache__"} & set(parts):
                    tar.add(str(each.locate_file(file)), str(file), recursive=False)


if __name__ == "__main__":
    pack(Path(sys.argv[1]), *sys.argv[2:])
