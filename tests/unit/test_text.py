"""How values look to people."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.base import words
from auditor.dashboards import wording


@pytest.mark.parametrize(
    ("ms", "said"),
    [
        (None, "–"), (0, "0 ms"), (999, "999 ms"), (1000, "1 s"), (61_000, "1 min 1 s"), (3_600_000, "1 h"),
        (7_260_000, "2 h 1 min"), (90_061_000, "1 d 1 h"), (86_400_000 + 60_000, "1 d"), (-1500, "−1 s"),
    ],
)  # fmt: skip
def test_duration(ms: int | None, said: str) -> None:
    assert words.duration(ms) == said


@pytest.mark.parametrize(
    ("name", "ms", "said"),
    [
        ("last_timestamp_ms", 1795308329000, "1795308329000 (2026-11-22 00:45:29 UTC)"),  # date -u -d @1795308329
        ("last_timestamp_ms", -1, "-1"),
        ("last_timestamp_ms", 2**63 - 1, "9223372036854775807 (106,751,991,167 d 7 h)"),
        ("age_ms", 90_000, "90000 (1 min 30 s)"),
    ],
)
def test_a_time_is_no_duration(name: str, ms: int, said: str) -> None:
    assert wording.fact(name, ms) == said


@pytest.mark.parametrize(
    ("count", "said"),
    [(None, "–"), (1, "1 byte"), (999, "999 bytes"), (1024, "1 KiB"), (1_605_632, "1.53 MiB"), (10 * 2**40, "10 TiB")],
)
def test_size(count: int | None, said: str) -> None:
    assert wording.size(count) == said


@pytest.mark.parametrize(
    ("iso", "said"),
    [
        ("2026-11-21T04:00:00.123Z", "2026-11-21 04:00:00 UTC"),
        ("2026-11-21T04:00:00Z", "2026-11-21 04:00:00 UTC"),
        ("2026-11-21T04:00:00+02:00", "2026-11-21T04:00:00+02:00"),
        ("soon", "soon"),
        (None, "–"),
    ],
)
def test_instant(iso: str | None, said: str) -> None:
    assert wording.instant(iso) == said


@pytest.mark.parametrize(
    ("remedy", "parts"),
    [
        ("", []),
        ("do nothing", [("text", "do nothing")]),
        ("set `acks=all` now", [("text", "set "), ("code", "acks=all"), ("text", " now")]),
        (
            "run `kafka-transactions.sh --bootstrap-server B list`; then wait",
            [("text", "run "), ("command", "kafka-transactions.sh --bootstrap-server B list"), ("text", "Then wait")],
        ),
        (
            "Run kafka-transactions.sh --bootstrap-server B abort --topic t --partition 0 --start-offset 7, then wait",
            [
                ("text", "Run "),
                (
                    "command",
                    "kafka-transactions.sh --bootstrap-server B abort --topic t --partition 0 --start-offset 7",
                ),
                ("text", "Then wait"),
            ],
        ),
        (
            "see kafka-dump-log.sh for it",
            [("text", "see "), ("code", "kafka-dump-log.sh"), ("text", " for it")],
        ),
    ],
)
def test_pieces(remedy: str, parts: list[tuple[str, str]]) -> None:
    assert wording.pieces(remedy) == parts


@given(st.text())
def test_visible_text_is_printable_and_plain_text_stays(given_text: str) -> None:
    said = wording.visible(given_text)
    assert not any(ord(sign) < 32 or 127 <= ord(sign) < 160 or 0xD800 <= ord(sign) < 0xE000 for sign in said)
    said.encode("utf-8")
    assert wording.visible(said) == said


def test_clip_says_how_much_is_missing() -> None:
    assert wording.clip("abcdef", 6) == "abcdef"
    assert wording.clip("ab" * 30, 2) == "ab… (58 more characters)"
    assert wording.clip("ab" * 20, 2) == "ab" * 20, "no longer than two times what would say how much it is"


@pytest.mark.parametrize(("first", "last", "said"), [(1, 2, "1–2"), (1, 1, "1"), (1, None, "1"), (None, None, "")])
def test_offsets(first: int | None, last: int | None, said: str) -> None:
    assert wording.offsets(first, last) == said
