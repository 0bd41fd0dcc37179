"""How far the reading is, and what of the JVM's words is passed on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from auditor import running
from auditor.connectors.stores import storage
from auditor.inline import ReadSoFar
from auditor.processes.isolation import Pool
from auditor.processes.worker import REPORT_EVERY_S
from auditor.spark import session


def test_a_file_is_read_when_the_next_is_opened() -> None:
    said: list[float] = []
    read = ReadSoFar([{"/d/t-0/0.log": 60, "/d/t-0/0.index": 20}, {"/d/t-1/5.log": 120}].__getitem__, 200, said.append)
    for path in ("/d/t-0/0.log", "/d/t-0/0.log", "/d/t-0/0.index"):
        read.opens(0, path)
    read.opens(1, "/d/t-1/5.log")
    read.ends(0)
    read.ends(1)
    assert said == [0.0, 0.3, 0.3, 0.4, 1.0]


def test_a_log_gets_a_line_a_minute_and_a_terminal_all(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = iter([0, 0, 59, 60, 60, 119, 120, 120, 0, 0, 0, 0])  # each line asks twice
    monkeypatch.setattr(running.time, "monotonic", lambda: next(seconds))
    log = running.Progress(silent=False, is_terminal=False)
    for text in ("starts", "59", "60", "119", "120"):
        log.say(text)
    log.done()
    assert capsys.readouterr().err == "auditor: 60\nauditor: 120\n"
    terminal = running.Progress(silent=False, is_terminal=True)
    terminal.say("starts")
    terminal.done()
    assert "starts" in capsys.readouterr().err
    running.Progress(silent=True, is_terminal=False).say("nothing")
    assert capsys.readouterr().err == ""


def test_nothing_to_read_is_no_part() -> None:
    read = ReadSoFar(lambda _: {}, 0, pytest.fail)
    read.ends(0)


def read_slowly(task: tuple[int, str]) -> None:
    """Opens four files so slowly that each is heard of, and dies once at the last."""
    number, once = task
    for k in range(4):
        storage.closed(f"/d/t-{number}/{k}.log")
        time.sleep(1.1 * REPORT_EVERY_S)
    if once and not Path(once).exists():
        Path(once).touch()
        os.kill(os.getpid(), signal.SIGKILL)


def test_what_is_read_again_after_a_death_counts_once(tmp_path: Path) -> None:
    """The task begins again: its files are opened a second time, but the part that is read never falls."""
    said: list[float] = []
    read = ReadSoFar(lambda number: {f"/d/t-{number}/{k}.log": 10 for k in range(4)}, 80, said.append)
    tasks = [(0, str(tmp_path / "once")), (1, "")]
    with Pool(1) as pool:
        for number, _ in pool.map(tasks, read_slowly, opens=read.opens):
            read.ends(number)
    assert (tmp_path / "once").exists()
    assert said == sorted(said)
    assert said[-1] == 1.0
    assert 0.5 in said
    assert {part for part in said if 0 < part < 0.5}


def test_one_line_of_the_jvm_is_dropped_and_no_other(capfd: pytest.CaptureFixture[str]) -> None:
    line = session.DROPPED.decode()
    words = f"first\n{line}\nWARNING: Using incubator modules: jdk.other\nsaid: {line}\nError: no end"
    with session.filtered():
        child = subprocess.Popen([sys.executable, "-c", f"import sys; sys.stderr.write({words!r})"])
    child.wait()
    for thread in threading.enumerate():
        if thread.name == "words of the JVM":
            thread.join(10)
    sys.stderr.write("\nafter\n")
    assert capfd.readouterr().err == words.replace(f"\n{line}\nW", "\nW") + "\nafter\n"


def test_the_last_words_of_a_jvm_that_does_not_start_are_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    def start() -> None:
        with session.filtered():
            subprocess.run([sys.executable, "-c", "import sys; sys.exit('Error: no such option')"], check=True)

    with pytest.raises(subprocess.CalledProcessError):
        start()
    assert capfd.readouterr().err == "Error: no such option\n"
