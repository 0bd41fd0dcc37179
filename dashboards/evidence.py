"""The facts of a finding's evidence in words: names without underscores, times, durations and sizes as people say them.

Nothing is left out: what the words round off is in ``findings.jsonl``, and behind a fold on the page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from auditor.base.at_rest import Values
from auditor.base.words import duration
from auditor.dashboards.wording import clip, instant, size, value

# Names that say less than they mean when only their underscores are gone.
_NAMES = {
    "also": "also found",
    "at_least": "at least that",
    "bytes": "size",
    "class": "the transaction is",
    "differs": "what differs",
    "in_flight": "may be in flight",
    "isr": "in sync",
    "isr_before": "in sync before",
    "log_dir": "log directory",
    "missing": "what would decide it",
    "over_ms": "beyond its time-out by",
    "repeats": "repeated",
    "since": "open since",
    "since_by_producer": "by its producer's clock since",
    "since_not_after": "open no later than",
    "since_not_before": "open no earlier than",
    "timeout_ms": "time-out",
    "why": "because",
}
_FIRST = ("expected", "found", "why", "class", "confidence", "missing")  # in this order, before the others by name
_TIME = re.compile(r"\d{4,}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
_DEEPEST = 3


def in_words(evidence: Values) -> list[tuple[str, str]]:
    """Each fact that is known as its name and what it says, what was expected and found first. Cost: linear."""
    known = [str(name) for name in evidence if evidence[name] is not None]
    order = sorted(known, key=lambda name: (_FIRST.index(name) if name in _FIRST else len(_FIRST), name))
    return [(clip(_name(name), 80), _said(name, evidence[name], 0)) for name in order]


def _name(name: str) -> str:
    return _NAMES.get(name) or name.removesuffix("_ms").replace("_", " ")


def _said(name: str, fact: object, depth: int) -> str:
    """A fact in words. ``name`` says what a number counts; ``depth`` how far inside of others it stands."""
    if isinstance(fact, bool) or fact is None or depth > _DEEPEST:
        return value(fact)
    if isinstance(fact, int):
        return duration(fact) if name.endswith("_ms") else size(fact) if _counts_bytes(name, fact) else str(fact)
    if isinstance(fact, str):
        return instant(fact) if _TIME.fullmatch(fact) else fact
    if isinstance(fact, Mapping):
        return _pairs(fact, depth)
    if isinstance(fact, Sequence):
        return _listed(name, fact, depth)
    return value(fact)


def _counts_bytes(name: str, count: int) -> bool:
    return count >= 0 and (name == "bytes" or name.endswith("_bytes"))


def _pairs(fact: Values, depth: int) -> str:
    """A structure: what it says where it says something, else its own facts in a row."""
    if isinstance(fact.get("message"), str):
        kind = " ".join(str(fact[name]) for name in ("severity", "rule") if fact.get(name))
        return f"{kind}: {fact['message']}" if kind else str(fact["message"])
    own = [f"{_name(str(name))} {_said(str(name), each, depth + 1)}" for name, each in fact.items() if each is not None]
    deep = any(isinstance(each, Mapping) for each in fact.values())
    return ("; " if deep else ", ").join(own) or "nothing"


def _listed(name: str, fact: Sequence[Any], depth: int) -> str:
    said = [_said(name, each, depth + 1) for each in fact]
    if any(isinstance(each, Mapping) for each in fact):
        return "; ".join(said)
    nested = [f"({text})" if isinstance(each, list | tuple) else text for each, text in zip(fact, said, strict=True)]
    return ", ".join(nested) or "none"
