"""The runs kept in a folder or a store: Parquet below ``run_id=``, committed by a manifest that is written last.

    DIR/run_id=20261121T040000.000000Z/findings/<attempt>.parquet    one folder a table: findings, logs, runs,
                                      /manifest-<attempt>.json       report, and expectations where asked for

A run is what the newest of its manifests lists. No name is used twice, so nothing is locked or renamed, here or in a
store: a manifest that was not written whole is no JSON and counts for nothing, a rerun of the same run id replaces all
of the run or nothing, and of two at a time one whole run is left. What was replaced goes then, and files that no
manifest lists, which a killed run left, a day later. Any reader of Parquet takes the folders as a table partitioned by
``run_id``; :func:`files` gives exactly what is committed, also while a rerun is being written.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq

from auditor.base import user_input
from auditor.base.at_rest import Fields, Values
from auditor.base.errors import AuditInputError, StoreTrouble
from auditor.connectors.stores.results import Folder, folder, why
from auditor.connectors.stores.retries import REFUSED

SCHEMA_VERSION = 1
MANIFEST, OLD = "manifest", "manifest.json"  # how names of manifests begin; what older ones were
MAX_RUN_ID = 200
LEFT = timedelta(days=1)  # so old is what a killed run left, and nobody is still writing it

History = Path | str  # a folder of this machine, or a URI


@dataclass(frozen=True, slots=True)
class Run:
    """A committed run: ``files`` by table, relative to the run's folder; times are ISO-8601 UTC.

    ``created_at`` is when the run id was first published and orders the runs; a rerun keeps it.
    """

    schema_version: int
    run_id: str
    created_at: str
    published_at: str
    facts: Fields
    files: dict[str, list[Fields]]


def new_run_id() -> str:
    """A run id that sorts by time."""
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")


def name_of(run_id: str) -> str:
    """The folder of a run. Errors: :class:`AuditInputError` for an id that makes no folder's name."""
    if not run_id or len(run_id) > MAX_RUN_ID or not run_id.isprintable():
        raise AuditInputError(f"run id {run_id!r} will not do; give 1 to {MAX_RUN_ID} printable characters")
    return f"run_id={quote(run_id, safe='')}"


def publish(history: History, run_id: str, tables: Mapping[str, pa.Table], facts: Values) -> Run:
    """Keeps a run's tables and ``facts`` (small JSON for listings), or replaces the run of that id as a whole.

    Errors: :class:`AuditInputError` where nothing can be written, or a newer auditor wrote the run;
    :class:`~auditor.base.errors.StoreTrouble` where a store refuses for now.
    """
    kept, name, attempt = folder(history), name_of(run_id), uuid.uuid4().hex
    try:
        before = _newest(_manifests(kept / name))
        files = {table: [_write(kept / name, f"{table}/{attempt}.parquet", rows)] for table, rows in tables.items()}
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        run = Run(SCHEMA_VERSION, run_id, before.created_at if before else now, now, dict(facts), files)
        text = json.dumps(asdict(run), indent=1, sort_keys=True) + "\n"
        (kept / name).put(f"{MANIFEST}-{attempt}.json", text.encode())
        _sweep(kept / name)
        return run
    except REFUSED as error:
        raise AuditInputError(f"cannot write to {kept.shown}: {why(error)}; choose another --history") from None


def _write(to: Folder, name: str, table: pa.Table) -> Fields:
    marked = table.replace_schema_metadata({"auditor.commands.history.schema_version": str(SCHEMA_VERSION)})
    content = pa.BufferOutputStream()
    pq.write_table(marked, content)
    held = content.getvalue()
    to.put(name, held)
    return {"path": name, "rows": table.num_rows, "bytes": held.size, "sha256": hashlib.sha256(held).hexdigest()}


def _sweep(of_run: Folder) -> None:
    """Removes what the newest manifest has replaced, manifests first, and what is old and in none."""
    there = of_run.below()
    known = _manifests(of_run)
    if not known:  # whoever published behind this one has taken away what was listed here
        return
    last = max(known, key=lambda name: (known[name].published_at, name))
    replaced = [name for name in known if name != last]
    kept, old = _paths(known[last]), datetime.now(UTC) - LEFT
    gone = {path for name in replaced for path in _paths(known[name])} - kept
    for name, info in there.items():
        ours = name.endswith(".parquet") or name.startswith(MANIFEST)
        if ours and name not in kept and name not in known and info.mtime is not None and info.mtime < old:
            gone.add(name)
    of_run.delete(replaced)
    of_run.delete(sorted(gone & there.keys()))


def _paths(run: Run) -> set[str]:
    return {file["path"] for files in run.files.values() for file in files}


def _manifests(of_run: Folder) -> dict[str, Run]:
    """The whole manifests of a run by their names."""
    names = [name for name in of_run.below() if _is_manifest(name)]
    read = zip(names, of_run.get_all(names), strict=True)
    return {name: run for name, text in read if (run := _run(of_run.address(name), text)) is not None}


def _is_manifest(name: str) -> bool:
    return name.startswith(MANIFEST) and name.endswith(".json") and "/" not in name


def _run(shown: str, text: bytes | None) -> Run | None:
    """What a manifest says; None where it is gone or was not written whole."""
    try:
        run = Run(**json.loads(text or b""))
    except ValueError:
        return None
    except TypeError:
        raise AuditInputError(f"{shown} is no manifest of a run; remove the folder or restore it") from None
    if run.schema_version > SCHEMA_VERSION:
        raise AuditInputError(
            f"{shown} has schema version {run.schema_version}, this auditor knows {SCHEMA_VERSION}; upgrade it"
        )
    return run


def _newest(known: Mapping[str, Run]) -> Run | None:
    return max(known.values(), key=lambda run: run.published_at, default=None)


@dataclass(frozen=True, slots=True)
class Kept:
    """What is in a history: the committed runs, the oldest first, and the ids of those begun and never committed."""

    runs: list[Run]
    uncommitted: list[str]


def kept(history: History, known: dict[str, Run] | None = None) -> Kept:
    """The runs of a history, by one list of its files. ``known``: manifests that were read before, by their names,
    which gets those that are read now: no name is used twice. Errors: :class:`AuditInputError` where it cannot be read.
    """
    where, known = folder(history), {} if known is None else known
    try:
        names = {name: inside for name, inside in where.folders().items() if name.startswith("run_id=")}
        manifests = [
            f"{name}/{file}" for name, inside in sorted(names.items()) for file in sorted(inside) if _is_manifest(file)
        ]
        unread = [name for name in manifests if name not in known]
        texts = where.get_all(unread)
        if not names and not where.exists():
            raise AuditInputError(
                f"{where.shown} is no folder; 'auditor audit --history {where.shown}' keeps runs there"
            )
    except (*REFUSED, StoreTrouble) as error:
        raise AuditInputError(f"{where.shown} cannot be read: {why(error)}; check it and its credentials") from None
    read = {name: _run(where.address(name), text) for name, text in zip(unread, texts, strict=True)}
    # Of earlier releases manifest.json, which a rerun writes anew, is read each time.
    known.update({name: run for name, run in read.items() if run is not None and not name.endswith(f"/{OLD}")})
    newest: dict[str, Run] = {}
    for name in manifests:
        at, run = name.partition("/")[0], read[name] if name in read else known[name]
        if run is not None and (at not in newest or newest[at].published_at < run.published_at):
            newest[at] = run
    begun = names.keys() - newest.keys()
    runs = sorted(newest.values(), key=lambda run: (run.created_at, run.run_id))
    return Kept(runs, sorted(unquote(name.removeprefix("run_id=")) for name in begun))


def committed(history: History) -> list[Run]:
    """The committed runs, the oldest first. Errors: as of :func:`kept`."""
    return kept(history).runs


def cluster(run: Run) -> str:
    """The cluster that a run looked at: its id, several with commas between; empty where none is known."""
    return ",".join(run.facts.get("clusters") or ())


def named(run: Run) -> str:
    """The cluster as people call it: the names that the run was given, ids where it was given none."""
    given = run.facts.get("named") or {}
    return user_input.shown_cluster(cluster(run), {id: each["name"] for id, each in given.items()})


def asked(run: Run) -> str:
    """What it looked at, where not at all of its input by all rules (:attr:`AuditOptions.asked`)."""
    return str(run.facts.get("asked") or "")


def group(run: Run) -> str:
    """Which runs it can be compared with: those of its cluster that were asked alike. What another one was not asked
    is not gone."""
    return f"{cluster(run)} {asked(run)}".rstrip()


def shown(run: Run) -> str:
    """The same as people call it."""
    return f"{named(run)} {asked(run)}".rstrip()


def before(history: History, run_id: str | None, clusters: Sequence[str] = (), asked: str = "") -> Run | None:
    """The run made before ``run_id``, the latest when that is new or None; None where there is none.

    Of runs of the same ``clusters`` (sorted ids) that were ``asked`` alike alone; runs kept before these were are taken
    as such.
    """
    known = committed(history) if folder(history).exists() else ()
    return next(reversed(earlier(known, run_id, clusters, asked)), None)


def earlier(known: Iterable[Run], run_id: str | None, clusters: Sequence[str] = (), asked: str = "") -> list[Run]:
    """Of runs, the oldest first, those before ``run_id`` that can be compared with it; see :func:`before`."""
    found: list[Run] = []
    for run in known:
        if run.run_id == run_id:
            break
        if list(run.facts.get("clusters", clusters)) == list(clusters) and (run.facts.get("asked") or "") == asked:
            found.append(run)
    return found


def files(history: History, run: Run, table: str) -> list[str]:
    """Where the committed files of a table are, none where the run did not keep it."""
    of_run = folder(history) / name_of(run.run_id)
    return [of_run.address(file["path"]) for file in run.files.get(table, [])]


def read(history: History, run: Run, table: str, columns: list[str] | None = None) -> pa.Table:
    """A table of a run, or some ``columns`` of it.

    Errors: :class:`AuditInputError` for a table that was not kept, or files that went missing.
    """
    of_run, names = folder(history) / name_of(run.run_id), [file["path"] for file in run.files.get(table, [])]
    if not names:
        raise AuditInputError(f"run {run.run_id} kept no table {table!r}; it has {', '.join(sorted(run.files))}")
    try:
        found = [of_run.get(name) for name in names]
        if None in found:
            raise FileNotFoundError
        return pa.concat_tables([pq.ParquetFile(pa.BufferReader(one)).read(columns) for one in found])
    except (*REFUSED, StoreTrouble) as error:
        raise AuditInputError(f"run {run.run_id} cannot be read: {why(error)}; publish it again") from None


def accepted(history: History, run: Run) -> frozenset[str]:
    """The fingerprints that the baseline of a run accepted; none where it had no baseline."""
    if run.facts.get("accepted", True) is None or "runs" not in run.files:
        return frozenset()
    if "baseline" in run.files:
        rows = read(history, run, "baseline", ["fingerprint", "over"]).to_pylist()
        return frozenset(row["fingerprint"] for row in rows if row["over"] is None)
    summary = json.loads(read(history, run, "runs", ["summary"])["summary"][0].as_py())
    return frozenset((summary.get("baseline") or {}).get("accepted", ()))


def accepted_count(run: Run) -> int:
    """How many findings the baseline of a run accepted; 0 for runs of the past, which do not say."""
    return sum((run.facts.get("accepted") or {}).values())
