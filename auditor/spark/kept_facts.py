"""Facts of copies that the driver holds, as the frame that the second job of an audit judges."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from auditor.facts.copy_facts import CopyFacts
from auditor.pipeline.context import brief
from auditor.spark.scan import FACTS, FACTS_ARROW

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Row(NamedTuple):
    """A row of :data:`auditor.spark.scan.FACTS`."""

    join_key: str
    topic: str
    partition: int
    log_dir: str
    brief: bytes
    facts: bytes


def row(facts: CopyFacts) -> Row:
    """The row of one copy."""
    key = (facts.join_key, facts.topic, facts.partition, facts.log_dir)
    return Row(*key, pickle.dumps(brief(facts), 5), pickle.dumps(facts, 5))


def frame(spark: SparkSession, rows: Sequence[Row]) -> DataFrame:
    """The rows on Spark."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(FACTS_ARROW)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, FACTS_ARROW, strict=True)]
    return spark.createDataFrame(pa.Table.from_arrays(arrays, schema=FACTS_ARROW), schema=FACTS)
