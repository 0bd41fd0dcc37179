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
from auditor.outputs.publish import described_findings
from tests import corpora
from tests.blocked_states import surfaces
from tests.facts import opened

SIGNS = re.compile(r"[\s`'\\\"]")  # what lines, quotes and markup add or change
OF_EACH = ("page", "csv", "sarif", "pagerduty")
GRAVE = ("critical", "error")


def plain(text: str) -> str:
    for sign, escaped in (("<", "&lt;"), (">", "&gt;"), ("&", "&amp;")):
        text = text.replace(escaped, sign)
    return SIGNS.sub("", text)


def said(row: dict[str, Any]) -> list[str]:
    """What has to be read of an advice wherever it is."""
    parts = [text for _, text in advice.pieces(row)]
    return [*parts[:1], *(each["what"] for each in row["conditions"])]


@pytest.mark.parametrize("corpus", corpora.judged())
def test_verdict_and_conditions_are_the_same_everywhere(corpus: str, tmp_path: Path) -> None:
    audit = opened(corpora.unpack(corpus), as_of=corpora.manifest(corpus)["copied_at"])
    rows = described_findings(audit)
    texts = {name: plain(text) for name, text in surfaces(audit, tmp_path).items()}
    lines = [json.loads(finding.to_json()) for finding in audit.findings]
    for number, (row, line) in enumerate(zip(rows, lines, strict=True)):
        assert (line["advice"], line["remedy"]) == (json.loads(json.dumps(row["advice"])), advice.text(row["advice"]))
        if row["severity"] != "info":
            several = [r for r in rows if r["kind"] == row["kind"]]
            names = [*OF_EACH, *(["slack"] if number < SHOWN else [])]
            names += ["junit"] if row["severity"] in GRAVE else []  # the others pass
            names += [f"explain {row['kind']}"] if row is several[-1] else []
            for name in names:
                lacks = [part for part in said(row["advice"]) if plain(part) not in texts[name]]
                cut = name == "slack" and f"moreby{plain('auditor explain')}{row['fingerprint']}" in texts[name]
                assert cut or not lacks, (name, row["kind"], lacks)
    for held in audit.blocked:
        for name in ("page", "terminal", "markdown") if held["severity"] in GRAVE else ():
            lacks = [part for part in said(held["advice"]) if plain(part) not in texts[name]]
            assert not lacks, (name, held["topic"], lacks)
