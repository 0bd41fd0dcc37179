"""A store that delays, refuses and breaks off: what it holds is read all the same, or named with the store's code."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import corpora, failing_store, small_tasks, store
from tests.failing_store import BREAKS_OFF, ENDLESS, HTML, SHRUNK, TIMES_OUT, TOO_SHORT, FailingStore, Fault

NAME = "replicas-41"
OFTEN = ("SlowDown", "InternalError", "ExpiredToken", BREAKS_OFF, TOO_SHORT)
MASTERS = ["inline[2]", pytest.param("local[2]", marks=pytest.mark.spark)]


@pytest.fixture
def s3() -> Iterator[FailingStore]:
    with failing_store.failing(copies=corpora.unpack(NAME)) as server:
        yield server


def command(server: FailingStore, folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """What the command does in a folder. ``more``: variables of its environment."""
    python_path = small_tasks.impatient_python_path(folder)
    environment = store.clean_environment(server.environment()) | {"PYTHONPATH": python_path} | more
    call = [sys.executable, "-m", "auditor.cli", *words]
    return subprocess.run(call, capture_output=True, text=True, env=environment, check=False, cwd=folder)


def audited(path: str, out: Path, master: str, server: FailingStore, patience: float = 5.0, *more: str) -> int:
    """The exit status of an audit by the command, whose results are in ``out``."""
    words = ["audit", path, "--out", str(out), "--master", master, "--records"]
    words += ["--as-of", str(corpora.manifest(NAME)["copied_at"]), *more]
    ran = command(server, out.parent, *words, AUDITOR_STORE_PATIENCE=str(patience))
    assert ran.returncode in (0, 1, 3), ran.stderr
    return ran.returncode


def a_segment() -> str:
    """The longest of the corpus, by its key."""
    folder = corpora.unpack(NAME)
    longest = max(
        (p for p in folder.rglob("*.log") if not p.parent.name.startswith("__")), key=lambda p: p.stat().st_size
    )
    return longest.relative_to(folder).as_posix()


def local(tmp_path: Path, server: FailingStore) -> tuple[int, bytes]:
    status = audited(str(corpora.unpack(NAME)), tmp_path / "local", "inline[2]", server)
    return status, (tmp_path / "local" / "findings.jsonl").read_bytes()


@pytest.mark.parametrize("master", MASTERS)
def test_a_fifth_of_all_requests_fails_and_the_findings_are_the_same(
    s3: FailingStore, tmp_path: Path, master: str
) -> None:
    """At random: throttled, failed, expired, broken off, said to be whole, and now and then without any answer."""
    of_each = 0.04
    s3.manner.faults = [Fault(what, share=of_each) for what in OFTEN]
    s3.manner.faults.append(Fault(TIMES_OUT, count=2, share=of_each))
    status = audited("s3://copies", tmp_path / "s3", master, s3, 300.0)
    found = (tmp_path / "s3" / "findings.jsonl").read_bytes()
    failed = sum(request.what != "" for request in s3.log)
    assert 0.1 < failed / len(s3.log) < 0.3
    assert (status, found) == local(tmp_path, s3)
    assert found


@pytest.mark.parametrize("master", MASTERS)
def test_a_token_that_expires_and_is_renewed_leaves_no_hole(s3: FailingStore, tmp_path: Path, master: str) -> None:
    """Longer than one attempt is patient: the work is done again."""
    s3.manner.faults = [Fault("ExpiredToken", a_segment(), "GET", 9)]
    status = audited("s3://copies", tmp_path / "s3", master, s3, 0.5)
    assert (status, (tmp_path / "s3" / "findings.jsonl").read_bytes()) == local(tmp_path, s3)


@pytest.mark.parametrize("master", MASTERS)
@pytest.mark.parametrize("code", ["ExpiredToken", "AccessDenied"])
def test_what_a_store_goes_on_refusing_is_a_row_with_its_code(
    s3: FailingStore, tmp_path: Path, master: str, code: str
) -> None:
    """Four times, where it says nothing of the file; once, where it is denied by name. All else is audited."""
    segment = a_segment()
    s3.manner.faults = [Fault(code, segment, "GET")]
    assert audited("s3://copies", tmp_path / "s3", master, s3, 0.3) == 3
    summary = json.loads((tmp_path / "s3" / "summary.json").read_bytes())
    unread = [e for e in summary["unreadable"] if segment.endswith(e["file"])]
    assert [(e["reason"], code in e["detail"]) for e in unread] == [("unreadable", True)]
    asked = sum(request.what == code for request in s3.log)
    assert asked >= 4 if code == "ExpiredToken" else asked <= 2


@pytest.mark.parametrize("master", MASTERS)
def test_the_tables_of_a_query_are_those_that_were_listed_once(s3: FailingStore, tmp_path: Path, master: str) -> None:
    counts = ", ".join(
        f"(SELECT count(*) FROM {name}) AS {name}" for name in ("batches", "checkpoints", "index_entries", "findings")
    )
    text = f"SELECT {counts}"
    ran = command(s3, tmp_path, "sql", text, "s3://copies", "--master", master, "--format", "json")
    assert ran.returncode == 0, ran.stderr
    rows = json.loads(ran.stdout)
    assert all(rows[name] for name in ("batches", "checkpoints", "index_entries"))
    lists = Counter(request.key for request in s3.log if request.method == "LIST")
    brokers = {f"{path.name}/" for path in corpora.unpack(NAME).iterdir() if path.is_dir()}
    assert lists.keys() == {"", *brokers}
    assert max(lists[broker] for broker in brokers) <= 2  # for its folders, and for all below it
    assert max(Counter(r.key for r in s3.log if r.key.endswith("meta.properties") and r.method == "GET").values()) <= 3


WRONG = {  # what is wrong, how the store refuses it, and what pyarrow calls that
    "password": ({"AWS_SECRET_ACCESS_KEY": "wrong"}, "SignatureDoesNotMatch", "SIGNATURE_DOES_NOT_MATCH"),
    "token": ({"AWS_SESSION_TOKEN": "old"}, "ExpiredToken", "ExpiredToken"),
    "user": ({"AWS_ACCESS_KEY_ID": "nobody"}, "InvalidAccessKeyId", "INVALID_ACCESS_KEY_ID"),
    "endpoint": ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "", "NETWORK_CONNECTION"),
    "name of an endpoint": ({"AWS_ENDPOINT_URL": "http://nowhere.invalid"}, "", "NETWORK_CONNECTION"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_with_a_call_is_one_sentence_with_the_stores_code(
    s3: FailingStore, tmp_path: Path, wrong: str
) -> None:
    """Before a JVM starts."""
    given, refusal, code = WRONG[wrong]
    if refusal:
        s3.manner.faults = [Fault(refusal)]
    ran = command(s3, tmp_path, "audit", "s3://copies", "--out", str(tmp_path / "out"), "--master", "local[2]", **given)
    assert ran.returncode == 2
    (line,) = ran.stderr.splitlines()
    assert line.startswith("auditor: s3://copies: ")
    assert f"the store says {code}" in line
    assert not any(secret in line for secret in (*given.values(), s3.environment()["AWS_SECRET_ACCESS_KEY"]))


@pytest.mark.parametrize(("what", "says"), [(SHRUNK, "less of it than it listed"), (HTML, "an HTML page")])
def test_a_store_that_lies_about_a_segment_is_named(s3: FailingStore, tmp_path: Path, what: str, says: str) -> None:
    """It is not read, and nothing is concluded from that."""
    s3.manner.faults = [Fault(what, a_segment(), "GET"), Fault(what, a_segment(), "HEAD")]
    assert audited("s3://copies", tmp_path / "s3", "inline[1]", s3) == 3
    summary = json.loads((tmp_path / "s3" / "summary.json").read_text())
    (unread,) = [error for error in summary["unreadable"] if error["file"] in a_segment()]
    assert (unread["reason"], says in unread["detail"]) == ("unreadable", True)
    found = [json.loads(line) for line in (tmp_path / "s3" / "findings.jsonl").read_text().splitlines()]
    assert [f for f in found if f["severity"] != "info"] == []


def test_a_page_in_place_of_a_listing_is_named(s3: FailingStore, tmp_path: Path) -> None:
    s3.manner.faults = [Fault(HTML, "", "LIST")]
    ran = command(s3, tmp_path, "audit", "s3://copies", "--out", "out", "--master", "inline[1]")
    assert ran.returncode == 2
    assert "may point to a web page, not to a store" in ran.stderr


def test_a_listing_without_an_end_ends(s3: FailingStore, tmp_path: Path) -> None:
    s3.manner.faults = [Fault(ENDLESS, "", "LIST")]
    ran = command(s3, tmp_path, "audit", "s3://copies", "--out", "out", "--master", "inline[1]")
    assert ran.returncode == 2
    assert "s3://copies: the listing did not end within 2 s" in ran.stderr
    assert len(ran.stderr.splitlines()) == 1
