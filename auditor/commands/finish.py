"""``auditor finish``: write the COMMIT marker that a coordinator skipped (KAFKA-20734), if all conditions hold.

The only command that can change a cluster. Without ``--write`` it only looks. It sends one request, once.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Self

from auditor.base.at_rest import Fields, Values
from auditor.base.errors import MIB, AuditInputError, require
from auditor.commands import live
from auditor.commands.arguments import examples, utf8_stdout
from auditor.dashboards.wording import short_fingerprint, visible
from auditor.outputs import delivery, printing
from auditor.pipeline import commit_marker
from auditor.pipeline.commit_marker import CommittedOpen, FinishCondition, LeaderNow, MarkerPlan
from auditor.pipeline.options import out_of

if TYPE_CHECKING:
    from auditor.connectors.live.live_cluster import Budget
    from auditor.connectors.live.marker_writer import MarkerCluster, MarkerRequest

DONE, REFUSED, NOT_SHOWN = 0, 1, 3  # exit codes; 2 is a usage error
POLL_S, WRITTEN = 1.0, "NoError"
RIGHT = "permission: ClusterAction, or Alter (3.8 and newer), on the cluster"
AGAIN = "It is not sent again: audit again first."
WORDS = {True: "holds", False: "FAILS", None: "unknown"}
RISK = (
    "The next transaction of this id has the same epoch as this marker. A request that arrives late would commit half "
    "of it: stop the application, and keep it stopped until this command ends."
)
STRICT = "This release refuses a marker that arrives late. Stop the application all the same until this command ends."


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the console script's."""
    p = commands.add_parser(
        "finish",
        help="write the missing COMMIT marker of a completed transaction",
        epilog=examples(
            "auditor finish 5a507cdcaf81 --out /tmp/audit --bootstrap-server kafka:9092",
            "auditor finish 5a507cdcaf81 --out /tmp/audit --bootstrap-server kafka:9092 --write",
        )
        + "\nFor a transaction that its coordinator completed as COMMIT, and that is open in a partition. Without "
        "--write it only looks.\nexit code: 0 if all conditions hold, or the marker is written and closed it; 1 if "
        "refused; 2 usage error; 3 if the cluster does not show enough",
    )
    p.add_argument("fingerprint", help="finding ID as the audit prints it, or its first digits")
    p.add_argument("-o", "--out", type=out_of, required=True, metavar="DIR|URI", help="output directory of the audit")
    p.add_argument("--bootstrap-server", required=True, metavar="HOST:PORT[,...]", help="bootstrap brokers")
    p.add_argument("--write", action="store_true", help="send the request, once, after a second look")
    p.add_argument("--confirm", metavar="PARTITION", help="with --write: the partition's name, instead of typing it")
    p.add_argument(
        "--application-stopped", action="store_true", help="with --write: confirm that the application is stopped"
    )
    p.add_argument("--wait", type=int, default=60, metavar="SECONDS", help="maximum time to wait for the marker")
    p.add_argument("--journal", type=Path, metavar="FILE", help="new file for what was seen, sent and answered")
    live.add_connection(p)
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    if not args.write and (args.confirm is not None or args.application_stopped or args.journal is not None):
        raise AuditInputError("--confirm, --application-stopped and --journal need --write: without it nothing is sent")
    if not 1 <= args.wait <= 3600:
        raise AuditInputError("invalid --wait: expected 1 to 3600 seconds")
    if args.max_bytes < MIB or args.max_rate < 1024:
        raise AuditInputError("invalid --max-bytes or --max-rate: expected at least 1048576 and 1024")
    results = delivery.read(args.out)
    row = printing.finding_by_fingerprint(results.findings, str(args.fingerprint))
    asked, command = commit_marker.committed_open(row, results.summary), commit_marker.abort_command(row)
    if asked is None or command is not None:
        why = "it is not about a committed transaction without its marker"
        if command is not None:
            why = "its transaction was not committed"
        refusal = f"Refused: finding {short_fingerprint(row)} ({row['kind']}): {why}.\n"
        if command is not None:
            refusal += f"Kafka's own tool ends it as ABORT, if the finding's conditions hold:\n  {visible(command)}\n"
        utf8_stdout().write(f"{refusal}For its steps run: auditor explain {short_fingerprint(row)} --out DIR\n")
        return REFUSED
    if args.write and (refused := _refused_at_once(args, asked)) is not None:
        utf8_stdout().write(f"Refused: {refused}. Nothing was sent.\n")
        return REFUSED
    require("kafka")
    from auditor.connectors.live.live_cluster import Budget
    from auditor.connectors.live.marker_writer import MarkerCluster

    with MarkerCluster(args.bootstrap_server, live.connection(args)) as cluster:
        return Finishing(args, row, asked, cluster, Budget(args.max_bytes, args.max_rate)).run()


def _refused_at_once(args: argparse.Namespace, asked: CommittedOpen) -> str | None:
    # Why the options of ``--write`` are refused before anything is asked; None if they are not.
    if not sys.stdin.isatty() and (args.confirm is None or not args.application_stopped):
        raise AuditInputError("--write needs --confirm PARTITION and --application-stopped without a terminal")
    if args.journal is not None and args.journal.exists():
        raise AuditInputError(f"journal {args.journal} exists; give a new --journal FILE")
    return None if args.confirm in (None, asked.name) else f"{args.confirm!r} is not {visible(asked.name)}"


class Finishing:
    """One call of the command: two looks, one request, and what became of it."""

    def __init__(
        self, args: argparse.Namespace, row: Values, asked: CommittedOpen, cluster: MarkerCluster, budget: Budget
    ) -> None:
        self.args, self.row, self.asked, self.cluster, self.budget = args, row, asked, cluster, budget
        self.out, self.name = utf8_stdout(), visible(asked.name)

    def run(self) -> int:
        """Look, and with ``--write`` write; return the exit code."""
        plan = self._look()
        self._print(plan)
        code = REFUSED if plan.refused else NOT_SHOWN if plan.unknown or plan.request is None else DONE
        if code or not self.args.write:
            return self._say(_result(plan, code), code)
        if (missing := self._confirmed()) is not None:
            return self._say(f"Refused: {missing}. Nothing was sent.", REFUSED)
        with FinishJournal(self.args.journal or _file(self.row)) as journal:
            journal.add("before", commit_marker.as_row(plan) | {"finding": self.row["fingerprint"]})
            return self._write(plan, journal)

    def _look(self, begin: int | None = None) -> MarkerPlan:
        return commit_marker.decide(self.asked, commit_marker.look(self.cluster, self.asked, self.budget, begin))

    def _say(self, words: str, code: int) -> int:
        self.out.write(f"{words}\n")
        return code

    def _print(self, plan: MarkerPlan) -> None:
        tid = visible(self.asked.transactional_id)
        self.out.write(f"COMMIT marker of {tid} in {self.name}, open since offset {self.asked.offset}\n")
        self.out.writelines(f"  {_line(condition)}\n" for condition in plan.conditions)
        if plan.request is not None:
            self.out.write(f"Request: {_words(plan.request)}\n")
        self.out.write(f"{RISK if plan.late_risk else STRICT}\n")

    def _confirmed(self) -> str | None:
        # Return what was not confirmed, None if all was.
        answers = ((self.args.confirm, f"Type {self.name} to write the marker", self.asked.name),
                   ("stopped" if self.args.application_stopped else None, "Is the application of "
                    f"{visible(self.asked.transactional_id)} stopped? Type stopped", "stopped"))  # fmt: skip
        for given, question, expected in answers:
            if given is None:
                self.out.write(f"{question}: ")
                self.out.flush()
                given = sys.stdin.readline().strip()
            if given != expected:
                return f"{given!r} is not {expected}"
        return None

    def _write(self, first: MarkerPlan, journal: FinishJournal) -> int:
        before = commit_marker.leader_now(self.cluster, self.asked)
        plan = self._look(first.begin)
        changes = first.changes(plan) or [_line(condition) for condition in (*plan.refused, *plan.unknown)]
        if changes or plan.request is None:
            journal.add("refused", commit_marker.as_row(plan) | {"changes": changes})
            words = "\n  ".join(["Refused: the second look differs. Nothing was sent.", *changes])
            return self._say(words, NOT_SHOWN if plan.unknown and not plan.refused else REFUSED)
        journal.add("request", commit_marker.as_row(plan))
        answer = self.cluster.send_once(plan.request)
        journal.add("answer", {"answer": answer})
        needs = f" ({RIGHT})" if "ClusterAuthorization" in answer else ""
        self._say(f"Sent once. Answer of broker {plan.request.broker}: {answer}{needs}", DONE)
        code, after = self._closed(before, answer)
        journal.add("after", after | {"exit_code": code})
        return self._say(f"{after['result']}\nJournal: {journal.path}", code)

    def _closed(self, before: LeaderNow | None, answer: str) -> tuple[int, Fields]:
        # Whatever the answer was: look until the producer has no open transaction, never send again.
        until, asked = time.monotonic() + self.args.wait, self.asked
        while (now := commit_marker.leader_now(self.cluster, asked)) is None or now.has_open(asked.producer_id):
            if time.monotonic() >= until:
                break
            time.sleep(POLL_S)
        if now is None:
            return NOT_SHOWN, {"result": f"Unknown whether it was written: no leader of {self.name} answers. {AGAIN}"}
        if now.has_open(asked.producer_id):
            return REFUSED, {"result": f"Not closed after {self.args.wait} s: {self.name} has it open. {AGAIN}"}
        marker = None
        if before is not None:
            marker = commit_marker.marker_between(self.cluster, now, before.end, asked.producer_id, self.budget)
        others = sorted((p.txn_first_offset, p.producer_id) for p in now.producers if p.txn_first_offset >= 0)
        holds = "; ".join(f"producer id {pid} from offset {first}" for first, pid in others[:5]) or "nothing"
        lso = f"Last stable offset {now.stable_offset}. Still open: {holds}."
        seen = {"last_stable_offset": now.stable_offset, "open": others, "marker": marker}
        if marker is None:
            code = DONE if answer == WRITTEN else NOT_SHOWN
            return code, seen | {"result": f"Closed; its marker was not read. {lso}"}
        if not marker[1]:
            return REFUSED, seen | {"result": f"Closed by an ABORT at offset {marker[0]}, not by this command. {lso}"}
        return DONE, seen | {"result": f"Closed by the COMMIT marker at offset {marker[0]}. {lso}"}


class FinishJournal:
    """A new file with a line of JSON for each step, each on disk before the next one. Errors:
    :class:`AuditInputError` for a file that is there, or cannot be made."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = path.open("x", encoding="utf-8")
            folder = os.open(path.absolute().parent, os.O_RDONLY)
        except OSError as error:
            raise AuditInputError(
                f"cannot create journal {path}: {error.strerror}; give a new --journal FILE"
            ) from None
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, step: str, row: Values) -> None:
        """Append a step and wait until it is on disk."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._file.write(json.dumps({"step": step, "time": now, **row}, default=str) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def _file(row: Values) -> Path:
    return Path(f"finish-{short_fingerprint(row)}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.jsonl")


def _line(condition: FinishCondition) -> str:
    return f"{WORDS[condition.holds]:<7}  {visible(condition.what)}: {visible(condition.value)} ({condition.source})"


def _words(request: MarkerRequest) -> str:
    of_version = f", transactionVersion {request.transaction_version}" if request.version >= 2 else ""
    return (
        f"WriteTxnMarkers version {request.version} to broker {request.broker}: {visible(request.topic)}-"
        f"{request.partition}, producerId {request.producer_id}, producerEpoch {request.producer_epoch}, "
        f"coordinatorEpoch {request.coordinator_epoch}, transactionResult true{of_version}"
    )


def _result(plan: MarkerPlan, code: int) -> str:
    if code == DONE:
        return "All conditions hold. Nothing was sent: --write sends the request."
    named = plan.refused if code == REFUSED else plan.unknown
    return f"{'Refused' if code == REFUSED else 'Not shown by the cluster'}: {'; '.join(c.what for c in named)}."
