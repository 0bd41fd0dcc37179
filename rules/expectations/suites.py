"""The suites: what is expected of the counts of each table, of the findings, of each log and of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import great_expectations.expectations as gxe

from auditor.rules.catalogue import registry
from auditor.rules.expectations.custom import ExpectNoViolations, ExpectPartsToSumToWhole, ExpectSteadyRatio
from auditor.rules.expectations.measures import MEASURES
from auditor.rules.seen.finding import FIELDS, SEVERITIES

if TYPE_CHECKING:
    from great_expectations.expectations.expectation import Expectation

BYTE_PARTS = ["bytes_decoded", "bytes_skipped", "bytes_error"]
OFFSET_PARTS = [
    "offsets_data",
    "offsets_aborted",
    "offsets_marker",
    "offsets_compacted",
    "offsets_unreadable",
    "offsets_missing",
    "offsets_remote",
    "offsets_left_out",
    "offsets_not_reached",
]
FRESH_MS = 24 * 3_600_000


def expectations(name: str, columns: str = "") -> list[Expectation]:
    """The expectations of a suite: a table of contract section 4, ``findings``, ``logs`` or ``run``.

    ``columns`` is what the contract says of the table's columns, in the words of :func:`measures.columns_of`.
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
    known = sorted({*registry.load(), *kinds})  # kept runs of the past have rules that are kinds by now
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
        gxe.ExpectColumnValuesToBeInSet(column="rule", value_set=known, description="rules are in the catalogue"),
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
