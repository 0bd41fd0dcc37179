"""Every column of every table says what it holds, where it is declared."""

from __future__ import annotations

import pytest

from auditor.connectors.schema import EVERYWHERE, LOG_KEY, MEANINGS, TYPES, declared
from auditor.pipeline.table_parts import schemas
from scripts.tables_page import meanings

TABLES = schemas(payload=True)


@pytest.mark.parametrize("table", TABLES)
def test_every_column_has_a_meaning(table: str) -> None:
    says = meanings(table)
    assert list(says) == TABLES[table].names
    assert not [name for name, text in says.items() if len(text) < 8 or text == name]


def test_a_column_without_words_is_one_that_means_the_same_everywhere() -> None:
    found = declared("sample", LOG_KEY[:1], "file:string\nbytes_sent:long bytes of it\n")
    assert found.names == ["cluster_id", "file", "bytes_sent"]
    assert MEANINGS.pop("sample")["file"] == EVERYWHERE["file"]
    assert found.field("bytes_sent").type == TYPES["long"]
    with pytest.raises(KeyError):
        declared("sample", [], "bytes_sent:long\n")
    MEANINGS.pop("sample", None)
