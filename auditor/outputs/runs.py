"""The runs kept under a folder: immutable Parquet below ``run_id=``, committed by a manifest that is written last.

    DIR/run_id=20261121T040000.000000Z/findings/<attempt>.parquet    one folder a table: findings, logs, runs,
                                      /manifest.json                 report, and expectations where asked for

A run is what its manifest lists. The manifest is put in place by one rename, so that a rerun of the same run id
replaces all of the run or nothing; files that no manifest lists are what a killed run left, and go at the next
publishing. Any reader of Parquet takes the folders as a table partitioned by ``run_id``; :func:`files` gives exactly
what is committed, also while a rerun is being written.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq

from auditor.base.errors import AuditInputError

SCHEMA_VERSION = 1
MANIFEST = "manifest.json"
MAX_RUN_ID = 200


@dataclass(frozen=True, slots=True)
class Run:
    """A committed run: ``files`` by table, relative to the run's folder; times are ISO-8601 UTC.

    ``created_at`` is when the run id was first published and orders the runs; a rerun keeps it.
    """

    schema_version: int
    run_id: str
    created_at: str
    published_at: str
    facts: dict[str, Any]
    files: dict[str, list[dict[str, Any]]]


def new_run_id() -> str:
    """A run id that sorts by time."""
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")


def folder_of(history: Path, run_id: str) -> Path:
    """The folder of a run. Errors: :class:`AuditInputError` for an id that makes no folder's name."""
    if not run_id or len(run_id) > MAX_RUN_ID or not run_id.isprintable():
        raise AuditInputError(f"run id {run_id!r} will not do; give 1 to {MAX_RUN_ID} printable characters")
    return history / f"run_id={quote(run_id, safe='')}"


def publish(history: Path, run_id: str, tables: Mapping[str, pa.Table], facts: Mapping[str, Any]) -> Run:
    """Keeps a run's tables and ``facts`` (small JSON for listings), or replaces the run of that id as a whole.

    Errors: :class:`AuditInputError` where nothing can be written, or a newer auditor wrote the run.
    """
    folder = folder_of(history, run_id)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder):
            before = _read_manifest(folder)
            attempt = uuid.uuid4().hex
            files = {name: [_write(folder, name, attempt, table)] for name, table in tables.items()}
            now = datetime.now(UTC).isoformat(timespec="microseconds")
            run = Run(SCHEMA_VERSION, run_id, before.created_at if before else now, now, dict(facts), files)
            part = folder / f".{MANIFEST}.{attempt}"
            part.write_text(json.dumps(asdict(run), indent=1, sort_keys=True) + "\n", encoding="utf-8")
            os.replace(part, folder / MANIFEST)
            _sweep(folder, run)
            return run
    except OSError as error:
        raise AuditInputError(f"cannot write to {folder}: {error.strerror}; choose another --history") from None


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One publisher of a run at a time; the lock goes with its process, however that ends."""
    lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _write(folder: Path, name: str, attempt: str, table: pa.Table) -> dict[str, Any]:
    path = folder / name / f"{attempt}.parquet"
    if path.parent.is_symlink():  # whatever it leads to is not ours to write to
        path.parent.unlink()
    path.parent.mkdir(exist_ok=True)
    marked = table.replace_schema_metadata({"auditor.commands.history.schema_version": str(SCHEMA_VERSION)})
    pq.write_table(marked, path)
    content = path.read_bytes()
    return {
        "path": path.relative_to(folder).as_posix(),
        "rows": table.num_rows,
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }


def _sweep(folder: Path, run: Run) -> None:
    """Removes what the manifest does not list."""
    listed = {folder / file["path"] for files in run.files.values() for file in files}
    left = [path for path in folder.glob("*/*.parquet") if path not in listed and not path.parent.is_symlink()]
    for path in (*left, *folder.glob(f".{MANIFEST}.*")):
        path.unlink()


def _read_manifest(folder: Path) -> Run | None:
    try:
        run = Run(**json.loads((folder / MANIFEST).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):
        raise AuditInputError(f"{folder / MANIFEST} is no manifest of a run; remove the folder or restore it") from None
    if run.schema_version > SCHEMA_VERSION:
        raise AuditInputError(
            f"{folder} has schema version {run.schema_version}, this auditor knows {SCHEMA_VERSION}; upgrade it"
        )
    return run


def committed(history: Path) -> list[Run]:
    """The committed runs, the oldest first. Errors: :class:`AuditInputError` when ``history`` is no folder."""
    if not history.is_dir():
        raise AuditInputError(f"{history} is no folder; 'auditor audit --history {history}' keeps runs there")
    runs = [run for path in history.glob("run_id=*") if (run := _read_manifest(path)) is not None]
    return sorted(runs, key=lambda run: (run.created_at, run.run_id))


def uncommitted(history: Path) -> list[str]:
    """Ids of runs that were begun and never committed."""
    names = [path.name for path in history.glob("run_id=*") if not (path / MANIFEST).exists()]
    return sorted(unquote(name.removeprefix("run_id=")) for name in names)


def cluster(run: Run) -> str:
    """The cluster that a run looked at: its id, several with commas between; empty where none is known."""
    return ",".join(run.facts.get("clusters") or ())


def before(history: Path, run_id: str | None, clusters: Sequence[str] = ()) -> Run | None:
    """The run made before ``run_id``, the latest when that is new or None; None where there is none.

    Of runs of the same ``clusters`` (sorted ids) alone; runs kept before these were are taken as such.
    """
    earlier: list[Run] = []
    for run in committed(history) if history.is_dir() else []:
        if run.run_id == run_id:
            break
        if list(run.facts.get("clusters", clusters)) == list(clusters):
            earlier.append(run)
    return earlier[-1] if earlier else None


def files(history: Path, run: Run, table: str) -> list[Path]:
    """The committed files of a table, none where the run did not keep it."""
    folder = folder_of(history, run.run_id)
    return [folder / file["path"] for file in run.files.get(table, [])]


def read(history: Path, run: Run, table: str, columns: list[str] | None = None) -> pa.Table:
    """A table of a run, or some ``columns`` of it.

    Errors: :class:`AuditInputError` for a table that was not kept, or files that went missing.
    """
    paths = files(history, run, table)
    if not paths:
        raise AuditInputError(f"run {run.run_id} kept no table {table!r}; it has {', '.join(sorted(run.files))}")
    try:
        return pa.concat_tables([pq.ParquetFile(path).read(columns) for path in paths])
    except (OSError, pa.ArrowException) as error:
        raise AuditInputError(f"run {run.run_id} cannot be read: {error}; publish it again") from None


def accepted(history: Path, run: Run) -> frozenset[str]:
    """The fingerprints that the baseline of a run accepted; none where it had no baseline."""
    if run.facts.get("accepted", True) is None or "runs" not in run.files:
        return frozenset()
    summary = json.loads(read(history, run, "runs", ["summary"])["summary"][0].as_py())
    return frozenset((summary.get("baseline") or {}).get("accepted", ()))


def open_findings(history: Path, run: Run, columns: list[str] | None = None) -> pa.Table:
    """A run's findings without those that its baseline accepted: what is new and gone is asked of these.

    One is gone when it is accepted, and new when it comes back. ``columns``: those wanted, ``fingerprint`` among them.
    """
    table, names = read(history, run, "findings", columns), accepted(history, run)
    if not names:
        return table
    return table.filter(pa.array([name not in names for name in table["fingerprint"].to_pylist()], pa.bool_()))


def accepted_count(run: Run) -> int:
    """How many findings the baseline of a run accepted; 0 for runs of the past, which do not say."""
    return sum((run.facts.get("accepted") or {}).values())


@dataclass(frozen=True, slots=True)
class Diff:
    """Findings of two runs by fingerprint: only in the newer, only in the older, in both (as the newer has them)."""

    new: list[dict[str, Any]]
    gone: list[dict[str, Any]]
    still: list[dict[str, Any]]


def diff(older: pa.Table, newer: pa.Table) -> Diff:
    """Compares two tables of findings; rows keep their order, and findings that share a fingerprint go together."""
    then, now = older.to_pylist(), newer.to_pylist()
    known, found = {row["fingerprint"] for row in then}, {row["fingerprint"] for row in now}
    return Diff(
        [row for row in now if row["fingerprint"] not in known],
        [row for row in then if row["fingerprint"] not in found],
        [row for row in now if row["fingerprint"] in known],
    )
