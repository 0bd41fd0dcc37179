"""What a copy is asked for, and the process apart that makes it: a file that kills its reader costs only that file.

Light to import: the process beside a broker that waits for the other one loads no decoders.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from auditor.base.errors import DEFAULT_LIMITS, MIB, AuditFailure, AuditInputError, DecodeError, Limits
from auditor.base.user_input import shown_uri
from auditor.connectors.kafka_names import COPY_README
from auditor.connectors.stores import storage
from auditor.connectors.stores.retries import ignore
from auditor.pipeline.options import out_of
from auditor.processes.isolation import Pool

NONE, BUDGET, ALL = MODES = "none", "budget", "all"
BUDGET_BYTES = 1024 * MIB  # of segments that are read whole per call; a smaller input is read whole at once
COPYING = ".copying-"  # in a store, which has no lock: see auditor.connectors.stores.results
MODULES = ("auditor.copying.run",)  # of the process apart
SLOWEST = 2 << 30  # bytes of the largest segment, which may take its time at a limited rate
Part = tuple[str, Any]  # what a job yields: "live", "begun", "done", "failed" or "result", and its content


@dataclass
class CopyResult:
    """The result of a copy.

    ``batches`` and ``bytes_read``: of segments; ``kept``: segments that were unchanged; ``held``: segments that are
    retained although the broker deleted them; ``live``: a broker of this machine ran meanwhile; ``open``: directories
    with unverified checksums; ``unverified``: the number of such segments at the end; ``converted``: directories
    that were of version 1; ``moving``: directories whose
    segments were replaced at each reading; ``unended``: logs with an open transaction, or where that is unknown;
    ``beside``: logs of coordinators and of the metadata; ``emptied``: directories whose segments only the earlier copy
    has, for which nothing was copied; ``failed``: directories that could not be copied and files that killed their
    reader, each with the reason.
    """

    folders: int = 0
    batches: int = 0
    bytes_seen: int = 0
    bytes_read: int = 0
    segments: int = 0
    kept: int = 0
    refused: int = 0
    held: int = 0
    live: bool = False
    open: set[str] = field(default_factory=set)
    moving: set[str] = field(default_factory=set)
    unended: set[str] = field(default_factory=set)
    beside: set[str] = field(default_factory=set)
    unverified: int = 0
    converted: int = 0
    emptied: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)

    def add(self, more: CopyResult) -> None:
        """Add another result."""
        for name, addend in vars(more).items():
            before = getattr(self, name)
            setattr(self, name, before | addend if isinstance(before, set | bool) else before + addend)


class FolderDone(NamedTuple):
    """A directory that was copied. ``times``: its log directory, and from when to when (ms) it was read; ``left``: of
    the budget."""

    name: str
    result: CopyResult
    times: tuple[str, int, int] | None = None
    left: int = 0


@dataclass
class CopyJob:
    """What to copy, and how far that is.

    ``only``: the directories to copy, None for all; ``checksums``: one of :data:`MODES`; ``budget``: bytes of segments;
    ``records``: also take summaries of records, which reads all bodies; ``keep_ms``: how long to retain segments that
    the broker deleted, None: those that are retained stay until their time; ``segments``: only verify these of the
    copy, by directory; ``rate``: bytes per second that are read, None for those of this process; ``sum_key``: also take
    sums of records.

    ``done``: directories by name; ``live``: log directories that a broker had locked before the first; ``refused``:
    files that killed their reader; ``alone``: copy one directory at a time, of which ``begun`` is the last.
    """

    paths: Sequence[str]
    out: Path | str
    limits: Limits = DEFAULT_LIMITS
    only: Set[str] | None = None
    checksums: str = ALL
    budget: int = BUDGET_BYTES
    records: bool = False
    keep_ms: int | None = None
    segments: Mapping[str, Set[str]] | None = None
    rate: int | None = None
    sum_key: bytes | None = None
    done: dict[str, FolderDone] = field(default_factory=dict)
    live: dict[str, bool] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    alone: bool = False
    begun: str = ""

    def follow(self, parts: Iterable[Part | None], say: Callable[[str], None]) -> CopyResult | None:
        """Note what is done, and ``say`` each directory; return the result, None if it ended before. Errors: as for
        :func:`auditor.copying.run.copy_logs`."""
        result = None
        for kind, content in filter(None, parts):
            if kind == "failed":
                raise content
            if kind == "result":
                result = content
            elif kind == "done":
                self.done[content.name] = content
                say(content.name)
            else:
                setattr(self, kind, content)
        return result

    def apart(self, work: Callable[[CopyJob], Iterator[Part]], say: Callable[[str], None] = ignore) -> CopyResult:
        """Do it in another process. ``work``: :func:`auditor.copying.run.copied`, in a function that imports it."""
        patience_s = storage.PATIENCE_S + (SLOWEST / self.rate if self.rate else 0.0)
        with Pool(1, MODULES) as pool:
            while True:
                before = len(self.done)
                parts: Iterator[tuple[int, Any]] = pool.map([self], work, patience_s=patience_s, refused=self.refused)
                result = self.follow((part for _, part in parts), say)
                if result is not None:
                    result.failed |= {f"{file}: {reason}" for file, reason in self.refused.items()}
                    return result
                if len(self.done) == before:
                    self._without_begun()

    def _without_begun(self) -> None:
        # The process died, and that no file is to blame for, or all of a directory are.
        if not self.alone:
            self.alone = True
        elif not self.begun or self.begun in self.done:
            raise AuditFailure("the copy process has ended; its last output is above")
        else:
            left = min((one.left for one in self.done.values()), default=self.budget)
            failed = CopyResult(failed={f"{self.begun} was not copied: it ends the process"})
            self.done[self.begun] = FolderDone(self.begun, failed, left=left)


def check_apart(paths: Sequence[str], out: Path | str) -> None:
    """Errors: :class:`AuditInputError` if the target is below a PATH, or a PATH below the target. One store may have
    several schemes, so URIs are compared by path."""
    target = _path_of(out)
    for path in paths:
        given = _path_of(out_of(path))
        if isinstance(out, str) is ("://" in path and not path.startswith("file:")) and (
            target.is_relative_to(given) or given.is_relative_to(target)
        ):
            raise AuditInputError(
                f"--out {shown_uri(str(out))} and {shown_uri(path)} contain each other; give a directory elsewhere"
            )


def check_copy(out: Path | str) -> None:
    """Errors: :class:`AuditInputError` if there is no copy that could be converted."""
    if isinstance(storage.read_head(storage.place(str(out)), COPY_README, 1), DecodeError):
        raise AuditInputError(
            f"missing PATH, and {shown_uri(str(out))} is not a copy: expected a log directory, a directory above "
            "several, or a copy of version 1 as --out"
        )


def _path_of(where: Path | str) -> Path:
    if isinstance(where, Path):
        return where.resolve()
    return Path(posixpath.normpath(f"/{storage.remote_place(where).path.rpartition('://')[2].strip('/')}"))
