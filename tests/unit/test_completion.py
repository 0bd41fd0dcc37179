"""Completion: what a real bash offers."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from auditor import cli


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize(
    ("words", "offers"),
    [
        (["auditor", "aud"], {"audit"}),
        (["auditor", "audit", "--min-"], {"--min-severity"}),
        (["auditor", "audit", "--format", "s"], {"sarif"}),
        (["auditor", "audit", "--rule", "hanging-tr"], {"hanging-transaction"}),
        (["auditor", "rules", "hanging-tr"], {"hanging-transaction"}),
        (["auditor", "history", "--form"], {"--format"}),
    ],
)
def test_bash_completes(words: list[str], offers: set[str], capsys: pytest.CaptureFixture[str]) -> None:
    ask = 'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _shtab_auditor; printf "%s\\n" "${COMPREPLY[@]}"'
    ran = subprocess.run(
        ["bash", "-c", f"{script('bash', capsys)}\n{ask}", "bash", *words], capture_output=True, text=True, check=True
    )
    assert set(ran.stdout.split()) == offers
    assert ran.stderr == ""


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish")
@pytest.mark.parametrize(
    ("line", "offers"),
    [
        ("auditor aud", {"audit"}), ("auditor audit --min-", {"--min-severity"}),
        ("auditor rules hanging-tr", {"hanging-transaction"}),
    ],
)  # fmt: skip
def test_fish_completes(line: str, offers: set[str], capsys: pytest.CaptureFixture[str]) -> None:
    ask = f"{script('fish', capsys)}\ncomplete -C '{line}'"
    ran = subprocess.run(["fish", "--no-config", "-c", ask], capture_output=True, text=True, check=True)
    assert {offer.split("\t")[0] for offer in ran.stdout.splitlines()} == offers
    assert ran.stderr == ""


def test_zsh_gets_its_function(capsys: pytest.CaptureFixture[str]) -> None:
    said = script("zsh", capsys)
    assert said.startswith("#compdef auditor\n")
    assert "--transactional-id" in said
