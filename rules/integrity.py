"""Rules on the stored bytes of one replica."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from auditor.base.advice import Advice, check
from auditor.base.at_rest import Fields
from auditor.base.errors import BREAKS_OFF, MOST_OFFSET, DamagedField, DecodeError
from auditor.base.evidence_keys import Evidence, read
from auditor.base.words import few, plural
from auditor.evidence.horizons import LEADERS_LOG, Missing, hole
from auditor.facts.crash_recovery import TAIL, own_files, start_steps
from auditor.facts.events import INDEX_FAULTS, Event, EventKind
from auditor.facts.replica_facts import ReplicaFacts
from auditor.rules.catalogue.registry import rule
from auditor.rules.lib import repairs
from auditor.rules.resolution.resolve import by_cause, in_each_replica
from auditor.rules.seen.cluster_view import METADATA_TOPIC
from auditor.rules.seen.view import Finding, LogView, runs

# The bytes of one replica: checksums, tails, offset order, indexes, leader epochs.


SHOWN = 20  # batches whose readings a finding has
DEFAULT_SEGMENT_BYTES = str(1 << 30)


@rule(
    "batch-crc-mismatch",
    when={
        "info": "while it may be in flight",
        "unreadable": "in the leader",
        "at_risk": "in another replica",
    },
)
def batch_crc_mismatch(log: LogView) -> Iterator[Finding]:
    """CRC mismatch: a stored batch is damaged

    Checks: the stored checksum of a complete batch differs from the checksum of its bytes. No other finding uses its
    records as evidence. If one flipped bit explains the mismatch, the evidence has both readings of the batch.
    Why it matters: the batch was damaged on disk or on its way there. Consumers fail at it. A broker that starts after
    a crash truncates the log there, with all later records.
    Can be wrong: the end of the log was being written while it was copied.
    What to do: before any start, check whether another in-sync replica is intact; then stop the broker, move the
    partition directory away and start the broker. Before the stop, prepare the broker's partitions without another
    in-sync replica, as the finding describes. If it is the only replica, keep a copy of the directory, since a start
    may truncate the log there.
    Source: KIP-467; DefaultRecordBatch.ensureValid
    """
    for replica in log.replicas:
        for run in runs(log.events(EventKind.CRC, replica=replica), "segment"):
            e, last = run[0], run[-1]
            in_flight = bool(replica.segments) and not replica.clean_shutdown and _in_flight_tail(replica, e)
            yield log.at_event(
                "critical",
                f"CRC mismatch in {plural(len(run), 'batch')} of {log.name} at offset {e['base_offset']}: consumers "
                "fail with CorruptRecordException, and an unclean restart may truncate the log here",
                e,
                replica=replica,
                last_offset=max(last["base_offset"], last["last_offset"]),  # which may be what is damaged
                producer_id=None,
                producer_epoch=None,
                transactional_id=None,
                time_ms=None,
                outcome="unreadable" if replica is log.leader else "at_risk",
                evidence={
                    "stored_crc": e["stored_crc"],
                    "batches": len(run),
                    "records_behind_it": max(0, replica.log_end - int(e["base_offset"])),
                    "one_flipped_bit": _readings(replica, run),
                },
                doubt=in_flight,
                verified=True,
                advice=_looked_at(repairs.refetch(log, replica), replica, e),
            )


def _readings(replica: ReplicaFacts, run: list[Event]) -> list[Fields] | None:
    # As stored, and with the one bit inverted that explains the mismatch.
    readings = (replica.readings.get((int(e["segment"]), int(e["position"]))) for e in run[:SHOWN])
    return [reading for reading in readings if reading is not None] or None


def _looked_at(advice: Advice, replica: ReplicaFacts, e: Event) -> Advice:
    dump = repairs.dump(replica.file(int(e["segment"])), "--deep-iteration")
    return advice.also(check(dump, f"the output shows isvalid: false at offset {e['base_offset']}"))


def _in_flight_tail(replica: ReplicaFacts, e: Event) -> bool:
    # No intact batch follows in a live directory's newest segment. Its own last offset may be damaged.
    return bool(e["segment"] == len(replica.segments) - 1 and e["base_offset"] >= replica.log_end)


RECOVER = "move .kafka_cleanshutdown out of the log directory: a start then truncates these bytes before it appends"


@rule(
    "torn-tail",
    when={
        "error": "before the newest segment, or if a start fails at it",
        "critical": "below the high watermark",
        "info": "in a live directory",
        "unreadable": "before the newest segment",
        "at_risk": "below the high watermark, or if a start fails at it",
    },
)
def torn_tail(log: LogView) -> Iterator[Finding]:
    """A segment ends with an incomplete batch

    Checks: bytes after the last complete batch of a segment: an incomplete batch, zeros, or bytes that are no batch.
    Why it matters: a crash causes it, and recovery truncates it. If the high watermark is past the last complete batch,
    acknowledged data is lost. After a clean stop there is no recovery: a broker fails to start at zeros, and appends
    after an incomplete batch.
    Can be wrong: a live broker was writing; preallocated segments end in zeros.
    What to do: after a crash, nothing if the high watermark is below it. Otherwise keep a copy of the partition
    directory before the broker starts, since it truncates the bytes; make an in-sync replica with the records lead.
    After a clean stop, move .kafka_cleanshutdown away first.
    Source: LogSegment.recover, LogSegment.readNextOffset, FileLogInputStream.nextBatch
    """
    for replica in log.replicas:
        for pieces in tails(replica).values():
            yield _tail(log, replica, pieces[0], sum(e.length for e in pieces))


def _tail(log: LogView, replica: ReplicaFacts, error: DecodeError, length: int) -> Finding:
    number = replica.segments.index(error.file)
    newest = number == len(replica.segments) - 1
    live = newest and not replica.clean_shutdown
    preallocated = error.reason == "zero_filled" and _preallocates(log, replica)
    beyond = replica.high_watermark is not None and replica.high_watermark > replica.log_end
    breaks_off = error.reason == "truncated" or _begins_a_batch(replica, error, length)
    steps = start_steps((file for file in own_files(replica) if newest and file.kind == TAIL), kraft=True)
    severity = "error" if not newest or steps else "info" if live and not beyond and breaks_off else "warning"
    if newest and preallocated and not steps:
        severity = "info"
    written = severity == "info" and live  # as a batch that is being written looks
    words = {"truncated": "an incomplete batch", "zero_filled": "zeros"}.get(error.reason, "bytes that are no batch")
    return log.finding(
        "warning" if written else severity,
        f"{error.file} ends with {words} ({plural(length, 'byte')})"
        + (". The high watermark is past the last complete batch: this replica lost committed data" if beyond else "")
        + (f". Broker {replica.broker_id} fails to start at them" if steps else ""),
        replica=replica,
        file=error.file,
        position=error.position,
        offset=replica.log_end if newest else None,
        evidence={
            "reason": error.reason,
            "bytes": length,
            "detail": error.detail,
            "log_end": replica.log_end,
            "high_watermark": replica.high_watermark,
        },
        doubt=written,
        outcome="at_risk" if steps else "",
        advice=repairs.before_a_start(replica, steps[0].repair if steps else RECOVER)
        if not beyond and (steps or (newest and replica.clean_shutdown and not preallocated))
        else repairs.torn_tail(log, replica, newest=newest, lost=beyond),
    )


def _begins_a_batch(replica: ReplicaFacts, error: DecodeError, length: int) -> bool:
    # A batch begins with its offset in eight bytes, and a size below 16 MiB begins with a zero byte.
    head = replica.log_end.to_bytes(8, "big") + b"\0"
    return error.reason == "zero_filled" and length <= len(head) and not any(head[:length])


def _preallocates(log: LogView, replica: ReplicaFacts) -> bool:
    # As set, or as the segment's size shows.
    cluster = log.cluster
    own = cluster.setting(log.topic, "preallocate")
    if "true" in (own, cluster.broker_setting(replica.broker_id, "log.preallocate")):
        return True
    size = cluster.setting(log.topic, "segment.bytes") or cluster.broker_setting(replica.broker_id, "log.segment.bytes")
    return own is None and str(replica.scans[-1].size) == (size or DEFAULT_SEGMENT_BYTES)


@rule(
    "offset-hole",
    when={
        "info": "if its leader may have compacted the log",
        "lost": "in the leader",
        "at_risk": "in another replica, or if a segment file may be missing from the copy",
    },
    together=in_each_replica(),
)
def offset_hole(log: LogView) -> Iterator[Finding]:
    """An offset gap: offsets are missing

    Checks: in a region that was never compacted, a batch begins after the next expected offset, within a segment or
    between two.
    Why it matters: a log without compaction has no gaps, so the records are lost. Brokers accept the gap at recovery,
    and consumers skip it silently.
    Can be wrong: segments in remote storage, or segment files missing from the copy (the finding then has the range).
    In a compacted topic only the active segment of a broker that has led since is proof. A follower stores its leader's
    gaps, and so does a broker that re-fetched a lost replica (one info per replica). An interrupted pass of the cleaner
    moves no checkpoint (likely; also if cleanup.policy is unknown).
    What to do: compare with the other replicas from the missing offset on.
    Source: UnknownProducerId and OutOfOrderSequence page of Kafka's wiki
    """
    for replica in log.replicas:
        leaders = []
        for e in log.events(EventKind.OFFSET_HOLE, replica=replica):
            proof = hole(log, replica, e)
            if proof == Missing.UNDECIDABLE and not _first_in_segment(replica, e):
                leaders.append(e)
            else:
                yield _hole(log, replica, [e], proof)
        if leaders:
            yield _hole(log, replica, leaders, Missing.UNDECIDABLE)


def _hole(log: LogView, replica: ReplicaFacts, holes: list[Event], proof: Missing) -> Finding:
    e, leaders = holes[0], proof == Missing.UNDECIDABLE
    counts = [one["base_offset"] - one["first_missing_offset"] for one in holes]
    at_start = _first_in_segment(replica, e)
    lost = "perhaps a segment file that was not copied" if at_start else LEADERS_LOG if leaders else None
    why = (
        ": a segment file may be missing" if at_start else ": its leader may have compacted the log" if leaders else ""
    )
    more = f", and {plural(sum(counts[1:]), 'offset')} in {plural(len(holes) - 1, 'more gap')}" if holes[1:] else ""
    return log.at_event(
        "info" if leaders else "error",
        f"Offsets {e['first_missing_offset']} to {e['base_offset'] - 1} of {log.name} ({counts[0]}) are missing "
        f"before the batch at {e['base_offset']}{more}{why}",
        e,
        replica=replica,
        if_true="error" if leaders else None,
        outcome="lost" if replica is log.leader and not at_start else "at_risk",
        evidence={
            "expected": e["first_missing_offset"],
            "found": e["base_offset"],
            "missing_offsets": sum(counts),
            "missing_range": [e["first_missing_offset"], holes[-1]["base_offset"] - 1],
            "ranges": [[one["first_missing_offset"], one["base_offset"] - 1] for one in holes],
            "holes": len(holes) if leaders else None,
            "confidence": "undecidable" if at_start else proof,
            "missing": lost,
        },
        advice=repairs.compared(log, replica, e["first_missing_offset"]),
    )


def _first_in_segment(replica: ReplicaFacts, e: Event) -> bool:
    # The name of the segment shows that no batch is missing inside it.
    base = replica.segment_bases[int(e["segment"])]
    return bool(e["position"] == 0 and e["base_offset"] == base)


@rule("offsets-not-increasing")
def offsets_not_increasing(log: LogView) -> Iterator[Finding]:
    """Offsets move backwards or are in the wrong segment

    Checks: a batch begins at or below the last offset of the previous batch, within a segment or between two. Or its
    offset is outside the range of its segment by the segment file names. The checksum does not cover the base offset.
    If both neighbours fit another base offset, the stored one is damaged, and the fitting value is used everywhere.
    Why it matters: lookups by offset find wrong records or none. Consumers may read records twice or loop.
    Can be wrong: old segments read together with the compacted ones that replaced them. Without a clean shutdown, a
    damaged offset at the end of a log looks like a gap.
    What to do: follow the finding: re-fetch this replica only if another one is known to be in sync and intact;
    otherwise keep a copy of its directory before the broker next starts.
    Source: KIP-467; LogValidator, UnifiedLog.analyzeAndValidateRecords
    """
    yield from damaged_fields(log, "critical", OFFSET)
    for replica in log.replicas:
        for run in runs(
            log.events(EventKind.OFFSETS_NOT_INCREASING, EventKind.OUTSIDE_SEGMENT, replica=replica), "kind", "segment"
        ):
            e, last = run[0], run[-1]
            if e["kind"] == EventKind.OUTSIDE_SEGMENT:
                begin, end = e["segment_base_offset"], e["next_segment_base_offset"]
                what = f"is outside its segment, which begins at {begin}"
                what += f" and ends before {end}" if end >= 0 else ""
                expected: Any = [begin, end if end >= 0 else None]
            else:
                what, expected = f"comes after offset {e['previous_last_offset']}", e["previous_last_offset"] + 1
                what += " and is out of range" if e["base_offset"] >= MOST_OFFSET else ""
            yield log.at_event(
                "critical",
                f"A batch at offset {e['base_offset']} of {log.name} {what}",
                e,
                replica=replica,
                last_offset=last["last_offset"],
                evidence={"expected": expected, "found": e["base_offset"], "batches": len(run)},
                advice=repairs.refetch(log, replica),
            )


@rule("index-mismatch", when={"info": "for entries after the end of the index that a crash left in the file"})
def index_mismatch(log: LogView) -> Iterator[Finding]:
    """An index does not match its segment

    Checks: an offset index entry does not point at the start of a batch, or its offset is not in the batches appended
    there. Or a time index entry has an earlier record with a later timestamp, entries do not increase, or a file ends
    with a partial entry.
    Why it matters: lookups start in the middle of a batch or miss records.
    Can be wrong: a follower that appends several batches at once stores the last one's offset (handled). The file of a
    running or killed broker ends in zeros, and its last entries may be leftovers of a truncation. Those that fit no
    batch are info.
    What to do: if no batch of the segment is broken (a recovery would truncate it there), stop the broker and move the
    segment's .index and .timeindex away. Without .index the start recovers the segment and rebuilds both. Before the
    stop, prepare the broker's partitions without another in-sync replica, as the finding describes.
    Source: OffsetIndex, TimeIndex
    """
    explained = {e["last_offset"] for e in log.events(EventKind.BATCH_TIMESTAMP, EventKind.TIMESTAMP_AHEAD)}
    if (ahead := log.leader.ahead) is not None and log.cluster.is_ahead_of_all(ahead.time):
        explained.add(ahead.last_offset)
    for replica in log.replicas:
        entries = log.events(EventKind.INDEX_ENTRY, EventKind.TIME_INDEX_ENTRY, replica=replica)
        for run in runs(entries, "kind", "segment", "fault", "maybe_cut_off"):
            time = run[0]["kind"] == EventKind.TIME_INDEX_ENTRY
            left = [
                e
                for e in run
                if not (time and (e["entry_offset"] in explained or e["larger_last_offset"] in explained))
            ]
            if left:
                yield _index_finding(log, replica, left, time)
        for error in replica.errors:
            if error.reason == "bad_length" and error.file.endswith((".index", ".timeindex", ".txnindex")):
                yield log.finding(
                    "warning",
                    f"{error.file} ends with a partial entry",
                    replica=replica,
                    file=error.file,
                    position=error.position,
                    evidence={"reason": error.reason, "detail": error.detail},
                )


def _index_finding(log: LogView, replica: ReplicaFacts, run: list[Event], time: bool) -> Finding:
    e = run[0]
    log_file = replica.file(int(e["segment"])) or ""
    file = log_file.removesuffix(".log") + (".timeindex" if time else ".index")
    entry = int(e["position"]) // (12 if time else 8)
    points = f"timestamp {e['entry_timestamp']}" if time else f"position {e['entry_position']}"
    left_over = e["maybe_cut_off"] == 1 and not replica.clean_shutdown
    return log.finding(
        "warning",
        f"{file} does not match its segment in {plural(len(run), 'entry')} from number {entry} on: "
        f"{INDEX_FAULTS[e['fault']]}" + (", as after a truncation in a running broker's file" * left_over),
        replica=replica,
        file=file,
        position=e["position"],
        evidence={
            "entry": entry,
            "entry_offset": e["entry_offset"],
            "points_at": points,
            "why": INDEX_FAULTS[e["fault"]],
            "entries": len(run),
            "segment_position": None if time else e["entry_position"],
            "missing": "the index's end in memory" if left_over else None,
        },
        doubt=left_over,
        advice=repairs.rebuild(
            log, replica, *(f"{log_file.removesuffix('.log')}.{kind}" for kind in ("index", "timeindex"))
        ),
    )


@rule("leader-epoch-mismatch")
def leader_epoch_mismatch(log: LogView) -> Iterator[Finding]:
    """Leader epochs in the log regress, or contradict the checkpoint

    Checks: the leader epoch of a batch is lower than an earlier one, or differs from leader-epoch-checkpoint at its
    offset. The checksum does not cover it. If a single one does not fit its neighbours, it is damaged, and their value
    is used everywhere.
    Why it matters: followers truncate by leader epochs. Wrong ones make them keep or drop the wrong records.
    Can be wrong: the checkpoint is ahead of the log after a crash.
    What to do: follow the finding: re-fetch this replica only if another one is known to be in sync and intact;
    otherwise keep a copy of its directory before the broker next starts.
    Source: KIP-101, KIP-279; LeaderEpochFileCache
    """
    yield from damaged_fields(log, "error", EPOCH)
    for replica in log.replicas:
        kinds = (EventKind.LEADER_EPOCH_DECREASE, EventKind.LEADER_EPOCH_CHECKPOINT)
        decreased = {int(e["base_offset"]) for e in log.events(EventKind.LEADER_EPOCH_DECREASE, replica=replica)}
        for run in runs(log.events(*kinds, replica=replica), "kind", "leader_epoch", "expected_leader_epoch"):
            e = run[0]
            down = e["kind"] == EventKind.LEADER_EPOCH_DECREASE
            if not down and int(e["base_offset"]) in decreased:
                continue
            yield log.at_event(
                "error",
                f"Leader epoch {e['leader_epoch']} in {plural(len(run), 'batch')} of {log.name} from offset "
                f"{e['base_offset']} on, "
                + (
                    f"after epoch {e['expected_leader_epoch']}"
                    if down
                    else f"but the checkpoint has {e['expected_leader_epoch']}"
                ),
                e,
                replica=replica,
                last_offset=run[-1]["last_offset"],
                evidence={"expected": e["expected_leader_epoch"], "found": e["leader_epoch"], "batches": len(run)},
                advice=repairs.refetch(log, replica),
            )


# Files that are missing by other files or a checkpoint.


EMPTY_LOG = "a broker that starts on this directory creates an empty log"
NOT_COPIED = "they may be deleted, moved, or missing from the copy"


def _of_one_disk(f: Finding) -> Hashable:
    return read(Evidence, f.evidence)["log_dir"]


def _all_missing(findings: Sequence[Finding]) -> str:
    why = NOT_COPIED if read(Evidence, findings[0].evidence).get("in_flight") else EMPTY_LOG
    names = few(f"{f.topic}-{f.partition}" for f in findings)
    return (
        f"All segment files (.log) of {plural(len(findings), 'partition')} ({names}) are missing, although "
        f"checkpoints, indexes or producer snapshots exist: {why}"
    )


@rule(
    "missing-segment",
    when={
        "critical": "if a checkpoint or a producer snapshot is above 0",
        "error": "if only an index of it remains",
        "info": "in a live directory, or if the log directory has no segment at all",
    },
    together=by_cause(_of_one_disk, _all_missing),
)
def missing_segment(log: LogView) -> Iterator[Finding]:
    """All segment files of a partition are missing

    Checks: a partition directory has no segment (.log), although the partition has a high watermark, recovery point or
    cleaner offset above 0, a producer snapshot, or an index. It is certain for a cleanly stopped broker, and with
    --whole for an in-sync replica. A copy by auditor copy is judged like its source directory.
    Why it matters: the records are lost, or were not copied. A broker that starts on the directory creates an empty log
    at offset 0 without a warning. As leader it makes its followers truncate theirs.
    Can be wrong: files that were not copied (info if the log directory has no segment at all). A topic was deleted or a
    partition moved during the copy: not reported if the metadata, or another log directory of the broker, shows that.
    What to do: do not start the broker on this directory. Find the cause: a clean-up job for *.log, or an exclude list
    of the copy. Restore the files from a backup, or make another in-sync replica lead before the broker starts.
    Source: LogLoader.load, LogManager.loadLog
    """
    for replica in log.replicas:
        if not _has_lost_all(log, replica):
            continue
        checkpoints = {name: value for name, value in _promises(replica).items() if value > 0}
        snapshots = sorted(link.offset for link in replica.snapshots if link.offset > 0)
        indexes = sorted({base for base, _ in replica.orphans})
        if not (checkpoints or snapshots or indexes):
            continue
        listed = log.cluster.whole or _was_listed(log, replica)
        known = _has_all_files(log, replica) or (listed and _is_in_sync(log, replica))
        shown = [f"the {name} is {value}" for name, value in checkpoints.items()]
        shown += [f"indexes of {_segments(indexes)} exist"] if indexes else []
        shown += [f"producer snapshots at {few(snapshots)} exist"] if snapshots else []
        yield log.finding(
            "critical" if checkpoints or snapshots else "error",
            f"All segment files (.log) of {log.name} are missing, although {', '.join(shown)}: "
            f"{EMPTY_LOG if known else NOT_COPIED}",
            replica=replica,
            offset=0,
            last_offset=max([0, *(v - 1 for v in checkpoints.values()), *(v - 1 for v in snapshots), *indexes]),
            evidence={
                "checkpoints": checkpoints or None,
                "indexes": [file for _, file in replica.orphans] or None,
                "snapshots": snapshots or None,
                "missing": None if known else f"the .log files of {log.name}, if not copied",
            },
            doubt=not known,
            advice=repairs.before_a_start(replica, RESTORE) if known else None,
        )


def _has_lost_all(log: LogView, replica: ReplicaFacts) -> bool:
    if replica.segments or replica.text or replica.live or replica.unread_from >= 0 or log.is_gone:
        return False
    cluster = log.cluster
    listed = log.topic == METADATA_TOPIC or (log.topic, log.partition) in cluster.replicas
    deleted = cluster.has_metadata and not listed
    moved = any(c.broker_id == replica.broker_id and c.segments for c in log.copies)
    return not (deleted or moved)


def _has_all_files(log: LogView, replica: ReplicaFacts) -> bool:
    # Of one moment. Files of a running broker may be deleted or moved while they are copied, even by auditor copy.
    if log.cluster.at_once:
        return True
    return log.at_rest(replica) and replica.log_dir not in log.cluster.without_segments


def _was_listed(log: LogView, replica: ReplicaFacts) -> bool:
    # By the list of a copy of the running broker, whose logs each have an active segment.
    listed = (replica.log_dir, log.topic, log.partition) in log.cluster.read_at
    return listed and replica.log_dir not in log.cluster.without_segments


def _is_in_sync(log: LogView, replica: ReplicaFacts) -> bool:
    in_sync = log.cluster.in_sync.get((log.topic, log.partition))
    return replica.broker_id in in_sync if in_sync is not None else not log.cluster.has_metadata


def _promises(replica: ReplicaFacts) -> dict[str, int]:
    values = {
        "high watermark": replica.high_watermark,
        "recovery point": replica.recovery_point,
        "cleaner offset": replica.cleaner_offset,
    }
    return {name: value for name, value in values.items() if value is not None}


def _segments(bases: Sequence[int]) -> str:
    return f"{'segment' if len(bases) == 1 else 'segments'} {few(bases)}"


@rule(
    "orphaned-index",
    when={
        "warning": "if its records were deleted before, or are in remote storage",
        "info": "in a live directory",
    },
)
def orphaned_index(log: LogView) -> Iterator[Finding]:
    """An index exists without its segment

    Checks: an .index, .timeindex or .txnindex has no .log of the same offset. It is certain for a cleanly stopped
    broker, and with --at-once. A copy by auditor copy is judged like its source directory.
    Why it matters: brokers rename and delete the files of a segment together, so something else removed the segment.
    Its records are lost without retention. The next start deletes the index, and with it the evidence.
    Can be wrong: a segment file that was not copied.
    What to do: keep a copy of the directory before the broker starts. Find the cause: a clean-up job for *.log, or an
    exclude list of the copy. Restore the file from a backup, or compare with the other replicas.
    Source: LogLoader.loadSegmentFiles; LogSegment.changeFileSuffixes
    """
    for replica in log.replicas:
        if not replica.segments:
            continue
        by_end: dict[int, list[tuple[int, str]]] = {}
        for orphan in replica.orphans:
            after = min((base for base in replica.segment_bases if base > orphan[0]), default=-1)
            by_end.setdefault(after, []).append(orphan)
        for end, files in by_end.items():
            yield _orphaned(log, replica, files, end)


def _orphaned(log: LogView, replica: ReplicaFacts, orphans: Sequence[tuple[int, str]], end: int) -> Finding:
    # ``end``: where the next segment begins, -1 for none.
    bases, files = sorted({base for base, _ in orphans}), [file for _, file in orphans]
    end = (
        end if end >= 0 else max([bases[-1] + 1, *_promises(replica).values(), *(s.offset for s in replica.snapshots)])
    )
    harmless = end <= replica.log_start and replica.log_start > replica.segment_bases[0]
    harmless |= set(bases) <= set(replica.segment_bases)  # in remote storage
    known = _has_all_files(log, replica)
    kinds = few(sorted({f".{file.rpartition('.')[2]}" for file in files}))
    return log.finding(
        "warning" if harmless else "error",
        f"{_segments(bases).capitalize()} of {log.name} {'is' if len(bases) == 1 else 'are'} missing (no .log file), "
        f"but {'its' if len(bases) == 1 else 'their'} {kinds} exist: "
        + (f"offsets {bases[0]} to {end - 1} were not removed by retention" if known else NOT_COPIED),
        replica=replica,
        offset=bases[0],
        last_offset=end - 1,
        file=files[0],
        evidence={"indexes": files, "missing_range": [bases[0], end - 1], "whole": known or None},
        doubt=not known,
        advice=None if harmless or not known else repairs.before_a_start(replica, RESTORE),
    )


# Checkpoints beyond the log end.


RESTORE = "restore the segment files from a backup, or make another in-sync replica lead before the broker starts"
OF_DIFFERENT_TIMES = " (files of a live directory may have different copy times)"


def _of_one_directory(f: Finding) -> Hashable:
    evidence = read(Evidence, f.evidence)
    return evidence["log_dir"] if evidence.get("in_flight") else None


def _all_beyond(findings: Sequence[Finding]) -> str:
    return f"Checkpoints of {plural(len(findings), 'partition')} are past the log end offset{OF_DIFFERENT_TIMES}"


@rule(
    "checkpoint-beyond-log-end",
    when={
        "critical": "for the high watermark",
        "info": "in a live directory",
    },
    together=by_cause(_of_one_directory, _all_beyond),
)
def checkpoint_beyond_log_end(log: LogView) -> Iterator[Finding]:
    """A checkpoint is past the log end offset

    Checks: the recovery point, the high watermark or the cleaner checkpoint is past the log end offset. Or the log
    start offset is past the high watermark.
    Why it matters: this replica lost its newest records. If it becomes leader, acknowledged records are lost.
    Can be wrong: the checkpoint was copied after the log (in a live directory; reported as in flight).
    What to do: compare with the other replicas before this one becomes leader.
    Source: UnifiedLog, LogManager (checkpoints)
    """
    for replica in log.replicas:
        if not replica.segments or _end_unknown(replica):
            continue
        hw = replica.high_watermark
        checks = [
            ("high watermark", hw, replica.log_end, "critical"),
            ("recovery point", replica.recovery_point, replica.log_end, "error"),
            ("cleaner checkpoint", replica.cleaner_offset, replica.log_end, "error"),
            ("log start", replica.own_start if hw is not None else None, hw, "error"),
        ]
        beyond = [
            (name, value, limit, sev)
            for name, value, limit, sev in checks
            if value is not None and value > (limit or 0)
        ]
        if beyond:
            yield _beyond(log, replica, beyond)


def _end_unknown(replica: ReplicaFacts) -> bool:
    lost = ("unreadable", "vanished", "limit", "batch_limit")
    return any(e.file == replica.segments[-1] and e.reason in lost for e in replica.errors)


def _beyond(log: LogView, replica: ReplicaFacts, beyond: list[tuple[str, int, int | None, str]]) -> Finding:
    name, value, limit, severity = beyond[0]
    live = not replica.clean_shutdown
    what = "high watermark" if name == "log start" else "log end"
    return log.finding(
        severity,
        f"The {name} of {log.name} is {value}, past its {what} {limit}"
        + (OF_DIFFERENT_TIMES if live else _lost_tail(name, replica)),
        replica=replica,
        offset=limit,
        last_offset=value,
        evidence={
            "checkpoints": {n: v for n, v, _, _ in beyond},
            "log_end": replica.log_end,
            "high_watermark": replica.high_watermark,
            **_perhaps_not_copied(replica),
        },
        doubt=live and not replica.unreadable,
        advice=repairs.compared(log, replica, limit or 0),
    )


def _lost_tail(name: str, replica: ReplicaFacts) -> str:
    if name == "log start":
        return ": brokers do not delete past it"
    return ": the end of this replica is lost" + (", or was not copied" if _perhaps_not_copied(replica) else "")


def _perhaps_not_copied(replica: ReplicaFacts) -> dict[str, str]:
    # The log ends like a segment that another one followed.
    if replica.log_end not in {link.offset for link in replica.snapshots}:
        return {}
    return {
        "confidence": "undecidable",
        "missing": f"perhaps the segment file {replica.log_end:020}.log, if not copied",
    }


# Bytes at the end of a segment that are not complete batches.


TAIL_REASONS = ("truncated", "zero_filled", "bad_size", "bad_magic", "bad_value")


def tails(replica: ReplicaFacts) -> dict[str, list[DecodeError]]:
    """Return by segment file the bytes at its end that are not complete batches, in pieces.

    A single complete batch of an unknown magic is not included: brokers skip it too.
    """
    sizes = {replica.segments[k]: scan.size for k, scan in enumerate(replica.scans)}
    out: dict[str, list[DecodeError]] = {}
    for e in sorted(replica.errors, key=lambda e: -e.position):
        begun = out.get(e.file)
        end = begun[-1].position if begun else sizes.get(e.file)
        if e.reason in TAIL_REASONS and end == e.position + e.length:
            out.setdefault(e.file, []).append(e)
    return {file: pieces[::-1] for file, pieces in out.items() if len(pieces) > 1 or not is_whole(pieces[0])}


def is_whole(error: DecodeError) -> bool:
    """Whether the bytes are one complete batch of an unknown magic."""
    return error.reason == "bad_magic" and not error.detail.endswith(BREAKS_OFF)


# Damaged header fields that the checksum does not cover: base offset, length, leader epoch and magic. Other findings
# about such a batch use the values that fit.


OFFSET, EPOCH, LENGTH, MAGIC = "base offset", "leader epoch", "length", "magic"


def damaged_fields(log: LogView, severity: str, *names: str, **evidence: object) -> Iterator[Finding]:
    """Yield a rule's findings about damaged header fields, one per batch."""
    for replica in log.replicas:
        for error in replica.errors:
            field = DamagedField.of(error)
            if field is not None and field.name in names and error.last_offset >= replica.log_start:
                yield _damaged_field(log, severity, replica, error, field, evidence)


def _damaged_field(
    log: LogView,
    severity: str,
    replica: ReplicaFacts,
    error: DecodeError,
    field: DamagedField,
    evidence: Fields,
) -> Finding:
    likely = "" if field.sure else "probably "
    moved = field.stored - field.expected if field.name == OFFSET else 0
    return log.finding(
        severity,
        f"A batch of {log.name} at byte {error.position} of {error.file} has a damaged {field.name}: {field.stored}, "
        f"{likely}{field.expected} before (its checksum is valid, and does not cover this field). "
        f"{_consequence(field)}",
        replica=replica,
        file=error.file,
        position=error.position,
        offset=error.first_offset + moved,
        last_offset=None if field.name == MAGIC else error.last_offset + moved,
        **_producer(log, field),
        evidence={
            "field": field.name.replace(" ", "_"),
            "found": field.stored,
            "expected": field.expected,
            "batches": 1,
            "bytes": error.length,
            "confidence": "proved" if field.sure else "likely",
            **evidence,
        },
        advice=repairs.refetch(log, replica),
    )


def _producer(log: LogView, field: DamagedField) -> Fields:
    # As other findings of the rule have it.
    if field.producer_id < 0 or field.name in (LENGTH, MAGIC):
        return {}
    owner = log.owner(field.producer_id)
    return {"producer_id": field.producer_id, "producer_epoch": field.producer_epoch, "transactional_id": owner}


def _consequence(field: DamagedField) -> str:
    # FileLogInputStream, ByteBufferLogInputStream, LogSegment.recover.
    if field.name == OFFSET:
        if field.stored < field.expected:
            return "Consumers skip its records, and followers refuse it"
        return "Consumers continue after these offsets, and followers refuse the next batches"
    if field.name == EPOCH:
        return "Followers and consumers that fetch it adopt the epoch, and truncate by it"
    if field.name == MAGIC:
        return "Consumers fail here" + (", and a recovery truncates the log here" if field.stored in (0, 1) else "")
    return "Brokers find no batch after it, consumers cannot get past it, and a recovery truncates the log here"
