"""``auditor rehearse``: what happens if a broker stops, and whether it would start again."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

from auditor import running
from auditor.base.at_rest import Fields
from auditor.base.errors import AuditInputError, require
from auditor.base.words import SEVERITIES, duration, few
from auditor.commands import live
from auditor.commands.arguments import add_remote, examples, utf8_stdout
from auditor.commands.dashboard import period
from auditor.model.policies import Version, parsed
from auditor.model.rehearsal import KILL, STOP, ClusterState, Risk, rehearse, rolling_order, waits
from auditor.pipeline.options import LEVELS, AuditOptions
from auditor.pipeline.rehearsal_table import NOT_WHOLE
from auditor.rules.seen.view import iso

LIVE_AGE_MS, FILES_AGE_MS = 120_000, 600_000
SAME = "same"  # the release that runs


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the console script's."""
    p = commands.add_parser(
        "rehearse",
        help="list what happens if a broker stops, and whether it would start again",
        epilog=examples(
            "auditor rehearse /copies --stop 2",
            "auditor rehearse /copies --stop 2 --killed --start 4.3",
            "auditor rehearse --bootstrap-server kafka:9092 --stop 2 --format json",
            "auditor rehearse --bootstrap-server kafka:9092 --rolling",
        )
        + "\nexit code: 1 with a risk at or above --fail-on, or an input older than --max-age; otherwise 0. 3 if part "
        "of the input could not be read (3 takes precedence)",
    )
    p.add_argument("paths", nargs="*", metavar="PATH", help="copies of all brokers, as for 'auditor audit'")
    p.add_argument("--bootstrap-server", metavar="HOST:PORT[,...]", help="ask a running cluster instead of a PATH")
    p.add_argument("--stop", type=int, metavar="BROKER", help="id of the broker that stops")
    p.add_argument("--killed", action="store_true", help="the broker is killed, without a controlled shutdown")
    p.add_argument(
        "--start",
        nargs="?",
        const=SAME,
        metavar="RELEASE",
        help="fail on an unknown start too; with RELEASE, such as 4.3: whether that release would start",
    )
    p.add_argument("--rolling", action="store_true", help="propose an order for restarting all brokers")
    p.add_argument(
        "--max-age",
        type=period,
        metavar="PERIOD",
        help="oldest input that counts, such as 10min, 2h or 1d (default 10min, of a running cluster 2min)",
    )
    p.add_argument(
        "--fail-on",
        default="error",
        choices=LEVELS,
        metavar="SEVERITY",
        help=f"exit 1 at risks of this severity or above: {', '.join(LEVELS)} (default %(default)s)",
    )
    p.add_argument("--format", default="table", choices=("table", "json"), metavar="FORMAT", help="table, json")
    p.add_argument("--all", action="store_true", help="list every risk, infos too")
    p.add_argument(
        "--master", default="inline", metavar="URL", help="inline, inline[N], or a Spark master (default %(default)s)"
    )
    add_remote(p)
    live.add_connection(p.add_argument_group("with --bootstrap-server"))
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    if bool(args.paths) == (args.bootstrap_server is not None):
        wrong = "PATH and --bootstrap-server are both given" if args.paths else "missing input"
        raise AuditInputError(f"{wrong}: give a PATH or --bootstrap-server H:P")
    if (args.stop is None) != args.rolling:
        wrong = "--stop and --rolling are both given" if args.rolling else "missing broker"
        raise AuditInputError(f"{wrong}: give --stop BROKER, or --rolling for an order of all brokers")
    release = None if args.start in (None, SAME) else parsed(args.start)
    if release is None and args.start not in (None, SAME):
        raise AuditInputError(f"invalid --start {args.start!r}: expected a release such as 4.3 (after all PATHs)")
    is_live = args.bootstrap_server is not None
    max_age = args.max_age or (LIVE_AGE_MS if is_live else FILES_AGE_MS)
    states, unread, rate = _live(args) if is_live else _files(args)
    cluster_id, state = _only(states, args.stop)
    answer = Rehearsal(args, cluster_id, state, release, max_age, rate)
    out = utf8_stdout()
    if args.format == "json":
        out.write(json.dumps(answer.row(), ensure_ascii=False, indent=1) + "\n")
    else:
        from auditor.dashboards.table_lines import rehearsal_lines

        out.writelines(rehearsal_lines(answer.row(), args.all))
    out.flush()
    return 3 if unread else answer.code()


States = dict[str | None, ClusterState]


def _files(args: argparse.Namespace) -> tuple[States, bool, float | None]:
    """Read the input: states by cluster, whether part of it could not be read, and bytes per second."""
    from auditor.pipeline.whole_audit import Audit

    options = AuditOptions(tuple(args.paths), Path(), remote=tuple(args.remote), master=args.master)
    with running.failures(), running.runner(options) as runner:
        audit = Audit(options, runner)
        states = audit.states
        running.warn_of_empty(audit)
        seconds = audit.timings.get("read and replay", 0.0)
        size = sum(log_dir.size for log_dir in audit.inventory.log_dirs)
        audit.close()
        unread = audit.incomplete() or any(NOT_WHOLE in state.unknown for state in states.values())
        return states, unread, size / seconds if seconds > 0 else None


def _live(args: argparse.Namespace) -> tuple[States, bool, None]:
    """Ask the cluster: its state, and whether a request was not answered."""
    require("kafka")
    from auditor.connectors.live.live_cluster import LiveCluster
    from auditor.pipeline.live_rehearsal import state_by_cluster

    with LiveCluster(args.bootstrap_server, live.connection(args)) as cluster:
        cluster_id, state = state_by_cluster(cluster, int(time.time() * 1000))
        for about, why in dict.fromkeys(cluster.failures):
            running.warn([f"not answered: {'' if about is None else f'{about[0]}-{about[1]}: '}{why}"])
        return {cluster_id: state}, bool(cluster.failures), None


def _only(states: States, broker: int | None) -> tuple[str | None, ClusterState]:
    """Return the one cluster that has the broker. Errors: :class:`AuditInputError`."""
    if len(states) != 1:
        raise AuditInputError(f"the input has {len(states)} clusters: give the PATHs of one")
    ((cluster_id, state),) = states.items()
    known = sorted({*state.brokers, *state.starts})
    if not known:
        raise AuditInputError(
            "the input shows no broker: give log directories, with __cluster_metadata if they have it"
        )
    if broker is not None and broker not in known:
        which = "brokers" if len(known) > 1 else "only broker"
        raise AuditInputError(f"invalid --stop {broker}: the input has {which} {few(known)}")
    return cluster_id, state


class Rehearsal:
    """The answer to one call, as the JSON output has it."""

    def __init__(
        self,
        args: argparse.Namespace, cluster_id: str | None, state: ClusterState, release: Version | None, max_age: int,
        rate: float | None,
    ) -> None:  # fmt: skip
        self.args, self.cluster_id, self.state, self.max_age, self.rate = args, cluster_id, state, max_age, rate
        self.release, self.how = release, KILL if args.killed else STOP
        self.age = int(time.time() * 1000) - state.time if state.time >= 0 else None
        brokers = [args.stop] if args.stop is not None else rolling_order(state)
        self.risks = {broker: self._risks(broker) for broker in brokers}

    def _risks(self, broker: int) -> list[Risk]:
        risks = rehearse(self.state, broker, self.how, self.release)
        if self.is_old:
            age = f"is {duration(self.age or 0)} old, more than {duration(self.max_age)}"
            age = "has no time" if self.age is None else age
            says = f"the input {age}: it does not show the cluster as it is"
            risks.append(Risk("input_too_old", says, severity="error"))
        if self.args.start is not None and broker not in self.state.starts:
            says = f"whether broker {broker} would start again is unknown: its files are not in the input"
            risks.append(Risk("unknown", says, known=False, severity="error"))
        return sorted(risks, key=lambda risk: risk.rank)

    @property
    def is_old(self) -> bool:
        """Whether the input is too old to show that a stop is without risk."""
        return self.age is None or self.age > self.max_age

    def code(self) -> int:
        """Return 1 if a risk is at or above ``--fail-on``, or the input is too old; otherwise 0."""
        level = self.args.fail_on
        failing = () if level == "never" else SEVERITIES[: SEVERITIES.index(level) + 1]
        old = self.is_old and level != "never"
        return int(old or any(risk.severity in failing for risks in self.risks.values() for risk in risks))

    def row(self) -> Fields:
        """Return the object of ``rehearsal.schema.json``."""
        about = {
            "format": 1,
            "cluster_id": self.cluster_id,
            "source": "files" if self.args.paths else "live",
            "how": self.how,
            "release": None if self.release is None else f"{self.release[0]}.{self.release[1]}",
            "input_at": iso(self.state.time) if self.state.time >= 0 else None,
            "input_age_ms": self.age,
            "max_age_ms": self.max_age,
            "too_old": self.is_old,
            "fails": self.code() == 1,
            "read_bytes_per_second": None if self.rate is None else int(self.rate),
        }
        rolling = (
            [{"broker_id": b, "wait_for": waits(self.state, b)} for b in self.risks] if self.args.rolling else None
        )
        brokers = [self._broker(broker, risks) for broker, risks in self.risks.items()]
        return about | {"brokers": brokers, "rolling": rolling}

    def _broker(self, broker: int, risks: Sequence[Risk]) -> Fields:
        counts = {name: sum(risk.severity == name for risk in risks) for name in SEVERITIES}
        start = self.state.starts.get(broker)
        seconds = None if start is None or self.how == STOP or not self.rate else round(start.bytes / self.rate, 1)
        rows = [risk._asdict() | {"isr": None if risk.isr is None else list(risk.isr)} for risk in risks]
        for row in rows:
            row["min_isr"] = row.pop("least")
        return {"broker_id": broker, "counts": counts, "recovery_seconds": seconds, "risks": rows}
