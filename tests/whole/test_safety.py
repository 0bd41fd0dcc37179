"""What is said to be safe: the same on every surface, and nothing that loses what was promised."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from auditor.dashboards import answers, report
from auditor.dashboards.answers import report_of
from auditor.facts.replica_facts import ReplicaFacts
from auditor.outputs.publish import run_report
from auditor.pipeline.options import parse_time
from auditor.pipeline.whole_audit import Audit
from auditor.rules.catalogue import registry
from auditor.rules.lib import repairs
from auditor.rules.seen.cluster_view import Cluster
from auditor.rules.seen.view import Finding
from tests import corpora
from tests.blocked_states import ASK, COMMIT, FIND, KEEP, LET, SAFE, WAIT, verdict_of
from tests.coordinator_records import Coordinator
from tests.facts import log_of, opened
from tests.forge import Lab
from tests.made import facts

BUSY, PARTITION = "bank-busy", "bank.audit-1"
DAY_MS = 86_400_000
ABORT = "kafka-transactions.sh --bootstrap-server B abort"


def about(audit: Audit) -> list[Finding]:
    return [f for f in audit.findings if ABORT in f.remedy]


class ChangedCoordinator:
    """A young transaction of the corpus whose coordinator is made to say something else."""

    def __init__(self, root: Path) -> None:
        self.lab = Lab(root, "hanging-36", PARTITION)
        (row,) = opened(self.lab.root, as_of=self.lab.as_of).blocked
        self.since, self.timeout = parse_time(row["since"]), int(row["timeout_ms"])
        self.producer = (int(row["producer_id"]), int(row["producer_epoch"]))
        self.coordinator = Coordinator(self.lab.broker(), 1)
        self.time = self.lab.as_of

    def then(self, state: str) -> None:
        self.time += 1_000
        names = () if state.startswith("Complete") else (PARTITION,)
        start = {} if state.startswith("Complete") else {"start": self.since}
        self.coordinator.state(BUSY, state, self.producer, self.time, *names, timeout=self.timeout, **start)

    def audit(self, minutes: int = 60) -> Audit:
        self.coordinator.save()
        (self.lab.broker() / ".kafka_cleanshutdown").touch()
        return opened(self.lab.root, as_of=self.time + minutes * 60_000)


@pytest.mark.parametrize(
    ("states", "minutes", "verdict"),
    [
        ((), 0, WAIT),
        ((), 60, FIND),
        (("PrepareCommit",), 60, KEEP),
        (("PrepareAbort",), 60, LET),
        (("PrepareCommit", "CompleteCommit"), 60, COMMIT),
    ],
)
def test_no_abort_of_what_its_coordinator_has_open_or_decided_to_commit(
    tmp_path: Path, states: tuple[str, ...], minutes: int, verdict: tuple[str, str]
) -> None:
    changed = ChangedCoordinator(tmp_path)
    for state in states:
        changed.then(state)
    audit = changed.audit(minutes)
    (row,) = audit.blocked
    assert verdict_of(row) == verdict
    assert not about(audit)


def test_a_commit_without_a_replica_to_restore_from_is_finished(tmp_path: Path) -> None:
    changed = ChangedCoordinator(tmp_path)
    changed.then("PrepareCommit")
    changed.then("CompleteCommit")
    (found,) = [f for f in changed.audit().findings if f.severity == "critical"]
    assert f"Stop the application of {BUSY}. Use auditor finish ID" in found.remedy


@pytest.mark.parametrize(("owner", "finishes"), [("ulna-c", True), ("ulna-fine", False)])
def test_finish_is_advised_only_where_it_does_not_refuse(owner: str, finishes: bool) -> None:
    """By the manifest ulna-fine began another transaction after the commit that lost its marker; ulna-c did not. Finish
    refuses the first (docs/finish.md)."""
    found = opened(corpora.unpack("skipped-marker-43")).findings
    (advice,) = (f.remedy for f in found if f.transactional_id == owner and f.severity == "critical")
    assert ("Use auditor finish" in advice) == finishes
    assert (f"auditor finish, which refuses: {owner} has begun another transaction since" in advice) != finishes
    order = ["Check:", "describe-producers", "Continue only if", f"Stop the application of {owner}", "producerId"]
    order = [f"Stop the application of {owner}", "auditor finish"] if finishes else order
    # Producer id and epoch after the commit in the manifest: transaction.version 2 writes the marker with that epoch.
    assert ("producerId 0, producerEpoch 2, coordinatorEpoch" in advice) != finishes
    assert [advice.index(words) for words in order] == sorted(advice.index(words) for words in order)


def test_indexes_are_rebuilt_only_where_the_start_cuts_nothing() -> None:
    """Without its .index a segment is recovered, which cuts it at its first broken batch (LogSegment.recover)."""
    found = opened(corpora.unpack("altered-41")).findings
    advised = [f for f in found if f.kind in ("index-mismatch", "aborted-transaction-not-indexed") and f.remedy]
    assert advised
    for finding in advised:
        assert "the start would truncate the log there" in finding.remedy
        assert "delete" not in finding.remedy
        conditions = finding.advice.conditions if finding.advice else ()
        assert finding.advice is None or finding.advice.acts == all(each.holds or each.command for each in conditions)


def test_a_lost_commit_is_recognised_by_records_that_carry_the_times_of_events(tmp_path: Path) -> None:
    """Streams and backfills stamp records with times long before their transaction began."""
    changed = ChangedCoordinator(tmp_path)
    log = changed.lab.log(PARTITION)
    for batch in log.data(*changed.producer):
        batch.set(base_time=batch["base_time"] - DAY_MS, max_time=batch["max_time"] - DAY_MS)
    log.save()
    changed.then("PrepareCommit")
    changed.then("CompleteCommit")
    audit = changed.audit()
    (row,) = audit.blocked
    assert verdict_of(row) in (KEEP, COMMIT)
    assert not about(audit)


def test_a_decided_abort_without_its_marker_stays_to_be_aborted(tmp_path: Path) -> None:
    changed = ChangedCoordinator(tmp_path)
    changed.then("PrepareAbort")
    changed.then("CompleteAbort")
    audit = changed.audit()
    assert verdict_of(audit.blocked[0]) == SAFE
    assert [f.partition for f in about(audit)] == [1]
    assert "records of an already aborted transaction" in about(audit)[0].remedy


def test_late_data_behind_its_marker_is_to_be_aborted() -> None:
    truth = corpora.manifest("hanging-36")
    audit = opened(corpora.unpack("hanging-36"), as_of=truth["copied_at"])
    places = {(row["topic"], row["partition"], row["firstOffset"]) for row in truth["expect"]}
    assert {(f.topic, f.partition, f.offset) for f in about(audit)} == places
    for row in audit.blocked:
        assert row["standing"] == "waiting" or row["advice"]["verdict"] == "safe_to_abort"


def test_without_the_coordinators_log_nobody_is_said_to_be_unknown(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "hanging-36", "bank.ledger-0")
    for path in lab.broker().glob("__transaction_state-*"):
        shutil.rmtree(path)
    audit = opened(lab.root, as_of=lab.as_of + 3_600_000)
    assert verdict_of(audit.blocked[0]) == ASK
    assert not about(audit)
    assert not [f for f in audit.findings if "nobody knows" in f.message]


def replica(broker: int) -> ReplicaFacts:
    return facts(broker_id=broker, folder="t-0")


@pytest.mark.parametrize(("in_sync", "moves"), [((1,), False), ((), False), ((1, 2), True)])
def test_a_folder_is_moved_away_only_where_another_replica_has_it(in_sync: tuple[int, ...], moves: bool) -> None:
    cluster = Cluster(as_of=0, newest_time=0, has_metadata=True, in_sync={("t", 0): in_sync})
    mine = replica(1)
    advice = repairs.refetch(log_of([mine], cluster), mine)
    assert any("stop broker 1, move t-0 away" in step.do for step in advice.steps) == moves
    assert advice.verdict == ("act" if moves else "investigate_first")
    assert not moves or advice.checks[0].expect == "the Isr of t-0 lists broker 2"


def test_the_only_replica_is_never_to_be_rebuilt(tmp_path: Path) -> None:
    """A damage that a fetched replica would heal, in a partition of replication factor 1."""
    lab = Lab(tmp_path, "hanging-36", "bank.ledger-0")
    log = lab.log("bank.ledger-0")
    log.all()[3].set(leader_epoch=7)
    log.save()
    found = [f for f in lab.findings() if f.kind == "leader-epoch-mismatch"]
    assert found
    assert all(
        f.remedy.startswith("Investigate first: no other replica is known to have the data of bank.ledger-0")
        for f in found
    )


@pytest.mark.parametrize(("wrong", "verdict", "says"), [
    ("sequence", "none", "continues with a new epoch"),
    ("txn_first_offset", "investigate_first", "a start without a snapshot loses all producer state"),
])  # fmt: skip
def test_no_start_as_after_a_crash_is_asked_for(tmp_path: Path, wrong: str, verdict: str, says: str) -> None:
    """Without a snapshot a clean start forgets all producers; one as after a crash recovers every log (LogLoader), and
    under ELR takes the broker out of all its partitions. For one sequence nothing is stopped."""
    lab = Lab(tmp_path, "hanging-36", PARTITION)
    log = lab.log(PARTITION)
    ((offset, (known, *_)),) = log.snapshots.items()
    log.snapshots[offset] = [known._replace(**{wrong: known.sequence + 7 if wrong == "sequence" else known.offset})]
    log.save()
    (found,) = [f for f in lab.findings() if f.kind == "snapshot-replay-mismatch"]
    assert found.advice is not None
    assert found.advice.verdict == verdict
    assert says in found.remedy
    assert not found.advice.acts
    assert ".kafka_cleanshutdown" not in found.remedy


@pytest.mark.parametrize(
    ("in_sync", "says"),
    [
        ((1,), ""),
        ((1, 2, 3), "no replica of broker 2 and 3 has the marker (in the ISR, but not in the input: audit them first)"),
    ],
)
def test_replicas_that_were_not_audited_are_asked_first(tmp_path: Path, in_sync: tuple[int, ...], says: str) -> None:
    changed = ChangedCoordinator(tmp_path)
    changed.then("PrepareCommit")
    changed.then("CompleteCommit")
    audit = changed.audit()
    for cluster in audit.clusters.values():
        cluster.in_sync["bank.audit", 1] = in_sync
    (found,) = [f for f in audit.findings if f.severity == "critical"]
    assert "WriteTxnMarkers" in found.remedy
    assert ("audit them first" in found.remedy) == bool(says)
    assert says in found.remedy


def test_no_marker_is_to_be_written_by_hand_where_the_input_may_lack_it(tmp_path: Path) -> None:
    """The coordinator has completed what this copy of a running broker shows as open: the copy may be older."""
    changed = ChangedCoordinator(tmp_path)
    changed.then("PrepareCommit")
    changed.then("CompleteCommit")
    changed.coordinator.save()
    changed.lab.is_live()
    audit = opened(changed.lab.root, as_of=changed.time)
    (row,) = audit.blocked
    assert verdict_of(row) == KEEP
    assert not about(audit)
    assert not [f for f in audit.findings if "WriteTxnMarkers" in f.remedy]
    assert "may exist already" in row["remedy"]


@pytest.mark.parametrize("days", [0, 26])
def test_a_two_phase_commit_is_not_said_to_end_by_itself(days: int) -> None:
    """Its coordinator never ends it (KIP-939): the corpus has such transactions of a 4.3 broker, two days old. What
    stands for no time-out, 2147483647, is 24.86 days in ms."""
    audit = opened(corpora.unpack("twopc-43"), as_of=corpora.manifest("twopc-43")["as_of"] + days * DAY_MS)
    assert "timeout-not-enforced" not in {f.kind for f in audit.findings}
    rows, summary = registry.described(f.to_dict() for f in audit.findings), run_report(audit).summary
    page = report.render_report(report_of(rows, summary), audit.judged["open"], audit.judged["timeline"])
    assert "it ends by itself" not in page
    assert "only its application can end it" in page
    assert ">open<" in page  # its status
    assert "transaction.timeout.ms</code></h3>" not in page
    held = [row for row in audit.blocked if row["timeout_ms"] == 2**31 - 1]
    assert held
    for row in held:
        assert row["advice"]["verdict"] == "notify_owner"
        assert row["advice"]["why"].startswith("a two-phase commit has no timeout")
        assert "Do not abort it with kafka-transactions.sh" in row["remedy"]
        assert ABORT not in row["remedy"]
        assert answers.standing_text(answers.Open(row)).startswith("no timeout")


@pytest.mark.parametrize(("protocol", "by_producer"), [("2.3", True), ("3.6", False), (None, True)])
def test_brokers_that_may_be_below_3_0_are_given_the_form_that_these_take_too(
    protocol: str | None, by_producer: bool, tmp_path: Path
) -> None:
    """Kafka's TransactionsCommand: --start-offset from brokers of 3.0 on, the producer's numbers for older ones."""
    shutil.copytree(corpora.unpack("hanging-011"), tmp_path / "in")
    if protocol:
        for properties in (tmp_path / "in").rglob("server*.properties"):
            kept = [line for line in properties.read_text().splitlines() if "protocol.version" not in line]
            properties.write_text("\n".join([*kept, f"inter.broker.protocol.version={protocol}", ""]))
    for meta in (tmp_path / "in").rglob("meta.properties"):  # one without cluster.id shows a broker of 0.11
        meta.write_text(meta.read_text() + "cluster.id=abcdefghijklmnopqrstuv\n")
    remedies = [f.remedy for f in opened(tmp_path / "in").findings if f.kind == "hanging-transaction"]
    assert len(remedies) == 4
    for remedy in remedies:
        assert f"{ABORT} --topic" in remedy
        assert "describe-producers" in remedy
        assert "--start-offset" in remedy
        assert ("--producer-id" in remedy and "--coordinator-epoch 0" in remedy) == by_producer
