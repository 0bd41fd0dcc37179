"""Alerts, against an HTTP server of our own: what is posted, when again, and what a failure leaves."""

from __future__ import annotations

import json
import shutil
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from auditor import cli
from auditor.base.errors import AuditInputError
from auditor.base.user_input import ClusterName
from auditor.commands import arguments
from auditor.commands.watch import LookedAt, Watch
from auditor.outputs import alerts, runs
from auditor.outputs import alerts as messages
from auditor.outputs.alerts import AlertOptions, News
from auditor.outputs.printing import RESOLVED, Journal
from auditor.pipeline import summary
from auditor.pipeline.options import AuditOptions
from auditor.rules.seen.view import Finding
from tests import corpora
from tests.facts import here, opened


class Receiver(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.posts: list[Any] = []
        self.answers: list[int] = []
        self.tokens: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook/secret"


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert self.headers["Content-Type"] == "application/json"
        self.server.tokens.append(self.headers["Authorization"])
        self.server.posts.append(json.loads(body))
        self.send_response(self.server.answers.pop(0) if self.server.answers else 200)
        self.send_header("Retry-After", "7")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setattr(alerts, "PAUSE_S", 0.0)
    monkeypatch.setattr(alerts, "MAX_PAUSE_S", 0.0)
    monkeypatch.setenv("AUDITOR_SLACK_WEBHOOK", server.url)
    monkeypatch.setenv("AUDITOR_PAGERDUTY_KEY", "key")
    monkeypatch.setenv("AUDITOR_PAGERDUTY_URL", server.url)
    monkeypatch.setenv("AUDITOR_WEBHOOK", server.url)
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def row(number: int = 0, **fields: Any) -> dict[str, Any]:
    given = {"topic": "t", "partition": 3, "offset": number, "message": "m", **fields}
    return Finding("sequence-gap", "error", **given).to_dict() | {"fingerprint": f"f{number}", "cluster_id": "c"}


def reported(new: int = 0, gone: int = 0, still: int = 0) -> News:
    rows = [row(n) for n in range(new + gone + still)]
    return News(rows[:new], rows[new : new + gone], rows[new + gone :], "2026-11-21T04:00:00.000Z")


def test_pagerduty_gets_an_alert_a_finding_under_its_fingerprint(receiver: Receiver) -> None:
    assert alerts.send(reported(1, 1, 1), ["pagerduty"]) == []
    shown = [(post["event_action"], post["dedup_key"], post["routing_key"]) for post in receiver.posts]
    assert shown == [("trigger", "f0", "key"), ("trigger", "f2", "key"), ("resolve", "f1", "key")]
    payload = receiver.posts[0]["payload"]
    assert (payload["summary"], payload["severity"], payload["source"]) == (
        "c: sequence-gap: m", "error", "c/t-3 at offset 0",
    )  # fmt: skip


def test_pagerduty_is_not_flooded(receiver: Receiver) -> None:
    assert alerts.send(reported(new=messages.MAX_EVENTS + 7), ["pagerduty"]) == []
    assert len(receiver.posts) == messages.MAX_EVENTS + 1
    assert receiver.posts[-1]["payload"]["summary"] == "7 more findings, the first: c: sequence-gap: m"


def test_every_alert_that_pagerduty_has_open_ends(receiver: Receiver) -> None:
    """That of findings beyond the most, too: an alert nobody resolves stays open for ever."""
    there = [row(n) for n in range(messages.MAX_EVENTS + 7)]
    alerts.send(News(there, (), (), None), ["pagerduty"])
    alerts.send(News((), there[:50], there[50:], None), ["pagerduty"])
    alerts.send(News((), there[50:], (), None), ["pagerduty"])
    open_now = set()
    for post in receiver.posts:
        (open_now.add if post["event_action"] == "trigger" else open_now.discard)(post["dedup_key"])
    assert open_now == set()
    told = [post["dedup_key"] for post in receiver.posts if post["event_action"] == "trigger"]
    assert {row["fingerprint"] for row in there} <= set(told), "the second run has room for the rest"


def test_slack_gets_one_message_of_blocks(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUDITOR_REPORT_URL", "https://reports.example/1")
    assert alerts.send(reported(new=12, gone=1), ["slack"]) == []
    (message,) = receiver.posts
    assert message["text"] == "Kafka audit: 12 new findings, 1 resolved, 0 unchanged"
    assert [block["type"] for block in message["blocks"]] == ["header", *["section"] * 11, "context"]
    link = "<https://reports.example/1#f0|report>"
    assert message["blocks"][1]["text"]["text"] == f"*error* `sequence-gap` t-3 at offset 0 in c · {link}\nm"
    assert message["blocks"][-2]["text"]["text"] == "Resolved:\n`sequence-gap` t-3 at offset 12 in c"
    assert message["blocks"][-1]["elements"][0]["text"].startswith(
        "2 more · evaluated at 2026-11-21T04:00:00.000Z · <https:"
    )


def test_names_from_the_input_make_no_mentions(receiver: Receiver) -> None:
    alerts.send(News([row(topic="<!channel>&", message="x" * 5000)], [], [], None), ["slack"])
    text = receiver.posts[0]["blocks"][1]["text"]["text"]
    assert "&lt;!channel&gt;&amp;-3" in text
    assert len(text) < 3000, "Slack takes no more in a section"


def test_slack_says_what_to_do_and_cuts_no_command(receiver: Receiver) -> None:
    """Half a command is another command."""
    abort = "kafka-transactions.sh --bootstrap-server B abort --topic t --partition 3 --start-offset 71"
    short, long = f"Confirm first ; then: {abort} . It loses <1> record", f"{'x' * 2880}. {abort}"
    rows = [row() | {"remedy": short}, row(1) | {"remedy": long}]
    alerts.send(News(rows, (), (), None), ["slack"])
    said = [block["text"]["text"] for block in receiver.posts[0]["blocks"] if block["type"] == "section"]
    assert f"\n```{abort}```\n" in said[1]
    assert "It loses &lt;1&gt; record" in said[1]
    assert abort not in said[3]
    assert "kafka-" not in said[3]
    assert said[3].endswith("more: `auditor explain f1`")
    assert max(map(len, said)) <= 3000


def test_nothing_new_is_not_sent(receiver: Receiver) -> None:
    assert alerts.send(reported(still=2), ["slack"]) == []
    assert not receiver.posts


@pytest.mark.parametrize(
    ("answers", "posts", "failed"), [([429, 503], 3, False), ([400], 1, True), ([500] * 3, 3, True)]
)
def test_a_busy_receiver_is_asked_again(receiver: Receiver, answers: list[int], posts: int, failed: bool) -> None:
    receiver.answers = answers
    said = alerts.send(reported(new=1), ["slack"])
    assert len(receiver.posts) == posts
    assert bool(said) is failed
    assert "secret" not in str(said)


def test_nobody_there_and_an_address_that_is_none(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUDITOR_SLACK_WEBHOOK", "http://127.0.0.1:1/")
    assert alerts.send(reported(new=1), ["slack"])[0].startswith("alert to slack failed: ")
    monkeypatch.setenv("AUDITOR_SLACK_WEBHOOK", "file:///etc/passwd")
    assert alerts.send(reported(new=1), ["slack", "pagerduty"]) == [
        "alert to slack failed: its address is not an http or https URL"
    ]
    assert len(receiver.posts) == 1, "the other channel gets it all the same"


def test_a_secret_that_is_missing_ends_the_call_before_the_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("AUDITOR_PAGERDUTY_KEY", raising=False)
    with pytest.raises(AuditInputError, match="AUDITOR_PAGERDUTY_KEY"):
        alerts.check(AlertOptions(["pagerduty"]))
    assert cli.main(["audit", ".", "--out", "none", "--alert", "pagerduty"]) == 2
    assert "AUDITOR_PAGERDUTY_KEY" in capsys.readouterr().err


@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1:none/secret",
        "http://127.0.0.1:80/a secret",
        "http://[secret/",
        "https:///secret",
        "http://h\u00f6st/secret",
    ],
)
def test_an_address_that_is_none_is_said_before_the_work_and_never_printed(
    address: str, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUDITOR_SLACK_WEBHOOK", address)
    with pytest.raises(AuditInputError, match="AUDITOR_SLACK_WEBHOOK") as raised:
        alerts.check(AlertOptions(["slack"]))
    assert "secret" not in str(raised.value)
    (line,) = alerts.send(reported(new=1), ["slack", "pagerduty"])
    assert line.startswith("alert to slack failed: its address ")
    assert "secret" not in line
    assert len(receiver.posts) == 1, "the other channel gets it all the same"


@pytest.mark.parametrize("answer", [b"garbage\r\n\r\n", b"HTTP/1.1 2000 x\r\n\r\n", b""])
def test_a_server_that_does_not_speak_http(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerts, "PAUSE_S", 0.0)
    monkeypatch.setattr(alerts, "MAX_PAUSE_S", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("AUDITOR_SLACK_WEBHOOK", f"http://127.0.0.1:{server.getsockname()[1]}/secret")

        def serve() -> None:
            for _ in range(alerts.ATTEMPTS):
                connection, _ = server.accept()
                with connection, connection.makefile("rb") as request:
                    size = 0
                    while (header := request.readline()).strip():
                        name, _, value = header.partition(b":")
                        size = int(value) if name.lower() == b"content-length" else size
                    request.read(size)  # what is left unread would break the connection before the answer is there
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        (line,) = alerts.send(reported(new=1), ["slack"])
        thread.join(timeout=60)
    assert not thread.is_alive(), "it was tried as often as it should"
    assert line == "alert to slack failed: invalid HTTP response"


def test_a_connection_that_breaks_off_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the answer, with the request unread: the kernel then resets it."""
    monkeypatch.setattr(alerts, "PAUSE_S", 0.0)
    monkeypatch.setattr(alerts, "MAX_PAUSE_S", 0.0)
    tried: list[int] = []

    def broken(*_: object, **__: object) -> None:
        tried.append(1)
        raise ConnectionResetError(104, "Connection reset by peer")

    monkeypatch.setattr(alerts.urllib.request.OpenerDirector, "open", broken)
    monkeypatch.setenv("AUDITOR_SLACK_WEBHOOK", "http://127.0.0.1:9/secret")
    (line,) = alerts.send(reported(new=1), ["slack"])
    assert len(tried) == alerts.ATTEMPTS
    assert line.startswith("alert to slack failed: ")
    assert "secret" not in line


def call_of(command: str, folder: Path, out: Path) -> list[str]:
    as_of = str(corpora.manifest("hanging-36")["copied_at"])
    words = [command, str(folder), "--out", str(out), "--as-of", as_of, "--quiet", "--master", "inline[1]"]
    return [*words, "--alert", "pagerduty", "--alert", "slack", "--alert-on", "critical", "--fail-on", "never"]


def test_a_watch_sends_each_finding_once(receiver: Receiver, tmp_path: Path) -> None:
    """Four hanging transactions, seen at several looks, and after a restart."""
    call = [*call_of("watch", corpora.unpack("hanging-36"), tmp_path), "--interval", "0.1", "--until-idle", "0.3"]
    assert cli.main(call) == 0
    sent = [post["event_action"] for post in receiver.posts if "event_action" in post]
    assert sent == ["trigger"] * 4
    assert [post["text"] for post in receiver.posts if "text" in post] == [
        "Kafka audit: 4 new findings, 0 resolved, 0 unchanged"
    ]
    assert cli.main(call) == 0
    assert len(receiver.posts) == 5, "a restart reports nothing again"


def test_what_one_look_brought_is_the_news(receiver: Receiver) -> None:
    """A finding that goes is resolved under its fingerprint; one that only changes its severity is not gone."""
    audit = opened(corpora.unpack("unknown-producer-41"))
    held = row(2)
    lines = [
        {"event": "found", "key": "f1:error", **row(1)},
        {"event": "resolved", "key": "f3:error", "severity": "error", "topic": "t", "partition": 3, "offset": 3},
        {"event": "resolved", "key": "f2:critical", "severity": "critical", "topic": "t", "partition": 3, "offset": 2},
    ]
    news = alerts.news_of_watch(lines, {"f1:error": row(1), "f2:error": held}, audit, AlertOptions())
    assert alerts.send(news, ["pagerduty"], again=False) == []
    assert [(p["event_action"], p["dedup_key"]) for p in receiver.posts] == [("trigger", "f1"), ("resolve", "f3")]


@pytest.fixture(scope="module")
def held() -> News:
    """The four of hanging-36, as an audit at the time of the copy finds them, with a name and pages."""
    folder, as_of = corpora.unpack("hanging-36"), corpora.manifest("hanging-36")["copied_at"]
    audit = opened(folder, as_of=as_of, cluster_name="prod-eu")
    return alerts.news(audit, AlertOptions(least="critical", pages="https://audits.example/kafka/"))


def test_a_block_says_who_since_when_what_is_safe_and_where_to_read_on(held: News, receiver: Receiver) -> None:
    """``bank-zombie``: three records at offsets 0 to 2 of bank.audit-2, as the corpus was made."""
    assert alerts.send(held, ["slack", "pagerduty", "webhook"]) == []
    of_slack, of_webhook = receiver.posts[0], receiver.posts[-1]
    events = [post for post in receiver.posts if "event_action" in post]
    row = next(each for each in held.new if each["transactional_id"] == "bank-zombie")
    link = f"https://audits.example/kafka/finding/{row['fingerprint']}.html"
    text = "\n".join(b["text"]["text"] for b in of_slack["blocks"] if b["type"] == "section")
    assert of_slack["text"] == "Kafka audit of prod-eu: 4 new findings, 0 resolved, 0 unchanged"
    assert f"in prod-eu · <{link}|finding>" in text
    assert "bank.audit-2 has been blocked for " in text
    assert ", by bank-zombie (producer id 5, epoch 0); LSO lag 3 offsets. *Safe to abort*" in text
    event = next(each for each in events if each["dedup_key"] == row["fingerprint"])
    assert event["payload"]["summary"].startswith("prod-eu: bank.audit-2 has been blocked for ")
    assert event["payload"]["summary"].endswith("LSO lag 3 offsets: Safe to abort")
    assert event["links"] == [{"href": link, "text": "finding"}]
    owner = event["payload"]["custom_details"]["for_owner"]
    assert owner.startswith("Your transactional id bank-zombie (producer id 5, epoch 0) left 3 records of an open ")
    assert "in bank.audit-2 at offsets 0–2 since 2026-11-21 " in owner
    assert "We aborted it at ____ (UTC): read_committed consumers will never get its records. " in owner
    assert owner.endswith(f"Details: {link}")
    sent = next(each for each in of_webhook["new"] if each["fingerprint"] == row["fingerprint"])
    assert (sent["cluster"]["name"], sent["link"], sent["for_owner"]) == ("prod-eu", link, owner)
    assert (sent["blocked"]["by"], sent["blocked"]["verdict"], sent["blocked"]["waiting"]) == (
        "bank-zombie (producer id 5, epoch 0)", "safe_to_abort", 3,
    )  # fmt: skip
    assert sent["blocked"]["since"] == row["evidence"]["since"], (
        "by the brokers: its producer's clock is two hours behind"
    )
    assert (of_webhook["version"], len(of_webhook["new"]), of_webhook["gone"]) == (1, 4, [])


def test_a_webhook_gets_what_changed_once_and_with_its_token(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("hunter2\n")
    monkeypatch.setenv("AUDITOR_WEBHOOK_TOKEN_FILE", str(tmp_path / "token"))
    assert alerts.send(reported(new=1, gone=1, still=3), ["webhook"]) == []
    assert alerts.send(reported(still=3), ["webhook"]) == []
    (post,) = receiver.posts
    assert receiver.tokens == ["Bearer hunter2"]
    assert ([row["fingerprint"] for row in post["new"]], post["still"]) == (["f0"], 3)
    assert [(row["fingerprint"], row["where"], row["cluster"]["name"]) for row in post["gone"]] == [
        ("f1", "t-3 at offset 1", "c")
    ]


@pytest.mark.parametrize("content", [b"", b"two\nlines", b"\xff", b"x" * 5000, None])
def test_a_file_that_holds_no_secret_is_said_and_not_shown(
    content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.write_bytes(content)
    monkeypatch.delenv("AUDITOR_PAGERDUTY_KEY", raising=False)
    monkeypatch.setenv("AUDITOR_PAGERDUTY_KEY_FILE", str(file))
    assert cli.main(["audit", ".", "--out", "none", "--alert", "pagerduty"]) == 2
    said = capsys.readouterr().err
    assert "AUDITOR_PAGERDUTY_KEY_FILE: " in said
    assert said.count("\n") == 1
    assert "xxx" not in said
    file.write_text("key-of-a-file\n")
    assert alerts.secret("AUDITOR_PAGERDUTY_KEY") == "key-of-a-file"


def test_a_receiver_that_asks_for_time_gets_it_within_a_bound(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(alerts.time, "sleep", waited.append)
    monkeypatch.setattr(alerts, "MAX_PAUSE_S", 5.0)
    receiver.answers = [429, 503]
    assert alerts.send(reported(new=1), ["webhook"]) == []
    assert waited == [5.0, 5.0], "it asked for seven"


def test_no_alert_changes_the_exit_status_and_what_failed_is_said(
    receiver: Receiver, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    receiver.answers = [500] * 99
    assert cli.main(call_of("audit", corpora.unpack("hanging-36"), tmp_path)) == 0
    said = capsys.readouterr().err
    assert "auditor: alert to slack failed: HTTP status 500\n" in said
    assert "auditor: alert to pagerduty failed: HTTP status 500\n" in said
    assert "secret" not in said
    assert len(receiver.posts) == 2 * alerts.ATTEMPTS


def test_the_dashboard_s_address_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["audit", ".", "--out", "none", "--dashboard-url", "audits/kafka"]) == 2
    assert "--dashboard-url is not an http or https URL" in capsys.readouterr().err


def test_the_option_has_the_channels_that_there_are() -> None:
    assert tuple(alerts.CHANNELS) == arguments.CHANNELS


def test_a_redirection_is_a_failure_and_gets_no_token(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows one is a GET without the alert: whoever answers it with 200 has not been told anything."""
    asked: list[str | None] = []

    def answered(self: Handler) -> None:
        asked.append(self.headers["Authorization"])
        self.send_response(200)
        self.end_headers()

    def moved(self: Handler) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(302)
        self.send_header("Location", receiver.url)
        self.end_headers()

    monkeypatch.setattr(Handler, "do_GET", answered, raising=False)
    monkeypatch.setattr(Handler, "do_POST", moved)
    monkeypatch.setenv("AUDITOR_WEBHOOK_TOKEN", "hunter2")
    assert alerts.send(reported(new=1), ["webhook"]) == ["alert to webhook failed: HTTP status 302"]
    assert asked == []


def test_a_token_s_file_that_is_missing_is_said_before_the_work(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUDITOR_WEBHOOK_TOKEN_FILE", str(tmp_path / "none"))
    with pytest.raises(AuditInputError, match="AUDITOR_WEBHOOK_TOKEN_FILE"):
        alerts.check(AlertOptions(["webhook"]))


def test_no_section_is_longer_than_slack_takes_and_no_cluster_mentions_anybody() -> None:
    """Slack refuses a whole message for one section of more than 3000 characters."""
    long = {"c": ClusterName("<!channel>" + "c" * 2000)}
    said = messages.slack(News([row(topic="t" * 1000, message="m" * 1000)], [], [], None, long))
    assert max(len(block["text"]["text"]) for block in said["blocks"] if block["type"] == "section") <= 3000
    assert "<!" not in said["text"]


def test_what_an_audit_could_not_read_is_not_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three runs: one with findings, one that could not read them, one that read all and has none of them."""
    folder, history = corpora.unpack("hanging-36"), tmp_path / "history"
    monkeypatch.setattr(AuditOptions, "asked", "")  # as if all rules were asked, and had nothing to say

    def news(run_id: str, whole: bool, **options: Any) -> News:
        audit = opened(folder, history=history, run_id=run_id, **options)
        monkeypatch.setattr(type(audit), "incomplete", lambda self: not whole)
        table = summary.findings(audit)
        facts = {"complete": whole, "clusters": audit.cluster_ids, "accepted": None}
        runs.publish(history, run_id, {"findings": table}, facts)
        return alerts.news(audit, AlertOptions(least="info"))

    as_of = corpora.manifest("hanging-36")["copied_at"]
    names = {each["fingerprint"] for each in news("1", True, as_of=as_of).new}
    none = {"as_of": as_of, "rules": ("torn-tail",)}
    assert names
    partly = news("2", False, **none)
    assert (partly.new, partly.gone) == ([], [])
    whole = news("3", True, **none)
    assert {each["fingerprint"] for each in whole.gone} == names
    again = news("4", True, as_of=as_of)
    assert {each["fingerprint"] for each in again.new} == names


def test_what_an_audit_was_not_asked_is_not_gone(tmp_path: Path) -> None:
    """All, one rule alone, all again: the one in between ends nothing, and is no run before."""
    history = tmp_path / "history"

    def news(run_id: str, **options: Any) -> News:
        audit = opened(corpora.unpack("hanging-36"), history=history, run_id=run_id, as_of=as_of, **options)
        facts = {"clusters": audit.cluster_ids, "accepted": None, "asked": audit.options.asked}
        runs.publish(history, run_id, {"findings": summary.findings(audit)}, facts)
        return alerts.news(audit, AlertOptions(least="info"))

    as_of = corpora.manifest("hanging-36")["copied_at"]
    names = {each["fingerprint"] for each in news("1").new}
    assert names
    for number, part in enumerate(({"rules": ("torn-tail",)}, {"topics": ("no-such",), "may_lack": True},
                                   {"skip_rules": ("hanging-transaction",)})):  # fmt: skip
        assert news(f"2{number}", **part).gone == []
    again = news("3")
    assert (again.new, again.gone) == ([], [])
    assert {each["fingerprint"] for each in again.still} == names


def test_what_a_watch_could_not_read_is_not_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    shutil.copytree(corpora.unpack("hanging-36"), folder)
    as_of = corpora.manifest("hanging-36")["copied_at"]
    watch = Watch(AuditOptions((str(folder),), out, as_of=as_of), here(), Journal(out))
    found = {line["key"] for line in watch.look().lines}
    assert found
    whole = [False, True]
    for log in folder.rglob("bank.audit-2"):
        shutil.rmtree(log)
    monkeypatch.setattr(LookedAt, "incomplete", lambda self: not whole[0])
    assert [line for line in watch.look().lines if line["event"] == RESOLVED] == []
    del whole[0]
    watch.judged_at = 0.0
    resolved = [line for line in watch.look().lines if line["event"] == RESOLVED]
    assert {line["key"] for line in resolved} <= found
    assert ("bank.audit", 2) in {(line["topic"], line["partition"]) for line in resolved}
