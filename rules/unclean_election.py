"""The rule on elections of leaders that did not have to have everything, by what the controller decided."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from auditor.base.at_rest import Fields
from auditor.base.words import plural
from auditor.rules.catalogue.needs import Need
from auditor.rules.catalogue.registry import rule
from auditor.rules.catalogue.safeguards import CLEAN_ELECTION, IN_SYNC_REPLICAS
from auditor.rules.lib.lost_batches import left, lost_of, saved
from auditor.rules.lib.pairs import pairs as replica_pairs
from auditor.rules.replicas import FAMILY
from auditor.rules.seen.elections import Election
from auditor.rules.seen.finding import Finding
from auditor.rules.seen.view import LogView
from auditor.rules.settled.together import by_cause

WITHOUT = " without having been in sync "


def _one_start(f: Finding) -> Hashable:
    """The start of a broker that had led last, alone, and leads again: of all that it alone has at that moment."""
    alone = f.evidence.get("last_known_eligible_before") == [f.evidence.get("leader")]
    return (f.timestamp, f.evidence["leader"], f.message.partition(WITHOUT)[2]) if alone else None


def _elected(found: Sequence[Finding]) -> str:
    leader, how = found[0].evidence["leader"], found[0].message.partition(WITHOUT)[2]
    return f"Broker {leader} became leader of {plural(len(found), 'partition')}{WITHOUT}{how}"


@rule(
    "unclean-election",
    family=FAMILY,
    severities={
        "critical": "",
        "warning": "where the replicas show that nothing was lost",
        "info": "where nothing committed can be",
    },
    outcomes={"at_risk": ""},
    prevented_by=(CLEAN_ELECTION, IN_SYNC_REPLICAS),
    together=by_cause(_one_start, _elected),
    needs=(Need.ELECTIONS,),
)
def unclean_election(log: LogView) -> Iterator[Finding]:
    """A replica became leader that did not have to have everything

    Checks: by __cluster_metadata, a leader that was neither in sync nor eligible (ELR) in the record before, or that
    the controller marks as recovering. One that a reassignment brought in is none. Info where the leader is the only
    last known eligible replica: it led last, so only its own unflushed tail can be gone. Info, too, where the last
    leader's own copy of the metadata ends before the record that took the new leader out of the in-sync set: it had
    stopped by then, and until then could commit nothing without the new leader; what it had appended beyond that is
    named by replica-divergence.
    Why it matters: what only the replicas before had, acknowledged or not, is lost when they follow the new leader, and
    their offsets are given out again; consumers, groups and transactions refer to records that no longer exist.
    Can be wrong: the new leader may have had everything by chance: a warning where the replica of the leader before,
    which has not followed the new one yet, shows it. That the last leader had stopped is wrong where its metadata log
    was copied from it before the incident, and its data after it, or where its machine lost power: brokers do not force
    that log to the disk. In doubt where a majority of the voters is in the input and has not the record.
    What to do: before the old leader starts, keep its replica (its start cuts it), compare it with the new leader's
    (replica-divergence names the offsets, and which were not sent again) and produce again what is missed of these.
    Source: KIP-704, KIP-966; ReplicationControlManager, PartitionChangeBuilder
    """
    for election in log.cluster.elected(log.topic, log.partition):
        if not election.clean:
            yield _unclean(log, election)


def _in_sync(brokers: Sequence[int]) -> str:
    if not brokers:
        return "nobody was in sync"
    return f"in sync {'was' if len(brokers) == 1 else 'were'} {', '.join(map(str, brokers))}"


def _unclean(log: LogView, election: Election) -> Finding:
    pair = next((p for p in replica_pairs(log) if p.replica.broker_id == election.last_leader), None)
    begins = next((at for epoch, at in log.leader.leader_epochs if epoch >= election.leader_epoch), None)
    # Only a replica that has not followed the new leader yet can show what there was.
    as_it_was = pair if pair is not None and pair.replica.last_leader_epoch < election.leader_epoch else None
    lost = lost_of(log, as_it_was) if as_it_was is not None and as_it_was.forked_at >= 0 else None
    compared = None if as_it_was is None or as_it_was.undecided else as_it_was
    whole = compared is not None and lost is None and begins is not None and compared.replica.log_end <= begins
    severity, meaning = _harm(election, lost, whole=whole)
    return log.finding(
        "unclean-election",
        severity,
        f"Broker {election.leader} became leader of {log.name} with epoch {election.leader_epoch}{WITHOUT}"
        f"({_in_sync(election.isr_before)}): {meaning}",
        offset=begins,
        doubt=severity != "info" and log.cluster.may_be_uncommitted(election.offset),
        time_ms=election.time,
        evidence={
            "metadata_offset": election.offset,
            "isr_before": list(election.isr_before),
            "eligible_before": list(election.elr_before),
            "last_known_eligible_before": list(election.last_known_elr_before),
            "isr": list(election.isr),
            "leader_before": election.last_leader,
            "leader": election.leader,
            "leader_epoch": election.leader_epoch,
            "recovering": election.recovering,
            "left_sync_at_metadata_offset": election.left_sync,
            "in_sync_as_long_as_its_leader_ran": election.in_sync_to_the_end or None,
            "lost": lost,
        },
        advice=saved(log, as_it_was.replica, lost) if as_it_was is not None and lost else None,
    )


def _harm(election: Election, lost: Fields | None, *, whole: bool) -> tuple[str, str]:
    """How bad an unclean election was, and why: ``lost`` of the last leader's replica, ``whole``: it shows nothing."""
    again = lost is not None and lost["all_sent_again"]
    some = lost and not again and (left(lost) or f"offsets {lost['first_offset']} to {lost['last_offset']}")
    gone = some and f"{some} of broker {election.last_leader} are lost"
    if election.in_sync_to_the_end:
        what = (
            f"{gone}, none of them committed, so only producers with acks=0 or 1 count on them"
            if gone
            else "nothing that was committed is lost"
        )
        return "info", f"{what}: it was in sync as long as broker {election.last_leader} ran, unless that lost power"
    if gone:
        return "critical", gone
    if election.only_its_own_tail:
        return "info", "it had led last, alone, so only its own unflushed tail can be gone"
    if again:
        return "warning", f"the producers of what only broker {election.last_leader} has sent it again"
    if whole:
        return "warning", "the replica of the leader before it shows that nothing was lost"
    return "critical", "what only the replicas before it had is lost"
