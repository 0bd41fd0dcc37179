"""``python -m tests.mutation [--every N] [FILE...]``: flips one comparison of the model, or of the kernels that replay
producers, at a time; a test must fail.

``--sample 20 --seed 7`` draws twenty of them, ``--tiers`` asks ``make test`` and, of what lives there, ``make
test-all``, instead of the tests of each file, and has the relations between findings too; without a seed the day is
one, and it is printed.

Each mutant lives in a copy of the tree, so nothing here changes. The tests of the model run as plain Python
(NUMBA_DISABLE_JIT), those of the kernels compiled, as audits run them; both stop at the first failure. Prints the
mutants that lived, ends with ``N killed, N lived``.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "auditor" / "model"
# Modules whose statements are tested through those that call them, so that their tests stand there.
ALSO = {
    "groups.py": ("test_rules_offsets.py",),
    "offset_watch.py": ("test_rules_offsets.py",),
    "policies.py": ("test_releases.py",),
}
REPLAY = ROOT / "auditor" / "replay" / "producers"
KERNELS = ("explanations.py", "kernel.py", "policy_kernel.py")
PROOF = (  # of the kernels
    "test_producer_account.py", "test_replay_kernel.py", "test_replay_policies.py", "test_replay_events.py",
    "test_proof_by_bytes.py", "test_conformance.py",
)  # fmt: skip
RELATIONS = ROOT / "rules" / "catalogue" / "relations.py"
FLIPS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
SIGNS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<", ast.GtE: ">=", ast.Gt: ">", ast.LtE: "<=", ast.Eq: "==", ast.NotEq: "!=",
    ast.In: "in", ast.NotIn: "not in", ast.Is: "is", ast.IsNot: "is not",
}  # fmt: skip
# What ``make test`` and ``make test-all`` run.
TIERS = {
    "make test": ["tests/test_tidy.py", "tests/unit", "tests/whole"],
    "make test-all": ["-m", "not cluster and not browser"],
}
PATIENCE_S = 3600  # for a tier; an endless loop is a death too


class Mutant(NamedTuple):
    """A file with one comparison flipped: the file, the line, and the whole source."""

    file: Path
    line: int
    source: str

    def __str__(self) -> str:
        return f"{self.file.name}:{self.line}"


def mutants(source: str) -> Iterator[tuple[int, str]]:
    """Every version of ``source`` with one comparison flipped, and the line it is on; nothing else is changed."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def place(line: int, column: int) -> int:
        """The number of a character; columns of the parser are bytes."""
        text = source[starts[line - 1] : starts[line]]
        return starts[line - 1] + len(text.encode()[:column].decode())

    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            start = place(node.left.end_lineno or 0, node.left.end_col_offset or 0)
            end = place(node.comparators[0].lineno, node.comparators[0].col_offset)
            sign, flipped = (SIGNS[operator] for operator in (type(node.ops[0]), FLIPS[type(node.ops[0])]))
            words = r"\s+".join(map(re.escape, sign.split()))
            (found,) = (m for m in re.finditer(rf"#.*|(?<!\w){words}(?!\w)", source[start:end]) if m[0][0] != "#")
            yield node.lineno, source[: start + found.start()] + flipped + source[start + found.end() :]


def all_mutants(files: list[Path]) -> list[Mutant]:
    """Those of several files."""
    return [Mutant(file, *mutant) for file in files for mutant in mutants(file.read_text(encoding="utf-8"))]


def passes(tree: Path, arguments: list[str], patience_s: int, **more: str) -> bool:
    """Whether tests pass in a tree."""
    env = os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(tree)} | more
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *arguments]
    try:
        done = subprocess.run(command, cwd=tree, env=env, capture_output=True, check=False, timeout=patience_s)
    except subprocess.TimeoutExpired:  # an endless loop is a death too
        return False
    return done.returncode == 0


def tests_of(tree: Path, file: Path) -> list[str]:
    """Pytest's arguments for the tests of a file, all of ``make test``: those of the model, and of this module of it,
    the proof of the kernels, or those of findings that explain others. Those that read corpora take too long as plain
    Python."""
    unit = tree / "tests" / "unit"
    if file == RELATIONS:
        return [str(unit / "test_relations.py"), *map(str, sorted(unit.glob("test_r*.py")))]
    without = "not corpus and not corpora"
    if file.parent == REPLAY:
        return ["-k", without, *(str(unit / name) for name in PROOF)]
    tests = [unit / name for name in ALSO.get(file.name, ())] + sorted(unit.glob("test_model_*.py"))
    tests.append(unit / "test_conformance.py")
    without += " and not the_log_of and not no_log_can and not whose_log"
    return ["-k", without, *map(str, tests)]


def survives(tree: Path, file: Path) -> bool:
    """Whether the tests of a file pass in a tree, those of the model as plain Python."""
    plain = {} if file == RELATIONS or file.parent == REPLAY else {"NUMBA_DISABLE_JIT": "1"}
    return passes(tree, tests_of(tree, file), 600, **plain)


def killer(tree: Path, file: Path, processes: str) -> str:
    """The first tier that a tree turns red, "" for none: ``make test-all`` has all that ``make test`` has.

    The tests of the file come first, since most mutants fail there."""
    options = ["-n", processes, "--timeout", "900"]
    if not passes(tree, [*options, *tests_of(tree, file)], 600):
        return "make test"
    for name, arguments in TIERS.items():
        if not passes(tree, [*options, *arguments], PATIENCE_S):
            return name
    return ""


def copied(root: Path, tree: Path) -> None:
    """Copies what mutants live in; corpora are a link, and what was compiled goes along."""
    ignore = shutil.ignore_patterns(".git", ".venv", "build", "corpora", ".mypy_cache", ".ruff_cache", ".hypothesis")
    shutil.copytree(root, tree, ignore=ignore, symlinks=True)
    (tree / "tests" / "data" / "corpora").symlink_to(root / "tests" / "data" / "corpora")


def judged(chosen: list[Mutant], lives: Callable[[Path, Mutant], bool]) -> tuple[int, int]:
    """How many of the mutants are killed and how many live, of which each is printed."""
    killed = lived = 0
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch) / "tree"
        copied(ROOT, tree)
        for mutant in chosen:
            target = tree / mutant.file.relative_to(ROOT)
            target.write_text(mutant.source, encoding="utf-8")
            if lives(tree, mutant):
                lived += 1
                print(f"lived: {mutant}", flush=True)
            else:
                killed += 1
            shutil.copyfile(mutant.file, target)
    return killed, lived


def by_tiers(chosen: list[Mutant], processes: str) -> int:
    """Prints which tier each mutant turns red, and how many each; exit code 1 where one lives."""
    counts = Counter[str]()

    def lives(tree: Path, mutant: Mutant) -> bool:
        name = killer(tree, mutant.file, processes)
        counts[name] += 1
        if name:
            print(f"{mutant}: red in {name}", flush=True)
        return not name

    judged(chosen, lives)
    quick = counts["make test"]
    print(f"{len(chosen)} mutants: {quick} turn make test red, {quick + counts['make test-all']} make test-all")
    return int(counts[""] > 0)


def main() -> int:
    """Runs the chosen mutants; exit code 1 when fewer than nine in ten were killed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--every", type=int, default=1, help="only every Nth mutant")
    parser.add_argument("--sample", type=int, help="so many mutants, drawn at random")
    parser.add_argument("--seed", type=int, default=int(time.time() // 86_400), help="of --sample (default: the day)")
    parser.add_argument("--list", action="store_true", help="print the chosen mutants, and run nothing")
    parser.add_argument("--tiers", action="store_true", help="ask make test, and make test-all of what lives there")
    parser.add_argument("-n", dest="processes", default="logical", help="with --tiers: pytest's processes")
    args = parser.parse_args()
    every = [*sorted(MODEL.rglob("*.py")), *(REPLAY / name for name in KERNELS)]
    every += [RELATIONS] if args.tiers or args.list else []  # whole audits see most of these, and no unit test
    everyone = all_mutants([file.resolve() for file in args.files or every])
    chosen = everyone[args.every - 1 :: args.every]
    if args.sample is not None:
        chosen = random.Random(args.seed).sample(chosen, min(args.sample, len(chosen)))
        print(f"{len(chosen)} of {len(everyone)} mutants, drawn with --seed {args.seed}", flush=True)
    if args.list:
        print("\n".join(map(str, chosen)))
        return 0
    if args.tiers:
        return by_tiers(chosen, args.processes)
    killed, lived = judged(chosen, lambda tree, mutant: survives(tree, mutant.file))
    print(f"{killed} killed, {lived} lived")
    return int(killed < 9 * lived)


if __name__ == "__main__":
    sys.exit(main())
