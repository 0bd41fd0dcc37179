"""One glossary: a rule's page spells out the words of it that it uses, and the report has them all."""

from __future__ import annotations

from auditor.base.words import GLOSSARY, words_in
from auditor.dashboards.answers import report_of
from auditor.dashboards.report import render_report
from auditor.rules.catalogue import registry
from auditor.rules.catalogue.registry import page
from tests.unit import report_samples as samples
from tests.unit.html_page import Page


def test_words_are_found_whole_in_any_form_and_case() -> None:
    assert set(words_in(["The LSO stands still", "Epochs went back"])) == {"last stable offset", "epoch"}
    assert words_in(["a landmarker of consequences"]) == {}


def test_a_rules_page_spells_out_what_it_uses() -> None:
    text = page(registry.load()["hanging-transaction"])
    assert "Glossary:" in text
    assert "coordinator: The broker that stores" in text


def test_every_word_is_on_the_report_and_in_some_rule() -> None:
    text = Page(render_report(report_of([], samples.empty_summary()), [], [])).text
    assert all(f"{name} {said}" in text for name, said in GLOSSARY.items())
    used = words_in(said for kind in registry.kinds().values() for said in (kind.title, *kind.sections.values()))
    assert set(used) == set(GLOSSARY)
