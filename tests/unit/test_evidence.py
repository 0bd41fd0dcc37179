"""Each key of evidence that is read again is declared for the kinds that it is read of, and is read by its type."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from auditor.base import evidence_keys
from auditor.base.evidence_keys import Evidence
from auditor.rules.catalogue import kinds, registry, relations, safeguards
from auditor.rules.catalogue.registry import Kind
from auditor.rules.seen.cluster_view import Cluster
from tests.declared_evidence import declared, faults, fits
from tests.facts import log_of
from tests.made import facts

ROOT = Path(__file__).parents[2]
# Modules that handle evidence as a whole, whatever its keys: they merge, sum and compare it.
WHOLE = ("rules/resolution/resolve.py", "rules/resolution/finding_limits.py", "rules/catalogue/relations.py")


def is_evidence(node: ast.AST) -> bool:
    """Whether an expression is a finding's evidence."""
    match node:
        case ast.Attribute(attr="evidence"):
            return True
        case ast.Subscript(slice=ast.Constant(value="evidence")):
            return True
        case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value="evidence"), *_]):
            return True
        case ast.BoolOp(values=values):
            return any(map(is_evidence, values))
    return False


def reads_untyped(source: str) -> Iterator[tuple[int, str | None]]:
    """Line and key (None: a computed one) of each key that a source reads of a finding's evidence without ``read``."""
    for node in ast.walk(ast.parse(source)):
        key: ast.AST | None = None
        match node:
            case ast.Subscript(value=value, slice=given, ctx=ast.Load()) if is_evidence(value):
                key = given
            case ast.Call(func=ast.Attribute(value=value, attr="get" | "pop" | "setdefault"), args=[given, *_]) if (
                is_evidence(value)
            ):
                key = given
            case ast.Compare(left=left, ops=[ast.In() | ast.NotIn()], comparators=[value]) if is_evidence(value):
                key = left
        if key is not None:
            yield node.lineno, key.value if isinstance(key, ast.Constant) else None  # type: ignore[attr-defined]


def test_evidence_is_read_by_its_types_alone() -> None:
    found = []
    for folder in ("auditor", "connectors", "dashboards", "rules"):
        for path in (ROOT / folder).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix()
            for line, key in reads_untyped(path.read_text(encoding="utf-8")):
                found += [f"{name}:{line}"] if key is not None or name not in WHOLE else []
    assert not found


def test_a_read_without_its_type_is_seen() -> None:
    for source in ("f.evidence['x']", "(row['evidence'] or {}).get('x')", "row.get('evidence')['x']"):
        assert list(reads_untyped(source)) == [(1, "x")]
    assert list(reads_untyped("'x' in f.evidence")) == [(1, "x")]
    assert not list(reads_untyped("read(Evidence, f.evidence)['x']; f.evidence['x'] = 1"))


def shapes_read(function: Callable[..., Any]) -> dict[str, set[str]]:
    """Of each parameter of a function of ours the shapes in which it, and what it calls, read its evidence."""
    tree = ast.parse(inspect.getsource(function)).body[0]
    assert isinstance(tree, ast.FunctionDef)
    found: dict[str, set[str]] = {argument.arg: set() for argument in tree.args.args}
    around = inspect.getmodule(function)
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        match call:
            case ast.Call(func=ast.Name(id="read"), args=[ast.Name(id=shape), ast.Attribute(value=ast.Name(id=of))]):
                for name in [of] if of in found else ["cause", "other"]:  # a variable that runs over both
                    found[name].add(shape)
            case ast.Call(func=ast.Name(id=called), args=arguments):
                inner = getattr(around, called, None)
                if inspect.isfunction(inner) and inner.__module__ == function.__module__:
                    taken(found, arguments, shapes_read(inner))
            case ast.Call(func=ast.Attribute(value=ast.Name(id=called), attr="holds"), args=arguments):
                taken(found, arguments, shapes_read(getattr(around, called).holds))
    return found


def taken(found: dict[str, set[str]], arguments: list[ast.expr], inner: dict[str, set[str]]) -> None:
    for argument, shapes in zip(arguments, inner.values(), strict=False):
        if isinstance(argument, ast.Name) and argument.id in found:
            found[argument.id] |= shapes


def lacking(kind: Kind, shapes: set[str]) -> list[str]:
    """Keys of shapes that a kind does not declare, or declares with another type."""
    own = declared(kind)
    return [
        f"{kind.id} lacks {shape}.{key}"
        for shape in shapes
        for key, hint in get_type_hints(getattr(evidence_keys, shape)).items()
        if own.get(key) != hint
    ]


def test_a_relation_reads_what_its_kinds_declare() -> None:
    catalogue, found, seen = registry.kinds(), [], 0
    for kind in catalogue.values():
        for tie in kind.explained_by:
            shapes = shapes_read(tie.relation.holds)
            seen += sum(map(len, shapes.values()))
            found += lacking(catalogue[tie.kind], shapes["cause"]) + lacking(kind, shapes["other"])
            if tie.when and tie.when not in declared(catalogue[tie.kind]):
                found.append(f"{tie.kind} lacks {tie.when}")
    assert not found
    assert seen > 100
    assert shapes_read(relations.hole_of_its_marker.holds) == {
        "cause": {"DecisionEvidence", "Evidence"},
        "other": {"HoleEvidence", "Evidence"},
    }


def test_a_safeguard_reads_what_its_kinds_declare() -> None:
    found, seen = [], 0
    for kind in registry.kinds().values():
        for first in kind.prevented_by:
            one: safeguards.Safeguard | None = first
            while one is not None:
                shapes = shapes_read(one.applies)["finding"] if one.applies.__name__ != "<lambda>" else set()
                if one.current.location is safeguards.SettingLocation.PRODUCER:
                    shapes.add("OpenTransactionEvidence")
                seen += len(shapes)
                found += lacking(kind, shapes)
                one = one.or_else
    assert not found
    assert seen > 20


def test_no_shape_is_declared_for_nothing() -> None:
    used = {shape.__name__ for row in kinds.KINDS.values() for shape in row.marks.get("evidence", ())}
    there = {name for name, value in vars(evidence_keys).items() if name.endswith("Evidence") and name != "Evidence"}
    assert there - used <= {"StepEvidence", "ClassEvidence", "LateDataEvidence"}  # parts of others


def test_a_value_of_another_type_is_seen() -> None:
    kind = registry.kinds()["offset-hole"]
    assert not faults(kind, {"missing_range": [1, 2], "log_dir": None, "for people": object()})
    assert faults(kind, {"missing_range": [1, None]}) == ["offset-hole.missing_range: [1, None]"]
    assert fits(
        [{"producer_id": 1, "field": "f", "stored": 1, "replayed": None}], list[evidence_keys.SnapshotDifference]
    )
    assert not fits([{"producer_id": 1}], list[evidence_keys.SnapshotDifference])
    assert not fits(True, int)
    assert declared(kind).keys() > get_type_hints(Evidence).keys()


@pytest.mark.parametrize("partitions", [1, ["a-0"], None])
def test_unverified_batches_are_looked_up_by_names_of_partitions_alone(partitions: object) -> None:
    """Clocks that differ have a number there, which stopped the audit."""
    log = log_of([facts()], Cluster(as_of=1, newest_time=1, unverified={"a-0": [(3, 5)]}))
    found = log.finding("info", "x", evidence={"partitions": partitions})
    assert found.evidence.get("checksums") == ("not verified" if partitions == ["a-0"] else None)
