"""``auditor copy --around``: what one finding of a run rests on, in a folder that can go into a ticket."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

from auditor import running
from auditor.base.errors import AuditInputError
from auditor.outputs import delivery, printing
from auditor.pipeline.options import AuditOptions, parse_time


def around(name: str, run: Path | str, paths: Sequence[str], out: Path, checksums: str) -> tuple[int, list[str]]:
    """Copies what the finding of ``run`` whose fingerprint begins with ``name`` rests on into the empty folder ``out``,
    and audits that: more is taken until the audit gives the finding again. Exit status, and what to print.

    Errors: :class:`AuditInputError` for a wrong call, ``OSError`` of the target.
    """
    found = delivery.read(run)
    row, as_of = printing.one(found.findings, name), found.summary.get("as_of")
    records = found.summary.get("records_decoded") is True
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise AuditInputError(f"{out}: not empty; --around needs an empty folder, so that nothing else goes with it")
    from auditor.copying.run import (
        ALL,
        copied,  # only now: it loads the readers
        names_in,
        size_of,
        wanted,
    )

    clock = parse_time(as_of) if isinstance(as_of, str) else None
    options = AuditOptions((str(out),), out, records=records, as_of=clock, master="inline[1]")
    unverified = 0
    tried: list[tuple[set[str], str]] = []
    for folders, verified in product(wanted(row, paths), dict.fromkeys((checksums, ALL))):
        if (folders, verified) in tried or (tried and verified != checksums and not unverified):
            continue
        tried.append((folders, verified))
        done = copied(paths, out, only=folders, checksums=verified, records=records)
        unverified = done.unverified
        with running.failures(), running.runner(options) as runner:
            from auditor.pipeline.whole_audit import Audit  # only now: see running.runner

            audit = Audit(options, runner)
            again = next((f for f in audit.findings if f.fingerprint == row["fingerprint"]), None)
            named = names_in(audit)
        if again is not None and again.severity == row["severity"]:
            break
    says = ["These names stand in it:", *(f"  {line}" for line in named.lines()), ""]
    says.append(f"{out}: {size_of(out):,} bytes, without keys and values, no backup")
    if again is not None:
        when = " --records" * records + (f" --as-of {as_of}" if clock is not None else "")
        other = f", as {again.severity}" if again.severity != row["severity"] else ""
        says.append(f"An audit of it gives the finding again{other}: auditor audit {out}{when} --out DIR")
    else:
        says.append(
            "An audit of it does not give the finding again: it rests on what is in no copy, or no longer there"
        )
    if done.refused:
        says.append("Part of the input could not be read; an audit of it names what")
    return (3 if done.refused else int(again is None)), says


def check(args: Any) -> None:
    """Errors: :class:`AuditInputError` where one of the two options is given without the other."""
    if (args.around is None) != (args.run_folder is None):
        raise AuditInputError("--around FINGERPRINT and --run DIR|URI (the --out of an audit) go together; give both")


def show(says: Sequence[str]) -> None:
    """Prints it."""
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    sys.stdout.writelines(f"{line}\n" for line in says)
