"""Retries of requests to stores."""

from __future__ import annotations

import errno
import os
import random
import re
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from enum import Enum
from typing import TypeVar

import pyarrow as pa

from auditor.base.errors import StoreTrouble

# A file that does not exist, or is denied by name, is a fact about the input, and becomes a row. All other refusals
# (time-outs, 5xx, throttling, expired tokens, incomplete answers) say nothing about the file: the request is retried,
# with back-off and jitter, then :class:`~auditor.base.errors.StoreTrouble` is raised, so that the work can be done
# elsewhere. Only within :func:`resigned` an ``OSError`` with the store's own code is raised instead. Not used for local
# files.


Answer = TypeVar("Answer")
Given = TypeVar("Given")

# What drivers raise for failed reads and writes; Arrow calls some object names invalid, hdfs-native raises RuntimeError
# for most errors, and drivers that cannot write NotImplementedError, which is one.
REFUSED = (OSError, ValueError, RuntimeError, pa.ArrowException)
SAYS = "the store says "  # start of the detail about a file that a store refused
ROUNDS = 4  # attempts of a list of work before a refusal becomes a row
PATIENCE_S = 30.0  # per request; the environment variable PATIENCE sets another
PATIENCE = "AUDITOR_STORE_PATIENCE"
FIRST_WAIT_S, MOST_WAIT_S = 0.1, 8.0
UNNAMED_TRIES = 4  # consecutive refusals without a code before another request is used to get one

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
    """The meaning of a refusal: the file does not exist, is denied, or has an invalid name; or nothing about the file,
    without a reason (a store answers some requests without a body) or with a transient one."""

    GONE = "gone"
    DENIED = "denied"
    NO_NAME = "no name"
    NO_REASON = "no reason"
    TROUBLE = "trouble"


_CODES = {
    "NoSuchKey": Meaning.GONE,
    "NoSuchBucket": Meaning.GONE,
    "AccessDenied": Meaning.DENIED,
    "InvalidObjectState": Meaning.DENIED,  # archived: it must be restored first
}
_OF_THE_FILE = (Meaning.GONE, Meaning.DENIED, Meaning.NO_NAME)


class Coded(OSError):
    """A refusal whose reason the driver did not pass on. ``code``: the store's own."""

    def __init__(self, code: str) -> None:
        super().__init__(errno.EIO, code)
        self.code = code


def meaning(error: Exception) -> Meaning:
    """The meaning of a driver's error."""
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
    """The store's own code of a refusal. Other words of a driver are dropped: they may contain secrets."""
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
    # The code of botocore, which is below fsspec's s3.
    response = getattr(error.__cause__, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""


def ignore(text: str) -> None:
    """Accept a message and do nothing."""


class _ThreadState(threading.local):
    # rounds: number of patience periods per request before it is an OSError, None for StoreTrouble. tired: the previous
    # request of work that is not retried elsewhere was given up, so this one is tried once.
    rounds: int | None = None
    tired = False


_state = _ThreadState()
_heard: Callable[[str], None] = ignore


@contextmanager
def resigned(rounds: int | None = 1) -> Iterator[None]:
    """Within the block no later retry follows: a request that is refused for ``rounds`` patience periods is an
    ``OSError`` with the store's code, which becomes a row like any unreadable file. None: :class:`StoreTrouble`, as by
    default."""
    before, _state.rounds, _state.tired = _state.rounds, rounds, False
    try:
        yield
    finally:
        _state.rounds, _state.tired = before, False


def as_here(work: Callable[[Given], Answer]) -> Callable[[Given], Answer]:
    """``work`` for another thread, with this thread's patience."""
    rounds = _state.rounds

    def done(given: Given) -> Answer:
        with resigned(rounds):
            return work(given)

    return done


def gave_up() -> bool:
    """Whether the last request of work without later retries was given up."""
    return _state.tired


@contextmanager
def heard_by(heard: Callable[[str], None]) -> Iterator[None]:
    """Within the block ``heard`` gets a sentence on each retry."""
    global _heard

    before, _heard = _heard, heard
    try:
        yield
    finally:
        _heard = before


def patience_s() -> float:
    """Seconds for which a request is retried."""
    try:
        return max(0.0, float(os.environ[PATIENCE]))
    except (KeyError, ValueError):
        return PATIENCE_S


def ask(
    work: Callable[[], Answer],
    name_of: Callable[[], Exception | None],
    renew: Callable[[Exception], object],
    *,
    most_s: float | None = None,
) -> Answer:
    """The result of ``work``, which is retried while a store refuses it temporarily.

    ``name_of``: sends an equivalent request whose answer has a code, None for no objection; ``renew``: called with each
    refusal before a retry, as credentials may have been renewed. ``most_s``: replaces the patience. Errors: the
    driver's own if it is about the file; else :class:`StoreTrouble`, or ``OSError`` within :func:`resigned`.
    """
    patience = (patience_s() if most_s is None else most_s) * (1 if _state.rounds is None else _state.rounds)
    until = time.monotonic() + (0.0 if _state.tired else patience)
    wait, unnamed = FIRST_WAIT_S, 0  # consecutive refusals without a reason
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
    # The refusal with a code, if there is one. unnamed: its ordinal among refusals without a reason. Raises the refusal
    # if it is about the file.
    text = meaning(error)
    if text in _OF_THE_FILE:
        raise error
    no_reason = text is Meaning.NO_REASON
    if unnamed < UNNAMED_TRIES and not (over and NO_BODY in str(error)):
        return error
    named = name_of()
    if no_reason and (unnamed > UNNAMED_TRIES if named is None else meaning(named) is Meaning.DENIED):
        raise error  # the listing was allowed, twice: only this file is denied
    return error if named is None else named


def given_up(code: str) -> Exception:
    """The error for a request that is given up."""
    if _state.rounds is None:
        return StoreTrouble(code)
    _state.tired = True
    return OSError(errno.EIO, f"{SAYS}{code}")


# Threads that wait for stores: one pool per process, created on first use; a fork does not inherit it.


AT_ONCE = 64  # requests; pyarrow's S3 client gets as many connections
_of_process: dict[int, ThreadPoolExecutor] = {}


def run(work: Callable[..., Answer], *given: object) -> Future[Answer]:
    """Start ``work`` in a thread."""
    pool = _of_process.get(os.getpid())
    if pool is None:
        _of_process.clear()
        pool = _of_process[os.getpid()] = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="store")
    return pool.submit(work, *given)


class Endless(Exception):
    """Work that has not ended in its time or memory."""


def ended(work: Callable[[], Answer], most_s: float, most_bytes: int) -> Answer:
    """The result of ``work``, in a thread that the process does not wait for at its end. Errors: those of ``work``;
    :class:`Endless`."""
    future: Future[Answer] = Future()

    def run_it() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            future.set_exception(error)

    until, most = time.monotonic() + most_s, _resident_bytes() + most_bytes
    threading.Thread(target=run_it, daemon=True, name="listing").start()
    while not wait([future], min(1.0, most_s)).done:
        if time.monotonic() > until or _resident_bytes() > most:
            raise Endless
    return future.result()


def _resident_bytes() -> int:
    # At its most so far; where the system counts in bytes, not KiB, the limit is never reached.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1024 if sys.platform == "linux" else 0)


def side_by_side(work: Callable[[Given], Answer], given: Sequence[Given]) -> list[Answer]:
    """Apply ``work`` in parallel, results in order. Errors: the first that one raises."""
    if len(given) < 2:
        return [work(one) for one in given]
    return [future.result() for future in [run(work, one) for one in given]]


def apart(work: Callable[[Given], Answer], given: Sequence[Given]) -> list[Answer]:
    """As :func:`side_by_side`, for work that itself waits for such work: in separate threads."""
    if len(given) < 2:
        return [work(one) for one in given]
    with ThreadPoolExecutor(min(len(given), AT_ONCE), thread_name_prefix="apart") as own:
        return list(own.map(work, given))
