"""``auditor copy`` at a real broker: again and again while it works, and no broker starts on what comes of it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from auditor.copying.readings import now_ms
from auditor.copying.second_look import _ms, looked_again
from tests.audited import above_info
from tests.broker.cluster import Cluster, Driver, Jvm, segment_bytes
from tests.broker.jars import missing_tools
from tests.conftest import NIGHTLY
from tests.copies import LIST, copy_of, finds
from tests.facts import opened

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(missing_tools() is not None, reason=str(missing_tools()))]
COPIES = 20 if NIGHTLY else 6
UNDECIDED = "unknown"


@pytest.mark.parametrize("version", ["4.3.1", "3.9.1"])
def test_a_broker_that_works_is_copied_and_nothing_starts_on_the_copy(version: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with (
        Cluster(version, tmp_path / "cluster", heap="256m", **{"auto_create_topics_enable": "false"}) as cluster,
        Driver(cluster) as run,
    ):
        run(f"topic shop.orders 3 1 {segment_bytes(version, 40_000)}")
        run("load t1 shop.orders 60000 parts=3 n=2 size=100 pause=20")
        run("load t2 shop.orders 60000 parts=3 n=2 size=100 pause=35")
        read = []
        for _ in range(COPIES):
            begun = now_ms()
            done = copy_of(cluster.log_dir(), copy)
            read.append((done.kept, done.bytes_read))
            looked_again([str(cluster.log_dir())], copy, begun, opened)
            audit = opened(copy)
            assert not above_info(audit.findings)
            # Of a partition that is written all the time another transaction may end while its logs are read again.
            undecided = [row["since"] for row in audit.blocked if row["standing"] == UNDECIDED]
            assert all(_ms(since) > begun - 1_000 for since in undecided), undecided
            said = json.loads(gzip.decompress((copy / "broker-1" / LIST).read_bytes()))["readings"]
            assert said
            assert all(live for *_, live in said)
        run("stop")
        copy_of(cluster.log_dir(), copy)
        assert read[0][0] == 0
        assert read[-1][0] > 0, read
        was, now = opened(cluster.log_dir()).findings, opened(copy).findings
        assert [f.to_json() for f in now] == [f.to_json() for f in was]
        cluster.stop()
        settings = (cluster.folder / "server-1.properties").read_text()
        files = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
        on_copy = tmp_path / "on-copy.properties"
        on_copy.write_text(settings.replace(str(cluster.log_dir()), str(copy / "broker-1")))
        broker = Jvm(cluster.jars, "kafka.Kafka", [str(on_copy)], tmp_path / "on-copy.out")
        try:
            assert broker.process.wait(timeout=120) != 0
        finally:
            broker.end()
    assert {path: path.read_bytes() for path in files} == files
    assert not finds(copy, b"x" * 60)
