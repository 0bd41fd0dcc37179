"""An inventory as the text of a data source's option: what comes back is equal, and no text runs anything."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import pickle
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auditor.base.errors import AuditInputError, DecodeError, StartFile
from auditor.connectors.codec.small_files import MetaProperties, Offsets
from auditor.connectors.logdir.copy_view import CopyView
from auditor.connectors.logdir.files import (
    BrokerSettings,
    DataFile,
    Inventory,
    LogDir,
    RemoteFiles,
    RemoteFolder,
    Replica,
    SegmentFile,
    Skipped,
    TextFile,
    Unreadable,
)
from auditor.connectors.logdir.inventory import discover
from auditor.connectors.logdir.tiered import Chunked, ObjectRange
from auditor.connectors.stores.storage import StorageLocation
from auditor.connectors.tables import input_splits, source_options
from tests import corpora

NUMBERS = st.integers(-1, 1 << 63)
NAMES = st.text(st.characters(), max_size=3)  # surrogates, too: names on disk need not be UTF-8
VIEWS = (
    st.none()
    | st.builds(CopyView, NUMBERS)
    | st.builds(Chunked, NAMES)
    | st.builds(ObjectRange, NAMES, NUMBERS, NUMBERS)
)
PLACES = st.builds(StorageLocation, NAMES, NAMES, VIEWS)
FILES = st.builds(DataFile, NAMES, NUMBERS, NAMES, NUMBERS, st.none() | PLACES)
SOME_FILES = st.lists(FILES, max_size=1).map(tuple)
MAYBE_FILE = st.none() | FILES
SEGMENTS = st.builds(SegmentFile, NAMES, NUMBERS, NUMBERS, MAYBE_FILE, MAYBE_FILE, MAYBE_FILE, st.none() | PLACES)
REPLICAS = st.builds(
    Replica, NAMES, st.none() | NAMES, st.none() | NUMBERS, NAMES, NAMES, st.none() | NAMES,
    st.lists(SEGMENTS, max_size=1).map(tuple), SOME_FILES, MAYBE_FILE, MAYBE_FILE, SOME_FILES, SOME_FILES,
)  # fmt: skip
CONFIGS = st.dictionaries(NAMES, NAMES, max_size=1)
WORDS = st.frozensets(NAMES, max_size=1)
CHECKPOINTS = st.dictionaries(
    NAMES, st.dictionaries(st.tuples(NAMES, NUMBERS), NUMBERS, max_size=1).map(Offsets), max_size=1
)
LOG_DIRS = st.builds(
    LogDir,
    name=NAMES, place=PLACES, join_key=NAMES, cluster_id=st.none() | NAMES, broker_id=st.none() | NUMBERS,
    broker_id_source=NAMES, clean_shutdown=st.booleans(),
    meta=st.none() | st.builds(MetaProperties, NUMBERS, st.none() | NUMBERS, st.none() | NAMES, st.none() | NAMES),
    checkpoints=CHECKPOINTS, whole_checkpoints=WORDS, configs=CONFIGS,
    unknown_settings=WORDS, replicas=st.lists(REPLICAS, max_size=1), aside=st.lists(REPLICAS, max_size=1).map(tuple),
    texts=st.lists(st.builds(TextFile, NAMES, NUMBERS, NAMES), max_size=1).map(tuple), small_files=SOME_FILES,
    copied=st.booleans(), listed=NUMBERS, machine=NAMES,
    read_at=st.dictionaries(NAMES, st.tuples(NUMBERS, NUMBERS), max_size=1),
    start_files=st.lists(st.builds(StartFile, NAMES, NAMES, NAMES), max_size=1).map(tuple),
)  # fmt: skip
REMOTE = st.builds(
    RemoteFolder, NAMES, NUMBERS, NAMES,
    st.lists(st.builds(RemoteFiles, NUMBERS, NAMES, SOME_FILES, st.booleans()), max_size=1).map(tuple),
)  # fmt: skip
INVENTORIES = st.builds(
    Inventory,
    log_dirs=st.lists(LOG_DIRS, max_size=1).map(tuple),
    settings=st.lists(
        st.builds(BrokerSettings, NAMES, NUMBERS, st.none() | NUMBERS, CONFIGS, WORDS, WORDS), max_size=1
    ).map(tuple),
    skipped=st.lists(st.builds(Skipped, NAMES, NAMES, NUMBERS, NAMES), max_size=1).map(tuple),
    errors=st.lists(
        st.builds(Unreadable, NAMES, st.builds(DecodeError, NAMES, NUMBERS, NUMBERS, NAMES, NAMES, NUMBERS, NUMBERS)),
        max_size=1,
    ).map(tuple),
    notes=st.lists(NAMES, max_size=1).map(tuple),
    remote=st.lists(REMOTE, max_size=1).map(tuple),
    unread_bytes=NUMBERS,
)  # fmt: skip


def shape(value: object) -> object:
    """The classes that a value is made of: equal tuples may be of different ones."""
    if dataclasses.is_dataclass(value):
        return type(value), [shape(getattr(value, f.name)) for f in dataclasses.fields(value)]
    if isinstance(value, Mapping):
        return type(value), {key: shape(one) for key, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return type(value), [*map(shape, value)]
    return type(value)


@settings(max_examples=40, deadline=None)
@given(INVENTORIES)
def test_what_comes_back_is_equal_to_its_types(inventory: Inventory) -> None:
    found = input_splits.loads(input_splits.dumps(inventory))
    assert found == inventory
    assert shape(found) == shape(inventory)


@pytest.mark.parametrize("name", ["tiered-43", "replicas-41", "healthy-41"])
def test_inventories_of_brokers_come_back(name: str) -> None:
    inventory = discover([str(corpora.unpack(name))])
    assert input_splits.loads(input_splits.dumps(inventory)) == inventory


class Runs:
    """Unpickled, it writes a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> object:
        return Path.write_text, (self.mark, "ran")


def test_the_option_is_not_unpickled(tmp_path: Path) -> None:
    """It may come from anybody's SQL: OPTIONS (inventory '...'), or WITH ('inventory'='...')."""
    mark = tmp_path / "mark"
    packed = zlib.compress(pickle.dumps(Runs(mark)))
    pickle.loads(zlib.decompress(packed))
    assert mark.read_text() == "ran"  # as it would
    mark.unlink()
    with pytest.raises(AuditInputError, match="option inventory is not one that the auditor made"):
        source_options.inventory_of({"path": "x", "Inventory": base64.b85encode(packed).decode()})
    assert not mark.exists()


@given(st.binary(max_size=200) | st.text(max_size=20))
def test_any_other_text_is_one_line(text: bytes | str) -> None:
    made = base64.b85encode(text).decode() if isinstance(text, bytes) else text
    with pytest.raises(AuditInputError, match="option inventory"):
        input_splits.loads(made)


@settings(max_examples=40, deadline=None)
@given(INVENTORIES, st.data())
def test_a_changed_text_is_an_inventory_or_one_line(inventory: Inventory, data: st.DataObject) -> None:
    text = input_splits.dumps(inventory)
    at = data.draw(st.integers(0, len(text) - 1))
    changed = text[:at] + data.draw(st.sampled_from("0aZ~")) + text[at + 1 :]
    with contextlib.suppress(AuditInputError):
        input_splits.loads(changed)
