"""Work in processes apart: a file that kills its reader, or never lets it go, is left out and named.

Compiled code may die of a file; the driver must not. So a :class:`Pool` has workers, each of which says which file it
opens. When one dies, that file is refused to the next, so that it ends among the unreadable files while all else is
read. What killed a worker is in the standard error of who started it.

Workers are forked by a process that has loaded what they need and does nothing else, the starter: a worker more, or
one in place of a dead one, costs milliseconds, and nothing of the driver (its threads, its main program, which may be
a script that starts an audit) gets into them.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import pickle
import selectors
import signal
import socket
import struct
import subprocess
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NoReturn, Self, TypeVar

from auditor.connectors import gate
from auditor.connectors.gate import ALL, PATIENCE_S

Task = TypeVar("Task")
Result = TypeVar("Result")

MAX_REFUSED = 8  # files of one task; then all that it reads is refused
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
KILLS = "reading it "  # how the reason of a refused file begins
LOADED = ("auditor.base.machine_code", "auditor.replay.copy_reader", "auditor.pipeline.read_step",
          "auditor.pipeline.cluster_settings", "auditor.pipeline.judge")  # fmt: skip
# What numpy reads in a worker. Huge pages are of little use to tables that are mostly written once. Where memory is in
# pieces, as beside a broker whose log fills the page cache, the kernel first moves pages about to have any: up to a
# second for 400 MB of producers.
FOR_NUMPY = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "NUMPY_MADVISE_HUGEPAGE": "0"}
_FORK, _WAIT, _NUMBER = b"f", b"w", struct.Struct("<q")


def read_apart(
    tasks: Sequence[Task], read: Callable[[Task], Result], patience_s: float = PATIENCE_S
) -> Iterator[Result]:
    """``read`` of each task in turn, in one process apart; see :meth:`Pool.map`. Nothing is started for no task."""
    if tasks:
        with Pool(1) as pool:
            yield from (result for _, result in pool.map(tasks, read, patience_s=patience_s))


class _Line:
    """Whole messages over a socket, nothing kept back, so that what is waiting can be asked of the system."""

    def __init__(self, pipe: socket.socket) -> None:
        self.pipe = pipe

    def say(self, message: object) -> None:
        """Sends anything that can be pickled. Errors: OSError where nobody listens."""
        data = pickle.dumps(message, 5)
        self.pipe.sendall(_NUMBER.pack(len(data)))
        self.pipe.sendall(data)

    def hear(self) -> Any:
        """The next message. Errors: EOFError where the other side ended, be it in the middle of a word."""
        return pickle.loads(self._exactly(_NUMBER.unpack(self._exactly(_NUMBER.size))[0]))

    def _exactly(self, size: int) -> bytearray:
        data = bytearray(size)
        view, have = memoryview(data), 0
        while have < size:
            got = self.pipe.recv_into(view[have:])
            if not got:
                raise EOFError
            have += got
        return data


@dataclass
class _Worker:
    """A process that works, and what it is at. ``work``: what it does with tasks; ``opened``: the file opened last."""

    pid: int
    line: _Line
    work: bytes = b""
    task: int = -1
    opened: str = ALL

    def take(self, work: bytes, task: object, refused: dict[str, str]) -> None:
        """Hands it a task; whether it is still there is seen when nothing comes from it."""
        with contextlib.suppress(OSError):
            if work is not self.work:
                self.line.say(("work", work))
                self.work = work
            self.line.say(("task", (task, refused)))

    def hear(self) -> tuple[str, Any] | None:
        """What it says next; None at its end."""
        try:
            message: tuple[str, Any] = self.line.hear()
        except (EOFError, OSError):
            return None
        return message


class Pool:
    """At most ``size`` workers. They are started when there is work, and stay until the pool is closed."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._idle: list[_Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Begins to load what workers need, while the caller does other things. Cost: that of starting a process."""
        _ = self._starter

    def close(self) -> None:
        """Ends all processes."""
        for worker in self._idle:
            worker.line.pipe.close()
        self._idle.clear()
        if "_starter" in self.__dict__:
            process, line = self.__dict__.pop("_starter")
            line.close()
            process.wait()

    @cached_property
    def _starter(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        ours, theirs = socket.socketpair()
        call = f"from auditor.pipeline.isolation import start_workers; start_workers({theirs.fileno()})"
        path = os.pathsep.join(path or os.getcwd() for path in sys.path)
        env = os.environ | FOR_NUMPY | {"PYTHONPATH": path}
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", call], env=env, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL,
                stdout=2,
            )  # fmt: skip
        return process, ours

    def _ask(self, what: bytes, *given: socket.socket) -> int:
        """The starter's answer. Errors: ``RuntimeError`` where it is gone."""
        _, line = self._starter
        with contextlib.suppress(OSError):
            socket.send_fds(line, [what], [one.fileno() for one in given])
            if len(answer := line.recv(_NUMBER.size, socket.MSG_WAITALL)) == _NUMBER.size:
                return int(_NUMBER.unpack(answer)[0])
        raise RuntimeError("the process that starts readers is gone; what it printed last is above")

    def _worker(self) -> _Worker:
        if self._idle:
            return self._idle.pop()
        ours, theirs = socket.socketpair()
        with theirs:
            return _Worker(self._ask(_FORK, theirs), _Line(ours))

    def map(
        self, tasks: Sequence[Task], work: Callable[[Task], Result], *, patience_s: float = PATIENCE_S,
        refused: dict[str, str] | None = None, reads: bool = True, opens: Callable[[int, str], None] | None = None,
    ) -> Iterator[tuple[int, Result]]:  # fmt: skip
        """``(number, work(task))`` of every task as they end; one worker gives them in order.

        What kills a worker is an ``unreadable`` file to the next. ``work`` is a function of a module, or a partial of
        one; ``patience_s``: seconds for one file; ``refused``: paths of files not to be opened, and why; those that
        killed go into it; ``reads``: whether it opens files at all, so that what it raises is a file's doing;
        ``opens``: hears which task opens which file.
        Memory: what ``size`` tasks give. Errors: ``RuntimeError`` where a worker dies with nothing left to refuse, or
        raises where it does not read; ``OSError`` where it finds a disk full.
        """
        job = _Job(pickle.dumps((work, patience_s, reads), 5), patience_s, {} if refused is None else refused)
        todo = deque(range(len(tasks)))
        busy: dict[int, _Worker] = {}
        try:
            with selectors.DefaultSelector() as waiting:
                while todo or busy:
                    while todo and len(busy) < self.size:
                        worker = self._worker()
                        worker.task, worker.opened = todo.popleft(), ALL
                        busy[worker.pid] = worker
                        waiting.register(worker.line.pipe, selectors.EVENT_READ, worker)
                        worker.take(job.work, tasks[worker.task], job.refused_to(worker.task))
                    for key, _ in waiting.select():
                        worker = key.data
                        message = worker.hear()
                        if message is not None and message[0] == "opens":
                            worker.opened = message[1]
                            if opens is not None:
                                opens(worker.task, message[1])
                            continue
                        waiting.unregister(worker.line.pipe)
                        del busy[worker.pid]
                        if message is None:
                            self._bury(worker, job)
                            todo.appendleft(worker.task)
                            continue
                        self._idle.append(worker)
                        if message[0] == "raised":
                            raise RuntimeError("\n".join(message[1]))
                        if message[0] == "full":
                            raise OSError(*message[1])
                        yield worker.task, message[1]
        finally:
            for worker in busy.values():  # nobody wants the rest
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker.pid, signal.SIGKILL)
                worker.line.pipe.close()

    def all(self, tasks: Sequence[Task], work: Callable[[Task], Result]) -> list[Result]:
        """What :meth:`map` gives, in the order of the tasks."""
        found = dict(self.map(tasks, work))
        return [found[number] for number in range(len(tasks))]

    def _bury(self, worker: _Worker, job: _Job) -> None:
        worker.line.pipe.close()
        job.refuse(worker, _ending(self._ask(_WAIT + _NUMBER.pack(worker.pid)), job.patience_s))


@dataclass
class _Job:
    """What a pool does with some tasks. ``refused``: to all of them, ``of_task``: to one, over which workers died."""

    work: bytes
    patience_s: float
    refused: dict[str, str]
    of_task: dict[int, dict[str, str]] = field(default_factory=dict)

    def refused_to(self, task: int) -> dict[str, str]:
        """The files that are not opened for a task, and why."""
        return self.refused | self.of_task.get(task, {})

    def refuse(self, worker: _Worker, ending: str) -> None:
        """Refuses the file that was open at a death; all of them where that did not help."""
        mine = self.of_task.setdefault(worker.task, {})
        if ALL in mine:
            raise RuntimeError(f"the process that reads ends ({ending}) whatever is left out")
        path = ALL if worker.opened in mine or len(mine) >= MAX_REFUSED else worker.opened
        mine[path] = KILLS + ending
        if path != ALL:
            self.refused[path] = mine[path]


def _ending(status: int, patience_s: float) -> str:
    """How a process ended, in words."""
    if status == -signal.SIGALRM:
        return f"takes more than {patience_s:.0f} s"
    return f"ends the process: {signal.Signals(-status).name if status < 0 else f'exit status {status}'}"


def start_workers(line_fd: int) -> None:
    """The starter: loads modules, then forks a worker whenever it is asked to, and reports how one ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it decides when it ends
    sys.meta_path.insert(0, _NoPandas())
    for name in LOADED:
        importlib.import_module(name)
    line = socket.socket(fileno=line_fd)
    while True:
        asked, fds, *_ = socket.recv_fds(line, 1 + _NUMBER.size, 1)
        if not asked:
            return
        if asked[:1] == _FORK:
            pid = os.fork()
            if not pid:
                line.close()
                _work(fds[0])
            os.close(fds[0])
            line.sendall(_NUMBER.pack(pid))
        else:
            _, status = os.waitpid(_NUMBER.unpack(asked[1:])[0], 0)
            line.sendall(_NUMBER.pack(os.waitstatus_to_exitcode(status)))


class _NoPandas:
    """Says that pandas is not there: pyarrow would load it for its first array, for half a second and no use."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Errors: ImportError for pandas."""
        if name == "pandas":
            raise ModuleNotFoundError("pandas is of no use here", name=name)


def _work(pipe_fd: int) -> NoReturn:
    """A worker: does what it is handed until nobody hands it anything; says which file it opens."""
    status = 1
    try:
        line = _Line(socket.socket(fileno=pipe_fd))
        _serve(line)
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
        raise
    finally:
        with contextlib.suppress(OSError):
            sys.stderr.flush()
        os._exit(status)


def _serve(line: _Line) -> None:
    work, patience_s, reads = None, PATIENCE_S, True
    while True:
        try:
            kind, content = line.hear()
        except (EOFError, ConnectionError):
            return
        if kind == "work":
            work, patience_s, reads = pickle.loads(content)
            continue
        task, refused = content
        try:
            with gate.guarded(refused, lambda path: line.say(("opens", path)), patience_s):
                result = work(task)  # type: ignore[misc]
        except Exception as error:
            if isinstance(error, OSError) and error.errno in DISK_FULL:  # no file's doing: what is read is not written
                line.say(("full", (error.errno, os.strerror(error.errno))))
            elif reads:
                raise
            else:
                line.say(("raised", (repr(error), traceback.format_exc())))
        else:
            line.say(("done", result))
