"""Inputs that few bytes make large, in small: each is named or audited as any other, and all beside it is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from auditor.outputs.publish import publish
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.whole_audit import Audit
from bench import hostile, hostile_inputs
from tests import corpora
from tests.facts import here

# What makes a limit be reached does so by its size, and is nothing of note at a hundredth of it.
BY_SIZE = {"distinct", "nameless"}
NAMES = (*hostile_inputs.WHY, "transactions over 50", "transactions of one id", "transactions of many ids",
         "commits over 50", "distinct lists")  # fmt: skip
SMALL = {"partitions": 1 / 16, "distinct": 1 / 16, "equal": 1 / 16}


@pytest.mark.parametrize("name", NAMES)
def test_beside_a_small_one_all_else_is_reported(tmp_path: Path, name: str) -> None:
    one, out = hostile_inputs.INPUTS[name], tmp_path / "out"
    out.mkdir()
    assert hostile_inputs.made(name, tmp_path / "in", SMALL.get(name.split()[0], 1 / 500)) > 0
    paths = (str(corpora.unpack(hostile.BESIDE)), str(tmp_path / "in"))
    audit = Audit(AuditOptions(paths, out, as_of=corpora.manifest(hostile.BESIDE)["copied_at"]), here())
    publish(audit, out)
    ran = hostile.results(out, audit.exit_code())
    assert ran.hanging == hostile.HANGING
    if name.split()[0] not in BY_SIZE:
        assert ran.wrong([one]) == []
