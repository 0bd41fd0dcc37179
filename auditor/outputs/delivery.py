"""The output directory: exclusive, complete or absent, local or in a store."""

from __future__ import annotations

import contextlib
import json
import posixpath
import shutil
import tempfile
import traceback
import uuid
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from auditor.base import user_input
from auditor.base.at_rest import MOST_OF_SUMMARY, Fields, Values, parsed
from auditor.base.errors import AuditFailure, AuditInputError, StoreTrouble
from auditor.connectors.kafka_names import COPY_LIST
from auditor.connectors.logdir.files import Inventory
from auditor.connectors.stores.results import PARTIAL, ResultFolder, alone_in, folder, is_of_its_own, making, tried, why
from auditor.connectors.stores.retries import REFUSED, side_by_side
from auditor.connectors.stores.storage import StorageLocation
from auditor.pipeline.table_parts import file_name
from auditor.rules.catalogue import registry
from auditor.rules.resolution.resolve import cluster_of, fingerprint

if TYPE_CHECKING:
    from auditor.pipeline.table_tasks import WrittenTables


# An output directory, here or in a store.


SUMMARY, WHAT_IF, FAILURE = "summary.json", "what-if.json", "failure.log"
RESULTS = (
    "findings.jsonl", "findings", SUMMARY, "report.html", "metrics.prom", "tables", FAILURE, "data_docs", WHAT_IF,
)  # fmt: skip
STAGED = ".unfinished"


def evidence(inventory: Inventory | None) -> Iterator[tuple[str, StorageLocation]]:
    """Yield the directories of the input that nothing may be written into, with their kind. Directories with text
    dumps alone are allowed."""
    for log_dir in () if inventory is None else inventory.log_dirs:
        if log_dir.meta is not None or log_dir.replicas or log_dir.small_files:
            yield "log directory", log_dir.place
    for remote in () if inventory is None else inventory.remote:
        for file in (file for segment in remote.segments[:1] for file in segment.files[:1]):
            if file.place:
                yield "remote storage", file.place


def writable(out: Path | str, inventory: Inventory | None, option: str = "--out") -> ResultFolder:
    """Check the directory of an option: not in a log directory of the input, in remote storage, or in a local copy,
    links followed. A store is tested with a small file.

    One store may have several schemes, so URIs are compared by path. Errors: :class:`AuditInputError` if it is: input
    is only read, and a broker does not start with unknown directories in its log directory.
    """
    where = folder(out)
    if where.uri and not is_of_its_own(where):
        raise AuditInputError(f"{where.shown} is not a separate store: use a path or a plain URI for {option}")
    for what, place in evidence(inventory):
        if bool(place.uri) == bool(where.uri) and _plain(where).is_relative_to(_plain(place)):
            raise AuditInputError(f"{where.shown} is in the {what} {place.shown}; choose an {option} outside it")
    if where.uri:
        tried(where, option, f".auditor-{uuid.uuid4().hex}")
    elif copy := next((top for top in (_plain(where), *_plain(where).parents) if (top / COPY_LIST).is_file()), None):
        raise AuditInputError(f"{where.shown} is in the copy {copy}; choose an {option} outside it")
    return where


def _plain(where: ResultFolder | StorageLocation) -> Path:
    return Path(posixpath.normpath(f"/{where.path.strip('/')}")) if where.uri else Path(where.path).resolve()


@contextlib.contextmanager
def claimed(out: Path | str, inventory: Inventory | None = None) -> Iterator[Path]:
    """Yield a local directory to write results into; at the end they are moved to ``out``, the summary last.

    Results of an earlier run are deleted by name: in a directory at once, in a store right before the upload. If the
    block raises, nothing is moved, but in a store :class:`AuditFailure` replaces earlier results with ``failure.log``.
    Errors: :class:`AuditInputError` if ``out`` cannot be written, is in the input, is used by another run, or is in a
    store and has foreign directories under the names of results; :class:`AuditFailure` if the results cannot be moved:
    they are kept where the message says.
    """
    target = _checked(out, inventory)
    with alone_in(out, RUNNING, "run") as still_alone, contextlib.ExitStack() as unless_kept:
        staged = _staged(target)
        unless_kept.callback(shutil.rmtree, staged, ignore_errors=True)
        try:
            yield staged
        except AuditFailure as error:
            if target.uri:
                unless_kept.pop_all()
                _deliver_failure(staged, target, error)
            raise
        try:
            still_alone("")
            _deliver(staged, target)
        except Exception as error:  # drivers raise what they like, and the results of a whole audit are at stake
            unless_kept.pop_all()
            parts = f", and parts of tables in {target.shown}/{STAGED}" if (staged / STORED).exists() else ""
            message = f"cannot copy results to {target.shown}: {why(error)}; they are complete in {staged}{parts}"
            raise AuditFailure(message) from error


def _staged(target: ResultFolder) -> Path:
    if target.uri:  # written here, since the driver of a cluster may run anywhere
        return Path(tempfile.mkdtemp(prefix="auditor-out-"))
    out = Path(target.path)
    with making(out):
        target.remove([*(path.name for path in out.glob(f"{PARTIAL}*")), STAGED, *RESULTS])
        (out / STAGED).mkdir()
    return out / STAGED


def failed(out: Path, error: BaseException, *staged: Path) -> Path | None:
    """Write the traceback of a failure to ``out``; return its path, None if that is impossible. ``staged``: directories
    whose content is of no use now, and is deleted first to make room."""
    try:
        for half_done in staged:
            folder(half_done).remove(path.name for path in half_done.iterdir())
        folder(out).put_text(FAILURE, traceback.format_exception(error))
    except OSError:
        return None
    return out / FAILURE


# Results are moved when all of them are complete.
#
# Neither a directory nor a store replaces many files atomically: ``summary.json``, which goes last, says that all
# others exist. On a cluster, tasks write parts of tables into a directory of this run in the store, below
# ``.unfinished``; at the end the store renames them.


COMPLETE = (SUMMARY, WHAT_IF)  # written last
FIRST = "findings.jsonl"  # every command writes it
MARKS = frozenset({*COMPLETE, FIRST, FAILURE})  # these show that other entries are of an audit
RUNNING = ".running-"  # the prefix of a run's lease
STORED = ".stored.json"  # the parts of tables that are in the store already
LEFT = timedelta(days=1)  # older files of no run are left by a killed one


def staging(out: str) -> ResultFolder:
    """Return a directory for the tables' parts that tasks write before the results are complete."""
    return folder(out) / STAGED / uuid.uuid4().hex


def keep_names(written: WrittenTables, folder: Path) -> None:
    """Record in ``folder`` which parts of tables are in the store already."""
    names = {
        f"tables/{table}/{file_name(number)}": part
        for table, parts in written.stored.items()
        for number, part in enumerate(parts)
    }
    content = {"staging": written.staging.path.rpartition("/")[2], "parts": names}
    (folder / STORED).write_text(json.dumps(content), encoding="utf-8")


def shown(out: Path | str, name: str) -> str:
    """Return where a result is, without a URI's password and options."""
    return str(out / name) if isinstance(out, Path) else f"{user_input.shown_uri(out).rstrip('/')}/{name}"


def _checked(out: Path | str, inventory: Inventory | None) -> ResultFolder:
    # Tests a small object in a store; existing ones are not touched.
    target = writable(out, inventory)
    kinds = target.kinds(RESULTS) if target.uri else {}
    others = [name for name, kind in kinds.items() if kind == "Directory"]
    if others and MARKS.isdisjoint(kinds):
        message = f"{target.shown} holds {', '.join(others)}, which are not results of an audit"
        raise AuditInputError(f"{message}; choose another --out")
    return target


def _deliver_failure(staged: Path, target: ResultFolder, error: AuditFailure) -> NoReturn:
    try:
        folder(staged).remove(path.name for path in staged.iterdir() if path.name != FAILURE)
        _deliver(staged, target)
    except Exception:  # noqa: BLE001  whatever it is, the first error is the one to be heard of
        raise error from error.__cause__
    if not (staged / FAILURE).exists():  # it has no trace
        staged.rmdir()
        raise error
    raise AuditFailure(f"{error}, and in {target.shown}/{FAILURE}") from error.__cause__


def _deliver(staged: Path, target: ResultFolder) -> None:
    # MARKS show whose directories these are: FIRST is moved first, and MARKS are deleted last. COMPLETE, which says
    # that all others exist, is moved last and deleted first.
    if target.uri:
        target.remove(sorted(RESULTS, key=lambda name: (name not in COMPLETE, name in MARKS)))
    for path in sorted(staged.iterdir(), key=lambda path: (path.name in COMPLETE, path.name != FIRST, path.name)):
        if path.name in COMPLETE:
            _place_parts(staged, target)
        if path.name != STORED:
            target.take(path)
    _sweep(target)


def _place_parts(folder: Path, target: ResultFolder) -> None:
    if not (folder / STORED).exists():
        return
    content = json.loads((folder / STORED).read_text(encoding="utf-8"))
    staging_path = f"{STAGED}/{content['staging']}"
    side_by_side(lambda part: target.place(f"{staging_path}/{part[1]}", part[0]), [*content["parts"].items()])
    target.delete_folder(staging_path)


def _sweep(target: ResultFolder) -> None:
    # Results are complete by now, so this may fail.
    with contextlib.suppress(*REFUSED, StoreTrouble):
        left = (target / STAGED).below()
        old = datetime.now(UTC) - LEFT
        target.delete(
            [f"{STAGED}/{name}" for name, info in left.items() if info.mtime is not None and info.mtime < old]
        )


# Results of an earlier audit.


class Earlier(NamedTuple):
    """The results of an earlier audit. ``findings``: with ``fingerprint``; ``summary``: the content of
    ``summary.json``; ``page``: the report's address for a browser."""

    findings: list[Values]
    summary: Fields
    page: str


def read(out: Path | str) -> Earlier:
    """Return the results in an output directory. Findings of releases without fingerprints get them, if their rule
    still exists.

    Errors: :class:`AuditInputError` for a directory or store that cannot be read, or has no complete results.
    """
    where, shown = folder(out), user_input.shown_uri(str(out)).rstrip("/")
    try:
        texts = where.get_all([SUMMARY, "findings.jsonl"])
    except (*REFUSED, StoreTrouble) as error:
        raise AuditInputError(f"cannot read {shown}: {why(error)}; check the path and its credentials") from None
    try:
        if None in texts:
            raise FileNotFoundError
        summary = parsed(texts[0] or b"", MOST_OF_SUMMARY)
        rows = [parsed(line) for line in (texts[1] or b"").splitlines()]
    except (ValueError, FileNotFoundError):
        raise AuditInputError(f"{shown} has no audit results; give the --out of an audit") from None
    page = where.address("report.html")
    return Earlier([*_with_fingerprints(rows, summary)], summary, page if where.uri else Path(page).resolve().as_uri())


def _with_fingerprints(rows: Iterable[Values], summary: Values) -> Iterator[Values]:
    of_dir = {row["log_dir"]: row["cluster_id"] for row in summary["inputs"]}
    for row in rows:
        if "fingerprint" in row:
            yield row
        elif row["rule"] in registry.kinds():
            yield {**row, "fingerprint": fingerprint(row, cluster_of(row, of_dir))}
