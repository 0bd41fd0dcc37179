"""Mutants of ``python -m tests.mutation``: one comparison flipped, and nothing else."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from tests.mutation import __main__ as mutation

SOURCE = '''def f(a, b):
    """Says a < b."""
    # ä < ö
    "ä" if (a) < (b) else a == b
    return a not  in b, a is not b, 1 <= a <= 2, a in b, a is b, (
        a  # the larger >
        > b
    ), a != b, a >= b
'''


def test_one_comparison_is_flipped_and_nothing_else() -> None:
    made = list(mutation.mutants(SOURCE))
    assert sorted(line for line, _ in made) == [4, 4, 5, 5, 5, 5, 5, 6, 8, 8]
    whole = ast.unparse(ast.parse(SOURCE))
    for line, source in made:
        changed = [
            n for n, (a, b) in enumerate(zip(SOURCE.splitlines(), source.splitlines(), strict=True), 1) if a != b
        ]
        assert changed in ([line], [7])  # a sign may stand below what it compares
        flipped = ast.parse(source)
        assert ast.unparse(flipped) != whole
        assert len([n for n in ast.walk(flipped) if isinstance(n, ast.Compare)]) == len(made)


def test_every_mutant_of_the_product_is_another_program() -> None:
    files = [*sorted(mutation.MODEL.rglob("*.py")), mutation.RELATIONS]
    for file in files:
        source = file.read_text(encoding="utf-8")
        whole = ast.dump(ast.parse(source))
        assert all(ast.dump(ast.parse(mutant.source)) != whole for mutant in mutation.all_mutants([file]))


def test_a_sample_is_the_same_for_a_seed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    drawn = []
    for seed in ("7", "7", "8"):
        monkeypatch.setattr(sys, "argv", ["mutation", "--sample", "20", "--seed", seed, "--list"])
        assert mutation.main() == 0
        drawn.append(capsys.readouterr().out)
    assert drawn[0] == drawn[1]
    assert drawn[0].splitlines()[1:] != drawn[2].splitlines()[1:]
    assert len(drawn[0].splitlines()) == 21


def test_the_first_tier_that_is_red_is_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its own tests are asked first, and ``make test-all`` of what ``make test`` lets pass: nothing is asked again."""
    asked: list[str] = []

    def passes(tree: Path, arguments: list[str], *_: object, **more: str) -> bool:
        tier = "test" if "tests/unit" in arguments else "test-all" if "-m" in arguments else "own"
        line = next(m.line for m in chosen if (tree / m.file.relative_to(mutation.ROOT)).read_text() == m.source)
        asked.append(f"{line} {tier}")
        return f"{line} {tier}" not in (f"{chosen[0].line} own", f"{chosen[1].line} test-all")

    lines: dict[int, mutation.Mutant] = {m.line: m for m in mutation.all_mutants([mutation.RELATIONS])}
    chosen = list(lines.values())[:3]
    monkeypatch.setattr(mutation, "passes", passes)
    monkeypatch.setattr(mutation, "copied", lambda root, tree: (tree / "rules" / "catalogue").mkdir(parents=True))
    assert mutation.by_tiers(chosen, "1") == 1
    first, second, third = (m.line for m in chosen)
    whole = [f"{line} {tier}" for line in (second, third) for tier in ("own", "test", "test-all")]
    assert asked == [f"{first} own", *whole]
    shown = capsys.readouterr().out.splitlines()
    assert shown[-2:] == [f"lived: {chosen[2]}", "3 mutants: 1 turn make test red, 2 make test-all"]
