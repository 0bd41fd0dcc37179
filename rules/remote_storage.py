"""Rules on tiered storage (KIP-405): what the metadata says of a log's remote part against its local one."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from auditor.base.remote_segments import RemotePartition, RemoteSegment, State, holes
from auditor.base.words import plural
from auditor.facts.replica_facts import ReplicaFacts
from auditor.rules.catalogue.needs import Need
from auditor.rules.catalogue.registry import rule
from auditor.rules.seen.cluster_view import HOUR_MS
from auditor.rules.seen.finding import Finding, iso
from auditor.rules.seen.view import LogView

FAMILY = "tiered storage"
SHOWN = 20  # segments that a finding lists


@rule(
    "remote-log-gap",
    family=FAMILY,
    severities={"error": "", "info": "while the metadata may have been copied before the log"},
    outcomes={"lost": ""},
    needs=(Need.REMOTE,),
)
def remote_log_gap(log: LogView) -> Iterator[Finding]:
    """Offsets of a tiered log are neither local nor in remote storage

    Checks: from the log start offset to the first local segment every offset has to lie in a segment whose copy is
    finished by __remote_log_metadata and not deleted, with leader epochs as in the log's own leader-epoch-checkpoint.
    Segments may overlap, as they do after a change of leader. Not judged where records of that topic are missing.
    Why it matters: a consumer that comes to such an offset gets an error or is sent elsewhere by auto.offset.reset: the
    records are lost to it, although the log start offset says that they are there.
    Can be wrong: of running brokers, what lies right below the first local segment: it may have been copied and taken
    away after the metadata was read (then info).
    What to do: find out whether a replica still has the offsets locally and keep its folder before retention takes it;
    look for segments of them in the remote storage, and in the brokers' logs for errors of the RemoteStorageManager;
    move no group beyond them before that.
    Source: KIP-405; RemoteLogManager
    """
    remote, replica = log.remote, log.leader
    if remote is None or not remote.whole or not replica.log_start_known or replica.local_start < 0:
        return
    for first, behind in holes(remote.finished(replica.leader_epochs), replica.own_start, replica.local_start):
        at_rest = remote.clean and replica.clean_shutdown
        late = behind == replica.local_start and not at_rest
        yield _gap(log, remote, first, behind - 1, late)


def _gap(log: LogView, remote: RemotePartition, first: int, last: int, late: bool) -> Finding:
    there = [s for s in remote.segments.values() if s.start_offset <= last and s.end_offset >= first]
    holders = [c.log_dir for c in log.replicas if 0 <= c.local_start <= first and c.log_end > last]
    elsewhere = f"; {', '.join(holders)} still has them" if holders else ""
    return log.finding(
        "remote-log-gap",
        "error",
        f"Offsets {first} to {last} of {log.name} ({last + 1 - first}) lie below its first local segment at "
        f"{log.leader.local_start}, and no segment in remote storage has them{elsewhere}"
        + (" (__remote_log_metadata may have been copied before the log)" if late else ""),
        offset=first,
        last_offset=last,
        evidence={
            "log_start": log.leader.own_start,
            "local_log_start": log.leader.local_start,
            "missing_range": [first, last],
            "segments_there": [_described(s) for s in there[:SHOWN]],
            "local_copies": holders or None,
            "missing": "a later copy of __remote_log_metadata" if late else None,
        },
        doubt=late,
    )


def _described(s: RemoteSegment) -> dict[str, object]:
    return {
        "segment_id": s.segment_id,
        "offsets": [s.start_offset, s.end_offset],
        "state": State(s.state).name if s.state in list(State) else s.state,
        "leader_epochs": [list(pair) for pair in s.leader_epochs],
        "broker_id": s.broker_id,
        "changed": iso(s.changed_at),
    }


@rule("remote-segment-leftover", family=FAMILY, severities={"info": ""}, time=True, needs=(Need.REMOTE,))
def remote_segment_leftover(log: LogView) -> Iterator[Finding]:
    """Remote storage holds segments that the log does not use

    Checks: by __remote_log_metadata, for an hour or longer: a copy that was begun and neither finished nor deleted, a
    deletion that was begun and not finished, a segment whose leader epochs are not the log's (of a leader whose tail
    was cut), a second segment of the same offsets.
    Why it matters: readers never see them, but they are stored and paid for. Deletions that do not end also point to a
    RemoteStorageManager that fails.
    Can be wrong: legal after a broker was killed while it copied, and after unclean elections; a slow storage.
    What to do: look for errors of the RemoteStorageManager in the log of the broker that the segment names; brokers
    delete what is left over together with the topic, newer ones by retention too.
    Source: KIP-405; RemoteLogSegmentState, RemoteLogManager
    """
    remote = log.remote
    if remote is None:
        return
    old = [s for s in remote.segments.values() if log.cluster.as_of - s.changed_at > HOUR_MS]
    kinds = {
        "copies that were never finished": [s for s in old if s.state == State.COPY_SEGMENT_STARTED],
        "deletions that were never finished": [s for s in old if s.state == State.DELETE_SEGMENT_STARTED],
        "segments of other leader epochs": _of_others(old, log.leader),
        "segments that were copied twice": _twice(old),
    }
    for kind, found in kinds.items():
        if found:
            yield log.finding(
                "remote-segment-leftover",
                "info",
                f"Remote storage of {log.name}: {plural(len(found), 'segment')} ({sum(s.size for s in found):,} bytes) "
                f"that nobody reads: {kind}",
                offset=min(s.start_offset for s in found),
                last_offset=max(s.end_offset for s in found),
                time_ms=max(s.changed_at for s in found),
                evidence={"kind": kind, "segments": [_described(s) for s in found[:SHOWN]], "count": len(found)},
            )


def _of_others(segments: Iterable[RemoteSegment], replica: ReplicaFacts) -> list[RemoteSegment]:
    finished = (s for s in segments if s.state == State.COPY_SEGMENT_FINISHED)
    return [s for s in finished if not s.is_of(replica.leader_epochs)]


def _twice(segments: Iterable[RemoteSegment]) -> list[RemoteSegment]:
    """Finished segments with the same offsets and leader epochs as a later one."""
    last: dict[object, RemoteSegment] = {}
    out = []
    finished = (s for s in segments if s.state == State.COPY_SEGMENT_FINISHED)
    for s in sorted(finished, key=lambda s: s.record_offset):
        at = (s.start_offset, s.end_offset, s.leader_epochs)
        if at in last:
            out.append(last[at])
        last[at] = s
    return out


@rule(
    "remote-copy-behind",
    family=FAMILY,
    severities={"warning": "", "info": "where only the producers' clocks tell how long"},
    needs=(Need.REMOTE,),
)
def remote_copy_behind(log: LogView) -> Iterator[Finding]:
    """Closed segments of a tiered log wait to be copied

    Checks: local segments behind which another one begins, below the last stable offset, that no finished remote
    segment has an hour after the log went beyond them. Not judged where remote.copy.disable is set.
    Why it matters: brokers delete no local segment before it is copied, whatever local.retention.* says: the disk fills
    up, and what is not copied is lost with the replicas.
    Can be wrong: the storage or its quota (remote.log.manager.copy.max.bytes.per.second) is slow after a burst.
    What to do: look at RemoteCopyLagSegments and RemoteCopyErrorsPerSec of the leader, and in its log for errors of the
    RemoteLogManager or the RemoteStorageManager.
    Source: KIP-405, KIP-963
    """
    remote, replica = log.remote, log.leader
    if remote is None or not remote.whole or log.cluster.setting(log.topic, "remote.storage.enable") != "true":
        return
    if log.cluster.setting(log.topic, "remote.copy.disable") == "true" or replica.local_start < 0:
        return
    waiting = _waiting(log, remote)
    if not waiting:
        return
    first, behind = waiting[0][0], waiting[-1][1]
    waited, proved = _waited(log, waiting[0][1])
    if waited > HOUR_MS:
        yield log.finding(
            "remote-copy-behind",
            "warning" if proved else "info",
            f"{plural(len(waiting), 'closed segment')} of {log.name} (offsets {first} to {behind - 1}) "
            f"{'is' if len(waiting) == 1 else 'are'} not in remote storage {waited // HOUR_MS} h after the log went on",
            offset=first,
            last_offset=behind - 1,
            evidence={
                "segments": len(waiting),
                "waited_ms": waited,
                "copied_last": iso(max((s.changed_at for s in remote.finished()), default=-1)),
                "confidence": "proved" if proved else "likely",
            },
        )


def _waiting(log: LogView, remote: RemotePartition) -> list[tuple[int, int]]:
    """The offsets, (first, behind the last), of closed local segments below the last stable offset with a hole in the
    remote log."""
    replica, rows = log.leader, log.leader.transactions
    open_from = rows["first_offset"][(rows["marker_offset"] < 0) & (rows["first_offset"] >= 0)]
    stable = min([log.high_watermark, *open_from.tolist()])
    finished = remote.finished(replica.leader_epochs)
    local = [base for base in replica.segment_bases if base >= replica.local_start]
    closed = [(max(a, replica.own_start), b) for a, b in itertools.pairwise(local) if b <= stable]
    return [(a, b) for a, b in closed if a < b and any(holes(finished, a, b))]


def _waited(log: LogView, behind: int) -> tuple[int, bool]:
    """How long in ms the log has gone on behind an offset, at the newest time that brokers wrote, and whether a
    broker's clock says so: that of a marker behind it, not of a transaction that was open across it."""
    rows = log.leader.transactions
    later = rows[rows["marker_offset"] >= behind]
    across = later["marker_timestamp"][later["first_offset"] < behind]
    if len(later):
        since = max(int(later["marker_timestamp"].min()), *across.tolist(), -1)
        return log.cluster.newest_time - since, True
    times = [t for base, t in zip(log.leader.segment_bases, log.leader.segment_times, strict=False) if base >= behind]
    since = min((log.time(t) for t in times if t >= 0), default=log.cluster.newest_time)
    return log.cluster.newest_time - since, False
