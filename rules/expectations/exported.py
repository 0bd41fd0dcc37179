"""The suites as files for a great-expectations project of somebody else: JSON of its own expectations alone, and the
SQL of what they judge.

A suite NAME_counts judges the view of that name, which counts in the table NAME what breaks an expectation. The suites
``logs`` and ``run`` judge views over the tables that ``--history`` keeps, ``findings`` the table of ``--tables``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import great_expectations.expectations as gxe
import pyarrow as pa
from great_expectations.core import ExpectationSuite
from great_expectations.expectations.expectation import Expectation

from auditor.base.at_rest import Fields
from auditor.rules.expectations import suites
from auditor.rules.expectations.custom import ExpectNoViolations, ExpectPartsToSumToWhole, ExpectSteadyRatio
from auditor.rules.expectations.measures import DIALECTS, DUCKDB, MACROS, MEASURES, counting
from auditor.rules.expectations.suites import BYTE_PARTS, OFFSET_PARTS

LEAST = 100  # counts below it say nothing of a drift
# Columns of the views over kept runs. logs_before: the logs of the run before; without one an empty table like logs.
LOGS = f"""WITH earlier AS (
  SELECT cluster_id, broker_id, topic, partition, max(batches) AS batches, max(producers) AS producers
  FROM logs_before GROUP BY cluster_id, broker_id, topic, partition
)
SELECT logs.*,
  {" + ".join(f"coalesce(logs.{name}, 0)" for name in BYTE_PARTS)} - logs.bytes_total AS bytes_off,
  {" + ".join(f"coalesce(logs.{name}, 0)" for name in OFFSET_PARTS)} - logs.offsets_total AS offsets_off,
  CASE WHEN earlier.batches >= {LEAST} THEN logs.batches * 1.0 / earlier.batches END AS batches_ratio,
  CASE WHEN earlier.producers >= {LEAST} THEN logs.producers * 1.0 / earlier.producers END AS producers_ratio
FROM logs LEFT JOIN earlier
ON (logs.cluster_id = earlier.cluster_id OR (logs.cluster_id IS NULL AND earlier.cluster_id IS NULL))
  AND (logs.broker_id = earlier.broker_id OR (logs.broker_id IS NULL AND earlier.broker_id IS NULL))
  AND logs.topic = earlier.topic AND logs.partition = earlier.partition"""
RUN = """SELECT unix_millis(CAST(get_json_object(summary, '$.as_of') AS TIMESTAMP))
    - unix_millis(CAST(get_json_object(summary, '$.newest') AS TIMESTAMP)) AS age_ms,
  json_array_length(get_json_object(summary, '$.logs')) AS logs, bytes_unreadable,
  CASE WHEN bytes = 0 THEN 1.0 ELSE (CAST(get_json_object(summary, '$.bytes.decoded') AS DOUBLE)
    + CAST(get_json_object(summary, '$.bytes.skipped') AS DOUBLE) + bytes_unreadable) / bytes END AS covered
FROM runs"""
OVER_RUNS = {"logs": LOGS, "run": RUN}
SUMS = {"bytes_total": "bytes_off", "offsets_total": "offsets_off"}  # what is left of a whole, by the whole


def files(columns: Mapping[str, pa.Schema]) -> Iterator[tuple[str, str]]:
    """Every file by its name below the folder, with its text. ``columns``: of the tables, by name."""
    for name, expectations in _suites(columns):
        suite = ExpectationSuite(name, expectations=expectations).to_json_dict()
        yield f"suites/{name}.json", json.dumps(suite, indent=1, ensure_ascii=False) + "\n"
    for dialect in DIALECTS:
        for name, text in views(dialect).items():
            word = "VIEW" if dialect == DUCKDB else "TEMPORARY VIEW"
            yield f"views/{dialect}/{name}.sql", f"CREATE OR REPLACE {word} {name} AS\n{text}\n"
    macros = "".join(f"CREATE OR REPLACE MACRO {name} AS {is_};\n" for name, is_ in MACROS.items())
    yield "views/duckdb_macros.sql", macros


def views(dialect: str) -> dict[str, str]:
    """The SQL of each view by its name."""
    counts = {f"{name}_counts": counting(name, name, dialect) for name in MEASURES}
    return counts | {f"{name}_judged": text for name, text in OVER_RUNS.items()}


def _suites(columns: Mapping[str, pa.Schema]) -> Iterator[tuple[str, list[Expectation]]]:
    """The suites by the name of what they judge."""
    for name in MEASURES:
        as_declared = gxe.ExpectTableColumnsToMatchOrderedList(
            column_list=columns[name].names, description="the columns are the contract's", severity="critical"
        )
        yield name, [as_declared]
        yield f"{name}_counts", [_plain(each) for each in suites.expectations(name)[1:]]
    for name in OVER_RUNS:
        yield f"{name}_judged", [_plain(each) for each in suites.expectations(name)]
    of_list, *others = suites.expectations("findings")
    of_list = gxe.ExpectTableColumnsToMatchOrderedList(
        column_list=columns["findings"].names, description=of_list.description, severity=of_list.severity
    )
    yield "findings", [of_list, *(each for each in others if getattr(each, "column", "") != "timestamp")]


def _plain(each: Expectation) -> Expectation:
    """An expectation of great-expectations' own that says the same: a project elsewhere has none of ours."""
    said: Fields = {"description": each.description, "severity": each.severity}
    if isinstance(each, ExpectPartsToSumToWhole):
        return gxe.ExpectColumnValuesToBeBetween(column=SUMS[each.column_list[-1]], min_value=0, max_value=0, **said)
    if isinstance(each, ExpectNoViolations | ExpectSteadyRatio):
        return gxe.ExpectColumnValuesToBeBetween(
            column=each.column, min_value=each.min_value, max_value=each.max_value, **said
        )
    return each
