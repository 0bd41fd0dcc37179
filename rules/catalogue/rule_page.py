"""Rules as text: the catalogue and a rule's page, for terminals and for the docs."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping

from auditor.base.words import words_in
from auditor.rules.catalogue.kinds import SECTIONS, Kind, Rule

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
        lines += [f"  {'':<{width}}  {text}" for text in _severities(rule)]
    return "\n".join(lines[1:]) + "\n"


def _severities(rule: Rule) -> list[str]:
    """How severe its findings are; a line a kind, where there are several."""
    if len(rule.kinds) == 1:
        return [_remarks(rule)]
    return [f"{kind.id}: {_remarks(kind)}" for kind in rule.kinds]


def _remarks(rule: Rule | Kind) -> str:
    more = [
        text
        for flag, text in (
            (rule.records, "needs --records"),
            (rule.time, "depends on --as-of"),
            (rule.what_if, "in what-if alone"),
        )
        if flag
    ]
    return rule.severity + (f" ({', '.join(more)})" if more else "")


def _outcomes(kind: Kind) -> str:
    """What its critical and error findings mean; several where the finding says which."""
    return "; ".join(f"{name} {when}".strip() for name, when in kind.outcomes.items())


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
    lines = [rule.id, rule.title]
    outcomes = [(kind.id, _outcomes(kind)) for kind in rule.kinds if kind.outcomes]
    if len(rule.kinds) == 1:
        lines.append(f"Severity: {_remarks(rule)}")
        lines += [f"Outcome: {said}" for _, said in outcomes]
    else:
        lines += ["", "Severity, by kind of findings:"]
        lines += [line for text in _severities(rule) for line in _wrapped(text)]
        lines += ["", "Outcome of critical and error findings, by kind:"] if outcomes else []
        lines += [line for name, said in outcomes for line in _wrapped(f"{name}: {said}")]
    lines.append("")
    sections: dict[str, list[str]] = {}
    for name in SECTIONS:
        sections[name] = [f"{kind}: {text}" if kind else text for kind, text in rule.said(name)]
    if rule.absorbed_by:
        beside = dict.fromkeys(name for by in rule.absorbed_by for name in by.rules)
        sections["Not reported on its own beside"] = [", ".join(beside)]
    if rule.prevented_by:
        sections["Prevented by"] = ["; ".join(safeguard.setting for safeguard in rule.prevented_by)]
    for name, texts in sections.items():
        listed = _listed(rule) if name == "Can be wrong" else [line for text in texts for line in _wrapped(text)]
        lines += [name + ":", *listed, ""]
    if words := words_in([rule.title, *(text for texts in sections.values() for text in texts)]):
        lines += ["Words:", *(line for word, said in words.items() for line in _wrapped(f"{word}: {said}", "    ")), ""]
    return "\n".join(lines)


def _wrapped(text: str, further: str = "  ") -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent=further, break_on_hyphens=False)
