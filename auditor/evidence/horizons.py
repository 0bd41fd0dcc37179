"""How complete the copy of each log is, and what may be concluded from what it lacks."""

from __future__ import annotations
