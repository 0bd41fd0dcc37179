"""``python -m bench.hostile``: inputs that ended audits once, each audited beside a sound cluster, and memory measured.

Beside each stands ``hanging-36``, whose four hanging transactions must be reported whatever else is there; the input
must be named where it is not sound, the exit status must be the one for it, and no process may have a GiB of anonymous
memory. A line an input, status 1 where one is not as it should. ``--within`` puts the partitions into the broker of
``hanging-36`` itself, behind its own. Sizes are those that the inputs are known by, ``--times`` as many.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from bench import hostile_inputs
from bench.anonymous import Anonymous
from bench.hostile_inputs import INPUTS, WHY
from bench.sides import ROOT
from tests import corpora

BESIDE, HANGING = "hanging-36", 4
MOST = 1 << 30  # bytes of anonymous memory that a process may have
TOGETHER = "together"  # all that the issue was opened with, in one run


class Ran(NamedTuple):
    """One audit: its exit status (that of a signal where it died), how many transactions it found hanging, what its
    results name, seconds, and most bytes by kind of process."""

    status: int
    hanging: int
    named: frozenset[str]
    seconds: float = 0.0
    memory: Mapping[str, int] = MappingProxyType({})

    def wrong(self, wanted: Sequence[hostile_inputs.Input]) -> list[str]:
        """What is not as it should be after an audit of these inputs."""
        statuses = {max(statuses) for statuses in (one.statuses for one in wanted)}
        allowed = {3} if 3 in statuses else {0, 1}
        found = [] if self.status in allowed else [f"status {self.status}, not {allowed}"]
        found += [] if self.hanging == HANGING else [f"{self.hanging} hanging transactions"]
        for one in wanted:
            if one.named and not any(one.named in name for name in self.named):
                found.append(f"nothing names {one.named}")
        return found + [f"{kind} above a GiB" for kind, most in self.memory.items() if most > MOST and kind != "all"]


def audited(paths: Sequence[Path], out: Path, master: str, *options: str) -> Ran:
    """The whole command, with its defaults but for ``options``."""
    words = ["audit", *map(str, paths), "--out", str(out), "--master", master, "--quiet", *options]
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "auditor.cli", *words], cwd=ROOT, stdout=subprocess.DEVNULL)
    memory = Anonymous(process.pid)
    status = process.wait()
    seconds, most = time.perf_counter() - began, memory.end()
    return results(out, status)._replace(seconds=seconds, memory=most)


def results(out: Path, status: int) -> Ran:
    """What came of an audit that ended with this status, by what it left."""
    if not (out / "summary.json").exists():
        return Ran(status, 0, frozenset())
    findings = [json.loads(line) for line in (out / "findings.jsonl").read_text().splitlines()]
    names = {e["file"] for e in json.loads((out / "summary.json").read_text())["unreadable"]}
    names |= {f["topic"] for f in findings if f["topic"]}
    return Ran(status, sum(f["rule"] == "hanging-transaction" for f in findings), frozenset(names))


def merged(root: Path, log_dirs: Sequence[Path]) -> Path:
    """``hanging-36`` with the partitions and settings of other log directories in its broker."""
    shutil.copytree(corpora.unpack(BESIDE), root)
    broker = root / "broker-1"
    for number, log_dir in enumerate(log_dirs):
        for path in sorted(log_dir.iterdir()):
            topic, _, partition = path.name.rpartition("-")
            if path.is_dir():
                path.rename(broker / f"{topic}-{int(partition) + 50 * number + 3}")
            elif path.name == "server.properties":
                with (root / "server-1.properties").open("a") as f:
                    f.write(path.read_text())
    return root


def runs(names: Sequence[str], masters: Sequence[str], times: float, *, within: bool = False) -> Iterator[list[str]]:
    """Prints a line per run; what was wrong with each."""
    for name in names:
        with tempfile.TemporaryDirectory(prefix="bench-hostile-", dir=os.environ.get("BENCH_DIR")) as folder:
            root = Path(folder)
            parts = WHY if name == TOGETHER else (name,)
            size = sum(hostile_inputs.made(part, root / part.replace(" ", "-"), times) for part in parts)
            paths = [root / part.replace(" ", "-") for part in parts]
            paths = [merged(root / BESIDE, paths)] if within else [corpora.unpack(BESIDE), *paths]
            as_of = str(corpora.manifest(BESIDE)["copied_at"])
            for master in masters:
                ran = audited(paths, root / f"out-{master}", master, "--as-of", as_of)
                wrong = ran.wrong([INPUTS[part] for part in parts])
                memory = ", ".join(f"{kind} {most >> 20} MiB" for kind, most in sorted(ran.memory.items()))
                print(f"{name}, {size:,} bytes, {master}: status {ran.status}, {ran.seconds:.1f} s, {memory}"
                      + "".join(f"; WRONG: {what}" for what in wrong), flush=True)  # fmt: skip
                yield wrong


def main() -> int:
    """Prints a line per run; 1 where one is not as it should."""
    parser = argparse.ArgumentParser(prog="python -m bench.hostile", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="INPUT", choices=[*INPUTS, TOGETHER, "why", []])
    parser.add_argument("--master", action="append", help="default: inline[2] and local[2]")
    parser.add_argument("--times", type=float, default=1.0)
    parser.add_argument("--within", action="store_true", help="in the broker of hanging-36")
    args = parser.parse_args()
    names = [*WHY, TOGETHER] if args.names == ["why"] else args.names or [*INPUTS, TOGETHER]
    return int(any(list(runs(names, args.master or ["inline[2]", "local[2]"], args.times, within=args.within))))


if __name__ == "__main__":
    sys.exit(main())
