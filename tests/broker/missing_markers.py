"""Committed transactions without their marker on real clusters, and ``auditor finish`` as an operator calls it."""

from __future__ import annotations

import io
import json
import shutil
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from auditor import cli
from auditor.model.transaction_states import partition_for
from tests.broker.as_printed import Operator, Row
from tests.broker.cluster import Cluster, Driver

OVERHEAD = struct.Struct(">qi")  # offset and size before each batch
TAIL = "00000000000000000000.log"
COORDINATORS = 3  # partitions of __transaction_state in these clusters


class Typing(io.StringIO):
    """A terminal whose user does something else before the first answer is typed."""

    def __init__(self, meanwhile: Callable[[], Any], *lines: str) -> None:
        super().__init__()
        self.meanwhile, self.lines = [meanwhile], list(lines)

    def isatty(self) -> bool:
        return True

    def readline(self, _: int = -1) -> str:
        for done in self.meanwhile:
            done()
        self.meanwhile = []
        return self.lines.pop(0) + "\n"


class Finisher:
    """Calls ``auditor finish`` for findings of a run; what it says, with its exit code."""

    def __init__(
        self, operator: Operator, run: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.operator, self.out, self.capsys, self.monkeypatch = operator, operator.folder / run, capsys, monkeypatch
        self.journals = 0

    def look(self, row: Row, *words: str, out: Path | None = None) -> tuple[int, str]:
        """Without writing."""
        self.capsys.readouterr()
        call = ["finish", row["fingerprint"][:12], "--out", str(out or self.out), "--bootstrap-server",
                self.operator.cluster.servers, *words]  # fmt: skip
        code = cli.main(call)
        return code, self.capsys.readouterr().out

    def write(self, row: Row) -> tuple[int, str, list[dict[str, Any]]]:
        """With ``--write`` and all that has to be confirmed; with the journal's lines."""
        self.journals += 1
        journal = self.operator.folder / f"journal-{self.journals}.jsonl"
        code, said = self.look(row, "--write", "--confirm", f"{row['topic']}-{row['partition']}",
                               "--application-stopped", "--journal", str(journal))  # fmt: skip
        lines = journal.read_text(encoding="utf-8").splitlines() if journal.exists() else []
        return code, said, [json.loads(line) for line in lines]

    def typed(self, row: Row, meanwhile: Callable[[], Any]) -> tuple[int, str, list[str]]:
        """With ``--write`` at a terminal, something happening between the two looks; the steps in the journal."""
        self.journals += 1
        journal = self.operator.folder / f"journal-{self.journals}.jsonl"
        name = f"{row['topic']}-{row['partition']}"
        self.monkeypatch.setattr(sys, "stdin", Typing(meanwhile, name, "stopped"))
        code, said = self.look(row, "--write", "--journal", str(journal))
        return code, said, [json.loads(line)["step"] for line in journal.read_text(encoding="utf-8").splitlines()]

    def edited(self, row: Row, change: Callable[[Row], Any]) -> tuple[int, str]:
        """A look with a run whose finding somebody changed."""
        edited = self.operator.folder / "edited"
        shutil.rmtree(edited, ignore_errors=True)
        shutil.copytree(self.out, edited)
        findings = edited / "findings.jsonl"
        rows = [json.loads(line) for line in findings.read_text(encoding="utf-8").splitlines()]
        for each in rows:
            if each["fingerprint"] == row["fingerprint"]:
                change(each)
        findings.write_text("".join(json.dumps(each) + "\n" for each in rows), encoding="utf-8")
        return self.look(row, out=edited)


def begun(run: Driver, name: str, topic: str, partition: int, records: int = 3) -> range:
    """A transaction of a new client with records in one partition; their offsets."""
    run(f"producer {name} transactional.id={name}")
    run(f"init {name}")
    return more(run, name, topic, partition, records)


def more(run: Driver, name: str, topic: str, partition: int, records: int = 3) -> range:
    """A further one of a client, open still."""
    run(f"begin {name}")
    first, last = map(int, run(f"send {name} {topic} {partition} {records} size=8").split())
    return range(first, last + 1)


def cut_last_batch(folder: Path) -> None:
    """Take the last batch from a replica's log, and all that its broker derives from it, while that is stopped."""
    data, at, last = (folder / TAIL).read_bytes(), 0, 0
    while at + OVERHEAD.size <= len(data):
        size = OVERHEAD.size + OVERHEAD.unpack_from(data, at)[1]
        if size == OVERHEAD.size:
            break
        at, last = at + size, at
    with (folder / TAIL).open("r+b") as log:
        log.truncate(last)
    for derived in (*folder.glob("*.snapshot"), *folder.glob("*index")):
        derived.unlink()


def flip_last_record(cluster: Cluster, run: Driver, name: str) -> int:
    """Flip a bit of the last record of a transactional id, in the replica that its coordinator reads; its partition."""
    partition = partition_for(name, COORDINATORS)
    leader = int(run(f"leader __transaction_state {partition}"))
    file = cluster.log_dir(leader) / f"__transaction_state-{partition}" / TAIL
    data = file.read_bytes()
    at = data.rindex(name.encode()) + len(name) + 20
    with file.open("r+b") as log:
        log.seek(at)
        log.write(bytes([data[at] ^ 1]))
    return partition
