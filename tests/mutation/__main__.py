"""``python -m tests.mutation [--every N] [FILE...]``: flips one comparison of the model, or of the kernels that replay
producers, at a time; a test must fail.

Each mutant lives in a copy of the tree, so nothing here changes. The tests of the model run as plain Python
(NUMBA_DISABLE_JIT), those of the kernels compiled, as audits run them; both stop at the first failure. Prints the
mutants that lived, ends with ``N killed, N lived``.
"""

from __future__ import annotations

import argparse
import ast
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "auditor" / "model"
# Modules whose statements are tested through those that call them, so that their tests stand there.
ALSO = {
    "group_story.py": ("test_rules_offsets.py",),
    "offset_watch.py": ("test_rules_offsets.py",),
    "policies.py": ("test_releases.py",),
    "releases.py": ("test_releases.py",),
}
REPLAY = ROOT / "auditor" / "replay" / "producers"
KERNELS = ("explanations.py", "kernel.py", "policy_kernel.py", "stored_sequences.py")
PROOF = (  # of the kernels
    "test_producer_account.py", "test_replay_kernel.py", "test_replay_policies.py", "test_replay_events.py",
    "test_proof_by_bytes.py", "test_conformance.py",
)  # fmt: skip
FLIPS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip


def mutants(source: str) -> Iterator[tuple[int, str]]:
    """Every version of ``source`` with one comparison flipped, and the line it is on."""
    places = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Compare)]
    for number in range(len(places)):
        tree = ast.parse(source)
        node = [n for n in ast.walk(tree) if isinstance(n, ast.Compare)][number]
        node.ops[0] = FLIPS[type(node.ops[0])]()
        yield node.lineno, ast.unparse(tree)


def survives(tree: Path, file: Path) -> bool:
    """Whether the tests of a file pass in a tree: those of the model, and of this module of it, or the proof of the
    kernels. Those that read corpora take too long as plain Python."""
    unit = tree / "tests" / "unit"
    env = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    if file.parent == REPLAY:
        tests = [unit / name for name in PROOF]
    else:
        tests = [unit / name for name in ALSO.get(file.name, ())] + sorted(unit.glob("test_model_*.py"))
        tests.append(unit / "test_conformance.py")
        env["NUMBA_DISABLE_JIT"] = "1"
    bytes_too = "" if file.parent == REPLAY else " and not the_log_of and not no_log_can and not whose_log"
    chosen = f"not corpus and not corpora{bytes_too}"
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-k", chosen]
    command += map(str, tests)
    try:
        done = subprocess.run(command, cwd=tree, env=env, capture_output=True, check=False, timeout=600)
    except subprocess.TimeoutExpired:  # an endless loop is a death too
        return False
    return done.returncode == 0


def main() -> int:
    """Runs the chosen mutants; exit status 1 when fewer than nine in ten were killed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument(
        "files", nargs="*", type=Path, default=[*sorted(MODEL.rglob("*.py")), *(REPLAY / name for name in KERNELS)]
    )
    parser.add_argument("--every", type=int, default=1, help="only every Nth mutant")
    args = parser.parse_args()
    killed = lived = seen = 0
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch) / "tree"
        ignore = shutil.ignore_patterns(
            ".git", ".venv", "build", "corpora", "__pycache__", ".mypy_cache", ".ruff_cache"
        )
        shutil.copytree(ROOT, tree, ignore=ignore)
        (tree / "tests" / "data" / "corpora").symlink_to(ROOT / "tests" / "data" / "corpora")
        for file in args.files:
            target = tree / file.resolve().relative_to(ROOT)
            source = target.read_text(encoding="utf-8")
            for line, mutant in mutants(source):
                seen += 1
                if seen % args.every:
                    continue
                target.write_text(mutant, encoding="utf-8")
                if survives(tree, file.resolve()):
                    lived += 1
                    print(f"lived: {file.name}:{line}", flush=True)
                else:
                    killed += 1
            target.write_text(source, encoding="utf-8")
    print(f"{killed} killed, {lived} lived")
    return int(killed < 9 * lived)


if __name__ == "__main__":
    sys.exit(main())
