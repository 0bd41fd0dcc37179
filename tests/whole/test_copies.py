"""A copy without payload is audited as the directory that it was taken from: the same bytes of findings."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from auditor import cli
from auditor.copying.run import copy_logs
from auditor.copying.target import README
from auditor.pipeline.options import AuditOptions
from tests import corpora, every_corpus
from tests.audited import published
from tests.copies import LIST, copy_of, listed, relisted
from tests.facts import opened

# Objects of Aiven's plugin are not taken: --remote gives them beside the copy.
NOT_TAKEN = ("aiven-43", "tiered-moved-43")


def findings(path: Path, out: Path, as_of: int | None, *more: Path, records: bool = False) -> bytes:
    published(AuditOptions((str(path), *map(str, more)), out, as_of=as_of, records=records))
    return (out / "findings.jsonl").read_bytes()


def test_corpora_are_found_the_same_in_a_copy(tmp_path: Path) -> None:
    """In one with what records come to also what these show; tests/spark has all of them by day, in one of these."""
    source, copies = tmp_path / "source", {records: tmp_path / f"copy-{records}" for records in (False, True)}
    paths = [Path(path) for path in every_corpus.paths(source, every_corpus.BY_DAY) if Path(path).parent == source]
    for records, copy in copies.items():
        copy_logs([str(path) for path in paths], copy, records=records)

    def found(root: Path, *, records: bool) -> list[bytes]:
        first, *more = (root / path.name for path in paths)
        return findings(first, tmp_path / "out", every_corpus.AS_OF, *more, records=records).splitlines()

    was = found(source, records=False)
    assert len(was) > 100
    assert found(copies[False], records=False) == was
    assert found(copies[True], records=False) == was
    assert found(copies[True], records=True) == (with_records := found(source, records=True))
    assert len(with_records) > len(was)


def test_a_copy_holds_no_file_that_a_broker_would_start_on(tmp_path: Path) -> None:
    copy_of(corpora.unpack("healthy-41"), tmp_path)
    names = sorted(p.name for p in tmp_path.rglob("*") if p.is_file())
    assert names[0] == README
    assert "not a backup" in (tmp_path / README).read_text()
    assert not [n for n in names if not n.endswith(".parquet") and n != README]


@pytest.mark.parametrize("corpus", ["unclean-43", "hanging-36"])
def test_each_file_is_decoded_as_it_was(corpus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, copy = corpora.copy(corpus, tmp_path / "source"), tmp_path / "copy"
    copy_of(source, copy)
    tried = 0
    for path in sorted(source.rglob("0*")):
        of = [cli.main(["decode", str(path)])], capsys.readouterr().out
        now = [cli.main(["decode", str(copy / path.relative_to(source))])], capsys.readouterr().out
        set_aside = path.suffix == ".deleted" or path.parent.name.endswith(("-delete", "-stray", "-future"))
        if set_aside:  # of which the name alone is taken
            assert "its name alone was taken" in now[1]
            continue
        assert now == of, path
        tried += 1
    assert tried > 20
    folder = next(path for path in sorted(copy.rglob("*.parquet"))).parent
    assert cli.main(["decode", str(folder)]) == 0
    of_folder = capsys.readouterr().out
    assert cli.main(["decode", *map(str, sorted(folder.glob("*.parquet")))]) == 0
    assert set(capsys.readouterr().out.splitlines()) <= set(of_folder.splitlines())
    assert cli.main(["decode", str(folder / "nothing")]) == 2


@pytest.mark.parametrize("name", ["healthy-41", "live-copy-39", "unclean-43"])
def test_a_partition_of_few_batches_takes_no_more_than_four_kilobytes(name: str, tmp_path: Path) -> None:
    copy_logs([str(corpora.unpack(name))], tmp_path)
    for folder in {path.parent for path in tmp_path.rglob(LIST)}:
        if sum(pq.ParquetFile(path).metadata.num_rows for path in folder.glob("*.parquet")) <= 30:
            assert sum(path.stat().st_size for path in folder.iterdir() if path.is_file()) <= 4096, folder


def test_copies_and_directories_are_read_side_by_side(tmp_path: Path) -> None:
    """One broker of three as a copy, in the same place relative to the others."""
    whole = corpora.copy("replicas-41", tmp_path / "whole")
    as_of = corpora.manifest("replicas-41")["copied_at"]
    was = findings(whole, tmp_path / "a", as_of)
    brokers = sorted(p.name for p in whole.glob("broker-*"))
    mixed = tmp_path / "mixed"
    copy_of(whole / brokers[0], mixed)
    for name in brokers[1:]:
        shutil.copytree(whole / name, mixed / name)
    for file in whole.glob("server-*.properties"):
        shutil.copy(file, mixed)
    assert findings(mixed, tmp_path / "b", as_of) == was


def test_what_a_list_names_elsewhere_is_refused(tmp_path: Path) -> None:
    copy_of(corpora.unpack("healthy-41"), tmp_path / "copy")
    folder = next(p.parent for p in (tmp_path / "copy").rglob(f"*-0/{LIST}"))
    said = listed(folder)
    said["files"][0]["name"] = "../../etc/passwd"
    relisted(folder, said)
    audit = opened(tmp_path / "copy")
    assert [e.file for _, e in audit.unread()] == [f"{folder.name}/{LIST}"]
    assert audit.exit_code() == 3


def test_a_file_of_kafkas_beside_the_list_is_no_input_and_is_said(tmp_path: Path) -> None:
    copy_of(corpora.unpack("healthy-41"), tmp_path / "copy")
    at = next(p.parent for p in (tmp_path / "copy").rglob(f"*-0/{LIST}"))
    (at / f"{0:020}.log").write_bytes(b"")
    audit = opened(tmp_path / "copy")
    assert audit.exit_code() == 3
    assert ["that its list lacks" in error.detail for _, error in audit.unread()] == [True]


def test_a_question_about_records_says_that_there_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy_of(corpora.unpack("healthy-41"), tmp_path / "copy")
    words = ["--master", "inline", "--format", "json"]
    counts = {}
    for path in (corpora.unpack("healthy-41"), tmp_path / "copy"):
        assert cli.main(["sql", "select count(*) n, sum(size) s from batches", str(path), *words]) == 0
        counts[path] = capsys.readouterr()
    assert len({said.out for said in counts.values()}) == 1
    assert not counts[tmp_path / "copy"].err
    assert cli.main(["sql", "select count(*) n from records", str(tmp_path / "copy"), *words]) == 0
    assert "have no records: broker-1" in capsys.readouterr().err


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, copy = corpora.copy("healthy-41", tmp_path / "source"), tmp_path / "copy"
    assert cli.main(["copy", str(source), "--out", str(copy)]) == 0
    said = capsys.readouterr().out
    assert "not a backup" in said
    assert f"auditor audit {copy}" in said
    assert cli.main(["copy", str(source), "--out", str(copy), "--quiet"]) == 0  # once more, over the earlier one
    for wrong in (source / "inside", source.parent, tmp_path / "source" / "broker-1"):
        assert cli.main(["copy", str(source), "--out", str(wrong)]) == 2
    for inside in (copy, copy / "results", copy / "broker-1" / "results"):
        assert cli.main(["audit", str(copy), "--out", str(inside), "--master", "inline[1]"]) == 2
        assert "outside it" in capsys.readouterr().err
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine").touch()
    assert cli.main(["copy", str(source), "--out", str(tmp_path / "other")]) == 2
    assert "not an earlier copy" in capsys.readouterr().err
