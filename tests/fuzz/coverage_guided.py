"""``python -m tests.fuzz.coverage_guided``: mutants that atheris (libFuzzer) keeps because they reach new lines.

Kernels run as plain Python here (``NUMBA_DISABLE_JIT``), so that their lines count too; each index outside of an array
raises then, but for negative ones. atheris is no dependency and in no lock: it has wheels for few platforms. Without
it this says so and ends with status 1. A find is written to ``--finds`` as ``KIND=crash-…``; with a name of its own in
``tests/fuzz/finds`` it becomes a test.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

NOT_RUN = "NOT RUN: coverage-guided fuzzing needs atheris; pip install atheris"
LARGEST = 4096  # bytes of a mutant, as of the seeds
SLOW_S = 20  # for one mutant: kernels are some hundred times slower as plain Python
MEMORY_MB = 2048


def main() -> int:
    from tests.fuzz.targets import TARGETS

    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.coverage_guided", description=__doc__)
    parser.add_argument("--kind", choices=sorted(TARGETS), action="append", help="only this kind (repeatable)")
    parser.add_argument("--seconds", type=int, default=60, help="for each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--finds", type=Path, default=Path(), help="the folder that finds are written to")
    args = parser.parse_args()
    if importlib.util.find_spec("atheris") is None:
        print(NOT_RUN, file=sys.stderr)
        return 1
    failed = [kind for kind in args.kind or TARGETS if not fuzz_apart(kind, args.seconds, args.seed, args.finds)]
    print(f"failed: {', '.join(failed)}" if failed else "no finds")
    return int(bool(failed))


def fuzz_apart(kind: str, seconds: int, seed: int, finds: Path) -> bool:
    """Fuzz one kind in a process of its own, from the seeds of :mod:`tests.fuzz.seeds`; whether nothing was found."""
    from tests.fuzz import seeds

    print(f"== {kind}", flush=True)
    finds.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for number, data in enumerate(seeds.by_kind().get(kind, [b"version=0\n"])):
            Path(folder, str(number)).write_bytes(data)
        options = [f"-max_total_time={seconds}", f"-seed={seed}", f"-max_len={LARGEST}", f"-timeout={SLOW_S}",
                   f"-rss_limit_mb={MEMORY_MB}", f"-artifact_prefix={finds.absolute()}/{kind}=", "-verbosity=0",
                   "-print_final_stats=1"]  # fmt: skip
        call = f"from tests.fuzz import coverage_guided; coverage_guided.fuzz({kind!r})"
        env = os.environ | {"NUMBA_DISABLE_JIT": "1"}
        ran = subprocess.run([sys.executable, "-c", call, *options, folder], env=env, check=False)
    return ran.returncode == 0


def fuzz(kind: str) -> None:
    """Fuzz one kind in this process until libFuzzer ends it; its options and seeds stand in the command line."""
    import atheris  # type: ignore[import-not-found, unused-ignore]

    with atheris.instrument_imports(include=["auditor.connectors"]):
        without_instructions()
        from tests.fuzz import mutate
        from tests.fuzz.targets import TARGETS

    def sealed(data: bytes, largest: int, _seed: int) -> bytes:
        """A mutant of a segment, its batches with the checksums of what they are now: else none would be opened."""
        mutant = bytearray(atheris.Mutate(data, largest))
        for start, end in mutate.batches(mutant):
            one = mutant[start:end]
            if len(one) >= mutate.SEALED_FROM:
                mutate.seal(one)
            mutant[start:end] = one
        return bytes(mutant)

    custom = {"custom_mutator": sealed} if kind == "segment" else {}
    atheris.Setup(sys.argv, TARGETS[kind], **custom)
    atheris.Fuzz()


def without_instructions() -> None:
    """Give the kernels plain Python for what they have machine instructions for; a load out of bounds raises."""
    import numpy as np

    from auditor.connectors.codec import primitives
    from auditor.connectors.codec import primitives as codec_primitives

    def loader(form: str) -> Callable[[np.ndarray, int], np.int64]:
        load = struct.Struct(form).unpack_from
        return lambda buf, index: np.int64(load(buf, index)[0])

    np.seterr(over="ignore")  # kernels count on numbers that wrap
    primitives.CHECKED = True
    codec_primitives._state = codec_primitives._by_tables
    for name, form in {"be16": ">h", "be32": ">i", "be64": ">q", "le64": "<q"}.items():
        setattr(primitives, f"_load_{name}", loader(form))


if __name__ == "__main__":
    sys.exit(main())
