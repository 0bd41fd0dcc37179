"""Rules as text: the catalogue and a rule's page, for terminals and for the docs."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

from auditor.base.glossary import words_in
from auditor.rules.kinds import SECTIONS, Rule

WIDTH = 100


def catalogue(rules: Mapping[str, Rule]) -> str:
    """All rules by family: id, severity, title."""
    lines = []
    family = ""
    width = max(map(len, rules))
    for rule in rules.values():
        if rule.family != family:
            family = rule.family
            lines += ["", family.upper()]
        lines.append(f"  {rule.id:<{width}}  {rule.title}")
        lines.append(f"  {'':<{width}}  {_remarks(rule)}")
    return "\n".join(lines[1:]) + "\n"


def _remarks(rule: Rule) -> str:
    more = [text for flag, text in ((rule.records, "needs --records"), (rule.time, "depends on --as-of"),
                                    (rule.what_if, "in what-if alone")) if flag]  # fmt: skip
    return rule.severity + (f" ({', '.join(more)})" if more else "")


def page(rule: Rule) -> str:
    """All about one rule."""
    lines = [rule.id, rule.title, f"Severity: {_remarks(rule)}", ""]
    sections = {name: rule.text(name) for name in SECTIONS}
    if rule.absorbed_by:
        sections["Becomes evidence of"] = "; ".join(
            f"{', '.join(by.rules)} ({by.relation.name})" for by in rule.absorbed_by
        )
    if rule.prevented_by:
        sections["Prevented by"] = "; ".join(safeguard.setting for safeguard in rule.prevented_by)
    for name, text in sections.items():
        wrapped = textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
        lines += [name + ":", *wrapped, ""]
    if words := words_in([rule.title, *sections.values()]):
        lines.append("Words:")
        for word, said in words.items():
            lines += textwrap.wrap(
                f"{word}: {said}", WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False
            )
        lines.append("")
    return "\n".join(lines)
