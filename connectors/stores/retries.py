"""How a store that refuses is asked again."""

from __future__ import annotations

import errno
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from enum import Enum
from typing import TypeVar

import pyarrow as pa

from auditor.base.errors import StoreTrouble

# Asking a store that refuses at times: what a refusal means, how long it is asked again, and what is raised then.
#
# I/O is not data. That a file is not there, or is denied by name, is a fact about the input, and becomes a row.
# Anything
# else of a store (time-outs, 5xx, throttling, expired tokens, answers that break off) says nothing of the file: the
# request is tried again, with back-off and jitter, and then :class:`~auditor.base.errors.StoreTrouble` is raised, so
# that
# whoever hands out the work can have it done elsewhere. Only who was told that nobody will try again (:func:`resigned`)
# gets an ``OSError`` with the store's own code in its place.
#
# Files of this machine never come here.


Answer = TypeVar("Answer")
Given = TypeVar("Given")

# What drivers raise for what cannot be read or written; Arrow says of some names of objects that they are invalid,
# hdfs-native raises RuntimeError for most, and drivers that cannot write NotImplementedError, which is one.
REFUSED = (OSError, ValueError, RuntimeError, pa.ArrowException)
SAYS = "the store says "  # how the detail of a file begins that a store would not give
ROUNDS = 4  # times that a list of work is tried before what a store refuses becomes a row
PATIENCE_S = 30.0  # for one request; PATIENCE in the environment sets another
PATIENCE = "AUDITOR_STORE_PATIENCE"
FIRST_WAIT_S, MOST_WAIT_S = 0.1, 8.0
UNNAMED_TRIES = 4  # refusals without a code, one after the other, before the store is asked for one in another way

_GONE = re.compile(r"AWS Error (?:NO_SUCH_KEY|RESOURCE_NOT_FOUND)|ExceptionName: NoSuchKey")
_EXCEPTION = re.compile(r"ExceptionName: (\w+)")
_AWS = re.compile(r"AWS Error ([A-Z_]+)(?: \((HTTP status \d+)\))?")
_CURL = re.compile(r"(curlCode: \d+), ([^;]+)")
_GOOGLE = re.compile(r"google::cloud::Status\((\w+)")
NO_BODY = "No response body"  # of a HEAD
_NO_REASON = re.compile(rf"AWS Error ACCESS_DENIED[^:]*: (?:{NO_BODY}\.)?\s*$")
_DENIED = re.compile(
    r"AWS Error ACCESS_DENIED|Status\(PERMISSION_DENIED|AccessControlException|AuthorizationPermission"
)
_NO_NAME = (pa.ArrowInvalid, pa.ArrowNotImplementedError, NotImplementedError, IsADirectoryError, NotADirectoryError)


class Meaning(Enum):
    """What a refusal says: of the file that it is not there, denied, or no name; nothing of it, without a reason (a
    store answers some requests without a body) or for one that passes."""

    GONE = "gone"
    DENIED = "denied"
    NO_NAME = "no name"
    NO_REASON = "no reason"
    TROUBLE = "trouble"


_CODES = {
    "NoSuchKey": Meaning.GONE,
    "NoSuchBucket": Meaning.GONE,
    "AccessDenied": Meaning.DENIED,
    "InvalidObjectState": Meaning.DENIED,  # of an archive: somebody has to restore it first
}
_OF_THE_FILE = (Meaning.GONE, Meaning.DENIED, Meaning.NO_NAME)


class Coded(OSError):
    """A refusal whose reason the driver did not pass on. ``code``: the store's own."""

    def __init__(self, code: str) -> None:
        super().__init__(errno.EIO, code)
        self.code = code


def meaning(error: Exception) -> Meaning:
    """What a driver's error means."""
    text = str(error)
    if isinstance(error, Coded):
        return _CODES.get(error.code, Meaning.TROUBLE)
    if isinstance(error, FileNotFoundError) or _GONE.search(text):
        return Meaning.GONE
    if _NO_REASON.search(text):
        return Meaning.NO_REASON
    if isinstance(error, PermissionError) or _DENIED.search(text):
        return Meaning.DENIED if _botocore(error) in ("", "AccessDenied") else Meaning.TROUBLE
    if isinstance(error, _NO_NAME) or (isinstance(error, ValueError) and not isinstance(error, OSError)):
        return Meaning.NO_NAME
    return Meaning.TROUBLE


def code_of(error: Exception) -> str:
    """The store's own code for a refusal. Of a driver's other words nothing is kept: nobody knows what they hold."""
    text = str(error)
    if match := _EXCEPTION.search(text):
        return match[1]
    if match := _AWS.search(text):
        name = match[2] if match[1] == "UNKNOWN" and match[2] else match[1]
        curl = _CURL.search(text)
        return f"{name} ({curl[1]}, {curl[2]})" if curl else name
    if match := _GOOGLE.search(text):
        return match[1]
    return _botocore(error) or getattr(error, "strerror", None) or type(error).__name__


def _botocore(error: Exception) -> str:
    """The code that botocore has, which is below fsspec's s3; "" without any."""
    response = getattr(error.__cause__, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""


def nobody(text: str) -> None:
    """Hears nothing."""


class _ThreadState(threading.local):
    """Of a thread: how many times the patience a request gets before it is an ``OSError``, None where it is
    :class:`StoreTrouble`; whether, of work that nobody does again, the request before this one was given up: then this
    one is tried once."""

    rounds: int | None = None
    tired = False


_state = _ThreadState()
_heard: Callable[[str], None] = nobody


@contextmanager
def resigned(rounds: int | None = 1) -> Iterator[None]:
    """While nobody will do this work again: what a store refuses for ``rounds`` times the patience is an ``OSError``
    with its code, which becomes a row as any unreadable file does. None: :class:`StoreTrouble`, as ever."""
    before, _state.rounds, _state.tired = _state.rounds, rounds, False
    try:
        yield
    finally:
        _state.rounds, _state.tired = before, False


def as_here(work: Callable[[Given], Answer]) -> Callable[[Given], Answer]:
    """``work`` for another thread, as patient as this one."""
    rounds = _state.rounds

    def done(given: Given) -> Answer:
        with resigned(rounds):
            return work(given)

    return done


def gave_up() -> bool:
    """Whether the last request of this work that nobody does again was given up."""
    return _state.tired


@contextmanager
def heard_by(heard: Callable[[str], None]) -> Iterator[None]:
    """While requests are tried again, ``heard`` gets a sentence on it."""
    global _heard

    before, _heard = _heard, heard
    try:
        yield
    finally:
        _heard = before


def patience_s() -> float:
    """Seconds for which a request is tried again."""
    try:
        return max(0.0, float(os.environ[PATIENCE]))
    except (KeyError, ValueError):
        return PATIENCE_S


def ask(
    work: Callable[[], Answer],
    name_of: Callable[[], Exception | None],
    renew: Callable[[Exception], None],
    *,
    most_s: float | None = None,
) -> Answer:
    """What ``work`` gives, which is tried again where a store refuses it for the time being.

    ``name_of``: asks the store the same in a way that it answers with a code, None where it has nothing against it;
    ``renew``: is told of each refusal before work is tried again: credentials may have been renewed. ``most_s``: in
    place of the patience. Errors: the driver's own where it says something of the file; else :class:`StoreTrouble`, or
    ``OSError`` where somebody :func:`resigned`.
    """
    patience = (patience_s() if most_s is None else most_s) * (1 if _state.rounds is None else _state.rounds)
    until = time.monotonic() + (0.0 if _state.tired else patience)
    wait, unnamed = FIRST_WAIT_S, 0  # refusals without a reason, one after the other
    while True:
        try:
            result = work()
        except REFUSED as error:
            unnamed = unnamed + 1 if meaning(error) is Meaning.NO_REASON else 0
            pause = wait * random.uniform(0.5, 1.0)
            over = time.monotonic() + pause > until
            why = _named(error, name_of, unnamed, over=over)
            if over and not 0 < unnamed < UNNAMED_TRIES:
                raise given_up(code_of(why)) from error
            _heard(f"{SAYS}{code_of(why)}: asked again")
            time.sleep(pause)
            wait = min(MOST_WAIT_S, 2 * wait)
            renew(error)
        else:
            _state.tired = False
            return result


def _named(error: Exception, name_of: Callable[[], Exception | None], unnamed: int, *, over: bool) -> Exception:
    """The refusal with a code, where one can be had. ``unnamed``: how many without a reason it is the last of.

    Errors: the refusal, where it says something of the file.
    """
    text = meaning(error)
    if text in _OF_THE_FILE:
        raise error
    no_reason = text is Meaning.NO_REASON
    if unnamed < UNNAMED_TRIES and not (over and NO_BODY in str(error)):
        return error
    named = name_of()
    if no_reason and (unnamed > UNNAMED_TRIES if named is None else meaning(named) is Meaning.DENIED):
        raise error  # who lists the folder is known to the store, twice: it is this file that is denied
    return error if named is None else named


def given_up(code: str) -> Exception:
    """What is raised where a store goes on refusing."""
    if _state.rounds is None:
        return StoreTrouble(code)
    _state.tired = True
    return OSError(errno.EIO, f"{SAYS}{code}")


# Threads that wait for stores: one set a process, made when it is first needed, which a fork leaves behind.


AT_ONCE = 64  # requests; as many connections :mod:`auditor.connectors.stores.remote_files` has pyarrow's S3 client make
_of_process: dict[int, ThreadPoolExecutor] = {}


def run(work: Callable[..., Answer], *given: object) -> Future[Answer]:
    """Begins ``work`` in a thread."""
    pool = _of_process.get(os.getpid())
    if pool is None:
        _of_process.clear()
        pool = _of_process[os.getpid()] = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="store")
    return pool.submit(work, *given)


def side_by_side(work: Callable[[Given], Answer], given: Sequence[Given]) -> list[Answer]:
    """``work`` of each, in their order. Errors: the first that one raises."""
    if len(given) < 2:
        return [work(one) for one in given]
    return [future.result() for future in [run(work, one) for one in given]]


def apart(work: Callable[[Given], Answer], given: Sequence[Given]) -> list[Answer]:
    """As :func:`side_by_side`, of work that waits for such work itself: in threads of its own."""
    if len(given) < 2:
        return [work(one) for one in given]
    with ThreadPoolExecutor(min(len(given), AT_ONCE), thread_name_prefix="apart") as own:
        return list(own.map(work, given))
