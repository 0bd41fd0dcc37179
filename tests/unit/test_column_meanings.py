"""Every column of every table says what it holds, where it is declared."""

from __future__ import annotations

import pytest

from auditor.connectors.schema import EVERYWHERE, LOG_KEY, TABLES, TYPES, declared


@pytest.mark.parametrize("name", TABLES)
def test_every_column_has_a_meaning(name: str) -> None:
    table = TABLES[name]
    assert list(table.meanings) == table.schema(payload=True).names
    assert not [column for column, text in table.meanings.items() if len(text) < 6 or text == column]
    assert name in table.example
    assert len(table.row) > 4


def test_a_column_without_words_is_one_that_means_the_same_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(TABLES, "sample", raising=False)
    text = "a sample\nSELECT 1 FROM sample\nfile:string\nbytes_sent:long bytes of it\nvalue:binary? its value\n"
    found = declared("sample", text, key=LOG_KEY[:1], copy_by=None)
    table = TABLES.pop("sample")
    assert found.names == ["cluster_id", "file", "bytes_sent"]
    assert table.schema(payload=True).names == [*found.names, "value"]
    assert table.row == "a sample"
    assert table.meanings["file"] == EVERYWHERE["file"]
    assert found.field("bytes_sent").type == TYPES["long"]
    with pytest.raises(KeyError):
        declared("sample", "a sample\nSELECT 1\nbytes_sent:long\n", key=())
    assert "sample" not in TABLES
