"""Commands and repairs in findings, and the conditions for stopping a broker."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection
from dataclasses import replace
from shlex import quote
from typing import NamedTuple

from auditor.base.advice import Advice, Condition, Moves, Step, Verdict, check, shown
from auditor.base.errors import DAMAGED_FIELD, setting_number
from auditor.base.transactional_ids import STOPPED_FIRST, in_case, is_flinks
from auditor.base.words import few, plural
from auditor.facts.events import EventKind
from auditor.facts.replica_facts import ReplicaFacts
from auditor.model.policies import SKIPS_MARKERS
from auditor.rules.lib.replica_pairs import Pair, pairs
from auditor.rules.seen.cluster_view import METADATA_TOPIC, MIN_IN_SYNC, UNCLEAN, Alone, Cluster
from auditor.rules.seen.view import Finding, LogView

# Kafka's commands in findings: printed, never executed. Names in them are untrusted input.


PLACE = "--bootstrap-server B "
TRANSACTIONS = "kafka-transactions.sh --bootstrap-server B"
LIST_IDS = f"{TRANSACTIONS} list"
DESCRIBE_TOPICS = "kafka-topics.sh --bootstrap-server B --describe"
UNAVAILABLE = f"{DESCRIBE_TOPICS} --unavailable-partitions"
UNDER_MIN_ISR = f"{DESCRIBE_TOPICS} --under-min-isr-partitions"
UNDER_REPLICATED = f"{DESCRIBE_TOPICS} --under-replicated-partitions"
QUORUM = "kafka-metadata-quorum.sh --bootstrap-server B describe --replication"  # the lag of each voter
FINISH = "auditor finish ID --bootstrap-server B --out DIR"
ADD_VOTER = "kafka-metadata-quorum.sh --bootstrap-server B --command-config ITS_PROPERTIES add-controller"


def addressed(advice: Advice, bootstrap: str | None) -> Advice:
    """Replace the letter B in an advice's commands by ``host:port``."""
    return advice if bootstrap is None else advice.worded(lambda words: addressed_to(words, bootstrap))


def addressed_to(words: str, bootstrap: str | None) -> str:
    """Replace the letter B in a text with commands by ``host:port``."""
    return words if bootstrap is None else words.replace(PLACE, f"--bootstrap-server {quote(bootstrap)} ")


def abort(topic: str, partition: int, offset: int) -> str:
    """Abort the hanging transaction that begins at an offset."""
    return f"{TRANSACTIONS} abort --topic {quote(topic)} --partition {partition} --start-offset {offset}"


def describe_producers(topic: str, partition: int) -> str:
    """Show the open transactions of a partition as its leader has them."""
    return f"{TRANSACTIONS} describe-producers --topic {quote(topic)} --partition {partition}"


def describe_id(transactional_id: str) -> str:
    """Show a transactional id as its coordinator has it."""
    return f"{TRANSACTIONS} describe --transactional-id {quote(transactional_id)}"


def find_hanging(topic: str) -> str:
    """List the hanging transactions of a topic."""
    return f"{TRANSACTIONS} find-hanging --topic {quote(topic)}"


def describe_topic(topic: str) -> str:
    """Show the leaders and in-sync replicas of a topic."""
    return f"{DESCRIBE_TOPICS} --topic {quote(topic)}"


def remove_voter(broker: int | None, directory: str | None) -> str:
    """Remove a voter from a dynamic quorum; ``directory``: its directory.id (KIP-853)."""
    return (
        f"kafka-metadata-quorum.sh --bootstrap-server B remove-controller --controller-id {broker} "
        f"--controller-directory-id {quote(directory or 'ID')}"
    )


def prefer(topic: str, partition: int) -> str:
    """Elect the first replica of a partition, if it is in sync.

    An ``unclean`` election may elect a replica that is not in sync, and lose what it lacks.
    """
    return (
        f"kafka-leader-election.sh --bootstrap-server B --election-type preferred --topic {quote(topic)} "
        f"--partition {partition}"
    )


def reset_offset(group: str, topic: str, partition: int, offset: int) -> str:
    """Show a group's offset reset in a partition; after checking what is skipped, run it with ``--execute``."""
    return (
        f"kafka-consumer-groups.sh --bootstrap-server B --group {quote(group)} --topic {quote(f'{topic}:{partition}')} "
        f"--reset-offsets --to-offset {offset} --dry-run"
    )


def dump(file: str | None, how: str) -> str:
    """Print a segment; ``how``: the option for the depth."""
    return f"kafka-dump-log.sh --files {quote(file or 'SEGMENT')} {how}"


_ENTRIES = {"__transaction_state": "--transaction-log-decoder", "__consumer_offsets": "--offsets-decoder"}
_CLAUSE, WHILE_OPEN = re.compile(r"[.;] "), "while it is open"


def in_general(finding: Finding, what_to_do: str) -> Advice:
    """Advise on a finding without its own advice: the command that shows it, and the steps of its rule page."""
    name, topic = f"{finding.topic}-{finding.partition}", finding.topic
    looks, effects = tuple[Condition, ...](), ""
    if finding.position is not None and str(finding.file).endswith(".log"):
        of = f" with producerId: {finding.producer_id} producerEpoch: {finding.producer_epoch}"
        known = finding.producer_id is not None and topic != "__transaction_state"  # whose batches have no producer
        shows = f"the output shows position: {finding.position}{of if known else ''}"
        looks = (check(dump(finding.file, _ENTRIES.get(str(topic), "--deep-iteration")), shows),)
    if finding.offset is not None and finding.outcome not in ("none", "blocked", "refused") and topic not in _ENTRIES:
        last = finding.offset if finding.last_offset is None else finding.last_offset
        span = f"offset {last}" if last == finding.offset else f"offsets {finding.offset} to {last}"
        effects = (
            f"until then {span} of {name} remain{'s' * (last == finding.offset)} {finding.outcome.replace('_', ' ')}"
        )
    clauses = (c.rstrip(".") for c in _CLAUSE.split(what_to_do) if finding.outcome == "blocked" or WHILE_OPEN not in c)
    steps = tuple(Step(clause) for clause in clauses)
    return Advice(Verdict.INVESTIGATE_FIRST, conditions=looks, steps=steps, side_effects=effects)


def read_the_copy(replica: ReplicaFacts, offset: int, do: str = "read the copy") -> Step:
    """Print the records of a replica's copy from an offset on."""
    file = replica.file(max(0, bisect_right(replica.segment_bases, offset) - 1))
    return Step(do, dump(file, "--print-data-log"), f"its records from offset {offset} on")


# Conditions for stopping a broker, or for moving its partition directory away, by the metadata.
#
# The metadata is as old as its copy, so each advice also has checks of the current state, and the risk of the stop
# (:func:`at_risk`).


NAMED, ASKED = 5, 3  # partitions or ids in a sentence, and ids that a command each asks for
AUDIT_AFTERWARDS = "audit again after the start in any case: a transaction that ended during the stop may be hanging"
ELR, KRAFT = "eligible.leader.replicas.version", "kraft.version"
BY_METADATA, NOT_BY_METADATA = METADATA_TOPIC, f"{METADATA_TOPIC} is not in the input"
VOTE = (
    f"the directory of {METADATA_TOPIC} contains quorum-state, the vote of its node. A node that loses its vote may "
    "elect a second leader"
)


def stop_conditions(cluster: Cluster, broker: int | None) -> tuple[Condition, ...]:
    """Return the conditions for stopping a broker: no out-of-sync replica can be elected, and the quorum remains.

    A partition without other replicas, and a quorum of one, wait for the broker and lose no records.
    """
    alone = sorted(cluster.alone_in_sync.get(-1 if broker is None else broker, []))
    has_metadata = cluster.has_metadata and broker is not None
    by = f"{few(alone)}" if alone else BY_METADATA if has_metadata else NOT_BY_METADATA
    others = shown(
        f"every replicated partition of broker {broker} has another replica that is in sync or eligible to lead",
        not alone if has_metadata else None,
        by,
    )
    needed = [others]
    if alone:
        needed.append(_elected_cleanly(cluster, alone))
    if _votes(cluster, broker):
        left = len(cluster.voters) - 1 > len(cluster.voters) // 2
        needed.append(shown(f"a majority of the quorum's voters remains without broker {broker}", left, BY_METADATA))
    return tuple(needed)


def _elected_cleanly(cluster: Cluster, names: Collection[str]) -> Condition:
    values = {name: effective(cluster, name.rpartition("-")[0], UNCLEAN, "false") for name in names}
    unclean = [name for name, value in values.items() if value == "true"]
    unknown = [name for name, value in values.items() if value not in ("true", "false")]
    holds = False if unclean else None if unknown else True
    by = f"{UNCLEAN}=true for {few(unclean)}" if unclean else f"unknown for {few(unknown)}" if unknown else BY_METADATA
    return shown("no replica that lacks records can be elected for these during the stop", holds, by)


def effective(cluster: Cluster, topic: str, name: str, default: str) -> str | None:
    """Return a topic's setting: its own, its brokers', or Kafka's default if it is not set."""
    own = cluster.setting(topic, name)
    if own is not None:
        return own
    values = {cluster.broker_setting(broker, name) for broker in (*cluster.of_files, None)}
    if len(values - {None}) == 1:
        return next(iter(values - {None}))
    return default if not values - {None} and cluster.of_files and cluster.has_metadata else None


def move_conditions(log: LogView, broker: int | None) -> tuple[Condition, ...]:
    """Return the conditions for moving a broker's replica away: it must not lead before it is fetched again.

    With eligible leader replicas (KIP-966) a broker that leaves fewer than ``min.insync.replicas`` in sync stays
    eligible, and its empty log could be elected.
    """
    cluster, place = log.cluster, (log.topic, log.partition)
    if cluster.levels.get(ELR, 0) < 1:
        return ()
    least = setting_number(effective(cluster, log.topic, MIN_IN_SYNC, "1"))
    in_sync = set(cluster.in_sync.get(place, ())) - set(cluster.eligible.get(place, ())) - {broker}
    what = f"without broker {broker} enough replicas of {log.name} remain in sync, so its empty replica cannot lead"
    if least is None:
        return (shown(what, None, f"{MIN_IN_SYNC} is not in the input, and {ELR} is 1"),)
    enough = len(in_sync) >= least and broker not in cluster.eligible.get(place, ())
    return (shown(what, enough, f"{len(in_sync)} of {MIN_IN_SYNC}={least}, and {ELR} is 1"),)


def gated(cluster: Cluster, broker: int | None, advice: Advice, *more: Condition) -> Advice:
    """Make the steps of an advice that stops a broker wait for the conditions, and add the writes that fail."""
    asked = at_risk(cluster, broker, advice)
    checks = [check(UNDER_REPLICATED, "the output lists no partition")]
    if _votes(cluster, broker):
        others = [voter for voter in cluster.voters if voter != broker]
        checks.append(check(QUORUM, f"a majority of the voters {few(others)} has a Lag near 0"))
    asked = asked.unless(*more, *stop_conditions(cluster, broker))
    effects = "; ".join(filter(None, (asked.side_effects, refused_writes(cluster, broker))))
    return replace(asked, conditions=(*asked.conditions, *checks), side_effects=effects)


def at_risk(cluster: Cluster, broker: int | None, advice: Advice, *, but: str = "") -> Advice:
    """Add to an advice what stopping or restarting a broker puts at risk.

    The partitions without another in-sync replica, and the transactional ids with data there. With KAFKA-20734 a
    transaction that ends meanwhile is completed without its marker, so these ids' transactions have to end before the
    stop. ``broker``: None if unknown; ``but``: the id that the advice is about, which does not end before.
    """
    alone = cluster.alone.get(broker, Alone()) if cluster.has_metadata and broker is not None else None
    which = "the broker" if broker is None else f"broker {broker}"
    if alone is not None and not alone.names:
        safe = shown(f"no partition of {which} is without another in-sync replica", True, BY_METADATA)
        look = check(DESCRIBE_TOPICS, f"the output shows no partition with only Isr: {broker}")
        return replace(advice, conditions=(*advice.conditions, safe, look))
    history, ids = cluster.coordinator, None
    if alone is not None and history is not None:
        ids = Ids(*history.ids_in(alone.names, alone.producers, but))
    if alone is None:
        cost = f"the input does not show the partitions of {which} without another in-sync replica"
        expected = f"you have prepared the partitions whose only Isr is {which} as described below"
    else:
        cost = f"while {which} is down, {_without_leader(alone.names)}; {_whose(cluster, ids)}"
        expected = f"the output shows only Isr: {broker} for no other partition than {some(alone.names)}"
    look = check(DESCRIBE_TOPICS, expected)
    # A coordinator may run a release with KAFKA-20734: the input seldom shows the release.
    may_skip = not cluster.releases or any(shown.may_have(SKIPS_MARKERS) for shown in cluster.releases.values())
    acts = _ended_before(cluster, which, ids) if may_skip else ()
    afterwards = AUDIT_AFTERWARDS if acts else ""
    return replace(
        advice,
        conditions=(*advice.conditions, look),
        steps=(*acts, *advice.steps),
        side_effects="; ".join(filter(None, (advice.side_effects, cost))),
        afterwards=". ".join(_begun(part) for part in (advice.afterwards, afterwards) if part),
    )


def _begun(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def _without_leader(names: Collection[str]) -> str:
    count = len(names)
    has = "has" if count == 1 else "have"
    return f"{plural(count, 'partition')} without another in-sync replica {has} no leader: {some(names)}"


class Ids(NamedTuple):
    """A count of transactional ids, and the first of them."""

    total: int
    first: list[str]

    def __str__(self) -> str:
        return some(self.first, self.total)


def _whose(cluster: Cluster, ids: Ids | None) -> str:
    if ids is None:
        return "the input does not show the transactional ids with data there"
    whole = cluster.coordinator is not None and cluster.coordinator.covered()
    so_far = "" if whole else " (__transaction_state is incomplete in the input)"
    if not ids.total:
        return f"no known transactional id has data there{so_far}"
    return f"{plural(ids.total, 'transactional id')} with data there: {ids}{so_far}"


def _ended_before(cluster: Cluster, which: str, ids: Ids | None) -> tuple[Step, ...]:
    # No transaction may end while its partition is leaderless.
    named = ids.first if ids is not None else []
    whose = str(ids) if named else "every transactional id with data in these partitions"
    releases = SKIPS_MARKERS.releases.replace(" and ", " or ")
    jobs = [whose for whose in map(cluster.origin, named) if is_flinks(whose)]
    job = f"; {in_case(jobs[0], STOPPED_FIRST)}" if jobs else ""
    commands = [describe_id(name) for name in named[:ASKED]]
    commands += [LIST_IDS] if ids is None or not named or ids.total > ASKED else []
    return (
        Step(
            f"before you stop {which}, if brokers run {releases} ({SKIPS_MARKERS.issue}): end the transactions of "
            f"{whose}, then stop their producers. A transaction that is open at the stop times out while its partition "
            f"has no leader, and is then hanging{job}"
        ),
        Step("stop the broker only when these commands show each id as Empty, CompleteCommit or CompleteAbort"),
        *(Step("", command) for command in commands),
    )


def some(names: Collection[str], count: int | None = None) -> str:
    """Name the first few, and how many more there are; ``count``: of all, if more than given."""
    every = len(names) if count is None else count
    more = f" and {every - NAMED:,} more" if every > NAMED else ""
    return ", ".join([*names][:NAMED]) + more


def refused_writes(cluster: Cluster, broker: int | None) -> str:
    """Describe which writes fail while a broker is down."""
    first, count = cluster.short_without.get(-1 if broker is None else broker, ("", 0))
    if not count:
        return ""
    some = first if count == 1 else f"{plural(count, 'partition')} (such as {first})"
    return f"while broker {broker} is down, writes with acks=all to {some} fail ({MIN_IN_SYNC})"


def _votes(cluster: Cluster, broker: int | None) -> bool:
    return broker in cluster.voters and len(cluster.voters) > 1


def quorum_log(log: LogView, replica: ReplicaFacts) -> Advice:
    """Advise on a node's metadata log: an observer re-fetches it, a voter keeps its vote."""
    cluster, broker = log.cluster, replica.broker_id
    if cluster.voters and broker is not None and broker not in cluster.voters:
        observes = shown(f"broker {broker} is not a voter of the quorum", True, BY_METADATA)
        again = Step(
            f"stop broker {broker}, move {replica.folder} away and keep it, start the broker: it re-fetches the log "
            "from the quorum"
        )
        return gated(
            cluster,
            broker,
            Advice(
                Verdict.ACT,
                "no records are lost: the voters have all committed records",
                (check(QUORUM, f"the output lists broker {broker} as an Observer"),),
                steps=(again,),
                moves=Moves(broker, cluster.voters),
            ),
            observes,
        )
    if cluster.levels.get(KRAFT, 0) >= 1 and broker in cluster.voters:
        return _other_voter(cluster, replica)
    return Advice(
        Verdict.INVESTIGATE_FIRST,
        VOTE,
        (check(QUORUM, f"the output lists broker {broker} as Leader or Follower (both vote)"),),
        afterwards=f"Do not move or delete it. Copy {replica.folder} of broker {broker} to a safe place before that "
        "broker starts. A static quorum cannot accept a voter with another log",
    )


def _other_voter(cluster: Cluster, replica: ReplicaFacts) -> Advice:
    # A dynamic quorum (KIP-853) can remove a voter and add it again with a re-fetched log.
    voters, broker = cluster.voters, replica.broker_id
    directory = cluster.directory_ids.get(replica.log_dir)
    others = [voter for voter in voters if voter != broker]
    advice = Advice(
        Verdict.INVESTIGATE_FIRST,
        f"remove a voter from the quorum before you remove its log: {VOTE}",
        (
            shown("the quorum is dynamic (kraft.version 1)", True, BY_METADATA),
            shown(f"a majority remains without broker {broker}", len(others) > len(voters) // 2, BY_METADATA),
            shown("the other voters have all of its records", None, "kafka-metadata-quorum.sh shows it"),
            check(QUORUM, f"the voters {few(others)} have a Lag near 0, and one of them leads"),
        ),
        (
            Step("remove the voter from the quorum", remove_voter(broker, directory)),
            Step(
                f"stop broker {broker}, copy {replica.folder} to a safe place, and format its metadata.log.dir, which "
                "must contain nothing else (kafka-storage.sh format --no-initial-controllers). Then start the broker"
            ),
            Step("when its Lag is near 0, add it again", ADD_VOTER),
        ),
    )
    return at_risk(cluster, broker, advice)


# Repairs of replicas and leaders that lose no records.


PRODUCE_AGAIN = "Re-send the missing records"
DAMAGED = ("bad_size", "bad_magic", "limit", "unreadable")  # bytes of a segment that are in no batch


def keeps_out(log: LogView, replica: ReplicaFacts) -> str | None:
    """Return why a follower must not become leader, since records would be lost; None without a known reason.

    The caller still checks whether it is in sync now.
    """
    if is_damaged(log, replica):
        return "batches of its log are damaged"
    pair: Pair | None = next((pair for pair in pairs(log) if pair.replica is replica), None)
    if pair is None:
        return "its replica cannot be compared with the leader's"
    if pair.divergent:
        return f"its log diverges from offset {pair.first_offset} on, and the leader's records there would be lost"
    if lacks := [gap for gap in pair.gaps if not gap.in_leader]:
        return f"it lacks offsets {lacks[0].first_offset} to {lacks[-1].last_offset}, which would be lost"
    if pair.undecided:
        return "parts of it could not be compared with the leader's replica"
    in_sync = log.cluster.in_sync.get((log.topic, log.partition))
    if in_sync is not None and replica.broker_id not in in_sync:
        return f"it is not in the ISR ({_some(in_sync)}), and records that it has not fetched would be lost"
    return None


def is_damaged(log: LogView, replica: ReplicaFacts) -> bool:
    """Whether batches of a replica are damaged, so that no replica should fetch from it."""
    damaged = any(e.reason in (*DAMAGED, DAMAGED_FIELD) and e.file in replica.segments for e in replica.errors)
    return damaged or any(True for _ in log.events(EventKind.CRC, replica=replica))


def in_sync(log: LogView, broker: int | None) -> Condition:
    """Condition: a broker has the partition in sync, by the metadata at its copy."""
    brokers = log.cluster.in_sync.get((log.topic, log.partition))
    what = has_in_sync(log.name, broker)
    return shown(what, broker in brokers if brokers else None, BY_METADATA if brokers else NOT_BY_METADATA)


def has_in_sync(name: str, broker: int | None) -> str:
    """Describe the condition of :func:`in_sync`."""
    return f"broker {broker} has {name} in sync"


def check_in_sync(log: LogView, *brokers: int | None) -> Condition:
    """Check which brokers are in sync now."""
    return check(describe_topic(log.topic), isr_lists(log.name, brokers))


def isr_lists(name: str, brokers: Collection[int | None]) -> str:
    """Expect one of these brokers in a partition's ISR."""
    return f"the Isr of {name} lists broker {' or '.join(map(str, brokers))}"


def lead(log: LogView, replica: ReplicaFacts) -> tuple[Step, Step]:
    """Make an in-sync replica the leader."""
    return (
        Step(
            f"make broker {replica.broker_id} the leader: put it first among the replicas of {log.name} "
            "(kafka-reassign-partitions.sh)"
        ),
        Step("", prefer(log.topic, log.partition)),
    )


def leader_back(cluster: Cluster, names: Collection[str]) -> str:
    """Describe how to give partitions (``topic-partition``) a leader without losing what in-sync replicas have."""
    places = [(topic, int(number)) for topic, _, number in (name.rpartition("-") for name in names)]
    brokers = sorted({broker for place in places for broker in _had_all(cluster, place)})
    start = (
        f"start broker {_some(brokers)}, in the ISR by the metadata" if brokers else "start the brokers of the last ISR"
    )
    return (
        f"restore a leader of {_some(sorted(names))}: {start}. Do not use an unclean election: it drops records that "
        "only in-sync replicas have"
    )


def in_sync_again(cluster: Cluster, names: Collection[str]) -> str:
    """Describe how partitions (``topic-partition``) below min.insync.replicas accept markers again."""
    brokers = sorted({broker for name in names for broker in cluster.under_min_isr[name].others})
    enough = f"enough replicas of {few(sorted(names))} are in sync (now {too_few_in_sync(cluster, min(names))})"
    return f"restore broker {_some(brokers)}, so that {enough}"


def too_few_in_sync(cluster: Cluster, name: str) -> str:
    """Describe how many replicas of a partition below min.insync.replicas are in sync."""
    short = cluster.under_min_isr[name]
    return f"{len(short.isr)} in the ISR, {MIN_IN_SYNC} is {short.least}"


def without_leader(cluster: Cluster, names: Collection[str], cost: str) -> Advice:
    """Advise to start a broker that has all records of these leaderless partitions."""
    places = [(topic, int(number)) for topic, _, number in (name.rpartition("-") for name in names)]
    all_known = cluster.has_metadata and all(_had_all(cluster, place) for place in places)
    some = _some(sorted(names))
    by = BY_METADATA if all_known else NOT_BY_METADATA
    has_all = shown(f"the brokers with all records of {some} are known", all_known or None, by)
    steps = (Step(leader_back(cluster, names)),) if all_known else ()
    return Advice(
        Verdict.ACT if all_known else Verdict.INVESTIGATE_FIRST,
        cost,
        (has_all, check(UNAVAILABLE, f"the output lists {some}")),
        steps,
        afterwards="" if all_known else leader_back(cluster, names),
    )


def _had_all(cluster: Cluster, place: tuple[str, int]) -> Collection[int]:
    # The replicas in sync; for a leaderless partition also the eligible ones (KIP-966).
    offline = cluster.offline.get(place)
    return cluster.in_sync.get(place, ()) if offline is None else offline.in_sync


def refetch(log: LogView, replica: ReplicaFacts, holder: ReplicaFacts | None = None) -> Advice:
    """Advise to re-fetch a replica if another one has the data; otherwise to keep it.

    ``holder``: a replica in the input known to have what this one lacks; a damaged one does not count.
    """
    if log.topic == METADATA_TOPIC:
        return quorum_log(log, replica)
    synced = [b for b in log.cluster.in_sync.get((log.topic, log.partition), ()) if b != replica.broker_id]
    damaged = {c.broker_id for c in log.replicas if is_damaged(log, c)}
    named = synced if holder is None else [b for b in [holder.broker_id] if b is not None]
    brokers = [b for b in named if b not in damaged]
    if not brokers:
        return keep(replica.folder, replica.broker_id, describe_topic(log.topic))
    again = Step(
        f"stop broker {replica.broker_id}, move {replica.folder} away and keep it, start the broker: it re-fetches the "
        "replica"
    )
    advice = Advice(
        Verdict.ACT,
        f"re-fetch the replica; this drops records that only broker {replica.broker_id} has",
        conditions=(check_in_sync(log, *brokers),),
        steps=(again,),
        moves=Moves(replica.broker_id, tuple(brokers)),
    )
    synced_ones = (in_sync(log, b) for b in brokers)
    return gated(log.cluster, replica.broker_id, advice, *synced_ones, *move_conditions(log, replica.broker_id))


def keep(folder: str, broker: object, look: str) -> Advice:
    """Advise to keep a replica if no other one is known to have its data. ``look``: the command that shows the ISR."""
    return Advice(
        Verdict.INVESTIGATE_FIRST,
        f"no other replica is known to have the data of {folder}. Moving it away would lose all of it",
        (check(look, f"the Isr of {folder} lists only broker {broker}"),),
        afterwards=f"Copy it to a safe place before broker {broker} next starts. If the Isr lists another broker, "
        "audit its replica too: this one may be re-fetched from there. Consumers that seek past the damage can still "
        "read the records before and after it",
    )


def rebuild(log: LogView, replica: ReplicaFacts, *files: str) -> Advice:
    """Advise to let a broker rebuild a segment's indexes.

    A missing .index makes the start recover the segment, which truncates it at the first broken batch (LogLoader,
    LogSegment.recover).
    """
    act = Step(
        f"stop broker {replica.broker_id}, move {' and '.join(files)} away and keep them, start the broker: it "
        "rebuilds both from the log"
    )
    advice = Advice(Verdict.ACT, "no records are lost", steps=(act,))
    return gated(log.cluster, replica.broker_id, advice, unbroken(log, replica))


def unbroken(log: LogView, replica: ReplicaFacts) -> Condition:
    """Condition: no batch is broken, since a recovery would truncate the log there."""
    what = f"no batch of {replica.folder} is broken (the start would truncate the log there)"
    return shown(what, not is_damaged(log, replica), "all of it was scanned")


def rescue(log: LogView, replica: ReplicaFacts, offset: int, amends: str = PRODUCE_AGAIN) -> Advice:
    """Advise to keep records from an offset on that only one replica still has, before its broker truncates it.

    ``amends``: the records to re-send. The only copy is never moved or deleted: its directory is copied, and only read.
    """
    if log.topic == METADATA_TOPIC:
        return quorum_log(log, replica)
    read = read_the_copy(replica, offset)
    return _copied_first(replica, f"truncates its log at offset {offset} when it starts", read, amends)


def _copied_first(replica: ReplicaFacts, cuts: str, read: Step | None, then: str = "") -> Advice:
    whose = f"{replica.folder} of broker {replica.broker_id}"
    copied = Step(f"copy {whose} to a safe place before that broker starts")
    steps = (copied,) if read is None else (copied, read)
    return Advice(Verdict.ACT, f"keep a copy of {whose}, which {cuts}", steps=steps, afterwards=then)


def compared(log: LogView, replica: ReplicaFacts, offset: int) -> Advice:
    """Advise to compare the other replicas, if any, from an offset on."""
    if log.cluster.replicas.get((log.topic, log.partition)) == 1:
        return Advice(
            Verdict.NOTIFY_OWNER,
            f"there is no other replica of {log.name}",
            (check(describe_topic(log.topic), "the output shows ReplicationFactor: 1"),),
            (Step(f"Re-send the missing records of {log.name} from offset {offset} on from their source"),),
        )
    return Advice(
        Verdict.INVESTIGATE_FIRST,
        f"another replica of {log.name} may have the records that broker {replica.broker_id} lacks",
        (check(describe_topic(log.topic), f"the Isr of {log.name} lists a broker other than {replica.broker_id}"),),
        (
            Step(f"prevent broker {replica.broker_id} from leading {log.name}"),
            Step(
                "read the directory of the other broker's replica",
                dump(None, "--print-data-log"),
                f"whether it has records from offset {offset} on",
            ),
        ),
    )


def torn_tail(log: LogView, replica: ReplicaFacts, *, newest: bool, lost: bool) -> Advice:
    """Advise on an incomplete batch at the end of a segment, before a start truncates it.

    No step, unless it contained acknowledged records (``lost``) or precedes the ``newest`` segment, so that later
    records would be truncated too.
    """
    if newest and not lost:
        return Advice(
            Verdict.NONE,
            ("the high watermark is below it, and " if replica.high_watermark is not None else "")
            + f"broker {replica.broker_id} truncates these bytes when it starts",
        )
    cuts = f"truncates its log at offset {replica.log_end}" if lost else "may truncate the log at these bytes"
    if log.cluster.replicas.get((log.topic, log.partition)) == 1:
        read = read_the_copy(replica, replica.log_end, "no other replica exists: read the truncated part in the copy")
        return _copied_first(replica, f"{cuts} when it starts", read)
    then = "if an in-sync replica has the records, make it the leader"
    return _copied_first(replica, f"{cuts} when it starts", None, then)


def before_a_start(replica: ReplicaFacts, repair: str) -> Advice:
    """Advise to repair a file that makes a start fail or lose a partition."""
    stopped = True if replica.clean_shutdown else None
    return Advice(
        Verdict.INVESTIGATE_FIRST,
        "do not start the broker before you repair the file",
        (
            shown(f"broker {replica.broker_id} is stopped", stopped, ".kafka_cleanshutdown" if stopped else "ps"),
            shown("its log directory is copied", None, "not in the input"),
        ),
        (Step(repair),),
    )


def _some(values: Collection[object], most: int = 5) -> str:
    named = [str(value) for value in values][:most]
    more = f" and {len(values) - most} more" if len(values) > most else ""
    return f"{' or '.join(named) if not more else ', '.join(named)}{more}" if named else "none"
