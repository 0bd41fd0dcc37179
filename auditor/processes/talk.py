"""What a pool, its starter and its workers have in common: messages over a socket, and the note of what is read."""

from __future__ import annotations

import mmap
import pickle
import socket
import struct
from typing import Any

from auditor.connectors.stores.storage import ALL

FORK, WAIT, NUMBER = b"f", b"w", struct.Struct("<q")  # what the starter is asked: another worker, and how one ended
Opened = tuple[int, str]  # the number of a task, and the file that it opened last


class Line:
    """Whole messages over a socket, nothing kept back, so that what is waiting can be asked of the system."""

    def __init__(self, pipe: socket.socket) -> None:
        self.pipe = pipe

    def say(self, message: object) -> None:
        """Sends anything that can be pickled. Errors: OSError where nobody listens."""
        data = pickle.dumps(message, 5)
        self.pipe.sendall(NUMBER.pack(len(data)))
        self.pipe.sendall(data)

    def hear(self) -> Any:
        """The next message. Errors: EOFError where the other side ended, be it in the middle of a word."""
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
    """What a worker is at, in memory that it has in common with the starter, who looks at it after a death.

    A worker may end in the middle of a note: it is written beside the one before, and counts when it is whole.
    """

    ROOM = 1 << 16

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 1 + 2 * self.ROOM)
        self.write(-1, ALL)

    def write(self, task: int, path: str) -> None:
        """A task (-1: none) opens a file. Cost: 1 us."""
        note = pickle.dumps((task, path), 5)
        if len(note) > self.ROOM:  # longer than any path that can be opened
            note = pickle.dumps((task, ALL), 5)
        other = 1 - self._memory[0]
        at = 1 + other * self.ROOM
        self._memory[at : at + len(note)] = note
        self._memory[0] = other

    def read(self) -> Opened:
        """What was noted last."""
        at = 1 + self._memory[0] * self.ROOM
        found: Opened = pickle.loads(self._memory[at : at + self.ROOM])
        return found
