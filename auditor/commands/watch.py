"""``auditor watch``: the findings about a growing log directory, each once when it first holds and once when it ends.

A loop over the directory: replicas whose files changed are read again, large ones from where the look before stood
(:mod:`auditor.replay.reading.replica_reader`), the facts of the others are kept, and all logs are judged by the clock.
The journal (:mod:`auditor.outputs.printing`) is what makes restarts and kills harmless: a start reads everything once,
and reports only what the journal does not have yet.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import pickle
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from auditor import running
from auditor.base.at_rest import Fields
from auditor.base.errors import AuditInputError
from auditor.commands.arguments import WALL, add_audit_options, alerting, audit_options, examples, printing
from auditor.outputs import alerts
from auditor.outputs.delivery import claimed, write_whole
from auditor.outputs.printing import FOUND, Journal, key_of
from auditor.pipeline import summary
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.runner import KeptFacts, Replicas, Runner
from auditor.pipeline.whole_audit import Audit
from auditor.replay.task import ReplicaTask, TextTask
from auditor.rules.seen.view import iso

CLOCK_S = 60.0  # how often all is judged again while no byte changes: time passes too
Place = tuple[str, str, int]  # log_dir, topic, partition
NOT_FOR_WATCH = ("tables", "expectations", "history")


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the console script's."""
    p = commands.add_parser(
        "watch",
        help="the same findings from a growing log directory, each once",
        epilog=examples(
            "auditor watch /var/kafka-logs --out /tmp/watch --min-severity error",
        ),
    )
    add_audit_options(p, formats=("table", "json"), clock=WALL)
    p.add_argument("--interval", type=float, default=2.0, metavar="SECONDS", help="pause between looks")
    p.add_argument(
        "--until-idle", type=float, metavar="SECONDS", help="end when no file changed for so long (default: never)"
    )
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command; returns its exit status, which is that of an audit of what there is at the end."""
    for name in NOT_FOR_WATCH:
        if getattr(args, name):
            raise AuditInputError(f"--{name} is for single runs; run 'auditor audit' for it")
    if args.interval <= 0 or (args.until_idle is not None and args.until_idle < 0):
        raise AuditInputError("--interval is above 0 and --until-idle not below 0")
    asked = alerting(args)
    alerts.check(asked)
    if not isinstance(out := args.out, Path):
        raise AuditInputError("watch writes as it goes; give it an --out on this machine")
    options = audit_options(args, args.paths)
    say = _quiet if args.quiet else _say_json if args.format == "json" else _say
    shown = printing(args).selection  # what matches nothing yet may come

    def report(look: WatchRound) -> None:
        for line in filter(shown.shows, look.lines):
            say(line)
        if asked.channels and look.lines:
            news = alerts.news_of_watch(look.lines, look.holding, look.audit, asked)
            running.warn(alerts.send(news, asked.channels, again=False))

    with running.failures() as trace_in, running.runner(options) as runner:
        first = Audit(options, runner)
        _ = first.kinds, first.baseline
        with claimed(out, first.spared()):
            trace_in.append(out)
            watch = Watch(options, runner, Journal(out))
            status = watch.until_idle(args.interval, args.until_idle, report)
            if watch.last is not None:
                running.warn_of_empty(watch.last)
            return status


def _say(line: Fields) -> None:
    from auditor.dashboards.wording import visible

    where = "" if line["topic"] is None else f"  {visible(line['topic'])}-{line['partition']}"
    about = f": {visible(line['message'])}" if line["event"] == FOUND else ""
    sys.stdout.write(f"{line['at']}  {line['event']:8}  {line['severity']:8}  {line['rule']}{where}{about}\n")
    sys.stdout.flush()


def _say_json(line: Fields) -> None:
    import json

    sys.stdout.write(json.dumps(line, ensure_ascii=True) + "\n")
    sys.stdout.flush()


def _quiet(line: Fields) -> None:
    """Says nothing: the journal has it."""


@dataclass
class TaskFacts:
    """The facts of one task's replicas. ``again``: its files changed at the last look, so some may still be written."""

    signature: bytes
    rows: list[KeptFacts]
    again: bool


class LookedAt(Audit):
    """The audit of one look: the facts of what did not change are those of the looks before."""

    def __init__(self, options: AuditOptions, runner: Runner, rows: Callable[[], list[KeptFacts]]) -> None:
        super().__init__(options, runner)
        self._rows_now = rows

    @cached_property
    def replicas(self) -> Replicas:
        """All facts, new and old."""
        return self.runner.keep(self._rows_now())


@dataclass
class WatchRound:
    """What one look brought: whether files had changed, the lines that the journal got, and all that holds by key."""

    audit: Audit
    changed: bool
    lines: list[Fields] = field(default_factory=list)
    holding: dict[str, Fields] = field(default_factory=dict)


@dataclass
class Watch:
    """What is known of the directory between two looks. Memory: the facts of all replicas, and of each large one what
    its batches came to, 64 MiB at most."""

    options: AuditOptions
    runner: Runner
    journal: Journal
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    kept: dict[Place, TaskFacts] = field(default_factory=dict)
    judged_at: float = 0.0
    last: Audit | None = None

    def until_idle(self, interval: float, idle: float | None, report: Callable[[WatchRound], None]) -> int:
        """Looks again and again; returns when nothing has changed for ``idle`` seconds, with the status of an audit."""
        quiet_since = self.clock()
        while True:
            look = self.look()
            report(look)
            quiet_since = self.clock() if look.changed else quiet_since
            if idle is not None and self.clock() - quiet_since >= idle:
                assert self.last is not None
                return self.last.exit_code()
            self.sleep(interval)

    def look(self) -> WatchRound:
        """One look at the directory."""
        now = self.clock()
        options = self.options
        if options.as_of is None:
            options = dataclasses.replace(options, as_of=int(now * 1000))
        audit = LookedAt(options, self.runner, self._rows)
        changed = self._read(audit)
        if not changed and self.last is not None and now - self.judged_at < CLOCK_S:
            return WatchRound(audit, False)
        with contextlib.closing(audit):
            holding = _holding(audit)
            # What could not be read may still have what was found there.
            open_still = dict(self.journal.open) if audit.incomplete() else {}
        self.judged_at, self.last = now, audit
        lines = self.journal.update(iso(int(self.clock() * 1000)) or "", open_still | holding)
        if lines or changed:
            text = "".join(f.to_json() + "\n" for f in audit.findings)
            write_whole(Path(options.out) / "findings.jsonl", text)
        return WatchRound(audit, changed, lines, holding)

    def _read(self, audit: Audit) -> bool:
        """Reads again what changed, and once more what had changed at the look before; whether there was any."""
        now = {_place(task): task for task in audit.tasks}
        gone = self.kept.keys() - now.keys()
        signatures = {place: pickle.dumps(task, 5) for place, task in now.items()}
        fresh = {p for p in now if p not in self.kept or self.kept[p].signature != signatures[p]}
        due = fresh | {p for p in now if p in self.kept and self.kept[p].again}
        for place in gone:
            del self.kept[place]
        if due:
            tasks = [self._going_on(place, now[place]) for place in sorted(due)]
            self._keep({p: TaskFacts(signatures[p], [], p in fresh) for p in due}, tasks)
        return bool(due or gone)

    def _going_on(self, place: Place, task: ReplicaTask | TextTask) -> ReplicaTask | TextTask:
        """The task, to be read from where the last reading left off."""
        if isinstance(task, TextTask):
            return task
        point = self.kept[place].rows[0].resume_point if place in self.kept and self.kept[place].rows else b""
        return dataclasses.replace(task, leaves_resume_point=True, resume_point=point)

    def _keep(self, entries: dict[Place, TaskFacts], tasks: list[ReplicaTask | TextTask]) -> None:
        with contextlib.closing(self.runner.read(tasks)) as facts:
            for row in facts.rows():
                place = (row.log_dir, row.topic, row.partition)
                entries[place if place in entries else (row.log_dir, "", -1)].rows.append(row)
        self.kept |= entries

    def _rows(self) -> list[KeptFacts]:
        return [row for place in sorted(self.kept) for row in self.kept[place].rows]


def _place(task: ReplicaTask | TextTask) -> Place:
    if isinstance(task, TextTask):
        return (task.log_dir, "", -1)
    return (task.replica.log_dir, task.replica.topic or "", task.replica.partition or 0)


def _holding(audit: Audit) -> dict[str, Fields]:
    """The findings that hold and no baseline accepts, each with its cluster, by what makes it the same."""
    clusters = summary.findings(audit).column("cluster_id").to_pylist()
    open_now = zip(clusters, audit.findings, audit.accepted.accepted, strict=True)
    rows = ({"cluster_id": cluster, **f.to_dict()} for cluster, f, entry in open_now if entry is None)
    return {key_of(row["fingerprint"], row["severity"]): row for row in rows}
