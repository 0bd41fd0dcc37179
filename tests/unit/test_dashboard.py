"""``auditor dashboard``: kept runs over HTTP, to this machine only, and nothing but them."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pyarrow as pa
import pytest

from auditor import cli
from auditor.base.errors import AuditInputError
from auditor.commands import dashboard
from auditor.dashboards import overview
from auditor.outputs import runs
from auditor.outputs.runs import Shelf
from auditor.outputs.site import Site
from auditor.pipeline import summary as pipeline_summary
from auditor.rules.resolution.resolve import fingerprint
from tests.unit import report_samples as samples
from tests.unit.html_page import Page

SLASHED = "scheduled__2026-11-21T04:00:00+00:00/../x?y"


def publish(history: Path, run_id: str, findings: list[dict[str, Any]], report: bool = True) -> None:
    _, summary, opened, timelines = samples.hanging()
    rows = [
        row | {"fingerprint": fingerprint(row, "c"), "cluster_id": "c", "evidence": json.dumps(row["evidence"])}
        for row in findings
    ]
    kinds = {"open": opened, "timeline": timelines}
    kept = [{"kind": kind, "row": json.dumps(row)} for kind, found in kinds.items() for row in found]
    tables = {
        "findings": pa.Table.from_pylist(rows, schema=pipeline_summary.FINDINGS),
    }
    tables |= {"report": pa.Table.from_pylist(kept, schema=pipeline_summary.REPORT)} if report else {}
    counts = {name: sum(row["severity"] == name for row in findings) for name in ("critical", "error")}
    facts = {"as_of": summary["as_of"], "counts": counts, "batches": 1, "complete": True}
    runs.publish(history, run_id, tables, facts, summary)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("history")
    findings = samples.hanging()[0]
    publish(folder, "night-1", findings[:3], report=False)
    publish(folder, SLASHED, [*findings[1:], samples.finding(rule="torn-tail", topic="t", partition=0)])
    (folder / "secret.txt").write_text("secret")
    return folder


@pytest.fixture(scope="module")
def port(history: Path) -> Iterator[int]:
    with dashboard.serve(history, 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def get(port: int, path: str, host: str = "127.0.0.1", method: str = "GET") -> tuple[int, str, http.client.HTTPMessage]:
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    link.request(method, path, headers={"Host": f"{host}:{port}"})
    answer = link.getresponse()
    found = answer.status, answer.read().decode(), answer.headers
    link.close()
    return found


def test_the_latest_run_is_compared_with_the_one_before(port: int) -> None:
    status, source, headers = get(port, "/")
    page = Page(source)
    assert (status, page.faults) == (200, [])
    # Of hanging-36's four: three in the first run; the last three and one more in the second.
    assert "2 new findings, 1 resolved, 2 unchanged" in page.text
    gone = samples.hanging()[0][0]
    assert gone["message"] in page.text[page.text.index("Resolved") : page.text.index("Partitions worst")]
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_every_link_of_every_page_leads_to_a_page(port: int) -> None:
    """From the front on: cluster, runs, reports, and the five findings that any run has."""
    known, due = {"/"}, ["/"]
    while due:
        path = due.pop()
        status, source, _ = get(port, path)
        page = Page(source)
        assert (status, page.faults) == (200, []), path
        for link in {a["href"] or "" for a in page.all("a")}:
            address, _, anchor = urljoin(path, link).partition("#")
            if address not in known:
                known.add(address)
                due.append(address)
            if anchor and address != path:
                assert anchor in {a.get("id") for _, a in Page(get(port, address)[1]).elements}, (path, link)
    rooms = Counter(path.split("/")[1] for path in known if path.count("/") == 2)
    assert rooms == {"cluster": 1, "run": 2, "report": 2, "finding": 5}


def test_a_finding_has_a_page_that_says_since_when(port: int) -> None:
    """Of the first run alone, of both, and of the second alone."""
    first, both, _, second = samples.hanging()[0]
    pages = [Page(get(port, f"/finding/{fingerprint(row, 'c')}.html")[1]).text for row in (first, both, second)]
    said = [
        re.search(r"first seen (\S+) .* last seen (\S+) .* runs present in (.*?) since then", text) for text in pages
    ]
    assert [match and match.groups() for match in said] == [
        ("night-1", "night-1", "1 of 2 runs"), ("night-1", SLASHED, "2 of 2 runs"), (SLASHED, SLASHED, "1 of 1 run"),
    ]  # fmt: skip
    assert [("resolved" in text, "present in the latest run" in text) for text in pages] == [
        (True, False), (False, True), (False, True),
    ]  # fmt: skip
    assert f"Your transactional id {second['transactional_id']}" in pages[2]


def test_a_report_is_what_the_run_found(port: int) -> None:
    text = Page(get(port, "/" + overview.report(SLASHED))[1]).text
    for row in samples.hanging()[0][1:]:
        assert row["message"] in text
    assert "Timelines" in text
    assert "Timelines" not in Page(get(port, "/report/night-1.html")[1]).text


@pytest.mark.parametrize(
    "path",
    ["/run/none.html", "/report/none.html", "/report/", "/secret.txt", "/report/../secret.txt", "/report/%00%ff",
     "/finding/none.html", "/finding/", "/cluster/x.html"],
)  # fmt: skip
def test_nothing_else_is_served(port: int, path: str) -> None:
    status, text, headers = get(port, path)
    assert (status, text) == (404, "no such page or run\n")
    assert headers["Content-Type"].startswith("text/plain")


def test_a_page_of_another_site_is_not_answered(port: int) -> None:
    assert get(port, "/", host="evil.example")[0] == 421
    assert get(port, "/", host="localhost")[0] == 200
    assert get(port, "/", method="POST")[0] == 501


def test_a_run_that_cannot_be_read_is_reported_and_the_server_lives(tmp_path: Path) -> None:
    publish(tmp_path, "a", samples.hanging()[0])
    next(tmp_path.glob("*/findings/*.parquet")).unlink()
    with dashboard.serve(tmp_path, 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        answers = [get(server.server_port, path) for path in ("/", "/report/a.html", "/none")]
        server.shutdown()
        thread.join()
    assert [status for status, _, _ in answers] == [200, 500, 404]  # the front page says it of the run
    assert "publish it again" in answers[0][1]


def test_a_run_that_comes_while_it_serves_is_on_the_next_page(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    assert "No runs yet" in Site(shelf).front()
    publish(tmp_path, "a", [])
    assert "No runs yet" not in Site(shelf).front()
    assert "First run" in Site(shelf).front()
    publish(tmp_path, "a", samples.hanging()[0])
    assert "4 critical" in Site(shelf).front(), "a rerun replaces it"


def test_only_this_machine_is_listened_to(history: Path) -> None:
    with dashboard.serve(history, 0) as server:
        assert server.server_address[0] == "127.0.0.1"


def test_mistakes_are_reported_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["dashboard", str(tmp_path / "none")]) == 2
    assert "is not a directory" in capsys.readouterr().err
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(AuditInputError, match="--port"):
            dashboard.serve(tmp_path, taken.getsockname()[1])
    with pytest.raises(AuditInputError, match="--port"):
        dashboard.serve(tmp_path, 99_999)


@pytest.mark.parametrize(("host", "status"), [
    ("LocalHost", 200), ("LOCALHOST:1", 200), ("[::1]", 200), ("[::1]:8765", 200), ("127.0.0.1", 200), ("[::2]", 421),
    ("::1", 421), ("localhost.evil.example", 421), ("evil.example:80@localhost", 421), ("", 421),
])  # fmt: skip
def test_names_of_this_machine_are_answered_in_any_case(port: int, host: str, status: int) -> None:
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    link.request("GET", "/", headers={"Host": host})
    answer = link.getresponse()
    answer.read()
    assert (answer.status, "default-src 'none'" in answer.headers["Content-Security-Policy"]) == (status, True)
    assert "unsafe" not in answer.headers["Content-Security-Policy"]
    link.close()


def test_a_request_that_does_not_come_is_not_waited_for(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard._Handler, "timeout", 0.2)
    with dashboard.serve(history, 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        with socket.create_connection(("127.0.0.1", server.server_port), timeout=30) as link:
            link.sendall(b"GET / HTTP/1.1\r\nHost: loc")
            assert link.recv(1) == b""
        server.shutdown()
        thread.join()
