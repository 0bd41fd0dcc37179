"""The zombie of KIP-447: a producer that commits offsets of a partition which a rebalance gave to another member."""

from __future__ import annotations

from collections.abc import Iterator

from auditor.base.at_rest import Fields
from auditor.model.groups import Commit, Member
from auditor.model.offset_watch import Zombie
from auditor.rules.catalogue.needs import Need
from auditor.rules.catalogue.registry import rule
from auditor.rules.catalogue.safeguards import GROUP_METADATA
from auditor.rules.committed_offsets import FAMILY, at_commit, place_of, writer
from auditor.rules.lib.cleaning import whole_from
from auditor.rules.lib.group_offsets import watched
from auditor.rules.seen.finding import Finding, iso, lowered
from auditor.rules.seen.named import Window
from auditor.rules.seen.view import LogView
from auditor.rules.transactions.windows import naming, skew


@rule(
    "zombie-offset-commit",
    family=FAMILY,
    severities={"error": "", "warning": "before what the log has whole", "info": "where the producers may be a pool"},
    outcomes={"duplicated": ""},
    prevented_by=(GROUP_METADATA,),
    needs=(Need.CONSUMER_OFFSETS,),
)
def zombie_offset_commit(log: LogView) -> Iterator[Finding]:
    """A producer commits offsets of a partition that a rebalance gave to another

    Checks: a transactional commit behind one by another producer for the member that has the partition now, by a
    producer that has only committed for other members before; or two producers commit a partition in one generation,
    and the transaction of one of them had begun before that generation, by the coordinator's log. The group's records
    tell who had it: in a classic group by generation, in one of KIP-848 by assignment, where what a member has still to
    give up is its own. One owner with many producers is a pool, of which nothing is said. Where the records do not
    tell, or both producers have worked for the same other member, a zombie is one whose offset does not rise; else it
    is an info, one a group. Aborted transactions do not count, nor what the producer wrote before its id was
    initialised again. The evidence has the five steps of the KIP, with the members that owned the partition before and
    then, and the group.instance.id of static ones.
    Why it matters: two instances processed the same input; their output is in the log twice, and the offset may have
    gone back. KIP-447 fences this, but only for clients that send their group metadata; in a group of KIP-848 brokers
    look at the member's epoch alone, since 4.3 at any from that on in which the partition came to it (KIP-1251).
    Can be wrong: the producer kept the partition, and the other one committed it by mistake; members of one application
    that share a pool, one of which had never been seen before. With static members the same group.instance.id in both
    generations is two processes with one id. A group of KIP-848 that consumed more than one topic has owners that are
    not known, since its records name topics by their ids alone.
    What to do: call sendOffsetsToTransaction(offsets, groupMetadata) with clients of 2.5 or newer (Streams:
    exactly_once_v2); deduplicate what the zombie wrote after the other's commit; give each process a
    group.instance.id of its own.
    Source: KIP-447, KIP-345, KIP-848, KIP-1251; ConsumerGroup.validateOffsetCommit
    """
    harmless: dict[str, list[tuple[Zombie, str]]] = {}
    for zombie, owned_since in _zombies(log):
        if zombie.grave:
            yield _finding(log, zombie, owned_since)
        else:
            harmless.setdefault(zombie.late.place.group, []).append((zombie, owned_since))
    for several in harmless.values():
        yield _finding(log, *several[0], len(several))


def _zombies(log: LogView) -> Iterator[tuple[Zombie, str]]:
    """Each with the first of its steps."""
    seen = watched(log)
    for zombie in seen.zombies if seen is not None else ():
        older = zombie.older
        if older is not None and not _initialised_between(log, older, zombie.late):
            yield zombie, f"{writer(log, zombie.late)} committed {older.value} (record {older.record_offset})"
    for pair in seen.handed_over if seen is not None else ():
        for zombie in (pair, pair._replace(rival=pair.late, late=pair.rival)):
            window = _transaction(log, zombie.late)
            if window is not None and _begun_before(log, zombie.late, window):
                yield zombie, f"{writer(log, zombie.late)} began its transaction at {iso(window.start_time)}"
                break


def _initialised_between(log: LogView, older: Commit, late: Commit) -> bool:
    """Whether another instance had taken the producer's id by its later commit: its epoch is higher by more than what
    transactions themselves raise it by (version 2), so that the instance which wrote the older one was fenced."""
    history = log.cluster.coordinator
    last = None if history is None else history.last_of_producer(late.producer_id)
    if history is None or last is None or late.producer_epoch <= older.producer_epoch:
        return False
    if last.client_version < 2 or last.partition in history.broken:  # the record of it may be one that is lost
        return True
    return history.initialised(late.producer_id, older.producer_epoch + 1, late.producer_epoch)


def _transaction(log: LogView, c: Commit) -> Window | None:
    """The coordinator's transaction that a commit was made in, None where it is not the only one it may be."""
    named = naming(log)
    mine = named.of(c.producer_id)
    near = []
    for number, row in enumerate(named.rows[mine], mine.start):
        slack = skew(log, int(row["partition"]) if row["partition"] >= 0 else None)
        begun = row["begun"] >= 0 and row["begun"] - slack <= c.time
        if begun and (not row["has_complete"] or c.time <= row["ended"] + slack):
            near.append(number)
    return named.window(near[0]) if len(near) == 1 else None


def _begun_before(log: LogView, c: Commit, window: Window) -> bool:
    """Whether the transaction had begun before the generation that its commit came in, beyond doubt of the clocks."""
    entry = window.first or window.decided
    known = c.generation is not None and c.generation.time >= 0 and entry is not None
    if not known or c.generation is None or entry is None:
        return False
    return window.start_time + skew(log, entry.partition) < c.generation.time


def _finding(log: LogView, zombie: Zombie, since: str, times: int = 1) -> Finding:
    c, rival, older = zombie.late, zombie.rival, zombie.older
    first = min(c, rival, key=lambda commit: commit.record_offset)
    evidence: Fields = {
        "older_generation": None if older is None or older.generation is None else older.generation.number,
        "older_record_offset": None if older is None else older.record_offset,
        "rival_producer_id": rival.producer_id,
        "rival_offset": rival.value,
        "rival_record_offset": rival.record_offset,
        "owner_before": _member(zombie.owner_before),
        "owner": _member(zombie.owner),
        "steps": _steps(log, zombie, since),
        "confidence": "likely",
    }
    behind, generation = first is rival, c.generation
    why = "a zombie of an older generation was not fenced"
    if generation is None or not generation.classic:
        why = f"member {zombie.owner_before} had given the partition up to {zombie.owner}"
    if not zombie.grave:
        why = f"a zombie, or two producers of one pool, which the group's records do not tell{_times(times)}"
        evidence |= {"confidence": "undecidable", "missing": "who owned the partition", "times": times}
    said = f"after {writer(log, rival)} had taken the partition over and committed {rival.value}"
    if not behind:
        said = (
            f"of a transaction that is older than the generation in which {writer(log, rival)} took the partition over"
        )
    severity = "error" if first.record_offset >= whole_from(log) else lowered("error")
    return at_commit(
        log,
        "zombie-offset-commit",
        severity if zombie.grave else "info",
        c,
        f"{writer(log, c)} commits offset {c.value} for {place_of(c)} {said}: {why}{_statically(zombie)}",
        if_true=None if zombie.grave else severity,
        evidence=evidence,
    )


def _times(times: int) -> str:
    return f" (and {times - 1} times more in this group)" if times > 1 else ""


def _member(member: Member | None) -> dict[str, str | None] | None:
    return None if member is None else member._asdict()


def _statically(zombie: Zombie) -> str:
    """Names the static members."""
    names = [m.instance_id for m in (zombie.owner_before, zombie.owner) if m is not None and m.instance_id is not None]
    if len(names) == 2 and names[0] == names[1]:
        return f"; two processes run with the group.instance.id {names[0]}"
    return f"; static members: {', '.join(dict.fromkeys(names))}" if names else ""


def _steps(log: LogView, zombie: Zombie, since: str) -> list[str]:
    """The five steps of KIP-447 as the log has them: A is the zombie, B the new owner."""
    c, rival = zombie.late, zombie.rival
    generation = c.generation
    classic = generation is not None and generation.classic
    word = "generation" if classic else "epoch"
    began = "" if generation is None else f"{word} {generation.number} began (record {generation.offset})"
    fence = "without a generation that would have fenced it" if classic else "and brokers look at the epoch alone"
    return [
        f"1. A: {since}" + (f", as member {zombie.owner_before}" if zombie.owner_before else ""),
        f"2. A fell out of sync and the group rebalanced: {began}",
        f"3. B was assigned {c.place.partition}: {writer(log, rival)}"
        + (f", as member {zombie.owner}" if zombie.owner else ""),
        f"4. B saw no pending offsets of A, went on and committed {rival.value} (record {rival.record_offset})",
        f"5. A came back and committed {c.value} (record {c.record_offset}), {fence}",
    ]
