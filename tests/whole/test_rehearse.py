"""``auditor rehearse`` over copies of real clusters, against what their metadata and corpora say."""

from __future__ import annotations

import json
import shutil
import time
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from auditor import cli
from auditor.base.errors import AuditInputError
from auditor.dashboards.table_lines import RISK_WORDS, rehearsal_card
from auditor.model.rehearsal import RISKS
from tests import corpora
from tests.audited import opened

SCHEMA: dict[str, Any] = json.loads(files("auditor.outputs").joinpath("rehearsal.schema.json").read_text("utf-8"))
ROLLING = "rolling-cold-copies-43"  # broker 3 is down; ro2-2 has only broker 1 in sync


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code = cli.main(["rehearse", *words, "--format", "json"])
    row: dict[str, Any] = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(SCHEMA).validate(row)
    return code, row


def test_the_schema_names_every_risk() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    risk = SCHEMA["properties"]["brokers"]["items"]["properties"]["risks"]["items"]["properties"]["risk"]
    assert risk["enum"] == list(RISKS)


def test_a_kill_is_foretold_from_the_metadata_of_copies(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(corpora.unpack(ROLLING))
    partitions = {(p["topic"], p["partition"]): p for p in opened(Path(path)).table("partitions").to_pylist()}
    code, row = answer(capsys, path, "--stop", "1", "--killed", "--fail-on", "critical")
    (broker,) = row["brokers"]
    risks = broker["risks"]
    offline = {(r["topic"], r["partition"]) for r in risks if r["risk"] == "offline"}
    moves = {
        (r["topic"], r["partition"]): (r["from_leader"], r["to_leader"]) for r in risks if r["risk"] == "leader_moves"
    }
    led = {place: p for place, p in partitions.items() if p["leader"] == 1}
    assert offline == {place for place, p in led.items() if p["isr"] == [1]} != set()
    assert moves == {place: (1, 2) for place, p in led.items() if set(p["isr"]) == {1, 2}} != {}
    assert (code, row["too_old"], row["how"], row["source"]) == (1, True, "kill", "files")
    assert [r["lasts_ms"] for r in risks if r["risk"] == "offline"] == [None] * len(offline)


def test_an_old_input_never_passes_a_gate(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(corpora.unpack("skipped-marker-43"))
    assert answer(capsys, path, "--stop", "1", "--fail-on", "critical")[0] == 1
    assert answer(capsys, path, "--stop", "1", "--fail-on", "never")[0] == 0
    days = int(time.time() / 86_400) + 1
    code, row = answer(capsys, path, "--stop", "1", "--fail-on", "critical", "--max-age", f"{days}d")
    assert (code, row["too_old"], [r["risk"] for r in row["brokers"][0]["risks"]]) == (0, False, ["unknown"] * 2)
    assert "the input has no __consumer_offsets" not in str(row)  # each broker has three partitions of it
    assert "groups without committed offsets are not listed" in str(row)  # its console consumers committed none


def test_damaged_metadata_is_unread_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As --help says, 3 takes precedence, whatever --fail-on is."""
    copy = shutil.copytree(corpora.unpack("healthy-41"), tmp_path / "copy")
    log = next(copy.rglob("__cluster_metadata-0")) / f"{0:020}.log"
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)
    for level in ("never", "critical"):
        assert answer(capsys, str(copy), "--stop", "1", "--max-age", "9999d", "--fail-on", level)[0] == 3


def test_the_page_counts_each_risk_in_words() -> None:
    above_info = {name for name, severity in RISKS.items() if severity != "info"} - {"input_too_old"}  # of a command
    assert RISK_WORDS.keys() == above_info
    brokers = [{"broker_id": 1, "how": "kill", "risks": {"quorum_lost": 1, "offline": 2, "below_min_isr": 1}}]
    (line,) = rehearsal_card({"brokers": brokers})
    assert line.says.split("; ") == [
        "no majority of controllers left", "2 partitions without a leader", "1 partition below min.insync.replicas",
    ]  # fmt: skip


def test_bytes_to_read_again_are_those_behind_the_recovery_points(capsys: pytest.CaptureFixture[str]) -> None:
    path = corpora.unpack("live-copy-39")
    (log_dir,) = path.glob("broker-*")
    lines = (log_dir / "recovery-point-offset-checkpoint").read_text().splitlines()[2:]
    points = {f"{topic}-{n}": int(offset) for topic, n, offset in (line.split() for line in lines)}
    total = 0
    for folder in (f for f in log_dir.iterdir() if f.is_dir()):
        segments = sorted((int(f.stem), f.stat().st_size) for f in folder.glob("*.log"))
        point = 0 if folder.name == "__cluster_metadata-0" else points.get(folder.name, 0)
        first = max((base for base, _ in segments if base <= point), default=0)
        total += sum(size for base, size in segments if base >= first)
    _, row = answer(capsys, str(path), "--stop", "1", "--killed")
    (read,) = [r for r in row["brokers"][0]["risks"] if r["risk"] == "reads_again"]
    assert read["bytes"] == total > 0


def test_a_newer_release_may_refuse_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    path = corpora.unpack("replicas-39-unclean")
    refused = {words for c in opened(path).clusters.values() for some in c.next_release.values() for words in some}
    for release in ("3.9", "4.0", "4.1"):
        _, row = answer(capsys, str(path), "--stop", "1", "--start", release)
        says = [r["says"] for r in row["brokers"][0]["risks"] if r["risk"] == "start_fails"]
        wanted = {w for w in refused if tuple(map(int, w.split()[0].split("."))) <= tuple(map(int, release.split(".")))}
        assert {text.partition(": ")[2] for text in says} == wanted
        assert row["release"] == release


def test_table_api_page_and_order_say_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import auditor

    path = corpora.unpack(ROLLING)
    with auditor.open(path) as audit:
        rows = audit.table("rehearsal").to_dicts()
        one = audit.rehearse(1, killed=True).to_dicts()
        with pytest.raises(AuditInputError, match="no broker 9"):
            audit.rehearse(9)
    assert one == [row for row in rows if (row["broker_id"], row["how"]) == (1, "kill")] != []
    assert cli.main(["audit", str(path), "--out", str(tmp_path), "--master", "inline", "--quiet"]) in (0, 1)
    summary = json.loads((tmp_path / "summary.json").read_text())["rehearsal"]
    (counted,) = [row for row in summary["brokers"] if (row["broker_id"], row["how"]) == (1, "kill")]
    names = [row["risk"] for row in one if row["severity"] != "info"]
    assert counted["risks"] == {name: names.count(name) for name in names}
    assert 'id="rehearsal"' in (tmp_path / "report.html").read_text()
    capsys.readouterr()
    _, row = answer(capsys, str(path), "--rolling")
    assert [step["broker_id"] for step in row["rolling"]] == [broker["broker_id"] for broker in row["brokers"]]
    assert sorted(broker["broker_id"] for broker in row["brokers"]) == [1, 2, 3]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "missing input"),
        (("PATH",), "missing broker: give --stop BROKER, or --rolling"),
        (("PATH", "--stop", "1", "--rolling"), "--stop and --rolling are both given"),
        (("PATH", "--stop", "9"), "invalid --stop 9: the input has brokers 1, 2, 3"),
        (("PATH", "--stop", "1", "--start", "new"), "invalid --start 'new': expected a release"),
        (("PATH", "--stop", "1", "--max-age", "soon"), "invalid period 'soon': expected"),
        (("PATH", "--stop", "1", "--bootstrap-server", "h:1"), "PATH and --bootstrap-server are both given"),
    ],
)
def test_usage_errors(words: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(corpora.unpack(ROLLING))
    try:
        code = cli.main(["rehearse", *(path if word == "PATH" else word for word in words)])
    except SystemExit as ended:  # of argparse
        code = ended.code
    assert code == 2
    assert says in capsys.readouterr().err


def test_settings_that_only_a_file_has_are_unknown_without_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A broker's own min.insync.replicas is in its server.properties: without that file 1 is no answer."""
    path = corpora.unpack(ROLLING)
    audit, name = opened(path), "min.insync.replicas"
    own = {c["topic"] for c in audit.table("topic_configs").to_pylist() if c["name"] == name}
    brokers = {c["entity"] for c in audit.table("broker_configs").to_pylist() if c["name"] == name}
    led = {p["topic"] for p in audit.table("partitions").to_pylist() if p["leader"] >= 0}
    _, row = answer(capsys, str(path), "--stop", "1")
    says = [r["says"] for r in row["brokers"][0]["risks"] if r["risk"] == "unknown"]
    unknown = bool(led - own) and "" not in brokers and not any(path.glob("server-*.properties"))
    assert any(name in text for text in says) is unknown
