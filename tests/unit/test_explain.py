"""One finding by its fingerprint, from the results of an audit and from a history; the version; commands to paste."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from auditor import cli
from tests import corpora


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("explained")
    call = ["audit", str(corpora.unpack("hanging-36")), "--out", str(folder / "out"), "--history", str(folder / "kept")]
    clock = ["--as-of", str(corpora.manifest("hanging-36")["copied_at"])]
    assert cli.main([*call, *clock, "--master", "inline[1]", "--quiet", "--bootstrap-server", "kafka:9092"]) == 1
    return folder


@pytest.mark.parametrize("where", ["--out", "--history"])
def test_a_finding_is_explained_by_its_fingerprint(
    out: Path, where: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from auditor.commands.explain import findings_of

    monkeypatch.setenv("COLUMNS", "80")
    row = next(row for row in findings_of(out / "out") if row["topic"] == "bank.ledger" and row["partition"] == 0)
    folder = out / ("out" if where == "--out" else "kept")
    assert cli.main(["explain", row["fingerprint"][:12], where, str(folder)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("critical hanging-transaction")
    command = "kafka-transactions.sh --bootstrap-server kafka:9092 abort --topic bank.ledger --partition 0"
    assert re.search(rf"^ +{re.escape(command)} --start-offset 71$", said, re.M)
    assert "  coordinator_state: CompleteAbort\n" in said
    prose = [line for line in said.splitlines() if not line.strip().startswith("kafka-")]
    assert max(map(len, prose)) <= 80


@pytest.mark.parametrize("name", ["", "ffffffffffffffffffff"])
def test_a_fingerprint_of_none_or_several_is_a_mistake(out: Path, name: str) -> None:
    assert cli.main(["explain", name, "--out", str(out / "out")]) == 2
    assert cli.main(["explain", "ab"]) == 2
    assert cli.main(["explain", "ab", "--out", str(out)]) == 2


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert re.fullmatch(r"auditor \S+\n", capsys.readouterr().out)
