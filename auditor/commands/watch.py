"""``auditor watch``: the findings about a growing log directory, each once when it first holds and once when it ends.

A loop over the directory: copies whose files changed are read again on Spark, the facts of the others are kept, and all
logs are judged by the clock. The journal (:mod:`auditor.outputs.journal`) is what makes restarts and kills harmless:
a start reads everything once, and tells only what the journal does not have yet.
"""

from __future__ import annotations

import argparse
import dataclasses
import pickle
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from auditor.base.errors import AuditInputError
from auditor.outputs import publish, results
from auditor.outputs.journal import FOUND, Journal, key_of
from auditor.pipeline import audit, plan
from auditor.pipeline.audit import Audit
from auditor.pipeline.options import AuditOptions
from auditor.replay.copy_reader import CopyTask
from auditor.replay.text_copy import TextTask
from auditor.rules.finding import iso
from auditor.spark import kept_facts, scan, session
from auditor.spark.kept_facts import Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLOCK_S = 60.0  # how often all is judged anew while no byte changes: time passes too
Place = tuple[str, str, int]  # log_dir, topic, partition
NOT_FOR_WATCH = ("tables", "expectations", "history")


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the console script's."""
    from auditor.cli import add_audit_options

    p = commands.add_parser("watch", help="the same findings from a growing log directory, each once")
    add_audit_options(p)
    p.add_argument("--interval", type=float, default=2.0, metavar="SECONDS", help="pause between looks (default 2)")
    p.add_argument(
        "--until-idle", type=float, metavar="SECONDS", help="end when no file changed for so long (default: never)"
    )
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command; returns its exit status, which is that of an audit of what there is at the end."""
    from auditor.cli import audit_options

    for name in NOT_FOR_WATCH:
        if getattr(args, name):
            raise AuditInputError(f"--{name} is for single runs; run 'auditor audit' for it")
    if args.interval <= 0 or (args.until_idle is not None and args.until_idle < 0):
        raise AuditInputError("--interval is above 0 and --until-idle not below 0")
    options = audit_options(args, args.paths)
    say = _quiet if args.quiet else _say_json if args.format == "json" else _say
    wanted = audit.chosen_rules(options)
    publish.claim(options.out, audit.open_input(options).inventory)
    with Journal(options.out) as journal:
        watch = Watch(options, session.start(options.master), wanted, journal)
        return watch.until_idle(args.interval, args.until_idle, say)


def _say(line: dict[str, Any]) -> None:
    from auditor.dashboards.wording import visible

    where = "" if line["topic"] is None else f"  {visible(line['topic'])}-{line['partition']}"
    about = f": {visible(line['message'])}" if line["event"] == FOUND else ""
    sys.stdout.write(f"{line['at']}  {line['event']:8}  {line['severity']:8}  {line['rule']}{where}{about}\n")
    sys.stdout.flush()


def _say_json(line: dict[str, Any]) -> None:
    import json

    sys.stdout.write(json.dumps(line, ensure_ascii=True) + "\n")
    sys.stdout.flush()


def _quiet(line: dict[str, Any]) -> None:
    """Says nothing: the journal has it."""


@dataclass
class Kept:
    """The facts of one task's copies. ``again``: its files changed at the last look, so some may still be written."""

    signature: bytes
    rows: list[Row]
    again: bool


@dataclass
class Watch:
    """What is known of the directory between two looks. Memory: the facts of all copies."""

    options: AuditOptions
    spark: SparkSession
    wanted: list[str]
    journal: Journal
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    kept: dict[Place, Kept] = field(default_factory=dict)
    judged_at: float = 0.0
    last: Audit | None = None

    def until_idle(self, interval: float, idle: float | None, say: Callable[[dict[str, Any]], None]) -> int:
        """Looks again and again; returns when nothing has changed for ``idle`` seconds, with the status of an audit."""
        quiet_since = self.clock()
        while True:
            changed, told = self.look()
            for line in told:
                say(line)
            quiet_since = self.clock() if changed else quiet_since
            if idle is not None and self.clock() - quiet_since >= idle:
                assert self.last is not None
                return self.last.exit_code()
            self.sleep(interval)

    def look(self) -> tuple[bool, list[dict[str, Any]]]:
        """One look: whether files had changed, and the lines that were added to the journal."""
        now = self.clock()
        options = self.options
        if options.as_of is None:
            options = dataclasses.replace(options, as_of=int(now * 1000))
        found = audit.open_input(options)
        changed = self._read(plan.copy_tasks(found.inventory, found.settings, options))
        if not changed and self.last is not None and now - self.judged_at < CLOCK_S:
            return False, []
        self._judge(found)
        self.judged_at, self.last = now, found
        told = self.journal.update(iso(int(self.clock() * 1000)) or "", _holding(found))
        if told or changed:
            text = "".join(f.to_json() + "\n" for f in found.findings)
            publish.write_whole(options.out / "findings.jsonl", text)
        return changed, told

    def _read(self, tasks: list[CopyTask | TextTask]) -> bool:
        """Reads anew what changed, and once more what had changed at the look before; whether there was any."""
        now = {_place(task): task for task in tasks}
        gone = self.kept.keys() - now.keys()
        signatures = {place: pickle.dumps(task, 5) for place, task in now.items()}
        fresh = {p for p in now if p not in self.kept or self.kept[p].signature != signatures[p]}
        due = fresh | {p for p in now if p in self.kept and self.kept[p].again}
        for place in gone:
            del self.kept[place]
        if due:
            self._keep({p: Kept(signatures[p], [], p in fresh) for p in due}, [now[p] for p in sorted(due)])
        return bool(due or gone)

    def _keep(self, entries: dict[Place, Kept], tasks: list[CopyTask | TextTask]) -> None:
        facts = scan.read_copies(self.spark, tasks)
        for row in (Row(**row) for row in facts.toArrow().to_pylist()):
            place = (row.log_dir, row.topic, row.partition)
            entries[place if place in entries else (row.log_dir, "", -1)].rows.append(row)
        facts.unpersist()
        self.kept |= entries

    def _judge(self, found: Audit) -> None:
        rows = [row for place in sorted(self.kept) for row in self.kept[place].rows]
        briefs = [pickle.loads(row.brief) for row in rows]
        found.briefs = sorted(briefs, key=lambda b: (b.join_key, b.topic, b.partition, b.log_dir))
        audit.add_context(found)
        audit.judge(found, self.spark, kept_facts.frame(self.spark, rows), self.wanted)


def _place(task: CopyTask | TextTask) -> Place:
    if isinstance(task, TextTask):
        return (task.log_dir, "", -1)
    return (task.copy.log_dir, task.copy.topic or "", task.copy.partition or 0)


def _holding(found: Audit) -> dict[str, dict[str, Any]]:
    """The findings that hold, each with its cluster, by what makes it the same."""
    prints = results.findings(found).select(["fingerprint", "cluster_id"]).to_pylist()
    rows = ({**p, **f.to_dict()} for p, f in zip(prints, found.findings, strict=True))
    return {key_of(row["fingerprint"], row["severity"]): row for row in rows}
