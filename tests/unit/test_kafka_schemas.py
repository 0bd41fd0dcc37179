"""Our messages against those of Kafka 4.4.0: every field of every version, by the generated classes of its jars."""

from __future__ import annotations

import pytest

from auditor.connectors.codec.cluster_metadata import BY_NAME, FEATURE_LEVELS, MESSAGES, UNREAD
from auditor.connectors.codec.structs import Field, Message
from tests import formats

KAFKAS = formats.schemas()
DEFAULTS = {
    "OffsetCommitValue",
    "TransactionLogValue",
    *(n for n in formats.ours() if "Group" in n or n.startswith(("Share", "Remote"))),
}


def test_nothing_in_4_4_is_unknown() -> None:
    assert formats.news(KAFKAS) == []
    assert formats.others(formats.stored()) == []
    assert formats.stored()["features"] == FEATURE_LEVELS


def test_only_what_3_9_and_4_0_had_is_known_besides() -> None:
    assert formats.known().keys() - KAFKAS.keys() == {
        "ShareGroupPartitionMetadataKey",
        "ShareGroupPartitionMetadataValue",
    }


def test_news_are_named() -> None:
    topic = {"apiKey": 2, "versions": {"0": KAFKAS["TopicRecord"]["versions"]["0"]}}
    newer = topic | {"versions": topic["versions"] | {"1": {"flexible": True, "fields": []}}}
    assert formats.news({"TopicRecord": topic}) == []
    assert formats.news({"TopicRecord": newer}) == ["TopicRecord has version 1, known: 0"]
    assert formats.news({"HoverRecord": newer}) == ["HoverRecord (api key or type 2) is new, version 1"]
    fewer = {"apiKey": 2, "versions": {"0": {"flexible": True, "fields": []}}}
    (said,) = formats.news({"TopicRecord": fewer})
    assert said.startswith("TopicRecord v0: [] in place of [('name', 'string'")


def test_other_news_are_named() -> None:
    newer = {
        "features": {"share.version": 3, "hover.version": 1, "group.version": 1},
        "versions": {"RecordBatch": 3, "OffsetCheckpointFile": 0},
        "names": {"CompressionType": ["NONE", "BROTLI"]},
    }
    assert formats.others(newer) == [
        "share.version has level 3, known: 2",
        "hover.version has level 1, known: 0",
        "RecordBatch has version 3, known: 2",
        "CompressionType BROTLI is new",
    ]


@pytest.mark.parametrize("name", sorted(KAFKAS.keys() & formats.ours().keys()))
def test_flexible_versions(name: str) -> None:
    message = formats.ours()[name]
    for version, content in KAFKAS[name]["versions"].items():
        assert content["flexible"] == (int(version) >= message.flexible)


@pytest.mark.parametrize("name", sorted(DEFAULTS & KAFKAS.keys()))
def test_defaults_of_tagged_fields(name: str) -> None:
    """Metadata records keep what is absent apart from every value, so they are not among these."""
    last = KAFKAS[name]["versions"][max(KAFKAS[name]["versions"], key=int)]
    for field in last["fields"]:
        if "tag" in field and field["type"] != "struct":
            assert _field(formats.ours()[name], field["name"]).default == field["default"]


def test_a_struct_in_a_tag_has_an_empty_one_as_its_default() -> None:
    (kafkas,) = (
        f for f in KAFKAS["ConsumerGroupMemberMetadataValue"]["versions"]["0"]["fields"] if f.get("tag") is not None
    )
    assert kafkas["default"] == "ClassicMemberMetadata(sessionTimeoutMs=0, supportedProtocols=[])"
    ours = _field(formats.ours()["ConsumerGroupMemberMetadataValue"], "classicMemberMetadata")
    assert ours.default == {"sessionTimeoutMs": 0, "supportedProtocols": []}


def test_api_keys() -> None:
    for key, name in ({key: message.name for key, message in MESSAGES.items()} | UNREAD).items():
        assert KAFKAS[name]["apiKey"] == key
    assert all(KAFKAS[name]["apiKey"] in (-1, *MESSAGES) for name in BY_NAME)


def _field(message: Message, name: str) -> Field:
    return next(field for field in message.fields if field.name == name)
