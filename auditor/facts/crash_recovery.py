"""Predict how a broker starts from a log directory after a crash."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from types import MappingProxyType
from typing import NamedTuple

from auditor.base.at_rest import Fields
from auditor.base.errors import StartFile, is_damage
from auditor.base.words import plural
from auditor.facts.events import EventKind, events_of
from auditor.facts.replica_facts import ReplicaFacts

MAX_SHOWN = 100  # fatal batches of one log
PLAIN = "a plain batch inside an open transaction of the same producer"
UNKNOWN_TYPE = "a marker of unknown control type"
REFUSED = "an offset that the rebuilt index refuses, in a segment without .index"
TWICE = "a partition directory in two log directories of one broker"
ALWAYS_SCANNED = "__cluster_metadata"  # KafkaMetadataLog opens it as if after a crash, from offset 0


# What a start reads besides batches, in the order of a broker, and what becomes of it where a file is not as it should
# be. Source: KafkaRaftServer, SharedServer, LogManager, LogLoader, ReplicaManager; most were tried on brokers
# (tests/data/starts).

ENDS, FAILS, LOST, REBUILT = "broker ends", "log directory fails", "partition lost", "rebuilt"
STOPS = (ENDS, FAILS)
LEADER_EPOCHS, METADATA_LOG, TOPIC_ID = "leader-epoch-checkpoint", "metadata-log", "topic-id"
HOLE, TAIL = "hole", "tail"  # of the last segment, after a clean stop


class StartKind(NamedTuple):
    """Files of one kind: what a start does if one is damaged, and how it is repaired with the broker stopped."""

    kind: str
    outcome: str
    why: str
    repair: str


_MOVE = "move it out of the log directory: "
READS: tuple[StartKind, ...] = (
    StartKind("meta.properties", ENDS, "without cluster.id and node.id the directory counts as not formatted",
              "write it again, as in a copy: version, cluster.id, node.id, and directory.id if it had one"),
    StartKind("bootstrap.checkpoint", ENDS, "it does not decode",
              _MOVE + "it is read at the first start only"),
    StartKind("quorum-state", ENDS, "it does not decode",
              _MOVE + "the controller begins without its vote; in a quorum, only while a majority of the others runs"),
    StartKind("checkpoint", ENDS, "the newest checkpoint of __cluster_metadata is not whole",
              _MOVE + "an older one is read, or the log where it begins at offset 0; otherwise copy it from another "
              "controller"),
    StartKind(METADATA_LOG, LOST, "a controller alone starts with the metadata that it can still read",
              "restore __cluster_metadata-0 from another controller or from a backup before the start"),
    StartKind("folder", ENDS, "its name is not TOPIC-N",
              "move the directory out of the log directory; of a volume with lost+found, set log.dirs to a directory "
              "below the mount point"),
    StartKind("recovery-point-offset-checkpoint", FAILS, "it does not decode", _MOVE + "it is written again"),
    StartKind("log-start-offset-checkpoint", FAILS, "it does not decode",
              _MOVE + "it is written again; records below a log start that DeleteRecords set are readable again"),
    StartKind("partition.metadata", FAILS, "it does not decode",
              "write it again: a line version: 0 and a line topic_id: ID, with the id of the topic in the metadata"),
    StartKind(LEADER_EPOCHS, FAILS, "it does not decode", _MOVE + "its entries are rebuilt from batches"),
    StartKind("number", ENDS, "its name does not begin with an offset", _MOVE + "it is no file of the partition"),
    StartKind(TAIL, ENDS, "after a clean stop the last segment is not recovered, and its end is no batch",
              "move .kafka_cleanshutdown out of the log directory: a start then cuts what is no batch"),
    StartKind(HOLE, ENDS, "after a clean stop the last segment is not recovered, and bytes in it are no batch",
              "copy the partition directory, then move .kafka_cleanshutdown out of the log directory: a start then "
              "cuts the segment there, with the batches behind"),
    StartKind("snapshot", REBUILT, "it is rebuilt from batches", ""),
    StartKind("index", REBUILT, "it is rebuilt from batches", ""),
    StartKind(TOPIC_ID, LOST, "its topic id is not in the metadata: it is renamed -stray",
              "find out which of the two is right before the start"),
    StartKind("replication-offset-checkpoint", FAILS, "it does not decode",
              _MOVE + "it is written again; high watermarks begin at the log start until followers fetch"),
    StartKind("cleaner-offset-checkpoint", FAILS, "it does not decode",
              _MOVE + "it is written again; compacted logs are cleaned from their start"),
)  # fmt: skip
_KINDS = MappingProxyType({kind.kind: (number, kind) for number, kind in enumerate(READS)})
NO_ID = "missing: without a topic id it is renamed -stray, and an empty one is made"
NULL = "an empty one ends the broker whatever other log directories it has"


class StartStep(NamedTuple):
    """What a start does at a file."""

    file: str
    kind: str
    outcome: str
    why: str
    repair: str

    @property
    def says(self) -> str:
        """The file and what becomes of it, for people."""
        return f"{self.file} ({self.outcome}: {self.why})"


def start_steps(files: Iterable[StartFile], *, kraft: bool) -> list[StartStep]:
    """What a start does at files that are not as they should be, in the order in which it reads them."""
    steps = [(_KINDS[file.kind][0], _step(file, kraft=kraft)) for file in files]
    return [step for _, step in sorted(steps, key=lambda item: (item[0], item[1].file))]


def _step(file: StartFile, *, kraft: bool) -> StartStep:
    kind = _KINDS[file.kind][1]
    outcome, why = kind.outcome, f"{file.state}: {kind.why}"
    if file.kind == "partition.metadata" and file.state == "missing":
        outcome, why = (LOST, NO_ID) if kraft else (REBUILT, "it is written again")
    elif file.kind == "partition.metadata" and file.state == "empty":
        outcome, why = ENDS, NULL
    elif file.kind == "meta.properties" and not kraft:
        outcome, why = REBUILT, "it is written again"
    elif file.state == "name" or file.kind in (METADATA_LOG, TOPIC_ID, TAIL, HOLE):
        why = kind.why
    return StartStep(file.file, file.kind, outcome, why, kind.repair)


# Kinds of files in partition directories.
OF_LOGS = ("partition.metadata", LEADER_EPOCHS, "number", TAIL, HOLE, TOPIC_ID)


def joined(steps: Sequence[StartStep], runs: Iterable[Fields]) -> list[StartStep]:
    """The steps of a log directory, with those that only the dry runs of its logs have."""
    own = [StartStep(*step) for run in runs for step in run.get("steps", ())]
    return sorted({*steps, *own}, key=lambda step: (_KINDS[step.kind][0], step.file))


def own_files(replica: ReplicaFacts) -> list[StartFile]:
    """Of a replica, what a start meets in files that were read with its log."""
    name = f"{replica.folder}/{LEADER_EPOCHS}"
    files = [StartFile(name, LEADER_EPOCHS, "damaged")] if _damaged(replica, name) else []
    refused = replica.scans[-1].refused if replica.scans and replica.clean_shutdown else -1
    if refused >= 0 and replica.topic != ALWAYS_SCANNED:
        file, size = replica.segments[-1], replica.scans[-1].size
        hole = any(e.file == file and e.position <= refused < e.position + e.length < size for e in replica.errors)
        files.append(StartFile(file, HOLE if hole else TAIL, "damaged"))
    return files


def _damaged(replica: ReplicaFacts, name: str) -> bool:
    return any(e.file == name and is_damage(e) for e in replica.errors)


def dry_run(replica: ReplicaFacts, recovery_point: int = 0) -> Fields | None:
    """Predict a start of one replica that scans from ``recovery_point`` on; None for text, which has no bytes.

    ``log_end_after`` and ``last_stable_offset_after``: offsets, the latter once the high watermark is at the log end.
    ``truncates``: each cut with file, byte, offset and loss; ``deletes``: segments renamed ``.deleted``, with their
    indexes; ``poison``: what makes the start fail; ``undecided``: what is unknown; ``says``: a summary sentence.
    """
    if replica.text or not replica.scans:
        return None
    first = _first_scanned(replica, recovery_point)
    end, truncates, segments_left = _cuts(replica, first)
    fatal = _fatal(replica, first, segments_left)
    deletes = [replica.segments[k] for k in range(segments_left, len(replica.scans))]
    if end < replica.log_start:  # LogLoader.deleteSegmentsIfLogStartGreaterThanLogEnd
        deletes, end = replica.segments[_first_local(replica) :], replica.log_start
    result = {
        "topic": replica.topic,
        "partition": replica.partition,
        "starts": not fatal,
        "log_end": replica.log_end,
        "log_end_after": end,
        "last_stable_offset_after": _last_stable_offset(replica, end, everything=first == _first_local(replica)),
        "truncates": truncates,
        "deletes": deletes,
        "poison": fatal,
        "undecided": [
            f"{replica.segments[k]}: {s.undecided}"
            for k, s in enumerate(replica.scans)
            if s.undecided and _scanned(replica, k, first)
        ]
        + _unread(replica, recovery_point),
    }
    return result | {"says": _says(result)}


def both_runs(replica: ReplicaFacts, twin: str | None = None, steps: Sequence[StartStep] = ()) -> Fields | None:
    """Return the dry run that scans everything, with the one from the recovery point if it differs.

    ``from_recovery_point``: that run, otherwise None. ``twin``: another log directory of its broker with the same
    partition, which makes every start fail; ``steps``: what a start does at its other files.
    """
    full = dry_run(replica)
    if full is None:
        return None
    point = 0 if replica.topic == ALWAYS_SCANNED else replica.recovery_point or 0
    plain = full if _first_scanned(replica, point) == _first_scanned(replica, 0) else dry_run(replica, point)
    if twin is not None:
        why = f"{TWICE} (the other: {twin}),"
        full, plain = (_failed_start(replica, run, replica.folder, why) for run in (full, plain or full))
    for step in steps:
        if step.outcome in STOPS:
            full, plain = (_failed_start(replica, run, step.file, step.says) for run in (full, plain or full))
    own = {"steps": [list(step) for step in steps if step.outcome in STOPS]} if steps else {}
    return full | own | {"recovery_point": point, "from_recovery_point": None if plain == full else plain}


def _failed_start(replica: ReplicaFacts, run: Fields, file: str, why: str) -> Fields:
    # The start fails whatever else it does to the log.
    fatal = _poison(replica, file, None, None, -1, why)
    run = run | {"starts": False, "poison": [fatal, *run["poison"]]}
    return run | {"says": _says(run)}


def directory(
    log_dir: str,
    runs: list[Fields],
    clean_shutdown: bool,
    steps: Sequence[StartStep] = (),
    next_release: Sequence[str] = (),
) -> Fields:
    """Combine the dry runs of a log directory's logs (:func:`both_runs`).

    ``steps``: what a start does at files other than segments; ``next_release``: what a newer release refuses.
    """
    full = _together(runs)
    plain = _together([run["from_recovery_point"] or run for run in runs])
    stops = [step for step in steps if step.outcome in STOPS]
    full["starts"], plain["starts"] = (run["starts"] and not stops for run in (full, plain))
    says = _says_of_files(stops, full) if stops else _says_of_scans(full, plain, clean_shutdown)
    if lost := [step for step in steps if step.outcome == LOST]:
        more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        says += f". A start loses {lost[0].says}{more}"
    by_kind = {step.kind for step in steps}
    reads = [{"kind": k.kind, "file": None, "outcome": "as expected"} for k in READS if k.kind not in by_kind]
    reads += [step._asdict() for step in steps[:MAX_SHOWN]]
    reads.sort(key=lambda row: _KINDS[str(row["kind"])][0])
    repairs = [f"{step.file}: {step.repair}" for step in steps[:MAX_SHOWN] if step.repair]
    row = {"log_dir": log_dir, **full, "from_recovery_points": plain, "clean_shutdown": clean_shutdown}
    return row | {"reads": reads, "repairs": repairs, "next_release": list(next_release), "says": says}


def _says_of_files(stops: Sequence[StartStep], full: Fields) -> str:
    more = f", and at {len(stops) - 1} more" if len(stops) > 1 else ""
    says = f"A start stops at {stops[0].says}{more}"
    if full["truncates"]:
        records = sum(t["records"] for t in full["truncates"])
        says += f"; once repaired, a scan of every segment cuts {plural(len(full['truncates']), 'log')} and loses "
        says += plural(records, "readable record")
    return says


def _says_of_scans(full: Fields, plain: Fields, clean_shutdown: bool) -> str:
    says = f"After a crash, if every segment is scanned, a current broker {_outcome(full)}"
    if plain != full:
        says += f"; if the recovery points stand as they are, it {_outcome(plain)}"
    if clean_shutdown:
        says += "; it was stopped cleanly, so a start now scans nothing"
        says += " and ends all the same" if any(p["offset"] is None for p in full["poison"]) else ""
    return says


def _together(runs: list[Fields]) -> Fields:
    joined = {name: [item for run in runs for item in run[name]] for name in ("truncates", "poison", "undecided")}
    return {"starts": not joined["poison"], **joined}


def _outcome(runs: Fields) -> str:
    cuts, fatal = runs["truncates"], runs["poison"]
    words = "would start" if runs["starts"] else f"would not start: {_fatal_words(fatal)}"
    if cuts:
        records = sum(t["records"] for t in cuts)
        words += " and" if runs["starts"] else "; it would"
        words += f" cut {plural(len(cuts), 'log')} and lose {plural(records, 'readable record')}"
    return words + (" (not all could be decided)" if runs["undecided"] else "")


def _fatal_words(fatal: list[Fields]) -> str:
    p = fatal[0]
    more = f", and {len(fatal) - 1} more" if len(fatal) > 1 else ""
    where = "" if p["offset"] is None else f" at offset {p['offset']}"
    return f"{p['why']} in {p['topic']}-{p['partition']}{where}{more}"


def _says(run: Fields) -> str:
    parts = []
    if run["poison"]:
        parts.append(f"keeps a current broker from starting: {_fatal_words(run['poison'])}")
    for cut in run["truncates"]:
        parts.append(
            f"is cut at offset {cut['offset']} (byte {cut['position']} of {cut['file']}, {cut['reason']}): "
            f"{plural(cut['bytes'], 'byte')} and {plural(cut['records'], 'readable record')} lost"
        )
    if run["deletes"]:
        parts.append(f"{plural(len(run['deletes']), 'segment')} renamed .deleted")
    return f"{run['topic']}-{run['partition']}: " + ("; ".join(parts) or "nothing is cut")


def _scanned(replica: ReplicaFacts, number: int, first: int) -> bool:
    # A segment without .index is recovered whatever the recovery point; one in remote storage never.
    return number >= first or (number >= _first_local(replica) and not replica.scans[number].indexed)


def _first_local(replica: ReplicaFacts) -> int:
    return bisect_left(replica.segment_bases, replica.local_start) if replica.local_start >= 0 else 0


def _first_scanned(replica: ReplicaFacts, recovery_point: int) -> int:
    return max(_first_local(replica), bisect_right(replica.segment_bases, recovery_point) - 1)


def _unread(replica: ReplicaFacts, recovery_point: int) -> list[str]:
    if replica.unread_from < 0 or recovery_point >= replica.log_start:
        return []
    return [f"{replica.topic}-{replica.partition}: the segments below offset {replica.log_start} were not read"]


def _cuts(replica: ReplicaFacts, first: int) -> tuple[int, list[Fields], int]:
    cuts, end = [], 0
    for number, scan in enumerate(replica.scans):
        end = scan.next_offset
        if scan.cut < 0 or not _scanned(replica, number, first):
            continue
        # A missing .index has the segment recovered before recoverLog looks, which then finds nothing to cut there.
        behind = replica.scans[number + 1 :] if scan.indexed else []
        end = scan.cut_offset
        cuts.append(
            {
                "topic": replica.topic,
                "partition": replica.partition,
                "file": replica.segments[number],
                "position": scan.cut,
                "offset": end,
                "reason": scan.cut_reason,
                "bytes": scan.size - scan.cut + sum(s.size for s in behind),
                "records": scan.records - scan.cut_records + sum(s.records for s in behind),
                "deletes": replica.segments[number + 1 :] if scan.indexed else [],
            }
        )
        if scan.indexed:
            return end, cuts, number + 1
    return end, cuts, len(replica.scans)


def _fatal(replica: ReplicaFacts, first: int, segments_left: int) -> list[Fields]:
    # Batches whose exception nothing catches, among those that are scanned or replayed.
    replayed_from = _state_base(replica, first)
    batches = []

    def add(number: int, position: int, offset: int, producer: int, why: str) -> None:
        reached = _scanned(replica, number, first) or (number >= _first_local(replica) and offset >= replayed_from)
        if number < segments_left and reached:
            batches.append(_poison(replica, replica.segments[number], position, offset, producer, why))

    for number, scan in enumerate(replica.scans):
        for position, offset, producer, kind in scan.fatal:
            add(number, position, offset, producer, f"{UNKNOWN_TYPE} {kind}")
        if scan.cut_reason == "offsets_not_increasing" and not scan.indexed:
            add(number, 0, scan.base_offset, -1, REFUSED)
    for e in itertools.islice(events_of(replica.events, EventKind.PLAIN_IN_TRANSACTION), MAX_SHOWN):
        if not 0 <= replica.scans[e["segment"]].cut <= e["position"]:
            add(e["segment"], e["position"], e["base_offset"], e["producer_id"], PLAIN)
    return sorted(batches, key=lambda p: (p["file"], p["position"]))[:MAX_SHOWN]


def _poison(
    replica: ReplicaFacts, file: str, position: int | None, offset: int | None, producer_id: int, why: str
) -> Fields:
    where = {"topic": replica.topic, "partition": replica.partition, "file": file}
    return where | {"position": position, "offset": offset, "producer_id": producer_id, "why": why}


def _state_base(replica: ReplicaFacts, first: int) -> int:
    # The newest snapshot below the first scanned segment, or the log start.
    below = [
        s.offset
        for s in replica.snapshots
        if s.readable and replica.log_start < s.offset <= replica.segment_bases[first]
    ]
    return max(below, default=replica.log_start)


def _last_stable_offset(replica: ReplicaFacts, end: int, *, everything: bool) -> int:
    # A full scan drops the snapshots, and so the state, of segments before the one with the log start.
    t = replica.transactions
    if not len(t):
        return end
    is_open = (t["first_offset"] >= 0) & (t["first_offset"] < end)
    is_open &= (t["marker_offset"] < 0) | (t["marker_offset"] >= end)
    if everything and replica.unread_from < 0:
        known_from = replica.segment_bases[_first_scanned(replica, replica.log_start)]
        is_open &= (t["from_snapshot"] == 0) & (t["last_offset"] >= known_from)
    firsts = t["first_offset"][is_open]
    return min(end, max(int(firsts.min()), replica.own_start)) if len(firsts) else end
