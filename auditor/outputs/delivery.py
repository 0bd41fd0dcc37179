"""The output directory: claimed, delivered to a store, and read back."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import posixpath
import shutil
import tempfile
import traceback
import uuid
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from auditor.base import user_input
from auditor.base.at_rest import Fields, Values
from auditor.base.errors import AuditFailure, AuditInputError, StoreTrouble
from auditor.connectors.kafka_names import COPY_LIST
from auditor.connectors.logdir.files import Inventory
from auditor.connectors.stores.results import ResultFolder, alone_in, folder, is_of_its_own, tried, why
from auditor.connectors.stores.results import folder as folder_at
from auditor.connectors.stores.retries import REFUSED, side_by_side
from auditor.connectors.stores.storage import StorageLocation
from auditor.pipeline.table_parts import file_name
from auditor.rules.catalogue import registry
from auditor.rules.resolution.resolve import cluster_of, fingerprint

if TYPE_CHECKING:
    from auditor.pipeline.table_tasks import WrittenTables


# A folder for results: nobody else writes there meanwhile, nothing of an earlier run is left, all of a run appears
# together, and a failure leaves its log and nothing else.


SUMMARY, WHAT_IF, FAILURE = "summary.json", "what-if.json", "failure.log"
RESULTS = (
    "findings.jsonl",
    "findings",
    SUMMARY,
    "report.html",
    "metrics.prom",
    "tables",
    FAILURE,
    "data_docs",
    WHAT_IF,
)
LOCK, STAGED = ".lock", ".unfinished"


def evidence(inventory: Inventory | None) -> Iterator[tuple[str, StorageLocation]]:
    """Folders of the input that nothing may be written into, each with what it is; those of text dumps only may be."""
    for log_dir in () if inventory is None else inventory.log_dirs:
        if log_dir.meta is not None or log_dir.replicas or log_dir.small_files:
            yield "log directory", log_dir.place
    for remote in () if inventory is None else inventory.remote:
        for file in (file for segment in remote.segments[:1] for file in segment.files[:1]):
            if file.place:
                yield "remote storage", file.place


def writable(out: Path | str, inventory: Inventory | None, option: str = "--out") -> ResultFolder:
    """The folder that an option names, which is in no log directory of the input, in no remote storage and in no copy
    of this machine, links followed; a store is tried by a small file. One store may go by several schemes, so paths
    decide: better one folder refused too many than a log's touched.

    Errors: :class:`AuditInputError` where it is: evidence is only read, and a broker does not start beside folders
    that it does not know.
    """
    where = folder(out)
    if where.uri and not is_of_its_own(where):
        raise AuditInputError(f"{where.shown} is no store of its own; choose a path or a plain URI as {option}")
    for what, place in evidence(inventory):
        if bool(place.uri) == bool(where.uri) and _plain(where).is_relative_to(_plain(place)):
            raise AuditInputError(f"{where.shown} is in the {what} {place.shown}; choose an {option} outside of it")
    if where.uri:
        tried(where, option, f".auditor-{uuid.uuid4().hex}")
    elif copy := next(
        (parent for parent in (_plain(where), *_plain(where).parents) if (parent / COPY_LIST).is_file()), None
    ):
        raise AuditInputError(f"{where.shown} is in the copy {copy}; choose an {option} outside of it")
    return where


def _plain(where: ResultFolder | StorageLocation) -> Path:
    """A path that can be compared."""
    return Path(posixpath.normpath(f"/{where.path.strip('/')}")) if where.uri else Path(where.path).resolve()


@contextlib.contextmanager
def claimed(out: Path, inventory: Inventory | None = None, *, keep: bool = False) -> Iterator[Path]:
    """While a run writes into the folder it is given; what lies there at the end is moved to ``out``, summary last.

    What an earlier run left under ``out`` goes first, by its names, unless ``keep``. Where the block raises, nothing
    is moved. Errors: :class:`AuditInputError` where ``out`` cannot be written, is in a log directory, or is another
    run's.
    """
    writable(out, inventory)
    with _making(out):
        out.mkdir(parents=True, exist_ok=True)
    with locked(out):
        staged = out / STAGED
        with _making(out):
            for name in (STAGED, *(() if keep else RESULTS)):
                remove(out / name)
            staged.mkdir()
        try:
            yield staged
            for path in sorted(staged.iterdir(), key=lambda path: path.name == SUMMARY):
                remove(out / path.name)
                path.rename(out / path.name)
        finally:
            remove(staged)


@contextlib.contextmanager
def _making(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise AuditInputError(f"cannot write to {out}: {reason}; make room there or choose another --out") from error


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """While a process has a folder to itself; the lock goes with the process, however that ends.

    Errors: :class:`AuditInputError` where another has it.
    """
    with _making(folder):
        fd = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise AuditInputError(f"another run writes to {folder}; wait for its end or choose another --out") from None
    try:
        yield
    finally:
        os.close(fd)


def remove(path: Path) -> None:
    """Takes a file, folder or link away, never what a link leads to; nothing where there is none."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir():
        shutil.rmtree(path)


def failed(out: Path, error: BaseException) -> Path | None:
    """Leaves the trace of a failure under ``out``; None where even that cannot be written."""
    path = out / FAILURE
    try:
        remove(path)
        path.write_text("".join(traceback.format_exception(error)), encoding="utf-8", errors="replace")
    except OSError:
        return None
    return path


def write_whole(path: Path, text: str | Iterable[str]) -> None:
    """Writes a text file, or its pieces, in one step: a reader sees the old one or the new one. No link is followed."""
    part = path.with_name(path.name + ".part")
    remove(part)
    with part.open("w", encoding="utf-8", errors="replace") as file:
        file.writelines([text] if isinstance(text, str) else text)
    os.replace(part, path)


# ``--out`` as a URI: results are gathered in a folder of this machine and copied there once all of them are complete.
#
# The driver of a cluster may run anywhere, and what lies on its own disk is then nobody's. A store cannot move many
# files
# in one step: ``summary.json``, which goes last, says that all else is there. It has no lock: a run that finds another
# at
# work is refused (:mod:`auditor.connectors.stores.results`). On a cluster tasks put parts of tables there by
# themselves, in a
# folder of this run's alone below ``.unfinished``, where no reader looks; at the end the store gives them their names.


COMPLETE = (SUMMARY, WHAT_IF)  # what says that all else is there
FIRST = "findings.jsonl"  # every command writes it
MARKS = frozenset({*COMPLETE, FIRST, FAILURE})  # what shows that folders beside it are an audit's


RUNNING = ".running-"  # by which a run says that it writes there
STORED = ".stored.json"  # which parts of tables are in the store already
LEFT = timedelta(days=1)  # so old is what a killed run left, and nobody is still writing it


def staging(out: str) -> ResultFolder:
    """A folder of this run's alone, for what tasks put into the store before all of it is complete."""
    return folder_at(out) / STAGED / uuid.uuid4().hex


def keep_names(written: WrittenTables, folder: Path) -> None:
    """Says in the folder that results are gathered in which parts of tables wait in the store."""
    names = {
        f"tables/{table}/{file_name(number)}": part
        for table, parts in written.stored.items()
        for number, part in enumerate(parts)
    }
    content = {"staging": written.staging.path.rpartition("/")[2], "parts": names}
    (folder / STORED).write_text(json.dumps(content), encoding="utf-8")


def shown(out: Path | str, name: str) -> str:
    """Where the result of that name is, for people: without a URI's password and options."""
    return str(out / name) if isinstance(out, Path) else f"{user_input.shown_uri(out).rstrip('/')}/{name}"


@contextlib.contextmanager
def gathered(out: Path | str, inventory: Inventory | None) -> Iterator[Path]:
    """The folder that results go into; at the end of the block they are copied to ``out``, where that is a URI.

    Results of an earlier run are taken away from there just before, by their names; a block that ends with a mistake of
    the user's or is interrupted leaves them; where it ends with :class:`AuditFailure`, ``failure.log`` replaces them.
    Errors: :class:`AuditInputError` where the URI cannot be written to, holds other folders under the names of results,
    is in the input, or another run writes there; :class:`AuditFailure` where copying breaks off: the folder, which the
    message names, is left.
    """
    if isinstance(out, Path):
        yield out
        return
    target = _checked(out, inventory)
    with alone_in(out, RUNNING, "run") as still_alone:
        yield from _delivered(target, still_alone)


def _delivered(target: ResultFolder, still_alone: Callable[[str], None]) -> Iterator[Path]:
    """A folder of this machine, whose content is delivered at the end of a block."""
    folder = Path(tempfile.mkdtemp(prefix="auditor-out-"))
    try:
        yield folder
    except AuditFailure as error:
        try:
            _deliver(folder, target)
        except Exception:  # noqa: BLE001  whatever it is, the first error is the one to be heard of
            raise error from error.__cause__
        raise AuditFailure(f"{error}, and in {target.shown}/{FAILURE}") from error.__cause__
    except BaseException:
        shutil.rmtree(folder)
        raise
    try:
        still_alone("")
        _deliver(folder, target)
    except Exception as error:  # drivers raise what they like, and the results of a whole audit are at stake
        parts = f", and parts of tables in {target.shown}/{STAGED}" if (folder / STORED).exists() else ""
        message = f"results cannot be copied to {target.shown}: {why(error)}; all of them are in {folder}{parts}"
        raise AuditFailure(message) from error
    shutil.rmtree(folder)


def _checked(out: str, inventory: Inventory | None) -> ResultFolder:
    """The folder that a URI names, tried by writing a small object; what is there is not touched."""
    target = writable(out, inventory)
    kinds = target.kinds(RESULTS)
    others = [name for name, kind in kinds.items() if kind == "Directory"]
    if others and MARKS.isdisjoint(kinds):
        message = f"{target.shown} holds {', '.join(others)}, which no audit left there"
        raise AuditInputError(f"{message}; choose another --out")
    return target


def _deliver(folder: Path, target: ResultFolder) -> None:
    """Puts all files in the place of earlier ones, what says that all is there last. The first is one that shows, where
    this breaks off, whose the folders are."""
    paths = {
        path.relative_to(folder).as_posix(): path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in (LOCK, STORED)
    }
    _clear(target)
    for name in sorted(paths, key=lambda name: (name in COMPLETE, name != FIRST)):
        if name in COMPLETE:
            _place_parts(folder, target)
        target.put_file(name, paths[name])
    _sweep(target)


def _clear(target: ResultFolder) -> None:
    """Takes away what has the name of a result: what claims completeness first, then folders."""
    kinds = target.kinds(RESULTS)
    for name in sorted(kinds, key=lambda name: (name not in COMPLETE, kinds[name] != "Directory")):
        (target.delete_folder if kinds[name] == "Directory" else target.delete_file)(name)


def _place_parts(folder: Path, target: ResultFolder) -> None:
    """Gives parts that tasks have put into the store their names."""
    if not (folder / STORED).exists():
        return
    content = json.loads((folder / STORED).read_text(encoding="utf-8"))
    staging_path = f"{STAGED}/{content['staging']}"
    side_by_side(lambda part: target.place(f"{staging_path}/{part[1]}", part[0]), [*content["parts"].items()])
    target.delete_folder(staging_path)


def _sweep(target: ResultFolder) -> None:
    """Takes away what runs left that were killed; results are whole by now, so this may fail."""
    with contextlib.suppress(*REFUSED, StoreTrouble):
        left = (target / STAGED).below()
        old = datetime.now(UTC) - LEFT
        target.delete(
            [f"{STAGED}/{name}" for name, info in left.items() if info.mtime is not None and info.mtime < old]
        )


# What an earlier audit left under its ``--out``, read back from a folder of this machine or a store.


class Earlier(NamedTuple):
    """``findings``: each with its ``fingerprint``; ``summary``: what ``summary.json`` says; ``page``: where the report
    is, for a browser."""

    findings: list[Values]
    summary: Fields
    page: str


def read(out: Path | str) -> Earlier:
    """The results in the ``--out`` of an audit. A run from before findings had a fingerprint is given them, but for
    findings of rules that are no more.

    Errors: :class:`AuditInputError` for a folder without results, or whose results are not whole, and for a store that
    does not give them.
    """
    where, shown = folder(out), user_input.shown_uri(str(out)).rstrip("/")
    try:
        texts = where.get_all([SUMMARY, "findings.jsonl"])
    except (*REFUSED, StoreTrouble) as error:
        raise AuditInputError(f"{shown} cannot be read: {why(error)}; check it and its credentials") from None
    try:
        if None in texts:
            raise FileNotFoundError
        summary = json.loads(texts[0] or b"")
        rows = [json.loads(line) for line in (texts[1] or b"").splitlines()]
    except (ValueError, FileNotFoundError):
        raise AuditInputError(f"{shown} holds no results of an audit; give the --out of one") from None
    page = where.address("report.html")
    return Earlier([*_with_fingerprints(rows, summary)], summary, page if where.uri else Path(page).resolve().as_uri())


def _with_fingerprints(rows: Iterable[Values], summary: Values) -> Iterator[Values]:
    of_dir = {row["log_dir"]: row["cluster_id"] for row in summary["inputs"]}
    for row in rows:
        if "fingerprint" in row:
            yield row
        elif row["rule"] in registry.kinds():
            yield {**row, "fingerprint": fingerprint(row, cluster_of(row, of_dir))}
