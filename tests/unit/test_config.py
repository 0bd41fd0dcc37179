"""Options from files: which goes before which, and every mistake by file and key."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from auditor import cli
from auditor.commands import arguments

CALL = ["audit", "logs", "--out", "out"]
NAMED = [*CALL, "--config", "auditor.toml"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name: str, text: str) -> None:
    Path(name).write_text(text, encoding="utf-8")


def test_the_command_line_goes_before_auditor_toml_and_that_before_pyproject_toml() -> None:
    write("pyproject.toml", '[tool.auditor]\nformat = "csv"\ncluster-name = "test"\nverbose = true\n')
    write("auditor.toml", 'format = "json"\ncluster-name = "prod"\n')
    args = cli.parsed([*CALL, "--format", "table"])
    assert (args.format, args.cluster_name, args.verbose) == ("table", "prod", True)


def test_the_command_line_goes_before_a_named_file() -> None:
    write("auditor.toml", 'fail-on = "warning"\npolicy = "kip-360"\n')
    args = cli.parsed([*NAMED, "--fail-on", "critical"])
    assert (args.fail_on, args.policy) == ("critical", "kip-360")


def test_a_commands_own_table_goes_before_what_is_said_for_all() -> None:
    write("auditor.toml", 'topic = ["a"]\n[audit]\ntopic = ["b", "c*"]\n[watch]\ntopic = ["d"]\ninterval = 5\n')
    assert cli.parsed(NAMED).topic == ["b", "c*"]
    watch = cli.parsed(["watch", *NAMED[1:]])
    assert (watch.topic, watch.interval) == (["d"], 5)
    assert cli.parsed(["sql", "SELECT 1", "logs", *NAMED[-2:]]).topic == ["a"]


def test_what_the_command_line_lists_replaces_the_files_list() -> None:
    write("auditor.toml", 'topic = ["a", "b"]\n')
    assert cli.parsed([*NAMED, "--topic", "c"]).topic == ["c"]


def test_a_file_that_is_named_stands_in_for_those_of_the_folder(tmp_path: Path) -> None:
    write("auditor.toml", 'fail-on = "info"\n')
    write("other.toml", 'out = "elsewhere"\nrecords = true\nmax-findings = 7\n')
    for option in (["--config", "other.toml"], ["--config=other.toml"]):
        args = cli.parsed(["audit", "logs", *option])
        assert (args.fail_on, args.out, args.records, args.max_findings) == ("error", Path("elsewhere"), True, 7)


def test_without_files_nothing_changes() -> None:
    write("pyproject.toml", '[tool.ruff]\nline-length = 1\n[project]\nname = "x"\n')
    assert vars(cli.parsed(CALL))["fail_on"] == "error"
    assert cli.parsed(["audit", "logs"]).out is None


def test_which_options_came_of_a_file_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    write("auditor.toml", 'fail-on = "info"\nrecords = true\n')
    cli.parsed(NAMED)
    assert capsys.readouterr().err == "auditor: auditor.toml sets fail-on, records\n"
    cli.parsed([*NAMED, "--quiet"])
    cli.parsed([*NAMED, "--fail-on", "error", "--records"])
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("quiet", [[], ["--quiet"]])
def test_a_file_of_the_working_directory_chooses_nothing_that_matters(
    quiet: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """An unpacked ticket may hold one: no Spark master, place of results, filter or bootstrap server comes from it."""
    write(
        "auditor.toml",
        'master = "sc://127.0.0.1:28999"\nformat = "json"\n[audit]\nout = "o"\nverbose = true\n'
        '[clusters]\nid = "prod"\n["a\\u001bb"]\n"c\\u001b" = 1\n',
    )
    write("pyproject.toml", '[tool.auditor]\nbaseline = "all.json"\nquiet = false\n')
    args = cli.parsed(["audit", "logs", *quiet])
    assert (args.master, args.out, args.format, args.verbose, args.baseline) == (None, None, "json", True, None)
    assert [(id, named.name) for id, named in args.clusters] == [("id", "prod")]
    lines = [line for line in capsys.readouterr().err.splitlines() if "ignored" in line]
    assert lines == [
        "auditor: auditor.toml: master ignored (to use it: --config auditor.toml)",
        "auditor: auditor.toml: [audit] out ignored (to use it: --config auditor.toml)",
        'auditor: auditor.toml: ["a\\u001bb"] "c\\u001b" ignored (to use it: --config auditor.toml)',
        "auditor: pyproject.toml [tool.auditor]: baseline ignored (to use it: --config pyproject.toml)",
    ]


def test_every_option_but_the_harmless_is_ignored(capsys: pytest.CaptureFixture[str]) -> None:
    for name, parser in cli.parsers()[1].items():
        keys = sorted(arguments.options(parser))
        says = {name: dict.fromkeys(keys, "x"), **dict.fromkeys(keys, "x")}
        (kept,), ignored = arguments.harmless([arguments.Source("auditor.toml", says)])
        taken = set(keys) & {"format", "quiet", "verbose", "cluster-name"}
        assert set(kept.says) - {name} == set(kept.says.get(name, {})) == taken
        assert len(ignored) <= 21


def test_of_many_ignored_keys_the_first_are_named() -> None:
    _, ignored = arguments.harmless([arguments.Source("auditor.toml", {f"k{n}": n for n in range(1000)})])
    assert len(ignored) == 21
    assert ignored[-1] == "auditor.toml: 980 more keys ignored (to use them: --config auditor.toml)"


def test_a_pyproject_toml_can_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    write("pyproject.toml", '[project]\nname = "x"\n[tool.auditor]\nfail-on = "info"\n')
    assert cli.parsed([*CALL, "--config", "pyproject.toml"]).fail_on == "info"
    assert capsys.readouterr().err == "auditor: pyproject.toml [tool.auditor] sets fail-on\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("fail_on = 'info'", "auditor.toml: unknown option 'fail_on'"),
        ("[audit]\ninterval = 1", "auditor.toml: unknown option 'interval' in [audit]"),
        ("[audits]\nrecords = true", "auditor.toml: unknown command [audits]"),
        ("[watch]\ninterval = '1'", "auditor.toml: [watch] interval is '1': expected a number"),
        ("records = 'yes'", "auditor.toml: records is 'yes': expected true or false"),
        ("max-findings = 1.5", "auditor.toml: max-findings is 1.5: expected a whole number"),
        ("max-findings = true", "auditor.toml: max-findings is True: expected a whole number"),
        ("topic = 'a'", "auditor.toml: topic is 'a': expected a list"),
        ("topic = [1]", "auditor.toml: topic is 1: expected a string in quotes"),
        ("fail-on = 'bad'", "auditor.toml: fail-on is 'bad': expected one of critical, error"),
        ("[history]\ndiff = ['a']", "auditor.toml: [history] diff has 1 values: expected a list of 2"),
        ("config = 'x'", "auditor.toml: unknown option 'config'"),
        ("[finish]\nwrite = true", "auditor.toml: unknown option 'write' in [finish]"),
        ("[finish]\nconfirm = 't-0'", "auditor.toml: unknown option 'confirm' in [finish]"),
        ("application-stopped = true", "auditor.toml: unknown option 'application-stopped'"),
        ("x =", "auditor.toml is not valid TOML"),
        ("x = " + "[" * 100_000, "auditor.toml is nested too deeply"),
        ("#" * (1 << 20) + "#", "auditor.toml is larger than 1048576 bytes"),
        ("x = '\x80'", "auditor.toml is not valid TOML"),
    ],
)
def test_a_mistake_is_named_by_file_and_key(text: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("auditor.toml").write_bytes(text.encode("latin-1"))
    assert cli.main(NAMED) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1


def test_a_named_file_must_be_there_and_tool_auditor_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*CALL, "--config", "none.toml"]) == 2
    assert "cannot read none.toml" in capsys.readouterr().err
    write("pyproject.toml", "[tool]\nauditor = 1\n")
    assert cli.main(CALL) == 2
    assert "pyproject.toml: tool.auditor is not a table" in capsys.readouterr().err


def test_every_option_of_every_command_can_stand_in_a_file() -> None:
    samples = {int: 3, float: 3, None: "x", Path: "x"}
    for name, parser in cli.parsers()[1].items():
        lines = []
        for key, action in arguments.options(parser).items():
            other = action.default if isinstance(action.default, str) else "24h"
            one = samples.get(action.type, other) if action.choices is None else next(iter(action.choices))  # type: ignore[call-overload]
            value = f"'{one}'" if isinstance(one, str) else str(one)
            many = [value] * (action.nargs if isinstance(action.nargs, int) else 1)
            listed = f"[{', '.join(many)}]" if "Append" in type(action).__name__ or len(many) > 1 else value
            lines.append(f"{key} = {'true' if action.nargs == 0 else listed}")
        found = arguments.config_settings(
            [arguments.Source("f", tomllib.loads(f"[{name}]\n" + "\n".join(lines)))],
            name, list(cli.parsers()[1]), cli.parsers()[1].get,
        )  # fmt: skip
        assert found.keys() == arguments.options(parser).keys()
