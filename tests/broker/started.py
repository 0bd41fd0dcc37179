"""What a broker does when it starts on a damaged directory: ``python -m tests.broker.started VERSION...``.

Each damage is done by itself to a directory that was stopped cleanly, and a real broker is started on it. Writes
``tests/data/starts/VERSION.json`` (what happened, and the broker's own line) and ``VERSION.tar.gz`` (the directory).
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import json
import os
import re
import shutil
import socket
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.broker.cluster import Cluster, Driver, segment_bytes
from tests.broker.jars import resolved
from tests.starts import DAMAGES, Damage

DATA = Path(__file__).parents[1] / "data" / "starts"
LOGGING = "org.slf4j:slf4j-simple:1.7.36"  # to which a broker from Maven logs; its own tools bring Log4j
PATIENCE_S = 90
TELLING = re.compile(r"ERROR|FATAL|^(?!INFO|WARN).*Exception|-stray")


def made(version: str, folder: Path) -> Cluster:
    """A broker that was stopped cleanly, with a topic of three segments, a compacted one, a group and a transaction."""
    cluster = Cluster(version, folder)
    with Driver(cluster) as say:
        say(f"topic orders 1 1 {segment_bytes(version, 16384)}")
        say("topic compacted 1 1 cleanup.policy=compact")
        say("producer plain")
        say("producer tx transactional.id=app-1")
        say("init tx")
        for _ in range(6):
            say("send plain orders 0 20 size=400")
            say("begin tx")
            say("send tx orders 0 5")
            say("commit tx")
        say("send plain compacted 0 20 size=40")
        say("close plain")
        say("close tx")
    cluster.stop()
    cluster.jars += os.pathsep + resolved("slf4j-simple", LOGGING)
    return cluster


def starts(cluster: Cluster) -> bool:
    """Whether the broker listens within the time that one is given; otherwise it has ended."""
    cluster.start()
    process, until = cluster.jvms[1].process, time.monotonic() + PATIENCE_S
    while time.monotonic() < until and process.poll() is None:
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", cluster.ports[0])) == 0:
                time.sleep(4 if cluster.kraft else 25)  # until it has read its metadata, or heard of the controller
                return process.poll() is None
        time.sleep(0.2)
    return False


def outcome(cluster: Cluster, damage: Damage) -> dict[str, Any]:
    """Start on the damaged directory, stop again, and look at what is there."""
    root = cluster.log_dir()
    out = cluster.folder / "broker-1.out"
    out.write_bytes(b"")
    started = starts(cluster)
    if started:
        cluster.stop()
    else:
        cluster.kill()
    lines = [line.strip().replace(str(cluster.folder), "") for line in out.read_text(errors="replace").splitlines()]
    return {
        "damage": damage.name,
        "starts": started,
        "stray": sorted({path.name.rpartition(".")[0] for path in root.rglob("*-stray")}),
        "lines": [line[:240] for line in lines if TELLING.search(line)][:4],
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.broker.started")
    parser.add_argument("versions", nargs="+")
    parser.add_argument("--only", default="*")
    parser.add_argument("--out", type=Path, default=DATA)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    os.environ["JAVA_TOOL_OPTIONS"] = "-Dorg.slf4j.simpleLogger.showThreadName=false"
    for version in args.versions:
        with tempfile.TemporaryDirectory(prefix="starts-") as temporary:
            folder = Path(temporary)
            cluster = made(version, folder / "cluster")
            base = folder / "base"
            shutil.copytree(cluster.log_dir(), base)
            with contextlib.suppress(FileNotFoundError):
                (base / ".lock").unlink()
            if args.only == "*":
                with tarfile.open(args.out / f"{version}.tar.gz", "w:gz") as tar:
                    tar.add(base, "broker-1")
            found = []
            for damage in DAMAGES:
                if not fnmatch.fnmatch(damage.name, args.only) or not damage.applies(base):
                    continue
                shutil.rmtree(cluster.log_dir())
                shutil.copytree(base, cluster.log_dir())
                damage.do(cluster.log_dir())
                found.append(outcome(cluster, damage))
                print(version, damage.name, "starts" if found[-1]["starts"] else "ends", flush=True)
                name = f"{version}.json" if args.only == "*" else f"{version}-some.json"
                (args.out / name).write_text(json.dumps(found, indent=1) + "\n")
            cluster.close()


if __name__ == "__main__":
    main()
