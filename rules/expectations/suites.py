"""great-expectations suites over an audit's tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import great_expectations as gx
import great_expectations.expectations as gxe
import pyarrow as pa
from great_expectations.core import ExpectationSuite
from great_expectations.core.result_format import ResultFormat
from great_expectations.execution_engine import PandasExecutionEngine, SparkDFExecutionEngine
from great_expectations.expectations.expectation import Expectation, MulticolumnMapExpectation
from great_expectations.expectations.metrics.map_metric_provider import (
    MulticolumnMapMetricProvider,
    multicolumn_condition_partial,
)

from auditor.base.at_rest import Fields, Values
from auditor.connectors.schema import LOGS
from auditor.rules.catalogue import registry
from auditor.rules.catalogue.kinds import FORMER_IDS
from auditor.rules.expectations.measures import DIALECTS, DUCKDB, MACROS, MEASURES, counting
from auditor.rules.seen.view import FIELDS, SEVERITIES

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession


# Custom expectations. Importing this module registers them.


class ExpectNoViolations(gxe.ExpectColumnValuesToBeBetween):
    """Expects a count of violations to be 0 everywhere; null where it does not apply."""

    min_value: float = 0
    max_value: float = 0


class ExpectSteadyRatio(gxe.ExpectColumnValuesToBeBetween):
    """Expects a count between half and twice that of the previous run; null where that is unknown."""

    min_value: float = 0.5
    max_value: float = 2.0


class PartsSumToWhole(MulticolumnMapMetricProvider):
    """Whether all columns but the last add up to the last."""

    condition_metric_name = "multicolumn_values.parts_sum_to_whole"
    condition_domain_keys = ("batch_id", "table", "column_list", "row_condition", "condition_parser", "ignore_row_if")
    condition_value_keys = ()

    @multicolumn_condition_partial(engine=PandasExecutionEngine)
    def _pandas(cls, column_list: Any, **kwargs: Any) -> Any:
        return column_list.iloc[:, :-1].sum(axis=1) == column_list.iloc[:, -1]

    @multicolumn_condition_partial(engine=SparkDFExecutionEngine)
    def _spark(cls, column_list: Any, **kwargs: Any) -> Any:
        from functools import reduce
        from operator import add

        from pyspark.sql import functions as F

        *parts, whole = column_list.columns
        return reduce(add, map(F.col, parts)) == F.col(whole)


class ExpectPartsToSumToWhole(MulticolumnMapExpectation):
    """Expects all columns of ``column_list`` but the last to add up to the last, in each row."""

    column_list: list[str]
    ignore_row_if: str = "never"
    map_metric = "multicolumn_values.parts_sum_to_whole"
    args_keys = ("column_list",)


# The suites: expectations of the counts of each table, of the findings, of each log and of the run.


BYTE_PARTS, OFFSET_PARTS = (
    [name for name in LOGS.names if name.startswith(whole) and not name.endswith("_total")]
    for whole in ("bytes_", "offsets_")
)
FRESH_MS = 24 * 3_600_000


def expectations(name: str, columns: str = "") -> list[Expectation]:
    """Return the expectations of a suite: a table of contract section 4, ``findings``, ``logs`` or ``run``.

    ``columns``: the contract's columns of the table, as in :func:`measures.columns_of`.
    """
    special = {"findings": _findings, "logs": _logs, "run": _run}
    return special[name]() if name in special else _table(name, columns)


def _table(name: str, columns: str) -> list[Expectation]:
    schema = gxe.ExpectColumnValuesToBeInSet(
        column="columns", value_set=[columns], description="the columns are the contract's", severity="critical"
    )
    return [
        schema,
        *(
            ExpectNoViolations(column=check.name, description=check.says, severity=check.severity)
            for check in MEASURES[name].checks
        ),
    ]


def _findings() -> list[Expectation]:
    kinds = sorted(registry.kinds())
    names = sorted({*registry.load(), *kinds, *FORMER_IDS})  # kept runs of earlier releases have former ids
    return [
        gxe.ExpectTableColumnsToMatchOrderedList(
            column_list=["cluster_id", *FIELDS], description="findings have the contract's fields"
        ),
        gxe.ExpectColumnValuesToNotMatchRegex(
            column="severity", regex="^critical$", description="no finding is critical", severity="critical"
        ),
        gxe.ExpectColumnValuesToNotMatchRegex(
            column="severity", regex="^error$", description="no finding is an error", severity="warning"
        ),
        gxe.ExpectColumnValuesToBeInSet(
            column="severity", value_set=list(SEVERITIES), description="severities are the contract's"
        ),
        gxe.ExpectColumnValuesToBeInSet(column="rule", value_set=names, description="rules are in the catalogue"),
        gxe.ExpectColumnValuesToBeInSet(column="kind", value_set=kinds, description="and so are their kinds"),
        gxe.ExpectColumnValuesToNotBeNull(column="message", description="every finding says what it found"),
        gxe.ExpectColumnValuesToMatchRegex(
            column="timestamp", regex=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$", description="times are UTC"
        ),
        gxe.ExpectColumnPairValuesAToBeGreaterThanB(
            column_A="last_offset",
            column_B="offset",
            or_equal=True,
            ignore_row_if="either_value_is_missing",
            description="no finding ends before it begins",
        ),
    ]


def _logs() -> list[Expectation]:
    return [
        ExpectPartsToSumToWhole(
            column_list=[*BYTE_PARTS, "bytes_total"], description="every byte is decoded, skipped or in error"
        ),
        ExpectPartsToSumToWhole(
            column_list=[*OFFSET_PARTS, "offsets_total"], description="every offset of each log is accounted for"
        ),
        ExpectNoViolations(column="bytes_error", description="every byte could be decoded", severity="warning"),
        ExpectNoViolations(column="offsets_missing", description="no offset is missing", severity="warning"),
        gxe.ExpectColumnPairValuesAToBeGreaterThanB(
            column_A="log_end", column_B="log_start", or_equal=True, description="no log ends before it starts"
        ),
        gxe.ExpectColumnPairValuesAToBeGreaterThanB(
            column_A="log_end",
            column_B="last_stable_offset",
            or_equal=True,
            description="no last stable offset is behind the end",
        ),
        ExpectSteadyRatio(column="batches_ratio", description="as many batches as before", severity="warning"),
        ExpectSteadyRatio(column="producers_ratio", description="as many producers as before", severity="warning"),
    ]


def _run() -> list[Expectation]:
    return [
        gxe.ExpectColumnValuesToBeBetween(
            column="age_ms",
            max_value=FRESH_MS,
            severity="warning",
            description="brokers wrote within a day of the time that the audit judges by",
        ),
        ExpectNoViolations(column="bytes_unreadable", description="every byte that was read could be decoded"),
        gxe.ExpectColumnValuesToBeBetween(column="logs", min_value=1, description="something was audited"),
        gxe.ExpectColumnValuesToBeBetween(
            column="covered", min_value=1, max_value=1, description="every byte of the input is accounted for"
        ),
    ]


# Running the suites over small tables: one checkpoint per table, with the results as rows.
#
# No Data Docs are written: they load scripts from other sites and show nothing without them (docs/decisions/004).


KEY = ("cluster_id", "broker_id", "log_dir", "topic", "partition")
SHOWN = 5  # of the rows that break an expectation


def run(
    tables: Mapping[str, tuple[pd.DataFrame, list[Expectation]]], spark: SparkSession | None = None
) -> list[Fields]:
    """Judge each table by its suite; one row per expectation.

    ``spark``: judge Spark frames instead of pandas ones. Columns: suite, expectation, column, says, severity, success,
    rows, broken, where (the first logs that violate it), error (why judging failed; success is then false). Errors:
    AssertionError when fewer expectations were evaluated than built, as happens to unknown custom ones. Cost: about 10
    ms per expectation on pandas, 0.5 s on Spark.
    """
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    data_sources = context.data_sources
    source = data_sources.add_pandas("results") if spark is None else data_sources.add_spark("results", persist=False)
    rows: list[Fields] = []
    for name, (frame, wanted) in tables.items():
        data = frame if spark is None else spark.createDataFrame(pa.Table.from_pandas(frame, preserve_index=False))
        batch = source.add_dataframe_asset(name).add_batch_definition_whole_dataframe("whole")
        suite = context.suites.add(gx.ExpectationSuite(name, expectations=wanted))
        definition = context.validation_definitions.add(gx.ValidationDefinition(name=name, data=batch, suite=suite))
        checkpoint = context.checkpoints.add(
            gx.Checkpoint(name=name, validation_definitions=[definition], result_format=_format(frame))
        )
        result = checkpoint.run(batch_parameters={"dataframe": data})
        evaluated = [result_row for validation in result.run_results.values() for result_row in validation.results]
        if len(evaluated) != len(wanted):
            raise AssertionError(f"suite {name}: {len(wanted)} expectations built, {len(evaluated)} evaluated")
        rows += [_row(name, result_row) for result_row in evaluated]
    return rows


def _format(frame: pd.DataFrame) -> Fields:
    # Never COMPLETE, which brings every row to the driver.
    keys = [name for name in KEY if name in frame.columns]
    form: Fields = {"result_format": ResultFormat.SUMMARY, "partial_unexpected_count": SHOWN}
    return form | ({"unexpected_index_column_names": keys} if keys else {})


def _row(suite: str, result_row: Any) -> Fields:
    config, result = result_row.expectation_config, result_row.result
    keys = ("column", "column_list", "column_A", "column_B")
    named = [config.kwargs[key] for key in keys if config.kwargs.get(key)]
    columns = [name for item in named for name in (item if isinstance(item, list) else [item])]
    info = result_row.exception_info  # of the expectation, or of each metric that failed
    exception = info if "raised_exception" in info else next(iter(info.values()), {})
    return {
        "suite": suite,
        "expectation": config.type,
        "column": ", ".join(columns),
        "says": config.description,
        "severity": str(getattr(config.severity, "value", config.severity)),
        "success": bool(result_row.success),
        "rows": result.get("element_count"),
        "broken": result.get("unexpected_count"),
        "where": ", ".join(dict.fromkeys(map(_where, _broken_rows(result)))) or None,
        "error": exception.get("exception_message"),
    }


def _broken_rows(result: Values) -> list[Values]:
    # A table without a key returns row numbers, which are useless here.
    return [row for row in result.get("partial_unexpected_index_list") or [] if isinstance(row, Mapping)]


def _where(row: Values) -> str:
    log = [str(row[name]) for name in ("topic", "partition") if row.get(name) is not None]
    return "/".join([*([str(row["log_dir"])] if row.get("log_dir") else []), *(["-".join(log)] if log else [])])


# The suites as files for another great-expectations project: JSON of its own expectations, and the SQL of the views.
#
# A suite NAME_counts judges the view of that name, which counts the violations in table NAME. The suites ``logs`` and
# ``run`` judge views over the tables of ``--history``, ``findings`` the table of ``--tables``.


LEAST = 100  # counts below it say nothing of a drift
# The views over stored runs. logs_before: the logs of the previous run; without one an empty table like logs.
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
    """Yield each file's name relative to the output directory, and its text. ``columns``: of the tables, by name."""
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
    """Return the SQL of each view by its name."""
    counts = {f"{name}_counts": counting(name, name, dialect) for name in MEASURES}
    return counts | {f"{name}_judged": text for name, text in OVER_RUNS.items()}


def _suites(columns: Mapping[str, pa.Schema]) -> Iterator[tuple[str, list[Expectation]]]:
    for name in MEASURES:
        as_declared = gxe.ExpectTableColumnsToMatchOrderedList(
            column_list=columns[name].names, description="the columns are the contract's", severity="critical"
        )
        yield name, [as_declared]
        yield f"{name}_counts", [_plain(own) for own in expectations(name)[1:]]
    for name in OVER_RUNS:
        yield f"{name}_judged", [_plain(own) for own in expectations(name)]
    of_list, *others = expectations("findings")
    of_list = gxe.ExpectTableColumnsToMatchOrderedList(
        column_list=columns["findings"].names, description=of_list.description, severity=of_list.severity
    )
    yield "findings", [of_list, *(own for own in others if getattr(own, "column", "") != "timestamp")]


def _plain(own: Expectation) -> Expectation:
    # A foreign project has only great-expectations' own expectations.
    texts: Fields = {"description": own.description, "severity": own.severity}
    if isinstance(own, ExpectPartsToSumToWhole):
        return gxe.ExpectColumnValuesToBeBetween(column=SUMS[own.column_list[-1]], min_value=0, max_value=0, **texts)
    if isinstance(own, ExpectNoViolations | ExpectSteadyRatio):
        return gxe.ExpectColumnValuesToBeBetween(
            column=own.column, min_value=own.min_value, max_value=own.max_value, **texts
        )
    return own
