"""The lists of a copy without payload: which files a directory had, and what was taken of each."""

from __future__ import annotations

import base64
import binascii
import gzip
import io
import itertools
import json
import zlib
from collections.abc import Mapping
from typing import NamedTuple

from auditor.base.at_rest import Fields, Json
from auditor.base.errors import FLIPPED_BIT, MIB, REASONS, DecodeError
from auditor.connectors.kafka_names import COPY_LIST

LIST = COPY_LIST
VERSION = 1
MOST_STORED, MOST_BYTES = 256 * MIB, 1024 * MIB  # of a list: packed and unpacked
MOST = 2**63 - 1


class Stat(NamedTuple):
    """What tells whether a file is as it was: its inode and, in ns, when it was written and changed."""

    inode: int
    modified_ns: int
    changed_ns: int


class Taken(NamedTuple):
    """The batches of a segment: ``rows`` rows of the Parquet file ``file`` from row ``first`` on.

    ``chunks``: of each chunk as the codec gave them, how many rows, the byte at which it ends, and the lowest offset
    behind it; ``errors`` and ``body_errors`` are theirs. ``foreign``: rows of whole batches of a magic that only the
    broker takes, which stand among the errors. ``checked``: whether all checksums were verified. ``records``: whether
    the file has what the records come to; then those of the ``body_errors`` at the positions ``of_records`` are met
    only by who looks at records. ``unended``: producer ids of the transactions that are open at its end; None where
    they are too many, or nobody looked.
    """

    file: str
    first: int
    rows: int
    chunks: tuple[tuple[int, int, int], ...]
    errors: tuple[DecodeError, ...] = ()
    body_errors: tuple[DecodeError, ...] = ()
    foreign: tuple[tuple[int, ...], ...] = ()
    checked: bool = True
    records: bool = False
    of_records: tuple[int, ...] = ()
    unended: tuple[int, ...] | None = None

    def met(self, *, records: bool) -> tuple[DecodeError, ...]:
        """The errors of bodies that a reading meets that looks at ``records`` or does not."""
        left_out = frozenset[int]() if records else frozenset(self.of_records)
        met = (error for error in self.body_errors if error.reason != FLIPPED_BIT)
        return tuple(error for error in met if error.position not in left_out)

    @property
    def flipped(self) -> tuple[DecodeError, ...]:
        """The flipped bits of its batches (:class:`auditor.base.errors.FlippedBit`)."""
        return tuple(error for error in self.body_errors if error.reason == FLIPPED_BIT)

    @property
    def damaged(self) -> bool:
        """Whether bytes are no batch, or a batch's are not as they should be: what that is taken for depends on what
        lies around it."""
        return bool(self.errors or self.met(records=False))


class Gone(NamedTuple):
    """Since when (ms) a segment was seen to be gone, at the latest, and until when it is held."""

    since: int
    until: int


class Listed(NamedTuple):
    """A file that the directory had. At most one of the others says what became of it.

    ``content``: its bytes, behind which zeros follow up to ``length`` (-1: none); ``kept``: the same in a file of its
    own; ``like``: that is of an index, as what it repeats of the batches of this segment
    (:mod:`auditor.connectors.logdir.copy_view`); ``taken``: its batches; ``refused``: reason and detail why it could
    not be opened; ``unused``: why nobody opens it. With none of them its name was taken alone. ``gone``: it is no
    longer there, and held all the same: the broker has deleted it from below the log's start.
    """

    name: str
    size: int
    stat: Stat | None = None
    content: bytes | None = None
    kept: str | None = None
    length: int = -1
    taken: Taken | None = None
    refused: tuple[str, str] | None = None
    unused: str | None = None
    like: str | None = None
    gone: Gone | None = None


class CopyTimes(NamedTuple):
    """When a folder was read, in ms by the clock of the machine that copied: its files were listed after ``begun``, and
    all were read before ``done``. ``live``: a broker of that machine, whose clock is the same, ran in between."""

    folder: str
    begun: int
    done: int
    live: bool


class FolderList(NamedTuple):
    """All that a folder held, and what could not be listed of it. ``readings``: of a log directory, when each of its
    folders was read; ``machine``: what the machine has, and no other, whose clock that is by. ``under_way``: a copy of
    it was begun and has not ended, so that its folders may be of that one or of the one before."""

    files: tuple[Listed, ...]
    errors: tuple[DecodeError, ...] = ()
    readings: tuple[CopyTimes, ...] = ()
    machine: str = ""
    under_way: bool = False

    def file(self, name: str) -> Listed | None:
        """The file of that name."""
        return next((item for item in self.files if item.name == name), None)


def encoded(found: FolderList) -> bytes:
    """A list as bytes, the same for the same list."""
    data = (
        {
            "version": VERSION,
            "files": [_as_json(item) for item in found.files],
            "errors": [list(error) for error in found.errors],
            "readings": [list(reading) for reading in found.readings],
        }
        | ({"machine": found.machine} if found.machine else {})
        | ({"under_way": True} if found.under_way else {})
    )
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode()
    return gzip.compress(text, compresslevel=6, mtime=0)


def _as_json(item: Listed) -> Fields:
    said: Fields = {"name": item.name, "size": item.size}
    if item.stat is not None:
        said["stat"] = list(item.stat)
    if item.content is not None:
        said["content"] = base64.b64encode(item.content).decode()
    for name in ("kept", "refused", "unused", "like"):
        if (value := getattr(item, name)) is not None:
            said[name] = value
    if item.length >= 0:
        said["length"] = item.length
    if item.gone is not None:
        said["gone"] = list(item.gone)
    if item.taken is not None:
        said["taken"] = item.taken._asdict()
    return said


def decoded(data: bytes) -> FolderList | str:
    """A list, or why these bytes are none."""
    if len(data) > MOST_STORED:
        return f"a list of more than {MOST_STORED} bytes"
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as unpacked:
            text = unpacked.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            return f"a list that becomes more than {MOST_BYTES} bytes"
        return _list(json.loads(text))
    except _BadListValue as wrong:
        return str(wrong)
    except (OSError, EOFError, zlib.error, ValueError, RecursionError):
        return "a list that cannot be unpacked"


class _BadListValue(Exception):
    """A value that no list has."""


def _need(fits: bool, what: str) -> None:
    if not fits:
        raise _BadListValue(f"{what} of the list is not as it should be")


def _list(data: Json) -> FolderList:
    _need(isinstance(data, dict), "the form")
    if data.get("version") != VERSION:
        raise _BadListValue("a list of a version that this program does not know")
    files = tuple(_listed(item) for item in _sequence(data.get("files", [])))
    _need(len({item.name for item in files}) == len(files), "a name")
    readings = tuple(_reading(item) for item in _sequence(data.get("readings", [])))
    machine = _words(data.get("machine", ""), "a machine")
    errors = _errors(data.get("errors", []), folder=True)
    return FolderList(files, errors, readings, machine, data.get("under_way", False) is True)


def _reading(item: Json) -> CopyTimes:
    _need(len(_sequence(item)) == len(CopyTimes._fields), "a moment")
    folder, begun, done, live = item
    _need(isinstance(live, bool), "a moment")
    begun, done = _numbers([begun, done], 2)
    _need(begun <= done, "a moment")
    return CopyTimes(_words(folder, "a moment"), begun, done, live)


def _listed(item: Json) -> Listed:
    _need(isinstance(item, dict), "a file")
    name = item.get("name")
    _need(isinstance(name, str) and is_name(name), "a name")
    size, length = _number(item.get("size")), _number(item.get("length", -1), least=-1)
    stat = Stat(*_numbers(item["stat"], 3)) if "stat" in item else None
    content = _content(item["content"]) if "content" in item else None
    kept = item.get("kept")
    _need(kept is None or (isinstance(kept, str) and is_name(kept)), "a name")
    like = item.get("like")
    _need(like is None or (isinstance(like, str) and is_name(like) and kept is not None), "a name")
    refused, unused = item.get("refused"), item.get("unused")
    unused = None if unused is None else _words(unused, "a reason")
    if refused is not None:
        _need(len(_sequence(refused)) == 2, "a reason")
        refused = (_reason(refused[0]), _words(refused[1], "a reason"))
    taken = _taken(item["taken"], size) if "taken" in item else None
    _need(sum(x is not None for x in (content, kept, refused, unused, taken)) <= 1, "a file")
    _need(content is None or len(content) <= length, "a length")
    gone = Gone(*_numbers(item["gone"], 2)) if "gone" in item else None
    _need(gone is None or taken is not None, "a file")
    return Listed(
        name=name,
        size=size,
        stat=stat,
        content=content,
        kept=kept,
        length=length,
        taken=taken,
        refused=refused,
        unused=unused,
        like=like,
        gone=gone,
    )


def is_name(name: str) -> bool:
    """Whether it is the name of a file in a folder, and leads nowhere else."""
    return (
        0 < len(name) <= 1024
        and name not in (".", "..")
        and "/" not in name
        and "\\" not in name
        and name.isprintable()
    )


def _taken(data: Json, size: int) -> Taken:
    _need(isinstance(data, Mapping), "a segment")
    file, first, rows = data.get("file"), _number(data.get("first")), _number(data.get("rows"))
    _need(isinstance(file, str) and is_name(file) and file.endswith(".parquet"), "a name")
    found = [_numbers(chunk, 3, least=-MOST - 1) for chunk in _sequence(data.get("chunks"))]
    chunks = tuple((count, end, following) for count, end, following in found)
    _need(bool(chunks) and sum(c[0] for c in chunks) == rows and all(c[0] >= 0 for c in chunks), "a segment's rows")
    ends = [0, *(end for _, end, _ in chunks), size]
    _need(all(a <= b for a, b in itertools.pairwise(ends)), "a segment's end")
    foreign = tuple(tuple(_numbers(row, 17, least=-(2**63))) for row in _sequence(data.get("foreign", [])))
    errors, bodies = _errors(data.get("errors", [])), _errors(data.get("body_errors", []))
    of_records = tuple(_number(each) for each in _sequence(data.get("of_records", [])))
    checked, records = data.get("checked", True) is True, data.get("records", False) is True
    known = data.get("unended")
    unended = None if known is None else tuple(_number(each, -(2**63)) for each in _sequence(known))
    return Taken(
        file=file,
        first=first,
        rows=rows,
        chunks=chunks,
        errors=errors,
        body_errors=bodies,
        foreign=foreign,
        checked=checked,
        records=records,
        of_records=of_records,
        unended=unended,
    )


def _errors(data: object, *, folder: bool = False) -> tuple[DecodeError, ...]:
    found = []
    for item in _sequence(data):
        _need(len(_sequence(item)) == len(DecodeError._fields), "an error")
        file, position, length, reason, detail, *offsets = item
        file, detail = _words(file, "an error"), _words(detail, "an error")
        _need(not folder or "/" not in file, "a name")
        numbers = _numbers([position, length, *offsets], 4, least=-(2**63))
        found.append(DecodeError(file, numbers[0], numbers[1], _reason(reason), detail, numbers[2], numbers[3]))
    return tuple(found)


def _reason(value: object) -> str:
    _need(isinstance(value, str) and value in REASONS, "a reason")
    return str(value)


def _words(value: Json, what: str) -> str:
    """Text. Errors: ``ValueError`` for half a character, which JSON can say and nobody can write."""
    _need(isinstance(value, str), what)
    value.encode()
    return str(value)


def _sequence(value: Json) -> list[Json]:
    _need(isinstance(value, list), "a list")
    found: list[Json] = value
    return found


def _numbers(value: Json, count: int, least: int = 0) -> list[int]:
    _need(len(_sequence(value)) == count, "a number")
    return [_number(each, least) for each in value]


def _number(value: Json, least: int = 0) -> int:
    _need(type(value) is int and least <= value <= MOST, "a number")
    return int(value)


def _content(value: Json) -> bytes:
    _need(isinstance(value, str), "a content")
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error:
        raise _BadListValue("a content of the list is not as it should be") from None
