"""What a finding must have to do with another to be explained by it."""

from __future__ import annotations

import pytest

from auditor.rules.catalogue import registry
from auditor.rules.catalogue.relations import of_the_marker_that_raised_its_epoch
from auditor.rules.seen.view import Finding


@pytest.mark.parametrize(("marker", "higher", "explained"), [(True, 50, True), (True, 40, False),
                                                             (None, 50, False)])  # fmt: skip
def test_an_operators_marker_explains_the_coordinators_and_no_data(
    marker: bool | None, higher: int, explained: bool
) -> None:
    """Data of a lower epoch behind it is a zombie's, and a finding of its own."""
    cause = Finding("split-decision", "critical", topic="t", partition=0, producer_id=7, offset=50)
    other = Finding("epoch-regression", "error", topic="t", partition=0, producer_id=7, offset=60,
                    evidence={"higher_epoch_offset": higher, "marker": marker})  # fmt: skip
    assert of_the_marker_that_raised_its_epoch.holds(cause, other) == explained


def test_a_split_decision_is_never_folded() -> None:
    """Two outcomes of one transaction stay said, whatever else is wrong at the same place."""
    assert registry.kinds()["split-decision"].absorbed_by == ()
