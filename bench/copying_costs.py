"""Copies without payload beside ``rsync -a`` and ``zstd``, a second run, a night of growth, an audit of the copy."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bench import inputs, sides
from bench.inputs import GIB, MIB, PROPERTIES, Kind, Made
from bench.sides import ROOT
from bench.sizes import Plan
from bench.table import Row, at_most, machine, table

KINDS = {"64 KiB batches": Kind("64k", partitions=8), "400-byte batches": Kind("400", partitions=8)}
MEMORY_MIB = 300
SMALL_PARTITIONS = 10_000
LARGE_PARTITIONS, NIGHT = 100, 20 * MIB  # of a GiB each; what each gets in a night
RACY_S = 3  # after which a file that did not change counts as such


class Ran(NamedTuple):
    """A command: seconds, seconds of processor time of it and all it started, MiB of its memory, its words."""

    seconds: float
    cpu: float
    memory: float
    said: str


def ran(command: Sequence[str]) -> Ran:
    """Runs a command to its end. Raises where it fails."""
    began = time.perf_counter()
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command[0]} ended with {process.returncode}")
    return Ran(time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, said)


def copy(source: Path, out: Path, *options: str) -> Ran:
    """``auditor copy`` without a limit, so that what is measured is what it costs."""
    words = ["copy", str(source), "--out", str(out), "--limit-rate", "none", *options]
    return ran([sys.executable, "-m", "auditor.cli", *words])


def size_of(path: Path) -> int:
    """Bytes of a file, or of those below a folder."""
    return sum(p.stat().st_size for p in path.rglob("*") if p.is_file()) if path.is_dir() else path.stat().st_size


def best(plan: Plan, command: Callable[[], Ran]) -> Ran:
    """The run of least processor time: what others do on the machine only adds."""
    return min((command() for _ in range(plan.runs)), key=lambda one: one.cpu)


def section(plan: Plan) -> str:
    """What stands on the page."""
    rows = table(measure(plan))
    head = f"{machine()} The best of {plan.runs} runs each, without `--limit-rate`, files in the page cache.\n\n"
    return head + rows


def measure(plan: Plan) -> list[Row]:
    """All rows."""
    rows = []
    for name, kind in KINDS.items():
        with inputs.space(plan.root, 3 * plan.copied_bytes) as folder:
            made = inputs.make(folder, kind, plan.copied_bytes)
            rows += _beside(name, made, folder, plan)
            rows += _audits(name, made, folder, plan)
    with inputs.space(plan.root, 4 * GIB) as folder:
        rows += _second(folder, plan)
    with inputs.space(plan.root, 4 * GIB) as folder:
        rows += _night(folder)
    return rows


def _beside(name: str, made: Made, folder: Path, plan: Plan) -> Iterator[Row]:
    """One copy beside what else brings a directory elsewhere; all files stay in the page cache."""
    sides.warm([made])
    out = folder / "out"

    def fresh(command: Callable[[], Ran]) -> Ran:
        shutil.rmtree(out, ignore_errors=True)
        out.unlink(missing_ok=True)
        return command()

    def row(what: str, one: Ran, note: str = "") -> Row:
        share, gib = size_of(out) / made.size, made.size / GIB
        return Row(
            f"{name}, {gib:.3g} GiB: `{what}`, processor time a GiB", "",
            f"**{one.cpu / gib:.2f} s** ({one.seconds / gib:.2f} s by the clock)", None,
            "; ".join(filter(None, (f"writes {size_of(out) / 1e6:,.1f} MB, {share:.3%} of the input", note))),
        )  # fmt: skip

    copied = best(plan, lambda: fresh(lambda: copy(made.folder, out)))
    yield row("auditor copy", copied, f"{size_of(out) / made.batches:.1f} bytes a batch, its start included")
    everything = best(plan, lambda: fresh(lambda: copy(made.folder, out, "--checksums", "all")))
    yield row("auditor copy --checksums all", everything, "its start included")
    most = max(copied.memory, everything.memory)
    yield at_most(f"{name}: memory of `auditor copy`", MEMORY_MIB, most, " MiB")
    if shutil.which("rsync"):
        yield row("rsync -a", best(plan, lambda: fresh(lambda: ran(["rsync", "-a", f"{made.folder}/", f"{out}/"]))))
    if shutil.which("zstd"):
        packed = ["sh", "-c", 'cat "$@" | zstd -q -3 -T1 -o "$0"', str(out), *map(str, made.logs)]
        yield row("zstd -3 -T1", best(plan, lambda: fresh(lambda: ran(packed))))
    fresh(lambda: copy(made.folder, out, "--checksums", "all"))


def _audits(name: str, made: Made, folder: Path, plan: Plan) -> Iterator[Row]:
    """An audit of the copy that is there, and one of the directory."""
    seconds = {
        path: min(sides.audit([path], master="inline[1]").seconds for _ in range(plan.runs))
        for path in (made.folder, folder / "out")
    }
    of_copy, of_source = seconds[folder / "out"], seconds[made.folder]
    yield Row(
        f"{name}, {made.size / GIB:.3g} GiB: audit of the copy, whole command, inline[1]", "",
        f"**{of_copy:.2f} s** (of the directory {of_source:.2f} s)",
    )  # fmt: skip


def _second(folder: Path, plan: Plan) -> Iterator[Row]:
    """A second run over a directory that did not change."""
    made = inputs.make(folder, Kind("400", partitions=SMALL_PARTITIONS), SMALL_PARTITIONS * 64 * 1024)
    first = copy(made.folder, folder / "out")
    time.sleep(RACY_S)
    again = best(plan, lambda: copy(made.folder, folder / "out"))
    assert "0 batches of 0 bytes taken" in again.said, again.said
    what = f"{SMALL_PARTITIONS:,} partitions, {made.size / MIB:,.0f} MiB"
    yield Row(
        f"{what}: second `auditor copy`, nothing changed, no byte of a segment read", "",
        f"**{again.seconds:.1f} s** (the first took {first.seconds:.1f} s)", None,
        f"{size_of(folder / 'out') / len(made.logs):,.0f} bytes of copy a partition",
    )  # fmt: skip
    yield at_most(f"{what}: memory of `auditor copy`", MEMORY_MIB, max(first.memory, again.memory), " MiB")


def _night(folder: Path) -> Iterator[Row]:
    """A hundred logs of a GiB and what they get in a night: all are hard links to the two files of one log, so that
    100 GiB need no room, and come from the page cache."""
    one = inputs.make(folder / "one", Kind("64k", partitions=1), GIB + NIGHT, segment=GIB)
    (log,) = {path.parent for path in one.logs}
    old, new = sorted(one.logs)
    broker = folder / "broker"
    for number in range(LARGE_PARTITIONS):
        target = broker / f"{log.name.rpartition('-')[0]}-{number}"
        target.mkdir(parents=True)
        for file in log.glob(f"{old.stem}.*"):
            os.link(file, target / file.name)
    (broker / "meta.properties").write_text(PROPERTIES)
    size = LARGE_PARTITIONS * old.stat().st_size
    time.sleep(RACY_S)
    first = copy(broker, folder / "out")
    for target in broker.glob("*-*"):
        for file in log.glob(f"{new.stem}.*"):
            os.link(file, target / file.name)
    grown = LARGE_PARTITIONS * new.stat().st_size
    touched = copy(broker, folder / "out")
    yield Row(
        f"{size / 1e9:.0f} GB of 64 KiB batches (hard links to one log): `auditor copy`, from the page cache", "",
        f"**{first.seconds:.0f} s**, {first.cpu:.0f} s of processor time", None, first.said.splitlines()[0],
    )  # fmt: skip
    yield Row(
        f"the same after a night of {grown / 1e9:.1f} GB more", "",
        f"**{touched.seconds:.1f} s**, {touched.cpu:.1f} s of processor time", None, touched.said.splitlines()[0],
    )  # fmt: skip
