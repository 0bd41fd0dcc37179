"""From PATHs to drafts of log directories: which folder each file found belongs to.

A folder is a partition folder when its name is one and it holds files that only such folders hold (so ``healthy-41``
above a broker's directory is none). A log directory is a folder above partition folders, or one with the small files of
a broker. Folders of text dumps and of lone files count as log directories too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from auditor.base.errors import DEFAULT_LIMITS, AuditInputError, DecodeError, Limits
from auditor.connectors import asking, names, storage, threads
from auditor.connectors.copied.copy_view import CopyView
from auditor.connectors.copied.listing import seen_through
from auditor.connectors.files import TextFile
from auditor.connectors.names import DataName
from auditor.connectors.storage import Entry, Place, Unused
from auditor.connectors.text.lines import HEAD_BYTES, sniff

REMOTE_CACHE = "cache of the tiered storage's indexes"
UNKNOWN = "no file of Kafka's and no known text dump"
LINKED_DATA = "a symbolic link, which is not followed: give the folder that it leads to as a PATH"
LINK_WITHIN = "symbolic link to what is read by itself"
TEXT_AMONG_LOGS = "text dump inside a log directory: give it in a folder of its own"
PACKED = "packed: unpack it, and give the folder that it makes as a PATH"
PACKED_FILE = "packed: unpack it in its place"
_PACKED = re.compile(r"(.+)\.(?:gz|bz2|xz|zst|lz4|zip|7z)")
_ARCHIVE = re.compile(r".+\.(?:tar|tgz|tar\.[a-z0-9]+|zip|7z)")
_LOOKED_AT = 1000  # names in a folder that a link leads to: nearly all of a partition's are of its data
_SERVER_PROPERTIES = re.compile(r"server.*\.properties")
_NOT_DATA = {
    ".lock": "lock file",
    "bootstrap.checkpoint": "read by the very first controller only, stale afterwards",
}


@dataclass
class Tree:
    """What one PATH holds; names are relative to ``top``, which is the PATH or a folder above it (``given``)."""

    top: Place
    given: Place
    files: list[Entry] = field(default_factory=list)
    unused: list[Unused] = field(default_factory=list)
    errors: list[DecodeError] = field(default_factory=list)


@dataclass
class Draft:
    """A log directory in the making: its files by what they are, names relative to it."""

    place: Place
    given: list[Place]
    partitions: dict[str, dict[str, int]] = field(default_factory=dict)  # folder -> file name -> size
    small: dict[str, int] = field(default_factory=dict)
    texts: list[TextFile] = field(default_factory=list)
    loose: dict[str, tuple[int, DataName]] = field(default_factory=dict)


@dataclass
class Drafts:
    """All drafts, and what lies outside of them: broker settings, and files (by full place) that nobody reads.

    ``remote``: folders of remote segments, with the names and sizes of their files.
    """

    found: dict[Place, Draft] = field(default_factory=dict)
    remote: dict[Place, dict[str, int]] = field(default_factory=dict)
    configs: list[tuple[Place, int]] = field(default_factory=list)
    unused: list[tuple[Place, int, str]] = field(default_factory=list)
    errors: list[tuple[Place, DecodeError]] = field(default_factory=list)

    def draft(self, place: Place, given: Place) -> Draft:
        """The draft of a folder, made when it is first asked for."""
        draft = self.found.setdefault(place, Draft(place, []))
        if given not in draft.given:
            draft.given.append(given)
        return draft


def drafts(paths: Sequence[str], limits: Limits = DEFAULT_LIMITS) -> Drafts:
    """List all PATHs and sort every file into its log directory. Errors: :class:`AuditInputError` for a wrong PATH."""
    if not paths:
        raise AuditInputError("no PATH given; name a log directory, a folder above some, or a file")
    result = Drafts()
    outermost = _outermost(threads.apart(asking.as_here(storage.place), paths))
    for tree in _of_one_view(threads.apart(asking.as_here(partial(_tree, limits=limits)), outermost)):
        _bring_out_hidden(tree, outermost)
        _sort_files(tree, result)
    return result


def _of_one_view(trees: list[Tree]) -> list[Tree]:
    """The trees, those of one log directory's partitions with the view that was listed last."""
    latest: dict[Place, Place] = {}
    for tree in trees:
        at = tree.top._replace(view=None)
        latest[at] = max(latest.get(at, tree.top), tree.top, key=_seen)
    for tree in trees:
        tree.top = latest[tree.top._replace(view=None)]
    return trees


def _seen(place: Place) -> int:
    return place.view.seen if isinstance(place.view, CopyView) else 0


def _outermost(places: Iterable[Place]) -> list[Place]:
    """Each PATH once, without those that lie below another one."""
    kept: list[Place] = []
    for place in sorted(set(places), key=lambda item: (item.uri, item.path)):
        if not any(_below(place, other) for other in kept):
            kept.append(place)
    return kept


def _below(place: Place, folder: Place) -> bool:
    return place.uri == folder.uri and f"{place.path}/".startswith(f"{folder.path.rstrip('/')}/")


def _tree(given: Place, limits: Limits) -> Tree:
    """The files of one PATH; a partition's are seen from its log directory, whose small files come too."""
    if storage.is_folder(given):
        given, found = seen_through(given, storage.listing(given, limits=limits), limits)
        direct = [entry.name for entry in found.files if "/" not in entry.name]
        tree = Tree(given, given, *found)
        if not _is_partition(given.name, direct):
            return tree
        return _with_small_files(_seen_from_above(tree, given.parent))
    tree = Tree(given.parent, given, [Entry(given.name, storage.file_size(given))])
    if not _is_partition(given.parent.name, [given.name]):
        return tree
    return _with_small_files(_seen_from_above(tree, given.parent.parent))


def _seen_from_above(tree: Tree, top: Place) -> Tree:
    prefix = tree.top.name + "/"
    return Tree(
        top,
        tree.given,
        [entry._replace(name=prefix + entry.name) for entry in tree.files],
        [item._replace(name=prefix + item.name) for item in tree.unused],
        [error._replace(file=prefix + error.file) for error in tree.errors],
    )


def _with_small_files(tree: Tree) -> Tree:
    """Add who the log directory is and its checkpoints: without them a partition cannot be judged soundly."""
    top, around = seen_through(tree.top, storage.listing(tree.top, deep=False), DEFAULT_LIMITS)
    tree.top = max(top, tree.top, key=_seen)
    tree.files += [entry for entry in around.files if entry.name in names.OF_A_BROKER]
    return tree


def _is_partition(folder: str, files: Iterable[str]) -> bool:
    """Whether a folder is a partition's, by its name and what is directly in it."""
    if not names.partition_folder(folder):
        return False
    direct = list(files)
    return names.META not in direct and any(names.data_name(name) for name in direct)


def _is_remote(folder: Place, files: Iterable[str]) -> bool:
    """Whether a folder holds remote segments, in the layout that its path says."""
    says = names.remote_folder(folder.path)
    known = names.object_name if says and says.depth > 1 else names.remote_name
    return says is not None and any(known(name) for name in files)


def _bring_out_hidden(tree: Tree, paths: Sequence[Place]) -> None:
    """What stands where a broker's data would but is not read must not go unsaid, for it may hide a partition.

    A link or pipe in place of a partition's file stays a file, so that reading it is refused as with any other that
    cannot be read; a partition's folder that is a link is an error here, as is a packed file. Links to what lies in a
    PATH hide nothing.
    """
    unopened, tree.unused = tree.unused, []
    for item in unopened:
        folder, _, name = item.name.rpartition("/")
        link = tree.top.child(item.name)
        if item.reason == storage.LINK and _is_within(link, paths):
            tree.unused.append(item._replace(reason=LINK_WITHIN))
        elif item.reason in (storage.LINK, storage.SPECIAL) and _is_live(_last(folder)) and names.data_name(name):
            tree.files.append(Entry(item.name, item.size))
        elif item.reason == storage.LINK and _may_hold_data(link):
            tree.errors.append(DecodeError(item.name, 0, -1, "unreadable", LINKED_DATA))
        else:
            tree.unused.append(item)
    packed = [entry for entry in tree.files if _is_packed(entry.name)]
    tree.errors += [DecodeError(entry.name, 0, entry.size, "unreadable", PACKED_FILE) for entry in packed]
    there = {entry.name for entry in tree.files}
    lacking = [Entry(name, 0) for entry in packed if (name := entry.name.rpartition(".")[0]) not in there]
    tree.files = [entry for entry in tree.files if not _is_packed(entry.name)] + lacking  # as a file that is gone


def _is_packed(name: str) -> bool:
    """Whether somebody compressed a file of a partition, which a broker never does."""
    folder, _, last = name.rpartition("/")
    found = _PACKED.fullmatch(last)
    return found is not None and _is_live(_last(folder)) and names.data_name(found[1]) is not None


def _is_live(folder: str) -> bool:
    """Whether a folder's name is that of a partition which the broker serves."""
    found = names.partition_folder(folder)
    return found is not None and found.kind == "live"


def _is_within(link: Place, paths: Sequence[Place]) -> bool:
    """Whether what a link leads to is read anyway: of a partition's folder or file, as the same partition's."""
    try:
        target = Place("", os.path.realpath(link.path))
    except OSError:  # a link that nobody may follow, as those of /proc
        return False
    if not os.path.exists(target.path) or target.path == link.path or not any(_below(target, p) for p in paths):
        return False
    if _is_live(link.name):
        return target.name == link.name or not os.path.isdir(target.path) or _below(link, target)
    if _is_live(link.parent.name) and names.data_name(link.name):
        return (target.parent.name, target.name) == (link.parent.name, link.name)
    return True


def _may_hold_data(link: Place) -> bool:
    """Whether a link leads to a log directory, or with a partition's name to what a partition has or is unreadable."""
    if any(os.path.lexists(os.path.join(link.path, name)) for name in names.OF_A_BROKER):
        return True
    if not _is_live(link.name):
        return False
    try:
        with os.scandir(link.path) as found:
            return any(names.data_name(item.name) for item in islice(found, _LOOKED_AT))
    except NotADirectoryError:
        return False
    except OSError:
        return True


def _sort_files(tree: Tree, result: Drafts) -> None:
    """Sort the files of one PATH into drafts."""
    by_folder: dict[str, dict[str, int]] = {}
    for entry in tree.files:
        folder, _, name = entry.name.rpartition("/")
        by_folder.setdefault(folder, {})[name] = entry.size
    partitions = {folder for folder, files in by_folder.items() if _is_partition(_last(folder), files)}
    roots = {_above(folder) for folder in partitions}
    roots |= {folder for folder, files in by_folder.items() if not files.keys().isdisjoint(names.OF_A_BROKER)}
    for folder, files in by_folder.items():
        if folder in partitions:
            draft = result.draft(tree.top.child(_above(folder)), tree.given)
            draft.partitions.setdefault(_last(folder), {}).update(files)
        elif _is_remote(tree.top.child(folder), files):
            result.remote.setdefault(tree.top.child(folder), {}).update(files)
        else:
            _sort_folder(tree, folder, files, roots, result)
    result.unused += [(tree.top.child(item.name), item.size, item.reason) for item in tree.unused]
    result.errors += [(tree.top.child(error.file), error) for error in tree.errors]


def _sort_folder(tree: Tree, folder: str, files: dict[str, int], roots: set[str], result: Drafts) -> None:
    """Sort the files directly in a folder that is no partition's."""
    place = tree.top.child(folder)
    cache = _last(folder) == names.REMOTE_INDEX_CACHE and _above(folder) in roots
    for name, size in files.items():
        where = place.child(name)
        if folder in roots and name in names.OF_A_BROKER:
            result.draft(place, tree.given).small[name] = size
        elif _SERVER_PROPERTIES.fullmatch(name):
            result.configs.append((where, size))
        elif cache or name in _NOT_DATA:
            result.unused.append((where, size, REMOTE_CACHE if cache else _NOT_DATA[name]))
        elif says := _loose(where, tree.given):
            result.draft(place, tree.given).loose[name] = (size, says)
        else:
            _sort_unknown(tree, folder, name, size, folder in roots, result)


def _loose(where: Place, given: Place) -> DataName | None:
    """What a data file outside of a partition folder is; one that was given by itself may have any name."""
    says = names.data_name(where.name)
    kind = where.name.rpartition(".")[2]
    if says or where != given or kind not in (*names.SEGMENT_KINDS, "snapshot", "checkpoint"):
        return says
    head = storage.read_head(where, "", HEAD_BYTES)
    return None if isinstance(head, bytes) and sniff(head) else DataName(-1, kind, "")


def _sort_unknown(tree: Tree, folder: str, name: str, size: int, in_log_dir: bool, result: Drafts) -> None:
    """A file whose name says nothing: a text dump if its first bytes look like one."""
    place = tree.top.child(folder)
    head = storage.read_head(place, name, HEAD_BYTES)
    if isinstance(head, DecodeError):
        result.errors.append((place.child(name), head))
        return
    kind = sniff(head)
    if kind and not in_log_dir:
        result.draft(place, tree.given).texts.append(TextFile(name, size, kind))
    else:
        packed = _PACKED.fullmatch(name)
        reason = PACKED if _ARCHIVE.fullmatch(name) or (packed and names.data_name(packed[1])) else UNKNOWN
        result.unused.append((place.child(name), size, TEXT_AMONG_LOGS if kind else reason))


def _last(folder: str) -> str:
    return folder.rpartition("/")[2]


def _above(folder: str) -> str:
    return folder.rpartition("/")[0]
