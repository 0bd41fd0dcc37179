"""great-expectations suites over an audit's tables, of great-expectations' own expectations alone.

A suite NAME judges the rows of a table, a suite NAME_counts the view of that name, which has a row per log with the
violations of what rows and tables have to do with each other (:mod:`auditor.rules.expectations.measures`).
``logs_judged`` compares the logs with those of the previous run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, partial
from typing import Any

import great_expectations as gx
import great_expectations.expectations as gxe
import pyarrow as pa
from great_expectations.core import ExpectationSuite
from great_expectations.core.result_format import ResultFormat
from great_expectations.expectations.expectation import Expectation

from auditor.base.at_rest import Fields, Values
from auditor.connectors.schema import LOGS, TABLES
from auditor.rules.catalogue import registry
from auditor.rules.catalogue.kinds import FORMER_IDS
from auditor.rules.expectations.measures import (
    DIALECTS,
    DUCKDB,
    FRESH_MS,
    LIMITS,
    MACROS,
    MEASURES,
    SETS,
    checks,
    counting,
)
from auditor.rules.seen.view import SEVERITIES

BYTE_PARTS, OFFSET_PARTS = (
    [name for name in LOGS.names if name.startswith(whole) and not name.endswith("_total")]
    for whole in ("bytes_", "offsets_")
)
LEAST = 100  # counts below it say nothing of a drift
VOLUMES = ("batches", "records", "producers", "bytes_total")
# logs_before: the logs of the previous run; without one an empty table like logs.
LOGS_JUDGED = f"""WITH earlier AS (
  SELECT cluster_id, broker_id, topic, partition, {", ".join(f"max({name}) AS {name}" for name in VOLUMES)}
  FROM logs_before GROUP BY cluster_id, broker_id, topic, partition
)
SELECT logs.*,
  {" + ".join(f"coalesce(logs.{name}, 0)" for name in BYTE_PARTS)} - logs.bytes_total AS bytes_off,
  {" + ".join(f"coalesce(logs.{name}, 0)" for name in OFFSET_PARTS)} - logs.offsets_total AS offsets_off,
  {
    f",{chr(10)}  ".join(
        f"CASE WHEN earlier.{n} >= {LEAST} THEN logs.{n} * 1.0 / earlier.{n} END AS {n}_ratio" for n in VOLUMES
    )
}
FROM logs LEFT JOIN earlier
ON logs.cluster_id IS NOT DISTINCT FROM earlier.cluster_id AND logs.broker_id IS NOT DISTINCT FROM earlier.broker_id
  AND logs.topic = earlier.topic AND logs.partition = earlier.partition"""
TABLES_JUDGED = (
    *MEASURES,
    "findings",
    "logs",
    "run",
)  # a suite each, over rows; those of tables are judged with --tables
RUN = pa.schema(
    [("age_ms", pa.int64()), ("logs", pa.int64()), ("bytes_unreadable", pa.int64()), ("covered", pa.float64())]
)


def views(dialect: str, tables: Iterable[str] = MEASURES) -> dict[str, str]:
    """Return the SQL of each view over ``tables`` and the logs, by its name."""
    counts = {f"{name}_counts": counting(name, dialect) for name in MEASURES if name in tables}
    return counts | {"logs_judged": LOGS_JUDGED}


def expectations(name: str) -> list[Expectation]:
    """Return the expectations of a suite: of a table, of a view of :func:`views`, or of ``run``.

    Errors: KeyError for a table that is not declared, as those of :mod:`auditor.pipeline` where it is not imported.
    """
    special = {"findings": _findings, "logs_judged": _logs, "run": _run}
    if name.endswith("_counts"):
        return [
            _zero(check.name, check.says, check.severity, mostly=check.mostly)
            for check in checks(name.removesuffix("_counts"))
        ]
    columns = [] if name in ("run", "logs_judged") else _columns(name)
    return [*columns, *(special[name]() if name in special else ())]


def _zero(column: str, says: str, severity: str = "critical", mostly: float = 1.0) -> Expectation:
    return gxe.ExpectColumnValuesToBeBetween(
        column=column, min_value=0, max_value=0, mostly=mostly, description=says, severity=severity
    )


def _columns(table: str) -> Iterator[Expectation]:
    # What each column alone may hold, as its declaration says.
    declared = TABLES[table]
    columns = declared.schema()
    says = "the columns are the contract's"
    if any(pa.types.is_struct(field.type) for field in columns):  # whose fields are columns too, with Spark
        yield gxe.ExpectTableColumnsToMatchSet(column_set=columns.names, exact_match=False, description=says)
    else:
        yield gxe.ExpectTableColumnsToMatchOrderedList(column_list=columns.names, description=says)
    for field in columns:
        name, may_be = field.name, partial(declared.may_be, field.name)
        if not may_be("null") or name == "leader_copy":  # an audit knows which copy counts
            yield gxe.ExpectColumnValuesToNotBeNull(column=name, description=f"{name} is given")
        if (wanted := SETS.get(f"{table}.{name}")) is not None:
            yield gxe.ExpectColumnValuesToBeInSet(
                column=name, value_set=list(wanted), description=f"{name} is one that Kafka or the auditor has"
            )
        elif pa.types.is_string(field.type) and not may_be("empty"):
            yield gxe.ExpectColumnValueLengthsToBeBetween(column=name, min_value=1, description=f"{name} is not empty")
        elif pa.types.is_integer(field.type) or pa.types.is_floating(field.type):
            least, most = LIMITS.get(f"{table}.{name}", (-1 if may_be("-1") else 0, None))
            yield gxe.ExpectColumnValuesToBeBetween(
                column=name, min_value=least, max_value=most, description=f"{name} is in its range"
            )


def _findings() -> list[Expectation]:
    kinds = sorted(registry.kinds())
    names = sorted({*registry.load(), *kinds, *FORMER_IDS})  # kept runs of earlier releases have former ids
    return [
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
        _pair("last_offset", "offset", "no finding ends before it begins"),
    ]


def _pair(larger: str, smaller: str, says: str) -> Expectation:
    return gxe.ExpectColumnPairValuesAToBeGreaterThanB(
        column_A=larger, column_B=smaller, or_equal=True, ignore_row_if="either_value_is_missing", description=says
    )


def _logs() -> list[Expectation]:
    return [
        gxe.ExpectTableRowCountToBeBetween(min_value=1, description="something was audited"),
        _zero("bytes_off", "every byte is decoded, skipped or in error"),
        _zero("offsets_off", "every offset of each log is accounted for"),
        _zero("bytes_error", "every byte could be decoded", "warning"),
        _zero("offsets_missing", "no offset is missing", "warning"),
        _pair("log_end", "log_start", "no log ends before it starts"),
        _pair("log_end", "last_stable_offset", "no last stable offset is behind the end"),
        *(
            gxe.ExpectColumnValuesToBeBetween(
                column=f"{name}_ratio",
                min_value=0.5,
                max_value=2.0,
                severity="warning",
                description=f"{name} are as many as before",
            )
            for name in VOLUMES
        ),
    ]


def _run() -> list[Expectation]:
    return [
        gxe.ExpectColumnValuesToBeBetween(
            column="age_ms",
            max_value=FRESH_MS,
            severity="warning",
            description="brokers wrote within a day of the time that the audit judges by",
        ),
        _zero("bytes_unreadable", "every byte that was read could be decoded"),
        gxe.ExpectColumnValuesToBeBetween(column="logs", min_value=1, description="something was audited"),
        gxe.ExpectColumnValuesToBeBetween(
            column="covered", min_value=1, max_value=1, description="every byte of the input is accounted for"
        ),
    ]


# Running the suites: rows of tables in pieces, and rows of views, each first for yes or no alone.
#
# No Data Docs are written: they load scripts from other sites and show nothing without them (docs/decisions/004).


KEY = ("cluster_id", "broker_id", "log_dir", "topic", "partition")
SHOWN = 5  # of the rows that break an expectation


def run(tables: Iterable[tuple[str, Iterable[Any]]]) -> Iterator[Fields]:
    """Judge each table by the suite of its name; yield a row per expectation.

    A table comes as pandas frames, which are judged one by one, or as Spark frames. Columns: suite, expectation,
    column, says, severity, success, rows, broken, where (the first logs that violate it), error (why judging failed;
    success is then false). Errors: AssertionError when fewer expectations were evaluated than built. Cost: some ms per
    expectation on pandas, a job per table on Spark.
    """
    definitions = cache(partial(_whole, gx.get_context(mode="ephemeral")))
    for name, frames in tables:
        wanted, merged = expectations(name), list[Fields]()
        for frame in frames:
            rows = _judged(definitions(hasattr(frame, "iloc")).get_batch({"dataframe": frame}), name, frame, wanted)
            merged = list(map(_together, merged, rows)) if merged else rows
        yield from merged


def _whole(context: Any, on_pandas: bool) -> Any:
    # Whole frames of either kind.
    context.variables.progress_bars = {"globally": False}
    sources = context.data_sources
    source = sources.add_pandas("pandas") if on_pandas else sources.add_spark("spark", persist=False)
    return source.add_dataframe_asset("rows").add_batch_definition_whole_dataframe("whole")


def _together(first: Fields, row: Fields) -> Fields:
    sums = {name: (first[name] or 0) + (row[name] or 0) for name in ("rows", "broken")}
    texts = {name: first[name] or row[name] for name in ("where", "error")}
    return first | sums | texts | {"success": first["success"] and row["success"]}


def _judged(batch: Any, name: str, frame: Any, wanted: list[Expectation]) -> list[Fields]:
    # What a column holds needs rows. Rows that break an expectation are looked for only where there are any.
    size = len(frame) if hasattr(frame, "iloc") else frame.count()
    wanted = wanted if size else [own for own in wanted if not hasattr(own, "column")]
    keys = [column for column in KEY if column in frame.columns]
    judgements = _results(batch, name, wanted, {"result_format": ResultFormat.BOOLEAN_ONLY})
    again = [n for n, row in enumerate(judgements) if not row.success or getattr(wanted[n], "mostly", 1) < 1]
    form: Fields = {"result_format": ResultFormat.SUMMARY, "partial_unexpected_count": SHOWN}
    form |= {"unexpected_index_column_names": keys} if keys else {}  # never COMPLETE, which brings every row
    detailed = _results(batch, name, [wanted[n] for n in again], form) if again else []
    rows = [_row(name, row) | {"rows": size, "broken": 0} for row in judgements]
    for number, row in zip(again, detailed, strict=True):
        rows[number] = {"rows": size} | _row(name, row)
    return rows


def _results(batch: Any, name: str, wanted: list[Expectation], form: Fields) -> list[Any]:
    out = batch.validate(gx.ExpectationSuite(name, expectations=wanted), result_format=form).results
    if len(out) != len(wanted):
        raise AssertionError(f"suite {name}: {len(wanted)} expectations built, {len(out)} evaluated")
    places = {own.description: place for place, own in enumerate(wanted)}  # great-expectations has an order of its own
    return sorted(out, key=lambda result: places[result.expectation_config.description])


def _row(suite: str, result_row: Any) -> Fields:
    config, result = result_row.expectation_config, result_row.result
    keys = ("column", "column_list", "column_set", "column_A", "column_B")
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


def files() -> Iterator[tuple[str, str]]:
    """Yield each file's name relative to the output directory, and its text: the suites as JSON for another project,
    and the SQL of the views that they judge."""
    for name in (*TABLES_JUDGED, *views(DUCKDB)):
        suite = ExpectationSuite(name, expectations=expectations(name)).to_json_dict()
        yield f"suites/{name}.json", json.dumps(suite, indent=1, ensure_ascii=False) + "\n"
    for dialect in DIALECTS:
        for name, text in views(dialect).items():
            word = "VIEW" if dialect == DUCKDB else "TEMPORARY VIEW"
            yield f"views/{dialect}/{name}.sql", f"CREATE OR REPLACE {word} {name} AS\n{text}\n"
    macros = "".join(f"CREATE OR REPLACE MACRO {name} AS {is_};\n" for name, is_ in MACROS.items())
    yield "views/duckdb_macros.sql", macros
