"""``auditor watch``: report the findings of a growing log directory, each once when it appears and once when it is
resolved.

Replicas whose files changed are read again, large ones from where the last round ended
(:mod:`auditor.replay.reading.replica_reader`). The facts of the others are reused, and all logs are judged at the
current time. The journal (:mod:`auditor.outputs.printing`) makes restarts and kills harmless: a restart reads
everything, with ``--work`` large replicas from their kept resume points on, and reports only what the journal lacks.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import json
import pickle
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from pathlib import Path

from auditor import running
from auditor.base.at_rest import Fields
from auditor.base.errors import AuditInputError
from auditor.commands.arguments import WALL, add_audit_options, add_work, alerting, audit_options, examples, printing
from auditor.connectors.stores import results
from auditor.dashboards.wording import visible
from auditor.facts.replica_facts import LogName, log_of
from auditor.outputs import alerts
from auditor.outputs.delivery import claimed
from auditor.outputs.printing import FOUND, Journal, key_of
from auditor.pipeline import summary
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.runner import PackedFacts, Pair, Replicas, Runner, pack, pairs_of
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
        help="audit a growing log directory; print each finding once",
        epilog=examples("auditor watch /var/kafka-logs --out /tmp/watch --min-severity error"),
    )
    add_audit_options(p, formats=("table", "json"), clock=WALL)
    add_work(p)
    p.add_argument("--interval", type=float, default=2.0, metavar="SECONDS", help="pause between rounds")
    p.add_argument(
        "--until-idle", type=float, metavar="SECONDS", help="exit when no file changed for this long (default: never)"
    )
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit code, that of an audit of the last state."""
    for name in NOT_FOR_WATCH:
        if getattr(args, name):
            raise AuditInputError(f"--{name} is not available in watch; run 'auditor audit'")
    if args.interval <= 0 or (args.until_idle is not None and args.until_idle < 0):
        raise AuditInputError("invalid --interval or --until-idle: expected above 0, and at least 0")
    asked = alerting(args)
    alerts.check(asked)
    if not isinstance(out := args.out, Path):
        raise AuditInputError("invalid --out: watch needs a directory on this host")
    options = audit_options(args, args.paths)
    say = _say_json if args.format == "json" else _say
    shown = printing(args).selection  # not checked: what matches nothing now may match later

    def report(look: WatchRound) -> None:
        for line in () if args.quiet else filter(shown.shows, look.lines):
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
    where = "" if line["topic"] is None else f"  {visible(line['topic'])}-{line['partition']}"
    about = f": {visible(line['message'])}" if line["event"] == FOUND else ""
    sys.stdout.write(f"{line['at']}  {line['event']:8}  {line['severity']:8}  {line['rule']}{where}{about}\n")
    sys.stdout.flush()


def _say_json(line: Fields) -> None:
    sys.stdout.write(json.dumps(line, ensure_ascii=True) + "\n")
    sys.stdout.flush()


@dataclass
class TaskFacts:
    """The facts of one task's replicas. ``again``: its files changed in the last round, so writes may still be under
    way."""

    signature: bytes
    replicas: list[tuple[LogName, PackedFacts]]
    again: bool
    resume_point: bytes = b""


class LookedAt(Audit):
    """The audit of one round, with the facts of unchanged replicas reused."""

    def __init__(self, options: AuditOptions, runner: Runner, pairs: Callable[[], Iterator[Pair]]) -> None:
        super().__init__(options, runner)
        self._pairs_now = pairs

    @cached_property
    def replicas(self) -> Replicas:
        """All facts, new and reused."""
        return self.runner.keep(self._pairs_now)


@dataclass
class WatchRound:
    """One round: whether files changed, the lines added to the journal, and all open findings by key."""

    audit: Audit
    changed: bool
    lines: list[Fields] = field(default_factory=list)
    holding: dict[str, Fields] = field(default_factory=dict)


@dataclass
class Watch:
    """The state between two rounds. Memory: the facts of all replicas, and at most 64 MiB of replay state per large
    one."""

    options: AuditOptions
    runner: Runner
    journal: Journal
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    kept: dict[Place, TaskFacts] = field(default_factory=dict)
    judged_at: float = 0.0
    last: Audit | None = None

    def until_idle(self, interval: float, idle: float | None, report: Callable[[WatchRound], None]) -> int:
        """Repeat rounds until nothing has changed for ``idle`` seconds; return the exit code of an audit. ``interval``:
        pause in seconds."""
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
        """Run one round."""
        now = self.clock()
        options = self.options
        if options.as_of is None:
            options = dataclasses.replace(options, as_of=int(now * 1000))
        audit = LookedAt(options, self.runner, self._pairs)
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
            results.folder(options.out).put_text("findings.jsonl", text)
        return WatchRound(audit, changed, lines, holding)

    def _read(self, audit: Audit) -> bool:
        # A file that changed in this round is read once more in the next: its times may hide a later write.
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
        if isinstance(task, TextTask):
            return task
        point = self.kept[place].resume_point if place in self.kept else b""
        return dataclasses.replace(task, leaves_resume_point=True, resume_point=point)

    def _keep(self, entries: dict[Place, TaskFacts], tasks: list[ReplicaTask | TextTask]) -> None:
        with contextlib.closing(self.runner.read(tasks)) as replicas:
            for brief, facts in replicas.pairs():
                place = (facts.log_dir, facts.topic, facts.partition)
                entry = entries[place if place in entries else (facts.log_dir, "", -1)]
                entry.resume_point, facts.resume_point = facts.resume_point, b""
                entry.replicas.append((log_of(facts), pack([(brief, facts)])))
        self.kept |= entries

    def _pairs(self) -> Iterator[Pair]:
        """The facts of all replicas, log by log."""
        packed = sorted((one for entry in self.kept.values() for one in entry.replicas), key=itemgetter(0))
        return itertools.chain.from_iterable(pairs_of(one) for _, one in packed)


def _place(task: ReplicaTask | TextTask) -> Place:
    if isinstance(task, TextTask):
        return (task.log_dir, "", -1)
    return (task.replica.log_dir, task.replica.topic or "", task.replica.partition or 0)


def _holding(audit: Audit) -> dict[str, Fields]:
    clusters = summary.findings(audit).column("cluster_id").to_pylist()
    open_now = zip(clusters, audit.findings, audit.accepted.accepted, strict=True)
    rows = ({"cluster_id": cluster, **f.to_dict()} for cluster, f, entry in open_now if entry is None)
    return {key_of(row["fingerprint"], row["severity"]): row for row in rows}
