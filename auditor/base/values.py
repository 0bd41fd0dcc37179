"""What stands by name: a row of a table by column, a finding's evidence, what JSON has.

Of what type a value is, the table's schema says (``auditor schema``), or the text that it was read from: no hint can.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Values = Mapping[str, Any]  # that are read
Fields = dict[str, Any]  # that are being put together
Json = Any  # of a text that somebody else may have written: nothing is known of it yet
Numba = Any  # what numba and llvmlite give and take, which no hints of theirs say
