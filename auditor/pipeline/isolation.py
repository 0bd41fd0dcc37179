"""Reading in a process apart: a file that kills its reader, or never lets it go, is left out and named.

A worker that dies takes its task along, and Spark starts the task again. From the third attempt on files are read by a
child process that says which one it opens. When it dies, that file is refused to the next child, so that it ends among
the unreadable files while all else is audited. What the driver reads with compiled code, a child reads from the first.
What killed a child is in the standard error of who started it.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import IO, Any, TypeVar

from auditor.connectors import gate
from auditor.connectors.gate import ALL, PATIENCE_S

Task = TypeVar("Task")
Result = TypeVar("Result")

FROM_ATTEMPT = 2  # counted from 0; Spark gives a task four
MAX_REFUSED = 8  # files of one task; then all that it reads is refused
KILLS = "reading it "  # how the reason of a refused file begins


def read_each(tasks: Sequence[Task], read: Callable[[Task], Result]) -> Iterator[Result]:
    """``read`` of each task in turn; in a process apart where workers of Spark's died over these tasks before."""
    if died_before():
        yield from read_apart(tasks, read)
        return
    with gate.guarded({}):
        for task in tasks:
            yield read(task)


def died_before() -> bool:
    """Whether Spark tries the running task again because it failed before, more than once."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context is not None and context.attemptNumber() >= FROM_ATTEMPT


def read_apart(
    tasks: Sequence[Task], read: Callable[[Task], Result], patience_s: float = PATIENCE_S
) -> Iterator[Result]:
    """``read`` of each task in turn, in a child; what kills a child is an ``unreadable`` file to the next one.

    ``read`` is a function of a module; ``patience_s``: seconds for one file. Cost: a second or two for a child, of
    which there is one more than deaths, and memory for what one task gives. Errors: ``RuntimeError`` where a child
    dies with nothing left to refuse.
    """
    done, refused = 0, dict[str, str]()
    while done < len(tasks):
        child, opened = _start((tasks[done:], read, refused, patience_s)), ALL
        assert child.stdout is not None
        try:
            while (message := _received(child.stdout)) is not None:
                kind, content = message
                if kind == "opens":
                    opened = content
                else:
                    yield content
                    done, opened, refused = done + 1, ALL, {}
        except BaseException:  # nobody wants the rest
            child.kill()
            raise
        finally:
            child.stdout.close()
            child.wait()
        if done < len(tasks):
            _refuse(opened, _ending(child.returncode, patience_s), refused)


def _start(work: tuple[Any, ...]) -> subprocess.Popen[bytes]:
    """A child at work. It imports nothing of the main program, which may be a script that starts an audit."""
    call = "from auditor.pipeline.isolation import work_apart; work_apart()"
    env = os.environ | {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
    child = subprocess.Popen([sys.executable, "-P", "-c", call], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
    assert child.stdin is not None
    with suppress(BrokenPipeError):  # it is dead already; that is seen when nothing comes from it
        pickle.dump(work, child.stdin, 5)
        child.stdin.close()
    return child


def _received(pipe: IO[bytes]) -> tuple[str, Any] | None:
    """What the child says next: a file's path as it opens it, or what its next task gave; None at its end."""
    try:
        message: tuple[str, Any] = pickle.load(pipe)
    except (EOFError, pickle.UnpicklingError):  # it ended, or died in the middle of a word
        return None
    return message


def _refuse(opened: str, ending: str, refused: dict[str, str]) -> None:
    """Refuse the file that was open at a death; all of them where that did not help."""
    if ALL in refused:
        raise RuntimeError(f"the process that reads ends ({ending}) whatever is left out")
    path = ALL if opened in refused or len(refused) >= MAX_REFUSED else opened
    refused[path] = KILLS + ending


def _ending(status: int, patience_s: float) -> str:
    """How a process ended, in words."""
    if status == -signal.SIGALRM:
        return f"takes more than {patience_s:.0f} s"
    return f"ends the process: {signal.Signals(-status).name if status < 0 else f'exit status {status}'}"


def work_apart() -> None:
    """The child: reads task after task. What was refused is refused to the first one, over which a child died."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing else may come between the words
    tasks, read, refused, patience_s = pickle.load(sys.stdin.buffer)

    def say(kind: str, content: object) -> None:
        pickle.dump((kind, content), out, 5)
        out.flush()

    for task in tasks:
        with gate.guarded(refused, lambda path: say("opens", path), patience_s):
            result = read(task)
        say("read", result)
        refused = {}
