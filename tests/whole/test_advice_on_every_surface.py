"""What to do about a finding is the same on every surface, of every real broker's directory that there is; the
incidents of this folder are held to the same (``conftest.py``)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import corpora
from tests.facts import opened
from tests.one_advice import everywhere


@pytest.mark.parametrize("corpus", [*corpora.judged(), *corpora.campaigns()])
def test_verdict_and_conditions_are_the_same_everywhere(corpus: str, tmp_path: Path) -> None:
    everywhere(opened(corpora.unpack(corpus), as_of=corpora.manifest(corpus).get("copied_at")), tmp_path)
