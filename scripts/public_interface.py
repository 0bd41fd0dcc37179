"""Print the public interface as JSON: ``public_interface.py > docs/interface-1.0.json``, once per major release.

Commands with options, fields of findings, tables with columns, rule ids and kinds, metrics and Python names.
``tests/unit/test_public_interface.py`` fails where a later version lacks a name of that file.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path

import auditor
from auditor.cli import parsers
from auditor.connectors.schema import TABLES
from auditor.dashboards.answers import report_of
from auditor.dashboards.metrics import write_metrics
from auditor.pipeline.derived_tables import all_columns
from auditor.rules.catalogue import registry

SCHEMA = Path(auditor.__file__).parent / "outputs" / "finding.schema.json"
BLANK = {"inputs": [], "policy": [{"policy": "auto"}], "tool": {"version": "0"}, "bytes": {}, "logs": []}


def kept(table: str, columns: list[str]) -> list[str]:
    """The columns of a table that are not deprecated."""
    return [name for name in columns if not TABLES[table].meanings[name].startswith("deprecated")]


def interface() -> dict[str, object]:
    """Names only, each list sorted."""
    options = {
        name: sorted({text for action in parser._actions for text in action.option_strings})
        for name, parser in parsers()[1].items()
    }
    rules = registry.load()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "metrics.prom"
        write_metrics(path, report_of((), BLANK))
        metrics = sorted(set(re.findall(r"^# HELP (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)))
    return {
        "commands": options,
        "exit_codes": [0, 1, 2, 3, 4],
        "finding_fields": list(json.loads(SCHEMA.read_text(encoding="utf-8"))["properties"]),
        "tables": {name: kept(name, columns.names) for name, columns in all_columns(payload=True).items()},
        "rules": sorted(rules),
        "kinds": sorted(registry.kinds()),
        "metrics": metrics,
        "python": sorted(auditor.__all__),
    }


if __name__ == "__main__":
    json.dump(interface(), sys.stdout, indent=1)
    sys.stdout.write("\n")
