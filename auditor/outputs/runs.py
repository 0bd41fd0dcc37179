"""Kept runs, their comparison, and the status of clusters."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import json
import os
import re
import statistics
import uuid
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import FileInfo

from auditor.base import user_input
from auditor.base.at_rest import MOST_OF_SUMMARY, Fields, Json, Values, parsed
from auditor.base.errors import AuditFailure, AuditInputError, Made, StoreTrouble
from auditor.base.words import few, plural
from auditor.connectors import schema
from auditor.connectors.stores.results import PARTIAL, ResultFolder, folder, why
from auditor.connectors.stores.retries import REFUSED, side_by_side
from auditor.pipeline import summary as pipeline_summary
from auditor.pipeline.summary import FINDINGS
from auditor.rules.seen.view import GRAVE, SEVERITIES

# Runs in a directory or a store: Parquet below ``run_id=``, committed by a manifest that is written last.
#
#     DIR/run_id=20261121T040000.000000Z/findings/<attempt>.parquet    one directory per table: findings, runs, ...
#                                       /summary-<attempt>.json        summary.json as the run wrote it
#                                       /manifest-<attempt>.json
#     DIR/_unfinished/<attempt>/...                                    the same, while a run is written
#
# A run is written below ``_unfinished``, its manifest last, and then moved: in a directory of this machine a new run at
# once, otherwise file by file, ``runs`` and the manifest last. So readers of Parquet never count what a killed run left
# before its manifest. The next run of any id finishes what has one, and deletes other leftovers of an hour ago; whoever
# was only slow then finds its files gone, and fails. The newest manifest lists the files of a run. No name is used
# twice, so nothing is locked: a rerun of a run id replaces all of the run or nothing, and of two concurrent ones one
# complete run remains. Readers of Parquet take the directories as a table partitioned by ``run_id``; :func:`files`
# lists exactly what is committed, also during a rerun.


SCHEMA_VERSION = 2
IN_A_CELL = 1  # the version that had the summary as a text in the table ``runs``, with times as texts
MANIFEST, OLD = "manifest", "manifest.json"  # how names of manifests begin; what older ones were
UNFINISHED, RUNS, SUMMARY = "_unfinished", "runs", "summary"
MAX_RUN_ID = 200
NO_MANIFEST = "is not a manifest of a run; remove the directory or restore it"
LEFT = timedelta(hours=1)  # of a publish, which takes seconds, between two of its files: longer, and it was killed
_OURS = re.compile(rf"(.*/)?({re.escape(PARTIAL)}.*|(\w+-)?[0-9a-f]{{32}}\.(parquet|json))")

History = Path | str  # a folder of this machine, or a URI


@dataclass(frozen=True, slots=True)
class Run:
    """A committed run. ``files``: by table, relative to the run's directory; times are ISO-8601 UTC.

    ``created_at``: when the run id was first published, which orders the runs; a rerun keeps it.
    """

    schema_version: int
    run_id: str
    created_at: str
    published_at: str
    facts: Fields
    files: dict[str, list[Fields]]


def new_run_id() -> str:
    """Return a run id that sorts by time."""
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")


def name_of(run_id: str) -> str:
    """Return the directory name of a run. Errors: :class:`AuditInputError` for an invalid id."""
    if not run_id or len(run_id) > MAX_RUN_ID or not run_id.isprintable():
        raise AuditInputError(f"invalid run id {run_id!r}: expected 1 to {MAX_RUN_ID} printable characters")
    return f"run_id={quote(run_id, safe='')}"


def publish(
    history: History, run_id: str, tables: Mapping[str, pa.Table], facts: Values, summary: Values | None = None
) -> Run:
    """Commit a run's tables, ``facts`` (small JSON for listings) and ``summary``, or replace the whole run of that id.

    Finishes, sweeps and converts what earlier runs left. Errors: :class:`AuditInputError` if nothing can be written, or
    a newer auditor wrote the run; :class:`~auditor.base.errors.StoreTrouble` if a store refuses temporarily.
    """
    target, name = folder(history), name_of(run_id)
    try:
        before = _newest(_manifests(target / name))
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        run = Run(SCHEMA_VERSION, run_id, before.created_at if before else now, now, dict(facts), {})
        attempt, staged = _stage(target, run, dict(tables), summary)
        left = (target / UNFINISHED).below()
        if (done := _finish(target, attempt, staged)) is None:
            raise AuditFailure("another run took the files of this one for those of a killed run; run it again")
        _tidy(history, left)
        return done
    except REFUSED as error:
        full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # not a usage error
        text = f"cannot write to {target.shown}: {why(error)}; free space there or choose another --history"
        raise (AuditFailure if full else AuditInputError)(text) from None


def _stage(
    where: ResultFolder, run: Run, tables: dict[str, pa.Table], summary: Values | None, before: Values | None = None
) -> tuple[str, Run]:
    attempt = uuid.uuid4().hex
    staged, files = where / UNFINISHED / attempt, {}
    for name, table in (tables | {RUNS: _row(run, before or {})}).items():
        content = pa.BufferOutputStream()
        pq.write_table(table.replace_schema_metadata(), content)
        files[name] = [_put(staged, f"{name}/{attempt}.parquet", content.getvalue(), table.num_rows)]
    if summary is not None:
        text = json.dumps(summary, ensure_ascii=False, default=list).encode("utf-8", "replace")  # in its own order
        files[SUMMARY] = [_put(staged, f"{SUMMARY}-{attempt}.json", text, 1)]
    run = replace(run, files=files)
    staged.put(f"{MANIFEST}-{attempt}.json", (json.dumps(asdict(run), indent=1, sort_keys=True) + "\n").encode())
    return attempt, run


def _put(to: ResultFolder, name: str, data: bytes | pa.Buffer, rows: int) -> Fields:
    to.put(name, data)
    return {"path": name, "rows": rows, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _row(run: Run, before: Values) -> pa.Table:
    # The table ``runs``. ``before``: what it had in an earlier form.
    facts, names = run.facts, schema.RUNS.names
    known = {**before, **facts, **(facts.get("held") or {}), **(facts.get("verdict") or {})}
    known |= (facts.get("counts") or {}) | {"cluster_id": cluster(run) or None, "cluster_name": named(run) or None}
    times = {"run_at": run.created_at, "published_at": run.published_at, "as_of": facts.get("as_of")}
    known |= {name: pipeline_summary.ms_of(text) for name, text in times.items()} | {"suppressed": accepted_count(run)}
    return pipeline_summary.table_of([{name: known.get(name) for name in names}], schema.RUNS)


def _finish(where: ResultFolder, attempt: str, run: Run | None, old: datetime | None = None) -> Run | None:
    # Move a staged run to its place. None if it is not whole: then what is left of it is deleted.
    staged, manifest = f"{UNFINISHED}/{attempt}", f"{MANIFEST}-{attempt}.json"
    if run:
        name, paths = name_of(run.run_id), sorted(_paths(run), key=lambda path: path.startswith(f"{RUNS}/"))
        if not {*paths, manifest} <= {*(where / staged).below(), *(where / name).below()}:
            run = None
        elif not where.uri:
            with contextlib.suppress(OSError):  # all at once, if the id is new
                os.rename(f"{where.path}/{staged}", f"{where.path}/{name}")
    if run:
        for path in (*paths, manifest):
            where.place(f"{staged}/{path}", f"{name}/{path}")
        _sweep(where / name, old)
    (where / UNFINISHED).remove([attempt])
    return run


def _tidy(history: History, left: Mapping[str, FileInfo]) -> None:
    # Finish or delete what killed runs left, and bring older runs to this form. ``left``: also has files that were just
    # written, which show the time of the file system.
    where, attempts = folder(history), dict[str, datetime]()
    for name, info in left.items():
        attempt, time = name.partition("/")[0], info.mtime or datetime.now(UTC)
        attempts[attempt] = max(time, attempts.get(attempt, time))
    old = max(attempts.values(), default=datetime.now(UTC)) - LEFT
    for attempt in (attempt for attempt, time in attempts.items() if time < old):
        name = f"{attempt}/{MANIFEST}-{attempt}.json"
        text = (where / UNFINISHED).get(name)
        if name in left and len(text or b"") != left[name].size:  # read in part: the next run looks again
            continue
        if not isinstance(run := _run(text), str):  # of a newer release
            _finish(where, attempt, run)
    content = content_of(history)
    for run in (run for run in content.runs if run.schema_version == IN_A_CELL):
        # One that is damaged stays as it is, and is named by all who list the runs.
        with contextlib.suppress(UnreadableRun, ValueError, AttributeError):
            tables = {name: read(history, run, name) for name in run.files}
            rows = tables[RUNS].drop_columns([SUMMARY]).to_pylist() if RUNS in tables else [{}]
            summary = summary_of(history, run) if RUNS in tables else None
            now = replace(run, schema_version=SCHEMA_VERSION)
            _finish(where, *_stage(where, now, tables, summary, rows[0]), old)
    for name in (f"run_id={quote(run_id, safe='')}" for run_id in content.uncommitted):
        _sweep(where / name, old)
        if not (where / name).below():
            where.remove([name])


def _sweep(of_run: ResultFolder, old: datetime | None) -> None:
    # Replaced manifests go first, then their files, and files from before ``old`` that are in no manifest.
    present = of_run.below()
    manifests = _manifests(of_run)
    if not manifests and any(map(_is_manifest, present)):  # damaged: somebody may restore it
        return
    last = max(manifests, key=lambda name: (_order_of(manifests[name]), name), default="")
    replaced = [name for name in manifests if name != last]
    paths = _paths(manifests[last]) if last else set()
    gone = {path for name in replaced for path in _paths(manifests[name])} - paths
    for name, info in present.items():
        stale = old is not None and info.mtime is not None and info.mtime < old and _OURS.fullmatch(name)
        if stale and name not in {*paths, *manifests}:
            gone.add(name)
    of_run.delete(replaced)
    of_run.delete(sorted(gone & present.keys()))


def _order_of(run: Run) -> tuple[str, int]:
    return run.published_at, run.schema_version


def _paths(run: Run) -> set[str]:
    return {file["path"] for files in run.files.values() for file in files}


def _manifests(of_run: ResultFolder) -> dict[str, Run]:
    # Of this run: a damaged one is replaced. Errors: AuditInputError for one of a newer auditor.
    names = [name for name in of_run.below() if _is_manifest(name)]
    runs = {name: _run(text) for name, text in zip(names, of_run.get_all(names), strict=True)}
    for name, run in runs.items():
        if isinstance(run, str) and run.endswith(UPGRADE):
            raise AuditInputError(f"{of_run.address(name)} {run}")
    return {name: run for name, run in runs.items() if isinstance(run, Run)}


def _is_manifest(name: str) -> bool:
    return name.startswith(MANIFEST) and name.endswith(".json") and "/" not in name


UPGRADE = "upgrade it"
_NONE, _COUNTS = type(None), {"": (int,)}  # a dict with "": any keys, with values of that form
_FILE = {"path": (str,), "rows": (int,), "bytes": (int,), "sha256": (str,)}
_MANIFEST: Fields = {"schema_version": (int,), "run_id": (str,), "created_at": (str,), "published_at": (str,)}
_MANIFEST |= {"facts": {}, "files": {"": [_FILE]}}
_FACTS: Fields = {  # of releases that kept them; null for none
    "as_of": (str,), "counts": _COUNTS, "batches": (int,), "bytes": (int,), "complete": (bool,), "asked": (str,),
    "all_logs": (bool,), "lacking": (str,), "unseen": {"": (str,)},
    "clusters": [(str,)], "brokers": _COUNTS, "accepted": _COUNTS,
    "named": {"": {"name": (str,)}}, "verdict": {"tone": (str,), "headline": (str,)}, "held": {"blocked": (int,)},
}  # fmt: skip
_MOST = 1 << 63


def _fits(value: Json, form: Any) -> bool:
    # Whether a value has a form: a tuple of types, a list of such, or a dict.
    if isinstance(form, dict):
        names = value if "" in form else form
        return isinstance(value, dict) and all(
            name in value and _fits(value[name], form.get("", form.get(name))) for name in names
        )
    if isinstance(form, list):
        return isinstance(value, list) and all(_fits(item, form[0]) for item in value)
    return type(value) in form and (not isinstance(value, int) or -_MOST <= value < _MOST)


def _run(text: bytes | None, run_folder: str = "") -> Run | str | None:
    # Why it cannot be read; None if it is gone or incomplete. ``run_folder``: the run's directory, if that is known.
    try:
        given = parsed(text or b"")
    except ValueError:
        return None
    version = given.get("schema_version") if isinstance(given, dict) else None
    if type(version) is int and version > SCHEMA_VERSION:
        return f"has schema version {version}, this auditor knows {SCHEMA_VERSION}; {UPGRADE}"
    facts: Json = given.get("facts") if isinstance(given, dict) else {}
    if not _fits(given, _MANIFEST) or not all(
        _fits(v, _FACTS[k]) for k, v in facts.items() if k in _FACTS and v is not None
    ):
        return NO_MANIFEST
    run = Run(*(given[name] for name in Run.__dataclass_fields__))
    if not all(_is_time(time) for time in (run.created_at, run.published_at)) or not all(map(_is_inside, _paths(run))):
        return NO_MANIFEST
    if run_folder not in ("", f"run_id={quote(run.run_id, safe='')}"):
        return f"is the manifest of run {run.run_id}; remove the directory or restore it"
    return run


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _is_inside(path: str) -> bool:
    return not path.startswith("/") and ".." not in path.split("/")


def _newest(manifests: Mapping[str, Run]) -> Run | None:
    return max(manifests.values(), key=_order_of, default=None)


@dataclass(frozen=True, slots=True)
class HistoryContent:
    """The committed runs, the oldest first, the ids of runs that were never committed, and why others are unreadable.

    ``unreadable``: by run id.
    """

    runs: list[Run]
    uncommitted: list[str]
    unreadable: dict[str, str] = field(default_factory=dict)


def content_of(history: History, cache: dict[str, Run] | None = None) -> HistoryContent:
    """Return the runs of a history from one listing. ``cache``: manifests by name, which is read and filled: no name is
    used twice.

    Errors: :class:`AuditInputError` if it cannot be read.
    """
    where, cache = folder(history), {} if cache is None else cache
    try:
        names = {name: inside for name, inside in where.folders().items() if name.startswith("run_id=")}
        manifests = [
            f"{name}/{file}" for name, inside in sorted(names.items()) for file in sorted(inside) if _is_manifest(file)
        ]
        unread = [name for name in manifests if name not in cache]
        texts = _texts(where, unread)
        if not names and not where.exists():
            raise AuditInputError(
                f"{where.shown} is not a directory; store runs there with: auditor audit --history {where.shown}"
            )
    except (*REFUSED, StoreTrouble) as error:
        raise AuditInputError(f"cannot read {where.shown}: {why(error)}; check the path and its credentials") from None
    read = {
        name: text if isinstance(text, str) else _run(text, name.partition("/")[0])
        for name, text in zip(unread, texts, strict=True)
    }
    # Of earlier releases manifest.json, which a rerun writes anew, is read each time.
    cache.update({name: run for name, run in read.items() if isinstance(run, Run) and not name.endswith(f"/{OLD}")})
    newest: dict[str, Run] = {}
    bad: dict[str, str] = {}
    for name in manifests:
        run_folder, run = name.partition("/")[0], read[name] if name in read else cache[name]
        if isinstance(run, str):
            bad[run_folder] = f"{where.address(name)} {run}"
        elif run is not None and (run_folder not in newest or _order_of(newest[run_folder]) <= _order_of(run)):
            newest[run_folder] = run
    ids = {name: unquote(name.removeprefix("run_id=")) for name in names.keys() - newest.keys()}
    runs = sorted(newest.values(), key=lambda run: (run.created_at, run.run_id))
    unreadable = {ids[name]: why for name, why in sorted(bad.items()) if name in ids}
    return HistoryContent(runs, sorted(set(ids.values()) - unreadable.keys()), unreadable)


def _texts(where: ResultFolder, names: list[str]) -> list[bytes | str | None]:
    # Of each file its content, or why it cannot be read, as a folder of its name.
    def content(name: str) -> bytes | str | None:
        try:
            return where.get(name)
        except OSError as error:
            if where.uri:
                raise
            return f"unreadable: {why(error)}"

    return side_by_side(content, names)


def committed(history: History) -> list[Run]:
    """Return the committed runs, the oldest first. Errors: as for :func:`content_of`."""
    return content_of(history).runs


def cluster(run: Run) -> str:
    """Return the cluster id of a run, several with commas; empty if unknown."""
    return ",".join(run.facts.get("clusters") or ())


def named(run: Run) -> str:
    """Return the cluster's name; ids if it has none."""
    given = run.facts.get("named") or {}
    return user_input.shown_cluster(cluster(run), {id: label["name"] for id, label in given.items()})


def scope_of(run: Run) -> str:
    """Return the scope of a run; empty if it read all of its input by all rules (:attr:`AuditOptions.asked`)."""
    return str(run.facts.get("asked") or "")


def group(run: Run) -> str:
    """Return the key of comparable runs: of the same cluster and scope."""
    return f"{cluster(run)} {scope_of(run)}".rstrip()


def shown(run: Run) -> str:
    """Return :func:`group` with the cluster's name."""
    return f"{named(run)} {scope_of(run)}".rstrip()


def before(history: History, run_id: str | None, clusters: Sequence[str] = (), asked: str = "") -> Run | None:
    """Return the comparable run before ``run_id``, the latest if that is new or None; None if there is none.

    Comparable: of the same ``clusters`` (sorted ids) and scope (``asked``). Runs of releases without these facts count
    as such.
    """
    candidates = committed(history) if folder(history).exists() else ()
    return next(reversed(earlier(candidates, run_id, clusters, asked)), None)


def earlier(candidates: Iterable[Run], run_id: str | None, clusters: Sequence[str] = (), asked: str = "") -> list[Run]:
    """Return the runs before ``run_id`` that are comparable with it, the oldest first; see :func:`before`."""
    comparable: list[Run] = []
    for run in candidates:
        if run.run_id == run_id:
            break
        if list(run.facts.get("clusters", clusters)) == list(clusters) and (run.facts.get("asked") or "") == asked:
            comparable.append(run)
    return comparable


class UnreadableRun(AuditInputError):
    """A table of a committed run that is missing, damaged or not of this form. ``key``: of the run."""

    def __init__(self, run: Run, reason: str) -> None:
        super().__init__(f"run {run.run_id} is unreadable: {reason}; publish it again")
        self.key = (run.run_id, run.published_at)


def files(history: History, run: Run, table: str) -> list[str]:
    """Return the addresses of a table's committed files; none if the run did not keep it."""
    of_run = folder(history) / name_of(run.run_id)
    return [of_run.address(file["path"]) for file in run.files.get(table, [])]


def read(history: History, run: Run, table: str, columns: list[str] | None = None) -> pa.Table:
    """Return a table of a run, or some ``columns`` of it.

    Errors: :class:`UnreadableRun`, also for a table that was not kept.
    """
    of_run, listed = folder(history) / name_of(run.run_id), run.files.get(table, [])
    if not listed:
        raise UnreadableRun(run, f"it has no table {table!r}, only {few(sorted(run.files)) or 'its manifest'}")
    try:
        return pa.concat_tables([_part(of_run, run, file, columns) for file in listed])
    except (*REFUSED, StoreTrouble) as error:
        raise UnreadableRun(run, why(error)) from None
    except pa.ArrowException:
        raise UnreadableRun(run, f"the files of {table} are not Parquet with one schema") from None


def _part(of_run: ResultFolder, run: Run, file: Values, columns: list[str] | None) -> pa.Table:
    parquet = pq.ParquetFile(pa.BufferReader(_content(of_run, run, file)))
    has = {column.name: _sort_of(column.type) for column in parquet.schema_arrow}
    needed = {name: has.get(name) for name in columns or ()}
    if file["path"].startswith("findings/"):
        needed |= {column.name: _sort_of(column.type) for column in FINDINGS if column.name in {*has, *WHO}}
    if odd := [name for name, sort in needed.items() if sort is None or has.get(name) != sort]:
        raise UnreadableRun(run, f"{file['path']} lacks {few(sorted(odd))}, or has another type for it")
    return parquet.read(columns)


def _content(of_run: ResultFolder, run: Run, file: Values) -> bytes:
    # Its checksum is verified before anything of it is parsed.
    content = of_run.get(file["path"], file["bytes"] + 1)
    if content is None:
        raise FileNotFoundError
    if hashlib.sha256(content).hexdigest() != file["sha256"]:
        raise UnreadableRun(run, f"{file['path']} checksum differs from the manifest")
    return content


def _sort_of(type: pa.DataType) -> tuple[bool, ...]:
    # Releases differ in the width of numbers.
    are = (pa.types.is_string, pa.types.is_integer, pa.types.is_timestamp, pa.types.is_boolean, pa.types.is_nested)
    return tuple(is_one(type) for is_one in are)


def accepted(history: History, run: Run) -> frozenset[str]:
    """Return the fingerprints that the baseline of a run suppressed."""
    kept_in = RUNS if run.schema_version == IN_A_CELL else SUMMARY
    if run.facts.get("accepted", True) is None or kept_in not in run.files:
        return frozenset()
    if "baseline" in run.files:
        rows = read(history, run, "baseline", ["fingerprint", "over"]).to_pylist()
        return frozenset(row["fingerprint"] for row in rows if row["over"] is None)
    return frozenset((summary_of(history, run).get("baseline") or {}).get("accepted", ()))


def summary_of(history: History, run: Run) -> Fields:
    """Return the summary of a run. Errors: as for :func:`read`."""
    try:
        if run.schema_version == IN_A_CELL:
            (text,) = read(history, run, RUNS, [SUMMARY])[SUMMARY].to_pylist()
        elif not run.files.get(SUMMARY):
            raise UnreadableRun(run, "it kept no summary")
        else:
            text = _content(folder(history) / name_of(run.run_id), run, run.files[SUMMARY][0])
        summary: Fields = parsed(text, MOST_OF_SUMMARY)
    except (*REFUSED, StoreTrouble) as error:
        raise UnreadableRun(run, why(error)) from None
    except (ValueError, TypeError):
        raise UnreadableRun(run, "its summary is not JSON") from None
    return summary


def accepted_count(run: Run) -> int:
    """Return how many findings the baseline of a run suppressed; 0 for a release that did not count them."""
    return sum((run.facts.get("accepted") or {}).values())


# A cache of kept runs, whose files never change.


WHO = ("fingerprint", "cluster_id", "severity", "topic", "partition", "transactional_id", "producer_id")
LOG = ("cluster_id", "topic", "partition")
MOST_BYTES = 256 << 20  # of tables in memory, the oldest of which then goes

Log = tuple[str | None, str | None, int | None]  # by LOG


@dataclass(slots=True)
class Shelf:
    """A history with a cache: manifests are read once, tables again if they had to be evicted."""

    history: History
    _manifests: dict[str, Run] = field(default_factory=dict)
    _tables: OrderedDict[tuple[object, ...], pa.Table] = field(default_factory=OrderedDict)
    _less: dict[tuple[str, ...], frozenset[Log]] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)  # by run id: manifests, and tables as far as read
    _damaged: dict[tuple[str, str], str] = field(default_factory=dict)  # runs with unreadable tables
    _bytes: int = 0
    _lock: Lock = field(default_factory=Lock)  # pages are asked for side by side

    def runs(self) -> list[Run]:
        """Return the committed runs, the oldest first; of those with an unreadable table the manifest alone.

        Errors: as for :func:`content_of`.
        """
        content = content_of(self.history, self._manifests)
        reasons = {run.run_id: self._damaged.get((run.run_id, run.published_at)) for run in content.runs}
        damaged = {run_id: reason for run_id, reason in reasons.items() if reason is not None}
        self.unreadable = content.unreadable | damaged
        return [_without_tables(run, damaged[run.run_id]) if run.run_id in damaged else run for run in content.runs]

    def without_unreadable(self, make: Callable[[], Made]) -> Made:
        """Return what ``make`` makes of :meth:`runs`, again without the tables of a run that turns out unreadable."""
        while True:
            try:
                return make()
            except UnreadableRun as error:
                if error.key in self._damaged:
                    raise
                self._damaged[error.key] = str(error)

    def read(self, run: Run, table: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Return a table of a run, or some columns of it. Errors: as for :func:`read`."""
        if "unreadable" in run.facts and table == "findings":
            return FINDINGS.empty_table().select(list(columns or FINDINGS.names))
        asked = run.run_id, run.published_at, table, tuple(columns or ())
        with self._lock:
            whole = self._tables.get((*asked[:3], ()))
            content = (
                whole.select(list(columns or whole.column_names)) if whole is not None else self._tables.get(asked)
            )
        if content is None:
            content = read(self.history, run, table, list(columns) if columns else None)
        with self._lock:
            before = self._tables.pop(asked, None)
            self._bytes += content.nbytes - (0 if before is None else before.nbytes)
            self._tables[asked] = content
            while self._bytes > MOST_BYTES and len(self._tables) > 1:
                _, gone = self._tables.popitem(last=False)
                self._bytes -= gone.nbytes
        return content

    def with_run(self, facts: Values, tables: Mapping[str, pa.Table]) -> Run:
        """Return a run that is not committed yet, of which only these tables are read."""
        run = Run(SCHEMA_VERSION, "", "", "", dict(facts), {name: [] for name in tables})
        self._tables |= {("", "", name, ()): table for name, table in tables.items()}
        return run

    def logs_less(self, then: Run, now: Run) -> frozenset[Log]:
        """Return the partitions that had logs ``then`` and have none ``now``; empty if either run did not keep them."""
        two = then.run_id, then.published_at, now.run_id, now.published_at
        if two not in self._less:
            log_sets = [
                set(zip(*(self.read(run, "logs", LOG)[name].to_pylist() for name in LOG), strict=True))
                for run in (then, now)
                if "logs" in run.files
            ]
            self._less[two] = frozenset(log_sets[0] - log_sets[1] if len(log_sets) > 1 else ())
        return self._less[two]

    def who(self, run: Run, accepted: bool = True) -> pa.Table:
        """Return the columns :data:`WHO` of a run's findings; ``accepted``: with those that its baseline suppresses."""
        findings = self.read(run, "findings", WHO)
        return findings if accepted else self.unaccepted(run, findings)

    def unaccepted(self, run: Run, table: pa.Table) -> pa.Table:
        """Return the findings of a run that its baseline does not suppress."""
        names = accepted(self.history, run)
        if not names:
            return table
        return table.filter(pa.array([name not in names for name in table["fingerprint"].to_pylist()], pa.bool_()))


def _without_tables(run: Run, reason: str) -> Run:
    return replace(run, facts=run.facts | {"unreadable": reason}, files={})


# Changes between runs: a finding is gone if a run that looked for it does not have it.
#
# A run did not look for a finding if it could not read all of its input, or if its input lacks a broker, a log
# directory or an internal log that the run with the finding had, or the finding's log: rules need coordinators and
# metadata to judge other logs. The finding keeps its status until a run does.


LATELY = 20  # runs to compare with if the last ones saw less than this one
INTERNAL = ("__cluster_metadata", "__transaction_state", "__consumer_offsets")
_IN_PART = re.compile(r"--(rule|skip-rule|since) ")  # scopes in which a log that is read is not judged by all rules


class KeptFinding(NamedTuple):
    """A finding in the last run that has it."""

    run: Run
    severity: str
    log: Log


Key = TypeVar("Key")
Was = TypeVar("Was")
Is = TypeVar("Is")


class Changes(NamedTuple, Generic[Key, Was, Is]):
    """Findings by what names them. ``new`` and ``still``: as in the run; ``gone`` and ``unseen`` (the run did not look
    for them): as in the last run before it that has them."""

    new: dict[Key, Is]
    gone: dict[Key, Was]
    still: dict[Key, Is]
    unseen: dict[Key, Was]


def compared(before: Mapping[Key, Was], present: Mapping[Key, Is], why: Callable[[Was], str]) -> Changes[Key, Was, Is]:
    """Compare the findings of two runs. ``why``: why a finding that is not present may still be there, empty if it is
    gone."""
    missing = {name: was for name, was in before.items() if name not in present}
    unseen = {name: was for name, was in missing.items() if why(was)}
    return Changes(
        {name: finding for name, finding in present.items() if name not in before},
        {name: was for name, was in missing.items() if name not in unseen},
        {name: finding for name, finding in present.items() if name in before},
        unseen,
    )


def changes_of(shelf: Shelf, earlier: Sequence[Run], run: Run) -> Changes[str, KeptFinding, KeptFinding]:
    """Compare a run with the runs of its group before it, the oldest first. Findings that a baseline suppresses are
    gone, and new when it no longer does.

    Cost: seven columns of the findings of this run and the one before, of :data:`LATELY` runs if that saw less; three
    columns of the logs of runs that may show findings as gone. Errors: as for :meth:`Shelf.read`.
    """
    stood: dict[str, KeptFinding] = {}
    for current in (*_since_whole(shelf, earlier, run), run):
        present = found_in(shelf, current)
        changes = compared(stood, present, partial(why_unseen, shelf, current))
        stood = changes.unseen | present
    return changes


def found_in(shelf: Shelf, run: Run, accepted: bool = False) -> dict[str, KeptFinding]:
    """Return a run's findings by fingerprint, the most severe of each; ``accepted``: with those that its baseline
    suppresses."""
    table, out = shelf.who(run, accepted), dict[str, KeptFinding]()
    of_each = (table[name].to_pylist() for name in ("fingerprint", "severity", *LOG))
    for name, severity, *log in zip(*of_each, strict=True):
        out.setdefault(name, KeptFinding(run, severity, (*log,)))
    return out


def rows(shelf: Shelf, findings: Mapping[str, KeptFinding]) -> list[Fields]:
    """Return the rows of findings as their runs have them, in order; several may have one fingerprint."""
    out = []
    for run in {was.run.run_id: was.run for was in findings.values()}.values():
        table = shelf.unaccepted(run, shelf.read(run, "findings"))
        names = [name for name, was in findings.items() if was.run.run_id == run.run_id]
        out += table.filter(pc.is_in(table["fingerprint"], pa.array(names, pa.string()))).to_pylist()
    return out


def unchecked(shelf: Shelf, earlier: Sequence[Run], run: Run) -> tuple[str, dict[str, str]]:
    """Return why a run does not show that its cluster is healthy, in words, and the critical and error findings of
    ``earlier`` runs, in order and with any scope, that it did not look for: the last run with each, by fingerprint.

    The words are empty if it may be one. Cost: as :func:`changes_of`, and the findings of older runs that the run
    before has as such.
    """
    of_cluster = [past for past in earlier if cluster(past) == cluster(run)]
    alike = [past for past in of_cluster if scope_of(past) == scope_of(run)]
    unseen = {**dict(_unseen_still(shelf, of_cluster, run)), **changes_of(shelf, of_cluster, run).unseen}
    grave = {name: was.run.run_id for name, was in unseen.items() if was.severity in GRAVE}
    many = len(grave)
    text = f"{plural(many, 'critical or error finding')} of earlier runs not checked"
    return "; ".join(filter(None, (is_partial(alike, run), text if many else ""))), grave


def _unseen_still(shelf: Shelf, earlier: Sequence[Run], run: Run) -> Iterator[tuple[str, KeptFinding]]:
    # What the run before did not look for, and this one neither, however many runs ago it was found.
    runs_by_id, present = {past.run_id: past for past in earlier}, found_in(shelf, run, accepted=True)
    listed = (earlier[-1].facts.get("unseen") or {}) if earlier else {}
    for name, run_id in listed.items():
        was = found_in(shelf, runs_by_id[run_id]).get(name) if run_id in runs_by_id and name not in present else None
        if was is not None and why_unseen(shelf, run, was):
            yield name, was


def is_partial(earlier: Sequence[Run], run: Run) -> str:
    """Return why a run covers less than the earlier runs of its group; empty if it covers the same."""
    return _partly([past.facts for past in earlier[-LATELY:]], run.facts)


def _partly(then: Sequence[Values], now: Values) -> str:
    if reason := now.get("unreadable"):
        return str(reason)
    if not now.get("complete", True):
        return "part of the input is unreadable"
    lacks = sorted({name for facts in then for name in _lacks(now, facts)})
    return f"{few(lacks)} missing from the input (present in an earlier run)" if lacks else ""


def why_unseen(shelf: Shelf, run: Run, was: KeptFinding) -> str:
    """Return why a finding that a run lacks may still exist; empty if it is resolved.

    A missing log was deleted if the run has all logs of the metadata; else it may not have been copied.
    """
    facts = run.facts
    if scope_of(run) not in ("", scope_of(was.run)):
        if _IN_PART.search(scope_of(run)):
            return "only part of the input or rules was checked"
        facts = facts | {"all_logs": None}
    return why_unseen_by_facts(was.run.facts, facts, was.log, lambda: shelf.logs_less(was.run, run))


def why_unseen_by_facts(then: Values, now: Values, log: Log, lacking: Callable[[], Collection[Log]]) -> str:
    """As :func:`why_unseen`, by the facts ``complete``, ``brokers`` and ``all_logs`` of two runs;
    ``lacking``: the logs of the first that the second one lacks."""
    why = _partly([then], now)
    if why or now.get("all_logs"):
        return why
    less = lacking()
    if log in less:
        return "the log is missing from the input (present in an earlier run)"
    names = few(sorted(f"{topic}-{number}" for _, topic, number in less if topic in INTERNAL))
    return f"{names} missing from the input (present in an earlier run)" if names else ""


def _since_whole(shelf: Shelf, earlier: Sequence[Run], run: Run) -> Sequence[Run]:
    # Back to the last run that covers all that this run can have seen, and all that the runs before it had.
    late = earlier[-LATELY:]
    scopes = {scope_of(past) for past in late}
    widest = {""} if "" in scopes else scopes if len(scopes) == 1 else set[str]()

    def covers(place: int) -> bool:
        past, before = late[place], late[:place]
        if scope_of(past) not in widest or is_partial((run, *before), past):
            return False
        return bool(past.facts.get("all_logs")) or not any(shelf.logs_less(then, past) for then in before)

    return late[next(filter(covers, reversed(range(len(late)))), 0) :]


def _lacks(now: Values, then: Values) -> list[str]:
    # An earlier release did not keep brokers.
    own, theirs = (facts.get("brokers") for facts in (now, then))
    if own is None or theirs is None:
        return []
    less = [name for name, dirs in theirs.items() if own.get(name, 0) < dirs]
    return [f"a log directory of {name}" if name in own else name for name in less]


# The status of clusters by their kept runs.


GAPS = 10  # between the latest runs, for the expected period
LEAST_GAPS = 2
HOUR_MS = 3_600_000  # the shortest expected period: closer runs are no schedule


@dataclass(frozen=True, slots=True)
class ClusterStanding:
    """The status of a cluster by its kept runs; runs with another scope count apart.

    ``name``: the cluster id (several with commas, empty if unknown); ``last``: its latest run; ``new`` and ``gone``:
    findings against the run before, None without one; ``since``: the evaluation time of the first run of the latest
    series with critical or error findings; ``every_ms``: the expected period, None if unknown; ``silent_ms``: time
    since the last run; ``partly``: as :func:`is_partial`.
    """

    name: str
    runs: int
    last: Run
    new: int | None
    gone: int | None
    since: str | None
    every_ms: int | None
    silent_ms: int
    partly: str

    @property
    def overdue(self) -> bool:
        """Whether the next run is late by half a period."""
        return self.every_ms is not None and self.silent_ms > self.every_ms * 3 // 2

    @property
    def worst(self) -> str | None:
        """The highest severity of its last run."""
        return next((name for name in SEVERITIES if (self.last.facts.get("counts") or {}).get(name)), None)


def by_cluster(all_runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Group runs by :func:`group`, in the order given; runs with a full scope first."""
    groups: dict[str, list[Run]] = {}
    for entry in sorted(all_runs, key=lambda run: scope_of(run) != ""):
        groups.setdefault(group(entry), []).append(entry)
    return groups


def in_front(groups: Mapping[str, list[Run]]) -> dict[str, list[Run]]:
    """Select the groups that show the status of clusters: runs with a limited scope only if there are no others."""
    whole = {cluster(series[-1]) for series in groups.values() if not scope_of(series[-1])}
    return {
        name: series for name, series in groups.items() if not scope_of(series[-1]) or cluster(series[-1]) not in whole
    }


def standings(
    shelf: Shelf, all_runs: Sequence[Run], now: datetime, every_ms: int | None = None
) -> list[ClusterStanding]:
    """Return the status of each cluster, the worst first: by severity, then overdue or incomplete ones.

    ``every_ms``: the expected period; None: the median of its latest runs. Cost: the fingerprints of two runs per
    cluster.
    """
    clusters = [_standing(shelf, name, series, now, every_ms) for name, series in by_cluster(all_runs).items()]
    return sorted(clusters, key=_order)


def _order(entry: ClusterStanding) -> tuple[int, bool, bool, str]:
    severity = len(SEVERITIES) if entry.worst is None else SEVERITIES.index(entry.worst)
    return (severity if entry.worst in GRAVE else len(GRAVE), not entry.overdue, not entry.partly, entry.name)


def _standing(shelf: Shelf, name: str, series: Sequence[Run], now: datetime, every_ms: int | None) -> ClusterStanding:
    new = gone = None
    if len(series) > 1:
        change = changes_of(shelf, series[:-1], series[-1])
        new, gone = len(change.new), len(change.gone)
    since = None
    for run in reversed(series):
        if not any((run.facts.get("counts") or {}).get(severity) for severity in GRAVE):
            break
        since = run.facts.get("as_of")
    if scope_of(series[-1]) and len(series) <= LEAST_GAPS:
        every_ms = None  # a single question has no schedule
    elif every_ms is None:
        times = [datetime.fromisoformat(run.published_at) for run in series[-GAPS - 1 :]]
        gaps = [(late - early).total_seconds() for early, late in itertools.pairwise(times)]
        every_ms = max(HOUR_MS, int(statistics.median(gaps) * 1000)) if len(gaps) >= LEAST_GAPS else None
    silent = int((now - datetime.fromisoformat(series[-1].published_at)).total_seconds() * 1000)
    partly = is_partial(series[:-1], series[-1])
    return ClusterStanding(name, len(series), series[-1], new, gone, since, every_ms, max(0, silent), partly)
