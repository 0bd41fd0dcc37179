"""``auditor what-if``: the same history under each broker policy (semantics 2.6).

Who would have been refused, with which error, and what the producer state would have cost in memory. Writes
``what-if.json``, ``findings.jsonl``, ``findings/`` and ``tables/verdicts/`` below ``--out``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from auditor.base.errors import AuditInputError
from auditor.facts.policy_outcomes import BYTES_A_BATCH, BYTES_A_PRODUCER
from auditor.model.policies import AUTO, CHOICES, COMPARED, DRAFT, named
from auditor.outputs import publish
from auditor.pipeline import audit as auditing
from auditor.pipeline import plan, what_if_numbers, what_if_plan
from auditor.pipeline.options import AuditOptions, parse_time
from auditor.replay.copy_reader import CopyTask
from auditor.replay.text_copy import TextTask
from auditor.rules.capacity import Peak, broker_memory
from auditor.rules.finding import Finding, iso
from auditor.rules.resolve import resolve
from auditor.spark import scan, session, what_if_job

Row = dict[str, Any]


def add_parser(commands: Any) -> None:
    """Adds the command to the command line."""
    p = commands.add_parser("what-if", help="the same history under each broker policy: refusals, and memory")
    p.add_argument("paths", nargs="+", metavar="PATH", help="log directory, folder above some, partition folder, URI")
    p.add_argument("--out", type=Path, required=True, help="where results are written")
    names = [name for name in CHOICES if name != AUTO]
    p.add_argument("--policy", action="append", default=[], choices=names, help="only this policy (repeatable)")
    p.add_argument("--topic", action="append", default=[], metavar="GLOB", help="only these topics (repeatable)")
    p.add_argument("--as-of", metavar="TIME", help="clock of the audit: ISO-8601 or epoch ms")
    p.add_argument("--master", default="local[*]", metavar="URL", help="Spark master (default local[*])")
    p.add_argument("--format", default="table", choices=("table", "json"), help="what is printed")
    p.add_argument("--quiet", action="store_true", help="print nothing but errors")
    p.set_defaults(run=_command)


def _command(args: argparse.Namespace) -> int:
    as_of = parse_time(args.as_of) if args.as_of is not None else None
    options = AuditOptions(
        tuple(args.paths), args.out, fail_on="never", topics=tuple(args.topic), as_of=as_of, master=args.master
    )
    result, status = run(options, named(tuple(args.policy)))
    if not args.quiet and args.format == "json":
        sys.stdout.write(json.dumps(result, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    elif not args.quiet:
        show(result, sys.stdout)
        sys.stdout.write(f"\nwritten: {args.out / 'what-if.json'}\n")
    return status


def run(options: AuditOptions, policies: tuple[str, ...] = COMPARED, spark: Any = None) -> tuple[Row, int]:
    """Replays the input under the policies and writes the results; what-if.json's content and the exit status (0 or 3).

    The policies that the input itself worked under come along, to compare with. Errors: :class:`AuditInputError`.
    """
    audit = auditing.open_input(options)
    spark = spark or session.start(options.master)
    names = what_if_plan.compared(audit.inventory, audit.settings, options.policy, policies)
    tasks = plan.copy_tasks(audit.inventory, audit.settings, options)
    tasks = what_if_plan.with_policies(tasks, audit.inventory, audit.settings, options.policy, names)
    facts = scan.read_copies(spark, tasks)
    audit.briefs = scan.collect_briefs(facts)
    auditing.add_context(audit)
    judged = _judge(audit, spark, facts, tasks)
    facts.unpersist()
    audit.judged = {"log": judged["log"]}
    now = {choice.log_dir: choice.policy for choice in audit.choices}
    names = tuple(name for name in names if name in policies or name in now.values())
    verdicts = [v for v in judged["verdict"] if v["policy"] in names]
    result = {
        "as_of": iso(max([c.as_of for c in audit.clusters.values()], default=0)),
        "policy": [choice._asdict() for choice in audit.choices],
        "complete": not audit.incomplete(),
        "notes": _notes(sum(isinstance(task, TextTask) for task in tasks)),
        **what_if_numbers.numbers(judged["copy"], verdicts, names, now),
    }
    findings = [Finding(**row) for row in judged["finding"] if row["evidence"].get("policy", names[0]) in names]
    findings += [_memory(b) for b in result["brokers"] if DRAFT in b["policies"] and b["policy_now"] in b["policies"]]
    _publish(options.out, result, resolve(findings), verdicts)
    return result, 3 if audit.incomplete() else 0


def _judge(audit: auditing.Audit, spark: Any, facts: Any, tasks: list[CopyTask | TextTask]) -> dict[str, list[Row]]:
    """The second job, those copies read again first in which a producer's clock ran ahead of all brokers."""
    ahead = what_if_plan.ahead(tasks, audit.briefs, audit.clusters)
    if not ahead:
        return what_if_job.judge(spark, facts, audit.clusters)
    places = [(t.join_key, t.copy.log_dir, t.copy.topic or "", t.copy.partition or 0) for t in ahead]
    gone = spark.createDataFrame(places, "join_key string, log_dir string, topic string, partition int")
    again = scan.read_copies(spark, [*ahead])
    others = facts.join(gone, gone.columns, "left_anti")
    judged = what_if_job.judge(spark, others.unionByName(again), audit.clusters)
    again.unpersist()
    return judged


def _memory(broker: Row) -> Finding:
    """What the producers of one log directory cost as they are, and would cost with the draft."""
    now, drafted = (
        Peak(size["producers_peak"], size["bytes_peak"])
        for size in (broker["policies"][broker["policy_now"]], broker["policies"][DRAFT])
    )
    return broker_memory(broker["log_dir"], broker["broker_id"], now, drafted)


def _notes(text_folders: int) -> list[str]:
    notes = [
        "logs hold accepted batches only: what was really refused or retried is not seen, and neither are restarts",
        f"state sizes are estimates: {BYTES_A_PRODUCER} bytes a producer and {BYTES_A_BATCH} a cached batch",
    ]
    if text_folders:
        notes.append(f"{text_folders} folder(s) of text dumps are left out: they show no sizes and no settings")
    return notes


def _publish(out: Path, result: Row, findings: list[Finding], verdicts: list[Row]) -> None:
    folder = out / "tables" / "verdicts"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise AuditInputError(f"cannot write to {out}: {error.strerror}; choose another --out") from None
    verdicts.sort(key=lambda v: (v["policy"], v["topic"], v["partition"], v["base_offset"], v["producer_id"]))
    part = folder / "part-0.parquet.part"
    pq.write_table(pa.Table.from_pylist(verdicts, what_if_job.VERDICTS), part)
    os.replace(part, folder / "part-0.parquet")
    publish.write_whole(out / "findings.jsonl", "".join(f.to_json() + "\n" for f in findings))
    publish.write_findings(out / "findings", findings)
    text = json.dumps(result, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    publish.write_whole(out / "what-if.json", text)


def show(result: Row, out: TextIO) -> None:
    """The policies and the brokers' memory as tables for people."""
    rows = [("POLICY", "RUNS", "BATCHES", "PRODUCERS", "ANSWERS")]
    for p in result["policies"]:
        by_error: dict[str, int] = {}
        for e in p["errors"]:
            by_error[e["error"]] = by_error.get(e["error"], 0) + e["runs"]
        answers = ", ".join(f"{error} {runs}" for error, runs in sorted(by_error.items())) or "all as stored"
        rows.append((p["policy"], str(p["runs"]), str(p["batches"]), str(p["producers"]), answers))
    out.write("Stored batches that each policy would have answered otherwise:\n\n" + _table(rows))
    rows = [("BROKER", "POLICY", "PRODUCERS AT PEAK", "STATE AT PEAK", "STATE AT END")]
    for b in result["brokers"]:
        for name, size in b["policies"].items():
            mark = " (now)" if name == b["policy_now"] else ""
            sizes = (str(size["producers_peak"]), _kib(size["bytes_peak"]), _kib(size["bytes_end"]))
            rows.append((b["log_dir"], name + mark, *sizes))
    out.write("\nProducer state, estimated:\n\n" + _table(rows))


def _kib(size: int) -> str:
    return f"{size / 1024:.1f} KiB" if size < 1 << 20 else f"{size / 2**20:.1f} MiB"


def _table(rows: list[tuple[str, str, str, str, str]]) -> str:
    clean = [tuple("".join(c if c.isprintable() else "?" for c in cell) for cell in row) for row in rows]
    widths = [max(len(row[k]) for row in clean) for k in range(5)]
    return "".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() + "\n" for row in clean
    )
