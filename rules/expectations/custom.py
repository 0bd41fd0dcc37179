"""Expectations that great-expectations does not have, or says less plainly. Importing this module registers them."""

from __future__ import annotations

from typing import Any

import great_expectations.expectations as gxe
from great_expectations.execution_engine import PandasExecutionEngine, SparkDFExecutionEngine
from great_expectations.expectations.expectation import MulticolumnMapExpectation
from great_expectations.expectations.metrics.map_metric_provider import (
    MulticolumnMapMetricProvider,
    multicolumn_condition_partial,
)


class ExpectNoViolations(gxe.ExpectColumnValuesToBeBetween):
    """A column that counts what breaks an expectation is 0 everywhere; null where it does not apply."""

    min_value: float = 0
    max_value: float = 0


class ExpectSteadyRatio(gxe.ExpectColumnValuesToBeBetween):
    """A count is between half and twice what it was in the run before; null where that is not known."""

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
    """Every row's columns, but for the last of ``column_list``, add up to the last."""

    column_list: list[str]
    ignore_row_if: str = "never"
    map_metric = "multicolumn_values.parts_sum_to_whole"
    args_keys = ("column_list",)
