"""The inventory: links are not followed, archives not unpacked, and what they may hide is reported."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from auditor.base.errors import AuditInputError
from auditor.connectors.logdir.inventory import discover
from tests.unit.test_inventory import bytes_below, make_log_dir, reason, replica_of

LOG = "00000000000000000000.log"


def test_a_linked_partition_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    data = make_log_dir(tmp_path / "data", "t-0")
    (make_log_dir(tmp_path / "disk", "t-1") / "t-1").rename(tmp_path / "elsewhere")
    (data / "t-1").symlink_to(tmp_path / "elsewhere")
    (error,) = discover([str(data)]).errors
    assert (error.log_dir, error.error.file, error.error.reason) == ("data", "t-1", "unreadable")
    assert "give its target directory as a PATH" in error.error.detail


@pytest.mark.parametrize("dangling", [False, True])
def test_a_linked_or_special_file_of_a_partition_is_read_like_any_other_and_so_refused(
    tmp_path: Path, *, dangling: bool
) -> None:
    data = make_log_dir(tmp_path / "data", "t-0", "t-1")
    target = tmp_path / "moved"
    if dangling:
        (data / "t-0" / LOG).unlink()
    else:
        (data / "t-0" / LOG).rename(target)
    (data / "t-0" / LOG).symlink_to(target)
    (data / "t-1" / LOG).unlink()
    os.mkfifo(data / "t-1" / LOG)
    (log_dir,) = discover([str(data)]).log_dirs
    assert [[file.name for file in replica.files()] for replica in log_dir.replicas] == [[f"t-0/{LOG}"], [f"t-1/{LOG}"]]


def test_links_to_what_is_read_anyway_hide_nothing(tmp_path: Path) -> None:
    make_log_dir(tmp_path / "disk1", "t-0")
    make_log_dir(tmp_path / "disk2")
    (tmp_path / "disk2" / "t-0").symlink_to(tmp_path / "disk1" / "t-0")
    found = discover([str(tmp_path)])
    assert not found.errors
    assert not found.notes
    assert reason(found, "t-0") == "symbolic link to a directory that is scanned anyway"
    two = discover([str(tmp_path / "disk1"), str(tmp_path / "disk2")])
    assert not two.errors


def test_a_link_that_nobody_may_follow_is_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of /proc: looking where it leads to is refused."""
    data = make_log_dir(tmp_path / "data", "t-0")
    (data / "t-0" / LOG).unlink()
    (data / "t-0" / LOG).symlink_to("x")
    (data / "t-1").symlink_to("y")
    (data / "other").symlink_to("z")

    resolve = os.path.realpath

    def refused(path: str) -> str:
        if os.path.islink(path):
            raise PermissionError(13, "Permission denied")
        return resolve(path)

    monkeypatch.setattr(os.path, "realpath", refused)
    found = discover([str(data)])
    assert [file.name for file in replica_of(found.log_dirs[0], "t", 0).files()] == [f"t-0/{LOG}"]
    assert [error.error.file for error in found.errors] == ["t-1"]
    assert any("other: symbolic link (not followed)" in note for note in found.notes)


def test_other_links_that_lead_out_are_one_note(tmp_path: Path) -> None:
    data = make_log_dir(tmp_path / "data", "t-0")
    for name in ("a", "b", "server.properties"):
        (data / name).symlink_to(tmp_path / "nowhere")
    found = discover([str(data)])
    assert not found.errors
    (note,) = found.notes
    assert note.startswith("data/a and 2 more: symbolic link (not followed)")


def test_a_link_to_a_log_directory_is_an_error_whatever_its_name(tmp_path: Path) -> None:
    above = tmp_path / "above"
    above.mkdir()
    for name in ("data", "disk-2"):
        (above / name).symlink_to(make_log_dir(tmp_path / name, "t-0"))
    assert {Path(error.error.file).name for error in discover([str(above)]).errors} == {"data", "disk-2"}


def test_links_to_what_is_no_brokers_are_notes_whatever_their_names(tmp_path: Path) -> None:
    data = make_log_dir(tmp_path / "data", "t-0")
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "readme").write_text("of a JDK")
    (data / "jdk-17").symlink_to(tmp_path / "tools")
    (data / "notes-1").symlink_to(tmp_path / "tools" / "readme")
    found = discover([str(data)])
    assert not found.errors
    assert len(found.notes) == 1


def test_a_folder_of_nothing_but_a_link_says_so(tmp_path: Path) -> None:
    above = tmp_path / "above"
    above.mkdir()
    (tmp_path / "tools").mkdir()
    (above / "tools").symlink_to(tmp_path / "tools")
    with pytest.raises(AuditInputError, match=r"tools: symbolic link \(not followed\)"):
        discover([str(above)])


def test_a_link_to_something_else_within_the_path_hides_its_partition(tmp_path: Path) -> None:
    """As git-annex and tools that deduplicate store files: what the link leads to is not read as that partition's."""
    data = make_log_dir(tmp_path / "data", "t-0", "t-1")
    blobs = data / "blobs"
    blobs.mkdir()
    (data / "t-0" / LOG).rename(blobs / "abc123")
    (data / "t-0" / LOG).symlink_to(blobs / "abc123")
    make_log_dir(tmp_path / "other", "t-2")
    (tmp_path / "other" / "t-2").rename(data / "t-2.0123456789abcdef0123456789abcdef-delete")
    (data / "t-2").symlink_to(data / "t-2.0123456789abcdef0123456789abcdef-delete")
    found = discover([str(data)])
    assert [error.error.file for error in found.errors] == ["t-2"]
    assert [file.name for file in replica_of(found.log_dirs[0], "t", 0).files()] == [f"t-0/{LOG}"]


def test_a_link_that_goes_round_ends(tmp_path: Path) -> None:
    data = make_log_dir(tmp_path / "data", "t-0")
    (data / "t-1").symlink_to("t-1")
    (data / "t-2").symlink_to(".")
    found = discover([str(data)])
    assert [error.error.file for error in found.errors] == ["t-1"]


def test_packed_files_of_a_partition_are_errors(tmp_path: Path) -> None:
    data = make_log_dir(tmp_path / "data", "t-0", "t-1")
    (data / "t-1" / LOG).unlink()
    for name in (f"{LOG}.gz", "00000000000000000000.index.zst"):
        (data / "t-1" / name).write_bytes(b"packed")
    (data / "t-0" / "notes.gz").write_bytes(b"not Kafka's")
    found = discover([str(data)])
    assert [error.error.file for error in found.errors] == ["t-1/00000000000000000000.index.zst", f"t-1/{LOG}.gz"]
    assert {file.name for file in replica_of(found.log_dirs[0], "t", 1).files()} == {
        f"t-1/{LOG}", "t-1/00000000000000000000.index"
    }  # fmt: skip
    assert {error.error.detail for error in found.errors} == {"archive: unpack it in place"}
    assert found.unread_bytes == 2 * len(b"packed")
    assert found.bytes_found == bytes_below(data)


def test_an_archive_says_what_to_do(tmp_path: Path) -> None:
    data = make_log_dir(tmp_path / "data", "t-0")
    (data / "broker-2.tar.gz").write_bytes(b"\x1f\x8b")
    (note,) = discover([str(data)]).notes
    assert note == "data/broker-2.tar.gz: archive: unpack it and give the resulting directory as a PATH"
    with pytest.raises(AuditInputError, match="unpack it"):
        discover([str(data / "broker-2.tar.gz")])


def test_a_packed_file_given_by_itself_says_what_to_do(tmp_path: Path) -> None:
    packed = tmp_path / f"{LOG}.gz"
    packed.write_bytes(b"\x1f\x8b")
    with pytest.raises(AuditInputError, match="unpack it"):
        discover([str(packed)])
