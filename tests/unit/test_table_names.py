"""Whoever adds a table hears at once what else it needs: expectations, a page, rows that break them."""

from __future__ import annotations

from auditor.connectors import schema
from auditor.pipeline.derived_tables import NAMES, OF_FACTS
from auditor.rules.expectations.measures import MEASURES
from tests.broken_rows import BREAKS, GOOD

NOT_DECODED = {*OF_FACTS, "blocked", "impact", "rehearsal", "verdicts"}


def test_every_table_has_expectations() -> None:
    assert set(MEASURES) == {*schema.DECODED, *NOT_DECODED}


def test_every_table_of_one_logs_facts_has_what_makes_it() -> None:
    assert set(schema.ROWS_OF_LOG) == set(schema.names(schema.MadeOf.LOG))


def test_a_table_is_declared_once_and_listed_by_what_it_is_made_of() -> None:
    listed = [name for made_of in schema.MadeOf for name in schema.names(made_of)]
    assert sorted(listed) == sorted(schema.TABLES)
    assert set(schema.DECODED) == set(schema.names(schema.MadeOf.FILES, schema.MadeOf.METADATA))
    assert set(NAMES) == set(schema.TABLES) - set(schema.names(schema.MadeOf.RUN))
    assert schema.names(schema.MadeOf.FILES)[-1] == "decode_errors"  # it has what killed the readers of the others


def test_every_table_has_rows_that_break_an_expectation() -> None:
    assert set(GOOD) == set(BREAKS) == set(MEASURES)
