"""Every leader change, offline partition, cut and hang of a real stop or kill is in the list of its rehearsal."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.jars import missing_tools
from tests.broker.rehearsals import rehearsed

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(missing_tools() is not None, reason=str(missing_tools())),
]
ROUNDS = 15


def test_elections_with_zookeeper_were_foretold(tmp_path: Path) -> None:
    tally = rehearsed("3.9.1", tmp_path, 3, kraft=False)  # TEARS need the metadata in files
    assert tally.missed == [], tally
    assert tally.leader_changes > 3
    assert tally.offline >= 3
    assert len(tally.extra) <= 3, tally


@pytest.mark.parametrize("version", ["3.9.1", "4.3.1"])
def test_what_happens_was_foretold(version: str, tmp_path: Path) -> None:
    tally = rehearsed(version, tmp_path, ROUNDS)
    assert tally.missed == [], tally
    assert tally.stops + tally.kills == ROUNDS
    assert tally.leader_changes > ROUNDS
    assert tally.offline >= ROUNDS
    assert tally.cuts == 2
    assert (tally.hangs > 0) == (version == "4.3.1"), tally  # KAFKA-20734
    assert len(tally.extra) <= ROUNDS, tally
