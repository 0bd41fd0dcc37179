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
from auditor.base.numbers import setting_number
from auditor.model.policies import POLICIES
from auditor.outputs import publish
from auditor.pipeline import audit as auditing
from auditor.pipeline import plan, what_if_numbers
from auditor.pipeline.cluster_settings import ClusterSettings
from auditor.pipeline.options import AuditOptions, parse_time
from auditor.pipeline.what_if_numbers import DRAFT
from auditor.replay.copy_reader import CopyTask
from auditor.replay.policy_kernel import NEVER
from auditor.replay.policy_replay import Settings
from auditor.rules.capacity import Peak, broker_memory
from auditor.rules.finding import Finding, iso
from auditor.rules.resolve import resolve
from auditor.spark import scan, session, what_if_job

DEFAULT_POLICIES = ("pre-kip-360", "kip-360", "kip-890-p1", "kip-890-p2", DRAFT)
RETENTION_MS = {"log.retention.ms": 1, "log.retention.minutes": 60_000, "log.retention.hours": 3_600_000}
WEEK_MS = 7 * 86_400_000
CHECK_MS = 600_000
Row = dict[str, Any]


def add_parser(commands: Any) -> None:
    """Adds the command to the command line."""
    p = commands.add_parser("what-if", help="the same history under each broker policy: refusals, and memory")
    p.add_argument("paths", nargs="+", metavar="PATH", help="log directory, folder above some, partition folder, URI")
    p.add_argument("--out", type=Path, required=True, help="where results are written")
    names = sorted({*POLICIES, "kip-890"})
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
    result, status = run(options, wanted(args.policy))
    if not args.quiet and args.format == "json":
        sys.stdout.write(json.dumps(result, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    elif not args.quiet:
        show(result, sys.stdout)
        sys.stdout.write(f"\nwritten: {args.out / 'what-if.json'}\n")
    return status


def wanted(names: list[str]) -> tuple[str, ...]:
    """The policies asked for, each once; ``kip-890`` stands for both its parts, none for all that matter."""
    if not names:
        return DEFAULT_POLICIES
    parts = [part for name in names for part in (("kip-890-p1", "kip-890-p2") if name == "kip-890" else (name,))]
    return tuple(dict.fromkeys(parts))


def run(options: AuditOptions, policies: tuple[str, ...] = DEFAULT_POLICIES, spark: Any = None) -> tuple[Row, int]:
    """Replays the input under the policies and writes the results; what-if.json's content and the exit status (0 or 3).

    The policies that the input itself worked under come along, to compare with. Errors: :class:`AuditInputError`.
    """
    audit = auditing.open_input(options)
    spark = spark or session.start(options.master)
    tasks = plan.copy_tasks(audit.inventory, audit.settings, options)
    facts = scan.read_copies(spark, tasks)
    audit.briefs = scan.collect_briefs(facts)
    auditing.add_context(audit)
    now = {choice.log_dir: choice.policy for choice in audit.choices}
    names = tuple(dict.fromkeys([*policies, *sorted(set(now.values()) & set(POLICIES))]))
    files = [task for task in tasks if isinstance(task, CopyTask)]
    worlds = what_if_job.read_worlds(spark, files, lambda task: _settings(audit, task), names)
    judged = what_if_job.judge(spark, facts, worlds, audit.clusters)
    facts.unpersist()
    audit.judged = {"log": judged["log"]}
    result = {
        "as_of": iso(max([c.as_of for c in audit.clusters.values()], default=0)),
        "policy": [choice._asdict() for choice in audit.choices],
        "complete": not audit.incomplete(),
        "notes": _notes(len(tasks) - len(files)),
        **what_if_numbers.numbers(judged["copy"], judged["verdict"], names, now),
    }
    findings = [Finding(**row) for row in judged["finding"]]
    findings += [_memory(b) for b in result["brokers"] if DRAFT in b["policies"] and b["policy_now"] in b["policies"]]
    _publish(options.out, result, resolve(findings), judged["verdict"])
    return result, 3 if audit.incomplete() else 0


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
        "state sizes are estimates: 224 bytes a producer and 40 a cached batch",
    ]
    if text_folders:
        notes.append(f"{text_folders} folder(s) of text dumps are left out: they show no sizes and no settings")
    return notes


def _settings(audit: auditing.Audit, task: CopyTask) -> Settings:
    """What the input says of expiry and retention where the copy lies."""
    known = audit.settings.get(task.join_key, ClusterSettings())
    cluster = audit.clusters[task.join_key]

    def number(*names: str, bits: int = 64) -> int | None:
        values = (known.topic_setting(task.copy.topic or "", name, task.broker_id) for name in names)
        return next((known for v in values if (known := setting_number(v, least=-1, bits=bits)) is not None), None)

    retention = number("retention.ms")
    for name, unit in RETENTION_MS.items():
        if retention is None and (value := number(name, bits=64 if unit == 1 else 32)) is not None:
            retention = value * unit
    size = number("retention.bytes", "log.retention.bytes")
    check = number("producer.id.expiration.check.interval.ms", bits=32)
    return Settings(
        number(*plan.EXPIRATION_NAMES, bits=32),
        CHECK_MS if check is None else check,
        WEEK_MS if retention is None else retention,
        -1 if size is None else size,
        cluster.newest_time if cluster.newest_time >= 0 else NEVER,
    )


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
