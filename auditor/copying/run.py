"""A copy from its PATHs to its target, folder by folder."""

from __future__ import annotations

import itertools
import posixpath
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from pathlib import Path

from auditor.base.errors import DEFAULT_LIMITS, AuditInputError, Limits
from auditor.base.user_input import shown_uri
from auditor.connectors.codec.blanking import KEPT
from auditor.connectors.logdir.copy_lists import Reading
from auditor.connectors.logdir.inventory import written_over
from auditor.connectors.stores import storage
from auditor.copying.checksums import ALL, BUDGET_BYTES, Checksums, verify
from auditor.copying.folders import Folder, Folders
from auditor.copying.one_folder import Done, OneFolder
from auditor.copying.owner import check_owner, without_segments
from auditor.copying.readings import held_by_a_broker, machine, now_ms, readings
from auditor.copying.store_target import StoreTarget
from auditor.copying.target import FolderTarget, Target
from auditor.pipeline.options import out_of

TIMES = 3  # that a folder is read, where its segments are replaced meanwhile


def nobody(_folder: str) -> None:
    """Notifies nobody."""


def target_of(out: Path | str) -> Target:
    """Where a copy is written. Errors: :class:`AuditInputError`."""
    return StoreTarget(out) if isinstance(out, str) else FolderTarget(out)


def copied(
    paths: Sequence[str],
    out: Path | str,
    limits: Limits = DEFAULT_LIMITS,
    say: Callable[[str], None] = nobody,
    only: Set[str] | None = None,
    checksums: str = ALL,
    budget: int = BUDGET_BYTES,
    records: bool = False,
    keep_ms: int | None = None,
) -> Done:
    """Copies what is below PATHs into ``out``, a folder or a URI: of an earlier copy there, what is as it was
    stays, and is not read.

    ``only``: the folders to copy, all others staying as they are; None for all. ``checksums``: which are verified,
    one of :data:`auditor.copying.checksums.MODES`; ``budget``: bytes of segments. ``records``: what records come to is
    taken too, for which all bodies are read. ``keep_ms``: for how long segments are held that the broker has deleted;
    None: those that are held stay so until their time. Where the input has lost segment files of which the earlier
    copy has the content, nothing is written, and :attr:`Done.emptied` names their directories.

    Errors: :class:`AuditInputError` for a wrong call, ``OSError`` of the target.
    """
    check_apart(paths, out)
    found = Folders(paths, limits)
    target, done = target_of(out), Done()
    check_owner(target, found.inventory.log_dirs)
    if only is None and (emptied := without_segments(target, found.found.values())):
        done.emptied.update(emptied)
        return done
    to_verify = Checksums(checksums, budget, headers_first=_bytes_of(found) > budget)
    places = {f.name: f.place for f in found.found.values() if f.name == f.log_dir}
    live = {name: held_by_a_broker(place) for name, place in places.items()}
    read: dict[str, list[Reading]] = {name: [] for name in places}
    chosen = [folder for folder in found.in_order() if only is None or folder.name in only]

    def take(folder: Folder) -> None:
        say(folder.name)
        begun = _taken(folder, partial(OneFolder, target, records=records, keep_ms=keep_ms), limits, to_verify, done)
        if folder.log_dir is not None and folder.topic is not None:
            inside = folder.name.removeprefix(folder.log_dir).lstrip("/")
            read[folder.log_dir].append(Reading(inside, begun, now_ms(), False))

    for name in places:
        _begin(target, name)
    with target.lists_ahead(folder.name for folder in chosen):
        for _, folders in itertools.groupby(chosen, key=lambda folder: folder.step):
            target.each(take, list(folders))
    target.each(target.take_away, sorted(target.folders() - found.found.keys()) if only is None else ())
    mixed = bool(written_over(found.inventory))  # where it is of a copy itself
    for name, place in places.items():
        now = readings(read[name], live=live[name] and held_by_a_broker(place))
        done.live |= any(reading.live for reading in now)
        _end(target, name, now, keep=only is not None, mixed=mixed)
    opened = [folder for folder in found.in_order() if folder.name in done.open]
    done.unverified = verify(target, opened, limits, to_verify)
    return done


def _taken(folder: Folder, of_one: Callable[..., OneFolder], limits: Limits, to_verify: Checksums, done: Done) -> int:
    """Takes a folder, once more where the broker replaced or deleted segments meanwhile: then what was read is of
    before and of after. When (ms) it was listed. Errors: as of :func:`copied`."""
    for left in reversed(range(TIMES)):
        took = Done()
        folder.refresh()
        of_one(folder, limits, to_verify.now).take(took)
        if not left or not took.moving:
            break
        done.bytes_read += took.bytes_read
    done.add(took)
    return folder.listed


def verified(
    paths: Sequence[str], out: Path | str, only: Mapping[str, Set[str]], limits: Limits = DEFAULT_LIMITS
) -> int:
    """Verifies the checksums of some segments of a copy, by their folders; how many stay open in all. Errors: as of
    :func:`copied`."""
    folders = Folders(paths, limits).in_order()
    return verify(target_of(out), folders, limits, Checksums(), only)


def _bytes_of(found: Folders) -> int:
    """Bytes of the segments that hold data."""
    return sum(
        size
        for folder in found.found.values()
        if folder.topic is not None and folder.topic not in KEPT
        for name, size in folder.files.items()
        if name.endswith(".log")
    )


def _begin(target: Target, name: str) -> None:
    """Says in the list that an earlier copy left of a log directory that from now on its folders may be of two copies.
    Errors: ``OSError`` of the target."""
    if (before := target.list_of(name)) is not None:
        target.put_list(name, before._replace(under_way=True), before)


def _end(target: Target, name: str, found: tuple[Reading, ...], *, keep: bool, mixed: bool) -> None:
    """Says in the list of a log directory that its folders are all of this copy, but where what was copied was
    ``mixed``, and when they were read; ``keep``: beside what it says of others. Errors: ``OSError`` of the target."""
    before = target.list_of(name)
    if before is not None:
        folders = {reading.folder for reading in found}
        keep &= before.machine == (here := machine())
        others = [r for r in before.readings if r.folder not in folders] if keep else []
        now = before._replace(readings=tuple(sorted((*found, *others))), machine=here, under_way=mixed)
        target.put_list(name, now, before)


def check_apart(paths: Sequence[str], out: Path | str) -> None:
    """Errors: :class:`AuditInputError` where the target lies in a PATH, or one in it. One store may go by several
    schemes: of URIs the paths decide."""
    target = _path_of(out)
    for path in paths:
        given = _path_of(out_of(path))
        if isinstance(out, str) is ("://" in path and not path.startswith("file:")) and (
            target.is_relative_to(given) or given.is_relative_to(target)
        ):
            raise AuditInputError(
                f"--out {shown_uri(str(out))} and {shown_uri(path)} lie in each other; give a folder elsewhere"
            )


def _path_of(where: Path | str) -> Path:
    """A folder of this machine, or where it is in its store."""
    if isinstance(where, Path):
        return where.resolve()
    return Path(posixpath.normpath(f"/{storage.remote_place(where).path.rpartition('://')[2].strip('/')}"))
