"""``auditor live``: the same audit, options and outputs as ``auditor audit``, fed from a running cluster.

It sends read-only requests alone; remedies are printed, never executed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from auditor.base.errors import AuditInputError
from auditor.base.limits import MIB
from auditor.base.numbers import setting_number
from auditor.connectors.files import Copy, Inventory, LogDir, SegmentFile
from auditor.connectors.live_cluster import CONNECTION_OPTIONS, Budget, LiveCluster
from auditor.outputs import publish
from auditor.pipeline import audit
from auditor.pipeline.audit import Audit
from auditor.pipeline.context import brief
from auditor.pipeline.live_reading import Reading
from auditor.pipeline.live_tables import Tables
from auditor.replay.live_copy import NOWHERE
from auditor.rules.finding import Finding
from auditor.spark import kept_facts, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Rules on open transactions, which may only have been seen in motion.
MOVING = ("hanging-transaction", "missing-marker", "pending-offsets-blocked")
BY_THE_START = ("unknown-producer-first-sequence", "marker-without-transaction")  # infos on what lies before
NUMBERS = ("request_timeout_ms",)
DEFAULT_MAX_BYTES, DEFAULT_RATE = 1024 * MIB, 16 * MIB


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the console script's."""
    from auditor.cli import add_audit_options

    p = commands.add_parser("live", help="the same audit of a running cluster, by read-only requests")
    p.add_argument("--bootstrap-server", required=True, metavar="HOST:PORT[,...]", help="brokers to ask first")
    add_audit_options(p, paths=False)
    p.add_argument(
        "--from", dest="begin", default="lso", metavar="WHERE",
        help="where to read topics from: 'lso' (last stable offset: what is undecided), 'start' (all), or an offset",
    )  # fmt: skip
    p.add_argument("--max-bytes", type=int, default=DEFAULT_MAX_BYTES, metavar="BYTES", help="read no more than that")
    p.add_argument("--max-rate", type=int, default=DEFAULT_RATE, metavar="BYTES", help="bytes a second, at most")
    p.add_argument(
        "--client-config", type=Path, metavar="FILE",
        help="connection options as lines name=value; the place for secrets, which others see on a command line",
    )  # fmt: skip
    for name in CONNECTION_OPTIONS:
        if name not in ("client_id", "api_version"):
            p.add_argument(f"--{name.replace('_', '-')}", metavar="VALUE", help=f"kafka-python's {name}")
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command; returns its exit status."""
    from auditor.cli import Progress, audit_options, show

    options = audit_options(args, ())
    if options.as_of is None:
        options = dataclasses.replace(options, as_of=int(time.time() * 1000))
    if args.begin not in ("lso", "start") and setting_number(args.begin) is None:
        raise AuditInputError(f"--from {args.begin!r} is no place in a log; give lso, start, or an offset")
    if args.max_bytes < MIB or args.max_rate < 1024:
        raise AuditInputError("--max-bytes is at least 1048576 and --max-rate at least 1024")
    progress = Progress(args.quiet or not sys.stderr.isatty())
    with LiveCluster(args.bootstrap_server, connection(args)) as cluster:
        reading = Reading(cluster, options, Budget(args.max_bytes, args.max_rate), args.begin)
        result = audit_cluster(reading, progress.say)
    progress.done()
    if not args.quiet:
        show(result, args.format == "json")
    return result.exit_code()


def connection(args: argparse.Namespace) -> dict[str, Any]:
    """kafka-python's options from ``--client-config`` and, before it, the command line. Errors: AuditInputError."""
    config: dict[str, Any] = {}
    if args.client_config is not None:
        config = _client_config(args.client_config)
    config |= {n: v for n in CONNECTION_OPTIONS if (v := getattr(args, n, None)) is not None}
    for name in NUMBERS:
        if setting_number(str(config.get(name, 0))) is None:
            raise AuditInputError(f"{name} is a whole number of ms")
        if name in config:
            config[name] = int(config[name])
    if "ssl_check_hostname" in config:
        config["ssl_check_hostname"] = str(config["ssl_check_hostname"]).lower() not in ("false", "no", "0")
    return config


def _client_config(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise AuditInputError(f"cannot read {path}; --client-config takes a text file of lines name=value") from None
    pairs = [line.partition("=") for line in lines if line.strip() and not line.lstrip().startswith("#")]
    found = {name.strip(): value.strip() for name, _, value in pairs}
    if unknown := sorted(found.keys() - set(CONNECTION_OPTIONS)):
        raise AuditInputError(f"{path}: no option named {unknown[0]!r}; known: {', '.join(CONNECTION_OPTIONS)}")
    return found


def audit_cluster(reading: Reading, say: audit.Say, spark: SparkSession | None = None) -> Audit:
    """Reads, judges and publishes; the findings point at offsets, never at files. Errors: :class:`AuditInputError`."""
    options = reading.options
    wanted = audit.chosen_rules(options)
    publish.claim(options.out, Inventory((), (), (), (), ()))
    timings: dict[str, float] = {}
    began = time.monotonic()
    say("read the cluster")
    with Tables(options) as tables:
        reading.run(tables.watch)
    timings["read and replay"] = round(time.monotonic() - began, 3)
    if not reading.brokers:
        raise AuditInputError("the cluster does not tell its topics; check what this user may describe")
    say("start Spark")
    spark = spark or session.start(options.master)
    facts = kept_facts.frame(spark, [kept_facts.row(f) for f in reading.facts])
    result = Audit(
        dataclasses.replace(options, tables=False), inventory(reading), {reading.join_key: reading.settings}, [],
        briefs=[brief(f) for f in reading.facts], timings=timings,
    )  # fmt: skip
    audit.add_context(result)
    _set_bounds(result, reading)
    say("judge")
    audit.judge(result, spark, facts, wanted)
    _drop_infos_on_the_start(result, reading)
    ended = _confirm(result, reading)
    for finding in result.findings:
        finding.file = finding.position = None
    if ended:
        note = f"{ended} transactions that were open while the cluster was read have ended since"
        result.inventory = dataclasses.replace(result.inventory, notes=(*result.inventory.notes, note))
    say("publish")
    tables.publish(result, reading.facts, spark, facts)
    publish.publish(result, spark, facts)
    _add_to_summary(options.out / "summary.json", reading)
    return result


def inventory(reading: Reading) -> Inventory:
    """What was read, as if each broker were a log directory."""
    dirs = []
    for broker in reading.brokers:
        mine = [f for f in reading.facts if f.broker_id == broker]
        copies = tuple(
            Copy(f.log_dir, f.topic, f.partition, f.folder,
                 segments=(SegmentFile(f.segments[0], f.segment_bases[0], f.sums["bytes_total"]),))
            for f in mine
        )  # fmt: skip
        name = f"broker-{broker}"
        dirs.append(LogDir(name, NOWHERE, reading.join_key, reading.cluster_id, broker, "the cluster", copies=copies))
    return Inventory(tuple(dirs), (), (), (), tuple(reading.notes))


def _set_bounds(result: Audit, reading: Reading) -> None:
    """Logs begin where the brokers say, not where reading began: committed offsets are judged by that."""
    cluster = result.clusters.get(reading.join_key)
    if cluster is None:
        return
    for name, bounds in cluster.bounds.items():
        start, end = reading.ends.start.get(name, bounds.log_start), reading.ends.end.get(name, bounds.log_end)
        cluster.bounds[name] = bounds._replace(log_start=start, log_end=max(end, bounds.log_end))
    cluster.leaders = {log.name: log.leader for log in reading.logs if log.leader >= 0}


def _drop_infos_on_the_start(result: Audit, reading: Reading) -> None:
    """Where a log was not read from its start, that something began before is no news."""
    partly = {(f.topic, f.partition) for f in reading.facts if f.log_start > reading.begins(f)}
    result.findings = [
        f for f in result.findings
        if f.rule not in BY_THE_START or f.severity != "info" or (f.topic, f.partition) not in partly
    ]  # fmt: skip


def _confirm(result: Audit, reading: Reading) -> int:
    """Asks the leaders again about transactions that the findings have for open; drops those that have ended."""
    moving = [f for f in result.findings if f.rule in MOVING and f.offset is not None and f.producer_id is not None]
    leaders = {log.name: log.leader for log in reading.logs}
    ended: list[Finding] = []
    for finding in moving:
        assert finding.topic is not None
        assert finding.partition is not None
        name = (finding.topic, finding.partition)
        producers = reading.cluster.producers(leaders[name], [name]).get(name)
        still = producers is None or (finding.producer_id, finding.offset) in {
            (p.producer_id, p.txn_first_offset) for p in producers
        }
        if not still:
            ended.append(finding)
    result.findings = [f for f in result.findings if f not in ended]
    return len(ended)


def _add_to_summary(path: Path, reading: Reading) -> None:
    """What only a running cluster can tell, under ``live``."""
    summary = json.loads(path.read_text(encoding="utf-8"))
    ends = reading.ends
    summary["live"] = {
        "cluster_id": reading.cluster_id,
        "brokers": reading.brokers,
        "bytes_read": reading.budget.used,
        "from": reading.begin,
        "logs": [
            {
                "topic": log.topic, "partition": log.partition, "leader": log.leader,
                "leader_epoch": log.leader_epoch, "isr": list(log.isr), "log_start": ends.start.get(log.name),
                "last_stable_offset": ends.stable.get(log.name), "log_end": ends.end.get(log.name),
                "replicas": {str(b): list(bounds) for b, bounds in sorted(ends.replicas.get(log.name, {}).items())},
            }
            for log in reading.logs
        ],
    }  # fmt: skip
    publish.write_whole(path, json.dumps(summary, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
