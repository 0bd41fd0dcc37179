"""``auditor live``: the same audit, options and outputs as ``auditor audit``, fed from a running cluster.

It sends read-only requests alone; remedies are printed, never executed.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from auditor import running
from auditor.base.at_rest import Fields
from auditor.base.errors import MIB, AuditInputError, require, setting_number
from auditor.commands.arguments import WALL, add_audit_options, alerting, audit_options, examples, printing
from auditor.connectors.live import client_properties
from auditor.connectors.live.client_properties import CONNECTION_OPTIONS, MAX_BYTES, MAX_RATE
from auditor.outputs import alerts

if TYPE_CHECKING:
    from auditor.pipeline.live_audit import ClusterReading
    from auditor.pipeline.options import AuditOptions

NUMBERS = ("request_timeout_ms",)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the console script's."""
    p = commands.add_parser(
        "live",
        help="audit a running cluster with read-only requests",
        epilog=examples(
            "auditor live --bootstrap-server kafka:9092 --out /tmp/audit --command-config client.properties",
            "auditor live --bootstrap-server kafka:9092 --out /tmp/audit --topic payments --from start",
        ),
    )
    p.add_argument("--bootstrap-server", required=True, metavar="HOST:PORT[,...]", help="bootstrap brokers")
    add_audit_options(p, paths=False, clock=WALL)
    p.add_argument(
        "--from",
        dest="begin",
        default="lso",
        metavar="WHERE",
        help="where to start reading: 'lso' (last stable offset), 'start' (log start), or an offset",
    )
    add_connection(p)
    p.set_defaults(run=run)


def add_connection(p: argparse._ActionsContainer) -> None:
    """Add the options of the connection to a cluster."""
    p.add_argument("--max-bytes", type=int, default=MAX_BYTES, metavar="BYTES", help="maximum bytes to read")
    p.add_argument("--max-rate", type=int, default=MAX_RATE, metavar="BYTES", help="maximum bytes per second")
    files = p.add_mutually_exclusive_group()
    files.add_argument(
        "--command-config",
        type=Path,
        metavar="FILE",
        help="Java client properties file, as for Kafka's tools: security.protocol, sasl.jaas.config, ssl.* (PEM, "
        "PKCS12)",
    )
    files.add_argument(
        "--client-config",
        type=Path,
        metavar="FILE",
        help="file of name=value lines with kafka-python's option names (see below); keep secrets in files, not on the "
        "command line",
    )
    for name in CONNECTION_OPTIONS:
        if name not in ("client_id", "api_version"):
            p.add_argument(f"--{name.replace('_', '-')}", metavar="VALUE", help=f"kafka-python option {name}")


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    alerts.check(alerting(args))
    options = audit_options(args, ())
    if options.as_of is None:
        options = dataclasses.replace(options, as_of=int(time.time() * 1000))
    if args.begin not in ("lso", "start") and setting_number(args.begin) is None:
        raise AuditInputError(f"invalid --from {args.begin!r}: expected lso, start, or an offset")
    if args.since is not None and args.begin != "lso":
        raise AuditInputError("--since and --from both set where reading starts: give one")
    with opened(args, options, args.begin) as reading, running.runner(options) as runner:
        from auditor.pipeline.live_audit import LiveAudit

        return running.command(LiveAudit(reading, runner), printing(args), alerting(args))


@contextlib.contextmanager
def opened(
    args: argparse.Namespace, options: AuditOptions, begin: str, begins: Mapping[tuple[str, int], int] | None = None
) -> Iterator[ClusterReading]:
    """Connect to the cluster of a call and yield a reading of it.

    ``begin``: where logs are read from (``lso``, ``start`` or an offset); ``begins``: exceptions by topic and
    partition. Errors: :class:`AuditInputError`.
    """
    if args.max_bytes < MIB or args.max_rate < 1024:
        raise AuditInputError("invalid --max-bytes or --max-rate: expected at least 1048576 and 1024")
    require("kafka")
    from auditor.connectors.live.live_cluster import Budget, LiveCluster
    from auditor.pipeline.live_audit import ClusterReading

    with LiveCluster(args.bootstrap_server, connection(args)) as cluster:
        yield ClusterReading(cluster, options, Budget(args.max_bytes, args.max_rate), begin, begins or {})


def connection(args: argparse.Namespace) -> Fields:
    """Return kafka-python's options: those of ``--command-config`` or ``--client-config``, overridden by the command
    line.

    Errors: :class:`AuditInputError`.
    """
    config: Fields = {}
    if args.command_config is not None:
        config = client_properties.connection(args.command_config)
        for name in CONNECTION_OPTIONS:
            if name.startswith(("security", "ssl", "sasl")) and getattr(args, name, None) is not None:
                raise AuditInputError(f"--{name.replace('_', '-')} is set by the --command-config file: give one")
    if args.client_config is not None:
        config = _client_config(args.client_config)
    config |= {n: v for n in CONNECTION_OPTIONS if (v := getattr(args, n, None)) is not None}
    for name in NUMBERS:
        if setting_number(str(config.get(name, 0))) is None:
            raise AuditInputError(f"invalid {name}: expected a whole number of ms")
        if name in config:
            config[name] = int(config[name])
    if "ssl_check_hostname" in config:
        config["ssl_check_hostname"] = str(config["ssl_check_hostname"]).lower() not in ("false", "no", "0")
    return config


def _client_config(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise AuditInputError(f"cannot read {path}: --client-config expects a text file of name=value lines") from None
    pairs = [line.partition("=") for line in lines if line.strip() and not line.lstrip().startswith("#")]
    options = {name.strip(): value.strip() for name, _, value in pairs}
    if unknown := sorted(options.keys() - set(CONNECTION_OPTIONS)):
        raise AuditInputError(f"{path}: unknown option {unknown[0]!r}: expected one of {', '.join(CONNECTION_OPTIONS)}")
    return options
