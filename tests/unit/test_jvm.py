"""The archive of the JVM's classes: made once, used where it fits, missed by nobody where it is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from auditor.spark import session

WRITES = ("-c", f"import os, pathlib; pathlib.Path(os.environ[{session.ARCHIVE!r}]).write_text('classes')")


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file that stands for a Java, and an environment of its own to keep archives in."""
    monkeypatch.setattr(session, "KEPT", tmp_path / "venv" / "share" / "kafka-log-auditor")
    (tmp_path / "java").write_text("17")
    return str(tmp_path / "java")


def test_an_archive_is_named_in_the_options_once_it_is_there(java: str) -> None:
    assert "Archive" not in session.options(java)
    kept = session.make_archive(java, WRITES)
    assert kept is not None
    assert kept.read_text() == "classes"
    assert f'"-XX:SharedArchiveFile={kept}"' in session.options(java)
    assert [path.name for path in kept.parent.iterdir()] == [kept.name]


def test_it_is_made_once(java: str) -> None:
    assert session.make_archive(java, WRITES) == session.make_archive(java, ("-c", "raise AssertionError"))


def test_another_java_has_another(java: str, tmp_path: Path) -> None:
    session.make_archive(java, WRITES)
    (tmp_path / "other").write_text("21")
    assert "Archive" not in session.options(str(tmp_path / "other"))
    os.utime(java, (1, 1))  # as an upgrade in place
    assert "Archive" not in session.options(java)
    assert "Archive" not in session.options(None)


def test_where_none_can_be_made_nothing_is_left(java: str, tmp_path: Path) -> None:
    assert session.make_archive(java, ("-c", "pass")) is None
    assert not session.archive(java).exists()
    (tmp_path / "venv" / "share" / "kafka-log-auditor").rmdir()
    (tmp_path / "venv" / "share").rmdir()
    (tmp_path / "venv" / "share").write_text("a file where a folder should be")
    assert session.make_archive(java, WRITES) is None


def test_the_one_that_makes_it_does_not_use_it(java: str, monkeypatch: pytest.MonkeyPatch) -> None:
    session.make_archive(java, WRITES)
    monkeypatch.setenv(session.ARCHIVE, "new.part")
    assert "SharedArchiveFile" not in session.options(java)
    assert '"-XX:ArchiveClassesAtExit=new.part"' in session.options(java)


def test_the_settings_of_the_logging_are_where_the_options_say() -> None:
    (option,) = [word.strip('"') for word in session.options(None).split() if "log4j2" in word]
    assert Path(option.partition("=file://")[2]).is_file()


@pytest.mark.parametrize(
    ("machine", "size", "heap"),
    [
        (0, 0, 1 << 30),
        (24 << 30, 10 << 20, (1 << 30) + (40 << 20)),
        (24 << 30, 377 << 20, (1 << 30) + (1508 << 20)),
        (24 << 30, 1 << 40, 6 << 30),
        (2 << 30, 1 << 40, 1 << 30),
        (1 << 40, 1 << 40, 31 << 30),
    ],
)
def test_the_heap_is_chosen_by_machine_and_input(machine: int, size: int, heap: int) -> None:
    assert session.heap_bytes(machine, size) == heap


def test_spark_is_that_of_the_package_whatever_lies_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyspark itself takes a Spark that lies in the directory above the working directory."""
    from pyspark.find_spark_home import _find_spark_home

    (tmp_path / "bin").mkdir()
    (tmp_path / "jars").mkdir()
    (tmp_path / "bin" / "spark-submit").write_text("")
    (tmp_path / "in").mkdir()
    monkeypatch.delenv("SPARK_HOME", raising=False)
    installed = _find_spark_home()
    monkeypatch.chdir(tmp_path / "in")
    assert _find_spark_home() == str(tmp_path)
    assert session.spark_home() == installed


def test_only_what_is_started_within_gets_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TO_STAY", "mine")
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.delenv("NEW", raising=False)
    before = dict(os.environ)
    with session._environment(TO_STAY="ours", EMPTY="ours", NEW="ours", NONE=None):
        assert [os.environ.get(name) for name in ("TO_STAY", "EMPTY", "NEW", "NONE")] == ["mine", "ours", "ours", None]
    assert dict(os.environ) == before
