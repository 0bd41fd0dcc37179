"""Stored facts (``--work``)."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.ipc

from auditor.base import VERSION
from auditor.base.errors import AuditInputError, StoreTrouble
from auditor.base.words import few, plural
from auditor.connectors.stores import retries, storage
from auditor.connectors.stores.remote_files import filesystem, refusal, renewed
from auditor.connectors.stores.results import PARTIAL, ResultFolder, folder
from auditor.connectors.stores.retries import side_by_side
from auditor.facts.arrow_codec import WRONG
from auditor.facts.batch_sums import KEY_BYTES
from auditor.facts.packed import PackedColumns, PackedRows
from auditor.facts.replica_facts import ReplicaFacts
from auditor.pipeline.plan import Item, reads_records
from auditor.replay.reading.chunks import FACTS_AT_REST
from auditor.replay.task import POINT, KeptPoints, KeptTask, ReplicaTask, SharingTask, TextTask

FORM = "5"  # of what is stored; another one is not read
KEY, FACTS, BEGUN = "key", ".arrow", ".begun"
HALF, OLDER, FOREIGN = "half-written or damaged", "of another release", "not of an audit"  # what is left alone, and why
META = {b"form": FORM.encode(), b"program": b"kafka-log-auditor facts"}
SCHEMA = pa.schema([("identities", pa.list_(pa.binary(32))), ("facts", pa.large_binary())], metadata=META)
AnyTask = ReplicaTask | TextTask


class FactsPosition(NamedTuple):
    """Position of a replica's facts: file name and row."""

    file: str
    row: int


class WorkFolderContent(NamedTuple):
    """Content of a work folder.

    ``there``: the position of each identity's facts; ``left_alone``: other files, and why.
    """

    there: dict[bytes, FactsPosition]
    left_alone: dict[str, str]

    def notes(self, asked: Collection[bytes]) -> list[str]:
        """Return notes about unused content; ``asked``: the identities that the audit needs."""
        notes = [
            f"--work has {plural(len(names), 'file')} left alone, {why}: {few(map(storage.printable, names))}; "
            "what would have been there was read"
            for why in (HALF, OLDER, FOREIGN)
            if (names := [name for name, reason in sorted(self.left_alone.items()) if reason == why])
        ]
        if unused := len(self.there.keys() - asked):
            notes.append(
                f"--work has facts of {plural(unused, 'partition copy')} that are of no use here: of other files, "
                "options or releases, or of files that have changed"
            )
        return notes


class WorkFolder(NamedTuple):
    """A directory for facts; ``text``: a local path or a URI, as given."""

    text: str

    @property
    def _place(self) -> ResultFolder:
        return folder(self.text if "://" in self.text else Path(self.text))

    def key(self) -> bytes:
        """Return the key that digests of replicas use, drawn by the first audit.

        Errors: :class:`AuditInputError` where the directory is not writable.
        """
        place = self._place
        try:
            if not self.is_begun():
                place.put(KEY, secrets.token_bytes(KEY_BYTES))
            key = place.get(KEY, KEY_BYTES + 1) or b""
        except (*storage.REFUSED, StoreTrouble) as error:
            raise AuditInputError(
                f"cannot write to {storage.printable(self.text.partition('?')[0])}: {retries.code_of(error)}; choose "
                "another --work"
            ) from error
        if len(key) != KEY_BYTES:
            raise AuditInputError("--work has a file 'key' that no audit wrote; choose another directory")
        return key

    def is_begun(self) -> bool:
        """Whether an audit has used the directory."""
        return bool(self._place.kinds([KEY]))

    def keep(self, rows: Sequence[tuple[bytes, ReplicaFacts]], of_list: Sequence[bytes]) -> None:
        """Store the facts of a list under their identities."""
        facts = FACTS_AT_REST.pack(facts for _, facts in rows)
        table = pa.table([[[identity for identity, _ in rows]], [facts]], schema=SCHEMA)
        out = pa.BufferOutputStream()
        with pa.ipc.new_file(out, SCHEMA) as writer:
            writer.write_table(table)
        self._place.put(_name(of_list) + FACTS, out.getvalue())

    def kept_of(self, of_list: Sequence[bytes]) -> dict[bytes, FactsPosition]:
        """Return what another attempt at this list has stored, by identity."""
        identities = self._identities(name := _name(of_list) + FACTS)
        of_file = () if isinstance(identities, str) else identities
        return {identity: FactsPosition(name, row) for row, identity in enumerate(of_file)}

    def begins(self, of_list: Sequence[bytes]) -> bool:
        """Note that a list is being read; return whether an earlier attempt left such a note, and so ended early."""
        place, name = self._place, _name(of_list) + BEGUN
        before = bool(place.kinds([name]))
        if not before:
            place.put(name, b"begun")
        return before

    def ended(self, of_list: Sequence[bytes]) -> None:
        """Remove the note of :meth:`begins`."""
        with contextlib.suppress(OSError, StoreTrouble):  # a note that is left only makes the next attempt read apart
            self._place.delete_file(_name(of_list) + BEGUN)

    def _stored(self, name: str, column: int) -> Any:
        place = self._place
        with place.files.open_input_file(f"{place.path}/{name}") as file:
            only = pa.ipc.IpcReadOptions(included_fields=[column])
            reader = pa.ipc.open_file(file, options=only)
            if reader.schema.metadata != META:
                ours = (reader.schema.metadata or {}).get(b"program") == META[b"program"]
                raise _Other(OLDER if ours else FOREIGN)
            table = reader.read_all()
            table.validate(full=True)
            return table.column(0)[0].as_py()

    def known(self) -> WorkFolderContent:
        """Return the content of the directory. Cost: a listing, and the identities of each file."""
        place = self._place
        infos = place.files.get_file_info(pafs.FileSelector(place.path, allow_not_found=True))
        every = sorted(info.base_name for info in infos)
        names = [name for name in every if name.endswith(FACTS) and not name.startswith(PARTIAL)]
        content = WorkFolderContent(
            {}, {name: HALF if name.startswith(PARTIAL) else FOREIGN for name in every if _is_other(name)}
        )
        for name, identities in zip(names, side_by_side(self._identities, names), strict=True):
            if isinstance(identities, str):
                content.left_alone[name] = identities
            else:
                content.there.update({identity: FactsPosition(name, row) for row, identity in enumerate(identities)})
        return content

    def _identities(self, name: str) -> list[bytes] | str:
        """Return the identities in a file, or why the file is left alone."""
        try:
            return list(self._stored(name, 0))
        except _Other as error:
            return error.why
        except WRONG:
            return HALF

    def facts(self, name: str, rows: Iterable[int]) -> list[ReplicaFacts] | None:
        """Return the facts in some rows of a file; None where it is damaged or gone, so that they are read again."""
        try:
            every = FACTS_AT_REST.unpack(self._stored(name, 1))
            replicas = [every[row] for row in rows]
            for facts in replicas:
                for columns in (facts.producers, facts.aborted, facts.digests):
                    if isinstance(columns, PackedRows | PackedColumns):
                        columns.check()
        except WRONG:
            return None
        for facts in replicas:
            facts.resume_point = b""  # a pickle; the next reading of the replica must not be given one from a file
        return replicas


class _Other(ValueError):
    """A valid file that must not be read, and ``why``."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


def _is_other(name: str) -> bool:
    return name.startswith(PARTIAL) or (name != KEY and not name.endswith((FACTS, BEGUN, POINT)))


def _name(of_list: Sequence[bytes]) -> str:
    return hashlib.sha256(b"".join(of_list)).hexdigest()


def is_kept(task: AnyTask | SharingTask) -> bool:
    """Whether the facts of a task can be stored."""
    return (
        isinstance(task, ReplicaTask)
        and task.replica.topic is not None
        and not reads_records(task)
        and not task.policies
    )


def with_points(task: ReplicaTask, points: KeptPoints) -> ReplicaTask:
    """Return the task of a growing log with the place where its resume points are kept."""
    in_stores = task.place.uri or any(segment.place is not None for segment in task.replica.segments)
    return task if in_stores or task.place.view or not is_kept(task) else replace(task, points=points)


def kept_tasks(items: Sequence[Item], work: WorkFolder, notes: list[str]) -> list[Item]:
    """Return the items, those whose facts can be stored with where they are; ``notes`` gets what is left alone."""
    every = list(items)
    names = identities([item for item in every if isinstance(item, ReplicaTask) and is_kept(item)])
    content = work.known()
    notes[:] = content.notes(frozenset(names))
    of_kept = iter(names)
    return [
        KeptTask(item, name := next(of_kept), content.there.get(name))
        if isinstance(item, ReplicaTask) and is_kept(item)
        else item
        for item in every
    ]


def identities(tasks: Sequence[ReplicaTask]) -> list[bytes]:
    """Return the identity of each task's facts. Cost: a stat per file; in a store, parallel directory listings."""
    return side_by_side(_identity, tasks) if any(t.place.uri for t in tasks) else list(map(_identity, tasks))


def _identity(task: ReplicaTask) -> bytes:
    text = repr((FORM, VERSION, task, _changed(task)))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _changed(task: ReplicaTask) -> list[tuple[str | int, ...]]:
    """Name, size and mtime (ns) of each file of a replica now; of local files also inode and ctime.

    Remote segments never change.
    """
    local_files = [file for file in task.replica.files() if file.place is None]
    if not task.place.uri:
        return [(file.name, *storage.file_state(f"{task.place.path}/{file.name}")) for file in local_files]
    files = filesystem(task.place.uri)[0]
    folders = sorted({f"{task.place.path}/{file.name}".rpartition("/")[0] for file in local_files})
    names = {f"{task.place.path}/{file.name}" for file in local_files}
    infos: list[Any] = []
    for above in folders:
        listed = partial(files.get_file_info, pafs.FileSelector(above))
        infos += retries.ask(listed, partial(refusal, task.place.uri, above), renewed)
    return sorted((info.path, info.size, info.mtime_ns or 0) for info in infos if info.path in names)
