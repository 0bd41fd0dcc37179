"""Expected values are formats.md section 8's, which were read from real files."""

import pytest

from auditor.model.transaction_states import java_string_hash, partition_for


@pytest.mark.parametrize(
    ("name", "value", "partition"),
    [
        ("my-txn", -1061187895, 45),
        ("tv0-a", 110691394, 44),
        ("é", 233, 33),
        ("😀x", 54959989, 39),
        ("polygenelubricants", -(2**31), 0),
        ("", 0, 0),
    ],
)
def test_partition_of_an_id(name: str, value: int, partition: int) -> None:
    assert java_string_hash(name) == value
    assert partition_for(name, 50) == partition


def test_the_one_int_without_an_absolute_value_goes_to_zero() -> None:
    assert partition_for("polygenelubricants", 7) == 0  # 2**31 % 7 is 2


def test_a_lone_surrogate_is_a_unit_like_any_other() -> None:
    assert java_string_hash("\ud800") == 0xD800


@pytest.mark.parametrize("partitions", [0, -1])
def test_a_topic_without_partitions_owns_nothing(partitions: int) -> None:
    with pytest.raises(ValueError, match="at least one partition"):
        partition_for("a", partitions)


def test_one_partition_owns_everything() -> None:
    assert partition_for("my-txn", 1) == 0
