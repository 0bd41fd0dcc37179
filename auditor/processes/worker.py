"""Worker processes of a pool, and the starter that forks them and reports how they end.

Neither has anything of its parent but the modules that are named here.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import importlib
import os
import pickle
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from typing import NoReturn

from auditor.base.errors import FAILURES_RAISE, StoreTrouble, cause_of
from auditor.connectors.stores import remote_files, retries, storage
from auditor.connectors.stores.storage import ALL, PATIENCE_S
from auditor.processes.isolation import FORK, NUMBER, MessageSocket, Note, Opened

REPORT_EVERY_S = 0.1
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


def start_workers(line_fd: int, modules: Sequence[str]) -> None:
    """Run the starter: import modules, then fork a worker on request, and report how one ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it decides when it ends
    sys.meta_path.insert(0, _NoPandas())
    for name in modules:
        importlib.import_module(name)
    line = MessageSocket(socket.socket(fileno=line_fd))
    notes: dict[int, Note] = {}
    while True:
        asked, fds, *_ = socket.recv_fds(line.pipe, 1 + NUMBER.size, 1)
        if not asked:
            for pid in notes:  # nobody is left to read for, or to hold a lock
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            return
        if asked[:1] == FORK:
            note = Note()
            pid = os.fork()
            if not pid:
                line.pipe.close()
                _work(fds[0], note)
            os.close(fds[0])
            notes[pid] = note
            line.say(pid)
        else:
            pid, status = os.waitpid(NUMBER.unpack(asked[1:])[0], 0)
            line.say((os.waitstatus_to_exitcode(status), notes.pop(pid).read()))


class _NoPandas:
    """Hides pandas: pyarrow would import it for its first array, for half a second and no use."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Raise ImportError for pandas."""
        if name == "pandas":
            raise ModuleNotFoundError("pandas is of no use here", name=name)


def _work(pipe_fd: int, note: Note) -> NoReturn:
    """Run a worker: do what it is given until the socket closes; note which file it opens."""
    status = 1
    try:
        line = MessageSocket(socket.socket(fileno=pipe_fd))
        _serve(line, note)
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
        raise
    finally:
        with contextlib.suppress(OSError):
            sys.stderr.flush()
        os._exit(status)


def _serve(line: MessageSocket, note: Note) -> None:
    work, patience_s, reads, heard = None, PATIENCE_S, True, False
    while True:
        try:
            kind, content = line.hear()
        except (EOFError, ConnectionError):
            return
        if kind == "work":
            work, patience_s, reads, heard = pickle.loads(content)
            continue
        number, task, refused, rounds = content
        opened = _OpenedFiles(line, note, heard)
        end = "done"
        try:
            with retries.heard_by(opened.waits), remote_files.coming(remote_files.of_work([task])):
                opened.file(number, ALL)
                guarded = storage.guarded(refused, functools.partial(opened.file, number), patience_s)
                with guarded, retries.resigned(rounds):
                    result = work(task)  # type: ignore[misc]
                    if isinstance(result, Iterator):
                        for part in result:
                            line.say(("part", part))
                        result = None
                    end = "gave up" if retries.gave_up() else end
        except StoreTrouble as error:  # no file's doing either: another time it may be read
            line.say(("store", error.code))
        except Exception as error:
            if isinstance(error, OSError) and error.errno in DISK_FULL:  # no file's doing: what is read is not written
                line.say(("full", (error.errno, os.strerror(error.errno))))
            elif reads and not os.environ.get(FAILURES_RAISE):
                line.say(("dies", cause_of(error)))
                raise
            else:
                line.say(("raised", (repr(error), traceback.format_exc())))
        else:
            line.say((end, result))
        note.write(-1, ALL)


class _OpenedFiles:
    """Files that a worker opens: each is noted and, on request, reported from time to time."""

    def __init__(self, line: MessageSocket, note: Note, heard: bool) -> None:
        self.line, self.note, self.heard = line, note, heard
        self.unreported: list[Opened] = []
        self.reported_at = time.monotonic()

    def file(self, task: int, path: str) -> None:
        """Note that a task opens a file."""
        self.note.write(task, path)
        if not self.heard or path == ALL:
            return
        self.unreported.append((task, path))
        if (now := time.monotonic()) >= self.reported_at + REPORT_EVERY_S:
            self.line.say(("opens", self.unreported))
            self.unreported, self.reported_at = [], now

    def waits(self, why: str) -> None:
        """Report that a store is asked again."""
        self.line.say(("waits", why))
