"""What is said of many places in the same words is said once, and the values give back each text word for word."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from auditor.dashboards.wording import Alike, alike, names
from tests.terminal_text import filled_in


def place(topic: str, partition: int, **further: object) -> dict[str, object]:
    return {"topic": topic, "partition": partition, **further}


def text_of(row: dict[str, object]) -> list[tuple[str, str]]:
    """As rules say it: a sentence with a number of records, a command, what it has to show."""
    records, name = row["records"], f"{row['topic']}-{row['partition']}"
    stay = "record stays" if records == 1 else "records stay"
    return [
        ("text", f"Act: {records} {stay} unread in {name}."),
        ("command", f"kafka-x.sh --topic {row['topic']} --partition {row['partition']} --at {row['first_offset']}"),
        ("text", f"Continue only if it lists producer id {row['producer_id']} (epoch {row['producer_epoch']})."),
    ]  # fmt: skip


def given_back(group: Alike, number: int) -> list[tuple[str, str]]:
    values = dict(zip(group.columns, group.values[number], strict=True)) if group.columns else {}
    return [(kind, filled_in(text, values)) for kind, text in group.parts]


SMALL = st.integers(0, 3)  # so that a partition, a producer and an offset are often the same number
ROWS = st.lists(
    st.builds(place, st.sampled_from(["a", "a.b", "b"]), SMALL, producer_id=SMALL, producer_epoch=SMALL,
              first_offset=SMALL, records=SMALL),
    min_size=1, max_size=6,
)  # fmt: skip


@given(ROWS)
def test_the_values_give_back_each_text(rows: list[dict[str, object]]) -> None:
    groups = alike([(names(row), text_of(row)) for row in rows])
    assert sorted(number for group in groups for number in group.members) == list(range(len(rows)))
    assert len(groups) == 1  # they differ in nothing but what places are known by
    for at, number in enumerate(groups[0].members):
        wanted = [(kind, singular(text)) for kind, text in text_of(rows[number])]
        assert [(kind, singular(text)) for kind, text in given_back(groups[0], at)] == wanted


def singular(text: str) -> str:
    return text.replace("records stay", "record stays")


def test_a_word_that_is_no_value_keeps_texts_apart() -> None:
    rows = [place("a", 0), place("a", 1)]
    said = [("text", "COMMIT was decided"), ("text", "ABORT was decided")]
    groups = alike([(names(row), [part]) for row, part in zip(rows, said, strict=True)])
    assert [group.parts for group in groups] == [[part] for part in said]
    assert not any(group.columns for group in groups)


def test_a_number_of_something_else_is_no_value() -> None:
    """Coordinator epochs 3 and 4 of partitions 0 and 1: nothing that a place is known by."""
    rows = [place("a", 0, producer_id=7), place("a", 1, producer_id=7)]
    said = [[("text", f"coordinatorEpoch {epoch}")] for epoch in (3, 4)]
    assert len(alike([(names(row), text) for row, text in zip(rows, said, strict=True)])) == 2


def test_a_text_of_one_place_is_as_it_was() -> None:
    said = [("command", "kafka-x.sh --transactional-id 'two  blanks'")]
    (group,) = alike([(names(place("a", 0)), said)])
    assert (group.parts, group.columns, group.values) == (said, [], [])
