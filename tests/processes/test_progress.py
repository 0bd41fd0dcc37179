"""How far the reading is, and what of the JVM's words is passed on."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from auditor.inline.inline_runner import ReadSoFar
from auditor.spark import jvm_words


def test_a_file_is_read_when_the_next_is_opened() -> None:
    said: list[float] = []
    read = ReadSoFar([{"0.log": 60, "0.index": 20}, {"5.log": 120}], said.append)
    for path in ("/d/t-0/0.log", "/d/t-0/0.log", "/d/t-0/0.index"):
        read.opens(0, path)
    read.opens(1, "/d/t-1/5.log")
    read.ends(0)
    read.ends(1)
    assert said == [0.0, 0.3, 0.3, 0.4, 1.0]


def test_nothing_to_read_is_no_part() -> None:
    read = ReadSoFar([{}], pytest.fail)
    read.ends(0)


def test_one_line_of_the_jvm_is_dropped_and_no_other(capfd: pytest.CaptureFixture[str]) -> None:
    line = jvm_words.DROPPED.decode()
    words = f"first\n{line}\nWARNING: Using incubator modules: jdk.other\nsaid: {line}\nError: no end"
    with jvm_words.filtered():
        child = subprocess.Popen([sys.executable, "-c", f"import sys; sys.stderr.write({words!r})"])
    child.wait()
    for thread in threading.enumerate():
        if thread.name == "words of the JVM":
            thread.join(10)
    sys.stderr.write("\nafter\n")
    assert capfd.readouterr().err == words.replace(f"\n{line}\nW", "\nW") + "\nafter\n"


def test_the_last_words_of_a_jvm_that_does_not_start_are_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    def start() -> None:
        with jvm_words.filtered():
            subprocess.run([sys.executable, "-c", "import sys; sys.exit('Error: no such option')"], check=True)

    with pytest.raises(subprocess.CalledProcessError):
        start()
    assert capfd.readouterr().err == "Error: no such option\n"
