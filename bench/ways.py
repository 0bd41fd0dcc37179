"""Other ways to run, each against its anchor in the same run: without Spark, in parts, replicas, what-if, watch."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench import sides
from bench.anonymous import below
from bench.inputs import GIB, MIB, PROPERTIES, Kind, Made, make, part_of, space
from bench.sizes import Plan
from bench.table import Row, at_most, ratio

INLINE_BYTES = 2 * GIB
GIANT = 3  # times the size of other inputs
REPLICA = PROPERTIES.replace("node.id=1", "node.id=2")
WIDTHS = {".index": 8, ".timeindex": 12}  # bytes of an entry
NEW_ENTRIES = 256  # about a MiB of log, that come while a watch looks on
LOOK_S, POLL_S = 2.0, 0.5  # seconds between two looks of a watch, and of the bench at it
PATIENCE_S = 300.0
IDLE = 0.06  # of a core: what a watch takes that has nothing to do


def inline(plan: Plan) -> list[Row]:
    """The whole command without Spark."""
    rows = []
    for name, kind, limit in (("64 KiB batches", Kind("64k"), None), ("400-byte batches", Kind("400"), 1.8)):
        with space(plan.root, INLINE_BYTES + plan.dump_bytes) as folder:
            made = make(folder, kind, INLINE_BYTES)
            theirs = made if limit is None else make(folder / "dump", kind._replace(partitions=2), plan.dump_bytes)
            sides.warm([made, theirs])
            t = sides.medians(
                sides.in_turn(
                    {
                        "ours": lambda made=made: sides.audit([made.folder], master="inline").seconds,  # type: ignore[misc]
                        "dump": lambda theirs=theirs: sides.dump(theirs.logs),  # type: ignore[misc]
                    },
                    plan.runs,
                    made.logs,
                )
            )
        what = f"{INLINE_BYTES / GIB:.2g} GiB of {name}, `--master inline`, whole command"
        dump = t["dump"] * made.size / theirs.size
        figures = f"{t['ours']:.2f} s, DumpLogSegments {dump:.1f}"
        if limit is None:
            rows.append(at_most(f"{what}: against DumpLogSegments", 1.1, t["ours"] / dump, " of its time", figures))
        else:
            rows.append(at_most(what, limit, t["ours"], " s", f"{figures} by {plan.dump_bytes >> 20} MiB"))
    return rows


def parts(plan: Plan) -> list[Row]:
    """One partition far larger than all others, in parts on two cores and whole on one: by a further GiB, since both
    begin with what a giant partition takes no more of."""
    with space(plan.root, plan.part_bytes * GIANT) as folder:
        made = make(folder, Kind("400", 1), plan.part_bytes * GIANT)
        small = part_of(made, max(2, len(made.logs) // GIANT), folder / "small")
        sides.warm([made])
        kept: dict[str, list[sides.Audited]] = {}
        cases = {
            f"{way} {size}": sides.auditing(kept, f"{way} {size}", [one.folder], master=master)
            for way, master in (("whole", "local[1]"), ("parts", "local[2]"))
            for size, one in (("small", small), ("large", made))
        }
        command = sides.medians(sides.in_turn(cases, plan.runs, made.logs))
    work = sides.medians({name: [run.work for run in runs] for name, runs in kept.items()})
    sizes = small.size, made.size
    whole, parts = (sides.slope(work[f"{way} small"], work[f"{way} large"], sizes) for way in ("whole", "parts"))
    what = f"one partition of 400-byte batches, a further GiB between {small.size / GIB:.2g} and {made.size / GIB:.2g}"
    return [ratio(
        f"{what}: in parts, local[2], against whole, local[1]", 2,
        whole / parts, f"{parts:.3f} against {whole:.3f} s/GiB by its two jobs",
        f"the whole commands {command['parts large']:.1f} and {command['whole large']:.1f} s, "
        f"their two jobs {work['parts large']:.1f} and {work['whole large']:.1f}",
    )]  # fmt: skip


def replicas(plan: Plan) -> list[Row]:
    """Two replicas of one log, compared batch by batch, and one alone."""
    with space(plan.root, plan.part_bytes) as folder:
        made = make(folder / "one", Kind("400", 1), plan.part_bytes)
        other = folder / "other" / "disk-0"
        shutil.copytree(made.folder, other, copy_function=os.link)
        (other / "meta.properties").unlink()
        (other / "meta.properties").write_text(REPLICA)
        sides.warm([made])
        kept: dict[str, list[sides.Audited]] = {}
        cases = {
            "alone": sides.auditing(kept, "alone", [made.folder], master="inline"),
            "two": sides.auditing(kept, "two", [made.folder, other], master="inline"),
        }
        took = sides.medians(sides.in_turn(cases, plan.runs, made.logs))
    private = max(run.private for run in kept["two"]) >> 20
    size = f"{made.size / GIB:.2g} GiB"
    return [at_most(
        f"two replicas of {size} of 400-byte batches: private memory of a worker", 256, private, " MiB",
        f"{took['two']:.1f} s, one of them alone {took['alone']:.1f}",
    )]  # fmt: skip


def what_if(plan: Plan) -> list[Row]:
    """The same history under four policies, against an audit."""
    with space(plan.root, plan.part_bytes) as folder:
        made = make(folder, Kind("400"), plan.part_bytes)
        sides.warm([made])
        t = sides.medians(
            sides.in_turn(
                {
                    "audit": lambda: sides.audit([made.folder], master="inline").seconds,
                    "what-if": lambda: _what_if(made),
                },
                plan.runs,
                made.logs,
            )
        )
    size = f"{made.size / GIB:.2g} GiB of 400-byte batches"
    what = f"what-if under four policies, {size}, `--master inline`, against an audit"
    figures = f"{t['what-if']:.2f} against {t['audit']:.2f} s"
    return [at_most(what, 1.3, t["what-if"] / t["audit"], " of its time", figures)]


def _what_if(made: Made) -> float:
    with tempfile.TemporaryDirectory(prefix="bench-out-") as out:
        command = [sys.executable, "-m", "auditor.cli", "what-if", str(made.folder), "--out", out, "--master", "inline"]
        began = time.perf_counter()
        subprocess.run([*command, "--quiet"], cwd=sides.ROOT, check=True)
        return time.perf_counter() - began


def watch(plan: Plan) -> list[Row]:
    """What a look costs when a MiB has come, against the first, in processor time."""
    with space(plan.root, plan.part_bytes) as folder:
        made = make(folder, Kind("400", 1), plan.part_bytes)
        (made.folder / ".kafka_cleanshutdown").unlink()
        new = _cut(made.logs[-1])
        with tempfile.TemporaryDirectory(prefix="bench-out-") as out:
            words = [
                "watch",
                str(made.folder),
                "--out",
                out,
                "--master",
                "inline",
                "--interval",
                str(LOOK_S),
                "--quiet",
            ]
            process = subprocess.Popen([sys.executable, "-m", "auditor.cli", *words], cwd=sides.ROOT)
            try:
                first = _rest(process)
                for file, data in new.items():
                    with file.open("ab") as f:
                        f.write(data)
                later = _rest(process) - first
            finally:
                process.terminate()
                process.wait()
    more = len(new[made.logs[-1]]) / MIB
    what = f"watch of a partition of {made.size / GIB:.2g} GiB: what {more:.1f} MiB more cost, against its first look"
    return [at_most(what, 0.1, later / first, " of it", f"{later:.2f} against {first:.2f} s of processor time")]


def _cut(path: Path) -> dict[Path, bytes]:
    """Takes the end of a segment and of its indexes away, as if it had not come yet; what was taken."""
    entries = path.with_suffix(".index").read_bytes()
    first = len(entries) // WIDTHS[".index"] - NEW_ENTRIES
    ends = {path: int.from_bytes(entries[first * 8 + 4 : first * 8 + 8], "big")}
    ends |= {path.with_suffix(suffix): first * width for suffix, width in WIDTHS.items()}
    taken = {}
    for file, end in ends.items():
        with file.open("rb") as f:
            f.seek(end)
            taken[file] = f.read()
        os.truncate(file, end)
    return taken


def _rest(process: subprocess.Popen[bytes]) -> float:
    """Seconds of processor time that a process and all below it have had, once they have come to rest: for some
    seconds they took next to nothing."""
    seen: list[float] = []
    began = time.monotonic()
    while process.poll() is None and time.monotonic() - began < PATIENCE_S:
        time.sleep(POLL_S)
        seen.append(sum(map(_taken, (process.pid, *below(process.pid)))))
        if len(seen) > 20 and seen[-1] - seen[-11] < IDLE * 10 * POLL_S:
            return seen[-1]
    raise RuntimeError("auditor watch ended, or did not come to rest")


def _taken(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
