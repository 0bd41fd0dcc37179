"""One gate for what stops a broker, or moves a folder of its away: what must be so before, by what the metadata shows.

It shows that as of its copy, so each advice that passes has what is to be seen now beside it. Each says what the stop
puts at risk, too: :func:`at_risk`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from auditor.base.advice import Act, Advice, Condition, Look, Moves, Verdict, may_be_flinks
from auditor.base.numbers import setting_number
from auditor.base.words import few, plural
from auditor.facts.replica_facts import ReplicaFacts
from auditor.model.policies import SKIPS_MARKERS
from auditor.rules.lib import commands
from auditor.rules.seen.cluster_view import METADATA_TOPIC, MIN_IN_SYNC, UNCLEAN, Cluster
from auditor.rules.seen.elections import Alone
from auditor.rules.seen.view import LogView

NAMED, ASKED = 5, 3  # partitions or ids in a sentence, and ids that a command each asks for
AUDIT_AFTERWARDS = "audit again after the start in any case: a transaction that ended during the stop may hang"
ELR, KRAFT = "eligible.leader.replicas.version", "kraft.version"
BY_METADATA, NOT_BY_METADATA = METADATA_TOPIC, f"no {METADATA_TOPIC} in the input says it"
VOTE = (
    f"a folder of {METADATA_TOPIC} holds quorum-state, the vote of its node, and one that forgets how it voted may "
    "elect a second leader"
)


def stop(cluster: Cluster, broker: int | None) -> tuple[Condition, ...]:
    """What must be so before a broker is stopped: while it is down, nobody who lacks what it has can be elected, and
    the quorum goes on. A partition without other replicas, and a quorum of one, wait for it, and lose nothing."""
    alone = sorted(cluster.alone_in_sync.get(-1 if broker is None else broker, []))
    known = cluster.has_metadata and broker is not None
    by = f"{few(alone)}" if alone else BY_METADATA if known else NOT_BY_METADATA
    others = Condition(
        f"no partition that has other replicas is in sync on broker {broker} alone, with none of them eligible to lead",
        not alone if known else None,
        by,
    )
    found = [others]
    if alone:
        found.append(_elected_cleanly(cluster, alone))
    if broker in cluster.voters and len(cluster.voters) > 1:
        left = len(cluster.voters) - 1 > len(cluster.voters) // 2
        found.append(Condition(f"a majority of the quorum's voters is left without broker {broker}", left, BY_METADATA))
    return tuple(found)


def _elected_cleanly(cluster: Cluster, names: Collection[str]) -> Condition:
    """That nobody who lacks records is elected for partitions that are in sync on one broker alone."""
    values = {name: effective(cluster, name.rpartition("-")[0], UNCLEAN, "false") for name in names}
    unclean = [name for name, value in values.items() if value == "true"]
    unknown = [name for name, value in values.items() if value not in ("true", "false")]
    holds = False if unclean else None if unknown else True
    by = f"{UNCLEAN}=true for {few(unclean)}" if unclean else f"unknown for {few(unknown)}" if unknown else BY_METADATA
    return Condition("no replica that lacks records may be elected for these meanwhile", holds, by)


def effective(cluster: Cluster, topic: str, name: str, default: str) -> str | None:
    """A setting of a topic: its own, its brokers', or Kafka's default where it is known that nobody set it."""
    own = cluster.setting(topic, name)
    if own is not None:
        return own
    found = {cluster.broker_setting(broker, name) for broker in (*cluster.of_files, None)}
    if len(found - {None}) == 1:
        return next(iter(found - {None}))
    return default if not found - {None} and cluster.of_files and cluster.has_metadata else None


def moved(log: LogView, broker: int | None) -> tuple[Condition, ...]:
    """What must be so, too, before a broker's replica of a partition is moved away: that it may not lead before it has
    been fetched. With eligible leader replicas (KIP-966) a broker that leaves fewer in sync than
    ``min.insync.replicas`` stays eligible, and its empty log could be elected."""
    cluster, place = log.cluster, (log.topic, log.partition)
    if cluster.levels.get(ELR, 0) < 1:
        return ()
    least = setting_number(effective(cluster, log.topic, MIN_IN_SYNC, "1"))
    in_sync = set(cluster.in_sync.get(place, ())) - set(cluster.eligible.get(place, ())) - {broker}
    what = f"without broker {broker} enough replicas of {log.name} stay in sync, so that its empty one may not lead"
    if least is None:
        return (Condition(what, None, f"{MIN_IN_SYNC} is not in the input, and {ELR} is 1"),)
    enough = len(in_sync) >= least and broker not in cluster.eligible.get(place, ())
    return (Condition(what, enough, f"{len(in_sync)} of {MIN_IN_SYNC}={least}, and {ELR} is 1"),)


def gated(cluster: Cluster, broker: int | None, advice: Advice, *more: Condition) -> Advice:
    """An advice that has a broker stopped: its acts stay where all that must be so is known to be, and it says who has
    to wait meanwhile. Where a replica that lacks records would be elected, the broker must not be stopped."""
    conditions = (*more, *stop(cluster, broker))
    advice = at_risk(cluster, broker, advice)
    look = (seen_all_in_sync(), *((_seen_quorum(cluster, broker),) if _votes(cluster, broker) else ()))
    asked = replace(advice, look=(*advice.look, *look)).unless(*conditions)
    asked = replace(asked, cost="; ".join(filter(None, (asked.cost, waits(cluster, broker)))))
    if asked.act or not advice.act:
        return asked
    lossy = any(c.holds is False and c.what.startswith("no replica that lacks") for c in conditions)
    acts = " ; ".join(act.command for act in advice.act)
    then = f"only once that is so: {acts}{f'. {_begun(advice.then)}' if advice.then else ''}"
    # What it would move counts, so that no other finding's advice fetches from there.
    return replace(asked, verdict=Verdict.DO_NOT_ACT if lossy else asked.verdict, then=then, moves=advice.moves)


def at_risk(cluster: Cluster, broker: int | None, advice: Advice, *, but: str = "") -> Advice:
    """An advice that stops or restarts a broker, with what that puts at risk: the partitions without another in-sync
    replica, and the transactional ids with data there. Brokers with KAFKA-20734 complete a transaction that ends
    meanwhile without its marker, so that these ids' transactions end before the stop. ``broker``: None for one that the
    input does not tell; ``but``: the id that the advice is about, which does not end before."""
    alone = cluster.alone.get(broker, Alone()) if cluster.has_metadata and broker is not None else None
    which = "the broker" if broker is None else f"broker {broker}"
    if alone is not None and not alone.names:
        safe = Condition(f"no partition of {which} is without another in-sync replica", True, BY_METADATA)
        look = Look(commands.describe_topics(), f"it shows no partition with Isr: {broker} alone")
        return replace(advice, conditions=(*advice.conditions, safe), look=(*advice.look, look))
    ids = _ids_there(cluster, alone, but)
    if alone is None:
        cost = f"which partitions {which} has without another in-sync replica is not in the input"
        seen = (
            f"you know the partitions that it shows with the Isr of {which} alone, and have seen to them as said below"
        )
    else:
        cost = f"while {which} is down, {_without_leader(alone.names)}; {_whose(cluster, ids)}"
        seen = f"it shows Isr: {broker} alone for no other partition than {some(alone.names)}"
    look = Look(commands.describe_topics(), seen)
    acts = _ended_before(ids) if _may_skip_markers(cluster) else ()
    afterwards = AUDIT_AFTERWARDS if acts else ""
    asked = replace(advice, cost="; ".join(filter(None, (advice.cost, cost))), look=(*advice.look, look))
    if advice.act:
        return replace(asked, act=(*acts, *advice.act), then="; ".join(filter(None, (advice.then, afterwards))))
    before = " ; ".join(act.command for act in acts)
    then = (advice.then, f"before {which} is stopped: {before}" if before else "", afterwards)
    return replace(asked, then=". ".join(_begun(part) for part in then if part))


def _begun(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def _without_leader(names: Collection[str]) -> str:
    count = len(names)
    has = "has" if count == 1 else "have"
    return f"{plural(count, 'partition')} without another in-sync replica {has} no leader: {some(names)}"


class Ids(NamedTuple):
    """How many transactional ids, and the first of them."""

    total: int
    first: list[str]

    def __str__(self) -> str:
        return some(self.first, self.total)


def _ids_there(cluster: Cluster, alone: Alone | None, but: str) -> Ids | None:
    """The transactional ids with data in partitions that wait for one broker; None where nothing shows them."""
    history = cluster.coordinator
    return None if alone is None or history is None else Ids(*history.ids_in(alone.names, alone.producers, but))


def _whose(cluster: Cluster, ids: Ids | None) -> str:
    """Which transactional ids have data there, in words."""
    if ids is None:
        return "which transactional ids have data there is not in the input"
    whole = cluster.coordinator is not None and cluster.coordinator.covered()
    so_far = "" if whole else " (not all of __transaction_state is in the input)"
    if not ids.total:
        return f"no transactional id is known to have data there{so_far}"
    return f"{plural(ids.total, 'transactional id')} with data there: {ids}{so_far}"


def _may_skip_markers(cluster: Cluster) -> bool:
    """Whether a coordinator may run a release with KAFKA-20734. The input seldom shows which release it is."""
    return not cluster.releases or any(shown.may_have(SKIPS_MARKERS) for shown in cluster.releases.values())


def _ended_before(ids: Ids | None) -> tuple[Act, ...]:
    """The steps before such a stop, so that no transaction ends while its partition has no leader."""
    named = ids.first if ids is not None else []
    whose = str(ids) if named else "every transactional id with data in these partitions"
    releases = SKIPS_MARKERS.releases.replace(" and ", " or ")
    job = (
        "; if this is Flink: stop the job with a savepoint, which commits them"
        if any(map(may_be_flinks, named))
        else ""
    )
    shown = [Act(commands.describe_id(name)) for name in named[:ASKED]]
    rest = [Act(commands.list_ids())] if ids is None or not named or ids.total > ASKED else []
    return (
        Act(
            f"where brokers run {releases} ({SKIPS_MARKERS.issue}), first end the transactions of {whose}, then stop "
            "their producers: a producer that stops with a transaction open leaves one that hangs, since it times out "
            f"while its partition has no leader{job}"
        ),
        Act("stop the broker only when these commands show each of them Empty, CompleteCommit or CompleteAbort"),
        *shown,
        *rest,
    )


def some(names: Collection[str], count: int | None = None) -> str:
    """The first few of some names, and how many more there are; ``count``: of all, where there are more than given."""
    every = len(names) if count is None else count
    more = f" and {every - NAMED:,} more" if every > NAMED else ""
    return ", ".join([*names][:NAMED]) + more


def waits(cluster: Cluster, broker: int | None) -> str:
    """Who cannot write while a broker is down, in words."""
    first, count = cluster.short_without.get(-1 if broker is None else broker, ("", 0))
    if not count:
        return ""
    some = first if count == 1 else f"{plural(count, 'partition')}, {first} among them,"
    return f"while broker {broker} is down, writes with acks=all to {some} are refused ({MIN_IN_SYNC})"


def seen_all_in_sync() -> Look:
    """That every replica is in sync now, so that a broker may be stopped."""
    return Look(commands.under_replicated(), "it lists no partition")


def _votes(cluster: Cluster, broker: int | None) -> bool:
    return broker in cluster.voters and len(cluster.voters) > 1


def _seen_quorum(cluster: Cluster, broker: int | None) -> Look:
    others = [each for each in cluster.voters if each != broker]
    return Look(commands.quorum(), f"of the voters {few(others)} all but a minority have a Lag near 0")


def of_quorum(log: LogView, replica: ReplicaFacts) -> Advice:
    """What may be done about a node's log of the metadata: an observer's is fetched again, a voter's keeps its vote."""
    cluster, broker = log.cluster, replica.broker_id
    if cluster.voters and broker is not None and broker not in cluster.voters:
        observes = Condition(f"broker {broker} is no voter of the quorum", True, BY_METADATA)
        again = Act(
            f"stop broker {broker}, move {replica.folder} away and keep it, start it: it is fetched again from the "
            "quorum"
        )
        return gated(
            cluster,
            broker,
            Advice(
                Verdict.ACT,
                "it loses nothing: the voters have what was committed",
                look=(Look(commands.quorum(), f"it lists broker {broker} as an Observer"),),
                act=(again,),
                moves=Moves(broker, cluster.voters),
            ),
            observes,
        )
    if cluster.levels.get(KRAFT, 0) >= 1 and broker in cluster.voters:
        return _other_voter(cluster, replica)
    return Advice(
        Verdict.DO_NOT_ACT,
        VOTE,
        look=(Look(commands.quorum(), f"it lists broker {broker} as Leader or Follower, which vote"),),
        then=f"do not move or delete it: copy {replica.folder} of broker {broker} to a safe place before that broker "
        "starts; a static quorum has no way to take in a voter with another log",
    )


def _other_voter(cluster: Cluster, replica: ReplicaFacts) -> Advice:
    """Letting a voter of a dynamic quorum (KIP-853) leave, and come back with a log that it fetches."""
    voters, broker = cluster.voters, replica.broker_id
    directory = cluster.directory_ids.get(replica.log_dir)
    others = [voter for voter in voters if voter != broker]
    advice = Advice(
        Verdict.LOOK,
        f"a voter leaves the quorum before its log is taken from it: {VOTE}",
        (
            Condition("the quorum takes voters in and out (kraft.version 1)", True, BY_METADATA),
            Condition(f"a majority is left without broker {broker}", len(others) > len(voters) // 2, BY_METADATA),
            Condition("the other voters have all of it", None, "kafka-metadata-quorum.sh shows it"),
        ),
        (Look(commands.quorum(), f"the voters {few(others)} have a Lag near 0, and one of them leads"),),
        then=f"only once that is so: {commands.remove_voter(broker, directory)} ; stop broker {broker}, copy "
        f"{replica.folder} to a safe place, format its metadata.log.dir, which must hold nothing else "
        "(kafka-storage.sh format --no-initial-controllers), start it, and once its Lag is near 0: "
        f"{commands.add_voter()}",
    )
    return at_risk(cluster, broker, advice)
