"""The options that commands share: those of ``audit``, and how a run is started."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from auditor.base.at_rest import Fields
from auditor.base.errors import IN_ALL, OF_A_RULE
from auditor.base.user_input import since_of
from auditor.commands.parser import add_limits
from auditor.dashboards.output_formats import FORMATS
from auditor.dashboards.selection import LEAST, Printing, Selection
from auditor.model.policies import AUTO, CHOICES
from auditor.pipeline.options import DEFAULT_SPLIT_BYTES, LEVELS, AuditOptions, limits_of, out_of, parse_time

if TYPE_CHECKING:
    from auditor.outputs.alerts import Asked

CHANNELS = ("slack", "pagerduty", "webhook")  # of auditor.outputs.alerts
NEWEST, WALL = "the newest time a broker wrote", "the clock on the wall"


def add_master(p: argparse._ActionsContainer) -> None:
    """The option that says how to run."""
    p.add_argument(
        "--master",
        metavar="URL",
        help="Spark master (default local[*]); inline or inline[N]: without Spark, in N processes",
    )


def add_remote(p: argparse.ArgumentParser) -> None:
    """The option that says where the remote part of tiered topics is."""
    p.add_argument(
        "--remote",
        action="append",
        default=[],
        metavar="DIR",
        help="remote part of tiered topics, of LocalTieredStorage or Aiven's RemoteStorageManager (repeatable); found "
        "below a PATH too",
    )


def add_scope(g: argparse._ActionsContainer, clock: str = "records' times") -> None:
    """The options that say what is read."""
    g.add_argument("--topic", action="append", default=[], metavar="GLOB", help="read only these topics (repeatable)")
    g.add_argument(
        "--only-partition",
        action="append",
        default=[],
        metavar="GLOB",
        help="read only these partitions: TOPIC-N, or N of any topic (repeatable); internal topics always are read",
    )
    g.add_argument(
        "--only-broker",
        action="append",
        default=[],
        type=int,
        metavar="ID",
        help="read only the copies of this broker (repeatable)",
    )
    g.add_argument(
        "--since",
        metavar="OFFSET|TIME",
        help="read from the newest segment with a producer snapshot at or below this offset, or from the segment that "
        f"has this time (ISO-8601, by {clock}); what is held from before is named all the same",
    )


def scope_options(args: argparse.Namespace) -> Fields:
    """What :func:`add_scope` says, as :class:`AuditOptions` has it. Errors: :class:`AuditInputError`."""
    return {
        "topics": tuple(args.topic),
        "only_partitions": tuple(args.only_partition),
        "only_brokers": tuple(args.only_broker),
        "since": None if args.since is None else since_of(args.since),
    }


def add_audit_options(
    p: argparse.ArgumentParser,
    paths: bool = True,
    formats: Sequence[str] = FORMATS,
    clock: str = NEWEST,
    plan: bool = False,
) -> None:
    """The options of ``audit``; ``live`` has the same but for PATH, ``watch`` has fewer ``formats``; ``clock`` says in
    words which time a command goes by where none is given; ``plan``: it has ``--plan``, and needs no ``--out``."""
    if paths:
        p.add_argument(
            "paths", nargs="+", metavar="PATH", help="log directory, folder above some, partition folder, file, URI"
        )
        add_remote(p)
    _what_is_audited(p.add_argument_group("what is audited"), clock)
    _what_counts(p.add_argument_group("what counts"))
    _what_is_printed(p.add_argument_group("what is printed; results and exit status are of all"), formats, paths)
    _what_is_written(p.add_argument_group("what is written"), needs_out=not plan)
    how = p.add_argument_group("how it runs")
    if plan:
        how.add_argument(
            "--work",
            metavar="DIR|URI",
            help="keep there what was read of each partition: the next audit of the same input, after whatever ended "
            "this one, reads nothing twice; on a cluster a URI or a mount that all share",
        )
        how.add_argument(
            "--resume", action="store_true", help="go on in --work, which an earlier audit must have begun"
        )
        how.add_argument(
            "--plan",
            action="store_true",
            help="only say what would be read, in how many tasks, and about how long it takes; needs no --out",
        )
    _how_it_runs(how)


def _what_is_audited(g: argparse._ArgumentGroup, clock: str) -> None:
    add_scope(g)
    g.add_argument("--rule", action="append", default=[], metavar="ID", help="only this rule (repeatable)")
    g.add_argument("--skip-rule", action="append", default=[], metavar="ID", help="all but this rule (repeatable)")
    g.add_argument("--records", action="store_true", help="decode every record too (KIP-467 checks)")
    g.add_argument(
        "--policy",
        default=AUTO,
        choices=CHOICES,
        metavar="NAME",
        help=f"which brokers' rules the log was written under: {', '.join(CHOICES)} (default %(default)s)",
    )
    g.add_argument(
        "--as-of",
        metavar="TIME",
        help=f"clock that time-outs are judged by: ISO-8601, epoch ms or now (default: {clock})",
    )
    g.add_argument(
        "--at-once",
        action="store_true",
        help="every file is of one moment, as in a snapshot of the file system: nothing is put down to copying",
    )
    g.add_argument(
        "--whole",
        action="store_true",
        help="all log.dirs of each broker are in the input: a replica without a folder is lost, not left out",
    )


def _what_counts(g: argparse._ArgumentGroup) -> None:
    g.add_argument(
        "--fail-on",
        default="error",
        choices=LEVELS,
        metavar="SEVERITY",
        help=f"exit 1 at findings of this severity or above: {', '.join(LEVELS)} (default %(default)s)",
    )
    g.add_argument(
        "--fail-on-unsure",
        action="store_true",
        help="exit 1 also where a partition is held for longer than is normal, if it is held still, which is not known",
    )
    g.add_argument(
        "--baseline",
        type=Path,
        metavar="FILE",
        help="findings that are accepted: not printed, no alert, no failure ('auditor baseline' writes it)",
    )
    g.add_argument(
        "--alert",
        action="append",
        default=[],
        choices=CHANNELS,
        metavar="CHANNEL",
        help=f"send alerts: {', '.join(CHANNELS)} (repeatable); secrets are in the environment or in files",
    )
    g.add_argument(
        "--alert-on",
        default="error",
        choices=LEVELS[:-1],
        metavar="SEVERITY",
        help="alert at this severity or above (default %(default)s)",
    )
    g.add_argument(
        "--dashboard-url",
        metavar="URL",
        default="",
        help="where 'auditor dashboard --export' puts its pages: alerts link to each finding's own",
    )


def _what_is_printed(g: argparse._ArgumentGroup, formats: Sequence[str], bootstrap: bool) -> None:
    g.add_argument(
        "--format",
        default="table",
        choices=formats,
        metavar="FORMAT",
        help=f"{', '.join(formats)} (default %(default)s); but for table, people's words go to standard error",
    )
    g.add_argument(
        "--min-severity",
        choices=LEVELS[:-1],
        metavar="SEVERITY",
        help="only findings of this severity or above (default: warning for people, in tables and markdown; else all)",
    )
    g.add_argument(
        "--partition",
        action="append",
        default=[],
        metavar="GLOB",
        help="only of these partitions: TOPIC-N, or N of any topic (repeatable)",
    )
    g.add_argument(
        "--broker", action="append", default=[], type=int, metavar="ID", help="only of this broker (repeatable)"
    )
    g.add_argument(
        "--transactional-id", action="append", default=[], metavar="GLOB", help="only of these ids (repeatable)"
    )
    g.add_argument("--group", action="append", default=[], metavar="GLOB", help="only of these groups (repeatable)")
    if bootstrap:
        g.add_argument(
            "--bootstrap-server", metavar="H:P", help="put into the commands that remedies print (default B)"
        )
    g.add_argument("--verbose", action="store_true", help="every finding and every partition, not only their causes")
    g.add_argument("--quiet", action="store_true", help="nothing but errors")


def _what_is_written(g: argparse._ArgumentGroup, needs_out: bool) -> None:
    required = "required" if needs_out else "on a terminal by default a folder here, named after the time"
    g.add_argument(
        "--out",
        type=out_of,
        required=needs_out,
        metavar="DIR",
        help=f"where results are written: a folder or URI ({required})",
    )
    g.add_argument(
        "--max-findings",
        type=int,
        default=OF_A_RULE,
        metavar="N",
        help=f"of a rule in a partition (default {OF_A_RULE}; {IN_ALL} times as many in all), those beyond are summed",
    )
    g.add_argument("--tables", action="store_true", help="the decoded and derived tables as Parquet")
    g.add_argument("--include-payload", action="store_true", help="let record keys and values into the tables")
    g.add_argument("--expectations", action="store_true", help="run the great-expectations suites over the results")
    g.add_argument(
        "--history",
        type=out_of,
        metavar="DIR",
        help="keep this run's results under DIR, a folder or URI ('auditor history')",
    )
    g.add_argument(
        "--cluster-name",
        metavar="NAME",
        help="what people call the cluster (of several: [clusters] in auditor.toml, by their ids)",
    )
    g.set_defaults(clusters=())
    g.add_argument(
        "--run-id", metavar="ID", help="what the kept run is called (default: the time); a run of that id is replaced"
    )


def _how_it_runs(g: argparse._ArgumentGroup) -> None:
    add_master(g)
    g.add_argument(
        "--split-size",
        type=int,
        default=DEFAULT_SPLIT_BYTES,
        metavar="BYTES",
        help="tables: bytes of a segment that a task reads",
    )
    add_limits(g)


def printing(args: argparse.Namespace) -> Printing:
    """What is printed, and how."""
    least, asked = args.min_severity or LEAST, args.min_severity == LEAST
    shown = Selection(
        least, tuple(args.partition), tuple(args.broker), tuple(args.transactional_id), tuple(args.group), asked
    )
    return Printing(args.format, args.quiet, args.verbose, shown)


def alerting(args: argparse.Namespace) -> Asked:
    """Whom to alert, and of what."""
    from auditor.outputs.alerts import Asked  # only now: it brings all that an audit is made of

    return Asked(tuple(args.alert), args.alert_on, args.dashboard_url)


def audit_options(args: argparse.Namespace, paths: Sequence[str]) -> AuditOptions:
    """The options as checked data. Errors: :class:`AuditInputError`."""
    limits = limits_of(args.max_batch_bytes, args.max_batch_ratio)
    run_id = args.run_id
    if args.history is not None:
        from auditor.outputs import runs

        run_id = run_id or runs.new_run_id()
        runs.name_of(run_id)
    return AuditOptions(
        tuple(paths), args.out, args.policy, args.records, args.fail_on, tuple(args.rule), tuple(args.skip_rule),
        as_of=parse_time(args.as_of) if args.as_of is not None else None, master=args.master,
        split_size=args.split_size, limits=limits, tables=args.tables, expectations=args.expectations,
        include_payload=args.include_payload, history=args.history, run_id=run_id, max_findings=args.max_findings,
        bootstrap=getattr(args, "bootstrap_server", None), baseline=args.baseline,
        remote=tuple(getattr(args, "remote", ())), work=getattr(args, "work", None),
        resume=getattr(args, "resume", False), at_once=args.at_once, fail_on_unsure=args.fail_on_unsure,
        whole=args.whole, cluster_name=args.cluster_name, clusters=args.clusters, **scope_options(args),
    )  # fmt: skip
