"""The compiled replay against the same code in plain Python, on random histories."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from auditor.facts.replica_facts import ReplicaFacts
from auditor.replay.producers.state import Replay
from tests.conftest import ROOT
from tests.unit.batch_histories import facts_of, history

SEEDS = 12
PLAIN = f"""
import json, warnings
import numpy as np
warnings.simplefilter("ignore")  # of numpy, where numbers of 64 bits turn over as they do in machine code
from auditor.replay.producers import audit_replay as audit, snapshot_chain as chain
from tests.processes.test_plain_python import _records, as_records, reported
from tests.unit.batch_histories import history, facts_of
kernel = audit.replay_batches
audit.replay_batches = lambda replay, b, *rest: kernel(as_records(replay), b.view(np.recarray), *rest)
note_last = audit.note_last
audit.note_last = lambda log: note_last(log._replace(**_records(log)))
first_time = chain.first_broker_time
chain.first_broker_time = lambda b, *rest: first_time(b.view(np.recarray), *rest)
print(json.dumps([reported(facts_of(history(seed, 150), compacted=seed % 3 == 0)) for seed in range({SEEDS})]))
"""


def as_records(replay: Replay) -> Replay:
    """The same tables, whose rows have their fields as attributes in plain Python too."""
    return replay._replace(log=replay.log._replace(**_records(replay.log)), **_records(replay))


def _records(of: tuple[Any, ...]) -> dict[str, np.ndarray]:
    named: dict[str, Any] = of._asdict()  # type: ignore[attr-defined]
    return {n: t.view(np.recarray) for n, t in named.items() if isinstance(t, np.ndarray) and t.dtype.names}


def reported(facts: ReplicaFacts) -> dict[str, str]:
    """A digest of each part of the facts."""
    parts: dict[str, Any] = {f.name: getattr(facts, f.name) for f in dataclasses.fields(facts)}
    shown = {name: v.tolist() if isinstance(v, np.ndarray) else repr(v) for name, v in parts.items()}
    return {name: hashlib.sha256(repr(v).encode()).hexdigest() for name, v in shown.items()}


@pytest.fixture(scope="module")
def plain() -> list[dict[str, str]]:
    """What plain Python makes of the histories."""
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PLAIN], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
    )
    return list(json.loads(done.stdout))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_machine_code_gives_what_plain_python_gives(plain: list[dict[str, str]], seed: int) -> None:
    assert reported(facts_of(history(seed, 150), compacted=seed % 3 == 0)) == plain[seed]
