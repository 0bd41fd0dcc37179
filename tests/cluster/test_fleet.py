"""Nightly for a fleet, as docs/fleet.md says it, with minutes in place of nights (``FLEET_ROUNDS``: how many)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from auditor import cli
from tests.broker.jars import missing_tools
from tests.cluster.fleet import HEAD, TOPIC, fleet, rounds

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(missing_tools() is not None, reason=str(missing_tools()))]
ROUNDS = int(os.environ.get("FLEET_ROUNDS", "3"))
EVERY_S = 60.0


def test_copies_of_three_brokers_are_audited_round_after_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing above info while all is well; what hangs is found in the next round, and nothing else."""
    lines = [HEAD]
    with fleet(tmp_path) as found:
        for one in rounds(found, ROUNDS, EVERY_S):
            lines.append(one.row())
            held = [(row["kind"], row["topic"], row["partition"], row["offset"]) for row in one.above_info()]
            hang = [("hanging-transaction", TOPIC, *found.hang)] if one.hung and found.hang else []
            assert held == hang, one.above_info()
            assert one.summary["complete"]
        for name, value in found.env.items():
            if name.startswith("AWS_"):
                monkeypatch.setenv(name, value)
        capsys.readouterr()
        assert cli.main(["history", "s3://runs/history", "--format", "json"]) == 0
        runs = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    with capsys.disabled():
        print("\n" + "\n".join(lines))
    assert len(runs) >= ROUNDS
