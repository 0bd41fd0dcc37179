"""Packs the libraries that executors need, and a driver that runs among them: pack_env.py OUT.tar.gz [PACKAGE...]

They come from this environment: what this project requires of everybody, pandas for Spark, and the packages that are
named. With them comes machine code of the kernels for every CPU of this kind of machine, so that no executor compiles:
a minute, once for each version of the sources.

Spark unpacks it for each executor (``--archives OUT.tar.gz#env``), whose Python finds it by
``spark.executorEnv.PYTHONPATH=./env``. That Python must be of this version and the machine of this kind: compiled
modules are of one of each. The project itself comes as the zip of ``make wheel``.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from importlib.metadata import Distribution, distribution
from pathlib import Path, PurePosixPath

from packaging.requirements import Requirement

PROJECT = "kafka-log-auditor"
ROOT = Path(__file__).parents[1]
CARRIED = "kafka_log_auditor_kernels"  # auditor/base/code_cache.py
CODE = ROOT / "build" / "kernels"
COMPILE = """
import sys
from auditor.base import machine_code
from auditor.spark.warm import DEMO, warm
from tests import corpora
from tests.facts import opened
warm(DEMO / "logs")
for corpus in corpora.judged():  # what the demo lacks
    opened(corpora.unpack(corpus), records=True).findings
for name in [name for name in sys.modules if name.startswith("auditor.")]:
    print(name, machine_code._digest(name)[:16])
"""


def kernels() -> dict[str, bytes]:
    """The files of machine code for every CPU of this platform, by their place in an environment."""
    from auditor.base.machine_code import PORTABLE_CPU, PORTABLE_FEATURES

    portable = {"NUMBA_CPU_NAME": PORTABLE_CPU, "NUMBA_CPU_FEATURES": PORTABLE_FEATURES, "NUMBA_CACHE_DIR": str(CODE)}
    env = os.environ | portable | {"PYTHONPATH": str(ROOT)}
    ran = subprocess.run([sys.executable, "-P", "-c", COMPILE], env=env, check=True, stdout=subprocess.PIPE, text=True)
    digests = dict(line.split() for line in ran.stdout.splitlines())
    found = {}
    for file in sorted(CODE.rglob("*.nb?")):
        if f"-{digests.get(file.parent.name)}." in file.name:
            found[f"{CARRIED}/{file.relative_to(CODE)}"] = without_paths(file.read_bytes())
        else:
            file.unlink()  # of sources that have changed
    return found


def without_paths(code: bytes) -> bytes:
    """Machine code without paths of this machine, which its exceptions name as the place of their source."""
    for path in (str(ROOT), sys.prefix):
        code = code.replace(path.encode(), b"." * len(path.encode()))
    return code


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
        for name, code in kernels().items():
            info = tarfile.TarInfo(name)
            info.size = len(code)
            tar.addfile(info, io.BytesIO(code))


if __name__ == "__main__":
    pack(Path(sys.argv[1]), *sys.argv[2:])
