"""No option, argument or file is unpickled or run: every place that could do so is listed here with its reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

PACKAGES = ("auditor", "connectors", "rules", "dashboards", "airflow_dags", "scripts")
# Modules whose readers can run what they read. Writing is harmless; `copyreg` only says how to write.
DANGEROUS = {
    "pickle", "_pickle", "cloudpickle", "marshal", "dill", "shelve", "joblib", "jsonpickle", "yaml", "ruamel", "runpy",
    "code", "codeop", "imp", "zipimport", "ctypes", "cffi", "auditor.base.at_rest",
}  # fmt: skip
READERS = {
    "load",
    "loads",
    "Unpickler",
    "open",
    "unsafe_load",
    "full_load",
    "load_all",
    "YAML",
    "CDLL",
    "InteractiveConsole",
}
BUILTINS = {"eval", "exec", "compile", "__import__"}
# By attribute or name, whatever they are called on.
ALWAYS = {"read_pickle", "import_module", "spec_from_file_location", "system", "popen", "FunctionCache", "from_string"}
KEYWORDS = {"allow_pickle", "shell"}

OWN_MEMORY = "bytes that this process, or a task of the same job, packed and that never were in a file"
OWN_WORKERS = "comes over a socket pair or anonymous memory from workers that this process forked"
OWN_TASKS = "comes from another task of this job, in the Spark session that the caller chose or in our own workers"
CLOSURE = "shipped inside the closure of a task, which Spark itself unpickles"
PLANNED = "partitions that Spark carries from the planner of a query, which is ours, to its tasks"
LIBC = "the C library of this process, by no name of a file"
CONSTANT = "imports a module by a name that stands in our source, not in any input"
ALLOWED = {
    "auditor/__init__.py::__getattr__": CONSTANT,
    "auditor/copying/throttling.py::lower_priority": LIBC,
    "auditor/copying/throttling.py::trim_freed_memory": LIBC,
    "auditor/base/machine_code.py::_Cache": "machine code, kept where only this user can write",
    "auditor/base/machine_code.py::_load_numba": CONSTANT,
    "auditor/base/machine_code.py::module": CONSTANT,
    "auditor/base/at_rest.py::loads": "the reader of all rows below that import it",
    "auditor/base/at_rest.py::RowsAtRest.__iter__": OWN_MEMORY,
    "auditor/base/at_rest.py::RowsAtRest._opened": OWN_MEMORY,
    "auditor/cli.py::parsers": CONSTANT,
    "auditor/pipeline/compared_records.py::readable_logs": OWN_TASKS,
    "auditor/pipeline/runner.py::judged_rows": OWN_TASKS,
    "auditor/pipeline/summary.py::transaction_totals": OWN_TASKS,
    "auditor/processes/isolation.py::MessageSocket.hear": OWN_WORKERS,
    "auditor/processes/isolation.py::Note.read": OWN_WORKERS,
    "auditor/processes/worker.py::_serve": OWN_WORKERS,
    "auditor/processes/worker.py::start_workers": CONSTANT,
    "auditor/replay/reading/replica_reader.py::_points": f"{OWN_MEMORY}; one from a work folder is none",
    "auditor/spark/jobs.py::_replay": CLOSURE,
    "auditor/spark/jobs.py::each_list.run": CLOSURE,
    "auditor/spark/jobs.py::_over": CLOSURE,
    "auditor/spark/jobs.py::_shares": CLOSURE,
    "auditor/spark/jobs.py::_gather": CLOSURE,
    "auditor/inline.py::InlineRunner.gather": OWN_WORKERS,
    "auditor/pipeline/table_parts.py::_parts": OWN_TASKS,
    "auditor/spark/spark_runner.py::_load_ahead": CONSTANT,
    "auditor/spark/spark_tables.py::_coordinated.work": CLOSURE,
    "auditor/spark/spark_tables.py::from_facts.work": CLOSURE,
    "auditor/spark/worker_daemon.py::load": CONSTANT,
    "auditor/spark/worker_daemon.py::module": CONSTANT,
    "connectors/stores/remote_files.py::filesystem": CONSTANT,
    "connectors/stores/remote_files.py::_libc": LIBC,
    "connectors/tables/sources.py::GrowingTable.read": PLANNED,
    "connectors/tables/sources.py::TableReader.read": PLANNED,
    "connectors/tables/sources.py::ours": CONSTANT,
    "connectors/stores/storage.py::remote_place": CONSTANT,
    "rules/catalogue/registry.py::load": "imports the rules that lie in the installed package",
}


def sources() -> list[Path]:
    return sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py"))


def uses(source: str) -> Iterator[str]:
    """The functions (by their names with those around them) in which something is read that may run code."""
    tree = ast.parse(source)
    modules: dict[str, str] = {}  # local names of dangerous modules and of their readers
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                if name.name.partition(".")[0] in DANGEROUS or name.name in DANGEROUS:
                    modules[name.asname or name.name.partition(".")[0]] = "module"
        elif isinstance(node, ast.ImportFrom):
            for name in node.names:
                if node.module in DANGEROUS and name.name in READERS:
                    modules[name.asname or name.name] = "reader"
                elif f"{node.module}.{name.name}" in DANGEROUS or name.name in DANGEROUS:
                    modules[name.asname or name.name] = "module"
    for node in tree.body:  # a reader that the module defines itself
        if isinstance(node, ast.FunctionDef) and node.name == "loads" and any(_uses(node, modules, node.name)):
            modules[node.name] = "reader"
    yield from _uses(tree, modules, "module")


def _uses(node: ast.AST, modules: dict[str, str], inside: str) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if _reads(child, modules):
            yield inside
        named = isinstance(child, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef)
        yield from _uses(child, modules, f"{inside}.{child.name}".removeprefix("module.") if named else inside)


def _reads(node: ast.AST, modules: dict[str, str]) -> bool:
    if isinstance(node, ast.Attribute):
        of = node.value.id if isinstance(node.value, ast.Name) else ""
        return node.attr in ALWAYS or (of in modules and node.attr in READERS) or (of == "builtins")
    if isinstance(node, ast.Name):
        return node.id in BUILTINS | ALWAYS or modules.get(node.id) == "reader"
    return isinstance(node, ast.keyword) and node.arg in KEYWORDS


def test_each_place_that_may_run_what_it_reads_is_listed() -> None:
    found = {
        f"{path.relative_to(ROOT)}::{function}"
        for path in sources()
        for function in uses(path.read_text(encoding="utf-8"))
    }
    assert found == set(ALLOWED)
    assert all(ALLOWED.values())


@pytest.mark.parametrize(
    "source",
    [
        "import pickle\ndef f(x): return pickle.loads(x)",
        "import pickle as p\ndef f(x): return p.load(x)",
        "def f(x):\n    from pickle import loads as unpack\n    return unpack(x)",
        "import pickle\ndef f(x): return map(pickle.loads, x)",
        "from pyspark import cloudpickle\ndef f(x): return cloudpickle.loads(x)",
        "from auditor.base.at_rest import loads\ndef f(x): return loads(x)",
        "from auditor.base import at_rest\ndef f(x): return at_rest.loads(x)",
        "import pickle as p\ndef loads(x): return p.loads(x)\ndef f(x): return loads(x)",
        "import marshal\ndef f(x): return marshal.loads(x)",
        "import numpy as np\ndef f(x): return np.load(x, allow_pickle=True)",
        "import yaml\ndef f(x): return yaml.load(x)",
        "import shelve\ndef f(x): return shelve.open(x)",
        "import pandas as pd\ndef f(x): return pd.read_pickle(x)",
        "def f(x): return eval(x)",
        "import builtins\ndef f(x): return builtins.exec(x)",
        "import importlib\ndef f(x): return importlib.import_module(x)",
        "import subprocess\ndef f(x): return subprocess.run(x, shell=True)",
        "import os\ndef f(x): return os.system(x)",
    ],
)
def test_a_new_place_is_seen(source: str) -> None:
    assert set(uses(source)) - {"loads"} == {"f"}


def test_harmless_readers_are_not_listed() -> None:
    assert not [*uses("import json, tomllib\ndef f(x): return json.loads(x), tomllib.load(x), open(x), re.compile(x)")]
