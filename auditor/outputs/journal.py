"""``watch.jsonl``: each finding once when it first holds and once more when it no longer does, across kills too.

The journal is only ever appended to, and what it says is the truth: the checkpoint beside it only spares reading all of
it again. Lines that a kill cut off are taken away, so that their findings are reported again, whole.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from auditor.base.at_rest import Fields, Values
from auditor.outputs.claim import write_whole

JOURNAL, CHECKPOINT = "watch.jsonl", "checkpoint.json"
FOUND, RESOLVED = "found", "resolved"
REPORTED_AGAIN = ("rule", "severity", "broker_id", "topic", "partition", "offset", "transactional_id", "group_id")

Open = dict[str, Fields]  # key of a finding -> what is reported again when it is resolved


def key_of(fingerprint: str, severity: str) -> str:
    """What makes a finding the same: a more severe one is reported again."""
    return f"{fingerprint}:{severity}"


def fingerprint_in(key: str) -> str:
    """The fingerprint of the finding that a key is of."""
    return key.rpartition(":")[0]


class Journal:
    """The journal under a folder, which the caller has to itself (:mod:`auditor.outputs.claim`).

    ``open`` are the findings that hold. It reads on from the checkpoint.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / JOURNAL
        self.open: Open = {}
        self.size = 0
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in (self.path, folder / CHECKPOINT):
            if path.is_symlink():  # whatever it leads to is not ours to write to
                path.unlink()
        self._recover()

    def _recover(self) -> None:
        """What was open at the last whole line."""
        size = self.path.stat().st_size if self.path.exists() else 0
        self.open, self.size = self._checkpoint(size)
        if not size:
            return
        with self.path.open("r+b") as f:
            f.seek(self.size)
            for line in f:
                if not line.endswith(b"\n"):
                    break
                self._apply(json.loads(line))
                self.size += len(line)
            f.truncate(self.size)

    def _checkpoint(self, size: int) -> tuple[Open, int]:
        """Nothing, where there is none, or it is not of this journal."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            stored = json.loads((self.folder / CHECKPOINT).read_text(encoding="utf-8"))
            if 0 <= stored["bytes"] <= size:
                return dict(stored["open"]), int(stored["bytes"])
        return {}, 0

    def _apply(self, line: Values) -> None:
        if line["event"] == FOUND:
            self.open[line["key"]] = {name: line[name] for name in REPORTED_AGAIN}
        else:
            self.open.pop(line["key"], None)

    def update(self, at: str, holding: Mapping[str, Values]) -> list[Fields]:
        """Reports what is new and what is gone. ``at``: the time, ISO-8601; ``holding``: all that hold now, by key."""
        lines = [{"event": FOUND, "at": at, "key": key, **row} for key, row in holding.items() if key not in self.open]
        lines += [
            {"event": RESOLVED, "at": at, "key": key, **row} for key, row in self.open.items() if key not in holding
        ]
        if lines:
            self._append(lines)
        return lines

    def _append(self, lines: Iterable[Fields]) -> None:
        data = b""
        for line in lines:
            data += json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"
            self._apply(line)
        with self.path.open("ab") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        self.size += len(data)
        state = {"bytes": self.size, "open": self.open}
        write_whole(self.folder / CHECKPOINT, json.dumps(state, ensure_ascii=False, sort_keys=True) + "\n")
