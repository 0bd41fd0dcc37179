"""Work in processes apart."""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import selectors
import signal
import socket
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self, TypeVar

from auditor.base.errors import StoreTrouble
from auditor.connectors.stores import retries
from auditor.connectors.stores.storage import ALL, PATIENCE_S

# Messages between a pool, its starter and its workers, and the note of what a worker reads.


FORK, WAIT, NUMBER = b"f", b"w", struct.Struct("<q")  # what the starter is asked: another worker, and how one ended
Opened = tuple[int, str]  # the number of a task, and the file that it opened last


class MessageSocket:
    """Whole messages over a socket, without buffering, so that the system can tell whether one is waiting."""

    def __init__(self, pipe: socket.socket) -> None:
        self.pipe = pipe

    def say(self, message: object) -> None:
        """Send a picklable object. Errors: OSError where nobody listens."""
        data = pickle.dumps(message, 5)
        self.pipe.sendall(NUMBER.pack(len(data)))
        self.pipe.sendall(data)

    def hear(self) -> Any:
        """Return the next message. Errors: EOFError where the other side ended, even within a message."""
        return pickle.loads(self._exactly(NUMBER.unpack(self._exactly(NUMBER.size))[0]))

    def _exactly(self, size: int) -> bytearray:
        data = bytearray(size)
        view, have = memoryview(data), 0
        while have < size:
            got = self.pipe.recv_into(view[have:])
            if not got:
                raise EOFError
            have += got
        return data


class Note:
    """What a worker is reading, in memory shared with the starter, which looks at it after a death.

    A worker may end in the middle of a note: it is written beside the one before, and counts once it is complete.
    """

    ROOM = 1 << 16

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 1 + 2 * self.ROOM)
        self.write(-1, ALL)

    def write(self, task: int, path: str) -> None:
        """Note that a task (-1: none) opens a file. Cost: 1 us."""
        note = pickle.dumps((task, path), 5)
        if len(note) > self.ROOM:  # longer than any path that can be opened
            note = pickle.dumps((task, ALL), 5)
        other = 1 - self._memory[0]
        begin = 1 + other * self.ROOM
        self._memory[begin : begin + len(note)] = note
        self._memory[0] = other

    def read(self) -> Opened:
        """Return the last note."""
        begin = 1 + self._memory[0] * self.ROOM
        opened: Opened = pickle.loads(self._memory[begin : begin + self.ROOM])
        return opened


# Pools of processes: a file that kills or blocks its reader is refused and reported.
#
# Compiled code may die of a file; the driver must not. So each worker of a :class:`Pool` notes which file it opens.
# When one dies, that file is refused to the next, so that it ends among the unreadable files while all else is read;
# after a signal that anybody may have sent, only when that has happened twice. The dead worker's last output is in
# stderr of the process that started it.
#
# Workers are forked by the starter, a process that has imported what they need and does nothing else: another worker
# costs milliseconds, and inherits nothing of the driver (its threads, or its main program, which may be a script that
# starts an audit).


Task = TypeVar("Task")
Result = TypeVar("Result")

LOADED = (
    "auditor.base.machine_code",
    "auditor.replay.reading.replica_reader",
    "auditor.pipeline.runner",
    "auditor.pipeline.cluster_settings",
    "auditor.pipeline.judge",
)
MAX_REFUSED = 8  # files of one task; then all that it reads is refused
FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP)  # anybody's, or a file's that is too large
KILLS = "reading it "  # how the reason of a refused file begins
# What numpy reads in a worker. Huge pages are of little use to tables that are mostly written once. Where memory is in
# pieces, as beside a broker whose log fills the page cache, the kernel first moves pages about to have any: up to a
# second for 400 MB of producers.
FOR_NUMPY = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "NUMPY_MADVISE_HUGEPAGE": "0"}


def read_apart(
    tasks: Sequence[Task], read: Callable[[Task], Result], patience_s: float = PATIENCE_S
) -> Iterator[Result]:
    """Yield ``read`` of each task, in one process apart; see :meth:`Pool.map`. No process is started for no task."""
    if tasks:
        with Pool(1) as pool:
            yield from (result for _, result in pool.map(tasks, read, patience_s=patience_s))


@dataclass
class _Worker:
    """A worker process, and the number of its task. ``work``: what it does with it; ``words``: why it dies."""

    pid: int
    line: MessageSocket
    work: bytes = b""
    task: int = -1
    words: str = ""

    def take(self, work: bytes, number: int, task: object, refused: dict[str, str], rounds: int | None) -> None:
        """Send it a task with refused files and the rounds of :func:`auditor.connectors.stores.retries.resigned`.

        If it has ended, that shows when nothing comes from it.
        """
        self.task = number
        with contextlib.suppress(OSError):
            if work is not self.work:
                self.line.say(("work", work))
                self.work = work
            self.line.say(("task", (number, task, refused, rounds)))

    def hear(self) -> tuple[str, Any] | None:
        """Return its next message; None at its end."""
        try:
            message: tuple[str, Any] = self.line.hear()
        except (EOFError, OSError):
            return None
        return message


class Pool:
    """At most ``size`` workers, started when there is work, and kept until the pool is closed.

    ``modules``: what they import before; ``waits``: called with the reason when a worker waits for a store.
    """

    def __init__(self, size: int, modules: Sequence[str] = LOADED) -> None:
        self.size, self.modules = size, modules
        self.waits: Callable[[str], None] = retries.ignore
        self._idle: list[_Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start importing what workers need, in the background. Cost: that of starting a process."""
        _ = self._starter

    def close(self) -> None:
        """End all processes."""
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
        call = f"from auditor.processes.worker import start_workers; start_workers({theirs.fileno()}, {self.modules})"
        path = os.pathsep.join(path or os.getcwd() for path in sys.path)
        env = os.environ | FOR_NUMPY | {"PYTHONPATH": path}
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", call],
                env=env,
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=2,
            )
        return process, ours

    def _ask(self, what: bytes, *given: socket.socket) -> Any:
        """Return the starter's answer. Errors: ``RuntimeError`` where it is gone."""
        _, line = self._starter
        with contextlib.suppress(OSError, EOFError):
            socket.send_fds(line, [what], [one.fileno() for one in given])
            return MessageSocket(line).hear()
        raise RuntimeError("the process that starts readers has ended; its last output is above")

    def _worker(self) -> _Worker:
        if self._idle:
            return self._idle.pop()
        ours, theirs = socket.socketpair()
        with theirs:
            return _Worker(self._ask(FORK, theirs), MessageSocket(ours))

    def map(
        self,
        tasks: Sequence[Task],
        work: Callable[[Task], Result],
        *,
        patience_s: float = PATIENCE_S,
        refused: dict[str, str] | None = None,
        reads: bool = True,
        opens: Callable[[int, str], None] | None = None,
        rows: bool = True,
        once: bool = False,
    ) -> Iterator[tuple[int, Any]]:
        """Yield ``(number, work(task))`` of every task as they end; one worker yields them in order.

        A task for which a store refuses files is repeated later; after :data:`retries.ROUNDS` failures its files are
        unreadable, or, without ``rows``, :class:`StoreTrouble` is raised. What kills a worker is an ``unreadable`` file
        to the next. ``work`` is a function of a module, or a partial of one; ``patience_s``: seconds for one file;
        ``refused``: paths of files not to be opened, and why; those that killed are added; ``reads``: whether it opens
        files at all, so that exceptions are a file's fault; ``opens``: called some time later with the task and the
        file it opens; ``once``: a task that kills is not repeated, and its result is None. Memory: results of
        ``size`` tasks. Errors: ``RuntimeError`` where a worker dies with nothing left to refuse, or raises without
        reading; ``OSError`` for a full disk. An iterator as ``work(task)`` is a stream: each of its items is yielded,
        then None; what was yielded before a death stays.
        """
        how = pickle.dumps((work, patience_s, reads, opens is not None), 5)
        job = _Job(how, patience_s, {} if refused is None else refused, deque(range(len(tasks))), rows)
        heard = opens or (lambda number, path: None)
        busy: dict[int, _Worker] = {}
        try:
            with selectors.DefaultSelector() as waiting:
                self._hand_out(job, tasks, busy, waiting)
                while busy:
                    done: list[tuple[int, Any]] = []
                    for key, _ in waiting.select():
                        worker = key.data
                        message = worker.hear()
                        if message is not None and message[0] == "dies":
                            worker.words = f" after {message[1]}"
                            continue
                        if message is not None and message[0] == "part":
                            done.append((worker.task, message[1]))
                            continue
                        if message is not None and message[0] in ("opens", "waits"):
                            self._hear(message[0], message[1], heard)
                            continue
                        waiting.unregister(worker.line.pipe)
                        del busy[worker.pid]
                        if message is None:
                            if not self._bury(worker, job, once):
                                done.append((worker.task, None))
                            continue
                        self._idle.append(worker)
                        if message[0] == "raised":
                            raise RuntimeError("\n".join(message[1]))
                        if message[0] == "full":
                            raise OSError(*message[1])
                        if message[0] == "store":
                            job.again(worker.task, message[1], first=self.size == 1)
                            continue
                        job.dry = message[0] == "gave up"
                        done.append((worker.task, message[1]))
                    self._hand_out(job, tasks, busy, waiting)  # before anybody takes his time over what is done
                    yield from done
        finally:
            for worker in busy.values():  # nobody wants the rest
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker.pid, signal.SIGKILL)
                worker.line.pipe.close()

    def _hand_out(
        self, job: _Job, tasks: Sequence[Any], busy: dict[int, _Worker], waiting: selectors.BaseSelector
    ) -> None:
        """Give tasks to all idle workers."""
        while job.todo and len(busy) < self.size:
            worker = self._worker()
            busy[worker.pid] = worker
            waiting.register(worker.line.pipe, selectors.EVENT_READ, worker)
            number = job.todo.popleft()
            worker.take(job.work, number, tasks[number], job.refused_to(number), job.rounds(number))

    def _hear(self, kind: str, content: Any, heard: Callable[[int, str], None]) -> None:
        if kind == "waits":
            self.waits(content)
            return
        for opened in content:
            heard(*opened)

    def all(self, tasks: Sequence[Task], work: Callable[[Task], Result]) -> list[Result]:
        """Return the results of :meth:`map`, in the order of the tasks."""
        results = dict(self.map(tasks, work))
        return [results[number] for number in range(len(tasks))]

    def _bury(self, worker: _Worker, job: _Job, once: bool) -> bool:
        """Take leave of a worker that has ended; return whether its task is repeated: not where it is ``once``."""
        worker.line.pipe.close()
        status, opened = self._ask(WAIT + NUMBER.pack(worker.pid))
        if once:
            return False
        task, file = opened if opened[0] == worker.task else (worker.task, ALL)  # before it opened any file
        job.todo.appendleft(task)
        if -status in FROM_OUTSIDE and (task, file) not in job.spared:
            job.spared.add((task, file))
        else:
            job.refuse(task, file, _ending(status, job.patience_s) + worker.words)
        return True


@dataclass
class _Job:
    """State of a pool's work on some tasks, whose numbers are in ``todo``.

    ``refused``: files refused to all of them, ``of_task``: to one, over which workers died; ``spared``: what was open
    when a worker was killed once. ``rows`` as of :meth:`Pool.map`; ``failed``: how often a store refused something to a
    task; ``dry``: it did so until the end of the last one.
    """

    work: bytes
    patience_s: float
    refused: dict[str, str]
    todo: deque[int]
    rows: bool = True
    of_task: dict[int, dict[str, str]] = field(default_factory=dict)
    spared: set[Opened] = field(default_factory=set)
    failed: dict[int, int] = field(default_factory=dict)
    dry: bool = False

    def refused_to(self, task: int) -> dict[str, str]:
        """Return the files refused to a task, and why."""
        return self.refused | self.of_task.get(task, {})

    def rounds(self, task: int) -> int | None:
        """Return how many rounds a task asks a store before it gives up; None while it will be repeated."""
        if not self.rows or self.failed.get(task, 0) < retries.ROUNDS - 1:
            return None
        return 0 if self.dry else 1

    def again(self, task: int, code: str, *, first: bool) -> None:
        """Repeat a task to which a store refused something, after the others or ``first``.

        Errors: :class:`StoreTrouble` where that was the last time.
        """
        self.failed[task] = self.failed.get(task, 0) + 1
        if self.failed[task] >= retries.ROUNDS:
            raise StoreTrouble(code)
        if first:
            self.todo.appendleft(task)
        else:
            self.todo.append(task)

    def refuse(self, task: int, file: str, ending: str) -> None:
        """Refuse the file that was open at a death, or the whole task where that did not help."""
        refused = self.of_task.setdefault(task, {})
        if ALL in refused:
            raise RuntimeError(f"the reader process ends ({ending}) whatever file is excluded")
        path = ALL if file in refused or len(refused) >= MAX_REFUSED else file
        refused[path] = KILLS + ending
        if path != ALL:
            self.refused[path] = refused[path]


def _ending(status: int, patience_s: float) -> str:
    if status == -signal.SIGALRM:
        return f"takes longer than {patience_s:.0f} s"
    return f"ends the process: {signal.Signals(-status).name if status < 0 else f'exit code {status}'}"
