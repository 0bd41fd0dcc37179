"""Copy PATHs to a target, directory by directory."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from auditor.base.at_rest import Values
from auditor.base.errors import DEFAULT_LIMITS, AuditInputError, DecodeError, Limits, attempt, failure, is_unread
from auditor.base.evidence_keys import Evidence, read
from auditor.base.user_input import is_internal
from auditor.connectors import kafka_names
from auditor.connectors.codec.blanking import COPIED, Blanks
from auditor.connectors.codec.small_files import MetaProperties, audited_settings, decode_meta_properties
from auditor.connectors.kafka_names import COPY_LIST_1, METADATA_TOPIC
from auditor.connectors.logdir.copy_format import CopyTimes, FolderList, Listed, Stat
from auditor.connectors.logdir.copy_view import CopyView
from auditor.connectors.logdir.files import LogDir
from auditor.connectors.logdir.internal_rows import CONSUMER_OFFSETS, TRANSACTION_STATE
from auditor.connectors.logdir.inventory import written_over
from auditor.connectors.stores import remote_files, results, storage
from auditor.connectors.stores.retries import ignore
from auditor.connectors.stores.storage import StorageLocation, read_data, read_file
from auditor.connectors.tables.rows import FilePiece, How, metadata_records
from auditor.copying.copy_job import ALL, BUDGET, BUDGET_BYTES, CopyJob, CopyResult, FolderDone, Part, check_apart
from auditor.copying.folders import (
    Folders,
    InputFolder,
    boot_id,
    locked_by_broker,
    now_ms,
    readings,
    retained_segments,
    stat_and_size,
)
from auditor.copying.taken_segments import EarlierUnreadable, SegmentsTaken, convert, segments_first
from auditor.copying.target import FolderTarget, StoreTarget, Target
from auditor.evidence.cluster_clocks import by_a_client
from auditor.model.transaction_states import partition_for
from auditor.pipeline.whole_audit import Audit
from auditor.replay.reading.record_sums import SummedBatches
from auditor.transactions.record import BlockedState

# One directory: unchanged files are kept, of grown segments the end is read, all else is read again.


NOT_TAKEN = ("deleted", "cleaned", "part")  # states of files that no broker opens again
RACY_NS = 2_000_000_000  # a file that changed so shortly before it was read may change again under the same times
REPLACED = "the broker replaced it, or its segment, while both were read"
_TOP = frozenset({kafka_names.META, kafka_names.CLEAN_SHUTDOWN, *kafka_names.CHECKPOINT_KINDS})
_WHOLE = frozenset(
    {
        *kafka_names.INDEX_KINDS,
        "snapshot",
        kafka_names.LEADER_EPOCHS,
        kafka_names.PARTITION_METADATA,
        kafka_names.QUORUM_STATE,
    }
)


class OneFolder:
    """Copies one directory."""

    def __init__(
        self,
        target: Target,
        folder: InputFolder,
        limits: Limits,
        whole: Callable[..., bool] = lambda _size, **_: True,
        *,
        records: bool = False,
        keep_ms: int | None = None,
        ignore_earlier: bool = False,
        sum_key: bytes | None = None,
    ) -> None:
        """``whole``: whether a number of bytes of a segment are read, or headers alone (:meth:`Checksums.now`).
        ``records``: also take summaries of records, as for segments of which an earlier copy has them. ``keep_ms``:
        how long to retain what the broker deleted; None: retain what is retained until its time, and nothing more.
        ``ignore_earlier``: without what an earlier copy has. ``sum_key``: also take sums of records, under this key."""
        self.keep_ms = keep_ms
        self.target, self.folder, self.limits, self.whole = target, folder, limits, whole
        self.records = records and folder.topic != METADATA_TOPIC  # its records are copied anyway
        internal = folder.topic if folder.topic in COPIED else None
        self.before = None if ignore_earlier else target.list_of(folder.name)
        sums = None
        if sum_key is not None and folder.topic is not None and internal is None and self.records:
            sums = SummedBatches(sum_key, limits, folder.topic)
        self.summed = "" if sums is None else sums.summer.name
        if self.before is not None and self.before.summed != self.summed:
            self.before = None
        self.old = {item.name: item for item in self.before.files} if self.before is not None else {}
        blanks = Blanks(internal, limits) if internal else sums
        self.segments = SegmentsTaken(target, folder.name, limits, blanks, self.before, records=self.records)
        self.reread: set[str] = set()  # segments that were read from their start
        self.closed = folder.closed()
        self.stats: dict[str, Stat | None] = {}  # of each file right before it was read
        self.moved: set[str] = set()  # files that were replaced since
        self.fresh = False  # whether anything had to be read

    def take(self, done: CopyResult) -> None:
        """Copy its files, then replace the directory's file atomically. Errors: ``OSError`` of the target."""
        with contextlib.closing(self.segments):
            self._take(done)

    def _take(self, done: CopyResult) -> None:
        folder, segments = self.folder, self.segments
        names = sorted(folder.files, key=segments_first)
        items = [self._contained(name, folder.files[name]) for name in names]
        retained = {item.name: item for item in retained_segments(folder, self.old, items, self.keep_ms, now_ms())}
        for item in retained.values():
            if item.taken is not None:
                segments.carry(item.name, item.taken, held=True)
        segment_rows = segments.done
        items = [item for item in items if item.name not in retained] + [*retained.values()]
        items = [item._replace(taken=segment_rows[item.name]) if item.name in segment_rows else item for item in items]
        self.moved = folder.moved_on(self.stats) if self.fresh else set()
        items = [self._of_one_moment(item) for item in items]
        items += [Listed(name, size, unused=reason) for name, (size, reason) in sorted(folder.unused.items())]
        now = FolderList(tuple(items), tuple(folder.errors), summed=self.summed)
        now = now._replace(under_way=folder.name == folder.log_dir)
        if self.before is not None:  # until the new ones are known
            now = now._replace(readings=self.before.readings, machine=self.before.machine)
        segments.finish(now)
        self.target.clear(folder.name)
        done.folders += 1
        done.bytes_seen += sum(folder.files.values())
        done.batches += segments.batches
        done.bytes_read += segments.read
        done.segments += len(segment_rows.keys() - retained.keys())
        done.held += len(retained)
        done.kept += segments.kept
        if folder.topic in (TRANSACTION_STATE, METADATA_TOPIC):
            done.beside.add(folder.name)
        elif segment_rows and not folder.aside and segments.unended != set():
            done.unended.add(folder.name)
        is_open = any(not entry.checked for name, entry in segment_rows.items() if name not in retained)
        done.open |= {folder.name} if is_open else set()
        done.moving |= {folder.name} if self.moved else set()
        done.refused += sum(item.refused is not None and is_unread(*item.refused) for item in items)
        done.refused += sum(is_unread(error.reason, error.detail) for error in folder.errors)

    def _of_one_moment(self, item: Listed) -> Listed:
        # If its segment was replaced meanwhile, index and segment may be of different times.
        base, _, kind = item.name.partition(".")
        if kind in kafka_names.INDEX_KINDS and not self.moved.isdisjoint({item.name, f"{base}.log"}):
            return Listed(item.name, item.size, refused=("vanished", REPLACED))
        return item

    def _contained(self, name: str, size: int) -> Listed:
        # Whatever reading a file raises, the others are copied.
        try:
            return self._file(name, size)
        except EarlierUnreadable:
            raise
        except Exception as error:  # noqa: BLE001
            self.segments.unended = None
            return Listed(name, size, refused=("unreadable", failure(error, "reading it failed").detail))

    def _file(self, name: str, size: int) -> Listed:
        # Batches of segments are added at the end, when all segments are read.
        if name in self.folder.configs:
            return _settings_file(self.segments, self.folder.place, Listed(name, size))
        says = kafka_names.data_name(name) or kafka_names.remote_name(name)
        if says is not None and says.state in NOT_TAKEN:
            return Listed(name, size)
        kind = says.kind if says is not None else _kind_by_ending(self.folder, name)
        if self.folder.aside and kind != kafka_names.PARTITION_METADATA:
            return Listed(name, size)
        stat = without_recent_change(self._stat_before_reading(name))
        size = self.folder.files[name]
        if name in _TOP or kind in _WHOLE:
            if (old := self._as_it_was(name, size, stat)) is not None:
                return old
            self.fresh = True
            item = small_file(self.segments, self.folder.place, Listed(name, size), self.limits, kind or name)
            return item._replace(stat=stat)
        return self._segment(name, size, stat) if kind in ("log", "checkpoint") else Listed(name, size)

    def _stat_before_reading(self, name: str) -> Stat | None:
        # The cleaner may have replaced a closed segment since it was listed, so its size is taken again.
        entry = stat_and_size(self.folder.place, name)
        self.stats[name] = entry[0] if entry is not None else None
        if entry is not None and name in self.closed:
            self.folder.files[name] = entry[1]
        return self.stats[name]

    def _as_it_was(self, name: str, size: int, stat: Stat | None) -> Listed | None:
        old = self.old.get(name)
        if old is None or stat is None or not stat.changed_ns or (old.size, old.stat) != (size, stat):
            return None
        if old.refused is not None:
            return None
        if old.like is not None and (old.like in self.reread or old.like not in self.segments.done):
            return None  # its segment has other batches now than those that it was stored against
        return old if old.taken is None or not old.taken.damaged else None

    def _segment(self, name: str, size: int, stat: Stat | None) -> Listed:
        old, item = self.old.get(name), Listed(name, size, stat)
        same = self._as_it_was(name, size, stat)
        had = old is not None and old.taken is not None and old.taken.records
        if self.records and not had:
            same = old = None
        if same is not None and same.taken is not None:
            self.segments.carry(name, same.taken)
            self.segments.kept += 1
            return item
        self.fresh = True
        log_dir, path = place_of(self.folder, name)
        in_place = old is not None and old.stat is not None and stat is not None and old.stat.inode == stat.inode
        task = self.folder.task
        if in_place and old is not None:
            grown = self.whole(max(0, size - old.size), grown=True)
            if self.segments.go_on(log_dir, path, size, task, old, whole=grown):
                return item
        self.reread.add(name)
        why = self.segments.take(log_dir, path, size, task, whole=self.whole(size), records=self.records or had)
        return item if why is None else item._replace(refused=(why.reason, why.detail))


def small_file(segments: SegmentsTaken, place: StorageLocation, item: Listed, limits: Limits, kind: str) -> Listed:
    """Copy a file that is read as a whole. Errors: ``OSError`` of the target."""
    content = read_data(place, item.name, limits.small_file(kind))
    if isinstance(content, DecodeError):
        return item._replace(refused=(content.reason, content.detail))
    data, length = content
    return segments.content(item._replace(length=length), data)


def _settings_file(segments: SegmentsTaken, place: StorageLocation, item: Listed) -> Listed:
    # The settings of a server.properties that an audit uses.
    data = read_file(place, item.name, limit=DEFAULT_LIMITS.max_properties_bytes)
    if isinstance(data, DecodeError):
        return item._replace(refused=(data.reason, data.detail))
    return segments.content(item._replace(length=len(data)), audited_settings(data))


def without_recent_change(stat: Stat | None) -> Stat | None:
    """Return a stat without time of change if that is too recent to detect a later change."""
    if stat is not None and max(stat.modified_ns, stat.changed_ns) > time.time_ns() - RACY_NS:
        return stat._replace(changed_ns=0)
    return stat


def _kind_by_ending(folder: InputFolder, name: str) -> str:
    # Outside of partition directories files may have any name.
    return name.rpartition(".")[2] if folder.topic is None else ""


def place_of(folder: InputFolder, name: str) -> tuple[StorageLocation, str]:
    """Return a segment's place and the name that an audit has for it, for errors."""
    if folder.task is not None:
        inside = folder.task.replica.folder
        return folder.task.place, f"{inside}/{name}" if inside else name
    return folder.place, name


# Content of an earlier copy that must not be replaced: of other brokers, and of logs whose segments are missing.


Broker = tuple[str | None, int | None]  # cluster id and broker id


def check_owner(target: Target, log_dirs: Iterable[LogDir]) -> None:
    """Compare ``meta.properties`` of the input with those in the copy.

    Errors: :class:`AuditInputError` if the target has a copy of brokers none of which is in the input.
    """
    here = {_broker(log_dir.meta) for log_dir in log_dirs if log_dir.meta is not None}
    in_target = set(_brokers_of(target))
    if in_target and not here & in_target:
        cluster, broker = min(in_target, key=str)
        raise AuditInputError(
            f"{target.place.shown}: contains the copy of broker {broker} of cluster {cluster}, which is not in the "
            "input; give a separate directory"
        )


def without_segments(target: Target, folders: Collection[InputFolder]) -> list[str]:
    """Return the partition directories of which the target has segments and the input has no ``.log`` file.

    A broker keeps at least one segment per log, so these are missing. Directories that the input lacks count if their
    log directory, or the whole input, has no ``.log`` file: then a disk is empty or not mounted, not a topic deleted.
    """
    lacking = {folder.name for folder in folders if folder.topic is not None and not folder.aside}
    lacking -= (with_segments := {folder.name for folder in folders if folder.has_segments})
    empty = {folder.name for folder in folders if folder.name == folder.log_dir}
    empty -= {name.rpartition("/")[0] for name in with_segments}
    gone = target.folders() - {folder.name for folder in folders}
    if with_segments:
        gone = {name for name in gone if _is_partition(name) and name.rpartition("/")[0] in empty}
    return sorted(name for name in lacking | gone if _has_segments(target, name))


def _is_partition(name: str) -> bool:
    says = kafka_names.partition_folder(name.rpartition("/")[2])
    return says is not None and says.kind == "live"


def _has_segments(target: Target, name: str) -> bool:
    folder_list = target.list_of(name)
    return folder_list is not None and any(item.taken is not None and item.gone is None for item in folder_list.files)


def _broker(meta: MetaProperties) -> Broker:
    return meta.cluster_id, meta.broker_id


def _brokers_of(target: Target) -> Iterable[Broker]:
    for name in target.folders():
        if kafka_names.partition_folder(name.rpartition("/")[2]) is not None:
            continue
        folder_list = target.list_of(name)
        item = folder_list.file(kafka_names.META) if folder_list is not None else None
        data: object = item.content if item is not None else None
        if item is not None and item.kept is not None:
            data = read_file(target.place.child(name)._replace(view=CopyView()), item.name)
        if isinstance(data, bytes):
            meta, _ = decode_meta_properties(data, kafka_names.META)
            if meta is not None:
                yield _broker(meta)


# Verification of checksums: while bodies are read anyway, or after the headers of all logs.


@dataclass
class Checksums:
    """The budget of verification. ``headers_first``: bodies are read after all headers."""

    mode: str = ALL
    left: int = BUDGET_BYTES
    headers_first: bool = False

    def now(self, size: int, *, grown: bool = False) -> bool:
        """Whether to read a number of bytes of a segment whole now, which counts; ``grown``: bytes that an earlier
        copy lacks."""
        if self.mode != BUDGET:
            return self.mode == ALL
        if (self.headers_first and not grown) or size > self.left:
            return False
        self.left -= size
        return True

    def later(self, size: int) -> bool:
        """Whether to verify a segment whose headers are copied: one at a time, until nothing is left."""
        if self.mode != BUDGET:
            return self.mode == ALL
        if self.left <= 0:
            return False
        self.left -= size
        return True


def verify(
    target: Target,
    folders: Sequence[InputFolder],
    limits: Limits,
    checksums: Checksums,
    only: Mapping[str, Set[str]] | None = None,
) -> int:
    """Verify unverified checksums of the copy, segment by segment; return how many segments stay unverified.

    ``only``: these segments by directory, whatever is left of the budget. Errors: ``OSError`` of the target.
    """
    still = 0
    with target.lists_ahead(folder.name for folder in folders):
        for folder in folders:
            before = target.list_of(folder.name)
            if before is None:
                continue
            unknown = [
                item for item in before.files if item.taken is not None and not item.taken.checked and item.gone is None
            ]
            if only is None:
                chosen = [item for item in unknown if checksums.later(item.size)]
            else:
                chosen = [item for item in unknown if item.name in only.get(folder.name, ())]
            verified = partial(_verified, target, folder, limits, before, chosen)
            done = attempt([], "its checksums were not verified", verified, set[str]()) if chosen else set()
            still += sum(item.name not in done for item in unknown)
    return still


def _verified(
    target: Target, folder: InputFolder, limits: Limits, before: FolderList, chosen: Sequence[Listed]
) -> set[str]:
    # The names of those that are verified now; all else stays as it is.
    names = {item.name for item in chosen if _is_as_it_was(folder, item)}
    with contextlib.closing(SegmentsTaken(target, folder.name, limits, None, before)) as segments:
        items: list[Listed] = []
        for item in before.files:
            entry = item.taken
            if entry is not None:
                place, path = place_of(folder, item.name)
                again = item.name in names and segments.is_there(place, path, entry)
                how = {"records": entry.records}
                if not again or segments.take(place, path, item.size, folder.task, **how) is not None:
                    segments.carry(item.name, entry, held=item.gone is not None)
                item = item._replace(taken=segments.done[item.name])
            elif item.like in segments.done and segments.done[item.like].damaged:  # its batches are others now
                kind = item.name.rpartition(".")[2]
                item = small_file(segments, folder.place, Listed(item.name, item.size), limits, kind)
            items.append(item)
        segments.finish(before._replace(files=tuple(items)))
        return {name for name in names if segments.done[name].checked}


def _is_as_it_was(folder: InputFolder, item: Listed) -> bool:
    # The same inode: the file may have grown.
    now = stat_and_size(folder.place, item.name)
    return now is not None and item.stat is not None and now[0].inode == item.stat.inode


# The copy.


TIMES = 3  # that a directory is read while its segments are replaced


def target_of(out: Path | str) -> Target:
    """Return the target at a directory or URI. Errors: :class:`AuditInputError`."""
    return StoreTarget(out) if isinstance(out, str) else FolderTarget(out)


def copy_logs(
    paths: Sequence[str],
    out: Path | str,
    limits: Limits = DEFAULT_LIMITS,
    say: Callable[[str], None] = ignore,
    **how: Any,
) -> CopyResult:
    """Copy all below PATHs into ``out``, a directory or a URI, in this process.

    What an earlier copy there has unchanged is not read again.

    ``say`` gets the name of each directory; ``how``: as for :class:`CopyJob`. If the input lost segment files whose
    content is in the earlier copy, nothing is written and :attr:`CopyResult.emptied` names their directories.

    Errors: :class:`AuditInputError` for a usage error, ``OSError`` of the target.
    """
    job = CopyJob(paths, out, limits, **how)
    return job.follow(copied(job), say) or CopyResult()


def copied(job: CopyJob) -> Iterator[Part]:
    """Do a job, but for what is ``done``; nothing of it where every file is refused. Errors are parts, too."""
    home = job.out if isinstance(job.out, Path) else None
    guest = remote_files.ThrottledReader(remote_files.Pace(job.rate or 0), home)
    try:
        with contextlib.nullcontext() if job.rate is None else remote_files.throttled(guest):
            if not storage.closed(storage.ALL):
                yield from _verified_parts(job) if job.segments is not None else _parts(job)
    except (AuditInputError, OSError) as error:
        yield "failed", error


def _parts(job: CopyJob) -> Iterator[Part]:
    check_apart(job.paths, job.out)
    input_folders = Folders(job.paths, job.limits) if job.paths else None
    target, done, only = target_of(job.out), dict(job.done), job.only
    for name in (earlier := sorted(target.folders(COPY_LIST_1))):
        yield "begun", name
        convert(target, name, job.limits)
    if input_folders is None:
        yield "result", CopyResult(converted=len(earlier))
        return
    check_owner(target, input_folders.inventory.log_dirs)
    if only is None and not done and (emptied := without_segments(target, input_folders.found.values())):
        yield "result", CopyResult(emptied=set(emptied))
        return
    left = min((one.left for one in done.values()), default=job.budget)
    to_verify = Checksums(job.checksums, left, headers_first=_bytes_of(input_folders) > job.budget)
    places = {f.name: f.place for f in input_folders.found.values() if f.name == f.log_dir}
    live = job.live or {name: locked_by_broker(place) for name, place in places.items()}
    yield "live", live
    chosen = [f for f in input_folders.in_order() if (only is None or f.name in only) and f.name not in done]

    take = partial(_taken, job=job, target=target, to_verify=to_verify)
    for name in places:
        _begin(target, name)
    with target.lists_ahead(folder.name for folder in chosen):
        for part in _folders_done(job, target, chosen, take):
            if part[0] == "done":
                done[part[1].name] = part[1]
            yield part
    gone = sorted(target.folders() - input_folders.found.keys()) if only is None else ()
    for _ in target.each(target.take_away, gone):
        pass
    mixed = bool(written_over(input_folders.inventory))  # where it is of a copy itself
    result = CopyResult(converted=len(earlier))
    for one in done.values():
        result.add(one.result)
    for name, place in places.items():
        now = readings(_read_times(name, done.values()), live=live[name] and locked_by_broker(place))
        result.live |= any(reading.live for reading in now)
        _end(target, name, now, keep=only is not None, mixed=mixed)
    opened = [folder for folder in input_folders.in_order() if folder.name in result.open]
    result.unverified = verify(target, opened, job.limits, to_verify)
    yield "result", result


def _read_times(log_dir: str, done: Iterable[FolderDone]) -> list[CopyTimes]:
    ours = ((one.name.removeprefix(log_dir).lstrip("/"), one.times) for one in done)
    return [CopyTimes(inside, *times[1:], False) for inside, times in ours if times is not None and times[0] == log_dir]


def _folders_done(
    job: CopyJob, target: Target, chosen: Sequence[InputFolder], take: Callable[[InputFolder], FolderDone]
) -> Iterator[Part]:
    # No death before a directory's first file is to be blamed on the last one of another. Of several that are copied at
    # once it is not known whose file kills: then no file is blamed.
    if job.alone or isinstance(target, FolderTarget):
        for folder in chosen:
            storage.closed(storage.ALL)
            yield "begun", folder.name
            yield "done", take(folder)
    else:
        storage.closed(storage.ALL)
        with storage.guarded(job.refused):
            for _, folders in itertools.groupby(chosen, key=lambda folder: folder.step):
                yield from (("done", one) for one in target.each(take, list(folders)))
    storage.closed(storage.ALL)


def _taken(folder: InputFolder, job: CopyJob, target: Target, to_verify: Checksums) -> FolderDone:
    # Again while segments are replaced, at most TIMES: their parts would be of different times.
    done = CopyResult()
    try:
        for left in reversed(range(TIMES)):
            took = CopyResult()
            folder.refresh()
            how: dict[str, Any] = {"records": job.records, "keep_ms": job.keep_ms, "sum_key": job.sum_key}
            one = partial(OneFolder, target, folder, job.limits, to_verify.now, **how)
            try:
                one().take(took)
            except EarlierUnreadable:
                took = CopyResult()
                one(ignore_earlier=True).take(took)
            if not left or not took.moving:
                break
            done.bytes_read += took.bytes_read
    except Exception as error:  # noqa: BLE001  what an earlier copy has of it stays
        done.failed.add(failure(error, f"{folder.name} was not copied").detail)
        return FolderDone(folder.name, done, left=to_verify.left)
    done.add(took)
    timed = folder.log_dir is not None and folder.topic is not None
    times = (folder.log_dir or "", folder.listed, now_ms()) if timed else None
    return FolderDone(folder.name, done, times, to_verify.left)


def _verified_parts(job: CopyJob) -> Iterator[Part]:
    folders = Folders(job.paths, job.limits).in_order()
    yield "result", CopyResult(unverified=verify(target_of(job.out), folders, job.limits, Checksums(), job.segments))


def _bytes_of(input_folders: Folders) -> int:
    return sum(
        size
        for folder in input_folders.found.values()
        if folder.topic is not None and folder.topic not in COPIED
        for name, size in folder.files.items()
        if name.endswith(".log")
    )


def _begin(target: Target, name: str) -> None:
    # Until _end, the directories of a log directory may be of two copies.
    if (before := target.list_of(name)) is not None:
        try:
            _relist(target, name, before, before._replace(under_way=True))
        except EarlierUnreadable:  # all of it is copied again
            SegmentsTaken(target, name, DEFAULT_LIMITS, None, None).finish(FolderList((), under_way=True))


def _end(target: Target, name: str, times: tuple[CopyTimes, ...], *, keep: bool, mixed: bool) -> None:
    # ``mixed``: the input is a copy whose directories are of two copies; ``keep``: other directories keep their times.
    before = target.list_of(name)
    if before is not None:
        folders = {reading.folder for reading in times}
        keep &= before.machine == (here := boot_id())
        others = [r for r in before.readings if r.folder not in folders] if keep else []
        now = before._replace(readings=tuple(sorted((*times, *others))), machine=here, under_way=mixed)
        _relist(target, name, before, now)


def _relist(target: Target, name: str, before: FolderList, now: FolderList) -> None:
    with contextlib.closing(SegmentsTaken(target, name, DEFAULT_LIMITS, None, before)) as segments:
        for item in before.files:
            if item.taken is not None:
                segments.carry(item.name, item.taken)
        files = (i._replace(taken=segments.done[i.name]) if i.taken is not None else i for i in now.files)
        segments.finish(now._replace(files=tuple(files)))


# Logs of a running broker with an open transaction in a fresh copy are read again, then their coordinators' logs.
#
# Data is read before its coordinator's log: a transaction that ended in between is open in the one and complete in the
# other. Most of these cases are decided by time (:mod:`auditor.rules.transactions.making`).


ROUNDS = 3


def reread_open_logs(
    out: Path | str,
    begun: int,
    first: CopyResult,
    open_audit: Callable[[list[str]], Audit],
    copy_again: Callable[[frozenset[str]], CopyResult],
) -> list[CopyResult]:
    """Read logs again that have an open transaction in the copy, at most :data:`ROUNDS` times; return the result of
    each round.

    First all that are not within their timeout, then those of unknown status that are younger than the copy, which was
    ``begun`` (ms). ``first``: the result of the copy; without a running broker nothing is read again. ``open_audit``
    opens an audit of some PATHs; ``copy_again`` copies some directories. Errors: as for :func:`copy_logs`.
    """
    rounds: list[CopyResult] = []
    open_logs = first.unended if first.live else set()
    while open_logs and len(rounds) < ROUNDS:
        rows = _blocked(open_audit([_path(out, name) for name in sorted(open_logs | first.beside)]), out)
        since = by_a_client(begun) if rounds else None
        rows = {name: row for name, row in rows.items() if name in open_logs and _is_open(row, since)}
        open_logs = set(rows)
        if open_logs:
            rounds.append(copy_again(frozenset(open_logs | _coordinators(first.beside, rows.values()))))
    return rounds


def _blocked(audit: Audit, out: Path | str) -> dict[str, Values]:
    # Only the rows are kept: with thousands of open transactions an audit takes tens of MiB.
    by_folder = ((_folder(audit, out, row), row) for row in audit.blocked)
    return {name: row for name, row in by_folder if name is not None}


def _path(out: Path | str, name: str) -> str:
    if isinstance(out, Path):
        return str(out / name)
    return (results.folder(out) / name).uri


def _folder(audit: Audit, out: Path | str, row: Values) -> str | None:
    # None for a partition that is not in the copy.
    top = os.path.realpath(out) if isinstance(out, Path) else storage.remote_place(out).path
    for log_dir in audit.inventory.log_dirs:
        if log_dir.name == row["log_dir"]:
            name = f"{log_dir.place.path}/{row['topic']}-{row['partition']}"
            return name[len(top.rstrip("/")) + 1 :]
    return None


def _is_open(row: Values, since: int | None) -> bool:
    # Whether reading again may change the row.
    if since is None:
        return bool(row["standing"] != BlockedState.WAITING.value)
    young = row["since"] is None or _ms(row["since"]) >= since
    return bool(row["standing"] == BlockedState.UNKNOWN.value and young)


def _coordinators(beside: Iterable[str], rows: Iterable[Values]) -> set[str]:
    # All of them if a transactional id is unknown.
    says = {name: kafka_names.partition_folder(name.rpartition("/")[2]) for name in beside}
    numbers = {name: log.partition for name, log in says.items() if log is not None and log.topic == TRANSACTION_STATE}
    ids = {row["transactional_id"] for row in rows}
    if None in ids:
        return set(numbers)
    count = max(numbers.values(), default=0) + 1
    wanted = {partition_for(name, count) for name in ids}
    return {name for name, number in numbers.items() if number in wanted}


def referenced_segments(audit: Audit) -> dict[str, set[str]]:
    """Return the segments that findings point to, by directory; infos count only with ``if_true``."""
    segments: dict[str, set[str]] = {}
    for finding in audit.findings:
        if finding.file and finding.file.endswith(".log") and (finding.severity != "info" or finding.if_true):
            folder, _, name = f"{read(Evidence, finding.evidence)['log_dir']}/{finding.file}".rpartition("/")
            segments.setdefault(folder, set()).add(name)
    return segments


def _ms(text: str) -> int:
    return int(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000)


# Copies for a ticket: the directories that one finding needs, and the names in them.


LOG_KEYS = {"topic", "partition"}

Log = tuple[str, int]  # topic and partition


@dataclass
class NamesInCopy:
    """The names that a copy contains."""

    topics: set[str] = field(default_factory=set)
    transactional_ids: set[str] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    clients: set[str] = field(default_factory=set)
    hosts: set[str] = field(default_factory=set)

    def lines(self) -> Iterator[str]:
        """Yield one line per kind of name."""
        for kind, names in vars(self).items():
            printable = (json.dumps(name) if not name.isprintable() else name for name in sorted(names))
            yield f"{kind.replace('_', ' ')} ({len(names)}): {', '.join(printable) or 'none'}"


def log_of(folder: InputFolder) -> Log | None:
    """Return the partition of a directory, also of one with remote segments."""
    name = folder.place.path.rstrip("/").rpartition("/")[2]
    live = kafka_names.partition_folder(name) if folder.topic is not None else None
    says = live or kafka_names.remote_folder(folder.place.path)
    return None if says is None else (says.topic, says.partition)


def folder_choices(finding: Values, paths: Sequence[str]) -> Iterator[set[str]]:
    """Yield sets of directories to copy for a finding, from the narrowest to all.

    Errors: :class:`AuditInputError` for a wrong PATH, and for PATHs without the finding's partition.
    """
    folders = Folders(paths, DEFAULT_LIMITS).found
    logs = {name: log_of(folder) for name, folder in folders.items()}
    present = {log for log in logs.values() if log is not None}
    own_logs = set(_logs(finding, present))
    if finding["file"] is not None and finding["topic"] not in (None, *(topic for topic, _ in own_logs)):
        where = finding["topic"] if finding["partition"] is None else f"{finding['topic']}-{finding['partition']}"
        raise AuditInputError(f"the PATHs have no directory of {where}; give the PATHs of the run")
    coordinators = {log for log in present if log[0] in (TRANSACTION_STATE, METADATA_TOPIC)}
    internal = {log for log in present if is_internal(log[0])}
    topics = {topic for topic, _ in own_logs}
    whole = {log for log in present if log[0] in topics}
    for chosen in (own_logs | coordinators, own_logs | internal, whole | internal, present):
        yield {name for name, log in logs.items() if log is None or log in chosen}


def _logs(finding: Values, present: set[Log]) -> Iterator[Log]:
    # The partitions of its fields, its evidence, and of its group's coordinator.
    topic, partition, group = finding["topic"], finding["partition"], finding["group_id"]
    yield from (log for log in present if log[0] == topic and partition in (None, log[1]))
    if group is not None and (offsets := [log[1] for log in present if log[0] == CONSUMER_OFFSETS]):
        yield CONSUMER_OFFSETS, partition_for(group, max(offsets) + 1)
    by_name = {f"{topic}-{partition}": (topic, partition) for topic, partition in present}
    for item in _nested(finding["evidence"]):
        name = f"{item['topic']}-{item['partition']}" if isinstance(item, Mapping) and item.keys() >= LOG_KEYS else item
        if isinstance(name, str) and name in by_name:
            yield by_name[name]


def _nested(value: object) -> Iterator[object]:
    yield value
    if isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _nested(item)


def names_in(audit: Audit) -> NamesInCopy:
    """Return the names in the input of an audit of a copy."""
    names = NamesInCopy()
    for log_dir in audit.inventory.log_dirs:
        names.topics |= {replica.topic for replica in log_dir.replicas if replica.topic is not None}
        for replica in log_dir.replicas:
            if replica.topic == METADATA_TOPIC:
                for file in replica.files():
                    if file.kind in ("log", "checkpoint"):
                        key = (log_dir.cluster_id, log_dir.broker_id, log_dir.name, replica.topic, replica.partition)
                        _of_metadata(FilePiece(file.place or log_dir.place, key, file), names)
    coordinated = audit.table("transaction_log")
    names.transactional_ids |= _column(coordinated, "transactional_id")
    names.topics |= {p.rpartition("-")[0] for row in coordinated.column("partitions").to_pylist() for p in row or ()}
    for table in ("offset_commits", "group_metadata"):
        rows = audit.table(table)
        names.groups |= _column(rows, "group_id")
        if table == "offset_commits":
            names.topics |= _column(rows, "consumed_topic")
        else:
            names.clients |= {text for row in rows.column("client_ids").to_pylist() for text in row or () if text}
    return names


def _of_metadata(piece: FilePiece, names: NamesInCopy) -> None:
    for table, rows in metadata_records(piece, How(payload=True)):
        if table == "metadata_records":
            for name, fields in zip(rows.column("name").to_pylist(), rows.column("fields").to_pylist(), strict=True):
                record = json.loads(fields)
                objects = (item for item in _nested(record) if isinstance(item, Mapping))
                names.hosts |= {item["host"] for item in objects if isinstance(item.get("host"), str) and item["host"]}
                if name == "TopicRecord":
                    names.topics.add(record["name"])


def _column(table: Any, name: str) -> set[str]:
    return {text for text in table.column(name).to_pylist() if text is not None}


def size_of(folder: Path) -> int:
    """Return the bytes of all files below a directory."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
