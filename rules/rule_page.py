"""Rules as text: the catalogue and a rule's page, for terminals and for the docs."""

from __future__ import annotations

import re
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


def causes(text: str) -> list[str]:
    """The causes of a *Can be wrong*, the commonest first, each by itself: what a semicolon ends, and each sentence."""
    return [part.rstrip(".") for part in re.split(r"; (?![^(]*\))|(?<=[a-z0-9)])\. (?=[A-Z])", text)]


def _listed(rule: Rule) -> list[str]:
    lines = []
    for kind, text in rule.said("Can be wrong"):
        lines += [f"  {kind}:"] if kind else []
        for cause in causes(text):
            lines += textwrap.wrap(
                cause, WIDTH, initial_indent="  - ", subsequent_indent="    ", break_on_hyphens=False
            )
    return lines


def page(rule: Rule) -> str:
    """All about one rule."""
    lines = [rule.id, rule.title, f"Severity: {_remarks(rule)}", ""]
    sections = {name: rule.text(name) for name in SECTIONS}
    if rule.absorbed_by:
        sections["Not reported on its own beside"] = ", ".join(
            dict.fromkeys(name for by in rule.absorbed_by for name in by.rules)
        )
    if rule.prevented_by:
        sections["Prevented by"] = "; ".join(safeguard.setting for safeguard in rule.prevented_by)
    for name, text in sections.items():
        if name == "Can be wrong":
            lines += [name + ":", *_listed(rule), ""]
            continue
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
