"""Ledgers of producers against faulty brokers: what is missing is in ``impact``, and what it lists can be sent again.

``LEDGER_RUNS``: numbers of the runs in ``ledgers.RUNS``; two by default, "all" for the 20 of them (an hour).
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.broker.cluster import Cluster, Driver
from tests.broker.jars import classpath, missing_tools
from tests.broker.ledgers import NEW, RUNS, made

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(missing_tools() is not None, reason=str(missing_tools()))]

ASKED = os.environ.get("LEDGER_RUNS", "7 12")
NUMBERS = range(len(RUNS)) if ASKED == "all" else [int(word) for word in ASKED.split()]
PAGE = Path(__file__).parents[2] / "docs" / "impact.md"
STAND_IN = '#!/bin/sh\nexec java -Xmx128m -cp "{}" org.apache.kafka.tools.ConsoleProducer "$@"\n'


def test_the_runs_have_the_ledgers_that_were_planned() -> None:
    assert len(RUNS) == 20
    assert Counter(run.fault for run in RUNS) == {"killed": 4, "unclean": 8, "cut": 4, "restored": 4}


@pytest.mark.parametrize("number", NUMBERS)
def test_what_consumers_do_not_get_is_listed_or_has_no_trace(number: int, tmp_path: Path) -> None:
    finds = made(number, tmp_path)
    assert finds.wrong == []
    assert finds.counts["ledgers"] == 10
    assert finds.counts["missing"] > 0
    if RUNS[number].away:
        assert finds.counts["listed: lost"] > 0
        _sent_again(tmp_path)


def _sent_again(folder: Path) -> None:
    """Both commands of docs/impact.md, as they are printed there, against a new cluster."""
    replay = folder / "replay.jsonl"
    auditor = Path(sys.executable).with_name("auditor")
    command = [auditor, "impact", folder / "copy", "--master", "inline", "--include-payload", replay]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 1
    rows = [json.loads(line) for line in (folder / "impact.json").read_text(encoding="utf-8").splitlines()]
    lines = [json.loads(line) for line in replay.read_text(encoding="utf-8").splitlines()]
    known = [row for row in rows if row["outcome"] in ("lost", "hidden") and row["first_offset"] is not None]
    assert len(lines) == sum(row["records"] for row in known if row["on_other_replica"] or row["outcome"] == "hidden")
    topics = sorted({line["topic"] for line in lines})
    with Cluster(NEW, folder / "again", 1, heap="256m") as cluster, Driver(cluster) as run:
        for topic in [*topics, "orders"]:
            run(f"topic {topic} 2 1")
        script, shell = (_block(start, cluster.servers) for start in ("import base64", "jq -rj"))
        subprocess.run([sys.executable, "-c", script], cwd=folder, check=True, timeout=300)
        tool = folder / "kafka-console-producer.sh"
        tool.write_text(STAND_IN.format(classpath(NEW, "kafka-tools")), encoding="utf-8")
        tool.chmod(0o755)
        path = os.pathsep.join((str(folder), os.environ["PATH"]))
        subprocess.run(["sh", "-c", shell], cwd=folder, env=os.environ | {"PATH": path}, check=True, timeout=300)
        time.sleep(1)
        by_python = {t: [run(f"read {t} {p} read_committed show=values").split() for p in (0, 1)] for t in topics}
        by_tool = [run(f"read orders {p} read_committed show=values").split() for p in (0, 1)]
    values: dict[str, list[str]] = {f"{line['topic']} {line['partition']}": [] for line in lines}
    for line in lines:
        values[f"{line['topic']} {line['partition']}"].append(_text(line["value"]))
    for place, sent in values.items():
        topic, partition = place.split()
        assert by_python[topic][int(partition)] == sent
    assert sorted(by_tool[0] + by_tool[1]) == sorted(value for sent in values.values() for value in sent)


def _block(start: str, servers: str) -> str:
    """The block of the page that begins so, for these servers."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    (block,) = (one for one in blocks if one.startswith(start))
    return str(block).replace("localhost:9092", servers)


def _text(value: str) -> str:
    return base64.b64decode(value).decode()
