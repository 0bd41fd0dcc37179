"""A scope that is read: what is left out is not opened, and nothing is concluded from it.

Of a partition that is read alone the findings are those of the whole run. Of logs that are read from an offset on
nothing is said that the whole run does not say, and whoever holds a partition from before is named.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import auditor
from auditor import cli
from auditor.base.errors import AuditInputError
from auditor.base.user_input import Scope, since_of
from auditor.connectors.stores import storage
from auditor.outputs.publish import run_report
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.what_if_audit import WhatIfAudit
from auditor.pipeline.whole_audit import Audit
from auditor.rules.seen.view import Finding
from tests import corpora
from tests.conftest import NIGHTLY
from tests.facts import here, opened

ALONE = ("hanging-36", "replicas-39-unclean", "replicas-41", "skipped-marker-43", "lively-42")
SINCE = ("healthy-28", "live-41", "lively-11", "tiered-43")
EVERY = (*corpora.judged(), *corpora.campaigns())
# Said once for the cluster, or for all that have one cause, with how many partitions show it.
OF_MANY = {"clock-skew", "coordinator-log-starts-late", "data-epoch-ahead-of-coordinator", "replica-missing-range"}
# The finding lies across the first offset that is read, and begins there.
ACROSS = {"altered-41": {"aborted-transaction-not-indexed"}}
Place = tuple[str, int]


def clock(name: str) -> int | None:
    manifest = corpora.manifest(name)
    found: int | None = manifest.get("as_of", manifest.get("copied_at"))
    return found


def audited(name: str, **options: Any) -> Audit:
    return opened(corpora.unpack(name), as_of=clock(name), records=True, **options)


def logs(audit: Audit) -> list[Place]:
    """The partitions of users' topics."""
    found = {(c.topic or "", c.partition or 0) for d in audit.inventory.log_dirs for c in d.replicas}
    return sorted(log for log in found if not log[0].startswith("__"))


def about(found: list[Finding], log: Place) -> set[tuple[object, ...]]:
    """What is said of a partition, but for what is said of many at once."""
    return {
        (f.kind, f.severity, f.broker_id, f.offset, f.last_offset, f.producer_id, f.group_id, f.message)
        for f in found
        if (f.topic, f.partition) == log and f.kind not in OF_MANY
    }


def held(audit: Audit) -> set[tuple[object, ...]]:
    names = ("topic", "partition", "standing", "last_stable_offset", "first_offset", "producer_id")
    return {tuple(row[name] for name in names) for row in audit.blocked if not row["topic"].startswith("__")}


@pytest.mark.parametrize("name", EVERY if NIGHTLY else ALONE)
def test_a_partition_that_is_read_alone_has_its_findings(name: str) -> None:
    whole = audited(name)
    for log in logs(whole):
        alone = audited(name, only_partitions=(f"{log[0]}-{log[1]}",))
        new = about(alone.findings, log) - about(whole.findings, log)
        assert not {row for row in new if row[2] != "info"}  # what another partition explains in the whole is one
        assert not about(whole.findings, log) - about(alone.findings, log)
        others = {(f.topic, f.partition) for f in alone.findings if f.topic and not f.topic.startswith("__")}
        assert others <= {log}
        assert held(alone) == {row for row in held(whole) if row[:2] == log}


def bases(audit: Audit) -> list[int]:
    """Some offsets at which segments begin, or all."""
    found = {
        s.base_offset for d in audit.inventory.log_dirs for c in d.replicas for s in c.segments
        if not (c.topic or "").startswith("__") and s.base_offset > 0
    }  # fmt: skip
    every = sorted(found)
    return every if NIGHTLY or len(every) < 4 else [every[len(every) // 4], every[len(every) // 2], every[-1]]


@pytest.mark.parametrize("name", EVERY if NIGHTLY else SINCE)
def test_from_an_offset_on_nothing_is_said_that_the_whole_does_not_say(name: str) -> None:
    whole = audited(name)
    known = {(f.kind, f.topic, f.partition, f.offset, f.producer_id) for f in whole.findings}
    for base in bases(whole):
        part = audited(name, since=since_of(str(base + 1)))
        new = [f for f in part.findings if (f.kind, f.topic, f.partition, f.offset, f.producer_id) not in known]
        assert not [f for f in new if f.severity != "info" and f.kind not in ACROSS.get(name, ())]
        assert held(part) == held(whole)
        lost = {f.kind for f in missing(whole, part)}
        assert not lost - {"aborted-transaction-not-indexed"}, base


def missing(whole: Audit, part: Audit) -> Iterator[Finding]:
    """What is above info in the whole, where the part has read, and not in the part."""
    said = {(f.kind, f.topic, f.partition, f.offset, f.producer_id) for f in part.findings}
    begun = {
        (c.topic, c.partition): c.segments[0].base_offset for d in part.scoped.log_dirs for c in d.replicas if c.unread
    }
    for f in whole.findings:
        read = f.offset is not None and f.offset >= begun.get((f.topic, f.partition), 0)
        if f.severity != "info" and read and (f.kind, f.topic, f.partition, f.offset, f.producer_id) not in said:
            yield f


def test_some_of_these_are_held_from_before() -> None:
    """So that the test above is one of holds that began where nobody reads."""
    whole = audited("live-41")
    last = bases(whole)[-1]
    part = audited("live-41", since=since_of(str(last)))
    begun = {(c.topic, c.partition): c.segments[0].base_offset for d in part.scoped.log_dirs for c in d.replicas}
    before = [row for row in part.blocked if 0 <= row["first_offset"] < begun[row["topic"], row["partition"]]]
    assert {(row["topic"], row["partition"], row["first_offset"]) for row in before} == {("shop.orders", 0, 0)}


def files(audit: Audit) -> set[str]:
    """What is opened below the input, relative to it, from the listing to the findings."""
    found: set[str] = set()
    with storage.guarded({}, found.add):
        _ = audit.findings
    return {os.path.relpath(path, audit.options.paths[0]) for path in found}


@pytest.mark.parametrize("ask", [{"only_partitions": ("ha-1",)}, {"only_brokers": (2,)}, {"only_partitions": ("1",)}])
def test_what_is_left_out_is_not_opened(ask: dict[str, Any]) -> None:
    name = "replicas-41"
    topic = next(topic for topic, number in logs(audited(name)) if number == 1)
    ask = {k: tuple(f"{topic}-1" if one == "ha-1" else one for one in v) for k, v in ask.items()}
    scope = Scope(partitions=ask.get("only_partitions", ()), brokers=ask.get("only_brokers", ()))
    for path in files(audited(name, **ask)):
        if path.count("/") == 2:  # broker, folder and file
            topic, _, number = Path(path).parts[1].rpartition("-")
            assert scope.wants(topic, int(number), int(Path(path).parts[0][-1])), path
    everything, some = files(audited(name)), files(audited(name, **ask))
    assert some < everything
    assert {path for path in everything if "/__" in path} <= some  # internal topics, metadata, checkpoints


def test_segments_before_the_offset_are_not_opened() -> None:
    whole = audited("healthy-41")
    at = bases(whole)[1]
    part = audited("healthy-41", since=since_of(str(at)))
    opened_files = files(audited("healthy-41", since=part.options.since))
    unread = {f"{d.name}/{f.name}" for d in part.scoped.log_dirs for c in d.replicas for f in c.unread}
    assert len(unread) > 10
    assert not unread & opened_files
    assert {path for path in files(audited("healthy-41")) if path not in unread} == opened_files


def test_a_time_reads_the_ends_of_time_indexes_alone() -> None:
    whole = audited("healthy-41")
    moment = corpora.manifest("healthy-41")["copied_at"] + 3_600_000
    part = audited("healthy-41", since=since_of(f"{moment // 1000 - 10**6}"))  # as an offset: beyond all logs
    assert {len(c.segments) for d in part.scoped.log_dirs for c in d.replicas if c.unread} == {1}
    late = audited("healthy-41", since=since_of("2100-01-01"))
    newest = {len(c.segments) for d in late.scoped.log_dirs for c in d.replicas if not (c.topic or "").startswith("__")}
    assert newest == {1}
    early = audited("healthy-41", since=since_of("2001-01-01T00:00:00Z"))
    assert early.scoped == whole.inventory
    assert not [f for f in late.findings if f.severity != "info"]


def test_every_offset_and_byte_is_accounted_for() -> None:
    part = audited("healthy-41", since=since_of("500"))
    summary = run_report(part).summary
    for log in summary["logs"]:
        offsets = log["offsets"]
        assert sum(count for kind, count in offsets.items() if kind != "total") == offsets["total"]
        assert offsets["total"] == log["log_end"] - log["log_start"]
        assert (offsets["left_out"] > 0) == any(
            c.unread for d in part.scoped.log_dirs for c in d.replicas if (c.topic, c.partition) == place(log)
        )
    whole = run_report(audited("healthy-41")).summary
    assert summary["bytes"]["total"] + summary["scope"]["left_out"]["bytes"] == whole["bytes"]["total"]


def place(log: dict[str, Any]) -> Place:
    return log["topic"], log["partition"]


def test_what_was_left_out_stands_in_the_headline_and_the_summary(tmp_path: Path) -> None:
    out = tmp_path / "out"
    path = str(corpora.unpack("hanging-36"))
    words = ["audit", path, "--out", str(out), "--only-partition", "bank.audit-1", "--quiet", "--master", "inline[1]"]
    assert cli.main(words) == 0
    summary = json.loads((out / "summary.json").read_text())
    scope = summary["scope"]
    assert (scope["partitions"], scope["brokers"], scope["since"]) == (["bank.audit-1"], [], None)
    assert scope["left_out"]["copies"] == len(logs(audited("hanging-36"))) - 1
    assert summary["verdict"]["headline"].endswith(
        "; only partitions that match bank.audit-1 were scanned, and 7 replicas excluded"
    )


def test_logs_without_a_snapshot_are_said_to_be_unknown_before(tmp_path: Path) -> None:
    path = corpora.copy("healthy-41", tmp_path)
    for file in path.rglob("*.snapshot"):
        file.unlink()
    audit = opened(path, as_of=clock("healthy-41"), since=since_of("500"))
    assert audit.left_out.without_state == audit.left_out.begun > 0
    headline = run_report(audit).summary["verdict"]["headline"]
    assert "logs were scanned from offset 500 on" in headline
    assert f"earlier open transactions of {audit.left_out.begun} replicas unknown (no producer snapshot)" in headline
    assert not [f for f in audit.findings if f.severity != "info"]


def test_partitions_that_were_not_read_are_never_absent() -> None:
    """A replica without a folder is lost (--whole); one that was not read is not."""
    for ask in ({"only_partitions": ("0",)}, {"only_brokers": (1,)}):
        audit = opened(corpora.unpack("replicas-41"), as_of=clock("replicas-41"), whole=True, **ask)
        assert [f.kind for f in audit.findings if f.severity != "info"] == []
        assert run_report(audit).summary["scope"]["not_in_input"] == 0


def test_a_decided_transaction_names_no_partition_that_was_not_read() -> None:
    whole = audited("skipped-marker-43")
    for log in logs(whole):
        alone = audited("skipped-marker-43", only_partitions=(f"{log[0]}-{log[1]}",))
        assert {row["topic"] for row in alone.blocked if not row["topic"].startswith("__")} <= {log[0]}


def test_the_same_scope_in_what_if_and_python(tmp_path: Path) -> None:
    path = corpora.unpack("unknown-producer-23")
    options = AuditOptions((str(path),), tmp_path, only_partitions=("1",))
    result = WhatIfAudit(options, here()).result
    assert "only partitions that match 1 were scanned" in result["notes"]
    assert {row["partition"] for row in result["answered"] if not row["topic"].startswith("__")} <= {1}
    with auditor.open(path, only_partition=0, only_broker=1, since=600) as audit:
        scope = audit.summary["scope"]
        assert (scope["partitions"], scope["brokers"], scope["since"]) == (["0"], [1], "offset 600")
    with pytest.raises(AuditInputError, match="--only-broker 9 matches no broker"):
        auditor.open(path, only_broker=9).findings  # noqa: B018
    with pytest.raises(AuditInputError, match="give a whole number or a list of whole numbers"):
        auditor.open(path, only_broker=["one"])


def test_texts_are_read_whole_and_said_of_what_was_asked_for(tmp_path: Path) -> None:
    name = corpora.names(text=True)[0]
    source = corpora.oracle(name)
    shutil.copytree(source, tmp_path / "texts")
    with pytest.raises(AuditInputError, match="--only-partition nowhere-1 matches no partition"):
        opened(tmp_path / "texts", only_partitions=("nowhere-1",)).findings  # noqa: B018
