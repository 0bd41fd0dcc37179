"""One log directory audited in every way that must say the same: the oracle of :mod:`sealed_histories`.

Without records and with them, PATHs forward and back, as a copy and as a what-if, each in a process forked for all of
them: whatever its numbers say, nothing may raise, end the process, take minutes or take gigabytes, and the findings are
the same every way.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from auditor.base.errors import FAILURES_RAISE, AuditInputError
from auditor.copying.run import copy_logs
from auditor.outputs.publish import publish, publish_what_if
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.what_if_audit import WhatIfAudit
from auditor.pipeline.whole_audit import Audit
from tests.facts import here
from tests.fuzz import patience
from tests.fuzz.mutated_directories import LIMITS, accounted, write
from tests.fuzz.sealed_histories import EDGES, History

PATIENCE_S = 120  # of processor time, for all ways together
MOST_BYTES = 1 << 30  # of memory beyond that of the process that forks
NOTHING = ["nothing to audit"]
OF_DIRECTORIES = {"start-fails"}  # rules on files that a copy does not keep (docs/copy.md)
NOT_JUDGED = "not_judged"  # the reason of an error that stands in place of a part of the audit that raised


class Failure(NamedTuple):
    """What went wrong on which way; ``cause``: the line that raised, or how the process ended."""

    way: str
    cause: str
    trace: str = ""


def failures(seed: int, number: int, save: Path | None = None) -> list[Failure]:
    """What goes wrong with history ``number``; none where all is well. ``save``: a folder that it is written to and
    stays in."""
    tree, as_of = History(seed, number).tree, random.Random(f"{seed} {number}").choice((None, None, 0, 1 << 62, *EDGES))
    shared = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        root = save or Path(folder, "in")
        root.mkdir(parents=True, exist_ok=True)
        write(tree, root)
        return apart(Path(folder), lambda: every_way(root, Path(folder), as_of))


def warm_up() -> None:
    """Load modules and machine code once, where each process forked would load them again: half of all its time."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "in")
        root.mkdir()
        write(History(54, 0).tree, root)
        assert not list(every_way(root, Path(folder), None))


def apart(folder: Path, work: Callable[[], Iterator[Failure]]) -> list[Failure]:
    """What ``work`` yields in a process forked for it, and how that ended if it did not end well."""
    said = folder / "failures.jsonl"
    said.touch()
    before = _resident()
    if child := os.fork():
        _, status, usage = os.wait4(child, 0)
        found = [Failure(*json.loads(line)) for line in said.read_text().splitlines()]
        way = (folder / "way").read_text() if (folder / "way").exists() else ""
        if os.WIFSIGNALED(status):
            found.append(Failure(way, f"signal {os.WTERMSIG(status)}"))
        elif status:
            found.append(Failure(way, f"exit {os.waitstatus_to_exitcode(status)}"))
        if (grown := usage.ru_maxrss * 1024 - before) > MOST_BYTES:
            found.append(Failure(way, "memory", f"{grown >> 20} MiB more"))
        return found
    status = 1
    os.environ[FAILURES_RAISE] = "1"  # a failure that an audit contains is one
    try:
        patience.ends_after(PATIENCE_S)
        with said.open("a") as out:
            for failure in work():
                out.write(json.dumps(failure) + "\n")
                out.flush()
        status = 0
    except BaseException:  # noqa: BLE001 - whatever it is, it must not go on as the process that forked
        traceback.print_exc()
    finally:
        os._exit(status)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def every_way(root: Path, folder: Path, as_of: int | None) -> Iterator[Failure]:
    """Audit a directory every way; ``folder``: for results and the name of the way at hand."""
    paths = [str(path) for path in sorted(root.iterdir())]
    found: dict[str, list[str]] = {}

    def audit(*places: str, records: bool, shown: bool = True) -> list[str]:
        done = Audit(AuditOptions(places, Path(), limits=LIMITS, records=records, as_of=as_of), here())
        try:
            out = folder / "out"
            shutil.rmtree(out, ignore_errors=True)
            out.mkdir()
            if shown:  # what the results show is that of another way if the findings are the same
                publish(done, out)
            _ = done.findings
        except AuditInputError:
            return NOTHING
        accounted(done)
        assert not (contained := [error for _, error in done.unread() if error.reason == NOT_JUDGED]), contained
        return [f.to_json() for f in done.findings]

    def copied(records: bool) -> list[str]:
        copy = folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        try:
            left_out = copy_logs([str(root)], copy, LIMITS, records=records).failed
            assert not left_out, left_out
        except AuditInputError:
            return NOTHING
        return audit(str(copy), records=records)

    def what_if() -> list[str]:
        out = folder / "what-if"
        out.mkdir()
        with contextlib.suppress(AuditInputError):
            publish_what_if(WhatIfAudit(AuditOptions((str(root),), Path(), limits=LIMITS, as_of=as_of), here()), out)
        return []

    ways: dict[str, Callable[[], list[str]]] = {
        "plain": lambda: audit(str(root), records=False),
        "forward": lambda: audit(*paths, records=False, shown=False),
        "back": lambda: audit(*reversed(paths), records=False, shown=False),
        "copy": lambda: copied(records=False),
        "records": lambda: audit(str(root), records=True),
        "copy with records": lambda: copied(records=True),
        "what-if": what_if,
    }
    for way, run in ways.items():
        (folder / "way").write_text(way)
        try:
            found[way] = run()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what this module looks for
            frames = traceback.extract_tb(error.__traceback__)
            last = [frame for frame in frames if not frame.filename.endswith("auditor/base/compiled.py")][-1]
            cause = f"{type(error).__name__} {Path(last.filename).name}:{last.lineno} {last.name}"
            yield Failure(way, cause, traceback.format_exc())
    for one, other in (("forward", "back"), ("plain", "copy"), ("records", "copy with records")):
        if "copy" in other:
            found |= {way: _without_starts(found[way]) for way in (one, other) if way in found}
        if one in found and other in found and found[one] != found[other]:
            lines = differences(found[one], found[other])
            kinds = sorted({line.split()[1] for line in lines})
            yield Failure(other, f"not as {one}: {', '.join(kinds) or 'in another order'}", "\n".join(lines))


def _without_starts(lines: list[str]) -> list[str]:
    return [line for line in lines if line in NOTHING or json.loads(line)["rule"] not in OF_DIRECTORIES]


def differences(was: list[str], now: list[str]) -> list[str]:
    """What differs between findings: a line for each that one side lacks, or for each field of one that both have."""
    before, after = (
        {json.loads(x)["fingerprint"]: json.loads(x) for x in lines if x not in NOTHING} for lines in (was, now)
    )
    lines = []
    for name in sorted({*before, *after}):
        one, other = before.get(name), after.get(name)
        if one is None or other is None:
            found = one or other or {}
            lines.append(f"{'-' if one else '+'} {found['rule']} {found['severity']}: {found['message'][:300]}")
            continue
        fields = [(key, one[key], other[key]) for key in one if key != "evidence"]
        fields += [(key, one["evidence"].get(key), other["evidence"].get(key))
                   for key in sorted({*one["evidence"], *other["evidence"]})]  # fmt: skip
        lines += [
            f"~ {one['rule']} {key}: {str(old)[:300]} | {str(new)[:300]}" for key, old, new in fields if old != new
        ]
    return lines
