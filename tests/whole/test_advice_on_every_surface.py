"""What to do about a finding is the same on every surface: its verdict with what that costs, and each condition.

Of every finding above info of every corpus, and of every partition that is blocked. Surfaces break lines and escape
signs as they must; nothing else may differ.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from auditor.base import advice
from auditor.outputs.alerts import SHOWN
from auditor.outputs.publish import described_findings, summarise
from auditor.pipeline.whole_audit import Audit
from auditor.rules import safeguards
from auditor.rules.prevention import NOT_SHOWN
from auditor.rules.safeguards import Safeguard
from tests import corpora
from tests.blocked_states import surfaces
from tests.facts import opened

SIGNS = re.compile(r"[\s`'\\\"]")  # what lines, quotes and markup add or change
OF_EACH = ("page", "csv", "sarif", "pagerduty")
GRAVE = ("critical", "error")
SETTINGS = re.compile("|".join(re.escape(name) for name in sorted(
    {each.name for each in vars(safeguards).values() if isinstance(each, Safeguard) and "." in each.name}
    | {"replication.factor", "enable.idempotence"}
)))  # fmt: skip


def plain(text: str) -> str:
    for sign, escaped in (("<", "&lt;"), (">", "&gt;"), ("&", "&amp;")):
        text = text.replace(escaped, sign)
    return SIGNS.sub("", text)


def said(row: dict[str, Any]) -> list[str]:
    """What has to be read of an advice wherever it is."""
    parts = [text for _, text in advice.pieces(row)]
    return [*parts[:1], *(each["what"] for each in row["conditions"])]


def prevention_is_said(audit: Audit, page: str) -> None:
    """The last card has each setting, commands only where the present value is known, and is not empty where an advice
    of the page names one."""
    rows, last = summarise(audit)["prevention"], page.rpartition(plain("What would prevent it next time?"))[2]
    for row in rows[:4]:
        assert [text for text in (row["setting"], row["why"], *row["commands"]) if plain(text) not in last] == []
        assert not row["commands"] or any(now != NOT_SHOWN for now in row["now"]), row
    grave = [f for f in audit.findings if f.severity != "info"]
    named = {name for f in grave if f.advice for name in SETTINGS.findall(advice.text(f.advice.row()))}
    assert {name for name in named if not any(name in row["setting"] for row in rows)} == set()
    assert (plain("nothing No finding above info.") in last) == (not grave)


@pytest.mark.parametrize("corpus", corpora.judged())
def test_verdict_and_conditions_are_the_same_everywhere(corpus: str, tmp_path: Path) -> None:
    audit = opened(corpora.unpack(corpus), as_of=corpora.manifest(corpus)["copied_at"])
    rows = described_findings(audit)
    texts = {name: plain(text) for name, text in surfaces(audit, tmp_path).items()}
    prevention_is_said(audit, texts["page"])
    lines = [json.loads(finding.to_json()) for finding in audit.findings]
    for number, (row, line) in enumerate(zip(rows, lines, strict=True)):
        assert (line["advice"], line["remedy"]) == (json.loads(json.dumps(row["advice"])), advice.text(row["advice"]))
        if row["severity"] != "info":
            several = [r for r in rows if r["rule"] == row["rule"]]
            names = [*OF_EACH, *(["slack"] if number < SHOWN else [])]
            names += ["junit"] if row["severity"] in GRAVE else []  # the others pass
            names += [f"explain {row['rule']}"] if row is several[-1] else []
            for name in names:
                lacks = [part for part in said(row["advice"]) if plain(part) not in texts[name]]
                cut = name == "slack" and f"moreby{plain('auditor explain')}{row['fingerprint']}" in texts[name]
                assert cut or not lacks, (name, row["rule"], lacks)
    for held in audit.blocked:
        for name in ("page", "terminal", "markdown") if held["severity"] in GRAVE else ():
            lacks = [part for part in said(held["advice"]) if plain(part) not in texts[name]]
            assert not lacks, (name, held["topic"], lacks)
