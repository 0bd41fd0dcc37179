"""What changed between runs: a finding is gone where a run that looked for it does not have it any more.

A run that could not read all of its input says of nothing that it is gone. Nor does one whose input lacks a broker, or
a log directory of one, that the run with the finding had, or the log that it is about. What nobody looked for stands as
it stood, until a run looks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from auditor.base.at_rest import Fields, Values
from auditor.base.words import few
from auditor.outputs.runs import Run
from auditor.outputs.shelf import LOG, Log, Shelf

LATELY = 20  # runs before one, which it is compared with where the last of them saw less than it


class Found(NamedTuple):
    """A finding as a run has it: the last one of some that have it."""

    run: Run
    severity: str
    log: Log


class Changes(NamedTuple):
    """Findings by fingerprint: ``new`` and ``still`` as the run has them, ``gone`` and ``unseen``, for which it did not
    look, as the last run before it that has them."""

    new: dict[str, Found]
    gone: dict[str, Found]
    still: dict[str, Found]
    unseen: dict[str, Found]


def of(shelf: Shelf, earlier: Sequence[Run], run: Run) -> Changes:
    """What a run changed; ``earlier``: the runs of its group before it, the oldest first. What a baseline accepts is
    gone when it is accepted, and new when it comes back.

    Cost: seven columns of the findings of the run and of the one before, of :data:`LATELY` where that saw less; three
    of the logs of runs that may have said that something is gone. Errors: as of :meth:`Shelf.read`.
    """
    stood: dict[str, Found] = {}
    for each in (*_since_whole(earlier, run), run):
        before, there = stood, found_in(shelf, each)
        missing = {name: was for name, was in before.items() if name not in there}
        unseen = {name: was for name, was in missing.items() if unlooked(shelf, each, was)}
        stood = unseen | there
    return Changes(
        {name: found for name, found in there.items() if name not in before},
        {name: was for name, was in missing.items() if name not in unseen},
        {name: found for name, found in there.items() if name in before},
        unseen,
    )


def found_in(shelf: Shelf, run: Run, accepted: bool = False) -> dict[str, Found]:
    """A run's findings by fingerprint, of several with one the gravest. Not ``accepted``: without what its baseline
    accepts."""
    table, out = shelf.who(run, accepted), dict[str, Found]()
    of_each = (table[name].to_pylist() for name in ("fingerprint", "severity", *LOG))
    for name, severity, *log in zip(*of_each, strict=True):
        out.setdefault(name, Found(run, severity, (*log,)))
    return out


def rows(shelf: Shelf, found: Mapping[str, Found]) -> list[Fields]:
    """The findings themselves, as their runs keep them and in their order; several may have one fingerprint."""
    out = []
    for run in {was.run.run_id: was.run for was in found.values()}.values():
        table = shelf.unaccepted(run, shelf.read(run, "findings"))
        names = [name for name, was in found.items() if was.run.run_id == run.run_id]
        out += table.filter(pc.is_in(table["fingerprint"], pa.array(names, pa.string()))).to_pylist()
    return out


def partly(earlier: Sequence[Run], run: Run) -> str:
    """Why a run does not answer for all that the runs of its group before it saw, in words; empty where it does."""
    return _partly([each.facts for each in earlier[-LATELY:]], run.facts)


def _partly(then: Sequence[Values], now: Values) -> str:
    if not now.get("complete", True):
        return "part of the input could not be read"
    lacks = sorted({name for each in then for name in _lacks(now, each)})
    return f"its input lacks {few(lacks)}, which an earlier run had" if lacks else ""


def unlooked(shelf: Shelf, run: Run, was: Found) -> str:
    """Why a run without a finding does not say that it is gone, in words; empty where it is.

    A log that is not there was deleted where the run knows that it has all; else it may not have been copied.
    """
    return unlooked_by(was.run.facts, run.facts, lambda: was.log in shelf.logs_less(was.run, run))


def unlooked_by(then: Values, now: Values, lacks_log: Callable[[], bool]) -> str:
    """The same by the facts of the two runs: ``complete``, ``brokers`` and ``all_logs``; ``lacks_log``: whether the
    log is among those of the run with the finding, and not among those of the other."""
    why = _partly([then], now)
    if why or now.get("all_logs") or not lacks_log():
        return why
    return "its input lacks the log, which an earlier run had"


def _since_whole(earlier: Sequence[Run], run: Run) -> Sequence[Run]:
    """The runs before back to the last one that saw whatever the run can have seen."""
    late = earlier[-LATELY:]
    whole = (at for at in reversed(range(len(late))) if not partly((run,), late[at]))
    return late[next(whole, 0) :]


def _lacks(now: Values, then: Values) -> list[str]:
    """What of the brokers that another run had is not in the input; nothing where an earlier release kept either."""
    mine, theirs = (each.get("brokers") for each in (now, then))
    if mine is None or theirs is None:
        return []
    less = [name for name, dirs in theirs.items() if mine.get(name, 0) < dirs]
    return [f"a log directory of {name}" if name in mine else name for name in less]
