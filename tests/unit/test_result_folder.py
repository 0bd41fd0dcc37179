"""Files of a result directory appear whole or not at all, and links in it are not followed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from auditor.connectors.stores.results import PARTIAL, folder
from auditor.outputs import runs
from auditor.outputs.delivery import claimed


def breaking_off() -> Iterator[bytes]:
    yield b"half"
    raise OSError(28, "No space left on device")


def test_what_breaks_off_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    to = folder(tmp_path)
    with pytest.raises(OSError, match="No space left"):
        to.put("a", breaking_off())
    assert not [*tmp_path.iterdir()]
    to.put("a", b"whole")
    with pytest.raises(OSError, match="No space left"):
        to.put("a", breaking_off())
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a", b"whole")]


def test_of_writers_at_the_same_time_one_is_there_whole(tmp_path: Path) -> None:
    contents = [bytes([number]) * (1 << 20) for number in range(8)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda content: folder(tmp_path).put("a", iter([content[:9], content[9:]])), contents))
    (path,) = tmp_path.iterdir()
    assert path.read_bytes() in contents


def test_text_comes_in_pieces_and_any_name_will_do(tmp_path: Path) -> None:
    name = "n" * 255  # what file systems take
    folder(tmp_path).put_text(name, (piece for piece in ("a", "\u00e9\udc80")))
    assert (tmp_path / name).read_bytes() == b"a\xc3\xa9?"


@pytest.mark.parametrize("link", [".", "run_id=r", "run_id=r/findings"])
def test_links_are_followed_up_to_what_the_user_named(tmp_path: Path, link: str) -> None:
    precious, history = tmp_path / "precious", tmp_path / "history"
    precious.mkdir()
    (history / link).parent.mkdir(parents=True, exist_ok=True)
    (history / link).symlink_to(precious)
    runs.publish(history, "r", {"findings": pa.table({"n": [1]})}, {})
    assert sorted(path.name for path in precious.iterdir()) == (["_unfinished", "run_id=r"] if link == "." else [])
    assert len(runs.committed(history)) == 1


def test_what_a_killed_writer_left_goes_with_the_next_claim(tmp_path: Path) -> None:
    (tmp_path / f"{PARTIAL}0123-findings.jsonl").write_bytes(b"half")
    with claimed(tmp_path):
        assert not [*tmp_path.glob(f"{PARTIAL}*")]
