"""Whoever adds a table hears at once what else it needs: expectations, a page, rows that break them."""

from __future__ import annotations

from auditor.connectors import schema
from auditor.pipeline.derived_tables import NAMES, OF_FACTS
from auditor.rules.expectations.measures import MEASURES
from scripts.tables_page import TEXTS
from tests.broken_rows import BREAKS, GOOD

NOT_DECODED = {*OF_FACTS, "blocked", "verdicts"}


def test_every_table_has_expectations() -> None:
    assert set(MEASURES) == {*schema.DECODED, *NOT_DECODED}


def test_every_table_of_facts_has_a_page_and_every_name_on_it_is_a_table() -> None:
    assert set(OF_FACTS) <= set(TEXTS) <= set(NAMES)


def test_every_expectation_has_rows_that_keep_it_and_rows_that_break_it() -> None:
    assert set(GOOD) == set(BREAKS) == set(MEASURES)
