"""The command line without Spark: mistakes end in one line and exit 2, the catalogue is printed, statuses are right."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from auditor import cli
from auditor.base.errors import AuditInputError, DecodeError
from auditor.cli import main
from auditor.connectors.logdir.files import Inventory
from auditor.pipeline.options import AuditOptions, parse_time
from auditor.pipeline.runner import JudgedLogs, LogTotals
from auditor.pipeline.whole_audit import Audit
from auditor.rules.catalogue import registry
from auditor.rules.catalogue.registry import SECTIONS
from auditor.rules.seen.view import Finding
from auditor.spark.session import local_with_retries
from tests import corpora
from tests.facts import here


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (["audit", "/no/such/place", "--out", "out"], "no such file"),
        (["audit", ".", "--out", "out", "--rule", "no-such-rule"], "auditor rules"),
        (["audit", ".", "--out", "out", "--skip-rule", "no-such-rule"], "auditor rules"),
        (["audit", ".", "--out", "out", "--as-of", "yesterday"], "ISO-8601"),
        (["audit", ".", "--out", "out", "--split-size", "1"], "65536"),
        (["audit", ".", "--out", "out", "--max-batch-bytes", "1"], "1024"),
        (["rules", "no-such-rule"], "auditor rules"),
        (["audit", "."], "--out"),
        (["audit", ".", "--out", "out", "--policy", "kip-1"], "--help"),
        (["audti", "."], "(did you mean 'audit'?)"),
        (["audit", ".", "--out", "out", "--fial-on", "error"], "--fial-on error (did you mean"),
        (["audit", ".", "--out", "out", "--alert", "slak"], "(did you mean 'slack'?)"),
        (["audit", ".", "--out", "out", "--rule", "hanging-transactoin"], "(did you mean 'hanging-transaction' or"),
        (["rules", "lso-stuk"], "(did you mean 'lso-stuck'"),
    ],
)
def test_a_users_mistake_ends_in_one_line_and_status_2(
    call: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status: Any = main(call)
    except SystemExit as stop:
        status = stop.code
    said = capsys.readouterr()
    assert status == 2
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert says in said.err


def test_no_command_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """As git, docker and kubectl do."""
    assert main([]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("auditor: missing command\n")
    assert {line.split()[0] for line in said.err.splitlines() if re.match(r"  \S", line)} == {
        name.replace("_", "-") for name in cli.COMMANDS
    }


@pytest.mark.parametrize("short", [("-q", "-v", "-o"), ("--quiet", "--verbose", "--out")])
def test_short_options_are_the_long_ones(short: tuple[str, str, str]) -> None:
    args = cli.parsed(["audit", "a", short[0], short[1], short[2], "b"])
    assert (args.quiet, args.verbose, args.out) == (True, True, Path("b"))


@pytest.mark.parametrize("option", ["--point-in-time", "--at-once"])
@pytest.mark.parametrize("call", [["audit", "a", "--out", "b"], ["lag", "a"], ["recheck", "a", "--out", "b"]])
def test_a_snapshot_has_two_names(call: list[str], option: str, tmp_path: Path) -> None:
    assert cli.parsed([*call, option]).at_once
    (tmp_path / "a.toml").write_text(f"[{call[0]}]\n{option[2:]} = true\n")
    assert cli.parsed([*call, "--config", str(tmp_path / "a.toml")]).at_once


def test_an_empty_folder_holds_nothing_to_audit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert "nothing to audit" in capsys.readouterr().err


def test_the_catalogue_lists_every_rule_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules"]) == 0
    words = capsys.readouterr().out.split()
    for rule_id in registry.load():
        assert words.count(rule_id) == 1


def test_a_rules_page_has_every_section(capsys: pytest.CaptureFixture[str]) -> None:
    for rule_id in [*registry.load(), *registry.kinds()]:
        assert main(["rules", rule_id]) == 0
        page = capsys.readouterr().out
        assert all(f"{name}:\n" in page for name in SECTIONS)
        rule = registry.rule_of(rule_id)
        assert rule is not None
        assert page.startswith(rule.id)
        assert rule_id in page


def audit_with(findings: list[str], reason: str | None = None, fail_on: str = "error") -> Audit:
    options = AuditOptions((".",), Path("out"), fail_on=fail_on)
    done = Audit(options, here())
    done._found = Inventory((), (), (), (), ())
    done.findings = [Finding("sequence-gap", severity) for severity in findings]
    if reason is not None:
        error = DecodeError("f", 0, 1, reason, "")
        logs = JudgedLogs([], LogTotals(errors=[(("t", 0), "broker-1", error)]))
        done.judged = {"log": logs, "blocked": [], "readers": []}
    return done


@pytest.mark.parametrize(
    ("findings", "fail_on", "status"),
    [([], "error", 0), (["warning"], "error", 0), (["error"], "error", 1), (["critical"], "error", 1),
     (["critical"], "never", 0), (["info"], "info", 1), (["error"], "critical", 0), (["warning"], "warning", 1)],
)  # fmt: skip
def test_exit_status_by_severity(findings: list[str], fail_on: str, status: int) -> None:
    assert audit_with(findings, fail_on=fail_on).exit_code() == status


@pytest.mark.parametrize(("reason", "status"), [("unreadable", 3), ("limit", 3), ("crc_mismatch", 1), ("vanished", 1)])
def test_what_could_not_be_read_goes_before_findings_but_damage_and_flight_do_not(reason: str, status: int) -> None:
    assert audit_with(["critical"], reason).exit_code() == status


def test_times_are_iso_or_epoch_milliseconds() -> None:
    assert parse_time("1795233109381") == 1795233109381
    assert parse_time("2026-11-21T04:00:00.123Z") == 1795233600123
    assert parse_time("2026-11-21T04:00:00") == parse_time("2026-11-21T05:00:00+01:00")
    with pytest.raises(AuditInputError):
        parse_time("soon")


def test_local_masters_retry_like_clusters() -> None:
    assert local_with_retries("local[2]") == "local[2,4]"
    assert local_with_retries("local[*]") == "local[*,4]"
    assert local_with_retries("local") == "local[1,4]"
    assert local_with_retries("spark://host:7077") == "spark://host:7077"


def test_the_help_lists_every_command_once_in_a_group(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    for name in cli.parsers()[1]:
        assert len(re.findall(rf"^  {name} ", said, re.M)) == 1


@pytest.mark.parametrize("command", list(cli.parsers()[1]))
def test_a_commands_help_has_examples_and_says_of_every_option_what_it_does_and_its_default(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert "examples:\n  " in said
    prose = said.partition("examples:")[0]
    assert max(map(len, prose.splitlines())) <= 80
    words = "".join(said.split())  # long words are cut at their hyphens
    for action in cli.parsers(command)[1][command]._actions:
        assert action.help, action.dest
        given = action.default not in (None, False, argparse.SUPPRESS) and action.default != []
        if action.option_strings and given:
            assert re.search(rf"\(default:?{re.escape(str(action.default).replace(' ', ''))}[;,)]", words), action.dest


def test_without_out_a_terminal_gets_a_folder_named_after_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    folder = str(corpora.unpack("hanging-36"))
    assert main(["audit", folder, "--topic", "bank.audit", "--master", "inline[1]", "--fail-on", "never"]) == 0
    (made,) = tmp_path.iterdir()
    assert re.fullmatch(r"audit-\d{8}-\d{6}", made.name)
    assert capsys.readouterr().out.rstrip().endswith(f"Report: {made.name}/report.html")


def test_a_topic_that_is_not_there_is_answered_with_one_that_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ["audit", str(corpora.unpack("hanging-36")), "--out", str(tmp_path / "out"), "--master", "inline[1]"]
    for option, said in (("--topic=bank.legder", "bank.ledger"), ("--only-partition=bank.legder-3", "bank.ledger-3")):
        assert main([*call, option]) == 2
        assert f"did you mean '{said}'" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--out", "--history", "--work"])
def test_a_path_longer_than_a_file_system_takes_is_a_mistake(
    tmp_path: Path, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in" / "t-0").mkdir(parents=True)
    (tmp_path / "in" / "t-0" / f"{0:020}.log").touch()
    out = [] if option == "--out" else ["--out", str(tmp_path / "out")]
    asked = [
        "audit",
        str(tmp_path / "in"),
        *out,
        option,
        str(tmp_path / ("x" * 300)),
        "--master",
        "inline[1]",
        "--quiet",
    ]
    assert cli.main(asked) == 2
    assert re.fullmatch(r"auditor: path too long .*use a shorter path\n", capsys.readouterr().err)
