"""What an audit predicts of a start on damaged files, held against a real broker that is started on them.

Each release has a directory of its own; ``STARTS`` damages a release, drawn by the day (``STARTS_SEED``), beside the
undamaged directory. ``tests/data/starts`` has what brokers did at all damages, which unit tests compare.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import random
import shutil
from pathlib import Path

import pytest

from tests.broker.jars import missing_tools
from tests.broker.started import made, outcome
from tests.starts import DAMAGES
from tests.unit.test_starts import NOT_PREDICTED, predicted

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(missing_tools() is not None, reason=str(missing_tools()))]
COUNT = int(os.environ.get("STARTS", "3"))
SEED = os.environ.get("STARTS_SEED", str(datetime.date.today()))


@pytest.mark.parametrize("version", ["2.8.2", "3.9.1", "4.1.0", "4.3.1", "4.4.0"])
def test_a_broker_starts_as_predicted(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dorg.slf4j.simpleLogger.showThreadName=false")
    with contextlib.closing(made(version, tmp_path / "cluster")) as cluster:
        root, base = cluster.log_dir(), tmp_path / "base"
        shutil.copytree(root, base)
        (base / ".lock").unlink(missing_ok=True)
        known = [d for d in DAMAGES if d.applies(base) and (version, d.name) not in NOT_PREDICTED]
        sound = [d for d in known if d.name == "none"]
        for damage in sound + random.Random(SEED).sample([d for d in known if d not in sound], COUNT):
            shutil.rmtree(root)
            shutil.copytree(base, root)
            damage.do(root)
            damaged = tmp_path / "damaged" / "broker-1"
            shutil.rmtree(damaged.parent, ignore_errors=True)
            shutil.copytree(root, damaged)
            starts, lost, _ = predicted(damaged.parent)
            did = outcome(cluster, damage)
            assert (starts, lost and starts) == (did["starts"], "orders-0" in did["stray"]), (damage.name, did["lines"])
