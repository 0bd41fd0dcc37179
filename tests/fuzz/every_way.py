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

from auditor.base.errors import AuditInputError
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
COULD_NOT = "could not judge"  # what stands in a finding or an error in place of a rule that raised


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

    def audit(*places: str, records: bool) -> list[str]:
        done = Audit(AuditOptions(places, Path(), limits=LIMITS, records=records, as_of=as_of), here())
        try:
            out = folder / "out"
            shutil.rmtree(out, ignore_errors=True)
            out.mkdir()
            publish(done, out)
        except AuditInputError:
            return NOTHING
        accounted(done)
        lines = [f.to_json() for f in done.findings]
        assert COULD_NOT not in (out / "summary.json").read_text(), "a rule raised"
        assert not any(COULD_NOT in line for line in lines), "a rule raised"
        return lines

    def copied(records: bool) -> list[str]:
        copy = folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        try:
            copy_logs([str(root)], copy, LIMITS, records=records)
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
        "forward": lambda: audit(*paths, records=False),
        "back": lambda: audit(*reversed(paths), records=False),
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
            last = traceback.extract_tb(error.__traceback__)[-1]
            cause = f"{type(error).__name__} {Path(last.filename).name}:{last.lineno} {last.name}"
            yield Failure(way, cause, traceback.format_exc())
    for one, other in (("forward", "back"), ("plain", "copy"), ("records", "copy with records")):
        if one in found and other in found and found[one] != found[other]:
            was, now = found[one], found[other]
            lines = [f"- {x}" for x in was if x not in now] + [f"+ {x}" for x in now if x not in was]
            kinds = (
                sorted({json.loads(line[2:])["rule"] for line in lines}) if lines and NOTHING[0] not in lines[0] else []
            )
            yield Failure(other, f"not as {one}: {', '.join(kinds) or 'other order'}", "\n".join(lines))
