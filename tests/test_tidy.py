"""The rules of the house that no linter checks, each with a sample that breaks it.

Ruff checks style, public docstrings, blind excepts and prints; here stand sizes, layers and what is never committed.
"""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from auditor.evidence.cluster_clocks import NO_CLOCK_MS, ONE_CLOCK_MS, TWO_CLOCKS_MS
from auditor.model.policies import PARTS, POLICIES

ROOT = Path(__file__).parents[1]
PRODUCT = ("auditor", "connectors", "rules", "dashboards", "airflow_dags")
OURS = (*PRODUCT, "tests", "bench")
MAX_FUNCTION_LINES = 70
MAX_FILE_LINES = 900
MAX_FILE_BYTES = 5 << 20

# Who must not import whom; what stands after "but" in an entry is let through. A room not named may import anything.
ABOVE_FACTS = ("auditor.processes", "auditor.replay", "auditor.evidence", "auditor.transactions", "auditor.rules",
               "auditor.pipeline", "auditor.spark", "auditor.outputs", "auditor.commands", "auditor.dashboards",
               "auditor.inline", "auditor.running", "auditor.cli")  # fmt: skip
BELOW_PIPELINE = ("auditor.base", "auditor.facts", "auditor.model", "auditor.connectors", "auditor.processes",
                  "auditor.replay", "auditor.evidence", "auditor.transactions", "auditor.rules")  # fmt: skip
LAYERS: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "auditor/base": (frozenset({"pyspark", "pandas", "auditor"}), frozenset({"auditor.base"})),
    "auditor/facts": (
        frozenset({"pyspark", "pandas", "auditor"}),
        frozenset({"auditor.base", "auditor.facts", "auditor.model"}),
    ),
    "auditor/evidence": (
        frozenset({"pyspark", "pandas", "auditor"}),
        frozenset({"auditor.base", "auditor.facts", "auditor.model", "auditor.evidence"}),
    ),
    "auditor/transactions": (
        frozenset({"pyspark", "pandas", "auditor"}),
        frozenset({"auditor.base", "auditor.facts", "auditor.model", "auditor.evidence", "auditor.transactions"}),
    ),
    "connectors": (frozenset({"auditor"}), frozenset({"auditor.base", "auditor.connectors"})),
    "connectors/codec": (
        frozenset({"pyspark", "pandas", "pyarrow.fs", "fsspec", "kafka", "auditor"}),
        frozenset({"auditor.base", "auditor.connectors.codec", "auditor.connectors.schema"}),
    ),
    "auditor/model": (
        frozenset({"pyspark", "pandas", "pyarrow", "auditor", "os", "io", "pathlib", "time"}),
        frozenset({"auditor.base", "auditor.model", "auditor.connectors.codec.batches"}),  # names of flaws
    ),
    "auditor/processes": (
        frozenset({"pyspark", "pandas", "pyarrow", "auditor"}),
        frozenset({"auditor.base", "auditor.connectors", "auditor.processes"}),
    ),
    "auditor/replay": (frozenset({"pyspark", *ABOVE_FACTS}), frozenset({"auditor.replay"})),
    "rules": (
        frozenset({"auditor.connectors", *ABOVE_FACTS}),
        frozenset(
            {
                "auditor.evidence",
                "auditor.transactions",
                "auditor.rules",
                "auditor.connectors.schema",
                "auditor.connectors.codec.batches",  # names of flaws
            }
        ),
    ),
    "auditor/pipeline": (frozenset({"pyspark", "auditor"}), frozenset({*BELOW_PIPELINE, "auditor.pipeline"})),
    "dashboards": (
        frozenset({"pyspark", "auditor"}),
        frozenset(
            {
                "auditor.base.advice",
                "auditor.base.errors",
                "auditor.base.evidence_keys",
                "auditor.base.code_cache",
                "auditor.base.transactional_ids",
                "auditor.base.words",
                "auditor.base.user_input",
                "auditor.base.at_rest",
                "auditor.dashboards",
            }
        ),
    ),
    "auditor/outputs": (
        frozenset({"pyspark", "auditor"}),
        frozenset({*BELOW_PIPELINE, "auditor.pipeline", "auditor.dashboards", "auditor.outputs"}),
    ),
    "auditor/copying": (
        frozenset({"pyspark", "auditor"}),
        frozenset({*BELOW_PIPELINE, "auditor.pipeline", "auditor.copying"}),
    ),
    "auditor/inline.py": (
        frozenset({"pyspark", "py4j", "auditor"}),
        frozenset({*BELOW_PIPELINE, "auditor.pipeline", "auditor.inline"}),
    ),
    "auditor/spark": (frozenset({"auditor"}), frozenset({*BELOW_PIPELINE, "auditor.pipeline", "auditor.spark"})),
    "auditor/api": (frozenset({"auditor.commands", "auditor.cli"}), frozenset()),
    "auditor/commands": (frozenset({"pyspark", "auditor.spark", "auditor.inline", "auditor.cli"}), frozenset()),
}
# Margins between clocks, which only auditor/evidence uses, and what has the value of one and is none.
MARGINS = frozenset({"ONE_CLOCK_MS", "TWO_CLOCKS_MS", "SAME_CLOCK_MS", "SKEW_MS", "NO_CLOCK_MS", "READ_MS", "FALL_MS"})
MARGIN_VALUES = frozenset({ONE_CLOCK_MS, TWO_CLOCKS_MS, NO_CLOCK_MS})
NO_MARGINS = {
    "auditor/copying/throttling.py: 0 < value < 1000": "the number of a rate",
    "auditor/facts/replica_facts.py: FALL_MS": "the definition of the column era, below evidence",
    "auditor/facts/replica_facts.py: FALL_MS = 1000": "the definition of the column era, below evidence",
    "auditor/facts/replica_facts.py: LEAST_MS = 1000": "of a rate",
    "auditor/model/transaction_states.py: timeout_ms: int = 30000": "the setting of a client",
    "auditor/pipeline/space_table.py: MINUTE_MS = 60000": "a unit of settings",
    "auditor/replay/producers/kernel.py: FALL_MS": "the column era is written there, while a log is read",
    "auditor/replay/producers/kernel.py: MINUTE_MS = 60000": "how often times of a log are kept",
    "rules/coordinator_state.py: columns['timeout_ms'] > 60000": "the default of a client's setting",
    "rules/producer_sequences.py: NOT_IDLE_MS = 1000": "a bound of a broker's setting",
}
# A scheduler imports a DAG file every few seconds.
HEAVY = frozenset({"pyspark", "pandas", "numpy", "numba", "pyarrow", "great_expectations", "auditor"})


def sources(*folders: str) -> list[Path]:
    """Every module below these folders; a name that ends in .py is a module itself."""
    return sorted(
        path
        for folder in folders
        for path in ([ROOT / folder] if folder.endswith(".py") else (ROOT / folder).rglob("*.py"))
    )


def committed() -> list[Path]:
    """What git keeps; without git (an unpacked archive), every file outside hidden and cache folders."""
    if (ROOT / ".git").exists():
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
        paths = [ROOT / name for name in listed.decode().split("\0") if name]
    else:
        parts = ((path, path.relative_to(ROOT).parts) for path in ROOT.rglob("*"))
        paths = [path for path, names in parts if not any(n.startswith(".") or n == "__pycache__" for n in names)]
    return [path for path in paths if path.is_file()]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def long_functions(source: str) -> list[str]:
    """Functions of more than 70 lines, decorators and docstring counted."""
    functions = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [f.name for f in functions if (f.end_lineno or 0) - f.lineno >= MAX_FUNCTION_LINES]


def imports(source: str, package: str, *, top_only: bool = False) -> Iterator[str]:
    """Dotted names of what a module of ``package`` imports; ``top_only`` leaves out imports inside functions."""
    tree = ast.parse(source)
    for node in tree.body if top_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: -(node.level - 1) or None] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def within(name: str, rooms: frozenset[str]) -> bool:
    return any(name == room or name.startswith(room + ".") for room in rooms)


def trespasses(source: str, folder: str, layer: str) -> list[str]:
    forbidden, but = LAYERS[layer]
    package = folder.replace("/", ".") if folder.startswith("auditor") else "auditor." + folder.replace("/", ".")
    return [n for n in imports(source, package) if within(n, forbidden) and not within(n, but)]


def policies_named(source: str) -> list[str]:
    """String literals that are a policy's name, or one that stands for several."""
    names = {*POLICIES, *PARTS}
    texts = (n.value for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Constant) and isinstance(n.value, str))
    return sorted(text for text in texts if text in names)


def margins(source: str) -> set[str]:
    """Names of margins between clocks; and their values where they are added, subtracted, compared, or named in ms."""
    out = set()
    for node in ast.walk(ast.parse(source)):
        operands: list[ast.expr | None] = []
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name) if name in MARGINS:
                out.add(name)
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
                operands = [left, right]
            case ast.Compare(left=left, comparators=others):
                operands = [left, *others]
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                operands = [node.value] if name.lower().endswith("_ms") else []
            case ast.keyword(arg="milliseconds" | "seconds"):
                operands = [node.value]
        values = {operand.value for operand in operands if isinstance(operand, ast.Constant)}
        if not MARGIN_VALUES.isdisjoint(values):
            out.add(ast.unparse(node))
    return out


def machine_paths(text: str) -> list[str]:
    """Absolute paths that exist on one machine only (temporary and home folders of those who built this)."""
    return re.findall(r"(?<![\w.}\])*])/(?:" + "work|farm|root|tmp/lab|home/[a-z]+" + r")/[\w.-]*", text)


def hosts(text: str) -> list[str]:
    """Whatever in a lock file would tie it to one registry."""
    return re.findall(r"\S+://\S+|--(?:extra-)?index-url|--find-links|--trusted-host|^-i .*", text, re.MULTILINE)


def offenders(paths: Iterable[Path], rule: Callable[[Path, str], Iterable[str]]) -> list[str]:
    """Where a rule, which is asked with each file and its text, names something; an empty list of files is no proof."""
    asked = list(paths)
    assert asked, "no file is looked at"
    named = ((name_of(path), what) for path in asked for what in rule(path, path.read_text(encoding="utf-8")))
    return [f"{name}: {what}" for name, what in named]


def test_offenders_are_named_with_their_files() -> None:
    here = Path(__file__)
    assert offenders([here], lambda path, text: [path.name, text[:3]]) == [
        "tests/test_tidy.py: test_tidy.py",
        'tests/test_tidy.py: """',
    ]
    with pytest.raises(AssertionError, match="no file is looked at"):
        offenders([], lambda path, text: [])


def test_functions_fit_on_a_screen() -> None:
    assert not offenders(sources(*OURS), lambda _, text: long_functions(text))


def too_long(text: str) -> list[str]:
    """The number of lines of a file, where it has too many."""
    lines = len(text.splitlines())
    return [f"{lines} lines"] if lines > MAX_FILE_LINES else []


def test_files_have_one_subject() -> None:
    assert not offenders(sources(*PRODUCT), lambda _, text: too_long(text))


def test_a_long_file_is_seen() -> None:
    assert too_long("x\n" * (MAX_FILE_LINES + 1)) == [f"{MAX_FILE_LINES + 1} lines"]
    assert not too_long("x\n" * MAX_FILE_LINES)


@pytest.mark.parametrize("layer", LAYERS)
def test_layers_import_one_way(layer: str) -> None:
    found = {name_of(p): trespasses(p.read_text(encoding="utf-8"), name_of(p.parent), layer) for p in sources(layer)}
    assert found, f"no source under {layer}"
    assert not {path: names for path, names in found.items() if names}


def rooms() -> dict[str, set[str]]:
    """Whom each room imports, for types alone too; modules beside the rooms are rooms of their own."""
    found: dict[str, set[str]] = {}
    for path in sources("auditor", "connectors", "rules", "dashboards"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        package = [*([] if parts[0] == "auditor" else ["auditor"]), *parts]
        names = imports(path.read_text(encoding="utf-8"), ".".join(package[:-1]))
        ours = {name.split(".")[1] for name in names if name.startswith("auditor.")}
        found.setdefault(package[1], set()).update(ours - {package[1]})
    return found


def circle(graph: dict[str, set[str]]) -> set[str]:
    """What is left when those that import nobody are taken away again and again."""
    left = {room: set(others) & graph.keys() for room, others in graph.items()}
    while free := {room for room, others in left.items() if not others & left.keys()}:
        left = {room: others for room, others in left.items() if room not in free}
    return set(left)


def test_no_two_rooms_import_each_other() -> None:
    """Not by way of others either."""
    graph = rooms()
    assert {"pipeline", "spark", "inline", "outputs", "commands", "running"} <= graph.keys()
    assert not circle(graph)


@functools.cache
def modules() -> dict[str, set[str]]:
    """Shared between tests: do not change it. Whom each module imports, for types alone too, and inside functions."""
    paths = {}
    for path in sources("auditor", "connectors", "rules", "dashboards"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        paths[".".join([*([] if parts[0] == "auditor" else ["auditor"]), *parts]).removesuffix(".__init__")] = path
    graph = {}
    for name, path in paths.items():
        names = set(imports(path.read_text(encoding="utf-8"), name.rpartition(".")[0]))
        graph[name] = {n if n in paths else n.rpartition(".")[0] for n in names} & paths.keys() - {name}
    return graph


def floors(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """The same with all modules of a folder inside a room as one."""
    found: dict[str, set[str]] = {}
    for module, others in graph.items():
        inside = ".".join(module.split(".")[:3])
        found.setdefault(inside, set()).update(".".join(name.split(".")[:3]) for name in others if name.count(".") > 1)
    return {inside: others - {inside} for inside, others in found.items()}


def test_no_two_folders_of_a_room_import_each_other() -> None:
    """Nor a folder and a module beside it, not by way of others either."""
    graph = floors(modules())
    assert "auditor.rules.seen" in graph["auditor.rules.catalogue"]
    assert not circle(graph)


def test_no_two_modules_import_each_other() -> None:
    """Not by way of others either."""
    graph = modules()
    assert "auditor.rules.catalogue.registry" in graph["auditor.pipeline.whole_audit"]
    assert not circle(graph)


MODEL = "auditor.model"
ASKS_THE_MODEL = frozenset({"auditor.pipeline", "auditor.replay", "auditor.rules"})


def reached(graph: dict[str, set[str]], rooms: frozenset[str]) -> set[str]:
    """Modules of these rooms, and what they import, by way of others too."""
    found, left = set(), {module for module in graph if within(module, rooms)}
    while left:
        found |= left
        left = {name for module in left for name in graph[module]} - found
    return found


def unused(graph: dict[str, set[str]]) -> set[str]:
    """Modules of the model that no audit comes to."""
    return {module for module in graph if within(module, frozenset({MODEL}))} - {MODEL} - reached(graph, ASKS_THE_MODEL)


def test_audits_use_all_of_the_model() -> None:
    """What no log can hold is in tests/reference: what an audit asks is in the model."""
    graph = modules()
    assert "auditor.model.producers" in reached(graph, ASKS_THE_MODEL)
    assert not unused(graph)


def test_a_module_of_the_model_that_nobody_uses_is_seen() -> None:
    assert unused({"auditor.model.a": set(), "auditor.replay.c": set()}) == {"auditor.model.a"}
    assert not unused({"auditor.model.a": set(), "auditor.model.b": {"auditor.model.a"}, "rules": set(),
                       "auditor.replay.c": {"auditor.model.b"}})  # fmt: skip


def imported_tests(path: Path, text: str) -> list[str]:
    names = imports(text, name_of(path.parent).replace("/", "."))
    return [name for name in names if within(name, frozenset({"tests"}))]


def test_the_product_imports_no_test() -> None:
    assert not offenders(sources(*PRODUCT), imported_tests)
    assert imported_tests(ROOT / "rules" / "new.py", "from tests import made") == ["tests.made"]


def test_a_circle_of_rooms_is_seen() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == {"a", "b", "c"}
    apart = {"auditor.a.b.c": {"auditor.a.d"}, "auditor.a.d": {"auditor.a.b.e"}, "auditor.a.b.e": set[str]()}
    assert not circle(apart)
    assert circle(floors(apart)) == {"auditor.a.b", "auditor.a.d"}


def heavy_imports(path: Path, text: str) -> list[str]:
    top = imports(text, name_of(path.parent).replace("/", "."), top_only=True)
    return [name for name in top if within(name, HEAVY)]


def test_dags_import_nothing_heavy() -> None:
    assert not offenders(sources("airflow_dags"), heavy_imports)
    assert heavy_imports(ROOT / "airflow_dags" / "new.py", "import pandas") == ["pandas"]


def test_no_large_file() -> None:
    assert not [name_of(path) for path in committed() if path.stat().st_size > MAX_FILE_BYTES]


def test_no_path_of_one_machine() -> None:
    texts = [
        p for p in committed() if not p.is_relative_to(ROOT / "tests" / "data") and p.suffix not in {".png", ".gz"}
    ]
    found = {name_of(path): machine_paths(path.read_text(encoding="utf-8", errors="ignore")) for path in texts}
    assert not {path: paths for path, paths in found.items() if paths}


@pytest.mark.parametrize("lock", sorted(path.name for path in ROOT.glob("requirements*.lock")))
def test_the_lock_names_no_host_and_every_hash(lock: str) -> None:
    text = (ROOT / lock).read_text(encoding="utf-8")
    pins = re.split(r"^(?=\w)", text, flags=re.MULTILINE)[1:]
    assert pins
    assert not hosts(text)
    assert not [pin.splitlines()[0] for pin in pins if "==" not in pin.splitlines()[0] or "--hash=sha256:" not in pin]


def test_the_lock_pins_every_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    pinned = set(re.findall(r"^([\w-]+)==", (ROOT / "requirements.lock").read_text(encoding="utf-8"), re.MULTILINE))
    extras = [name for extra, names in project["project"]["optional-dependencies"].items() for name in names
              if extra != "all"]  # fmt: skip
    wanted = project["project"]["dependencies"] + project["dependency-groups"]["dev"] + extras
    assert {re.split(r"[\[<>=! ;]", name)[0].lower() for name in wanted} <= pinned


def test_what_the_demo_installs_is_what_everything_pins() -> None:
    run, everything = (
        set(re.findall(r"^\w[^\\]+", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE))
        for name in ("requirements-run.lock", "requirements.lock")
    )
    assert run <= everything
    assert any(pin.startswith("pyarrow==") for pin in run)
    assert not any(pin.startswith(("pyspark==", "great-expectations==", "pytest==")) for pin in run)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "ARCHITECTURE.md"])
def test_pages_name_what_exists(page: str) -> None:
    """Every make target, test and relative link that a page names is there."""
    text = (ROOT / page).read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)", text)) <= targets
    assert not [link for link in re.findall(r"\]\(([^)#:]+)\)", text) if not (ROOT / link).exists()]
    for file, test in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text):
        assert (ROOT / file).is_file(), file
        assert f"def {test}" in (ROOT / file).read_text(encoding="utf-8"), f"{file}::{test}"


def starts_python(source: str) -> bool:
    """Whether a module runs this interpreter again; that the pool of readers is not started, its conftest sees to."""
    return any(name in source for name in ("sys.executable", "import multiprocessing", "ProcessPoolExecutor"))


def beyond_a_unit(source: str) -> list[str]:
    """What a test in tests/unit does that belongs elsewhere."""
    processes = ["it starts Python: tests/processes"] if starts_python(source) else []
    return processes + (["it takes Spark: tests/spark"] if re.search(r"\bspark: |mark\.spark\b", source) else [])


def test_units_start_no_process_and_no_spark() -> None:
    assert not offenders(sources("tests/unit"), lambda _, text: beyond_a_unit(text))


def test_whole_audits_need_no_spark() -> None:
    """``make test`` runs them where there is no Java; those that need one are marked, or in other folders."""
    assert not offenders(sources("tests/whole"), lambda _, text: beyond_a_unit(text)[starts_python(text) :])


def asks_for_spark(path: Path) -> bool:
    """Whether a test takes the fixture ``spark``."""
    return bool(re.search(r"def test_\w+\([^)]*\bspark: ", path.read_text(encoding="utf-8")))


def test_all_who_share_the_spark_session_stand_together() -> None:
    """With ``-n`` one worker has all of tests/spark: elsewhere the fixture would start a second JVM in another one."""
    assert any(map(asks_for_spark, sources("tests/spark")))
    others = sources("tests/whole", "tests/processes", "tests/fuzz", "tests/differential")
    assert not [name_of(path) for path in others if asks_for_spark(path)]


def test_a_process_in_a_unit_test_is_seen() -> None:
    assert beyond_a_unit("subprocess.run([sys." + "executable, '-c', code])") == ["it starts Python: tests/processes"]
    assert beyond_a_unit("def test_a(spark" + ": SparkSession) -> None: ...") == ["it takes Spark: tests/spark"]


def test_each_module_says_what_it_is_in_its_first_line() -> None:
    """``make map`` shows these lines, which are the map."""
    found = {name_of(p): ast.get_docstring(ast.parse(p.read_text(encoding="utf-8"))) or "" for p in sources(*PRODUCT)}
    assert not [name for name, text in found.items() if len(text.partition("\n")[0].split()) < 2]


SAME_NAME = frozenset({"__init__.py", "__main__.py", "conftest.py"})


def names_in_two_rooms(paths: Iterable[Path]) -> dict[str, list[str]]:
    """File names that stand in several folders; tests are left out, which are named for their subjects."""
    found: dict[str, list[str]] = {}
    for path in paths:
        if path.name not in SAME_NAME and not path.name.startswith("test_"):
            found.setdefault(path.name, []).append(name_of(path.parent))
    return {name: folders for name, folders in found.items() if len(folders) > 1}


def test_a_file_name_stands_in_one_room() -> None:
    """So that a name says its subject. A command has the name that users type, which may be its subject's too."""
    named = [path for path in sources(*OURS) if not path.is_relative_to(ROOT / "auditor" / "commands")]
    assert not names_in_two_rooms(named)


def test_a_name_in_two_rooms_is_seen() -> None:
    assert names_in_two_rooms([ROOT / "rules/plan.py", ROOT / "bench/plan.py"]) == {"plan.py": ["rules", "bench"]}


def test_a_long_function_is_seen() -> None:
    body = "\n".join(["    pass"] * MAX_FUNCTION_LINES)
    assert long_functions(f"def long():\n{body}\n\ndef short():\n    pass\n") == ["long"]


@pytest.mark.parametrize(
    ("source", "folder", "layer"),
    [
        ("import pyspark.sql", "connectors/codec", "connectors/codec"),
        ("def f():\n    from ..storage import opened", "connectors/codec", "connectors/codec"),
        ("from auditor.spark import tables", "connectors/text", "connectors"),
        ("from auditor.connectors import schema", "auditor/model", "auditor/model"),
        ("import time", "auditor/model", "auditor/model"),
        ("from auditor.connectors.codec.indexes import read", "rules", "rules"),
        ("import auditor.rules", "dashboards", "dashboards"),
        ("if TYPE_CHECKING:\n    from auditor.spark import scan", "auditor/pipeline", "auditor/pipeline"),
        ("def f():\n    import pyspark", "auditor", "auditor/inline.py"),
        ("from auditor.commands import sql", "auditor/outputs", "auditor/outputs"),
    ],
)
def test_a_trespass_is_seen(source: str, folder: str, layer: str) -> None:
    assert trespasses(source, folder, layer)


def test_a_neighbour_is_no_trespass() -> None:
    source = "from .columns import BatchColumns\nfrom auditor.base.errors import Limits\nimport pysparkle"
    assert not trespasses(source, "connectors/codec", "connectors/codec")


def test_an_import_inside_a_function_is_no_top_import() -> None:
    source = "import json\ndef run():\n    import pyspark"
    assert list(imports(source, "airflow_dags", top_only=True)) == ["json"]


def test_only_the_model_knows_policies_by_name() -> None:
    """Elsewhere a policy is asked for what it decides: a name asked for is a fact about it that stands elsewhere."""
    elsewhere = sources("auditor", "connectors", "rules", "dashboards")
    outside = [path for path in elsewhere if not path.is_relative_to(ROOT / "auditor" / "model")]
    assert not offenders(outside, lambda _, text: policies_named(text))


def test_a_policy_that_is_asked_for_by_name_is_seen() -> None:
    assert policies_named("late = policy == 'kip-890-p2' or policy.startswith(f'{x}kip-890')") == [
        "kip-890",
        "kip-890-p2",
    ]
    assert not policies_named('"""Under kip-360 and later."""\nx = "kip"')


def test_only_evidence_compares_with_margins_between_clocks() -> None:
    """Elsewhere such a comparison is a call of auditor/evidence. Formats and pages have no clocks."""
    elsewhere = [path for path in sources("auditor", "rules") if not within_evidence(path)]
    assert set(offenders(elsewhere, lambda _, text: margins(text))) == set(NO_MARGINS)


def within_evidence(path: Path) -> bool:
    return path.is_relative_to(ROOT / "auditor" / "evidence")


@pytest.mark.parametrize(
    "source",
    [
        "late = time > begun + 30_000",
        "late = times - 1_000 < begun",
        "late = time - begun > 60_000",
        "SLACK_MS = 30_000",
        "late = time - begun > timedelta(milliseconds=30_000)",
        "late = time > begun + clocks.TWO_CLOCKS_MS",
        "from auditor.evidence.cluster_clocks import ONE_CLOCK_MS",
    ],
)
def test_a_margin_elsewhere_is_seen(source: str) -> None:
    assert margins(source)


def test_other_numbers_are_no_margins() -> None:
    assert not margins("MOST = 1_000\nsize = 30_000 * count\nlate = is_after(time, begun) or time > begun + CLIENT_MS")


def test_a_path_and_a_host_are_seen() -> None:
    assert machine_paths("open('" + "/wo" + "rk/shared/x')") == ["/wo" + "rk/shared"]
    assert not machine_paths("spark/work/dir and {root}/root/x")
    assert hosts("--index-url " + "https" + "://example.org/simple\n")
